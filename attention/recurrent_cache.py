"""Generation by Hugging Face models with a state of constant size: `model.generate(..., cache=RecurrentCache(model))`.

A model hands new keys and values to its cache, and what the cache returns to its attention function, which never sees the cache itself.
An ordinary cache returns all keys and values so far. A layer with a kernel needs them only once: `RecurrentLayer.update` returns the new
ones as they are and leaves itself in `kernel.memory`; the attention function, called next in the same forward pass, takes it from there
and lets it attend, which adds the new keys to the running sums. Layers and heads that stay softmax keep their keys and values.

The layer counts tokens, so that positions and the length of masks are those of an ordinary cache.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, PreTrainedModel
from transformers.cache_utils import CacheLayerMixin, DynamicLayer

from attention.huggingface import NAME, attention_modules, layer_kernels
from attention.layer_kernel import LayerKernel
from attention.linear import State


class RecurrentLayer(CacheLayerMixin):
    """What one attention layer with a kernel remembers.

    Attributes
    ----------
    state : the running sums over earlier tokens, None before the first.
    pairs : keys and values of earlier tokens, (batch, softmax head, time, dim) each, of the heads that stay softmax, if any do.
    seen : tokens so far, padding included.
    """

    is_sliding = False
    is_croppable = False
    supports_early_init = False

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.state: State | None = None
        self.pairs: tuple[Tensor, Tensor] | None = None
        self.seen = 0
        self.latest: Tensor | None = None  # the new keys, by which the attention that follows knows that this memory is its own

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """The new keys and values themselves, announced to the attention that follows.

        Raises
        ------
        ValueError
            If the model no longer computes attention by its kernel, or never read what was announced before: another model, even a copy
            of this cache's, or a step that failed.
        """
        if self.latest is not None:
            raise ValueError(
                "RecurrentCache must be used with the model that it was made for, and not after a step that failed, "
                f"got {self.seen} tokens of which its kernel did not see the last {self.latest.shape[2]}"
            )
        kernel = getattr(self.module, "kernel", None)
        if kernel is None or self.module.config._attn_implementation != NAME:
            raise ValueError(
                "RecurrentCache must be used with the attached model that it was made for, got one without this layer's kernel"
            )
        kernel.memory, self.latest = self, key_states
        self.seen += key_states.shape[2]
        return key_states, value_states

    def attend(self, kernel: LayerKernel, q: Tensor, k: Tensor, v: Tensor, **how: Any) -> Tensor:
        """Attention of new queries (batch, head, time, dim) to all tokens so far; key_mask is (batch, seen)."""
        self.latest = None
        if kernel.softmax_heads is not None:
            new = kernel.softmax_pairs(k, v)
            self.pairs = new if self.pairs is None else tuple(torch.cat(both, 2) for both in zip(self.pairs, new))  # type: ignore[assignment]
        out, self.state = kernel(q, k, v, state=self.state, return_state=True, pairs=self.pairs, **how)
        return out

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Continue from the batch entries `beam_idx`."""
        if self.state is not None:
            beam_idx = beam_idx.to(self.state.context.device)
            self.state = self.state.index_select(beam_idx)
        if self.pairs is not None:
            self.pairs = self.pairs[0].index_select(0, beam_idx), self.pairs[1].index_select(0, beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep the batch entries `indices`."""
        self.reorder_cache(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every batch entry `repeats` times."""
        if self.state is not None:
            self.reorder_cache(torch.arange(len(self.state.count)).repeat_interleave(repeats))

    def get_seq_length(self) -> int:
        """Tokens seen so far."""
        return self.seen

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """(length, offset) of the mask that the attention of `query_length` new tokens needs."""
        return self.seen + query_length, 0

    def get_max_length(self) -> int:
        """-1: the state holds any number of tokens."""
        return -1

    def crop(self, tokens_to_remove: int) -> None:
        """Raises ValueError: sums do not tell which token added what (assisted decoding needs an ordinary cache)."""
        if tokens_to_remove:
            raise ValueError(f"tokens_to_remove must be 0, a recurrent state cannot forget its last tokens, got {tokens_to_remove}")

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing: the first update knows all shapes."""

    def tensors(self) -> list[Tensor]:
        """All that is kept."""
        return [*(self.state or ()), *(self.pairs or ())]

    def __deepcopy__(self, memo: dict[int, Any]) -> RecurrentLayer:
        return copy.copy(self)  # tensors are never written in place, and a cache must not copy the model


class RecurrentCache(Cache):
    """The cache of a causal model with kernels: a state of constant size a kernel, an ordinary growing cache for softmax layers.

    Pass a new one to each `model.generate(inputs, cache=...)`, or to `model(inputs, cache=..., use_cache=True)` for some tokens at a time,
    split anywhere; greedy, sampling, beams, left-padded batches. Copies (`copy.deepcopy`) branch off a common prompt.

    Raises
    ------
    ValueError
        For a model without kernels, or whose attention is not causal.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        if not layer_kernels(model):
            raise ValueError(f"model must have kernels attached, got a {type(model).__name__} without any")
        modules = attention_modules(model)
        if not all(getattr(module, "is_causal", False) for module in modules):
            raise ValueError(f"model must be causal to generate, got a {type(model).__name__} whose attention is not")
        super().__init__(layers=[RecurrentLayer(module) if hasattr(module, "kernel") else DynamicLayer() for module in modules])

    @property
    def nbytes(self) -> int:
        """Bytes kept for all layers."""
        layers: list[Any] = self.layers
        kept = [layer.tensors() if isinstance(layer, RecurrentLayer) else [layer.keys, layer.values] for layer in layers]
        return sum(tensor.nbytes for tensors in kept for tensor in tensors if tensor is not None)
