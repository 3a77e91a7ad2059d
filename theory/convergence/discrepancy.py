"""Distances between samples by kernels: energy distance, maximum mean discrepancy, and the error of the kernel that particles carry.

With a kernel k(x, y) the squared distance is E k(X, X') + E k(Y, Y') - 2 E k(X, Y); the energy distance is the case k = -|x - y|.
A kernel is a length (Gaussian exp(-|x - y|^2 / (2 length^2))), an object whose `kernel(delta)` takes differences (..., dim), as the pairs
of `theory.spectral`, or a callable of x (n, dim) and y (m, dim) that returns the Gram matrix (n, m), as those of scikit-learn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist

from theory.arrays import FloatArray, count, finite, generator, positive
from theory.convergence.transport import points, same_dim

__all__ = ["KernelError", "TwoSample", "energy_distance", "kernel_error", "mmd2", "two_sample_test"]

BLOCK = 4_000_000  # numbers in a block of a Gram matrix, 32 MB

Gram = Callable[[FloatArray, FloatArray], FloatArray]


class TwoSample(NamedTuple):
    """A squared distance, its jackknife standard error, and the p-value of equal laws."""

    value: float
    error: float
    p_value: float


class KernelError(NamedTuple):
    """Largest and root mean square difference of two kernels over all pairs of points."""

    sup: float
    rms: float


def energy_distance(a: ArrayLike, b: ArrayLike, *, unbiased: bool = True) -> float:
    """2 E|X-Y| - E|X-X'| - E|Y-Y'| between the points a (n, dim) and b (m, dim), or (n,) and (m,) on the line.

    The unbiased form leaves out the pairs of a point with itself and may be negative; the other (V-statistic) is at least 0 and
    vanishes only for equal point sets. Source: Szekely & Rizzo 2013. O((n + m)^2) time, rows in blocks.

    Raises
    ------
    ValueError
        If the dims differ, or the unbiased form gets fewer than two points.
    """
    return _distance(a, b, _minus_distance, unbiased, "energy distance")


def mmd2(a: ArrayLike, b: ArrayLike, kernel: Any, *, unbiased: bool = True) -> float:
    """Squared maximum mean discrepancy of the points a (n, dim) and b (m, dim) by a kernel (see the module).

    The unbiased form (U-statistic) may be negative; the other is at least 0 for a positive definite kernel. Source: Gretton, Borgwardt,
    Rasch, Scholkopf & Smola 2012, equations 3 and 5. O((n + m)^2) time, rows in blocks.

    Raises
    ------
    ValueError
        If the dims differ, the unbiased form gets fewer than two points, or the kernel is none.
    """
    return _distance(a, b, gram(kernel), unbiased, "MMD")


def two_sample_test(
    a: ArrayLike, b: ArrayLike, kernel: Any = "energy", *, n_permutations: int = 199, rng: int | np.random.Generator
) -> TwoSample:
    """Unbiased squared distance of a (n, dim) and b (m, dim) by a kernel or "energy", its error, and a permutation p-value.

    The p-value (1 + number of relabelled values at least as large)/(1 + n_permutations) is exact for independent points whatever n, m and
    the kernel (Phipson & Smyth 2010); the smallest is 1/(1 + n_permutations). The standard error is the jackknife's over single points,
    which overstates on average (Efron & Stein 1981), by sqrt(2) where the laws are equal.

    Raises
    ------
    ValueError
        If the dims differ, a side has fewer than three points, or the kernel is none.
    """
    a, b = same_dim(a, b)
    n, m = len(a), len(b)
    if min(n, m) < 3:
        raise ValueError(f"a and b must hold at least three points each, got {n} and {m}")
    function = _minus_distance if isinstance(kernel, str) and kernel == "energy" else gram(kernel)
    label = np.zeros((n + m, 1 + count(n_permutations, "n_permutations")))
    label[:n] = 1.0
    label[:, 1:] = generator(rng).permuted(label[:, 1:], axis=0)
    sums, own, diagonal = _label_sums(np.concatenate([a, b]), label, function)
    values = _statistic(label, sums, diagonal)
    larger = np.sum(values[1:] >= values[0] - 1e-12 * abs(values[0]))
    return TwoSample(float(values[0]), _jackknife(own, n, m), float((1 + larger) / len(values)))


def kernel_error(
    mu: ArrayLike, nu: Any, x: ArrayLike, *, feature: Callable[[FloatArray, FloatArray], ArrayLike] | None = None
) -> KernelError:
    """Largest and rms |K_mu - K_nu| over all pairs of the points x (point, dim), K_mu(x, x') = mean over particles phi_w(x) . phi_w(x').

    mu (particle, dim) are particles; nu is another cloud, of any number, or a kernel (see the module), such as the population's. The
    features phi are cos and sin of w . x (Bochner), or feature(x (point, dim), omega (particle, ...)) -> (point, width) whose products
    summed over the width and divided by the number of particles give K. Particles go in blocks.

    Raises
    ------
    ValueError
        If shapes do not fit or the features are not finite.
    """
    x = points(x, "x")
    phi = _fourier if feature is None else feature
    other = _particle_kernel(nu, "nu", x, phi) if np.ndim(nu) and not callable(nu) else gram(nu)(x, x)
    gap = np.abs(_particle_kernel(mu, "mu", x, phi) - other)
    return KernelError(float(gap.max()), float(np.sqrt(np.mean(gap**2))))


def gram(kernel: Any) -> Gram:
    """The function of x (n, dim) and y (m, dim) that returns the kernel's matrix (n, m); ValueError if `kernel` is none."""
    if hasattr(kernel, "kernel"):
        return lambda x, y: _matrix(kernel.kernel(x[:, None] - y), len(x), len(y))
    if callable(kernel):
        return lambda x, y: _matrix(kernel(x, y), len(x), len(y))
    if isinstance(kernel, str) or np.ndim(kernel):
        raise ValueError(f"kernel must be a length, a callable of x and y, or have a method kernel, got {kernel!r}")
    length = positive(kernel, "kernel")
    return lambda x, y: np.exp(-0.5 * cdist(x / length, y / length, "sqeuclidean"))


