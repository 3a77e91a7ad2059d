"""The log gas on the line in a quadratic trap at any temperature: from a Gaussian to the semicircle (Gauss-Wigner crossover)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import quad
from scipy.special import digamma, erf, gammaln, ndtr, ndtri

from theory.arrays import FloatArray, positive
from theory.equilibrium.phase_law import LARGEST_CROSSOVER, PhaseLaw, TaylorTable, gamma_ratio
from theory.equilibrium.radial_law import line, probabilities

__all__ = ["GaussWigner"]


@dataclass(frozen=True)
class GaussWigner(PhaseLaw):
    """Mean-field equilibrium of the log gas on the line in a quadratic trap at inverse temperature beta.

    With c = beta strength/2, rho(x) = sqrt(beta kappa) f_c(sqrt(beta kappa) x), f_c(u) = |D_-c(iu)|^-2 / (sqrt(2 pi) Gamma(1 + c)):
    a Gaussian at c = 0, the semicircle as c grows. It is the law whose orthogonal polynomials are the associated Hermite ones.
    Sources: Askey & Wimp 1984; Allez, Bouchaud & Guionnet 2012. Relative errors stay near 1e-14 (1 + c); c above 1e4 raises (the
    Semicircle is then off by O(1/c) inside). The kappa, beta must be positive, the strength at least 0.
    """

    kappa: float
    strength: float
    beta: float

    def __post_init__(self) -> None:
        for name in ("kappa", "strength", "beta"):
            positive(getattr(self, name), name, zero=name == "strength")
        if self.crossover > LARGEST_CROSSOVER:
            raise ValueError(f"beta strength/2 must be at most {LARGEST_CROSSOVER:g}, got {self.crossover!r}: use Semicircle")

    @property
    def crossover(self) -> float:  # type: ignore[override]
        """c = beta strength / 2."""
        return self.beta * self.strength / 2

    @property
    def scale(self) -> float:  # type: ignore[override]
        """1/sqrt(beta kappa), the standard deviation at strength 0."""
        return float(1 / (np.sqrt(self.beta) * np.sqrt(self.kappa)))

    @property
    def log_height(self) -> float:  # type: ignore[override]
        """log rho(0)."""
        return float(-np.log(np.sqrt(2) * np.pi * self.scale * gamma_ratio((1 + self.crossover) / 2)))

    @cached_property
    def table(self) -> TaylorTable:  # type: ignore[override]
        """`D_-c(iu)/D_-c(0)`, from y'' = (u^2/4 - c + 1/2) y (DLMF 12.2.2): neutral inside; y is the growing solution outside.

        The table ends where the density underflows, 2 sqrt(c) + 40.
        """
        shift = 0.5 - self.crossover

        def extend(u: float, h: float, a: list[complex], k: int) -> complex:
            force = (u**2 / 4 + shift) * a[k] + (u * h / 2 * a[k - 1] if k else 0) + (h**2 / 4 * a[k - 2] if k > 1 else 0)
            return h**2 * force / ((k + 1) * (k + 2))

        slope = -1j * np.sqrt(2) * gamma_ratio(self.crossover / 2) if self.crossover else 0j
        end = float(2 * np.sqrt(self.crossover) + 40)  # steps: a phase, and the width of the turning point
        return TaylorTable(extend, lambda u: float(1 / np.sqrt(2 + abs(u**2 / 4 + shift) + u ** (2 / 3))), slope, end)

    def free_cdf(self, u: FloatArray) -> FloatArray:
        """Gaussian."""
        return ndtr(u)

    def free_radial_cdf(self, u: FloatArray) -> FloatArray:
        """Gaussian."""
        return erf(u / np.sqrt(2))

    def free_quantile(self, u: FloatArray) -> FloatArray:
        """Gaussian."""
        return ndtri(u)

    def cdf(self, x: ArrayLike) -> FloatArray:
        """P(X <= x), shape of x or (n,) of (n, 1); small values below the mean to relative accuracy, as integrals of the density."""
        x = line(x)
        tail = (x < -self.scale * (2 * np.sqrt(self.crossover) + 1.5)) & (self.crossover > 0)
        value = np.array(super().cdf(x))
        value[tail] = self._tail(-x[tail] / self.scale)
        return value

    def quantile(self, u: ArrayLike) -> FloatArray:
        """Inverse of `cdf` for u strictly between 0 and 1, shape of u."""
        u = probabilities(u)
        if ((u == 0) | (u == 1)).any():
            raise ValueError("u must lie strictly between 0 and 1: the law has no bounded support")
        return super().quantile(u)

    def _even_moment(self, half: int) -> float:
        """A power of the Jacobi matrix of the associated Hermite polynomials, b_k^2 = k + c."""
        root = np.sqrt(np.arange(1, half + 1) + self.crossover)
        row = np.eye(half + 1)[0]
        for _ in range(half):  # all terms are positive: nothing cancels
            row = np.r_[0.0, row[:-1] * root] + np.r_[row[1:] * root, 0.0]
        return float(row @ row)

    def _cuts(self, order: float) -> list[float]:
        """The edge of the semicircle, the peak of the tail and 9 standard deviations more; ValueError beyond the table."""
        edge = 2 * np.sqrt(self.crossover)
        peak = np.sqrt(edge**2 + max(order, 0.0))
        if peak + 9 > self.table.end:
            raise ValueError(f"order must be at most {(self.table.end - 9) ** 2 - edge**2:.0f} unless it is even, got {order!r}")
        return [0.0, *np.unique(np.r_[edge / 2, edge, peak, peak + 3, peak + 9])] if edge > 2 else [0.0, peak + 1, peak + 9]

    @property
    def fourth_moment(self) -> float:
        """(3 + 5c + 2c^2)/(beta kappa)^2."""
        return self.moment(4)

    @cached_property
    def free_energy(self) -> float:
        """min over rho of E(rho) + (1/beta) int rho log rho: the limit of -log Z_N / (N beta)."""
        c, integral = self.crossover, quad(lambda t: gammaln(1 + self.crossover * t), 0, 1, epsabs=1e-14, epsrel=1e-13)[0]
        return float((-0.5 * np.log(2 * np.pi) - (1 + c) * np.log(self.scale) - integral) / self.beta)

    @cached_property
    def energy(self) -> float:
        """E(rho) = int V rho + (strength/2) iint g rho rho: the derivative of beta times the free energy in beta."""
        c = self.crossover
        integral = quad(lambda t: t * digamma(1 + c * t), 0, 1, epsabs=1e-14, epsrel=1e-13)[0]
        return float((1 + c) / (2 * self.beta) - self.strength / 2 * (np.log(self.scale) + integral))

    @property
    def entropy(self) -> float:
        """int rho log rho (the negative of the physicist's entropy)."""
        return self.beta * (self.free_energy - self.energy)

    @property
    def multiplier(self) -> float:
        """V + strength g*rho + log(rho)/beta, the same everywhere: the chemical potential."""
        return self.free_energy + self.energy - self.kappa * self.second_moment / 2

    def potential(self, x: ArrayLike) -> FloatArray:
        """V + strength g*rho = multiplier - log(rho)/beta at x, shape of x; infinite where rho underflows."""
        return self.multiplier - self.log_density(x) / self.beta

    def _tail(self, u: FloatArray) -> FloatArray:
        """P(X > u scale) beyond the semicircle (n,), by a Gauss rule: the density falls at least like exp(-rate t - t^2/2) from u."""
        node, weight = np.polynomial.legendre.leggauss(48)
        length = np.minimum(38 / np.sqrt(u**2 - 4 * self.crossover), 9.0)[:, None] / 2
        return np.sum(length * weight * self.scale * self.density((u[:, None] + length * (1 + node)) * self.scale), -1)
