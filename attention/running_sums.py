"""Attention by running sums over blocks of time: one forward pass, and a backward pass that works on one block at a time.

The forward pass (`blocks`) is differentiable by itself. Training goes through `_Attention` instead, whose backward pass needs q, k, v, the
output, a factor a row and the sums before each block. Features are kept for it while they are few, otherwise a block's are computed again:
beyond `_KEPT` numbers memory grows by a few numbers per token, whatever the map. Gradients of the map are a `Tape`'s, so that any module
will do; its parameters and buffers are taken as its arguments, and a tensor with gradient history must be one of them. Second derivatives,
torch.func, forward-mode derivatives and torch.compile use the differentiable forward pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from attention import blocks
from attention.blocks import Call, Chunks, Keys, Queries, Rows, State, Sums, exp
from attention.tape import ExponentialTape, Given, Tape

__all__ = ["Call", "State", "attend", "normalised"]

_BLOCK = 512  # tokens whose features exist at the same time
_KEPT = 2**23  # features of all queries and keys that are kept for the backward pass


class Layout(NamedTuple):
    """What of a call has no gradient."""

    is_causal: bool
    mask: Tensor | None
    visible: Tensor | None
    positions: tuple[Tensor | None, Tensor | None]

    def queries(self, q: Tensor) -> Queries:
        """q with what belongs to it."""
        return Queries(q, self.visible, self.positions[0])

    def keys(self, k: Tensor, v: Tensor) -> Keys:
        """k and v with what belongs to them."""
        return Keys(k, v, self.mask, self.positions[1])

    def past(self, q: Tensor, k: Tensor) -> int:
        """How many keys every query sees."""
        return k.shape[2] - q.shape[2] if self.is_causal else k.shape[2]


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
    old = _start(call, q, v, state)
    count, position = _counted(k, key_mask, state)
    layout = Layout(is_causal, key_mask, _visible(call, q, k, key_mask, count, is_causal), positions or (None, None))
    tensors = dict(call.feature_map.named_parameters()) | dict(call.feature_map.named_buffers())
    inputs = (q, k, *tensors.values(), v, *old)
    if _is_transformed(inputs):
        (out, _), after, _ = _forward(call, layout, q, k, v, old)
    else:
        numbers = q.shape[0] * q.shape[1] * (q.shape[2] + k.shape[2]) * call.feature_map.feature_dim
        keep = torch.is_grad_enabled() and numbers <= _KEPT and not _is_saved_elsewhere()
        out, *pair = _Attention.apply(call, layout, list(tensors), keep, *inputs)
        after = Sums(*pair)
    return out, State(after.sums[..., :-1, :].mT, after.sums[..., -1, :], after.top, count, position)


def normalised(call: Call, total: Tensor, log_scale: Tensor, visible: Tensor) -> Tensor:
    """Output rows from (sum K v, sum K) relative to exp(log_scale); `visible` (batch, 1, row) counts keys."""
    return blocks.rows(call, total, log_scale, visible[:, 0] if call.normalise == "count" else None).out


def _start(call: Call, q: Tensor, v: Tensor, state: State | None) -> Sums:
    """The sums before the first key."""
    if state is None:
        zeros = torch.zeros(*q.shape[:2], v.shape[-1] + 1, call.feature_map.feature_dim, dtype=call.dtype, device=q.device)
        return Sums(zeros, zeros.new_full(q.shape[:2], -torch.inf))
    return Sums(torch.cat((state.context.mT, state.key_sum[..., None, :]), -2).to(call.dtype), state.log_scale.to(call.dtype))


def _counted(k: Tensor, key_mask: Tensor | None, state: State | None) -> tuple[Tensor, Tensor]:
    """(keys attended to, tokens seen) after this call, each (batch,)."""
    time = torch.full((k.shape[0],), k.shape[2], dtype=torch.int64, device=k.device)
    added = time if key_mask is None else key_mask.sum(-1)
    return (added, time) if state is None else (state.count + added, state.position + time)


def _visible(call: Call, q: Tensor, k: Tensor, key_mask: Tensor | None, count: Tensor, is_causal: bool) -> Tensor | None:
    """Keys that each query attends to, (batch, query), where they are asked for."""
    if call.normalise != "count":
        return None
    if not is_causal:
        return count[:, None].expand(-1, q.shape[2])
    mask = (torch.ones_like(k[:, 0, :, 0]) if key_mask is None else key_mask).long()
    later = mask.flip(1).cumsum(-1).flip(1) - mask  # keys that a row does not see
    return (count[:, None] - later)[:, -q.shape[2] :]


def _is_transformed(inputs: Iterable[Tensor]) -> bool:
    """Whether a backward pass of our own would be in the way of a transformation of the whole computation."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return True
    return any(forward_ad.unpack_dual(x).tangent is not None for x in inputs)


