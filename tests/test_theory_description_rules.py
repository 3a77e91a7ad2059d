"""Recorded energies, forces and places against the description; `particles` writes, the report reads."""

from __future__ import annotations

import json

import numpy as np
import pytest

from particles import Ball, Box, FullSpace, Langevin, Quadratic, Riesz, Torus, simulate
from tests.runs_for_reports import QUADRATIC, as_dataset, reds
from theory import report

ENERGIES = {
    "log": (Quadratic(1.3, 0.2) + Riesz(0.0, 0.7), FullSpace(2)),
    "riesz of a length": (Quadratic(0.4) + Riesz(1.5, 0.7, length=0.3), FullSpace(3)),
    "linear": (Quadratic(1.3) + Riesz(-1.0, 0.7), FullSpace(1)),
    "softened": (Riesz(0.0, 0.7, softening=0.2), Box([-2.0, -2.0], [2.0, 2.0])),
    "truncated": (Riesz(1.0, 0.7, truncation=0.4), Ball(2.0, 2)),
    "mirror": (Quadratic(1.0) + Riesz(0.5, 0.7, mirror=True), FullSpace(2)),
    "torus": (Riesz(0.0, 0.7, period=[2.0, 3.0]), Torus([2.0, 3.0])),
    "coulomb": (Quadratic(1.0) + Riesz("coulomb", 0.7), FullSpace(3)),
}


def run(name, dtype=float):
    energy, domain = ENERGIES[name]
    start = np.random.default_rng(0).uniform(0, 1, (3, 9, domain.dim)).astype(dtype)
    return simulate(start, energy, domain, Langevin(1e-3, 4.0, scheme="projected"), n_steps=60, save_every=2, rng=1)


@pytest.mark.parametrize("name", ENERGIES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_what_particles_record_is_what_they_describe(name, dtype):
    table = report.check(run(name, dtype))
    for law in ("described_energy", "described_force"):
        assert bool(table["passed"].sel(law=law)), report.summary(table)
        assert float(table["measured"].sel(law=law)) < (1e-10 if dtype is np.float64 else 1e-4)


@pytest.mark.parametrize(
    ("name", "term", "field", "value"),
    [
        ("log", 0, "stiffness", 1.31),
        ("log", 1, "strength", 0.71),
        ("log", 1, "s", 0.01),
        ("riesz of a length", 1, "length", 0.31),
        ("softened", None, "softening", 0.21),
        ("truncated", None, "truncation", 0.45),
        ("mirror", 1, "mirror", False),
        ("torus", None, "period", [2.0, 3.1]),
    ],
)
def test_another_description_is_seen(name, term, field, value):
    dataset = run(name)
    described = json.loads(dataset.attrs["energy"])
    part = described if term is None else described.get("energies", described.get("terms"))[term]
    assert part[field] != value
    part[field] = value
    assert {"described_energy", "described_force"} <= reds(report.check(dataset.assign_attrs(energy=json.dumps(described))))


def test_forces_of_another_size_are_seen_although_the_energy_is_right():
    dataset = run("log")
    assert reds(report.check(dataset.assign(grad_norm=dataset["grad_norm"] / 9))) >= {"described_force"}


@pytest.mark.parametrize("domain", [Ball(0.9, 2), Box([-0.9, -0.9], [0.9, 0.9])])
def test_particles_outside_their_domain_are_seen(domain):
    omega = np.random.default_rng(0).uniform(-0.6, 0.6, (2, 40, 9, 2))
    described = (
        {"name": "Ball", "radius": 0.9, "dim": 2} if isinstance(domain, Ball) else {"name": "Box", "low": [-0.9] * 2, "high": [0.9] * 2}
    )
    assert bool(report.check(as_dataset(omega, [QUADRATIC], described))["passed"].sel(law="inside"))
    omega[1, -1, 3] = [0.95, 0.0]
    row = report.check(as_dataset(omega, [QUADRATIC], described)).sel(law="inside")
    assert not bool(row["passed"])
    assert "0.05 outside" in str(row["note"].values)


def test_approximate_sums_are_not_compared():
    start = np.random.default_rng(0).uniform(0, 1, (3, 40, 2))
    dataset = simulate(start, Riesz(0.0, 0.7, tolerance=1e-3), Ball(2.0, 2), Langevin(1e-4, 4.0), n_steps=20, rng=1)
    assert "approximate" in json.loads(report.check(dataset).attrs["skipped"])["described_energy"]
