"""Counter-based random numbers: published vectors, keys, laws."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from particles import random

VECTORS = [  # Random123's known answers for philox4x32-10: counter, key, result
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), VECTORS)
def test_known_answers(counter, key, expected):
    assert random.philox(counter, key).tolist() == expected


def test_normal_is_box_muller_of_the_keyed_block():
    seed, chain, step, stream = (5 << 32) + 9, 3, 11, 2
    a, b, c, d = (int(w) for w in random.philox([1, step, chain, stream], [9, 5]))
    u, v = ((a >> 5) * 2**26 + (b >> 6) + 1) / 2**53, ((c >> 5) * 2**26 + (d >> 6)) / 2**53
    radius = np.sqrt(-2 * np.log(u))
    expected = [radius * np.cos(2 * np.pi * v), radius * np.sin(2 * np.pi * v)]
    np.testing.assert_allclose(random.normal((seed, chain, step), (2, 2), stream=stream)[1], expected, rtol=1e-14)


@pytest.mark.parametrize("dim", [1, 2, 3, 5])
def test_numbers_do_not_depend_on_how_many_are_drawn(dim):
    many = random.normal((7, 2, 13), (4, 101, dim))
    assert np.array_equal(random.normal((7, 2, 13), (101, dim)), many[0])
    assert np.array_equal(random.normal((7, 4, 13), (2, 101, dim)), many[2:])
    assert np.array_equal(random.normal((7, 3, 13), (17, dim)), many[1, :17])


def test_uniforms_of_many_chains_are_those_of_each():
    many = random.chain_uniform((7, 2, 13), 4, 11, stream=3)
    for c in range(4):
        assert np.array_equal(many[c], random.uniform((7, 2 + c, 13), 11, stream=3))
        assert np.array_equal(many[c, :5], random.uniform((7, 2 + c, 13), 5, stream=3))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numpy_and_torch_draw_the_same_numbers(dtype):
    omega = np.zeros((2, 5, 3), dtype)
    drawn = random.normal_like((7, 2, 13), omega)
    by_torch = random.normal_like((7, 2, 13), torch.from_numpy(omega))
    assert drawn.dtype == dtype
    assert by_torch.dtype == getattr(torch, dtype)
    assert np.array_equal(by_torch.numpy(), drawn)
    assert np.array_equal(drawn, random.normal((7, 2, 13), omega.shape).astype(dtype))


@pytest.mark.parametrize("shape", [(1, 64, 2), (3, 5, 3), (2, 7, 1)])
def test_a_walk_is_its_parts_bit_for_bit(shape):
    omega, gradient = np.random.default_rng(0).normal(size=(2, *shape))
    key = (2**63 + 5, 3, 2**31)
    expected = omega - gradient * 0.37 + random.normal(key, shape) * 0.81
    assert np.array_equal(random.walk(key, omega, gradient, 0.37, 0.81), expected)
    spread = np.repeat(omega, 2, -1)[..., ::2]  # not contiguous
    assert np.array_equal(random.walk(key, spread, gradient.swapaxes(0, 1).copy().swapaxes(0, 1), 0.37, 0.81), expected)


def test_keys_may_hold_any_integers_and_end_where_the_counter_does():
    assert np.array_equal(random.normal((np.int64(5), np.int32(2), np.uint8(3)), (4, 2)), random.normal((5, 2, 3), (4, 2)))
    last = random.normal((2**64 - 1, 2**32 - 1, 2**32 - 1), (4, 2), stream=2**32 - 1)
    assert np.isfinite(last).all()
    assert not np.isclose(last, random.normal((2**64 - 1, 2**32 - 1, 2**31 - 1), (4, 2), stream=2**32 - 1)).any()


def test_streams_are_named_and_different():
    streams = (random.NOISE, random.MINIBATCH, random.VELOCITY, random.ACCEPTANCE, random.RESAMPLE, random.RANDOM_BATCH)
    assert streams == (0, 1, 2, 3, 4, 5)  # what stored runs were made with
    draws = np.stack([random.normal((3, 0, 9), (200, 1), stream=stream)[:, 0] for stream in streams])
    assert abs(np.corrcoef(draws) - np.eye(6)).max() < 4.9 / np.sqrt(200)


def test_a_companion_key_is_no_key_of_the_run():
    assert random.companion((3, 4, 5)) == (3, 4, 5 + 2**31)
    assert random.companion((3, 4, 2**32 - 1)) == (3, 4, 2**31 - 1)


def test_every_part_of_the_key_matters():
    draws = [
        random.normal(key, (8, 2), stream=stream).ravel() for key in [(1, 0, 0), (0, 1, 0), (0, 0, 1), (2**32, 0, 0)] for stream in (0, 1)
    ]
    for i, a in enumerate(draws):
        for b in draws[:i]:
            assert not np.isclose(a, b).any()


def test_normal_law():
    # Kolmogorov-Smirnov, correlation of neighbours, chains and steps; false alarm about 1e-6 for each of 5 looks
    z = random.normal((123, 0, 0), (4, 25_000, 2))
    assert stats.kstest(z.ravel(), "norm").pvalue > 1e-6
    assert stats.kstest(1.03 * z.ravel(), "norm").pvalue < 1e-6  # negative control: 3 % too wide is seen
    pairs = [(z[..., 0], z[..., 1]), (z[0], z[1]), (z[:, 1:], z[:, :-1]), (z, random.normal((123, 0, 1), z.shape))]
    for a, b in pairs:
        assert abs(np.mean(a * b)) < 4.9 / np.sqrt(a.size)


def test_uniform_law_and_range():
    u = random.uniform((3, 0, 0), 100_001)
    assert u.min() >= 0
    assert u.max() < 1
    assert stats.kstest(u, "uniform").pvalue > 1e-6
    assert np.array_equal(u[:10], random.uniform((3, 0, 0), 10))


def test_choice_is_uniform_without_replacement():
    picks = np.array([random.choice((1, 0, step), 7, 3) for step in range(7000)])
    assert all(len(set(row)) == 3 for row in picks.tolist())
    for column in picks.T:  # chi-square with 6 degrees of freedom; false alarm 1e-6 each
        assert stats.chisquare(np.bincount(column, minlength=7)).pvalue > 1e-6
    assert sorted(random.choice((1, 0, 0), 20, 20)) == list(range(20))


def test_key_from():
    assert random.key_from(17) == 17
    assert random.key_from(np.int64(17)) == 17
    assert random.key_from(np.random.default_rng(1)) == random.key_from(np.random.default_rng(1))
    for bad in (-1, 2**64, 1.5, None, "seed", True):
        with pytest.raises(ValueError, match="rng"):
            random.key_from(bad)


def test_keys_that_do_not_fit_are_refused():
    for key in [(-1, 0, 0), (2**64, 0, 0), (0, -1, 0), (0, 0, 2**32)]:
        with pytest.raises(ValueError, match="key"):
            random.normal(key, (2, 2))
    for key in [(1, 2), 5, "abc", ("a", 0, 0), (0.5, 0, 0), None]:
        with pytest.raises(ValueError, match=r"key must be the integers \(seed, chain, step\)"):
            random.normal(key, (2, 2))
    with pytest.raises(ValueError, match="size"):
        random.choice((0, 0, 0), 3, 4)
