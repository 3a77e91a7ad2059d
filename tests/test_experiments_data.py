"""experiments/data/: digits, text and pixel folders, batches, and clear errors for folders that can't be used."""

from __future__ import annotations

import gzip
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.data import PAD, UNKNOWN, Split, load, named, patches, words

REAL = os.environ.get("KERNELGAS_DATA")


def write(path: Path, header: str, rows: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(("\n".join([header, *rows]) + "\n").encode()))
    return path


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    rows = [
        f'{k % 2}\t{part}\t{"good" if k % 2 else "bad"} film "{k}" it\'s' for part in ("train", "validation", "test") for k in range(10)
    ]
    write(tmp_path / "films" / "films.tsv.gz", "label\tsplit\tsentence", rows)
    return tmp_path


def split_of(n: int) -> Split:
    return Split(np.arange(2 * n).reshape(n, 2), np.ones((n, 2), bool), np.arange(n))


# ---- digits ------------------------------------------------------------------------------------------------------------------------------


def test_digits_are_sixteen_scaled_tokens():
    data = load("digits")
    assert (data.input_dim, data.vocab_size, data.n_classes, data.max_length) == (4, None, 10, 16)
    assert data.train.tokens.dtype == np.float32
    assert len(data.train) + len(data.validation) + len(data.test) == 1797
    flat = data.train.tokens.reshape(len(data.train), -1)
    assert np.abs(flat.mean(0)).max() < 1e-4
    assert set(np.round(flat.std(0), 3)) <= {0.0, 1.0}
    assert data.train.key_mask.all()


def test_digits_parts_depend_on_the_seed_only():
    first, again, other = load("digits", seed=1), load("digits", seed=1), load("digits", seed=2)
    np.testing.assert_array_equal(first.test.tokens, again.test.tokens)
    assert not np.array_equal(first.test.labels, other.test.labels)
    assert first.sha256 == other.sha256
    shares = np.bincount(first.test.labels) / np.bincount(np.concatenate([first.train.labels, first.validation.labels, first.test.labels]))
    assert np.abs(shares - 1 / 3).max() < 0.01


def test_max_train_keeps_all_classes():
    data = load("digits", max_train=100)
    assert 95 <= len(data.train) <= 105
    assert len(np.unique(data.train.labels)) == 10
    with pytest.raises(ValueError, match=r"max_train must be at least .* 10, got 3"):
        load("digits", max_train=3)


def test_patches_are_cut_row_by_row():
    image = np.arange(16.0).reshape(1, 4, 4)
    np.testing.assert_array_equal(patches(image, 2)[0], [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]])
    with pytest.raises(ValueError, match="patches of 3 do not divide"):
        patches(image, 3)


def test_the_name_is_the_given_one_else_the_folders(texts, monkeypatch):
    assert named(None, None) == load().name == "digits"
    assert named("a", texts) == "a"
    assert named(None, texts / "films" / ".." / "films") == "films"
    monkeypatch.chdir(texts / "films")
    assert load(folder=".").name == "films"


# ---- batches -----------------------------------------------------------------------------------------------------------------------------


def test_batches_are_reiterable_and_hold_every_row_once():
    batches = split_of(7).batches(3)
    for _ in range(2):
        seen = list(batches)
        assert [len(batch["labels"]) for batch in seen] == [3, 3, 1]
        assert len(batches) == 3
        assert torch.equal(torch.cat([batch["labels"] for batch in seen]), torch.arange(7))
        assert seen[0]["key_mask"].dtype == torch.bool


def test_batches_shuffle_anew_on_every_pass():
    batches = split_of(50).batches(50, rng=3)
    first, second = (next(iter(batches)) for _ in range(2))
    assert not torch.equal(first["labels"], second["labels"])
    assert torch.equal(first["labels"].sort().values, torch.arange(50))
    assert torch.equal(first["tokens"][:, 0], 2 * first["labels"])
    assert torch.equal(next(iter(split_of(50).batches(50, rng=3)))["labels"], first["labels"])


@pytest.mark.parametrize("size", [0, -1, 2.5, True])
def test_batches_refuse_a_bad_size(size):
    with pytest.raises(ValueError, match="batch_size must be a positive integer"):
        split_of(4).batches(size)


# ---- texts -------------------------------------------------------------------------------------------------------------------------------


def test_words():
    assert words("It's  GOOD -- really!?") == ["it's", "good", "really", "!", "?"]


