"""Exact laws of n log-repelling particles on the half line x > 0 in a linear trap: the beta-Laguerre ensemble.

V(x) = slope x - charge log x (`mappings.to_laguerre`). The squares of particles in a quadratic trap of which each also repels the
mirror images of the others (`Riesz(0.0, strength, mirror=True)` and `Quadratic(kappa)`) obey the same law with slope kappa/2 and
exponent -1/2 from the Jacobian: the `mirror_gas` functions.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.linalg import eigvalsh_tridiagonal
from scipy.special import digamma, gammaln

from theory.arrays import FloatArray, count, finite, generator, positive, real
from theory.ensembles.gamma_curvature import curvature
from theory.ensembles.mappings import log_gas_index, log_gas_strength, to_laguerre
from theory.ensembles.orthogonal import christoffel_density, laguerre_recurrence

__all__ = [
    "beta_laguerre",
    "half_line_gas_density",
    "half_line_gas_energy",
    "half_line_gas_energy_variance",
    "half_line_gas_log_partition",
    "half_line_gas_moments",
    "laguerre_log_partition",
    "mirror_gas_energy",
    "mirror_gas_energy_variance",
    "mirror_gas_log_partition",
    "sample_half_line_gas",
    "sample_mirror_gas",
]


def beta_laguerre(n: int, b: float, a: float, rng: int | np.random.Generator, size: int = 1) -> Float[np.ndarray, "size n"]:
    """Exact samples (size, n), sorted, of the density prod |e_i - e_j|^b prod e^a exp(-sum e) on e > 0, a > -1.

    Squared singular values of the bidiagonal matrix with squared entries Gamma(1 + a + b (n-i)/2) on the diagonal, i = 1..n, and
    Gamma(b (n-i)/2) below it, i = 1..n-1 (Dumitriu & Edelman 2002, theorem 3.4); as eigenvalues of the tridiagonal matrix of Golub and
    Kahan they cannot come out negative.
    """
    n, b, a, size = count(n, "n"), positive(b, "b", zero=True), _exponent(a), count(size, "size")
    rng, left = generator(rng), np.arange(n - 1, -1, -1) * b / 2
    diagonal, below = rng.gamma(1 + a + left, 1.0, (size, n)), rng.gamma(left[:-1], 1.0, (size, n - 1))
    if n == 1 or b == 0:
        return np.sort(diagonal, axis=1)
    beside = np.empty((size, 2 * n - 1))
    beside[:, ::2], beside[:, 1::2] = np.sqrt(diagonal), np.sqrt(below)
    return np.stack([eigvalsh_tridiagonal(np.zeros(2 * n), row)[n:] ** 2 for row in beside])


def laguerre_log_partition(n: int, b: float, a: float) -> float:
    """log of int prod |e_i - e_j|^b prod e^a exp(-e) de = prod_{j < n} Gamma(1 + a + j b/2) Gamma(1 + (j+1) b/2) / Gamma(1 + b/2)
    over e > 0, a > -1 (Mehta 2004, 17.6.5)."""
    n, g, a = count(n, "n"), positive(b, "b", zero=True) / 2, _exponent(a)
    j = np.arange(n)
    return float(np.sum(gammaln(1 + a + j * g) + gammaln(1 + (j + 1) * g)) - n * gammaln(1 + g))


def _exponent(a: float) -> float:
    if not -1 < real(a, "a") < np.inf:
        raise ValueError(f"a must be finite and above -1, got {a!r}")
    return float(a)


def _mean_log_pairs(n: int, b: float, a: float) -> float:
    """E of -sum_{k<l} log|e_k - e_l|, minus the derivative of `laguerre_log_partition` in b."""
    j, g = np.arange(n), b / 2
    return float(-0.5 * (np.sum(j * digamma(1 + a + j * g) + (j + 1) * digamma(1 + (j + 1) * g)) - n * digamma(1 + g)))


def half_line_gas_log_partition(n: int, beta: float, slope: float, strength: float, charge: float = 0.0) -> float:
    """log Z_N = log int exp(-beta N H_N) dx over x > 0 of n >= 2 particles with V(x) = slope x - charge log x."""
    b, a, scale = to_laguerre(n, beta, slope, strength, charge)
    return laguerre_log_partition(n, b, a) + float(n * (1 + a + b * (n - 1) / 2) * np.log(scale))


def half_line_gas_energy(n: int, beta: float, slope: float, strength: float, charge: float = 0.0) -> float:
    """Exact E H_N (see `theory.ensembles`) of `half_line_gas_log_partition`'s gas, external and pair energy."""
    b, a, scale = to_laguerre(n, beta, slope, strength, charge)
    logs = np.mean(digamma(1 + a + np.arange(n) * b / 2)) + np.log(scale)  # E (1/n) sum log x
    pairs = _mean_log_pairs(n, b, a) - n * (n - 1) / 2 * np.log(scale)
    mean = half_line_gas_moments(n, beta, slope, strength, charge)[0]
    return float(slope * mean - charge * logs + strength * pairs / (n * (n - 1)))


