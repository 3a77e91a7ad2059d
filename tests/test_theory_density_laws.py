"""Densities against exact and mean-field laws."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.runs_for_reports import EXACT, LANGEVIN, QUADRATIC, RIESZ, as_dataset, euler, reds, verdict
from theory import report
from theory.ensembles import sample_log_gas
from theory.mean_field import MeanField


def test_a_step_too_long_for_the_density_law():
    """Free particles with Euler's variance at a step of 0.6: 1/(1 - 0.3 kappa) times the law's, no gross deviation."""
    omega = euler(lambda x: 1.3 * x, np.zeros((20, 20, 1)), 0.6, 6.0, 2000, seed=5, every=5)
    table = report.check(as_dataset(omega, [QUADRATIC], sampler=LANGEVIN | {"step_size": 0.6}))
    assert not reds(table)
    assert "the step is too long" in json.loads(table.attrs["skipped"])["density"]
    shifted = report.check(as_dataset(omega + 0.5, [QUADRATIC], sampler=LANGEVIN | {"step_size": 0.6}))
    assert not bool(shifted["passed"].sel(law="density"))


@pytest.mark.parametrize(("n", "beta"), [(5, 6.0), (24, 2.0)])
def test_density_of_exact_log_gas_samples(n, beta):
    omega = sample_log_gas(n, beta, 1.3, 0.7, rng=3, size=1600).reshape(4, 400, n, 1)
    for centre in (0.0, -0.3):
        dataset = as_dataset(omega + centre, [QUADRATIC | {"centre": centre}, RIESZ], sampler=EXACT | {"beta": beta})
        table = report.check(dataset)
        assert not reds(table)
        assert {"second_moment", "density", "temperature", "chaos_bias"} < set(table["law"].values)
    wrong = as_dataset(omega, [QUADRATIC, RIESZ], sampler=EXACT | {"beta": 1.2 * beta})
    assert not bool(verdict(wrong)["passed"])
    shifted = as_dataset(omega + 0.05, [QUADRATIC, RIESZ], sampler=EXACT | {"beta": beta})
    assert not bool(verdict(shifted, "density")["passed"])


def from_density(field, rho, shape, seed):
    """Independent points of a piecewise constant density."""
    u = np.random.default_rng(seed).uniform(size=shape)
    return np.interp(u, np.concatenate([[0], np.cumsum(rho) * field.width]), field.edges)


def test_density_against_the_mean_field():
    field = MeanField(lambda x: 0.65 * x**2, lambda r: 0.7 * r**-0.5, 6.0, np.linspace(-2, 2, 401))
    omega = from_density(field, field.stationary().rho, (4, 300, 80, 1), 1)
    box = {"name": "Box", "low": [-2.0], "high": [2.0]}
    assert bool(verdict(as_dataset(omega, [QUADRATIC, RIESZ | {"s": 0.5}], box, EXACT), "density")["passed"])
    assert bool(verdict(as_dataset(omega, [QUADRATIC, RIESZ | {"s": 0.5}], None, EXACT), "density")["passed"])
    for wrong in (RIESZ | {"s": -0.5}, RIESZ | {"s": 0.5, "strength": 0.9}):
        assert not bool(verdict(as_dataset(omega, [QUADRATIC, wrong], box, EXACT), "density")["passed"])


def test_density_of_user_energies():
    def well(x):
        return 2 * (x**2 - 0.5) ** 2

    field = MeanField(well, None, 6.0, np.linspace(-1.5, 1.5, 401))
    omega = from_density(field, field.stationary().rho, (4, 400, 50, 1), 2)
    dataset = as_dataset(omega, [{"name": "Alignment", "n": 100}], {"name": "Ball", "radius": 1.5, "dim": 1}, EXACT)
    table = report.check(dataset)
    assert "density" not in table["law"].values
    assert "Alignment" in json.loads(table.attrs["skipped"])["density"]
    assert bool(verdict(dataset, "density", external=well)["passed"])
    assert not bool(verdict(dataset, "density", external=lambda x: 1.2 * well(x))["passed"])
    assert not bool(verdict(dataset, "density", external=well, interaction=lambda r: -0.3 * np.log(r))["passed"])


def test_a_trap_on_a_torus_has_no_law():
    omega = np.random.default_rng(0).uniform(0, 3, (4, 40, 9, 1))
    torus, period = {"name": "Torus", "period": [3.0]}, RIESZ | {"period": [3.0]}
    skipped = json.loads(report.check(as_dataset(omega, [QUADRATIC, period], torus, EXACT)).attrs["skipped"])
    assert "on a torus positions have no moments" in skipped["second_moment"]
    assert "only repel each other" in skipped["density"]
    assert "no wall" in skipped["wall_atom"]
    with pytest.raises(ValueError, match="must give period"):
        report.check(as_dataset(omega, [period], {"name": "Torus"}, EXACT))