def _is_saved_elsewhere() -> bool:
    """Whether autograd has been asked not to hold tensors (checkpoints, offloading), as a tape that keeps features would."""
    return torch._C._autograd._top_saved_tensors_default_hooks(False) is not None


def _spans(start: int, stop: int) -> list[tuple[int, int]]:
    return [(a, min(a + _BLOCK, stop)) for a in range(start, stop, _BLOCK)]


def _forward(call: Call, layout: Layout, q: Tensor, k: Tensor, v: Tensor, old: Sums) -> tuple[Rows, Sums, list[Sums]]:
    """All rows, the sums after the last key, and the sums that each causal block starts from (or that all queries read)."""
    keys, queries, past = layout.keys(k, v), layout.queries(q), layout.past(q, k)
    for span in _spans(0, past):
        old = blocks.absorb(call, keys.span(*span), old)
    together, sums = _Together(q.shape[2]), [old]
    for start, stop in _spans(0, q.shape[2]):
        part = queries.span(start, stop)
        if layout.is_causal:
            row, after = blocks.causal_block(call, part, keys.span(past + start, past + stop), sums[-1])
            sums.append(after)
        else:
            row = blocks.read(call, part, old)
        together.add(start, row)
        del row  # before the next block
    return together.rows(), sums[-1], sums


class _Together:
    """Blocks of rows along time; without gradients each is put in its place while it is at hand, and let go."""

    def __init__(self, time: int) -> None:
        self.time = time
        self.parts: list[Rows] = []
        self.whole: list[Tensor] = []

    def add(self, start: int, rows: Rows) -> None:
        """The rows from `start` on, behind those that are there."""
        if torch.is_grad_enabled() or rows.out.shape[2] == self.time:
            self.parts.append(rows)
            return
        self.whole = self.whole or [x.new_empty(*x.shape[:2], self.time, x.shape[3]) for x in rows]
        for whole, part in zip(self.whole, rows):
            whole[:, :, start : start + part.shape[2]] = part

    def rows(self) -> Rows:
        """All of them."""
        return Rows(*(self.whole or (torch.cat(parts, 2) for parts in zip(*self.parts))))


