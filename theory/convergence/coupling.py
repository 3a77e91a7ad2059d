"""Synchronous coupling: n interacting particles beside n independent copies of the limit process, with the same start and noise.

dX_i = b_n(X)_i dt + sqrt(2/beta) dW_i and dY_i = b(t, Y_i) dt + sqrt(2/beta) dW_i. For Lipschitz interactions E sup_t |X_i - Y_i|^2 =
O(1/n) (Sznitman 1991, theorem 1.4), and the empirical measures obey E W_2^2 <= that distance. Also the strong order of Euler's scheme by
shared Brownian increments. Noise is an argument or drawn from `rng`; arrays are (chain, particle, dim).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import t as student_t

from theory.arrays import FloatArray, count, finite, generator, positive
from theory.convergence.chains import fraction
from theory.convergence.rates import Rate, bootstrap_rate
from theory.dynamics.diffusion import inverse_temperature

__all__ = ["Coupled", "StrongOrder", "density_drift", "euler", "strong_order", "synchronous_coupling"]

Drift = Callable[[FloatArray], ArrayLike]  # of x (..., particle, dim)
TimeDrift = Callable[[float, FloatArray], ArrayLike]


class Coupled(NamedTuple):
    """time (time,), distance (chain, time) = mean over particles of |X - Y|^2; the mean of its largest value and the interval of that."""

    time: FloatArray
    distance: FloatArray
    supremum: float
    low: float
    high: float


class StrongOrder(NamedTuple):
    """step (level,), rms difference (level,) from half that step at the horizon, and the rate: difference ~ step^slope."""

    step: FloatArray
    error: FloatArray
    rate: Rate


def euler(start: ArrayLike, drift: TimeDrift, noise: Iterable[FloatArray], step_size: float, beta: float) -> Iterator[FloatArray]:
    """The states of x <- x + step drift(t, x) + sqrt(2 step/beta) z from `start` on, which is the first, for each z of the noise.

    `noise` (step, ...), or an iterator over arrays of start's shape, holds standard normals. beta may be infinite.

    Raises
    ------
    ValueError
        If step_size or beta is not positive, or shapes differ; as of every generator, when the states are asked for.
    """
    x, step = finite(start, "start"), positive(step_size, "step_size")
    scale = np.sqrt(2 * step / inverse_temperature(beta))
    yield x
    for k, z in enumerate(noise):
        x = x + step * _values(drift(k * step, x), x) + scale * _values(z, x)
        yield x


def synchronous_coupling(
    start: ArrayLike,
    drift: Drift,
    limit_drift: TimeDrift,
    *,
    step_size: float,
    beta: float,
    n_steps: int,
    rng: int | np.random.Generator,
    level: float = 0.95,
) -> Coupled:
    """Run both from start (chain, particle, dim) with the same increments; chains are independent, the particles' starts too.

    `drift(x (chain, particle, dim))` of the interacting system, `limit_drift(t, x)` of each particle alone; see `density_drift` for one
    from a density in time. The supremum is over the n_steps + 1 times, its interval Student's over the chains.

    Raises
    ------
    ValueError
        If start has another shape or fewer than two chains, or a drift is not finite or of another shape.
    """
    x = finite(start, "start")
    if x.ndim != 3 or 0 in x.shape or len(x) < 2:
        raise ValueError(f"start must have shape (chain, particle, dim) with at least two chains, got {x.shape}")
    rng, steps, level = generator(rng), count(n_steps, "n_steps"), fraction(level, "level")
    shared = (rng.standard_normal(x.shape) for _ in range(steps))
    both = euler(np.stack([x, x]), lambda t, z: _both(z, drift, limit_drift, t), (np.stack([z, z]) for z in shared), step_size, beta)
    distance = np.stack([np.sum((z[0] - z[1]) ** 2, axis=-1).mean(-1) for z in both], axis=1)
    largest = distance.max(1)
    half = float(student_t.ppf((1 + level) / 2, len(x) - 1) * largest.std(ddof=1) / np.sqrt(len(x)))
    mean = float(largest.mean())
    return Coupled(np.linspace(0.0, steps * step_size, steps + 1), distance, mean, mean - half, mean + half)


def strong_order(
    start: ArrayLike,
    drift: TimeDrift,
    *,
    horizon: float,
    beta: float,
    n_steps: int,
    n_levels: int = 4,
    rng: int | np.random.Generator,
) -> StrongOrder:
    """Strong order of Euler's scheme from start (chain, ...): rms difference at the horizon between steps h and h/2, same Brownian path.

    The finest run takes n_steps steps, each of the n_levels others half as many as the last, with sums of its increments. A difference
    is C h^order as the error is, without the bias of a fine run that stands for the truth. Additive noise and a smooth drift: order 1
    (Kloeden & Platen 1992, theorem 10.3.5, as Milstein's scheme is then Euler's). Root mean squares over the chains, bootstrap interval.

    Raises
    ------
    ValueError
        If n_steps is not a multiple of 2^n_levels, there are fewer than two levels or five chains, or the drift is not finite.
    """
    x, fine = finite(start, "start"), count(n_steps, "n_steps")
    if not x.ndim:
        raise ValueError(f"start must have shape (chain, ...), got the number {start!r}")
    factors = 2 ** np.arange(count(n_levels, "n_levels", least=2) + 1)
    if fine % factors[-1]:
        raise ValueError(f"n_steps must be a multiple of {factors[-1]}, got {n_steps}")
    step, rng = positive(horizon, "horizon") / fine, generator(rng)
    noise = rng.standard_normal((fine, *x.shape))

    def final(factor: int) -> FloatArray:
        summed = noise.reshape(fine // factor, factor, *x.shape).sum(1) / np.sqrt(factor)
        return deque(euler(x, drift, summed, factor * step, beta), maxlen=1).pop()

    finals = [final(int(factor)).reshape(len(x), -1) for factor in factors]
    error = np.array([np.sqrt(np.mean((coarse - finer) ** 2, axis=1)) for coarse, finer in zip(finals[1:], finals)])
    steps = np.array([step * factor for factor in factors[1:]])
    return StrongOrder(steps, np.sqrt(np.mean(error**2, axis=1)), bootstrap_rate(steps, error, power=2, rng=rng))


def density_drift(
    time: ArrayLike, x: ArrayLike, rho: ArrayLike, external_slope: Callable[[FloatArray], ArrayLike], interaction_slope: Callable
) -> TimeDrift:
    """Drift -V'(x) - int g'(x - y) rho_t(y) dy on the line, from densities rho (time, cell) at equally spaced cell centres x (cell,).

    `external_slope` is V', `interaction_slope` the odd derivative of g as a function of the signed difference, bounded and continuous. The
    convolution is summed at the centres and interpolated, linearly in position and in time, so it is second order in both spacings. The
    drift raises ValueError for positions or times outside those of the densities.

    Raises
    ------
    ValueError
        If shapes do not fit, time or x do not increase, x is not equally spaced, or densities are negative.
    """
    time, x, rho = finite(time, "time"), finite(x, "x"), finite(rho, "rho")
    if time.ndim != 1 or x.ndim != 1 or rho.shape != (len(time), len(x)) or min(rho.shape) < 2:
        raise ValueError(f"rho must have shape (time, cell), got {rho.shape} for time {time.shape} and x {x.shape}")
    width = np.diff(x)
    if not (np.diff(time) > 0).all() or not (width > 0).all() or np.ptp(width) > 1e-9 * width[0]:
        raise ValueError("time and x must increase, x in equal steps")
    if (rho < 0).any():
        raise ValueError(f"rho must be at least 0, got {rho.min()}")
    field = rho @ finite(interaction_slope(x - x[:, None]), "interaction_slope") * width[0]

    def drift(t: float, at: FloatArray) -> FloatArray:
        if not time[0] <= t <= time[-1]:
            raise ValueError(f"t must lie in [{time[0]:g}, {time[-1]:g}], got {t:g}")
        if at.min() < x[0] or at.max() > x[-1]:
            raise ValueError(f"positions must lie in [{x[0]:g}, {x[-1]:g}], got {at.min():g} to {at.max():g}")
        k = min(int(np.searchsorted(time, t, side="right")) - 1, len(time) - 2)
        share = (t - time[k]) / (time[k + 1] - time[k])
        return -finite(external_slope(at), "external_slope") - np.interp(at, x, (1 - share) * field[k] + share * field[k + 1])

    return drift


def _both(z: FloatArray, drift: Drift, limit_drift: TimeDrift, t: float) -> FloatArray:
    return np.stack([_values(drift(z[0]), z[0]), _values(limit_drift(t, z[1]), z[1])])


def _values(values: ArrayLike, x: FloatArray) -> FloatArray:
    values = finite(values, "drift or noise")
    if values.shape != x.shape:
        raise ValueError(f"drift and noise must have the shape {x.shape} of the particles, got {values.shape}")
    return values
