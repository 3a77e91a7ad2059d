"""The laws that `theory.report` tests a run against: each takes a Run and gives a Law, or says why it does not apply."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t as student_t

from theory.arrays import FloatArray
from theory.convergence import effective_sample_size, mean_and_error
from theory.ensembles import circle_gas_energy, log_gas_energy, sample_log_gas, wall_gas_energy
from theory.mean_field import MeanField
from theory.run import CONTACT_LIMIT, NotApplicable, Run

__all__ = [
    "Law",
    "acceptance",
    "capped",
    "coincident",
    "density",
    "energy",
    "extra_temperature",
    "second_moment",
    "settled",
    "steps",
    "wall_atom",
]

PAIR_BUDGET = 50_000_000  # pair differences that one check may form; more frames than that are thinned
PAIR_BLOCK = 100_000  # pairs formed at once
CELLS = 240  # of the mean-field solver; its error is below 1e-4 of the cumulative distribution
CAPPED_LIMIT = 1e-3  # fraction of capped steps above which a run no longer samples its law
JUMP_LIMIT = 1e-3  # the same of jumps
STUCK = 0.05  # acceptance below which a chain hardly moves
USEFUL = (0.3, 0.95)  # acceptance outside which another step size would be faster
HEAT_LIMIT = 0.1  # extra temperature of minibatches, in units of 1/beta
SETTLED = 1e-6  # of the whole change of energy, that a settled descent may still change in the last quarter
JUMP_SHARE = 0.2  # of the second moment; a run whose jumping particles hold more has exploded
ALLOWANCE_LIMIT = 0.05  # of a probability; a law that allows for more says nothing
GROSS = 0.2  # deviation of a probability that no step excuses
ROUNDING_LIMIT = 1e-4  # fraction of reflected particles that may come within rounding of the wall
SHRINK = 0.5825971579  # -zeta(1/2)/sqrt(2 pi): where a Gaussian walk of unit step sees a wall (Siegmund 1979)
JUMP = 16.0  # squared drift, in units of the squared noise length, above which a step is a rare jump


class Law(NamedTuple):
    """One compared number. `p_value` is NaN for rules without statistics, whose verdict is `passed`."""

    name: str
    predicted: float
    measured: float
    standard_error: float
    standard_error_chains: float
    allowance: float
    p_value: float
    passed: bool
    note: str


def second_moment(run: Run) -> Law:
    """E[x.D + |D|^2/2] + dim step/beta = 0 for the step x <- x + D + noise, whatever D is; written as a law of (1/N) sum |x|^2.

    For the bare log gas D gives dim/(beta kappa) + strength/(2 kappa) plus a term of order step; for an exact sampler D's square is left
    out. |D|^2 is cut at JUMP noise lengths squared: uncapped steps of a gas that can collide have no mean square, and such jumps are too
    rare to be seen in either side. The noise of minibatches adds its recorded temperature to 1/beta.
    """
    _require_described(run)
    beta, (stiffness, centre) = run.constant("beta"), run.trap()
    run.require_free()
    x, gradient = _thinned_gradient(run, PAIR_BUDGET)
    x = x - centre
    drift = _displacement(run, gradient)
    step = run.constant("step_size") if drift is not None else 1.0
    work = -gradient if drift is None else drift / step
    square = 0.0 if drift is None else np.minimum(np.sum(drift**2, axis=-1), _jump(run, step, beta)).mean(-1) / (2 * step)
    moment = np.sum(x**2, axis=-1).mean(-1)
    heat = 0.0 if run.extra_temperature is None else float(run.extra_temperature.mean())
    excess = -(np.sum(x * work, axis=-1).mean(-1) + square + run.dim * (1 / beta + heat)) / stiffness
    gap, error, across = mean_and_error(excess)
    if error > 0.2 * max(moment.mean(), moment.mean() - gap):  # of the larger side: a run that shrank to a point is still tested
        raise NotApplicable("its error is over 20 %: too few frames, or jumps of steps without a drift_cap")
    note = f"{'' if drift is None else 'Euler step included; '}{_closed_form(run, beta, stiffness)}"
    return _law("second_moment", float(moment.mean()) - gap, float(moment.mean()), error, across, 0.0, effective_sample_size(excess), note)


def _jump(run: Run, step: float, beta: float) -> float:
    """The squared drift above which a step is a jump."""
    return JUMP * 2 * step * run.dim / beta


def _closed_form(run: Run, beta: float, stiffness: float) -> str:
    """The law in continuous time, where it is a number."""
    strength = run.plain_strength()
    if strength is None:
        return "virial identity"
    return f"continuous time {(run.dim / beta + (strength / 2 if run.n_particles > 1 else 0)) / stiffness:.5g}"


def energy(run: Run) -> Law:
    """E H_N of the log gas in one dimension at finite N, exact in a trap, between hard walls and on a circle; for exact samplers."""
    _require_described(run)
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
    return _law("energy", predicted, measured, error, across, 0.0, effective_sample_size(run.values), note)


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


def _require_described(run: Run) -> None:
    if run.unknown:
        raise NotApplicable(f"energy terms without a closed form: {', '.join(run.unknown)}")
    if run.external or run.interaction:
        raise NotApplicable("user energies")


def _displacement(run: Run, gradient: FloatArray) -> FloatArray | None:
    """What one Langevin step adds to the particles besides noise; None for an exact sampler."""
    if run.sampler.get("name") != "Langevin":
        return None
    if run.sampler.get("preconditioner") is not None:
        raise NotApplicable("the sampler has a preconditioner")
    if run.sampler.get("clip") is not None:
        gradient = _shortened(gradient, float(run.sampler["clip"]))
    drift = -run.constant("step_size") * gradient
    return drift if run.sampler.get("drift_cap") is None else _shortened(drift, float(run.sampler["drift_cap"]))


def _shortened(vector: FloatArray, limit: float) -> FloatArray:
    length = np.linalg.norm(vector, axis=-1, keepdims=True)
    return vector * np.where(length > limit, limit / np.where(length > 0, length, 1.0), 1.0)


def _thinned_gradient(run: Run, budget: int) -> tuple[FloatArray, FloatArray]:
    """Evenly spaced frames (chain, frame, particle, dim) within a budget of pairs, and the gradient of N H_N on them."""
    cost = run.omega.shape[0] * run.n_particles**2 * run.dim * max(1, len(run.named("Riesz")))
    frames = max(8, budget // cost)
    x = run.omega[:, :: max(1, -(-run.omega.shape[1] // frames))]
    gradient = np.zeros_like(x)
    for term in run.named("Quadratic"):
        gradient += float(term["stiffness"]) * (x - np.asarray(term.get("centre", 0.0), float))
    for term in run.named("Riesz"):
        gradient -= _pair_force(x, term, run.exponent(term))
    return x, gradient


def _pair_force(x: FloatArray, term: dict[str, Any], s: float) -> FloatArray:
    """-strength/(N-1) sum over l != k of grad g_s(x_k - x_l), and of g_s(x_k + x_l) if mirrored; (..., particle, dim), in blocks."""
    n, frames = x.shape[-2], x.reshape(-1, *x.shape[-2:])
    total = np.zeros_like(frames)
    rows, depth = max(1, PAIR_BLOCK // n), max(1, PAIR_BLOCK // n**2)
    for i, j in np.ndindex(-(-len(frames) // depth), -(-n // rows)):
        block, k = frames[i * depth : (i + 1) * depth], np.arange(j * rows, min((j + 1) * rows, n))
        for sign in (-1, 1) if term.get("mirror") else (-1,):
            gap, square = _chord(block[:, k, None] + sign * block[:, None], term.get("period"))
            square = square + float(term.get("softening", 0.0)) ** 2
            square[:, np.arange(len(k)), k] = np.inf
            square[(square == 0) | (square < (term.get("truncation") or 0.0) ** 2)] = np.inf  # coincident, or truncated: no force
            factor = 1 / square if s == 0 else abs(s) * square ** (-s / 2 - 1) * float(term.get("length", 1.0)) ** s
            total[i * depth : (i + 1) * depth, k] += np.einsum("fkl,fkld->fkd", factor, gap)
    return float(term["strength"]) / max(n - 1, 1) * total.reshape(x.shape)


def _chord(gap: FloatArray, period: Any) -> tuple[FloatArray, FloatArray]:
    """Half the gradient of the squared distance, (..., dim), and the squared distance (...); on a torus the distance is the chord's."""
    if period is None:
        return gap, np.sum(gap**2, axis=-1)
    turn = np.asarray(period, float) / np.pi
    return turn / 2 * np.sin(2 * gap / turn), np.sum((turn * np.sin(gap / turn)) ** 2, axis=-1)


