"""Pair sums on numba and torch against the loop definition, at every awkward exponent, size, layout, thread count and distance."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mpmath
import numba
import numpy as np
import pytest
import torch

from particles import _numba, _powers, _torch, naive, pairwise
from particles.pairwise import gaps, riesz_sums

EXPONENTS = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, np.pi, 7.0, 62.0, -0.5, -1.0, -1.5, -np.sqrt(2)]
OPTIONS: list[dict] = [{}, {"softening": 0.3}, {"length": 1.7, "mirror": True}, {"softening": 0.2, "length": 0.6, "mirror": True}]


def cloud(*shape, seed=0, spread=1.0):
    return spread * np.random.default_rng(seed).normal(size=shape)


def relative(a, b):
    return np.abs(a - b).max() / np.abs(b).max()


@pytest.mark.parametrize("s", EXPONENTS)
@pytest.mark.parametrize("options", OPTIONS)
def test_both_back_ends_equal_the_loops(s, options):
    for n, dim in ((1, 2), (2, 1), (3, 3), (5, 2), (7, 4)):
        omega = cloud(n, dim)
        slow = naive.pair_sum(omega, s, **options)
        fast, torch_ = riesz_sums(omega, s, **options), riesz_sums(torch.tensor(omega), s, **options)
        for total, gradient in (fast, [a.numpy() for a in torch_]):
            np.testing.assert_allclose(total, slow[0], rtol=1e-11, atol=1e-13)
            np.testing.assert_allclose(gradient, slow[1], rtol=0, atol=1e-11 * max(1e-3, np.abs(slow[1]).max()))


@pytest.mark.parametrize("s", [0.0, 1.0, 2.5, -0.5, 3.1])
@pytest.mark.parametrize(("n", "dim"), [(255, 2), (256, 3), (257, 16), (513, 5), (301, 1)])
def test_tile_edges_agree_between_back_ends(s, n, dim):
    omega = cloud(2, n, dim)
    for mirror in (False, True):
        total, gradient = riesz_sums(omega, s, mirror=mirror)
        total2, gradient2 = riesz_sums(torch.tensor(omega), s, mirror=mirror)
        np.testing.assert_allclose(total, total2.numpy(), rtol=1e-12, atol=1e-9)
        assert relative(gradient, gradient2.numpy()) < 1e-11
        np.testing.assert_array_equal(riesz_sums(omega[1], s, mirror=mirror)[1], gradient[1])  # a chain does not know of the others
        np.testing.assert_array_equal(riesz_sums(omega, s, mirror=mirror, energy=False)[1], gradient)


@pytest.mark.parametrize("s", [0.0, 0.5, 1.0, 2.5, -0.5, 3.1])
def test_float32_state_keeps_float64_sums(s):
    omega = cloud(700, 3).astype(np.float32)
    total, gradient = riesz_sums(omega, s)
    exact, force = riesz_sums(omega.astype(np.float64), s)
    assert gradient.dtype == np.float32
    assert total.dtype == np.float64
    assert abs(total / exact - 1) < 1e-6
    assert relative(gradient, force) < 1e-5
    total, gradient = riesz_sums(torch.tensor(omega), s)
    assert total.dtype == torch.float64
    assert abs(float(total) / exact - 1) < 1e-6
    assert relative(gradient.numpy(), force) < 1e-5


def test_small_exponent_tends_to_the_logarithm():
    """(g_s - 1)/s -> -log r."""
    omega = cloud(6, 2)
    total, gradient = riesz_sums(omega, 1e-6)
    log_total, log_gradient = riesz_sums(omega, 0.0)
    assert (total - 30) / 1e-6 == pytest.approx(log_total, rel=1e-4)
    np.testing.assert_allclose(gradient / 1e-6, log_gradient, rtol=1e-4)


@pytest.mark.parametrize("make", [np.asarray, torch.tensor], ids=["numba", "torch"])
def test_forces_sum_to_zero(make):
    for s in (0.0, 1.0, 2.3, -0.7):
        _, gradient = riesz_sums(make(cloud(333, 3)), s)
        gradient = np.asarray(gradient)
        assert np.abs(gradient.sum(0)).max() < 1e-12 * np.abs(gradient).sum()


@pytest.mark.parametrize("make", [np.asarray, torch.tensor], ids=["numba", "torch"])
def test_coincident_pair_has_infinite_energy_and_no_force(make):
    omega = make(np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]))
    for s in (0.0, 1.0, 2.5, 7.3):
        total, gradient = riesz_sums(omega, s)
        slope = s or 1.0
        assert float(total) == np.inf
        np.testing.assert_allclose(np.asarray(gradient), slope * np.array([[1.0, 0, 0], [1.0, 0, 0], [-2.0, 0, 0]]), rtol=1e-14)
    total, gradient = riesz_sums(omega, -1.0)
    assert float(total) == pytest.approx(-4)
    np.testing.assert_allclose(np.asarray(gradient), [[1, 0, 0], [1, 0, 0], [-2, 0, 0]])
    total, _ = riesz_sums(omega, 1.0, softening=0.5)
    assert float(total) == pytest.approx(2 * (2 + 2 / 1.25**0.5))
    coincident, gap = gaps(omega)
    assert int(coincident) == 1
    assert float(gap) == 0


def test_gaps_count_mirror_images_and_single_particles():
    omega = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 3.0]])
    for make in (np.asarray, torch.tensor):
        assert [float(v) for v in gaps(make(omega))] == [0, 2]
        assert [float(v) for v in gaps(make(omega), mirror=True)] == [1, 0]
        assert [float(v) for v in gaps(make(omega[:1]), mirror=True)] == [0, np.inf]
    many = cloud(2, 300, 3)
    many[1, 299] = many[1, 7]
    brute = np.linalg.norm(many[0, :, None] - many[0], axis=-1)[np.triu_indices(300, 1)].min()
    for make in (np.asarray, torch.tensor):
        coincident, gap = gaps(make(many))
        assert list(map(int, coincident)) == [0, 1]
        np.testing.assert_allclose(np.asarray(gap), [brute, 0], rtol=1e-12)


def clouds(dim):
    """Uniform, clustered at many scales, coincident in hundreds, on a wall, its own mirror image, far from it: (400, dim) each."""
    rng = np.random.default_rng(dim)
    uniform, scale = rng.uniform(-1, 1, (400, dim)), 10.0 ** rng.uniform(-9, 0, (400, 1))
    few = rng.integers(0, 3, (400, dim)) * 0.25
    return {
        "uniform": uniform,
        "clustered": uniform * scale,
        "coincident": few,
        "tiny": np.concatenate([uniform[:200], 1e-155 * uniform[200:]]),
        "wall": np.clip(3 * uniform, -1, 1),
        "mirrored": np.concatenate([uniform[:200], -uniform[:200]]),
        "far": uniform + 10,
        "one point": np.full((400, dim), 0.3),
    }


@pytest.mark.parametrize("dim", [1, 2, 3, 6])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_gaps_by_a_tree_equal_the_direct_form(dim, dtype, monkeypatch):
    options = [{}, {"mirror": True}] + [{"mirror": True, "period": 2.5}] * (dim <= 3)
    for name, cloud in clouds(dim).items():
        stacked = np.stack([cloud, cloud[::-1] / 2]).astype(dtype)
        for option, array in itertools.product(options, (stacked, torch.tensor(stacked))):
            with monkeypatch.context() as patch:
                patch.setattr(pairwise, "_TREE_GAPS", 0)
                patch.setattr(_numba, "pair_gaps", None)  # not called
                patch.setattr(_torch, "pair_gaps", None)
                coincident, gap = (np.asarray(a) for a in gaps(array, **option))
            with monkeypatch.context() as patch:
                patch.setattr(pairwise, "_TREE_GAPS", math.inf)
                direct = gaps(array, **option)
            np.testing.assert_array_equal(coincident, direct[0], err_msg=f"{name} {option}")
            np.testing.assert_allclose(gap, direct[1], rtol=1e-12 if dtype == np.float64 else 1e-5, err_msg=f"{name} {option}")
            assert (coincident.dtype, gap.dtype) == (np.int64, np.float64)


def test_few_particles_many_coordinates_and_huge_numbers_have_their_gaps_by_the_direct_form(monkeypatch):
    monkeypatch.setattr(pairwise, "_tree_gaps", None)  # not called
    for omega in (cloud(499, 2), cloud(2000, 7), cloud(1000, 1, spread=1e200)):
        gaps(omega)
        gaps(torch.tensor(omega))


def test_a_tree_finds_the_gaps_of_many_particles_soon():
    omega = cloud(30_000, 2)
    start = time.process_time()
    gaps(omega, mirror=True)
    assert time.process_time() - start < 1  # 0.1 s; the direct form takes 3 s


def test_overflow_raises_and_is_never_nan():
    """r^-64 at 0.01 is 1e128: fine in float64, beyond float32; at 1e-5 beyond both. The energy of a representable pair is infinite then."""
    pair = np.zeros((2, 64))
    pair[1, 0] = 0.01
    total, gradient = riesz_sums(pair, 62.0)
    assert total == pytest.approx(2e124, rel=1e-9)
    assert gradient[0, 0] == pytest.approx(62e126, rel=1e-9)
    for make in (np.asarray, torch.tensor):
        with pytest.raises(OverflowError, match="float32"):
            riesz_sums(make(pair.astype(np.float32)), 62.0)
        with pytest.raises(OverflowError, match="float64"):
            riesz_sums(make(1e-3 * pair), 62.0)
        with pytest.raises(OverflowError, match="too large"):
            riesz_sums(make(np.array([[0.0], [1e200]])), 1.0)
        with pytest.raises(ValueError, match="NaN"):
            riesz_sums(make(np.array([[0.0], [np.nan]])), 1.0)


def test_many_copies_and_a_far_point_return_at_once():
    omega = np.zeros((2001, 3))
    omega[-1] = 1e150
    riesz_sums(omega[:3], 1.0)
    start = time.perf_counter()
    total, gradient = riesz_sums(omega, 1.0)
    assert time.perf_counter() - start < 1
    assert total == np.inf
    assert np.isfinite(gradient).all()
    assert gaps(omega)[0] == 2000 * 1999 // 2


def test_close_pair_far_from_the_origin_keeps_its_digits():
    """Differences, not Gram matrices: a pair at distance 1e-3 in a cloud with mean 10 in 64 dimensions."""
    omega = cloud(200, 64) + 10
    omega[1] = omega[0]
    omega[1, 0] += 1e-3
    gap = np.linalg.norm(omega[1] - omega[0])
    for array in (omega, torch.tensor(omega)):
        assert float(gaps(array)[1]) == pytest.approx(gap, rel=1e-12)
        total, _ = riesz_sums(array, 6.0)
        assert float(total) == pytest.approx(2 * gap**-6, rel=1e-9)


@pytest.mark.parametrize("change", ["readonly", "fortran", "strided", "negative"])
def test_layouts_work_and_inputs_stay(change):
    base = cloud(8, 6)
    omega = {"readonly": base[:, :3].copy(), "fortran": np.asfortranarray(base), "strided": base[::2, ::3], "negative": base[::-1, ::-1]}[
        change
    ]
    if change == "readonly":
        omega.flags.writeable = False
    before = omega.copy()
    total, gradient = riesz_sums(omega, 1.0)
    expected = naive.pair_sum(np.ascontiguousarray(omega), 1.0)
    assert total == pytest.approx(expected[0], rel=1e-13)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-11)
    np.testing.assert_array_equal(omega, before)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("s", [0.0, 1.0, 1.3])
@pytest.mark.parametrize("dim", [2, 5])
def test_threads_change_no_bit(dtype, s, dim):
    omega, before, bits = cloud(3, 777, dim).astype(dtype), numba.get_num_threads(), set()
    assert omega.size * 777 > _numba._SMALL
    try:
        for threads in range(1, numba.config.NUMBA_NUM_THREADS + 1):
            numba.set_num_threads(threads)
            for _ in range(3):
                bits.add(b"".join(array.tobytes() for array in riesz_sums(omega, s)))
    finally:
        numba.set_num_threads(before)
    assert len(bits) == 1


def test_one_two_and_four_threads_give_the_same_bits():
    code = (
        "import numba, numpy as np\n"
        "from particles.fast_sum import random_batch_sums, tree_sums\n"
        "from particles.pairwise import riesz_sums\n"
        "omega = np.random.default_rng(0).normal(size=(2, 601, 3))\n"
        "x = np.concatenate([omega[0] * 1e-4, omega[1], omega[1] ** 3])\n"
        "bits = set()\n"
        "for threads in (1, 2, 4):\n"
        "    numba.set_num_threads(threads)\n"
        "    for _ in range(3):\n"
        "        total, gradient = riesz_sums(omega, 1.0)\n"
        "        tree, force = tree_sums(x, -x, 1.0, tolerance=1e-3)\n"
        "        batch = random_batch_sums(x, x, 1.0, batch=300, key=(3, 0, 0))[1]\n"
        "        bits.add(b''.join(np.asarray(a).tobytes() for a in (total, gradient, tree, force, batch)))\n"
        "print(len(bits))\n"
    )
    env = os.environ | {"NUMBA_NUM_THREADS": "4"}
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env).stdout.strip() == "1"


def test_callers_in_threads_get_what_one_caller_gets():
    omegas = [cloud(2, 601, 3, seed=k) for k in range(4)]
    alone = [riesz_sums(omega, 1.0) for omega in omegas]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda omega: riesz_sums(omega, 1.0), omegas))
    for (total, gradient), (total2, gradient2) in zip(alone, together, strict=True):
        np.testing.assert_array_equal(total, total2)
        np.testing.assert_array_equal(gradient, gradient2)


@pytest.mark.parametrize("dim", [2, 5])
def test_fast_paths_equal_the_generic_one(dim, monkeypatch):
    omega = cloud(2, 70, dim)
    fast = {s: riesz_sums(omega, s) for s in (0.0, 0.5, 1.0, 1.5, 2.0, 4.0)}
    monkeypatch.setattr(_numba, "_FAST_PATHS", {})
    _numba.kernel_of.cache_clear()
    try:
        for s, (total, gradient) in fast.items():
            assert _numba.kernel_of(s, omega.dtype, True)[1][0] == _numba._REAL
            generic = riesz_sums(omega, s)
            assert relative(generic[1], gradient) < 1e-13
            if s:
                np.testing.assert_allclose(generic[0], total, rtol=1e-13)
    finally:
        _numba.kernel_of.cache_clear()


@numba.njit
def evaluate_powers(x, high, low, one, half):
    power, log = np.empty_like(x), np.empty_like(x)
    for i in range(x.size):
        power[i], log[i] = _powers.power(x[i], high, low, one, half), _powers.log2(x[i], one)
    return power, log


@pytest.mark.parametrize(("dtype", "digits"), [(np.float64, 1e-15), (np.float32, 5e-7)])
@pytest.mark.parametrize("exponent", [-1.65, -(np.pi / 2 + 1), -0.25, -1.0, -2.5, -3.3])
def test_polynomial_powers_and_logarithms(dtype, digits, exponent):
    """Over the whole range of normal numbers, against 30 digits; results beyond the range are 0 and infinity."""
    limits, rng = np.finfo(dtype), np.random.default_rng(0)
    wide = 2.0 ** rng.uniform(np.log2(float(limits.tiny)), 0.999 * np.log2(float(limits.max)), 400)
    x = np.concatenate([wide, 2.0 ** rng.uniform(-3, 3, 400), [1, 0.5, 2, 0.5**0.5, 2**0.5], 1 + 1e-3 * rng.normal(size=99)]).astype(dtype)
    power, log = evaluate_powers(x, *_powers.halves(exponent, x.dtype), dtype(1), dtype(0.5))
    with mpmath.workdps(30):
        exact = [mpmath.mpf(float(v)) ** mpmath.mpf(exponent) for v in x]
        logs = np.array([float(mpmath.log(float(v), 2)) for v in x])
        inside = np.array([4 * float(limits.tiny) < e < float(limits.max) / 4 for e in exact])
        errors = np.array([float(abs(float(p) / e - 1)) for p, e, ok in zip(power, exact, inside, strict=True) if ok])
        assert all(np.isinf(p) for p, e in zip(power, exact, strict=True) if e > 4 * float(limits.max))
        assert all(p < limits.tiny for p, e in zip(power, exact, strict=True) if e < float(limits.tiny) / 4)
    assert errors.max() < digits
    assert (np.abs(log - logs) <= digits * np.abs(logs) + 1e-300).all()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory of a process is read from /proc")
@pytest.mark.parametrize(("kind", "n"), [("numba", 30_000), ("torch", 8_000)])
def test_memory_stays_linear_in_the_particles(kind, n):
    """A matrix of pairs of 30,000 particles would need 7.2 GB, of 8,000 half a GB. (ru_maxrss would start at the parent's peak.)"""
    code = (
        "import re, sys, numpy as np\n"
        "from pathlib import Path\n"
        "from particles.pairwise import riesz_sums\n"
        "peak = lambda: int(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])\n"
        "make = np.asarray\n"
        "if sys.argv[1] == 'torch':\n"
        "    from torch import as_tensor as make\n"
        "riesz_sums(make(np.random.default_rng(0).normal(size=(600, 3))), 1.0)\n"
        "omega = make(np.random.default_rng(0).normal(size=(int(sys.argv[2]), 3)))\n"
        "before = peak()\n"
        "riesz_sums(omega, 1.0, energy=False)\n"
        "print(peak() - before)\n"
    )
    out = subprocess.run([sys.executable, "-c", code, kind, str(n)], capture_output=True, text=True, check=True, env=os.environ.copy())
    assert int(out.stdout) < 60_000  # kB


def test_torch_blocks_do_not_change_the_result(monkeypatch):
    omega = torch.tensor(cloud(2, 50, 3))
    whole = riesz_sums(omega, 1.0)
    monkeypatch.setitem(_torch._BLOCK, "cpu", 700)
    parts = riesz_sums(omega, 1.0)
    for a, b in zip(whole, parts, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-12)


def test_torch_energy_is_differentiable_once_and_finite_at_coincidence():
    for s in (0.0, 1.0, 2.5, -0.5):
        for mirror in (False, True):
            omega = torch.tensor(cloud(5, 2), requires_grad=True)
            total, gradient = riesz_sums(omega, s, mirror=mirror)
            total.backward()
            torch.testing.assert_close(omega.grad, 2 * gradient)
            crowded = torch.tensor(np.vstack([cloud(4, 2), cloud(4, 2)[:1]]), requires_grad=True)
            riesz_sums(crowded, s, mirror=mirror)[0].backward()
            assert bool(crowded.grad.isfinite().all())
    omega = torch.tensor(cloud(5, 2), requires_grad=True)
    (gradient,) = torch.autograd.grad(riesz_sums(omega, 1.0)[0], omega, create_graph=True)
    with pytest.raises(RuntimeError, match="require grad"):  # no silent wrong second derivative
        gradient.sum().backward()


def test_importing_pairwise_does_not_load_torch():
    code = "import sys, particles.energy; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
