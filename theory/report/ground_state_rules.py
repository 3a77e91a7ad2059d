"""Rules of descents, runs at zero or falling temperature: they come to rest, where the forces balance, in the ground state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from theory.arrays import FloatArray
from theory.equilibrium.radial_law import RadialLaw
from theory.equilibrium.trap import quadratic_trap
from theory.equilibrium.walls import hard_wall
from theory.ground_states import coulomb_line_ground_state, hermite_ground_state, wall_ground_state
from theory.report.forces import require_described
from theory.report.laws import Law
from theory.report.run import NotApplicable, Run

__all__ = ["balance", "ground_state", "settled"]

SETTLED = 1e-6  # of the whole change of energy, that a settled descent may still change in the last quarter
BALANCED = 0.01  # of the size of the forces, that may be left of their sum
EXACT = 0.01  # of the radius, by which particles may miss their exact places
SPACING = 0.75  # of the particles' distance, by which their radii may miss the equilibrium measure on average


def settled(run: Run) -> Law:
    """Descents only: change of energy over the last quarter of the run relative to the whole change, in the worst chain.

    Above SETTLED a descent at infinite beta still moves. Noise, of a schedule of temperatures or of minibatches, never rests: there the
    number is only told. The gradient need not vanish, as walls may hold the particles.
    """
    if run.descent() is None:
        raise NotApplicable("for descents: an infinite or scheduled beta")
    if run.course is None or run.course.shape[1] < 8:
        raise NotApplicable("no energy was recorded" if run.course is None else "too few frames")
    if not np.isfinite(run.course).all():
        raise NotApplicable("infinite energies")
    rounding = run.tolerance * max(1.0, float(np.abs(run.course).max()))
    change, whole = np.ptp(run.course[:, -(run.course.shape[1] // 4) :], axis=1), np.ptp(run.course, axis=1)
    measured = float(np.max(np.where(change > rounding, change, 0.0) / np.maximum(whole, np.finfo(float).tiny)))
    noisy = not run.frozen or run.extra_temperature is not None
    note = "settled" if measured <= SETTLED else "still moves by its noise, or descends" if noisy else "still moves: more steps"
    if run.gradients is not None:
        note += f"; gradient norm {run.gradients[:, -1].max():.2g}, at the start {run.gradients[:, 0].max():.2g}"
    return Law("settled", 0.0, measured, 0.0, float("nan"), SETTLED, float("nan"), noisy or measured <= SETTLED, note)


def balance(run: Run) -> Law:
    """Descents at infinite beta: what is left of the described forces in the last frame, relative to the forces of the pairs, or the trap.

    What pushes a particle that sits on a wall outwards is held by the wall. A repulsion, an exponent or a trap other than described is
    not in balance where the run has come to rest.
    """
    x, gradient, repulsion = _at_rest(run)
    left = np.sqrt(np.mean(_within_walls(run, x, gradient) ** 2))
    size = max(float(np.sqrt(np.mean(repulsion**2))), float(np.sqrt(np.mean((gradient + repulsion) ** 2))))
    if size == 0:
        raise NotApplicable("there are no forces")
    measured = float(left / size)
    note = "forces balance" if measured <= BALANCED else "forces do not balance: more steps, or another energy than described"
    return Law("balance", 0.0, measured, 0.0, float("nan"), BALANCED, float("nan"), measured <= BALANCED, note)


def ground_state(run: Run) -> Law:
    """Descents at infinite beta: distance of the last frame from the ground state, in units of its radius; the worst chain.

    On the line the places are known exactly: of the log gas in a trap (zeros of a Hermite polynomial) or between walls (of a derivative
    of a Legendre polynomial), of the Coulomb gas in a trap. Other Riesz gases in a trap, or in a ball without one, are compared by the
    mean difference of ordered radii to the equilibrium measure, which local minima and finite N leave within SPACING of the particles'
    distance.
    """
    x, _, _ = _at_rest(run)
    term = _one_repulsion(run)
    s, n = run.exponent(term), run.n_particles
    strength = float(term["strength"]) * float(term.get("length", 1.0)) ** s
    walled = run.domain.get("name") in ("Ball", "Box") and bool(run.on_wall()[:, -1].any())
    if run.named("Quadratic"):
        if walled:
            raise NotApplicable("a trap between walls")
        stiffness, centre = run.trap()
        if run.dim == 1 and s in (0, -1):
            exact = (hermite_ground_state if s == 0 else coulomb_line_ground_state)(n, stiffness, strength)
            return _places(x - centre, exact)
        law = _equilibrium(quadratic_trap, stiffness, strength, run.dim, s)
        return _distance(_from(law, x - centre), SPACING * n ** (-1 / run.dim), "equilibrium in the trap")
    if run.domain.get("name") not in ("Ball", "Box") or (run.domain["name"] == "Box" and run.dim > 1):
        raise NotApplicable("no closed form of the equilibrium")
    half = run.half_width()
    if run.dim == 1:
        x = x - (0.0 if run.domain["name"] == "Ball" else float(np.add(*run.box())[0]) / 2)
        if s == 0:
            return _places(x, wall_ground_state(n, strength, half))
    return _distance(
        _from(_equilibrium(hard_wall, half, strength, run.dim, s), x), SPACING * n ** (-1 / run.dim), "equilibrium behind the wall"
    )


def _places(x: FloatArray, exact: FloatArray) -> Law:
    """The rule that the particles on the line x (chain, particle, 1) are in their exact places (particle, 1), in any order."""
    gap = float(np.abs(np.sort(x[..., 0], axis=1) - np.sort(exact[:, 0])).max() / np.abs(exact).max())
    return _distance(gap, EXACT, "exact places")


def _at_rest(run: Run) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Last frame (chain, particle, dim), gradient of N H_N and force of the pairs there."""
    if not run.frozen:
        raise NotApplicable("for descents at infinite beta")
    if run.extra_temperature is not None:
        raise NotApplicable("noise of minibatches")
    require_described(run)
    x = run.omega[:, -1]
    repulsion = run.repulsion_at(x)
    return x, run.trap_gradient_at(x) - repulsion, repulsion


