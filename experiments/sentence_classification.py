"""Sentence classification with a learned kernel: the eighteen rows of the Coulomb paper's table, and ablations of Phase A.

One transformer (2 layers, width 128, 2 heads, feed-forward 256, dropout .1, mean pooling) trained from scratch with one recipe in all rows;
rows of one seed have the same batches and, where they have the same parameters, the same initial weights.

| row                    | attention                                                                          |
|------------------------|------------------------------------------------------------------------------------|
| softmax                | scaled dot products ("Vaswani")                                                    |
| favor-WqWk             | FAVOR features with W_q and W_k, independent Gaussian particles that stay          |
| Performer              | the same with orthogonal particles, drawn anew before each epoch                   |
| Linformer              | softmax to a quarter as many learned mixtures of keys as there are places          |
| V-x                    | "vanilla": map x of no W_q and W_k at all, q = k = the layer's input cut into heads |
| K-x                    | "kernel": the same, particles learned in Phase A, then frozen                      |
| K-x ...                | controls and ablations of K-x, named after what is different                       |

for x = favor, elu, softplus, sigmoid2, softmaxfeat, cos2, porf-softplus. Where the paper contradicts itself or is silent:

* Phase A: after one warm epoch, when inputs carry meaning; 100 Langevin steps a head on the pooled inputs (the paper: a fifth of all steps,
  or up to ten epochs) with the constants of `attention.objectives` in standardised units. The paper's own (step .002, beta 50, lambda .001
  on W, radius 1.5) are an ablation: their noise alone carries a particle of 64 dimensions across the ball in some 440 steps.
* Objective: alignment with centred labels; the paper has the agreement of one-hot labels in one place and a centred one in another.
* Optimiser: AdamW with warm-up and cosine (main text), not Adam without (supplement). One rate for all rows: the paper's .0002 is for ten
  epochs of whole data sets; in preset cpu, 330 steps, .002 has the least validation log loss after training of .001, .002 and .004
  (Rotten Tomatoes, seed 100: softmax .585, .572, .602, V-softplus .592, .573, .581).
* Scores are of test parts with published labels, several seeds, standard calibration error. The paper's accuracies are all multiples of
  1/872 and 1/1066, so they are single runs; its calibration errors of .2 to .46 are impossible beside its Brier scores.
* Temperature 1, floor 0 and b = 0 in the maps; inputs scaled by head_dim^(-1/4) before every map; log repulsion within a head.
* Tokens: WordPiece trained on the training part, lower case ("original casing" and an uncased tokeniser exclude each other).
* SST-2 is trained on its 6,920 sentences, not on their 67,349 phrases; QQP is a part of the published development file.
"""

from __future__ import annotations

import dataclasses
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.sentence_rows import PARTS, ROWS, Row
from experiments.settings import chosen, epochs_after
from particles.arrays import count, flag, positive, real

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

    from attention.model import ModelConfig, Transformer
    from experiments.data import Dataset
    from experiments.report import Section
    from experiments.training import Recipe

NAME = "sentence_classification"
TASKS = {"sst2": 6920, "qqp": 18_864, "rotten_tomatoes": 8530, "digits": 1000}  # training rows, for estimates
VOCABULARY = 8000  # of the tokeniser, for estimates
OPERATIONS = 3.3e10  # a second, on one core
DIMS = ("task", "row", "seed")
EXTENT = ("part", "tasks", "rows", "n_seeds", "seed", "data", "checkpoints")
ARRAYS = {
    "train_loss": ("epoch",),
    "validation_loss": ("epoch",),
    "validation_accuracy": ("epoch",),
    "reliability": ("bin", "column"),
}


