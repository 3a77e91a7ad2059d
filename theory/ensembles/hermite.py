"""Exact laws of n log-repelling particles on the line in a quadratic trap: the beta-Hermite ensemble (`mappings.to_hermite`)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.linalg import eigvalsh_tridiagonal
from scipy.special import digamma, gammaln

from theory.arrays import FloatArray, count, finite, generator, positive
from theory.ensembles.gamma_curvature import curvature
from theory.ensembles.mappings import log_gas_index, log_gas_strength, to_hermite
from theory.ensembles.orthogonal import christoffel_density, hermite_recurrence
from theory.ensembles.virial import second_moment

__all__ = [
    "beta_hermite",
    "fourth_moment",
    "log_gas_density",
    "log_gas_energy",
    "log_gas_energy_variance",
    "log_gas_log_partition",
    "mean_log_energy",
    "mehta_log_partition",
    "sample_log_gas",
]


def beta_hermite(n: int, b: float, rng: int | np.random.Generator, size: int = 1) -> Float[np.ndarray, "size n"]:
    """Exact samples (size, n), sorted, of the density prod |e_i - e_j|^b exp(-sum e^2 / 2).

    Eigenvalues of the tridiagonal matrix with N(0, 1) diagonal and chi_{(n-i) b}/sqrt(2) beside it, i = 1..n-1
    (Dumitriu & Edelman 2002).
    """
    n, b, size = count(n, "n"), positive(b, "b", zero=True), count(size, "size")
    rng = generator(rng)
    diagonal = rng.standard_normal((size, n))
    beside = np.sqrt(rng.gamma(b * np.arange(n - 1, 0, -1) / 2, 1.0, (size, n - 1)))  # chi_k / sqrt 2 = sqrt of Gamma(k/2)
    if n == 1 or b == 0:
        return np.sort(diagonal, axis=1)
    return np.stack([eigvalsh_tridiagonal(d, e) for d, e in zip(diagonal, beside)])


def sample_log_gas(
    n: int, beta: float, kappa: float, strength: float, rng: int | np.random.Generator, *, size: int = 1
) -> Float[np.ndarray, "size n 1"]:
    """Exact samples (size, n, 1) of the log gas of n >= 2 particles on the line in the package's variables. rng: seed or generator."""
    b, scale = to_hermite(n, beta, kappa, strength)
    return beta_hermite(n, b, rng, size)[..., None] * scale


def fourth_moment(n: int, beta: float, kappa: float, strength: float) -> float:
    """E (1/n) sum x^4 of the log gas on the line: (3 + 5c + 2c^2 - c^2/(n-1)) / (beta kappa)^2, c = beta strength/2."""
    c = log_gas_index(beta, strength, n) * (n - 1) / 2
    return (3 + 5 * c + 2 * c**2 - c**2 / (n - 1)) / (beta * positive(kappa, "kappa")) ** 2


def mehta_log_partition(n: int, b: float) -> float:
    """log of int prod |e_i - e_j|^b exp(-sum e^2/2) de = (2 pi)^(n/2) prod_j Gamma(1 + j b/2)/Gamma(1 + b/2) (Mehta 2004, 17.6.7)."""
    n, b = count(n, "n"), positive(b, "b", zero=True)
    return float(n / 2 * np.log(2 * np.pi) + np.sum(gammaln(1 + np.arange(1, n + 1) * b / 2)) - n * gammaln(1 + b / 2))


def mean_log_energy(n: int, b: float) -> float:
    """E of -sum_{k<l} log|e_k - e_l| in the beta-Hermite ensemble: minus the derivative of `mehta_log_partition` in b."""
    n, b = count(n, "n"), positive(b, "b", zero=True)
    j = np.arange(1, n + 1)
    return float(-0.5 * (np.sum(j * digamma(1 + j * b / 2)) - n * digamma(1 + b / 2)))


def log_gas_log_partition(n: int, beta: float, kappa: float, strength: float) -> float:
    """log Z_N = log int exp(-beta N H_N) dx of the log gas of n >= 2 particles on the line, in the package's variables."""
    b, scale = to_hermite(n, beta, kappa, strength)
    return mehta_log_partition(n, b) + float((n + b * n * (n - 1) / 2) * np.log(scale))  # Jacobian and pair products


def log_gas_energy(n: int, beta: float, kappa: float, strength: float) -> float:
    """Exact E H_N of the log gas on the line: kappa/2 of the second moment plus strength/(n(n-1)) of the pair sum.

    H_N as in `theory.ensembles`.
    """
    b, scale = to_hermite(n, beta, kappa, strength)
    pairs = mean_log_energy(n, b) - n * (n - 1) / 2 * np.log(scale)
    return float(kappa / 2 * second_moment(1, beta, kappa, strength) + strength * pairs / (n * (n - 1)))


def log_gas_energy_variance(n: int, beta: float, kappa: float, strength: float) -> float:
    """Exact variance of H_N (see `theory.ensembles`) of the log gas on the line: the second derivative of log Z_N in beta, over n^2."""
    b, _ = to_hermite(n, beta, kappa, strength)
    pairs = curvature(np.arange(1, n + 1) * b / 2, np.full(n, b / 2), excess=n * beta * strength / 4)
    return (pairs + n / 2) / (n * beta) ** 2


def log_gas_density(x: ArrayLike, n: int, beta: float, kappa: float) -> FloatArray:
    """Mean density (mass 1) at x, shape of x, of n >= 2 particles at index b = 2, that is strength 2 (n-1)/beta: the Gaussian unitary
    ensemble's sum of squared Hermite functions (Mehta 2004, 6.2.10)."""
    scale = to_hermite(n, beta, kappa, log_gas_strength(2.0, beta, n)).scale
    e = finite(x, "x") / scale
    return christoffel_density(e, -(e**2) / 2 - np.log(2 * np.pi) / 2, hermite_recurrence(n)) / scale
