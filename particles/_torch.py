"""Pair sums of the Riesz kernel in torch, on any device; the slow definition is `naive.pair_sum`.

Blocks of rows keep the memory bounded; differences, not Gram matrices, keep close pairs right. The gradient needs no autograd, and an
energy built on `differentiable` is so once: its backward pass is the analytic force, so coincident pairs give no NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_BLOCK = {"cpu": 2**16, "cuda": 2**25}  # pairs in one block: a few arrays in a CPU's cache
minimum = torch.minimum


def _planes(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """x and y as (chain, dim, particle)."""
    planes = x.mT.contiguous()
    return planes, planes if y is x else y.mT.contiguous()


def _blocks(x: torch.Tensor) -> list[slice]:
    """Slices of rows whose pairs fit the block size."""
    chains, n, _ = x.shape
    rows = max(1, _BLOCK.get(x.device.type, 2**22) // (chains * n))
    return [slice(start, min(start + rows, n)) for start in range(0, n, rows)]


def _squares(x: torch.Tensor, y: torch.Tensor, rows: slice) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """|x_i - y_j|^2 (chain, row, particle), where a row meets itself (row, particle), and a work array; one coordinate at a time."""
    work = x.new_empty(len(x), rows.stop - rows.start, x.shape[-1])
    q = torch.zeros_like(work)
    for k in range(x.shape[1]):
        torch.sub(x[:, k, rows, None], y[:, k, None], out=work)
        q.addcmul_(work, work)
    index = torch.arange(x.shape[-1], device=x.device)
    return q, index[rows, None] == index, work


def _potential(q: torch.Tensor, off: torch.Tensor, s: float, floor2: float) -> torch.Tensor:
    """Row sums of g_s in float64 where q = squared distance, at least floor2; pairs in `off` are left out."""
    q = q.double().clamp_min(floor2)
    g = -0.5 * torch.log(q) if s == 0 else q ** (-s / 2) * (1.0 if s > 0 else -1.0)
    return g.masked_fill(off, 0.0).sum(-1)


def _sums(x: torch.Tensor, y: torch.Tensor, s: float, softening2: float, floor2: float, energy: bool) -> tuple[torch.Tensor, torch.Tensor]:
    total = x.new_zeros(len(x), dtype=torch.float64)
    force = torch.empty_like(x)
    tiny = torch.finfo(x.dtype).tiny
    planes, others = _planes(x, y)
    for rows in _blocks(x):
        q, off, work = _squares(planes, others, rows)
        q += softening2
        zero = off | (q < max(floor2, tiny))
        weight = (q.masked_fill(zero, 1.0) ** (-s / 2 - 1)).masked_fill_(zero, 0.0)
        for k in range(x.shape[-1]):
            torch.sub(planes[:, k, rows, None], others[:, k, None], out=work)
            force[:, rows, k] = work.mul_(weight).sum(-1)
        if energy:
            total += _potential(q.masked_fill(q < tiny, 0.0), off, s, floor2).sum(-1)
    return total, force


class _Differentiable(torch.autograd.Function):
    """Sums (total, force) of x whose total has the gradient slope * force, once."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, sums: Callable, slope: float) -> tuple[torch.Tensor, torch.Tensor]:
        total, force = sums(x)
        ctx.save_for_backward(force)
        ctx.slope = slope
        force = force.clone()  # the caller may scale it in place
        ctx.mark_non_differentiable(force)
        return total, force

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, cotangent: torch.Tensor, _: Any) -> tuple[torch.Tensor, None, None]:
        (force,) = ctx.saved_tensors
        return (ctx.slope * cotangent[:, None, None]).to(force.dtype) * force, None, None


def differentiable(x: torch.Tensor, sums: Callable, s: float) -> tuple[torch.Tensor, torch.Tensor]:
    """sums(x) = (total, force) of x and its images, as `pair_sums` gives them; the total carries torch's history."""
    return _Differentiable.apply(x, sums, -2 * (abs(s) or 1.0))  # each pair is counted twice


def pair_sums(
    x: torch.Tensor, y: torch.Tensor, s: float, softening2: float, floor2: float, *, energy: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `_numba.pair_sums`."""
    return _sums(x, y, s, softening2, floor2, energy)


def pair_gaps(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """As `_numba.pair_gaps`."""
    coincident = x.new_zeros(len(x), dtype=torch.int64)
    closest = x.new_full((len(x),), torch.inf)
    planes, others = _planes(x, y)
    for rows in _blocks(x):
        q, off, _ = _squares(planes, others, rows)
        q = q.masked_fill(off, torch.inf)
        coincident += (q < torch.finfo(x.dtype).tiny).sum((-1, -2))
        closest = torch.minimum(closest, q.amin((-1, -2)))
    return coincident // 2, closest.sqrt().double()
