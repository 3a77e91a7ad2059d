"""Labelled texts as token sequences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.data.dataset import PAD, Dataset, Split
from experiments.data.parts import PARTS, Content, Part
from experiments.data.tables import class_order
from experiments.data.tokenisers import Tokeniser, joined, tokeniser

LENGTHS = {"words": 40, "wordpiece": 128, "bytes": 1_024}  # tokens of a text that are read where nothing is said


def texts(content: Content, kind: str, *, max_length: int | None, vocab_size: int | None, min_count: int | None) -> Dataset:
    """Tables of labelled texts -> padded token numbers, with a tokeniser that learns from the training part."""
    pairs = len(content.parts["train"].items[0]) == 2
    for key, value, least in (("max_length", max_length, 3 if pairs else 1), ("min_count", min_count, 1)):
        if value is not None and value < least:
            raise ValueError(f"{key} must be at least {least}, got {value}")
    learned = tokeniser(kind, content.parts["train"].items, vocab_size=vocab_size, min_count=min_count)
    length = LENGTHS[kind] if max_length is None else max_length
    classes = [] if content.scores else sorted(set(content.parts["train"].labels), key=class_order)
    train, validation, test = (_split(content.parts[part], learned, classes, length) for part in PARTS)
    source, n_classes = f"{kind} of {content.source}", len(classes) or 1
    return Dataset(content.name, train, validation, test, learned.vocab_size, None, n_classes, length, source, content.sha256)


def _split(part: Part, learned: Tokeniser, classes: Sequence[str], length: int) -> Split:
    """Tokens, mask, and numbers of the classes, or the scores where there are no classes."""
    tokens, number = joined(learned, part.items, length), {label: index for index, label in enumerate(classes)}
    labels = np.array([number[label] for label in part.labels], np.int64) if classes else np.array(part.labels, np.float32)
    return Split(tokens, tokens != PAD, labels)
