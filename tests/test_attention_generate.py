from __future__ import annotations

import pytest
import torch

from attention.feature_map import MAPS
from attention.generate import chosen
from attention.model import KeyValues, ModelConfig, Transformer

LAYERS = ["softmax", "softplus", "favor", "fourier", "flexformer", ("softmax", "hedgehog")]


def language(attention="softplus", **changes) -> Transformer:
    sizes = {"causal": True, "max_length": 40, "vocab_size": 20, "dim": 16, "heads": 2, "ff": 24, "layers": 2, "n_features": 8}
    return Transformer(ModelConfig(**{**sizes, "attention": attention, **changes}), rng=3).eval()


def prompts(n: int = 3, time: int = 6) -> torch.Tensor:
    return torch.randint(20, (n, time), generator=torch.Generator().manual_seed(0))


def by_full_evaluation(model: Transformer, tokens: torch.Tensor, n_new: int) -> torch.Tensor:
    for _ in range(n_new):
        logits = model({"tokens": tokens, "key_mask": torch.ones_like(tokens, dtype=torch.bool)})
        tokens = torch.cat((tokens, logits[:, -1].argmax(-1, keepdim=True)), 1)
    return tokens


@pytest.mark.parametrize("attention", LAYERS)
@pytest.mark.parametrize("changes", [{}, {"positions": "rotary", "kv_heads": 1}, {"tie_embeddings": True, "projections": "shared"}])
def test_greedy_tokens_are_those_of_full_evaluation(attention, changes):
    model = language(attention, **changes).double()  # float64: ties in float32 could break either way
    assert torch.equal(model.generate(prompts(), 8), by_full_evaluation(model, prompts(), 8))


@pytest.mark.parametrize("attention", [*MAPS, "softmax", ("softmax", "hedgehog")])
def test_logits_of_single_steps_are_those_of_full_evaluation_to_rounding(attention):
    wide = {"cosformer": 16, "polaformer": 16}.get(attention, 8)  # two features for each of the head's 8 dimensions
    model, tokens = language(attention, n_features=wide), prompts(3, 16)
    ones = torch.ones_like(tokens, dtype=torch.bool)
    expected = model({"tokens": tokens, "key_mask": ones})
    logits, memory = model({"tokens": tokens[:, :7], "key_mask": ones[:, :7]}, return_memory=True)
    torch.testing.assert_close(logits, expected[:, :7], rtol=1e-5, atol=1e-5)
    for i in range(7, 16):
        logits, memory = model({"tokens": tokens[:, i : i + 1], "key_mask": ones[:, :1]}, memory=memory, return_memory=True)
        torch.testing.assert_close(logits[:, 0], expected[:, i], rtol=1e-5, atol=1e-5)


def test_a_windowed_kernel_generates_as_it_evaluates():
    model = language("favor", window=4).double()
    assert torch.equal(model.generate(prompts(), 8), by_full_evaluation(model, prompts(), 8))


@pytest.mark.parametrize("attention", LAYERS)
@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_prompts_of_different_lengths_continue_as_each_one_does_alone(attention, positions):
    model = language(attention, positions=positions).double()
    tokens, lengths = prompts(3, 6), (6, 1, 4)
    key_mask = torch.arange(6) >= 6 - torch.tensor(lengths)[:, None]
    got = model.generate(tokens.masked_fill(~key_mask, -5), 5, key_mask=key_mask)
    for row, length in enumerate(lengths):
        assert torch.equal(got[row, 6 - length :], model.generate(tokens[row : row + 1, 6 - length :], 5)[0])


def test_a_kernel_remembers_the_same_amount_at_any_length_and_softmax_everything():
    sizes = {}
    for attention in ("softplus", "softmax"):
        model = language(attention, positions="rotary", max_length=None)
        for time in (10, 500):
            tokens = prompts(1, time)
            _, memory = model({"tokens": tokens, "key_mask": torch.ones_like(tokens, dtype=torch.bool)}, return_memory=True)
            sizes[attention, time] = sum(part.numel() for layer in memory.layers for part in layer)
            assert isinstance(memory.layers[0], KeyValues) == (attention == "softmax")
    assert sizes["softplus", 10] == sizes["softplus", 500]
    assert sizes["softmax", 500] == 50 * sizes["softmax", 10]


