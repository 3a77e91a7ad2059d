"""What low-rank softmax-free attention relies on: Newton's iteration for an inverse, and the Nystrom approximation of a Gram matrix."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from theory.arrays import FloatArray, count, finite, positive

__all__ = ["newton_iterations", "newton_residual", "nystrom_error"]


def newton_residual(eigenvalues: ArrayLike, start: float, n_iterations: int) -> float:
    """Exact spectral norm of 1 - A X_k for X_0 = start A, X_{k+1} = 2 X_k - X_k A X_k, A symmetric with these eigenvalues (n,).

    1 - A X_k = (1 - start A^2)^(2^k) (Schulz 1933; Ben-Israel & Cohen 1966), so it falls if and only if start < 2/max eigenvalue^2, which
    2/||A||_1^2 only touches where the rows of A have equal sums. It may be infinite.
    """
    power = 2.0 ** count(n_iterations, "n_iterations", least=0)
    with np.errstate(over="ignore", divide="ignore"):
        return float(np.max(np.exp(power * np.log(np.abs(1 - positive(start, "start") * _spectrum(eigenvalues) ** 2)))))


def newton_iterations(eigenvalues: ArrayLike, start: float, tol: float) -> int:
    """Fewest iterations with `newton_residual` at most `tol`; ValueError where none has (a zero eigenvalue, or start too large)."""
    worst = newton_residual(eigenvalues, start, 0)
    tol = positive(tol, "tol")
    if worst <= tol:
        return 0
    if worst >= 1:
        raise ValueError(
            f"start must be positive and below 2/max eigenvalue^2, with no eigenvalue 0, got start {start!r}: residual {worst}"
        )
    if tol >= 1:
        return 0
    return max(0, int(np.ceil(np.log2(np.log(tol) / np.log(worst)))))


def nystrom_error(gram: ArrayLike, landmarks: ArrayLike) -> FloatArray:
    """S - P^T A^+ P (n, n) for a Gram matrix S and the indices (m,) of its landmarks, P = S[landmarks], A = S[landmarks, landmarks].

    The Schur complement of A in S: positive semi-definite, and zero in the landmarks' rows (Drineas & Mahoney 2005). Landmarks that are no
    rows of S, such as pooled tokens, are rows of a larger Gram matrix that this takes too.
    """
    gram, landmarks = finite(gram, "gram"), np.asarray(landmarks)
    square = gram.ndim == 2 and gram.shape[0] == gram.shape[1]
    if not square or not np.allclose(gram, gram.T, rtol=1e-8, atol=1e-12 * np.abs(gram).max(initial=0)):
        raise ValueError(f"gram must be a symmetric matrix, got shape {gram.shape}")
    indices = landmarks.ndim == 1 and landmarks.dtype.kind in "iu" and landmarks.size > 0
    if not indices or not (0 <= landmarks.min() <= landmarks.max() < len(gram)):
        raise ValueError(f"landmarks must be indices (m,) from 0 to {len(gram) - 1}, got {landmarks!r}")
    rows = gram[landmarks]
    return gram - rows.T @ np.linalg.pinv(rows[:, landmarks], hermitian=True) @ rows


def _spectrum(eigenvalues: ArrayLike) -> FloatArray:
    values = finite(eigenvalues, "eigenvalues")
    if values.ndim != 1 or not values.size:
        raise ValueError(f"eigenvalues must have shape (n,) with n at least 1, got {values.shape}")
    return values
