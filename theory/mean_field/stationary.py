"""Stationary states of a mean field: Newton steps on the potential, and the second variation of the free energy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.linalg import eigvalsh
from scipy.sparse.linalg import LinearOperator, eigsh, gmres
from scipy.special import exprel

from theory.arrays import FloatArray, count, positive

if TYPE_CHECKING:
    from theory.mean_field.solver import MeanField

__all__ = ["Stationary", "euler_lagrange", "solve", "stability", "states"]

LEVEL = 0.1  # of the mean density under itself, where changes pass from linear to logarithmic ones
ROUND_OFF = 1e-13  # of the size of energies, by which F may rise where the residual falls
FAST = 1e6  # pace from which steps are Newton steps
DENSE = 1500  # cells on a line up to which linear systems are solved by factorisation


class Stationary(NamedTuple):
    """A stationary density and how well it satisfies its equation.

    Attributes
    ----------
    rho
        Density on the cells, (shape).
    residual
        Euler-Lagrange residual: largest |U + log(rho)/beta - multiplier| over the cells, in units of energy.
    multiplier
        The mean of U + log(rho)/beta under rho (the chemical potential).
    n_iterations
        Newton steps taken.
    free_energy
        F(rho).
    converged
        Whether the residual is below the tolerance.
    stability
        Smallest eigenvalue of the second variation (`MeanField.stability`): a minimum of F has a positive one. None where nobody asked.
    """

    rho: FloatArray
    residual: float
    multiplier: float
    n_iterations: int
    free_energy: float
    converged: bool
    stability: float | None = None


class _Point(NamedTuple):
    """The Gibbs density rho of a potential u, u - V - g * rho less its mean, F and the size of energies: u is -log(rho)/beta + const."""

    u: FloatArray
    rho: FloatArray
    error: FloatArray
    free_energy: float
    size: float

    @property
    def residual(self) -> float:
        return float(np.abs(self.error).max())

    def settled(self, tol: float) -> bool:
        """Whether the residual is below tol in units of the energies, or round-off of the highest potential."""
        return bool(self.residual <= tol * self.size + 8 * np.finfo(float).eps * float(np.abs(self.u).max()))


def solve(field: MeanField, u: FloatArray, tol: float, n_iterations: int) -> Stationary:
    """Newton steps from the potential u, each shortened until F falls, or the residual while F stays; else more and more damped ones.

    Much damped, a step is one down the gradient of F, so that some step always succeeds. As F never rises, unstable states are left
    unless the start shares their symmetry.
    """
    tol, n_iterations = positive(tol, "tol"), count(n_iterations, "n_iterations")
    point, pace, steps = _point(field, u), np.inf, 0
    while not point.settled(tol) and steps < n_iterations:
        direction = _direction(field, point, pace)
        size, point = _search(field, point, direction)
        pace = pace * 2 * size if size else min(pace, 16.0) / 8
        pace = np.inf if pace > FAST else pace
        steps += 1
    _, multiplier = euler_lagrange(field, point.rho)
    return Stationary(point.rho, point.residual, multiplier, steps, point.free_energy, point.settled(tol))


def _point(field: MeanField, u: FloatArray) -> _Point:
    rho = field.gibbs(u)
    potential = field.unchecked_potential(rho)
    error = u - potential
    size = 1 + field.mesh.integral(rho * np.abs(potential))
    return _Point(u, rho, error - field.mesh.integral(rho * error), field.energy_in(rho, potential), size)


def _search(field: MeanField, point: _Point, direction: FloatArray) -> tuple[float, _Point]:
    """The largest of 1, 1/2, ... 1/128 times the direction along which F falls, or the residual with F no higher; 0 if none."""
    slope = field.beta * field.mesh.integral(point.rho * point.error * direction)  # the first-order fall of F
    for size in 2.0 ** -np.arange(8.0):
        new = _point(field, _moved(field, point, size * direction))
        falls = slope > 0 and new.free_energy < point.free_energy - 0.01 * size * slope
        level = new.free_energy <= point.free_energy + ROUND_OFF * point.size
        if falls or (level and new.residual < (1 - 0.1 * size) * point.residual):
            return float(size), new
    return 0.0, point


def _moved(field: MeanField, point: _Point, direction: FloatArray) -> FloatArray:
    """The potential after the relative change beta * direction of the density, linear in log(1 + exp(y)) = rho / level, rho's own size.

    Where the density is large it changes linearly, as its equation at low temperature is; where it is small its logarithm does, so that
    it stays positive.
    """
    log_rho = -field.beta * (point.u - point.u.min())
    log_rho -= np.log(field.mesh.integral(np.exp(log_rho)) * LEVEL * field.mesh.integral(point.rho**2))
    large = log_rho > np.log(30.0)
    level = np.exp(np.minimum(log_rho, np.log(30.0)))
    with np.errstate(over="ignore"):
        y = np.where(large, np.exp(log_rho), log_rho + np.log(exprel(level)))
        y += field.beta * direction * np.where(large, y, level + 1 / exprel(level))
    return -np.where(y < -30, y, np.log(np.logaddexp(0, np.maximum(y, -30)))) / field.beta


def states(field: MeanField, potentials: Sequence[FloatArray], tol: float, n_iterations: int, distance: float) -> list[Stationary]:
    """The different solutions from several potentials, lowest free energy first."""
    distance = positive(distance, "distance")
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
            found.append(state._replace(stability=stability(field, state.rho)))
    return sorted(found, key=lambda state: state.free_energy)


def stability(field: MeanField, rho: FloatArray) -> float:
    """Smallest eigenvalue of the second variation of F at rho, relative to that of the entropy: positive for a stable state.

    min over phi of mass 0 of 1 + beta iint g phi phi / int phi^2 / rho, at most 1 (the bottom of the essential spectrum, where the
    interaction has no direction of attraction). At a stationary state its sign is that of the slowest decay rate.
    """
    if field.convolution is None:
        return 1.0
    volume = np.broadcast_to(field.mesh.volume, field.mesh.shape)
    root = np.sqrt(rho * volume).ravel()
    scale = (np.sqrt(rho / volume)).ravel()

    def act(phi: FloatArray) -> FloatArray:
        phi = phi.ravel() - root * (root @ phi.ravel())
        pulled = field.convolve((scale * phi).reshape(rho.shape)).ravel() * root
        return field.beta * (pulled - root * (root @ pulled))

    if _dense(field):
        pulled = root[:, None] * field.convolution.matrix * (root / volume)
        pulled -= np.outer(root @ pulled, root)
        pulled -= np.outer(root, root @ pulled)
        return float(1 + min(0.0, field.beta * eigvalsh(pulled, subset_by_index=[0, 0])[0]))
    shifted = LinearOperator((root.size, root.size), matvec=lambda phi: phi.ravel() + act(phi), dtype=float)
    start = np.random.default_rng(0).standard_normal(root.size)
    return float(min(1.0, eigsh(shifted, k=1, which="SA", tol=1e-3, v0=start, return_eigenvectors=False)[0]))


def euler_lagrange(field: MeanField, rho: FloatArray) -> tuple[float, float]:
    """Largest |U + log(rho)/beta - multiplier| over the cells that hold mass, and the multiplier, for any density (shape)."""
    inside = rho > 1e-290  # below, the density underflows and its logarithm says nothing
    total = np.where(inside, field.unchecked_potential(rho) + np.log(np.where(inside, rho, 1.0)) / field.beta, 0.0)
    multiplier = field.mesh.integral(rho * total)
    return float(np.abs(total - multiplier)[inside].max()), multiplier


def _dense(field: MeanField) -> bool:
    return field.convolution is not None and len(field.mesh.shape) == 1 and field.mesh.shape[0] <= DENSE


def _direction(field: MeanField, point: _Point, pace: float) -> FloatArray:
    """v of mean 0 with (1 + 1/pace) v + beta g * (rho v) = error up to a constant: a Newton step for infinite pace."""
    rho, mass = point.rho, point.rho * field.mesh.volume
    if _dense(field):
        assert field.convolution is not None
        spread = np.diag(rho) - np.outer(rho, mass)
        v = np.linalg.solve((1 + 1 / pace) * np.eye(rho.size) + field.beta * field.convolution.matrix @ spread, point.error)
        return v - np.sum(mass * v)

    def act(v: FloatArray) -> FloatArray:
        v = v.reshape(rho.shape)
        return ((1 + 1 / pace) * v + field.beta * field.convolve(rho * (v - np.sum(mass * v)))).ravel()

    operator = LinearOperator((rho.size, rho.size), matvec=act, dtype=float)
    solution, _ = gmres(operator, point.error.ravel(), rtol=1e-6, restart=60, maxiter=5)
    v = solution.reshape(rho.shape)
    return v - np.sum(mass * v)
