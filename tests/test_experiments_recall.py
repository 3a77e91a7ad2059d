"""Associative recall: the data, the rows of the table, and what decides it on one seed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from experiments.recall import METHODS, Config, RecallModel, align_recall, make_batch, run

TINY = {"n_steps": 3, "n_warm": 1, "n_align": 2, "n_test": 8, "n_seeds": 1, "batch_size": 4}


def test_a_batch_shows_every_queried_key_once_with_its_value():
    config = Config()
    batch = make_batch(config, 50, np.random.default_rng(0))
    tokens, target, place = (part.numpy() for part in batch)
    assert tokens.shape == (50, 48)
    shown, values, queried = tokens[:, 0:32:2], tokens[:, 1:32:2], tokens[:, 32:]
    assert (np.sort(shown, 1) == np.sort(queried, 1)).all()
    assert all(len(set(row)) == 16 for row in shown)
    assert shown.max() < config.n_keys <= values.min()
    assert (np.take_along_axis(tokens, place, 1) == config.n_keys + target).all()
    assert (np.take_along_axis(tokens, place - 1, 1) == queried).all()


@pytest.mark.parametrize("name", METHODS)
def test_every_row_trains_and_is_measured(name):
    dataset = run(Config(methods=(name,), **TINY))
    assert dataset.sizes == {"method": 1, "seed": 1}
    assert np.isfinite(dataset.accuracy).all()
    assert np.isfinite(dataset.non_positive).all() == (name != "softmax")


def test_rows_are_the_same_on_the_same_seed_and_others_on_another():
    a, b, c = (run(Config(methods=("favor, learned",), **TINY | {"seed": seed})).log_loss.item() for seed in (0, 0, 1))
    assert a == b != c


def test_finished_rows_are_read_back(tmp_path, monkeypatch):
    config = Config(methods=("softmax", "favor"), **TINY)
    first = run(config, results=str(tmp_path))
    monkeypatch.setattr("experiments.recall.measure", lambda *_: pytest.fail("measured again"))
    assert run(config, results=str(tmp_path)).identical(first)


def test_a_model_is_causal_and_keys_come_from_the_token_before():
    config = Config()
    model = RecallModel(config, METHODS["favor"], torch.Generator().manual_seed(0))
    tokens = make_batch(config, 2, np.random.default_rng(0)).tokens
    _, k, v = model.queries_keys(tokens)
    changed = tokens.clone()
    changed[:, 5] = (changed[:, 5] + 1) % config.n_keys
    _, k2, v2 = model.queries_keys(changed)
    assert (k != k2).any(-1)[0, 0].nonzero().flatten().tolist() == [6]
    assert (v != v2).any(-1)[0, 0].nonzero().flatten().tolist() == [5]
    last = tokens.clone()
    last[:, -1] = (last[:, -1] + 1) % config.n_keys
    assert torch.equal(model(tokens)[:, :-1], model(last)[:, :-1])


def test_phase_a_moves_the_particles_to_the_wanted_keys_and_shuffled_targets_less():
    config = Config(n_align=40)
    batch = make_batch(config, 64, np.random.default_rng(7))
    gains = []
    for shuffled in (False, True):
        with torch.random.fork_rng([]):
            torch.manual_seed(0)
            model = RecallModel(config, METHODS["softmaxfeat"], torch.Generator().manual_seed(0))
        with torch.no_grad():  # keys and queries of the same token agree, so that there is something to find
            model.key.weight.copy_(model.query.weight)
            model.key.bias.copy_(model.query.bias)
        before = _share(model, batch)
        align_recall(model, config, np.random.default_rng(1), shuffled=shuffled)
        gains.append(_share(model, batch) - before)
    assert gains[0] > 0.02
    assert gains[0] > 2 * abs(gains[1])


@torch.no_grad()
def _share(model: RecallModel, batch) -> float:
    """Attention mass of a queried key on its value, a mean, with attention over the shown pairs."""
    q, k, _ = model.queries_keys(batch.tokens)
    (_, phi_q), (log_k, phi_k) = model.feature_map(q[:, :, -16:], role="query"), model.feature_map(k[:, :, :32], role="key")
    kernel = (phi_q @ (phi_k * log_k.exp()[..., None]).mT)[:, 0]
    return float((kernel / kernel.sum(-1, keepdim=True)).gather(-1, batch.place[..., None]).mean())


def test_options_are_checked():
    with pytest.raises(ValueError, match="methods must be some of"):
        Config(methods=("hedgehogs",))
    with pytest.raises(ValueError, match="n_keys must be"):
        Config(n_keys=4)
    with pytest.raises(ValueError, match="n_warm must be below n_steps = 50, got 50"):
        Config(n_steps=50, n_warm=50)


@pytest.mark.slow
def test_sign_and_normaliser_decide_recall():
    names = ("softmax", "favor", "flexformer, literal", "flexformer, output norm")
    accuracy = run(Config(methods=names, n_seeds=1)).accuracy.squeeze("seed")
    assert accuracy.sel({"method": "softmax"}) > 0.97
    assert accuracy.sel({"method": "flexformer, output norm"}) > 0.96
    assert 0.4 < accuracy.sel({"method": "favor"}) < 0.85
    assert accuracy.sel({"method": "flexformer, literal"}) < 0.2
