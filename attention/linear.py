"""Kernel attention in time linear in the sequence: bidirectional, causal and recurrent, equal to `naive.naive_attention`.

Keys enter through the running sums S = sum_j phi(k_j) (v_j, 1)^T, of which a query reads phi(q)^T S. With true features
phi = exp(log_scale) * features the sums are kept relative to exp(top), where `top` is the largest log scale among the keys *so far*:
adding keys rescales the old sums by exp(old top - new top) <= 1 (the online softmax of flash attention; Milakov and Gimelshein 2018).
`top` cancels exactly in a normalised output, so nothing needs an epsilon, and since a causal row uses the maximum over its own past, a
later key changes no earlier output and cannot make one underflow.

Time is cut into blocks, so that only a block's features exist at once; for training on more than `_STORED` tokens they are recomputed in
the backward pass (a third slower, several times less memory). A causal block holds a few chunks: rows meet keys of their own chunk in a
small triangle of scores, and earlier chunks through sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from attention.feature_map import FeatureMap, described
from particles.arrays import count as as_count
from particles.arrays import flag, positive

_BLOCK = 512  # tokens whose features exist at the same time
_STORED = 4096  # tokens up to which features are kept for the backward pass
_NORMALISE = ("sum", "rms", "count", None)


class State(NamedTuple):
    """Everything that attention remembers of the keys so far.

    The true sums are exp(log_scale) times the stored ones; log_scale is -inf and the sums are 0 before the first key.
    """

    context: Float[Tensor, "batch head feature value"]  # sum of phi(k) v^T
    key_sum: Float[Tensor, "batch head feature"]  # sum of phi(k)
    log_scale: Float[Tensor, "batch head"]
    count: Int[Tensor, " batch"]  # type: ignore[assignment]  # keys attended to

    def index_select(self, index: Int[Tensor, " selected"]) -> State:
        """The states of the batch entries `index`, as beam search reorders them."""
        return State(*(field.index_select(0, index) for field in self))

    def detach(self) -> State:
        """The same values without gradient history."""
        return State(*(field.detach() for field in self))


class _Sums(NamedTuple):
    """sum phi (v, 1)^T relative to exp(top)."""

    sums: Float[Tensor, "batch head feature value_and_1"]
    top: Float[Tensor, "batch head"]


class _Call(NamedTuple):
    """What every block of one call shares."""

    feature_map: FeatureMap
    root: float  # square root of `scale`
    dtype: torch.dtype
    normalise: str | None
    chunk_size: int

    def queries(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """(log_scale (batch, head, time), features (batch, head, time, feature))."""
        return self.feature_map(q.to(self.dtype) * self.root, role="query")

    def keys(self, k: Tensor, v: Tensor, key_mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """(log_scale, features, values with a column of ones). A masked key has log_scale -inf and forgets its content."""
        if key_mask is not None:
            k, v = (t.where(key_mask[:, None, :, None], 0) for t in (k, v))
        log_scale, features = self.feature_map(k.to(self.dtype) * self.root, role="key")
        if key_mask is not None:
            log_scale = log_scale.masked_fill(~key_mask[:, None], -math.inf)
        return log_scale, features, torch.cat((v.to(self.dtype), torch.ones_like(features[..., :1])), -1)


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
    call = _Call(feature_map, root, dtype, how, as_count(chunk_size, "chunk_size"))
    finite = None if key_mask is None else q.isfinite().all(-1, keepdim=True)
    q = q if finite is None else q.where(finite, 0)
    with torch.autocast(q.device.type, enabled=False):
        sums, seen = _start(call, q, v, state)
        out, sums = (_causal if is_causal else _bidirectional)(call, q, k, v, key_mask, sums, seen)
    out = (out if finite is None else out.where(finite, math.nan)).to(v.dtype)
    if not flag(return_state, "return_state"):
        return out
    seen = seen + (k.shape[2] if key_mask is None else key_mask.sum(-1))
    return out, State(sums.sums[..., :-1], sums.sums[..., -1], sums.top, seen)


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


def _start(call: _Call, q: Tensor, v: Tensor, state: State | None) -> tuple[_Sums, Tensor]:
    """The sums before the first key and the number of keys in them, (batch,)."""
    lead = (*q.shape[:2], call.feature_map.feature_dim)
    if state is None:
        zeros = torch.zeros(*lead, v.shape[-1] + 1, dtype=call.dtype, device=q.device)
        return _Sums(zeros, zeros.new_full(lead[:2], -math.inf)), torch.zeros(q.shape[0], dtype=torch.int64, device=q.device)
    shapes = ((*lead, v.shape[-1]), lead, lead[:2], lead[:1])
    for name, field, shape in zip(State._fields, state, shapes):
        if not isinstance(field, Tensor) or field.shape != shape:
            raise ValueError(f"state must have {name} of shape {shape}, got {described(field)}")
    sums = torch.cat((state.context, state.key_sum[..., None]), -1).to(call.dtype)
    return _Sums(sums, state.log_scale.to(call.dtype)), state.count


def _joined(parts: list[Tensor]) -> Tensor:
    return torch.cat(parts, 2) if len(parts) > 1 else parts[0]


def _step(time: int, function: Callable[..., Any], *args: Any) -> Any:
    """function(*args); its intermediate values are recomputed in the backward pass if `time` is long."""
    if time > _STORED and torch.is_grad_enabled():
        return checkpoint(function, *args, use_reentrant=False, preserve_rng_state=False)
    return function(*args)


def _bidirectional(
    call: _Call, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, sums: _Sums, seen: Tensor
) -> tuple[Tensor, _Sums]:
    sums = _absorb_all(call, k, v, key_mask, sums)
    seen = (seen + (k.shape[2] if key_mask is None else key_mask.sum(-1)))[:, None, None]
    return _joined([_step(q.shape[2], _read, call, part, sums, seen) for part in q.split(_BLOCK, 2)]), sums


def _absorb_all(call: _Call, k: Tensor, v: Tensor, key_mask: Tensor | None, sums: _Sums) -> _Sums:
    masks = [None] * -(-k.shape[2] // _BLOCK) if key_mask is None else key_mask.split(_BLOCK, 1)
    for part in zip(k.split(_BLOCK, 2), v.split(_BLOCK, 2), masks):
        sums = _step(k.shape[2], _absorb, call, *part, sums)
    return sums


def _absorb(call: _Call, k: Tensor, v: Tensor, key_mask: Tensor | None, old: _Sums) -> _Sums:
    """Add keys to the sums."""
    log_scale, features, values = call.keys(k, v, key_mask)
    top = torch.maximum(old.top, log_scale.detach().amax(-1))
    new = features.mT @ (values * _exp(log_scale, top[..., None])[..., None])
    return _Sums(old.sums * _exp(old.top, top)[..., None, None] + new, top)


def _read(call: _Call, q: Tensor, sums: _Sums, seen: Tensor) -> Tensor:
    """The outputs of queries that see all keys in the sums."""
    log_scale, features = call.queries(q)
    return _normalised(call, features @ sums.sums, log_scale + sums.top[..., None], seen)


def _causal(call: _Call, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, sums: _Sums, seen: Tensor) -> tuple[Tensor, _Sums]:
    time = q.shape[2]
    past = k.shape[2] - time  # keys that every query sees
    mask = k.new_ones(k.shape[0], k.shape[2], dtype=torch.bool) if key_mask is None else key_mask
    visible = (seen[:, None] + mask.cumsum(-1))[:, past:]
    if past:
        (k_past, k), (v_past, v) = (t.split((past, time), 2) for t in (k, v))
        sums = _absorb_all(call, k_past, v_past, None if key_mask is None else key_mask[:, :past], sums)
    size = max(_BLOCK // call.chunk_size, 1) * call.chunk_size
    masks = [None] * -(-time // size) if key_mask is None else key_mask[:, past:].split(size, 1)
    out = []
    for part in zip(q.split(size, 2), k.split(size, 2), v.split(size, 2), masks, visible.split(size, 1)):
        rows, sums = _step(time, _causal_block, call, *part, sums)
        out.append(rows)
    return _joined(out), sums


def _causal_block(
    call: _Call, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, visible: Tensor, old: _Sums
) -> tuple[Tensor, _Sums]:
    """Outputs of a block of rows and the sums after it. Everything of a chunk is (batch, head, chunk, row, ...)."""
    chunk, time = min(call.chunk_size, q.shape[2]), q.shape[2]
    log_q, phi_q = call.queries(q)
    log_k, phi_k, values = call.keys(k, v, key_mask)
    log_k = _chunks(log_k[..., None], chunk, -math.inf)[..., 0]
    rows, phi_k, values = (_chunks(x, chunk, 0.0) for x in (phi_q, phi_k, values))
    before, after = _prefix(log_k, phi_k, values, old)
    top = torch.maximum(before.top[..., None], log_k.detach().cummax(-1).values)
    total = (rows @ before.sums) * _exp(before.top[..., None], top)[..., None]
    total = total + ((rows @ phi_k.mT) * _lower(log_k, top)) @ values
    total, top = total.flatten(2, 3)[:, :, :time], top.flatten(2)[..., :time]
    return _normalised(call, total, log_q + top, visible[:, None]), after


def _prefix(log_k: Tensor, phi_k: Tensor, values: Tensor, old: _Sums) -> tuple[_Sums, _Sums]:
    """Sums before each chunk, (batch, head, chunk, ...), and after the last. All weights are exp of something <= 0."""
    chunk_top = log_k.detach().amax(-1)
    each = phi_k.mT @ (values * _exp(log_k, chunk_top[..., None])[..., None])
    tops = torch.cat((old.top[..., None], chunk_top), -1)
    running = tops.cummax(-1).values
    stacked = torch.cat((old.sums[:, :, None], each), 2)
    sums = (_lower(tops, running) @ stacked.flatten(3)).view_as(stacked)
    return _Sums(sums[:, :, :-1], running[..., :-1]), _Sums(sums[:, :, -1], running[..., -1])


def _chunks(x: Tensor, chunk: int, fill: float) -> Tensor:
    """(batch, head, time, n) as (batch, head, chunk, row, n), the last chunk filled up."""
    missing = -x.shape[2] % chunk
    return (torch.nn.functional.pad(x, (0, 0, 0, missing), value=fill) if missing else x).unflatten(2, (-1, chunk))


def _exp(log: Tensor, top: Tensor) -> Tensor:
    """exp(log - top) with exp(-inf - -inf) = 0: a sum without keys."""
    return (log - top.where(top > -math.inf, 0.0)).exp()


def _lower(log: Tensor, top: Tensor) -> Tensor:
    """exp(log_j - top_i) for j <= i, else 0; masked before the exponential, so that a later key can neither overflow nor leak."""
    ones = torch.ones(log.shape[-1], log.shape[-1], dtype=torch.bool, device=log.device)
    return _exp(log[..., None, :].masked_fill(ones.triu(1), -math.inf), top[..., None])


def _normalised(call: _Call, total: Tensor, log_scale: Tensor, visible: Tensor) -> Tensor:
    """Output rows from (sum K v, sum K) relative to exp(log_scale); `visible` (batch, 1, row) counts keys."""
    out, by = total[..., :-1], total[..., -1:]
    limit = torch.finfo(total.dtype)
    if call.normalise == "sum":
        return out * _inverse(by, limit.tiny / limit.eps)
    if call.normalise == "rms":
        out = out * _inverse(out.detach().abs().amax(-1, keepdim=True), limit.tiny / limit.eps)  # a constant, so that squares stay in range
        return out * _inverse(out.square().mean(-1, keepdim=True), root=True)
    out = out * log_scale.exp()[..., None]
    return out * _inverse(visible[..., None].to(out.dtype)) if call.normalise == "count" else out


def _inverse(x: Tensor, least: float = 0.0, *, root: bool = False) -> Tensor:
    """1 / x (or 1 / sqrt x), but 0 with zero gradient where |x| <= least."""
    x = x.masked_fill(x.abs() <= least, math.inf)
    return x.rsqrt() if root else x.reciprocal()
