from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from attention.model import ModelConfig, Transformer, masked_mean
from attention.seeds import seed_from, seeded

KERNELS = ["softmax", "softplus", "softmaxfeat", "favor", "elu", "fourier", "hedgehog", "flexformer"]
CHOICES = {  # one change each of the usual classifier
    "soft": {"attention": "soft", "n_features": 4},
    "per layer": {"attention": ("softmax", "softplus")},
    "hybrid window": {"attention": "favor", "window": 3},
    "shared": {"projections": "shared"},
    "no W_q, W_k": {"projections": "input"},
    "rotary": {"positions": "rotary"},
    "no positions": {"positions": None},
    "cls": {"pooling": "cls"},
    "grouped": {"kv_heads": 1, "heads": 4},
    "grouped softmax": {"kv_heads": 2, "heads": 4, "attention": "softmax"},
    "grouped, signed": {"kv_heads": 2, "heads": 4, "attention": "fourier"},
    "literal Flexformer": {"attention": "flexformer", "normalise": "sum", "unit_norm": False},
    "raw": {"normalise": None},
    "positional": {"attention": "cosformer", "n_features": 16},
    "causal classifier": {"causal": True},
}


def config(attention: str = "softplus", **changes) -> ModelConfig:
    sizes = {"n_classes": 3, "max_length": 12, "vocab_size": 20, "dim": 16, "heads": 2, "ff": 24, "n_features": 8, "dropout": 0.0}
    return ModelConfig(**{**sizes, "attention": attention, **changes})


def words(n: int = 4, time: int = 7, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.arange(n) % time + 1
    return {
        "tokens": torch.randint(20, (n, time), generator=generator),
        "key_mask": torch.arange(time) < lengths[:, None],
        "labels": torch.arange(n) % 3,
    }


def vectors(n: int = 4, time: int = 7, seed: int = 0) -> dict[str, torch.Tensor]:
    batch = words(n, time, seed)
    return {**batch, "tokens": torch.randn(n, time, 5, generator=torch.Generator().manual_seed(seed))}


@pytest.mark.parametrize("attention", KERNELS)
@pytest.mark.parametrize("layers", [1, 2])
def test_logits_have_a_row_per_sequence_and_all_parameters_learn(attention, layers):
    model = Transformer(config(attention, layers=layers))
    logits = model(words())
    assert logits.shape == (4, 3)
    logits.square().sum().backward()
    assert all(p.grad is not None and bool(torch.isfinite(p.grad).all()) for p in model.parameters())


@pytest.mark.parametrize("attention", KERNELS)
def test_padding_changes_nothing(attention):
    model = Transformer(config(attention, vocab_size=None, input_dim=5, layers=2)).eval()
    batch = vectors()
    expected = model(batch)
    for filling in (1e4, float("nan"), float("inf")):
        tokens = torch.where(batch["key_mask"][..., None], batch["tokens"], filling).requires_grad_()
        got = model({**batch, "tokens": tokens})
        assert torch.equal(got, expected)
        (gradient,) = torch.autograd.grad(got.square().sum(), tokens)
        assert bool((gradient[~batch["key_mask"]] == 0).all())
        assert bool(torch.isfinite(gradient).all())
    longer = {
        "tokens": torch.cat((batch["tokens"], torch.full((4, 3, 5), torch.nan)), 1),
        "key_mask": torch.cat((batch["key_mask"], torch.zeros(4, 3, dtype=torch.bool)), 1),
    }
    torch.testing.assert_close(model(longer), expected, rtol=1e-5, atol=1e-6)


def chosen(name: str, **changes) -> ModelConfig:
    sizes = {"vocab_size": None, "input_dim": 5, "layers": 2, "dim": 16}
    return config(**{**sizes, **CHOICES[name], **changes})


@pytest.mark.parametrize("name", CHOICES)
def test_every_choice_learns_with_all_its_parameters_and_ignores_padding_and_its_neighbours(name):
    model = Transformer(chosen(name)).eval()
    batch = vectors(6)
    logits = model(batch)
    logits.square().sum().backward()
    assert all(p.grad is not None and bool(torch.isfinite(p.grad).all()) for p in model.parameters() if p.requires_grad)
    filled = torch.where(batch["key_mask"][..., None], batch["tokens"], torch.nan)
    assert torch.equal(model({**batch, "tokens": filled}), logits)
    halves = [{k: v[rows] for k, v in batch.items()} for rows in (slice(0, 1), slice(1, 6))]
    torch.testing.assert_close(torch.cat([model(half) for half in halves]), logits, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in CHOICES if name not in ("soft", "positional")])
