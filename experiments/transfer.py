"""Kernels in a pretrained encoder on GLUE tasks: what is left of a fine-tuned teacher, and kernels that move to another task.

Teacher: the encoder with a head (`experiments.glue`), fine-tuned on the task. A unit is a student with kernels in all its layers:

| source      | start of the student                      | kernels                                          | trained on labels      |
|-------------|-------------------------------------------|--------------------------------------------------|------------------------|
| own         | the fine-tuned teacher                    | learned from it on the task's own sentences      | everything             |
| own, frozen | the pretrained encoder, head fitted to it | the same, from the task's own fine-tuned teacher | everything but kernels |
| a task      | the pretrained encoder, head fitted to it | learned on that task from its fine-tuned teacher | everything but kernels |
| none        | the pretrained encoder, head fitted to it | random features as drawn                         | everything but kernels |

Kernels learn attention rows, layer by layer, without labels (`attention.distil`, "rows"). Those that nothing was fitted in (uniform,
favor raw, proposal) stay as they are in the training on labels too. The teacher of the source "own" is trained on as long as its students
are; the score before that, `score_before`, is the reference of the students that start from the encoder as pretrained: trainings that
are compared have the same rows in the same order, the same number of steps and the same rates.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import xarray as xr

from attention.activations import collect
from attention.conversion import conversion_report
from attention.huggingface import attach
from attention.seeds import derived_seed
from experiments import conversion, glue, sweep, transfer_tables
from experiments import transfer_students as students
from experiments.report import Section
from experiments.settings import chosen
from experiments.transfer_students import ROWS
from experiments.transfer_tables import FROZEN, NONE, OWN, RANDOM
from particles.arrays import count, flag, positive

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "transfer"
DIMS = ("task", "source", "row", "seed")
EXTENT = ("part", "tasks", "sources", "targets", "rows", "n_seeds", "seed", "data")
ARRAYS = {"squared_error": ("scored",)}  # not example: a task of scores may have fewer test rows
PARTS = ("both", "recovery", "transfer")
MOVED = ("hedgehog", "flexformer-nonstationary", "particles")  # to other tasks
TOKENS = {"rte": 62, "mrpc": 53, "cola": 13, "sst2": 25, "qqp": 31, "stsb": 30, "mnli": 40, "qnli": 50}  # of a row, for estimates
WEIGHTS = {"": 1.06e7}  # of the layers of a teacher, for estimates
LARGE = 8.5e7  # of a teacher that is not in WEIGHTS
OPERATIONS = 4.5e10  # a second, on one core


@dataclass(frozen=True)
class Config:
    """What `run` does; every option with its checks."""

    part: str = "both"  # recovery: kernels of each task on that task; transfer: kernels of the sources on the targets; or both
    tasks: tuple[str, ...] = ("mrpc", "sst2", "qqp", "stsb")  # of the recovery: some of rte, mrpc, cola, ..., mnli, qnli
    sources: tuple[str, ...] = ("stsb", "qqp")  # tasks that kernels are learned on, to be moved
    targets: tuple[str, ...] = ("mrpc", "sst2", "qqp", "stsb")  # tasks that they are moved to
    rows: tuple[str, ...] = tuple(ROWS)  # names of students; the teacher is always measured
    n_seeds: int = 3  # seed, seed + 1, ...: training rows, their order, particles; test rows stay the same
    seed: int = 0  # the first seed
    data: str = ""  # folder of the tasks; by default the one that KERNELGAS_DATA names
    teacher: str = ""  # folder or hub name of a BERT-like encoder; by default the installed package's MiniLM, else the hub's
    max_train: int | None = 400  # use about so many training rows, class by class; None: all
    max_test: int | None = 300  # and so many rows to score on
    scored: str = "test"  # part of the task that is scored: test, or validation, to choose the other settings by
    max_length: int = 40  # tokens of a sentence that are read
    n_features: int = 64  # of each head
    n_fit: int = 256  # sentences of the training rows that kernels are learned from
    n_fit_steps: int = 100  # of each layer
    n_epochs: int = 1  # of each training on labels
    batch_size: int = 16  # rows of one of its steps
    lr: float = 5e-5  # of the encoder's weights
    head_lr: float = 1e-4  # of the head
    kernel_lr: float = 1e-3  # of kernels that are trained on labels
    smoke: bool = False  # a tiny untrained teacher and random words instead: seconds, and no meaning

    def __post_init__(self) -> None:
        chosen((self.part,), PARTS, "part")
        chosen((self.scored,), ("test", "validation"), "scored")
        for name in ("tasks", "sources", "targets"):
            chosen(getattr(self, name), glue.TASKS, name)
        chosen(self.rows, ROWS, "rows")
        for name in ("n_seeds", "n_features", "n_fit", "n_fit_steps", "n_epochs", "batch_size"):
            count(getattr(self, name), name)
        for name in ("max_train", "max_test"):
            if getattr(self, name) is not None:
                count(getattr(self, name), name, least=4)
        count(self.max_length, "max_length", least=4)
        count(self.seed, "seed", least=0)
        for name in ("lr", "head_lr", "kernel_lr"):
            positive(getattr(self, name), name)
        flag(self.smoke, "smoke")


_TINY: dict[str, Any] = {"max_train": 32, "max_test": 24, "n_features": 8, "n_fit": 32, "n_fit_steps": 3}
PRESETS = {
    "smoke": Config(
        tasks=("cola", "qqp", "stsb"), sources=("stsb",), targets=("cola", "stsb"), n_seeds=1, smoke=True,
        rows=("teacher", "uniform", "favor raw", "hedgehog", "particles"), **_TINY,
    ),
    "cpu": Config(),
    "paper": Config(
        tasks=glue.TASKS, sources=("stsb", "qqp", "mnli", "qnli"), targets=glue.TASKS, teacher="FacebookAI/roberta-base", max_train=None,
        max_test=None, max_length=128, n_fit=2048, n_fit_steps=300, n_epochs=3, lr=2e-5,
    ),
}  # fmt: skip
REDUCED = {
    "smoke": "an untrained teacher of two layers, random words",
    "cpu": "all-MiniLM-L6-v2 (22.7M parameters) instead of RoBERTa (125M), about 400 training rows of 3,668 to 364,000, one epoch of 3, "
    "about 300 test rows, 40 tokens of a sentence, each sentence encoded by itself; 2 sources of 4; no MNLI, QNLI and RTE, and no CoLA, "
    "where this teacher is at chance after 1,000 rows",
}


def units(config: Config) -> Iterator[dict[str, Any]]:
    """Students of one seed together; those that share a teacher or a kernel follow each other."""
    for seed in range(config.seed, config.seed + config.n_seeds):
        for task, source, row in _recovery(config) + _transfer(config):
            yield {"task": task, "source": source, "row": row, "seed": seed}


def _recovery(config: Config) -> list[tuple[str, str, str]]:
    rows = ("teacher", *(row for row in config.rows if row != "teacher"))
    return [] if config.part == "transfer" else [(task, OWN, row) for task in config.tasks for row in rows]


def _transfer(config: Config) -> list[tuple[str, str, str]]:
    """Every kernel on every target. The kernel of the target itself is the source `FROZEN`."""
    if config.part == "recovery":
        return []
    moved = [row for row in MOVED if row in config.rows]
    found = [(target, NONE, RANDOM) for target in config.targets if RANDOM in config.rows]
    found += [(target, FROZEN, row) for target in config.targets for row in moved]
    return found + [(target, source, row) for source in config.sources for row in moved for target in config.targets if target != source]


def measure(config: Config, unit: dict[str, Any]) -> dict[str, Any]:
    """Make one student, train it, score it.

    Returns
    -------
    dict of the scores of `glue.scored` on the test rows; score_before, of the source "own" before the training on labels; divergence
    [nat] of the kernels' attention rows from softmax on test sentences before it; data and data_sha256, where the data come from.
    """
    task, source, name, seed = (unit[dim] for dim in DIMS)
    given, row = students.start(config, task, seed), ROWS[name]
    model = copy.deepcopy(students.taught(config, task, seed) if source == OWN else given.model)
    facts = {"data": given.task.source, "data_sha256": given.task.sha256}
    divergence = {}
    if row is not None:
        layers = students.kernels(config, task if source in (OWN, FROZEN, NONE) else source, name, seed)
        report = conversion_report(layers, collect(model.encoder, given.held_out))
        divergence["divergence"] = float(report.kl.mean())
        attach(model.encoder, {number: kernel.requires_grad_(source == OWN and row.fitted) for number, kernel in layers.items()})  # type: ignore[arg-type]
    before = {"score_before": students.scored(model, given)["score"]} if source == OWN else {}
    students.trained(config, model, given, derived_seed(seed, int(source == OWN)))  # the teacher's own training has 0
    return {**students.scored(model, given), **before, **divergence, **facts}


def arrange(ds: xr.Dataset, chosen: Mapping[str, Any]) -> xr.Dataset:
    """Shares of the teacher: of the one that was trained on as long."""
    if "teacher" not in ds.row or OWN not in ds.source:
        return ds
    teacher = ds.sel(row="teacher", source=OWN, drop=True)
    reference = xr.where(ds.source == OWN, teacher.score, teacher.score_before)
    return ds.assign(share=(ds.score / reference).transpose(*ds.score.dims))


def prepare(config: Config) -> None:
    """FileNotFoundError or ValueError if teacher or tasks are not there."""
    if config.smoke:
        return
    students.teacher(config)
    for task in dict.fromkeys(unit["task"] for unit in units(config)):
        glue.check(task, config.data)


def run(config: Config, **how: Any) -> xr.Dataset:
    """Make and score every student of `units`.

    Returns
    -------
    Dataset over (task, source, row, seed) of what `measure` returns and share, of the teacher's score; NaN where a unit is missing.
    correct, of classes, has the dimension example, squared_error, of scores, the dimension scored. `how`: see `experiments.sweep.over`.
    """
    return sweep.run(NAME, config, **how)


def estimate(config: Config, unit: dict[str, Any]) -> tuple[float, float]:
    """Rough seconds and bytes of one unit on one core; the teacher and the kernel, which units share, are not counted."""
    weights = WEIGHTS.get(config.teacher, LARGE)
    n_test, tokens = config.max_test or 2_000, min(TOKENS[unit["task"]], 2 * config.max_length)
    operations = tokens * (6 * (config.max_train or 50_000) * config.n_epochs + 2 * 2 * n_test)
    return 2 + operations * weights / OPERATIONS, 1e9 + 24.0 * weights


def rehearse(config: Config, *, n_steps: int = 1) -> str:
    """Training steps of softmax and of kernels at the configured sizes, of random weights on random tokens; seconds, memory, all in all."""
    import resource
    import time

    found, n_epochs, config = {}, config.n_epochs, replace(config, n_epochs=1)
    for name in ("teacher", "hedgehog", "flexformer-nonstationary"):
        given = students.stand_in(config, n_steps)
        model, row = given.model, ROWS[name]
        if row is not None:
            seen = [layer[:1] for layer in collect(model.encoder, given.held_out)]
            attach(model.encoder, conversion.made(conversion.Config(n_features=config.n_features, n_steps=1), row, seen, 0))  # type: ignore[arg-type]
        began = time.perf_counter()
        students.trained(config, model, given, 0)
        found[name] = (time.perf_counter() - began) / n_steps
    planned = list(units(config))
    steps = len(planned) * (config.max_train or 50_000) * n_epochs / config.batch_size
    hours = steps * sum(found.values()) / len(found) / 3600
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    said = ", ".join(f"{name} {seconds:.1f} s a step" for name, seconds in found.items())
    shape = f"{config.batch_size} x {config.max_length}"
    return f"random weights and tokens, {shape}: {said}, {memory:.1f} GiB; all {len(planned)} units would take {hours:.0f} h here"


def section(ds: xr.Dataset) -> Section:
    """Tables and conclusions."""
    return transfer_tables.section(ds)


def figures(ds: xr.Dataset) -> dict[str, Figure]:
    """Pictures by file name."""
    return transfer_tables.figures(ds)
