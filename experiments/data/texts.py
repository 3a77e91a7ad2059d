"""Labelled texts as sequences of word numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from experiments.data.dataset import PAD, UNKNOWN, Dataset, Split
from experiments.data.parts import check_classes, hash_files
from experiments.data.tables import class_order, read_parts


def words(text: str) -> list[str]:
    """Lower-cased words and the marks ! ? |, the only tokenizer used here."""
    return re.findall(r"[\w']+|[!?|]", text.lower())


def texts(name: str, files: Sequence[Path], seed: int, *, max_length: int, min_count: int) -> Dataset:
    """Tables of labelled texts -> padded word numbers with a vocabulary from the training part."""
    for key, value in (("max_length", max_length), ("min_count", min_count)):
        if value < 1:
            raise ValueError(f"{key} must be at least 1, got {value}")
    used, parts = read_parts(name, files, seed)
    check_classes(name, {part: labels for part, (_, labels) in parts.items()})
    classes = sorted(set(parts["train"][1]), key=class_order)
    counts = Counter(word for text in parts["train"][0] for word in words(text))
    kept = sorted((word for word, count in counts.items() if count >= min_count), key=lambda word: (-counts[word], word))
    vocabulary = {word: number for number, word in enumerate(kept, start=2)}
    splits = {part: _encode(texts, labels, vocabulary, classes, max_length) for part, (texts, labels) in parts.items()}
    source = f"words of {', '.join(path.name for path in used)}"
    train, validation, test = (splits[part] for part in ("train", "validation", "test"))
    return Dataset(name, train, validation, test, len(vocabulary) + 2, None, len(classes), max_length, source, hash_files(used))


def _encode(texts: Sequence[str], labels: Sequence[str], vocabulary: Mapping[str, int], classes: Sequence[str], max_length: int) -> Split:
    """Numbers of the first ``max_length`` words, padded on the right; a text without words is one unknown word."""
    tokens = np.full((len(texts), max_length), PAD, np.int64)
    for row, text in zip(tokens, texts, strict=True):
        numbers = [vocabulary.get(word, UNKNOWN) for word in words(text)[:max_length]] or [UNKNOWN]
        row[: len(numbers)] = numbers
    number = {label: index for index, label in enumerate(classes)}
    return Split(tokens, tokens != PAD, np.array([number[label] for label in labels], np.int64))
