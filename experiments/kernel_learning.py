"""A kernel learned from labels whose relevant directions are hidden, against fixed and reweighted random features and an exact SVM.

Every method sees the same training part and makes every choice (bandwidth, radius, number of steps, C) on it. All random-feature methods
have the same number of frequencies and the same two heads: ridge, whose penalty is chosen by accuracy, says the label, and logistic, whose
penalty is chosen by log loss, says the probability (one head for both would hurt the weak methods: their best probabilities are constant).
Accuracy is measured on clean test labels; log loss and Brier score on test labels that carry the same flips as the training labels,
because those are what a probability can be right about.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from sklearn.base import TransformerMixin
from sklearn.linear_model import LogisticRegression, RidgeClassifierCV
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.svm import SVC

from experiments import metrics, sweep
from experiments.settings import chosen
from experiments.synthetic import TASKS, Data, check_sizes, make_task
from particles.arrays import count
from particles.estimator import PENALTIES, SCALES, GaussianFeatures, ImportanceFeatures, ParticleFeatures

EXTENT = ("tasks", "methods", "n_seeds", "seed")
LEARNED: dict[str, tuple[str, ...]] = {  # by the particles alone
    **dict.fromkeys(("alignment", "holdout_alignment", "n_iter"), ()),
    "radial_density": ("stage", "radius"),
    "marginal_density": ("stage", "frequency"),
    "omega": ("stage", "particle", "dim"),
    "gram": ("stage", "row", "column"),
    "gram_label": ("row",),
}
FIRST = ("omega", "gram", "gram_label")  # of the first seed
ARRAYS = {name: dims for name, dims in LEARNED.items() if dims}
SVM_C = (0.3, 1.0, 3.0, 10.0)
RADIUS, FREQUENCY = np.linspace(0, 3, 31), np.linspace(-3, 3, 61)  # edges; the particles live in a ball of radius 3
LOGISTIC_C = np.geomspace(1e-2, 1e2, 8)  # inverse penalties of the logistic head, for features with kernel(x, x) = 1


LEAST = 40  # training points: every method is tuned by five folds, in each of which both labels must occur


@dataclass(frozen=True)
class Config:
    """What `run` does."""

    tasks: tuple[str, ...] = ("ring3", "xor2")  # some of cos1, ring3, xor2, bands, iso
    methods: tuple[str, ...] = ("particles", "importance", "rff", "svm")  # some of these four
    n: int = 1000  # training points
    n_test: int = 2000  # test points
    dim: int = 20  # of the input
    flips: float = 0.1  # share of flipped labels
    n_particles: int = 64  # frequencies of every random-feature method
    n_steps: int = 100  # Langevin steps of the particles
    n_seeds: int = 3  # seed, seed + 1, ...; each draws its own task, data and start
    seed: int = 0  # the first seed
    permuted: bool = False  # permute the training labels, the negative control
    n_show: int = 100  # test points in the stored Gram matrices

    def __post_init__(self) -> None:
        chosen(self.tasks, TASKS, "tasks")
        chosen(self.methods, METHODS, "methods")
        for name in ("n_particles", "n_steps", "n_seeds", "n_show"):
            count(getattr(self, name), name)
        count(self.seed, "seed", least=0)
        count(self.n, "n", least=LEAST)
        for task in self.tasks:
            check_sizes(task, self.n, self.n_test, self.dim, self.flips)


def run(config: Config, **how: Any) -> xr.Dataset:
    """Fit every method on every task and seed. `how`: see `experiments.sweep.over`.

    Returns
    -------
    Dataset, in which sel({"method": name}) selects a method (the keyword `method` of `sel` is xarray's own).
    Over (task, method, seed): accuracy [share, clean test labels], log_loss [nats] and brier [noisy test labels], seconds.
    Over (task, seed), for the particles: alignment (train), holdout_alignment, n_iter.
    Over (task, stage = start | learned), for the particles: radial_density (..., radius) of |omega| and marginal_density
    (..., frequency) along the learned particles' leading direction, means over seeds; of the first seed, omega (..., particle, dim)
    and gram (..., row, column) of `n_show` test points ordered by label (gram_label).
    """
    return sweep.run("kernel_learning", config, **how)


def units(config: Config) -> Iterator[dict[str, Any]]:
    """A unit is a method on one draw of one task."""
    for task in config.tasks:
        for method in config.methods:
            yield from ({"task": task, "method": method, "seed": seed} for seed in range(config.seed, config.seed + config.n_seeds))


def measure(config: Config, unit: dict[str, Any]) -> dict[str, Any]:
    """One method on one draw of one task: its scores, and what the particles learned."""
    task, method, seed = unit["task"], unit["method"], unit["seed"]
    sizes = {name: getattr(config, name) for name in ("n", "dim", "flips", "n_test", "permuted")}
    data = make_task(task, rng=np.random.default_rng([seed, 0]), **sizes)
    started = time.perf_counter()
    fitted = METHODS[method](config, data, seed)
    found = _scores(fitted, data) | {"seconds": time.perf_counter() - started}
    if method != "particles":
        return found
    learned = _what_the_particles_learned(fitted.model, data, config.n_show)
    return found | {name: value for name, value in learned.items() if name not in FIRST or seed == config.seed}


def arrange(ds: xr.Dataset, chosen: Mapping[str, Any]) -> xr.Dataset:
    """What the particles alone have is not over methods; densities are means over seeds, particles and Gram matrices the first seed's."""
    held = {name: ds[name].sel({"method": "particles"}, drop=True) for name in LEARNED if name in ds}
    for name in held.keys() & {"radial_density", "marginal_density"}:
        held[name] = held[name].mean("seed")
    for name in held.keys() & set(FIRST):
        held[name] = held[name].dropna("seed", how="all").isel(seed=0, drop=True)
    coords = {"stage": ["start", "learned"], "radius": _centres(RADIUS), "frequency": _centres(FREQUENCY)} if held else {}
    return ds.drop_vars(list(held)).assign(held).assign_coords(coords)


class Fitted(NamedTuple):
    """Predicted test labels (n_test,), probabilities (n_test, 2), and the model or feature transformer behind them."""

    labels: np.ndarray
    probabilities: np.ndarray
    model: Any


def _scores(fitted: Fitted, data: Data) -> dict[str, float]:
    return {
        "accuracy": float((fitted.labels == data.y_test).mean()),
        "log_loss": metrics.log_loss(fitted.probabilities, data.y_test_noisy),
        "brier": metrics.brier(fitted.probabilities, data.y_test_noisy),
    }


def _with_heads(features: TransformerMixin, data: Data) -> Fitted:
    """Features fitted on the training part, then both heads with penalties by five-fold cross-validation on it."""
    phi = features.fit(data.x, data.y).transform(data.x)
    phi_test = features.transform(data.x_test)
    ridge = RidgeClassifierCV(alphas=len(phi) * PENALTIES, cv=5).fit(phi, data.y)
    logistic = GridSearchCV(LogisticRegression(max_iter=1000), {"C": LOGISTIC_C}, cv=5, scoring="neg_log_loss").fit(phi, data.y)
    return Fitted(ridge.predict(phi_test), logistic.predict_proba(phi_test), features)


def _particles(config: Config, data: Data, seed: int) -> Fitted:
    return _with_heads(ParticleFeatures(config.n_particles, n_steps=config.n_steps, random_state=seed), data)


def _importance(config: Config, data: Data, seed: int) -> Fitted:
    return _with_heads(ImportanceFeatures(config.n_particles, random_state=seed), data)


def _rff(config: Config, data: Data, seed: int) -> Fitted:
    return _with_heads(GaussianFeatures(config.n_particles, random_state=seed), data)


def _svm(config: Config, data: Data, seed: int) -> Fitted:
    """RBF-SVM with C and gamma by accuracy on a 25 % hold-out and its sigmoid (Platt) fitted there, then refitted on the training part."""
    split = train_test_split(data.x, data.y, test_size=0.25, stratify=data.y, random_state=seed)
    x, x_holdout, y, y_holdout = split
    gammas = 0.5 * (SCALES / np.sqrt(2 * config.dim)) ** 2
    grid = [SVC(C=c, gamma=gamma) for c in SVM_C for gamma in gammas]
    best = max(grid, key=lambda machine: machine.fit(x, y).score(x_holdout, y_holdout))
    sigmoid = LogisticRegression(C=1e3).fit(best.decision_function(x_holdout)[:, None], y_holdout)
    machine = SVC(C=best.C, gamma=best.gamma).fit(data.x, data.y)
    return Fitted(machine.predict(data.x_test), sigmoid.predict_proba(machine.decision_function(data.x_test)[:, None]), machine)


METHODS: dict[str, Callable[[Config, Data, int], Fitted]] = {"particles": _particles, "importance": _importance, "rff": _rff, "svm": _svm}


def _what_the_particles_learned(model: ParticleFeatures, data: Data, n_show: int) -> dict[str, Any]:
    """Alignments, particles, spectral densities and Gram matrices before and after, for one fit."""
    omega = np.stack([model.trajectory_["omega"].values[0, 0], model.omega_])
    leading = np.linalg.svd(model.omega_, full_matrices=False)[2][0]
    along = np.concatenate((omega, -omega), 1) @ leading  # w and -w are one feature
    order = np.argsort(data.y_test[:n_show], kind="stable")
    shown = data.x_test[:n_show][order]
    gram = np.stack([model.feature_.kernel(shown, shown, particles) for particles in omega])
    return {
        "alignment": model.alignment_,
        "holdout_alignment": model.holdout_alignment_,
        "n_iter": model.n_iter_,
        "omega": omega,
        "radial_density": np.stack([_density(w, RADIUS) for w in np.linalg.norm(omega, axis=-1)]),
        "marginal_density": np.stack([_density(w, FREQUENCY) for w in along]),
        "gram": gram.round(6),
        "gram_label": data.y_test[:n_show][order].astype(float),
    }


def _density(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    return np.histogram(values, edges, density=True)[0]


def _centres(edges: np.ndarray) -> np.ndarray:
    return (edges[1:] + edges[:-1]) / 2


def estimate(config: Config, unit: dict[str, Any]) -> tuple[float, float]:
    """Rough seconds and bytes of a unit on one core."""
    return 0.5 + 2.5 * (config.n / 1000) * (config.n_particles / 64), 4e8


_FEW: dict[str, Any] = {"tasks": ("ring3",), "n": 200, "n_test": 200, "n_particles": 8, "n_steps": 8, "n_show": 40}
PRESETS = {"smoke": Config(**_FEW), "cpu": Config(tasks=tuple(TASKS), n_seeds=5)}
