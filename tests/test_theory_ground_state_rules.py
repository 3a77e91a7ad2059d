"""Descents: settled, balanced, in the ground state."""

from __future__ import annotations

import json

import numpy as np
import pytest

from particles import Ball, Box, FullSpace, Langevin, Quadratic, Riesz, simulate
from tests.runs_for_reports import LANGEVIN, QUADRATIC, as_dataset, reds, verdict
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


DESCENTS = {  # energy, domain, start's half width
    "hermite zeros": (Quadratic(1.3, 0.2) + Riesz(0.0, 0.7), FullSpace(1)),
    "riesz on the line": (Quadratic(1.3) + Riesz(0.5, 0.7), FullSpace(1)),
    "coulomb disc": (Quadratic(1.3) + Riesz(0.0, 0.7), FullSpace(2)),
    "riesz disc": (Quadratic(1.3) + Riesz(1.0, 0.7, length=0.5), FullSpace(2)),
    "log shell": (Quadratic(1.3) + Riesz(-0.5, 0.7), FullSpace(4)),
    "legendre": (Riesz(0.0, 0.7), Box([-0.5], [1.5])),
    "circle": (Riesz(0.0, 0.7), Ball(1.2, 2)),
    "charged disc": (Riesz(1.0, 0.7), Ball(1.2, 2)),
}


def descent(name, n_steps=4000, step_size=0.01):
    energy, domain = DESCENTS[name]
    rng = np.random.default_rng(3)
    n = 10 if domain.dim == 1 else 40
    start = rng.uniform(-0.4, 0.4, (3, n, domain.dim))
    if domain.dim == 1:
        start = np.linspace(-0.4, 0.4, n)[None, :, None] + rng.uniform(-0.02, 0.02, (3, n, 1))
    sampler = Langevin(step_size, float("inf"), drift_cap=0.02)
    return simulate(start, energy, domain, sampler, n_steps=n_steps, save_every=n_steps // 100, rng=1)


@pytest.mark.parametrize("name", DESCENTS)
def test_descents_reach_the_ground_state(name):
    run = descent(name)
    table = report.check(run)
    assert {"balance", "ground_state"} <= set(table["law"].values), report.summary(table)
    assert reds(table) <= {"settled"}, report.summary(table)  # in space, descents creep on
    described = json.loads(run.attrs["energy"])
    for part in described.get("energies", described.get("terms", [described])):
        if part["name"] == "Riesz" and "Quadratic" in run.attrs["energy"]:
            part["strength"] *= 2
    if "Quadratic" in run.attrs["energy"]:  # without a trap the ground state does not depend on the strength
        doubled = report.check(run.assign_attrs(energy=json.dumps(described)))
        assert {"balance", "ground_state"} <= reds(doubled), report.summary(doubled)


def test_another_exponent_is_not_in_balance():
    run = descent("charged disc")
    described = json.loads(run.attrs["energy"])
    described["s"] = 0.5
    assert {"balance"} <= reds(report.check(run.assign_attrs(energy=json.dumps(described))))


def test_an_unfinished_descent_is_not_in_balance():
    table = report.check(descent("coulomb disc", n_steps=100, step_size=0.002))
    assert {"settled", "balance"} <= reds(table)


@pytest.mark.parametrize(
    ("energy", "domain", "words"),
    [
        (Quadratic(1.0) + Riesz(0.0, 0.7, softening=0.1), FullSpace(2), "changed repulsion"),
        (Riesz(0.0, 0.7), Box([-1.0, -1.0], [1.0, 1.0]), "no closed form"),
        (Quadratic(1.0) + Riesz(2.5, 0.7), FullSpace(2), "s must lie"),
        (Quadratic(1.0), FullSpace(2), "no single repulsion"),
    ],
)
def test_where_no_ground_state_is_known(energy, domain, words):
    start = np.random.default_rng(0).uniform(-0.5, 0.5, (2, 8, 2))
    run = simulate(start, energy, domain, Langevin(1e-3, float("inf"), drift_cap=0.02), n_steps=50, rng=1)
    assert words in json.loads(report.check(run).attrs["skipped"])["ground_state"]
