"""Exact variances of random features: trigonometric, phase, positive, hyperbolic and optimal positive; independent or orthogonal.

A feature's variance is that of the estimate made by one frequency w. The mean of m independent ones divides it by m. Orthogonal
frequencies (blocks of dim mutually orthogonal Haar directions with independent norms, so that each keeps its law) add one covariance
per pair within a block: `mean_variance` puts the two together. The covariances are confluent hypergeometric functions, by
E exp((w1 + w2) . z) = 1F1(dim; dim/2; |z|^2/2): given the two norms, w1 + w2 is uniform on a sphere, and |w1 + w2|^2 is chi-squared
with 2 dim degrees of freedom. x, y, z have shape (..., dim) and broadcast, results have shape (...). Gaussian frequencies are
N(0, I); Flexformer's scaled pair is x and y multiplied by dim^(-1/4).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, hyp1f1

from theory.arrays import FloatArray, count, finite, positive, real
from theory.spectral.stationary_kernels import Gaussian, SpectralPair, squared, vectors
from theory.spectral.yaglom import GaussianPair

__all__ = [
    "RatioError",
    "attention_error",
    "fourier_variance",
    "gram_error",
    "hyperbolic_variance",
    "mean_variance",
    "optimal_positive_parameter",
    "optimal_positive_variance",
    "orthogonal_fourier_covariance",
    "orthogonal_positive_bound",
    "orthogonal_positive_covariance",
    "orthogonal_trigonometric_covariance",
    "phase_variance",
    "positive_variance",
    "trigonometric_variance",
    "yaglom_variance",
]


def fourier_variance(delta: ArrayLike, pair: SpectralPair) -> FloatArray:
    """Variance of one cos/sin pair's estimate cos(w . delta) of k(delta): (1 + k(2 delta))/2 - k(delta)^2.

    delta (..., dim) -> (...), to rounding of 1. The mean of m independent pairs divides it by m (Sutherland & Schneider 2015).
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
    return _excess_of(np.sum(x * y, -1), squared(x + y, "x + y"))


def hyperbolic_variance(x: ArrayLike, y: ArrayLike) -> FloatArray:
    """Variance when each w gives the two features e^(w.x), e^(-w.x) over sqrt(2): (1 - e^(-|x+y|^2))/2 of the positive one."""
    x, y = _two(x, y)
    return -0.5 * np.expm1(-squared(x + y, "x + y")) * positive_variance(x, y)


def trigonometric_variance(x: ArrayLike, y: ArrayLike) -> FloatArray:
    """Variance of e^((|x|^2+|y|^2)/2) cos(w.(x-y)), w ~ N(0, I), as an estimate of e^(x.y) (Performer, Lemma 2)."""
    x, y = _two(x, y)
    return 0.5 * _growth(x, y) * np.expm1(-squared(x - y, "x - y")) ** 2


def optimal_positive_variance(x: ArrayLike, y: ArrayLike, a: float) -> FloatArray:
    """Variance of phi(x) phi(y), phi(x) = (1-4a)^(dim/4) exp(a|w|^2 + sqrt(1-4a) w.x - |x|^2/2), as an estimate of e^(x.y).

    a = 0 is `positive_variance`; a < 0 makes the features bounded. Raises ValueError unless a < 1/8, where the variance is finite.
    Source: Likhosherstov et al. 2022 (Chefs' random tables).
    """
    x, y = _two(x, y)
    a = _below_eighth(a)
    log_ratio = x.shape[-1] * (np.log1p(-4 * a) - 0.5 * np.log1p(-8 * a)) + squared(x + y, "x + y") / (1 - 8 * a)
    return _excess_of(np.sum(x * y, -1), log_ratio)


def optimal_positive_parameter(second_moment: float, dim: int) -> float:
    """The a <= 0 of least mean log second moment, given second_moment = mean of |x+y|^2 over the pairs (exact for one pair).

    a = (1 - 1/rho)/8 with rho = (sqrt((2m + dim)^2 + 8 dim m) - 2m - dim) / (4m), m the second moment; a -> 0 as m -> 0.
    Source: Likhosherstov et al. 2022; 2023 (FAVOR#).
    """
    m, dim = positive(second_moment, "second_moment", zero=True), count(dim, "dim")
    inverse = (np.hypot(2 * m + dim, np.sqrt(8 * dim) * np.sqrt(m)) + 2 * m + dim) / (2 * dim)  # 1/rho without its cancellation
    return float((1 - inverse) / 8)


def orthogonal_fourier_covariance(delta: ArrayLike, length: float = 1.0) -> FloatArray:
    """Covariance of cos(w1.delta), cos(w2.delta) for orthogonal w1, w2 of the Gaussian kernel: 1F1(dim; dim/2; -z^2/2) - e^(-z^2).

    z = |delta|/length. Random phases add nothing to it. It can have either sign, and is negative for small z: -z^4/(2 dim + 4).
    Source: Yu et al. 2016 (the features); Choromanski et al. 2018 (The geometry of random features: the mean over |w1 + w2|, summed
    here); Demni & Kadri 2023 (fixed norms sqrt(dim), another law). ValueError for dim = 1 (no pair).
    """
    z2 = squared(delta, "delta") / positive(length, "length") ** 2
    return _fourier_excess(0.5 * z2, vectors(delta, "delta").shape[-1])


