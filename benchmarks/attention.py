"""Kernel attention against torch's SDPA, performer-pytorch and plain torch: CPU time, share of the arithmetic floor, memory, decoding.

    python benchmarks/attention.py [--quick]

B = 1, 4 heads of 64, 128 features, float32. On one thread all methods take turns in one process and a time is the minimum over rounds of
the process's CPU time, which other load on the machine disturbs less than wall time; on two threads it is wall time. The matmul peak is
taken by the same clock in the same rounds. The floor of a method is its needed floating point operations at that peak: SDPA 4 N^2 D H (half
of it causal), backward 2.5 times as much; linear 8 N D m H, causal chunks of C tokens N C (m + D) H more, backward twice as much;
exponentials are not counted. A method whose next length is guessed to take longer than `LONGEST` is left out there. Memory is the highest
mark of the resident set above the inputs, in a process of its own (Linux only). "plain torch" is the two matrix products over all
features at once; "SOFT" is softmax-free attention with 64 pooled landmarks. Aims beyond a bar are named where they are reached.
"""

from __future__ import annotations

import argparse
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
from benchmarks.timing import added_memory  # noqa: E402

HEADS, DIM, FEATURES, CHUNK, LANDMARKS = 4, 64, 128, 64, 64
PEAK = 1024  # side of the square matrices that measure the peak
LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
LONGEST, BUDGET = 6.0, 4.0  # seconds of one call, and of all rounds of a setting
OURS, SDPA, PERFORMER, PLAIN = "kernelgas favor", "torch SDPA", "performer-pytorch", "plain torch"
COLUMNS = (
    "method", "n", "causal", "backward", "threads", "ms", "speed_to_sdpa", "speed_to_performer", "floor_share", "peak_gflops", "memory_mib",
    "memory_to_sdpa", "bar", "passed", "aims",
)  # fmt: skip
BARS = (  # applies to (causal, backward, n): column, smallest value, aim
    (lambda causal, backward, n: not causal and backward and 2048 <= n <= 8192, "speed_to_performer", 1 / 0.75, 1 / 0.6),
    (lambda causal, backward, n: causal and 2048 <= n <= 8192, "speed_to_performer", 15.0, None),
    (lambda causal, backward, n: causal and n >= 2048, "speed_to_sdpa", 1.0, None),
    (lambda causal, backward, n: causal and n == 1024, "speed_to_sdpa", None, 1.0),
    (lambda causal, backward, n: not causal and 2048 <= n <= 8192, "floor_share", 0.33, 0.40),
    (lambda causal, backward, n: causal and 2048 <= n <= 8192, "floor_share", 0.24, 0.30),
)  # fmt: skip
Method = Callable[..., torch.Tensor]
Row = dict[str, Any]


def methods(is_causal: bool) -> dict[str, Method]:
    """Name -> function of q, k, v (1, HEADS, time, DIM); performer-pytorch only where it is installed."""
    ours = feature_map("favor", dim=DIM, n_features=FEATURES, heads=HEADS, generator=torch.Generator().manual_seed(0)).freeze()
    found: dict[str, Method] = {
        SDPA: lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=is_causal),
        OURS: lambda q, k, v: kernel_attention(q, k, v, ours, is_causal=is_causal, chunk_size=CHUNK),
        PLAIN: lambda q, k, v: plain(q, k, v, ours.omega, is_causal),
    }
    try:
        with redirect_stdout(StringIO()):  # it prints where it has no CUDA code
            from performer_pytorch import FastAttention

            found[PERFORMER] = FastAttention(DIM, FEATURES, causal=is_causal)
    except ImportError:
        print("performer-pytorch is missing: install the `bench` extra to compare with it", file=sys.stderr)
    return found if is_causal else found | {"SOFT": soft}


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, omega: torch.Tensor, is_causal: bool) -> torch.Tensor:
    """FAVOR+ as one would write it down: features of all tokens, one maximum over all keys, autograd; chunks in parallel if causal."""
    q, k = q * DIM**-0.25, k * DIM**-0.25
    log_q, log_k = q @ omega.mT, k @ omega.mT - k.square().sum(-1, keepdim=True) / 2
    phi_q, phi_k = (log_q - log_q.detach().amax(-1, keepdim=True)).exp(), (log_k - log_k.detach().amax((-2, -1), keepdim=True)).exp()
    v = torch.cat((v, torch.ones_like(v[..., :1])), -1)
    if is_causal:
        phi_q, phi_k, v = (x.unflatten(2, (-1, CHUNK)) for x in (phi_q, phi_k, v))
        sums = phi_k.mT @ v
        total = phi_q @ (sums.cumsum(2) - sums) + (phi_q @ phi_k.mT).tril() @ v
        total = total.flatten(2, 3)
    else:
        total = phi_q @ (phi_k.mT @ v)
    return total[..., :-1] / total[..., -1:]


