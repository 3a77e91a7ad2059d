"""Exact laws of n log-repelling particles between two hard walls: the beta-Jacobi ensemble (`mappings.to_jacobi`).

The room is [-half_width, half_width]. `charges` = (left, right) of the walls add the external potential
V(x) = -left log(half_width + x) - right log(half_width - x); without them (the default) nothing but the walls and the repulsion acts.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.linalg import eigvalsh_tridiagonal
from scipy.special import betaln, digamma, gammaln

from theory.arrays import FloatArray, count, finite, generator
from theory.ensembles.gamma_curvature import curvature
from theory.ensembles.mappings import log_gas_strength, to_jacobi
from theory.ensembles.orthogonal import christoffel_density, jacobi_recurrence

__all__ = [
    "sample_wall_gas",
    "wall_gas_density",
    "wall_gas_energy",
    "wall_gas_energy_variance",
    "wall_gas_log_partition",
    "wall_gas_moments",
]

Charges = tuple[float, float]


def wall_gas_log_partition(n: int, beta: float, strength: float, half_width: float, charges: Charges = (0.0, 0.0)) -> float:
    """log Z_N = log int exp(-beta N H_N) dx of n >= 2 log-repelling particles on [-half_width, half_width].

    Selberg's integral with gamma = b/2, of length 2 half_width (Selberg 1944; Mehta 2004, 17.1.3).
    """
    b, left, right, scale = to_jacobi(n, beta, strength, half_width, charges)
    j, g = np.arange(n), b / 2
    ends = gammaln(1 + left + j * g) + gammaln(1 + right + j * g) - gammaln(2 + left + right + (n + j - 1) * g)
    unit = np.sum(ends + gammaln(1 + (j + 1) * g)) - n * gammaln(1 + g)
    return float(unit + n * (1 + left + right + b * (n - 1) / 2) * np.log(scale))


def wall_gas_energy(n: int, beta: float, strength: float, half_width: float, charges: Charges = (0.0, 0.0)) -> float:
    """Exact E H_N of `wall_gas_log_partition`'s gas, minus the derivative of log Z_N / n in beta; beta may tend to 0 (free particles).

    H_N as in `theory.ensembles`.
    """
    b, left, right, scale = to_jacobi(n, beta, strength, half_width, charges)
    j, g = np.arange(n), b / 2
    low, high = digamma(1 + left + j * g), digamma(1 + right + j * g)
    both = digamma(2 + left + right + (n + j - 1) * g)
    falls = j * (low + high) + (j + 1) * digamma(1 + (j + 1) * g) - (n + j - 1) * both
    pairs = -0.5 * (np.sum(falls) - n * digamma(1 + g)) - n * (n - 1) / 2 * np.log(scale)
    walls = charges[0] * np.mean(low - both + np.log(scale)) + charges[1] * np.mean(high - both + np.log(scale))
    return float(strength * pairs / (n * (n - 1)) - walls)


def wall_gas_energy_variance(n: int, beta: float, strength: float, half_width: float, charges: Charges = (0.0, 0.0)) -> float:
    """Exact variance of H_N of `wall_gas_log_partition`'s gas: the second derivative of log Z_N in beta, over n^2.

    H_N as in `theory.ensembles`.
    """
    b, left, right, _ = to_jacobi(n, beta, strength, half_width, charges)
    j, g = np.arange(n), b / 2
    above = np.r_[left + j * g, right + j * g, (j + 1) * g]
    return curvature(above, np.full(n, g), below_two=left + right + (n + j - 1) * g, excess=0.0) / (n * beta) ** 2


def wall_gas_moments(n: int, beta: float, strength: float, half_width: float, charges: Charges = (0.0, 0.0)) -> tuple[float, float]:
    """E (1/n) sum x and E (1/n) sum x^2, by integration by parts of e (1-e), e^2 (1-e) and e (1-e) sum e in Selberg's integral
    (Aomoto 1987), e = (x + half_width)/(2 half_width)."""
    b, left, right, scale = to_jacobi(n, beta, strength, half_width, charges)
    ends = left + right
    mean = n * (left + 1 + b * (n - 1) / 2) / (ends + 2 + b * (n - 1))
    equations = np.array([[3 + ends + b * (n - 1.5), b / 2], [1.0, 2 + ends + b * (n - 1)]])  # of E sum e^2 and E (sum e)^2
    values = np.array([(2 + left + b * (n - 1)) * mean, (n * (1 + left + b * (n - 1) / 2) + 1) * mean])
    square = np.linalg.solve(equations, values)[0]
    first, second = mean / n - 0.5, square / n - mean / n + 0.25
    return float(scale * first), float(scale**2 * second)


def wall_gas_density(x: ArrayLike, n: int, beta: float, half_width: float, charges: Charges = (0.0, 0.0)) -> FloatArray:
    """Mean density (mass 1) at x, shape of x, of n >= 2 particles at index b = 2, that is strength 2 (n-1)/beta: the sum of squared
    Jacobi polynomials, Legendre's without charges (Mehta 2004, 19.1). Zero outside the walls."""
    _, left, right, scale = to_jacobi(n, beta, log_gas_strength(2.0, beta, n), half_width, charges)
    e = 2 * finite(x, "x") / scale
    inside = abs(e) < 1
    e = np.where(inside, e, 0.0)
    log_weight = left * np.log1p(e) + right * np.log1p(-e) - (1 + left + right) * np.log(2) - betaln(1 + left, 1 + right)
    return np.where(inside, christoffel_density(e, log_weight, jacobi_recurrence(n, left, right)) * 2 / scale, 0.0)


