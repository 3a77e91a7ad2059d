"""What a Gram matrix says: rank, effective dimension, leverage, decay of eigenvalues, and where the labels lie among eigenvectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from theory.arrays import FloatArray, count, finite, positive, real

__all__ = [
    "Decay",
    "LabelAlignment",
    "effective_dimension",
    "effective_rank",
    "eigenvalue_decay",
    "feature_dimension",
    "feature_rank",
    "kernel_alignment",
    "label_alignment",
    "leverage_scores",
]


def effective_rank(gram: ArrayLike) -> float:
    """exp of the entropy of the normalised eigenvalues of a positive semi-definite matrix (n, n) (Roy & Vetterli 2007).

    Raises
    ------
    ValueError
        If the matrix is not square and symmetric, has a clearly negative eigenvalue, or is zero.
    """
    values = _eigenvalues(_symmetric(gram))
    if values[-1] <= 0:
        raise ValueError("gram must be positive semi-definite and not zero, got no positive eigenvalue")
    share = values[values > 0] / values[-1]
    share /= share.sum()
    return float(np.exp(-np.sum(share * np.log(share))))


def feature_rank(phi: ArrayLike) -> float:
    """Effective rank of phi phi^T for features phi (n, feature), through the smaller of the two Gram matrices."""
    return effective_rank(_smaller(phi))


def effective_dimension(gram: ArrayLike, ridge: float) -> float:
    """tr K (K + ridge I)^-1 = sum of eigenvalue / (eigenvalue + ridge) for a positive semi-definite K (n, n), ridge > 0.

    Degrees of freedom of kernel ridge regression. Source: Zhang 2005; Caponnetto & De Vito 2007, whose operator is K/n.
    """
    values, ridge = _eigenvalues(_symmetric(gram)), positive(ridge, "ridge")
    values = np.maximum(values, 0.0)  # round-off only: _eigenvalues refuses more
    return float(np.sum(values / (values + ridge)))


def feature_dimension(phi: ArrayLike, ridge: float) -> float:
    """Effective dimension of the estimated kernel phi phi^T, phi (n, feature), through the smaller of the two Gram matrices.

    For features that carry 1/sqrt(m) it converges to that of the kernel as m grows, from below on average (concavity).
    """
    return effective_dimension(_smaller(phi), ridge)


def leverage_scores(gram: ArrayLike, ridge: float) -> FloatArray:
    """Diagonal of K (K + ridge I)^-1, shape (n,): in [0, 1), with sum `effective_dimension` (Alaoui & Mahoney 2015).

    By eigenvectors, so that neither a tiny nor a huge ridge costs digits or a singular matrix.
    """
    gram, ridge = _symmetric(gram), positive(ridge, "ridge")
    _eigenvalues(gram)
    values, vectors = np.linalg.eigh(gram)
    values = np.maximum(values, 0.0)
    return vectors**2 @ (values / (values + ridge))


@dataclass(frozen=True)
class LabelAlignment:
    """Labels on the eigenspaces of a Gram matrix, largest eigenvalue first; equal eigenvalues are one space.

    Attributes
    ----------
    eigenvalues : (space,), the mean eigenvalue of each space.
    multiplicity : (space,), its dimension.
    share : (space,), share of the labels' squared norm in each space; they sum to 1.
    """

    eigenvalues: FloatArray
    multiplicity: np.ndarray
    share: FloatArray

    @property
    def rank(self) -> np.ndarray:
        """Eigenvectors up to and including each space, (space,)."""
        return np.cumsum(self.multiplicity)

    @property
    def cumulative(self) -> FloatArray:
        """Share of the labels in the leading spaces, (space,); flat at first means that the kernel does not see the labels."""
        return np.cumsum(self.share)

    @property
    def contribution(self) -> FloatArray:
        """Parts of the kernel-target alignment by space, (space,): eigenvalue * share / |K|_F; they sum to `kernel_alignment`."""
        return self.eigenvalues * self.share / np.sqrt(np.sum(self.multiplicity * self.eigenvalues**2))

    def cutoff(self, share: float) -> int:
        """Least number of leading eigenvectors (whole spaces) that hold at least this share of the labels, 0 < share <= 1."""
        if not 0 < real(share, "share") <= 1:
            raise ValueError(f"share must be in (0, 1], got {share!r}")
        return int(self.rank[np.argmax(self.cumulative >= share - 1e-12)])


def label_alignment(gram: ArrayLike, labels: ArrayLike, *, centre: bool = False, gap: float = 1e-8) -> LabelAlignment:
    """Squared projections of labels (n,) or (n, output) on the eigenspaces of a positive semi-definite gram (n, n).

    Only spaces have a meaning: eigenvalues closer than `gap` times the largest are one space. `centre` removes the mean in
    feature space and of the labels first (Cortes, Mohri & Rostamizadeh 2012). Source: Cristianini et al. 2002; projections
    on kernel principal components as in Braun, Buhmann & Mueller 2008. ValueError if the labels or gram are (or become) zero.
    """
    matrix, y = _pair(gram, labels, centre)
    _eigenvalues(matrix)
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[::-1], vectors[:, ::-1]
    space = np.concatenate([[0], np.cumsum(-np.diff(values) > positive(gap, "gap", zero=True) * values[0])])
    multiplicity = np.bincount(space)
    share = np.bincount(space, np.sum((vectors.T @ y) ** 2, axis=1)) / np.sum(y**2)
    return LabelAlignment(np.bincount(space, values) / multiplicity, multiplicity, share)


def kernel_alignment(gram: ArrayLike, labels: ArrayLike, *, centre: bool = False) -> float:
    """<K, Y Y^T> / (|K|_F |Y|^2) for labels Y (n,) or (n, output), optionally with K and Y centred; at most 1.

    ValueError if the labels or gram are (or become) zero.
    For one output it is the cosine of K and y y^T: Cristianini et al. 2002; centred: Cortes et al. 2012.
    """
    matrix, y = _pair(gram, labels, centre)
    return float(np.sum(y * (matrix @ y)) / (np.linalg.norm(matrix) * np.sum(y**2)))


class Decay(NamedTuple):
    """Fitted eigenvalue ~ front * k^-rate (power) or front * e^(-rate k) (exponential), with the rate's standard error and r^2."""

    rate: float
    error: float
    front: float
    r2: float


