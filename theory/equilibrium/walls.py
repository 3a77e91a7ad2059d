"""Riesz gases without trap behind a hard wall (an interval or a ball), in closed form, and the log gas on an interval at any temperature.

The energy is E(mu) = (strength/2) iint g_s dmu dmu over measures on the ball |x| <= radius. The minimiser is the density
(radius^2 - |x|^2)^((s - dim)/2) for dim - 2 < s < dim and the uniform measure on the wall for -2 < s <= dim - 2 (Landkof 1972;
Borodachov, Hardin & Saff 2019). For s >= dim every measure has infinite energy; for s <= -2 the kernel -|x|^|s| is not strictly
conditionally positive definite, and the package has no such interaction. An interval [low, high] is the ball about its centre.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import quad
from scipy.special import digamma, gammaln

from theory.arrays import FloatArray, count, positive, real
from theory.equilibrium.phase_law import LARGEST_CROSSOVER, PhaseLaw, TaylorTable, gamma_ratio
from theory.equilibrium.radial_law import BallLaw, Moved, RadialLaw, SphereLaw, line, probabilities, radii
from theory.equilibrium.riesz_means import mean_over_ball, mean_over_sphere

__all__ = ["Arcsine", "WallBall", "WallLogGas", "WallSphere", "hard_wall", "interval_wall"]

ULP = 2.0**-53  # between the last number below 1 and 1


@dataclass(frozen=True)
class Walled(RadialLaw):
    """An equilibrium behind the wall |x| = radius with the interaction strength g_s."""

    radius: float = 1.0
    strength: float = 1.0
    dim: int = 1
    s: float = 0.0

    def __post_init__(self) -> None:
        positive(self.radius, "radius")
        positive(self.strength, "strength")
        count(self.dim, "dim")
        low, high = self._range()
        if not low < real(self.s, "s") < high and not (self.s == high == self.dim - 2):
            name = type(self).__name__
            raise ValueError(f"s must lie in ({low:g}, {high:g}) for {name} in dim {self.dim}, got {self.s!r}: {_reason(self.s, self.dim)}")

    def _range(self) -> tuple[float, float]:
        raise NotImplementedError

    @property
    def multiplier(self) -> float:
        """Value of strength g*mu on the support."""
        raise NotImplementedError

    @property
    def energy(self) -> float:
        """E(mu), its minimum: half of the multiplier."""
        return self.multiplier / 2


def _reason(s: float, dim: int) -> str:
    if s >= dim:
        return "for s >= dim every measure has infinite energy"
    if s <= -2:
        return "for s <= -2 the energy is not strictly convex"
    return "see hard_wall for the law at this s"


@dataclass(frozen=True)
class WallBall(BallLaw, Walled):
    """dim - 2 < s < dim: density proportional to (radius^2 - |x|^2)^((s - dim)/2), infinite at the wall (dim = 2, s = 1: charged disc).

    The potential is strength sign(s) radius^-s Gamma((dim - s)/2) Gamma(1 + s/2) / Gamma(dim/2) on the whole ball (Landkof 1972).
    """

    def _range(self) -> tuple[float, float]:
        return self.dim - 2, self.dim

    @property
    def exponent(self) -> float:  # type: ignore[override]
        """Power of (radius^2 - |x|^2): (s - dim)/2."""
        return (self.s - self.dim) / 2

    @property
    def edge_shape(self) -> float:  # type: ignore[override]
        """exponent + 1: 1 - (dim - s)/2."""
        return (self.s - (self.dim - 2)) / 2

    @property
    def multiplier(self) -> float:
        """Value of strength g*mu on the ball; strength log(2/radius) for the log on the line."""
        return self.strength * self._interaction_at_centre()

    def potential(self, x: ArrayLike) -> FloatArray:
        """strength g*mu at x (..., dim), shape (...), also outside the wall."""
        r = radii(x, self.dim)
        field = self.strength * mean_over_ball(np.maximum(r, self.radius), self.radius, self.dim, self.s, self.exponent)
        return np.where(r > self.radius, field, self.multiplier)


@dataclass(frozen=True)
class Arcsine(WallBall):
    """Log gas on an interval at zero temperature: density 1/(pi sqrt(radius^2 - x^2)), energy (strength/2) log(2/radius)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dim != 1 or self.s != 0:
            raise ValueError(f"the arcsine law has dim = 1 and s = 0, got dim = {self.dim}, s = {self.s!r}: use WallBall")

    def potential(self, x: ArrayLike) -> FloatArray:
        """-strength log((r + sqrt(r^2 - radius^2))/2) at r = max(|x|, radius), shape (...)."""
        r = np.maximum(radii(x, 1), self.radius)
        return -self.strength * np.log((r + np.sqrt((r - self.radius) * (r + self.radius))) / 2)


