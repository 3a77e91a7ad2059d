"""Images as token sequences: scikit-learn's digits and folders with one ``.npz`` of ``x_train, y_train, x_test, y_test``."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from experiments.data.dataset import Dataset, Split
from experiments.data.files import WANTED
from experiments.data.parts import PARTS, Content, Part, check_classes, hash_arrays, hash_files, partition
from particles.arrays import count

GREYS = 256  # levels of a pixel that is a token
SIDES = {"digits": 2}  # of a patch where nothing is said; 4 elsewhere


def digits(seed: int) -> Content:
    """scikit-learn's 1,797 grey 8x8 digits, levels 0 to 16; about 1,000 / 200 / 600 rows, class by class."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images, labels = bunch.images.astype(np.float32), bunch.target.astype(np.int64)
    rows = partition(labels, (1 / 3, 1 / 9), seed)
    parts = {part: Part(images[rows[part]], labels[rows[part]]) for part in PARTS}
    return Content("digits", parts, "scikit-learn load_digits", hash_arrays(images, labels))


def image_file(name: str, files: Sequence[Path], seed: int) -> Content:
    """One .npz of grey images."""
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
    parts = {part: _images(arrays, part, str(files[0])) for part in PARTS if f"x_{part}" in arrays}
    return image_content(name, parts, seed, files[0].name, hash_files(files))


def image_content(name: str, parts: dict[str, Part], seed: int, source: str, digest: str) -> Content:
    """Checked parts; a tenth of the training part is the validation part where there is none."""
    if "validation" not in parts:
        rows = partition(parts["train"].labels, (0.0, 0.1), seed)
        parts = parts | {part: parts["train"].take(rows[part]) for part in ("train", "validation")}
    check_classes(name, {part: np.asarray(rows.labels).tolist() for part, rows in parts.items()})
    return Content(name, parts, source, digest)


def _images(arrays: Mapping[str, np.ndarray], part: str, file: str) -> Part:
    """Images (row, height, width) and integer labels of one part, checked."""
    x, y = arrays[f"x_{part}"], np.asarray(arrays.get(f"y_{part}"))
    if x.ndim != 3 or y.shape != x.shape[:1] or not len(x):
        raise ValueError(f"{file!r}: x_{part} must be (row, height, width) and y_{part} (row,), got {x.shape} and {y.shape}")
    if y.dtype.kind not in "iu" or y.min() < 0:
        raise ValueError(f"{file!r}: y_{part} must hold class numbers >= 0, got {y.dtype} from {y.min()}")
    if not np.isfinite(x).all():
        raise ValueError(f"{file!r}: x_{part} holds values that are not finite")
    return Part(x.astype(np.float32), y.astype(np.int64))


def pooled(images: np.ndarray, size: int) -> np.ndarray:
    """Means of blocks of size x size pixels of images (row, height, width); ValueError unless ``size`` divides both sides."""
    n, height, width = images.shape
    if height % size or width % size:
        raise ValueError(f"pool must divide images of {height} x {width}, got {size}")
    return images.reshape(n, height // size, size, width // size, size).mean((2, 4), dtype=np.float32)


def patches(images: np.ndarray, size: int) -> np.ndarray:
    """Cut images (row, height, width) into tokens (row, token, size * size), row by row; ValueError unless ``size`` divides both sides."""
    n, height, width = images.shape
    if height % size or width % size:
        raise ValueError(f"patches of {size} do not divide images of {height} x {width}")
    grid = images.reshape(n, height // size, size, width // size, size).swapaxes(2, 3)
    return grid.reshape(n, -1, size * size)


def images(content: Content, kind: str, *, patch: int | None, pool: int) -> Dataset:
    """Images -> patches with real values, or pixels as token numbers (grey levels 0 to 255), after pooling."""
    if kind not in ("patches", "pixels"):
        raise ValueError(f"tokeniser must be patches or pixels for images, got {kind!r}")
    if kind == "pixels" and patch is not None:
        raise ValueError(f"patch has no meaning for pixels, got {patch!r}")
    parts = {part: Part(pooled(rows.items, count(pool, "pool")), rows.labels) for part, rows in content.parts.items()}
    if kind == "pixels":
        splits = {part: _grey_levels(content.name, rows) for part, rows in parts.items()}
    else:
        side = SIDES.get(content.name, 4) if patch is None else count(patch, "patch")
        splits = _patch_splits(parts, side)
    train, validation, test = (splits[part] for part in PARTS)
    source = f"{kind} of {content.source}" + (f", {pool} x {pool} pooled" if pool > 1 else "")
    length, width = train.tokens.shape[1], None if kind == "pixels" else train.tokens.shape[2]
    vocab_size, n_classes = GREYS if kind == "pixels" else None, int(train.labels.max()) + 1
    return Dataset(content.name, train, validation, test, vocab_size, width, n_classes, length, source, content.sha256)


def _grey_levels(name: str, part: Part) -> Split:
    """Whole grey levels, pixel by pixel; every pixel is a real token."""
    levels = np.rint(part.items).astype(np.int64)
    if levels.min() < 0 or levels.max() >= GREYS or (levels == 0).sum() + (levels == 1).sum() == levels.size:
        raise ValueError(f"{name!r}: pixels need grey levels from 0 to 255, got values from {np.min(part.items)} to {np.max(part.items)}")
    tokens = levels.reshape(len(levels), -1)
    return Split(tokens, np.ones(tokens.shape, bool), np.asarray(part.labels))


def _patch_splits(parts: Mapping[str, Part], side: int) -> dict[str, Split]:
    """Patches of pixels scaled to mean 0 and variance 1, pixel by pixel, with the statistics of the training part."""
    mean, scale = parts["train"].items.mean(0), parts["train"].items.std(0)
    scale = np.where(scale > 0, scale, 1.0).astype(np.float32)  # a pixel that never changes stays 0

    def split(part: Part) -> Split:
        tokens = np.ascontiguousarray(patches((part.items - mean) / scale, side), dtype=np.float32)
        return Split(tokens, np.ones(tokens.shape[:2], bool), np.asarray(part.labels))

    return {name: split(part) for name, part in parts.items()}
