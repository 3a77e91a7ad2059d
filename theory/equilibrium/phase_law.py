"""Laws on the line whose density is |y|^-2 for a solution y of a linear equation of second order: the density is the speed of y's phase.

If Im(y'/y) = constant/|y|^2 then density = constant/|y|^2 and cdf = 1/2 + arg(y)/(pi c). Both come from one table of Taylor series of y.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import poch

from theory.arrays import FloatArray, finite
from theory.equilibrium.radial_law import RadialLaw, finite_order, invert, line, probabilities
from theory.tanh_sinh import NODE, WEIGHT

__all__ = ["LARGEST_CROSSOVER", "PhaseLaw", "TaylorTable", "gamma_ratio"]

LARGEST_CROSSOVER = 1e4  # the table grows with c, and with it the relative error of the density: about 1e-14 (1 + c)
DEGREE = 22  # 1/23! and 1/6^23 are below rounding


def gamma_ratio(x: float) -> float:
    """Gamma(x + 1/2)/Gamma(x), by its asymptotic series from 50 on, where logarithms of the two lose digits."""
    if x < 50:
        return float(poch(x, 0.5))
    return float(np.sqrt(x) * (1 - 1 / (8 * x) + 1 / (128 * x**2) + 5 / (1024 * x**3) - 21 / (32768 * x**4) - 399 / (262144 * x**5)))


class TaylorTable:
    """log of a complex solution of a linear equation of second order on [0, end], with value 1 at 0 and its argument continuous.

    `step(node)` gives the distance h to the next node, at most one unit of phase and a sixth of the radius of convergence, and
    `extend(node, h, a, k)` the coefficient a[k + 2] of the series sum a[k] ((u - node)/h)^k from the earlier ones. Each series is divided
    by its first coefficient, whose log is kept: nothing overflows.
    """

    def __init__(
        self, extend: Callable[[float, float, list[complex], int], complex], step: Callable[[float], float], slope: complex, end: float
    ) -> None:
        node = 0.0
        nodes, widths, gains, rows = [], [], [0j], []
        while node < end:
            following = node + step(node)
            width = following - node  # exact, unlike the step asked for
            series: list[complex] = [1.0, slope * width]
            for k in range(DEGREE - 1):
                series.append(extend(node, width, series, k))
            nodes.append(node)
            widths.append(width)
            rows.append(series)
            value = math.fsum(a.real for a in series) + 1j * math.fsum(complex(a).imag for a in series)
            slope = sum(k * a for k, a in enumerate(series)) / (width * value)
            gains.append(cmath.log(value))
            node = following
        self.end, self._nodes, self._widths = end, np.array(nodes), np.array(widths)
        logs = np.cumsum(gains, dtype=np.clongdouble)  # thousands of terms of one sign
        self._logs, self._rows = logs.astype(complex), np.array(rows).T

    def __call__(self, u: FloatArray) -> FloatArray:
        """log y(u), complex, for 0 <= u <= end; shape of u."""
        place = np.searchsorted(self._nodes, u, side="right") - 1
        step, value = (u - self._nodes[place]) / self._widths[place], self._rows[DEGREE][place]
        for k in range(DEGREE - 1, -1, -1):
            value = value * step + self._rows[k][place]
        return self._logs[place] + np.log(value)


class PhaseLaw(RadialLaw):
    """An even law on the line with density(x) = density(0) |y(|x|/scale)|^-2 and cdf 1/2 + sign(x) |arg y|/(pi c).

    Subclasses give `crossover` (c), `scale`, `log_height` (log density at 0), `table` (a TaylorTable of y), moments of even order and,
    in units of the scale, `free_cdf`, `free_radial_cdf` and `free_quantile`, which hold at c = 0.
    """

    crossover: float
    scale: float
    log_height: float
    table: TaylorTable

    def free_cdf(self, u: FloatArray) -> FloatArray:
        """cdf at c = 0."""
        raise NotImplementedError

    def free_radial_cdf(self, u: FloatArray) -> FloatArray:
        """radial_cdf at c = 0."""
        raise NotImplementedError

    def free_quantile(self, u: FloatArray) -> FloatArray:
        """quantile at c = 0."""
        raise NotImplementedError

    def log_density(self, x: ArrayLike) -> FloatArray:
        """log rho(x), shape of x, or (n,) of (n, 1); -inf outside the support, or where rho underflows."""
        u = np.abs(line(x)) / self.scale
        near = u <= self.table.end
        return np.where(near, self.log_height - 2 * self.table(np.where(near, u, 0.0)).real, -np.inf)

    def density(self, x: ArrayLike) -> FloatArray:
        """rho(x), shape of x, or (n,) of (n, 1); some 0.2 microseconds a point after a table of some ten milliseconds."""
        return np.exp(self.log_density(x))

    def cdf(self, x: ArrayLike) -> FloatArray:
        """P(X <= x), shape of x or (n,) of (n, 1)."""
        u = line(x) / self.scale
        if self.crossover == 0:
            return self.free_cdf(u)
        return 0.5 + 0.5 * np.sign(u) * self._within(np.abs(u))

    def quantile(self, u: ArrayLike) -> FloatArray:
        """Inverse of `cdf` for u in [0, 1], shape of u; ValueError at 0 and 1 if the support is the whole line."""
        u = probabilities(u)
        if self.crossover == 0:
            return self.scale * self.free_quantile(u)
        end = self.table.end * self.scale
        return invert(self.cdf, u, -end, end)

    def radial_cdf(self, r: ArrayLike) -> FloatArray:
        """P(|X| <= r), shape of r."""
        u = np.maximum(finite(r, "r"), 0.0) / self.scale
        return self._within(u) if self.crossover else self.free_radial_cdf(u)

    def radial_quantile(self, u: ArrayLike) -> FloatArray:
        """Inverse of `radial_cdf` for u in [0, 1], shape of u."""
        return np.abs(self.quantile((1 + probabilities(u)) / 2))

    def moment(self, order: float) -> float:
        """E |X|^order for order > -1: exact for even whole orders, otherwise by quadrature of the density, within some 1e-12 (1 + c)."""
        order = finite_order(order, -1)
        with np.errstate(over="ignore"):
            even = order >= 0 and order % 2 == 0
            value = self._even_moment(int(order) // 2) if even else self._absolute_moment(order)
            value *= float(np.float64(self.scale) ** order)
        if not np.isfinite(value):
            raise ValueError(f"order must give a moment that floating point holds, got {order!r}")
        return value

    def _absolute_moment(self, order: float) -> float:
        """E |X/scale|^order by a tanh-sinh rule between the cuts."""
        cuts = self._cuts(order)
        low = 0.0
        if order < 0:  # the first interval in the variable u^(order + 1), free of the singularity
            power, low = 1 / (order + 1), cuts[1]
            inner = low ** (order + 1) * power * WEIGHT @ self.density(low * NODE**power * self.scale)
        u = np.concatenate([a + (b - a) * NODE for a, b in pairwise(cuts) if a >= low])
        weight = np.concatenate([(b - a) * WEIGHT for a, b in pairwise(cuts) if a >= low])
        outer = weight @ np.exp(order * np.log(u) + self.log_density(u * self.scale))
        return float(2 * (outer + (inner if order < 0 else 0.0))) * self.scale

    def _even_moment(self, half: int) -> float:
        """E |X/scale|^(2 half)."""
        raise NotImplementedError

    def _cuts(self, order: float) -> list[float]:
        """Places on u >= 0 between which u^order density(u scale) is smooth, the last beyond all of it."""
        raise NotImplementedError

    def _within(self, u: FloatArray) -> FloatArray:
        """P(|X| <= u scale) for u >= 0 and c > 0."""
        near = u <= self.table.end
        share = 2 / np.pi * np.abs(self.table(np.where(near, u, 0.0)).imag) / self.crossover
        return np.where(near, np.minimum(share, 1.0), 1.0)
