"""SOFT's experiments at small scale: attentions in one pyramid, landmarks and how they are made, spectral norms (arXiv 2110.11945).

The pyramid is the four-stage vision transformer of `attention.vision`. Stages 1 to 3 have the row's attention, the last has softmax with a
class token, as released. All rows have the same sizes, images, order of batches and steps. Landmarks, of SOFT and Nystromformer, and
Linformer's mixtures are equally many in a row. Learned kernels stand beside their controls: fixed, trained from the start, Phase A on
permuted labels, and the lengths of Phase A alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.settings import chosen, epochs_after
from experiments.vision_rows import BOTTLENECK, MAIN, NARROW, NORMS, ROWS, SAMPLING, SIZES, TUNED, model_config
from particles.arrays import count, positive

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

    from experiments.report import Section
    from experiments.units import Scores, Unit

DIMS = ("task", "row", "seed")
EXTENT = ("tasks", "parts", "rows", "n_seeds", "seed", "data", "rates", "tuning_seed")
ARRAYS = {"train_loss": ("epoch",), "stage_norm": ("stage",), "tokens": ("length",), "norm": ("length",), "norm_high": ("length",)}
RANDOM = "random tokens"  # the task of the spectral norms
PARTS = ("main", "bottleneck", "sampling", "spread", "norm", "rates")


@dataclass(frozen=True, kw_only=True)
class Config:
    """What is measured."""

    tasks: tuple[str, ...] = ("mnist_subset", "cifar10_grey_subset")  # data sets; the last one is that of ablations and learning rates
    parts: tuple[str, ...] = PARTS[:-1]  # main, bottleneck, sampling, spread, norm; rates: each row's, on seed tuning_seed
    rows: tuple[str, ...] = tuple(MAIN)  # of parts main and rates
    n_seeds: int = 3  # seeds of each row
    seed: int = 0  # the first of them
    data: str = ""  # folder with the data sets; by default the one that KERNELGAS_DATA names
    max_train: int = 4000  # training images at most
    max_test: int = 2000  # test images at most
    size: str = "small"  # of the pyramid: small (this experiment's own), digits, or SOFT's tiny, small-soft, medium, large, huge
    landmarks: int = 4  # landmarks along a side of the grid, in stages 1 to 3
    n_features: int = 32  # of feature maps, a head
    drop_path: float = 0.0  # probability of leaving out a residual branch in the last block
    n_epochs: int = 2  # passes over the training images
    n_warm: int = 1  # of them before Phase A
    batch_size: int = 32  # images of one step
    lr: float = 0.001  # learning rate of AdamW
    lrs: dict[str, float] = field(default_factory=dict)  # learning rates by row, as part "rates" found them
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
        chosen(self.rows, MAIN, "rows")
        if not self.tasks or len(set(self.tasks)) < len(self.tasks):
            raise ValueError(f"tasks must be names of data sets, each once, got {self.tasks!r}")
        if self.size not in SIZES:
            raise ValueError(f"size must be one of {tuple(SIZES)}, got {self.size!r}")
        for name in ("n_seeds", "max_train", "max_test", "landmarks", "n_features", "batch_size", "n_align", "align_images", "n_landmarks"):
            count(getattr(self, name), name)
        for name in ("seed", "tuning_seed", "n_warm"):
            count(getattr(self, name), name, least=0)
        epochs_after(self.n_warm, self.n_epochs)
        for value, name in ((self.lr, "lr"), (self.clip, "clip"), *((rate, "rates") for rate in self.rates)):
            positive(value, name)
        positive(self.weight_decay, "weight_decay", zero=True)
        for length in self.lengths:
            count(length, "lengths", least=2)
        for row, rate in self.lrs.items():
            chosen((row,), TUNED, "rows of lrs")
            positive(rate, "lrs")
        if not self.lengths or not self.rates:
            raise ValueError(f"lengths and rates must not be empty, got {self.lengths!r} and {self.rates!r}")


PRESETS = {
    "smoke": Config(
        tasks=("digits",), rows=("softmax", "performer", "nystromformer", "linformer", "soft", "particles", "flexformer"),
        parts=("main", "bottleneck", "sampling", "norm"), n_seeds=1, max_train=150, max_test=100, size="digits",
        landmarks=2, n_features=8, n_epochs=2, rates=(0.003,),
        lr=0.003, n_align=5, align_images=64, lengths=(16, 64), n_landmarks=8,
    ),
    "cpu": Config(lr=0.003, lrs={"soft": 0.001}),  # as part "rates" found them
    "paper": Config(
        tasks=("imagenet",), max_train=1_281_167, max_test=50_000, size="tiny", landmarks=7, n_features=64, drop_path=0.1, n_epochs=300,
        n_warm=10, batch_size=1024, align_images=2048, rates=(0.0005, 0.001, 0.002), device="cuda",
    ),
}  # fmt: skip
REDUCED = {
    "smoke": "scikit-learn's 8x8 digits, 200 training images, 2 epochs, one seed",
    "cpu": "grey images of 28x28 and 32x32 in place of ImageNet's 224x224, 4,000 training images, 2 epochs of 300, widths 16 to 64 for"
    " 64 to 512, one block a stage, 16 landmarks in place of 49, no augmentation, no drop path, no moving average of the weights",
    "paper": "no moving average of the weights, random crops and mirrored images alone as augmentation",
}


def units(config: Config) -> Iterator[Unit]:
    """Every row on every task and seed, each once, though two parts may want it."""
    seeds, wanted = range(config.seed, config.seed + config.n_seeds), dict[tuple[str, str, int], None]()
    last, where = config.tasks[-1:], {"main": config.tasks}
    compared = {"main": config.rows, "bottleneck": ("soft", *BOTTLENECK), "sampling": ("soft", *SAMPLING), "spread": NARROW}
    for part, rows in compared.items():
        if part in config.parts:
            wanted |= dict.fromkeys((task, row, seed) for task in where.get(part, last) for row in rows for seed in seeds)
    if "norm" in config.parts:
        wanted |= dict.fromkeys((RANDOM, row, seed) for row in NORMS for seed in seeds)
    if "rates" in config.parts:
        wanted |= dict.fromkeys((last[0], rated(row, lr), config.tuning_seed) for row in TUNED if row in config.rows for lr in config.rates)
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
    return _trained(config, unit["task"], name, unit["seed"], float(rate) if rate else rate_of(config, name))


def rate_of(config: Config, row: str) -> float:
    """A row's learning rate: its own in `lrs`, else that of the row it belongs to ("soft" of "soft, conv landmarks"), else `lr`."""
    return config.lrs.get(row, config.lrs.get(row.partition(",")[0], config.lr))


