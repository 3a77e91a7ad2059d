"""The forces of a described run, and its step, computed again: nothing is shared with the simulation."""

from __future__ import annotations

from typing import Any

import numpy as np

from theory.arrays import FloatArray
from theory.run import NotApplicable, Run

__all__ = [
    "PAIR_BUDGET",
    "chord",
    "displacement",
    "external",
    "inside",
    "interaction",
    "jump",
    "pair_force",
    "require_described",
    "shortened",
    "thinned_gradient",
]

PAIR_BUDGET = 50_000_000  # pair differences that one law may form; more frames than that are thinned
PAIR_BLOCK = 100_000  # pairs formed at once
JUMP = 16.0  # squared drift, in units of the squared noise length, above which a step is a rare jump


def require_described(run: Run) -> None:
    """NotApplicable unless every energy term has a closed form."""
    if run.unknown:
        raise NotApplicable(f"energy terms without a closed form: {', '.join(run.unknown)}")
    if run.external or run.interaction:
        raise NotApplicable("user energies")


def thinned_gradient(run: Run, budget: int) -> tuple[FloatArray, FloatArray]:
    """Evenly spaced frames (chain, frame, particle, dim) within a budget of pairs, and the gradient of N H_N on them."""
    cost = run.omega.shape[0] * run.n_particles**2 * run.dim * max(1, len(run.named("Riesz")))
    frames = max(8, budget // cost)
    x = run.omega[:, :: max(1, -(-run.omega.shape[1] // frames))]
    gradient = np.zeros_like(x)
    for term in run.named("Quadratic"):
        gradient += float(term["stiffness"]) * (x - np.asarray(term.get("centre", 0.0), float))
    for term in run.named("Riesz"):
        gradient -= pair_force(x, term, run.exponent(term))
    return x, gradient


def pair_force(x: FloatArray, term: dict[str, Any], s: float) -> FloatArray:
    """-strength/(N-1) sum over l != k of grad g_s(x_k - x_l), and of g_s(x_k + x_l) if mirrored; (..., particle, dim), in blocks."""
    n, frames = x.shape[-2], x.reshape(-1, *x.shape[-2:])
    total = np.zeros_like(frames)
    rows, depth = max(1, PAIR_BLOCK // n), max(1, PAIR_BLOCK // n**2)
    for i, j in np.ndindex(-(-len(frames) // depth), -(-n // rows)):
        block, k = frames[i * depth : (i + 1) * depth], np.arange(j * rows, min((j + 1) * rows, n))
        for sign in (-1, 1) if term.get("mirror") else (-1,):
            gap, square = chord(block[:, k, None] + sign * block[:, None], term.get("period"))
            square = square + float(term.get("softening", 0.0)) ** 2
            square[:, np.arange(len(k)), k] = np.inf
            square[(square == 0) | (square < (term.get("truncation") or 0.0) ** 2)] = np.inf  # coincident, or truncated: no force
            factor = 1 / square if s == 0 else abs(s) * square ** (-s / 2 - 1) * float(term.get("length", 1.0)) ** s
            total[i * depth : (i + 1) * depth, k] += np.einsum("fkl,fkld->fkd", factor, gap)
    return float(term["strength"]) / max(n - 1, 1) * total.reshape(x.shape)


def chord(gap: FloatArray, period: Any) -> tuple[FloatArray, FloatArray]:
    """Half the gradient of the squared distance, (..., dim), and the squared distance (...); on a torus the distance is the chord's."""
    if period is None:
        return gap, np.sum(gap**2, axis=-1)
    turn = np.asarray(period, float) / np.pi
    return turn / 2 * np.sin(2 * gap / turn), np.sum((turn * np.sin(gap / turn)) ** 2, axis=-1)


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


def shortened(vector: FloatArray, limit: float) -> FloatArray:
    """Vectors (..., dim) longer than `limit` scaled to that length."""
    length = np.linalg.norm(vector, axis=-1, keepdims=True)
    return vector * np.where(length > limit, limit / np.where(length > 0, length, 1.0), 1.0)


def jump(run: Run, step: float, beta: float) -> float:
    """The squared drift above which a step is a jump."""
    return JUMP * 2 * step * run.dim / beta


def inside(run: Run, x: FloatArray) -> FloatArray:
    """x moved to the nearest point of the domain."""
    if run.domain.get("name") == "Ball":
        return shortened(x, float(run.domain["radius"]))
    if run.domain.get("name") == "Box":
        return np.clip(x, run.domain["low"], run.domain["high"])
    return x


def external(run: Run, x: FloatArray) -> FloatArray:
    """V(x) in one dimension, user part included."""
    total = np.zeros_like(x) if run.external is None else np.asarray(run.external(x), float)
    for term in run.named("Quadratic"):
        total = total + 0.5 * float(term["stiffness"]) * (x - float(np.ravel(term.get("centre", 0.0))[0])) ** 2
    return total


def interaction(run: Run, r: FloatArray) -> FloatArray:
    """strength g(r), user part included."""
    total = np.zeros_like(r) if run.interaction is None else np.asarray(run.interaction(r), float)
    for term in run.named("Riesz"):
        distance = r if term.get("period") is None else np.sqrt(chord(r[..., None], term["period"])[1])
        distance = np.hypot(np.maximum(distance, term.get("truncation") or 0.0), float(term.get("softening", 0.0)))
        s, scaled = run.exponent(term), distance / float(term.get("length", 1.0))
        total = total + float(term["strength"]) * (-np.log(scaled) if s == 0 else np.sign(s) * scaled**-s)
    return total
