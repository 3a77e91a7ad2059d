"""Rates with their coverage, bias against variance, extrapolation, and the rates of empirical measures."""

from __future__ import annotations

import numpy as np
import pytest

from theory import convergence
from theory.convergence import bias_variance, bootstrap_rate, empirical_rate, extrapolate, fit_rate
from theory.convergence.transport import wasserstein, wasserstein2
from theory.dynamics.quadratic_gas import QuadraticGas
from theory.equilibrium import Semicircle
from theory.ground_states import hermite_ground_state


def test_hermite_zeros_approach_the_semicircle_as_1_over_n():
    n = np.array([4, 8, 16, 32, 64, 128])
    law = Semicircle(1.0, 1.0)
    # zeros of H_n over sqrt(n), the pair sum normalised by 1/n^2
    distance = [wasserstein2(hermite_ground_state(k, 1.0, 1.0) * np.sqrt((k - 1) / k), law.quantile) for k in n]
    assert distance == pytest.approx([0.207, 0.1085, 0.0562, 0.0289, 0.0147, 0.0075], abs=5e-4)
    rate = fit_rate(n, distance)
    assert rate.low < rate.slope < rate.high
    assert -1.05 < rate.slope < -0.9


def test_rate_interval_covers_the_slope():
    n, rng = np.array([16, 32, 64, 128, 256]), np.random.default_rng(6)
    exact = fit_rate(n, 3.0 * n**-0.5)
    assert (exact.slope, np.exp(exact.intercept)) == pytest.approx((-0.5, 3.0))
    hits = 0
    for _ in range(400):
        rate = fit_rate(n, 3 * n[:, None] ** -0.5 * np.exp(0.3 * rng.standard_normal((5, 2))), level=0.9)
        hits += rate.low < -0.5 < rate.high
    assert 0.9 - 4 * 0.015 < hits / 400 < 0.9 + 4 * 0.015  # binomial, 4 standard deviations: false alarm 6e-5


def test_weighted_rate_covers_and_uses_the_errors():
    """Errors known, of unlike size: coverage 0.9 of 400 repeats (binomial, 4 standard deviations); blind to them intervals are wider."""
    n, rng, relative = np.array([10, 20, 40, 80, 160]), np.random.default_rng(1), np.array([0.01, 0.01, 0.02, 0.2, 0.3])
    hits, wide = 0, []
    for _ in range(400):
        error = 2 * n**-0.7 * np.exp(relative * rng.standard_normal(5))
        rate = fit_rate(n, error, standard_error=relative * error, level=0.9)
        hits += rate.low < -0.7 < rate.high
        blind = fit_rate(n, error, level=0.9)
        wide.append((blind.high - blind.low) / (rate.high - rate.low))
    assert abs(hits / 400 - 0.9) < 4 * 0.015
    assert np.median(wide) > 3
    two = fit_rate([10, 100], [1.0, 0.1], standard_error=[0.05, 0.005])
    half = 1.959963984540054 * np.hypot(0.05, 0.05) / np.log(10)
    assert two == pytest.approx((-1.0, -1 - half, -1 + half, np.log(10)), rel=1e-12)


def test_bootstrap_rate_covers():
    """Skewed replicates, slope of the means' logs, 150 repeats at level 0.9: 4 standard deviations, and 0.03 for the method."""
    n, rng, hits = np.array([8, 16, 32, 64]), np.random.default_rng(2), 0
    for _ in range(150):
        error = rng.exponential(size=(4, 80)) / np.sqrt(n)[:, None]
        rate = bootstrap_rate(n, error, n_resamples=100, level=0.9, rng=rng)
        hits += rate.low < -0.5 < rate.high
    assert abs(hits / 150 - 0.9) < 4 * 0.025 + 0.03
    exact = bootstrap_rate(n, np.repeat(3.0 / n[:, None], 6, axis=1), power=2, rng=0)
    assert exact == pytest.approx((-1, -1, -1, np.log(3)), rel=1e-12)
    spread = np.array([1.0, 2, 3, 4, 5]) * np.sqrt(1 / n)[:, None]
    assert bootstrap_rate(n, spread, power=2, rng=0).intercept == pytest.approx(np.log(np.sqrt(11)), rel=1e-12)


