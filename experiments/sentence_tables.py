"""Tables and conclusions of `sentence_classification`, from its Dataset alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import xarray as xr

from experiments import metrics
from experiments.claims.rules import mean_difference
from experiments.comparisons import best_row, compare_rows, holm
from experiments.report import Section, Table, interval, p_value, percent, signed, spread, verdict
from experiments.sentence_rows import ABLATIONS, CONTROLS, LINEAR, MAPS, OURS, PARTS

TITLES = {"sst2": "SST-2", "qqp": "QQP", "rotten_tomatoes": "Rotten Tomatoes", "digits": "digits"}
BASELINES = ("softmax", *LINEAR)
SCORES = {  # column: (variable, factor, digits)
    "accuracy": ("accuracy", 100, 1),
    "F1 macro": ("f1_macro", 100, 1),
    "ROC-AUC": ("roc_auc", 100, 1),
    "PR-AUC": ("pr_auc", 100, 1),
    "MCC": ("matthews", 1, 3),
    "balanced": ("balanced_accuracy", 100, 1),
    "log loss": ("log_loss", 1, 3),
    "Brier": ("brier", 1, 3),
    "ECE": ("calibration_error", 1, 3),
    "tempered log loss": ("log_loss_tempered", 1, 3),
    "tempered ECE": ("calibration_error_tempered", 1, 3),
}
TIMES = {"training CPU s": ("cpu_seconds", "training_seconds", 0), "test s": ("inference_seconds", "inference_seconds", 1)}
RELIABLE = ("softmax", "Performer", "V-softmaxfeat", "K-softmaxfeat", "V-softplus", "K-softplus")
EARLY = "a line of 0.0 to 0.0: Phase A keeps the particles of the best held-out alignment, which came within the fewer steps"
FEW = 3  # seeds below which Student's intervals are too wide to draw
Pair = tuple[str, str]


def section(ds: xr.Dataset) -> Section:
    """Everything that the units say."""
    tables = [*_scores(ds), _against(ds, learned_pairs(ds), "Learned in Phase A against vanilla: K-x - V-x"), _cost(ds)]
    tables += [_against(ds, [(row, "softmax") for row in _ran(ds, "K-")], "Learned against softmax"), *_ablations(ds)]
    verdicts = [*_helps(ds), *_controls(ds), *_best(ds)]
    shown = [table for table in tables if table.rows]
    return Section("Sentence classification", _text(ds), shown, pictures(ds), verdicts)


def _text(ds: xr.Dataset) -> str:
    return (
        f"{ds.attrs.get('finished', 0)} of {ds.attrs.get('planned', 0)} units ran. One transformer trained from scratch with one recipe in "
        "all rows; V-x is kernel attention with map x of the layer's input itself (q = k, no W_q and W_k) and random particles, K-x the "
        "same with particles learned in Phase A from the labels and then frozen. Accuracies of one run on 1,066 to 2,311 test rows have a "
        "standard error of 0.9 to 1.4 points, so single runs order nothing; intervals here are over seeds and test rows together."
    )


def pictures(ds: xr.Dataset) -> dict[str, str]:
    """File names and captions of the figures that the Dataset allows."""
    captions = {
        "sentence_accuracy.png": "Accuracy of every row: seeds (dots) and their mean (circle) with its 95 % interval, which fewer than "
        f"{FEW} seeds do not have.",
        "sentence_differences.png": "What Phase A adds to each map, in accuracy, with 95 % intervals over seeds and test rows; p of no "
        "difference, corrected over all lines of all panels.",
        "sentence_reliability.png": f"Share of right answers against stated probability, all seeds together, of {len(reliable(ds))} of "
        f"{len(main_rows(ds))} rows, so that lines can be told apart: softmax, the redrawn baseline and two maps without and with Phase A, "
        "as far as they ran.",
        "sentence_ablations.png": f"Accuracy under variations of Phase A, with 95 % intervals over {FEW} seeds or more; filled: K-x, open: "
        "V-x. Means are over the seeds that ran, which may be fewer on the right: the tables compare the same seeds.",
    }
    ran = dict(zip(captions, (main_rows(ds), learned_pairs(ds), reliable(ds), panels(ds)), strict=True))
    return {name: caption for name, caption in captions.items() if ran[name]}


def reliable(ds: xr.Dataset) -> list[str]:
    """Rows of the reliability diagram: those of RELIABLE that ran, or the first of the main table that did."""
    if "reliability" not in ds:
        return []
    return [row for row in RELIABLE if has(ds, row)] or main_rows(ds)[: len(RELIABLE)]


# ---- what ran ----------------------------------------------------------------------------------------------------------------------------


def tasks(ds: xr.Dataset) -> list[str]:
    """Tasks with a finished unit."""
    return [str(task) for task in ds.task.values if bool(ds.accuracy.sel(task=task).notnull().any())]


def main_rows(ds: xr.Dataset) -> list[str]:
    """Rows of the main table that ran, in its order."""
    return [row for row in PARTS["main"] if has(ds, row)]


def has(ds: xr.Dataset, row: str) -> bool:
    """Whether a unit of the row is finished."""
    return row in ds.row.values and bool(ds.accuracy.sel(row=row).notnull().any())


def _ran(ds: xr.Dataset, start: str) -> list[str]:
    return [row for row in main_rows(ds) if row.startswith(start)]


def learned_pairs(ds: xr.Dataset) -> list[Pair]:
    """(K-x, V-x) of every map of which both ran."""
    return [(f"K-{name}", f"V-{name}") for name in MAPS if has(ds, f"K-{name}") and has(ds, f"V-{name}")]


def panels(ds: xr.Dataset) -> list[str]:
    """Panels of the figure of ablations in which some row ran."""
    changed = {row.partition(" ")[2] for row in varied(ds)}
    return [panel for panel, changes in ABLATIONS.items() if changed & set(changes)]


def varied(ds: xr.Dataset) -> list[str]:
    """Rows of the ablations that ran."""
    return [row for row in PARTS["ablations"] if has(ds, row)]


# ---- comparisons -------------------------------------------------------------------------------------------------------------------------


def differences(ds: xr.Dataset, pairs: list[Pair]) -> xr.Dataset:
    """`comparisons.compare_rows` of all pairs on all tasks, over pair, corrected for all of them together (Holm); with `task` and the
    difference in log loss over seeds, loss, loss_low and loss_high [nats]."""
    parts = []
    for task in tasks(ds):
        one = compare_rows(ds[["correct"]].sel(task=task), pairs, correction="none")
        losses = [_loss(ds.sel(task=task), pair) for pair in pairs]
        columns = zip(("loss", "loss_low", "loss_high"), zip(*losses, strict=True), strict=True)
        one = one.assign({name: ("pair", list(values)) for name, values in columns})
        parts.append(one.assign_coords(task=("pair", [task] * len(pairs))))
    found = xr.concat(parts, "pair", combine_attrs="override")
    found["p_corrected"] = ("pair", holm(found["p"].values))
    return found.assign_attrs(correction="holm", family=int(found["p"].notnull().sum()))


def _loss(ds: xr.Dataset, pair: Pair) -> metrics.Estimate:
    """Log loss of the first row minus that of the second, over the seeds that both have."""
    first, second = (ds.log_loss.sel(row=row).values for row in pair)
    both = np.isfinite(first) & np.isfinite(second)
    return metrics.paired_difference(first[both], second[both]) if both.any() else metrics.Estimate(math.nan, math.nan, math.nan)


def gain(ds: xr.Dataset, task: str, first: list[str], second: list[str]) -> metrics.Estimate | None:
    """Mean over rows of the accuracy of first - second, in points, over seeds and test rows; None without a common seed."""
    pairs = [({"task": task, "row": one}, {"task": task, "row": other}) for one, other in zip(first, second, strict=True)]
    found = mean_difference(pairs)(ds)
    return None if found is None else found.interval()


# ---- tables ------------------------------------------------------------------------------------------------------------------------------


def _scores(ds: xr.Dataset) -> Iterator[Table]:
    """The paper's table, one a task."""
    for task in tasks(ds):
        one, rows = ds.sel(task=task), []
        for row in main_rows(ds):
            cells = [spread(one[name].sel(row=row), factor, digits) for name, factor, digits in SCORES.values()]
            cells += [_middle(_time(one, *names).sel(row=row), digits) for *names, digits in TIMES.values()]
            rows.append([row, *cells, str(int(one.accuracy.sel(row=row).notnull().sum()))])
        notes = [
            "mean ± standard deviation over seeds; accuracy, F1 and areas in percent, log loss in nats",
            "times: medians over seeds, as a busy machine delays single runs; training: processor time with Phase A; test: by the clock",
        ]
        yield Table(TITLES[task], ["row", *SCORES, *TIMES, "seeds"], rows, notes)


