"""The rates at which errors fall with n or the step, bias against variance, and extrapolation to the limit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri
from scipy.stats import chi2
from scipy.stats import t as student_t

from theory.arrays import FloatArray, count, extent, finite, generator, positive, real
from theory.convergence.chains import fraction

__all__ = [
    "BiasVariance",
    "EmpiricalRate",
    "Extrapolation",
    "Rate",
    "bias_variance",
    "bootstrap_rate",
    "empirical_rate",
    "extrapolate",
    "fit_rate",
]


class Rate(NamedTuple):
    """error ~ exp(intercept) n^slope with a confidence interval [low, high] of the slope."""

    slope: float
    low: float
    high: float
    intercept: float


class BiasVariance(NamedTuple):
    """Mean minus truth, variance of one replicate and mean squared error, each with its standard error; arrays of the estimate's shape."""

    bias: FloatArray
    bias_error: FloatArray
    variance: FloatArray
    variance_error: FloatArray
    mse: FloatArray
    mse_error: FloatArray


class Extrapolation(NamedTuple):
    """The limit at h = 0, its standard error (0 where none was given), the coefficients of the powers of h, and the fit's p-value."""

    limit: float
    error: float
    coefficients: FloatArray
    p_value: float


class EmpiricalRate(NamedTuple):
    """A bound n^slope, times log(1 + n) where `logarithm`."""

    slope: float
    logarithm: bool


def fit_rate(n: ArrayLike, error: ArrayLike, *, standard_error: ArrayLike | None = None, level: float = 0.95) -> Rate:
    """Least-squares slope of log error against log n with its interval; error has n's shape or (len(n), repeats).

    Without `standard_error` the scatter about the line gives a Student-t interval. With it, of error's shape, points are weighted by the
    standard errors of their logarithms, standard_error/error, which are taken as known: a normal interval.

    Raises
    ------
    ValueError
        If n, error or standard_error is not positive, or there are fewer than three points (two with standard errors).
    """
    n, error = finite(n, "n"), finite(error, "error")
    if n.ndim != 1 or error.shape[:1] != n.shape or error.ndim > 2:
        raise ValueError(f"error must have shape (len(n),) or (len(n), repeats), got {error.shape} for n of shape {n.shape}")
    least = 3 if standard_error is None else 2
    if (n <= 0).any() or (error <= 0).any() or error.size < least or len(np.unique(n)) < 2:
        raise ValueError(f"n and error must be positive with at least {least} points at two n, got {extent(n)}, and {extent(error)}")
    level = fraction(level, "level")
    weight = np.ones(error.shape)
    if standard_error is not None:
        given = finite(standard_error, "standard_error")
        if given.shape != error.shape or (given <= 0).any():
            raise ValueError(f"standard_error must be positive and have error's shape {error.shape}, got {extent(given)}")
        weight = (error / given) ** 2
    x = np.broadcast_to(np.log(n).reshape(-1, *[1] * (error.ndim - 1)), error.shape)
    slope, intercept, spread = _line(x.ravel(), np.log(error).ravel(), weight.ravel())
    if standard_error is None:
        residual = np.log(error) - intercept - slope * x
        quantile = student_t.ppf((1 + level) / 2, error.size - 2) * np.sqrt(np.sum(residual**2) / (error.size - 2))
    else:
        quantile = ndtri((1 + level) / 2)
    half = float(quantile * spread)
    return Rate(slope, slope - half, slope + half, intercept)


def bootstrap_rate(
    n: ArrayLike,
    error: ArrayLike,
    *,
    power: float = 1.0,
    n_resamples: int = 2000,
    level: float = 0.95,
    rng: int | np.random.Generator,
) -> Rate:
    """Slope of log (E error^power)^(1/power) against log n from replicates (len(n), replicate), with a percentile interval.

    The replicates of each n are drawn again, with replacement and independently of the other n (Efron & Tibshirani 1993, chapter 13).
    The mean is taken before the logarithm, where `fit_rate` of replicates fits the mean logarithm. power = 2: root mean squares.

    Raises
    ------
    ValueError
        If n is not positive, an error is negative, power is not positive, or there are fewer than two n or five replicates.
    """
    n, error, power = finite(n, "n"), finite(error, "error"), positive(power, "power")
    if n.ndim != 1 or error.ndim != 2 or len(error) != len(n) or error.shape[1] < 5:
        raise ValueError(
            f"error must have shape (len(n), replicate) with at least five replicates, got {error.shape} for n of shape {n.shape}"
        )
    if (n <= 0).any() or (error < 0).any() or len(np.unique(n)) < 2 or not error.any(1).all():
        raise ValueError(f"n must be positive at two values and error at least 0, not all 0 at any n, got {extent(n)}, and {extent(error)}")
    level, rng, powers = fraction(level, "level"), generator(rng), error**power
    repeats, x = error.shape[1], np.log(n)
    means = [powers.mean(1)]
    for _ in range(count(n_resamples, "n_resamples", least=20)):
        means.append(np.take_along_axis(powers, rng.integers(repeats, size=powers.shape), axis=1).mean(1))
    if not np.all(means):
        raise ValueError("error is 0 in so many replicates that a resample holds nothing else")
    logs, centred = np.log(means) / power, x - x.mean()
    slopes = logs @ centred / (centred @ centred)
    low, high = np.quantile(slopes[1:], [(1 - level) / 2, (1 + level) / 2])
    return Rate(float(slopes[0]), float(low), float(high), float(logs[0].mean() - slopes[0] * x.mean()))


