"""Forces, a short run, the alignment gradient and kernel attention on a GPU: the same numbers as on a CPU in float64, and how fast.

    python -m benchmarks.gpu [--device cuda] [--quick]

Without a GPU it says so and ends well. Times are wall seconds with the device synchronised, the smallest of a few; GFLOP count 20 per
ordered pair in 3 dimensions and 6 dim + 6 elsewhere (2 per multiply-add of the alignment's two matrix products); the peak is a square
matrix product of the same type. Errors: relative root-mean-square errors of forces against a float64 loop over the first rows, of
gradients against NumPy, and the largest distance of a particle after the run from where the CPU has it.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # in place of this folder, whose particles.py would hide the package

import numpy as np
import torch

import particles
from benchmarks import gpu_attention
from benchmarks.pair_sums import some_gradients
from benchmarks.timing import best_times

BOUNDS = {torch.float64: 1e-9, torch.float32: 1e-3}  # on relative errors: a close pair loses digits that its distance has not
LONGEST = 4.0  # seconds that one evaluation may take, guessed from a tenth of the particles
TYPES = (torch.float64, torch.float32)
COLUMNS = ("what", "type", "N", "dim", "ms", "pairs_per_s", "of_peak", "error", "bar", "passed")
Row = dict[str, Any]


def run(quick: bool = False, device: str | None = None) -> list[Row]:
    """All rows (keys `COLUMNS`) on a torch device, "cuda" if None; no rows where there is no GPU."""
    device = device or "cuda"
    if device.startswith("cuda") and not torch.cuda.is_available():
        return []
    return particle_rows(quick, device) + [dict.fromkeys(COLUMNS) | row for row in gpu_attention.run(quick, device)]


def particle_rows(quick: bool, device: str) -> list[Row]:
    """Forces, a run and the alignment gradient."""
    rows: list[Row] = []
    for dtype in TYPES:
        top = peak(dtype, device, 256 if quick else 4096)
        rows.append(_row("matrix product, the peak", dtype, ms=None, N=None, error=None) | {"pairs_per_s": None, "of_peak": 1.0})
        rows[-1]["what"] += f": {top / 1e9:.0f} GFLOP/s"
        for dim in (2, 3, 64):
            rows += forces(dim, dtype, device, (64, 256) if quick else (10_000, 100_000), top)
        rows.append(alignment(dtype, device, 200 if quick else 20_000, top))
        rows.append(whole_run(dtype, device, 20 if quick else 1000))
    return rows


def _row(what: str, dtype: torch.dtype, *, error: float | None, bound: float | None = None, **values: Any) -> Row:
    """A row, held against a bound on its error if one is given."""
    row = dict.fromkeys(COLUMNS) | {"what": what, "type": str(dtype).removeprefix("torch."), "error": error} | values
    return row if bound is None else row | {"bar": f"error <= {bound:g}", "passed": error is not None and error <= bound}


def seconds(call: Callable[[], object], device: str, rounds: int = 3) -> float:
    """Smallest wall time of a call, the device's queue empty before and after."""

    def finished() -> None:
        call()
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)

    return best_times({"": finished}, rounds=rounds, budget=5.0, clock=time.perf_counter)[""]


def peak(dtype: torch.dtype, device: str, side: int) -> float:
    """FLOP/s of a square matrix product."""
    a = torch.randn(side, side, dtype=dtype, device=device)
    return 2 * side**3 / seconds(lambda: a @ a, device)


def forces(dim: int, dtype: torch.dtype, device: str, sizes: Sequence[int], top: float) -> list[Row]:
    """Coulomb forces; a size that would take too long is left out."""
    energy, rows, last = particles.Riesz(1, 1.0), [], 0.0
    for n in sizes:
        if 100 * last > LONGEST:
            break
        x = np.random.default_rng(n).normal(size=(n, dim)).astype(str(dtype).removeprefix("torch."))
        omega, exact = torch.from_numpy(x).to(device), some_gradients(x, min(n, 256))
        last = seconds(lambda: energy.gradient(omega), device)  # noqa: B023
        error = _distance(energy.gradient(omega)[: len(exact)], exact)
        flop = 20 if dim == 3 else 6 * dim + 6
        rate = n * n / last
        rows.append(
            _row("Riesz forces, s = 1", dtype, N=n, dim=dim, ms=1e3 * last, pairs_per_s=rate, of_peak=flop * rate / top, error=error,
                 bound=BOUNDS[dtype])
        )  # fmt: skip
    return rows


