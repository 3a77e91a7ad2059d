"""Part (c) of the demo: the matching task, Phase A within sequences, and what each method can and cannot learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from experiments.matching import METHODS, RULES, Config, Matcher, Starts, align, fit, make_sequences, run
from experiments.matching_methods import in_subspace, log_repulsion
from experiments.matching_rules import known_kernel
from particles import Alignment, FourierPair, Riesz

SMALL = Config(tasks=("phase",), n_sequences=64, n_test=64, n_align=80, n_steps=150, n_seeds=1, seed=100, lr=0.03)


@pytest.fixture(scope="module")
def table():
    """Four methods on one seed of the phase task."""
    return run(Config(**{**vars(SMALL), "methods": ("softmax", "fixed", "align", "align, unfreeze", "shuffled")}))


@pytest.mark.parametrize("task", RULES)
def test_sequences_label_tokens_by_bin_and_permutation(task):
    data = make_sequences(task, 40, 16, 16, np.random.default_rng(0))
    n_labels = RULES[task][0]
    assert data.context.shape == (40, 16, 16)
    assert data.query_label.shape == (40, 16)
    assert data.n_labels == n_labels
    labels = torch.cat((data.context_label, data.query_label), 1)
    assert set(labels.flatten().tolist()) == set(range(n_labels))
    # labels carry no information across sequences: each is equally likely; sd of a share of 1280 is at most .014, sequences correlate
    share = torch.bincount(labels.flatten()) / labels.numel()
    assert (share - 1 / n_labels).abs().max() < 0.1


def test_phase_labels_are_a_relabelled_quarter_turn():
    rng = np.random.default_rng(1)
    data = make_sequences("phase", 2, 200, 16, rng)
    # the rotation is the generator's third draw: repeat the draws
    again = np.random.default_rng(1)
    again.standard_normal((2, 400, 16))
    rotation = np.linalg.qr(again.standard_normal((16, 16)))[0]
    turn = np.floor(2 * (data.context.double().numpy() @ rotation.T)[..., 0] / (np.pi / 2)).astype(int) % 4
    for sequence in range(2):
        pairs = set(zip(turn[sequence].tolist(), data.context_label[sequence].tolist()))
        assert len(pairs) <= 4 + 1  # float32 rounding may move one token over an edge


def test_phase_a_uses_only_pairs_of_one_sequence():
    data = make_sequences("phase", 30, 16, 16, np.random.default_rng(2))
    relabelled = (data.context_label + torch.arange(30)[:, None]) % 4, (data.query_label + torch.arange(30)[:, None]) % 4
    other = data._replace(context_label=relabelled[0], query_label=relabelled[1])
    omega = np.random.default_rng(3).standard_normal((8, 16)) / 2
    x = torch.cat((data.context, data.query), 1).flatten(0, 1).double().numpy()
    groups = np.repeat(np.arange(30), 32)
    within = [
        float(
            Alignment(
                x, torch.cat((d.context_label, d.query_label), 1).flatten().numpy(), FourierPair(), groups=groups, centre=False, scale=False
            ).value(omega)
        )
        for d in (data, other)
    ]
    assert within[0] == pytest.approx(within[1], rel=1e-10)  # a relabelling of each sequence is invisible
    moved = align(omega, data, 20, 0)
    assert moved.shape == (8, 16)
    assert np.array_equal(moved, align(omega, data, 20, 0))
    assert not np.array_equal(moved, align(omega, data, 20, 0, shuffled=True))


def test_matcher_is_the_kernel_smoother():
    data = make_sequences("phase", 3, 8, 16, np.random.default_rng(4))
    omega = np.random.default_rng(5).standard_normal((16, 16)) / 2
    starts = Starts(16, 32, 1, data, 0)
    starts.omega = omega
    model, _ = fit(METHODS["fixed"], "phase", starts, data, data, Config(n_steps=1, n_align=1))
    kernel = FourierPair().kernel(data.query.double().numpy(), data.context.double().numpy(), omega)
    votes = kernel @ np.eye(4)[data.context_label.numpy()] / 8
    assert np.allclose(model.attend(data).detach().numpy(), votes, atol=1e-5)
    softmax = Matcher(4).attend(data)
    assert torch.allclose(softmax.sum(-1), torch.ones(3, 8), atol=1e-6)


def test_dataset_has_the_documented_variables(table):
    for name in ("accuracy", "log_loss", "seconds", "effective_rank", "alignment"):
        assert table[name].dims == ("task", "method", "seed")
    assert table["attention"].dims == ("task", "method", "query", "key")
    assert np.allclose(np.abs(table["attention"]).max("key"), 1)
    assert table["omega"].sizes["particle"] == 16
    assert np.isnan(table["omega"].sel({"method": "softmax"})).all()
    assert (np.diff(table["key_label"]) >= 0).all()


def test_only_learned_frequencies_solve_the_phase_task(table):
    accuracy = table["accuracy"].isel(task=0, seed=0).to_series()
    assert accuracy["align, unfreeze"] > 0.75  # ceiling of the first harmonic: .857
    assert accuracy["align"] > 0.5
    for name in ("softmax", "fixed", "shuffled"):
        assert accuracy[name] < 0.36  # chance .25; sd of a share of 2048 queries is about .01
    alignment = table["alignment"].isel(task=0, seed=0).to_series()
    assert alignment["align"] > 10 * abs(alignment["shuffled"])


def test_frozen_methods_keep_their_frequencies_and_learned_ones_do_not(table):
    omega = table["omega"].isel(task=0)
    aligned, released = (omega.sel({"method": name}).values for name in ("align", "align, unfreeze"))
    assert np.linalg.norm(released - aligned) > 0.1
    start = Starts(16, 32, 80, make_sequences("phase", 4, 8, 16, np.random.default_rng(0)), 100).omega
    assert np.allclose(omega.sel({"method": "fixed"}).values, start, atol=1e-6)


def test_every_seed_has_its_own_start():
    config = Config(n_steps=1, n_align=1)
    data = make_sequences("phase", 4, 8, 16, np.random.default_rng(0))
    for name in ("favor", "fixed", "align"):
        first, again, other = (
            fit(METHODS[name], "phase", Starts(config.dim, config.n_features, config.n_align, data, s), data, data, config)[0].phi.omega
            for s in (0, 0, 1)
        )
        assert torch.equal(first, again)
        assert not torch.equal(first, other)


def test_every_row_of_the_table_runs():
    config = Config(tasks=("xor2",), methods=("all",), n_sequences=8, n_test=4, n_align=2, n_steps=2, n_seeds=1)
    dataset = run(config)
    assert dataset["method"].values.tolist() == list(METHODS)
    assert np.isfinite(dataset["accuracy"]).all()
    assert np.isfinite(dataset["omega"].sel({"method": "align quadratic"})).all()


@pytest.mark.parametrize(("task", "least"), [("phase", 0.8), ("multi", 0.75), ("ring3", 0.95), ("xor2", 0.95), ("iso", 0.85)])
def test_the_kernel_that_knows_the_rule_solves_the_task(task, least):
    dataset = run(Config(tasks=(task,), methods=("known rule",), n_test=64, n_seeds=1))
    assert dataset["accuracy"].item() > least


def test_a_known_kernel_needs_the_hidden_rotation():
    data = make_sequences("phase", 64, 32, 16, np.random.default_rng(0))
    v = torch.nn.functional.one_hot(data.context_label, 4).float()
    right, wrong = (
        float(((known_kernel("phase", turn, data.query, data.context) @ v).argmax(-1) == data.query_label).float().mean())
        for turn in (data.rotation, torch.eye(16))
    )
    assert right > 0.8
    assert wrong < 0.35


def test_log_repulsion_is_the_riesz_energy_with_mirror_images():
    omega = np.random.default_rng(0).standard_normal((6, 3))
    riesz = Riesz(0.0, 1.0, softening=0.05, mirror=True)
    gaps = [omega[i] + sign * omega[j] for i in range(6) for j in range(6) for sign in (1, -1) if (i, sign) != (j, -1)]
    expected = -np.mean(np.concatenate((0.5 * np.log((np.array(gaps) ** 2).sum(-1) + 0.05**2), np.zeros(6))))
    assert float(log_repulsion(torch.from_numpy(omega)[None])) == pytest.approx(expected, rel=1e-12)
    moved = torch.from_numpy(omega)[None].requires_grad_()
    log_repulsion(moved).backward()
    force = riesz.value_and_grad(omega)[1]
    cosine = float((moved.grad[0].numpy() * force).sum() / np.linalg.norm(moved.grad) / np.linalg.norm(force))
    assert cosine > 0.99  # the mirror image of a particle itself pushes too, in both, with its own weight


def test_finished_units_are_read_back(tmp_path, monkeypatch):
    config = Config(tasks=("phase",), methods=("softmax", "fixed"), n_sequences=8, n_test=4, n_steps=2, n_seeds=2)
    first = run(config, results=str(tmp_path))
    monkeypatch.setattr("experiments.matching.measure", lambda *_: pytest.fail("measured again"))
    assert run(config, results=str(tmp_path)).identical(first)


@pytest.mark.slow
def test_phase_bars_on_two_seeds():
    table = run(Config(tasks=("phase",), n_seeds=2, seed=100)).accuracy.mean("seed").isel(task=0).to_series()
    assert table["align, unfreeze"] >= 0.82
    assert table["end to end"] >= 0.82
    assert max(table["softmax"], table["fixed"]) <= 0.33


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"tasks": ("phases",)}, "tasks"),
        ({"tasks": "phase"}, "tasks"),
        ({"tasks": ("phase", "phase")}, "tasks must be .* each once"),
        ({"methods": ("softmaxx",)}, "methods"),
        ({"methods": 5}, "methods"),
        ({"seed": -1}, "seed"),
        ({"n_features": 31}, "n_features"),
        ({"n_sequences": 2}, "n_sequences"),
        ({"lr": -1.0}, "lr"),
        ({"n_steps": 0}, "n_steps"),
    ],
)
def test_bad_configurations_are_named(change, name):
    with pytest.raises(ValueError, match=name):
        Config(**change)


def test_a_start_in_the_hidden_subspace_sees_only_what_the_rule_sees():
    data = make_sequences("ring3", 3, 8, 16, np.random.default_rng(4))
    omega = np.random.default_rng(5).standard_normal((6, 16))
    inside = in_subspace(omega, data)
    turned = inside @ data.rotation.double().numpy().T
    assert np.allclose(turned[:, 3:], 0, atol=1e-6)
    assert np.allclose(np.linalg.norm(inside, axis=1), np.linalg.norm(omega, axis=1))
    assert np.allclose(in_subspace(omega, make_sequences("iso", 3, 8, 16, np.random.default_rng(4))), omega, atol=1e-6)