@dataclass(frozen=True)
class Config:
    """What `run` does; every option with its checks."""

    part: str = "main"  # main: the eighteen rows; ablations: controls and variations of Phase A
    tasks: tuple[str, ...] = ("sst2", "qqp", "rotten_tomatoes")  # some of sst2, qqp, rotten_tomatoes; digits needs no files
    rows: tuple[str, ...] = ()  # some of the part's rows; none named: all of them
    n_seeds: int = 5  # seed, seed + 1, ...: initial weights, particles, batches and noise; the data stay the same
    seed: int = 0  # the first seed
    data: str = ""  # folder with the folders sst2, qqp_subset and rotten_tomatoes; none given: $KERNELGAS_DATA
    checkpoints: str = ""  # folder for the state of unfinished units; "": none
    max_train: int | None = 7000  # use about so many training rows, class by class; None: all
    phrases: bool = False  # SST-2: train on the 67,349 phrases instead of the 6,920 sentences
    max_length: int = 64  # tokens of a text that are read
    tokeniser: str = "wordpiece"  # wordpiece, words or bytes
    n_epochs: int = 3  # passes over the training part
    n_warm: int = 1  # epochs before Phase A, of n_epochs
    batch_size: int = 64  # rows of one step
    lr: float = 2e-3  # learning rate of AdamW in all rows
    omega_lr: float = 5e-3  # learning rate of released particles
    weight_decay: float = 0.01  # of matrices
    n_align: int = 100  # Langevin steps of Phase A
    align_sequences: int = 512  # training rows that Phase A uses at most
    dim: int = 128  # width of a token inside the model
    heads: int = 2  # heads of each layer
    layers: int = 2  # transformer blocks
    ff: int = 256  # width of the feed-forward part
    dropout: float = 0.1  # share of activations dropped in training
    n_features: int = 64  # particles of each head

    def __post_init__(self) -> None:
        flag(self.phrases, "phrases")
        chosen((self.part,), PARTS, "part")
        chosen(self.tasks, TASKS, "tasks")
        if self.rows:
            for part in PARTS:
                if part != self.part and set(self.rows) <= set(PARTS[part]):
                    raise ValueError(f"rows are of part {part} (--part {part}), not of part {self.part}, got {self.rows!r}")
            chosen(self.rows, PARTS[self.part], "rows")
        for name in ("n_seeds", "max_length", "batch_size", "n_align", "align_sequences", "dim", "heads", "layers", "ff", "n_features"):
            count(getattr(self, name), name)
        for name in ("seed", "n_warm"):
            count(getattr(self, name), name, least=0)
        epochs_after(self.n_warm, self.n_epochs)
        if self.max_train is not None:
            count(self.max_train, "max_train")
        for name in ("lr", "omega_lr"):
            positive(getattr(self, name), name)
        positive(self.weight_decay, "weight_decay", zero=True)
        if not 0 <= real(self.dropout, "dropout") < 1:
            raise ValueError(f"dropout must be in [0, 1), got {self.dropout!r}")
        chosen((self.tokeniser,), ("wordpiece", "words", "bytes"), "tokeniser")
        if self.dim % self.heads:
            raise ValueError(f"dim must be a multiple of heads, got dim={self.dim} and heads={self.heads}")


_TINY: dict[str, Any] = {"n_epochs": 2, "dim": 16, "heads": 2, "layers": 1, "ff": 16, "n_features": 8, "n_align": 5, "align_sequences": 64}
_FEW = ("softmax", "Performer", "Linformer", "V-softplus", "K-softplus", "V-favor", "K-favor")
PRESETS = {
    "smoke": Config(tasks=("digits",), rows=_FEW, n_seeds=2, max_train=120, **_TINY),
    "cpu": Config(),
    "paper": Config(max_train=None, phrases=True, max_length=128, n_epochs=10, n_warm=1, lr=2e-4, n_features=256),
}
REDUCED = {
    "smoke": "scikit-learn's digits, tiny models",
    "cpu": "3 epochs of 10, at most 7,000 training rows, 64 features of 256 a head, at most 64 tokens of 128, own vocabulary",
}


def units(config: Config) -> Iterator[dict[str, Any]]:
    """Every row of every seed of every task; whole tables of one seed come first."""
    for seed in range(config.seed, config.seed + config.n_seeds):
        for task in config.tasks:
            for row in config.rows or PARTS[config.part]:
                yield {"task": task, "row": row, "seed": seed}


