"""Distances between measures, the rates at which they fall, and how far chains have converged."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist
from scipy.stats import t as student_t

from theory.arrays import FloatArray, count, finite, generator, numeric, real

__all__ = [
    "Rate",
    "effective_sample_size",
    "energy_distance",
    "fit_rate",
    "mean_and_error",
    "sliced_wasserstein2",
    "split_r_hat",
    "wasserstein2",
]


class Rate(NamedTuple):
    """error ~ exp(intercept) n^slope with a confidence interval [low, high] of the slope."""

    slope: float
    low: float
    high: float
    intercept: float


def wasserstein2(
    a: ArrayLike,
    b: ArrayLike | Callable[[FloatArray], FloatArray],
    *,
    a_weights: ArrayLike | None = None,
    b_weights: ArrayLike | None = None,
) -> float:
    """W2 on the line between the weighted points a (n,) and b: points (m,) or a quantile function of u in (0, 1).

    Points against points is exact. Against a quantile function each of the n pieces gets 24 Gauss points, the two end pieces
    (where the quantile may diverge) in a graded variable. W2^2 = int (F_a^-1 - F_b^-1)^2 du.

    Raises
    ------
    ValueError
        On empty or non-finite input, negative weights, or weights that sum to 0.
    """
    a, cum_a = _sorted(a, a_weights, "a")
    if not callable(b):
        b, cum_b = _sorted(b, b_weights, "b")
        edges = np.unique(np.concatenate([[0.0], cum_a, cum_b]))
        middle = (edges[1:] + edges[:-1]) / 2
        gap = a[_piece(cum_a, middle)] - b[_piece(cum_b, middle)]
        return float(np.sqrt(np.sum(np.diff(edges) * gap**2)))
    if b_weights is not None:
        raise ValueError("b_weights must be None when b is a quantile function")
    u, weight = _quadrature(np.concatenate([[0.0], cum_a]))
    return float(np.sqrt(np.sum(weight * (a[_piece(cum_a, u)] - b(u)) ** 2)))


def sliced_wasserstein2(a: ArrayLike, b: ArrayLike, *, n_projections: int = 128, rng: int | np.random.Generator) -> float:
    """Root mean over random directions of W2^2 of the projections of a (n, dim) and b (m, dim) (Bonneel et al. 2015)."""
    a, b = _points(a, "a"), _points(b, "b")
    if a.shape[1] != b.shape[1]:
        raise ValueError(f"a and b must have the same dim, got shapes {a.shape} and {b.shape}")
    direction = generator(rng).standard_normal((a.shape[1], count(n_projections, "n_projections")))
    direction /= np.linalg.norm(direction, axis=0)
    return float(np.sqrt(np.mean([wasserstein2(pa, pb) ** 2 for pa, pb in zip((a @ direction).T, (b @ direction).T)])))


def energy_distance(a: ArrayLike, b: ArrayLike, *, unbiased: bool = True) -> float:
    """2 E|X-Y| - E|X-X'| - E|Y-Y'| between the points a (n, dim) and b (m, dim), or (n,) and (m,) on the line.

    The unbiased form leaves out the pairs of a point with itself and may be negative; the other (V-statistic) is at least 0 and
    vanishes only for equal point sets. Source: Szekely & Rizzo 2013. O(n m) time, rows in blocks.

    Raises
    ------
    ValueError
        If the dims differ, or the unbiased form gets fewer than two points.
    """
    a, b = _points(a, "a"), _points(b, "b")
    if a.shape[1] != b.shape[1]:
        raise ValueError(f"a and b must have the same dim, got shapes {a.shape} and {b.shape}")
    n, m = len(a), len(b)
    if unbiased and min(n, m) < 2:
        raise ValueError(f"the unbiased energy distance needs two points on each side, got {n} and {m}")
    within_a, within_b = (n * (n - 1), m * (m - 1)) if unbiased else (n * n, m * m)
    return 2 * _distance_sum(a, b) / (n * m) - _distance_sum(a, a) / within_a - _distance_sum(b, b) / within_b


def fit_rate(n: ArrayLike, error: ArrayLike, *, level: float = 0.95) -> Rate:
    """Least-squares slope of log error against log n with a Student-t interval; error has n's shape or (len(n), repeats).

    Raises
    ------
    ValueError
        If n or error is not positive, or there are fewer than three points.
    """
    n, error = finite(n, "n"), finite(error, "error")
    if n.ndim != 1 or error.shape[:1] != n.shape or error.ndim > 2:
        raise ValueError(f"error must have shape (len(n),) or (len(n), repeats), got {error.shape} for n of shape {n.shape}")
    if (n <= 0).any() or (error <= 0).any() or error.size < 3 or len(np.unique(n)) < 2:
        raise ValueError(f"n and error must be positive with at least three points at two n, got {n} and {error}")
    if not 0 < real(level, "level") < 1:
        raise ValueError(f"level must lie in (0, 1), got {level!r}")
    x = np.broadcast_to(np.log(n).reshape(-1, *[1] * (error.ndim - 1)), error.shape).ravel()
    y, centred = np.log(error).ravel(), x - x.mean()
    slope = float(centred @ y / (centred @ centred))
    intercept = float(y.mean() - slope * x.mean())
    spread = np.sum((y - intercept - slope * x) ** 2) / (len(y) - 2)
    half = float(student_t.ppf((1 + level) / 2, len(y) - 2) * np.sqrt(spread / (centred @ centred)))
    return Rate(slope, slope - half, slope + half, intercept)


def split_r_hat(draws: ArrayLike) -> float:
    """Split R-hat of draws (chain, draw): root of pooled over within-half variance, 1 when every half chain tells the same.

    NaN with fewer than 4 draws a chain, non-finite or constant draws. Source: Gelman et al. 2013, section 11.4.
    """
    halves = _halves(draws)
    if halves is None:
        return float("nan")
    within, pooled = _variances(halves)
    return float(np.sqrt(pooled / within)) if within > 0 else float("nan")


def effective_sample_size(draws: ArrayLike) -> float:
    """Number of independent draws that would give the mean of draws (chain, draw) its precision; autocorrelation over all chains.

    Initial monotone positive sequence over split chains (Geyer 1992; Vehtari et al. 2021). For AR(1) with coefficient a it tends to
    n (1 - a)/(1 + a). NaN with fewer than 4 draws a chain, non-finite or constant draws.
    """
    halves = _halves(draws)
    if halves is None:
        return float("nan")
    within, pooled = _variances(halves)
    if not within > 0:
        return float("nan")
    correlation = 1 - (within - _autocovariance(halves).mean(0)) / pooled
    correlation[0] = 1.0
    pairs = correlation[: len(correlation) // 2 * 2].reshape(-1, 2).sum(1)
    negative = np.flatnonzero(pairs < 0)
    pairs = np.minimum.accumulate(pairs[: negative[0]] if negative.size else pairs)
    time = max(2 * pairs.sum() - 1, 1 / np.log10(halves.size))
    return float(halves.size / time)


def mean_and_error(draws: ArrayLike) -> tuple[float, float, float]:
    """Mean of draws (chain, draw), its standard error by effective sample size, and by the spread of the chains (NaN for one chain).

    The error of constant draws is 0, that of fewer than 4 draws a chain NaN.
    """
    draws = finite(draws, "draws")
    halves = _halves(draws)
    chains = draws.mean(1)
    across = float(chains.std(ddof=1) / np.sqrt(len(chains))) if len(chains) > 1 else float("nan")
    if halves is None or np.ptp(draws) == 0:
        return float(draws.mean()), float("nan") if halves is None else 0.0, across
    pooled, ess = _variances(halves)[1], effective_sample_size(draws)
    return float(draws.mean()), float(np.sqrt(pooled / ess)) if ess > 0 else float("inf"), across


def _sorted(points: ArrayLike, weights: ArrayLike | None, name: str) -> tuple[FloatArray, FloatArray]:
    """Sorted points and the cumulative share of their weights, ending at exactly 1."""
    points = finite(points, name)
    if points.ndim == 2 and points.shape[1] == 1:
        points = points[:, 0]
    if points.ndim != 1 or points.size == 0:
        raise ValueError(f"{name} must be points on the line, got shape {points.shape}")
    weights = np.ones(len(points)) if weights is None else finite(weights, f"{name}_weights")
    if weights.shape != points.shape or (weights < 0).any() or weights.sum() <= 0:
        raise ValueError(f"{name}_weights must be {len(points)} numbers of at least 0 and not all 0, got {weights}")
    order = np.argsort(points, kind="stable")
    cumulative = np.cumsum(weights[order]) / weights.sum()
    cumulative[cumulative >= 1 - 1e-15] = 1.0
    return points[order], cumulative


def _piece(cumulative: FloatArray, u: FloatArray) -> np.ndarray:
    """Index of the point that carries each u in (0, 1)."""
    return np.minimum(np.searchsorted(cumulative, u, side="right"), len(cumulative) - 1)


def _quadrature(edges: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights in (0, 1) on the pieces between the edges, graded towards 0 and 1."""
    node, weight = np.polynomial.legendre.leggauss(24)
    node, weight = (node + 1) / 2, weight / 2
    width = np.diff(edges)[:, None]
    u, w = edges[:-1, None] + width * node, width * weight
    if len(u) == 1:  # one piece: split it so that each half is graded towards its own end
        return _quadrature(np.array([0.0, 0.5, 1.0]))
    graded, slope = node**6, 6 * node**5 * weight
    u[0], w[0] = width[0] * graded, width[0] * slope
    u[-1], w[-1] = 1 - width[-1] * graded, width[-1] * slope
    return u.ravel(), w.ravel()


