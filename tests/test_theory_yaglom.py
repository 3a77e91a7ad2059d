"""The Gaussian Yaglom pair: both transforms by quadrature, Monte Carlo, the stationary limit, and the product form of its features."""

from __future__ import annotations

import numpy as np
import pytest

from theory.spectral import Gaussian
from theory.spectral.yaglom import GaussianPair, yaglom_kernel


def a_pair(dim, seed):
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((2 * dim, 2 * dim)) * 0.7 + 0.5 * np.eye(2 * dim)
    return GaussianPair(rng.standard_normal(2 * dim), root @ root.T)


def test_density_to_kernel_by_quadrature():
    pair, grid = a_pair(1, 0), np.linspace(-9, 9, 241)
    omega = np.stack(np.meshgrid(grid, grid, indexing="ij"), -1).reshape(-1, 2)
    weights = pair.density(omega) * (grid[1] - grid[0]) ** 2
    assert weights.sum() == pytest.approx(1, abs=1e-9)
    x, y = np.array([[0.4], [-1.2], [0.0]]), np.array([[0.9], [0.7], [0.0]])
    np.testing.assert_allclose(yaglom_kernel(x, y, omega, weights), pair.kernel(x, y), atol=1e-9)
    assert pair.kernel([0.0], [0.0]) == pytest.approx(1, rel=1e-15)


def test_kernel_to_density_by_quadrature():
    """(2 pi)^-2 int cross(x, y) exp(-i (a x - b y)) dx dy is the even, symmetric part of g."""
    pair, grid = GaussianPair([0.6, -0.3], [[1.4, 0.5], [0.5, 0.9]]), np.linspace(-14, 14, 401)
    x, y = np.meshgrid(grid, grid, indexing="ij")
    cross, cell = pair.cross(x[..., None], y[..., None]), (grid[1] - grid[0]) ** 2
    for a, b in ((0.3, 0.8), (-1.1, 0.2), (0.6, -0.3)):
        transform = np.sum(cross * np.exp(-1j * (a * x - b * y))) * cell / (2 * np.pi) ** 2
        expected = np.mean(pair.density([[a, b], [b, a], [-a, -b], [-b, -a]]))
        assert transform.real == pytest.approx(expected, abs=1e-10)
        assert abs(transform.imag) < 1e-12


@pytest.mark.parametrize("dim", [1, 2, 4])
def test_kernel_by_monte_carlo(dim):
    pair, wrong, rng = a_pair(dim, dim), a_pair(dim, dim + 50), np.random.default_rng(dim)
    x, y = rng.standard_normal((2, 3, dim)) * 0.8
    omega = pair.sample(40_000, 5).reshape(400, 100, -1)
    values = np.array([yaglom_kernel(x, y, part) for part in omega])
    error = values.std(0) / 20
    # three z-tests at 4.5 errors: false alarm 2e-5
    assert (np.abs(values.mean(0) - pair.kernel(x, y)) < 4.5 * error).all()
    assert (np.abs(values.mean(0) - wrong.kernel(x, y)) > 4.5 * error).any()


@pytest.mark.parametrize("dim", [1, 3])
def test_full_correlation_is_the_stationary_gaussian(dim):
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((2, 5, dim))
    pair = GaussianPair.isotropic(dim, length=0.8, correlation=1.0)
    np.testing.assert_allclose(pair.kernel(x, y), Gaussian(0.8).kernel(x - y), rtol=1e-13)
    w = pair.sample(50, 2)
    np.testing.assert_allclose(w[:, :dim], w[:, dim:], atol=1e-7)
    half = GaussianPair.isotropic(dim, length=0.8, correlation=0.3)
    by_hand = 0.5 * Gaussian(0.8).kernel(x - y) + 0.5 * np.exp(-np.sum(x**2 + y**2 - 0.6 * x * y, -1) / (2 * 0.64))
    np.testing.assert_allclose(half.kernel(x, y), by_hand, rtol=1e-13)
    assert not np.allclose(half.kernel(x + 1, y + 1), half.kernel(x, y), rtol=0.01)  # not stationary


def test_equal_frequencies_give_the_cosine_kernel_and_pairs_its_product_form():
    rng = np.random.default_rng(2)
    x, y, w = rng.standard_normal((4, 3)), rng.standard_normal((4, 3)), rng.standard_normal((7, 6))
    same = np.concatenate([w[:, :3], w[:, :3]], 1)
    np.testing.assert_allclose(yaglom_kernel(x, y, same), np.cos((x - y) @ w[:, :3].T).mean(1), atol=1e-14)
    mean, half = (w[:, :3] + w[:, 3:]) / 2, (w[:, :3] - w[:, 3:]) / 2
    product = np.cos((x - y) @ mean.T) * np.cos(x @ half.T) * np.cos(y @ half.T)
    np.testing.assert_allclose(yaglom_kernel(x, y, w), product.mean(1), atol=1e-14)


def test_gram_matrix_is_positive_semi_definite():
    x = np.random.default_rng(3).standard_normal((40, 2))
    pair = a_pair(2, 9)
    gram = pair.kernel(x[:, None], x)
    np.testing.assert_allclose(gram, gram.T, atol=1e-14)
    assert np.linalg.eigvalsh(gram)[0] > -1e-12
    assert ((np.diag(gram) >= 0) & (np.diag(gram) <= 1)).all()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: GaussianPair([0.0], [[1.0]]), "mean and covariance must have shapes (2 dim,), (2 dim, 2 dim)"),
        (lambda: GaussianPair([0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]]), "covariance must be symmetric and positive semi-definite"),
        (lambda: GaussianPair([0.0, 0.0], [[1.0, 0.3], [0.2, 1.0]]), "covariance must be symmetric and positive semi-definite"),
        (lambda: GaussianPair.isotropic(1, correlation=1.1), "correlation must be in [-1, 1], got 1.1"),
        (lambda: GaussianPair.isotropic(1, correlation=1.0).density([0.1, 0.1]), "covariance must be regular"),
        (lambda: GaussianPair.isotropic(2).kernel([0.1], [0.2]), "x must have a last axis of 2"),
        (lambda: GaussianPair.isotropic(2).sample(0, 1), "n must be"),
        (lambda: yaglom_kernel([0.1], [0.2], [[0.1]]), "x, y, omega must have shapes"),
        (lambda: yaglom_kernel([0.1], [0.2], [[0.1, 0.2]], [1.0, 2.0]), "weights must have shape (1,)"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value)
