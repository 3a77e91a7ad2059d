"""Feature maps of kernel attention by name: particles omega, one set per head, behind one torch module.

With M particles the map is phi_Omega(x) = M^-1/2 (phi(x; omega_1), ..., phi(x; omega_M)) (Coulomb paper, App. D; methods of Performer and
random feature attention), so phi_Omega(q) . phi_Omega(k) estimates the kernel. It comes as (log_scale, features): the true features are
exp(log_scale) * features, where `features` is bounded; nothing overflows and no epsilon is needed.

| name                 | phi(x; omega)                                              | source                                      |
|----------------------|------------------------------------------------------------|---------------------------------------------|
| "favor"              | exp(omega.x - |x|^2/2)                                     | Choromanski et al. 2021; Coulomb paper, App. D |
| "favor-hyperbolic"   | exp(+-omega.x - |x|^2/2)/sqrt2, 2 features a particle      | Choromanski et al. 2021, Lemma 1            |
| "softplus"           | (softplus(omega.x/temperature) + floor)/Z                  | Coulomb paper, App. D                       |
| "porf-softplus"      | the same formula, orthogonal first draw                    | Coulomb paper, App. D                       |
| "elu", "elu+1"       | max(1 + elu(omega.x/temperature), floor)/Z                 | Coulomb paper, App. D (with b_i = 0)        |
| "sigmoid2"           | sigmoid(omega.x/temperature)^2/Z                           | Coulomb paper, App. D                       |
| "softmaxfeat"        | sqrt(M) softmax over the particles of omega.x/temperature  | Coulomb paper, App. D                       |
| "cos2"               | cos(omega.x + b)^2/Z, particle (omega, b), b not trained   | Coulomb paper, App. D                       |
| "fourier"            | (cos omega.x, sin omega.x), 2 features a particle          | Rahimi and Recht 2007                       |
| "phase"              | sqrt2 cos(omega.x + b), particle (omega, b)                | Coulomb paper, Lemma 3                      |
| "rfa"                | exp(|x|^2/2) (cos omega.x, sin omega.x), independent draw  | Peng et al. 2021                            |
| "flexformer"         | the same formula, orthogonal first draw                    | Flexformer, stationary                      |
| "flexformer-nonstationary" | exp(|x|^2 exp(-tau)) (cos w1.x + cos w2.x, sin w1.x + sin w2.x)/2, particle (w1, w2) | Flexformer    |
| "exponential"        | queries exp(omega.q + b), keys exp(omega_k.k + b + a |k|^2 + u.k), all learned | `exponential`           |
| "optimal-positive"   | (1 - 4A)^(dim/4) exp(A |omega|^2 + sqrt(1 - 4A) omega.x - |x|^2/2) | arXiv 2205.15317; `optimal_positive` |
| "data-aware"         | exp(omega.S x - |S x|^2/2), S learned from 1               | DARKFormer, arXiv 2603.04127; `data_aware`  |
| "hedgehog"           | exp(+-W x), W omega for queries and omega_k for keys       | Hedgehog, arXiv 2402.04347, eq. 6           |
| "hedgehog-joint"     | softmax over all 2 M entries of (W x, -W x)/temperature    | flash-linear-attention has temperature 1/2  |
| "hedgehog-softmax"   | (softmax(W x), softmax(-W x))                              | the Hedgehog authors' later code            |
| "linear"             | 1 + elu(omega x)                                           | Katharopoulos et al. 2020                   |
| "identity"           | omega x                                                    | control: the kernel q.k                     |
| "polaformer"         | powers of the positive and negative parts of omega x       | PolaFormer; `homogeneous.PolaFormer`        |
| "cosformer"          | relu(omega x) (cos, sin)(pi position/(2 horizon))          | cosFormer; `homogeneous.CosFormer`          |

The last four have no frequencies in their papers: omega starts as a frozen identity, n_features is that of `dim` particles, and they and
the Hedgehog maps lack the factor M^-1/2. In normalised attention "hedgehog-joint" and "hedgehog" differ only by a weight of each key, the
inverse of its sum. `particles` calls "favor" "positive" and "softmaxfeat" "softmax". Any feature of `particles`, with the options that it
was made with, can stand in a name's place: the way of a stored measure into attention.

Z makes the features of one token sum to sqrt(M) before the M^-1/2 (`renormalise`, the paper's choice). The paper states neither
temperature, floor nor first draw: temperature 1, floor 0 and the draws here are ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attention import draws
from attention.base import FeatureMap, Particles, described, per_head
from attention.exponential import data_aware, exponential, hedgehog, optimal_positive
from attention.homogeneous import CosFormer, Identity, PolaFormer
from attention.particle_map import ParticleMap
from attention.trigonometric import Trigonometric
from particles.arrays import count, flag, positive
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
)

__all__ = ["MAPS", "MAP_NAMES", "FeatureMap", "Kind", "described", "feature_map"]


class Kind(NamedTuple):
    """What stands behind a name.

    Attributes
    ----------
    build : makes the map from (name, particles, *feature, **options).
    draw : first values of the particles.
    feature : the `particles` feature of the map, if it is one's.
    width : features per particle.
    options : options and their defaults; None is a default that the option's own documentation states.
    fixed : what `build` is told beside them.
    signed, positional : with default options.
    own_keys : keys have their own particles, unless the option `shared` is set.
    frozen : omega starts as a constant.
    square : without a given omega n_features must be width * dim.
    """

    build: Callable[..., FeatureMap]
    draw: draws.Draw
    feature: type[Feature] | None = None
    width: int = 1
    options: Mapping[str, Any] = {}
    fixed: Mapping[str, Any] = {}
    signed: bool = False
    positional: bool = False
    own_keys: bool = False
    frozen: bool = False
    square: bool = False


_BOUNDED = {"temperature": 1.0, "renormalise": True}  # App. D; particles.features leaves `renormalise` off
_FLOORED = {**_BOUNDED, "floor": 0.0}
_ELU = {**_FLOORED, "offset": False}
_CONSTANT = {"constant_feature": 0.0}
_HEDGEHOG = {"temperature": 1.0, "bias": False, "shared": False}
_PAIR = Kind(Trigonometric, draws.orthogonal, FourierPair, 2, _CONSTANT, signed=True)
_ITSELF = Kind(Identity, draws.identity, signed=True, frozen=True, square=True)
_SPIKY = Kind(hedgehog, draws.frame, None, 2, _HEDGEHOG, own_keys=True)

MAPS: dict[str, Kind] = {
    "favor": Kind(ParticleMap, draws.orthogonal, PositiveExponential),
    "favor-hyperbolic": Kind(ParticleMap, draws.orthogonal, HyperbolicPair, 2),
    "softplus": Kind(ParticleMap, draws.normal, Softplus, 1, _FLOORED),
    "porf-softplus": Kind(ParticleMap, draws.orthogonal, Softplus, 1, _FLOORED),
    "elu": Kind(ParticleMap, draws.normal, Elu, 1, _ELU),
    "elu+1": Kind(ParticleMap, draws.normal, Elu, 1, _ELU),
    "sigmoid2": Kind(ParticleMap, draws.normal, SigmoidSquared, 1, _BOUNDED),
    "softmaxfeat": Kind(ParticleMap, draws.normal, SoftmaxFeatures, 1, {"temperature": 1.0}),
    "cos2": Kind(ParticleMap, draws.with_phase(draws.normal), CosineSquared, 1, {"renormalise": True, "learn_offset": False}),
    "fourier": _PAIR,
    "phase": Kind(Trigonometric, draws.with_phase(draws.orthogonal), FourierPhase, 1, _CONSTANT, signed=True),
    "rfa": _PAIR._replace(draw=draws.normal, fixed={"envelope": True}),
    "flexformer": _PAIR._replace(fixed={"envelope": True}),
    "flexformer-nonstationary": _PAIR._replace(
        draw=draws.pairs, feature=NonstationaryPair, options={**_CONSTANT, "tau": math.log(2), "spread": 0.1}
    ),
    "exponential": Kind(exponential, draws.orthogonal, options={"key_norm": -0.5, "shared": False}, own_keys=True),
    "optimal-positive": Kind(optimal_positive, draws.orthogonal, options={"A": None, "phi2": None}),
    "data-aware": Kind(data_aware, draws.orthogonal),
    "hedgehog": _SPIKY,
    "hedgehog-joint": _SPIKY._replace(fixed={"softmax": "joint"}),
    "hedgehog-softmax": _SPIKY._replace(fixed={"softmax": "halves"}),
    "linear": Kind(ParticleMap, draws.identity, Elu, fixed={"mean": False}, frozen=True, square=True),
    "identity": _ITSELF,
    "polaformer": _ITSELF._replace(build=PolaFormer, width=2, options={"alpha": 4.0, "opposite": 0.5}, signed=False),
    "cosformer": _ITSELF._replace(build=CosFormer, width=2, options={"horizon": 4096}, signed=False, positional=True),
}
MAP_NAMES = tuple(MAPS)
_OF_DRAW = ("spread",)


def feature_map(
    name: str | Feature,
    *,
    dim: int,
    n_features: int,
    heads: int = 1,
    omega: Any = None,
    omega_k: Any = None,
    weights: Any = None,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    **options: Any,
) -> FeatureMap:
    """A `FeatureMap` by name, or of a feature of `particles`.

    Parameters
    ----------
    name : one of `attention.MAP_NAMES`, with formulas in help(sys.modules["attention.feature_map"]); or a
        `particles.features.Feature`, which is used as it is. A stored measure m of a simulation keeps its kernel as
        feature_map(m.feature, dim=..., n_features=..., omega=m.omega, weights=m.weights), with n_features its particles times
        m.feature.width; for one of a model see `attention.save_measures`.
    dim : head dimension of queries and keys.
    n_features : features per token and head; a cos/sin or +- pair counts two, a constant feature one.
    heads : sets of particles; with 1 all heads share one.
    omega : first values, (particle, particle_dim) shared by the heads or (heads, particle, particle_dim), NumPy or torch. Without it
        they are drawn: independent N(0, I), or for "favor", "favor-hyperbolic", "porf-softplus", "fourier", "phase", "flexformer",
        "exponential", "optimal-positive" and "data-aware" orthogonal blocks of Haar-distributed directions with chi(dim) lengths
        (Choromanski et al. 2021), each row still N(0, I). Phases are uniform on [0, 2 pi); Hedgehog starts at the identity, or at
        orthonormal rows where it has not dim particles. In units of scaled inputs N(0, I) is the proposal that makes "favor" unbiased
        for exp(scale q.k) and "fourier" for the Gaussian kernel exp(-scale |q - k|^2 / 2).
    omega_k : first values of the keys' own particles ("exponential", the Hedgehog maps); omega's if None.
    weights : of given particles, (particle,) or (heads, particle), at least 0 and summing to 1 as `particles.load_measure` returns them;
        feature k is multiplied by sqrt(M weights_k). Equal ones if None.
    temperature : divisor of omega.x (tau in the Coulomb paper); only for names of maps that have one.
    generator : source of the first draw; torch's default generator if None.
    dtype : of the parameter; torch's default if None.
    options : those of the name, `MAPS[name].options`: `floor` (>= 0), `renormalise` (in `particles` False) and `offset` of the bounded
        maps, `learn_offset` of "cos2", `constant_feature` of `Trigonometric`, `tau` (its start) and `spread` (`draws.pairs`) of
        "flexformer-nonstationary", `key_norm` of `exponential`, `A` and `phi2` of `optimal_positive`, `bias` of `hedgehog`, `shared`
        (keys use omega), `alpha` and `opposite` of `PolaFormer`, `horizon` of `CosFormer`.

    Raises
    ------
    ValueError
        On an unknown name or option, options beside a feature or that an omega makes useless, an n_features that does not fit the name,
        an omega of another shape or too large for the type, or weights that do not fit it.
    """
    if omega is not None and (useless := sorted({*options} & {*_OF_DRAW})):
        raise ValueError(f"{useless[0]} belongs to a first draw, and omega is given: got {options[useless[0]]!r}")
    kind, options = _asked(name, temperature, options)
    label = name.name if isinstance(name, Feature) else name
    dim, n_features, heads = count(dim, "dim"), count(n_features, "n_features"), count(heads, "heads")
    arguments = {"name": name, "dim": dim, "n_features": n_features, "heads": heads, **options}
    feature, options = _feature(name, kind, options)
    width, extra = kind.width, int(options.get("constant_feature", 0) != 0)
    if n_features <= extra or (n_features - extra) % width:
        one = " and the constant one" if extra else ""
        raise ValueError(f"n_features must be a multiple of {width}{one} for {label!r}, got {n_features}")
    shape = (heads, (n_features - extra) // width, feature.particle_dim(dim) if feature else dim)
    if kind.square and omega is None and shape[1] != dim:
        raise ValueError(f"n_features must be {width * dim + extra} for {label!r} with dim={dim} when no omega is given, got {n_features}")
    particles = _particles(kind, shape, dim, (omega, omega_k, weights), (generator, dtype), options, label)
    made = kind.build(label, particles, *([feature] if feature else []), **options, **kind.fixed)
    made.arguments = arguments
    return made.freeze() if kind.frozen else made


def _asked(name: str | Feature, temperature: float, options: dict[str, Any]) -> tuple[Kind, dict[str, Any]]:
    """What is behind a name or a feature, and all its options."""
    if positive(temperature, "temperature") != 1.0:
        options = options | {"temperature": temperature}
    if isinstance(name, Feature):
        if options:
            raise ValueError(f"options belong to the names of maps, and {name!r} has its own: got {options}")
        waves = isinstance(name, FourierPair | FourierPhase | NonstationaryPair)
        phases = isinstance(name, FourierPhase | CosineSquared)
        draw = draws.with_phase(draws.normal) if phases else draws.normal
        return Kind(Trigonometric if waves else ParticleMap, draw, type(name), name.width), {}
    if not isinstance(name, str) or name not in MAPS:
        raise ValueError(f"name must be one of {sorted(MAPS)} or a feature of particles, got {name!r}")
    known = MAPS[name].options
    if "temperature" in options and "temperature" not in known:
        raise ValueError(f"temperature has no meaning for {name!r}, got {temperature!r}")
    if unknown := set(options) - set(known):
        raise ValueError(f"unknown options for {name!r}: {sorted(unknown)}; it takes {sorted(known)}")
    return MAPS[name], {**known, **options}


def _feature(name: str | Feature, kind: Kind, options: dict[str, Any]) -> tuple[Feature | None, dict[str, Any]]:
    """The particles' feature of a map, if it has one, and the options that are not the feature's."""
    if kind.feature is None or isinstance(name, Feature):
        return name if isinstance(name, Feature) else None, options
    own = {f.name for f in fields(kind.feature)} & set(options)  # type: ignore[arg-type]
    return kind.feature(**{key: options[key] for key in own}), {key: value for key, value in options.items() if key not in own}


def _particles(
    kind: Kind, shape: tuple[int, ...], dim: int, given: tuple[Any, Any, Any], how: tuple[Any, Any], options: dict[str, Any], label: str
) -> Particles:
    """Checked or drawn first values in the parameters' type; takes the options of the draw out of `options`."""
    (omega, omega_k, weights), (generator, dtype) = given, how
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise ValueError(f"dtype must be a real floating-point torch dtype, got {dtype!r}")
    if not isinstance(generator, torch.Generator | None):
        raise ValueError(f"generator must be a torch.Generator or None, got {generator!r}")
    if weights is not None and omega is None:
        raise ValueError(f"weights belong to particles: give omega with them, got omega=None and weights={weights!r}")
    own = kind.own_keys and not flag(options.pop("shared", False), "shared")
    if omega_k is not None and not own:
        raise ValueError(f"omega_k has no meaning for {label!r} without keys of its own, got {described(omega_k)}")
    of_draw = {key: options.pop(key) for key in _OF_DRAW if key in options}
    first = _drawn(kind, shape, dim, generator, of_draw).to(dtype) if omega is None else per_head(omega, shape, dtype=dtype)
    keys = None if not own else first if omega_k is None else per_head(omega_k, shape, "omega_k", dtype=dtype)
    return Particles(first, keys, None if weights is None else _weights(weights, shape[:2]).to(dtype))


def _drawn(kind: Kind, shape: tuple[int, ...], dim: int, generator: torch.Generator | None, options: dict[str, Any]) -> Tensor:
    """First particles; coordinates that a feature has and its draw does not know are N(0, 1)."""
    heads, particles, particle_dim = shape
    omega = kind.draw(heads, particles, dim, generator, **options)
    missing = particle_dim - omega.shape[-1]
    return torch.cat((omega, draws.normal(heads, particles, missing, generator)), -1) if missing else omega


def _weights(weights: Any, shape: tuple[int, ...]) -> Tensor:
    """Checked weights (heads, particle)."""
    weights = per_head(weights, shape, "weights")
    sums = weights.double().sum(-1)
    if bool((weights < 0).any()) or bool(((sums - 1).abs() > 1e-5).any()):
        raise ValueError(f"weights must be at least 0 and sum to 1, got a smallest of {float(weights.min())} and sums {sums.tolist()}")
    return weights
