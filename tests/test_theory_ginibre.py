"""The planar gas at index 2, in a trap and in a hard disc, against quadrature, other exact laws and exact samples."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import dblquad, quad
from scipy.special import digamma
from scipy.stats import kstest

from theory.ensembles.ginibre import (
    disc_gas_density,
    disc_gas_energy,
    disc_gas_log_partition,
    disc_gas_radial_cdf,
    disc_gas_radii,
    ginibre_density,
    ginibre_energy,
    ginibre_log_partition,
    ginibre_radial_cdf,
    ginibre_radii,
    sample_disc_gas,
    sample_ginibre,
)


def z_score(draws, predicted):
    return (draws.mean() - predicted) / (draws.std(ddof=1) / np.sqrt(len(draws)))


def mean_log_pairs(x):
    i, j = np.triu_indices(x.shape[1], 1)
    return -np.sum(np.log(np.linalg.norm(x[:, i] - x[:, j], axis=-1)), axis=1)


def radii(x):
    return np.linalg.norm(x, axis=-1)


@pytest.mark.parametrize("n", [2, 3, 8, 16])
def test_trap_energy_of_exact_samples(n):
    beta, kappa = 1.7, 0.8
    strength = 2 * (n - 1) / beta
    x = sample_ginibre(n, beta, kappa, rng=1, size=3000)
    energy = kappa / 2 * np.mean(radii(x) ** 2, axis=1) + strength / (n * (n - 1)) * mean_log_pairs(x)
    assert abs(z_score(energy, ginibre_energy(n, beta, kappa))) < 4  # false alarm 6e-5
    assert abs(z_score(energy, ginibre_energy(n, beta, 1.5 * kappa))) > 4


def test_trap_energy_of_two_in_closed_form():
    """|x_1 - x_2|^2 beta kappa/4 is Gamma(2)."""
    beta, kappa = 1.7, 0.8
    pairs = -0.5 * (digamma(2) - np.log(beta * kappa / 4))
    assert ginibre_energy(2, beta, kappa) == pytest.approx(3 / (2 * beta) + 2 / beta * pairs / 2, rel=1e-13)


def test_trap_energy_of_many_reaches_the_mean_field_and_the_jellium():
    """Strength 1: n E H = 3n/8 - (log n)/4 + 1/8 - gamma/4 + O(n^-1/2), the last two from the plasma's energy -gamma/4 at index 2
    (Jancovici 1981) and 1/2 - 1/8 - 1/4 of pairs, radius and edge at order 1/n; the rest is surface energy."""
    gap = []
    for n in (200, 800):
        gap.append(n * (ginibre_energy(n, 2.0 * (n - 1), 1.0) - 3 / 8) + np.log(n) / 4 - 1 / 8 + np.euler_gamma / 4)
    assert abs(gap[1]) < 0.012
    assert gap[0] / gap[1] == pytest.approx(2, rel=0.15)


@pytest.mark.parametrize("n", [2, 3, 8, 15])
def test_disc_energy_of_exact_samples(n):
    beta, radius = 1.7, 1.3
    x = sample_disc_gas(n, radius, rng=1, size=3000)
    assert (radii(x) <= radius).all()
    energy = 2 / (beta * n) * mean_log_pairs(x)
    assert abs(z_score(energy, disc_gas_energy(n, beta, radius))) < 4  # false alarm 6e-5
    assert abs(z_score(energy, disc_gas_energy(n, beta, 1.1 * radius))) > 4


def test_disc_partition_function_and_energy_of_two_by_quadrature():
    """Distances r in the unit disc have density (4r/pi)(arccos(r/2) - r/2 sqrt(1 - r^2/4))."""

    def distance(r, power):
        return (4 * r / np.pi) * (np.arccos(r / 2) - r / 2 * np.sqrt(1 - r**2 / 4)) * r**2 * (-np.log(r)) ** power

    norm, mean = (quad(distance, 0, 2, args=(power,))[0] for power in (0, 1))
    assert disc_gas_log_partition(2, 1.0) == pytest.approx(np.log(np.pi**2 * norm), rel=1e-9)
    assert disc_gas_energy(2, 1.9, 1.0) == pytest.approx(2 / 1.9 * mean / norm / 2, rel=1e-8)
    assert disc_gas_log_partition(2, 1.7) == pytest.approx(disc_gas_log_partition(2, 1.0) + 6 * np.log(1.7))


def test_trap_partition_function_of_two_by_quadrature():
    """int |z - w|^2 exp(-beta kappa (|z|^2 + |w|^2)/2): only |z|^2 + |w|^2 is left of the square after the angles."""
    beta, kappa = 1.7, 0.8

    def integrand(r, t):
        return 4 * np.pi**2 * r * t * (r**2 + t**2) * np.exp(-beta * kappa * (r**2 + t**2) / 2)

    total = dblquad(integrand, 0, 9, 0, 9, epsabs=1e-10)[0]
    assert ginibre_log_partition(2, beta, kappa) == pytest.approx(np.log(total), rel=1e-9)
    assert ginibre_log_partition(1, beta, kappa) == pytest.approx(np.log(2 * np.pi / (beta * kappa)))


LAWS = {
    "trap": (ginibre_density, ginibre_radial_cdf, ginibre_radii, sample_ginibre, (1.7, 0.8), (2.1, 0.8)),
    "disc": (disc_gas_density, disc_gas_radial_cdf, disc_gas_radii, sample_disc_gas, (1.3,), (1.5,)),
}


@pytest.mark.parametrize("gas", LAWS)
@pytest.mark.parametrize("n", [1, 2, 7, 15])
def test_density_radii_and_points_are_one_law(gas, n):
    density, cdf, draw_radii, draw_points, case, wrong = LAWS[gas]
    r = np.linspace(0, 1.3 if gas == "disc" else 2.5 * np.sqrt(n + 9), 6001)[:-1]
    ring = 2 * np.pi * r * density(np.stack([0.6 * r, -0.8 * r], axis=-1), n, *case)
    inside = np.append(0, np.cumsum((ring[1:] + ring[:-1]) / 2 * r[1]))
    assert cdf(r, n, *case) == pytest.approx(inside, abs=1e-5)
    rows, pick = np.arange(2000), np.random.default_rng(0).integers(n, size=2000)  # one particle of each sample: independent
    drawn = draw_radii(n, *case, 4, size=2000), radii(draw_points(n, *case, 5, size=2000))
    for distance in drawn:
        # false alarm 1e-4 each, 3e-4 a case
        assert kstest(distance[rows, pick], lambda r: cdf(r, n, *case)).pvalue > 1e-4
        assert kstest(distance[rows, pick], lambda r: cdf(r, n, *wrong)).pvalue < 1e-4
    assert kstest(drawn[0].max(axis=1), drawn[1].max(axis=1)).pvalue > 1e-4  # not only the mean law: the largest distance


@pytest.mark.parametrize("gas", LAWS)
def test_angles_are_uniform(gas):
    x = LAWS[gas][3](4, *LAWS[gas][4], 3, size=2000)
    assert kstest(np.arctan2(x[:, 1, 1], x[:, 1, 0]) / (2 * np.pi) + 0.5, "uniform").pvalue > 1e-4  # false alarm 1e-4


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ginibre_density([1.0, 2.0, 3.0], 3, 1.0, 1.0), r"x must have shape \(..., 2\), got \(3,\)"),
        (lambda: ginibre_energy(1, 1.0, 1.0), "n must be an integer of at least 2"),
        (lambda: ginibre_log_partition(3, 1.0, -1.0), "kappa must be"),
        (lambda: disc_gas_radii(3, 0.0, 0), "radius must be"),
        (lambda: disc_gas_energy(3, 0.0, 1.0), "beta must be"),
        (lambda: sample_disc_gas(3, 1.0, 0, size=0), "size must be"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
