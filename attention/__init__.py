"""Kernel attention that is linear in the sequence, with particles as its features, and the two-phase training of a transformer.

`feature_map`, `align` and `finetune` are functions here and also names of the modules that hold them: `from attention.align import ...`
reaches a module's other contents.
"""

from attention.align import align
from attention.feature_map import FeatureMap, feature_map
from attention.finetune import finetune
from attention.linear import State, kernel_attention
from attention.model import ModelConfig, Transformer

__all__ = ["FeatureMap", "ModelConfig", "State", "Transformer", "align", "feature_map", "finetune", "kernel_attention"]
