"""Nonstationary kernels and their joint spectral densities (Yaglom's theorem).

A particle is a pair of frequencies (w1, w2), a point in twice the dimension, of law g. Its symmetrised measure puts 1/4 on each of
(w1, w1), (w2, w2), (w1, w2), (w2, w1), which makes k(x, y) = E exp(i (a . x - b . y)), (a, b) of that measure, a real kernel:
k = (1/4) E[(cos w1.x + cos w2.x)(cos w1.y + cos w2.y) + (sin w1.x + sin w2.x)(sin w1.y + sin w2.y)].
Sources: Yaglom 1987; Remes, Heinonen & Kaski 2017; Flexformer's nonstationary features. w1 = w2 gives back Bochner's stationary kernels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from theory.arrays import FloatArray, count, finite, generator, positive, real
from theory.spectral.stationary_kernels import vectors

__all__ = ["GaussianPair", "yaglom_kernel"]


def yaglom_kernel(x: ArrayLike, y: ArrayLike, omega: ArrayLike, weights: ArrayLike | None = None) -> FloatArray:
    """Mean over pairs omega (n, 2 dim) = (w1, w2) of the kernel of one pair, optionally weighted (n,); x, y (..., dim) -> (...).

    Weighted by the quadrature weights of a density g it is the kernel of g; unweighted, that of particles or of a sample.
    """
    x, y, omega = vectors(x, "x"), vectors(y, "y"), finite(omega, "omega")
    if omega.ndim != 2 or not omega.size or x.shape[-1] != y.shape[-1] or omega.shape[1] != 2 * x.shape[-1]:
        raise ValueError(f"x, y, omega must have shapes (..., dim), (..., dim), (n, 2 dim), got {x.shape}, {y.shape}, {omega.shape}")
    w = omega.reshape(len(omega), 2, -1)
    phase_x, phase_y = (np.exp(1j * np.einsum("...d,npd->...np", point, w)).sum(-1) for point in (x, y))
    values = 0.25 * (phase_x * phase_y.conj()).real
    if weights is None:
        return values.mean(-1)
    weights = finite(weights, "weights")
    if weights.shape != (len(omega),):
        raise ValueError(f"weights must have shape ({len(omega)},), got {weights.shape}")
    return values @ weights


@dataclass(frozen=True, eq=False)
class GaussianPair:
    """The pair of a normal g: (w1, w2) ~ N(mean, covariance), mean (2 dim,), covariance (2 dim, 2 dim); its kernel in closed form.

    With phi(s, t) = E exp(i (w1.s + w2.t)), k(x, y) = Re [phi(x-y, 0) + phi(0, x-y) + phi(x, -y) + phi(-y, x)] / 4: half is
    stationary, and half, the cross part, decays away from the origin unless w1 = w2. k(0, 0) = 1 and 0 <= k(x, x) <= 1.
    ValueError if the covariance is not symmetric and positive semi-definite.
    """

    mean: FloatArray
    covariance: FloatArray

    def __post_init__(self) -> None:
        mean, covariance = finite(self.mean, "mean"), finite(self.covariance, "covariance")
        if mean.ndim != 1 or not mean.size or mean.size % 2 or covariance.shape != 2 * mean.shape:
            raise ValueError(f"mean and covariance must have shapes (2 dim,), (2 dim, 2 dim), got {mean.shape}, {covariance.shape}")
        size = np.abs(covariance).max()
        if np.abs(covariance - covariance.T).max() > 1e-12 * size or np.linalg.eigvalsh(covariance)[0] < -1e-12 * size:
            raise ValueError(f"covariance must be symmetric and positive semi-definite, got {self.covariance!r}")
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "covariance", covariance)

    @classmethod
    def isotropic(cls, dim: int, *, length: float = 1.0, correlation: float = 0.0) -> GaussianPair:
        """Centred frequencies of standard deviation 1/length, each coordinate of w1 correlated with the same one of w2.

        k = (1/2) exp(-|x-y|^2 / (2 l^2)) + (1/2) exp(-(|x|^2 + |y|^2 - 2 correlation x.y) / (2 l^2)): correlation 1 is Bochner's Gaussian.
        """
        if not -1 <= real(correlation, "correlation") <= 1:
            raise ValueError(f"correlation must be in [-1, 1], got {correlation!r}")
        block = np.array([[1.0, correlation], [correlation, 1.0]]) / positive(length, "length") ** 2
        return cls(np.zeros(2 * count(dim, "dim")), np.kron(block, np.eye(dim)).astype(np.float64))

    @property
    def dim(self) -> int:
        """Dimension of x; a particle has twice as many coordinates."""
        return self.mean.size // 2

    def characteristic(self, s: ArrayLike) -> np.ndarray:
        """phi(s) = E exp(i w . s) of the pair w = (w1, w2), s (..., 2 dim) -> complex (...)."""
        s = self._vectors(s, "s", 2 * self.dim)
        return np.exp(1j * (s @ self.mean) - 0.5 * np.einsum("...i,ij,...j->...", s, self.covariance, s))

    def kernel(self, x: ArrayLike, y: ArrayLike) -> FloatArray:
        """k(x, y), x and y (..., dim) -> (...)."""
        return self.characteristic(self.terms(x, y)).real.mean(0)

    def cross(self, x: ArrayLike, y: ArrayLike) -> FloatArray:
        """Nonstationary part Re [phi(x, -y) + phi(-y, x)] / 2, so that k = (stationary + cross) / 2; (...).

        With a regular covariance it is integrable, and its Fourier transform is the even and symmetric part of the density:
        (2 pi)^(-2 dim) int cross e^(-i (a.x - b.y)) dx dy = mean of g at (a, b), (b, a), (-a, -b), (-b, -a).
        """
        return self.characteristic(self.terms(x, y)[2:]).real.mean(0)

    def terms(self, x: ArrayLike, y: ArrayLike) -> FloatArray:
        """The four s with k = mean of Re phi(s): (x-y, 0), (0, x-y), (x, -y), (-y, x); shape (4, ..., 2 dim)."""
        x, y = self._vectors(x, "x", self.dim), self._vectors(y, "y", self.dim)
        x, y = np.broadcast_arrays(x, y)
        zero = np.zeros_like(x)
        return np.stack([np.concatenate(pair, -1) for pair in ((x - y, zero), (zero, x - y), (x, -y), (-y, x))])

    def density(self, omega: ArrayLike) -> FloatArray:
        """g at pairs omega (..., 2 dim) -> (...). ValueError if the covariance is singular (no density)."""
        omega = self._vectors(omega, "omega", 2 * self.dim) - self.mean
        values, axes = np.linalg.eigh(self.covariance)
        if values[0] <= 1e-12 * values[-1]:
            raise ValueError("covariance must be regular for a density to exist, got a singular one")
        return np.exp(-0.5 * np.sum((omega @ axes) ** 2 / values, -1) - 0.5 * np.sum(np.log(2 * np.pi * values)))

    def sample(self, n: int, rng: int | np.random.Generator) -> Float[np.ndarray, "n pair"]:
        """n independent pairs, shape (n, 2 dim)."""
        values, axes = np.linalg.eigh(self.covariance)
        noise = generator(rng).standard_normal((count(n, "n"), 2 * self.dim))
        return self.mean + (noise * np.sqrt(np.maximum(values, 0.0))) @ axes.T  # negative by round-off only

    def _vectors(self, x: ArrayLike, name: str, dim: int) -> FloatArray:
        x = vectors(x, name)
        if x.shape[-1] != dim:
            raise ValueError(f"{name} must have a last axis of {dim}, got shape {x.shape}")
        return x
