"""One thread for numba, BLAS and torch while a member of an ensemble computes."""

from __future__ import annotations

import importlib
import sys
import threading
from typing import Any

import numba


def _loaded_torch() -> Any:
    """torch if something has imported it, waiting for an import that goes on in another thread; else None."""
    return importlib.import_module("torch") if "torch" in sys.modules else None


def _any_thread_may_limit() -> None:
    """threadpoolctl 3.8 and later let one thread alone set BLAS until it says that it is done; the last to leave may be another."""
    import threadpoolctl

    release = getattr(threadpoolctl.OpenBLASController, "clear_controlling_thread", None)
    if release is not None:
        release(force=True)


class OneThread:
    """While any member runs in this process: one thread for numba, BLAS and torch, as sums may depend on how many there are.

    numba and torch count threads for each calling thread, BLAS for the process. SciPy has a BLAS of its own, which is loaded first, as
    limits hold for what is loaded; whoever needs torch inside imports it before.
    """

    def __init__(self) -> None:
        self.lock, self.users = threading.Lock(), 0
        self.mine = threading.local()
        self.limits: Any = None

    def __enter__(self) -> None:
        import scipy.linalg  # noqa: F401
        from threadpoolctl import threadpool_limits

        torch = _loaded_torch()
        with self.lock:
            if self.users == 0:
                _any_thread_may_limit()
                self.torch = torch and torch.get_num_threads()  # before the limits, which hold for torch's OpenMP too
                self.limits = threadpool_limits(1)
            self.users += 1
        self.mine.numba = numba.get_num_threads()
        numba.set_num_threads(1)
        if torch:
            torch.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        numba.set_num_threads(self.mine.numba)
        with self.lock:
            self.users -= 1
            if self.users == 0:
                _any_thread_may_limit()
                self.limits.restore_original_limits()
                _any_thread_may_limit()
                if self.torch:
                    sys.modules["torch"].set_num_threads(self.torch)


one_thread = OneThread()
