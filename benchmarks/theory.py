"""The mean-field solver in the plane: time to t = 1 and to the stationary state, accuracy against work, and the ratio to `solve_ivp`.

    python -m benchmarks.theory [--quick]

A log gas (kappa = strength = 1, beta = 4) in the square [-3, 3]^2 from a Gaussian off the centre. One thread; s is the smallest process
CPU time over interleaved rounds (of one run where it takes more than three seconds). "evaluations" are steps of the solver, each of four
convolutions, right-hand sides of `solve_ivp`, and Newton steps. Errors are L1 distances: to a run at tolerance 1e-8 on the same mesh (of
time steps alone); in the group "exact" to the cell averages of the exact Gaussian for quadratic attraction (of everything); for the
stationary state the Euler-Lagrange residual. `solve_ivp` gets the same right-hand side (Scharfetter-Gummel fluxes, FFT convolution),
BDF the sparsity of its local part, atol = rtol / 10, and the loosest of 3e-2, 1e-2, 3e-3 ... whose error is no larger than ours; ratio
is its time over ours. MiB is the highest mark of one run above what the process held before it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # in place of this folder, whose theory.py would hide the package

import numpy as np
from scipy.integrate import solve_ivp
from scipy.sparse import diags
from threadpoolctl import threadpool_limits

from benchmarks.timing import added_memory, best_times
from theory.mean_field import MeanField
from theory.mean_field.meshes import Rectangle

OURS, METHODS = "kernelgas", ("RK45", "BDF")
TOLERANCES = tuple(float(f"{digit}e-{power}") for power in range(2, 9) for digit in (3, 1))
TIMES_FASTER = 5.0
WALL, KAPPA, BETA, ATTRACTION = 3.0, 1.0, 4.0, 0.7
COLUMNS = ("group", "method", "cells", "tol", "evaluations", "s", "ratio", "error", "mib", "bar", "passed")
Row = dict[str, Any]


def run(quick: bool) -> list[Row]:
    """All rows, with the keys of `COLUMNS` (None where a quantity does not apply); `passed` is None where there is no bar."""
    with threadpool_limits(1):
        rows = work(48 if quick else 256) + exact((16, 32) if quick else (32, 64, 128, 256))
        guess: dict[str, float] = {}
        for n in (32,) if quick else (64, 128, 256):
            rows += against_solve_ivp(n, 1e-4, guess)
    return [row | {"bar": None, "passed": None} for row in rows] if quick else rows  # the bars are meant for full sizes


def _row(group: str, method: str, **values: Any) -> Row:
    return dict.fromkeys(COLUMNS) | {"group": group, "method": method} | values


def gas(n: int) -> tuple[MeanField, np.ndarray]:
    """The log gas on n by n cells and where it starts."""
    field = MeanField(_trap, lambda r: -np.log(r), BETA, Rectangle([-WALL, -WALL], [WALL, WALL], (n, n)))
    return field, gaussian(field, 0.5, 0.15)


def _trap(x: np.ndarray) -> np.ndarray:
    return KAPPA / 2 * (x**2).sum(-1)


def gaussian(field: MeanField, mean: float, variance: float) -> np.ndarray:
    """Cell averages of a normal density, of mass 1 on the mesh."""
    rho = field.cell_average(lambda x: np.exp(-((x - mean) ** 2).sum(-1) / (2 * variance)))
    return rho / field.mesh.integral(rho)


def work(n: int) -> list[Row]:
    """Time and memory against accuracy on one mesh, and the stationary state."""
    field, start = gas(n)
    settled = field.evolve(start, 1.0, tol=1e-8)
    calls: dict[Any, Callable[[], Any]] = {tol: lambda tol=tol: field.flow(start, [1.0], tol=tol) for tol in (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)}
    calls["stationary"] = field.stationary
    seconds = best_times(calls, rounds=3)
    rows = []
    for tol in list(calls)[:-1]:
        result = calls[tol]()
        rows.append(
            _row("to t = 1", OURS, cells=n, tol=tol, evaluations=len(result.t) - 1 + result.n_refused, s=seconds[tol],
                 error=_distance(field, result.rho[-1], settled), mib=added_memory(calls[tol]))
        )  # fmt: skip
    state = field.stationary()
    rows.append(
        _row("stationary state", OURS, cells=n, tol=1e-12, evaluations=state.n_iterations, s=seconds["stationary"],
             error=state.residual, mib=added_memory(field.stationary))
    )  # fmt: skip
    return rows


def _distance(field: MeanField, rho: np.ndarray, other: np.ndarray) -> float:
    return field.mesh.integral(np.abs(rho - other))


def exact(sizes: Sequence[int], tol: float = 1e-5) -> list[Row]:
    """All of the error against the Gaussian that quadratic attraction keeps."""
    rows, rate = [], KAPPA + ATTRACTION
    mean, variance = 0.5 * np.exp(-KAPPA), 1 / (BETA * rate) + (0.15 - 1 / (BETA * rate)) * np.exp(-2 * rate)
    for n in sizes:
        field = MeanField(_trap, lambda r: ATTRACTION / 2 * r**2, BETA, Rectangle([-WALL, -WALL], [WALL, WALL], (n, n)))
        start = gaussian(field, 0.5, 0.15)
        result = field.flow(start, [1.0], tol=tol)
        seconds = best_times({OURS: lambda field=field, start=start: field.evolve(start, 1.0, tol=tol)}, rounds=3)[OURS]
        error = _distance(field, result.rho[-1], gaussian(field, mean, variance))
        rows.append(_row("exact", OURS, cells=n, tol=tol, evaluations=len(result.t) - 1 + result.n_refused, s=seconds, error=error))
    return rows


def against_solve_ivp(n: int, tol: float, guess: dict[str, float]) -> list[Row]:
    """Ours and `solve_ivp` at no larger error; `guess` holds the tolerances to begin with, found on a coarser mesh, and is updated."""
    field, start = gas(n)
    settled = field.evolve(start, 1.0, tol=1e-8)
    result = field.flow(start, [1.0], tol=tol)
    error = _distance(field, result.rho[-1], settled)
    solved = {method: _equally_good(field, start, settled, method, error, guess.get(method, TOLERANCES[0])) for method in METHODS}
    calls = {OURS: lambda: field.evolve(start, 1.0, tol=tol)}
    calls |= {method: lambda m=method: integrate(field, start, m, solved[m]["tol"]) for method in METHODS if solved[method]["s"] < 3}
    seconds = {method: row["s"] for method, row in solved.items()} | best_times(calls, rounds=3)
    rows = [
        _row(
            "same error", OURS, cells=n, tol=tol, evaluations=len(result.t) - 1 + result.n_refused, s=seconds[OURS], ratio=1.0, error=error
        )
    ]
    for method, row in solved.items():
        guess[method] = row["tol"]
        ratio = seconds[method] / seconds[OURS]
        rows.append(row | {"s": seconds[method], "ratio": ratio, "bar": f"ratio >= {TIMES_FASTER:g}", "passed": ratio >= TIMES_FASTER})
    return rows


def integrate(field: MeanField, start: np.ndarray, method: str, tol: float) -> Any:
    """scipy's answer at t = 1, from the right-hand side of the finite volumes."""
    n = len(start)
    local = diags([1.0] * 5, [0, 1, -1, n, -n], shape=(n * n, n * n))
    options: dict[str, Any] = {"jac_sparsity": local} if method == "BDF" else {}
    solve: Any = solve_ivp
    return solve(lambda t, y: field.rate(y).ravel(), (0.0, 1.0), start.ravel(), method, t_eval=[1.0], rtol=tol, atol=tol / 10, **options)


