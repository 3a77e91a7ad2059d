"""One classifier under one recipe: what happens to the particles, equal training of all rows, resuming, scores."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attention.finetune import predict
from attention.model import ModelConfig, Transformer
from experiments import metrics
from experiments.data import Dataset, load
from experiments.training import ALIGNMENTS, PARTICLES, Recipe, batches, redraw, test_scores, trained

RECIPE = Recipe(n_epochs=2, n_warm=1, batch_size=32, n_align=4, align_sequences=64)


@pytest.fixture(scope="module")
def data() -> Dataset:
    return load("digits", max_train=120)


def model(data: Dataset, attention: str = "softplus", seed: int = 0) -> Transformer:
    sizes = {"n_classes": data.n_classes, "max_length": data.max_length, "input_dim": data.input_dim}
    return Transformer(ModelConfig(**sizes, dim=16, heads=2, layers=1, ff=16, n_features=8, attention=attention), rng=seed)


def omega(one: Transformer) -> torch.Tensor:
    return one.feature_maps[0].omega.detach().clone()


@pytest.mark.parametrize("particles", PARTICLES)
def test_particles_move_where_their_row_says_so(data: Dataset, particles: str) -> None:
    one = model(data)
    before = omega(one)
    history = trained(one, data, RECIPE, seed=1, particles=particles)
    aligned = "align" in particles or "shuffled" in particles
    assert bool(np.isfinite(history.alignment_after)) == aligned
    if not aligned:  # Phase A may keep its start
        assert torch.equal(omega(one), before) == (particles == "fixed")


@pytest.mark.parametrize(("particles", "trained_too"), [("align", False), ("align, unfreeze", True)])
def test_aligned_particles_are_frozen_or_trained_on(data: Dataset, particles: str, trained_too: bool) -> None:
    ends = []
    for lr in (2e-3, 1e-8):
        one = model(data)
        recipe = dataclasses.replace(RECIPE, n_warm=0, n_epochs=1, lr=lr, omega_lr=lr)
        trained(one, data, recipe, seed=0, particles=particles)
        ends.append(omega(one))
    assert torch.allclose(*ends, atol=1e-6) != trained_too


def test_rows_without_phase_a_have_no_alignment_and_no_seconds_of_it(data: Dataset) -> None:
    history = trained(model(data), data, RECIPE, seed=0)
    assert float(history.align_seconds) == 0
    assert all(np.isnan(float(history[name])) for name in ALIGNMENTS)
    assert float(history.train_seconds) == pytest.approx(float(history.seconds.sum()))
    assert history.epoch.values.tolist() == [1, 2]


def test_rows_share_their_warm_epochs(data: Dataset) -> None:
    first = {name: float(trained(model(data), data, RECIPE, seed=3, particles=name).train_loss[0]) for name in PARTICLES}
    same = {name: first[name] for name in first if name not in ("learned", "redrawn")}
    assert len(set(same.values())) == 1
    assert first["learned"] != first["fixed"]
    assert first["redrawn"] != first["fixed"]


def test_a_run_repeats_exactly_and_another_seed_does_not(data: Dataset) -> None:
    losses = [trained(model(data), data, RECIPE, seed=seed, particles="align").train_loss.values for seed in (0, 0, 1)]
    np.testing.assert_array_equal(losses[0], losses[1])
    assert not np.array_equal(losses[0], losses[2])


def test_training_goes_on_from_its_checkpoints_to_the_same_weights(data: Dataset, tmp_path: Path) -> None:
    whole, cut = model(data), model(data)
    trained(whole, data, RECIPE, seed=0, particles="align, unfreeze")
    trained(cut, data, RECIPE, seed=0, particles="align, unfreeze", checkpoint=str(tmp_path / "one"))
    (tmp_path / "one-rest.pt").unlink()  # as if the process had ended in the second part
    again = model(data)
    trained(again, data, RECIPE, seed=0, particles="align, unfreeze", checkpoint=str(tmp_path / "one"))
    for name, value in whole.state_dict().items():
        assert torch.equal(value, cut.state_dict()[name])
        assert torch.equal(value, again.state_dict()[name])


def test_redrawn_particles_are_orthogonal_in_blocks(data: Dataset) -> None:
    one = model(data, "favor")
    trained(one, data, RECIPE, seed=0, particles="redrawn")
    directions = torch.nn.functional.normalize(omega(one), dim=-1)
    torch.testing.assert_close(directions @ directions.mT, torch.eye(8).expand(2, 8, 8), atol=1e-5, rtol=0)


def test_a_draw_is_that_of_its_seed(data: Dataset) -> None:
    from attention import draws

    first, second = model(data), model(data)
    for one, seed in ((first, [1, 2]), (second, [1, 2])):
        redraw(one, draws.normal, seed)
    assert torch.equal(omega(first), omega(second))
    redraw(second, draws.normal, [1, 3])
    assert not torch.equal(omega(first), omega(second))


@pytest.mark.parametrize(
    ("field", "value"),
    [("n_epochs", 1), ("lr", 0.0), ("precision", "int8"), ("warmup", 1.5), ("patience", 0), ("lam", -1.0), ("beta", 0.0), ("trim", 1),
     ("batch_size", 0), ("omega_lr", -1.0)],
)  # fmt: skip
def test_a_recipe_out_of_range_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        Recipe(**{field: value})


def test_an_unknown_course_of_the_particles_is_refused(data: Dataset) -> None:
    with pytest.raises(ValueError, match="particles must"):
        trained(model(data), data, RECIPE, seed=0, particles="frozen")


def test_constants_of_phase_a_reach_it(data: Dataset) -> None:
    ends = []
    for radius in (None, 1e-3):
        one = model(data)
        trained(one, data, dataclasses.replace(RECIPE, radius=radius, early_stopping=False), seed=0, particles="align")
        ends.append(float(omega(one).norm(dim=-1).max()))
    assert ends[1] < 0.05 * ends[0]


# ---- scores ------------------------------------------------------------------------------------------------------------------------------


def test_scores_are_those_of_the_models_probabilities(data: Dataset) -> None:
    one = model(data)
    trained(one, data, RECIPE, seed=0)
    found = test_scores(one, data.test, data.validation)
    probabilities, labels = (part.numpy() for part in predict(one, data.test.batches(512)))
    assert {name: found[name] for name in metrics.scores(probabilities, labels)} == metrics.scores(probabilities, labels)
    np.testing.assert_array_equal(found["correct"], probabilities.argmax(1) == labels)
    assert found["reliability"].shape == (15, 3)
    assert found["inference_seconds"] > 0


def test_temperature_is_fitted_on_validation_and_never_worse_there(data: Dataset) -> None:
    one = model(data)
    trained(one, data, RECIPE, seed=0)
    found = test_scores(one, data.validation, data.validation)
    assert found["log_loss_tempered"] <= found["log_loss"] + 1e-12
    assert "temperature" not in test_scores(one, data.test)


def test_batches_are_trimmed_and_bucketed_as_the_recipe_says(data: Dataset) -> None:
    lengths = np.random.default_rng(0).integers(1, data.max_length + 1, len(data.train))
    mask = np.arange(data.max_length) < lengths[:, None]
    split = dataclasses.replace(data.train, key_mask=mask)
    plain = [batch["tokens"].shape[1] for batch in batches(split, RECIPE, np.random.default_rng(0))]
    cut = dataclasses.replace(RECIPE, trim=True, bucket=True)
    short = [batch["tokens"].shape[1] for batch in batches(split, cut, np.random.default_rng(0))]
    assert set(plain) == {data.max_length}
    assert sum(short) < sum(plain)
    assert len(list(batches(split, cut))) == len(plain)
