"""Distances between measures, the rates at which they fall, and how far chains have converged."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import t as student_t

from theory.arrays import FloatArray, finite, numeric, real
from theory.discrepancy import energy_distance
from theory.transport import sliced_wasserstein2, wasserstein2

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
