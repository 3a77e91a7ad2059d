"""What figures of limits show, as Datasets for `theory.plots.draw`: large deviations, concentration, rates, errors, coupling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from theory.arrays import FloatArray, finite, numeric
from theory.convergence.coupling import Coupled
from theory.convergence.rates import Rate, bias_variance, fit_rate
from theory.large_deviations.empirical_measure import empirical_rate
from theory.plots.curves import axis, compared, mean_error
from theory.plots.inputs import held, instance

__all__ = ["concentration", "coupling", "errors", "large_deviation", "rate"]


def large_deviation(
    grid: ArrayLike,
    rate: ArrayLike,
    value: ArrayLike,
    seen: ArrayLike,
    n_trials: int,
    speed: Mapping[str, float],
    *,
    finite_size: ArrayLike | None = None,
    level: float = 0.95,
    x_name: str = "value",
) -> xr.Dataset:
    """-log(p)/speed of the events beyond `value` (n,), `seen` (series, n) times in n_trials, beside the rate function on the grid.

    `speed` names each series and gives its speed (N at fixed beta); intervals are Clopper-Pearson's, and an event never seen is a lower
    bound. `finite_size` (series, m), for example -log of `Fluctuations.tail` over N, is drawn in the series' colours.
    """
    points = axis(value, "value")
    instance(speed, Mapping, "speed")
    seen = np.asarray(seen)
    if seen.shape != (len(speed), len(points)) or seen.dtype.kind not in "iu":
        raise ValueError(f"seen must be counts of shape {(len(speed), len(points))}, got dtype {seen.dtype} and shape {seen.shape}")
    found = np.array([[empirical_rate(int(hits), n_trials, pace, level=level) for hits in row] for row, pace in zip(seen, speed.values())])
    laws = np.atleast_2d(numeric(rate, "rate"))
    laws = laws if finite_size is None else np.concatenate([laws, np.atleast_2d(numeric(finite_size, "finite_size"))])
    names = ("rate function", *speed)[: len(laws)]
    interval = found[..., 1], found[..., 2]
    axes: dict[str, Any] = {"x_name": x_name, "y_name": "rate, -log(probability) / speed"}
    return compared(points, found[..., 0], interval=interval, series=tuple(speed), grid=grid, law=laws, curves=names, **axes)


def concentration(
    n: ArrayLike, values: ArrayLike, variance: float, *, y_name: str = "standard deviation of the learned kernel"
) -> xr.Dataset:
    """Spread of values (n, replicate) that concentrate with n, beside the prediction sqrt(variance/n).

    The standard error of a deviation is half the variance's over the deviation (`convergence.bias_variance`).
    """
    n, values = axis(n, "n", True), finite(values, "values")
    if values.ndim != 2 or len(values) != len(n):
        raise ValueError(f"values must be (n, replicate) for {len(n)} n, got {values.shape}")
    parts = bias_variance(values.T, 0.0)
    deviation = np.sqrt(parts.variance)
    grid = np.geomspace(n.min(), n.max(), 100)
    names: dict[str, Any] = {"x_name": "number of particles", "y_name": y_name}
    error = np.divide(parts.variance_error, 2 * deviation, out=np.zeros_like(deviation), where=deviation > 0)
    return compared(n, deviation, error=error, grid=grid, law=np.sqrt(variance / grid), scale="loglog", **names)


def rate(
    n: ArrayLike,
    error: ArrayLike,
    *,
    fit: Rate | None = None,
    expected: float | None = None,
    x_name: str = "number of particles",
    y_name: str = "error",
) -> xr.Dataset:
    """Errors (n,) or (n, repeats) with the fitted power of n, the band of slopes in its interval, and the expected slope.

    Points are geometric means over the repeats; `fit` is a `convergence.Rate`, by default that of `fit_rate`.
    """
    n, values = axis(n, "n", True), finite(error, "error")
    fit = fit_rate(n, values) if fit is None else fit
    instance(fit, Rate, "fit")
    logs = np.log(values.reshape(len(n), -1))
    repeats = logs.shape[1]
    half = 2 * logs.std(1, ddof=1) / np.sqrt(repeats) if repeats > 1 else np.full(len(n), np.nan)
    grid, middle = np.geomspace(n.min(), n.max(), 100), float(np.mean(np.log(n)))
    line, slopes = fit.intercept + fit.slope * middle, [fit.slope] + ([] if expected is None else [expected])
    lines = [np.exp(line + slope * (np.log(grid) - middle)) for slope in (*slopes, fit.low, fit.high)]
    band = np.full((2, len(slopes), len(grid)), np.nan)
    band[:, 0] = np.minimum(*lines[-2:]), np.maximum(*lines[-2:])
    names = (f"fit: slope {fit.slope:.2f} [{fit.low:.2f}, {fit.high:.2f}]", f"theory: slope {expected:.2f}" if expected is not None else "")
    interval = np.exp(logs.mean(1) - half), np.exp(logs.mean(1) + half)
    labels: dict[str, Any] = {"curves": names[: len(slopes)], "x_name": x_name, "y_name": y_name}
    return compared(
        n, np.exp(logs.mean(1)), interval=interval, grid=grid, law=lines[: len(slopes)], band=(band[0], band[1]), scale="loglog", **labels
    )


def errors(
    h: ArrayLike,
    estimates: ArrayLike,
    truth: ArrayLike,
    *,
    laws: Mapping[str, Callable[[FloatArray], ArrayLike]] | None = None,
    x_name: str,
) -> xr.Dataset:
    """Squared bias, variance and mean squared error of estimates (h, replicate) of the truth, () or (h,), against a step size or N.

    `laws` gives functions of h for any of "squared bias", "variance", "mean squared error". A squared bias whose bar reaches the lower end
    of the figure is not told from 0.
    """
    h, values = axis(h, "h", True), finite(estimates, "estimates")
    if values.ndim != 2 or len(values) != len(h):
        raise ValueError(f"estimates must be (h, replicate) for {len(h)} h, got {values.shape}")
    parts = bias_variance(values.T, truth)
    series = ("squared bias", "variance", "mean squared error")
    laws = {} if laws is None else laws
    held(laws, Mapping, Callable, "laws", least=0)
    if not set(laws) <= set(series):
        raise ValueError(f"laws must be among {series}, got {list(laws)}")
    size = np.abs(parts.bias) + np.array([-2.0, 2.0])[:, None] * parts.bias_error  # ends of |bias|, squared below
    ends = np.array([(parts.variance + k * parts.variance_error, parts.mse + k * parts.mse_error) for k in (-2, 2)])
    ends = np.concatenate([np.maximum(size, 0)[:, None] ** 2, ends], axis=1)
    measured, grid = np.array([parts.bias**2, parts.variance, parts.mse]), np.geomspace(h.min(), h.max(), 100)
    curves = np.array([np.broadcast_to(law(grid), grid.shape) for law in laws.values()]) if laws else None
    labels: dict[str, Any] = {"series": series, "curves": tuple(laws), "x_name": x_name, "y_name": "error"}
    return compared(h, measured, interval=(ends[0], ends[1]), grid=grid, law=curves, scale="loglog", **labels)


def coupling(runs: Mapping[str, Coupled], *, law: ArrayLike | None = None) -> xr.Dataset:
    """Mean squared distance of coupled particles in time, (1/N) sum |X - Y|^2, a series for each run; `law` (time,) or (run, time)."""
    held(runs, Mapping, Coupled, "runs")
    distance, error = np.moveaxis(np.array([mean_error(run.distance) for run in runs.values()]), 1, 0)
    labels: dict[str, Any] = {"series": tuple(runs), "curves": ("theory",) if law is None or np.ndim(law) < 2 else tuple(runs)}
    names: dict[str, Any] = {"x_name": "time", "y_name": "mean squared distance"}
    return compared(next(iter(runs.values())).time, distance, error=error, law=law, style="line", **labels, **names)
