"""One kernel fit, frame by frame: what the particles, their spectrum, their kernel and its accuracy do while they learn."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import xarray as xr
from sklearn.linear_model import LogisticRegression

from experiments.synthetic import Data, check_sizes, make_task
from particles.arrays import count
from particles.domain import Ball
from particles.estimator import GaussianFeatures, default_energy, flat_features, start_frequencies
from particles.features import FourierPair
from particles.langevin import Langevin
from particles.simulate import simulate, uninterrupted


@dataclass(frozen=True)
class Config:
    """A task of `experiments.synthetic`, its sizes, and the run: defaults are those of `ParticleFeatures`."""

    task: str = "xor2"
    n: int = 1000
    dim: int = 20
    n_particles: int = 64
    n_steps: int = 100
    save_every: int = 2
    n_plane: int = 61
    n_show: int = 60  # test points in the kernel's matrix
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("n_particles", "n_steps", "save_every", "n_plane"):
            count(getattr(self, name), name)
        count(self.n_show, "n_show", least=2)
        count(self.seed, "seed", least=0)
        check_sizes(self.task, self.n, 1, self.dim, 0.0)


def run(config: Config) -> xr.Dataset:
    """Fit once and keep every frame.

    Returns
    -------
    Dataset: plane_omega (step, particle, axis), the particles in the plane of their two leading final directions; power (plane, plane_2),
    the label's power spectrum |mean_k y_k exp(i w.x_k)|^2 there, which is the force field that pulls on them; length (step, particle);
    alignment (step) of the kernel with the labels; accuracy (step) on clean test labels of logistic regression on the features, and
    fixed_accuracy () on as many features of a Gaussian kernel of tuned width; gram (step, row, column), the kernel of n_show test points,
    half of each label, ordered by label (gram_label) and within one by their direction in the plane.
    """
    rng = np.random.default_rng([config.seed, 3])
    data = make_task(config.task, n=config.n, dim=config.dim, rng=rng)
    start = start_frequencies(FourierPair(), config.n_particles, config.dim, np.sqrt(0.3 / config.dim), rng)
    energy = default_energy(data.x, np.eye(2)[data.y], FourierPair(), start)
    sampler = Langevin(2.0, 1000.0)
    path = simulate(start, energy, Ball(3.0, config.dim), sampler, n_steps=config.n_steps, save_every=config.save_every, rng=config.seed)
    omega = uninterrupted(path)["omega"].values[0]
    plane = np.linalg.svd(omega[-1], full_matrices=False)[2][:2]
    grid = np.linspace(-3, 3, config.n_plane)
    shown = _shown(data, plane, config.n_show)
    dataset = xr.Dataset(
        {
            "plane_omega": (("step", "particle", "axis"), omega @ plane.T),
            "power": (("plane", "plane_2"), _power(data.x, data.y, plane, grid)),
            "length": (("step", "particle"), np.linalg.norm(omega, axis=-1)),
            "alignment": ("step", -path["energy_alignment"].values[0]),
            "accuracy": ("step", [_accuracy(data, frame) for frame in omega]),
            "fixed_accuracy": _accuracy(data, GaussianFeatures(config.n_particles, random_state=config.seed).fit(data.x, data.y).omega_),
            "gram": (("step", "row", "column"), np.stack([FourierPair().kernel(data.x_test[shown], data.x_test[shown], w) for w in omega])),
            "gram_label": ("row", data.y_test[shown]),
        },
        coords={"step": path["step"].values, "plane": grid},
    )
    dataset.attrs = {"experiment": "film", "config": json.dumps(asdict(config)), "schema": 1}
    return dataset


def _accuracy(data: Data, omega: np.ndarray) -> float:
    """Share of right answers on clean test labels, of logistic regression on the Fourier features of omega."""
    train, test = (flat_features(FourierPair(), x, omega) for x in (data.x, data.x_test))
    return float(LogisticRegression(C=10, max_iter=1000).fit(train, data.y).score(test, data.y_test))


def _shown(data: Data, plane: np.ndarray, n_show: int) -> np.ndarray:
    """Indices of n_show test points, half of each label, ordered by label, within one by their angle in the plane."""
    halves = [np.flatnonzero(data.y_test == label)[: n_show // 2] for label in (0, 1)]
    angle = np.arctan2(*(plane[::-1] @ data.x_test.T))
    return np.concatenate([half[np.argsort(angle[half])] for half in halves])


def _power(x: np.ndarray, y: np.ndarray, plane: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """|mean_k y_k exp(i w.x_k)|^2 at w = a plane_0 + b plane_1, with y centred and of unit variance; (a, b)."""
    first, second = (np.exp(1j * np.outer(grid, x @ direction)) for direction in plane)
    return np.abs((first * (y - y.mean()) / y.std()) @ second.T / len(x)) ** 2


def estimate(config: Config, unit: dict[str, Any]) -> tuple[float, float]:
    """Rough seconds and bytes of a run on one core."""
    return 10.0 + 1e-5 * config.n * config.n_steps, 4e8


PRESETS = {"smoke": Config(n=200, n_particles=16, n_steps=8), "cpu": Config()}
