"""Feature maps of kernel attention: particles omega, one set per head, behind one torch module.

The features are those of `particles.features`, so that both training phases and the particle simulation use the same phi by construction.
With M particles the map is phi_Omega(x) = M^-1/2 (phi(x; omega_1), ..., phi(x; omega_M)) (Coulomb paper, App. D; methods of Performer and
random feature attention), so phi_Omega(q) . phi_Omega(k) estimates the kernel. It comes as (log_scale, features): the true features are
exp(log_scale) * features, where `features` is bounded; nothing overflows and no epsilon is needed.

| name             | phi(x; omega)                                    | source                                        |
|------------------|--------------------------------------------------|-----------------------------------------------|
| "favor"          | exp(omega.x - |x|^2/2)                           | Choromanski et al. 2021; Coulomb paper, App. D |
| "softplus"       | (softplus(omega.x/temperature) + floor)/Z        | Coulomb paper, App. D                         |
| "porf-softplus"  | the same formula, orthogonal first draw          | Coulomb paper, App. D                         |
| "elu", "elu+1"   | max(1 + elu(omega.x/temperature), floor)/Z       | Coulomb paper, App. D (with b_i = 0)          |
| "softmaxfeat"    | sqrt(M) softmax over the particles of omega.x/temperature | Coulomb paper, App. D                |
| "fourier"        | (cos omega.x, sin omega.x), 2 features a particle | Flexformer; Rahimi and Recht 2007            |
| "phase"          | sqrt2 cos(omega.x + b), particle (omega, b)      | Coulomb paper, Lemma 3                        |

`particles` calls "favor" "positive" and "softmaxfeat" "softmax"; the other names that both have are the same. Any feature of
`particles`, with the options that it was made with, can stand in a name's place: the way of a stored measure into attention.

Z makes the features of one token sum to sqrt(M) before the M^-1/2 (`renormalise`, the paper's choice). The paper states neither
temperature, floor nor first draw: temperature 1, floor 0 and the draws of `feature_map` are ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from particles.arrays import as_float, count, positive
from particles.features import Elu, Feature, FourierPair, FourierPhase, PositiveExponential, SoftmaxFeatures, Softplus

_MAPS: dict[str, tuple[type[Feature], bool]] = {  # name: (feature, orthogonal first draw)
    "favor": (PositiveExponential, True),
    "softplus": (Softplus, False),
    "porf-softplus": (Softplus, True),
    "elu": (Elu, False),
    "elu+1": (Elu, False),
    "softmaxfeat": (SoftmaxFeatures, False),
    "fourier": (FourierPair, True),
    "phase": (FourierPhase, True),
}
_DEFAULTS: dict[str, Any] = {"renormalise": True}  # of App. D; particles.features leaves it off


class FeatureMap(nn.Module):
    """phi_Omega for every head: x (batch, head, time, dim) to (log_scale, features). Build it with `feature_map`.

    Parameters
    ----------
    name : one of the table above, or the name of the `particles` feature that was given.
    feature : the `particles` feature.
    omega : (heads, particle, particle_dim) first values, copied.
    weights : (heads, particle), summing to 1 over the particles, or None for equal ones.

    Attributes
    ----------
    omega : nn.Parameter (heads, particle, particle_dim), in units of scaled inputs (see `kernel_attention`); learnable until `freeze`.
        It is only ever written in place, so that optimisers and `state_dict` keep pointing to it.
    weights : buffer (heads, particle) or None, not trained: K = sum_k weights_k phi_k phi_k.
    signed : whether a feature can be negative, and with it a denominator.
    feature_dim : features per token and head, particles times `feature.width`.
    """

    weights: Tensor | None

    def __init__(
        self, name: str, feature: Feature, omega: Float[Tensor, "head particle pd"], weights: Float[Tensor, "head particle"] | None = None
    ) -> None:
        super().__init__()
        self.name, self.feature = name, feature
        self.omega = nn.Parameter(omega.detach().clone())
        self.register_buffer("weights", None if weights is None else weights.detach().clone())

    @property
    def signed(self) -> bool:
        return self.feature.signed

    @property
    def heads(self) -> int:
        return self.omega.shape[0]

    @property
    def feature_dim(self) -> int:
        return self.omega.shape[1] * self.feature.width

    def forward(
        self, x: Tensor, *, role: str = "query"
    ) -> tuple[Float[Tensor, "batch head time"], Float[Tensor, "batch head time feature"]]:
        """x (batch, head, time, dim) to (log_scale, features), computed in float32 at least.

        The true features are exp(log_scale)[..., None] * features; log_scale is -log(M)/2 for signed maps. Queries and keys share the map:
        `role` is checked, and there for maps that tell them apart.

        Raises
        ------
        ValueError
            On an unknown role, or an x that does not fit the heads and the particles.
        """
        if role not in ("query", "key"):
            raise ValueError(f"role must be 'query' or 'key', got {role!r}")
        if not isinstance(x, Tensor) or x.ndim != 4 or (self.heads != 1 and self.heads != x.shape[1]):
            raise ValueError(f"x must have shape (batch, {self.heads}, time, dim), got {described(x)}")
        dtype = torch.promote_types(torch.promote_types(x.dtype, self.omega.dtype), torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            log_scale, phi = self.feature.scaled(x.to(dtype), self.omega.to(dtype))
            if self.weights is not None:
                phi = phi * (self.omega.shape[1] * self.weights.to(dtype)).sqrt()[:, None, None]
        return log_scale - 0.5 * math.log(self.omega.shape[1]), phi.flatten(-2)

    def freeze(self) -> FeatureMap:
        """Make omega a constant of training; returns self."""
        self.omega.requires_grad_(False)
        return self

    def release(self) -> FeatureMap:
        """Make omega learnable; returns self."""
        self.omega.requires_grad_(True)
        return self

    @torch.no_grad()
    def load_omega(self, omega: Any) -> FeatureMap:
        """Copy particles (particle, particle_dim), shared by all heads, or (heads, particle, particle_dim) into `omega`; returns self.

        NumPy or torch, any float type; the values are rounded to the parameter's type. Weights become equal.

        Raises
        ------
        ValueError
            On another shape, NaN or infinity.
        """
        self.omega.copy_(_per_head(omega, tuple(self.omega.shape)))
        if self.weights is not None:
            self.weights.fill_(1 / self.omega.shape[1])
        return self

    def extra_repr(self) -> str:
        heads, particles, pd = self.omega.shape
        return f"{self.name!r}, heads={heads}, particles={particles}, particle_dim={pd}, frozen={not self.omega.requires_grad}"


def feature_map(
    name: str | Feature,
    *,
    dim: int,
    n_features: int,
    heads: int = 1,
    omega: Any = None,
    weights: Any = None,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    **options: Any,
) -> FeatureMap:
    """A `FeatureMap` by name, or of a feature of `particles`.

    Parameters
    ----------
    name : "favor", "softplus", "porf-softplus", "elu" (or "elu+1"), "softmaxfeat", "fourier", "phase"; or a `particles.features.Feature`,
        which is used as it is. A stored measure m keeps its kernel as feature_map(m.feature, dim=..., n_features=..., omega=m.omega,
        weights=m.weights), with n_features its particles times m.feature.width.
    dim : head dimension of queries and keys.
    n_features : features per token and head; a cos/sin pair counts two.
    heads : sets of particles; with 1 all heads share one.
    omega : first values, (particle, particle_dim) shared by the heads or (heads, particle, particle_dim), NumPy or torch. Without it
        they are drawn: independent N(0, I), or for the names "favor", "fourier", "phase" and "porf-softplus" orthogonal blocks of
        Haar-distributed directions with chi(dim) lengths (Choromanski et al. 2021), each row still N(0, I). Phases are uniform on
        [0, 2 pi). In units of scaled inputs N(0, I) is the proposal that makes "favor" unbiased for exp(scale q.k) and "fourier" for
        the Gaussian kernel exp(-scale |q - k|^2 / 2).
    weights : of given particles, (particle,) or (heads, particle), at least 0 and summing to 1 as `particles.load_measure` returns them;
        feature k is multiplied by sqrt(M weights_k). Equal ones if None.
    temperature : divisor of omega.x (tau in the paper); only for names of maps that have one.
    generator : source of the first draw; torch's default generator if None.
    dtype : of the parameter; torch's default if None.
    options : `floor` (>= 0, default 0) and `renormalise` (default True; in `particles` False) of the softplus and elu maps by name.

    Raises
    ------
    ValueError
        On an unknown name or option, options beside a feature, an n_features that is no multiple of the feature's width, an omega of
        another shape, or weights that do not fit it.
    """
    feature, orthogonal = _feature(name, temperature, options)
    label = name if isinstance(name, str) else feature.name
    dim, n_features, heads = count(dim, "dim"), count(n_features, "n_features"), count(heads, "heads")
    if n_features % feature.width:
        raise ValueError(f"n_features must be a multiple of {feature.width} for {label!r}, got {n_features}")
    shape = (heads, n_features // feature.width, feature.particle_dim(dim))
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise ValueError(f"dtype must be a real floating-point torch dtype, got {dtype!r}")
    if not isinstance(generator, torch.Generator | None):
        raise ValueError(f"generator must be a torch.Generator or None, got {generator!r}")
    first = _draw(shape, dim if orthogonal else None, feature, generator) if omega is None else _per_head(omega, shape)
    if weights is not None and omega is None:
        raise ValueError(f"weights belong to particles: give omega with them, got omega=None and weights={weights!r}")
    return FeatureMap(label, feature, first.to(dtype), None if weights is None else _weights(weights, shape[:2]).to(dtype))


def described(value: Any) -> str:
    """What a message says that it got: type and shape of a tensor, the class of anything else."""
    return f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"


def _feature(name: str | Feature, temperature: float, options: dict[str, Any]) -> tuple[Feature, bool]:
    """The particles' feature of a name and its options, or the given one, and whether its first draw is orthogonal."""
    if isinstance(name, Feature):
        given = options | ({} if positive(temperature, "temperature") == 1.0 else {"temperature": temperature})
        if given:
            raise ValueError(f"options belong to the names of maps, and {name!r} has its own: got {given}")
        return name, False
    if not isinstance(name, str) or name not in _MAPS:
        raise ValueError(f"name must be one of {sorted(_MAPS)} or a feature of particles, got {name!r}")
    cls, orthogonal = _MAPS[name]
    known = {f.name for f in fields(cls)}  # type: ignore[arg-type]
    if positive(temperature, "temperature") != 1.0 and "temperature" not in known:
        raise ValueError(f"temperature has no meaning for {name!r}, got {temperature!r}")
    unknown = set(options) - known
    if unknown:
        raise ValueError(f"unknown options for {name!r}: {sorted(unknown)}; it takes {sorted(known)}")
    defaults = {key: value for key, value in ({"temperature": temperature} | _DEFAULTS).items() if key in known}
    return cls(**(defaults | options)), orthogonal