def test_padding_may_stand_on_either_side(name):
    model = Transformer(chosen(name)).eval()
    tokens = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(0))
    fill, real = torch.full((2, 3, 5), torch.nan), torch.ones(2, 4, dtype=torch.bool)
    sides = [torch.cat(parts, 1) for parts in ((tokens, fill), (fill, tokens))]
    masks = [torch.cat(parts, 1) for parts in ((real, ~real[:, :3]), (~real[:, :3], real))]
    expected = model({"tokens": tokens, "key_mask": real})
    for side, mask in zip(sides, masks, strict=True):
        torch.testing.assert_close(model({"tokens": side, "key_mask": mask}), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CHOICES)
def test_a_saved_model_of_every_choice_loads_strictly_into_a_fresh_one_and_evaluates_alike_bitwise(name):
    model, fresh = Transformer(chosen(name, dropout=0.3)).eval(), Transformer(chosen(name, dropout=0.3), rng=9).eval()
    with torch.no_grad():
        for feature_map in model.feature_maps:
            feature_map.load_omega(feature_map.omega + 0.1)  # learned particles travel too
    expected = model(vectors())
    assert torch.equal(model(vectors()), expected)
    fresh.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(fresh(vectors()), expected)


@pytest.mark.parametrize("name", [*CHOICES, "softmax"])
def test_a_nan_in_a_real_token_comes_out_as_nan_or_an_error(name):
    model = Transformer(chosen(name) if name in CHOICES else config(vocab_size=None, input_dim=5, attention=name)).eval()
    batch = vectors()
    batch["tokens"][3, 0] = torch.nan
    try:
        logits = model(batch)
    except (ValueError, FloatingPointError):
        return
    assert bool(logits[3].isnan().any())


@pytest.mark.parametrize("name", CHOICES)
def test_a_call_draws_no_numbers_and_changes_no_buffer_or_particle_even_in_training(name):
    model, state = Transformer(chosen(name)).train(), torch.get_rng_state()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    first = model(vectors())
    assert torch.equal(model(vectors()), first)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def replica(model: torch.nn.Module) -> torch.nn.Module:
    """What `DataParallel` makes of a model on each device: modules whose parameters are plain tensors."""
    copy = model._replicate_for_data_parallel()
    for name, parameter in model._parameters.items():
        setattr(copy, name, None if parameter is None else parameter.clone())
    for name, child in model._modules.items():
        copy._modules[name] = None if child is None else replica(child)
    return copy


@pytest.mark.parametrize("name", CHOICES)
def test_a_replica_without_registered_parameters_answers_the_same(name):
    model = Transformer(chosen(name)).eval()
    copied = replica(model)
    assert not list(copied.parameters())
    assert torch.equal(copied(vectors()), model(vectors()))


def test_neither_construction_nor_a_call_prints(capfd):
    for name in CHOICES:
        Transformer(chosen(name))(vectors())
    assert capfd.readouterr() == ("", "")


def language(attention: Any = "softplus", **changes) -> ModelConfig:
    return config(**{"n_classes": None, "causal": True, "layers": 2, "attention": attention, **changes})


