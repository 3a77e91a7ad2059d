"""Many runs at once: on this machine, on any `concurrent.futures` executor, or on a Dask cluster, with the same bits on all of them.

Every run is a function of its configuration alone (its random numbers are keyed by its seed), and computes on one thread: the runs
themselves are the parallel work.
"""

from __future__ import annotations

import importlib
import inspect
import json
import multiprocessing
import os
import pickle
import reprlib
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from particles import random
from particles._one_thread import one_thread
from particles.arrays import as_omega, is_torch
from particles.simulate import resume, simulate, uninterrupted
from particles.targets import to_numpy
from particles.trajectory import as_path, open_trajectory

if TYPE_CHECKING:
    import xarray as xr

Config = dict[str, Any]
UNGUARDED = "new processes import the script, which must call run_ensemble under `if __name__ == '__main__':` only"
GRACE = 5.0  # seconds that interrupted workers get to write what they have


class EnsembleError(RuntimeError):
    """Some runs of an ensemble failed; the others are finished.

    Attributes
    ----------
    exceptions
        {place in the configs: the exception}.
    datasets
        As `run_ensemble` returns them, None where a run failed. What a failed run had stored is still in its store.
    """

    def __init__(self, exceptions: dict[int, Exception], datasets: list[xr.Dataset | None]):
        super().__init__(exceptions, datasets)
        self.exceptions, self.datasets = exceptions, datasets

    def __str__(self) -> str:
        first = [f"configs[{i}]: {type(e).__name__}: {e}" for i, e in list(self.exceptions.items())[:3]]
        return f"{len(self.exceptions)} of {len(self.datasets)} runs failed; " + "; ".join(first)


def run_ensemble(configs: Iterable[Config], *, executor: Any = None, progress: bool = False) -> list[xr.Dataset]:
    """Run `simulate(**config)` for every config, in parallel.

    >>> base = dict(energy=Riesz(0, 1.0), domain=Ball(1.0, 2), sampler=Langevin(0.01, 5.0), n_steps=1000)
    >>> runs = run_ensemble([base | dict(omega=Ball(1.0, 2).sample(64, seed), rng=seed) for seed in range(20)])

    Scripts that use processes call this under `if __name__ == "__main__":`, as always with processes that are not forked.

    Parameters
    ----------
    configs
        Dicts of `simulate`'s arguments, each complete. A config whose `store` exists continues that run where it stopped (and returns
        it, without a worker, if it is finished), so that an ensemble that was interrupted is continued by the same call.
    executor
        None: processes on this machine, one for each CPU. A `concurrent.futures` executor of threads or of processes that are not
        forked, which is left open. A `dask.distributed.Client` (of a LocalCluster object, `Client(cluster)`), or the address of a
        scheduler ("tcp://..."); stores must then lie where the workers and this process see them under one path.
        A process takes seconds to start and to load compiled code: for runs shorter than that, give a `ThreadPoolExecutor`.
    progress
        Show a progress bar that counts runs.

    Returns
    -------
    list of xarray.Dataset
        In the order of the configs; those with a store are read lazily.

    Raises
    ------
    ValueError
        Before any run: a config that is no dict, has unknown or missing arguments, cannot be sent to other processes, shares its
        store with another, or names a store whose run has another seed, start, first_chain or save_every (index and argument are
        named); a fork-context executor (a process must not be forked after numba or torch have started threads).
    EnsembleError
        After all runs have ended, if some failed; also where a store's energy, domain or sampler is another.
    RuntimeError
        In a process that is just importing its script: the call is not under the guard above.
    KeyboardInterrupt
        Runs that have not begun are cancelled; own processes get 5 seconds to write what they have. Stores stay.
    """
    configs = [_checked(config, i) for i, config in enumerate(_as_list(configs))]
    _check_stores(configs)
    with _opened(executor, len(configs)) as pool:
        _check_transport(configs, pool)
        return _gather(configs, pool, progress)


