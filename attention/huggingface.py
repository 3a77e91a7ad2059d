"""Kernel attention inside pretrained models of Hugging Face transformers.

`attach` puts a `LayerKernel` beside the projections of chosen attention layers, as attribute `kernel` of the attention module, and
switches the model to the attention "kernelgas". That name stands for two functions, registered together, because the library asks for
both: one turns what the model was given into a mask, one computes attention. A name without its own mask function would be handed no
mask at all, silently. Ours hands on the padding mask (batch, key) as it is, which is all that linear attention can take; layers that
stay softmax rebuild from it the mask that they always had and call the function that they always called, so their numbers do not change.

The registered function never sees the cache, only keys and values of all tokens so far: right, and linear in the past at every token.
`attention.recurrent_cache` generates with a state of constant size instead.

Weights of kernels are ordinary parameters: `save_pretrained`, `state_dict` and optimisers find them. A plain `from_pretrained` builds the
model without kernels and would drop them; `attention.converted` saves and loads both.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import bidirectional_mask_function, causal_mask_function
from transformers.utils.output_capturing import _active_collector

from attention.feature_map import described
from attention.feature_map import feature_map as build_feature_map
from attention.layer_kernel import LayerKernel
from particles.arrays import count

NAME = "kernelgas"
SUPPORTED = {
    "bert": "BertSelfAttention",
    "roberta": "RobertaSelfAttention",
    "distilbert": "DistilBertSelfAttention",
    "electra": "ElectraSelfAttention",
    "vit": "ViTAttention",
    "gpt2": "GPT2Attention",
    "llama": "LlamaAttention",
}  # model type: class of its attention modules
_REFUSED = ("sliding_window", "softcap", "position_bias", "s_aux", "cu_seq_lens_q", "cu_seq_lens_k")  # arguments that change the weights


def attach(
    model: PreTrainedModel,
    feature_map: str | Mapping[int, LayerKernel] | Any,
    *,
    n_features: int | None = None,
    layers: Iterable[int] | None = None,
    generator: torch.Generator | None = None,
    normalise: str | None = "default",
    **options: Any,
) -> PreTrainedModel:
    """Put kernels in the place of softmax, in place; returns the model.

    Parameters
    ----------
    model : of a type in `attention.huggingface.SUPPORTED`, with or without a task head, computing attention by "sdpa" or "eager".
    feature_map : name (or particles' feature) for `attention.feature_map`, of which each layer gets an own one, with particles of its own
        for every head; or {layer: LayerKernel}, used as they are.
    n_features, generator, options : of `attention.feature_map`, not with given kernels. heads=1 shares a layer's particles among its
        heads, heads=num_key_value_heads (and with them features and state) among those that read the same key head.
    layers : those that get a kernel, all by default; the others stay softmax, or keep the kernel that they have.
    normalise : of `LayerKernel`, not with given kernels.

    Raises
    ------
    ValueError
        On a model of another type (the supported ones are named), with cross-attention, or with an attention that masks more than padding;
        on a layer that the model does not have; on a kernel that does not fit the heads; on options beside given kernels.
    """
    modules, previous, heads = attention_modules(model), softmax_of(model), model.config.num_attention_heads
    if isinstance(feature_map, Mapping):
        given = {"n_features": n_features, "layers": layers, "generator": generator} | options
        given = {key: value for key, value in given.items() if value is not None}
        if given or normalise != "default":
            raise ValueError(f"options belong to the names of maps, and kernels were given: got {given or normalise!r}")
        kernels = dict(zip(chosen_layers(feature_map, range(len(modules))), feature_map.values()))
    else:
        dtype = torch.promote_types(next(model.parameters()).dtype, torch.float32)
        options = {"dim": head_dim(model), "heads": heads, "generator": generator, "dtype": dtype} | options
        options["n_features"] = count(n_features, "n_features")
        chosen = chosen_layers(layers, range(len(modules)))
        kernels = {layer: LayerKernel(build_feature_map(feature_map, **options), normalise=normalise) for layer in chosen}
    fitting = sorted({1, getattr(model.config, "num_key_value_heads", heads), heads})
    for layer, kernel in kernels.items():
        if not isinstance(kernel, LayerKernel) or kernel.feature_map.heads not in fitting:
            raise ValueError(f"feature_map[{layer}] must be a LayerKernel of {' or '.join(map(str, fitting))} heads, got {kernel!r}")
    if len(set(map(id, kernels.values()))) < len(kernels):
        raise ValueError("feature_map must hold one LayerKernel a layer, got the same for two")
    for layer, kernel in kernels.items():
        device = next(modules[layer].parameters()).device
        modules[layer].kernel = kernel if device.type == "meta" else kernel.to(device)
    for module in modules:
        module.softmax_attention = previous
    model.set_attn_implementation(NAME)
    return model


def detach(model: PreTrainedModel) -> dict[int, LayerKernel]:
    """Take the kernels out, in place: the model computes what it did before `attach`, to the bit. Returns {layer: LayerKernel}."""
    modules, kernels = attention_modules(model), layer_kernels(model)
    previous = softmax_of(model)
    for module in modules:
        for name in ("kernel", "softmax_attention"):
            if hasattr(module, name):
                delattr(module, name)
    model.set_attn_implementation(previous)
    return kernels


def layer_kernels(model: PreTrainedModel) -> dict[int, LayerKernel]:
    """The kernels of a model, {layer: LayerKernel}, empty without one."""
    return {layer: module.kernel for layer, module in enumerate(attention_modules(model)) if hasattr(module, "kernel")}


def attention_modules(model: PreTrainedModel) -> list[Any]:
    """The self-attention modules of a supported model, first layer first.

    Raises
    ------
    ValueError
        On anything else, naming the supported types, and on a model with cross-attention.
    """
    if not isinstance(model, PreTrainedModel):
        raise ValueError(f"model must be a transformers model of type {', '.join(SUPPORTED)}, got {type(model).__name__}")
    kind, config = getattr(model.config, "model_type", None), model.config
    if kind not in SUPPORTED:
        raise ValueError(f"model must be of type {', '.join(SUPPORTED)}, got {kind!r} ({type(model).__name__})")
    if getattr(config, "add_cross_attention", False) or getattr(config, "is_encoder_decoder", False):
        raise ValueError(f"model must have no cross-attention, got {type(model).__name__} with add_cross_attention or is_encoder_decoder")
    return [module for module in model.modules() if type(module).__name__ == SUPPORTED[kind]]


def head_dim(model: PreTrainedModel) -> int:
    """Dimension of one head's queries and keys."""
    return getattr(model.config, "head_dim", None) or model.config.hidden_size // model.config.num_attention_heads


def softmax_of(model: PreTrainedModel) -> str:
    """Which softmax the model computes, or computed before it was attached to."""
    name = model.config._attn_implementation
    if name == NAME:
        name = getattr(attention_modules(model)[0], "softmax_attention", "sdpa")
    if name not in ("sdpa", "eager"):
        raise ValueError(f"model must compute attention by 'sdpa' or 'eager', got {name!r}")
    if name == "eager" and getattr(model.config, "reorder_and_upcast_attn", False):
        raise ValueError("model must have reorder_and_upcast_attn=False with 'eager': that softmax is not a registered function")
    if getattr(model.config, "is_causal", True) is False:
        raise ValueError("model must have no is_causal=False in its config: its attention modules would say otherwise")
    return name


def chosen_layers(layers: Iterable[int] | None, there: Iterable[int]) -> list[int]:
    """Numbers of layers as a list, all that are `there` if None; ValueError where they are no list, or one of them is not there."""
    every = list(there)
    chosen = every if layers is None else list(layers) if isinstance(layers, Iterable) else None
    if chosen is None or not all(isinstance(layer, Integral) and not isinstance(layer, bool) and layer in every for layer in chosen):
        raise ValueError(f"layers must be a list of numbers among {every}, got {layers if chosen is None else chosen!r}")
    return [int(layer) for layer in chosen]


def padding_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    mask_function: Any = causal_mask_function,
    attention_mask: Tensor | None = None,
    **unused: Any,
) -> Tensor | None:
    """The registered mask function: the padding mask bool (batch, key), True = attend, or None without padding.

    Raises
    ------
    ValueError
        Where a model asks for more than causal or full attention and padding (sliding windows, chunks, packed sequences), or the keys are
        not those of the mask (static caches).
    """
    if mask_function not in (causal_mask_function, bidirectional_mask_function):
        raise ValueError(
            "kernel attention takes a causal or full pattern and a padding mask (batch, key), got another pattern: a sliding window, "
            "chunks, or packed sequences (position ids that restart without an attention mask)"
        )
    if mask_function is causal_mask_function and (isinstance(q_offset, Tensor) or kv_offset or kv_length != q_offset + q_length):
        raise ValueError(
            f"kernel attention needs a cache that holds the past and nothing else, got {kv_length} keys after {q_offset} tokens"
        )
    if attention_mask is None:
        return None
    if attention_mask.shape != (batch_size, kv_length):
        raise ValueError(f"attention_mask must have shape {(batch_size, kv_length)}, got {tuple(attention_mask.shape)}")
    return None if bool(attention_mask.all()) else attention_mask