def _per_head(array: Any, shape: tuple[int, ...], name: str = "omega") -> Tensor:
    """Checked numbers, of particles or of weights, with a head axis; never the user's own memory if that is NumPy's."""
    array = as_float(array, name)
    if tuple(array.shape) not in (shape, shape[1:]):
        raise ValueError(f"{name} must have shape {shape} or {shape[1:]}, got {tuple(array.shape)}")
    if isinstance(array, np.ndarray):
        array = torch.from_numpy(array.copy())
    return array.detach().expand(shape)


def _weights(weights: Any, shape: tuple[int, ...]) -> Tensor:
    """Checked weights (heads, particle)."""
    weights = _per_head(weights, shape, "weights")
    sums = weights.double().sum(-1)
    if bool((weights < 0).any()) or bool(((sums - 1).abs() > 1e-5).any()):
        raise ValueError(f"weights must be at least 0 and sum to 1, got a smallest of {float(weights.min())} and sums {sums.tolist()}")
    return weights


def _draw(shape: tuple[int, ...], block: int | None, feature: Feature, generator: torch.Generator | None) -> Tensor:
    """First particles (heads, particle, particle_dim) in float64 on the generator's device, orthogonal within blocks of `block`."""
    draw: Callable[..., Tensor] = lambda *size: torch.randn(  # noqa: E731
        *size, generator=generator, dtype=torch.float64, device=None if generator is None else generator.device
    )
    heads, particles, particle_dim = shape
    phases = isinstance(feature, FourierPhase)
    omega = draw(heads, particles, particle_dim - phases)
    if block is not None:
        q, r = torch.linalg.qr(draw(heads, -(-particles // block), block, block))
        q = q * r.diagonal(dim1=-2, dim2=-1).sgn()[..., None, :]  # without the signs QR is not Haar distributed
        omega = q.flatten(1, 2)[:, :particles] * omega.norm(dim=-1, keepdim=True)
    if not phases:
        return omega
    phase = 2 * math.pi * torch.rand(heads, particles, 1, generator=generator, dtype=omega.dtype, device=omega.device)
    return torch.cat((omega, phase), -1)
