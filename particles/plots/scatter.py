"""Particles as dots, over a potential or density and with the paths that led there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from particles.arrays import count
from particles.plots.panels import axes_of, chain_points, check_index
from particles.trajectory import require_trajectory

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

DOTS: dict[str, Any] = {"s": 12, "color": "tab:red", "linewidths": 0, "alpha": 0.8, "zorder": 3}


def plot_particles(
    dataset: xr.Dataset,
    *,
    frame: int = -1,
    chain: int = 0,
    dims: tuple[int, int] = (0, 1),
    background: tuple[Any, Any, Any] | None = None,
    trail: int = 0,
    ax: Axes | None = None,
) -> Axes:
    """The particles of one frame as dots, over a potential or density and with the paths that led there.

    Parameters
    ----------
    background
        (x (i,), y (j,), values (j, i)) on a grid, drawn as filled contours.
    trail
        The number of earlier frames drawn as lines.

    Raises
    ------
    ValueError
        If dataset is no trajectory, or frame, chain or dims lie outside it.
    """
    require_trajectory(dataset)
    points = chain_points(dataset, chain, dims)
    check_index(frame, "frame", len(points), least=-len(points))
    ax = axes_of(ax)
    if background is not None:
        ax.contourf(*background, levels=20, cmap="Blues", alpha=0.8)
    else:
        _frame_axes(ax, points, dataset.sizes["dim"], dims)
    last = range(len(points))[frame]
    paths = points[max(0, last - count(trail, "trail", least=0)) : last + 1]
    if trail:
        ax.plot(paths[..., 0], paths[..., 1], color="0.5", linewidth=0.5, zorder=2)
    ax.scatter(*points[last].T, **DOTS)
    ax.set_title(f"step {int(dataset.step[last])}")
    return ax


def _frame_axes(ax: Any, points: np.ndarray, dim: int, dims: tuple[int, int]) -> None:
    """Fixed limits from the whole run, and labels."""
    low, high = points.min((0, 1)), points.max((0, 1))
    margin = 0.05 * (high - low) + 1e-12
    ax.set_xlim(low[0] - margin[0], high[0] + margin[0])
    ax.set_ylim(low[1] - margin[1], high[1] + margin[1])
    ax.set_xlabel(f"$\\omega_{{{dims[0] + 1 if dim > 1 else 1}}}$")
    ax.set_ylabel(f"$\\omega_{{{dims[1] + 1}}}$" if dim > 1 else "particle")
    if dim > 1:
        ax.set_aspect("equal")
