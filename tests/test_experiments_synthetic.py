"""The synthetic tasks: shapes, balance, flips, hidden structure, errors."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.synthetic import TASKS, make_task


@pytest.mark.parametrize("name", TASKS)
def test_shapes_balance_and_reproducibility(name):
    data = make_task(name, n=400, dim=8, flips=0.1, n_test=4000, rng=3)
    assert data.x.shape == (400, 8)
    assert data.x_test.shape == (4000, 8)
    assert set(np.unique(data.y)) == {0, 1}
    # balance: sd of a proportion of 4000 is .008 and the median of 20,000 calibration points adds .0035; 5 sd
    assert abs(data.y_test.mean() - 0.5) < 0.045
    again = make_task(name, n=400, dim=8, flips=0.1, n_test=4000, rng=np.random.default_rng(3))
    assert all(np.array_equal(a, b) for a, b in zip(data, again))
    assert not np.array_equal(data.x, make_task(name, n=400, dim=8, rng=4).x)


def test_flips_are_in_the_training_and_noisy_labels_only():
    clean, noisy = (make_task("ring3", n=4000, flips=flips, n_test=4000, rng=5) for flips in (0.0, 0.1))
    assert np.array_equal(clean.y_test, clean.y_test_noisy)
    assert np.array_equal(clean.y_test, noisy.y_test)
    # sd of each share is .0047; 5 sd
    assert abs((clean.y != noisy.y).mean() - 0.1) < 0.024
    assert abs((noisy.y_test != noisy.y_test_noisy).mean() - 0.1) < 0.024


def test_rules_are_invisible_along_the_axes_but_real():
    data = make_task("ring3", n=20_000, dim=5, flips=0.0, rng=6)
    # |z|^2 of three hidden directions: labels correlate with |x|^2, not with any linear function
    linear = np.abs(np.corrcoef(data.x.T, data.y)[-1, :-1])
    assert linear.max() < 0.04  # sd .007
    assert np.corrcoef((data.x**2).sum(1), data.y)[0, 1] > 0.4


def test_permuted_labels_keep_the_counts_and_lose_the_rule():
    plain, permuted = (make_task("ring3", n=5000, dim=3, flips=0.0, permuted=permuted, rng=7) for permuted in (False, True))
    assert plain.y.sum() == permuted.y.sum()
    norm = (plain.x**2).sum(1)
    assert np.corrcoef(norm, plain.y)[0, 1] > 0.5
    assert abs(np.corrcoef(norm, permuted.y)[0, 1]) < 0.07  # sd .014


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"name": "ring4"}, "name"),
        ({"n": 1}, "n must"),
        ({"n_test": 0}, "n_test"),
        ({"dim": 2}, "dim"),
        ({"flips": 0.6}, "flips"),
        ({"flips": -0.1}, "flips"),
    ],
)
def test_bad_arguments_are_named(change, name):
    arguments = {"name": "ring3", "rng": 0} | change
    with pytest.raises(ValueError, match=name):
        make_task(arguments.pop("name"), **arguments)