def orthogonal_positive_covariance(x: ArrayLike, y: ArrayLike) -> FloatArray:
    """Covariance of two positive features with orthogonal w: e^(-|x|^2-|y|^2) [1F1(dim; dim/2; |x+y|^2/2) - e^(|x+y|^2)] <= 0.

    Hyperbolic features and optimal positive ones (any a) have the same covariance: the signs of w are symmetric, and the tilt by
    e^(2a|w|^2) only rescales the two norms. Source: the series behind Performer's theorem 2, summed. ValueError for dim = 1.
    """
    x, y = _two(x, y)
    return np.exp(2 * np.sum(x * y, -1)) * _positive_excess(0.5 * squared(x + y, "x + y"), x.shape[-1])


def orthogonal_trigonometric_covariance(x: ArrayLike, y: ArrayLike) -> FloatArray:
    """Covariance of two trigonometric estimates of e^(x.y) with orthogonal w: e^(|x|^2+|y|^2) times that of the Gaussian kernel."""
    x, y = _two(x, y)
    return _growth(x, y) * _fourier_excess(0.5 * squared(x - y, "x - y"), x.shape[-1])


def yaglom_variance(x: ArrayLike, y: ArrayLike, pair: GaussianPair) -> FloatArray:
    """Variance of one pair's nonstationary estimate of pair.kernel(x, y), x and y (..., dim) -> (...).

    The estimate is the mean of four cosines cos(s . w); products of cosines are cosines of sums and differences, and each has the
    closed mean Re phi(s_a +- s_b).
    """
    if not isinstance(pair, GaussianPair):
        raise ValueError(f"pair must be a GaussianPair, got {pair!r}")
    terms = pair.terms(x, y)
    sums, differences = (pair.characteristic(terms[:, None] + sign * terms).real for sign in (1, -1))
    return 0.5 * (sums + differences).mean((0, 1)) - pair.kernel(x, y) ** 2


def mean_variance(variance: ArrayLike, covariance: ArrayLike, n_features: int, dim: int) -> FloatArray:
    """Variance of the mean of n_features features in orthogonal blocks of dim (the last one may be smaller), blocks independent.

    [n variance + sum over blocks of b (b - 1) covariance] / n^2, b the blocks' sizes; covariance 0 gives the independent features.
    The mean squared error of an unbiased kernel over data is the mean of this over the pairs of points.
    """
    n, dim = count(n_features, "n_features"), count(dim, "dim")
    full, rest = divmod(n, dim)
    pairs = full * dim * (dim - 1) + rest * (rest - 1)
    return (n * finite(variance, "variance") + pairs * finite(covariance, "covariance")) / n**2


def orthogonal_positive_bound(x: ArrayLike, y: ArrayLike, n_features: int) -> FloatArray:
    """Upper bound of the mean squared error of n_features <= dim orthogonal positive features.

    variance/n - 2 (n-1) / (n (dim + 2)) (e^(x.y) - e^(-(|x|^2+|y|^2)/2))^2. Source: Choromanski et al. 2021, theorem 2.
    """
    x, y = _two(x, y)
    n, dim = count(n_features, "n_features"), x.shape[-1]
    if n > dim:
        raise ValueError(f"n_features must be at most dim = {dim}, got {n}")
    gap = np.exp(np.sum(x * y, -1)) - np.exp(-0.5 * (squared(x, "x") + squared(y, "y")))
    return positive_variance(x, y) / n - 2 * (n - 1) / (n * (dim + 2)) * gap**2


def gram_error(x: ArrayLike, pair: SpectralPair, n_features: int, *, orthogonal: bool = False) -> float:
    """Expected mean over all n^2 pairs of rows x (n, dim) of the squared error of the Gram matrix of n_features cos/sin pairs.

    `orthogonal` needs the Gaussian pair (ValueError otherwise). Off the diagonal, where the error is 0, multiply by n/(n-1).
    """
    x = vectors(x, "x")
    if x.ndim != 2 or 0 in x.shape:
        raise ValueError(f"x must have shape (n, dim) with n and dim at least 1, got {x.shape}")
    if orthogonal and not isinstance(pair, Gaussian):
        raise ValueError(f"pair must be Gaussian for orthogonal features, got {pair!r}")
    delta = x[:, None] - x
    covariance = orthogonal_fourier_covariance(delta, pair.length) if isinstance(pair, Gaussian) and orthogonal else 0.0
    return float(np.mean(mean_variance(fourier_variance(delta, pair), covariance, n_features, x.shape[1])))


class RatioError(NamedTuple):
    """Leading bias and variance of one query's attention output, shape (value,), of order 1/n_features."""

    bias: FloatArray
    variance: FloatArray


