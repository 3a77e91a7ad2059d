"""How many particles sit on the walls: the artefact of the projected scheme, predicted."""

from __future__ import annotations

import numpy as np

from theory.arrays import FloatArray
from theory.convergence.chains import effective_sample_size, mean_and_error
from theory.report.forces import SHRINK, noise_length
from theory.report.laws import Law, statistical
from theory.report.run import NotApplicable, Run

__all__ = ["wall_atom"]

ROUNDING_LIMIT = 1e-4  # fraction of reflected particles that may come within rounding of the wall


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
    sigma = noise_length(run)
    if measured == 0 and not (run.wall_distances() < 4 * sigma).any():
        return Law("wall_atom", 0.0, 0.0, 0.0, across, 0.0, float("nan"), True, "no particle near the wall")
    for term in run.named("Riesz"):
        if float(term["strength"]) > 0 and run.exponent(term) <= run.dim - 2 and measured > 0:
            raise NotApplicable("for s <= dim - 2 the equilibrium itself has mass on the wall, not to be told from the artefact")
    free = not run.terms and not run.unknown and run.external is None and run.domain["name"] == "Box"
    predicted, predicted_error, allowance = _free_atom(run, sigma) if free else _estimated_atom(run, sigma)
    note = "artefact of projection, free particles" if free else "artefact of projection, from the density near the wall"
    return statistical(
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
