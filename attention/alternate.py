"""Phases in turn: every few epochs of Phase B the particles are aligned anew with what the network has become."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
import xarray as xr

from attention.align import align
from attention.batches import Batch, check_batches
from attention.feature_map import described
from attention.finetune import checked_settings, train
from attention.model import Transformer
from attention.seeds import derived_seed
from particles.arrays import count

PhaseA = Callable[..., Any]  # (model, batches, *, rng, ...) -> what `align` returns, or anything


def alternate(
    model: Transformer,
    batches: Iterable[Batch],
    *,
    every: int = 1,
    phase_a: PhaseA = align,
    align_options: Mapping[str, Any] | None = None,
    validation: Iterable[Batch] | None = None,
    checkpoint: str | os.PathLike | None = None,
    progress: bool = False,
    rng: int | np.random.Generator | torch.Generator,
    **settings: Any,
) -> xr.Dataset:
    """`finetune` with Phase A before each epoch whose number (from 0) is a positive multiple of `every`.

    One optimiser and one schedule run through all epochs; where Phase A moves particles that train too (freeze_omega=False), their old
    gradients are forgotten.

    Parameters
    ----------
    batches : as for `finetune`; Phase A has the list of what one pass before the training gives, so that a loader which reshuffles itself
        is read alike in a run that was cut.
    every : epochs between two alignments; the first `every` epochs are the warm start that `align` wants.
    phase_a : called as phase_a(model, batches, rng=seed, **align_options) with a seed of its own for each epoch.
    validation, checkpoint, progress, rng, settings : as for `finetune`. In a process group every process runs Phase A and the first one's
        particles are taken.

    Returns
    -------
    xr.Dataset
        What `finetune` returns; `alignment` is the mean of Phase A's `alignment_after` over layers and heads in the epochs that began
        with it, NaN where it returned none.

    Raises
    ------
    ValueError
        As `finetune` and `align` do, and on an `every` that is no positive integer.
    """
    checked = checked_settings(rng=rng, **settings) | {"every": count(every, "every")}
    if not callable(phase_a):
        raise ValueError(f"phase_a must be a function, got {phase_a!r}")
    if not isinstance(align_options, Mapping | None):
        raise ValueError(f"align_options must be a dict, got {described(align_options)}")
    check_batches(batches, "batches")
    read = list(batches) if checked["every"] < checked["n_epochs"] else []

    def before_epoch(epoch: int) -> float:
        if epoch == 0 or epoch % every:
            return math.nan
        result = phase_a(model, read, rng=derived_seed(checked["seed"], epoch), **(align_options or {}))
        return float(result.alignment_after.mean()) if hasattr(result, "alignment_after") else math.nan

    return train(model, batches, checked, validation=validation, checkpoint=checkpoint, before_epoch=before_epoch, progress=progress)
