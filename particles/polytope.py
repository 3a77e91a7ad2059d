"""Polytopes: intersections of half-spaces, and the simplex. Flights and reflections go from facet to facet; projections are exact."""

from __future__ import annotations

import functools
import math
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from particles.arrays import Array, as_float, count, generator, namespace, positive, real
from particles.convex import MOST_HITS, Convex
from particles.domain import as_points, eroding, from_host, safe_norms, scale_rows, to_float64

_MOST_DIM = 8  # of a triangulation: its size grows like a factorial


class Polytope(Convex):
    """{facets w <= offsets}, bounded, with rows of length 1; subclasses give `_facets`, `_size`, `contains` and `_nearest`.

    reflect: the particle is mirrored at the facet it violates most, until it is inside: for a polytope with an interior this ends
    (Motzkin and Schoenberg, "The relaxation method for linear inequalities", Canad. J. Math. 6, 1954). For a box this is `Box.reflect`.
    Overshoots of more than twice the polytope's size are first taken modulo that.
    """

    @functools.cached_property
    def _facets(self) -> tuple[np.ndarray, np.ndarray]:
        """Outward unit normals (facet, dim) and offsets (facet,)."""
        raise NotImplementedError

    @functools.cached_property
    def _size(self) -> float:
        """At least the diameter."""
        raise NotImplementedError

    def _mirror(self, x: np.ndarray) -> np.ndarray:
        normals, offsets = self._facets
        x = self._within_reach(x)
        for _ in range(MOST_HITS):
            excess = x @ normals.T - offsets
            worst = excess.argmax(-1)
            overshoot = np.maximum(excess[np.arange(len(x)), worst], 0.0)
            if (overshoot <= 1e-15 * self._size).all():
                return x
            x = x - scale_rows(normals[worst], 2 * overshoot)
        raise ValueError(f"omega must lie close enough to {self} to be reflected, but needs more than {MOST_HITS} reflections")

    def _within_reach(self, x: np.ndarray) -> np.ndarray:
        """Overshoots modulo twice the size."""
        normals, offsets = self._facets
        far = (x @ normals.T - offsets).max(-1) > 2 * self._size
        if far.any():
            wall = self.project(x[far])
            overshoot = np.minimum(safe_norms(x[far] - wall), np.finfo(float).max)
            x[far] = wall + scale_rows((x[far] - wall) / overshoot[:, None], np.remainder(overshoot, 2 * self._size))
        return x

    def _hit(self, x: np.ndarray, way: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        normals, offsets = self._facets
        speed, gap = way @ normals.T, np.maximum(offsets - x @ normals.T, 0.0)
        share = np.divide(gap, speed, out=np.full(speed.shape, np.inf), where=speed > 0)
        first = share.argmin(-1)
        return share[np.arange(len(x)), first], normals[first]


@dataclass(frozen=True)
class Simplex(Polytope):
    """The solid simplex w >= corner, sum (w - corner) <= scale; by default w >= 0, sum w <= 1.

    project: by sorting (Held, Wolfe and Crowder, "Validation of subgradient optimization", Math. Programming 6, 1974), exact. Particles
    beyond an edge or a vertex land there, so several may coincide.
    reflect: as for every `Polytope`.
    `contains` is exact in w >= 0 and allows the sum (dim + 4) machine epsilons.

    Raises
    ------
    ValueError
        If dim is not a positive integer, scale not positive, or corner not finite.
    """

    dim: int
    _: KW_ONLY
    scale: float = 1.0
    corner: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "dim", count(self.dim, "dim"))
        object.__setattr__(self, "scale", positive(self.scale, "scale"))
        object.__setattr__(self, "corner", real(self.corner, "corner"))

    @functools.cached_property
    def _facets(self) -> tuple[np.ndarray, np.ndarray]:
        diagonal = np.full((1, self.dim), 1 / math.sqrt(self.dim))
        offsets = np.full(self.dim + 1, -self.corner)
        offsets[-1] = (self.scale + self.dim * self.corner) / math.sqrt(self.dim)
        return np.concatenate([-np.eye(self.dim), diagonal]), offsets

    @functools.cached_property
    def _size(self) -> float:
        return self.diameter

    def contains(self, omega: Array) -> Array:
        """Whether w >= corner and sum (w - corner) <= scale, boolean (..., particle)."""
        omega = as_points(omega, self.dim)
        eps = float(namespace(omega).finfo(omega.dtype).eps)
        shifted = to_float64(omega) - self.corner
        slack = (self.dim + 4) * eps * (self.scale + self.dim * abs(self.corner))
        return (shifted >= -4 * eps * abs(self.corner)).all(-1) & (shifted.sum(-1) <= self.scale + slack)

    def _nearest(self, x: np.ndarray) -> np.ndarray:
        """The positive part where its sum is at most the scale, else max(w - t, 0) with the t that makes the sum equal to it."""
        x = (x - self.corner) / self.scale
        top = x.max(-1, keepdims=True)
        below = x - top  # what matters is within 1 of the largest: no digit is lost there
        falling = -np.sort(-below, -1)
        t = (falling.cumsum(-1) - 1) / np.arange(1, self.dim + 1)
        last = np.maximum((falling > t).sum(-1, keepdims=True) - 1, 0)
        face = np.maximum(below - np.take_along_axis(t, last, -1), 0.0)
        positive_part = np.maximum(x, 0.0)
        nearest = np.where(positive_part.sum(-1, keepdims=True) > 1, face, positive_part)
        return self.corner + self.scale * nearest

    def sample(self, n: int, rng: Any) -> np.ndarray:
        """Uniform points, float64 (n, dim): Dirichlet(1, ..., 1) without its last coordinate."""
        parts = generator(rng).standard_exponential((count(n, "n"), self.dim + 1))
        return self.corner + self.scale * parts[:, :-1] / parts.sum(-1, keepdims=True)

    @property
    def volume(self) -> float:
        """scale^dim / dim!."""
        return math.exp(self.dim * math.log(self.scale) - math.lgamma(self.dim + 1))

    @property
    def diameter(self) -> float:
        """An edge between two axes, scale sqrt 2; scale when dim is 1."""
        return self.scale * math.sqrt(min(self.dim, 2))

    def erode(self, distance: float) -> Simplex:
        """The smaller simplex about the same incentre, exactly; ValueError if none is left."""
        shrink = self.dim + math.sqrt(self.dim)
        distance = eroding(distance, self.scale / shrink)
        return Simplex(self.dim, scale=self.scale - shrink * distance, corner=self.corner + distance)

    def describe(self) -> dict[str, Any]:
        """Name and parameters as JSON values."""
        return {"name": "Simplex", "dim": self.dim, "scale": self.scale, "corner": self.corner}


