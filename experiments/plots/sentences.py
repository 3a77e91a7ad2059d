"""Pictures of `sentence_classification`: every row, what Phase A adds, reliability, ablations."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import metrics, sentence_tables
from experiments.plots.calibration import plot_reliability_tables
from experiments.plots.comparisons import plot_differences
from experiments.plots.panels import BLACK, BLUE, GREEN, GREY, RED, finish, legend_beside, panels_of
from experiments.sentence_rows import ABLATED, ABLATIONS
from experiments.sentence_tables import FEW, TITLES, main_rows

_COLOURS = dict(zip(ABLATED, (BLUE, RED, GREEN), strict=True))


def figures(ds: xr.Dataset) -> dict[str, Figure]:
    """The pictures that `sentence_tables.pictures` names."""
    make = {
        "sentence_accuracy.png": figure_accuracy,
        "sentence_differences.png": figure_differences,
        "sentence_reliability.png": figure_reliability,
        "sentence_ablations.png": figure_ablations,
    }
    return {name: make[name](ds) for name in sentence_tables.pictures(ds)}


def figure_accuracy(ds: xr.Dataset) -> Figure:
    """A panel a task, a line a row: seeds and the mean with its interval."""
    names, rows = sentence_tables.tasks(ds), main_rows(ds)
    figure, panels = panels_of(len(names), 1.6 + 3.4 * len(names), 1.2 + 0.27 * len(rows))
    for axes, task in zip(panels, names, strict=True):
        for place, row in enumerate(rows):
            _row(axes, place, 100 * ds.accuracy.sel(task=task, row=row).values, BLACK if row[:2] not in ("V-", "K-") else _kind(row))
        axes.set_yticks(range(len(rows)), rows if axes is panels[0] else [""] * len(rows))
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.grid(axis="x", color="#e5e5e5")
        finish(axes, TITLES[task], "accuracy [%]", "")
    return figure


def figure_differences(ds: xr.Dataset) -> Figure:
    """A forest a task: K-x - V-x."""
    names, pairs = sentence_tables.tasks(ds), sentence_tables.learned_pairs(ds)
    found = sentence_tables.differences(ds, pairs)
    figure, panels = panels_of(len(names), 2.0 + 4.4 * len(names), 1.3 + 0.32 * len(pairs))
    for axes, task in zip(panels, names, strict=True):
        one = found.isel(pair=found.task.values == task)
        one = one.assign_coords(pair=[str(first).removeprefix("K-") for first in one["first"].values])
        plot_differences(one, ax=axes, title=f"{TITLES[task]}: learned - vanilla")
    return figure


def figure_reliability(ds: xr.Dataset) -> Figure:
    """A panel a task: some rows."""
    names, rows = sentence_tables.tasks(ds), sentence_tables.reliable(ds)
    figure, panels = panels_of(len(names), 0.6 + 4.0 * len(names), 4.2)
    for axes, task in zip(panels, names, strict=True):
        plot_reliability_tables(ds.reliability.sel(task=task, row=rows), along="row", ax=axes)
        axes.set_title(TITLES[task], fontsize=11, loc="left")
        if task != "digits":
            axes.set(xlim=(0.48, 1.01), ylim=(0.38, 1.01))  # of two classes, the more probable one
        axes.legend(frameon=False, fontsize=8, loc="lower right")
    return figure


def figure_ablations(ds: xr.Dataset) -> Figure:
    """A panel a variation and a colour a map: accuracy on the task where most variations ran."""
    counted = ds.accuracy.sel(row=sentence_tables.varied(ds)).notnull().sum(("row", "seed"))
    task = str(ds.task.values[int(counted.values.argmax())])
    one = ds.accuracy.sel(task=task)
    ran = {panel: ABLATIONS[panel] for panel in sentence_tables.panels(ds.sel(task=[task]))}
    n_rows = min(2, len(ran))
    columns = -(-len(ran) // n_rows)
    figure, panels = panels_of(len(ran), 12, 3.2 * n_rows, n_rows)
    for axes, (panel, changes) in zip(panels, ran.items(), strict=True):
        _panel(axes, one, list(changes))
        finish(axes, panel, "", "accuracy [%]" if axes in panels[::columns] else "")
    legend_beside(panels[columns - 1])
    figure.suptitle(TITLES[task], fontsize=11, x=0.01, ha="left")
    return figure


def _panel(axes: Axes, accuracy: xr.DataArray, changes: list[str]) -> None:
    """One panel of the ablations: K-x filled, V-x open; first as in the main table, then changed."""
    named: set[str] = set()
    for shift, (name, colour) in zip((-0.24, 0.0, 0.24), _COLOURS.items(), strict=True):
        for place, what in enumerate(["", *changes]):
            for kind, nudge in (("K", 0.0), ("V", 0.09)):
                for row in _rows(accuracy, what, kind, name):
                    mean, low, high = _interval(100 * accuracy.sel(row=row).values)
                    x, label = place + shift + nudge, None if f"{kind}-{name}" in named else f"{kind}-{name}"
                    named.add(f"{kind}-{name}")
                    axes.plot([x, x], [low, high], color=colour, linewidth=1.6)
                    axes.plot([x], [mean], "o", color=colour, markerfacecolor=colour if kind == "K" else "white", label=label)
    axes.axvline(0.5, color=GREY, linewidth=1, linestyle=":")
    axes.set_xticks(range(1 + len(changes)), ["main table", *changes], fontsize=8)
    axes.set_xlim(-0.5, len(changes) + 0.5)
    axes.grid(axis="y", color="#e5e5e5")


def _rows(accuracy: xr.DataArray, what: str, kind: str, name: str | None = None) -> list[str]:
    """The rows of one variation that ran."""
    wanted = [f"{kind}-{each} {what}".strip() for each in ([name] if name else ABLATED)]
    return [row for row in wanted if row in accuracy.row.values and bool(accuracy.sel(row=row).notnull().any())]


def _row(axes: Axes, place: int, values: np.ndarray, colour: str) -> None:
    """Seeds, mean and interval on one line."""
    values = values[np.isfinite(values)]
    if not len(values):
        return
    mean, low, high = _interval(values)
    axes.plot([low, high], [place, place], color=colour, linewidth=1.8, zorder=2)
    axes.plot([mean], [place], "o", color=colour, markersize=7, markerfacecolor="white", zorder=3)
    axes.plot(values, np.full(len(values), place), ".", color=colour, markersize=5, zorder=4)


def _interval(values: np.ndarray) -> tuple[float, float, float]:
    """Mean and interval; the mean alone, thrice, of few seeds, whose intervals would swamp the panel."""
    values = values[np.isfinite(values)]
    mean, low, high = metrics.mean_interval(values)
    return (mean, low, high) if len(values) >= FEW else (mean, mean, mean)


def _kind(row: str) -> str:
    return RED if row.startswith("K-") else BLUE
