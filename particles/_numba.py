"""Pair sums of the Riesz kernel on the CPU; the slow definition is `naive.pair_sum`.

In up to three dimensions a row of the matrix of pairs is summed in one pass that keeps everything in registers. In more, four rows meet
a tile of 256 columns in three passes that each vectorise: squared distances, weights, forces. No matrix of all pairs exists. Every row
is summed by one thread in a fixed order, so the number of threads cannot change a bit. float32 states are summed in float32 inside a
tile and in float64 across tiles. Differences everywhere: matrix products were no faster at 64 dimensions (8.8 against 9.0 ns a pair),
and 1.2 and 1.4 times at 128 and 256, before the near pairs that they lose are done again.

fastmath without `nnan` and `ninf`: tests for NaN and infinity survive.
"""

from __future__ import annotations

import functools
import math
import threading
import typing
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numba
import numpy as np
from numba import njit

from particles._powers import halves, log2, power

_FAST = {"reassoc", "contract", "nsz", "arcp", "afn"}
_JIT = {"cache": True, "error_model": "numpy", "fastmath": _FAST, "nogil": True}
_INLINE = {"error_model": "numpy", "fastmath": _FAST, "forceinline": True}
_TILE, _LONG_TILE = 256, 1024
_BLOCK = 16  # rows of one task; a multiple of 4
_SMALL = 1e6  # pair-dimensions below which starting threads costs more than it saves
_LN2 = math.log(2.0)
TINY = {kind.itemsize: float(np.finfo(kind).tiny) for kind in (np.dtype(np.float32), np.dtype(np.float64))}
_INVERSE, _ROOT, _QUARTER, _REAL = range(4)  # how the weight is computed
_FAST_PATHS = {0.0: (_INVERSE, 0), 2.0: (_INVERSE, 1), 4.0: (_INVERSE, 2), 1.0: (_ROOT, 0), 0.5: (_QUARTER, 0), 1.5: (_QUARTER, 1)}


@njit(**_INLINE)
@typing.no_type_check
def _weight(q, kind, kernel, one, half):
    """q^-(s/2 + 1); `more` factors beyond the smallest exponent of the kind."""
    _, more, high, low, _ = kernel
    if kind == _REAL:
        return power(q, high, low, one, half)
    if kind == _ROOT:
        root = one / math.sqrt(q)
        return root * root * root
    if kind == _QUARTER:
        root = one / math.sqrt(q)
        return root * root * math.sqrt(root) * (root if more else one)
    inverse = one / q
    return inverse * (inverse if more else one) * (inverse if more > 1 else one)


@njit(**_INLINE)
@typing.no_type_check
def _three_dimensions(x, y, i, start, stop, softening2, floor, kind, kernel, out):
    """Row i of points (3, particle) against a slice of the columns: out += force, energy, number of pairs skipped, (i, i) among them."""
    zero, one, half = x.dtype.type(0), x.dtype.type(1), x.dtype.type(0.5)  # a plain 0 would turn float32 into float64
    a, b, c = x[0, i], x[1, i], x[2, i]
    u, v, t = y[0, start:stop], y[1, start:stop], y[2, start:stop]
    f = g = h = energy = skipped = zero
    itself = np.uint32(i - start)  # beyond every column of another tile
    for j in range(u.size):
        p, q, r = a - u[j], b - v[j], c - t[j]
        square = p * p + q * q + r * r + softening2
        kept = square >= floor and np.uint32(j) != itself
        w = _weight(square, kind, kernel, one, half) if kept else zero
        f += w * p
        g += w * q
        h += w * r
        energy += w * square
        skipped += zero if kept else one
    out[0] += f
    out[1] += g
    out[2] += h
    out[3] += zero if kernel[4] else energy
    out[4] += skipped


