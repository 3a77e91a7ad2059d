"""What experiments with the rows of `linear_rows` share before and around a training: their Configs, units, learning rates and rehearsals.

The learning rate is chosen for each family of rows from the same `rates`, on the seed `tuning_seed`, which is in no table.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from experiments.linear_rows import FAMILIES, ROWS, Row
from experiments.settings import chosen, epochs_after
from particles.arrays import count, positive

if TYPE_CHECKING:
    import xarray as xr
    from torch import Tensor

    from attention.model import Transformer
    from experiments.training import Recipe
    from experiments.units import Unit

PARTS = ("main", "rates")
SPEED = 6e9  # operations a second of one core in small models, as measured


def check(config: Any, tasks: Iterable[str], rows: Iterable[str], parts: Iterable[str] = PARTS) -> None:
    """ValueError unless the fields that Configs of these rows share are right; `tasks`, `rows` and `parts` are all that there are."""
    chosen(config.parts, tuple(parts), "parts")
    chosen(config.rows, tuple(rows), "rows")
    for name in ("n_seeds", "n_align"):
        count(getattr(config, name), name)
    for name in ("seed", "tuning_seed", "n_warm"):
        count(getattr(config, name), name, least=0)
    for name in ("n_train", "n_epochs"):
        if getattr(config, name) is not None:
            count(getattr(config, name), name)
    if config.n_epochs is not None:
        epochs_after(config.n_warm, config.n_epochs)
    if config.lr is not None:
        positive(config.lr, "lr")
    positive(config.omega_lr, "omega_lr")
    _check_rates(config.lrs, config.rates, tasks)


def _check_rates(lrs: Mapping[str, float], rates: Sequence[float], tasks: Iterable[str]) -> None:
    """ValueError unless `lrs` has positive rates by TASK/FAMILY and `rates` are positive, two at least."""
    known = {f"{task}/{family}" for task in tasks for family in FAMILIES}
    if strange := sorted(set(lrs) - known):
        raise ValueError(f"lrs must be given by TASK/FAMILY, such as text/softmax, got {strange[0]!r}")
    if len(set(rates)) < 2:
        raise ValueError(f"rates must be two different ones at least, got {rates!r}")
    for value in (*lrs.values(), *rates):
        positive(value, "lrs and rates")


def units_of(config: Any) -> Iterator[Unit]:
    """The units of a Config with parts: each family's learning rates on the tuning seed, then every row of every task, seed by seed."""
    if "rates" in config.parts:
        for task in config.tasks:
            for family in dict.fromkeys(ROWS[row].family for row in config.rows):
                yield from ({"task": task, "row": f"{FAMILIES[family]}, lr {lr:g}", "seed": config.tuning_seed} for lr in config.rates)
    if "main" in config.parts:
        for seed in range(config.seed, config.seed + config.n_seeds):
            yield from ({"task": task, "row": row, "seed": seed} for task in config.tasks for row in config.rows)


def row_and_rate(unit: Unit, lrs: Mapping[str, float], default: float) -> tuple[Row, float]:
    """The row of a unit, and its learning rate: the one in its name, else its family's, else the default."""
    name, _, rate = unit["row"].partition(", lr ")
    return ROWS[name], float(rate) if rate else lrs.get(f"{unit['task']}/{ROWS[name].family}", default)


def best_rates(ds: xr.Dataset, score: str) -> dict[str, float]:
    """Of a Dataset over (task, row, seed) with learning rates in the names of rows: {TASK/FAMILY: the rate with the largest `score`}."""
    found: dict[str, tuple[float, float]] = {}
    for task in ds["task"].values:
        for name in ds["row"].values:
            row, _, rate = str(name).partition(", lr ")
            if not rate:
                continue
            value, key = float(ds[score].sel(task=task, row=name).mean("seed")), f"{task}/{ROWS[row].family}"
            if value > found.get(key, (-math.inf, 0.0))[0]:
                found[key] = value, float(rate)
    return {key: rate for key, (_, rate) in found.items()}


def recipe(config: Any, size: Any, row: Row, lr: float, **more: Any) -> Recipe:
    """The `training.Recipe` of a row; `size` is the task's, `more` what only one experiment sets."""
    from experiments.training import Recipe

    given = {"n_epochs": config.n_epochs or size.n_epochs, "n_warm": config.n_warm, "n_align": config.n_align}
    return Recipe(lr=lr, omega_lr=row.speed * config.omega_lr, batch_size=size.batch_size, **given, **more)


def checkpoint(config: Any, unit: Unit) -> str:
    """How the names of a unit's checkpoint files start; "" without a folder."""
    row = zlib.crc32(unit["row"].encode())
    return f"{config.checkpoints}/{unit['task']}-{row:08x}-{unit['seed']}" if config.checkpoints else ""


def rehearsed(task: str, model: Transformer, loss: Callable[[], Tensor], size: Any, n_steps: int, length: int) -> str:
    """Two steps with the `loss` of one sequence, in words: seconds of the second, and what `n_steps` of the size's batches would take."""
    import time

    import torch

    optimiser = torch.optim.AdamW(model.parameters(), lr=size.lr)
    for _ in range(2):
        start = time.perf_counter()
        loss().backward()
        optimiser.step()
        optimiser.zero_grad()
        seconds = time.perf_counter() - start
    n, days = sum(p.numel() for p in model.parameters()) / 1e6, n_steps * size.batch_size * seconds / 86400
    words = f"{seconds:.1f} s for a sequence of {length:,} tokens, {n_steps:,} steps of {size.batch_size}, {days:,.0f} days here"
    return f"{task}: {n:.2f} M parameters, {words}"
