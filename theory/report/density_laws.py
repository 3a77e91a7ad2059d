"""The density of the particles against the exact or the mean-field law: on the line, along the radius, or coordinate by coordinate."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincinv, ndtr, ndtri

from theory.arrays import FloatArray
from theory.convergence.chains import effective_sample_size, mean_and_error
from theory.ensembles import sample_log_gas, sample_wall_gas
from theory.ensembles.ginibre import ginibre_radial_cdf
from theory.mean_field.radial import RadialBall
from theory.mean_field.solver import MeanField
from theory.report.forces import displacement, external, interaction, riesz_potential, step_heat
from theory.report.laws import Law, statistical
from theory.report.run import CONTACT_LIMIT, NotApplicable, Run

__all__ = ["deciles", "density"]

CELLS, SHELLS = 240, 96  # of the mean-field solver; its error is below 1e-4 of the cumulative distribution
ALLOWANCE_LIMIT = 0.05  # of a probability; a law that allows for more says nothing
GROSS = 0.2  # deviation of a probability that no step excuses
DECILES = np.arange(1, 10) / 10


class _Reference(NamedTuple):
    """The law of one number of each particle, its `values` (chain, frame, particle): probability `level` below each of `points`."""

    values: FloatArray
    points: FloatArray
    level: FloatArray
    level_error: FloatArray | float
    allowance: float
    note: str

    @property
    def slope(self) -> float:
        """Largest x rho(x) between the points: how fast a change of scale moves the levels."""
        return float(np.max(np.abs(self.points[1:] + self.points[:-1]) / 2 * np.diff(self.level) / np.diff(self.points)))


def density(run: Run, rng: int | np.random.Generator) -> Law:
    """Largest deviation of the cumulative distribution at nine deciles of the law, Bonferroni over them.

    On the line: the exact log gas in a trap or between walls, or the mean-field law. In more dimensions: the distance from the centre of a
    trap or a ball, exact for free particles and for the log gas of index 2 in the plane, else mean field; or each coordinate, on a torus
    and for free particles in a box. For mean-field laws see `_finite_n`. A step so long that the law would have to allow for
    ALLOWANCE_LIMIT leaves it untested, unless the deviation is GROSS.
    """
    laws = [law for group in deciles(run, rng) for law in group]
    worst = min(laws, key=lambda law: law.p_value)
    return worst._replace(p_value=min(1.0, len(laws) * worst.p_value))


def deciles(run: Run, rng: int | np.random.Generator) -> list[list[Law]]:
    """The deviation at each decile of the law, of one number of the particles (position, radius), or of each coordinate."""
    references = _references(run, run.constant("beta"), rng)
    inside = ~run.on_wall()  # the atom of projection is an artefact: the law is tested on the particles off the wall
    share = np.maximum(inside.mean(-1), 1 / run.n_particles)
    return [_compared(run, reference, inside, share, len(references) > 1) for reference in references]


def _compared(run: Run, law: _Reference, inside: NDArray[np.bool_], share: FloatArray, several: bool) -> list[Law]:
    """The law at each decile."""
    below = np.stack([((law.values <= point) & inside).mean(-1) / share for point in law.points])
    results = [mean_and_error(draws) for draws in below]
    allowance = law.allowance + float(1 - inside.mean())
    gap = max(abs(mean - p) for (mean, _, _), p in zip(results, law.level))
    step = 0.0 if several and not run.terms else _step_allowance(run, law)
    allowance += _checked_allowance(allowance, step, gap)
    errors = np.broadcast_to(law.level_error, law.level.shape)
    return [
        statistical("density", 0.0, mean - p, float(np.hypot(error, p_error)), across, allowance, effective_sample_size(draws), law.note)
        for (mean, error, across), p, p_error, draws in zip(results, law.level, errors, below)
    ]


def _checked_allowance(other: float, step: float, gap: float) -> float:
    """The step's part of the allowance: none for a GROSS gap; NotApplicable where the law would say nothing."""
    if gap > GROSS + other and step > ALLOWANCE_LIMIT:
        return 0.0
    if step > ALLOWANCE_LIMIT:
        raise NotApplicable(f"the step is too long: it may shift the distribution by {step:.2g}")
    if other + step > ALLOWANCE_LIMIT:
        raise NotApplicable(f"few particles, or many on the wall: the distribution may be off by {other + step:.2g}")
    return step


def _references(run: Run, beta: float, rng: int | np.random.Generator) -> list[_Reference]:
    """The laws that the densities of the run can be compared with."""
    user = bool(run.unknown or run.external or run.interaction)
    if run.domain.get("name") not in ("FullSpace", "Torus", "Ball", "Box"):
        run.require_free()
    free = not any(float(term["strength"]) for term in run.named("Riesz")) and not user
    if run.domain.get("name") == "Torus":
        return _uniform(run, user)
    if run.dim == 1:
        return [_line(run, beta, rng, user)]
    if user:
        raise NotApplicable("user energies, or terms without a closed form, in more than one dimension")
    if run.domain.get("name") == "Box" and not _trapped(run):
        if not free:
            raise NotApplicable("no density law for particles that repel each other in a box")
        return _box(run, beta)
    return [_radial(run, beta, free)]


