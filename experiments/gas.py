"""A log gas in a quadratic trap against its exact laws: the check that the particles do what mean-field theory says.

H_N = (1/N) sum stiffness |x|^2/2 + strength W_N with g = -log r. In every dimension and for every N the stationary second moment is
dim/(beta stiffness) + strength/(2 stiffness). In the plane the particles fill the Coulomb ball, on the line a semicircle, and at zero
temperature on the line they sit at the zeros of a Hermite polynomial. Laws are tested by `theory.report.check`, which shares no code
with the simulation, at the step size that was run; the control is the same run under a false label, which the check must reject.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from experiments import sweep
from particles import HMC, Ball, FullSpace, Langevin, Quadratic, Riesz, simulate
from particles.arrays import count, positive
from particles.energy import Energy
from particles.simulate import uninterrupted
from theory.equilibrium import CoulombBall, Semicircle
from theory.ground_states import hermite_ground_state
from theory.report import check

COLUMNS = ("predicted", "measured", "standard_error", "z", "p_value", "passed")
LAWS = (
    "second moment, 2 dimensions", "second moment, 3 dimensions", "second moment, 1 dimension", "density, 1 dimension",
    "energy, 1 dimension, HMC", "Euler's variance, free particles",
)  # fmt: skip
EXTENT: tuple[str, ...] = ()
ARRAYS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys((*COLUMNS, "z_control", "passed_control"), ("law",)),
    "second_moment": ("chain", "step"),
    "omega": ("chain", "particle", "dim"),
    **dict.fromkeys(("radial_density", "ball_density"), ("radius",)),
    **dict.fromkeys(("line_density", "semicircle_density"), ("position",)),
    **dict.fromkeys(("ground_state", "hermite"), ("site",)),
}
CONTROL = 0.8  # a control claims a temperature (on the line a repulsion) 20 % off, or for free particles a step of a tenth


@dataclass(frozen=True)
class Config:
    """What `run` does."""

    n_particles: int = 64  # of each gas, except on the line
    n_line: int = 23  # particles on the line
    n_chains: int = 8  # independent copies of each gas
    beta: float = 30.0  # inverse temperature, except on the line
    beta_line: float = 250.0  # inverse temperature on the line, where particles must not jump over each other
    stiffness: float = 1.0  # of the trap, stiffness |x|^2 / 2
    strength: float = 1.0  # of the repulsion, -strength log r
    step_size: float = 0.01  # of the dynamics; a quarter of it on the line
    long_step: float = 0.5  # step size of the free particles, where Euler's error is large
    n_steps: int = 2000  # of each simulation
    save_every: int = 10  # steps from one saved frame to the next
    burn_in: float = 0.25  # share of the frames that is left out at the start
    seed: int = 0  # of all starts and of the noise

    def __post_init__(self) -> None:
        for name in ("n_particles", "n_line", "n_chains", "n_steps", "save_every"):
            count(getattr(self, name), name)
        for name in ("beta", "beta_line", "stiffness", "strength", "step_size", "long_step"):
            positive(getattr(self, name), name)
        if not 0 <= self.burn_in < 1:
            raise ValueError(f"burn_in must be in [0, 1), got {self.burn_in!r}")


def run(config: Config, **how: Any) -> xr.Dataset:
    """Simulate the gas in one, two and three dimensions, free particles with a long step, and the ground state on the line.

    Returns
    -------
    Dataset over law: predicted, measured, standard_error, z, p_value, passed, and z_control, passed_control of the same run under a
    false label. Of the plane: second_moment (chain, step), omega (chain, particle, dim) at the end, radial_density and ball_density
    (radius). Of the line: line_density and semicircle_density (position), and ground_state, hermite (site), the zero-temperature
    positions. `how`: see `experiments.sweep.over`.
    """
    return sweep.run("gas", config, **how)


def units(config: Config) -> Iterator[dict[str, int]]:
    """All laws together: they are of the same runs."""
    yield {"seed": config.seed}


def measure(config: Config, unit: dict[str, int]) -> dict[str, np.ndarray]:
    """Every law of every gas; ValueError where the settings leave one untested."""
    runs = {name: _simulate(config, name) for name in ("plane", "space", "line", "free")}
    weaker = {"energy": json.dumps(_energy(config, CONTROL * config.strength).describe())}
    hotter = {name: _sampled(runs[name], beta=CONTROL * config.beta) for name in ("plane", "space")}
    rows = (
        _tested(config, runs["plane"], "second_moment", hotter["plane"]),
        _tested(config, runs["space"], "second_moment", hotter["space"]),
        _tested(config, runs["line"], "second_moment", weaker),
        _tested(config, runs["line"], "density", weaker),
        _tested(config, _exactly(config, runs["line"]), "energy", weaker),
        _tested(config, runs["free"], "second_moment", _sampled(runs["free"], step_size=config.long_step / 10)),
    )
    columns = {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}
    return columns | _plane(config, runs["plane"]) | _line(config, runs["line"]) | _ground_state(config)


def arrange(ds: xr.Dataset, chosen: Mapping[str, Any]) -> xr.Dataset:
    """The laws by their names, and where the densities and moments belong."""
    config = Config(**chosen)
    ds = ds.isel(seed=0)
    step = config.save_every * np.arange(ds.sizes["step"])
    coords = {"law": list(LAWS), "step": step, "radius": _middle(_radii(config)), "position": _middle(_positions(config))}
    return ds.assign({name: ds[name].astype(bool) for name in ("passed", "passed_control")}).assign_coords(coords)


def _simulate(config: Config, name: str) -> xr.Dataset:
    """Chains of one gas, started evenly inside a ball of about the right size."""
    dim = {"line": 1, "plane": 2, "space": 3, "free": 2}[name]
    n_particles, beta = (config.n_line, config.beta_line) if name == "line" else (config.n_particles, config.beta)
    start = Ball(math.sqrt(config.strength / config.stiffness), dim)
    omega = start.sample(config.n_chains * n_particles, config.seed).reshape(config.n_chains, n_particles, dim)
    energy: Energy = Quadratic(config.stiffness) if name == "free" else _energy(config, config.strength)
    step_size = config.long_step if name == "free" else config.step_size / (4 if name == "line" else 1)
    sampler = Langevin(step_size, beta, drift_cap=None if name == "free" else 0.1)
    run = simulate(omega, energy, FullSpace(dim), sampler, n_steps=config.n_steps, save_every=config.save_every, rng=config.seed)
    return uninterrupted(run)


def _exactly(config: Config, line: xr.Dataset) -> xr.Dataset:
    """The gas on the line by an exact sampler, from where the Langevin run has come to."""
    oscillation = 1 / math.sqrt(config.stiffness * config.n_line)  # the fastest mode's, per radian: it bounds the leapfrog step
    sampler = HMC(0.5 * oscillation, config.beta_line, n_leapfrog=8, tune=int(config.burn_in * config.n_steps))
    start, energy = line["omega"].isel(step=-1).values, _energy(config, config.strength)
    run = simulate(start, energy, FullSpace(1), sampler, n_steps=config.n_steps, save_every=config.save_every, rng=config.seed)
    return uninterrupted(run)


def _energy(config: Config, strength: float) -> Energy:
    return Quadratic(config.stiffness) + Riesz(0.0, strength)


def _sampled(trajectory: xr.Dataset, **false: float) -> dict[str, str]:
    """The description of a run's sampler with something false in it."""
    return {"sampler": json.dumps(json.loads(trajectory.attrs["sampler"]) | false)}


