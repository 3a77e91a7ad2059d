"""Kernel attention in time linear in the sequence: bidirectional, causal and recurrent, equal to `naive.naive_attention`."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from attention.feature_map import FeatureMap, described
from attention.running_sums import Call, State, attend
from particles.arrays import count as as_count
from particles.arrays import flag, positive

_NORMALISE = ("sum", "rms", "count", None)


def kernel_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    feature_map: FeatureMap,
    *,
    is_causal: bool = False,
    key_mask: Tensor | None = None,
    scale: float | None = None,
    normalise: str | None = "default",
    state: State | None = None,
    return_state: bool = False,
    chunk_size: int = 64,
) -> Any:
    """Attention with the kernel K(q, k) = phi(q).phi(k) of a feature map, in O(time) (Coulomb paper, App. D).

    Parameters
    ----------
    q, k, v : (batch, head, time, dim), any float types and strides. Features and sums are computed in float32 at least, autocast or not;
        the output has v's type.
    feature_map : maps scale^(1/2) q and scale^(1/2) k to features.
    is_causal : query i sees key j when j <= i + (number of keys) - (number of queries): aligned bottom-right, as a cache needs. A later
        key or value of any finite size changes no bit of an earlier row; one that is not finite spoils the rows of its chunk.
    key_mask : (batch, key), True = attend. What a masked key or value holds, NaN included, changes neither outputs nor gradients, and
        its own gradient is 0. A query that is not finite gets NaN in its own row; with a mask it disturbs no gradient of other rows.
    scale : factor of q.k as in torch's SDPA; dim**-0.5 if None.
    normalise : "sum" divides by the sum of the kernel over visible keys, "rms" divides each head's output by its root mean square over
        the value axis, "count" by the number of visible keys, None by nothing. By default "sum" for positive maps and "rms" for signed
        ones, whose sums can vanish.
    state : sums over earlier keys, which every query sees.
    return_state : also return the `State` after these keys.
    chunk_size : causal only: time is processed in chunks of so many tokens. Speed and rounding depend on it, nothing else.

    Returns
    -------
    out (batch, head, query, value), or (out, State).

    A row with no visible key, or whose divisor is 0, is 0 with zero gradient. A divisor below `tiny / eps` of the arithmetic (1e-31 in
    float32, 1e-292 in float64), relative to the largest key scale, counts as 0: it has lost its digits to underflow. Measured in
    float32 with q, k ~ c N(0, I), dim 64, 128 features, against logarithms in float64: "favor" has no such row up to c = 10 (worst row
    3e-5 off), 61 % at c = 30, 95 % at c = 100; "softmaxfeat" 12 % at c = 100; "softplus" and "elu" none (worst row 6e-7 off). None and
    "count" return the kernel's own size and overflow where it does.

    Raises
    ------
    ValueError
        On shapes that do not fit, a mask that is not boolean (batch, key), an empty time axis, more queries than keys in a causal call, a
        scale that is not positive, an unknown normaliser or a state of another shape.
    """
    _check(q, k, v, flag(is_causal, "is_causal"), key_mask)
    if not isinstance(feature_map, torch.nn.Module):
        raise ValueError(f"feature_map must be a FeatureMap, got {feature_map!r}")
    if not isinstance(state, State | None):
        raise ValueError(f"state must be a State or None, got a {type(state).__name__}")
    if normalise not in (*_NORMALISE, "default"):
        raise ValueError(f"normalise must be one of {_NORMALISE}, got {normalise!r}")
    dtype = torch.float32
    for tensor in (q, k, v, feature_map.omega, *(() if state is None else state[:3])):
        dtype = torch.promote_types(dtype, tensor.dtype)
    how = ("rms" if feature_map.signed else "sum") if normalise == "default" else normalise
    root = math.sqrt(q.shape[-1] ** -0.5 if scale is None else positive(scale, "scale"))
    call = Call(feature_map, root, dtype, how, as_count(chunk_size, "chunk_size"))
    finite = None if key_mask is None else q.isfinite().all(-1, keepdim=True)
    q = q if finite is None else q.where(finite, 0)
    with torch.autocast(q.device.type, enabled=False):
        out, after = attend(call, q, k, v, key_mask, state, is_causal=is_causal)
    out = (out if finite is None else out.where(finite, math.nan)).to(v.dtype)
    return (out, after) if flag(return_state, "return_state") else out


def _check(q: Tensor, k: Tensor, v: Tensor, is_causal: bool, key_mask: Tensor | None) -> None:
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not isinstance(tensor, Tensor) or tensor.ndim != 4 or not tensor.is_floating_point() or 0 in tensor.shape:
            raise ValueError(f"{name} must be float (batch, head, time, dim), none of them 0, got {described(tensor)}")
    if k.shape[:2] != q.shape[:2] or k.shape[3] != q.shape[3]:
        raise ValueError(f"k must have q's batch, head and dim, got k {tuple(k.shape)} and q {tuple(q.shape)}")
    if v.shape[:3] != k.shape[:3]:
        raise ValueError(f"v must have k's batch, head and time, got v {tuple(v.shape)} and k {tuple(k.shape)}")
    if is_causal and q.shape[2] > k.shape[2]:
        raise ValueError(f"a causal q must not be longer than k, got {q.shape[2]} queries and {k.shape[2]} keys")
    if key_mask is None:
        return
    if not isinstance(key_mask, Tensor) or key_mask.dtype != torch.bool or key_mask.shape != (k.shape[0], k.shape[2]):
        raise ValueError(
            f"key_mask must be bool (batch, key) = {(k.shape[0], k.shape[2])}, got {described(key_mask)}; "
            "linear attention cannot take a mask of single query-key pairs"
        )
