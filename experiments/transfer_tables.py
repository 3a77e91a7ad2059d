"""Tables and conclusions of `transfer`, from its Dataset alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from experiments.claims.flexformer import GLUE
from experiments.comparisons import compare_rows, holm
from experiments.metrics import Estimate, mean_interval
from experiments.plots.transfer import figure_recovery, figure_transfer
from experiments.report import Section, Table, interval, p_value, signed, spread, verdict

TITLES = {"rte": "RTE", "mrpc": "MRPC", "cola": "CoLA", "sst2": "SST-2", "qqp": "QQP", "stsb": "STS-B", "mnli": "MNLI", "qnli": "QNLI"}
OWN, FROZEN, NONE, RANDOM = "own", "own, frozen", "none", "favor raw"
WORDS = {FROZEN: "the task itself", NONE: "nothing"}
FLEX, HEDGEHOG, PARTICLES = "flexformer-nonstationary", "hedgehog", "particles"
FITTED = (HEDGEHOG, FLEX, PARTICLES)
FLOORS = ("uniform", "favor raw")
PUBLISHED = {"teacher": 0, "favor raw": 1, HEDGEHOG: 3, FLEX: 4}  # place in GLUE; favor raw is the paper's Performer
_TARGETS = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")
_MOVED = {  # (source, row): the paper's scores in the order of _TARGETS
    ("stsb", HEDGEHOG): (58.0, 92.3, 77.2, math.nan, 89.6, 82.0, 87.8, 55.2),
    ("stsb", FLEX): (63.5, 93.2, 80.2, math.nan, 90.7, 84.7, 89.8, 56.7),
    ("qqp", HEDGEHOG): (55.2, 93.3, 75.2, 85.1, math.nan, 83.3, 87.7, 50.7),
    ("qqp", FLEX): (58.8, 93.3, 79.0, 84.8, math.nan, 84.8, 89.1, 53.5),
    ("mnli", HEDGEHOG): (57.7, 92.8, 76.5, 85.5, 90.1, math.nan, 86.9, 52.6),
    ("mnli", FLEX): (60.6, 93.1, 80.4, 86.7, 90.4, math.nan, 89.5, 54.9),
    ("qnli", HEDGEHOG): (51.6, 91.8, 76.2, 85.1, 89.0, 82.8, math.nan, 53.8),
    ("qnli", FLEX): (58.3, 93.2, 78.4, 86.4, 90.6, 84.8, math.nan, 59.4),
}
PAIRS = ((FLEX, HEDGEHOG), (PARTICLES, HEDGEHOG), *((row, "teacher") for row in FITTED), *((row, "uniform") for row in FITTED))


def section(ds: xr.Dataset) -> Section:
    """Everything that the units say."""
    tables = [_recovery(ds), _before(ds), _shares(ds), _differences(ds), _moved(ds), _divergences(ds)]
    text = (
        f"{ds.attrs.get('finished', 0)} of {ds.attrs.get('planned', 0)} units ran. An encoder is fine-tuned on each task; kernels "
        "take the place of softmax in all its layers, learn its attention rows, and everything is trained on once more, the teacher too. "
        "Then kernels that were learned on one task are moved, frozen, into the pretrained encoder, which is trained on another task. "
        "Scores are those of GLUE: Matthews' correlation for CoLA, Spearman's for STS-B, accuracy elsewhere."
    )
    captions = {
        "recovery.png": "Score of each row on each task: seeds (dots) and their mean; dotted: one answer to all rows.",
        "transfer.png": "Score of frozen kernels by what they were learned on (line) and where they are used (column); "
        "the colour is the difference from the softmax encoder after the same training.",
    }
    kept = [name for name, source in (("recovery.png", [OWN]), ("transfer.png", _sources(ds))) if any(ran(ds, s) for s in source)]
    verdicts = [*_recovered(ds), *_transferred(ds)]
    shown = [table for table in tables if table.rows]
    return Section("Distillation and transfer on GLUE tasks", text, shown, {name: captions[name] for name in kept}, verdicts)


def figures(ds: xr.Dataset) -> dict[str, Figure]:
    """The pictures that `section` names."""
    make = {"recovery.png": lambda: figure_recovery(ds, TITLES), "transfer.png": lambda: figure_transfer(ds, TITLES, FITTED, _sources(ds))}
    return {name: make[name]() for name in section(ds).pictures}


# ---- what ran ----------------------------------------------------------------------------------------------------------------------------


def ran(ds: xr.Dataset, source: str, row: str | None = None, task: str | None = None) -> bool:
    """Whether a unit of this source (and row, and task) is finished."""
    at = {name: value for name, value in (("source", source), ("row", row), ("task", task)) if value is not None}
    return all(value in ds[name].values for name, value in at.items()) and bool(ds.score.sel(at).notnull().any())


def _tasks(ds: xr.Dataset, source: str) -> list[str]:
    return [str(task) for task in ds.task.values if ran(ds, source, task=str(task))]


def _rows(ds: xr.Dataset, source: str) -> list[str]:
    return [str(row) for row in ds.row.values if ran(ds, source, str(row))]


def _sources(ds: xr.Dataset) -> list[str]:
    """Where frozen kernels come from: nothing, the task itself, other tasks."""
    return [source for source in (NONE, FROZEN, *TITLES) if ran(ds, source)]


# ---- tables ------------------------------------------------------------------------------------------------------------------------------


def _recovery(ds: xr.Dataset) -> Table:
    """Scores with the paper's beside them."""
    rows = []
    for row in _rows(ds, OWN):
        cells = []
        for task in _tasks(ds, OWN):
            place = PUBLISHED.get(row)
            paper = "-" if place is None or task not in GLUE else f"{GLUE[task][place]:.1f}"
            cells += [spread(ds.score.sel(row=row, task=task, source=OWN), 100), paper]
        rows.append([row, *cells])
    header = ["row", *(name for task in _tasks(ds, OWN) for name in (TITLES[task], "paper"))]
    notes = [
        f"seeds: {_seeds(ds)}, mean ± standard deviation of 100 times the score, trained as long as the teacher",
        "paper: Flexformer's table with RoBERTa (125M) as teacher; its Performer stands beside favor raw",
    ]
    return Table("What is left of the teacher: scores", header, rows, notes)


