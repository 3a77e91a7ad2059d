"""What `report.check` returns, prints and refuses, and how often it errs."""

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


LAWS = [
    "second_moment",
    "centre_of_mass",
    "temperature",
    "energy",
    "chaos_bias",
    "density",
    "wall_atom",
    "stationarity",
    "free_energy",
    "mixing",
    "inside",
    "described_energy",
    "described_force",
    "steps",
    "capped",
    "acceptance",
    "extra_temperature",
    "coincident",
    "settled",
    "balance",
    "ground_state",
]


def test_false_alarm_rate():
    """200 correct runs at alpha 0.05: at most 0.05 + 4 standard deviations (0.0616) are rejected."""
    omega = euler(lambda x: 1.3 * x, np.random.default_rng(0).normal(size=(800, 2, 2)) * 0.36, 0.1, 6.0, 1200, seed=8, every=4)
    sampler = LANGEVIN | {"step_size": 0.1}
    runs = [as_dataset(omega[4 * k : 4 * k + 4], [QUADRATIC], sampler=sampler) for k in range(200)]
    rejected = np.mean([not bool(verdict(run, alpha=0.05)["passed"]) for run in runs])
    assert rejected < 0.05 + 0.0616


def test_frames_of_the_tuning_are_left_out():
    omega = sample_log_gas(5, 6.0, 1.3, 0.7, rng=3, size=400).reshape(4, 100, 5, 1)
    omega[:, :61] *= 3
    dataset = as_dataset(
        omega, [QUADRATIC, RIESZ], sampler=EXACT | {"tune": 600}, acceptance=np.r_[np.zeros(61), np.ones(39)] * np.ones((4, 1))
    )
    dataset = dataset.assign_coords(step=10 * np.arange(100))
    table = report.check(dataset)
    assert table.attrs["n_frames"] == 39
    assert table["passed"].values.all()
    assert report.check(dataset, burn_in=0.8).attrs["n_frames"] == 20  # a longer burn-in stays
    untuned = dataset.assign_attrs(sampler=json.dumps(EXACT | {"tune": 0}))  # negative control
    assert not report.check(untuned)["passed"].values.all()
    with pytest.raises(ValueError, match="frames after the 990 steps of tuning, got steps up to 990"):
        report.check(dataset.assign_attrs(sampler=json.dumps(EXACT | {"tune": 990})))


def test_mixing_and_summary(gas):
    table = report.check(as_dataset(gas, [QUADRATIC, RIESZ], energy=np.random.default_rng(0).normal(size=gas.shape[:2])))
    assert table["quantity"].values.tolist() == ["second_moment", "energy"]
    assert float(table["r_hat"].sel(quantity="energy")) == pytest.approx(1, abs=0.02)
    assert float(table["ess"].sel(quantity="energy")) == pytest.approx(24 * 112, rel=0.2)
    text = report.summary(table)
    assert "second_moment" in text
    assert "ok" in text
    assert "not tested: wall_atom (no wall with a predicted atom)" in text
    assert max(len(line) for line in text.splitlines()) < 140
    assert next(line for line in text.splitlines() if line.startswith("steps")).split()[4] == "-"
    assert "R-hat over" not in text
    started_apart = report.check(as_dataset(gas + np.linspace(0, 2, 24)[:, None, None, None], [QUADRATIC]))
    assert float(started_apart["r_hat"][0]) > 1.2
    assert "R-hat over 1.05: not mixed" in report.summary(started_apart)
    assert "under 100 samples: rough errors" in report.summary(report.check(as_dataset(gas[:1, :20], [QUADRATIC, RIESZ])))


NO_LAW = [
    ([{"name": "Alignment"}], LANGEVIN),
    ([QUADRATIC, RIESZ], LANGEVIN | {"beta": {"name": "linear", "start": 1, "end": 2, "n_steps": 5}}),
    ([QUADRATIC | {"stiffness": [1.0, 2.0]}], LANGEVIN | {"beta": "inf"}),
    ([QUADRATIC, RIESZ], LANGEVIN | {"preconditioner": [1.0, 2.0]}),
    ([QUADRATIC | {"stiffness": [1.0, 2.0]}], LANGEVIN),
    ([RIESZ], EXACT),
    ([QUADRATIC, RIESZ], {}),
]


