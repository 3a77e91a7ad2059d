"""What brings a call of attention to plain (batch, head, time) inputs: packed sequences, grouped heads, axes without entries.

Each function rearranges the inputs, has the rest of the work done by `attend`, and puts the rows and the state back in order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad


class Inputs(NamedTuple):
    """What a form of attention needs to know of one call."""

    q: Tensor  # (batch, head, query, dim)
    k: Tensor  # (batch, kv_head, key, dim)
    v: Tensor  # (batch, kv_head, key, value)
    key_mask: Tensor | None  # bool (batch, key)
    state: Any  # State or WindowState, None before the first key
    length: Tensor | None = None  # (batch,) number of tokens, where the keys behind them are filling
    positions: tuple[Tensor, Tensor] | None = None  # of queries and keys, (batch, time), for maps that use them

    @property
    def mask(self) -> Tensor:
        """key_mask, all True if there is none."""
        return self.k.new_ones(self.k.shape[0], self.k.shape[2], dtype=torch.bool) if self.key_mask is None else self.key_mask


Attend = Callable[[Inputs], tuple[Tensor, Any]]  # rows (batch, head, query, n) and the state, None if nobody wants it


def ended(state: Any, x: Inputs) -> Any:
    """The state with its position at the last token, where filling stands behind it."""
    if x.length is None or state is None:
        return state
    return state._replace(position=x.length if x.state is None else x.state.position + x.length)


def filled(attend: Attend, x: Inputs) -> tuple[Tensor, Any]:
    """Without queries or keys: one that counts for nothing takes their place."""
    no_query, no_key = x.q.shape[2] == 0, x.k.shape[2] == 0
    if not (no_query or no_key):
        return attend(x)
    batch, queries = x.q.shape[0], x.q.shape[2]
    x = x._replace(q=pad(x.q, (0, 0, 0, 1))) if no_query else x
    if no_key:
        mask = torch.zeros(batch, 1, dtype=torch.bool, device=x.k.device)
        length = torch.zeros(batch, dtype=torch.int64, device=x.k.device)
        x = x._replace(k=pad(x.k, (0, 0, 0, 1)), v=pad(x.v, (0, 0, 0, 1)), key_mask=mask, length=length)
    rows, state = attend(x)
    return rows[:, :, :queries], state


def grouped(attend: Attend, x: Inputs, sets: int, *, alike: bool) -> tuple[Tensor, Any]:
    """Query heads that share key heads: as more queries of these where queries are all `alike`, otherwise as more batch entries.

    sets : of particles. With one for every query head the keys have as many features, and are repeated.
    """
    batch, heads, queries, _ = x.q.shape
    kv_heads = x.k.shape[1]
    group = heads // kv_heads
    if group == 1:
        return attend(x)
    if sets == heads:
        return attend(x._replace(k=x.k.repeat_interleave(group, 1), v=x.v.repeat_interleave(group, 1)))
    q = x.q.unflatten(1, (kv_heads, group))
    if alike:
        positions = None if x.positions is None else (x.positions[0].repeat(1, group), x.positions[1])
        rows, state = attend(x._replace(q=q.flatten(2, 3), positions=positions))
        return rows.unflatten(2, (group, queries)).flatten(1, 2), state
    entry = torch.arange(batch, device=q.device)
    rows, state = attend(_selected(x._replace(q=q.transpose(1, 2).flatten(0, 1)), entry.repeat_interleave(group)))
    return rows.unflatten(0, (batch, group)).transpose(1, 2).flatten(1, 2), None if state is None else state.index_select(entry * group)


def _selected(x: Inputs, entry: Tensor) -> Inputs:
    """Keys, values and what belongs to them of the given batch entries."""
    state = None if x.state is None else x.state.index_select(entry)
    key_mask, length = (None if t is None else t[entry] for t in (x.key_mask, x.length))
    positions = None if x.positions is None else (x.positions[0][entry], x.positions[1][entry])
    return Inputs(x.q, x.k[entry], x.v[entry], key_mask, state, length, positions)


def packed(attend: Attend, x: Inputs, ends: list[int]) -> tuple[Tensor, Any]:
    """Sequences laid end to end in one batch entry, from ends[i] to ends[i + 1], each by itself and with a state of its own.

    Those whose lengths have the same power of two above them are padded to the longest and make one batch: at most half of it is filling.
    """
    lengths = [end - start for start, end in itertools.pairwise(ends)]
    batches: dict[int, list[int]] = {}
    for i, n in enumerate(lengths):
        batches.setdefault((n - 1).bit_length() if n else -1, []).append(i)
    rows, tokens, states = [], [], []
    for members in batches.values():
        first, length = (torch.tensor([values[i] for i in members], device=x.q.device) for values in (ends, lengths))
        index = first[:, None] + torch.arange(max(lengths[i] for i in members), device=x.q.device)
        inside = index < (first + length)[:, None]
        out, state = attend(_padded(x, index.clamp(max=max(ends[-1] - 1, 0)), inside, torch.tensor(members, device=x.q.device), length))
        rows.append(out.transpose(0, 1)[:, inside])
        tokens.append(index[inside])
        states.append(state)
    state = None if any(state is None for state in states) else _stacked(states, list(batches.values()))
    return torch.cat(rows, 1)[None, :, torch.cat(tokens).argsort()], state


def _padded(x: Inputs, index: Tensor, inside: Tensor, members: Tensor, length: Tensor) -> Inputs:
    """The sequences `members` as a batch: their tokens (sequence, time) at `index`, filling where not `inside`."""
    q, k, v = (t[0][:, index].transpose(0, 1) for t in (x.q, x.k, x.v))
    key_mask = inside if x.key_mask is None else inside & x.key_mask[0][index]
    return Inputs(q, k, v, key_mask, None if x.state is None else x.state.index_select(members), length)


def _stacked(states: list[Any], members: list[list[int]]) -> Any:
    """The states of several batches as one, in the order of their sequences."""
    state = _joined(states)
    return state.index_select(torch.tensor(list(itertools.chain(*members)), device=state.position.device).argsort())


def _joined(states: list[Any]) -> Any:
    """States along the batch axis; a field may be a state itself."""
    return type(states[0])(*(torch.cat(f) if isinstance(f[0], Tensor) else _joined(list(f)) for f in zip(*states)))
