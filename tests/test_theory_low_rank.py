"""Newton's iteration for inverses and Nystrom approximations, against explicit matrices."""

from __future__ import annotations

import numpy as np
import pytest

from theory.spectral.low_rank import newton_iterations, newton_residual, nystrom_error


def gaussian_gram(n: int, dim: int, seed: int) -> np.ndarray:
    x = np.random.default_rng(seed).normal(size=(n, dim))
    return np.exp(-0.5 * ((x[:, None] - x[None]) ** 2).sum(-1))


def iterate(a: np.ndarray, start: float, n_iterations: int) -> np.ndarray:
    x = start * a
    for _ in range(n_iterations):
        x = 2 * x - x @ a @ x
    return x


@pytest.mark.parametrize(("n", "dim", "seed"), [(5, 3, 0), (20, 6, 1), (13, 8, 2)])
@pytest.mark.parametrize("n_iterations", [0, 1, 5, 10])
def test_residual_is_that_of_the_iteration(n, dim, seed, n_iterations):
    a = gaussian_gram(n, dim, seed)
    start = 1.8 / np.abs(a).sum(0).max() ** 2
    explicit = np.linalg.norm(np.eye(n) - a @ iterate(a, start, n_iterations), 2)
    right, wrong = (newton_residual(np.linalg.eigvalsh(a), scale * start, n_iterations) for scale in (1.0, 0.9))
    assert right == pytest.approx(explicit, rel=1e-9, abs=1e-14)
    assert wrong > 1.0001 * right


@pytest.mark.parametrize("tol", [1e-2, 1e-6, 1e-12])
def test_fewest_iterations(tol):
    eigenvalues, start = np.array([0.07, 0.4, 3.1]), 1.8 / 3.3**2
    k = newton_iterations(eigenvalues, start, tol)
    assert newton_residual(eigenvalues, start, k) <= tol < newton_residual(eigenvalues, start, k - 1)


def test_start_of_equal_row_sums_is_borderline():
    a = np.array([[1.0, 0.5], [0.5, 1.0]])
    values, norm = np.linalg.eigvalsh(a), np.abs(a).sum(0).max()
    assert newton_residual(values, 2 / norm**2, 30) == pytest.approx(1.0)
    assert newton_residual(values, 1.8 / norm**2, 30) < 1e-12
    assert newton_residual(values, 2.2 / norm**2, 30) == np.inf
    for start in (2 / norm**2, 3 / norm**2):
        with pytest.raises(ValueError, match="start must be positive and below"):
            newton_iterations(values, start, 1e-6)
    with pytest.raises(ValueError, match="no eigenvalue 0"):
        newton_iterations([0.0, 1.0], 0.5, 1e-6)


@pytest.mark.parametrize(("n", "m"), [(12, 4), (30, 7), (9, 9)])
def test_nystrom_error_is_semi_definite_and_zero_at_its_landmarks(n, m):
    gram, landmarks = gaussian_gram(n, 4, n), np.random.default_rng(m).permutation(n)[:m]
    error = nystrom_error(gram, landmarks)
    assert np.abs(error[landmarks]).max() < 1e-10
    assert np.linalg.eigvalsh((error + error.T) / 2).min() > -1e-10
    assert (np.abs(error).max() < 1e-10) == (m == n)


def test_landmarks_that_are_no_tokens_leave_a_semi_definite_error():
    x = np.random.default_rng(0).normal(size=(24, 3))
    pooled = x.reshape(6, 4, 3).mean(1)
    everything = np.concatenate([pooled, x])
    gram = np.exp(-0.5 * ((everything[:, None] - everything[None]) ** 2).sum(-1))
    error = nystrom_error(gram, np.arange(6))[6:, 6:]
    assert np.linalg.eigvalsh((error + error.T) / 2).min() > -1e-10
    assert np.abs(error).max() > 0.01


def test_bad_input():
    with pytest.raises(ValueError, match="eigenvalues must have shape"):
        newton_residual([], 1.0, 3)
    with pytest.raises(ValueError, match="start must be finite and positive, got 0"):
        newton_residual([1.0], 0.0, 3)
    with pytest.raises(ValueError, match="n_iterations must be an integer"):
        newton_residual([1.0], 1.0, 2.5)
    with pytest.raises(ValueError, match="gram must be a symmetric matrix"):
        nystrom_error([[1.0, 2.0], [0.0, 1.0]], [0])
    for landmarks in ([], [2], [-1], [0.5], [[0]]):
        with pytest.raises(ValueError, match=r"landmarks must be indices \(m,\) from 0 to 1"):
            nystrom_error(np.eye(2), landmarks)
