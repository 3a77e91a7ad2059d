"""Landmarks of softmax-free attention: a few vectors per head that stand for all its tokens (arXiv 2110.11945, "bottleneck tokens").

Every module takes tokens (batch, head, time, dim) and gives (landmarks (batch, head, landmark, dim), landmark_mask (batch, landmark) or
None), in the units of the tokens. Given landmarks need no module: `softmax_free_attention` takes any.

Tokens stand on a line, or row by row on a grid=(height, width) with height * width = time. Windows are `stride` tokens long, or
`stride` x `stride`, and do not overlap; where the stride does not divide a side, the last window holds the tokens that are left. Masked
tokens count as if they were not there, and a window of nothing else has no landmark: its landmark_mask is False.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from attention.feature_map import described
from particles.arrays import count, flag

Grid = tuple[int, int] | None
Found = tuple[Float[Tensor, "batch head landmark dim"], Bool[Tensor, "batch landmark"] | None]


class PooledLandmarks(nn.Module):
    """The mean of the tokens of each window: the paper's default. No parameters.

    Parameters
    ----------
    stride : window length, in tokens (a side of the window on a grid).
    """

    def __init__(self, stride: int) -> None:
        super().__init__()
        self.stride = count(stride, "stride")

    def forward(self, x: Tensor, *, grid: Grid = None, key_mask: Tensor | None = None) -> Found:
        """ValueError on shapes that do not fit."""
        windows, present = _windows(x, self.stride, grid, key_mask)
        size = present.sum(-1)[:, None, :, None]
        mean = windows.sum(-2, dtype=torch.promote_types(x.dtype, torch.float32)) / size.clamp_min(1)
        return mean.to(x.dtype), None if key_mask is None else present.any(-1)

    def extra_repr(self) -> str:
        """What the printed module says of itself: its stride."""
        return f"stride={self.stride}"


class ConvLandmarks(nn.Module):
    """A convolution of each window, shared by the heads, without bias; then LayerNorm and GELU as released, or nothing.

    As released, landmarks come out of the GELU on the scale of scaled tokens: they are multiplied by dim^(1/4), so that the default scale
    of `softmax_free_attention` gives that back.

    Parameters
    ----------
    dim : of a head.
    stride : length of kernel and window.
    dims : 1 for a line of tokens, 2 for a grid; the kernel has so many sides.
    activation : LayerNorm and GELU after the convolution.
    """

    def __init__(self, dim: int, stride: int, *, dims: int = 2, activation: bool = True) -> None:
        super().__init__()
        self.stride, self.dims = count(stride, "stride"), count(dims, "dims")
        if dims > 2:
            raise ValueError(f"dims must be 1 or 2, got {dims!r}")
        self.dim, self.activation = count(dim, "dim"), flag(activation, "activation")
        self.conv = nn.Linear(stride**dims * dim, dim, bias=False)  # of (token of the window, dim), flattened
        self.norm = nn.LayerNorm(dim) if activation else None

    def forward(self, x: Tensor, *, grid: Grid = None, key_mask: Tensor | None = None) -> Found:
        """ValueError on shapes that do not fit, or a grid where dims is 1 and none where it is 2. Missing tokens of a window are 0."""
        if (grid is None) != (self.dims == 1):
            raise ValueError(f"grid must be {'None' if self.dims == 1 else '(height, width)'} for dims={self.dims}, got {grid!r}")
        windows, present = _windows(x, self.stride, grid, key_mask)
        if x.shape[-1] != self.dim:
            raise ValueError(f"x must have dim {self.dim}, got {described(x)}")
        found = self.conv(windows.flatten(-2))
        if self.norm is not None:
            found = self.dim**0.25 * F.gelu(self.norm(found))
        return found, None if key_mask is None else present.any(-1)

    def extra_repr(self) -> str:
        """What the printed module says of itself."""
        return f"stride={self.stride}, dims={self.dims}"


class FirstLandmarks(nn.Module):
    """The first `n_landmarks` tokens, or all where there are fewer ("biased" in the paper); the same positions in every head."""

    def __init__(self, n_landmarks: int) -> None:
        super().__init__()
        self.n_landmarks = count(n_landmarks, "n_landmarks")

    def forward(self, x: Tensor, *, grid: Grid = None, key_mask: Tensor | None = None) -> Found:
        """ValueError on shapes that do not fit; a grid only has to fit."""
        _check(x, grid, key_mask)
        return self._chosen(x, torch.arange(x.shape[2], device=x.device), key_mask)

    def _chosen(self, x: Tensor, rank: Tensor, key_mask: Tensor | None) -> Found:
        """The tokens of lowest rank (time,), each row's masked ones last."""
        rank = rank.expand(x.shape[0], -1)
        if key_mask is not None:
            rank = rank.where(key_mask, x.shape[2] + rank)
        index = rank.argsort(-1)[:, : self.n_landmarks]
        found = x.gather(2, index[:, None, :, None].expand(-1, x.shape[1], -1, x.shape[3]))
        return found, None if key_mask is None else key_mask.gather(1, index)

    def extra_repr(self) -> str:
        """What the printed module says of itself."""
        return f"n_landmarks={self.n_landmarks}"


