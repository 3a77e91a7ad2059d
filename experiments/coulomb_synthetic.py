"""The synthetic benchmark of the Coulomb paper (appendix F.1): labels of a known logit under noise, and every method on them.

Features x ~ N(0, I) in `dim` dimensions, logit 1.5 sin(pi x1) + 0.8 x2^2 - x3 x4 + 0.5 sin(3 x5) + w.x_{6:}, w ~ N(0, 0.3^2 I),
y ~ Bernoulli(sigmoid(logit + xi)), xi ~ N(0, sigma^2); 70 % of the rows train. The paper states one data seed (42), one split seed (0)
and no dimension; here seeds 42, 43, ... with splits 0, 1, ..., 5 dimensions unless said, and besides the paper's test part (120 rows) a
fresh sample on which a difference can be seen. All random features have `n_features` numbers and a linear SVM with C = 1 after them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.svm import SVC, LinearSVC

from experiments import coulomb_tables, plots, sweep
from experiments.baselines import importance_frequencies, multiple_kernel_svm
from experiments.report import Section
from experiments.synthetic import TASKS, make_task
from particles.alignment import Alignment
from particles.arrays import count, positive
from particles.domain import Ball
from particles.energy import Energy, Quadratic
from particles.estimator import GaussianFeatures, ParticleFeatures, flat_features, start_frequencies
from particles.features import Feature, FourierPhase
from particles.langevin import Langevin
from particles.resample import gibbs_weights, resample
from particles.riesz import Riesz
from particles.simulate import simulate, uninterrupted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXTENT = ("methods", "sigmas", "lambdas", "budgets", "tasks", "n_seeds")  # the first seed says which split goes with which data
ARRAYS = dict.fromkeys(("accuracy", "f1", "fresh_accuracy", "seconds"), ("n",))  # in part runtime
GAMMA = 0.5  # of the paper's Gaussian kernel exp(-gamma |x - x'|^2)
MKL_GAMMAS = (0.1, 0.3, 0.7, 1.0, 1.3, 1.6)
POOL, RADIUS = 10_000, 50.0  # Sinha and Duchi's Nw and rho = .005 Nw
BETA, MAX_NORM = 100.0, 5.0
PAPER_SAMPLER = Langevin(30.0, BETA, clip=1.0)
SVM_GRID = {"C": [0.3, 1.0, 3.0, 10.0], "gamma": (2.0 ** np.arange(-7, 1)).tolist()}
Predict = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Config:
    """What `run` does."""

    part: str = "noise"  # noise, lambda, budget, runtime or tasks
    methods: tuple[str, ...] = ()  # names of methods; none means all that the part compares
    sigmas: tuple[float, ...] = tuple(10.0**k for k in range(-5, 6))  # noise on the logit
    lambdas: tuple[float, ...] = (0.0, 0.2, 0.5, 0.8, 1.0, 1.5)  # strengths of the repulsion, in part lambda
    budgets: tuple[int, ...] = (16, 64, 128, 256)  # numbers of random features, in part budget
    sizes: tuple[int, ...] = (100, 500, 1000, 2000, 3000, 4000, 10_000, 20_000)  # rows, in part runtime
    tasks: tuple[str, ...] = tuple(TASKS)  # names of hidden-structure tasks, in part tasks
    n: int = 400  # rows, of which 70 % train (in part tasks all of them)
    dim: int = 5  # of the input
    gamma: float = GAMMA  # of every Gaussian kernel that is not tuned; multiple kernels move with it
    n_features: int = 200  # random features of each method
    n_particles: int = 300  # particles of the paper's dynamics, from which its features are drawn
    n_steps: int = 2000  # steps of the paper's dynamics
    n_fresh: int = 4000  # fresh test rows
    n_seeds: int = 10  # data sets
    seed: int = 42  # of the first data set
    limit: float = 600.0  # in part runtime, seconds beyond which a fit is not tried

    def __post_init__(self) -> None:
        if self.part not in PARTS:
            raise ValueError(f"part must be one of {sorted(PARTS)}, got {self.part!r}")
        for name, known in (("methods", METHODS), ("tasks", TASKS)):
            if set(getattr(self, name)) - set(known):
                raise ValueError(f"{name} must be some of {sorted(known)}, got {getattr(self, name)!r}")
        for name, least in (("n", 10), ("dim", 5), ("n_features", 2), ("n_particles", 1), ("n_steps", 1), ("n_fresh", 2), ("n_seeds", 1)):
            count(getattr(self, name), name, least=least)
        positive(self.gamma, "gamma")
        positive(self.limit, "limit")
        if self.part == "tasks" and self.dim < 6:
            raise ValueError(f"dim must be at least 6 in part tasks, got {self.dim}")
        if self.part == "tasks" and "bayes" in self.methods:
            raise ValueError(f"methods must not hold 'bayes' in part tasks, whose rules are no logits, got {self.methods!r}")


def run(config: Config, **how: Any) -> xr.Dataset:
    """Fit every method on every unit of a part.

    Returns
    -------
    Dataset with accuracy and f1 (of the positive class) on the test part, fresh_accuracy on a fresh sample, and seconds (CPU, the fit
    alone), over (sigma, method, seed) in part noise, (sigma, lambda, seed) in lambda, (sigma, method, n_features, seed) in budget,
    (task, method, seed) in tasks and (method, n) in runtime. NaN where nothing was measured. `how`: see `experiments.sweep.over`.
    """
    return sweep.run("coulomb_synthetic", config, **how)


# ---- data --------------------------------------------------------------------------------------------------------------------------------


class Problem(NamedTuple):
    """Rows x (n, dim) with labels 0 and 1; `rule` is the logit without noise, where it is known."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    x_fresh: np.ndarray
    y_fresh: np.ndarray
    rule: Callable[[np.ndarray], np.ndarray] | None