@dataclass(frozen=True)
class HalfSpaces(Polytope):
    """The bounded intersection {w: a w <= b} of half-spaces, a (facet, dim) and b (facet,); redundant ones may be among them.

    project: onto the facet violated most where that is the answer, else by the non-negative least squares of the dual (Lawson and
    Hanson, "Solving least squares problems", 1974, chapter 23), a particle at a time: about 50 microseconds for each particle beyond an
    edge. Exact; particles beyond an edge or a vertex land there, so several may coincide.
    reflect: as for every `Polytope`.
    `volume`, `diameter` and `sample` triangulate the vertices when first asked for: up to dim 8.
    `contains` allows (dim + 4) machine epsilons of the domain's distance from the origin.

    Raises
    ------
    ValueError
        If a or b have wrong shapes or values, a row of a is 0, or the intersection has no interior or is unbounded.
    """

    a: Any
    b: Any

    def __post_init__(self) -> None:
        a, b = (as_float(getattr(self, name), name).astype(np.float64) for name in ("a", "b"))
        if a.ndim != 2 or b.shape != a.shape[:1] or 0 in a.shape:
            raise ValueError(f"a and b must have shapes (facet, dim) and (facet,), got {a.shape} and {b.shape}")
        if not (abs(a).max(-1) > 0).all():
            raise ValueError(f"a must have no row of zeros, got {a.tolist()}")
        object.__setattr__(self, "a", tuple(map(tuple, a.tolist())))
        object.__setattr__(self, "b", tuple(b.tolist()))
        object.__setattr__(self, "dim", a.shape[1])
        _ = self._interior, self._box  # raise now

    @functools.cached_property
    def _facets(self) -> tuple[np.ndarray, np.ndarray]:
        lengths = safe_norms(np.array(self.a))
        return np.array(self.a) / lengths[:, None], np.array(self.b) / lengths

    @functools.cached_property
    def _interior(self) -> np.ndarray:
        """The centre of the largest ball inside and, last, its radius (dim + 1,): a linear programme."""
        normals, offsets = self._facets
        rows = np.column_stack([normals, np.ones(len(normals))])
        found = _programme(-np.eye(self.dim + 1)[-1], rows, offsets)
        if not found[-1] > 1e-9 * abs(offsets).max():
            raise ValueError(f"a and b must leave an interior, got {self.a} and {self.b}")
        return found

    @functools.cached_property
    def _box(self) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of the coordinates, by linear programmes."""
        axes = np.eye(self.dim)
        low, high = (np.array([_programme(sign * axis, *self._facets) @ axis for axis in axes]) for sign in (1.0, -1.0))
        return low, high

    @functools.cached_property
    def _size(self) -> float:
        return float(np.linalg.norm(np.subtract(*self._box)))

    @functools.cached_property
    def _reach(self) -> float:
        """At least the largest distance from the origin."""
        return float(np.linalg.norm(abs(np.array(self._box)).max(0)))

    def contains(self, omega: Array) -> Array:
        """Whether a w <= b, boolean (..., particle)."""
        omega = as_points(omega, self.dim)
        slack = (self.dim + 4) * float(namespace(omega).finfo(omega.dtype).eps) * self._reach
        exact = to_float64(omega)
        normals, offsets = (from_host(array, exact) for array in self._facets)
        with np.errstate(over="ignore", invalid="ignore"):
            return (exact @ normals.T <= offsets + slack).all(-1)

    def _nearest(self, x: np.ndarray) -> np.ndarray:
        normals, offsets = self._facets
        excess = x @ normals.T - offsets
        worst = excess.argmax(-1)
        nearest = x
        for _ in range(2):  # the second pass removes the rounding of a long way
            nearest = nearest - scale_rows(normals[worst], np.vecdot(nearest, normals[worst]) - offsets[worst])
        for k in np.flatnonzero(~self.contains(nearest)):
            nearest[k] = _nearest_on_facets(x[k], normals, offsets, excess[k])
        return nearest

    @functools.cached_property
    def _vertices(self) -> np.ndarray:
        """(vertex, dim)."""
        from scipy.spatial import HalfspaceIntersection

        if self.dim > _MOST_DIM:
            raise ValueError(f"domain HalfSpaces has volume, diameter and sample up to dim {_MOST_DIM}, got {self.dim}")
        if self.dim == 1:
            return np.stack(self._box)
        normals, offsets = self._facets
        return HalfspaceIntersection(np.column_stack([normals, -offsets]), self._interior[:-1]).intersections

    @functools.cached_property
    def _pieces(self) -> tuple[np.ndarray, np.ndarray]:
        """Simplices (piece, dim + 1, dim) that fill the polytope, from an inner point to the triangles of the hull; and their volumes."""
        from scipy.spatial import ConvexHull

        faces = self._vertices[:, None] if self.dim == 1 else self._vertices[ConvexHull(self._vertices).simplices]
        centre = np.broadcast_to(self._interior[:-1], (len(faces), 1, self.dim))
        volumes = abs(np.linalg.det(faces - centre)) / math.factorial(self.dim)
        return np.concatenate([centre, faces], 1), volumes

    def sample(self, n: int, rng: Any) -> np.ndarray:
        """Uniform points, float64 (n, dim): a simplex of the triangulation by volume, a uniform point in it."""
        rng = generator(rng)
        pieces, volumes = self._pieces
        chosen = pieces[rng.choice(len(pieces), count(n, "n"), p=volumes / volumes.sum())]
        return self.project(np.einsum("nv,nvd->nd", rng.dirichlet(np.ones(self.dim + 1), n), chosen))

    @property
    def volume(self) -> float:
        """The sum over the triangulation."""
        return float(self._pieces[1].sum())

    @functools.cached_property
    def diameter(self) -> float:
        """The largest distance of two vertices."""
        from scipy.spatial.distance import pdist

        return float(pdist(self._vertices).max())

    def erode(self, distance: float) -> HalfSpaces:
        """Every half-space moved inwards by `distance`, exactly; ValueError if nothing is left."""
        distance = eroding(distance, float(self._interior[-1]))
        return HalfSpaces(self.a, np.array(self.b) - safe_norms(np.array(self.a)) * distance)

    def describe(self) -> dict[str, Any]:
        """Name and parameters as JSON values."""
        return {"name": "HalfSpaces", "a": [list(row) for row in self.a], "b": list(self.b)}


def _programme(objective: np.ndarray, rows: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The x that minimises objective x under rows x <= offsets; ValueError where there is none."""
    from scipy.optimize import linprog

    unit = abs(offsets).max() or 1.0
    found = linprog(objective, rows, offsets / unit, bounds=(None, None))
    if found.status == 2:
        raise ValueError("a and b must leave an interior, but no point fulfils a w <= b")
    if found.status != 0:
        raise ValueError(f"a and b must bound a region, but the intersection is unbounded ({found.message})")
    return np.asarray(found.x) * unit


def _nearest_on_facets(x: np.ndarray, normals: np.ndarray, offsets: np.ndarray, excess: np.ndarray) -> np.ndarray:
    """The projection of one point: Lawson and Hanson's least distance programming finds the active facets, which are then solved for."""
    from scipy.optimize import nnls

    columns = np.vstack([-normals.T, excess / excess.max()])
    active = nnls(columns, np.eye(len(columns))[-1])[0] > 0
    for _ in range(2):
        x = x - np.linalg.lstsq(normals[active], normals[active] @ x - offsets[active])[0]
    return x