def _points(points: ArrayLike, name: str) -> FloatArray:
    points = finite(points, name)
    points = points[:, None] if points.ndim == 1 else points
    if points.ndim != 2 or 0 in points.shape:
        raise ValueError(f"{name} must have shape (n, dim), none of them 0, got {points.shape}")
    return points


def _distance_sum(a: FloatArray, b: FloatArray) -> float:
    """Sum of |a_i - b_j|, in blocks of rows that keep the matrix under about 32 MB."""
    rows = max(1, 4_000_000 // len(b))
    return float(sum(cdist(a[i : i + rows], b).sum() for i in range(0, len(a), rows)))


def _halves(draws: ArrayLike) -> FloatArray | None:
    draws = numeric(draws, "draws")
    if draws.ndim != 2:
        raise ValueError(f"draws must have shape (chain, draw), got {draws.shape}")
    half = draws.shape[1] // 2
    if half < 2 or not np.isfinite(draws).all():
        return None
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def _variances(halves: FloatArray) -> tuple[float, float]:
    """Mean variance within the half chains, and the pooled estimate of the total."""
    n = halves.shape[1]
    within = float(halves.var(axis=1, ddof=1).mean())
    return within, (n - 1) / n * within + float(halves.mean(1).var(ddof=1))


def _autocovariance(halves: FloatArray) -> FloatArray:
    """Biased autocovariance of each row, (chain, lag), by FFT; lag 0 scaled to the unbiased variance."""
    n = halves.shape[1]
    centred = halves - halves.mean(1, keepdims=True)
    spectrum = np.abs(np.fft.rfft(centred, 2 * n, axis=1)) ** 2
    return np.fft.irfft(spectrum, axis=1)[:, :n] / (n - 1)
