"""What `report.check` returns, prints and refuses, and how often it errs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.runs_for_reports import EXACT, LANGEVIN, QUADRATIC, RIESZ, as_dataset, euler, log_gas, verdict
from theory import report
from theory.ensembles import sample_log_gas


@pytest.fixture(scope="module", params=[2, 3])
def gas(request):
    return log_gas(request.param)


LAWS = [
    "second_moment",
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
    ],
)
def test_bad_input(change, options, words):
    dataset = as_dataset(np.random.default_rng(0).normal(size=(2, 10, 5, 2)), [QUADRATIC])
    with pytest.raises(ValueError, match=words):
        report.check(change(dataset), **options)


def test_a_term_with_text_for_a_number_is_unknown(gas):
    for term in (QUADRATIC | {"stiffness": "soft"}, RIESZ | {"s": "log"}):
        assert term["name"] in json.loads(report.check(as_dataset(gas, [QUADRATIC, term])).attrs["skipped"])["second_moment"]


def test_summary_of_something_else(gas):
    with pytest.raises(ValueError, match="table must be what check returns"):
        report.summary(as_dataset(gas, [QUADRATIC]))


def test_nested_sums_and_unknown_sums(gas):
    nested = as_dataset(gas, [{"name": "Sum", "terms": [QUADRATIC]}, RIESZ])
    assert float(verdict(nested)["predicted"]) == float(verdict(as_dataset(gas, [QUADRATIC, RIESZ]))["predicted"])
    nested.attrs["energy"] = json.dumps({"name": "Sum"})
    assert "Sum" in json.loads(report.check(nested).attrs["skipped"])["second_moment"]
