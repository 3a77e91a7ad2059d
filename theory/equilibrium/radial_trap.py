"""Equilibrium measures in radially symmetric external potentials: exact for the Coulomb gas, spectral for Riesz gases above it.

The energy is E(mu) = int V dmu + (strength/2) iint g_s dmu dmu, V a callable of the radius, with or without a hard wall.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import gammaln

from theory.arrays import FloatArray, count, finite, numeric, positive, real
from theory.equilibrium.radial_law import RadialLaw, finite_order, invert, probabilities, radii
from theory.equilibrium.riesz_means import riesz
from theory.equilibrium.riesz_trap import RieszEquilibrium, far_radii, require_confinement

__all__ = ["CoulombEquilibrium", "radial_equilibrium"]

Radial = Callable[[FloatArray], ArrayLike]
LARGEST_RADIUS = 1e9
BALANCE = 1e-6  # by which V must outweigh the repulsion somewhere
TOLERANCE = 1e-8  # of the inequalities that make the measure the minimiser, relative to the range of V


def radial_equilibrium(
    external: Radial, *, dim: int, s: float, strength: float, derivative: Radial | None = None, wall: float = np.inf
) -> CoulombEquilibrium | RieszEquilibrium:
    """Equilibrium measure in the radial potential V(r) for dim - 2 <= s < dim, behind a hard wall |x| = `wall` if that is finite.

    `derivative` is V'(r), used by the Coulomb gas alone (s = dim - 2), otherwise differenced from V. ValueError for s >= dim (infinite
    energy) and for s < dim - 2 (in general no density: see `TrappedSphere`, `RieszBall` and `WallSphere` for the closed forms).
    """
    dim, s = count(dim, "dim"), real(s, "s")
    if not dim - 2 <= s < dim:
        why = "every measure has infinite energy" if s >= dim else "the minimiser may be singular, closed forms: quadratic_trap, hard_wall"
        raise ValueError(f"s must lie in [{dim - 2}, {dim}), got {s!r}: {why}")
    if s == dim - 2:
        return CoulombEquilibrium(external, strength, dim, derivative, wall)
    return RieszEquilibrium(external, strength, dim, s, wall)


def _values(function: Radial, r: FloatArray, name: str) -> FloatArray:
    """The values of the user's function at r, shape of r; ValueError unless it returns finite numbers of that shape."""
    values = finite(function(r), name)
    if values.ndim and values.shape != np.shape(r):
        raise ValueError(f"{name} must have the shape of r, {np.shape(r)}, got {values.shape}")
    return np.broadcast_to(values, np.shape(r))


def _slope(f: Radial, r: FloatArray, width: FloatArray, size: FloatArray) -> FloatArray:
    """f'(r) by central differences with steps width/2^k extrapolated to 0 (Ridders), the estimate of least error for each r.

    `size` is a typical change of f over the width, by which errors are judged.
    """
    steps = [width / 2.0**k for k in range(9)]
    row = [(np.asarray(f(r + h), dtype=float) - np.asarray(f(r - h), dtype=float)) / (2 * h) for h in steps]
    best, error = row[0], np.full(r.shape, np.inf)
    for order in range(1, len(steps)):
        new = [b + (b - a) / (4.0**order - 1) for a, b in pairwise(row)]
        for k, estimate in enumerate(new):
            change = np.maximum(np.abs(estimate - row[k]), np.abs(estimate - row[k + 1]))
            best, error = np.where(change < error, estimate, best), np.minimum(error, change)
        row = new
    size = np.maximum(np.abs(f(r)), np.abs(f(r + width))) / width  # at the origin V and V' may vanish together
    if not (error <= 1e-5 * (np.abs(best) + size)).all():
        raise ValueError("external must be smooth, and even in r unless its derivative is given: its differences do not converge")
    return best


