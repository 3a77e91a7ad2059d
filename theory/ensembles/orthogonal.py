"""Classical orthonormal polynomials by their recurrences: level densities of gases at index 2, and zeros, the ground states."""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigvalsh_tridiagonal

from theory.arrays import FloatArray

__all__ = ["christoffel_density", "hermite_recurrence", "jacobi_recurrence", "jacobi_zeros", "laguerre_recurrence", "laguerre_zeros"]

Recurrence = tuple[FloatArray, FloatArray]


def christoffel_density(x: FloatArray, log_weight: FloatArray, recurrence: Recurrence) -> FloatArray:
    """w(x) (1/n) sum_{k < n} p_k(x)^2, shape of x: the mean density of n particles at index 2 with weight w (Mehta 2004, 6.2).

    `log_weight` is log w, w of total mass 1. The orthonormal polynomials obey beside_k+1 p_k+1 = (x - diagonal_k) p_k - beside_k p_k-1,
    with recurrence = (diagonal (n,), beside (n-1,)); the sum is rescaled on the way, so that neither factor over- nor underflows alone.
    """
    diagonal, beside = recurrence
    last, now, total = np.zeros_like(x), np.ones_like(x), np.ones_like(x)
    log_scale = log_weight.astype(np.float64)
    for k in range(len(beside)):
        last, now = now, ((x - diagonal[k]) * now - (beside[k - 1] * last if k else 0.0)) / beside[k]
        total = total + now**2
        big = np.sqrt(total)
        last, now, total = last / big, now / big, np.ones_like(x)
        log_scale = log_scale + 2 * np.log(big)
    return total * np.exp(log_scale) / len(diagonal)


def hermite_recurrence(n: int) -> Recurrence:
    """For the weight exp(-x^2/2)/sqrt(2 pi) on the line."""
    return np.zeros(n), np.sqrt(np.arange(1.0, n))


def laguerre_recurrence(n: int, a: float) -> Recurrence:
    """For the weight x^a exp(-x)/Gamma(1+a) on x > 0, a > -1."""
    k = np.arange(n, dtype=np.float64)
    return 2 * k + 1 + a, np.sqrt(k[1:] * (k[1:] + a))


def jacobi_recurrence(n: int, left: float, right: float) -> Recurrence:
    """For the weight proportional to (1 + x)^left (1 - x)^right on [-1, 1], left, right > -1 (Szego 1975, equation 4.5.1)."""
    k = np.arange(1.0, n)
    total = 2 * k + left + right
    first = (left - right) / (left + right + 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        diagonal = np.r_[first, (left**2 - right**2) / (total * (total + 2))]
        squares = 4 * k * (k + left) * (k + right) * (k + left + right) / (total**2 * (total**2 - 1))
    if n > 1:  # at k = 1 the factor left + right + 1 cancels
        squares[0] = 4 * (1 + left) * (1 + right) / ((2 + left + right) ** 2 * (3 + left + right))
    return diagonal, np.sqrt(squares)


def jacobi_zeros(n: int, left: float, right: float) -> FloatArray:
    """Zeros (n,), ascending, of the polynomial of degree n for the weight of `jacobi_recurrence`: eigenvalues of its Jacobi matrix.

    Absolute error of rounding, for any n and exponents (SciPy's rules overflow at large exponents).
    """
    zeros = eigvalsh_tridiagonal(*jacobi_recurrence(n, left, right)) if n else np.empty(0)
    return zeros.astype(np.float64)


def laguerre_zeros(n: int, a: float) -> FloatArray:
    """Zeros (n,), ascending, of L_n^(a), for any n (SciPy's rule overflows from n = 400 on).

    Squared singular values of the bidiagonal factor of the Jacobi matrix, by the matrix of Golub and Kahan: small ones keep their digits.
    """
    k, beside = np.arange(1.0, n + 1), np.empty(2 * n - 1)
    beside[::2], beside[1::2] = np.sqrt(k + a), np.sqrt(k[:-1])
    return eigvalsh_tridiagonal(np.zeros(2 * n), beside)[n:].astype(np.float64) ** 2
