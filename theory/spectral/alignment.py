"""The alignment potential of two Gaussian classes in closed form: what random Fourier features should look for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from theory.arrays import FloatArray, finite, real

__all__ = ["GaussianClasses"]


@dataclass(frozen=True)
class GaussianClasses:
    """Inputs x | y ~ N(y mean, I) with labels y = +1 with probability p, else -1, and phase-averaged Fourier features.

    The one-particle potential of infinitely much data (the Coulomb paper's V_D) is minus the squared transform of y times the law of x,
    V(w) = -|E[y exp(i w.x)]|^2 = -exp(-|w|^2) [sin^2 w.mean + (2p - 1)^2 cos^2 w.mean].
    It is the expectation of V_D over n independent inputs, for every n.

    Attributes
    ----------
    mean
        (dim,), not zero.
    p
        Probability of the class +1, in [0, 1].
    """

    mean: tuple[float, ...]
    p: float = 0.5

    def __post_init__(self) -> None:
        mean = finite(self.mean, "mean")
        if mean.ndim != 1 or not mean.any():
            raise ValueError(f"mean must be a vector (dim,) that is not zero, got {self.mean!r}")
        if not 0 <= real(self.p, "p") <= 1:
            raise ValueError(f"p must lie in [0, 1], got {self.p!r}")
        object.__setattr__(self, "mean", tuple(mean.tolist()))

    @property
    def imbalance(self) -> float:
        """(2p - 1)^2."""
        return (2 * self.p - 1) ** 2

    def potential(self, w: ArrayLike) -> FloatArray:
        """V at w (..., dim), (...)."""
        w = self._points(w)
        return -np.exp(-np.sum(w**2, -1)) * (self.imbalance + (1 - self.imbalance) * np.sin(w @ np.array(self.mean)) ** 2)

    def gradient(self, w: ArrayLike) -> FloatArray:
        """Gradient of V at w (..., dim), (..., dim)."""
        w = self._points(w)
        turn = (1 - self.imbalance) * np.exp(-np.sum(w**2, -1)) * np.sin(2 * (w @ np.array(self.mean)))
        return -2 * w * self.potential(w)[..., None] - turn[..., None] * np.array(self.mean)

    def maximiser(self) -> FloatArray:
        """The w (dim,) of greatest alignment -V, along +mean; -w is the other one.

        At distance r with r (A - B cos 2rm) = B m sin 2rm, A = (1 + (2p-1)^2)/2, B = 1 - A, m = |mean|: tan(rm) = m/r for equal classes.
        It is the one root in (0, pi/2m), and exists where (1 - (2p-1)^2) m^2 > (2p-1)^2; otherwise the classes' sizes say more than their
        places and the maximiser is 0.
        """
        length, q = float(np.linalg.norm(self.mean)), self.imbalance
        if (1 - q) * length**2 <= q:
            return np.zeros(len(self.mean))
        excess = 1 - q / ((1 - q) * length**2)  # r^2 tends to excess/(1 + 2 m^2/3) as it falls to 0

        def slope(r: float) -> float:
            sine, cosine = np.sin(r * length), np.cos(r * length)
            return r * (q + (1 - q) * sine**2) - (1 - q) * length * sine * cosine

        least = 0.1 * np.sqrt(excess / (1 + length**2))
        r = brentq(slope, least, np.pi / (2 * length), xtol=1e-300)
        return r / length * np.array(self.mean)

    def _points(self, w: ArrayLike) -> FloatArray:
        w = finite(w, "w")
        if w.ndim == 0 or w.shape[-1] != len(self.mean):
            raise ValueError(f"w must have shape (..., {len(self.mean)}), got {w.shape}")
        return w
