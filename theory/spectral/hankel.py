"""Fourier transforms of radial functions in any dimension, numerically: spectral densities of user kernels and kernels of user densities.

Both directions are one Hankel transform, int f(r) L_d(w r) S_d r^(d-1) dr with L_d(z) = Gamma(d/2) (2/z)^(d/2-1) J_(d/2-1)(z) the mean
of exp(i z u_1) over the sphere, S_d its area. It is summed by Gauss-Legendre between the zeros of the Bessel function, graded towards
0, and on a half line the alternating tail by Euler's repeated averages. Each answer is computed twice and refused if the two differ.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, jv

from theory.arrays import FloatArray, count, finite, positive
from theory.spectral.stationary_kernels import hyp0f1

__all__ = ["density_from_kernel", "kernel_from_density"]

Radial = Callable[[FloatArray], FloatArray]


def density_from_kernel(kernel: Radial, omega: ArrayLike, dim: int, *, support: float | None = None, tol: float = 1e-8) -> FloatArray:
    """Spectral density at |omega| (any shape) of the kernel(r) of an array of distances; integrable over R^dim.

    With `support` the kernel vanishes beyond that distance (needed for kernels that are not smooth there). ValueError if the two
    resolutions differ by more than tol times the largest value asked for; smooth kernels come out to about 1e-13 of it. A
    negative result says that the kernel is not positive definite in this dimension.
    """
    return _transform(kernel, omega, dim, support, tol, "omega", "kernel") / (2 * np.pi) ** dim


def kernel_from_density(density: Radial, r: ArrayLike, dim: int, *, support: float | None = None, tol: float = 1e-8) -> FloatArray:
    """k at distance r (any shape) of the spectral density(|omega|) in R^dim, a function of an array of norms. As above."""
    return _transform(density, r, dim, support, tol, "r", "density")


def _transform(f: Radial, w: ArrayLike, dim: int, support: float | None, tol: float, name: str, what: str) -> FloatArray:
    w, dim, tol = np.abs(finite(w, name)), count(dim, "dim"), positive(tol, "tol")
    flat, support = w.ravel(), None if support is None else positive(support, "support")
    coarse, fine = (np.empty_like(flat) for _ in range(2))
    for i, value in enumerate(flat):
        for result, order, n in ((coarse, 24, 60), (fine, 36, 100)):
            if support is not None:
                result[i] = _panels(f, value, dim, support, order)
            else:
                result[i] = _half_line(f, value, dim, order, n) if value else _at_zero(f, dim, 1 / n)
    scale = np.abs(fine).max(initial=np.finfo(float).tiny)
    worst = np.abs(fine - coarse).max(initial=0) / scale
    if not worst <= tol:
        raise ValueError(f"{what} must be integrable and smooth enough for tol = {tol}: two resolutions differ by {worst:.2g}")
    return 2 * np.exp(dim / 2 * np.log(np.pi) - gammaln(dim / 2)) * fine.reshape(w.shape)


def _panels(f: Radial, w: float, dim: int, support: float, order: int) -> float:
    """int_0^support f(r) L_dim(w r) r^(dim-1) dr on panels shorter than a wave, graded towards both ends."""
    inner = np.linspace(0, 1, 8 + int(w * support / np.pi) + 1)
    graded = inner[1] * 2.0 ** -np.arange(1, order)
    return float(np.sum(_integrals(f, w, dim, support * np.sort(np.concatenate([inner, graded, 1 - graded])), order)))


def _half_line(f: Radial, w: float, dim: int, order: int, n: int) -> float:
    """int_0^inf f(r) L_dim(w r) r^(dim-1) dr, w > 0, by the first n half waves; the last n/2 partial sums are averaged repeatedly."""
    zeros = _bessel_zeros(dim / 2 - 1, n) / w
    head = np.sum(_integrals(f, w, dim, zeros[0] * 2.0 ** -np.arange(n, -1, -1), order))
    sums = np.cumsum(_integrals(f, w, dim, zeros, order))[n // 2 :]
    while len(sums) > 1:
        sums = (sums[1:] + sums[:-1]) / 2
    return float(head + sums[0])


def _integrals(f: Radial, w: float, dim: int, edges: FloatArray, order: int) -> FloatArray:
    """Integrals of f(r) L_dim(w r) r^(dim-1) over the panels between the edges."""
    node, weight = np.polynomial.legendre.leggauss(order)
    half = np.diff(edges)[:, None] / 2
    r = edges[:-1, None] + half * (1 + node)
    return np.sum(half * weight * f(r) * hyp0f1(dim / 2, -((w * r) ** 2) / 4) * r ** (dim - 1), axis=1)


def _at_zero(f: Radial, dim: int, h: float) -> float:
    """int_0^inf f(r) r^(dim-1) dr by the exp-sinh rule."""
    reach = np.arcsinh(2 / np.pi * min(70.0, 600 / dim))  # r from e^-70 to e^70, r^dim within the floats
    t = np.arange(-reach, reach, h)
    r = np.exp(np.pi / 2 * np.sinh(t))
    return float(h * np.sum(f(r) * r**dim * np.pi / 2 * np.cosh(t)))


def _bessel_zeros(nu: float, n: int) -> FloatArray:
    """First n positive zeros of J_nu, nu >= -1/2, by Newton's method from those of Debye's phase sqrt(z^2 - nu^2) - nu acos(nu/z)."""
    phase = (np.arange(1, n + 1) - 0.25) * np.pi
    zeros = phase + nu * np.pi / 2  # too large, and the phase is convex: Newton's method comes down
    for _ in range(30):
        root = np.sqrt(zeros**2 - nu**2)
        zeros = zeros - (root - nu * np.arccos(nu / zeros) - phase) * zeros / root
    for _ in range(12):
        zeros = zeros - jv(nu, zeros) / (nu / zeros * jv(nu, zeros) - jv(nu + 1, zeros))
    return zeros.astype(np.float64)
