from __future__ import annotations

import numpy as np
import pytest
import torch

from attention.relation import AttendAlignment, AttendDivergence, AttendQuadratic, CentredAttendAlignment
from particles.alignment import Alignment
from particles.features import (
    CosineSquared,
    Elu,
    FourierPair,
    FourierPhase,
    NonstationaryPair,
    PositiveExponential,
    SigmoidSquared,
    SoftmaxFeatures,
    Softplus,
)

ENERGIES = [AttendAlignment, CentredAttendAlignment, AttendQuadratic, AttendDivergence]
FEATURES = [
    FourierPair(),
    FourierPhase(),
    NonstationaryPair(),
    Softplus(),
    Softplus(renormalise=True),
    Elu(),
    SigmoidSquared(renormalise=True),
    CosineSquared(),
    SoftmaxFeatures(),
    PositiveExponential(),
]
CASES = [(energy, feature) for energy in ENERGIES for feature in FEATURES if energy is not AttendDivergence or not feature.signed]


def data(seed: int = 0, sequences: int = 3, queries: int = 5, keys: int = 6, dim: int = 4):
    rng = np.random.default_rng(seed)
    q, k = rng.normal(size=(sequences, queries, dim)), rng.normal(size=(sequences, keys, dim))
    attend = rng.random((sequences, queries, keys)) * (rng.random((sequences, queries, keys)) < 0.5)
    return q, k, attend, rng.random((sequences, queries, keys)) < 0.8


@pytest.mark.parametrize(("energy", "feature"), CASES, ids=lambda part: getattr(part, "__name__", repr(part)))
def test_gradients_are_those_of_the_value(energy, feature):
    q, k, attend, allowed = data()
    h = energy(q, k, attend, feature, allowed=allowed)
    omega = np.random.default_rng(1).normal(size=(2, 3, feature.particle_dim(4)))
    gradient = h.gradient(omega)
    expected = np.zeros_like(omega)
    for index in np.ndindex(omega.shape):
        step = np.zeros_like(omega)
        step[index] = 1e-5
        expected[index] = 3 * (h.value(omega + step) - h.value(omega - step))[index[0]] / 2e-5
    np.testing.assert_allclose(gradient, expected, atol=3e-8 * np.abs(expected).max())
    terms, same = h.value_and_grad(omega)
    np.testing.assert_array_equal(terms[h.term], h.value(omega))
    np.testing.assert_array_equal(same, gradient)


@pytest.mark.parametrize(("energy", "feature"), CASES, ids=lambda part: getattr(part, "__name__", repr(part)))
def test_what_stands_at_forbidden_pairs_changes_nothing(energy, feature):
    q, k, attend, _ = data()
    allowed = np.ones(attend.shape, bool)
    allowed[0, 3:], allowed[0, :, 4:] = False, False  # padding of queries and keys
    omega = np.random.default_rng(1).normal(size=(3, feature.particle_dim(4)))
    first = energy(q, k, attend, feature, allowed=allowed)
    q[0, 3:], k[0, 4:], attend[0, :, 4:] = 2.5, -1.5, 9.0
    second = energy(q, k, attend, feature, allowed=allowed)
    np.testing.assert_allclose(first.value(omega), second.value(omega), rtol=1e-12)
    np.testing.assert_allclose(first.gradient(omega), second.gradient(omega), rtol=1e-9, atol=1e-12)


def test_equal_bins_give_the_alignment_of_labels_within_groups():
    # 4 bins of 3 tokens a sequence, q = k: <D, K>/n = sum_ij (4 [same] - 1) K_ij / n^2, `Alignment` without i = j over n (n - 1), K_ii = 1
    rng = np.random.default_rng(0)
    x, bins = rng.normal(size=(5, 12, 3)), np.stack([rng.permutation(np.arange(12) % 4) for _ in range(5)])
    relation = AttendAlignment(x, x, bins[:, :, None] == bins[:, None], FourierPair())
    labels = Alignment(x.reshape(-1, 3), bins.ravel(), FourierPair(), groups=np.repeat(np.arange(5), 12))
    omega = rng.normal(size=(6, 3))
    assert relation.scale == pytest.approx(1, rel=1e-12)
    np.testing.assert_allclose(relation.gradient(omega), 11 / 12 * labels.gradient(omega), rtol=1e-10)
    np.testing.assert_allclose(relation.value(omega), 11 / 12 * labels.value(omega) - 3 / 12, rtol=1e-10)


def test_a_number_added_to_a_row_of_the_kernel_and_the_scale_of_a_relation_do_not_count():
    q, k, attend, allowed = data()
    omega = np.random.default_rng(1).normal(size=(3, 4))
    plain, scaled = (AttendAlignment(q, k, factor * attend, FourierPair(), allowed=allowed) for factor in (1, 7))
    np.testing.assert_allclose(plain.value(omega), scaled.value(omega), rtol=1e-12)
    value, slope = plain._slope(np.ones(attend.shape) * np.arange(5)[:, None], slice(None))
    assert abs(value) < 1e-12 * np.abs(slope).sum()


