"""A small pre-norm transformer: encoder classifier or language model. Attention is softmax, any kernel of `feature_map`, or a bottleneck.

See `attention.config` for its sizes and choices and `attention.batches` for what a batch is.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attention.adaptive import AdaptiveEmbedding
from attention.batches import Batch, checked_tokens, summed_loss
from attention.config import BOTTLENECKS, ModelConfig
from attention.feature_map import FeatureMap, feature_map
from attention.generate import generate
from attention.landmarks import PooledLandmarks
from attention.linear import State, kernel_attention
from attention.linformer import Linformer
from attention.memory import KeyValues, Memory, checked_length
from attention.naive import visible
from attention.nystromformer import nystromformer_attention
from attention.rotary import rotary
from attention.seeds import seed_from, seeded
from attention.softmax_free import softmax_free_attention
from attention.window import WindowState
from particles.arrays import count, flag

__all__ = ["KeyValues", "Memory", "ModelConfig", "SelfAttention", "Transformer", "masked_mean"]


class SelfAttention(nn.Module):
    """Multi-head self-attention of one layer: softmax, a bottleneck of few tokens, or a kernel with its own particles for every head.

    With `unit_norm` (default for signed maps) q and k have unit length times one learned scale per head. Where the output is divided by its
    root mean square (default for signed maps: no denominator that could vanish) a learned gain per head follows. Both together are
    the recipe under which signed maps train.

    Attributes
    ----------
    feature_map : FeatureMap or None
        None for softmax and bottlenecks. With grouped keys it has particles for each of their heads.
    nonpositive : Tensor or None
        Of a signed map with the sum normaliser in training mode: the share of denominators <= 0 in the last call.
    """

    def __init__(self, config: ModelConfig, name: str, generator: torch.Generator) -> None:
        super().__init__()
        self.heads, self.key_heads, self.causal, self.window = config.heads, config.key_heads, config.causal, config.window
        self.shared = config.projections != "separate" or name == "soft"
        self.projected = config.projections != "input"
        self.base = config.rotary_base if config.positions == "rotary" else None
        self.feature_map = None if name in ("softmax", *BOTTLENECKS) else _feature_map(config, name, generator)
        self.bottleneck = _bottleneck(config, name) if name in BOTTLENECKS else None
        self.soft = name == "soft"
        widths = (self.heads if self.projected else 0, 0 if self.shared else self.key_heads, self.key_heads)
        self.qkv = nn.Linear(config.dim, sum(widths) * config.head_dim)  # the projections that there are, in the order q, k, v
        self.out = nn.Linear(config.dim, config.dim)
        self.nonpositive: Tensor | None = None
        signed = self.feature_map is not None and bool(self.feature_map.signed)
        self.unit = self.feature_map is not None and (signed if config.unit_norm is None else config.unit_norm)
        self.normalise = cast(Any, ("rms" if signed else "sum") if config.normalise == "default" else config.normalise)
        if self.window is not None and self.feature_map is not None and (signed or self.normalise != "sum"):
            raise ValueError(f"window needs a positive map and normalise='sum', got {name!r} and normalise={self.normalise!r}")
        if self.unit:
            self.log_length = nn.Parameter(torch.zeros(config.heads, 1, 1))  # length 1: w.q has standard deviation 1 for w ~ N(0, I)
        if self.feature_map is not None and self.normalise == "rms":
            self.gain = nn.Parameter(torch.ones(config.heads, 1, config.head_dim))

    def forward(
        self,
        x: Tensor,
        key_mask: Tensor | None,
        position: Tensor,
        memory: State | WindowState | KeyValues | None = None,
        *,
        return_memory: bool = False,
    ) -> tuple[Tensor, State | WindowState | KeyValues | None]:
        """x (batch, time, dim), key_mask and position (batch, time) -> (batch, time, dim), and what the layer remembers if asked for."""
        q, k, v = self.queries_keys_values(x, position)
        if self.feature_map is not None:
            y, memory = self._kernel(q, k, v, key_mask, cast(Any, memory), return_memory)
        elif self.bottleneck is not None:
            y = self._through_few(q, k, v, key_mask)
        else:
            y, memory = self._softmax(q, k, v, key_mask, cast(Any, memory), return_memory)
        return self.out(y.transpose(1, 2).flatten(2)), memory

    def queries_keys_values(self, x: Tensor, position: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k (as they enter the feature map, scale and rotation included) and v of the layer's normalised input x (batch, time, dim).

        (batch, head, time, head_dim); k and v have `key_heads` heads.
        """
        parts = self.qkv(x).unflatten(-1, (-1, x.shape[-1] // self.heads)).transpose(1, 2)
        v = parts[:, -self.key_heads :]
        q = parts[:, : self.heads] if self.projected else x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k = q if self.shared else parts[:, self.heads : self.heads + self.key_heads]
        q = self._placed(q, position)
        return q, q if self.shared else self._placed(k, position), v

    def _placed(self, x: Tensor, position: Tensor) -> Tensor:
        """Queries or keys scaled, by the square root of the usual d^-1/2 or to the learned length, and rotated."""
        if self.base is not None:
            x = rotary(x, position, base=self.base)
        if self.soft:
            return x  # it scales by itself
        if self.unit:
            length = self.log_length.unflatten(0, (x.shape[1], -1)).mean(1).exp()  # grouped keys: their queries' geometric mean
            return length * F.normalize(x, dim=-1)
        return x * x.shape[-1] ** -0.25

    def _kernel(
        self, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, state: State | WindowState | None, return_state: bool
    ) -> tuple[Tensor, State | WindowState | None]:
        feature_map = cast(FeatureMap, self.feature_map)
        report: dict[str, Tensor] | None = {} if self.training and self.normalise == "sum" and feature_map.signed else None
        out = kernel_attention(
            q, k, v, feature_map, key_mask=key_mask, scale=1.0, normalise=self.normalise, is_causal=self.causal, window=self.window,
            state=state, return_state=return_state, report=report,
        )  # fmt: skip
        self.nonpositive = None if report is None else report["nonpositive"]
        y, state = out if return_state else (out, None)
        return (y * self.gain if self.normalise == "rms" else y), state

    def _through_few(self, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None) -> Tensor:
        """SOFT, Nystromformer or Linformer."""
        few = cast(nn.Module, self.bottleneck)
        if isinstance(few, Linformer):
            return few(q, k, v, key_mask=key_mask, scale=1.0)
        landmarks, mask = few(q, key_mask=key_mask)
        if self.soft:
            return softmax_free_attention(q, v, landmarks, key_mask=key_mask, landmark_mask=mask)
        of_keys, _ = few(k, key_mask=key_mask)
        return nystromformer_attention(q, k, v, landmarks, of_keys, scale=1.0, key_mask=key_mask, landmark_mask=mask)

    def _softmax(
        self, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, memory: KeyValues | None, return_memory: bool
    ) -> tuple[Tensor, KeyValues | None]:
        if not isinstance(memory, KeyValues | None):
            raise ValueError(f"memory of a softmax layer must be KeyValues, got a {type(memory).__name__}")
        plain = key_mask is None and memory is None
        key_mask = torch.ones(k.shape[0], k.shape[2], dtype=torch.bool, device=k.device) if key_mask is None else key_mask
        if memory is not None:
            k, v = torch.cat((memory.key, k), 2), torch.cat((memory.value, v), 2)
            key_mask = torch.cat((memory.key_mask, key_mask), 1)
        mask = None if plain else visible(q.shape[2], k.shape[2], is_causal=self.causal, key_mask=key_mask)
        y = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=plain and self.causal, scale=1.0, enable_gqa=self.key_heads != self.heads
        )
        return y, KeyValues(k, v, key_mask) if return_memory else None


class Block(nn.Module):
    """One pre-norm layer: x + attention(norm x), then x + feed-forward(norm x)."""

    def __init__(self, config: ModelConfig, name: str, generator: torch.Generator) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(config.dim)
        self.attention = SelfAttention(config, name, generator)
        self.norm_ff = nn.LayerNorm(config.dim)
        self.ff = nn.Sequential(nn.Linear(config.dim, config.ff), nn.GELU(), nn.Linear(config.ff, config.dim))
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, x: Tensor, key_mask: Tensor | None, position: Tensor, memory: Any = None, *, return_memory: bool = False
    ) -> tuple[Tensor, Any]:
        """x (batch, time, dim) -> (batch, time, dim), and what the attention remembers if asked for."""
        y, memory = self.attention(self.norm_attention(x), key_mask, position, memory, return_memory=return_memory)
        x = x + self.dropout(y)
        return x + self.dropout(self.ff(self.norm_ff(x))), memory


