"""Does a run obey the laws it should? `check` reads a trajectory and compares it with every prediction that applies.

The Dataset is one that a simulation wrote: `omega` (chain, step, particle, dim), optionally `energy`, `projected`, `capped`
(chain, step), and attrs `energy`, `domain`, `sampler`, descriptions as JSON. Nothing here shares code with the simulation.

Statistical laws are tested together at a false-alarm rate of `alpha` (Bonferroni); the standard errors come from the effective
sample size, and errors that theory knows of (finite step, finite N) enter as an `allowance`, one more standard deviation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as student_t

from theory.convergence import effective_sample_size, mean_and_error, split_r_hat
from theory.ensembles import sample_log_gas
from theory.mean_field import MeanField
from theory.spectral import FloatArray, finite

__all__ = ["check", "summary"]

PAIR_BUDGET = 50_000_000  # pair differences that one check may form; more frames than that are thinned
CELLS = 240  # of the mean-field solver; its error is below 1e-4 of the cumulative distribution
CAPPED_LIMIT = 1e-3  # fraction of capped steps above which a run no longer samples its law
CONTACT_LIMIT = 1e-5  # fraction of steps at the wall below which the laws of free space hold
ROUNDING_LIMIT = 1e-4  # fraction of reflected particles that may come within rounding of the wall
SHRINK = 0.5825971579  # -zeta(1/2)/sqrt(2 pi): where a Gaussian walk of unit step sees a wall (Siegmund 1979)

JUMP = 16.0  # squared drift, in units of the squared noise length, above which a step is a rare jump

Potential = Callable[[FloatArray], ArrayLike]


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


class NotApplicable(Exception):
    """Why a law cannot be tested on this run."""


def check(
    dataset: xr.Dataset,
    *,
    external: Potential | None = None,
    interaction: Potential | None = None,
    burn_in: float = 0.25,
    alpha: float = 1e-3,
    rng: int | np.random.Generator = 0,
) -> xr.Dataset:
    """Compare a run with the laws that apply to it.

    Laws: "second_moment" (virial identity of the Euler step itself, exact at any step size; needs a trap and no wall contact),
    "wall_atom" (fraction of particles on the boundary against the artefact of the projected scheme, never read as physics),
    "density" (one dimension: cumulative distribution at the nine deciles of the exact or mean-field law), "capped".

    Parameters
    ----------
    dataset
        A trajectory with `omega` (chain, step, particle, dim) and the descriptions in its attrs.
    external, interaction
        Callables of x and of the distance r, for energy terms that the description does not give in closed form (alignment, user
        energies); they are added to the described terms and used by the density law. V(x) is per particle, g(r) includes its strength.
    burn_in
        Fraction of the saved frames left out at the start.
    alpha
        Rate at which a correct run is rejected, all statistical laws together.
    rng
        Seed or generator of the exact sampler that the density law may draw from.

    Returns
    -------
    xr.Dataset
        `predicted`, `measured`, `standard_error` (effective sample size), `standard_error_chains` (spread of the chains),
        `allowance`, `z`, `p_value`, `passed`, `note` on the axis `law`, which is empty if nothing applies; `r_hat`, `ess` and `mean`
        on the axis `quantity`. attrs["skipped"] says, as JSON, why each other law was left out.

    Raises
    ------
    ValueError
        If `omega` is missing or misshapen, or burn_in or alpha lies outside [0, 1) and (0, 1).
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must lie in (0, 1), got {alpha!r}")
    run = _read(dataset, burn_in, external, interaction)
    laws: list[Law] = []
    skipped: dict[str, str] = {}
    tests: dict[str, Callable[[Run], Law]] = {
        "second_moment": _second_moment,
        "wall_atom": _wall_atom,
        "density": partial(_density, rng=rng),
        "capped": _capped,
    }
    for name, test in tests.items():
        try:
            laws.append(test(run))
        except NotApplicable as reason:
            skipped[name] = str(reason)
    table = _table(laws, alpha).merge(_mixing(run, dataset))
    table.attrs = {
        "schema": "kernelgas.check/1",
        "alpha": alpha,
        "burn_in": burn_in,
        "n_frames": run.omega.shape[1],
        "skipped": json.dumps(skipped),
    }
    return table


