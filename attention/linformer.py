"""Linformer: softmax attention to a fixed number of learned mixtures of the keys and values (Wang et al. 2020, arXiv 2006.04768).

With two matrices E and F (landmark, time), learned and each head's own,
    out = softmax(scale q (E k)^T) F v,
in O(time * landmark). The matrices have one column for each place of a sequence, so the longest length is fixed; bidirectional only.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from attention.feature_map import described
from particles.arrays import count


class Linformer(nn.Module):
    """softmax(scale q (E k)^T) F v with E and F as parameters `keys` and `values` (head, landmark, time).

    Parameters
    ----------
    length : longest sequence.
    n_landmarks : mixtures that each query sees.
    heads : each has its own matrices.
    """

    def __init__(self, length: int, n_landmarks: int, *, heads: int = 1) -> None:
        super().__init__()
        shape = (count(heads, "heads"), count(n_landmarks, "n_landmarks"), count(length, "length"))
        self.keys, self.values = (nn.Parameter(torch.randn(shape) * length**-0.5) for _ in range(2))

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, *, key_mask: Tensor | None = None, scale: float | None = None
    ) -> Float[Tensor, "batch head query value"]:
        """q (batch, head, query, dim), k and v (batch, head, time, dim), key_mask bool (batch, time); masked keys and values count as 0.

        ValueError on more keys than `length`, other heads, or a mask that does not fit."""
        if k.ndim != 4 or v.ndim != 4 or k.shape[:3] != v.shape[:3] or k.shape[1] != len(self.keys) or k.shape[2] > self.keys.shape[2]:
            wanted = f"(batch, {len(self.keys)}, at most {self.keys.shape[2]}, dim)"
            raise ValueError(f"k and v must be {wanted}, got {described(k)} and {described(v)}")
        if key_mask is not None:
            if key_mask.dtype != torch.bool or key_mask.shape != (k.shape[0], k.shape[2]):
                raise ValueError(f"key_mask must be bool {(k.shape[0], k.shape[2])}, got {described(key_mask)}")
            k, v = (part.where(key_mask[:, None, :, None], 0.0) for part in (k, v))
        few_k, few_v = (matrix[..., : k.shape[2]] @ part for matrix, part in ((self.keys, k), (self.values, v)))
        return F.scaled_dot_product_attention(q, few_k, few_v, scale=scale)

    def extra_repr(self) -> str:
        """What the printed module says of itself: its sizes."""
        heads, landmarks, length = self.keys.shape
        return f"length={length}, n_landmarks={landmarks}, heads={heads}"
