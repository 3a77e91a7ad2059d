"""Equilibria of the log gas on the line in two even potentials, in closed form: a power |x|^p and the quartic (double) well."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import beta as beta_function
from scipy.special import betainc, digamma, hyp2f1

from theory.arrays import FloatArray, finite, positive, real
from theory.equilibrium.radial_law import RadialLaw, finite_order, invert, probabilities, radii, representable
from theory.equilibrium.riesz_means import mean_over_ball
from theory.equilibrium.trap import Semicircle
from theory.tanh_sinh import NODE, OTHER, WEIGHT

__all__ = ["FreudWeight", "QuarticWell"]

LARGEST_POWER = 1000


@dataclass(frozen=True)
class FreudWeight(RadialLaw):
    """Log gas on the line in V = kappa |x|^power, 0 < power <= 1000: the Ullman law.

    It is the law of radius T A with T of cdf t^power and A of the arcsine law; radius is the Mhaskar-Rakhmanov-Saff number,
    radius^p = strength sqrt(pi) Gamma(p/2) / (2 kappa Gamma((p+1)/2)). Source: Saff & Totik 1997, theorem IV.5.1.
    """

    kappa: float
    strength: float
    power: float = 4.0

    def __post_init__(self) -> None:
        for name in ("kappa", "strength", "power"):
            positive(getattr(self, name), name)
        if self.power > LARGEST_POWER:
            raise ValueError(f"power must be at most {LARGEST_POWER}, got {self.power!r}: use a hard wall")
        _ = self.radius

    @property
    def radius(self) -> float:
        """Half width of the support."""
        return representable(float(self.strength / self.kappa * beta_function(self.power / 2, 0.5) / 2), 1 / self.power)

    def density(self, x: ArrayLike) -> FloatArray:
        """Density, shape of x or (n,) of (n, 1); infinite at 0 for power <= 1."""
        return self._density(radii(x, 1))

    def radial_cdf(self, r: ArrayLike) -> FloatArray:
        """P(|X| <= r) = (2/pi) arcsin(r/radius) + (2/power) r density(r), shape of r."""
        r = np.clip(finite(r, "r"), 0, self.radius)
        inner = np.where(r > 0, r, self.radius)
        return 2 / np.pi * np.arcsin(r / self.radius) + 2 / self.power * np.where(r > 0, r * self._density(inner), 0.0)

    def radial_quantile(self, u: ArrayLike) -> FloatArray:
        """Inverse of `radial_cdf` for u in [0, 1], shape of u: in r^min(1, power), in which the distribution function starts linearly."""
        flat = min(1.0, self.power)
        return self.radius * invert(lambda t: self.radial_cdf(self.radius * t ** (1 / flat)), probabilities(u), 0.0, 1.0) ** (1 / flat)

    def moment(self, order: float) -> float:
        """E |X|^order for order > -min(1, power)."""
        p, q = self.power, finite_order(order, -min(1.0, self.power))
        return float(self.radius**q * p / (p + q) * beta_function((q + 1) / 2, 0.5) / np.pi)

    @property
    def multiplier(self) -> float:
        """Value of V + strength g*mu on the support: that at 0, where V is 0."""
        return float(self.strength * (np.log(2 / self.radius) + 1 / self.power))

    @property
    def energy(self) -> float:
        """int V dmu + (strength/2) iint g dmu dmu: half of the multiplier and of int V dmu = strength/(2 power)."""
        return (self.multiplier + self.strength / (2 * self.power)) / 2

    def potential(self, x: ArrayLike) -> FloatArray:
        """V + strength g*mu, shape of x or (n,) of (n, 1): the multiplier on the support, more outside."""
        r, p = radii(x, 1), self.power
        y = np.maximum(r / self.radius, 1.0)[..., None]
        short = -np.expm1(np.where(NODE < 0.5, np.log(NODE), np.log1p(-np.minimum(OTHER, 0.5))) / p)  # 1 - T
        root = np.sqrt((y - 1 + short) * (y + 1 - short))
        field = -np.log(self.radius) - np.log((y + root) / 2) @ WEIGHT
        return np.where(r > self.radius, self.kappa * r**p + self.strength * field, self.multiplier)

    def _density(self, r: FloatArray) -> FloatArray:
        y, p = np.asarray(r / self.radius), self.power
        gap = np.where(y < 1, (1 - y) * (1 + y), 0.0)
        with np.errstate(divide="ignore"):
            value = np.asarray(np.sqrt(gap) * hyp2f1(1, 1 - p / 2, 1.5, gap))
        near = (y > 0) & (y < 0.03) & (p < 3)  # where 1 - gap has lost its digits
        value[near] = self._near_centre(y[near])
        return np.asarray(p / (np.pi * self.radius) * value, dtype=np.float64)

    def _near_centre(self, y: FloatArray) -> FloatArray:
        """Integral of t^(p-1)/sqrt(t^2 - y^2) from y to 1 (n,), over the angle of t = y cosh(angle)."""
        end = np.arccosh(1 / y)[:, None]
        angle = end * NODE
        log_t = np.logaddexp(angle, -angle) - np.logaddexp(end, -end)
        return (np.exp((self.power - 1) * log_t) @ WEIGHT * end[:, 0]).astype(np.float64)

    def _sample_radii(self, n: int, rng: np.random.Generator) -> FloatArray:
        return self.radius * rng.random(n) ** (1 / self.power) * np.abs(np.cos(np.pi * rng.random(n)))


@dataclass(frozen=True)
class QuarticWell(RadialLaw):
    """Log gas on the line in V = kappa x^2/2 + quartic x^4/4, quartic > 0, kappa of either sign.

    One interval for kappa >= -sqrt(2 quartic strength), density sqrt(R^2 - x^2)(kappa + quartic (x^2 + R^2/2))/(pi strength); below, two
    intervals: x^2 follows the semicircle about -kappa/quartic of half width sqrt(2 strength/quartic). Sources: Brezin, Itzykson,
    Parisi & Zuber 1978; Bleher & Its 1999.
    """

    kappa: float
    strength: float
    quartic: float = 1.0

    def __post_init__(self) -> None:
        positive(self.strength, "strength")
        positive(self.quartic, "quartic")
        if not np.isfinite(real(self.kappa, "kappa")):
            raise ValueError(f"kappa must be finite, got {self.kappa!r}")
        representable(self.radius)

    @property
    def split(self) -> bool:
        """Whether the support is two intervals."""
        return bool(self.kappa < -np.sqrt(2 * self.quartic * self.strength))

    @property
    def radius(self) -> float:
        """Outer end of the support."""
        if self.split:
            return float(np.sqrt(self._centre + self._half_width))
        root = np.hypot(self.kappa, np.sqrt(6 * self.quartic * self.strength))
        square = 4 * self.strength / (self.kappa + root) if self.kappa > 0 else 2 * (root - self.kappa) / (3 * self.quartic)
        return float(np.sqrt(square))

    @property
    def inner_radius(self) -> float:
        """Inner end of the support, 0 for one interval."""
        return float(np.sqrt(self._centre - self._half_width)) if self.split else 0.0

    def density(self, x: ArrayLike) -> FloatArray:
        """Density, shape of x or (n,) of (n, 1)."""
        r = radii(x, 1)
        gap = np.maximum(self.radius**2 - r**2, 0.0)
        if self.split:
            return self.quartic / (np.pi * self.strength) * r * np.sqrt(gap * np.maximum(r**2 - self.inner_radius**2, 0.0))
        return np.sqrt(gap) * (self.kappa + self.quartic * (r**2 + self.radius**2 / 2)) / (np.pi * self.strength)

    def radial_cdf(self, r: ArrayLike) -> FloatArray:
        """P(|X| <= r), shape of r."""
        r = np.maximum(finite(r, "r"), 0.0)
        if self.split:
            return self._square.cdf(np.ravel(r**2 - self._centre)).reshape(r.shape)
        t, weight = np.minimum(r / self.radius, 1) ** 2, self._outer_weight
        return (1 - weight) * betainc(0.5, 1.5, t) + weight * betainc(1.5, 1.5, t)

    def radial_quantile(self, u: ArrayLike) -> FloatArray:
        """Inverse of `radial_cdf` for u in [0, 1], shape of u."""
        u = probabilities(u)
        return np.sqrt(self._centre + self._square.quantile(u)) if self.split else invert(self.radial_cdf, u, 0.0, self.radius)

    def moment(self, order: float) -> float:
        """E |X|^order for any order, above -1 where the support is one interval."""
        if self.split:
            q, angle = finite_order(order), np.pi * NODE
            rise = 2 * np.sin(np.pi * OTHER / 2) ** 2  # 1 + cos(angle), from the inner end
            square = self.inner_radius**2 + self._half_width * rise
            return float(2 * WEIGHT @ (np.sin(angle) ** 2 * square ** (q / 2)))
        q = finite_order(order, -1)
        inner = beta_function((1 + q) / 2, 1.5) / beta_function(0.5, 1.5)
        outer = beta_function((3 + q) / 2, 1.5) / beta_function(1.5, 1.5)
        return float(self.radius**q * ((1 - self._outer_weight) * inner + self._outer_weight * outer))

    @property
    def multiplier(self) -> float:
        """Value of V + strength g*mu on the support."""
        if self.split:
            return float(self.strength / 2 * (0.5 - np.log(self._half_width / 2)) - self.kappa * (self.kappa / (4 * self.quartic)))
        inner, outer = (digamma(0.5) - digamma(2)) / 2, (digamma(1.5) - digamma(3)) / 2
        return float(-self.strength * (np.log(self.radius) + (1 - self._outer_weight) * inner + self._outer_weight * outer))

    @property
    def energy(self) -> float:
        """int V dmu + (strength/2) iint g dmu dmu: half of the multiplier and of int V dmu."""
        return (self.multiplier + self.kappa * self.second_moment / 2 + self.quartic * self.moment(4) / 4) / 2

    def potential(self, x: ArrayLike) -> FloatArray:
        """V + strength g*mu, shape of x or (n,) of (n, 1): the multiplier on the support, more outside."""
        r = radii(x, 1)
        external = self.kappa * r**2 / 2 + self.quartic * r**4 / 4
        if self.split:
            y = r**2 - self._centre
            off = external + self.strength / 2 * (self._square.potential(y) - self._square.kappa * y**2 / 2)
            return np.where((r >= self.inner_radius) & (r <= self.radius), self.multiplier, off)
        far, weight = np.maximum(r, self.radius), self._outer_weight
        field = (1 + 3 * weight) * mean_over_ball(far, self.radius, 1, 0.0, 0.5) - 3 * weight * mean_over_ball(
            far, self.radius, 1, 0.0, 1.5
        )
        return np.where(r > self.radius, external + self.strength * field, self.multiplier)

    @property
    def _outer_weight(self) -> float:
        """Weight of the part x^2 sqrt(R^2 - x^2) of the density."""
        return self.quartic * self.radius**4 / (8 * self.strength)

    @property
    def _centre(self) -> float:
        return -self.kappa / self.quartic

    @property
    def _half_width(self) -> float:
        return float(np.sqrt(2 * self.strength / self.quartic))

    @property
    def _square(self) -> Semicircle:
        """Law of x^2 about its centre, an equilibrium of strength 1."""
        return Semicircle(2 / self._half_width**2, 1.0)
