"""The density of particles all along a run, beside the solution of a mean-field equation given as arrays."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from particles.arrays import count
from particles.plots.density import density_name, density_samples, draw_steps, extent, histograms, n_bins
from particles.plots.panels import axes_of, legend, numbers, style_of
from particles.sampler import Schedule
from particles.trajectory import require_trajectory

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

BRIGHTEST = 2.0  # times the median over time of the density's peak, where a map's colours end at the latest
Map = tuple[np.ndarray, np.ndarray, np.ndarray]  # times (t,), positions (x,), densities (t, x)


def plot_density_flow(
    dataset: xr.Dataset,
    *,
    density: str | int = "radial",
    theory: tuple[Any, Any, Any] | None = None,
    time: Any = None,
    bins: int | None = None,
    ax: Sequence[Axes] | Axes | None = None,
) -> list[Axes]:
    """Map of the density of |w| or of a coordinate against time, over all chains, beside that of a mean-field equation on the same axes and
    the same scale of colours.

    The scale ends at the largest density or at twice the median over time of its peak, whichever is less: the colour bar then has an
    arrow. It says how far a start on few points can outshine the rest. Frames without a finite particle are blank.

    Parameters
    ----------
    theory
        (t (n,), x (m,), rho (n, m)), as of the McKean-Vlasov equation: densities of the same scalar at increasing times.
    time
        Times of the frames (step,), increasing; by default the step sizes of `Langevin`, added up. Without a theory and a time that is
        known, the axis is the step.
    ax
        Two Axes with a theory, one without.

    Returns
    -------
    list of Axes
        Of the particles and, with a theory, of it.

    Raises
    ------
    ValueError
        As `plot_density`, or if there are less than two frames, the time is unknown, or ax are not so many.
    """
    require_trajectory(dataset)
    heights, edges = _by_frame(dataset, density, bins)
    if len(heights) < 2:
        raise ValueError(f"dataset must hold at least two frames, got {len(heights)}")
    t, time_name = run_times(dataset, time, needed=theory is not None)
    maps = [(t, (edges[1:] + edges[:-1]) / 2, heights)] + ([] if theory is None else [_map(theory)])
    axes = _row_of_axes(ax, len(maps))
    _draw_maps(axes, maps, ("particles", "theory") if theory is not None else ("",))
    low, high = extent(edges, *(m[1:] for m in maps))
    for ends in ((low, edges[0]), (edges[-1], high)):  # where there are no particles
        axes[0].fill_between(t[[0, -1]], *ends, color=axes[0].collections[0].cmap(0.0), linewidth=0)
    for one in axes:
        one.set(xlabel=time_name, xlim=(min(m[0][0] for m in maps), max(m[0][-1] for m in maps)), ylim=(low, high))
    axes[0].set_ylabel(density_name(density))
    return axes


def plot_density_snapshots(
    dataset: xr.Dataset,
    *,
    density: str | int = "radial",
    theory: tuple[Any, Any, Any] | None = None,
    number: int = 4,
    time: Any = None,
    bins: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Densities at up to `number` frames spread over the run, each a histogram with two standard errors over chains, and the curves of a
    mean-field equation at the same times, of the same colours.

    Arguments and errors as in `plot_density_flow`. Curves are interpolated in time; with a theory, frames outside its times are not chosen.
    Particles that are NaN or infinite are left out; the legend counts them.
    """
    require_trajectory(dataset)
    t, time_name = run_times(dataset, time, needed=theory is not None)
    law = None if theory is None else _map(theory)
    inside = np.arange(len(t)) if law is None else np.flatnonzero((t >= law[0][0]) & (t <= law[0][-1]))
    if not len(inside):
        raise ValueError(f"theory must have times that meet the run's, from {t[0]:g} to {t[-1]:g}, got {theory[0] if theory else None}")
    chosen = inside[np.unique(np.linspace(0, len(inside) - 1, count(number, "number")).astype(int))]
    part = dataset.omega.isel(step=chosen).transpose("step", "chain", "particle", "dim").to_numpy()
    samples = density_samples(part, density)
    heights, edges = histograms(samples, n_bins(samples[0].size) if bins is None else bins)
    ax = axes_of(ax)
    top = 0.0
    for k, frame in enumerate(chosen):
        lost = int(np.sum(~np.isfinite(samples[k])))
        style = style_of(k) | {"label": f"{time_name} {t[frame]:.3g}" + (f" ({lost} not finite)" if lost else "")}
        top = max(top, draw_steps(ax, heights[k], edges, **(style if law is None else {"color": style["color"]})))
        if law is not None:
            (curve,) = ax.plot(law[1], _at_time(law, t[frame]), linewidth=1.6, **style)
            top = max(top, np.max(curve.get_ydata()))
    limits = extent(edges, *([] if law is None else [law[1:]]))
    ax.set(xlabel=density_name(density), ylabel="density", xlim=limits, ylim=(0, 1.05 * top))
    legend(ax, title="particles" + " ± 2 standard errors" * (len(heights[0]) > 1) + " (steps), theory (curves)" * (law is not None))
    return ax