def _equally_good(field: MeanField, start: np.ndarray, settled: np.ndarray, method: str, error: float, first: float) -> Row:
    """The row of the loosest tolerance, from `first` on, that reaches the error."""
    for tol in (tol for tol in TOLERANCES if tol <= first):
        began = time.process_time()
        answer = integrate(field, start, method, tol)
        seconds = time.process_time() - began
        reached = _distance(field, answer.y[:, -1].reshape(start.shape), settled)
        if reached <= error:
            return _row("same error", f"solve_ivp {method}", cells=len(start), tol=tol, evaluations=answer.nfev, s=seconds, error=reached)
    raise RuntimeError(f"solve_ivp {method} reaches no error of {error:.1e} on {start.shape} cells")


def markdown(rows: Sequence[Row]) -> str:
    """The rows as one table."""
    lines = ["| group | method | cells | tol | evaluations | s | ms each | ratio | error | MiB | bar | |", "|" + "---|" * 12]
    verdict = {True: "pass", False: "**fail**", None: ""}
    for row in rows:
        each = f"{1e3 * row['s'] / row['evaluations']:.3g}"
        memory = "" if row["mib"] is None else f"{row['mib']:.0f}"
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.3g}"
        error = f"{row['error']:.1e}"
        cells = [row["group"], row["method"], f"{row['cells']}^2", f"{row['tol']:.0e}", str(row["evaluations"]), f"{row['s']:.3g}", each]
        lines.append(f"| {' | '.join([*cells, ratio, error, memory, row['bar'] or '', verdict[row['passed']]])} |")
    return "\n".join(lines)


def main() -> int:
    """Print the table; the exit code is 1 if a bar is missed."""
    rows = run("--quick" in sys.argv[1:])
    print(markdown(rows))
    return int(any(row["passed"] is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())