@pytest.mark.parametrize("inside", [True, False])
def test_text_folder_with_a_split_column(texts, inside):
    data = load("films", texts / "films" if inside else texts)
    assert (len(data.train), len(data.validation), len(data.test)) == (10, 10, 10)
    assert (data.n_classes, data.max_length, data.input_dim) == (2, 40, None)
    assert data.vocab_size == 2 + 4  # film, it's, bad, good; the numbers occur once each
    assert data.train.tokens.max() == data.vocab_size - 1
    np.testing.assert_array_equal(data.train.key_mask, data.train.tokens != PAD)
    np.testing.assert_array_equal(data.train.key_mask.sum(1), 4)
    assert (data.train.tokens[:, 2] == UNKNOWN).all()


def test_text_vocabulary_comes_from_the_training_part(tmp_path):
    write(tmp_path / "a_train.tsv.gz", "label\ttext", ["0\tred", "1\tblue"] * 10)
    write(tmp_path / "a_test.tsv.gz", "label\ttext", ["0\tgreen green", "1\t"])
    data = load("a", tmp_path, max_length=3)
    np.testing.assert_array_equal(data.test.tokens, [[UNKNOWN, UNKNOWN, PAD], [UNKNOWN, PAD, PAD]])
    assert data.test.key_mask.any(1).all()


def test_text_parts_are_chosen_by_the_prefix_with_most_parts(tmp_path):
    for stem in ("phrases_train", "glue_dev", "sentences_train", "sentences_dev", "sentences_test"):
        write(tmp_path / f"{stem}.tsv.gz", "label\tsentence", [f"{k % 2}\t{stem} {k}" for k in range(4)])
    data = load("sst2", tmp_path)
    assert data.source == "words of sentences_dev.tsv.gz, sentences_test.tsv.gz, sentences_train.tsv.gz"
    assert len(data.train) == len(data.validation) == len(data.test) == 4


def test_text_parts_are_made_where_there_are_none(tmp_path):
    write(tmp_path / "subj.tsv.gz", "label\tsentence", [f"{'yes' if k % 2 else 'no'}\tword {k}" for k in range(100)])
    data = load("subj", tmp_path, seed=1)
    assert (len(data.train), len(data.validation), len(data.test)) == (80, 10, 10)
    assert data.train.labels.mean() == data.test.labels.mean() == 0.5


def test_numeric_classes_are_ordered_by_value_and_pairs_are_joined(tmp_path):
    rows = [f"{k % 11}\tfirst\tsecond" for k in range(22)]
    for part in ("train", "test", "dev"):
        write(tmp_path / f"{part}.tsv.gz", "label\tsentence1\tsentence2", rows)
    data = load("pairs", tmp_path)
    np.testing.assert_array_equal(data.test.labels, np.arange(22) % 11)
    assert data.test.key_mask.sum(1).tolist() == [3] * 22


# ---- pixels ------------------------------------------------------------------------------------------------------------------------------


def pixel_arrays(n: int = 20) -> dict[str, np.ndarray]:
    images = np.random.default_rng(0).integers(0, 256, (n, 8, 8), dtype=np.uint8)
    return {"x_train": images, "y_train": np.arange(n) % 2, "x_test": images, "y_test": np.arange(n) % 2}


def test_pixel_folder(tmp_path):
    np.savez(tmp_path / "grey.npz", **pixel_arrays())
    data = load("grey", tmp_path)
    assert (data.input_dim, data.max_length, data.n_classes, data.vocab_size) == (16, 4, 2, None)
    assert (len(data.train), len(data.validation), len(data.test)) == (18, 2, 20)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y_test": None}, "lacks the arrays"),
        ({"x_test": np.zeros((20, 8), np.uint8)}, "must be"),
        ({"y_test": np.arange(19) % 2}, "must be"),
        ({"y_test": np.full(20, 7)}, "does not have"),
        ({"y_test": np.full(20, -1)}, "class numbers"),
        ({"x_test": np.full((20, 8, 8), np.nan)}, "not finite"),
        ({"y_train": np.zeros(20, int), "y_test": np.zeros(20, int)}, "single class"),
    ],
)
def test_pixel_folder_errors(tmp_path, change, message):
    np.savez(tmp_path / "grey.npz", **{key: value for key, value in (pixel_arrays() | change).items() if value is not None})
    with pytest.raises(ValueError, match=message):
        load("grey", tmp_path)


def test_pixel_file_that_is_no_archive(tmp_path):
    (tmp_path / "grey.npz").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=rf"cannot read '{re.escape(str(tmp_path))}/grey.npz'"):
        load("grey", tmp_path)


# ---- folders that can't be used ----------------------------------------------------------------------------------------------------------