def measure(config: Config, unit: dict[str, Any]) -> dict[str, Any]:
    """Train one row with one seed and score it on the test part.

    Returns
    -------
    dict of the scores of `training.test_scores`; train_loss, validation_loss [nats], validation_accuracy (epoch,); alignment_before,
    alignment_after, holdout_before, holdout_after, NaN without Phase A; training_seconds (Phase A included), align_seconds, cpu_seconds,
    inference_seconds; data and data_sha256, where the data come from.
    """
    from experiments.training import ALIGNMENTS, test_scores, trained

    row, seed, data = ROWS[unit["row"]], unit["seed"], _data(config, unit["task"])
    model, recipe = built(config, row, data, seed), _recipe(config, row)
    checkpoint = f"{config.checkpoints}/{unit['task']}-{zlib.crc32(unit['row'].encode()):08x}-{seed}" if config.checkpoints else ""
    history = trained(model, noisy(data, row.noise, seed), recipe, seed=seed, particles=row.particles, checkpoint=checkpoint)
    curves = {"train_loss": "train_loss", "validation_loss": "validation_loss", "validation_accuracy": "accuracy"}
    return {
        **test_scores(model, data.test, data.validation, trim=True, n_passes=2),
        **{name: history[found].values for name, found in curves.items()},
        **{name: float(history[name]) for name in (*ALIGNMENTS, "align_seconds", "cpu_seconds")},
        "training_seconds": float(history.train_seconds),
        "data": data.source,
        "data_sha256": data.sha256,
    }


def built(config: Config, row: Row, data: Dataset, seed: int) -> Transformer:
    """The untrained model of a row: the same weights in all rows of one seed, as far as they have the same parameters."""
    from attention import draws
    from attention.model import Transformer
    from experiments.training import redraw

    model = Transformer(_model(config, row, data.n_classes, data.vocab_size, data.input_dim, data.max_length), rng=seed)
    if row.attention == "favor" and row.particles != "redrawn":
        redraw(model, draws.normal, [seed, 3])
    for feature_map in model.feature_maps if row.width != 1 else []:
        omega, offset = feature_map.omega.detach(), 0 if feature_map.feature is None else feature_map.feature.offset
        feature_map.load_omega(_narrowed(omega, row.width, offset))
    return model


def _narrowed(omega: Any, width: float, offset: int) -> Any:
    """Frequencies times `width`; a phase stays."""
    scale = np.ones(omega.shape[-1])
    scale[: len(scale) - offset] = width
    return omega * omega.new_tensor(scale)


