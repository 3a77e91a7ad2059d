"""Differences of pairs of rows with their intervals (a forest plot)."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from experiments.plots.panels import BLACK, BLUE, GREY, RED, axes_of, finish
from particles.arrays import real

_HELD = ("difference", "low", "high", "p_corrected")
_TEXT = "#555555"
_CORRECTED = {"holm": "p (Holm)", "benjamini-hochberg": "p (B.-H.)"}


def plot_differences(
    ds: xr.Dataset, *, ax: Axes | None = None, title: str = "", unit: str = "points", scale: float = 100.0, alpha: float = 0.05
) -> Axes:
    """A line a pair: its difference, its interval, and p after the correction; 0 is dashed, and so is a band of no importance.

    ds : what `experiments.comparisons.compare_rows` returns. Differences are multiplied by `scale` into the unit. A filled red square is
    a pair whose corrected p is below alpha; an open circle is not. A pair without a common seed is named and has no mark. The band
    is -delta to delta where the Dataset has a delta. ValueError if ds holds something else.
    """
    held = {name: dims for name in _HELD if (dims := getattr(getattr(ds, "data_vars", {}).get(name), "dims", None)) is not None}
    if held != dict.fromkeys(_HELD, ("pair",)) or not ds.sizes["pair"]:
        raise ValueError(f"ds must hold {', '.join(_HELD)} over pair, got {held}")
    if not 0 < real(alpha, "alpha") < 1:
        raise ValueError(f"alpha must be between 0 and 1, got {alpha!r}")
    ax = axes_of(ax, 7.0, 1.1 + 0.3 * ds.sizes["pair"])
    if "delta" in ds.attrs:
        ax.axvspan(-scale * ds.attrs["delta"], scale * ds.attrs["delta"], color=GREY, alpha=0.15, linewidth=0)
    ax.axvline(0, color=GREY, linewidth=1, linestyle="--")
    for row in range(ds.sizes["pair"]):
        _pair(ax, ds.isel(pair=row), row, scale, alpha)
    ax.set_yticks(range(ds.sizes["pair"]), [str(name) for name in ds["pair"].values])
    ax.set_ylim(ds.sizes["pair"] - 0.4, -0.6)
    ax.grid(axis="x", color="#e5e5e5")
    ax.set_axisbelow(True)
    word = _CORRECTED.get(ds.attrs.get("correction", ""), "p")
    word += f" of {ds.attrs['family']}" if "family" in ds.attrs else ""
    ax.text(1.02, 1.0, word, transform=ax.transAxes, fontsize=8, va="bottom", color=_TEXT)
    level = f", {100 * ds.attrs['level']:g} % interval" if "level" in ds.attrs else ""
    return finish(ax, title, f"difference{level} [{unit}]", "")


def _pair(ax: Axes, one: xr.Dataset, row: int, scale: float, alpha: float) -> None:
    """One line of the plot, with its p beside the panel."""
    value, low, high, p = (float(one[name]) for name in ("difference", "low", "high", "p_corrected"))
    shown, sure = np.isfinite(value), p < alpha
    colour = RED if sure else BLUE
    if np.isfinite([low, high]).all():
        ax.plot([scale * low, scale * high], [row, row], color=colour, linewidth=1.6, zorder=2)
    if shown:
        marker, face = ("s", RED) if sure else ("o", "white")
        ax.plot([scale * value], [row], marker, markerfacecolor=face, markeredgecolor=colour, markersize=6, zorder=3)
    words = "no common seed" if not shown else "-" if np.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.3f}"
    ax.text(1.02, row, words, transform=ax.get_yaxis_transform(), fontsize=8, va="center", color=BLACK if sure else _TEXT)