def attention_error(
    q: ArrayLike, k: ArrayLike, v: ArrayLike, n_features: int, *, kind: Literal["positive", "hyperbolic", "trigonometric"] = "positive"
) -> RatioError:
    """Error of sum_j A_j v_j / sum_j A_j, A_j an estimate of e^(q.k_j) by n_features independent w that all keys share.

    q (dim,), k (key, dim), v (key, value); delta method, to first order in 1/n_features: valid while the denominator's relative
    error is small. With C the covariance of the estimates over the keys, s their sum and o the exact output,
    variance = sum_jl C_jl (v_j - o)(v_l - o) / (n s^2) and bias = -sum_jl C_jl (v_j - o) / (n s^2). ValueError where C overflows.
    """
    q, k, v = finite(q, "q"), finite(k, "k"), finite(v, "v")
    if q.ndim != 1 or k.ndim != 2 or v.ndim != 2 or k.shape[1] != len(q) or len(v) != len(k) or not k.size:
        raise ValueError(f"q, k, v must have shapes (dim,), (key, dim), (key, value), got {q.shape}, {k.shape}, {v.shape}")
    share = np.exp(k @ q - np.max(k @ q))
    share /= share.sum()
    weighted = share[:, None] * (v - share @ v)
    with np.errstate(over="ignore"):
        relative = _relative_covariance(q, k, kind)
    if not np.isfinite(relative).all():
        norms = np.linalg.norm(q), np.linalg.norm(k, axis=1).max()
        raise ValueError(f"q and k must be small enough for a finite variance, got norms up to {norms[0]} and {norms[1]}")
    n = count(n_features, "n_features")
    return RatioError(-(share @ relative @ weighted) / n, np.einsum("jv,jl,lv->v", weighted, relative, weighted) / n)


def _relative_covariance(q: FloatArray, k: FloatArray, kind: str) -> FloatArray:
    """Covariance of one w's estimates of e^(q.k_j), e^(q.k_l), over the product of the two; (key, key)."""
    plus, minus = (q + k) @ (q + k).T, (q - k) @ (q - k).T
    if kind == "positive":
        return np.expm1(plus)
    if kind == "hyperbolic":
        return 2 * np.sinh(0.5 * plus) ** 2
    if kind == "trigonometric":
        return 2 * np.sinh(0.5 * minus) ** 2
    raise ValueError(f"kind must be 'positive', 'hyperbolic' or 'trigonometric', got {kind!r}")


def _excess_of(product: FloatArray, log_ratio: FloatArray) -> FloatArray:
    """e^(2 product) (e^log_ratio - 1): second moment less squared mean, which overflows only if the result does."""
    return -np.exp(2 * product + log_ratio) * np.expm1(-log_ratio)


def _growth(x: FloatArray, y: FloatArray) -> FloatArray:
    """e^(|x|^2 + |y|^2); ValueError where it is no float."""
    exponent = squared(x, "x") + squared(y, "y")
    if (largest := exponent.max(initial=0.0)) > 700:
        raise ValueError(f"|x|^2 + |y|^2 must be under 700, where its exponential is a float, got {largest}")
    return np.exp(exponent)


def _fourier_excess(v: FloatArray, dim: int) -> FloatArray:
    """1F1(dim; dim/2; -v) - e^(-2v), v >= 0; where v < 1 by its series, as the leading terms cancel. ValueError for dim = 1."""
    far = np.where(v < 1, 1.0, v)
    return np.where(v < 1, _series(-np.minimum(v, 1.0), dim), hyp1f1(dim, dim / 2, -far) - np.exp(-2 * far))


def _positive_excess(u: FloatArray, dim: int) -> FloatArray:
    """1F1(dim; dim/2; u) e^(-2u) - 1, u >= 0, in Kummer's form, which does not overflow. ValueError for dim = 1."""
    near, far = np.minimum(u, 1.0), np.where(u < 1, 1.0, u)
    return np.where(u < 1, np.exp(-2 * near) * _series(near, dim), hyp1f1(-dim / 2, dim / 2, -far) * np.exp(-far) - 1)


def _series(u: FloatArray, dim: int) -> FloatArray:
    """1F1(dim; dim/2; u) - e^(2u) = sum over k >= 2 of [(dim)_k / (dim/2)_k - 2^k] u^k / k!, for |u| <= 1."""
    if dim < 2:
        raise ValueError(f"orthogonal frequencies need dim of at least 2, got {dim}")
    k = np.arange(2, 28)
    factor = np.cumprod((dim + np.arange(28)) / (dim / 2 + np.arange(28)) / 2)[k - 1]  # (dim)_k / (dim/2)_k / 2^k
    return np.polynomial.polynomial.polyval(u, np.concatenate([[0.0, 0.0], np.exp(k * np.log(2) - gammaln(k + 1)) * (factor - 1)]))


def _two(x: ArrayLike, y: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """x and y (..., dim) of shapes that broadcast."""
    x, y = vectors(x, "x"), vectors(y, "y")
    if x.shape[-1] != y.shape[-1]:
        raise ValueError(f"x and y must have the same dim, got shapes {x.shape} and {y.shape}")
    return x, y


def _below_eighth(a: float) -> float:
    if not real(a, "a") < 0.125 or not np.isfinite(a):
        raise ValueError(f"a must be under 1/8, where the variance is finite, got {a!r}")
    return float(a)
