"""The scikit-learn transformers: the estimator contract, the kernel identity, early stopping, controls, the chi-square weights."""

from __future__ import annotations

import pickle
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from experiments.synthetic import make_task
from particles import (
    Alignment,
    Ball,
    CosineSquared,
    FourierPair,
    FourierPhase,
    GaussianFeatures,
    ImportanceFeatures,
    Langevin,
    ParticleFeatures,
    Quadratic,
    Riesz,
    Softplus,
)
from particles.estimator import PENALTIES, chi_square_weights, default_energy, holdout_split, ridge_path, start_frequencies

SMALL = {
    "particles": ParticleFeatures(8, n_steps=8, random_state=0),
    "importance": ImportanceFeatures(8, pool_size=60, radii=(2.0, 10.0), random_state=0),
    "gaussian": GaussianFeatures(8, random_state=0),
}


@pytest.fixture(scope="module")
def ring():
    """200 rows in 5 dimensions, labels 0 and 1."""
    return make_task("ring3", n=200, dim=5, n_test=1000, rng=1)


@pytest.mark.parametrize("name", SMALL)
def test_scikit_learn_contract(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(clone(SMALL[name]), on_skip=None)
    assert len(results) >= 40
    assert {r["check_name"] for r in results if r["status"] != "passed"} <= {"check_array_api_input"}  # needs an environment variable


@pytest.mark.parametrize("name", SMALL)
def test_gram_of_features_is_the_kernel(name, ring):
    model = clone(SMALL[name]).fit(ring.x, ring.y)
    phi, phi_test = model.transform(ring.x[:20]), model.transform(ring.x_test[:7])
    assert phi.shape == (20, 16)
    assert np.allclose(model.kernel(ring.x[:20], ring.x_test[:7]), phi @ phi_test.T, atol=1e-14)
    assert np.allclose(model.kernel(ring.x[:20]), phi @ phi.T, atol=1e-14)
    # and both are the mean over particles of cos w.(x - x')
    delta = ring.x[:20, None] - ring.x_test[None, :7]
    assert np.allclose(phi @ phi_test.T, np.cos(delta @ model.omega_.T).mean(-1), atol=1e-14)
    names = model.get_feature_names_out()
    assert len(names) == 16
    assert names[0].startswith(type(model).__name__.lower())


@pytest.mark.parametrize("feature", ["phase", "nonstationary", "positive", "sigmoid2", "cos2", Softplus(floor=0.1)])
def test_other_features(feature, ring):
    model = ParticleFeatures(6, feature=feature, n_steps=4, random_state=0).fit(ring.x, ring.y)
    phi = model.transform(ring.x[:9])
    assert phi.shape == (9, 6 * model.feature_.width)
    assert np.allclose(phi @ phi.T, model.feature_.kernel(ring.x[:9], ring.x[:9], model.omega_), rtol=1e-12)
    assert np.isfinite(model.alignment_)


def test_repeated_fits_clones_and_pickles_agree(ring):
    model = clone(SMALL["particles"]).fit(ring.x, ring.y)
    expected = model.transform(ring.x_test)
    assert np.array_equal(clone(model).fit(ring.x, ring.y).transform(ring.x_test), expected)
    assert np.array_equal(model.fit(ring.x, ring.y).transform(ring.x_test), expected)
    restored = pickle.loads(pickle.dumps(model))
    assert np.array_equal(restored.transform(ring.x_test), expected)
    assert restored.trajectory_.identical(model.trajectory_)
    other = clone(model).set_params(random_state=1).fit(ring.x, ring.y)
    assert not np.array_equal(other.omega_, model.omega_)


def test_float32_stays_and_agrees(ring):
    double = clone(SMALL["particles"]).fit(ring.x, ring.y)
    single = clone(SMALL["particles"]).fit(ring.x.astype(np.float32), ring.y)
    out = single.transform(ring.x_test.astype(np.float32))
    assert out.dtype == np.float32
    assert np.allclose(out, double.transform(ring.x_test), atol=1e-4)


def test_input_is_left_alone_and_may_be_read_only(ring):
    x, y = ring.x.copy(), ring.y.copy()
    x.flags.writeable = y.flags.writeable = False
    clone(SMALL["particles"]).fit(x, y).transform(x)
    assert np.array_equal(x, ring.x)


def test_labels_of_any_kind(ring):
    base = clone(SMALL["particles"]).fit(ring.x, ring.y)
    strings = clone(SMALL["particles"]).fit(ring.x, np.array(["in", "out"])[ring.y])
    assert list(strings.classes_) == ["in", "out"]
    assert np.allclose(strings.omega_, base.omega_)
    assert np.allclose(clone(SMALL["particles"]).fit(ring.x, 2.0 * ring.y - 1).omega_, base.omega_)
    three = np.digitize(ring.x[:, 0], [-0.5, 0.5])
    assert len(clone(SMALL["particles"]).fit(ring.x, three).classes_) == 3


def test_real_targets_are_learned():
    rng = np.random.default_rng(2)
    x = rng.standard_normal((600, 6))
    y = np.cos(2 * x[:, 0] + 0.5)
    model = ParticleFeatures(16, n_steps=60, random_state=0).fit(x, y)
    assert not hasattr(model, "classes_")
    # the spectrum of y sits at +-2 e_0; a Gaussian start of standard deviation .22 has |w_0| near .2
    assert np.median(np.abs(model.omega_[:, 0])) > 1.5
    assert model.alignment_ > 0.1
    two = ParticleFeatures(8, n_steps=8, random_state=0).fit(x, np.stack([y, x[:, 1]], 1))
    assert two.transform(x).shape == (600, 16)


def test_default_energy_has_the_recommended_constants(ring):
    omega = np.random.default_rng(0).standard_normal((10, 5)) * 0.2
    terms = default_energy(ring.x, ring.y[:, None].astype(float), FourierPair(), omega).value_and_grad(omega)[0]
    distances = np.linalg.norm(omega[:, None] - omega[None], axis=-1)
    ell = np.median(distances[np.triu_indices(10, 1)])
    images = np.linalg.norm(omega[:, None] + omega[None], axis=-1)
    off = ~np.eye(10, dtype=bool)
    # (lam / N^2) sum over ordered pairs of g = (r / ell)^-1 with r^2 + .05^2, and the mirror images
    riesz = 0.01 / 100 * sum((ell / np.sqrt(r[off] ** 2 + 0.05**2)).sum() for r in (distances, images))
    assert float(terms["riesz"]) == pytest.approx(riesz, rel=1e-12)
    assert float(terms["quadratic"]) == pytest.approx(0.02 / 20 * (omega**2).sum(), rel=1e-12)
    signs = 2.0 * ring.y - 1
    signs = (signs - signs.mean()) / signs.std()
    kernel = FourierPair().kernel(ring.x, ring.x, omega)
    assert -float(terms["alignment"]) == pytest.approx((signs @ kernel @ signs - (signs**2).sum()) / (200 * 199), rel=1e-9)


def test_pipeline_and_grid_search(ring):
    pipeline = make_pipeline(StandardScaler(), ParticleFeatures(8, random_state=0), RidgeClassifier(alpha=1.0))
    search = GridSearchCV(pipeline, {"particlefeatures__n_steps": [1, 50]}, cv=3).fit(10 * ring.x, ring.y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.score(10 * ring.x_test, ring.y_test) > 0.6  # chance is .5 with sd .016; without the scaler 10 x is far out of range


@pytest.mark.parametrize("name", SMALL)
def test_pipeline_of_three_classes_with_names_survives_search_clone_and_pickle(name, ring):
    names = np.array(["low", "mid", "top"])[np.digitize(ring.x[:, 0], [-0.5, 0.5])]
    pipeline = make_pipeline(StandardScaler(), clone(SMALL[name]), LogisticRegression(C=100))
    search = GridSearchCV(pipeline, {f"{pipeline.steps[1][0]}__n_particles": [4, 8]}, cv=2).fit(pd.DataFrame(ring.x), names)
    predicted = search.predict(pd.DataFrame(ring.x_test))
    assert set(predicted) <= {"low", "mid", "top"}
    assert np.array_equal(pickle.loads(pickle.dumps(search)).predict(pd.DataFrame(ring.x_test)), predicted)
    best = clone(search.best_estimator_).fit(pd.DataFrame(ring.x), names)
    assert np.array_equal(best.predict(pd.DataFrame(ring.x_test)), predicted)


@pytest.mark.parametrize("name", SMALL)
def test_tables_come_out_with_names(name, ring):
    model = clone(SMALL[name]).set_output(transform="pandas")
    table = model.fit(pd.DataFrame(ring.x, columns=list("abcde")), ring.y).transform(pd.DataFrame(ring.x[:5], columns=list("abcde")))
    assert list(table.columns) == list(model.get_feature_names_out())
    assert np.array_equal(table.to_numpy(), clone(SMALL[name]).fit(ring.x, ring.y).transform(ring.x[:5]))
    with pytest.raises(ValueError, match="feature names"):
        model.transform(pd.DataFrame(ring.x, columns=list("bacde")))


@pytest.mark.parametrize("name", SMALL)
def test_sparse_input_is_refused_by_name(name, ring):
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        clone(SMALL[name]).fit(csr_array(ring.x), ring.y)
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        clone(SMALL[name]).fit(ring.x, ring.y).transform(csr_array(ring.x))


@pytest.mark.parametrize("name", SMALL)
def test_single_feature_and_mostly_equal_rows(name, ring):
    model = clone(SMALL[name]).fit(ring.x[:, :1], ring.y)
    assert model.transform(ring.x[:9, :1]).shape == (9, 16)
    rare = (np.arange(200) % 7 == 0).astype(float)[:, None]
    phi = clone(SMALL[name]).fit(rare, ring.y).transform(rare)
    assert np.isfinite(phi).all()
    if name != "particles":
        with pytest.raises(ValueError, match="X must hold distinct rows"):
            clone(SMALL[name]).fit(np.ones((200, 2)), ring.y)
        with pytest.raises(ValueError, match="X must hold distinct rows at finite distances, got distances up to inf"):
            clone(SMALL[name]).fit(1e300 * ring.x, ring.y)


@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer, load_digits], ids=lambda load: load.__name__[5:])
def test_default_pipeline_on_ordinary_data(load):
    """No collapse where there is nothing to gain: at most 7 points below the linear model and far above the largest class."""
    x, y = load(return_X_y=True)
    x, x_test, y, y_test = train_test_split(x, y, test_size=0.4, stratify=y, random_state=0)
    linear = make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y).score(x_test, y_test)
    score = make_pipeline(StandardScaler(), ParticleFeatures(64, random_state=0), LogisticRegression()).fit(x, y).score(x_test, y_test)
    assert score > linear - 0.07
    assert score > np.bincount(y).max() / len(y) + 0.25


