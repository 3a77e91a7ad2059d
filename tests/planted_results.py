"""Results with a known truth, as `experiments.units.gather` would return them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr


def classified(
    accuracies: Mapping[str, Mapping[str, float]],
    *,
    n_seeds: int = 5,
    n_examples: int = 400,
    seed_deviation: float = 0.01,
    log_loss: Mapping[str, float] | None = None,
    rng: int | np.random.Generator = 0,
) -> xr.Dataset:
    """Rows (task, row, seed) whose true accuracies are {task: {row: share}}; some examples are hard for every row and seed."""
    rng = np.random.default_rng(rng)
    rows = list(dict.fromkeys(row for table in accuracies.values() for row in table))
    coords: dict[str, Sequence[Any]] = {"task": list(accuracies), "row": rows, "seed": list(range(n_seeds))}
    correct = np.full((len(accuracies), len(rows), n_seeds, n_examples), np.nan, np.float32)
    for (k, task), (j, row) in itertools.product(enumerate(accuracies), enumerate(rows)):
        if row not in accuracies[task]:
            continue
        hard = np.random.default_rng([k, 7]).uniform(-0.2, 0.2, n_examples)
        chance = accuracies[task][row] + hard - hard.mean() + seed_deviation * rng.standard_normal((n_seeds, 1))
        correct[k, j] = rng.random((n_seeds, n_examples)) < chance
    dims = tuple(coords)
    ds = xr.Dataset({"correct": ((*dims, "example"), correct)}, coords=coords)
    ds["accuracy"] = ds["correct"].mean("example").astype(float)
    for name, factor in (("log_loss", 1.0), ("brier", 0.3), ("seconds", 10.0)):
        level = xr.DataArray([(log_loss or {}).get(row, 0.5) for row in rows], dims="row", coords={"row": rows})
        ds[name] = factor * level + 0.002 * xr.zeros_like(ds.accuracy).copy(data=rng.standard_normal(ds.accuracy.shape))
        ds[name] = ds[name].where(ds.accuracy.notnull())
    return with_attrs(ds, "sentence_classification")


def with_attrs(ds: xr.Dataset, name: str) -> xr.Dataset:
    """The attributes that results have."""
    made = [{"date": "2026-01-02", "processor": "a processor", "cores": "2", "python": "3.12", "commit": "abc"}]
    n = int(ds["accuracy"].notnull().sum()) if "accuracy" in ds else 1
    return ds.assign_attrs(experiment=name, schema=2, planned=n, finished=n, facts=json.dumps({}), made=json.dumps(made))
