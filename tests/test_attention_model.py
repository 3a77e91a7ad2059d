from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from attention.model import ModelConfig, Transformer, masked_mean, seed_from, seeded

KERNELS = ["softmax", "softplus", "softmaxfeat", "favor", "elu", "fourier"]


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
        ({"temperature": 0.0}, "temperature"),
        ({"feature_options": 3}, "feature_options must be a dict, got 3"),
    ],
)
def test_bad_settings_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        config(**changes)


def test_an_unknown_kernel_is_refused():
    with pytest.raises(ValueError, match="name must be one of"):
        Transformer(config("nonsense"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": torch.zeros(4, 7)}, "tokens must be integers"),
        ({"tokens": torch.zeros(4, 7, 5)}, "tokens must be integers"),
        ({"tokens": torch.ones(4, 7, dtype=torch.bool)}, "tokens must be integers"),
        ({"tokens": np.zeros((4, 7), dtype=int)}, "tokens must be a torch tensor, got a ndarray"),
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
