"""Figures of runs against theory. `draw` redraws any of them from its saved Dataset; each draws on the given axes, or on new ones.

The Datasets are made by `curves`, `limit_curves` and `field_plots`; a trajectory and the table of `report.check`
are drawn as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from theory.arrays import finite
from theory.plots import curves
from theory.plots.configurations import plot_configuration
from theory.plots.field_plots import (
    plot_bifurcation,
    plot_density_map,
    plot_dissipation,
    plot_flow,
    plot_flow_beside,
    plot_snapshots,
    plot_states,
)
from theory.plots.inputs import is_table, of_check, recorded
from theory.plots.panels import BAD, COLOURS, GOOD, axes, legend, plot_compared, plot_histogram
from theory.report.checks import ESS_LIMIT
from theory.report.course_laws import R_HAT_LIMIT
from theory.spectral.spectrum_estimate import marginal_profile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "draw",
    "plot_bifurcation",
    "plot_check",
    "plot_compared",
    "plot_configuration",
    "plot_density",
    "plot_density_map",
    "plot_dissipation",
    "plot_energy",
    "plot_flow",
    "plot_flow_beside",
    "plot_free_energy",
    "plot_histogram",
    "plot_mixing",
    "plot_second_moment",
    "plot_snapshots",
    "plot_states",
]

FIGURES: dict[str, Callable[..., Any]] = {
    "bifurcation": plot_bifurcation,
    "compared": plot_compared,
    "configuration": plot_configuration,
    "density_map": plot_density_map,
    "flow": plot_flow,
    "histogram": plot_histogram,
    "states": plot_states,
}
CLIP = 10  # standard errors beyond which a deviation is drawn as so many


def draw(dataset: xr.Dataset, *, ax: Any = None) -> Any:
    """The figure that the Dataset is of (attrs["figure"]), or the table of checks; ax and the result as of that figure's function.

    Raises
    ------
    ValueError
        If it is the Dataset of no figure.
    """
    if is_table(dataset):
        return plot_check(dataset, ax=ax)
    figure = dataset.attrs.get("figure") if isinstance(dataset, xr.Dataset) else type(dataset).__name__
    if figure not in FIGURES:
        raise ValueError(f"dataset must be the table of check, or have one of {sorted(FIGURES)} as attrs['figure'], got {figure!r}")
    return FIGURES[figure](dataset, ax=ax)


def plot_density(
    samples: ArrayLike, grid: ArrayLike, density: ArrayLike, *, bins: int = 60, label: str = "theory", ax: Axes | None = None
) -> Axes:
    """Histogram of samples (chain, ...) against the curve density(grid); the band is two standard errors over the chains."""
    samples, grid, density = finite(samples, "samples"), finite(grid, "grid"), finite(density, "density")
    if samples.ndim < 2 or not samples.size or grid.shape != density.shape or grid.ndim != 1:
        raise ValueError(f"samples must be (chain, ...), grid and density of one shape, got {samples.shape}, {grid.shape}, {density.shape}")
    edges = np.histogram_bin_edges(samples, bins)
    estimate = marginal_profile(samples.reshape(len(samples), -1, 1), edges, 0)
    return plot_histogram(curves.histogram(edges, estimate, grid, density, label=label, x_name=r"$\omega$"), ax=ax)


def plot_free_energy(t: ArrayLike, free_energy: ArrayLike, *, minimum: float | None = None, ax: Axes | None = None) -> Axes:
    """Free energy along a flow; with `minimum`, its distance to the minimum on a logarithmic axis."""
    t, free_energy = finite(t, "t"), finite(free_energy, "free_energy")
    if t.ndim != 1 or t.shape != free_energy.shape or not t.size:
        raise ValueError(f"t and free_energy must be of one shape (n,), n at least 1, got {t.shape} and {free_energy.shape}")
    ax = axes(ax)
    ax.plot(t, free_energy if minimum is None else free_energy - minimum, color=GOOD)
    ax.set_yscale("linear" if minimum is None else "log")
    ax.set(xlabel="time", ylabel="free energy" if minimum is None else "free energy above its minimum")
    return ax


def plot_second_moment(dataset: xr.Dataset, check: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """(1/N) sum |omega|^2 of each chain over the steps, with the predicted value of `check`, or a title that the law did not apply.

    ValueError unless dataset holds omega (chain, step, particle, dim) and check is what `report.check` returns.
    """
    omega = recorded(dataset, "omega", ("chain", "step", "particle", "dim"))
    return _course((omega**2).sum("dim").mean("particle"), check, "second_moment", r"mean of $|\omega|^2$", ax)


def plot_energy(dataset: xr.Dataset, check: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """The recorded energy of each chain over the steps, with the predicted mean of `check` where it is known.

    Raises
    ------
    ValueError
        If no energy was recorded, or check is not what `report.check` returns.
    """
    return _course(recorded(dataset, "energy", ("chain", "step")), check, "energy", "energy $H_N$", ax)


def plot_check(check: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Deviation of every law in units of its error, a bar that ends in a dot, or in a cross where the law failed; p-values on the right.

    Rules without statistics have a dot or a cross at 0. The p-value is followed by the one corrected for the number of laws.
    ValueError unless check is what `report.check` returns.
    """
    of_check(check, "check")
    names = [str(name) for name in check["law"].values]
    ax = axes(ax, size=(6.5, 1.3 + 0.28 * len(names)))
    passed = check["passed"].values.astype(bool)
    z = np.where(np.isnan(check["p_value"].values), 0.0, np.clip(check["z"].fillna(0.0).values, -CLIP, CLIP))
    rows = np.arange(len(names))[::-1]
    ax.axvspan(-2, 2, color="black", alpha=0.1, lw=0)
    for ok, colour, marker, word in ((True, GOOD, "o", "passed"), (False, BAD, "X", "failed")):
        chosen = passed == ok
        ax.barh(rows[chosen], z[chosen], height=0.5, color=colour, alpha=0.6)
        ax.scatter(z[chosen], rows[chosen], color=colour, marker=marker, s=40, zorder=3, label=f"{word}: {int(chosen.sum())}")
    if not names:
        ax.text(0, 0.5, "no law applied", ha="center", transform=ax.get_xaxis_transform())
    ax.set_yticks(rows, [name.replace("_", " ") for name in names])
    ax.set(xlabel=f"(measured - predicted) / uncertainty, at most {CLIP}", xlim=(-1.05 * CLIP, 1.05 * CLIP))
    ax.set_ylim(-0.7, max(len(names), 1) - 0.3)
    right = ax.secondary_yaxis("right")
    right.set_yticks(rows, [_p_values(*pair) for pair in zip(check["p_value"].values, check["p_corrected"].values)])
    right.tick_params(length=0)
    ax.text(1.02, 1.02, "p (corrected)", transform=ax.transAxes)
    legend(ax)
    return ax


