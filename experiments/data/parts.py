"""Parts of a data set before they become tokens: rows drawn class by class, fewer rows, checks of the classes, hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.data.files import WANTED

PARTS = ("train", "validation", "test")


class Part(NamedTuple):
    """Rows of one part: a list of tuples of one or two texts, or an array of images (row, height, width); and their labels."""

    items: Any
    labels: Any

    def take(self, rows: np.ndarray) -> Part:
        """The given rows."""

        def chosen(values: Any) -> Any:
            return values[rows] if isinstance(values, np.ndarray) else [values[row] for row in rows]

        return Part(chosen(self.items), chosen(self.labels))


class Content(NamedTuple):
    """What was read: train, validation and test, what it was read from, and the SHA-256 of that; ``scores``: labels are numbers."""

    name: str
    parts: dict[str, Part]
    source: str
    sha256: str
    scores: bool = False


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


def cut(part: Part, shares: tuple[float, float], seed: int, *, scores: bool = False) -> dict[str, Part]:
    """``partition`` of the rows themselves; scores are one class."""
    rows = partition(np.zeros(len(part.labels)) if scores else part.labels, shares, seed)
    return {name: part.take(index) for name, index in rows.items()}


def shorten(content: Content, limits: Mapping[str, int | None], seed: int) -> Content:
    """Keep about so many rows of each part, class by class; ValueError names the limit that is below the number of classes."""
    n_classes = 1 if content.scores else len(set(content.parts["train"].labels))
    parts = dict(content.parts)
    for name, limit in limits.items():
        if limit is not None and limit < n_classes:
            raise ValueError(f"max_{name} must be at least the number of classes, {n_classes}, got {limit}")
        if limit is not None and limit < len(parts[name].labels):
            share = limit / len(parts[name].labels)
            parts[name] = cut(parts[name], (share, 0.0), seed, scores=content.scores)["test"]
    return content._replace(parts=parts)


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
    """SHA-256 of the files' names and bytes."""
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def hash_arrays(*arrays: np.ndarray) -> str:
    """SHA-256 of the arrays' shapes and bytes."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.shape}{array.dtype.str}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
