"""Loading by name: the files of the named sets, limits, pairs, scores, pixels, what is shared and what is refused; trimmed batches."""

from __future__ import annotations

import gzip
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from attention.config import ModelConfig
from attention.model import Transformer
from experiments.data import PAD, ListOps, Pathfinder, Split, load
from experiments.data.images import pooled

REAL = os.environ.get("KERNELGAS_DATA")
SIZES = {"max_train": 20, "max_validation": 10, "max_test": 10}
SHORT = ListOps(min_length=10, max_length=30, max_depth=5)


def write(path: Path, header: str, rows: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(("\n".join([header, *rows]) + "\n").encode()))
    return path


@pytest.fixture
def films(tmp_path: Path) -> Path:
    for part, n in (("train", 200), ("dev", 60), ("test", 100)):
        write(tmp_path / "films" / f"{part}.tsv.gz", "label\tsentence", [f"{k % 4 // 3}\t{part} film number {k}" for k in range(n)])
    return tmp_path


# ---- limits ------------------------------------------------------------------------------------------------------------------------------


def test_limits_keep_the_share_of_each_class_in_every_part(films):
    data = load("films", films, max_train=40, max_validation=20, max_test=48, tokeniser="bytes")
    assert (len(data.train), len(data.validation), len(data.test)) == (40, 20, 48)
    for split in (data.train, data.validation, data.test):
        assert split.labels.mean() == 0.25
    other = load("films", films, seed=1, max_train=40, tokeniser="bytes")
    assert not np.array_equal(other.train.tokens, data.train.tokens)


def test_the_vocabulary_comes_from_the_rows_that_are_kept(films):
    assert load("films", films, max_train=40, min_count=1).vocab_size < load("films", films, min_count=1).vocab_size


@pytest.mark.parametrize(("limit", "value"), [("max_train", 0), ("max_validation", 1.5), ("max_test", True), ("max_test", 1)])
def test_bad_limits(films, limit, value):
    with pytest.raises(ValueError, match=f"{limit} must be"):
        load("films", films, **{limit: value})


# ---- sharing -----------------------------------------------------------------------------------------------------------------------------


def test_the_second_call_returns_the_same_until_the_files_change(films):
    data = load("films", films)
    assert load("films", str(films)) is data
    assert load("films", films, max_length=3) is not data
    write(films / "films" / "test.tsv.gz", "label\tsentence", ["0\tnew", "1\tfilm"])
    assert len(load("films", films).test) == 2


def test_arrays_are_read_only_and_batches_are_not(films):
    data = load("films", films)
    for array in (data.train.tokens, data.train.key_mask, data.test.labels):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    batch = next(iter(data.train.batches(4)))
    batch["tokens"][0] = 0
    assert data.train.tokens[0].any()


# ---- named sets --------------------------------------------------------------------------------------------------------------------------


def test_phrases_train_and_sentences_test(tmp_path):
    for stem in ("phrases_train", "glue_dev", "sentences_train", "sentences_dev", "sentences_test"):
        column = "phrase" if stem == "phrases_train" else "sentence"
        write(tmp_path / "sst2" / f"{stem}.tsv.gz", f"label\t{column}", [f"{k % 2}\t{stem} {k}" for k in range(4)])
    assert load("sst2", tmp_path).source == "words of sentences_dev.tsv.gz, sentences_test.tsv.gz, sentences_train.tsv.gz"
    assert load("sst2_phrases", tmp_path).source == "words of glue_dev.tsv.gz, phrases_train.tsv.gz, sentences_test.tsv.gz"
    (tmp_path / "sst2" / "glue_dev.tsv.gz").unlink()
    with pytest.raises(FileNotFoundError, match=r"sst2_phrases needs sst2/\{phrases_train,glue_dev,sentences_test\}"):
        load("sst2_phrases", tmp_path)


def test_an_unlabelled_test_file_is_not_read_where_the_set_is_known_for_it(tmp_path):
    for part, label in (("train", None), ("dev", None), ("test", "?")):
        rows = [f"{label or k % 2}\tone {k}\ttwo {part}" for k in range(20)]
        write(tmp_path / "rte" / f"{part}.tsv.gz", "label\tsentence1\tsentence2", rows)
    data = load("rte", tmp_path)
    assert (len(data.train), len(data.validation), len(data.test)) == (18, 2, 20)
    assert data.source == "words of dev.tsv.gz, train.tsv.gz"


def test_scores_are_labels_of_one_class(tmp_path):
    for part in ("train", "dev", "test"):
        rows = [f"{k / 4}\tfirst {k}\tsecond" for k in range(20)]
        write(tmp_path / f"{part}.tsv.gz", "score\tsentence1\tsentence2", rows)
    data = load("similar", tmp_path, max_train=10)
    assert (data.n_classes, data.test.labels.dtype, len(data.train)) == (1, np.float32, 10)
    np.testing.assert_array_equal(data.test.labels, np.arange(20, dtype=np.float32) / 4)
    write(tmp_path / "test.tsv.gz", "score\tsentence1\tsentence2", ["1\ta\tb", "nan\ta\tb"])
    with pytest.raises(ValueError, match="line 3: score must be a finite number, got 'nan'"):
        load("similar", tmp_path)


