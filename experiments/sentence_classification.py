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
* Optimiser: AdamW with warm-up and cosine (main text), not Adam without (supplement). The rate is one for all rows: see `Config.lr`.
* Scores are of test parts with published labels, several seeds, standard calibration error. The paper's accuracies are all multiples of
  1/872 and 1/1066, so they are single runs; its calibration errors of .2 to .46 are impossible beside its Brier scores.
* Temperature 1, floor 0 and b = 0 in the maps; inputs scaled by head_dim^(-1/4) before every map; log repulsion within a head.
* Tokens: WordPiece trained on the training part, lower case ("original casing" and an uncased tokeniser exclude each other).
* SST-2 is trained on its 6,920 sentences, not on their 67,349 phrases; QQP is a part of the published development file.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from experiments.matching import chosen
from particles.arrays import count, positive, real

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

    from attention.model import ModelConfig, Transformer
    from experiments.data import Dataset
    from experiments.report import Section
    from experiments.training import Recipe

NAME = "sentence_classification"
TASKS = {"sst2": "sst2", "qqp": "qqp_subset", "rotten_tomatoes": "rotten_tomatoes", "digits": None}  # name: folder of the files
MAPS = ("favor", "elu", "softplus", "sigmoid2", "softmaxfeat", "cos2", "porf-softplus")
ABLATED = ("softmaxfeat", "favor", "softplus")


class Row(NamedTuple):
    """What is different in a row."""

    attention: str
    particles: str = "fixed"  # a name of `training.PARTICLES`
    projections: str = "input"
    recipe: dict[str, Any] = {}  # noqa: RUF012  # fields of `training.Recipe` in the place of the Config's
    n_features: int | None = None  # None: the Config's
    width: float = 1.0  # of the first particles, in units of the map's draw
    noise: float = 0.0  # share of the training labels that are replaced by random other ones


_MAIN = {
    "softmax": Row("softmax", projections="separate"),
    "favor-WqWk": Row("favor", projections="separate"),
    "Performer": Row("favor", "redrawn", "separate"),
    "Linformer": Row("linformer", projections="separate"),
    **{f"{kind}-{name}": Row(name, particles) for name in MAPS for kind, particles in (("V", "fixed"), ("K", "align"))},
}
CONTROLS: dict[str, dict[str, Any]] = {  # of every map, in the place of "K-x: Phase A, then frozen"
    "shuffled": {"particles": "shuffled"},
    "unfreeze": {"particles": "align, unfreeze"},
    "joint": {"particles": "learned"},
    "half width": {"particles": "fixed", "width": 0.5},
}
_PAPER = {"lam": 5e-4, "beta": 50.0, "step_size": 2e-3, "radius": 1.5}  # lambda of W is twice lam
ABLATIONS: dict[str, dict[str, dict[str, Any]]] = {  # panel: {what is different: how}
    "repulsion": {f"lam {lam}": {"recipe": {"lam": lam}} for lam in (0.0, 0.1)} | {f"s {s}": {"recipe": {"s": s}} for s in (1.0, 2.0)},
    "temperature": {"beta 50": {"recipe": {"beta": 50.0}}, "no noise": {"recipe": {"beta": 1e12}}},
    "length of Phase A": {f"{n} steps": {"recipe": {"n_align": n}} for n in (20, 500)},
    "the paper's constants": {"paper": {"recipe": _PAPER}},
    "particles": {f"{n} particles": {"n_features": n} for n in (16, 256)},
    "label noise": {"noise 0.2": {"noise": 0.2}},
}
_WITH_VANILLA = ("particles", "label noise")  # V-x changes too


def _ablations() -> dict[str, Row]:
    rows = {f"K-{name} {what}": _MAIN[f"K-{name}"]._replace(**change) for name in MAPS for what, change in CONTROLS.items()}
    for name in ABLATED:
        for panel, changes in ABLATIONS.items():
            for what, change in changes.items():
                kinds = ("V", "K") if panel in _WITH_VANILLA else ("K",)
                rows |= {f"{kind}-{name} {what}": _MAIN[f"{kind}-{name}"]._replace(**change) for kind in kinds}
    return rows


PARTS = {"main": _MAIN, "ablations": _ablations()}
ROWS = PARTS["main"] | PARTS["ablations"]
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
    data: str = ""  # folder with the folders sst2, qqp_subset and rotten_tomatoes
    checkpoints: str = ""  # folder for the state of unfinished units; "": none
    max_train: int | None = 7000  # use about so many training rows, class by class; None: all
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
        chosen((self.part,), PARTS, "part")
        chosen(self.tasks, TASKS, "tasks")
        if self.rows:
            chosen(self.rows, PARTS[self.part], "rows")
        for name in ("n_seeds", "max_length", "batch_size", "n_align", "align_sequences", "dim", "heads", "layers", "ff", "n_features"):
            count(getattr(self, name), name)
        for name in ("seed", "n_warm"):
            count(getattr(self, name), name, least=0)
        count(self.n_epochs, "n_epochs", least=self.n_warm + 1)
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
PRESETS = {
    "smoke": Config(tasks=("digits",), rows=("softmax", "Performer", "Linformer", "V-softplus", "K-softplus"), n_seeds=2, max_train=120, **_TINY),
    "cpu": Config(),
    "paper": Config(max_train=None, max_length=128, n_epochs=10, n_warm=1, lr=2e-4, n_features=256),
}
REDUCED = {
    "smoke": "scikit-learn's digits, tiny models",
    "cpu": "3 epochs of 10, at most 7,000 training rows, 64 features of 256 a head, at most 64 tokens of 128, a vocabulary of the data's own",
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
        feature_map.load_omega(_narrowed(feature_map.omega.detach(), row.width, feature_map.feature.offset))
    return model


def _narrowed(omega: Any, width: float, offset: int) -> Any:
    """Frequencies times `width`; a phase stays."""
    scale = np.ones(omega.shape[-1])
    scale[: len(scale) - offset] = width
    return omega * omega.new_tensor(scale)


def _model(
    config: Config, row: Row, n_classes: int, vocab_size: int | None, input_dim: int | None, max_length: int
) -> ModelConfig:
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

    folder = TASKS[task]
    if folder is None:
        return load(task, max_train=config.max_train)
    return load(folder, config.data or None, tokeniser=config.tokeniser, max_length=config.max_length, max_train=config.max_train)
