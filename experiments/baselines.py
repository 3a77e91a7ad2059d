"""Kernel baselines that scikit-learn lacks: several Gaussian kernels combined by their alignment, and reweighted random features.

The combination stands in for MKLpy's MEMO, which the Coulomb paper compares with and whose package is no longer maintained; like it, this
one learns a convex combination of given kernels before an SVM, and needs all pairs of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import nnls
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.svm import SVC

from particles.alignment import Alignment
from particles.arrays import positive
from particles.estimator import chi_square_weights, start_frequencies
from particles.features import Feature

_BLOCK = 2**21  # pairs of rows held at once


@dataclass(frozen=True)
class CombinedGaussian:
    """k(x, x') = sum_m weights_m exp(-gammas_m |x - x'|^2), as a callable for `sklearn.svm.SVC(kernel=...)`."""

    gammas: tuple[float, ...]
    weights: tuple[float, ...]

    def __call__(self, x: np.ndarray, x2: np.ndarray) -> np.ndarray:
        """The Gram matrix (n, n2)."""
        gram, used = np.empty((len(x), len(x2))), np.flatnonzero(self.weights)
        for rows, grams in _blocks(x, x2, np.asarray(self.gammas)[used]):
            gram[rows] = np.tensordot(np.asarray(self.weights)[used], grams, 1)
        return gram


def aligned_weights(x: np.ndarray, y: np.ndarray, gammas: Sequence[float]) -> np.ndarray:
    """Convex weights (kernel,) of the Gaussian kernels whose centred combination is best aligned with the labels.

    "alignf" of Cortes, Mohri and Rostamizadeh (2012): v >= 0 that minimises v'Mv - 2 v'a, divided by its sum, where
    M_kl = <K_k, K_l>, a_k = <K_k, yy'> and all matrices are centred. Uniform where no kernel is aligned. Memory O(n).

    Parameters
    ----------
    x (n, dim); y (n,) numbers, -1 and +1 for two classes.
    """
    gammas = [positive(gamma, "gammas") for gamma in gammas]
    n, y = len(x), y - y.mean()
    products, row_means, aligned = np.zeros((len(gammas),) * 2), np.empty((len(gammas), n)), np.zeros(len(gammas))
    for rows, grams in _blocks(x, x, gammas):
        flat = grams.reshape(len(gammas), -1)
        products += flat @ flat.T
        row_means[:, rows] = grams.mean(-1)
        aligned += (grams @ y) @ y[rows]
    means = row_means.mean(1)
    products += n * n * np.outer(means, means) - 2 * n * row_means @ row_means.T
    triangle = np.linalg.cholesky(products + 1e-12 * np.trace(products) * np.eye(len(gammas)))
    weights = nnls(triangle.T, solve_triangular(triangle, aligned, lower=True))[0]
    return weights / weights.sum() if weights.any() else np.full(len(gammas), 1 / len(gammas))


def _blocks(x: np.ndarray, x2: np.ndarray, gammas: Sequence[float] | np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """(rows of x, Gram matrices (kernel, row, n2) of those rows), a few rows at a time."""
    step = max(1, _BLOCK // (len(x2) * len(gammas)))
    for start in range(0, len(x), step):
        rows = slice(start, min(start + step, len(x)))
        squares = euclidean_distances(x[rows], x2, squared=True)
        yield rows, np.exp(-np.asarray(gammas)[:, None, None] * squares)


def multiple_kernel_svm(x: np.ndarray, y: np.ndarray, gammas: Sequence[float], C: float = 1.0) -> SVC:
    """An SVM on the best aligned convex combination of Gaussian kernels; x (n, dim), y (n,) two classes."""
    signs = np.where(y == np.unique(y)[-1], 1.0, -1.0)
    weights = aligned_weights(x, signs, gammas)
    return SVC(C=C, kernel=CombinedGaussian(tuple(gammas), tuple(weights.tolist()))).fit(x, y)


def importance_frequencies(
    x: np.ndarray, y: np.ndarray, feature: Feature, n: int, *, scale: float, pool_size: int, radius: float, rng: np.random.Generator
) -> np.ndarray:
    """`n` frequencies (n, particle_dim) drawn from a Gaussian pool by the weights of Sinha and Duchi (2016), nothing tuned.

    The weights maximise the alignment in the ball pool_size sum q^2 - 1 <= radius around the uniform ones.
    """
    pool = start_frequencies(feature, pool_size, x.shape[1], scale, rng)
    gains = -np.asarray(Alignment(x, y, feature, centre=False, scale=False).value(pool[:, None, :]))
    return pool[rng.choice(pool_size, n, p=chi_square_weights(gains, radius))]