def _within_walls(run: Run, x: FloatArray, gradient: FloatArray) -> FloatArray:
    """The gradient without what presses a particle against the wall that it sits on."""
    if run.domain.get("name") == "Ball":
        length = np.linalg.norm(x, axis=-1, keepdims=True)
        outward = x / np.where(length > 0, length, 1.0)
        push = np.sum(-gradient * outward, axis=-1, keepdims=True)
        held = (length >= float(run.domain["radius"]) - run.tolerance) & (push > 0)
        return gradient + np.where(held, push, 0.0) * outward
    if run.domain.get("name") == "Box":
        low, high = run.box()
        held = ((x <= low + run.tolerance) & (gradient > 0)) | ((x >= high - run.tolerance) & (gradient < 0))
        return np.where(held, 0.0, gradient)
    return gradient


def _one_repulsion(run: Run) -> dict[str, Any]:
    """The only Riesz term, bare; NotApplicable if there is another, or if it is softened."""
    riesz = run.named("Riesz")
    if len(riesz) != 1 or not float(riesz[0]["strength"]) > 0 or run.n_particles < 2:
        raise NotApplicable("no single repulsion")
    if any(riesz[0].get(option) for option in ("softening", "truncation", "mirror", "period")):
        raise NotApplicable("no closed form for a changed repulsion")
    return riesz[0]


def _equilibrium(closed_form: Callable[..., RadialLaw], *parameters: float) -> RadialLaw:
    """The equilibrium in closed form; NotApplicable where there is none."""
    try:
        return closed_form(*parameters)
    except ValueError as error:
        raise NotApplicable(str(error)) from None


def _from(law: RadialLaw, x: FloatArray) -> float:
    """Mean difference of the ordered radii (chain, particle) to the law's, in units of its radius, in the worst chain."""
    exact = law.radial_quantile((np.arange(x.shape[1]) + 0.5) / x.shape[1])
    return float(np.abs(np.sort(np.linalg.norm(x, axis=-1), axis=1) - exact).mean(1).max() / exact.max())


def _distance(measured: float, limit: float, what: str) -> Law:
    passed = measured <= limit
    return Law("ground_state", 0.0, measured, 0.0, float("nan"), limit, float("nan"), passed, f"{what}, in units of its radius")
