"""Scores of classifiers and of regressions, with intervals. Class probabilities are (n, n_classes), labels are (n,) integers.

The predicted class is the most probable one, the first of equals. A score that the data do not define is NaN, never an error and never
a made-up number: each function says when. scikit-learn is imported where it is used, as the import takes a second.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from particles.arrays import as_float, count, positive, real

AVERAGES = ("macro", "micro", "weighted", "binary")


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
    predicted, labels = _classes(predicted, labels)
    classes, joint = np.unique(np.concatenate((predicted, labels)), return_inverse=True)
    hot = np.eye(len(classes))[joint]
    a, b = (part - part.mean(0) for part in (hot[: len(labels)], hot[len(labels) :]))
    scale = math.sqrt((a * a).sum() * (b * b).sum())
    return float((a * b).sum() / scale) if scale > 0 else 0.0


def f1(predicted: Any, labels: Any, *, average: str = "macro") -> float:
    """Harmonic mean of precision and recall: the mean over classes, weighted by their labels, over all rows, or of class 1 ("binary").

    predicted, labels : (n,) integers. The classes are those that occur in either; a class that is never predicted, or never a label,
    scores 0. "micro" is the accuracy.
    """
    from sklearn.metrics import f1_score

    predicted, labels = _classes(predicted, labels)
    if average not in AVERAGES:
        raise ValueError(f"average must be one of {AVERAGES}, got {average!r}")
    if average == "binary" and max(predicted.max(), labels.max()) > 1:
        raise ValueError(f"average must not be 'binary' for classes other than 0 and 1, got {np.unique(labels).tolist()}")
    return float(f1_score(labels, predicted, average=average, zero_division=0))


def balanced_accuracy(predicted: Any, labels: Any) -> float:
    """Mean over the classes that occur in the labels of the share of their rows that is right; (n,) integers both."""
    from sklearn.metrics import recall_score

    predicted, labels = _classes(predicted, labels)
    return float(recall_score(labels, predicted, labels=np.unique(labels), average="macro", zero_division=0))


def roc_auc(probabilities: Any, labels: Any) -> float:
    """Chance that a row of a class is given a higher probability of it than another row; a tie counts one half (Fawcett 2006).

    Two classes: of class 1. More: each class against the rest, the mean over those that occur. NaN where all labels are equal.
    """
    from sklearn.metrics import roc_auc_score

    return _over_classes(roc_auc_score, probabilities, labels)


def pr_auc(probabilities: Any, labels: Any) -> float:
    """Average precision: precision at each row of the class, from the most probable down, without interpolation; ties share a step.

    Two classes: of class 1. More: each class against the rest, the mean over those that occur. NaN where all labels are equal.
    """
    from sklearn.metrics import average_precision_score

    return _over_classes(average_precision_score, probabilities, labels)


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
    _, right, stated, share = reliability(probabilities, labels, n_bins=n_bins)
    return float((share * np.abs(right - stated)).sum())


def reliability(probabilities: Any, labels: Any, *, n_bins: int = 15) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The occupied bins of the reliability diagram: (bin number, accuracy, mean probability, share of the rows), each (bin,)."""
    table = reliability_table(probabilities, labels, n_bins=n_bins)
    used = np.flatnonzero(table[:, 2])
    return used, *table[used].T


def reliability_table(probabilities: Any, labels: Any, *, n_bins: int = 15) -> np.ndarray:
    """All bins of the reliability diagram, (n_bins, 3): accuracy, mean probability of the most probable class, share of the rows.

    An empty bin has share 0 and NaN for the rest. Equal shapes for all models, so that tables can be stored and averaged.
    """
    p, y = _checked(probabilities, labels)
    top, n_bins = p.max(1), count(n_bins, "n_bins")
    index = np.clip(np.ceil(top * n_bins).astype(int) - 1, 0, n_bins - 1)
    size, right, stated = (np.bincount(index, weights=weights, minlength=n_bins) for weights in (None, p.argmax(1) == y, top))
    with np.errstate(invalid="ignore"):
        return np.stack((right / size, stated / size, size / len(y)), axis=1)


