"""One classifier under one recipe: warm epochs, Phase A, Phase B, and its scores on the test part.

Every row of an experiment is trained by `trained` with the same recipe and the same batches of a seed. Rows differ in the model and in what
happens to its particles:

| particles       | what happens to them                                                         |
|-----------------|------------------------------------------------------------------------------|
| fixed           | stay as drawn                                                                |
| learned         | trained with everything else from the first step (end to end)                |
| align           | Phase A after the warm epochs, then frozen (the Coulomb paper's recipe)      |
| align, unfreeze | Phase A after the warm epochs, then trained with everything else             |
| shuffled        | Phase A with permuted labels, then frozen: what Phase A does without labels  |
|                 | ("shuffled, unfreeze": then trained with everything else)                    |
| redrawn         | drawn anew before each epoch, in orthogonal blocks (Performer)               |

The learning rate rises and falls once in the warm epochs and once in the rest, in rows without Phase A too.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import xarray as xr

from attention import draws
from attention.align import align
from attention.finetune import PRECISIONS, checked_settings, predict, train
from attention.model import Transformer
from experiments import metrics
from experiments.data import Batches, Dataset, Split
from experiments.settings import chosen, epochs_after
from experiments.temperature import fit_temperature, tempered_scores
from particles.arrays import count, flag, positive, real

ALIGNMENTS = ("alignment_before", "alignment_after", "holdout_before", "holdout_after")
EVALUATED = 512  # rows of a batch without gradients
_UNALIGNED = {"align_seconds": 0.0} | dict.fromkeys(ALIGNMENTS, math.nan)
_OF_PHASE_B = ("n_epochs", "lr", "weight_decay", "warmup", "clip", "patience", "restore_best", "precision")
_CONSTANTS = ("lam", "s", "beta", "step_size", "radius")


class Course(NamedTuple):
    """What happens to the particles; `aligned` names the labels of Phase A."""

    aligned: str | None = None
    warm_learned: bool = False
    learned: bool = False
    redrawn: bool = False


PARTICLES = {
    "fixed": Course(),
    "learned": Course(warm_learned=True, learned=True),
    "align": Course(aligned="labels"),
    "align, unfreeze": Course(aligned="labels", learned=True),
    "shuffled": Course(aligned="shuffled"),
    "shuffled, unfreeze": Course(aligned="shuffled", learned=True),
    "redrawn": Course(redrawn=True),
}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a classifier is trained; ValueError names a field that is out of range. None is the default of Phase A's objective."""

    n_epochs: int = 3  # passes over the training part
    n_warm: int = 1  # epochs before Phase A, of n_epochs; 0: Phase A of the untrained model
    batch_size: int = 64  # sequences of one step
    evaluated: int = EVALUATED  # sequences of a batch without gradients
    trim: bool = False  # cut each batch to its longest sequence
    bucket: bool = False  # put sequences of similar length into a batch
    lr: float = 2e-3  # learning rate of AdamW
    omega_lr: float = 5e-3  # learning rate of released particles
    weight_decay: float = 0.01  # of matrices
    warmup: float = 0.1  # share of the steps over which the learning rate rises
    clip: float = 1.0  # largest gradient norm
    patience: int | None = None  # epochs without a smaller validation loss after which the epochs after Phase A stop; None: never
    restore_best: bool = False  # end with the weights of the best of these epochs
    precision: str = "float32"  # of the matrix products in training: float32, bfloat16 or float16
    n_align: int = 100  # Langevin steps of Phase A
    align_sequences: int = 512  # training sequences that Phase A uses at most
    early_stopping: bool = True  # of Phase A, on the sequences that it holds out
    lam: float | None = None  # repulsion
    s: float | None = None  # its Riesz exponent
    beta: float | None = None  # inverse temperature
    step_size: float | None = None  # of Langevin dynamics
    radius: float | None = None  # of the ball that holds the particles

    def __post_init__(self) -> None:
        for name in ("batch_size", "evaluated", "n_align", "align_sequences"):
            count(getattr(self, name), name)
        count(self.n_warm, "n_warm", least=0)
        epochs_after(self.n_warm, self.n_epochs)
        for name in ("lr", "omega_lr", "clip"):
            positive(getattr(self, name), name)
        positive(self.weight_decay, "weight_decay", zero=True)
        if not 0 <= real(self.warmup, "warmup") <= 1:
            raise ValueError(f"warmup must be in [0, 1], got {self.warmup!r}")
        for name in ("trim", "bucket", "restore_best", "early_stopping"):
            flag(getattr(self, name), name)
        if self.patience is not None:
            count(self.patience, "patience")
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {tuple(PRECISIONS)}, got {self.precision!r}")
        for name in _CONSTANTS:
            if getattr(self, name) is not None:
                positive(getattr(self, name), name, zero=name in ("lam", "s"))

    @property
    def constants(self) -> dict[str, float]:
        """What Phase A has in the place of its objective's numbers."""
        return {name: getattr(self, name) for name in _CONSTANTS if getattr(self, name) is not None}