def _before(ds: xr.Dataset) -> Table:
    """Scores of students before their training on labels."""
    rows = [[row, *(spread(ds.score_before.sel(row=row, task=t, source=OWN), 100) for t in _tasks(ds, OWN))] for row in _rows(ds, OWN)]
    notes = ["after the kernels learned attention rows, before anything was trained on labels; teacher: after its fine-tuning"]
    return Table("Scores of the students as they are made", ["row", *(TITLES[task] for task in _tasks(ds, OWN))], rows, notes)


def _shares(ds: xr.Dataset) -> Table:
    """What is kept of that by which the teacher beats chance, from mean scores."""
    tasks = [task for task in _tasks(ds, OWN) if above_chance(ds, task)]
    means = ds.score.sel(source=OWN).mean("seed") if tasks else ds.score
    rows = []
    for row in _rows(ds, OWN) if tasks else []:
        shares = []
        for task in tasks:
            chance = float(ds.chance.sel(source=OWN, task=task).mean())
            teacher, student = (float(means.sel(row=name, task=task)) for name in ("teacher", row))
            shares.append(100 * (student - chance) / (teacher - chance))
        rows.append([row, *("-" if math.isnan(share) else f"{share:.0f}" for share in (*shares, float(np.mean(shares))))])
    notes = [
        "(score - chance) / (teacher's score - chance) of mean scores, on tasks where the teacher surely beats chance, one answer to all",
        "uniform attention, which reads nothing into queries and keys, is the floor to read the others against",
    ]
    return Table("Share of what the teacher is above chance, %", ["row", *(TITLES[task] for task in tasks), "mean"], rows, notes)


