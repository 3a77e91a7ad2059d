"""Domains: where particles may be. Every domain works on NumPy arrays and torch tensors of shape (..., particle, dim).

`contains(project(x))` and `contains(reflect(x))` hold for every finite x in float32 and float64; NaN and infinity are never contained.
The domains here have closed forms for everything; ellipsoids, polytopes and a user's set are in `particles.convex` and
`particles.polytope`.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from particles.arrays import Array, as_real, count, generator, is_torch, namespace, positive, real

EPS = {4: 2.0**-23, 8: 2.0**-52}  # of a type by its bytes


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


def as_points(omega: Any, dim: int) -> Array:
    """omega as float32 or float64 (..., dim), NaN and infinity let through; ValueError otherwise. A labelled axis "dim" is put last."""
    if "dim" in getattr(omega, "dims", ()):
        omega = omega.transpose(..., "dim")
    omega = as_real(omega, "omega")
    if omega.shape[-1:] != (dim,):
        raise ValueError(f"omega must have shape (..., {dim}) for this domain, got {tuple(omega.shape)}")
    return omega


def require_finite(x: Array) -> None:
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

    def bounce(self, omega: Array, displacement: Array, velocity: Array | None = None) -> tuple[Array, Array]:
        """Where a straight flight of `displacement` ends with specular reflection at every wall, and `velocity` reflected alike."""

    def contains(self, omega: Array) -> Array:
        """Boolean (..., particle)."""

    @property
    def volume(self) -> float:
        """Lebesgue measure, in omega's units to the power dim."""

    @property
    def diameter(self) -> float:
        """The largest distance of two points, in omega's units."""

    def erode(self, distance: float) -> Domain:
        """The points farther than `distance` from the wall, or a convex part of them."""

    def sample(self, n: int, rng: Any) -> np.ndarray:
        """`n` independent uniform points, float64 (n, dim); rng is an int seed or a `numpy.random.Generator`."""

    def describe(self) -> dict[str, Any]:
        """Name and parameters as JSON values."""


class Walls:
    """What domains with walls share: the billiard. Subclasses give `dim`, `contains`, `project` and `_fly`."""

    dim: int

    def contains(self, omega: Array) -> Array:
        """Boolean (..., particle); given by the subclass."""
        raise NotImplementedError

    def project(self, omega: Array) -> Array:
        """The nearest point of the domain, for each particle; given by the subclass."""
        raise NotImplementedError

    def bounce(self, omega: Array, displacement: Array, velocity: Array | None = None) -> tuple[Array, Array]:
        """Fly `displacement` from `omega` in straight lines, reflected at every wall: exact, volume-preserving and reversible.

        Parameters
        ----------
        omega, displacement, velocity
            Arrays (..., particle, dim) of one shape: points inside, the way to go, and what is reflected along with it (None: the
            displacement).

        Returns
        -------
        end, velocity
            Arrays of the same shape. `bounce(end, -velocity)` leads back to `omega` when velocity was None.

        Raises
        ------
        ValueError
            If a particle that meets a wall starts outside, shapes differ, anything is NaN or infinite, or a flight is too long to follow.
        """
        omega, way, velocity = _flight(omega, displacement, velocity, self.dim)
        end = omega + way
        meets = ~self.contains(end)
        if not bool(meets.any()):
            return end, velocity
        start = omega[meets]
        if not bool(self.contains(start).all()):
            raise ValueError(f"omega must lie inside {self} to fly from there")
        flown, turned = self._fly(*(to_float64(array[meets]) for array in (omega, way, velocity)))
        if not bool(namespace(flown).isfinite(flown).all()):
            raise ValueError(f"displacement must be of a length whose square is a number, got lengths up to {float(norms(way).max()):.3g}")
        velocity = velocity + 0  # a copy, of either kind of array
        end[meets] = self.project(cast_like(flown, end))  # removes rounding only
        velocity[meets] = cast_like(turned, velocity)
        return end, velocity

    def _fly(self, x: Array, way: Array, velocity: Array) -> tuple[Array, Array]:
        """`bounce` of rows (n, dim) in float64 that do meet a wall."""
        raise NotImplementedError