# ---- pairs of documents ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    for part, n in (("train", 200), ("test", 80)):
        write(tmp_path / "imdb" / f"{part}.tsv.gz", "label\trating\ttext", [f"{k % 2}\t5\t{part}{k}_{k % 2}" for k in range(n)])
    return tmp_path


def test_review_pairs_say_whether_two_reviews_feel_the_same(reviews):
    data = load("imdb_pairs", reviews, tokeniser="bytes", max_length=40)
    assert (len(data.train), len(data.validation), len(data.test)) == (88, 8, 40)
    used: Counter[str] = Counter()
    for split in (data.train, data.validation, data.test):
        assert split.labels.mean() == 0.5
        for row, label in zip(split.tokens, split.labels):
            first, second = np.split(row[row != PAD], np.flatnonzero(row[row != PAD] == 258))
            pair = [bytes((part[part != 258] - 2).tolist()).decode() for part in (first, second)]
            assert (pair[0][-1] == pair[1][-1]) == bool(label)
            used.update(pair)
    assert set(used.values()) == {1}  # no review is in two pairs, so none is in two parts
    assert data.source == "bytes of pairs of test.tsv.gz, train.tsv.gz"


def test_the_first_review_does_not_tell_the_label(reviews):
    """Each kind of pair starts as often with a bad review as with a good one."""
    data = load("imdb_pairs", reviews, tokeniser="bytes", max_length=40)
    first = np.array([row[np.flatnonzero(row == 258)[0] - 1] for row in data.test.tokens]) - 2 - ord("0")
    assert {(a, b): n for (a, b), n in Counter(zip(first.tolist(), data.test.labels.tolist())).items()} == {
        (0, 0): 10, (0, 1): 10, (1, 0): 10, (1, 1): 10,
    }  # fmt: skip


def test_citation_pairs_have_no_header(tmp_path):
    for part in ("train", "eval", "test"):
        rows = "\n".join(f"{k % 2}.0\ta{k}\tb{k}\tpaper {part} {k}\tanother" for k in range(6))
        (tmp_path / f"new_aan_pairs.{part}.tsv").write_text(rows + "\n")
    data = load("aan", tmp_path, tokeniser="bytes", max_length=20)
    assert (len(data.train), len(data.validation), len(data.test), data.n_classes) == (6, 6, 6, 2)
    assert bytes((data.test.tokens[0][:7] - 2).tolist()) == b"paper t"
    (tmp_path / "new_aan_pairs.test.tsv").write_text("2.0\ta\tb\tc\td\n")
    with pytest.raises(ValueError, match=r"line 1: label must be 0 or 1, got '2\.0'"):
        load("aan", tmp_path)


# ---- images ------------------------------------------------------------------------------------------------------------------------------


def test_pixels_are_tokens_and_can_be_pooled(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (20, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "grey.npz", x_train=images, y_train=np.arange(20) % 2, x_test=images, y_test=np.arange(20) % 2)
    data = load("grey", tmp_path, tokeniser="pixels")
    np.testing.assert_array_equal(data.test.tokens.reshape(20, 8, 8), images)
    assert (data.vocab_size, data.input_dim, data.max_length) == (256, None, 64)
    small = load("grey", tmp_path, tokeniser="pixels", pool=2)
    np.testing.assert_array_equal(small.test.tokens[0, 0], np.rint(images[0, :2, :2].mean()))
    assert small.source == "pixels of grey.npz, 2 x 2 pooled"
    real = load("grey", tmp_path, patch=1)
    assert (real.input_dim, real.max_length) == (1, 64)


def test_pooling_is_the_mean_of_blocks():
    images = np.arange(32.0, dtype=np.float32).reshape(2, 4, 4)
    np.testing.assert_array_equal(pooled(images, 2)[0], [[2.5, 4.5], [10.5, 12.5]])
    np.testing.assert_array_equal(pooled(images, 1), images)
    with pytest.raises(ValueError, match="pool must divide images of 4 x 4, got 3"):
        pooled(images, 3)


def test_pixels_need_grey_levels(tmp_path):
    images = np.random.default_rng(0).uniform(0, 1, (20, 8, 8))
    np.savez(tmp_path / "grey.npz", x_train=images, y_train=np.arange(20) % 2, x_test=images, y_test=np.arange(20) % 2)
    with pytest.raises(ValueError, match="pixels need grey levels from 0 to 255"):
        load("grey", tmp_path, tokeniser="pixels")


# ---- settings without meaning ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("digits", {"vocab_size": 9}, "vocab_size has no meaning for 'digits', got 9"),
        ("digits", {"tokeniser": "bytes"}, "tokeniser must be patches or pixels for images, got 'bytes'"),
        ("digits", {"tokeniser": "pixels", "patch": 2}, "patch has no meaning for pixels, got 2"),
        ("digits", {"pool": 0}, "pool must be"),
        ("digits", {"rule": ListOps()}, "rule is of listops, pathfinder, each of its own"),
        ("listops", {"rule": Pathfinder()}, "rule is of listops, pathfinder, each of its own"),
        ("listops", {"tokeniser": "bytes", **SIZES}, "tokeniser has no meaning for 'listops'"),
        ("listops", {"pool": 2, **SIZES}, "pool has no meaning for 'listops', got 2"),
        ("digits", {"seed": -1}, "seed must be"),
    ],
)
def test_settings_without_meaning_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        load(name, **options)