def _distance(result: torch.Tensor, exact: np.ndarray) -> float:
    """Relative root-mean-square error."""
    return float(np.linalg.norm(result.cpu().double().numpy() - exact) / np.linalg.norm(exact))


def alignment(dtype: torch.dtype, device: str, n: int, top: float) -> Row:
    """The gradient of the alignment: n rows in 5 dimensions, 300 particles."""
    rng = np.random.default_rng(0)
    x, omega = rng.normal(size=(n, 5)), rng.normal(size=(300, 5))
    y = np.sign(x[:, 0] * x[:, 1])
    energy = particles.Alignment(x, y, "fourier")
    placed = torch.from_numpy(omega).to(dtype=dtype, device=device)
    taken = seconds(lambda: energy.gradient(placed), device)
    pairs = n * len(omega)
    return _row("alignment gradient", dtype, N=len(omega), dim=5, ms=1e3 * taken, pairs_per_s=pairs / taken,
                of_peak=4 * 5 * pairs / taken / top, error=_distance(energy.gradient(placed), energy.gradient(omega)),
                bound=BOUNDS[dtype])  # fmt: skip


def whole_run(dtype: torch.dtype, device: str, n: int, n_steps: int = 20) -> Row:
    """A log gas in a trap on the device and, from the same seed, on the CPU in float64."""
    domain = particles.Ball(3.0, 2)
    energy, sampler = particles.Riesz(0, 1.0) + particles.Quadratic(1.0), particles.Langevin(1e-4, 10.0, drift_cap=0.01)
    start = domain.sample(n, 0).astype(np.float32).astype(np.float64)  # exact in both types

    def go(omega: torch.Tensor) -> np.ndarray:
        ds = particles.simulate(omega, energy, domain, sampler, n_steps=n_steps, save_every=n_steps, rng=0)
        return ds["omega"].values[0, -1].astype(np.float64)

    moved = torch.from_numpy(start).to(dtype=dtype, device=device)
    taken = seconds(lambda: go(moved), device, rounds=1)
    error = float(abs(go(moved) - go(torch.from_numpy(start))).max())
    return _row(f"a run of {n_steps} steps", dtype, N=n, dim=2, ms=1e3 * taken, pairs_per_s=n_steps * n * n / taken, error=error,
                bound=BOUNDS[dtype])  # fmt: skip


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a table."""
    if not rows:
        return "no GPU"
    verdict = {True: "pass", False: "**fail**", None: ""}
    lines = ["| what | type | N | dim | ms | 1e9 pairs / s | of peak | error | bar | |", "|" + "---|" * 10]
    for row in rows:
        rate = "" if row["pairs_per_s"] is None else f"{row['pairs_per_s'] / 1e9:.3g}"
        share = "" if row["of_peak"] is None or math.isnan(row["of_peak"]) else f"{row['of_peak']:.1%}"
        error = "" if row["error"] is None else f"{row['error']:.0e}"
        sizes = ["" if row[key] is None else f"{row[key]:.4g}" if key == "ms" else str(row[key]) for key in ("N", "dim", "ms")]
        cells = [row["what"], row["type"], *sizes, rate, share, error, row["bar"] or "", verdict[row["passed"]]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 if a bar is missed, 0 otherwise and where there is no GPU."""
    parser = argparse.ArgumentParser(description="Forces, a run and a gradient on a GPU against a CPU in float64.")
    parser.add_argument("--device", help='a torch device; default "cuda"')
    parser.add_argument("--quick", action="store_true", help="tiny sizes")
    options = parser.parse_args(arguments)
    rows = run(options.quick, options.device)
    if rows:
        name = torch.cuda.get_device_name() if (options.device or "cuda").startswith("cuda") else options.device
        print(f"{name}, torch {torch.__version__}\n")
    print(markdown(rows))
    return int(any(row["passed"] is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())