@njit(**_JIT)
@typing.no_type_check
def _logs(x, y, i, start, stop, softening2, floor):
    """The sum of log2(q) over the same pairs, apart from the forces so that those do not depend on whether the energy is wanted."""
    zero, one = x.dtype.type(0), x.dtype.type(1)
    a, b, c = x[0, i], x[1, i], x[2, i]
    u, v, t = y[0, start:stop], y[1, start:stop], y[2, start:stop]
    total, itself = zero, np.uint32(i - start)
    for j in range(u.size):
        p, q, r = a - u[j], b - v[j], c - t[j]
        square = p * p + q * q + r * r + softening2
        total += log2(square, one) if square >= floor and np.uint32(j) != itself else zero
    return total


@njit(**_JIT)
@typing.no_type_check
def _rows(x, y, first, size, softening2, floor, kernel, out):
    """`_three_dimensions` for a block of rows and all columns: out (size, 5). Compiled once for each kind, chosen outside the loops."""
    n, kind = y.shape[1], kernel[0]
    for start in range(0, n, _LONG_TILE):
        stop = min(start + _LONG_TILE, n)
        if kind == _ROOT:
            for a in range(size):
                _three_dimensions(x, y, first + a, start, stop, softening2, floor, _ROOT, kernel, out[a])
        elif kind == _INVERSE:
            for a in range(size):
                _three_dimensions(x, y, first + a, start, stop, softening2, floor, _INVERSE, kernel, out[a])
        elif kind == _QUARTER:
            for a in range(size):
                _three_dimensions(x, y, first + a, start, stop, softening2, floor, _QUARTER, kernel, out[a])
        else:
            for a in range(size):
                _three_dimensions(x, y, first + a, start, stop, softening2, floor, _REAL, kernel, out[a])
        if kernel[4]:
            for a in range(size):
                out[a, 3] += _logs(x, y, first + a, start, stop, softening2, floor)


@njit(**_JIT)
@typing.no_type_check
def _distances(x, y, i, j, columns, softening2, p, q):
    """p = |x_i - y|^2 + softening2 over the columns and q the same for x_j; points as (dim, particle).

    Two rows and three dimensions a pass: with more, LLVM gives up on proving that the arrays do not overlap and does not vectorise.
    """
    p[:] = softening2
    q[:] = softening2
    dim = x.shape[0]
    for k in range(0, dim - 2, 3):
        a, b, c = x[k, i], x[k + 1, i], x[k + 2, i]
        d, e, f = x[k, j], x[k + 1, j], x[k + 2, j]
        u, v, t = y[k, columns], y[k + 1, columns], y[k + 2, columns]
        for m in range(p.size):
            p[m] += (a - u[m]) * (a - u[m]) + (b - v[m]) * (b - v[m]) + (c - t[m]) * (c - t[m])
            q[m] += (d - u[m]) * (d - u[m]) + (e - v[m]) * (e - v[m]) + (f - t[m]) * (f - t[m])
    for k in range(dim - dim % 3, dim):
        a, d, u = x[k, i], x[k, j], y[k, columns]
        for m in range(p.size):
            p[m] += (a - u[m]) * (a - u[m])
            q[m] += (d - u[m]) * (d - u[m])


@njit(**_JIT)
@typing.no_type_check
def _log_sum(q, floor):
    """The sum of log2(q) over the entries of at least floor."""
    zero, one = q.dtype.type(0), q.dtype.type(1)
    total = zero
    for j in range(q.size):
        total += log2(q[j], one) if q[j] >= floor else zero
    return total


@njit(**_INLINE)
@typing.no_type_check
def _weigh_one_kind(q, w, floor, kind, kernel):
    """w = q^-(s/2 + 1) over one row, 0 where q < floor; (energy, number skipped)."""
    zero, one, half = q.dtype.type(0), q.dtype.type(1), q.dtype.type(0.5)
    energy = skipped = zero
    for j in range(q.size):
        kept = q[j] >= floor
        w[j] = _weight(q[j], kind, kernel, one, half) if kept else zero
        energy += w[j] * q[j]
        skipped += zero if kept else one
    return energy, skipped


