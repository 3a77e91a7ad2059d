"""Kernel attention by its definition: the full score matrix, in float64. Slow on purpose; `linear` is tested against it.

With true features phi of the map, x scaled by scale^(1/2), and A_ij = 1 where query i may see key j (else 0):
    K_ij = phi(q_i) . phi(k_j)                       (1)
    o_i  = sum_j A_ij K_ij v_j                       (2)
    "sum"   out_i = o_i / sum_j A_ij K_ij            (3)
    "rms"   out_i = o_i / rms(o_i)                   (4)
    "count" out_i = o_i / sum_j A_ij                 (5)
    None    out_i = o_i
and 0 where a divisor is 0. (1)-(3): Coulomb paper, App. D; (4): the output norm of retention-type models.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Bool, Float
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
    k: Float[Tensor, "batch head key dim"],
    v: Float[Tensor, "batch head key value"],
    feature_map: Any,
    *,
    is_causal: bool = False,
    key_mask: Bool[Tensor, "batch key"] | None = None,
    scale: float | None = None,
    normalise: str | None = "default",
) -> Float[Tensor, "batch head query value"]:
    """The definition above in float64, for the same arguments as `kernel_attention`.

    Each row is shifted by its largest key scale, which (3) and (4) do not see and (5) undoes, so that it holds wherever float64 does.
    """
    root = math.sqrt(q.shape[-1] ** -0.5 if scale is None else scale)
    how = ("rms" if feature_map.signed else "sum") if normalise == "default" else normalise
    allowed = visible(q.shape[2], k.shape[2], is_causal=is_causal, key_mask=key_mask)
    if key_mask is not None:
        k, v = (t.where(key_mask[:, None, :, None], 0) for t in (k, v))
    log_q, phi_q = feature_map(q.double() * root, role="query")
    log_k, phi_k = feature_map(k.double() * root, role="key")
    log_weight = torch.where(allowed, log_k[:, :, None, :], -math.inf)
    top = log_weight.detach().amax(-1, keepdim=True)
    top = top.where(top > -math.inf, 0.0)  # a row without keys: any shift will do
    kernel = phi_q @ phi_k.mT * (log_weight - top).exp()
    out = kernel @ v.double()
    if how == "sum":
        return _divide(out, kernel.sum(-1, keepdim=True))
    if how == "rms":
        return _divide(out, out.square().mean(-1, keepdim=True), root=True)
    out = out * (log_q[..., None] + top).exp()
    return _divide(out, allowed.sum(-1, keepdim=True).double()) if how == "count" else out


def _divide(out: Tensor, by: Tensor, *, root: bool = False) -> Tensor:
    """out / by (or its square root), 0 where `by` is 0, with finite gradients there."""
    safe = torch.where(by == 0, 1.0, by)
    return torch.where(by == 0, 0.0, out / (safe.sqrt() if root else safe))