def _flight(omega: Array, displacement: Array, velocity: Array | None, dim: int) -> tuple[Array, Array, Array]:
    """The arguments of `bounce` as finite arrays of one shape."""
    omega, displacement = as_points(omega, dim), as_points(displacement, dim)
    velocity = displacement if velocity is None else as_points(velocity, dim)
    for name, array in (("displacement", displacement), ("velocity", velocity)):
        if array.shape != omega.shape:
            raise ValueError(f"{name} must have omega's shape {tuple(omega.shape)}, got {tuple(array.shape)}")
        if not bool(namespace(array).isfinite(array).all()):
            raise ValueError(f"{name} must be finite, got NaN or infinity")
    return omega, displacement, velocity


def to_float64(x: Array) -> Array:
    """x in float64."""
    return x.double() if is_torch(x) else x.astype(np.float64, copy=False)


def cast_like(x: Array, like: Array) -> Array:
    """x in the dtype of `like`."""
    return x.to(like.dtype) if is_torch(x) else x.astype(like.dtype, copy=False)


def to_host(x: Array) -> np.ndarray:
    """x as a float64 NumPy array."""
    return (x.detach().cpu().numpy() if is_torch(x) else x).astype(np.float64, copy=False)


def from_host(x: np.ndarray, like: Array) -> Array:
    """A NumPy array in the kind, dtype and device of `like`."""
    return namespace(like).as_tensor(x, dtype=like.dtype, device=like.device) if is_torch(like) else x.astype(like.dtype, copy=False)


@dataclass(frozen=True)
class Ball(Walls):
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
        omega = as_points(omega, self.dim)
        return norms(omega) <= self.radius * (1 + (self.dim + 4) * EPS[omega.dtype.itemsize])

    def _outside(self, omega: Array, inside: Array) -> tuple[Array, Array]:
        """omega, and |w| of the particles outside, radius for the others: never 0. ValueError unless finite.

        Where |w|^2 overflows, w is put nearer along its ray: its direction is all that its digits say.
        """
        xp, radii = namespace(omega), norms(omega)
        if not bool(xp.isfinite(radii).all()):
            require_finite(omega)
            omega = _where(xp.isfinite(radii), omega, omega * float(xp.finfo(omega.dtype).tiny) ** 0.6)
            radii = norms(omega)
        return omega, xp.where(inside, self.radius, radii)

    def project(self, omega: Array) -> Array:
        """w radius / |w| for the particles outside."""
        omega = as_points(omega, self.dim)
        inside = self.contains(omega)
        if bool(inside.all()):
            return omega
        omega, radii = self._outside(omega, inside)
        return scale_rows(omega, self.radius / radii)  # times exactly 1 inside

    def reflect(self, omega: Array) -> Array:
        """w (2 radius / |w| - 1) for the particles outside, repeated until inside: a triangle wave of |w| along w's direction."""
        omega = as_points(omega, self.dim)
        inside = self.contains(omega)
        if bool(inside.all()):
            return omega
        omega, radii = self._outside(omega, inside)
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

    def _fly(self, x: Array, way: Array, velocity: Array) -> tuple[Array, Array]:
        """In the plane of w and the flight all chords are one chord, turned by its central angle: no loop over hits.

        With e1 the direction of flight and e2 that of w's rest, the first chord runs from (-h, b) to (h, b).
        """
        xp = namespace(x)
        length = safe_norms(way)
        e1 = scale_rows(way, 1 / length)
        along = _dot(x, e1)
        rest = x - scale_rows(e1, along)
        rest = rest - scale_rows(e1, _dot(rest, e1))  # twice is enough
        b = norms(rest)
        central = b < self.radius * 2.0**-50  # a flight through the centre: the rest is rounding
        e2 = scale_rows(rest, xp.where(central, 0.0, 1 / xp.where(central, 1.0, b)))
        h = xp.sqrt(xp.clip((self.radius - b) * (self.radius + b), (self.radius * 2.0**-52) ** 2, None))
        flown = along + h + length
        place = xp.remainder(flown, 2 * h)
        hits = xp.round((flown - place) / (2 * h))
        angle = hits * 2 * xp.arctan2(h, b)
        mirror = 1 - 2 * xp.remainder(hits, 2.0)
        end = _turn(e1, e2, angle, place - h, b)
        u1, u2 = _dot(velocity, e1), _dot(velocity, e2)
        across = velocity - scale_rows(e1, u1) - scale_rows(e2, u2)
        return end, across + _turn(e1, e2, angle, u1, u2 * mirror)

    @property
    def volume(self) -> float:
        """pi^(dim/2) radius^dim / Gamma(dim/2 + 1)."""
        return math.exp(self.dim * (math.log(math.pi) / 2 + math.log(self.radius)) - math.lgamma(self.dim / 2 + 1))

    @property
    def diameter(self) -> float:
        """2 radius."""
        return 2 * self.radius

    def erode(self, distance: float) -> Ball:
        """The ball of radius less `distance`; ValueError if none is left."""
        return Ball(self.radius - eroding(distance, self.radius), self.dim)


