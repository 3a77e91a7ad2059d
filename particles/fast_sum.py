"""Sums of the Riesz kernel over pairs in less than quadratic time, for points in 1, 2 or 3 dimensions.

The functions return what `particles._numba.pair_sums`, their slow twin, returns for one chain:
(sum_{i != j} g_s, sum_{j != i} q^(-s/2 - 1) (x_i - y_j)) with q = |x_i - y_j|^2 + softening2 and y = x or an image of x.
`tree_sums` serves every exponent (particles/_tree.py), `fmm_sums` calls FMM3D for s = 1 in three dimensions, `random_batch_sums` is
unbiased noise. Coincident pairs of a bare kernel: energy inf when s >= 0, no force.
"""

from __future__ import annotations

import functools
import math
import subprocess
import sys
import typing
import warnings

import numpy as np
from jaxtyping import Float
from numba import njit

from particles import _tree
from particles._numba import _INVERSE, _JIT, _REAL, _weigh, in_threads, kernel_of
from particles._powers import log2
from particles.arrays import as_float, count, positive, real
from particles.random import RANDOM_BATCH, Key, uniform

Points = Float[np.ndarray, "particle dim"]
Sums = tuple[float, Points]
_NEIGHBOURS = 16  # nearest partners that a random batch meets exactly
_MOST_NODES = 2200  # of a cell: 13 per dimension in 3; its matrices then take 300 MB


def tree_sums(x: Points, y: Points, s: float, softening2: float = 0.0, *, tolerance: float, energy: bool = True) -> Sums:
    """Sums whose force errs by about `tolerance` at most: root mean square over the particles, relative to that of the force.

    The number of interpolation nodes is calibrated on uniform, clustered and collapsed clouds of 4000 particles, -1 <= s <= pi and
    tolerances of 1e-2 to 1e-8 (largest error: 0.7 of the tolerance); it is no bound for clouds whose forces cancel. The energy errs less.
    Memory is linear in the number of particles; the number of threads changes no bit.

    Raises
    ------
    ValueError
        For NaN or infinity in x or y, more than 3 dimensions, s of -2 or less, a negative softening2, a tolerance outside (0, 1), or one so
    small (for an s so large) that the matrices would be larger than direct sums are slow.
    """
    x, y = _points(x, y)
    _check_law(s, softening2)
    _check_tolerance(tolerance)
    degree = _degree(s, tolerance)
    if degree ** x.shape[1] > _MOST_NODES:
        raise ValueError(f"tolerance must be larger, or the sums direct, for s = {s} in {x.shape[1]} dimensions, got {tolerance!r}")
    return _by_tree(x, y, float(s), float(softening2), degree, energy)


def _check_law(s: float, softening2: float) -> None:
    if real(s, "s") <= -2:
        raise ValueError(f"s must be above -2, got {s!r}")
    positive(softening2, "softening2", zero=True)


def _check_tolerance(tolerance: float) -> None:
    if positive(tolerance, "tolerance") >= 1:
        raise ValueError(f"tolerance must lie in (0, 1), got {tolerance!r}")


