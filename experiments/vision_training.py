"""Training of the vision transformer, and Phase A on the stages whose attention has particles.

Every row gets the same steps on the same images. In rows with Phase A the particles stay as drawn through the warm epochs, are moved, and
are then trained with everything else, as in "learned".

| particles | what happens to them                                                                                 |
|-----------|------------------------------------------------------------------------------------------------------|
| fixed     | stay as drawn                                                                                        |
| learned   | trained from the first step (end to end)                                                             |
| aligned   | Phase A on the labels of the images                                                                  |
| shuffled  | Phase A on permuted labels                                                                           |
| width     | only the lengths of Phase A: each head's first particles times one number that gives them its spread |
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from attention.grid_attention import GridAttention
from attention.mode import evaluating
from attention.objectives import agreement, default_laws, default_objective, divided, in_units, unit_of
from attention.samples import Points
from attention.seeds import derived_seed, seeded
from attention.softmax_free_plots import spectral_norm
from attention.vision import VisionTransformer
from experiments import metrics
from experiments.pictures import Part, Pictures, batches
from particles.simulate import simulate, uninterrupted

PARTICLES = ("fixed", "learned", "aligned", "shuffled", "width")
EVALUATED = 256  # images of a batch without gradients
LEAST = 0.05  # of the learning rate, where its cosine ends


@dataclass(frozen=True)
class Recipe:
    """How a row is trained."""

    n_epochs: int
    n_warm: int
    batch_size: int
    lr: float
    weight_decay: float
    clip: float
    n_align: int
    align_images: int


def trained(model: VisionTransformer, data: Pictures, recipe: Recipe, *, seed: int, particles: str = "fixed") -> dict[str, Any]:
    """Train `model` in place; returns train_loss (epoch,), train_seconds, and of Phase A alignment_before, alignment_after.

    FloatingPointError if a loss is not finite.
    """
    moved, found = particles not in ("fixed", "learned"), {"alignment_before": math.nan, "alignment_after": math.nan}
    release(model, particles == "learned")
    optimiser, start, losses = optimiser_of(model, recipe), _clock(model), []
    per_epoch = -(-len(data.train.labels) // recipe.batch_size)
    for epoch in range(recipe.n_epochs):
        if moved and epoch == recipe.n_warm:
            found = align(model, data.train, recipe, seed=seed, particles=particles)
            release(model, True)
        rng, total = np.random.default_rng([seed, epoch]), 0.0
        for index, batch in enumerate(batches(data.train, recipe.batch_size, rng)):
            _set_rate(optimiser, recipe, epoch * per_epoch + index, recipe.n_epochs * per_epoch)
            with seeded(derived_seed(seed, epoch, index), _device(model)):
                total += len(batch["labels"]) * step(model, optimiser, batch, recipe.clip)
        losses.append(total / len(data.train.labels))
    return found | {"train_loss": np.array(losses), "train_seconds": _clock(model) - start}


def step(model: VisionTransformer, optimiser: torch.optim.Optimizer, batch: dict[str, Tensor], clip: float) -> float:
    """One step down the gradient of the mean loss of one batch; the loss."""
    model.train()
    images, labels = (batch[name].to(_device(model)) for name in ("images", "labels"))
    loss = F.cross_entropy(model(images), labels)
    if not math.isfinite(loss.item()):
        raise FloatingPointError(f"the training loss is {loss.item()}")
    optimiser.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimiser.step()
    return loss.item()


def scores(model: VisionTransformer, part: Part) -> dict[str, Any]:
    """`metrics.scores` on the images, correct (row,) bool, and inference_seconds."""
    logits, start = [], _clock(model)
    with evaluating(model), torch.no_grad():
        for batch in batches(part, EVALUATED):
            logits.append(model(batch["images"].to(_device(model))).double().softmax(-1).cpu())
    probabilities = torch.cat(logits).numpy()
    seconds = _clock(model) - start
    return metrics.scores(probabilities, part.labels) | {
        "correct": probabilities.argmax(1) == part.labels,
        "inference_seconds": seconds,
    }


def stage_norms(model: VisionTransformer, images: Tensor, *, seed: int) -> np.ndarray:
    """Mean spectral norm of the attention matrices of each stage's first block, (stage,); NaN where attention is not linear in values."""
    norms = []
    for attention, x in layers(model, images, first=True):
        q, k, _ = attention.queries_keys_values(x)
        if attention.signed:
            norms.append(math.nan)
            continue
        start = torch.randn(*q.shape[:3], 1, generator=torch.Generator().manual_seed(seed)).to(q)
        norms.append(float(spectral_norm(lambda v: attention.attend(q, k, v), start).mean()))  # noqa: B023
    return np.array(norms)


# ---- particles ---------------------------------------------------------------------------------------------------------------------------


def release(model: VisionTransformer, learned: bool) -> None:
    """Make the particles of all stages learnable, or constants."""
    for module in model.modules():
        if isinstance(module, GridAttention) and module.feature_map is not None:
            module.feature_map.release() if learned else module.feature_map.freeze()


