from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch

from attention.align import align
from attention.model import ModelConfig, Transformer
from attention.objectives import default_energy, default_objective, linear_objective
from attention.samples import Points, points, split_rows
from particles.alignment import CentredAlignment
from particles.domain import Ball
from particles.energy import Quadratic
from particles.features import Elu, FourierPair, PositiveExponential, SoftmaxFeatures, Softplus
from particles.langevin import Langevin
from particles.trajectory import open_trajectory

MAPS = ["softplus", "softmaxfeat", "favor", "elu", "fourier", "phase"]


def small(attention: str = "softplus", **changes) -> Transformer:
    sizes = {"n_classes": 2, "max_length": 6, "vocab_size": 10, "dim": 16, "heads": 2, "ff": 16, "n_features": 8, "dropout": 0.2}
    return Transformer(ModelConfig(**{**sizes, "attention": attention, **changes}), rng=1)


def batches(n: int = 200, size: int = 64, seed: int = 0, shuffled: bool = False) -> list[dict[str, torch.Tensor]]:
    """Padded rows of 6 tokens; half the tokens of a row come from its class's half of the vocabulary."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 2
    own = torch.randint(5, (n, 6), generator=generator) + 5 * labels[:, None]
    tokens = torch.where(torch.rand(n, 6, generator=generator) < 0.5, own, torch.randint(10, (n, 6), generator=generator))
    key_mask = torch.arange(6) < torch.randint(3, 7, (n, 1), generator=generator)
    if shuffled:
        labels = labels[torch.randperm(n, generator=generator)]
    rows = {"tokens": tokens, "key_mask": key_mask, "labels": labels}
    return [{name: value[i : i + size] for name, value in rows.items()} for i in range(0, n, size)]


@pytest.mark.parametrize("attention", MAPS)
def test_alignment_rises_on_held_out_sequences_and_not_with_shuffled_labels(attention):
    # over 3 data seeds and the 6 maps the rise was at least 1.9-fold and the control's alignment at most 0.16 of it
    result = align(small(attention), batches(), n_steps=50, rng=0)
    before, after = float(result.holdout_before.mean()), float(result.holdout_after.mean())
    assert after > 1.5 * before
    assert bool((result.alignment_after > result.alignment_before).all())
    control = align(small(attention), batches(shuffled=True), n_steps=50, rng=0)
    assert float(control.holdout_after.mean()) < 0.25 * after


@pytest.mark.parametrize("attention", MAPS)
def test_particles_are_written_into_the_model_and_nothing_else_changes(attention):
    model = small(attention)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    result = align(model, batches(), n_steps=10, rng=0)
    for name, value in model.state_dict().items():
        if not name.endswith("omega"):
            assert torch.equal(value, before[name])
    omega = model.feature_maps[0].omega.detach().numpy()
    np.testing.assert_array_equal(omega, result.omega_after[0].values.astype(np.float32))
    np.testing.assert_array_equal(before["blocks.0.attention.feature_map.omega"].numpy(), result.omega_before[0].values)
    assert not np.array_equal(omega, result.omega_before[0])


@pytest.mark.parametrize("attention", MAPS)
def test_units_are_converted_back_exactly(attention):
    model = small(attention)
    before = model.feature_maps[0].omega.detach().clone()
    result = align(model, batches(), sampler=Langevin(1e-300, float("inf")), domain=_large(model), n_steps=1, rng=0)
    assert torch.equal(model.feature_maps[0].omega, before)
    assert bool((result.unit == 1).all()) == (attention == "favor")


def _large(model: Transformer) -> Ball:
    return Ball(1e3, model.feature_maps[0].omega.shape[-1])


@pytest.mark.parametrize("attention", MAPS)
def test_alignment_is_that_of_the_features_that_the_model_uses(attention):
    model = small(attention)
    result = align(copy.deepcopy(model), batches(), n_steps=1, rng=0)
    assert result.attrs["n_holdout"] == 50
    feature = model.feature_maps[0].feature
    labels = np.concatenate([batch["labels"] for batch in batches()])
    _, held = split_rows(labels, 0, 1024)
    for head, sample in enumerate(points(model, batches(), 0, "sequence")):
        omega = model.feature_maps[0].omega[head].detach().double().numpy()
        x = sample.x.reshape(-1, 2, 8)[held].reshape(-1, 8)
        expected = -float(CentredAlignment(x, labels[held].repeat(2), feature).value(omega))
        np.testing.assert_allclose(float(result.holdout_before[0, head]), expected, rtol=1e-9)


def test_pooled_points_are_means_of_the_real_tokens():
    model = small()
    data = batches(n=5, size=2)
    head = points(model, data, 0, "sequence")[1]
    assert head.x.shape == (10, 8)
    assert head.y.tolist() == [0, 0, 1, 1, 0, 0, 1, 1, 0, 0]
    model.eval()
    row = {name: value[1:2] for name, value in data[1].items()}
    length = int(row["key_mask"].sum())
    with torch.no_grad():
        q, k = model.queries_keys({**row, "tokens": row["tokens"][:, :length], "key_mask": row["key_mask"][:, :length]}, 0)
    np.testing.assert_allclose(head.x[6], q[0, 1].mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(head.x[7], k[0, 1].mean(0), rtol=1e-5, atol=1e-6)


def test_at_most_so_many_sequences_are_used_and_the_hold_out_is_apart():
    result = align(small(), batches(), n_steps=1, max_sequences=30, rng=0)
    assert (result.attrs["n_sequences"], result.attrs["n_holdout"]) == (30, 30)
    labels = np.arange(200) % 3
    train, hold = split_rows(labels, 0, 1000)
    assert sorted([*train, *hold]) == list(range(200))
    assert np.bincount(labels[hold]).tolist() == [17, 17, 16]  # a quarter of each class


def test_the_seed_decides_and_mode_and_global_state_stay():
    model = small().train()
    state = torch.get_rng_state()
    first = align(model, batches(), n_steps=10, rng=0)
    torch.rand(3)
    second = align(small(), batches(), n_steps=10, rng=0)
    other = align(small(), batches(), n_steps=10, rng=1)
    assert model.training
    np.testing.assert_array_equal(first.omega_after, second.omega_after)
    assert not np.array_equal(first.omega_after, other.omega_after)
    torch.set_rng_state(state)
    align(small(), batches(), n_steps=1, rng=0)
    assert torch.equal(torch.get_rng_state(), state)


def test_layers_are_aligned_in_order_each_seeing_those_before():
    model = small(layers=2)
    original = copy.deepcopy(model)
    result = align(model, batches(), rng=0)
    assert result.sizes["layer"] == 2

    def unit(of: Transformer) -> float:
        head = points(of, batches(), 1, "sequence")[0]
        train, _ = split_rows(head.y[::2], 0, 1024)
        return float(np.sqrt(head.x.reshape(-1, 2, 8)[train].reshape(-1, 8).var(0).mean()))

    np.testing.assert_allclose(unit(model), float(result.unit[1, 0]), rtol=1e-12)
    assert abs(unit(original) / float(result.unit[1, 0]) - 1) > 1e-6


def test_a_user_may_give_energy_domain_and_sampler():
    seen = []

    def energy(x, y, feature):
        seen.append((x.shape, y.shape, type(feature)))
        return Quadratic(1.0)

    model = small("fourier")
    result = align(model, batches(), energy=energy, domain=Ball(0.1, 8), sampler=Langevin(0.5, float("inf")), n_steps=5,
                   early_stopping=False, rng=0)  # fmt: skip
    assert seen == [((300, 8), (300,), FourierPair)] * 2
    assert bool((result.start_outside > 0).all())
    length = np.linalg.norm(result.omega_after * result.unit, axis=-1)
    np.testing.assert_allclose(length, 0.1 * 0.5**5, rtol=1e-6)  # projected to start, then halved five times
    assert json.loads(result.attrs["energy"])[0][1]["name"] == "Quadratic"
    assert "energy_quadratic" in result


def test_particles_of_unequal_weights_are_refused_and_kept():
    omega, weights = np.random.default_rng(0).standard_normal((4, 8)), np.array([0.7, 0.1, 0.1, 0.1])
    model = small("fourier", feature_options={"omega": omega, "weights": weights})
    before = model.feature_maps[0].weights.clone()
    with pytest.raises(ValueError, match=r"'fourier' must have equal weights to be simulated, got \[\[0.69"):
        align(model, batches(), n_steps=5, rng=0)
    assert torch.equal(model.feature_maps[0].weights, before)
    align(small("fourier", feature_options={"omega": omega, "weights": np.full(4, 0.25)}), batches(), n_steps=5, rng=0)


def test_everything_is_recorded_and_stays_in_the_domain(tmp_path):
    model = small("fourier")
    result = align(model, batches(), store=tmp_path / "run", early_stopping=False, rng=0)
    assert result.sizes == {"layer": 1, "head": 2, "step": 21, "particle": 4, "particle_dim": 8}
    for name in ("energy", "energy_alignment", "energy_riesz", "energy_quadratic", "projected", "capped", "grad_norm", "min_gap"):
        assert result[name].dims == ("layer", "head", "step")
        assert bool(np.isfinite(result[name]).all())
    assert float((np.linalg.norm(result.omega_after, axis=-1) * result.unit.values[..., None]).max()) <= 4 * (1 + 1e-12)
    for head, sampler in enumerate(json.loads(result.attrs["sampler"])[0]):
        stored = open_trajectory(tmp_path / "run" / f"layer0_head{head}.zarr")
        assert json.loads(stored.attrs["sampler"]) == sampler  # each head has its own step
        np.testing.assert_allclose(stored.omega[0, -1] / float(result.unit[0, head]), result.omega_after[0, head], rtol=1e-12)
    with pytest.raises(FileExistsError, match="store"):
        align(model, batches(), store=tmp_path / "run", rng=0)


@pytest.mark.parametrize(
    ("feature", "linear"),
    [
        (FourierPair(), True),
        (Softplus(), True),
        (Elu(), True),
        (Softplus(renormalise=True), False),
        (SoftmaxFeatures(), False),
        (PositiveExponential(), False),
    ],
)
def test_the_default_objective_fits_the_feature(feature, linear):
    assert linear_objective(feature) == linear
    rng = np.random.default_rng(0)
    energy = default_energy(Points(rng.normal(size=(20, 3)), np.arange(20) % 2), feature, 5, default_objective(feature, "labels"))
    terms, _ = energy.value_and_grad(rng.normal(size=(5, 3)), key=(0, 0, 0))
    assert ("alignment" in terms) == linear
    assert ("centred_alignment" in terms) != linear


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="softmax"):
        align(small("softmax"), batches(), rng=0)
    with pytest.raises(ValueError, match="targets"):
        align(small(), batches(), targets="labels?", rng=0)
    with pytest.raises(ValueError, match="teacher"):
        align(small(), batches(), targets="teacher", rng=0)
    with pytest.raises(ValueError, match="n_steps"):
        align(small(), batches(), n_steps=0, rng=0)
    with pytest.raises(ValueError, match="model must be a Transformer"):
        align("model", batches(), rng=0)
    with pytest.raises(ValueError, match="batches must be iterable more than once"):
        align(small(layers=2), iter(batches()), rng=0)
    for name in ("energy", "domain", "sampler", "store"):
        with pytest.raises(ValueError, match=f"{name} must be.* got 5"):
            align(small(), batches(), rng=0, **{name: 5})
    nan = [{**batch, "tokens": torch.full((len(batch["labels"]), 6, 1), torch.nan)} for batch in batches()]
    with pytest.raises(ValueError, match="finite"):
        align(small(vocab_size=None, input_dim=1), nan, rng=0)
    with pytest.raises(ValueError, match="max_sequences"):
        align(small(), batches(), max_sequences=0, rng=0)
    with pytest.raises(ValueError, match="hold some out"):
        align(small(), batches(n=2), rng=0)
    with pytest.raises(ValueError, match="at least one batch"):
        align(small(), [], rng=0)
    one = [{**batch, "labels": torch.zeros_like(batch["labels"])} for batch in batches()]
    with pytest.raises(ValueError, match="two classes"):
        align(small(), one, rng=0)
    with pytest.raises(ValueError, match="labels"):
        align(small(), [{k: v for k, v in batch.items() if k != "labels"} for batch in batches()], rng=0)
    same = [{**batch, "tokens": torch.zeros_like(batch["tokens"]), "key_mask": torch.ones_like(batch["key_mask"])} for batch in batches()]
    model = small()
    with torch.no_grad():
        model.blocks[0].attention.qkv.weight.zero_()
        model.blocks[0].attention.qkv.bias.zero_()
    with pytest.raises(ValueError, match="not all equal"):
        align(model, same, rng=0)