def _model(config: Config, row: Row, n_classes: int, vocab_size: int | None, input_dim: int | None, max_length: int) -> ModelConfig:
    from attention.model import ModelConfig

    n_features = -(-max_length // 4) if row.attention == "linformer" else row.n_features or config.n_features
    return ModelConfig(
        n_classes=n_classes, max_length=max_length, vocab_size=vocab_size, input_dim=input_dim, dim=config.dim, heads=config.heads,
        layers=config.layers, ff=config.ff, dropout=config.dropout, attention=row.attention, projections=row.projections,
        n_features=n_features,
    )  # fmt: skip


def _recipe(config: Config, row: Row) -> Recipe:
    from experiments.training import Recipe

    names = ("n_epochs", "n_warm", "batch_size", "lr", "omega_lr", "weight_decay", "n_align", "align_sequences")
    return Recipe(**{name: getattr(config, name) for name in names} | {"trim": True, "bucket": True} | row.recipe)


def noisy(data: Dataset, share: float, seed: int) -> Dataset:
    """The data set with a share of its training labels replaced by other classes, at random; validation and test stay clean."""
    if not share:
        return data
    rng, labels = np.random.default_rng([seed, 4]), data.train.labels.copy()
    rows = rng.permutation(len(labels))[: round(share * len(labels))]
    labels[rows] = (labels[rows] + rng.integers(1, data.n_classes, len(rows))) % data.n_classes
    return dataclasses.replace(data, train=dataclasses.replace(data.train, labels=labels))


def _data(config: Config, task: str) -> Dataset:
    """One task's data, the same for every seed."""
    from experiments.data import load

    if task == "digits":
        return load(task, max_train=config.max_train)
    name, folder = _source(config, task), config.data or os.environ.get("KERNELGAS_DATA")
    return load(name, folder, tokeniser=config.tokeniser, max_length=config.max_length, max_train=config.max_train)


def run(config: Config, **how: Any) -> xr.Dataset:
    """Train and score every unit of `units`.

    Returns
    -------
    Dataset over (task, row, seed) of what `measure` returns, NaN where a unit is missing; correct has the dimension example, reliability
    bin and column, the curves epoch. `how`: see `experiments.sweep.over`.
    """
    from experiments import sweep

    return sweep.run(NAME, config, **how)


def _source(config: Config, task: str) -> str:
    """The name of a task's data set."""
    return "sst2_phrases" if task == "sst2" and config.phrases else task


def prepare(config: Config) -> None:
    """FileNotFoundError if a task's files are not there."""
    from experiments.data.files import placed

    for task in config.tasks:
        if task != "digits":
            placed(_source(config, task), config.data)


def estimate(config: Config, unit: dict[str, Any]) -> tuple[float, float]:
    """Rough seconds and bytes of one unit on one core, from the operations of training and of Phase A."""
    from attention.counts import counts

    row, n_train = ROWS[unit["row"]], _training_rows(config, unit["task"])
    model = _model(config, row, 2, VOCABULARY, None, config.max_length)
    one = counts(model, max(1, config.max_length // 2))["total"]
    operations = one.flops * n_train * (3 * config.n_epochs + 1)
    if row.particles in ("align", "align, unfreeze", "shuffled"):
        n_steps = row.recipe.get("n_align", config.n_align)
        operations += 30 * config.layers * n_steps * model.n_features * config.align_sequences * config.dim
    activations = 4 * config.batch_size * config.max_length * config.layers * (12 * config.dim + 4 * config.heads * model.n_features)
    return 2 + operations / OPERATIONS, 8e8 + 16.0 * one.parameters + 4.0 * activations + 8.0 * n_train * config.max_length


def _training_rows(config: Config, task: str) -> int:
    n = 67_349 if task == "sst2" and config.phrases else TASKS[task]
    return min(n, config.max_train or n)


def rehearse(config: Config, *, n_steps: int = 3) -> str:
    """A few steps of softmax and of a kernel at the configured sizes on random tokens: seconds a step, memory, the projected time."""
    import resource

    from attention.finetune import finetune
    from attention.model import Transformer

    found, batches = {}, _stand_in(config, n_steps)
    for name in ("softmax", "K-softplus"):
        model = Transformer(_model(config, ROWS[name], 2, VOCABULARY, None, config.max_length))
        found[name] = float(finetune(model, batches, n_epochs=2, rng=0).seconds[1]) / n_steps  # the second pass has no warm-up
    steps = sum(_training_rows(config, task) * config.n_epochs / config.batch_size for task in config.tasks)
    hours = steps * config.n_seeds * len(config.rows or PARTS[config.part]) * sum(found.values()) / len(found) / 3600
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    said = ", ".join(f"{name} {seconds:.2f} s a step" for name, seconds in found.items())
    return f"random tokens, {config.batch_size} x {config.max_length}: {said}, {memory:.1f} GiB; all units would take {hours:.0f} h here"


def _stand_in(config: Config, n_batches: int) -> list[dict[str, Any]]:
    """Random tokens and labels of the configured shape."""
    import torch

    generator = torch.Generator().manual_seed(0)
    shape = (config.batch_size, config.max_length)
    return [
        {
            "tokens": torch.randint(2, VOCABULARY, shape, generator=generator),
            "key_mask": torch.ones(shape, dtype=torch.bool),
            "labels": torch.randint(2, shape[:1], generator=generator),
        }
        for _ in range(n_batches)
    ]


def section(ds: xr.Dataset) -> Section:
    """Tables and conclusions."""
    from experiments import sentence_tables

    return sentence_tables.section(ds)


def figures(ds: xr.Dataset) -> dict[str, Figure]:
    """Pictures by file name."""
    from experiments.plots import sentences

    return sentences.figures(ds)
