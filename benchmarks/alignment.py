"""The alignment step: 20,000 rows of 5 inputs with binary labels, 300 particles; the paper reports 922 s for 2,000 steps.

A step is the gradient of the paper's alignment energy, the Langevin move and the projection on a ball, here by this package and by
plain torch autograd over the matrix of rows x particles; both get the same noise and must agree to rounding after 20 steps. One thread;
the two take turns, five steps at a time; a figure is the smallest process CPU time of a step over 50 steps each (10 with --quick).
`ratio` is that of torch to this package. The last row (not with --quick) is the whole run of 2,000 steps through `simulate`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import torch

from benchmarks.timing import best_times
from particles.alignment import Alignment
from particles.domain import Ball
from particles.langevin import Langevin
from particles.random import normal
from particles.simulate import simulate

N_ROWS, N_PARTICLES, DIM, N_STEPS = 20_000, 300, 5, 2_000
STEP_SIZE, BETA, RADIUS = 2.0, 1000.0, 5.0
PAPER_SECONDS = 922.0
BARS = {np.float64: 4.0, np.float32: 3.0}  # at least so many times faster than torch
BLOCK, AGREEMENT = 5, 20  # steps that are timed together, and steps that are compared
ROUNDING = {np.float64: 1e-10, np.float32: 2e-4}  # largest difference of a coordinate after the compared steps


def problem(feature: str, dtype: type, *, n_rows: int = N_ROWS) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x (row, dim), labels -1 and +1 that a random direction decides with 10 % flips, and the first particles."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n_rows, DIM))
    y = np.sign(np.cos(2 * x @ rng.normal(size=DIM) / math.sqrt(DIM) + 0.5)) * np.where(rng.random(n_rows) < 0.1, -1, 1)
    omega = 0.5 * rng.normal(size=(N_PARTICLES, DIM + (feature == "phase")))
    return x.astype(dtype), y.astype(dtype), omega.astype(dtype)


def noise(step: int, shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """The Langevin displacement by noise in one step, the same for both methods."""
    return (math.sqrt(2 * STEP_SIZE / BETA) * normal((0, 0, step), shape)).astype(dtype)


def ours(x: np.ndarray, y: np.ndarray, feature: str) -> Callable[[np.ndarray, int], np.ndarray]:
    """(particles, number of the step) -> particles after it, by this package."""
    energy = Alignment(x, y, feature, centre=False, scale=False)

    def step(omega: np.ndarray, number: int) -> np.ndarray:
        moved = omega - STEP_SIZE * energy.gradient(omega) + noise(number, omega.shape, omega.dtype.type)
        return Ball(RADIUS, omega.shape[1]).project(moved)

    return step


def autograd(x: np.ndarray, y: np.ndarray, feature: str) -> Callable[[np.ndarray, int], np.ndarray]:
    """The same by torch: one matrix of phases, the energy as one would write it down, and its derivative by autograd."""
    rows, labels = torch.as_tensor(x), torch.as_tensor(y)
    pairs = len(x) * (len(x) - 1)

    def potential(omega: torch.Tensor) -> torch.Tensor:
        """N H_N; the diagonal of the pair feature is a constant."""
        if feature == "phase":
            cos = (rows @ omega[:, :-1].T + omega[:, -1]).cos()
            return -2 / pairs * ((labels @ cos) ** 2 - (labels**2) @ cos**2).sum()
        phases = rows @ omega.T
        return -1 / pairs * ((labels @ phases.cos()) ** 2 + (labels @ phases.sin()) ** 2).sum()

    def step(omega: np.ndarray, number: int) -> np.ndarray:
        at = torch.tensor(omega, requires_grad=True)
        (gradient,) = torch.autograd.grad(potential(at), at)
        with torch.no_grad():
            moved = at - STEP_SIZE * gradient + torch.as_tensor(noise(number, omega.shape, omega.dtype.type))
            return (moved * (RADIUS / moved.norm(dim=1, keepdim=True)).clamp(max=1.0)).numpy()

    return step


def repeat(step: Callable[[np.ndarray, int], np.ndarray], omega: np.ndarray, n_steps: int) -> np.ndarray:
    """The particles after some steps."""
    for number in range(n_steps):
        omega = step(omega, number)
    return omega


def compare(feature: str, dtype: type, n_steps: int) -> list[dict[str, Any]]:
    """Two rows, this package and torch; RuntimeError if they part by more than rounding."""
    x, y, omega = problem(feature, dtype)
    steps = {"kernelgas": ours(x, y, feature), "torch autograd": autograd(x, y, feature)}
    ends = [repeat(step, omega, min(AGREEMENT, 2 * n_steps)) for step in steps.values()]
    error = float(np.abs(ends[0] - ends[1]).max())
    if not error < ROUNDING[dtype]:
        raise RuntimeError(f"{feature} {dtype.__name__}: particles differ by {error:.1e} after {AGREEMENT} steps")
    calls = {name: lambda step=step: repeat(step, omega, BLOCK) for name, step in steps.items()}
    seconds = {name: t / BLOCK for name, t in best_times(calls, rounds=n_steps // BLOCK, budget=math.inf).items()}
    ratio = seconds["torch autograd"] / seconds["kernelgas"]
    rows = [_row(feature, dtype, name, seconds=t, difference=error) for name, t in seconds.items()]
    rows[0] |= {"ratio": ratio, "bar": f"ratio >= {BARS[dtype]:g}", "passed": ratio >= BARS[dtype]}
    return rows


def _row(feature: str, dtype: type, method: str, *, seconds: float, difference: float | None = None) -> dict[str, Any]:
    ns = seconds / N_ROWS / N_PARTICLES * 1e9
    return {
        "feature": feature, "dtype": dtype.__name__, "method": method, "ms_per_step": 1e3 * seconds, "ns_per_row_and_particle": ns,
        "ratio": None, "difference": difference, "bar": None, "passed": None,
    }  # fmt: skip


def whole_run(n_steps: int = N_STEPS) -> dict[str, Any]:
    """The paper's 2,000 steps through `simulate`, with its records; CPU time of the process."""
    x, y, omega = problem("phase", np.float64)
    energy = Alignment(x, y, "phase", centre=False, scale=False)
    start = time.process_time()
    simulate(omega, energy, Ball(RADIUS, DIM + 1), Langevin(STEP_SIZE, BETA), n_steps=n_steps, save_every=100, rng=0)
    seconds = time.process_time() - start
    method = f"{n_steps} steps by simulate: {seconds:.0f} s (the paper: {PAPER_SECONDS:.0f} s)"
    row = _row("phase", np.float64, method, seconds=seconds / n_steps)
    return row | {"ratio": PAPER_SECONDS / seconds}


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows of the four comparisons, and of the whole run unless quick."""
    torch.set_num_threads(1)
    threads = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        rows = [row for dtype in BARS for feature in ("phase", "fourier") for row in compare(feature, dtype, 10 if quick else 50)]
        return rows if quick else [*rows, whole_run()]
    finally:
        numba.set_num_threads(threads)
