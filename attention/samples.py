"""What the particles of one head are aligned with: its own queries and keys on some sequences, and what these should agree on.

`points` gives vectors with labels, pooled over a sequence (Coulomb paper, C.4) or one a token (C.5); `pairs` gives queries and keys with a
relation between those of one sequence. Both run the model in evaluation mode and read what enters the layer's feature map.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from attention.batches import Batch, checked_labels, checked_tokens, entry, is_integer, next_tokens, on_device
from attention.config import BOTTLENECKS
from attention.feature_map import described
from attention.mode import evaluating
from attention.model import Transformer, masked_mean
from attention.naive import visible
from attention.relation import Pairs

HOLD_OUT = 0.25  # share of the sequences on which alignment is only measured
MAX_SEQUENCES, MAX_TOKENS = 1024, 8192  # what is used at most, of pooled sequences and of tokens

Relation = Callable[[Batch, int], Tensor]  # (batch, layer) -> (batch, query, key) or (batch, head, query, key), at least 0


class Points(NamedTuple):
    """Vectors x (row, dim) and their labels y (row,)."""

    x: np.ndarray
    y: np.ndarray


# --------------------------------------------------------------------------------------------------------- which sequences are used


def split(batches: Iterable[Batch], seed: int, max_sequences: int | None, *, by_label: bool, by_token: bool) -> tuple[list, list]:
    """Batches to simulate with and batches held out, a quarter (of each class, if the batches have labels (batch,) and `by_label`).

    At most `max_sequences` of each; None: 1024, or if tokens count one by one, as many as hold 8192 tokens, and at least 8.
    """
    kept: list[Batch] = []
    for batch in batches:
        if not isinstance(batch, Mapping):
            raise ValueError(f"batch must be a dict of tensors, got {described(batch)}")
        kept.append(batch)
    if not kept:
        raise ValueError("batches must hold at least one batch, got none")
    lengths = torch.cat([entry(batch, "key_mask").sum(-1).cpu() for batch in kept]).double()
    if max_sequences is None:
        max_sequences = max(8, int(MAX_TOKENS / float(lengths.mean()))) if by_token else MAX_SEQUENCES
    classes = np.zeros(len(lengths), np.int64)
    if by_label and all("labels" in batch and entry(batch, "labels").ndim == 1 for batch in kept):
        classes = torch.cat([entry(batch, "labels").cpu() for batch in kept]).numpy()
    train, hold = split_rows(classes, seed, max_sequences)
    return _rows_of(kept, train), _rows_of(kept, hold)


def split_rows(classes: np.ndarray, seed: int, max_sequences: int) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers of the sequences to simulate with and of those held out, a quarter of each class; at most `max_sequences` of both."""
    held = np.zeros(len(classes), dtype=bool)
    rng = np.random.default_rng(np.random.SeedSequence((seed, 0)))
    for label in np.unique(classes):
        rows = rng.permutation(np.flatnonzero(classes == label))
        held[rows[: round(HOLD_OUT * len(rows))]] = True
    train, hold = (np.sort(rng.permutation(np.flatnonzero(part))[:max_sequences]) for part in (~held, held))
    if not len(hold) or not len(train):
        raise ValueError(f"batches must hold sequences enough to hold some out, got {len(classes)}")
    return train, hold


def _rows_of(batches: list[Batch], rows: np.ndarray) -> list[dict[str, Tensor]]:
    """The sequences with these numbers, batch by batch."""
    chosen, first = [], 0
    for batch in batches:
        n = len(entry(batch, "key_mask"))
        here = torch.from_numpy(rows[(rows >= first) & (rows < first + n)] - first)
        if len(here):
            chosen.append({name: value[here.to(value.device)] for name, value in batch.items()})
        first += n
    return chosen


# --------------------------------------------------------------------------------------------------------------- vectors with labels


def points(model: Transformer, batches: Iterable[Batch], layer: int, pool: str) -> list[Points]:
    """One `Points` a key head: its queries' and its keys' vectors in float64 as they enter the feature map; with q = k each vector once.

    pool="sequence": masked means over the real tokens; "token": each labelled token's vectors. Labels (batch,) hold for all tokens of their
    sequence; labels (batch, time) are the tokens' own, negative = none, and those of a language model are the next tokens.

    Raises
    ------
    ValueError
        On labels that do not fit, vectors that are not finite, fewer than two classes.
    """
    vectors, labels = [], []
    for batch, q, k in _read(model, batches, layer):
        mask = batch["key_mask"]
        group = q.shape[1] // model.config.key_heads
        sides = [q] if torch.equal(q, k) else [*(q[:, i::group] for i in range(group)), k[:, ::group]]
        if pool == "sequence":
            pooled = [masked_mean(side, mask[:, None]) for side in sides]  # (batch, head, dim)
            vectors.append(torch.stack(pooled, 2).transpose(0, 1).flatten(1, 2))
            labels.append(checked_labels(batch, _n_classes(model)).repeat_interleave(len(sides)))
        else:
            own = _token_labels(model, batch)
            use = mask & (own >= 0)
            vectors.extend(side.transpose(0, 1)[:, use] for side in sides)
            labels.extend([own[use]] * len(sides))
    y = torch.cat(labels).cpu().numpy()
    classes = np.unique(y)
    if len(classes) < 2:
        raise ValueError(f"batches must hold a few sequences of at least two classes, got {len(y)} rows with labels {classes.tolist()}")
    return [Points(head, y) for head in torch.cat(vectors, 1).cpu().numpy()]


