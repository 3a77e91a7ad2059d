"""The log gas between charged walls against direct quadrature, the derivative of log Z and exact samples.

Without charges see also `test_theory_ensembles.py`.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import cumulative_trapezoid
from scipy.stats import kstest

from theory.ensembles.jacobi import sample_wall_gas, wall_gas_density, wall_gas_energy, wall_gas_log_partition, wall_gas_moments


def z_score(draws, predicted):
    return (draws.mean() - predicted) / (draws.std(ddof=1) / np.sqrt(len(draws)))


def log_pairs(x):
    i, j = np.triu_indices(x.shape[1], 1)
    return np.sum(np.log(abs(x[:, i] - x[:, j])), axis=1)


def wall_rule(n, half_width, points=64):
    """Distances (m, n) from either wall and between neighbours (m, n-1) of ordered points, and weights: tanh-sinh in broken sticks."""
    y = np.linspace(-3.1, 3.1, points)
    part = 1 / (1 + np.exp(-np.pi * np.sinh(y)))
    weight = (y[1] - y[0]) * np.pi * np.cosh(y) * part * (1 - part)
    parts = np.stack([g.ravel() for g in np.meshgrid(*[part] * n, indexing="ij")], axis=1)
    rests = np.stack([g.ravel() for g in np.meshgrid(*[1 / (1 + np.exp(np.pi * np.sinh(y)))] * n, indexing="ij")], axis=1)
    weights = np.prod(np.stack([g.ravel() for g in np.meshgrid(*[weight] * n, indexing="ij")], axis=1), axis=1)
    left = 2 * half_width * np.cumprod(np.c_[np.ones(len(parts)), rests], axis=1)  # what is left of the stick before each break
    gaps = left[:, :-1] * parts
    return gaps, left[:, 1:], weights * np.prod(left[:, :-1], axis=1)


@pytest.mark.parametrize(
    ("n", "beta", "strength", "charges"),
    [(2, 1.5, 0.9, (0.4, -0.2)), (2, 2.0, 0.5, (0.0, 0.7)), (3, 2.2, 1.3, (-0.1, 0.3)), (3, 3.0, 0.6, (0.8, 0.5))],
)
def test_partition_function_energy_and_moments_by_quadrature(n, beta, strength, charges):
    half_width = 1.4
    gaps, rest, weight = wall_rule(n, half_width)
    x = np.cumsum(gaps, axis=1)
    pairs = sum(np.log(np.sum(gaps[:, k + 1 : m + 1], axis=1)) for k in range(n) for m in range(k + 1, n))
    energy = -charges[0] * np.sum(np.log(x), axis=1) - charges[1] * np.sum(np.log(rest), axis=1) - strength / (n - 1) * pairs
    weight = weight * np.exp(-beta * energy)
    total = np.sum(weight)
    case = (n, beta, strength, half_width, charges)
    assert wall_gas_log_partition(*case) == pytest.approx(np.log(np.prod(np.arange(1, n + 1)) * total), abs=1e-7)
    assert n * wall_gas_energy(*case) == pytest.approx(np.sum(weight * energy) / total, rel=1e-5)
    moments = [np.sum(weight * np.mean((x - half_width) ** k, axis=1)) / total for k in (1, 2)]
    assert wall_gas_moments(*case) == pytest.approx(moments, abs=1e-7)
    assert wall_gas_moments(n, 1.1 * beta, strength, half_width, charges) != pytest.approx(moments, abs=1e-3)  # negative control


@pytest.mark.parametrize("charges", [(0.0, 0.0), (0.9, 0.2), (-0.1, 1.5)])
def test_energy_is_the_derivative_of_the_partition_function(charges):
    n, beta, step = 11, 4.0, 1e-4
    high, low = (wall_gas_log_partition(n, beta + change, 0.7, 1.3, charges) for change in (step, -step))
    assert n * wall_gas_energy(n, beta, 0.7, 1.3, charges) == pytest.approx((low - high) / (2 * step), rel=1e-7)


@pytest.mark.parametrize(("n", "b", "left", "right"), [(2, 1.3, -0.6, 0.8), (7, 0.4, 0.5, 0.0), (20, 4.0, 0.0, 2.5), (5, 0.0, 0.3, 1.2)])
def test_sampler_obeys_the_exact_energy_and_moments(n, b, left, right):
    beta, half_width, size = 1.9, 0.8, 4000
    strength, charges = b * (n - 1) / beta, (left / beta, right / beta)
    x = sample_wall_gas(n, beta, strength, half_width, rng=3, size=size, charges=charges)[..., 0]
    assert (abs(x) < half_width).all()
    assert (np.diff(x, axis=1) > 0).all()
    walls = charges[0] * np.mean(np.log(half_width + x), axis=1) + charges[1] * np.mean(np.log(half_width - x), axis=1)
    energy = -walls - strength / (n * (n - 1)) * log_pairs(x)
    # z at 4: false alarm 6e-5 each, 2e-4 a case
    assert abs(z_score(energy, wall_gas_energy(n, beta, strength, half_width, charges))) < 4
    first, second = wall_gas_moments(n, beta, strength, half_width, charges)
    assert abs(z_score(np.mean(x, axis=1), first)) < 4
    assert abs(z_score(np.mean(x**2, axis=1), second)) < 4
    swapped = wall_gas_moments(n, beta, strength, half_width, charges[::-1])
    assert abs(z_score(np.mean(x, axis=1), swapped[0])) > 4  # negative control: the charges on the wrong sides


@pytest.mark.parametrize(("n", "left", "right"), [(2, 0.0, 0.0), (6, 1.5, 0.4), (7, -0.5, 0.5), (50, 2.0, 0.0)])
def test_density_at_index_two(n, left, right):
    beta, half_width = 2.3, 1.7
    charges, strength = (left / beta, right / beta), 2 * (n - 1) / beta
    angle = np.linspace(0, np.pi, 8001)
    x = -half_width * np.cos(angle)
    rho = wall_gas_density(x, n, beta, half_width, charges) * half_width * np.sin(angle)  # per angle: smooth at the walls
    mass = cumulative_trapezoid(rho, angle, initial=0)
    assert mass[-1] == pytest.approx(1, abs=1e-3 if left < 0 else 1e-5)
    if left >= 0:
        moments = wall_gas_moments(n, beta, strength, half_width, charges)
        assert [np.trapezoid(rho * x**k, angle) for k in (1, 2)] == pytest.approx(moments, abs=1e-5)
    draws = sample_wall_gas(n, beta, strength, half_width, rng=8, size=3000, charges=charges)[:, :, 0]
    pick = draws[np.arange(3000), np.random.default_rng(0).integers(n, size=3000)]  # one particle of each: independent
    assert kstest(pick, lambda r: np.interp(r, x, mass)).pvalue > 1e-4  # false alarm 1e-4
    assert kstest(0.9 * pick, lambda r: np.interp(r, x, mass)).pvalue < 1e-4
    assert wall_gas_density([-1.8, 1.7, 2.0], n, beta, half_width, charges) == pytest.approx([0, 0, 0])


def test_density_without_charges_is_the_legendre_sum():
    x = np.linspace(-0.99, 0.99, 41)
    rho = sum((k + 0.5) * np.polynomial.legendre.Legendre.basis(k)(x) ** 2 for k in range(7)) / 7
    assert wall_gas_density(2 * x, 7, 1.3, 2.0) == pytest.approx(rho / 2, rel=1e-12)
    many = wall_gas_density(x, 4000, 1.3, 1.0)
    assert many * np.pi * np.sqrt(1 - x**2) == pytest.approx(np.ones(41), abs=2e-3)  # the arcsine law


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: wall_gas_energy(3, 2.0, 1.0, 1.0, (-0.5, 0.0)), "charges must be .*-0.5"),
        (lambda: wall_gas_moments(3, 2.0, 1.0, 0.0), "half_width must be"),
        (lambda: wall_gas_density("x", 3, 2.0, 1.0), "x must hold real numbers"),
        (lambda: sample_wall_gas(3, 2.0, 1.0, 1.0, 0, charges=(1.0, 2.0, 3.0)), "charges must be two numbers"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
