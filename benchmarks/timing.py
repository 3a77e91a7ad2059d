"""What every benchmark measures with: CPU time that other load disturbs little, memory above what was there, and the arithmetic peak."""

from __future__ import annotations

import time
import typing
from collections.abc import Callable, Mapping

import numpy as np
from numba import njit

from experiments.resources import added_memory

__all__ = ["added_memory", "best_times", "peak_call"]

Calls = Mapping[str, Callable[[], object]]
TURN = 0.01
PEAK_REPEATS = 4000  # about 2 milliseconds of multiply-adds


def best_times(calls: Calls, *, rounds: int, budget: float = 3.0, clock: Callable[[], float] = time.process_time) -> dict[str, float]:
    """Smallest seconds of each call over interleaved rounds after a warm-up; CPU time of the process unless another clock is given.

    In its turn a call is repeated for `TURN` seconds, so that what ran before does not leave a fast one with cold caches; one
    that has used up `budget` seconds gets no further turn: a very slow one is timed once.
    """
    for call in calls.values():
        call()
    best, spent = dict.fromkeys(calls, np.inf), dict.fromkeys(calls, 0.0)
    for _ in range(rounds):
        for name in (name for name in calls if spent[name] <= budget):
            turn = 0.0
            while turn < TURN:
                start = clock()
                calls[name]()
                taken = clock() - start
                turn += taken
                best[name] = min(best[name], taken)
            spent[name] += turn
    return best


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


def peak_call(dtype: type) -> tuple[Callable[[], object], float]:
    """A loop of fused multiply-adds on one core, to be timed beside the methods, and its GFLOP."""
    values: np.ndarray = np.zeros(512, dtype)
    return lambda: _multiply_adds(values, dtype(0.999), dtype(1e-3), PEAK_REPEATS), 2e-9 * 16 * values.size * PEAK_REPEATS
