"""Data sets as images (channel, side, side): scikit-learn's digits, folders with one ``.npz`` of grey images, folders of image files.

A folder of files is laid out as ImageNet's: ``train/CLASS/*`` and ``val/CLASS/*``; its files are read when their turn comes. Everything is
scaled to mean 0 and variance 1 over all pixels of the training part (of ImageNet, for files).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from experiments.data import files, parts

MEAN, DEVIATION = 0.449, 0.226  # of ImageNet's pixels in [0, 1], over the three colours
CUT, WHOLE = (0.08, 1.0), 256 / 224  # share of the area that a training crop keeps; side of a test image that the crop is taken from


class Part(Protocol):
    """Labelled images: labels (row,) int64, and `take(rows)` float32 (row, channel, side, side)."""

    @property
    def labels(self) -> np.ndarray:
        """Classes (row,) int64."""

    def take(self, rows: np.ndarray) -> np.ndarray:
        """The images of these rows."""


@dataclass(frozen=True)
class Arrays:
    """Images that are held in memory."""

    images: np.ndarray
    labels: np.ndarray

    def take(self, rows: np.ndarray) -> np.ndarray:
        """The images of these rows."""
        return self.images[rows]


@dataclass(frozen=True)
class Files:
    """Images that are read from files: in training a random crop, mirrored or not, else the middle of the image."""

    paths: Sequence[Path]
    labels: np.ndarray
    side: int
    rng: np.random.Generator | None = None

    def take(self, rows: np.ndarray) -> np.ndarray:
        """The images of these rows, cut anew at each call if the part has an rng."""
        return np.stack([self._read(self.paths[row]) for row in rows])

    def _read(self, path: Path) -> np.ndarray:
        from PIL import Image

        with Image.open(path) as file:
            image = file.convert("RGB")
            box = _middle(image.size) if self.rng is None else _random_box(image.size, self.rng)
            pixels = np.asarray(image.resize((self.side, self.side), Image.Resampling.BICUBIC, box), np.float32) / 255
        mirrored = self.rng is not None and self.rng.random() < 0.5
        return np.ascontiguousarray(((pixels[:, ::-1] if mirrored else pixels) - MEAN).transpose(2, 0, 1) / DEVIATION)


@dataclass(frozen=True)
class Pictures:
    """Three parts, where they came from, and the SHA-256 of what was read (of the names, for folders of files)."""

    name: str
    train: Part
    validation: Part
    test: Part
    side: int
    channels: int
    n_classes: int
    source: str
    sha256: str


def pictures(name: str, folder: str = "", *, seed: int = 0, max_train: int, max_test: int, side: int = 224) -> Pictures:
    """Images by name: "digits", else those of ``folder/name``; KERNELGAS_DATA names the folder if it is "".

    Parameters
    ----------
    seed : of the choice of training and validation rows, class by class, and of the crops of files.
    max_train, max_test : rows that are kept; of the test part the first ones, the same for every seed.
    side : of the images that are cut from files.

    Raises
    ------
    FileNotFoundError
        Naming what to place where.
    ValueError
        If the files cannot be understood.
    """
    if name == "digits":
        return _of_arrays(name, *_digits(), seed, max_train, max_test)
    place = placed(name, folder)
    if isinstance(place, Path):
        return _of_files(name, place, seed, max_train, max_test, side)
    return _of_arrays(name, *_npz(name, place), seed, max_train, max_test)


def placed(name: str, folder: str) -> Path | list[Path]:
    """Where the images of `pictures` lie: the folder of train and val, or the files of arrays. FileNotFoundError says what to place."""
    root = folder or os.environ.get("KERNELGAS_DATA", "")
    if not root:
        raise FileNotFoundError(f"data must be a folder with the images {name} (or KERNELGAS_DATA name one); {WANTED}")
    place = Path(root) / name
    return place if (place / "train").is_dir() and (place / "val").is_dir() else files.data_files(name, Path(root))


WANTED = "one .npz with x_train, y_train, x_test, y_test, or train/CLASS/* and val/CLASS/* with image files"


def batches(part: Part, batch_size: int, rng: np.random.Generator | None = None) -> Iterator[dict[str, Any]]:
    """One pass: dicts of tensors images and labels; shuffled if `rng` is given."""
    import torch

    order = np.arange(len(part.labels)) if rng is None else rng.permutation(len(part.labels))
    for rows in np.split(order, np.arange(batch_size, len(order), batch_size)):
        yield {"images": torch.from_numpy(part.take(rows)), "labels": torch.from_numpy(part.labels[rows])}


def _digits() -> tuple[dict[str, np.ndarray], str, str]:
    """scikit-learn's digits; every third is a test image."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    test = np.arange(len(bunch.target)) % 3 == 0
    arrays = {f"x_{part}": bunch.images[rows] for part, rows in (("train", ~test), ("test", test))}
    arrays |= {f"y_{part}": bunch.target[rows] for part, rows in (("train", ~test), ("test", test))}
    return arrays, "scikit-learn load_digits", hashlib.sha256(bunch.images.tobytes() + bunch.target.tobytes()).hexdigest()


