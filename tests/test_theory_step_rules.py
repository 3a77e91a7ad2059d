"""Rules of health: jumps, caps, acceptance, minibatches, coincident pairs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.runs_for_reports import EXACT, LANGEVIN, QUADRATIC, RIESZ, as_dataset, euler, log_gas, reds, verdict
from theory import report
from theory.ensembles import sample_log_gas


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def gas(request):
    return log_gas(request.param)


def test_a_run_with_jumps_is_not_called_correct(gas):
    exploded = gas.copy()
    exploded[3, 100, 4] *= 300
    table = report.check(as_dataset(exploded, [QUADRATIC, RIESZ]))
    assert "steps" in reds(table)  # one jump, but it holds most of the second moment
    assert "over 20 %" in json.loads(table.attrs["skipped"])["second_moment"]
    assert not reds(report.check(as_dataset(gas, [QUADRATIC, RIESZ])))
    for sampler in (LANGEVIN, LANGEVIN | {"drift_cap": 0.1}):
        assert not report.check(as_dataset(gas / 100, [QUADRATIC, RIESZ], sampler=sampler))["passed"].values.all()


def line_gas(step_size, softening=0.0, drift_cap=np.inf, n=64, n_steps=1500):
    """n particles of a log gas on a line at beta 20, kappa and strength 1; 150 frames of 6 chains."""

    def gradient(x):
        gap = x - x[..., 0][:, None]
        force = np.sum(gap / (gap**2 + softening**2 + np.eye(n)), -1, keepdims=True) / (n - 1)
        return np.clip(x - force, -drift_cap / step_size, drift_cap / step_size)

    start = np.random.default_rng(0).uniform(-1, 1, (6, n, 1))
    sampler = LANGEVIN | {"step_size": step_size, "beta": 20.0, "drift_cap": None if drift_cap == np.inf else drift_cap}
    terms = [QUADRATIC | {"stiffness": 1.0}, RIESZ | {"strength": 1.0, "softening": softening}]
    return as_dataset(euler(gradient, start, step_size, 20.0, n_steps, seed=1, every=n_steps // 150), terms, sampler=sampler)


@pytest.mark.parametrize("step_size", [1e-2, 1e-3])
def test_a_gas_that_explodes_on_a_line_has_a_red_line(step_size):
    """Uncapped steps of colliding particles throw them far out."""
    table = report.check(line_gas(step_size))
    assert not bool(table["passed"].sel(law="steps"))
    assert "density" not in table["law"].values or not bool(table["passed"].sel(law="density"))


def test_good_gases_on_a_line_pass_and_squeezed_ones_do_not():
    for options in ({"softening": 0.1}, {"drift_cap": 0.02}):
        good = line_gas(1e-3, **options, n=16, n_steps=15000)
        table = report.check(good)
        assert "steps" in table["law"].values
        assert not reds(table)
        assert reds(report.check(good.assign(omega=good["omega"] / 100)))


@pytest.mark.parametrize(
    ("acceptance", "passed", "words"),
    [
        ([0.6, 0.7, 0.5, 0.8], True, "useful"),
        ([0.6, 0.04, 0.5, 0.8], False, "stuck"),
        ([0.0, 0.0, 0.0, 0.0], False, "stuck"),
        ([0.6, 0.2, 0.5, 0.8], True, "shorter steps"),
        ([0.99, 0.97, 0.99, 1.0], True, "longer steps"),
    ],
)
def test_acceptance_of_the_worst_chain(acceptance, passed, words):
    omega = sample_log_gas(5, 6.0, 1.3, 0.7, rng=3, size=160).reshape(4, 40, 5, 1)
    series = np.repeat(np.array(acceptance)[:, None], 40, 1)
    table = report.check(as_dataset(omega, [QUADRATIC, RIESZ], sampler=EXACT | {"target": 0.574}, acceptance=series))
    row = table.sel(law="acceptance")
    assert bool(row["passed"]) == passed
    assert words in str(row["note"].values)
    assert float(row["measured"]) == pytest.approx(min(acceptance))
    assert float(row["predicted"]) == 0.574
    assert "acceptance" in report.summary(table)
    assert "steps" not in table["law"].values  # jumps are Langevin's
    start = as_dataset(omega, [QUADRATIC, RIESZ], sampler=EXACT, acceptance=np.full((4, 40), np.nan)).isel(step=[0])
    assert "no step was taken" in json.loads(report.check(start).attrs["skipped"])["acceptance"]


def test_extra_temperature_of_minibatches():
    """Noise of variance v per coordinate in the gradient heats by step v/2; the second moment obeys the law with that heat only."""
    step, v = 0.02, 3.0
    rng = np.random.default_rng(9)
    start = rng.normal(size=(40, 10, 2)) * 0.4
    omega = euler(lambda x: 1.3 * x + np.sqrt(v) * rng.standard_normal(x.shape), start, step, 6.0, 3000, seed=6)
    heat = np.full(omega.shape[:2], step * v / 2)
    sampler = LANGEVIN | {"step_size": step}
    table = report.check(as_dataset(omega, [QUADRATIC], sampler=sampler, extra_temperature=heat))
    assert reds(table) == {"extra_temperature", "density"}  # the density law knows of no heat
    row = table.sel(law="extra_temperature")
    assert not bool(row["passed"])  # 0.03 against 1/beta = 0.167
    assert "minibatches heat by 0.18 of 1/beta" in str(row["note"].values)
    assert not bool(verdict(as_dataset(omega, [QUADRATIC], sampler=sampler))["passed"])
    assert bool(verdict(as_dataset(omega, [QUADRATIC], sampler=sampler, extra_temperature=heat / 2), "extra_temperature")["passed"])
    frozen = report.check(as_dataset(omega, [QUADRATIC], sampler=sampler | {"beta": "inf"}, extra_temperature=heat))
    assert "alone make the temperature 0.03" in json.loads(frozen.attrs["skipped"])["extra_temperature"]


def test_a_run_at_zero_temperature_keeps_the_rules_without_a_temperature():
    omega = np.random.default_rng(0).uniform(-0.9, 0.9, (2, 40, 5, 2))
    sampler = LANGEVIN | {"beta": "inf", "scheme": "reflected", "drift_cap": 0.1}
    box = {"name": "Box", "low": [-1.0, -1.0], "high": [1.0, 1.0]}
    table = report.check(as_dataset(omega, [RIESZ], box, sampler, capped=np.zeros((2, 40))))
    assert reds(table) == {"balance"}  # random places
    assert {"wall_atom", "capped", "inside"} < set(table["law"].values)
    assert "beta is infinite" in json.loads(table.attrs["skipped"])["steps"]


def test_coincident_pairs_turn_a_bare_gas_red(gas):
    count = np.zeros(gas.shape[:2])
    assert bool(verdict(as_dataset(gas, [QUADRATIC, RIESZ], coincident=count), "coincident")["passed"])
    count[3, -1] = 1
    row = verdict(as_dataset(gas, [QUADRATIC, RIESZ], coincident=count), "coincident")
    assert not bool(row["passed"])
    assert "no force on itself: softening" in str(row["note"].values)
    for option in ({"softening": 0.1}, {"truncation": 0.1}):
        row = verdict(as_dataset(gas, [QUADRATIC, RIESZ | option], coincident=count), "coincident")
        assert bool(row["passed"])
        assert "may coincide" in str(row["note"].values)
    count[:], count[:, 0] = 0, 1  # the start is no kept frame
    assert bool(verdict(as_dataset(gas, [QUADRATIC, RIESZ], coincident=count), "coincident")["passed"])


@pytest.mark.parametrize("terms", [[QUADRATIC, RIESZ], [{"name": "Pair"}]], ids=["riesz", "user"])
def test_infinite_energies_are_seen(terms):
    omega = sample_log_gas(9, 6.0, 1.3, 0.7, rng=3, size=400).reshape(4, 100, 9, 1)
    energy = np.ones((4, 100))
    energy[0, -1] = np.inf
    table = report.check(as_dataset(omega, terms, sampler=EXACT, energy=energy))
    assert not bool(table["passed"].sel(law="coincident"))
    assert "energy            infinite in some frames" in report.summary(table)
    assert "coincident" not in report.check(as_dataset(omega, terms, sampler=EXACT, energy=np.ones((4, 100))))["law"].values


def test_steps_of_user_energies_by_their_recorded_gradients():
    omega = euler(lambda x: 1.3 * x, np.zeros((20, 20, 2)), 0.05, 6.0, 2000, seed=5, every=5)
    norms = 1.3 * np.sqrt((omega**2).sum(-1).mean(-1))
    sampler, user = LANGEVIN | {"step_size": 0.05}, [{"name": "External"}]
    row = verdict(as_dataset(omega, user, sampler=sampler, grad_norm=norms), "steps")
    assert bool(row["passed"])
    assert "r.m.s." in str(row["note"].values)
    norms[2, 200:210] = 1e3  # 10 of 6000 frames; 1e-3 are let through
    assert not bool(verdict(as_dataset(omega, user, sampler=sampler, grad_norm=norms), "steps")["passed"])
    assert bool(verdict(as_dataset(omega, user, sampler=sampler | {"drift_cap": 0.1}, grad_norm=norms), "steps")["passed"])
    exact = report.check(as_dataset(omega, user, sampler=EXACT, grad_norm=norms))
    assert "no Langevin steps" in json.loads(exact.attrs["skipped"])["steps"]
    box = {"name": "Box", "low": [-9.0, -9.0], "high": [float(omega.max()), 9.0]}
    walled = report.check(as_dataset(omega, user, box, sampler, grad_norm=norms, projected=np.full(norms.shape, 0.01)))
    assert "do not know of the wall" in json.loads(walled.attrs["skipped"])["steps"]


def test_capped_fraction(gas):
    shape = gas.shape[:2]
    sampler = LANGEVIN | {"drift_cap": 1e9}
    for fraction, passed in ((0.0, True), (5e-4, True), (0.01, False)):
        row = verdict(as_dataset(gas, [QUADRATIC, RIESZ], sampler=sampler, capped=np.full(shape, fraction)), "capped")
        assert bool(row["passed"]) == passed
