"""Pictures of `transfer`: scores of students, and of kernels by where they come from and where they go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.plots.methods import plot_methods
from experiments.plots.panels import BLACK, finish, panels_of

OWN = "own"
LINES = {"none": "nothing (favor raw)", "own, frozen": "the task itself"}
WHITE_FROM = 0.6  # of the largest difference: numbers on darker cells are white


def figure_recovery(ds: xr.Dataset, titles: Mapping[str, str]) -> Figure:
    """Score of every row and seed after the training on labels, a panel a task."""
    tasks = [str(task) for task in ds.task.values if bool(ds.score.sel(task=task, source=OWN).notnull().any())]
    held = ds.score.sel(source=OWN, drop=True)
    held = held.sel(row=[row for row in ds.row.values if bool(held.sel(row=row).notnull().any())])
    n_rows = -(-len(tasks) // 3)
    columns = -(-len(tasks) // n_rows)
    figure, axes = panels_of(len(tasks), 2.0 + 3.4 * columns, (1.1 + 0.32 * held.sizes["row"]) * n_rows, n_rows)
    for k, (task, ax) in enumerate(zip(tasks, axes)):
        chance = float(ds.chance.sel(task=task, source=OWN).mean())
        plot_methods(held.sel(task=task, drop=True).rename(row="method"), ax=ax, title=titles[task], unit="score x 100", chance=chance)
        if k % columns:
            ax.set_yticklabels([])
    return figure


def figure_transfer(ds: xr.Dataset, titles: Mapping[str, str], rows: Sequence[str], sources: Sequence[str]) -> Figure:
    """Scores of frozen kernels, a panel a row: lines are sources, columns tasks.

    Colours are differences from the softmax encoder after the same training, from the mean of each column where it did not run.
    """
    held = ds.score.sel(source=list(sources)).mean("seed")
    tasks = [str(task) for task in ds.task.values if bool(held.sel(task=task).notnull().any())]
    shown = [row for row in rows if row in ds.row.values and bool(held.sel(row=row).notnull().any())]
    reference = held.sel(task=tasks).mean(("source", "row"))
    if OWN in ds.source.values and "teacher" in ds.row.values:
        reference = ds.score_before.sel(source=OWN, row="teacher", task=tasks).mean("seed").fillna(reference)
    tables = {row: _table(held.sel(task=tasks), row) for row in shown}
    gains = {row: 100 * (table - reference.values) for row, table in tables.items()}
    top = max((float(np.nanmax(np.abs(gain))) for gain in gains.values()), default=1.0) or 1.0
    figure, axes = panels_of(len(shown), 2.4 + (0.9 + 0.75 * len(tasks)) * len(shown), 1.5 + 0.5 * len(sources))
    for k, (row, ax) in enumerate(zip(shown, axes)):
        image = ax.imshow(gains[row], cmap="PuOr", vmin=-top, vmax=top, aspect="auto")
        _numbers(ax, 100 * tables[row], gains[row] / top)
        ax.set_xticks(range(len(tasks)), [titles[task] for task in tasks], rotation=30, ha="right")
        names = [LINES.get(source, titles.get(source, source)) for source in sources] if k == 0 else [""] * len(sources)
        ax.set_yticks(range(len(sources)), names)
        finish(ax, row, "used on", "kernel learned on" if k == 0 else "")
    if shown:
        figure.colorbar(image, ax=axes[: len(shown)], label="score - softmax [points]")
    return figure


def _table(held: xr.DataArray, row: str) -> np.ndarray:
    """Scores (source, task) of a row; the line of random features is the same for every row."""
    table = held.sel(row=row).copy()
    if "none" in held.source.values:
        table.loc[{"source": "none"}] = held.sel(source="none").max("row")
    return table.transpose("source", "task").values


def _numbers(ax: Axes, values: np.ndarray, shades: np.ndarray) -> None:
    """The number of each cell in it."""
    for (line, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            colour = "white" if abs(shades[line, column]) > WHITE_FROM else BLACK
            ax.text(column, line, f"{value:.1f}", ha="center", va="center", fontsize=8, color=colour)
