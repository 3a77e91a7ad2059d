from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as oracle

from experiments import metrics


def table(n_classes: int, n: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(n_classes, 0.6), n)
    return p, np.array([rng.choice(n_classes, p=0.7 * row + 0.3 / n_classes) for row in p])


def by_scikit_learn(p: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Each score by scikit-learn; the areas of more than two classes only where all occur."""
    hard, k = p.argmax(1), p.shape[1]
    hot = np.eye(k)[y]
    return {
        "accuracy": oracle.accuracy_score(y, hard),
        "f1_macro": oracle.f1_score(y, hard, average="macro", zero_division=0),
        "f1_weighted": oracle.f1_score(y, hard, average="weighted", zero_division=0),
        "roc_auc": oracle.roc_auc_score(y, p[:, 1] if k == 2 else p, multi_class="ovr"),
        "pr_auc": oracle.average_precision_score(y, p[:, 1]) if k == 2 else oracle.average_precision_score(hot, p),
        "matthews": oracle.matthews_corrcoef(y, hard),
        "balanced_accuracy": oracle.balanced_accuracy_score(y, hard),
        "log_loss": oracle.log_loss(y, np.clip(p, 1e-15, None), labels=range(k)),
        "brier": oracle.brier_score_loss(y, p[:, 1]) if k == 2 else np.mean(((p - hot) ** 2).sum(1)),
    }


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("n_classes", [2, 5])
def test_scores_equal_scikit_learn(n_classes, ties):
    for seed in range(4):
        p, y = table(n_classes, 60 if seed else 400, seed)
        y[:n_classes] = np.arange(n_classes)
        if ties:  # multiples of 1/5, none of them 0
            p = (1 + np.random.default_rng(seed).multinomial(5, np.full(n_classes, 1 / n_classes), len(y))) / (5 + n_classes)
        got = metrics.scores(p, y)
        for name, value in by_scikit_learn(p, y).items():
            np.testing.assert_allclose(got[name], value, rtol=1e-10, atol=1e-14, err_msg=f"{name}, seed {seed}")


@pytest.mark.parametrize("average", metrics.AVERAGES)
def test_f1_equals_scikit_learn(average):
    for seed in range(5):
        hard, y = np.random.default_rng(seed).integers(2 if average == "binary" else 4, size=(2, 30))
        np.testing.assert_allclose(metrics.f1(hard, y, average=average), oracle.f1_score(y, hard, average=average), rtol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_one_class_in_the_labels_leaves_the_areas_undefined_and_nothing_else(n_classes):
    p, _ = table(n_classes)
    for label in range(n_classes):
        got = metrics.scores(p, np.full(len(p), label))
        assert {name for name, value in got.items() if math.isnan(value)} == {"roc_auc", "pr_auc"}
        assert got["balanced_accuracy"] == got["accuracy"]


def test_a_single_row():
    got = metrics.scores([[0.25, 0.75]], [1])
    assert (got["accuracy"], got["f1_macro"], got["balanced_accuracy"], got["matthews"]) == (1, 1, 1, 0)
    assert (got["brier"], got["calibration_error"]) == (0.0625, 0.25)


def test_areas_of_more_classes_are_means_over_those_that_occur():
    p, y = table(4)
    y = np.where(y == 3, 0, y)  # class 3 does not occur
    each = [(oracle.roc_auc_score(y == k, p[:, k]), oracle.average_precision_score(y == k, p[:, k])) for k in range(3)]
    np.testing.assert_allclose((metrics.roc_auc(p, y), metrics.pr_auc(p, y)), np.mean(each, axis=0), rtol=1e-12)


def test_equal_probabilities_have_area_one_half_and_the_precision_of_chance():
    p, y = np.full((10, 2), 0.5), np.array([1] * 3 + [0] * 7)
    assert metrics.roc_auc(p, y) == 0.5
    assert metrics.pr_auc(p, y) == pytest.approx(0.3)


def test_classes_that_are_absent_from_predictions_score_zero_and_absent_from_both_do_not_count():
    labels, predicted = [0, 0, 2, 2], [0, 0, 0, 0]
    assert metrics.f1(predicted, labels) == pytest.approx((2 / 3 + 0) / 2)  # class 1 is in neither
    assert metrics.balanced_accuracy(predicted, labels) == 0.5
    assert metrics.balanced_accuracy([0, 0, 1, 2], labels) == 0.75  # class 1 is predicted but no label: it has no recall
    assert metrics.f1([0, 0, 1, 2], labels) == pytest.approx((1 + 2 / 3 + 0) / 3)


def test_correlations_equal_scipy_and_are_nan_where_undefined():
    a, b = np.random.default_rng(0).integers(6, size=(2, 40)) / 2
    assert metrics.pearson(a, b) == pytest.approx(stats.pearsonr(a, b).statistic, rel=1e-12)
    assert metrics.spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic, rel=1e-12)
    for one, other in (([0.1] * 3, [1, 2, 3]), ([1, 2, 3], [0.1] * 3), ([1], [2])):
        assert math.isnan(metrics.pearson(one, other))
        assert math.isnan(metrics.spearman(one, other))


def test_perplexity():
    assert metrics.perplexity(40 * math.log(7), 40) == pytest.approx(7)
    assert metrics.perplexity(0, 3) == 1
    assert metrics.perplexity(1e6, 1) == math.inf


@pytest.mark.parametrize(("right", "n"), [(0, 10), (3, 10), (812, 872), (10, 10)])
def test_wilson_equals_scipy(right, n):
    got = metrics.wilson(right, n)
    expected = stats.binomtest(right, n).proportion_ci(0.95, method="wilson")
    np.testing.assert_allclose(got, (right / n, expected.low, expected.high), atol=1e-12)


def test_calibration_error_equals_a_loop_over_bins():
    p, y = table(3)
    expected = 0.0
    for b in range(15):
        rows = (p.max(1) > b / 15) & (p.max(1) <= (b + 1) / 15)
        if rows.any():
            expected += rows.mean() * abs((p.argmax(1) == y)[rows].mean() - p.max(1)[rows].mean())
    np.testing.assert_allclose(metrics.calibration_error(p, y), expected, rtol=1e-12)


@pytest.mark.parametrize("n_bins", [1, 7, 15])
def test_the_reliability_table_has_all_bins_and_adds_up(n_bins):
    p, y = table(2)
    right, stated, share = metrics.reliability_table(p, y, n_bins=n_bins).T
    assert len(share) == n_bins
    assert share.sum() == pytest.approx(1)
    assert np.nansum(right * share) == pytest.approx((p.argmax(1) == y).mean())
    assert np.nansum(stated * share) == pytest.approx(p.max(1).mean())
    empty = share == 0
    assert np.isnan(right[empty]).all()
    assert np.isnan(stated[empty]).all()
    assert empty.sum() == n_bins // 2  # the most probable of two classes has at least one half
    filled = np.arange(n_bins)[~empty]
    np.testing.assert_array_equal(np.ceil(stated[filled] * n_bins) - 1, filled)
    for got, expected in zip(metrics.reliability(p, y, n_bins=n_bins), (filled, right[filled], stated[filled], share[filled])):
        np.testing.assert_array_equal(got, expected)


def test_calibration_error_of_known_cases():
    y = np.array([0, 0, 0, 1])
    p = np.tile([0.75, 0.25], (4, 1))
    assert metrics.calibration_error(p, y) == 0  # 75 % sure and 75 % right
    assert metrics.calibration_error(np.tile([1.0, 0.0], (4, 1)), y) == 0.25
    assert metrics.calibration_error(np.tile([0.5, 0.5], (4, 1)), y) == 0.25


def test_the_gap_of_class_one_is_a_loop_over_bins_and_no_calibration_error():
    p, y = table(2)
    expected = 0.0
    for b in range(15):
        rows = (p[:, 1] > b / 15) & (p[:, 1] <= (b + 1) / 15)
        if rows.any():
            expected += rows.mean() * abs((p.argmax(1) == y)[rows].mean() - p[rows, 1].mean())
    assert metrics.class_one_gap(p, y) == pytest.approx(expected, rel=1e-12)
    sure = np.eye(2)[[0, 0, 0, 1]]  # all right and all sure: the worst gap, and no error
    assert metrics.class_one_gap(sure, [0, 0, 0, 1]) == 0.75
    assert metrics.calibration_error(sure, [0, 0, 0, 1]) == 0


def test_the_gap_of_class_one_of_an_overconfident_model_is_its_confidence_less_the_share_of_class_one():
    rng = np.random.default_rng(0)
    logit = 2 * rng.normal(size=4000)
    y = (rng.random(4000) < 1 / (1 + np.exp(-logit))).astype(int)
    one = 1 / (1 + np.exp(-2 * logit))
    p = np.stack((1 - one, one), axis=1)
    assert metrics.class_one_gap(p, y) == pytest.approx(p.max(1).mean() - y.mean(), abs=0.01)
    assert metrics.class_one_gap(p, y) > 3 * metrics.calibration_error(p, y)


def test_matthews_of_constant_predictions_is_zero():
    assert metrics.matthews([1, 1, 1], [0, 1, 1]) == 0
    assert metrics.matthews([0, 1, 2], [0, 1, 2]) == pytest.approx(1)


def test_log_loss_of_an_impossible_label_is_infinite():
    assert metrics.log_loss([[1.0, 0.0]], [1]) == math.inf


def test_paired_difference_equals_the_paired_t_interval():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=6), rng.normal(size=6)
    expected = stats.ttest_rel(a, b).confidence_interval(0.9)
    np.testing.assert_allclose(metrics.paired_difference(a, b, level=0.9), ((a - b).mean(), expected.low, expected.high), rtol=1e-12)


def test_mean_interval_covers_at_its_level():
    # 2000 intervals of level 0.8; the binomial standard deviation is 0.009, so a right formula fails with probability about 1e-5 (4.4 sd)
    rng = np.random.default_rng(2)

    def covered(factor):
        got = [metrics.mean_interval(factor * row + (1 - factor) * row.mean(), level=0.8) for row in rng.normal(size=(2000, 3))]
        return np.mean([low <= 0 <= high for _, low, high in got])

    assert abs(covered(1.0) - 0.8) < 0.04
    assert abs(covered(0.8) - 0.8) > 0.04  # control: intervals 20 % too short are noticed


def test_a_single_seed_has_an_infinite_interval():
    assert metrics.mean_interval([0.5]) == (0.5, -math.inf, math.inf)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.scores([[0.5, 0.6]], [0]), "probabilities"),
        (lambda: metrics.scores([[np.nan, 0.6]], [0]), "probabilities"),
        (lambda: metrics.scores([0.5, 0.5], [0]), "probabilities"),
        (lambda: metrics.scores([[0.5, 0.5]], [2]), "labels"),
        (lambda: metrics.scores([[0.5, 0.5]], [0.0]), "labels"),
        (lambda: metrics.scores(np.empty((0, 2)), np.empty(0, int)), "probabilities"),
        (lambda: metrics.scores([[1.5, -0.5]], [0]), "probabilities must be at least 0.*-0.5"),
        (lambda: metrics.scores([[0.5], [0.5, 0.5]], [0, 0]), "probabilities"),
        (lambda: metrics.scores("half", [0]), "probabilities"),
        (lambda: metrics.wilson(1, 2, level="high"), "level"),
        (lambda: metrics.matthews([0.5], [1]), "predicted and labels must be integers"),
        (lambda: metrics.f1([0, 1], [0, 1], average="mean"), "average must be one of.*'mean'"),
        (lambda: metrics.f1([0, 2], [0, 1], average="binary"), "average must not be 'binary'"),
        (lambda: metrics.f1([0.0], [0]), "predicted and labels must be integers"),
        (lambda: metrics.balanced_accuracy([], []), "predicted and labels must"),
        (lambda: metrics.class_one_gap([[0.5, 0.3, 0.2]], [0]), "two classes, got 3"),
        (lambda: metrics.roc_auc([[0.5, 0.5]], [2]), "labels"),
        (lambda: metrics.pr_auc([[0.5, 0.6]], [0]), "probabilities"),
        (lambda: metrics.pearson([1.0], [1.0, 2.0]), "predicted and target"),
        (lambda: metrics.spearman([math.nan], [1.0]), "predicted must be finite"),
        (lambda: metrics.perplexity(-1.0, 3), "nats must be at least 0"),
        (lambda: metrics.perplexity(1.0, 0), "n_tokens"),
        (lambda: metrics.reliability_table([[0.5, 0.5]], [0], n_bins=1.5), "n_bins"),
        (lambda: metrics.mean_interval([0.0, math.nan]), "values must be finite"),
        (lambda: metrics.paired_difference(["a"], [1.0]), "first"),
        (lambda: metrics.wilson(3, 2), "n_right"),
        (lambda: metrics.wilson(1, 2, level=1.5), "level"),
        (lambda: metrics.matthews([0, 1], [0]), "predicted"),
        (lambda: metrics.mean_interval([]), "values"),
        (lambda: metrics.paired_difference([1.0], [1.0, 2.0]), "same seeds"),
        (lambda: metrics.calibration_error([[0.5, 0.5]], [0], n_bins=0), "n_bins"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
