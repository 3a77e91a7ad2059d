"""Rational quadratic and spectral mixture pairs: by Hankel transforms, mixtures of Gaussian pairs, and samples."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import gamma

from theory.spectral import Gaussian
from theory.spectral.gaussian_mixtures import RationalQuadratic, SpectralMixture
from theory.spectral.hankel import density_from_kernel, kernel_from_density


def along(function, dim):
    """A function of the radius from one of vectors (..., dim)."""
    return lambda r: function(np.concatenate([np.asarray(r)[..., None], np.zeros((*np.shape(r), dim - 1))], -1))


@pytest.mark.parametrize(("alpha", "dim"), [(0.9, 1), (1.7, 2), (2.5, 3), (0.6, 1), (4.0, 5)])
def test_rational_quadratic_both_ways(alpha, dim):
    pair, r = RationalQuadratic(0.8, alpha=alpha), np.array([0.2, 0.9, 2.0, 5.0])
    np.testing.assert_allclose(density_from_kernel(along(pair.kernel, dim), r, dim), along(pair.density, dim)(r), atol=1e-10)
    np.testing.assert_allclose(kernel_from_density(along(pair.density, dim), r, dim), along(pair.kernel, dim)(r), atol=1e-10)


def test_rational_quadratic_is_a_gamma_mixture_and_tends_to_the_gaussian():
    delta, omega, alpha, length = [0.7, -0.4], [1.1, 0.3], 1.6, 0.9
    law = gamma(alpha, scale=1 / alpha)
    pair = RationalQuadratic(length, alpha=alpha)
    for name, point in (("kernel", delta), ("density", omega)):

        def part(t, name=name, point=point):
            return law.pdf(t) * float(getattr(Gaussian(length / np.sqrt(t)), name)(point))

        assert float(getattr(pair, name)(point)) == pytest.approx(quad(part, 0, np.inf)[0], rel=1e-8)
    assert RationalQuadratic(0.9, alpha=1e4).density([[1.1, 0.3], [1e-3, 0.0]]) == pytest.approx(
        Gaussian(0.9).density([[1.1, 0.3], [1e-3, 0.0]]), rel=1e-3
    )
    assert RationalQuadratic(0.9, alpha=1e6).kernel(delta) == pytest.approx(Gaussian(0.9).kernel(delta), rel=1e-5)


def test_rational_quadratic_density_at_zero():
    assert RationalQuadratic(0.9, alpha=1.0).density([0.0, 0.0]) == np.inf
    pair = RationalQuadratic(0.9, alpha=1.8)
    assert pair.density([0.0, 0.0]) == pytest.approx(float(density_from_kernel(along(pair.kernel, 2), 0.0, 2)), rel=1e-9)
    assert pair.density([1e-7, 0.0]) == pytest.approx(float(pair.density([0.0, 0.0])), rel=1e-5)


def test_rational_quadratic_samples_and_moments():
    pair = RationalQuadratic(0.8, alpha=1.7)
    w, delta = pair.sample(300_000, 3, 1), np.array([0.5, -0.3, 0.9])
    for values, exact, wrong in (
        (np.cos(w @ delta), pair.kernel(delta), pair.kernel(1.05 * delta)),
        (np.sum(w**2, 1), pair.moment(2, 3), RationalQuadratic(0.82, alpha=1.7).moment(2, 3)),
        (np.sum(w**2, 1) ** -0.5, pair.moment(-1, 3), RationalQuadratic(0.82, alpha=1.7).moment(-1, 3)),
    ):
        # three z-tests at 4.5 errors: false alarm 2e-5
        error = 4.5 * values.std() / np.sqrt(len(values))
        assert abs(values.mean() - exact) < error < abs(values.mean() - wrong)
    assert RationalQuadratic(0.8, alpha=0.4).moment(-0.9, 3) == np.inf


MIXTURE = SpectralMixture([0.3, 0.7], [[1.0, -0.5], [2.5, 0.4]], [[0.3, 0.8], [0.5, 0.2]])


def test_mixture_of_one_is_the_gaussian_and_cosines_shift_it():
    delta, omega = np.array([[0.3, -0.8], [1.2, 0.1]]), np.array([[0.3, -0.8], [1.2, 0.1]])
    one = SpectralMixture([1.0], np.zeros((1, 2)), np.full((1, 2), 1 / 0.7))
    np.testing.assert_allclose(one.kernel(delta), Gaussian(0.7).kernel(delta), rtol=1e-14)
    np.testing.assert_allclose(one.density(omega), Gaussian(0.7).density(omega), rtol=1e-13)
    shifted = SpectralMixture([1.0], [[2.0, 1.0]], np.full((1, 2), 1 / 0.7))
    np.testing.assert_allclose(shifted.kernel(delta), Gaussian(0.7).kernel(delta) * np.cos(delta @ [2.0, 1.0]), rtol=1e-13)


def test_mixture_density_transforms_to_the_kernel_on_a_grid():
    grid = np.linspace(-9, 9, 451)
    omega = np.stack(np.meshgrid(grid, grid, indexing="ij"), -1)
    density, cell = MIXTURE.density(omega), (grid[1] - grid[0]) ** 2
    assert density.sum() * cell == pytest.approx(1, rel=1e-12)  # trapezoid: spectrally accurate
    np.testing.assert_allclose(density, density[::-1, ::-1], rtol=1e-10)
    for delta in ([0.4, -0.7], [1.5, 0.3]):
        assert np.sum(density * np.cos(omega @ delta)) * cell == pytest.approx(float(MIXTURE.kernel(delta)), abs=1e-12)


def test_mixture_samples():
    w, delta = MIXTURE.sample(200_000, 2, 3), np.array([0.4, -0.7])
    # two z-tests at 4.5 errors: false alarm 1.4e-5
    values = np.cos(w @ delta)
    error = 4.5 * values.std() / np.sqrt(len(w))
    assert abs(values.mean() - MIXTURE.kernel(delta)) < error < abs(values.mean() - MIXTURE.kernel(1.05 * delta))
    assert abs(np.sin(w @ delta).mean()) < 4.5 / np.sqrt(2 * len(w))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: RationalQuadratic(1.0, alpha=0.0), "alpha must be"),
        (lambda: RationalQuadratic(1.0).squared_norm(2), "RationalQuadratic has no squared_norm in closed form"),
        (lambda: RationalQuadratic(1.0).marginal(2), "RationalQuadratic has no marginal in closed form"),
        (
            lambda: SpectralMixture([0.5, 0.4], np.zeros((2, 1)), np.ones((2, 1))),
            "weights must have shape (q,), be at least 0 and sum to 1",
        ),
        (lambda: SpectralMixture([1.0], np.zeros((1, 2)), np.ones((1, 1))), "means and scales must have shape (1, dim)"),
        (lambda: SpectralMixture([1.0], np.zeros((1, 2)), np.zeros((1, 2))), "scales must be positive"),
        (lambda: MIXTURE.kernel([0.1]), "delta must have a last axis of 2"),
        (lambda: MIXTURE.sample(3, 1, 0), "dim must be 2, the mixture's, got 1"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value)


@pytest.mark.parametrize("length", [1e-200, 1e200])
def test_only_the_ratio_to_the_length_counts(length):
    pair, unit = RationalQuadratic(length, alpha=1.7), RationalQuadratic(1.0, alpha=1.7)
    assert float(pair.kernel([0.7 * length])) == pytest.approx(float(unit.kernel([0.7])), rel=1e-12)
    assert float(pair.density([0.7 / length])) == pytest.approx(length * float(unit.density([0.7])), rel=1e-12)


def test_orders_whose_logarithms_cancel_are_refused():
    with pytest.raises(ValueError, match="alpha must be at most 10000 for a density, got 20000"):
        RationalQuadratic(1.0, alpha=2e4).density([1.0])
