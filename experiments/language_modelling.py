"""Language modelling: Flexformer's table of WikiText-103, at the scale of the machine at hand.

A causal transformer predicts the next token of a running text, cut into blocks that do not see each other. All rows of `linear_rows` that
have a causal form are trained on the same tokens in the same order, with the same sizes; what a row's kernel adds to the parameters is
reported. The learning rate is chosen for each family of rows from the same `rates`, by the validation loss of the seed `tuning_seed`.

Phase A of a language model: the labels are the next tokens, and every token's queries and keys carry theirs (the Coulomb paper's objective
for tokens, C.5). The control permutes the labels. The loss of every block is kept, so that rows are compared block by block.

The sizes "paper" are those of Flexformer: adaptive inputs and softmax (Baevski and Auli 2019), blocks of 512, 100,000 steps of 128 blocks,
4,000 of them warm-up, rate 5e-4, gradients cut at 0.1; the paper does not say how the rate falls: along a cosine here. Bands of the
vocabulary end at 20,000 and 60,000 words, as in Baevski and Auli.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments import sweep
from experiments.linear_rows import ROWS, Row, built, check_rates, model_config, row_and_rate, units_of
from experiments.matching import chosen
from particles.arrays import count, positive

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

    from attention.model import Transformer
    from experiments.data import Dataset, Split, Stream
    from experiments.report import Section
    from experiments.units import Scores, Unit

NAME = "language_modelling"
CAUSAL = tuple(name for name, row in ROWS.items() if row.attention != "soft")
MADE_UP = "made up"
TOKENS = {"wikitext103": 103_000_000, "wikitext103, big": 103_000_000}  # of training texts; of others a million
SPEED = 6e9  # operations a second of one core in small models, as measured
PARTS = ("main", "rates")
DIMS = ("task", "row", "seed")
EXTENT = ("tasks", "parts", "rows", "n_seeds", "seed", "data", "checkpoints", "tuning_seed", "rates")
ARRAYS = {"train_loss": ("epoch",), "validation_loss": ("epoch",), "nonpositive": ("epoch",), "block_loss": ("example",)}


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


_SMALL: dict[str, Any] = {"block": 128, "batch_size": 16, "dim": 64, "heads": 2, "layers": 2, "ff": 128, "n_features": 64, "dropout": 0.0}
_TINY: dict[str, Any] = {"block": 16, "batch_size": 8, "dim": 16, "heads": 2, "layers": 1, "ff": 16, "n_features": 16, "dropout": 0.0}
_PAPER: dict[str, Any] = {
    "evaluated": 1, "warmup": 0.04, "clip": 0.1, "lr": 5e-4, "cutoffs": (20_000, 60_000), "vocab_size": 267_735, "n_epochs": 64,
}  # fmt: skip
_CHARACTERS: dict[str, Any] = {"tokeniser": "characters"}
SIZES: dict[str, dict[str, Size]] = {
    "smoke": {MADE_UP: Size(_CHARACTERS, n_train=2000, n_validation=300, n_test=500, vocab_size=30, **_TINY)},
    "cpu": {
        "shakespeare": Size(_CHARACTERS, n_train=250_000, n_validation=20_000, n_test=50_000, vocab_size=70, **_SMALL),
        "wikitext2": Size(
            {"tokeniser": "wordpiece", "vocab_size": 1000}, n_train=200_000, n_validation=20_000, n_test=50_000, vocab_size=1000, **_SMALL
        ),
    },
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


@dataclass(frozen=True)
class Config:
    """What is trained."""

    tasks: tuple[str, ...] = ("shakespeare", "wikitext2")  # some of the size's: smoke has made-up text, paper wikitext103 and its big model
    parts: tuple[str, ...] = ("main",)  # main: the table; rates: each family's learning rates, on seed tuning_seed
    rows: tuple[str, ...] = CAUSAL  # rows of the table
    n_seeds: int = 3  # seed, seed + 1, ...: weights, particles, batches and noise; the text stays the same
    seed: int = 0  # the first seed
    data: str = ""  # folder with the texts; by default the one that KERNELGAS_DATA names
    checkpoints: str = ""  # folder for the state of unfinished units; "": none
    size: str = "cpu"  # of models and texts: smoke, cpu or paper
    n_train: int | None = None  # training tokens at most; None: the size's
    n_epochs: int | None = None  # passes over them; None: the size's
    n_warm: int = 1  # passes before Phase A
    lr: float | None = None  # learning rate of AdamW of rows that `lrs` does not name; None: the size's
    lrs: dict[str, float] = field(default_factory=dict)  # learning rates by TASK/FAMILY, as part rates found them
    omega_lr: float = 5e-3  # of particles that learn
    weight_decay: float = 0.01  # of matrices
    n_align: int = 50  # Langevin steps of Phase A
    align_blocks: int = 16  # training blocks that Phase A uses at most
    rates: tuple[float, ...] = (0.001, 0.003, 0.01)  # learning rates that part rates compares
    tuning_seed: int = 100  # seed of part rates

    def __post_init__(self) -> None:
        chosen((self.size,), SIZES, "size")
        chosen(self.tasks, SIZES[self.size], "tasks")
        chosen(self.parts, PARTS, "parts")
        chosen(self.rows, CAUSAL, "rows")
        for name in ("n_seeds", "n_align", "align_blocks"):
            count(getattr(self, name), name)
        for name in ("n_train", "n_epochs"):
            if getattr(self, name) is not None:
                count(getattr(self, name), name)
        for name in ("seed", "tuning_seed", "n_warm"):
            count(getattr(self, name), name, least=0)
        for name in ("lr", "omega_lr"):
            if getattr(self, name) is not None:
                positive(getattr(self, name), name)
        positive(self.weight_decay, "weight_decay", zero=True)
        check_rates(self.lrs, self.rates, tuple(TASKS))


PRESETS = {
    "smoke": Config(
        tasks=(MADE_UP,), rows=("softmax", "linear", "flexformer", "softmaxfeat, align, unfreeze"), n_seeds=2, size="smoke", n_align=5
    ),
    "cpu": Config(),
    "paper": Config(tasks=("wikitext103",), size="paper", n_align=100),
}
REDUCED = {
    "smoke": "a tiny model on 2,000 characters of made-up text",
    "cpu": "characters of Shakespeare and pieces of words of WikiText-2's held-out text in place of the words of WikiText-103; 250,000 and "
    "200,000 training tokens twice in place of 6.6 billion; blocks of 128 tokens of 512, 2 layers of 6, width 64 of 512, one band of words",
}


def units(config: Config) -> Iterator[Unit]:
    """See `linear_rows.units_of`."""
    return units_of(config)


def measure(config: Config, unit: Unit) -> Scores:
    """Train one row on one text with one seed and score it on the test text.

    Returns
    -------
    dict of log_loss [nats a token], perplexity, bits_per_byte, accuracy of the next token; block_loss (example,), of each test block;
    train_loss, validation_loss, nonpositive (share of denominators <= 0, NaN for maps that have none) (epoch,); validation_last, the last
    epoch's loss; alignment_before, alignment_after, holdout_before, holdout_after, NaN without Phase A; training_seconds, cpu_seconds;
    lr; n_parameters that were trained, n_tokens that were seen in training; data and data_sha256.
    """
    from experiments.training import ALIGNMENTS, trained

    size = SIZES[config.size][unit["task"]]
    (row, lr), seed = row_and_rate(unit, config.lrs, config.lr or size.lr), unit["seed"]
    data, n_bytes = texts(config, unit["task"])
    model = built(row, seed, **sizes(size, data.vocab_size or 0))
    history = trained(model, data, _recipe(config, size, lr), seed=seed, particles=row.particles, checkpoint=_checkpoint(config, unit))
    found: Scores = {name: float(history[name]) for name in (*ALIGNMENTS, "cpu_seconds")}
    found |= {name: history[name].values for name in ("train_loss", "validation_loss", "nonpositive")}
    found |= {"training_seconds": float(history.train_seconds), "validation_last": float(history.validation_loss[-1]), "lr": lr}
    found |= {"n_parameters": sum(p.numel() for p in model.parameters() if p.requires_grad)}
    found |= {"n_tokens": history.sizes["epoch"] * len(data.train) * size.block}
    return found | losses(model, data, n_bytes, size.evaluated) | {"data": data.source, "data_sha256": data.sha256}


def losses(model: Transformer, data: Dataset, n_bytes: float, evaluated: int) -> Scores:
    """What `model` is worth on the test blocks, `evaluated` at a time; n_bytes: of a token, on average."""
    import torch
    from torch.nn.functional import cross_entropy

    from attention.mode import evaluating

    block_loss, right = [], 0
    with evaluating(model), torch.no_grad():
        for batch in data.test.batches(evaluated):
            wanted, logits = batch["tokens"][:, 1:], model(batch)[:, :-1].double()
            block_loss.append(cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="none").view(wanted.shape).mean(1))
            right += int((logits.argmax(-1) == wanted).sum())
    blocks = torch.cat(block_loss).numpy()
    loss, accuracy = float(blocks.mean()), right / (len(blocks) * (data.test.tokens.shape[1] - 1))
    bits = loss / np.log(2) / n_bytes
    return {"log_loss": loss, "perplexity": float(np.exp(loss)), "bits_per_byte": bits, "accuracy": accuracy, "block_loss": blocks}


def sizes(size: Size, vocab_size: int) -> dict[str, Any]:
    """What `linear_rows.built` wants beside the row."""
    given = {name: getattr(size, name) for name in ("dim", "heads", "layers", "ff", "n_features", "dropout")}
    return given | {"vocab_size": vocab_size, "max_length": size.block + 1, "causal": True, "tie_embeddings": True, "cutoffs": size.cutoffs}


def texts(config: Config, task: str) -> tuple[Dataset, float]:
    """The blocks of a text, and the bytes of one of its test tokens on average."""
    from experiments.data import Dataset

    size = SIZES[config.size][task]
    stream = made_up(size.n_train) if task == MADE_UP else _stream(config, task)
    limits = {"train": config.n_train or size.n_train, "validation": size.n_validation, "test": size.n_test}
    train, validation, test = (blocks(getattr(stream, part), size.block, limit) for part, limit in limits.items())
    length = size.block + 1
    found = Dataset(task, train, validation, test, stream.vocab_size, None, 1, length, stream.source, stream.sha256)
    return found, stream.n_bytes["test"] / len(stream.test)


def _stream(config: Config, task: str) -> Stream:
    from experiments.data import load_stream

    return load_stream(TASKS[task], config.data or os.environ.get("KERNELGAS_DATA"), **SIZES[config.size][task].tokeniser)


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


def _recipe(config: Config, size: Size, lr: float) -> Any:
    from experiments.training import Recipe

    given = {name: getattr(config, name) for name in ("n_warm", "omega_lr", "weight_decay", "n_align")}
    given |= {name: getattr(size, name) for name in ("batch_size", "warmup", "clip", "evaluated")}
    return Recipe(lr=lr, n_epochs=config.n_epochs or size.n_epochs, align_sequences=config.align_blocks, **given)


def _checkpoint(config: Config, unit: Unit) -> str:
    name = f"{unit['task']}-{unit['row']}".encode()
    return f"{config.checkpoints}/language-{zlib.crc32(name):08x}-{unit['seed']}" if config.checkpoints else ""


def estimate(config: Config, unit: Unit) -> tuple[float, float]:
    """Seconds and bytes of one unit on one core, from sizes alone."""
    size = SIZES[config.size][unit["task"]]
    row, _ = row_and_rate(unit, config.lrs, 1.0)
    flops, tokens = cost(row, size), min(config.n_train or size.n_train, TOKENS.get(unit["task"], 10**6))
    seconds = flops / size.block * (3 * (config.n_epochs or size.n_epochs) * tokens + min(size.n_test, tokens)) / SPEED
    return seconds, 4e8 + 40.0 * size.batch_size * size.block * (size.layers * (size.dim + size.n_features) + size.vocab_size)


def cost(row: Row, size: Size) -> float:
    """Operations of one block forwards."""
    from attention.counts import counts

    return counts(model_config(row, **sizes(size, size.vocab_size)), size.block)["total"].flops


def rehearse(config: Config) -> str:
    """Two steps of Flexformer on one random block of each text at the Config's sizes, in words; nothing is read or written."""
    return "; ".join(_rehearsed(task, SIZES[config.size][task]) for task in config.tasks)