class Transformer(nn.Module):
    """Embedding (+ learned positions), `config.layers` blocks, norm, and a linear head: of the pooled sequence, or of every token.

    A token's position is the number of real tokens before it, so that padding on either side changes nothing (what goes by places in the
    row wants it on the right: bottlenecks and, behind a "cls" vector, windows and cosFormer's distances).

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
            generator = torch.Generator().manual_seed(int(torch.randint(2**62, (), device="cpu")))
            self.embedding = _embedding(config)
            self.cls = nn.Parameter(_spread(config) * torch.randn(config.dim)) if config.pooling == "cls" else None
            self.positions = _positions(config)
            self.blocks = nn.ModuleList([Block(config, name, generator) for name in config.layer_attention])
            self.norm = nn.LayerNorm(config.dim)
            self.head = None if config.tie_embeddings else nn.Linear(config.dim, config.n_classes or cast(int, config.vocab_size))
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, batch: Batch, *, memory: Memory | None = None, return_memory: bool = False, wanted: Tensor | None = None) -> Any:
        """Logits: (batch, n_classes) of a classifier, (batch, time, vocab_size) of a language model (what comes after each token).

        With `return_memory` (logits, Memory); given back as `memory`, the next call's tokens continue the sequences (causal models).
        With `wanted`, targets in the places of logits (IGNORED = none), the sum of their cross-entropies alone.

        Raises
        ------
        ValueError
            On a batch that does not fit (see `attention.batches.checked_tokens`), positions beyond `max_length`, or a memory of another
            model, batch size or a bidirectional model.
        """
        x, key_mask, memory = self.hidden(batch, memory=memory, return_memory=return_memory)
        x = x if self.config.n_classes is None else self._pooled(x, key_mask)
        if wanted is not None:
            return self.summed_loss(x, wanted)
        logits = self.logits(x)
        return (logits, memory) if return_memory else logits

    def hidden(self, batch: Batch, *, memory: Memory | None = None, return_memory: bool = False) -> tuple[Tensor, Tensor, Memory | None]:
        """The normalised last layer (batch, time, dim), its mask (with the "cls" vector in front if there is one), and the memory."""
        if (memory is not None or flag(return_memory, "return_memory")) and not self.config.causal:
            raise ValueError("only a causal model has a memory: earlier tokens of a bidirectional one change with later ones")
        x, key_mask, position = self._embed(batch, memory)
        parts, padded = [], _padded(key_mask)
        for block, before in zip(self.blocks, [None] * len(self.blocks) if memory is None else memory.layers, strict=True):
            x, part = block(x, padded, position, before, return_memory=return_memory)
            parts.append(part)
        length = key_mask.sum(-1) + (0 if memory is None else memory.length)
        return self.norm(x), key_mask, Memory(tuple(parts), length) if return_memory else None

    def logits(self, x: Tensor) -> Tensor:
        """The head: (..., dim) -> (..., n_classes or vocab_size)."""
        if isinstance(self.embedding, AdaptiveEmbedding):
            return self.embedding.log_probabilities(x)
        return F.linear(x, cast(Any, self.embedding).weight) if self.head is None else self.head(x)

    def summed_loss(self, x: Tensor, wanted: Tensor) -> Tensor:
        """Sum of the cross-entropies of targets (...), IGNORED = none, given what enters the head, (..., dim)."""
        if isinstance(self.embedding, AdaptiveEmbedding):
            return self.embedding.summed_loss(x, wanted)
        return summed_loss(self.logits(x), wanted)

    def queries_keys(self, batch: Batch, layer: int) -> tuple[Tensor, Tensor]:
        """Queries and keys of one layer's tokens as they enter its feature map, (batch, head, time, head_dim) each; padding is zero."""
        if count(layer, "layer", least=0) >= len(self.blocks):
            raise ValueError(f"layer must be below {len(self.blocks)}, got {layer}")
        x, key_mask, position = self._embed(batch, None)
        for block in self.blocks[:layer]:
            x, _ = block(x, _padded(key_mask), position)
        block = cast(Block, self.blocks[layer])
        q, k, _ = block.attention.queries_keys_values(block.norm_attention(x), position)
        q, k = (side.masked_fill(~key_mask[:, None, :, None], 0.0) for side in (q, k))
        return (q, k) if self.cls is None else (q[:, :, 1:], k[:, :, 1:])

    def generate(self, tokens: Tensor, n_new: int, **options: Any) -> Tensor:
        """`n_new` more tokens for each row; see `attention.generate.generate`."""
        return generate(self, tokens, n_new, **options)

    @property
    def kernel_layers(self) -> list[int]:
        """The layers whose attention has a feature map."""
        return [i for i, block in enumerate(self.blocks) if cast(Block, block).attention.feature_map is not None]

    @property
    def feature_maps(self) -> list[FeatureMap]:
        """The feature maps of `kernel_layers`; empty for softmax and bottlenecks."""
        return [cast(FeatureMap, cast(Block, self.blocks[layer]).attention.feature_map) for layer in self.kernel_layers]

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.norm.weight.device

    def _embed(self, batch: Batch, memory: Memory | None) -> tuple[Tensor, Tensor, Tensor]:
        """Embedded tokens (batch, time, dim), the mask and the positions (batch, time); nothing reads the padding's content."""
        tokens, key_mask = checked_tokens(batch, self.config)
        x = self.embedding(tokens if self.config.vocab_size is not None else tokens.to(self.norm.weight.dtype))
        if self.cls is not None:
            x = torch.cat((self.cls.expand(len(x), 1, -1), x), 1)
            key_mask = F.pad(key_mask, (1, 0), value=True)
        before = 0 if memory is None else checked_length(memory, len(x), len(self.blocks))[:, None]
        position = (key_mask.cumsum(-1) - 1).clamp_min(0) + before
        limit = self.config.max_length
        if memory is not None and limit is not None and int(position.max()) >= limit:
            raise ValueError(f"memory and tokens must fit max_length={limit}, got {int(position.max()) + 1} tokens")
        if self.positions is not None:
            x = x + self.positions[position]
        return self.dropout(x), key_mask, position

    def _pooled(self, x: Tensor, key_mask: Tensor) -> Tensor:
        return masked_mean(x, key_mask) if self.cls is None else x[:, 0]


