"""Pair sums of the Riesz kernel in torch, on any device; the slow definition is `naive.pair_sum`.

Blocks of rows keep the memory bounded; differences, not Gram matrices, keep close pairs right. The gradient needs no autograd, and an
energy built on `pair_sums` is differentiable (once): its backward pass is the analytic force, so coincident pairs give no NaN.
"""

from __future__ import annotations

from typing import Any

import torch

_BLOCK = {"cpu": 2**16, "cuda": 2**25}  # pairs in one block: a few arrays in a CPU's cache
minimum = torch.minimum


def _planes(x: torch.Tensor, sign: float) -> tuple[torch.Tensor, torch.Tensor]:
    """x and sign x as (chain, dim, particle)."""
    planes = x.mT.contiguous()
    return planes, planes if sign > 0 else -planes


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


def _potential(q: torch.Tensor, off: torch.Tensor, s: float) -> torch.Tensor:
    """Row sums of g_s in float64 where q = squared distance; pairs in `off` are left out, q = 0 gives +inf when s >= 0."""
    q = q.double()
    g = -0.5 * torch.log(q) if s == 0 else q ** (-s / 2) * (1.0 if s > 0 else -1.0)
    return g.masked_fill(off, 0.0).sum(-1)


def _sums(x: torch.Tensor, s: float, softening2: float, sign: float, energy: bool) -> tuple[torch.Tensor, torch.Tensor]:
    total = x.new_zeros(len(x), dtype=torch.float64)
    force = torch.empty_like(x)
    tiny = torch.finfo(x.dtype).tiny
    planes, others = _planes(x, sign)
    for rows in _blocks(x):
        q, off, work = _squares(planes, others, rows)
        q += softening2
        zero = off | (q < tiny)
        weight = (q.masked_fill(zero, 1.0) ** (-s / 2 - 1)).masked_fill_(zero, 0.0)
        for k in range(x.shape[-1]):
            torch.sub(planes[:, k, rows, None], others[:, k, None], out=work)
            force[:, rows, k] = work.mul_(weight).sum(-1)
        if energy:
            total += _potential(q.masked_fill(q < tiny, 0.0), off, s).sum(-1)
    return total, force


class _PairSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, s: float, softening2: float, sign: float) -> tuple[torch.Tensor, torch.Tensor]:
        total, force = _sums(x, s, softening2, sign, True)
        ctx.mark_non_differentiable(force)
        ctx.save_for_backward(force)
        ctx.slope = -2 * (abs(s) or 1.0)  # each pair is counted twice
        return total, force

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, cotangent: torch.Tensor, _: Any) -> tuple[torch.Tensor, None, None, None]:
        (force,) = ctx.saved_tensors
        return (ctx.slope * cotangent[:, None, None]).to(force.dtype) * force, None, None, None


def pair_sums(x: torch.Tensor, s: float, softening2: float, sign: float, *, energy: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """As `_numba.pair_sums`; the energy carries torch's history when x does, the force never."""
    if energy:
        return _PairSums.apply(x, s, softening2, sign)
    return _sums(x.detach(), s, softening2, sign, False)


def pair_gaps(x: torch.Tensor, sign: float) -> tuple[torch.Tensor, torch.Tensor]:
    """As `_numba.pair_gaps`."""
    x = x.detach()
    coincident = x.new_zeros(len(x), dtype=torch.int64)
    closest = x.new_full((len(x),), torch.inf)
    planes, others = _planes(x, sign)
    for rows in _blocks(x):
        q, off, _ = _squares(planes, others, rows)
        q = q.masked_fill(off, torch.inf)
        coincident += (q < torch.finfo(x.dtype).tiny).sum((-1, -2))
        closest = torch.minimum(closest, q.amin((-1, -2)))
    return coincident // 2, closest.sqrt().double()
