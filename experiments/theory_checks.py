"""What the papers state without a table: limits, rates, convergence and counts, each measured in seconds.

| check            | what is measured                                                                                           |
|------------------|------------------------------------------------------------------------------------------------------------|
| mean field       | distance of N simulated particles from the mean-field law, and the deviation of their kernel               |
| large deviations | log of how unlikely N particles are to have a large second moment, over what theory gives at that N        |
| infinite energy  | least energy of N points on an interval under |x|^-2, a repulsion with s >= dim: the continuum has none    |
| walls            | share of particles that a projected step leaves on the wall, by the length of the step                     |
| newton           | residual of the pseudo-inverse after 20 steps of Newton's iteration on Gram matrices of landmarks          |
| parameters       | what Flexformer's kernels add to a model, at the paper's two sizes                                         |

The particles are a log gas in a quadratic trap on the line at inverse temperature `beta` N, whose mean field has a closed form.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.settings import chosen
from particles.arrays import count, positive

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

    from experiments.report import Section

EXTENT = ("checks", "n_seeds", "seed")
ARRAYS = {
    "distance": ("n",),
    "kernel_spread": ("n",),
    "rate_ratio": ("tail",),
    "least_energy": ("points",),
    "on_wall": ("step_size",),
    "newton_residual": ("stage",),
    "extra_parameters": ("model",),
}
KAPPA, STRENGTH = 1.3, 0.7  # of the trap and of the repulsion
TAILS = (0.6, 0.7, 0.8)  # second moments; their mean is 0.398
POINTS = (50, 100, 200, 400, 800)
STAGES = {"1": (56, 8), "2": (28, 4), "3": (14, 2)}  # SOFT's grids and the windows that make 49 landmarks
MODELS = {"s, small": (6, 8, 41e6), "n, small": (6, 8, 41e6), "s, big": (16, 16, 247e6), "n, big": (16, 16, 247e6)}  # layers, heads, total


@dataclass(frozen=True)
class Config:
    """What is measured."""

    checks: tuple[str, ...] = ("mean field", "large deviations", "infinite energy", "walls", "newton", "parameters")  # some of these
    n_seeds: int = 5  # of each check that has chance in it
    seed: int = 0  # the first seed
    sizes: tuple[int, ...] = (8, 16, 32, 64)  # numbers of particles
    n_chains: int = 32  # independent gases of each size
    n_steps: int = 8000  # Langevin steps of each gas, of length 0.0005
    n_trials: int = 40_000  # samples of the gas behind each tail
    beta: float = 6.0  # inverse temperature over N
    step_sizes: tuple[float, ...] = (0.02, 0.01, 0.005, 0.0025, 0.00125)  # of check walls
    n_matrices: int = 4  # of each stage in check newton

    def __post_init__(self) -> None:
        chosen(self.checks, CHECKS, "checks")
        for name in ("n_seeds", "n_chains", "n_steps", "n_trials", "n_matrices"):
            count(getattr(self, name), name)
        count(self.seed, "seed", least=0)
        positive(self.beta, "beta")
        for name in ("sizes", "step_sizes"):
            values = getattr(self, name)
            if len(set(values)) < max(len(values), 3) or min(values) <= 0:
                raise ValueError(f"{name} must be three different positive numbers at least, got {values!r}")


def units(config: Config) -> Iterator[dict[str, Any]]:
    """Each check for each seed, those without chance once."""
    for check in config.checks:
        n = config.n_seeds if check not in EXACT else 1
        yield from ({"check": check, "seed": seed} for seed in range(config.seed, config.seed + n))


def measure(config: Config, unit: dict[str, Any]) -> dict[str, np.ndarray]:
    """The numbers of one check; see the table above and ARRAYS."""
    return CHECKS[unit["check"]](config, unit["seed"])


# ---- particles ---------------------------------------------------------------------------------------------------------------------------


def _mean_field(config: Config, seed: int) -> dict[str, np.ndarray]:
    """RMS over chains of W_2 to the mean-field law, and of the deviation of the kernel's value mean cos(2 omega), by N."""
    from theory.convergence import wasserstein2
    from theory.equilibrium import GaussWigner

    law, grid = GaussWigner(KAPPA, STRENGTH, config.beta), np.linspace(-3, 3, 801)
    cdf, limit = law.cdf(grid), float(np.trapezoid(law.density(grid) * np.cos(2 * grid), grid))
    distances, spreads = [], []
    for n in config.sizes:
        omega = _gas(config, n, seed)
        distances.append(np.sqrt(np.mean([wasserstein2(row, lambda u: np.interp(u, cdf, grid)) ** 2 for row in omega])))
        spreads.append(np.sqrt(np.mean((np.cos(2 * omega).mean(1) - limit) ** 2)))
    return {"distance": np.array(distances), "kernel_spread": np.array(spreads)}