def _rehearsed(task: str, size: Size) -> str:
    import time

    import torch

    from attention.batches import next_tokens

    model = built(ROWS["flexformer"], 0, **sizes(size, size.vocab_size))
    optimiser, generator = torch.optim.AdamW(model.parameters(), lr=size.lr), torch.Generator().manual_seed(0)
    tokens = torch.randint(size.vocab_size, (1, size.block + 1), generator=generator)
    batch, seconds = {"tokens": tokens, "key_mask": torch.ones_like(tokens, dtype=torch.bool)}, 0.0
    for _ in range(2):
        start = time.perf_counter()
        model(batch, wanted=next_tokens(batch, size.vocab_size)).backward()
        optimiser.step()
        optimiser.zero_grad()
        seconds = time.perf_counter() - start
    steps = size.n_epochs * min(size.n_train, TOKENS.get(task, 10**6)) // (size.block * size.batch_size)
    n, days = sum(p.numel() for p in model.parameters()) / 1e6, steps * size.batch_size * seconds / 86400
    words = f"{seconds:.1f} s for a block of {size.block} tokens, {steps:,} steps of {size.batch_size}, {days:,.0f} days here"
    return f"{task}: {n:.1f} M parameters, {words}"


def run(config: Config, **how: Any) -> xr.Dataset:
    """Train every row on every text and seed; see `sweep.run` for `how`.

    Returns
    -------
    Dataset over (task, row, seed) of what `measure` returns.
    """
    return sweep.run(NAME, config, **how)


def section(ds: xr.Dataset) -> Section:
    """Tables and verdicts from a Dataset of `run`."""
    from experiments.language_modelling_tables import section as written

    return written(ds)


def figures(ds: xr.Dataset) -> dict[str, Figure]:
    """Pictures of a Dataset of `run`."""
    from experiments.language_modelling_tables import figures as drawn

    return drawn(ds)
