"""Large deviations of the empirical measure mu_N under the Gibbs law exp(-beta N H_N): how unlikely another density is, and why.

At fixed beta, P(mu_N near rho) = exp(-N J(rho)) with J = beta (F(rho) - min F), F the free energy of `MeanField` (the Coulomb paper,
theorem 2, is beta = 1 here: its beta_N is beta N). Where beta grows with N the entropy drops out: speed beta N, J = E(rho) - min E.
Both need a finite energy: s < dim, or a truncated interaction (Chafai, Gozlan & Zitt 2014; Garcia-Zelada 2019). The published theorem
asks for s > dim, where E is infinite for every probability measure (`require_finite_energy`).

What a linear statistic does follows by contraction: P((1/N) sum f(x_k) near a) = exp(-N sup_theta [theta a - Lambda(theta)]), with
Lambda(theta) = lim (1/N) log E exp(theta sum f) = beta (min F - min F_theta), F_theta that of the potential V - theta f/beta.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import betaincinv, xlogy

from theory.arrays import FloatArray, count, finite, positive, real
from theory.equilibrium import riesz_means
from theory.mean_field.solver import MeanField
from theory.mean_field.stationary import Stationary

__all__ = ["Deviation", "EmpiricalRate", "EnergyRate", "GibbsRate", "confinement_rate", "empirical_rate", "require_finite_energy", "riesz"]


def require_finite_energy(s: float, dim: int, truncation: float | None = None) -> None:
    """Raise ValueError unless some probability measure on R^dim has a finite Riesz energy of exponent s.

    For s >= dim, iint |x - y|^-s mu(dx) mu(dy) is infinite for every probability measure (the Riesz capacity of R^dim is zero: Landkof
    1972, chapter 2), so that a rate E - min E reads infinity minus infinity. In finite systems the least W_N then grows without bound, as
    N^(s/dim - 1), or log N for s = dim (Hardin & Saff 2005). A truncation, g(max(r, truncation)), keeps every energy finite.
    """
    dim = count(dim, "dim")
    if not -2 < real(s, "s") < np.inf:
        raise ValueError(f"s must be finite and above -2, got {s!r}")
    if truncation is not None:
        positive(truncation, "truncation")
    elif not s < dim:
        raise ValueError(
            f"s must be below dim = {dim}, got {s!r}: from dim on the Riesz energy of every probability measure is infinite, and the "
            "rate function infinity minus infinity; pass a truncation"
        )


def riesz(s: float, strength: float, dim: int, *, truncation: float | None = None) -> Callable[[FloatArray], FloatArray]:
    """strength * g_s(max(r, truncation)) of the distance r > 0, as `MeanField` takes it: r^-s, -log r for s = 0, -r^|s| for s < 0.

    `MeanField` averages it over cells: choose a uniform grid whose width divides the truncation, so that the kink falls between cells.

    Raises
    ------
    ValueError
        For s >= dim without a truncation: see `require_finite_energy`.
    """
    require_finite_energy(s, dim, truncation)
    s, strength, least = float(s), float(finite(real(strength, "strength"), "strength")), 0.0 if truncation is None else float(truncation)
    return lambda r: strength * riesz_means.riesz(np.maximum(r, least), s)


class Deviation(NamedTuple):
    """The cheapest way for a linear statistic to take a value.

    Attributes
    ----------
    rate
        J(a) = theta a - Lambda(theta): -log of the probability over N.
    tilt
        theta: the particles behave as if the potential were V - theta f/beta.
    rho
        Their density, on the cells.
    """

    rate: float
    tilt: float
    rho: FloatArray


class GibbsRate:
    """The rate function at fixed beta; the speed is the number of particles.

    Parameters
    ----------
    field
        The mean-field limit, on any mesh. Its walls are the particles' walls; a grid that ends where nothing forces it to must reach
        well beyond the densities that are asked for.
    start
        A density from which the minimiser of F is sought (default: the Gibbs density of V). Where F is not convex (attraction) it may have
        several local minima: the caller picks the lowest, for example from `field.stationary_states`.

    Raises
    ------
    ValueError
        If field is no MeanField, or start is no density of mass 1 on its cells.

    Notes
    -----
    The Legendre transform is the rate of a linear statistic where Lambda is differentiable (Gaertner-Ellis), as it is for a convex F.
    At a phase transition it is not: `linear_statistic` then raises for the values a that the tilted states jump over.
    """

    def __init__(self, field: MeanField, *, start: ArrayLike | None = None):
        self.field = require_mean_field(field, "field")
        self.beta = field.beta
        self._start = None if start is None else _starting(field, start)

    @cached_property
    def minimum(self) -> Stationary:
        """The density that the particles converge to; ValueError if the one found is no minimum."""
        found = _settled(self.field, self._start)
        if (level := self.field.stability(found.rho)) <= 0:
            raise ValueError(
                f"start must lead to a minimum of F, the state found has a direction of curvature {level:g}: give another start"
            )
        return found

    @cached_property
    def free_energy(self) -> float:
        """min F: the limit of -log Z_N / (N beta)."""
        return self.minimum.free_energy

    def rate(self, rho: ArrayLike) -> float:
        """J(rho) = beta (F(rho) - min F) of a density on the cells; ValueError if its F is lower than the minimum found."""
        rate = self.beta * (self.field.free_energy(rho) - self.free_energy)
        if rate < -1e-9 * (1 + abs(self.beta * self.free_energy)):
            raise ValueError(f"rho lies below the minimum of F that start leads to, by {-rate / self.beta:g}: give that minimum as start")
        return rate

    def cumulant(self, f: ArrayLike, theta: float) -> float:
        """Lambda(theta) of the statistic (1/N) sum f, f given by its averages over the cells; along the branch of the minimum."""
        field = self.tilted(self._statistic(f), float(finite(real(theta, "theta"), "theta")))
        return self.beta * (self.free_energy - field.free_energy(_settled(field, self.minimum.rho).rho))

    def tilted(self, f: FloatArray, theta: float) -> MeanField:
        """The mean field in the potential V - theta f/beta."""
        field = copy.copy(self.field)  # the kernel is shared
        field.external = self.field.external - theta / self.beta * f
        return field

    def linear_statistic(self, f: ArrayLike, value: float) -> Deviation:
        """The rate at which (1/N) sum f(x_k) is found near `value`, f given by its averages over the cells.

        The mean of f increases with the tilt, which is found by bracketing.

        Raises
        ------
        ValueError
            If `value` is not strictly between the extremes of f, or if no tilt reaches it.
        """
        f, value = self._statistic(f), real(value, "value")
        if not f.min() < value < f.max():
            raise ValueError(f"value must lie strictly between the extremes {f.min():g} and {f.max():g} of f, got {value!r}")
        theta, rho = _Path(self, f).reach(value)
        cumulant = self.beta * (self.free_energy - self.tilted(f, theta).free_energy(rho))
        return Deviation(theta * value - cumulant, theta, rho)

    def _statistic(self, f: ArrayLike) -> FloatArray:
        f = finite(f, "f")
        if f.shape != self.minimum.rho.shape:
            raise ValueError(f"f must have one value a cell, shape {self.minimum.rho.shape}, got {f.shape}")
        return f


def require_mean_field(field: Any, name: str) -> MeanField:
    """The mean field; ValueError for anything else."""
    if not isinstance(field, MeanField):
        raise ValueError(f"{name} must be a MeanField, got {field!r}")
    return field


class _Path:
    """Tilted densities along the branch that starts at the minimiser, or, where branches coexist, along the lower one."""

    def __init__(self, law: GibbsRate, f: FloatArray):
        self.law, self.f, self.starts = law, f, [law.minimum.rho]

    def state(self, theta: float) -> Stationary:
        """The lowest of the stationary states at the tilt theta that the starts lead to."""
        field, found = self.law.tilted(self.f, theta), []
        for start in self.starts:
            state = field.stationary(start)
            found += [state] if state.converged else []
        if not found:
            raise ValueError(f"no stationary density was found at the tilt {theta:g}: is the grid wide enough for it?")
        return min(found, key=lambda state: state.free_energy)

    def mean(self, rho: FloatArray) -> float:
        """Mean of f."""
        return self.law.field.mesh.integral(rho * self.f)

    def reach(self, value: float) -> tuple[float, FloatArray]:
        """The tilt at which the mean of f is `value`, and the density there; ValueError at a phase transition."""
        near, far, beyond = self._bracket(value)
        if far == 0:
            return 0.0, beyond
        for starts in (self.starts, [*self.starts, beyond]):
            try:
                self.starts = starts
                theta = float(brentq(lambda t: self.mean(self.state(t).rho) - value, near, far, xtol=1e-12 * abs(far), rtol=1e-14))
                found = self.state(theta)
                self.starts = [beyond]
                lowest = self.state(theta).free_energy > found.free_energy - 1e-9 * (1 + abs(found.free_energy))
            except ValueError:  # a branch ends, or jumps over the change of sign
                continue
            if lowest and abs(self.mean(found.rho) - value) < 1e-7 * np.ptp(self.f):
                return theta, found.rho
        raise ValueError(f"value = {value!r} lies where the tilted states jump: at a phase transition the Legendre transform is no rate")

    def _bracket(self, value: float) -> tuple[float, float, FloatArray]:
        """Two tilts on either side of the value (0 and 0 at the mean), and the density at the second; `starts` moves to the first."""
        start = self.starts[0]
        mean = self.mean(start)
        near, far = 0.0, (value - mean) / self.law.field.mesh.integral(start * (self.f - mean) ** 2)  # Newton's step for free particles
        for _ in range(60):
            state = self.state(far)
            if (self.mean(state.rho) - value) * (value - mean) >= 0:
                return near, far, state.rho
            near, far, self.starts = far, 2 * far, [state.rho]
        raise ValueError(f"value = {value!r} is out of reach: a tilt of {near:g} brings the mean of f to {self.mean(state.rho):g}")


def _starting(field: MeanField, start: ArrayLike) -> FloatArray:
    """`start` as a density on the field's cells; ValueError otherwise."""
    start = finite(start, "start")
    try:
        return field.density(start)
    except ValueError as error:
        raise ValueError(f"start must be a density on the cells: {error}") from None