def _as_list(configs: Any) -> list[Any]:
    if isinstance(configs, (dict, str)) or not isinstance(configs, Iterable):
        got = "one dict: put it in a list" if isinstance(configs, dict) else reprlib.repr(configs)
        raise ValueError(f"configs must be a sequence of dicts, got {got}")
    return list(configs)


def _checked(config: Any, index: int) -> Config:
    """The config with its seed drawn (in the order of the configs, whatever the executor) and its store's path absolute."""
    if not isinstance(config, dict):
        raise ValueError(f"configs[{index}] must be a dict of simulate's arguments, got {reprlib.repr(config)}")
    parameters = inspect.signature(simulate).parameters
    unknown = [name for name in config if name not in parameters]
    missing = [name for name, p in parameters.items() if p.default is p.empty and name not in config]
    if unknown or missing:
        raise ValueError(f"configs[{index}] must hold simulate's arguments: unknown {unknown}, missing {missing}")
    try:
        changes: Config = {"rng": random.key_from(config["rng"])}
        if config.get("store") is not None:
            changes["store"] = as_path(config["store"], "store").resolve()
    except ValueError as error:
        raise ValueError(f"configs[{index}]: {error}") from None
    return config | changes


def _check_stores(configs: list[Config]) -> None:
    """Every store belongs to one config, and what it holds already is the beginning of that config's run."""
    owners: dict[Path, int] = {}
    for i, store in ((i, c["store"]) for i, c in enumerate(configs) if c.get("store") is not None):
        if owners.setdefault(store, i) != i:
            raise ValueError(f"configs[{i}]: store must be its own, but configs[{owners[store]}] has {str(store)!r} too")
        if store.exists():
            _check_stored(configs[i], i)


def _check_stored(config: Config, index: int) -> None:
    """ValueError unless the store's seed, chain numbers, spacing and start are the config's; `resume` compares the rest."""
    saved = open_trajectory(config["store"])
    for name, default in (("rng", None), ("first_chain", 0), ("save_every", 1)):
        given, stored = config.get(name, default), json.loads(saved.attrs["seed" if name == "rng" else name])
        if stored != given:
            raise ValueError(f"configs[{index}]: {name} must be {stored}, as in the store that exists already, got {given!r}")
    omega = as_omega(config["omega"], name=f"configs[{index}]: omega")
    start, stored = to_numpy(omega, "omega"), saved.omega[:, 0].to_numpy()
    kinds = {(start.dtype, is_torch(omega)), (stored.dtype, saved.attrs["array"] == "torch")}
    if len(kinds) > 1 or not np.array_equal(stored, start[None] if start.ndim == 2 else start):
        raise ValueError(f"configs[{index}]: omega must be the start of the run that {str(config['store'])!r} holds already")


@contextmanager
def _opened(executor: Any, n_configs: int) -> Iterator[Executor]:
    """The executor that an argument stands for; what is made here is closed here."""
    if executor is None:
        yield from _local_pool(n_configs)
    elif isinstance(executor, str):
        with _dask().Client(executor) as client:
            yield client.get_executor(pure=False)
    elif hasattr(executor, "get_executor"):
        yield executor.get_executor(pure=False)
    elif isinstance(executor, Executor):
        context = getattr(executor, "_mp_context", None)
        if context is not None and context.get_start_method() == "fork":
            raise ValueError(
                "executor must not fork: give ProcessPoolExecutor mp_context=multiprocessing.get_context('spawn'), "
                f"got a fork context in {executor!r}"
            )
        yield executor
    else:
        raise ValueError(f"executor must be None, a concurrent.futures.Executor, a dask Client or its address, got {executor!r}")


def _dask() -> Any:
    try:
        import distributed
    except ImportError:
        raise ImportError('a scheduler address needs dask.distributed: pip install "kernelgas[cluster]"') from None
    return distributed


