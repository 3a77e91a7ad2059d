"""Convex domains: where particles may be. Every domain works on NumPy arrays and torch tensors of shape (..., particle, dim).

`contains(project(x))` and `contains(reflect(x))` hold for every finite x in float32 and float64; NaN and infinity are never contained.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from particles.arrays import Array, count, generator, is_array, is_torch, namespace, positive, real


def norms(x: Array) -> Array:
    """Euclidean lengths over the last axis, (..., dim) -> (...); infinite where the square overflows."""
    return namespace(x).linalg.vector_norm(x, dim=-1) if is_torch(x) else np.sqrt(np.vecdot(x, x))


def safe_norms(x: Array) -> Array:
    """`norms` for finite x of any size: scaled by the largest coordinate first."""
    xp = namespace(x)
    largest = xp.amax(abs(x), -1)
    scaled = x / xp.where(largest > 0, largest, xp.ones_like(largest))[..., None]
    return largest * norms(scaled)


def scale_rows(x: Array, factors: Array) -> Array:
    """x (..., dim) times one factor (...) per row."""
    return x * factors[..., None]


def _where(condition: Array, new: Array, old: Array) -> Array:
    """Rows of `new` where `condition` (...) holds, else those of `old`: points that need no change keep their bits."""
    return namespace(old).where(condition[..., None], new, old)


def _points(omega: Any, dim: int) -> Array:
    """omega as a floating point array (..., dim); ValueError otherwise."""
    omega = omega if is_array(omega) else np.asarray(omega)
    if omega.shape[-1:] != (dim,):
        raise ValueError(f"omega must have shape (..., {dim}) for this domain, got {tuple(omega.shape)}")
    if is_torch(omega):
        return omega if omega.is_floating_point() else omega.double()
    return omega if omega.dtype.kind == "f" else omega.astype(np.float64)


def _require_finite(x: Array) -> None:
    """Projection of NaN or infinity does not exist."""
    if not bool(namespace(x).isfinite(x).all()):
        raise ValueError("omega must be finite to be projected or reflected, got NaN or infinity")


@runtime_checkable
class Domain(Protocol):
    """What `simulate` asks of a domain."""

    @property
    def dim(self) -> int:
        """The dimension of a particle."""

    def project(self, omega: Array) -> Array:
        """The nearest point of the domain, for each particle."""

    def reflect(self, omega: Array) -> Array:
        """The particle mirrored at the wall, as often as its overshoot asks for."""

    def contains(self, omega: Array) -> Array:
        """Boolean (..., particle)."""

    def sample(self, n: int, rng: Any) -> np.ndarray:
        """`n` independent uniform points, float64 (n, dim); rng is an int seed or a `numpy.random.Generator`."""

    def describe(self) -> dict[str, Any]:
        """Name and parameters as JSON values."""


@dataclass(frozen=True)
class Ball:
    """The closed ball |w| <= radius, the paper's domain (radius 5 and 1.5 in its experiments).

    `contains` allows for the rounding of a norm, (dim + 4) machine epsilons of x's dtype: x radius / |x| itself
    has a computed norm above radius for 1 % of random x.

    Raises
    ------
    ValueError
        If radius is not positive and finite, or dim not a positive integer.
    """

    radius: float
    dim: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", positive(self.radius, "radius"))
        object.__setattr__(self, "dim", count(self.dim, "dim"))

    def contains(self, omega: Array) -> Array:
        """Whether |w| <= radius, boolean (..., particle)."""
        omega = _points(omega, self.dim)
        eps = float(namespace(omega).finfo(omega.dtype).eps)
        return norms(omega) <= self.radius * (1 + (self.dim + 4) * eps)

    def _outer_norms(self, omega: Array) -> Array:
        """|w|, or radius where that is larger: never 0."""
        return namespace(omega).clip(safe_norms(omega), self.radius, None)

    def project(self, omega: Array) -> Array:
        """w radius / |w| for the particles outside."""
        omega = _points(omega, self.dim)
        _require_finite(omega)
        inside = self.contains(omega)
        if bool(inside.all()):
            return omega
        return _where(~inside, scale_rows(omega, self.radius / self._outer_norms(omega)), omega)

    def reflect(self, omega: Array) -> Array:
        """w (2 radius / |w| - 1) for the particles outside, repeated until inside: a triangle wave of |w| along w's direction."""
        omega = _points(omega, self.dim)
        _require_finite(omega)
        inside = self.contains(omega)
        if bool(inside.all()):
            return omega
        radii = self._outer_norms(omega)
        folded = self.radius - abs(namespace(omega).remainder(radii + self.radius, 4 * self.radius) - 2 * self.radius)
        return _where(~inside, scale_rows(omega, folded / radii), omega)

    def sample(self, n: int, rng: Any) -> np.ndarray:
        """Uniform points, float64 (n, dim): a normal direction and radius U^(1/dim)."""
        rng = generator(rng)
        direction = rng.standard_normal((count(n, "n"), self.dim))
        radii = self.radius * rng.random(n) ** (1 / self.dim)
        return scale_rows(direction, radii / norms(direction))

    def describe(self) -> dict[str, Any]:
        """Name and parameters as JSON values."""
        return {"name": "Ball", "radius": self.radius, "dim": self.dim}


