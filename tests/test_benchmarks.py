"""The benchmarks: every tool computes the same sums, bars are held against the right row, and a machine without a GPU is no error."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from attention.naive import naive_attention
from benchmarks import __main__ as command
from benchmarks import attention, gpu, gpu_attention, pair_sums, particles, timing
from particles import Riesz
from particles.naive import pair_sum


@pytest.mark.parametrize("dim", [2, 3, 17])
@pytest.mark.parametrize("name", particles.OTHERS)
def test_other_tools_compute_the_same_sums(name, dim):
    x = particles.cloud(70, dim, np.float64)
    energy, gradient = particles.OTHERS[name](x)
    total, sums = pair_sum(x, 1.0)
    assert energy == pytest.approx(total / (2 * 70 * 69), rel=1e-10)
    assert np.allclose(gradient, sums / 69, rtol=1e-8, atol=1e-10)
    assert energy == pytest.approx(float(Riesz(1, 1.0).value(x)), rel=1e-10)


def test_reference_rows_are_rows_of_the_gradient():
    x = particles.cloud(50, 3, np.float64)
    assert np.allclose(pair_sums.some_gradients(x, 7), Riesz(1, 1.0).gradient(x)[:7], rtol=1e-10)


def test_fast_multipole_library_has_our_units():
    pytest.importorskip("fmm3dpy")
    x = particles.cloud(300, 3, np.float64)
    energy, gradient = pair_sums.fmm3d(x, 1e-9)
    assert energy == pytest.approx(float(Riesz(1, 1.0).value(x)), rel=1e-8)
    assert np.allclose(gradient, Riesz(1, 1.0).gradient(x), rtol=1e-6, atol=1e-8)


def test_comparison_has_a_row_for_every_tool_and_one_float32_error_gives_itself_away():
    rows = {row["method"]: row for row in particles.comparison(3, np.float32, 64)}
    assert set(rows) == {particles.OURS, particles.FORCE, *particles.OTHERS}
    assert rows[particles.OURS]["ratio"] == 1
    assert all(row["error"] < 1e-2 and row["ns_per_pair"] > 0 for row in rows.values())
    assert rows[particles.OURS]["bar"] == "of_peak >= 0.37"
    assert particles.markdown(list(rows.values())).count("\n") == 1 + len(rows)


def test_bars_are_all_kept_or_the_row_fails():
    rows = [particles._row("g", "m", ratio=5.0, of_peak=0.5)]
    particles._bar(rows, "m", "ratio", ">=", 6)
    particles._bar(rows, "m", "of_peak", ">=", 0.3)
    assert rows[0]["passed"] is False
    assert rows[0]["bar"] == "ratio >= 6, of_peak >= 0.3"
    rows = [particles._row("g", "m", ratio=5.0)]
    particles._bar(rows, "m", "ratio", "<=", 6)
    assert rows[0]["passed"] is True


def test_extrapolated_sizes_are_marked():
    rows = particles.scaling(2, np.float64, (500, 20_000))
    assert [row["N"] for row in rows] == ["500", "20000*"]
    assert rows[1]["ms"] == pytest.approx(1600 * rows[0]["ms"])


def test_memory_of_a_force_is_far_below_a_matrix_of_all_pairs():
    (row,) = particles.memory(4000)
    assert row["mib"] is None or row["mib"] < 4000**2 * 8 / 2**20 / 4


def test_fast_sums_report_errors_on_every_cloud():
    pytest.importorskip("fmm3dpy")
    for name, points in particles.clouds(400).items():
        rows = particles.fast_sums(name, points)
        assert points.shape == (400, 3)
        assert all(row["passed"] for row in rows if row["bar"])


def test_steps_are_timed_for_every_sampler():
    rows = particles.steps(4)
    assert len(rows) == 3
    assert rows[0]["bar"] == "ms <= 0.04"


def test_best_times_are_positive_and_a_slow_call_is_not_repeated(monkeypatch):
    now, counts = [0.0], {"fast": 0, "slow": 0}

    def call(name: str, seconds: float) -> None:
        counts[name] += 1
        now[0] += seconds

    monkeypatch.setattr(timing, "TURN", 0.001)
    calls = {"fast": lambda: call("fast", 0.0003), "slow": lambda: call("slow", 0.02)}
    times = timing.best_times(calls, rounds=4, budget=0.01, clock=lambda: now[0])
    assert times == pytest.approx({"fast": 0.0003, "slow": 0.02})
    assert counts == {"fast": 1 + 4 * 4, "slow": 2}  # the warm-up, and what fills a turn in every round, or in one round


def test_peak_and_memory_are_measured():
    call, work = timing.peak_call(np.float32)
    call()
    assert work > 0
    added = timing.added_memory(lambda: np.ones(2**22))
    assert added is None or 24 < added < 64


def test_gpu_benchmark_runs_on_a_cpu_and_agrees():
    rows = gpu.particle_rows(quick=True, device="cpu")
    assert {row["type"] for row in rows} == {"float32", "float64"}
    assert all(row["passed"] for row in rows if row["bar"])
    assert sum(row["bar"] is not None for row in rows) == 2 * (2 * 3 + 2)
    assert "alignment gradient" in gpu.markdown(rows)


def test_gpu_benchmark_of_attention_runs_on_a_cpu_and_agrees():
    rows = gpu.run(quick=True, device="cpu")
    rows = [row for row in rows if row["what"].split(", ")[0] in gpu_attention.NAMES]
    assert len(rows) == 3 * len(gpu_attention.forms(signed=False))
    assert all(row["passed"] and row["error"] < 1e-5 for row in rows)


def test_gpu_benchmark_of_attention_sees_a_wrong_map(monkeypatch):
    monkeypatch.setattr(gpu_attention, "naive_attention", lambda *x, **options: 1.001 * naive_attention(*x, **options))
    assert not any(row["passed"] for row in gpu_attention.checks("favor", gpu.torch.float32, "cpu"))


def test_bars_of_attention_are_held_against_our_rows_only():
    row = dict.fromkeys(attention.COLUMNS) | {"method": attention.OURS, "n": 2048, "causal": False, "backward": True, "threads": 1}
    row |= {"ms": 1.0, "speed_to_sdpa": 3.0, "speed_to_performer": 1.5, "floor_share": 0.5, "memory_to_sdpa": 1.9}
    judged = attention.judged(row)
    assert judged["passed"]
    assert judged["bar"].startswith("speed_to_performer >= 1.33")
    assert judged["aims"] == "floor_share >= 0.4"
    assert attention.judged(row | {"memory_to_sdpa": 2.1})["passed"] is False
    assert attention.judged(row | {"speed_to_performer": 1.2})["passed"] is False
    assert attention.judged(row | {"method": attention.PLAIN})["passed"] is None


def test_methods_of_the_attention_benchmark_agree_where_they_should():
    """Plain torch with our particles is ours; what is timed with gradients and without is the same function."""
    for is_causal in (False, True):
        found, x = attention.methods(is_causal), attention.inputs(128, backward=False)
        assert gpu.torch.allclose(found[attention.PLAIN](*x), found[attention.OURS](*x), rtol=1e-3, atol=1e-4)
        rows = attention.timings(128, is_causal, True, {}, budget=0.0)
        assert {row["method"] for row in rows} == set(found)
        assert all(row["ms"] > 0 for row in rows)


def test_gpu_benchmark_without_a_gpu_says_so_and_ends_well(monkeypatch, capsys):
    monkeypatch.setattr(gpu.torch.cuda, "is_available", lambda: False)
    assert gpu.main([]) == 0
    assert capsys.readouterr().out.strip() == "no GPU"


def test_gpu_benchmark_leaves_out_sizes_that_would_take_too_long(monkeypatch):
    monkeypatch.setattr(gpu, "LONGEST", 0.0)
    assert [row["N"] for row in gpu.forces(2, gpu.torch.float64, "cpu", (50, 500), 1e9)] == [50]


def test_a_wrong_result_misses_its_bar():
    row = gpu._row("forces", gpu.torch.float64, error=1e-3, bound=1e-9)
    assert row["passed"] is False


def test_every_name_is_a_module_that_runs(capsys):
    for name in command.NAMES | command.ON_REQUEST:
        assert callable(importlib.import_module(f"benchmarks.{name}").run)
    assert command.main(["pair_force"]) == 2
    assert "known: particles" in capsys.readouterr().err
