"""Spectral pairs of which one side vanishes beyond a distance: frequencies in a ball (Bessel), kernels of compact support (Wendland)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.special import beta, gammaln, poch

from theory.arrays import FloatArray, count, positive, real
from theory.spectral.stationary_kernels import Isotropic, hyp0f1, squared, vectors

__all__ = ["Bessel", "Wendland"]


@dataclass(frozen=True)
class Bessel(Isotropic):
    """Frequencies in the ball |omega| <= 1/length of density ~ (1 - length^2 |omega|^2)^exponent; -1 is uniform on its sphere.

    k = Gamma(m+1) (2/z)^m J_m(z), z = |delta|/length, m = dim/2 + exponent (Watson 1944, 3.3; exponent 0 is the uniform ball: sinc
    in 1-D, jinc in 2-D; exponent 1/2 in 1-D the semicircle). The equilibria of Riesz gases in a quadratic trap have this density,
    with exponent 1 - (dim - s)/2, so this is the kernel that such particles learn; -(dim - s)/2 is the hard-wall ball. The sphere has
    a kernel and samples but no density (ValueError).
    """

    exponent: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not np.isfinite(real(self.exponent, "exponent")) or self.exponent < -1:
            raise ValueError(f"exponent must be finite and at least -1, got {self.exponent!r}")
        object.__setattr__(self, "exponent", float(self.exponent))

    def kernel(self, delta: ArrayLike) -> FloatArray:
        """k(delta), shape (...); it depends on dim."""
        delta = vectors(delta, "delta")
        return hyp0f1(delta.shape[-1] / 2 + self.exponent + 1, -0.25 * squared(delta, "delta", 1 / self.length))

    def density(self, omega: ArrayLike) -> FloatArray:
        """Density on the ball, zero outside, shape (...)."""
        omega = vectors(omega, "omega")
        half, a = omega.shape[-1] / 2, self._regular()
        left = 1 - squared(omega, "omega", self.length)
        front = np.exp(gammaln(half + a + 1) - gammaln(a + 1) + half * (2 * np.log(self.length) - np.log(np.pi)))
        return np.where(left > 0, front * np.where(left > 0, left, 1.0) ** a, 0.0)

    def squared_norm(self, dim: int) -> Any:
        """Beta(dim/2, exponent + 1), over length^2."""
        return stats.beta(count(dim, "dim") / 2, self._regular() + 1, scale=self.length**-2)

    def _regular(self) -> float:
        if self.exponent == -1:
            raise ValueError("exponent must be over -1 for a density, got -1, the sphere")
        return self.exponent

    def _squared_norms(self, n: int, dim: int, rng: np.random.Generator) -> FloatArray:
        return np.full(n, self.length**-2) if self.exponent == -1 else super()._squared_norms(n, dim, rng)

    def marginal(self, dim: int) -> Any:
        """Symmetric beta law on [-1/length, 1/length] of parameter exponent + (dim + 1)/2."""
        shape = self.exponent + (count(dim, "dim") + 1) / 2
        if shape == 0:
            raise ValueError("exponent must be over -1 for a marginal in dim 1, got -1, two points")
        return stats.beta(shape, shape, loc=-1 / self.length, scale=2 / self.length)

    def _moment(self, p: float, dim: int) -> float:
        return float(poch(dim / 2, p / 2) / poch(dim / 2 + self.exponent + 1, p / 2))


@dataclass(frozen=True)
class Wendland(Isotropic):
    """Kernels that vanish beyond `length`: (1-r)^mu times a polynomial, r = |delta|/length, with 2 `smoothness` derivatives at 0.

    Positive definite in dim <= 2 (mu - smoothness) - 1, and only there (ValueError otherwise). The density is a 1F2 function.
    Source: Wendland 1995; Zastavnyi 2006; Bevilacqua et al. 2019. smoothness is 0, 1 or 2.
    """

    mu: float = 4.0
    smoothness: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if count(self.smoothness, "smoothness", least=0) > 2:
            raise ValueError(f"smoothness must be 0, 1 or 2, got {self.smoothness!r}")
        self._order(1)

    def _order(self, dim: int) -> float:
        order = (dim + 1) / 2 + self.smoothness
        if positive(self.mu, "mu") < order:
            raise ValueError(f"mu must be at least (dim + 1)/2 + smoothness = {order} in dim {dim}, got {self.mu!r}")
        return order

    def kernel(self, delta: ArrayLike) -> FloatArray:
        """k(delta), shape (...)."""
        delta = vectors(delta, "delta")
        self._order(delta.shape[-1])
        r = np.minimum(np.sqrt(squared(delta, "delta", 1 / self.length)), 1.0)
        return (1 - r) ** (self.mu + self.smoothness) * np.polynomial.polynomial.polyval(r, self._polynomial())

    def _polynomial(self) -> list[float]:
        e = self.mu + self.smoothness
        return [1.0, e, (e**2 - 1) / 3][: self.smoothness + 1]

    def density(self, omega: ArrayLike) -> FloatArray:
        """f(0) 1F2(order; order + mu/2, order + (mu+1)/2; -(length |omega|)^2 / 4), shape (...), by mpmath."""
        from mpmath import hyp1f2

        omega = vectors(omega, "omega")
        dim = omega.shape[-1]
        order, a = self._order(dim), self.mu
        at_zero = sum(c * beta(dim + j, a + self.smoothness + 1) for j, c in enumerate(self._polynomial()))  # int k r^(dim-1) dr
        at_zero *= 2 * np.exp(dim * np.log(self.length / (2 * np.sqrt(np.pi))) - gammaln(dim / 2))
        values = np.vectorize(lambda z: float(hyp1f2(order, order + a / 2, order + (a + 1) / 2, -z / 4)), otypes=[float])
        return at_zero * values(squared(omega, "omega", self.length))
