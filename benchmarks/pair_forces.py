"""Pair forces of the Riesz kernel (s = 1): this package against a plain numba loop and torch's cdist with autograd.

    python benchmarks/pair_forces.py [--quick]

All methods are interleaved in one process on one thread; a figure is the smallest process CPU time over the rounds, so other load on
the machine matters little. Nanoseconds are per ordered pair. GFLOP/s count 6 dim + 6 operations per ordered pair (a square root and a
division are one each). The peak is a loop of fused multiply-adds in numba, measured in the same run. Memory is the highest mark of one
evaluation above the memory held before it. Prints a markdown table; `run` returns its rows.
"""

from __future__ import annotations

import argparse
import ctypes
import time
import typing
from collections.abc import Callable

import numba
import numpy as np
import torch
from numba import njit

from particles.riesz import Riesz

N_PARTICLES = 2048
OURS, OURS_ENERGY = "kernelgas gradient", "kernelgas energy + gradient"
LOOP, TORCH = "numba loop, energy + gradient", "torch cdist + autograd"


@njit(cache=True)
@typing.no_type_check
def _loop(x, gradient):
    """The obvious double loop over (particle, dim) rows; returns the energy sum."""
    n, dim = x.shape
    total = 0.0
    for i in range(n):
        for j in range(n):
            if i != j:
                r2 = 0.0
                for k in range(dim):
                    r2 += (x[i, k] - x[j, k]) ** 2
                r = np.sqrt(r2)
                total += 1 / r
                for k in range(dim):
                    gradient[i, k] -= (x[i, k] - x[j, k]) / (r2 * r)
    return total


def numba_loop(x: np.ndarray) -> tuple[float, np.ndarray]:
    """(W_N, gradient of N W_N) by the double loop."""
    n, gradient = len(x), np.zeros_like(x)
    total = _loop(x, gradient)
    return total / (2 * n * (n - 1)), gradient / (n - 1)


