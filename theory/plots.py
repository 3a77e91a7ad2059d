"""Figures of runs against theory; each draws on the given axes, or on new ones, and returns them. Curves are plain arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from theory.arrays import finite

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_check", "plot_density", "plot_free_energy", "plot_second_moment"]


def plot_density(
    samples: ArrayLike, grid: ArrayLike, density: ArrayLike, *, bins: int = 60, label: str = "theory", ax: Axes | None = None
) -> Axes:
    """Histogram of samples (chain, ...) against the curve density(grid); the band is two standard errors over the chains."""
    samples, grid, density = finite(samples, "samples"), finite(grid, "grid"), finite(density, "density")
    if samples.ndim < 2 or grid.shape != density.shape or grid.ndim != 1:
        raise ValueError(f"samples must be (chain, ...), grid and density of one shape, got {samples.shape}, {grid.shape}, {density.shape}")
    edges = np.linspace(samples.min(), samples.max(), bins + 1)
    heights = np.stack([np.histogram(chain, edges, density=True)[0] for chain in samples])
    mean, middle = heights.mean(0), (edges[1:] + edges[:-1]) / 2
    ax = _axes(ax)
    ax.step(middle, mean, where="mid", color="tab:blue", lw=1, label="particles")
    if len(heights) > 1:
        band = 2 * heights.std(0, ddof=1) / np.sqrt(len(heights))
        ax.fill_between(middle, mean - band, mean + band, step="mid", color="tab:blue", alpha=0.3, lw=0)
    ax.plot(grid, density, color="black", lw=1.2, label=label)
    ax.set(xlabel="omega", ylabel="density", ylim=(0, None))
    ax.legend(frameon=False)
    return ax


def plot_free_energy(t: ArrayLike, free_energy: ArrayLike, *, minimum: float | None = None, ax: Axes | None = None) -> Axes:
    """Free energy along a flow; with `minimum`, its distance to the minimum on a logarithmic axis."""
    t, free_energy = finite(t, "t"), finite(free_energy, "free_energy")
    if t.ndim != 1 or t.shape != free_energy.shape:
        raise ValueError(f"t and free_energy must be of one shape (n,), got {t.shape} and {free_energy.shape}")
    ax = _axes(ax)
    if minimum is None:
        ax.plot(t, free_energy, color="tab:blue")
    else:
        ax.semilogy(t, free_energy - minimum, color="tab:blue")
    ax.set(xlabel="time", ylabel="free energy" if minimum is None else "free energy above its minimum")
    return ax


def plot_second_moment(dataset: xr.Dataset, check: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """(1/N) sum |omega|^2 of each chain over the steps, with the predicted value of `check`, or a title that the law did not apply."""
    moment = (dataset["omega"] ** 2).sum("dim").mean("particle")
    ax = _axes(ax)
    ax.plot(moment["step"], moment.transpose("step", "chain"), lw=0.8, alpha=0.7)
    if "second_moment" in check["law"].values:
        row = check.sel(law="second_moment")
        low, high = (float(row["predicted"] + k * 2 * row["standard_error"]) for k in (-1, 1))
        ax.axhspan(low, high, color="black", alpha=0.2, lw=0)
        ax.axhline(float(row["predicted"]), color="black", lw=1, label="predicted time average")
        ax.legend(frameon=False)
    else:
        ax.set_title("no predicted value: the law did not apply", fontsize="small")
    ax.set(xlabel="step", ylabel="mean of |omega|^2")
    return ax


def plot_check(check: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Deviation of every law in units of its error, a bar that ends in a dot; failed laws in red."""
    ax = _axes(ax)
    names = [str(name) for name in check["law"].values]
    colours = ["tab:blue" if ok else "tab:red" for ok in check["passed"].values]
    z = np.clip(check["z"].fillna(0.0).values, -10, 10)  # few frames: no error, a dot at 0 in the verdict's colour
    ax.barh(names, z, color=colours)
    ax.scatter(z, names, color=colours, zorder=3)  # seen where the bar has no length
    if not names:
        ax.text(0, 0.5, "no law applied", ha="center", transform=ax.get_xaxis_transform())
    ax.axvspan(-2, 2, color="black", alpha=0.1, lw=0)
    ax.set(xlabel="(measured - predicted) / (standard error and allowance),\nclipped at 10", xlim=(-10.5, 10.5))
    return ax


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(5, 3.2), layout="constrained")[1]
