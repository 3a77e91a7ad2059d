"""Features phi(x; omega_k): the one place where a particle becomes a function of the data.

Written once over NumPy and torch. A feature gives `width` numbers per particle and carries no N^-1/2: the kernel of N particles is
K_N(x, x') = (1/N) sum_k sum_c phi_c(x; omega_k) phi_c(x'; omega_k). Shapes: x (..., n, dim), omega (..., particle, particle_dim),
phi (..., n, width, particle); leading axes broadcast as in a matrix product.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from jaxtyping import Num

from particles._fourier import sincos
from particles.arrays import Array, as_float, flag, is_array, is_torch, namespace, positive


class Feature:
    """A map from a point and a particle to `width` numbers; subclasses are frozen dataclasses.

    Attributes
    ----------
    name : short name accepted by `as_feature`.
    width : numbers per particle.
    signed : whether a feature can be negative (then a kernel denominator can vanish).
    many_body : whether a feature depends on all particles, not only on its own (normalisation over the particles).
    offset : whether a particle is (w, b) and acts through w.x + b; b, its last coordinate, moves and repels like the others.
    exponential : whether log phi is linear in w.x, so that `scaled` leaves room above 1 (`exponent_shift`).
    """

    name: ClassVar[str]
    width: ClassVar[int] = 1
    signed: ClassVar[bool] = True
    offset: bool = False
    exponential: ClassVar[bool] = False

    @property
    def many_body(self) -> bool:
        return False

    def particle_dim(self, dim: int) -> int:
        """Numbers that describe one particle when the data have `dim` columns."""
        return dim + self.offset

    def describe(self) -> dict[str, Any]:
        """The constructor's name and arguments, as JSON values."""
        return {"name": type(self).__name__, **asdict(self)}  # type: ignore[call-overload]

    def __call__(self, x: Num[Array, "... n dim"], omega: Num[Array, "... particle pd"]) -> Num[Array, "... n width particle"]:
        """phi (..., n, width, particle). Raises ValueError if omega's last axis does not fit x's."""
        raise NotImplementedError

    def scaled(self, x: Num[Array, "... n dim"], omega: Num[Array, "... particle pd"]) -> tuple[Array, Array]:
        """(log_scale (..., n), bounded phi) with true features exp(log_scale)[..., None, None] * phi; never overflows.

        Sizes of phi are about 1 at most, or the `headroom` of the type for `exponential` features. log_scale is zero for signed
        features. Differentiable by torch; the scale of a positive feature is a constant there, which leaves every derivative of the
        product right.
        """
        phi = self(x, omega)
        return namespace(phi).zeros_like(phi[..., 0, 0]), phi

    def value_and_pullback(self, x: Array, omega: Array) -> tuple[Array, Callable[[Array], Array]]:
        """phi and the function cotangent -> gradient in omega of sum(cotangent * phi), which reuses the forward pass.

        x (n, dim), omega (particle, pd) or (chain, particle, pd); the cotangent has phi's shape, the gradient omega's.
        """
        raise NotImplementedError

    def kernel(self, x: Array, x2: Array, omega: Array) -> Array:
        """K_N (..., n, n2), the mean over particles of the features' products; takes anything array-like."""
        x, x2, omega = as_float(x, "x"), as_float(x2, "x2"), as_float(omega, "omega")
        xp = namespace(x, x2, omega)
        (scale, phi), (scale2, phi2) = self.scaled(x, omega), self.scaled(x2, omega)
        gram = _flat(phi) @ _flat(phi2).swapaxes(-1, -2) / omega.shape[-2]
        return gram if self.signed else gram * xp.exp(scale[..., :, None] + scale2[..., None, :])

    def _phase(self, x: Array, omega: Array) -> Array:
        """w.x, or w.x + b with an offset, (..., n, particle), after a check of the shapes."""
        self._check(x, omega)
        if not self.offset:
            return x @ omega.swapaxes(-1, -2)
        return x @ omega[..., :-1].swapaxes(-1, -2) + omega[..., None, :, -1]

    def _back(self, slope: Array, x: Array) -> Array:
        """The gradient in omega (..., particle, pd) from the one in `_phase`."""
        rows = slope.swapaxes(-1, -2) @ x
        return namespace(rows).concatenate((rows, slope.sum(-2)[..., None]), -1) if self.offset else rows

    def _check(self, x: Array, omega: Array) -> None:
        """ValueError if x or omega is no array, or a particle has the wrong number of coordinates."""
        for name, array in (("x", x), ("omega", omega)):
            if not is_array(array):
                raise ValueError(f"{name} must be a NumPy array or a torch tensor, got {type(array).__name__}")
        expected = self.particle_dim(x.shape[-1])
        if omega.shape[-1] != expected:
            raise ValueError(f"omega must have {expected} numbers per particle for {type(self).__name__} and x of shape {tuple(x.shape)}, "
                             f"got shape {tuple(omega.shape)}")  # fmt: skip


def _flat(phi: Array) -> Array:
    return phi.reshape(*phi.shape[:-2], phi.shape[-2] * phi.shape[-1])


def _pair(first: Array, second: Array) -> Array:
    return namespace(first).stack((first, second), -2)


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


def _cosine(z: Array) -> Array:
    return z.cos() if is_torch(z) else sincos(z)[1]


