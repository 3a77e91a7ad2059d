"""Positive features: exponentials, bounded maps of w.x and their normalised forms. `particles.features` names them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from particles._feature import Feature, cosine, pair, waves
from particles.arrays import Array, flag, is_torch, namespace, positive


def headroom(kind: Any) -> float:
    """The largest scaled feature of exponentials of a floating-point `kind` (from `finfo`): the fourth root of its largest number.

    4e9 in float32: products of two and of a weight as large, and long sums of those, stay in range.
    """
    return float(kind.max) ** 0.25


def exponent_shift(top: Array) -> Array:
    """What to subtract from exponents whose largest is `top`, so that exp neither overflows nor underflows before it must.

    Exponents near 0 are left as they are, which costs no digits. Larger ones end at log `headroom` rather than at 0: the product of two
    features can then fall by that much more (22 for each, in float32) before it is lost. Beyond 0.1/eps the difference has no digits for
    that: they end at 0.
    """
    xp = namespace(top)
    kind = xp.finfo(top.dtype)
    return xp.where(abs(top) < 0.1 / kind.eps, top - xp.clip(abs(top), None, math.log(headroom(kind))), top)


def _over(z: Array, temperature: float) -> Array:
    return z if temperature == 1 else z / temperature


def _top(z: Array) -> Array:
    """The largest over the last axis, without torch's history."""
    return namespace(z).amax(z.detach() if is_torch(z) else z, axis=-1)


def _exponential(z: Array) -> tuple[Array, Array]:
    """(shift (..., n), exp(z - shift))."""
    shift = exponent_shift(_top(z))
    return shift, namespace(z).exp(z - shift[..., None])


def _softplus(z: Array) -> Array:
    """log(1 + exp z) to the last digit."""
    if is_torch(z):
        return namespace(z).nn.functional.softplus(z, threshold=40.0)  # beyond, it is z to double precision
    xp = namespace(z)
    return xp.clip(z, 0, None) + xp.log1p(xp.exp(-abs(z)))


class _Positive(Feature):
    """A positive feature of z = w.x (+ b), optionally normalised over the particles.

    It is computed relative to the largest of a point, so that it keeps its digits where the feature itself would underflow, and a
    normalised feature is right for any x.
    """

    signed: ClassVar[bool] = False
    renormalise: bool = False

    @property
    def many_body(self) -> bool:
        return self.renormalise

    def _offset(self, x: Array) -> Array | float:
        """A part of log phi that is the same for all particles, (..., n)."""
        return 0.0

    def _relative(self, z: Array) -> tuple[Array, Array]:
        """(scale (..., n), phi) with features exp(scale) phi, the scale without torch's history."""
        raise NotImplementedError

    def _slope(self, z: Array) -> Array:
        """d log phi / dz."""
        raise NotImplementedError

    def _scaled(self, x: Array, z: Array) -> tuple[Array, Array]:
        scale, phi = self._relative(z)
        if self.renormalise:
            return 0.5 * math.log(phi.shape[-1]) - namespace(phi).log(phi.sum(-1)), phi
        return scale + self._offset(x), phi

    def scaled(self, x: Array, omega: Array) -> tuple[Array, Array]:
        scale, phi = self._scaled(x, self._phase(x, omega))
        return scale, phi[..., None, :]

    def __call__(self, x: Array, omega: Array) -> Array:
        scale, phi = self._scaled(x, self._phase(x, omega))
        return (namespace(phi).exp(scale)[..., None] * phi)[..., None, :]

    def value_and_pullback(self, x: Array, omega: Array) -> tuple[Array, Callable[[Array], Array]]:
        z = self._phase(x, omega)
        scale, phi = self._scaled(x, z)
        phi = namespace(phi).exp(scale)[..., None] * phi

        def pullback(cotangent: Array) -> Array:
            weighted = phi * cotangent[..., 0, :]
            if self.renormalise:  # phi = sqrt(M) times shares
                weighted = weighted - phi * weighted.sum(-1)[..., None] / math.sqrt(phi.shape[-1])
            return self._back(weighted * self._slope(z), x)

        return phi[..., None, :], pullback