def _dot(x: Array, y: Array) -> Array:
    """Row by row."""
    return (x * y).sum(-1)


def _turn(e1: Array, e2: Array, angle: Array, a: Array, b: Array) -> Array:
    """a e1 + b e2 turned by `angle` from e2 towards e1."""
    xp = namespace(angle)
    cos, sin = xp.cos(angle), xp.sin(angle)
    return scale_rows(e1, cos * a + sin * b) + scale_rows(e2, cos * b - sin * a)


def eroding(distance: Any, inradius: float) -> float:
    """`distance` as a number in [0, inradius); ValueError otherwise."""
    number = positive(distance, "distance", zero=True)
    if number >= inradius:
        raise ValueError(f"distance must be below {inradius}, where nothing is left of the domain, got {distance!r}")
    return number


@dataclass(frozen=True)
class Box(Walls):
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
        omega = as_points(omega, self.dim)
        low, high = self._bounds(omega)
        return ((omega >= low) & (omega <= high)).all(-1)

    def project(self, omega: Array) -> Array:
        """Every coordinate clipped to its bounds."""
        omega = as_points(omega, self.dim)
        require_finite(omega)
        return namespace(omega).clip(omega, *self._bounds(omega))

    def reflect(self, omega: Array) -> Array:
        """Every coordinate folded at its bounds, for any overshoot; uniform noise keeps the uniform law exactly."""
        omega = as_points(omega, self.dim)
        require_finite(omega)
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

    def _fly(self, x: Array, way: Array, velocity: Array) -> tuple[Array, Array]:
        """Every coordinate folded; an odd number of folds turns the velocity."""
        xp = namespace(x)
        low, high = self._bounds(x)
        offset = xp.remainder(x + way - low, 2 * (high - low))
        back = offset > high - low
        return low + xp.where(back, 2 * (high - low) - offset, offset), xp.where(back, -velocity, velocity)

    @property
    def volume(self) -> float:
        """The product of the sides."""
        return math.prod(self._sides)

    @property
    def diameter(self) -> float:
        """The diagonal."""
        return math.hypot(*self._sides)

    @property
    def _sides(self) -> list[float]:
        return [b - a for a, b in zip(self.low, self.high)]

    def erode(self, distance: float) -> Box:
        """The box with every wall moved inwards by `distance`; ValueError if none is left."""
        distance = eroding(distance, min(self._sides) / 2)
        return Box([a + distance for a in self.low], [b - distance for b in self.high])


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
        omega = as_points(omega, self.dim)
        return namespace(omega).isfinite(omega).all(-1)

    def project(self, omega: Array) -> Array:
        """omega itself."""
        omega = as_points(omega, self.dim)
        require_finite(omega)
        return omega

    reflect = project

    def sample(self, n: int, rng: Any) -> np.ndarray:
        """Always a ValueError."""
        raise ValueError("domain FullSpace has no uniform law to sample from; draw the start yourself")

    def describe(self) -> dict[str, Any]:
        """Name and parameters as JSON values."""
        return {"name": "FullSpace", "dim": self.dim}

    def bounce(self, omega: Array, displacement: Array, velocity: Array | None = None) -> tuple[Array, Array]:
        """(omega + displacement, velocity): there is no wall. Arguments as in `Walls.bounce`."""
        omega, displacement, velocity = _flight(omega, displacement, velocity, self.dim)
        return omega + displacement, velocity

    volume = property(lambda self: math.inf, doc="Infinite.")
    diameter = property(lambda self: math.inf, doc="Infinite.")

    def erode(self, distance: float) -> FullSpace:
        """The same space: there is no wall."""
        positive(distance, "distance", zero=True)
        return self


