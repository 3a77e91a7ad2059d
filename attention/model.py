"""A small pre-norm transformer classifier whose attention is softmax or any kernel of `feature_map`.

A batch is a dict with `tokens` (batch, time) integer ids, or (batch, time, input_dim) real vectors; `key_mask` (batch, time) boolean,
True = a real token; and, for training, `labels` (batch,). What stands in the padding, NaN included, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attention.feature_map import FeatureMap, described, feature_map
from attention.linear import kernel_attention
from particles.arrays import count, positive, real

Batch = Mapping[str, Tensor]


def seed_from(rng: int | np.random.Generator | torch.Generator) -> int:
    """One integer seed: `rng` itself if it is an integer of at least 0, else one draw of 62 bits from the generator."""
    if isinstance(rng, torch.Generator):
        return int(torch.randint(2**62, (), generator=rng, device=rng.device))
    if isinstance(rng, np.random.Generator):
        return int(rng.integers(2**62))
    return count(rng, "rng", least=0)


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Inside the block torch's default generators start from `seed`; afterwards they are exactly as they were before."""
    cuda = [device] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(cuda):
        torch.default_generator.manual_seed(seed)
        if cuda:
            torch.cuda.manual_seed(seed)
        yield


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Sizes of a `Transformer`; checked at construction.

    Exactly one of `vocab_size` (integer tokens) and `input_dim` (real vectors as tokens) is given. `attention` is "softmax" or a name that
    `attention.feature_map` knows; `n_features`, `normalise`, `temperature` and `feature_options` are passed on and unused with softmax.
    `normalise=None` means the map's own: "sum" for positive maps, "rms" for signed ones.

    Raises
    ------
    ValueError
        Naming the field and the value received.
    """

    n_classes: int
    max_length: int
    vocab_size: int | None = None
    input_dim: int | None = None
    dim: int = 64
    heads: int = 4
    layers: int = 1
    ff: int = 128
    dropout: float = 0.1
    attention: str = "softmax"
    n_features: int = 32
    normalise: str | None = None
    temperature: float = 1.0
    feature_options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count(self.n_classes, "n_classes", least=2)
        for name in ("max_length", "dim", "heads", "layers", "ff", "n_features"):
            count(getattr(self, name), name)
        if (self.vocab_size is None) == (self.input_dim is None):
            raise ValueError(f"give exactly one of vocab_size and input_dim, got {self.vocab_size!r} and {self.input_dim!r}")
        count(self.vocab_size if self.input_dim is None else self.input_dim, "vocab_size" if self.input_dim is None else "input_dim")
        if self.dim % self.heads:
            raise ValueError(f"dim must be a multiple of heads, got dim={self.dim} and heads={self.heads}")
        if not 0 <= real(self.dropout, "dropout") < 1:
            raise ValueError(f"dropout must be in [0, 1), got {self.dropout!r}")
        if self.normalise not in (None, "sum", "rms", "count"):
            raise ValueError(f"normalise must be None, 'sum', 'rms' or 'count', got {self.normalise!r}")
        positive(self.temperature, "temperature")
        if not isinstance(self.feature_options, Mapping):
            raise ValueError(f"feature_options must be a dict, got {self.feature_options!r}")

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads


class SelfAttention(nn.Module):
    """Multi-head self-attention: softmax, or a kernel with its own particles for every head.

    Signed maps follow the recipe that trains: q and k of unit length times one learned scale per head, no denominator, and a
    root-mean-square norm of each head's output (done by `kernel_attention`) followed by a learned gain.

    Attributes
    ----------
    feature_map : FeatureMap or None
        None for softmax.
    """

    def __init__(self, config: ModelConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.dim, 3 * config.dim)
        self.out = nn.Linear(config.dim, config.dim)
        self.feature_map = None if config.attention == "softmax" else _feature_map(config, generator)
        self.unit = self.feature_map is not None and bool(self.feature_map.signed)
        self.normalise = cast(Any, config.normalise or ("rms" if self.unit else "sum"))
        if self.unit:
            self.log_length = nn.Parameter(torch.zeros(config.heads, 1, 1))  # length 1: w.q has standard deviation 1 for w ~ N(0, I)
        if self.feature_map is not None and self.normalise == "rms":
            self.gain = nn.Parameter(torch.ones(config.heads, 1, config.head_dim))

    def queries_keys(self, x: Tensor, key_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Queries and keys as they enter the feature map (already scaled), each (batch, head, time, head_dim).

        x (batch, time, dim) is the layer's normalised input; `key_mask` (batch, time) sets the padding's vectors to zero if given.
        """
        q, k, _ = self._project(x)
        if key_mask is not None:
            pads = ~key_mask[:, None, :, None]
            q, k = q.masked_fill(pads, 0.0), k.masked_fill(pads, 0.0)
        return q, k

    def forward(self, x: Tensor, key_mask: Tensor) -> Tensor:
        """x (batch, time, dim), key_mask (batch, time) -> (batch, time, dim)."""
        q, k, v = self._project(x)
        if self.feature_map is None:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=key_mask[:, None, None, :], scale=1.0)
        else:
            y = kernel_attention(q, k, v, self.feature_map, key_mask=key_mask, scale=1.0, normalise=self.normalise)
            if self.normalise == "rms":
                y = y * self.gain
        return self.out(y.transpose(1, 2).flatten(2))

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scaled q and k, and v, each (batch, head, time, head_dim)."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        if self.unit:
            length = self.log_length.exp()
            return length * F.normalize(q, dim=-1), length * F.normalize(k, dim=-1), v
        scale = q.shape[-1] ** -0.25  # each side gets the square root of scaled dot-product attention's d^-1/2
        return scale * q, scale * k, v


