"""Scores against torchmetrics on random and degenerate tables, slow as its import alone takes seconds.

The fast sibling is test_experiments_metrics.py, which holds the same cases against scikit-learn.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from experiments import metrics

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning:torchmetrics")]
TOLERANCE = {"rtol": 2e-5, "atol": 2e-6}  # torchmetrics counts in float32


@pytest.fixture(scope="module")
def oracle():
    return pytest.importorskip("torchmetrics.functional", reason="needs torchmetrics")


def table(n_classes: int, n: int, seed: int, *, ties: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities and labels that follow them, of which every class occurs; with ties the probabilities are multiples of 1/8."""
    rng = np.random.default_rng(seed)
    p = rng.multinomial(8, np.full(n_classes, 1 / n_classes), n) / 8 if ties else rng.dirichlet(np.full(n_classes, 0.6), n)
    y = np.array([rng.choice(n_classes, p=0.6 * row + 0.4 / n_classes) for row in p])
    y[:n_classes] = np.arange(n_classes)
    return p, y


def expected(oracle, p: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Each score by torchmetrics, from the classes of highest probability where it counts classes."""
    k = p.shape[1]
    score, label, hard = torch.tensor(p), torch.tensor(y), torch.tensor(p.argmax(1))
    area = {"preds": score[:, 1], "target": label, "task": "binary"} if k == 2 else {"preds": score, "target": label, "task": "multiclass"}
    classes = {"preds": hard, "target": label, "task": "multiclass", "num_classes": k}
    found = {
        "accuracy": oracle.accuracy(**classes, average="micro"),
        "f1_macro": oracle.f1_score(**classes, average="macro"),
        "f1_weighted": oracle.f1_score(**classes, average="weighted"),
        "roc_auc": oracle.auroc(**area, num_classes=k),
        "pr_auc": oracle.average_precision(**area, num_classes=k),
        "matthews": oracle.matthews_corrcoef(**classes),
        "balanced_accuracy": oracle.recall(**classes, average="macro"),
        "calibration_error": oracle.calibration_error(score, label, task="multiclass", num_classes=k, n_bins=15, norm="l1"),
    }
    return {name: float(value) for name, value in found.items()}


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("n_classes", [2, 5])
def test_scores_equal_torchmetrics(oracle, n_classes, ties):
    for seed in range(3):
        p, y = table(n_classes, 150, seed, ties=ties)
        got = metrics.scores(p, y)
        for name, value in expected(oracle, p, y).items():
            np.testing.assert_allclose(got[name], value, err_msg=f"{name}, seed {seed}", **TOLERANCE)


def test_a_class_that_is_never_predicted_and_one_that_never_occurs(oracle):
    p = np.array([[0.6, 0.3, 0.1, 0.0], [0.5, 0.4, 0.1, 0.0], [0.3, 0.6, 0.1, 0.0], [0.7, 0.1, 0.1, 0.1]])
    y = np.array([0, 1, 1, 2])  # class 2 is never predicted, class 3 is in neither
    got, other = metrics.scores(p, y), expected(oracle, p, y)
    for name in ("accuracy", "f1_macro", "f1_weighted", "matthews", "balanced_accuracy", "calibration_error"):
        np.testing.assert_allclose(got[name], other[name], err_msg=name, **TOLERANCE)


def test_one_class_only(oracle):
    p, y = np.array([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]]), np.zeros(3, int)
    got, other = metrics.scores(p, y), expected(oracle, p, y)
    for name in ("accuracy", "f1_macro", "f1_weighted", "calibration_error"):
        np.testing.assert_allclose(got[name], other[name], err_msg=name, **TOLERANCE)
    assert math.isnan(got["roc_auc"])  # torchmetrics says 0, which would be the worst of all


def test_probabilities_of_0_and_1_and_a_single_row(oracle):
    for p, y in ((np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), np.array([0, 1, 1])), (np.array([[0.25, 0.75]]), np.array([1]))):
        got, other = metrics.scores(p, y), expected(oracle, p, y)
        for name in ("accuracy", "f1_macro", "balanced_accuracy", "calibration_error"):
            np.testing.assert_allclose(got[name], other[name], err_msg=name, **TOLERANCE)


def test_f1_of_the_positive_class_micro_f1_and_correlations_and_perplexity(oracle):
    rng = np.random.default_rng(3)
    hard, y = rng.integers(2, size=(2, 60))
    np.testing.assert_allclose(
        metrics.f1(hard, y, average="binary"), oracle.f1_score(torch.tensor(hard), torch.tensor(y), task="binary"), **TOLERANCE
    )
    micro = oracle.f1_score(torch.tensor(hard), torch.tensor(y), task="multiclass", num_classes=2, average="micro")
    np.testing.assert_allclose(metrics.f1(hard, y, average="micro"), micro, **TOLERANCE)
    a, b = rng.integers(6, size=(2, 50)) + 0.0  # with many ties
    np.testing.assert_allclose(metrics.pearson(a, b), oracle.pearson_corrcoef(torch.tensor(a), torch.tensor(b)), **TOLERANCE)
    np.testing.assert_allclose(metrics.spearman(a, b), oracle.spearman_corrcoef(torch.tensor(a), torch.tensor(b)), **TOLERANCE)
    logits, tokens = torch.tensor(rng.normal(size=(1, 40, 7))), torch.tensor(rng.integers(7, size=(1, 40)))
    nats = torch.nn.functional.cross_entropy(logits[0], tokens[0], reduction="sum").item()
    np.testing.assert_allclose(metrics.perplexity(nats, 40), oracle.text.perplexity(logits, tokens), **TOLERANCE)
