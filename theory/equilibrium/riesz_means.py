"""The Riesz kernel g_s and its means over spheres and balls, in closed form for every dimension and s, the log included."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import hyp2f1

from theory.arrays import FloatArray
from theory.tanh_sinh import NODE, WEIGHT

__all__ = ["mean_over_ball", "mean_over_sphere", "riesz"]


def riesz(r: ArrayLike, s: float) -> FloatArray:
    """g_s(r) of the package at r > 0: r^-s for s > 0, -log r for s = 0, -r^|s| for s < 0; shape of r."""
    r = np.asarray(r, dtype=float)
    return -np.log(r) if s == 0 else np.sign(s) * r**-s


def _log_sum(b: float, c: float, z: FloatArray) -> FloatArray:
    """sum over k >= 1 of (b)_k z^k / (k (c)_k) for 0 <= z <= 1: integral of (2F1(1, b; c; w) - 1)/w up to z."""
    return np.sum((hyp2f1(1.0, b, c, np.asarray(z)[..., None] * NODE) - 1) * WEIGHT / NODE, -1)


def mean_over_ball(r: ArrayLike, radius: float, dim: int, s: float, exponent: float) -> FloatArray:
    """Mean of g_s(|x - y|) at |x| = r >= radius for y of density (radius^2 - |y|^2)^exponent on a ball; shape of r.

    sign(s) r^-s 2F1(s/2, 1 - (dim - s)/2; dim/2 + exponent + 1; radius^2/r^2): the mean over spheres (Landkof 1972) integrated by
    Euler's formula; its derivative at s = 0 for the log. exponent = -1 stands for the sphere itself.
    """
    r = np.asarray(r, dtype=float)
    z, b, c = (radius / r) ** 2, 1 - (dim - s) / 2, dim / 2 + exponent + 1
    return 0.5 * _log_sum(b, c, z) - np.log(r) if s == 0 else np.sign(s) * r**-s * hyp2f1(s / 2, b, c, z)


def mean_over_sphere(r: ArrayLike, rho: ArrayLike, dim: int, s: float) -> FloatArray:
    """Mean of g_s(|x - y|) at |x| = r over the sphere |y| = rho: symmetric, so that the larger radius comes first. Broadcasts.

    ValueError near the sphere for s within 3e-5 of dim - 1 but not there, where SciPy's `hyp2f1` loses its digits.
    """
    r, rho = np.broadcast_arrays(np.asarray(r, dtype=float), np.asarray(rho, dtype=float))
    if dim == 1:
        with np.errstate(divide="ignore"):  # r = rho
            return (riesz(np.abs(r - rho), s) + riesz(r + rho, s)) / 2
    high = np.maximum(r, rho)
    z, b = (np.minimum(r, rho) / high) ** 2, 1 - (dim - s) / 2
    if 0 < abs(s - (dim - 1)) < 3e-5 and (z > 0.99).any():
        raise ValueError(f"s must be dim - 1 = {dim - 1} or differ from it by 3e-5 near the sphere, got {s!r}")
    return 0.5 * _log_sum(b, dim / 2, z) - np.log(high) if s == 0 else np.sign(s) * high**-s * hyp2f1(s / 2, b, dim / 2, z)