def _gas(config: Config, n: int, seed: int) -> np.ndarray:
    """Positions (chain, particle) after a Langevin run from a start far from equilibrium."""
    from particles import FullSpace, Langevin, Quadratic, Riesz, simulate
    from particles.simulate import uninterrupted

    start = np.random.default_rng([seed, n]).normal(-1.5, 0.3, (config.n_chains, n, 1))
    energy, sampler = Quadratic(KAPPA) + Riesz(0.0, STRENGTH), Langevin(5e-4, config.beta, drift_cap=0.03)
    rng = np.random.default_rng([seed, n, 1])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "drift_cap shortened")  # as it must from so far away
        run = simulate(start, energy, FullSpace(1), sampler, n_steps=config.n_steps, save_every=config.n_steps, rng=rng)
    return uninterrupted(run)["omega"].values[:, -1, :, 0]


def _large_deviations(config: Config, seed: int) -> dict[str, np.ndarray]:
    """log P(second moment >= v) over its theoretical value, at three v and N = 10, from exact samples."""
    from theory.ensembles import sample_log_gas
    from theory.large_deviations import Fluctuations
    from theory.mean_field import MeanField

    n, values = 10, TAILS
    field = MeanField(lambda x: KAPPA * x**2 / 2, lambda r: -STRENGTH * np.log(r), config.beta, np.linspace(-3, 3, 301))
    predicted, square = Fluctuations(field), field.cell_average(lambda x: x**2)
    moments = np.mean(sample_log_gas(n, config.beta, KAPPA, STRENGTH, seed, size=config.n_trials) ** 2, axis=(1, 2))
    shares = [np.mean(moments >= value) for value in values]
    ratios = [np.log(share) / np.log(predicted.tail(square, value, n)) if share else np.nan for share, value in zip(shares, values)]
    return {"rate_ratio": np.array(ratios)}


def _infinite_energy(config: Config, seed: int) -> dict[str, np.ndarray]:
    """Energy of equally spaced points on [0, 1], nearly the least there is, under |x|^-2."""
    energies = []
    for n in POINTS:
        gaps = np.arange(1, n) / (n - 1)
        energies.append(float(((n - np.arange(1, n)) * gaps**-2.0).sum() / (n * (n - 1))))
    return {"least_energy": np.array(energies)}


def _walls(config: Config, seed: int) -> dict[str, np.ndarray]:
    """Particles in a disc that feel nothing but noise; the exact law leaves none on the wall."""
    from particles import Ball, Langevin, Quadratic, simulate
    from particles.simulate import uninterrupted

    ball, shares = Ball(1.0, 2), []
    start = ball.sample(4000, seed).reshape(1, 4000, 2)
    for step_size in config.step_sizes:
        sampler, n_steps = Langevin(step_size, 1.0), max(20, round(0.5 / step_size))
        run = simulate(start, Quadratic(1e-9), ball, sampler, n_steps=n_steps, save_every=n_steps, rng=np.random.default_rng([seed, 3]))
        omega = uninterrupted(run)["omega"].values[0, -1]
        shares.append(np.mean(np.linalg.norm(omega, axis=-1) > 1 - 1e-9))
    return {"on_wall": np.array(shares)}


# ---- attention ---------------------------------------------------------------------------------------------------------------------------


def _newton(config: Config, seed: int) -> dict[str, np.ndarray]:
    """Largest residual over matrices of each stage: landmarks are means of windows of N(0, 1) tokens of width 32, as SOFT makes them."""
    import torch

    from attention.landmarks import PooledLandmarks
    from attention.newton import newton_pinv
    from attention.softmax_free import gaussian

    generator, residuals = torch.Generator().manual_seed(seed), []
    for side, window in STAGES.values():
        tokens = torch.randn(config.n_matrices, 1, side * side, 32, generator=generator)
        landmarks = PooledLandmarks(window)(tokens, grid=(side, side))[0]
        residuals.append(float(newton_pinv(gaussian(landmarks, landmarks, 32**-0.5), n_iter=20)[1].max()))
    return {"newton_residual": np.array(residuals)}


def _parameters(config: Config, seed: int) -> dict[str, np.ndarray]:
    """Percent of the paper's totals that the kernels add."""
    from attention.config import ModelConfig
    from attention.counts import counts

    found = []
    for name, (layers, heads, total) in MODELS.items():
        attention = "flexformer-nonstationary" if name.startswith("n") else "flexformer"
        sizes: dict[str, Any] = {
            "vocab_size": 100,
            "max_length": 8,
            "dim": 64 * heads,
            "heads": heads,
            "layers": layers,
            "n_features": 128,
            "causal": True,
        }
        found.append(100 * counts(ModelConfig(attention=attention, **sizes), 8)["kernel"].parameters / total)
    return {"extra_parameters": np.array(found)}