def _n_classes(model: Transformer) -> int:
    if model.config.n_classes is None:
        raise ValueError("pool must be 'token' for a language model, which has no labels of sequences, got 'sequence'")
    return model.config.n_classes


def _token_labels(model: Transformer, batch: Batch) -> Tensor:
    """Labels (batch, time) int64, negative = none."""
    mask = entry(batch, "key_mask")
    if model.config.n_classes is None:
        return next_tokens(batch, int(model.config.vocab_size or 0))
    labels = entry(batch, "labels")
    if labels.shape == mask.shape and is_integer(labels):
        return labels.long()
    return checked_labels(batch, model.config.n_classes)[:, None].expand(mask.shape)


def with_shuffled_labels(batches: list[dict[str, Tensor]], rng: np.random.Generator) -> list[dict[str, Tensor]]:
    """The batches with their labels (a language model's may be its tokens) permuted over the sequences, or over all labelled tokens."""
    labels = [entry(batch, "labels" if "labels" in batch else "tokens").cpu().numpy().copy() for batch in batches]
    used = [np.ones(y.shape, bool) if y.ndim == 1 else entry(b, "key_mask").cpu().numpy() & (y >= 0) for y, b in zip(labels, batches)]
    mixed = rng.permutation(np.concatenate([y[use] for y, use in zip(labels, used)]))
    for y, use, part in zip(labels, used, np.split(mixed, np.cumsum([use.sum() for use in used])[:-1])):
        y[use] = part
    return [{**batch, "labels": torch.from_numpy(y)} for batch, y in zip(batches, labels)]


# ------------------------------------------------------------------------------------------------------------- pairs with a relation


def pairs(model: Transformer, batches: Iterable[Batch], layer: int, relation: Relation) -> list[Pairs]:
    """One `Pairs` a head, of float64 queries and keys as they enter the feature map, padded to the longest sequence.

    Allowed are the pairs of real tokens that the model's attention may see, and where the batch has `token_labels` (batch, time), only
    pairs of two different labelled tokens (negative = no label).

    Raises
    ------
    ValueError
        If the relation does not fit the tokens and heads.
    """
    read: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    for batch, q, k in _read(model, batches, layer):
        attend, allowed = relation(batch, layer), _allowed(model, batch)
        if not isinstance(attend, Tensor) or attend.ndim not in (3, 4):
            raise ValueError(f"the relation must be a tensor (batch, head, query, key) or (batch, query, key), got {described(attend)}")
        attend = attend[:, None] if attend.ndim == 3 else attend
        shape = (len(q), q.shape[1], *allowed.shape[1:])
        if tuple(attend.shape) not in (shape, (shape[0], 1, *shape[2:])):
            raise ValueError(f"the relation must have shape {shape} or ({shape[0]}, {shape[2]}, {shape[3]}), got {tuple(attend.shape)}")
        attend = torch.where(allowed[:, None], attend.to(q), 0.0).expand(shape)
        read.append((q, k, attend, allowed))
    longest = max(q.shape[2] for q, *_ in read)
    axes = ((2,), (2,), (2, 3), (1, 2))  # of time in q, k, attend and allowed
    q, k, attend, allowed = (torch.cat([_padded(part, longest, axis) for part in parts]) for parts, axis in zip(zip(*read), axes))
    each = [[*(part[:, head].cpu().numpy() for part in (q, k, attend)), allowed.cpu().numpy()] for head in range(q.shape[1])]
    return [Pairs(*arrays) for arrays in each]


def attend_relation(batch: Batch, layer: int) -> Tensor:
    """The batch's `attend` (batch, query, key) or (batch, head, query, key), or else equality of its `token_labels` (batch, time)."""
    if "attend" in batch:
        attend = entry(batch, "attend")
        if attend.ndim not in (3, 4):
            raise ValueError(f"attend must have shape (batch, query, key) or (batch, head, query, key), got {described(attend)}")
        return attend
    if "token_labels" not in batch:
        raise ValueError(f"batch must have the key 'attend' or 'token_labels' for targets='attend', got {sorted(batch)}")
    labels = entry(batch, "token_labels")
    if not is_integer(labels) or labels.shape != entry(batch, "key_mask").shape:
        raise ValueError(f"token_labels must be integers of the key_mask's shape, got {described(labels)}")
    return labels[:, :, None] == labels[:, None, :]


