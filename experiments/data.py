"""Labelled data sets as token sequences: scikit-learn's digits, any labelled text folder, pixel folders.

A text folder holds tab-separated, unquoted, UTF-8 ``*.tsv`` or ``*.tsv.gz`` files with one header line, a column ``label`` and a column
``sentence`` (or ``text``). The parts come from a column ``split``, or from file names that end in train, dev or test, or are made here.
A pixel folder holds one ``.npz`` file with ``x_train, y_train, x_test, y_test``.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

PAD, UNKNOWN = 0, 1
PARTS = {"train": "train", "dev": "validation", "valid": "validation", "validation": "validation", "val": "validation", "test": "test"}
TEXT_COLUMNS = (("sentence",), ("text",), ("phrase",), ("question",), ("sentence1", "sentence2"), ("question1", "question2"))
WANTED = (
    "a text folder needs *.tsv or *.tsv.gz files with the columns label and sentence (or text); "
    "a pixel folder one .npz with x_train, y_train, x_test, y_test"
)
NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")  # a label that is a number
WHOLE = "whole"  # a table that does not say which row belongs to which part

Texts = tuple[list[str], list[str]]  # texts and labels of one part


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


def load(
    name: str | None = None,
    folder: str | Path | None = None,
    seed: int = 0,
    *,
    max_length: int = 40,
    min_count: int = 2,
    max_train: int | None = None,
) -> Dataset:
    """Load scikit-learn's digits without a folder, else the files in ``folder/name`` or in ``folder``, called ``named(name, folder)``.

    ``seed`` makes the parts that the files don't give (and the ``max_train`` rows that are kept, class by class, when given);
    ``max_length`` and ``min_count`` (of a word in the training part) concern texts only. Raises FileNotFoundError where the folder or its
    files are missing, ValueError where they can't be understood; both say which files to place.
    """
    name = named(name, folder)
    if folder is None:
        if name != "digits":
            raise FileNotFoundError(f"data set {name!r} needs a folder (only 'digits' is built in): {WANTED}")
        data = _digits(seed)
    else:
        files = _data_files(name, Path(folder))
        pixels = [path for path in files if path.suffix == ".npz"]
        data = _pixels(name, pixels, seed) if pixels else _texts(name, files, seed, max_length=max_length, min_count=min_count)
    return data if max_train is None else _shorten(data, max_train, seed)


def named(name: str | None, folder: str | Path | None) -> str:
    """The name of a data set: the one that is given, else the folder's own, else "digits"."""
    return name or ("digits" if folder is None else Path(folder).resolve().name)


def _data_files(name: str, folder: Path) -> list[Path]:
    """The .tsv, .tsv.gz or .npz files of ``folder/name`` or of ``folder``; FileNotFoundError names what was looked for."""
    if not folder.is_dir():
        raise FileNotFoundError(f"data folder {str(folder)!r} does not exist; {WANTED}")
    for place in (folder / name, folder):
        files = sorted(path for path in place.glob("*") if path.name.endswith((".tsv", ".tsv.gz", ".npz")))
        if files:
            return files
    inner = sorted(path.name for path in folder.iterdir() if path.is_dir())
    hint = f"; folders inside it: {', '.join(inner)}" if inner else ""
    raise FileNotFoundError(f"no data files for {name!r} in {str(folder)!r}{hint}; {WANTED}")


# ---- digits and pixels -------------------------------------------------------------------------------------------------------------------


