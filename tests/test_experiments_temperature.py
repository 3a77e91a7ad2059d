"""The temperature of logits: a planted one is found, the least log loss is reached, and the ends are what the docstring says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from experiments import metrics
from experiments.temperature import fit_temperature, tempered, tempered_scores


def planted(temperature: float, n_classes: int = 3, n: int = 20_000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits `temperature` times those of which the labels are drawn."""
    rng = np.random.default_rng(seed)
    honest = 1.5 * rng.normal(size=(n, n_classes))
    return temperature * honest, (honest + rng.gumbel(size=honest.shape)).argmax(1)


@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_a_planted_temperature_is_found(temperature, n_classes):
    assert fit_temperature(*planted(temperature, n_classes)) == pytest.approx(temperature, rel=0.03)


@pytest.mark.parametrize("seed", range(4))
def test_it_has_the_least_log_loss(seed):
    logits, labels = planted(2.5, n=50, seed=seed)
    found = minimize_scalar(lambda x: metrics.log_loss(tempered(logits, math.exp(x)), labels), bounds=(-3, 3), options={"xatol": 1e-9})
    assert fit_temperature(logits, labels) == pytest.approx(math.exp(found.x), rel=1e-5)


def test_log_probabilities_are_as_good_as_logits():
    logits, labels = planted(2.0, n=100)
    shifted = logits + np.random.default_rng(0).normal(size=(100, 1))
    expected = fit_temperature(logits, labels)
    assert fit_temperature(shifted, labels) == pytest.approx(expected, rel=1e-9)
    assert fit_temperature(np.log(tempered(logits, 1.0)), labels) == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(tempered(np.log(tempered(logits, 1.0)), 3.0), tempered(logits, 3.0), rtol=1e-12)


def test_the_ends():
    logits = np.array([[2.0, 0.0], [0.0, 1.0]])
    assert fit_temperature(logits, [0, 1]) == 0.01  # all right: the surer the better
    assert fit_temperature(logits, [1, 0], high=50) == 50  # all wrong: the less they say the better
    assert fit_temperature(np.full((3, 4), 0.7), [0, 1, 2]) == 1.0
    assert fit_temperature([[1.0, 0.0]], [0], low=0.2) == 0.2


def test_it_mends_what_was_overconfident_on_other_rows():
    (validation, seen), (test, unseen) = (planted(4.0, n=2000, seed=seed) for seed in (1, 2))
    got, before = tempered_scores(test, unseen, fit_temperature(validation, seen)), metrics.scores(tempered(test, 1.0), unseen)
    assert got["calibration_error_tempered"] < 0.3 * before["calibration_error"]
    assert got["log_loss_tempered"] < before["log_loss"]
    assert got["brier_tempered"] < before["brier"]
    assert got["temperature"] == pytest.approx(4.0, rel=0.1)


def test_temperature_keeps_the_most_probable_class():
    logits, _ = planted(1.0, n=200)
    for temperature in (0.01, 0.5, 100.0):
        p = tempered(logits, temperature)
        np.testing.assert_array_equal(p.argmax(1), logits.argmax(1))
        np.testing.assert_allclose(p.sum(1), 1, rtol=1e-12)


def test_temperature_1_changes_nothing():
    p = np.array([[0.2, 0.8], [0.6, 0.4]])
    got = tempered_scores(np.log(p), [1, 1], 1.0)
    for name in ("log_loss", "brier", "calibration_error"):
        assert got[f"{name}_tempered"] == pytest.approx(metrics.scores(p, [1, 1])[name], rel=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fit_temperature([0.0, 1.0], [0]), "logits must have shape"),
        (lambda: fit_temperature([[0.0]], [0]), "logits must have shape"),
        (lambda: fit_temperature([[0.0, -math.inf]], [0]), "logits must be finite"),
        (lambda: fit_temperature([[0.0, 1.0]], [2]), "labels"),
        (lambda: fit_temperature([[0.0, 1.0]], [0, 1]), "labels"),
        (lambda: fit_temperature([[0.0, 1.0]], [0], low=2.0, high=1.0), "low must be less than high=1.0, got 2.0"),
        (lambda: fit_temperature([[0.0, 1.0]], [0], low=0.0), "low must be positive"),
        (lambda: tempered([[0.0, 1.0]], 0.0), "temperature must be positive"),
        (lambda: tempered([0.0, 1.0], 1.0), "logits"),
        (lambda: tempered_scores([[0.0, 1.0]], [3], 1.0), "labels"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
