"""Scharfetter-Gummel fluxes and implicit steps along the axes of a mesh, in a fixed potential.

With z = beta times the rise of the potential across a face, the flux is conductance / beta * (B(z) rho_left - B(-z) rho_right),
B(z) = z / (exp(z) - 1): zero exactly for the Gibbs density, and of the sign of the fall of U + log(rho) / beta (Scharfetter & Gummel 1969).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dgtsv
from scipy.special import exprel

from theory.arrays import FloatArray
from theory.meshes import Mesh

__all__ = ["Hops", "Line"]


class Hops(NamedTuple):
    """Rates (line, face) at which volumes of density cross each face to the right and to the left."""

    right: FloatArray
    left: FloatArray


class Line:
    """One axis of a mesh: cell values are turned to (line, cell), the axis last."""

    def __init__(self, mesh: Mesh, axis: int, beta: float):
        self.axis, self.beta, self.periodic = axis, beta, mesh.axes[axis].periodic
        self.volume = self.turn(np.broadcast_to(mesh.volume, mesh.shape))
        faces = list(mesh.shape)
        faces[axis] -= not self.periodic
        self.conductance = self.turn(np.broadcast_to(mesh.axes[axis].conductance, faces)) / beta

    def turn(self, values: FloatArray) -> FloatArray:
        """(shape) -> (line, cell)."""
        turned = np.ascontiguousarray(np.moveaxis(values, self.axis, -1))
        return turned.reshape(-1, turned.shape[-1])

    def back(self, lines: FloatArray, shape: tuple[int, ...]) -> FloatArray:
        """(line, cell) -> (shape), the inverse of `turn`."""
        first = [n for k, n in enumerate(shape) if k != self.axis]
        return np.moveaxis(lines.reshape(*first, shape[self.axis]), -1, self.axis)

    def rise(self, lines: FloatArray) -> FloatArray:
        """Differences (line, face) across the faces."""
        return np.diff(lines, append=lines[:, :1]) if self.periodic else np.diff(lines)

    def hops(self, u: FloatArray) -> Hops:
        """Rates in the potential u (shape)."""
        z = self.beta * self.rise(self.turn(u))
        base = self.conductance / exprel(np.abs(z))
        return Hops(base + self.conductance * np.maximum(-z, 0.0), base + self.conductance * np.maximum(z, 0.0))

    def flux(self, rho: FloatArray, hops: Hops) -> FloatArray:
        """Mass (line, face) that crosses each face per time, to the right, for a density (shape)."""
        lines = self.turn(rho)
        after = np.roll(lines, -1, axis=1) if self.periodic else lines[:, 1:]
        return hops.right * (lines if self.periodic else lines[:, :-1]) - hops.left * after

    def step(self, rho: FloatArray, hops: Hops, dt: float) -> FloatArray:
        """The density (shape) after an implicit step of length dt along this axis alone.

        The matrix is an M-matrix whose columns sum to the volumes: mass is conserved and the density stays positive at any dt.
        """
        lines = self.turn(rho)
        n = lines.shape[1]
        right, left = np.zeros_like(lines), np.zeros_like(lines)
        right[:, : n - 1 + self.periodic], left[:, : n - 1 + self.periodic] = dt * hops.right, dt * hops.left
        diagonal = self.volume + right + np.roll(left, 1, axis=1)
        solve = _cyclic if self.periodic else _tridiagonal
        return self.back(solve(right, left, diagonal, self.volume * lines), rho.shape)


def _tridiagonal(right: FloatArray, left: FloatArray, diagonal: FloatArray, mass: FloatArray) -> FloatArray:
    """All lines as one system, uncoupled where a line ends: the last entries of `right` and `left` must be zero."""
    *_, solution, info = dgtsv(-right.ravel()[:-1], diagonal.ravel(), -left.ravel()[:-1], mass.ravel())
    if info:
        raise RuntimeError("a sweep met a singular matrix: the potential jumps by more than floating point holds")
    return solution.reshape(mass.shape)


def _cyclic(right: FloatArray, left: FloatArray, diagonal: FloatArray, mass: FloatArray) -> FloatArray:
    """The same with the last entries joining the last cell with the first (Sherman & Morrison 1950); every term is positive."""
    corner, other, first = right[:, -1].copy(), left[:, -1].copy(), diagonal[:, 0].copy()
    diagonal, inner = diagonal.copy(), (right.copy(), left.copy())
    diagonal[:, 0] += first
    diagonal[:, -1] += corner * other / first
    for part in inner:
        part[:, -1] = 0.0
    source = np.zeros_like(mass)
    source[:, 0], source[:, -1] = first, other
    direct, echo = _tridiagonal(*inner, diagonal, mass), _tridiagonal(*inner, diagonal, source)
    weight = corner / first
    gain = (direct[:, 0] + weight * direct[:, -1]) / (1 - echo[:, 0] - weight * echo[:, -1])
    return direct + echo * gain[:, None]