def _waves(z: Array) -> tuple[Array, Array]:
    """(cos z, sin z)."""
    return (z.cos(), z.sin()) if is_torch(z) else sincos(z)[::-1]


@dataclass(frozen=True)
class FourierPair(Feature):
    """(cos w.x, sin w.x): K_N(x, x') = mean cos w_k.(x - x'), the stationary kernels (Bochner; Rahimi and Recht 2007)."""

    name: ClassVar[str] = "fourier"
    width: ClassVar[int] = 2

    def __call__(self, x: Array, omega: Array) -> Array:
        namespace(x, omega)
        return _pair(*_waves(self._phase(x, omega)))

    def value_and_pullback(self, x: Array, omega: Array) -> tuple[Array, Callable[[Array], Array]]:
        phi = self(x, omega)

        def pullback(cotangent: Array) -> Array:
            return self._back(phi[..., 0, :] * cotangent[..., 1, :] - phi[..., 1, :] * cotangent[..., 0, :], x)

        return phi, pullback


@dataclass(frozen=True)
class FourierPhase(Feature):
    """sqrt 2 cos(w.x + b) with particle (w, b): the paper's random Fourier instance (Coulomb paper, Lemma 3)."""

    name: ClassVar[str] = "phase"
    offset = True

    def __call__(self, x: Array, omega: Array) -> Array:
        return math.sqrt(2) * _cosine(self._phase(x, omega))[..., None, :]

    def value_and_pullback(self, x: Array, omega: Array) -> tuple[Array, Callable[[Array], Array]]:
        cos, sin = _waves(self._phase(x, omega))

        def pullback(cotangent: Array) -> Array:
            return self._back(-math.sqrt(2) * sin * cotangent[..., 0, :], x)

        return math.sqrt(2) * cos[..., None, :], pullback


@dataclass(frozen=True)
class NonstationaryPair(Feature):
    """(cos w1.x + cos w2.x, sin w1.x + sin w2.x)/2 with particle (w1, w2): Yaglom's kernels (Flexformer_n, sums form, sigma = 1)."""

    name: ClassVar[str] = "nonstationary"
    width: ClassVar[int] = 2

    def particle_dim(self, dim: int) -> int:
        return 2 * dim

    def _phases(self, x: Array, omega: Array) -> tuple[Array, Array]:
        self._check(x, omega)
        dim = x.shape[-1]
        return x @ omega[..., :dim].swapaxes(-1, -2), x @ omega[..., dim:].swapaxes(-1, -2)

    def __call__(self, x: Array, omega: Array) -> Array:
        (cos, sin), (cos2, sin2) = map(_waves, self._phases(x, omega))
        return _pair(cos + cos2, sin + sin2) / 2

    def value_and_pullback(self, x: Array, omega: Array) -> tuple[Array, Callable[[Array], Array]]:
        xp, waves = namespace(x, omega), [_waves(z) for z in self._phases(x, omega)]

        def pullback(cotangent: Array) -> Array:
            grads = [self._back(c * cotangent[..., 1, :] - s * cotangent[..., 0, :], x) for c, s in waves]
            return xp.concatenate(grads, -1) / 2

        return _pair(waves[0][0] + waves[1][0], waves[0][1] + waves[1][1]) / 2, pullback


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
        z = self._phase(x, omega)
        xp = namespace(z)
        shift = exponent_shift(_top(abs(z)))
        phi = _pair(xp.exp(z - shift[..., None]), xp.exp(-z - shift[..., None]))
        return shift - 0.5 * (x * x).sum(-1) - 0.5 * math.log(2), phi

    def value_and_pullback(self, x: Array, omega: Array) -> tuple[Array, Callable[[Array], Array]]:
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
        xp, z = namespace(z), namespace(z).clip(_over(z, self.temperature), -37, None)
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
        cos = _cosine(z)
        return namespace(z).zeros_like(_top(z)), cos * cos

    def _slope(self, z: Array) -> Array:
        cos, sin = _waves(z)
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


_FEATURES: dict[str, type[Feature]] = {
    cls.name: cls
    for cls in (
        FourierPair, FourierPhase, NonstationaryPair, PositiveExponential, HyperbolicPair, Softplus, Elu, SigmoidSquared, CosineSquared,
        SoftmaxFeatures,
    )
}  # fmt: skip


def as_feature(feature: str | Feature) -> Feature:
    """A `Feature` from its short name (with default options) or from a Feature; ValueError lists the names."""
    if isinstance(feature, Feature):
        return feature
    if not isinstance(feature, str) or feature not in _FEATURES:
        raise ValueError(f"feature must be a Feature or one of {sorted(_FEATURES)}, got {feature!r}")
    return _FEATURES[feature]()


def feature_from_description(description: dict[str, Any]) -> Feature:
    """The inverse of `Feature.describe`; ValueError on an unknown name or option."""
    options = dict(description) if isinstance(description, dict) else {}
    name = options.pop("name", None)
    for cls in _FEATURES.values():
        if cls.__name__ == name:
            try:
                return cls(**options)
            except TypeError as error:
                raise ValueError(f"description has unknown options for {name}: {error}") from None
    raise ValueError(f"description must name one of {sorted(c.__name__ for c in _FEATURES.values())}, got {description!r}")
