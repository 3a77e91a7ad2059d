"""Spectral pairs made of Gaussians: of mixed variance (rational quadratic) and of mixed mean and variance (spectral mixture)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.special import gammaln, poch

from theory.arrays import FloatArray, count, finite, generator, positive
from theory.spectral.stationary_kernels import LARGEST_ORDER, Isotropic, SpectralPair, log_bessel_k, squared, vectors

__all__ = ["RationalQuadratic", "SpectralMixture"]


@dataclass(frozen=True)
class RationalQuadratic(Isotropic):
    """k = (1 + |delta|^2 / (2 alpha length^2))^-alpha: Gaussian frequencies whose variance is Gamma(alpha, mean length^-2).

    Source: Rasmussen & Williams 2006, eq. 4.19; the density is a variance-gamma one (Bessel K). It is infinite at 0 if alpha <= dim/2,
    and raises for alpha over 10^4, where the logarithms of its factors cancel.
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "alpha", positive(self.alpha, "alpha"))

    def kernel(self, delta: ArrayLike) -> FloatArray:
        """k(delta), shape (...)."""
        return np.exp(-self.alpha * np.log1p(squared(delta, "delta", 1 / self.length) / (2 * self.alpha)))

    def density(self, omega: ArrayLike) -> FloatArray:
        """Variance-gamma density, shape (...)."""
        omega = vectors(omega, "omega")
        a, half = self.alpha, omega.shape[-1] / 2
        if a > LARGEST_ORDER:
            raise ValueError(f"alpha must be at most {LARGEST_ORDER:g} for a density, got {a!r}")
        z = np.sqrt(2 * a * squared(omega, "omega", self.length))
        safe, order = np.where(z > 0, z, 1.0), a - half
        log_shape = np.where(
            z > 0, order * np.log(safe / 2) + log_bessel_k(order, safe), gammaln(order) - np.log(2) if order > 0 else np.inf
        )
        return 2 * np.exp(half * np.log(a / (2 * np.pi)) + 2 * half * np.log(self.length) - gammaln(a) + log_shape)

    def _moment(self, p: float, dim: int) -> float:
        return float((2 / self.alpha) ** (p / 2) * poch(dim / 2, p / 2) * poch(self.alpha, p / 2)) if p > -2 * self.alpha else np.inf

    def _squared_norms(self, n: int, dim: int, rng: np.random.Generator) -> FloatArray:
        return rng.gamma(self.alpha, 1 / self.alpha, n) * rng.chisquare(dim, n) / self.length**2


@dataclass(frozen=True, eq=False)
class SpectralMixture(SpectralPair):
    """k = sum_q weight_q prod_j exp(-(delta_j scale_qj)^2 / 2) cos(delta . mean_q) (Wilson & Adams 2013), sum of the weights 1.

    The density is the mixture of N(mean_q, diag scale_q^2), made even. weights (q,), means and scales (q, dim) in units of frequency.
    Scale mixtures of Gaussians centred anywhere are dense among the stationary kernels (Wilson & Adams; Samo & Roberts 2015).
    """

    weights: FloatArray
    means: FloatArray
    scales: FloatArray

    def __post_init__(self) -> None:
        weights, means, scales = finite(self.weights, "weights"), finite(self.means, "means"), finite(self.scales, "scales")
        if weights.ndim != 1 or not weights.size or (weights < 0).any() or abs(weights.sum() - 1) > 1e-9:
            raise ValueError(f"weights must have shape (q,), be at least 0 and sum to 1, got {self.weights!r}")
        if means.ndim != 2 or means.shape != scales.shape or len(means) != len(weights):
            raise ValueError(f"means and scales must have shape ({len(weights)}, dim), got {means.shape} and {scales.shape}")
        if (scales <= 0).any():
            raise ValueError(f"scales must be positive, got {self.scales!r}")
        for name, value in (("weights", weights), ("means", means), ("scales", scales)):
            object.__setattr__(self, name, value)

    def kernel(self, delta: ArrayLike) -> FloatArray:
        """k(delta), shape (...)."""
        delta = self._of_dim(delta, "delta")
        envelope = np.exp(-0.5 * np.sum((delta[..., None, :] * self.scales) ** 2, -1))
        return (envelope * np.cos(delta @ self.means.T)) @ self.weights

    def density(self, omega: ArrayLike) -> FloatArray:
        """The even Gaussian mixture at omega, shape (...)."""
        omega = self._of_dim(omega, "omega")[..., None, :]
        logs = [-0.5 * np.sum(((omega - sign * self.means) / self.scales) ** 2, -1) for sign in (1, -1)]
        front = np.prod(np.sqrt(2 * np.pi) * self.scales, -1)
        return (np.exp(logs).mean(0) / front) @ self.weights

    def sample(self, n: int, dim: int, rng: int | np.random.Generator) -> Float[np.ndarray, "n dim"]:
        """n independent frequencies, shape (n, dim); dim must be the mixture's."""
        rng, size = generator(rng), self.means.shape
        if dim != size[1]:
            raise ValueError(f"dim must be {size[1]}, the mixture's, got {dim!r}")
        label = rng.choice(size[0], count(n, "n"), p=self.weights)
        signs = rng.choice([-1.0, 1.0], (n, 1))
        return signs * self.means[label] + self.scales[label] * rng.standard_normal((n, dim))

    def _of_dim(self, x: ArrayLike, name: str) -> FloatArray:
        x = vectors(x, name)
        if x.shape[-1] != self.means.shape[1]:
            raise ValueError(f"{name} must have a last axis of {self.means.shape[1]}, got shape {x.shape}")
        return x