def logit(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The paper's function of x (n, dim); w (dim - 5,)."""
    waves = 1.5 * np.sin(np.pi * x[:, 0]) + 0.5 * np.sin(3 * x[:, 4])
    return waves + 0.8 * x[:, 1] ** 2 - x[:, 2] * x[:, 3] + x[:, 5:] @ w


def draw(n: int, dim: int, sigma: float, n_fresh: int, *, seed: int, split: int) -> Problem:
    """The paper's data; the same seed has the same points, and the same random numbers behind the labels, at every sigma."""
    rng = np.random.default_rng(seed)
    x, w = rng.standard_normal((n, dim)), 0.3 * rng.standard_normal(dim - 5)
    x_fresh = np.random.default_rng([seed, 1]).standard_normal((n_fresh, dim))
    y, y_fresh = (_labels(points, w, sigma, np.random.default_rng([seed, k])) for points, k in ((x, 2), (x_fresh, 3)))
    x, x_test, y, y_test = train_test_split(x, y, test_size=0.3, random_state=split)
    return Problem(x, y, x_test, y_test, x_fresh, y_fresh, partial(logit, w=w))


def _labels(x: np.ndarray, w: np.ndarray, sigma: float, rng: np.random.Generator) -> np.ndarray:
    noisy = logit(x, w) + sigma * rng.standard_normal(len(x))
    return (rng.random(len(x)) < expit(noisy)).astype(np.int64)


def _problem(config: Config, unit: dict[str, Any]) -> Problem:
    """The data of one unit."""
    split = int(unit.get("seed", config.seed)) - config.seed
    if config.part != "tasks":
        n, sigma = unit.get("n", config.n), unit.get("sigma", 0.1)
        return draw(n, config.dim, sigma, config.n_fresh, seed=config.seed + split, split=split)
    data = make_task(unit["task"], n=config.n, dim=config.dim, n_test=config.n_fresh, rng=np.random.default_rng([split, 0]))
    return Problem(data.x, data.y, data.x_test, data.y_test, data.x_test, data.y_test, None)


# ---- methods -----------------------------------------------------------------------------------------------------------------------------


def _head(transform: Callable[[np.ndarray], np.ndarray], x: np.ndarray, y: np.ndarray) -> Predict:
    """A linear SVM on features."""
    machine = LinearSVC(C=1.0, max_iter=20_000, random_state=0).fit(transform(x), y)
    return lambda points: machine.predict(transform(points))


def _on(feature: Feature, omega: np.ndarray, problem: Problem) -> Predict:
    return _head(lambda x: flat_features(feature, x, omega), problem.x, problem.y)


def _majority(config: Config, problem: Problem, seed: int) -> Predict:
    most = int(2 * problem.y.mean() >= 1)
    return lambda x: np.full(len(x), most)


def _bayes(config: Config, problem: Problem, seed: int) -> Predict:
    """The best rule there is: the sign of the true logit (symmetric noise does not move it)."""
    assert problem.rule is not None  # Config refuses it elsewhere
    rule = problem.rule
    return lambda x: (rule(x) > 0).astype(np.int64)


def _logistic(config: Config, problem: Problem, seed: int) -> Predict:
    return LogisticRegression(max_iter=1000).fit(problem.x, problem.y).predict


def _svm(config: Config, problem: Problem, seed: int) -> Predict:
    return SVC(C=1.0, gamma=config.gamma).fit(problem.x, problem.y).predict


def _svm_tuned(config: Config, problem: Problem, seed: int) -> Predict:
    return GridSearchCV(SVC(), SVM_GRID, cv=5).fit(problem.x, problem.y).predict


def _rff(config: Config, problem: Problem, seed: int) -> Predict:
    feature, rng = FourierPhase(), np.random.default_rng([seed, 4])
    return _on(feature, start_frequencies(feature, config.n_features, config.dim, np.sqrt(2 * config.gamma), rng), problem)


def _rff_tuned(config: Config, problem: Problem, seed: int) -> Predict:
    features = GaussianFeatures(config.n_features // 2, random_state=seed).fit(problem.x, problem.y)
    return _head(features.transform, problem.x, problem.y)


def _mkl(config: Config, problem: Problem, seed: int) -> Predict:
    gammas = [gamma * config.gamma / GAMMA for gamma in MKL_GAMMAS]
    return multiple_kernel_svm(problem.x, problem.y, gammas).predict


def _importance(config: Config, problem: Problem, seed: int) -> Predict:
    feature, rng = FourierPhase(), np.random.default_rng([seed, 5])
    scale, signs = np.sqrt(2 * config.gamma), 2.0 * problem.y - 1
    omega = importance_frequencies(
        problem.x, signs, feature, config.n_features, scale=scale, pool_size=POOL, radius=RADIUS, rng=rng
    )  # fmt: skip
    return _on(feature, omega, problem)


def _paper(
    config: Config, problem: Problem, seed: int, strength: float = 0.5, sampler: Langevin = PAPER_SAMPLER, resampled: bool = True
) -> Predict:
    """The paper's settings: Algorithm 1 with a log repulsion, then Algorithm 2's resampling.

    Not stated there: the start (the Gaussian kernel's frequencies here) and whether the phase is inside the ball (here it is).
    """
    feature, rng = FourierPhase(), np.random.default_rng([seed, 6])
    domain = Ball(MAX_NORM, config.dim + 1)
    start = domain.project(start_frequencies(feature, config.n_particles, config.dim, np.sqrt(2 * config.gamma), rng))
    energy: Energy = Alignment(problem.x, 2.0 * problem.y - 1, feature, centre=False, scale=False)
    if strength and config.n_particles > 1:
        energy = energy + Riesz(0, strength)
    ds = simulate(start, energy, domain, sampler, n_steps=config.n_steps, save_every=config.n_steps, rng=rng)
    omega = uninterrupted(ds)["omega"].values[0, -1]
    if resampled:
        omega = resample(omega, gibbs_weights(omega, energy, BETA), config.n_features, rng)
    return _on(feature, omega[: config.n_features], problem)


def _particles(config: Config, problem: Problem, seed: int, repulsion: bool = True) -> Predict:
    """This package's recommended settings, a pair of features for each particle."""
    energy = None if repulsion else _without_repulsion
    features = ParticleFeatures(config.n_features // 2, energy=energy, random_state=seed).fit(problem.x, problem.y)
    return _head(features.transform, problem.x, problem.y)


def _without_repulsion(x: np.ndarray, y: np.ndarray) -> Energy:
    return Alignment(x, y, "fourier") + Quadratic(0.02)


READINGS = ("paper, drift clipped", "paper, drift without N", "paper, not resampled")  # of what the paper leaves open; only by name
METHODS: dict[str, Callable[[Config, Problem, int], Predict]] = {
    "bayes": _bayes,
    "majority": _majority,
    "logistic": _logistic,
    "svm": _svm,
    "svm tuned": _svm_tuned,
    "mkl": _mkl,
    "rff": _rff,
    "rff tuned": _rff_tuned,
    "importance": _importance,
    "paper": partial(_paper, strength=0.5),
    "paper, no repulsion": partial(_paper, strength=0.0),
    "paper, drift clipped": partial(_paper, sampler=Langevin(30.0, BETA, drift_cap=1.0)),
    "paper, drift without N": partial(_paper, sampler=Langevin(30.0 / 300, BETA / 300, clip=300.0)),
    "paper, not resampled": partial(_paper, resampled=False),
    "particles": _particles,
    "particles, no repulsion": partial(_particles, repulsion=False),
}


# ---- parts -------------------------------------------------------------------------------------------------------------------------------


def _seeds(config: Config) -> range:
    return range(config.seed, config.seed + config.n_seeds)


def _methods(config: Config, *without: str) -> list[str]:
    """Those asked for, or all but the readings and `without`."""
    return list(config.methods) or [name for name in METHODS if name not in (*READINGS, *without)]


Units = Iterator[dict[str, Any]]


def _noise_units(config: Config) -> Units:
    for seed in _seeds(config):
        for sigma in config.sigmas:
            yield from ({"sigma": sigma, "method": method, "seed": seed} for method in _methods(config))


def _lambda_units(config: Config) -> Units:
    for seed in _seeds(config):
        for sigma in config.sigmas:
            yield from ({"sigma": sigma, "lambda": strength, "seed": seed} for strength in config.lambdas)


def _budget_units(config: Config) -> Units:
    fixed = [name for name in METHODS if name not in ("rff", "rff tuned", "importance", "paper", "particles")]
    for seed in _seeds(config):
        for sigma in config.sigmas:
            for method in _methods(config, *fixed):
                yield from ({"sigma": sigma, "method": method, "n_features": budget, "seed": seed} for budget in config.budgets)


def _tasks_units(config: Config) -> Units:
    for seed in _seeds(config):
        for task in config.tasks:
            yield from ({"task": task, "method": method, "seed": seed} for method in _methods(config, "bayes", "paper, no repulsion"))


def _runtime_units(config: Config) -> Units:
    without = ("bayes", "majority", "svm tuned", "paper, no repulsion", "particles, no repulsion")
    yield from ({"method": method} for method in _methods(config, *without))


PARTS: dict[str, Callable[[Config], Units]] = {
    "noise": _noise_units,
    "lambda": _lambda_units,
    "budget": _budget_units,
    "tasks": _tasks_units,
    "runtime": _runtime_units,
}


def units(config: Config) -> Units:
    """The units of the part."""
    return PARTS[config.part](config)


def arrange(ds: xr.Dataset, chosen: Mapping[str, Any]) -> xr.Dataset:
    """The numbers of rows of part runtime as a coordinate."""
    return ds.assign_coords(n=list(chosen["sizes"])) if chosen["part"] == "runtime" else ds


def measure(config: Config, unit: dict[str, Any]) -> dict[str, Any]:
    """Scores of one method on one data set; in part runtime of one method at every size."""
    if config.part == "runtime":
        return _times(config, unit["method"])
    config = replace(config, n_features=unit.get("n_features", config.n_features))
    method = partial(_paper, strength=unit["lambda"]) if "lambda" in unit else METHODS[unit["method"]]
    return _scored(config, method, _problem(config, unit), unit["seed"])


def _times(config: Config, name: str) -> dict[str, np.ndarray]:
    """Scores (n,) at growing sizes, NaN from the first one whose time, by a square law from the size before, exceeds the limit."""
    rows: list[dict[str, float]] = []
    for place, n in enumerate(config.sizes):
        if place and rows[-1]["seconds"] * (n / config.sizes[place - 1]) ** 2 > config.limit:
            break
        problem = draw(n, config.dim, 0.1, config.n_fresh, seed=config.seed, split=0)
        if place == 0:
            METHODS[name](config, problem, config.seed)  # what is compiled on first use is not the method's
        rows.append(_scored(config, METHODS[name], problem, config.seed))
    missing = [np.nan] * (len(config.sizes) - len(rows))
    return {score: np.array([row[score] for row in rows] + missing) for score in rows[0]}


def _scored(config: Config, method: Callable[[Config, Problem, int], Predict], problem: Problem, seed: int) -> dict[str, float]:
    """Fit and score."""
    started = time.process_time()
    predict = method(config, problem, seed)
    seconds = time.process_time() - started
    said = predict(problem.x_test)
    scores = {"accuracy": float((said == problem.y_test).mean()), "f1": float(f1_score(problem.y_test, said, zero_division=0.0))}
    return scores | {"fresh_accuracy": float((predict(problem.x_fresh) == problem.y_fresh).mean()), "seconds": seconds}


SECONDS = {"mkl": 7.0, "importance": 1.0, "paper": 12.0, "paper, no repulsion": 8.0, "svm tuned": 2.0, "particles": 2.0}  # at 400 rows


def estimate(config: Config, unit: dict[str, Any]) -> tuple[float, float]:
    """Rough seconds and bytes of a unit on one core."""
    name = unit.get("method", "paper")
    seconds = SECONDS.get(name, 0.5) * (1 if name == "mkl" else config.n_steps / 2000 if name.startswith("paper") else 1)
    rows = max(config.sizes) if config.part == "runtime" else config.n
    seconds = 2 * config.limit if config.part == "runtime" and name in ("mkl", "paper", "svm") else seconds * (rows / 400)
    return seconds, 3e8 + 8.0 * rows * max(config.n_features, config.n_particles) * 4


def section(ds: xr.Dataset) -> Section:
    """Tables and verdicts of the part."""
    caption = "Mean over seeds; bands and bars are Student's 95 % intervals where there are several seeds. The title says the dimension."
    pictures = {"coulomb_synthetic.png": caption} if plots.coulomb_drawable(ds) else {}
    return replace(coulomb_tables.section(ds), pictures=pictures)


def figures(ds: xr.Dataset) -> dict[str, Figure]:
    """The figure of the part by file name."""
    return {"coulomb_synthetic.png": plots.figure_coulomb(ds, coulomb_tables.METHODS)} if plots.coulomb_drawable(ds) else {}


_NOISE, _FEW = (1e-5, 1e-3, 0.1, 1.0, 10.0, 1e3, 1e5), ("logistic", "rff", "paper", "particles")
PRESETS = {
    "smoke": Config(n_seeds=2, n_steps=10, n_particles=20, n_fresh=200, sigmas=(0.1, 1.0), methods=_FEW),
    "cpu": Config(sigmas=_NOISE),
    "paper": Config(),
}
REDUCED = {"cpu": "7 of 11 noise levels"}
