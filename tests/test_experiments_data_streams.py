"""Running text: whole articles or lines in each part, a vocabulary of the training part, blocks that predict every token once."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.data import UNKNOWN, load_stream
from experiments.data.files import placed
from experiments.data.running_text import TEXT_ENDS

REAL = os.environ.get("KERNELGAS_DATA")
needs_data = pytest.mark.skipif(not REAL, reason="KERNELGAS_DATA does not name a folder of real data sets")


def articles(first: int, last: int) -> str:
    """Articles as WikiText has them."""
    return "".join(f" \n = Title {k} = \n \n = = Part = = \n \n text number {k} , <unk> . \n" for k in range(first, last))


def place(folder: Path, **texts: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text)
    return folder


@pytest.fixture
def wiki(tmp_path: Path) -> Path:
    return place(tmp_path / "wikitext-mine", train=articles(0, 8), valid=articles(8, 10), test=articles(10, 13))


def test_words_end_lines_and_keep_the_unknown_word(wiki):
    stream = load_stream("wikitext-mine", wiki.parent, min_count=1)
    lines = articles(0, 8).count("\n")
    assert len(stream.train) == stream.n_words["train"] == len(articles(0, 8).split()) + lines
    assert (stream.train == 2).sum() == lines  # the most frequent word ends a line
    assert (stream.train == UNKNOWN).sum() == 8
    assert (stream.test == UNKNOWN).sum() == 3 * (1 + 2)  # and the two numbers of an article, which the training part doesn't have
    assert stream.n_bytes["test"] == len(articles(10, 13))
    assert stream.train.max() == stream.vocab_size - 1


def test_the_vocabulary_comes_from_the_training_part(wiki):
    before = load_stream("wikitext-mine", wiki.parent)
    (wiki / "valid.txt").write_text(articles(8, 10) + " zebra zebra zebra \n")
    after = load_stream("wikitext-mine", wiki.parent)
    assert after.vocab_size == before.vocab_size
    np.testing.assert_array_equal(after.train, before.train)
    assert after.sha256 != before.sha256


def test_bytes_and_characters_give_the_text_back(tmp_path):
    text = "To be, or not to be: café?\n" * 60
    place(tmp_path / "plays", input=text)
    stream = load_stream("plays", tmp_path, tokeniser="bytes")
    assert bytes((np.concatenate([stream.train, stream.validation, stream.test]) - 2).tolist()).decode() == text
    letters = load_stream("plays", tmp_path, tokeniser="characters")
    assert letters.vocab_size == 2 + len(set(text))
    assert sum(len(part) for part in (letters.train, letters.validation, letters.test)) == len(text)
    assert letters.source == "input.txt, cut 90/5/5 in order at line ends"
    assert len(letters.train) % 27 == len(letters.validation) % 27 == 0
    assert load_stream("plays", tmp_path, tokeniser="characters", vocab_size=6).train.max() == 5


def test_wordpieces_mark_the_ends_of_lines(wiki):
    pytest.importorskip("tokenizers")
    stream = load_stream("wikitext-mine", wiki.parent, tokeniser="wordpiece", vocab_size=90)
    assert (stream.train == 2).sum() == articles(0, 8).count("\n")
    assert stream.train.max() < stream.vocab_size <= 90


def test_held_out_text_trains_on_whole_articles(tmp_path):
    place(tmp_path / "wikitext-held", valid=articles(0, 20), test=articles(20, 23))
    stream = load_stream("wikitext-held", tmp_path, tokeniser="bytes")
    text = {part: bytes((getattr(stream, part) - 2).tolist()).decode() for part in ("train", "validation", "test")}
    assert text["train"] + text["validation"] == articles(0, 20)
    assert text["validation"].startswith(" = Title 18 = \n")
    assert "of the validation text the first 18 of 20 articles train and the others validate" in stream.source


def test_reviews_are_put_one_after_the_other(tmp_path):
    (tmp_path / "imdb").mkdir()
    for part, word in (("train", "good"), ("test", "bad")):
        rows = "\n".join(f"1\t{word} film {k}" for k in range(20))
        (tmp_path / "imdb" / f"{part}.tsv.gz").write_bytes(gzip.compress(f"label\ttext\n{rows}\n".encode()))
    stream = load_stream("imdb", tmp_path, tokeniser="bytes")
    assert bytes((stream.validation - 2).tolist()) == b"good film 18\ngood film 19\n"
    assert len(stream.test) == stream.n_bytes["test"]


def test_limits_keep_the_start(wiki):
    stream = load_stream("wikitext-mine", wiki.parent, tokeniser="bytes", max_train=30, max_test=20)
    assert (len(stream.train), len(stream.test)) == (30, 20)
    assert len(stream.validation) == len(articles(8, 10))


def test_the_second_call_is_free_and_streams_are_read_only(wiki):
    stream = load_stream("wikitext-mine", wiki.parent)
    assert load_stream("wikitext-mine", wiki.parent) is stream
    with pytest.raises(ValueError, match="read-only"):
        stream.train[0] = 5


@pytest.mark.parametrize(("n", "length", "size"), [(100, 10, 4), (101, 10, 4), (57, 8, 3), (11, 10, 1), (12, 10, 5)])
@pytest.mark.parametrize("rng", [None, 3])
def test_blocks_predict_every_token_but_the_first_once(tmp_path, n, length, size, rng):
    place(tmp_path / "s", train="".join(map(chr, range(32, 32 + n))), valid="ab\n" * 9, test="ab\n" * 9)
    stream = load_stream("s", tmp_path, tokeniser="characters")
    blocks = stream.blocks("train", length, size, rng)
    batches = list(blocks)
    assert len(batches) == len(blocks)
    assert all(batch["tokens"].shape[1] == length and len(batch["tokens"]) <= size for batch in batches)
    targets = torch.cat([batch["targets"].flatten() for batch in batches])
    kept = targets[targets != -100]
    assert sorted(kept.tolist()) == sorted(stream.train[1:].tolist())
    if rng is None:
        np.testing.assert_array_equal(kept.numpy(), stream.train[1:])
    for batch in batches:
        same = batch["targets"][:, :-1] == batch["tokens"][:, 1:]
        assert bool((same | (batch["targets"][:, :-1] == -100)).all())


def test_blocks_are_shuffled_anew_on_every_pass(wiki):
    blocks = load_stream("wikitext-mine", wiki.parent, tokeniser="bytes").blocks("train", 4, 8, rng=0)
    first, second = (next(iter(blocks))["tokens"] for _ in range(2))
    assert not torch.equal(first, second)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"part": "dev"}, "part must be one of"),
        ({"length": 10_000}, "length must be below the .* tokens of the train part, got 10000"),
        ({"batch_size": 0}, "batch_size must be"),
    ],
)
def test_bad_blocks(wiki, options, message):
    stream = load_stream("wikitext-mine", wiki.parent)
    with pytest.raises(ValueError, match=message):
        stream.blocks(**({"part": "train", "length": 4, "batch_size": 2} | options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokeniser": "letters"}, "tokeniser must be one of"),
        ({"tokeniser": "bytes", "vocab_size": 9}, "vocab_size has no meaning for bytes, got 9"),
        ({"vocab_size": 1}, "vocab_size must be an integer of at least 3"),
        ({"max_train": 1}, "max_train must be an integer of at least 2"),
        ({"hub": 1}, "hub must be True or False"),
    ],
)
def test_bad_settings(wiki, options, message):
    with pytest.raises(ValueError, match=message):
        load_stream("wikitext-mine", wiki.parent, **options)


def test_a_known_text_is_its_folder_or_its_file_and_nothing_that_lies_beside_them(tmp_path):
    (tmp_path / "notes.txt").write_text("not Shakespeare\n" * 60)
    with pytest.raises(FileNotFoundError, match="no data files for 'tinyshakespeare'"):
        load_stream("tinyshakespeare", tmp_path, tokeniser="characters")
    (tmp_path / "tinyshakespeare.txt").write_text("To be\n" * 60)
    assert load_stream("tinyshakespeare", tmp_path, tokeniser="characters").source.startswith("tinyshakespeare.txt, cut")
    place(tmp_path / "tinyshakespeare", input="or not\n" * 60)
    for folder in (tmp_path, tmp_path / "tinyshakespeare"):
        assert load_stream("tinyshakespeare", folder, tokeniser="characters").source.startswith("input.txt, cut")


def test_advice_on_missing_files_names_the_hub_to_callers_alone(tmp_path):
    with pytest.raises(FileNotFoundError, match="in Python, hub=True reads Salesforce/wikitext"):
        load_stream("wikitext-2", tmp_path)
    with pytest.raises(FileNotFoundError) as told:
        placed("wikitext-2", str(tmp_path), TEXT_ENDS)
    assert "hub" not in str(told.value)


def test_folders_that_cannot_be_used(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"wikitext-103 needs wikitext-103/wiki.\{train,valid,test\}.tokens, from"):
        load_stream("wikitext-103", tmp_path)
    place(tmp_path / "two", a="x\n", b="y\n")
    with pytest.raises(ValueError, match="cannot tell the parts of 'two'"):
        load_stream("two", tmp_path)
    place(tmp_path / "untested", train="x\n", valid="y\n")
    with pytest.raises(ValueError, match="needs a test part"):
        load_stream("untested", tmp_path)
    place(tmp_path / "wikitext-short", valid=articles(0, 1), test=articles(1, 2))
    with pytest.raises(ValueError, match="1 articles are too few"):
        load_stream("wikitext-short", tmp_path)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "input.txt.gz").write_bytes(b"not gzip")
    with pytest.raises(ValueError, match="cannot read"):
        load_stream("broken", tmp_path)


@needs_data
def test_real_held_out_wikitext_has_the_published_tokens():
    stream = load_stream("wikitext2_heldout", REAL)
    assert len(stream.train) + len(stream.validation) == 217_646
    assert len(stream.test) == 245_569
    assert "first 54 of 60 articles" in stream.source


@needs_data
def test_real_shakespeare_has_the_published_characters():
    stream = load_stream("tinyshakespeare", REAL, tokeniser="characters")
    assert sum(len(part) for part in (stream.train, stream.validation, stream.test)) == 1_115_394
    assert stream.vocab_size == 65 + 2
