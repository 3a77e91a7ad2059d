from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from attention.finetune import evaluate, finetune, predict
from attention.model import ModelConfig, Transformer


def small(attention: str = "softplus", **changes) -> Transformer:
    sizes = {"n_classes": 2, "max_length": 6, "vocab_size": 10, "dim": 16, "heads": 2, "ff": 16, "n_features": 8, "dropout": 0.2}
    return Transformer(ModelConfig(**{**sizes, "attention": attention, **changes}), rng=1)


def task(n: int = 96, seed: int = 0) -> dict[str, torch.Tensor]:
    """Rows of 6 tokens, some padded; the label says whether token 3 occurs."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(10, (n, 6), generator=generator)
    tokens = torch.where(tokens == 3, 4, tokens)
    labels = torch.arange(n) % 2
    tokens[labels == 1, 0] = 3
    key_mask = torch.arange(6) < torch.randint(2, 7, (n, 1), generator=generator)
    return {"tokens": tokens, "key_mask": key_mask, "labels": labels}


class Shuffled:
    """A loader with a state: every pass is in another order."""

    def __init__(self, data: dict[str, torch.Tensor], size: int = 32, seed: int = 0) -> None:
        self.data, self.size, self.rng = data, size, np.random.default_rng(seed)

    def __iter__(self):
        order = torch.from_numpy(self.rng.permutation(len(self.data["labels"])))
        for rows in order.split(self.size):
            yield {name: value[rows] for name, value in self.data.items()}


def batches(n: int = 96, size: int = 32, **changes) -> list[dict[str, torch.Tensor]]:
    data = {**task(n), **changes}
    return [{name: value[i : i + size] for name, value in data.items()} for i in range(0, n, size)]


@pytest.mark.parametrize("attention", ["softmax", "softplus", "fourier"])
def test_it_learns_a_simple_task(attention):
    model = small(attention)
    history = finetune(model, batches(), n_epochs=12, lr=1e-2, validation=batches(), rng=0)
    assert history.sizes == {"epoch": 12}
    assert float(history.train_loss[-1]) < 0.3 < 0.6 < float(history.train_loss[0])
    assert float(history.accuracy[-1]) > 0.95
    assert bool((history.seconds > 0).all())
    loss, accuracy = evaluate(model, batches())
    assert (loss, accuracy) == (float(history.validation_loss[-1]), float(history.accuracy[-1]))


def test_frozen_particles_do_not_change_by_a_bit_and_released_ones_do():
    frozen, released = small(), small()
    before = frozen.feature_maps[0].omega.detach().clone()
    finetune(frozen, batches(), n_epochs=2, weight_decay=0.5, rng=0)
    finetune(released, batches(), n_epochs=2, freeze_omega=False, omega_lr=0.1, rng=0)
    assert torch.equal(frozen.feature_maps[0].omega, before)
    assert not torch.equal(released.feature_maps[0].omega, before)
    assert not torch.equal(frozen.head.weight, small().head.weight)


def test_the_rate_of_the_particles_is_their_own():
    moves = []
    for omega_lr in (1e-4, 1e-2):
        model = small()
        before = model.feature_maps[0].omega.detach().clone()
        finetune(model, batches(), freeze_omega=False, omega_lr=omega_lr, rng=0)
        moves.append(float((model.feature_maps[0].omega.detach() - before).abs().max()))
    assert 30 < moves[1] / moves[0] < 300  # Adam's first steps are as long as the rate


@pytest.mark.parametrize("freeze_omega", [True, False])
def test_an_interrupted_run_ends_bitwise_like_an_uninterrupted_one(tmp_path, freeze_omega):
    options = {"n_epochs": 4, "freeze_omega": freeze_omega, "validation": batches(), "rng": 5}
    whole = small()
    expected = finetune(whole, Shuffled(task()), **options)

    class Stop(Exception):
        pass

    class Failing(Shuffled):
        passes = 0

        def __iter__(self):
            self.passes += 1
            if self.passes == 4:  # one pass counts the batches, so this is the third epoch
                raise Stop
            return super().__iter__()

    with pytest.raises(Stop):
        finetune(small(), Failing(task()), checkpoint=tmp_path / "run.pt", **options)
    resumed = small()
    got = finetune(resumed, Shuffled(task()), checkpoint=tmp_path / "run.pt", **options)
    for name in ("train_loss", "validation_loss", "accuracy"):
        np.testing.assert_array_equal(got[name], expected[name])
    assert all(torch.equal(a, b) for a, b in zip(resumed.parameters(), whole.parameters(), strict=True))
    again = small()
    np.testing.assert_array_equal(finetune(again, Shuffled(task()), checkpoint=tmp_path / "run.pt", **options).seconds, got.seconds)
    assert torch.equal(again.head.weight, whole.head.weight)
    assert [p.name for p in tmp_path.iterdir()] == ["run.pt"]


def test_a_checkpoint_of_other_settings_is_refused_and_kept(tmp_path):
    path = tmp_path / "run.pt"
    finetune(small(), batches(), checkpoint=path, rng=0)
    content = path.read_bytes()
    with pytest.raises(ValueError, match="lr"):
        finetune(small(), batches(), checkpoint=path, lr=0.5, rng=0)
    with pytest.raises(ValueError, match="ff"):
        finetune(small(ff=8), batches(), checkpoint=path, rng=0)
    assert path.read_bytes() == content


def test_a_checkpoint_that_cannot_be_read_or_written_is_named_at_once(tmp_path):
    (tmp_path / "run.pt").write_bytes(b"broken")
    for path in (tmp_path / "run.pt", tmp_path / "missing" / "run.pt"):
        model = small()
        with pytest.raises(ValueError, match="checkpoint"):
            finetune(model, batches(), checkpoint=path, rng=0)
        assert torch.equal(model.head.weight, small().head.weight)
    assert (tmp_path / "run.pt").read_bytes() == b"broken"


def test_global_state_and_mode_are_left_alone():
    model = small().eval()
    state = torch.get_rng_state()
    first = finetune(model, batches(), rng=0)
    assert torch.equal(torch.get_rng_state(), state)
    assert not model.training
    torch.rand(7)
    assert float(finetune(small(), batches(), rng=0).train_loss[0]) == float(first.train_loss[0])
    assert float(finetune(small(), batches(), rng=1).train_loss[0]) != float(first.train_loss[0])


def test_without_validation_its_columns_are_nan():
    history = finetune(small(), batches(), rng=0)
    assert math.isnan(float(history.accuracy[0]))
    assert math.isnan(float(history.validation_loss[0]))


def test_predict_returns_probabilities_in_order():
    probabilities, labels = predict(small(), batches())
    assert torch.equal(labels, task()["labels"])
    torch.testing.assert_close(probabilities.sum(1), torch.ones(96, dtype=torch.float64))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.full((96,), 2), r"labels must be in \[0, 2\)"),
        (torch.full((96,), -1), r"labels must be in \[0, 2\)"),
        (torch.zeros(96), "labels must be integers"),
        (torch.zeros(96, dtype=torch.bool), "labels must be integers"),
        (np.zeros(96, dtype=int), "labels must be a torch tensor"),
        (torch.zeros(96, 1, dtype=torch.long), "labels must be integers"),
    ],
)
def test_bad_labels_are_named(labels, message):
    with pytest.raises(ValueError, match=message):
        finetune(small(), batches(labels=labels), rng=0)
    with pytest.raises(ValueError, match=message):
        evaluate(small(), batches(labels=labels))


def test_bad_batches_are_named():
    unlabelled = [{k: v for k, v in batch.items() if k != "labels"} for batch in batches()]
    with pytest.raises(ValueError, match="labels"):
        finetune(small(), unlabelled, rng=0)
    with pytest.raises(ValueError, match="at least one batch"):
        finetune(small(), [], rng=0)
    with pytest.raises(ValueError, match="more than once"):
        finetune(small(), iter(batches()), rng=0)
    with pytest.raises(ValueError, match="at least one batch"):
        predict(small(), [])
    for batches_, got in ((task(), "a dict"), (None, "a NoneType")):
        with pytest.raises(ValueError, match=f"batches must be an iterable of batches, got {got}"):
            finetune(small(), batches_, rng=0)
    with pytest.raises(ValueError, match="batch must be a dict of tensors, got a list"):
        finetune(small(), [[1, 2]], rng=0)
    with pytest.raises(ValueError, match="'tokens'"):
        finetune(small(), [{"labels": task()["labels"]}], rng=0)
    with pytest.raises(ValueError, match="model must be a Transformer, got a str"):
        finetune("model", batches(), rng=0)


def test_validation_that_can_be_read_only_once_is_refused_before_training():
    model = small()
    for validation, message in ((iter(batches()), "more than once"), (5, "got a int")):
        with pytest.raises(ValueError, match=f"validation.*{message}"):
            finetune(model, batches(), validation=validation, rng=0)
    assert torch.equal(model.head.weight, small().head.weight)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": 0.0}, "lr"),
        ({"n_epochs": 0}, "n_epochs"),
        ({"omega_lr": 0.1}, "freeze_omega=False"),
        ({"omega_lr": -0.1, "freeze_omega": False}, "omega_lr"),
        ({"weight_decay": -1.0}, "weight_decay"),
        ({"clip": float("nan")}, "clip"),
        ({"warmup": 1.5}, "warmup"),
        ({"rng": -1}, "rng"),
        ({"freeze_omega": "no"}, "freeze_omega must be True or False, got 'no'"),
        ({"checkpoint": 5}, "checkpoint must be a path, got 5"),
    ],
)
def test_bad_settings_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        finetune(small(), batches(), **{"rng": 0, **options})


def test_a_loss_that_is_not_finite_stops_the_run():
    model = small(vocab_size=None, input_dim=1)
    data = task()
    data["tokens"] = torch.full((96, 6, 1), torch.nan)
    with pytest.raises(FloatingPointError, match="epoch 0, batch 0"):
        finetune(model, [data], rng=0)
