"""Equilibrium of a Riesz gas with dim - 2 < s < dim in any smooth radial trap, on a ball, by a spectral method in Jacobi polynomials.

On the unit ball the potential of (1 - |y|^2)^a P_n^(a, dim/2 - 1)(2 |y|^2 - 1), a = (s - dim)/2, is a multiple of the same polynomial
(for s = 0 on the line: Chebyshev polynomials; in general Dyda, Kuznetsov & Kwasnicki 2017, theorem 3). So V's expansion gives the
density of total mass 1 that makes V + strength g*mu constant on a ball of any radius; the free radius is the one at which the factor
of the edge singularity vanishes, and behind a hard wall that never happens, the wall's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh_tridiagonal
from scipy.optimize import brentq
from scipy.special import betainc, betaln, gammaln, hyp2f1, roots_jacobi

from theory.arrays import FloatArray, count, finite, numeric, positive, real
from theory.equilibrium.radial_law import RadialLaw, finite_order, invert, probabilities, radii
from theory.equilibrium.riesz_means import mean_over_ball
from theory.equilibrium.walls import WallBall

__all__ = ["RieszEquilibrium"]

LARGEST_DEGREE = 64
ROUNDING = 4e-15  # of the coefficients of V: smaller ones are noise, which the inverse of the potential would amplify
TOLERANCE = 1e-9  # of the Euler-Lagrange equation, relative to the range of V: a rougher V raises


def _jacobi(c: FloatArray, a: float, b: float, x: FloatArray) -> FloatArray:
    """sum of c[n] P_n^(a, b)(x), by the three-term recurrence upwards (DLMF 18.9.2); shape of x."""
    before, now = np.ones_like(x), (a + 1) + (a + b + 2) * (x - 1) / 2
    total = c[0] * before
    for n in range(1, c.size):
        total = total + c[n] * now
        k = 2 * n + a + b
        middle = (k + 1) * ((k + 2) * k * x + a**2 - b**2) * now - 2 * (n + a) * (n + b) * (k + 2) * before
        before, now = now, middle / (2 * (n + 1) * (n + a + b + 1) * k)
    return total


def _norm(n: FloatArray, a: float, b: float) -> FloatArray:
    """Integral of the square of P_n against (1 - x)^a (1 + x)^b, over that of P_0 (DLMF 18.3), for n = 0, 1, ... (degree + 1,)."""
    n = n[1:]
    logs = gammaln(n + a + 1) + gammaln(n + b + 1) - gammaln(n + 1) - gammaln(a + 1) - gammaln(b + 1) - gammaln(n + a + b + 1)
    return np.r_[1.0, np.exp(logs + gammaln(a + b + 2)) / (2 * n + a + b + 1)]


@lru_cache(maxsize=32)
def _rule(size: int, a: float, b: float) -> tuple[FloatArray, FloatArray]:
    """Gauss-Jacobi nodes (size,) and the matrix (size, size) from values at them to coefficients of orthonormal polynomials.

    Both from the eigenvectors of the Jacobi matrix (Golub & Welsch 1969): the transform is orthogonal, its noise does not grow.
    """
    k = np.arange(1, size)
    total = 2 * k + a + b
    diagonal = np.r_[(b - a) / (a + b + 2), (b**2 - a**2) / (total * (total + 2))]
    first = k == 1
    ratio = np.where(first, 1.0, (k + a + b) / np.where(first, 1.0, total - 1))
    beside = np.sqrt(4 * k * (k + a) * (k + b) * ratio / (total**2 * (total + 1)))
    x, vectors = eigh_tridiagonal(diagonal, beside)
    return x.astype(float), vectors * vectors[0]


def far_radii(external: Callable[[FloatArray], ArrayLike], radius: float, wall: float) -> FloatArray:
    """Radii up to 1e9 times the support's, or the wall, at which V is finite: where it is infinite it confines.

    ValueError if V is NaN or minus infinity there.
    """
    r = np.minimum(radius * np.geomspace(1, 1e9, 181), wall)
    with np.errstate(over="ignore"):
        values = np.broadcast_to(numeric(external(r), "external(r)"), r.shape)
    if (np.isnan(values) | (values == -np.inf)).any():
        raise ValueError("external(r) must be finite or plus infinity outside the support, got NaN or minus infinity")
    return r[values < 1e300]


def require_confinement(r: FloatArray, potential: FloatArray) -> None:
    """ValueError if V + strength g*mu (n,) falls over the last decade of ascending radii r (n,): for s <= 0 it then falls for ever."""
    if potential[-1] < potential[np.searchsorted(r, r[-1] / 10)]:
        raise ValueError(f"external must confine: V + strength g*mu falls at r = {r[-1]:g}, the energy is not bounded below")


@dataclass(frozen=True)
class RieszEquilibrium(RadialLaw):
    """Minimiser of int V dmu + (strength/2) iint g_s dmu dmu for a radial V, where its support is a ball.

    Parameters
    ----------
    external
        V(r): callable of an array of radii r >= 0, smooth as a function of r^2 (a power r^p that is not even converges slowly and raises
        unless p is large).
    strength
        Strength of the interaction.
    dim, s
        Dimension and exponent, dim - 2 < s < dim; s = 0 is the log (dim = 1).
    wall
        Radius of a hard wall; infinite for none.

    Raises
    ------
    ValueError
        If V does not confine, is not resolved by polynomials of degree 64 in r^2, or if the support is not a ball: a density negative
        somewhere, or V + strength g*mu below its value on the support outside (checked on a grid up to 1e9 radii, or where V overflows).
    """

    external: Callable[[FloatArray], ArrayLike]
    strength: float
    dim: int
    s: float
    wall: float = np.inf

    def __post_init__(self) -> None:
        count(self.dim, "dim")
        positive(self.strength, "strength")
        if not self.dim - 2 < real(self.s, "s") < self.dim:
            raise ValueError(f"s must lie strictly between {self.dim - 2} and {self.dim}, got {self.s!r}")
        if not real(self.wall, "wall") > 0:
            raise ValueError(f"wall must be positive, got {self.wall!r}")
        if not callable(self.external):
            raise ValueError(f"external must be callable, got {self.external!r}")
        self._check()

    @cached_property
    def radius(self) -> float:
        """Radius of the support."""
        radius, edge = min(1.0, self.wall), self._edge
        while edge(radius) <= 0:
            radius /= 1.5
            if radius < 1e-9:
                raise ValueError("external must be finite and smooth at the origin: no radius down to 1e-9 balances the repulsion")
        while edge(min(1.5 * radius, self.wall)) > 0:
            radius *= 1.5
            if radius >= self.wall:
                return float(self.wall)
            if radius > 1e9:
                raise ValueError("external must confine: no radius up to 1e9 balances the repulsion")
        return float(brentq(edge, radius, min(1.5 * radius, self.wall), xtol=1e-300, rtol=1e-15))

    @property
    def edge_coefficient(self) -> float:
        """Factor of (radius^2 - |x|^2)^a at the edge, in units of the ball without trap: 0 for a free edge, positive at a wall."""
        return self._edge(self.radius)

    @cached_property
    def multiplier(self) -> float:
        """Value of V + strength g*mu on the support."""
        return float(self._expansion[0][0] + WallBall(self.radius, self.strength, self.dim, self.s).multiplier)

    @cached_property
    def energy(self) -> float:
        """int V dmu + (strength/2) iint g_s dmu dmu: half of the multiplier and of int V dmu."""
        v, c, norm = self._expansion
        return float((np.sum(v * c * norm) / c[0] + self.multiplier) / 2)

    @cached_property
    def residual(self) -> float:
        """Largest |V + strength g*mu - multiplier| on the support: the part of V that the polynomials miss, off their nodes."""
        r = self.radius * np.sqrt(np.linspace(0, 1, 4 * self._expansion[0].size + 1))
        return float(np.abs(self._external(r) - _jacobi(self._expansion[0], self._a, self._b, 2 * (r / self.radius) ** 2 - 1)).max())

    def density(self, x: ArrayLike) -> FloatArray:
        """Density at x (..., dim), shape (...); zero outside the support, infinite at a wall that bears mass."""
        t = (radii(x, self.dim) / self.radius) ** 2
        gap = np.where(t < 1, 1 - t, 1.0)
        inside = self.radius**-self.dim * gap**self._a * _jacobi(self._expansion[1], self._a, self._b, 2 * np.minimum(t, 1.0) - 1)
        return np.where(t < 1, inside, np.where((t == 1) & (self.radius == self.wall), np.inf, 0.0))

    def radial_cdf(self, r: ArrayLike) -> FloatArray:
        """P(|x| <= r), shape of r."""
        t = np.clip(finite(r, "r") / self.radius, 0, 1) ** 2
        a, b, c = self._a, self._b, self._expansion[1]
        higher = -c[1:] / np.arange(1, c.size) * np.exp(self._log_half_sphere)
        return betainc(b + 1, a + 1, t) + t ** (b + 1) * (1 - t) ** (a + 1) * _jacobi(higher, a + 1, b + 1, 2 * t - 1)

    def radial_quantile(self, u: ArrayLike) -> FloatArray:
        """Inverse of `radial_cdf` for u in [0, 1], shape of u."""
        return invert(self.radial_cdf, probabilities(u), 0.0, self.radius)

    def moment(self, order: float) -> float:
        """E |x|^order for order > -dim, by a Gauss-Jacobi rule that is exact for the expansion."""
        order = finite_order(order, -self.dim)
        x, weight = roots_jacobi(self._expansion[1].size + 1, self._a, self._b + order / 2)
        front = np.exp(self._log_half_sphere) * 2.0 ** -(self._a + self._b + order / 2 + 1)
        return float(self.radius**order * front * weight @ _jacobi(self._expansion[1], self._a, self._b, x))

    def potential(self, x: ArrayLike) -> FloatArray:
        """V + strength g*mu at x (..., dim), shape (...): the multiplier (to `residual`) on the support, more outside up to the wall."""
        r = radii(x, self.dim)
        t = (np.minimum(r, self.radius) / self.radius) ** 2
        inside = self.multiplier + self._external(r) - _jacobi(self._expansion[0], self._a, self._b, 2 * t - 1)
        outside = self._external(r) + self.strength * self._interaction_outside(np.maximum(r, self.radius))
        return np.where(r <= self.radius, inside, outside)

    @property
    def _a(self) -> float:
        return (self.s - self.dim) / 2

    @property
    def _b(self) -> float:
        return self.dim / 2 - 1

    @property
    def _log_half_sphere(self) -> float:
        """log of half the area of the unit sphere: d^dim y = that times t^b dt for t = |y|^2."""
        return float(self.dim / 2 * np.log(np.pi) - gammaln(self.dim / 2))

    def _external(self, r: FloatArray) -> FloatArray:
        values = finite(self.external(r), "external(r)")
        if values.ndim and values.shape != r.shape:
            raise ValueError(f"external(r) must have the shape of r, {r.shape}, got {values.shape}")
        return np.broadcast_to(values, r.shape)

    @cached_property
    def _expansion(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        return self._expand(self.radius)

    def _expand(self, radius: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Coefficients of V and of the density on the ball of this radius, and the norms over the first, (degree + 1,) each."""
        size = 16
        while True:
            x, to_coefficients = _rule(size, self._a, self._b)
            v = to_coefficients @ self._external(radius * np.sqrt((1 + x) / 2))
            if np.abs(v[-size // 4 :]).max() <= ROUNDING * np.abs(v).max() or 2 * size > LARGEST_DEGREE:
                break
            size *= 2
        kept = max(2, int(np.flatnonzero(np.abs(v) > ROUNDING * np.abs(v).max()).max(initial=0)) + 1)
        norm = _norm(np.arange(kept, dtype=float), self._a, self._b)
        v, n = v[:kept] / np.sqrt(norm), np.arange(1, kept)
        c = np.empty(kept)
        c[0] = np.exp(gammaln(self.dim / 2 + self._a + 1) - gammaln(self._a + 1) - self.dim / 2 * np.log(np.pi))
        c[1:] = -v[1:] * radius**self.s / (self.strength * np.exp(self._log_eigenvalue(n.astype(float))))
        return v, c, norm

    def _log_eigenvalue(self, n: FloatArray) -> FloatArray:
        """log of the potential of mode n >= 1 on the unit ball over the mode's polynomial."""
        logs = gammaln(1 + self._a + n) + gammaln(self.s / 2 + n) - gammaln(n + 1) - gammaln(self.dim / 2 + n)
        front = self.dim / 2 * np.log(np.pi) + gammaln(-self._a) - gammaln(1 + self.s / 2)
        return front + np.log((abs(self.s) or 1) / 2) + logs

    def _edge(self, radius: float) -> float:
        """The factor of the edge singularity on the ball of this radius over that without a trap."""
        c = self._expand(radius)[1]
        n = np.arange(c.size)
        at_one = np.exp(gammaln(n + self._a + 1) - gammaln(n + 1) - gammaln(self._a + 1))
        return float(np.sum(c * at_one) / c[0])

    def _interaction_outside(self, r: FloatArray) -> FloatArray:
        """g*mu at r >= radius: each mode by Rodrigues' formula against the mean of g over spheres."""
        a, half, s, c = self._a, self.dim / 2, self.s, self._expansion[1]
        ratio = self.radius / r
        total = mean_over_ball(r, self.radius, self.dim, s, a)
        for n in range(1, c.size):
            log_front = gammaln(n + s / 2) - gammaln(1 + s / 2) + np.log((abs(s) or 1) / 2) - gammaln(n + 1)
            log_front += gammaln(a + 1 + n) - gammaln(a + 1) - gammaln(half + n) + gammaln(half) + betaln(half + n, a + n + 1)
            front = c[n] * np.exp(log_front + self._log_half_sphere)
            total = total + front * r**-s * ratio ** (2 * n) * hyp2f1(s / 2 + n, a + 1 + n, 1 + s / 2 + 2 * n, ratio**2)
        return total

    def _check(self) -> None:
        """Raise unless V is resolved, the density nowhere negative and the inequality outside holds."""
        t = np.linspace(0, 1, 2001)
        spread = np.ptp(self._external(self.radius * np.sqrt(t))) + self.strength * self.radius**-self.s
        if self.residual > TOLERANCE * spread:
            raise ValueError(f"external must be smooth in r^2: degree {LARGEST_DEGREE} leaves {self.residual:.1e} of it")
        shape = _jacobi(self._expansion[1], self._a, self._b, 2 * t - 1)
        if shape.min() < -TOLERANCE * np.abs(shape).max():
            raise ValueError(f"the support is not a ball: the density on the ball of radius {self.radius:g} would be negative in places")
        r = np.r_[np.linspace(self.radius, min(3 * self.radius, self.wall), 301), far_radii(self.external, self.radius, self.wall)]
        outside = self._external(r) + self.strength * self._interaction_outside(r)
        if self.s <= 0 and self.wall == np.inf:
            require_confinement(r, outside)
        if not outside.min() >= self.multiplier - TOLERANCE * spread:
            raise ValueError(f"the support is not a ball: mass would leave the ball of radius {self.radius:g} for {r[outside.argmin()]:g}")