def test_generated_sets_make_as_many_as_asked():
    data = load("listops", rule=SHORT, **SIZES)
    assert (len(data.train), len(data.validation), len(data.test)) == (20, 10, 10)
    assert load("listops", rule=SHORT, **SIZES) is data
    assert len(data.sha256) == 64


# ---- batches -----------------------------------------------------------------------------------------------------------------------------


def ragged(n: int = 40, longest: int = 24) -> Split:
    rng = np.random.default_rng(0)
    tokens = rng.integers(2, 9, (n, longest))
    tokens[np.arange(longest) >= rng.integers(1, longest - 3, n)[:, None]] = PAD
    return Split(tokens, tokens != PAD, rng.integers(0, 2, n))


def test_trimmed_batches_end_with_their_longest_row():
    split = ragged()
    for whole, short in zip(split.batches(8), split.batches(8, trim=True), strict=True):
        longest = int(whole["key_mask"].sum(1).max())
        assert short["tokens"].shape == (8, longest)
        assert torch.equal(short["tokens"], whole["tokens"][:, :longest])
        assert not whole["key_mask"][:, longest:].any()
        assert short["tokens"].is_contiguous()


def test_a_row_without_tokens_keeps_one_place():
    split = Split(np.zeros((2, 5), np.int64), np.zeros((2, 5), bool), np.zeros(2, np.int64))
    assert next(iter(split.batches(2, trim=True)))["tokens"].shape == (2, 1)


@pytest.mark.parametrize("attention", ["softmax", "elu", "favor", "cos2", "soft", "nystromformer", "linformer"])
def test_trimming_changes_rounding_only(attention):
    torch.manual_seed(0)
    config = ModelConfig(n_classes=2, max_length=24, vocab_size=9, dim=16, heads=2, ff=16, n_features=8, attention=attention, dropout=0.0)
    model, split = Transformer(config).double().eval(), ragged()
    with torch.no_grad():
        whole = torch.cat([model(batch) for batch in split.batches(8)])
        short = torch.cat([model(batch) for batch in split.batches(8, trim=True)])
    torch.testing.assert_close(short, whole, rtol=1e-9, atol=1e-9)


def test_buckets_hold_every_row_once_and_pad_less():
    split = ragged(400)
    batches = split.batches(8, rng=0, trim=True, bucket=True)
    rows = [batch["tokens"] for batch in batches]
    assert len(rows) == len(batches) == 50
    found = sorted(row[row != PAD].tolist() for batch in rows for row in batch)
    assert found == sorted(row[row != PAD].tolist() for row in split.tokens)
    plain = sum(batch["tokens"].numel() for batch in split.batches(8, rng=0, trim=True))
    assert sum(batch.numel() for batch in rows) < 0.8 * plain
    again = next(iter(batches))["tokens"]
    assert again.shape != rows[0].shape or not torch.equal(again, rows[0])


def test_buckets_need_a_generator():
    with pytest.raises(ValueError, match="bucket needs rng"):
        ragged().batches(8, bucket=True)
    with pytest.raises(ValueError, match="trim must be True or False, got 1"):
        ragged().batches(8, trim=1)


# ---- real folders, where they are at hand ------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not REAL, reason="KERNELGAS_DATA does not name a folder of real data sets")
@pytest.mark.parametrize(
    ("name", "sizes", "n_classes"),
    [
        ("qqp", (18864, 2322, 2311), 2),
        ("cola", (7696, 855, 527), 2),
        ("mrpc", (3669, 407, 1725), 2),
        ("rte", (2241, 249, 277), 2),
        ("stsb", (5749, 1500, 1379), 1),
        ("sst5", (8544, 1101, 2210), 5),
        ("subj", (8000, 1000, 1000), 2),
        ("mnist", (9001, 999, 10000), 10),
        ("cifar10_grey", (9000, 1000, 2000), 10),
    ],
)
def test_real_named_sets(name, sizes, n_classes):
    data = load(name, REAL)
    assert (len(data.train), len(data.validation), len(data.test)) == sizes
    assert data.n_classes == n_classes


@pytest.mark.slow
@pytest.mark.skipif(not REAL, reason="KERNELGAS_DATA does not name a folder of real data sets")
def test_real_phrases_and_reviews():
    assert len(load("sst2_phrases", REAL).train) == 67_349
    data = load("imdb_pairs", REAL, tokeniser="bytes", max_train=1_000, max_test=500, max_validation=200)
    assert (len(data.train), len(data.validation), len(data.test)) == (1_000, 200, 500)
