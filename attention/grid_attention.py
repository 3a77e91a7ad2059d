"""Self-attention of one stage of the vision transformer: one layer, and every attention that SOFT is compared with inside it.

Tokens stand row by row on a grid; the last stage has a class token in front, and there landmarks come from the grid alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attention.feature_map import MAP_NAMES, FeatureMap, feature_map
from attention.landmarks import ConvLandmarks, FirstLandmarks, PooledLandmarks, RandomLandmarks
from attention.linear import kernel_attention
from attention.linformer import Linformer
from attention.nystromformer import nystromformer_attention
from attention.softmax_free import softmax_free_attention

if TYPE_CHECKING:
    from attention.vision import VisionConfig

GRID_ATTENTION = ("softmax-free", "softmax", "nystromformer", "linformer", *MAP_NAMES)
LANDMARKS = ("conv", "pool", "random", "first")


class GridAttention(nn.Module):
    """Multi-head self-attention of stage i: a name of GRID_ATTENTION.

    Softmax-free attention has one projection for queries and keys. Nystromformer has means of windows as landmarks, and Linformer as many
    projected tokens. Signed maps have the recipe of `attention.model.SelfAttention`: queries and keys of unit length times a learned scale
    per head, and a learned gain behind the division by the root mean square.
    """

    def __init__(self, config: VisionConfig, i: int) -> None:
        super().__init__()
        dim, self.heads, self.kind = config.dims[i], config.heads[i], config.attention[i]
        self.side, self.config = config.sides[i], config
        free = self.kind == "softmax-free"
        self.project = nn.Linear(dim, (2 if free else 3) * dim)
        self.out = nn.Linear(dim, dim)
        self.landmarks = _landmarks(config, i) if free else None
        self.pool = PooledLandmarks(config.landmark_strides[i]) if self.kind == "nystromformer" else None
        self.linformer = _linformer(config, i) if self.kind == "linformer" else None
        self.feature_map = _feature_map(config, i) if self.kind in MAP_NAMES else None
        self.signed = self.feature_map is not None and self.feature_map.signed
        if self.signed:
            self.log_length = nn.Parameter(torch.zeros(self.heads, 1, 1))
            self.gain = nn.Parameter(torch.ones(self.heads, 1, dim // self.heads))
        size = config.conv[i]
        self.conv = nn.Conv2d(self.heads, self.heads, size, padding=size // 2, groups=self.heads, bias=False) if size else None

    def forward(self, x: Tensor) -> Tensor:
        """(batch, time, dim) to the same."""
        q, k, v = self.queries_keys_values(x)
        y = self.attend(q, k, v)
        if self.conv is not None:
            y = y + self._convolved(v)
        return self.out(y.transpose(1, 2).flatten(2))

    def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v of the layer's input x (batch, time, dim), each (batch, head, time, head_dim).

        Those of a feature map are scaled as they enter it; the other attentions multiply q.k by head_dim^(-1/2) themselves.
        """
        *qk, v = self.project(x).unflatten(-1, (-1, self.heads, x.shape[-1] // self.heads)).permute(2, 0, 3, 1, 4)
        q, k = qk[0], qk[-1]
        if self.signed:
            return self.log_length.exp() * F.normalize(q, dim=-1), self.log_length.exp() * F.normalize(k, dim=-1), v
        root = q.shape[-1] ** -0.25
        return (q, k, v) if self.feature_map is None else (root * q, root * k, v)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention alone, without the values' convolution and the last projection: (batch, head, time, head_dim)."""
        config = self.config
        if self.landmarks is not None:
            landmarks, _ = self.landmarks(self._grid(q), grid=(self.side, self.side))
            return softmax_free_attention(q, v, landmarks, n_iter=config.n_iter, ridge=config.ridge, normalise=config.normalise)
        if self.pool is not None:
            (of_q, _), (of_k, _) = (self.pool(self._grid(part), grid=(self.side, self.side)) for part in (q, k))
            return nystromformer_attention(q, k, v, of_q, of_k, n_iter=config.n_iter)
        if self.linformer is not None:
            return self.linformer(q, k, v)
        if self.feature_map is not None:
            y = kernel_attention(q, k, v, self.feature_map, scale=1.0)
            return y * self.gain if self.signed else y
        return F.scaled_dot_product_attention(q, k, v)

    def _grid(self, x: Tensor) -> Tensor:
        """The tokens without a class token in front of them."""
        return x[:, :, x.shape[2] - self.side**2 :]

    def _convolved(self, v: Tensor) -> Tensor:
        """Each head's filter over the grid of its values, (batch, head, time, dim); a class token passes unchanged."""
        token, grid = v.split((v.shape[2] - self.side**2, self.side**2), 2)
        images = grid.permute(0, 3, 1, 2).flatten(0, 1).unflatten(2, (self.side, self.side))
        done = cast(nn.Conv2d, self.conv)(images).flatten(2).unflatten(0, (len(v), v.shape[3])).permute(0, 2, 3, 1)
        return torch.cat((token, done), 2)


def _n_landmarks(config: VisionConfig, i: int) -> int:
    return (-(-config.sides[i] // config.landmark_strides[i])) ** 2


def _landmarks(config: VisionConfig, i: int) -> nn.Module:
    if config.landmarks == "conv":
        return ConvLandmarks(config.dims[i] // config.heads[i], config.landmark_strides[i])
    if config.landmarks == "pool":
        return PooledLandmarks(config.landmark_strides[i])
    return (RandomLandmarks if config.landmarks == "random" else FirstLandmarks)(_n_landmarks(config, i))


def _linformer(config: VisionConfig, i: int) -> Linformer:
    return Linformer(config.sides[i] ** 2 + (i == 3), _n_landmarks(config, i), heads=config.heads[i])


def _feature_map(config: VisionConfig, i: int) -> FeatureMap:
    return feature_map(config.attention[i], dim=config.dims[i] // config.heads[i], n_features=config.n_features, heads=config.heads[i])
