"""Units of sentence classification with known truths, made without training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from experiments import metrics, sentence_classification
from experiments.sentence_rows import PARTS
from experiments.units import gather, record

SIZES = {"sst2": 1821, "qqp": 2311, "rotten_tomatoes": 1066}
N_SEEDS = 5


def planted(
    accuracies: Mapping[str, float] | None = None,
    *,
    rows: Iterable[str] = tuple(PARTS["main"]),
    tasks: Iterable[str] = tuple(SIZES),
    n_seeds: int = N_SEEDS,
    left_out: Iterable[tuple[str, str, int]] = (),
) -> xr.Dataset:
    """Rows whose expected accuracy is .75 or what `accuracies` says; examples have difficulties that all rows share."""
    planned = [{"task": task, "row": row, "seed": seed} for seed in range(n_seeds) for task in tasks for row in rows]
    kept = [unit for unit in planned if tuple(unit.values()) not in set(left_out)]
    records = [record(unit, _scores(unit, (accuracies or {}).get(unit["row"], 0.75)), 1.0) for unit in kept]
    return gather(sentence_classification, records, planned)


def _scores(unit: Mapping[str, Any], accuracy: float) -> dict[str, Any]:
    n = SIZES[unit["task"]]
    rng = np.random.default_rng([n, unit["seed"], sum(map(ord, unit["row"]))])
    difficulty = np.random.default_rng(n).random(n)
    right = (difficulty + rng.random(n)) / 2 <= 1 - np.sqrt((1 - accuracy) / 2)  # a mean of two uniform numbers; accuracy >= 1/2
    labels, top = rng.integers(0, 2, n), np.clip(rng.normal(0.8, 0.1, n), 0.51, 0.99)
    of_label = np.where(right, top, 1 - top)
    p = np.where(labels[:, None] == np.arange(2), of_label[:, None], 1 - of_label[:, None])
    learned = unit["row"].startswith("K-")
    aligned = dict(zip(("alignment_before", "alignment_after", "holdout_before", "holdout_after"), (0.02, 0.12, 0.02, 0.09), strict=True))
    return {
        **metrics.scores(p, labels),
        **{name: value if learned else float("nan") for name, value in aligned.items()},
        "temperature": 1.2, "log_loss_tempered": 0.5, "brier_tempered": 0.17, "calibration_error_tempered": 0.02,
        "training_seconds": 40.0 + 5 * learned, "align_seconds": 5.0 * learned, "cpu_seconds": 40.0, "inference_seconds": 1.0,
        "train_loss": [0.6, 0.5, 0.4], "validation_loss": [0.6, 0.5, 0.5], "validation_accuracy": [0.6, 0.7, 0.7],
        "correct": right, "reliability": metrics.reliability_table(p, labels), "data": "planted", "data_sha256": f"{n}",
    }  # fmt: skip