def half_line_gas_energy_variance(n: int, beta: float, slope: float, strength: float, charge: float = 0.0) -> float:
    """Exact variance of H_N of `half_line_gas_log_partition`'s gas: the second derivative of log Z_N in beta, over n^2.

    H_N as in `theory.ensembles`.
    """
    b, a, _ = to_laguerre(n, beta, slope, strength, charge)
    j, g = np.arange(n), b / 2
    curved = curvature(np.r_[a + j * g, (j + 1) * g], np.full(n, g), excess=n * (a + beta * strength / 2))
    return (curved + n) / (n * beta) ** 2


def half_line_gas_moments(n: int, beta: float, slope: float, strength: float, charge: float = 0.0) -> tuple[float, float, float]:
    """E (1/n) sum x^k for k = 1, 2, 3, by integration by parts of x^k (the loop equations; Aomoto 1987).

    beta slope sum x is Gamma(n (1 + a + b (n-1)/2)), which closes the third.
    """
    b, a, scale = to_laguerre(n, beta, slope, strength, charge)
    total = n * (1 + a + b * (n - 1) / 2)
    square = (2 + a + b * (n - 1)) * total
    cube = (3 + a + b * (n - 1.5)) * square + b / 2 * total * (total + 1)
    return total * scale / n, square * scale**2 / n, cube * scale**3 / n


def half_line_gas_density(x: ArrayLike, n: int, beta: float, slope: float, charge: float = 0.0) -> FloatArray:
    """Mean density (mass 1) at x > 0, shape of x, of n >= 2 particles at index b = 2, that is strength 2 (n-1)/beta: the sum of squared
    Laguerre functions (Mehta 2004, 19.1). Zero where x < 0."""
    _, a, scale = to_laguerre(n, beta, slope, log_gas_strength(2.0, beta, n), charge)
    e = finite(x, "x") / scale
    inside = np.where(e > 0, e, 1.0)
    values = christoffel_density(inside, a * np.log(inside) - inside - gammaln(1 + a), laguerre_recurrence(n, a)) / scale
    return np.where(e > 0, values, 0.0)


def sample_half_line_gas(
    n: int, beta: float, slope: float, strength: float, rng: int | np.random.Generator, *, size: int = 1, charge: float = 0.0
) -> Float[np.ndarray, "size n 1"]:
    """Exact samples (size, n, 1), sorted, of `half_line_gas_log_partition`'s gas. rng: seed or generator."""
    b, a, scale = to_laguerre(n, beta, slope, strength, charge)
    return beta_laguerre(n, b, a, rng, size)[..., None] * scale


def mirror_gas_log_partition(n: int, beta: float, kappa: float, strength: float) -> float:
    """log Z_N of n >= 2 particles on the line with weight prod |x_k^2 - x_l^2|^b in the trap kappa x^2/2: particles that repel the others
    and their mirror images."""
    b, scale2 = log_gas_index(beta, strength, n), 2 / (beta * positive(kappa, "kappa"))
    return laguerre_log_partition(n, b, -0.5) + float(n * (0.5 + b * (n - 1) / 2) * np.log(scale2))


def mirror_gas_energy(n: int, beta: float, kappa: float, strength: float) -> float:
    """Exact E H_N of `mirror_gas_log_partition`'s gas: 1/(2 beta) + strength/2 from the trap, the rest from pairs and images.

    H_N as in `theory.ensembles`, with -log|x_k^2 - x_l^2| for a pair.
    """
    b, scale2 = log_gas_index(beta, strength, n), 2 / (beta * positive(kappa, "kappa"))
    pairs = _mean_log_pairs(n, b, -0.5) - n * (n - 1) / 2 * np.log(scale2)
    return float(1 / (2 * beta) + strength / 2 + strength * pairs / (n * (n - 1)))


def mirror_gas_energy_variance(n: int, beta: float, kappa: float, strength: float) -> float:
    """Exact variance of H_N of `mirror_gas_log_partition`'s gas: the second derivative of log Z_N in beta, over n^2.

    H_N as in `theory.ensembles`, with -log|x_k^2 - x_l^2| for a pair.
    """
    g, j = log_gas_index(beta, strength, n) / 2, np.arange(n)
    positive(kappa, "kappa")
    above, below = np.r_[2 * j * g, (j + 1) * g], np.r_[j * g, np.full(n, g)]  # Gamma(1/2 + j g) by the duplication formula
    return (curvature(above, below, excess=n * beta * strength / 2) + n / 2) / (n * beta) ** 2


def sample_mirror_gas(
    n: int, beta: float, kappa: float, strength: float, rng: int | np.random.Generator, *, size: int = 1
) -> Float[np.ndarray, "size n 1"]:
    """Exact samples (size, n, 1) of `mirror_gas_log_partition`'s gas, sorted by distance from the centre, of independent signs.

    rng: seed or generator.
    """
    b, scale2, rng = log_gas_index(beta, strength, n), 2 / (beta * positive(kappa, "kappa")), generator(rng)
    distance = np.sqrt(beta_laguerre(n, b, -0.5, rng, size) * scale2)
    return (distance * rng.choice((-1.0, 1.0), distance.shape))[..., None]
