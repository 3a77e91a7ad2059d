"""Compiled loops of the sweeps: rates of hopping and the solution of cyclic tridiagonal M-matrices without a subtraction.

Arrays are (cell, line) and contiguous; face i joins cell i with cell i + 1, the last one the last cell with the first. A wall is a face
with rates 0.
"""

from __future__ import annotations

import typing

import numpy as np
from numba import njit

__all__ = ["rates", "solve"]


@njit(cache=True)
@typing.no_type_check
def rates(u, conductance, beta, right, left):
    """Fills right and left with conductance * B(z) and conductance * B(-z), z = beta * (rise of u) and B(z) = z / (exp(z) - 1).

    B(-z) = B(z) + z, so that one exponential, of -|z|, does for both; near 0 the series of B, to round-off below 1/2.
    """
    n, m = u.shape
    for i in range(n):
        for j in range(m):
            z = beta * (u[(i + 1) % n, j] - u[i, j])
            a = abs(z)
            if a < 0.5:
                s = a * a
                tail = s * (1 / 47900160 - s * 691 / 1307674368000)
                b = 1 - a / 2 + s * (1 / 12 - s * (1 / 720 - s * (1 / 30240 - s * (1 / 1209600 - tail))))
            else:
                e = np.exp(-a)
                b = a * e / (1 - e)
            right[i, j] = conductance[i, j] * (b + max(-z, 0.0))
            left[i, j] = conductance[i, j] * (b + max(z, 0.0))


@njit(cache=True, error_model="numpy")
@typing.no_type_check
def solve(right, left, volume, rho, dt):
    """The density after volume (new - rho) = dt (inflow - outflow of new), with the rates at which volumes of new cross each face.

    Cells are eliminated in turn, the last one at the end: each leaves its mass, its volume and its ways to and from the last cell to
    its two neighbours in proportion to its rates, as in the state reduction of Grassmann, Taksar & Heyman (1985). No term is negative,
    hence every value of the solution has a small relative error and none is below 0, at any dt.
    """
    n, m = rho.shape
    new, scale, back, way = np.empty((n, m)), np.empty((n, m)), np.empty((n, m)), np.empty(m)
    kept, last_mass, last_kept = np.empty(m), np.empty(m), np.empty(m)
    for j in range(m):
        way[j], back[0, j] = dt * left[n - 1, j], dt * right[n - 1, j]
        kept[j], new[0, j] = volume[0, j], volume[0, j] * rho[0, j]
        last_kept[j], last_mass[j] = volume[n - 1, j], volume[n - 1, j] * rho[n - 1, j]
    for i in range(n - 2):
        for j in range(m):
            over, under = dt * right[i, j], dt * left[i, j]
            s = 1 / (kept[j] + over + way[j])
            scale[i, j] = s
            last_mass[j] += way[j] * s * new[i, j]
            last_kept[j] += back[i, j] * s * kept[j]
            back[i + 1, j] = back[i, j] * s * over
            new[i + 1, j] = volume[i + 1, j] * rho[i + 1, j] + over * s * new[i, j]
            way[j] *= under * s
            kept[j] = volume[i + 1, j] + under * s * kept[j]
    i = n - 2
    for j in range(m):
        over, under = dt * right[i, j] + way[j], dt * left[i, j] + back[i, j]
        s = 1 / (kept[j] + over)
        new[n - 1, j] = (last_mass[j] + over * s * new[i, j]) / (last_kept[j] + under * s * kept[j])
        new[i, j] = (new[i, j] + under * new[n - 1, j]) * s
    for i in range(n - 3, -1, -1):
        for j in range(m):
            new[i, j] = (new[i, j] + dt * left[i, j] * new[i + 1, j] + back[i, j] * new[n - 1, j]) * scale[i, j]
    return new
