"""Pair forces, fast sums and steps of the particle module, against the same done with other tools.

    python -m benchmarks.particles [--quick]

One thread; a time is the smallest process CPU time over interleaved rounds, so other load on the machine matters little (rows with two
threads: wall time). ns are per ordered pair; "ratio" is time over that of the first row of its group. GFLOP are 20 per pair in 3
dimensions and 6 dim + 6 elsewhere (a square root and a division are one each); the peak is a loop of fused multiply-adds timed in the
same rounds. Errors are relative root-mean-square errors of the force against a float64 double loop. MiB is the highest mark of one
evaluation above what the process held before it. N followed by * : extrapolated as N^2.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # in place of this folder, whose particles.py would hide the package

import numba
import numpy as np
import torch
from threadpoolctl import threadpool_limits

import particles
from benchmarks import pair_sums
from benchmarks.timing import added_memory, best_times, peak_call

OURS, FORCE, PEAK, DIRECT = "kernelgas energy + force", "kernelgas force", "peak", "direct"
LOOP, AUTOGRAD = "numba double loop", "torch cdist + autograd"
OTHERS: dict[str, Callable[[np.ndarray], pair_sums.Sums]] = {
    LOOP: pair_sums.numba_loop,
    AUTOGRAD: pair_sums.torch_autograd,
    "numpy broadcast": pair_sums.numpy_broadcast,
    "scipy cdist + matmul": pair_sums.scipy_cdist,
    "scikit-learn distances + matmul": pair_sums.sklearn_distances,
}
TYPES = (np.float64, np.float32)
COLUMNS = ("group", "method", "dim", "type", "N", "threads", "ms", "ns_per_pair", "ratio", "of_peak", "error", "mib", "bar", "passed")
Row = dict[str, Any]


def run(quick: bool) -> list[Row]:
    """All rows, with the keys of `COLUMNS` (None where a quantity does not apply); `passed` is None where there is no bar."""
    torch.set_num_threads(1)
    threads = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        with threadpool_limits(1):
            rows = [row for part in (_one_thread(quick), *(threading(dtype, quick, threads) for dtype in TYPES)) for row in part]
    finally:
        numba.set_num_threads(threads)
    return [row | {"bar": None, "passed": None} for row in rows] if quick else rows  # the bars are meant for full sizes


def _one_thread(quick: bool) -> list[Row]:
    rows: list[Row] = []
    for dtype in TYPES:
        for dim in (2, 3) if quick else (2, 3, 16, 64):
            rows += comparison(dim, dtype, 512 if quick else 2048)
            rows += scaling(dim, dtype, (1000,) if quick else (1000, 10_000, 100_000))
        rows += exponents(dtype, 512 if quick else 2048)
    rows += memory(3000 if quick else 30_000)
    for name, points in clouds(2000 if quick else 100_000).items():
        rows += fast_sums(name, points)
    return rows + steps(50 if quick else 200)


def _row(group: str, method: str, **values: Any) -> Row:
    return dict.fromkeys(COLUMNS) | {"group": group, "method": method} | values


def _bar(rows: list[Row], method: str, key: str, sense: str, bound: float, *, shown: str = "{:g}") -> None:
    """Hold one row's figure against a bound and note the verdict in it."""
    row = next(row for row in rows if row["method"] == method)
    figure = row[key]
    row["bar"] = f"{row['bar'] + ', ' if row['bar'] else ''}{key} {sense} {shown.format(bound)}"
    good = figure is not None and (figure >= bound if sense == ">=" else figure <= bound)
    row["passed"] = good and row["passed"] is not False


# ---- groups ------------------------------------------------------------------------------------------------------------------------------


def cloud(n: int, dim: int, dtype: type) -> np.ndarray:
    """Standard normal points."""
    return np.random.default_rng(0).normal(size=(n, dim)).astype(dtype)


def flop(dim: int) -> int:
    """Operations of one ordered pair, energy and force."""
    return 20 if dim == 3 else 6 * dim + 6


