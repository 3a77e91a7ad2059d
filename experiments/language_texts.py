"""Texts for language models, cut into blocks, and the sizes of the models that are trained on them.

The sizes "paper" are those of Flexformer: adaptive inputs and softmax (Baevski and Auli 2019), blocks of 512, 100,000 steps of 128 blocks,
4,000 of them warm-up, rate 5e-4, gradients cut at 0.1; the paper does not say how the rate falls: along a cosine here. Bands of the
vocabulary end at 20,000 and 60,000 words, as in Baevski and Auli.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.linear_plan import rehearsed
from experiments.linear_rows import ROWS, Row, built, model_config

if TYPE_CHECKING:
    from attention.model import Transformer
    from experiments.data import Dataset, Split, Stream

MADE_UP = "made up"
TOKENS = {"wikitext103": 103_000_000, "wikitext103, big": 103_000_000}  # of training texts; of others a million


@dataclass(frozen=True)
class Size:
    """Sizes of the model, and how it is trained."""

    tokeniser: dict[str, Any]  # of each task: options of `data.load_stream`
    block: int  # tokens that are predicted in a block
    batch_size: int  # blocks of one step
    dim: int
    heads: int
    layers: int
    ff: int
    n_features: int
    dropout: float
    n_epochs: int = 2  # passes over the training text
    n_train: int = 10**9  # training tokens at most
    n_validation: int = 10**9
    n_test: int = 10**9
    warmup: float = 0.1
    clip: float = 1.0
    lr: float = 0.003
    vocab_size: int = 100  # about: of the estimate
    evaluated: int = 64  # blocks of a batch without gradients
    cutoffs: tuple[int, ...] | None = None  # of an adaptive vocabulary
    positions: str = "learned"


_SMALL: dict[str, Any] = {  # with learned positions or batches of 16 so short a training ends at the entropy of pairs of characters
    "block": 128, "batch_size": 4, "dim": 64, "heads": 2, "layers": 2, "ff": 128, "n_features": 64, "dropout": 0.0, "positions": "rotary",
}  # fmt: skip
_TINY: dict[str, Any] = {"block": 16, "batch_size": 8, "dim": 16, "heads": 2, "layers": 1, "ff": 16, "n_features": 16, "dropout": 0.0}
_PAPER: dict[str, Any] = {
    "evaluated": 1, "warmup": 0.04, "clip": 0.1, "lr": 5e-4, "cutoffs": (20_000, 60_000), "vocab_size": 267_735, "n_epochs": 64,
}  # fmt: skip
_CHARACTERS: dict[str, Any] = {"tokeniser": "characters"}
_REFERENCE = {
    "shakespeare": Size(_CHARACTERS, n_train=250_000, n_validation=20_000, n_test=50_000, vocab_size=70, **_SMALL),
    "wikitext2": Size(
        {"tokeniser": "wordpiece", "vocab_size": 1000}, n_train=200_000, n_validation=20_000, n_test=50_000, vocab_size=1000, **_SMALL
    ),
}
SIZES: dict[str, dict[str, Size]] = {
    "smoke": {MADE_UP: Size(_CHARACTERS, n_train=2000, n_validation=300, n_test=500, vocab_size=30, **_TINY)},
    "cpu": _REFERENCE,
    "cpu, learned positions": {task: replace(size, positions="learned") for task, size in _REFERENCE.items()},
    "paper": {
        "wikitext103": Size({"tokeniser": "words"}, 512, 128, 512, 8, 6, 2048, 128, 0.1, **_PAPER),
        "wikitext103, big": Size({"tokeniser": "words"}, 512, 128, 1024, 16, 16, 4096, 128, 0.2, **_PAPER),
    },
}
TASKS = {  # name of the text
    MADE_UP: "",
    "shakespeare": "tinyshakespeare",
    "wikitext2": "wikitext2_heldout",
    "wikitext103": "wikitext-103",
    "wikitext103, big": "wikitext-103",
}


def data(of: Size, task: str, folder: str, *, n_train: int | None = None) -> tuple[Dataset, float]:
    """The blocks of a text, and the bytes of one of its test tokens on average."""
    from experiments.data import Dataset

    stream = made_up(of.n_train) if task == MADE_UP else _stream(of, task, folder)
    limits = {"train": n_train or of.n_train, "validation": of.n_validation, "test": of.n_test}
    train, validation, test = (blocks(getattr(stream, part), of.block, limit) for part, limit in limits.items())
    length = of.block + 1
    found = Dataset(task, train, validation, test, stream.vocab_size, None, 1, length, stream.source, stream.sha256)
    return found, stream.n_bytes["test"] / len(stream.test)


def _stream(of: Size, task: str, folder: str) -> Stream:
    from experiments.data import load_stream

    return load_stream(TASKS[task], folder or os.environ.get("KERNELGAS_DATA"), **of.tokeniser)


def made_up(n: int) -> Stream:
    """A text of three parts of at least n characters, made of eight words of three letters in random order; nothing is read."""
    import hashlib

    from experiments.data import Stream

    rng = np.random.default_rng(0)
    words = rng.integers(1, 12, (8, 4)) * [1, 1, 1, 0]  # 0 stands between words
    train, validation, test = (words[rng.integers(8, size=-(-n // 4))].ravel() for _ in range(3))
    sizes = {"train": len(train), "validation": len(validation), "test": len(test)}
    source, digest = "eight made-up words in random order", hashlib.sha256(train.tobytes()).hexdigest()
    return Stream(MADE_UP, train, validation, test, 12, "characters", sizes, sizes, source, digest)


def blocks(tokens: np.ndarray, block: int, limit: int) -> Split:
    """A text (token,) as blocks of `block` + 1 tokens that share their ends, so that every token but the first is predicted once.

    ValueError if it has no whole block.
    """
    from experiments.data import Split

    n = (min(len(tokens), limit) - 1) // block
    if n < 1:
        raise ValueError(f"a text must have more than {block} tokens for one block, got {len(tokens)} and a limit of {limit}")
    rows = tokens[np.arange(n)[:, None] * block + np.arange(block + 1)].astype(np.int64)
    return Split(rows, np.ones(rows.shape, bool), rows)


def model(of: Size, row: Row, seed: int, vocab_size: int) -> Transformer:
    """The untrained model of a row."""
    return built(row, seed, **_sizes(of, vocab_size))


def cost(of: Size, row: Row) -> float:
    """Operations of one block forwards."""
    from attention.counts import counts

    return counts(model_config(row, **_sizes(of, of.vocab_size)), of.block)["total"].flops


def _sizes(of: Size, vocab_size: int) -> dict[str, Any]:
    """What `linear_rows.built` wants beside the row."""
    given = {name: getattr(of, name) for name in ("dim", "heads", "layers", "ff", "n_features", "dropout", "cutoffs", "positions")}
    return given | {"vocab_size": vocab_size, "max_length": of.block + 1, "causal": True, "tie_embeddings": True}


def rehearse(of: Size, task: str) -> str:
    """Two steps of Flexformer on one random block of a text's sizes, in words; nothing is read or written."""
    import torch

    from attention.batches import next_tokens

    untrained, generator = model(of, ROWS["flexformer"], 0, of.vocab_size), torch.Generator().manual_seed(0)
    tokens = torch.randint(of.vocab_size, (1, of.block + 1), generator=generator)
    batch = {"tokens": tokens, "key_mask": torch.ones_like(tokens, dtype=torch.bool)}
    n_steps = of.n_epochs * min(of.n_train, TOKENS.get(task, 10**6)) // (of.block * of.batch_size)
    return rehearsed(task, untrained, lambda: untrained(batch, wanted=next_tokens(batch, of.vocab_size)), of, n_steps, of.block)