def teacher_relation(teacher: Any) -> Relation:
    """Softmax of a `Transformer` that reads the same batches, layer by layer, or a callable (batch, layer) -> (batch, head, query, key)."""
    if isinstance(teacher, Transformer):
        return lambda batch, layer: softmax_attention(teacher, batch, layer)
    if not callable(teacher):
        raise ValueError(
            f"teacher must be a Transformer or a callable (batch, layer) -> probabilities for targets='teacher', got {teacher!r}"
        )
    return teacher


@torch.no_grad()
def softmax_attention(model: Transformer, batch: Batch, layer: int) -> Tensor:
    """softmax(q.k) of one layer on the pairs that it may see, (batch, head, query, key) float64, zero rows at padding."""
    if layer >= len(model.blocks):
        raise ValueError(f"the teacher must have a layer for each that is aligned, got {len(model.blocks)} layers for layer {layer}")
    if (kind := model.config.layer_attention[layer]) in BOTTLENECKS:
        raise ValueError(f"the teacher's layer {layer} must have queries and keys for softmax, got {kind!r}")
    ((batch, q, k),) = _read(model, [{name: batch[name] for name in ("tokens", "key_mask")}], layer)
    allowed = visible(q.shape[2], k.shape[2], is_causal=model.config.causal, key_mask=batch["key_mask"])
    scores = (q @ k.mT).masked_fill(~allowed, -torch.inf)
    return scores.softmax(-1).masked_fill(~batch["key_mask"][:, None, :, None], 0.0)


def with_shuffled_keys(sample: Pairs, rng: np.random.Generator) -> Pairs:
    """The relation with the keys of each sequence permuted: as many pairs as before, between the wrong tokens.

    The permutation is of the keys that some query may see; what it moves to forbidden places is lost.
    """
    attend = sample.attend.copy()
    for row, allowed in zip(attend, sample.allowed, strict=True):
        keys = np.flatnonzero(allowed.any(0))
        row[:, keys] = row[:, rng.permutation(keys)]
    return sample._replace(attend=np.where(sample.allowed, attend, 0.0))


def joined(samples: list[Any], sets: int) -> list[Any]:
    """Samples of heads that share a set of particles (as the query heads of one key head do) as one, with more sequences."""
    if len(samples) % sets:
        raise ValueError(f"the {len(samples)} heads must be a multiple of the {sets} sets of particles")
    group = len(samples) // sets
    parts = (samples[i : i + group] for i in range(0, len(samples), group))
    return [type(part[0])(*map(np.concatenate, zip(*part, strict=True))) for part in parts]


# ----------------------------------------------------------------------------------------------------------------- reading the model


def _read(model: Transformer, batches: Iterable[Batch], layer: int) -> list[tuple[dict[str, Tensor], Tensor, Tensor]]:
    """Each batch on the model's device with one layer's q and k (batch, head, time, dim) in float64, k with as many heads as q."""
    read = []
    with torch.no_grad(), evaluating(model):
        for batch in batches:
            here = on_device(batch, model.device)
            checked_tokens(here, model.config)
            q, k = (side.double() for side in model.queries_keys(here, layer))
            read.append((here, q, k.repeat_interleave(q.shape[1] // k.shape[1], 1)))
    return read


def _allowed(model: Transformer, batch: Batch) -> Tensor:
    """Pairs (batch, query, key) of real tokens that the kernel serves, and with `token_labels` that are labelled and different."""
    mask = batch["key_mask"]
    allowed = visible(mask.shape[1], mask.shape[1], is_causal=model.config.causal, key_mask=mask)[:, 0] & mask[:, :, None]
    distance = (torch.arange(mask.shape[1])[:, None] - torch.arange(mask.shape[1])).abs().to(mask.device)
    if model.config.window is not None:
        allowed = allowed & (distance >= model.config.window)  # nearer pairs have softmax's kernel, whatever the particles
    if "token_labels" in batch and "attend" not in batch:
        labelled = batch["token_labels"] >= 0
        allowed = allowed & labelled[:, :, None] & labelled[:, None, :] & (distance > 0)
    return allowed


def _padded(part: Tensor, size: int, axes: tuple[int, ...]) -> Tensor:
    """Zeros (False) at the end of some axes, up to `size`."""
    for axis in axes:
        shape = list(part.shape)
        shape[axis] = size - shape[axis]
        part = torch.cat((part, part.new_zeros(shape)), axis)
    return part
