"""One block of time of kernel attention, forward: what `running_sums` strings together and differentiates.

Keys enter through the running sums S = sum_j (v_j, 1) phi(k_j)^T, of which a query reads S phi(q). With true features
phi = exp(log_scale) * features the sums are kept relative to exp(top), where `top` is the largest log scale among the keys *so far*:
adding keys rescales the old sums by exp(old top - new top) <= 1 (the online softmax of flash attention; Milakov and Gimelshein 2018).
`top` cancels exactly in a normalised output, so nothing needs an epsilon, and since a causal row uses the maximum over its own past, a
later key changes no earlier output and cannot make one underflow. Tops are constants to autograd.

A causal block holds a few chunks: rows meet keys of their own chunk in a small triangle of scores, and earlier chunks through sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attention.feature_map import FeatureMap


class Features(Protocol):
    """What computes features in a map's place, remembering what a backward pass needs."""

    def features(self, x: Tensor, role: str, position: Tensor | None) -> tuple[Tensor, Tensor]:
        """As `Call.features`."""


class Call(NamedTuple):
    """What every block of one call shares."""

    feature_map: FeatureMap
    root: float  # square root of `scale`
    dtype: torch.dtype
    normalise: str | None
    chunk_size: int
    tape: Features | None = None

    @property
    def headroom(self) -> float:
        """How far features, and the weights of keys, may exceed 1."""
        own = getattr(self.feature_map, "headroom", None)  # a map may be any module
        return 1.0 if own is None else own(self.dtype)

    @property
    def least(self) -> float:
        """The divisor that has lost its digits: a feature or a weight that underflows meets two factors of `headroom`."""
        limit = torch.finfo(self.dtype)
        return limit.tiny / limit.eps * self.headroom**2

    @property
    def cancels(self) -> bool:
        """Whether a common factor of a row cancels."""
        return self.normalise in ("sum", "rms")

    def level(self, log_scale: Tensor) -> Tensor:
        """What the sums over keys of `log_scale` are relative to, before the largest is taken: their weights are `headroom` at most."""
        return log_scale.detach() - math.log(self.headroom)

    def features(self, x: Tensor, role: str, position: Tensor | None) -> tuple[Tensor, Tensor]:
        """(log_scale (batch, head, time), features (batch, head, time, feature)) of queries or keys."""
        if self.tape is not None:
            return self.tape.features(x, role, position)
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


class Sums(NamedTuple):
    """sum (v, 1) phi^T relative to exp(top); top is -inf and the sums are 0 before the first key.

    Products are faster this way round: the odd number of columns that the 1 makes is one of rows.
    """

    sums: Float[Tensor, "batch head value_and_1 feature"]
    top: Float[Tensor, "batch head"]


class Keys(NamedTuple):
    """Keys and values with what is known of their places."""

    k: Float[Tensor, "batch head key dim"]
    v: Float[Tensor, "batch head key value"]
    mask: Bool[Tensor, "batch key"] | None  # True = attend
    position: Int[Tensor, "#batch key"] | None  # for maps that depend on it

    def span(self, start: int, stop: int) -> Keys:
        """The keys start <= j < stop."""
        return Keys(*(x[:, :, start:stop] for x in self[:2]), *(None if x is None else x[:, start:stop] for x in self[2:]))


class Queries(NamedTuple):
    """Queries with what is known of their places."""

    q: Float[Tensor, "batch head query dim"]
    visible: Int[Tensor, "batch query"] | None  # keys that a query attends to: counted for normalise="count" only
    position: Int[Tensor, "#batch query"] | None

    def span(self, start: int, stop: int) -> Queries:
        """The queries start <= i < stop."""
        return Queries(self.q[:, :, start:stop], *(None if x is None else x[:, start:stop] for x in self[1:]))


def absorb(call: Call, keys: Keys, old: Sums) -> Sums:
    """Add keys to the sums."""
    log_scale, features, values = call.keys(*keys)
    top = torch.maximum(old.top.detach(), call.level(log_scale).amax(-1))
    new = (values * exp(log_scale, top[..., None])[..., None]).mT @ features
    return Sums(old.sums * exp(old.top, top)[..., None, None] + new, top)


def read(call: Call, queries: Queries, sums: Sums) -> Rows:
    """The rows of queries that see all keys in the sums."""
    log_scale, features = call.features(queries.q, "query", queries.position)
    return rows(call, features @ sums.sums.mT, log_scale if call.cancels else log_scale + sums.top[..., None], queries.visible)


class Chunks(NamedTuple):
    """A causal block as (batch, head, chunk, row, ...), and the sums before each chunk. All weights are `headroom` at most."""

    phi_q: Tensor
    phi_k: Tensor
    values: Tensor
    before: Tensor  # (batch, head, chunk, value_and_1, feature)
    after: Sums
    kept: Tensor  # (batch, head, chunk, 1, 1): weight of the sums before a chunk in those after it
    weight: Tensor  # (batch, head, chunk, row, 1), of a key in the sums after its chunk
    top: Tensor  # (batch, head, chunk, row): what a row's total is relative to
    old: Tensor  # (batch, head, chunk, row, 1): weight of `before` in a row
    near: Tensor  # (batch, head, chunk, row, row): weights of the scores within a chunk, of no meaning above the diagonal

    def scores(self) -> Tensor:
        """The weighted scores within a chunk."""
        return lower(self.phi_q @ self.phi_k.mT, self.near)

    def total(self) -> Tensor:
        """(sum K v, sum K) of every row relative to exp(top)."""
        return (self.phi_q @ self.before.mT).mul_(self.old).add_(self.scores() @ self.values)


