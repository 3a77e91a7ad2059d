"""Exact laws of the one-dimensional Coulomb gas: n particles on the line with g(x) = -|x| in a quadratic trap, at any temperature.

In order x_1 < ... < x_n the pairs' energy is linear: particle k feels a constant force, and the Gibbs law is that of independent Gaussians
of variance 1/(beta kappa) about the ground state m_k = strength (2k - n - 1)/(kappa (n - 1)), conditioned to be ordered (Lenard 1961;
Prager 1962; Baxter 1963). In standardised places u_k = (x_k - m_k) sqrt(beta kappa) the order is u_k < u_k+1 + a, with a the distance of
two neighbours' means. The weight of the first k particles with the last of them below u is

    F_k(u) = int_{-inf}^u phi(v) F_{k-1}(v + a) dv,    F_0 = 1,

and P(ordered) = F_n(inf). F_k has the size of Phi^k, too small to be kept in absolute terms where the particles are. The ratios
T_k(u) = F_k(u) / (Phi(u) F_{k-1}(u + a)) are of order 1/k and smooth, and obey a linear equation that forgets its start:

    T_k' = h(u) - T_k [h(u) + h(u + a)/T_{k-1}(u + a)],    h = phi/Phi,    T_1 = 1    (T_k = 1/k for a = 0).

It is solved from left to right by collocation at Chebyshev points of equal panels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float
from numpy.polynomial import chebyshev
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, log_ndtr

from theory.arrays import FloatArray, count, finite, generator, positive

__all__ = ["CoulombLine"]

WINDOW = 13.0  # a Gaussian is 1e-37 there, and the largest of 1e9 Gaussians is near 6
PANELS, DEGREE = 52, 16


@dataclass(frozen=True)
class CoulombLine:
    """n >= 2 particles with energy N H_N = sum kappa x^2/2 - strength/(n-1) sum_{k<l} |x_k - x_l| at inverse temperature beta.

    s = -1 of the package in `FullSpace(1)`. About a millisecond a particle for the tables, then shared by all results.
    """

    n: int
    beta: float
    kappa: float
    strength: float

    def __post_init__(self) -> None:
        count(self.n, "n", least=2)
        for name in ("beta", "kappa", "strength"):
            positive(getattr(self, name), name, zero=name == "strength")

    @property
    def ground_state(self) -> FloatArray:
        """Means m_k (n,) of the unordered Gaussians, equally spaced: the positions at zero temperature."""
        return self.strength * (2 * np.arange(1.0, self.n + 1) - self.n - 1) / (self.kappa * (self.n - 1))

    @property
    def width(self) -> float:
        """1/sqrt(beta kappa), the thermal width of a particle."""
        return float(1 / np.sqrt(self.beta * self.kappa))

    @property
    def spacing(self) -> float:
        """a, the distance of neighbouring means in widths."""
        return float(2 * self.strength / (self.kappa * (self.n - 1)) / self.width)

    @cached_property
    def _tables(self) -> tuple[FloatArray, float]:
        """Chebyshev coefficients (n+1, DEGREE+2, PANELS) of log F_k, k = 0..n, and d log P(ordered)/da.

        (log F_k)' = h/T_k: integrated from the right, where log F_k is the sum of the log T_j.
        """
        grid = Panels(self.spacing)
        h = np.exp(-(grid.points**2) / 2 - np.log(2 * np.pi) / 2 - log_ndtr(grid.points))
        ratio, tangent, total, slope = np.ones_like(h), np.zeros_like(h), 0.0, 0.0
        tables = [np.zeros((DEGREE + 2, PANELS)), grid.integral(h, total)]
        for _ in range(self.n - 1):
            push = h / ratio
            pushed = grid.shift(push)
            change = grid.shift(push @ grid.derivative.T - push * tangent / ratio)  # of `pushed` with a
            ratio, tangent = grid.relax(h + pushed, h, change)
            total += float(np.log(ratio[-1, -1]))
            slope += float(tangent[-1, -1] / ratio[-1, -1])
            tables.append(grid.integral(h / ratio, total))
        return np.array(tables), slope

    def _log_f(self, k: int, u: FloatArray, *, derivative: bool = False) -> FloatArray:
        """log F_k, or its derivative, at -WINDOW <= u; constant above WINDOW."""
        table = self._tables[0][k]
        panel, place = locate(u)
        if derivative:
            table = chebyshev.chebder(table) * PANELS / WINDOW
        return chebyshev.chebval(place, table[:, panel], tensor=False)

    @property
    def log_ordered(self) -> float:
        """log of the probability that the independent Gaussians are in order."""
        return float(self._log_f(self.n, np.array(WINDOW)))

    @property
    def log_partition(self) -> float:
        """log Z_N = log int exp(-beta N H_N) dx."""
        free = self.n / 2 * np.log(2 * np.pi) + self.n * np.log(self.width) + gammaln(self.n + 1)
        return float(free + np.sum(self.ground_state**2) / (2 * self.width**2) + self.log_ordered)

    @property
    def energy(self) -> float:
        """Exact E H_N (see `theory.ensembles`): 1/(2 beta) - strength/4 of `mean_distance`, by the virial identity."""
        return 0.5 / self.beta - self.strength / 4 * self.mean_distance

    @property
    def mean_distance(self) -> float:
        """E of the mean |x_k - x_l| over pairs, from the derivative of log Z_N in the strength: that of the ground state, and the rest."""
        ground = 2 * self.strength * (self.n + 1) / (3 * self.kappa * (self.n - 1))
        return ground + 4 * self.width * self._tables[1] / (self.n * (self.n - 1))

    @property
    def second_moment(self) -> float:
        """E (1/n) sum x^2 = 2 (1/beta - E H_N)/kappa, by the virial identity."""
        return 2 * (1 / self.beta - self.energy) / self.kappa

    def rank_density(self, k: int, x: ArrayLike) -> FloatArray:
        """Density at x of the k-th smallest particle, k = 1..n, shape of x: phi(u) F_{k-1}(a + u) F_{n-k}(a - u) / P(ordered)."""
        if not 1 <= count(k, "k") <= self.n:
            raise ValueError(f"k must be at most n = {self.n}, got {k!r}")
        u = (finite(x, "x") - self.ground_state[k - 1]) / self.width
        inside = abs(u) < WINDOW - 1  # beyond, and where the start is being forgotten, 1e-32 of the mass
        u = np.where(inside, u, 0.0)
        neighbours = self._log_f(k - 1, self.spacing + u) + self._log_f(self.n - k, self.spacing - u) - self.log_ordered
        return np.where(inside, np.exp(neighbours - u**2 / 2), 0.0) / (np.sqrt(2 * np.pi) * self.width)

    def density(self, x: ArrayLike) -> FloatArray:
        """Mean density (mass 1) at x, shape of x: the mean of the n `rank_density`."""
        return np.mean([self.rank_density(k, x) for k in range(1, self.n + 1)], axis=0)

    def sample(self, rng: int | np.random.Generator, size: int = 1) -> Float[np.ndarray, "size n 1"]:
        """Exact samples (size, n, 1), sorted: from the largest down, each by inversion of F_k below its right neighbour."""
        rng, size = generator(rng), count(size, "size")
        u, limit = np.empty((size, self.n)), np.full(size, WINDOW)
        for k in range(self.n, 0, -1):
            u[:, k - 1] = self._invert(k, np.log(1 - rng.random(size)) + self._log_f(k, limit), limit)
            limit = np.minimum(u[:, k - 1] + self.spacing, WINDOW)
        return (self.ground_state + self.width * u)[..., None]

    def _invert(self, k: int, target: FloatArray, limit: FloatArray) -> FloatArray:
        """The u <= limit with log F_k(u) = target; from the left Newton's steps are monotone, as log F_k is concave (Prekopa 1973)."""
        u = np.clip(limit, -WINDOW, 0.0)
        for _ in range(100):
            short = target - self._log_f(k, u)
            if (abs(short) < 1e-13 * (1 + abs(target))).all():
                return u
            u = np.clip(u + short / self._log_f(k, u, derivative=True), -WINDOW, limit)
        raise ArithmeticError(f"inversion of the law of particle {k} of {self.n} did not converge")


