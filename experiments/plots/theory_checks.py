"""Rates of `experiments.theory_checks` on logarithmic axes."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from experiments.plots.panels import BLUE, GREY, ORANGE, finish, panels_of


def figure_theory_checks(ds: xr.Dataset) -> Figure:
    """Mean field by N, walls by the step, least energy by the number of points; panels of what was not measured stay empty."""
    figure, axes = panels_of(3, 12.0, 3.6)
    for name, colour, label in (("distance", BLUE, "$W_2$ to the mean field"), ("kernel_spread", ORANGE, "deviation of the kernel")):
        _lines(axes[0], ds, name, "n", colour, label, -0.5)
    _lines(axes[1], ds, "on_wall", "step_size", BLUE, "share on the wall", 0.5)
    _lines(axes[2], ds, "least_energy", "points", BLUE, "least energy", 1.0)
    finish(axes[0], "Particles against the mean field", "number of particles", "distance")
    finish(axes[1], "Projected steps at a wall", "step size", "share of particles")
    finish(axes[2], r"Repulsion $|x|^{-2}$ on an interval", "number of points", "energy")
    for ax in axes:
        if ax.lines:
            ax.legend(frameon=False, fontsize=8)
    return figure


def _lines(ax: Axes, ds: xr.Dataset, name: str, axis: str, colour: str, label: str, slope: float) -> None:
    """One line a seed, and a power through the mean of the first point."""
    if name not in ds:
        return
    values = ds[name].dropna("check", how="all").squeeze("check", drop=True).dropna("seed", how="all").transpose("seed", axis)
    x = values[axis].values.astype(float)
    for k, row in enumerate(values.values):
        ax.loglog(x, row, ".-", color=colour, linewidth=0.8, label=label if k == 0 else None)
    guide = float(np.nanmean(values.values[:, 0])) * (x / x[0]) ** slope
    known = {line.get_label() for line in ax.lines}
    ax.loglog(x, guide, "--", color=GREY, label=None if f"power {slope:g}" in known else f"power {slope:g}")
    ax.set_xticks(x, [f"{value:g}" for value in x])
    ax.xaxis.set_minor_locator(NullLocator())  # after loglog, which sets its own
