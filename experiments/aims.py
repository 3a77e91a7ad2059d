"""Ours, task by task: the best learned kernel against tuned softmax attention and against the best linear baseline, from what ran.

Which row is the best of its kind is chosen by validation data, over the seeds that ran; the test data then judge it alone. Kernels whose
nearest keys have softmax's weights are compared with baselines that have them too, in lines of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import xarray as xr

from experiments import linear_rows, sentence_rows, vision_rows
from experiments.comparisons import best_row, compare_rows, holm
from experiments.metrics import Estimate, paired_difference
from experiments.report import Section, Table, interval, p_value, signed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from experiments.evidence import Part


class Arena(NamedTuple):
    """An experiment whose tasks are judged: its rows, and what they are compared in."""

    experiment: str
    ours: Sequence[str]
    linear: Sequence[str]  # linear baselines
    chosen_by: str = "validation_last"  # validation score of a unit, or of its epochs, of which the best counts
    kind: str = ""  # of kernels, said in the name of a line
    variable: str = "correct"  # of the test examples
    sign: int = 1  # -1: less is better


WINDOW = "with a window"
_LINEAR_ROWS = {
    "": (linear_rows.OURS, linear_rows.LINEAR),
    WINDOW: (linear_rows.OURS_NEAR, linear_rows.LINEAR_NEAR),
}
SENTENCES = "sentence_classification"
ARENAS = (
    Arena(SENTENCES, sentence_rows.OURS, sentence_rows.LINEAR, "validation_accuracy"),
    *(Arena("long_range", *rows, kind=kind) for kind, rows in _LINEAR_ROWS.items()),
    *(Arena("language_modelling", *rows, kind=kind, variable="block_loss", sign=-1) for kind, rows in _LINEAR_ROWS.items()),
    Arena("vision", vision_rows.OURS, vision_rows.LINEAR, "validation_accuracy"),
)
WORDS = ("reached", "missed", "open")
FEW = 3
RIVALS = ("softmax", "best linear")
UNITS = {"correct": ("points", 100.0, 2), "block_loss": ("nats", 1.0, 3)}  # unit, factor, digits
MARGIN = {"correct": 0.005, "block_loss": 0.005}  # a difference that counts for none
PROBABILITIES = {  # scores, and whether the aim is that ours is less
    "log loss": ("log_loss", True), "Brier": ("brier", True), "ECE": ("calibration_error", False),
    "tempered log loss": ("log_loss_tempered", False), "tempered Brier": ("brier_tempered", False),
}  # fmt: skip
PICTURES = {
    "aims_accuracy.png": "Test accuracy that our best kernel gains over softmax and over the best linear baseline; intervals of two seeds "
    "go on beyond the picture.",
    "aims_language.png": "Test loss that our best kernel saves against softmax and against the best linear baseline.",
}
TEXT = (
    "The aim: at least as good as every linear baseline on every task, and better probabilities than softmax's on sentences. Ours are the "
    "rows whose kernels learn, aligned first or not (no fixed features, no permuted labels). The best row of each kind is chosen by "
    "validation data of the seeds that ran. With a window: keys less than 16 tokens away have softmax's weights, in ours and in the "
    "baselines. reached: the interval lies above -0.5 points (-0.005 nats), the band in the pictures; missed: it lies wholly below 0; "
    "open: neither, or one seed. Intervals are over seeds and test examples and not corrected; p (Holm) is of no difference, corrected "
    "over all lines of a table, so it may be large beside an interval that lies apart from 0."
)


class Line(NamedTuple):
    """Our best row of a task against one rival."""

    arena: Arena
    task: str
    ours: str
    rival: str
    against: str  # of RIVALS
    found: xr.Dataset  # of `compare_rows`, one pair

    @property
    def name(self) -> str:
        """Task and rows."""
        return f"{self.task}: {self.ours} - {self.rival}"

    @property
    def place(self) -> str:
        """The task, and the kind of kernels where there are two."""
        return f"{self.task} {self.arena.kind}" if self.arena.kind else self.task


def lines(parts: Sequence[Part]) -> list[Line]:
    """Every comparison that ran, of the experiments' own presets: settings that differ from a preset are no part of it."""
    here = {part.name: part.dataset for part in parts if part.label in ("cpu", "paper")}
    arenas = [arena for arena in ARENAS if {arena.variable, arena.chosen_by} <= set(here.get(arena.experiment, ()))]
    return [line for arena in arenas for line in _of_arena(arena, here[arena.experiment])]


def _of_arena(arena: Arena, ds: xr.Dataset) -> Iterator[Line]:
    """The lines of all tasks."""
    for task in (str(task) for task in ds["task"].values):
        one = ds.sel(task=task)
        ours = best_row(one, arena.ours, arena.chosen_by, sign=arena.sign)
        for against, rows in zip(RIVALS, (("softmax",), arena.linear)):
            rival = best_row(one, rows, arena.chosen_by, sign=arena.sign)
            if ours is not None and rival is not None:
                found = compare_rows(arena.sign * one[[arena.variable]], [(ours, rival)], variable=arena.variable, correction="none")
                if int(found["n_seeds"][0]):
                    yield Line(arena, task, ours, rival, against, found)


def outcome(line: Line) -> str:
    """reached, missed or open."""
    low, high = float(line.found["low"][0]), float(line.found["high"][0])
    margin = MARGIN[line.arena.variable]
    return "reached" if low > -margin else "missed" if high < 0 else "open"


