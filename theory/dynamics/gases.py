"""Closed-form dynamics of the log gas, of Coulomb patches in every dimension, and of the one-dimensional Coulomb gas.

A particle moves by dx = -kappa x dt + strength (mean repulsion of the others) dt + sqrt(2/beta) dW, strength being that of the package's
Riesz energies. Times are at least 0. Walls are far away.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import erfcx, expit, exprel, gammaln, log_ndtr

from theory.arrays import FloatArray, count, finite, positive, real
from theory.dynamics.diffusion import inverse_temperature, relaxed, times

__all__ = [
    "attractive_gap_rates",
    "coulomb_density",
    "coulomb_line_cdf",
    "coulomb_line_density",
    "coulomb_patch_radius",
    "coulomb_ranks",
    "dyson_density",
    "dyson_radius",
    "log_second_moment",
]


def log_second_moment(t: ArrayLike, start: float, kappa: float, strength: float, beta: float, dim: int) -> FloatArray:
    """E |x|^2 at the times t (...) for the log interaction from E |x|^2 = start: M' = -2 kappa M + strength + 2 dim/beta.

    Exact for every number of particles and dim without walls, mean over particles, and in the mean-field limit: the virial of the pairs,
    (1/n) sum x_k . F_k, is strength/2 for any configuration. Euler steps add step^2 E |force|^2, infinite in dim = 1: there small steps
    and beta strength/(n - 1) of 5 and more. Source: Rogers & Shi 1993 (dim = 1).

    Raises
    ------
    ValueError
        For t < 0, start < 0, kappa < 0, strength < 0, beta <= 0 or dim < 1.
    """
    t, source = times(t), positive(strength, "strength", zero=True) + 2 * count(dim, "dim") / inverse_temperature(beta)
    return relaxed(t, positive(start, "start", zero=True), 2 * positive(kappa, "kappa", zero=True), source)


def dyson_radius(t: ArrayLike, strength: float, kappa: float = 0.0, *, start: float = 0.0) -> FloatArray:
    """Radius at the times t (...) of the semicircle of the log gas on the line: (R^2)' = -2 kappa R^2 + 4 strength, R(0) = start.

    Mean-field limit at beta = infinity (noise that vanishes with n, as Dyson's 1962, leaves it): a semicircle stays one, and a point
    becomes one at once; without a trap R = 2 sqrt(strength t), in a trap it tends to sqrt(2 strength/kappa). At finite beta, in the
    package's scaling, the density is no semicircle, and only `log_second_moment` holds. Source: Rogers & Shi 1993; Chan 1992.

    Raises
    ------
    ValueError
        For t < 0, strength < 0, kappa < 0 or start < 0.
    """
    square = positive(start, "start", zero=True) ** 2
    rate, source = 2 * positive(kappa, "kappa", zero=True), 4 * positive(strength, "strength", zero=True)
    return np.sqrt(relaxed(times(t), square, rate, source))


def dyson_density(
    t: float, points: ArrayLike, strength: float, kappa: float = 0.0, *, n: int = 400
) -> tuple[Float[np.ndarray, " x"], Float[np.ndarray, " x"]]:
    """The law at time t > 0 of the log gas on the line at beta = infinity from equal masses at `points` (m,): (x (k,), density (k,)).

    Burgers' equation G_t + strength G G_z = 0 of the Stieltjes transform: the free convolution of the start with a semicircle of variance
    s = strength t. The density at u + s mean((u - a)/((u - a)^2 + v^2)) is v/(pi s), with v >= 0 the root of mean 1/((u - a)^2 + v^2) =
    1/s, or 0 (Biane 1997, corollary 3). A trap is the change of scale x = exp(-kappa t) y, s = strength (exp(2 kappa t) - 1)/(2 kappa).
    Each interval of the u where v > 0 gets n points, Chebyshev's, so that edges are resolved; x increases and the density is 0 at the ends
    of each interval.

    Raises
    ------
    ValueError
        For t <= 0, strength <= 0, kappa < 0, no points, n < 2, or a time so late that exp(2 kappa t) is no float.
    """
    a, t, kappa = np.unique(finite(points, "points")), positive(t, "t"), positive(kappa, "kappa", zero=True)
    if np.ndim(points) != 1 or a.size == 0:
        raise ValueError(f"points must have shape (m,), m > 0, got {np.shape(points)}")
    if kappa * t > 350:
        raise ValueError(f"t must be at most 350/kappa = {350 / kappa:g}, got {t!r}")
    s = positive(strength, "strength") * t * float(exprel(2 * kappa * t))
    mass = np.unique(finite(points, "points"), return_counts=True)[1] / np.size(points)
    angle = np.pi * np.arange(count(n, "n", least=2) + 1) / n
    u = np.concatenate([low + (high - low) * (1 - np.cos(angle)) / 2 for low, high in _supports(a, mass, s)])
    v = _heights(u, a, mass, s)
    v.reshape(-1, n + 1)[:, [0, -1]] = 0.0  # at the ends of each interval exactly, or gaps between intervals would carry mass
    gap = u[:, None] - a
    square = gap**2 + v[:, None] ** 2
    x = u + s * (gap / square) @ mass
    shrink = np.exp(-kappa * t)
    return shrink * x, v / (np.pi * s * shrink)


def coulomb_patch_radius(t: ArrayLike, start: float, dim: int, strength: float, kappa: float = 0.0) -> FloatArray:
    """Radius at the times t (...) of a uniform ball of the Coulomb gas at beta = infinity, R(0) = start, in any dim.

    (R^dim)' = dim (q - kappa R^dim) with q = strength c_dim/|S^(dim-1)| = strength (dim - 2), strength for dim = 1 (g = -|x|) and 2 (log).
    By Gauss' law the force inside is linear, so the ball stays uniform; from a point (start = 0) too. Source: Serfaty & Vazquez 2014;
    Bertozzi, Laurent & Leger 2012.

    Raises
    ------
    ValueError
        For t < 0, start < 0, dim < 1, strength < 0 or kappa < 0.
    """
    dim, kappa, t = count(dim, "dim"), positive(kappa, "kappa", zero=True), times(t)
    grown = relaxed(t, 0.0, dim * kappa, dim * positive(strength, "strength", zero=True) * _charge(dim))
    with np.errstate(divide="ignore"):  # in logarithms, as R^dim leaves the floats
        log_start = dim * (np.log(positive(start, "start", zero=True)) - kappa * t)
        return np.exp(np.logaddexp(log_start, np.log(grown)) / dim)


def coulomb_density(t: ArrayLike, start: float, dim: int, strength: float, kappa: float = 0.0) -> FloatArray:
    """Density at the times t (...) along the path of a particle of the Coulomb gas at beta = infinity, `start` > 0 at t = 0.

    rho' = dim kappa rho - strength c_dim rho^2 on any characteristic of any density (continuity and -Laplace g = c_dim delta);
    c_dim = (dim - 2)|S^(dim-1)|, c_2 = 2 pi, c_1 = 2. Without a trap the largest density is below 1/(strength c_dim t) whatever the start
    (Serfaty & Vazquez 2014).

    Raises
    ------
    ValueError
        For t < 0, start <= 0, dim < 1, strength < 0 or kappa < 0.
    """
    dim, kappa, t = count(dim, "dim"), positive(kappa, "kappa", zero=True), times(t)
    sphere = 2 * np.exp(dim / 2 * np.log(np.pi) - gammaln(dim / 2))
    source = positive(strength, "strength", zero=True) * _charge(dim) * sphere
    return 1 / relaxed(t, 1 / positive(start, "start"), dim * kappa, source)


def coulomb_ranks(t: ArrayLike, start: ArrayLike, strength: float, kappa: float = 0.0) -> FloatArray:
    """Positions (..., n) at the times t (...) of n particles of the Coulomb gas on the line (g = -|x|) at beta = infinity, start (n,).

    The force on the particle of rank k is the constant strength (2 k - n - 1)/(n - 1), and repulsion keeps the ranks: exact for all times,
    in the order of `start`. At finite beta ranks are exchanged; the exact statements are then `coulomb_line_cdf` and, for attraction,
    `attractive_gap_rates`. Source: Lenard 1961 (the model).

    Raises
    ------
    ValueError
        For t < 0, fewer than two particles, particles on one point, strength < 0 or kappa < 0.
    """
    t, x = times(t), finite(start, "start")
    if x.ndim != 1 or len(x) < 2 or len(np.unique(x)) < len(x):
        raise ValueError(f"start must hold at least two different positions (n,), got {x}")
    rank = np.argsort(np.argsort(x)) + 1
    speed = positive(strength, "strength", zero=True) * (2 * rank - len(x) - 1) / (len(x) - 1)
    return relaxed(t[..., None], x, positive(kappa, "kappa", zero=True), speed)


def attractive_gap_rates(n: int, attraction: float, beta: float) -> Float[np.ndarray, " gap"]:
    """Rates (n - 1,) of the independent exponential gaps between neighbours, at rest, of n particles on the line that attract by ranks.

    Drift -attraction (2 k - n - 1)/(n - 1) for rank k, the energy attraction/(2 (n - 1)) sum_{k != l} |x_k - x_l| (the package's Coulomb
    gas with a negative strength), without a trap: the i-th gap has rate beta attraction i (n - i)/(n - 1). Source: Pal & Pitman 2008,
    theorem 8, as 2 sum_{j <= i} (drift_j - mean drift)/variance. Repulsion has no law at rest.

    Raises
    ------
    ValueError
        For n < 2, attraction <= 0, beta <= 0 or infinite.
    """
    i = np.arange(1, count(n, "n", least=2))
    return positive(beta, "beta") * positive(attraction, "attraction") * i * (n - i) / (n - 1)


def coulomb_line_cdf(x: ArrayLike, t: float, strength: float, beta: float) -> FloatArray:
    """P(X <= x) at time t > 0 of the mean-field Coulomb gas on the line (g = -|x|) from the point 0 at finite beta, no trap.

    The cumulative F obeys F_t + strength (2 F - 1) F_x = F_xx/beta (Bossy & Talay 1996), Burgers' equation for strength (2 F - 1), linear
    by the substitution of Hopf 1950 and Cole 1951: F = P(-x)/(P(-x) + P(x)) with P(x) = erfcx((strength t + x)/sqrt(4 t/beta)). beta ->
    infinity gives the patch, uniform on |x| < strength t. Any real strength: a negative one attracts, and F tends to the logistic law of
    scale 1/(|strength| beta).

    Raises
    ------
    ValueError
        For t <= 0, beta <= 0 or infinite, or a strength that is not finite.
    """
    return expit(_burgers(x, t, strength, beta)[0])


def coulomb_line_density(x: ArrayLike, t: float, strength: float, beta: float) -> FloatArray:
    """The density of `coulomb_line_cdf`, F (1 - F) d logit F/dx."""
    logit, sigma, right, left = _burgers(x, t, strength, beta)
    return expit(logit) * expit(-logit) * (_excess_hazard(right) + _excess_hazard(left)) / sigma


def _burgers(x: ArrayLike, t: float, strength: float, beta: float) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """logit F, sigma, and the normal scores (x - strength t)/sigma and -(x + strength t)/sigma; erfcx(y) is 2 exp(y^2) Phi(-sqrt(2) y)."""
    x, t, beta, strength = finite(x, "x"), positive(t, "t"), positive(beta, "beta"), float(finite(real(strength, "strength"), "strength"))
    sigma = np.sqrt(2 * t / beta)
    right, left = (x - strength * t) / sigma, -(x + strength * t) / sigma
    if strength >= 0:  # no cancellation: the squares in the logarithms are gone
        return np.log(erfcx(-right / np.sqrt(2))) - np.log(erfcx(-left / np.sqrt(2))), sigma, right, left
    return -strength * beta * x + log_ndtr(right) - log_ndtr(left), sigma, right, left


def _excess_hazard(z: FloatArray) -> FloatArray:
    """phi(z)/Phi(z) + z, about 1/|z| far to the left, where its continued difference is summed as a series."""
    inverse = 1 / np.maximum(-z, 100.0)
    series = inverse * (1 - inverse**2 * (2 - inverse**2 * (10 - 74 * inverse**2)))
    return np.where(z < -100, series, np.sqrt(2 / np.pi) / erfcx(-z / np.sqrt(2)) + z)


def _supports(a: FloatArray, mass: FloatArray, s: float) -> list[tuple[float, float]]:
    """Intervals around the points a, sorted, where sum mass/(u - a)^2 > 1/s; the sum is convex between two points."""

    def excess(u: float) -> float:
        return float(np.sum(mass / (u - a) ** 2)) - 1 / s

    def slope(u: float) -> float:
        return -float(np.sum(mass / (u - a) ** 3))

    edges = [brentq(excess, a[0] - 1.001 * np.sqrt(s), a[0] - 0.999 * np.sqrt(s * mass[0]), xtol=1e-300)]
    for left, right, m_left, m_right in zip(a, a[1:], mass, mass[1:]):
        inside = min(np.sqrt(s * min(m_left, m_right)), right - left) * 1e-3
        lowest = brentq(slope, left + inside, right - inside, xtol=1e-300)
        if excess(lowest) < 0:
            edges += [brentq(excess, low, high, xtol=1e-300) for low, high in ((left + inside, lowest), (lowest, right - inside))]
    edges.append(brentq(excess, a[-1] + 0.999 * np.sqrt(s * mass[-1]), a[-1] + 1.001 * np.sqrt(s), xtol=1e-300))
    return list(zip(edges[::2], edges[1::2]))


def _heights(u: FloatArray, a: FloatArray, mass: FloatArray, s: float) -> FloatArray:
    """The v >= 0 at each u with sum mass/((u - a)^2 + v^2) = 1/s, by bisection of v^2 in [0, s]; 0 where there is none."""
    square, low, high = (u[:, None] - a) ** 2, np.zeros(len(u)), np.full(len(u), s)
    for _ in range(100):
        middle = (low + high) / 2
        above = (mass / (square + middle[:, None])).sum(1) > 1 / s
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.sqrt((low + high) / 2)


def _charge(dim: int) -> float:
    """c_dim/|S^(dim-1)|: -grad g(x) = charge x/|x|^dim."""
    return float(dim - 2) if dim > 2 else 1.0
