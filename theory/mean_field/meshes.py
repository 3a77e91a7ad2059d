"""Meshes of the mean-field solver: cells with volumes, faces along one or two axes, and the convolution with a radial interaction.

A mesh is a product of axes; `MeanField` needs no more of it than `Mesh` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import scipy.fft
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.linalg import toeplitz

from theory.arrays import FloatArray, count, finite
from theory.mean_field.cell_pairs import Function, evaluate, line_averages, plane_averages

__all__ = ["Axis", "Convolution", "Function", "Interval", "Mesh", "Rectangle", "evaluate"]

LONGEST = 20.0  # ratio of the sides of a cell


class Axis(NamedTuple):
    """The faces along one axis of a mesh.

    Attributes
    ----------
    conductance
        Area of a face over the distance of the two centres that it parts, broadcastable to the faces: the shape of the mesh with
        one less along the axis, or with as many if it is periodic (the last face joins the last cell with the first).
        Walls are no faces: nothing flows through them.
    periodic
        Whether the axis closes on itself.
    """

    conductance: FloatArray
    periodic: bool = False


class Convolution(Protocol):
    """rho (shape) -> the cell averages (shape) of int g(|x - y|) rho(y) dy, for a density constant on the cells."""

    def __call__(self, rho: FloatArray) -> FloatArray:
        """The potential of rho."""

    @property
    def matrix(self) -> FloatArray:
        """The same as a matrix (cell, cell), symmetric once its rows are multiplied by the volumes."""


@runtime_checkable
class Mesh(Protocol):
    """What `MeanField` knows of a mesh.

    Attributes
    ----------
    shape
        Cells along each axis.
    volume
        Volumes of the cells, broadcastable to `shape`.
    centres
        Centres of the cells: (cell,) on the line and for radii, otherwise shape + (dim,).
    axes
        One `Axis` for each entry of `shape`.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def volume(self) -> FloatArray: ...

    @property
    def centres(self) -> FloatArray: ...

    @property
    def axes(self) -> tuple[Axis, ...]: ...

    def cell_average(self, function: Function, name: str = "function") -> FloatArray:
        """Averages (shape) of a function of the position over the cells."""

    def convolution(self, interaction: Function) -> Convolution:
        """The convolution with g(r), r > 0; ValueError if g is not integrable at 0."""

    def integral(self, values: FloatArray) -> float:
        """Sum of cell values (shape) times volumes."""


class Interval:
    """Equal cells between two walls, for the edges (cell + 1,) of the cells.

    V takes positions (n, 1), as an energy of particles gives them, and returns (n,), as (w**2).sum(-1) does, or (n, 1), as x**2 does.

    Raises
    ------
    ValueError
        For edges that are not equally spaced and increasing, or fewer than 4.
    """

    def __init__(self, edges: ArrayLike):
        edges = finite(edges, "edges")
        if edges.ndim != 1 or len(edges) < 4:
            raise ValueError(f"edges must be at least 4, equally spaced and increasing, got shape {edges.shape}: {edges.ravel()[:3]}...")
        width = float(edges[-1] - edges[0]) / (len(edges) - 1)
        if width <= 0:
            raise ValueError(f"edges must increase, got {edges[0]} to {edges[-1]}")
        if not np.allclose(np.diff(edges), width, rtol=1e-8, atol=0):
            raise ValueError(f"edges must be at least 4, equally spaced and increasing, got shape {edges.shape}: {edges.ravel()[:3]}...")
        self.edges, self.width = edges, width
        self.shape = (len(edges) - 1,)
        self.centres = (edges[1:] + edges[:-1]) / 2
        self.volume = np.full(self.shape, width)
        self.axes = (Axis(np.array([1 / width])),)

    def cell_average(self, function: Function, name: str = "function") -> FloatArray:
        """Averages (cell,) over the cells, by five Gauss points."""
        node, weight = np.polynomial.legendre.leggauss(5)
        points = (self.centres[:, None] + self.width / 2 * node).reshape(-1, 1)
        values = evaluate(lambda x: _column(function(x)), points, name, (len(points),))
        return values.reshape(-1, len(node)) @ (weight / 2)

    def convolution(self, interaction: Function) -> IntervalConvolution:
        """By FFT; the averages over pairs of cells are exact to about 1e-13."""
        return IntervalConvolution(self, interaction)

    def integral(self, values: FloatArray) -> float:
        """Sum of values (cell,) times the width."""
        return self.width * float(values.sum())


class IntervalConvolution:
    """Convolution on an interval: `kernel` (cell,) holds the averages of g over pairs of cells at each distance."""

    def __init__(self, mesh: Interval, interaction: Function):
        self.width, (n,) = mesh.width, mesh.shape
        self.kernel = line_averages(interaction, n, self.width)
        self._size = scipy.fft.next_fast_len(2 * n - 1, real=True)
        self._spectrum = self.width * scipy.fft.rfft(_circulant(self.kernel, self._size, 0)).real

    def __call__(self, rho: Float[np.ndarray, cell]) -> Float[np.ndarray, cell]:
        """The potential (cell,) of rho."""
        return scipy.fft.irfft(self._spectrum * scipy.fft.rfft(rho, self._size), self._size)[: len(rho)]

    @cached_property
    def matrix(self) -> FloatArray:
        """(cell, cell)."""
        return self.width * toeplitz(self.kernel)


