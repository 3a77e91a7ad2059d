"""Large deviations of the one-dimensional log gas in closed form: normalisers to the next order, second moment, largest particle, gaps.

Package units: the law is exp(-beta [kappa sum x^2/2 - strength/(2 (n-1)) sum_{k != l} log|x_k - x_l|]), of index b = beta strength/(n-1).
At fixed beta, c = beta strength/2 is what b (n-1)/2 equals at every n, and the speed is n. Where beta grows the speed is beta n, and
rates are energies: a rate b n^2 Phi of random-matrix papers is beta n strength Phi here.
"""

from __future__ import annotations

from collections.abc import Callable
from math import factorial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import quad
from scipy.special import digamma, gammaln

from theory.arrays import FloatArray, count, finite, positive, real

__all__ = [
    "Normaliser",
    "circle_gap_rate",
    "circle_normaliser",
    "largest_particle_cdf",
    "pulled_rate",
    "pushed_rate",
    "second_moment_rate",
    "trap_normaliser",
    "wall_normaliser",
]


class Normaliser(NamedTuple):
    """log Z_N = -N beta free_energy + constant + slope/(N-1) + O(1/N^2) at fixed beta, Z_N the integral of exp(-beta N H_N).

    Attributes
    ----------
    free_energy
        min F, the limit of -log Z_N/(N beta).
    constant
        -(1/2) log det_2(1 + beta Sigma g): what the fluctuations around the mean field add (`Fluctuations.log_partition_constant`).
    slope
        The next order.
    beta
        Inverse temperature.
    """

    free_energy: float
    constant: float
    slope: float
    beta: float

    def log_partition(self, n: int) -> float:
        """The expansion at n >= 2 particles, for comparison with the exact value of `theory.ensembles`."""
        n = count(n, "n", least=2)
        return -n * self.beta * self.free_energy + self.constant + self.slope / (n - 1)


def trap_normaliser(beta: float, kappa: float, strength: float) -> Normaliser:
    """The gas in the trap kappa x^2/2: Euler-Maclaurin summation of Mehta's integral (Mehta 2004, 17.6.7)."""
    beta, kappa, c = *_positive(beta=beta, kappa=kappa), _crossover(beta, strength)
    mean = _mean(lambda t: gammaln(1 + c * t))
    free = 0.5 * np.log(beta * kappa / (2 * np.pi)) + 0.5 * c * np.log(beta * kappa) - mean
    constant = 1.5 * gammaln(1 + c) + np.euler_gamma * c - mean
    slope = c * (13 * digamma(1 + c) + np.euler_gamma) / 12 + np.euler_gamma * c - (np.pi * c) ** 2 / 12
    return Normaliser(float(free / beta), float(constant), float(slope), beta)


def wall_normaliser(beta: float, strength: float, half_width: float) -> Normaliser:
    """The gas between walls at -half_width and half_width, no trap: Selberg's integral (Mehta 2004, 17.1.3) likewise."""
    beta, half_width, c = *_positive(beta=beta, half_width=half_width), _crossover(beta, strength)
    mean = _mean(lambda t: 3 * gammaln(1 + c * t) - gammaln(2 + c + c * t))
    free = -mean - (1 + c) * np.log(2 * half_width)
    constant = 2.5 * gammaln(1 + c) + np.euler_gamma * c - 0.5 * (gammaln(2 + c) + gammaln(2 + 2 * c)) - mean
    ends = (15 * digamma(1 + c) + 3 * np.euler_gamma - digamma(2 + 2 * c) + digamma(2 + c)) / 12
    slope = c * ends + np.euler_gamma * c - (np.pi * c) ** 2 / 12
    return Normaliser(float(free / beta), float(constant), float(slope), beta)


def circle_normaliser(beta: float, strength: float, period: float) -> Normaliser:
    """The gas on a circle of circumference `period`, distances along the chord, no trap (Dyson 1962; Good 1970)."""
    beta, period, c = *_positive(beta=beta, period=period), _crossover(beta, strength)
    free = -np.log(period) - c * np.log(period / (2 * np.pi))
    constant = gammaln(1 + c) + np.euler_gamma * c
    slope = c * digamma(1 + c) + np.euler_gamma * c - (np.pi * c) ** 2 / 12
    return Normaliser(float(free / beta), float(constant), float(slope), beta)


def second_moment_rate(value: ArrayLike, beta: float, kappa: float, strength: float, *, dim: int = 1) -> FloatArray:
    """Rate at which (1/n) sum |x|^2 of the log gas (s = 0) in the trap is found near `value`, speed n, any dim.

    y - k - k log(y/k), y = beta kappa value/2, k = (dim + c)/2, from its Gamma law (`virial.square_sum_law`); shape of value, zero at the
    mean (dim + c)/(beta kappa), infinite at 0. Other s: `GibbsRate.linear_statistic` of the averages of |x|^2 over the cells.

    Raises
    ------
    ValueError
        If value or strength is negative, beta or kappa is not positive, or dim is no integer of at least 1.
    """
    k = (count(dim, "dim") + _crossover(beta, strength)) / 2
    y = positive(beta, "beta") * positive(kappa, "kappa") * _not_negative(value, "value") / 2
    with np.errstate(divide="ignore"):
        return y - k - k * np.log(y / k)