def wall_atom(run: Run) -> Law:
    """Fraction of particles on the boundary: about rho_wall sqrt(step/beta) area for projection, 0 for other schemes."""
    scheme = run.sampler.get("scheme")
    if run.domain.get("name") not in ("Ball", "Box"):
        raise NotApplicable("no wall with a predicted atom")
    if scheme not in ("projected", "reflected", "shrunk"):
        raise NotApplicable("the sampler has no scheme at the wall: exact samplers bounce")
    on_wall = run.on_wall().mean(-1)
    measured, error, across = mean_and_error(on_wall)
    if scheme != "projected":
        note = "reflection leaves no atom" if scheme == "reflected" else "shrunk projection stops short of the wall"
        return Law("wall_atom", 0.0, measured, error, across, ROUNDING_LIMIT, float("nan"), measured <= ROUNDING_LIMIT, note)
    sigma = np.sqrt(2 * run.constant("step_size") / run.constant("beta"))
    if measured == 0 and not (run.wall_distances() < 4 * sigma).any():
        return Law("wall_atom", 0.0, 0.0, 0.0, across, 0.0, float("nan"), True, "no particle near the wall")
    for term in run.named("Riesz"):
        if float(term["strength"]) > 0 and run.exponent(term) <= run.dim - 2 and measured > 0:
            raise NotApplicable("for s <= dim - 2 the equilibrium itself has mass on the wall, not to be told from the artefact")
    free = not run.terms and not run.unknown and run.external is None and run.domain["name"] == "Box"
    predicted, predicted_error, allowance = _free_atom(run, sigma) if free else _estimated_atom(run, sigma)
    note = "artefact of projection, free particles" if free else "artefact of projection, from the density near the wall"
    return _law(
        "wall_atom", predicted, measured, float(np.hypot(error, predicted_error)), across, allowance, effective_sample_size(on_wall), note
    )


