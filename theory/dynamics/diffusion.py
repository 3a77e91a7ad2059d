"""Exact transients of one free particle, dx = -kappa x dt + sqrt(2/beta) dW: in a trap, and between reflecting walls."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import exprel, ndtr

from theory.arrays import FloatArray, finite, positive, real

__all__ = ["ornstein_uhlenbeck", "reflected_cdf", "reflected_density"]


def ornstein_uhlenbeck(t: ArrayLike, start: ArrayLike, kappa: float, beta: float) -> tuple[FloatArray, FloatArray]:
    """Mean start exp(-kappa t) and variance (1 - exp(-2 kappa t))/(beta kappa) of a coordinate at time t of the particle in the trap.

    The transition law is normal with these; t and start broadcast. kappa = 0 is Brownian motion, kappa < 0 an unstable point. Source:
    Uhlenbeck & Ornstein 1930.

    Raises
    ------
    ValueError
        For t < 0, beta <= 0, or a kappa that is not finite.
    """
    t, kappa, beta = times(t), float(finite(real(kappa, "kappa"), "kappa")), inverse_temperature(beta)
    return finite(start, "start") * np.exp(-kappa * t), 2 * t / beta * exprel(-2 * kappa * t)


def reflected_density(x: ArrayLike, t: float, start: float, length: float, beta: float) -> FloatArray:
    """Density at x (...) in [-length, length] at time t > 0 of free diffusion dx = sqrt(2/beta) dW with reflecting walls, from `start`.

    The Neumann heat kernel with diffusion constant 1/beta, to rounding: images of the start for t/beta < length^2/4, later the
    cosine series 1/(2 L) + (1/L) sum_k cos(q_k (x + L)) cos(q_k (start + L)) exp(-q_k^2 t/beta), q_k = k pi/(2 L). Source: Carslaw & Jaeger
    1959, chapter 14.

    Raises
    ------
    ValueError
        For t <= 0, beta <= 0 or infinite, length <= 0, or x or start outside the walls.
    """
    x, y, diffused, length = _interval(x, t, start, length, beta)
    if diffused < length**2 / 4:
        gap = x[..., None] - _images(y, length)
        return np.exp(-(gap**2) / (4 * diffused)).sum(-1) / np.sqrt(4 * np.pi * diffused)
    k = np.arange(1, 17) * np.pi / (2 * length)
    return 1 / (2 * length) + (np.cos(k * (x[..., None] + length)) * np.cos(k * (y + length)) * np.exp(-(k**2) * diffused)).sum(-1) / length


def reflected_cdf(x: ArrayLike, t: float, start: float, length: float, beta: float) -> FloatArray:
    """P(X <= x) for `reflected_density`."""
    x, y, diffused, length = _interval(x, t, start, length, beta)
    if diffused < length**2 / 4:
        images, sigma = _images(y, length), np.sqrt(2 * diffused)
        return (ndtr((x[..., None] - images) / sigma) - ndtr((-length - images) / sigma)).sum(-1)
    k = np.arange(1, 17) * np.pi / (2 * length)
    waves = np.sin(k * (x[..., None] + length)) * np.cos(k * (y + length)) * np.exp(-(k**2) * diffused) / (k * length)
    return (x + length) / (2 * length) + waves.sum(-1)


def relaxed(t: FloatArray, start: Any, rate: float, source: Any) -> FloatArray:
    """Solution at the times t of m' = -rate m + source from start; the rate may be 0."""
    return start * np.exp(-rate * t) + source * t * exprel(-rate * t)


def times(t: ArrayLike) -> FloatArray:
    """Finite times of at least 0; ValueError otherwise."""
    t = finite(t, "t")
    if (t < 0).any():
        raise ValueError(f"t must be at least 0, got {t.min()}")
    return t


def inverse_temperature(beta: float) -> float:
    """A positive beta, which may be infinite; ValueError otherwise."""
    value = real(beta, "beta")
    if not value > 0:
        raise ValueError(f"beta must be positive, got {beta!r}")
    return value


def _interval(x: ArrayLike, t: float, start: float, length: float, beta: float) -> tuple[FloatArray, float, float, float]:
    """Checked x and start, t/beta, and length."""
    x, y, length = finite(x, "x"), float(finite(real(start, "start"), "start")), positive(length, "length")
    if np.abs(x).max(initial=0.0) > length or abs(y) > length:
        raise ValueError(f"x and start must lie in [-{length:g}, {length:g}], got {x} and {start!r}")
    return x, y, positive(t, "t") / positive(beta, "beta"), length


def _images(y: float, length: float) -> FloatArray:
    """The mirror images of y that a distance of 0.7 length can feel in float64."""
    shift = 4 * length * np.arange(-2.0, 3.0)
    return np.concatenate([shift + y, shift + 2 * length - y])