def above_chance(ds: xr.Dataset, task: str) -> bool:
    """Whether the teacher's interval over seeds lies above the score of one answer to all rows; with one seed, its score."""
    if not ran(ds, OWN, "teacher", task):
        return False
    scores, chance = (ds[name].sel(source=OWN, row="teacher", task=task).values for name in ("score", "chance"))
    found = mean_interval((scores - chance)[np.isfinite(scores)])
    return (found.low if math.isfinite(found.low) else found.value) > 0


def _differences(ds: xr.Dataset) -> Table:
    """Pairs of rows on each task, corrected for all of them."""
    found = differences(ds)
    rows = []
    for one in found:
        ends = interval(one["low"], one["high"], digits=1)
        p = [p_value(one[name]) for name in ("p", "p_corrected")]
        rows.append([one["pair"], TITLES[one["task"]], signed(one["difference"]), ends, *p, str(one["n_seeds"])])
    single = any(one["n_seeds"] == 1 for one in found)
    notes = [
        "accuracy in points, over seeds and test rows (CoLA too); STS-B: squared error of the scaled score, times -1000, more is better",
        f"p of no difference; corrected: over the {sum(one['p'] == one['p'] for one in found)} lines of the table that have one (Holm)",
        *(["one seed: what training again would change is not known, so there is neither interval nor p"] if single else []),
    ]
    return Table("Rows in pairs", ["rows", "task", "difference", "95 % interval", "p", "corrected", "seeds"], rows, notes)


def differences(ds: xr.Dataset) -> list[dict[str, Any]]:
    """`comparisons.compare_rows` of the PAIRS that ran on every task, with p corrected for all of them together (Holm)."""
    found: list[dict[str, Any]] = []
    for task in _tasks(ds, OWN):
        name, factor = ("squared_error", -1000.0) if task == "stsb" else ("correct", 100.0)
        pairs = [pair for pair in PAIRS if all(ran(ds, OWN, row, task) for row in pair)]
        if name not in ds or not pairs:
            continue
        held = ds[[name]].sel(task=task, source=OWN)
        held = held.rename(scored="example") if task == "stsb" else held
        one = compare_rows(held, pairs, variable=name, correction="none")
        for k, (first, second) in enumerate(pairs):
            if not one.n_seeds[k]:
                continue
            ends = sorted(factor * float(one[end][k]) for end in ("low", "high"))
            numbers = {"difference": factor * float(one.difference[k]), "low": ends[0], "high": ends[1], "p": float(one.p[k])}
            found.append({"pair": f"{first} - {second}", "task": task, **numbers, "n_seeds": int(one.n_seeds[k])})
    if not found:
        return []
    corrected = holm([one["p"] for one in found])
    return [one | {"p_corrected": float(p)} for one, p in zip(found, corrected)]


def _moved(ds: xr.Dataset) -> Table:
    """Scores of frozen kernels by source, the paper's beside them."""
    targets = [str(task) for task in ds.task.values if any(ran(ds, source, task=str(task)) for source in _sources(ds))]
    rows = []
    if ran(ds, OWN, "teacher") and targets:
        reference = ds.score_before.sel(row="teacher", source=OWN)
        rows.append(["softmax", "-", *(cell for task in targets for cell in (spread(reference.sel(task=task), 100), "-"))])
    for row in (RANDOM, *FITTED):
        for source in (source for source in _sources(ds) if ran(ds, source, row)):
            published = dict(zip(_TARGETS, _MOVED.get((source, row), ()), strict=False))
            cells = []
            for task in targets:
                paper = published.get(task, math.nan)
                cells += [spread(ds.score.sel(row=row, source=source, task=task), 100), "-" if math.isnan(paper) else f"{paper:.1f}"]
            rows.append([row, WORDS.get(source, TITLES.get(source, source)), *cells])
    header = ["row", "learned on", *(name for task in targets for name in (TITLES[task], "paper"))]
    notes = [f"seeds: {_seeds(ds)}; the kernels are frozen, everything else is trained on the column's task; paper: RoBERTa as teacher"]
    return Table("Kernels moved to other tasks: scores", header, rows if len(rows) > 1 else [], notes)