@dataclass(frozen=True)
class Torus:
    """The flat torus [0, period)^dim: what leaves at one side comes in at the other. `period` a scalar (dim 1) or (dim,).

    A wrapped coordinate is in [0, period) in float64 whatever the dtype: -5e-17 becomes 0, not period. An energy on it should be
    periodic, such as `Riesz(..., period=...)`.

    Raises
    ------
    ValueError
        If a period is not positive and finite.
    """

    period: Any
    dim: int = field(init=False)

    def __post_init__(self) -> None:
        period = np.atleast_1d(np.asarray(self.period))
        if period.ndim != 1 or period.size == 0:
            raise ValueError(f"period must be a scalar or of shape (dim,), got {self.period!r}")
        object.__setattr__(self, "period", tuple(positive(v, "period") for v in period))
        object.__setattr__(self, "dim", period.size)

    def _lengths(self, omega: Array) -> Array:
        """The periods in float64 on omega's device."""
        return omega.new_tensor(self.period).double() if is_torch(omega) else np.asarray(self.period)

    def contains(self, omega: Array) -> Array:
        """Whether 0 <= w < period in every coordinate, boolean (..., particle)."""
        omega = to_float64(as_points(omega, self.dim))
        return ((omega >= 0) & (omega < self._lengths(omega))).all(-1)

    def project(self, omega: Array) -> Array:
        """Every coordinate modulo its period."""
        omega = as_points(omega, self.dim)
        require_finite(omega)
        xp, exact = namespace(omega), to_float64(omega)
        lengths = self._lengths(exact)
        wrapped = cast_like(xp.remainder(exact, lengths), omega)
        wrapped = xp.where(to_float64(wrapped) >= lengths, xp.zeros_like(omega), wrapped)
        return xp.where((exact >= 0) & (exact < lengths), omega, wrapped)

    reflect = project

    def bounce(self, omega: Array, displacement: Array, velocity: Array | None = None) -> tuple[Array, Array]:
        """(omega + displacement wrapped, velocity): there is no wall. Arguments as in `Walls.bounce`."""
        omega, displacement, velocity = _flight(omega, displacement, velocity, self.dim)
        return self.project(omega + displacement), velocity

    def sample(self, n: int, rng: Any) -> np.ndarray:
        """Uniform points, float64 (n, dim)."""
        return self.project(generator(rng).random((count(n, "n"), self.dim)) * self.period)

    def describe(self) -> dict[str, Any]:
        """Name and parameters as JSON values."""
        return {"name": "Torus", "period": list(self.period)}

    @property
    def volume(self) -> float:
        """The product of the periods."""
        return math.prod(self.period)

    @property
    def diameter(self) -> float:
        """The largest geodesic distance: half the diagonal."""
        return math.hypot(*self.period) / 2

    def erode(self, distance: float) -> Torus:
        """The same torus: there is no wall."""
        positive(distance, "distance", zero=True)
        return self