def _settled(field: MeanField, start: ArrayLike | None) -> Stationary:
    """A stationary density whose equation is solved; RuntimeError otherwise."""
    found = field.stationary(start)
    if not found.converged:
        raise RuntimeError(f"no stationary density was found: the Euler-Lagrange residual is {found.residual:g}; give a better start")
    return found


class EnergyRate:
    """The rate function where beta grows without bound with N: speed beta N, J = E - min E, without entropy.

    Parameters
    ----------
    field
        A mean field, for E(rho) = int V rho + (1/2) iint g rho rho on its mesh; its beta plays no part.
    minimum
        min E: a number, or an equilibrium measure (anything with `.energy`), as `Semicircle(kappa, strength)`.
    """

    def __init__(self, field: MeanField, minimum: Any):
        self.field = require_mean_field(field, "field")
        self.minimum = float(finite(real(getattr(minimum, "energy", minimum), "minimum"), "minimum"))

    def energy(self, rho: ArrayLike) -> float:
        """E(rho) of a density on the cells."""
        rho = finite(rho, "rho")
        return self.field.free_energy(rho) - self.field.mesh.integral(xlogy(rho, rho)) / self.field.beta

    def rate(self, rho: ArrayLike) -> float:
        """E(rho) - min E; negative only by the error of the mesh."""
        return self.energy(rho) - self.minimum


