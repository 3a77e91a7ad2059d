"""Labelled sequences in three parts, and batches of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from particles.arrays import flag

if TYPE_CHECKING:
    import torch

PAD, UNKNOWN = 0, 1
POOL = 50  # batches whose rows are sorted together by length


@dataclass(frozen=True)
class Batches:
    """Re-iterable batches of one part: dicts of torch tensors tokens, key_mask, labels; shuffled anew on every pass if ``rng`` is given.

    ``trim`` cuts each batch to its longest row. ``bucket`` puts rows of similar length together.
    """

    split: Split
    batch_size: int
    rng: np.random.Generator | None = None
    trim: bool = False
    bucket: bool = False

    def __len__(self) -> int:
        return -(-len(self.split) // self.batch_size)

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        import torch

        for rows in self._rows():
            part = self.split.take(rows)
            part = part.trimmed() if self.trim else part
            yield {name: torch.from_numpy(getattr(part, name)) for name in ("tokens", "key_mask", "labels")}

    def _rows(self) -> list[np.ndarray]:
        """Row numbers of each batch."""
        order = np.arange(len(self.split)) if self.rng is None else self.rng.permutation(len(self.split))
        if not self.bucket or self.rng is None:
            return _chunks(order, self.batch_size)
        lengths = self.split.lengths()
        pools = [pool[np.argsort(lengths[pool], kind="stable")] for pool in _chunks(order, POOL * self.batch_size)]
        batches = [rows for pool in pools for rows in _chunks(pool, self.batch_size)]
        return [batches[index] for index in self.rng.permutation(len(batches))]


@dataclass(frozen=True)
class Split:
    """One part of a data set; those of ``load`` are shared and cannot be written to.

    tokens (row, time) int64 or (row, time, input_dim) float32; key_mask (row, time) bool, True = a real token; labels (row,) int64 class
    numbers, or float32 scores where the data set has a single class.
    """

    tokens: np.ndarray
    key_mask: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: np.ndarray) -> Split:
        """The given rows, copied."""
        return Split(self.tokens[rows], self.key_mask[rows], self.labels[rows])

    def lengths(self) -> np.ndarray:
        """Places up to the last real token of each row, at least 1."""
        last = self.key_mask.shape[1] - self.key_mask[:, ::-1].argmax(1)
        return np.where(self.key_mask.any(1), last, 1)

    def trimmed(self) -> Split:
        """The same rows without the places at the end that are padding in all of them."""
        longest = self.lengths().max(initial=1)
        return Split(np.ascontiguousarray(self.tokens[:, :longest]), np.ascontiguousarray(self.key_mask[:, :longest]), self.labels)

    def batches(
        self, batch_size: int, rng: int | np.random.Generator | None = None, *, trim: bool = False, bucket: bool = False
    ) -> Batches:
        """Batches of at most ``batch_size`` rows.

        Parameters
        ----------
        rng : shuffle anew on every pass; None: in the order of the rows.
        trim : cut each batch to its longest row. Padding is masked, so that only rounding changes.
        bucket : sort the shuffled rows by length in pools of 50 batches, then shuffle the batches. Every row still comes once a pass, but
            with other rows than without it: compare training runs only where all have it or none has it.

        Raises
        ------
        ValueError
            Unless ``batch_size`` is a positive integer; for ``bucket`` without ``rng``, whose batches would be out of order.
        """
        if isinstance(batch_size, bool) or not isinstance(batch_size, (int, np.integer)) or batch_size < 1:
            raise ValueError(f"batch_size must be a positive integer, got {batch_size!r}")
        if flag(bucket, "bucket") and rng is None:
            raise ValueError("bucket needs rng: without it batches keep the order of the rows, got bucket=True and rng=None")
        rng = None if rng is None else np.random.default_rng(rng)
        return Batches(self, int(batch_size), rng, flag(trim, "trim"), bucket)


@dataclass(frozen=True)
class Dataset:
    """Three parts of labelled sequences, where they came from, and the SHA-256 of the content that was read or made.

    ``vocab_size`` is None for real inputs of width ``input_dim``, and the other way round. ``n_classes`` is 1 where labels are scores.
    """

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

    def locked(self) -> Dataset:
        """The same, after its arrays were made read-only: several users of one process share them."""
        for split in (self.train, self.validation, self.test):
            for array in (split.tokens, split.key_mask, split.labels):
                array.flags.writeable = False
        return self

    def __repr__(self) -> str:
        sizes = f"{len(self.train)}/{len(self.validation)}/{len(self.test)}"
        return f"Dataset({self.name!r}, {sizes} rows, {self.n_classes} classes, {self.max_length} tokens, {self.source})"


def _chunks(rows: np.ndarray, size: int) -> list[np.ndarray]:
    """Pieces of at most ``size`` rows."""
    return np.split(rows, np.arange(size, len(rows), size))
