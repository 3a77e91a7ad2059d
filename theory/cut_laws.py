"""Equilibria of the log gas on an interval of the line that no symmetry centres: Laguerre and Jacobi weights, in closed form.

On the cut [low, high] the density is front sqrt((x - low)(high - x)) / |pole terms|; with x = mid + half sin(angle) the distribution
function is elementary. They are the zero-temperature limits of the beta-Laguerre (Wishart, Marchenko-Pastur) and beta-Jacobi ensembles.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.integrate import quad

from theory.arrays import FloatArray, count, generator, positive
from theory.radial_law import invert, line, probabilities

__all__ = ["JacobiWeight", "LaguerreWeight"]


def _log_integral(z: float, *, order: int = 1) -> float:
    """z log z - z, the integral of log, and z^2/2 log z - 3 z^2/4, the integral of that (order 2); 0 at 0."""
    return float((z * np.log(z) - z if order == 1 else z**2 / 2 * np.log(z) - 3 * z**2 / 4) if z > 0 else 0.0)


class CutLaw:
    """A law on [low, high] of density sum over poles p of weight_p sqrt((x - low)(high - x)) / |x - p|, poles off the open cut.

    Subclasses give `support` (low, high), `poles` (place, weight), `energy`, `mean_external` and `external`.
    """

    dim = 1
    s = 0.0

    strength: float
    support: tuple[float, float]
    poles: tuple[tuple[float, float], ...]

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
        root = np.sqrt((y - low) * (high - y))
        return np.where(inside, sum(weight * root / np.abs(y - place) for place, weight in self.poles), self._at_ends(x))

    def cdf(self, x: ArrayLike) -> FloatArray:
        """P(X <= x), shape of x or (n,) of (n, 1)."""
        low, high = self.support
        return self._cdf(np.arcsin(np.clip((2 * line(x) - low - high) / (high - low), -1, 1)))

    def quantile(self, u: ArrayLike) -> FloatArray:
        """Inverse of `cdf` for u in [0, 1], shape of u."""
        low, high = self.support
        return (low + high) / 2 + (high - low) / 2 * np.sin(invert(self._cdf, probabilities(u), -np.pi / 2, np.pi / 2))

    def sample(self, n: int, rng: int | np.random.Generator) -> Float[np.ndarray, "n 1"]:
        """Independent points (n, 1)."""
        return self.quantile(generator(rng).random((count(n, "n"), 1)))

    def moment(self, order: int) -> float:
        """E X^order for whole orders of at least 0, by quadrature in the angle."""
        (low, high), order = self.support, count(order, "order", least=0)
        mid, half = (low + high) / 2, (high - low) / 2
        tolerance = 1e-13 * max(-low, high) ** order
        return float(quad(lambda a: (mid + half * np.sin(a)) ** order * self._slope(a), -np.pi / 2, np.pi / 2, epsabs=tolerance)[0])

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
        if any(min(x, edge) <= place <= max(x, edge) for place, _ in self.poles):
            return np.inf

        def slope(t: float) -> float:  # from the edge, t^2 away: no root singularity
            y = edge + np.sign(x - edge) * t**2
            return 2 * t * np.sqrt((y - low) * (y - high)) * sum(weight / abs(y - place) for place, weight in self.poles)

        return float(self.strength * np.pi * quad(slope, 0, np.sqrt(abs(x - edge)), epsabs=1e-13, epsrel=1e-12, limit=200)[0])

    def _at_ends(self, x: FloatArray) -> FloatArray:
        hot = [place for place, _ in self.poles if place in self.support]
        return np.where(np.isin(x, hot), np.inf, 0.0)

    def _slope(self, angle: float) -> float:
        """Derivative of the distribution function in the angle."""
        (low, high) = self.support
        mid, half = (low + high) / 2, (high - low) / 2
        c2 = np.cos(angle) ** 2
        total = 0.0
        for place, weight in self.poles:
            side = np.sign(mid - place)
            gap = abs(place - mid) / half + side * np.sin(angle)
            total += weight * half * (c2 / gap if abs(place - mid) > half else 1 - side * np.sin(angle))
        return float(total)

    def _cdf(self, angle: FloatArray) -> FloatArray:
        """The integral of cos^2/(D - sin) is D angle - cos - 2 sqrt(D^2 - 1) arctan((D tan(angle/2) - 1)/sqrt(D^2 - 1))."""
        low, high = self.support
        mid, half, total = (low + high) / 2, (high - low) / 2, np.zeros_like(angle)
        for place, weight in self.poles:
            side = -1.0 if place > mid else 1.0  # mirrored, a pole on the left is one on the right
            d, a = abs(place - mid) / half, -side * angle
            root = np.sqrt(max((d - 1) * (d + 1), 0.0))

            def whole(b: FloatArray, d: float = d, root: float = root) -> FloatArray:
                turn = np.arctan2(d * np.sin(b / 2) - np.cos(b / 2), root * np.cos(b / 2)) if root else 0.0
                return d * b - np.cos(b) - 2 * root * turn

            start = whole(np.array(side * np.pi / 2))
            total = total - side * weight * half * (whole(a) - start)
        return np.clip(total, 0.0, 1.0)


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
        high = self.strength + self.power + float(np.sqrt(self.strength * (self.strength + 2 * self.power)))
        return self.power**2 / (high * self.kappa), high / self.kappa

    @property
    def poles(self) -> tuple[tuple[float, float], ...]:  # type: ignore[override]
        """A pole at 0."""
        return ((0.0, self.kappa / (np.pi * self.strength)),)

    def external(self, x: FloatArray) -> FloatArray:
        """V(x) for x > 0."""
        return self.kappa * x - (self.power * np.log(x) if self.power else 0.0)

    @property
    def mean_external(self) -> float:
        """int V dmu: the mean of x is (power + strength/2)/kappa, that of log x a derivative of the energy."""
        t, a = self.strength / 2, self.power
        mean_log = (_log_integral(a + t) - _log_integral(a)) / t - np.log(self.kappa)
        return float(a + t - a * mean_log)

    @property
    def energy(self) -> float:
        """Limit of -log Z_N/(N beta) as N, then beta, grow."""
        t, a = self.strength / 2, self.power
        gammas = _log_integral(a + t, order=2) - _log_integral(a, order=2) + _log_integral(t, order=2)
        return float((a + t) * np.log(self.kappa) - gammas / t)


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
        """Ends of the cut, at which sqrt((1 -+ low)(1 -+ high)) is twice right (left) over strength + right + left."""
        total = self.strength + self.right + self.left
        a, b = 2 * self.right / total, 2 * self.left / total
        mid, half = (b**2 - a**2) / 4, float(np.sqrt((1 - (a + b) ** 2 / 4) * (1 - (a - b) ** 2 / 4)))
        return -1.0 if self.left == 0 else mid - half, 1.0 if self.right == 0 else mid + half

    @property
    def poles(self) -> tuple[tuple[float, float], ...]:  # type: ignore[override]
        """Poles at the two ends of [-1, 1]."""
        weight = (self.strength + self.right + self.left) / (2 * np.pi * self.strength)
        return (1.0, weight), (-1.0, weight)

    def external(self, x: FloatArray) -> FloatArray:
        """V(x) for -1 < x < 1."""
        right = self.right * np.log1p(-x) if self.right else np.zeros_like(x)
        return -right - (self.left * np.log1p(x) if self.left else 0.0)

    @property
    def mean_external(self) -> float:
        """int V dmu: the means of log(1 -+ x) are derivatives of the energy."""
        t, a, b = self.strength / 2, self.right, self.left
        both = _log_integral(a + b + 2 * t) - _log_integral(a + b + t)
        means = [(_log_integral(c + t) - _log_integral(c) - both) / t + np.log(2) for c in (a, b)]
        return float(-a * means[0] - b * means[1])

    @property
    def energy(self) -> float:
        """Limit of -log Z_N/(N beta) as N, then beta, grow."""
        t, a, b = self.strength / 2, self.right, self.left
        gammas = sum(_log_integral(c + t, order=2) - _log_integral(c, order=2) for c in (a, b)) + _log_integral(t, order=2)
        gammas -= _log_integral(a + b + 2 * t, order=2) - _log_integral(a + b + t, order=2)
        return float(-gammas / t - (a + b + t) * np.log(2))
