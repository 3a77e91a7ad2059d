"""Particles as dots, over a potential or density and with the paths that led there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from particles.arrays import count
from particles.plots.panels import COLOURS, View, axes_of, chain_view, check_index, numbers, spread
from particles.trajectory import require_trajectory

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

DENSE = 1000  # dots from which on a vector file holds them as an image
LEVELS = 20
UNKNOWN = "0.65"  # colour of a particle whose value is NaN


def plot_particles(
    dataset: xr.Dataset,
    *,
    frame: int = -1,
    chain: int = 0,
    dims: tuple[int, ...] | None = None,
    projection: Any = None,
    background: tuple[Any, ...] | None = None,
    background_label: str | None = None,
    colour: Any = None,
    colour_label: str | None = None,
    trail: int = 0,
    ax: Axes | None = None,
) -> Axes:
    """The particles of one frame as dots, over a potential or density and with the paths that led there.

    The axes span the chain's whole run and the background's grid, at one scale. At most 5,000 particles, evenly spaced by number, are
    drawn; those that are NaN or infinite are not: the title counts both. The dots are the last collection of the Axes; `move_dots` puts
    them elsewhere.

    Parameters
    ----------
    dims
        One coordinate (drawn against the particle's number), two, or three (in space); by default the first two, in 1-D the only one.
    projection
        For more coordinates than can be drawn: a matrix (dim, 2 or 3), or "pca" for principal components over the run; dims then picks
        components.
    background
        Values on a grid in the coordinates drawn: (x (i,), values (i,)) is drawn as a curve with an axis of its own,
        (x, y (j,), values (j, i)) as filled contours, (x, y, z (k,), values (k, j, i)) as its slices through the middle of the grid,
        on the walls behind. NaN and infinite values are left blank.
    background_label, colour_label
        What a colour bar, or the curve's axis, says; None is no colour bar.
    colour
        A number a particle, (particle,), (step, particle) or (chain, step, particle), or a labelled array of these axes: shown by colour,
        on one scale for the run. Particles with NaN are grey.
    trail
        The number of earlier frames drawn as lines; a step across a periodic boundary is left out.

    Raises
    ------
    ValueError
        If dataset is no trajectory, or none of its particles is finite; if frame, chain or dims lie outside it, or an array does not fit.
    """
    require_trajectory(dataset)
    view = chain_view(dataset, chain, dims, projection)
    n_frames = len(view.points)
    check_index(frame, "frame", n_frames, least=-n_frames)
    last, trail = range(n_frames)[frame], count(trail, "trail", least=0)
    values = None if colour is None else colour_values(colour, dataset, chain, view)
    grid = None if background is None else _grid(background, _n_axes(view))
    ax = axes_of(ax, space=view.points.shape[-1] == 3)
    _frame(ax, view, grid)
    if grid is not None:
        _draw_background(ax, grid, background_label)
    if trail and last:
        _draw_trail(ax, view, _jumps(dataset, chain, view, range(max(0, last - trail), last + 1)), last)
    _draw_dots(ax, view.points[last], values, last, colour_label)
    ax.set_title(_title(dataset, view, last))
    return ax


def _title(dataset: xr.Dataset, view: View, frame: int) -> str:
    """The step, and which particles are not drawn."""
    n_shown, n_all, lost = len(view.particles), dataset.sizes["particle"], int(np.sum(~np.isfinite(view.points[frame]).all(-1)))
    remarks = ([f"{n_shown:,} of {n_all:,} particles"] if n_shown < n_all else []) + ([f"{lost} not finite"] if lost else [])
    return ", ".join([f"step {int(dataset.step[frame])}", *remarks])


def colour_values(colour: Any, dataset: xr.Dataset, chain: int, view: View) -> np.ndarray:
    """One number for each frame and particle shown, (step, particle), from what `plot_particles` takes as colour."""
    axes = ("chain", "step", "particle")
    values = numbers(colour, "colour")
    names = tuple(getattr(colour, "dims", axes[3 - values.ndim :] if values.ndim <= 3 else ()))
    if "particle" not in names or not set(names) <= set(axes) or values.shape != tuple(dataset.sizes[name] for name in names):
        sizes = ", ".join(f"{name} {dataset.sizes[name]}" for name in axes)
        raise ValueError(f"colour must be (particle,), (step, particle) or (chain, step, particle) with {sizes}, got shape {values.shape}")
    values = np.moveaxis(values, [names.index(name) for name in axes if name in names], range(values.ndim))
    for place, name in enumerate(axes):
        if name not in names:
            values = np.expand_dims(values, place)
    values = values[chain if "chain" in names else 0][:, view.particles]
    if not np.isfinite(values).any():
        raise ValueError("colour must hold finite values, got none")
    return np.broadcast_to(values, view.points.shape[:2])


def move_dots(dots: Any, points: np.ndarray) -> None:
    """Put the dots of `plot_particles` at points (particle, 2 or 3), as `chain_points` gives them for every frame."""
    if points.shape[-1] == 3:
        dots._offsets3d = tuple(points.T)  # matplotlib has no public way
    else:
        dots.set_offsets(points)


def _n_axes(view: View) -> int:
    """The number of coordinates drawn."""
    return 1 if view.names[-1] == "particle" else view.points.shape[-1]


def _grid(background: Any, n_axes: int) -> tuple[np.ndarray, ...]:
    """The axes of a background's grid and its values, not finite ones masked."""
    if not isinstance(background, (tuple, list)) or len(background) != n_axes + 1:
        raise ValueError(f"background must be ({', '.join('xyz'[:n_axes])}, values) on a grid, got {_said(background)}")
    *axes, values = (numbers(part, "background") for part in background)
    if any(x.ndim != 1 or len(x) < 2 or not (np.diff(x) > 0).all() or not np.isfinite(x).all() for x in axes):
        raise ValueError("background must have increasing, finite axes of at least two points")
    shape = tuple(len(x) for x in reversed(axes))
    if values.shape != shape or not np.isfinite(values).any():
        raise ValueError(f"background must have values of shape {shape}, some of them finite, got {_said(background)}")
    return *axes, np.ma.masked_invalid(values)


def _said(background: Any) -> str:
    return str([np.shape(part) for part in background]) if isinstance(background, (tuple, list)) else type(background).__name__


def _frame(ax: Any, view: View, grid: tuple[np.ndarray, ...] | None) -> None:
    """Labels, and fixed limits from the whole run and the grid; in space they are those of a cube."""
    limits = np.array([_limits(view.points[..., i], grid[i] if grid and i < _n_axes(view) else None) for i in range(len(view.names))])
    if len(limits) == 3:
        limits = limits.mean(1, keepdims=True) + np.ptp(limits, axis=1).max() * np.array([-0.5, 0.5])
        ax.set_box_aspect((1, 1, 1), zoom=0.85)  # room for the label of z, which layouts do not count
        ax.computed_zorder = False
    for axis, name, ends in zip("xyz", view.names, limits):
        ax.set(**{f"{axis}lim": tuple(ends), f"{axis}label": name})
        if len(limits) == 3:
            ax.locator_params(axis=axis, nbins=4)
    if _n_axes(view) == 2:
        ax.set_aspect("equal")
    elif _n_axes(view) == 1:
        ax.yaxis.get_major_locator().set_params(integer=True)


def _limits(values: np.ndarray, grid: np.ndarray | None) -> tuple[float, float]:
    """Ends of an axis that holds the values with a margin, and the grid."""
    low, high = spread(values)
    if grid is not None and grid[0] <= low and high <= grid[-1]:
        return float(grid[0]), float(grid[-1])
    margin = 0.05 * (high - low)
    ends = [low - margin, high + margin] + ([] if grid is None else [float(grid[0]), float(grid[-1])])
    return min(ends), max(ends)


def _range(values: np.ndarray) -> tuple[float, float]:
    """The least and the greatest finite value."""
    finite = values[np.isfinite(values)]
    return float(finite.min()), float(finite.max())


def _draw_background(ax: Any, grid: tuple[np.ndarray, ...], label: str | None) -> None:
    """A curve with its own axis, filled contours, or contours of three slices on the walls behind; light, so that dots stand out."""
    from matplotlib.ticker import MaxNLocator

    *axes, values = grid
    if len(axes) == 1:
        side = ax.twinx()
        side.plot(axes[0], values, color=COLOURS[0], linewidth=1.5)
        side.set_ylabel(label or "", color=COLOURS[0])
        side.tick_params(axis="y", labelcolor=COLOURS[0])
        return
    low, high = _range(values[~np.ma.getmaskarray(values)])
    high = high if high > low else low + 1.0
    style = {"levels": np.linspace(low, high, LEVELS + 1), "cmap": "Blues", "vmin": low, "vmax": high + 0.6 * (high - low)}
    if len(axes) == 2:
        picture = ax.contourf(*grid, **style)
    else:
        picture = _draw_slices(ax, grid, style)
    if label is not None:
        ax.figure.colorbar(picture, ax=ax, label=label, shrink=0.85, ticks=MaxNLocator(5))


def _draw_slices(ax: Any, grid: tuple[np.ndarray, ...], style: dict[str, Any]) -> Any:
    """Slices through the middle of a grid in space, on the three walls that the usual view shows behind the particles."""
    x, y, z, values = grid
    ax.contourf(values[:, :, len(x) // 2], *np.meshgrid(y, z), zdir="x", offset=x[0], **style)
    u, v = np.meshgrid(x, z)
    ax.contourf(u, values[:, len(y) // 2], v, zdir="y", offset=y[-1], **style)
    return ax.contourf(*np.meshgrid(x, y), values[len(z) // 2], zdir="z", offset=z[0], **style)


def _jumps(dataset: xr.Dataset, chain: int, view: View, frames: range) -> np.ndarray:
    """Whether each particle crossed a periodic boundary between two frames, (frame - 1, particle)."""
    period = json.loads(dataset.attrs.get("domain", "{}")).get("period")
    if period is None:
        return np.zeros((len(frames) - 1, len(view.particles)), bool)
    part = dataset.omega.isel(chain=chain, step=list(frames), particle=view.particles).transpose("step", "particle", "dim").to_numpy()
    return (np.abs(np.diff(part, axis=0)) > np.asarray(period) / 2).any(-1)


def _draw_trail(ax: Any, view: View, jumps: np.ndarray, last: int) -> None:
    """One collection of the steps that led to frame `last`, older ones paler."""
    from matplotlib.collections import LineCollection
    from mpl_toolkits.mplot3d.art3d import Line3DCollection

    paths = view.points[last - len(jumps) : last + 1]
    steps = np.stack([paths[:-1], paths[1:]], axis=2)[~jumps]
    age = np.broadcast_to(np.linspace(0, 1, len(jumps) + 1)[1:, None], jumps.shape)[~jumps]
    colours = np.concatenate([np.full((len(age), 3), 0.35), 0.2 + 0.6 * age[:, None]], axis=1)
    kind = Line3DCollection if paths.shape[-1] == 3 else LineCollection
    style: dict[str, Any] = {"linewidths": 0.8, "zorder": 2, "rasterized": len(steps) > DENSE}
    ax.add_collection(kind(steps, colors=colours, **style), autolim=False)


def _draw_dots(ax: Any, points: np.ndarray, values: np.ndarray | None, last: int, label: str | None) -> None:
    """The particles, of one colour or coloured by values (step, particle) on a scale that holds for the run."""
    import matplotlib as mpl

    size = float(np.clip(6000 / len(points), 2, 16))
    dense = len(points) > DENSE
    style: dict[str, Any] = {"s": size, "linewidths": 0 if dense else 0.4, "edgecolors": "white", "zorder": 3, "rasterized": dense}
    if values is None:
        ax.scatter(*points.T, c=COLOURS[1], alpha=0.85, **style)
        return
    low, high = _range(values)
    shades = mpl.colormaps["viridis"].with_extremes(bad=UNKNOWN)
    dots = ax.scatter(*points.T, c=values[last], cmap=shades, vmin=low, vmax=high, plotnonfinite=True, **style)
    if label is not None:
        ax.figure.colorbar(dots, ax=ax, label=label, shrink=0.85)
