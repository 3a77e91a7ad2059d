"""Tokenisers of running text: words, WordPiece, characters and bytes, learnt from the training part only.

Number 0 is not used (padding elsewhere) and 1 is an unknown token; the most frequent tokens have the smallest numbers, as adaptive inputs
want it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np

from experiments.data.dataset import UNKNOWN
from experiments.data.tokenisers import FIRST_BYTE, WORDPIECES, frequent, trained_pieces
from particles.arrays import count

STREAM_TOKENISERS = ("words", "wordpiece", "characters", "bytes")
END, MISSING = "<eos>", "<unk>"  # words of WikiText: the end of a line, a word that was rare
Numbers = Callable[[str], np.ndarray]  # a text -> int64 (time,)


def learned(kind: str, text: str, *, spaced: bool, vocab_size: int | None, min_count: int | None) -> tuple[int, Numbers]:
    """The vocabulary's size and what turns a text into numbers; ValueError on a setting that the kind doesn't have."""
    if kind == "bytes":
        for name, value in (("vocab_size", vocab_size), ("min_count", min_count)):
            if value is not None:
                raise ValueError(f"{name} has no meaning for bytes, got {value!r}")
        return 256 + FIRST_BYTE, lambda text: np.frombuffer(text.encode(), np.uint8).astype(np.int64) + FIRST_BYTE
    size = None if vocab_size is None else count(vocab_size, "vocab_size", least=3)
    least = (2 if kind == "words" else 1) if min_count is None else count(min_count, "min_count")
    if kind == "wordpiece":
        return _pieces(text, size or WORDPIECES, least)
    if kind == "characters":
        return _characters(text, size, least)
    return _words(text, size, least, spaced)


def split_words(text: str, spaced: bool) -> list[list[str]]:
    """The words of each line and its end."""
    lines = text.removesuffix("\n").split("\n")
    return [[*(line.split() if spaced else re.findall(r"[\w']+|[^\w\s]", line)), END] for line in lines]


def _words(text: str, size: int | None, least: int, spaced: bool) -> tuple[int, Numbers]:
    """Numbers of whole words; <unk> of the text is the unknown token."""
    counts = Counter(chain.from_iterable(split_words(text, spaced)))
    counts.pop(MISSING, None)
    kept = frequent(counts, least, None if size is None else size - 2)
    vocabulary = {word: number for number, word in enumerate(kept, start=2)}

    def numbers(text: str) -> np.ndarray:
        return np.fromiter((vocabulary.get(word, UNKNOWN) for line in split_words(text, spaced) for word in line), np.int64)

    return len(vocabulary) + 2, numbers


def _characters(text: str, size: int | None, least: int) -> tuple[int, Numbers]:
    """Numbers of characters."""
    kept = frequent(Counter(text), least, None if size is None else size - 2)
    table = np.full(0x110000, UNKNOWN, np.int64)
    table[[ord(character) for character in kept]] = np.arange(2, len(kept) + 2)
    return len(kept) + 2, lambda text: table[np.frombuffer(text.encode("utf-32-le"), np.uint32)]


def _pieces(text: str, size: int, least: int) -> tuple[int, Numbers]:
    """Numbers of pieces of lower-cased words, with a separator at the end of a line."""
    library = trained_pieces(_lines(text), size, least)
    end = library.token_to_id("[SEP]")

    def numbers(text: str) -> np.ndarray:
        coded = library.encode_batch(_lines(text), add_special_tokens=False)
        return np.fromiter(chain.from_iterable([*line.ids, end] for line in coded), np.int64)

    return library.get_vocab_size(), numbers


def _lines(text: str) -> Sequence[str]:
    return text.removesuffix("\n").split("\n")
