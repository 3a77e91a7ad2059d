"""A learned kernel inside a linear transformer on real data: Phase A and Phase B against softmax and the controls.

All rows have the same sizes, the same number of epochs, the same learning rates and batches, and of one seed the same initial weights;
they differ in the attention and in what happens to its particles. The first epochs ("warm") keep the particles fixed except end to end.

| method          | particles                                                                    |
|-----------------|------------------------------------------------------------------------------|
| softmax         | none: scaled dot-product attention                                           |
| fixed           | stay as drawn                                                                |
| align           | Phase A after the warm epochs, then frozen (the Coulomb paper's recipe)      |
| align, unfreeze | Phase A after the warm epochs, then trained with everything else             |
| shuffled        | Phase A with permuted labels, then frozen: what Phase A does without labels  |
| end to end      | trained with everything else from the first step                             |
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import asdict, dataclass
from typing import Any

import torch
import xarray as xr

from attention.finetune import predict
from attention.model import ModelConfig, Transformer
from experiments.data import Dataset, load
from experiments.settings import chosen, epochs_after
from experiments.training import ALIGNMENTS, EVALUATED, Recipe, test_scores, trained
from particles.arrays import count, positive

METHODS = {  # with what happens to the particles, see `training`
    "softmax": "fixed",
    "fixed": "fixed",
    "align": "align",
    "align, unfreeze": "align, unfreeze",
    "shuffled": "shuffled",
    "end to end": "learned",
}
_IMAGES: dict[str, Any] = {"n_epochs": 8, "batch_size": 64, "dropout": 0.1, "lr": 8e-3}
_TEXTS: dict[str, Any] = {"n_epochs": 3, "batch_size": 128, "dropout": 0.3, "lr": 5e-3}


@dataclass(frozen=True)
class Config:
    """What `run` does. Settings that are None depend on the data."""

    data: str | None = None  # name (demo: --dataset), a folder inside --folder if there is one; None: the folder's own name
    folder: str | None = None  # labelled texts or pixel images (demo: --data), or the folder above; None: scikit-learn's digits
    attention: str = "softplus"  # feature map of all methods but softmax
    methods: tuple[str, ...] = tuple(METHODS)  # some of these six
    n_features: int = 32  # features of each head
    dim: int = 64  # width of a token inside the model
    heads: int = 4  # heads of each layer
    layers: int = 1  # transformer blocks
    ff: int = 128  # width of the feed-forward part
    n_epochs: int | None = None  # passes over the training part; None: 8 on images, 3 on texts
    n_warm: int = 1  # epochs before Phase A, of n_epochs
    batch_size: int | None = None  # sequences of one step; None: 64 on images, 128 on texts
    dropout: float | None = None  # share of activations dropped in training; None: 0.1 on images, 0.3 on texts
    lr: float | None = None  # learning rate of AdamW; None: 0.008 on images, 0.005 on texts
    omega_lr: float = 5e-3  # learning rate of released particles
    n_align: int = 100  # Langevin steps of Phase A
    align_sequences: int = 512  # training sequences that Phase A uses at most
    max_length: int = 40  # words of a text that are read
    max_train: int | None = None  # use about so many training sequences, class by class; None: all
    n_seeds: int = 3  # seed, seed + 1, ...; each has its own initial weights, particles, batches and noise, all have the same split
    seed: int = 0  # the first seed

    def __post_init__(self) -> None:
        chosen(self.methods, METHODS, "methods")
        if self.attention == "softmax":
            raise ValueError("attention must be a feature map: softmax is one of the methods, got 'softmax'")
        for name in ("n_warm", "n_align", "align_sequences", "n_seeds"):
            count(getattr(self, name), name)
        for name in ("batch_size", "max_length", "max_train"):
            if getattr(self, name) is not None:
                count(getattr(self, name), name)
        count(self.seed, "seed", least=0)
        if self.n_epochs is not None:
            epochs_after(self.n_warm, self.n_epochs)
        if self.lr is not None:
            positive(self.lr, "lr")
        positive(self.omega_lr, "omega_lr")

    def settled(self, data: Dataset) -> Config:
        """The same with the settings that depend on the data filled in."""
        default: dict[str, Any] = {"data": data.name} | (_IMAGES if data.vocab_size is None else _TEXTS)
        default["n_epochs"] = max(default["n_epochs"], self.n_warm + 1)
        return dataclasses.replace(self, **{name: value for name, value in default.items() if getattr(self, name) is None})

    def model(self, data: Dataset, *, softmax: bool) -> ModelConfig:
        """The sizes of one row's model."""
        assert self.dropout is not None  # a settled Config
        return ModelConfig(
            n_classes=data.n_classes, max_length=data.max_length, vocab_size=data.vocab_size, input_dim=data.input_dim, dim=self.dim,
            heads=self.heads, layers=self.layers, ff=self.ff, dropout=self.dropout, n_features=self.n_features,
            attention="softmax" if softmax else self.attention,
        )  # fmt: skip

    def recipe(self) -> Recipe:
        """How every row is trained."""
        assert self.n_epochs is not None  # a settled Config
        assert self.batch_size is not None
        assert self.lr is not None
        return Recipe(
            n_epochs=self.n_epochs, n_warm=self.n_warm, batch_size=self.batch_size, lr=self.lr, omega_lr=self.omega_lr,
            n_align=self.n_align, align_sequences=self.align_sequences,
        )  # fmt: skip


