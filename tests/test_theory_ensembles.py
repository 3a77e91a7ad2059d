"""Exact finite-N laws against quadrature and the exact sampler."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import dblquad, quad

from theory.ensembles import (
    beta_hermite,
    euler_second_moment,
    fourth_moment,
    log_gas_energy,
    log_gas_index,
    log_gas_log_partition,
    mean_log_energy,
    mehta_log_partition,
    sample_log_gas,
    second_moment,
)
from theory.equilibrium import GaussWigner, Semicircle


def z_score(draws, predicted):
    return (draws.mean() - predicted) / (draws.std(ddof=1) / np.sqrt(len(draws)))


@pytest.mark.parametrize(
    ("n", "beta", "kappa", "strength"), [(2, 6.0, 1.3, 0.7), (16, 6.0, 1.3, 0.7), (45, 1.5, 0.6, 4.0), (7, 40.0, 2.0, 1.1)]
)
def test_sampler_obeys_the_second_and_fourth_moment_laws(n, beta, kappa, strength):
    x = sample_log_gas(n, beta, kappa, strength, rng=11, size=4000)
    assert x.shape == (4000, n, 1)
    square, fourth = (x[..., 0] ** 2).mean(1), (x[..., 0] ** 4).mean(1)
    # z-tests at 4: false alarm 6e-5 each, 5e-4 over this test
    assert abs(z_score(square, second_moment(1, beta, kappa, strength))) < 4
    assert abs(z_score(fourth, fourth_moment(n, beta, kappa, strength))) < 4
    if beta < 40:  # negative control; at beta 40 the thermal part is 4 % of the moment
        assert abs(z_score(square, second_moment(1, 1.2 * beta, kappa, strength))) > 4


@pytest.mark.parametrize(("n", "b"), [(2, 2.0), (8, 0.6), (20, 3.0)])
def test_mean_log_energy(n, b):
    e = beta_hermite(n, b, rng=2, size=2000)
    i, j = np.triu_indices(n, 1)
    energy = -np.log(np.abs(e[:, i] - e[:, j])).sum(1)
    # z at 4: false alarm 6e-5 each; index 20 % off is rejected
    assert abs(z_score(energy, mean_log_energy(n, b))) < 4
    assert abs(z_score(energy, mean_log_energy(n, 1.2 * b))) > 4
    step = 1e-5
    slope = (mehta_log_partition(n, b + step) - mehta_log_partition(n, b - step)) / (2 * step)
    assert mean_log_energy(n, b) == pytest.approx(-slope, rel=1e-7)


def test_quoted_values():
    assert np.exp(mehta_log_partition(2, 2.6)) == pytest.approx(20.0175806519, abs=5e-10)
    assert [mean_log_energy(*case) for case in ((2, 2.0), (8, 0.6), (20, 3.0))] == pytest.approx(
        [-0.7113921675, -14.2642251497, -303.6109254298], abs=5e-10
    )
    free = [-log_gas_log_partition(n, 6.0, 1.3, 0.7) / (6 * n) for n in (10, 100, 1000)]
    assert free == pytest.approx([0.3163865, 0.3500782, 0.3534531], abs=5e-8)
    assert fourth_moment(400, 6.0, 1.3, 0.7) == pytest.approx(0.366682, abs=5e-7)
    assert second_moment(1, 6.0, 1.3, 0.7) == pytest.approx(0.3974359, abs=5e-8)


def test_partition_function_of_two_particles_by_quadrature():
    beta, kappa, strength = 2.5, 0.8, 1.2

    def weight(y, x):
        return np.exp(-beta * kappa * (x**2 + y**2) / 2) * (x - y) ** (beta * strength)

    half = dblquad(weight, -7, 7, -7, lambda x: x, epsabs=1e-10)[0]
    assert log_gas_log_partition(2, beta, kappa, strength) == pytest.approx(np.log(2 * half), rel=1e-7)


def test_free_energy_and_energy_reach_the_mean_field():
    law = GaussWigner(0.9, 1.4, 3.0)
    gap = [-log_gas_log_partition(n, 3.0, 0.9, 1.4) / (3 * n) - law.free_energy for n in (200, 2000)]
    assert abs(gap[1]) < 1e-3
    assert gap[0] / gap[1] == pytest.approx(10, rel=0.2)
    assert log_gas_energy(3000, 3e4, 1.3, 0.7) == pytest.approx(Semicircle(1.3, 0.7).energy, abs=2e-3)


def test_log_gas_energy_is_the_derivative_of_the_partition_function():
    n, beta, kappa, strength, step = 9, 4.0, 1.3, 0.7, 1e-4
    slope = (log_gas_log_partition(n, beta + step, kappa, strength) - log_gas_log_partition(n, beta - step, kappa, strength)) / (2 * step)
    assert n * log_gas_energy(n, beta, kappa, strength) == pytest.approx(-slope, rel=1e-6)


@pytest.mark.parametrize(("dim", "s"), [(1, 0.5), (2, 1.0), (3, -0.7), (2, -1.5), (4, 0.0), (3, 1.0)])
def test_virial_law_of_two_particles_by_quadrature(dim, s):
    """For two particles the relative coordinate r has weight r^(dim-1) exp(-beta (kappa r^2/4 + strength g(r)))."""
    beta, kappa, strength = 2.0, 1.3, 0.7

    def expectation(power):
        def weight(r):
            g = -np.log(r) if s == 0 else np.sign(s) * r**-s
            return r ** (dim - 1) * np.exp(-beta * (kappa * r**2 / 4 + strength * g))

        options = {"limit": 400, "epsabs": 1e-13, "points": [0.05, 0.5, 2]}
        return quad(lambda r: r**power * weight(r), 0, 14, **options)[0] / quad(weight, 0, 14, **options)[0]

    exact = dim / (2 * beta * kappa) + expectation(2) / 4
    pair = None if s == 0 else expectation(-s)
    assert second_moment(dim, beta, kappa, strength, s, pair_moment=pair) == pytest.approx(exact, rel=1e-8)
    if (dim, s) == (1, 0.5):
        assert kappa * exact == pytest.approx(0.6938948700, abs=5e-9)


@pytest.mark.parametrize(("kappa", "step_size"), [(1.3, 0.05), (0.5, 0.8)])
def test_euler_second_moment_is_the_fixed_point_of_the_step(kappa, step_size):
    dim, beta = 3, 6.0
    moment = euler_second_moment(dim, beta, kappa, step_size)
    assert (1 - step_size * kappa) ** 2 * moment + 2 * step_size * dim / beta == pytest.approx(moment, rel=1e-13)


def test_sampler_edge_cases():
    assert beta_hermite(1, 2.0, rng=0, size=3).shape == (3, 1)
    free = beta_hermite(6, 0.0, rng=0, size=3000)
    assert (np.diff(free, axis=1) >= 0).all()
    assert abs(z_score((free**2).mean(1), 1.0)) < 4
    np.testing.assert_array_equal(beta_hermite(5, 1.0, rng=7, size=2), beta_hermite(5, 1.0, rng=np.random.default_rng(7), size=2))
    assert log_gas_index(6.0, 0.7, 11) == pytest.approx(0.42)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: beta_hermite(0, 1.0, 0), "n must be"),
        (lambda: beta_hermite(3, -1.0, 0), "b must be"),
        (lambda: beta_hermite(3, 1.0, 0, size=0), "size must be"),
        (lambda: beta_hermite(3, 1.0, "seed"), "rng must be an integer.*'seed'"),
        (lambda: beta_hermite(3, 1.0, None), "rng must be an integer.*None"),
        (lambda: second_moment(2, 1.0, 1.0, 1.0, "log"), "s must be a real number, got 'log'"),
        (lambda: log_gas_index(1.0, 1.0, 1), "n must be an integer of at least 2"),
        (lambda: second_moment(2, 1.0, 1.0, 1.0, 0.5), "pair_moment is needed for s = 0.5"),
        (lambda: second_moment(2, 1.0, 1.0, 1.0, -2.0), "s must be above -2"),
        (lambda: second_moment(2, float("inf"), 1.0, 1.0), "beta must be"),
        (lambda: euler_second_moment(1, 1.0, 4.0, 0.5), "step_size \\* kappa must be below 2"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
