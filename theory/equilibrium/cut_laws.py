"""Equilibria of the log gas on an interval of the line that no symmetry centres: Laguerre and Jacobi weights, in closed form.

On the cut [low, high] the density is a sum of weight sqrt((x - low)(high - x)) / |x - pole|; with x = mid + half sin(angle) the
distribution function is elementary. They are the zero-temperature limits of the beta-Laguerre (Wishart, Marchenko-Pastur) and
beta-Jacobi ensembles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.integrate import quad

from theory.arrays import FloatArray, count, generator, positive
from theory.equilibrium.radial_law import invert, line, probabilities
from theory.tanh_sinh import NODE, OTHER, WEIGHT

__all__ = ["JacobiWeight", "LaguerreWeight"]


class Pole(NamedTuple):
    """A term weight sqrt((x - low)(high - x)) / |x - place| of a density; distances of the pole to the nearer and the farther end."""

    place: float
    weight: float
    near: float
    far: float


def _own_energy(t: float) -> float:
    """(t/2) log t - 3t/4: the integral of z log z - z up to t, over t."""
    return t / 2 * float(np.log(t)) - 3 * t / 4


class CutLaw:
    """A law on [low, high] of density sum over poles p of weight_p sqrt((x - low)(high - x)) / |x - p|, poles off the open cut.

    Subclasses give `support` (low, high), `half_width`, `poles`, `energy`, `mean_external` and `external`.
    """

    dim = 1
    s = 0.0

    strength: float
    support: tuple[float, float]
    half_width: float
    poles: tuple[Pole, ...]

    def external(self, x: FloatArray) -> FloatArray:
        """V(x) between the poles."""
        raise NotImplementedError

    @property
    def mean_external(self) -> float:
        """int V dmu."""
        raise NotImplementedError

    @property
    def energy(self) -> float:
        """int V dmu + (strength/2) iint -log|x - y| dmu dmu."""
        raise NotImplementedError

    @property
    def multiplier(self) -> float:
        """Value of V + strength g*mu on the support."""
        return 2 * self.energy - self.mean_external

    def density(self, x: ArrayLike) -> FloatArray:
        """Density, shape of x or (n,) of (n, 1); infinite at an end of the cut that is a pole."""
        x, (low, high) = line(x), self.support
        inside = (x > low) & (x < high)
        y = np.where(inside, x, (low + high) / 2)
        root = np.sqrt(y - low) * np.sqrt(high - y)
        return np.where(inside, sum(pole.weight * root / np.abs(y - pole.place) for pole in self.poles), self._at_ends(x))

    def cdf(self, x: ArrayLike) -> FloatArray:
        """P(X <= x), shape of x or (n,) of (n, 1)."""
        x, (low, high) = line(x), self.support
        return self._cdf(np.arcsin(np.clip(((x - low) - (high - x)) / (2 * self.half_width), -1, 1)))

    def quantile(self, u: ArrayLike) -> FloatArray:
        """Inverse of `cdf` for u in [0, 1], shape of u."""
        low, high = self.support
        return (low + high) / 2 + self.half_width * np.sin(invert(self._cdf, probabilities(u), -np.pi / 2, np.pi / 2))

    def sample(self, n: int, rng: int | np.random.Generator) -> Float[np.ndarray, "n 1"]:
        """Independent points (n, 1)."""
        return self.quantile(generator(rng).random((count(n, "n"), 1)))

    def moment(self, order: int) -> float:
        """E X^order for whole orders of at least 0, by quadrature in the angle."""
        (low, high), order = self.support, count(order, "order", least=0)
        mid, tolerance = (low + high) / 2, 1e-13 * max(-low, high) ** order

        def integrand(angle: float) -> float:
            return (mid + self.half_width * np.sin(angle)) ** order * self._slope(angle)

        return float(quad(integrand, -np.pi / 2, np.pi / 2, epsabs=tolerance, epsrel=1e-12)[0])

    @property
    def second_moment(self) -> float:
        """E X^2, about 0."""
        return self.moment(2)

    def potential(self, x: ArrayLike) -> FloatArray:
        """V + strength g*mu, shape of x or (n,) of (n, 1): the multiplier on the support, more outside, infinite at and beyond a pole.

        Outside its slope is strength pi times the continuation of the density; one quadrature a point.
        """
        x, (low, high) = line(x), self.support
        return np.array([self.multiplier + self._rise(float(p), low, high) for p in x.ravel()]).reshape(x.shape)

    def _rise(self, x: float, low: float, high: float) -> float:
        if low <= x <= high:
            return 0.0
        edge = low if x < low else high
        if any(min(x, edge) <= pole.place <= max(x, edge) for pole in self.poles):
            return np.inf

        def slope(t: float) -> float:  # from the edge, t^2 away: no root singularity
            y = edge + np.sign(x - edge) * t**2
            return 2 * t * np.sqrt((y - low) * (y - high)) * sum(pole.weight / abs(y - pole.place) for pole in self.poles)

        return float(self.strength * np.pi * quad(slope, 0, np.sqrt(abs(x - edge)), epsabs=1e-13, epsrel=1e-12, limit=200)[0])

    def _at_ends(self, x: FloatArray) -> FloatArray:
        return np.where(np.isin(x, [pole.place for pole in self.poles if pole.near == 0]), np.inf, 0.0)

    def _slope(self, angle: float) -> float:
        """Derivative of the distribution function in the angle."""
        total = 0.0
        for pole in self.poles:
            side = self._side(pole)
            step = self.half_width * (1 + side * np.sin(angle))  # from the end next to the pole
            total += pole.weight * self.half_width * (1 - side * np.sin(angle)) * (step / (pole.near + step) if pole.near else 1.0)
        return float(total)

    def _cdf(self, angle: FloatArray) -> FloatArray:
        """The integral of cos^2/(D + side sin), D > 1 the distance of the pole from the middle over the half width, q = D - sqrt(D^2 - 1).

        It is q angle + side cos - side (1/q - q) arctan(q cos/(1 + side q sin)).
        """
        total = np.full_like(angle, 0.0)
        for pole in self.poles:
            side, roots = self._side(pole), np.sqrt(pole.near) + np.sqrt(pole.far)
            q, gap = 2 * self.half_width / roots**2, 2 * np.sqrt(pole.near) * np.sqrt(pole.far) / self.half_width
            turn = np.arctan2(q * np.cos(angle), 1 + side * q * np.sin(angle))
            total = total + pole.weight * self.half_width * (q * (angle + np.pi / 2) + side * (np.cos(angle) - gap * turn))
        return np.clip(total, 0.0, 1.0)

    def _side(self, pole: Pole) -> float:
        """1 for a pole on the left, -1 on the right."""
        return 1.0 if pole.place <= self.support[0] else -1.0


@dataclass(frozen=True)
class LaguerreWeight(CutLaw):
    """Log gas on x > 0 in V = kappa x - power log x, power >= 0: the Marchenko-Pastur law scaled by (strength + 2 power)/(2 kappa).

    Its ratio is strength/(strength + 2 power); at power = 0 the wall at 0 holds an inverse square root. The energy is the limit of the
    Laguerre-Selberg integral (Mehta, chapter 17). Source: Marchenko & Pastur 1967; Saff & Totik 1997, section IV.5.
    """

    kappa: float
    strength: float
    power: float = 0.0

    def __post_init__(self) -> None:
        positive(self.kappa, "kappa")
        positive(self.strength, "strength")
        positive(self.power, "power", zero=True)

    @property
    def support(self) -> tuple[float, float]:  # type: ignore[override]
        """Ends of the cut: x kappa = strength + power -+ sqrt(strength (strength + 2 power))."""
        high = self.strength + self.power + self.half_width * self.kappa
        return self.power * (self.power / high) / self.kappa, high / self.kappa

    @property
    def half_width(self) -> float:  # type: ignore[override]
        """Half of the length of the cut."""
        return float(np.sqrt(self.strength) * np.sqrt(self.strength + 2 * self.power) / self.kappa)

    @property
    def poles(self) -> tuple[Pole, ...]:  # type: ignore[override]
        """A pole at 0."""
        return (Pole(0.0, self.kappa / (np.pi * self.strength), *self.support),)

    def external(self, x: FloatArray) -> FloatArray:
        """V(x) for x > 0."""
        return self.kappa * x - (self.power * np.log(x) if self.power else 0.0)

    @property
    def mean_external(self) -> float:
        """int V dmu: the mean of x is (power + strength/2)/kappa, that of log x a derivative of the energy."""
        return float(self.power + self.strength / 2 - self.power * (WEIGHT @ self._log_places))

    @property
    def energy(self) -> float:
        """Limit of -log Z_N/(N beta) as N, then beta, grow."""
        t, places = self.strength / 2, self.power + self.strength / 2 * NODE
        return float(WEIGHT @ (places * (1 - self._log_places)) - _own_energy(t) + t / 2 * np.log(self.kappa))

    @property
    def _log_places(self) -> FloatArray:
        """log of (power + strength u/2)/kappa at the nodes u: its mean is that of log x."""
        return np.log(self.power / self.kappa + self.strength / (2 * self.kappa) * NODE)


@dataclass(frozen=True)
class JacobiWeight(CutLaw):
    """Log gas on [-1, 1] in V = -right log(1 - x) - left log(1 + x), right, left >= 0: the Wachter law; arcsine at 0, 0.

    The energy is the limit of Selberg's integral. Sources: Saff & Totik 1997, section IV.5 (Jacobi weights); Wachter 1980.
    """

    strength: float
    right: float = 0.0
    left: float = 0.0

    def __post_init__(self) -> None:
        positive(self.strength, "strength")
        positive(self.right, "right", zero=True)
        positive(self.left, "left", zero=True)

    @property
    def support(self) -> tuple[float, float]:  # type: ignore[override]
        """Ends of the cut."""
        right, left = self.poles
        return left.near - 1, 1 - right.near

    @property
    def half_width(self) -> float:  # type: ignore[override]
        """Half of the length of the cut."""
        t, a, b = self._shares
        return float(np.sqrt(t * (t + 2 * a + 2 * b) * (t + 2 * a) * (t + 2 * b)))

    @property
    def poles(self) -> tuple[Pole, ...]:  # type: ignore[override]
        """Poles at the two ends of [-1, 1]; the root of the distances to the ends of the cut is twice right (left) over the total."""
        t, a, b = self._shares
        right = a**2 + (t + a) * (1 + b) + self.half_width  # 1 - low
        left = b**2 + (t + b) * (1 + a) + self.half_width  # 1 + high
        weight = 1 / (2 * np.pi * t)
        return Pole(1.0, weight, (2 * a) ** 2 / right, right), Pole(-1.0, weight, (2 * b) ** 2 / left, left)

    @property
    def _shares(self) -> tuple[float, float, float]:
        """strength, right and left over their sum."""
        total = self.strength + self.right + self.left
        return self.strength / total, self.right / total, self.left / total

    def external(self, x: FloatArray) -> FloatArray:
        """V(x) for -1 < x < 1."""
        right = self.right * np.log1p(-x) if self.right else np.zeros_like(x)
        return -right - (self.left * np.log1p(x) if self.left else 0.0)

    @property
    def mean_external(self) -> float:
        """int V dmu: the means of log(1 -+ x) are derivatives of the energy."""
        return float(-WEIGHT @ (self.right * self._logs(self.right, self.left) + self.left * self._logs(self.left, self.right)))

    @property
    def energy(self) -> float:
        """Limit of -log Z_N/(N beta) as N, then beta, grow."""
        t, a, b = self.strength / 2, self.right, self.left
        places = (a + t * NODE) * self._logs(a, b) + (b + t * NODE) * self._logs(b, a)
        return float(WEIGHT @ (t * OTHER * (np.log(a + b + t + t * NODE) - 1) - places) - _own_energy(t))

    def _logs(self, own: float, other: float) -> FloatArray:
        """log of 2 (own + t u)/(own + other + t + t u), t = strength/2, at the nodes u: its mean is that of log(1 -+ x)."""
        t = self.strength / 2
        place, total = own + t * NODE, own + other + t + t * NODE
        excess = np.clip((own - other - t * OTHER) / total, -0.5, 0.5)  # of the ratio over 1
        return np.where(np.abs(excess) < 0.5, np.log1p(excess), np.log(2 * place / total))
