"""Softmax-free attention by its definition, in float64 and with the n x n matrix. Slow on purpose; `softmax_free` is tested against it.

With x = scale^(1/2) q of the tokens and y of the landmarks,
    S_ij = exp(-|x_i - x_j|^2 / 2)                                                          (1)  arXiv 2110.11945, eq. 4
    A = exp(-|y_i - y_j|^2 / 2) + ridge 1, P = exp(-|y_i - x_j|^2 / 2), S^ = P^T A^+ P      (2)  eq. 6
    S^ = P^T D^-1/2 A^+ D^-1/2 P, D = diag(A 1) or diag(P 1)                                (3)  SOFT++ as released, or its variant
and out = S v or S^ v, over the tokens and landmarks that the masks keep.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def naive_gaussian(x: Float[Tensor, "row dim"], y: Float[Tensor, "column dim"]) -> Float[Tensor, "row column"]:
    """exp(-|x_i - y_j|^2 / 2) from the differences."""
    return (-0.5 * (x[:, None] - y[None, :]).square().sum(-1)).exp()


def naive_matrix(
    q: Float[Tensor, "time dim"],
    landmarks: Float[Tensor, "landmark dim"] | None = None,
    *,
    scale: float | None = None,
    ridge: float = 0.0,
    normalise: bool | str | None = True,
) -> Float[Tensor, "time time"]:
    """The matrix (2) or (3) of one head, or (1), with no low rank and no normalisation, where `landmarks` is None."""
    root = (q.shape[-1] ** -0.5 if scale is None else scale) ** 0.5
    x = q.double() * root
    if landmarks is None:
        return naive_gaussian(x, x)
    y = landmarks.double() * root
    a, p = naive_gaussian(y, y) + ridge * torch.eye(len(y), dtype=y.dtype), naive_gaussian(y, x)
    inverse = torch.linalg.pinv(a, hermitian=True)
    if normalise:
        weight = (p if normalise == "tokens" else a).sum(-1).rsqrt()
        inverse = weight[:, None] * inverse * weight
    return p.mT @ inverse @ p


def naive_softmax_free_attention(
    q: Float[Tensor, "batch head time dim"],
    v: Float[Tensor, "batch head time value"],
    landmarks: Float[Tensor, "batch head landmark dim"] | None = None,
    *,
    scale: float | None = None,
    ridge: float = 0.0,
    normalise: bool | str | None = True,
    key_mask: Bool[Tensor, "batch time"] | None = None,
    landmark_mask: Bool[Tensor, "batch landmark"] | None = None,
) -> Float[Tensor, "batch head time value"]:
    """The definition above for the arguments of `softmax_free_attention`, one sequence and head at a time, on the kept tokens only."""
    out = torch.zeros(v.shape, dtype=torch.float64)
    for b in range(q.shape[0]):
        tokens = slice(None) if key_mask is None else key_mask[b]
        chosen = slice(None) if landmark_mask is None else landmark_mask[b]
        for h in range(q.shape[1]):
            y = None if landmarks is None else landmarks[b, h, chosen]
            matrix = naive_matrix(q[b, h, tokens], y, scale=scale, ridge=ridge, normalise=normalise)
            out[b, h, tokens] = matrix @ v[b, h, tokens].double()
    return out