@dataclass(frozen=True)
class PositiveExponential(_Positive):
    """exp(w.x - |x|^2/2): unbiased for exp(x.x') when w ~ N(0, I) (FAVOR+; Choromanski et al. 2021, Lemma 1)."""

    name: ClassVar[str] = "positive"
    exponential: ClassVar[bool] = True

    def _offset(self, x: Array) -> Array:
        return -0.5 * (x * x).sum(-1)

    def _relative(self, z: Array) -> tuple[Array, Array]:
        return _exponential(z)

    def _slope(self, z: Array) -> Array:
        return namespace(z).ones_like(z)


@dataclass(frozen=True)
class HyperbolicPair(Feature):
    """(exp(w.x), exp(-w.x)) exp(-|x|^2/2)/sqrt 2: K_N is the mean of cosh(w_k.(x + x')) exp(-(|x|^2 + |x'|^2)/2).

    Unbiased for exp(x.x') like `PositiveExponential` when w ~ N(0, I), with less than half its variance (Choromanski et al. 2021, Lemma 1).
    """

    name: ClassVar[str] = "hyperbolic"
    width: ClassVar[int] = 2
    signed: ClassVar[bool] = False
    exponential: ClassVar[bool] = True

    def __call__(self, x: Array, omega: Array) -> Array:
        scale, phi = self.scaled(x, omega)
        return namespace(phi).exp(scale)[..., None, None] * phi

    def scaled(self, x: Array, omega: Array) -> tuple[Array, Array]:
        """(log scale, features) as `Feature.scaled`: both exponentials are at most 1."""
        z = self._phase(x, omega)
        xp = namespace(z)
        shift = exponent_shift(_top(abs(z)))
        phi = pair(xp.exp(z - shift[..., None]), xp.exp(-z - shift[..., None]))
        return shift - 0.5 * (x * x).sum(-1) - 0.5 * math.log(2), phi

    def value_and_pullback(self, x: Array, omega: Array) -> tuple[Array, Callable[[Array], Array]]:
        """The features, and the map from their cotangent to that of omega, as `Feature.value_and_pullback`."""
        phi = self(x, omega)

        def pullback(cotangent: Array) -> Array:
            weighted = phi * cotangent
            return self._back(weighted[..., 0, :] - weighted[..., 1, :], x)

        return phi, pullback


@dataclass(frozen=True)
class _Tempered(_Positive):
    """A positive feature of w.x/temperature with a floor; `renormalise` makes the sum over the M particles sqrt(M) per point."""

    temperature: float = 1.0
    floor: float = 0.0
    renormalise: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "temperature", positive(self.temperature, "temperature"))
        object.__setattr__(self, "floor", positive(self.floor, "floor", zero=True))
        object.__setattr__(self, "renormalise", flag(self.renormalise, "renormalise"))


@dataclass(frozen=True)
class Softplus(_Tempered):
    """log(1 + exp(w.x/temperature)) + floor (Coulomb paper, App. D "softplus")."""

    name: ClassVar[str] = "softplus"

    def _relative(self, z: Array) -> tuple[Array, Array]:
        xp, z = namespace(z), _over(z, self.temperature)
        top = _top(z)
        shift = xp.zeros_like(top)
        if not self.floor:  # where softplus is exp to the last digit, so is it of exponents that are shifted to the edge of that region
            shift = xp.clip(top + (1 - math.log(xp.finfo(z.dtype).eps)), None, 0)
        largest = _softplus(top - shift) + self.floor
        return shift + xp.log(largest), (_softplus(z - shift[..., None]) + self.floor) / largest[..., None]

    def _slope(self, z: Array) -> Array:
        xp, z = namespace(z), _over(z, self.temperature)
        z = xp.clip(z, math.log(xp.finfo(z.dtype).tiny) if self.floor else -37, None)  # without a floor the slope is 1 below
        return 1 / (1 + xp.exp(-z)) / (_softplus(z) + self.floor) / self.temperature


