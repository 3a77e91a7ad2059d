"""Particles that learn a kernel: features, energies, domains, Langevin dynamics and their trajectories.

Neither torch nor scikit-learn is loaded by this package; the scikit-learn estimators load theirs on first use.
"""

from __future__ import annotations

import importlib
from typing import Any

from particles.alignment import Alignment, CentredAlignment, QuadraticTarget
from particles.domain import Ball, Box, Domain, FullSpace
from particles.energy import Energy, Quadratic, Sum
from particles.features import (
    Elu,
    Feature,
    FourierPair,
    FourierPhase,
    NonstationaryPair,
    PositiveExponential,
    SoftmaxFeatures,
    Softplus,
    as_feature,
    feature_from_description,
)
from particles.frequencies import sample_frequencies
from particles.langevin import DivergenceError, Langevin, geometric, linear
from particles.measure import Measure, load_measure, save_measure
from particles.random import key_from, normal
from particles.riesz import Riesz
from particles.simulate import resume, simulate
from particles.trajectory import open_trajectory

_LAZY = {"GaussianFeatures": "estimator", "ImportanceFeatures": "estimator", "ParticleFeatures": "estimator"}


def __getattr__(name: str) -> Any:
    """The estimators, imported when first asked for because scikit-learn is slow to load."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)


__all__ = [
    "Alignment",
    "Ball",
    "Box",
    "CentredAlignment",
    "DivergenceError",
    "Domain",
    "Elu",
    "Energy",
    "Feature",
    "FourierPair",
    "FourierPhase",
    "FullSpace",
    "GaussianFeatures",
    "ImportanceFeatures",
    "Langevin",
    "Measure",
    "NonstationaryPair",
    "ParticleFeatures",
    "PositiveExponential",
    "Quadratic",
    "QuadraticTarget",
    "Riesz",
    "SoftmaxFeatures",
    "Softplus",
    "Sum",
    "as_feature",
    "feature_from_description",
    "geometric",
    "key_from",
    "linear",
    "load_measure",
    "normal",
    "open_trajectory",
    "resume",
    "sample_frequencies",
    "save_measure",
    "simulate",
]
