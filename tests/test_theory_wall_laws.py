"""Atoms on walls, predicted and measured."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.runs_for_reports import LANGEVIN, QUADRATIC, RIESZ, as_dataset, euler, log_gas, reds, verdict
from theory import report
from theory.report.forces import SHRINK


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def gas(request):
    return log_gas(request.param)


def stationary_atom(sigma):
    """Mass on both walls of the projected Gaussian walk on [-1, 1], from its discretised transition matrix."""
    from scipy.special import ndtr

    edges = np.linspace(-1, 1, 801)
    x = np.concatenate([[-1.0], (edges[1:] + edges[:-1]) / 2, [1.0]])
    inner = np.diff(ndtr((edges - x[:, None]) / sigma), axis=1)
    matrix = np.column_stack([ndtr((-1 - x) / sigma), inner, ndtr((x - 1) / sigma)])
    equations = np.vstack([(matrix.T - np.eye(len(x)))[1:], np.ones(len(x))])
    p = np.linalg.solve(equations, np.r_[np.zeros(len(x) - 1), 1.0])
    return p[0] + p[-1]


@pytest.mark.parametrize("sigma", [0.05, 0.2, 0.4])
def test_predicted_atom_of_free_particles(sigma):
    sampler = LANGEVIN | {"step_size": sigma**2, "beta": 2.0}
    omega = np.random.default_rng(0).uniform(-1, 1, (2, 40, 100, 1))
    omega[..., :4, :] = 1.0
    row = verdict(as_dataset(omega, [], {"name": "Box", "low": [-1.0], "high": [1.0]}, sampler), "wall_atom")
    exact = stationary_atom(sigma)
    assert float(row["predicted"]) == pytest.approx(exact, abs=1.3e-4)
    if sigma == 0.05:
        assert exact / 2 == pytest.approx(0.017182, abs=1e-5)


BOX = {"name": "Box", "low": [-1.0, 0.0], "high": [1.0, 1.5]}


def in_box(x):
    return np.clip(x, BOX["low"], BOX["high"])


def folded(x):
    low, width = np.array(BOX["low"]), np.subtract(BOX["high"], BOX["low"])
    return low + width - np.abs(np.mod(x - low, 2 * width) - width)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_wall_atom_of_free_particles_in_two_dimensions(dtype):
    start = np.random.default_rng(0).uniform(BOX["low"], BOX["high"], (50, 20, 2))
    projected = euler(np.zeros_like, start, 0.01, 2.0, 3000, seed=1, project=in_box).astype(dtype)
    reflected = euler(np.zeros_like, start, 0.01, 2.0, 600, seed=1, project=folded).astype(dtype)
    sampler = LANGEVIN | {"beta": 2.0}
    row = verdict(as_dataset(projected, [], BOX, sampler), "wall_atom")
    assert bool(row["passed"])
    assert float(row["measured"]) > 0.1
    assert not bool(verdict(as_dataset(projected, [], BOX, sampler | {"beta": 1.5}), "wall_atom")["passed"])
    assert not bool(verdict(as_dataset(reflected, [], BOX, sampler), "wall_atom")["passed"])
    assert bool(verdict(as_dataset(reflected, [], BOX, sampler | {"scheme": "reflected"}), "wall_atom")["passed"])
    assert not bool(verdict(as_dataset(projected, [], BOX, sampler | {"scheme": "reflected"}), "wall_atom")["passed"])


@pytest.mark.parametrize("dim", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_wall_atom_from_the_density_near_the_wall(dim):
    def in_ball(x):
        return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1)

    start = np.random.default_rng(0).uniform(-0.5, 0.5, (40, 20, dim))
    omega = euler(lambda x: 1.3 * x, start, 0.001, 2.0, 6000, seed=2, project=in_ball)
    ball, sampler = {"name": "Ball", "radius": 1.0, "dim": dim}, LANGEVIN | {"step_size": 0.001, "beta": 2.0}
    table = report.check(as_dataset(omega, [QUADRATIC], ball, sampler))
    assert "second_moment" not in table["law"].values  # which does not hold at a wall
    assert not reds(table)
    assert float(table["measured"].sel(law="wall_atom")) > 0.01
    assert "touch the wall" in json.loads(table.attrs["skipped"])["second_moment"]
    for wrong in ({"beta": 0.8}, {"beta": 5.0}):  # noise lengths 1.58 too long or too short
        assert not bool(verdict(as_dataset(omega, [QUADRATIC], ball, sampler | wrong), "wall_atom")["passed"])


def test_coulomb_mass_on_the_wall_is_not_tested_as_an_artefact():
    omega = np.random.default_rng(0).normal(size=(2, 30, 12, 3))
    omega /= np.linalg.norm(omega, axis=-1, keepdims=True)
    table = report.check(as_dataset(omega, [RIESZ | {"s": 1.0}], {"name": "Ball", "radius": 1.0, "dim": 3}))
    assert "wall_atom" not in table["law"].values
    assert "equilibrium itself" in json.loads(table.attrs["skipped"])["wall_atom"]


def test_particles_far_from_the_wall(gas):
    ball = {"name": "Ball", "radius": 9.0, "dim": gas.shape[-1]}
    table = report.check(as_dataset(gas, [QUADRATIC, RIESZ], ball))
    assert {"second_moment", "wall_atom", "steps", "temperature", "density"} < set(table["law"].values)
    assert not reds(table)


def test_shrunk_projection_has_no_atom_on_the_wall_and_keeps_the_density():
    """The scheme stops SHRINK noise lengths before the wall; its error of the distribution is of the order of the step."""
    sigma = 0.05
    start = np.random.default_rng(0).uniform(-0.9, 0.9, (50, 20, 1))
    sampler = LANGEVIN | {"beta": 2.0, "step_size": sigma**2, "scheme": "shrunk"}
    box = {"name": "Box", "low": [-1.0], "high": [1.0]}
    edge = 1 - SHRINK * sigma
    shrunk = euler(np.zeros_like, start, sigma**2, 2.0, 3000, seed=1, project=lambda x: np.clip(x, -edge, edge))
    table = report.check(as_dataset(shrunk, [], box, sampler))
    assert {"wall_atom", "density", "steps"} < set(table["law"].values)
    assert reds(table) <= {"mixing"}  # 50 short chains
    projected = euler(np.zeros_like, start, sigma**2, 2.0, 600, seed=1, project=lambda x: np.clip(x, -1, 1))
    assert not bool(verdict(as_dataset(projected, [], box, sampler), "wall_atom")["passed"])
    assert not bool(verdict(as_dataset(0.97 * shrunk, [], box, sampler), "density")["passed"])
