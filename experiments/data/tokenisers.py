"""Tokenisers of texts: words, WordPiece and bytes. What they learn, they learn from the training part only.

Number 0 is padding and 1 an unknown token in all of them; a separator stands between the two texts of a pair.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.data.dataset import PAD, UNKNOWN
from particles.arrays import count

TOKENISERS = ("words", "wordpiece", "bytes")
FIRST_BYTE, BYTE_SEPARATOR = 2, 258  # byte b is token b + 2
WORDPIECES = 8_000  # size of a WordPiece vocabulary
NEEDS_TOKENIZERS = "WordPiece needs the library tokenizers: pip install kernelgas[hf]"


@dataclass(frozen=True)
class Tokeniser:
    """Texts -> token numbers below ``vocab_size``, at most so many of each text; and the number of the separator."""

    name: str
    vocab_size: int
    separator: int
    numbers: Callable[[Sequence[str], int], list[list[int]]]


def words(text: str) -> list[str]:
    """Lower-cased words and the marks ! ? |."""
    return re.findall(r"[\w']+|[!?|]", text.lower())


def tokeniser(kind: str, texts: Sequence[tuple[str, ...]], *, vocab_size: int | None = None, min_count: int | None = None) -> Tokeniser:
    """Learn a tokeniser from texts, each a tuple of one or two.

    Parameters
    ----------
    kind : words: lower-cased words and the marks ! ? |, which is the separator; wordpiece: lower-cased pieces of words by the library
        `tokenizers`, the same on every run; bytes: UTF-8, nothing is learnt.
    vocab_size : tokens at most, special ones included; None: all words, 8,000 pieces. Not for bytes, which are 259.
    min_count : words (pieces) that occur less often than this are unknown; None: 2 of words, 1 of pieces. Not for bytes.

    Raises
    ------
    ValueError
        On an unknown kind or a setting that the kind doesn't have.
    ModuleNotFoundError
        For WordPiece without the library; says how to install it.
    """
    if kind not in TOKENISERS:
        raise ValueError(f"tokeniser must be one of {list(TOKENISERS)} for texts, got {kind!r}")
    if kind == "bytes":
        for name, value in (("vocab_size", vocab_size), ("min_count", min_count)):
            if value is not None:
                raise ValueError(f"{name} has no meaning for bytes, got {value!r}")
        return Tokeniser("bytes", BYTE_SEPARATOR + 1, BYTE_SEPARATOR, byte_numbers)
    size = None if vocab_size is None else count(vocab_size, "vocab_size", least=3)
    if kind == "words":
        return _words(texts, size, 2 if min_count is None else count(min_count, "min_count"))
    return _pieces(texts, size or WORDPIECES, 1 if min_count is None else count(min_count, "min_count"))


def byte_numbers(texts: Sequence[str], most: int) -> list[list[int]]:
    """UTF-8 bytes, each plus 2."""
    return [[byte + FIRST_BYTE for byte in text.encode()[:most]] for text in texts]


def frequent(counts: Counter[str], min_count: int, most: int | None) -> list[str]:
    """Entries of a vocabulary, the most frequent first and ties by spelling."""
    kept = (entry for entry, number in counts.items() if number >= min_count)
    return sorted(kept, key=lambda entry: (-counts[entry], entry))[:most]


def _words(texts: Sequence[tuple[str, ...]], size: int | None, min_count: int) -> Tokeniser:
    """Numbers of whole words, from 2, the most frequent first."""
    counts = Counter(word for text in texts for word in words(" | ".join(text)))
    kept = frequent(counts, min_count, None if size is None else size - 2)
    vocabulary = {word: number for number, word in enumerate(kept, start=2)}

    def numbers(rows: Sequence[str], most: int) -> list[list[int]]:
        return [[vocabulary.get(word, UNKNOWN) for word in words(row)[:most]] for row in rows]

    return Tokeniser("words", len(vocabulary) + 2, vocabulary.get("|", UNKNOWN), numbers)


def _pieces(texts: Sequence[tuple[str, ...]], size: int, min_count: int) -> Tokeniser:
    """Numbers of pieces of words."""
    library = trained_pieces([text for row in texts for text in row], size, min_count)

    def numbers(rows: Sequence[str], most: int) -> list[list[int]]:
        return [coded.ids[:most] for coded in library.encode_batch(list(rows), add_special_tokens=False)]

    return Tokeniser("wordpiece", library.get_vocab_size(), library.token_to_id("[SEP]"), numbers)


def trained_pieces(texts: Iterable[str], size: int, min_count: int) -> Any:
    """A WordPiece tokeniser of the library `tokenizers`, trained on the texts.

    The library numbers inner letters in the order of a hash table, which decides ties and so changes from run to run: given as special
    tokens while it trains, they have fixed numbers.
    """
    try:
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
    except ImportError as error:
        raise ModuleNotFoundError(NEEDS_TOKENIZERS) from error
    texts, special = list(texts), ["[PAD]", "[UNK]", "[SEP]"]
    library = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    normalizer = library.normalizer = normalizers.BertNormalizer()
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner = sorted({f"##{letter}" for text in texts for letter in normalizer.normalize_str(text) if not letter.isspace()})
    if size < len(special) + 2 * len(inner):
        raise ValueError(f"vocab_size must be at least {len(special) + 2 * len(inner)} for these {len(inner)} letters, got {size}")
    trainer = trainers.WordPieceTrainer(vocab_size=size, min_frequency=min_count, special_tokens=special + inner, show_progress=False)
    library.train_from_iterator(texts, trainer)
    trained = Tokenizer(models.WordPiece(library.get_vocab(), unk_token="[UNK]"))
    trained.normalizer, trained.pre_tokenizer = library.normalizer, library.pre_tokenizer
    return trained


def joined(tokeniser: Tokeniser, texts: Sequence[tuple[str, ...]], max_length: int) -> np.ndarray:
    """Token numbers (row, max_length), padded on the right.

    A text keeps its start. Of a pair that is too long the longer text is cut until both have the same length. A text without any token is
    one unknown token.
    """
    columns = [tokeniser.numbers(column, max_length) for column in zip(*texts)]
    tokens = np.full((len(texts), max_length), PAD, np.int64)
    for row, parts in zip(tokens, zip(*columns), strict=True):
        numbers = parts[0] if len(parts) == 1 else pair(parts[0], parts[1], tokeniser.separator, max_length)
        numbers = numbers or [UNKNOWN]
        row[: len(numbers)] = numbers
    return tokens


def pair(first: list[int], second: list[int], separator: int, max_length: int) -> list[int]:
    """Both with the separator between them, in at most ``max_length`` tokens (two or more)."""
    room = max_length - 1
    half = room // 2
    n = min(len(first), max(room - half, room - len(second)))
    return [*first[:n], separator, *second[: room - n]]