def summary(table: xr.Dataset) -> str:
    """The result of `check` as a few lines of text."""
    lines = [f"{'law':<14} {'predicted':>11} {'measured':>11} {'+-':>9} {'z':>7}  verdict"]
    for name in table["law"].values:
        row = table.sel(law=name)
        error = float(np.hypot(row["standard_error"], row["allowance"]))
        numbers = f"{float(row['predicted']):11.5g} {float(row['measured']):11.5g} {error:9.2g} {float(row['z']):7.2f}"
        lines.append(f"{name:<14} {numbers}  {'ok' if bool(row['passed']) else 'FAILED'}  {row['note'].values!s}")
    if not table.sizes["law"]:
        lines.append("no law applies to this run")
    for name in table["quantity"].values:
        row = table.sel(quantity=name)
        lines.append(
            f"{name:<14} mean {float(row['mean']):.5g}, split R-hat {float(row['r_hat']):.3f}, effective samples {float(row['ess']):.0f}"
        )
    lines += [f"not tested: {name} ({reason})" for name, reason in json.loads(table.attrs["skipped"]).items()]
    return "\n".join(lines)


# Reading a run.


@dataclass(frozen=True)
class Run:
    """What the laws need to know of a run, burn-in removed; `unknown` names energy terms without a closed form."""

    omega: FloatArray  # (chain, frame, particle, dim)
    terms: tuple[dict[str, Any], ...]
    unknown: tuple[str, ...]
    domain: dict[str, Any]
    sampler: dict[str, Any]
    contact: FloatArray | None  # fraction at the wall (chain, frame)
    capped: FloatArray | None
    tolerance: float
    external: Potential | None
    interaction: Potential | None

    @property
    def dim(self) -> int:
        return self.omega.shape[-1]

    @property
    def n_particles(self) -> int:
        return self.omega.shape[-2]

    def named(self, name: str) -> list[dict[str, Any]]:
        """The energy terms of one kind."""
        return [term for term in self.terms if term["name"] == name]

    def constant(self, name: str) -> float:
        """A sampler parameter that must be one finite number."""
        try:
            value = float(self.sampler[name])
        except (KeyError, TypeError, ValueError):
            raise NotApplicable(f"the sampler's {name} is not one number") from None
        if not np.isfinite(value):
            raise NotApplicable(f"the sampler's {name} is infinite")
        return value

    def trap(self) -> tuple[float, FloatArray]:
        """Total stiffness and centre (dim,) of the quadratic terms; NotApplicable without one."""
        stiffness = [float(term["stiffness"]) for term in self.named("Quadratic")]
        if not sum(stiffness) > 0:
            raise NotApplicable("the energy has no quadratic trap")
        centres = [np.broadcast_to(np.asarray(term.get("centre", 0.0), float), (self.dim,)) for term in self.named("Quadratic")]
        return sum(stiffness), np.sum([k * c for k, c in zip(stiffness, centres)], axis=0) / sum(stiffness)

    def exponent(self, term: dict[str, Any]) -> float:
        """The Riesz exponent as a number."""
        return float(self.dim - 2) if term["s"] == "coulomb" else float(term["s"])

    def on_wall(self) -> NDArray[np.bool_]:
        """Which particles sit on the boundary, (chain, frame, particle)."""
        return np.any(self.wall_distances() <= self.tolerance, axis=-1)

    def wall_distances(self) -> FloatArray:
        """Distances to the walls, (chain, frame, particle, wall): one wall for a ball, two a coordinate for a box, none otherwise."""
        if self.domain.get("name") == "Ball":
            return float(self.domain["radius"]) - np.linalg.norm(self.omega, axis=-1)[..., None]
        if self.domain.get("name") == "Box":
            low, high = (np.broadcast_to(np.asarray(self.domain[side], float), (self.dim,)) for side in ("low", "high"))
            return np.concatenate([self.omega - low, high - self.omega], axis=-1)
        return np.empty((*self.omega.shape[:-1], 0))

    def half_width(self) -> float:
        """Radius of the ball, or half the narrowest side of the box."""
        if self.domain["name"] == "Ball":
            return float(self.domain["radius"])
        return float(np.min(np.subtract(self.domain["high"], self.domain["low"]))) / 2

    def contact_fraction(self) -> float:
        """Largest of the recorded and the visible fraction of particles at the wall."""
        recorded = 0.0 if self.contact is None else float(self.contact.mean())
        return max(recorded, float(self.on_wall().mean()))

    def require_free(self) -> None:
        """NotApplicable if the run touches a wall."""
        fraction = self.contact_fraction()
        if fraction > CONTACT_LIMIT:
            raise NotApplicable(f"the particles touch the wall ({fraction:.2g} of them)")