@pytest.mark.parametrize(("terms", "sampler"), NO_LAW)
def test_what_is_not_known_is_not_tested(terms, sampler):
    omega = np.random.default_rng(0).normal(size=(2, 40, 5, 2))
    table = report.check(as_dataset(omega, terms, sampler=sampler))
    constant = isinstance(sampler.get("beta", 0.0), float)
    assert set(table["law"].values) - {"density"} == ({"stationarity", "mixing"} if constant else set())  # these need no description
    assert set(json.loads(table.attrs["skipped"])) | set(table["law"].values) == set(LAWS)
    assert table.sizes["quantity"] == constant
    assert ("no law applies" in report.summary(table)) == (table.sizes["law"] == 0)


def test_runs_without_attributes_or_with_few_frames():
    bare = as_dataset(np.random.default_rng(0).normal(size=(1, 2, 5, 2)), [QUADRATIC])
    assert "too few frames" in json.loads(report.check(bare).attrs["skipped"])["second_moment"]
    bare.attrs = {}
    assert report.check(bare).sizes["law"] == 0
    assert report.check(bare.isel(step=[0])).sizes["law"] == 0


def described(**descriptions):
    """Gives a dataset other descriptions."""
    return lambda dataset: dataset.assign_attrs({name: json.dumps(value) for name, value in descriptions.items()})


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        (lambda d: d.drop_vars("omega"), {}, "dataset must hold omega"),
        (lambda d: d.isel(chain=0), {}, "dataset must hold omega"),
        (lambda d: None, {}, "dataset must be an xarray.Dataset, got NoneType"),
        (lambda d: d["omega"], {}, "dataset must be an xarray.Dataset, got DataArray"),
        (lambda d: d.isel(step=slice(0, 0)), {}, "at least one frame"),
        (lambda d: d.assign_attrs(energy="{"), {}, r"attrs\['energy'\] must be JSON"),
        (lambda d: d.assign_attrs(domain='{"name": "Ball"}'), {}, r"attrs\['domain'\] must give radius"),
        (lambda d: d, {"external": 3.0}, "external must be a callable or None, got 3.0"),
        (lambda d: d, {"rng": "seed"}, "rng must be"),
        (lambda d: d, {"burn_in": "late"}, "burn_in must be a real number, got 'late'"),
        (lambda d: d, {"burn_in": 1.0}, "burn_in must lie in"),
        (lambda d: d, {"alpha": 0.0}, "alpha must lie in"),
        (lambda d: d.assign(omega=d["omega"].where(d["omega"] > 0)), {}, "omega must be finite"),
        (lambda d: d.assign(omega=1e200 * d["omega"]), {}, r"omega must stay below 1e\+100, got .*: the run has exploded"),
        (described(energy=[1]), {}, r"attrs\['energy'\] must be a JSON object, got '\[1\]'"),
        (described(energy={"name": "Sum", "energies": 3}), {}, "must list the terms of a sum, got 3"),
        (described(energy={"name": "Sum", "energies": [3]}), {}, "terms that are JSON objects, got 3"),
        (described(energy=RIESZ | {"softening": None}), {}, "a number, not negative, for softening of Riesz, got None"),
        (described(energy=RIESZ | {"length": 0.0}), {}, "a number, positive, for length of Riesz, got 0.0"),
        (described(energy=RIESZ | {"period": [1, 1, 1]}), {}, r"2 numbers, or one, for period of Riesz, got \[1, 1, 1\]"),
        (described(energy=QUADRATIC | {"centre": "x"}), {}, "2 numbers, or one, for centre of Quadratic, got 'x'"),
        (described(domain={"name": "Ball", "radius": -1}), {}, "a number, positive, for radius of Ball, got -1"),
        (described(domain={"name": "Box", "low": [0, 0], "high": [1, 0]}), {}, r"low < high, got \[0, 0\] and \[1, 0\]"),
        (described(domain={"name": "Torus", "period": [0, 1]}), {}, r"2 numbers, or one, for period of Torus, got \[0, 1\]"),
        (described(sampler=LANGEVIN | {"beta": float("nan")}), {}, "a number, positive, for beta of Langevin, got nan"),
        (described(sampler={"name": "Langevin", "step_size": 0.01}), {}, "a number, positive, for beta of Langevin, got {'name'"),
        (described(sampler={"name": "HMC", "step_size": 0.01}), {}, "a number, positive, for beta of HMC"),
        (described(sampler=LANGEVIN | {"step_size": "short"}), {}, "a number, positive, for step_size of Langevin, got 'short'"),
        (described(sampler=LANGEVIN | {"clip": True}), {}, "for clip of Langevin, got True"),
        (described(sampler=LANGEVIN | {"scheme": "bounce"}), {}, "projected, reflected or shrunk, got 'bounce'"),
        (described(sampler=EXACT | {"tune": "long"}), {}, "a number, not negative, for tune of MALA, got 'long'"),
        (lambda d: d.assign(capped=(("chain", "step"), np.full((2, 10), np.nan))), {}, "capped must be finite"),
        (lambda d: d.assign(energy=(("chain", "step"), np.full((2, 10), "low"))), {}, "energy must hold real numbers"),
    ],
)
def test_bad_input(change, options, words):
    dataset = as_dataset(np.random.default_rng(0).normal(size=(2, 10, 5, 2)), [QUADRATIC])
    with pytest.raises(ValueError, match=words):
        report.check(change(dataset), **options)


