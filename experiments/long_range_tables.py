"""Tables, verdicts and pictures of `long_range`, from its Dataset alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from experiments.claims.flexformer import LRA
from experiments.comparisons import compare_rows, holm
from experiments.linear_rows import ROWS, best_rates, pairs_of
from experiments.long_range import REDUCED, TASKS
from experiments.metrics import Estimate
from experiments.report import Section, Table, spread, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLES = {
    "listops": "ListOps",
    "text": "Text (bytes)",
    "retrieval": "Retrieval",
    "image": "Image (pixels)",
    "pathfinder": "Pathfinder",
}
TEXT = (
    "Flexformer's table of the Long Range Arena at this machine's scale. Rows of a task share sizes, data, epochs and the batches of a "
    "seed; the learning rate is each family's own, chosen on validation data of another seed."
)


def section(ds: xr.Dataset) -> Section:
    """What was measured, beside the paper's figures; what the comparisons say; how many units ran."""
    rates, table = best_rates(ds, "validation_last"), main_rows(ds)
    tables = [rate_table(rates)] if rates else []
    verdicts = []
    if table.sizes["row"]:
        found = compared(table)
        tables = [accuracies(table), details(table), differences(found), *tables]
        verdicts = [said(found, k) for k in range(found.sizes["pair"]) if bool(found["leading"][k])]
    size = json.loads(ds.attrs["config"])["size"]
    note = f"{ds.attrs['finished']} of {ds.attrs['planned']} units ran. Reduced: {REDUCED.get(size, 'nothing')}."
    return Section("Long-range tasks", f"{TEXT}\n\n{note}", tables, captions(table), verdicts)


def main_rows(ds: xr.Dataset) -> xr.Dataset:
    """The Dataset of the table alone, without the rows that compare learning rates."""
    rows = [name for name in ROWS if name in ds["row"].values]
    return ds.sel(row=rows).dropna("seed", how="all", subset=["accuracy"])


def accuracies(ds: xr.Dataset) -> Table:
    """Mean and deviation over seeds of every row and task, and the paper's figure."""
    tasks = [task for task in TASKS if task in ds["task"].values]
    header = ["row"]
    for task in tasks:
        header += [TITLES[task], "paper"]
    rows = []
    for name in (str(name) for name in ds["row"].values):
        cells = [name]
        for task in tasks:
            paper = LRA[name][TASKS.index(task)] if name in LRA else None
            cells += [spread(ds["accuracy"].sel(task=task, row=name), 100.0), "-" if paper is None else f"{paper:.1f}"]
        rows.append(cells)
    chance = ", ".join(f"{TITLES[task]} {100 * float(ds['chance'].sel(task=task).max()):.1f}" for task in tasks)
    notes = [
        "accuracy on the test part [%], mean ± standard deviation over seeds; paper: the figure at full length and size",
        f"the commonest class: {chance}",
    ]
    return Table("Accuracy", header, rows, notes)


def details(ds: xr.Dataset) -> Table:
    """Log loss, trained parameters, time, denominators that are not positive, and what Phase A did."""
    header = ["row", "log loss", "seconds", "parameters", "denominators <= 0 [%]", "held-out alignment before", "after"]
    rows = []
    for name in (str(name) for name in ds["row"].values):
        one = ds.sel(row=name)
        cells = [
            f"{float(one['log_loss'].mean()):.3f}",
            f"{float(one['training_seconds'].mean()):.0f}",
            f"{float(one['n_parameters'].max()):,.0f}",
        ]
        last = 100 * one["nonpositive"].isel(epoch=-1).mean() if "nonpositive" in one else xr.DataArray(np.nan)
        cells += [_or_dash(float(last), 0), *(_or_dash(float(one[side].mean()), 3) for side in ("holdout_before", "holdout_after"))]
        rows.append([name, *cells])
    return Table(
        "Means over tasks and seeds", header, rows, ["parameters: of the largest model; alignment: centred kernel alignment with labels"]
    )


