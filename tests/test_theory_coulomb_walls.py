"""The Coulomb gas between walls against quadrature, free particles, the cold limit and its own samples."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import cumulative_trapezoid
from scipy.stats import kstest

from theory.ensembles.coulomb_walls import CoulombWalls
from theory.ground_states import end_energy


def z_score(draws, predicted):
    return (draws.mean() - predicted) / (draws.std(ddof=1) / np.sqrt(len(draws)))


def mean_distance(x):
    i, j = np.triu_indices(x.shape[1], 1)
    return np.mean(abs(x[:, i] - x[:, j]), axis=1)


def ordered_rule(n, width):
    """Ordered points (m, n) of [0, width] and weights: Gauss's rule in broken sticks, for smooth integrands."""
    node, weight = np.polynomial.legendre.leggauss(30)
    x, w = np.full((1, 1), width), np.ones(1)
    for _ in range(n):
        step = x[:, -1:] * (node + 1) / 2
        w = (w[:, None] * x[:, -1:] * weight / 2).ravel()
        x = np.concatenate([np.repeat(x, 30, axis=0), step.reshape(-1, 1)], axis=1)
    return x[:, 1:], w


@pytest.mark.parametrize(("n", "beta", "strength"), [(2, 1.5, 0.9), (3, 2.0, 1.7), (4, 5.0, 0.6)])
def test_partition_function_and_energy_by_quadrature(n, beta, strength):
    half_width = 0.8
    x, weight = ordered_rule(n, 2 * half_width)
    energy = -strength / 2 * mean_distance(x)
    weight = weight * np.exp(-beta * n * energy)
    gas = CoulombWalls(n, beta, strength, half_width)
    assert gas.log_partition == pytest.approx(np.log(np.prod(np.arange(1, n + 1)) * weight.sum()), abs=1e-11)
    assert gas.energy == pytest.approx(weight @ energy / weight.sum(), rel=1e-10)
    assert gas.energy == pytest.approx(-strength / 2 * gas.mean_distance)
    assert CoulombWalls(n, 1.01 * beta, strength, half_width).energy != pytest.approx(weight @ energy / weight.sum(), rel=1e-5)


@pytest.mark.parametrize(("n", "beta", "strength"), [(2, 1.0, 3.0), (9, 4.0, 0.7), (60, 30.0, 0.9), (150, 2.0, 1.0)])
def test_energy_is_the_derivative_of_the_partition_function(n, beta, strength):
    step = 1e-4 * beta
    low, high = (CoulombWalls(n, beta + change, strength, 1.3).log_partition for change in (-step, step))
    assert n * CoulombWalls(n, beta, strength, 1.3).energy == pytest.approx((low - high) / (2 * step), rel=1e-6)


@pytest.mark.parametrize(("n", "beta", "strength"), [(2, 1.0, 3.0), (7, 4.0, 0.7), (8, 30.0, 0.9), (5, 1.0, 0.0)])
def test_density_cdf_and_samples(n, beta, strength):
    gas = CoulombWalls(n, beta, strength, 1.3)
    x = np.linspace(-1.3, 1.3, 301)
    rho = gas.density(x)
    mass = cumulative_trapezoid(rho, x, initial=0)
    assert gas.cdf(x) == pytest.approx(mass, abs=4e-3)
    middle = (x[1:] + x[:-1]) / 2
    assert gas.density(middle) == pytest.approx(np.diff(gas.cdf(x)) / np.diff(x), rel=5e-3)
    assert rho == pytest.approx(rho[::-1], rel=1e-9)
    assert gas.density([1.4]) == pytest.approx([0])
    assert gas.mean_gaps.sum() == pytest.approx(2.6, rel=1e-12)
    draws = gas.sample(4, 3000)[..., 0]
    assert (np.diff(draws, axis=1) > 0).all()
    assert (abs(draws) <= 1.3).all()
    gaps = np.diff(np.pad(draws, ((0, 0), (1, 1)), constant_values=((0, 0), (-1.3, 1.3))), axis=1)
    for j in range(n + 1):  # z at 4.5: false alarm 7e-6 each
        assert abs(z_score(gaps[:, j], gas.mean_gaps[j])) < 4.5
    pick = draws[np.arange(3000), np.random.default_rng(0).integers(n, size=3000)]  # one particle of each: independent
    fine = np.linspace(-1.3, 1.3, 801)
    cdf = gas.cdf(fine)
    assert kstest(pick, lambda r: np.interp(r, fine, cdf)).pvalue > 1e-4  # false alarm 1e-4
    wrong = CoulombWalls(n, 1.5 * beta, strength + 0.4, 1.3).cdf(fine)
    assert kstest(pick, lambda r: np.interp(r, fine, wrong)).pvalue < 1e-4
    assert abs(z_score(mean_distance(draws), gas.mean_distance)) < 4


def test_free_and_cold_limits():
    free = CoulombWalls(40, 3.0, 0.0, 1.3)
    assert free.log_partition == pytest.approx(40 * np.log(2.6), rel=1e-12)
    assert free.mean_distance == pytest.approx(2.6 / 3, rel=1e-12)
    for n in (6, 7):
        cold = CoulombWalls(n, 3e4, 0.8, 1.3)
        assert 0 < cold.energy - end_energy(n, 0.8, 1.3, -1.0) < 2 / 3e4
    many = CoulombWalls(100, 1e6, 0.8, 1.3)  # weights from wall to wall range over 1e4000
    assert many.log_partition == pytest.approx(-1e8 * end_energy(100, 0.8, 1.3, -1.0), rel=1e-4)
    assert many.mean_gaps[:50] == pytest.approx(1 / (many.rates[50] - many.rates[:50]), rel=1e-9)  # free exponentials at the walls
    assert many.mean_gaps[50] == pytest.approx(2.6 - 2 * many.mean_gaps[:50].sum(), rel=1e-12)
    assert many.sample(0, 4)[:, 49:51, 0] == pytest.approx(np.tile([-1.3, 1.3], (4, 1)), abs=2e-3)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: CoulombWalls(1, 1.0, 1.0, 1.0), "n must be an integer of at least 2"),
        (lambda: CoulombWalls(3, 1.0, 1.0, 0.0), "half_width must be"),
        (lambda: CoulombWalls(3, -1.0, 1.0, 1.0), "beta must be"),
        (lambda: CoulombWalls(3, 1.0, 1.0, 1.0).density([np.nan]), "x must be finite"),
        (lambda: CoulombWalls(3, 1.0, 1.0, 1.0).sample(0, 0), "size must be"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