def _read(dataset: xr.Dataset, burn_in: float, external: Potential | None, interaction: Potential | None) -> Run:
    if "omega" not in dataset or set(dataset["omega"].dims) != {"chain", "step", "particle", "dim"}:
        raise ValueError(f"dataset must hold omega (chain, step, particle, dim), got {dict(dataset.sizes)} and {list(dataset.data_vars)}")
    start = _start(dataset, burn_in)
    omega = dataset["omega"].transpose("chain", "step", "particle", "dim").values[:, start:]
    energy = _description(dataset, "energy")
    terms = list(_flatten(energy)) if energy else []
    known = tuple(term for term in terms if _closed(term))
    return Run(
        omega=finite(omega, "omega"),
        terms=known,
        unknown=tuple(str(term.get("name")) for term in terms if term not in known) if energy else ("no description",),
        domain=_description(dataset, "domain"),
        sampler=_description(dataset, "sampler"),
        contact=_series(dataset, "projected", start),
        capped=_series(dataset, "capped", start),
        tolerance=16 * float(np.finfo(omega.dtype).eps) * max(1.0, float(np.abs(omega).max())) if omega.dtype.kind == "f" else 0.0,
        external=external,
        interaction=interaction,
    )


def _start(dataset: xr.Dataset, burn_in: float) -> int:
    """First frame after the burn-in; frame 0, the start, is left out whenever there is another."""
    if not 0 <= burn_in < 1:
        raise ValueError(f"burn_in must lie in [0, 1), got {burn_in!r}")
    frames = dataset.sizes["step"]
    return min(max(int(np.ceil(burn_in * frames)), 1), frames - 1)


def _description(dataset: xr.Dataset, name: str) -> dict[str, Any]:
    """The JSON description in the attrs, {} where there is none."""
    text = dataset.attrs.get(name, {})
    value = json.loads(text) if isinstance(text, str) else text
    return value if isinstance(value, dict) else {}


