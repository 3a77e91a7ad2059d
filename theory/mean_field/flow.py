"""The flow of a mean field in time: adaptive extrapolated steps, or equal implicit ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.interpolate import CubicSpline

from theory.arrays import FloatArray, count, finite, positive
from theory.mean_field.sweeps import Hops

if TYPE_CHECKING:
    from theory.mean_field.solver import MeanField

__all__ = ["Flow", "run"]

TINY = 1e-290  # densities below have lost digits to underflow and are not extrapolated
ROUND_OFF = 1e-14  # of the size of its terms, by which the free energy may rise
SETTLED = 1e-13  # L1 change at which the iteration of an implicit step ends, besides the round-off of the potential
ITERATIONS = 200  # of one implicit step
GROWTH = 4.0  # largest growth of a step; a refused one holds back those that follow
MILD = 0.1  # diffusion by the interaction, in units of that by temperature, up to which steps are stable without damping
SHORTEST = 1e-12  # adaptive step, in units of the whole time


class Flow(NamedTuple):
    """Densities along a run, and the free energy at each of its steps.

    `theory.free_energy.dissipation_residual` tests dF/dt = -D on the steps; `theory.plots.flow` makes of a run what `plot_flow`,
    `plot_snapshots` and `plot_dissipation` draw.

    Attributes
    ----------
    times
        The times asked for that were reached, (n,).
    rho
        Densities at these times, `(n, *shape)`.
    t
        Times of all steps, from 0, (step + 1,).
    free_energy, dissipation
        F and -dF/dt of the semi-discrete flow at `t`, (step + 1,).
    n_refused
        Adaptive steps repeated at another length.
    interrupted
        Whether Ctrl-C ended the run early.
    """

    times: FloatArray
    rho: FloatArray
    t: FloatArray
    free_energy: FloatArray
    dissipation: FloatArray
    n_refused: int
    interrupted: bool

    def imbalance(self) -> float:
        """Largest |F(0) - F(t) - integral of the dissipation| over the run, the integral by cubic splines through the steps.

        Raises
        ------
        ValueError
            If the dissipation is infinite somewhere (empty cells): begin from a positive density.
        """
        if not np.isfinite(self.dissipation).all():
            raise ValueError("the dissipation is infinite where empty cells touch filled ones; begin from a positive density")
        if len(self.t) < 2:
            return 0.0
        lost = CubicSpline(self.t, self.dissipation).antiderivative()(self.t)
        return float(np.abs(self.free_energy[0] - self.free_energy - lost).max())


class _State(NamedTuple):
    """A density with what the next step needs of it."""

    t: float
    free_energy: float
    dissipation: float
    rho: FloatArray
    u: FloatArray
    hops: list[Hops]


def run(
    field: MeanField,
    rho: FloatArray,
    times: ArrayLike,
    tol: float,
    n_steps: int | None,
    progress: bool,
    callback: Callable[[float, FloatArray], object] | None,
) -> Flow:
    """`MeanField.flow` for a density that was checked."""
    stops = finite(times, "times")
    if stops.ndim != 1 or not len(stops) or stops[0] < 0 or (np.diff(stops) <= 0).any():
        raise ValueError(f"times must be (n,), at least 0 and increasing, got {stops}")
    if callback is not None and not callable(callback):
        raise ValueError(f"callback must be a callable or None, got {callback!r}")
    tol = positive(tol, "tol")
    stepper = _Adaptive(field, tol, stops[-1]) if n_steps is None else _Fixed(field, stops[-1] / count(n_steps, "n_steps"))
    state = _state(field, 0.0, rho)
    path, kept, interrupted = [state[:3]], [], False
    with _bar(stops[-1], progress) as bar:
        try:
            for stop in stops:
                while state.t < stop:
                    state = stepper.step(state, stop)
                    path.append(state[:3])
                    bar.update(state.t - bar.n)
                    if callback is not None:
                        callback(state.t, state.rho.copy())
                kept.append(state.rho)
        except KeyboardInterrupt:
            interrupted = True
    densities = np.stack(kept) if kept else np.empty((0, *rho.shape))
    t, free_energy, dissipation = np.array(path).T
    return Flow(stops[: len(kept)], densities, t, free_energy, dissipation, stepper.n_refused, interrupted)


def _state(field: MeanField, t: float, rho: FloatArray) -> _State:
    u = field.unchecked_potential(rho)
    hops = [line.hops(u) for line in field.lines]
    return _State(t, field.energy_in(rho, u), field.dissipation_in(rho, u, hops), rho, u, hops)


class _Fixed:
    """Implicit steps of one length, each in the mean of the potentials before and after, along one axis after the other."""

    def __init__(self, field: MeanField, dt: float):
        self.field, self.dt, self.n_refused, self.forward = field, dt, 0, True

    def step(self, state: _State, stop: float) -> _State:
        """One step towards `stop`, which a whole number of equal steps reaches."""
        number = max(1, int(np.ceil((stop - state.t) / self.dt - 1e-6)))
        dt, rho = (stop - state.t) / number, state.rho
        for axis in range(len(self.field.lines))[:: 1 if self.forward else -1]:
            rho = self._settle(rho, axis, dt)
        self.forward = not self.forward
        return _state(self.field, stop if number == 1 else state.t + dt, rho)

    def _settle(self, rho: FloatArray, axis: int, dt: float) -> FloatArray:
        """The implicit step along one axis, by iteration; half as far each time that the change grows, for stiff interactions."""
        line, new, share, last = self.field.lines[axis], rho, 1.0, np.inf
        for _ in range(ITERATIONS):
            u = self.field.unchecked_potential((rho + new) / 2)
            found = line.step(rho, line.damped(line.hops(u), new), dt)
            change = self.field.mesh.integral(np.abs(found - new))
            if change < SETTLED + ROUND_OFF * line.beta * self.field.mesh.integral(found * np.abs(u)):
                return found
            share, last = share / 2 if change > last else min(1.0, 1.2 * share), change
            new = new + share * (found - new)
        raise RuntimeError(f"the implicit step of length {dt:g} did not converge: use a larger n_steps, or tol in its place")


class _Adaptive:
    """Steps extrapolated from linearly implicit ones, of a length that keeps the error of each below tol and the free energy falling."""

    def __init__(self, field: MeanField, tol: float, total: float):
        self.field, self.tol, self.total = field, tol, total
        self.dt, self.n_refused, self.forward, self.growth = 0.0, 0, True, GROWTH

    def step(self, state: _State, stop: float) -> _State:
        """One accepted step towards `stop`."""
        self.dt = self.dt or self._first(state)
        while True:
            rest = stop - state.t
            dt = rest if self.dt >= rest else min(self.dt, rest / 2)
            rho, error = self._extrapolate(state, dt)
            factor = float(np.clip(0.9 * (self.tol / max(error, 1e-300)) ** (1 / 3), 0.2, self.growth))
            if error <= self.tol:
                new = _state(self.field, stop if dt == rest else state.t + dt, rho)
                if new.free_energy <= state.free_energy + self._round_off(state):
                    self.dt = max(self.dt, dt * factor) if dt < self.dt else dt * factor
                    self.forward, self.growth = not self.forward, min(GROWTH, 1.1 * self.growth)
                    return new
                factor = 0.5
            self.n_refused, self.growth = self.n_refused + 1, 1.0
            self.dt = dt * min(factor, 0.9)
            if self.dt < SHORTEST * self.total:
                raise RuntimeError(
                    f"steps below {self.dt:.1e} would be needed at t = {state.t:g}: use a larger tol, n_steps, or a smoother start"
                )

    def _first(self, state: _State) -> float:
        """The length at which the density would change by half the cube root of tol, as the error is of third order."""
        change = self.field.mesh.integral(np.abs(self.field.rate(state.rho)))
        return min(self.total, 0.5 * self.tol ** (1 / 3) / max(change, 1e-300))

    def _extrapolate(self, state: _State, dt: float) -> tuple[FloatArray, float]:
        """The density after dt to third order, and its L1 distance to that of second order."""
        stiff = self.field.beta * float((self.field.stiffness * state.rho).max()) > MILD
        one, two, three = (self._substeps(state, dt, number, stiff) for number in (1, 2, 3))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            logs = [np.log(rho) for rho in (one, two, three)]
            second = np.exp(3 * logs[2] - 2 * logs[1])
            third = np.exp(4.5 * logs[2] - 4 * logs[1] + 0.5 * logs[0])
        faint = np.minimum(np.minimum(one, two), three) < TINY
        second, third = np.where(faint, three, second), np.where(faint, three, third)
        if not (np.isfinite(second).all() and np.isfinite(third).all()):
            return three, np.inf
        third = third / self.field.mesh.integral(third)
        return third, self.field.mesh.integral(np.abs(third - second / self.field.mesh.integral(second)))

    def _substeps(self, state: _State, dt: float, number: int, stiff: bool) -> FloatArray:
        """`number` implicit steps, each in the potential at its beginning, damped if the interaction is stiff."""
        rho, hops = state.rho, state.hops
        for k in range(number):
            if k:
                u = self.field.unchecked_potential(rho)
                hops = [line.hops(u) for line in self.field.lines]
            if stiff:
                hops = [line.damped(hop, rho) for line, hop in zip(self.field.lines, hops)]
            for axis in range(len(hops))[:: 1 if self.forward else -1]:
                rho = self.field.lines[axis].step(rho, hops[axis], dt / number)
        return rho

    def _round_off(self, state: _State) -> float:
        size = np.abs(state.u) + np.abs(self.field.external) + np.abs(np.log(np.maximum(state.rho, TINY))) / self.field.beta
        return ROUND_OFF * self.field.mesh.integral(state.rho * size)


def _bar(total: float, progress: bool) -> Any:
    """A progress bar in units of time, or one that shows nothing."""
    from tqdm import tqdm

    return tqdm(total=float(total), disable=not progress, bar_format="{l_bar}{bar}| t = {n:.4g} of {total:.4g} [{elapsed}<{remaining}]")
