"""Stationary states of a mean field: Newton steps on the potential, and the second variation of the free energy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.linalg import eigvalsh
from scipy.sparse.linalg import LinearOperator, eigsh, gmres

from theory.arrays import FloatArray, count, positive

if TYPE_CHECKING:
    from theory.mean_field import MeanField

__all__ = ["Stationary", "solve", "stability", "states"]

SLOW = 0.1  # pace of damped Gibbs steps, below which they are taken whether or not the error falls
DENSE = 1500  # cells on a line up to which linear systems are solved by factorisation


class Stationary(NamedTuple):
    """A stationary density and how well it satisfies its equation.

    Attributes
    ----------
    rho
        Density on the cells, (shape).
    residual
        Euler-Lagrange residual: largest |U + log(rho)/beta - multiplier| over the cells with mass, in units of energy.
    multiplier
        The mean of U + log(rho)/beta under rho (the chemical potential).
    n_iterations
        Newton steps taken.
    free_energy
        F(rho).
    converged
        Whether the potential satisfies its equation to the tolerance.
    """

    rho: FloatArray
    residual: float
    multiplier: float
    n_iterations: int
    free_energy: float
    converged: bool


def solve(field: MeanField, u: FloatArray, tol: float, n_iterations: int) -> Stationary:
    """Newton steps from the potential u, each shortened until the error falls; where none makes it fall, damped Gibbs steps."""
    tol, n_iterations = positive(tol, "tol"), count(n_iterations, "n_iterations")
    pace, steps = np.inf, 0
    error, rho = _gibbs_error(field, u)
    while np.abs(error).max() > tol * (1 + np.abs(u).max()) and steps < n_iterations:
        direction = _direction(field, error, rho, pace)
        size = _length(field, u, direction, error) if pace > SLOW else 1.0
        pace = pace * (1 + size) if size else min(pace, 4.0) / 4
        u = u - size * direction
        error, rho = _gibbs_error(field, u)
        steps += 1
    residual, multiplier = euler_lagrange(field, rho)
    done = bool(np.abs(error).max() <= tol * (1 + np.abs(u).max()))
    return Stationary(rho, residual, multiplier, steps, field.free_energy(rho), done)


def _length(field: MeanField, u: FloatArray, direction: FloatArray, error: FloatArray) -> float:
    """The largest of 1, 1/2, ... 2^-20 times the direction along which the error falls, or 0."""
    for size in 2.0 ** -np.arange(21.0):
        if np.abs(_gibbs_error(field, u - size * direction)[0]).max() < np.abs(error).max():
            return float(size)
    return 0.0


def states(field: MeanField, potentials: Sequence[FloatArray], tol: float, n_iterations: int, distance: float) -> list[Stationary]:
    """The different solutions from several potentials, lowest free energy first."""
    if not potentials:
        raise ValueError("starts must hold at least one density, got none")
    found: list[Stationary] = []
    for number, u in enumerate(potentials):
        state = solve(field, u, tol, n_iterations)
        if not state.converged:
            raise RuntimeError(
                f"start {number} leads to no solution within {n_iterations} iterations (residual {state.residual:.1e}): "
                "let it evolve for a while first, or use a larger n_iterations or tol"
            )
        if all(field.mesh.integral(np.abs(state.rho - other.rho)) > distance for other in found):
            found.append(state)
    return sorted(found, key=lambda state: state.free_energy)


def stability(field: MeanField, rho: FloatArray) -> float:
    """Smallest eigenvalue of the second variation of F at rho, relative to that of the entropy: positive for a stable state.

    min over phi of mass 0 of 1 + beta iint g phi phi / int phi^2 / rho, at most 1 (the bottom of the essential spectrum, where the
    interaction has no direction of attraction). At a stationary state its sign is that of the slowest decay rate.
    """
    volume = np.broadcast_to(field.mesh.volume, field.mesh.shape)
    root = np.sqrt(rho * volume).ravel()
    scale = (np.sqrt(rho / volume)).ravel()

    def act(phi: FloatArray) -> FloatArray:
        phi = phi.ravel() - root * (root @ phi.ravel())
        pulled = field.convolve((scale * phi).reshape(rho.shape)).ravel() * root
        return field.beta * (pulled - root * (root @ pulled))

    if _dense(field):
        assert field.convolution is not None
        kernel = field.convolution.matrix / volume
        centred = np.eye(len(root)) - np.outer(root, root)
        return float(1 + min(0.0, eigvalsh(field.beta * centred @ (root[:, None] * kernel * root) @ centred, subset_by_index=[0, 0])[0]))
    shifted = LinearOperator((root.size, root.size), matvec=lambda phi: phi.ravel() + act(phi), dtype=float)
    start = np.random.default_rng(0).standard_normal(root.size)
    return float(min(1.0, eigsh(shifted, k=1, which="SA", tol=1e-6, v0=start, return_eigenvectors=False)[0]))


def euler_lagrange(field: MeanField, rho: FloatArray) -> tuple[float, float]:
    """Residual and multiplier of a density, as in `Stationary`."""
    inside = rho > 1e-290  # below, the density underflows and its logarithm says nothing
    total = np.where(inside, field.external + field.convolve(rho) + np.log(np.where(inside, rho, 1.0)) / field.beta, 0.0)
    multiplier = field.mesh.integral(rho * total)
    return float(np.abs(total - multiplier)[inside].max()), multiplier


def _gibbs_error(field: MeanField, u: FloatArray) -> tuple[FloatArray, FloatArray]:
    """u - V - g * gibbs(u) and gibbs(u)."""
    rho = field.gibbs(u)
    return u - field.external - field.convolve(rho), rho


def _dense(field: MeanField) -> bool:
    return field.convolution is not None and len(field.mesh.shape) == 1 and field.mesh.shape[0] <= DENSE


def _direction(field: MeanField, error: FloatArray, rho: FloatArray, pace: float) -> FloatArray:
    """v with (1 + 1/pace) v + beta g * (rho (v - <v>)) = error: a Newton step for infinite pace, a damped Gibbs step for a small one."""
    mass = rho * field.mesh.volume
    if _dense(field):
        assert field.convolution is not None
        spread = np.diag(rho) - np.outer(rho, mass)
        return np.linalg.solve((1 + 1 / pace) * np.eye(rho.size) + field.beta * field.convolution.matrix @ spread, error)

    def act(v: FloatArray) -> FloatArray:
        v = v.reshape(rho.shape)
        return ((1 + 1 / pace) * v + field.beta * field.convolve(rho * (v - np.sum(mass * v)))).ravel()

    size = rho.size
    solution, _ = gmres(LinearOperator((size, size), matvec=act, dtype=float), error.ravel(), rtol=1e-6, restart=60, maxiter=5)
    return solution.reshape(rho.shape)