def _flatten(energy: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The terms of a sum, nested sums included; a sum that lists none counts as one unknown term."""
    parts = energy.get("energies", energy.get("terms")) if energy.get("name") == "Sum" else None
    if parts is None:
        yield energy
    else:
        for part in parts:
            yield from _flatten(part)


def _closed(term: dict[str, Any]) -> bool:
    """Whether this module knows the term: a quadratic trap of one stiffness, or a Riesz interaction."""
    needed = {"Quadratic": ("stiffness",), "Riesz": ("s", "strength")}.get(str(term.get("name")), ("",))
    return all(isinstance(term.get(key), (int, float, str)) for key in needed)


def _series(dataset: xr.Dataset, name: str, start: int) -> FloatArray | None:
    if name not in dataset or set(dataset[name].dims) != {"chain", "step"}:
        return None
    return dataset[name].transpose("chain", "step").values[:, start:].astype(float)


# The laws.


def _second_moment(run: Run) -> Law:
    """E[x.D + |D|^2/2] + dim step/beta = 0 for the step x <- x + D + noise, whatever D is; written as a law of (1/N) sum |x|^2.

    For the bare log gas D gives dim/(beta kappa) + strength/(2 kappa) plus a term of order step. |D|^2 is cut at JUMP noise lengths
    squared: uncapped steps of a gas that can collide have no mean square, and such jumps are too rare to be seen in either side.
    """
    _require_described(run)
    beta, (stiffness, centre) = run.constant("beta"), run.trap()
    run.require_free()
    x, gradient = _thinned_gradient(run)
    x = x - centre
    drift = _displacement(run, gradient)
    step = run.constant("step_size") if drift is not None else 1.0
    work = -gradient if drift is None else drift / step
    jump = JUMP * 2 * step * run.dim / beta
    square = 0.0 if drift is None else np.minimum(np.sum(drift**2, axis=-1), jump).mean(-1) / (2 * step)
    moment = np.sum(x**2, axis=-1).mean(-1)
    excess = -(np.sum(x * work, axis=-1).mean(-1) + square + run.dim / beta) / stiffness
    gap, error, across = mean_and_error(excess)
    if error > 0.2 * moment.mean():
        raise NotApplicable("its error is over 20 %: too few frames, or jumps of steps without a drift_cap")
    note = f"{'' if drift is None else 'Euler step included; '}{_closed_form(run, beta, stiffness)}"
    return _law("second_moment", float(moment.mean()) - gap, float(moment.mean()), error, across, 0.0, effective_sample_size(excess), note)


def _closed_form(run: Run, beta: float, stiffness: float) -> str:
    """The law in continuous time, where it is a number."""
    riesz = run.named("Riesz")
    if any(term.get("mirror") or float(term.get("softening", 0)) or run.exponent(term) for term in riesz):
        return "virial identity"
    strength = sum(float(term["strength"]) for term in riesz) if run.n_particles > 1 else 0.0
    return f"continuous time {(run.dim / beta + strength / 2) / stiffness:.5g}"


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


def _thinned_gradient(run: Run) -> tuple[FloatArray, FloatArray]:
    """Evenly spaced frames (chain, frame, particle, dim) within the pair budget, and the gradient of N H_N on them."""
    cost = run.omega.shape[0] * run.n_particles**2 * run.dim * max(1, len(run.named("Riesz")))
    frames = max(8, PAIR_BUDGET // cost)
    x = run.omega[:, :: max(1, -(-run.omega.shape[1] // frames))]
    gradient = np.zeros_like(x)
    for term in run.named("Quadratic"):
        gradient += float(term["stiffness"]) * (x - np.asarray(term.get("centre", 0.0), float))
    for term in run.named("Riesz"):
        for chain, frame in np.ndindex(x.shape[:2]):
            gradient[chain, frame] -= _pair_force(x[chain, frame], term, run.exponent(term))
    return x, gradient


def _pair_force(x: FloatArray, term: dict[str, Any], s: float) -> FloatArray:
    """-strength/(N-1) sum over l != k of grad g_s(x_k - x_l), and of g_s(x_k + x_l) if mirrored; (particle, dim), rows in blocks."""
    total = np.zeros_like(x)
    rows = max(1, 1_000_000 // len(x))
    for k in np.split(np.arange(len(x)), np.arange(rows, len(x), rows)):
        for sign in (-1, 1) if term.get("mirror") else (-1,):
            gap = x[k, None] + sign * x
            square = np.sum(gap**2, axis=-1) + float(term.get("softening", 0.0)) ** 2
            square[np.arange(len(k)), k] = np.inf
            square[square == 0] = np.inf  # coincident particles: no force
            factor = 1 / square if s == 0 else abs(s) * square ** (-s / 2 - 1) * float(term.get("length", 1.0)) ** s
            total[k] += np.einsum("kl,kld->kd", factor, gap)
    return float(term["strength"]) / max(len(x) - 1, 1) * total


def _wall_atom(run: Run) -> Law:
    """Fraction of particles on the boundary: 0 for reflection, about rho_wall sqrt(step/beta) area for projection."""
    scheme = run.sampler.get("scheme")
    if run.domain.get("name") not in ("Ball", "Box") or scheme not in ("projected", "reflected"):
        raise NotApplicable("no wall with a predicted atom")
    on_wall = run.on_wall().mean(-1)
    measured, error, across = mean_and_error(on_wall)
    if scheme == "reflected":
        passed = measured <= ROUNDING_LIMIT
        return Law("wall_atom", 0.0, measured, error, across, ROUNDING_LIMIT, float("nan"), passed, "reflection leaves no atom")
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


def _density(run: Run, rng: int | np.random.Generator) -> Law:
    """Largest deviation of the cumulative distribution at nine deciles of the law, Bonferroni over them."""
    if run.dim != 1:
        raise NotApplicable("the density law is for one dimension")
    beta = run.constant("beta")
    points, level, level_error, allowance, note = _reference(run, beta, rng)
    x = run.omega[..., 0]
    inside = ~run.on_wall()  # the atom of projection is an artefact: the law is tested on the particles off the wall
    share = np.maximum(inside.mean(-1), 1 / run.n_particles)
    allowance += _step_allowance(run, beta) + float(1 - inside.mean())
    below = np.stack([((x <= point) & inside).mean(-1) / share for point in points])
    results = [mean_and_error(draws) for draws in below]
    laws = [
        _law("density", 0.0, mean - p, float(np.hypot(error, p_error)), across, allowance, effective_sample_size(draws), note)
        for (mean, error, across), p, p_error, draws in zip(results, level, level_error, below)
    ]
    worst = min(laws, key=lambda law: law.p_value)
    return worst._replace(p_value=min(1.0, len(laws) * worst.p_value))


def _reference(run: Run, beta: float, rng: int | np.random.Generator) -> tuple[FloatArray, FloatArray, FloatArray, float, str]:
    """Deciles of the law: points, levels, standard errors of the levels, allowance, note."""
    riesz = run.named("Riesz")
    bare = all(run.exponent(t) == 0 and not t.get("softening") and not t.get("mirror") and float(t["strength"]) >= 0 for t in riesz)
    user = bool(run.unknown or run.external or run.interaction)
    deciles = np.arange(1, 10) / 10
    if bare and not user and run.n_particles > 1 and run.named("Quadratic") and run.contact_fraction() <= CONTACT_LIMIT:
        stiffness, centre = run.trap()
        size = max(100, 40_000 // run.n_particles)
        exact = sample_log_gas(run.n_particles, beta, stiffness, sum(float(t["strength"]) for t in riesz), rng, size)[..., 0] + centre
        points = np.quantile(exact, deciles)
        below = (exact[..., None] <= points).mean(1)
        return points, below.mean(0), below.std(0, ddof=1) / np.sqrt(size), 0.0, "worst decile, exact log gas"
    field = _mean_field(run, beta)
    solution = field.stationary()
    if solution.residual > 1e-6:
        raise NotApplicable(f"the mean-field law was not found (residual {solution.residual:.2g})")
    cumulative = np.concatenate([[0.0], np.cumsum(solution.rho) * field.width])
    points = np.interp(deciles, cumulative, field.edges)
    interacting = bool(riesz or run.interaction)
    return points, deciles, np.zeros(9), 0.25 / run.n_particles if interacting else 0.0, "worst decile, mean field"


def _mean_field(run: Run, beta: float) -> MeanField:
    if any(term.get("mirror") for term in run.named("Riesz")):
        raise NotApplicable("no mean-field density for a mirrored interaction")
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
        s, scaled = run.exponent(term), np.hypot(r, float(term.get("softening", 0.0))) / float(term.get("length", 1.0))
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


def _capped(run: Run) -> Law:
    """Fraction of particle steps that the drift cap shortened; above CAPPED_LIMIT the run does not sample its law."""
    if run.capped is None or run.sampler.get("drift_cap") is None:
        raise NotApplicable("the sampler has no drift cap")
    measured, error, across = mean_and_error(run.capped)
    return Law("capped", 0.0, measured, error, across, CAPPED_LIMIT, float("nan"), measured <= CAPPED_LIMIT, f"at most {CAPPED_LIMIT:g}")


def _law(name: str, predicted: float, measured: float, error: float, across: float, allowance: float, ess: float, note: str) -> Law:
    """A statistical law with its two-sided Student-t p-value (ESS - 1 degrees of freedom); the verdict comes with the others."""
    total = float(np.hypot(error, allowance))
    if not np.isfinite(total):
        raise NotApplicable("too few frames for a standard error")
    gap = measured - predicted
    z = 0.0 if gap == 0 else abs(gap) / total if total > 0 else np.inf
    freedom = max(ess - 1, 1.0) if np.isfinite(ess) else np.inf
    return Law(name, predicted, measured, error, across, allowance, float(2 * student_t.sf(z, freedom)), False, note)


def _table(laws: list[Law], alpha: float) -> xr.Dataset:
    """The laws as a Dataset on the axis `law`, verdicts corrected for the number of statistical laws."""
    tested = sum(np.isfinite(law.p_value) for law in laws)
    laws = [law._replace(passed=bool(law.p_value > alpha / tested)) if np.isfinite(law.p_value) else law for law in laws]
    columns = {field: ("law", np.array([getattr(law, field) for law in laws], float)) for field in Law._fields[1:7]}
    total = np.hypot(columns["standard_error"][1], columns["allowance"][1])
    gap = columns["measured"][1] - columns["predicted"][1]
    with np.errstate(divide="ignore", invalid="ignore"):
        columns["z"] = ("law", np.where(gap == 0, 0.0, gap / total))
    passed, note = np.array([law.passed for law in laws], bool), np.array([law.note for law in laws], str)
    return xr.Dataset(
        columns | {"passed": ("law", passed), "note": ("law", note)}, coords={"law": np.array([law.name for law in laws], str)}
    )


def _mixing(run: Run, dataset: xr.Dataset) -> xr.Dataset:
    """Split R-hat, effective sample size and mean of the second moment and the energy."""
    quantities = {"second_moment": np.sum(run.omega**2, axis=-1).mean(-1)}
    energy = _series(dataset, "energy", dataset.sizes["step"] - run.omega.shape[1])
    if energy is not None:
        quantities["energy"] = energy
    rows = [(split_r_hat(draws), effective_sample_size(draws), float(draws.mean())) for draws in quantities.values()]
    columns = {name: ("quantity", np.array(column)) for name, column in zip(("r_hat", "ess", "mean"), zip(*rows))}
    return xr.Dataset(columns, coords={"quantity": list(quantities)})