@pytest.mark.parametrize("attention", [*KERNELS, ("softmax", "favor")])
@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_no_token_of_a_language_model_sees_a_later_one(attention, positions):
    model = Transformer(language(attention, positions=positions)).eval()
    batch = {
        "tokens": torch.randint(20, (2, 9), generator=torch.Generator().manual_seed(1)),
        "key_mask": torch.ones(2, 9, dtype=torch.bool),
    }
    logits = model(batch)
    assert logits.shape == (2, 9, 20)
    changed = batch["tokens"].clone()
    changed[:, 5:] = (changed[:, 5:] + 3) % 20
    got = model({**batch, "tokens": changed})
    torch.testing.assert_close(got[:, :5], logits[:, :5], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(got[:, 5], logits[:, 5], atol=1e-3)


def test_without_positions_a_bidirectional_model_sees_a_set_and_with_rotary_ones_a_sequence():
    batch = {"tokens": torch.arange(7)[None], "key_mask": torch.ones(1, 7, dtype=torch.bool)}
    turned = {**batch, "tokens": batch["tokens"].flip(1)}
    for positions, alike in ((None, True), ("rotary", False)):
        model = Transformer(config("softmax", positions=positions)).eval()
        assert torch.allclose(model(batch), model(turned), atol=1e-5) == alike


def test_rotary_scores_depend_on_distance_only():
    model = Transformer(config("softmax", positions="rotary", max_length=None, dim=32)).double().eval()
    token = torch.randn(1, 1, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).expand(1, 60, 32)
    q, k, _ = model.blocks[0].attention.queries_keys_values(token, torch.arange(60)[None])
    score = q @ k.mT
    torch.testing.assert_close(score[..., 10, 3], score[..., 50, 43])
    assert bool((score[..., 10, 3] - score[..., 10, 8]).abs().max() > 1e-3)


def test_without_own_projections_queries_and_keys_are_the_input_cut_into_heads():
    attention = Transformer(config(projections="input", dim=16, heads=2)).blocks[0].attention
    x = torch.randn(3, 5, 16)
    q, k, _ = attention.queries_keys_values(x, torch.arange(5).expand(3, 5))
    torch.testing.assert_close(q, x.unflatten(-1, (2, 8)).transpose(1, 2) * 8**-0.25)
    assert torch.equal(q, k)
    assert attention.qkv.weight.shape == (16, 16)
    assert Transformer(config(projections="shared")).blocks[0].attention.qkv.weight.shape == (32, 16)


def test_equal_heads_of_keys_make_grouped_attention_the_usual_one():
    grouped, usual = Transformer(config("softmax", kv_heads=1)).eval(), Transformer(config("softmax")).eval()
    state = usual.state_dict()
    state.update(grouped.state_dict())
    for name in ("weight", "bias"):
        q, k, v = state[f"blocks.0.attention.qkv.{name}"].split((16, 8, 8))
        state[f"blocks.0.attention.qkv.{name}"] = torch.cat((q, k, k, v, v))
    usual.load_state_dict(state)
    torch.testing.assert_close(grouped(words()), usual(words()))


def test_one_memory_serves_every_way_to_cut_a_sequence():
    model = Transformer(language(("softmax", "softplus"))).eval()
    batch = {
        "tokens": torch.randint(20, (3, 12), generator=torch.Generator().manual_seed(2)),
        "key_mask": torch.ones(3, 12, dtype=torch.bool),
    }
    batch["key_mask"][1, :4] = False
    expected = model(batch)
    for cuts in ((5, 4, 1, 2), (6, 6), (11, 1)):
        memory, out = None, []
        for tokens, mask in zip(*(batch[name].split(cuts, 1) for name in ("tokens", "key_mask")), strict=True):
            mask = mask.clone()
            logits, memory = model({"tokens": tokens, "key_mask": mask}, memory=memory, return_memory=True)
            out.append(logits)
        got = torch.cat(out, 1)
        torch.testing.assert_close(got[batch["key_mask"]], expected[batch["key_mask"]], rtol=1e-5, atol=1e-5)
    assert memory.length.tolist() == [12, 8, 12]


@pytest.mark.parametrize("changes", [{}, {"attention": "favor", "window": 3}, {"attention": ("softmax", "fourier")}])
def test_a_memory_is_reordered_and_detached_with_its_sequences(changes):
    model = Transformer(language(**changes)).eval()
    ones = torch.ones(2, 6, dtype=torch.bool)
    tokens = torch.arange(12).view(2, 6)
    _, memory = model({"tokens": tokens, "key_mask": ones}, return_memory=True)
    swapped = memory.detach().index_select(torch.tensor([1, 0]))
    step = {"tokens": torch.tensor([[3], [4]]), "key_mask": ones[:, :1]}
    other = {**step, "tokens": step["tokens"].flip(0)}
    torch.testing.assert_close(model(other, memory=swapped), model(step, memory=memory).flip(0))


def test_a_memory_that_does_not_fit_is_refused():
    model, step = (
        Transformer(language("softmax")).eval(),
        {"tokens": torch.zeros(2, 1, dtype=torch.long), "key_mask": torch.ones(2, 1, dtype=torch.bool)},
    )
    _, memory = model(step, return_memory=True)
    with pytest.raises(ValueError, match="only a causal model has a memory"):
        Transformer(config())(step, return_memory=True)
    with pytest.raises(ValueError, match="memory must be a Memory, got a int"):
        model(step, memory=3)
    with pytest.raises(ValueError, match="memory must be of 2 layers and 2 sequences"):
        model(step, memory=memory.index_select(torch.tensor([0])))
    with pytest.raises(ValueError, match="must be KeyValues, got a State"):
        model(step, memory=Transformer(language())(step, return_memory=True)[1])
    with pytest.raises(ValueError, match="must be a State or None, got a KeyValues"):
        Transformer(language())(step, memory=memory)
    long = {"tokens": torch.zeros(2, 12, dtype=torch.long), "key_mask": torch.ones(2, 12, dtype=torch.bool)}
    with pytest.raises(ValueError, match="max_length=12, got 13 tokens"):
        model(step, memory=model(long, return_memory=True)[1])


def test_tied_embeddings_are_the_head_and_start_at_logits_of_order_one():
    model = Transformer(language(tie_embeddings=True, dim=256, vocab_size=500)).eval()
    assert model.head is None
    assert not any(name.startswith("head") for name in model.state_dict())
    logits = model({"tokens": torch.arange(12)[None], "key_mask": torch.ones(1, 12, dtype=torch.bool)})
    assert 0.7 < float(logits.detach().std()) < 1.4


def test_the_share_of_denominators_below_zero_is_known_in_training_where_there_can_be_any():
    model = Transformer(chosen("literal Flexformer"))
    assert model.blocks[0].attention.nonpositive is None
    model(vectors(8))
    assert 0 <= float(model.blocks[0].attention.nonpositive) <= 1
    model.eval()(vectors(8))
    assert model.blocks[0].attention.nonpositive is None
    recipe = Transformer(chosen("literal Flexformer", normalise="default", unit_norm=None))
    recipe(vectors(8))
    assert recipe.blocks[0].attention.nonpositive is None
    assert not hasattr(model.blocks[0].attention, "log_length")
    assert hasattr(recipe.blocks[0].attention, "log_length")


@pytest.mark.parametrize("attention", KERNELS)
def test_padded_token_ids_may_be_anything(attention):
    model = Transformer(config(attention)).eval()
    batch = words()
    odd = {**batch, "tokens": torch.where(batch["key_mask"], batch["tokens"], -7)}
    assert torch.equal(model(odd), model(batch))


@pytest.mark.parametrize("attention", KERNELS)
def test_rows_of_a_batch_are_independent(attention):
    model = Transformer(config(attention, layers=2)).eval()
    batch = words(6)
    halves = [{k: v[rows] for k, v in batch.items()} for rows in (slice(0, 1), slice(1, 6))]
    torch.testing.assert_close(torch.cat([model(half) for half in halves]), model(batch), rtol=1e-5, atol=1e-6)


def test_evaluation_is_deterministic_and_dropout_is_not():
    model = Transformer(config(dropout=0.5))
    batch = words()
    assert not torch.equal(model.train()(batch), model(batch))
    assert torch.equal(model.eval()(batch), model(batch))


@pytest.mark.parametrize("rng", [lambda: 3, lambda: np.random.default_rng(3), lambda: torch.Generator().manual_seed(3)])
@pytest.mark.parametrize("attention", ["softmax", "softplus"])
def test_the_seed_decides_the_start_and_the_global_state_stays(rng, attention):
    before = torch.get_rng_state()
    first, second, other = (
        Transformer(config(attention), rng=rng()),
        Transformer(config(attention), rng=rng()),
        Transformer(config(attention), rng=4),
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(first.head.weight, other.head.weight)
    if attention != "softmax":
        assert not torch.equal(first.feature_maps[0].omega, other.feature_maps[0].omega)


def test_words_start_small():
    weight = Transformer(config(vocab_size=5000)).embedding.weight.detach()
    assert abs(float(weight.std()) - 0.2) < 0.003  # 80,000 numbers: 6 standard errors


def test_layers_and_heads_start_from_different_particles():
    maps = Transformer(config(layers=2)).feature_maps
    assert not torch.equal(maps[0].omega, maps[1].omega)
    assert not torch.equal(maps[0].omega[0], maps[0].omega[1])


@pytest.mark.parametrize("attention", KERNELS)
def test_a_saved_model_answers_the_same(attention, tmp_path):
    model = Transformer(config(attention)).eval()
    torch.save(model.state_dict(), tmp_path / "model.pt")
    fresh = Transformer(config(attention), rng=9).eval()
    fresh.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True), strict=True)
    assert torch.equal(fresh(words()), model(words()))
    assert torch.equal(copy.deepcopy(model)(words()), model(words()))


