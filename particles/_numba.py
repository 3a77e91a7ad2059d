"""Pair sums of the Riesz kernel on the CPU; the slow definition is `naive.pair_sum`.

Four rows meet a tile of 256 columns at a time, in three passes that each vectorise: squared distances, weights, forces. No matrix of
all pairs exists. Every row is summed by one thread in a fixed order, so the number of threads cannot change a bit. float32 states are
summed in float32 inside a tile and in float64 across tiles.

fastmath without `nnan` and `ninf`: tests for NaN and infinity survive.
"""

from __future__ import annotations

import math
import typing

import numba
import numpy as np
from numba import njit, prange

_FAST = {"reassoc", "contract", "nsz", "arcp", "afn"}
_JIT = {"cache": True, "error_model": "numpy", "fastmath": _FAST, "nogil": True}
_TILE = 256
_SMALL = 3e5  # pair-dimensions below which starting threads costs more than it saves
_MANTISSA, _ONE, _BITS = np.int64(0x000FFFFFFFFFFFFF), np.int64(0x3FF0000000000000), np.int64(52)


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
def _weights(q, w, base, power, floor):
    """w = q^-power over one row; 0 where q < floor: a particle and itself, coincident pairs, pairs inside the truncation."""
    quarters, zero, one = round(4 * power), q.dtype.type(0), q.dtype.type(1)  # a plain 0 would turn float32 into float64
    chain = quarters == 4 * power and quarters <= 256  # a multiple of a quarter: square roots and squarings
    if chain and quarters == 6:  # s = 1
        for j in range(q.size):
            inverse = one / q[j] if q[j] >= floor else zero
            w[j] = inverse * math.sqrt(inverse)
        return
    for j in range(q.size):
        w[j] = one / q[j] if q[j] >= floor else zero
    if chain and quarters == 4:  # s = 0
        return
    if not chain:
        for j in range(q.size):
            w[j] = w[j] ** power
        return
    for j in range(q.size):
        root = math.sqrt(w[j])
        base[j] = w[j]
        w[j] = (root if quarters & 2 else one) * (math.sqrt(root) if quarters & 1 else one)
    exponent = quarters >> 2
    while exponent:
        if exponent & 1:
            for j in range(q.size):
                w[j] *= base[j]
        exponent >>= 1
        if exponent:
            for j in range(q.size):
                base[j] *= base[j]


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
def _sum_log(q, floor, values, bits):
    """(sum of log q, number skipped) over the entries of a row that are at least floor.

    One logarithm for the row: the exponents are added as integers, the mantissas multiplied (below 2^256). `bits` is `values` as int64.
    """
    skipped, exponent, product = 0, 0, 1.0
    for j in range(q.size):
        skipped += q[j] < floor
        values[j] = q[j] if q[j] >= floor else 1.0
    for j in range(q.size):
        exponent += (bits[j] >> _BITS) - 1023
        bits[j] = (bits[j] & _MANTISSA) | _ONE
    for j in range(q.size):
        product *= values[j]
    return math.log(product) + exponent * math.log(2.0), skipped


@njit(**_JIT)
@typing.no_type_check
def _energy(q, w, s, floor, values, bits):
    """(sum of g_s over one row, number of entries skipped) from q and w = q^(-s/2 - 1)."""
    if s == 0:
        total, skipped = _sum_log(q, floor, values, bits)
        return -0.5 * total, skipped
    total, skipped = q.dtype.type(0), 0
    for j in range(q.size):
        total += w[j] * q[j]
        skipped += q[j] < floor
    return float(total) * (1.0 if s > 0 else -1.0), skipped


