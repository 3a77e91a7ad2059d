"""First values of particles: independent, orthogonal, in pairs, or the identity; float64, on the generator's device."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from particles.arrays import real

Draw = Callable[..., Tensor]  # (heads, particles, dim, generator, **options) -> (heads, particles, particle_dim)


def normal(heads: int, particles: int, dim: int, generator: torch.Generator | None) -> Tensor:
    """Independent N(0, I)."""
    return torch.randn(heads, particles, dim, **_where(generator))


def orthogonal(heads: int, particles: int, dim: int, generator: torch.Generator | None) -> Tensor:
    """Blocks of `dim` orthogonal Haar directions with chi(dim) lengths (Choromanski et al. 2021): each row is still N(0, I)."""
    lengths = normal(heads, particles, dim, generator).norm(dim=-1, keepdim=True)
    return _directions(heads, particles, dim, generator) * lengths


def pairs(heads: int, particles: int, dim: int, generator: torch.Generator | None, *, spread: float = 0.1) -> Tensor:
    """(w1, w2) with N(0, I) halves that differ by N(0, 2 spread^2 I): 0 is the stationary kernel, 1 independent halves.

    Exactly equal halves have equal gradients and never part.
    """
    if not 0 <= real(spread, "spread") <= 1:
        raise ValueError(f"spread must be in [0, 1], got {spread!r}")
    shared = math.sqrt(1 - spread**2) * orthogonal(heads, particles, dim, generator)
    return torch.cat([shared + spread * normal(heads, particles, dim, generator) for _ in range(2)], -1)


def identity(heads: int, particles: int, dim: int, generator: torch.Generator | None) -> Tensor:
    """The identity; ValueError unless particles == dim."""
    if particles != dim:
        raise ValueError(f"n_features must be that of {dim} particles, dim, when no omega is given, got {particles} particles")
    return torch.eye(dim, dtype=torch.float64, device=_where(generator)["device"]).repeat(heads, 1, 1)


def frame(heads: int, particles: int, dim: int, generator: torch.Generator | None) -> Tensor:
    """The identity if particles == dim, else blocks of orthonormal Haar directions."""
    return identity(heads, particles, dim, generator) if particles == dim else _directions(heads, particles, dim, generator)


def with_phase(draw: Draw) -> Draw:
    """The same draw with one more coordinate, uniform on [0, 2 pi)."""

    def drawn(heads: int, particles: int, dim: int, generator: torch.Generator | None) -> Tensor:
        omega = draw(heads, particles, dim, generator)
        return torch.cat((omega, 2 * math.pi * torch.rand(heads, particles, 1, **_where(generator))), -1)

    return drawn


def _directions(heads: int, particles: int, dim: int, generator: torch.Generator | None) -> Tensor:
    q, r = torch.linalg.qr(torch.randn(heads, -(-particles // dim), dim, dim, **_where(generator)))
    q = q * r.diagonal(dim1=-2, dim2=-1).sgn()[..., None, :]  # without the signs QR is not Haar distributed
    return q.flatten(1, 2)[:, :particles]


def _where(generator: torch.Generator | None) -> dict[str, Any]:
    return {"generator": generator, "dtype": torch.float64, "device": None if generator is None else generator.device}
