"""Vision: units, sizes of the pyramid, training and Phase A on digits, tables and verdicts from planted Datasets."""

from __future__ import annotations

import dataclasses
import os

import numpy as np
import pytest
import torch

from attention.vision import VisionTransformer
from experiments import vision, vision_tables
from experiments import vision_training as training
from experiments.pictures import pictures
from experiments.units import gather, record
from experiments.vision import PRESETS, RANDOM, Config
from experiments.vision_rows import MAIN, ROWS, model_config
from experiments.vision_tables import section

TINY = dataclasses.replace(PRESETS["smoke"], max_train=60, max_test=30, n_align=3)


def _planted(gain: dict[str, float], noise: float = 0.01, n_seeds: int = 3, **changes):
    """Accuracies .5 + gain of the row + seed + noise, norms with the exponent 1 for "soft" and 0 for the others."""
    rng, config = np.random.default_rng(0), Config(n_seeds=n_seeds, **changes)
    shift, records = 0.02 * rng.standard_normal(200), []
    for unit in vision.units(config):
        if unit["task"] == RANDOM:
            tokens = np.array([49.0, 196.0, 784.0])
            norm = tokens / 49 if unit["row"] == "soft" else np.ones(3)
            scores = {"tokens": tokens, "norm": norm, "norm_high": norm}
        else:
            accuracy = 0.5 + gain.get(unit["row"], 0.0) + shift[unit["seed"]] + noise * rng.standard_normal()
            names = ("log_loss", "calibration_error", "validation_accuracy", "train_seconds", "n_parameters")
            loss = 0.1 if unit["row"] == "soft, lr 0.003" else 0.5
            scores = {"accuracy": accuracy, **dict.fromkeys(names, accuracy), "validation_loss": loss, "stage_norm": np.ones(4)}
        records.append(record(unit, scores, 1.0))
    return gather(vision, records)


def test_units_are_unique_and_parts_share_the_row_that_they_have_in_common() -> None:
    found = list(vision.units(PRESETS["cpu"]))
    assert len(found) == len({tuple(unit.values()) for unit in found})
    alone = list(vision.units(dataclasses.replace(PRESETS["cpu"], parts=("sampling",))))
    assert {unit["row"] for unit in alone} == {"soft", *vision.SAMPLING}
    assert {unit["task"] for unit in alone} == {"cifar10_grey_subset"}
    searched = list(vision.units(dataclasses.replace(PRESETS["cpu"], parts=("rates",))))
    assert {unit["seed"] for unit in searched if ", lr " in unit["row"]} == {100}


@pytest.mark.parametrize(
    ("side", "row", "strides"),
    [(32, "soft", (4, 2, 1, 1)), (28, "soft, 2x2 landmarks", (7, 4, 2, 1)), (32, "soft, 8x8 landmarks", (2, 1, 1, 1))],
)
def test_landmarks_are_as_many_as_the_row_says(side: int, row: str, strides: tuple[int, ...]) -> None:
    sizes = model_config(PRESETS["cpu"], ROWS[row], side, 1, 10)
    assert sizes.landmark_strides == strides
    assert sizes.attention == ("softmax-free",) * 3 + ("softmax",)


def test_a_unit_is_measured_and_the_same_again_with_the_same_seed() -> None:
    unit = {"task": "digits", "row": "particles", "seed": 3}
    one, same = (vision.measure(TINY, unit) for _ in range(2))
    assert one["correct"].shape == (30,)
    assert one["train_loss"].shape == (2,)
    assert np.isfinite(one["stage_norm"]).all()
    assert np.isfinite([one["alignment_before"], one["alignment_after"]]).all()
    assert np.array_equal(one["correct"], same["correct"])
    assert one["log_loss"] == same["log_loss"]


def test_phase_a_moves_particles_towards_the_labels_and_its_width_control_keeps_directions() -> None:
    data = pictures("digits", max_train=150, max_test=10)
    recipe = vision._recipe(dataclasses.replace(TINY, n_align=60, align_images=120), 0.001)
    found = {}
    for particles in ("aligned", "width"):
        model = VisionTransformer(model_config(TINY, ROWS["particles"], 8, 1, 10), rng=0)
        before = model.stages[0].blocks[0].attention.feature_map.omega.detach().clone()
        scores = training.align(model, data.train, recipe, seed=0, particles=particles)
        found[particles] = before, model.stages[0].blocks[0].attention.feature_map.omega.detach(), scores
    before, after, scores = found["aligned"]
    assert scores["alignment_after"] > 1.5 * scores["alignment_before"]
    assert not torch.allclose(before, after)
    before, alone, _ = found["width"]
    torch.testing.assert_close(alone / alone.norm(), before / before.norm())
    torch.testing.assert_close(alone.norm(), after.norm(), rtol=1e-4, atol=0)


def test_particles_stay_where_they_are_fixed_and_move_where_they_learn() -> None:
    data, recipe = pictures("digits", max_train=40, max_test=10), vision._recipe(TINY, 0.01)
    for name, moved in (("performer", False), ("performer, learned", True)):
        model = VisionTransformer(model_config(TINY, ROWS[name], 8, 1, 10), rng=0)
        before = model.stages[0].blocks[0].attention.feature_map.omega.detach().clone()
        training.trained(model, data, recipe, seed=0, particles=ROWS[name].particles)
        assert torch.equal(before, model.stages[0].blocks[0].attention.feature_map.omega.detach()) is not moved