def _points(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x and y in float64, one object if they are equal; ValueError unless they are finite and of up to 3 dimensions."""
    same = x is y or np.array_equal(x, y)
    x = np.asarray(as_float(x, "x"), np.float64)
    y = x if same else np.asarray(as_float(y, "y"), np.float64)
    if x.ndim != 2 or not 1 <= x.shape[1] <= 3 or x.shape != y.shape or len(x) == 0:
        raise ValueError(f"x and y must have one shape (particle, dim) with dim 1, 2 or 3, got {x.shape} and {y.shape}")
    return x, y


def _degree(s: float, tolerance: float) -> int:
    """Interpolation nodes per dimension: the error falls by 3 + sqrt 8 with each (a gap of one cell); its size was measured."""
    return max(2, math.ceil((math.log(2 / tolerance) + 0.9 * max(s - 1, 0)) / math.log(3 + math.sqrt(8))))


def _leaf_size(n_nodes: int) -> int:
    """Particles per leaf that balance near and far work."""
    return max(64, 2 * n_nodes)


def _by_tree(x: np.ndarray, y: np.ndarray, s: float, softening2: float, degree: int, energy: bool) -> Sums:
    """The sums with `degree` nodes per dimension."""
    dim = x.shape[1]
    low = np.minimum(x.min(0), y.min(0))
    width = float((np.maximum(x.max(0), y.max(0)) - low).max())
    width = width if width > 1e-250 else 1.0  # one point: any cell holds it
    leaf_size = _leaf_size(degree**dim)
    target = _tree.build(x, low, width, leaf_size)
    source = target if y is x else _tree.build(y, low, width, leaf_size)
    total, sorted_force, apart = _tree.sums(target, source, degree, _law(s, softening2, energy))
    force = np.empty_like(x)
    force[target.order] = sorted_force[:, :dim]
    total, force = _without_own(x, y, s, softening2, target.order[apart], total, force)
    return (total if energy else 0.0), force


def _law(s: float, softening2: float, energy: bool) -> _tree.Law:
    unit, kernel = kernel_of(float(s), np.dtype(np.float64), energy)
    return _tree.Law(float(s), float(softening2), unit, kernel)


def _without_own(x: np.ndarray, y: np.ndarray, s: float, softening2: float, rows: np.ndarray, total: float, force: np.ndarray) -> Sums:
    """Take the pairs (i, i) of some rows out of the sums."""
    gap = x[rows] - y[rows]
    q = (gap**2).sum(1) + softening2
    force[rows] -= q[:, None] ** (-0.5 * s - 1) * gap
    own = -0.5 * np.log(q) if s == 0 else math.copysign(1.0, s) * q ** (-0.5 * s)
    return total - float(own.sum()), force


def fmm_sums(x: Points, y: Points, s: float = 1.0, softening2: float = 0.0, *, tolerance: float, energy: bool = True) -> Sums:
    """The sums for s = 1 in three dimensions by the fast multipole method of FMM3D (Cheng, Greengard and Rokhlin 1999; `fmm3dpy`).

    Falls back on `tree_sums` with a UserWarning where fmm3dpy does not work (tried once, in a process of its own), and without one where
    two points are nearer than FMM3D distinguishes (2^-48 of the cloud's width), coincident ones among them.

    Raises
    ------
    ValueError
        For another s, softening or dim, and as `tree_sums`.
    """
    x, y = _points(x, y)
    if s != 1 or softening2 != 0 or x.shape[1] != 3:
        raise ValueError(f"s, softening2 and dim must be 1, 0 and 3 for FMM3D, got {s!r}, {softening2!r} and {x.shape[1]}")
    _check_tolerance(tolerance)
    reason = _fmm_fails()
    if reason:
        warnings.warn(f"fmm3dpy does not work ({reason}); the tree sums instead", UserWarning, stacklevel=2)
    if reason or _closest(x, y) <= 2.0**-48 * float(np.ptp(np.concatenate([x, y]), axis=0).max()):
        return tree_sums(x, y, s, tolerance=tolerance, energy=energy)
    import fmm3dpy

    ones, sources = np.full(len(x), 4 * math.pi), np.asfortranarray(y.T)
    if y is x:
        out = fmm3dpy.lfmm3d(eps=tolerance, sources=sources, charges=ones, pg=2)
        return (float(out.pot.sum()) if energy else 0.0), -np.ascontiguousarray(out.grad.T)
    out = fmm3dpy.lfmm3d(eps=tolerance, sources=sources, charges=ones, targets=np.asfortranarray(x.T), pgt=2)
    force = -np.ascontiguousarray(out.gradtarg.T)
    total, force = _without_own(x, y, s, 0.0, np.flatnonzero((x != y).any(1)), float(out.pottarg.sum()), force)
    return (total if energy else 0.0), force


_TRIAL = """
import numpy, fmm3dpy
x = numpy.random.default_rng(0).normal(size=(3, 400))
out = fmm3dpy.lfmm3d(eps=1e-6, sources=x, charges=numpy.ones(400), pg=2)
r = numpy.linalg.norm(x[:, :, None] - x[:, None, :], axis=0) + numpy.diag(numpy.full(400, numpy.inf))
assert numpy.allclose(4 * numpy.pi * out.pot, (1 / r).sum(1), rtol=1e-4)
"""


@functools.cache
def _fmm_fails() -> str:
    """Why fmm3dpy cannot be used, "" if it can. A bad build may end the process that imports it, so that another one tries."""
    try:
        done = subprocess.run([sys.executable, "-c", _TRIAL], capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{type(error).__name__}: {error}"
    lines = done.stderr.strip().splitlines() or [""]
    return f"exit code {done.returncode}, {lines[-1]}" if done.returncode else ""


def _closest(x: np.ndarray, y: np.ndarray) -> float:
    """The smallest |x_i - y_j|, j != i; inf for one particle."""
    distance, partner = _nearest(x, y, 2)
    return float(distance[partner != np.arange(len(x))[:, None]].min(initial=math.inf))


def _nearest(x: np.ndarray, y: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Distances and indices (particle, number) of the points of y nearest to each of x, its own image among them."""
    from scipy.spatial import cKDTree

    distance, partner = cKDTree(y).query(x, k=min(number, len(x)))
    return np.asarray(distance).reshape(len(x), -1), np.asarray(partner).reshape(len(x), -1)


def random_batch_sums(x: Points, y: Points, s: float, softening2: float = 0.0, *, batch: int = 32, key: Key, energy: bool = True) -> Sums:
    """Unbiased random estimates of the sums: the 16 nearest partners of each particle exactly, the others through `batch` random ones.

    The nearest pairs carry nearly all of the variance of a plain random batch (Jin, Li and Liu, "Random batch methods for interacting
    particle systems", J. Comput. Phys. 400, 2020), infinite for a singular kernel; hence the splitting (as in Jin, Li, Xu and Zhao, SIAM J.
    Sci. Comput. 43, 2021). A particle's partners are drawn anew for each `key`, from a stream of their own.

    Raises
    ------
    ValueError
        As `tree_sums`, and for a batch below 1.
    """
    x, y = _points(x, y)
    _check_law(s, softening2)
    n, batch = len(x), count(batch, "batch")
    near = _nearest(x, y, _NEIGHBOURS + 1)[1]
    draws = np.asarray(uniform(key, n * batch, stream=RANDOM_BATCH)).reshape(n, batch)
    total, coincident, force = np.zeros(n), np.zeros(n, np.bool_), np.empty_like(x)
    law = _law(s, softening2, energy)
    in_threads(n, 3 * n * (batch + _NEIGHBOURS), _random_batch, x, y, near, draws, law, total, coincident, force)
    if not energy:
        return 0.0, force
    return (math.inf if s >= 0 and coincident.any() else law.unit * float(total.sum())), force


@njit(**_JIT)
@typing.no_type_check
def _partners(near, draws, i, n, partner, factor):
    """Fill partner and factor of row i: its nearest points count 1, random ones (n - 1) / batch, unless they are among the nearest."""
    for a in range(near.size):
        partner[a], factor[a] = near[a], 0 if near[a] == i else 1
    for b in range(draws.size):
        j = min(int(draws[b] * (n - 1)), n - 2)
        j += j >= i
        partner[near.size + b] = j
        factor[near.size + b] = (n - 1) / draws.size
        for a in range(near.size):
            if near[a] == j:
                factor[near.size + b] = 0


@njit(**_JIT)
@typing.no_type_check
def _one_particle(x, y, i, near, draws, law, force):
    """(energy in the units of `_law`, whether a partner coincides) of particle i, and its force."""
    size, tiny = near.size + draws.size, np.finfo(np.float64).tiny
    partner, factor, q, w = np.empty(size, np.int64), np.empty(size), np.full(size, law.softening2), np.empty(size)
    _partners(near, draws, i, x.shape[0], partner, factor)
    for a in range(size):
        for k in range(x.shape[1]):
            q[a] += (x[i, k] - y[partner[a], k]) * (x[i, k] - y[partner[a], k])
    _weigh(q, w, tiny, law.kernel)
    force[:] = 0
    total, coincident = 0.0, False
    for a in range(size):
        if factor[a] > 0:
            coincident |= q[a] < tiny
            if q[a] >= tiny:
                total += factor[a] * (log2(q[a], 1.0) if law.kernel[4] else w[a] * q[a])
            for k in range(x.shape[1]):
                force[k] += factor[a] * w[a] * (x[i, k] - y[partner[a], k])
    return total, coincident


@njit(**_JIT)
@typing.no_type_check
def _random_batch(first, last, x, y, near, draws, law, total, coincident, force):
    for i in range(first, last):
        total[i], coincident[i] = _one_particle(x, y, i, near[i], draws[i], law, force[i])


def worthwhile(n: int, dim: int, s: float, tolerance: float, *, single: bool = False) -> bool:
    """Whether the tree takes less time than direct sums over n particles (in float32 if `single`) at this tolerance.

    Measured on the worst of the three clouds of `tree_sums`, -1 <= s <= pi, and moved up by 1.4 as a third to a half of the tree's work
    is not shared among threads; on a uniform cloud one thread is then 2 to 3 times faster. Direct sums of logarithms and even powers cost
    half of those with a square root, general powers twice as much, all in float32 0.4 times. FMM3D was slower than the tree everywhere.
    """
    if not 1 <= dim <= 3 or not 0 < tolerance < 1:
        return False
    kind = kernel_of(float(s), np.dtype(np.float64), False)[1][0]
    nodes = _degree(s, tolerance) ** dim
    same = 2400 if dim == 1 else 4000 + (16 if dim == 2 else 80) * nodes
    return nodes <= _MOST_NODES and n > same * {_INVERSE: 2, _REAL: 0.5}.get(kind, 1) * (2.5 if single else 1)
