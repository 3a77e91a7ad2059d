"""Rules of the description: the run stays in the domain that it names, and recorded energies and forces are those that it describes."""

from __future__ import annotations

import numpy as np

from theory.report.forces import hamiltonian, require_described
from theory.report.laws import Law
from theory.report.run import NotApplicable, Run

__all__ = ["described_energy", "described_force", "inside"]

SAMPLE = 1_000_000  # pair differences that the energies of a few frames may cost
AGREEMENT = 1e-6  # relative, of recorded and recomputed values; or this many units of rounding of the particles' type
UNITS = 1000


def inside(run: Run) -> Law:
    """Fraction of particles outside the domain: there must be none."""
    distance = run.wall_distances()
    if not distance.shape[-1]:
        raise NotApplicable("no wall, or one of another shape")
    outside = float(np.mean(distance.min(-1) < -run.tolerance))
    note = "within the walls" if outside == 0 else f"up to {-float(distance.min()):.3g} outside: another domain than described"
    return Law("inside", 0.0, outside, 0.0, float("nan"), 0.0, float("nan"), outside == 0, note)


def described_energy(run: Run) -> Law:
    """Largest relative difference of the recorded energies from those of the described terms, on a few frames."""
    x, frames = _sampled(run)
    if run.values is None:
        raise NotApplicable("no energy was recorded")
    recorded, computed = run.values[:, frames], hamiltonian(run, x)
    both = np.isfinite(recorded) & np.isfinite(computed)
    if not both.any():
        raise NotApplicable("no finite energy")
    scale = float(np.abs(computed[both]).max()) + float(np.ptp(computed[both]))
    return _compared("described_energy", recorded[both], computed[both], scale, run, "energies")


def described_force(run: Run) -> Law:
    """Largest relative difference of the recorded sizes of the gradient of N H_N from those of the described terms, on all `frames`."""
    require_described(run)
    _exact_sums(run)
    if run.gradients is None:
        raise NotApplicable("no gradient was recorded")
    stride = -(-run.omega.shape[1] // run.frames.shape[1])
    recorded = run.gradients[:, -run.omega.shape[1] :][:, ::stride]
    computed, pairs = (np.sqrt(np.sum(force**2, axis=-1).mean(-1)) for force in (run.gradient, run.repulsion))
    both = np.isfinite(recorded) & np.isfinite(computed)
    if not both.any():
        raise NotApplicable("no finite gradient")
    return _compared("described_force", recorded[both], computed[both], (computed + pairs)[both], run, "forces")


def _sampled(run: Run) -> tuple[np.ndarray, slice]:
    """A few frames (chain, frame, particle, dim), and which they are."""
    require_described(run)
    _exact_sums(run)
    chains, frames, n, dim = run.omega.shape
    few = slice(None, None, -(-frames // max(1, min(20, SAMPLE // (chains * n * n * dim)))))
    return run.omega[:, few], few


def _exact_sums(run: Run) -> None:
    if any(term.get("tolerance") or term.get("method") == "random_batch" for term in run.named("Riesz")):
        raise NotApplicable("the sums over pairs are approximate")


def _compared(name: str, recorded: np.ndarray, computed: np.ndarray, scale: np.ndarray | float, run: Run, what: str) -> Law:
    """The rule that two arrays agree relative to `scale`."""
    gap = float(np.max(np.abs(recorded - computed) / np.where(scale > 0, scale, 1.0)))
    limit = max(AGREEMENT, UNITS * run.epsilon)
    note = f"recorded {what} are those described" if gap <= limit else f"recorded {what} are not those described"
    return Law(name, 0.0, gap, 0.0, float("nan"), limit, float("nan"), gap <= limit, note)
