"""Averages of an interaction g(r), singular at r = 0 or not, over all pairs of equal cells of an interval or a rectangle.

The average over a pair of cells is the integral of g against the hat functions of their offset: over whole cells of offsets, one of which
touches r = 0 and is integrated in polar form. The pair of a cell with itself is one like the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from theory.arrays import FloatArray, finite, numeric

__all__ = ["Function", "evaluate", "line_averages", "plane_averages", "radial_moments"]

Function = Callable[[FloatArray], ArrayLike]
NEAR = 8  # widths of the longer side; farther pairs of cells take five Gauss points a side, to 1e-12
DEPTH = 200  # halvings towards r = 0; what is left below is integrated as a power
MARGIN = 1e-6  # by which a power must be integrable


def line_averages(interaction: Function, n: int, width: float) -> Float[np.ndarray, n]:
    """Averages over pairs of cells of one width, for the offsets 0 .. n - 1."""
    return _hat_averages(_line_integrals(interaction, n, width))


def plane_averages(interaction: Function, shape: tuple[int, int], width: FloatArray) -> Float[np.ndarray, "x y"]:
    """The same for cells of widths (2,), for the offsets (0, 0) .. (n_x - 1, n_y - 1)."""
    along_x = _hat_averages(_plane_integrals(interaction, shape, width))
    return _hat_averages(along_x.transpose(1, 2, 0)).T


def evaluate(function: Function, at: FloatArray, name: str, shape: tuple[int, ...]) -> FloatArray:
    """function(at), an array of the shape; ValueError names the function. A single number is refused: it may be a sum over all of `at`."""
    values = finite(function(at), name)
    if values.shape != shape:
        raise ValueError(f"{name} must return an array of shape {shape} for an argument of shape {at.shape}, got {values.shape}")
    return values


def radial_moments(interaction: Function, radius: FloatArray, orders: Sequence[int]) -> FloatArray:
    """int_0^1 xi^k g(xi radius) d xi for each order k and radius, (order, ...); g may have any singularity that the lowest k integrates.

    Gauss points on panels that halve towards 0; the rest, below 2^-200, as the power of r that g follows there.

    Raises
    ------
    ValueError
        If g grows as r^-p at 0 with p of at least k + 1 (less 1e-6).
    """
    node, weight = _panels()
    r = radius[..., None] * node
    values, order = evaluate(interaction, r, "interaction", r.shape), np.array(orders)
    rest = evaluate(interaction, radius * 2.0**-DEPTH, "interaction", radius.shape)
    power = _power(interaction, float(radius.max()))
    if power > order.min() + 1 - MARGIN:
        raise ValueError(f"interaction must be integrable at r = 0: it grows as r^-{power:.6g}, r^-s needs s below {order.min() + 1}")
    rest = np.multiply.outer(2.0 ** (-DEPTH * (order + 1.0)) / (order + 1 - power), rest)
    return rest + np.stack([values @ (weight * node**k) for k in orders])


def _power(interaction: Function, scale: float) -> float:
    """p of g ~ r^-p at 0 (0 for a logarithm, negative where g vanishes)."""
    with np.errstate(all="ignore"):
        last = np.abs(numeric(interaction(scale * 2.0 ** -np.array([DEPTH, DEPTH + 1.0])), "interaction"))
    return float(np.log2(last[1] / last[0])) if last.shape == (2,) and last.min() > 0 else 0.0


def _panels() -> tuple[FloatArray, FloatArray]:
    """Twelve Gauss points on each of the panels [2^-k-1, 2^-k], k below DEPTH."""
    node, weight = _gauss(12)
    size = 2.0 ** -np.arange(1.0, DEPTH + 1)[:, None]
    return (size * (1 + node)).ravel(), (size * weight).ravel()


def _gauss(n: int, panels: int = 1) -> tuple[FloatArray, FloatArray]:
    """n Gauss points on each of equal panels of (0, 1)."""
    node, weight = np.polynomial.legendre.leggauss(n)
    return ((np.arange(panels)[:, None] + (node + 1) / 2) / panels).ravel(), np.tile(weight / (2 * panels), panels)


def _hat_averages(integrals: FloatArray) -> FloatArray:
    """Integrals (2, n, ...) against 1 - u and u on [p, p + 1] to averages over pairs of cells (n, ...): against the hat of each offset.

    The hat of offset m rises on [m - 1, m] and falls on [m, m + 1]; by symmetry that of offset 0 falls twice.
    """
    falls, rises = integrals
    return falls + np.concatenate([falls[:1], rises[:-1]])


def _line_integrals(interaction: Function, n: int, width: float) -> FloatArray:
    """Integrals of g(width r) against 1 - u and u on r = p + u, (2, n)."""
    node, weight = _gauss(16)
    zeroth, first = radial_moments(interaction, np.array([width]), (0, 1))
    r = width * (np.arange(1, n)[:, None] + node)
    values = evaluate(interaction, r, "interaction", r.shape)
    return np.concatenate([[zeroth - first, first], [values @ (weight * (1 - node)), values @ (weight * node)]], axis=1)


def _plane_integrals(interaction: Function, shape: tuple[int, int], width: FloatArray) -> FloatArray:
    """Integrals of g(r) against (1 - u, u) x (1 - v, v) on x / width = (p + u, q + v), (2, n_x, 2, n_y)."""
    panels = [int(np.ceil(side / width.min())) for side in width]
    near = [min(n, int(np.ceil(NEAR * width.max() / side))) for n, side in zip(shape, width)]
    total = _far_integrals(interaction, shape, width, _gauss(5), _gauss(5))
    total[:, : near[0], :, : near[1]] = _far_integrals(interaction, near, width, _gauss(16, panels[0]), _gauss(16, panels[1]))
    total[:, 0, :, 0] = _corner_integrals(interaction, width)
    return total


def _far_integrals(
    interaction: Function,
    shape: Sequence[int],
    width: FloatArray,
    rule_u: tuple[FloatArray, FloatArray],
    rule_v: tuple[FloatArray, FloatArray],
) -> FloatArray:
    """As `_plane_integrals`, by one product rule on every cell; the cell at 0 comes out wrong."""
    total = np.zeros((2, shape[0], 2, shape[1]))
    for u, weight_u in zip(*rule_u):
        for v, weight_v in zip(*rule_v):
            r = np.hypot(width[0] * (np.arange(shape[0])[:, None] + u), width[1] * (np.arange(shape[1]) + v))
            values = evaluate(interaction, r, "interaction", r.shape) * (weight_u * weight_v)
            for a, factor_u in enumerate((1 - u, u)):
                for b, factor_v in enumerate((1 - v, v)):
                    total[a, :, b] += factor_u * factor_v * values
    return total


def _corner_integrals(interaction: Function, width: FloatArray) -> FloatArray:
    """The integrals (2, 2) of the cell at 0, in two triangles with a corner there: (u, v) = xi (1, tau) and xi (tau, 1) (Duffy 1982)."""
    tau, weight = _gauss(16, int(np.ceil(width.max() / width.min())))
    total = np.zeros((2, 2))
    for flip in (False, True):
        along, across = width[::-1] if flip else width
        one, two, three = radial_moments(interaction, np.hypot(along, across * tau), (1, 2, 3))
        part = np.array([[one - (1 + tau) * two + tau * three, tau * (two - three)], [two - tau * three, tau * three]]) @ weight
        total += part.T if flip else part
    return total
