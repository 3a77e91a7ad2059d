"""What every feature map of kernel attention is: particles omega, one set per head, behind one torch module."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from particles.arrays import as_float
from particles.features import Feature


class Particles(NamedTuple):
    """First values of a map: omega and omega_k (heads, particle, particle_dim), weights (heads, particle) summing to 1 or None."""

    omega: Tensor
    omega_k: Tensor | None = None
    weights: Tensor | None = None


class FeatureMap(nn.Module):
    """phi_Omega for every head: x (batch, head, time, dim) to (log_scale, features). Build one with `feature_map`.

    A family is a subclass that says in `_features` what the particles do to x.

    Parameters
    ----------
    name : the name that it was built by.
    particles : first values, copied.

    Attributes
    ----------
    omega : nn.Parameter (heads, particle, particle_dim), in units of scaled inputs (see `kernel_attention`); learnable until `freeze`.
        It is only ever written in place, so that optimisers and `state_dict` keep pointing to it.
    omega_k : nn.Parameter of omega's shape, the keys' own particles, or None where queries and keys share omega.
    tau : nn.Parameter (heads,), the logarithm of a scale, or None where the map has none.
    weights : buffer (heads, particle) or None, not trained: K = sum_k weights_k phi_k phi_k.
    feature : the `particles` feature that the map computes, or None where it is no particle's feature.
    width : features per particle.
    positional : whether `forward` needs positions.
    arguments : what `feature_map` was asked for, all but numbers that `state_dict` holds; None if it did not make the map.
    """

    omega_k: nn.Parameter | None
    tau: nn.Parameter | None
    weights: Tensor | None
    feature: Feature | None = None
    width: int = 1
    positional: bool = False
    arguments: dict[str, Any] | None = None

    def __init__(self, name: str, particles: Particles) -> None:
        super().__init__()
        self.name = name
        self.omega = _parameter(particles.omega)
        self.register_parameter("omega_k", None if particles.omega_k is None else _parameter(particles.omega_k))
        self.register_parameter("tau", None)
        self.register_buffer("weights", None if particles.weights is None else particles.weights.detach().clone())

    @property
    def signed(self) -> bool:
        """Whether the kernel, and with it a denominator, can be negative."""
        return False

    @property
    def normalise(self) -> str:
        """The default normaliser of attention: "sum" for positive maps, "rms" for signed ones, whose sums can vanish."""
        return "rms" if self.signed else "sum"

    def headroom(self, dtype: torch.dtype) -> float:
        """How far features computed in `dtype` may exceed 1, about: what a feature that underflows could have contributed to a product of
        features is up to this factor above the type's smallest number."""
        return 1.0

    @property
    def heads(self) -> int:
        """Sets of particles: one a head, or 1 that all heads share."""
        return self.omega.shape[0]

    @property
    def feature_dim(self) -> int:
        """Length of the feature vector of one token."""
        return self.omega.shape[1] * self.width

    def forward(
        self, x: Tensor, *, role: str = "query", position: Tensor | None = None
    ) -> tuple[Float[Tensor, "batch head time"], Float[Tensor, "batch head time feature"]]:
        """x (batch, head, time, dim) to (log_scale, features), computed in float32 at least.

        The true features are exp(log_scale)[..., None] * features; the gradient of that product is right, the ones of its factors are not
        meant to be (the scale of a positive feature is a constant to autograd). `role` matters to maps that tell queries and keys apart.
        `position`, (time,) or (batch, time) integers, belongs to `positional` maps only.

        Raises
        ------
        ValueError
            On an unknown role, an x of no float type or that does not fit the heads and the particles, or positions that are missing or
            of no use.
        """
        if role not in ("query", "key"):
            raise ValueError(f"role must be 'query' or 'key', got {role!r}")
        if not isinstance(x, Tensor) or x.ndim != 4 or not x.is_floating_point() or (self.heads != 1 and self.heads != x.shape[1]):
            raise ValueError(f"x must have shape (batch, {self.heads}, time, dim) and a float type, got {described(x)}")
        if self.positional != (position is not None):
            wanted = "the tokens' integer positions" if self.positional else "None"
            raise ValueError(f"position must be {wanted} for {self.name!r}, got {None if position is None else described(position)}")
        omega = self.omega if role == "query" or self.omega_k is None else self.omega_k
        dtype = torch.promote_types(torch.promote_types(x.dtype, omega.dtype), torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            log_scale, phi = self._features(x.to(dtype), omega.to(dtype), role, position)
            if self.weights is not None:
                phi = phi * (omega.shape[1] * self.weights.to(dtype)).sqrt()[:, None, None]
        return log_scale, phi.flatten(-2)

    def _features(
        self, x: Tensor, omega: Tensor, role: str, position: Tensor | None
    ) -> tuple[Float[Tensor, "batch head time"], Float[Tensor, "batch head time width particle"]]:
        """(log_scale, bounded features), for an x and the particles of its role in the type to compute in."""
        raise NotImplementedError

    def freeze(self) -> Self:
        """Make omega (and omega_k) a constant of training; returns self."""
        return self._learn(False)

    def release(self) -> Self:
        """Make omega (and omega_k) learnable; returns self."""
        return self._learn(True)

    def _learn(self, learn: bool) -> Self:
        for omega in (self.omega, self.omega_k):
            if omega is not None:
                omega.requires_grad_(learn)
        return self

    @torch.no_grad()
    def load_omega(self, omega: Any, omega_k: Any = None) -> Self:
        """Copy particles (particle, particle_dim), shared by all heads, or (heads, particle, particle_dim) into `omega`; returns self.

        NumPy or torch, any float type; the values are rounded to the parameter's type. Weights become equal. Where the keys have their
        own particles they become `omega_k`, or omega again without one.

        Raises
        ------
        ValueError
            On another shape, numbers that are not finite in the parameter's type, or an omega_k for a map whose keys have no particles of
            their own.
        """
        if omega_k is not None and self.omega_k is None:
            raise ValueError(f"omega_k has no meaning for {self.name!r}, got {described(omega_k)}")
        shape, dtype = tuple(self.omega.shape), self.omega.dtype
        omega = per_head(omega, shape, dtype=dtype)
        keys = omega if omega_k is None else per_head(omega_k, shape, "omega_k", dtype=dtype)
        self.omega.copy_(omega)
        if self.omega_k is not None:
            self.omega_k.copy_(keys)
        if self.weights is not None:
            self.weights.fill_(1 / self.omega.shape[1])
        return self

    def extra_repr(self) -> str:
        """What the printed module says of itself: name, sizes, frozen or not."""
        heads, particles, pd = self.omega.shape
        return f"{self.name!r}, heads={heads}, particles={particles}, particle_dim={pd}, frozen={not self.omega.requires_grad}"


def _parameter(value: Tensor) -> nn.Parameter:
    return nn.Parameter(value.detach().clone(memory_format=torch.contiguous_format))


def described(value: Any) -> str:
    """What a message says that it got: type and shape of an array (and NumPy's name, if it is one), the class of anything else."""
    if not isinstance(value, Tensor | np.ndarray):
        return f"a {type(value).__name__}"
    return f"{'' if isinstance(value, Tensor) else 'NumPy '}{value.dtype} {tuple(value.shape)}"


def per_head(array: Any, shape: tuple[int, ...], name: str = "omega", *, dtype: torch.dtype | None = None) -> Tensor:
    """Numbers of `shape` or, one for all heads, of shape[1:], that are finite, also once rounded to `dtype`; a copy if they are NumPy's.

    ValueError names the argument.
    """
    if isinstance(array, Tensor) and array.dtype in (torch.float16, torch.bfloat16):
        array = array.float()  # `particles` computes in the two wide types alone
    array = as_float(array, name)
    if tuple(array.shape) not in (shape, shape[1:]):
        raise ValueError(f"{name} must have shape {shape} or {shape[1:]}, got {tuple(array.shape)}")
    if isinstance(array, np.ndarray):
        array = torch.from_numpy(array.copy())
    rounded = array.detach().to(dtype or array.dtype)
    if not bool(rounded.isfinite().all()):
        raise ValueError(f"{name} must be finite in {dtype}, got a largest size of {float(array.abs().max()):.4g}")
    return rounded.expand(shape)


def projected(x: Tensor, omega: Tensor) -> Float[Tensor, "batch head time particle"]:
    """omega.x; ValueError if x has another dim."""
    if x.shape[-1] != omega.shape[-1]:
        raise ValueError(f"x must have dim {omega.shape[-1]}, as the particles have, got {described(x)}")
    return x @ omega.mT


def log_mean(omega: Tensor) -> float:
    """log M^(-1/2), which makes the kernel a mean over the M particles."""
    return -0.5 * math.log(omega.shape[1])
