"""The density of the particles against the exact or the mean-field law."""

from __future__ import annotations

import numpy as np

from theory.arrays import FloatArray
from theory.convergence import effective_sample_size, mean_and_error
from theory.ensembles import sample_log_gas
from theory.forces import displacement, external, interaction
from theory.laws import Law, statistical
from theory.mean_field import MeanField
from theory.run import CONTACT_LIMIT, NotApplicable, Run

__all__ = ["density"]

CELLS = 240  # of the mean-field solver; its error is below 1e-4 of the cumulative distribution
ALLOWANCE_LIMIT = 0.05  # of a probability; a law that allows for more says nothing
GROSS = 0.2  # deviation of a probability that no step excuses


def density(run: Run, rng: int | np.random.Generator) -> Law:
    """Largest deviation of the cumulative distribution at nine deciles of the law, Bonferroni over them.

    A step so long that the law would have to allow for ALLOWANCE_LIMIT leaves it untested, unless the deviation is GROSS.
    """
    if run.dim != 1:
        raise NotApplicable("the density law is for one dimension")
    beta = run.constant("beta")
    points, level, level_error, allowance, note = _reference(run, beta, rng)
    x = run.omega[..., 0]
    inside = ~run.on_wall()  # the atom of projection is an artefact: the law is tested on the particles off the wall
    share = np.maximum(inside.mean(-1), 1 / run.n_particles)
    allowance += float(1 - inside.mean())
    below = np.stack([((x <= point) & inside).mean(-1) / share for point in points])
    results = [mean_and_error(draws) for draws in below]
    gap = max(abs(mean - p) for (mean, _, _), p in zip(results, level))
    allowance += _checked_allowance(allowance, _step_allowance(run, beta), gap)
    laws = [
        statistical("density", 0.0, mean - p, float(np.hypot(error, p_error)), across, allowance, effective_sample_size(draws), note)
        for (mean, error, across), p, p_error, draws in zip(results, level, level_error, below)
    ]
    worst = min(laws, key=lambda law: law.p_value)
    return worst._replace(p_value=min(1.0, len(laws) * worst.p_value))


def _checked_allowance(other: float, step: float, gap: float) -> float:
    """The step's part of the allowance: none for a GROSS gap; NotApplicable where the law would say nothing."""
    if gap > GROSS + other and step > ALLOWANCE_LIMIT:
        return 0.0
    if step > ALLOWANCE_LIMIT:
        raise NotApplicable(f"the step is too long: it may shift the distribution by {step:.2g}")
    if other + step > ALLOWANCE_LIMIT:
        raise NotApplicable(f"few particles, or many on the wall: the distribution may be off by {other + step:.2g}")
    return step


def _reference(run: Run, beta: float, rng: int | np.random.Generator) -> tuple[FloatArray, FloatArray, FloatArray, float, str]:
    """Deciles of the law: points, levels, standard errors of the levels, allowance, note."""
    strength = run.plain_strength()
    user = bool(run.unknown or run.external or run.interaction)
    deciles = np.arange(1, 10) / 10
    if run.domain.get("name") == "Torus":
        return _uniform(run, user)
    if strength is not None and strength >= 0 and not user and run.n_particles > 1 and _trapped(run):
        stiffness, centre = run.trap()
        size = max(100, 40_000 // run.n_particles)
        exact = sample_log_gas(run.n_particles, beta, stiffness, strength, rng, size)[..., 0] + centre
        points = np.quantile(exact, deciles)
        below = (exact[..., None] <= points).mean(1)
        return points, below.mean(0), below.std(0, ddof=1) / np.sqrt(size), 0.0, "worst decile, exact log gas"
    field = _mean_field(run, beta)
    solution = field.stationary()
    if solution.residual > 1e-6:
        raise NotApplicable(f"the mean-field law was not found (residual {solution.residual:.2g})")
    cumulative = np.concatenate([[0.0], np.cumsum(solution.rho) * field.width])
    points = np.interp(deciles, cumulative, field.edges)
    interacting = bool(run.named("Riesz") or run.interaction)
    return points, deciles, np.zeros(9), 0.25 / run.n_particles if interacting else 0.0, "worst decile, mean field"


def _trapped(run: Run) -> bool:
    """Whether a quadratic trap keeps the particles from every wall."""
    return bool(run.named("Quadratic")) and run.contact_fraction() <= CONTACT_LIMIT


def _uniform(run: Run, user: bool) -> tuple[FloatArray, FloatArray, FloatArray, float, str]:
    """The law on a circle without external forces, by symmetry; as `_reference`."""
    if run.named("Quadratic") or user or any(term.get("mirror") for term in run.named("Riesz")):
        raise NotApplicable("on a torus the density is known for particles that only repel each other")
    deciles = np.arange(1, 10) / 10
    return deciles * float(np.ravel(run.domain["period"])[0]), deciles, np.zeros(9), 0.0, "worst decile, uniform by symmetry"


def _mean_field(run: Run, beta: float) -> MeanField:
    if any(term.get("mirror") or term.get("period") for term in run.named("Riesz")):
        raise NotApplicable("no mean-field density for a mirrored or periodic interaction")
    if run.unknown and run.external is None and run.interaction is None:
        raise NotApplicable(f"energy terms without a closed form: {', '.join(run.unknown)}; pass external or interaction")
    if run.domain.get("name") not in ("Ball", "Box"):
        if not run.named("Quadratic") and run.external is None:
            raise NotApplicable("nothing confines the particles")
        low, high = float(run.omega.min()), float(run.omega.max())
        edges = np.linspace(low - (high - low) / 2, high + (high - low) / 2, CELLS + 1)
    elif run.domain["name"] == "Ball":
        edges = np.linspace(-float(run.domain["radius"]), float(run.domain["radius"]), CELLS + 1)
    else:
        edges = np.linspace(float(np.ravel(run.domain["low"])[0]), float(np.ravel(run.domain["high"])[0]), CELLS + 1)
    try:
        return MeanField(lambda x: external(run, x), lambda r: interaction(run, r), beta, edges)
    except ValueError as error:
        raise NotApplicable(str(error)) from None


def _step_allowance(run: Run, beta: float) -> float:
    """Shift of the cumulative distribution by the finite step, from the virial identity.

    The step heats by the fraction beta <|D|^2>/(2 step) of the temperature; half of that scales lengths, and x rho(x) is at most about 1/4.
    """
    if run.sampler.get("name") != "Langevin":
        return 0.0
    frames = max(2, 10_000_000 // (run.omega.shape[0] * run.n_particles**2))
    x = run.omega[:, :: max(1, -(-run.omega.shape[1] // frames))]
    width = 1e-5 * max(float(np.ptp(x)), 1e-300)
    gradient = (external(run, x + width) - external(run, x - width)) / (2 * width)
    for chain, frame in np.ndindex(x.shape[:2]) if run.named("Riesz") or run.interaction is not None else ():
        gap = x[chain, frame] - x[chain, frame, :, 0]
        r = np.where(gap == 0, 1.0, np.abs(gap))
        slope = (interaction(run, r * (1 + 1e-6)) - interaction(run, r * (1 - 1e-6))) / (2e-6 * r)
        gradient[chain, frame, :, 0] += np.sum(np.sign(gap) * slope, axis=1) / max(run.n_particles - 1, 1)
    drift = displacement(run, gradient)
    return 0.0 if drift is None else float(0.125 * beta * np.mean(drift**2) / (2 * run.constant("step_size")))
