"""How many parameters a `Transformer` has, and how many floating-point operations one sequence costs, part by part."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, cast

import torch
from torch import nn

from attention.config import ModelConfig
from attention.feature_map import FeatureMap, described
from attention.landmarks import PooledLandmarks
from attention.linear import by_matrix
from attention.linformer import Linformer
from attention.model import Block, SelfAttention, Transformer
from particles.arrays import count

CHUNK = 64  # tokens of a chunk of causal kernel attention, and least rows of a block of a window
NEWTON_STEPS = 20  # of a pseudo-inverse


class Count(NamedTuple):
    """Parameters, and operations of one forward pass: two for each multiply-add of a matrix product, nothing for the rest."""

    parameters: int
    flops: int


def counts(model: Transformer | ModelConfig, time: int) -> dict[str, Count]:
    """Parameters and forward FLOPs of one sequence of `time` tokens, by part; a `ModelConfig` is counted without memory for the model.

    Parts
    -----
    * embedding : tokens, "cls" vector and learned positions. A look-up costs nothing; a tied head's product is the head's.
    * projections : queries, keys, values and output.
    * kernel : particles and the other parameters of feature maps, learned lengths and gains; products with the particles.
    * mixing : what couples tokens; scores of softmax in full, causal or not; of a kernel the matrix of scores where `kernel_attention`
      takes it, else the sums, causal ones over chunks of CHUNK tokens; with a window also the blocks that its scores are computed in,
      and bidirectionally two causal sums, over older and over younger keys, each with all features; SOFT and
      Nystromformer with 20 Newton steps; Linformer's mixtures and what makes them.
    * feed_forward, norms, head : the rest.
    * total : their sum; its parameters are all parameters of the model.

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
        "kernel": _total(_kernel(block.attention, model.config, time) for block in blocks),
        "mixing": _total(Count(_few(block.attention), _mixing(block.attention, model.config, time)) for block in blocks),
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


def _kernel(attention: SelfAttention, config: ModelConfig, time: int) -> Count:
    """Feature map, learned lengths and gains; the products with omega of every query and key head."""
    own = [getattr(attention, name).numel() for name in ("log_length", "gain") if hasattr(attention, name)]
    if attention.feature_map is None:
        return Count(sum(own), 0)
    twice = config.window is not None and not config.causal and not _by_matrix(attention, config, time)
    per_head = (2 if twice else 1) * attention.feature_map.omega[0].numel()
    return Count(_size(attention.feature_map) + sum(own), 2 * time * per_head * (attention.heads + attention.key_heads))


def _few(attention: SelfAttention) -> int:
    """Parameters of a bottleneck."""
    return 0 if attention.bottleneck is None else _size(attention.bottleneck)


def _mixing(attention: SelfAttention, config: ModelConfig, time: int) -> int:
    """Operations that couple tokens, of all heads of one layer."""
    heads, dim = config.heads, config.head_dim
    if attention.bottleneck is not None:
        return heads * _through_few(attention, time, dim)
    if attention.feature_map is None:
        return heads * 4 * time**2 * dim
    near = 0 if config.window is None else heads * _near(config, time, dim + 1)
    return near + _far(attention, config, time)


def _far(attention: SelfAttention, config: ModelConfig, time: int) -> int:
    """Kernel attention of all heads of one layer, without its window."""
    heads, features, values = config.heads, cast(FeatureMap, attention.feature_map).feature_dim, config.head_dim + 1
    if _by_matrix(attention, config, time):
        return 2 * heads * time * (time + (config.window or 0)) * (features + values)
    if config.causal or config.window is not None:
        chunk = min(CHUNK, time)
        sums = time * (heads * 2 * (chunk * (features + values) + features * values) + config.key_heads * 2 * features * values)
        return sums if config.causal else 2 * sums
    return 2 * time * (heads + config.key_heads) * features * values


def _by_matrix(attention: SelfAttention, config: ModelConfig, time: int) -> bool:
    """Whether the kernel of one layer is computed as the matrix of scores."""
    features = cast(FeatureMap, attention.feature_map).feature_dim
    group = config.heads // config.key_heads
    return by_matrix(group * time, time, features, config.head_dim + 1, is_causal=config.causal)


def _near(config: ModelConfig, time: int, values: int) -> int:
    """Scores and values in the window of one head: blocks of rows, each against all keys that one of its rows sees."""
    window = config.window or 1
    rows = min(max(window, CHUNK), time)
    keys = rows + (window - 1) * (1 if config.causal else 2)
    return -(-time // rows) * rows * keys * 2 * (config.head_dim + values)


def _through_few(attention: SelfAttention, time: int, dim: int) -> int:
    """One head of a bottleneck: scores with the few tokens and values through them; Newton's two products a step; Linformer's mixtures."""
    if isinstance(attention.bottleneck, Linformer):
        return 8 * attention.bottleneck.keys.shape[1] * time * dim
    few, sides = -(-time // cast(PooledLandmarks, attention.bottleneck).stride), 1 if attention.soft else 2
    return 2 * few * dim * (sides * time + few) + NEWTON_STEPS * 4 * few**3 + 4 * few * time * dim + 2 * few**2 * dim


def _head(model: Transformer, time: int) -> Count:
    rows = time if model.config.n_classes is None else 1
    if model.head is None:
        return Count(0, 2 * rows * _size(model.embedding))
    return _linear(model.head, rows)
