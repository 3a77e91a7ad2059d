"""All units of an experiment, one after another or on a Dask cluster; finished ones are kept, failed ones are tried again and then named.

Each unit computes on one thread and takes its random numbers from its own coordinates, so the result is the same bits whatever the
number of workers, their order, or the number of interruptions. Under `torchrun` all processes train each unit together.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import xarray as xr
from tqdm.auto import tqdm

from experiments.report import load, store
from experiments.units import Record, Store, Unit, digest, gather, key, place, record, settings
from particles._one_thread import one_thread

Task = tuple[str, Unit]  # the key of a Config, and one of its units
Outcome = tuple[Task, Record | xr.Dataset | BaseException]


class NothingMeasured(RuntimeError):
    """All units failed."""


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
    NothingMeasured
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
    progress: bool = False,
) -> dict[str, xr.Dataset]:
    """`run` of several Configs at once, their units side by side; the Datasets under the keys of `configs`.

    Parameters
    ----------
    results : folder of finished units (see `experiments.units`); "": nothing is kept.
    workers : processes of a Dask cluster on this machine; 0: this process, one unit after another.
    scheduler : address of a running Dask scheduler ("tcp://host:8786") instead; its workers need this package and the same data folder.
    retries : how often a unit that failed is tried again.
    progress : a bar on stderr, after a line that says how many units were finished before.

    KeyboardInterrupt says how many units are kept, if any are.
    """
    if workers < 0 or retries < 0:
        raise ValueError(f"workers and retries must be at least 0, got {workers} and {retries}")
    module = named(name)
    runs = {label: planned(module, config, results) for label, config in configs.items()}
    todo = _agreed([(label, unit) for label, run in runs.items() for unit in run.todo])
    if progress and first_process():
        n_planned = sum(len(run.planned) for run in runs.values())
        tqdm.write(f"{n_planned - len(todo)} of {n_planned} units finished before", file=sys.stderr)
    if todo and results:
        writable(results)
    if todo and hasattr(module, "prepare"):
        for label in dict.fromkeys(label for label, _ in todo):
            module.prepare(configs[label])
    if scheduler or workers:
        outcomes = _on_cluster(module.__name__, configs, todo, workers, scheduler, retries)
    else:
        outcomes = ((task, _tried(module.__name__, configs[task[0]], task[1], retries)) for task in todo)
    try:
        with closing(outcomes):
            for (label, unit), outcome in tqdm(outcomes, short_name(module), len(todo), disable=not progress or not todo):
                runs[label].take(unit, outcome)
    except KeyboardInterrupt:
        kept = sum(len(run.planned) - len(run.todo) for run in runs.values()) if results else 0
        raise KeyboardInterrupt(*([f"{kept} finished units are kept, the same command goes on from them"] if kept else [])) from None
    failed = [error for run in runs.values() for error in run.failed.values()]
    if failed and not any(run.finished for run in runs.values()):
        raise NothingMeasured(f"no unit of {short_name(module)} could be measured; the first error: {failed[0]}")
    return {label: run.dataset() for label, run in runs.items()}


def writable(results: str) -> None:
    """Make the folder of results; PermissionError or another OSError if nothing could be kept there."""
    Path(results).mkdir(parents=True, exist_ok=True)
    if not os.access(results, os.W_OK):
        raise PermissionError(f"results must be a folder that can be written, got {results!r}")


def planned(module: ModuleType, config: Any, results: str) -> Run:
    """What a Config asks for and what of it is finished."""
    return (Run if hasattr(module, "units") else WholeRun)(module, config, results)


class Run:
    """The units of one Config: planned, finished, failed."""

    def __init__(self, module: ModuleType, config: Any, results: str) -> None:
        self.module, self.config = module, config
        self.store, self.planned = Store(results, short_name(module), settings(module, config)), list(module.units(config))
        self.finished: dict[str, Any] = dict(self.store.finished())
        self.failed = dict[str, str]()

    @property
    def todo(self) -> list[Unit]:
        """Planned units that are not finished."""
        return [unit for unit in self.planned if key(unit) not in self.finished]

    def seconds(self, unit: Unit) -> float:
        """Processor time of a finished unit."""
        return self.finished[key(unit)].made["seconds"]

    def keep(self, outcome: Any) -> None:
        """Write what a unit gave."""
        self.store.append(outcome)

    def take(self, unit: Unit, outcome: Any) -> None:
        """Keep a finished unit, name a failed one."""
        if isinstance(outcome, BaseException):
            self.failed[key(unit)] = f"{type(outcome).__name__}: {outcome}"
            tqdm.write(f"{short_name(self.module)} {key(unit)} failed: {self.failed[key(unit)]}{raised_at(outcome)}", file=sys.stderr)
            return
        self.finished[key(unit)] = outcome
        if first_process():
            self.keep(outcome)

    def dataset(self) -> xr.Dataset:
        """All planned units, NaN where one is not finished."""
        records = [self.finished[key(unit)] for unit in self.planned if key(unit) in self.finished]
        gathered = gather(self.module, records, self.planned, settings(self.module, self.config))
        return gathered.assign_attrs(config=json.dumps(asdict(self.config)), failed=json.dumps(self.failed))


class WholeRun(Run):
    """An experiment without units: the run of a Config is one task and keeps its Dataset as a zarr store, named by all of its settings."""

    def __init__(self, module: ModuleType, config: Any, results: str) -> None:
        self.module, self.config, self.planned = module, config, [{}]
        name = short_name(module)
        self.path = place(results, f"{name}-{digest(name, json.loads(json.dumps(asdict(config))))}.zarr")
        self.finished: dict[str, Any] = {key({}): load(self.path)} if self.path and self.path.exists() else {}
        self.failed = dict[str, str]()

    def seconds(self, unit: Unit) -> float:
        """Processor time of the run."""
        return self.finished[key(unit)].attrs["cpu_seconds"]

    def keep(self, outcome: xr.Dataset) -> None:
        """The store appears under its name when it is complete."""
        if self.path is not None:
            part = self.path.with_suffix(f".{os.getpid()}")
            store(outcome, part)
            try:
                part.rename(self.path)
            except OSError:
                if not self.path.exists():
                    raise
                shutil.rmtree(part)  # another process was first

    def dataset(self) -> xr.Dataset:
        """What the run gave; nothing if it is not finished."""
        return self.finished.get(key({}), xr.Dataset()).assign_attrs(failed=json.dumps(self.failed))


def named(name: str | ModuleType) -> ModuleType:
    """The module of an experiment."""
    return importlib.import_module(f"experiments.{name}") if isinstance(name, str) else name


def measured(module: str, config: Any, unit: Unit) -> Record | xr.Dataset:
    """One unit, or the whole of an experiment without units, on one thread; what a worker does."""
    import torch  # noqa: F401  # what is imported inside would compute on all threads

    experiment = importlib.import_module(module)
    with one_thread:
        started = time.process_time()
        if not hasattr(experiment, "measure"):
            return experiment.run(config).assign_attrs(cpu_seconds=time.process_time() - started)
        scores = experiment.measure(config, unit)
        return record(unit, scores, time.process_time() - started)


def short_name(module: ModuleType) -> str:
    """The name of an experiment, as its files and commands have it."""
    return module.__name__.rpartition(".")[2]


def raised_at(error: BaseException) -> str:
    """The line that raised an error, where it is known."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def _tried(module: str, config: Any, unit: Unit, retries: int) -> Record | xr.Dataset | BaseException:
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
) -> Generator[Outcome, None, None]:
    """Outcomes as they come from a cluster; a unit whose worker dies goes to another one."""
    if not todo:
        return
    from distributed import as_completed

    with cluster(workers, scheduler) as client:
        if scheduler:
            _say_if_idle(client, scheduler)
        futures = {client.submit(measured, module, configs[task[0]], task[1], pure=False, retries=retries): task for task in todo}
        for future in as_completed(futures):
            error = future.exception()
            yield futures.pop(future), future.result() if error is None else error.with_traceback(future.traceback())


