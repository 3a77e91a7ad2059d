"""The log gas on the line in a quadratic trap at any temperature: from a Gaussian to the semicircle (Gauss-Wigner crossover)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import quad
from scipy.special import digamma, gammaln, ndtr, ndtri, poch

from theory.arrays import FloatArray, positive, real
from theory.radial_law import RadialLaw, invert, line, probabilities

__all__ = ["GaussWigner"]

LARGEST_CROSSOVER = 1e4  # the table grows with c, and with it the relative error of the density: about 1e-14 (1 + c)
DEGREE = 22  # 1/23! is below rounding


class _Cylinder:
    """D_-c(iu)/D_-c(0) for u >= 0: Taylor series at nodes one unit of phase apart, from y'' = (u^2/4 - c + 1/2) y (DLMF 12.2.2).

    The equation is neutral where y turns and y is its growing solution beyond: stepping outwards is stable. Each series is divided by its
    first coefficient, whose log is kept.
    """

    def __init__(self, c: float) -> None:
        self.end = 2 * np.sqrt(c) + 40  # the density underflows beyond
        node, log_value, slope = 0.0, 0j, -1j * np.sqrt(2) * _half_step(c / 2)
        nodes, logs, rows = [], [], []
        while node < self.end:
            series = _taylor(node, c, slope)
            nodes.append(node)
            logs.append(log_value)
            rows.append(series)
            step = 1 / np.sqrt(1 + abs(node**2 / 4 - c + 0.5))
            value, rate = complex(np.polynomial.polynomial.polyval(step, series)), 0j
            for k in range(DEGREE, 0, -1):
                rate = rate * step + k * series[k]
            node, log_value, slope = node + step, log_value + np.log(value), rate / value
        self.nodes, self.logs, self.coefficients = np.array(nodes), np.array(logs), np.array(rows).T

    def __call__(self, u: FloatArray) -> FloatArray:
        """log of D_-c(iu)/D_-c(0), complex with the continuous argument, for 0 <= u <= end; shape of u."""
        place = np.searchsorted(self.nodes, u, side="right") - 1
        step, value = u - self.nodes[place], self.coefficients[DEGREE][place]
        for k in range(DEGREE - 1, -1, -1):
            value = value * step + self.coefficients[k][place]
        return self.logs[place] + np.log(value)


def _taylor(u: float, c: float, slope: complex) -> list[complex]:
    """Taylor coefficients about u of the solution with value 1 and this slope."""
    a: list[complex] = [1.0, slope]
    q = u**2 / 4 - c + 0.5
    for k in range(DEGREE - 1):
        a.append((q * a[k] + (u / 2 * a[k - 1] if k else 0) + (a[k - 2] / 4 if k > 1 else 0)) / ((k + 1) * (k + 2)))
    return a


def _half_step(x: float) -> float:
    """Gamma(x + 1/2)/Gamma(x), by its asymptotic series from 50 on, where logarithms of the two lose digits."""
    series = 1 - 1 / (8 * x) + 1 / (128 * x**2) + 5 / (1024 * x**3) - 21 / (32768 * x**4) - 399 / (262144 * x**5) if x >= 50 else 1.0
    return float(np.sqrt(x) * series if x >= 50 else poch(x, 0.5))


@dataclass(frozen=True)
class GaussWigner(RadialLaw):
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
    def crossover(self) -> float:
        """c = beta strength / 2."""
        return self.beta * self.strength / 2

    @property
    def width(self) -> float:
        """1/sqrt(beta kappa), the standard deviation at strength 0."""
        return float(1 / np.sqrt(self.beta * self.kappa))

    def log_density(self, x: ArrayLike) -> FloatArray:
        """log rho(x), shape of x, or (n,) of (n, 1); -inf where rho underflows (2 sqrt(c) + 40 widths away)."""
        u = np.abs(line(x)) / self.width
        near = u < self._cylinder.end
        centre = np.log(np.sqrt(2) * np.pi * self.width * _half_step((1 + self.crossover) / 2))
        return np.where(near, -centre - 2 * self._cylinder(np.where(near, u, 0.0)).real, -np.inf)

    def density(self, x: ArrayLike) -> FloatArray:
        """rho(x), shape of x, or (n,) of (n, 1); about 0.2 microseconds a point after a table of some ten milliseconds."""
        return np.exp(self.log_density(x))

    def cdf(self, x: ArrayLike) -> FloatArray:
        """P(X <= x), shape of x or (n,) of (n, 1): 1/2 - arg D_-c(iu)/(pi c), as the density is the derivative of that phase."""
        u = line(x) / self.width
        if self.crossover == 0:
            return ndtr(u)
        near = np.abs(u) < self._cylinder.end
        half = -self._cylinder(np.where(near, np.abs(u), 0.0)).imag / (np.pi * self.crossover)
        return 0.5 + np.sign(u) * np.where(near, np.minimum(half, 0.5), 0.5)

    def quantile(self, u: ArrayLike) -> FloatArray:
        """Inverse of `cdf` for u strictly between 0 and 1, shape of u."""
        u = probabilities(u)
        if ((u == 0) | (u == 1)).any():
            raise ValueError("u must lie strictly between 0 and 1: the law has no bounded support")
        if self.crossover == 0:
            return self.width * ndtri(u)
        end = self._cylinder.end * self.width
        return invert(self.cdf, u, -end, end)

    def radial_cdf(self, r: ArrayLike) -> FloatArray:
        """P(|X| <= r), shape of r."""
        return np.maximum(2 * self.cdf(r) - 1, 0.0)

    def radial_quantile(self, u: ArrayLike) -> FloatArray:
        """Inverse of `radial_cdf` for u in [0, 1), shape of u."""
        return np.abs(self.quantile((1 + probabilities(u)) / 2))

    def moment(self, order: float) -> float:
        """E |X|^order for even whole orders: a power of the Jacobi matrix of the associated Hermite polynomials, b_k^2 = k + c."""
        if real(order, "order") < 0 or order % 2:
            raise ValueError(f"order must be an even whole number of at least 0, got {order!r}: others have no closed form")
        half = int(order) // 2
        root = np.sqrt(np.arange(1, half + 1) + self.crossover)
        row = np.eye(half + 1)[0]
        for _ in range(half):  # all terms are positive: nothing cancels
            row = np.r_[0.0, row[:-1] * root] + np.r_[row[1:] * root, 0.0]
        return float(row @ row) * self.width**order

    @property
    def fourth_moment(self) -> float:
        """(3 + 5c + 2c^2)/(beta kappa)^2."""
        return self.moment(4)

    @cached_property
    def free_energy(self) -> float:
        """min over rho of E(rho) + (1/beta) int rho log rho: the limit of -log Z_N / (N beta)."""
        c, integral = self.crossover, quad(lambda t: gammaln(1 + self.crossover * t), 0, 1, epsabs=1e-14, epsrel=1e-13)[0]
        return float((-0.5 * np.log(2 * np.pi) - (1 + c) * np.log(self.width) - integral) / self.beta)

    @cached_property
    def energy(self) -> float:
        """E(rho) = int V rho + (strength/2) iint g rho rho: the derivative of beta times the free energy in beta."""
        c = self.crossover
        integral = quad(lambda t: t * digamma(1 + c * t), 0, 1, epsabs=1e-14, epsrel=1e-13)[0]
        return float((1 + c) / (2 * self.beta) - self.strength / 2 * (np.log(self.width) + integral))

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

    @cached_property
    def _cylinder(self) -> _Cylinder:
        return _Cylinder(self.crossover)
