"""Pair sums against identities and derivatives."""

from __future__ import annotations

import numpy as np
import pytest

from theory.report.pairs import pair_force


def test_pair_force_satisfies_the_deterministic_virial_identity():
    """(1/N) sum x_k . F_k = |s| (strength/2) mean |x_k - x_l|^-s for any configuration, strength/2 for the log."""
    x = np.random.default_rng(3).normal(size=(11, 3))
    i, j = np.triu_indices(11, 1)
    r = np.linalg.norm(x[i] - x[j], axis=1)
    for s in (0.0, 0.5, 1.0, -0.5, -1.5, 2.0):
        force = pair_force(x, {"strength": 0.7}, s)
        expected = 0.35 if s == 0 else abs(s) * 0.35 * np.mean(r**-s)
        assert np.sum(x * force) / 11 == pytest.approx(expected, rel=1e-12)
    soft = pair_force(x, {"strength": 0.7, "softening": 0.4}, 0.0)
    assert np.sum(x * soft) / 11 == pytest.approx(0.35 * np.mean(r**2 / (r**2 + 0.16)), rel=1e-12)
    both = pair_force(x, {"strength": 0.7, "mirror": True}, 0.0) - pair_force(x, {"strength": 0.7}, 0.0)
    k = 4
    pulls = [(x[k] + x[m]) / np.sum((x[k] + x[m]) ** 2) for m in range(11) if m != k]
    np.testing.assert_allclose(both[k], 0.07 * np.sum(pulls, 0), rtol=1e-12)


@pytest.mark.parametrize("sign", [1, -1], ids=["plain", "mirror"])
@pytest.mark.parametrize(("dim", "s"), [(1, 0.0), (2, 1.0), (3, 0.5)])
def test_periodic_pair_force_is_minus_the_gradient_of_its_energy(dim, s, sign):
    rng = np.random.default_rng(2)
    period, x = np.array([1.5, 2.0, 0.9])[:dim], rng.uniform(0, 0.9, (6, dim))
    term = {"strength": 0.7, "s": s, "period": period.tolist(), "mirror": sign < 0}

    def energy(x):  # N H_N
        total = 0.0
        for side in (-1, 1) if sign < 0 else (-1,):
            chord = period / np.pi * np.sin(np.pi * (x[:, None] + side * x) / period)
            r = np.sqrt(np.sum(chord**2, -1))[~np.eye(len(x), dtype=bool)]
            total += np.sum(-np.log(r) if s == 0 else r**-s)
        return 0.7 * total / (2 * (len(x) - 1))

    steps = 1e-6 * np.eye(x.size).reshape(-1, *x.shape)
    slope = np.array([energy(x + h) - energy(x - h) for h in steps]).reshape(x.shape) / 2e-6
    np.testing.assert_allclose(pair_force(x, term, s), -slope, rtol=1e-6, atol=1e-6)


def test_truncated_pair_force_has_no_force_inside():
    x = np.array([[0.0], [0.1], [1.0]])
    force = pair_force(x, {"strength": 2.0, "truncation": 0.5}, 1.0)
    np.testing.assert_allclose(force[:, 0], [-1.0, -1 / 0.81, 1 + 1 / 0.81])
