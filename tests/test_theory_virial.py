"""Exact laws of the size and the centre of a trapped gas, against exact samples and quadrature."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kstest, norm

from theory.ensembles.coulomb_line import CoulombLine
from theory.ensembles.ginibre import sample_ginibre
from theory.ensembles.hermite import sample_log_gas
from theory.ensembles.virial import centre_variance, second_moment, square_sum_law


@pytest.mark.parametrize(("n", "b"), [(2, 0.8), (9, 3.0), (40, 0.2)])
def test_square_sum_on_the_line(n, b):
    beta, kappa = 2.2, 0.7
    strength = b * (n - 1) / beta
    total = np.sum(sample_log_gas(n, beta, kappa, strength, rng=6, size=4000) ** 2, axis=(1, 2))
    law = square_sum_law(n, 1, beta, kappa, strength)
    assert law.mean() == pytest.approx(n * second_moment(1, beta, kappa, strength))
    assert kstest(total, law.cdf).pvalue > 1e-4  # false alarm 1e-4; strength 20 % off is rejected
    assert kstest(total, square_sum_law(n, 1, beta, kappa, 1.2 * strength).cdf).pvalue < 1e-4


def test_square_sum_and_centre_in_the_plane():
    n, beta, kappa = 6, 1.4, 2.1
    x = sample_ginibre(n, beta, kappa, rng=6, size=5000)
    strength = 2 * (n - 1) / beta
    total = np.sum(x**2, axis=(1, 2))
    assert kstest(total, square_sum_law(n, 2, beta, kappa, strength).cdf).pvalue > 1e-4  # false alarm 1e-4 each
    assert kstest(total, square_sum_law(n, 1, beta, kappa, strength).cdf).pvalue < 1e-4  # wrong dimension
    centre = x.mean(axis=1) / np.sqrt(centre_variance(n, beta, kappa))
    assert kstest(centre.ravel(), norm.cdf).pvalue > 1e-4
    assert kstest(1.1 * centre.ravel(), norm.cdf).pvalue < 1e-4


def test_centre_of_the_coulomb_line():
    gas = CoulombLine(7, 1.4, 2.1, 0.9)
    centre = gas.sample(3, 5000).mean(axis=(1, 2)) / np.sqrt(centre_variance(7, 1.4, 2.1))
    assert kstest(centre, norm.cdf).pvalue > 1e-4  # false alarm 1e-4
    assert kstest(1.2 * centre, norm.cdf).pvalue < 1e-4


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: square_sum_law(1, 2, 1.0, 1.0, 1.0), "n must be an integer of at least 2"),
        (lambda: square_sum_law(3, 0, 1.0, 1.0, 1.0), "dim must be"),
        (lambda: centre_variance(3, 1.0, 0.0), "kappa must be"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