@njit(**_JIT)
@typing.no_type_check
def _weigh(q, w, floor, kernel):
    """`_weigh_one_kind`, compiled once for each kind."""
    kind = kernel[0]
    if kind == _ROOT:
        return _weigh_one_kind(q, w, floor, _ROOT, kernel)
    if kind == _INVERSE:
        energy, skipped = _weigh_one_kind(q, w, floor, _INVERSE, kernel)
        return _log_sum(q, floor) if kernel[4] else energy, skipped
    if kind == _QUARTER:
        return _weigh_one_kind(q, w, floor, _QUARTER, kernel)
    return _weigh_one_kind(q, w, floor, _REAL, kernel)


@njit(**_JIT)
@typing.no_type_check
def _forces(x, y, rows, columns, w, out):
    """out[a, k] += sum over the columns of w[a] (x_rows[a] - y)_k."""
    r0, r1, r2, r3 = rows
    size = columns.stop - columns.start
    w0, w1, w2, w3 = w[0, :size], w[1, :size], w[2, :size], w[3, :size]
    for k in range(x.shape[0]):
        a0, a1, a2, a3 = x[k, r0], x[k, r1], x[k, r2], x[k, r3]
        s0 = s1 = s2 = s3 = x.dtype.type(0)
        u = y[k, columns]
        for j in range(size):
            s0 += w0[j] * (a0 - u[j])
            s1 += w1[j] * (a1 - u[j])
            s2 += w2[j] * (a2 - u[j])
            s3 += w3[j] * (a3 - u[j])
        out[0, k] += s0
        out[1, k] += s1
        out[2, k] += s2
        out[3, k] += s3


@njit(**_JIT)
@typing.no_type_check
def _tiles(x, y, first, softening2, floor, kernel, out):
    """Four rows against all columns: out (4, dim + 2) = force, energy, number of pairs skipped, (i, i) among them."""
    dim, n = x.shape
    last = n - 1
    rows = (first, min(first + 1, last), min(first + 2, last), min(first + 3, last))
    q, w = np.empty((4, _TILE), x.dtype), np.empty((4, _TILE), x.dtype)
    for start in range(0, n, _TILE):
        size = min(_TILE, n - start)
        columns = slice(start, start + size)
        _distances(x, y, rows[0], rows[1], columns, softening2, q[0, :size], q[1, :size])
        _distances(x, y, rows[2], rows[3], columns, softening2, q[2, :size], q[3, :size])
        for a in range(4):
            if start <= rows[a] < start + size:
                q[a, rows[a] - start] = 0
            energy, skipped = _weigh(q[a, :size], w[a, :size], floor, kernel)
            out[a, dim] += energy
            out[a, dim + 1] += skipped
        _forces(x, y, rows, columns, w, out)


@njit(**_JIT)
@typing.no_type_check
def _blocks(first, last, x, y, softening2, floor, cost, kernel, energy, force):
    """Fill energy (chain, particle) and force with the sums over all other particles; a task is a block of rows of one chain.

    energy: sum of w q (of log2 q), and `cost` for each pair with q < floor. force: sum of w (x - y) over the others.
    """
    _, n, dim = force.shape
    per_chain = (n + _BLOCK - 1) // _BLOCK
    out = np.empty((_BLOCK, x.shape[1] + 2))
    for task in range(first, last):
        c = task // per_chain
        start = _BLOCK * (task - c * per_chain)
        size = min(_BLOCK, n - start)
        out[:] = 0
        if x.shape[1] == 3:
            _rows(x[c], y[c], start, size, softening2, floor, kernel, out)
        else:
            for a in range(0, size, 4):
                _tiles(x[c], y[c], start + a, softening2, floor, kernel, out[a : a + 4])
        for a in range(size):
            for k in range(dim):  # an assignment of slices would compile for two seconds: its error message
                force[c, start + a, k] = out[a, k]
            skipped = out[a, -1] - 1
            energy[c, start + a] = out[a, -2] + skipped * cost if skipped else out[a, -2]  # 0 * inf is NaN


