"""Laws of moments: the virial identity of the second moment, exact mean energies."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from theory.arrays import FloatArray
from theory.convergence.chains import effective_sample_size, mean_and_error
from theory.ensembles import circle_gas_energy, fourth_moment, log_gas_energy, wall_gas_energy
from theory.report.forces import displacement, jump, require_described, step_heat
from theory.report.laws import Law, statistical
from theory.report.run import NotApplicable, Run

__all__ = ["centre_of_mass", "chaos_bias", "energy", "second_moment"]

HEAT_LIMIT = 0.1  # fraction of the temperature by which steps may heat a law that does not take them into account


def second_moment(run: Run) -> Law:
    """E[x.D + |D|^2/2] + dim step/beta = 0 for the step x <- x + D + noise, whatever D is; written as a law of (1/N) sum |x|^2.

    For the bare log gas D gives dim/(beta kappa) + strength/(2 kappa) plus a term of order step; for an exact sampler D's square is left
    out. |D|^2 is cut at JUMP noise lengths squared: uncapped steps of a gas that can collide have no mean square, and such jumps are too
    rare to be seen in either side. The noise of minibatches adds its recorded temperature to 1/beta.
    """
    require_described(run)
    beta, (stiffness, _) = run.constant("beta"), run.trap()
    virial, moment = _virial(run, lambda x: x)
    heat = 0.0 if run.extra_temperature is None else float(run.extra_temperature.mean())
    note = f"{'Euler step included; ' if run.sampler.get('name') == 'Langevin' else ''}{_closed_form(run, beta, stiffness)}"
    return _balanced("second_moment", moment, -(virial + run.dim * (1 / beta + heat)) / stiffness, note)


def centre_of_mass(run: Run) -> Law:
    """N times the mean square distance of the centre of mass from the trap's centre: the virial identity of `second_moment` for the mean.

    Forces between particles do not move it: dim/(beta kappa) in continuous time, whatever they are. It sees forces that are not mutual, and
    noise that particles share.
    """
    require_described(run)
    if run.n_particles < 2:
        raise NotApplicable("for two and more particles")
    if run.extra_temperature is not None:
        raise NotApplicable("noise of minibatches")
    beta, (stiffness, _) = run.constant("beta"), run.trap()
    virial, moment = _virial(run, lambda x: x.mean(-2, keepdims=True))
    excess = -(run.n_particles * virial + run.dim / beta) / stiffness
    return _balanced("centre_of_mass", run.n_particles * moment, excess, f"continuous time {run.dim / beta / stiffness:.5g}")


def _virial(run: Run, average: Callable[[FloatArray], FloatArray]) -> tuple[FloatArray, FloatArray]:
    """x.D + |D|^2/2 in unit time, and |x|^2, of averages over particles, (chain, frame) each."""
    _, centre = run.trap()
    run.require_free()
    x, drift = average(run.frames - centre), displacement(run, run.gradient)
    step = 1.0 if drift is None else run.constant("step_size")
    work = average(-run.gradient if drift is None else drift / step)
    square = 0.0 if drift is None else np.minimum(np.sum((step * work) ** 2, axis=-1), jump(run, step, run.constant("beta"))).mean(-1)
    return np.sum(x * work, axis=-1).mean(-1) + square / (2 * step), np.sum(x**2, axis=-1).mean(-1)


def _balanced(name: str, moment: FloatArray, excess: FloatArray, note: str) -> Law:
    """The law that `excess`, by which `moment` is too large, vanishes."""
    gap, error, across = mean_and_error(excess)
    if error > 0.2 * max(moment.mean(), moment.mean() - gap):  # of the larger side: a run that shrank to a point is still tested
        raise NotApplicable("its error is over 20 %: too few frames, or jumps of steps without a drift_cap")
    measured = float(moment.mean())
    return statistical(name, measured - gap, measured, error, across, 0.0, effective_sample_size(excess), note)


def _closed_form(run: Run, beta: float, stiffness: float) -> str:
    """The law in continuous time, where it is a number."""
    strength = run.plain_strength()
    if strength is None:
        return "virial identity"
    return f"continuous time {(run.dim / beta + (strength / 2 if run.n_particles > 1 else 0)) / stiffness:.5g}"


def chaos_bias(run: Run) -> Law:
    """Fourth moment of the log gas on the line in a trap: (3 + 5c + 2c^2 - c^2/(N-1))/(beta kappa)^2, c = beta strength/2.

    Without the last term it is that of the mean-field limit (the Gauss-Wigner law): the bias of propagation of chaos, of order 1/N. The
    note says whether the run tells the two apart. Langevin steps heat; twice the fraction of it, to first order, is allowed for.
    """
    require_described(run)
    if run.dim != 1 or run.n_particles < 2:
        raise NotApplicable("for two and more particles on a line")
    beta, (stiffness, centre) = run.constant("beta"), run.trap()
    run.require_free()
    strength = run.plain_strength()
    if strength is None or not strength > 0:
        raise NotApplicable("the interaction is not the bare log")
    finite = fourth_moment(run.n_particles, beta, stiffness, strength)
    limit = finite + (beta * strength / 2) ** 2 / (run.n_particles - 1) / (beta * stiffness) ** 2
    heat = step_heat(run)
    if heat > HEAT_LIMIT:
        raise NotApplicable(f"the steps heat by {heat:.2g} of the temperature")
    draws = np.mean((run.omega[..., 0] - centre) ** 4, axis=-1)
    measured, error, across = mean_and_error(draws)
    total = np.hypot(error, 2 * heat * finite)
    told = abs(measured - finite) < abs(measured - limit) and limit - finite > 2 * total
    note = f"exact at N = {run.n_particles}; mean field {limit:.5g}, {'told apart' if told else 'not told apart'}"
    return statistical("chaos_bias", finite, measured, error, across, 2 * heat * finite, effective_sample_size(draws), note)


def energy(run: Run) -> Law:
    """E H_N of the log gas in one dimension at finite N, exact in a trap, between hard walls and on a circle; for exact samplers."""
    require_described(run)
    if run.sampler.get("name") not in ("MALA", "HMC"):
        raise NotApplicable("the energy law is for exact samplers, MALA and HMC")
    if run.values is None:
        raise NotApplicable("no energy was recorded")
    if not np.isfinite(run.values).all():
        raise NotApplicable("infinite energies have no mean")
    if run.dim != 1 or run.n_particles < 2:
        raise NotApplicable("the energy law is for two and more particles in one dimension")
    predicted, note = _exact_energy(run)
    measured, error, across = mean_and_error(run.values)
    return statistical("energy", predicted, measured, error, across, 0.0, effective_sample_size(run.values), note)


def _exact_energy(run: Run) -> tuple[float, str]:
    """E H_N and which gas it is; a length shifts the energy by a constant."""
    beta, n, strength = run.constant("beta"), run.n_particles, run.plain_strength()
    if strength is None or not strength >= 0:
        raise NotApplicable("the interaction is not the bare log")
    shift = 0.5 * sum(float(term["strength"]) * np.log(float(term.get("length", 1.0))) for term in run.named("Riesz"))
    trapped, where = bool(run.named("Quadratic")), run.domain.get("name")
    if where == "Torus" and not trapped:
        return circle_gas_energy(n, beta, strength, float(np.ravel(run.domain["period"])[0])) + shift, "exact circular ensemble"
    if where in ("Ball", "Box") and not trapped:
        return wall_gas_energy(n, beta, strength, run.half_width()) + shift, "exact gas between walls (Selberg)"
    run.require_free()
    if len(run.named("Quadratic")) > 1:
        raise NotApplicable("several traps add a constant to the energy")
    return log_gas_energy(n, beta, run.trap()[0], strength) + shift, "exact log gas"
