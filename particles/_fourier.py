"""Alignment of Fourier features with labels on the CPU: value and gradient from one pass over the data.

A particle w meets a tile of rows at a time: phases w.x, their sines and cosines, and the label-weighted sums from which both the
energy and its gradient follow; no array of rows x particles exists. Rows are (dim, row) planes, so that every loop runs along memory.
Every particle is summed by one thread in a fixed order, so the number of threads cannot change a bit. float32 states are summed in
float32 inside a tile and in float64 across tiles. The slow definition is `naive.kernel_target_alignment`.
"""

from __future__ import annotations

import math
import typing

import numpy as np
from jaxtyping import Float
from numba import njit
from numba.extending import intrinsic

from particles._numba import _JIT, in_threads

_TILE = 256
_BLOCK = 16  # particles that share a tile while it is in the nearest cache: one task of a thread
_PAIR = 3.0  # work of a row and a particle, in the unit of `in_threads`
_LARGEST = 1e5  # phases beyond it are left to math.sin and math.cos
# pi/2 in three parts; Chebyshev fits of (sin r / r - 1) / r^2 and (cos r - 1 + r^2 / 2) / r^4 in r^2 on [0, (pi/4)^2]
_HALF_PI: dict[np.dtype, tuple[float, ...]] = {
    np.dtype(np.float64): (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
    np.dtype(np.float32): (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
}
_SINE = (-0.16666666666666666, 0.0083333333333307, -0.00019841269836387345, 2.755731591191116e-06, -2.5051092507061385e-08,
         1.59153232122714e-10)  # fmt: skip
_COSINE = (0.041666666666666664, -0.0013888888888887241, 2.4801587298533456e-05, -2.755731715246704e-07, 2.087612165887116e-09,
           -1.1380876948169717e-11)  # fmt: skip
_TABLES = {dtype: np.array((*parts, 2 / math.pi, *_SINE, *_COSINE)).astype(dtype) for dtype, parts in _HALF_PI.items()}


@intrinsic
@typing.no_type_check
def _fma(typing_context, a, b, c):
    """a b + c with one rounding on every machine, which the reduction of the argument relies on."""

    def generate(context, builder, signature, args):
        return builder.fma(*args)

    return a(a, a, a), generate


@njit(cache=True, error_model="numpy", nogil=True, fastmath={"contract"})
@typing.no_type_check
def _sincos(z, s, c, table):
    """s = sin z and c = cos z, within 2 units in the last place for |z| <= _LARGEST; sums reordered would undo the reduction of z."""
    p1, p2, p3, inverse = table[0], table[1], table[2], table[3]
    s1, s2, s3, s4, s5, s6 = table[4], table[5], table[6], table[7], table[8], table[9]
    c1, c2, c3, c4, c5, c6 = table[10], table[11], table[12], table[13], table[14], table[15]
    number = z.dtype.type
    one, two, three, four, half, quarter = number(1), number(2), number(3), number(4), number(0.5), number(0.25)
    for m in range(z.size):
        quadrant = np.rint(z[m] * inverse)
        r = _fma(-quadrant, p3, _fma(-quadrant, p2, _fma(-quadrant, p1, z[m])))
        x = r * r
        sine = r + r * x * (s1 + x * (s2 + x * (s3 + x * (s4 + x * (s5 + x * s6)))))
        cosine = one - half * x + x * x * (c1 + x * (c2 + x * (c3 + x * (c4 + x * (c5 + x * c6)))))
        quadrant -= four * np.floor(quadrant * quarter)
        odd = (quadrant == one) | (quadrant == three)
        first, second = cosine if odd else sine, sine if odd else cosine
        s[m] = -first if quadrant >= two else first
        c[m] = -second if (quadrant == one) | (quadrant == two) else second


@njit(cache=True, error_model="numpy", nogil=True)
@typing.no_type_check
def _large_sincos(z, s, c):
    """The entries with |z| > _LARGEST again, in double precision."""
    for m in range(z.size):
        if not abs(z[m]) <= _LARGEST:
            s[m], c[m] = math.sin(float(z[m])), math.cos(float(z[m]))


@njit(**_JIT)
@typing.no_type_check
def _phases(x, w, columns, z):
    """z = w.x over the columns."""
    z[:] = z.dtype.type(0)
    dim = x.shape[0]
    for k in range(0, dim - 2, 3):
        a, b, e = w[k], w[k + 1], w[k + 2]
        u, v, t = x[k, columns], x[k + 1, columns], x[k + 2, columns]
        for m in range(z.size):
            z[m] += a * u[m] + b * v[m] + e * t[m]
    for k in range(dim - dim % 3, dim):
        a, u = w[k], x[k, columns]
        for m in range(z.size):
            z[m] += a * u[m]


@njit(**_JIT)
@typing.no_type_check
def _weights(f, s, c, phase, u, v):
    """The two weights of a row and the sums that go with them: (f c, f s) of a pair, (f s, f^2 c s) of a phase feature."""
    first = second = f.dtype.type(0)
    if phase:
        for m in range(f.size):
            g = f[m] * c[m]
            u[m] = f[m] * s[m]
            v[m] = g * u[m]
            first += g
            second += g * g
    else:
        for m in range(f.size):
            u[m] = f[m] * c[m]
            v[m] = f[m] * s[m]
            first += u[m]
            second += v[m]
    return first, second


@njit(**_JIT)
@typing.no_type_check
def _moments(x, columns, u, v, out):
    """out[0, k] += sum of u x_k over the columns, out[1, k] the same for v."""
    dim = x.shape[0]
    zero = x.dtype.type(0)
    for k in range(0, dim - 2, 3):
        u0 = u1 = u2 = v0 = v1 = v2 = zero
        x0, x1, x2 = x[k, columns], x[k + 1, columns], x[k + 2, columns]
        for m in range(u.size):
            u0 += u[m] * x0[m]
            u1 += u[m] * x1[m]
            u2 += u[m] * x2[m]
            v0 += v[m] * x0[m]
            v1 += v[m] * x1[m]
            v2 += v[m] * x2[m]
        out[0, k] += u0
        out[0, k + 1] += u1
        out[0, k + 2] += u2
        out[1, k] += v0
        out[1, k + 1] += v1
        out[1, k + 2] += v2
    for k in range(dim - dim % 3, dim):
        u0 = v0 = zero
        x0 = x[k, columns]
        for m in range(u.size):
            u0 += u[m] * x0[m]
            v0 += v[m] * x0[m]
        out[0, k] += u0
        out[1, k] += v0


@njit(**_JIT)
@typing.no_type_check
def _fold(sums, moments, phase, gradient):
    """Add a group's part to half the gradient of one particle, clear the sums, and return the group's part of the value."""
    value = 0.0
    for t in range(sums.shape[0]):
        first, second = sums[t]
        value += first * first - second if phase else first * first + second * second
        for k in range(gradient.size):
            u, v = moments[t, 0, k], moments[t, 1, k]
            gradient[k] += v - first * u if phase else second * u - first * v
    sums[:] = 0
    moments[:] = 0
    return value


@njit(**_JIT)
@typing.no_type_check
def _block(task, x, factor, omega, size, phase, far, table, values, gradient):
    """values (chain, particle) and half the gradient (chain, particle, dim) of one task: a chain's next _BLOCK particles.

    x (data, dim, row) and factor (data, target, row) of one chain or of each; `size` rows make a group; `far` says which particles can
    meet a phase beyond _LARGEST.
    """
    blocks = (omega.shape[1] + _BLOCK - 1) // _BLOCK
    chain = task // blocks
    first = _BLOCK * (task - chain * blocks)
    x, factor = x[chain if x.shape[0] > 1 else 0], factor[chain if x.shape[0] > 1 else 0]
    omega, far, values, gradient = omega[chain, first:], far[chain, first:], values[chain, first:], gradient[chain, first:]
    n, targets, particles = x.shape[1], factor.shape[0], min(_BLOCK, omega.shape[0])
    sums, moments = np.zeros((particles, targets, 2)), np.zeros((particles, targets, 2, omega.shape[1]))
    rows = np.empty((5, _TILE), x.dtype)
    for start in range(0, n, _TILE):
        stop = min(start + _TILE, n)
        z, s, c, u, v = (rows[0, : stop - start], rows[1, : stop - start], rows[2, : stop - start], rows[3, : stop - start],
                         rows[4, : stop - start])  # fmt: skip
        for k in range(particles):
            _phases(x, omega[k], slice(start, stop), z)
            _sincos(z, s, c, table)
            if far[k]:
                _large_sincos(z, s, c)
            at = start
            while at < stop:
                end = min(stop, (at // size + 1) * size)
                here, columns = slice(at - start, end - start), slice(at, end)
                for t in range(targets):
                    one, two = _weights(factor[t, columns], s[here], c[here], phase, u[here], v[here])
                    sums[k, t, 0] += one
                    sums[k, t, 1] += two
                    _moments(x, columns, u[here], v[here], moments[k, t])
                if end % size == 0:
                    values[k] += _fold(sums[k], moments[k], phase, gradient[k])
                at = end


@njit(**_JIT)
@typing.no_type_check
def _blocks(first, last, x, factor, omega, size, phase, far, table, values, gradient):
    for task in range(first, last):
        _block(task, x, factor, omega, size, phase, far, table, values, gradient)


def sincos(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(sin z, cos z) of real numbers; float32 stays, everything else becomes float64."""
    flat = (z if z.dtype in _TABLES else z.astype(np.float64)).ravel()
    s, c = np.empty_like(flat), np.empty_like(flat)
    _sincos(flat, s, c, _TABLES[flat.dtype])
    _large_sincos(flat, s, c)
    return s.reshape(z.shape), c.reshape(z.shape)


def _planes(rows: np.ndarray) -> np.ndarray:
    """(chain or 1, column, row) from rows (..., group, member, column)."""
    return np.ascontiguousarray(rows.reshape(-1 if rows.ndim == 4 else 1, rows.shape[-3] * rows.shape[-2], rows.shape[-1]).swapaxes(-1, -2))


def alignment_sums(
    x: Float[np.ndarray, "*own group member dim"],
    factor: Float[np.ndarray, "*own group member target"],
    omega: Float[np.ndarray, "chain particle pd"],
    phase: bool,
) -> tuple[Float[np.ndarray, " chain"], Float[np.ndarray, "chain particle pd"]]:
    """(S (chain,) float64, dS/domega (chain, particle, pd)), S = sum_{i != j in a group} T_ij sum_k phi_k(x_i) . phi_k(x_j).

    x ([chain,] group, member, dim), factor ([chain,] group, member, n_targets) with T = F F^T, padded rows zero in factor;
    omega (chain, particle, pd) of one floating type with x. phi = (cos w.x, sin w.x), or with `phase` sqrt 2 cos(w.x + b).
    """
    size = x.shape[-2]
    planes, labels = _planes(x), _planes(factor)
    if phase:
        planes = np.concatenate((planes, np.ones_like(planes[:, :1])), 1)
    far = (np.abs(omega) * np.abs(planes).max(-1)[:, None]).sum(-1) > _LARGEST
    values, gradient = np.zeros(omega.shape[:2]), np.zeros(omega.shape)
    tasks = omega.shape[0] * -(-omega.shape[1] // _BLOCK)
    work = values.size * planes.shape[-1] * _PAIR
    in_threads(tasks, work, _blocks, planes, labels, np.array(omega, order="C"), size, phase, far, _TABLES[x.dtype], values, gradient)
    total = values.sum(1)
    if phase:
        return 2 * total, (4 * gradient).astype(omega.dtype)
    return total - omega.shape[1] * (labels.astype(np.float64) ** 2).sum((-2, -1)), (2 * gradient).astype(omega.dtype)
