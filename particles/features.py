"""Features phi(x; omega_k): the one place where a particle becomes a function of the data.

Written once over NumPy and torch. A feature gives `width` numbers per particle and carries no N^-1/2: the kernel of N particles is
K_N(x, x') = (1/N) sum_k sum_c phi_c(x; omega_k) phi_c(x'; omega_k). Shapes: x (..., n, dim), omega (..., particle, particle_dim),
phi (..., n, width, particle); leading axes broadcast as in a matrix product.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from particles._feature import Feature, cosine, pair, waves
from particles._positive import (
    CosineSquared,
    Elu,
    HyperbolicPair,
    PositiveExponential,
    SigmoidSquared,
    SoftmaxFeatures,
    Softplus,
    exponent_shift,
    headroom,
)
from particles.arrays import Array, namespace

__all__ = [
    "CosineSquared",
    "Elu",
    "Feature",
    "FourierPair",
    "FourierPhase",
    "HyperbolicPair",
    "NonstationaryPair",
    "PositiveExponential",
    "SigmoidSquared",
    "SoftmaxFeatures",
    "Softplus",
    "as_feature",
    "exponent_shift",
    "feature_from_description",
    "headroom",
]


@dataclass(frozen=True)
class FourierPair(Feature):
    """(cos w.x, sin w.x): K_N(x, x') = mean cos w_k.(x - x'), the stationary kernels (Bochner; Rahimi and Recht 2007)."""

    name: ClassVar[str] = "fourier"
    width: ClassVar[int] = 2

    def __call__(self, x: Array, omega: Array) -> Array:
        namespace(x, omega)
        return pair(*waves(self._phase(x, omega)))

    def value_and_pullback(self, x: Array, omega: Array) -> tuple[Array, Callable[[Array], Array]]:
        """The features, and the map from their cotangent to that of omega, as `Feature.value_and_pullback`."""
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
        return math.sqrt(2) * cosine(self._phase(x, omega))[..., None, :]

    def value_and_pullback(self, x: Array, omega: Array) -> tuple[Array, Callable[[Array], Array]]:
        """The features, and the map from their cotangent to that of omega, as `Feature.value_and_pullback`."""
        cos, sin = waves(self._phase(x, omega))

        def pullback(cotangent: Array) -> Array:
            return self._back(-math.sqrt(2) * sin * cotangent[..., 0, :], x)

        return math.sqrt(2) * cos[..., None, :], pullback


@dataclass(frozen=True)
class NonstationaryPair(Feature):
    """(cos w1.x + cos w2.x, sin w1.x + sin w2.x)/2 with particle (w1, w2): Yaglom's kernels (Flexformer_n, sums form, sigma = 1)."""

    name: ClassVar[str] = "nonstationary"
    width: ClassVar[int] = 2

    def particle_dim(self, dim: int) -> int:
        """2 dim: a particle is a pair of frequencies."""
        return 2 * dim

    def _phases(self, x: Array, omega: Array) -> tuple[Array, Array]:
        self._check(x, omega)
        dim = x.shape[-1]
        return x @ omega[..., :dim].swapaxes(-1, -2), x @ omega[..., dim:].swapaxes(-1, -2)

    def __call__(self, x: Array, omega: Array) -> Array:
        (cos, sin), (cos2, sin2) = map(waves, self._phases(x, omega))
        return pair(cos + cos2, sin + sin2) / 2

    def value_and_pullback(self, x: Array, omega: Array) -> tuple[Array, Callable[[Array], Array]]:
        """The features, and the map from their cotangent to that of omega, as `Feature.value_and_pullback`."""
        xp, both = namespace(x, omega), [waves(z) for z in self._phases(x, omega)]

        def pullback(cotangent: Array) -> Array:
            grads = [self._back(c * cotangent[..., 1, :] - s * cotangent[..., 0, :], x) for c, s in both]
            return xp.concatenate(grads, -1) / 2

        return pair(both[0][0] + both[1][0], both[0][1] + both[1][1]) / 2, pullback


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