def align(model: VisionTransformer, part: Part, recipe: Recipe, *, seed: int, particles: str) -> dict[str, float]:
    """Phase A of all layers with particles, as the model stands, on the labels of at most `align_images` images.

    A head's vectors are the means of its queries and its keys over an image. Returns the mean centred kernel alignment with the labels
    before and after.
    """
    rows = np.random.default_rng([seed, 1_000_001]).permutation(len(part.labels))[: recipe.align_images]
    labels = part.labels[rows]
    if particles == "shuffled":
        labels = np.random.default_rng([seed, 1_000_002]).permutation(labels)
    images, found = torch.from_numpy(part.take(rows)), []
    for layer, (attention, x) in enumerate(layers(model, images)):
        if attention.feature_map is None:
            continue
        with torch.no_grad():
            q, k, _ = (side.mean(2).double().cpu().numpy() for side in attention.queries_keys_values(x))
        before = attention.feature_map.omega.detach().cpu().double().numpy()
        samples = [Points(np.concatenate((q[:, head], k[:, head])), np.tile(labels, 2)) for head in range(len(before))]
        runs = [
            _moved(omega, points, attention, recipe.n_align, derived_seed(seed, layer, h))
            for h, (omega, points) in enumerate(zip(before, samples))
        ]
        after = np.stack([omega for omega, *_ in runs])
        found += [run[1:] for run in runs]
        attention.feature_map.load_omega(_lengths(before, after) * before if particles == "width" else after)
    before_after = np.mean(found, 0)
    return {"alignment_before": float(before_after[0]), "alignment_after": float(before_after[1])}


def _moved(omega: np.ndarray, sample: Points, attention: GridAttention, n_steps: int, key: int) -> tuple[np.ndarray, float, float]:
    """One head's particles after Phase A in the map's units, and their alignment before and after."""
    feature = cast(Any, attention.feature_map).feature
    unit = unit_of(sample, feature)
    used, units = cast(Points, divided(sample, unit)), in_units(feature, omega.shape[1], unit)
    laws = default_laws(used, feature, len(omega), default_objective(feature, "labels"))
    path = uninterrupted(simulate(laws.domain.project(omega * units), *laws, n_steps=n_steps, save_every=n_steps, rng=key))
    last, score = path.omega.values[0, -1], agreement(used, feature)
    return last / units, score(omega * units), score(last)


def _lengths(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Each head's ratio of root mean square lengths, (head, 1, 1)."""
    return np.sqrt((after**2).mean((1, 2)) / (before**2).mean((1, 2)))[:, None, None]


def layers(model: VisionTransformer, images: Tensor, *, first: bool = False) -> Iterator[tuple[GridAttention, Tensor]]:
    """Each attention layer (of each stage the first alone) with its input for these images, which passed the layers as they stand then."""
    for stage in model.stages:
        for block in list(cast(Any, stage).blocks)[: 1 if first else None]:
            inputs: list[Tensor] = []
            hook = block.attention.register_forward_pre_hook(lambda _, args: inputs.append(args[0].detach()))  # noqa: B023
            with evaluating(model), torch.no_grad():
                model(images.to(_device(model)))
            hook.remove()
            yield block.attention, inputs[0]


# ---- steps -------------------------------------------------------------------------------------------------------------------------------


def optimiser_of(model: VisionTransformer, recipe: Recipe) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices, and none on vectors and particles."""
    particles = {
        id(p) for m in model.modules() if isinstance(m, GridAttention) and m.feature_map is not None for p in m.feature_map.parameters()
    }
    decayed = [p for p in model.parameters() if p.ndim >= 2 and id(p) not in particles]
    kept = {id(p) for p in decayed}
    rest = [p for p in model.parameters() if id(p) not in kept]
    return torch.optim.AdamW(
        [{"params": decayed, "weight_decay": recipe.weight_decay}, {"params": rest, "weight_decay": 0.0}], lr=recipe.lr
    )


def _set_rate(optimiser: torch.optim.Optimizer, recipe: Recipe, index: int, n_steps: int) -> None:
    """Up in a tenth of the steps (at most ten epochs' worth of a long training), then along a cosine to LEAST."""
    n_warm = max(1, round(n_steps * min(0.1, 10 / recipe.n_epochs)))
    down = LEAST + (1 - LEAST) * 0.5 * (1 + math.cos(math.pi * min(1.0, (index - n_warm) / max(1, n_steps - n_warm))))
    for group in optimiser.param_groups:
        group["lr"] = recipe.lr * ((index + 1) / n_warm if index < n_warm else down)


def _clock(model: VisionTransformer) -> float:
    """Processor time [s], which other load disturbs little; where the work is done elsewhere, the time of day."""
    return time.process_time() if _device(model).type == "cpu" else time.perf_counter()


def _device(model: VisionTransformer) -> torch.device:
    return model.norm.weight.device
