"""The same attention by its matrix of scores: for short inputs it needs fewer operations than running sums do.

A *part* of attention rows, (batch, head, query, value + 2), holds numerators, denominator and log scale: the true sums are exp(log scale)
times the stored ones, so that parts over different keys, computed in different ways, join without overflow.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from attention.layout import Inputs, ended
from attention.running_sums import Call, State, normalised


def quadratic(call: Call, x: Inputs, allowed: Tensor | None, *, return_state: bool) -> tuple[Tensor, State | None]:
    """Rows as `running_sums.attend` has them; query i sees key j where `allowed` (query, key), everywhere if None."""
    query, key = x.positions or (None, None)
    log_q, phi_q = call.features(x.q, "query", query)
    log_k, phi_k, values = call.keys(x.k, x.v, x.key_mask, key)
    log_weight = log_k[:, :, None] if allowed is None else log_k[:, :, None].masked_fill(~allowed, -math.inf)
    top = call.level(log_weight).amax(-1)
    top = top if x.state is None else torch.maximum(top, x.state.log_scale[..., None])
    weight, kernel = exp(log_weight, top[..., None]), phi_q @ phi_k.mT
    total = kernel @ (values * weight.mT) if allowed is None else (kernel * weight) @ values
    if x.state is not None:
        total = total + (phi_q @ _sums(x.state).to(call.dtype)) * exp(x.state.log_scale[..., None], top)[..., None]
    rows = normalised(call, total, log_q + top, _visible(x, allowed))
    return rows, _absorbed(call, x, log_k, phi_k, values) if return_state else None


def absorbed(call: Call, x: Inputs) -> State:
    """The state after these keys."""
    return _absorbed(call, x, *call.keys(x.k, x.v, x.key_mask, None if x.positions is None else x.positions[1]))


def joined(parts: list[Tensor]) -> Tensor:
    """Parts of the same rows over different keys as one."""
    log_scale = torch.stack([part[..., -1] for part in parts])
    top = log_scale.detach().amax(0)
    total = torch.stack([part[..., :-1] * exp(log, top)[..., None] for part, log in zip(parts, log_scale)]).sum(0)
    return torch.cat((total, top[..., None]), -1)


def exp(log: Tensor, top: Tensor) -> Tensor:
    """exp(log - top) with exp(-inf - -inf) = 0: a sum without keys."""
    return (log - top.where(top > -math.inf, 0.0)).exp()


def _sums(state: State) -> Tensor:
    return torch.cat((state.context, state.key_sum[..., None]), -1)


def _visible(x: Inputs, allowed: Tensor | None) -> Tensor:
    """Keys that a row sees, (batch, 1, query)."""
    seen = torch.zeros(x.q.shape[0], dtype=torch.int64, device=x.q.device) if x.state is None else x.state.count
    if allowed is None:
        return (seen + x.mask.sum(-1))[:, None, None]
    return (seen[:, None] + (allowed & x.mask[:, None]).sum(-1))[:, None]


def _absorbed(call: Call, x: Inputs, log_k: Tensor, phi_k: Tensor, values: Tensor) -> State:
    top = call.level(log_k).amax(-1)
    top = top if x.state is None else torch.maximum(top, x.state.log_scale)
    sums = phi_k.mT @ (values * exp(log_k, top[..., None])[..., None])
    count = torch.zeros(x.q.shape[0], dtype=torch.int64, device=x.q.device)
    position = count + x.k.shape[2]
    if x.state is not None:
        sums = sums + _sums(x.state) * exp(x.state.log_scale, top)[..., None, None]
        count, position = x.state.count, x.state.position + x.k.shape[2]
    return ended(State(sums[..., :-1], sums[..., -1], top, count + x.mask.sum(-1), position), x)
