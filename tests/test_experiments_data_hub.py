"""The Hugging Face hub: a planted library in its place, and what is said where it doesn't answer. No network is used."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.data import TASKS, load, load_stream
from experiments.data import hub as door
from experiments.data.tasks import STREAMS

TABLES = {
    ("nyu-mll/glue", "qqp"): {"question1": ["how", "why"] * 10, "question2": ["who", "when"] * 10, "label": [0, 1] * 10},
    ("nyu-mll/glue", "cola"): {"sentence": ["fine", "bad"] * 10, "label": [1, -1] * 10},
    ("SetFit/sst2", None): {"text": ["good film", "bad film"] * 10, "label": [1, 0] * 10},
    ("mteb/stsbenchmark-sts", None): {"sentence1": ["a", "b"] * 10, "sentence2": ["c", "d"] * 10, "score": [0.5, 4.8] * 10},
    ("Salesforce/wikitext", "wikitext-2-v1"): {
        "text": ["", *(row for k in range(10) for row in (f" = Title {k} = \n", "", " some <unk> text . \n"))]
    },
}


class Picture:
    """What an image of the library is like."""

    def __init__(self, level: int):
        self.level = level

    def convert(self, mode: str) -> np.ndarray:
        assert mode == "L"
        return np.full((8, 8), self.level, np.uint8)


def load_dataset(repository: str, config: str | None, split: str):
    asked.append((repository, config, split))
    if repository == "ylecun/mnist":
        return {"image": [Picture(k) for k in range(2, 22)], "label": [0, 1] * 10}
    if (repository, config) not in TABLES:
        raise ValueError(f"no such data set: {repository}")
    return TABLES[repository, config]


asked: list[tuple] = []


@pytest.fixture
def library(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset, __spec__=SimpleNamespace()))
    monkeypatch.setattr(door, "reachable", lambda: True)
    asked.clear()


def test_texts_of_the_hub(library):
    data = load("sst2", hub=True, min_count=1)
    assert {split for _, _, split in asked} == {"train", "validation", "test"}
    assert (len(data.train), len(data.validation), len(data.test), data.n_classes, data.vocab_size) == (20, 20, 20, 2, 5)
    assert data.source == "words of SetFit/sst2 of the Hugging Face hub"
    assert len(data.sha256) == 64


def test_pairs_test_on_the_development_part_where_the_test_part_has_no_labels(library):
    data = load("qqp", hub=True, tokeniser="bytes", max_length=12)
    assert asked == [("nyu-mll/glue", "qqp", "train"), ("nyu-mll/glue", "qqp", "validation")]
    assert (len(data.train), len(data.validation), len(data.test)) == (18, 2, 20)
    assert data.source == "bytes of nyu-mll/glue/qqp of the Hugging Face hub"
    assert data.test.key_mask[0].sum() == len("how") + 1 + len("who")


def test_scores_of_the_hub(library):
    data = load("stsb", hub=True)
    assert (data.n_classes, data.train.labels.dtype) == (1, np.float32)
    np.testing.assert_array_equal(data.test.labels[:2], np.array([0.5, 4.8], np.float32))


def test_images_of_the_hub(library):
    data = load("mnist", hub=True, tokeniser="pixels")
    assert data.test.tokens.shape == (20, 64)
    assert data.test.tokens[3, 0] == 5


def test_rows_without_a_label_are_an_error(library):
    with pytest.raises(ValueError, match="'cola': 10 rows of 'nyu-mll/glue' have no label"):
        load("cola", hub=True)


def test_a_folder_comes_before_the_hub(library, tmp_path):
    for part in ("train", "test"):
        (tmp_path / f"sentences_{part}.tsv").write_text("label\tsentence\n" + "0\ta\n1\tb\n" * 10)
    assert "sentences_train.tsv" in load("sst2", tmp_path, hub=True).source
    assert not asked
    assert "hub" in load("sst2", tmp_path / "absent", hub=True).source


def test_wikitext_of_the_hub(library):
    stream = load_stream("wikitext-2", hub=True)
    assert stream.source == "Salesforce/wikitext/wikitext-2-v1 of the Hugging Face hub"
    assert stream.n_words["train"] == 1 + 10 * (5 + 1 + 5)
    held_out = load_stream("wikitext2_heldout", hub=True)
    assert "first 9 of 10 articles train" in held_out.source
    assert len(held_out.test) == stream.n_words["test"]


def test_a_name_that_the_hub_does_not_have(library):
    for call in (lambda: load("trec", hub=True), lambda: load_stream("tinyshakespeare", hub=True)):
        with pytest.raises(FileNotFoundError, match=r"is not known on the Hugging Face hub; .* needs .*, from https"):
            call()
    with pytest.raises(FileNotFoundError, match=r"has no 'cornell-movie-review-data/rotten_tomatoes' .*no such data set.*"):
        load("rotten_tomatoes", hub=True)


def test_without_an_answer_the_error_comes_soon_and_names_the_files(monkeypatch):
    def hang(url, timeout):
        time.sleep(3)
        raise OSError("too late")

    monkeypatch.setattr(door.urllib.request, "urlopen", hang)
    monkeypatch.setattr(door, "TIMEOUT", 0.2)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    started = time.perf_counter()
    with pytest.raises(FileNotFoundError, match=r"doesn't answer .* imdb/\{train,test\}.tsv.gz .* from https://ai.stanford.edu"):
        load("imdb", hub=True)
    assert time.perf_counter() - started < 2


def test_any_answer_is_an_answer(monkeypatch):
    def refuse(url, timeout):
        raise door.urllib.error.HTTPError(url, 403, "no", {}, None)

    def unknown(url, timeout):
        raise door.urllib.error.URLError("no such name")

    monkeypatch.setattr(door.urllib.request, "urlopen", refuse)
    assert door.reachable()
    monkeypatch.setattr(door.urllib.request, "urlopen", unknown)
    assert not door.reachable()


@pytest.mark.parametrize(("value", "expected"), [("1", True), ("on", True), ("0", False), ("", False)])
def test_offline_is_left_to_the_library(monkeypatch, value, expected):
    monkeypatch.setenv("HF_HUB_OFFLINE", value)
    assert door.offline() is expected


def test_without_the_library_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(door.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install kernelgas\[hf\]"):
        load("imdb", hub=True)


@pytest.mark.parametrize("name", [*TASKS, *STREAMS])
def test_every_named_set_says_what_to_place_and_where_it_comes_from(name, tmp_path):
    call = load if name in TASKS else load_stream
    for folder in (None, tmp_path, tmp_path / "absent"):
        with pytest.raises(FileNotFoundError, match=rf"{name} needs \S+ .*from (https://|lra_release)|{name} needs \S+, from https://"):
            call(name, folder)


@pytest.mark.slow
def test_tables_of_the_library_itself(monkeypatch):
    datasets, pictures = pytest.importorskip("datasets"), pytest.importorskip("PIL.Image")
    monkeypatch.setattr(door, "reachable", lambda: True)

    def made(repository: str, config: str | None, split: str):
        if repository == "ylecun/mnist":
            images = [pictures.fromarray(np.full((8, 8), k, np.uint8)) for k in range(2, 22)]
            kinds = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(2)})
            return datasets.Dataset.from_dict({"image": images, "label": [0, 1] * 10}, features=kinds)
        return datasets.Dataset.from_dict(TABLES[repository, config])

    monkeypatch.setattr(datasets, "load_dataset", made)
    assert load("mnist", hub=True, tokeniser="pixels", seed=1).test.tokens[3, 0] == 5
    assert load("sst2", hub=True, min_count=1, seed=1).vocab_size == 5
    assert load("stsb", hub=True, seed=1).test.labels[1] == np.float32(4.8)
    assert load_stream("wikitext-2", hub=True, min_count=2).n_words["train"] == 1 + 10 * (5 + 1 + 5)
