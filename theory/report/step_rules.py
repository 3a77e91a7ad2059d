"""Rules without statistics: what a healthy run does not do, whatever its law."""

from __future__ import annotations

import numpy as np

from theory.arrays import FloatArray
from theory.convergence.chains import mean_and_error
from theory.report.forces import JUMP, displacement, inside, jump, require_described
from theory.report.laws import Law
from theory.report.run import CONTACT_LIMIT, NotApplicable, Run

__all__ = ["acceptance", "capped", "coincident", "extra_temperature", "steps"]

CAPPED_LIMIT = 1e-3  # fraction of capped steps above which a run no longer samples its law
JUMP_LIMIT = 1e-3  # the same of jumps
JUMP_SHARE = 0.2  # of the second moment; a run whose jumping particles hold more has exploded
STUCK = 0.05  # acceptance below which a chain hardly moves
USEFUL = (0.3, 0.95)  # acceptance outside which another step size would be faster
HEAT_LIMIT = 0.1  # extra temperature of minibatches, in units of 1/beta


def steps(run: Run) -> Law:
    """Fraction of particles about to jump: whose drift, as far as the walls let it, exceeds sqrt(JUMP) noise lengths.

    Thermal drifts are shorter than the noise wherever the step is short enough to be stable. Above JUMP_LIMIT, or where the jumping
    particles hold JUMP_SHARE of the second moment, the run does not sample its law. Energies without a closed form: see `_rms_steps`.
    """
    if run.gradients is not None and (run.unknown or run.external or run.interaction):
        return _rms_steps(run, run.gradients[:, -run.omega.shape[1] :])
    require_described(run)
    beta = run.constant("beta")
    x = run.frames
    drift = displacement(run, run.gradient)
    if drift is None:
        raise NotApplicable("the sampler takes no Langevin steps")
    square = np.sum((inside(run, x + drift) - x) ** 2, axis=-1)
    jumps = square > jump(run, run.constant("step_size"), beta)
    spread = np.sum((x - np.median(x, axis=(0, 1, 2))) ** 2, axis=-1)
    held = float(np.sum(spread * jumps) / max(spread.sum(), np.finfo(float).tiny))
    measured, error, across = mean_and_error(jumps.mean(-1))
    passed = measured <= JUMP_LIMIT and held <= JUMP_SHARE
    why = f"at most {JUMP_LIMIT:g}" if passed else f"with {held:.0%} of the second moment: shorter steps or a drift_cap"
    note = f"drifts over {JUMP**0.5:g} noise lengths, {why}"
    return Law("steps", 0.0, measured, error, across, JUMP_LIMIT, float("nan"), passed, note)


def _rms_steps(run: Run, size: FloatArray) -> Law:
    """Fraction of frames whose r.m.s. drift exceeds sqrt(JUMP) noise lengths, by the recorded r.m.s. gradient (chain, frame).

    Coarser than `steps`: one jumping particle hides among many, and walls are not seen, so that runs that touch one are left out.
    """
    drift = displacement(run, size[..., None])
    if drift is None:
        raise NotApplicable("the sampler takes no Langevin steps")
    if run.contact_fraction() > CONTACT_LIMIT:
        raise NotApplicable("energy terms without a closed form, and the recorded drifts do not know of the wall")
    jumps = drift[..., 0] ** 2 > jump(run, run.constant("step_size"), run.constant("beta"))
    measured, error, across = mean_and_error(jumps)
    passed = measured <= JUMP_LIMIT
    note = f"r.m.s. drifts over {JUMP**0.5:g} noise lengths, {f'at most {JUMP_LIMIT:g}' if passed else 'shorter steps or a drift_cap'}"
    return Law("steps", 0.0, measured, error, across, JUMP_LIMIT, float("nan"), passed, note)


def capped(run: Run) -> Law:
    """Fraction of particle steps that the drift cap shortened; above CAPPED_LIMIT the run does not sample its law."""
    if run.capped is None or run.sampler.get("drift_cap") is None:
        raise NotApplicable("the sampler has no drift cap" if run.sampler.get("drift_cap") is None else "no capped steps were recorded")
    measured, error, across = mean_and_error(run.capped)
    return Law("capped", 0.0, measured, error, across, CAPPED_LIMIT, float("nan"), measured <= CAPPED_LIMIT, f"at most {CAPPED_LIMIT:g}")


def acceptance(run: Run) -> Law:
    """Smallest acceptance of a chain after the tuning; below STUCK the chain hardly moved and says nothing of its law."""
    if run.acceptance is None:
        raise NotApplicable("the sampler accepts every step" if run.sampler.get("name") == "Langevin" else "no acceptance was recorded")
    measured = float(run.acceptance.mean(1).min())
    if not np.isfinite(measured):
        raise NotApplicable("no step was taken")
    _, error, across = mean_and_error(run.acceptance)
    low, high = USEFUL
    note = f"worst chain; {'useful' if low <= measured <= high else 'shorter steps' if measured < low else 'longer steps'}"
    note = f"worst chain is stuck (below {STUCK:g}): shorter steps, or a better start" if measured < STUCK else note
    target = float(run.sampler.get("target", np.nan))
    return Law("acceptance", target, measured, error, across, 0.0, float("nan"), measured >= STUCK, note)


def extra_temperature(run: Run) -> Law:
    """Temperature that the noise of minibatches adds to 1/beta; above HEAT_LIMIT of it the run has not the temperature it was given."""
    if run.extra_temperature is None:
        raise NotApplicable("the energy has no minibatches")
    measured, error, across = mean_and_error(run.extra_temperature)
    if run.sampler.get("beta") == "inf":
        raise NotApplicable(f"beta is infinite: the minibatches alone make the temperature {measured:.3g}")
    limit = HEAT_LIMIT / run.constant("beta")
    note = f"minibatches heat by {HEAT_LIMIT * measured / limit:.2g} of 1/beta, at most {HEAT_LIMIT:g}"
    return Law("extra_temperature", 0.0, measured, error, across, limit, float("nan"), measured <= limit, note)


def coincident(run: Run) -> Law:
    """Fraction of frames with a pair at distance 0 or an infinite energy: without softening or truncation there must be none."""
    infinite = np.zeros(run.omega.shape[:2], bool) if run.values is None else ~np.isfinite(run.values)
    if run.coincident is None and not infinite.any():
        raise NotApplicable("no count of coincident pairs was recorded")
    pairs = np.zeros_like(infinite) if run.coincident is None else run.coincident > 0
    riesz = run.named("Riesz")
    smooth = bool(riesz) and all(term.get("softening") or term.get("truncation") for term in riesz)
    measured, error, across = mean_and_error((pairs & (not smooth)) | infinite)
    note = "softened pairs may coincide" if smooth and pairs.any() else "no pair coincides"
    if measured > 0:
        note = "infinite energies"
        if pairs.any():
            note = "a bare pair at one point exerts no force on itself: softening, truncation, reflected walls or a little temperature"
    return Law("coincident", 0.0, measured, error, across, 0.0, float("nan"), measured == 0, note)