def _free_atom(run: Run, sigma: float) -> tuple[float, float, float]:
    """Free particles in a box: each wall holds (sigma/sqrt 2)/(width + 2 SHRINK sigma), coordinates independent; good to 1e-4."""
    width = np.broadcast_to(np.asarray(run.domain["high"], float) - np.asarray(run.domain["low"], float), (run.dim,))
    wall = sigma / np.sqrt(2) / (width + 2 * SHRINK * sigma)
    return float(1 - np.prod(1 - 2 * wall)), 0.0, 1e-4


def _estimated_atom(run: Run, sigma: float) -> tuple[float, float, float]:
    """rho_wall sigma/sqrt(2) exp(-SHRINK a sigma/2) a wall, a the rate at which the density falls towards it (Chang & Peres 1997).

    The logarithm of the density is extrapolated to the wall by the parabola through three shells 1 to 5.5 sigma inside; good to about
    3 % for smooth densities, and 5 % is allowed for.
    """
    distance = run.wall_distances()
    if 5.5 * sigma > run.half_width():
        raise NotApplicable("the noise step is too long to see the density near the wall")
    inner = np.array([1.0, 2.5, 4.0])
    weight = np.linalg.solve(np.vander(inner + 0.75, 3, increasing=True).T, [1.0, -SHRINK / 2, 0.0])
    predicted, variance = 0.0, 0.0
    for wall in range(distance.shape[-1]):
        density, error = np.transpose([_shell(run, distance[..., wall], sigma, start, start + 1.5) for start in inner])
        if density.min() <= 0:
            raise NotApplicable("too few particles near the wall to predict its atom")
        atom = float(np.exp(weight @ np.log(density))) * sigma / np.sqrt(2)
        predicted += atom
        variance += float(np.sum((atom * weight * error / density) ** 2))
    return predicted, float(np.sqrt(variance)), 0.05 * predicted