def _or_dash(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if np.isfinite(value) else "-"


def compared(ds: xr.Dataset) -> xr.Dataset:
    """All pairs of all tasks, "TASK: first - second"; leading: our best row against softmax and the best linear baseline; p corrected over
    all of them together."""
    parts = []
    for task in (str(task) for task in ds["task"].values):
        one = ds.sel(task=task)
        pairs = pairs_of(one, "validation_last")
        found = compare_rows(one[["correct"]], pairs, correction="none")
        names = {"pair": [f"{task}: {first} - {second}" for first, second in pairs]}
        parts.append(found.assign_coords(names).assign(leading=("pair", [k < 2 for k in range(len(pairs))])))
    return corrected(xr.concat(parts, "pair", combine_attrs="drop_conflicts"))


def corrected(found: xr.Dataset) -> xr.Dataset:
    """p corrected for how many comparisons there are, apart for the leading ones and the others."""
    p, leading = found["p"].values, found["leading"].values.astype(bool)
    raised = p.copy()
    for part in (leading, ~leading):
        raised[part] = holm(p[part])
    found["p_corrected"] = ("pair", raised)
    return found.assign_attrs(correction="holm")


def differences(found: xr.Dataset) -> Table:
    """The comparisons as numbers."""
    rows = []
    for name in found["pair"].values:
        one = found.sel(pair=name)
        value, low, high = (100 * float(one[end]) for end in ("difference", "low", "high"))
        rows.append([str(name), f"{value:+.1f}", f"{low:+.1f} to {high:+.1f}", f"{float(one['p_corrected']):.3f}"])
    note = "test accuracy that the first row gains, over seeds and examples; p (Holm): over the lines of our best row, and over the rest"
    return Table("Differences [points]", ["rows", "difference", "95 % interval", "p"], rows, [note])


def said(found: xr.Dataset, k: int) -> str:
    """One comparison in words."""
    one = found.isel(pair=k)
    return f"{one['pair'].item()}: {verdict(Estimate(*(float(one[end]) for end in ('difference', 'low', 'high'))))}"


def rate_table(rates: dict[str, float]) -> Table:
    """The learning rate of each family and task, and the option that sets them."""
    option = "--lrs " + " ".join(f"'{key}' {rate:g}" for key, rate in rates.items())
    return Table("Learning rates", ["task and family", "rate"], [[key, f"{rate:g}"] for key, rate in rates.items()], [option])


def captions(ds: xr.Dataset) -> dict[str, str]:
    """File names and captions of `figures`."""
    if not ds.sizes["row"]:
        return {}
    return {
        "long_range_accuracy.png": "Test accuracy: a dot a seed, a bar their mean, a triangle the paper's figure at full length and size.",
        "long_range_differences.png": "Differences of test accuracy with intervals over seeds and examples.",
    }


def figures(ds: xr.Dataset) -> dict[str, Figure]:
    """Accuracies of all rows, and the differences that the verdicts are about."""
    from experiments.plots import plot_methods
    from experiments.plots.panels import ORANGE, panels_of

    table = main_rows(ds)
    if not table.sizes["row"]:
        return {}
    tasks, names = [task for task in TASKS if task in table["task"].values], [str(name) for name in table["row"].values]
    figure, axes = panels_of(len(tasks), 3.2 + 2.9 * len(tasks), 1.2 + 0.27 * len(names))
    for place, (task, ax) in enumerate(zip(tasks, axes)):
        one = table.sel(task=task)
        plot_methods(one["accuracy"].rename(row="method"), ax=ax, title=TITLES[task], chance=float(one["chance"].max()))
        paper = {name: LRA[name][TASKS.index(task)] for name in names if name in LRA}
        ax.plot(list(paper.values()), [names.index(name) for name in paper], "^", color=ORANGE, markersize=5, alpha=0.8)
        if place:
            ax.set_yticklabels([])
    return dict(zip(captions(table), (figure, drawn_differences(compared(table), TITLES, "test accuracy"))))


def drawn_differences(found: xr.Dataset, titles: dict[str, str], what: str, **how: Any) -> Figure:
    """A panel a task of the pairs named "TASK: first - second"."""
    from experiments.plots import plot_differences
    from experiments.plots.panels import panels_of

    tasks = [str(name).partition(": ")[0] for name in found["pair"].values]
    order = list(dict.fromkeys(tasks))
    figure, axes = panels_of(len(order), 9.5, 0.7 * len(order) + 0.29 * len(tasks), len(order))
    for task, ax in zip(order, axes):
        here = found.isel(pair=[k for k, name in enumerate(tasks) if name == task])
        names = [str(name).partition(": ")[2] for name in here["pair"].values]
        plot_differences(here.assign_coords(pair=names), ax=ax, title=f"{titles.get(task, task)}: {what}, first - second", **how)
    return figure
