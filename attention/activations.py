"""Queries, keys and values of every attention layer of a Hugging Face model, as its softmax sees them.

The model runs with an attention function that records what it is given (rotary embeddings are already applied) and answers with exact
softmax. A converted layer answers with the softmax of its changed queries and keys and their log weights (`attention.invariance`), which
is the softmax of its teacher: the activations of a converted model are those of the model that it was made from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attention.base import described

_NAME = "kernelgas_recorded"


class Activations(NamedTuple):
    """One layer on one batch, float32 at least. Queries and keys are multiplied by scale^(1/2), so that softmax is over q.k."""

    q: Float[Tensor, "batch head query dim"]
    k: Float[Tensor, "batch key_head key dim"]
    v: Float[Tensor, "batch key_head key value"]
    key_mask: Bool[Tensor, "batch key"]  # True = a real token
    is_causal: bool


def collect(model: nn.Module, batches: Iterable[Mapping[str, Tensor]]) -> list[list[Activations]]:
    """Activations [layer][batch] of a model in evaluation mode, without gradients; layers in the order in which they are called.

    Memory is layers x tokens x 3 widths in float32: 28 MB a thousand tokens for six layers of 384.

    Raises
    ------
    ValueError
        Without a batch, for a model whose attention cannot be exchanged, or for keys of a cache.
    """
    calls: list[list[Activations]] = []
    with recorded(model) as record, torch.no_grad():
        for batch in batches:
            record.clear()
            model(**on_device(batch, model))
            calls.append(list(record))
    if not calls or not calls[0]:
        raise ValueError(f"batches must hold a batch and model attention layers, got {len(calls)} batches of {type(model).__name__}")
    return [list(layer) for layer in zip(*calls, strict=True)]


def on_device(batch: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """The batch where the model is; ValueError unless it is a dict of tensors."""
    if not isinstance(batch, Mapping):
        raise ValueError(f"batches must hold dicts of tensors, which a model takes as model(**batch), got {described(batch)}")
    for name, tensor in batch.items():
        if not isinstance(tensor, Tensor):
            raise ValueError(f"batches must hold tensors (tokenizers make them with return_tensors='pt'), got {name}: {described(tensor)}")
    device = next(model.parameters()).device
    return {name: tensor.to(device) for name, tensor in batch.items()}


@contextmanager
def recorded(model: nn.Module) -> Iterator[list[Activations]]:
    """Inside, `model` is in evaluation mode, attends exactly, and every call of a layer is appended to the list."""
    from transformers import AttentionInterface, AttentionMaskInterface

    record: list[Activations] = []

    def attention(module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **options: Any) -> tuple[Tensor, None]:
        seen = _activations(module, q, k, v, mask, options)
        record.append(seen)
        return exact(seen, getattr(getattr(module, "kernel", None), "preprocess", None)).transpose(1, 2).to(q.dtype), None

    AttentionInterface.register(_NAME, attention)
    AttentionMaskInterface.register(_NAME, _padding)
    config: Any = getattr(model, "config", None)
    training = model.training
    if not hasattr(config, "_attn_implementation"):
        raise ValueError(f"model must be a Hugging Face model whose attention can be exchanged, got {type(model).__name__}")
    before, config._attn_implementation = config._attn_implementation, _NAME
    try:
        model.eval()
        yield record
    finally:
        config._attn_implementation = before
        model.train(training)


def log_softmax_rows(
    q: Float[Tensor, "batch head query dim"],
    k: Float[Tensor, "batch head key dim"],
    log_weight: Float[Tensor, "batch head key"] | None,
    visible: Bool[Tensor, "batch 1 query key"],
) -> Float[Tensor, "batch head query key"]:
    """log softmax_j(q_i.k_j + log_weight_j) over visible keys, -inf elsewhere; a row without one is -inf throughout."""
    logits = q @ k.mT if log_weight is None else q @ k.mT + log_weight[:, :, None]
    logits = logits.masked_fill(~visible, -math.inf)
    total = logits.logsumexp(-1, keepdim=True)
    return logits - total.where(total > -math.inf, 0)


def visible(seen: Activations) -> Bool[Tensor, "batch 1 query key"]:
    """Which key each query may see."""
    allowed = seen.key_mask[:, None, None, :].expand(-1, 1, seen.q.shape[2], -1)
    if not seen.is_causal:
        return allowed
    return allowed.tril(seen.k.shape[2] - seen.q.shape[2])


def exact(seen: Activations, preprocess: nn.Module | None = None) -> Float[Tensor, "batch head query value"]:
    """Softmax attention of a layer, 0 for a row without a visible key."""
    q, k, v, log_weight = changed(seen, preprocess)
    return log_softmax_rows(q, k, log_weight, visible(seen)).exp() @ v


def changed(seen: Activations, preprocess: nn.Module | None) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Queries, keys, values and log weights (or None) after a layer's invariances; keys repeated to the query heads."""
    groups = seen.q.shape[1] // seen.k.shape[1]
    k, v = seen.k.repeat_interleave(groups, 1), seen.v.repeat_interleave(groups, 1)
    if preprocess is None:
        return seen.q, k, v, None
    q, k, log_weight = preprocess(seen.q, seen.k, seen.key_mask)
    return q, k, v, log_weight


def _activations(module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, options: dict[str, Any]) -> Activations:
    if k.shape[2] != q.shape[2]:
        raise ValueError(f"batches must be whole sequences without a cache, got {q.shape[2]} queries and {k.shape[2]} keys")
    scaling, causal = options.get("scaling"), options.get("is_causal")
    root = math.sqrt(q.shape[-1] ** -0.5 if scaling is None else scaling)
    dtype = torch.promote_types(q.dtype, torch.float32)
    key_mask = torch.ones(k.shape[0], k.shape[2], dtype=torch.bool, device=k.device) if mask is None else mask.bool()
    is_causal = bool(getattr(module, "is_causal", False) if causal is None else causal)
    return Activations(q.to(dtype) * root, k.to(dtype) * root, v.to(dtype), key_mask, is_causal)


def _padding(*_: Any, attention_mask: Tensor | None = None, **__: Any) -> Tensor | None:
    """The mask function beside `attention`: the padding mask (batch, key) as it is."""
    return attention_mask