def _shell(run: Run, distance: FloatArray, sigma: float, inner: float, outer: float) -> tuple[float, float]:
    """Mass of a shell near a wall per unit of depth, scaled to the area of the wall, and its standard error."""
    inside = (distance > inner * sigma) & (distance <= outer * sigma)
    mass, error, _ = mean_and_error(inside.mean(-1))
    depth = (outer - inner) * sigma
    if run.domain["name"] == "Ball":
        radius = float(run.domain["radius"])
        ends = radius - np.array([outer, inner]) * sigma
        depth = float(np.diff(ends**run.dim)[0]) / (run.dim * radius ** (run.dim - 1))
    return mass / depth, error / depth


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
        _law("density", 0.0, mean - p, float(np.hypot(error, p_error)), across, allowance, effective_sample_size(draws), note)
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
        return MeanField(lambda x: _external(run, x), lambda r: _interaction(run, r), beta, edges)
    except ValueError as error:
        raise NotApplicable(str(error)) from None


def _external(run: Run, x: FloatArray) -> FloatArray:
    """V(x) in one dimension, user part included."""
    total = np.zeros_like(x) if run.external is None else np.asarray(run.external(x), float)
    for term in run.named("Quadratic"):
        total = total + 0.5 * float(term["stiffness"]) * (x - float(np.ravel(term.get("centre", 0.0))[0])) ** 2
    return total


def _interaction(run: Run, r: FloatArray) -> FloatArray:
    """strength g(r), user part included."""
    total = np.zeros_like(r) if run.interaction is None else np.asarray(run.interaction(r), float)
    for term in run.named("Riesz"):
        distance = r if term.get("period") is None else np.sqrt(_chord(r[..., None], term["period"])[1])
        distance = np.hypot(np.maximum(distance, term.get("truncation") or 0.0), float(term.get("softening", 0.0)))
        s, scaled = run.exponent(term), distance / float(term.get("length", 1.0))
        total = total + float(term["strength"]) * (-np.log(scaled) if s == 0 else np.sign(s) * scaled**-s)
    return total


