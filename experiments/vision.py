"""SOFT's experiments at small scale: attentions in one pyramid, landmarks and how they are made, spectral norms (arXiv 2110.11945).

The pyramid is the four-stage vision transformer of `attention.vision`. Stages 1 to 3 have the row's attention, the last has softmax with a
class token, as released. All rows have the same sizes, images, order of batches and steps. Landmarks, of SOFT and Nystromformer, and
Linformer's mixtures are equally many in a row. Learned kernels stand beside their controls: fixed, trained from the start, Phase A on
permuted labels, and the lengths of Phase A alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from experiments import sweep
from experiments.matching import chosen
from particles.arrays import count, positive

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

    from attention.vision import VisionConfig
    from experiments.report import Section
    from experiments.units import Scores, Unit

DIMS = ("task", "row", "seed")
EXTENT = ("tasks", "parts", "n_seeds", "seed", "data")
ARRAYS = {"train_loss": ("epoch",), "stage_norm": ("stage",), "tokens": ("length",), "norm": ("length",), "norm_high": ("length",)}


class Row(NamedTuple):
    """A row: its attention in stages 1 to 3, and what is special about it."""

    attention: str
    landmarks: str = "pool"
    side: int = 0  # landmarks along a side
    normalise: bool = False  # SOFT++
    particles: str = "fixed"


MAIN = {
    "softmax": Row("softmax"),
    "linformer": Row("linformer"),
    "performer": Row("favor"),
    "nystromformer": Row("nystromformer"),
    "soft": Row("softmax-free"),
    "soft++": Row("softmax-free", normalise=True),
    "performer, learned": Row("favor", particles="learned"),
    "particles": Row("favor", particles="aligned"),
    "particles, shuffled": Row("favor", particles="shuffled"),
    "particles, width alone": Row("favor", particles="width"),
    "flexformer": Row("flexformer", particles="learned"),
    "exponential": Row("exponential", particles="learned"),
}
TUNED = tuple(name for name in MAIN if name not in ("particles, shuffled", "particles, width alone"))
BOTTLENECK = {f"soft, {side}x{side} landmarks": Row("softmax-free", side=side) for side in (2, 3, 8)}
SAMPLING = {f"soft, {name} landmarks": Row("softmax-free", landmarks=name) for name in ("conv", "random", "first")}
ROWS = MAIN | BOTTLENECK | SAMPLING
NORMS = {"softmax": "softmax", "soft": "plain", "soft++": "SOFT++", "soft over tokens": "over tokens"}  # as `softmax_free_plots` has them
RANDOM = "random tokens"  # the task of the spectral norms
PARTS = ("main", "bottleneck", "sampling", "norm", "rates")


@dataclass(frozen=True, kw_only=True)
class Config:
    """What is measured."""

    tasks: tuple[str, ...] = ("mnist_subset", "cifar10_grey_subset")  # data sets; the last one is that of ablations and learning rates
    parts: tuple[str, ...] = PARTS  # main, bottleneck, sampling, norm, rates (each row's learning rates, on seed tuning_seed)
    n_seeds: int = 3  # seeds of each row
    seed: int = 0  # the first of them
    data: str = ""  # folder with the data sets; by default the one that KERNELGAS_DATA names
    max_train: int = 4000  # training images at most
    max_test: int = 2000  # test images at most
    size: str = "small"  # of the pyramid: small (this experiment's own), digits, or SOFT's tiny, small-soft, medium, large, huge
    landmarks: int = 4  # landmarks along a side of the grid, in stages 1 to 3
    n_features: int = 32  # of feature maps, a head
    drop_path: float = 0.0  # probability of leaving out a residual branch in the last block
    n_epochs: int = 4  # passes over the training images
    n_warm: int = 1  # of them before Phase A
    batch_size: int = 64  # images of one step
    lr: float = 0.001  # learning rate of AdamW
    weight_decay: float = 0.05  # of matrices
    clip: float = 1.0  # largest gradient norm
    rates: tuple[float, ...] = (0.0003, 0.001, 0.003)  # learning rates that part "rates" compares
    tuning_seed: int = 100  # seed of part "rates"
    n_align: int = 100  # Langevin steps of Phase A
    align_images: int = 512  # training images that Phase A uses at most
    lengths: tuple[int, ...] = (49, 196, 784, 3136)  # numbers of tokens in part "norm"
    n_landmarks: int = 49  # landmarks in part "norm"
    device: str = "cpu"  # where the models are trained

    def __post_init__(self) -> None:
        chosen(self.parts, PARTS, "parts")
        if not self.tasks or len(set(self.tasks)) < len(self.tasks):
            raise ValueError(f"tasks must be names of data sets, each once, got {self.tasks!r}")
        if self.size not in SIZES:
            raise ValueError(f"size must be one of {tuple(SIZES)}, got {self.size!r}")
        for name in ("n_seeds", "max_train", "max_test", "landmarks", "n_features", "batch_size", "n_align", "align_images", "n_landmarks"):
            count(getattr(self, name), name)
        for name in ("seed", "tuning_seed", "n_warm"):
            count(getattr(self, name), name, least=0)
        count(self.n_epochs, "n_epochs", least=self.n_warm + 1)
        for name in ("lr", "clip", *(("rates",) * len(self.rates))):
            positive(getattr(self, name) if name != "rates" else min(self.rates), name)
        positive(self.weight_decay, "weight_decay", zero=True)
        for length in self.lengths:
            count(length, "lengths", least=2)
        if not self.lengths or not self.rates:
            raise ValueError(f"lengths and rates must not be empty, got {self.lengths!r} and {self.rates!r}")


SIZES: dict[str, dict[str, Any]] = {
    "small": {"stem": (2,), "dims": (16, 32, 48, 64), "heads": (1, 1, 2, 2), "depths": (1, 1, 1, 1), "conv": (5, 3, 3, 0), "ff_ratio": 2},
    "digits": {"stem": (1,), "dims": (16, 32, 48, 64), "heads": (1, 2, 3, 4), "depths": (1, 1, 1, 1), "conv": (3, 3, 3, 0)},
    "tiny": {}, "small-soft": {"depths": (1, 3, 7, 4)},
}  # fmt: skip
PRESETS = {
    "smoke": Config(
        tasks=("digits",), n_seeds=1, max_train=200, max_test=100, size="digits", landmarks=2, n_features=8, n_epochs=2, rates=(0.003,),
        lr=0.003, n_align=5, align_images=64, lengths=(16, 64), n_landmarks=8,
    ),
    "cpu": Config(),
    "paper": Config(
        tasks=("imagenet",), max_train=10_000_000, max_test=50_000, size="tiny", landmarks=7, n_features=64, drop_path=0.1, n_epochs=300,
        n_warm=10, batch_size=1024, align_images=2048, rates=(0.0005, 0.001, 0.002), device="cuda",
    ),
}  # fmt: skip
REDUCED = {
    "smoke": "scikit-learn's 8x8 digits, 200 training images, 2 epochs, one seed",
    "cpu": "grey images of 28x28 and 32x32 in place of ImageNet's 224x224, 4,000 training images, 4 epochs of 300, widths 16 to 64 in place "
    "of 64 to 512, 16 landmarks in place of 49, no drop path and no moving average of the weights",
    "paper": "no moving average of the weights, random crops and mirrored images alone as augmentation",
}


def units(config: Config) -> Iterator[Unit]:
    """Every row on every task and seed, each once, though two parts may want it."""
    seeds, wanted = range(config.seed, config.seed + config.n_seeds), dict[tuple[str, str, int], None]()
    last, where = config.tasks[-1:], {"main": config.tasks}
    for part, rows in (("main", MAIN), ("bottleneck", {"soft": None, **BOTTLENECK}), ("sampling", {"soft": None, **SAMPLING})):
        if part in config.parts:
            wanted |= dict.fromkeys((task, row, seed) for task in where.get(part, last) for row in rows for seed in seeds)
    if "norm" in config.parts:
        wanted |= dict.fromkeys((RANDOM, row, seed) for row in NORMS for seed in seeds)
    if "rates" in config.parts:
        wanted |= dict.fromkeys((last[0], rated(row, lr), config.tuning_seed) for row in TUNED for lr in config.rates)
    for task, row, seed in wanted:
        yield {"task": task, "row": row, "seed": seed}


def rated(row: str, lr: float) -> str:
    """The name of a row with a learning rate of its own."""
    return f"{row}, lr {lr:g}"


def measure(config: Config, unit: Unit) -> Scores:
    """Train and score one row, or measure the spectral norms of one attention."""
    if unit["task"] == RANDOM:
        return _norms(config, unit["row"], unit["seed"])
    name, _, rate = unit["row"].partition(", lr ")
    return _trained(config, unit["task"], name, unit["seed"], float(rate) if rate else config.lr)


def _trained(config: Config, task: str, name: str, seed: int, lr: float) -> Scores:
    import torch

    from attention.vision import VisionTransformer
    from experiments import vision_training as training
    from experiments.pictures import pictures

    data = pictures(task, config.data, seed=seed, max_train=config.max_train, max_test=config.max_test)
    row, recipe = ROWS[name], _recipe(config, lr)
    model = VisionTransformer(_sizes(config, row, data.side, data.channels, data.n_classes), rng=seed).to(config.device)
    found = training.trained(model, data, recipe, seed=seed, particles=row.particles)
    held = training.scores(model, data.validation)
    some = torch.from_numpy(data.test.take(np.arange(min(16, len(data.test.labels)))))
    facts = {"data": data.source, "data_sha256": data.sha256}
    found |= {"validation_loss": held["log_loss"], "validation_accuracy": held["accuracy"]}
    found |= {"n_parameters": sum(p.numel() for p in model.parameters()), "n_train": len(data.train.labels)}
    return found | training.scores(model, data.test) | {"stage_norm": training.stage_norms(model, some, seed=seed)} | facts


def _norms(config: Config, row: str, seed: int) -> Scores:
    """Spectral norms of one attention on N(0, 1) tokens of width 32, the same for all rows: mean and largest of four draws."""
    import torch

    from attention.softmax_free_plots import attentions, spectral_norms

    landmarks, tokens = (torch.Generator().manual_seed(2 * seed + k) for k in range(2))
    attend = {row: attentions(config.n_landmarks, generator=landmarks)[NORMS[row]]}
    norms = spectral_norms(config.lengths, attend, generator=tokens)[row].double().numpy()
    return {"tokens": np.array(config.lengths, float), "norm": norms.mean(1), "norm_high": norms.max(1)}


def _sizes(config: Config, row: Row, side: int, channels: int, n_classes: int) -> VisionConfig:
    from attention.vision import VisionConfig

    kind = (row.attention,) * 3 + ("softmax",)
    first = VisionConfig(
        n_classes=n_classes, image_size=side, channels=channels, attention=kind, landmarks=row.landmarks, normalise=row.normalise,
        n_features=_features(config, row), drop_path=config.drop_path, **SIZES[config.size],
    )  # fmt: skip
    wanted = row.side or config.landmarks
    strides = tuple(next(s for s in range(1, grid + 1) if -(-grid // s) <= wanted) for grid in first.sides)
    return VisionConfig(**(vars(first) | {"landmark_strides": strides}))


def _features(config: Config, row: Row) -> int:
    return config.n_features


def _recipe(config: Config, lr: float) -> Any:
    from experiments.vision_training import Recipe

    names = ("n_epochs", "n_warm", "batch_size", "weight_decay", "clip", "n_align", "align_images")
    return Recipe(lr=lr, **{name: getattr(config, name) for name in names})