def attention_forward(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """The registered attention function: (out (batch, time, head, dim), weights (batch, head, query, key) or None).

    Weights are computed where the model was called with output_attentions=True, by attending to the identity: quadratic, for looking at
    short inputs. Layers that stay softmax then use their model's "eager" function.

    Raises
    ------
    ValueError
        On a mask that is not the padding's, an argument that kernel attention cannot honour (sliding window, packed sequences, soft cap),
        weights of a kernel that is not normalised by a sum or a count, or a module that nothing was attached to.
    """
    if not hasattr(module, "softmax_attention"):
        raise ValueError(
            f"{type(module).__name__} has no kernel: a model with attention {NAME!r} comes from attach or load_converted, "
            "not from from_pretrained"
        )
    kernel, memory = getattr(module, "kernel", None), None
    if kernel is not None:  # taken before anything can raise
        memory, kernel.memory = kernel.memory, None
    weights = "attentions" in (_active_collector.get() or ())
    causal = bool(getattr(module, "is_causal", False) if is_causal is None else is_causal)
    if kernel is None:
        return _softmax(module, query, key, value, attention_mask, causal, weights, scaling=scaling, dropout=dropout, **kwargs)
    refused = [name for name in _REFUSED if kwargs.get(name) is not None]
    if refused:
        raise ValueError(f"kernel attention cannot honour {refused[0]}, got {kwargs[refused[0]]!r}")
    if attention_mask is not None and (attention_mask.ndim != 2 or attention_mask.dtype != torch.bool):
        raise ValueError(f"attention_mask must be (batch, key) for kernel attention, got {described(attention_mask)}")
    how = {"is_causal": causal, "scale": scaling}
    if memory is not None and memory.latest is key:
        if weights:
            raise ValueError("output_attentions must be False with a recurrent cache, which does not hold the keys, got True")
        out = memory.attend(kernel, query, key, value, key_mask=attention_mask, dropout=dropout, **how)
    else:
        out = kernel(query, key, value, key_mask=attention_mask, dropout=dropout, **how)
    return out.transpose(1, 2).contiguous(), _weights(kernel, query, key, attention_mask, how) if weights else None


def _softmax(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, weights: bool, **kwargs: Any
) -> tuple[Tensor, Tensor | None]:
    """What the layer computed before `attach`: its own mask, its own function."""
    name = "eager" if weights else module.softmax_attention
    if mask is None or mask.ndim == 2:
        mask = AttentionMaskInterface()[name](
            batch_size=query.shape[0],
            q_length=query.shape[2],
            kv_length=key.shape[2],
            q_offset=key.shape[2] - query.shape[2] if causal else 0,
            mask_function=causal_mask_function if causal else bidirectional_mask_function,
            attention_mask=mask,
            allow_is_causal_skip=causal,
            allow_is_bidirectional_skip=not causal,
            dtype=query.dtype,
            device=query.device,
            config=module.config,
        )
    eager = sys.modules[type(module).__module__].eager_attention_forward
    return AttentionInterface().get_interface(name, eager)(module, query, key, value, mask, is_causal=causal, **kwargs)


def _weights(kernel: LayerKernel, query: Tensor, key: Tensor, mask: Tensor | None, how: dict[str, Any]) -> Tensor:
    """The weights (batch, head, query, key) that a kernel gives to values."""
    normalise = kernel.feature_map.normalise if kernel.normalise == "default" else kernel.normalise
    if normalise == "rms":
        raise ValueError("output_attentions must be False with normalise='rms', which is no weighting of values, got True")
    identity = torch.eye(key.shape[2], dtype=query.dtype, device=query.device).expand(*key.shape[:3], -1)
    return kernel(query, key, identity, key_mask=mask, **how)


AttentionInterface.register(NAME, attention_forward)
AttentionMaskInterface.register(NAME, padding_mask)
