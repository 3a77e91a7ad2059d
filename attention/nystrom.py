"""Nystrom features of the softmax kernel on landmarks of the data: signed, and without any gradient.

exp(q.k) = exp(|q|^2/2) G(q, k) exp(|k|^2/2) with the Gaussian kernel G(x, y) = exp(-|x - y|^2/2), and for landmarks L
    G(q, k) ~ G(q, L) (G(L, L) + ridge I)^-1 G(L, k)                                   (Williams and Seeger 2001).
Landmarks are particles: exp(|x|^2/2) G(x, w) is the feature exp(w.x - |w|^2/2), and what is new is a matrix that mixes the keys'
features. The matrix has negative entries, so a denominator can vanish: `attention.floored` puts a floor under it. A head that attends to
nothing but single tokens has entries of G far below the ridge; there positive features are better, and a head can have them instead.
"""

from __future__ import annotations

from typing import Any, Self

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attention.base import FeatureMap, Particles, projected
from particles.arrays import positive

RIDGE = 0.01  # beside the Gaussian kernel's unit diagonal


class Nystrom(FeatureMap):
    """phi(q) = exp(w.q + b), phi(k) = exp(w.k + b + a |k|^2) mixed by a matrix, for every landmark w in omega; nothing is learned.

    Parameters
    ----------
    particles : landmarks, among scaled queries and keys.
    ridge : above 0.

    Buffers: mixing (heads, particle, particle), bias b (heads, particle), key_norm a (heads,). A Nystrom head has (G + ridge I)^-1,
    b = -|w|^2/2 and a = 0; one made by `with_positive` has the identity, half of its log importance weights and a = -1/2.
    """

    mixing: Tensor
    bias: Tensor
    key_norm: Tensor

    def __init__(self, name: str, particles: Particles, *, ridge: float = RIDGE) -> None:
        super().__init__(name, particles)
        self.ridge = positive(ridge, "ridge")
        for buffer, value in zip(("mixing", "bias", "key_norm"), self._of_landmarks()):
            self.register_buffer(buffer, value)
        self.freeze()

    @property
    def signed(self) -> bool:
        """True: the features have either sign."""
        return True

    @torch.no_grad()
    def load_omega(self, omega: Any, omega_k: Any = None) -> Self:
        """Copy landmarks, and mix by their own matrix in every head; see `FeatureMap.load_omega`."""
        super().load_omega(omega, omega_k)
        for buffer, value in zip((self.mixing, self.bias, self.key_norm), self._of_landmarks()):
            buffer.copy_(value)
        return self

    @torch.no_grad()
    def with_positive(
        self, heads: Bool[Tensor, " head"], omega: Float[Tensor, "head particle dim"], log_weight: Float[Tensor, "head particle"]
    ) -> Self:
        """Give some heads the positive features exp(w.q), exp(w.k - |k|^2/2) of weighted particles instead; returns self."""
        self.omega[heads] = omega[heads].to(self.omega)
        self.mixing[heads] = torch.eye(omega.shape[1]).to(self.mixing)
        self.bias[heads] = 0.5 * (log_weight - log_weight.mean(-1, keepdim=True))[heads].to(self.bias)
        self.key_norm[heads] = -0.5
        return self

    @torch.no_grad()
    def _of_landmarks(self) -> tuple[Tensor, Tensor, Tensor]:
        """mixing, bias and key_norm of Nystrom heads."""
        omega = self.omega.detach().double()
        gram = (-0.5 * torch.cdist(omega, omega).square()).exp()
        mixing = torch.linalg.inv(gram + self.ridge * torch.eye(omega.shape[1], dtype=omega.dtype, device=omega.device))
        parts = mixing, -0.5 * omega.square().sum(-1), omega.new_zeros(len(omega))
        return tuple(part.to(self.omega.dtype) for part in parts)  # type: ignore[return-value]

    def _features(self, x: Tensor, omega: Tensor, role: str, position: Tensor | None) -> tuple[Tensor, Tensor]:
        log = projected(x, omega) + self.bias.to(x.dtype)[:, None]
        top = log.detach().amax(-1)
        phi = (log - top[..., None]).exp()
        if role == "query":
            return top, phi[..., None, :]
        return top + self.key_norm.to(x.dtype)[:, None] * x.square().sum(-1), (phi @ self.mixing.to(x.dtype))[..., None, :]
