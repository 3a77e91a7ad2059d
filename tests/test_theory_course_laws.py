"""Stationarity, mixing and free energy along a run."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.runs_for_reports import EXACT, LANGEVIN, QUADRATIC, RIESZ, as_dataset, euler, log_gas, pair_energy, riesz_gradient, verdict
from theory import report


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def gas(request):
    return log_gas(request.param)


def test_second_moment_is_no_measure_of_mixing_on_a_torus():
    omega = np.random.default_rng(0).uniform(0, 3, (4, 40, 9, 1))
    torus, terms = {"name": "Torus", "period": [3.0]}, [RIESZ | {"period": [3.0]}]
    assert report.check(as_dataset(omega, terms, torus, EXACT)).sizes["quantity"] == 0
    table = report.check(as_dataset(omega, terms, torus, EXACT, energy=pair_energy(omega, 0.7, 3.0)))
    assert table["quantity"].values.tolist() == ["energy"]


def test_a_law_that_fails_on_drifting_frames_says_so(gas):
    """A run that starts far out fails while it relaxes, with a hint; a wrong temperature fails without one."""
    start = np.random.default_rng(1).normal(size=(24, 9, gas.shape[-1])) * 2
    young = euler(riesz_gradient, start, 0.01, 6.0, 160, seed=3, every=4)
    row = report.check(as_dataset(young, [QUADRATIC | {"stiffness": 2.0}, RIESZ])).sel(law="second_moment")
    assert not bool(row["passed"])
    assert str(row["note"].values).endswith("; the frames still drift: longer burn_in or run")
    row = report.check(as_dataset(gas, [QUADRATIC, RIESZ], sampler=LANGEVIN | {"beta": 7.2})).sel(law="second_moment")
    assert not bool(row["passed"])
    assert "drift:" not in str(row["note"].values)


def autoregressive(shape, memory, seed):
    """Stationary Gaussian chains (chain, frame) of unit variance."""
    rng = np.random.default_rng(seed)
    x = np.empty(shape)
    x[:, 0] = rng.normal(size=shape[0])
    for i in range(1, shape[1]):
        x[:, i] = memory * x[:, i - 1] + np.sqrt(1 - memory**2) * rng.normal(size=shape[0])
    return x


def with_energy(energy):
    """A run on a torus, which has no second moment, with that energy."""
    omega = np.random.default_rng(0).uniform(0, 3, (*energy.shape, 2, 1))
    return as_dataset(omega, [{"name": "Pair"}], {"name": "Torus", "period": [3.0]}, EXACT, energy=energy)


def test_stationarity_of_correlated_chains():
    """300 stationary runs at alpha 0.01: more than 9 are rejected in 3e-3 of the tests; a drift of a deviation is seen."""
    rejected = 0
    for seed in range(300):
        energy = autoregressive((4, 200), 0.6, seed)
        rejected += not bool(verdict(with_energy(energy), "stationarity", alpha=0.01, burn_in=0.0)["passed"])
    assert rejected <= 9
    drift = np.linspace(0, 1, 200)
    assert not bool(verdict(with_energy(autoregressive((4, 200), 0.6, 0) + 1.5 * drift), "stationarity")["passed"])


def test_stationarity_needs_frames_and_a_law():
    few = report.check(with_energy(autoregressive((4, 24), 0.0, 0)))
    assert "fewer than 24 frames" in json.loads(few.attrs["skipped"])["stationarity"]
    omega = np.random.default_rng(0).normal(size=(4, 60, 5, 2))
    frozen = report.check(as_dataset(omega, [QUADRATIC], sampler=LANGEVIN | {"beta": "inf"}))
    assert "a descent has no stationary law" in json.loads(frozen.attrs["skipped"])["stationarity"]


@pytest.mark.parametrize(("offset", "passed"), [(0.0, True), (0.2, True), (2.0, False)])
def test_chains_that_disagree_have_not_mixed(offset, passed):
    energy = autoregressive((4, 200), 0.3, 1) + offset * np.arange(4)[:, None]
    assert bool(verdict(with_energy(energy), "mixing")["passed"]) == passed


def ornstein_uhlenbeck(start, beta, seed, n_frames=60):
    """Exact transitions of free particles in the trap 1.3 at temperature 1/beta: (40, n_frames, 10, 2)."""
    rng = np.random.default_rng(seed)
    decay, x = np.exp(-1.3 * 0.05), np.full((40, 10, 2), 0.0) + start * rng.normal(size=(40, 10, 2))
    frames = [x]
    for _ in range(n_frames - 1):
        x = decay * x + np.sqrt((1 - decay**2) / (beta * 1.3)) * rng.normal(size=x.shape)
        frames.append(x)
    return np.stack(frames, 1)


@pytest.mark.parametrize("start", [0.01, 3.0], ids=["crowded", "wide"])
def test_free_energy_falls_along_a_run(start):
    """From a crowded start the energy rises, and the entropy more."""
    omega = ornstein_uhlenbeck(start, 6.0, 1)
    row = verdict(as_dataset(omega, [QUADRATIC], sampler=EXACT), "free_energy")
    assert bool(row["passed"])
    rising = verdict(as_dataset(omega, [QUADRATIC], sampler=EXACT | {"beta": 60.0}), "free_energy")  # ten times hotter than it says
    assert bool(rising["passed"]) == (start > 1)
    backwards = verdict(as_dataset(omega[:, ::-1], [QUADRATIC], sampler=EXACT), "free_energy")
    assert not bool(backwards["passed"])


def test_free_energy_at_rest_is_that_of_the_gas():
    """F = -(dim/2 beta) log(2 pi/(beta kappa)) for free particles in a trap."""
    omega = ornstein_uhlenbeck((6.0 * 1.3) ** -0.5, 6.0, 2)
    note = str(verdict(as_dataset(omega, [QUADRATIC], sampler=EXACT), "free_energy")["note"].values)
    for value in note.split(", ")[1].split(" to "):
        assert float(value) == pytest.approx(-np.log(2 * np.pi / 7.8) / 6, abs=0.03)


def test_where_there_is_no_free_energy():
    omega = np.random.default_rng(0).normal(size=(2, 40, 5, 2))
    assert "fewer than 64" in json.loads(report.check(as_dataset(omega, [QUADRATIC])).attrs["skipped"])["free_energy"]
    together = np.zeros((8, 40, 10, 2))
    assert "coincident" in json.loads(report.check(as_dataset(together, [QUADRATIC])).attrs["skipped"])["free_energy"]