def test_bias_variance_of_the_naive_variance_estimator():
    """Of m normals, variance estimate without the -1: bias -1/m, variance 2 (m - 1)/m^2. z-tests at 4: false alarm 6e-5 each."""
    rng, m = np.random.default_rng(3), 6
    draws = rng.normal(size=(4000, m, 2)) * np.array([1.0, 2.0])
    truth = np.array([1.0, 4.0])
    split = bias_variance(draws.var(1), truth)
    z_bias = (split.bias + truth / m) / split.bias_error
    z_variance = (split.variance - 2 * (m - 1) / m**2 * truth**2) / split.variance_error
    z_mse = (split.mse - (2 * m - 1) / m**2 * truth**2) / split.mse_error
    assert np.abs([z_bias, z_variance, z_mse]).max() < 4
    unbiased = bias_variance(draws.var(1, ddof=1), truth)
    assert (np.abs((unbiased.bias + truth / m) / unbiased.bias_error) > 4).all()  # negative control
    assert split.mse == pytest.approx(split.bias**2 + split.variance * (1 - 1 / 4000), rel=1e-12)
    assert split.bias.shape == split.variance_error.shape == (2,)


def test_standard_errors_of_the_split_are_the_spread_over_repeats():
    rng = np.random.default_rng(4)
    runs = [bias_variance(rng.exponential(size=40), 0.9) for _ in range(500)]
    for value, error in (("bias", "bias_error"), ("mse", "mse_error"), ("variance", "variance_error")):
        spread = np.std([getattr(run, value) for run in runs])
        # the fourth moment of 40 exponentials is underestimated
        assert np.sqrt(np.mean([getattr(run, error) ** 2 for run in runs])) == pytest.approx(spread, rel=0.2)


@pytest.mark.parametrize("powers", [(1.0,), (1.0, 2.0), (0.5, 1.0, 3.0)])
def test_richardson_is_exact(powers):
    h = 0.4 / 2.0 ** np.arange(1 + len(powers))
    value = 1.7 + sum((k + 1) * h**power for k, power in enumerate(powers))
    fit = extrapolate(h, value, powers=powers)
    assert fit.limit == pytest.approx(1.7, rel=1e-12)
    assert fit.coefficients == pytest.approx(np.arange(len(powers)) + 1.0, rel=1e-8)
    assert np.isnan(fit.error)
    assert np.isnan(fit.p_value)


def test_weighted_extrapolation_covers_and_sees_a_wrong_power():
    """300 repeats: z-scores of unit variance (chi^2, 4 standard deviations 0.33), uniform p-values; a missing power is rejected."""
    rng, h, error = np.random.default_rng(5), np.array([0.05, 0.1, 0.2, 0.3, 0.4]), np.array([0.02, 0.01, 0.01, 0.005, 0.005])
    z, p_values, wrong = [], [], []
    for _ in range(300):
        value = 2 - 3 * h + 5 * h**2 + error * rng.standard_normal(5)
        fit = extrapolate(h, value, standard_error=error, powers=(1, 2))
        z.append((fit.limit - 2) / fit.error)
        p_values.append(fit.p_value)
        wrong.append(extrapolate(h, value, standard_error=error).p_value)
    assert abs(np.mean(np.square(z)) - 1) < 4 * np.sqrt(2 / 300)
    assert abs(np.mean(p_values) - 0.5) < 4 / np.sqrt(12 * 300)
    assert np.max(wrong) < 1e-6


@pytest.mark.parametrize(
    ("dim", "p", "moments", "slope", "logarithm"),
    [
        (1, 1, np.inf, -0.5, False),
        (2, 1, np.inf, -0.5, True),
        (3, 1, np.inf, -1 / 3, False),
        (3, 2, np.inf, -0.5, False),
        (4, 2, np.inf, -0.5, True),
        (5, 2, np.inf, -0.4, False),
        (5, 2, 3, -1 / 3, False),
        (4, 2, 3, -1 / 3, False),
        (4, 2, 6, -0.5, True),
    ],
)
def test_rates_of_fournier_and_guillin(dim, p, moments, slope, logarithm):
    rate = empirical_rate(dim, p, moments=moments)
    assert rate == (pytest.approx(slope), logarithm)


def test_bias_and_variance_of_a_particle_average_against_n():
    """Mean square of n interacting particles against its limit: bias chaos_bias/n and variance, both of slope -1."""
    n, splits = np.array([3, 6, 12, 24]), []
    for k in n:
        gas = QuadraticGas(0.5, 4.0, 2.0, int(k))
        splits.append(bias_variance((gas.sample(6000, int(k)) ** 2).mean((1, 2)), gas.limit_variance()))
        assert abs(splits[-1].bias - gas.chaos_bias() / k) < 4 * splits[-1].bias_error  # z-test: false alarm 6e-5
        modes = gas.modes()
        exact = 2 * (modes.centre**2 + (k - 1) * modes.deviation**2) / k**2
        assert abs(splits[-1].variance - exact) < 4 * splits[-1].variance_error
    bias, error = np.array([(split.bias, split.bias_error) for split in splits]).T
    rate = fit_rate(n, bias, standard_error=error, level=0.9999)
    assert rate.low < -1 < rate.high
    assert not rate.low < -0.5 < rate.high  # negative control
    mean = extrapolate(1 / n, bias + QuadraticGas(0.5, 4.0, 2.0, 3).limit_variance(), standard_error=error, powers=(1, 2))
    assert abs(mean.limit - QuadraticGas(0.5, 4.0, 2.0, 3).limit_variance()) < 4 * mean.error


