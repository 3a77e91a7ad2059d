"""Limit laws of the spectra of large random Gram matrices: linear, nonlinear and Fourier features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import cumulative_trapezoid, quad
from scipy.optimize import brentq, minimize_scalar
from scipy.special import comb

from theory.arrays import FloatArray, count, finite, positive, real

__all__ = ["FourierGram", "MarchenkoPastur", "PenningtonWorah", "fourier_gram"]


@dataclass(frozen=True)
class MarchenkoPastur:
    """Limit spectrum of Z Z^T / n_columns for Z (n_rows, n_columns) iid of unit variance, ratio = n_rows / n_columns.

    For nonlinear features this is the law of their centred, isotropic linear part only: see `PenningtonWorah`.
    Source: Marchenko & Pastur 1967.
    """

    ratio: float

    def __post_init__(self) -> None:
        positive(self.ratio, "ratio")

    @property
    def edges(self) -> tuple[float, float]:
        """Ends of the continuous part."""
        root = np.sqrt(self.ratio)
        return float((1 - root) ** 2), float((1 + root) ** 2)

    @property
    def atom(self) -> float:
        """Mass at zero: 1 - 1/ratio when there are more rows than columns."""
        return max(0.0, 1 - 1 / self.ratio)

    def density(self, x: ArrayLike) -> FloatArray:
        """Density of the continuous part (its mass is 1 - atom), zero outside the edges; shape of x."""
        x = finite(x, "x")
        low, high = self.edges
        inside = (x > low) & (x < high)
        safe = np.where(inside, x, 1.0)
        root = np.sqrt(np.where(inside, (high - safe) * (safe - low), 0.0))
        return np.where(inside, root / (2 * np.pi * self.ratio * safe), 0.0)

    def cdf(self, x: ArrayLike) -> FloatArray:
        """P(eigenvalue <= x), the atom included; closed form, shape of x."""
        x = finite(x, "x")
        (low, high), root = self.edges, np.sqrt(self.ratio)
        t = np.clip(x, low, high)
        angle = 2 * np.arctan2(np.sqrt(t - low), np.sqrt(high - t))  # x = 1 + ratio - 2 root cos(angle)
        sine, q = np.sin(angle), min(root, 1 / root)
        total = root * sine + min(self.ratio, 1.0) * angle - abs(1 - self.ratio) * np.arctan2(q * sine, 1 - q * np.cos(angle))
        return np.where(x < 0, 0.0, self.atom + total / (np.pi * self.ratio))

    def quantile(self, u: ArrayLike) -> FloatArray:
        """Smallest x with cdf(x) >= u, 0 <= u <= 1; shape of u. Root of the closed cdf, to 1e-14 of the upper edge."""
        u = finite(u, "u")
        if ((u < 0) | (u > 1)).any():
            raise ValueError(f"u must be in [0, 1], got values from {u.min()} to {u.max()}")
        return np.vectorize(self._quantile, otypes=[float])(u)

    def _quantile(self, u: float) -> float:
        low, high = self.edges
        if u <= self.atom or u >= 1:
            return high if u >= 1 else (0.0 if self.atom else low)
        return float(brentq(lambda x: float(self.cdf(x)) - u, low, high, xtol=1e-14 * high, rtol=1e-14))

    def stieltjes(self, z: ArrayLike) -> np.ndarray:
        """Integral of rho(dx) / (x - z) for complex z off the spectrum, in the upper or lower half plane or on the real axis.

        On the support it is the limit from above. ValueError for z = 0 where that is the atom or the edge.
        """
        z = _complex(z)
        if self.ratio >= 1 and not z.all():
            raise ValueError("z must be off the spectrum, got 0")
        low, high = self.edges
        root, rest = np.sqrt(z - low) * np.sqrt(z - high), z + self.ratio - 1  # root ~ z at infinity
        same = (rest.conj() * root).real >= 0
        far = rest + np.where(same, root, -root)  # without cancellation: ratio z m^2 + rest m + 1 = 0
        return np.where(same, -2 / far, -far / np.where(same, 1, 2 * self.ratio * z))

    def moment(self, order: int) -> float:
        """E lambda^order, a Narayana polynomial of the ratio: 1, 1 + ratio, 1 + 3 ratio + ratio^2, ..."""
        k = count(order, "order")
        return float(sum(comb(k, r) * comb(k - 1, r) * self.ratio**r / (r + 1) for r in range(k)))


@dataclass(frozen=True)
class PenningtonWorah:
    """Limit spectrum of Y Y^T / m, Y = f(W X) (n1, m), for W (n1, n0) and X (n0, m) with independent Gaussian entries.

    The entries of W X have variance sigma^2 (W's variance times X's times n0). With z standard normal, f centred:
    eta = E f(sigma z)^2, zeta = (E z f(sigma z))^2 = (sigma E f'(sigma z))^2 <= eta; phi = n0/m, psi = n0/n1.
    zeta = 0 is Marchenko-Pastur, zeta = eta a product of two. A mean of f adds one eigenvalue ~ n1 and changes nothing else.
    With P(t) the generating function of the law, t = 1/(psi x) and q = P - 1, q solves a quartic, followed from large imaginary x.
    Source: Pennington & Worah 2017, theorem 1.
    """

    eta: float
    zeta: float
    phi: float
    psi: float

    def __post_init__(self) -> None:
        for name in ("eta", "phi", "psi"):
            positive(getattr(self, name), name)
        if not 0 <= real(self.zeta, "zeta") <= self.eta * (1 + 1e-12):
            raise ValueError(f"zeta must be in [0, eta] = [0, {self.eta}], got {self.zeta!r}")

    @classmethod
    def of(cls, f: Callable, phi: float, psi: float, *, sigma: float = 1.0, kinks: Sequence[float] = (0.0,)) -> PenningtonWorah:
        """The law for the activation f, a function of arrays, smooth except at `kinks`; its mean is removed. Adaptive quadrature."""
        if not callable(f):
            raise ValueError(f"f must be a callable, got {f!r}")
        sigma = positive(sigma, "sigma")
        cuts = [-38.0, *sorted(k / sigma for k in kinks if abs(k / sigma) < 38), 38.0]

        def mean(g: Callable) -> float:
            def weighted(z: float) -> float:
                return float(g(z)) * np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)

            return sum(quad(weighted, a, b, epsabs=1e-13, epsrel=1e-12, limit=400)[0] for a, b in pairwise(cuts))

        centre = mean(lambda z: f(sigma * z))
        eta = mean(lambda z: (f(sigma * z) - centre) ** 2)
        return cls(eta, min(mean(lambda z: z * f(sigma * z)) ** 2, eta), phi, psi)

    @property
    def atom(self) -> float:
        """Mass at zero: the rank is at most m, and at most n0 when f is linear."""
        rank = min(self.psi / self.phi, self.psi if self.zeta >= self.eta * (1 - 1e-12) else np.inf)
        return float(max(0.0, 1 - rank))

    def moment(self, order: int) -> float:
        """E lambda^order by the power series that solves the quartic; the first is eta."""
        k = count(order, "order")
        series = np.zeros(k + 1)
        series[0] = 1.0
        for _ in range(k):
            series = self._next(series)
        return float(series[k] * self.psi ** (1 - k))

    def _next(self, p: FloatArray) -> FloatArray:
        """One substitution of a power series P(t) in its own equation: one more right coefficient."""
        one = np.eye(1, len(p))[0]
        product = np.convolve(one + self.phi * (p - one), one + self.psi * (p - one))[: len(p)]
        shifted = np.concatenate([[0.0], product[:-1]])  # t P_phi P_psi
        geometric, power = np.zeros(len(p)), shifted * self.zeta
        while power.any():
            geometric, power = geometric + power, np.convolve(power, shifted * self.zeta)[: len(p)]
        return one + (self.eta - self.zeta) * shifted + geometric

    def stieltjes(self, z: ArrayLike) -> np.ndarray:
        """Integral of rho(dx) / (x - z) for z in the upper half plane; shape of z."""
        z = _complex(z)
        if (z.imag <= 0).any():
            raise ValueError(f"z must be in the upper half plane, got an imaginary part of {z.imag.min()}")
        flat = z.ravel()
        return self._follow(flat.real, flat.imag).reshape(z.shape)

    def density(self, x: ArrayLike) -> FloatArray:
        """Density of the continuous part at x > 0, shape of x: the root on the real axis, reached by continuation."""
        x = finite(x, "x")
        if (x <= 0).any():
            raise ValueError(f"x must be positive (the mass at zero is `atom`), got {x.min()}")
        return np.maximum(self._follow(x.ravel(), np.zeros(x.size)).imag, 0.0).reshape(x.shape) / np.pi

    @property
    def edge(self) -> float:
        """Upper end of the support: where t(q) = 1/(psi x), q = P - 1 > 0, the inverse of the transform outside, is largest."""

        def minus_t(log_q: float) -> float:
            q = np.exp(log_q)
            root = np.sqrt((self.eta - self.zeta * q) ** 2 + 4 * self.zeta**2 * q)
            return -2 * q / ((1 + self.phi * q) * (1 + self.psi * q) * (self.eta + self.zeta * q + root))

        size = np.log(1 / np.sqrt(self.phi * self.psi))
        return float(
            -1 / (self.psi * minimize_scalar(minus_t, bounds=(size - 20, size + 20), method="bounded", options={"xatol": 1e-9}).fun)
        )

    def cdf(self, x: ArrayLike) -> FloatArray:
        """P(eigenvalue <= x), the atom included, shape of x: the density integrated on a grid refined at 0 and at the upper edge (1e-4)."""
        x = finite(x, "x")
        return np.where(x < 0, 0.0, self.atom + np.interp(x, *self._table))

    @cached_property
    def _table(self) -> tuple[FloatArray, FloatArray]:
        """Points of the support and the mass of the continuous part below them."""
        angle = np.linspace(0, np.pi / 2, 3002)
        grid, slope = self.edge * np.sin(angle) ** 4, 4 * self.edge * np.sin(angle) ** 3 * np.cos(angle)
        weight = np.concatenate([[0.0], self.density(grid[1:]) * slope[1:]])  # 0 at 0, however the density rises there
        mass = cumulative_trapezoid(weight, angle, initial=0)
        if abs(mass[-1] - (1 - self.atom)) > 1e-3:
            raise ValueError(f"cdf needs a density that 3000 points resolve, got a mass of {mass[-1]} for {1 - self.atom} in {self}")
        mass *= (1 - self.atom) / mass[-1]
        return grid, mass

    def _follow(self, x: FloatArray, y: FloatArray) -> np.ndarray:
        """The Stieltjes transform at x + i y: the quartic's root near 0 at a large imaginary part, followed down by Newton's method."""
        heights = np.concatenate([self.edge * np.geomspace(100, 1e-16, 190), [0.0]])
        q = np.zeros(len(x), dtype=complex)
        for height in heights:
            z = x + 1j * np.maximum(height, y)
            q = self._newton(1 / (z * self.psi), q, 40 if height == 0 else 3)
        return -(1 + self.psi * q) / z

    def _newton(self, t: np.ndarray, q: np.ndarray, n_iterations: int) -> np.ndarray:
        """Newton's steps for q = w (zeta q + eta) - zeta (eta - zeta) w^2, w = t (1 + phi q)(1 + psi q).

        In factors, not in powers of q: near x = 0 the roots meet at q = -1/psi, where the powers cancel.
        """
        for _ in range(n_iterations):
            left, right, front = 1 + self.phi * q, 1 + self.psi * q, self.zeta * q + self.eta
            w, slope, bend = t * left * right, t * (self.phi * right + self.psi * left), self.zeta * (self.eta - self.zeta)
            value = q - w * front + bend * w**2
            derivative = 1 - slope * front - self.zeta * w + 2 * bend * w * slope
            q = q - np.where(value == 0, 0.0, value / np.where(derivative == 0, 1.0, derivative))
        return q


def _complex(z: ArrayLike) -> np.ndarray:
    z = np.asarray(z, dtype=complex)
    if not np.isfinite(z).all():
        raise ValueError(f"z must be finite, got {int((~np.isfinite(z)).sum())} NaN or infinite values")
    return z


class FourierGram(NamedTuple):
    """Deterministic equivalent of a random Fourier Gram matrix: mean resolvent (n, n), its two deltas, effective dimension."""

    resolvent: FloatArray
    delta_cos: float
    delta_sin: float
    effective_dimension: float


def fourier_gram(
    x: ArrayLike, n_frequencies: int, ridge: float, *, length: float = 1.0, tol: float = 1e-12, n_iterations: int = 10_000
) -> FourierGram:
    """E (K_m + ridge I)^-1 and tr K_m (K_m + ridge I)^-1 for K_m (n, n) of m frequency pairs, n, dim and m of one large size.

    K_m = (1/m) sum of cos cos + sin sin estimates the Gaussian kernel of this length at x (n, dim). With fewer frequencies than
    points it is not the kernel's resolvent: (n/m times) two scalars delta damp the cos and sin parts, solved as a fixed point.
    Source: Liao, Couillet & Mahoney 2020, theorem 1. ValueError if the iteration does not reach tol.
    """
    x, m, ridge = finite(x, "x"), count(n_frequencies, "n_frequencies"), positive(ridge, "ridge")
    if x.ndim != 2 or 0 in x.shape:
        raise ValueError(f"x must have shape (n, dim) with n and dim at least 1, got {x.shape}")
    x = x / positive(length, "length")
    norms, product = np.sum(x**2, 1), x @ x.T
    near, far = (np.exp(-0.5 * np.add.outer(norms, norms) + sign * product) for sign in (1, -1))
    cos_part, sin_part, identity = (near + far) / 2, (near - far) / 2, np.eye(len(x))
    a = b = 0.0
    for _ in range(n_iterations):
        resolvent = np.linalg.inv(cos_part / (1 + a) + sin_part / (1 + b) + ridge * identity)
        new = np.sum(cos_part * resolvent) / m, np.sum(sin_part * resolvent) / m
        change = max(abs(new[0] - a) / (1 + a), abs(new[1] - b) / (1 + b))
        a, b = new
        if change < tol:
            return FourierGram(resolvent, float(a), float(b), float(len(x) - ridge * np.trace(resolvent)))
    raise ValueError(f"tol must be reachable, got {tol!r} with a last change of {change} after {n_iterations} iterations")