class _Attention(torch.autograd.Function):
    """`_forward` with a backward pass of its own."""

    @staticmethod
    def forward(ctx: Any, call: Call, layout: Layout, names: list[str], keep: bool, *inputs: Tensor) -> Any:
        q, k, *tensors, v, sums, top = inputs
        needs = ctx.needs_input_grad[4:]
        kind = ExponentialTape if ExponentialTape.suits(call, q.shape[-1]) else Tape
        ctx.tape = kind(call, dict(zip(names, tensors)), needs, keep=keep and any(needs))
        ctx.call, ctx.layout, ctx.names = call, layout, names
        (out, factor), after, saved = _forward(call._replace(tape=ctx.tape), layout, q, k, v, Sums(sums, top))
        ctx.save_for_backward(*inputs, out, factor, *(x for pair in saved for x in pair))
        ctx.mark_non_differentiable(after.top)
        return out, *after

    @staticmethod
    def backward(ctx: Any, d_out: Tensor, d_sums: Tensor, _: Any) -> Any:
        needs = ctx.needs_input_grad[4:]
        saved = ctx.saved_tensors  # once: checkpoints do not give them twice
        inputs, (out, factor, *flat) = saved[: len(needs)], saved[len(needs) :]
        with torch.autocast(d_out.device.type, enabled=False):
            if torch.is_grad_enabled():
                return None, None, None, None, *_differentiable(ctx, inputs, needs, d_out, d_sums)
            ctx.tape.rewind()
            sums = [Sums(*pair) for pair in zip(flat[::2], flat[1::2])]
            backward = _Backward(ctx.call._replace(tape=ctx.tape), ctx.layout, ctx.tape, inputs, needs)
            d_sums = backward.rows(Rows(out, factor), sums, d_out, d_sums)
            return None, None, None, None, *backward.start(sums[0], d_sums)


def _differentiable(ctx: Any, inputs: Any, needs: Any, d_out: Tensor, d_sums: Tensor) -> list[Tensor | None]:
    """The gradients with a history, for second derivatives.

    They are taken in aliases of the inputs, since an input may depend on another one (k = q, a state on omega): engines add that up.
    """
    inputs = [x.view_as(x) for x in inputs]
    q, k, *tensors, v, sums, top = inputs
    call = ctx.call._replace(tape=Given(ctx.call, dict(zip(ctx.names, tensors))))
    (out, _), after, _ = _forward(call, ctx.layout, q, k, v, Sums(sums, top))
    wanted = [x for x, need in zip(inputs, needs) if need]
    grads = iter(torch.autograd.grad((out, after.sums), wanted, (d_out, d_sums), create_graph=True, allow_unused=True))
    return [next(grads) if need else None for need in needs]


