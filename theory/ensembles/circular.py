"""Exact laws of n log-repelling particles on a circle, distances along the chord: the circular ensemble (`mappings.to_circular`)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.special import digamma, gammaln

from theory.arrays import FloatArray, count, finite, generator, positive
from theory.ensembles.gamma_curvature import curvature
from theory.ensembles.mappings import to_circular

__all__ = [
    "circle_gas_energy",
    "circle_gas_energy_variance",
    "circle_gas_first_mode",
    "circle_gas_log_partition",
    "circle_gas_pair_density",
    "sample_circle_gas",
]


def circle_gas_log_partition(n: int, beta: float, strength: float, period: float) -> float:
    """log Z_N of n >= 2 log-repelling particles on a circle of circumference `period`, distances along the chord, no other force.

    (2 pi)^n Gamma(1 + bn/2)/Gamma(1 + b/2)^n at radius 1 (Dyson 1962; Good 1970).
    """
    b, radius = to_circular(n, beta, strength, period)
    unit = n * np.log(2 * np.pi) + gammaln(1 + b * n / 2) - n * gammaln(1 + b / 2)
    return float(unit + (n + b * n * (n - 1) / 2) * np.log(radius))


def circle_gas_energy(n: int, beta: float, strength: float, period: float) -> float:
    """Exact E H_N (see `theory.ensembles`) of `circle_gas_log_partition`'s gas."""
    b, radius = to_circular(n, beta, strength, period)
    pairs = -n / 2 * (digamma(1 + b * n / 2) - digamma(1 + b / 2)) - n * (n - 1) / 2 * np.log(radius)
    return float(strength * pairs / (n * (n - 1)))


def circle_gas_energy_variance(n: int, beta: float, strength: float, period: float) -> float:
    """Exact variance of H_N of `circle_gas_log_partition`'s gas: the second derivative of log Z_N in beta, over n^2.

    H_N as in `theory.ensembles`.
    """
    b, _ = to_circular(n, beta, strength, period)
    return curvature([b * n / 2], np.full(n, b / 2), excess=0.0) / (n * beta) ** 2


def circle_gas_first_mode(n: int, beta: float, strength: float) -> float:
    """E |(1/n) sum exp(2 pi i x_k/period)|^2 = 1/(n (1 + b (n-1)/2)) = 1/(n (1 + beta strength/2)), the lowest Fourier mode.

    Every index b, n >= 2: the power sum p_1 is a Jack polynomial (Forrester 2010, chapter 13; Jiang & Matsumoto 2015).
    """
    b, _ = to_circular(n, beta, strength, 1.0)
    return float(1 / (n * (1 + b * (n - 1) / 2)))


def circle_gas_pair_density(gap: ArrayLike, n: int, period: float) -> FloatArray:
    """Density of x_k - x_l of a random pair modulo `period` at `gap`, shape of gap, mass 1 over a period, at index b = 2.

    [n^2 - (sin(n t/2)/sin(t/2))^2] / (n (n-1) period), t = 2 pi gap/period (Dyson 1962; Mehta 2004, 11.1).
    """
    n, period = count(n, "n", least=2), positive(period, "period")
    half = np.pi * finite(gap, "gap") / period
    sine = np.sin(half)
    flat = abs(sine) < 1e-8
    kernel = np.where(flat, n, np.sin(n * half) / np.where(flat, 1.0, sine))
    return (n**2 - kernel**2) / (n * (n - 1) * period)


def sample_circle_gas(
    n: int, beta: float, strength: float, period: float, rng: int | np.random.Generator, *, size: int = 1
) -> Float[np.ndarray, "size n 1"]:
    """Exact samples (size, n, 1) in [0, period), sorted, of n >= 2 log-repelling particles on a circle.

    Phases of the eigenvalues of the CMV matrix of independent Verblunsky coefficients (Killip & Nenciu 2004, theorem 1). O(n^3) a sample.
    rng: seed or generator.
    """
    b, size, rng = to_circular(n, beta, strength, period).b, count(size, "size"), generator(rng)
    modulus = np.ones((size, n))
    if b > 0:
        modulus[:, :-1] = np.sqrt(rng.beta(1.0, b * np.arange(n - 1, 0, -1) / 2, (size, n - 1)))
    alpha = modulus * np.exp(2j * np.pi * rng.random((size, n)))
    sides = np.zeros((2, size, n, n), complex)  # the block-diagonal factors: 2 x 2 reflections at even and at odd k
    sides[1, :, 0, 0] = 1
    for k in range(n):
        side, rho = sides[k % 2], np.sqrt(1 - modulus[:, k] ** 2)
        side[:, k, k] = alpha[:, k].conj()
        if k < n - 1:
            side[:, k, k + 1] = side[:, k + 1, k] = rho
            side[:, k + 1, k + 1] = -alpha[:, k]
    phase = np.angle(np.linalg.eigvals(sides[0] @ sides[1])) / (2 * np.pi)
    return period * np.sort(phase % 1.0 % 1.0, axis=1)[..., None]
