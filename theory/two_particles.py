"""Exact laws of two Riesz particles in a quadratic trap: every dimension, every exponent s > -2, every temperature.

The centre of mass is a Gaussian, the direction of x_1 - x_2 uniform, and the distance r has a weight on one line:
r^(dim-1) exp(-beta [kappa r^2/4 + strength g_s(r)]). With the log r^2 beta kappa/4 is Gamma((dim + beta strength)/2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.optimize import bisect
from scipy.special import gammaln

from theory.arrays import FloatArray, count, finite, generator, positive, real

__all__ = ["TwoParticles"]

NODE, WEIGHT = np.polynomial.legendre.leggauss(20)
PANELS = 64


@dataclass(frozen=True)
class TwoParticles:
    """Two particles with energy 2 H_2 = kappa (|x_1|^2 + |x_2|^2)/2 + strength g_s(x_1 - x_2) at inverse temperature beta.

    Integrals over log r by Gauss rules in 64 panels, to about 13 digits.

    Raises
    ------
    ValueError
        If s <= -2 or another parameter is not positive (strength may be 0).
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

    def _pair(self, r: FloatArray) -> FloatArray:
        """g_s(r)."""
        return -np.log(r) if self.s == 0 else np.sign(self.s) * r**-self.s

    def _log_weight(self, y: FloatArray) -> FloatArray:
        """log of the weight of y = log r."""
        with np.errstate(over="ignore"):  # r^-s at small r: weight 0
            r = np.exp(y)
            return self.dim * y - self.beta * (self.kappa * r**2 / 4 + self.strength * self._pair(r))

    def _slope(self, y: float) -> float:
        """Derivative of `_log_weight`, which falls through 0 once: the weight of y has one peak."""
        with np.errstate(over="ignore"):
            repelled = self.strength * (abs(self.s) or 1) * np.exp(-self.s * y)
            return float(self.dim - self.beta * (self.kappa * np.exp(2 * y) / 2 - repelled))

    @cached_property
    def _panels(self) -> tuple[FloatArray, float, FloatArray]:
        """Edges (PANELS+1,) in y that hold all but 1e-18 of the weight, the largest log weight, and the masses (PANELS,) relative to it."""
        repelled = (2 * self.strength * (abs(self.s) or 1) / self.kappa) ** (1 / (self.s + 2))
        low, high = np.log(max(np.sqrt(2 / (self.beta * self.kappa)), repelled)) + np.array([-60.0, 30.0])
        peak = bisect(self._slope, low, high)
        top = float(self._log_weight(np.array(peak)))
        first, last = (bisect(lambda y: float(self._log_weight(np.array(y))) - top + 42, *sorted((peak, end))) for end in (low, high))
        edges = np.linspace(first, last, PANELS + 1)
        half = (edges[1] - edges[0]) / 2
        return edges, top, half * np.exp(self._log_weight(edges[:-1, None] + half * (1 + NODE)) - top) @ WEIGHT

    @property
    def log_partition(self) -> float:
        """log Z_2 = log int exp(-2 beta H_2) dx."""
        _, top, mass = self._panels
        sphere = np.log(2) + self.dim / 2 * np.log(np.pi) - gammaln(self.dim / 2)
        return float(self.dim / 2 * np.log(np.pi / (self.beta * self.kappa)) + sphere + top + np.log(mass.sum()))

    def distance_moment(self, power: float) -> float:
        """E |x_1 - x_2|^power, power > -dim (below it may be infinite, and raises)."""
        if not real(power, "power") > -self.dim:
            raise ValueError(f"power must be above -dim = {-self.dim}, got {power!r}")
        return self._mean(lambda r: r**power)

    def _mean(self, function: Callable[[FloatArray], FloatArray]) -> float:
        """E function(r)."""
        edges, top, mass = self._panels
        half = (edges[1] - edges[0]) / 2
        points = edges[:-1, None] + half * (1 + NODE)
        values = function(np.exp(points)) * np.exp(self._log_weight(points) - top)
        return float(np.sum(half * values @ WEIGHT) / mass.sum())

    @property
    def energy(self) -> float:
        """E H_2: half of dim/(2 beta) from the centre, kappa E r^2/4 and strength E g_s(r)."""
        return (self.dim / (2 * self.beta) + self.kappa / 4 * self.distance_moment(2) + self.strength * self._mean(self._pair)) / 2

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
        panel = np.clip(np.searchsorted(edges, y, side="right") - 1, 0, PANELS - 1)
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