def confinement_rate(field: MeanField, confined: MeanField) -> float:
    """lim -(1/N) log P(all particles lie in the domain of `confined`), the same model on a smaller domain: beta times the rise of min F.

    With `confined` ending at x this is the left tail of the largest particle; two intervals are not one mesh, so no holes. ValueError if
    one is no MeanField or their beta differ.
    """
    if require_mean_field(field, "field").beta != require_mean_field(confined, "confined").beta:
        raise ValueError(f"confined must have beta = {field.beta!r}, got {confined.beta!r}")
    return field.beta * (GibbsRate(confined).free_energy - GibbsRate(field).free_energy)


class EmpiricalRate(NamedTuple):
    """-log(p)/speed of an observed frequency p with an exact confidence interval.

    Attributes
    ----------
    rate
        The estimate; infinite if the event was never seen.
    low, high
        Clopper-Pearson interval. Never seen: `high` is infinite. Always seen: `low` is 0.
    """

    rate: float
    low: float
    high: float


def empirical_rate(successes: ArrayLike, n_trials: int, speed: float, *, level: float = 0.95) -> EmpiricalRate:
    """The rate of an event seen in some of n_trials independent trials.

    Parameters
    ----------
    successes
        How often it was seen, or an array (n_trials,) of booleans.
    n_trials
        Independent trials. Frames of a Markov chain are not: thin them by their autocorrelation time.
    speed
        N at fixed beta, beta N where beta grows.
    level
        Coverage of the interval at least (Clopper & Pearson 1934).
    """
    n_trials, speed, level = count(n_trials, "n_trials"), positive(speed, "speed"), positive(level, "level")
    seen = np.asarray(successes)
    if seen.shape not in ((), (n_trials,)) or seen.dtype.kind not in ("iu" if seen.ndim == 0 else "b"):
        raise ValueError(f"successes must be a count or {n_trials} booleans, got dtype {seen.dtype}, shape {seen.shape}")
    hits = int(seen.sum())
    if not 0 <= hits <= n_trials or level >= 1:
        raise ValueError(f"successes must lie between 0 and n_trials = {n_trials} and level below 1, got {hits} and {level!r}")
    tail = (1 - level) / 2  # one-sided bounds at the ends would cover less than `level` for some frequencies
    p_low = betaincinv(hits, n_trials - hits + 1, tail) if hits else 0.0
    p_high = betaincinv(hits + 1, n_trials - hits, 1 - tail) if hits < n_trials else 1.0
    with np.errstate(divide="ignore"):
        rates = -np.log(np.array([hits / n_trials, p_high, p_low])) / speed + 0.0
    return EmpiricalRate(*(float(rate) for rate in rates))
