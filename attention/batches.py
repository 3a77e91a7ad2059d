"""What a batch is, and the checks of one.

A batch is a dict of tensors: `tokens` (batch, time) integer ids, or (batch, time, input_dim) real vectors; `key_mask` (batch, time)
boolean, True = a real token, also needed where nothing is padding; and, for training, `labels`: (batch,) of a classifier; of a language
model (batch, time) in the places of the tokens, IGNORED = no target there, by default the tokens themselves. What stands in the padding,
NaN included, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from attention.config import ModelConfig
from attention.feature_map import described

Batch = Mapping[str, Tensor]
IGNORED = -100  # the label of a place that is no target, as in torch's cross-entropy


def entry(batch: Batch, name: str) -> Tensor:
    """One tensor of a batch; ValueError if the batch is no mapping, or has no such tensor."""
    if not isinstance(batch, Mapping):
        raise ValueError(f"batch must be a dict of tensors, got {described(batch)}")
    if name not in batch:
        hint = " (all True where nothing is padding)" if name == "key_mask" else ""
        raise ValueError(f"batch must have the key {name!r}{hint}, got {sorted(batch)}")
    if not isinstance(batch[name], Tensor):
        raise ValueError(f"{name} must be a torch tensor, got {described(batch[name])}")
    return batch[name]


def is_integer(values: Tensor) -> bool:
    """Whether a tensor holds integers (bool is none)."""
    return not (values.is_floating_point() or values.is_complex() or values.dtype == torch.bool)


def in_range(values: Tensor, end: int, name: str) -> None:
    """ValueError unless every value is in [0, end)."""
    if values.numel() and not 0 <= int(values.min()) <= int(values.max()) < end:
        raise ValueError(f"{name} must be in [0, {end}), got values from {int(values.min())} to {int(values.max())}")


def checked_tokens(batch: Batch, config: ModelConfig) -> tuple[Tensor, Tensor]:
    """`tokens` with the padding's content replaced by 0, and `key_mask`.

    Raises
    ------
    ValueError
        If one is missing or has a wrong shape or dtype, the batch is empty, a row has no real token or is longer than `max_length`, or a
        real token's id is outside the vocabulary.
    """
    tokens, key_mask = entry(batch, "tokens"), entry(batch, "key_mask")
    shape = tuple(tokens.shape)
    if config.vocab_size is not None:
        if not is_integer(tokens) or len(shape) != 2:
            raise ValueError(f"tokens must be integers of shape (batch, time), got {described(tokens)}")
    elif not tokens.is_floating_point() or len(shape) != 3 or shape[-1] != config.input_dim:
        raise ValueError(f"tokens must be real numbers of shape (batch, time, {config.input_dim}), got {described(tokens)}")
    if key_mask.dtype != torch.bool or tuple(key_mask.shape) != shape[:2]:
        raise ValueError(f"key_mask must be boolean of shape {shape[:2]}, got {described(key_mask)}")
    if shape[0] < 1 or shape[1] < 1 or (config.max_length is not None and shape[1] > config.max_length):
        raise ValueError(f"tokens must hold a sequence, of 1 to max_length={config.max_length} positions, got shape {shape}")
    if not bool(key_mask.any(-1).all()):
        raise ValueError(f"key_mask must keep at least one token of every row, got {int((~key_mask.any(-1)).sum())} empty rows")
    tokens = tokens.masked_fill(~key_mask.view(*shape[:2], *[1] * (len(shape) - 2)), 0)
    if config.vocab_size is not None:
        in_range(tokens, config.vocab_size, "tokens")
    return tokens, key_mask


def checked_labels(batch: Batch, n_classes: int) -> Tensor:
    """The batch's labels (batch,) as int64; ValueError if they are missing, not integers, of a wrong length, or outside [0, n_classes)."""
    labels, shape = entry(batch, "labels"), tuple(entry(batch, "tokens").shape[:1])
    if not is_integer(labels) or tuple(labels.shape) != shape:
        raise ValueError(f"labels must be integers of shape {shape}, got {described(labels)}")
    in_range(labels, n_classes, "labels")
    return labels.long()


def next_tokens(batch: Batch, vocab_size: int) -> Tensor:
    """Targets of a language model (batch, time): at each place the label of the next one, IGNORED at the end, in and before padding.

    Raises
    ------
    ValueError
        If `labels` are given and not integers of the tokens' shape, or a target is outside the vocabulary.
    """
    tokens, key_mask = entry(batch, "tokens"), entry(batch, "key_mask")
    labels = entry(batch, "labels") if "labels" in batch else tokens
    if not is_integer(labels) or labels.shape != tokens.shape:
        raise ValueError(f"labels must be integers of shape {tuple(tokens.shape)}, got {described(labels)}")
    both = key_mask[:, 1:] & key_mask[:, :-1]
    targets = torch.full_like(labels, IGNORED, dtype=torch.int64)
    targets[:, :-1] = labels[:, 1:].long().masked_fill(~both, IGNORED)
    in_range(targets[targets != IGNORED], vocab_size, "labels")
    return targets


def check_batches(batches: Any, name: str, *, again: bool = True) -> None:
    """ValueError unless `batches` can be iterated, more than once if `again`, and is not itself a batch."""
    if not isinstance(batches, Iterable) or isinstance(batches, Mapping):
        raise ValueError(f"{name} must be an iterable of batches, got {described(batches)}")
    if again and iter(batches) is batches:
        raise ValueError(f"{name} must be iterable more than once (a list or a loader), got the one-shot {type(batches).__name__}")


def count_batches(batches: Iterable[Batch]) -> int:
    """How many batches an epoch has; ValueError if none, or if the iterable can be read only once."""
    check_batches(batches, "batches")
    n_batches = len(batches) if isinstance(batches, Sized) else sum(1 for _ in batches)
    if n_batches == 0:
        raise ValueError("batches must hold at least one batch, got none")
    return n_batches


def on_device(batch: Batch, device: torch.device) -> dict[str, Tensor]:
    """The batch's tensors on `device`."""
    if not isinstance(batch, Mapping):
        raise ValueError(f"batch must be a dict of tensors, got {described(batch)}")
    return {name: entry(batch, name).to(device) for name in batch}


def summed_loss(logits: Tensor, wanted: Tensor) -> Tensor:
    """Sum of the cross-entropies of all targets, in float32 at least."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return F.cross_entropy(logits.flatten(0, -2), wanted.flatten(), ignore_index=IGNORED, reduction="sum")