@njit(**_JIT)
@typing.no_type_check
def _four_rows(x, y, first, s, softening2, floor, cost, want_energy, energy, force):
    """Fill energy[first:first+4] and force[first:first+4] with the sums over all other particles.

    energy: sum of g_s, `cost` for each pair with q < floor. force: sum of w (x - y) over the others. Pair (i, i) is skipped.
    """
    dim, n = x.shape
    last = n - 1
    rows = (first, min(first + 1, last), min(first + 2, last), min(first + 3, last))
    q, w, base = np.empty((4, _TILE), x.dtype), np.empty((4, _TILE), x.dtype), np.empty(_TILE, x.dtype)
    values = np.empty(_TILE)
    bits = values.view(np.int64)
    power = x.dtype.type(0.5 * s + 1)
    total, skipped, out = np.zeros(4), np.zeros(4, np.int64), np.zeros((4, dim))
    for start in range(0, n, _TILE):
        size = min(_TILE, n - start)
        columns = slice(start, start + size)
        _distances(x, y, rows[0], rows[1], columns, softening2, q[0, :size], q[1, :size])
        _distances(x, y, rows[2], rows[3], columns, softening2, q[2, :size], q[3, :size])
        for a in range(4):
            if start <= rows[a] < start + size:
                q[a, rows[a] - start] = 0
            _weights(q[a, :size], w[a, :size], base, power, floor)
            if want_energy:
                part, zeros = _energy(q[a, :size], w[a, :size], s, floor, values, bits)
                total[a] += part
                skipped[a] += zeros
        _forces(x, y, rows, columns, w, out)
    for a in range(min(4, n - first)):
        force[first + a] = out[a]
        energy[first + a] = total[a] + (skipped[a] - 1) * cost if skipped[a] > 1 else total[a]  # 0 * inf is NaN


@njit(**_JIT)
@typing.no_type_check
def _serial(x, y, s, softening2, floor, cost, want_energy, energy, force):
    for c in range(x.shape[0]):
        for first in range(0, x.shape[2], 4):
            _four_rows(x[c], y[c], first, s, softening2, floor, cost, want_energy, energy[c], force[c])


@njit(parallel=True, **_JIT)
@typing.no_type_check
def _parallel(x, y, s, softening2, floor, cost, want_energy, energy, force):
    blocks = (x.shape[2] + 3) // 4
    for task in prange(x.shape[0] * blocks):
        c = task // blocks
        _four_rows(x[c], y[c], 4 * (task - c * blocks), s, softening2, floor, cost, want_energy, energy[c], force[c])


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
    return np.ascontiguousarray(points.swapaxes(-1, -2))


def pair_sums(x: np.ndarray, y: np.ndarray, s: float, softening2: float, floor2: float, *, energy: bool) -> tuple[np.ndarray, np.ndarray]:
    """(sum_{i != j} g_s (chain,), sum_{j != i} q^(-s/2 - 1) (x_i - y_j) (chain, particle, dim)).

    q = |x_i - y_j|^2 + softening2; x, y (chain, particle, dim) float32 or float64. Pairs with q < floor2 have the energy of floor2 and no
    force. The first result is zero unless `energy`.
    """
    chains, n, dim = x.shape
    rows, force = np.zeros((chains, n)), np.empty((chains, n, dim), x.dtype)
    run = _serial if chains * n * n * dim < _SMALL or numba.get_num_threads() == 1 else _parallel
    planes = _planes(x)
    others = planes if y is x else _planes(y)
    floor = x.dtype.type(max(floor2, np.finfo(x.dtype).tiny))
    run(planes, others, s, x.dtype.type(softening2), floor, potential(floor2, s), energy, rows, force)
    return rows.sum(1), force


def potential(q: float, s: float) -> float:
    """g_s at the squared distance q."""
    if s < 0:
        return -(q ** (-s / 2))
    if q == 0:
        return math.inf
    return q ** (-s / 2) if s else -0.5 * math.log(q)


def pair_gaps(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(number of coincident pairs, smallest |x_k - y_l|) per chain, over k < l."""
    coincident, closest = np.zeros(len(x), np.int64), np.full(len(x), np.inf)
    planes = _planes(x)
    _gaps(planes, planes if y is x else _planes(y), coincident, closest)
    return coincident, np.sqrt(closest)


minimum = np.minimum
