"""Second derivatives of products of Gamma functions, which variances of energies are, to rounding at every temperature."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import polygamma

from theory.arrays import FloatArray

__all__ = ["curvature"]


def curvature(above: ArrayLike, below: ArrayLike, *, excess: float, below_two: ArrayLike = ()) -> float:
    """Sum of x^2 (log Gamma)''(1 + x) over `above` less that over `below` and of x^2 (log Gamma)''(2 + x) over `below_two`, less `excess`.

    These are the x = beta p of prod Gamma(1 + x) / (prod Gamma(1 + x) prod Gamma(2 + x)), x > -1 (> -2 in `below_two`), and `excess` is the
    sum of those above less the sum of those below, exactly. Each term is nearly x where x is large, and what is wanted is of order 1
    there: x is taken from each by Stirling's series from 30 on. Where all are small terms of order x^2 are wanted, and nothing is taken.
    """
    above, below, two = (np.asarray(part, dtype=np.float64) for part in (above, below, below_two))
    large = bool(max(np.max(part, initial=0.0) for part in (above, below, two)) > 1)
    terms = [np.sum(_term(above, 1, large)), -np.sum(_term(below, 1, large)), -np.sum(_term(two, 2, large))]
    return float(sum(terms) - (0.0 if large else excess))


def _term(x: FloatArray, first: int, large: bool) -> FloatArray:
    """x^2 (log Gamma)''(first + x), less x if `large`; first is 1 or 2."""
    near, far = np.minimum(x, 30.0), np.maximum(x, 30.0)
    series = -1 / 2 + 1 / (6 * far) - 1 / (30 * far**3) + 1 / (42 * far**5) - 1 / (30 * far**7) + 5 / (66 * far**9)
    return np.where(x < 30, near**2 * polygamma(1, first + near) - large * near, series - (first - 1) * (far / (1 + far)) ** 2)
