"""Convex domains without closed forms: the ellipsoid, a user's projector, and what they share with the polytopes of `particles.polytope`.

Only particles outside are computed on: in float64 on the host, whatever omega's kind, dtype and device, so that NumPy and torch agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from particles.arrays import Array, as_float, count, generator, is_torch, namespace, positive
from particles.domain import (
    Ball,
    Walls,
    as_points,
    cast_like,
    eroding,
    from_host,
    norms,
    require_finite,
    safe_norms,
    scale_rows,
    to_float64,
    to_host,
)
from particles.fingerprint import describe_callable

MOST_HITS = 30_000
_ROUNDS = 5


class Convex(Walls):
    """A convex set whose subclasses give `contains`, `_nearest`, `_mirror` and `_hit` on float64 rows (n, dim) of NumPy."""

    def project(self, omega: Array) -> Array:
        """The nearest point of the domain, for each particle; particles inside keep their bits.

        Particles far out lose digits in one pass; their image is near the domain, and the next pass puts it right.

        Raises
        ------
        ValueError
            If omega has another dim, or holds NaN or infinity.
        """
        omega = as_points(omega, self.dim)
        require_finite(omega)
        for _ in range(_ROUNDS):
            outside = ~self.contains(omega)
            if not bool(outside.any()):
                return omega
            omega = _on_rows(self._nearest, omega, outside)
        raise ArithmeticError(f"{self} is too thin for the precision of {omega.dtype}: the projection does not end inside")

    def reflect(self, omega: Array) -> Array:
        """The particles outside mirrored at the wall until they are inside; see the class for how.

        Raises
        ------
        ValueError
            If omega has another dim, or holds NaN or infinity, or a particle needs more than 30,000 reflections.
        """
        omega = as_points(omega, self.dim)
        require_finite(omega)
        outside = ~self.contains(omega)
        return self.project(_on_rows(self._mirror, omega, outside)) if bool(outside.any()) else omega

    def _fly(self, x: Array, way: Array, velocity: Array) -> tuple[Array, Array]:
        end, turned = _billiard(self._hit, *(to_host(array) for array in (x, way, velocity)))
        return from_host(end, x), from_host(turned, velocity)

    def _nearest(self, x: np.ndarray) -> np.ndarray:
        """The projection of rows outside."""
        raise NotImplementedError

    def _mirror(self, x: np.ndarray) -> np.ndarray:
        """The reflection of rows outside."""
        raise NotImplementedError

    def _hit(self, x: np.ndarray, way: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(share of `way` (n,) until the wall, infinity if none, outward unit normal there (n, dim)) for x inside."""
        raise NotImplementedError


def _on_rows(function: Callable[[np.ndarray], np.ndarray], omega: Array, rows: Array) -> Array:
    """omega with the rows of the mask replaced by `function` of them."""
    new = omega + 0  # a copy, of either kind of array
    new[rows] = from_host(function(to_host(omega[rows])), omega)
    return new


def mirrored(vectors: np.ndarray, normals: np.ndarray) -> np.ndarray:
    """v - 2 (v.n) n, row by row."""
    return vectors - scale_rows(normals, 2 * np.vecdot(vectors, normals))