def _npz(name: str, found: Sequence[Path]) -> tuple[dict[str, np.ndarray], str, str]:
    """The four arrays of one .npz."""
    if len(found) != 1 or found[0].suffix != ".npz":
        raise ValueError(f"images {name!r} need {WANTED}; got {[path.name for path in found]}")
    with np.load(found[0], allow_pickle=False) as archive:
        arrays = {key: archive[key] for key in ("x_train", "y_train", "x_test", "y_test") if key in archive.files}
    shapes = {key: array.shape for key, array in arrays.items()}
    sides = {shape[1:] for key, shape in shapes.items() if key.startswith("x_")}
    square = len(sides) == 1 and len(side := next(iter(sides))) == 2 and side[0] == side[1]
    if len(arrays) < 4 or not square or any(shapes[f"y_{part}"] != shapes[f"x_{part}"][:1] for part in ("train", "test")):
        raise ValueError(f"{str(found[0])!r} must hold {WANTED}, with square grey images and a label each; got {shapes}")
    return arrays, f"pixels of {found[0].name}", parts.hash_files(found)


def _of_arrays(name: str, arrays: dict[str, np.ndarray], source: str, sha256: str, seed: int, max_train: int, max_test: int) -> Pictures:
    """A tenth of the training images, class by class, is for validation."""
    labels = np.asarray(arrays["y_train"]).astype(np.int64)
    rows = parts.partition(labels, (min(1.0, max_train / (0.9 * len(labels))) * 0.9, 0.1), seed)  # "test": the rows that are kept
    mean, scale = arrays["x_train"].mean(), arrays["x_train"].std()

    def part(x: np.ndarray, y: np.ndarray) -> Arrays:
        return Arrays(((x - mean) / scale).astype(np.float32)[:, None], np.asarray(y).astype(np.int64))

    train, validation = (part(arrays["x_train"][rows[key]], labels[rows[key]]) for key in ("test", "validation"))
    test = part(arrays["x_test"][:max_test], arrays["y_test"][:max_test])
    n_classes = parts.check_classes(name, {key: p.labels.tolist() for key, p in zip(("train", "test"), (train, test))})
    return Pictures(name, train, validation, test, train.images.shape[-1], 1, n_classes, source, sha256)


def _of_files(name: str, place: Path, seed: int, max_train: int, max_test: int, side: int) -> Pictures:
    """`val` is the test part; a hundredth of `train`, class by class, is for validation."""
    classes = sorted(path.name for path in (place / "train").iterdir() if path.is_dir())
    listed = {part: _listed(place / part, classes) for part in ("train", "val")}
    (train, labels), (test, test_labels) = listed["train"], listed["val"]
    if not train or not test:
        raise FileNotFoundError(f"{str(place)!r} holds no images; {WANTED}")
    rows = parts.partition(labels, (0.0, 0.01), seed)
    kept = np.sort(np.random.default_rng([seed, 2]).permutation(rows["train"])[:max_train])
    chosen = np.sort(np.random.default_rng(0).permutation(len(test))[:max_test])
    digest = hashlib.sha256("\n".join(str(path.relative_to(place)) for path in (*train, *test)).encode()).hexdigest()
    return Pictures(
        name, Files([train[row] for row in kept], labels[kept], side, np.random.default_rng([seed, 3])),
        Files([train[row] for row in rows["validation"]], labels[rows["validation"]], side),
        Files([test[row] for row in chosen], test_labels[chosen], side), side, 3, len(classes), f"files of {name}", digest,
    )  # fmt: skip


def _listed(place: Path, classes: Sequence[str]) -> tuple[list[Path], np.ndarray]:
    """Files class by class, and their labels."""
    found = [sorted(path for path in (place / name).glob("*") if path.is_file()) for name in classes]
    return [path for group in found for path in group], np.repeat(np.arange(len(classes)), [len(group) for group in found])


def _middle(size: tuple[int, int]) -> tuple[float, float, float, float]:
    """The square in the middle that a test image is cut to, in pixels: left, upper, right, lower."""
    half = min(size) / WHOLE / 2
    return size[0] / 2 - half, size[1] / 2 - half, size[0] / 2 + half, size[1] / 2 + half


def _random_box(size: tuple[int, int], rng: np.random.Generator) -> tuple[float, float, float, float]:
    """A random part of the area, with sides 3:4 to 4:3, as far as the image holds it."""
    area, ratio = rng.uniform(*CUT) * size[0] * size[1], np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3)))
    width, height = min(np.sqrt(area * ratio), size[0]), min(np.sqrt(area / ratio), size[1])
    left, upper = rng.uniform(0, size[0] - width), rng.uniform(0, size[1] - height)
    return left, upper, left + width, upper + height