@pytest.mark.parametrize("attention", ["softplus", "fourier"])
def test_queries_and_keys_are_those_that_enter_the_feature_map(attention):
    model = Transformer(config(attention, layers=2)).eval()
    seen: dict[str, torch.Tensor] = {}
    handle = model.feature_maps[1].register_forward_hook(
        lambda module, args, kwargs, out: seen.__setitem__(kwargs.get("role", "query"), args[0]), with_kwargs=True
    )
    batch = words()
    model(batch)
    handle.remove()
    q, k = model.queries_keys(batch, 1)
    assert q.shape == (4, 2, 7, 8)
    real = batch["key_mask"][:, None].expand(4, 2, 7)
    torch.testing.assert_close(q[real], seen["query"][real])
    torch.testing.assert_close(k[real], seen["key"][real])
    assert bool((q[~real] == 0).all())


def test_signed_maps_see_unit_queries_and_gain_their_output():
    model = Transformer(config("fourier")).eval()
    q, k = model.queries_keys(words(), 0)
    real = words()["key_mask"][:, None].expand(4, 2, 7)
    for side in (q, k):
        torch.testing.assert_close(side.norm(dim=-1)[real], torch.ones(int(real.sum())))
    assert model.blocks[0].attention.gain.shape == (2, 1, 8)
    assert not hasattr(Transformer(config("softplus")).blocks[0].attention, "gain")


