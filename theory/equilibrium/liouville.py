"""The log gas between the walls of a disc at finite temperature: the mean-field density in closed form."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import hyp2f1

from theory.arrays import FloatArray, finite, positive, real
from theory.equilibrium.radial_law import RadialLaw, probabilities, radii

__all__ = ["DiscLogGas"]


class DiscLogGas(RadialLaw):
    """rho = (1 - y) / (pi R^2 (1 - y r^2/R^2)^2), y = beta strength / (4 + beta strength), on the disc of radius R, V = 0.

    The minimiser of (strength / 2) iint -log|x - y| rho rho + (1 / beta) int rho log rho, by Liouville's equation (1853)
    Lap log rho = 2 pi beta strength rho. With attraction, strength < 0, the mass contracts into the centre as beta strength falls to -4
    (Caglioti, Lions, Marchioro & Pulvirenti 1992).

    Parameters
    ----------
    radius
        R, the wall.
    strength, beta
        Above -4 / beta; beta positive and finite.

    Raises
    ------
    ValueError
        For strength * beta <= -4, where there is no minimiser, and parameters that are not finite.
    """

    dim, s = 2, 0.0

    def __init__(self, radius: float, strength: float, beta: float):
        self.radius, self.strength, self.beta = positive(radius, "radius"), real(strength, "strength"), positive(beta, "beta")
        coupling = self.beta * self.strength
        if not (np.isfinite(coupling) and coupling > -4):
            raise ValueError(f"strength must be finite and above -4 / beta = {-4 / self.beta:g}, got {strength}: the gas collapses")
        self.rest = 4 / (4 + coupling)  # 1 - y, without cancellation

    @property
    def y(self) -> float:
        """The parameter of the density, below 1; negative with attraction."""
        return self.rest * self.beta * self.strength / 4

    def density(self, x: ArrayLike) -> FloatArray:
        """Density at x (..., 2), shape (...); zero beyond the wall."""
        part = (radii(x, 2) / self.radius) ** 2
        return np.where(part <= 1, self.rest / (np.pi * self.radius**2 * (1 - self.y * np.minimum(part, 1)) ** 2), 0.0)

    def radial_cdf(self, r: ArrayLike) -> FloatArray:
        """P(|x| <= r), shape of r."""
        part = np.clip(finite(r, "r") / self.radius, 0, 1) ** 2
        return self.rest * part / (1 - self.y * part)

    def radial_quantile(self, u: ArrayLike) -> FloatArray:
        """Inverse of `radial_cdf` for u in [0, 1], shape of u."""
        u = probabilities(u)
        return self.radius * np.sqrt(u / (self.rest + u * self.y))

    def potential(self, x: ArrayLike) -> FloatArray:
        """strength g*rho at x (..., 2), shape (...): that of a point mass beyond the wall."""
        r = radii(x, 2)
        inside = self.multiplier - np.log(self.density(x), where=r <= self.radius, out=np.zeros(r.shape)) / self.beta
        return np.where(r <= self.radius, inside, -self.strength * np.log(np.maximum(r, self.radius)))

    def moment(self, order: float) -> float:
        """E |x|^order for order > -2."""
        half = real(order, "order") / 2 + 1
        if half <= 0:
            raise ValueError(f"order must exceed -2, got {order!r}: the moment is infinite")
        return float(self.radius ** (2 * half - 2) * self.rest / half * hyp2f1(2, half, half + 1, self.y))

    @property
    def multiplier(self) -> float:
        """strength g*rho + log(rho) / beta, the same on all of the disc."""
        return float(-self.strength * np.log(self.radius) - np.log(np.pi * self.radius**2 * self.rest) / self.beta)

    @property
    def entropy(self) -> float:
        """int rho log rho."""
        log = -np.log1p(self.beta * self.strength / 4)
        mean = -1.0 if self.y == 0 else self.rest * log / self.y
        return float(-np.log(np.pi * self.radius**2) - log - 2 - 2 * mean)

    @property
    def energy(self) -> float:
        """(strength / 2) iint -log|x - y| rho rho."""
        return (self.multiplier - self.entropy / self.beta) / 2

    @property
    def free_energy(self) -> float:
        """energy + entropy / beta."""
        return (self.multiplier + self.entropy / self.beta) / 2

    @property
    def pressure(self) -> float:
        """rho(R) / beta, by the contact theorem also (1 / beta + strength / 4) / (pi R^2)."""
        return 1 / (np.pi * self.radius**2 * self.rest * self.beta)
