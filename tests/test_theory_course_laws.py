"""Stationarity, mixing and free energy along a run."""

from __future__ import annotations

import numpy as np
import pytest

from tests.runs_for_reports import EXACT, LANGEVIN, QUADRATIC, RIESZ, as_dataset, euler, log_gas, pair_energy, riesz_gradient, verdict
from theory import report


@pytest.fixture(scope="module", params=[2, 3])
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
    row = verdict(as_dataset(young, [QUADRATIC | {"stiffness": 2.0}, RIESZ]))
    assert not bool(row["passed"])
    assert str(row["note"].values).endswith("; the frames still drift: longer burn_in or run")
    row = verdict(as_dataset(gas, [QUADRATIC, RIESZ], sampler=LANGEVIN | {"beta": 7.2}))
    assert not bool(row["passed"])
    assert "drift:" not in str(row["note"].values)