def test_the_model_and_its_mode_are_left_alone():
    model = language(dropout=0.5).train()
    first = model.generate(prompts(), 5)
    assert torch.equal(first, model.generate(prompts(), 5))
    assert model.training
    assert torch.equal(model.generate(prompts(), 0), prompts())
    assert first.dtype == torch.int64
    assert not first.requires_grad


def test_sampling_repeats_with_its_generator_and_leaves_the_global_one():
    model, state = language(), torch.get_rng_state()
    draws = [model.generate(prompts(), 12, temperature=2.0, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert torch.equal(torch.get_rng_state(), state)


def test_drawn_tokens_have_the_probabilities_of_the_tempered_logits():
    """40,000 draws: each frequency within 5 standard errors, a false alarm once in about 10^6; the temperature left out is found."""
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]])
    draws = chosen(logits.expand(40_000, 4), temperature=0.5, generator=torch.Generator().manual_seed(0))
    frequency = draws.bincount(minlength=4) / len(draws)

    def off(expected: torch.Tensor) -> float:
        return float(((frequency - expected).abs() / (expected * (1 - expected) / len(draws)).sqrt()).max())

    assert off((logits[0] / 0.5).softmax(-1)) < 5 < off(logits[0].softmax(-1))


def test_top_k_draws_among_the_likeliest_only():
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]]).expand(1000, 4)
    generator = torch.Generator().manual_seed(0)
    assert set(chosen(logits, temperature=5.0, top_k=2, generator=generator).tolist()) == {1, 2}
    assert set(chosen(logits, temperature=5.0, top_k=9, generator=generator).tolist()) == {0, 1, 2, 3}
    assert chosen(logits, temperature=0.01, top_k=1, generator=generator).tolist() == [2] * 1000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_new": -1}, "n_new"),
        ({"n_new": 2.0}, "n_new"),
        ({"n_new": 35}, r"within max_length=40, got \(3, 6\) and n_new=35"),
        ({"tokens": torch.zeros(3, 6)}, "tokens must be integers"),
        ({"tokens": torch.zeros(6, dtype=torch.long)}, "tokens must be integers"),
        ({"tokens": torch.zeros(3, 0, dtype=torch.long)}, "tokens must hold a sequence"),
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": 1.0}, "generator must be a torch.Generator where temperature > 0, got None"),
        ({"top_k": 3}, "need temperature > 0"),
        ({"top_k": 0, "temperature": 1.0, "generator": torch.Generator()}, "top_k"),
        ({"key_mask": torch.ones(3, 5, dtype=torch.bool)}, "key_mask must be boolean"),
        ({"key_mask": torch.arange(6).expand(3, 6) < 4}, "padded on the left, got 3 rows"),
    ],
)
def test_bad_requests_are_named(options, message):
    options = {"tokens": prompts(), "n_new": 3, **options}
    with pytest.raises(ValueError, match=message):
        language().generate(options.pop("tokens"), options.pop("n_new"), **options)


def test_what_is_no_prompt_is_refused_without_new_tokens_too():
    with pytest.raises(ValueError, match="tokens must be integers"):
        language().generate(prompts().float(), 0)
    with pytest.raises(ValueError, match=r"tokens must be in \[0, 20\)"):
        language().generate(prompts() + 20, 0)


def test_the_mode_is_restored_after_an_error():
    model, blocked = language().train(), Exception("no")

    def fail(*_):
        raise blocked

    model.norm.register_forward_hook(fail)
    with pytest.raises(Exception, match="no"):
        model.generate(prompts(), 2)
    assert model.training


def test_a_classifier_generates_nothing():
    with pytest.raises(ValueError, match="must be a language model"):
        language(n_classes=3).generate(prompts(), 3)
