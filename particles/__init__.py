"""Particles that learn a kernel: features, energies, domains, Langevin dynamics and their trajectories.

Neither torch nor scikit-learn is loaded by this package; the scikit-learn estimators load theirs on first use.
"""

from __future__ import annotations

import importlib
from typing import Any

from particles.alignment import Alignment, CentredAlignment, ManyBodyAlignment, QuadraticTarget
from particles.callables import External, Pair
from particles.convex import Ellipsoid, Projector
from particles.domain import Ball, Box, Domain, FullSpace, Torus
from particles.energy import Energy, Quadratic, Sum
from particles.ensemble import EnsembleError, run_ensemble
from particles.features import (
    CosineSquared,
    Elu,
    Feature,
    FourierPair,
    FourierPhase,
    HyperbolicPair,
    NonstationaryPair,
    PositiveExponential,
    SigmoidSquared,
    SoftmaxFeatures,
    Softplus,
    as_feature,
    feature_from_description,
)
from particles.frequencies import sample_frequencies
from particles.inference_data import to_arviz
from particles.langevin import DivergenceError, Langevin
from particles.mcmc import HMC, MALA
from particles.measure import Measure, load_measure, save_measure
from particles.polytope import HalfSpaces, Simplex
from particles.random import key_from, normal
from particles.resample import gibbs_weights, particle_energies, resample
from particles.riesz import Riesz
from particles.sampler import Sampler, geometric, linear
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
    "CosineSquared",
    "DivergenceError",
    "Domain",
    "Ellipsoid",
    "Elu",
    "Energy",
    "EnsembleError",
    "External",
    "Feature",
    "FourierPair",
    "FourierPhase",
    "FullSpace",
    "GaussianFeatures",
    "HMC",
    "HyperbolicPair",
    "HalfSpaces",
    "ImportanceFeatures",
    "Langevin",
    "MALA",
    "ManyBodyAlignment",
    "Measure",
    "NonstationaryPair",
    "Pair",
    "ParticleFeatures",
    "PositiveExponential",
    "Projector",
    "Quadratic",
    "QuadraticTarget",
    "Riesz",
    "Sampler",
    "SigmoidSquared",
    "Simplex",
    "SoftmaxFeatures",
    "Softplus",
    "Sum",
    "Torus",
    "as_feature",
    "feature_from_description",
    "geometric",
    "gibbs_weights",
    "key_from",
    "linear",
    "load_measure",
    "normal",
    "open_trajectory",
    "particle_energies",
    "resample",
    "resume",
    "run_ensemble",
    "sample_frequencies",
    "save_measure",
    "simulate",
    "to_arviz",
]
