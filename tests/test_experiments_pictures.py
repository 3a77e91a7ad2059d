"""Images from digits, an .npz and a folder of files: parts, scaling, order of batches, refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.pictures import batches, pictures


def _npz(folder: Path, **changes: np.ndarray) -> Path:
    rng = np.random.default_rng(0)
    arrays = {f"x_{part}": rng.integers(0, 256, (n, 6, 6), dtype=np.uint8) for part, n in (("train", 60), ("test", 20))}
    arrays |= {f"y_{part}": np.arange(n) % 3 for part, n in (("train", 60), ("test", 20))}
    (folder / "planted").mkdir()
    np.savez(folder / "planted" / "planted.npz", **(arrays | changes))
    return folder


def _files(folder: Path) -> Path:
    """Four bright and four dark images of a size that is no square, in ImageNet's layout."""
    from PIL import Image

    for part in ("train", "val"):
        for label, value in (("bright", 250), ("dark", 5)):
            (folder / "tree" / part / label).mkdir(parents=True)
            for k in range(4):
                Image.new("RGB", (20, 14), (value, value, value)).save(folder / "tree" / part / label / f"{k}.png")
    return folder


def test_digits_have_three_parts_of_scaled_images() -> None:
    data = pictures("digits", max_train=300, max_test=100)
    assert data.train.take(np.arange(5)).shape == (5, 1, 8, 8)
    assert (data.side, data.channels, data.n_classes) == (8, 1, 10)
    assert abs(len(data.train.labels) - 300) <= 10
    assert len(data.test.labels) == 100
    images = data.train.take(np.arange(len(data.train.labels)))
    assert abs(float(images.mean())) < 0.05
    assert abs(float(images.std()) - 1) < 0.05


def test_seed_changes_training_rows_and_never_the_test_part(tmp_path: Path) -> None:
    folder = str(_npz(tmp_path))
    one, same, other = (pictures("planted", folder, seed=seed, max_train=30, max_test=20) for seed in (0, 0, 1))
    everything = [data.train.take(np.arange(len(data.train.labels))) for data in (one, same, other)]
    assert np.array_equal(everything[0], everything[1])
    assert not np.array_equal(everything[0], everything[2])
    assert np.array_equal(one.test.take(np.arange(20)), other.test.take(np.arange(20)))
    assert one.sha256 == other.sha256
    assert np.bincount(one.train.labels).tolist() == [10, 10, 10]


def test_more_rows_than_there_are_keeps_all_but_the_validation_part(tmp_path: Path) -> None:
    data = pictures("planted", str(_npz(tmp_path)), max_train=1000, max_test=1000)
    assert [len(part.labels) for part in (data.train, data.validation, data.test)] == [54, 6, 20]


def test_batches_hold_every_row_once_and_shuffle_with_an_rng(tmp_path: Path) -> None:
    part = pictures("planted", str(_npz(tmp_path)), max_train=1000, max_test=20).train
    plain = np.concatenate([batch["labels"].numpy() for batch in batches(part, 16)])
    mixed = np.concatenate([batch["labels"].numpy() for batch in batches(part, 16, np.random.default_rng(0))])
    assert np.array_equal(plain, part.labels)
    assert not np.array_equal(mixed, plain)
    assert np.array_equal(np.sort(mixed), np.sort(plain))


def test_files_are_cut_to_squares_and_keep_their_labels(tmp_path: Path) -> None:
    data = pictures("tree", str(_files(tmp_path)), max_train=100, max_test=100, side=8)
    assert (data.n_classes, data.channels, data.side) == (2, 3, 8)
    images = data.test.take(np.arange(len(data.test.labels)))
    assert images.shape == (8, 3, 8, 8)
    assert images.dtype == np.float32
    assert np.array_equal(images.mean((1, 2, 3)) > 0, data.test.labels == 0)


def test_what_is_missing_or_wrong_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELGAS_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="data must be a folder with the images"):
        pictures("mnist_subset", max_train=10, max_test=10)
    with pytest.raises(FileNotFoundError, match="planted"):
        pictures("planted", str(tmp_path), max_train=10, max_test=10)
    folder = str(_npz(tmp_path, x_test=np.zeros((20, 5, 6))))
    with pytest.raises(ValueError, match="square grey images"):
        pictures("planted", folder, max_train=10, max_test=10)
