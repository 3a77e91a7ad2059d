"""Stationary kernels and their spectral densities, exact variances of random features, and spectra of Gram matrices.

A stationary kernel is k(delta) = E cos(w . delta) with w drawn from its spectral density (Bochner), so frequencies that
follow the density are particles that carry the kernel. `length` is in the unit of x, frequencies in its inverse: the spectral
scale of a sampler is 1/length.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import comb, gammaln, kv

from theory.arrays import FloatArray, count, finite, positive

__all__ = [
    "Cauchy",
    "Exponential",
    "Gaussian",
    "Laplace",
    "MarchenkoPastur",
    "Matern",
    "effective_rank",
    "feature_rank",
    "fourier_variance",
    "hyperbolic_variance",
    "phase_variance",
    "positive_variance",
    "trigonometric_variance",
]


@dataclass(frozen=True)
class SpectralPair:
    """A kernel of the given `length` and its spectral density; subclasses give `kernel(delta)` and `density(omega)`.

    `delta` and `omega` have shape (..., dim); the results have shape (...).
    """

    length: float = 1.0

    def __post_init__(self) -> None:
        positive(self.length, "length")

    def kernel(self, delta: ArrayLike) -> FloatArray:
        """k(delta), shape (...)."""
        raise NotImplementedError

    def density(self, omega: ArrayLike) -> FloatArray:
        """Spectral density at omega, shape (...); it integrates to k(0) = 1."""
        raise NotImplementedError


@dataclass(frozen=True)
class Gaussian(SpectralPair):
    """k = exp(-|delta|^2 / (2 length^2)), frequencies N(0, length^-2 I) (Rahimi & Recht 2007)."""

    def kernel(self, delta: ArrayLike) -> FloatArray:
        """k(delta), shape (...)."""
        return np.exp(-0.5 * _squared(delta, "delta") / self.length**2)

    def density(self, omega: ArrayLike) -> FloatArray:
        """Normal density of covariance length^-2 I, shape (...)."""
        omega = _vectors(omega, "omega")
        return np.exp(-0.5 * _squared(omega, "omega") * self.length**2) * (self.length / np.sqrt(2 * np.pi)) ** omega.shape[-1]


@dataclass(frozen=True)
class Laplace(SpectralPair):
    """k = exp(-|delta|_1 / length), frequencies with independent Cauchy(0, 1/length) coordinates (Rahimi & Recht 2007)."""

    def kernel(self, delta: ArrayLike) -> FloatArray:
        """k(delta), shape (...)."""
        return np.exp(-np.abs(_vectors(delta, "delta")).sum(-1) / self.length)

    def density(self, omega: ArrayLike) -> FloatArray:
        """Product of Cauchy densities of scale 1/length, shape (...)."""
        return np.prod(self.length / (np.pi * (1 + (self.length * _vectors(omega, "omega")) ** 2)), axis=-1)


@dataclass(frozen=True)
class Cauchy(SpectralPair):
    """k = prod_j 1/(1 + delta_j^2 / length^2), frequencies with independent Laplace(0, 1/length) coordinates (Rahimi & Recht 2007)."""

    def kernel(self, delta: ArrayLike) -> FloatArray:
        """k(delta), shape (...)."""
        return np.prod(1 / (1 + (_vectors(delta, "delta") / self.length) ** 2), axis=-1)

    def density(self, omega: ArrayLike) -> FloatArray:
        """Product of Laplace densities of scale 1/length, shape (...)."""
        return np.prod(0.5 * self.length * np.exp(-self.length * np.abs(_vectors(omega, "omega"))), axis=-1)


@dataclass(frozen=True)
class Matern(SpectralPair):
    """k = 2^(1-nu)/Gamma(nu) z^nu K_nu(z), z = sqrt(2 nu) |delta| / length; frequencies multivariate Student-t (2 nu dof, scale 1/length).

    Source: Rasmussen & Williams 2006, section 4.2.1.
    """

    nu: float = 1.5

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self.nu, "nu")

    def kernel(self, delta: ArrayLike) -> FloatArray:
        """k(delta), shape (...)."""
        z = np.sqrt(2 * self.nu * _squared(delta, "delta")) / self.length
        safe = np.where(z > 0, z, 1.0)
        log_front = (1 - self.nu) * np.log(2) - gammaln(self.nu) + self.nu * np.log(safe)
        return np.where(z > 0, np.exp(log_front) * kv(self.nu, safe), 1.0)

    def density(self, omega: ArrayLike) -> FloatArray:
        """Multivariate Student-t density with 2 nu degrees of freedom, shape (...)."""
        omega = _vectors(omega, "omega")
        dof, dim = 2 * self.nu, omega.shape[-1]
        log_front = gammaln((dof + dim) / 2) - gammaln(dof / 2) + dim * (np.log(self.length) - 0.5 * np.log(dof * np.pi))
        return np.exp(log_front - 0.5 * (dof + dim) * np.log1p(self.length**2 * _squared(omega, "omega") / dof))


@dataclass(frozen=True)
class Exponential(SpectralPair):
    """k = exp(-|delta| / length), frequencies multivariate Cauchy of scale 1/length: the Matern pair with nu = 1/2."""

    def kernel(self, delta: ArrayLike) -> FloatArray:
        """k(delta), shape (...)."""
        return np.exp(-np.sqrt(_squared(delta, "delta")) / self.length)

    def density(self, omega: ArrayLike) -> FloatArray:
        """Multivariate Cauchy density, shape (...)."""
        return Matern(self.length, nu=0.5).density(omega)


def fourier_variance(delta: ArrayLike, pair: SpectralPair) -> FloatArray:
    """Variance of one cos/sin pair's estimate cos(w . delta) of k(delta): (1 + k(2 delta))/2 - k(delta)^2.

    delta (..., dim) -> (...). The mean of m independent pairs divides it by m (Sutherland & Schneider 2015).
    """
    if not isinstance(pair, SpectralPair):
        raise ValueError(f"pair must be a SpectralPair such as Gaussian(1.0), got {pair!r}")
    return 0.5 * (1 + pair.kernel(2 * finite(delta, "delta"))) - pair.kernel(delta) ** 2


def phase_variance(delta: ArrayLike, pair: SpectralPair) -> FloatArray:
    """Variance of 2 cos(w.x + b) cos(w.y + b), b uniform: that of the pair plus 1/2 (Sutherland & Schneider 2015)."""
    return fourier_variance(delta, pair) + 0.5


def positive_variance(x: ArrayLike, y: ArrayLike) -> FloatArray:
    """Variance of exp(w.(x+y) - |x|^2/2 - |y|^2/2), w ~ N(0, I), as an estimate of e^(x.y); x, y (..., dim) -> (...).

    Source: Choromanski et al. 2021 (Performer), Lemma 2.
    """
    x, y = _two(x, y)
    return np.exp(2 * np.sum(x * y, -1)) * np.expm1(_squared(x + y, "x + y"))


def hyperbolic_variance(x: ArrayLike, y: ArrayLike) -> FloatArray:
    """Variance when each w gives the two features e^(w.x), e^(-w.x) over sqrt(2): (1 - e^(-|x+y|^2))/2 of the positive one."""
    x, y = _two(x, y)
    z2 = _squared(x + y, "x + y")
    return -0.5 * np.expm1(-z2) * positive_variance(x, y)


def trigonometric_variance(x: ArrayLike, y: ArrayLike) -> FloatArray:
    """Variance of e^((|x|^2+|y|^2)/2) cos(w.(x-y)), w ~ N(0, I), as an estimate of e^(x.y) (Performer, Lemma 2).

    Flexformer's scaled pair is this with x and y multiplied by dim^(-1/4).
    """
    x, y = _two(x, y)
    return 0.5 * np.exp(_squared(x, "x") + _squared(y, "y")) * np.expm1(-_squared(x - y, "x - y")) ** 2


@dataclass(frozen=True)
class MarchenkoPastur:
    """Limit spectrum of Z Z^T / n_columns for Z (n_rows, n_columns) iid of unit variance, ratio = n_rows / n_columns.

    For nonlinear features this is the law of their centred, isotropic linear part only. Source: Marchenko & Pastur 1967.
    """

    ratio: float

    def __post_init__(self) -> None:
        positive(self.ratio, "ratio")

    @property
    def edges(self) -> tuple[float, float]:
        """Ends of the continuous part."""
        root = np.sqrt(self.ratio)
        return float((1 - root) ** 2), float((1 + root) ** 2)

    @property
    def atom(self) -> float:
        """Mass at zero: 1 - 1/ratio when there are more rows than columns."""
        return max(0.0, 1 - 1 / self.ratio)

    def density(self, x: ArrayLike) -> FloatArray:
        """Density of the continuous part (its mass is 1 - atom), zero outside the edges; shape of x."""
        x = finite(x, "x")
        low, high = self.edges
        inside = (x > low) & (x < high)
        safe = np.where(inside, x, 1.0)
        root = np.sqrt(np.where(inside, (high - safe) * (safe - low), 0.0))
        return np.where(inside, root / (2 * np.pi * self.ratio * safe), 0.0)

    def moment(self, order: int) -> float:
        """E lambda^order, a Narayana polynomial of the ratio: 1, 1 + ratio, 1 + 3 ratio + ratio^2, ..."""
        k = count(order, "order")
        return float(sum(comb(k, r) * comb(k - 1, r) * self.ratio**r / (r + 1) for r in range(k)))


def effective_rank(gram: ArrayLike) -> float:
    """exp of the entropy of the normalised eigenvalues of a positive semi-definite matrix (n, n) (Roy & Vetterli 2007).

    Raises
    ------
    ValueError
        If the matrix is not square and symmetric, has a clearly negative eigenvalue, or is zero.
    """
    gram = finite(gram, "gram")
    if (
        gram.ndim != 2
        or not gram.size
        or gram.shape[0] != gram.shape[1]
        or not np.allclose(gram, gram.T, rtol=1e-6, atol=1e-9 * np.abs(gram).max(initial=0))
    ):
        raise ValueError(f"gram must be a symmetric matrix, got shape {gram.shape}")
    values = np.linalg.eigvalsh(gram)
    if values[-1] <= 0 or values[0] < -1e-6 * values[-1]:
        raise ValueError(f"gram must be positive semi-definite and not zero, got eigenvalues from {values[0]} to {values[-1]}")
    share = values[values > 0] / values[values > 0].sum()
    return float(np.exp(-np.sum(share * np.log(share))))


def feature_rank(phi: ArrayLike) -> float:
    """Effective rank of phi phi^T for features phi (n, feature), through the smaller of the two Gram matrices."""
    phi = finite(phi, "phi")
    if phi.ndim != 2:
        raise ValueError(f"phi must have shape (n, feature), got {phi.shape}")
    return effective_rank(phi @ phi.T if phi.shape[0] <= phi.shape[1] else phi.T @ phi)


def _vectors(x: ArrayLike, name: str) -> FloatArray:
    """x (..., dim)."""
    x = finite(x, name)
    if x.ndim == 0:
        raise ValueError(f"{name} must have a last axis dim, got a scalar")
    return x


def _two(x: ArrayLike, y: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """x and y (..., dim) of shapes that broadcast."""
    x, y = _vectors(x, "x"), _vectors(y, "y")
    if x.shape[-1] != y.shape[-1]:
        raise ValueError(f"x and y must have the same dim, got shapes {x.shape} and {y.shape}")
    return x, y


def _squared(x: ArrayLike, name: str) -> FloatArray:
    """|x|^2 over the last axis."""
    return np.sum(_vectors(x, name) ** 2, axis=-1)