def _time(ds: xr.Dataset, first: str, second: str) -> xr.DataArray:
    """The first score where a unit has it, else the second."""
    return ds[first].fillna(ds[second]) if first in ds else ds[second]


def _middle(values: xr.DataArray, digits: int) -> str:
    """The median over the seeds that ran."""
    middle = float(values.median())
    return f"{middle:.{digits}f}" if math.isfinite(middle) else "-"


def _against(ds: xr.Dataset, pairs: list[Pair], title: str) -> Table:
    pairs = [pair for pair in pairs if all(has(ds, row) for row in pair)]
    header = ["pair", "task", "accuracy", "95 % interval", "p", "p (Holm)", "log loss", "95 % interval", "seeds"]
    if not pairs:
        return Table(title, header, [])
    found, rows = differences(ds, pairs), []
    for k in range(found.sizes["pair"]):
        one = found.isel(pair=k)
        if not one.n_seeds:
            continue
        value, ends = signed(100 * float(one.difference)), interval(float(one.low), float(one.high), scale=100)
        loss, loss_ends = signed(float(one.loss), 3), interval(float(one.loss_low), float(one.loss_high), digits=3)
        p = [p_value(float(one[name])) for name in ("p", "p_corrected")]
        numbers = [value, ends, *p, loss, loss_ends, str(int(one.n_seeds))]
        rows.append([str(one.pair.values), TITLES[str(one.task.values)], *numbers])
    notes = [
        "accuracy in points, over seeds and test rows; log loss in nats, over seeds",
        f"p: of no difference in accuracy; p (Holm): corrected over the {found.attrs['family']} lines of the table that have one",
    ]
    return Table(title, header, rows, notes)


