"""Radially symmetric densities in a ball of any dimension, or between two spheres: a mesh of `MeanField` whose cells are shells."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from theory.arrays import FloatArray, count, positive
from theory.mean_field.meshes import Axis, Function, evaluate
from theory.mean_field.shell_averages import gauss_in_shells, shell_averages

__all__ = ["RadialBall", "RadialConvolution", "sphere_area"]


class RadialBall:
    """n_cells shells between a wall at `radius` and the origin, or a second wall at `inner`; V takes radii.

    A density rho(r) is per unit volume of R^dim, so that its integral is sum(volume rho); in dimension 1 it is that of both halves of
    an even density on the line. Conductances are those that make differences of cell averages of |x|^2 exact: with the trap alone
    the second moment obeys its equation up to the upwinding of the flux, and its diffusive part exactly.

    Parameters
    ----------
    radius, n_cells, dim
        At least 3 cells; any dim >= 1 in which the innermost shell has a volume that floating-point numbers can hold.
    inner
        Radius of the inner wall, 0 for a ball.
    grading
        1 for equally thick shells; up to 3, edges at radius - (radius - inner) (1 - k / n_cells)^grading, thin at the outer wall.

    Attributes
    ----------
    edges
        Radii of the spheres between the shells, (cell + 1,).
    centres
        Root mean square radii of the shells, (cell,): sum(volume rho centres^2) is the second moment of a piecewise constant density.

    Raises
    ------
    ValueError
        Out of these bounds.
    """

    def __init__(self, radius: float, n_cells: int, dim: int, *, inner: float = 0.0, grading: float = 1.0):
        self.radius, self.inner = positive(radius, "radius"), positive(inner, "inner", zero=True)
        self.dim, grading = count(dim, "dim"), positive(grading, "grading")
        if self.inner >= self.radius:
            raise ValueError(f"inner must be below radius {radius}, got {inner}")
        if not 1 <= grading <= 3:
            raise ValueError(f"grading must be from 1 to 3, got {grading}")
        self.shape = (count(n_cells, "n_cells", least=3),)
        depth = 1 - np.arange(self.shape[0] + 1) / self.shape[0]
        self.edges = self.radius - (self.radius - self.inner) * depth**grading
        self.edges[0] = self.inner
        low, high = self.edges[:-1], self.edges[1:]
        ratio = low / high
        area = sphere_area(self.dim)
        self.volume = area / self.dim * high**self.dim * (1 - ratio**self.dim)
        if not (np.isfinite(self.volume).all() and self.volume.min() > 1e-290):
            raise ValueError(f"dim must leave every shell a volume above 1e-290, got {self.volume.min():.3g} in dim {self.dim}")
        square = self.dim / (self.dim + 2) * high**2 * (1 - ratio ** (self.dim + 2)) / (1 - ratio**self.dim)
        self.centres = np.sqrt(square)
        # area of the face over (difference of the mean squares / derivative 2 r of the square at the face)
        self.axes = (Axis(2 * area * high[:-1] ** self.dim / np.diff(square)),)

    def cell_average(self, function: Function, name: str = "function") -> FloatArray:
        """Averages (cell,) of a function of the radius over the shells, by five Gauss points."""
        node, weight = gauss_in_shells(self.edges, self.dim, 5)
        return (evaluate(function, node.ravel(), name, (node.size,)).reshape(node.shape) * weight).sum(-1)

    def convolution(self, interaction: Function) -> RadialConvolution:
        """By a dense matrix; the averages over pairs of shells are exact to about 1e-11."""
        return RadialConvolution(self, interaction)

    def integral(self, values: FloatArray) -> float:
        """Sum of values (cell,) times volumes."""
        return float(self.volume @ values)


class RadialConvolution:
    """Convolution of radial densities: `kernel` (cell, cell) holds the averages of g(|x - y|) over pairs of shells."""

    def __init__(self, mesh: RadialBall, interaction: Function):
        self.kernel = shell_averages(interaction, mesh.edges, mesh.dim)
        self.matrix = self.kernel * mesh.volume

    def __call__(self, rho: FloatArray) -> FloatArray:
        """The potential (cell,) of rho."""
        return self.matrix @ rho


def sphere_area(dim: int) -> float:
    """|S^(dim-1)| = 2 pi^(dim/2) / Gamma(dim/2); 2 in dimension 1."""
    dim = count(dim, "dim")
    return float(2 * np.exp(dim / 2 * np.log(np.pi) - gammaln(dim / 2)))