def test_masked_mean_is_the_mean_of_the_real_tokens():
    x = torch.tensor([[[1.0], [3.0], [torch.nan]]])
    assert masked_mean(x, torch.tensor([[True, True, False]])).tolist() == [[2.0]]


def test_seeded_repeats_and_restores():
    before = torch.get_rng_state()
    draws = []
    for _ in range(2):
        with seeded(5):
            draws.append(torch.randn(3))
    assert torch.equal(*draws)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dim": 15}, "dim must be a multiple of heads"),
        ({"input_dim": 4}, "exactly one of vocab_size and input_dim"),
        ({"vocab_size": None}, "exactly one of vocab_size and input_dim"),
        ({"vocab_size": 0}, "vocab_size"),
        ({"n_classes": 1}, "n_classes"),
        ({"layers": 0}, "layers"),
        ({"heads": 2.0}, "heads"),
        ({"dropout": 1.0}, "dropout"),
        ({"dropout": float("nan")}, "dropout"),
        ({"normalise": "max"}, "normalise"),
        ({"attention": ["softplus"]}, r"attention must be a name or a tuple of names, got \['softplus'\]"),
        ({"attention": ("softplus", "softmax")}, "attention must have one name for each of the 1 layers"),
        ({"attention": "soft", "causal": True}, "'soft' has no causal"),
        ({"attention": "softmax", "window": 4}, "window needs a layer with kernel attention"),
        ({"attention": "soft", "unit_norm": True}, "unit_norm needs a layer with kernel attention, got True"),
        ({"attention": "softmax", "feature_options": {"floor": 0.1}}, "feature_options needs a layer with kernel attention"),
        ({"window": 0}, "window"),
        ({"kv_heads": 3}, "heads must be a multiple of kv_heads"),
        ({"kv_heads": 1, "projections": "shared"}, "no grouped heads"),
        ({"projections": "tied"}, "projections must be one of"),
        ({"positions": "sine"}, "positions must be one of"),
        ({"positions": "rotary", "dim": 6}, "even head dimension, got 3"),
        ({"max_length": None}, "max_length must be given"),
        ({"pooling": "max"}, "pooling must be one of"),
        ({"pooling": "cls", "causal": True}, "pooling 'cls' needs causal=False"),
        ({"n_classes": None}, "needs causal=True and vocab_size, got causal=False"),
        ({"tie_embeddings": True}, "tie_embeddings is for language models"),
        ({"causal": 1}, "causal must be True or False"),
        ({"unit_norm": "yes"}, "unit_norm must be True or False"),
        ({"temperature": 0.0}, "temperature"),
        ({"feature_options": 3}, "feature_options must be a dict, got 3"),
    ],
)
def test_bad_settings_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        config(**changes)


