"""Descents: settled, balanced, in the ground state."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.runs_for_reports import LANGEVIN, QUADRATIC, as_dataset, verdict
from theory import report


@pytest.mark.parametrize(("rate", "passed"), [(0.5, True), (0.02, False)])
def test_a_descent_has_settled_or_still_moves(rate, passed):
    omega = np.exp(-rate * np.arange(80))[:, None, None] * np.random.default_rng(0).normal(size=(3, 1, 5, 2))
    energy = 0.65 * (omega**2).sum(-1).mean(-1)
    series = {"energy": energy, "grad_norm": np.sqrt(2.6 * energy)}
    frozen = report.check(as_dataset(omega, [QUADRATIC], sampler=LANGEVIN | {"beta": "inf"}, **series))
    row = frozen.sel(law="settled")
    assert bool(row["passed"]) == passed
    assert ("still moves: more steps" in str(row["note"].values)) != passed
    assert "gradient norm" in str(row["note"].values)
    assert frozen.sizes["quantity"] == 0
    assert "not tested: mixing (beta is infinite" in report.summary(frozen)
    annealed = LANGEVIN | {"beta": {"name": "linear", "start": 1, "end": 9, "n_steps": 80}}
    row = verdict(as_dataset(omega, [QUADRATIC], sampler=annealed, **series), "settled")
    assert bool(row["passed"])  # noise never rests
    assert float(row["measured"]) == float(frozen["measured"].sel(law="settled"))
    constant = report.check(as_dataset(omega, [QUADRATIC], **series))
    assert "for descents" in json.loads(constant.attrs["skipped"])["settled"]


def test_a_descent_that_starts_at_rest_has_settled():
    omega = np.ones((2, 40, 5, 2)) + 1e-16 * np.random.default_rng(0).normal(size=(2, 40, 5, 2))
    energy = 1.3 + 4e-16 * np.random.default_rng(1).normal(size=(2, 40))
    assert bool(verdict(as_dataset(omega, [QUADRATIC], sampler=LANGEVIN | {"beta": "inf"}, energy=energy), "settled")["passed"])
