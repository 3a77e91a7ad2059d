"""The temperature that forces and positions show together, whatever the strength of the repulsion.

A smooth function f of all particles obeys E[grad f . grad(N H_N)] = E[Lap f] / beta under the Gibbs law, if its slope across the walls
vanishes there (integration by parts; the hypervirial theorem of Hirschfelder 1960, the configurational temperature of Rugh 1997 where
f is the energy), and E f(after a step) = E f(before) along a Langevin run, whatever the step and the wall. The energy itself will not do
for f: its Laplacian has no mean where particles of a log gas meet often (b + dim <= 2), and no variance for b + dim <= 4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import pdist

from theory.arrays import FloatArray
from theory.convergence.chains import effective_sample_size, mean_and_error
from theory.report.forces import displacement, jump, landed, noise_length, require_described
from theory.report.laws import Law, statistical
from theory.report.pairs import pair_blocks
from theory.report.run import CONTACT_LIMIT, NotApplicable, Run

__all__ = ["temperature"]

VALUE_BUDGET = 10_000_000  # pair differences for the values of f after a step


class _Balance(NamedTuple):
    """What changes f, (chain, frame): the forces take `work` away in unit time, a unit of temperature gives `heat` back."""

    work: FloatArray
    heat: FloatArray


def temperature(run: Run, rng: np.random.Generator) -> Law:
    """Temperature at which noise and forces balance in a smooth function f of the particles, against 1/beta.

    In a trap without wall contact f = (1/N) sum_{k<l} log(|x_k - x_l|^2 + a^2)/2 - c (1/N) sum |x_k|^2/2, a of the order of the
    particles' distance, c such that the repulsion does no work on f: the law then tells a wrong temperature (or stiffness) from a wrong
    strength, which only `second_moment` sees. On a torus f is the first sum, between walls (1/N) sum psi(x_k) with psi flat at the wall;
    there temperature and strength are tested together, as only their ratio matters. Langevin steps are taken once more from every frame,
    with noise and its mirror image, so that step, cap and wall are part of the law.
    """
    require_described(run)
    beta = run.constant("beta")
    if not run.named("Riesz") or run.n_particles < 2 or not run.repulsion.any():
        if not run.named("Quadratic"):
            raise NotApplicable("free particles are uniform at every temperature")
        if _free(run):
            raise NotApplicable("without a repulsion the second moment is the temperature")
    balance, note = _trapped(run, rng) if _free(run) and run.named("Quadratic") else _confined(run, rng)
    extra = 0.0 if run.extra_temperature is None else float(run.extra_temperature.mean())
    excess = balance.work - (1 / beta + extra) * balance.heat
    gap, error, across = mean_and_error(excess)
    scale = float(balance.heat.mean())
    if scale == 0 or not np.isfinite(scale):
        raise NotApplicable("noise does not change the test function")
    predicted = 1 / beta + extra
    measured, ess = predicted + gap / scale, effective_sample_size(excess)
    return statistical("temperature", predicted, measured, error / abs(scale), across / abs(scale), 0.0, ess, note)


def _free(run: Run) -> bool:
    """Whether the run is in free space, or far from its walls."""
    return run.domain.get("name") != "Torus" and run.contact_fraction() <= CONTACT_LIMIT


def _trapped(run: Run, rng: np.random.Generator) -> tuple[_Balance, str]:
    """The balance of f in which the repulsion does no work."""
    _, centre = run.trap()
    y, slope, force = (array[:, :: _stride(run)] for array in (run.frames - centre, run.gradient, run.repulsion))
    width = float(y.std()) * run.n_particles ** (-1 / run.dim)
    climb, curvature = _pair_slopes(y, width)
    c, note = -np.sum(climb * force) / np.sum(y * force), "apart from the strength of the repulsion"
    drift = displacement(run, slope)
    if drift is None:
        return _Balance(np.sum((climb + c * y) * slope, axis=(-2, -1)), curvature + c * y[0, 0].size), note
    pairs = _after_a_step(run, y + centre, drift, lambda x: _pair_value(x, width), rng)
    step = run.constant("step_size")
    square = np.minimum(np.sum(drift**2, axis=-1), jump(run, step, run.constant("beta")))
    work = -(np.sum(y * drift, axis=-1) + square / 2).sum(-1) / step
    return _Balance(pairs.work + c * work, pairs.heat + c * y[0, 0].size), f"Euler step included; {note}"


def _confined(run: Run, rng: np.random.Generator) -> tuple[_Balance, str]:
    """The balance of waves on a torus, of psi between walls."""
    name = run.domain.get("name")
    if name not in ("Torus", "Ball", "Box"):
        raise NotApplicable("nothing confines the particles" if name == "FullSpace" else "a wall of another shape")
    f = _waves if name == "Torus" else _flat_at_walls
    x, slope = run.frames[:, :: _stride(run)], run.gradient[:, :: _stride(run)]
    drift = displacement(run, slope)
    note = "only together with the strength"
    if drift is not None:
        return _after_a_step(run, x, drift, lambda x: f(run, x)[0], rng), f"step included; {note}"
    _, climb, curvature = f(run, x)
    return _Balance(np.sum(climb * slope, axis=(-2, -1)), curvature), note


def _stride(run: Run) -> int:
    """Every how many of the run's frames the values of f can be afforded."""
    chains, frames, n, dim = run.frames.shape
    return max(1, chains * frames * n * n * dim // VALUE_BUDGET)


def _after_a_step(run: Run, x: FloatArray, drift: FloatArray, f: Callable[[FloatArray], FloatArray], rng: np.random.Generator) -> _Balance:
    """What one more Langevin step does to f: its drift as `work`, its noise, mirrored, as `heat`, both in unit time."""
    step, beta = run.constant("step_size"), run.constant("beta")
    noise = noise_length(run) * rng.standard_normal(x.shape)
    rest = f(landed(run, x + drift))
    moved = (f(landed(run, x + drift + noise)) + f(landed(run, x + drift - noise))) / 2
    return _Balance((f(x) - rest) / step, beta * (moved - rest) / step)


def _pair_value(x: FloatArray, width: float) -> FloatArray:
    """sum over k < l of log(|x_k - x_l|^2 + width^2)/2, (...)."""
    values = [np.log(pdist(frame, "sqeuclidean") + width**2).sum() / 2 for frame in x.reshape(-1, *x.shape[-2:])]
    return np.reshape(values, x.shape[:-2])


def _pair_slopes(x: FloatArray, width: float) -> tuple[FloatArray, FloatArray]:
    """Gradient (..., particle, dim) and Laplacian (...) of `_pair_value`."""
    frames = x.reshape(-1, *x.shape[-2:])
    climb, curvature = np.zeros_like(frames), np.zeros(len(frames))
    for block, k, gap, square in pair_blocks(frames):
        weight = 1 / (square + width**2)  # 0 for a particle and itself
        climb[block, k] += np.einsum("fkl,fkld->fkd", weight, gap)
        curvature[block] += np.sum((x.shape[-1] - 2) * weight + 2 * (width * weight) ** 2, axis=(1, 2))
    return climb.reshape(x.shape), curvature.reshape(x.shape[:-2])


def _waves(run: Run, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """f = sum over coordinates and q of |sum_k exp(i q x_k)|^2/(2 q^2), its gradient (..., particle, dim) and its Laplacian.

    The wave numbers q = 2 pi m / period end where half a wave is the particles' distance.
    """
    q = 2 * np.pi / np.broadcast_to(np.asarray(run.domain["period"], float), (run.dim,))
    q = q[:, None] * np.arange(1, 1 + max(1, round(run.n_particles ** (1 / run.dim))))
    wave = np.exp(1j * q * x[..., None])
    total = wave.sum(-3)
    climb = -np.sum((total.conj()[..., None, :, :] * wave).imag / q, axis=-1)
    power = np.abs(total) ** 2
    return np.sum(power / (2 * q**2), axis=(-2, -1)), climb, np.sum(run.n_particles - power, axis=(-2, -1))


def _flat_at_walls(run: Run, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """f = sum_k psi(x_k), its gradient (..., particle, dim) and its Laplacian; the slope of psi across the walls vanishes there.

    psi = (R^2 - |x|^2)^2/(4 R^2) in a ball, in a box the sum over its coordinates of the same for an interval.
    """
    if run.domain["name"] == "Ball":
        square, radius2 = np.sum(x**2, axis=-1, keepdims=True), float(run.domain["radius"]) ** 2
        room, bend = 1 - square / radius2, (2 + run.dim) * square / radius2 - run.dim
        return radius2 / 4 * np.sum(room**2, axis=(-2, -1)), -room * x, np.sum(bend, axis=(-2, -1))
    low, high = run.box()
    x, half = x - (low + high) / 2, (high - low) / 2
    room = 1 - (x / half) ** 2
    return np.sum((half * room) ** 2 / 4, axis=(-2, -1)), -room * x, np.sum(2 - 3 * room, axis=(-2, -1))
