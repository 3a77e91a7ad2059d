"""The log gas on the half line and the mirror gas against direct quadrature, the derivative of log Z and exact samples."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import cumulative_trapezoid
from scipy.stats import gamma, kstest

from theory.ensembles.laguerre import (
    beta_laguerre,
    half_line_gas_density,
    half_line_gas_energy,
    half_line_gas_log_partition,
    half_line_gas_moments,
    laguerre_log_partition,
    mirror_gas_energy,
    mirror_gas_log_partition,
    sample_half_line_gas,
    sample_mirror_gas,
)


def z_score(draws, predicted):
    return (draws.mean() - predicted) / (draws.std(ddof=1) / np.sqrt(len(draws)))


def half_line_rule(n):
    """Points (m, n), ascending, and weights of the double exponential rule in the n gaps from the wall."""
    nodes = [np.linspace(-3.8 if gap == 0 else -3.2, 4.2, 80) for gap in range(n)]  # nearer to the wall than to each other
    grids = np.meshgrid(*[np.exp(y - np.exp(-y)) for y in nodes], indexing="ij")
    steps = [(y[1] - y[0]) * np.exp(y - np.exp(-y)) * (1 + np.exp(-y)) for y in nodes]
    weights = np.prod(np.stack(np.meshgrid(*steps, indexing="ij")), axis=0)
    return np.cumsum(np.stack([g.ravel() for g in grids], axis=1), axis=1), weights.ravel()


def log_pairs(x):
    i, j = np.triu_indices(x.shape[1], 1)
    return np.sum(np.log(abs(x[:, i] - x[:, j])), axis=1)


@pytest.mark.parametrize(
    ("n", "beta", "slope", "strength", "charge"),
    [(2, 1.5, 0.8, 0.9, 0.0), (2, 2.0, 1.3, 0.4, 0.7), (3, 2.2, 1.1, 1.3, -0.2), (3, 3.0, 0.9, 0.6, 0.5)],
)
def test_partition_function_energy_and_moments_by_quadrature(n, beta, slope, strength, charge):
    x, weight = half_line_rule(n)
    external = np.sum(slope * x - charge * np.log(x), axis=1)
    energy = external - strength / (n - 1) * log_pairs(x)
    weight = weight * np.exp(-beta * energy)
    total = np.sum(weight)
    case = (n, beta, slope, strength, charge)
    assert half_line_gas_log_partition(*case) == pytest.approx(np.log(np.prod(np.arange(1, n + 1)) * total), abs=1e-7)
    assert n * half_line_gas_energy(*case) == pytest.approx(np.sum(weight * energy) / total, rel=1e-6)
    moments = [np.sum(weight * np.mean(x**k, axis=1)) / total for k in (1, 2, 3)]
    assert half_line_gas_moments(*case) == pytest.approx(moments, rel=1e-6)
    wrong = half_line_gas_moments(n, 1.02 * beta, slope, strength, charge)
    assert wrong != pytest.approx(moments, rel=1e-3)  # negative control


@pytest.mark.parametrize("charge", [0.0, 0.9, -0.1])
def test_energy_is_the_derivative_of_the_partition_function(charge):
    n, beta, step = 11, 4.0, 1e-4
    high, low = (half_line_gas_log_partition(n, beta + change, 1.3, 0.7, charge) for change in (step, -step))
    assert n * half_line_gas_energy(n, beta, 1.3, 0.7, charge) == pytest.approx((low - high) / (2 * step), rel=1e-7)
    mirror = (mirror_gas_log_partition(n, beta + step, 1.3, 0.7) - mirror_gas_log_partition(n, beta - step, 1.3, 0.7)) / (2 * step)
    assert n * mirror_gas_energy(n, beta, 1.3, 0.7) == pytest.approx(-mirror, rel=1e-7)


def test_mirror_gas_of_two_by_quadrature():
    beta, kappa, strength = 1.7, 0.8, 0.6
    x, weight = half_line_rule(2)
    energy = kappa / 2 * np.sum(x**2, axis=1) - strength * np.log(x[:, 1] ** 2 - x[:, 0] ** 2)
    weight = weight * np.exp(-beta * energy)
    assert mirror_gas_log_partition(2, beta, kappa, strength) == pytest.approx(np.log(8 * np.sum(weight)), abs=1e-7)  # 4 signs, 2 orders
    assert 2 * mirror_gas_energy(2, beta, kappa, strength) == pytest.approx(np.sum(weight * energy) / np.sum(weight), rel=1e-6)


@pytest.mark.parametrize(("n", "b", "a"), [(2, 1.3, -0.7), (7, 0.4, 0.5), (20, 4.0, 2.5), (5, 0.0, 0.3)])
def test_sampler_obeys_the_exact_energy_moments_and_size(n, b, a):
    beta, slope, size = 1.9, 1.4, 4000
    strength, charge = b * (n - 1) / beta, a / beta
    x = sample_half_line_gas(n, beta, slope, strength, rng=3, size=size, charge=charge)[..., 0]
    assert (x > 0).all()
    assert (np.diff(x, axis=1) > 0).all()
    energy = np.mean(slope * x - charge * np.log(x), axis=1) - strength / (n * (n - 1)) * log_pairs(x)
    # z at 4: false alarm 6e-5 each, 3e-4 a case
    assert abs(z_score(energy, half_line_gas_energy(n, beta, slope, strength, charge))) < 4
    for k, moment in enumerate(half_line_gas_moments(n, beta, slope, strength, charge), start=1):
        assert abs(z_score(np.mean(x**k, axis=1), moment)) < 4
    # beta slope sum x is a Gamma variable; a shape 15 % off is rejected. False alarm 1e-4
    law = gamma(n * (1 + a + b * (n - 1) / 2), scale=1 / (beta * slope))
    assert kstest(x.sum(1), law.cdf).pvalue > 1e-4
    wrong = gamma(1.15 * n * (1 + a + b * (n - 1) / 2), scale=1 / (beta * slope))
    assert kstest(x.sum(1), wrong.cdf).pvalue < 1e-4


@pytest.mark.parametrize(("n", "a"), [(2, 0.0), (6, -0.5), (25, 1.4)])
def test_density_at_index_two(n, a):
    beta, slope = 2.3, 0.7
    charge, strength = a / beta, 2 * (n - 1) / beta
    edge = 4 * n / (beta * slope) + 25
    u = np.linspace(0, 1, 8001)
    x = edge * u**4  # resolves the singularity at the wall
    rho = half_line_gas_density(x, n, beta, slope, charge) * 4 * edge * u**3  # per u
    cdf = cumulative_trapezoid(rho, u, initial=0)
    assert cdf[-1] == pytest.approx(1, abs=1e-6)
    moments = half_line_gas_moments(n, beta, slope, strength, charge)
    assert [np.trapezoid(rho * x**k, u) for k in (1, 2, 3)] == pytest.approx(moments, rel=1e-5)
    assert half_line_gas_density([-1.0, 0.0], n, beta, slope, charge) == pytest.approx([0, 0])
    draws = sample_half_line_gas(n, beta, slope, strength, rng=8, size=3000, charge=charge)[:, :, 0]
    pick = draws[np.arange(3000), np.random.default_rng(0).integers(n, size=3000)]  # one particle of each: independent
    assert kstest(pick, lambda r: np.interp(r, x, cdf)).pvalue > 1e-4  # false alarm 1e-4
    wrong = sample_half_line_gas(n, beta, slope, 0.5 * strength, rng=8, size=3000, charge=charge)[:, :, 0]  # index 1
    assert kstest(wrong[np.arange(3000), 0 * np.arange(3000) + n // 2], lambda r: np.interp(r, x, cdf)).pvalue < 1e-4


def test_density_of_many_particles_neither_over_nor_underflows():
    """n = 2000 reaches x where the weight alone is below 1e-3000: the Marchenko-Pastur density with a wall at 0 remains."""
    n = 2000
    x = np.array([0.3, 1.0, 2.0, 3.2]) * n
    limit = np.sqrt((4 - x / n) * (x / n)) / (2 * np.pi * x / n) / n
    assert half_line_gas_density(x, n, 1.0, 1.0) == pytest.approx(limit, rel=0.05)
    assert np.isfinite(half_line_gas_density(x, n, 1.0, 1.0, charge=10.0)).all()


def test_mirror_sampler():
    n, beta, kappa, strength = 6, 3.0, 1.2, 0.8
    x = sample_mirror_gas(n, beta, kappa, strength, rng=4, size=6000)[..., 0]
    i, j = np.triu_indices(n, 1)
    energy = kappa / 2 * np.mean(x**2, axis=1) - strength / (n * (n - 1)) * np.sum(np.log(abs(x[:, i] ** 2 - x[:, j] ** 2)), axis=1)
    assert abs(z_score(energy, mirror_gas_energy(n, beta, kappa, strength))) < 4  # false alarm 6e-5
    assert abs(z_score(energy, mirror_gas_energy(n, 1.1 * beta, kappa, strength))) > 4
    assert abs(z_score(np.mean(x**2, axis=1), 1 / (beta * kappa) + strength / kappa)) < 4  # virial: pairs and images
    assert abs(z_score(np.mean(np.sign(x), axis=1), 0)) < 4
    assert (np.diff(abs(x), axis=1) > 0).all()


def test_one_particle_and_seeds():
    draws = beta_laguerre(1, 2.0, 0.4, rng=5, size=4000)[:, 0]
    assert kstest(draws, gamma(1.4).cdf).pvalue > 1e-4  # false alarm 1e-4
    assert laguerre_log_partition(1, 7.0, 3.0) == pytest.approx(np.log(6))
    np.testing.assert_array_equal(beta_laguerre(4, 1.0, 0.0, 7, 3), beta_laguerre(4, 1.0, 0.0, np.random.default_rng(7), 3))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: beta_laguerre(3, 1.0, -1.0, 0), "a must be finite and above -1, got -1.0"),
        (lambda: laguerre_log_partition(0, 1.0, 0.0), "n must be"),
        (lambda: half_line_gas_energy(3, 1.0, -1.0, 1.0), "slope must be .*-1.0"),
        (lambda: half_line_gas_log_partition(1, 1.0, 1.0, 1.0), "n must be an integer of at least 2"),
        (lambda: half_line_gas_density([np.nan], 3, 1.0, 1.0), "x must be finite"),
        (lambda: mirror_gas_energy(3, 1.0, 0.0, 1.0), "kappa must be"),
        (lambda: sample_half_line_gas(3, 1.0, 1.0, 1.0, 0, charge=-2.0), "charge must be"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