def section(parts: Sequence[Part]) -> Section | None:
    """A table for each kind of score and one of probabilities; None if nothing can be compared."""
    found = lines(parts)
    if not found:
        return None
    tables = [_table(variable, own) for variable in UNITS if (own := [line for line in found if line.arena.variable == variable])]
    tables += [_probabilities(parts, own)] if (own := [line for line in found if line.arena.experiment == SENTENCES]) else []
    said = [_counted(against, own) for against in RIVALS if (own := [line for line in found if line.against == against])]
    return Section("Our best kernel on each task", TEXT, tables, {file: PICTURES[file] for file in _groups(found)}, said)


def _counted(against: str, own: Sequence[Line]) -> str:
    """On which tasks the aim is reached, missed and open, in words."""
    tasks = {word: [line.place for line in own if outcome(line) == word] for word in WORDS}
    return (
        f"Against {against}: " + "; ".join(f"{word} on {len(names)} ({', '.join(names)})" for word, names in tasks.items() if names) + "."
    )


def figures(parts: Sequence[Part]) -> Mapping[str, Figure]:
    """The same as pictures."""
    from experiments.plots import plot_differences
    from experiments.plots.panels import panels_of

    drawn = {}
    for file, own in _groups(lines(parts)).items():
        unit, scale, _ = UNITS[own[0].arena.variable]
        found, against = _joined(own), np.array([line.against for line in own])
        here = [rival for rival in RIVALS if rival in against]
        drawn[file], axes = panels_of(len(here), 9.5, 0.9 * len(here) + 0.29 * len(own), len(here))
        for rival, ax in zip(here, axes):
            title = f"{'accuracy' if scale > 1 else 'loss saved'} on test data, against {rival}"
            part = found.isel(pair=against == rival)
            plot_differences(part, ax=ax, title=title, unit=unit, scale=scale)
            ax.set_xlim(*_range(part, scale))
            ax.locator_params(axis="x", nbins=6)  # long numbers side by side
    return drawn


def _range(part: xr.Dataset, scale: float) -> tuple[float, float]:
    """Ends of an axis that holds all differences, and the intervals of `FEW` seeds at least: those of two are longer than all others."""
    kept = part["n_seeds"].values >= FEW
    ends = np.concatenate([part["difference"].values, part["low"].values[kept], part["high"].values[kept], [-part.delta, part.delta]])
    low, high = scale * np.nanmin(ends), scale * np.nanmax(ends)
    return low - 0.08 * (high - low), high + 0.08 * (high - low)


def _groups(found: Sequence[Line]) -> dict[str, list[Line]]:
    """Lines by the picture that shows them."""
    groups = {file: [line for line in found if line.arena.variable == variable] for file, variable in zip(PICTURES, UNITS)}
    return {file: group for file, group in groups.items() if group}


def _joined(group: Sequence[Line]) -> xr.Dataset:
    """Lines as one result of `compare_rows`, with p corrected over them."""
    found = xr.concat([line.found for line in group], "pair", combine_attrs="override")
    found["p_corrected"] = ("pair", holm(found["p"].values))
    return found.assign_coords(pair=[line.name for line in group]).assign_attrs(correction="holm", delta=MARGIN[group[0].arena.variable])


def _table(variable: str, own: Sequence[Line]) -> Table:
    """Our best row of each task against both rivals."""
    unit, scale, digits = UNITS[variable]
    found, rows = _joined(own), []
    for k, line in enumerate(own):
        value, low, high, p = (float(found[name][k]) for name in ("difference", "low", "high", "p_corrected"))
        cells = [signed(scale * value, digits), interval(low, high, scale=scale, digits=digits), p_value(p)]
        rows.append([line.place, line.ours, line.against, line.rival, *cells, str(int(found["n_seeds"][k])), outcome(line)])
    what = f"{'Test accuracy' if scale > 1 else 'Test loss saved'} [{unit}]"
    return Table(what, ["task", "ours", "against", "rival", "difference", "95 % interval", "p", "seeds", "aim"], rows)


def _probabilities(parts: Sequence[Part], own: Sequence[Line]) -> Table:
    """Log loss, Brier and ECE of our best kernels of sentences against both rivals, task by task and on average: less is better."""
    ds = next(part.dataset for part in parts if part.name == SENTENCES and part.label in ("cpu", "paper"))
    rows = []
    for against, (what, (score, is_aim)) in itertools.product(RIVALS, PROBABILITIES.items()):
        here = {line.task: line for line in own if line.against == against}
        sides = {task: ds[score].sel(task=task, row=[line.ours, line.rival]).values for task, line in here.items()}  # (row, seed)
        names = {task: [line.ours, line.rival] for task, line in here.items()}
        if len(sides) > 1:
            sides["mean of tasks"], names["mean of tasks"] = np.mean(list(sides.values()), 0), ["as above"] * 2
        common = {task: held[:, seeds] for task, held in sides.items() if (seeds := np.isfinite(held).all(0)).any()}
        rows += [[task, *names[task], what, *_less(*held, aim=is_aim and against == "softmax")] for task, held in common.items()]
    notes = [
        "the rows are those of the accuracies; mean of tasks: seed by seed",
        "tempered: after temperature scaling by validation data, which takes away what is over- or underconfidence alone",
    ]
    header = ["task", "our row", "rival", "score", "ours", "its", "difference", "95 % interval over seeds", "aim: less"]
    return Table("Probabilities on sentences", header, rows, notes)


def _less(ours: np.ndarray, rival: np.ndarray, *, aim: bool) -> list[str]:
    """Means of both sides (seed,), their paired difference, and whether ours is less."""
    gap = paired_difference(ours, rival) if len(ours) > 1 else Estimate(float((ours - rival)[0]), np.nan, np.nan)
    word = "reached" if gap.high < 0 else "missed" if gap.low > 0 else "open"
    ends = [f"{ours.mean():.4f}", f"{rival.mean():.4f}", signed(gap.value, 4), interval(gap.low, gap.high, digits=4)]
    return [*ends, word if aim else "-"]