def test_soft_relations_are_raised_to_the_size_of_sharp_ones():
    x = np.random.default_rng(0).normal(size=(4, 12, 3))
    bins = np.arange(12) % 4
    sharp = np.broadcast_to(bins[:, None] == bins, (4, 12, 12)).astype(float)
    omega = np.random.default_rng(1).normal(size=(3, 3))
    first, second = AttendAlignment(x, x, sharp, FourierPair()), AttendAlignment(x, x, sharp + 1.0, FourierPair())
    assert second.scale == pytest.approx(5)  # (P - U) of rows 2/15, 1/15 is a fifth of that of rows 1/3, 0
    np.testing.assert_allclose(first.value(omega), second.value(omega), rtol=1e-10)


def test_the_best_value_is_reached_by_the_relation_itself():
    q, k, _, _ = data()
    feature, omega = Softplus(), np.random.default_rng(1).normal(size=(3, 4))
    kernel = np.stack([feature.kernel(a, b, omega) for a, b in zip(q, k)])
    assert AttendDivergence(q, k, kernel, feature).value(omega) == pytest.approx(0, abs=1e-14)
    assert AttendQuadratic(q, k, kernel, feature).value(omega) == pytest.approx(0, abs=1e-14)
    assert CentredAttendAlignment(q, k, kernel, feature).value(omega) == pytest.approx(-1)
    for energy in (AttendDivergence, AttendQuadratic, CentredAttendAlignment):
        assert np.abs(energy(q, k, kernel, feature).gradient(omega)).max() < 1e-12


def test_uniform_attention_has_the_values_that_the_definitions_say():
    q, k, attend, allowed = data()
    attend[:, :, 0], allowed[:, :, 0] = 1.0, True
    same = np.zeros((4, 4))  # particles at 0: every softplus feature is log 2
    assert AttendQuadratic(q, k, attend, Softplus(), allowed=allowed).value(same) == pytest.approx(0.5)
    relation = AttendDivergence(q, k, attend, Softplus(), allowed=allowed)
    p, used = relation.pairs.attend, relation.pairs.allowed.any(-1)
    entropy = -np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0).sum(-1)
    assert relation.value(same) == pytest.approx((np.log(relation.pairs.allowed.sum(-1)[used]) - entropy[used]).mean())
    with pytest.raises(FloatingPointError, match="uniform"):
        CentredAttendAlignment(q, k, attend, FourierPair(), allowed=allowed).value(same)


def test_minibatches_are_unbiased_and_need_a_key():
    q, k, attend, allowed = data(sequences=6)
    full, part = (AttendAlignment(q, k, attend, FourierPair(), allowed=allowed, batch_size=size) for size in (None, 2))
    omega = np.random.default_rng(1).normal(size=(3, 4))
    draws = np.stack([part.gradient(omega, key=(0, 0, step)) for step in range(2000)])
    error = draws.std(0) / np.sqrt(2000)
    assert (np.abs(draws.mean(0) - full.gradient(omega)) < 4.5 * error).all()  # 12 numbers: false alarm 1e-4 if the seed were drawn
    assert part.minibatched
    assert part.value(omega) == full.value(omega)
    with pytest.raises(ValueError, match="key must be given"):
        part.gradient(omega)
    with pytest.raises(ValueError, match="batch_size must be at most 6 sequences, got 7"):
        AttendAlignment(q, k, attend, FourierPair(), batch_size=7)


def test_chains_are_evaluated_each_by_itself():
    q, k, attend, allowed = data()
    energy = AttendQuadratic(q, k, attend, FourierPair(), allowed=allowed)
    omega = np.random.default_rng(1).normal(size=(2, 3, 4))
    np.testing.assert_array_equal(energy.value(omega), [energy.value(chain) for chain in omega])
    np.testing.assert_array_equal(energy.gradient(omega), [energy.gradient(chain) for chain in omega])


def test_bad_input_is_named():
    q, k, attend, allowed = data()
    make = AttendAlignment
    with pytest.raises(ValueError, match="q, k and attend must have shapes"):
        make(q, k[:2], attend, "fourier")
    with pytest.raises(ValueError, match="attend must be at least 0"):
        make(q, k, attend - 1, "fourier")
    with pytest.raises(ValueError, match="attend must be finite"):
        make(q, k, attend * np.nan, "fourier")
    with pytest.raises(ValueError, match="allowed must be boolean"):
        make(q, k, attend, "fourier", allowed=allowed * 1)
    with pytest.raises(ValueError, match="no such row"):
        make(q, k, np.zeros_like(attend), "fourier")
    with pytest.raises(ValueError, match="no such row"):
        make(q, k, np.ones_like(attend), "fourier")
    with pytest.raises(ValueError, match="feature must be positive"):
        AttendDivergence(q, k, attend, "fourier")
    with pytest.raises(ValueError, match="NumPy"):
        make(q, k, attend, "fourier").gradient(torch.zeros(3, 4, dtype=torch.float64))
    with pytest.raises(FloatingPointError, match="positive finite sum"):
        AttendDivergence(q, 1000 * k, attend, PositiveExponential()).value(np.ones((2, 4)))
