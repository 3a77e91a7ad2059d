"""A kernel-independent fast multipole method for the Riesz kernel in 1, 2 and 3 dimensions; its definition is the direct sum.

Particles are sorted into an adaptive tree of cubes (halved until a cell holds few particles or is 2^-40 of the root). A cell's particles
are replaced by charges on a grid of Chebyshev nodes, and the potential of everything far from a cell by its values on the same grid, both
through Lagrange interpolation (Fong and Darve, "The black-box fast multipole method", J. Comput. Phys. 228, 2009; barycentric treecodes:
Wang, Krasny and Tlupova, Commun. Comput. Phys. 28, 2020). Two cells of one size interact through a matrix that depends on their offset
alone, so it is built once per size and offset. Cells of unequal size meet through the nodes of the smaller one only.

Every target is summed by one thread in a fixed order, so the number of threads cannot change a bit.
"""

from __future__ import annotations

import math
import typing
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numba import get_num_threads, njit

from particles._numba import _JIT, _LN2, _rows, _weigh, in_threads
from particles._powers import log2

_TINY = np.finfo(np.float64).tiny
_DEPTH = 40  # smallest cell: 2^-40 of the root; local coordinates keep 13 bits there
_DIRECT = 16  # pairs of particles that cost as much as ... multiplications of a matrix


class Law(NamedTuple):
    """g_s: the `kernel` of `_numba._weigh`, and the factor of its energies."""

    s: float
    softening2: float
    unit: float
    kernel: tuple


class Tree(NamedTuple):
    """Cells in order of level; the root's corner is `low` and its side `width`."""

    points: np.ndarray  # (3, particle), missing coordinates 0; sorted so that a cell's particles are start:stop
    order: np.ndarray  # (particle,) where they came from
    start: np.ndarray
    stop: np.ndarray
    level: np.ndarray
    corner: np.ndarray  # (cell, dim) whole numbers: position in units of the cell's width
    child: np.ndarray  # first child and number of children; 0 for a leaf
    children: np.ndarray
    low: np.ndarray
    width: float


@njit(**_JIT)
@typing.no_type_check
def _grow(table):
    out = np.empty((2 * table.shape[0], table.shape[1]), table.dtype)
    for i in range(table.shape[0]):
        for k in range(table.shape[1]):
            out[i, k] = table[i, k]
    return out


@njit(**_JIT)
@typing.no_type_check
def _partition(grid, order, scratch, start, stop, bit, ends):
    """Sort order[start:stop] by the orthant that `bit` of the whole coordinates says; ends[o] becomes the end of orthant o."""
    dim = grid.shape[0]
    ends[:] = 0
    for i in range(start, stop):
        orthant = 0
        for k in range(dim):
            orthant = 2 * orthant + ((grid[k, order[i]] >> bit) & 1)
        ends[orthant] += 1
        scratch[i] = orthant
    total = start
    for o in range(ends.size):
        total += ends[o]
        ends[o] = total - ends[o]
    moved = order[start:stop].copy()
    for i in range(start, stop):
        o = scratch[i]
        order[ends[o]] = moved[i - start]
        ends[o] += 1


@njit(**_JIT)
@typing.no_type_check
def _split(grid, leaf_size):
    """(order, cells): row of cells = start, stop, level, first child, children, corner; breadth first."""
    dim, n = grid.shape
    order, scratch, ends = np.arange(n), np.empty(n, np.int64), np.empty(2**dim, np.int64)
    cells, count = np.zeros((64, 5 + dim), np.int64), 1
    cells[0, 1] = n
    c = 0
    while c < count:
        start, stop, level = cells[c, 0], cells[c, 1], cells[c, 2]
        if stop - start > leaf_size and level < _DEPTH:
            _partition(grid, order, scratch, start, stop, _DEPTH - 1 - level, ends)
            cells[c, 3] = count
            for o in range(ends.size):
                if ends[o] > start:
                    if count == cells.shape[0]:
                        cells = _grow(cells)
                    cells[count, 0], cells[count, 1], cells[count, 2], cells[count, 3], cells[count, 4] = start, ends[o], level + 1, 0, 0
                    for k in range(dim):
                        cells[count, 5 + k] = 2 * cells[c, 5 + k] + ((o >> (dim - 1 - k)) & 1)
                    count += 1
                    start = ends[o]
            cells[c, 4] = count - cells[c, 3]
        c += 1
    return order, cells[:count]