class Panels:
    """Functions on [-WINDOW, WINDOW] by their values (PANELS, DEGREE+1) at ascending Chebyshev `points` of equal panels."""

    def __init__(self, a: float) -> None:
        node, half = chebyshev.chebpts2(DEGREE + 1), WINDOW / PANELS
        self.points = np.linspace(-WINDOW, WINDOW, PANELS + 1)[:-1, None] + half * (1 + node)
        self.to_coefficients = np.linalg.inv(chebyshev.chebvander(node, DEGREE))
        self.derivative = chebyshev.chebvander(node, DEGREE - 1) @ chebyshev.chebder(self.to_coefficients) / half
        self._source, place = locate(self.points + a)
        self._weights = chebyshev.chebvander(place, DEGREE) @ self.to_coefficients

    def shift(self, values: FloatArray) -> FloatArray:
        """u -> values(u + a)."""
        return np.einsum("pij,pij->pi", self._weights, values[self._source])

    def integral(self, values: FloatArray, last: float) -> FloatArray:
        """Chebyshev coefficients (DEGREE+2, PANELS) of the function of that derivative which is `last` at the right end."""
        rising = chebyshev.chebint(self.to_coefficients @ values.T, lbnd=-1) * WINDOW / PANELS
        steps = rising.sum(axis=0)  # over each panel, as every Chebyshev polynomial is 1 at 1
        rising[0] += last - np.cumsum(steps[::-1])[::-1]
        return rising

    def relax(self, rate: FloatArray, source: FloatArray, change: FloatArray) -> tuple[FloatArray, FloatArray]:
        """T of T' + rate T = source, which starts balanced at the left end, and its tangent S of S' + rate S = -change T, from 0."""
        inverse = np.linalg.inv(self.derivative[1:, 1:] + rate[:, 1:, None] * np.eye(DEGREE))
        decay = -inverse @ self.derivative[1:, 0]
        value = march(np.einsum("pij,pj->pi", inverse, source[:, 1:]), decay, source[0, 0] / rate[0, 0])
        return value, march(-np.einsum("pij,pj->pi", inverse, (change * value)[:, 1:]), decay, 0.0)


def locate(u: FloatArray) -> tuple[NDArray[np.int64], FloatArray]:
    """Panel of each u >= -WINDOW and the place in it, from -1 to 1; what lies above the window is at its right end."""
    steps = (np.minimum(u, WINDOW) + WINDOW) * PANELS / (2 * WINDOW)
    panel = np.clip(steps.astype(np.int64), 0, PANELS - 1)
    return panel, 2 * (steps - panel) - 1


def march(particular: FloatArray, decay: FloatArray, start: float) -> FloatArray:
    """Values (PANELS, DEGREE+1) of the solution that is `particular` + left value * `decay` in each panel, from the left."""
    values = np.empty((PANELS, DEGREE + 1))
    for panel in range(PANELS):
        values[panel, 0] = start
        values[panel, 1:] = particular[panel] + start * decay[panel]
        start = values[panel, -1]
    return values
