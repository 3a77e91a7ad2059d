"""Labelled sequences in three parts, and batches of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

PAD, UNKNOWN = 0, 1


@dataclass(frozen=True)
class Batches:
    """Re-iterable batches of one part: dicts of torch tensors tokens, key_mask, labels; shuffled anew on every pass if ``rng`` is given."""

    split: Split
    batch_size: int
    rng: np.random.Generator | None = None

    def __len__(self) -> int:
        return -(-len(self.split) // self.batch_size)

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        import torch

        order = np.arange(len(self.split)) if self.rng is None else self.rng.permutation(len(self.split))
        for rows in np.split(order, np.arange(self.batch_size, len(order), self.batch_size)):
            part = self.split.take(rows)
            yield {name: torch.from_numpy(getattr(part, name)) for name in ("tokens", "key_mask", "labels")}


@dataclass(frozen=True)
class Split:
    """One part of a data set.

    tokens (row, time) int64 or (row, time, input_dim) float32; key_mask (row, time) bool, True = a real token; labels (row,) int64.
    """

    tokens: np.ndarray
    key_mask: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: np.ndarray) -> Split:
        """The given rows, copied."""
        return Split(self.tokens[rows], self.key_mask[rows], self.labels[rows])

    def batches(self, batch_size: int, rng: int | np.random.Generator | None = None) -> Batches:
        """Batches of at most ``batch_size`` rows; ValueError unless it is a positive integer."""
        if isinstance(batch_size, bool) or not isinstance(batch_size, (int, np.integer)) or batch_size < 1:
            raise ValueError(f"batch_size must be a positive integer, got {batch_size!r}")
        return Batches(self, int(batch_size), None if rng is None else np.random.default_rng(rng))


@dataclass(frozen=True)
class Dataset:
    """Three parts of labelled sequences, where they came from, and the SHA-256 of the content that was read."""

    name: str
    train: Split
    validation: Split
    test: Split
    vocab_size: int | None
    input_dim: int | None
    n_classes: int
    max_length: int
    source: str
    sha256: str

    def __repr__(self) -> str:
        sizes = f"{len(self.train)}/{len(self.validation)}/{len(self.test)}"
        return f"Dataset({self.name!r}, {sizes} rows, {self.n_classes} classes, {self.max_length} tokens, {self.source})"