@dataclass(frozen=True)
class WallSphere(SphereLaw, Walled):
    """-2 < s <= dim - 2: uniform on the wall; the circle for the log in dim 2, half of the mass on each end for s <= -1 in dim 1.

    Mean of |x - y|^-s over the unit sphere: 2^(dim-2-s) Gamma(dim/2) Gamma((dim-1-s)/2) / (sqrt(pi) Gamma(dim-1-s/2)) (Landkof 1972).
    """

    dim: int = 2

    def _range(self) -> tuple[float, float]:
        return -2, self.dim - 2

    @property
    def multiplier(self) -> float:
        """Value of strength g*mu on the sphere."""
        return self.strength * float(mean_over_sphere(self.radius, self.radius, self.dim, self.s))

    def potential(self, x: ArrayLike) -> FloatArray:
        """strength g*mu at x (..., dim), shape (...)."""
        return self.strength * mean_over_sphere(radii(x, self.dim), self.radius, self.dim, self.s)


def hard_wall(radius: float, strength: float, dim: int, s: float) -> WallBall | WallSphere:
    """Equilibrium of a Riesz gas without trap in the ball |x| <= radius: on the ball for dim - 2 < s < dim, on the wall for s <= dim - 2.

    ValueError for s <= -2 and for s >= dim, with the reason.
    """
    dim, s = count(dim, "dim"), real(s, "s")
    if not -2 < s < dim:
        raise ValueError(f"s must lie strictly between -2 and {dim}, got {s!r}: {_reason(s, dim)}")
    return (WallBall if s > dim - 2 else WallSphere)(radius, strength, dim, s)


def interval_wall(low: float, high: float, strength: float, s: float) -> Moved:
    """Equilibrium of a Riesz gas without trap on the interval [low, high]; ValueError for s outside (-2, 1)."""
    low, high = real(low, "low"), real(high, "high")
    if not low < high:
        raise ValueError(f"low must be below high, got {low!r} and {high!r}")
    return Moved(hard_wall((high - low) / 2, strength, 1, s), ((low + high) / 2,))