def bias_variance(estimates: ArrayLike, truth: ArrayLike) -> BiasVariance:
    """Bias, variance and mean squared error of independent estimates (replicate, ...) of the truth (...), with standard errors.

    mse = bias^2 + variance in the mean. Against the number of particles and the step size: one call for each, then `fit_rate` of the
    variances and |biases| (their errors as standard_error) or `extrapolate` of the means. The variance's error is
    sqrt((m4 - (R - 3)/(R - 1) variance^2)/R) with the fourth central moment m4 of the R replicates (Cramer 1946, 27.4).

    Raises
    ------
    ValueError
        If there are fewer than four replicates, or the truth's shape does not broadcast to an estimate's.
    """
    estimates, truth = finite(estimates, "estimates"), finite(truth, "truth")
    if estimates.ndim == 0 or len(estimates) < 4:
        raise ValueError(f"estimates must hold at least four replicates, got shape {estimates.shape}")
    try:
        gap = estimates - np.broadcast_to(truth, estimates.shape[1:])
    except ValueError:
        raise ValueError(f"truth must have the shape {estimates.shape[1:]} of an estimate, got {truth.shape}") from None
    repeats, bias = len(gap), gap.mean(0)
    variance = gap.var(0, ddof=1)
    fourth = np.mean((gap - bias) ** 4, axis=0)
    spread = np.sqrt(np.maximum(fourth - (repeats - 3) / (repeats - 1) * variance**2, 0) / repeats)
    squares = gap**2
    mse_error = squares.std(0, ddof=1) / np.sqrt(repeats)
    return BiasVariance(bias, np.sqrt(variance / repeats), variance, spread, squares.mean(0), mse_error)


def extrapolate(
    h: ArrayLike, value: ArrayLike, *, standard_error: ArrayLike | None = None, powers: tuple[float, ...] = (1.0,)
) -> Extrapolation:
    """Limit at h = 0 of value = limit + sum_k c_k h^powers_k, h a step size or 1/n, by (weighted) least squares.

    With as many h as unknowns this is Richardson's extrapolation, exact for such values. With more and `standard_error`, of value's shape
    and independent, the p-value is that of chi^2 for the residual; otherwise it is NaN. Without standard_error, `error` is NaN.

    Raises
    ------
    ValueError
        If h is not positive and distinct in at least 1 + len(powers) places, powers are not positive and distinct, or shapes differ.
    """
    h, value, exponents = finite(h, "h"), finite(value, "value"), finite(powers, "powers")
    if exponents.ndim != 1 or (exponents <= 0).any() or len(np.unique(exponents)) != exponents.size:
        raise ValueError(f"powers must be positive and distinct, got {powers}")
    if h.ndim != 1 or value.shape != h.shape or (h <= 0).any() or len(np.unique(h)) <= exponents.size:
        raise ValueError(f"h must be positive with {1 + exponents.size} different values, and value of its shape, got {h} and {value}")
    given = np.ones(len(h)) if standard_error is None else finite(standard_error, "standard_error")
    if given.shape != h.shape or (given <= 0).any():
        raise ValueError(f"standard_error must be positive and of h's shape {h.shape}, got {extent(given)}")
    scale = h.max()  # powers of h/scale keep the matrix well conditioned
    design = np.column_stack([np.ones(len(h))] + [(h / scale) ** power for power in exponents]) / given[:, None]
    left, singular, right = np.linalg.svd(design, full_matrices=False)
    solution = right.T @ ((left.T @ (value / given)) / singular)
    freedom, rest = len(h) - len(solution), float(np.sum((design @ solution - value / given) ** 2))
    known = standard_error is not None
    error = float(np.linalg.norm(right[:, 0] / singular)) if known else float("nan")
    p_value = float(chi2.sf(rest, freedom)) if known and freedom else float("nan")
    return Extrapolation(float(solution[0]), error, solution[1:] / scale**exponents, p_value)


def empirical_rate(dim: int, p: float = 2.0, *, moments: float = np.inf) -> EmpiricalRate:
    """Fournier & Guillin 2015, theorem 1: the rate of their bound of E W_p^p(mu_n, mu) for n independent points in R^dim.

    For mu with a finite moment of order `moments` = q > p (infinite: all orders, so any bounded support): n^-1/2 if p > dim/2,
    n^-1/2 log(1 + n) if p = dim/2, n^(-p/dim) if p < dim/2, and never better than n^(-(q-p)/q). For p >= dim/2 and mu smooth the truth
    can be faster (dim = 1, W_2^2 of the uniform law: exactly 1/(6 n)). It bounds the distance of independent points; particles that repel
    each other fill space more evenly and may do better.

    Raises
    ------
    ValueError
        At dim < 1, p <= 0, q <= p, and where the theorem states nothing: q = 2 p for p >= dim/2, q = dim/(dim - p) for p < dim/2.
    """
    dim, p, q = count(dim, "dim"), positive(p, "p"), real(moments, "moments")
    if not q > p:
        raise ValueError(f"moments must be above p = {p:g}, got {moments!r}")
    excluded = 2 * p if 2 * p >= dim else dim / (dim - p)
    if q == excluded:
        raise ValueError(f"moments must differ from {excluded:g}, where theorem 1 states nothing, got {moments!r}")
    bulk = -0.5 if 2 * p >= dim else -p / dim
    tail = -1.0 if q == np.inf else -(q - p) / q
    return EmpiricalRate(max(bulk, tail), 2 * p == dim and bulk >= tail)


def _line(x: FloatArray, y: FloatArray, weight: FloatArray) -> tuple[float, float, float]:
    """Weighted least-squares slope and intercept, and the slope's standard error if the weights are inverse variances."""
    centre = np.average(x, weights=weight)
    spread = float(np.sum(weight * (x - centre) ** 2))
    slope = float(np.sum(weight * (x - centre) * y) / spread)
    return slope, float(np.average(y, weights=weight) - slope * centre), 1 / np.sqrt(spread)
