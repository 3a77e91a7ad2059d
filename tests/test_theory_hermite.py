"""Level density of the trapped log gas at index 2, and its partition function by quadrature at three particles.

Samplers, moments and energies: `test_theory_ensembles.py`.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import cumulative_trapezoid
from scipy.stats import kstest

from theory.ensembles.hermite import fourth_moment, log_gas_density, log_gas_energy, log_gas_log_partition, sample_log_gas
from theory.ensembles.virial import second_moment
from theory.equilibrium import Semicircle


@pytest.mark.parametrize(("beta", "kappa", "strength"), [(1.5, 0.8, 0.9), (2.5, 1.3, 2.0)])
def test_partition_function_and_energy_of_three_by_quadrature(beta, kappa, strength):
    """The centre of mass is Gaussian; the two gaps are left: double exponential rule."""
    y = np.linspace(-3.2, 3.2, 90)
    gap, weight = np.exp(y - np.exp(-y)), (y[1] - y[0]) * np.exp(y - np.exp(-y)) * (1 + np.exp(-y))
    first, second = np.meshgrid(gap, gap)
    spread = (first**2 + second**2 + (first + second) ** 2) / 3  # sum of squares about the centre
    energy = kappa / 2 * spread - strength / 2 * np.log(first * second * (first + second))
    weights = np.outer(weight, weight) * np.exp(-beta * energy)
    centre = np.sqrt(2 * np.pi / (3 * beta * kappa))
    assert log_gas_log_partition(3, beta, kappa, strength) == pytest.approx(np.log(6 * centre * np.sum(weights)), abs=1e-8)
    mean = np.sum(weights * energy) / np.sum(weights) + 1 / (2 * beta)
    assert 3 * log_gas_energy(3, beta, kappa, strength) == pytest.approx(mean, rel=1e-8)
    assert 3 * log_gas_energy(3, 1.01 * beta, kappa, strength) != pytest.approx(mean, rel=1e-4)  # negative control


@pytest.mark.parametrize("n", [2, 7, 40])
def test_density_at_index_two(n):
    beta, kappa = 1.7, 0.6
    strength = 2 * (n - 1) / beta
    edge = 2 * np.sqrt(n / (beta * kappa)) * 1.2 + 8
    x = np.linspace(-edge, edge, 6001)
    rho = log_gas_density(x, n, beta, kappa)
    assert [np.trapezoid(rho * x**k, x) for k in (0, 2, 4)] == pytest.approx(
        [1, second_moment(1, beta, kappa, strength), fourth_moment(n, beta, kappa, strength)], rel=1e-9
    )
    cdf = cumulative_trapezoid(rho, x, initial=0)
    draws = sample_log_gas(n, beta, kappa, strength, rng=8, size=4000)[:, :, 0]
    pick = np.random.default_rng(0).integers(n, size=4000)  # one particle of each sample: independent
    assert kstest(draws[np.arange(4000), pick], lambda r: np.interp(r, x, cdf)).pvalue > 1e-4  # false alarm 1e-4
    wrong = sample_log_gas(n, beta, kappa, 0.5 * strength, rng=8, size=4000)[:, :, 0]
    assert kstest(wrong[np.arange(4000), pick], lambda r: np.interp(r, x, cdf)).pvalue < 1e-4


def test_density_of_two_in_closed_form():
    """(1 + e^2) exp(-e^2/2) / (2 sqrt(2 pi)) at scale 1."""
    e = np.linspace(-4, 4, 17)
    assert log_gas_density(e / 2, 2, 4.0, 1.0) == pytest.approx(2 * (1 + e**2) * np.exp(-(e**2) / 2) / (2 * np.sqrt(2 * np.pi)), rel=1e-13)


def test_density_of_many_is_the_semicircle():
    """n = 3000: the weight alone is 1e-2600 at the edge."""
    n, beta, kappa = 3000, 2.0, 1.0
    x = np.linspace(-0.9, 0.9, 31) * 2 * np.sqrt(n / (beta * kappa))
    limit = Semicircle(kappa, 2 * n / beta).density(x)
    assert log_gas_density(x, n, beta, kappa) == pytest.approx(limit, rel=3e-3)
    assert log_gas_density([1e4], n, beta, kappa) == pytest.approx([0])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: log_gas_density([0.0], 1, 1.0, 1.0), "n must be an integer of at least 2"),
        (lambda: log_gas_density([np.inf], 3, 1.0, 1.0), "x must be finite"),
        (lambda: log_gas_density([0.0], 3, 1.0, -1.0), "kappa must be"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
