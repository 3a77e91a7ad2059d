"""Feature maps that compute a feature of `particles`: the same phi in both training phases and in the particle simulation."""

from __future__ import annotations

import torch
from torch import Tensor

from attention.base import FeatureMap, Particles, log_mean
from particles.arrays import flag
from particles.features import Feature, headroom


class ParticleMap(FeatureMap):
    """M^(-1/2) (phi(x; omega_1), ..., phi(x; omega_M)) with phi a `particles` feature.

    Parameters
    ----------
    name, particles : see `FeatureMap`.
    feature : the feature; a particle has `feature.particle_dim(dim)` numbers.
    learn_offset : whether gradients reach the offsets b of particles (w, b).
    mean : without it the factor M^(-1/2) is left out.
    """

    feature: Feature

    def __init__(self, name: str, particles: Particles, feature: Feature, *, learn_offset: bool = True, mean: bool = True) -> None:
        super().__init__(name, particles)
        self.feature, self.width, self.mean = feature, feature.width, mean
        self.learn_offset = flag(learn_offset, "learn_offset")

    @property
    def signed(self) -> bool:
        """Whether the kernel may be negative, as the feature says."""
        return self.feature.signed

    def headroom(self, dtype: torch.dtype) -> float:
        """The largest exponent that the features of this type have room for; 1 for bounded ones."""
        return headroom(torch.finfo(dtype)) if self.feature.exponential else 1.0

    def _features(self, x: Tensor, omega: Tensor, role: str, position: Tensor | None) -> tuple[Tensor, Tensor]:
        if self.feature.offset and not self.learn_offset:
            omega = torch.cat((omega[..., :-1], omega[..., -1:].detach()), -1)
        log_scale, phi = self.feature.scaled(x, omega)
        return (log_scale + log_mean(omega) if self.mean else log_scale), phi