def _local_pool(n_configs: int) -> Iterator[Executor]:
    """Spawned processes, one for each CPU that this process may use; those of an interrupted ensemble do not outlive it."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # while a new process imports the script
        raise RuntimeError(UNGUARDED)
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    pool = ProcessPoolExecutor(max(1, min(cpus, n_configs)), mp_context=multiprocessing.get_context("spawn"))
    try:
        yield pool
    except (BrokenProcessPool, EnsembleError) as error:
        if all(isinstance(e, BrokenProcessPool) for e in getattr(error, "exceptions", {0: error}).values()):
            error.add_note(f"If the processes ended as they began, this is why: {UNGUARDED}.")
        raise
    except KeyboardInterrupt:
        workers = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.join(GRACE / len(workers))
        for worker in workers:
            worker.terminate()
        raise
    finally:
        pool.shutdown()


def _check_transport(configs: list[Config], pool: Executor) -> None:
    """ValueError naming the first argument that cannot be sent to another process; objects that configs share are tried once."""
    dump = _dump(pool)
    tried: set[int] = set()
    for i, config in enumerate(configs if dump else ()):
        for name, value in config.items():
            if id(value) in tried:
                continue
            try:
                dump(value)
            except Exception as error:
                raise ValueError(f"configs[{i}]: {name} must be picklable to be sent to another process, got {value!r} ({error})") from None
            tried.add(id(value))


def _dump(pool: Executor) -> Any:
    """What the executor's arguments are serialised with; None where they stay in this process, or that is not known."""
    if isinstance(pool, ProcessPoolExecutor):
        return pickle.dumps
    return importlib.import_module("cloudpickle").dumps if type(pool).__module__.startswith("distributed.") else None


def _gather(configs: list[Config], pool: Executor, progress: bool) -> list[xr.Dataset]:
    """Submit all, wait for all, and put the results in order."""
    futures: dict[Future, int] = {}
    datasets: list[Any] = [None] * len(configs)
    exceptions: dict[int, Exception] = {}
    try:
        futures.update((_here(config) if _is_finished(config) else pool.submit(_run_member, config), i) for i, config in enumerate(configs))
        for future in _bar(as_completed(futures), len(configs), progress):
            i = futures[future]
            try:
                dataset = future.result()
                datasets[i] = open_trajectory(configs[i]["store"]) if dataset is None else dataset
            except Exception as error:
                exceptions[i] = error
    except BaseException:
        for future in futures:
            future.cancel()
        raise
    if exceptions:
        raise EnsembleError(dict(sorted(exceptions.items())), datasets)
    return datasets


def _is_finished(config: Config) -> bool:
    """Whether its store holds the whole run."""
    store = config.get("store")
    return store is not None and store.exists() and int(open_trajectory(store).step[-1]) == config["n_steps"]


def _here(config: Config) -> Future:
    """A finished run, compared with its store in this process."""
    future: Future = Future()
    try:
        future.set_result(_run_member(config))
    except Exception as error:
        future.set_exception(error)
    return future


def _bar(futures: Iterator[Future], total: int, progress: bool) -> Iterable[Future]:
    """The futures, behind a progress bar if wanted."""
    if not progress:
        return futures
    from tqdm.auto import tqdm

    return tqdm(futures, total=total, unit="run")


def _run_member(config: Config) -> xr.Dataset | None:
    """One run, in whatever process; a stored one is begun, continued or found finished, and returns None.

    An interrupt that `simulate` answers with the frames so far ends the ensemble.
    """
    store = config.get("store")
    try:
        with one_thread:
            if store is not None and store.exists():
                dataset = resume(**{name: config[name] for name in inspect.signature(resume).parameters if name in config})
            else:
                dataset = simulate(**config)
    except Exception as error:
        failure = _portable(error)
    else:
        uninterrupted(dataset)
        return dataset if store is None else None
    raise failure  # here it has no context, which might be what cannot be sent


def _portable(error: Exception) -> Exception:
    """The exception, or its text where it cannot be sent to another process, which would break the pool."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}").with_traceback(error.__traceback__)
    return error