def _matrix(values: ArrayLike, n: int, m: int) -> FloatArray:
    values = finite(values, "values of the kernel")
    if values.shape != (n, m):
        raise ValueError(f"the kernel must return a matrix of shape {(n, m)}, got {values.shape}")
    return values


def _minus_distance(x: FloatArray, y: FloatArray) -> FloatArray:
    return -cdist(x, y)


def _distance(a: ArrayLike, b: ArrayLike, kernel: Gram, unbiased: bool, name: str) -> float:
    a, b = same_dim(a, b)
    n, m = len(a), len(b)
    if unbiased and min(n, m) < 2:
        raise ValueError(f"the unbiased {name} needs two points on each side, got {n} and {m}")
    within = [_sum(x, x, kernel) - (_trace(x, kernel) if unbiased else 0.0) for x in (a, b)]
    pairs = [k * (k - 1) if unbiased else k * k for k in (n, m)]
    return within[0] / pairs[0] + within[1] / pairs[1] - 2 * _sum(a, b, kernel) / (n * m)


def _blocks(n: int, width: int) -> list[slice]:
    rows = max(1, BLOCK // width)
    return [slice(i, min(i + rows, n)) for i in range(0, n, rows)]


def _sum(x: FloatArray, y: FloatArray, kernel: Gram) -> float:
    return float(sum(kernel(x[rows], y).sum() for rows in _blocks(len(x), y.size)))


def _trace(x: FloatArray, kernel: Gram) -> float:
    """Sum of k(x_i, x_i), from small diagonal blocks."""
    return float(sum(np.trace(kernel(x[i : i + 64], x[i : i + 64])) for i in range(0, len(x), 64)))


def _label_sums(x: FloatArray, label: FloatArray, kernel: Gram) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Sums over ordered pairs of equal first labels, of equal second ones, and mixed (3, labelling); the row sums towards the given
    labels without the pair with itself (point, 2); the diagonal (point,)."""
    sums, own, diagonal = np.zeros((3, label.shape[1])), np.empty((len(x), 2)), np.empty(len(x))
    for rows in _blocks(len(x), x.size):
        matrix = kernel(x[rows], x)
        diagonal[rows] = matrix[np.arange(len(matrix)), np.arange(rows.start, rows.stop)]
        to_first, total, here = matrix @ label, matrix.sum(1)[:, None], label[rows]
        sums += [np.sum(here * to_first, 0), np.sum((1 - here) * (total - to_first), 0), np.sum(here * (total - to_first), 0)]
        own[rows, 0] = to_first[:, 0] - here[:, 0] * diagonal[rows]
        own[rows, 1] = (total - to_first)[:, 0] - (1 - here[:, 0]) * diagonal[rows]
    return sums, own, diagonal


def _statistic(label: FloatArray, sums: FloatArray, diagonal: FloatArray) -> FloatArray:
    """The unbiased squared distance of every labelling."""
    n = label[:, 0].sum()
    m = len(label) - n
    first = diagonal @ label
    return (sums[0] - first) / (n * (n - 1)) + (sums[1] - diagonal.sum() + first) / (m * (m - 1)) - 2 * sums[2] / (n * m)


def _jackknife(own: FloatArray, n: int, m: int) -> float:
    """Root of the jackknife variance of the U-statistic over both samples, from the row sums alone."""
    aa, ab, bb = own[:n, 0].sum(), own[:n, 1].sum(), own[n:, 1].sum()
    without_a = (aa - 2 * own[:n, 0]) / ((n - 1) * (n - 2)) - 2 * (ab - own[:n, 1]) / ((n - 1) * m)
    without_b = (bb - 2 * own[n:, 1]) / ((m - 1) * (m - 2)) - 2 * (ab - own[n:, 0]) / (n * (m - 1))
    return float(np.sqrt((n - 1) * without_a.var() + (m - 1) * without_b.var()))


def _fourier(x: FloatArray, omega: FloatArray) -> FloatArray:
    phase = x @ omega.T
    return np.concatenate([np.cos(phase), np.sin(phase)], axis=1)


def _particle_kernel(omega: ArrayLike, name: str, x: FloatArray, feature: Callable[[FloatArray, FloatArray], ArrayLike]) -> FloatArray:
    omega, total = points(omega, name), np.zeros((len(x), len(x)))
    if feature is _fourier and omega.shape[1] != x.shape[1]:
        raise ValueError(f"{name} must have the dim of x, got shapes {omega.shape} and {x.shape}")
    for rows in _blocks(len(omega), len(x)):
        phi = finite(feature(x, omega[rows]), "values of the feature")
        total += phi @ phi.T
    return total / len(omega)
