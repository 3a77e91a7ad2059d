"""From the package's particles to the ensembles of random matrix theory and back: which index b, which scale.

The Gibbs law of the package is exp(-beta [sum_k V(x_k) + strength/(2 (n-1)) sum_{k != l} g(x_k - x_l)]); with g = -log the pairs give
prod_{k < l} |x_k - x_l|^b, b = beta strength/(n-1). An ensemble has no temperature of its own: the way back takes beta as given.
Each pair of functions names the external potential V that the particles feel and the domain they live in.

ensemble    particles                                     to                from
Hermite     trap kappa x^2/2 on the line                  `to_hermite`      `from_hermite`
Laguerre    slope x - charge log x on x > 0               `to_laguerre`     `from_laguerre`
Jacobi      -charges of the two walls of an interval      `to_jacobi`       `from_jacobi`
circular    a torus of one dimension, chordal distances   `to_circular`     `from_circular`
Ginibre     trap kappa |x|^2/2 in the plane, b = 2        `to_ginibre`      `from_ginibre`
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from theory.arrays import count, positive, real

__all__ = [
    "Circular",
    "Hermite",
    "Jacobi",
    "Laguerre",
    "from_circular",
    "from_ginibre",
    "from_hermite",
    "from_jacobi",
    "from_laguerre",
    "log_gas_index",
    "log_gas_strength",
    "to_circular",
    "to_ginibre",
    "to_hermite",
    "to_jacobi",
    "to_laguerre",
]


class Hermite(NamedTuple):
    """Density prod |e_i - e_j|^b exp(-sum e^2/2) of e = x / scale."""

    b: float
    scale: float


class Laguerre(NamedTuple):
    """Density prod |e_i - e_j|^b prod e^a exp(-sum e), e > 0, of e = x / scale."""

    b: float
    a: float
    scale: float


class Jacobi(NamedTuple):
    """Density prod |e_i - e_j|^b prod e^left (1 - e)^right, 0 < e < 1, of e = (x + half_width) / scale: scale = 2 half_width."""

    b: float
    left: float
    right: float
    scale: float


class Circular(NamedTuple):
    """Density prod |exp(i e_k) - exp(i e_l)|^b of angles e = x / scale in [0, 2 pi): scale is the radius of the circle."""

    b: float
    scale: float


def log_gas_index(beta: float, strength: float, n: int) -> float:
    """Dyson index b = beta strength / (n - 1) of n >= 2 log-repelling particles; below 1 particles on a line collide."""
    return positive(beta, "beta") * positive(strength, "strength", zero=True) / (count(n, "n", least=2) - 1)


def log_gas_strength(b: float, beta: float, n: int) -> float:
    """The strength b (n - 1) / beta at which n >= 2 particles have index b: the inverse of `log_gas_index`."""
    return positive(b, "b", zero=True) * (count(n, "n", least=2) - 1) / positive(beta, "beta")


def to_hermite(n: int, beta: float, kappa: float, strength: float) -> Hermite:
    """Log gas of n >= 2 particles on the line (`FullSpace(1)`) in the trap `Quadratic(kappa)`: scale 1/sqrt(beta kappa)."""
    return Hermite(log_gas_index(beta, strength, n), float(1 / np.sqrt(beta * positive(kappa, "kappa"))))


def from_hermite(n: int, beta: float, b: float, scale: float) -> tuple[float, float]:
    """(kappa, strength) at inverse temperature beta: the inverse of `to_hermite`."""
    return 1 / (positive(beta, "beta") * positive(scale, "scale") ** 2), log_gas_strength(b, beta, n)


def wall_exponent(charge: float, beta: float, name: str) -> float:
    """beta charge, the power of the distance from a wall whose potential is -charge log(distance); must exceed -1 to be integrable."""
    power = real(charge, name) * positive(beta, "beta")
    if not -1 < power < np.inf:
        raise ValueError(f"{name} must be finite and above -1/beta = {-1 / beta:g}, got {charge!r}")
    return power


def to_laguerre(n: int, beta: float, slope: float, strength: float, charge: float = 0.0) -> Laguerre:
    """Log gas of n >= 2 particles on the half line x > 0 with V(x) = slope x - charge log x: a = beta charge, scale 1/(beta slope).

    For the particles V is `External(value, gradient, name="half_line")`, value = lambda x: slope * x[..., 0] - charge * log(x[..., 0]),
    gradient = lambda x: slope - charge / x, and the half line a `Box(0.0, high)` with high well above the largest particle, which is near
    4 (n b/2 + a) / (beta slope) at most.
    """
    b, a = log_gas_index(beta, strength, n), wall_exponent(charge, beta, "charge")
    return Laguerre(b, a, 1 / (beta * positive(slope, "slope")))


def from_laguerre(n: int, beta: float, b: float, a: float, scale: float) -> tuple[float, float, float]:
    """(slope, strength, charge) at inverse temperature beta: the inverse of `to_laguerre`; a must exceed -1."""
    strength, charge = log_gas_strength(b, beta, n), real(a, "a") / positive(beta, "beta")
    wall_exponent(charge, beta, "a / beta")
    return 1 / (beta * positive(scale, "scale")), strength, charge


def to_jacobi(n: int, beta: float, strength: float, half_width: float, charges: tuple[float, float] = (0.0, 0.0)) -> Jacobi:
    """Log gas of n >= 2 particles in `Box(-half_width, half_width)` with V(x) = -left log(half_width + x) - right log(half_width - x).

    `charges` = (left, right); (0, 0) is no external potential at all. The exponents are beta charges, the scale 2 half_width.
    """
    left, right = (wall_exponent(charge, beta, "charges") for charge in wall_pair(charges))
    return Jacobi(log_gas_index(beta, strength, n), left, right, 2 * positive(half_width, "half_width"))


def from_jacobi(n: int, beta: float, b: float, left: float, right: float, scale: float) -> tuple[float, float, tuple[float, float]]:
    """(strength, half_width, charges) at inverse temperature beta: the inverse of `to_jacobi`; left and right must exceed -1."""
    strength = log_gas_strength(b, beta, n)
    charges = (real(left, "left") / beta, real(right, "right") / beta)
    for charge, name in zip(charges, ("left / beta", "right / beta")):
        wall_exponent(charge, beta, name)
    return strength, positive(scale, "scale") / 2, charges


def wall_pair(charges: tuple[float, float]) -> tuple[float, float]:
    """Two real charges; ValueError otherwise."""
    if np.shape(charges) != (2,):
        raise ValueError(f"charges must be two numbers (left, right), got {charges!r}")
    return real(charges[0], "charges"), real(charges[1], "charges")


def to_circular(n: int, beta: float, strength: float, period: float) -> Circular:
    """n >= 2 particles of `Riesz(0.0, strength, period=period)` on `Torus(period)` of one dimension, no other force."""
    return Circular(log_gas_index(beta, strength, n), positive(period, "period") / (2 * np.pi))


def from_circular(n: int, beta: float, b: float, scale: float) -> tuple[float, float]:
    """(strength, period) at inverse temperature beta: the inverse of `to_circular`."""
    return log_gas_strength(b, beta, n), 2 * np.pi * positive(scale, "scale")


def to_ginibre(n: int, beta: float, kappa: float, strength: float) -> float:
    """The scale sqrt(2/(beta kappa)) from eigenvalues of a Ginibre matrix to the planar log gas in `Quadratic(kappa)` and `FullSpace(2)`.

    The matrix is n x n, its entries independent complex normals with E |entry|^2 = 1.

    Raises
    ------
    ValueError
        Unless strength = 2 (n-1)/beta to 1e-12: no other index is solved in the plane.
    """
    b = log_gas_index(beta, strength, n)
    if abs(b - 2) > 1e-12:
        raise ValueError(f"strength must be 2 (n-1)/beta = {2 * (n - 1) / beta!r}, index 2, got {strength!r}, index {b:g}")
    return float(np.sqrt(2 / (beta * positive(kappa, "kappa"))))


def from_ginibre(n: int, beta: float, scale: float) -> tuple[float, float]:
    """(kappa, strength) of the planar gas at inverse temperature beta: the inverse of `to_ginibre`."""
    return 2 / (positive(beta, "beta") * positive(scale, "scale") ** 2), log_gas_strength(2.0, beta, n)