def build(points: np.ndarray, low: np.ndarray, width: float, leaf_size: int) -> Tree:
    """The tree of points (particle, dim) in the cube [low, low + width)."""
    grid = np.minimum((points - low).T * (2.0**_DEPTH / width), 2.0**_DEPTH - 1).astype(np.int64)
    order, cells = _split(grid, leaf_size)
    start, stop, level, child, children = np.ascontiguousarray(cells[:, :5].T)
    planes = np.zeros((3, len(points)))
    planes[: points.shape[1]] = points[order].T
    return Tree(planes, order, start, stop, level, np.ascontiguousarray(cells[:, 5:]), child, children, low, width)


# Interpolation


def interpolation(degree: int, dim: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(nodes (dim, node) of the cell [-1, 1]^dim, table, parents' values from children (orthant, node, node)).

    The 1-d basis is l_k(t) = sum_m table[k, m] T_m(t). There are degree^dim nodes, then unused ones up to a multiple of 4, at 0.
    """
    roots = np.cos(np.pi * (np.arange(degree) + 0.5) / degree)
    table = np.cos(np.arange(degree) * np.arccos(roots)[:, None]) * np.where(np.arange(degree), 2.0, 1.0) / degree
    half = [table @ np.cos(np.arange(degree)[:, None] * np.arccos((roots + side) / 2)) for side in (-1, 1)]  # l_k at a child's nodes
    size, padded = degree**dim, -(-(degree**dim) // 4) * 4
    nodes, transfer = np.zeros((dim, padded)), np.zeros((2**dim, padded, padded))
    nodes[:, :size] = np.stack(np.meshgrid(*[roots] * dim, indexing="ij")).reshape(dim, -1)
    for orthant in range(2**dim):
        matrix: Any = 1.0
        for k in reversed(range(dim)):
            matrix = np.kron(matrix, half[(orthant >> k) & 1])
        transfer[orthant, :size, :size] = matrix
    return nodes, table, transfer


@njit(**_JIT)
@typing.no_type_check
def _basis(t, table, value, slope):
    """value[k] = l_k(t), slope[k] = l_k'(t)."""
    degree = table.shape[0]
    for k in range(degree):
        value[k], slope[k] = table[k, 0], 0
    last, this, dlast, dthis = 1.0, t, 0.0, 1.0
    for m in range(1, degree):
        for k in range(degree):
            value[k] += table[k, m] * this
            slope[k] += table[k, m] * dthis
        last, this, dlast, dthis = this, 2 * t * this - last, dthis, 2 * this + 2 * t * dthis - dlast


@njit(**_JIT)
@typing.no_type_check
def _bases(tree, c, i, table, value, slope):
    """The 1-d bases at particle i of cell c: value, slope (3, degree); a missing dimension has one node."""
    half = 0.5 * tree.width * 0.5 ** tree.level[c]
    for k in range(tree.low.size):
        centre = tree.low[k] + (2 * tree.corner[c, k] + 1) * half
        _basis((tree.points[k, i] - centre) / half, table, value[k], slope[k])


@njit(**_JIT)
@typing.no_type_check
def _room(dim, degree):
    """(value, slope (3, degree), degrees per dimension)."""
    value, slope = np.ones((3, degree)), np.zeros((3, degree))
    return value, slope, degree, degree if dim > 1 else 1, degree if dim > 2 else 1


@njit(**_JIT)
@typing.no_type_check
def _charges(first, last, tree, table, charge):
    """charge (cell, node) of the leaves among the cells first:last: each particle's unit charge spread over the nodes."""
    value, slope, n0, n1, n2 = _room(tree.low.size, table.shape[0])
    for c in range(first, last):
        for i in range(tree.start[c], tree.stop[c] if tree.children[c] == 0 else tree.start[c]):
            _bases(tree, c, i, table, value, slope)
            node = 0
            for a in range(n0):
                for b in range(n1):
                    both = value[0, a] * value[1, b]
                    for e in range(n2):
                        charge[c, node] += both * value[2, e]
                        node += 1


@njit(**_JIT)
@typing.no_type_check
def _interpolate(tree, c, i, table, room, local, out):
    """The potential at particle i from cell c's nodes; minus its gradient is added to out (3,)."""
    value, slope, n0, n1, n2 = room
    _bases(tree, c, i, table, value, slope)
    potential = f0 = f1 = f2 = 0.0
    node = 0
    for a in range(n0):
        for b in range(n1):
            plain = steep = 0.0
            for e in range(n2):
                plain += value[2, e] * local[node]
                steep += slope[2, e] * local[node]
                node += 1
            potential += value[0, a] * value[1, b] * plain
            f0 += slope[0, a] * value[1, b] * plain
            f1 += value[0, a] * slope[1, b] * plain
            f2 += value[0, a] * value[1, b] * steep
    scale = -2 / (tree.width * 0.5 ** tree.level[c])
    out[0] += scale * f0
    out[1] += scale * f1
    out[2] += scale * f2
    return potential


# The lists of who meets whom


@njit(**_JIT)
@typing.no_type_check
def _apart(a, la, b, lb):
    """Whether a gap of at least the smaller cell's width separates two cells given by corner and level."""
    up, down = max(lb - la, 0), max(la - lb, 0)
    for k in range(a.size):  # noqa: SIM110
        if (b[k] << down) - ((a[k] + 1) << up) >= 1 or (a[k] << up) - ((b[k] + 1) << down) >= 1:
            return True
    return False


@njit(**_JIT)
@typing.no_type_check
def _append(table, count, a, b):
    """Write the row (a, b) at `count`; returns the table, grown where necessary, and the new count."""
    if count == table.shape[0]:
        table = _grow(table)
    table[count, 0], table[count, 1] = a, b
    return table, count + 1


@njit(**_JIT)
@typing.no_type_check
def _meet(target, source, n_nodes):
    """(near, far, spread), rows (target cell, source cell).

    near: the particles of a target leaf see the particles of the source, or its nodes (written as -1 - source). far: nodes see nodes, one
    level. spread: the nodes of the target see the particles of the source.
    """
    near, far, spread = np.empty((1024, 2), np.int64), np.empty((1024, 2), np.int64), np.empty((64, 2), np.int64)
    n_near = n_far = n_spread = 0
    stack, top = np.zeros((2 * _DEPTH * 64 + 64, 2), np.int64), 1
    while top:
        top -= 1
        a, b = stack[top]
        size_a, size_b = target.stop[a] - target.start[a], source.stop[b] - source.start[b]
        la, lb = target.level[a], source.level[b]
        leaf_a, leaf_b = target.children[a] == 0, source.children[b] == 0
        if _apart(target.corner[a], la, source.corner[b], lb):
            if leaf_a and (size_b <= n_nodes if lb > la else leaf_b and _DIRECT * size_a * size_b < n_nodes * n_nodes):
                near, n_near = _append(near, n_near, a, b)
            elif lb > la:
                near, n_near = _append(near, n_near, a, -1 - b)
            elif la > lb:
                spread, n_spread = _append(spread, n_spread, a, b)
            else:
                far, n_far = _append(far, n_far, a, b)
        elif leaf_a and leaf_b:
            near, n_near = _append(near, n_near, a, b)
        else:
            for i in range(max(target.children[a], 1)):
                for j in range(max(source.children[b], 1)):
                    stack[top, 0] = a if leaf_a else target.child[a] + i
                    stack[top, 1] = b if leaf_b else source.child[b] + j
                    top += 1
    return near[:n_near], far[:n_far], spread[:n_spread]


def _grouped(pairs: np.ndarray, key: np.ndarray, n_keys: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of `pairs` in order of `key`, and where each key starts (n_keys + 1,)."""
    return pairs[np.argsort(key, kind="stable")], np.append(0, np.cumsum(np.bincount(key, minlength=n_keys)))


def meetings(target: Tree, source: Tree, n_nodes: int) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """near and spread, each grouped by target cell, and far, grouped by level and offset."""
    near, far, spread = _meet(target, source, n_nodes)
    dim, n = target.corner.shape[1], len(target.start)
    offset = target.corner[far[:, 0]] - source.corner[far[:, 1]]
    key = ((offset + 3) * 7 ** np.arange(dim)).sum(1) + target.level[far[:, 0]] * 7**dim
    return _grouped(near, near[:, 0], n), _grouped(spread, spread[:, 0], n), _grouped(far, key, (_DEPTH + 1) * 7**dim)


# Far field


@njit(**_JIT)
@typing.no_type_check
def _kernel(q, law, out):
    """out = (q^(-s/2) - c) / s, whose gradient is -q^(-s/2 - 1) w for every s; c = 1 near s = 0 (the log is the limit), else 0."""
    s = law.s
    if abs(s) < 1e-3:
        for j in range(q.size):
            out[j] = -0.5 * _LN2 * log2(q[j], 1.0)
        if s != 0:
            for j in range(q.size):
                out[j] = math.expm1(s * out[j]) / s
        return
    _weigh(q, out, _TINY, law.kernel)
    for j in range(q.size):
        out[j] *= q[j] / s


@njit(**_JIT)
@typing.no_type_check
def _between(nodes, width, offset, law, matrix):
    """matrix[b, a] = kernel between the nodes a of a cell and b of the cell `offset` widths before it."""
    dim, size = nodes.shape
    q = np.empty(size)
    for b in range(size):
        q[:] = law.softening2
        for k in range(dim):
            shift = offset[k] * width - 0.5 * width * nodes[k, b]
            for a in range(size):
                gap = 0.5 * width * nodes[k, a] + shift
                q[a] += gap * gap
        _kernel(q, law, matrix[b])


@njit(**_JIT)
@typing.no_type_check
def _product(matrix, u, v, x, y):
    """x += u @ matrix, y += v @ matrix. Two vectors and four rows a pass: as many as the registers hold."""
    for k in range(0, matrix.shape[0], 4):
        m0, m1, m2, m3 = matrix[k], matrix[k + 1], matrix[k + 2], matrix[k + 3]
        u0, u1, u2, u3 = u[k], u[k + 1], u[k + 2], u[k + 3]
        v0, v1, v2, v3 = v[k], v[k + 1], v[k + 2], v[k + 3]
        for a in range(x.size):
            x[a] += m0[a] * u0 + m1[a] * u1 + m2[a] * u2 + m3[a] * u3
            y[a] += m0[a] * v0 + m1[a] * v1 + m2[a] * v2 + m3[a] * v3


@njit(**_JIT)
@typing.no_type_check
def _products(first, last, matrix, pairs, values, out):
    """`_translate` for tasks of two pairs."""
    size = matrix.shape[0]
    x, y = np.empty(size), np.empty(size)
    for i in range(2 * first, min(2 * last, pairs.shape[0]), 2):
        j = min(i + 1, pairs.shape[0] - 1)
        x[:] = 0
        y[:] = 0
        _product(matrix, values[pairs[i, 1]], values[pairs[j, 1]], x, y)
        for a in range(size):
            out[pairs[i, 0], a] += x[a]
        if j > i:
            for a in range(size):
                out[pairs[j, 0], a] += y[a]


def _translate(matrix: np.ndarray, pairs: np.ndarray, values: np.ndarray, out: np.ndarray, pool: ThreadPoolExecutor | None = None) -> None:
    """out[a] += values[b] @ matrix over the pairs (a, b), in which no a occurs twice."""
    work = 3 * len(pairs) * matrix.size / _DIRECT
    in_threads((len(pairs) + 1) // 2, work, _products, matrix, pairs, values, out, pool=pool)


def _far(
    target: Tree, source: Tree, pairs: np.ndarray, first: np.ndarray, nodes: np.ndarray, law: Law, charge: np.ndarray, local: np.ndarray
) -> None:
    """Every cell's nodes meet the nodes of the cells of its list."""
    matrix = np.empty((nodes.shape[1], nodes.shape[1]))
    with ThreadPoolExecutor(get_num_threads()) as pool:
        for g in np.flatnonzero(np.diff(first)):
            a, b = pairs[first[g]]
            _between(nodes, target.width * 0.5 ** target.level[a], target.corner[a] - source.corner[b], law, matrix)
            _translate(matrix, pairs[first[g] : first[g + 1]], charge, local, pool)


@njit(**_JIT)
@typing.no_type_check
def _spread(start, stop, target, source, pairs, first, nodes, law, local):
    """The nodes of the cells start:stop meet the particles of the larger leaves of their lists."""
    dim, size = nodes.shape
    q, out = np.empty(size), np.empty(size)
    for c in range(start, stop):
        half = 0.5 * target.width * 0.5 ** target.level[c]
        for b in pairs[first[c] : first[c + 1], 1]:
            for i in range(source.start[b], source.stop[b]):
                q[:] = law.softening2
                for k in range(dim):
                    shift = target.low[k] + (2 * target.corner[c, k] + 1) * half - source.points[k, i]
                    for a in range(size):
                        q[a] += (nodes[k, a] * half + shift) * (nodes[k, a] * half + shift)
                _kernel(q, law, out)
                for a in range(size):
                    local[c, a] += out[a]


def _upward(tree: Tree, table: np.ndarray, transfer: np.ndarray) -> np.ndarray:
    """Charges (cell, node) of every cell: leaves from their particles, the others from their children."""
    charge = np.zeros((len(tree.start), transfer.shape[1]))
    in_threads(len(charge), 10 * len(tree.order) * charge.shape[1], _charges, tree, table, charge)
    for _, orthant, pairs in reversed(_families(tree)):
        _translate(np.ascontiguousarray(transfer[orthant].T), pairs, charge, charge)
    return charge


def _downward(tree: Tree, transfer: np.ndarray, local: np.ndarray, constant: np.ndarray) -> None:
    """Parents give their potential to their children. A cell's constant part is kept apart: it would drown the slope of small cells."""
    level = -1
    for depth, orthant, pairs in _families(tree):
        if depth > level:
            level = depth
            _part_constant(tree, level - 1, local, constant)
        children = np.ascontiguousarray(pairs[:, ::-1])
        _translate(transfer[orthant], children, local, local)
        constant[children[:, 0]] += constant[children[:, 1]]


def _part_constant(tree: Tree, level: int, local: np.ndarray, constant: np.ndarray) -> None:
    rows = slice(*np.searchsorted(tree.level, [level, level + 1]))
    constant[rows] += local[rows, 0]
    local[rows] -= local[rows, :1]


def _families(tree: Tree) -> list[tuple[int, int, np.ndarray]]:
    """(level, orthant, rows (parent, child)) of all cells but the root, from the top."""
    dim = tree.corner.shape[1]
    parent = np.repeat(np.arange(len(tree.start)), tree.children)
    child = np.arange(1, len(tree.start))
    orthant = ((tree.corner[1:] & 1) << np.arange(dim)[::-1]).sum(1)
    pairs, first = _grouped(np.stack([parent, child], 1), tree.level[1:] * 2**dim + orthant, (_DEPTH + 1) * 2**dim)
    return [(g // 2**dim, g % 2**dim, pairs[first[g] : first[g + 1]]) for g in np.flatnonzero(np.diff(first))]


# Near field, and all of it


@njit(**_JIT)
@typing.no_type_check
def _points(source, pairs, own, start, stop):
    """(points (3, n) that the targets start:stop see directly, the column of each target's own image, beyond n where it is not there)."""
    n = 0
    for b in pairs[:, 1]:
        n += source.stop[b] - source.start[b] if b >= 0 else 0
    points, column = np.empty((3, n)), np.arange(n, n + stop - start)
    n = 0
    for b in pairs[:, 1]:
        for j in range(source.start[b], source.stop[b] if b >= 0 else source.start[b]):
            points[0, n], points[1, n], points[2, n] = source.points[0, j], source.points[1, j], source.points[2, j]
            if start <= own[j] < stop:
                column[own[j] - start] = n
            n += 1
    return points, column


@njit(**_JIT)
@typing.no_type_check
def _see_nodes(x, i, source, b, nodes, charge, law, q, w, out):
    """Particle i against the charges on the nodes of cell b: out += force and energy in the units of `_numba._rows`."""
    half = 0.5 * source.width * 0.5 ** source.level[b]
    q[:] = law.softening2
    for k in range(source.low.size):
        shift = x[k, i] - source.low[k] - (2 * source.corner[b, k] + 1) * half
        for j in range(q.size):
            q[j] += (shift - half * nodes[k, j]) * (shift - half * nodes[k, j])
    _weigh(q, w, _TINY, law.kernel)
    energy = 0.0
    if law.kernel[4]:  # logarithms
        for j in range(q.size):
            energy += charge[j] * log2(q[j], 1.0)
    else:
        for j in range(q.size):
            energy += charge[j] * w[j] * q[j]
    out[3] += energy
    for k in range(source.low.size):
        shift = x[k, i] - source.low[k] - (2 * source.corner[b, k] + 1) * half
        total = 0.0
        for j in range(q.size):
            total += charge[j] * w[j] * (shift - half * nodes[k, j])
        out[k] += total


@njit(**_JIT)
@typing.no_type_check
def _leaves(first, last, target, source, pairs, begin, nodes, table, law, charge, local, constant, own, energy, apart, force):
    """The particles of the leaves among the cells first:last. They meet the points and the nodes of smaller cells on the leaf's list
    (pairs from begin[leaf] on) directly, the rest through the leaf's own nodes.

    own: the target whose image a source is; apart: a target's own image was not on the list of points.
    """
    room, q, w, out = _room(source.low.size, table.shape[0]), np.empty(nodes.shape[1]), np.empty(nodes.shape[1]), np.empty((1, 5))
    for c in range(first, last):
        start, stop = target.start[c], target.stop[c] if target.children[c] == 0 else target.start[c]
        listed = pairs[begin[c] : begin[c + 1]]
        points, column = _points(source, listed, own, start, stop)
        n = points.shape[1]
        mine = np.empty((3, n + stop - start))
        for i in range(start, stop):
            me = column[i - start]
            mine[0, me], mine[1, me], mine[2, me] = target.points[0, i], target.points[1, i], target.points[2, i]
            out[:] = 0
            _rows(mine, points, me, len(out), law.softening2, _TINY, law.kernel, out)
            apart[i] = me >= n
            coincident = out[0, 4] > (0 if apart[i] else 1)
            for b in listed[:, 1]:
                if b < 0:
                    _see_nodes(mine, me, source, -1 - b, nodes, charge[-1 - b], law, q, w, out[0])
            potential = constant[c] + _interpolate(target, c, i, table, room, local[c], out[0])
            energy[i] = law.unit * out[0, 3] + (abs(law.s) if law.s != 0 else 1.0) * potential
            if coincident and law.s >= 0:
                energy[i] = np.inf
            force[i, 0], force[i, 1], force[i, 2] = out[0, 0], out[0, 1], out[0, 2]


def sums(target: Tree, source: Tree, degree: int, law: Law) -> tuple[float, np.ndarray, np.ndarray]:
    """(sum of g_s, force (particle, 3), apart (particle,)) in the target's order, with `degree` nodes per dimension.

    A particle does not meet its own image, except where that is far away: there `apart` is True and the pair is in the sums.
    """
    nodes, table, transfer = interpolation(degree, len(target.low))
    near, spread, far = meetings(target, source, nodes.shape[1])
    charge = _upward(source, table, transfer)
    local, constant = np.zeros((len(target.start), nodes.shape[1])), np.zeros(len(target.start))
    _far(target, source, *far, nodes, law, charge, local)
    n, cells = len(target.order), len(target.start)
    in_threads(cells, 3 * len(spread[0]) * nodes.shape[1], _spread, target, source, *spread, nodes, law, local)
    _downward(target, transfer, local, constant)
    own, energy, apart, force = np.empty(n, np.int64), np.empty(n), np.empty(n, np.bool_), np.empty((n, 3))
    own[np.argsort(source.order)] = np.argsort(target.order)
    in_threads(cells, 3.0 * n * n, _leaves, target, source, *near, nodes, table, law, charge, local, constant, own, energy, apart, force)
    total = float(energy.sum())
    if 0 < abs(law.s) < 1e-3:  # the constant of `_kernel`
        total += law.unit * (float(n) * n - _n_close(target, source, near[0]))
    return total, force, apart


def _n_close(target: Tree, source: Tree, pairs: np.ndarray) -> int:
    """Number of pairs of particles that meet through a target leaf's list."""
    first, second = pairs[:, 0], np.where(pairs[:, 1] < 0, -1 - pairs[:, 1], pairs[:, 1])
    return int(((target.stop - target.start)[first] * (source.stop - source.start)[second]).sum())