def _billiard(hit: Callable, x: np.ndarray, way: np.ndarray, velocity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Straight flight from wall to wall; (end, velocity mirrored at each), as in `Walls.bounce`."""
    x, left, velocity = x.copy(), way.copy(), velocity.copy()
    flying = np.arange(len(x))
    for _ in range(MOST_HITS):
        share, normal = hit(x[flying], left[flying])
        x[flying] += scale_rows(left[flying], np.minimum(share, 1.0))
        meets = share < 1
        flying, share, normal = flying[meets], share[meets], normal[meets]
        if not flying.size:
            return x, velocity
        normal[np.vecdot(left[flying], normal) <= 0] = 0.0  # rounding of a grazing hit: flies on
        left[flying] = mirrored(scale_rows(left[flying], 1 - share), normal)
        velocity[flying] = mirrored(velocity[flying], normal)
    raise ValueError(f"displacement must meet walls less than {MOST_HITS} times, got lengths up to {safe_norms(way).max():.3g}")


@dataclass(frozen=True)
class Ellipsoid(Convex):
    """The closed ellipsoid sum_a (w_a / axes_a)^2 <= 1, axes along the coordinates; `axes` are its half lengths (dim,).

    project: the root of the secular equation, by Newton's method from below, which is monotone there (Moré and Sorensen, "Computing a
    trust region step", SIAM J. Sci. Stat. Comput. 4, 1983); to rounding.
    reflect: mirrored across the nearest point of the wall, folded within the chord through it along the normal; for equal axes this is
    `Ball.reflect`. It knows the new point only; what preserves volume is `bounce`, the billiard.
    `contains` allows for the rounding of the scaled norm, (dim + 4) machine epsilons of omega's dtype.

    Raises
    ------
    ValueError
        If an axis is not positive and finite.
    """

    axes: Any

    def __post_init__(self) -> None:
        axes = np.atleast_1d(np.asarray(self.axes))
        if axes.ndim != 1 or axes.size == 0:
            raise ValueError(f"axes must have shape (dim,), got {self.axes!r}")
        object.__setattr__(self, "axes", tuple(positive(a, "axes") for a in axes))
        object.__setattr__(self, "dim", axes.size)

    def contains(self, omega: Array) -> Array:
        """Whether sum (w / axes)^2 <= 1, boolean (..., particle)."""
        omega = as_points(omega, self.dim)
        eps = float(namespace(omega).finfo(omega.dtype).eps)
        with np.errstate(over="ignore"):
            return norms(to_float64(omega) / from_host(np.array(self.axes), to_float64(omega))) <= 1 + (self.dim + 4) * eps

    def _nearest(self, x: np.ndarray) -> np.ndarray:
        """a^2 x / (a^2 + t) with the t > 0 for which it lies on the wall: 1/|scaled point| is concave in t."""
        a = np.array(self.axes)
        x = np.where(abs(x).max(-1, keepdims=True) > 1e200 * a.max(), 1e-150 * x, x)  # nothing overflows; the image is the same
        t = np.maximum((a * abs(x) - a * a).max(-1), 0.0)  # no coordinate may be beyond its axis
        for _ in range(100):
            weight = a * a + t[:, None]
            y = a * x / weight
            size = norms(y)
            t = t + np.maximum(size * size * (size - 1) / np.vecdot(y, y / weight), 0.0)
            if (size <= 1 + 4e-16).all():
                break
        return a * y / size[:, None]

    def _normal(self, x: np.ndarray) -> np.ndarray:
        """The outward unit normal at points of the wall."""
        slope = x / np.array(self.axes)
        slope = slope / norms(slope)[:, None] / np.array(self.axes)
        return slope / norms(slope)[:, None]

    def _mirror(self, x: np.ndarray) -> np.ndarray:
        wall = self._nearest(x)
        inwards = -self._normal(wall)
        chord = self._hit(wall, inwards)[0]
        overshoot = np.minimum(safe_norms(x - wall), np.finfo(float).max)
        return wall + scale_rows(inwards, chord - abs(np.remainder(overshoot, 2 * chord) - chord))

    def _hit(self, x: np.ndarray, way: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The positive root of |y + t v|^2 = 1 in scaled coordinates, in the form without cancellation."""
        y, v = x / np.array(self.axes), way / np.array(self.axes)
        square, half, rest = np.vecdot(v, v), np.vecdot(y, v), np.maximum(1 - np.vecdot(y, y), 0.0)
        root = np.sqrt(half * half + square * rest)
        outwards = half > 0
        top, bottom = np.where(outwards, rest, root - half), np.where(outwards, half + root, square)
        share = np.divide(top, bottom, out=np.full(len(x), np.inf), where=bottom > 0)
        wall = x + scale_rows(way, np.where(np.isfinite(share), share, 0.0))
        return share, self._normal(wall)

    def sample(self, n: int, rng: Any) -> np.ndarray:
        """Uniform points, float64 (n, dim): those of the unit ball, stretched."""
        return Ball(1.0, self.dim).sample(n, rng) * self.axes

    @property
    def volume(self) -> float:
        """That of the unit ball times the axes."""
        return Ball(1.0, self.dim).volume * math.prod(self.axes)

    @property
    def diameter(self) -> float:
        """Twice the longest axis."""
        return 2 * max(self.axes)

    def erode(self, distance: float) -> Ellipsoid:
        """An ellipsoid all of whose points are at least `distance` from the wall, and touching that set at the ends of the shortest axis.

        The true erosion is no ellipsoid. axes'^2 = (1 - distance/m)(axes^2 - distance m), m the shortest axis: support functions h obey
        h'(u)^2 <= (h(u) - distance)^2, whose right side, convex in h^2, lies above its tangent at h = m. ValueError if nothing is left.
        """
        shortest = min(self.axes)
        distance = eroding(distance, shortest)
        return Ellipsoid([math.sqrt((1 - distance / shortest) * (a * a - distance * shortest)) for a in self.axes])

    def describe(self) -> dict[str, Any]:
        """Name and parameters as JSON values."""
        return {"name": "Ellipsoid", "axes": list(self.axes)}


class Projector(Walls):
    """A user's convex set, known by its Euclidean projection.

    A projection tells nothing of the wall but the nearest point: `reflect`, `bounce` and `erode` raise ValueError, and
    `volume` and `diameter` are NaN.

    Parameters
    ----------
    project
        (..., particle, dim) -> the same shape: the nearest points; for the kinds of array (NumPy, torch) that the runs use.
    dim
        The dimension of a particle.
    contains
        (..., particle, dim) -> boolean (..., particle); by default whether `project` moves w by at most sqrt(machine epsilon) |w|.
    sample
        (n, rng) -> n uniform points (n, dim), rng a `numpy.random.Generator`; without it `sample` raises.

    Raises
    ------
    ValueError
        For arguments that are not callable, and in use: for results of a wrong shape or outside `contains`, and when the first points
        move by more than sqrt(machine epsilon) of their length on being projected again (then it is no projection).
    """

    def __init__(self, project: Callable, dim: int, *, contains: Callable | None = None, sample: Callable | None = None) -> None:
        for name, given in (("project", project), ("contains", contains), ("sample", sample)):
            if not callable(given) and (given is not None or name == "project"):
                raise ValueError(f"{name} must be callable, got {given!r}")
        self.dim = count(dim, "dim")
        self._project, self._contains, self._sample = project, contains, sample
        self._trusted = False

    def contains(self, omega: Array) -> Array:
        """Whether the particle is finite and in the set, boolean (..., particle)."""
        omega = as_points(omega, self.dim)
        finite = namespace(omega).isfinite(omega).all(-1)
        if not bool(finite.any()):
            return finite
        safe = namespace(omega).where(finite[..., None], omega, omega[finite][0])  # the user's functions see finite points only
        return finite & (self._fixed(safe, self._nearest(safe)) if self._contains is None else self._user_contains(safe))

    def project(self, omega: Array) -> Array:
        """The user's projection of the particles outside; those inside keep their bits."""
        omega = as_points(omega, self.dim)
        require_finite(omega)
        nearest = self._nearest(omega)
        if not self._trusted and not bool(self._fixed(nearest, self._nearest(nearest)).all()):
            raise ValueError("project must leave a projected point where it is, but projecting twice moved one: no Euclidean projection")
        self._trusted = True
        inside = self._fixed(omega, nearest) if self._contains is None else self._user_contains(omega)
        result = namespace(omega).where(inside[..., None], omega, nearest)
        if self._contains is not None and not bool(self._user_contains(result).all()):
            raise ValueError("contains must hold for projected points, but it does not for one")
        return result

    def _nearest(self, omega: Array) -> Array:
        nearest = self._project(omega)
        if getattr(nearest, "shape", None) != omega.shape:
            raise ValueError(f"project must return shape {tuple(omega.shape)}, got {getattr(nearest, 'shape', nearest)}")
        return cast_like(nearest, omega)

    def _user_contains(self, omega: Array) -> Array:
        """The user's answer, checked."""
        inside = self._contains(omega)  # type: ignore[misc]
        if getattr(inside, "shape", None) != omega.shape[:-1]:
            raise ValueError(f"contains must return shape {tuple(omega.shape[:-1])}, got {getattr(inside, 'shape', inside)}")
        return inside if is_torch(inside) else np.asarray(inside, bool)

    @staticmethod
    def _fixed(omega: Array, nearest: Array) -> Array:
        """Whether `nearest` is where omega is, up to sqrt(machine epsilon) of its length."""
        tolerance = float(namespace(omega).finfo(omega.dtype).eps) ** 0.5
        return safe_norms(nearest - omega) <= tolerance * safe_norms(omega)

    def reflect(self, omega: Array) -> Array:
        """Always a ValueError."""
        raise ValueError('domain Projector has no reflection: use the scheme "projected"')

    def bounce(self, omega: Array, displacement: Array, velocity: Array | None = None) -> tuple[Array, Array]:
        """Always a ValueError."""
        raise ValueError("domain Projector has no walls to bounce from: use Langevin with the scheme 'projected'")

    def sample(self, n: int, rng: Any) -> np.ndarray:
        """Points of the user's `sample`, float64 (n, dim); ValueError without one."""
        if self._sample is None:
            raise ValueError("domain Projector has no uniform law without sample=...; draw the start yourself")
        points = as_float(self._sample(count(n, "n"), generator(rng)), "sample").astype(np.float64)
        if points.shape != (n, self.dim):
            raise ValueError(f"sample must return shape {(n, self.dim)}, got {points.shape}")
        return points

    @property
    def volume(self) -> float:
        """NaN: not known."""
        return math.nan

    @property
    def diameter(self) -> float:
        """NaN: not known."""
        return math.nan

    def erode(self, distance: float) -> Projector:
        """Always a ValueError."""
        raise ValueError("domain Projector cannot be eroded; give the projection onto the smaller set")

    def describe(self) -> dict[str, Any]:
        """Name, dim, and the functions' names and fingerprints as JSON values."""
        functions = {"project": self._project, "contains": self._contains, "sample": self._sample}
        return {"name": "Projector", "dim": self.dim, **{name: f and describe_callable(f) for name, f in functions.items()}}

    def __repr__(self) -> str:
        return f"Projector({getattr(self._project, '__qualname__', self._project)}, dim={self.dim})"
