"""What every feature is, and the functions that several of them share; written once over NumPy and torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, ClassVar

from jaxtyping import Num

from particles._fourier import sincos
from particles.arrays import Array, as_float, is_array, is_torch, namespace


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
        """Whether the feature of one particle depends on the others, as where they are normalised together."""
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
        gram = flat(phi) @ flat(phi2).swapaxes(-1, -2) / omega.shape[-2]
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


def flat(phi: Array) -> Array:
    return phi.reshape(*phi.shape[:-2], phi.shape[-2] * phi.shape[-1])


def pair(first: Array, second: Array) -> Array:
    return namespace(first).stack((first, second), -2)


def cosine(z: Array) -> Array:
    return z.cos() if is_torch(z) else sincos(z)[1]


def waves(z: Array) -> tuple[Array, Array]:
    """(cos z, sin z)."""
    return (z.cos(), z.sin()) if is_torch(z) else sincos(z)[::-1]
