"""One number that makes a classifier's probabilities honest: the temperature of its logits (Guo et al. 2017)."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments import metrics
from particles.arrays import as_float, positive


def fit_temperature(logits: Any, labels: Any, *, low: float = 0.01, high: float = 100.0) -> float:
    """The temperature T in [low, high] at which softmax(logits / T) has the least log loss; fit it on validation rows.

    logits : (n, n_classes), log probabilities are as good; labels : (n,) integers.

    The loss is convex in 1/T, so there is one minimum. It lies at `low` where the logits are right too often for more doubt (all right:
    T would fall to 0) and at `high` where they say nothing about the labels. 1 where each row's logits are all equal: any T is as good.
    """
    from scipy.optimize import brentq

    z, y = _checked(logits, labels)
    if not positive(low, "low") < positive(high, "high"):
        raise ValueError(f"low must be less than high={high}, got {low!r}")
    z = z - z[np.arange(len(y)), y][:, None]  # only differences matter; the label's logit is 0
    if not np.ptp(z, axis=1).any():
        return 1.0

    def slope(inverse: float) -> float:
        return float((_softmax(inverse * z) * z).sum(1).mean())

    if slope(1 / high) >= 0:
        return float(high)
    if slope(1 / low) <= 0:
        return float(low)
    return 1 / float(brentq(slope, 1 / high, 1 / low, xtol=1e-12, rtol=1e-12))


def tempered(logits: Any, temperature: float) -> np.ndarray:
    """softmax(logits / temperature) over the last axis: probabilities (n, n_classes); the most probable class stays the same."""
    z = np.asarray(as_float(logits, "logits"), dtype=float)
    if z.ndim != 2 or z.shape[1] < 2:
        raise ValueError(f"logits must have shape (n, n_classes) with n_classes > 1, got {z.shape}")
    return _softmax(z / positive(temperature, "temperature"))


def tempered_scores(logits: Any, labels: Any, temperature: float) -> dict[str, float]:
    """temperature, and what it changes: log_loss_tempered [nats], brier_tempered, calibration_error_tempered."""
    p, y = tempered(logits, temperature), np.asarray(labels)
    found = {name: getattr(metrics, name)(p, y) for name in ("log_loss", "brier", "calibration_error")}
    return {"temperature": float(temperature)} | {f"{name}_tempered": value for name, value in found.items()}


def _softmax(z: np.ndarray) -> np.ndarray:
    weights = np.exp(z - z.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


def _checked(logits: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    """Both as arrays; ValueError on wrong shapes, logits that are not finite, or labels that are not classes."""
    z, y = np.asarray(as_float(logits, "logits"), dtype=float), np.asarray(labels)
    if z.ndim != 2 or z.shape[1] < 2 or z.shape[0] == 0:
        raise ValueError(f"logits must have shape (n, n_classes) with n > 0 and n_classes > 1, got {z.shape}")
    if y.shape != z.shape[:1] or y.dtype.kind not in "iu" or not 0 <= y.min() <= y.max() < z.shape[1]:
        raise ValueError(f"labels must be integers in [0, {z.shape[1]}) of shape {z.shape[:1]}, got {y.dtype} {y.shape}: {y!r}")
    return z, y
