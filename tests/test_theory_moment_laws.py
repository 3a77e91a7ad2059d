"""The second moment, exact energies and the fourth moment of runs whose law is known, and of the same runs with planted faults."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.runs_for_reports import EXACT, LANGEVIN, QUADRATIC, RIESZ, as_dataset, euler, log_gas, pair_energy, reds, riesz_gradient, verdict
from theory import report
from theory.ensembles import sample_circle_gas, sample_log_gas, sample_wall_gas


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def gas(request):
    return log_gas(request.param)


def test_second_moment_of_a_log_gas(gas):
    row = verdict(as_dataset(gas, [QUADRATIC, RIESZ]))
    dim = gas.shape[-1]
    assert bool(row["passed"])  # alpha 1e-3
    assert float(row["predicted"]) == pytest.approx(dim / 7.8 + 0.7 / 2.6, rel=0.02)  # the finite step adds about 1 %
    assert float(row["standard_error"]) < 0.01 * float(row["measured"])
    assert 0.3 < float(row["standard_error"] / row["standard_error_chains"]) < 3


FAULTS = {
    "beta 20 % high": ([QUADRATIC, RIESZ], LANGEVIN | {"beta": 7.2}),
    "beta 20 % low": ([QUADRATIC, RIESZ], LANGEVIN | {"beta": 4.8}),
    "noise without the 2": ([QUADRATIC, RIESZ], LANGEVIN | {"beta": 12.0}),
    "gradient without the factor N": ([QUADRATIC | {"stiffness": 11.7}, RIESZ | {"strength": 6.3}], LANGEVIN),
    "pair sum without the 1/2": ([QUADRATIC, RIESZ | {"strength": 1.4}], LANGEVIN),
    "1/N for 1/(N-1)": ([QUADRATIC, RIESZ | {"strength": 0.7 * 9 / 8}], LANGEVIN),
    "wrong exponent": ([QUADRATIC, RIESZ | {"s": 1.0}], LANGEVIN),
    "wrong sign": ([QUADRATIC, RIESZ | {"strength": -0.7}], LANGEVIN),
    "wrong stiffness": ([QUADRATIC | {"stiffness": 1.1}, RIESZ], LANGEVIN),
    "no interaction": ([QUADRATIC], LANGEVIN),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_turn_the_law_red(gas, fault):
    terms, sampler = FAULTS[fault]
    assert not bool(verdict(as_dataset(gas, terms, sampler=sampler))["passed"])


@pytest.mark.parametrize(
    ("s", "dim", "described"),
    [(0.5, 2, 0.5), (-1.0, 2, -1.0), (1.0, 3, "coulomb"), (1.0, 3, 1.0)],
    ids=["riesz", "linear", "coulomb", "d3"],
)
def test_virial_law_of_riesz_gases(s, dim, described):
    start = np.random.default_rng(2).normal(size=(24, 7, dim)) * 0.7
    omega = euler(lambda x: riesz_gradient(x, s=s), start, 0.002, 6.0, 5000, seed=7)
    sampler = LANGEVIN | {"step_size": 0.002}
    assert bool(verdict(as_dataset(omega, [QUADRATIC, RIESZ | {"s": described}], sampler=sampler))["passed"])
    assert not bool(verdict(as_dataset(omega, [QUADRATIC, RIESZ | {"s": described}], sampler=sampler | {"beta": 7.2}))["passed"])


@pytest.mark.parametrize("step_size", [0.05, 0.6])
def test_euler_law_is_exact_at_any_step(step_size):
    """Free particles: variance 1/(beta kappa (1 - step kappa/2)), far from the continuous law at step 0.6."""
    omega = euler(lambda x: 1.3 * (x - 0.4), np.full((40, 20, 2), 0.4), step_size, 6.0, 2000, seed=5, every=5)
    row = verdict(as_dataset(omega, [QUADRATIC | {"centre": 0.4}], sampler=LANGEVIN | {"step_size": step_size}))
    assert bool(row["passed"])
    assert float(row["measured"]) == pytest.approx(2 / (7.8 * (1 - 0.65 * step_size)), rel=0.02)
    exact = verdict(as_dataset(omega, [QUADRATIC | {"centre": 0.4}], sampler=EXACT))
    assert bool(exact["passed"]) == (step_size < 0.01)  # negative control: the law without the step is rejected at both steps


def test_drift_cap_and_clip_enter_the_law():
    def clipped(x):
        g = 1.3 * x
        return g * np.minimum(1, 0.5 / np.maximum(np.linalg.norm(g, axis=-1, keepdims=True), 1e-300))

    omega = euler(clipped, np.zeros((40, 10, 2)), 0.05, 6.0, 3000, seed=6)
    for guard in ({"clip": 0.5}, {"drift_cap": 0.025}):
        assert bool(verdict(as_dataset(omega, [QUADRATIC], sampler=LANGEVIN | {"step_size": 0.05} | guard))["passed"])
    assert not bool(verdict(as_dataset(omega, [QUADRATIC], sampler=LANGEVIN | {"step_size": 0.05}))["passed"])


GASES = {
    "trap": (
        lambda: sample_log_gas(9, 4.0, 1.3, 0.7, rng=3, size=2000).reshape(4, 500, 9, 1),
        [QUADRATIC, RIESZ],
        {"name": "FullSpace", "dim": 1},
        {"second_moment", "energy", "density"},
    ),
    "box": (
        lambda: sample_wall_gas(9, 4.0, 0.7, 1.5, rng=3, size=2000).reshape(4, 500, 9, 1) + 0.5,
        [RIESZ],
        {"name": "Box", "low": [-1.0], "high": [2.0]},
        {"energy", "density"},
    ),
    "ball": (
        lambda: sample_wall_gas(9, 4.0, 0.7, 1.5, rng=4, size=2000).reshape(4, 500, 9, 1),
        [RIESZ | {"length": 0.4}],
        {"name": "Ball", "radius": 1.5, "dim": 1},
        {"energy", "density"},
    ),
    "torus": (
        lambda: sample_circle_gas(9, 4.0, 0.7, 3.0, rng=3, size=2000).reshape(4, 500, 9, 1),
        [RIESZ | {"period": 3.0, "truncation": None}],
        {"name": "Torus", "period": [3.0]},
        {"energy", "density"},
    ),
}


@pytest.mark.parametrize("gas_name", GASES)
def test_exact_energy_and_density_laws_of_log_gases(gas_name):
    draw, terms, domain, expected = GASES[gas_name]
    omega = draw()
    period = domain["period"][0] if gas_name == "torus" else None
    energy = pair_energy(omega, 0.7, period) + 0.35 * np.log(terms[-1]["length"])
    energy += 0.65 * (omega[..., 0] ** 2).mean(-1) if gas_name == "trap" else 0
    sampler = EXACT | {"beta": 4.0}
    table = report.check(as_dataset(omega, terms, domain, sampler, energy=energy))
    assert set(table["law"].values) > expected
    assert not reds(table)  # alpha 1e-3 together
    for wrong in (sampler | {"beta": 4.6}, sampler | {"beta": 3.4}):
        assert not bool(verdict(as_dataset(omega, terms, domain, wrong, energy=energy), "energy")["passed"])
    assert not bool(verdict(as_dataset(omega, terms, domain, sampler, energy=energy + 0.01), "energy")["passed"])
    langevin = report.check(as_dataset(omega, terms, domain, LANGEVIN | {"beta": 4.0}, energy=energy))
    assert "exact samplers" in json.loads(langevin.attrs["skipped"])["energy"]


def test_energies_without_an_exact_mean_are_left_out():
    omega = sample_log_gas(9, 4.0, 1.3, 0.7, rng=3, size=80).reshape(4, 20, 9, 1)
    sampler = EXACT | {"beta": 4.0}

    def reason(terms, domain=None, **series):
        return json.loads(report.check(as_dataset(omega, terms, domain, sampler, **series)).attrs["skipped"])["energy"]

    energy = {"energy": pair_energy(omega, 0.7)}
    assert "no energy was recorded" in reason([QUADRATIC, RIESZ])
    for term in (
        RIESZ | {"s": 0.5},
        RIESZ | {"softening": 0.1},
        RIESZ | {"truncation": 0.1},
        RIESZ | {"period": 9.0},
        RIESZ | {"mirror": True},
    ):
        assert "not the bare log" in reason([QUADRATIC, term], **energy)
    assert "several traps" in reason([QUADRATIC, QUADRATIC, RIESZ], **energy)
    assert "not the bare log" in reason([RIESZ], {"name": "Torus", "period": [9.0]}, **energy)  # distances not the torus's
    assert "no quadratic trap" in reason([RIESZ], **energy)
    assert "without a closed form: External" in reason([QUADRATIC, {"name": "External"}], **energy)


def test_centre_of_mass_of_a_gas_and_of_one_whose_particles_share_noise(gas):
    dim, sampler = gas.shape[-1], LANGEVIN | {"drift_cap": 0.2}
    row = verdict(as_dataset(gas, [QUADRATIC, RIESZ]), "centre_of_mass")
    assert bool(row["passed"])  # alpha 1e-3
    assert float(row["predicted"]) == pytest.approx(dim / 7.8 / (1 - 0.0065), rel=0.02)  # Euler's variance
    assert float(row["standard_error"]) < 0.1 * float(row["measured"])
    rng, x, frames = np.random.default_rng(0), gas[:, 0], []
    for step in range(2000):
        drift = -0.01 * riesz_gradient(x)
        drift *= np.minimum(1, 0.2 / np.linalg.norm(drift, axis=-1, keepdims=True))
        x = x + drift + np.sqrt(0.02 / 6.0) * rng.normal(size=(len(x), 1, dim))
        frames += [x] if step % 20 == 19 else []
    shared = as_dataset(np.stack(frames, 1), [QUADRATIC, RIESZ], sampler=sampler)
    assert float(verdict(shared, "centre_of_mass")["measured"]) > 5 * float(row["measured"])
    assert not bool(verdict(shared, "centre_of_mass")["passed"])
    for option, words in ((QUADRATIC, "no quadratic trap"), (RIESZ, "two and more")):
        omega = gas if option is QUADRATIC else gas[:, :, :1]
        terms = [RIESZ] if option is QUADRATIC else [QUADRATIC, RIESZ]
        assert words in json.loads(report.check(as_dataset(omega[:, :20], terms)).attrs["skipped"])["centre_of_mass"]
