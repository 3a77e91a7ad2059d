"""Sums of the Riesz kernel over pairs of particles: the one place that chooses an algorithm and a back end.

g_s(w) = |w|^-s (s > 0), -log |w| (s = 0), -|w|^|s| (-2 < s < 0), of (|w|^2 + softening^2)^(1/2) / length
(Coulomb paper, section 2 and supplement).
Coincident particles of a bare kernel: energy +inf when s >= 0, no force.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float, Num

from particles import _numba
from particles.arrays import Array, is_torch, namespace
from particles.random import Key

METHODS = ("auto", "direct", "tree", "fmm", "random_batch")
_LARGEST = {2: 6e4, 4: float(np.finfo(np.float32).max), 8: float(np.finfo(np.float64).max)}  # by bytes
_TREE_GAPS = 250  # particles per coordinate from which a tree finds the smallest gap faster than the direct form; measured for 1 to 6
Sums = tuple[Array, Array]


def riesz_sums(
    omega: Float[Array, "*chain particle dim"],
    s: float,
    *,
    softening: float = 0.0,
    length: float = 1.0,
    mirror: bool = False,
    truncation: float | None = None,
    period: float | tuple[float, ...] | None = None,
    method: str = "direct",
    tolerance: float = 0.0,
    key: Key | None = None,
    energy: bool = True,
) -> tuple[Float[Array, "*chain"], Float[Array, "*chain particle dim"]]:
    """(sum_{k != l} g_s(omega_k - omega_l) in float64, sum_{l != k} grad g_s(omega_k - omega_l)).

    omega (particle, dim) or (chain, particle, dim); the sums have its leading shape and its shape. The other arguments are those of
    `particles.Riesz`; `key` is that of a random batch. The first sum is 0 unless `energy`.

    Raises
    ------
    ValueError
        If omega holds NaN, or the method cannot do these sums.
    OverflowError
        If distances or forces exceed the range of omega's dtype.
    """
    stacked = omega if omega.ndim == 3 else omega[None]
    points = stacked if length == 1 else stacked / length
    _check_spread(points)
    radius = None if period is None else circle_radius(period, omega) / length
    method = choose(method, omega, s, tolerance, truncation=truncation, period=period)
    softening2 = _square("softening", softening / length, omega.dtype.itemsize)
    pair_sums = _summation(method, s, softening2, _square("truncation", (truncation or 0.0) / length, 8), tolerance, key, energy)
    total, gradient = _with_images(points, pair_sums, s, mirror, radius)
    gradient *= -(abs(s) or 1.0) / length
    if not _size_below(gradient, math.inf):
        raise OverflowError(
            f"the Riesz force with s = {s} exceeds the range of {omega.dtype}; use softening, a length near the gap, or float64"
        )
    return (total, gradient) if omega.ndim == 3 else (total[0], gradient[0])


def choose(method: str, omega: Array, s: float, tolerance: float, *, truncation: float | None = None, period: Any = None) -> str:
    """The algorithm for omega: "auto" stands for direct sums unless another one is faster and errs by at most `tolerance`.

    Raises ValueError where a method was asked for that does not serve so many coordinates (of which a torus has two per dimension).
    """
    n, n_coordinates = omega.shape[-2], omega.shape[-1] * (1 if period is None else 2)
    elsewhere = is_torch(omega) and omega.device.type != "cpu"
    if method == "direct" or (method == "auto" and (tolerance == 0 or truncation or n_coordinates > 3 or elsewhere)):
        return "direct"
    if n_coordinates > 3:
        raise ValueError(f"method {method!r} needs at most 3 coordinates (dim, or 2 dim with a period), got {n_coordinates}")
    if method == "fmm" and n_coordinates != 3:
        raise ValueError(f"method 'fmm' needs 3 coordinates, got {n_coordinates}")
    if method != "auto":
        return method
    from particles.fast_sum import worthwhile

    single = omega.dtype.itemsize == 4 and period is None  # the sums on a torus are in float64
    return "tree" if worthwhile(n, n_coordinates, s, tolerance, single=single) else "direct"


def _summation(
    method: str, s: float, softening2: float, floor2: float, tolerance: float, key: Key | None, energy: bool
) -> Callable[[Array, Array], Sums]:
    """(x, y) -> (sum_{i != j} g_s (chain,), sum_{j != i} q^(-s/2 - 1) (x_i - y_j)) by the method."""
    if method == "direct":
        return lambda x, y: _backend(x).pair_sums(x, y, s, softening2, floor2, energy=energy)
    from particles import fast_sum

    if method == "random_batch":
        if key is None:
            raise ValueError("key must be given for method='random_batch', got None")
        seed, chain, step = key
        return _chain_by_chain(lambda c, x, y: fast_sum.random_batch_sums(x, y, s, softening2, key=(seed, chain + c, step), energy=energy))
    function = {"tree": fast_sum.tree_sums, "fmm": fast_sum.fmm_sums}[method]
    return _chain_by_chain(lambda c, x, y: function(x, y, s, softening2, tolerance=tolerance, energy=energy))


def _chain_by_chain(one: Callable[[int, np.ndarray, np.ndarray], tuple[float, np.ndarray]]) -> Callable[[Array, Array], Sums]:
    """A sum over one chain of float64 points as a sum over stacked chains of any kind."""

    def all_chains(x: Array, y: Array) -> Sums:
        xs, ys = (np.asarray(a.cpu() if is_torch(a) else a, np.float64) for a in (x, y))
        results = [one(c, *pair) for c, pair in enumerate(zip(xs, ys, strict=True))]
        total, force = np.array([r[0] for r in results]), np.stack([r[1] for r in results])
        if not is_torch(x):
            return total, force.astype(x.dtype)
        torch = namespace(x)
        return torch.as_tensor(total, device=x.device), torch.as_tensor(force, dtype=x.dtype, device=x.device)

    return all_chains


def _with_images(points: Array, pair_sums: Callable[[Array, Array], Sums], s: float, mirror: bool, radius: Array | None) -> Sums:
    """`pair_sums` over the points and, with `mirror`, over the points and their images; torch can differentiate the total once."""

    def sums(x: Array) -> Sums:
        x = x if radius is None else on_circles(x, radius)
        total, force = pair_sums(x, x)
        if mirror:
            more, mirrored = pair_sums(x, _images(x, radius))
            total, force = total + more, force + mirrored
        return total, force if radius is None else _pull_back(force, x, radius, points.dtype)

    return _backend(points).differentiable(points, sums, s) if is_torch(points) else sums(points)


def _images(points: Array, radius: Array | None) -> Array:
    """-points; on circles the angles change their sign."""
    if radius is None:
        return -points
    dim = points.shape[-1] // 2
    return namespace(points).concatenate([points[..., :dim], -points[..., dim:]], -1)


def circle_radius(period: float | tuple[float, ...], omega: Array) -> Array:
    """period / 2 pi per coordinate in float64, where omega is; ValueError where the numbers of coordinates differ."""
    dim, xp = omega.shape[-1], namespace(omega)
    if np.ndim(period) and np.size(period) != dim:
        raise ValueError(f"period must have {dim} numbers for omega of shape {tuple(omega.shape)}, got {period!r}")
    radius = np.broadcast_to(np.asarray(period, float) / (2 * math.pi), (dim,))
    return radius if xp is np else xp.as_tensor(radius.copy(), device=omega.device)


def on_circles(points: Array, radius: Array) -> Array:
    """The flat torus in 2 dim coordinates: radius (cos, sin)(points / radius). Distances there are chords.

    In float64 always: rounded to float32, the differences of near pairs would lose their digits.
    """
    xp = namespace(points)
    angle = points % (2 * math.pi * radius) / radius  # first the remainder: a shift by periods changes no digit of it
    return xp.concatenate([radius * xp.cos(angle), radius * xp.sin(angle)], -1)


def _pull_back(force: Array, points: Array, radius: Array, dtype: Any) -> Array:
    """A force in the 2 dim coordinates as one along the circles, of a dtype."""
    dim = points.shape[-1] // 2
    along = (force[..., dim:] * points[..., :dim] - force[..., :dim] * points[..., dim:]) / radius
    with np.errstate(over="ignore"):  # infinity is found and named by the caller
        return along.to(dtype) if is_torch(along) else along.astype(dtype)


def gaps(
    omega: Float[Array, "*chain particle dim"], *, mirror: bool = False, period: float | tuple[float, ...] | None = None
) -> tuple[Num[Array, "*chain"], Num[Array, "*chain"]]:
    """(number of coincident pairs, smallest distance of a pair) of omega's leading shape; with `mirror` also of omega_k and -omega_l.

    Pairs whose squared distance is below the smallest normal number count as coincident. One particle alone has distance infinity.
    With a `period` distances are chords, as in the potential.
    """
    stacked, radius = (omega if omega.ndim == 3 else omega[None]), None
    stacked = stacked.detach() if is_torch(stacked) else stacked
    if period is not None:
        radius = circle_radius(period, omega)
        stacked = on_circles(stacked, radius)
    coincident, gap = _pair_gaps(stacked, stacked)
    if mirror:
        more, mirrored = _pair_gaps(stacked, _images(stacked, radius), gap)
        coincident, gap = coincident + more, _backend(omega).minimum(gap, mirrored)
    return (coincident, gap) if omega.ndim == 3 else (coincident[0], gap[0])


def _pair_gaps(x: Array, y: Array, bounds: Array | None = None) -> tuple[Array, Array]:
    """(coincident pairs, smallest distance) of each chain over k < l, by a tree where that is faster; it may skip gaps above `bounds`."""
    n, n_coordinates = x.shape[-2:]
    host = not is_torch(x) or x.device.type == "cpu"
    if not host or n_coordinates > 6 or n < _TREE_GAPS * n_coordinates or not _size_below(x, _most(x)):
        return _backend(x).pair_gaps(x, y)
    limits = np.full(len(x), math.inf) if bounds is None else np.asarray(bounds)
    tiny = _numba.TINY[x.dtype.itemsize]
    found = [_tree_gaps(*chain, tiny) for chain in zip(np.asarray(x), np.asarray(y), limits, strict=True)]
    coincident, gap = (np.array(values) for values in zip(*found))
    return (namespace(x).from_numpy(coincident), namespace(x).from_numpy(gap)) if is_torch(x) else (coincident, gap)


def _tree_gaps(x: np.ndarray, y: np.ndarray, bound: float, tiny: float) -> tuple[int, float]:
    """`_pair_gaps` of one chain; pairs (k, k) are left out, and (k, l) is as far as (l, k)."""
    from scipy.spatial import cKDTree

    tree, own = cKDTree(y), ((x - y) ** 2).sum(-1) < tiny
    pairs = cKDTree(x).count_neighbors(tree, np.nextafter(tiny**0.5, 0)) - own.sum()
    distance, partner = map(np.asarray, tree.query(x, k=2, distance_upper_bound=bound))  # two, as the nearest may be its own
    return int(pairs) // 2, float(distance[partner != np.arange(len(x))[:, None]].min())


def _square(name: str, value: float, itemsize: int) -> float:
    """value^2; ValueError where it is not a normal number of that many bytes, unless value is 0."""
    smallest, largest = _numba.TINY[itemsize] ** 0.5, _LARGEST[itemsize] ** 0.5
    if value and not smallest <= value <= largest:
        raise ValueError(f"{name} / length must lie between {smallest:.1g} and {largest:.1g} or be 0, got {value:.3g}")
    return value * value


def _check_spread(points: Array) -> None:
    """Squared distances must be representable."""
    if not _size_below(points, _most(points)):
        largest = float(abs(points.detach() if is_torch(points) else points).max())
        if np.isnan(largest):
            raise ValueError("omega must be finite, got NaN")
        raise OverflowError(f"omega is too large for squared distances in {points.dtype}: largest |omega| / length is {largest:.3g}")


def _most(points: Array) -> float:
    """The size of coordinates below which squared distances are representable."""
    return float(_LARGEST[points.dtype.itemsize] / (16 * points.shape[-1])) ** 0.5


def _size_below(array: Array, limit: float) -> bool:
    """Whether all entries are smaller in size; NaN is not. For few entries the sum of squares decides mostly, which is cheaper."""
    if is_torch(array):
        return bool(abs(array.detach()).max() < limit)
    few = array.size <= 8192  # for more, BLAS would start threads
    return bool((few and np.vdot(array, array) < limit * limit) or abs(array).max() < limit)


def _backend(omega: Array) -> Any:
    if is_torch(omega):
        from particles import _torch

        return _torch
    return _numba
