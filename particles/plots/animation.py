"""A run as a film: particles and their density side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from particles.arrays import count
from particles.plots.density import density_samples, n_bins, plot_density
from particles.plots.panels import chain_points
from particles.plots.scatter import plot_particles
from particles.trajectory import require_trajectory

if TYPE_CHECKING:
    import xarray as xr

MAX_FRAMES, DPI = 120, 72


def animate(
    dataset: xr.Dataset,
    path: str | Path | None = None,
    *,
    density: str | int = "radial",
    theory: tuple[Any, Any] | None = None,
    background: tuple[Any, Any, Any] | None = None,
    chain: int = 0,
    dims: tuple[int, int] = (0, 1),
    n_frames: int = 60,
    fps: int = 12,
) -> Any:
    """Particles and, side by side, their density evolving; written as a GIF if `path` is given.

    At most `n_frames` (no more than 120) evenly spaced frames, fixed axes, at most 5,000 particles. The density is over all chains.

    Returns
    -------
    matplotlib.animation.FuncAnimation
        For `to_jshtml` in a notebook.
    """
    from matplotlib.animation import FuncAnimation, PillowWriter
    from matplotlib.figure import Figure

    require_trajectory(dataset)
    frames = np.unique(np.linspace(0, dataset.sizes["step"] - 1, min(count(n_frames, "n_frames"), MAX_FRAMES)).astype(int))
    dataset = dataset.isel(step=frames).load()
    figure = Figure(figsize=(8, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    points = chain_points(dataset, chain, dims)
    plot_particles(dataset, frame=0, chain=chain, dims=dims, background=background, ax=left)
    samples = density_samples(dataset.omega.transpose("step", ..., "dim").to_numpy(), density).reshape(len(frames), -1)
    heights, edges = _histograms(samples)
    plot_density(dataset, density=density, frames=slice(0, 1), theory=theory, ax=right)
    for patch in list(right.patches):
        patch.remove()
    bars = right.stairs(heights[0], edges, fill=True, color="tab:red", alpha=0.5)
    right.set(xlim=(edges[0], edges[-1]), ylim=(0, 1.05 * max(heights[1:].max(initial=heights[-1].max()), *_peak(theory))))

    def draw(i: int) -> list[Any]:
        left.collections[-1].set_offsets(points[i])
        left.set_title(f"step {int(dataset.step[i])}")
        bars.set_data(heights[i])
        return [left.collections[-1], bars]

    animation = FuncAnimation(figure, draw, frames=len(frames), interval=1000 / count(fps, "fps"))  # type: ignore[arg-type]
    if path is not None:
        animation.save(path, writer=PillowWriter(fps=fps), dpi=DPI)
    return animation


def _peak(theory: tuple[Any, Any] | None) -> tuple[float, ...]:
    """The theory curve's largest finite value, if there is a curve."""
    if theory is None:
        return (0.0,)
    values = np.asarray(theory[1], float)
    return (float(values[np.isfinite(values)].max(initial=0.0)),)


def _histograms(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One histogram a frame, (frame, value) -> densities (frame, bin) on common edges (bin + 1,)."""
    low, high = samples.min(), samples.max()
    edges = np.linspace(low, high if high > low else low + 1.0, n_bins(samples.shape[1]) + 1)
    return np.stack([np.histogram(values, edges, density=True)[0] for values in samples]), edges
