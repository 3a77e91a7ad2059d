"""What the tables of experiments with the rows of `linear_rows` share: rows compared in pairs, as numbers, in words and as pictures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import xarray as xr

from experiments.comparisons import compare_rows, holm
from experiments.linear_plan import best_rates
from experiments.linear_rows import ROWS, leading_pairs, pairs_of
from experiments.metrics import Estimate
from experiments.report import Section, Table, interval, p_value, signed, verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Gain(NamedTuple):
    """What rows are compared in, and how it is said."""

    variable: str  # of the Dataset, a number of each test example
    sign: int  # 1: more is better, as in the validation score; -1: less is
    what: str  # for headers: "test accuracy"
    note: str  # of the table of differences
    column: str = "difference"
    unit: str = "points"
    scale: float = 100.0  # of the unit
    digits: int = 1


Columns = Mapping[str, tuple[str, str, str]]  # header: variable, mean or max over tasks and seeds, format


def section(
    ds: xr.Dataset,
    gain: Gain,
    *,
    title: str,
    text: str,
    reduced: Mapping[str, str],
    own: Callable[[xr.Dataset], list[Table]],
    captions: Mapping[str, str],
) -> Section:
    """An experiment's `own` tables of what was measured, what the comparisons say, the learning rates, and how many units ran."""
    rates, table = best_rates(_more_is_better(ds, gain), "validation_last"), main_rows(ds)
    tables, verdicts, n_pictures = [rate_table(rates)] if rates else [], [], 0
    if table.sizes["row"]:
        found = compared(table, gain)
        tables, n_pictures = [*own(table), *([] if found is None else [differences(found, gain)]), *tables], 1 if found is None else 2
        verdicts = [] if found is None else [said(found, int(k), gain) for k in np.flatnonzero(found["leading"])]
    size = json.loads(ds.attrs["config"])["size"]
    note = f"{ds.attrs['finished']} of {ds.attrs['planned']} units ran. Reduced: {reduced.get(size, 'nothing')}."
    return Section(title, f"{text}\n\n{note}", tables, dict(list(captions.items())[:n_pictures]), verdicts)


def main_rows(ds: xr.Dataset) -> xr.Dataset:
    """The Dataset of the table alone: without the rows that compare learning rates, and without what did not run at all."""
    return ran(ds, ROWS)


def ran(ds: xr.Dataset, rows: Iterable[str]) -> xr.Dataset:
    """These rows of a Dataset, in their order, without tasks, rows and seeds that did not run at all."""
    table = ds.sel(row=[name for name in rows if name in ds["row"].values])
    for dim in ("task", "row", "seed"):
        table = table.dropna(dim, how="all", subset=["accuracy"])
    return table


def details(ds: xr.Dataset, columns: Columns, title: str, note: str) -> Table:
    """Some columns, denominators that are not positive, and what Phase A did; "-" for a row that did not run on every task."""
    header = ["row", "seeds", *columns, "denominators <= 0 [%]", "held-out alignment before", "after"]
    rows = []
    for name in (str(name) for name in ds["row"].values):
        one = ds.sel(row=name)
        n_seeds = one["accuracy"].notnull().sum("seed").values
        cells = [f"{n_seeds.min()}" + (f" to {n_seeds.max()}" if n_seeds.min() < n_seeds.max() else "")]
        cells += [_over_tasks(one[variable].mean("seed"), how, form) for variable, how, form in columns.values()]
        last = 100 * float(one["nonpositive"].isel(epoch=-1).mean()) if "nonpositive" in one else np.nan
        aligned = (_or_dash(float(one[side].mean()), 3) for side in ("holdout_before", "holdout_after"))
        rows.append([name, *cells, _or_dash(last, 0), *aligned])
    return Table(title, header, rows, [note])


def _over_tasks(values: xr.DataArray, how: str, form: str) -> str:
    """The mean or largest of what is known of every task."""
    value = float(getattr(values, how)(skipna=False))
    return f"{value:{form}}" if np.isfinite(value) else "-"