@dataclass(frozen=True)
class Elu(_Tempered):
    """1 + elu(w.x/temperature), never less than floor (Coulomb paper, App. D "elu+1").

    The paper has offsets b_i inside elu and does not say where they come from: none here, or with `offset` 1 + elu((w.x + b)/temperature),
    b a coordinate of the particle.
    """

    name: ClassVar[str] = "elu"
    offset: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "offset", flag(self.offset, "offset"))

    def _relative(self, z: Array) -> tuple[Array, Array]:
        xp, z = namespace(z), _over(z, self.temperature)
        top = _top(z)
        shift = xp.zeros_like(top) if self.floor else xp.clip(top, None, 0)
        phi = xp.exp(xp.clip(z, None, 0) - shift[..., None]) + (z.relu() if is_torch(z) else xp.clip(z, 0, None))  # relu'(0) = 0
        largest = xp.clip(1 + xp.clip(top, 0, None), self.floor, None)
        return shift + xp.log(largest), (xp.clip(phi, self.floor, None) if self.floor else phi) / largest[..., None]

    def _slope(self, z: Array) -> Array:
        xp, z = namespace(z), _over(z, self.temperature)
        slope = 1 / (1 + xp.clip(z, 0, None))
        if self.floor:
            slope = xp.where(xp.where(z > 0, 1 + z, xp.exp(xp.clip(z, None, 0))) > self.floor, slope, xp.zeros_like(slope))
        return slope / self.temperature


@dataclass(frozen=True)
class SigmoidSquared(_Positive):
    """sigmoid(w.x/temperature)^2 (Coulomb paper, App. D "sigmoid2").

    `renormalise` makes the sum over the M particles sqrt(M) per point.
    """

    name: ClassVar[str] = "sigmoid2"
    temperature: float = 1.0
    renormalise: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "temperature", positive(self.temperature, "temperature"))
        object.__setattr__(self, "renormalise", flag(self.renormalise, "renormalise"))

    def _relative(self, z: Array) -> tuple[Array, Array]:
        log = -2 * _softplus(_over(-z, self.temperature))
        top = _top(log)
        return top, namespace(z).exp(log - top[..., None])

    def _slope(self, z: Array) -> Array:
        return 2 / self.temperature * namespace(z).exp(-_softplus(_over(z, self.temperature)))  # sigmoid(-z)


@dataclass(frozen=True)
class CosineSquared(_Positive):
    """cos(w.x + b)^2 with particle (w, b) (Coulomb paper, App. D "cos2").

    `renormalise` makes the sum over the M particles sqrt(M) per point. In the paper b is fixed; here it moves with w. No floating-point
    number is a zero of the cosine, so there is no 0/0.
    """

    name: ClassVar[str] = "cos2"
    renormalise: bool = False
    offset = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "renormalise", flag(self.renormalise, "renormalise"))

    def _relative(self, z: Array) -> tuple[Array, Array]:
        cos = cosine(z)
        return namespace(z).zeros_like(_top(z)), cos * cos

    def _slope(self, z: Array) -> Array:
        cos, sin = waves(z)
        return -2 * sin / cos


@dataclass(frozen=True)
class SoftmaxFeatures(_Positive):
    """sqrt(M) softmax over the M particles of w.x/temperature (Coulomb paper, App. D "softmaxfeat")."""

    name: ClassVar[str] = "softmax"
    exponential: ClassVar[bool] = True
    temperature: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "temperature", positive(self.temperature, "temperature"))

    renormalise = True

    def _relative(self, z: Array) -> tuple[Array, Array]:
        return _exponential(_over(z, self.temperature))

    def _slope(self, z: Array) -> Array:
        return namespace(z).ones_like(z) / self.temperature
