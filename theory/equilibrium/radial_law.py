"""Rotation-invariant probability measures: what every equilibrium measure shares, and the two kinds that closed forms are made of.

`RadialLaw` is the interface; `BallLaw` has a density proportional to (radius^2 - |x|^2)^exponent on a ball; `SphereLaw` is uniform on a
sphere. Points x have shape (..., dim); on the line (dim = 1) also any shape without the last axis, one point a number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.special import betainc, betaincinv, betaln, digamma, gammaln

from theory.arrays import FloatArray, count, extent, finite, generator, real

__all__ = ["BallLaw", "Moved", "RadialLaw", "SphereLaw", "finite_order", "invert", "line", "probabilities", "radii", "representable"]


def radii(x: ArrayLike, dim: int) -> FloatArray:
    """|x| of points (..., dim), shape (...); for dim = 1 numbers of any shape are taken too. ValueError for another shape."""
    x = finite(x, "x")
    if x.ndim and x.shape[-1] == dim and (dim > 1 or x.ndim > 1):
        return np.linalg.norm(x, axis=-1)
    if dim > 1:
        raise ValueError(f"x must have shape (..., {dim}), got {x.shape}")
    return np.abs(x)


def line(x: ArrayLike) -> FloatArray:
    """Points of the line as numbers: (..., 1) loses its last axis."""
    x = finite(x, "x")
    return x[..., 0] if x.ndim > 1 and x.shape[-1] == 1 else x


def probabilities(u: ArrayLike) -> FloatArray:
    """`u` as an array in [0, 1]; ValueError otherwise."""
    u = finite(u, "u")
    if ((u < 0) | (u > 1)).any():
        raise ValueError(f"u must lie in [0, 1], got values from {u.min()} to {u.max()}")
    return u


def finite_order(order: float, bound: float = -np.inf) -> float:
    """The order of a moment as a float; ValueError unless it is finite and exceeds `bound`, up to which the moment is infinite."""
    order = real(order, "order")
    if not np.isfinite(order):
        raise ValueError(f"order must be finite, got {order!r}")
    if not order > bound:
        raise ValueError(f"order must exceed {bound:g}, got {order!r}: the moment is infinite")
    return order


def representable(base: float, power: float = 1.0) -> float:
    """base^power, the radius of a support; ValueError where floating point holds no such number."""
    with np.errstate(over="ignore", under="ignore"):
        radius = float(np.float64(base) ** power)
    if not 0 < radius < np.inf:
        raise ValueError(f"strength must give a radius that floating point holds, got {base:g}^{power:g}")
    return radius


def invert(cdf: Callable[[FloatArray], FloatArray], u: FloatArray, low: float, high: float) -> FloatArray:
    """x with cdf(x) = u for an increasing cdf on [low, high], to rounding; shape of u. A table, then false position and bisection."""
    shape, u = u.shape, u.ravel()
    grid = np.linspace(low, high, 1025)
    values = np.maximum.accumulate(cdf(grid))
    place = np.clip(np.searchsorted(values, u), 1, grid.size - 1)
    a, b, fa, fb = grid[place - 1], grid[place], values[place - 1] - u, values[place] - u
    for step in range(80):
        slope = np.where(fb > fa, fb - fa, 1.0)
        x = np.where((fb > fa) & (step % 3 < 2), np.clip(a - fa * (b - a) / slope, a, b), (a + b) / 2)
        f = cdf(x) - u
        below = f < 0
        if step % 3 < 2:  # the Illinois rule: an end kept twice counts half, so that both ends move
            fa, fb = np.where(below, f, fa / 2), np.where(below, fb / 2, f)
        else:
            fa, fb = np.where(below, f, fa), np.where(below, fb, f)
        a, b = np.where(below, x, a), np.where(below, b, x)
        if np.all((np.abs(f) <= 1e-16 * u) | (b - a <= 4e-16 * np.maximum(np.abs(a), np.abs(b)))):
            break
    return x.reshape(shape)


class RadialLaw:
    """A rotation-invariant probability measure on R^dim.

    Subclasses give `dim`, `s` (the exponent of the interaction it is an equilibrium of), `radial_cdf`, `radial_quantile`, `moment`,
    `energy`, `multiplier`, `potential` and, where there is one, `density`.
    """

    dim: int = 1
    s: float = 0.0

    def density(self, x: ArrayLike) -> FloatArray:
        """Density at x (..., dim), shape (...)."""
        raise ValueError(f"{type(self).__name__} has no density with respect to Lebesgue measure")

    def radial_density(self, r: ArrayLike) -> FloatArray:
        """Density, per volume of R^dim, at the distance r >= 0 from the centre; shape of r. ValueError as `density`, or for r < 0."""
        r = finite(r, "r")
        if (r < 0).any():
            raise ValueError(f"r must be at least 0, got {extent(r)}")
        return self.density(r.reshape(-1, 1) * np.eye(1, self.dim)).reshape(r.shape)

    def radial_cdf(self, r: ArrayLike) -> FloatArray:
        """P(|x| <= r), shape of r."""
        raise NotImplementedError

    def radial_quantile(self, u: ArrayLike) -> FloatArray:
        """Smallest r with P(|x| <= r) >= u, for u in [0, 1]; shape of u."""
        raise NotImplementedError

    def potential(self, x: ArrayLike) -> FloatArray:
        """V + strength g*mu at x (..., dim), shape (...)."""
        raise NotImplementedError

    def moment(self, order: float) -> float:
        """E |x|^order; ValueError where it is infinite."""
        raise NotImplementedError

    @property
    def energy(self) -> float:
        """E(mu)."""
        raise NotImplementedError

    @property
    def multiplier(self) -> float:
        """Value of V + strength g*mu on the support (with log(rho)/beta at a finite temperature)."""
        raise NotImplementedError

    def cdf(self, x: ArrayLike) -> FloatArray:
        """P(X <= x) on the line, shape of x or (n,) of (n, 1); ValueError unless dim = 1. Right for laws without atoms."""
        self._only_on_the_line("cdf")
        x = line(x)
        return 0.5 + 0.5 * np.sign(x) * self.radial_cdf(np.abs(x))

    def quantile(self, u: ArrayLike) -> FloatArray:
        """Inverse of `cdf` for u in [0, 1], shape of u; ValueError unless dim = 1."""
        self._only_on_the_line("quantile")
        u = probabilities(u)
        return np.sign(u - 0.5) * self.radial_quantile(np.abs(2 * u - 1))

    def sample(self, n: int, rng: int | np.random.Generator) -> Float[np.ndarray, "n dim"]:
        """Independent points (n, dim)."""
        rng = generator(rng)
        direction = rng.standard_normal((count(n, "n"), self.dim))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        return self._sample_radii(n, rng)[:, None] * direction

    @property
    def second_moment(self) -> float:
        """int |x|^2 dmu."""
        return self.moment(2)

    def _sample_radii(self, n: int, rng: np.random.Generator) -> FloatArray:
        return self.radial_quantile(rng.random(n))

    def _only_on_the_line(self, name: str) -> None:
        if self.dim != 1:
            raise ValueError(f"{name} needs dim = 1, got dim = {self.dim}: use radial_{name}")


class BallLaw(RadialLaw):
    """Density proportional to (radius^2 - |x|^2)^exponent on a ball: |x|^2/radius^2 is Beta(dim/2, exponent + 1).

    Subclasses give `dim`, `s`, `radius`, `exponent` and `edge_shape` = exponent + 1 > 0, each of the two without cancellation.
    """

    radius: float
    exponent: float
    edge_shape: float

    def density(self, x: ArrayLike) -> FloatArray:
        """Density at x (..., dim), shape (...); zero outside the ball, infinite on its edge if the exponent is negative."""
        r, radius, half, power = radii(x, self.dim), self.radius, self.dim / 2, self.exponent
        log_front = gammaln(half + self.edge_shape) - gammaln(self.edge_shape) - half * np.log(np.pi) - self.dim * np.log(radius)
        ratio = np.minimum(r / radius, 1.0)
        gap = np.where(r < radius, (radius - np.minimum(r, radius)) / radius * (1 + ratio), 1.0)
        edge = np.inf if power < 0 else float(power == 0) * np.exp(log_front)
        return np.where(r < radius, np.exp(log_front) * gap**power, np.where(r == radius, edge, 0.0))

    def radial_cdf(self, r: ArrayLike) -> FloatArray:
        """P(|x| <= r), shape of r."""
        return betainc(self.dim / 2, self.edge_shape, np.clip(finite(r, "r") / self.radius, 0, 1) ** 2)

    def radial_quantile(self, u: ArrayLike) -> FloatArray:
        """Inverse of `radial_cdf` for u in [0, 1], shape of u."""
        return self.radius * np.sqrt(betaincinv(self.dim / 2, self.edge_shape, probabilities(u)))

    def cdf(self, x: ArrayLike) -> FloatArray:
        """P(X <= x) on the line, shape of x or (n,) of (n, 1); ValueError unless dim = 1."""
        self._only_on_the_line("cdf")
        return betainc(self.edge_shape, self.edge_shape, np.clip(0.5 + 0.5 * (line(x) / self.radius), 0, 1))

    def quantile(self, u: ArrayLike) -> FloatArray:
        """Inverse of `cdf` for u in [0, 1], shape of u; ValueError unless dim = 1."""
        self._only_on_the_line("quantile")
        return self.radius * (2 * betaincinv(self.edge_shape, self.edge_shape, probabilities(u)) - 1)

    def moment(self, order: float) -> float:
        """E |x|^order for order > -dim."""
        half, order = self.dim / 2, finite_order(order, -self.dim)
        return float(self.radius**order * np.exp(betaln(half + order / 2, self.edge_shape) - betaln(half, self.edge_shape)))

    def _sample_radii(self, n: int, rng: np.random.Generator) -> FloatArray:
        return self.radius * np.sqrt(rng.beta(self.dim / 2, self.edge_shape, n))

    def _interaction_at_centre(self) -> float:
        """int g_s dmu."""
        if self.s == 0:
            return float(-np.log(self.radius) - (digamma(self.dim / 2) - digamma(self.dim / 2 + self.edge_shape)) / 2)
        return float(np.sign(self.s)) * self.moment(-self.s)


class SphereLaw(RadialLaw):
    """Uniform on the sphere |x| = radius; on the line half of the mass on each of -radius and radius. Subclasses give `radius`."""

    radius: float

    def radial_cdf(self, r: ArrayLike) -> FloatArray:
        """P(|x| <= r): a step at the radius."""
        return (finite(r, "r") >= self.radius).astype(float)

    def radial_quantile(self, u: ArrayLike) -> FloatArray:
        """The radius, shape of u."""
        return np.full_like(probabilities(u), self.radius)

    def cdf(self, x: ArrayLike) -> FloatArray:
        """P(X <= x) on the line: steps of 1/2 at the two ends; ValueError unless dim = 1."""
        self._only_on_the_line("cdf")
        x = line(x)
        return 0.5 * (x >= -self.radius) + 0.5 * (x >= self.radius)

    def quantile(self, u: ArrayLike) -> FloatArray:
        """-radius for u <= 1/2, radius above; ValueError unless dim = 1."""
        self._only_on_the_line("quantile")
        return np.where(probabilities(u) <= 0.5, -self.radius, self.radius)

    def moment(self, order: float) -> float:
        """radius^order."""
        return float(self.radius ** finite_order(order))


@dataclass(frozen=True)
class Moved:
    """A rotation-invariant law about another `centre`, a tuple of `dim` numbers; radii, moments about the centre: see `law`."""

    law: RadialLaw
    centre: tuple[float, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.law, RadialLaw):
            raise ValueError(f"law must be a rotation-invariant law (RadialLaw), got {self.law!r}")
        if finite(self.centre, "centre").shape != (self.law.dim,):
            raise ValueError(f"centre must hold {self.law.dim} numbers, got {self.centre!r}")

    @property
    def dim(self) -> int:
        """Dimension of space."""
        return self.law.dim

    @property
    def s(self) -> float:
        """Riesz exponent of the interaction."""
        return self.law.s

    @property
    def energy(self) -> float:
        """Energy, that of `law`."""
        return self.law.energy

    @property
    def multiplier(self) -> float:
        """Value of V + strength g*mu on the support."""
        return self.law.multiplier

    @property
    def second_moment(self) -> float:
        """E |x|^2, about the origin."""
        return self.law.second_moment + float(np.sum(np.square(self.centre)))

    def density(self, x: ArrayLike) -> FloatArray:
        """Density at x (..., dim), shape (...)."""
        return self.law.density(self._about(x))

    def potential(self, x: ArrayLike) -> FloatArray:
        """V + strength g*mu at x (..., dim), shape (...)."""
        return self.law.potential(self._about(x))

    def cdf(self, x: ArrayLike) -> FloatArray:
        """P(X <= x) on the line, shape of x or (n,) of (n, 1)."""
        return self.law.cdf(self._about(x))

    def quantile(self, u: ArrayLike) -> FloatArray:
        """Inverse of `cdf` for u in [0, 1], shape of u."""
        return self.law.quantile(u) + self.centre[0]

    def sample(self, n: int, rng: int | np.random.Generator) -> Float[np.ndarray, "n dim"]:
        """Independent points (n, dim)."""
        return self.law.sample(n, rng) + np.asarray(self.centre)

    def _about(self, x: ArrayLike) -> FloatArray:
        x = finite(x, "x")
        return x - (self.centre[0] if self.dim == 1 else np.asarray(self.centre))
