"""Kernel attention by its definition: the full score matrix, in float64. Slow on purpose; `linear` is tested against it.

With true features phi of the map, x scaled by scale^(1/2), and A_ij = 1 where query i may see key j (else 0):
    K_ij = phi(q_i) . phi(k_j), or exp(q_i . k_j) where |i - j| < window   (1)
    o_i  = sum_j A_ij K_ij v_j                       (2)
    "sum"   out_i = o_i / sum_j A_ij K_ij            (3)
    "rms"   out_i = o_i / rms(o_i)                   (4)
    "count" out_i = o_i / sum_j A_ij                 (5)
    None    out_i = o_i
and 0 where a divisor is 0. (1)-(3): Coulomb paper, App. D; (4): the output norm of retention-type models. Positions count from 0, except
that the last query of a causal call stands at the last key.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def visible(n_queries: int, n_keys: int, *, is_causal: bool, key_mask: Bool[Tensor, "batch key"] | None) -> Bool[Tensor, "... query key"]:
    """A, (batch or 1, 1, query, key). A causal mask is aligned bottom-right: the last query sees every key."""
    device = None if key_mask is None else key_mask.device
    allowed = torch.ones(1, 1, n_queries, n_keys, dtype=torch.bool, device=device)
    if is_causal:
        allowed = allowed.tril(n_keys - n_queries)
    return allowed if key_mask is None else allowed & key_mask[:, None, None, :]


def naive_attention(
    q: Float[Tensor, "batch head query dim"],
    k: Float[Tensor, "batch kv_head key dim"],
    v: Float[Tensor, "batch kv_head key value"],
    feature_map: Any,
    *,
    is_causal: bool = False,
    key_mask: Bool[Tensor, "batch key"] | None = None,
    cu_seqlens: Int[Tensor, " offset"] | None = None,
    scale: float | None = None,
    normalise: str | None = "default",
    window: int | None = None,
) -> Float[Tensor, "batch head query value"]:
    """The definition above in float64, for the same arguments as `kernel_attention`.

    Each row is shifted by its largest log weight, which (3) and (4) do not see and (5) undoes, so that it holds wherever float64 does.
    """
    if cu_seqlens is not None:
        options = {"is_causal": is_causal, "scale": scale, "normalise": normalise, "window": window}
        return _sequence_by_sequence(q, k, v, feature_map, key_mask, cu_seqlens.tolist(), options)
    root = math.sqrt(q.shape[-1] ** -0.5 if scale is None else scale)
    how = ("rms" if feature_map.signed else "sum") if normalise == "default" else normalise
    k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
    allowed = visible(q.shape[2], k.shape[2], is_causal=is_causal, key_mask=key_mask)
    if key_mask is not None:
        k, v = (t.where(key_mask[:, None, :, None], 0) for t in (k, v))
    q, k = root * q.double(), root * k.double()
    log_q, phi_q = _features(feature_map, q, "query", k.shape[2] - q.shape[2] if is_causal else 0)
    log_k, phi_k = _features(feature_map, k, "key", 0)
    kernel, log_weight = phi_q @ phi_k.mT, log_q[..., None] + log_k[:, :, None]
    if window is not None:
        ahead = torch.arange(k.shape[2])[:, None] - torch.arange(k.shape[2])
        near = ahead[k.shape[2] - q.shape[2] :].abs() < window
        kernel, log_weight = kernel.masked_fill(near, 1.0), torch.where(near, q @ k.mT, log_weight)
    log_weight = log_weight.masked_fill(~allowed, -math.inf)
    top = log_weight.detach().amax(-1, keepdim=True)
    top = top.where(top > -math.inf, 0.0)  # a row without keys: any shift will do
    kernel = kernel * (log_weight - top).exp()
    out = kernel @ v.double()
    if how == "sum":
        return _divide(out, kernel.sum(-1, keepdim=True))
    if how == "rms":
        return _divide(out, out.square().mean(-1, keepdim=True), root=True)
    out = out * top.exp()
    return _divide(out, allowed.sum(-1, keepdim=True).double()) if how == "count" else out


def _features(feature_map: Any, x: Tensor, role: str, start: int) -> tuple[Tensor, Tensor]:
    """(log_scale, features) of every head of x, positions counted from `start`. A map of fewer heads is shared by groups of them."""
    options = {"position": start + torch.arange(x.shape[2])} if getattr(feature_map, "positional", False) else {}
    heads = feature_map.omega.shape[0]
    groups = 1 if heads == 1 else x.shape[1] // heads
    each = [feature_map(x[:, g::groups], role=role, **options) for g in range(groups)]
    log_scale, features = (torch.stack(part, 2).flatten(1, 2) for part in zip(*each))
    return log_scale, features


def _sequence_by_sequence(
    q: Tensor, k: Tensor, v: Tensor, feature_map: Any, key_mask: Tensor | None, ends: list[int], options: dict[str, Any]
) -> Tensor:
    rows = []
    for start, end in itertools.pairwise(ends):
        mask = None if key_mask is None else key_mask[:, start:end]
        if end > start:
            each = [t[:, :, start:end] for t in (q, k, v)]
            rows.append(naive_attention(each[0], each[1], each[2], feature_map, key_mask=mask, **options))
    return torch.cat(rows, 2)


def _divide(out: Tensor, by: Tensor, *, root: bool = False) -> Tensor:
    """out / by (or its square root), 0 where `by` is 0, with finite gradients there."""
    safe = torch.where(by == 0, 1.0, by)
    return torch.where(by == 0, 0.0, out / (safe.sqrt() if root else safe))
