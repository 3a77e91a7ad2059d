"""The Coulomb paper's synthetic benchmark: its data, its baselines, resuming, and the tables and figures that come of it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics.pairwise import rbf_kernel

from benchmarks import synthetic
from experiments import baselines, coulomb_claims, coulomb_tables, plots, report, sections
from experiments.coulomb_synthetic import METHODS, PARTS, READINGS, Config, draw, logit, run
from particles.features import FourierPhase

TINY = {"n": 60, "n_features": 20, "n_particles": 15, "n_steps": 4, "n_fresh": 50, "n_seeds": 2, "sigmas": (0.1, 10.0)}
PARTS_TINY = {
    "noise": Config(**TINY),
    "lambda": Config(**TINY, part="lambda", lambdas=(0.0, 0.5, 1.0)),
    "budget": Config(**TINY, part="budget", budgets=(16, 64, 256), methods=("rff", "particles")),
    "tasks": Config(**TINY, part="tasks", dim=6, tasks=("ring3", "iso"), methods=("svm", "particles")),
    "runtime": Config(**TINY, part="runtime", sizes=(40, 60), methods=("logistic", "svm", "mkl")),
}


DIMS = {
    "noise": ("sigma", "method", "seed"),
    "lambda": ("sigma", "lambda", "seed"),
    "budget": ("sigma", "method", "n_features", "seed"),
    "tasks": ("task", "method", "seed"),
    "runtime": ("method", "n"),
}


@pytest.fixture(scope="module")
def datasets():
    """Every part on tiny sizes."""
    return {part: run(config) for part, config in PARTS_TINY.items()}


# ---- data --------------------------------------------------------------------------------------------------------------------------------


def test_logit_is_the_papers_function():
    x = np.array([[0.5, 2.0, 1.0, -3.0, 0.2, 1.0, -1.0]])
    by_hand = 1.5 * np.sin(np.pi / 2) + 0.8 * 4 + 3 + 0.5 * np.sin(0.6) + 0.3 - 0.4
    assert logit(x, np.array([0.3, 0.4]))[0] == pytest.approx(by_hand)
    assert logit(x[:, :5], np.empty(0))[0] == pytest.approx(by_hand - 0.3 + 0.4)


def test_labels_follow_the_logit_without_noise():
    data = draw(400, 5, 1e-5, 40_000, seed=7, split=0)
    assert data.x.shape == (280, 5)
    assert data.x_test.shape == (120, 5)
    p = expit(data.rule(data.x_fresh))
    # z of the sum of y - p over 40,000 rows, and over those with p > 0.7: two normal numbers, rejected beyond 4.5 with probability 1e-5
    for rows in (slice(None), p > 0.7):
        assert abs((data.y_fresh - p)[rows].sum()) < 4.5 * np.sqrt((p * (1 - p))[rows].sum())
    assert abs((data.y_fresh - np.sqrt(p)).sum()) > 20 * np.sqrt((p * (1 - p)).sum())  # a wrong law is rejected


def test_great_noise_leaves_no_rule_and_the_same_points():
    quiet, loud = (draw(400, 8, sigma, 20_000, seed=3, split=1) for sigma in (1e-3, 1e5))
    assert np.array_equal(quiet.x, loud.x)
    assert np.array_equal(quiet.x_fresh, loud.x_fresh)
    agreement = [((data.rule(data.x_fresh) > 0) == data.y_fresh).mean() for data in (quiet, loud)]
    assert agreement[0] > 0.72
    assert abs(agreement[1] - 0.5) < 0.02  # sd .0035


def test_seeds_and_splits_vary_and_repeat():
    first, again, other, split = (draw(50, 5, 0.1, 10, seed=seed, split=k) for seed, k in ((42, 0), (42, 0), (43, 0), (42, 1)))
    assert all(np.array_equal(a, b) for a, b in zip(first[:6], again[:6]))
    assert not np.array_equal(first.x_fresh, other.x_fresh)
    assert np.array_equal(first.x_fresh, split.x_fresh)
    assert not np.array_equal(first.x, split.x)


# ---- baselines ---------------------------------------------------------------------------------------------------------------------------


def dense_alignment(weights: np.ndarray, grams: list[np.ndarray], y: np.ndarray) -> float:
    """Centred alignment of a combination, by dense matrices."""
    n = len(y)
    centring = np.eye(n) - 1 / n
    kernel = centring @ sum(w * k for w, k in zip(weights, grams)) @ centring
    target = centring @ np.outer(y, y) @ centring
    return float((kernel * target).sum() / (np.linalg.norm(kernel) * np.linalg.norm(target)))


@pytest.mark.parametrize("block", [2**21, 500])
def test_aligned_weights_are_the_best_convex_combination(block, monkeypatch):
    monkeypatch.setattr(baselines, "_BLOCK", block)
    rng, gammas = np.random.default_rng(0), (0.05, 0.5, 3.0)
    x = rng.standard_normal((80, 3))
    y = np.sign(np.sin(2 * x[:, 0]) + 0.3 * rng.standard_normal(80))
    weights = baselines.aligned_weights(x, y, gammas)
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1)
    grams = [rbf_kernel(x, gamma=gamma) for gamma in gammas]
    best = dense_alignment(weights, grams, y)
    grid = [(a, b, 1 - a - b) for a in np.linspace(0, 1, 41) for b in np.linspace(0, 1, 41) if a + b <= 1]
    assert best >= max(dense_alignment(np.array(w), grams, y) for w in grid) - 1e-9
    assert best > dense_alignment(np.ones(3), grams, y)


def test_combined_kernel_is_the_sum_of_its_parts():
    x, x2 = np.random.default_rng(1).standard_normal((2, 7, 2))
    gram = baselines.CombinedGaussian((0.1, 1.0, 2.0), (0.25, 0.0, 0.75))(x, x2[:4])
    assert np.allclose(gram, 0.25 * rbf_kernel(x, x2[:4], gamma=0.1) + 0.75 * rbf_kernel(x, x2[:4], gamma=2.0))


def test_multiple_kernels_learn_what_a_linear_rule_cannot():
    rng = np.random.default_rng(2)
    x, x_test = rng.standard_normal((2, 300, 2))
    labels = [np.where((points**2).sum(1) > 1.4, "out", "in") for points in (x, x_test)]
    machine = baselines.multiple_kernel_svm(x, labels[0], (0.1, 1.0))
    assert (machine.predict(x_test) == labels[1]).mean() > 0.9


def test_importance_sampling_prefers_the_frequency_of_the_labels():
    rng = np.random.default_rng(3)
    x = rng.standard_normal((500, 1))
    y = np.sign(np.cos(2 * x[:, 0]))
    omega = baselines.importance_frequencies(x, y, FourierPhase(), 200, scale=1.5, pool_size=2000, radius=20.0, rng=rng)
    assert omega.shape == (200, 2)
    assert abs(np.median(np.abs(omega[:, 0])) - 2) < 0.5


# ---- the experiment ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", PARTS)
def test_every_part_measures_what_it_promises(datasets, part):
    ds = datasets[part]
    assert ds["accuracy"].dims == DIMS[part]
    for name in ("accuracy", "f1", "fresh_accuracy", "seconds"):
        assert np.isfinite(ds[name]).all()
    assert float(ds["accuracy"].min()) >= 0
    assert float(ds["accuracy"].max()) <= 1
    assert json.loads(ds.attrs["config"])["part"] == part


@pytest.mark.parametrize("part", PARTS)
def test_tables_figures_and_stores_come_from_the_dataset_alone(datasets, part, tmp_path):
    report.store(datasets[part], tmp_path / "ds.zarr")
    stored = report.load(tmp_path / "ds.zarr")
    section = sections.section("coulomb_synthetic", stored)
    assert str(section) == str(coulomb_tables.section(datasets[part]))
    assert "nan" not in str(section)
    (figure,) = sections.figures("coulomb_synthetic", stored).values()
    assert report.figure_bytes(figure, dpi=40)[:4] == b"\x89PNG"


def test_combined_figures_show_a_line_for_each_method(datasets):
    left = plots.figure_coulomb_accuracy(datasets["noise"], datasets["lambda"], coulomb_tables.METHODS).axes[0]
    assert left.get_xscale() == "log"
    assert len(left.get_lines()) == len(METHODS) - 5  # all methods but the most frequent label, the readings and one without repulsion
    assert len(plots.figure_coulomb_cost(datasets["budget"], datasets["runtime"], coulomb_tables.METHODS).axes) == 3


def test_page_holds_every_part_and_names_its_machine(datasets):
    page = synthetic.text(datasets)
    assert page.count("\n## ") == 1 + len(datasets)
    for ds in datasets.values():
        section = coulomb_tables.section(ds)
        assert f"## {section.title}\n" in page
        assert all(f"**{table.title}**" in page for table in section.tables)
    assert "| numpy |" in page
    assert "nan" not in page
    assert all(f"images/{name}" in page for name in synthetic.FIGURES)


def test_parts_of_the_full_benchmark_are_valid_and_unknown_ones_are_named(monkeypatch, capsys):
    assert {config.part for config in synthetic.FULL.values()} == set(PARTS)
    assert all(config.n_seeds >= 10 and 42 in range(config.seed, config.seed + config.n_seeds) for config in synthetic.FULL.values())
    monkeypatch.setattr(synthetic.sys, "argv", ["synthetic", "noises"])
    assert synthetic.main() == 2
    assert "known: noise" in capsys.readouterr().err


def test_every_claim_gets_its_numbers(datasets):
    full = datasets["noise"].copy(deep=True)
    said = coulomb_claims.claims(full, datasets["lambda"], datasets["budget"], datasets["runtime"], datasets["tasks"])
    assert len(said) == 7
    assert all(sentence.startswith("**") and sentence.endswith(".") for sentence in said)
    assert "nan" not in " ".join(said)
    assert "our particles against importance sampling" in said[0]
    full["fresh_accuracy"].loc[{"method": "paper"}] = 1.0
    said = coulomb_claims.claims(full, datasets["lambda"], datasets["budget"], datasets["runtime"], datasets["tasks"])
    assert "paper's particles, lambda .5 against random features, gamma .5: better" in said[0]
    assert "(paper's particles, lambda .5)" in said[2]


def test_every_method_fits_and_repeats_bit_for_bit(datasets):
    first, second = datasets["noise"].isel(sigma=[0], seed=[0]), run(Config(**TINY | {"n_seeds": 1, "sigmas": (0.1,)}))
    assert list(METHODS) == list(coulomb_tables.METHODS)
    assert list(first["method"].values) == [name for name in METHODS if name not in READINGS]
    for name in ("accuracy", "f1", "fresh_accuracy"):
        assert np.array_equal(first[name], second[name])


@pytest.mark.filterwarnings("ignore:drift_cap shortened")
def test_other_readings_of_the_paper_run_by_name():
    ds = run(Config(**TINY | {"n_seeds": 2, "sigmas": (0.1,)}, methods=("paper", *READINGS, "particles")))
    assert np.isfinite(ds["accuracy"]).all()
    assert coulomb_tables.section(ds).title.startswith("Other readings")


def test_sizes_beyond_the_limit_are_not_tried():
    config = Config(**TINY, part="runtime", sizes=(40, 60, 80), methods=("svm",), limit=1e-9)
    seconds = run(config)["seconds"].values[0]
    assert np.isfinite(seconds[0])
    assert np.isnan(seconds[1:]).all()
    assert "-" in str(coulomb_tables.section(run(config)))


def test_power_law_is_found():
    n = np.array([100, 1000, 10_000, 20_000])
    gamma, c, spread = coulomb_tables.power_law(n, 3e-4 * n**1.5)
    assert (gamma, c, spread) == (pytest.approx(1.5), pytest.approx(3e-4), pytest.approx(0, abs=1e-9))
    assert all(np.isnan(coulomb_tables.power_law(n[:1], np.ones(1))))


def test_a_difference_that_is_there_gets_a_star_and_none_gets_none():
    ds = run(Config(**TINY | {"sigmas": (0.1,)}, methods=("majority", "particles")))
    ds["fresh_accuracy"].values[:] = [[[0.5, 0.51], [0.7, 0.712]]]
    assert coulomb_tables._differs(ds["fresh_accuracy"].isel(sigma=0), "majority")
    ds["fresh_accuracy"].values[:] = [[[0.5, 0.8], [0.7, 0.6]]]
    assert not coulomb_tables._differs(ds["fresh_accuracy"].isel(sigma=0), "majority")


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"part": "noises"}, "part"),
        ({"methods": ("rbf",)}, "methods"),
        ({"tasks": ("ring4",)}, "tasks"),
        ({"dim": 4}, "dim"),
        ({"part": "tasks", "dim": 5}, "dim"),
        ({"part": "tasks", "dim": 6, "methods": ("bayes",)}, "bayes"),
        ({"n": 3}, "n must"),
        ({"n_seeds": 0}, "n_seeds"),
        ({"gamma": 0.0}, "gamma"),
        ({"limit": -1.0}, "limit"),
    ],
)
def test_bad_configurations_are_named(change, name):
    with pytest.raises(ValueError, match=name):
        Config(**change)
