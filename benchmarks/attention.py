"""Kernel attention against torch's SDPA and performer-pytorch: CPU time on one thread, share of the arithmetic floor, memory.

    python benchmarks/attention.py [--quick]

All methods take turns in one process; a time is the minimum over rounds of the process's CPU time, which other load on the machine
disturbs less than wall time. The matmul peak is taken by the same clock in the same rounds. The floor of a method is its needed floating
point operations at that peak: SDPA 4 N^2 D H (half of it causal), backward 2.5 times as much; linear 8 N D m H, causal chunks of C tokens
N C (m + D) H more, backward twice as much; exponentials are not counted. Memory is the high-water mark of the resident set above the
inputs, in a process of its own (Linux only).
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # in place of this folder, whose attention.py would hide the package

import torch  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

from attention import feature_map, kernel_attention  # noqa: E402

HEADS, DIM, FEATURES, CHUNK = 4, 64, 128, 64
PEAK = 1024  # side of the square matrices that measure the peak
Method = Callable[..., torch.Tensor]


def methods(is_causal: bool) -> dict[str, Method]:
    """Name -> function of q, k, v (1, HEADS, time, DIM); performer-pytorch only where it is installed."""
    ours = feature_map("favor", dim=DIM, n_features=FEATURES, heads=HEADS, generator=torch.Generator().manual_seed(0)).freeze()
    found: dict[str, Method] = {
        "torch SDPA": lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=is_causal),
        "kernelgas favor": lambda q, k, v: kernel_attention(q, k, v, ours, is_causal=is_causal, chunk_size=CHUNK),
    }
    try:
        with redirect_stdout(StringIO()):  # it prints where it has no CUDA code
            from performer_pytorch import FastAttention

            found["performer-pytorch"] = FastAttention(DIM, FEATURES, causal=is_causal)
    except ImportError:
        print("performer-pytorch is missing: install the `bench` extra to compare with it", file=sys.stderr)
    return found


def inputs(n: int, backward: bool) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(n)
    return [torch.randn(1, HEADS, n, DIM, generator=generator).requires_grad_(backward) for _ in range(3)]


def call(method: Method, qkv: list[torch.Tensor], backward: bool) -> None:
    if not backward:
        with torch.no_grad():
            method(*qkv)
        return
    method(*qkv).sum().backward()
    for tensor in qkv:
        tensor.grad = None


def cpu_seconds(function: Callable[[], Any]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def operations(name: str, n: int, is_causal: bool, backward: bool) -> float:
    """Needed floating point operations, the floor of the module's docstring."""
    if name == "torch SDPA":
        return 4.0 * n * n * DIM * HEADS * (0.5 if is_causal else 1.0) * (3.5 if backward else 1.0)
    chunked = n * CHUNK * (FEATURES + DIM) * HEADS if is_causal and name.startswith("kernelgas") else 0
    return (8.0 * n * DIM * FEATURES * HEADS + chunked) * (3.0 if backward else 1.0)


def timings(n: int, is_causal: bool, backward: bool, rounds: int) -> list[dict[str, Any]]:
    """One row a method, from interleaved rounds after a warm-up."""
    found, qkv, square = methods(is_causal), inputs(n, backward), torch.randn(PEAK, PEAK)
    best: dict[str, float] = dict.fromkeys(found, float("inf"))
    peak = 0.0
    for turn in range(rounds + 1):
        peak = max(peak, 2.0 * PEAK**3 / cpu_seconds(lambda: square @ square))
        for name, method in found.items():
            seconds = cpu_seconds(lambda method=method: call(method, qkv, backward))  # type: ignore[misc]
            if turn:
                best[name] = min(best[name], seconds)
    setting = {"n": n, "causal": is_causal, "backward": backward, "peak_gflops": peak / 1e9}
    return [
        {
            "method": name,
            **setting,
            "cpu_ms": 1e3 * seconds,
            "speed_to_sdpa": best["torch SDPA"] / seconds,
            "floor_share": operations(name, n, is_causal, backward) / peak / seconds,
        }
        for name, seconds in best.items()
    ]


def resident(field: str) -> float:
    """MiB of `VmRSS` (now) or `VmHWM` (highest since the last reset) of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def peak_memory(method: Method, qkv: list[torch.Tensor], backward: bool) -> float:
    """MiB above the inputs at the worst moment of a call. Freed memory is given back first, and the high-water mark reset (Linux)."""
    ctypes.CDLL(None).malloc_trim(0)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    call(method, qkv, backward)
    return max(resident("VmHWM") - before, 0.0)


def memories(n: int, is_causal: bool, backward: bool) -> dict[str, float]:
    """Method -> MiB, after a warm-up at a small size; for a process of its own."""
    torch.set_num_threads(1)
    found, qkv = methods(is_causal), inputs(n, backward)
    for method in found.values():
        call(method, inputs(128, backward), backward)
    return {name: peak_memory(method, qkv, backward) for name, method in found.items()}


def memory_in_subprocess(settings: list[tuple[int, bool, bool]]) -> list[dict[str, float]]:
    """`memories` of each setting; empty dicts where the operating system has no high-water mark to reset."""
    if not Path("/proc/self/clear_refs").exists():
        return [{} for _ in settings]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--memory", json.dumps(settings)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def run(quick: bool) -> list[dict[str, Any]]:
    """One dict a method and setting: method, n, causal, backward, cpu_ms, speed_to_sdpa, floor_share, peak_gflops, memory_mib (or None)."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    settings = [
        (n, causal, backward)
        for causal in (False, True)
        for backward in (False, True)
        for n in ((512, 2048) if quick else (512, 2048, 8192))
    ]
    try:
        tables = [timings(*setting, rounds=(3 if quick else 6) if setting[0] < 8192 else 2) for setting in settings]
    finally:
        torch.set_num_threads(threads)
    for table, memory in zip(tables, memory_in_subprocess(settings)):
        for row in table:
            row["memory_mib"] = memory.get(row["method"])
    return [row for table in tables for row in table]


def markdown(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| attention | pass | N | method | CPU ms | speed to SDPA | share of floor | peak extra MiB |",
        "|---|---|---:|---|---:|---:|---:|---:|",
    ]
    for row in rows:
        kind = "causal" if row["causal"] else "bidirectional"
        steps = "forward + backward" if row["backward"] else "forward"
        memory = "-" if row["memory_mib"] is None else f"{row['memory_mib']:.1f}"
        numbers = f"{row['cpu_ms']:.1f} | {row['speed_to_sdpa']:.2f}x | {row['floor_share']:.0%} | {memory}"
        lines.append(f"| {kind} | {steps} | {row['n']} | {row['method']} | {numbers} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Kernel attention against SDPA and performer-pytorch on one CPU thread.")
    parser.add_argument("--quick", action="store_true", help="N = 512 and 2048 only, fewer rounds")
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory:
        print(json.dumps([memories(*setting) for setting in json.loads(arguments.memory)]))
        return
    rows = run(arguments.quick)
    peaks = [row["peak_gflops"] for row in rows]
    print(f"B = 1, H = {HEADS}, D = {DIM}, m = {FEATURES}, float32, one thread, torch {torch.__version__}")
    print(f"matmul peak {min(peaks):.0f} to {max(peaks):.0f} GFLOP per CPU second\n\n{markdown(rows)}")


if __name__ == "__main__":
    main()