def plot_mixing(check: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Split R-hat of each quantity of `check` against its effective sample size; the shaded parts are those of chains not mixed.

    ValueError unless check is what `report.check` returns.
    """
    of_check(check, "check")
    ax = axes(ax)
    known = [name for name in check["quantity"].values if np.isfinite(check.sel(quantity=name)["r_hat"])]
    for k, name in enumerate(known):
        row = check.sel(quantity=name)
        words = f"{str(name).replace('_', ' ')}: {float(row['r_hat']):.3f}, {float(row['ess']):.0f} samples"
        ax.plot(row["ess"], row["r_hat"], color=COLOURS[k % 6], marker="osD^vP"[k % 6], ls="none", ms=8, label=words)
    ess, r_hat = (check[name].values[np.isfinite(check[name].values)] for name in ("ess", "r_hat"))
    left, right = min(ESS_LIMIT / 3, ess.min(initial=np.inf) / 2), 3 * max(ESS_LIMIT, ess.max(initial=0.0))
    top = 1 + max(1.5 * (R_HAT_LIMIT - 1), 1.3 * (r_hat.max(initial=1.0) - 1))
    ax.axhspan(R_HAT_LIMIT, 2 * top, color=BAD, alpha=0.15, lw=0)
    ax.axvspan(left / 2, ESS_LIMIT, color="black", alpha=0.1, lw=0)
    ax.text(0.98, R_HAT_LIMIT, "not mixed", va="bottom", ha="right", transform=ax.get_yaxis_transform())
    ax.text(0.02, 0.98, "rough errors", va="top", transform=ax.transAxes)
    if not known:
        ax.text(0.5, 0.5, "nothing whose R-hat is a number", ha="center", transform=ax.transAxes)
    ax.set(xscale="log", xlim=(left, right), ylim=(min(0.99, r_hat.min(initial=1.0) - 0.1 * (top - 1)), top))
    ax.set(xlabel="effective sample size", ylabel=r"split $\hat{R}$")
    legend(ax)
    return ax


def _course(series: xr.DataArray, check: xr.Dataset, law: str, name: str, ax: Axes | None) -> Axes:
    """A series (chain, step) of every chain, with the prediction of a law and two of its uncertainties."""
    of_check(check, "check")
    ax = axes(ax)
    for k, chain in enumerate(series.transpose("chain", "step").values):
        ax.plot(series["step"], chain, color=COLOURS[k % len(COLOURS)], lw=0.7, alpha=0.7)
    if law in check["law"].values:
        row = check.sel(law=law)
        low, high = (float(row["predicted"] + k * 2 * row["uncertainty"]) for k in (-1, 1))
        ax.axhspan(low, high, color="black", alpha=0.2, lw=0)
        ax.axhline(float(row["predicted"]), color="black", lw=1.2, label="predicted time average")
        legend(ax)
    else:
        ax.set_title("no predicted value: the law did not apply", fontsize="small")
    ax.set(xlabel="step", ylabel=name)
    return ax


def _p_values(raw: float, corrected: float) -> str:
    return "rule" if np.isnan(raw) else f"{raw:.2g} ({corrected:.2g})"
