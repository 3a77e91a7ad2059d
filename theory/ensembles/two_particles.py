"""Exact laws of two Riesz particles in a quadratic trap: every dimension, every exponent s > -2, every temperature.

The centre of mass is a Gaussian, the direction of x_1 - x_2 uniform, and the distance r has a weight on one line:
r^(dim-1) exp(-beta [kappa r^2/4 + strength g_s(r)]). With the log r^2 beta kappa/4 is Gamma((dim + beta strength)/2).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.optimize import bisect
from scipy.special import gammaln

from theory.arrays import FloatArray, count, finite, generator, positive, real

__all__ = ["TwoParticles"]

NODE, WEIGHT = np.polynomial.legendre.leggauss(20)


class Panels(NamedTuple):
    """Edges (panel + 1,) in log r, the largest log weight, and the masses (panel,) relative to it."""

    edges: FloatArray
    top: float
    mass: FloatArray


@dataclass(frozen=True)
class TwoParticles:
    """Two particles with energy 2 H_2 = kappa (|x_1|^2 + |x_2|^2)/2 + strength g_s(x_1 - x_2) at inverse temperature beta.

    Integrals over log r by Gauss rules in panels, to about 12 digits; fewer where beta times an energy exceeds 1e4: it is rounded.

    Raises
    ------
    ValueError
        If s <= -2 or another parameter is not positive (strength may be 0), or where s is so near -2 that distances leave floating point.
    """

    dim: int
    beta: float
    kappa: float
    strength: float
    s: float

    def __post_init__(self) -> None:
        count(self.dim, "dim")
        for name in ("beta", "kappa", "strength"):
            positive(getattr(self, name), name, zero=name == "strength")
        if not -2 < real(self.s, "s") < np.inf:
            raise ValueError(f"s must be finite and above -2, got {self.s!r}")
        if self.strength > 0 and not self._log_repelled < 300:
            raise ValueError(f"s must leave distances in floating point, got {self.s!r}: the pair rests at exp({self._log_repelled:.3g})")

    def _pair(self, y: FloatArray) -> FloatArray:
        """g_s(r) of y = log r."""
        return -y if self.s == 0 else np.sign(self.s) * np.exp(-self.s * y)

    def _log_weight(self, y: FloatArray, power: float = 0.0) -> FloatArray:
        """log of the weight of y = log r times r^power."""
        with np.errstate(over="ignore"):  # r^-s at small r: weight 0
            return (self.dim + power) * y - self.beta * (self.kappa * np.exp(2 * y) / 4 + self.strength * self._pair(y))

    def _slope(self, y: float, power: float) -> float:
        """Derivative of `_log_weight`, which falls through 0 once: the weight of y has one peak."""
        with np.errstate(over="ignore"):
            repelled = self.strength * (abs(self.s) or 1) * np.exp(-self.s * y)
            return float(self.dim + power - self.beta * (self.kappa * np.exp(2 * y) / 2 - repelled))

    @property
    def _log_repelled(self) -> float:
        """log of the distance at which trap and repulsion balance, strength positive."""
        return float(np.log(2 * self.strength * (abs(self.s) or 1) / self.kappa) / (self.s + 2))

    @cached_property
    def _panels(self) -> Panels:
        edges, top = self._edges(0.0)
        points, weight = _gauss(edges)
        return Panels(edges, top, (np.exp(self._log_weight(points) - top) * weight).sum(-1))

    def _edges(self, power: float) -> tuple[FloatArray, float]:
        """Edges in y that hold all but 1e-18 of the weight times r^power, equal ones and finer ones where it ends; its largest log."""
        thermal = -np.log(self.beta * self.kappa / 2) / 2
        middle = max(thermal, self._log_repelled) if self.strength > 0 else thermal
        low, high = middle - 60 / min(1.0, self.dim + power), middle + 30
        peak = bisect(self._slope, low, high, args=(power,))
        top = float(self._log_weight(np.array(peak), power))
        first, last = (
            bisect(lambda y: float(self._log_weight(np.array(y), power)) - top + 42, *sorted((peak, end))) for end in (low, high)
        )
        parts = [np.linspace(first, last, 33), last - (last - first) * 0.5 ** np.arange(1, max(2, np.log2(last - first) + 3))]
        if self.s > 0 and self.strength > 0:  # to where the repulsion is 1e-16 of the temperature
            parts.append(np.linspace(first, min(last, (np.log(self.beta * self.strength) + 37) / self.s), 33))
        return np.unique(np.concatenate(parts)), top

    @property
    def log_partition(self) -> float:
        """log Z_2 = log int exp(-2 beta H_2) dx."""
        sphere = np.log(2) + self.dim / 2 * np.log(np.pi) - gammaln(self.dim / 2)
        return float(self.dim / 2 * np.log(np.pi / (self.beta * self.kappa)) + sphere + self._panels.top + np.log(self._panels.mass.sum()))

    def distance_moment(self, power: float) -> float:
        """E |x_1 - x_2|^power, power > -dim (below it may be infinite, and raises)."""
        if not -self.dim < real(power, "power") < np.inf:
            raise ValueError(f"power must be finite and above -dim = {-self.dim}, got {power!r}")
        points, weight = _gauss(np.union1d(self._panels.edges, self._edges(power)[0]))
        log = self._log_weight(points) - self._panels.top  # the same rounding of beta times the energy above and below
        scale = np.max(log + power * points)
        return float(np.exp(scale) * np.sum(np.exp(log + power * points - scale) * weight) / np.sum(np.exp(log) * weight))

    @property
    def _pair_mean(self) -> float:
        """E g_s(r)."""
        points, weight = _gauss(self._panels.edges)
        weight = weight * np.exp(self._log_weight(points) - self._panels.top)
        return float(np.sum(self._pair(points) * weight) / weight.sum())

    @property
    def energy(self) -> float:
        """E H_2: half of dim/(2 beta) from the centre, kappa E r^2/4 and strength E g_s(r)."""
        return (self.dim / (2 * self.beta) + self.kappa / 4 * self.distance_moment(2) + self.strength * self._pair_mean) / 2

    @property
    def second_moment(self) -> float:
        """E (|x_1|^2 + |x_2|^2)/2 = dim/(2 beta kappa) + E r^2/4."""
        return self.dim / (2 * self.beta * self.kappa) + self.distance_moment(2) / 4

    def distance_density(self, r: ArrayLike) -> FloatArray:
        """Density of |x_1 - x_2| at r, shape of r; zero for r <= 0."""
        r = finite(r, "r")
        _, top, mass = self._panels
        y = np.log(np.where(r > 0, r, 1.0))
        return np.where(r > 0, np.exp(self._log_weight(y) - top - y), 0.0) / mass.sum()

    def distance_cdf(self, r: ArrayLike) -> FloatArray:
        """P(|x_1 - x_2| <= r), shape of r."""
        r = finite(r, "r")
        edges = self._panels[0]
        return self._cdf(np.clip(np.log(np.where(r > 0, r, 1.0)), edges[0], edges[-1])) * (r > 0)

    def _cdf(self, y: FloatArray) -> FloatArray:
        """P(log r <= y) of y within the panels: whole panels and a Gauss rule over the rest."""
        edges, top, mass = self._panels
        panel = np.clip(np.searchsorted(edges, y, side="right") - 1, 0, len(mass) - 1)
        half = (y - edges[panel]) / 2
        points = edges[panel][..., None] + half[..., None] * (1 + NODE)
        part = half * (np.exp(self._log_weight(points) - top) @ WEIGHT)
        return (np.concatenate([[0.0], np.cumsum(mass)])[panel] + part) / mass.sum()

    def sample(self, rng: int | np.random.Generator, size: int = 1) -> Float[np.ndarray, "size 2 dim"]:
        """Exact samples (size, 2, dim): the distance by inversion, the direction and the centre from Gaussians."""
        rng, size, edges = generator(rng), count(size, "size"), self._panels[0]
        level, low, high = rng.random(size), np.full(size, edges[0]), np.full(size, edges[-1])
        for _ in range(55):
            middle = (low + high) / 2
            below = self._cdf(middle) < level
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        direction = rng.standard_normal((size, self.dim))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        apart = np.exp(low)[:, None] * direction / 2
        centre = rng.standard_normal((size, self.dim)) / np.sqrt(2 * self.beta * self.kappa)
        return np.stack([centre + apart, centre - apart], axis=1)


def _gauss(edges: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Gauss points and weights (panel, point) of each panel between the edges."""
    half = np.diff(edges)[:, None] / 2
    return edges[:-1, None] + half * (1 + NODE), half * WEIGHT
