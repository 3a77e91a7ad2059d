"""The two pictures that most figures are: points with intervals beside curves, and a histogram beside a density.

Colours are Okabe and Ito's (2008), told apart by the colour-blind; series differ in marker and line style too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from theory.arrays import FloatArray
from theory.plots.inputs import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["BAD", "COLOURS", "GOOD", "axes", "cells", "label", "legend", "panels", "plot_compared", "plot_histogram"]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
GOOD, BAD = COLOURS[:2]
MARKERS, DASHES = "osD^vP", ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))
SMALL = 9  # points, of legends and notes
MARKS = 8  # on a logarithmic axis
WIDTH = 72  # characters of a line of the legend
SCALES = {"linear": ("linear", "linear"), "semilogx": ("log", "linear"), "semilogy": ("linear", "log"), "loglog": ("log", "log")}


def axes(ax: Axes | None, *, size: tuple[float, float] = (5.0, 3.6)) -> Any:
    """The given Axes, or those of a new figure of this size in inches."""
    return panels(1, None if ax is None else [ax], size=size)[0]


def panels(number: int, given: Any, *, size: tuple[float, float]) -> Any:
    """The given `number` of Axes, or those of a new figure, side by side; ValueError for another number."""
    if given is not None:
        if np.size(given) != number:
            raise ValueError(f"ax must be {number} Axes, got {given!r}")
        return list(np.ravel(given))
    import matplotlib.pyplot as plt

    return list(np.ravel(plt.subplots(1, number, figsize=size, layout="constrained")[1]))


def label(variable: xr.DataArray) -> str:
    """Long name and units of a variable, as an axis says them."""
    units = variable.attrs.get("units", "1")
    return str(variable.attrs["long_name"]) + ("" if units in ("", "1") else f" [{units}]")


def legend(ax: Axes) -> None:
    """A legend above the axes, where it hides nothing, of what has a label, if anything has."""
    names = ax.get_legend_handles_labels()[1]
    if names:
        columns = max(1, WIDTH // (max(len(name) for name in names) + 8))
        ax.legend(frameon=False, fontsize=SMALL, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2, ncols=min(columns, len(names)))


def plot_compared(dataset: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """A Dataset of `curves.compared`: measured series with their intervals, laws with their bands."""
    require(dataset, "compared")
    ax = axes(ax)
    horizontal, vertical = SCALES[dataset.attrs["scale"]]
    ax.set(xscale=horizontal, yscale=vertical)
    names = [str(name) for name in dataset["series"].values]
    for k, name in enumerate(names):
        row = [dataset[part].values[k] for part in ("measured", "low", "high")]
        (_line if dataset.attrs["style"] == "line" else _points)(ax, dataset["x"].values, row, k, name)
    for k, name in enumerate(str(name) for name in dataset["curve"].values) if "curve" in dataset.dims else ():
        row = [dataset[part].values[k] for part in ("law", "law_low", "law_high")]
        _law(ax, dataset["grid"].values, row, k, name, names.index(name) if name in names else None)
    ax.set(xlabel=label(dataset["x"]), ylabel=label(dataset["measured"]))
    _plain_ticks(ax, dataset["x"].values)
    legend(ax)
    return ax


def plot_histogram(dataset: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """A Dataset of `curves.histogram`: cells with two standard errors, the law, and an atom as a bar of its mass beside the histogram."""
    require(dataset, "histogram")
    ax = axes(ax)
    edges, value, error = (dataset[name].values for name in ("edge", "measured", "error"))
    cells(ax, edges, value, error, GOOD, label="measured")
    ax.plot(dataset["grid"], dataset["law"], color="black", lw=1.3, label=dataset.attrs["label"])
    law, seen = (part[np.isfinite(part)] for part in (dataset["law"].values, value + 2 * np.nan_to_num(error)))
    top = max(seen.max(initial=0.0), min(law.max(initial=0.0), 1.3 * seen.max(initial=0.0)))
    bottom = max(law[law > 0].min(initial=top / 1000) / 2, top / 10_000) if dataset.attrs["scale"] == "semilogy" else 0.0
    ax.set(xlabel=label(dataset["edge"]), ylabel=label(dataset["measured"]), yscale=SCALES[dataset.attrs["scale"]][1])
    ax.set_ylim(bottom, 1.08 * top or 1.0)
    for place in dataset["law_edge"].values if "law_edge" in dataset else ():
        ax.axvline(place, color=BAD, ls=":", lw=1.3)
    if "law_edge" in dataset:
        places = " and ".join(f"{place:.3g}" for place in dataset["law_edge"].values)
        ax.plot([], [], color=BAD, ls=":", lw=1.3, label=f"edge of the law: {places}")
    if "atom_place" in dataset:
        _atom(ax, *(float(dataset[f"atom_{name}"]) for name in ("place", "measured", "error", "predicted")))
    legend(ax)
    return ax


def _plain_ticks(ax: Axes, x: FloatArray) -> None:
    """On logarithmic axes: marks at the few measured x, and plain numbers where y spans less than two decades."""
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    low, high = ax.get_ylim()
    if ax.get_yscale() == "log" and high < 100 * low:
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high > 10 * low else (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)))
        ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        ax.yaxis.set_minor_formatter("")
    if ax.get_xscale() == "log" and len(x) <= MARKS:
        ax.set_xticks(x, [f"{float(f'{value:.3g}'):g}" for value in x])
        ax.xaxis.set_minor_locator(NullLocator())


def cells(ax: Axes, edges: FloatArray, value: FloatArray, error: FloatArray, colour: str, *, label: str | None = None) -> None:
    """Values constant on cells, with two standard errors where they are known."""
    ax.stairs(value, edges, color=colour, lw=1.2, label=label)
    if np.isfinite(error).any():
        low, high = (np.append(end, end[-1]) for end in (value - 2 * error, value + 2 * error))
        ax.fill_between(edges, low, high, step="post", color=colour, alpha=0.3, lw=0)


def _points(ax: Axes, x: FloatArray, row: Sequence[FloatArray], k: int, name: str) -> None:
    """Markers with bars; where only a lower bound is known, an arrow on it."""
    y, low, high = row
    colour, marker = COLOURS[k % len(COLOURS)], MARKERS[k % len(MARKERS)]
    bound, known = np.isposinf(y) & np.isfinite(low), np.where(np.isfinite(y), y, np.nan)
    ends = [np.where(np.isfinite(gap), np.maximum(gap, 0), 0) for gap in (known - low, high - known)]
    ax.errorbar(
        x,
        known,
        yerr=ends,
        ls="none",
        color=colour,
        marker=marker,
        ms=5,
        mfc=colour if k == 0 else "none",
        elinewidth=1,
        capsize=2.5,
        label=name,
    )
    if bound.any():
        ax.plot(x[bound], low[bound], ls="none", marker=r"$\uparrow$", color=colour, ms=9, zorder=3)


def _line(ax: Axes, x: FloatArray, row: Sequence[FloatArray], k: int, name: str) -> None:
    y, low, high = row
    colour = COLOURS[k % len(COLOURS)]
    ax.plot(x, y, color=colour, ls=DASHES[k % len(DASHES)], lw=1.5, label=name)
    if np.isfinite(low).any():
        ax.fill_between(x, low, high, color=colour, alpha=0.25, lw=0)


def _law(ax: Axes, x: FloatArray, row: Sequence[FloatArray], k: int, name: str, series: int | None) -> None:
    """A curve: of a series' colour and without a label of its own, or black."""
    y, low, high = row
    colour = "black" if series is None else COLOURS[series % len(COLOURS)]
    dashes = DASHES[k % len(DASHES)] if series is None else "-"
    ax.plot(x, y, color=colour, ls=dashes, lw=1.2, label=name if series is None else None, zorder=1.9)  # below what was measured
    if np.isfinite(low).any():
        ax.fill_between(x, low, high, color=colour, alpha=0.15, lw=0, zorder=1)


def _atom(ax: Axes, place: float, measured: float, error: float, predicted: float) -> None:
    """Masses of an atom in the legend: a bar would have no common scale with a density."""
    said = f"{measured:.3g}" + (f" ± {2 * error:.1g}" if np.isfinite(error) else "")
    ax.plot([], [], ls="none", label=f"atom at {place:g}: {said}, theory {predicted:.3g}")
