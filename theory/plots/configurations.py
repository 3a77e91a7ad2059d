"""Pictures of particles in the plane, whose neighbours show how crystalline a ground state is: six each in the triangular lattice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy.spatial import Delaunay, Voronoi

from theory.arrays import FloatArray, finite, positive
from theory.plots.curves import named
from theory.plots.inputs import require
from theory.plots.panels import COLOURS, axes, legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["configuration", "plot_configuration"]

FACES = {6: "0.88", 5: COLOURS[4], 7: COLOURS[5]}  # by the number of neighbours; others white


def configuration(x: ArrayLike, *, radius: float | None = None) -> xr.Dataset:
    """Particles x (n, 2), n at least 4 and not all on a line, with their numbers of Delaunay neighbours.

    Voronoi cells that reach beyond `radius`, the wall or the end of the law's support, are not drawn as cells of the crystal; without
    it, beyond the outermost particle. A particle on the hull has neighbours 0.
    """
    points = finite(x, "x")
    if points.ndim != 2 or points.shape[1] != 2 or len(points) < 4 or np.linalg.matrix_rank(points - points.mean(0)) < 2:
        raise ValueError(f"x must be (n, 2) with at least 4 points that do not lie on a line, got shape {points.shape}")
    mesh = Delaunay(points)
    neighbours = np.diff(mesh.vertex_neighbor_vertices[0])
    neighbours[np.unique(mesh.convex_hull)] = 0
    end = float(np.linalg.norm(points, axis=1).max()) if radius is None else positive(radius, "radius")
    variables = {
        "particles": (("particle", "dim"), points, named("particles")),
        "neighbours": ("particle", neighbours, named("number of neighbours")),
        "radius": ((), end, named("radius")),
    }
    return xr.Dataset(variables, attrs={"figure": "configuration", "circle": int(radius is not None)})


def plot_configuration(dataset: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """The particles and their Voronoi cells: grey with six neighbours, coloured defects with five or seven."""
    require(dataset, "configuration")
    ax = axes(ax, size=(4.6, 4.6))
    points, neighbours, end = dataset["particles"].values, dataset["neighbours"].values, float(dataset["radius"])
    for number, colour in FACES.items():
        inside = [polygon for polygon, count in zip(_cells(points, end), neighbours) if count == number and polygon is not None]
        for polygon in inside:
            ax.fill(*polygon.T, facecolor=colour, edgecolor="white", lw=0.8)
        if inside:
            ax.scatter([], [], marker="s", s=60, color=colour, label=f"{number} neighbours: {len(inside)}")
    ax.scatter(points[:, 0], points[:, 1], s=8, color="black", linewidths=0, zorder=3)
    if dataset.attrs["circle"]:
        turn = np.linspace(0, 2 * np.pi, 361)
        ax.plot(end * np.cos(turn), end * np.sin(turn), color="black", lw=1.2, label="wall, or end of the law")
    ax.set(xlabel=r"$\omega_1$", ylabel=r"$\omega_2$", aspect="equal")
    legend(ax)
    return ax


def _cells(points: FloatArray, end: float) -> list[Any]:
    """Corners (k, 2) of each particle's Voronoi cell; None for those that leave the disc."""
    found = Voronoi(points)
    corners = [found.vertices[found.regions[region]] if -1 not in found.regions[region] else None for region in found.point_region]
    return [polygon if polygon is not None and np.linalg.norm(polygon, axis=1).max() <= end else None for polygon in corners]
