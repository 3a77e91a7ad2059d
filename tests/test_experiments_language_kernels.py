"""What is said of trained kernels: weights that are known by construction, the unit of part kernels, its table and picture."""

import dataclasses

import numpy as np
import pytest
import torch

from attention.activations import Activations
from attention.feature_map import feature_map
from attention.inspection import Heads, effective_rank, heads_of, row_entropy
from attention.layer_kernel import LayerKernel
from experiments import language_kernels, sweep
from experiments import language_modelling as lm
from experiments import language_texts as texts
from experiments.data import Dataset, Split

SMOKE = dataclasses.replace(lm.PRESETS["smoke"], parts=("kernels",), n_seeds=1)
N = 32


def heads(q: torch.Tensor, k: torch.Tensor, name: str | None = None) -> Heads:
    """Causal heads of queries and keys (token, dim)."""
    q, k = q[None, None].double(), k[None, None].double()
    seen = Activations(q, k, torch.zeros_like(k), torch.ones(1, N, dtype=torch.bool), True)
    return Heads(LayerKernel(feature_map(name, dim=q.shape[-1], n_features=q.shape[-1])) if name else None, seen)


def test_a_head_that_weighs_all_keys_alike_has_their_number_and_the_share_of_the_near_ones() -> None:
    found = language_kernels._of_heads(heads(torch.zeros(N, 4), torch.zeros(N, 4)))
    visible = np.arange(N // 2, N) + 1
    assert found["near"] == pytest.approx(np.mean(language_kernels.NEAR / visible))
    assert found["keys"] == pytest.approx(np.exp(np.log(visible).mean()))
    assert found["negative"] == 0
    assert np.isnan(found["rank"])


def test_a_head_that_finds_its_own_token_has_one_key() -> None:
    own = 40 * torch.eye(N)
    found = language_kernels._of_heads(heads(own, own))
    assert found["near"] == pytest.approx(1)
    assert found["keys"] == pytest.approx(1)


def test_signs_and_ranks_of_an_identity_map_are_those_of_its_products() -> None:
    sign = torch.where(torch.arange(N) % 4 == 0, -1.0, 1.0)[:, None]  # a quarter of the keys against the rest
    found = language_kernels._of_heads(heads(torch.ones(N, 1), sign, "identity"))
    visible = np.arange(N // 2, N) + 1
    assert found["negative"] == pytest.approx(np.mean(np.ceil(visible / 4) / visible))
    assert found["rank"] == pytest.approx(1)


def test_a_models_softmax_rows_are_those_that_inspection_finds() -> None:
    row = lm.ROWS["softmaxfeat, fixed"]
    model = texts.model(texts.SIZES["smoke"][texts.MADE_UP], row, 0, 12)
    tokens = np.random.default_rng(0).integers(0, 12, (3, 17))
    split = Split(tokens, np.ones(tokens.shape, bool), tokens)
    found = language_kernels.looked(model, Dataset("random", split, split, split, 12, None, 1, 17, "random", ""))
    assert found["near"].shape == (1, 2)
    layer = heads_of(model, next(iter(split.batches(3))), 0)
    assert found["rank"][0] == pytest.approx(effective_rank(layer)["key"].values)
    late = row_entropy(layer)["kernel"].isel(query=slice(17 // 2, None)).mean(("sequence", "query"))
    assert found["keys"][0] == pytest.approx(np.exp(late.values))


def test_pairs_lose_the_entropy_of_a_chain_that_they_know() -> None:
    rng = np.random.default_rng(0)
    step = rng.dirichlet(np.ones(4), size=4)  # of a Markov chain
    tokens = np.zeros((600, 65), int)
    for k in range(64):
        tokens[:, k + 1] = (step[tokens[:, k]].cumsum(1) < rng.random((600, 1))).sum(1)
    parts = [Split(part, np.ones(part.shape, bool), part) for part in np.split(tokens, 3)]
    values, vectors = np.linalg.eig(step.T)
    stationary = np.real(vectors[:, np.argmax(values.real)])
    entropy = -(stationary / stationary.sum()) @ (step * np.log(step)).sum(1)
    lost = language_kernels.pairs_loss(Dataset("chain", *parts, 4, None, 1, 65, "chain", ""))
    assert lost == pytest.approx(entropy, abs=0.03)  # 3 standard errors of 12,800 tokens; the start at 0 is forgotten at once
    single = np.bincount(tokens.ravel(), minlength=4) / tokens.size
    assert lost < -(single * np.log(single)).sum() - 0.1


def test_the_part_has_units_of_its_own_with_the_losses_of_the_table_and_they_are_told_and_drawn(tmp_path) -> None:
    ds = sweep.run(lm, SMOKE, results=tmp_path)
    assert list(ds["row"].values) == ["softmax, kernel", "linear, kernel", "flexformer, kernel"]
    table = lm.measure(SMOKE, {"task": texts.MADE_UP, "row": "linear", "seed": 0})
    assert ds["log_loss"].sel(row="linear, kernel").item() == table["log_loss"]
    told = lm.section(ds)
    assert [one.title for one in told.tables] == ["What the kernels of trained models do"]
    assert set(lm.figures(ds)) == set(told.pictures) == {"language_modelling_kernels.png"}
    assert "nan" not in str(told)
