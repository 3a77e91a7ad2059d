"""Exponential feature maps beyond FAVOR+: log phi is linear in omega.x, with corrections that are learned or known.

log phi(x; w) = B w.y + b + A |w|^2 + (dim/4) log(1 - 4A) + c(x),  B = sqrt(1 - 4A),  y = metric x.

Everything stays in the exponent, so importance weights neither overflow nor underflow.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from attention.base import FeatureMap, Particles, log_mean, per_head, projected
from particles.arrays import flag, positive, real
from particles.features import exponent_shift, headroom


class Exponential(FeatureMap):
    """phi = exp(log phi) of the line above, as a mean over particles or normalised over each token's features.

    Parameters
    ----------
    name, particles : see `FeatureMap`.
    signs : 1, or 2 for features of both +(B w.y + b) and -(B w.y + b).
    norm : whether c(x) holds -|y|^2/2, which makes N(0, I) particles unbiased for exp(y.y').
    softmax : None; "joint" divides the features of a token by their sum, "halves" those of each sign by theirs.
    temperature : divisor of w.y + b.
    tilt : A, (heads,), not trained.
    metric : first value (heads, dim, dim) of the learned metric.
    bias : learn b (heads, particle) from 0; queries and keys share it.
    key_norm, key_shift : learn c(k) = key_norm |k|^2 + key_shift.k for keys, from key_norm (a float) and a zero (heads, dim) vector.

    The factor M^(-1/2) is there only with `signs` 1: Hedgehog's papers have none.
    """

    tilt: Tensor | None
    metric: nn.Parameter | None
    bias: nn.Parameter | None
    key_norm: nn.Parameter | None
    key_shift: nn.Parameter | None

    def __init__(
        self,
        name: str,
        particles: Particles,
        *,
        signs: int = 1,
        norm: bool = False,
        softmax: str | None = None,
        temperature: float = 1.0,
        tilt: Tensor | None = None,
        metric: Tensor | None = None,
        bias: bool = False,
        key_norm: float | None = None,
    ) -> None:
        super().__init__(name, particles)
        self.width, self.norm, self.softmax, self.temperature = signs, norm, softmax, positive(temperature, "temperature")
        heads, n, dim = self.omega.shape
        zeros = self.omega.detach().new_zeros
        learned = {
            "metric": metric,
            "bias": zeros(heads, n) if flag(bias, "bias") else None,
            "key_norm": None if key_norm is None else zeros(heads) + real(key_norm, "key_norm"),
            "key_shift": None if key_norm is None else zeros(heads, dim),
        }
        for key, value in learned.items():
            self.register_parameter(key, None if value is None else nn.Parameter(value))
        self.register_buffer("tilt", tilt)

    def headroom(self, dtype: torch.dtype) -> float:
        """The largest exponent that the features of this type have room for."""
        return headroom(torch.finfo(dtype))

    def _features(self, x: Tensor, omega: Tensor, role: str, position: Tensor | None) -> tuple[Tensor, Tensor]:
        if self.metric is not None:
            x = projected(x, self.metric.to(x.dtype))
        z = self._log(x, omega) / self.temperature
        log = torch.stack((z, -z), -2) if self.width == 2 else z[..., None, :]
        top = log.detach().amax((-2, -1))
        shift = exponent_shift(top)
        if self.softmax == "halves":
            return shift - top, (log.log_softmax(-1) - (shift - top)[..., None, None]).exp()
        phi = (log - shift[..., None, None]).exp()
        if self.softmax == "joint":
            return -phi.sum((-2, -1)).log(), phi
        return shift + self._factor(x, role) + (log_mean(omega) if self.width == 1 else 0.0), phi

    def _log(self, y: Tensor, omega: Tensor) -> Tensor:
        """What is particle k's own in log phi, (batch, head, time, particle)."""
        if self.tilt is not None:
            a = self.tilt.to(y.dtype)[:, None, None]
            weight = a[..., 0] * omega.square().sum(-1) + 0.25 * omega.shape[-1] * torch.log1p(-4 * a[..., 0])
            return projected(y, omega * (1 - 4 * a).sqrt()) + weight[:, None]
        z = projected(y, omega)
        return z if self.bias is None else z + self.bias.to(y.dtype)[:, None]

    def _factor(self, y: Tensor, role: str) -> Tensor | float:
        """c, (batch, head, time)."""
        if self.norm:
            return -0.5 * y.square().sum(-1)
        if self.key_norm is None or self.key_shift is None or role == "query":
            return 0.0
        return y.square().sum(-1) * self.key_norm.to(y.dtype)[:, None] + (y * self.key_shift.to(y.dtype)[:, None]).sum(-1)


def exponential(name: str, particles: Particles, *, key_norm: float = -0.5) -> Exponential:
    """log phi_q = w.q + b, log phi_k = w_k.k + b + key_norm |k|^2 + key_shift.k: everything learned, from FAVOR+ without |q|^2/2.

    A factor of a query cancels in normalised attention, so it is left out.
    """
    return Exponential(name, particles, bias=True, key_norm=real(key_norm, "key_norm"))


def optimal_positive(name: str, particles: Particles, *, A: Any = None, phi2: Any = None) -> Exponential:
    """(1 - 4A)^(dim/4) exp(A |w|^2 + sqrt(1 - 4A) w.x - |x|^2/2), w ~ N(0, I): unbiased for exp(x.y) with less variance than FAVOR+.

    The variance is finite for A < 1/8; A = 0 is FAVOR+, and A < 0 bounds the features (arXiv 2205.15317 and 2302.00787).

    Parameters
    ----------
    A : a number or one per head, below 1/8; None takes `optimal_tilt` of phi2.
    phi2 : mean |q + k|^2 of scaled queries and keys, a number or one per head; None is 2 sqrt(dim), that of N(0, I) ones scaled by
        dim^(-1/4).

    Raises
    ------
    ValueError
        If both are given, an A is not below 1/8 or not finite in omega's type, or a phi2 is negative.
    """
    if A is not None and phi2 is not None:
        raise ValueError(f"phi2 determines A: give one of them, got A={A!r} and phi2={phi2!r}")
    heads, _, dim = particles.omega.shape
    if A is None:
        tilt = optimal_tilt(_of_heads(2 * math.sqrt(dim) if phi2 is None else phi2, heads, "phi2"), dim)
    else:
        tilt = _of_heads(A, heads, "A")
    tilt = tilt.to(particles.omega)
    if not bool((tilt.isfinite() & (tilt < 1 / 8)).all()):
        raise ValueError(f"A must be finite and below 1/8, where the variance is, got {tilt.tolist()} from A={A!r} and phi2={phi2!r}")
    return Exponential(name, particles, norm=True, tilt=tilt)


def optimal_tilt(phi2: Tensor, dim: int) -> Tensor:
    """The A of least variance for pairs with |x + y|^2 = phi2: (1 - 1/rho)/8, rho as in arXiv 2205.15317; at most 0.

    For one pair it is exact; over pairs with mean phi2 it minimises the mean logarithm of the second moment.

    Raises
    ------
    ValueError
        If a phi2 is negative.
    """
    if bool((phi2 < 0).any()):
        raise ValueError(f"phi2 must be at least 0, got {phi2.tolist()}")
    total = 2 * phi2 + dim
    inverse = (torch.sqrt(total**2 + 8 * dim * phi2) + total) / (2 * dim)  # 1/rho, multiplied out: no 0/0 at phi2 = 0
    return (1 - inverse) / 8


def data_aware(name: str, particles: Particles) -> Exponential:
    """exp(w.x - x^T Sigma x/2), w ~ N(0, Sigma), Sigma = metric^T metric: unbiased for exp(q^T Sigma k) (DARKFormer, arXiv 2603.04127).

    omega holds the standard normal e of w = metric^T e, so that a gradient in `metric` (heads, dim, dim) moves the whole law.
    """
    heads, _, dim = particles.omega.shape
    return Exponential(name, particles, norm=True, metric=torch.eye(dim).to(particles.omega).repeat(heads, 1, 1))


def hedgehog(name: str, particles: Particles, *, temperature: float = 1.0, bias: bool = False, softmax: str | None = None) -> Exponential:
    """exp of +-(W x + b)/temperature, as it is or in a reading of `softmax` (Hedgehog, arXiv 2402.04347).

    W is omega for queries and omega_k for keys; `bias` learns b (heads, particle), which the two share.
    """
    return Exponential(name, particles, signs=2, softmax=softmax, temperature=temperature, bias=bias)


def _of_heads(value: Any, heads: int, name: str) -> Tensor:
    """A number for all heads or one for each, as float64 (heads,)."""
    return per_head(value, (heads,), name).double().clone()