class RandomLandmarks(FirstLandmarks):
    """`n_landmarks` random tokens without repetition, or all where there are fewer; the same positions in all heads and sequences, so that
    no sequence depends on what else is in its batch.

    In training each call draws anew from `generator` (torch's default if None; activation checkpointing rewinds that one only, so it has
    no place with another). In evaluation the draw is the one of `seed`, a buffer that
    construction takes from the generator: evaluation is deterministic, and stays so in a loaded checkpoint.
    """

    seed: Tensor

    def __init__(self, n_landmarks: int, *, generator: torch.Generator | None = None) -> None:
        super().__init__(n_landmarks)
        if not isinstance(generator, torch.Generator | None):
            raise ValueError(f"generator must be a torch.Generator or None, got {generator!r}")
        self.generator = generator
        device = None if generator is None else generator.device
        self.register_buffer("seed", torch.randint(2**62, (), generator=generator, device=device))

    def forward(self, x: Tensor, *, grid: Grid = None, key_mask: Tensor | None = None) -> Found:
        """ValueError on shapes that do not fit; a grid only has to fit."""
        _check(x, grid, key_mask)
        source = self.generator if self.training else torch.Generator().manual_seed(int(self.seed))
        device = None if source is None else source.device
        return self._chosen(x, torch.randperm(x.shape[2], generator=source, device=device).to(x.device), key_mask)


def _windows(x: Tensor, stride: int, grid: Grid, key_mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Tokens by window, (batch, head, window, token, dim) with 0 where there is none, and where there is one, (batch, window, token)."""
    _check(x, grid, key_mask)
    present = x.new_ones(1, x.shape[2], dtype=torch.bool) if key_mask is None else key_mask
    x = x if key_mask is None else x.where(key_mask[:, None, :, None], 0.0)
    return _cut(x, stride, grid), _cut(present[:, None, :, None], stride, grid)[:, 0, ..., 0]


def _cut(x: Tensor, stride: int, grid: Grid) -> Tensor:
    """(batch, head, time, n) to (batch, head, window, token, n), filled up with 0."""
    height, width = (1, x.shape[2]) if grid is None else grid
    side = 1 if grid is None else stride
    x = F.pad(x.unflatten(2, (height, width)), (0, 0, 0, -width % stride, 0, -height % side))
    x = x.unflatten(3, (-1, stride)).unflatten(2, (-1, side))  # (batch, head, row, side, column, stride, n)
    return x.transpose(3, 4).flatten(4, 5).flatten(2, 3)


def _check(x: Tensor, grid: Grid, key_mask: Tensor | None) -> None:
    if not isinstance(x, Tensor) or x.ndim != 4 or not x.is_floating_point() or 0 in x.shape[2:]:
        raise ValueError(f"x must be float (batch, head, time, dim), the last two not 0, got {described(x)}")
    if grid is not None:
        if not isinstance(grid, tuple) or len(grid) != 2:
            raise ValueError(f"grid must be (height, width) or None, got {grid!r}")
        if count(grid[0], "grid") * count(grid[1], "grid") != x.shape[2]:
            raise ValueError(f"grid must hold the {x.shape[2]} tokens of x, got {grid!r}")
    if key_mask is None:
        return
    if not isinstance(key_mask, Tensor) or key_mask.dtype != torch.bool or key_mask.shape != (x.shape[0], x.shape[2]):
        raise ValueError(f"key_mask must be bool (batch, time) = {(x.shape[0], x.shape[2])}, got {described(key_mask)}")
