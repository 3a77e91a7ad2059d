"""Kernel attention that is linear in the sequence, with particles as its features; transformers that use it; softmax-free attention.

`feature_map`, `align`, `alternate`, `counts`, `finetune` and `rotary` are names of modules too: here they are the functions,
`from attention.align import ...` reaches the module's other contents and help(sys.modules["attention.align"]) its text. What needs
Hugging Face's transformers (the extra `hf`) is imported when first asked for.
"""

from __future__ import annotations

import importlib
from typing import Any

from attention.align import align
from attention.alternate import alternate
from attention.counts import counts
from attention.evaluate import evaluate, predict
from attention.feature_map import MAP_NAMES, MAPS, FeatureMap, feature_map
from attention.finetune import finetune
from attention.inspection import (
    attention_maps,
    denominators,
    effective_rank,
    heads_from,
    heads_of,
    inspect,
    kernel_error,
    row_entropy,
)
from attention.landmarks import ConvLandmarks, FirstLandmarks, PooledLandmarks, RandomLandmarks
from attention.layer_kernel import LayerKernel
from attention.linear import State, kernel_attention
from attention.linformer import Linformer
from attention.measures import load_measures, save_measures
from attention.memory import Memory
from attention.model import ModelConfig, Transformer
from attention.nystromformer import nystromformer_attention
from attention.relation import AttendAlignment, AttendDivergence, AttendQuadratic, CentredAttendAlignment
from attention.rotary import rotary
from attention.softmax_free import newton_pinv, softmax_free_attention
from attention.vision import VisionConfig, VisionTransformer, soft
from attention.window import WindowState

_LAZY = {
    "RecurrentCache": "recurrent_cache",
    "attach": "huggingface",
    "convert": "conversion",
    "detach": "huggingface",
    "distil": "distillation",
    "fold_into": "conversion",
    "keep_softmax": "conversion",
    "layer_kernels": "huggingface",
    "load_converted": "converted",
    "save_converted": "converted",
}


def __getattr__(name: str) -> Any:
    """What imports transformers, when first asked for."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)


__all__ = [
    "MAPS",
    "MAP_NAMES",
    "AttendAlignment",
    "AttendDivergence",
    "AttendQuadratic",
    "CentredAttendAlignment",
    "ConvLandmarks",
    "FeatureMap",
    "FirstLandmarks",
    "LayerKernel",
    "Linformer",
    "Memory",
    "ModelConfig",
    "PooledLandmarks",
    "RandomLandmarks",
    "RecurrentCache",
    "State",
    "Transformer",
    "VisionConfig",
    "VisionTransformer",
    "WindowState",
    "align",
    "alternate",
    "attach",
    "attention_maps",
    "convert",
    "counts",
    "denominators",
    "detach",
    "distil",
    "effective_rank",
    "evaluate",
    "feature_map",
    "finetune",
    "fold_into",
    "heads_from",
    "heads_of",
    "inspect",
    "keep_softmax",
    "kernel_attention",
    "kernel_error",
    "layer_kernels",
    "load_converted",
    "load_measures",
    "newton_pinv",
    "nystromformer_attention",
    "predict",
    "rotary",
    "row_entropy",
    "save_converted",
    "save_measures",
    "soft",
    "softmax_free_attention",
]