def soft(q: torch.Tensor, _: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Softmax-free attention with pooled landmarks."""
    from attention.softmax_free import softmax_free_attention

    landmarks = q.unflatten(2, (LANDMARKS, -1)).mean(3)
    return softmax_free_attention(q, v, landmarks)


def inputs(n: int, backward: bool) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(n)
    return [torch.randn(1, HEADS, n, DIM, generator=generator).requires_grad_(backward) for _ in range(3)]


def call(method: Method, qkv: list[torch.Tensor], backward: bool) -> None:
    if backward:
        torch.autograd.grad(method(*qkv).sum(), qkv, allow_unused=True)
        return
    with torch.no_grad():
        method(*qkv)


def seconds(function: Callable[[], Any], clock: Callable[[], float] = time.process_time) -> float:
    start = clock()
    function()
    return clock() - start


def operations(name: str, n: int, is_causal: bool, backward: bool) -> float | None:
    """Needed floating point operations, the floor of the module's docstring."""
    if name == SDPA:
        return 4.0 * n * n * DIM * HEADS * (0.5 if is_causal else 1.0) * (3.5 if backward else 1.0)
    if name == "SOFT":
        return None
    chunked = n * CHUNK * (FEATURES + DIM) * HEADS if is_causal and name != PERFORMER else 0
    return (8.0 * n * DIM * FEATURES * HEADS + chunked) * (3.0 if backward else 1.0)


def timings(n: int, is_causal: bool, backward: bool, guess: dict[str, float], threads: int = 1, budget: float = BUDGET) -> list[Row]:
    """One row a method that will not take too long, from interleaved rounds; `guess`, from half the length, is updated."""
    clock = time.process_time if threads == 1 else time.perf_counter
    found = {name: method for name, method in methods(is_causal).items() if guess.get(name, 0.0) <= LONGEST}
    qkv, square = inputs(n, backward), torch.randn(PEAK, PEAK)
    best: dict[str, float] = dict.fromkeys(found, float("inf"))
    peak, end, rounds = 0.0, time.perf_counter() + budget, 0
    while rounds < 2 or (time.perf_counter() < end and rounds < 12):
        peak = max(peak, 2.0 * PEAK**3 / seconds(lambda: square @ square, clock))
        for name, method in found.items():
            if rounds == 0 or best[name] < 1.0:  # a slow call is not repeated
                best[name] = min(best[name], seconds(lambda method=method: call(method, qkv, backward), clock))  # type: ignore[misc]
        rounds += 1
    guess.update({name: (4 if name == SDPA else 2) * taken for name, taken in best.items()})
    return [_row(name, n, is_causal, backward, threads, taken, best, peak) for name, taken in best.items()]


def _row(name: str, n: int, is_causal: bool, backward: bool, threads: int, taken: float, best: dict[str, float], peak: float) -> Row:
    needed = operations(name, n, is_causal, backward)
    row = dict.fromkeys(COLUMNS) | {
        "method": name, "n": n, "causal": is_causal, "backward": backward, "threads": threads, "ms": 1e3 * taken,
        "speed_to_sdpa": best[SDPA] / taken if SDPA in best else None,
        "speed_to_performer": best[PERFORMER] / taken if PERFORMER in best else None,
        "floor_share": None if needed is None else needed / peak / taken, "peak_gflops": peak / 1e9,
    }  # fmt: skip
    return row


def judged(row: Row) -> Row:
    """The row, held against its bars if it is ours on one thread."""
    if row["method"] != OURS or row["threads"] != 1:
        return row
    bars, aims, passed = [], [], True
    for applies, column, least, aim in BARS:
        value = row[column]
        if value is None or not applies(row["causal"], row["backward"], row["n"]):
            continue
        if least is not None:
            bars.append(f"{column} >= {least:.3g}")
            passed &= value >= least
        if aim is not None and value >= aim:
            aims.append(f"{column} >= {aim:.3g}")
    if row["memory_to_sdpa"] is not None and row["backward"] and not row["causal"]:
        bars.append("memory_to_sdpa <= 2")
        passed &= row["memory_to_sdpa"] <= 2
    return row | {"bar": ", ".join(bars) or None, "passed": passed if bars else None, "aims": ", ".join(aims) or None}


def memories(n: int, is_causal: bool, backward: bool) -> dict[str, float | None]:
    """Method -> MiB above the inputs, after a warm-up at a small size; for a process of its own."""
    torch.set_num_threads(1)
    found, qkv = methods(is_causal), inputs(n, backward)
    if is_causal and n > 2048:
        found.pop(PERFORMER, None)  # gibibytes
    for method in found.values():
        call(method, inputs(128, backward), backward)
    return {name: added_memory(lambda method=method: call(method, qkv, backward)) for name, method in found.items()}  # type: ignore[misc]


def memory_in_subprocess(settings: list[tuple[int, bool, bool]]) -> list[dict[str, float | None]]:
    """`memories` of each setting."""
    command = [sys.executable, __file__, "--memory", json.dumps(settings)]
    done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def decoding(quick: bool) -> list[Row]:
    """CPU time and bytes of the state of one more token after 1,000 to 100,000; the time of the last may be a quarter above the first."""
    favor = feature_map("favor", dim=DIM, n_features=FEATURES, heads=HEADS, generator=torch.Generator().manual_seed(0)).freeze()
    rows: list[Row] = []
    states, state, seen = {}, None, 0
    with torch.no_grad():
        for n in (1_000, 10_000) if quick else (1_000, 10_000, 100_000):
            while seen < n:
                size = min(n - seen, 10_000)
                _, state = kernel_attention(*inputs(size, False), favor, is_causal=True, state=state, return_state=True)
                seen += size
            states[n] = state
        token = inputs(1, False)
        best = dict.fromkeys(states, float("inf"))
        for _ in range(200 if quick else 600):
            for n, start in states.items():
                step = lambda: kernel_attention(*token, favor, is_causal=True, state=start, return_state=True)  # noqa: B023, E731
                best[n] = min(best[n], seconds(step))
    first = min(states)
    for n, start in states.items():
        size = sum(field.numel() * field.element_size() for field in start)
        same = size == sum(field.numel() * field.element_size() for field in states[first])
        row = dict.fromkeys(COLUMNS) | {"method": f"{OURS}, one token", "n": n, "causal": True, "backward": False, "threads": 1}
        row |= {"ms": 1e3 * best[n], "memory_mib": size / 2**20, "bar": "ms <= 1.25 of the first, the same state size"}
        rows.append(row | {"passed": same and best[n] <= 1.25 * best[first]})
    return rows


def run(quick: bool) -> list[Row]:
    """One dict with the keys `COLUMNS` a method and setting; `passed` is None where there is no bar."""
    threads, rows = torch.get_num_threads(), []
    lengths = (512, 2048) if quick else LENGTHS
    kinds = [(causal, backward) for causal in (False, True) for backward in (False, True)]
    measured = [(n, *kind) for kind in kinds for n in ((2048,) if quick else (2048, 8192))]
    memory = dict(zip(measured, memory_in_subprocess(measured)))
    try:
        torch.set_num_threads(1)
        for kind in kinds:
            guess: dict[str, float] = {}
            for n in lengths:
                rows += _with_memory(timings(n, *kind, guess, budget=BUDGET / 4 if quick else BUDGET), memory.get((n, *kind), {}))
        rows += decoding(quick)
        if not quick:
            torch.set_num_threads(2)
            for kind in kinds:
                rows += timings(8192, *kind, {PERFORMER: 10.0 * kind[0]}, threads=2)
    finally:
        torch.set_num_threads(threads)
    return [judged(row) for row in rows]


def _with_memory(rows: list[Row], memory: dict[str, float | None]) -> list[Row]:
    for row in rows:
        row["memory_mib"], reference = memory.get(row["method"]), memory.get(SDPA)
        row["memory_to_sdpa"] = row["memory_mib"] / reference if row["memory_mib"] is not None and reference else None
    return rows


def markdown(rows: list[Row]) -> str:
    """The rows as a table, and below it which bars hold."""
    head = (
        "| attention | pass | N | threads | method | ms | speed to SDPA | to performer | of floor | peak extra MiB | bar | | aims reached |"
    )
    lines = [head, "|---|---|---:|---:|---|---:|---:|---:|---:|---:|---|---|---|"]
    verdict = {True: "pass", False: "**fail**", None: ""}
    for row in rows:
        shown = {key: "" if row[key] is None else f"{row[key]:.2f}x" for key in ("speed_to_sdpa", "speed_to_performer")}
        share = "" if row["floor_share"] is None else f"{row['floor_share']:.0%}"
        memory = "" if row["memory_mib"] is None else f"{row['memory_mib']:.1f}"
        kind, steps = "causal" if row["causal"] else "bidirectional", "forward + backward" if row["backward"] else "forward"
        cells = [kind, steps, row["n"], row["threads"], row["method"], f"{row['ms']:.3g}", *shown.values(), share, memory]
        lines.append(f"| {' | '.join(map(str, cells))} | {row['bar'] or ''} | {verdict[row['passed']]} | {row['aims'] or ''} |")
    barred = [row for row in rows if row["passed"] is not None]
    peaks = [row["peak_gflops"] for row in rows if row["peak_gflops"] is not None and row["threads"] == 1]
    missed = [f"{row['method']}, {row['n']}, {'causal' if row['causal'] else 'bidirectional'}" for row in barred if not row["passed"]]
    lines += ["", f"Matmul peak {min(peaks):.0f} to {max(peaks):.0f} GFLOP per CPU second, torch {torch.__version__}."]
    lines.append(f"Bars hold in {len(barred) - len(missed)} of {len(barred)} rows." + (f" Missed: {'; '.join(missed)}." if missed else ""))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Kernel attention against SDPA, performer-pytorch and plain torch on a CPU.")
    parser.add_argument("--quick", action="store_true", help="N = 512 and 2048 only, no two threads, decoding to 10,000 tokens")
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory:
        print(json.dumps([memories(*setting) for setting in json.loads(arguments.memory)]))
        return 0
    rows = run(arguments.quick)
    print(markdown(rows))
    return int(any(row["passed"] is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())
