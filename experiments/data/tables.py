"""Tab-separated, unquoted, UTF-8 tables of labelled texts, ``*.tsv`` or ``*.tsv.gz``, with one header line.

There is a column ``label`` and a column ``sentence`` (or ``text``). The parts come from a column ``split``, or from file names that end in
train, dev or test, or are made here.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from experiments.data.files import WANTED
from experiments.data.parts import partition

PARTS = {"train": "train", "dev": "validation", "valid": "validation", "validation": "validation", "val": "validation", "test": "test"}
TEXT_COLUMNS = (("sentence",), ("text",), ("phrase",), ("question",), ("sentence1", "sentence2"), ("question1", "question2"))
NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")  # a label that is a number
WHOLE = "whole"  # a table that does not say which row belongs to which part

Texts = tuple[list[str], list[str]]  # texts and labels of one part


def read_parts(name: str, files: Sequence[Path], seed: int) -> tuple[list[Path], dict[str, Texts]]:
    """The files used and train, validation and test as (texts, labels); what the files don't give is cut from the training part."""
    by_part = _choose_files(files)
    if by_part:
        used, parts = list(by_part.values()), {part: _read(path)[WHOLE] for part, path in by_part.items()}
        if "test" not in parts:
            parts["test"] = parts.pop("validation")  # a development part is what is left to test on
    elif len(files) == 1:
        used, parts = list(files), _read(files[0], split_column=True)
    else:
        found = f"{[path.name for path in files]} in {str(files[0].parent)!r}"
        raise ValueError(
            f"cannot tell the parts of {name!r} from {found}: name them train.tsv and test.tsv, or train.tsv.gz and test.tsv.gz"
        )
    if WHOLE in parts:
        parts = _cut(parts[WHOLE], (0.1, 0.1), seed)
    if not {"train", "test"} <= set(parts):
        raise ValueError(f"{name!r} needs a train and a test part, got {sorted(parts)} in {[str(path) for path in used]}")
    if "validation" not in parts:
        parts |= {part: rows for part, rows in _cut(parts["train"], (0.0, 0.1), seed).items() if part != "test"}
    return used, {part: parts[part] for part in ("train", "validation", "test")}


def _choose_files(files: Sequence[Path]) -> dict[str, Path]:
    """Files whose names end in train, dev or test and share a prefix: the prefix with the most parts that has train and another one."""
    groups: dict[str, dict[str, Path]] = {}
    for path in files:
        match = re.fullmatch(rf"(.*?)[_.-]?({'|'.join(PARTS)})\.tsv(\.gz)?", path.name)
        if match:
            groups.setdefault(match[1], {})[PARTS[match[2]]] = path
    complete = [group for group in groups.values() if "train" in group and len(group) > 1]
    return max(complete, key=len, default={})


def _read(path: Path, split_column: bool = False) -> dict[str, Texts]:
    """One table -> {part: (texts, labels)}; the part is WHOLE without a ``split`` column (or when it isn't asked for)."""
    rows = read_table(path)
    header = set(rows[0])
    columns = next((names for names in TEXT_COLUMNS if header.issuperset(names)), None)
    if "label" not in header or columns is None:
        raise ValueError(f"{str(path)!r} needs the columns label and sentence (or text), got {sorted(header)}")
    split_column = split_column and "split" in header
    parts: dict[str, Texts] = {}
    for line, row in enumerate(rows, start=2):
        if row["label"].strip() in ("", "?"):
            raise ValueError(f"{str(path)!r} line {line} has no label ({row['label']!r}); remove unlabelled rows or the file")
        if split_column and row["split"] not in PARTS:
            raise ValueError(f"{str(path)!r} line {line}: split must be one of {sorted(PARTS)}, got {row['split']!r}")
        part = PARTS[row["split"]] if split_column else WHOLE
        texts, labels = parts.setdefault(part, ([], []))
        texts.append(" | ".join(row[column] for column in columns))
        labels.append(row["label"].strip())
    _check_labels(path, Counter(label for _, labels in parts.values() for label in labels))
    return parts


def read_table(path: Path) -> list[dict[str, str]]:
    """The rows of a tab-separated, unquoted table; ValueError names the file and the line that has too few or too many fields."""
    content = path.read_bytes()
    try:
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {str(path)!r}: {error}") from error
    reader = csv.reader(io.StringIO(text, newline=""), delimiter="\t", quoting=csv.QUOTE_NONE)
    header = next(reader, [])
    rows = []
    for line, fields in enumerate(reader, start=2):
        if len(fields) != len(header):
            raise ValueError(f"{str(path)!r} line {line} has {len(fields)} fields, the header has {len(header)}")
        rows.append(dict(zip(header, fields)))
    if not rows:
        raise ValueError(f"{str(path)!r} has no rows; {WANTED}")
    return rows


def _cut(part: Texts, shares: tuple[float, float], seed: int) -> dict[str, Texts]:
    texts, labels = part
    rows = partition(labels, shares, seed)
    return {name: ([texts[row] for row in index], [labels[row] for row in index]) for name, index in rows.items()}


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