def _step_allowance(run: Run, beta: float) -> float:
    """Shift of the cumulative distribution by the finite step, from the virial identity.

    The step heats by the fraction beta <|D|^2>/(2 step) of the temperature; half of that scales lengths, and x rho(x) is at most about 1/4.
    """
    if run.sampler.get("name") != "Langevin":
        return 0.0
    frames = max(2, 10_000_000 // (run.omega.shape[0] * run.n_particles**2))
    x = run.omega[:, :: max(1, -(-run.omega.shape[1] // frames))]
    width = 1e-5 * max(float(np.ptp(x)), 1e-300)
    gradient = (_external(run, x + width) - _external(run, x - width)) / (2 * width)
    for chain, frame in np.ndindex(x.shape[:2]) if run.named("Riesz") or run.interaction is not None else ():
        gap = x[chain, frame] - x[chain, frame, :, 0]
        r = np.where(gap == 0, 1.0, np.abs(gap))
        slope = (_interaction(run, r * (1 + 1e-6)) - _interaction(run, r * (1 - 1e-6))) / (2e-6 * r)
        gradient[chain, frame, :, 0] += np.sum(np.sign(gap) * slope, axis=1) / max(run.n_particles - 1, 1)
    drift = _displacement(run, gradient)
    return 0.0 if drift is None else float(0.125 * beta * np.mean(drift**2) / (2 * run.constant("step_size")))


def capped(run: Run) -> Law:
    """Fraction of particle steps that the drift cap shortened; above CAPPED_LIMIT the run does not sample its law."""
    if run.capped is None or run.sampler.get("drift_cap") is None:
        raise NotApplicable("the sampler has no drift cap")
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


def steps(run: Run) -> Law:
    """Fraction of particles about to jump: whose drift, as far as the walls let it, exceeds sqrt(JUMP) noise lengths.

    Thermal drifts are shorter than the noise wherever the step is short enough to be stable. Above JUMP_LIMIT, or where the jumping
    particles hold JUMP_SHARE of the second moment, the run does not sample its law. Energies without a closed form: see `_rms_steps`.
    """
    if run.gradients is not None and (run.unknown or run.external or run.interaction):
        return _rms_steps(run, run.gradients[:, -run.omega.shape[1] :])
    _require_described(run)
    beta = run.constant("beta")
    x, gradient = _thinned_gradient(run, PAIR_BUDGET // 5)
    drift = _displacement(run, gradient)
    if drift is None:
        raise NotApplicable("the sampler takes no Langevin steps")
    square = np.sum((_inside(run, x + drift) - x) ** 2, axis=-1)
    jumps = square > _jump(run, run.constant("step_size"), beta)
    spread = np.sum((x - np.median(x, axis=(0, 1, 2))) ** 2, axis=-1)
    held = float(np.sum(spread * jumps) / max(spread.sum(), np.finfo(float).tiny))
    measured, error, across = mean_and_error(jumps.mean(-1))
    passed = measured <= JUMP_LIMIT and held <= JUMP_SHARE
    why = f"at most {JUMP_LIMIT:g}" if passed else f"with {held:.0%} of the second moment: shorter steps or a drift_cap"
    note = f"drifts over {JUMP**0.5:g} noise lengths, {why}"
    return Law("steps", 0.0, measured, error, across, JUMP_LIMIT, float("nan"), passed, note)


def _rms_steps(run: Run, gradient: FloatArray) -> Law:
    """Fraction of frames whose r.m.s. drift exceeds sqrt(JUMP) noise lengths, by the recorded r.m.s. gradient (chain, frame).

    Coarser than `steps`: one jumping particle hides among many, and walls are not seen, so that runs that touch one are left out.
    """
    drift = _displacement(run, gradient[..., None])
    if drift is None:
        raise NotApplicable("the sampler takes no Langevin steps")
    if run.contact_fraction() > CONTACT_LIMIT:
        raise NotApplicable("energy terms without a closed form, and the recorded drifts do not know of the wall")
    jumps = drift[..., 0] ** 2 > _jump(run, run.constant("step_size"), run.constant("beta"))
    measured, error, across = mean_and_error(jumps)
    passed = measured <= JUMP_LIMIT
    note = f"r.m.s. drifts over {JUMP**0.5:g} noise lengths, {f'at most {JUMP_LIMIT:g}' if passed else 'shorter steps or a drift_cap'}"
    return Law("steps", 0.0, measured, error, across, JUMP_LIMIT, float("nan"), passed, note)


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


def _inside(run: Run, x: FloatArray) -> FloatArray:
    """x moved to the nearest point of the domain."""
    if run.domain.get("name") == "Ball":
        return _shortened(x, float(run.domain["radius"]))
    if run.domain.get("name") == "Box":
        return np.clip(x, run.domain["low"], run.domain["high"])
    return x


def _law(name: str, predicted: float, measured: float, error: float, across: float, allowance: float, ess: float, note: str) -> Law:
    """A statistical law with its two-sided Student-t p-value (ESS - 1 degrees of freedom); the verdict comes with the others."""
    total = float(np.hypot(error, allowance))
    if not np.isfinite(total):
        raise NotApplicable("too few frames for a standard error")
    gap = measured - predicted
    z = 0.0 if gap == 0 else abs(gap) / total if total > 0 else np.inf
    freedom = max(ess - 1, 1.0) if np.isfinite(ess) else np.inf
    return Law(name, predicted, measured, error, across, allowance, float(2 * student_t.sf(z, freedom)), False, note)