def test_norms_of_random_tokens_meet_the_same_tokens_in_every_row() -> None:
    plain, normal = (vision.measure(TINY, {"task": RANDOM, "row": row, "seed": 0}) for row in ("soft", "soft++"))
    assert np.array_equal(plain["tokens"], normal["tokens"])
    assert (plain["norm"] > normal["norm"]).all()
    assert (plain["norm_high"] >= plain["norm"]).all()


def test_rates_are_recommended_and_used_by_the_rows_that_belong_together() -> None:
    text = str(section(_planted({}, parts=vision.PARTS)))
    assert "'soft' 0.003" in text
    assert "perhaps not the best there is: softmax, linformer" in text
    config = dataclasses.replace(PRESETS["cpu"], lrs={"soft": 0.003, "particles": 0.0003})
    rates = [vision.rate_of(config, row) for row in ("soft", "soft, conv landmarks", "particles, shuffled", "softmax")]
    assert rates == [0.003, 0.003, 0.0003, config.lr]


def test_section_finds_planted_gains_and_no_others() -> None:
    found = section(_planted({"soft": 0.1}, noise=0.002))
    verdicts = {line.partition(":")[2].partition(":")[0].strip(): line for line in found.verdicts if line.startswith("mnist")}
    assert "better" in verdicts["soft against softmax"]
    assert "WORSE" not in verdicts["soft against softmax"]
    none = section(_planted({}, noise=0.002))
    words = [line for line in none.verdicts if line.startswith("mnist")]
    assert sum("no difference shown" in line for line in words) >= len(words) - 2
    assert any("spectral norm of soft grows" in line for line in found.verdicts)
    assert any("spectral norm of soft++ does not grow" in line for line in found.verdicts)


def test_missing_units_stay_missing_in_section_and_figures() -> None:
    ds = _planted({}, parts=("main",), rows=("softmax", "soft"))
    ds["accuracy"][0, 1] = np.nan
    assert len(section(ds).tables) == 2
    assert set(vision.figures(ds)) == {"accuracy.png"}
    assert set(vision.figures(_planted({}))) == {"accuracy.png", "landmarks.png", "norms.png"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parts": ("all",)}, "parts must be some of"),
        ({"rows": ("reformer",)}, "rows must be some of"),
        ({"size": "giant"}, "size must be one of"),
        ({"lrs": {"soft": -0.1}}, "lrs must be"),
        ({"lrs": {"reformer": 0.1}}, "rows of lrs must be some of"),
        ({"n_epochs": 1}, "n_epochs must be more than n_warm"),
        ({"rates": (0.1, -1.0)}, "rates must be"),
        ({"lengths": ()}, "lengths and rates must not be empty"),
    ],
)
def test_bad_settings_are_named(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Config(**change)


def test_estimates_grow_with_the_images() -> None:
    unit = {"task": "digits", "row": "soft", "seed": 0}
    assert vision.estimate(PRESETS["cpu"], unit) > vision.estimate(PRESETS["smoke"], unit)
    assert set(MAIN) == {unit["row"] for unit in vision.units(dataclasses.replace(PRESETS["cpu"], parts=("main",)))}


@pytest.mark.slow
def test_the_smoke_preset_runs_whole_and_paper_rehearses(tmp_path) -> None:
    ds = vision.run(PRESETS["smoke"], results=str(tmp_path), progress=False)
    assert ds.attrs["failed"] == "{}"
    assert len(section(ds).tables) == 4
    assert "ImageNet for 300 epochs" in vision.rehearse(PRESETS["paper"])


@pytest.mark.slow
@pytest.mark.skipif("KERNELGAS_DATA" not in os.environ, reason="KERNELGAS_DATA does not name a folder of data sets")
def test_mnist_is_learned_and_not_from_shuffled_labels() -> None:
    config = dataclasses.replace(PRESETS["cpu"], max_train=2000, max_test=500)
    data = pictures("mnist_subset", max_train=2000, max_test=500)
    rng = np.random.default_rng(0)
    shuffled = dataclasses.replace(data, train=dataclasses.replace(data.train, labels=rng.permutation(data.train.labels)))
    for part, good in ((data, True), (shuffled, False)):
        model = VisionTransformer(model_config(config, ROWS["soft++"], 28, 1, 10), rng=0)
        training.trained(model, part, vision._recipe(config, 0.001), seed=0)
        assert (training.scores(model, data.test)["accuracy"] > 0.8) is good


def test_a_grid_of_landmarks_is_named_by_its_number_and_no_paper_s_figure_stands_beside_another_number():
    ds = _planted({}, n_seeds=1, parts=("bottleneck",))
    table = vision_tables._number_table(ds, vision_tables.tasks_of(ds)[-1])
    assert [row[0] for row in table.rows] == ["2x2 = 4", "3x3 = 9", "4x4 = 16 (the default)", "8x8 = 64"]
    assert not any("79.3" in cell for row in table.rows for cell in row)
    assert "49 landmarks 79.3 %" in table.notes[-1]
    assert table.notes[0] == vision_tables.SINGLE