CHECKS: dict[str, Callable[[Config, int], dict[str, np.ndarray]]] = {
    "mean field": _mean_field,
    "large deviations": _large_deviations,
    "infinite energy": _infinite_energy,
    "walls": _walls,
    "newton": _newton,
    "parameters": _parameters,
}
EXACT = ("infinite energy", "parameters")
SECONDS = {"mean field": 20.0, "large deviations": 10.0, "walls": 5.0}
PRESETS = {
    "smoke": Config(n_seeds=2, sizes=(4, 8, 16), n_chains=8, n_steps=500, n_trials=2000, step_sizes=(0.02, 0.01, 0.005), n_matrices=1),
    "cpu": Config(),
    "paper": Config(n_seeds=10, sizes=(8, 16, 32, 64, 128, 256), n_chains=64, n_trials=1_000_000),
}
REDUCED = {"cpu": "at most 64 particles, 40,000 samples behind a tail"}


def arrange(ds: xr.Dataset, settings: Mapping[str, Any]) -> xr.Dataset:
    """The coordinates of the arrays."""
    known = {"n": settings["sizes"], "tail": TAILS, "points": POINTS, "step_size": settings["step_sizes"], "stage": STAGES, "model": MODELS}
    return ds.assign_coords({dim: list(values) for dim, values in known.items() if dim in ds.dims})


def estimate(config: Config, unit: dict[str, Any]) -> tuple[float, float]:
    """Rough seconds and bytes of a unit on one core."""
    work = config.n_steps * config.n_chains * sum(config.sizes) / (8000 * 32 * 120) if unit["check"] == "mean field" else 1.0
    return SECONDS.get(unit["check"], 1.0) * work, 5e8


def run(config: Config, **how: Any) -> xr.Dataset:
    """Measure every check; `how`: see `experiments.sweep.run`.

    Returns
    -------
    Dataset over (check, seed) with the scores of ARRAYS, NaN where a score is not the check's: distance and kernel_spread (n), rate_ratio
    (tail), least_energy (points), on_wall (step_size), newton_residual (stage), extra_parameters (model) [%].
    """
    from experiments import sweep

    return sweep.run("theory_checks", config, **how)


def section(ds: xr.Dataset) -> Section:
    """One table a score."""
    from experiments.report import Section, Table, spread

    titles = {
        "distance": "W_2 between N particles and the mean field",
        "kernel_spread": "Deviation of the kernel mean cos(2 omega) of N particles from its limit",
        "rate_ratio": "log P(second moment of 10 particles above this) over its value in theory",
        "least_energy": "Least energy of points on [0, 1] under |x|^-2",
        "on_wall": "Share of particles on the wall after a projected step [%]",
        "newton_residual": "Residual of Newton's pseudo-inverse after 20 steps, largest of all matrices",
        "extra_parameters": "Parameters that Flexformer's kernels add [%]",
    }
    tables = []
    for name in filter(ds.__contains__, titles):
        values = ds[name].dropna("check", how="all").squeeze("check", drop=True)
        axis = next(str(dim) for dim in values.dims if dim != "seed")
        scale, digits = {"on_wall": (100.0, 1), "newton_residual": (1.0, 6)}.get(name, (1.0, 3))
        cells = [spread(values.sel({axis: place}), scale, digits) for place in values[axis].values]
        tables.append(Table(titles[name], [axis, *map(str, values[axis].values)], [["mean", *cells]]))
    text = "Statements of the papers that come without a table; mean ± standard deviation over seeds."
    return Section("Theory", text, tables, dict.fromkeys(("theory_checks.png",), CAPTION), verdicts(ds))


def verdicts(ds: xr.Dataset) -> list[str]:
    """What the papers claim of these numbers, each with its verdict, as the report gives it."""
    from experiments import claims
    from experiments.evidence_page import told

    own = [claim for of in claims.CLAIMS.values() for claim in of if claim.experiment == "theory_checks"]
    found = claims.judge(own, {"theory_checks": [claims.Results("", json.loads(ds.attrs["config"]), ds)]})
    return [f"{one.claim.name}: {one.verdict} (must be {one.claim.region.words}, got {told(one.finding)})" for one in found if one.finding]


CAPTION = (
    "Left: N particles against the mean field, one line a seed, dashed: N^(-1/2). Middle: share of particles that projection leaves on the "
    "wall, dashed: the square root of the step. Right: least energy of points under |x|^-2, which has no limit."
)


def figures(ds: xr.Dataset) -> dict[str, Figure]:
    """Rates on logarithmic axes."""
    from experiments.plots.theory_checks import figure_theory_checks

    return {"theory_checks.png": figure_theory_checks(ds)}