@pytest.mark.parametrize("task", ["ring3", "cos1"])
def test_default_pipeline_finds_hidden_structure(task):
    """Three hidden directions or one wave among 20 inputs, 10 % flips: 15 points above plain random features (25 to 37 measured)."""
    data = make_task(task, n=1000, dim=20, rng=7)
    plain, learned = (
        make_pipeline(StandardScaler(), model(64, random_state=0), LogisticRegression()).fit(data.x, data.y).score(data.x_test, data.y_test)
        for model in (GaussianFeatures, ParticleFeatures)
    )
    assert learned > plain + 0.15
    assert learned > 0.8


def test_many_rows_are_seen_in_batches_with_bounded_memory():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(20_000, 5))
    y = (np.cos(2 * x[:, 0] + 0.5) > 0).astype(int)
    omega = 0.2 * rng.normal(size=(8, 5))
    assert default_energy(x, np.eye(2)[y], FourierPair(), omega).minibatched
    assert not default_energy(x[:5000], np.eye(2)[y[:5000]], FourierPair(), omega).minibatched
    tracemalloc.start()
    model = ParticleFeatures(32, n_steps=40, random_state=0).fit(x, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6  # features of the fit part take 8 MB
    assert model.alignment_ > 0.1


def test_two_classes_need_one_column():
    """The one-hot columns of two classes give the same target kernel as one of them."""
    rng = np.random.default_rng(5)
    x, codes, omega = rng.normal(size=(60, 3)), rng.integers(0, 2, 60), rng.normal(size=(6, 3))
    energy = default_energy(x, np.eye(2)[codes], FourierPair(), omega)
    assert energy.energies[0].rows.factor.shape[-1] == 1
    full = Alignment(x, np.eye(2)[codes], FourierPair())
    assert np.allclose(energy.energies[0].gradient(omega), full.gradient(omega), rtol=1e-10)
    targets = rng.normal(size=(60, 2))  # two real targets are two
    assert default_energy(x, targets, FourierPair(), omega).energies[0].rows.factor.shape[-1] == 2


def test_phases_start_uniform():
    for feature in (FourierPhase(), CosineSquared()):
        phases = start_frequencies(feature, 4000, 3, 0.1, np.random.default_rng(6))[:, -1]
        assert abs(phases.mean()) < 5 * np.pi / np.sqrt(12 * 4000)  # false alarm 1e-6
        assert np.abs(phases).max() < np.pi / 2
        assert phases.std() == pytest.approx(np.pi / np.sqrt(12), rel=0.05)


def test_own_energy_sampler_and_domain(ring):
    model = ParticleFeatures(
        8,
        energy=lambda x, y: Alignment(x, y, FourierPair()) + Quadratic(0.1) + Riesz(0.0, 0.05, softening=0.05),
        sampler=Langevin(0.5, float("inf")),
        domain=Ball(0.7, 5),
        n_steps=30,
        early_stopping=False,
        random_state=0,
    ).fit(ring.x, ring.y)
    assert model.n_iter_ == 30
    assert np.isnan(model.holdout_alignment_)
    assert model.domain.contains(model.omega_).all()
    assert np.linalg.norm(model.omega_, axis=1).max() > 0.69  # the wall was reached
    assert model.trajectory_["step"].values[-1] == 30


def test_early_stopping_can_choose_the_start():
    # on an inverted energy every step makes the kernel worse, so step 0 must win
    data = make_task("ring3", n=300, dim=3, flips=0.0, rng=3)

    class Worse(Quadratic):
        pass

    model = ParticleFeatures(32, energy=lambda x, y: Worse(3.0), sampler=Langevin(0.3, float("inf")), n_steps=8, random_state=0)
    model.fit(data.x, data.y)
    assert model.n_iter_ == 0
    assert model.trajectory_.sizes["step"] == 1
    assert np.array_equal(model.omega_, model.trajectory_["omega"].values[0, 0])


def test_an_interrupted_fit_raises_and_leaves_no_fitted_model(ring):
    class Interrupted(Quadratic):
        def gradient(self, omega, *, key=None):
            if key[2] == 3:
                raise KeyboardInterrupt
            return super().gradient(omega, key=key)

    for early_stopping in (True, False):
        model = ParticleFeatures(4, energy=lambda x, y: Interrupted(1.0), n_steps=8, early_stopping=early_stopping)
        with pytest.warns(UserWarning, match="interrupted"), pytest.raises(KeyboardInterrupt):
            model.fit(ring.x, ring.y)
        with pytest.raises(NotFittedError):
            model.transform(ring.x)


@pytest.mark.parametrize("n_steps", [1, 2, 7, 10])
def test_any_number_of_steps(n_steps, ring):
    model = ParticleFeatures(4, n_steps=n_steps, random_state=0).fit(ring.x, ring.y)
    assert model.n_iter_ in {0, n_steps // 4, n_steps // 2, n_steps}
    assert int(model.trajectory_["step"][-1]) == model.n_iter_


def test_permuted_labels_are_not_learned():
    data = make_task("ring3", n=500, dim=10, permuted=True, rng=5)
    model = ParticleFeatures(32, early_stopping=False, random_state=0).fit(data.x, data.y)
    assert model.alignment_ < 0.02
    honest = ParticleFeatures(32, early_stopping=False, random_state=0).fit(data.x, make_task("ring3", n=500, dim=10, rng=5).y)
    assert honest.alignment_ > 0.04


def test_one_particle(ring):
    model = ParticleFeatures(1, n_steps=4, random_state=0).fit(ring.x, ring.y)
    assert model.transform(ring.x).shape == (200, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_particles": 0}, "n_particles"),
        ({"n_particles": 2.5}, "n_particles"),
        ({"n_steps": 0}, "n_steps"),
        ({"n_steps": -3}, "n_steps"),
        ({"feature": "fourrier"}, "feature"),
        ({"feature": "softmax"}, "feature"),
        ({"energy": Quadratic(1.0)}, "energy must be a function of .x, y., got"),
        ({"domain": "ball"}, "domain must be a domain .* got 'ball'"),
        ({"early_stopping": "no"}, "early_stopping must be True or False, got 'no'"),
    ],
)
def test_bad_parameters_are_named(change, message, ring):
    with pytest.raises(ValueError, match=message):
        ParticleFeatures(**change).fit(ring.x, ring.y)


@pytest.mark.parametrize("name", SMALL)
def test_bad_data(name, ring):
    for x, y, message in [
        (ring.x, np.ones(200, int), "1 class"),
        (ring.x, ring.y[:-1], "inconsistent"),
        (np.where(ring.x > 2, np.nan, ring.x), ring.y, "NaN"),
        (ring.x[:, 0], ring.y, "2D"),
        (ring.x, np.array([["in"], ["out"]])[ring.y], "y must hold labels .n,. or numbers .*, got dtype <U3"),
        (ring.x[:3], np.array(["a", "b", "c"]), "hold-out"),
    ]:
        with pytest.raises(ValueError, match=message):
            clone(SMALL[name]).fit(x, y)
    with pytest.raises(ValueError, match="features"):
        clone(SMALL[name]).fit(ring.x, ring.y).transform(ring.x[:, :3])


def test_bad_radii(ring):
    with pytest.raises(ValueError, match="radii"):
        ImportanceFeatures(radii=(0.0,)).fit(ring.x, ring.y)


def test_holdout_split_is_stratified_and_complete():
    rng = np.random.default_rng(0)
    codes = np.repeat([0, 1, 2], [40, 20, 1])
    split = holdout_split(np.arange(61.0)[:, None], np.eye(3)[codes], True, rng)
    assert split.y_holdout.sum(0).tolist() == [10, 5, 0]
    assert sorted(np.concatenate((split.x, split.x_holdout)).ravel()) == list(range(61))


@pytest.mark.parametrize("n_features", [5, 29, 30, 45])
def test_ridge_path_is_the_normal_equations(n_features):
    rng = np.random.default_rng(1)
    phi, y, new = rng.standard_normal((30, n_features)), rng.standard_normal((30, 2)), rng.standard_normal((4, n_features))
    phi[:, 1] = phi[:, 0]  # coincident particles
    centred = phi - phi.mean(0)
    for penalty, path in zip(PENALTIES, ridge_path(phi, y, new), strict=True):
        weights = np.linalg.solve(centred.T @ centred + 30 * penalty * np.eye(n_features), centred.T @ (y - y.mean(0)))
        assert np.allclose(path, (new - phi.mean(0)) @ weights + y.mean(0), atol=1e-10)


def test_chi_square_weights_solve_the_program():
    rng = np.random.default_rng(2)
    values = rng.gamma(0.5, size=300)
    for radius in (0.5, 5.0, 50.0):
        weights = chi_square_weights(values, radius)
        assert weights.sum() == pytest.approx(1)
        assert weights.min() >= 0
        assert 300 * (weights**2).sum() - 1 == pytest.approx(radius, rel=1e-9)
        # optimality by convexity: no feasible random direction improves the objective
        for _ in range(200):
            other = rng.dirichlet(np.full(300, 0.1))
            mixed = 0.9 * weights + 0.1 * other
            if 300 * (mixed**2).sum() - 1 <= radius:
                assert mixed @ values <= weights @ values + 1e-12
    # KKT: one multiplier for the ball, one for the simplex, so the kept weights are an affine function of the values
    kept = weights > 0
    slope, offset = np.polyfit(values[kept], weights[kept], 1)
    assert np.allclose(slope * values[kept] + offset, weights[kept], atol=1e-12)
    assert values[~kept].max() <= -offset / slope + 1e-9


def test_chi_square_weights_at_the_ends():
    values = np.array([0.0, 1.0, 3.0, 2.0])
    assert np.allclose(chi_square_weights(values, 3.0), [0, 0, 1, 0])
    assert np.allclose(chi_square_weights(values, 100.0), [0, 0, 1, 0])
    assert np.allclose(chi_square_weights(np.ones(4), 1.0), 0.25)
    assert np.allclose(chi_square_weights(values, 1e-10), 0.25, atol=1e-4)
    weights = chi_square_weights(values, 2.0)
    assert np.allclose(chi_square_weights(1e-9 * values + 5e-9, 2.0), weights, atol=1e-6)  # scale and shift do not matter


def test_particles_beat_the_baselines_on_one_seed():
    data = make_task("ring3", n=1000, dim=20, rng=100)
    scores = {}
    for name, model in {"particles": ParticleFeatures(random_state=0), "rff": GaussianFeatures(random_state=0)}.items():
        head = RidgeClassifier(alpha=1.0).fit(model.fit(data.x, data.y).transform(data.x), data.y)
        scores[name] = head.score(model.transform(data.x_test), data.y_test)
    assert scores["particles"] > scores["rff"] + 0.10