@dataclass(frozen=True)
class Box:
    """The closed box low <= w <= high; scalars or arrays (dim,), two scalars meaning dim 1.

    In float32 the bounds are rounded inwards, so that a projected particle is also inside in float64.

    Raises
    ------
    ValueError
        If a bound is not finite, shapes do not agree, or low is not below high.
    """

    low: Any
    high: Any
    dim: int = field(init=False)

    def __post_init__(self) -> None:
        try:
            low, high = np.broadcast_arrays(np.atleast_1d(self.low), np.atleast_1d(self.high))
        except ValueError:
            raise ValueError(f"low and high must have equal shapes, got {self.low!r} and {self.high!r}") from None
        if low.ndim != 1 or low.size == 0:
            raise ValueError(f"low and high must be scalars or of shape (dim,), got {low.shape}")
        for name, values in (("low", low), ("high", high)):
            object.__setattr__(self, name, tuple(real(v, name) for v in values))
        if not all(a < b for a, b in zip(self.low, self.high)):
            raise ValueError(f"low must be below high in every coordinate, got {self.low} and {self.high}")
        object.__setattr__(self, "dim", low.size)

    def _bounds(self, omega: Array) -> tuple[Array, Array]:
        return _bounds(self, omega.dtype, omega.device if is_torch(omega) else None)

    def contains(self, omega: Array) -> Array:
        """Whether every coordinate lies between its bounds, boolean (..., particle)."""
        omega = _points(omega, self.dim)
        low, high = self._bounds(omega)
        return ((omega >= low) & (omega <= high)).all(-1)

    def project(self, omega: Array) -> Array:
        """Every coordinate clipped to its bounds."""
        omega = _points(omega, self.dim)
        _require_finite(omega)
        return namespace(omega).clip(omega, *self._bounds(omega))

    def reflect(self, omega: Array) -> Array:
        """Every coordinate folded at its bounds, for any overshoot; uniform noise keeps the uniform law exactly."""
        omega = _points(omega, self.dim)
        _require_finite(omega)
        xp = namespace(omega)
        low, high = self._bounds(omega)
        offset = xp.remainder(omega - low, 2 * (high - low))
        folded = low + xp.minimum(offset, 2 * (high - low) - offset)
        inside = (omega >= low) & (omega <= high)
        return xp.where(inside, omega, xp.clip(folded, low, high))  # the clip removes rounding only

    def sample(self, n: int, rng: Any) -> np.ndarray:
        """Uniform points, float64 (n, dim)."""
        rng = generator(rng)
        return rng.uniform(self.low, self.high, (count(n, "n"), self.dim))

    def describe(self) -> dict[str, Any]:
        """Name and parameters as JSON values."""
        return {"name": "Box", "low": list(self.low), "high": list(self.high)}


@functools.lru_cache(maxsize=64)
def _bounds(box: Box, dtype: Any, device: Any) -> tuple[Array, Array]:
    """The box's bounds as arrays (dim,) of `dtype`, rounded inwards."""
    torch_dtype = None if isinstance(dtype, np.dtype) else dtype
    single = "float32" in str(dtype)
    low, high = np.asarray(box.low), np.asarray(box.high)
    if single:
        low32, high32 = low.astype(np.float32), high.astype(np.float32)
        low = np.where(low32 < low, np.nextafter(low32, np.float32(np.inf)), low32)
        high = np.where(high32 > high, np.nextafter(high32, np.float32(-np.inf)), high32)
    if not (low < high).all():
        raise ValueError(f"low and high must differ in {dtype}, got {box.low} and {box.high}")
    if torch_dtype is None:
        return low, high
    import torch

    return torch.as_tensor(low, dtype=torch_dtype, device=device), torch.as_tensor(high, dtype=torch_dtype, device=device)


@dataclass(frozen=True)
class FullSpace:
    """All of R^dim: no wall. It has no uniform law, so `sample` raises."""

    dim: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "dim", count(self.dim, "dim"))

    def contains(self, omega: Array) -> Array:
        """Whether the particle is finite, boolean (..., particle)."""
        omega = _points(omega, self.dim)
        return namespace(omega).isfinite(omega).all(-1)

    def project(self, omega: Array) -> Array:
        """omega itself."""
        omega = _points(omega, self.dim)
        _require_finite(omega)
        return omega

    reflect = project

    def sample(self, n: int, rng: Any) -> np.ndarray:
        """Always a ValueError."""
        raise ValueError("domain FullSpace has no uniform law to sample from; draw the start yourself")

    def describe(self) -> dict[str, Any]:
        """Name and parameters as JSON values."""
        return {"name": "FullSpace", "dim": self.dim}
