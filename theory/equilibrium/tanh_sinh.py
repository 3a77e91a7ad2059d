"""A tanh-sinh rule on (0, 1), for integrands with singularities at the ends (Takahasi & Mori 1974)."""

from __future__ import annotations

import numpy as np

__all__ = ["NODE", "OTHER", "WEIGHT"]

_T = np.linspace(-3.6, 3.6, 145)
NODE = 1 / (1 + np.exp(-np.pi * np.sinh(_T)))
OTHER = NODE[::-1].copy()  # 1 - NODE without cancellation
WEIGHT = np.pi * np.cosh(_T) * (_T[1] - _T[0]) * NODE * OTHER
