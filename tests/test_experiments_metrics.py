from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as oracle

from experiments import metrics


def table(n_classes: int, n: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(n_classes, 0.6), n)
    return p, np.array([rng.choice(n_classes, p=0.7 * row + 0.3 / n_classes) for row in p])


@pytest.mark.parametrize("n_classes", [2, 5])
def test_scores_equal_scikit_learn(n_classes):
    p, y = table(n_classes)
    got = metrics.scores(p, y)
    np.testing.assert_allclose(got["accuracy"], oracle.accuracy_score(y, p.argmax(1)), rtol=1e-12)
    np.testing.assert_allclose(got["matthews"], oracle.matthews_corrcoef(y, p.argmax(1)), rtol=1e-12)
    np.testing.assert_allclose(got["log_loss"], oracle.log_loss(y, p), rtol=1e-10)
    brier = oracle.brier_score_loss(y, p[:, 1]) if n_classes == 2 else np.mean(((p - np.eye(n_classes)[y]) ** 2).sum(1))
    np.testing.assert_allclose(got["brier"], brier, rtol=1e-12)


@pytest.mark.parametrize(("right", "n"), [(0, 10), (3, 10), (812, 872), (10, 10)])
def test_wilson_equals_scipy(right, n):
    got = metrics.wilson(right, n)
    expected = stats.binomtest(right, n).proportion_ci(0.95, method="wilson")
    np.testing.assert_allclose(got, (right / n, expected.low, expected.high), atol=1e-12)


def test_calibration_error_equals_a_loop_over_bins():
    p, y = table(3)
    expected = 0.0
    for b in range(15):
        rows = (p.max(1) > b / 15) & (p.max(1) <= (b + 1) / 15)
        if rows.any():
            expected += rows.mean() * abs((p.argmax(1) == y)[rows].mean() - p.max(1)[rows].mean())
    np.testing.assert_allclose(metrics.calibration_error(p, y), expected, rtol=1e-12)


def test_calibration_error_of_known_cases():
    y = np.array([0, 0, 0, 1])
    p = np.tile([0.75, 0.25], (4, 1))
    assert metrics.calibration_error(p, y) == 0  # 75 % sure and 75 % right
    assert metrics.calibration_error(np.tile([1.0, 0.0], (4, 1)), y) == 0.25
    assert metrics.calibration_error(np.tile([0.5, 0.5], (4, 1)), y) == 0.25


def test_matthews_of_constant_predictions_is_zero():
    assert metrics.matthews([1, 1, 1], [0, 1, 1]) == 0
    assert metrics.matthews([0, 1, 2], [0, 1, 2]) == pytest.approx(1)


def test_log_loss_of_an_impossible_label_is_infinite():
    assert metrics.log_loss([[1.0, 0.0]], [1]) == math.inf


def test_paired_difference_equals_the_paired_t_interval():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=6), rng.normal(size=6)
    expected = stats.ttest_rel(a, b).confidence_interval(0.9)
    np.testing.assert_allclose(metrics.paired_difference(a, b, level=0.9), ((a - b).mean(), expected.low, expected.high), rtol=1e-12)


def test_mean_interval_covers_at_its_level():
    # 2000 intervals of level 0.8; the binomial standard deviation is 0.009, so a right formula fails with probability about 1e-5 (4.4 sd)
    rng = np.random.default_rng(2)

    def covered(factor):
        got = [metrics.mean_interval(factor * row + (1 - factor) * row.mean(), level=0.8) for row in rng.normal(size=(2000, 3))]
        return np.mean([low <= 0 <= high for _, low, high in got])

    assert abs(covered(1.0) - 0.8) < 0.04
    assert abs(covered(0.8) - 0.8) > 0.04  # control: intervals 20 % too short are noticed


def test_a_single_seed_has_an_infinite_interval():
    assert metrics.mean_interval([0.5]) == (0.5, -math.inf, math.inf)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.scores([[0.5, 0.6]], [0]), "probabilities"),
        (lambda: metrics.scores([[np.nan, 0.6]], [0]), "probabilities"),
        (lambda: metrics.scores([0.5, 0.5], [0]), "probabilities"),
        (lambda: metrics.scores([[0.5, 0.5]], [2]), "labels"),
        (lambda: metrics.scores([[0.5, 0.5]], [0.0]), "labels"),
        (lambda: metrics.scores(np.empty((0, 2)), np.empty(0, int)), "probabilities"),
        (lambda: metrics.scores([[1.5, -0.5]], [0]), "probabilities must be at least 0.*-0.5"),
        (lambda: metrics.scores([[0.5], [0.5, 0.5]], [0, 0]), "probabilities"),
        (lambda: metrics.scores("half", [0]), "probabilities"),
        (lambda: metrics.wilson(1, 2, level="high"), "level"),
        (lambda: metrics.matthews([0.5], [1]), "predicted and labels must be integers"),
        (lambda: metrics.mean_interval([0.0, math.nan]), "values must be finite"),
        (lambda: metrics.paired_difference(["a"], [1.0]), "first"),
        (lambda: metrics.wilson(3, 2), "n_right"),
        (lambda: metrics.wilson(1, 2, level=1.5), "level"),
        (lambda: metrics.matthews([0, 1], [0]), "predicted"),
        (lambda: metrics.mean_interval([]), "values"),
        (lambda: metrics.paired_difference([1.0], [1.0, 2.0]), "same seeds"),
        (lambda: metrics.calibration_error([[0.5, 0.5]], [0], n_bins=0), "n_bins"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
