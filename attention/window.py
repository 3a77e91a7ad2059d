"""Exact softmax weights near the diagonal, the feature kernel beyond, under one normaliser.

Row i weighs key j by exp(scale q_i.k_j) where |i - j| < window, and by phi(q_i).phi(k_j) elsewhere. The near part is a band of scores, the
far part the running sums of keys that are at least `window` older (and, bidirectionally, younger: the same on reversed time); the parts
join through their log scales, in linear time. A feature map that is unbiased for the softmax kernel makes this softmax attention with the
noise taken out of the nearest keys. The state keeps the last `window` keys and the sums over older ones.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from attention.blocks import exp
from attention.layout import Inputs, ended
from attention.quadratic import absorbed, joined, quadratic
from attention.running_sums import Call, State, attend

_ROWS = 64  # least number of rows that share a block of the band


class WindowState(NamedTuple):
    """What attention with a window remembers: sums over keys that no later query has in its window, and the others themselves."""

    far: State  # its position counts all tokens
    keys: Float[Tensor, "batch head window dim"]
    values: Float[Tensor, "batch head window value"]
    mask: Bool[Tensor, "batch window"]

    @property
    def position(self) -> Int[Tensor, " batch"]:
        """Tokens seen, masked ones included."""
        return self.far.position

    def index_select(self, index: Int[Tensor, " selected"]) -> WindowState:
        """The states of the batch entries `index`, as beam search reorders them."""
        return WindowState(self.far.index_select(index), *(field.index_select(0, index) for field in self[1:]))

    def detach(self) -> WindowState:
        """The same values without gradient history."""
        return WindowState(self.far.detach(), *(field.detach() for field in self[1:]))


def windowed(call: Call, x: Inputs, window: int, *, is_causal: bool, by_matrix: bool) -> tuple[Tensor, WindowState | None]:
    """The part (see `quadratic`; call.normalise is "part") of all keys, and of a causal call the state after them.

    by_matrix : the far part by its matrix of scores instead of sums.
    """
    x = _with_recent(x, window)
    far, state = (_far_by_matrix if by_matrix else _far)(call, x, window, is_causal)
    after = None if state is None else _after(x, ended(state, x), window)
    return joined([_near(call, x, window, is_causal), *far]), after


def _with_recent(x: Inputs, window: int) -> Inputs:
    """The keys behind the `window` last ones of the state, or as many masked ones; the state is that of the keys before those."""
    positions = x.positions
    if positions is not None:  # that of a filling key is never negative: a map may refuse it
        recent = positions[1][:, :1] + torch.arange(window, device=x.k.device) - window
        positions = positions[0], torch.cat((recent.clamp(min=0), positions[1]), 1)
    if x.state is None:
        k, v = (pad(t, (0, 0, window, 0)) for t in (x.k, x.v))
        return x._replace(k=k, v=v, key_mask=pad(x.mask, (window, 0)), positions=positions)
    old = x.state
    k, v = torch.cat((old.keys.to(x.k.dtype), x.k), 2), torch.cat((old.values.to(x.v.dtype), x.v), 2)
    return x._replace(k=k, v=v, key_mask=torch.cat((old.mask, x.mask), 1), positions=positions, state=old.far)


def _after(x: Inputs, far: State, window: int) -> WindowState:
    """The state with the last `window` keys, behind which a padded batch has filling."""
    if x.length is None:
        return WindowState(far, x.k[:, :, -window:], x.v[:, :, -window:], x.mask[:, -window:])
    index = x.length[:, None] + torch.arange(window, device=x.k.device)
    k, v = (t.take_along_dim(index[:, None, :, None], 2) for t in (x.k, x.v))
    return WindowState(far, k, v, x.mask.take_along_dim(index, 1))


def _older(x: Inputs, window: int) -> Inputs:
    """The keys that enter the sums: all but the last `window`."""
    keys = x.k.shape[2] - window
    mask = x.mask[:, :keys]
    if x.length is not None:
        mask = mask & (torch.arange(keys, device=mask.device) < x.length[:, None])
    positions = None if x.positions is None else (x.positions[0], x.positions[1][:, :keys])
    return x._replace(k=x.k[:, :, :keys], v=x.v[:, :, :keys], key_mask=mask, positions=positions)


def _far(call: Call, x: Inputs, window: int, is_causal: bool) -> tuple[list[Tensor], State | None]:
    """Parts of the older keys and, bidirectionally, of the younger ones, which are older on reversed time."""
    rows, state = _causal(call, _older(x, window))
    if is_causal:
        return [rows], state
    k, v = (t.flip(2).roll(window, 2) for t in (x.k, x.v))  # filling in front again
    positions = None if x.positions is None else (x.positions[0].flip(1), x.positions[1].flip(1).roll(window, 1))
    younger = _older(Inputs(x.q.flip(2), k, v, x.mask.flip(1).roll(window, 1), None, None, positions), window)
    return [rows, _causal(call, younger)[0].flip(2)], None


def _causal(call: Call, x: Inputs) -> tuple[Tensor, State]:
    return attend(call, x.q, x.k, x.v, x.key_mask, x.state, is_causal=True, positions=x.positions)


def _far_by_matrix(call: Call, x: Inputs, window: int, is_causal: bool) -> tuple[list[Tensor], State | None]:
    queries, keys = x.q.shape[2], x.k.shape[2]
    key = torch.arange(keys, device=x.k.device)
    behind = key[keys - queries :, None] - key
    allowed = behind >= window if is_causal else behind.abs() >= window
    return [quadratic(call, x, allowed)], absorbed(call, _older(x, window)) if is_causal else None


def _near(call: Call, x: Inputs, window: int, is_causal: bool) -> Tensor:
    """The part of the keys in the window: blocks of rows, each against the keys that any of them has there."""
    queries, size = x.q.shape[2], min(max(window, _ROWS), x.q.shape[2])
    width = size + (window - 1) * (1 if is_causal else 2)
    blocks = -(-queries // size)
    start = x.k.shape[2] - queries - window + 1
    missing = (blocks - 1) * size + width - (x.k.shape[2] - start)
    q = pad(call.root * x.q.to(call.dtype), (0, 0, 0, blocks * size - queries)).unflatten(2, (blocks, size))
    k, v = (t.where(x.mask[:, None, :, None], 0)[:, :, start:].to(call.dtype) for t in (x.k, x.v))
    k, v = (pad(t, (0, 0, 0, missing)).unfold(2, width, size) for t in (call.root * k, pad(v, (0, 1), value=1.0)))
    mask = pad(x.mask[:, start:], (0, missing)).unfold(1, width, size)[:, None, :, None]
    row, key = (torch.arange(n, device=mask.device) for n in (size, width))
    behind = row[:, None] + window - 1 - key
    scores = (q @ k).masked_fill(~(mask & (behind.abs() < window) & ((behind >= 0) | (not is_causal))), -math.inf)
    top = scores.detach().amax(-1)
    part = torch.cat((exp(scores, top[..., None]) @ v.mT, top[..., None]), -1)
    return part.flatten(2, 3)[:, :, :queries]
