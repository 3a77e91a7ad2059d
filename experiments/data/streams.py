"""Running text as one long row of token numbers, for language models: in order, in three parts, with a vocabulary of the training part.

A folder holds ``*.txt``, ``*.txt.gz`` or ``*.tokens`` files whose names tell the part (``train.txt``, ``wiki.valid.tokens``), one
paragraph a line; or one such file, which is cut 90/5/5 in order; or tables of reviews (IMDB), which are put one after the other.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.data.files import found
from experiments.data.parts import PARTS
from experiments.data.running_text import TEXT_ENDS, hub_text, read_text
from experiments.data.stream_tokenisers import STREAM_TOKENISERS, learned
from particles.arrays import count, flag

if TYPE_CHECKING:
    import torch

KEPT = 4  # streams that a process keeps for its next `load_stream`
SEEN = -100  # a target that doesn't count, as torch's cross entropy has it


@dataclass(frozen=True)
class Blocks:
    """Re-iterable batches of contiguous blocks: dicts of int64 torch tensors tokens, targets (row, length).

    Targets are the tokens one place later. Blocks don't overlap, and every token but the stream's first is a target once: the last block,
    which ends where the stream does, has -100 where its targets were those of the block before. Shuffled anew on every pass if ``rng`` is
    given, else in order.
    """

    stream: np.ndarray
    length: int
    batch_size: int
    rng: np.random.Generator | None = None

    @property
    def n_blocks(self) -> int:
        """Blocks of one pass."""
        return -(-(len(self.stream) - 1) // self.length)

    def __len__(self) -> int:
        return -(-self.n_blocks // self.batch_size)

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        import torch

        order = np.arange(self.n_blocks) if self.rng is None else self.rng.permutation(self.n_blocks)
        for blocks in np.split(order, np.arange(self.batch_size, len(order), self.batch_size)):
            first = np.minimum(blocks * self.length, len(self.stream) - 1 - self.length)
            places = first[:, None] + np.arange(self.length)
            targets = np.where(places < (blocks * self.length)[:, None], SEEN, self.stream[places + 1])
            yield {"tokens": torch.from_numpy(self.stream[places]), "targets": torch.from_numpy(targets)}


@dataclass(frozen=True)
class Stream:
    """Three parts of running text as token numbers, int64 (time,), read-only; where they came from, and the SHA-256 of what was read.

    ``n_words`` (between spaces, and one for the end of each line) and ``n_bytes`` of each part turn a loss a token into one a word or byte,
    whatever the tokeniser: exp(sum of losses / n_words) is the perplexity of words.
    """

    name: str
    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    vocab_size: int
    tokeniser: str
    n_words: Mapping[str, int]
    n_bytes: Mapping[str, int]
    source: str
    sha256: str

    def __repr__(self) -> str:
        sizes = f"{len(self.train)}/{len(self.validation)}/{len(self.test)}"
        return f"Stream({self.name!r}, {sizes} {self.tokeniser}, vocabulary of {self.vocab_size}, {self.source})"

    def blocks(self, part: str, length: int, batch_size: int, rng: int | np.random.Generator | None = None) -> Blocks:
        """Batches of at most ``batch_size`` blocks of ``length`` tokens of a part; ValueError if the part is shorter than one block."""
        if part not in PARTS:
            raise ValueError(f"part must be one of {list(PARTS)}, got {part!r}")
        stream = getattr(self, part)
        if count(length, "length") >= len(stream):
            raise ValueError(f"length must be below the {len(stream)} tokens of the {part} part, got {length}")
        return Blocks(stream, length, count(batch_size, "batch_size"), None if rng is None else np.random.default_rng(rng))


def load_stream(
    name: str,
    folder: str | Path | None = None,
    *,
    tokeniser: str = "words",
    vocab_size: int | None = None,
    min_count: int | None = None,
    max_train: int | None = None,
    max_validation: int | None = None,
    max_test: int | None = None,
    hub: bool = False,
) -> Stream:
    """Running text of ``folder/name`` (or of ``folder``), or of WikiText on the Hugging Face hub.

    Parameters
    ----------
    name : wikitext-103, wikitext-2, wikitext2_heldout (WikiText-2's valid and test text: whole articles of the first train and validate),
        tinyshakespeare, imdb, or any folder of text files.
    tokeniser : words: between spaces for WikiText, whose text is made for it, else words and single marks, with <eos> at the end of a line;
        wordpiece: lower-cased pieces of words with a mark at the end of a line; characters; bytes.
    vocab_size : tokens at most; None: all words and characters, 8,000 pieces. min_count : what occurs less often in the training part is
        unknown; None: 2 of words, else 1. Neither for bytes, which are 258.
    max_train, max_validation, max_test : characters of a part that are kept, from its start.
    hub : where there is no folder, or no files in it, read WikiText from the hub.

    Raises
    ------
    FileNotFoundError
        Where there is nothing; says which files to place and where they come from.
    ValueError
        Where the files can't be understood, or a setting is out of range.
    """
    limits = {"train": max_train, "validation": max_validation, "test": max_test}
    for part, limit in limits.items():
        if limit is not None:
            count(limit, f"max_{part}", least=2)
    if tokeniser not in STREAM_TOKENISERS:
        raise ValueError(f"tokeniser must be one of {list(STREAM_TOKENISERS)}, got {tokeniser!r}")
    return _load(found(name, folder, flag(hub, "hub"), ends=TEXT_ENDS), name, tokeniser, vocab_size, min_count, tuple(limits.items()))


@functools.lru_cache(maxsize=KEPT)
def _load(
    files: Any, name: str, kind: str, vocab_size: int | None, min_count: int | None, limits: tuple[tuple[str, int | None], ...]
) -> Stream:
    """What `load_stream` returns, once a process."""
    text = hub_text(name) if files is None else read_text(name, [path for path, _, _ in files])
    parts = {part: text.parts[part][:limit] for part, limit in limits}
    size, numbers = learned(kind, parts["train"], spaced=text.spaced, vocab_size=vocab_size, min_count=min_count)
    streams = {part: numbers(parts[part]) for part in PARTS}
    for stream in streams.values():
        stream.flags.writeable = False
    n_words = {part: len(parts[part].split()) + parts[part].count("\n") for part in PARTS}
    n_bytes = {part: len(parts[part].encode()) for part in PARTS}
    return Stream(
        name, **streams, vocab_size=size, tokeniser=kind, n_words=n_words, n_bytes=n_bytes, source=text.source, sha256=text.sha256
    )