def trained(model: Transformer, data: Dataset, recipe: Recipe, *, seed: int, particles: str = "fixed", checkpoint: str = "") -> xr.Dataset:
    """Train `model` in place.

    Parameters
    ----------
    seed : decides the order of the batches, the dropout, the hold-out and noise of Phase A and the permutation of its labels.
    particles : a name of `PARTICLES`.
    checkpoint : a path; the training is saved after each epoch in files whose names start so, and goes on from them. "": nowhere.

    Returns
    -------
    Dataset over epoch: train_loss, validation_loss [nats], accuracy (of the validation part), seconds and the rest of `finetune`'s;
    scalars: alignment_before, alignment_after and, on sequences that Phase A did not see, holdout_before, holdout_after (centred kernel
    alignment with the labels that Phase A got, mean over layers and heads; NaN without Phase A), align_seconds, train_seconds (Phase A
    included) and cpu_seconds (of this process: less where it went on from a checkpoint).

    Raises
    ------
    ValueError
        If `particles` is no name of `PARTICLES`, or the model has no particles to be aligned.
    FloatingPointError
        If a loss is not finite.
    """
    chosen((particles,), PARTICLES, "particles")
    course, parts, aligned, start = PARTICLES[particles], [], _UNALIGNED, time.process_time()
    if recipe.n_warm:
        warm = dataclasses.replace(recipe, n_epochs=recipe.n_warm, n_warm=0, patience=None, restore_best=False)
        early = course._replace(learned=course.warm_learned)
        parts.append(_epochs(model, data, warm, seed, early, checkpoint and f"{checkpoint}-warm.pt"))
    if course.aligned is not None:
        aligned = _phase_a(model, data.train, recipe, seed, shuffled=course.aligned == "shuffled")
    rest = dataclasses.replace(recipe, n_epochs=recipe.n_epochs - recipe.n_warm, n_warm=0)
    parts.append(_epochs(model, data, rest, seed + 1_000_000, course, checkpoint and f"{checkpoint}-rest.pt"))
    history = xr.concat(parts, "epoch", combine_attrs="drop")
    seconds = {"train_seconds": float(history.seconds.sum()) + aligned["align_seconds"], "cpu_seconds": time.process_time() - start}
    return history.assign({**aligned, **seconds}).assign_coords(epoch=np.arange(1, 1 + history.sizes["epoch"]))


def _epochs(model: Transformer, data: Dataset, recipe: Recipe, seed: int, course: Course, checkpoint: str) -> xr.Dataset:
    """All epochs of `recipe` as Phase B."""
    settings = checked_settings(
        freeze_omega=not course.learned,
        omega_lr=recipe.omega_lr if course.learned else None,
        rng=seed,
        **{name: getattr(recipe, name) for name in _OF_PHASE_B},
    )
    return train(
        model,
        batches(data.train, recipe, np.random.default_rng([seed, 0])),
        settings,
        validation=batches(data.validation, dataclasses.replace(recipe, batch_size=recipe.evaluated)),
        checkpoint=checkpoint or None,
        before_epoch=(lambda epoch: redraw(model, draws.orthogonal, [seed, 2, epoch])) if course.redrawn else None,
    )


def redraw(model: Transformer, draw: draws.Draw, rng: int | Sequence[int]) -> float:
    """New particles for every feature map of the model; NaN, as they have no alignment."""
    generator = torch.Generator().manual_seed(int(np.random.default_rng(rng).integers(2**62)))
    for feature_map in model.feature_maps:
        feature_map.load_omega(draw(*feature_map.omega.shape, generator))
    return math.nan


def _phase_a(model: Transformer, split: Split, recipe: Recipe, seed: int, *, shuffled: bool) -> dict[str, float]:
    """Move the model's particles by Phase A; seconds and mean alignments. The control's labels are permuted everywhere."""
    if shuffled:
        split = dataclasses.replace(split, labels=np.random.default_rng([seed, 1]).permutation(split.labels))
    result = align(
        model,
        batches(split, dataclasses.replace(recipe, batch_size=recipe.evaluated)),
        pool="token" if model.config.n_classes is None else "sequence",  # a language model's labels are the next tokens
        n_steps=recipe.n_align,
        max_sequences=recipe.align_sequences,
        early_stopping=recipe.early_stopping,
        constants=recipe.constants,
        rng=seed,
    )
    return {"align_seconds": result.attrs["seconds"]} | {name: float(result[name].mean()) for name in ALIGNMENTS}


def batches(split: Split, recipe: Recipe, rng: np.random.Generator | None = None) -> Batches:
    """Batches as the recipe has them, shuffled anew on every pass; in the order of the rows without `rng`."""
    return split.batches(recipe.batch_size, rng, trim=recipe.trim, bucket=recipe.bucket and rng is not None)


def test_scores(
    model: Transformer,
    split: Split,
    validation: Split | None = None,  # noqa: PT028
    *,
    trim: bool = False,  # noqa: PT028
    n_bins: int = 15,  # noqa: PT028
    n_passes: int = 3,  # noqa: PT028
) -> dict[str, Any]:
    """What a trained model is worth on `split`.

    Returns
    -------
    dict of `metrics.scores`; correct (row,) bool; reliability (n_bins, 3), see `metrics.reliability_table`; inference_seconds, the
    least of `n_passes` passes; with `validation` also temperature, fitted there, and log_loss_tempered, brier_tempered and
    calibration_error_tempered, the scores at that temperature.
    """
    recipe = Recipe(batch_size=EVALUATED, trim=trim)
    seconds, read = [], list(batches(split, recipe))
    for _ in range(count(n_passes, "n_passes")):
        start = time.perf_counter()
        probabilities, labels = (part.numpy() for part in predict(model, read))
        seconds.append(time.perf_counter() - start)
    found: dict[str, Any] = metrics.scores(probabilities, labels)
    if validation is not None:
        seen, wanted = (part.numpy() for part in predict(model, batches(validation, recipe)))
        found |= tempered_scores(np.log(probabilities), labels, fit_temperature(np.log(seen), wanted))
    reliability = metrics.reliability_table(probabilities, labels, n_bins=n_bins)
    return found | {"inference_seconds": min(seconds), "correct": probabilities.argmax(1) == labels, "reliability": reliability}


test_scores.__test__ = False  # type: ignore[attr-defined]  # pytest is not meant
