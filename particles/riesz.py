"""The Riesz, Coulomb and log repulsion between particles; the sums over pairs are in `particles.pairwise`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from particles.arrays import Array, as_omega, flag, positive, real
from particles.energy import Energy
from particles.pairwise import gaps, riesz_sums
from particles.random import Key


@dataclass(frozen=True)
class Riesz(Energy):
    """strength * W_N, W_N = 1/(2N(N-1)) sum_{k != l} g_s(omega_k - omega_l): a repulsion.

    g_s(w) = |w|^-s (s > 0), -log |w| (s = 0), -|w|^|s| (-2 < s < 0); the force is always repulsive. For s >= dim no mean-field limit
    exists (the continuum energy is infinite); finite systems are fine.

    Parameters
    ----------
    s : real number above -2, or "coulomb" for dim - 2.
    strength : lambda of the Coulomb paper, at least 0.
    softening : |w|^2 becomes |w|^2 + softening^2.
    length : distances are measured in this unit.
    mirror : also let omega_k repel -omega_l (k != l), as omega and -omega are one feature of a real kernel.

    Coincident pairs: for softening 0 and s >= 0 the energy is +inf and the pair exerts no force; otherwise both are exact.
    Raises OverflowError where distances or forces exceed the range of omega's dtype.
    """

    term: ClassVar[str] = "riesz"
    s: float | str
    strength: float
    softening: float = 0.0
    length: float = 1.0
    mirror: bool = False

    def __post_init__(self) -> None:
        if self.s != "coulomb":
            if not isinstance(self.s, str):
                object.__setattr__(self, "s", real(self.s, "s"))
            if isinstance(self.s, str) or self.s <= -2:
                raise ValueError(f"s must be a real number above -2 (0 is the log) or 'coulomb', got {self.s!r}")
        for name, zero in (("strength", True), ("softening", True), ("length", False)):
            object.__setattr__(self, name, positive(getattr(self, name), name, zero=zero))
        object.__setattr__(self, "mirror", flag(self.mirror, "mirror"))

    def exponent(self, dim: int) -> float:
        """s as a number in dimension `dim`."""
        return dim - 2.0 if isinstance(self.s, str) else self.s

    def _evaluate(self, omega: Array, key: Key | None, want_value: bool) -> tuple[Array, Array]:
        n, s = omega.shape[-2], self.exponent(omega.shape[-1])
        total, gradient = riesz_sums(omega, s, softening=self.softening, length=self.length, mirror=self.mirror, energy=want_value)
        pairs = max(n - 1, 1)
        return total * (self.strength / (2 * n * pairs)), gradient * (self.strength / pairs)

    def diagnostics(self, omega: Array) -> dict[str, Array]:
        """coincident: pairs at distance 0; min_gap: smallest distance of a pair (with `mirror`, also of omega_k and -omega_l)."""
        coincident, gap = gaps(as_omega(omega), mirror=self.mirror)
        return {"coincident": coincident, "min_gap": gap}

    def describe(self) -> dict[str, Any]:
        fields = ("s", "strength", "softening", "length", "mirror")
        return {"name": "Riesz", **{f: getattr(self, f) for f in fields}}
