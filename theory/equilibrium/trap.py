"""Equilibrium measures of Riesz gases in a quadratic trap, in closed form.

Everywhere V = kappa |x|^2 / 2, the interaction is strength * W_N with g_s of the package (|x|^-s, -log|x| for s = 0, -|x|^|s|
for s < 0), and the energy of a measure is E(mu) = int V dmu + (strength/2) iint g_s dmu dmu. The minimiser is (radius^2 - |x|^2)^a
on a ball with a = 1 - (dim - s)/2 where a > -1, and uniform on a sphere for s <= dim - 4. It has the members of `RadialLaw`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from theory.arrays import FloatArray, count, positive, real
from theory.equilibrium.radial_law import BallLaw, RadialLaw, SphereLaw, radii, representable
from theory.equilibrium.riesz_means import mean_over_ball, mean_over_sphere

__all__ = ["CoulombBall", "RieszBall", "Semicircle", "TrappedSphere", "quadratic_trap"]


@dataclass(frozen=True)
class Trapped(RadialLaw):
    """An equilibrium in the trap kappa |x|^2/2 with the interaction strength g_s; `kappa` and `strength` must be positive."""

    kappa: float
    strength: float

    def __post_init__(self) -> None:
        positive(self.kappa, "kappa")
        positive(self.strength, "strength")
        _ = self.radius

    @property
    def radius(self) -> float:
        """Radius of the support; ValueError where floating point holds no such number."""
        raise NotImplementedError

    @property
    def multiplier(self) -> float:
        """Value of V + strength g*mu on the support."""
        raise NotImplementedError

    @property
    def energy(self) -> float:
        """E(mu), its minimum: half of the multiplier and of int V dmu."""
        return (self.multiplier + self.kappa * self.second_moment / 2) / 2


@dataclass(frozen=True)
class BallProfile(BallLaw, Trapped):
    """Density proportional to (radius^2 - |x|^2)^(1 - (dim - s)/2) on a ball, for max(dim - 4, -2) < s < dim.

    radius^(s+2) = (2 strength |s| / (kappa dim)) Gamma((dim-s)/2) Gamma((s+4)/2) / Gamma(dim/2), with 1 for |s| at s = 0.
    """

    @property
    def radius(self) -> float:  # type: ignore[override]
        """Radius of the support; ValueError where floating point holds no such number."""
        logs = gammaln((self.dim - self.s) / 2) + gammaln((self.s + 4) / 2) - gammaln(self.dim / 2)
        return representable(2 * (self.strength / self.kappa) * (abs(self.s) or 1) / self.dim * np.exp(logs), 1 / (self.s + 2))

    @property
    def exponent(self) -> float:  # type: ignore[override]
        """Power of (radius^2 - |x|^2): 1 - (dim - s)/2."""
        return (self.s - (self.dim - 2)) / 2

    @property
    def edge_shape(self) -> float:  # type: ignore[override]
        """exponent + 1: 2 - (dim - s)/2."""
        return (self.s - (self.dim - 4)) / 2

    @property
    def multiplier(self) -> float:
        """Value of V + strength g*mu on the support: kappa dim radius^2/(2 s), and strength int g dmu at the centre also for s = 0."""
        return self.strength * self._interaction_at_centre()

    def potential(self, x: ArrayLike) -> FloatArray:
        """V + strength g*mu at x (..., dim), shape (...): the multiplier on the support, more outside."""
        r, radius = radii(x, self.dim), self.radius
        outside = np.maximum(r, radius)
        field = self.strength * mean_over_ball(outside, radius, self.dim, self.s, self.exponent)
        return np.where(r > radius, self.kappa * r**2 / 2 + field, self.multiplier)


@dataclass(frozen=True)
class Semicircle(BallProfile):
    """Log gas on the line in a quadratic trap at zero temperature: radius sqrt(2 strength / kappa) (Wigner; Saff & Totik 1997).

    Its energy is 3 strength/8 - (strength/2) log(radius/2).
    """


@dataclass(frozen=True)
class CoulombBall(BallProfile):
    """Coulomb gas (s = dim - 2; log in dim 2, -|x| in dim 1) in a quadratic trap: the uniform law on a ball.

    radius^dim = strength |dim - 2| / kappa, and radius^2 = strength / kappa in dim 2 (Newton; Serfaty 2015).
    """

    dim: int = 2

    def __post_init__(self) -> None:
        count(self.dim, "dim")
        super().__post_init__()

    @property
    def s(self) -> float:  # type: ignore[override]
        """Riesz exponent dim - 2."""
        return float(self.dim - 2)


@dataclass(frozen=True)
class RieszBall(BallProfile):
    """Riesz gas with max(dim - 4, -2) < s < dim in a quadratic trap; s = 0 is the log gas.

    Above the Coulomb exponent dim - 2 the density vanishes at the edge (Biler, Imbert & Karch 2015), below it diverges there
    (Chafai, Saff & Womersley 2022: a radial arcsine law at s = dim - 3).
    """

    dim: int = 1
    s: float = 0.5

    def __post_init__(self) -> None:
        count(self.dim, "dim")
        if not max(self.dim - 4, -2) < real(self.s, "s") < self.dim:
            raise ValueError(f"s must lie strictly between {max(self.dim - 4, -2)} and {self.dim}, got {self.s!r}")
        super().__post_init__()


@dataclass(frozen=True)
class TrappedSphere(SphereLaw, Trapped):
    """Riesz gas with -2 < s <= dim - 4 in a quadratic trap: uniform on a sphere, on which the trap balances the repulsion.

    radius^(s+2) = strength |s| w / (2 kappa), w the mean of |x - y|^-s over the unit sphere (1 for |s| w at s = 0).
    Source: Chafai, Saff & Womersley 2023, condensation to singular support.
    """

    dim: int = 4
    s: float = 0.0

    def __post_init__(self) -> None:
        count(self.dim, "dim", least=3)
        if not -2 < real(self.s, "s") <= self.dim - 4:
            raise ValueError(f"s must lie in (-2, {self.dim - 4}], got {self.s!r}")
        super().__post_init__()

    @property
    def radius(self) -> float:  # type: ignore[override]
        """Radius of the sphere; ValueError where floating point holds no such number."""
        mean = abs(float(mean_over_sphere(1.0, 1.0, self.dim, self.s))) * abs(self.s) if self.s else 1.0
        return representable(self.strength / self.kappa * mean / 2, 1 / (self.s + 2))

    @property
    def multiplier(self) -> float:
        """Value of V + strength g*mu on the sphere."""
        return float(self.potential(np.r_[self.radius, np.zeros(self.dim - 1)]))

    def potential(self, x: ArrayLike) -> FloatArray:
        """V + strength g*mu at x (..., dim), shape (...): least on the sphere."""
        r = radii(x, self.dim)
        return self.kappa * r**2 / 2 + self.strength * mean_over_sphere(r, self.radius, self.dim, self.s)


def quadratic_trap(kappa: float, strength: float, dim: int, s: float) -> RieszBall | TrappedSphere:
    """Equilibrium of a Riesz gas in the trap kappa |x|^2/2 for -2 < s < dim: a ball for s > dim - 4, a sphere below.

    ValueError for s <= -2 (no interaction of the package) and for s >= dim (every measure has infinite energy).
    """
    dim, s = count(dim, "dim"), real(s, "s")
    if not -2 < s < dim:
        raise ValueError(f"s must lie strictly between -2 and {dim}, got {s!r}: from dim on every measure has infinite energy")
    return (RieszBall if s > dim - 4 else TrappedSphere)(kappa, strength, dim, s)