def _tested(config: Config, trajectory: xr.Dataset, law: str, false: dict[str, str]) -> dict[str, float | bool]:
    """One law of a run, and of the same run under a false label."""
    row, control = (_checked(config, run, law) for run in (trajectory, trajectory.assign_attrs(false)))
    return {name: row[name].item() for name in COLUMNS} | {f"{name}_control": control[name].item() for name in ("z", "passed")}


def _checked(config: Config, trajectory: xr.Dataset, law: str) -> xr.Dataset:
    """The row of one law; ValueError with the reason if it could not be tested."""
    table = check(trajectory, burn_in=config.burn_in)
    if law not in table["law"].values:
        reason = json.loads(table.attrs["skipped"])[law]
        raise ValueError(f"n_steps = {config.n_steps} or other settings leave the law {law!r} untested: {reason}")
    return table.sel(law=law)


def _kept(config: Config, trajectory: xr.Dataset) -> np.ndarray:
    """omega (chain, frame, particle, dim) after the burn-in."""
    return trajectory["omega"].isel(step=slice(1 + int(config.burn_in * trajectory.sizes["step"]), None)).values


def _radii(config: Config) -> np.ndarray:
    """Edges of shells, in units of length, past the edge of the zero-temperature ball."""
    return np.linspace(0, 1.5 * CoulombBall(config.stiffness, config.strength, 2).radius, 31)


