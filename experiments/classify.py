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

import copy
import dataclasses
import json
import math
import time
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import xarray as xr

from attention.align import align
from attention.finetune import finetune, predict
from attention.model import ModelConfig, Transformer
from experiments import metrics
from experiments.data import Dataset, load
from experiments.matching import chosen
from particles.arrays import count, positive


class Method(NamedTuple):
    """How the particles of a row come about; `aligned` names the labels of Phase A."""

    softmax: bool = False
    aligned: str | None = None
    warm_learned: bool = False
    learned: bool = False


METHODS = {
    "softmax": Method(softmax=True),
    "fixed": Method(),
    "align": Method(aligned="labels"),
    "align, unfreeze": Method(aligned="labels", learned=True),
    "shuffled": Method(aligned="shuffled"),
    "end to end": Method(warm_learned=True, learned=True),
}
_IMAGES: dict[str, Any] = {"n_epochs": 8, "batch_size": 64, "dropout": 0.1, "lr": 8e-3}
_TEXTS: dict[str, Any] = {"n_epochs": 3, "batch_size": 128, "dropout": 0.3, "lr": 5e-3}
_ALIGNED = ("alignment_before", "alignment_after", "holdout_before", "holdout_after")


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
            count(self.n_epochs, "n_epochs", least=self.n_warm + 1)
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
    """All methods with one seed. Rows that share their first epochs share that model; rows that share Phase A share its particles."""
    starts: dict[Method, _Start] = {}
    rows = []
    for name in config.methods:
        method = METHODS[name]
        key = method._replace(learned=False)
        if key not in starts:
            plain = key._replace(aligned=None)
            if plain not in starts:
                starts[plain] = _warm(config, data, seed, plain)
            starts[key] = _phase_a(starts[plain], config, data, seed, key.aligned)
        start = starts[key]
        model = copy.deepcopy(start.model)
        rest = _train(model, config, data, seed + 1_000_000, (config.n_epochs or 0) - config.n_warm, learned=method.learned)
        rows.append(_measured(model, data, xr.concat([start.history, rest], "epoch"), start.aligned))
    return xr.concat(rows, "method").assign_coords(method=list(config.methods))


class _Start(NamedTuple):
    """A model after its first epochs and, perhaps, Phase A; the epochs' history; seconds and alignments of Phase A."""

    model: Transformer
    history: xr.Dataset
    aligned: dict[str, float]


def _warm(config: Config, data: Dataset, seed: int, method: Method) -> _Start:
    """A fresh model after its first epochs."""
    model = Transformer(config.model(data, softmax=method.softmax), rng=seed)
    history = _train(model, config, data, seed, config.n_warm, learned=method.warm_learned)
    return _Start(model, history, {"align_seconds": 0.0} | dict.fromkeys(_ALIGNED, math.nan))


def _train(model: Transformer, config: Config, data: Dataset, seed: int, n_epochs: int, *, learned: bool) -> xr.Dataset:
    """Phase B for some epochs, in an order of the batches that depends on the seed only."""
    batch_size = config.batch_size or 0
    return finetune(
        model,
        data.train.batches(batch_size, np.random.default_rng([seed, 0])),
        freeze_omega=not learned,
        omega_lr=config.omega_lr if learned else None,
        n_epochs=n_epochs,
        lr=config.lr or 0.0,
        validation=data.validation.batches(512),
        rng=seed,
    )


def _phase_a(start: _Start, config: Config, data: Dataset, seed: int, labels: str | None) -> _Start:
    """A copy whose particles are aligned with the training labels, permuted for "shuffled"; `start` itself without labels."""
    if labels is None:
        return start
    split = data.train
    if labels == "shuffled":
        split = dataclasses.replace(split, labels=np.random.default_rng([seed, 1]).permutation(split.labels))
    model = copy.deepcopy(start.model)
    result = align(model, split.batches(512), n_steps=config.n_align, max_sequences=config.align_sequences, rng=seed)
    means = {name: float(result[name].mean()) for name in _ALIGNED}
    return _Start(model, start.history, {"align_seconds": result.attrs["seconds"], **means})


def _measured(model: Transformer, data: Dataset, history: xr.Dataset, aligned: dict[str, float]) -> xr.Dataset:
    """One trained model on the test part."""
    seconds, batches = [], list(data.test.batches(512))
    for _ in range(3):
        start = time.perf_counter()
        probabilities, labels = predict(model, batches)
        seconds.append(time.perf_counter() - start)
    training = float(history.seconds.sum()) + aligned["align_seconds"]
    numbers = metrics.scores(probabilities, labels) | aligned | {"training_seconds": training, "inference_seconds": min(seconds)}
    return xr.Dataset(
        {
            **numbers,
            "train_loss": ("epoch", history.train_loss.values),
            "validation_accuracy": ("epoch", history.accuracy.values),
            "probability": (("row", "class"), probabilities.to(torch.float32).numpy()),
        },
        coords={"epoch": np.arange(1, 1 + history.sizes["epoch"])},
    )
