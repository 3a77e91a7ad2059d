"""The temperature law: its test functions, its exactness, and what it tells apart."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from tests.runs_for_reports import EXACT, LANGEVIN, QUADRATIC, RIESZ, as_dataset, euler, log_gas, riesz_gradient, verdict
from theory import report
from theory.ensembles import sample_circle_gas, sample_log_gas, sample_wall_gas
from theory.report import temperature_law


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def gas(request):
    return log_gas(request.param)


def slopes(f, x, h=1e-4):
    """Gradient and Laplacian of f(x) by differences."""
    steps = h * np.eye(x.size).reshape(-1, *x.shape)
    up, down = np.array([f(x + step) for step in steps]), np.array([f(x - step) for step in steps])
    return ((up - down) / (2 * h)).reshape(x.shape), float(np.sum(up + down - 2 * f(x)) / h**2)


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("where", ["space", "Ball", "Box", "Torus"])
def test_gradients_and_laplacians_of_the_test_functions(dim, where):
    x = np.random.default_rng(dim).uniform(-0.5, 0.5, (6, dim))
    low, high, period = np.full(dim, -0.6), np.array([0.9, 0.7, 0.8])[:dim], [1.3, 2.0, 0.9][:dim]
    domain = {"Ball": {"radius": 1.1}, "Torus": {"period": period}}.get(where, {}) | {"name": where}
    run = SimpleNamespace(dim=dim, n_particles=6, domain=domain, box=lambda: (low, high))
    if where == "space":
        value, (climb, curvature) = lambda x: temperature_law._pair_value(x, 0.3), temperature_law._pair_slopes(x, 0.3)
    else:
        f = temperature_law._waves if where == "Torus" else temperature_law._flat_at_walls
        value, (_, climb, curvature) = lambda x: f(run, x)[0], f(run, x)
    gradient, laplacian = slopes(value, x)
    np.testing.assert_allclose(climb, gradient, atol=1e-6 * np.abs(gradient).max())
    assert curvature == pytest.approx(laplacian, abs=1e-4 * max(1, abs(laplacian)))


def test_the_slope_of_psi_vanishes_at_the_wall():
    rng = np.random.default_rng(0)
    for domain in ({"name": "Ball", "radius": 1.3}, {"name": "Box"}):
        low, high = np.array([-1.0, 0.0]), np.array([2.0, 0.5])
        run = SimpleNamespace(dim=2, domain=domain, box=lambda low=low, high=high: (low, high))
        x = rng.normal(size=(5, 2))
        if domain["name"] == "Ball":
            x *= 1.3 / np.linalg.norm(x, axis=1, keepdims=True)
            np.testing.assert_allclose(temperature_law._flat_at_walls(run, x)[1], 0, atol=1e-14)
        else:
            x[:, 0] = low[0]
            np.testing.assert_allclose(temperature_law._flat_at_walls(run, x)[1][:, 0], 0, atol=1e-14)


@pytest.mark.parametrize(("n", "beta"), [(5, 1.0), (12, 6.0)])  # b = 0.175 and 0.38: |grad|^2 has no mean
def test_temperature_of_exact_log_gases(n, beta):
    omega = sample_log_gas(n, beta, 1.3, 0.7, rng=3, size=4000).reshape(4, 1000, n, 1) + 0.2
    trap = QUADRATIC | {"centre": 0.2}
    row = verdict(as_dataset(omega, [trap, RIESZ], sampler=EXACT | {"beta": beta}), "temperature")
    assert bool(row["passed"])
    assert float(row["measured"]) == pytest.approx(1 / beta, rel=0.05)
    for wrong in (0.8, 1.25):
        assert not bool(verdict(as_dataset(omega, [trap, RIESZ], sampler=EXACT | {"beta": wrong * beta}), "temperature")["passed"])
        assert not bool(
            verdict(as_dataset(omega, [trap | {"stiffness": 1.3 * wrong}, RIESZ], sampler=EXACT | {"beta": beta}), "temperature")["passed"]
        )
    doubled = as_dataset(omega, [trap, RIESZ | {"strength": 1.4}], sampler=EXACT | {"beta": beta})  # not its business
    assert float(verdict(doubled, "temperature")["measured"]) == pytest.approx(float(row["measured"]), rel=1e-9)
    assert not bool(verdict(doubled, "second_moment")["passed"])


CONFINED = {
    "box": (lambda: sample_wall_gas(9, 4.0, 2.0, 1.5, rng=3, size=4000) + 0.5, {"name": "Box", "low": [-1.0], "high": [2.0]}, None),
    "ball": (lambda: sample_wall_gas(9, 4.0, 2.0, 1.5, rng=4, size=4000), {"name": "Ball", "radius": 1.5, "dim": 1}, None),
    "torus": (lambda: sample_circle_gas(9, 4.0, 2.0, 3.0, rng=3, size=4000), {"name": "Torus", "period": [3.0]}, 3.0),
}


@pytest.mark.parametrize("name", CONFINED)
def test_temperature_between_walls_and_on_a_torus(name):
    draw, domain, period = CONFINED[name]
    omega, repulsion = draw().reshape(4, 1000, 9, 1), RIESZ | {"strength": 2.0, "period": period}
    right = verdict(as_dataset(omega, [repulsion], domain, EXACT | {"beta": 4.0}), "temperature")
    assert bool(right["passed"])
    for wrong in (2.5, 6.5):
        assert not bool(verdict(as_dataset(omega, [repulsion], domain, EXACT | {"beta": wrong}), "temperature")["passed"])
    doubled = verdict(as_dataset(omega, [repulsion | {"strength": 4.0}], domain, EXACT | {"beta": 2.0}), "temperature")
    assert float(doubled["measured"]) == pytest.approx(2 * float(right["measured"]), rel=1e-9)  # only beta strength matters
    assert bool(doubled["passed"])


def test_steps_are_part_of_the_law(gas):
    """Euler steps of 0.05, which heat by several per cent, with a cap and a clip."""
    dim = gas.shape[-1]
    start = np.random.default_rng(1).normal(size=(24, 9, dim)) * 0.5
    omega = euler(riesz_gradient, start, 0.05, 6.0, 3000, seed=dim)
    sampler = LANGEVIN | {"step_size": 0.05}
    assert bool(verdict(as_dataset(omega, [QUADRATIC, RIESZ], sampler=sampler), "temperature")["passed"])
    exact = verdict(as_dataset(omega, [QUADRATIC, RIESZ], sampler=EXACT), "temperature")
    assert float(exact["measured"]) > 1.03 / 6  # the heat of the steps
    for beta in (5.0, 7.2):
        assert not bool(verdict(as_dataset(gas, [QUADRATIC, RIESZ], sampler=LANGEVIN | {"beta": beta}), "temperature")["passed"])


@pytest.mark.parametrize(
    ("terms", "domain", "words"),
    [
        ([QUADRATIC], None, "the second moment is the temperature"),
        ([], {"name": "Box", "low": [-9.0, -9.0], "high": [9.0, 9.0]}, "uniform at every temperature"),
        ([RIESZ], None, "nothing confines"),
        ([RIESZ], {"name": "Simplex", "dim": 2}, "a wall of another shape"),
        ([{"name": "External"}], None, "without a closed form"),
    ],
)
def test_where_no_temperature_is_measured(terms, domain, words):
    omega = np.random.default_rng(0).normal(size=(4, 40, 9, 2))
    assert words in json.loads(report.check(as_dataset(omega, terms, domain)).attrs["skipped"])["temperature"]
