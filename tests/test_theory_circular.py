"""Fourier mode and pair density of the log gas on a circle. Partition functions, energies, sampler: `test_theory_ensembles.py`."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import cumulative_trapezoid, quad
from scipy.stats import kstest

from theory.ensembles.circular import circle_gas_energy, circle_gas_first_mode, circle_gas_pair_density, sample_circle_gas


def z_score(draws, predicted):
    return (draws.mean() - predicted) / (draws.std(ddof=1) / np.sqrt(len(draws)))


@pytest.mark.parametrize(("n", "b"), [(2, 0.7), (5, 3.0), (12, 1.0), (6, 0.0)])
def test_first_mode(n, b):
    beta, period = 1.3, 2.4
    strength = b * (n - 1) / beta
    x = sample_circle_gas(n, beta, strength, period, rng=2, size=6000)[..., 0]
    mode = abs(np.mean(np.exp(2j * np.pi * x / period), axis=1)) ** 2
    assert abs(z_score(mode, circle_gas_first_mode(n, beta, strength))) < 4  # false alarm 6e-5
    assert abs(z_score(mode, circle_gas_first_mode(n, beta, 1.3 * strength + 0.2))) > 4


@pytest.mark.parametrize("b", [0.6, 2.0, 5.0])
def test_first_mode_of_two_by_quadrature(b):
    weight = [quad(lambda t, k=k: np.cos(k * t) * (2 * np.sin(t / 2)) ** b, 0, 2 * np.pi)[0] for k in (0, 1)]
    assert circle_gas_first_mode(2, b, 1.0) == pytest.approx((1 + weight[1] / weight[0]) / 2, rel=1e-8)


@pytest.mark.parametrize("n", [2, 3, 6])
def test_pair_density_at_index_two(n):
    period, beta = 2.4, 1.3
    strength = 2 * (n - 1) / beta
    gap = np.linspace(0, period, 4001)
    rho = circle_gas_pair_density(gap, n, period)
    assert np.trapezoid(rho, gap) == pytest.approx(1, rel=1e-9)

    def mean_log(t):
        return -np.log(period / np.pi * np.sin(np.pi * t / period)) * float(circle_gas_pair_density(t, n, period))

    pairs = quad(mean_log, 0, period)[0]
    assert circle_gas_energy(n, beta, strength, period) == pytest.approx(strength / 2 * pairs, rel=1e-8)
    x = sample_circle_gas(n, beta, strength, period, rng=5, size=3000)[..., 0]
    drawn = np.random.default_rng(0).permuted(x, axis=1)
    cdf = cumulative_trapezoid(rho, gap, initial=0)
    assert kstest((drawn[:, 0] - drawn[:, 1]) % period, lambda r: np.interp(r, gap, cdf)).pvalue > 1e-4  # false alarm 1e-4
    wrong = sample_circle_gas(n, beta, 0.2 * strength, period, rng=5, size=6000)[..., 0]
    drawn = np.random.default_rng(0).permuted(wrong, axis=1)
    assert kstest((drawn[:, 0] - drawn[:, 1]) % period, lambda r: np.interp(r, gap, cdf)).pvalue < 1e-4


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: circle_gas_first_mode(1, 1.0, 1.0), "n must be"),
        (lambda: circle_gas_pair_density([0.1], 3, 0.0), "period must be"),
        (lambda: circle_gas_pair_density([np.nan], 3, 1.0), "gap must be finite"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
