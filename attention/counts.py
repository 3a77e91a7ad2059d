"""How many parameters a `Transformer` has, and how many floating-point operations one sequence costs, part by part."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import nn

from attention.config import ModelConfig
from attention.feature_map import described
from attention.model import Block, SelfAttention, Transformer
from particles.arrays import count

CHUNK = 64  # tokens of a chunk of causal kernel attention
NEWTON_STEPS = 20  # of SOFT's pseudo-inverse


class Count(NamedTuple):
    """Parameters, and operations of one forward pass: two for each multiply-add of a matrix product, nothing for the rest."""

    parameters: int
    flops: int


def counts(model: Transformer | ModelConfig, time: int) -> dict[str, Count]:
    """Parameters and forward FLOPs of one sequence of `time` tokens, by part; a `ModelConfig` is counted without memory for the model.

    Parts
    -----
    embedding : tokens, "cls" vector and learned positions. A look-up costs nothing; a tied head's product is the head's.
    projections : queries, keys, values and output.
    kernel : particles and the other parameters of feature maps, learned lengths and gains; products with the particles.
    mixing : what couples tokens; scores of softmax in full, causal or not; of a kernel the cheaper of the matrix of scores and the sums
        (bidirectional), or chunks of CHUNK tokens and the sums before them (causal), with the band of scores of a window;
        SOFT with its 20 Newton steps.
    feed_forward, norms, head : the rest.
    total : their sum; its parameters are all parameters of the model.

    Raises
    ------
    ValueError
        If `model` is neither, or `time` no positive integer.
    """
    time = count(time, "time")
    if isinstance(model, ModelConfig):
        with torch.device("meta"):
            model = Transformer(model)
    if not isinstance(model, Transformer):
        raise ValueError(f"model must be a Transformer or a ModelConfig, got {described(model)}")
    embedding = _embedding(model, time)
    time += model.cls is not None
    blocks = [block for block in model.blocks if isinstance(block, Block)]
    parts = {
        "embedding": embedding,
        "projections": _total(_linear(layer, time) for block in blocks for layer in (block.attention.qkv, block.attention.out)),
        "kernel": _total(_kernel(block.attention, time) for block in blocks),
        "mixing": _total(Count(0, _mixing(block.attention, model.config, time)) for block in blocks),
        "feed_forward": _total(_linear(layer, time) for block in blocks for layer in block.ff if isinstance(layer, nn.Linear)),
        "norms": Count(sum(_size(module) for module in model.modules() if isinstance(module, nn.LayerNorm)), 0),
        "head": _head(model, time),
    }
    return parts | {"total": _total(parts.values())}


def _total(parts: Iterable[Count]) -> Count:
    parts = list(parts)
    return Count(sum(part.parameters for part in parts), sum(part.flops for part in parts))


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _linear(layer: nn.Linear, rows: int) -> Count:
    return Count(_size(layer), 2 * rows * layer.in_features * layer.out_features)


def _embedding(model: Transformer, time: int) -> Count:
    tokens, vectors = model.embedding, [parameter for parameter in (model.cls, model.positions) if parameter is not None]
    part = _linear(tokens, time) if isinstance(tokens, nn.Linear) else Count(_size(tokens), 0)
    return Count(part.parameters + sum(parameter.numel() for parameter in vectors), part.flops)


def _kernel(attention: SelfAttention, time: int) -> Count:
    """Feature map, learned lengths and gains; the products with omega of every query and key head."""
    own = [getattr(attention, name).numel() for name in ("log_length", "gain") if hasattr(attention, name)]
    if attention.feature_map is None:
        return Count(sum(own), 0)
    per_head = attention.feature_map.omega[0].numel()
    return Count(_size(attention.feature_map) + sum(own), 2 * time * per_head * (attention.heads + attention.key_heads))


def _mixing(attention: SelfAttention, config: ModelConfig, time: int) -> int:
    """Operations that couple tokens, of all heads of one layer."""
    heads, dim = config.heads, config.head_dim
    if attention.landmarks is not None:
        return heads * _soft(time, -(-time // attention.landmarks.stride), dim)
    if attention.feature_map is None:
        return heads * 4 * time**2 * dim
    features, values = attention.feature_map.feature_dim, dim + 1  # the sum of the kernel is one more value
    if config.window is not None:
        near = min(config.window if config.causal else 2 * config.window - 1, time)
        return heads * 4 * time * near * dim + _sums(attention, config, time, features, values)
    return _sums(attention, config, time, features, values)


def _sums(attention: SelfAttention, config: ModelConfig, time: int, features: int, values: int) -> int:
    """Kernel attention of all heads without its window."""
    heads = config.heads
    if config.causal:
        chunk = min(CHUNK, time)
        return time * (heads * 2 * (chunk * (features + values) + features * values) + config.key_heads * 2 * features * values)
    matrix = 2 * heads * time**2 * (features + values)
    return min(matrix, 2 * time * (heads + config.key_heads) * features * values)


def _soft(time: int, landmarks: int, dim: int) -> int:
    """One head of SOFT: kernels with the landmarks, Newton's two products a step, and the values through them."""
    kernels = 2 * landmarks * (time + landmarks) * dim
    return kernels + NEWTON_STEPS * 4 * landmarks**3 + 4 * landmarks * time * dim + 2 * landmarks**2 * dim


def _head(model: Transformer, time: int) -> Count:
    rows = time if model.config.n_classes is None else 1
    if model.head is None:
        return Count(0, 2 * rows * next(model.embedding.parameters()).numel())
    return _linear(model.head, rows)
