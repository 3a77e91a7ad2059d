"""The Riesz, Coulomb or log gas in a quadratic trap at finite temperature, any dimension: the radial density that many particles take."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq, minimize_scalar
from scipy.special import digamma, gammaln

from theory.arrays import FloatArray, count, finite, positive, real
from theory.equilibrium.radial_law import RadialLaw, probabilities, radii
from theory.equilibrium.riesz_means import riesz
from theory.mean_field.radial import RadialBall, sphere_area
from theory.mean_field.solver import MeanField
from theory.mean_field.stationary import Stationary

__all__ = ["RadialGas", "radial_gas", "tail_bound"]


class RadialGas(RadialLaw):
    """The law of `radial_gas`, constant on the shells of a mesh.

    Attributes
    ----------
    mesh, state
        The `RadialBall` and the `Stationary` state on it: density (cell,), free energy, Euler-Lagrange residual and multiplier.
    tail
        Upper bound of the mass that the law in all of space has beyond the mesh.
    """

    def __init__(self, s: float, mesh: RadialBall, field: MeanField, state: Stationary, tail: float):
        self.dim, self.s, self.mesh, self.state, self.tail = mesh.dim, s, mesh, state, tail
        self._potential = field.potential(state.rho)
        self._energy = mesh.integral(state.rho * (field.external + self._potential) / 2)
        self._cdf = np.concatenate([[0.0], np.cumsum(mesh.volume * state.rho)])
        self._cdf /= self._cdf[-1]

    @property
    def energy(self) -> float:
        """int V rho + (strength / 2) iint g rho rho."""
        return self._energy

    @property
    def multiplier(self) -> float:
        """V + strength g*rho + log(rho) / beta, the same everywhere."""
        return self.state.multiplier

    def density(self, x: ArrayLike) -> FloatArray:
        """Density at x (..., dim), shape (...): linear between the shells' centres, zero beyond the mesh."""
        return np.interp(radii(x, self.dim), self.mesh.centres, self.state.rho, right=0.0)

    def potential(self, x: ArrayLike) -> FloatArray:
        """V + strength g*rho at x (..., dim) within the mesh, shape (...): linear between the shells' centres."""
        r = radii(x, self.dim)
        if (r > self.mesh.radius).any():
            raise ValueError(f"x must lie within the mesh, |x| <= {self.mesh.radius:g}, got {r.max():g}")
        return np.interp(r, self.mesh.centres, self._potential)

    def radial_cdf(self, r: ArrayLike) -> FloatArray:
        """P(|x| <= r), shape of r."""
        return np.interp(np.maximum(finite(r, "r"), 0.0) ** self.dim, self.mesh.edges**self.dim, self._cdf)

    def radial_quantile(self, u: ArrayLike) -> FloatArray:
        """Inverse of `radial_cdf` for u in [0, 1], shape of u."""
        return np.interp(probabilities(u), self._cdf, self.mesh.edges**self.dim) ** (1 / self.dim)

    def moment(self, order: float) -> float:
        """E |x|^order for order > -dim."""
        power = real(order, "order") + self.dim
        if power <= 0:
            raise ValueError(f"order must exceed -dim = {-self.dim}, got {order!r}: the moment is infinite")
        return float(self.state.rho @ np.diff(self.mesh.edges**power)) * sphere_area(self.dim) / power


def radial_gas(dim: int, s: float, kappa: float, strength: float, beta: float, *, n_cells: int = 256, tail: float = 1e-12) -> RadialGas:
    """The minimiser of int kappa |x|^2 / 2 rho + (strength / 2) iint g_s rho rho + (1 / beta) int rho log rho in R^dim.

    Solved on a ball beyond which its mass is below `tail`: that of `tail_bound` first, roughly, then one beyond which the rough
    density has no more than `tail`. The error of the density falls as n_cells^-2.

    Raises
    ------
    ValueError
        Unless -2 < s < dim, kappa, strength and beta are positive.
    RuntimeError
        If the stationary state is not found.
    """
    s, tail, n_cells = real(s, "s"), positive(tail, "tail"), count(n_cells, "n_cells", least=16)
    radius = tail_bound(dim, s, kappa, strength, beta, tail / 2)
    for n in (min(n_cells, 64), n_cells):
        mesh = RadialBall(radius, n, dim)
        field = MeanField(lambda r: kappa * r**2 / 2, lambda r: strength * riesz(r, s), beta, mesh)
        state = field.stationary()
        if not state.converged:
            raise RuntimeError(f"no stationary state found in dim {dim} at s = {s}, beta = {beta} (residual {state.residual:.1e})")
        beyond = np.cumsum((mesh.volume * state.rho)[::-1])[::-1]
        radius = float(mesh.edges[1:][np.argmax(beyond <= tail / 2) if beyond[-1] <= tail / 2 else -1])
    return RadialGas(s, mesh, field, state, tail)


