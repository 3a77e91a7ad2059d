"""Rank, effective dimension, leverage, decay and label alignment of Gram matrices, against matrices of known eigenvalues."""

from __future__ import annotations

import numpy as np
import pytest

from theory.spectral import Gaussian
from theory.spectral.gram import (
    effective_dimension,
    effective_rank,
    eigenvalue_decay,
    feature_dimension,
    feature_rank,
    kernel_alignment,
    label_alignment,
    leverage_scores,
)


def orthogonal(n, seed=0):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))[0]


def test_effective_rank():
    assert effective_rank(np.eye(7)) == pytest.approx(7)
    assert effective_rank(np.ones((5, 5))) == pytest.approx(1)
    p = np.array([0.75, 0.25])
    assert effective_rank(np.diag([3.0, 1.0, 0.0])) == pytest.approx(np.exp(-np.sum(p * np.log(p))))
    phi = np.random.default_rng(1).standard_normal((9, 4))
    assert feature_rank(phi) == pytest.approx(effective_rank(phi @ phi.T)) == pytest.approx(feature_rank(phi.T))


def test_effective_dimension_and_leverage_of_known_eigenvalues():
    values, u = np.array([4.0, 1.0, 0.5, 0.0, 0.0]), orthogonal(5)
    gram = (u * values) @ u.T
    for ridge in (1e-3, 0.7, 20.0):
        assert effective_dimension(gram, ridge) == pytest.approx(np.sum(values / (values + ridge)), rel=1e-10)
        scores = leverage_scores(gram, ridge)
        assert scores == pytest.approx(u**2 @ (values / (values + ridge)), abs=1e-11)
        assert scores.sum() == pytest.approx(effective_dimension(gram, ridge), rel=1e-9)
        smoother = np.linalg.solve(gram + ridge * np.eye(5), gram)
        np.testing.assert_allclose(np.diag(smoother), scores, atol=1e-11)  # derivative of the ridge fit at a point in its label
    phi = np.random.default_rng(2).standard_normal((9, 4))
    assert (
        feature_dimension(phi, 0.3) == pytest.approx(effective_dimension(phi @ phi.T, 0.3)) == pytest.approx(feature_dimension(phi.T, 0.3))
    )


def test_estimated_dimension_approaches_the_kernels_from_below():
    x, ridge = np.random.default_rng(3).standard_normal((60, 2)), 0.1
    exact = effective_dimension(Gaussian(0.8).kernel(x[:, None] - x), ridge)

    def estimate(m):
        w = Gaussian(0.8).sample(m, 2, 4)
        return feature_dimension(np.hstack([np.cos(x @ w.T), np.sin(x @ w.T)]) / np.sqrt(m), ridge)

    values = [estimate(m) for m in (10, 40, 4000)]
    assert values[0] < values[1] < values[2] < exact * 1.01
    assert values[2] == pytest.approx(exact, rel=0.03)
    assert values[0] < 0.8 * exact


def test_label_alignment_reads_the_projections():
    values, u = np.array([5.0, 3.0, 1.0, 0.2]), orthogonal(4)
    y = u @ np.array([0.5, 2.0, 0.0, 1.0])
    found = label_alignment((u * values) @ u.T, y)
    np.testing.assert_allclose(found.eigenvalues, values, rtol=1e-12)
    np.testing.assert_allclose(found.share, np.array([0.25, 4.0, 0.0, 1.0]) / 5.25, atol=1e-14)
    np.testing.assert_allclose(found.cumulative[-1], 1)
    assert [found.cutoff(s) for s in (0.01, 0.5, 0.82, 1.0)] == [1, 2, 4, 4]
    assert found.contribution.sum() == pytest.approx(kernel_alignment((u * values) @ u.T, y), rel=1e-12)


def test_equal_eigenvalues_are_one_space_whatever_basis_comes_out():
    u, y = orthogonal(6), np.random.default_rng(5).standard_normal((6, 2))
    values = np.array([2.0, 2.0, 2.0, 0.7, 0.7, 0.0])
    found = label_alignment((u * values) @ u.T, y)
    assert found.multiplicity.tolist() == [3, 2, 1]
    assert found.rank.tolist() == [3, 5, 6]
    projections = [np.sum((u[:, part].T @ y) ** 2) / np.sum(y**2) for part in (slice(0, 3), slice(3, 5), slice(5, 6))]
    np.testing.assert_allclose(found.share, projections, rtol=1e-10)
    assert label_alignment(np.eye(5), np.arange(5.0)).share.tolist() == pytest.approx([1.0])
    assert found.cutoff(projections[0] / 2) == 3  # whole spaces only


def test_kernel_alignment_is_the_cosine_and_centring_is_of_features():
    rng = np.random.default_rng(6)
    phi, y = rng.standard_normal((12, 3)) + 1.5, rng.choice([-1.0, 1.0], 12)
    gram, target = phi @ phi.T, np.outer(y, y)
    assert kernel_alignment(gram, y) == pytest.approx(np.sum(gram * target) / np.linalg.norm(gram) / np.linalg.norm(target))
    assert kernel_alignment(target, y) == pytest.approx(1)
    centred = phi - phi.mean(0)
    assert kernel_alignment(gram, y, centre=True) == pytest.approx(kernel_alignment(centred @ centred.T, y - y.mean()))
    assert kernel_alignment(gram + 7.0, y + 3.0, centre=True) == pytest.approx(kernel_alignment(gram, y, centre=True))
    assert kernel_alignment(gram + 7.0, y) != pytest.approx(kernel_alignment(gram, y), rel=0.01)
    shares = label_alignment(gram, y, centre=True)
    assert shares.contribution.sum() == pytest.approx(kernel_alignment(gram, y, centre=True), rel=1e-10)