def _digits(seed: int) -> Dataset:
    """scikit-learn's 1,797 grey 8x8 digits: 16 tokens of 2x2 pixels; about 1,000 / 200 / 600 rows, class by class."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images, labels = bunch.images.astype(np.float32), bunch.target.astype(np.int64)
    digest = hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest()
    rows = _partition(labels, (1 / 3, 1 / 9), seed)
    parts = {part: (images[index], labels[index]) for part, index in rows.items()}
    return _image_dataset("digits", parts, 2, "scikit-learn load_digits", digest)


def _pixels(name: str, files: Sequence[Path], seed: int) -> Dataset:
    """One .npz of grey images; a validation part is cut from the training part where none is given."""
    if len(files) > 1:
        raise ValueError(f"expected one .npz file for {name!r} in {str(files[0].parent)!r}, got {[path.name for path in files]}")
    try:
        with np.load(files[0], allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files if key.startswith(("x_", "y_"))}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"cannot read {str(files[0])!r}: {error}") from error
    missing = [key for key in ("x_train", "y_train", "x_test", "y_test") if key not in arrays]
    if missing:
        raise ValueError(f"{str(files[0])!r} lacks the arrays {missing}; {WANTED}")
    parts = {part: _images(arrays, part, str(files[0])) for part in ("train", "validation", "test") if f"x_{part}" in arrays}
    if "validation" not in parts:
        x, y = parts["train"]
        rows = _partition(y, (0.0, 0.1), seed)
        parts |= {part: (x[rows[part]], y[rows[part]]) for part in ("train", "validation")}
    return _image_dataset(name, parts, 4, f"pixels of {files[0].name}", _hash_files(files))


def _images(arrays: Mapping[str, np.ndarray], part: str, file: str) -> tuple[np.ndarray, np.ndarray]:
    """Images (row, height, width) and integer labels of one part, checked."""
    x, y = arrays[f"x_{part}"], np.asarray(arrays.get(f"y_{part}"))
    if x.ndim != 3 or y.shape != x.shape[:1] or not len(x):
        raise ValueError(f"{file!r}: x_{part} must be (row, height, width) and y_{part} (row,), got {x.shape} and {y.shape}")
    if y.dtype.kind not in "iu" or y.min() < 0:
        raise ValueError(f"{file!r}: y_{part} must hold class numbers >= 0, got {y.dtype} from {y.min()}")
    if not np.isfinite(x).all():
        raise ValueError(f"{file!r}: x_{part} holds values that are not finite")
    return x.astype(np.float32), y.astype(np.int64)


def patches(images: np.ndarray, size: int) -> np.ndarray:
    """Cut images (row, height, width) into tokens (row, token, size * size), row by row; ValueError unless ``size`` divides both sides."""
    n, height, width = images.shape
    if height % size or width % size:
        raise ValueError(f"patches of {size} do not divide images of {height} x {width}")
    grid = images.reshape(n, height // size, size, width // size, size).swapaxes(2, 3)
    return grid.reshape(n, -1, size * size)


def _image_dataset(name: str, parts: Mapping[str, tuple[np.ndarray, np.ndarray]], size: int, source: str, digest: str) -> Dataset:
    """Patch tokens, scaled to mean 0 and variance 1 pixel by pixel with the statistics of the training part."""
    mean, scale = parts["train"][0].mean(0), parts["train"][0].std(0)
    scale = np.where(scale > 0, scale, 1.0).astype(np.float32)  # a pixel that never changes stays 0
    n_classes = _check_classes(name, {part: y.tolist() for part, (_, y) in parts.items()})

    def split(part: str) -> Split:
        tokens = np.ascontiguousarray(patches((parts[part][0] - mean) / scale, size), dtype=np.float32)
        return Split(tokens, np.ones(tokens.shape[:2], bool), parts[part][1])

    train, validation, test = (split(part) for part in ("train", "validation", "test"))
    length, width = train.tokens.shape[1:]
    return Dataset(name, train, validation, test, None, width, max(n_classes, int(train.labels.max()) + 1), length, source, digest)


# ---- texts -------------------------------------------------------------------------------------------------------------------------------


def words(text: str) -> list[str]:
    """Lower-cased words and the marks ! ? |, the only tokenizer used here."""
    return re.findall(r"[\w']+|[!?|]", text.lower())


def _texts(name: str, files: Sequence[Path], seed: int, *, max_length: int, min_count: int) -> Dataset:
    """Tables of labelled texts -> padded word numbers with a vocabulary from the training part."""
    for key, value in (("max_length", max_length), ("min_count", min_count)):
        if value < 1:
            raise ValueError(f"{key} must be at least 1, got {value}")
    used, parts = _parts(name, files, seed)
    _check_classes(name, {part: labels for part, (_, labels) in parts.items()})
    classes = sorted(set(parts["train"][1]), key=_class_order)
    counts = Counter(word for text in parts["train"][0] for word in words(text))
    kept = sorted((word for word, count in counts.items() if count >= min_count), key=lambda word: (-counts[word], word))
    vocabulary = {word: number for number, word in enumerate(kept, start=2)}
    splits = {part: _encode(texts, labels, vocabulary, classes, max_length) for part, (texts, labels) in parts.items()}
    source = f"words of {', '.join(path.name for path in used)}"
    train, validation, test = (splits[part] for part in ("train", "validation", "test"))
    return Dataset(name, train, validation, test, len(vocabulary) + 2, None, len(classes), max_length, source, _hash_files(used))


def _encode(texts: Sequence[str], labels: Sequence[str], vocabulary: Mapping[str, int], classes: Sequence[str], max_length: int) -> Split:
    """Numbers of the first ``max_length`` words, padded on the right; a text without words is one unknown word."""
    tokens = np.full((len(texts), max_length), PAD, np.int64)
    for row, text in zip(tokens, texts, strict=True):
        numbers = [vocabulary.get(word, UNKNOWN) for word in words(text)[:max_length]] or [UNKNOWN]
        row[: len(numbers)] = numbers
    number = {label: index for index, label in enumerate(classes)}
    return Split(tokens, tokens != PAD, np.array([number[label] for label in labels], np.int64))


def _parts(name: str, files: Sequence[Path], seed: int) -> tuple[list[Path], dict[str, Texts]]:
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


# ---- parts, classes, hashes --------------------------------------------------------------------------------------------------------------


def _partition(labels: Any, shares: tuple[float, float], seed: int) -> dict[str, np.ndarray]:
    """Sorted row numbers of train, validation and test, class by class; ``shares`` = those of test and validation."""
    rng, labels = np.random.default_rng(seed), np.asarray(labels)
    parts: dict[str, list[np.ndarray]] = {"train": [], "validation": [], "test": []}
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        n_test, n_validation = (round(share * len(rows)) for share in shares)
        for part, piece in zip(("test", "validation", "train"), np.split(rows, [n_test, n_test + n_validation])):
            parts[part].append(piece)
    return {part: np.sort(np.concatenate(pieces)) for part, pieces in parts.items()}


def _cut(part: Texts, shares: tuple[float, float], seed: int) -> dict[str, Texts]:
    texts, labels = part
    rows = _partition(labels, shares, seed)
    return {name: ([texts[row] for row in index], [labels[row] for row in index]) for name, index in rows.items()}


def _shorten(data: Dataset, max_train: int, seed: int) -> Dataset:
    """Keep about ``max_train`` training rows, class by class."""
    if max_train < data.n_classes:
        raise ValueError(f"max_train must be at least the number of classes, {data.n_classes}, got {max_train}")
    if max_train >= len(data.train):
        return data
    rows = _partition(data.train.labels, (max_train / len(data.train), 0.0), seed)["test"]
    return Dataset(**{**vars(data), "train": data.train.take(rows)})


def _check_classes(name: str, labels: Mapping[str, Sequence]) -> int:
    """The number of classes; ValueError for an empty part, a single class, or a class that the training part doesn't have."""
    known = set(labels["train"])
    empty = [part for part, values in labels.items() if not len(values)]
    if empty:
        raise ValueError(f"{name!r} has no rows in {empty}; {WANTED}")
    if len(known) < 2:
        raise ValueError(f"{name!r} has a single class, {sorted(known)}; a classifier needs two")
    for part, values in labels.items():
        strange = sorted(set(values) - known, key=str)
        if strange:
            raise ValueError(f"{name!r}: the {part} part has labels {strange[:5]} that the training part does not have")
    return len(known)


def _check_labels(path: Path, counts: Counter[str]) -> None:
    """ValueError where a table has both numbers and text as labels: the rarer kind is a slip, not a class."""
    numbers = {label: count for label, count in counts.items() if NUMBER.fullmatch(label)}
    text = {label: count for label, count in counts.items() if label not in numbers}
    if numbers and text:
        kind, rare = min(("text", text), ("numbers", numbers), key=lambda pair: sum(pair[1].values()))
        shown = ", ".join(f"{label!r} on {count} of {counts.total()} rows" for label, count in Counter(rare).most_common(5))
        raise ValueError(f"{str(path)!r} has both numbers and text as labels; the {kind}: {shown}")


def _class_order(label: str) -> tuple[int, float, str]:
    """Numbers by value, text by spelling."""
    return (0, float(label), "") if NUMBER.fullmatch(label) else (1, 0.0, label)


def _hash_files(files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