def _cost(ds: xr.Dataset) -> Table:
    """What Phase A costs and what it does to the alignment."""
    rows = []
    for task in tasks(ds):
        for first, second in learned_pairs(ds):
            learned, vanilla = (ds.sel(task=task, row=row) for row in (first, second))
            ratio = _middle(_time(learned, *COST) / _time(vanilla, *COST), 2)
            aligned = [spread(learned[f"holdout_{when}"], digits=3) for when in ("before", "after")]
            if ratio != "-":
                rows.append([first, TITLES[task], _middle(learned.align_seconds, 1), ratio, *aligned])
    notes = [
        "medians over seeds, as a busy machine delays single runs. seconds: of Phase A by the clock; time: processor time of the whole "
        "training with K-x over that with V-x of the same seed",
        "centred alignment with the labels on sequences not used by Phase A, mean ± standard deviation",
    ]
    return Table("What Phase A costs", ["row", "task", "seconds", "time, K over V", "alignment before", "after"], rows, notes)


COST = ("cpu_seconds", "training_seconds")


def _ablations(ds: xr.Dataset) -> Iterator[Table]:
    """Each variation against the row that it varies."""
    pairs = [(row, base(row)) for row in varied(ds) if has(ds, base(row))]
    for panel, changes in {"controls": CONTROLS, **ABLATIONS}.items():
        table = _against_on(ds, [pair for pair in pairs if pair[0].partition(" ")[2] in changes], f"Ablation: {panel}")
        yield replace(table, notes=[*table.notes, EARLY]) if panel == "length of Phase A" and table.rows else table


def _against_on(ds: xr.Dataset, pairs: list[Pair], title: str) -> Table:
    """`_against` on the tasks where all of the first rows ran."""
    there = [task for task in tasks(ds) if pairs and bool(ds.accuracy.sel(task=task, row=[pair[0] for pair in pairs]).notnull().any())]
    return _against(ds.sel(task=there) if there else ds, pairs if there else [], title)


def base(row: str) -> str:
    """The row of the main table that a variation varies."""
    return row.split(" ")[0]


# ---- conclusions -------------------------------------------------------------------------------------------------------------------------


def _helps(ds: xr.Dataset) -> Iterator[str]:
    """Does Phase A help?"""
    pairs = learned_pairs(ds)
    if not pairs:
        return
    found = differences(ds, pairs)
    for task in tasks(ds):
        here = found.isel(pair=found.task.values == task)
        better, worse = (int(((sign * here.difference > 0) & (here.p_corrected < 0.05)).sum()) for sign in (1, -1))
        mean = gain(ds, task, [first for first, _ in pairs], [second for _, second in pairs])
        said = "not measured" if mean is None else verdict(mean, scale=1.0)
        yield f"{TITLES[task]}: Phase A over {len(pairs)} maps: {said}; surely better for {better} maps, surely worse for {worse}."


def _controls(ds: xr.Dataset) -> Iterator[str]:
    """What is left beyond the controls."""
    for task in tasks(ds):
        for control in CONTROLS:
            pairs = [(f"K-{name}", f"K-{name} {control}") for name in MAPS if has(ds, f"K-{name}") and has(ds, f"K-{name} {control}")]
            mean = gain(ds, task, [first for first, _ in pairs], [second for _, second in pairs]) if pairs else None
            if mean is not None:
                yield f"{TITLES[task]}: K-x over its control '{control}', mean of {len(pairs)} maps: {verdict(mean, scale=1.0)}."


def _best(ds: xr.Dataset) -> Iterator[str]:
    """The kernel that is best on validation data against softmax and every baseline, on test data."""
    for task in tasks(ds):
        one = ds.sel(task=task)
        best, rivals = best_row(one, OURS, "validation_accuracy"), [row for row in BASELINES if has(one, row)]
        if best is None or not rivals:
            continue
        gains = {rival: gain(ds, task, [best], [rival]) for rival in rivals}
        said = [f"{rival}: {'not measured' if found is None else verdict(found, scale=1.0)}" for rival, found in gains.items()]
        held = percent(float(one.accuracy.sel(row=best).mean()))
        what = f"{TITLES[task]}: the learned kernel that is best on validation data is {best}, {held} %"
        yield f"{what} on test data; against {'; '.join(said)}."
