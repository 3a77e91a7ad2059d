"""Stationary kernels and their spectral densities (Bochner's theorem).

A stationary kernel is k(delta) = E cos(w . delta) with w drawn from its spectral density, so frequencies that follow the density
are particles that carry the kernel. `length` is in the unit of x, frequencies in its inverse: the spectral scale of a sampler is
1/length. Kernels of the distance give one law of frequencies per dimension, whose radius and coordinates are SciPy distributions
where those exist. Further pairs are in `gaussian_mixtures` and `compact_spectra`; `hankel` transforms any other radial kernel
numerically, and `yaglom` holds the nonstationary kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy import stats
from scipy.special import gammaln, kve, poch
from scipy.special import hyp0f1 as scipy_hyp0f1

from theory.arrays import FloatArray, count, finite, generator, positive, real

__all__ = [
    "Cauchy",
    "Exponential",
    "Gaussian",
    "Isotropic",
    "Laplace",
    "Matern",
    "Product",
    "SpectralPair",
    "hyp0f1",
    "log_bessel_k",
    "squared",
    "vectors",
]

LARGEST_ORDER = 1e4  # of a Bessel function: its logarithm's rounding is then about 1e-11


class SpectralPair:
    """A kernel with k(0) = 1 and its spectral density: `delta` and `omega` have shape (..., dim), the results shape (...)."""

    def kernel(self, delta: ArrayLike) -> FloatArray:
        """k(delta), shape (...)."""
        raise NotImplementedError

    def density(self, omega: ArrayLike) -> FloatArray:
        """Spectral density at omega, shape (...); even, and of total mass k(0) = 1."""
        raise NotImplementedError

    def sample(self, n: int, dim: int, rng: int | np.random.Generator) -> Float[np.ndarray, "n dim"]:
        """n independent frequencies, shape (n, dim)."""
        raise NotImplementedError


@dataclass(frozen=True)
class Product(SpectralPair):
    """A product over the coordinates of one kernel on the line: independent coordinates of law `marginal()`."""

    length: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", positive(self.length, "length"))

    def marginal(self, dim: int = 1) -> Any:
        """Law of one coordinate (the same in every dim), a frozen SciPy distribution: cdf, ppf, moment, ..."""
        raise NotImplementedError

    def density(self, omega: ArrayLike) -> FloatArray:
        """Product of the marginal densities, shape (...)."""
        return np.prod(self.marginal().pdf(vectors(omega, "omega")), axis=-1)

    def sample(self, n: int, dim: int, rng: int | np.random.Generator) -> Float[np.ndarray, "n dim"]:
        """n independent frequencies, shape (n, dim)."""
        return self.marginal().rvs((count(n, "n"), count(dim, "dim")), random_state=generator(rng))


@dataclass(frozen=True)
class Laplace(Product):
    """k = exp(-|delta|_1 / length), frequencies with independent Cauchy(0, 1/length) coordinates (Rahimi & Recht 2007)."""

    def kernel(self, delta: ArrayLike) -> FloatArray:
        """k(delta), shape (...)."""
        return np.exp(-np.abs(vectors(delta, "delta")).sum(-1) / self.length)

    def marginal(self, dim: int = 1) -> Any:
        """Cauchy of scale 1/length."""
        return stats.cauchy(scale=1 / self.length)


@dataclass(frozen=True)
class Cauchy(Product):
    """k = prod_j 1/(1 + delta_j^2 / length^2), frequencies with independent Laplace(0, 1/length) coordinates (Rahimi & Recht 2007)."""

    def kernel(self, delta: ArrayLike) -> FloatArray:
        """k(delta), shape (...)."""
        return np.prod(1 / (1 + (vectors(delta, "delta") / self.length) ** 2), axis=-1)

    def marginal(self, dim: int = 1) -> Any:
        """Laplace of scale 1/length."""
        return stats.laplace(scale=1 / self.length)


@dataclass(frozen=True)
class Isotropic(SpectralPair):
    """A kernel of |delta|: in each dim, uniform directions times an independent radius with |omega|^2 of law `squared_norm(dim)`."""

    length: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", positive(self.length, "length"))

    def squared_norm(self, dim: int) -> Any:
        """Law of |omega|^2, a frozen SciPy distribution: P(|omega| <= r) = squared_norm(dim).cdf(r**2). ValueError if it has none."""
        raise ValueError(f"{type(self).__name__} has no squared_norm in closed form")

    def marginal(self, dim: int) -> Any:
        """Law of one coordinate, a frozen SciPy distribution. ValueError if it has none."""
        raise ValueError(f"{type(self).__name__} has no marginal in closed form")

    def moment(self, order: float, dim: int) -> float:
        """E |omega|^order, finite order > -dim; infinity where it diverges."""
        order, dim = real(order, "order"), count(dim, "dim")
        if not -dim < order < np.inf:
            raise ValueError(f"order must be finite and over -dim = {-dim}, got {order!r}")
        return self._moment(order, dim) / self.length**order

    def _moment(self, p: float, dim: int) -> float:
        raise ValueError(f"{type(self).__name__} has no moments in closed form")

    def sample(self, n: int, dim: int, rng: int | np.random.Generator, *, orthogonal: bool = False) -> Float[np.ndarray, "n dim"]:
        """n frequencies, shape (n, dim): independent, or in blocks of `dim` orthogonal ones (Haar directions; Yu et al. 2016).

        Orthogonal frequencies keep their exact law one by one and their independent norms. Raises where `squared_norm` does.
        """
        rng, n, dim = generator(rng), count(n, "n"), count(dim, "dim")
        norms = np.sqrt(self._squared_norms(n, dim, rng))
        blocks = rng.standard_normal((-(-n // dim), dim, dim))
        if orthogonal:
            blocks, triangle = np.linalg.qr(blocks)
            blocks *= np.sign(np.diagonal(triangle, axis1=1, axis2=2))[:, None, :]  # without it, not Haar
        directions = blocks.reshape(-1, dim)[:n]
        return directions * (norms / np.linalg.norm(directions, axis=1))[:, None]

    def _squared_norms(self, n: int, dim: int, rng: np.random.Generator) -> FloatArray:
        return self.squared_norm(dim).rvs(n, random_state=rng)


@dataclass(frozen=True)
class Gaussian(Isotropic):
    """k = exp(-|delta|^2 / (2 length^2)), frequencies N(0, length^-2 I) (Rahimi & Recht 2007)."""

    def kernel(self, delta: ArrayLike) -> FloatArray:
        """k(delta), shape (...)."""
        return np.exp(-0.5 * squared(delta, "delta", 1 / self.length))

    def density(self, omega: ArrayLike) -> FloatArray:
        """Normal density of covariance length^-2 I, shape (...)."""
        omega = vectors(omega, "omega")
        return np.exp(omega.shape[-1] * np.log(self.length / np.sqrt(2 * np.pi)) - 0.5 * squared(omega, "omega", self.length))

    def squared_norm(self, dim: int) -> Any:
        """Chi-squared with dim degrees of freedom, over length^2."""
        return stats.chi2(count(dim, "dim"), scale=self.length**-2)

    def marginal(self, dim: int = 1) -> Any:
        """Normal of standard deviation 1/length in every dim."""
        return stats.norm(scale=1 / self.length)

    def _moment(self, p: float, dim: int) -> float:
        return float(2 ** (p / 2) * poch(dim / 2, p / 2))


@dataclass(frozen=True)
class Matern(Isotropic):
    """k = 2^(1-nu)/Gamma(nu) z^nu K_nu(z), z = sqrt(2 nu) |delta| / length; frequencies multivariate Student-t (2 nu dof, scale 1/length).

    nu of at most 10^4, beyond which the logarithms of the kernel's factors cancel: there Gaussian is within 1/(4 nu) or so.
    Source: Rasmussen & Williams 2006, section 4.2.1.
    """

    nu: float = 1.5

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "nu", positive(self.nu, "nu"))
        if self.nu > LARGEST_ORDER:
            raise ValueError(f"nu must be at most {LARGEST_ORDER:g}, got {self.nu!r}")

    def kernel(self, delta: ArrayLike) -> FloatArray:
        """k(delta), shape (...)."""
        z = np.sqrt(2 * self.nu * squared(delta, "delta", 1 / self.length))
        safe = np.where(z > 0, z, 1.0)
        log_front = (1 - self.nu) * np.log(2) - gammaln(self.nu) + self.nu * np.log(safe)
        return np.where(z > 0, np.exp(log_front + log_bessel_k(self.nu, safe)), 1.0)

    def density(self, omega: ArrayLike) -> FloatArray:
        """Multivariate Student-t density with 2 nu degrees of freedom, shape (...)."""
        omega = vectors(omega, "omega")
        dof, dim = 2 * self.nu, omega.shape[-1]
        log_front = gammaln((dof + dim) / 2) - gammaln(dof / 2) + dim * (np.log(self.length) - 0.5 * np.log(dof * np.pi))
        return np.exp(log_front - 0.5 * (dof + dim) * np.log1p(squared(omega, "omega", self.length) / dof))

    def squared_norm(self, dim: int) -> Any:
        """2 nu / length^2 times chi2_dim / chi2_(2 nu), a beta-prime law."""
        return stats.betaprime(count(dim, "dim") / 2, self.nu, scale=2 * self.nu / self.length**2)

    def marginal(self, dim: int = 1) -> Any:
        """Student-t with 2 nu degrees of freedom and scale 1/length in every dim."""
        return stats.t(2 * self.nu, scale=1 / self.length)

    def _moment(self, p: float, dim: int) -> float:
        return float((2 * self.nu) ** (p / 2) * poch(dim / 2, p / 2) * poch(self.nu, -p / 2)) if p < 2 * self.nu else np.inf


@dataclass(frozen=True)
class Exponential(Matern):
    """k = exp(-|delta| / length), frequencies multivariate Cauchy of scale 1/length: the Matern pair with nu = 1/2."""

    nu: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nu != 0.5:
            raise ValueError(f"nu must be 1/2, the exponential's, got {self.nu!r}")

    def kernel(self, delta: ArrayLike) -> FloatArray:
        """k(delta), shape (...)."""
        return np.exp(-np.sqrt(squared(delta, "delta", 1 / self.length)))


def log_bessel_k(order: float, z: FloatArray) -> FloatArray:
    """log K_order(z) for z > 0; by mpmath where K itself overflows (large orders, small z)."""
    values = np.atleast_1d(kve(order, z))
    outside = ~np.isfinite(values)
    result = np.log(np.where(outside, 1.0, values)) - z
    if outside.any():
        from mpmath import besselk, log

        result[outside] = [float(log(besselk(order, point))) for point in np.atleast_1d(z)[outside]]
    return result.reshape(np.shape(z))


def hyp0f1(b: float, x: ArrayLike) -> FloatArray:
    """0F1(b; x) for b > 0 and x <= 0, SciPy's, or by mpmath where its Gamma(b) |x|^((1-b)/2) is no float (b over 80 or so)."""
    x = np.asarray(x, dtype=np.float64)
    values = np.atleast_1d(scipy_hyp0f1(b, x))
    size = np.where(x < 0, -x, 1.0)
    outside = np.atleast_1d(((b > 170) | (np.abs(gammaln(b) + 0.5 * (1 - b) * np.log(size)) > 500)) & (x < 0))
    if outside.any():
        from mpmath import hyp0f1 as exact

        values[outside] = [float(exact(b, point)) for point in np.atleast_1d(x)[outside]]
    return values.reshape(x.shape)


def vectors(x: ArrayLike, name: str) -> FloatArray:
    """x (..., dim) as floats; ValueError for a scalar."""
    x = finite(x, name)
    if x.ndim == 0:
        raise ValueError(f"{name} must have a last axis dim, got a scalar")
    return x


def squared(x: ArrayLike, name: str, scale: float = 1.0) -> FloatArray:
    """|scale x|^2 over the last axis; scaled first, so that neither square leaves the floats."""
    return np.sum((scale * vectors(x, name)) ** 2, axis=-1)
