"""Generation with a state of constant size: equal to running the whole text through the model again for every token."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="needs transformers")

from attention.converted import load_converted, save_converted  # noqa: E402
from attention.feature_map import feature_map  # noqa: E402
from attention.huggingface import attach  # noqa: E402
from attention.layer_kernel import LayerKernel  # noqa: E402
from attention.recurrent_cache import RecurrentCache, RecurrentLayer  # noqa: E402

HEADS, DIM = 4, 8
MASK = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1, 1], [1] * 9, [0] * 8 + [1]])
POSITIONS = (MASK.cumsum(-1) - 1).clamp(min=0)
TOKENS = torch.randint(3, 50, MASK.shape, generator=torch.Generator().manual_seed(1))
CASES = {
    "both": ({0, 1}, None),
    "first": ({0}, None),
    "second": ({1}, None),
    "mixed": ({0, 1}, [True, False, False, True]),
}  # layers with a kernel, heads of theirs that stay softmax


def new_model(family: str, case: str = "both", name: str = "favor"):
    """A random causal model of two layers, whose attention is far from uniform."""
    text = {"vocab_size": 50, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.3}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if family == "gpt2":
            model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=32, n_layer=2, n_head=HEADS, n_positions=300, **text))
        else:
            size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": HEADS, "intermediate_size": 48}
            model = transformers.LlamaForCausalLM(transformers.LlamaConfig(num_key_value_heads=2, **size, **text))
    layers, softmax = CASES[case]
    draw = torch.Generator().manual_seed(2)
    maps = {layer: feature_map(name, dim=DIM, n_features=16, heads=HEADS, generator=draw) for layer in layers}
    heads = None if softmax is None else torch.tensor(softmax)
    return attach(model.eval(), {layer: LayerKernel(phi, softmax_heads=heads) for layer, phi in maps.items()})


@torch.no_grad()
def logits(model, start: int = 0, end: int = 9, cache=None, rows: slice = slice(None)) -> torch.Tensor:
    """Of tokens start to end - 1, after those in the cache; 0 at padding."""
    how = {"cache": cache, "use_cache": True} if cache is not None else {"use_cache": False}
    tokens, positions = TOKENS[rows, start:end], POSITIONS[rows, start:end]
    return model(tokens, attention_mask=MASK[rows, :end], position_ids=positions, **how).logits * MASK[rows, start:end, None]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_tokens_split_anywhere_give_the_logits_of_all_at_once(family, case):
    model = new_model(family, case)
    whole = logits(model)
    for cuts in [(), *itertools.combinations(range(1, 9), 1), (5, 7), (1, 2, 3, 8), tuple(range(1, 9))]:
        cache, ends = RecurrentCache(model), (0, *cuts, 9)
        parts = [logits(model, start, end, cache) for start, end in itertools.pairwise(ends)]
        torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-4, atol=1e-4)
        assert cache.get_seq_length() == cache.get_seq_length(1) == 9
    cache = RecurrentCache(model)  # control: a cache that forgets its first part
    logits(model, 0, 5, cache)
    for layer in cache.layers:
        if isinstance(layer, RecurrentLayer):
            layer.state = layer.state._replace(context=0 * layer.state.context, key_sum=0 * layer.state.key_sum)
    assert (logits(model, 5, 9, cache) - whole[:, 5:]).abs().max() > 1e-2


@pytest.mark.parametrize("name", ["hedgehog", "flexformer-nonstationary", "cosformer", "softplus"])
def test_other_maps_too(name):
    model = new_model("llama", name=name)
    cache = RecurrentCache(model)
    parts = [logits(model, start, end, cache) for start, end in ((0, 4), (4, 5), (5, 9))]
    torch.testing.assert_close(torch.cat(parts, 1), logits(model), rtol=1e-4, atol=1e-4)


def test_particles_of_the_key_heads_make_the_state_smaller():
    model = new_model("llama")
    attach(model, "favor", n_features=16, heads=2, generator=torch.Generator().manual_seed(0))
    cache = RecurrentCache(model)
    parts = [logits(model, start, end, cache) for start, end in ((0, 4), (4, 9))]
    torch.testing.assert_close(torch.cat(parts, 1), logits(model), rtol=1e-4, atol=1e-4)
    assert cache.layers[0].state.context.shape == (3, 2, 16, DIM)


def test_a_bert_that_decodes():
    text = {"vocab_size": 50, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.3}
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": HEADS, "intermediate_size": 48}
    torch.manual_seed(0)
    model = transformers.BertLMHeadModel(transformers.BertConfig(is_decoder=True, **size, **text)).eval()
    attach(model, "favor", n_features=16)
    how = {"attention_mask": MASK, "max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False}
    expected = model.generate(TOKENS, use_cache=False, **how)
    assert torch.equal(model.generate(TOKENS, cache=RecurrentCache(model), **how), expected)


WAYS = {"greedy": {}, "sampling": {"do_sample": True, "top_k": 10}, "beams": {"num_beams": 3, "num_return_sequences": 2}}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_generation_is_that_without_a_cache(family, case, way):
    model = new_model(family, case)
    how = {"attention_mask": MASK, "max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False} | WAYS[way]
    torch.manual_seed(0)
    expected = model.generate(TOKENS, use_cache=False, **how)
    for cache in (RecurrentCache(model), None):  # None: the library's own, which holds all keys
        torch.manual_seed(0)
        assert torch.equal(model.generate(TOKENS, cache=cache, **how), expected)
    assert len({tuple(row) for row in expected[:, 9:].tolist()}) > 1


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_texts_of_different_lengths_together_are_as_alone(family):
    model = new_model(family)
    how = {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False}
    together = model.generate(TOKENS, attention_mask=MASK, cache=RecurrentCache(model), **how)[:, 9:]
    for row, mask in enumerate(MASK.bool()):
        text = TOKENS[row : row + 1, mask]
        alone = model.generate(text, attention_mask=torch.ones_like(text), cache=RecurrentCache(model), **how)[:, text.shape[1] :]
        assert torch.equal(alone[0], together[row])


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_memory_of_kernel_layers_does_not_grow(family):
    def kept(case: str, n: int) -> int:
        model = new_model(family, case)
        cache = RecurrentCache(model)
        model.generate(TOKENS[:1, :2], cache=cache, max_new_tokens=n, min_new_tokens=n, do_sample=False)
        return cache.nbytes

    one = HEADS * (16 * (DIM + 1) + 1) * 4 + 2 * 8  # context, key sum and log scale in float32, two counts in int64
    assert kept("both", 10) == kept("both", 200) == 2 * one
    heads = HEADS if family == "gpt2" else 2  # control: softmax layers and heads keep every key and value
    assert kept("first", 30) - kept("first", 10) == 20 * 2 * heads * DIM * 4
    assert kept("mixed", 30) - kept("mixed", 10) == 20 * 2 * 2 * 2 * DIM * 4


@pytest.mark.parametrize("case", CASES)
def test_batch_entries_are_reordered_repeated_and_chosen(case):
    model = new_model("gpt2", case)
    expected = logits(model)[:, 6:]
    cache = RecurrentCache(model)
    logits(model, 0, 6, cache)
    cache.reorder_cache(torch.tensor([1, 0, 2]))
    with torch.no_grad():
        swapped = model(
            TOKENS[[1, 0, 2], 6:], attention_mask=MASK[[1, 0, 2]], position_ids=POSITIONS[[1, 0, 2], 6:], cache=cache, use_cache=True
        )
    swapped = swapped.logits * MASK[[1, 0, 2], 6:, None]
    torch.testing.assert_close(swapped, expected[[1, 0, 2]], rtol=1e-4, atol=1e-4)
    cache = RecurrentCache(model)
    logits(model, 0, 6, cache, slice(0, 2))
    cache.batch_repeat_interleave(2)
    cache.batch_select_indices(torch.tensor([0, 3]))
    torch.testing.assert_close(logits(model, 6, 9, cache, slice(0, 2)), expected[:2], rtol=1e-4, atol=1e-4)


def test_copies_branch_off_and_a_reset_cache_is_new():
    model = new_model("gpt2", "mixed")
    expected, cache = logits(model), RecurrentCache(model)
    logits(model, 0, 5, cache)
    branches = [copy.deepcopy(cache) for _ in range(2)]
    assert branches[0].layers[0].module is cache.layers[0].module  # the model is not copied
    for branch in branches:
        torch.testing.assert_close(logits(model, 5, 9, branch), expected[:, 5:], rtol=1e-4, atol=1e-4)
    cache.reset()
    assert cache.nbytes == cache.get_seq_length() == 0
    torch.testing.assert_close(logits(model, 0, 9, cache), expected, rtol=1e-4, atol=1e-4)


def test_a_cache_goes_on_from_call_to_call():
    """A second `generate` is given the whole text, and reads only what the cache has not seen."""
    model = new_model("llama")
    how = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False}
    cache = RecurrentCache(model)
    first = model.generate(TOKENS, attention_mask=MASK, cache=cache, **how)
    assert cache.get_seq_length() == 12  # the last token has not been read
    text = torch.cat((first, TOKENS[:, :3]), 1)
    mask = torch.cat((MASK, torch.ones(3, 7, dtype=MASK.dtype)), 1)
    expected = model.generate(text, attention_mask=mask, use_cache=False, **how)
    assert torch.equal(model.generate(text, attention_mask=mask, cache=cache, **how), expected)


def test_loaded_models_generate(tmp_path):
    for family in ("gpt2", "llama"):
        model = new_model(family, "mixed")
        save_converted(model, tmp_path / family)
        loaded = load_converted(tmp_path / family)
        how = {"attention_mask": MASK, "max_new_tokens": 8, "do_sample": False}
        expected = model.generate(TOKENS, cache=RecurrentCache(model), **how)
        assert torch.equal(loaded.generate(TOKENS, cache=RecurrentCache(loaded), **how), expected)


def test_gradients_pass_through_a_cache():
    model = new_model("gpt2")

    def gradients(ends):
        model.zero_grad()
        cache = RecurrentCache(model)
        parts = [model(TOKENS[1:2, a:b], cache=cache, use_cache=True).logits for a, b in itertools.pairwise(ends)]
        torch.cat(parts, 1).square().mean().backward()
        return [p.grad.clone() for p in model.parameters()]

    for whole, split in zip(gradients((0, 9)), gradients((0, 4, 9))):
        torch.testing.assert_close(split, whole, rtol=1e-3, atol=1e-4)


def test_a_failed_step_leaves_nothing_behind():
    model = new_model("gpt2")
    expected, cache = logits(model), RecurrentCache(model)
    with pytest.raises(ValueError, match="attention_mask must be"):
        model(TOKENS, attention_mask=torch.zeros(3, 1, 9, 9), cache=cache, use_cache=True)
    cache = RecurrentCache(model)
    logits(model, 0, 5, cache)
    cache.layers[1].update(*torch.randn(2, 3, HEADS, 2, DIM))  # announced, and never read
    assert torch.equal(logits(model), expected)


def test_a_cache_of_another_model_is_refused():
    """A copy does not share the kernels that the cache announces keys to, and would see none but the latest."""
    model = new_model("gpt2")
    with pytest.raises(ValueError, match="RecurrentCache must be used with the model that it was made for"):
        copy.deepcopy(model).generate(TOKENS, cache=RecurrentCache(model), attention_mask=MASK, max_new_tokens=3, do_sample=False)


def test_wrong_use_is_refused():
    model = new_model("gpt2")
    plain = transformers.GPT2LMHeadModel(copy.deepcopy(model.config))
    plain.set_attn_implementation("sdpa")
    with pytest.raises(ValueError, match="model must have kernels attached"):
        RecurrentCache(plain)
    bert = transformers.BertModel(
        transformers.BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=8, vocab_size=9)
    )
    with pytest.raises(ValueError, match="model must be causal"):
        RecurrentCache(attach(bert, "favor", n_features=16))
    cache = RecurrentCache(model)
    logits(model, 0, 5, cache)
    with pytest.raises(ValueError, match="cannot forget its last tokens, got -1"):
        cache.crop(-1)
    with pytest.raises(ValueError, match="output_attentions must be False with a recurrent cache"):
        model(TOKENS, cache=RecurrentCache(model), output_attentions=True)
    model.set_attn_implementation("sdpa")
    with pytest.raises(ValueError, match="RecurrentCache must be used with the attached model"):
        logits(model, 5, 9, cache)
