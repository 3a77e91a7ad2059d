"""Two documents as one sequence: pairs of reviews, and the citation pairs of the Long Range Arena."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.data.files import stem
from experiments.data.parts import PARTS, Content, Part, check_classes, hash_files
from experiments.data.tables import read_table
from experiments.data.tasks import TASKS

COLUMNS = ("label", "id1", "id2", "text1", "text2")


def review_pairs(content: Content, seed: int) -> Content:
    """Pairs of reviews of one part: do both have the same sentiment? Each review is in one pair at most; half of the pairs are alike.

    A stand-in for retrieval where its papers are not to be had: both documents must be read, but neither has to be found in the other.
    """
    parts = {part: _paired(content.parts[part], np.random.default_rng([seed, PARTS.index(part)])) for part in PARTS}
    return content._replace(parts=parts, source=f"pairs of {content.source}")


def _paired(part: Part, rng: np.random.Generator) -> Part:
    """Quadruples of two reviews of each class make one pair of each kind, in turn both bad and both good; the rest is left out."""
    labels = np.asarray(part.labels)
    classes = sorted(set(part.labels))
    bad, good = (rng.permutation(np.flatnonzero(labels == value)) for value in classes)
    n = min(len(bad), len(good)) // 4
    rows = np.concatenate([  # of each class a quarter with itself, in two pieces, and a half with the other class
        np.column_stack([bad[:n], bad[n : 2 * n]]), np.column_stack([good[:n], good[n : 2 * n]]),
        np.column_stack([bad[2 * n : 3 * n], good[2 * n : 3 * n]]), np.column_stack([good[3 * n : 4 * n], bad[3 * n : 4 * n]]),
    ])  # fmt: skip
    same = np.repeat(["1", "1", "0", "0"], n)
    order = rng.permutation(len(rows))
    texts = [(part.items[first][0], part.items[second][0]) for first, second in rows[order]]
    return Part(texts, same[order].tolist())


def citation_pairs(name: str, files: Sequence[Path]) -> Content:
    """Tables without a header: label, id1, id2, text1, text2; the label is 1 where one paper cites the other."""
    rows = {TASKS[name].files[stem(path)]: _citations(path) for path in files}
    parts = {part: rows[part] for part in PARTS}
    check_classes(name, {part: rows.labels for part, rows in parts.items()})
    return Content(name, parts, ", ".join(path.name for path in files), hash_files(files))


def _citations(path: Path) -> Part:
    """The pairs of one file; ValueError names a line whose label is not 0 or 1."""
    rows = read_table(path, COLUMNS)
    labels = [row["label"].strip().removesuffix(".0") for row in rows]
    wrong = next((line for line, label in enumerate(labels, start=1) if label not in ("0", "1")), None)
    if wrong is not None:
        raise ValueError(f"{str(path)!r} line {wrong}: label must be 0 or 1, got {rows[wrong - 1]['label']!r}")
    return Part([(row["text1"], row["text2"]) for row in rows], labels)