def _positions(config: Config) -> np.ndarray:
    """Edges of cells of the line, past the ends of the semicircle."""
    radius = 1.3 * Semicircle(config.stiffness, config.strength).radius
    return np.linspace(-radius, radius, 28)


def _middle(edges: np.ndarray) -> np.ndarray:
    return (edges[1:] + edges[:-1]) / 2


def _plane(config: Config, trajectory: xr.Dataset) -> dict[str, np.ndarray]:
    """The gas in the plane: second moment in time, the last frame, density against radius beside the zero-temperature ball's."""
    edges, kept, omega = _radii(config), _kept(config, trajectory), trajectory["omega"]
    middle = _middle(edges)
    counts = np.histogram(np.linalg.norm(kept, axis=-1), edges)[0]
    return {
        "second_moment": (omega**2).sum("dim").mean("particle").values,
        "omega": omega.isel(step=-1).values,
        "radial_density": counts / kept[..., 0].size / (math.pi * np.diff(edges**2)),
        "ball_density": CoulombBall(config.stiffness, config.strength, 2).density(np.stack([middle, np.zeros_like(middle)], -1)),
    }


def _line(config: Config, trajectory: xr.Dataset) -> dict[str, np.ndarray]:
    """The gas on the line: density beside the semicircle."""
    edges = _positions(config)
    return {
        "line_density": np.histogram(_kept(config, trajectory), edges, density=True)[0],
        "semicircle_density": Semicircle(config.stiffness, config.strength).density(_middle(edges)),
    }


def _ground_state(config: Config) -> dict[str, np.ndarray]:
    """Descend without noise to the ground state on the line. The Hessian's eigenvalues are stiffness 1, ..., n: that sets the step."""
    n, law = config.n_line, Semicircle(config.stiffness, config.strength)
    start = law.quantile((np.arange(n) + 0.5) / n)[:, None]
    step_size = 1 / (config.stiffness * n)
    n_steps = 45 * n  # the slowest mode falls by exp(-45)
    trajectory = simulate(
        start,
        _energy(config, config.strength),
        FullSpace(1),
        Langevin(step_size, math.inf),
        n_steps=n_steps,
        save_every=n_steps,
        rng=config.seed,
    )
    found = np.sort(uninterrupted(trajectory)["omega"].values[0, -1, :, 0])
    exact = hermite_ground_state(n, config.stiffness, config.strength)[:, 0]
    return {"ground_state": found, "hermite": exact}


def estimate(config: Config, unit: dict[str, Any]) -> tuple[float, float]:
    """Rough seconds and bytes of a unit on one core."""
    pairs = config.n_chains * config.n_particles**2
    return 5.0 + 1.5e-8 * pairs * config.n_steps, 3e8 + 48.0 * config.n_chains * config.n_particles * config.n_steps / config.save_every


PRESETS = {"smoke": Config(n_particles=16, n_steps=600, n_chains=4), "cpu": Config()}
