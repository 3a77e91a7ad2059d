"""The Riesz, Coulomb and log repulsion between particles; the sums over pairs are in `particles.pairwise`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from particles.arrays import Array, as_omega, flag, is_torch, positive, real
from particles.energy import Energy
from particles.pairwise import METHODS, choose, gaps, riesz_sums
from particles.random import Key
from particles.targets import sum64


@dataclass(frozen=True)
class Riesz(Energy):
    """strength * W_N, W_N = 1/(2N(N-1)) sum_{k != l} g_s(omega_k - omega_l): a repulsion.

    g_s(w) = |w|^-s (s > 0), -log |w| (s = 0), -|w|^|s| (-2 < s < 0); the force is always repulsive. For s >= dim no mean-field limit
    exists (the continuum energy is infinite); finite systems are fine, and so is the limit of a softened or truncated kernel.

    Parameters
    ----------
    s : real number above -2, or "coulomb" for dim - 2.
    strength : lambda of the Coulomb paper, at least 0.
    softening : |w|^2 becomes |w|^2 + softening^2.
    length : distances are measured in this unit.
    mirror : also let omega_k repel -omega_l (k != l), as omega and -omega are one feature of a real kernel.
    truncation : g_s(max(|w|, truncation)), min(r^-s, truncation^-s) of the paper's large-deviation proof: no force inside. Not together
        with softening.
    period : the torus with this period, one number or one per coordinate. Distances are chords, |w|^2 = sum_a (period_a / pi)^2
        sin^2(pi w_a / period_a), in float64: for dim = 1, s = 0 the circular ensemble of random matrices (Dyson 1962). "coulomb" remains
        dim - 2.
    method : "direct" (all pairs), "tree" or "fmm" (dim <= 3, see `particles.fast_sum`), "random_batch" (unbiased and noisy), or "auto":
        the fastest that errs by at most `tolerance`.
    tolerance : allowed error of the force field, root mean square relative to its size; 0 allows direct sums only. The energy errs less.
        MALA and HMC sample the law of the approximate energy exactly: its force is a function of omega alone, which is all that their
        test needs. That law is the intended one as far as the error of beta N H_N is small compared with 1.

    Coincident pairs: for softening 0, no truncation and s >= 0 the energy is +inf and the pair exerts no force; otherwise both are exact.
    Raises ValueError on inputs that do not fit, OverflowError where distances or forces exceed the range of omega's dtype.
    """

    term: ClassVar[str] = "riesz"
    bodies: ClassVar[int | None] = 2
    s: float | str
    strength: float
    softening: float = 0.0
    length: float = 1.0
    mirror: bool = False
    truncation: float | None = None
    period: float | tuple[float, ...] | None = None
    method: str = "auto"
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        if self.s != "coulomb":
            if not isinstance(self.s, str):
                object.__setattr__(self, "s", real(self.s, "s"))
            if isinstance(self.s, str) or self.s <= -2:
                raise ValueError(f"s must be a real number above -2 (0 is the log) or 'coulomb', got {self.s!r}")
        for name, zero in (("strength", True), ("softening", True), ("length", False), ("tolerance", True)):
            object.__setattr__(self, name, positive(getattr(self, name), name, zero=zero))
        if self.tolerance >= 1:
            raise ValueError(f"tolerance must be below 1, got {self.tolerance!r}")
        object.__setattr__(self, "mirror", flag(self.mirror, "mirror"))
        if self.truncation is not None:
            object.__setattr__(self, "truncation", positive(self.truncation, "truncation"))
        object.__setattr__(self, "period", as_period(self.period))
        self._check_combination()

    def _check_combination(self) -> None:
        """ValueError for options that exclude each other."""
        if self.truncation is not None and self.softening:
            raise ValueError(f"truncation must be None when softening is given, got {self.truncation!r} and softening {self.softening!r}")
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, got {self.method!r}")
        if self.method in ("tree", "fmm") and self.tolerance == 0:
            raise ValueError(f"tolerance must be positive for method {self.method!r}, got 0; sums without error are 'direct'")
        if self.method not in ("auto", "direct") and self.truncation is not None:
            raise ValueError(f"method must be 'direct' or 'auto' with a truncation, got {self.method!r}")
        if self.method == "fmm" and (self.s not in ("coulomb", 1.0) or self.softening or self.period is not None):
            raise ValueError(f"method 'fmm' needs s = 1, no softening and no period, got {self!r}")

    @property
    def minibatched(self) -> bool:
        """Whether pairs are drawn at random (`method="random_batch"`), so that gradients need a key."""
        return self.method == "random_batch"

    def exponent(self, dim: int) -> float:
        """s as a number in dimension `dim`."""
        return dim - 2.0 if isinstance(self.s, str) else self.s

    def choices(self, omega: Array) -> dict[str, str]:
        """{"riesz": the algorithm and back end that evaluate this omega}."""
        s = self.exponent(omega.shape[-1])
        picked = choose(self.method, omega, s, self.tolerance, truncation=self.truncation, period=self.period)
        return {self.term: f"{picked} ({'torch' if is_torch(omega) and picked == 'direct' else 'numba'})"}

    def value(self, omega: Array) -> Array:
        """strength W_N over all pairs, of omega's leading shape, also with random batches."""
        method = "direct" if self.minibatched else self.method
        return self._sums(as_omega(omega), method, None, True)[0]

    def _evaluate(self, omega: Array, key: Key | None, want_value: bool) -> tuple[Array, Array]:
        return self._sums(omega, self.method, key, want_value)

    def _sums(self, omega: Array, method: str, key: Key | None, want_value: bool) -> tuple[Array, Array]:
        n, s = omega.shape[-2], self.exponent(omega.shape[-1])
        if self.strength == 0:
            nothing = omega * 0.0
            return sum64(nothing, (-2, -1)), nothing
        total, gradient = riesz_sums(
            omega, s, softening=self.softening, length=self.length, mirror=self.mirror, truncation=self.truncation, period=self.period,
            method=method, tolerance=self.tolerance, key=key, energy=want_value,
        )  # fmt: skip
        pairs = max(n - 1, 1)
        gradient *= self.strength / pairs
        return total * (self.strength / (2 * n * pairs)), gradient

    def diagnostics(self, omega: Array) -> dict[str, Array]:
        """coincident: pairs at distance 0; min_gap: smallest distance of a pair (with `mirror`, also of omega_k and -omega_l)."""
        coincident, gap = gaps(as_omega(omega), mirror=self.mirror, period=self.period)
        return {"coincident": coincident, "min_gap": gap}

    def describe(self) -> dict[str, Any]:
        """Name and settings as JSON values."""
        fields = ("s", "strength", "softening", "length", "mirror", "truncation", "period", "method", "tolerance")
        period = list(self.period) if isinstance(self.period, tuple) else self.period
        return {"name": "Riesz", **{f: getattr(self, f) for f in fields}, "period": period}


def as_period(period: Any) -> float | tuple[float, ...] | None:
    """A period as one number or one per coordinate, checked; None stays None."""
    if period is None:
        return None
    if np.ndim(period) == 0:
        return positive(period, "period")
    if np.ndim(period) != 1 or not len(period):
        raise ValueError(f"period must be one number or one per coordinate, got {period!r}")
    return tuple(positive(p, "period") for p in period)
