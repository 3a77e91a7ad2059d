"""Scores of classifiers, with intervals. Class probabilities are (n, n_classes), labels are (n,) integers; NumPy and SciPy only."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from particles.arrays import as_float, count, real


class Estimate(NamedTuple):
    """A number with the ends of its confidence interval."""

    value: float
    low: float
    high: float


def wilson(n_right: int, n: int, *, level: float = 0.95) -> Estimate:
    """A proportion with Wilson's score interval (Wilson 1927), which stays in [0, 1] and is sensible at 0 and n."""
    n, n_right = count(n, "n"), count(n_right, "n_right", least=0)
    if n_right > n:
        raise ValueError(f"n_right must be at most n={n}, got {n_right}")
    z, p = _quantile(level), n_right / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return Estimate(p, 0.0 if n_right == 0 else centre - half, 1.0 if n_right == n else centre + half)


def accuracy(probabilities: Any, labels: Any, *, level: float = 0.95) -> Estimate:
    """Share of rows whose most probable class (the first of equals) is the label, with Wilson's interval."""
    p, y = _checked(probabilities, labels)
    return wilson(int((p.argmax(1) == y).sum()), len(y), level=level)


def matthews(predicted: Any, labels: Any) -> float:
    """Matthews' correlation, for any number of classes (Gorodkin 2004); 0 where predictions or labels are all equal.

    predicted, labels : (n,) integers.
    """
    predicted, labels = np.asarray(predicted), np.asarray(labels)
    if predicted.dtype.kind not in "iu" or labels.dtype.kind not in "iu":
        raise ValueError(f"predicted and labels must be integers, got {predicted.dtype} and {labels.dtype}")
    if predicted.shape != labels.shape or labels.ndim != 1 or labels.size == 0:
        raise ValueError(f"predicted and labels must both have shape (n,), n > 0, got {predicted.shape} and {labels.shape}")
    classes, joint = np.unique(np.concatenate((predicted, labels)), return_inverse=True)
    hot = np.eye(len(classes))[joint]
    a, b = (part - part.mean(0) for part in (hot[: len(labels)], hot[len(labels) :]))
    scale = math.sqrt((a * a).sum() * (b * b).sum())
    return float((a * b).sum() / scale) if scale > 0 else 0.0


def log_loss(probabilities: Any, labels: Any) -> float:
    """Mean of -log p(label) [nats]; infinite if a label was given probability 0."""
    p, y = _checked(probabilities, labels)
    with np.errstate(divide="ignore"):
        return float(-np.log(p[np.arange(len(y)), y]).mean())


def brier(probabilities: Any, labels: Any) -> float:
    """Mean squared distance between probabilities and the one-hot label, halved for two classes so that it is mean (p_1 - y)^2."""
    p, y = _checked(probabilities, labels)
    total = float(((p - np.eye(p.shape[1])[y]) ** 2).sum(1).mean())
    return total / 2 if p.shape[1] == 2 else total


def calibration_error(probabilities: Any, labels: Any, *, n_bins: int = 15) -> float:
    """Expected calibration error of the most probable class (Guo et al. 2017).

    Equal-width bins (b/n_bins, (b+1)/n_bins] of its probability; the mean over rows of |accuracy - mean probability| of the row's bin.
    """
    p, y = _checked(probabilities, labels)
    _, right, confidence, share = reliability(p, y, n_bins=n_bins)
    return float((share * np.abs(right - confidence)).sum())


def reliability(probabilities: Any, labels: Any, *, n_bins: int = 15) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The occupied bins of the reliability diagram: (bin number, accuracy, mean probability, share of the rows), each (bin,)."""
    p, y = _checked(probabilities, labels)
    top = p.max(1)
    index = np.clip(np.ceil(top * count(n_bins, "n_bins")).astype(int) - 1, 0, n_bins - 1)
    size = np.bincount(index, minlength=n_bins)
    used = np.flatnonzero(size)
    right = np.bincount(index, weights=p.argmax(1) == y, minlength=n_bins)[used] / size[used]
    mean = np.bincount(index, weights=top, minlength=n_bins)[used] / size[used]
    return used, right, mean, size[used] / len(y)


def scores(probabilities: Any, labels: Any) -> dict[str, float]:
    """accuracy with its interval, matthews, log_loss, brier and calibration_error of one table of probabilities."""
    p, y = _checked(probabilities, labels)
    right = accuracy(p, y)
    return {
        "accuracy": right.value,
        "accuracy_low": right.low,
        "accuracy_high": right.high,
        "matthews": matthews(p.argmax(1), y),
        "log_loss": log_loss(p, y),
        "brier": brier(p, y),
        "calibration_error": calibration_error(p, y),
    }


def mean_interval(values: Any, *, level: float = 0.95) -> Estimate:
    """Mean over seeds with Student's interval; the interval of a single value is infinite."""
    values = np.asarray(as_float(values, "values"), dtype=float)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"values must have shape (seed,), one at least, got {values.shape}")
    mean = float(values.mean())
    if values.size == 1:
        return Estimate(mean, -math.inf, math.inf)
    half = _quantile(level, values.size - 1) * float(values.std(ddof=1)) / math.sqrt(values.size)
    return Estimate(mean, mean - half, mean + half)


def paired_difference(first: Any, second: Any, *, level: float = 0.95) -> Estimate:
    """Mean of first - second over the same seeds, with Student's interval of the differences."""
    first, second = (np.asarray(as_float(x, name), dtype=float) for x, name in ((first, "first"), (second, "second")))
    if first.shape != second.shape:
        raise ValueError(f"first and second must hold the same seeds, got shapes {first.shape} and {second.shape}")
    return mean_interval(first - second, level=level)


def _quantile(level: float, freedom: int | None = None) -> float:
    """Two-sided normal quantile, or Student's with `freedom` degrees of freedom."""
    from scipy import special

    if not 0 < real(level, "level") < 1:
        raise ValueError(f"level must be between 0 and 1, got {level!r}")
    p = 0.5 + level / 2
    return float(special.ndtri(p) if freedom is None else special.stdtrit(freedom, p))


def _checked(probabilities: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    """Both as arrays; ValueError on wrong shapes, rows that do not sum to 1 (to 1e-4), or labels that are not classes."""
    p, y = np.asarray(as_float(probabilities, "probabilities"), dtype=float), np.asarray(labels)
    if p.ndim != 2 or p.shape[1] < 2 or p.shape[0] == 0:
        raise ValueError(f"probabilities must have shape (n, n_classes) with n > 0 and n_classes > 1, got {p.shape}")
    if p.min() < 0 or abs(p.sum(1) - 1).max() > 1e-4:
        raise ValueError(
            f"probabilities must be at least 0 and sum to 1 in each row, got a smallest of {p.min()} and sums from {p.sum(1).min()} "
            f"to {p.sum(1).max()}"
        )
    if y.shape != p.shape[:1] or y.dtype.kind not in "iu" or not 0 <= y.min() <= y.max() < p.shape[1]:
        raise ValueError(f"labels must be integers in [0, {p.shape[1]}) of shape {p.shape[:1]}, got {y.dtype} {y.shape}: {y!r}")
    return p, y