def comparison(dim: int, dtype: type, n: int) -> list[Row]:
    """Coulomb sums by every tool."""
    x, energy = cloud(n, dim, dtype), particles.Riesz(1, 1.0)
    peak, work = peak_call(dtype)
    ours = {OURS: lambda: energy.value_and_grad(x)[1], FORCE: lambda: energy.gradient(x)}
    others = {name: lambda method=method: method(x)[1] for name, method in OTHERS.items()}
    calls = ours | others
    seconds = best_times({PEAK: peak, **calls}, rounds=7, budget=1.5)
    exact, rows = pair_sums.some_gradients(x, n), []
    for name, call in calls.items():
        rate = flop(dim) * n * n / seconds[name] * 1e-9
        rows.append(
            _row(f"s = 1, d = {dim}, {dtype.__name__}", name, dim=dim, type=dtype.__name__, N=n, threads=1, ms=1e3 * seconds[name],
                 ns_per_pair=1e9 * seconds[name] / n**2, ratio=seconds[name] / seconds[OURS],
                 of_peak=rate * seconds[PEAK] / work, error=_error(call(), exact), mib=added_memory(call))
        )  # fmt: skip
    if dim == 3:
        _bar(rows, OURS, "of_peak", ">=", 0.28 if dtype is np.float64 else 0.37)
        if dtype is np.float64:
            _bar(rows, LOOP, "ratio", ">=", 6)
            _bar(rows, AUTOGRAD, "ratio", ">=", 25)
    if dim == 64:
        _bar(rows, OURS, "of_peak", ">=", 0.45)
    return rows


def _error(force: np.ndarray, exact: np.ndarray) -> float:
    return float(np.linalg.norm(force[: len(exact)] - exact) / np.linalg.norm(exact))


def scaling(dim: int, dtype: type, sizes: Sequence[int]) -> list[Row]:
    """Energy and force against N; above ten thousand the time is extrapolated."""
    energy, rows, seconds, measured = particles.Riesz(1, 1.0), [], 0.0, 1
    for n in sizes:
        if n <= 10_000:
            x = cloud(n, dim, dtype)
            seconds, measured = best_times({OURS: lambda x=x: energy.value_and_grad(x)}, rounds=3)[OURS], n
        taken = seconds * (n / measured) ** 2
        star = "" if n == measured else "*"
        rows.append(
            _row(f"N, d = {dim}, {dtype.__name__}", OURS, dim=dim, type=dtype.__name__, N=f"{n}{star}", threads=1, ms=1e3 * taken,
                 ns_per_pair=1e9 * taken / n**2)
        )  # fmt: skip
    return rows


def exponents(dtype: type, n: int) -> list[Row]:
    """Other kernels in 3 dimensions, relative to s = 1."""
    x, calls = cloud(n, 3, dtype), {}
    for label, s in (("1", 1.0), ("0", 0.0), ("1.3", 1.3), ("pi", math.pi)):
        energy = particles.Riesz(s, 1.0)
        calls[f"s = {label}, force"] = lambda energy=energy: energy.gradient(x)
        calls[f"s = {label}, energy + force"] = lambda energy=energy: energy.value_and_grad(x)
    seconds = best_times(calls, rounds=9)
    rows = []
    for name, t in seconds.items():
        like = seconds[f"s = 1, {name.split(', ')[1]}"]
        rows.append(
            _row(f"exponents, {dtype.__name__}", name, dim=3, type=dtype.__name__, N=n, threads=1, ms=1e3 * t,
                 ns_per_pair=1e9 * t / n**2, ratio=t / like)
        )  # fmt: skip
    _bar(rows, "s = 0, force", "ratio", "<=", 1.05)
    for name in ("s = 0, energy + force", "s = 1.3, energy + force", "s = pi, energy + force"):
        _bar(rows, name, "ratio", "<=", 4)
    return rows


def memory(n: int) -> list[Row]:
    """Highest mark of one force evaluation."""
    x, energy = cloud(n, 3, np.float64), particles.Riesz(1, 1.0)
    rows = [_row("memory", FORCE, dim=3, type="float64", N=n, threads=1, mib=added_memory(lambda: energy.gradient(x)))]
    if rows[0]["mib"] is not None:
        _bar(rows, FORCE, "mib", "<=", 60)
    return rows