class Block(nn.Module):
    """One pre-norm layer: x + attention(norm x), then x + feed-forward(norm x)."""

    def __init__(self, config: ModelConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(config.dim)
        self.attention = SelfAttention(config, generator)
        self.norm_ff = nn.LayerNorm(config.dim)
        self.ff = nn.Sequential(nn.Linear(config.dim, config.ff), nn.GELU(), nn.Linear(config.ff, config.dim))
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, key_mask: Tensor) -> Tensor:
        """x (batch, time, dim), key_mask (batch, time) -> (batch, time, dim)."""
        x = x + self.dropout(self.attention(self.norm_attention(x), key_mask))
        return x + self.dropout(self.ff(self.norm_ff(x)))


class Transformer(nn.Module):
    """Transformer classifier: embedding + learned positions, `config.layers` blocks, norm, masked mean over time, linear head.

    Parameters
    ----------
    config : ModelConfig
    rng : int, numpy Generator or torch Generator
        Seed of the initial weights and particles. The global torch generator is left as it was.
    """

    def __init__(self, config: ModelConfig, *, rng: int | np.random.Generator | torch.Generator = 0) -> None:
        super().__init__()
        if not isinstance(config, ModelConfig):
            raise ValueError(f"config must be a ModelConfig, got {config!r}")
        self.config = config
        with seeded(seed_from(rng)):
            generator = torch.Generator().manual_seed(int(torch.randint(2**62, ())))
            self.embedding = _embedding(config)
            self.positions = nn.Parameter(_spread(config) * torch.randn(config.max_length, config.dim))
            self.blocks = nn.ModuleList([Block(config, generator) for _ in range(config.layers)])
            self.norm = nn.LayerNorm(config.dim)
            self.head = nn.Linear(config.dim, config.n_classes)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, batch: Batch) -> Tensor:
        """Logits (batch, n_classes).

        Raises
        ------
        ValueError
            If `tokens` or `key_mask` is missing or has a wrong shape or dtype, a row has no real token, a token id of a real token is
            outside the vocabulary, or a row is longer than `max_length`.
        """
        x, key_mask = self._embed(batch)
        for block in self.blocks:
            x = block(x, key_mask)
        return self.head(masked_mean(self.norm(x), key_mask))

    def queries_keys(self, batch: Batch, layer: int) -> tuple[Tensor, Tensor]:
        """Queries and keys of one layer as they enter its feature map, (batch, head, time, head_dim) each; padding is zero."""
        if count(layer, "layer", least=0) >= len(self.blocks):
            raise ValueError(f"layer must be below {len(self.blocks)}, got {layer}")
        x, key_mask = self._embed(batch)
        for block in self.blocks[:layer]:
            x = block(x, key_mask)
        block = cast(Block, self.blocks[layer])
        return block.attention.queries_keys(block.norm_attention(x), key_mask)

    @property
    def feature_maps(self) -> list[FeatureMap]:
        """The feature map of each layer; empty for softmax."""
        maps = [cast(Block, block).attention.feature_map for block in self.blocks]
        return [feature_map for feature_map in maps if feature_map is not None]

    def _embed(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Embedded tokens (batch, time, dim) and the checked mask; the padding's content is replaced before anything reads it."""
        tokens, key_mask = _checked(batch, self.config)
        if self.config.vocab_size is not None:
            tokens = tokens.masked_fill(~key_mask, 0)
            _in_range(tokens, self.config.vocab_size, "tokens")
        else:
            tokens = tokens.masked_fill(~key_mask[..., None], 0.0).to(self.positions.dtype)
        return self.dropout(self.embedding(tokens) + self.positions[: tokens.shape[1]]), key_mask


def masked_mean(x: Tensor, key_mask: Tensor) -> Tensor:
    """Mean over the real tokens, (..., time, dim) -> (..., dim), key_mask broadcast to (..., time); padding is left out, not times 0."""
    keep = key_mask[..., None]
    return torch.where(keep, x, torch.zeros((), dtype=x.dtype, device=x.device)).sum(-2) / keep.sum(-2)


def _embedding(config: ModelConfig) -> nn.Module:
    """Token ids or real vectors -> dim."""
    if config.vocab_size is None:
        assert config.input_dim is not None  # ModelConfig checks it
        return nn.Linear(config.input_dim, config.dim)
    embedding = nn.Embedding(config.vocab_size, config.dim)
    nn.init.normal_(embedding.weight, std=_spread(config))
    return embedding


def _spread(config: ModelConfig) -> float:
    """Standard deviation of the first positions and word vectors. Words start small, else rare ones stay where they were drawn; an
    embedded real vector with entries of variance 1 has about .5."""
    return 0.2 if config.vocab_size is not None else 0.5


def _feature_map(config: ModelConfig, generator: torch.Generator) -> FeatureMap:
    return feature_map(
        config.attention,
        dim=config.head_dim,
        n_features=config.n_features,
        heads=config.heads,
        temperature=config.temperature,
        generator=generator,
        **config.feature_options,
    )


def _checked(batch: Batch, config: ModelConfig) -> tuple[Tensor, Tensor]:
    """`tokens` and `key_mask` of the batch after the checks that `Transformer.forward` lists."""
    tokens, key_mask = entry(batch, "tokens"), entry(batch, "key_mask")
    shape = tuple(tokens.shape)
    if config.vocab_size is not None:
        if not is_integer(tokens) or len(shape) != 2:
            raise ValueError(f"tokens must be integers of shape (batch, time), got {described(tokens)}")
    elif not tokens.is_floating_point() or len(shape) != 3 or shape[-1] != config.input_dim:
        raise ValueError(f"tokens must be real numbers of shape (batch, time, {config.input_dim}), got {described(tokens)}")
    if key_mask.dtype != torch.bool or tuple(key_mask.shape) != shape[:2]:
        raise ValueError(f"key_mask must be boolean of shape {shape[:2]}, got {described(key_mask)}")
    if shape[0] < 1 or not 1 <= shape[1] <= config.max_length:
        raise ValueError(f"tokens must hold a sequence, of 1 to max_length={config.max_length} positions, got shape {shape}")
    if not bool(key_mask.any(-1).all()):
        raise ValueError(f"key_mask must keep at least one token of every row, got {int((~key_mask.any(-1)).sum())} empty rows")
    return tokens, key_mask


def entry(batch: Batch, name: str) -> Tensor:
    """One tensor of a batch; ValueError if the batch is no mapping, or has no such tensor."""
    if not isinstance(batch, Mapping):
        raise ValueError(f"batch must be a dict of tensors, got {described(batch)}")
    if name not in batch:
        raise ValueError(f"batch must have the key {name!r}, got {sorted(batch)}")
    if not isinstance(batch[name], Tensor):
        raise ValueError(f"{name} must be a torch tensor, got {described(batch[name])}")
    return batch[name]


def is_integer(values: Tensor) -> bool:
    """Whether a tensor holds integers (bool is none)."""
    return not (values.is_floating_point() or values.is_complex() or values.dtype == torch.bool)


def _in_range(values: Tensor, end: int, name: str) -> None:
    """ValueError unless every value is in [0, end)."""
    if values.numel() and not 0 <= int(values.min()) <= int(values.max()) < end:
        raise ValueError(f"{name} must be in [0, {end}), got values from {int(values.min())} to {int(values.max())}")
