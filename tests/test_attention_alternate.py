from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import xarray as xr

from attention.align import align
from attention.alternate import alternate
from attention.finetune import finetune
from attention.model import ModelConfig, Transformer


def small(**changes) -> Transformer:
    sizes = {"n_classes": 2, "max_length": 6, "vocab_size": 10, "dim": 16, "heads": 2, "ff": 16, "n_features": 8, "dropout": 0.2}
    return Transformer(ModelConfig(**{**sizes, "attention": "softplus", **changes}), rng=1)


def batches(n: int = 96, size: int = 32) -> list[dict[str, torch.Tensor]]:
    """Rows of 6 tokens; the label says whether token 3 occurs."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(10, (n, 6), generator=generator)
    tokens = torch.where(tokens == 3, 4, tokens)
    labels = torch.arange(n) % 2
    tokens[labels == 1, 0] = 3
    data = {"tokens": tokens, "key_mask": torch.ones(n, 6, dtype=torch.bool), "labels": labels}
    return [{name: value[i : i + size] for name, value in data.items()} for i in range(0, n, size)]


class Move:
    """A Phase A that shifts all particles by one and remembers how it was called."""

    def __init__(self) -> None:
        self.seeds: list[int] = []

    def __call__(self, model: Transformer, batches: list, *, rng: int, by: float = 1.0) -> xr.Dataset:
        self.seeds.append(rng)
        for feature_map in model.feature_maps:
            feature_map.load_omega(feature_map.omega + by)
        return xr.Dataset({"alignment_after": ("head", [0.25, 0.75])})


@pytest.mark.parametrize(("every", "epochs"), [(1, [1, 2, 3, 4]), (2, [2, 4]), (3, [3]), (5, [])])
def test_phase_a_runs_before_the_right_epochs_and_frozen_particles_move_by_it_alone(every, epochs):
    model, phase_a = small(), Move()
    before = model.feature_maps[0].omega.detach().clone()
    history = alternate(model, batches(), every=every, phase_a=phase_a, n_epochs=5, rng=0)
    assert np.flatnonzero(history.alignment == 0.5).tolist() == epochs
    assert int(history.alignment.isnull().sum()) == 5 - len(epochs)
    assert len(set(phase_a.seeds)) == len(epochs)
    torch.testing.assert_close(model.feature_maps[0].omega, before + len(epochs))


def test_without_phase_a_it_is_finetune():
    one, other = small(), small()
    options = {"n_epochs": 2, "freeze_omega": False, "lr": 1e-3, "rng": 0}
    alternate(one, batches(), every=2, phase_a=Move(), **options)
    finetune(other, batches(), **options)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize(("by", "fresh"), [(1.0, True), (0.0, False)])
def test_moved_particles_forget_their_old_gradients_and_others_keep_them(by, fresh):
    """Adam's first step is as long as the rate where the gradient is far above its eps; a later one, between two unlike gradients, not."""
    model, seen = small(), []

    def phase_a(model, batches, *, rng):
        Move()(model, batches, rng=rng, by=by)
        seen.append(model.feature_maps[0].omega.detach().clone())

    alternate(model, batches()[:1], phase_a=phase_a, n_epochs=2, freeze_omega=False, warmup=0.0, omega_lr=0.01, rng=0)
    steps = (model.feature_maps[0].omega.detach() - seen[0]).abs()
    as_long = float(((steps - 0.01).abs() < 1e-4).double().mean())
    assert as_long > 0.9 if fresh else as_long < 0.5


class Stop(Exception):
    pass


class Reshuffled(list):
    """Batches in another order on each pass; reading them ends after `left` batches."""

    def __init__(self, rows: list, left: int = -1) -> None:
        super().__init__(rows)
        self.left, self.rng = left, np.random.default_rng(0)

    def __iter__(self):
        for i in self.rng.permutation(len(self)):
            if self.left == 0:
                raise Stop
            self.left -= 1
            yield self[int(i)]


@pytest.mark.parametrize("phase_a", [Move(), align])
@pytest.mark.parametrize("cut", [1, 4, 6, 7, 8, 11])
def test_a_cut_run_ends_bitwise_like_a_whole_one(tmp_path, cut, phase_a):
    options = {"phase_a": phase_a, "n_epochs": 3, "freeze_omega": False, "rng": 0}
    options |= {"align_options": {"n_steps": 5}} if phase_a is align else {}
    kept, whole, resumed = {"checkpoint": tmp_path / "run.pt", "checkpoint_every": 1}, small(), small()
    expected = alternate(whole, Reshuffled(batches()), **options)
    with pytest.raises(Stop):
        alternate(small(), Reshuffled(batches(), cut), **kept, **options)
    got = alternate(resumed, Reshuffled(batches()), **kept, **options)
    assert got.drop_vars("seconds").equals(expected.drop_vars("seconds"))
    assert all(torch.equal(a, b) for a, b in zip(resumed.parameters(), whole.parameters(), strict=True))


def test_by_default_phase_a_is_align():
    model = small()
    before = model.feature_maps[0].omega.detach().clone()
    history = alternate(model, batches(), align_options={"n_steps": 5}, n_epochs=2, rng=0)
    assert math.isnan(float(history.alignment[0]))
    assert 0 < float(history.alignment[1]) <= 1
    assert not torch.equal(model.feature_maps[0].omega, before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 0}, "every"),
        ({"phase_a": 3}, "phase_a must be a function, got 3"),
        ({"align_options": [1]}, "align_options must be a dict"),
        ({"lr": -1.0}, "lr"),
        ({"checkpoint": "run.pt", "every": 2, "n_epochs": 1.5}, "n_epochs"),
    ],
)
def test_bad_settings_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        alternate(small(), batches(), **{"rng": 0, **options})


def test_a_checkpoint_of_another_rhythm_is_refused(tmp_path):
    options = {"phase_a": Move(), "n_epochs": 2, "checkpoint": tmp_path / "run.pt", "rng": 0}
    alternate(small(), batches(), every=1, **options)
    with pytest.raises(ValueError, match="every"):
        alternate(small(), batches(), every=2, **options)
    with pytest.raises(ValueError, match="every"):
        finetune(small(), batches(), n_epochs=2, checkpoint=tmp_path / "run.pt", rng=0)
