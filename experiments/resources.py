"""Processor time and memory that a call takes."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any


def seconds(call: Callable[[], Any], device: str = "cpu") -> float:
    """Processor time of one call [s], which other load disturbs little; on a GPU the time until it is done."""
    if device == "cpu":
        start = time.process_time()
        call()
        return time.process_time() - start
    import torch

    torch.cuda.synchronize(device)
    start = time.perf_counter()
    call()
    torch.cuda.synchronize(device)
    return time.perf_counter() - start


def added_memory(call: Callable[[], object]) -> float | None:
    """MiB that one call adds at most to this process; None where the system cannot say (other than Linux)."""
    try:
        ctypes.CDLL(None).malloc_trim(0)  # what the allocator keeps for later would hide an allocation
        with open("/proc/self/clear_refs", "w", encoding="ascii") as reset:
            reset.write("5")  # the highest mark falls to the present size
        before = _kept_kib()["VmRSS"]
        call()
        return max(0.0, (_kept_kib()["VmHWM"] - before) / 1024)
    except (OSError, AttributeError):
        return None


def added_gpu_memory(call: Callable[[], object], device: str) -> float:
    """MiB that one call adds at most to what torch holds on a GPU."""
    import torch

    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    call()
    torch.cuda.synchronize(device)
    return (torch.cuda.max_memory_allocated(device) - before) / 2**20


def _kept_kib() -> dict[str, int]:
    """VmRSS and VmHWM, the resident memory now and at most, of this process (Linux)."""
    with open("/proc/self/status", encoding="ascii") as status:
        return {line.split(":")[0]: int(line.split()[1]) for line in status if line.startswith(("VmRSS", "VmHWM"))}
