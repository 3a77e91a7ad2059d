"""Scharfetter-Gummel fluxes and implicit steps along the axes of a mesh, in a fixed potential.

With z = beta times the rise of the potential across a face, the flux is conductance / beta * (B(z) rho_before - B(-z) rho_after),
B(z) = z / (exp(z) - 1): zero exactly for the Gibbs density, and of the sign of the fall of U + log(rho) / beta (Scharfetter & Gummel 1969).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from theory.arrays import FloatArray
from theory.mean_field.meshes import Mesh

__all__ = ["Hops", "Line"]


class Hops(NamedTuple):
    """Rates (cell, line) at which volumes of density cross the face behind each cell, forwards and backwards."""

    right: FloatArray
    left: FloatArray


class Line:
    """One axis of a mesh: cell values are turned to (cell, line), the axis first.

    The face behind a cell leads to the next one, behind the last cell to the first one; a wall there is a face of conductance 0.
    """

    def __init__(self, mesh: Mesh, axis: int, beta: float, stiffness: FloatArray):
        self.axis, self.beta, self.shape = axis, beta, mesh.shape
        self.volume = self.turn(np.broadcast_to(mesh.volume, mesh.shape))
        self.conductance = np.zeros_like(self.volume)
        faces = list(mesh.shape)
        faces[axis] -= not mesh.axes[axis].periodic
        self.conductance[: faces[axis]] = self.turn(np.broadcast_to(mesh.axes[axis].conductance, faces)) / beta
        around = self.turn(stiffness)
        self.stiffness = beta * self.conductance * (around + np.roll(around, -1, axis=0)) / 2

    def turn(self, values: FloatArray) -> Float[np.ndarray, "cell line"]:
        """(shape) -> (cell, line)."""
        turned = np.moveaxis(values, self.axis, 0)
        return np.ascontiguousarray(turned.reshape(len(turned), -1))

    def back(self, lines: Float[np.ndarray, "cell line"]) -> FloatArray:
        """(cell, line) -> (shape), the inverse of `turn`."""
        other = [n for k, n in enumerate(self.shape) if k != self.axis]
        return np.moveaxis(lines.reshape(-1, *other), 0, self.axis)

    def rise(self, values: FloatArray) -> Float[np.ndarray, "cell line"]:
        """Differences (cell, line) across the face behind each cell, for values (shape)."""
        return np.diff(lines := self.turn(values), axis=0, append=lines[:1])

    def hops(self, u: FloatArray) -> Hops:
        """Rates in the potential u (shape)."""
        from theory.mean_field.elimination import rates

        lines = self.turn(u)
        hops = Hops(np.empty_like(lines), np.empty_like(lines))
        rates(lines, self.conductance, self.beta, *hops)
        return hops

    def damped(self, hops: Hops, rho: FloatArray) -> Hops:
        """Rates for a step that is expected to lead near rho (shape): those in the potential of rho, and more of both.

        What is added lets stiffness * (rho_after new_before - rho_before new_after) flow: nothing if new is rho, else the leading part of
        what the interaction will answer to new - rho. Where it repels, steps of any length are stable, and no rate is below 0.
        """
        lines = self.turn(rho)
        return Hops(hops.right + self.stiffness * np.roll(lines, -1, axis=0), hops.left + self.stiffness * lines)

    def flux(self, rho: FloatArray, hops: Hops) -> Float[np.ndarray, "cell line"]:
        """Mass (cell, line) that crosses the face behind each cell per time, for a density (shape)."""
        lines = self.turn(rho)
        return hops.right * lines - hops.left * np.roll(lines, -1, axis=0)

    def gain(self, flux: Float[np.ndarray, "cell line"]) -> FloatArray:
        """Mass (shape) that each cell gains per time from the fluxes."""
        return self.back(np.roll(flux, 1, axis=0) - flux)

    def step(self, rho: FloatArray, hops: Hops, dt: float) -> FloatArray:
        """The density (shape) after an implicit step of length dt along this axis alone: mass is conserved, nothing falls below 0."""
        from theory.mean_field.elimination import solve

        return self.back(solve(*hops, self.volume, self.turn(rho), dt))
