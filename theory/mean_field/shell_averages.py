"""Averages of a radial interaction g(|x - y|) over pairs of spherical shells in any dimension, for a g that may be singular at 0.

Shells apart: Gauss points in both radii of the spherical mean of g. Shells that touch: the distances between their points have a
density in closed form, the volume in common of two balls, so that one integral over the distance is left and the singularity of g
stands at its end.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc

from theory.arrays import FloatArray, numeric
from theory.mean_field.meshes import evaluate
from theory.tanh_sinh import tanh_sinh

__all__ = ["ENDS", "common_volume", "gauss_in_shells", "shell_averages", "singular_power", "singular_rule", "spherical_mean"]

Function = Callable[[FloatArray], ArrayLike]
Indices = NDArray[np.integer]
MARGIN = 1e-3  # by which a power of r must be integrable, as a fraction of the dimension
TIERS = ((0.0, 4.0, 10), (4.0, 16.0, 5), (16.0, 64.0, 4), (64.0, np.inf, 3))  # gap in widths of the wider shell, Gauss points a radius
CHUNK = 1 << 19  # values of g at once
ENDS = tanh_sinh(-3.3, 3.0, 91)[::2]  # nodes and weights on (0, 1) for logarithms or fractional powers at the ends


def shell_averages(interaction: Function, edges: FloatArray, dim: int) -> FloatArray:
    """Averages (cell, cell) of g(|x - y|) for x and y uniform in the shells between the edges (cell + 1,); symmetric.

    Exact to about 1e-12 for r^-s with any s < dim, logarithms, and functions that are smooth for r > 0, softened and short-ranged ones
    among them; where g has a kink, as a truncated one, to about 1e-4 on the pairs of shells at that distance.

    Raises
    ------
    ValueError
        If g is not integrable at 0 or not finite elsewhere.
    """
    n = len(edges) - 1
    i, j = np.triu_indices(n)
    width = np.diff(edges)
    gap = (edges[j] - edges[i + 1]) / np.maximum(width[i], width[j])
    values = np.empty(len(i))
    touching = j <= i + 1
    values[touching] = _touching(interaction, edges, i[touching], j[touching], dim)
    for low, high, points in TIERS:
        chosen = np.flatnonzero(~touching & (gap >= low) & (gap < high))
        rules = gauss_in_shells(edges, dim, points)
        size = max(1, CHUNK // (points**2 * _angles(dim, 4.0)))
        for part in np.split(chosen, range(size, len(chosen), size)):
            values[part] = _separated(interaction, rules, i[part], j[part], dim)
    result = np.empty((n, n))
    result[i, j] = result[j, i] = values
    return result


def spherical_mean(interaction: Function, r: FloatArray, q: FloatArray, dim: int) -> FloatArray:
    """Mean of g(|x - y|) over the directions of x and y with |x| = r and |y| = q, positive and apart; the broadcast shape of r and q.

    Gauss points in w, angle / 2 = e sinh(w) with sinh(e) = |r - q| / (2 sqrt(r q)): the distance is close to |r - q| cosh(w), whose
    singularities stay at w = i pi/2 however close r and q come (Johnston & Elliott 2005).
    """
    r, q = np.broadcast_arrays(r, q)
    if dim == 1:
        nearer, farther = (evaluate(interaction, t, "interaction", r.shape) for t in (np.abs(r - q), r + q))
        return (nearer + farther) / 2
    scale = np.arcsinh(np.abs(r - q) / (2 * np.sqrt(r * q)))[..., None]
    top = np.arcsinh(np.pi / 2 / scale)
    node, weight = np.polynomial.legendre.leggauss(_angles(dim, top.max(initial=0.0)))
    angle = scale * np.sinh(top * (node + 1) / 2)
    sine = np.sin(angle)
    weight = weight * np.sqrt(scale**2 + angle**2) * (sine * np.cos(angle)) ** (dim - 2)
    distance = np.sqrt(((r - q) ** 2)[..., None] + 4 * (r * q)[..., None] * sine**2)
    values = evaluate(interaction, distance, "interaction", distance.shape)
    return (values * weight).sum(-1) / weight.sum(-1)


def common_volume(a: FloatArray, b: FloatArray, t: FloatArray, dim: int) -> FloatArray:
    """Volume in common of balls of radii a and b with centres t > 0 apart, in units of the unit ball's: two spherical caps (Li 2011)."""
    small, large = np.minimum(a, b), np.maximum(a, b)
    plane = (t + (small - large) * (small + large) / t) / 2  # from the smaller ball's centre to the plane of the two spheres' intersection
    return _cap(small, plane, dim) + _cap(large, t - plane, dim)


def _cap(radius: FloatArray, plane: FloatArray, dim: int) -> FloatArray:
    with np.errstate(invalid="ignore", divide="ignore"):
        cosine = np.where(radius > 0, np.clip(plane / radius, -1, 1), 1.0)
    square, thick = cosine**2, np.abs(cosine) < 0.5
    share = np.empty_like(square)  # of both caps beyond |cosine|, without cancellation in either form
    share[thick] = 1 - betainc(0.5, (dim + 1) / 2, square[thick])
    share[~thick] = betainc((dim + 1) / 2, 0.5, 1 - square[~thick])
    return radius**dim * np.where(cosine > 0, share / 2, 1 - share / 2)


