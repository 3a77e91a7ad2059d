from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from attention import feature_map, kernel_attention
from attention.inspection import (
    Heads,
    attention_maps,
    denominators,
    effective_rank,
    feature_rank,
    heads_from,
    heads_of,
    inspect,
    kernel_error,
    row_entropy,
)
from attention.measures import load_measures, save_measures
from attention.model import ModelConfig, Transformer

HEADS, TIME, DIM = 3, 12, 4
MASK = torch.arange(TIME) < torch.tensor([[TIME], [8]])


def vectors(seed: int = 0) -> tuple[Tensor, Tensor]:
    q, k = torch.randn(2, 2, HEADS, TIME, DIM, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return 0.7 * q, 0.7 * k


def kernel(name: str, n_features: int = 64, **options):
    return feature_map(name, dim=DIM, n_features=n_features, heads=HEADS, generator=torch.Generator().manual_seed(1), **options)


def model(attention=("favor", "softmax", "flexformer-nonstationary"), **changes) -> Transformer:
    sizes = {"n_classes": 2, "vocab_size": 10, "dim": 12, "heads": 3, "layers": 3, "max_length": TIME, "n_features": 8, "ff": 12}
    return Transformer(ModelConfig(**{**sizes, "attention": attention, **changes}), rng=0)


def batch() -> dict[str, Tensor]:
    return {"tokens": torch.randint(10, (2, TIME), generator=torch.Generator().manual_seed(0)), "key_mask": MASK}


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("name", ["favor", "softplus", "hedgehog", "cosformer", "linear"])
def test_maps_of_positive_kernels_are_their_attention(name, is_causal):
    n_features = {"linear": DIM, "cosformer": 2 * DIM}.get(name, 64)
    (q, k), phi = vectors(), kernel(name, n_features)
    maps = attention_maps(heads_from(q, k, phi, key_mask=MASK, is_causal=is_causal))
    v = torch.eye(TIME, dtype=torch.float64).expand(2, HEADS, TIME, TIME)
    expected = kernel_attention(q, k, v, phi, key_mask=MASK, is_causal=is_causal, scale=1.0).detach()
    seen = np.isfinite(maps.kernel.values)
    causal = np.tril(np.ones((TIME, TIME), bool)) if is_causal else True
    np.testing.assert_array_equal(seen, np.broadcast_to((MASK[:, None, :, None] & MASK[:, None, None]).numpy() & causal, seen.shape))
    np.testing.assert_allclose(maps.kernel.values[seen], expected.numpy()[seen], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        maps.kernel.sum("key").values[seen.any(-1)], expected.sum(-1).numpy()[seen.any(-1)]
    )  # rectified rows can be 0
    np.testing.assert_allclose((maps.kernel - maps.softmax).values, maps.error.values)
    exact = (q @ k.mT).masked_fill(~torch.from_numpy(seen), -math.inf).softmax(-1).numpy()
    np.testing.assert_allclose(maps.softmax.values[seen], exact[seen], rtol=1e-9)


def test_a_swapped_key_shows_in_its_columns():
    class Swapped(torch.nn.Module):
        """A map that reads keys 2 and 5 in each other's place."""

        signed, positional, heads, feature_dim = False, False, HEADS, 4096

        def __init__(self) -> None:
            super().__init__()
            self.inner = kernel("favor", 4096)

        def forward(self, x, *, role="query"):
            order = torch.arange(TIME)
            order[[2, 5]] = order[[5, 2]]
            return self.inner(x[:, :, order] if role == "key" else x, role=role)

    (q, k), size = vectors(), {}
    for name, phi in (("right", kernel("favor", 4096)), ("swapped", Swapped())):
        size[name] = abs(attention_maps(heads_from(q, k, phi)).error).mean(("sequence", "head", "query"))
    wrong = size["swapped"] / size["right"]
    assert set(np.argsort(wrong.values)[-2:]) == {2, 5}
    assert float(wrong.isel(key=[2, 5]).min()) > 2 * float(wrong.drop_isel(key=[2, 5]).max())


class Exact(torch.nn.Module):
    """Features of a known set of points whose products are exp(q.k): the rows of the Cholesky factor of that matrix."""

    signed, positional, heads, feature_dim = False, False, HEADS, 2 * TIME

    def __init__(self, q: Tensor, k: Tensor) -> None:
        super().__init__()
        points = torch.cat((q, k), 2)
        self.features = torch.linalg.cholesky((points @ points.mT).exp())

    def forward(self, x: Tensor, *, role: str = "query") -> tuple[Tensor, Tensor]:
        return x.new_zeros(x.shape[:3]), self.features[:, :, :TIME] if role == "query" else self.features[:, :, TIME:]


def test_a_kernel_that_is_softmax_has_no_error():
    q, k = vectors()
    errors = kernel_error(heads_from(q, k, Exact(q, k), key_mask=MASK))
    assert float(abs(errors.divergence).max()) < 1e-12
    assert float(errors.total_variation.max()) < 1e-12
    assert float(errors.negative.max()) == 0
    np.testing.assert_allclose(errors.log_kernel, errors.log_softmax, atol=1e-9)
    assert int(errors.log_kernel.notnull().sum()) == HEADS * (TIME**2 + 8**2)


def test_errors_of_heads_are_means_over_their_rows():
    (q, k), phi = vectors(), kernel("favor")
    errors, maps = kernel_error(heads_from(q, k, phi, key_mask=MASK)), attention_maps(heads_from(q, k, phi, key_mask=MASK))
    distance = 0.5 * abs(maps.error).sum("key")
    rows = maps.error.notnull().any("key")
    np.testing.assert_allclose(errors.total_variation, distance.where(rows).mean(("sequence", "query")))
    terms = maps.softmax * (np.log(maps.softmax) - np.log(maps.kernel))
    np.testing.assert_allclose(errors.divergence, terms.sum("key").where(rows).mean(("sequence", "query")))


def test_a_collapsed_head_has_rank_one():
    phi = kernel("softplus")
    with torch.no_grad():
        phi.omega[1] = phi.omega[1, :1]
    ranks = effective_rank(heads_from(*vectors(), phi, key_mask=MASK))
    for side in ("query", "key"):
        assert float(ranks[side][1]) == pytest.approx(1, abs=1e-6)
        assert float(ranks[side].isel(head=[0, 2]).min()) > 1.02
    assert ranks.attrs["n_features"] == 64


def test_effective_rank_is_that_of_the_true_features_of_real_tokens():
    (q, k), phi = vectors(), kernel("favor")
    k[1, :, 8:] = 50.0
    ranks = effective_rank(heads_from(q, k, phi, key_mask=MASK))
    log_scale, features = phi(k, role="key")
    true = (features * log_scale.exp()[..., None]).detach()
    for head in range(HEADS):
        assert float(ranks.key[head]) == pytest.approx(feature_rank(true[:, head][MASK].numpy()), rel=1e-9)


def test_rank_of_features_by_hand():
    assert feature_rank(np.eye(5)) == pytest.approx(5)
    assert feature_rank(np.ones((7, 3))) == pytest.approx(1)
    shares = np.array([0.75, 0.25])
    assert feature_rank(np.diag(np.sqrt(shares))) == pytest.approx(np.exp(-(shares * np.log(shares)).sum()))
    with pytest.raises(ValueError, match="not all zero"):
        feature_rank(np.zeros((3, 2)))


def test_a_uniform_head_has_the_largest_entropy():
    phi = kernel("softplus")
    with torch.no_grad():
        phi.omega[2] = 0.0
    entropy = row_entropy(heads_from(*vectors(), phi, key_mask=MASK))
    share = entropy.kernel / entropy.largest
    np.testing.assert_allclose(share.isel(head=2).values[MASK.numpy()], 1, rtol=1e-12)
    assert float(share.isel(head=[0, 1]).min()) < 0.99
    assert float(entropy.largest.max()) == pytest.approx(math.log(TIME))
    np.testing.assert_array_equal(entropy.kernel.isnull().values[:, 0], ~MASK.numpy())
    maps = attention_maps(heads_from(*vectors(), phi, key_mask=MASK))
    for name in ("softmax", "kernel"):
        np.testing.assert_allclose(entropy[name].where(entropy.largest.notnull(), 0), -(maps[name] * np.log(maps[name])).sum("key"))


def test_softmax_alone_has_entropies_and_nothing_else():
    heads = heads_from(*vectors(), None, key_mask=MASK)
    assert "kernel" not in row_entropy(heads)
    for function in (attention_maps, kernel_error, effective_rank, denominators):
        with pytest.raises(ValueError, match="softmax layer"):
            function(heads)


def test_a_head_with_a_negative_denominator_is_found():
    q, k = (x.abs() for x in vectors())
    q[1, 2, 3] = -1.0  # one query that points away from all keys
    phi = feature_map("identity", dim=DIM, n_features=DIM, heads=HEADS)
    sums = denominators(heads_from(q, k, phi, key_mask=MASK))
    np.testing.assert_allclose(sums.nonpositive, [0, 0, 1 / 20])
    assert float(sums.relative[1, 2, 3]) == pytest.approx(-1)
    np.testing.assert_allclose(sums.smallest, 1)
    q[0, 1, 4] = torch.linalg.svd(k[0, 1].sum(0, keepdim=True)).Vh[-1]  # at a right angle to the sum of the keys
    sums = denominators(heads_from(q, k, phi, key_mask=MASK))
    assert float(sums.smallest[1]) < 1e-12
    assert float(sums.smallest[0]) == pytest.approx(1)


def test_positive_maps_lose_nothing_in_their_denominators():
    sums = denominators(heads_from(*vectors(), kernel("favor"), key_mask=MASK))
    np.testing.assert_allclose(sums.relative.values[:, 0][MASK], 1, rtol=1e-14)
    assert float(sums.nonpositive.max()) == 0
    q, k = (3 * x for x in vectors())
    signed = denominators(heads_from(q, k, kernel("fourier"), key_mask=MASK))
    assert float(signed.nonpositive.min()) > 0.1
    kernels = attention_maps(heads_from(q, k, kernel("fourier"), key_mask=MASK)).kernel
    np.testing.assert_allclose(kernels.sum("key"), signed.relative.fillna(0), atol=1e-12)
    np.testing.assert_allclose(abs(kernels).sum("key"), signed.relative.notnull())


def test_rectified_maps_can_lose_a_row():
    q, k = (x.abs() for x in vectors())
    q[0, 1, 4] = -q[0, 1, 4]
    heads = heads_from(q, k, kernel("cosformer", 2 * DIM), key_mask=MASK)
    sums = denominators(heads)
    np.testing.assert_allclose(sums.nonpositive, [0, 1 / 20, 0])
    assert float(sums.relative[0, 1, 4]) == 0
    np.testing.assert_array_equal(attention_maps(heads).kernel[0, 1, 4], 0)
    assert bool(kernel_error(heads).log_kernel[0, 1, 4].isnull().all())


def test_wide_inputs_neither_overflow_nor_lose_a_row():
    q, k = (40 * x for x in vectors())
    phi = kernel("favor")
    maps = attention_maps(heads_from(q, k, phi, key_mask=MASK))
    np.testing.assert_allclose(maps.kernel.sum("key").values[:, 0][MASK], 1)
    log_q, log_k = ((x @ phi.omega.detach().double().mT - x.square().sum(-1, keepdim=True) / 2) for x in (q, k))
    logits = (log_q[:, :, :, None] + log_k[:, :, None]).logsumexp(-1).masked_fill(~MASK[:, None, None], -math.inf)
    expected = logits.softmax(-1).where(MASK[:, None, :, None], 0)
    np.testing.assert_allclose(maps.kernel.fillna(0), expected, atol=1e-9)


def test_a_model_is_inspected_layer_by_layer():
    trained = model().train()
    result = inspect(trained, batch())
    assert trained.training
    assert result.attention.values.tolist() == ["favor", "softmax", "flexformer-nonstationary"]
    assert {name for name in result if bool(result[name][1].isnull().any())} == set(result) - {"entropy_softmax"}
    assert bool(result.isel(layer=[0, 2]).notnull().all().to_dataarray().all())
    heads = heads_of(trained, batch(), 2)
    np.testing.assert_array_equal(result.effective_rank[2], effective_rank(heads).key)
    np.testing.assert_array_equal(result.nonpositive[2], denominators(heads).nonpositive)
    np.testing.assert_array_equal(result.divergence[2], kernel_error(heads).divergence)
    assert bool(inspect(model(("soft", "soft", "favor")), batch()).entropy_softmax[:2].isnull().all())


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_heads_of_a_model_are_what_its_layers_compute(kv_heads):
    causal = model(("favor",) * 3, causal=True, heads=4, kv_heads=kv_heads, dim=16).eval()
    heads = heads_of(causal, batch(), 1)
    q, k = causal.queries_keys(batch(), 1)
    np.testing.assert_array_equal(heads.seen.q, q.detach().double())
    maps = attention_maps(heads)
    v = torch.eye(TIME).expand(2, kv_heads, TIME, TIME)
    expected = kernel_attention(q, k, v, causal.feature_maps[1], key_mask=MASK, is_causal=True, scale=1.0).detach()
    np.testing.assert_allclose(maps.kernel.fillna(0), expected.where(MASK[:, None, :, None], 0), atol=1e-6)
    assert bool(inspect(causal, batch()).notnull().all().to_dataarray().all())


def test_queries_of_cross_attention_are_all_real():
    q, k = vectors()
    q, phi = q[:, :, :3], kernel("favor")
    heads = heads_from(q, k, phi, key_mask=MASK)
    maps = attention_maps(heads)
    expected = kernel_attention(q, k, torch.eye(TIME).double().expand(2, HEADS, TIME, TIME), phi, key_mask=MASK, scale=1.0).detach()
    np.testing.assert_allclose(maps.kernel.fillna(0), expected, atol=1e-12)
    np.testing.assert_array_equal(maps.kernel.isnull(), ~MASK[:, None, None].expand(2, HEADS, 3, TIME))
    assert bool(effective_rank(heads)["query"].notnull().all())
    last = attention_maps(heads_from(q, k, phi, key_mask=MASK, is_causal=True))
    assert bool(last.kernel[1].isnull().all())  # the last of 8 tokens and 4 padded places


def test_a_layer_with_a_window_is_refused():
    with pytest.raises(ValueError, match="window=3"):
        heads_of(model(("softplus",) * 3, window=3), batch(), 0)


def test_bad_input_is_named():
    q, k = vectors()
    phi = kernel("favor")
    with pytest.raises(ValueError, match=r"q must be float \(batch, head, time, dim\)"):
        heads_from(q[0], k, phi)
    with pytest.raises(ValueError, match="one batch and dim"):
        heads_from(q, k[..., :3], phi)
    with pytest.raises(ValueError, match="key_mask must be boolean"):
        heads_from(q, k, phi, key_mask=MASK[:1])
    with pytest.raises(ValueError, match="feature_map must be a FeatureMap or None, got 'favor'"):
        heads_from(q, k, "favor")
    with pytest.raises(ValueError, match="heads must be Heads"):
        attention_maps((q, k, phi))
    with pytest.raises(ValueError, match="model must be a Transformer"):
        heads_of(phi, batch(), 0)
    with pytest.raises(ValueError, match="layer must be below 3"):
        heads_of(model(), batch(), 3)
    assert isinstance(heads_from(q, k, phi), Heads)


@pytest.mark.slow
def test_a_layer_of_a_converted_model_is_inspected_like_any_other():
    transformers = pytest.importorskip("transformers")
    from attention.activations import collect
    from attention.huggingface import attach

    with torch.random.fork_rng():
        torch.manual_seed(0)
        sizes = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": HEADS, "intermediate_size": 8, "vocab_size": 10}
        bert = transformers.BertModel(transformers.BertConfig(**sizes)).eval()
    attach(bert, "favor", n_features=64, generator=torch.Generator().manual_seed(0))
    batches = [{"input_ids": batch()["tokens"], "attention_mask": MASK.long()}]
    layer = bert.encoder.layer[1].attention.self
    heads = Heads(layer.kernel, collect(bert, batches)[1][0])
    maps, sums = attention_maps(heads), denominators(heads)
    np.testing.assert_allclose(maps.kernel.sum("key").values[:, 0][MASK], 1, rtol=1e-5)
    np.testing.assert_allclose(sums.relative.values[:, 0][MASK], 1, rtol=1e-5)
    assert effective_rank(heads).sizes == {"head": HEADS}
    assert float(kernel_error(heads).divergence.max()) < 0.5


# ------------------------------------------------------------------------------------------------------------------------- as files


def test_measures_go_through_files_and_back_into_a_model(tmp_path):
    first, second = model(), Transformer(model().config, rng=5)
    with torch.no_grad():
        first.feature_maps[1].tau.fill_(1.25)
    paths = save_measures(first, tmp_path / "measures")
    assert [path.name for path in paths] == ["layer0.safetensors", "layer2.safetensors"]
    before = {name: value.clone() for name, value in second.state_dict().items()}
    measures = load_measures(tmp_path / "measures", second)
    assert sorted(measures) == sorted(load_measures(tmp_path / "measures")) == [0, 2]
    assert measures[2].metadata["attention"] == "flexformer-nonstationary"
    for a, b in zip(first.feature_maps, second.feature_maps, strict=True):
        assert torch.equal(a.omega, b.omega)
        assert a.feature == b.feature
    assert second.feature_maps[1].tau.tolist() == [1.25] * 3
    changed = {name for name, value in second.state_dict().items() if not torch.equal(value, before[name])}
    assert all("feature_map" in name for name in changed)


def test_a_loaded_measure_computes_the_same_kernel(tmp_path):
    first = model()
    save_measures(first, tmp_path)
    measure = load_measures(tmp_path)[0]
    omega, feature = first.feature_maps[0].omega[1].detach().double().numpy(), first.feature_maps[0].feature
    x = np.random.default_rng(0).normal(size=(5, DIM))
    np.testing.assert_allclose(measure.feature.kernel(x, x, measure.omega[1].astype(float)), feature.kernel(x, x, omega), rtol=1e-6)


def test_bad_measures_are_named(tmp_path):
    save_measures(model(), tmp_path)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        save_measures(model(), tmp_path)
    save_measures(model(), tmp_path, overwrite=True)
    with pytest.raises(ValueError, match="layer 0 must have particles"):
        load_measures(tmp_path, model(("softplus", "softmax", "flexformer-nonstationary")))
    with pytest.raises(ValueError, match="layer 2 must have particles"):
        load_measures(tmp_path, model(("favor", "softmax", "fourier")))
    with pytest.raises(FileNotFoundError, match=r"layers \[0, 1, 2\], got those of \[0, 2\]"):
        load_measures(tmp_path, model(("favor",) * 3))
    with pytest.raises(FileNotFoundError, match="must hold measures"):
        load_measures(tmp_path / "empty")
    with pytest.raises(ValueError, match="'hedgehog' is no particle"):
        save_measures(model(("hedgehog",) * 3), tmp_path / "more")
    assert not (tmp_path / "more").exists()
    with pytest.raises(ValueError, match="kernel attention"):
        save_measures(model("softmax"), tmp_path / "more")
    with pytest.raises(ValueError, match="model must be a Transformer"):
        save_measures("model", tmp_path / "more")
