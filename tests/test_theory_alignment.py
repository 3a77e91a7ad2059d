"""Two Gaussian classes: the potential against Monte Carlo, its gradient against differences, its maximiser against a grid."""

from __future__ import annotations

import numpy as np
import pytest

from theory.spectral.alignment import GaussianClasses


@pytest.mark.parametrize(("mean", "p"), [((0.8,), 0.5), ((0.3, -1.2), 0.7), ((1.0, 0.5, -0.2), 1.0)])
def test_potential_is_minus_the_squared_transform(mean, p):
    """Five standard errors of 4e5 points at four places: a false alarm in 10^5 runs; p + 0.05 is told apart where it matters."""
    rng, n = np.random.default_rng(5), 400_000
    y = np.where(rng.random(n) < p, 1.0, -1.0)
    x = y[:, None] * np.array(mean) + rng.standard_normal((n, len(mean)))
    w = rng.standard_normal((4, len(mean))) * 0.6
    transform = np.array([np.mean(y * np.exp(1j * (x @ point))) for point in w])
    error = 5 * 2 * np.abs(transform) / np.sqrt(n) + 25 / n
    assert (np.abs(GaussianClasses(mean, p).potential(w) + np.abs(transform) ** 2) < error).all()
    if p == 0.7:
        assert (np.abs(GaussianClasses(mean, 0.75).potential(w) + np.abs(transform) ** 2) > error).any()


def test_gradient_by_differences():
    classes, w, h = GaussianClasses((0.3, -1.2), 0.7), np.array([[0.2, -0.5], [1.1, 0.4]]), 1e-6
    steps = h * np.eye(2)
    numeric = (classes.potential(w[:, None] + steps) - classes.potential(w[:, None] - steps)) / (2 * h)
    np.testing.assert_allclose(classes.gradient(w), numeric, atol=1e-9)


@pytest.mark.parametrize("size", [1e-8, 1e-3, 0.5, 1.0, 3.0, 1e4])
@pytest.mark.parametrize("p", [0.5, 0.6, 0.9, 1.0])
def test_maximiser_beats_a_grid(size, p):
    """Also where the classes nearly coincide or are far apart; at p = 1 or small distances it is 0."""
    classes = GaussianClasses((0.6 * size, -0.8 * size), p)
    best = classes.maximiser()
    reach = min(3.0, np.pi / (2 * size))
    grid = np.linspace(0, reach, 3001)[:, None] * np.array([0.6, -0.8])
    assert -classes.potential(best) >= np.max(-classes.potential(grid)) * (1 - 1e-12)
    assert np.linalg.norm(classes.gradient(best)) <= 1e-9 * max(size, 1.0)
    if p == 0.5:
        r = np.linalg.norm(best)
        assert np.tan(r * size) == pytest.approx(size / r, rel=1e-6)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: GaussianClasses((0.0, 0.0)), "mean must be a vector (dim,) that is not zero, got (0.0, 0.0)"),
        (lambda: GaussianClasses(np.ones((2, 2))), "mean must be"),
        (lambda: GaussianClasses((np.nan,)), "mean must be finite"),
        (lambda: GaussianClasses((1.0,), 1.1), "p must lie in [0, 1], got 1.1"),
        (lambda: GaussianClasses((1.0,)).potential([1.0, 2.0]), "w must have shape (..., 1), got (2,)"),
        (lambda: GaussianClasses((1.0,)).gradient(1.0), "w must have shape (..., 1), got ()"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value)
