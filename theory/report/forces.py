"""The energy of a described run and its Langevin step, computed again: nothing is shared with the simulation."""

from __future__ import annotations

from typing import Any

import numpy as np

from theory.arrays import FloatArray
from theory.report.pairs import chord, exponent, pair_energy
from theory.report.run import NotApplicable, Run

__all__ = [
    "JUMP",
    "SHRINK",
    "displacement",
    "external",
    "hamiltonian",
    "inside",
    "interaction",
    "jump",
    "landed",
    "noise_length",
    "require_described",
    "riesz_potential",
    "shortened",
    "step_heat",
]

SHRINK = 0.5825971579  # -zeta(1/2)/sqrt(2 pi): where a Gaussian walk of unit step sees a wall (Siegmund 1979)
JUMP = 16.0  # squared drift, in units of the squared noise length, above which a step is a rare jump


def require_described(run: Run) -> None:
    """NotApplicable unless every energy term has a closed form."""
    if run.unknown:
        raise NotApplicable(f"energy terms without a closed form: {', '.join(run.unknown)}")
    if run.external or run.interaction:
        raise NotApplicable("user energies")


def hamiltonian(run: Run, x: FloatArray) -> FloatArray:
    """H_N of the described terms at x (..., particle, dim), (...)."""
    total = np.zeros(x.shape[:-2])
    for term in run.named("Quadratic"):
        total += float(term["stiffness"]) / 2 * np.sum((x - np.asarray(term.get("centre", 0.0), float)) ** 2, axis=-1).mean(-1)
    for term in run.named("Riesz"):
        total += pair_energy(x, term, run.exponent(term))
    return total


def displacement(run: Run, gradient: FloatArray) -> FloatArray | None:
    """What one Langevin step adds to the particles besides noise; None for an exact sampler."""
    if run.sampler.get("name") != "Langevin":
        return None
    if run.sampler.get("preconditioner") is not None:
        raise NotApplicable("the sampler has a preconditioner")
    if run.sampler.get("clip") is not None:
        gradient = shortened(gradient, float(run.sampler["clip"]))
    drift = -run.constant("step_size") * gradient
    return drift if run.sampler.get("drift_cap") is None else shortened(drift, float(run.sampler["drift_cap"]))


def step_heat(run: Run) -> float:
    """Fraction of the temperature by which Langevin steps of the described terms heat, to first order; 0 for exact samplers.

    The virial identity of the step: the term |D|^2/2 beside dim step/beta; jumps are cut as in `moment_laws.second_moment`.
    """
    drift = displacement(run, run.gradient)
    if drift is None:
        return 0.0
    step, beta = run.constant("step_size"), run.constant("beta")
    return float(beta * np.minimum(np.sum(drift**2, axis=-1), jump(run, step, beta)).mean() / (2 * step * run.dim))


def shortened(vector: FloatArray, limit: float) -> FloatArray:
    """Vectors (..., dim) longer than `limit` scaled to that length."""
    length = np.linalg.norm(vector, axis=-1, keepdims=True)
    return vector * np.where(length > limit, limit / np.where(length > 0, length, 1.0), 1.0)


def jump(run: Run, step: float, beta: float) -> float:
    """The squared drift above which a step is a jump."""
    return JUMP * 2 * step * run.dim / beta


def noise_length(run: Run) -> float:
    """Standard deviation of the noise of one Langevin step, a coordinate."""
    return float(np.sqrt(2 * run.constant("step_size") / run.constant("beta")))


def landed(run: Run, x: FloatArray) -> FloatArray:
    """Where a Langevin step that arrives at x (..., dim) ends, by the sampler's scheme at the wall."""
    scheme = run.sampler.get("scheme", "projected")
    if scheme == "reflected":
        return _folded(run, x)
    return inside(run, x, SHRINK * noise_length(run) if scheme == "shrunk" else 0.0)


def inside(run: Run, x: FloatArray, margin: float = 0.0) -> FloatArray:
    """x (..., dim) moved to the nearest point of the domain at least `margin` from its wall."""
    if run.domain.get("name") == "Ball":
        return shortened(x, float(run.domain["radius"]) - margin)
    if run.domain.get("name") == "Box":
        low, high = run.box()
        return np.clip(x, low + margin, high - margin)
    return x


def _folded(run: Run, x: FloatArray) -> FloatArray:
    """x mirrored at the wall as often as its overshoot asks for; in a ball along its own direction."""
    if run.domain.get("name") == "Ball":
        radius, length = float(run.domain["radius"]), np.linalg.norm(x, axis=-1, keepdims=True)
        return x * np.where(length > radius, _triangle(length, -radius, radius) / np.where(length > 0, length, 1.0), 1.0)
    return _triangle(x, *run.box()) if run.domain.get("name") == "Box" else x


def _triangle(x: FloatArray, low: Any, high: Any) -> FloatArray:
    """x folded into [low, high]."""
    return high - np.abs(np.mod(x - low, 2 * (high - low)) - (high - low))


def external(run: Run, x: FloatArray) -> FloatArray:
    """V(x) in one dimension, user part included."""
    total = np.zeros_like(x) if run.external is None else np.asarray(run.external(x), float).reshape(x.shape)
    for term in run.named("Quadratic"):
        total = total + 0.5 * float(term["stiffness"]) * (x - float(np.ravel(term.get("centre", 0.0))[0])) ** 2
    return total


def interaction(run: Run, r: FloatArray) -> FloatArray:
    """strength g(r), user part included."""
    total = np.zeros_like(r) if run.interaction is None else np.asarray(run.interaction(r), float)
    return sum((riesz_potential(term, run.dim, r) for term in run.named("Riesz")), total)


def riesz_potential(term: dict[str, Any], dim: int, r: FloatArray) -> FloatArray:
    """strength g(r) of a Riesz term."""
    distance = r if term.get("period") is None else np.sqrt(chord(r[..., None], term["period"])[1])
    distance = np.hypot(np.maximum(distance, term.get("truncation") or 0.0), float(term.get("softening", 0.0)))
    s, scaled = exponent(term, dim), distance / float(term.get("length", 1.0))
    return float(term["strength"]) * (-np.log(scaled) if s == 0 else np.sign(s) * scaled**-s)