@dataclass(frozen=True)
class CoulombEquilibrium(RadialLaw):
    """Coulomb gas (s = dim - 2) in a radial potential V: by Newton's theorem mu(|x| <= r) = q(r) = r^(dim-1) V'(r)/(strength c).

    c = |dim - 2|, 1 in dim 2. The support is the shell from the minimum of V (a ball if that is 0) to q = 1, with the density
    Laplace V/(strength c |S|); at a hard wall inside q = 1 the remaining mass 1 - q sits on the wall (`wall_mass`, not in `density`).
    Source: Saff & Totik 1997, theorem IV.6.1 (plane); Serfaty 2015.

    Parameters
    ----------
    external
        V(r): callable of an array of radii r >= 0, twice differentiable, and even in r if no derivative is given.
    strength
        Strength of the interaction.
    dim
        Dimension of space.
    derivative
        V'(r); None to difference V (some ten digits, the density nine).
    wall
        Radius of a hard wall; infinite for none.

    Raises
    ------
    ValueError
        If V does not confine (q < 1 + 1e-6 up to r = 1e9 without a wall, or V + strength g*mu falls far out for s <= 0), has an atom at
        the origin, or the support is not one shell: q decreases inside it or V + strength g*mu falls below its value there elsewhere.
    """

    external: Radial
    strength: float
    dim: int = 2
    derivative: Radial | None = None
    wall: float = np.inf

    def __post_init__(self) -> None:
        count(self.dim, "dim")
        positive(self.strength, "strength")
        if not real(self.wall, "wall") > 0:
            raise ValueError(f"wall must be positive, got {self.wall!r}")
        for name in ("external", "derivative"):
            if not callable(getattr(self, name)) and (name == "external" or self.derivative is not None):
                raise ValueError(f"{name} must be callable, got {getattr(self, name)!r}")
        self._check()

    @property
    def s(self) -> float:  # type: ignore[override]
        """Riesz exponent dim - 2."""
        return float(self.dim - 2)

    @cached_property
    def radius(self) -> float:
        """Outer radius of the support."""
        return self._shell[1]

    @cached_property
    def inner_radius(self) -> float:
        """Inner radius of the support, 0 for a ball."""
        return self._shell[0]

    @cached_property
    def wall_mass(self) -> float:
        """Mass on the hard wall."""
        return float(np.clip(1 - self._enclosed(np.array(self.radius)), 0, 1)) if self.radius == self.wall else 0.0

    @property
    def multiplier(self) -> float:
        """Value of V + strength g*mu on the support."""
        return float(self._external(np.array(self.radius)) + self.strength * riesz(self.radius, self.s))

    @cached_property
    def energy(self) -> float:
        """int V dmu + (strength/2) iint g dmu dmu: half of the multiplier and of int V dmu."""
        spent = self._integral(lambda r: float(self._force(np.array(r))))
        return float((self.multiplier + self._external(np.array(self.radius)) - spent) / 2)

    @cached_property
    def residual(self) -> float:
        """Largest |V + strength g*mu - multiplier| at 33 radii of the support, by quadrature of the law of |x| over spheres."""
        r = np.linspace(self.inner_radius, self.radius, 34)[1:]
        return max(abs(float(self._external(p) + self.strength * self._mean_interaction(float(p)) - self.multiplier)) for p in r)

    def density(self, x: ArrayLike) -> FloatArray:
        """Density at x (..., dim), shape (...), without the mass on the wall; zero off the support."""
        r = radii(x, self.dim)
        inside = (r >= self.inner_radius) & (r <= self.radius)
        return np.where(inside, self._laplacian(np.where(inside, r, self.radius)) / (self.strength * self._charge * self._sphere), 0.0)

    def radial_cdf(self, r: ArrayLike) -> FloatArray:
        """P(|x| <= r), shape of r; a jump of `wall_mass` at the wall."""
        r = finite(r, "r")
        inside = (r > self.inner_radius) & (r < self.radius)
        return np.where(inside, np.clip(self._enclosed(np.where(inside, r, self.radius)), 0, 1), (r >= self.radius).astype(float))

    def radial_quantile(self, u: ArrayLike) -> FloatArray:
        """Inverse of `radial_cdf` for u in [0, 1], shape of u: the wall for the last `wall_mass`."""
        u = probabilities(u)
        free = u < 1 - self.wall_mass
        found = invert(self.radial_cdf, np.where(free, u, 0.5 * (1 - self.wall_mass)), self.inner_radius, self.radius)
        return np.where(free, found, self.radius)

    def cdf(self, x: ArrayLike) -> FloatArray:
        """P(X <= x) on the line, shape of x or (n,) of (n, 1); ValueError unless dim = 1."""
        inner = super().cdf(x)
        at_left_wall = np.abs(np.asarray(x, dtype=float).reshape(inner.shape) + self.radius) == 0
        return np.where(at_left_wall, self.wall_mass / 2, inner)

    def moment(self, order: float) -> float:
        """E |x|^order for order > -dim."""
        order = finite_order(order, -self.dim)
        return float(self.radius**order - order * self._integral(lambda r: r ** (order - 1)))

    def potential(self, x: ArrayLike) -> FloatArray:
        """V + strength g*mu at x (..., dim), shape (...): the multiplier on the support, more elsewhere up to a wall."""
        return self._potential(radii(x, self.dim))

    @property
    def _charge(self) -> float:
        return float(abs(self.dim - 2) or 1)

    @property
    def _sphere(self) -> float:
        return float(2 * np.pi ** (self.dim / 2) / np.exp(gammaln(self.dim / 2)))

    def _external(self, r: FloatArray) -> FloatArray:
        return _values(self.external, r, "external(r)")

    def _force(self, r: FloatArray) -> FloatArray:
        """V'(r)."""
        if self.derivative is not None:
            return _values(self.derivative, r, "derivative(r)")
        width = np.maximum(self._width, r / 10)
        return _slope(lambda t: self._external(np.abs(t)), r, width, self.strength * width ** (2.0 - self.dim))

    def _laplacian(self, r: FloatArray) -> FloatArray:
        """V'' + (dim - 1) V'/r, dim V'' at the origin."""
        width = np.asarray(self._width)
        second = _slope(lambda t: np.sign(t) * self._force(np.abs(t)), r, width, self.strength * width ** (1.0 - self.dim))
        return second + (self.dim - 1) * np.where(r > 0, self._force(r) / np.where(r > 0, r, 1.0), second)

    @cached_property
    def _width(self) -> float:
        """Step of the differences: a tenth of the radius at which an even V has changed by strength r^(2 - dim), or of the wall."""
        r = np.geomspace(1e-150, LARGEST_RADIUS, 4001)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            rise = np.abs(numeric(self.external(r), "external(r)") - numeric(self.external(np.zeros(1)), "external(r)"))
            place = int(np.argmax(~(np.broadcast_to(rise, r.shape) * r ** (self.dim - 2) < self.strength)))
        return float(min(r[place] if place else 1.0, self.wall) / 10)

    def _enclosed(self, r: FloatArray) -> FloatArray:
        """q(r)."""
        return r ** (self.dim - 1) * self._force(r) / (self.strength * self._charge)

    @cached_property
    def _shell(self) -> tuple[float, float]:
        """Inner and outer radius of the support."""
        low, high = self._outer_bracket()
        outer = float(brentq(lambda r: self._scalar_enclosed(r) - 1, low, high, xtol=1e-300, rtol=1e-15)) if low < high else high
        r = np.linspace(0, outer, 2049)
        lowest = int(np.argmin(self._external(r)))
        if lowest == 0:
            return 0.0, outer
        if lowest == r.size - 1:
            return outer, outer  # V decreases up to the wall, which bears everything
        return float(brentq(lambda t: float(self._force(np.array(t))), r[lowest - 1], r[lowest + 1], xtol=1e-300, rtol=1e-15)), outer

    def _outer_bracket(self) -> tuple[float, float]:
        """Radii around the first crossing of q = 1 that a geometric scan sees up to the wall or 1e9; the wall twice if q < 1 there."""
        last = min(float(self.wall), LARGEST_RADIUS)
        low, high = 0.0, min(self._width, last)
        # a crossing counts without a wall only if q exceeds 1 by more than rounding: V = log r, say, tends to q = 1 from below
        while self._scalar_enclosed(high) < (1 if last == self.wall else 1 + BALANCE):
            if high >= last:
                if last == self.wall:
                    return high, high
                raise ValueError(f"external must confine: r^(dim-1) V'(r) stays below strength |dim - 2| up to r = {last:g}")
            low, high = high, min(1.2 * high, last)
        return (low, high) if self._scalar_enclosed(low) < 1 else (low / 1.2, low)

    def _scalar_enclosed(self, r: float) -> float:
        return float(self._enclosed(np.array(r))) if r > 0 else 0.0

    def _integral(self, weight: Callable[[float], float]) -> float:
        """Integral of weight times q over the shell."""
        return float(quad(lambda r: weight(r) * float(self._enclosed(np.array(r))), *self._shell, epsabs=1e-13, epsrel=1e-12, limit=200)[0])

    def _potential(self, r: FloatArray) -> FloatArray:
        low, high = self._shell
        change = self._external(np.minimum(r, low)) - self._external(np.array(low))
        far = np.maximum(r, high)
        rise = self._external(far) - self._external(np.array(high)) + self.strength * (riesz(far, self.s) - riesz(high, self.s))
        return self.multiplier + change + rise

    def _mean_interaction(self, r: float) -> float:
        """g*mu at radius r: g at the larger radius, averaged over the law of |x| by parts."""
        outside = quad(
            lambda t: self._charge * t ** -(self.s + 1) * float(self.radial_cdf(np.array(t))), r, self.radius, epsabs=1e-13, epsrel=1e-12
        )[0]
        return float(riesz(self.radius, self.s) + outside)

    def _check(self) -> None:
        """Raise unless q rises over the shell and V + strength g*mu is least there."""
        low, high = self._shell
        if self.derivative is None and np.spacing(np.abs(self._external(np.array(high)))) > 1e-9 * self.strength * high ** (2 - self.dim):
            raise ValueError("external must be free of a large constant, in which its differences drown, or come with its derivative")
        with np.errstate(all="ignore"):
            atom = float(self._enclosed(np.array(high * 1e-12))) if low == 0 else 0.0
        if not abs(atom) < 1e-3:
            raise ValueError(f"external must not hold an atom at the origin: r^(dim-1) V' is {atom * self.strength * self._charge:g} there")
        q = self._enclosed(np.linspace(low, high, 2049)[1:])
        if (np.diff(q) < -TOLERANCE).any():
            raise ValueError("the support is not one shell: r^(dim-1) V'(r) decreases inside it, so that it has gaps")
        r = np.r_[np.linspace(0, low, 257), np.linspace(high, min(4 * high, self.wall), 257), far_radii(self.external, high, self.wall)]
        spread = np.ptp(self._external(np.linspace(0, high, 257))) + self.strength * high**-self.s
        if self.s <= 0 and self.wall == np.inf:
            require_confinement(r, self._potential(r))
        if not self._potential(r).min() >= self.multiplier - TOLERANCE * spread:
            raise ValueError(f"the support is not one shell: mass would leave it for r = {r[self._potential(r).argmin()]:g}")