@dataclass(frozen=True)
class WallLogGas(PhaseLaw):
    """Mean-field equilibrium of the log gas on [-radius, radius] without trap at inverse temperature beta, with c = beta strength/2.

    On [-1, 1] the density is (1 + c)/2 / |w|^2 with w = (1 - x^2)(Q_c' - (i pi/2) P_c'), Legendre functions of degree c: uniform at c = 0,
    (1 + c)/2 at the walls, arcsine as c grows. Its Stieltjes transform obeys G' = c G^2 - (1 + c)/(z^2 - 1), solved
    by G = -w'/(c w). Source for the ensemble: Trinh & Trinh 2021, beta-Jacobi ensembles at high temperature. c above 1e4 raises.
    """

    radius: float
    strength: float
    beta: float

    def __post_init__(self) -> None:
        for name in ("radius", "strength", "beta"):
            positive(getattr(self, name), name, zero=name == "strength")
        if self.crossover > LARGEST_CROSSOVER:
            raise ValueError(f"beta strength/2 must be at most {LARGEST_CROSSOVER:g}, got {self.crossover!r}: use Arcsine")

    @property
    def crossover(self) -> float:  # type: ignore[override]
        """c = beta strength / 2."""
        return self.beta * self.strength / 2

    @property
    def scale(self) -> float:  # type: ignore[override]
        """Half width of the interval."""
        return self.radius

    @property
    def log_height(self) -> float:  # type: ignore[override]
        """log rho(0)."""
        return float(np.log((1 + self.crossover) / (2 * np.pi * self.radius)) - 2 * np.log(gamma_ratio((1 + self.crossover) / 2)))

    @cached_property
    def table(self) -> TaylorTable:  # type: ignore[override]
        """w/w(0) from (1 - x^2) w'' + c(c+1) w = 0, stepping towards the logarithmic point x = 1."""
        k2 = self.crossover * (1 + self.crossover)

        def extend(x: float, h: float, a: list[complex], k: int) -> complex:
            return h * (2 * x * (k + 1) * k * a[k + 1] + (k * (k - 1) - k2) * h * a[k]) / ((1 - x) * (1 + x) * (k + 1) * (k + 2))

        slope = 0.5j * k2 / gamma_ratio((1 + self.crossover) / 2) ** 2
        return TaylorTable(extend, lambda x: min(max((1 - x) / 6, ULP), float(np.sqrt((1 - x) * (1 + x) / (k2 + 1)))), slope, 1 - ULP)

    def log_density(self, x: ArrayLike) -> FloatArray:
        """log rho(x), shape of x, or (n,) of (n, 1); log((1 + c)/(2 radius)) at the walls and -inf outside."""
        at_wall = np.abs(line(x)) == self.radius
        return np.where(at_wall, np.log((1 + self.crossover) / (2 * self.radius)), super().log_density(x))

    def free_cdf(self, u: FloatArray) -> FloatArray:
        """Uniform."""
        return np.clip((1 + u) / 2, 0, 1)

    def free_radial_cdf(self, u: FloatArray) -> FloatArray:
        """Uniform."""
        return np.minimum(u, 1.0)

    def free_quantile(self, u: FloatArray) -> FloatArray:
        """Uniform."""
        return 2 * u - 1

    def quantile(self, u: ArrayLike) -> FloatArray:
        """Inverse of `cdf` for u in [0, 1], shape of u; the walls at 0 and 1."""
        u = probabilities(u)
        return np.where((u == 0) | (u == 1), (2 * u - 1) * self.radius, super().quantile(u))

    def _even_moment(self, half: int) -> float:
        """From the expansion of the equation for G at infinity."""
        c, m = self.crossover, [1.0]
        for k in range(1, half + 1):
            m.append((1 + c - c * sum(m[i] * m[k - i] for i in range(1, k))) / (2 * k + 1 + 2 * c))
        return m[-1]

    def _cuts(self, order: float) -> list[float]:
        return [0.0, 0.5, 1.0]

    @cached_property
    def free_energy(self) -> float:
        """min over rho of E(rho) + (1/beta) int rho log rho: the limit of -log Z_N / (N beta) of Selberg's integral."""
        c = self.crossover
        integral = quad(lambda t: gammaln(2 + c + c * t) - 3 * gammaln(1 + c * t), 0, 1, epsabs=1e-14, epsrel=1e-13)[0]
        return float((integral - (1 + c) * np.log(2 * self.radius)) / self.beta)

    @cached_property
    def energy(self) -> float:
        """E(rho) = (strength/2) iint -log|x - y| rho rho: the derivative of beta times the free energy in beta."""
        c = self.crossover
        integral = quad(lambda t: (1 + t) * digamma(2 + c + c * t) - 3 * t * digamma(1 + c * t), 0, 1, epsabs=1e-14, epsrel=1e-13)[0]
        return float(self.strength / 2 * (integral - np.log(2 * self.radius)))

    @property
    def entropy(self) -> float:
        """int rho log rho."""
        return self.beta * (self.free_energy - self.energy)

    @property
    def multiplier(self) -> float:
        """strength g*rho + log(rho)/beta, the same on the whole interval: the chemical potential."""
        return self.free_energy + self.energy

    def potential(self, x: ArrayLike) -> FloatArray:
        """strength g*rho = multiplier - log(rho)/beta at |x| <= radius, shape of x; infinite outside, where the particles may not be."""
        return self.multiplier - self.log_density(x) / self.beta
