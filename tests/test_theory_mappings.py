"""Maps between the package's particles and the ensembles of random matrix theory: weights agree, and both ways compose to the identity."""

from __future__ import annotations

import numpy as np
import pytest

from theory.ensembles.mappings import (
    from_circular,
    from_ginibre,
    from_hermite,
    from_jacobi,
    from_laguerre,
    log_gas_index,
    log_gas_strength,
    to_circular,
    to_ginibre,
    to_hermite,
    to_jacobi,
    to_laguerre,
)

N, BETA, STRENGTH = 6, 2.7, 0.9


def gibbs(x, external):
    """-beta N H_N of the package: x (n,) on the line or complex in the plane."""
    i, j = np.triu_indices(len(x), 1)
    return -BETA * (np.sum(external) - STRENGTH / (len(x) - 1) * np.sum(np.log(abs(x[i] - x[j]))))


def vandermonde(e):
    i, j = np.triu_indices(len(e), 1)
    return np.sum(np.log(abs(e[i] - e[j])))


def constant(difference):
    return np.ptp(difference) == pytest.approx(0, abs=1e-10)


@pytest.mark.parametrize("seed", [0, 1])
def test_gibbs_weights_are_those_of_the_ensembles_up_to_a_constant(seed):
    rng = np.random.default_rng(seed)
    draws = rng.random((5, N)) + 0.01
    b, scale = to_hermite(N, BETA, 1.3, STRENGTH)
    assert constant([gibbs(x, 1.3 * x**2 / 2) - b * vandermonde(x / scale) + np.sum((x / scale) ** 2) / 2 for x in draws])
    assert not constant([gibbs(x, 1.3 * x**2 / 2) - 1.1 * b * vandermonde(x / scale) + np.sum((x / scale) ** 2) / 2 for x in draws])
    b, a, scale = to_laguerre(N, BETA, 0.8, STRENGTH, 0.4)
    weight = [gibbs(x, 0.8 * x - 0.4 * np.log(x)) - b * vandermonde(x / scale) + np.sum(x / scale - a * np.log(x / scale)) for x in draws]
    assert constant(weight)
    b, left, right, scale = to_jacobi(N, BETA, STRENGTH, 1.5, (0.3, 0.7))
    difference = []
    for x in draws:
        e = (x + 1.5) / scale
        external = -0.3 * np.log(1.5 + x) - 0.7 * np.log(1.5 - x)
        difference.append(gibbs(x, external) - b * vandermonde(e) - np.sum(left * np.log(e) + right * np.log(1 - e)))
    assert constant(difference)
    b, scale = to_circular(N, BETA, STRENGTH, 3.1)
    chords = [3.1 / np.pi * np.sin(np.pi * abs(x[:, None] - x) / 3.1) for x in draws]
    upper = np.triu_indices(N, 1)
    pairs = [BETA * STRENGTH / (N - 1) * np.sum(np.log(c[upper])) for c in chords]
    assert constant([p - b * vandermonde(np.exp(1j * x / scale)) for p, x in zip(pairs, draws)])


def test_planar_weight():
    rng = np.random.default_rng(2)
    beta = 2 * (N - 1) / STRENGTH
    scale = to_ginibre(N, beta, 1.3, STRENGTH)
    difference = []
    for z in rng.standard_normal((5, N, 2)) @ np.array([1, 1j]):
        gibbs_weight = -beta * np.sum(1.3 * abs(z) ** 2 / 2) + beta * STRENGTH / (N - 1) * vandermonde(z)
        difference.append(gibbs_weight - 2 * vandermonde(z / scale) + np.sum(abs(z / scale) ** 2))
    assert constant(difference)


@pytest.mark.parametrize("n", [2, 9])
def test_round_trips(n):
    assert log_gas_index(BETA, log_gas_strength(1.7, BETA, n), n) == pytest.approx(1.7)
    assert from_hermite(n, BETA, *to_hermite(n, BETA, 1.3, 0.7)) == pytest.approx((1.3, 0.7))
    assert from_laguerre(n, BETA, *to_laguerre(n, BETA, 1.3, 0.7, 0.2)) == pytest.approx((1.3, 0.7, 0.2))
    strength, half_width, charges = from_jacobi(n, BETA, *to_jacobi(n, BETA, 0.7, 1.6, (0.2, -0.1)))
    assert (strength, half_width, *charges) == pytest.approx((0.7, 1.6, 0.2, -0.1))
    assert from_circular(n, BETA, *to_circular(n, BETA, 0.7, 1.6)) == pytest.approx((0.7, 1.6))
    kappa, strength = from_ginibre(n, BETA, 0.45)
    assert to_ginibre(n, BETA, kappa, strength) == pytest.approx(0.45)


def test_round_trips_from_the_ensembles():
    assert to_hermite(5, BETA, *from_hermite(5, BETA, 1.1, 0.4)) == pytest.approx((1.1, 0.4))
    assert to_laguerre(5, BETA, *from_laguerre(5, BETA, 1.1, 0.6, 0.4)) == pytest.approx((1.1, 0.6, 0.4))
    assert to_jacobi(5, BETA, *from_jacobi(5, BETA, 1.1, -0.5, 0.6, 0.4)) == pytest.approx((1.1, -0.5, 0.6, 0.4))
    assert to_circular(5, BETA, *from_circular(5, BETA, 1.1, 0.4)) == pytest.approx((1.1, 0.4))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: log_gas_strength(-1.0, 1.0, 3), "b must be"),
        (lambda: to_laguerre(3, 2.0, 1.0, 1.0, -0.5), "charge must be finite and above -1/beta = -0.5, got -0.5"),
        (lambda: from_laguerre(3, 2.0, 1.0, -1.0, 1.0), "a / beta must be .* above"),
        (lambda: to_jacobi(3, 2.0, 1.0, 1.0, 0.5), "charges must be two numbers"),
        (lambda: to_jacobi(3, 2.0, 1.0, 1.0, (0.0, float("inf"))), "charges must be finite"),
        (lambda: from_jacobi(3, 2.0, 1.0, 0.0, -3.0, 1.0), "right / beta must be"),
        (lambda: to_circular(3, 2.0, 1.0, -1.0), "period must be"),
        (lambda: to_ginibre(3, 2.0, 1.0, 1.0), r"strength must be 2 \(n-1\)/beta = 2.0, index 2, got 1.0, index 1"),
        (lambda: from_hermite(3, 0.0, 1.0, 1.0), "beta must be"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
