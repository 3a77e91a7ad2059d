"""The running sums behind `kernel_attention`: bidirectional blocks, causal chunks and the recurrent state.

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
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from attention.feature_map import FeatureMap, described

_BLOCK = 512  # tokens whose features exist at the same time
_STORED = 4096  # tokens up to which features are kept for the backward pass


class State(NamedTuple):
    """Everything that attention remembers of the keys so far.

    The true sums are exp(log_scale) times the stored ones; log_scale is -inf and the sums are 0 before the first key.
    """

    context: Float[Tensor, "batch head feature value"]  # sum of phi(k) v^T
    key_sum: Float[Tensor, "batch head feature"]  # sum of phi(k)
    log_scale: Float[Tensor, "batch head"]
    count: Int[Tensor, " batch"]  # type: ignore[assignment]  # keys attended to
    position: Int[Tensor, " batch"]  # tokens seen, masked ones included

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


class Call(NamedTuple):
    """What every block of one call shares."""

    feature_map: FeatureMap
    root: float  # square root of `scale`
    dtype: torch.dtype
    normalise: str | None
    chunk_size: int

    @property
    def headroom(self) -> float:
        """How far features, and the weights of keys, may exceed 1."""
        return self.feature_map.headroom(self.dtype) if isinstance(self.feature_map, FeatureMap) else 1.0

    @property
    def least(self) -> float:
        """The divisor that has lost its digits: a feature or a weight that underflows meets two factors of `headroom`."""
        limit = torch.finfo(self.dtype)
        return limit.tiny / limit.eps * self.headroom**2

    def level(self, log_scale: Tensor) -> Tensor:
        """What the sums over keys of `log_scale` are relative to, before the largest is taken: their weights are `headroom` at most."""
        return log_scale.detach() - math.log(self.headroom)

    def features(self, x: Tensor, role: str, position: Tensor | None) -> tuple[Tensor, Tensor]:
        """(log_scale (batch, head, time), features (batch, head, time, feature)) of queries or keys."""
        where = {} if position is None else {"position": position}
        return self.feature_map(x.to(self.dtype) * self.root, role=role, **where)

    def keys(self, k: Tensor, v: Tensor, key_mask: Tensor | None, position: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """(log_scale, features, values with a column of ones). A masked key has log_scale -inf and forgets its content."""
        if key_mask is not None:
            k, v = (t.where(key_mask[:, None, :, None], 0) for t in (k, v))
        log_scale, features = self.features(k, "key", position)
        if key_mask is not None:
            log_scale = log_scale.masked_fill(~key_mask[:, None], -math.inf)
        return log_scale, features, torch.cat((v.to(self.dtype), torch.ones_like(features[..., :1])), -1)


def attend(
    call: Call,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_mask: Tensor | None,
    state: State | None,
    *,
    is_causal: bool,
    positions: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, State]:
    """Checked arguments of `kernel_attention` to (out (batch, head, query, value) in call.dtype, the state after these keys).

    positions : of queries and keys, each (batch or 1, time), passed on to a map whose features depend on them.
    """
    sums, seen = _start(call, q, v, state)
    past = 0 if state is None else state.position
    out, sums = (_causal if is_causal else _bidirectional)(call, q, k, v, key_mask, sums, seen, *(positions or (None, None)))
    added = k.shape[2] if key_mask is None else key_mask.sum(-1)
    position = torch.full_like(seen, k.shape[2]) + past
    return out, State(sums.sums[..., :-1], sums.sums[..., -1], sums.top, seen + added, position)


def _start(call: Call, q: Tensor, v: Tensor, state: State | None) -> tuple[_Sums, Tensor]:
    """The sums before the first key and the number of keys in them, (batch,)."""
    lead = (*q.shape[:2], call.feature_map.feature_dim)
    if state is None:
        zeros = torch.zeros(*lead, v.shape[-1] + 1, dtype=call.dtype, device=q.device)
        return _Sums(zeros, zeros.new_full(lead[:2], -math.inf)), torch.zeros(q.shape[0], dtype=torch.int64, device=q.device)
    shapes = ((*lead, v.shape[-1]), lead, lead[:2], lead[:1], lead[:1])
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
    call: Call,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_mask: Tensor | None,
    sums: _Sums,
    seen: Tensor,
    q_position: Tensor | None,
    k_position: Tensor | None,
) -> tuple[Tensor, _Sums]:
    sums = _absorb_all(call, k, v, key_mask, k_position, sums)
    seen = (seen + (k.shape[2] if key_mask is None else key_mask.sum(-1)))[:, None, None]
    parts = zip(q.split(_BLOCK, 2), _split(q_position, _BLOCK, q.shape[2]))
    return _joined([_step(q.shape[2], _read, call, *part, sums, seen) for part in parts]), sums


def _split(x: Tensor | None, size: int, time: int) -> Sequence[Tensor | None]:
    """Pieces of x (batch, time) along time, or as many Nones."""
    return [None] * -(-time // size) if x is None else x.split(size, 1)


def _absorb_all(call: Call, k: Tensor, v: Tensor, key_mask: Tensor | None, position: Tensor | None, sums: _Sums) -> _Sums:
    parts = (_split(x, _BLOCK, k.shape[2]) for x in (key_mask, position))
    for part in zip(k.split(_BLOCK, 2), v.split(_BLOCK, 2), *parts):
        sums = _step(k.shape[2], _absorb, call, *part, sums)
    return sums


def _absorb(call: Call, k: Tensor, v: Tensor, key_mask: Tensor | None, position: Tensor | None, old: _Sums) -> _Sums:
    """Add keys to the sums."""
    log_scale, features, values = call.keys(k, v, key_mask, position)
    top = torch.maximum(old.top, call.level(log_scale).amax(-1))
    new = features.mT @ (values * _exp(log_scale, top[..., None])[..., None])
    return _Sums(old.sums * _exp(old.top, top)[..., None, None] + new, top)


def _read(call: Call, q: Tensor, position: Tensor | None, sums: _Sums, seen: Tensor) -> Tensor:
    """The outputs of queries that see all keys in the sums."""
    log_scale, features = call.features(q, "query", position)
    return normalised(call, features @ sums.sums, log_scale + sums.top[..., None], seen)


def _causal(
    call: Call,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_mask: Tensor | None,
    sums: _Sums,
    seen: Tensor,
    q_position: Tensor | None,
    k_position: Tensor | None,
) -> tuple[Tensor, _Sums]:
    time = q.shape[2]
    past = k.shape[2] - time  # keys that every query sees
    mask = k.new_ones(k.shape[0], k.shape[2], dtype=torch.bool) if key_mask is None else key_mask
    visible = (seen[:, None] + mask.cumsum(-1))[:, past:]
    if past:
        (k_past, k), (v_past, v) = (t.split((past, time), 2) for t in (k, v))
        mask_past, position_past = (None if x is None else x[:, :past] for x in (key_mask, k_position))
        sums = _absorb_all(call, k_past, v_past, mask_past, position_past, sums)
    size = max(_BLOCK // call.chunk_size, 1) * call.chunk_size
    rest = (_split(None if x is None else x[:, -time:], size, time) for x in (key_mask, visible, q_position, k_position))
    out = []
    for part in zip(q.split(size, 2), k.split(size, 2), v.split(size, 2), *rest):
        rows, sums = _step(time, _causal_block, call, *part, sums)
        out.append(rows)
    return _joined(out), sums


def _causal_block(
    call: Call,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_mask: Tensor | None,
    visible: Tensor,
    q_position: Tensor | None,
    k_position: Tensor | None,
    old: _Sums,
) -> tuple[Tensor, _Sums]:
    """Outputs of a block of rows and the sums after it. Everything of a chunk is (batch, head, chunk, row, ...)."""
    chunk, time = min(call.chunk_size, q.shape[2]), q.shape[2]
    log_q, phi_q = call.features(q, "query", q_position)
    log_k, phi_k, values = call.keys(k, v, key_mask, k_position)
    log_k = _chunks(log_k[..., None], chunk, -math.inf)[..., 0]
    rows, phi_k, values = (_chunks(x, chunk, 0.0) for x in (phi_q, phi_k, values))
    before, after = _prefix(call, log_k, phi_k, values, old)
    top = torch.maximum(before.top[..., None], call.level(log_k).cummax(-1).values)
    total = (rows @ before.sums) * _exp(before.top[..., None], top)[..., None]
    total = total + ((rows @ phi_k.mT) * _lower(log_k, top)) @ values
    total, top = total.flatten(2, 3)[:, :, :time], top.flatten(2)[..., :time]
    return normalised(call, total, log_q + top, visible[:, None]), after


def _prefix(call: Call, log_k: Tensor, phi_k: Tensor, values: Tensor, old: _Sums) -> tuple[_Sums, _Sums]:
    """Sums before each chunk, (batch, head, chunk, ...), and after the last. All weights are `headroom` at most."""
    chunk_top = call.level(log_k).amax(-1)
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


def normalised(call: Call, total: Tensor, log_scale: Tensor, visible: Tensor) -> Tensor:
    """Output rows from (sum K v, sum K) relative to exp(log_scale); `visible` (batch, 1, row) counts keys."""
    if call.normalise == "part":  # to be joined with other parts of the same rows: (numerator, denominator, log scale)
        return torch.cat((total, log_scale[..., None]), -1)
    out, by = total[..., :-1], total[..., -1:]
    if call.normalise == "sum":
        return out / by.masked_fill(by.abs() <= call.least, math.inf)  # the square of an inverse could leave the range
    if call.normalise == "rms":
        out = out * _inverse(out.detach().abs().amax(-1, keepdim=True), call.least)  # a constant, so that squares stay in range
        return out * _inverse(out.square().mean(-1, keepdim=True), root=True)
    out = out * log_scale.exp()[..., None]
    return out * _inverse(visible[..., None].to(out.dtype)) if call.normalise == "count" else out


def _inverse(x: Tensor, least: float = 0.0, *, root: bool = False) -> Tensor:
    """1 / x (or 1 / sqrt x), but 0 with zero gradient where |x| <= least."""
    x = x.masked_fill(x.abs() <= least, math.inf)
    return x.rsqrt() if root else x.reciprocal()