def test_missing_and_empty_folders_name_the_files_to_place(tmp_path):
    for name, folder in (("imdb", None), ("imdb", tmp_path / "absent"), ("imdb", tmp_path)):
        with pytest.raises(FileNotFoundError, match=r"\*\.tsv or \*\.tsv\.gz .* label and sentence"):
            load(name, folder)
    (tmp_path / "inner").mkdir()
    with pytest.raises(FileNotFoundError, match="folders inside it: inner"):
        load("imdb", tmp_path)


@pytest.mark.parametrize(
    ("header", "rows", "message"),
    [
        ("label\tsentence", [], "has no rows"),
        ("score\tsentence", ["1\ta"], "needs the columns label and sentence"),
        ("label\ttitle", ["1\ta"], "needs the columns label and sentence"),
        ("label\tsentence", ["1\ta", "0\tb\tc"], "line 3 has 3 fields, the header has 2"),
        ("label\tsentence", ["1\ta", "?\tb"], "line 3 has no label"),
        ("label\tsentence", ["1\ta"] * 20, "single class"),
        ("label\tsentence", ["0\ta", "1\tb"] * 19 + ["xyz\tc"] * 2, r"t.tsv.gz' has both numbers and text .* text: 'xyz' on 2 of 40 rows"),
        ("label\tsentence", ["no\ta", "yes\tb"] * 19 + ["-1.5\tc"], r"the numbers: '-1.5' on 1 of 39 rows"),
        ("label\tsplit\tsentence", ["1\tlearn\ta"], "split must be one of"),
        ("label\tsplit\tsentence", ["1\ttrain\ta", "0\ttrain\tb"], "needs a train and a test part"),
        ("label\tsplit\tsentence", [f"{k % 2}\ttrain\ta" for k in range(20)] + ["7\ttest\tb"], "does not have"),
    ],
)
def test_mislabelled_tables(tmp_path, header, rows, message):
    write(tmp_path / "t.tsv.gz", header, rows)
    with pytest.raises(ValueError, match=message):
        load("t", tmp_path)


def test_labels_with_a_plus_are_numbers(tmp_path):
    write(tmp_path / "t.tsv.gz", "label\tsentence", ["+1\tgood", "-1\tbad"] * 20)
    assert load("t", tmp_path).n_classes == 2


def test_errors_name_the_folder_of_the_file(tmp_path):
    (tmp_path / "train.tsv").write_text("label\ttext\n0\ta\n1\tb\n")
    (tmp_path / "test.tsv").write_text("score\ttext\n0\ta\n")
    with pytest.raises(ValueError, match=rf"'{re.escape(str(tmp_path))}/test.tsv' needs the columns label"):
        load("t", tmp_path)


def test_unreadable_tables(tmp_path):
    (tmp_path / "t.tsv.gz").write_bytes(b"not gzip")
    with pytest.raises(ValueError, match=rf"cannot read '{re.escape(str(tmp_path))}/t.tsv.gz'"):
        load("t", tmp_path)
    (tmp_path / "t.tsv.gz").write_bytes(gzip.compress(b"label\tsentence\n1\t\xff\xfe"))
    with pytest.raises(ValueError, match=rf"cannot read '{re.escape(str(tmp_path))}/t.tsv.gz'"):
        load("t", tmp_path)


def test_several_tables_without_parts(tmp_path):
    for stem in ("one", "two"):
        write(tmp_path / f"{stem}.tsv.gz", "label\tsentence", ["0\ta", "1\tb"])
    with pytest.raises(ValueError, match="cannot tell the parts"):
        load("t", tmp_path)


@pytest.mark.parametrize("option", [{"max_length": 0}, {"min_count": 0}])
def test_bad_text_options(texts, option):
    with pytest.raises(ValueError, match=f"{next(iter(option))} must be at least 1, got 0"):
        load("films", texts, **option)


# ---- real folders, where they are at hand ------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not REAL, reason="KERNELGAS_DATA does not name a folder of real data sets")
@pytest.mark.parametrize(
    ("name", "sizes", "n_classes"),
    [
        ("rotten_tomatoes", (8530, 1066, 1066), 2),
        ("sst2", (6920, 872, 1821), 2),
        ("trec", (4906, 546, 500), 6),
        ("mnist_subset", (9001, 999, 10000), 10),
    ],
)
def test_real_folders(name, sizes, n_classes):
    data = load(name, REAL)
    assert (len(data.train), len(data.validation), len(data.test)) == sizes
    assert data.n_classes == n_classes
    again = load(name, Path(REAL) / name)
    assert again.sha256 == data.sha256
