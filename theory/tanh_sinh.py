"""The tanh-sinh rule on (0, 1), for integrands with singularities at the ends (Takahasi & Mori 1974)."""

from __future__ import annotations

import numpy as np

from theory.arrays import FloatArray

__all__ = ["NODE", "OTHER", "WEIGHT", "tanh_sinh"]


def tanh_sinh(low: float, high: float, points: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Nodes, 1 - nodes without cancellation, and weights (points,); `low` and `high` say how close to 0 and to 1 the nodes come."""
    tau = np.linspace(low, high, points)
    sinh = np.pi * np.sinh(tau)
    node, other = 1 / (1 + np.exp(-sinh)), 1 / (1 + np.exp(sinh))
    return node, other, (tau[1] - tau[0]) * np.pi * np.cosh(tau) * node * other


NODE, OTHER, WEIGHT = tanh_sinh(-3.6, 3.6, 145)
