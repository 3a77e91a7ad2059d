"""Tab-separated, unquoted, UTF-8 tables of labelled texts, ``*.tsv`` or ``*.tsv.gz``, with one header line.

There is a column ``label`` (or ``score``, a number) and a column ``sentence`` (or ``text``), or two for pairs. The parts come from a column
``split``, or from file names that end in train, dev or test, or are made here.
"""

from __future__ import annotations

import gzip
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.data.files import WANTED, stem
from experiments.data.parts import PARTS, Content, Part, check_classes, cut, hash_files
from experiments.data.tasks import SCORE, TASKS, Task

PART_NAMES = {"train": "train", "dev": "validation", "valid": "validation", "validation": "validation", "val": "validation", "test": "test"}
TEXT_COLUMNS = (("sentence",), ("text",), ("phrase",), ("question",), ("sentence1", "sentence2"), ("question1", "question2"))
NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")  # a label that is a number
WHOLE = "whole"  # a table that does not say which row belongs to which part


def tables(name: str, files: Sequence[Path], seed: int) -> Content:
    """Tuples of one or two texts with their labels; parts that the files don't give are cut from the training part with ``seed``."""
    used, parts, scores = _parts(name, files)
    complete = complete_parts(name, parts, seed, where=str([str(path) for path in used]), scores=scores)
    if not scores:
        check_classes(name, {part: rows.labels for part, rows in complete.items()})
    return Content(name, complete, ", ".join(path.name for path in used), hash_files(used), scores)


def complete_parts(name: str, parts: dict[str, Part], seed: int, *, where: str, scores: bool = False) -> dict[str, Part]:
    """Train, validation and test: a whole is cut 80/10/10, a tenth of the training part is the validation part where there is none."""
    if WHOLE in parts:
        parts = cut(parts[WHOLE], (0.1, 0.1), seed, scores=scores)
    if not {"train", "test"} <= set(parts):
        raise ValueError(f"{name!r} needs a train and a test part, got {sorted(parts)} in {where}")
    if "validation" not in parts:
        rest = cut(parts["train"], (0.0, 0.1), seed, scores=scores)
        parts = parts | {"train": rest["train"], "validation": rest["validation"]}
    return {part: parts[part] for part in PARTS}


def _parts(name: str, files: Sequence[Path]) -> tuple[list[Path], dict[str, Part], bool]:
    """The files used, the parts that they give, and whether the labels are scores."""
    by_part = _choose_files(files, TASKS.get(name, Task()).files)
    if by_part:
        read = {part: _read(path) for part, path in by_part.items()}
        parts, used = {part: rows[WHOLE] for part, (rows, _) in read.items()}, list(by_part.values())
        if "test" not in parts:
            parts["test"] = parts.pop("validation")  # a development part is what is left to test on
        return used, parts, all(scores for _, scores in read.values())
    if len(files) == 1:
        parts, scores = _read(files[0], split_column=True)
        return list(files), parts, scores
    found = f"{[path.name for path in files]} in {str(files[0].parent)!r}"
    raise ValueError(f"cannot tell the parts of {name!r} from {found}: name them train.tsv and test.tsv, or train.tsv.gz and test.tsv.gz")


def _choose_files(files: Sequence[Path], given: Mapping[str, str]) -> dict[str, Path]:
    """Files that the task gives, else those whose names end in train, dev or test and share a prefix.

    Of several prefixes the one with the most parts that has train and another one.
    """
    if given:
        return {given[stem(path)]: path for path in files}
    groups: dict[str, dict[str, Path]] = {}
    for path in files:
        match = re.fullmatch(rf"(.*?)[_.-]?({'|'.join(PART_NAMES)})\.tsv(\.gz)?", path.name)
        if match:
            groups.setdefault(match[1], {})[PART_NAMES[match[2]]] = path
    complete = [group for group in groups.values() if "train" in group and len(group) > 1]
    return max(complete, key=len, default={})


def _read(path: Path, split_column: bool = False) -> tuple[dict[str, Part], bool]:
    """One table -> {part: rows}, and whether labels are scores; the part is WHOLE unless a ``split`` column is asked for and there."""
    rows = read_table(path)
    label, columns = _columns(path, set(rows[0]))
    split_column = split_column and "split" in rows[0]
    parts: dict[str, Part] = {}
    for line, row in enumerate(rows, start=2):
        if row[label].strip() in ("", "?"):
            raise ValueError(f"{str(path)!r} line {line} has no label ({row[label]!r}); remove unlabelled rows or the file")
        if split_column and row["split"] not in PART_NAMES:
            raise ValueError(f"{str(path)!r} line {line}: split must be one of {sorted(PART_NAMES)}, got {row['split']!r}")
        texts, labels = parts.setdefault(PART_NAMES[row["split"]] if split_column else WHOLE, Part([], []))
        texts.append(tuple(row[column] for column in columns))
        labels.append(_score(path, line, row[label]) if label == SCORE else row[label].strip())
    if label != SCORE:
        _check_labels(path, Counter(value for part in parts.values() for value in part.labels))
    return parts, label == SCORE


def _columns(path: Path, header: set[str]) -> tuple[str, tuple[str, ...]]:
    """The column of the labels and those of the texts."""
    columns = next((names for names in TEXT_COLUMNS if header.issuperset(names)), None)
    label = next((name for name in ("label", SCORE) if name in header), None)
    if label is None or columns is None or (label == SCORE and len(columns) == 1):
        raise ValueError(f"{str(path)!r} needs the columns label and sentence (or text), got {sorted(header)}")
    return label, columns


def _score(path: Path, line: int, text: str) -> float:
    """A finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{str(path)!r} line {line}: score must be a finite number, got {text!r}")
    return value


def read_table(path: Path, header: Sequence[str] | None = None) -> list[dict[str, str]]:
    """The rows of a tab-separated, unquoted table; ``header`` names the columns of a file that doesn't.

    ValueError names the file and the line that has too few or too many fields.
    """
    content = path.read_bytes()
    try:
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {str(path)!r}: {error}") from error
    lines = re.split("\r\n|\n|\r", text)
    lines = lines[:-1] if not lines[-1] else lines
    first = 0 if header else 1
    names = list(header or lines[0].split("\t") if lines else [])
    rows = []
    for number, line in enumerate(lines[first:], start=first + 1):
        fields = line.split("\t")
        if len(fields) != len(names):
            raise ValueError(f"{str(path)!r} line {number} has {len(fields)} fields, the header has {len(names)}")
        rows.append(dict(zip(names, fields)))
    if not rows:
        raise ValueError(f"{str(path)!r} has no rows; {WANTED}")
    return rows


def _check_labels(path: Path, counts: Counter[str]) -> None:
    """ValueError where a table has both numbers and text as labels: the rarer kind is a slip, not a class."""
    numbers = {label: count for label, count in counts.items() if NUMBER.fullmatch(label)}
    text = {label: count for label, count in counts.items() if label not in numbers}
    if numbers and text:
        kind, rare = min(("text", text), ("numbers", numbers), key=lambda pair: sum(pair[1].values()))
        shown = ", ".join(f"{label!r} on {count} of {counts.total()} rows" for label, count in Counter(rare).most_common(5))
        raise ValueError(f"{str(path)!r} has both numbers and text as labels; the {kind}: {shown}")


def class_order(label: str) -> tuple[int, float, str]:
    """Numbers by value, text by spelling."""
    return (0, float(label), "") if NUMBER.fullmatch(label) else (1, 0.0, label)