def test_a_window_that_no_map_can_have_is_refused_at_construction():
    for changes in ({"attention": "fourier"}, {"normalise": "count"}):
        with pytest.raises(ValueError, match="window needs a positive map and normalise='sum'"):
            Transformer(config(window=3, **changes))


def test_an_unknown_kernel_is_refused():
    with pytest.raises(ValueError, match="name must be one of"):
        Transformer(config("nonsense"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": torch.zeros(4, 7)}, "tokens must be integers"),
        ({"tokens": torch.zeros(4, 7, 5)}, "tokens must be integers"),
        ({"tokens": torch.ones(4, 7, dtype=torch.bool)}, "tokens must be integers"),
        ({"tokens": np.zeros((4, 7), dtype=int)}, "tokens must be a torch tensor, got NumPy int64"),
        ({"tokens": torch.zeros(0, 7, dtype=torch.long), "key_mask": torch.ones(0, 7, dtype=torch.bool)}, "tokens must hold a sequence"),
        ({"tokens": torch.zeros(4, 0, dtype=torch.long), "key_mask": torch.ones(4, 0, dtype=torch.bool)}, "tokens must hold a sequence"),
        ({"tokens": torch.full((4, 7), 20)}, "tokens must be in"),
        ({"tokens": torch.full((4, 7), -1)}, "tokens must be in"),
        ({"key_mask": torch.ones(4, 7)}, "key_mask must be boolean"),
        ({"key_mask": torch.ones(4, 6, dtype=torch.bool)}, "key_mask must be boolean"),
        ({"key_mask": torch.zeros(4, 7, dtype=torch.bool)}, "4 empty rows"),
        ({"tokens": torch.zeros(4, 13, dtype=torch.long), "key_mask": torch.ones(4, 13, dtype=torch.bool)}, "max_length=12"),
    ],
)
def test_bad_batches_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        Transformer(config())({**words(), **changes})


def test_missing_keys_and_wrong_vectors_are_named():
    with pytest.raises(ValueError, match="key_mask"):
        Transformer(config())({"tokens": words()["tokens"]})
    with pytest.raises(ValueError, match=r"batch must be a dict of tensors, got torch\.int64"):
        Transformer(config())(words()["tokens"])
    with pytest.raises(ValueError, match="config must be a ModelConfig"):
        Transformer({"n_classes": 2})
    for layer in (1, -1, 0.0):
        with pytest.raises(ValueError, match="layer"):
            Transformer(config()).queries_keys(words(), layer)
    with pytest.raises(ValueError, match="real numbers"):
        Transformer(config(vocab_size=None, input_dim=5))(words())
    with pytest.raises(ValueError, match=r"\(batch, time, 6\)"):
        Transformer(config(vocab_size=None, input_dim=6))(vectors())


def test_seed_from_refuses_what_is_no_seed():
    for bad in (-1, 1.5, None, True):
        with pytest.raises(ValueError, match="rng"):
            seed_from(bad)
