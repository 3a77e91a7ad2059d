"""All units of an experiment, one after another or on a Dask cluster; finished ones are kept, failed ones are tried again and then named.

Each unit computes on one thread and takes its random numbers from its own coordinates, so the result is the same bits whatever the
number of workers, their order, or the number of interruptions. Under `torchrun` all processes train each unit together.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from types import ModuleType
from typing import Any

import xarray as xr
from tqdm.auto import tqdm

from experiments.units import Record, Store, Unit, gather, key, record, settings
from particles._one_thread import one_thread

Task = tuple[str, Unit]  # the key of a Config, and one of its units
Outcome = tuple[Task, Record | BaseException]


def run(name: str | ModuleType, config: Any, **how: Any) -> xr.Dataset:
    """Measure the units of an experiment that are not finished yet and return all of them.

    Parameters
    ----------
    name : str or module
        Of a module in `experiments`, or the module itself (workers import it by its name).
    config : the module's Config.
    how : the options of `over`.

    Returns
    -------
    Dataset of `experiments.units.gather`. Units that failed are NaN in it, and the attribute ``failed`` is JSON of {unit: error}.

    Raises
    ------
    ValueError
        On arguments that are wrong, or results of other settings.
    RuntimeError
        If no unit could be measured.
    """
    return over(name, {"": config}, **how)[""]


def over(
    name: str | ModuleType,
    configs: Mapping[str, Any],
    *,
    results: str = "",
    workers: int = 0,
    scheduler: str = "",
    retries: int = 2,
    progress: bool = True,
) -> dict[str, xr.Dataset]:
    """`run` of several Configs at once, their units side by side; the Datasets under the keys of `configs`.

    Parameters
    ----------
    results : folder of finished units (see `experiments.units`); "": nothing is kept.
    workers : processes of a Dask cluster on this machine; 0: this process, one unit after another.
    scheduler : address of a running Dask scheduler ("tcp://host:8786") instead; its workers need this package and the same data folder.
    retries : how often a unit that failed is tried again.
    progress : a bar on stderr.
    """
    if workers < 0 or retries < 0:
        raise ValueError(f"workers and retries must be at least 0, got {workers} and {retries}")
    module = named(name)
    runs = {label: _Run(module, config, results) for label, config in configs.items()}
    todo = _agreed([(label, unit) for label, run in runs.items() for unit in run.todo])
    if todo and hasattr(module, "prepare"):
        for label in dict.fromkeys(label for label, _ in todo):
            module.prepare(configs[label])
    if scheduler or workers:
        outcomes = _on_cluster(module.__name__, configs, todo, workers, scheduler, retries)
    else:
        outcomes = ((task, _tried(module.__name__, configs[task[0]], task[1], retries)) for task in todo)
    for (label, unit), outcome in tqdm(outcomes, short_name(module), len(todo), disable=not progress or not todo):
        runs[label].take(unit, outcome)
    failed = [error for run in runs.values() for error in run.failed.values()]
    if failed and not any(run.finished for run in runs.values()):
        raise RuntimeError(f"no unit of {short_name(module)} could be measured; the first error: {failed[0]}")
    return {label: run.dataset() for label, run in runs.items()}


class _Run:
    """The units of one Config: planned, finished, failed."""

    def __init__(self, module: ModuleType, config: Any, results: str) -> None:
        self.module, self.config = module, config
        self.store, self.planned = Store(results, short_name(module), settings(module, config)), list(module.units(config))
        self.finished, self.failed = self.store.finished(), dict[str, str]()

    @property
    def todo(self) -> list[Unit]:
        return [unit for unit in self.planned if key(unit) not in self.finished]

    def take(self, unit: Unit, outcome: Record | BaseException) -> None:
        """Keep a finished unit, name a failed one."""
        if isinstance(outcome, BaseException):
            self.failed[key(unit)] = f"{type(outcome).__name__}: {outcome}"
            print(f"{short_name(self.module)} {key(unit)} failed: {self.failed[key(unit)]}", file=sys.stderr)
            return
        self.finished[key(unit)] = outcome
        if first_process():
            self.store.append(outcome)

    def dataset(self) -> xr.Dataset:
        records = [self.finished[key(unit)] for unit in self.planned if key(unit) in self.finished]
        gathered = gather(self.module, records, self.planned, settings(self.module, self.config))
        return gathered.assign_attrs(config=json.dumps(asdict(self.config)), failed=json.dumps(self.failed))


def named(name: str | ModuleType) -> ModuleType:
    """The module of an experiment."""
    return importlib.import_module(f"experiments.{name}") if isinstance(name, str) else name


def measured(module: str, config: Any, unit: Unit) -> Record:
    """One unit on one thread; what a worker does."""
    measure = importlib.import_module(module).measure
    with one_thread:
        started = time.process_time()
        scores = measure(config, unit)
        return record(unit, scores, time.process_time() - started)


def short_name(module: ModuleType) -> str:
    """The name of an experiment, as its files and commands have it."""
    return module.__name__.rpartition(".")[2]


def _tried(module: str, config: Any, unit: Unit, retries: int) -> Record | BaseException:
    """One unit here, tried again when it fails."""
    for attempt in range(retries + 1):
        try:
            return measured(module, config, unit)
        except Exception as error:
            if attempt == retries:
                return error
    raise AssertionError  # the last attempt has returned


# ---- Dask --------------------------------------------------------------------------------------------------------------------------------


def _on_cluster(
    module: str, configs: Mapping[str, Any], todo: Sequence[Task], workers: int, scheduler: str, retries: int
) -> Iterator[Outcome]:
    """Outcomes as they come from a cluster; a unit whose worker dies goes to another one."""
    if not todo:
        return
    from distributed import as_completed

    with cluster(workers, scheduler) as client:
        futures = {client.submit(measured, module, configs[task[0]], task[1], pure=False, retries=retries): task for task in todo}
        for future in as_completed(futures):
            error = future.exception()
            yield futures.pop(future), future.result() if error is None else error


@contextmanager
def cluster(workers: int, scheduler: str = "") -> Iterator[Any]:
    """A Dask client: of the scheduler at an address, or of `workers` new processes with one thread each, ended with the context."""
    try:
        from distributed import Client, LocalCluster
    except ModuleNotFoundError as error:
        raise ValueError("sweeps on several processes need Dask: pip install 'kernelgas[cluster]', or workers=0") from error
    if scheduler:
        with Client(scheduler, timeout=20) as client:
            yield client
        return
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None) as local,
        Client(local) as client,
    ):
        yield client


# ---- torchrun ----------------------------------------------------------------------------------------------------------------------------


@contextmanager
def process_group() -> Iterator[None]:
    """The process group of `torchrun`, NCCL where each process has a GPU and gloo elsewhere; nothing without torchrun."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    import torch
    from torch import distributed

    on_gpus = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    if on_gpus:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group("nccl" if on_gpus else "gloo")
    try:
        yield
    finally:
        distributed.destroy_process_group()


def first_process() -> bool:
    """Whether this is the process that writes: the only one, or the first of `torchrun`."""
    return int(os.environ.get("RANK", "0")) == 0


def _agreed(todo: list[Task]) -> list[Task]:
    """The first process's list in all processes of a group: only it knows for certain what was finished when it looked."""
    if "torch" not in sys.modules:
        return todo
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        return todo
    known = [todo]
    distributed.broadcast_object_list(known, 0)
    return known[0]