@contextmanager
def cluster(workers: int, scheduler: str = "") -> Iterator[Any]:
    """A Dask client: of the scheduler at an address, or of `workers` new processes with one thread each, ended with the context."""
    try:
        from distributed import Client, LocalCluster
    except ModuleNotFoundError as error:
        raise ValueError("sweeps on several processes need Dask: pip install 'kernelgas[cluster]', or workers=0") from error
    if scheduler:
        with _connected(Client, scheduler) as client:
            yield client
        return
    with (
        _unasked_ends(),
        LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None) as local,
        Client(local) as client,
    ):
        client.register_plugin(_deaf_to_ctrl_c())
        yield client


@contextmanager
def _unasked_ends() -> Iterator[None]:
    """Says nothing of workers that have to be killed when the cluster ends: one inside a long computation can't hear that it shall end."""
    log = logging.getLogger("distributed.nanny")

    def other(record: logging.LogRecord) -> bool:
        return "still alive after" not in record.getMessage()

    log.addFilter(other)
    try:
        yield
    finally:
        log.removeFilter(other)


def _say_if_idle(client: Any, scheduler: str, patience: float = 3.0) -> None:
    """A line on stderr if the scheduler has no worker after so many seconds; units wait until one comes."""
    try:
        client.wait_for_workers(1, timeout=patience)
    except TimeoutError:
        tqdm.write(f"waiting for workers of {scheduler}", file=sys.stderr)


def _deaf_to_ctrl_c() -> Any:
    """Leaves Ctrl-C, which a terminal sends to all processes, to the one that ends the cluster: workers that heard it were replaced."""
    from distributed import WorkerPlugin

    class Deaf(WorkerPlugin):
        def setup(self, worker: Any) -> None:  # in the worker's main thread
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    return Deaf()


def _connected(client: Any, scheduler: str) -> Any:
    """A client of the scheduler; ValueError if none answers within 20 seconds."""
    try:
        return client(scheduler, timeout=20)
    except Exception as error:  # whatever it is that answers there
        raise ValueError(f"scheduler must be the address of a running Dask scheduler, as tcp://host:8786, got {scheduler!r}") from error


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
