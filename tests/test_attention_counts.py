from __future__ import annotations

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from attention.counts import counts
from attention.model import ModelConfig, Transformer

KINDS = {
    "softmax": {},
    "favor": {},
    "softplus": {},
    "fourier": {},
    "hedgehog": {},
    "flexformer-nonstationary": {},
    "polaformer": {"n_features": 32},
    "soft": {"n_features": 8},
    "grouped": {"attention": "softplus", "kv_heads": 1},
    "no W_q, W_k": {"attention": "softplus", "projections": "input"},
    "cls": {"attention": "softplus", "pooling": "cls"},
    "vectors": {"attention": "softplus", "vocab_size": None, "input_dim": 7},
    "language model": {"attention": ("softmax", "softplus"), "n_classes": None, "causal": True},
    "tied": {"attention": "softmax", "n_classes": None, "causal": True, "tie_embeddings": True},
}


def config(name: str, **changes) -> ModelConfig:
    sizes = {"n_classes": 3, "max_length": 256, "vocab_size": 20, "dim": 32, "heads": 2, "ff": 48, "layers": 2, "n_features": 16}
    return ModelConfig(**{**sizes, "attention": name, **KINDS.get(name, {}), **changes})


def measured(model: Transformer, time: int) -> int:
    """FLOPs that torch counts in one forward pass of one sequence."""
    shape = (1, time) if model.config.vocab_size is not None else (1, time, model.config.input_dim)
    tokens = torch.zeros(shape, dtype=torch.long if model.config.vocab_size is not None else torch.float32)
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        model.eval()({"tokens": tokens, "key_mask": torch.ones(1, time, dtype=torch.bool)})
    return counter.get_total_flops()


@pytest.mark.parametrize("name", KINDS)
def test_parameters_are_all_of_the_model_and_need_no_memory_to_be_counted(name):
    model = Transformer(config(name))
    parts = counts(model, 10)
    assert parts == counts(config(name), 10)
    assert parts["total"].parameters == sum(p.numel() for p in model.parameters())
    assert parts["total"].parameters == sum(part.parameters for name, part in parts.items() if name != "total")


@pytest.mark.parametrize("name", [name for name in KINDS if name not in ("language model", "soft")])
@pytest.mark.parametrize("time", [1, 24, 200])
def test_flops_are_those_that_torch_counts(name, time):
    model = Transformer(config(name))
    assert counts(model, time)["total"].flops == measured(model, time)


@pytest.mark.parametrize("time", [64, 256])
def test_flops_of_chunked_causal_attention_are_torchs_within_five_percent(time):
    model = Transformer(config("language model"))
    assert measured(model, time) == pytest.approx(counts(model, time)["total"].flops, rel=0.05)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("window", "time"), [(8, 128), (8, 250), (100, 250)])
def test_flops_of_windows_are_torchs_within_five_percent(window, time, causal):
    model = Transformer(config("softplus", window=window, causal=causal))
    assert measured(model, time) == pytest.approx(counts(model, time)["total"].flops, rel=0.05)


def test_flops_of_soft_attention_are_torchs_within_five_percent():
    """The rest are norms and steps of the Newton iteration's start and its residual."""
    model = Transformer(config("soft"))
    assert measured(model, 256) == pytest.approx(counts(model, 256)["total"].flops, rel=0.05)


def test_counts_by_hand():
    parts = counts(config("favor", layers=1), 10)
    assert parts["embedding"] == (20 * 32 + 256 * 32, 0)
    assert parts["projections"] == (32 * 96 + 96 + 32 * 32 + 32, 2 * 10 * 32 * (96 + 32))
    assert parts["kernel"] == (2 * 16 * 16, 2 * 10 * 2 * 2 * 16 * 16)
    assert parts["mixing"] == (0, 2 * 2 * 10 * 10 * (16 + 17))  # ten tokens: the matrix of scores is cheaper
    assert counts(config("favor", layers=1), 200)["mixing"] == (0, 4 * 2 * 200 * 16 * 17)
    assert parts["feed_forward"] == (2 * 32 * 48 + 48 + 32, 2 * 10 * 2 * 32 * 48)
    assert parts["norms"] == (3 * 64, 0)
    assert parts["head"] == (32 * 3 + 3, 2 * 32 * 3)


@pytest.mark.parametrize(
    ("dim", "layers", "heads", "millions", "attention", "percent"),
    [
        (512, 6, 8, 41, "flexformer", 0.49),
        (1024, 16, 16, 247, "flexformer", 0.43),
        (512, 6, 8, 41, "flexformer-nonstationary", 0.97),
        (1024, 16, 16, 247, "flexformer-nonstationary", 0.86),
        (512, 6, 8, 41, "hedgehog", 0.49),
        (1024, 16, 16, 247, "hedgehog", 0.43),
    ],
)
def test_kernels_add_the_published_share_of_parameters(dim, layers, heads, millions, attention, percent):
    """Flexformer, WikiText-103: 64 frequencies (128 features) a head. The paper's sizes are rounded to a million, hence 0.02 points."""
    config = ModelConfig(
        vocab_size=1000, max_length=512, causal=True, dim=dim, layers=layers, heads=heads, ff=4 * dim, n_features=128, attention=attention,
        feature_options={"shared": True} if attention == "hedgehog" else {}, normalise="sum", unit_norm=False,
    )  # fmt: skip
    kernel = counts(config, 512)["kernel"].parameters
    assert 100 * kernel / (millions * 1e6) == pytest.approx(percent, abs=0.02)


def test_what_cannot_be_counted_is_named():
    with pytest.raises(ValueError, match="time"):
        counts(config("favor"), 0)
    with pytest.raises(ValueError, match="model must be a Transformer or a ModelConfig, got a str"):
        counts("favor", 3)