def sample_wall_gas(
    n: int,
    beta: float,
    strength: float,
    half_width: float,
    rng: int | np.random.Generator,
    *,
    size: int = 1,
    charges: Charges = (0.0, 0.0),
) -> Float[np.ndarray, "size n 1"]:
    """Exact samples (size, n, 1), sorted, of n >= 2 log-repelling particles on [-half_width, half_width].

    Half the eigenvalues of the tridiagonal matrix of 2n-1 independent Beta variables (Killip & Nenciu 2004, theorem 2).
    rng: seed or generator.
    """
    b, left, right, _ = to_jacobi(n, beta, strength, half_width, charges)
    size, rng = count(size, "size"), generator(rng)
    if b == 0:
        return half_width * np.sort(1 - 2 * rng.beta(right + 1, left + 1, (size, n)), axis=1)[..., None]
    k = np.arange(2 * n - 1)
    even, odd = (2 * n - k - 2) * b / 4 + 1, (2 * n - k - 3) * b / 4 + 2
    fall = np.where(k % 2, odd + left + right, even + right)  # exponents of (1 - a) and (1 + a)
    rise = np.where(k % 2, (2 * n - k - 1) * b / 4, even + left)
    a = np.pad(1 - 2 * rng.beta(fall, rise, (size, 2 * n - 1)), ((0, 0), (1, 0)), constant_values=-1.0)  # a[:, k + 1] is alpha_k
    diagonal, beside = _geronimus(a[:, 0::2], a[:, 1::2])  # alpha_-1, alpha_1, ... and alpha_0, alpha_2, ...
    return half_width / 2 * np.stack([eigvalsh_tridiagonal(d, e) for d, e in zip(diagonal, beside)])[..., None]


def _geronimus(odd: FloatArray, even: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Jacobi matrices (diagonal, beside) of real Verblunsky coefficients, a sample a row (Geronimus relations)."""
    diagonal = (1 - odd) * even
    diagonal[:, 1:] -= (1 + odd[:, 1:]) * even[:, :-1]
    return diagonal, np.sqrt((1 - odd[:, :-1]) * (1 - even[:, :-1] ** 2) * (1 + odd[:, 1:]))
