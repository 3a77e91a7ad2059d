"""Tokenisers of texts: what they learn comes from the training part, is the same on every run, and keeps the start of a text."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from experiments.data import PAD, UNKNOWN, load
from experiments.data.tokenisers import BYTE_SEPARATOR, joined, pair, tokeniser

TEXTS = [("the cat sat on the mat",), ("the dog sat on the log",), ("naïve café",)] * 3
NEW = [("zebra the",)]


def test_words_are_numbered_by_frequency_then_spelling():
    learned = tokeniser("words", TEXTS)
    assert learned.vocab_size == 2 + 9
    assert learned.numbers(["the on sat nothing"], 9) == [[2, 3, 4, UNKNOWN]]
    assert tokeniser("words", TEXTS, vocab_size=4).numbers(["the on sat"], 9) == [[2, 3, UNKNOWN]]
    assert tokeniser("words", TEXTS, min_count=4).numbers(["the on cat"], 9) == [[2, 3, UNKNOWN]]


def test_bytes_need_no_training():
    learned = tokeniser("bytes", TEXTS)
    assert learned.vocab_size == 259
    assert learned.numbers(["é\x00"], 9) == [[0xC3 + 2, 0xA9 + 2, 2]]
    assert learned.numbers(["abc"], 2) == [[99, 100]]


@pytest.mark.parametrize("setting", [{"vocab_size": 100}, {"min_count": 1}])
def test_bytes_refuse_settings_without_meaning(setting):
    with pytest.raises(ValueError, match="has no meaning for bytes"):
        tokeniser("bytes", TEXTS, **setting)


def test_wordpiece_spells_new_words_from_pieces_of_the_training_part():
    pytest.importorskip("tokenizers")
    learned = tokeniser("wordpiece", TEXTS, vocab_size=60)
    assert learned.vocab_size <= 60
    known, new = learned.numbers(["The cat", "tac"], 9)
    assert UNKNOWN not in known
    assert len(known) < 6
    assert len(new) >= 2
    assert learned.numbers(["qqq"], 9) == [[UNKNOWN]]  # a letter that no training text has


def coded_by_pieces() -> list[list[int]]:
    rng = np.random.default_rng(0)
    texts = [(" ".join("".join(chr(97 + i) for i in rng.integers(0, 6, 5)) for _ in range(8)),) for _ in range(60)]
    return tokeniser("wordpiece", texts, vocab_size=150).numbers([text for (text,) in texts[:9]], 99)


def test_wordpiece_is_the_same_on_every_run():
    """The library alone gives another vocabulary on every run."""
    pytest.importorskip("tokenizers")
    code = f"from test_experiments_data_tokenisers import coded_by_pieces; print(coded_by_pieces() == {coded_by_pieces()})"
    here = Path(__file__).parent
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(here), str(here.parent)])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


def test_wordpiece_without_the_library_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install kernelgas\[hf\]"):
        tokeniser("wordpiece", TEXTS)


def test_wordpiece_needs_room_for_the_letters():
    pytest.importorskip("tokenizers")
    with pytest.raises(ValueError, match=r"vocab_size must be at least .* letters, got 10"):
        tokeniser("wordpiece", TEXTS, vocab_size=10)


@pytest.mark.parametrize(
    ("first", "second", "most", "expected"),
    [
        ([1, 2], [3], 9, [1, 2, 0, 3]),
        ([1, 2, 3, 4], [5], 5, [1, 2, 3, 0, 5]),
        ([1], [5, 6, 7, 8], 5, [1, 0, 5, 6, 7]),
        ([1, 2, 3, 4], [5, 6, 7, 8], 5, [1, 2, 0, 5, 6]),
        ([1, 2, 3, 4], [5, 6, 7, 8], 6, [1, 2, 3, 0, 5, 6]),
        ([], [], 5, [0]),
    ],
)
def test_the_longer_text_of_a_pair_is_cut_first_and_both_keep_their_start(first, second, most, expected):
    assert pair(first, second, 0, most) == expected


def test_joined_pads_on_the_right_and_has_no_empty_row():
    learned = tokeniser("bytes", TEXTS)
    np.testing.assert_array_equal(joined(learned, [("a",), ("",)], 3), [[99, PAD, PAD], [UNKNOWN, PAD, PAD]])
    np.testing.assert_array_equal(joined(learned, [("ab", "c")], 5), [[99, 100, BYTE_SEPARATOR, 101, PAD]])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for part, rows in (("train", TEXTS * 4), ("test", NEW * 4)):
        text = "label\tsentence\n" + "\n".join(f"{k % 2}\t{row[0]}" for k, row in enumerate(rows)) + "\n"
        (tmp_path / f"{part}.tsv.gz").write_bytes(gzip.compress(text.encode()))
    return tmp_path


@pytest.mark.parametrize("kind", ["words", "wordpiece"])
def test_nothing_is_learnt_from_other_parts(folder, kind):
    if kind == "wordpiece":
        pytest.importorskip("tokenizers")
    before = load("t", folder, tokeniser=kind)
    (folder / "test.tsv.gz").write_bytes(gzip.compress(("label\tsentence\n" + "0\tthe quick zebra\n1\tjumps\n" * 50).encode()))
    after = load("t", folder, tokeniser=kind)
    assert after.vocab_size == before.vocab_size
    np.testing.assert_array_equal(after.train.tokens, before.train.tokens)
    assert after.sha256 != before.sha256


def test_load_reads_bytes(folder):
    data = load("t", folder, tokeniser="bytes", max_length=8)
    assert data.vocab_size == 259
    assert bytes((data.test.tokens[0] - 2).tolist()) == b"zebra th"
    assert data.source == "bytes of test.tsv.gz, train.tsv.gz"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokeniser": "letters"}, r"tokeniser must be one of \['words', 'wordpiece', 'bytes'\] for texts, got 'letters'"),
        ({"tokeniser": "pixels"}, "tokeniser must be one of"),
        ({"vocab_size": 2}, "vocab_size must be an integer of at least 3, got 2"),
        ({"patch": 2}, "patch has no meaning for 't', got 2"),
        ({"pool": 2}, "pool has no meaning for 't', got 2"),
    ],
)
def test_settings_that_do_not_fit_texts(folder, options, message):
    with pytest.raises(ValueError, match=message):
        load("t", folder, **options)
