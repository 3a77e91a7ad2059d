"""Exact laws of n log-repelling particles in the plane at index b = beta strength/(n-1) = 2: in a quadratic trap, and in a hard disc.

At this index, and in the plane at no other, the gas is determinantal; strength is 2 (n-1)/beta throughout, and is not an argument. The trap
is Ginibre's ensemble of complex matrices (`mappings.to_ginibre`), the disc without a trap that of truncated unitary matrices.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.special import betainc, gammainc, gammaincc, gammaln

from theory.arrays import FloatArray, count, finite, generator, positive
from theory.ensembles.mappings import log_gas_strength

__all__ = [
    "disc_gas_density",
    "disc_gas_energy",
    "disc_gas_log_partition",
    "disc_gas_radial_cdf",
    "disc_gas_radii",
    "ginibre_density",
    "ginibre_energy",
    "ginibre_log_partition",
    "ginibre_radial_cdf",
    "ginibre_radii",
    "sample_disc_gas",
    "sample_ginibre",
]


def _squares(x: ArrayLike) -> FloatArray:
    """|x|^2 of points (..., 2)."""
    x = finite(x, "x")
    if x.ndim == 0 or x.shape[-1] != 2:
        raise ValueError(f"x must have shape (..., 2), got {x.shape}")
    return np.sum(x**2, axis=-1)


def _scale(beta: float, kappa: float) -> float:
    """The unit sqrt(2/(beta kappa)) of the gas in the trap."""
    return float(np.sqrt(2 / (positive(beta, "beta") * positive(kappa, "kappa"))))


def ginibre_radii(n: int, beta: float, kappa: float, rng: int | np.random.Generator, *, size: int = 1) -> Float[np.ndarray, "size n"]:
    """Exact samples (size, n), sorted, of the n distances from the centre of the gas in the trap kappa |x|^2/2.

    Their squares, in units of 2/(beta kappa), are independent Gamma(1), ..., Gamma(n) (Kostlan 1992). rng: seed or generator.
    """
    shape, scale = np.arange(1, count(n, "n") + 1), _scale(beta, kappa)
    return scale * np.sqrt(np.sort(generator(rng).gamma(shape, 1.0, (count(size, "size"), n)), axis=1))


def sample_ginibre(n: int, beta: float, kappa: float, rng: int | np.random.Generator, *, size: int = 1) -> Float[np.ndarray, "size n 2"]:
    """Exact samples (size, n, 2), in no order, of the gas in the trap: eigenvalues of complex Gaussian matrices (Ginibre 1965). O(n^3).

    rng: seed or generator.
    """
    shape, rng = (count(size, "size"), count(n, "n"), n), generator(rng)
    matrix = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)) / np.sqrt(2)
    return _plane(np.linalg.eigvals(matrix)) * _scale(beta, kappa)


def _plane(z: np.ndarray) -> FloatArray:
    return np.stack([z.real, z.imag], axis=-1)


def ginibre_log_partition(n: int, beta: float, kappa: float) -> float:
    """log Z_N = log int exp(-beta N H_N) dx of the gas in the trap: pi^n prod_{k <= n} k! at scale 1 (Ginibre 1965; Mehta 2004, 15.1)."""
    n, scale = count(n, "n"), _scale(beta, kappa)
    return float(n * np.log(np.pi) + np.sum(gammaln(np.arange(2, n + 2))) + n * (n + 1) * np.log(scale))


def ginibre_energy(n: int, beta: float, kappa: float) -> float:
    """Exact E H_N (see `theory.ensembles`) of n >= 2 particles in the trap (other closed sums: Shakirov 2011). O(n^2) time.

    The trap holds (n+1)/(2 beta). The squared distances are as good as independent G_k ~ Gamma(k+1), k < n, see `_mean_log_pairs`, and
    integration by parts gives E log max(G_j, G_k) = E log max(G_j-1, G_k) + P(G_k < G_j-1)/j, from log 2 - gamma at j = k = 0.
    """
    n, scale = count(n, "n", least=2), _scale(beta, kappa)
    j = np.arange(n)
    below = betainc(j[:, None] + 1, j + 1, 0.5)  # P(G_j < G_k): G_j/(G_j + G_k) is Beta(j+1, k+1)
    sums = np.vstack([np.zeros(n), np.cumsum(below.T[:-1] / j[1:, None], axis=0)])
    log_max: FloatArray = float(np.log(2) - np.euler_gamma) + sums + sums[:, 0]
    pairs = _mean_log_pairs(log_max, below.astype(np.float64), scale)
    return float((n + 1) / (2 * beta)) + log_gas_strength(2.0, beta, n) * pairs / (n * (n - 1))


def _mean_log_pairs(log_max: FloatArray, below: FloatArray, scale: float) -> float:
    """E of -sum_{k<l} log|z_k - z_l| of a rotation-invariant determinantal gas from its n radial laws.

    For independent squared radii G_j of the orthogonal states z^j (units of scale^2), log_max = E log max(G_j, G_k) and
    below = P(G_j < G_k). The mean over angles of -log|z - w| is -log max(|z|, |w|); its Fourier modes (min/max)^m / (2m) give the exchange.
    """
    n = len(below)
    j, k = np.tril_indices(n, -1)
    return float(-np.sum(log_max[j, k] / 2 + below[j, k] / (j - k)) - n * (n - 1) / 2 * np.log(scale))


def ginibre_density(x: ArrayLike, n: int, beta: float, kappa: float) -> FloatArray:
    """Mean density (mass 1) at x (..., 2) of the gas in the trap: Q(n, u)/(pi n scale^2), u = beta kappa |x|^2/2, Q the upper incomplete
    gamma function (Ginibre 1965): flat, with an edge one scale wide at the radius of the Coulomb ball."""
    n, scale = count(n, "n"), _scale(beta, kappa)
    return gammaincc(n, _squares(x) / scale**2) / (np.pi * n * scale**2)


def ginibre_radial_cdf(r: ArrayLike, n: int, beta: float, kappa: float) -> FloatArray:
    """P(|x| <= r) of one particle of the gas in the trap, shape of r: the mean of the n Gamma laws, summed."""
    n, u = count(n, "n"), (np.maximum(finite(r, "r"), 0) / _scale(beta, kappa)) ** 2
    return u * gammaincc(n, u) / n + gammainc(n + 1, u)


def disc_gas_radii(n: int, radius: float, rng: int | np.random.Generator, *, size: int = 1) -> Float[np.ndarray, "size n"]:
    """Exact samples (size, n), sorted, of the n distances from the centre of the gas in a hard disc: independent, the k-th to the power 2k
    uniform (Hough, Krishnapur, Peres & Virag 2006). rng: seed or generator."""
    power = 0.5 / np.arange(1, count(n, "n") + 1)
    return positive(radius, "radius") * np.sort(generator(rng).random((count(size, "size"), n)) ** power, axis=1)


def sample_disc_gas(n: int, radius: float, rng: int | np.random.Generator, *, size: int = 1) -> Float[np.ndarray, "size n 2"]:
    """Exact samples (size, n, 2), in no order, of the gas in a hard disc: eigenvalues of a Haar unitary matrix of order n + 1 without its
    last row and column (Zyczkowski & Sommers 2000). O(n^3). rng: seed or generator."""
    n, size, rng = count(n, "n"), count(size, "size"), generator(rng)
    matrix = rng.standard_normal((size, n + 1, n + 1)) + 1j * rng.standard_normal((size, n + 1, n + 1))
    unitary, upper = np.linalg.qr(matrix)
    phase = np.diagonal(upper, axis1=1, axis2=2)
    unitary = unitary * (phase / abs(phase))[:, None, :]  # makes the law Haar's (Mezzadri 2007)
    return _plane(np.linalg.eigvals(unitary[:, :n, :n])) * positive(radius, "radius")


def disc_gas_log_partition(n: int, radius: float) -> float:
    """log int prod |z_k - z_l|^2 dz over the disc: n log pi + n (n+1) log radius; free of beta, as nothing but pairs has energy."""
    n = count(n, "n")
    return float(n * np.log(np.pi) + n * (n + 1) * np.log(positive(radius, "radius")))


def disc_gas_energy(n: int, beta: float, radius: float) -> float:
    """Exact E H_N of n >= 2 particles in the hard disc, strength 2 (n-1)/beta: `_mean_log_pairs` with G_k of density (k+1) u^k on [0, 1].

    H_N as in `theory.ensembles`. O(n^2) time.
    """
    n = count(n, "n", least=2)
    k = np.arange(n)
    both = k[:, None] + k + 2.0
    return log_gas_strength(2.0, beta, n) * _mean_log_pairs(-1 / both, (k + 1) / both, positive(radius, "radius")) / (n * (n - 1))


def disc_gas_density(x: ArrayLike, n: int, radius: float) -> FloatArray:
    """Mean density (mass 1) at x (..., 2) of the gas in a hard disc: sum_k k u^(k-1)/(pi n radius^2), u = |x|^2/radius^2; (n+1)/2 times the
    uniform density at the wall, where the charge of the mean field sits."""
    n, radius = count(n, "n"), positive(radius, "radius")
    u = _squares(x) / radius**2
    inside = np.where(u <= 1, u, 0.0)
    return np.where(u <= 1, np.polynomial.polynomial.polyval(inside, np.arange(1.0, n + 1)), 0.0) / (np.pi * n * radius**2)


def disc_gas_radial_cdf(r: ArrayLike, n: int, radius: float) -> FloatArray:
    """P(|x| <= r) of one particle of the gas in a hard disc, shape of r: the mean of u^k, k = 1..n, u = r^2/radius^2."""
    n, u = count(n, "n"), np.clip(finite(r, "r") / positive(radius, "radius"), 0, 1) ** 2
    return np.polynomial.polynomial.polyval(u, np.r_[0.0, np.ones(n)]) / n
