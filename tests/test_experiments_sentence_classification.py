"""Sentence classification: its rows, its units, what its tables conclude from planted results."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

from experiments import sentence_classification as experiment
from experiments import sentence_tables, sweep
from experiments.data import load
from experiments.report import Section
from experiments.sentence_classification import PRESETS, Config, built, estimate, measure, noisy, rehearse, units
from experiments.sentence_rows import ABLATED, ABLATIONS, CONTROLS, MAPS, PARTS, ROWS
from particles._one_thread import one_thread
from tests.planted_sentences import planted

SMOKE = dataclasses.replace(PRESETS["smoke"], n_seeds=1)


@pytest.fixture(scope="module")
def smoke() -> xr.Dataset:
    return sweep.run(experiment, SMOKE, progress=False)


@pytest.fixture(scope="module")
def known() -> xr.Dataset:
    """Phase A helps two maps by 5 points, and favor not at all."""
    rows = ["softmax", "Performer", *(f"{kind}-{name}" for name in ("elu", "cos2", "favor") for kind in "VK")]
    return planted({"K-elu": 0.80, "K-cos2": 0.80}, rows=rows, tasks=("sst2", "rotten_tomatoes"))


# ---- rows and units ----------------------------------------------------------------------------------------------------------------------


def test_the_table_has_the_papers_eighteen_rows() -> None:
    assert len(PARTS["main"]) == 18
    assert [row for row in PARTS["main"] if row[:2] not in ("V-", "K-")] == ["softmax", "favor-WqWk", "Performer", "Linformer"]
    for name in MAPS:
        assert PARTS["main"][f"K-{name}"] == PARTS["main"][f"V-{name}"]._replace(particles="align")


def test_every_variation_differs_from_the_row_that_it_varies() -> None:
    for name, row in PARTS["ablations"].items():
        assert row != ROWS[sentence_tables.base(name)]
        assert name.partition(" ")[2] in {**CONTROLS, **{what: 0 for panel in ABLATIONS.values() for what in panel}}
    assert {f"K-{name} {control}" for name in ABLATED for control in CONTROLS} <= set(PARTS["ablations"])


def test_units_come_seed_by_seed_and_as_asked() -> None:
    found = list(units(Config(n_seeds=2, seed=7, rows=("softmax", "K-elu"), tasks=("qqp", "sst2"))))
    assert [unit["seed"] for unit in found] == [7] * 4 + [8] * 4
    assert found[0] == {"task": "qqp", "row": "softmax", "seed": 7}
    assert len(list(units(Config()))) == 18 * 3 * 5
    assert len(list(units(Config(part="ablations", tasks=("rotten_tomatoes",), n_seeds=3)))) == 3 * len(PARTS["ablations"])


@pytest.mark.parametrize(
    ("field", "value"),
    [("part", "all"), ("tasks", ("mnist",)), ("rows", ("K-tanh",)), ("rows", ("K-elu shuffled",)), ("n_epochs", 1), ("lr", 0.0),
     ("dropout", 1.0), ("tokeniser", "letters"), ("dim", 127), ("max_train", 0), ("phrases", 1), ("n_seeds", 0)],
)  # fmt: skip
def test_an_impossible_setting_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        Config(**{field: value})
    with pytest.raises(ValueError, match=r"rows are of part ablations \(--part ablations\), not of part main"):
        Config(rows=("K-elu shuffled",))


def test_both_parts_share_their_results_and_any_setting_makes_its_own() -> None:
    from experiments.units import digest, settings

    def name(config: Config) -> str:
        return digest("x", settings(experiment, config))

    assert name(Config()) == name(Config(part="ablations", tasks=("sst2",), n_seeds=2, data="here", checkpoints="there"))
    assert name(Config()) != name(Config(lr=1e-3))


# ---- models and data ---------------------------------------------------------------------------------------------------------------------


def model(name: str, seed: int = 0) -> Any:
    return built(SMOKE, ROWS[name], load("digits", max_train=60), seed)


def test_rows_without_projections_have_values_alone() -> None:
    assert model("V-elu").blocks[0].attention.qkv.out_features == SMOKE.dim
    assert model("softmax").blocks[0].attention.qkv.out_features == 3 * SMOKE.dim


def test_rows_of_one_seed_start_with_the_same_weights_and_particles() -> None:
    first, second, other = (model(name, seed).state_dict() for name, seed in (("V-elu", 0), ("K-elu", 0), ("V-elu", 1)))
    assert all(torch.equal(first[name], second[name]) for name in first)
    omega = "blocks.0.attention.feature_map.omega"
    assert not torch.equal(first[omega], other[omega])


def test_performer_has_orthogonal_particles_and_the_other_favor_independent_ones() -> None:
    def angles(name: str) -> float:
        omega = torch.nn.functional.normalize(model(name).feature_maps[0].omega.detach()[0], dim=-1)
        return float((omega @ omega.mT - torch.eye(len(omega))).abs().max())

    assert angles("Performer") < 1e-5
    assert angles("favor-WqWk") > 0.1


def test_a_narrow_start_leaves_phases_alone() -> None:
    wide, narrow = (model(name).feature_maps[0].omega.detach() for name in ("K-cos2", "K-cos2 half width"))
    torch.testing.assert_close(narrow[..., :-1], 0.5 * wide[..., :-1])
    torch.testing.assert_close(narrow[..., -1], wide[..., -1])


def test_linformer_has_a_quarter_as_many_mixtures_as_places() -> None:
    assert model("Linformer").blocks[0].attention.bottleneck.keys.shape == (2, 4, 16)


def test_label_noise_changes_its_share_of_the_training_labels_alone() -> None:
    data = load("digits", max_train=200)
    changed = noisy(data, 0.2, 3)
    wrong = changed.train.labels != data.train.labels
    assert wrong.mean() == pytest.approx(0.2, abs=0.01)
    assert changed.validation is data.validation
    assert noisy(data, 0.0, 3) is data
    np.testing.assert_array_equal(noisy(data, 0.2, 3).train.labels, changed.train.labels)


# ---- runs --------------------------------------------------------------------------------------------------------------------------------


def test_the_smoke_preset_measures_every_unit(smoke: xr.Dataset) -> None:
    assert smoke.attrs["finished"] == smoke.attrs["planned"] == len(SMOKE.rows)
    assert smoke.accuracy.dims == ("task", "row", "seed")
    for name in (
        "accuracy",
        "f1_macro",
        "roc_auc",
        "pr_auc",
        "log_loss",
        "brier",
        "log_loss_tempered",
        "training_seconds",
        "inference_seconds",
    ):
        assert bool(np.isfinite(smoke[name]).all())
    for row in SMOKE.rows:
        assert bool(np.isfinite(smoke.holdout_after.sel(row=row)).all()) == row.startswith("K-")
    np.testing.assert_allclose(smoke.correct.mean("example"), smoke.accuracy, rtol=1e-6)


def test_a_unit_repeats_exactly(smoke: xr.Dataset) -> None:
    with one_thread:  # as units are measured
        again = measure(SMOKE, {"task": "digits", "row": "K-softplus", "seed": 0})
    assert again["log_loss"] == float(smoke.log_loss.sel(task="digits", row="K-softplus", seed=0))


def test_the_page_and_its_pictures_come_from_a_small_run(smoke: xr.Dataset) -> None:
    found = experiment.section(smoke)
    assert isinstance(found, Section)
    assert set(experiment.figures(smoke)) == set(found.pictures)


def test_estimates_grow_with_the_work() -> None:
    def seconds(**change: Any) -> float:
        return estimate(dataclasses.replace(PRESETS["cpu"], **change), {"task": "qqp", "row": "K-elu", "seed": 0})[0]

    assert 10 < seconds() < 120
    assert seconds(n_epochs=6) > 1.5 * seconds()
    assert seconds(max_train=700) < 0.3 * seconds()


def test_a_rehearsal_says_seconds_and_hours() -> None:
    small = dataclasses.replace(PRESETS["paper"], dim=16, ff=16, n_features=8, max_length=8, batch_size=4)
    said = rehearse(small, n_steps=1)
    assert "softmax" in said
    assert "s a step" in said


# ---- conclusions -------------------------------------------------------------------------------------------------------------------------


def test_a_planted_gain_is_found_and_nothing_else(known: xr.Dataset) -> None:
    found = sentence_tables.differences(known, sentence_tables.learned_pairs(known))
    sure = {str(pair) for pair, p in zip(found["first"].values, found.p_corrected.values, strict=True) if p < 0.05}
    assert sure == {"K-elu", "K-cos2"}
    assert found.sizes["pair"] == 6
    assert bool((found.p_corrected >= found.p).all())


def test_differences_are_those_of_the_accuracies(known: xr.Dataset) -> None:
    one = sentence_tables.differences(known, [("K-elu", "V-elu")]).isel(pair=0)
    accuracy = known.accuracy.sel(task="sst2").mean("seed")
    assert float(one.difference) == pytest.approx(float(accuracy.sel(row="K-elu") - accuracy.sel(row="V-elu")))
    assert float(one.loss_low) < float(one.loss) < float(one.loss_high)


def test_verdicts_say_whether_phase_a_helps(known: xr.Dataset) -> None:
    said = "\n".join(experiment.section(known).verdicts)
    assert "surely better for 2 maps, surely worse for 0" in said
    flat = planted(rows=("softmax", "V-elu", "K-elu"), tasks=("sst2",))
    assert "surely better for 0 maps" in "\n".join(experiment.section(flat).verdicts)


def test_missing_units_are_left_out_and_counted() -> None:
    gone = [("sst2", "K-elu", seed) for seed in range(4)]
    some = planted(rows=("softmax", "V-elu", "K-elu"), tasks=("sst2",), left_out=gone)
    found = experiment.section(some)
    assert "11 of 15 units ran" in found.text
    row = next(row for row in found.tables[0].rows if row[0] == "K-elu")
    assert row[-1] == "1"


def test_a_row_that_never_ran_is_not_in_the_tables() -> None:
    some = planted(rows=("softmax", "V-elu", "K-elu"), tasks=("sst2",), left_out=[("sst2", "K-elu", seed) for seed in range(5)])
    found = experiment.section(some)
    assert all(row[0] != "K-elu" for row in found.tables[0].rows)
    assert "sentence_differences.png" not in found.pictures
    assert set(experiment.figures(some)) == set(found.pictures)


def test_ablations_are_compared_with_what_they_vary() -> None:
    rows = [*(f"{kind}-{name}" for name in ABLATED for kind in "VK"), *PARTS["ablations"]]
    rows = [row for row in rows if sentence_tables.base(row)[2:] in ABLATED]
    ds = planted({"K-softmaxfeat shuffled": 0.65}, rows=rows, tasks=("rotten_tomatoes",), n_seeds=4)
    found = experiment.section(ds)
    controls = next(table for table in found.tables if table.title == "Ablation: controls")
    line = next(row for row in controls.rows if row[0] == "K-softmaxfeat shuffled - K-softmaxfeat")
    assert float(line[2]) < -5
    assert float(line[5]) < 0.05
    assert {f"Ablation: {panel}" for panel in ABLATIONS} <= {table.title for table in found.tables}
    assert "sentence_ablations.png" in experiment.figures(ds)


# ---- real data ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("task", ["sst2", "qqp", "rotten_tomatoes"])
def test_real_sentences_are_learned(task: str, tmp_path: Path) -> None:
    folder = os.environ.get("KERNELGAS_DATA", "")
    if not folder:
        pytest.skip("needs the folders of data sets in $KERNELGAS_DATA")
    config = Config(data=folder, max_train=1000, dim=32, ff=32, n_features=16, n_epochs=3, checkpoints=str(tmp_path))
    found = measure(config, {"task": task, "row": "K-softplus", "seed": 0})
    assert found["log_loss_tempered"] < 0.693
    assert found["holdout_after"] >= found["holdout_before"]
    assert len(found["correct"]) == {"sst2": 1821, "qqp": 2311, "rotten_tomatoes": 1066}[task]


def test_a_run_on_a_busy_machine_does_not_change_what_phase_a_costs() -> None:
    ds = planted(rows=("V-elu", "K-elu"), tasks=("sst2",))
    ds["cpu_seconds"] = ds.cpu_seconds.where(ds.row != "K-elu", 60.0)

    def row(of: xr.Dataset) -> list[str]:
        return list(next(table for table in experiment.section(of).tables if table.title == "What Phase A costs").rows[0])

    quiet = row(ds)
    assert quiet[2:4] == ["5.0", "1.50"]
    for name in ("align_seconds", "training_seconds", "cpu_seconds"):
        ds[name].loc[{"row": "K-elu", "seed": 2}] = 1000.0
    assert row(ds) == quiet
    assert row(ds.drop_vars("cpu_seconds"))[3] == "1.12"  # 45 over 40 by the clock


@pytest.mark.parametrize(("n_seeds", "drawn"), [(1, False), (2, False), (3, True)])
def test_intervals_of_few_seeds_are_not_drawn(n_seeds: int, drawn: bool) -> None:
    ds = planted(rows=("softmax", "K-elu"), tasks=("sst2",), n_seeds=n_seeds)
    ax = experiment.figures(ds)["sentence_accuracy.png"].axes[0]
    widths = [float(np.ptp(line.get_xdata())) for line in ax.lines if line.get_linestyle() == "-" and len(line.get_xdata()) == 2]
    assert any(width > 0 for width in widths) == drawn
    assert sum(len(line.get_xdata()) for line in ax.lines if line.get_marker() == ".") == 2 * n_seeds
