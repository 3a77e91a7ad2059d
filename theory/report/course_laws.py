"""Laws of a run's course: it has become stationary, its chains agree, and its free energy did not rise on the way."""

from __future__ import annotations

import numpy as np
from scipy.stats import norm

from theory.arrays import FloatArray
from theory.convergence.chains import effective_sample_size, mean_and_error, split_r_hat
from theory.free_energy import differential_entropy
from theory.report.forces import hamiltonian, require_described
from theory.report.laws import Law, statistical
from theory.report.run import NotApplicable, Run

__all__ = ["R_HAT_LIMIT", "free_energy", "mixing", "quantities", "stationarity"]

R_HAT_LIMIT = 1.1  # above, the halves of the chains hold fewer than about 5 independent frames each
LEAST = 8  # frames of a part of a run that can be compared with another
NEIGHBOUR = 4  # whose distance gives the entropy
MOMENTS = 9  # of the course at which the free energy is estimated, ever farther apart
FEW = 64  # points, with which an entropy says nothing


def quantities(run: Run) -> dict[str, FloatArray]:
    """What stationarity and mixing are judged by, (chain, frame): the second moment where positions have one, and the energy."""
    found = {} if run.domain.get("name") == "Torus" else {"second_moment": np.sum(run.omega**2, axis=-1).mean(-1)}
    return found if run.values is None else found | {"energy": run.values}


def stationarity(run: Run) -> Law:
    """Drift between the first and the last third of the frames, in units of its error, of the quantity that drifts most (Geweke 1992).

    The error is the larger one of that by the effective sample sizes of both parts, and that by the spread of the chains' own drifts.
    """
    _require_stationary(run)
    laws = [_drift(name, draws) for name, draws in quantities(run).items() if np.isfinite(draws).all() and np.ptp(draws) > 0]
    if not laws:
        raise NotApplicable("no energy, or infinite energies" if quantities(run) else "no energy was recorded")
    worst = min(laws, key=lambda law: law.p_value)
    return worst._replace(p_value=min(1.0, len(laws) * worst.p_value))


def _drift(name: str, draws: FloatArray) -> Law:
    part = draws.shape[1] // 3
    if part < LEAST:
        raise NotApplicable(f"fewer than {3 * LEAST} frames")
    first, last = draws[:, :part], draws[:, -part:]
    (start, error, _), (end, other, _) = mean_and_error(first), mean_and_error(last)
    own = last.mean(1) - first.mean(1)
    across = float(own.std(ddof=1) / np.sqrt(len(own))) if len(own) > 1 else float("nan")
    error = float(np.nanmax([np.hypot(error, other), across]))
    ess = min(effective_sample_size(first), effective_sample_size(last))
    scale = float(draws.std())
    note = f"{name} from {start:.5g} to {end:.5g}, in its deviations"
    return statistical("stationarity", 0.0, (end - start) / scale, error / scale, across / scale, 0.0, ess, note)


def mixing(run: Run) -> Law:
    """Largest split R-hat of energy and second moment; above R_HAT_LIMIT the chains, or their halves, tell different things.

    A chain that ends where another does fails it too: the two share their noise.

    The square of R-hat is 1 + F/n, n the effective sample size of half a chain and F of the order of 1 (Gelman & Rubin 1992).
    """
    _require_stationary(run)
    values = {name: split_r_hat(draws) for name, draws in quantities(run).items()}
    values = {name: value for name, value in values.items() if np.isfinite(value)}
    if not values:
        raise NotApplicable("nothing whose R-hat is a number")
    worst = max(values, key=lambda name: values[name])
    last = run.omega[:, -1].reshape(len(run.omega), -1)
    copies, passed = len(last) - len(np.unique(last, axis=0)), values[worst] <= R_HAT_LIMIT
    note = f"split R-hat of {worst}, at most {R_HAT_LIMIT:g}" if passed else f"{worst} has not mixed: longer run or burn_in"
    passed, note = (False, f"{copies} chains end where another does: no noise of their own") if copies else (passed, note)
    return Law("mixing", 1.0, values[worst], 0.0, float("nan"), R_HAT_LIMIT - 1, float("nan"), passed, note)


def _require_stationary(run: Run) -> None:
    reason = run.descent()
    if reason is not None:
        raise NotApplicable(reason)


def free_energy(run: Run) -> Law:
    """Largest rise of the free energy per particle between two of a few moments of the whole course, the start left out.

    E H_N - S/beta, with the entropy S of one particle by nearest neighbours among all chains (`free_energy.differential_entropy`). The
    free energy of the law of all particles falls at every step of a sampler that leaves the Gibbs law as it is; with the entropy of one
    particle that is so up to O(1/N), for which, as for the estimator's bias, an allowance is made.
    """
    beta = run.constant("beta")
    energy = _energies(run)
    chains, frames, n, dim = run.whole.shape
    if chains * n < FEW:
        raise NotApplicable(f"fewer than {FEW} particles in all chains: no entropy")
    if frames < 4:
        raise NotApplicable("too few frames")
    moments = np.unique(np.geomspace(1, frames - 1, MOMENTS).astype(int))
    points = [_free_energy(run.whole[:, i], energy[:, i], beta) for i in moments]
    points = [point for point in points if np.isfinite(point).all()]
    if len(points) < 2:
        raise NotApplicable("no entropy: coincident particles, or one group of chains")
    value, error = np.transpose(points)
    later, earlier = np.tril_indices(len(value), -1)
    allowance = (1 / n + (NEIGHBOUR / (chains * n)) ** (1 / dim)) / beta
    rise, spread = value[later] - value[earlier], np.hypot(error[later], error[earlier])
    worst = int(np.argmax(rise / np.hypot(spread, allowance)))
    p = norm.sf(rise[worst] / np.hypot(spread[worst], allowance))
    note = f"largest rise of energy - entropy/beta, {value[0]:.4g} to {value[-1]:.4g}"
    return Law("free_energy", 0.0, float(rise[worst]), float(spread[worst]), float("nan"), allowance, min(1.0, len(rise) * p), False, note)


def _energies(run: Run) -> FloatArray:
    """H_N (chain, frame) from the start on: recorded, or of the described terms."""
    if run.course is not None:
        return run.course
    require_described(run)
    chains, frames, n, dim = run.whole.shape
    if chains * frames * n * n * dim > 20_000_000:
        raise NotApplicable("no energy was recorded, and it costs too much")
    return hamiltonian(run, run.whole)


def _free_energy(x: FloatArray, energy: FloatArray, beta: float) -> tuple[float, float]:
    """Free energy and its standard error for the particles x (chain, particle, dim) of energies (chain,); NaN where there is none."""
    try:
        entropy = differential_entropy(x, neighbour=NEIGHBOUR)
    except ValueError:  # coincident points
        return float("nan"), float("nan")
    spread = float(energy.std(ddof=1) / np.sqrt(len(energy))) if len(energy) > 1 else 0.0
    return float(energy.mean()) - entropy.value / beta, float(np.hypot(entropy.error / beta, spread))