def class_one_gap(probabilities: Any, labels: Any, *, n_bins: int = 15) -> float:
    """What the Coulomb paper's column "ECE" most likely holds; it is no calibration error, and lower is not better.

    Two classes. Equal-width bins of the probability of class 1; the mean over rows of |share right - mean probability of class 1| of the
    row's bin, so that a row that is rightly and surely called 0 adds 1. That is nearly the mean probability of the predicted class less
    the share of class 1. Read so, the 54 published values (0.22 to 0.46) state a mean probability from 0 to 14 points above the published
    accuracy, the further the worse the published log loss (rank correlations on SST-2, Rotten Tomatoes and QQP: 0.8, 0.7, 0.2). Read as
    `calibration_error` they contradict the published Brier scores.
    """
    p, y = _checked(probabilities, labels)
    if p.shape[1] != 2:
        raise ValueError(f"probabilities must be those of two classes, got {p.shape[1]}")
    index = np.clip(np.ceil(p[:, 1] * count(n_bins, "n_bins")).astype(int) - 1, 0, n_bins - 1)
    return float(np.abs(np.bincount(index, weights=(p.argmax(1) == y) - p[:, 1])).sum() / len(y))


def perplexity(nats: float, n_tokens: int) -> float:
    """exp of the mean loss of a token, from the total loss [nats] of n_tokens tokens; infinite where that overflows."""
    mean = positive(nats, "nats", zero=True) / count(n_tokens, "n_tokens")
    return math.exp(mean) if mean < 709 else math.inf


def pearson(predicted: Any, target: Any) -> float:
    """Pearson's correlation of two (n,) arrays; NaN for one row or where either is constant."""
    from scipy.stats import pearsonr

    return _correlation(pearsonr, predicted, target)


def spearman(predicted: Any, target: Any) -> float:
    """Spearman's rank correlation of two (n,) arrays, ties sharing their mean rank; NaN for one row or where either is constant."""
    from scipy.stats import spearmanr

    return _correlation(spearmanr, predicted, target)


def scores(probabilities: Any, labels: Any) -> dict[str, float]:
    """What one table of probabilities is worth.

    accuracy with its interval accuracy_low, accuracy_high; f1_macro, f1_weighted; roc_auc, pr_auc; matthews; balanced_accuracy;
    log_loss [nats]; brier; calibration_error. The areas are NaN where all labels are equal.
    """
    p, y = _checked(probabilities, labels)
    right, predicted = accuracy(p, y), p.argmax(1)
    return {
        "accuracy": right.value,
        "accuracy_low": right.low,
        "accuracy_high": right.high,
        "f1_macro": f1(predicted, y),
        "f1_weighted": f1(predicted, y, average="weighted"),
        "roc_auc": roc_auc(p, y),
        "pr_auc": pr_auc(p, y),
        "matthews": matthews(predicted, y),
        "balanced_accuracy": balanced_accuracy(predicted, y),
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


def _over_classes(score: Callable[..., float], probabilities: Any, labels: Any) -> float:
    """score(is the class, probability) of class 1 of two, or its mean over the classes that occur; NaN where all labels are equal."""
    p, y = _checked(probabilities, labels)
    occur = np.unique(y)
    if len(occur) < 2:
        return math.nan
    return float(np.mean([score(y == k, p[:, k]) for k in ([1] if p.shape[1] == 2 else occur)]))


def _correlation(measure: Callable[..., Any], predicted: Any, target: Any) -> float:
    """measure(predicted, target).statistic of checked arrays; NaN where it is not defined."""
    a, b = (np.asarray(as_float(x, name), dtype=float) for x, name in ((predicted, "predicted"), (target, "target")))
    if a.shape != b.shape or a.ndim != 1 or a.size == 0:
        raise ValueError(f"predicted and target must both have shape (n,), n > 0, got {a.shape} and {b.shape}")
    return math.nan if np.ptp(a) == 0 or np.ptp(b) == 0 else float(measure(a, b).statistic)


def _classes(predicted: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    """Both as integer arrays of one shape (n,); ValueError otherwise."""
    predicted, labels = np.asarray(predicted), np.asarray(labels)
    if predicted.dtype.kind not in "iu" or labels.dtype.kind not in "iu":
        raise ValueError(f"predicted and labels must be integers, got {predicted.dtype} and {labels.dtype}")
    if predicted.shape != labels.shape or labels.ndim != 1 or labels.size == 0:
        raise ValueError(f"predicted and labels must both have shape (n,), n > 0, got {predicted.shape} and {labels.shape}")
    return predicted, labels


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