class _Backward:
    """Gradients of one call, gathered over its blocks from the last one to the first."""

    def __init__(self, call: Call, layout: Layout, tape: Tape, inputs: Any, needs: Any) -> None:
        q, k, *_, v, sums, top = inputs
        self.call, self.layout, self.tape, self.needs = call, layout, tape, needs
        self.keys, self.queries, self.past, self.old = layout.keys(k, v), layout.queries(q), layout.past(q, k), Sums(sums, top)
        self.q, self.k, self.v = (torch.empty_like(x) if need else None for x, need in zip((q, k, v), (*needs[:2], needs[-3])))

    def rows(self, rows: Rows, sums: list[Sums], d_out: Tensor, d_sums: Tensor) -> Tensor:
        """Through all queries, and the causal keys with them; returns the gradient of the sums before those."""
        for i, (start, stop) in reversed(list(enumerate(_spans(0, self.queries.q.shape[2])))):
            at = slice(start, stop)
            d_total, d_log = self._total(*(x[:, :, at] for x in (*rows, d_out)))
            if self.layout.is_causal:
                d_sums = self._causal(start, stop, sums[i], d_total, d_log, d_sums)
            else:
                features = self._features(start, stop)
                _put(self.q, at, self.tape.pull(d_total @ sums[0].sums, d_log))
                d_sums = d_sums + d_total.mT @ features
        return d_sums

    def start(self, sums: Sums, d_sums: Tensor) -> list[Tensor | None]:
        """Through the keys that all queries see; returns the gradients of all inputs."""
        for start, stop in reversed(_spans(0, self.past)):
            log_scale, features, values = self.call.keys(*self.keys.span(start, stop))
            weight = exp(log_scale, sums.top[..., None])[..., None]
            self._put_keys(slice(start, stop), (values * weight) @ d_sums, (features @ d_sums.mT) * weight, values)
        d_old = d_sums * exp(self.old.top, sums.top)[..., None, None]
        d_top = (d_old * self.old.sums).sum((-2, -1)) if self.needs[-1] else None
        return [
            self.q,
            self.k,
            *(self.tape.grads.get(name) for name in self.tape.tensors),
            self.v,
            d_old if self.needs[-2] else None,
            d_top,
        ]

    def _features(self, start: int, stop: int) -> Tensor:
        q, _, position = self.queries.span(start, stop)
        return self.call.features(q, "query", position)[1]

    def _total(self, out: Tensor, factor: Tensor, d_out: Tensor) -> tuple[Tensor, Tensor | None]:
        """Gradients of a row's (sum K v, sum K) and of its log scale, None where that cancels."""
        how = self.call.normalise
        if how == "part":
            return d_out[..., :-1], d_out[..., -1]
        along = (d_out * out).sum(-1, keepdim=True)
        if how == "sum":
            return torch.cat((d_out, -along), -1) * factor, None
        zero = torch.zeros_like(along)
        if how == "rms":
            return torch.cat((d_out - out * (along / out.shape[-1]), zero), -1) * factor, None
        return torch.cat((d_out, zero), -1) * factor, along[..., 0]

    def _causal(self, start: int, stop: int, old: Sums, d_total: Tensor, d_log: Tensor | None, d_after: Tensor) -> Tensor:
        """Through a causal block; returns the gradient of the sums before it."""
        log_k, phi_k, values = self.call.keys(*self.keys.span(self.past + start, self.past + stop))
        key_block = self.tape.block
        block = blocks.chunks(self.call, self._features(start, stop), log_k, phi_k, values, old)
        d_old, *grads = _through_chunks(block, d_total, d_after)
        d_phi_q, d_phi_k, d_values = (x.flatten(2, 3)[:, :, : stop - start] for x in grads)
        _put(self.q, slice(start, stop), self.tape.pull(d_phi_q, d_log))
        self.tape.block = key_block
        self._put_keys(slice(self.past + start, self.past + stop), d_phi_k, d_values, values)
        return d_old

    def _put_keys(self, at: slice, d_features: Tensor, d_values: Tensor, values: Tensor) -> None:
        """Through the features of keys; a weight and its row of values are a product, which gives the gradient of the log scale."""
        d_k = self.tape.pull(d_features, (d_values * values).sum(-1))
        mask = None if self.keys.mask is None else self.keys.mask[:, None, at, None]
        for to, grad in ((self.k, d_k), (self.v, d_values[..., :-1])):
            _put(to, at, grad if grad is None or mask is None else grad.where(mask, 0))


def _put(to: Tensor | None, at: slice, grad: Tensor | None) -> None:
    if to is not None:
        to[:, :, at] = 0 if grad is None else grad


def _through_chunks(block: Chunks, d_total: Tensor, d_after: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of the old sums, of phi_q, phi_k and values (in chunks) from those of the rows' totals and of the sums after the block."""
    d_total = blocks.in_chunks(d_total, block.phi_q.shape[3])
    far, d_near = d_total * block.old, blocks.lower(d_total @ block.values.mT, block.near)
    d_sums = blocks.accumulated(d_after, reversed((far.mT @ block.phi_q).unbind(2)), reversed(block.kept.unbind(2)))[::-1]
    d_each = torch.stack(d_sums[1:], 2)
    d_phi_q = _add_product(far @ block.before, d_near, block.phi_k)
    d_phi_k = _add_product((block.values * block.weight) @ d_each, d_near.mT, block.phi_q)
    d_values = _add_product((block.phi_k @ d_each.mT) * block.weight, block.scores().mT, d_total)
    return d_sums[0], d_phi_q, d_phi_k, d_values


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """total + a @ b, written over total; all (batch, head, chunk, ...)."""
    return total.flatten(0, 2).baddbmm_(a.flatten(0, 2), b.flatten(0, 2)).view_as(total)
