"""Frequencies in a ball and kernels of compact support: by Hankel transforms, classical special cases, and samples."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import j0, j1
from scipy.stats import kstest

from theory.equilibrium import RieszBall
from theory.spectral.compact_spectra import Bessel, Wendland
from theory.spectral.hankel import density_from_kernel, kernel_from_density


def along(function, dim):
    return lambda r: function(np.concatenate([np.asarray(r)[..., None], np.zeros((*np.shape(r), dim - 1))], -1))


@pytest.mark.parametrize("dim", [1, 2, 3, 5])
@pytest.mark.parametrize("exponent", [0.0, 0.5, 2.0, 3.3])
def test_bessel_kernel_is_the_transform_of_its_density(dim, exponent):
    pair, r = Bessel(0.7, exponent), np.array([0.0, 0.4, 1.9, 6.0])
    exact = kernel_from_density(along(pair.density, dim), r, dim, support=1 / 0.7)
    np.testing.assert_allclose(along(pair.kernel, dim)(r), exact, atol=1e-10)


def test_bessel_special_cases():
    z = np.array([0.3, 1.7, 8.0])
    np.testing.assert_allclose(Bessel(2.0).kernel(2 * z[:, None]), np.sin(z) / z, rtol=1e-13)
    np.testing.assert_allclose(along(Bessel(2.0).kernel, 2)(2 * z), 2 * j1(z) / z, rtol=1e-12)
    np.testing.assert_allclose(along(Bessel(2.0).kernel, 3)(2 * z), 3 * (np.sin(z) - z * np.cos(z)) / z**3, rtol=1e-11)
    np.testing.assert_allclose(Bessel(2.0, 0.5).kernel(2 * z[:, None]), 2 * j1(z) / z, rtol=1e-12)  # semicircle of radius 1/2
    np.testing.assert_allclose(Bessel(1.0, -0.5).kernel(z[:, None]), j0(z), rtol=1e-12)  # arcsine law
    np.testing.assert_allclose(along(Bessel(1.0, -1 + 1e-9).kernel, 3)(z), np.sin(z) / z, atol=1e-8)
    np.testing.assert_allclose(along(Bessel(1.0, -1).kernel, 3)(z), np.sin(z) / z, rtol=1e-12)  # the sphere
    np.testing.assert_allclose(Bessel(1.0, -1).kernel(z[:, None]), np.cos(z), rtol=1e-12)  # two points


@pytest.mark.parametrize(("dim", "exponent"), [(1, -0.4), (2, 0.0), (3, 0.75), (6, 2.0)])
def test_bessel_laws_and_samples(dim, exponent):
    pair = Bessel(0.8, exponent)
    area = {1: 2, 2: 2 * np.pi, 3: 4 * np.pi, 6: np.pi**3}[dim]
    inside = quad(lambda r: area * r ** (dim - 1) * float(along(pair.density, dim)(r)), 0, 0.9)[0]
    assert pair.squared_norm(dim).cdf(0.81) == pytest.approx(inside, rel=1e-8)
    assert pair.moment(2, dim) == pytest.approx(pair.squared_norm(dim).mean(), rel=1e-12)
    assert pair.moment(2, dim) == pytest.approx(dim * pair.marginal(dim).var(), rel=1e-12)
    w = pair.sample(20_000, dim, 4)
    # two Kolmogorov-Smirnov tests at 1e-5
    assert kstest(np.sum(w**2, 1), pair.squared_norm(dim).cdf).pvalue > 1e-5
    assert kstest(w[:, -1], pair.marginal(dim).cdf).pvalue > 1e-5
    assert kstest(w[:, -1], Bessel(0.8, exponent + 1).marginal(dim).cdf).pvalue < 1e-5


def test_sphere():
    pair, dim = Bessel(0.8, -1), 4
    w = pair.sample(20_000, dim, 6, orthogonal=True)
    np.testing.assert_allclose(np.linalg.norm(w, axis=1), 1 / 0.8, rtol=1e-12)
    assert pair.moment(3, dim) == pytest.approx(0.8**-3)
    assert kstest(w[:, 0], pair.marginal(dim).cdf).pvalue > 1e-5
    assert kstest(w[:, 0], pair.marginal(dim + 1).cdf).pvalue < 1e-5


@pytest.mark.parametrize(("dim", "s"), [(1, 0.0), (1, -0.5), (2, 0.0), (3, 1.0), (3, 2.0), (4, 0.5)])
def test_kernel_learned_by_a_riesz_gas_in_a_trap(dim, s):
    """The equilibrium of strong repulsion in a quadratic trap is this pair; its own sampler and density are another code."""
    law = RieszBall(1.3, 0.7, dim, s)
    pair = Bessel(1 / law.radius, 1 - (dim - s) / 2)
    x = np.random.default_rng(0).standard_normal((20, dim)) * law.radius / dim
    x = x[np.linalg.norm(x, axis=1) < 0.99 * law.radius]
    np.testing.assert_allclose(pair.density(x), law.density(x), rtol=1e-11)
    assert pair.moment(2, dim) == pytest.approx(law.second_moment, rel=1e-12)
    w, delta = law.sample(40_000, np.random.default_rng(1)), np.full(dim, 2.0 / dim)
    values = np.cos(w @ delta)
    # z at 4.5 errors: false alarm 7e-6; 5 % off in the distance is rejected
    error = 4.5 * values.std() / np.sqrt(len(w))
    assert abs(values.mean() - pair.kernel(delta)) < error < abs(values.mean() - pair.kernel(1.05 * delta))


@pytest.mark.parametrize(("mu", "smoothness", "dims"), [(2.5, 0, (1, 2, 3)), (4.0, 1, (1, 3, 4)), (5.3, 2, (1, 2, 5)), (1.0, 0, (1,))])
def test_wendland_density_is_the_transform_of_its_kernel(mu, smoothness, dims):
    pair, w = Wendland(1.3, mu, smoothness), np.array([0.0, 0.4, 2.0, 9.0, 25.0])
    for dim in dims:
        exact = density_from_kernel(along(pair.kernel, dim), w, dim, support=1.3)
        np.testing.assert_allclose(along(pair.density, dim)(w), exact, rtol=1e-9, atol=1e-13 * exact[0])
        assert (along(pair.density, dim)(np.linspace(0, 60, 40)) > -1e-12 * exact[0]).all()


def test_wendland_classical_forms():
    r = np.array([0.0, 0.3, 0.8, 1.0, 1.4])
    t = np.maximum(1 - r, 0)
    np.testing.assert_allclose(Wendland(1.0, 3.0, 1).kernel(r[:, None]), t**4 * (4 * r + 1), rtol=1e-14)  # phi_(3,1)
    np.testing.assert_allclose(Wendland(1.0, 4.0, 2).kernel(r[:, None]), t**6 * (35 * r**2 + 18 * r + 3) / 3, rtol=1e-13)  # phi_(3,2)


def test_beyond_the_last_dimension_the_transform_is_negative_somewhere():
    pair = Wendland(1.0, 2.0, 0)  # positive definite up to dim 3
    radial = along(pair.kernel, 1)
    assert density_from_kernel(radial, np.linspace(0, 40, 60), 3, support=1.0).min() > 0
    assert density_from_kernel(radial, np.linspace(0, 40, 60), 5, support=1.0).min() < 0
    with pytest.raises(ValueError, match=r"mu must be at least \(dim \+ 1\)/2 \+ smoothness = 3.0 in dim 5, got 2.0"):
        along(pair.kernel, 5)([0.3])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Bessel(1.0, -1.1), "exponent must be finite and at least -1, got -1.1"),
        (lambda: Bessel(1.0, np.nan), "exponent must be finite and at least -1, got nan"),
        (lambda: Bessel(1.0, -1).density([0.1]), "exponent must be over -1 for a density"),
        (lambda: Bessel(1.0, -1).squared_norm(2), "exponent must be over -1 for a density"),
        (lambda: Bessel(1.0, -1).marginal(1), "two points"),
        (lambda: Bessel(0.0), "length must be"),
        (lambda: Wendland(1.0, 4.0, 3), "smoothness must be 0, 1 or 2, got 3"),
        (lambda: Wendland(1.0, 1.5, 1), "mu must be at least (dim + 1)/2 + smoothness = 2.0 in dim 1, got 1.5"),
        (lambda: Wendland(1.0).sample(3, 1, 0), "Wendland has no squared_norm in closed form"),
        (lambda: Wendland(1.0).moment(2, 1), "Wendland has no moments in closed form"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value)


@pytest.mark.parametrize("length", [1e-200, 1e200])
@pytest.mark.parametrize("kind", [Bessel, Wendland])
def test_only_the_ratio_to_the_length_counts(kind, length):
    assert float(kind(length).kernel([0.7 * length])) == pytest.approx(float(kind(1.0).kernel([0.7])), rel=1e-12)
    assert float(kind(length).density([0.7 / length])) == pytest.approx(length * float(kind(1.0).density([0.7])), rel=1e-12)


def test_bessel_kernel_in_many_dimensions():
    """exp(-|delta|^2/(4 (m + 1))) up to the next order where delta is small beside the order."""
    x = np.full((3, 200), 0.05) * np.array([[0.1], [1.0], [3.0]])
    values = Bessel(1.0, 100.0).kernel(x)
    assert values == pytest.approx(np.exp(-np.sum(x**2, 1) / (4 * 201)), abs=1e-6)
