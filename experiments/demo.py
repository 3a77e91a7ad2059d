"""The whole idea in one command: a checked gas, a learned kernel, the kernel in attention, and in a transformer on real data.

Each part is printed as soon as it is there and written to ``results/demo/<UTC time>/``, whose ``index.html`` needs no other file.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from experiments import report
from experiments.data import load, named
from experiments.report import Section
from experiments.sections import draw, section
from particles.arrays import count

ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
TITLE = "kernelgas: learn a kernel with particles, use it in a linear transformer"
LEAD = (
    "A kernel is a measure of frequencies. Particles sample that measure: labels pull on them, they repel each other, noise and a ball "
    "keep them moving and bounded. Below they are checked against exact laws, learn kernels, and serve as the features of attention that "
    "is linear in the length of the sequence. Where the method brings nothing, the tables say so."
)


@dataclass(frozen=True)
class Config:
    """What the demo does."""

    data: Path | None = None  # labelled texts or pixel images (classify: --folder), or the folder above; None: scikit-learn's digits
    dataset: str | None = None  # name (classify: --data), a folder inside --data if there is one; None: the folder's own name
    n_seeds: int = 3  # seed, seed + 1, ... in every part
    seed: int = 0  # the first seed
    workers: int = 2  # processes, one thread each
    max_train: int | None = None  # use about so many training sequences in part (d), class by class; None: all
    fast: bool = False  # tiny sizes that show that everything runs, and nothing else
    results: Path = Path("results")  # where the run folders go

    def __post_init__(self) -> None:
        count(self.n_seeds, "n_seeds")
        count(self.workers, "workers")
        if self.data is None and self.dataset not in (None, "digits"):
            raise ValueError(f"dataset {self.dataset!r} needs a folder: give --data")

    @property
    def name(self) -> str:
        """Name of the data set of the last part."""
        return named(self.dataset, self.data)


def main(config: Config) -> Path:
    """Run all parts and return the run folder. Bad data is found before anything is computed."""
    started = time.perf_counter()
    smoke = " (smoke test: the numbers mean nothing)" if config.fast else ""
    print(f"kernelgas demo, last part on {config.name!r}{smoke}\n", flush=True)
    if config.data is not None:
        load(config.name, config.data, max_train=config.max_train)
    folder = report.new_folder("demo", config.results)
    settings, sections = {"demo": asdict(config)}, []
    for part, dataset in _parts(config, started):
        settings[part] = json.loads(dataset.attrs["config"])
        sections.append(_finish(part, dataset, folder, started))
    sections.sort(key=lambda section: section.title)
    page = folder / "index.html"
    page.write_text(report.page(TITLE, LEAD, sections, folder, config=settings, commands=_commands(config)), encoding="utf-8")
    print(f"all of it, with pictures: {page}   ({time.perf_counter() - started:.0f} s)")
    return folder


def _parts(config: Config, started: float) -> Iterator[tuple[str, xr.Dataset]]:
    """(experiment, its Dataset) as each is done: the gas in this process, beside one worker so that it is soon there, then all others."""
    with _pool(config.workers) as pool:
        first, *rest = _jobs(config)
        jobs = {pool.submit(_work, *first): first[0]}
        yield "gas", _work("gas", _gas(config))
        jobs |= {pool.submit(_work, *job): job[0] for job in rest}
        yield from _collected(jobs, started)


def _commands(config: Config) -> list[str]:
    """What was typed, defaults left out."""
    given = {name: value for name, value in asdict(config).items() if value != getattr(Config, name)}
    options = [f" --{name.replace('_', '-')}" + ("" if value is True else f" {value}") for name, value in given.items()]
    return [f"kernelgas demo{''.join(options)}", "kernelgas run NAME --help"]


# ---- jobs --------------------------------------------------------------------------------------------------------------------------------

Job = tuple[str, dict[str, Any]]  # the name of an experiment and options of its Config


def _gas(config: Config) -> dict[str, Any]:
    small = {"n_particles": 16, "n_steps": 600, "n_chains": 4} if config.fast else {}
    return {"seed": config.seed, **small}


def _jobs(config: Config) -> list[Job]:
    """One job for each task of (b) and (c), one for each seed of (d), and the film, in an order that ends workers together.

    Options only, no Config: torch is loaded by the workers.
    """
    seeds = {"n_seeds": config.n_seeds, "seed": config.seed}
    kernel: dict[str, Any] = {"n": 200, "n_test": 200, "n_particles": 8, "n_steps": 8, "n_show": 40} if config.fast else {}
    match = {"n_sequences": 16, "n_test": 16, "n_steps": 20, "n_align": 10} if config.fast else {}
    classify = {"n_epochs": 2, "max_train": 60, "n_align": 5, "dim": 16, "heads": 2, "n_features": 8, "ff": 16} if config.fast else {}
    folder = None if config.data is None else str(config.data)
    data: dict[str, Any] = {"data": config.name, "folder": folder, "max_train": config.max_train}
    film = {"n": 200, "n_particles": 16, "n_steps": 8} if config.fast else {}
    learned = [("kernel_learning", {"tasks": (task,), **seeds, **kernel}) for task in ("ring3", "xor2")]
    matched = [("matching", {"tasks": (task,), **seeds, **match}) for task in ("phase", "ring3")]
    classified = [("classify", {**data, "n_seeds": 1, "seed": config.seed + k, **classify}) for k in range(config.n_seeds)]
    return [*learned, ("film", {"seed": config.seed, **film}), classified[0], *matched, *classified[1:]]


def _work(name: str, options: dict[str, Any]) -> xr.Dataset:
    """Run one experiment; in a worker process."""
    module = importlib.import_module(f"experiments.{name}")
    return module.run(module.Config(**options))


@contextlib.contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Spawned workers (never forked: numba and torch have threads) with one thread each; pending jobs are dropped on an error."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ |= dict.fromkeys(ONE_THREAD, "1")
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
        for name, value in before.items():
            os.environ.pop(name)
            os.environ |= {} if value is None else {name: value}


def _collected(jobs: dict[Future, str], started: float) -> Iterator[tuple[str, xr.Dataset]]:
    """(experiment, its whole Dataset) as soon as its last job is done, with a line of progress for every job."""
    results: dict[Future, xr.Dataset] = {}
    for number, future in enumerate(as_completed(jobs), start=1):
        name, results[future] = jobs[future], future.result()
        print(f"[{time.perf_counter() - started:3.0f} s] {name}: job {number} of {len(jobs)} done", file=sys.stderr, flush=True)
        parts = [results.get(job) for job, owner in jobs.items() if owner == name]
        if all(part is not None for part in parts):
            yield name, join(parts)  # type: ignore[arg-type]


def join(parts: Sequence[xr.Dataset]) -> xr.Dataset:
    """Put the jobs of one experiment together along ``task`` or, where there is none, ``seed``."""
    if len(parts) == 1:
        return parts[0]
    dim = "task" if "task" in parts[0].dims else "seed"
    whole = xr.concat(parts, dim, data_vars="minimal", coords="minimal", compat="override", join="outer")
    whole.attrs = parts[0].attrs | {"config": json.dumps([json.loads(part.attrs["config"]) for part in parts])}
    return whole


def _finish(name: str, dataset: xr.Dataset, folder: Path, started: float) -> Section:
    """Store, draw and print one part."""
    report.store(dataset, folder / f"{name}.zarr")
    part = section(name, dataset)
    draw(name, dataset, folder)
    print(f"{part}\n[{time.perf_counter() - started:.0f} s]\n", flush=True)
    return part
