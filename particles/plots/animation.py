"""A run as a film: particles, their density, and the spectrum of their kernel or the energy side by side."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from particles.arrays import Array, as_float, count, flag, real
from particles.features import Feature, as_feature
from particles.plots.courses import plot_energies
from particles.plots.density import ceiling, density_name, density_samples, histograms, n_bins, theory_curve
from particles.plots.kernels import eigenvalues
from particles.plots.panels import COLOURS, chain_view, ink
from particles.plots.scatter import colour_values, move_dots, plot_particles
from particles.targets import to_numpy
from particles.trajectory import require_trajectory

if TYPE_CHECKING:
    import xarray as xr

    from particles.plots.film import Film

MAX_FRAMES, MAX_ROWS, DPI = 120, 256, 90
LEGEND: dict[str, Any] = {  # above the axes, where it hides nothing
    "loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": 3, "fontsize": 8, "frameon": False, "borderpad": 0.1, "columnspacing": 0.9,
    "handlelength": 1.2,
}  # fmt: skip
Update = Callable[[int], None]


def animate(
    dataset: xr.Dataset,
    path: str | Path | None = None,
    *,
    density: str | int = "radial",
    theory: tuple[Any, Any] | None = None,
    x: Array | None = None,
    feature: str | Feature = "fourier",
    chain: int = 0,
    dims: tuple[int, ...] | None = None,
    projection: Any = None,
    background: tuple[Any, ...] | None = None,
    colour: Any = None,
    turn: float = 90.0,
    n_frames: int = 60,
    fps: int = 12,
    progress: bool = True,
) -> Film:
    """A run as a film on fixed axes: the particles, their density, and the spectrum of their kernel or else the energy.

    At most `n_frames` (no more than 120) evenly spaced frames and 5,000 particles. What is not finite is not drawn; the title counts it.

    Parameters
    ----------
    path
        Where the film is written, ending in .gif or .mp4 (the extra `video`); None writes nothing. 60 frames of 64 to 256 particles
        make a GIF of 0.2 to 0.6 MB.
    density
        "radial" or a coordinate, as in `plot_density`; over all chains. The axis holds every frame but the first, often a spike.
    theory
        A curve (position (m,), density (m,)) beside the density, cut as in `plot_density`.
    x
        Inputs (n, dim). The third panel then shows the eigenvalues of k / n on at most 256 of these rows, evenly spaced.
        For None it shows the energies, or is left out if dataset has none.
    feature
        The kernel's, for x.
    chain
        The one that is drawn as dots and whose kernel is shown.
    dims
        One coordinate, drawn against the particle's number, two, or three for a view in space; by default the first two, or the only one.
    turn
        Degrees by which a view in space turns during the film.

    Returns
    -------
    Film
        A matplotlib FuncAnimation that a notebook shows as a player. One of 60 frames takes 1.3 MB of the notebook.

    Raises
    ------
    ValueError
        If dataset is no trajectory, path has another suffix, or an argument lies outside its range.
    ImportError
        For an MP4 without imageio-ffmpeg.
    """
    from matplotlib.figure import Figure

    from particles.plots.film import Film, writer_for

    require_trajectory(dataset)
    feature = as_feature(feature)
    fps, progress, turn = count(fps, "fps"), flag(progress, "progress"), real(turn, "turn")
    if path is not None:
        writer_for(path, fps)  # a wrong suffix is found before anything is drawn
    frames = np.unique(np.linspace(0, dataset.sizes["step"] - 1, min(count(n_frames, "n_frames"), MAX_FRAMES)).astype(int))
    dataset = dataset.isel(step=frames).load()
    third = x is not None or "energy" in dataset
    figure = Figure(figsize=(9, 3.2) if third else (6.3, 3.2), dpi=DPI, layout="constrained")
    cells = figure.add_gridspec(1, 2 + third, width_ratios=(1.25, 1, 1)[: 2 + third])
    seen = {"chain": chain, "dims": dims, "projection": projection, "background": background, "colour": colour}
    panels = [_particles(figure, cells[0], dataset, turn, seen), _density(figure.add_subplot(cells[1]), dataset, density, theory)]
    if x is not None:
        panels.append(_spectrum(figure.add_subplot(cells[2]), dataset.omega.isel(chain=chain), x, feature))
    elif third:
        panels.append(_energies(figure.add_subplot(cells[2]), dataset))

    def draw(i: int) -> None:
        for panel in panels:
            panel(i)

    film = Film(figure, draw, len(frames), fps=fps)
    if path is not None:
        film.write(path, progress=progress)
    return film


# ---- panels: each draws what stays and returns what redraws frame i ----------------------------------------------------------------------


def _particles(figure: Any, cell: Any, dataset: xr.Dataset, turn: float, seen: dict[str, Any]) -> Update:
    """Dots on Axes in the plane, or in space, where they turn."""
    view = chain_view(dataset, seen["chain"], seen["dims"], seen["projection"])
    colours = None if seen["colour"] is None else colour_values(seen["colour"], dataset, seen["chain"], view)
    space = view.points.shape[-1] == 3
    ax: Any = figure.add_subplot(cell, projection="3d" if space else None)
    plot_particles(dataset, frame=0, ax=ax, **seen)
    dots, lost = ax.collections[-1], (~np.isfinite(view.points).all(-1)).sum(-1)
    azimuths = getattr(ax, "azim", 0.0) + np.linspace(0, turn, len(view.points))
    if space:
        ax.tick_params(labelsize=7, pad=-2)
        ax.locator_params(nbins=3)
        for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
            axis.labelpad = -5  # a layout does not count these labels

    def update(i: int) -> None:
        move_dots(dots, view.points[i])
        if colours is not None:
            dots.set_array(colours[i])
        if space:
            ax.view_init(azim=azimuths[i])
        ax.set_title(f"step {int(dataset.step[i])}" + (f", {lost[i]} not finite" if lost[i] else ""), fontsize=10)

    return update


def _density(ax: Any, dataset: xr.Dataset, density: str | int, theory: tuple[Any, Any] | None) -> Update:
    """A histogram over all chains, that of the start as an outline, and a curve; twice the bins of one frame, as the axis spans all."""
    samples = density_samples(dataset.omega.transpose("step", ..., "dim").to_numpy(), density).reshape(dataset.sizes["step"], -1)
    heights, edges = histograms(samples, min(40, 2 * n_bins(samples.shape[1])))
    seen = np.isfinite(heights).all(1)
    top = float(heights[seen][1:].max(initial=heights[seen][-1].max()))
    ax.stairs(heights[0], edges, color="0.4", linestyle="--", label="start")
    bars = ax.stairs(heights[0], edges, fill=True, color=COLOURS[1], alpha=0.55, label="particles")
    if theory is not None:
        curve = theory_curve(theory)
        ax.plot(*curve, color=ink(), linewidth=1.2, label="theory")
        top = ceiling(top, curve)
    ax.set(xlim=(edges[0], edges[-1]), ylim=(0, 1.05 * top), xlabel=density_name(density), ylabel="density")
    ax.legend(**LEGEND)
    return lambda i: bars.set_data(heights[i])


def _spectrum(ax: Any, omega: xr.DataArray, x: Array, feature: Feature) -> Update:
    """Eigenvalues of k / n against their number, those of the start as an outline."""
    rows = as_float(to_numpy(x, "x"), "x")
    if rows.ndim != 2 or not rows.size:
        raise ValueError(f"x must have shape (n, dim), none of them 0, got {rows.shape}")
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), MAX_ROWS)).astype(int))]
    values = np.stack([_eigenvalues(rows, frame, feature) for frame in omega.transpose("step", "particle", "dim").to_numpy()])
    number = np.arange(1, len(rows) + 1)
    ax.loglog(number, values[0], color="0.5", linestyle="--", label="start")
    (line,) = ax.plot(number, values[0], color=COLOURS[0], marker="o", markersize=3, linewidth=1, label="particles")
    top = values[np.isfinite(values)].max(initial=1e-300)
    ax.set(xlim=(0.9, 1.1 * len(rows)), ylim=(1e-4 * top, 2 * top), xlabel="number of the eigenvalue", ylabel="eigenvalue of the kernel")
    ax.legend(**LEGEND)
    return lambda i: line.set_ydata(values[i])


def _energies(ax: Any, dataset: xr.Dataset) -> Update:
    """The energies of the whole film and a mark at the frame."""
    plot_energies(dataset, ax=ax)
    ax.legend(**LEGEND)
    mark = ax.axvline(int(dataset.step[0]), color=ink(), linewidth=1)
    return lambda i: mark.set_xdata([int(dataset.step[i])] * 2)


# ---- numbers -----------------------------------------------------------------------------------------------------------------------------


def _eigenvalues(x: np.ndarray, omega: np.ndarray, feature: Feature) -> np.ndarray:
    """Eigenvalues of k / n, NaN for zeros and for particles that are not finite, (n,)."""
    if not np.isfinite(omega).all():
        return np.full(len(x), np.nan)
    values = eigenvalues(feature.kernel(x, x, omega.astype(x.dtype)) / len(x))
    return np.where(values > 0, values, np.nan)
