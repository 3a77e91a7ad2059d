"""How far chains have converged: R-hat, effective sample sizes and Monte-Carlo errors of draws (chain, draw)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, ndtr, ndtri
from scipy.stats import rankdata

from theory.arrays import FloatArray, finite, numeric, real

__all__ = ["bulk_ess", "effective_sample_size", "mean_and_error", "monte_carlo_error", "rank_r_hat", "split_r_hat", "tail_ess"]


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
    if not draws.size:
        return float("nan"), float("nan"), float("nan")
    chains = draws.mean(1)
    across = float(chains.std(ddof=1) / np.sqrt(len(chains))) if len(chains) > 1 else float("nan")
    if halves is None or np.ptp(draws) == 0:
        return float(draws.mean()), float("nan") if halves is None else 0.0, across
    pooled, ess = _variances(halves)[1], effective_sample_size(draws)
    return float(draws.mean()), float(np.sqrt(pooled / ess)) if ess > 0 else float("inf"), across


def rank_r_hat(draws: ArrayLike) -> float:
    """The larger of split R-hat of the rank-normalised draws (chain, draw) and of their distances from the median (Vehtari et al. 2021).

    Sees chains of unlike location, and of unlike scale where the means agree; heavy tails do no harm. NaN as `split_r_hat`;
    distances from the median that are all the same (two-valued draws) say nothing and are left out.
    """
    values = numeric(draws, "draws")
    if _halves(values) is None:
        return float("nan")
    folded = np.abs(values - np.median(values))
    return float(np.fmax(split_r_hat(_normalised(values)), split_r_hat(_normalised(folded))))


def bulk_ess(draws: ArrayLike) -> float:
    """Effective sample size of the rank-normalised draws (chain, draw) (Vehtari et al. 2021); NaN as `effective_sample_size`."""
    values = numeric(draws, "draws")
    return float("nan") if _halves(values) is None else effective_sample_size(_normalised(values))


def tail_ess(draws: ArrayLike) -> float:
    """The smaller effective sample size of the 5 % and 95 % quantiles of draws (chain, draw) (Vehtari et al. 2021).

    NaN as `effective_sample_size`, and where no draw lies beyond one of the quantiles.
    """
    values = numeric(draws, "draws")
    if _halves(values) is None:
        return float("nan")
    return float(np.min([effective_sample_size((values <= np.quantile(values, level)).astype(float)) for level in (0.05, 0.95)]))


def monte_carlo_error(draws: ArrayLike, *, quantile: float | None = None) -> float:
    """Monte-Carlo standard error of the mean of draws (chain, draw), or of a quantile of theirs (Vehtari et al. 2021, section 4).

    The quantile's is half the width between the sample quantiles at the levels beta^-1(Phi(-+1); S p + 1, S (1 - p) + 1), with S the
    effective sample size of the indicator. NaN with fewer than 4 draws a chain.
    """
    if quantile is None:
        return mean_and_error(draws)[1]
    level, values = fraction(quantile, "quantile"), numeric(draws, "draws")
    if _halves(values) is None:
        return float("nan")
    size = effective_sample_size((values <= np.quantile(values, level)).astype(float))
    if np.isnan(size):
        return float("nan")
    low, high = betaincinv(size * level + 1, size * (1 - level) + 1, [ndtr(-1), ndtr(1)])
    ordered = np.sort(values, axis=None)
    below, above = max(int(np.floor(low * ordered.size)), 1), min(int(np.ceil(high * ordered.size)), ordered.size)
    return float(ordered[above - 1] - ordered[below - 1]) / 2


def fraction(level: float, name: str) -> float:
    """`level` as a float in (0, 1); ValueError names the argument otherwise."""
    level = real(level, name)
    if not 0 < level < 1:
        raise ValueError(f"{name} must lie in (0, 1), got {level!r}")
    return level


def _normalised(draws: FloatArray) -> FloatArray:
    """Normal scores of the ranks over all chains, ties averaged, with the offset 3/8 of Blom 1958."""
    return ndtri((rankdata(draws).reshape(draws.shape) - 3 / 8) / (draws.size + 1 / 4))


def _halves(draws: ArrayLike) -> FloatArray | None:
    draws = numeric(draws, "draws")
    if draws.ndim != 2 or not len(draws):
        raise ValueError(f"draws must have shape (chain, draw) with a chain, got {draws.shape}")
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
