"""Methods against each other: a row of dots a method, a line of means a method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.plots.panels import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, axes_of, finish, panels_of
from experiments.plots.sweeps import sweep_means

METHOD_STYLES = {  # colour, line, marker
    "bayes": (GREY, ":", ""),
    "logistic": (GREY, "--", ""),
    "svm": (SKY, "--", "s"),
    "svm tuned": (SKY, "-", "s"),
    "mkl": (PINK, "-", "D"),
    "rff": (GREEN, "--", "^"),
    "rff tuned": (GREEN, "-", "^"),
    "importance": (ORANGE, "-", "v"),
    "paper": (BLACK, "-", "o"),
    "paper, no repulsion": (BLACK, "--", "o"),
    "particles": (RED, "-", "o"),
}


def plot_methods(
    values: xr.DataArray,
    *,
    ax: Axes | None = None,
    labels: dict[str, str] | None = None,
    title: str = "",
    unit: str = "accuracy [%]",
    scale: float = 100.0,
    chance: float | None = None,
) -> Axes:
    """One row a method: a small dot for each seed that has a finite value, a bar at their mean.

    values (method, seed) and chance are multiplied by `scale` into the unit. ValueError for values of other dimensions.
    """
    if not isinstance(values, xr.DataArray) or set(values.dims) != {"method", "seed"} or not values.sizes["method"]:
        raise ValueError(f"values must be a DataArray (method, seed) of one method at least, got {getattr(values, 'sizes', values)!r}")
    ax = axes_of(ax)
    names = [str(name) for name in values["method"].values]
    for row, name in enumerate(names):
        points = scale * values.sel({"method": name}).values
        points = points[np.isfinite(points)]
        ax.plot(points, np.full(len(points), row), "o", color=SKY, markersize=5, zorder=2)
        if len(points):
            ax.plot([points.mean()] * 2, [row - 0.32, row + 0.32], color=BLUE, linewidth=2.5, zorder=3)
    if chance is not None:
        ax.axvline(scale * chance, color=GREY, linestyle=":", zorder=1)
        ax.text(scale * chance, len(names) - 0.45, " chance", color="#555555", fontsize=8, va="center")
    ax.set_yticks(range(len(names)), [(labels or {}).get(name, name) for name in names])
    ax.set_ylim(len(names) - 0.3, -0.6)
    ax.grid(axis="x", color="#e5e5e5")
    ax.set_axisbelow(True)
    return finish(ax, title, unit, "")


def styles(methods: xr.DataArray) -> dict[str, dict[str, Any]]:
    """Colour, dashes and marker of the methods that have some, in the order of METHOD_STYLES; ValueError if none has."""
    found = {name: style for name, style in METHOD_STYLES.items() if name in methods.values}
    if not found:
        raise ValueError(f"method must hold one of {list(METHOD_STYLES)}, got {methods.values.tolist()}")
    return {name: {"color": colour, "linestyle": line, "marker": marker} for name, (colour, line, marker) in found.items()}


COLUMNS = 3  # panels side by side, so that a page's width leaves words legible


def figure_accuracy(
    ds: xr.Dataset, *, labels: dict[str, str] | None = None, chance: Sequence[float | None] | None = None, title: str = "{task}"
) -> Figure:
    """Accuracy of every method and seed, one panel a task."""
    tasks = [str(task) for task in ds["task"].values]
    columns = min(len(tasks), COLUMNS)
    n_rows = -(-len(tasks) // columns)
    figure, axes = panels_of(len(tasks), 1.5 + 4.6 * columns, (1.2 + 0.36 * ds.sizes["method"]) * n_rows, n_rows)
    for k, (task, ax) in enumerate(zip(tasks, axes)):
        plot_methods(
            ds["accuracy"].sel(task=task), ax=ax, labels=labels, title=title.format(task=task), chance=None if chance is None else chance[k]
        )
        if k % columns:
            ax.set_yticklabels([])
    return figure


def plot_curves(values: xr.DataArray, along: str, labels: dict[str, str], *, unit: str, title: str, ax: Axes | None = None) -> Axes:
    """One line a method that has a style, its mean over seeds in percent with Student's 95 % interval as a band.

    values (method, along, seed). ValueError if none of the methods is in METHOD_STYLES.
    """
    ax = axes_of(ax)
    for name, style in styles(values["method"]).items():
        means = 100 * sweep_means(values.sel({"method": name}))[["mean", "low", "high"]]
        ax.plot(means[along], means["mean"], markersize=4, linewidth=1.5, label=labels.get(name, name), **style)
        ax.fill_between(means[along], means["low"], means["high"], color=style["color"], alpha=0.10, linewidth=0)
    ax.set_xscale("log")
    return finish(ax, title, unit, "accuracy [%]")