def in_threads(tasks: int, work: float, function: Callable, *arguments: typing.Any, pool: ThreadPoolExecutor | None = None) -> None:
    """function(first, last, *arguments) for all tasks, in as many threads as numba may use if the work, in pair-dimensions, is not small.

    Python's threads: numba's take longer to compile than everything else, and neither survive a fork nor, everywhere, callers in threads.
    """
    alone = work < _SMALL or tasks < 2 or numba.get_num_threads() == 1
    if alone or not threading.main_thread().is_alive():  # at its exit Python opens no more pools
        function(0, tasks, *arguments)
    elif pool is None:
        with ThreadPoolExecutor(numba.get_num_threads()) as new:
            in_threads(tasks, work, function, *arguments, pool=new)
    else:
        parts = min(tasks, 4 * numba.get_num_threads())  # some to spare, as they differ in length
        list(pool.map(lambda part: function(*part, *arguments), pairwise(tasks * i // parts for i in range(parts + 1))))


@njit(**_JIT)
@typing.no_type_check
def _gaps(x, y, coincident, closest):
    """Per chain: pairs (k < l) with |x_k - y_l|^2 below tiny, and the smallest |x_k - y_l|^2."""
    p, q = np.empty(_TILE, x.dtype), np.empty(_TILE, x.dtype)
    tiny = np.finfo(x.dtype).tiny
    for c in range(x.shape[0]):
        for i in range(x.shape[2]):
            for start in range(0, i, _TILE):
                size = min(_TILE, i - start)
                _distances(x[c], y[c], i, i, slice(start, start + size), x.dtype.type(0), p[:size], q[:size])
                for j in range(size):
                    coincident[c] += p[j] < tiny
                    closest[c] = min(closest[c], p[j])


def _planes(points: np.ndarray) -> np.ndarray:
    """A copy as (chain, dim, particle); up to three dimensions are filled up to three with zeros."""
    chains, n, dim = points.shape
    planes = np.zeros((chains, max(3, dim), n), points.dtype)
    planes[:, :dim] = points.swapaxes(1, 2)
    return planes


def pair_sums(x: np.ndarray, y: np.ndarray, s: float, softening2: float, floor2: float, *, energy: bool) -> tuple[np.ndarray, np.ndarray]:
    """(sum_{i != j} g_s (chain,), sum_{j != i} q^(-s/2 - 1) (x_i - y_j) (chain, particle, dim)).

    q = |x_i - y_j|^2 + softening2; x, y (chain, particle, dim) float32 or float64. Pairs with q < floor2 have the energy of floor2 and no
    force. The first result may be anything unless `energy`.
    """
    chains, n, dim = x.shape
    real, floor = x.dtype.type, max(floor2, TINY[x.dtype.itemsize])
    unit, kernel = kernel_of(s, x.dtype, energy)
    rows, force, planes = np.empty((chains, n)), np.empty((chains, n, dim), x.dtype), _planes(x)
    others = planes if y is x else _planes(y)
    arguments = planes, others, real(softening2), real(floor), potential(floor2, s) / unit, kernel, rows, force
    in_threads(chains * -(-n // _BLOCK), chains * n * n * dim, _blocks, *arguments)
    return rows.sum(1) * unit if energy else rows[:, 0], force


@functools.lru_cache(256)
def kernel_of(s: float, dtype: np.dtype, energy: bool) -> tuple[float, tuple]:
    """(unit, kernel): what `_weigh` takes, and what its energies are to be multiplied by."""
    unit = -0.5 * _LN2 if s == 0 else math.copysign(1.0, s)
    return unit, (*_FAST_PATHS.get(s, (_REAL, 0)), *halves(-0.5 * s - 1, dtype), s == 0 and energy)


def potential(square: float, s: float) -> float:
    """g_s at a squared distance."""
    if s < 0:
        return -(square ** (-s / 2))
    if square == 0:
        return math.inf
    return square ** (-s / 2) if s else -0.5 * math.log(square)


def pair_gaps(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(number of coincident pairs, smallest |x_k - y_l|) per chain, over k < l."""
    coincident, closest = np.zeros(len(x), np.int64), np.full(len(x), np.inf)
    planes = _planes(x)
    _gaps(planes, planes if y is x else _planes(y), coincident, closest)
    return coincident, np.sqrt(closest)


minimum = np.minimum