def run(config: Config) -> xr.Dataset:
    """Train every method with every seed and measure it on the test part.

    Returns
    -------
    Dataset over (method, seed): accuracy with its Wilson interval accuracy_low, accuracy_high [share of test sequences], matthews,
    log_loss [nats], brier, calibration_error (15 equal-width bins); training_seconds (Phase A included), align_seconds,
    inference_seconds (the test part once, the best of three); for methods with Phase A alignment_before, alignment_after and, on
    sequences it did not see, holdout_before, holdout_after: centred kernel alignment with the labels that Phase A got, mean over layers
    and heads. (method, seed, epoch): train_loss, validation_accuracy. (method, seed, row, class): probability, with label (row).

    Raises
    ------
    ValueError
        On data that cannot be read or settings that do not fit.
    FileNotFoundError
        If there are no data.
    """
    data = load(config.data, config.folder, seed=0, max_length=config.max_length, max_train=config.max_train)
    config = config.settled(data)
    Transformer(config.model(data, softmax=False))  # so that a wrong size or name stops here, not after the first rows
    seeds = range(config.seed, config.seed + config.n_seeds)
    dataset = xr.concat([_one(config, data, seed) for seed in seeds], "seed").assign_coords(seed=list(seeds))
    dataset["label"] = ("row", data.test.labels)
    facts = {"name": data.name, "source": data.source, "sha256": data.sha256, "n_classes": data.n_classes, "max_length": data.max_length}
    sizes = {f"n_{part}": len(getattr(data, part)) for part in ("train", "validation", "test")}
    return dataset.assign_attrs(experiment="classify", schema=1, config=json.dumps(asdict(config)), data=json.dumps(facts | sizes))


def _one(config: Config, data: Dataset, seed: int) -> xr.Dataset:
    """All methods with one seed."""
    return xr.concat([_row(config, data, seed, name) for name in config.methods], "method").assign_coords(method=list(config.methods))


def _row(config: Config, data: Dataset, seed: int, name: str) -> xr.Dataset:
    """One trained model on the test part."""
    model = Transformer(config.model(data, softmax=name == "softmax"), rng=seed)
    history = trained(model, data, config.recipe(), seed=seed, particles=METHODS[name])
    found = test_scores(model, data.test)
    measured = {key: value for key, value in found.items() if key not in ("correct", "reliability")}
    aligned = {key: float(history[key]) for key in ("align_seconds", *ALIGNMENTS)}
    return xr.Dataset(
        {
            **measured,
            **aligned,
            "training_seconds": float(history.train_seconds),
            "train_loss": ("epoch", history.train_loss.values),
            "validation_accuracy": ("epoch", history.accuracy.values),
            "probability": (("row", "class"), predict(model, data.test.batches(EVALUATED))[0].to(torch.float32).numpy()),
        },
        coords={"epoch": history.epoch.values},
    )


def estimate(config: Config, unit: dict[str, Any]) -> tuple[float, float]:
    """Rough seconds and bytes of a run on one core, for 10,000 short texts."""
    return 25.0 * config.n_seeds * len(config.methods) * config.layers * config.dim / 64, 1e9


PRESETS = {
    "smoke": Config(methods=("softmax", "align"), n_epochs=2, max_train=60, n_align=5, dim=16, heads=2, n_features=8, ff=16, n_seeds=1),
    "cpu": Config(),
}