def chunks(call: Call, phi_q: Tensor, log_k: Tensor, phi_k: Tensor, values: Tensor, old: Sums) -> Chunks:
    """A causal block cut into chunks, the last one filled up with masked keys."""
    size = min(call.chunk_size, phi_q.shape[2])
    log_k = in_chunks(log_k, size, -math.inf)
    phi_q, phi_k, values = (in_chunks(x, size) for x in (phi_q, phi_k, values))
    level = call.level(log_k)
    running = torch.cat((old.top.detach()[..., None], level.amax(-1)), -1).cummax(-1).values
    begin = torch.cat((old.top[..., None], running[..., 1:-1]), -1)  # the same before each chunk, with the history of a state
    kept, weight = exp(begin, running[..., 1:])[..., None, None], exp(log_k, running[..., 1:, None])[..., None]
    sums = accumulated(old.sums, ((values * weight).mT @ phi_k).unbind(2), kept.unbind(2))
    before, after = torch.stack(sums[:-1], 2), Sums(sums[-1], running[..., -1])
    top = torch.maximum(running[..., :-1, None], level.cummax(-1).values)
    far, near = exp(begin[..., None], top)[..., None], pairwise(log_k, top, math.log(call.headroom))
    return Chunks(phi_q, phi_k, values, before, after, kept, weight, top, far, near)


def accumulated(total: Tensor, parts: Iterable[Tensor], weights: Iterable[Tensor]) -> list[Tensor]:
    """`total`, and what becomes of it when it is multiplied by a weight and a part is added, again and again."""
    totals = [total]
    for part, weight in zip(parts, weights):
        totals.append(torch.addcmul(part, totals[-1], weight))
    return totals


def causal_block(call: Call, queries: Queries, keys: Keys, old: Sums) -> tuple[Rows, Sums]:
    """A block of rows and the sums after it."""
    log_q, phi_q = call.features(queries.q, "query", queries.position)
    block = chunks(call, phi_q, *call.keys(*keys), old)
    time = phi_q.shape[2]
    total, top = block.total().flatten(2, 3)[:, :, :time], block.top.flatten(2)[..., :time]
    return rows(call, total, log_q if call.cancels else log_q + top, queries.visible), block.after


def in_chunks(x: Tensor, size: int, fill: float = 0.0) -> Tensor:
    """(batch, head, time, ...) as (batch, head, chunk, row, ...), the last chunk filled up."""
    missing = -x.shape[2] % size
    return (torch.nn.functional.pad(x, (0, 0) * (x.ndim - 3) + (0, missing), value=fill) if missing else x).unflatten(2, (-1, size))


def exp(log: Tensor, top: Tensor) -> Tensor:
    """exp(log - top) with exp(-inf - -inf) = 0: a sum without keys."""
    return (log - top.clamp(min=torch.finfo(top.dtype).min)).exp()


def pairwise(log: Tensor, top: Tensor, most: float) -> Tensor:
    """exp(log_j - top_i), which is right up to exp(most) and does not overflow beyond."""
    difference = log[..., None, :] - top.clamp(min=torch.finfo(top.dtype).min)[..., None]
    return difference.clamp_(max=most + 1.0).exp_()


def lower(product: Tensor, weight: Tensor) -> Tensor:
    """product_ij weight_ij for j <= i, else 0 whatever they are: a later key cannot leak."""
    return (product * weight).tril()  # in place it has no batching rule under vmap


class Rows(NamedTuple):
    """Rows of the output and what multiplied their numerators."""

    out: Float[Tensor, "batch head query value"]
    factor: Float[Tensor, "batch head query 1"]


def rows(call: Call, total: Tensor, log_scale: Tensor, visible: Tensor | None) -> Rows:
    """Rows from (sum K v, sum K) relative to exp(log_scale), which may be anything where it cancels; `visible` (batch, row) counts keys."""
    if call.normalise == "part":  # to be joined with other parts of the same rows: (numerator, denominator, log scale)
        return Rows(torch.cat((total, log_scale[..., None]), -1), torch.ones_like(log_scale[..., None]))
    out, by = total[..., :-1], total[..., -1:]
    if call.normalise == "sum":
        by = by.masked_fill(by.abs() <= call.least, math.inf)
        return Rows(out / by, by.detach().reciprocal())  # a product would have the square of an inverse in its derivative, out of range
    if call.normalise == "rms":
        size = inverse(out.detach().abs().amax(-1, keepdim=True), call.least)  # a constant, so that squares stay in range
        factor = size * inverse((out * size).square().mean(-1, keepdim=True), root=True)
    else:
        factor = log_scale.exp()[..., None]
        if visible is not None:
            factor = factor * inverse(visible[:, None, :, None].to(out.dtype))
    return Rows(out * factor, factor)


def inverse(x: Tensor, least: float = 0.0, *, root: bool = False) -> Tensor:
    """1 / x (or 1 / sqrt x), but 0 with zero gradient where |x| <= least."""
    x = x.masked_fill(x.abs() <= least, math.inf)
    return x.rsqrt() if root else x.reciprocal()