def tail_bound(dim: int, s: float, kappa: float, strength: float, beta: float, tail: float) -> float:
    """A radius beyond which the gas of `radial_gas` has at most the mass `tail`.

    rho(r) = exp(beta (mu - kappa r^2 / 2 - strength g*rho(r))) with g*rho(r) >= g(sqrt(r^2 + m)), m the second moment, by Jensen's
    inequality (g is convex in the squared distance), and mu = F + (pair energy) <= 2 F - min of F without the pair energy, where the
    free energy F is below that of the best Gaussian. Raises ValueError as `radial_gas` does.
    """
    dim, s, tail = count(dim, "dim"), real(s, "s"), positive(tail, "tail")
    if not -2 < s < dim:
        raise ValueError(f"s must lie between -2 and dim = {dim}, got {s}: the energy of every density is infinite from dim on")
    kappa, strength, beta = positive(kappa, "kappa"), positive(strength, "strength"), positive(beta, "beta")
    gauss = -dim / (2 * beta) * np.log(2 * np.pi / (beta * kappa))
    free = _best_gaussian(dim, s, kappa, strength, beta)
    second = _second_moment(dim, s, kappa, strength, beta, free - gauss)

    def log_mass(r: FloatArray) -> FloatArray:
        energy = kappa * r**2 / 2 + strength * riesz(np.sqrt(r**2 + second), s) - (2 * free - gauss)
        return np.log(sphere_area(dim)) + (dim - 1) * np.log(r) - beta * energy

    top = np.sqrt(second)
    while log_mass(top) > log_mass(top / 1.1) - 10 or log_mass(top) > np.log(tail) - 50:
        top *= 1.1
    r = top * np.arange(1, 20001) / 20000
    beyond = np.logaddexp.accumulate((log_mass(r) + np.log(r[0]))[::-1])[::-1]
    return float(r[np.argmax(beyond <= np.log(tail))])


def _best_gaussian(dim: int, s: float, kappa: float, strength: float, beta: float) -> float:
    """Smallest free energy of a centred Gaussian: E |x - y|^-s = (4 v)^(-s/2) Gamma((dim - s)/2) / Gamma(dim/2) at variance v."""

    def free_energy(log_v: float) -> float:
        if s == 0:
            pair = -(np.log(4) + log_v + digamma(dim / 2)) / 2
        else:
            pair = np.sign(s) * np.exp(-s / 2 * (np.log(4) + log_v) + gammaln((dim - s) / 2) - gammaln(dim / 2))
        entropy = dim / 2 * (1 + np.log(2 * np.pi) + log_v)
        return float(kappa * dim * np.exp(log_v) / 2 + strength * pair / 2 - entropy / beta)

    return float(minimize_scalar(free_energy).fun)


def _second_moment(dim: int, s: float, kappa: float, strength: float, beta: float, pair: float) -> float:
    """Upper bound of the second moment, kappa m = dim / beta + (strength / 2) (|s| E |x - y|^-s, or 1 for the log): the virial identity."""
    if s == 0:
        return (dim / beta + strength / 2) / kappa
    if s > 0:
        return (dim / beta + s * pair) / kappa  # pair energy <= pair

    def excess(m: float) -> float:
        return kappa * m - dim / beta + s * strength / 2 * (2 * m) ** (-s / 2)  # E |x - y|^|s| <= (2 m)^(|s| / 2)

    high = dim / (beta * kappa)
    while excess(high) < 0:
        high *= 2
    return float(brentq(excess, high / 2, high)) if excess(high / 2) < 0 else high