def run_times(dataset: xr.Dataset, time: Any = None, *, needed: bool = True) -> tuple[np.ndarray, str]:
    """Times of the frames (step,) and the axis's name: those given, or the step sizes of a `Langevin` run added up.

    ValueError if time does not fit, or is None and unknown though `needed`; else the steps stand for it.
    """
    steps = dataset.step.to_numpy()
    if time is not None:
        t = numbers(time, "time", finite=True)
        if t.shape != steps.shape or (np.diff(t) <= 0).any():
            raise ValueError(f"time must be increasing, of shape {steps.shape}, got shape {t.shape}")
        return t, "time"
    sampler = json.loads(dataset.attrs.get("sampler", "{}"))
    size = sampler.get("step_size") if sampler.get("name") == "Langevin" else None
    if isinstance(size, (int, float)):
        return size * steps, "time"
    if isinstance(size, dict) and size.get("name") in ("linear", "geometric"):
        schedule = Schedule(**size)
        return np.cumsum([0.0, *(schedule(k) for k in range(int(steps.max())))])[steps], "time"
    if needed:
        raise ValueError("time must be given: only Langevin runs of a known step size have one")
    return steps, "step"


def _by_frame(dataset: xr.Dataset, density: str | int, bins: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Histograms (frame, bin) over all chains, and their edges."""
    omega = dataset.omega.transpose("step", "chain", "particle", "dim").to_numpy()
    return histograms(density_samples(omega, density).reshape(len(omega), -1), bins)


def _map(theory: Any) -> Map:
    """Densities of theory in time (t, x, rho), checked."""
    if not isinstance(theory, (tuple, list)) or len(theory) != 3:
        raise ValueError(f"theory must be (t, x, rho), got {type(theory).__name__}")
    t, x, rho = (numbers(part, "theory", finite=True) for part in theory)
    ordered = all(axis.ndim == 1 and len(axis) > 1 and (np.diff(axis) > 0).all() for axis in (t, x))
    if not ordered or rho.shape != (len(t), len(x)) or rho.max() <= 0:
        raise ValueError(f"theory must be (t, x, rho (t, x)), t and x increasing, some rho positive, got {t.shape}, {x.shape}, {rho.shape}")
    return t, x, rho


def _at_time(law: Map, time: float) -> np.ndarray:
    """The density at a time between those given, linear in it."""
    t, _, rho = law
    right = int(np.clip(np.searchsorted(t, time), 1, len(t) - 1))
    share = (time - t[right - 1]) / (t[right] - t[right - 1])
    return (1 - share) * rho[right - 1] + share * rho[right]


def _row_of_axes(ax: Any, number: int) -> list[Axes]:
    """The given Axes, or those of a new figure side by side; ValueError for another number."""
    if ax is None:
        import matplotlib.pyplot as plt

        size = (5, 3.4) if number == 1 else (8, 3.4)
        return list(plt.subplots(1, number, figsize=size, layout="constrained", sharey=True, squeeze=False)[1][0])
    given = list(np.ravel(np.asarray(ax, object)))
    if len(given) != number:
        raise ValueError(f"ax must be {number} Axes, got {len(given)}")
    return [axes_of(one) for one in given]


def _draw_maps(axes: list[Any], maps: list[Map], titles: tuple[str, ...]) -> None:
    """Maps (t, x, rho) on one scale of colours, whose bar has an arrow if it does not hold all."""
    peaks = np.concatenate([rho[np.isfinite(rho).all(1)].max(1) for _, _, rho in maps])
    top = min(peaks.max(), BRIGHTEST * np.median(peaks)) or 1.0
    for ax, (t, x, rho), title in zip(axes, maps, titles):
        picture = ax.pcolormesh(t, x, rho.T, shading="nearest", cmap="viridis", vmin=0, vmax=top, rasterized=True)
        ax.set_title(title)
    axes[0].figure.colorbar(picture, ax=axes, label="density", extend="max" if peaks.max() > top else "neither")
