"""The same attention by its matrix of scores: for short inputs it needs fewer operations than running sums do.

A *part* of attention rows, (batch, head, query, value + 2), holds numerators, denominator and log scale: the true sums are exp(log scale)
times the stored ones, so that parts over different keys, computed in different ways, join without overflow.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from attention.blocks import exp
from attention.layout import Inputs, ended
from attention.running_sums import Call, State, attend, normalised


def quadratic(call: Call, x: Inputs, allowed: Tensor | None) -> Tensor:
    """Rows as `running_sums.attend` has them; query i sees key j where `allowed` (query, key), everywhere if None."""
    query, key = x.positions or (None, None)
    log_q, phi_q = call.features(x.q, "query", query)
    log_k, phi_k, values = call.keys(x.k, x.v, x.key_mask, key)
    log_weight = log_k[:, :, None] if allowed is None else log_k[:, :, None].masked_fill(~allowed, -math.inf)
    top = call.level(log_weight).amax(-1)
    top = top if x.state is None else torch.maximum(top, x.state.log_scale.detach()[..., None])
    weight, kernel = exp(log_weight, top[..., None]), phi_q @ phi_k.mT
    total = kernel @ (values * weight.mT) if allowed is None else (kernel * weight) @ values
    if x.state is not None:
        sums = torch.cat((x.state.context, x.state.key_sum[..., None]), -1).to(call.dtype)
        total = total + (phi_q @ sums) * exp(x.state.log_scale[..., None], top)[..., None]
    return normalised(call, total, log_q + top, _visible(x, allowed) if call.normalise == "count" else log_q)


def absorbed(call: Call, x: Inputs) -> State:
    """The state after these keys."""
    first = None if x.positions is None else (x.positions[0][:, :1], x.positions[1])
    return ended(attend(call, x.q[:, :, :1], x.k, x.v, x.key_mask, x.state, is_causal=False, positions=first)[1], x)


def joined(parts: list[Tensor]) -> Tensor:
    """Parts of the same rows over different keys as one."""
    log_scale = torch.stack([part[..., -1] for part in parts])
    top = log_scale.detach().amax(0)
    total = torch.stack([part[..., :-1] * exp(log, top)[..., None] for part, log in zip(parts, log_scale)]).sum(0)
    return torch.cat((total, top[..., None]), -1)


def _visible(x: Inputs, allowed: Tensor | None) -> Tensor:
    """Keys that a row sees, (batch, 1, query)."""
    seen = torch.zeros(x.q.shape[0], dtype=torch.int64, device=x.q.device) if x.state is None else x.state.count
    mask = x.mask[:, None] if allowed is None else allowed & x.mask[:, None]
    return (seen[:, None] + mask.sum(-1))[:, None]
