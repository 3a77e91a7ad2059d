"""Language modelling: Flexformer's table of WikiText-103, at the scale of the machine at hand.

A causal transformer predicts the next token of a running text, cut into blocks that do not see each other. All rows of `linear_rows` that
have a causal form are trained on the same tokens in the same order, with the same sizes; what a row's kernel adds to the parameters is
reported. The learning rate is chosen for each family of rows from the same `rates`, by the validation loss of the seed `tuning_seed`.

Phase A of a language model: the labels are the next tokens, and every token's queries and keys carry theirs (the Coulomb paper's objective
for tokens, C.5). The control permutes the labels. The loss of every block is kept, so that rows are compared block by block.

Part kernels trains some rows again and looks at what their kernels do (`language_kernels`); its units are named "ROW, kernel".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments import language_kernels, learning_rates, sweep
from experiments import language_texts as texts
from experiments.language_texts import MADE_UP, SIZES, TASKS
from experiments.linear_plan import PARTS as SHARED_PARTS
from experiments.linear_plan import SPEED, check, checkpoint, recipe, row_and_rate, units_of
from experiments.linear_rows import ROWS
from experiments.settings import chosen
from particles.arrays import count, positive

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

    from attention.model import Transformer
    from experiments.data import Dataset
    from experiments.report import Section
    from experiments.units import Scores, Unit

NAME = "language_modelling"
PARTS = (*SHARED_PARTS, "kernels")
CAUSAL = tuple(name for name, row in ROWS.items() if row.attention != "soft")
DIMS = ("task", "row", "seed")
EXTENT = ("tasks", "parts", "rows", "n_seeds", "seed", "data", "checkpoints", "tuning_seed", "rates")
ARRAYS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("train_loss", "validation_loss", "nonpositive"), ("epoch",)),
    "block_loss": ("example",),
    **language_kernels.ARRAYS,
}
KERNEL = ", kernel"  # ends the name of a unit of part kernels
LOOKED = (
    "softmax", "linear", "performer", "hedgehog", "softmaxfeat, fixed", "softmaxfeat, learned", "softmaxfeat, narrow start", "exponential",
    "flexformer", "flexformer-nonstationary", "flexformer, fast", "flexformer, mean",
)  # fmt: skip


@dataclass(frozen=True)
class Config:
    """What is trained."""

    tasks: tuple[str, ...] = ("shakespeare", "wikitext2")  # some of the size's: smoke has made-up text, paper wikitext103 and its big model
    parts: tuple[str, ...] = (
        "main",
    )  # main: the table; rates: each family's learning rates, on seed tuning_seed; kernels: what kernels do
    rows: tuple[str, ...] = CAUSAL  # rows of the table
    n_seeds: int = 3  # seed, seed + 1, ...: weights, particles, batches and noise; the text stays the same
    seed: int = 0  # the first seed
    data: str = ""  # folder with the texts; by default the one that KERNELGAS_DATA names
    checkpoints: str = ""  # folder for the state of unfinished units; "": none
    size: str = "cpu"  # of models and texts: smoke, cpu, paper or "cpu, learned positions" (instead of rotary ones)
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
        count(self.align_blocks, "align_blocks")
        positive(self.weight_decay, "weight_decay", zero=True)
        check(self, TASKS, CAUSAL, PARTS)


PRESETS = {
    "smoke": Config(
        tasks=(MADE_UP,), rows=("softmax", "linear", "flexformer", "softmaxfeat, align, unfreeze"), n_seeds=2, size="smoke", n_align=5
    ),
    "cpu": Config(lr=0.01, lrs=learning_rates.LANGUAGE_MODELLING),
    "paper": Config(tasks=("wikitext103",), size="paper", n_align=100),
}
REDUCED = {
    "smoke": "a tiny model on 2,000 characters of made-up text",
    "cpu": "characters of Shakespeare and pieces of words of WikiText-2's held-out text in place of the words of WikiText-103; 250,000 and "
    "200,000 training tokens twice in place of 6.6 billion; blocks of 128 tokens of 512, 2 layers of 6, width 64 of 512, one band of "
    "words; rotary positions",
}


def units(config: Config) -> Iterator[Unit]:
    """Those of `linear_plan.units_of`, then those of part kernels."""
    yield from units_of(config)
    rows = [row for row in LOOKED if row in config.rows] if "kernels" in config.parts else []
    for seed in range(config.seed, config.seed + config.n_seeds):
        yield from ({"task": task, "row": f"{row}{KERNEL}", "seed": seed} for task in config.tasks for row in rows)


def measure(config: Config, unit: Unit) -> Scores:
    """Train one row on one text with one seed and score it on the test text.

    Returns
    -------
    dict of log_loss [nats a token], perplexity, bits_per_byte, accuracy of the next token; block_loss (example,), of each test block;
    train_loss, validation_loss, nonpositive (share of denominators <= 0, NaN for maps that have none) (epoch,); validation_last, the last
    epoch's loss; alignment_before, alignment_after, holdout_before, holdout_after, NaN without Phase A; training_seconds, cpu_seconds;
    lr; n_parameters that were trained, n_tokens that were seen in training; data and data_sha256. Units of part kernels have what
    `language_kernels.looked` returns too.
    """
    from experiments.training import ALIGNMENTS, trained

    size, looks = SIZES[config.size][unit["task"]], unit["row"].endswith(KERNEL)
    unit = unit | {"row": unit["row"].removesuffix(KERNEL)}
    (row, lr), seed = row_and_rate(unit, config.lrs, config.lr or size.lr), unit["seed"]
    data, n_bytes = texts.data(size, unit["task"], config.data, n_train=config.n_train)
    model = texts.model(size, row, seed, data.vocab_size or 0)
    more = {name: getattr(size, name) for name in ("warmup", "clip", "evaluated")}
    how = recipe(config, size, row, lr, align_sequences=config.align_blocks, weight_decay=config.weight_decay, **more)
    history = trained(model, data, how, seed=seed, particles=row.particles, checkpoint=checkpoint(config, unit))
    found: Scores = {name: float(history[name]) for name in (*ALIGNMENTS, "cpu_seconds")}
    found |= {name: history[name].values for name in ("train_loss", "validation_loss", "nonpositive")}
    found |= {"training_seconds": float(history.train_seconds), "validation_last": float(history.validation_loss[-1]), "lr": lr}
    found |= {"n_parameters": sum(p.numel() for p in model.parameters() if p.requires_grad)}
    found |= {"n_tokens": history.sizes["epoch"] * len(data.train) * size.block}
    found |= language_kernels.looked(model, data) if looks else {}
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


def prepare(config: Config) -> None:
    """FileNotFoundError if a text is not there."""
    from experiments.data.files import placed
    from experiments.data.running_text import TEXT_ENDS

    for task in config.tasks:
        if task != MADE_UP:
            placed(TASKS[task], config.data, TEXT_ENDS)


def estimate(config: Config, unit: Unit) -> tuple[float, float]:
    """Seconds and bytes of one unit on one core, from sizes alone."""
    size = SIZES[config.size][unit["task"]]
    row, _ = row_and_rate(unit | {"row": unit["row"].removesuffix(KERNEL)}, config.lrs, 1.0)
    flops, tokens = texts.cost(size, row), min(config.n_train or size.n_train, texts.TOKENS.get(unit["task"], 10**6))
    seconds = flops / size.block * (3 * (config.n_epochs or size.n_epochs) * tokens + min(size.n_test, tokens)) / SPEED
    return seconds, 4e8 + 40.0 * size.batch_size * size.block * (size.layers * (size.dim + size.n_features) + size.vocab_size)


def rehearse(config: Config) -> str:
    """Two steps of Flexformer on one random block of each text at the Config's sizes, in words; nothing is read or written."""
    return "; ".join(texts.rehearse(SIZES[config.size][task], task) for task in config.tasks)


def run(config: Config, **how: Any) -> xr.Dataset:
    """Train every row on every text and seed; see `sweep.run` for `how`.

    Returns
    -------
    Dataset over (task, row, seed) of what `measure` returns.
    """
    return sweep.run(NAME, config, **how)


def section(ds: xr.Dataset) -> Section:
    """Tables and verdicts from a Dataset of `run`."""
    from experiments import language_modelling_tables

    return language_modelling_tables.section(ds)


def figures(ds: xr.Dataset) -> dict[str, Figure]:
    """Pictures of a Dataset of `run`."""
    from experiments import language_modelling_tables

    return language_modelling_tables.figures(ds)