def gauss_in_shells(edges: FloatArray, dim: int, points: int) -> tuple[FloatArray, FloatArray]:
    """Gauss nodes and weights (cell, point) for means over each shell, weight r^(dim - 1).

    Stieltjes' procedure on a finer rule, exact for these polynomials, then Golub & Welsch (1969).
    """
    fine, weight = np.polynomial.legendre.leggauss(points + (dim + 1) // 2)
    centre, half = (edges[1:, None] + edges[:-1, None]) / 2, np.diff(edges)[:, None] / 2
    weight = weight * ((centre + half * fine) / edges[1:, None]) ** (dim - 1)
    jacobi = np.zeros((len(half), points, points))
    now = np.ones_like(weight) / np.sqrt(weight.sum(-1, keepdims=True))  # orthonormal polynomials at the fine nodes
    last, off = np.zeros_like(now), 0.0
    for k in range(points):
        diagonal = (weight * fine * now**2).sum(-1, keepdims=True)
        last, now = now, (fine - diagonal) * now - off * last
        off = np.sqrt((weight * now**2).sum(-1, keepdims=True))
        now = now / off
        jacobi[:, k, k] = diagonal[:, 0]
        if k + 1 < points:
            jacobi[:, k, k + 1] = jacobi[:, k + 1, k] = off[:, 0]
    node, vector = np.linalg.eigh(jacobi)
    return centre + half * node, vector[:, 0] ** 2


def singular_power(interaction: Function, scale: float, dim: int) -> tuple[float, float]:
    """p of g ~ r^-p at 0 (nearly 0 for a logarithm, 0 for a finite g), and a tiny radius below which g may pass for that power.

    Raises
    ------
    ValueError
        If r^-p is not integrable in dimension dim: p must stay below 0.999 dim, from where on the mass at 0 escapes floating point.
    """
    for depth in (200.0, 100.0, 50.0, 25.0, 12.0, 6.0):
        with np.errstate(all="ignore"):
            values = np.abs(numeric(interaction(scale * 2.0 ** -np.array([depth, depth + 1])), "interaction"))
        if values.shape not in ((), (2,)):
            raise ValueError(f"interaction must return a number or an array of the shape of r, (2,), got {values.shape}")
        if np.isfinite(values).all():
            break
    else:
        raise ValueError(f"interaction must be finite at r > 0, got {values} at {scale / 64:.3g}")
    power = float(np.log2(values[1] / values[0])) if values.shape and values.min() > 0 else 0.0
    if power > dim * (1 - MARGIN):
        raise ValueError(f"interaction must be integrable at r = 0: it grows as r^-{power:.6g}, r^-s needs s below {(1 - MARGIN) * dim:g}")
    return max(power, 0.0), scale * 2.0**-depth


def singular_rule(power: float, dim: int) -> tuple[FloatArray, FloatArray]:
    """Nodes t and weights on (0, 1) with sum_k weight f(t) = int_0^1 t^(dim - 1 - power) f(t) dt, for f with a logarithm at 0 at most."""
    node, weight = ENDS
    return node ** (1 / (dim - power)), weight / (dim - power)


def _angles(dim: int, top: float) -> int:
    """Points that resolve sin^(dim - 2) and a stretch of e^top to about 1e-12."""
    return 1 if dim == 1 else 8 + int(4 * top) + 2 * dim


def _separated(interaction: Function, rules: tuple[FloatArray, FloatArray], i: Indices, j: Indices, dim: int) -> FloatArray:
    """Averages (pair,) over shells i and j by the Gauss rules of each."""
    node, weight = rules
    mean = spherical_mean(interaction, node[i][:, :, None], node[j][:, None, :], dim)
    return np.einsum("pab,pa,pb->p", mean, weight[i], weight[j])


def _touching(interaction: Function, edges: FloatArray, i: Indices, j: Indices, dim: int) -> FloatArray:
    """Averages (pair,) over shells i <= j that are equal or neighbours: one integral over the distance t, in units of the outer radius.

    dim int g(t) t^(dim - 1) D(t) dt over the volumes, with D(t) the common volume of shell i and shell j moved by t; panels between
    the distances at which two of the spheres touch.
    """
    scale = edges[j + 1]
    a, b, c, d = balls = np.stack([edges[i], edges[i + 1], edges[j], edges[j + 1]]) / scale
    ends = np.stack([0 * a, *(np.abs(x - y) for x in (a, b) for y in (c, d)), *(x + y for x in (a, b) for y in (c, d))])
    ends.sort(axis=0)
    power, smallest = singular_power(interaction, float(edges[1]), dim)
    total = np.zeros(len(i))
    for low, high in pairwise(ends):
        some = high - low > 1e-12
        first, later = np.flatnonzero(some & (low == 0)), np.flatnonzero(some & (low > 0))
        node, weight = singular_rule(power, dim)
        t = np.maximum(high[first, None] * node, 1e-300)
        known = np.maximum(t, smallest / scale[first, None])  # below, g is a power
        values = known**power * _at_distance(interaction, scale[first, None] * known) * _distance_density(t, balls[:, first, None], dim)
        total[first] += high[first] ** (dim - power) * (values @ weight)
        node, weight = ENDS
        t = low[later, None] + (high - low)[later, None] * node
        values = t ** (dim - 1) * _at_distance(interaction, scale[later, None] * t) * _distance_density(t, balls[:, later, None], dim)
        total[later] += (high - low)[later] * (values @ weight)
    return dim * total / ((b**dim - a**dim) * (d**dim - c**dim))


def _at_distance(interaction: Function, t: FloatArray) -> FloatArray:
    return evaluate(interaction, t, "interaction", t.shape)


def _distance_density(t: FloatArray, balls: FloatArray, dim: int) -> FloatArray:
    """D(t) of `_touching` for the radii (4, ...) of two shells."""
    a, b, c, d = balls
    return common_volume(b, d, t, dim) - common_volume(a, d, t, dim) - common_volume(b, c, t, dim) + common_volume(a, c, t, dim)
