from __future__ import annotations

import numpy as np


def feature_rank(features: np.ndarray) -> float:
    """exp of the entropy of the normalised eigenvalues of phi^T phi: the effective number of directions of features (token, feature)."""
    values = np.linalg.svd(np.asarray(features, float), compute_uv=False) ** 2
    if not values.sum() > 0:
        raise ValueError("features must be finite and not all zero")
    shares = values[values > 0] / values.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))
