"""Averages of an interaction g(|x - y|) over pairs of cells of polar rings, for a g that may be singular at 0.

Of the angles only the difference psi counts, against the hat (1 - |psi / step - m|)_+ for cells m steps apart: each piece of length
step is integrated against a rising and a falling line. The radii enter as their difference delta and their mean q,
|x - y|^2 = delta^2 cos^2(psi/2) + 4 q^2 sin^2(psi/2). Where these may vanish together, delta is stretched like a sinh on the scale of
2 q sin(psi/2), and the piece at psi = 0 is cut into two triangles with their tips at delta = psi = 0 (Duffy 1982).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from theory.arrays import FloatArray
from theory.mean_field.meshes import Function, evaluate
from theory.mean_field.shell_averages import CHUNK, ENDS, TIERS, Indices, gauss_in_shells, singular_power, singular_rule

__all__ = ["ring_averages"]

POINTS = 20  # of a rule stretched like a sinh


class Radii(NamedTuple):
    """Differences and means of two radii, and weights, (pair, point)."""

    delta: FloatArray
    q: FloatArray
    weight: FloatArray


class Strip(NamedTuple):
    """Pairs of radii of one or two neighbouring rings: all with a difference below `width`, or below the larger radius at the centre.

    Attributes
    ----------
    radii
        (x, v) in the unit square -> (delta, q, weight): x is delta over its range, v the place of q, weight d x d v = r r' d r d r'.
    ratio
        Size of q over the range of delta.
    v, weight
        Quadrature for v.
    """

    radii: Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray, FloatArray]]
    ratio: float
    v: FloatArray
    weight: FloatArray


def ring_averages(interaction: Function, n_rings: int, n_angles: int, width: float) -> FloatArray:
    """Averages (ring, ring, n_angles // 2 + 1) of g(|x - y|) over pairs of cells, one of each ring, at each offset of the angle.

    Rings have equal widths, from the centre on, and n_angles equal cells. Exact to about 1e-10 for r^-s with any s < 2,
    logarithms and functions that are smooth for r > 0; where g has a kink, to about 1e-4 on the pairs of cells at that distance.

    Raises
    ------
    ValueError
        If g is not integrable at 0 in the plane or not finite elsewhere.
    """
    step, n = 2 * np.pi / n_angles, n_rings
    moments = np.zeros((2, n, n, n_angles // 2 + 1))
    singular = singular_power(interaction, width, 2)
    for i in range(n):
        for j in (i, i + 1)[: n - i]:
            strip = _same_ring(i, width) if i == j else _next_ring(i, width)
            moments[:, i, j, 0] = _first_piece(interaction, strip, step, width, singular)
            _add_later_pieces(interaction, strip, step, moments[:, i, j])
    area = width**2 * (np.arange(n) + 0.5)  # per angle
    low = np.arange(n - 1)
    moments[:, low, low + 1] += _smooth_pieces(interaction, _beyond_width(low, width), step, moments.shape[-1])
    moments /= (area[:, None] * area)[..., None]
    _add_rings_apart(interaction, width * np.arange(n + 1.0), step, moments)
    falls, rises = moments
    averages = falls + np.concatenate([falls[..., :1], rises[..., :-1]], axis=-1)
    return np.where(np.tri(n, dtype=bool)[..., None], averages.swapaxes(0, 1), averages)


def _same_ring(i: int, width: float) -> Strip:
    """Both radii in ring i, in both orders."""

    def at_centre(x: FloatArray, v: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        larger = width * v
        delta = larger * x
        return delta, larger - delta / 2, 2 * width * larger * larger * (larger - delta)

    def around(x: FloatArray, v: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        delta = width * x
        q = i * width + delta / 2 + (width - delta) * v
        return delta, q, 2 * width * (width - delta) * (q**2 - delta**2 / 4)

    return Strip(at_centre, 1.0, *ENDS) if i == 0 else Strip(around, i + 0.5, *_gauss(8))


def _next_ring(i: int, width: float) -> Strip:
    """One radius in ring i and one in ring i + 1, closer than `width`."""

    def radii(x: FloatArray, v: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        delta = width * x
        q = (i + 1) * width + delta * (v - 0.5)
        return delta, q, width * delta * (q**2 - delta**2 / 4)

    return Strip(radii, i + 1.0, *_gauss(12 if i == 0 else 8))


def _beyond_width(i: Indices, width: float) -> Radii:
    """(ring, point) for one radius in each of the rings i, one in the next ring, and more than `width` between."""
    (x, weight_x), (v, weight_v) = _gauss(10), _gauss(16)
    delta = width * (1 + x[:, None])
    q = i[:, None, None] * width + delta / 2 + (2 * width - delta) * v
    weight = weight_x[:, None] * weight_v * width * (2 * width - delta) * (q**2 - delta**2 / 4)
    return Radii(*(np.broadcast_to(a, q.shape).reshape(len(q), -1) for a in (delta, q, weight)))


def _first_piece(interaction: Function, strip: Strip, step: float, width: float, singular: tuple[float, float]) -> FloatArray:
    """Integrals (2,) over psi in (0, step) and the strip: triangles (x, psi / step) = size (1, tau) and size (tau, 1)."""
    power, smallest = singular
    size, weight = singular_rule(power, 2)
    size = np.maximum(size, smallest / width)[:, None, None]  # below, the integrand is constant
    v, total = strip.v[:, None], np.zeros(2)
    for flip, scale in ((False, 1 / (strip.ratio * step)), (True, strip.ratio * step)):
        tau, weight_tau = _stretched(np.array(scale))
        x, u = (size * tau, size) if flip else (size, size * tau)
        delta, q, density = strip.radii(x, v)
        values = size**power * density * _at_distance(interaction, delta, q, step * u)
        values = np.einsum("svt,s,v,t->st", np.broadcast_to(values, (len(size), len(v), len(tau))), weight, strip.weight, weight_tau)
        u = np.broadcast_to(u[:, 0], values.shape)
        total += np.array([np.sum(values * (1 - u)), np.sum(values * u)])
    return total


def _add_later_pieces(interaction: Function, strip: Strip, step: float, moments: FloatArray) -> None:
    """Adds the integrals (2, piece) over psi beyond step and the strip."""
    for piece, u, weight in _later_rules(moments.shape[-1]):
        psi = step * (piece[:, None] + u)
        x, weight_x = _stretched(2 * strip.ratio * np.sin(psi / 2))
        delta, q, density = strip.radii(x[..., None], strip.v)
        values = density * _at_distance(interaction, delta, q, psi[..., None, None])
        values = ((values @ strip.weight) * weight_x).sum(-1)
        moments[:, piece] += np.stack([values @ (weight * (1 - u)), values @ (weight * u)])


def _smooth_pieces(interaction: Function, radii: Radii, step: float, n_pieces: int) -> FloatArray:
    """Integrals (2, pair, piece) over psi of sums over points (pair, point) with delta never small against the widths of the rings."""
    delta, q, weight = radii
    total = np.zeros((2, len(q), n_pieces))
    u, weight_u = _stretched(delta / (step * q))
    values = _at_distance(interaction, delta[..., None], q[..., None], step * u) * weight_u * weight[..., None]
    total[:, :, 0] = np.sum(values * (1 - u), axis=(1, 2)), np.sum(values * u, axis=(1, 2))
    for piece, u, weight_u in _later_rules(n_pieces):
        psi = step * (piece[:, None] + u)
        values = _at_distance(interaction, delta[..., None, None], q[..., None, None], psi)
        values = np.einsum("pkmu,pk->pmu", values, weight, optimize=True)
        total[:, :, piece] = np.stack([values @ (weight_u * (1 - u)), values @ (weight_u * u)])
    return total


def _add_rings_apart(interaction: Function, edges: FloatArray, step: float, moments: FloatArray) -> None:
    """Adds the averages (2, ring, ring, piece) of pairs of rings with another one between them."""
    i, j = np.triu_indices(len(edges) - 1, 2)
    for low, high, points in TIERS:
        node, weight = gauss_in_shells(edges, 2, points)
        chosen = np.flatnonzero((j - i - 1 >= low) & (j - i - 1 < high))
        size = max(1, CHUNK // (points**2 * 5 * moments.shape[-1]))
        for part in np.split(chosen, range(size, len(chosen), size)):
            r, s = node[i[part]][:, :, None], node[j[part]][:, None, :]
            both = weight[i[part]][:, :, None] * weight[j[part]][:, None, :]
            radii = Radii(*(a.reshape(len(part), points**2) for a in (s - r, (s + r) / 2, both)))
            moments[:, i[part], j[part]] += _smooth_pieces(interaction, radii, step, moments.shape[-1])


def _later_rules(n_pieces: int) -> list[tuple[Indices, FloatArray, FloatArray]]:
    """Pieces after the first, with Gauss nodes and weights: more points for the closest."""
    piece = np.arange(1, n_pieces)
    return [(part, *_gauss(points)) for part, points in ((piece[:3], 8), (piece[3:], 6))]


def _at_distance(interaction: Function, delta: FloatArray, q: FloatArray, psi: FloatArray) -> FloatArray:
    """g of the distance between points whose radii differ by delta around q, and whose angles differ by psi."""
    sine = np.sin(psi / 2) ** 2
    distance = np.sqrt(delta**2 * (1 - sine) + 4 * q**2 * sine)
    return evaluate(interaction, distance, "interaction", distance.shape)


def _stretched(scale: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Nodes scale sinh(w) and weights (..., point) on (0, 1), for singularities near +- i scale (Johnston & Elliott 2005)."""
    node, weight = _gauss(POINTS)
    top = np.arcsinh(1 / scale)[..., None]
    return scale[..., None] * np.sinh(top * node), scale[..., None] * top * np.cosh(top * node) * weight


def _gauss(points: int) -> tuple[FloatArray, FloatArray]:
    """Gauss points on (0, 1)."""
    node, weight = np.polynomial.legendre.leggauss(points)
    return (node + 1) / 2, weight / 2