def _trained(config: Config, task: str, name: str, seed: int, lr: float) -> Scores:
    import torch

    from attention.vision import VisionTransformer
    from experiments import vision_training as training
    from experiments.pictures import pictures

    data = pictures(task, config.data, seed=seed, max_train=config.max_train, max_test=config.max_test)
    row, recipe = ROWS[name], _recipe(config, lr)
    model = VisionTransformer(model_config(config, row, data.side, data.channels, data.n_classes), rng=seed).to(config.device)
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


def _recipe(config: Config, lr: float) -> Any:
    from experiments.vision_training import Recipe

    names = ("n_epochs", "n_warm", "batch_size", "weight_decay", "clip", "n_align", "align_images")
    return Recipe(lr=lr, **{name: getattr(config, name) for name in names})


def prepare(config: Config) -> None:
    """FileNotFoundError if images are not there."""
    from experiments.pictures import placed

    for task in dict.fromkeys(unit["task"] for unit in units(config)):
        if task not in ("digits", RANDOM):
            placed(task, config.data)


def estimate(config: Config, unit: Unit) -> tuple[float, float]:
    """Seconds on one core and bytes, from what small pyramids took: 2 ms an image of 16x16 tokens and width 16, forward and backward."""
    if unit["task"] == RANDOM:
        return 2e-7 * sum(length * config.n_landmarks for length in config.lengths) * 30, 3e8 + 2000.0 * max(config.lengths)
    work = {"small": 1.0, "digits": 0.3, "tiny": 130.0, "small-soft": 250.0, "medium": 490.0, "large": 750.0, "huge": 1100.0}[config.size]
    images = config.max_train * config.n_epochs + 0.3 * (config.max_test + 0.1 * config.max_train)
    return 2e-3 * work * images + 2.0, 4e8 + 4e5 * work**0.7 * config.batch_size


def rehearse(config: Config) -> str:
    """Two steps of the rows of part "main" at the preset's sizes, with batches of at most 8 random images, on the CPU."""
    import torch

    from attention.vision import VisionTransformer
    from experiments import vision_training as training
    from experiments.resources import seconds

    side, n_classes, n = (224, 1000, min(8, config.batch_size)) if config.size != "small" else (32, 10, config.batch_size)
    channels, taken = 3 if side == 224 else 1, {}
    generator = torch.Generator().manual_seed(0)
    batch = {
        "images": torch.randn(n, channels, side, side, generator=generator),
        "labels": torch.randint(n_classes, (n,), generator=generator),
    }
    for name in ("softmax", "soft", "particles"):
        model = VisionTransformer(model_config(config, MAIN[name], side, channels, n_classes))
        optimiser = training.optimiser_of(model, _recipe(config, config.lr))
        taken[name] = min(seconds(lambda: training.step(model, optimiser, batch, config.clip)) for _ in range(2))  # noqa: B023
    each = ", ".join(f"{name} {1e3 * took / n:.0f} ms an image" for name, took in taken.items())
    days = max(taken.values()) / n * 1_281_167 * config.n_epochs / 86400
    return (
        f"{each}, forward and backward on one core; ImageNet for {config.n_epochs} epochs would be {days:.0f} days a row, so it wants GPUs"
    )


def run(config: Config, **how: Any) -> xr.Dataset:
    """Measure all units; `how` is that of `experiments.sweep.run`.

    Returns
    -------
    Dataset over (task, row, seed): accuracy with accuracy_low and accuracy_high, log_loss, brier, calibration_error, matthews of the test
    images, correct (example), validation_loss, validation_accuracy, train_loss (epoch), train_seconds, inference_seconds, n_parameters,
    n_train, alignment_before and alignment_after of Phase A, stage_norm (stage): mean spectral norm of the attention matrices of the
    trained model. Task "random tokens": tokens, norm and norm_high (length), mean and largest spectral norm over four draws.
    """
    from experiments import sweep

    return sweep.run("vision", config, **how)


def section(ds: xr.Dataset) -> Section:
    """Tables and what they show."""
    from experiments.vision_tables import section as made

    return made(ds)


def figures(ds: xr.Dataset) -> dict[str, Figure]:
    """Accuracy of the rows, landmarks, spectral norms: those whose parts ran."""
    from experiments.plots.vision import figures_vision

    return figures_vision(ds)
