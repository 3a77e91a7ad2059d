"""Images as token sequences: scikit-learn's digits and folders with one ``.npz`` of ``x_train, y_train, x_test, y_test``."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from experiments.data.dataset import Dataset, Split
from experiments.data.files import WANTED
from experiments.data.parts import check_classes, hash_files, partition


def digits(seed: int) -> Dataset:
    """scikit-learn's 1,797 grey 8x8 digits: 16 tokens of 2x2 pixels; about 1,000 / 200 / 600 rows, class by class."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images, labels = bunch.images.astype(np.float32), bunch.target.astype(np.int64)
    digest = hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest()
    rows = partition(labels, (1 / 3, 1 / 9), seed)
    parts = {part: (images[index], labels[index]) for part, index in rows.items()}
    return _image_dataset("digits", parts, 2, "scikit-learn load_digits", digest)


def pixels(name: str, files: Sequence[Path], seed: int) -> Dataset:
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
        rows = partition(y, (0.0, 0.1), seed)
        parts |= {part: (x[rows[part]], y[rows[part]]) for part in ("train", "validation")}
    return _image_dataset(name, parts, 4, f"pixels of {files[0].name}", hash_files(files))


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
    n_classes = check_classes(name, {part: y.tolist() for part, (_, y) in parts.items()})

    def split(part: str) -> Split:
        tokens = np.ascontiguousarray(patches((parts[part][0] - mean) / scale, size), dtype=np.float32)
        return Split(tokens, np.ones(tokens.shape[:2], bool), parts[part][1])

    train, validation, test = (split(part) for part in ("train", "validation", "test"))
    length, width = train.tokens.shape[1:]
    return Dataset(name, train, validation, test, None, width, max(n_classes, int(train.labels.max()) + 1), length, source, digest)
