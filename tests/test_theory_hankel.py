"""Numerical radial Fourier transforms against closed pairs, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import jn_zeros

from theory.spectral import Exponential, Gaussian, Matern
from theory.spectral.hankel import _bessel_zeros, density_from_kernel, kernel_from_density


def along(function, dim):
    return lambda r: function(np.concatenate([np.asarray(r)[..., None], np.zeros((*np.shape(r), dim - 1))], -1))


@pytest.mark.parametrize("dim", [1, 2, 3, 4, 7, 20])
@pytest.mark.parametrize("pair", [Gaussian(0.7), Matern(1.2, nu=1.5), Exponential(0.6), Matern(0.02, nu=3.0)], ids=repr)
def test_both_ways(pair, dim):
    r = np.array([0.0, 1e-3, 0.3, 1.0, 2.5]) * pair.length
    w = np.array([0.0, 1e-3, 0.4, 1.3, 6.0]) / pair.length
    exact = along(pair.density, dim)(w)
    np.testing.assert_allclose(density_from_kernel(along(pair.kernel, dim), w, dim), exact, atol=1e-11 * exact[0])
    np.testing.assert_allclose(kernel_from_density(along(pair.density, dim), r, dim), along(pair.kernel, dim)(r), atol=1e-11)


def test_shapes_signs_and_user_functions():
    w = np.array([[0.5, -0.5], [1.0, 2.0]])
    values = density_from_kernel(lambda r: 1 / np.cosh(r), w, 1)  # its own transform
    np.testing.assert_allclose(values, 0.5 / np.cosh(np.pi * w / 2), rtol=1e-11)
    assert float(density_from_kernel(lambda r: np.exp(-r), 0.0, 1)) == pytest.approx(1 / np.pi, rel=1e-12)


def test_a_bounded_support_that_is_right():
    w = np.array([0.0, 0.7, 3.0, 40.0])
    exact = np.where(w > 0, (1 - np.cos(w)) / np.maximum(w, 1e-9) ** 2, 0.5) / np.pi  # Fejer: the triangle
    np.testing.assert_allclose(density_from_kernel(lambda r: np.maximum(1 - r, 0), w, 1, support=1.0), exact, atol=1e-13)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: density_from_kernel(lambda r: 1 / (1 + r), 0.0, 1), "kernel must be integrable and smooth enough"),
        (
            lambda: density_from_kernel(lambda r: np.maximum(1 - r, 0) ** 0.5, 2.0, 3, tol=1e-12),
            "kernel must be integrable and smooth enough",
        ),
        (lambda: density_from_kernel(lambda r: r * np.nan, 2.0, 3), "kernel must be integrable and smooth enough"),
        (lambda: kernel_from_density(lambda r: np.ones_like(r), 0.0, 2), "density must be integrable and smooth enough"),
        (lambda: kernel_from_density(lambda r: np.exp(-r), np.nan, 2), "r must be finite"),
        (lambda: kernel_from_density(lambda r: np.exp(-r), 1.0, 0), "dim must be"),
        (lambda: kernel_from_density(lambda r: np.exp(-r), 1.0, 2, support=-1.0), "support must be"),
    ],
)
def test_refusals(call, words):
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value)


@pytest.mark.parametrize("dim", [23, 40, 100])
def test_gaussian_in_many_dimensions(dim):
    omega = np.array([0.0, 0.5, 2.0])
    values = density_from_kernel(lambda r: np.exp(-(r**2) / 2), omega, dim)
    assert values * (2 * np.pi) ** (dim / 2) == pytest.approx(np.exp(-(omega**2) / 2), rel=1e-12)


@pytest.mark.parametrize("order", [0, 3, 20, 60])
def test_zeros_of_bessel_functions(order):
    np.testing.assert_allclose(_bessel_zeros(order, 40), jn_zeros(order, 40), rtol=1e-13)