def test_random_labels_spread_evenly():
    """Isotropic labels have a Beta(k/2, (n-k)/2) share of squared norm in k directions."""
    rng, n, k = np.random.default_rng(7), 40, 8
    gram = np.diag(np.arange(n, 0, -1.0))
    shares = np.array([label_alignment(gram, rng.standard_normal(n)).cumulative[k - 1] for _ in range(400)])
    # z at 4.5 errors: false alarm 7e-6; one direction more is rejected
    error = 4.5 * shares.std() / 20
    assert abs(shares.mean() - k / n) < error < 1 / n


@pytest.mark.parametrize("law", ["power", "exponential"])
def test_decay_is_found_and_the_other_law_fits_worse(law):
    k = np.arange(1, 61)
    values = 3.0 * (k**-1.7 if law == "power" else np.exp(-0.3 * k))
    fit = eigenvalue_decay(np.random.default_rng(8).permutation(values), law=law, first=2, last=50)
    assert fit.rate == pytest.approx(1.7 if law == "power" else 0.3, rel=1e-9)
    assert fit.front == pytest.approx(3.0, rel=1e-9)
    assert fit.r2 == pytest.approx(1)
    other = eigenvalue_decay(values, law="power" if law == "exponential" else "exponential", first=2, last=50)
    assert other.r2 < 0.97
    assert other.error > 1e-3


def test_brownian_covariance_decays_with_power_two():
    n = 400
    t = (np.arange(n) + 0.5) / n
    fit = eigenvalue_decay(np.linalg.eigvalsh(np.minimum.outer(t, t) / n), first=5, last=40)
    assert fit.rate == pytest.approx(2, abs=0.1)  # eigenvalues 1 / (pi^2 (k - 1/2)^2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: effective_rank(np.zeros((0, 0))), "gram must be a symmetric matrix"),
        (lambda: effective_rank([[1.0, 2.0], [0.0, 1.0]]), "gram must be a symmetric matrix"),
        (lambda: effective_rank(np.zeros((2, 2))), "positive semi-definite and not zero"),
        (lambda: effective_rank(-np.eye(2)), "positive semi-definite"),
        (lambda: feature_rank([1.0]), "phi must have shape (n, feature) with n and feature at least 1, got (1,)"),
        (lambda: effective_dimension(np.eye(2), 0.0), "ridge must be"),
        (lambda: leverage_scores(np.diag([1.0, -1.0]), 0.1), "gram must be positive semi-definite"),
        (lambda: label_alignment(np.eye(2), [1.0, 2.0, 3.0]), "labels must have shape (2,) or (2, output), got (3, 1)"),
        (lambda: label_alignment(np.eye(2), [3.0, 3.0], centre=True), "labels must not be zero after centring"),
        (lambda: label_alignment(np.eye(2), [0.0, 0.0]), "labels must not be zero"),
        (lambda: label_alignment(np.diag([1.0, -1.0]), [1.0, 0.0]), "gram must be positive semi-definite"),
        (lambda: label_alignment(np.eye(2), [1.0, 0.0]).cutoff(0.0), "share must be in (0, 1], got 0.0"),
        (lambda: eigenvalue_decay([1.0, 0.5]), "first..last must hold at least 3 of 2 eigenvalues"),
        (lambda: eigenvalue_decay([1.0, 0.5, 0.0]), "eigenvalues number 1..3 must be positive, got 0.0"),
        (lambda: eigenvalue_decay([1.0, 0.5, 0.1], law="log"), "law must be"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value)


def test_scores_keep_their_digits_at_every_scale():
    gram = np.diag([1.0, 2.0, 3.0])
    np.testing.assert_allclose(leverage_scores(1e-20 * gram, 1.0), 1e-20 * np.diag(gram), rtol=1e-12)
    np.testing.assert_allclose(leverage_scores(np.ones((3, 3)), 1e-18), np.full(3, 1 / 3), rtol=1e-12)
    assert effective_rank(1e308 * np.eye(5)) == pytest.approx(5)
    assert label_alignment(gram, [1e200, 0, 0]).share == pytest.approx([0, 0, 1])


@pytest.mark.parametrize("function", [kernel_alignment, label_alignment])
def test_a_gram_matrix_without_content_is_refused(function):
    with pytest.raises(ValueError, match="gram must not be zero"):
        function(np.zeros((3, 3)), [1.0, 2.0, 1.0])
    with pytest.raises(ValueError, match="gram must not be zero after centring"):
        function(np.ones((3, 3)), [1.0, 2.0, 1.0], centre=True)


def test_cutoff_counts_a_share_that_is_just_reached():
    alignment = label_alignment(np.diag([4.0, 3.0, 2.0, 1.0]), [1.0, 1.0, 1.0, 1.0])
    assert [alignment.cutoff(share) for share in (0.25, 0.5, 0.51, 0.75, 1.0)] == [1, 2, 3, 3, 4]


@pytest.mark.parametrize("function", [effective_rank, lambda gram: effective_dimension(gram, 1.0), lambda gram: leverage_scores(gram, 1.0)])
def test_small_negative_eigenvalues_are_rounding_only_to_a_millionth(function):
    function(np.diag([-1e-9, 1.0]))
    with pytest.raises(ValueError, match="gram must be positive semi-definite, got eigenvalues from"):
        function(np.diag([-1e-4, 1.0]))