def test_bias_against_the_step_is_removed_by_extrapolation():
    gas, h = QuadraticGas(1.3, 0.8, 6.0, 5), np.array([0.01, 0.02, 0.04, 0.08])
    biased = np.array([gas.euler_modes(step).variance(5) for step in h])
    exact = gas.modes().variance(5)
    assert fit_rate(h, biased - exact).slope == pytest.approx(1, abs=0.1)
    errors = [abs(extrapolate(h[:k], biased[:k], powers=tuple(range(1, k))).limit - exact) for k in (2, 3, 4)]
    assert errors[0] < 0.1 * (biased[0] - exact)
    assert errors[2] < 0.1 * errors[1] < 0.01 * errors[0]


@pytest.mark.slow
def test_empirical_measures_fall_at_the_known_rate_in_space():
    """E W_1 of two independent uniform clouds in the cube: -1/3, approached from below by finite-size corrections."""
    pytest.importorskip("ot")
    rng, n = np.random.default_rng(6), np.array([50, 100, 200, 400, 800])
    error = np.array([[wasserstein(rng.random((k, 3)), rng.random((k, 3)), 1) for _ in range(6)] for k in n])
    rate = bootstrap_rate(n, error, rng=rng)
    assert abs(rate.slope - empirical_rate(3, 1).slope) < 0.04
    assert abs(rate.slope - empirical_rate(1, 1).slope) > 0.1  # negative control: another dimension


def test_empirical_measures_fall_at_the_known_rate_on_the_line():
    rng, n = np.random.default_rng(7), np.array([20, 80, 320, 1280])
    error = np.array([[wasserstein(rng.random(k), lambda u: u, 1) for _ in range(60)] for k in n])
    rate = bootstrap_rate(n, error, rng=rng, level=0.9999)
    assert rate.low < empirical_rate(1, 1).slope < rate.high
    assert not rate.low < empirical_rate(3, 1).slope < rate.high


def test_distances_and_chain_statistics_remain_importable_here():
    for name in convergence.__all__:
        assert callable(getattr(convergence, name))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fit_rate([1, 2, 3], [1.0, 0.0, 2.0]), "must be positive"),
        (lambda: fit_rate(np.arange(1, 5000), -np.ones(4999)), r"got shape \(4999,\) with minimum 1, and shape \(4999,\) with minimum -1$"),
        (lambda: fit_rate([1, 2, 3], [1.0, 2.0]), "error must have shape"),
        (lambda: fit_rate([1, 2, 3], [1.0, 2.0, 3.0], level=1.0), "level must lie"),
        (lambda: fit_rate([1, 2, 3], [1.0, 2.0, 3.0], level="high"), "level must be a real number"),
        (lambda: fit_rate([1, 2, 3], [1.0, 2.0, 3.0], standard_error=[1.0, 1.0]), "standard_error must be positive"),
        (lambda: fit_rate([1, 2, 3], [1.0, 2.0, 3.0], standard_error=[1.0, 1.0, 0.0]), "standard_error must be positive"),
        (lambda: bootstrap_rate([1, 2], np.ones((2, 4)), rng=0), "five replicates"),
        (lambda: bootstrap_rate([1, 2], -np.ones((2, 5)), rng=0), "at least 0"),
        (lambda: bootstrap_rate([1, 2], np.ones((2, 5)), power=0, rng=0), "power must be"),
        (lambda: bias_variance([1.0, 2.0, 3.0], 1.0), "four replicates"),
        (lambda: bias_variance(np.ones((5, 2)), np.ones(3)), "truth must have the shape"),
        (lambda: extrapolate([0.1, 0.1], [1.0, 1.0]), "2 different values"),
        (lambda: extrapolate([0.1, 0.2], [1.0, 1.0], powers=(1, 1)), "powers must be positive and distinct"),
        (lambda: extrapolate([0.1, 0.2], [1.0, 1.0], standard_error=[1.0, -1.0]), "standard_error must be positive"),
        (lambda: empirical_rate(1, 2, moments=4), "states nothing"),
        (lambda: empirical_rate(4, 1, moments=4 / 3), "states nothing"),
        (lambda: empirical_rate(3, 2, moments=2), "moments must be above"),
        (lambda: empirical_rate(0, 2), "dim must be"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
