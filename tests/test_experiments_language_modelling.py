"""Language modelling: blocks, one trained unit, losses against a count of their own, tables and pictures from planted results."""

import dataclasses
import json

import numpy as np
import pytest
import xarray as xr

from experiments import language_modelling as lm
from experiments import language_texts as texts
from experiments.language_modelling_tables import GAIN
from experiments.linear_tables import compared

SMOKE = lm.PRESETS["smoke"]


def planted(gain: float) -> xr.Dataset:
    """Losses of blocks that all rows share, of which flexformer saves `gain` nats."""
    rng, rows, dims = np.random.default_rng(0), ("softmax", "linear", "flexformer"), ("task", "row", "seed")
    loss = 2.5 + 0.3 * rng.normal(size=(1, 1, 1, 200)) + 0.02 * rng.normal(size=(1, 3, 3, 200)) - np.array([0, 0, gain])[:, None, None]
    numbers = {"accuracy": 0.3, "n_parameters": 9.0, "n_tokens": 5.0, "training_seconds": 1.0, "holdout_before": 0.1, "holdout_after": 0.2}
    mean = loss.mean(-1)
    return xr.Dataset(
        {
            "block_loss": ((*dims, "example"), loss),
            "log_loss": (dims, mean),
            "validation_last": (dims, mean),
            "perplexity": (dims, np.exp(mean)),
            "bits_per_byte": (dims, mean / np.log(2)),
            "nonpositive": ((*dims, "epoch"), np.full((*mean.shape, 2), np.nan)),
            **{name: (dims, np.full(mean.shape, value)) for name, value in numbers.items()},
        },
        {"task": ["shakespeare"], "row": list(rows), "seed": range(3)},
        {"config": json.dumps({"size": "cpu"}), "planned": 9, "finished": 9},
    )


def test_blocks_share_their_ends_so_that_every_token_but_the_first_is_predicted_once() -> None:
    text = np.arange(23)
    rows = texts.blocks(text, 5, 10**9).tokens
    assert rows.shape == (4, 6)
    assert rows[:, 1:].ravel().tolist() == list(range(1, 21))
    assert len(texts.blocks(text, 5, 11).tokens) == 2
    with pytest.raises(ValueError, match="a text must have more than 30 tokens"):
        texts.blocks(text, 30, 10**9)


def test_a_unit_is_trained_scored_and_its_loss_is_that_of_its_blocks() -> None:
    scores = lm.measure(SMOKE, {"task": texts.MADE_UP, "row": "softmaxfeat, align, unfreeze", "seed": 0})
    assert scores["log_loss"] == pytest.approx(scores["block_loss"].mean())
    assert scores["perplexity"] == pytest.approx(np.exp(scores["log_loss"]))
    assert scores["perplexity"] < 12  # of as many characters
    assert np.isfinite(scores["holdout_after"])
    assert scores["n_tokens"] == 2 * 124 * 16


def test_bidirectional_attention_is_no_row() -> None:
    assert "soft" not in lm.CAUSAL
    with pytest.raises(ValueError, match="rows"):
        dataclasses.replace(SMOKE, rows=("soft",))


def test_wrong_settings_are_refused_before_any_work() -> None:
    for wrong in ({"tasks": ("shakespeare",)}, {"size": "huge"}, {"n_train": 0}, {"lr": 0.0}):
        name = next(iter(wrong))
        with pytest.raises(ValueError, match=name):
            dataclasses.replace(SMOKE, **wrong)


@pytest.mark.parametrize(("gain", "words"), [(0.05, "better"), (0.0, "no difference shown"), (-0.05, "WORSE")])
def test_a_planted_gain_is_shown_and_none_is_not(gain: float, words: str) -> None:
    ds = planted(gain)
    found = compared(ds.sel(row=["softmax", "flexformer"]), GAIN)
    assert float(found["difference"][0]) == pytest.approx(gain, abs=0.01)
    assert words in lm.section(ds).verdicts[0]


def test_pictures_are_drawn_and_the_papers_figures_stand_beside_ours() -> None:
    ds = planted(0.05)
    assert set(lm.figures(ds)) == set(lm.section(ds).pictures)
    assert "31.3" in str(lm.section(ds))


def test_the_papers_sizes_are_rehearsed_in_words() -> None:
    small = dataclasses.replace(texts.SIZES["smoke"][texts.MADE_UP], cutoffs=(5, 9))
    assert "steps of 8" in texts.rehearse(small, texts.MADE_UP)
    assert len(list(lm.units(lm.PRESETS["paper"]))) == 3 * len(lm.CAUSAL)


@pytest.mark.parametrize(("rows", "n_pictures"), [(["softmax"], 1), (["softmax", "linear"], 1), (["softmax", "flexformer"], 2)])
def test_any_rows_and_a_single_seed_are_told_and_drawn(rows: list[str], n_pictures: int) -> None:
    ds = planted(0.1).sel(row=rows, seed=[1])
    assert len(lm.figures(ds)) == len(lm.section(ds).pictures) == n_pictures
    assert "nan" not in str(lm.section(ds))
