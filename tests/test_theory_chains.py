"""Chain statistics of known autoregressions, and of chains apart in place, in scale and in their tails."""

from __future__ import annotations

import numpy as np
import pytest

from theory.convergence.chains import bulk_ess, effective_sample_size, mean_and_error, monte_carlo_error, rank_r_hat, split_r_hat, tail_ess


def autoregression(coefficient, n_chains, n, seed):
    """Stationary AR(1) chains of unit variance, (chain, draw)."""
    noise = np.random.default_rng(seed).standard_normal((n, n_chains))
    x = [noise[0]]
    for step in noise[1:]:
        x.append(coefficient * x[-1] + np.sqrt(1 - coefficient**2) * step)
    return np.stack(x, 1)


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


@pytest.mark.slow  # arviz takes seconds to import
def test_rank_statistics_agree_with_arviz():
    az = pytest.importorskip("arviz")
    rng = np.random.default_rng(0)
    for x in (autoregression(0.6, 4, 600, 3), rng.standard_t(2, size=(3, 500)) + rng.normal(size=(3, 1)), rng.integers(4, size=(4, 400))):
        assert rank_r_hat(x) == pytest.approx(float(az.rhat(np.asarray(x, float))), rel=1e-12)
        assert bulk_ess(x) == pytest.approx(float(az.ess(np.asarray(x, float))), rel=0.03)  # the two cut the correlations apart
        if x.dtype == float:
            assert tail_ess(x) == pytest.approx(float(az.ess(x, method="tail")), rel=0.03)
    x = autoregression(0.6, 4, 600, 3)
    for level in (0.1, 0.5):
        assert monte_carlo_error(x, quantile=level) == pytest.approx(float(az.mcse(x, method="quantile", prob=level)), rel=0.05)


def test_rank_r_hat_sees_scale_and_heavy_tails():
    """Chains of one mean and unlike scale pass plain R-hat and fail the folded one; Cauchy draws of one law pass."""
    x = autoregression(0.3, 4, 1000, 5)
    scaled = x * np.array([1, 1, 1, 4.0])[:, None]
    assert split_r_hat(scaled) < 1.02
    assert rank_r_hat(scaled) > 1.1
    assert rank_r_hat(x) < 1.02
    rng = np.random.default_rng(6)
    heavy = rng.standard_cauchy((4, 1000))
    assert rank_r_hat(heavy) < 1.02
    assert rank_r_hat(heavy + np.array([0, 0, 0, 4.0])[:, None]) > 1.1  # negative control
    assert rank_r_hat(np.exp(10 * x)) == pytest.approx(max(rank_r_hat(x), 1), abs=0.02)  # ranks ignore monotone maps but for the folding


@pytest.mark.parametrize("coefficient", [0.0, 0.7])
def test_bulk_and_tail_sizes_of_autoregressions(coefficient):
    x = autoregression(coefficient, 4, 10_000, seed=7)
    assert bulk_ess(x) == pytest.approx(x.size * (1 - coefficient) / (1 + coefficient), rel=0.1)
    assert bulk_ess(np.sinh(x)) == pytest.approx(bulk_ess(x), rel=1e-12)
    assert 0.9 * bulk_ess(x) < tail_ess(x) < 1.1 * x.size


def test_quantile_errors_cover():
    """Root mean square z of the median and the upper decile of 200 runs: 1, with allowance for the estimated errors as above."""
    for level, exact in ((0.5, 0.0), (0.9, 1.2815515655446004)):
        z, naive = [], []
        for seed in range(200):
            x = autoregression(0.7, 4, 400, seed)
            z.append((np.quantile(x, level) - exact) / monte_carlo_error(x, quantile=level))
            naive.append(
                (np.quantile(x, level) - exact) / (monte_carlo_error(np.random.default_rng(0).permuted(x, axis=None), quantile=level))
            )
        assert np.sqrt(np.mean(np.square(z))) == pytest.approx(1, abs=0.25)
        assert np.sqrt(np.mean(np.square(naive))) > 1.5  # shuffled draws hide the correlation
    x = autoregression(0.7, 4, 400, 0)
    assert monte_carlo_error(x) == mean_and_error(x)[1]


def test_degenerate_draws_of_the_rank_statistics():
    for bad in (np.ones((2, 3)), np.array([[1.0, np.inf, 2, 3, 4, 5]])):
        assert np.isnan([rank_r_hat(bad), bulk_ess(bad), tail_ess(bad), monte_carlo_error(bad, quantile=0.5)]).all()
    assert np.isnan(rank_r_hat(np.ones((2, 10))))
    assert np.isnan(tail_ess(np.random.default_rng(0).integers(4, size=(2, 50))))  # nothing lies above the upper quantile
    coin = np.random.default_rng(0).choice([-1.0, 1.0], size=(2, 50))
    assert rank_r_hat(coin) == pytest.approx(split_r_hat(coin), rel=0.01)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: split_r_hat([1.0, 2.0]), "draws must have shape"),
        (lambda: split_r_hat([["a", "b"]]), "draws must hold real numbers"),
        (lambda: rank_r_hat([1.0, 2.0]), "draws must have shape"),
        (lambda: monte_carlo_error(np.ones((2, 8)), quantile=1.0), "quantile must lie"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize(
    "function", [split_r_hat, effective_sample_size, mean_and_error, rank_r_hat, bulk_ess, tail_ess, monte_carlo_error]
)
def test_no_chains_are_refused_and_no_draws_say_nothing(function):
    with pytest.raises(ValueError, match="draws must have shape"):
        function(np.zeros((0, 10)))
    assert np.isnan(function(np.zeros((2, 0)))).all()
