"""Attention through few tokens as layers of the transformer: SOFT, Nystromformer, Linformer. And constants of Phase A given by the user."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from attention.align import align
from attention.config import BOTTLENECKS
from attention.counts import counts
from attention.finetune import finetune
from attention.inspection import heads_of, inspect
from attention.model import ModelConfig, Transformer
from attention.nystromformer import naive_nystromformer_attention

LENGTH = 24
each_name = pytest.mark.parametrize("name", BOTTLENECKS)


def config(name: str, **changes: Any) -> ModelConfig:
    sizes: dict[str, Any] = {"n_classes": 2, "max_length": LENGTH, "vocab_size": 30, "dim": 16, "heads": 2, "n_features": 8, "dropout": 0.0}
    return ModelConfig(**{**sizes, "attention": name, **changes})


def batch(n: int = 6, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(3, LENGTH + 1, (n, 1), generator=generator)
    tokens = torch.randint(1, 30, (n, LENGTH), generator=generator)
    return {"tokens": tokens, "key_mask": torch.arange(LENGTH) < lengths, "labels": torch.arange(n) % 2}


@each_name
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_padding_changes_nothing(name: str, pooling: str) -> None:
    model, one = Transformer(config(name, pooling=pooling)).eval(), batch()
    logits, length = model(one), int(one["key_mask"][0].sum())
    alone = model({"tokens": one["tokens"][:1, :length], "key_mask": one["key_mask"][:1, :length]})
    torch.testing.assert_close(alone[0], logits[0], atol=2e-5, rtol=1e-4)


@each_name
def test_the_few_tokens_learn(name: str) -> None:
    one, model = batch(16), Transformer(config(name))
    history = finetune(model, [one], n_epochs=30, lr=1e-2, rng=0)
    assert float(history.train_loss[-1]) < 0.3 * float(history.train_loss[0])


def test_linformer_is_softmax_to_mixtures_of_the_tokens_of_its_own_scale() -> None:
    model, one = Transformer(config("linformer")).double(), batch()
    attention = model.blocks[0].attention
    x = torch.randn(6, LENGTH, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    position = torch.arange(LENGTH).expand(6, -1)
    q, k, v = attention.queries_keys_values(x, position)
    k, v = (part * one["key_mask"][:, None, :, None] for part in (k, v))
    weights = (q @ (attention.bottleneck.keys @ k).mT).softmax(-1)
    expected = attention.out((weights @ (attention.bottleneck.values @ v)).transpose(1, 2).flatten(2))
    torch.testing.assert_close(attention(x, one["key_mask"], position)[0], expected)


def test_nystromformer_is_its_definition_on_the_layers_queries_and_keys() -> None:
    attention = Transformer(config("nystromformer", projections="shared")).double().blocks[0].attention  # q = k: a matrix far from singular
    x = 3 * torch.randn(2, LENGTH, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    q, k, v = attention.queries_keys_values(x, torch.arange(LENGTH).expand(2, -1))
    unscaled = q.shape[-1] ** 0.25  # the definition scales by itself
    heads = [[naive_nystromformer_attention(unscaled * q[b, h], unscaled * k[b, h], v[b, h], 8) for h in range(2)] for b in range(2)]
    expected = attention.out(torch.stack([torch.stack(row) for row in heads]).transpose(1, 2).flatten(2))
    got, _ = attention(x, None, torch.arange(LENGTH).expand(2, -1))
    error = ((got - expected).norm() / expected.norm()).detach()
    assert float(error) < 1e-3


@each_name
def test_parameters_and_operations_are_counted(name: str) -> None:
    model = Transformer(config(name, max_length=240)).eval()
    parts = counts(model, 240)
    assert parts["total"].parameters == sum(p.numel() for p in model.parameters())
    one = {"tokens": torch.zeros(1, 240, dtype=torch.long), "key_mask": torch.ones(1, 240, dtype=torch.bool)}
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        model(one)
    assert parts["total"].flops == pytest.approx(counter.get_total_flops(), rel=0.05)


@each_name
def test_what_a_bottleneck_cannot_be_is_refused(name: str) -> None:
    for change in ({"causal": True}, {"kv_heads": 1}, {"window": 3}):
        with pytest.raises(ValueError, match=f"'{name}' has no causal, grouped or windowed form"):
            config(name, **change)
    with pytest.raises(ValueError, match="max_length must be given"):
        config(name, max_length=None, positions=None)
    with pytest.raises(ValueError, match="temperature needs a layer with kernel attention"):
        config(name, temperature=2.0)


@each_name
def test_a_bottleneck_has_no_pairs_to_inspect_or_to_teach(name: str) -> None:
    model = Transformer(config(name))
    with pytest.raises(ValueError, match=f"got '{name}'"):
        heads_of(model, batch(), 0)
    assert bool(np.isnan(inspect(model, batch()).entropy).all())
    with pytest.raises(ValueError, match=f"got '{name}'"):
        align(Transformer(config("softplus")), [batch(12)], targets="teacher", teacher=model, n_steps=2, rng=0)


# ---- constants of Phase A ----------------------------------------------------------------------------------------------------------------


def aligned(name: str = "softplus", **constants: float) -> Any:
    model = Transformer(config(name), rng=1)
    return align(model, [batch(40)], n_steps=5, early_stopping=False, constants=constants or None, rng=0)


def test_constants_take_the_place_of_the_objectives_own() -> None:
    text = aligned(lam=0.3, s=1.0, beta=50.0, step_size=0.01, radius=1.5).attrs
    assert '"beta": 50.0' in text["sampler"]
    assert '"step_size": 0.01' in text["sampler"]
    assert '"radius": 1.5' in text["domain"]
    assert '"s": 1.0' in text["energy"]


def test_no_repulsion_leaves_the_term_out_and_more_of_it_spreads_particles() -> None:
    assert "energy_riesz" not in aligned(lam=0.0)
    assert "energy_riesz" in aligned(lam=0.1)
    weak, strong = (float(aligned("softmaxfeat", lam=lam, beta=1e12).min_gap.isel(step=-1).mean()) for lam in (0.01, 10.0))
    assert strong > weak


def test_the_default_constants_said_aloud_change_nothing() -> None:
    first, second = aligned("softmaxfeat"), aligned("softmaxfeat", lam=1e-3, s=0.0, step_size=2.0, beta=1e5, radius=2 * 8**0.5)
    np.testing.assert_array_equal(first.omega_after, second.omega_after)


@pytest.mark.parametrize(("name", "value", "message"), [("mass", 1.0, "some of"), ("beta", 0.0, "beta"), ("lam", -1.0, "lam")])
def test_wrong_constants_are_named(name: str, value: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        aligned(**{name: value})


def test_constants_of_what_the_user_replaced_are_refused() -> None:
    from particles.langevin import Langevin

    model = Transformer(config("softplus"))
    with pytest.raises(ValueError, match="constants must not say 'beta'"):
        align(model, [batch(40)], sampler=Langevin(1.0, 10.0), constants={"beta": 5.0}, n_steps=2, rng=0)
