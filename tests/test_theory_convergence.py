"""Distances against closed forms, rates with their coverage, and chain statistics of known autoregressions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.optimize import linear_sum_assignment
from scipy.special import ndtri
from scipy.stats import norm

from theory.convergence import (
    effective_sample_size,
    energy_distance,
    fit_rate,
    mean_and_error,
    sliced_wasserstein2,
    split_r_hat,
    wasserstein2,
)
from theory.equilibrium import Semicircle
from theory.ground_states import hermite_ground_state


def autoregression(coefficient, n_chains, n, seed):
    """Stationary AR(1) chains of unit variance, (chain, draw)."""
    noise = np.random.default_rng(seed).standard_normal((n, n_chains))
    x = [noise[0]]
    for step in noise[1:]:
        x.append(coefficient * x[-1] + np.sqrt(1 - coefficient**2) * step)
    return np.stack(x, 1)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (5, 5), (6, 4), (7, 3)])
def test_wasserstein2_of_points_is_the_optimal_assignment(n, m):
    rng = np.random.default_rng(n * m)
    a, b = rng.normal(size=n), rng.normal(1, 2, size=m)
    repeat = np.lcm(n, m)
    cost = (np.repeat(a, repeat // n)[:, None] - np.repeat(b, repeat // m)) ** 2
    exact = np.sqrt(cost[linear_sum_assignment(cost)].mean())
    assert wasserstein2(a, b) == pytest.approx(exact, rel=1e-13)
    assert wasserstein2(b, a) == pytest.approx(exact, rel=1e-13)


def test_weights_are_repetitions():
    a, b = np.array([0.3, -1.0, 2.0]), np.array([0.5, 1.0])
    assert wasserstein2(a, b, a_weights=[2, 1, 3], b_weights=[1, 4]) == pytest.approx(
        wasserstein2(np.repeat(a, [2, 1, 3]), np.repeat(b, [1, 4])), rel=1e-13
    )
    assert wasserstein2(a, b, a_weights=[0, 1, 0]) == pytest.approx(wasserstein2([-1.0], b), rel=1e-13)
    assert wasserstein2(a, a + 0.7) == pytest.approx(0.7)


@pytest.mark.parametrize(("mean", "scale"), [(0.0, 1.0), (1.5, 0.3)])
def test_wasserstein2_to_a_quantile_function(mean, scale):
    assert wasserstein2([0.4], lambda u: mean + scale * ndtri(u)) == pytest.approx(np.hypot(mean - 0.4, scale), rel=1e-7)
    points = np.array([-0.5, 0.1, 2.0])
    edges = ndtri(np.array([1 / 3, 2 / 3]))
    density, tail = norm.pdf(edges), np.diff(np.r_[0, norm.pdf(edges), 0])
    assert density.shape == (2,)
    cross = -np.sum(points * (mean * -1 / 3 + scale * tail))  # int q over each third: mean/3 - scale * (phi at its ends)
    exact = np.mean(points**2) + mean**2 + scale**2 - 2 * cross
    assert wasserstein2(points, lambda u: mean + scale * ndtri(u)) == pytest.approx(np.sqrt(exact), rel=1e-7)


def test_hermite_zeros_approach_the_semicircle_as_1_over_n():
    n = np.array([4, 8, 16, 32, 64, 128])
    law = Semicircle(1.0, 1.0)
    # zeros of H_n over sqrt(n), the pair sum normalised by 1/n^2
    distance = [wasserstein2(hermite_ground_state(k, 1.0, 1.0) * np.sqrt((k - 1) / k), law.quantile) for k in n]
    assert distance == pytest.approx([0.207, 0.1085, 0.0562, 0.0289, 0.0147, 0.0075], abs=5e-4)
    rate = fit_rate(n, distance)
    assert rate.low < rate.slope < rate.high
    assert -1.05 < rate.slope < -0.9


def test_sliced_distance_of_a_shift():
    rng = np.random.default_rng(0)
    a, shift = rng.normal(size=(50, 3)), np.array([1.0, -2.0, 0.5])
    expected = np.linalg.norm(shift) / np.sqrt(3)  # E (direction . shift)^2 = |shift|^2 / dim
    assert sliced_wasserstein2(a, a + shift, n_projections=4000, rng=1) == pytest.approx(expected, rel=0.03)
    assert sliced_wasserstein2(a, a[::-1], rng=1) == pytest.approx(0, abs=1e-12)


def test_distances_of_equal_and_shifted_clouds_of_any_precision():
    """The same cloud is at distance 0 whatever its dtype; a shifted one at the length of the shift."""
    double = np.random.default_rng(2).normal(size=40).astype(np.float32).astype(np.float64)
    for a, b in ((double, double[::-1]), (double.astype(np.float32), double), (pd.Series(double), xr.DataArray(double))):
        weights = np.full(40, 1 / 40, np.float32)
        assert wasserstein2(a, b, a_weights=weights) == pytest.approx(0, abs=1e-12)
        assert wasserstein2(np.asarray(a) + np.float32(0.75), b) == pytest.approx(0.75, abs=1e-6)
    whole = np.arange(5)
    whole.flags.writeable = False
    assert wasserstein2(whole, whole + 2) == pytest.approx(2)


@pytest.mark.parametrize("shift", [0.0, 0.8])
def test_energy_distance_of_normals(shift):
    """2 E|X-Y| - E|X-X'| - E|Y-Y'| with the folded normal mean; unbiased over 200 repeats."""
    rng = np.random.default_rng(4)
    folded = 2 * np.exp(-(shift**2) / 4) / np.sqrt(np.pi) + shift * (1 - 2 * norm.cdf(-shift / np.sqrt(2)))
    exact = 2 * folded - 4 / np.sqrt(np.pi)
    draws = np.array([energy_distance(rng.normal(size=40), rng.normal(shift, size=60)) for _ in range(200)])
    error = draws.std(ddof=1) / np.sqrt(200)
    assert abs(draws.mean() - exact) < 4 * error  # false alarm 6e-5
    biased = energy_distance(rng.normal(size=40), rng.normal(shift, size=60), unbiased=False)
    assert biased >= 0
    assert abs(draws.mean() - exact - (1 / 40 + 1 / 60) * 2 / np.sqrt(np.pi)) > 4 * error  # the V-statistic's bias is seen


def test_energy_distance_in_two_dimensions_by_definition():
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=(7, 2)), rng.normal(size=(5, 2))

    def total(x, y):
        return sum(np.linalg.norm(p - q) for p in x for q in y)

    assert energy_distance(a, b) == pytest.approx(2 * total(a, b) / 35 - total(a, a) / 42 - total(b, b) / 20)
    assert energy_distance(a, b, unbiased=False) == pytest.approx(2 * total(a, b) / 35 - total(a, a) / 49 - total(b, b) / 25)
    assert energy_distance(a, a[::-1], unbiased=False) == pytest.approx(0, abs=1e-14)


def test_rate_interval_covers_the_slope():
    n, rng = np.array([16, 32, 64, 128, 256]), np.random.default_rng(6)
    exact = fit_rate(n, 3.0 * n**-0.5)
    assert (exact.slope, np.exp(exact.intercept)) == pytest.approx((-0.5, 3.0))
    hits = 0
    for _ in range(400):
        rate = fit_rate(n, 3 * n[:, None] ** -0.5 * np.exp(0.3 * rng.standard_normal((5, 2))), level=0.9)
        hits += rate.low < -0.5 < rate.high
    assert 0.9 - 4 * 0.015 < hits / 400 < 0.9 + 4 * 0.015  # binomial, 4 standard deviations: false alarm 6e-5


@pytest.mark.parametrize("coefficient", [0.0, 0.5, 0.9, -0.4])
def test_effective_sample_size_of_autoregressions(coefficient):
    x = autoregression(coefficient, 4, 20_000, seed=1)
    expected = x.size * (1 - coefficient) / (1 + coefficient)
    # relative error of the estimate about 3 % at 0.9
    assert effective_sample_size(x) == pytest.approx(expected, rel=0.15)
    assert split_r_hat(x) == pytest.approx(1, abs=0.01)


def test_standard_error_covers_and_the_naive_one_does_not():
    z, naive = [], []
    for seed in range(300):
        x = autoregression(0.8, 4, 250, seed)
        mean, error, across = mean_and_error(x)
        z.append(mean / error)
        naive.append(mean / (x.std() / np.sqrt(x.size)))
        assert across > 0
    # root mean square of 300 z-scores: 1 with standard deviation 0.04; 6 deviations allow for estimated errors
    assert np.sqrt(np.mean(np.square(z))) == pytest.approx(1, abs=0.25)
    assert np.sqrt(np.mean(np.square(naive))) > 2


def test_r_hat_sees_a_chain_apart_and_a_drift():
    x = autoregression(0.5, 4, 2000, seed=2)
    shifted = x + np.array([0, 0, 0, 1.0])[:, None]
    # between-chain variance 0.25 beside 1: root of 1.25 = 1.118
    assert split_r_hat(shifted) == pytest.approx(np.sqrt(1.25), abs=0.03)
    assert split_r_hat(x + np.linspace(0, 3, 2000)) > 1.2
    assert effective_sample_size(shifted) < 50


def test_degenerate_draws():
    assert np.isnan(split_r_hat(np.ones((2, 10))))
    assert np.isnan(effective_sample_size(np.array([[1.0, np.inf, 2, 3, 4, 5]])))
    assert mean_and_error(np.full((2, 10), 3.0)) == (3.0, 0.0, 0.0)
    mean, error, across = mean_and_error(np.array([[1.0, 2.0]]))
    assert mean == 1.5
    assert np.isnan(error)
    assert np.isnan(across)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: wasserstein2([], [1.0]), "a must be points"),
        (lambda: wasserstein2([1.0], [np.nan]), "b must be finite"),
        (lambda: wasserstein2([1.0, 2.0], [1.0], a_weights=[1, -1]), "a_weights must be"),
        (lambda: wasserstein2([1.0], ndtri, b_weights=[1.0]), "b_weights must be None"),
        (lambda: energy_distance([[1.0]], [[1.0], [2.0]]), "two points"),
        (lambda: energy_distance(np.ones((3, 2)), np.ones((3, 1))), "same dim"),
        (lambda: sliced_wasserstein2(np.ones((3, 2)), np.ones((3, 1)), rng=0), "same dim"),
        (lambda: fit_rate([1, 2, 3], [1.0, 0.0, 2.0]), "must be positive"),
        (lambda: fit_rate([1, 2, 3], [1.0, 2.0]), "error must have shape"),
        (lambda: fit_rate([1, 2, 3], [1.0, 2.0, 3.0], level=1.0), "level must lie"),
        (lambda: fit_rate([1, 2, 3], [1.0, 2.0, 3.0], level="high"), "level must be a real number"),
        (lambda: sliced_wasserstein2(np.ones((3, 2)), np.ones((3, 2)), rng="seed"), "rng must be"),
        (lambda: split_r_hat([1.0, 2.0]), "draws must have shape"),
        (lambda: split_r_hat([["a", "b"]]), "draws must hold real numbers"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