def _divergences(ds: xr.Dataset) -> Table:
    """How far attention rows are from softmax when a kernel arrives."""
    sources = [source for source in (OWN, *_sources(ds)) if ran(ds, source)]
    tasks = [str(task) for task in ds.task.values]
    rows = []
    for source in sources if "divergence" in ds else []:
        for row in (row for row in _rows(ds, source) if row != "teacher"):
            cells = [spread(ds.divergence.sel(row=row, source=source, task=task), digits=3) for task in tasks]
            rows.append([row, {OWN: "the task itself, fine-tuned"}.get(source) or WORDS.get(source) or TITLES[source], *cells])
    notes = ["mean over layers and heads on test sentences, before the training on labels"]
    return Table("Divergence of attention rows from softmax, nat", ["row", "learned on", *(TITLES[task] for task in tasks)], rows, notes)


def _seeds(ds: xr.Dataset) -> int:
    return int(ds.score.notnull().any([dim for dim in ds.score.dims if dim != "seed"]).sum())


# ---- conclusions -------------------------------------------------------------------------------------------------------------------------


def _recovered(ds: xr.Dataset) -> Iterator[str]:
    """Where there is something to recover; mean over tasks of what a row gains over another one."""
    poor = [TITLES[task] for task in _tasks(ds, OWN) if ran(ds, OWN, "teacher", task) and not above_chance(ds, task)]
    if poor:
        yield f"On {', '.join(poor)} the teacher itself does not surely beat one answer to all rows: little can be recovered there."
    for first, second in PAIRS:
        mean = gain(ds, [(OWN, first)], [(OWN, second)])
        if mean is not None:
            yield f"Trained on, mean of the tasks: {first} against {second}: {verdict(mean)}."
    for row in FITTED:
        mean = gain(ds, [(OWN, row)], [(OWN, "teacher")], "score_before")
        if mean is not None:
            yield f"As made, without training on labels: {row} against the teacher: {verdict(mean)}."


def _transferred(ds: xr.Dataset) -> Iterator[str]:
    """Is a kernel of another task as good as one's own, and better than none?"""
    others = [source for source in _sources(ds) if source in TITLES]
    for row in FITTED:
        moved = [(source, row) for source in others if ran(ds, source, row)]
        for known, words in (((FROZEN, row), "learned on the task itself"), ((NONE, RANDOM), "random features")):
            mean = gain(ds, moved, [known] * len(moved)) if moved else None
            if mean is not None:
                yield f"Moved kernels of {row} against {words}: {verdict(mean)}."
    both = [source for source in others if all(ran(ds, source, row) for row in (FLEX, HEDGEHOG))]
    mean = gain(ds, [(source, FLEX) for source in both], [(source, HEDGEHOG) for source in both]) if both else None
    if mean is not None:
        yield f"Moved kernels, {FLEX} against {HEDGEHOG}: {verdict(mean)}."


def gain(ds: xr.Dataset, first: list[tuple[str, str]], second: list[tuple[str, str]], score: str = "score") -> Estimate | None:
    """Mean over pairs of (source, row) and over tasks of first - second, seed by seed, with Student's interval.

    Only tasks on which both of a pair ran for every seed that ran at all; None where there is none.
    """
    if score not in ds or not all(ran(ds, source, row) for source, row in (*first, *second)):
        return None
    parts = [ds[score].sel(source=a, row=b, drop=True) - ds[score].sel(source=c, row=d, drop=True) for (a, b), (c, d) in zip(first, second)]
    values = np.concatenate([part.transpose("task", "seed").values for part in parts])
    values = values[np.isfinite(values).any(1)]
    values = values[:, np.isfinite(values).all(0)]
    return mean_interval(values.mean(0)) if values.size else None