def _or_dash(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if np.isfinite(value) else "-"


def rate_table(rates: dict[str, float]) -> Table:
    """The learning rate of each family and task, and the option that sets them."""
    rows = [[key, f"{rate:g}"] for key, rate in rates.items()]
    return Table("Learning rates", ["task and family", "rate"], rows, [lrs_option(rates)])


def lrs_option(rates: dict[str, float]) -> str:
    """The option of the command line that sets these learning rates."""
    return "--lrs " + " ".join(f"'{key}' {rate:g}" for key, rate in rates.items())


# ---- comparisons -------------------------------------------------------------------------------------------------------------------------


def compared(ds: xr.Dataset, gain: Gain) -> xr.Dataset | None:
    """What the first row of each pair of each task gains over the second, "TASK: first - second", positive where the first is better.

    None where no two rows to be compared ran with a common seed.

    leading: our best row against softmax and the best linear baseline; p is corrected among the leading pairs, and among the others.
    """
    parts = []
    for task in (str(task) for task in ds["task"].values):
        one = ds.sel(task=task)
        ranked = _more_is_better(one, gain)
        pairs, leading = pairs_of(ranked, "validation_last"), leading_pairs(ranked, "validation_last")
        if not pairs:
            continue
        found = compare_rows(gain.sign * one[[gain.variable]], pairs, variable=gain.variable, correction="none")
        names = {"pair": [f"{task}: {first} - {second}" for first, second in pairs]}
        found = found.assign_coords(names).assign(leading=("pair", [pair in leading for pair in pairs]))
        parts.append(found.isel(pair=np.flatnonzero(found["n_seeds"])))
    if not sum(part.sizes["pair"] for part in parts):
        return None
    return _corrected(xr.concat(parts, "pair", combine_attrs="drop_conflicts"))


def _more_is_better(ds: xr.Dataset, gain: Gain) -> xr.Dataset:
    """The validation score, by which rows and rates are chosen, with its sign."""
    return ds.assign(validation_last=gain.sign * ds["validation_last"])


def _corrected(found: xr.Dataset) -> xr.Dataset:
    p, leading = found["p"].values, found["leading"].values.astype(bool)
    raised = p.copy()
    for part in (leading, ~leading):
        raised[part] = holm(p[part])
    found["p_corrected"] = ("pair", raised)
    return found.assign_attrs(correction="holm")


def differences(found: xr.Dataset, gain: Gain) -> Table:
    """The comparisons as numbers."""
    rows = []
    for name in found["pair"].values:
        one = found.sel(pair=name)
        value, low, high = (float(one[end]) for end in ("difference", "low", "high"))
        cells = [signed(gain.scale * value, gain.digits), interval(low, high, scale=gain.scale, digits=gain.digits)]
        rows.append([str(name), *cells, p_value(float(one["p_corrected"])), str(int(one["n_seeds"]))])
    note = f"{gain.note}; p (Holm): over the lines of our best row, and over the rest"
    return Table(f"Differences [{gain.unit}]", ["rows", gain.column, "95 % interval", "p", "seeds"], rows, [note])


def said(found: xr.Dataset, k: int, gain: Gain) -> str:
    """One comparison in words."""
    one = found.isel(pair=k)
    estimate = Estimate(*(float(one[end]) for end in ("difference", "low", "high")))
    return f"{one['pair'].item()}: {verdict(estimate, unit=gain.unit, scale=gain.scale, digits=gain.digits)}"


# ---- pictures ----------------------------------------------------------------------------------------------------------------------------


def drawn_rows(ds: xr.Dataset, tasks: Sequence[str], width: float, draw: Callable[[xr.Dataset, Axes], None]) -> Figure:
    """A panel a task, drawn by `draw`; the names of the rows stand at the first."""
    from experiments.plots.panels import panels_of

    figure, axes = panels_of(len(tasks), width, 1.2 + 0.28 * ds.sizes["row"])
    for place, (task, ax) in enumerate(zip(tasks, axes)):
        draw(ds.sel(task=task), ax)
        if place:
            ax.set_yticklabels([])
    return figure


def drawn_differences(ds: xr.Dataset, gain: Gain, titles: Mapping[str, str]) -> list[Figure]:
    """One figure, a panel a task, of what `compared` finds, or none where it finds nothing; `titles` of tasks, if not the names."""
    from experiments.plots import plot_differences
    from experiments.plots.panels import panels_of

    found = compared(ds, gain)
    if found is None:
        return []
    tasks = [str(name).partition(": ")[0] for name in found["pair"].values]
    order = list(dict.fromkeys(tasks))
    figure, axes = panels_of(len(order), 9.5, 0.7 * len(order) + 0.29 * len(tasks), len(order))
    for task, ax in zip(order, axes):
        here = found.isel(pair=[k for k, name in enumerate(tasks) if name == task])
        names = [str(name).partition(": ")[2] for name in here["pair"].values]
        title = f"{titles.get(task, task)}: {gain.what}, first - second"
        plot_differences(here.assign_coords(pair=names), ax=ax, title=title, unit=gain.unit, scale=gain.scale)
    return [figure]