class Rectangle:
    """n_x by n_y equal cells in the rectangle [low_x, high_x] x [low_y, high_y] with walls; V takes positions (..., 2).

    Parameters
    ----------
    low, high
        Opposite corners, (2,).
    shape
        (n_x, n_y), at least 3 each. A cell may be 20 times longer than wide at most.
    """

    def __init__(self, low: ArrayLike, high: ArrayLike, shape: Sequence[int]):
        low, high = finite(low, "low"), finite(high, "high")
        if low.shape != (2,) or high.shape != (2,) or not (high > low).all():
            raise ValueError(f"low and high must be two numbers each with high above low, got {low} and {high}")
        if np.shape(shape) != (2,):
            raise ValueError(f"shape must be two numbers of cells, got {shape!r}")
        self.low, self.high = low, high
        self.shape = count(shape[0], "shape[0]", least=3), count(shape[1], "shape[1]", least=3)
        self.width = (high - low) / self.shape
        if self.width.max() > LONGEST * self.width.min():
            raise ValueError(f"shape must give cells at most {LONGEST:g} times longer than wide, got {self.width} with {self.shape}")
        self.x, self.y = (low[k] + self.width[k] * (np.arange(self.shape[k]) + 0.5) for k in range(2))
        self.centres = np.stack(np.meshgrid(self.x, self.y, indexing="ij"), -1)
        area = float(self.width.prod())
        if not 0 < area < np.inf or any((np.diff(centres) <= 0).any() for centres in (self.x, self.y)):
            raise ValueError(f"low and high must give cells that floating-point numbers can tell apart, got {low}, {high} and {self.shape}")
        self.volume = np.full(self.shape, area)
        ratio = self.width[1] / self.width[0]
        self.axes = Axis(np.full((1, 1), ratio)), Axis(np.full((1, 1), 1 / ratio))

    def cell_average(self, function: Function, name: str = "function") -> FloatArray:
        """Averages (n_x, n_y) over the cells, by five Gauss points a side; the function gets positions (n_x n_y, 2)."""
        node, weight = np.polynomial.legendre.leggauss(5)
        total, centres = np.zeros(self.shape), self.centres.reshape(-1, 2)
        for u, weight_u in zip(node, weight / 2):
            for v, weight_v in zip(node, weight / 2):
                values = evaluate(function, centres + self.width / 2 * np.array([u, v]), name, (len(centres),))
                total += weight_u * weight_v * values.reshape(self.shape)
        return total

    def convolution(self, interaction: Function) -> RectangleConvolution:
        """By FFT; the averages over pairs of cells are integrated to about 1e-12."""
        return RectangleConvolution(self, interaction)

    def integral(self, values: FloatArray) -> float:
        """Sum of values (n_x, n_y) times the area of a cell."""
        return float(self.width.prod() * values.sum())


class RectangleConvolution:
    """Convolution on a rectangle: `kernel` (n_x, n_y) holds the averages of g over pairs of cells at each offset."""

    def __init__(self, mesh: Rectangle, interaction: Function):
        self.shape, area = mesh.shape, float(mesh.width.prod())
        self.kernel = plane_averages(interaction, mesh.shape, mesh.width)
        self._size = tuple(scipy.fft.next_fast_len(2 * n - 1, real=True) for n in self.shape)
        embedded = _circulant(_circulant(self.kernel, self._size[0], 0), self._size[1], 1)
        self._spectrum = area * scipy.fft.rfft2(embedded).real

    def __call__(self, rho: Float[np.ndarray, "x y"]) -> Float[np.ndarray, "x y"]:
        """The potential (n_x, n_y) of rho; more threads by scipy.fft.set_workers."""
        n_x, n_y = self.shape
        wave = scipy.fft.fft(scipy.fft.rfft(rho, self._size[1], axis=1), self._size[0], axis=0, overwrite_x=True)
        wave *= self._spectrum
        return scipy.fft.irfft(scipy.fft.ifft(wave, axis=0, overwrite_x=True)[:n_x], self._size[1], axis=1)[:, :n_y]

    @property
    def matrix(self) -> FloatArray:
        """Not formed in two dimensions."""
        raise NotImplementedError("the interaction matrix is formed on one-dimensional meshes only")


def _column(values: ArrayLike) -> ArrayLike:
    """Values (n, 1) of functions of coordinates as the (n,) of functions of positions; all others as they are."""
    return np.ravel(values) if np.ndim(values) == 2 and np.shape(values)[1] == 1 else values


def _circulant(kernel: FloatArray, size: int, axis: int) -> FloatArray:
    """The even periodic extension of a kernel to `size` points along an axis."""
    offset = np.arange(size)
    return np.take(kernel, np.minimum(offset, size - offset).clip(max=kernel.shape[axis] - 1), axis)