def torch_autograd(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(W_N, gradient of N W_N) with cdist and autograd, self-pairs masked before the power."""
    n, x = len(x), x.detach().requires_grad_()
    exact = x.shape[1] < 16  # the faster matrix form loses close pairs in few dimensions
    mode = "donot_use_mm_for_euclid_dist" if exact else "use_mm_for_euclid_dist"
    r = torch.cdist(x, x, compute_mode=mode) + torch.diag(x.new_full((n,), torch.inf))
    energy = (1 / r).sum() / (2 * n * (n - 1))
    energy.backward()
    assert x.grad is not None
    return energy.detach(), n * x.grad


def methods(x: np.ndarray) -> dict[str, Callable[[], object]]:
    """Name -> one evaluation on x."""
    energy, tensor = Riesz(1, 1.0), torch.tensor(x)
    return {
        OURS: lambda: energy.gradient(x),
        OURS_ENERGY: lambda: energy.value_and_grad(x),
        LOOP: lambda: numba_loop(x),
        TORCH: lambda: torch_autograd(tensor),
    }


@njit(cache=True, fastmath={"contract"})
@typing.no_type_check
def _multiply_adds(values, factor, term, repeats):
    """16 multiply-adds on each of values, repeats times: long enough in registers to hide loads and stores."""
    for _ in range(repeats):
        for j in range(values.size):
            v = values[j]
            for _ in range(16):
                v = v * factor + term
            values[j] = v


def peak(dtype: type) -> float:
    """Multiply-add GFLOP/s of one core."""
    values: np.ndarray = np.zeros(512, dtype)
    repeats = 20_000
    seconds = best_times({"peak": lambda: _multiply_adds(values, dtype(0.999), dtype(1e-3), repeats)}, rounds=7)["peak"]
    return 2e-9 * 16 * values.size * repeats / seconds


def best_times(calls: dict[str, Callable[[], object]], *, rounds: int) -> dict[str, float]:
    """Smallest process CPU seconds of each call over interleaved rounds, after one warm-up."""
    for call in calls.values():
        call()
    best = dict.fromkeys(calls, np.inf)
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.process_time()
            call()
            best[name] = min(best[name], time.process_time() - start)
    return best


def kept_kib() -> dict[str, int]:
    """VmRSS and VmHWM, the resident memory now and at most, of this process (Linux)."""
    with open("/proc/self/status", encoding="ascii") as status:
        return {line.split(":")[0]: int(line.split()[1]) for line in status if line.startswith(("VmRSS", "VmHWM"))}


def memory(calls: dict[str, Callable[[], object]]) -> dict[str, float | None]:
    """MiB that one evaluation adds at most to this process; None where the system cannot say."""
    added: dict[str, float | None] = {}
    for name, call in calls.items():
        try:
            ctypes.CDLL(None).malloc_trim(0)  # what the allocator keeps for later would hide an allocation
            with open("/proc/self/clear_refs", "w", encoding="ascii") as reset:
                reset.write("5")  # the highest mark falls to the present size
            before = kept_kib()["VmRSS"]
            call()
            added[name] = max(0.0, (kept_kib()["VmHWM"] - before) / 1024)
        except (OSError, AttributeError):
            added[name] = None
    return added


def cloud(n: int, dim: int, dtype: type) -> np.ndarray:
    """Standard normal points."""
    return np.random.default_rng(0).normal(size=(n, dim)).astype(dtype)


def measure(dim: int, dtype: type, top: float, quick: bool) -> list[dict]:
    """One row per method at this dimension and type."""
    x = cloud(N_PARTICLES, dim, dtype)
    calls = methods(x)
    reference = numba_loop(x.astype(np.float64))[1]
    for name, gradient in ((OURS, calls[OURS]()), (TORCH, calls[TORCH]()[1].numpy())):  # type: ignore[index]
        error = np.abs(gradient - reference).max() / np.abs(reference).max()
        if error > (1e-3 if dtype is np.float32 else 1e-9):
            raise RuntimeError(f"{name} disagrees with the loop by {error:.1e}")
    seconds = best_times(calls, rounds=2 if quick else 5)
    rows, kept = [], memory(calls)
    for name, t in seconds.items():
        rate = (6 * dim + 6) * N_PARTICLES**2 / t / 1e9
        rows.append(
            {
                "dim": dim,
                "dtype": dtype.__name__,
                "method": name,
                "ns_per_pair": t / N_PARTICLES**2 * 1e9,
                "ratio": t / seconds[OURS_ENERGY],
                "gflops": rate,
                "peak_fraction": rate / top,
                "memory_mib": kept[name],
            }
        )
    return rows


def run(quick: bool) -> list[dict]:
    """All rows: dim, dtype, method, ns_per_pair, ratio (to our energy + gradient), gflops, peak_fraction, memory_mib (None off Linux)."""
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    rows = []
    for dtype in (np.float64, np.float32):
        top = peak(dtype)
        for dim in (2, 3) if quick else (2, 3, 16, 64):
            rows += measure(dim, dtype, top, quick)
    return rows


def table(rows: list[dict]) -> str:
    """The rows as markdown."""
    lines = ["| dim | dtype | method | ns / ordered pair | ratio | GFLOP/s | of peak | memory MiB |", "|---|---|---|---|---|---|---|---|"]
    for r in rows:
        kept = "-" if r["memory_mib"] is None else f"{r['memory_mib']:.1f}"
        lines.append(
            f"| {r['dim']} | {r['dtype']} | {r['method']} | {r['ns_per_pair']:.2f} | {r['ratio']:.2f} | {r['gflops']:.1f} "
            f"| {r['peak_fraction']:.0%} | {kept} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Pair forces against a numba loop and torch autograd.")
    parser.add_argument("--quick", action="store_true", help="dimensions 2 and 3 only")
    print(f"{N_PARTICLES} particles, s = 1, one thread\n")
    print(table(run(parser.parse_args().quick)))


if __name__ == "__main__":
    main()
