"""Two particles in a trap against Gamma laws, Ginibre's and other exact ensembles, quadrature in the plane, and samples."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import dblquad
from scipy.special import gammaln
from scipy.stats import gamma, kstest

from theory.ensembles.coulomb_line import CoulombLine
from theory.ensembles.ginibre import ginibre_energy, ginibre_log_partition
from theory.ensembles.hermite import log_gas_energy, log_gas_log_partition
from theory.ensembles.two_particles import TwoParticles
from theory.ensembles.virial import centre_variance, second_moment, square_sum_law

BETA, KAPPA, STRENGTH = 2.3, 0.8, 0.9


def z_score(draws, predicted):
    return (draws.mean() - predicted) / (draws.std(ddof=1) / np.sqrt(len(draws)))


def test_other_ensembles_of_two():
    line = TwoParticles(1, BETA, KAPPA, STRENGTH, 0.0)
    assert line.log_partition == pytest.approx(log_gas_log_partition(2, BETA, KAPPA, STRENGTH), rel=1e-12)
    assert line.energy == pytest.approx(log_gas_energy(2, BETA, KAPPA, STRENGTH), rel=1e-12)
    plane = TwoParticles(2, BETA, KAPPA, 2 / BETA, 0.0)
    assert plane.log_partition == pytest.approx(ginibre_log_partition(2, BETA, KAPPA), rel=1e-12)
    assert plane.energy == pytest.approx(ginibre_energy(2, BETA, KAPPA), rel=1e-12)
    coulomb = CoulombLine(2, BETA, KAPPA, STRENGTH)
    assert TwoParticles(1, BETA, KAPPA, STRENGTH, -1.0).log_partition == pytest.approx(coulomb.log_partition, rel=1e-12)
    assert TwoParticles(1, BETA, KAPPA, STRENGTH, -1.0).energy == pytest.approx(coulomb.energy, rel=1e-11)
    free = TwoParticles(3, BETA, KAPPA, 0.0, 1.0)
    assert free.log_partition == pytest.approx(3 * np.log(2 * np.pi / (BETA * KAPPA)), rel=1e-12)
    assert free.energy == pytest.approx(3 / (2 * BETA), rel=1e-12)


@pytest.mark.parametrize("dim", [1, 2, 3, 8])
@pytest.mark.parametrize("beta", [0.01, 2.3, 400.0, 1e6])
def test_log_pairs_are_gamma(dim, beta):
    pair = TwoParticles(dim, beta, KAPPA, STRENGTH, 0.0)
    law = gamma((dim + beta * STRENGTH) / 2, scale=4 / (beta * KAPPA))
    r = np.sqrt(law.ppf([0.001, 0.2, 0.5, 0.9, 0.999]))
    assert pair.distance_cdf(r) == pytest.approx([0.001, 0.2, 0.5, 0.9, 0.999], abs=1e-11)
    assert pair.distance_moment(2) == pytest.approx(law.mean(), rel=1e-12)
    assert pair.distance_density(r) == pytest.approx(2 * r * law.pdf(r**2), rel=1e-10 + 3e-15 * beta)  # rounding of beta N H_N
    assert 2 * pair.second_moment == pytest.approx(square_sum_law(2, dim, beta, KAPPA, STRENGTH).mean(), rel=1e-12)


@pytest.mark.parametrize(("dim", "s"), [(1, 0.5), (1, 3.0), (2, 1.0), (3, 1.0), (3, -0.7), (2, -1.8), (5, 3.0), (1, 2.0)])
@pytest.mark.parametrize("beta", [0.05, 2.0, 300.0])
def test_energy_is_the_derivative_and_the_virial_holds(dim, s, beta):
    pair = TwoParticles(dim, beta, KAPPA, STRENGTH, s)
    step = 1e-4 * beta
    low, high = (TwoParticles(dim, beta + change, KAPPA, STRENGTH, s).log_partition for change in (-step, step))
    assert 2 * pair.energy == pytest.approx((low - high) / (2 * step), rel=1e-6)
    if s < dim:
        moment = second_moment(dim, beta, KAPPA, STRENGTH, s, pair_moment=pair.distance_moment(-s))
        assert pair.second_moment == pytest.approx(moment, rel=1e-11)
        assert second_moment(dim, beta, KAPPA, 1.01 * STRENGTH, s, pair_moment=pair.distance_moment(-s)) != pytest.approx(moment, rel=1e-9)


@pytest.mark.parametrize("dim", [1, 2, 7])
@pytest.mark.parametrize("beta", [1e-6, 2.3, 1e4])
@pytest.mark.parametrize("strength", [0.0, 1e-9, STRENGTH])
def test_moments_of_the_log_pair_down_to_the_last_that_exists(dim, beta, strength):
    pair, half = TwoParticles(dim, beta, KAPPA, strength, 0.0), (dim + beta * strength) / 2
    for power in (-dim + 1e-4, -dim + 0.05, -0.5 * dim, 1.0, 30.0):
        log_moment = gammaln(half + power / 2) - gammaln(half) + power / 2 * np.log(4 / (beta * KAPPA))
        assert np.log(pair.distance_moment(power)) == pytest.approx(log_moment, abs=2e-11 + 1e-15 * beta)


@pytest.mark.parametrize("s", [0.3, 20.0, 100.0, 1000.0])
@pytest.mark.parametrize(("beta", "strength"), [(1e-6, 1.0), (1.0, 1e-6), (BETA, STRENGTH), (1e4, STRENGTH)])
def test_steep_repulsion_against_fine_quadrature(s, beta, strength):
    """From s = 100 on the particles are nearly hard, of diameter 1."""
    pair = TwoParticles(2, beta, KAPPA, strength, s)
    scale = np.sqrt(4 / (beta * KAPPA))
    low, high = min(-2.0 if s > 1 else -60.0, np.log(scale) - 60 / s), max(np.log(7 * scale), 1.0)
    y, step = np.linspace(low, high, 1_000_001, retstep=True)
    with np.errstate(over="ignore"):
        log_weight = 2 * y - beta * (KAPPA * np.exp(2 * y) / 4 + strength * np.exp(-s * y))
    weight = np.exp(log_weight - log_weight.max())  # equal steps of a function that dies at both ends: exact to rounding
    square = np.sum(weight * np.exp(2 * y)) / np.sum(weight)
    assert pair.distance_moment(2) == pytest.approx(square, rel=1e-11)
    assert pair.log_partition == pytest.approx(
        np.log(np.pi / (beta * KAPPA)) + np.log(2 * np.pi * np.sum(weight) * step) + log_weight.max(), abs=1e-10
    )


def test_quadrature_on_the_line():
    def weight(y, x):
        return np.exp(-BETA * (KAPPA * (x**2 + y**2) / 2 + STRENGTH / abs(x - y)))

    total = 2 * dblquad(weight, -6, 6, -6, lambda x: x - 1e-9, epsabs=1e-10)[0]
    assert TwoParticles(1, BETA, KAPPA, STRENGTH, 1.0).log_partition == pytest.approx(np.log(total), abs=1e-7)


@pytest.mark.parametrize(("dim", "s"), [(1, 1.5), (3, 1.0), (2, -1.0), (4, 0.0)])
def test_samples(dim, s):
    pair = TwoParticles(dim, BETA, KAPPA, STRENGTH, s)
    x = pair.sample(3, 1500)
    assert x.shape == (1500, 2, dim)
    distance = np.linalg.norm(x[:, 0] - x[:, 1], axis=1)
    # false alarm 1e-4 for each test; strength 40 % off is rejected
    assert kstest(distance, pair.distance_cdf).pvalue > 1e-4
    assert kstest(distance, TwoParticles(dim, BETA, KAPPA, 1.4 * STRENGTH, s).distance_cdf).pvalue < 1e-2
    assert kstest(1.15 * distance, pair.distance_cdf).pvalue < 1e-4
    assert kstest(x.mean(axis=1).ravel() / np.sqrt(centre_variance(2, BETA, KAPPA)), "norm").pvalue > 1e-4
    assert abs(z_score(np.mean(np.sum(x**2, axis=2), axis=1), pair.second_moment)) < 4
    cosine = (x[:, 0] - x[:, 1])[:, 0] / distance
    assert abs(z_score(cosine, 0)) < 4
    assert dim == 1 or abs(z_score(cosine**2, 1 / dim)) < 4


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: TwoParticles(0, 1.0, 1.0, 1.0, 0.0), "dim must be"),
        (lambda: TwoParticles(2, 1.0, 1.0, 1.0, -2.0), "s must be finite and above -2, got -2.0"),
        (lambda: TwoParticles(2, 1.0, 1.0, 1.0, -1.9999), "s must leave distances in floating point, got -1.9999"),
        (lambda: TwoParticles(2, 1.0, 0.0, 1.0, 0.0), "kappa must be"),
        (lambda: TwoParticles(2, 1.0, 1.0, 1.0, 0.0).distance_moment(-2), "power must be finite and above -dim = -2, got -2"),
        (lambda: TwoParticles(2, 1.0, 1.0, 1.0, 0.0).distance_density([np.nan]), "r must be finite"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
