"""Part (b) of the demo: the table, its controls and its pictures' data, on small settings."""

from __future__ import annotations

import json

import numpy as np
import pytest

from experiments.kernel_learning import METHODS, Config, run

SMALL = Config(tasks=("ring3",), n=600, dim=10, n_test=1000, n_particles=32, n_seeds=1, seed=100, n_show=40)


@pytest.fixture(scope="module")
def table():
    """Every method on one seed of an easier ring3 (10 dimensions)."""
    return run(SMALL)


def test_dataset_has_the_documented_variables(table):
    assert dict(table.sizes) | {"radius": 0, "frequency": 0} == {
        "task": 1, "method": 4, "seed": 1, "stage": 2, "particle": 32, "dim": 10, "row": 40, "column": 40, "radius": 0, "frequency": 0
    }  # fmt: skip
    for name in ("accuracy", "log_loss", "brier", "seconds"):
        assert table[name].dims == ("task", "method", "seed")
        assert np.isfinite(table[name]).all()
    for name in ("alignment", "holdout_alignment", "n_iter"):
        assert set(table[name].dims) == {"task", "seed"}
    assert list(table["method"].values) == list(METHODS)
    assert json.loads(table.attrs["config"])["n_particles"] == 32


def test_spectral_densities_integrate_to_one_and_move_outwards(table):
    for name, axis in (("radial_density", "radius"), ("marginal_density", "frequency")):
        width = float(table[axis][1] - table[axis][0])
        assert np.allclose(table[name].sum(axis) * width, 1)
    mean = (table["radial_density"] * table["radius"]).sum("radius") / table["radial_density"].sum("radius")
    assert float(mean.sel(stage="learned").squeeze()) > float(mean.sel(stage="start").squeeze())


def test_gram_matrices_are_kernels_ordered_by_label(table):
    gram, label = table["gram"].isel(task=0), table["gram_label"].isel(task=0).values
    assert (np.diff(label) >= 0).all()
    for stage in ("start", "learned"):
        matrix = gram.sel(stage=stage).values
        assert np.allclose(np.diag(matrix), 1, atol=1e-6)
        assert np.linalg.eigvalsh(matrix.astype(float)).min() > -1e-5
    same = label[:, None] == label[None]
    np.fill_diagonal(same, False)
    contrast = [
        gram.sel(stage=s).values[same].mean() - gram.sel(stage=s).values[label[:, None] != label[None]].mean() for s in ("start", "learned")
    ]
    assert contrast[1] > contrast[0]


def test_learned_kernel_beats_random_features(table):
    accuracy, loss = (table[name].isel(task=0, seed=0).to_series() for name in ("accuracy", "log_loss"))
    assert accuracy["particles"] > accuracy["rff"] + 0.04
    assert loss["particles"] < loss["rff"]
    assert loss["particles"] < np.log(2)
    assert float(table["alignment"].squeeze()) > 0.01


def test_permuted_labels_stay_at_chance():
    control = run(
        Config(tasks=("ring3",), methods=("particles",), n=600, dim=10, n_test=1000, n_particles=32, n_seeds=1, seed=100, permuted=True)
    )
    # the accuracy of a random rule that is right on half of 1000 points has sd 1.6; the learnt rule is not independent of them, so 10
    assert abs(float(control["accuracy"].squeeze()) - 0.5) < 0.10
    assert float(control["alignment"].squeeze()) < 0.01


@pytest.mark.slow
def test_bars_on_two_seeds():
    table = run(Config(n_seeds=2, seed=100)).accuracy.mean("seed")
    for task, lead in (("ring3", {"rff": 0.18, "importance": 0.10, "svm": 0.04}), ("xor2", {"rff": 0.20, "importance": 0.13, "svm": 0.10})):
        row = table.sel(task=task).to_series()
        for baseline, gap in lead.items():
            assert row["particles"] - row[baseline] > gap


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"tasks": ("ring4",)}, "tasks"),
        ({"tasks": ()}, "tasks"),
        ({"methods": ("rbf",)}, "methods"),
        ({"n_seeds": 0}, "n_seeds"),
        ({"tasks": ("iso", "iso")}, "tasks must be .* each once"),
        ({"n": 39}, "n must be an integer of at least 40, got 39"),
        ({"n_test": 0}, "n_test"),
        ({"dim": 2, "tasks": ("ring3",)}, "dim must be an integer of at least 3, got 2"),
        ({"flips": 0.6}, r"flips must lie in \[0, 0.5\], got 0.6"),
        ({"seed": -1}, "seed"),
        ({"n_particles": -1}, "n_particles"),
    ],
)
def test_bad_configurations_are_named(change, name):
    with pytest.raises(ValueError, match=name):
        Config(**change)