def test_a_term_with_text_for_a_number_is_unknown(gas):
    for term in (QUADRATIC | {"stiffness": "soft"}, RIESZ | {"s": "log"}):
        assert term["name"] in json.loads(report.check(as_dataset(gas, [QUADRATIC, term])).attrs["skipped"])["second_moment"]


def test_no_law_of_free_space_where_nothing_tells_of_the_walls():
    """Exact samplers bounce off an ellipsoid and leave no trace; without a record of reflections neither do Langevin steps."""
    omega = np.random.default_rng(0).normal(size=(4, 100, 5, 2)) * 6.0**-0.5
    for sampler in (EXACT, LANGEVIN):
        table = report.check(as_dataset(omega, [QUADRATIC], {"name": "Ellipsoid", "axes": [1.0, 0.6]}, sampler))
        assert set(table["law"].values) <= {"stationarity", "mixing", "steps"}
    reflected = LANGEVIN | {"scheme": "reflected"}
    for domain, touches in (({"name": "Ball", "radius": 1.0, "dim": 2}, True), ({"name": "Ball", "radius": 9.0, "dim": 2}, False)):
        within = omega / np.maximum(1, np.linalg.norm(omega, axis=-1, keepdims=True) / 0.99)
        assert ("touch the wall" in report.check(as_dataset(within, [QUADRATIC], domain, reflected)).attrs["skipped"]) == touches


def test_one_particle_feels_no_repulsion():
    """Whatever the energy says of pairs, it obeys the exact law of a free particle."""
    omega = np.random.default_rng(0).normal(size=(4, 200, 1, 2)) * (6.0 * 1.3) ** -0.5
    table = report.check(as_dataset(omega, [QUADRATIC, RIESZ], sampler=EXACT))
    assert {"second_moment", "density"} <= set(table["law"].values)
    assert "free particles" in str(table["note"].sel(law="density").values)
    assert table["passed"].values.all()


def test_chains_that_share_their_noise_have_not_mixed(gas):
    table = report.check(as_dataset(np.concatenate([gas, gas[:2]]), [QUADRATIC, RIESZ]))
    assert reds(table) == {"mixing"}
    assert str(table["note"].sel(law="mixing").values).startswith("2 chains end where another does")


def test_summary_of_something_else(gas):
    with pytest.raises(ValueError, match="table must be what check returns"):
        report.summary(as_dataset(gas, [QUADRATIC]))


def test_nested_sums_and_unknown_sums(gas):
    nested = as_dataset(gas, [{"name": "Sum", "terms": [QUADRATIC]}, RIESZ])
    assert float(verdict(nested)["predicted"]) == float(verdict(as_dataset(gas, [QUADRATIC, RIESZ]))["predicted"])
    nested.attrs["energy"] = json.dumps({"name": "Sum"})
    assert "Sum" in json.loads(report.check(nested).attrs["skipped"])["second_moment"]
