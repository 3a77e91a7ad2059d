"""Parts of a data set: rows drawn class by class, fewer rows, checks of the classes, and the hash of the files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.data.dataset import Dataset
from experiments.data.files import WANTED


def partition(labels: Any, shares: tuple[float, float], seed: int) -> dict[str, np.ndarray]:
    """Sorted row numbers of train, validation and test, class by class; ``shares`` = those of test and validation."""
    rng, labels = np.random.default_rng(seed), np.asarray(labels)
    parts: dict[str, list[np.ndarray]] = {"train": [], "validation": [], "test": []}
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        n_test, n_validation = (round(share * len(rows)) for share in shares)
        for part, piece in zip(("test", "validation", "train"), np.split(rows, [n_test, n_test + n_validation])):
            parts[part].append(piece)
    return {part: np.sort(np.concatenate(pieces)) for part, pieces in parts.items()}


def shorten(data: Dataset, max_train: int, seed: int) -> Dataset:
    """Keep about ``max_train`` training rows, class by class."""
    if max_train < data.n_classes:
        raise ValueError(f"max_train must be at least the number of classes, {data.n_classes}, got {max_train}")
    if max_train >= len(data.train):
        return data
    rows = partition(data.train.labels, (max_train / len(data.train), 0.0), seed)["test"]
    return Dataset(**{**vars(data), "train": data.train.take(rows)})


def check_classes(name: str, labels: Mapping[str, Sequence]) -> int:
    """The number of classes; ValueError for an empty part, a single class, or a class that the training part doesn't have."""
    known = set(labels["train"])
    empty = [part for part, values in labels.items() if not len(values)]
    if empty:
        raise ValueError(f"{name!r} has no rows in {empty}; {WANTED}")
    if len(known) < 2:
        raise ValueError(f"{name!r} has a single class, {sorted(known)}; a classifier needs two")
    for part, values in labels.items():
        strange = sorted(set(values) - known, key=str)
        if strange:
            raise ValueError(f"{name!r}: the {part} part has labels {strange[:5]} that the training part does not have")
    return len(known)


def hash_files(files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