def _line(run: Run, beta: float, rng: int | np.random.Generator, user: bool) -> _Reference:
    """The exact log gas in a trap or between walls, else the mean-field law on the line."""
    strength, x = run.plain_strength(), run.omega[..., 0]
    if strength is not None and strength >= 0 and not user and run.n_particles > 1 and (_trapped(run) or not run.named("Quadratic")):
        exact = _exact_line(run, beta, strength, rng)
        points = np.quantile(exact, DECILES)
        below = (exact[..., None] <= points).mean(1)
        return _Reference(x, points, below.mean(0), below.std(0, ddof=1) / np.sqrt(len(exact)), 0.0, "worst decile, exact log gas")
    field = _mean_field(run, beta)
    solution = field.stationary()
    if solution.residual > 1e-6:
        raise NotApplicable(f"the mean-field law was not found (residual {solution.residual:.2g})")
    points = np.interp(DECILES, np.concatenate([[0.0], np.cumsum(solution.rho) * field.width]), field.edges)
    return _Reference(x, points, DECILES, 0.0, _finite_n(run), "worst decile, mean field")


def _exact_line(run: Run, beta: float, strength: float, rng: int | np.random.Generator) -> FloatArray:
    """Samples (sample, particle) of the log gas in the run's trap, or between its walls where it has no trap."""
    n = run.n_particles
    size = max(100, 40_000 // n)
    if run.named("Quadratic"):
        stiffness, centre = run.trap()
        return sample_log_gas(n, beta, stiffness, strength, rng, size=size)[..., 0] + centre
    if run.domain.get("name") not in ("Ball", "Box"):
        raise NotApplicable("nothing confines the particles")
    middle = 0.0 if run.domain["name"] == "Ball" else float(np.add(*run.box())[0]) / 2
    return sample_wall_gas(n, beta, strength, run.half_width(), rng, size=size)[..., 0] + middle


def _trapped(run: Run) -> bool:
    """Whether a quadratic trap keeps the particles from every wall."""
    return bool(run.named("Quadratic")) and run.contact_fraction() <= CONTACT_LIMIT


def _finite_n(run: Run) -> float:
    """Allowance for finitely many particles in a mean-field law: 0.25/N, and 0.05 b N^(-1/dim) for neighbours that repel strongly.

    b is beta times the repulsion of two neighbours, the index of a log gas. The log gas on the line, of index up to 4, stays within
    0.09/N; the one of index 2 in the plane (Ginibre, 5 to 160 particles) within 0.09 N^(-1/2).
    """
    if not (run.named("Riesz") or run.interaction):
        return 0.0
    n, spacing = run.n_particles, max(float(run.omega.std()), 1e-300) * run.n_particles ** (-1 / run.dim)
    pairs = [float(t["strength"]) * (spacing / float(t.get("length", 1.0))) ** -run.exponent(t) for t in run.named("Riesz")]
    return 0.25 / n + 0.05 * run.constant("beta") * abs(sum(pairs)) / max(n - 1, 1) * n ** (-1 / run.dim)


def _uniform(run: Run, user: bool) -> list[_Reference]:
    """The coordinates on a torus without external forces, uniform by symmetry."""
    if run.named("Quadratic") or user or any(term.get("mirror") for term in run.named("Riesz")):
        raise NotApplicable("on a torus the density is known for particles that only repel each other")
    period = np.broadcast_to(np.asarray(run.domain["period"], float), (run.dim,))
    coordinates = np.moveaxis(np.mod(run.omega, period), -1, 0)
    return [_Reference(x, DECILES * p, DECILES, 0.0, 0.0, "worst decile, uniform by symmetry") for x, p in zip(coordinates, period)]


def _box(run: Run, beta: float) -> list[_Reference]:
    """The coordinates of free particles in a box: uniform, or normal between walls."""
    low, high = run.box()
    note = f"worst decile{' and coordinate' * (run.dim > 1)}, free particles"
    coordinates = np.moveaxis(run.omega, -1, 0)
    if not run.named("Quadratic"):
        return [_Reference(x, a + DECILES * (b - a), DECILES, 0.0, 0.0, note) for x, a, b in zip(coordinates, low, high)]
    stiffness, centre = run.trap()
    scale = (beta * stiffness) ** -0.5
    below, above = ndtr((low - centre) / scale), ndtr((high - centre) / scale)
    points = centre[:, None] + scale * ndtri(below[:, None] + DECILES * (above - below)[:, None])
    return [_Reference(x, p, DECILES, 0.0, 0.0, note) for x, p in zip(coordinates, points)]


def _radial(run: Run, beta: float, free: bool) -> _Reference:
    """The distance from the centre of the trap, or of the ball."""
    walled = run.domain.get("name") == "Ball" and not _trapped(run)
    stiffness, centre = run.trap() if run.named("Quadratic") else (0.0, np.zeros(run.dim))
    if stiffness == 0 and not walled:
        raise NotApplicable("nothing confines the particles")
    if walled and centre.any():
        raise NotApplicable("the trap's centre is not the ball's")
    r = np.linalg.norm(run.omega - centre, axis=-1)
    if not r.any():
        raise NotApplicable("all particles are in the centre")
    radius = float(run.domain["radius"]) if walled else np.inf
    if free:
        return _Reference(
            r, _free_radii(run.dim, beta * stiffness, radius), DECILES, 0.0, 0.0, "worst decile of the radius, free particles"
        )
    strength = run.plain_strength()
    if strength is None and any(term.get("mirror") or term.get("period") for term in run.named("Riesz")):
        raise NotApplicable("no mean-field density for a mirrored or periodic interaction")
    if run.dim == 2 and not walled and strength and abs(beta * strength / (run.n_particles - 1) - 2) < 1e-9:
        points = np.quantile(r, DECILES)
        level = ginibre_radial_cdf(points, run.n_particles, beta, stiffness)
        return _Reference(r, points, level, 0.0, 0.0, "worst decile of the radius, exact Ginibre")
    _require_integrable(run)
    if not walled:
        radius = 1.2 ** np.ceil(np.log(1.3 * r.max()) / np.log(1.2))  # one of few, so that runs of one gas share one law
    try:
        points = _shells(json.dumps(run.named("Riesz")), run.dim, stiffness, beta, float(radius))
    except ValueError as error:
        raise NotApplicable(str(error)) from None
    return _Reference(r, points, DECILES, 0.0, _finite_n(run), "worst decile of the radius, mean field")


def _require_integrable(run: Run) -> None:
    """NotApplicable where the energy of every density is infinite."""
    for term in run.named("Riesz"):
        singular = float(term["strength"]) and not (term.get("softening") or term.get("truncation"))
        if singular and run.exponent(term) >= run.dim:
            raise NotApplicable(f"no mean field: s must be below the dimension {run.dim}, got {run.exponent(term):g}")


@lru_cache(maxsize=32)
def _shells(riesz: str, dim: int, stiffness: float, beta: float, radius: float) -> FloatArray:
    """Deciles of the radius of the mean-field law in a ball; ValueError where there is none."""
    terms, mesh = json.loads(riesz), RadialBall(radius, SHELLS, dim)
    field = MeanField(lambda r: stiffness * r**2 / 2, lambda r: sum(riesz_potential(term, dim, r) for term in terms), beta, mesh)
    solution = field.stationary()
    if solution.residual > 1e-6:
        raise ValueError(f"the mean-field law was not found (residual {solution.residual:.2g})")
    cumulative = np.concatenate([[0.0], np.cumsum(solution.rho * mesh.volume)])
    return np.interp(DECILES, cumulative, mesh.edges**dim) ** (1 / dim)


def _free_radii(dim: int, rate: float, radius: float) -> FloatArray:
    """Deciles of |x| under exp(-rate |x|^2/2) within |x| <= radius."""
    if rate == 0:
        return radius * DECILES ** (1 / dim)
    whole = 1.0 if np.isinf(radius) else gammainc(dim / 2, rate * radius**2 / 2)
    return np.sqrt(2 / rate * gammaincinv(dim / 2, DECILES * whole))


def _mean_field(run: Run, beta: float) -> MeanField:
    """The mean field on the line, between the walls, or where the particles are and as far again."""
    if any(term.get("mirror") or term.get("period") for term in run.named("Riesz")):
        raise NotApplicable("no mean-field density for a mirrored or periodic interaction")
    if run.unknown and run.external is None and run.interaction is None:
        raise NotApplicable(f"energy terms without a closed form: {', '.join(run.unknown)}; pass external or interaction")
    if run.domain.get("name") not in ("Ball", "Box"):
        if not run.named("Quadratic") and run.external is None:
            raise NotApplicable("nothing confines the particles")
        low, high = float(run.omega.min()), float(run.omega.max())
        low, high = low - (high - low) / 2, high + (high - low) / 2
    elif run.domain["name"] == "Ball":
        low, high = -float(run.domain["radius"]), float(run.domain["radius"])
    else:
        low, high = (float(end[0]) for end in run.box())
    interacting = bool(run.named("Riesz") or run.interaction)
    _require_integrable(run)
    try:
        edges = np.linspace(low, high, CELLS + 1)
        return MeanField(lambda x: external(run, x), (lambda r: interaction(run, r)) if interacting else None, beta, edges)
    except ValueError as error:
        raise NotApplicable(str(error)) from None


def _step_allowance(run: Run, law: _Reference) -> float:
    """Shift of the cumulative distribution by the finite step, from the virial identity.

    The step heats by a fraction of the temperature; half of that scales lengths. On the line x rho(x) is at most about 1/4.
    """
    if run.sampler.get("name") != "Langevin":
        return 0.0
    if run.dim > 1:
        return step_heat(run) / 2 * law.slope
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
    return 0.0 if drift is None else float(0.125 * run.constant("beta") * np.mean(drift**2) / (2 * run.constant("step_size")))
