"""Long sequences: Flexformer's table of the Long Range Arena, at the scale of the machine at hand.

Five tasks (`long_range_tasks`) and the rows of `linear_rows`: every baseline of the paper's table that `attention` has, Flexformer under
the recipe that trains and as printed, and kernels learned by particles with their controls. All rows of a task have the same sizes, data,
batches of a seed and epochs. The learning rate is chosen for each family of rows and each task from the same `rates`, by the validation
accuracy of the seed `tuning_seed`, which is in no table; softmax is tuned like the others. Rows of one family share the rate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments import learning_rates, sweep
from experiments.linear_plan import PARTS as PARTS
from experiments.linear_plan import SPEED, check, checkpoint, recipe, row_and_rate, units_of
from experiments.linear_rows import ROWS
from experiments.settings import chosen
from particles.arrays import count, positive

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

    from experiments.report import Section
    from experiments.units import Scores, Unit

NAME = "long_range"
TASKS = ("listops", "text", "retrieval", "image", "pathfinder")
DIMS = ("task", "row", "seed")
EXTENT = ("tasks", "parts", "rows", "n_seeds", "seed", "data", "checkpoints", "tuning_seed", "rates")
ARRAYS = {"train_loss": ("epoch",), "validation_accuracy": ("epoch",), "nonpositive": ("epoch",), "reliability": ("bin", "column")}


@dataclass(frozen=True)
class Config:
    """What is trained."""

    tasks: tuple[str, ...] = TASKS  # some of listops, text, retrieval, image, pathfinder
    parts: tuple[str, ...] = ("main",)  # main: the table; rates: each family's learning rates, on seed tuning_seed
    rows: tuple[str, ...] = tuple(ROWS)  # rows of the table
    n_seeds: int = 3  # seed, seed + 1, ...: weights, particles, batches and noise; the data stay the same
    seed: int = 0  # the first seed
    data: str = ""  # folder with the data sets; listops and pathfinder are generated
    checkpoints: str = ""  # folder for the state of unfinished units; "": none
    size: str = "cpu"  # of models and data: smoke, cpu or paper
    n_train: int | None = None  # training sequences at most; None: the size's
    n_epochs: int | None = None  # passes over them; None: the size's
    n_warm: int = 1  # epochs before Phase A
    lr: float | None = None  # learning rate of AdamW of rows that `lrs` does not name; None: the size's
    lrs: dict[str, float] = field(default_factory=dict)  # learning rates by TASK/FAMILY, as part rates found them
    omega_lr: float = 5e-3  # of particles that learn
    weight_decay: float | None = None  # of matrices; None: the size's
    n_align: int = 50  # Langevin steps of Phase A
    align_sequences: int = 256  # training sequences that Phase A uses at most
    rates: tuple[float, ...] = (0.001, 0.003, 0.01)  # learning rates that part rates compares
    tuning_seed: int = 100  # seed of part rates

    def __post_init__(self) -> None:
        chosen(self.tasks, TASKS, "tasks")
        count(self.align_sequences, "align_sequences")
        if self.weight_decay is not None:
            positive(self.weight_decay, "weight_decay", zero=True)
        check(self, TASKS, ROWS)
        self._check_size()

    def _check_size(self) -> None:
        from experiments import long_range_tasks as tasks

        chosen((self.size,), tasks.SIZES, "size")
        for task in self.tasks:
            tasks.size(self.size, task)


PRESETS = {
    "smoke": Config(
        tasks=("listops", "image"), rows=("softmax", "linear", "flexformer", "softmaxfeat, align, unfreeze"), n_seeds=2, size="smoke",
        n_align=5, align_sequences=48,
    ),
    "cpu": Config(tasks=("listops", "text", "retrieval", "image"), lr=0.003, lrs=learning_rates.LONG_RANGE),
    "paper": Config(size="paper", n_align=100, align_sequences=512),
}  # fmt: skip
REDUCED = {
    "smoke": "tiny models on 100 sequences of at most 30 tokens; images are scikit-learn's digits of 4x4 pixels",
    "cpu": "width 32, 32 features; text: 256 bytes of 4,000, 12,000 reviews, 1 layer of 4; ListOps: 20 to 100 tokens of 500 to 2,000, "
    "depth 5 of 10, 5 arguments of 10, 8,000 of 96,000 sequences, 2 layers of 6; retrieval: pairs of questions (QQP), 40 words, in "
    "place of pairs of papers in bytes, 2 layers of 4; image: 16x16 of 32x32 grey pixels, 6,000 of 45,000 images, 4 epochs of 200; "
    "Pathfinder is left out, as nothing is learnt of it at this size",
}


def units(config: Config) -> Iterator[Unit]:
    """See `linear_plan.units_of`."""
    return units_of(config)


def measure(config: Config, unit: Unit) -> Scores:
    """Train one row on one task with one seed and score it on the test part.

    Returns
    -------
    dict of the scores of `training.test_scores` with `correct`; train_loss [nats], validation_accuracy, nonpositive (share of denominators
    <= 0, NaN for maps that have none) (epoch,); validation_best, the last epoch's accuracy; alignment_before, alignment_after,
    holdout_before, holdout_after, NaN without Phase A; training_seconds, cpu_seconds; lr; n_parameters; chance, the share of the
    commonest class in the test part; data and data_sha256.
    """
    from experiments import long_range_tasks as tasks
    from experiments.training import ALIGNMENTS, test_scores, trained

    size, seed = tasks.size(config.size, unit["task"]), unit["seed"]
    row, lr = row_and_rate(unit, config.lrs, config.lr or size.lr)
    data = tasks.data(size, config.data, n_train=config.n_train)
    decay = size.weight_decay if config.weight_decay is None else config.weight_decay
    how = recipe(config, size, row, lr, align_sequences=config.align_sequences, weight_decay=decay, trim=True, bucket=True)
    model = tasks.model(size, row, seed, data)
    history = trained(model, data, how, seed=seed, particles=row.particles, checkpoint=checkpoint(config, unit))
    scores = test_scores(model, data.test, trim=True, n_passes=1)
    scores |= {name: float(history[name]) for name in (*ALIGNMENTS, "cpu_seconds")}
    scores |= {"train_loss": history.train_loss.values, "validation_accuracy": history.accuracy.values}
    scores |= {"nonpositive": history.nonpositive.values, "validation_last": float(history.accuracy[-1])}
    chance = float(np.bincount(data.test.labels).max() / len(data.test.labels))
    scores |= {"training_seconds": float(history.train_seconds), "lr": lr, "chance": chance}
    return scores | {"n_parameters": sum(p.numel() for p in model.parameters()), "data": data.source, "data_sha256": data.sha256}


def prepare(config: Config) -> None:
    """FileNotFoundError if a data set that is not generated is not there."""
    from experiments import long_range_tasks as tasks

    for task in config.tasks:
        tasks.check(tasks.size(config.size, task), config.data)


def estimate(config: Config, unit: Unit) -> tuple[float, float]:
    """Seconds and bytes of one unit on one core, from sizes alone."""
    from experiments import long_range_tasks as tasks

    size, (row, _) = tasks.size(config.size, unit["task"]), row_and_rate(unit, config.lrs, 1.0)
    seen = 3 * (config.n_epochs or size.n_epochs) * (config.n_train or size.n_train) + size.n_test
    scores = size.typical * size.heads if row.attention == "softmax" else 4 * size.n_features
    memory = 4e8 + 60.0 * size.batch_size * size.typical * size.layers * (size.dim + size.ff + scores)
    return tasks.cost(size, row) * seen / SPEED, memory


def rehearse(config: Config) -> str:
    """One sequence of each task through two steps of Flexformer at the Config's sizes, in words."""
    from experiments import long_range_tasks as tasks

    return "; ".join(tasks.rehearse(config.size, ROWS["flexformer"], task) for task in config.tasks)


def run(config: Config, **how: Any) -> xr.Dataset:
    """Train every row on every task and seed; see `sweep.run` for `how`.

    Returns
    -------
    Dataset over (task, row, seed) of what `measure` returns.
    """
    return sweep.run(NAME, config, **how)


def section(ds: xr.Dataset) -> Section:
    """Tables and verdicts from a Dataset of `run`."""
    from experiments import long_range_tables

    return long_range_tables.section(ds)


def figures(ds: xr.Dataset) -> dict[str, Figure]:
    """Pictures of a Dataset of `run`."""
    from experiments import long_range_tables

    return long_range_tables.figures(ds)
