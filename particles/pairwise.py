"""Sums of the Riesz kernel over pairs of particles: the one place that chooses a back end.

g_s(w) = |w|^-s (s > 0), -log |w| (s = 0), -|w|^|s| (-2 < s < 0), of (|w|^2 + softening^2)^(1/2) / length
(Coulomb paper, section 2 and supplement).
Coincident particles of a bare kernel: energy +inf when s >= 0, no force.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Num

from particles import _numba
from particles.arrays import Array, is_torch

_LARGEST = {2: 6e4, 4: float(np.finfo(np.float32).max), 8: float(np.finfo(np.float64).max)}  # by bytes


def riesz_sums(
    omega: Float[Array, "*chain particle dim"],
    s: float,
    *,
    softening: float = 0.0,
    length: float = 1.0,
    mirror: bool = False,
    energy: bool = True,
) -> tuple[Float[Array, "*chain"], Float[Array, "*chain particle dim"]]:
    """(sum_{k != l} g_s(omega_k - omega_l) in float64, sum_{l != k} grad g_s(omega_k - omega_l)).

    omega (particle, dim) or (chain, particle, dim); the sums have its leading shape and its shape. `mirror` adds g_s(omega_k + omega_l)
    for k != l. The first sum is 0 unless `energy`.

    Raises
    ------
    ValueError
        If omega holds NaN.
    OverflowError
        If distances or forces exceed the range of omega's dtype.
    """
    stacked = omega if omega.ndim == 3 else omega[None]
    points = stacked / length
    _check_spread(points)
    total, force = _sums(points, s, (softening / length) ** 2, mirror, energy)
    gradient = force * (-(abs(s) or 1.0) / length)
    if not bool(abs(gradient).sum() < np.inf):
        raise OverflowError(
            f"the Riesz force with s = {s} exceeds the range of {omega.dtype}; use softening, a length near the gap, or float64"
        )
    return (total, gradient) if omega.ndim == 3 else (total[0], gradient[0])


def _sums(points: Array, s: float, softening2: float, mirror: bool, energy: bool) -> tuple[Array, Array]:
    pair_sums = _backend(points).pair_sums
    total, force = pair_sums(points, s, softening2, 1.0, energy=energy)
    if mirror:
        more, mirrored = pair_sums(points, s, softening2, -1.0, energy=energy)
        total, force = total + more, force + mirrored
    return total, force


def gaps(omega: Float[Array, "*chain particle dim"], *, mirror: bool = False) -> tuple[Num[Array, "*chain"], Num[Array, "*chain"]]:
    """(number of coincident pairs, smallest distance of a pair) of omega's leading shape; with `mirror` also of omega_k and -omega_l.

    Pairs whose squared distance is below the smallest normal number count as coincident. One particle alone has distance infinity.
    """
    stacked = omega if omega.ndim == 3 else omega[None]
    backend = _backend(omega)
    coincident, gap = backend.pair_gaps(stacked, 1.0)
    if mirror:
        more, mirrored = backend.pair_gaps(stacked, -1.0)
        coincident, gap = coincident + more, backend.minimum(gap, mirrored)
    return (coincident, gap) if omega.ndim == 3 else (coincident[0], gap[0])


def _check_spread(points: Array) -> None:
    """Squared distances must be representable."""
    largest = float(abs(points.detach() if is_torch(points) else points).max())
    if not largest < (_LARGEST[points.dtype.itemsize] / (16 * points.shape[-1])) ** 0.5:
        if np.isnan(largest):
            raise ValueError("omega must be finite, got NaN")
        raise OverflowError(f"omega is too large for squared distances in {points.dtype}: largest |omega| / length is {largest:.3g}")


def _backend(omega: Array) -> Any:
    if is_torch(omega):
        from particles import _torch

        return _torch
    return _numba