def clouds(n: int) -> dict[str, np.ndarray]:
    """Uniform in a cube; 20 clusters of width 0.02; half of the points within 1e-3 of one place."""
    rng = np.random.default_rng(0)
    uniform = rng.random((n, 3))
    clustered = rng.random((20, 3))[rng.integers(20, size=n)] + 0.02 * rng.standard_normal((n, 3))
    collapsed = uniform.copy()
    collapsed[: n // 2] = 0.5 + 1e-3 * rng.standard_normal((n // 2, 3))
    return {"uniform": uniform, "clustered": clustered, "collapsed": rng.permutation(collapsed)}


def fast_sums(name: str, x: np.ndarray, tolerance: float = 1e-3) -> list[Row]:
    """Sub-quadratic sums against the direct one, and the library behind one of them by itself."""
    n, exact = len(x), pair_sums.some_gradients(x, min(len(x), 2000))
    methods = {method: particles.Riesz(1, 1.0, method=method, tolerance=tolerance) for method in ("tree", "fmm")}
    calls = {method: lambda energy=energy: energy.value_and_grad(x)[1] for method, energy in methods.items()}
    calls["fmm3dpy by itself"] = lambda: pair_sums.fmm3d(x, tolerance)[1]
    if name == "uniform":
        calls = {DIRECT: lambda: particles.Riesz(1, 1.0).value_and_grad(x)[1]} | calls
    seconds = best_times(calls, rounds=3)
    rows = [
        _row(f"fast sums, {name}", method, dim=3, type="float64", N=n, threads=1, ms=1e3 * seconds[method],
             ns_per_pair=1e9 * seconds[method] / n**2, ratio=seconds[method] / seconds.get(DIRECT, math.nan),
             error=_error(call(), exact))
        for method, call in calls.items()
    ]  # fmt: skip
    for method in methods:
        _bar(rows, method, "error", "<=", tolerance)
    if name == "uniform" and n >= 100_000:
        _bar(rows, min(methods, key=lambda method: seconds[method]), "ratio", "<=", 0.2)
    return rows


def threading(dtype: type, quick: bool, threads: int) -> list[Row]:
    """Wall time of one force on one and on two threads."""
    n, energy = 2000 if quick else 10_000, particles.Riesz(1, 1.0)
    x, seconds = cloud(n, 3, dtype), {}
    for number in (1, 2) if threads > 1 else (1,):
        numba.set_num_threads(number)
        seconds[number] = best_times({OURS: lambda: energy.value_and_grad(x)}, rounds=7, clock=time.perf_counter)[OURS]
    return [
        _row(f"threads (wall time), {dtype.__name__}", OURS, dim=3, type=dtype.__name__, N=n, threads=number, ms=1e3 * t,
             ns_per_pair=1e9 * t / n**2, ratio=t / seconds[1])
        for number, t in seconds.items()
    ]  # fmt: skip


def steps(n_steps: int) -> list[Row]:
    """One step of a log gas in a trap, all of `simulate` included; MALA and HMC adapt nothing here."""
    omega = particles.Ball(1.0, 2).sample(64, 0)
    energy, domain = particles.Riesz(0, 1.0) + particles.Quadratic(1.0), particles.Ball(3.0, 2)
    samplers = {
        "Langevin": particles.Langevin(1e-3, 10.0),
        "MALA": particles.MALA(1e-3, 10.0),
        "HMC, 10 leapfrog steps": particles.HMC(1e-2, 10.0, n_leapfrog=10),
    }

    def go(sampler: Any, n: int) -> Callable[[], object]:
        return lambda: particles.simulate(omega, energy, domain, sampler, n_steps=n, save_every=n, rng=0)

    calls = {(name, k): go(sampler, k * n_steps) for name, sampler in samplers.items() for k in (1, 2)}
    seconds = best_times({f"{name}, {k}": call for (name, k), call in calls.items()}, rounds=100)
    rows = []
    for name in samplers:
        taken = (seconds[f"{name}, 2"] - seconds[f"{name}, 1"]) / n_steps
        rows.append(_row("a whole step", name, dim=2, type="float64", N=64, threads=1, ms=1e3 * taken))
    _bar(rows, "Langevin", "ms", "<=", 0.04)
    return rows


# ---- the table ---------------------------------------------------------------------------------------------------------------------------


def markdown(rows: Sequence[Row]) -> str:
    """The rows as one table."""
    lines = ["| group | method | N | threads | ms | ns / pair | ratio | of peak | error | MiB | bar | |", "|" + "---|" * 12]
    verdict = {True: "pass", False: "**fail**", None: ""}
    for row in rows:
        numbers = [_cell(row["N"]), _cell(row["threads"]), _cell(row["ms"]), _cell(row["ns_per_pair"]), _cell(row["ratio"])]
        peak = "" if row["of_peak"] is None else f"{row['of_peak']:.0%}"
        error = "" if row["error"] is None else f"{row['error']:.0e}"
        cells = [row["group"], row["method"], *numbers, peak, error, _cell(row["mib"]), row["bar"] or "", verdict[row["passed"]]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.3g}"
    return "" if value is None else str(value)


def main() -> int:
    """Print the table; the exit code is 1 if a bar is missed."""
    rows = run("--quick" in sys.argv[1:])
    print(markdown(rows))
    return int(any(row["passed"] is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())