def pulled_rate(x: ArrayLike, kappa: float, strength: float) -> FloatArray:
    """P(largest particle near x) = exp(-beta rate) where beta grows (b fixed, or faster), for x at or beyond the semicircle's radius R.

    One particle is pulled out of the gas: rate = kappa int_R^x sqrt(y^2 - R^2) dy, speed beta, not beta n (Ben Arous, Dembo & Guionnet
    2001, theorem 6.2). ValueError inside the semicircle, where the whole gas must move: `pushed_rate`.
    """
    kappa, x = positive(kappa, "kappa"), finite(x, "x")
    radius = np.sqrt(2 * positive(strength, "strength") / kappa)
    if (x < radius).any():
        raise ValueError(f"x must be at least the radius {radius:g}, got {x.min():g}")
    angle = 4 * np.arcsinh(np.sqrt((x - radius) / (2 * radius)))  # x = radius cosh(angle/2); kappa radius^2 = 2 strength
    small = np.minimum(angle, 1.0)
    series = sum(small**k / factorial(k) for k in range(3, 21, 2))  # sinh(angle) - angle keeps its digits
    return strength / 2 * np.where(angle < 1, series, np.sinh(angle) - angle)


def pushed_rate(wall: ArrayLike, kappa: float, strength: float) -> FloatArray:
    """P(all particles lie below `wall`) = exp(-beta n rate) where beta grows, for a wall inside the semicircle: the rise of min E.

    strength (10 u - 3 u^2 - 9 + 2/u - 2 log u)/8 with u = (z + sqrt(z^2 + 6))^2/18, z = sqrt 2 wall/R, is the result of Dean & Majumdar
    (2006, 2008) in another variable: strength log(3)/4 at wall = 0, of third order at R. ValueError beyond R, where no gas has to move.
    """
    strength, wall = positive(strength, "strength"), finite(wall, "wall")
    z = wall * np.sqrt(positive(kappa, "kappa") / strength)
    if (z > np.sqrt(2) * (1 + 1e-12)).any():
        raise ValueError(f"wall must be at most the radius {np.sqrt(2 * strength / kappa):g}, got {wall.max():g}")
    root = np.sqrt(z**2 + 6)
    u = np.where(z < 0, 6 / (root + np.abs(z)), z + root) ** 2 / 18
    gap = np.maximum(1 - u, 0.0)
    small = np.minimum(gap, 0.05)
    series = sum(small**k / k for k in range(3, 16))  # of -log u less its first two terms
    return strength / 4 * (gap**3 / u + np.where(gap < 0.05, series, -np.log(u) - gap - gap**2 / 2))


def circle_gap_rate(gap: float, period: float, strength: float) -> float:
    """P(no particle in an arc of length `gap`) = exp(-beta n rate) where beta grows, for the gas on a circle: -strength log(cos(a/2))/2.

    a = pi gap/period is half the arc's angle; the capacity of the rest is cos(a/2) (Widom 1971).
    """
    period, gap = positive(period, "period"), positive(gap, "gap", zero=True)
    if gap >= period:
        raise ValueError(f"gap must be below the period {period!r}, got {gap!r}")
    return float(-positive(strength, "strength") / 4 * np.log1p(-(np.sin(np.pi * gap / period / 2) ** 2)))


def largest_particle_cdf(n: int, tail: ArrayLike) -> FloatArray:
    """P(largest particle <= x) -> exp(-n tail) at fixed beta, tail = int_x^infinity rho the mean field's mass beyond x.

    At fixed beta the repulsion, of index b = O(1/n), cannot order the few particles that are furthest out: they are Poisson
    (Benaych-Georges & Peche 2015; Pakzad 2019), and the largest sits near sqrt(2 log(n)/(beta kappa)), not at the end of a support. So
    P(largest > x) tends to 1 for every fixed x: only the left tail is exponentially small in n (`large_deviations.confinement_rate`).
    """
    return np.exp(-count(n, "n") * _not_negative(tail, "tail"))


def _crossover(beta: float, strength: float) -> float:
    return positive(beta, "beta") * positive(strength, "strength", zero=True) / 2


def _positive(**values: float) -> tuple[float, ...]:
    return tuple(positive(value, name) for name, value in values.items())


def _not_negative(value: ArrayLike, name: str) -> FloatArray:
    array = finite(value, name)
    if (array < 0).any():
        raise ValueError(f"{name} must be at least 0, got {array.min():g}")
    return array


def _mean(function: Callable[[float], Any]) -> float:
    return real(quad(function, 0, 1, epsabs=1e-14, epsrel=1e-13)[0], "mean")