def masked_mean(x: Tensor, key_mask: Tensor) -> Tensor:
    """Mean over the real tokens, (..., time, dim) -> (..., dim), key_mask broadcast to (..., time); padding is left out, not times 0."""
    keep = key_mask[..., None]
    return torch.where(keep, x, torch.zeros((), dtype=x.dtype, device=x.device)).sum(-2) / keep.sum(-2)


def _padded(key_mask: Tensor) -> Tensor | None:
    """The mask if it hides anything: attention without one is faster."""
    return None if bool(key_mask.all()) else key_mask


def _embedding(config: ModelConfig) -> nn.Module:
    """Token ids or real vectors -> dim."""
    if config.vocab_size is None:
        return nn.Linear(cast(int, config.input_dim), config.dim)
    if config.cutoffs is not None:
        return AdaptiveEmbedding(config.vocab_size, config.dim, config.cutoffs)
    embedding = nn.Embedding(config.vocab_size, config.dim)
    nn.init.normal_(embedding.weight, std=config.dim**-0.5 if config.tie_embeddings else _spread(config))  # tied: logits of variance 1
    return embedding


def _positions(config: ModelConfig) -> nn.Parameter | None:
    if config.positions != "learned":
        return None
    length = cast(int, config.max_length) + (config.pooling == "cls")
    return nn.Parameter(_spread(config) * torch.randn(length, config.dim))


def _spread(config: ModelConfig) -> float:
    """Standard deviation of the first positions and word vectors. Words start small, else rare ones stay where they were drawn; an
    embedded real vector with entries of variance 1 has about .5. Tied words, and their positions, are smaller still."""
    if config.tie_embeddings:
        return config.dim**-0.5
    return 0.2 if config.vocab_size is not None else 0.5


def _bottleneck(config: ModelConfig, name: str) -> nn.Module:
    """What gives the few tokens: learned mixtures, or means of windows."""
    length = cast(int, config.max_length) + (config.pooling == "cls")
    if name == "linformer":
        return Linformer(length, config.n_features, heads=config.heads)
    return PooledLandmarks(-(-cast(int, config.max_length) // config.n_features))


def _feature_map(config: ModelConfig, name: str, generator: torch.Generator) -> FeatureMap:
    """Drawn on the CPU, so that a model starts alike on every device, then put where the others are ("meta" too)."""
    with torch.device("cpu"):
        drawn = feature_map(
            name,
            dim=config.head_dim,
            n_features=config.n_features,
            heads=config.key_heads,
            temperature=config.temperature,
            generator=generator,
            **config.feature_options,
        )
    return drawn.to(torch.get_default_device())
