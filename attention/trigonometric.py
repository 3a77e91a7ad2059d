"""Trigonometric feature maps: cosines and sines of omega.x, with the norm factor that turns a Gaussian kernel into softmax's.

exp(x.y) = exp(|x|^2/2) exp(-|x - y|^2/2) exp(|y|^2/2), and the middle factor is E cos w.(x - y) for w ~ N(0, I) (Bochner). Learned
frequencies make it any stationary kernel (Flexformer, stationary), learned pairs (w1, w2) any of Yaglom's (nonstationary).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from attention.base import Particles, log_mean
from attention.particle_map import ParticleMap
from particles.arrays import flag, positive, real
from particles.features import Feature, FourierPhase


class Trigonometric(ParticleMap):
    """A cosine feature of `particles`, times exp(|x|^2/2), exp(|x|^2 exp(-tau)) or 1, and perhaps one constant feature.

    Signed, unless the constant feature makes the kernel non-negative: 1 + (1/M) sum_k cos w_k.(x - y) >= 0 for EVERY omega, since no
    cosine is below -1. That takes a weight of 1 (2 for "phase", whose products reach -2) and costs sharpness: the kernel is nearly flat.

    Parameters
    ----------
    name, particles, feature : see `ParticleMap`.
    envelope : multiply by exp(|x|^2/2), the stationary Flexformer's factor.
    tau : start of the learned `tau` (heads,) of the factor exp(|x|^2 exp(-tau)); log 2 is `envelope`, and tau + log sqrt(dim) is the
        paper's tau for inputs that are not scaled by dim^(-1/4). None: no such factor.
    constant_feature : weight >= 0 of a constant feature, in units of the kernel's mean over particles; 0 adds none.
    """

    def __init__(
        self,
        name: str,
        particles: Particles,
        feature: Feature,
        *,
        envelope: bool = False,
        tau: float | None = None,
        constant_feature: float = 0.0,
    ) -> None:
        super().__init__(name, particles, feature)
        self.envelope = flag(envelope, "envelope")
        self.constant_feature = positive(constant_feature, "constant_feature", zero=True)
        if tau is not None:
            self.tau = nn.Parameter(torch.full_like(self.omega.detach()[:, 0, 0], real(tau, "tau")))

    @property
    def signed(self) -> bool:
        """Whether the kernel may be negative: not with a constant feature that is large enough."""
        return self.constant_feature < (2 if isinstance(self.feature, FourierPhase) else 1)

    @property
    def feature_dim(self) -> int:
        """Length of the feature vector of one token, the constant feature included."""
        return super().feature_dim + (self.constant_feature > 0)

    def forward(self, x: Tensor, *, role: str = "query", position: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """See `FeatureMap.forward`; the constant feature comes last."""
        log_scale, phi = super().forward(x, role=role, position=position)
        if not self.constant_feature:
            return log_scale, phi
        constant = phi.new_full(phi[..., :1].shape, math.sqrt(self.constant_feature) * math.exp(-log_mean(self.omega)))
        return log_scale, torch.cat((phi, constant), -1)

    def _features(self, x: Tensor, omega: Tensor, role: str, position: Tensor | None) -> tuple[Tensor, Tensor]:
        log_scale, phi = super()._features(x, omega, role, position)
        if self.tau is not None:
            return log_scale + x.square().sum(-1) * (-self.tau.to(x.dtype)).exp()[:, None], phi
        return (log_scale + 0.5 * x.square().sum(-1) if self.envelope else log_scale), phi
