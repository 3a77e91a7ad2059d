"""The gas experiment: every law holds, every control is rejected, and the Dataset is enough to draw and to store."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest

from experiments import evidence, gas, report, sections, sweep

SMALL = gas.Config(n_particles=24, n_chains=6, n_line=11)


@pytest.fixture(scope="module")
def dataset():
    return gas.run(SMALL)


def test_laws_hold_and_controls_are_rejected(dataset):
    # fixed seed; check's own false-alarm rate is 1e-3 a run, five runs
    assert dataset["passed"].all()
    assert not dataset["passed_control"].any()
    assert set(dataset["law"].values) > {
        "second moment, 2 dimensions",
        "second moment, 3 dimensions",
        "density, 1 dimension",
        "energy, 1 dimension, HMC",
    }


def test_second_moment_is_predicted_by_the_closed_form(dataset):
    row = dataset.sel(law="second moment, 2 dimensions")
    assert float(row["predicted"]) == pytest.approx(2 / SMALL.beta + 1 / 2, rel=2e-3)  # the rest is the finite step


def test_ground_state_sits_on_the_hermite_zeros(dataset):
    assert float(np.abs(dataset["ground_state"] - dataset["hermite"]).max()) < 1e-12


def test_densities_are_densities(dataset):
    width = float(np.diff(dataset["position"])[0])
    assert float(dataset["line_density"].sum()) * width == pytest.approx(1)
    radius, step = dataset["radius"].values, float(np.diff(dataset["radius"])[0])
    assert float((dataset["radial_density"] * 2 * np.pi * radius).sum()) * step == pytest.approx(1, abs=0.02)


def test_attrs_hold_the_settings_and_the_run_repeats(dataset):
    assert json.loads(dataset.attrs["config"]) == asdict(SMALL)
    again, other = (gas.run(gas.Config(n_particles=4, n_steps=500, n_chains=4, n_line=5)) for _ in range(2))
    np.testing.assert_array_equal(again["omega"], other["omega"])


def test_a_run_too_short_to_test_says_so():
    with pytest.raises(sweep.NothingMeasured, match=r"n_steps = 20 .*untested"):
        gas.run(gas.Config(n_particles=4, n_steps=20, n_chains=2, n_line=3))


def test_its_one_unit_counts_as_finished(dataset):
    covered = evidence.coverage(gas, "cpu", {}, dataset.assign_attrs(cpu_seconds=3.0))
    assert (covered.planned, covered.finished, covered.others, covered.seconds) == (1, 1, 0, 3.0)
    assert evidence.coverage(gas, "cpu", {}, dataset.drop_vars("seed")).finished == 0


def test_section_says_what_holds(dataset, tmp_path):
    text = str(sections.section("gas", dataset))
    assert "7 of 7 laws hold; 6 of 6 controls are rejected." in text
    assert "too small" not in text
    weak = dataset.assign(passed_control=dataset["passed_control"] | (dataset["law"] == dataset["law"][0]))
    assert "5 of 6 controls are rejected. Where a control is not rejected the run is too small" in str(sections.gas(weak))
    stored = report.load(report.store(dataset, tmp_path / "gas.zarr"))
    figure = sections.figures("gas", stored)["gas.png"]
    assert len(figure.axes) == 4
    assert report.figure_bytes(figure)[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("option", "message"),
    [({"n_chains": 0}, "n_chains"), ({"beta": -1.0}, "beta"), ({"burn_in": 1.0}, "burn_in"), ({"step_size": float("nan")}, "step_size")],
)
def test_bad_settings(option, message):
    with pytest.raises(ValueError, match=message):
        gas.Config(**option)
