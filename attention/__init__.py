"""Kernel attention that is linear in the sequence, with particles as its features, and the two-phase training of a transformer."""

from attention.feature_map import FeatureMap, feature_map
from attention.linear import State, kernel_attention

__all__ = ["FeatureMap", "State", "feature_map", "kernel_attention"]
