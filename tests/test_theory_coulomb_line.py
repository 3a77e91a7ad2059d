"""The one-dimensional Coulomb gas in a trap against orthant probabilities, quadrature, limits and samples by rejection."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import cumulative_trapezoid, dblquad, quad
from scipy.special import gammaln
from scipy.stats import kstest, multivariate_normal, norm

from theory.ensembles.coulomb_line import CoulombLine
from theory.ground_states import coulomb_line_energy, coulomb_line_ground_state


def z_score(draws, predicted):
    return (draws.mean() - predicted) / (draws.std(ddof=1) / np.sqrt(len(draws)))


def mean_distance(x):
    i, j = np.triu_indices(x.shape[1], 1)
    return np.mean(abs(x[:, i] - x[:, j]), axis=1)


@pytest.mark.parametrize(("beta", "kappa", "strength"), [(2.0, 1.3, 0.7), (0.3, 0.9, 2.0), (30.0, 0.6, 1.1)])
def test_order_probability_of_two_and_three(beta, kappa, strength):
    two, three = CoulombLine(2, beta, kappa, strength), CoulombLine(3, beta, kappa, strength)
    assert two.log_ordered == pytest.approx(norm.logcdf(two.spacing / np.sqrt(2)), abs=1e-12)
    orthant = multivariate_normal(cov=[[2, -1], [-1, 2]]).cdf([three.spacing] * 2)
    assert three.log_ordered == pytest.approx(np.log(orthant), abs=1e-9)


@pytest.mark.parametrize("n", [2, 5, 40, 150])
def test_without_interaction_every_order_is_as_likely(n):
    gas = CoulombLine(n, 1.7, 0.9, 0.0)
    assert gas.log_ordered == pytest.approx(-gammaln(n + 1), abs=3e-13 * n)
    assert gas.log_partition == pytest.approx(n / 2 * np.log(2 * np.pi / (1.7 * 0.9)), abs=3e-13 * n)
    assert gas.energy == pytest.approx(1 / (2 * 1.7), rel=1e-12)
    x = np.linspace(-3, 3, 13)
    assert gas.density(x) == pytest.approx(norm.pdf(x, scale=gas.width), rel=1e-8, abs=1e-12)


def test_partition_function_and_energy_of_two_and_three_by_quadrature():
    beta, kappa, strength = 1.4, 0.8, 1.1

    def pair(r, power):  # relative coordinate; the centre is Gaussian
        energy = kappa * r**2 / 4 - strength * r
        return energy**power * np.exp(-beta * energy)

    norm_two, mean_two = (quad(pair, 0, 30, args=(power,), epsabs=1e-12)[0] for power in (0, 1))
    gas = CoulombLine(2, beta, kappa, strength)
    assert gas.log_partition == pytest.approx(np.log(2 * norm_two * np.sqrt(np.pi / (beta * kappa))), abs=1e-12)
    assert 2 * gas.energy == pytest.approx(mean_two / norm_two + 1 / (2 * beta), rel=1e-11)

    def triple(g, h, power):
        energy = kappa / 6 * (g**2 + h**2 + (g + h) ** 2) - strength / 2 * 2 * (g + h)
        return energy**power * np.exp(-beta * energy)

    norm_three, mean_three = (dblquad(triple, 0, 14, 0, 14, args=(power,), epsabs=1e-9)[0] for power in (0, 1))
    gas = CoulombLine(3, beta, kappa, strength)
    assert gas.log_partition == pytest.approx(np.log(6 * norm_three * np.sqrt(2 * np.pi / (3 * beta * kappa))), abs=1e-8)
    assert 3 * gas.energy == pytest.approx(mean_three / norm_three + 1 / (2 * beta), rel=1e-7)


@pytest.mark.parametrize(("n", "beta"), [(4, 2.0), (30, 0.4), (100, 50.0), (100, 4000.0)])
def test_energy_is_the_derivative_of_the_partition_function(n, beta):
    step = 1e-4 * beta
    low, high = (CoulombLine(n, beta + change, 1.3, 0.7).log_partition for change in (-step, step))
    assert n * CoulombLine(n, beta, 1.3, 0.7).energy == pytest.approx((low - high) / (2 * step), rel=1e-6)


@pytest.mark.parametrize(("n", "beta", "strength"), [(2, 1.0, 0.7), (6, 3.0, 2.0), (25, 0.5, 0.9)])
def test_samples_by_rejection_of_free_gaussians_and_by_inversion(n, beta, strength):
    """Exact samples obey energy and rank laws; where rejection is feasible both samplers agree."""
    kappa, size = 1.3, 3000
    gas = CoulombLine(n, beta, kappa, strength)
    x = gas.sample(5, size)[..., 0]
    assert (np.diff(x, axis=1) > 0).all()
    energy = kappa / 2 * np.mean(x**2, axis=1) - strength / 2 * mean_distance(x)
    # z at 4: false alarm 6e-5 each; beta 20 % off is rejected
    assert abs(z_score(energy, gas.energy)) < 4
    assert abs(z_score(energy, CoulombLine(n, 1.2 * beta, kappa, strength).energy)) > 4
    assert abs(z_score(np.mean(x**2, axis=1), gas.second_moment)) < 4
    assert abs(z_score(mean_distance(x), gas.mean_distance)) < 4
    if n > 6:
        return
    free = gas.ground_state + gas.width * np.random.default_rng(1).standard_normal((400_000, n))
    kept = free[(np.diff(free, axis=1) > 0).all(axis=1)]
    share = len(kept) / len(free)
    assert abs(share - np.exp(gas.log_ordered)) < 4 * np.sqrt(share / len(free))  # false alarm 6e-5
    for k in (0, n // 2, n - 1):
        assert kstest(x[:, k], kept[:size, k]).pvalue > 1e-4  # false alarm 1e-4 each


@pytest.mark.parametrize(("n", "beta", "strength"), [(2, 1.0, 0.7), (7, 3.0, 2.0), (60, 0.5, 0.9), (200, 2.0, 0.7)])
def test_rank_densities(n, beta, strength):
    gas = CoulombLine(n, beta, 1.3, strength)
    x = np.linspace(gas.ground_state[0] - 9 * gas.width, gas.ground_state[-1] + 9 * gas.width, 4001)
    draws = gas.sample(5, 1500)[..., 0]
    for k in {1, 2, n // 2 + 1, n}:
        rho = gas.rank_density(k, x)
        assert np.trapezoid(rho, x) == pytest.approx(1, abs=1e-9)
        cdf = cumulative_trapezoid(rho, x, initial=0)
        assert kstest(draws[:, k - 1], lambda r, cdf=cdf: np.interp(r, x, cdf)).pvalue > 1e-4  # false alarm 1e-4
        spread = draws[:, k - 1].std()
        assert kstest(draws[:, k - 1] + 0.2 * spread, lambda r, cdf=cdf: np.interp(r, x, cdf)).pvalue < 1e-4
    density = gas.density(x)
    assert [np.trapezoid(density * x**power, x) for power in (0, 1, 2)] == pytest.approx([1, 0, gas.second_moment], abs=1e-9)
    assert gas.rank_density(1, -x) == pytest.approx(gas.rank_density(n, x), abs=1e-8)


@pytest.mark.parametrize(("n", "a"), [(300, 0.03), (300, 0.1), (300, 0.5), (60, 30.0)])
def test_many_particles_keep_their_digits(n, a):
    """Neighbouring means a widths apart: mass and mean square of single ranks, and the energy through them."""
    gas = CoulombLine(n, 1.0, 1.0, a * (n - 1) / 2)
    assert gas.spacing == pytest.approx(a)
    means = []
    for k in range(1, n + 1):
        u = np.linspace(-8, 8, 801)
        rho = gas.rank_density(k, gas.ground_state[k - 1] + u)
        assert np.trapezoid(rho, u) == pytest.approx(1, abs=2e-11)
        means.append(gas.ground_state[k - 1] + np.trapezoid(rho * u, u))
    distance = 2 * np.dot(2 * np.arange(1, n + 1) - n - 1, means) / (n * (n - 1))
    assert gas.mean_distance == pytest.approx(distance, rel=1e-11)


@pytest.mark.parametrize("n", [2, 9])
@pytest.mark.parametrize("beta", [1e-6, 1.0, 1e8])
def test_weak_repulsion_keeps_the_digits_of_the_distance(n, beta):
    """Without repulsion 2 width/sqrt(pi), and above by strength times beta/2 (n/(n-1)) of its variance and correlations: linear."""
    free = CoulombLine(n, beta, 1.3, 0.0)
    assert free.mean_distance == pytest.approx(2 * free.width / np.sqrt(np.pi), rel=1e-12)
    weak = 1e-5 * np.sqrt(1.3 / beta)  # a repulsion small beside the temperature
    once, twice = (CoulombLine(n, beta, 1.3, k * weak).mean_distance / free.mean_distance - 1 for k in (1, 2))
    assert 0 < once < 1e-4
    assert twice == pytest.approx(2 * once, rel=1e-3)


def test_cold_and_crowded_limits():
    n, kappa, strength = 40, 1.3, 0.7
    cold = CoulombLine(n, 1e7, kappa, strength)
    assert cold.ground_state == pytest.approx(coulomb_line_ground_state(n, kappa, strength)[:, 0])
    assert cold.energy == pytest.approx(coulomb_line_energy(n, kappa, strength) + 0.5e-7, rel=1e-9)
    assert cold.log_ordered == pytest.approx(0, abs=1e-12)
    many = CoulombLine(400, 300.0, kappa, strength)
    assert many.density(np.linspace(-0.25, 0.25, 7)) == pytest.approx(np.full(7, kappa / (2 * strength)), rel=0.02)  # uniform


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: CoulombLine(1, 1.0, 1.0, 1.0), "n must be an integer of at least 2"),
        (lambda: CoulombLine(3, 1.0, 1.0, -1.0), "strength must be .*-1.0"),
        (lambda: CoulombLine(3, 0.0, 1.0, 1.0), "beta must be"),
        (lambda: CoulombLine(3, 1.0, 1.0, 1.0).rank_density(4, [0.0]), "k must be at most n = 3, got 4"),
        (lambda: CoulombLine(3, 1.0, 1.0, 1.0).density([np.nan]), "x must be finite"),
        (lambda: CoulombLine(3, 1.0, 1.0, 0.0).sample("a"), "rng must be"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
