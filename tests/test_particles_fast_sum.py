"""Fast sums against the direct sum: errors on three clouds, odd inputs; random batches are unbiased."""

from __future__ import annotations

import math
import subprocess
import sys
import time
import tracemalloc

import numba
import numpy as np
import pytest

from particles import _numba, fast_sum
from particles.fast_sum import fmm_sums, random_batch_sums, tree_sums, worthwhile

EXPONENTS = (-1.0, 0.0, 0.5, 1.0, 2.0, math.pi)
CLOUDS = ("uniform", "clustered", "collapsed")


def cloud(kind: str, n: int, dim: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if kind == "uniform":
        return rng.uniform(size=(n, dim))
    if kind == "clustered":
        return rng.normal(size=(20, dim))[rng.integers(20, size=n)] + 0.05 * rng.normal(size=(n, dim))
    points = 1e-6 * rng.normal(size=(n, dim))  # most in a tiny ball, and a halo
    points[: n // 10] = rng.normal(size=(n // 10, dim))
    return rng.permutation(points)


def direct(x: np.ndarray, y: np.ndarray, s: float, softening2: float = 0.0) -> tuple[float, np.ndarray]:
    total, force = _numba.pair_sums(x[None], y[None], s, softening2, 0.0, energy=True)
    return float(total[0]), force[0]


def error(force: np.ndarray, exact: np.ndarray) -> float:
    return float(np.sqrt(((force - exact) ** 2).sum() / (exact**2).sum()))


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("kind", CLOUDS)
def test_tree_errs_by_less_than_the_tolerance(kind, dim):
    x = cloud(kind, 2000, dim)
    for s in EXPONENTS:
        for y in (x, -x)[: 2 if s in (0.0, 2.0) else 1]:
            total, force = direct(x, y, s)
            for tolerance in (1e-2, 1e-3, 1e-6):
                fast_total, fast_force = tree_sums(x, y, s, tolerance=tolerance)
                assert error(fast_force, force) < tolerance, (s, tolerance)
                assert abs(fast_total - total) < tolerance * abs(total), (s, tolerance)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_tree_does_not_merely_sum_directly(dim):
    """The errors are those of an approximation, and fall as the degree rises."""
    x = cloud("clustered", 3000, dim)
    force = direct(x, x, 0.0)[1]
    errors = [error(fast_sum._by_tree(x, x, 0.0, 0.0, degree, False)[1], force) for degree in (2, 4, 6)]
    assert errors[0] > 1e-4
    assert errors[1] < errors[0] / 10
    assert errors[2] < errors[1] / 10


@pytest.mark.parametrize("s", [0.0, 1.0, -1.5])
def test_softened_kernel(s):
    x = cloud("clustered", 3000, 2)
    total, force = direct(x, x, s, 0.01)
    fast_total, fast_force = tree_sums(x, x, s, 0.01, tolerance=1e-5)
    assert error(fast_force, force) < 1e-5
    assert fast_total == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize("s", [1e-9, -1e-5, 1e-3])
def test_exponents_near_the_logarithm(s):
    x = cloud("collapsed", 3000, 2)
    total, force = direct(x, x, s)
    fast_total, fast_force = tree_sums(x, x, s, tolerance=1e-6)
    assert error(fast_force, force) < 1e-6
    assert fast_total == pytest.approx(total, rel=1e-9)


def test_deep_tree_keeps_the_slope_of_small_cells():
    """s = -1.5, a ball of 1e-8 inside a halo of 1: the far potential is 1e12 times its change over the ball."""
    x = cloud("collapsed", 3000, 2)
    x[np.abs(x).max(1) < 1e-4] *= 1e-2
    assert error(tree_sums(x, x, -1.5, tolerance=1e-6)[1], direct(x, x, -1.5)[1]) < 1e-6


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_few_particles(dim):
    for n in range(1, 11):
        x = cloud("uniform", n, dim)
        for y in (x, x - 3, -x):
            total, force = direct(x, y, 1.0)
            for fast_total, fast_force in (tree_sums(x, y, 1.0, tolerance=1e-3), random_batch_sums(x, y, 1.0, key=(0, 0, 0))):
                assert np.allclose(fast_force, force, rtol=1e-10, atol=1e-12)
                assert fast_total == pytest.approx(total, rel=1e-10, abs=1e-12)


def test_float32_readonly_and_fortran_inputs_equal_float64():
    x = cloud("uniform", 2000, 3).astype(np.float32)
    expected = tree_sums(x.astype(np.float64), x.astype(np.float64), 1.0, tolerance=1e-3)
    x.flags.writeable = False
    kept = x.copy()
    for points in (x, np.asfortranarray(x)):
        total, force = tree_sums(points, points, 1.0, tolerance=1e-3)
        assert total == expected[0]
        assert np.array_equal(force, expected[1])
    assert np.array_equal(x, kept)


def test_integer_and_floating_exponents_give_the_same_bits():
    x = cloud("uniform", 2000, 2)
    results = [tree_sums(x, x, s, tolerance=1e-3) for s in (1, 1.0, np.float32(1), np.int64(1))]
    assert all(total == results[0][0] and np.array_equal(force, results[0][1]) for total, force in results)


def test_the_energy_is_optional():
    x = cloud("clustered", 3000, 2)
    for s in (0.0, 1.0):
        total, force = tree_sums(x, x, s, tolerance=1e-3, energy=False)
        assert total == 0.0
        assert np.allclose(force, tree_sums(x, x, s, tolerance=1e-3)[1], rtol=1e-12)


# Coincident and hugely spread points


def test_coincident_points_and_one_far_away_return_at_once():
    x = np.zeros((2001, 3))
    x[-1] = 1e150
    tree_sums(x, x, 1.0, tolerance=1e-3)  # compiled
    start = time.process_time()
    total, force = tree_sums(x, x, 1.0, tolerance=1e-3)
    assert time.process_time() - start < 1.0
    assert total == math.inf
    assert np.isfinite(force).all()


@pytest.mark.parametrize("method", ["tree", "fmm", "random_batch"])
def test_coincident_points_have_infinite_energy_and_no_force(method):
    same = np.full((1500, 3), 0.25)
    x = cloud("uniform", 1500, 3)
    x[7] = x[900]
    for points in (same, x):
        total, force = _sums(method, points)
        assert total == math.inf
        assert np.isfinite(force).all()
    assert not _sums(method, same)[1].any()
    assert _sums("tree", x)[1] == pytest.approx(direct(x, x, 1.0)[1], rel=1e-2, abs=1e2)


def _sums(method: str, x: np.ndarray) -> tuple[float, np.ndarray]:
    if method == "random_batch":
        return random_batch_sums(x, x, 1.0, key=(0, 0, 0))
    return {"tree": tree_sums, "fmm": fmm_sums}[method](x, x, 1.0, tolerance=1e-3)


def test_coincident_points_are_exact_for_softened_and_negative_exponents():
    x = cloud("uniform", 1000, 2)
    x[:300] = x[0]
    for s, softening2 in ((-1.0, 0.0), (1.0, 0.01), (0.0, 0.01)):
        total, force = direct(x, x, s, softening2)
        fast_total, fast_force = tree_sums(x, x, s, softening2, tolerance=1e-6)
        assert fast_total == pytest.approx(total, rel=1e-6)
        assert error(fast_force, force) < 1e-6


def test_a_particle_on_its_own_mirror_image():
    x = cloud("uniform", 1500, 3)
    x[3] = 0
    total, force = direct(x, -x, 1.0)
    for fast_total, fast_force in (tree_sums(x, -x, 1.0, tolerance=1e-5), fmm_sums(x, -x, 1.0, tolerance=1e-5)):
        assert fast_total == pytest.approx(total, rel=1e-5)
        assert error(fast_force, force) < 1e-5


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_points_that_are_not_finite_are_named(bad):
    x = cloud("uniform", 10, 2)
    x[2, 1] = bad
    for call in (lambda: tree_sums(x, x, 1.0, tolerance=1e-3), lambda: random_batch_sums(x, x, 1.0, key=(0, 0, 0))):
        with pytest.raises(ValueError, match="x must be finite"):
            call()


def test_arguments_out_of_range_are_named():
    x = cloud("uniform", 10, 3)
    for tolerance in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="tolerance"):
            tree_sums(x, x, 1.0, tolerance=tolerance)
        with pytest.raises(ValueError, match="tolerance"):
            fmm_sums(x, x, 1.0, tolerance=tolerance)
    with pytest.raises(ValueError, match="dim 1, 2 or 3"):
        tree_sums(np.ones((5, 4)), np.ones((5, 4)), 1.0, tolerance=1e-3)
    with pytest.raises(ValueError, match="tolerance must be larger"):  # its matrices would need hundreds of gigabytes
        tree_sums(x, x, 70.0, tolerance=1e-3)
    for call in (lambda s, q: tree_sums(x, x, s, q, tolerance=1e-3), lambda s, q: random_batch_sums(x, x, s, q, key=(0, 0, 0))):
        for s, softening2, name in ((-2.0, 0.0, "s must be above -2"), (math.nan, 0.0, "s must be finite"), (1.0, -1.0, "softening2")):
            with pytest.raises(ValueError, match=name):
                call(s, softening2)
    with pytest.raises(ValueError, match="for FMM3D, got 2"):
        fmm_sums(x, x, 2.0, tolerance=1e-3)
    with pytest.raises(ValueError, match="batch"):
        random_batch_sums(x, x, 1.0, batch=0, key=(0, 0, 0))


def test_memory_is_linear():
    """2e4 particles: a matrix of all pairs would be 3.2 GB."""
    x = cloud("clustered", 20000, 3)
    tree_sums(x[:500], x[:500], 1.0, tolerance=1e-2)
    tracemalloc.start()
    tree_sums(x, x, 1.0, tolerance=1e-2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6


# FMM3D


@pytest.mark.parametrize("kind", CLOUDS)
def test_fmm_errs_by_less_than_the_tolerance(kind):
    pytest.importorskip("fmm3dpy")
    x = cloud(kind, 1000, 3)
    for y in (x, -x):
        total, force = direct(x, y, 1.0)
        for tolerance in (1e-2, 1e-5, *([] if kind == "collapsed" else [1e-10])):  # there FMM3D takes seconds
            fast_total, fast_force = fmm_sums(x, y, tolerance=tolerance)
            assert error(fast_force, force) < tolerance
            assert fast_total == pytest.approx(total, rel=tolerance)


def test_a_bad_build_of_fmm3d_falls_back_with_a_warning(monkeypatch):
    """Its import ends the process that tries it."""
    monkeypatch.setattr(fast_sum, "_TRIAL", "import os; os.abort()")
    fast_sum._fmm_fails.cache_clear()
    x = cloud("uniform", 500, 3)
    with pytest.warns(UserWarning, match="fmm3dpy does not work"):
        total, force = fmm_sums(x, x, tolerance=1e-3)
    fast_sum._fmm_fails.cache_clear()
    expected = tree_sums(x, x, 1.0, tolerance=1e-3)
    assert total == expected[0]
    assert np.array_equal(force, expected[1])


def test_fmm3d_is_loaded_on_first_use_only():
    code = "import sys, particles, particles.fast_sum; assert 'fmm3dpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# Random batches


def _batches(x: np.ndarray, y: np.ndarray, s: float, n_keys: int) -> tuple[np.ndarray, np.ndarray]:
    results = [random_batch_sums(x, y, s, batch=8, key=(11, 0, k)) for k in range(n_keys)]
    return np.array([r[0] for r in results]), np.array([r[1] for r in results])


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("s", "dim"), [(0.0, 2), (1.0, 3), (-1.0, 1)])
def test_random_batches_are_unbiased(s, dim, sign):
    """The mean of squared deviations in standard errors is 1 +- 5 sd (false alarm < 1e-5); a factor wrong by 2 % is rejected."""
    x = cloud("uniform", 300, dim)
    total, force = direct(x, sign * x, s)
    totals, forces = _batches(x, sign * x, s, 200)
    standard_error = forces.std(0) / 200**0.5

    def chi2(exact):
        return (((forces.mean(0) - exact) / standard_error) ** 2).mean()

    spread = 5 * math.sqrt(2 / force.size) * 1.1 + 0.02
    assert abs(chi2(force) - 1) < spread
    assert abs(totals.mean() - total) < 5 * totals.std() / 200**0.5
    near = random_batch_sums(x, sign * x, s, batch=8, key=(11, 0, 0))[1] - forces[0]
    assert not near.any()  # a key gives the same numbers again
    assert chi2(force + 0.02 * np.abs(force).mean()) > 1 + spread or chi2(1.02 * force) > 1 + spread


def test_splitting_off_near_pairs_lowers_the_variance(monkeypatch):
    x = cloud("uniform", 1000, 3)
    split = _batches(x, x, 1.0, 40)[1].var(0).mean()
    monkeypatch.setattr(fast_sum, "_NEIGHBOURS", 0)
    assert _batches(x, x, 1.0, 40)[1].var(0).mean() > 30 * split


def test_random_batch_of_a_dense_cluster_is_exact_where_it_should_be():
    """500 points within 1e-3: no list of neighbours overflows; with all of them near, the sums are the exact ones."""
    x = np.concatenate([1e-3 * cloud("uniform", 500, 3), cloud("uniform", 20, 3)])
    total, force = direct(x, x, 1.0)
    totals, forces = _batches(x, x, 1.0, 200)
    deviation = (forces.mean(0) - force) / (forces.std(0) / 200**0.5)
    assert abs((deviation**2).mean() - 1) < 0.25  # 1560 numbers: sd 0.036, 5 sd and the spread of the estimated errors
    assert abs(totals.mean() - total) < 5 * totals.std() / 200**0.5


def test_near_partners_are_all_when_they_suffice(monkeypatch):
    x = np.concatenate([1e-3 * cloud("uniform", 500, 3), cloud("uniform", 20, 3)])
    monkeypatch.setattr(fast_sum, "_NEIGHBOURS", 520)
    total, force = random_batch_sums(x, x, 1.0, key=(0, 0, 0))
    assert total == pytest.approx(direct(x, x, 1.0)[0], rel=1e-12)
    assert error(force, direct(x, x, 1.0)[1]) < 1e-12


def test_random_batches_depend_on_key_alone():
    x = cloud("uniform", 500, 2)
    first, again, other = (random_batch_sums(x, x, 0.0, key=(5, 1, step))[1] for step in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_worthwhile_grows_with_the_number_and_the_tolerance():
    assert worthwhile(100_000, 3, 1.0, 1e-3)
    assert worthwhile(100_000, 2, 0.0, 1e-6)
    assert worthwhile(15_000, 3, 1.0, 1e-3)
    assert not worthwhile(15_000, 3, 1.0, 1e-3, single=True)  # direct sums in float32 are faster
    for n, dim, s, tolerance in ((500, 3, 1.0, 1e-3), (15_000, 3, 0.0, 1e-3), (100_000, 4, 1.0, 1e-3), (100_000, 3, 1.0, 0.0)):
        assert not worthwhile(n, dim, s, tolerance)
    assert not worthwhile(10**9, 3, 70.0, 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CLOUDS)
@pytest.mark.parametrize(("s", "dim"), [(0.0, 2), (1.0, 3), (1.0, 1), (1.3, 2)])
def test_the_tree_is_not_slower_where_it_is_picked(kind, s, dim):
    """At the smallest N where "auto" takes it, within 20 %."""
    n = next(n for n in range(500, 50_000, 100) if worthwhile(n, dim, s, 1e-3))
    x, times = cloud(kind, n, dim), {"direct": math.inf, "tree": math.inf}
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    for _ in range(6):
        start = time.process_time()
        direct(x, x, s)
        middle = time.process_time()
        tree_sums(x, x, s, tolerance=1e-3)
        times = {"direct": min(times["direct"], middle - start), "tree": min(times["tree"], time.process_time() - middle)}
    numba.set_num_threads(before)
    assert times["tree"] < 1.2 * times["direct"]


@pytest.mark.slow
def test_a_large_cloud_keeps_the_tolerance_and_beats_direct_sums_fivefold():
    """1e5 particles, d = 3, s = 1, tolerance 1e-3; exact forces of 200 of them; direct time scaled from 1.5e4 by the number of pairs."""
    x = cloud("uniform", 100_000, 3)
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    times = {"direct": math.inf, "tree": math.inf}
    tree_sums(x[:3000], x[:3000], 1.0, tolerance=1e-3)
    for _ in range(3):
        start = time.process_time()
        direct(x[:15000], x[:15000], 1.0)
        middle = time.process_time()
        force = tree_sums(x, x, 1.0, tolerance=1e-3)[1]
        times = {"direct": min(times["direct"], middle - start), "tree": min(times["tree"], time.process_time() - middle)}
    numba.set_num_threads(before)
    exact = np.stack([_force_on(x, i) for i in range(200)])
    assert error(force[:200], exact) < 1e-3
    assert times["direct"] * (100_000 / 15_000) ** 2 > 5 * times["tree"]


def _force_on(x: np.ndarray, i: int) -> np.ndarray:
    gap = np.delete(x[i] - x, i, 0)
    return (gap * ((gap**2).sum(1) ** -1.5)[:, None]).sum(0)
