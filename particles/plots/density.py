"""The density of particles over chosen frames, with its error over chains, beside a curve of theory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from particles.arrays import count
from particles.plots.panels import COLOURS, axes_of, check_index, ink, legend, numbers, spread
from particles.trajectory import require_trajectory

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes


def density_samples(omega: np.ndarray, density: str | int) -> np.ndarray:
    """The scalar of every particle whose density is drawn: "radial" gives |w|, an int that coordinate. (..., dim) -> (...)."""
    if isinstance(density, str) and density == "radial":
        return np.hypot.reduce(omega, axis=-1, initial=0.0)  # squares would overflow
    if isinstance(density, str):
        raise ValueError(f"density must be 'radial' or a coordinate below {omega.shape[-1]}, got {density!r}")
    check_index(density, "density", omega.shape[-1])
    return omega[..., density]


def density_name(density: str | int) -> str:
    """What the axis of the scalar says."""
    return r"$|\omega|$" if density == "radial" else f"$\\omega_{{{int(density) + 1}}}$"


def n_bins(n_values: int) -> int:
    """Rice's rule, between 8 and 40."""
    return int(np.clip(2 * n_values ** (1 / 3), 8, 40))


def histograms(samples: np.ndarray, bins: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Densities (..., bin) of samples (..., n) along their last axis, each of mass 1 over its finite values, NaN if it has none, and common
    edges (bin + 1,).

    `bins` is their number, by default `n_bins` of all samples of one density; ValueError if no sample is finite.
    """
    finite = np.isfinite(samples)
    if not finite.any():
        raise ValueError("dataset must hold finite particles, got none in the frames drawn")
    number = n_bins(samples.shape[-1]) if bins is None else count(bins, "bins")
    edges = np.linspace(*spread(samples), number + 1)
    rows = [np.histogram(row[kept], edges)[0] / (kept.sum() or np.nan) for row, kept in zip(_flat(samples), _flat(finite))]
    return np.reshape(rows, (*samples.shape[:-1], number)) / np.diff(edges), edges


def plot_density(
    dataset: xr.Dataset,
    *,
    density: str | int = "radial",
    frames: slice = slice(-1, None),
    bins: int | None = None,
    theory: tuple[Any, Any] | None = None,
    theory_label: str = "theory",
    ax: Axes | None = None,
) -> Axes:
    """Histogram of |w| ("radial", in any dimension) or of a coordinate, over the chosen frames: mean over chains, with a band of two
    standard errors, beside a curve of theory.

    Chains are independent, the particles and frames of one chain are not: the error is that over chains. One chain has none, which the
    legend says. Particles that are NaN or infinite are left out; the legend counts them.

    Parameters
    ----------
    bins
        The number of cells of equal width; by default twice the cube root of the number of values, between 8 and 40.
    theory
        (x (n,), density (n,)) of the same scalar: a density per volume in d dimensions times the sphere's area becomes that of |w|.
        The axis of the density is cut where the curve rises above 1.5 times the histogram.

    Raises
    ------
    ValueError
        If dataset is no trajectory, no finite particle is in the frames, density is no coordinate, or theory is no curve.
    """
    require_trajectory(dataset)
    part = dataset.omega.isel(step=_frames(frames, dataset.sizes["step"]))
    samples = density_samples(part.transpose("chain", "step", "particle", "dim").to_numpy(), density).reshape(dataset.sizes["chain"], -1)
    label = _particles_label(samples)
    samples = samples[np.isfinite(samples).any(1)]
    heights, edges = histograms(samples, n_bins(samples.size) if bins is None else bins)
    curve = None if theory is None else theory_curve(theory)
    ax = axes_of(ax)
    top = draw_steps(ax, heights, edges, color=COLOURS[1], label=label)
    ax.stairs(heights.mean(0), edges, fill=True, color=COLOURS[1], alpha=0.2, linewidth=0)
    if curve is not None:
        ax.plot(*curve, color=ink(), linewidth=1.3, label=theory_label)
        top = ceiling(top, curve)
    ax.set(xlabel=density_name(density), ylabel="density", ylim=(0, 1.05 * top), xlim=extent(edges, *([curve] if curve else [])))
    legend(ax)
    return ax


def _flat(values: np.ndarray) -> np.ndarray:
    return values.reshape(-1, values.shape[-1])


def _frames(frames: Any, n_frames: int) -> slice:
    """frames, if it is a slice that holds one."""
    try:
        if isinstance(frames, slice) and len(range(n_frames)[frames]):
            return frames
    except (TypeError, ValueError):  # of words, or in steps of 0
        pass
    raise ValueError(f"frames must be a slice that holds some of the {n_frames} frames, got {frames!r}")


def _particles_label(samples: np.ndarray) -> str:
    """What the legend says of samples (chain, value)."""
    lost, chains = int(np.sum(~np.isfinite(samples))), int(np.isfinite(samples).any(1).sum())
    words = f"mean of {chains} chains ± 2 standard errors" if chains > 1 else "particles, one chain: no error"
    return words + (f" ({lost} values not finite)" if lost else "")


def ceiling(top: float, curve: tuple[np.ndarray, np.ndarray]) -> float:
    """The end of an axis for histograms up to `top` and a curve, which is cut above 1.5 times that."""
    return min(max(top, np.max(curve[1], initial=0.0, where=np.isfinite(curve[1]))), 1.5 * top)


def draw_steps(ax: Any, heights: np.ndarray, edges: np.ndarray, *, color: Any, **style: Any) -> float:
    """The mean of histograms (chain, bin), and its band of two standard errors if there are several; the largest value drawn.

    Chains without a finite value are left out; if none has one, nothing is seen.
    """
    heights = heights[np.isfinite(heights).all(1)]
    mean = heights.mean(0) if len(heights) else np.zeros(len(edges) - 1)
    ax.stairs(mean, edges, color=color, linewidth=1.3, **style)
    if len(heights) < 2:
        return float(mean.max())
    error = 2 * heights.std(0, ddof=1) / np.sqrt(len(heights))
    low, high = (np.append(ends, ends[-1]) for ends in (np.maximum(mean - error, 0), mean + error))
    ax.fill_between(edges, low, high, step="post", color=color, alpha=0.25, linewidth=0)
    return float(high.max())


def extent(edges: np.ndarray, *curves: tuple[np.ndarray, np.ndarray]) -> tuple[float, float]:
    """The range that holds the particles, and where curves (x (n,), density (..., n)) are above a hundredth of their peak."""
    seen = [edges]
    for x, density in curves:
        filled = np.where(np.isfinite(density), density, 0.0)
        seen.append(x[(filled > 0.01 * filled.max()).reshape(-1, len(x)).any(0)])
    ends = np.concatenate(seen)
    return float(ends.min()), float(ends.max())


def theory_curve(theory: Any, name: str = "theory", parts: str = "(x, density)") -> tuple[np.ndarray, np.ndarray]:
    """A curve of theory (x, density), or of other parts, checked."""
    if not isinstance(theory, (tuple, list)) or len(theory) != 2:
        raise ValueError(f"{name} must be {parts}, got {theory!r}")
    x, y = (numbers(part, name) for part in theory)
    if x.ndim != 1 or x.shape != y.shape or not np.isfinite(y).any():
        raise ValueError(f"{name} must be {parts} of one shape (n,), some of it finite, got shapes {x.shape} and {y.shape}")
    return x, y