def eigenvalue_decay(
    eigenvalues: ArrayLike, *, law: Literal["power", "exponential"] = "power", first: int = 1, last: int | None = None
) -> Decay:
    """Least squares of the log of the sorted eigenvalues number first..last (from 1) on log k or on k.

    The error is the regression's; it ignores the correlation of neighbouring eigenvalues, so it says how straight the line is, no more.
    ValueError if an eigenvalue in that range is not positive or it holds fewer than 3.
    """
    values = np.sort(finite(eigenvalues, "eigenvalues"), axis=None)[::-1]
    first, last = count(first, "first"), len(values) if last is None else count(last, "last")
    if last > len(values) or last - first < 2:
        raise ValueError(f"first..last must hold at least 3 of {len(values)} eigenvalues, got {first}..{last}")
    if law not in ("power", "exponential"):
        raise ValueError(f"law must be 'power' or 'exponential', got {law!r}")
    k, chosen = np.arange(first, last + 1), values[first - 1 : last]
    if chosen[-1] <= 0:
        raise ValueError(f"eigenvalues number {first}..{last} must be positive, got {chosen[-1]}; choose last smaller")
    fit = stats.linregress(np.log(k) if law == "power" else k, np.log(chosen))
    return Decay(float(-fit.slope), float(fit.stderr), float(np.exp(fit.intercept)), float(fit.rvalue**2))


def _symmetric(gram: ArrayLike) -> FloatArray:
    gram = finite(gram, "gram")
    if gram.ndim != 2 or not gram.size or gram.shape[0] != gram.shape[1]:
        raise ValueError(f"gram must be a symmetric matrix, got shape {gram.shape}")
    if not np.allclose(gram, gram.T, rtol=1e-6, atol=1e-9 * np.abs(gram).max(initial=0)):
        raise ValueError(f"gram must be a symmetric matrix, got a largest difference of {np.abs(gram - gram.T).max()} to its transpose")
    return gram


def _eigenvalues(gram: FloatArray) -> FloatArray:
    """Eigenvalues of a symmetric matrix in ascending order; ValueError if one is negative beyond round-off."""
    values: FloatArray = np.linalg.eigvalsh(gram).astype(np.float64)
    if values[0] < -1e-6 * abs(values[-1]):
        raise ValueError(f"gram must be positive semi-definite, got eigenvalues from {values[0]} to {values[-1]}")
    return values


def _smaller(phi: ArrayLike) -> FloatArray:
    """phi phi^T or phi^T phi, whichever is smaller; they share their nonzero eigenvalues."""
    phi = finite(phi, "phi")
    if phi.ndim != 2 or not phi.size:
        raise ValueError(f"phi must have shape (n, feature) with n and feature at least 1, got {phi.shape}")
    return phi @ phi.T if phi.shape[0] <= phi.shape[1] else phi.T @ phi


def _pair(gram: ArrayLike, labels: ArrayLike, centre: bool) -> tuple[FloatArray, FloatArray]:
    """gram (n, n) and labels (n, output), centred where asked."""
    matrix, y = _symmetric(gram), finite(labels, "labels")
    y = y[:, None] if y.ndim == 1 else y
    if y.ndim != 2 or len(y) != len(matrix):
        raise ValueError(f"labels must have shape ({len(matrix)},) or ({len(matrix)}, output), got {y.shape}")
    y = y / (np.abs(y).max(initial=0) or 1.0)
    size = np.abs(matrix).max()
    if centre:
        y = y - y.mean(0)
        matrix = matrix - matrix.mean(0) - matrix.mean(1)[:, None] + matrix.mean()
        matrix = (matrix + matrix.T) / 2
    for name, value, limit in (("labels", y, 1e-12), ("gram", matrix, 1e-12 * size)):
        if np.abs(value).max(initial=0) <= limit:
            raise ValueError(f"{name} must not be zero" + (" after centring" if centre else ""))
    return matrix, y
