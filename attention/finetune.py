"""Phase B: train a `Transformer` by gradient descent, the particles frozen (as in the Coulomb paper) or released."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
import xarray as xr

from attention import parallel
from attention.batches import IGNORED, Batch, check_batches, count_batches, on_device
from attention.checkpoint import COLUMNS, Run
from attention.evaluate import evaluate, means, predict, targets, totals
from attention.feature_map import described
from attention.model import SelfAttention, Transformer
from attention.seeds import derived_seed, seed_from, seeded
from particles.arrays import count, flag, positive

__all__ = ["evaluate", "finetune", "predict"]
PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


def finetune(
    model: Transformer,
    batches: Iterable[Batch],
    *,
    freeze_omega: bool = True,
    n_epochs: int = 1,
    lr: float = 2e-3,
    omega_lr: float | None = None,
    weight_decay: float = 0.01,
    clip: float = 1.0,
    warmup: float = 0.1,
    precision: str = "float32",
    validation: Iterable[Batch] | None = None,
    patience: int | None = None,
    restore_best: bool = False,
    checkpoint: str | os.PathLike | None = None,
    checkpoint_every: int | None = None,
    rng: int | np.random.Generator | torch.Generator,
    progress: bool = False,
) -> xr.Dataset:
    """Train `model` in place with AdamW, linear warm-up then cosine decay to zero, and a clipped gradient norm.

    The loss is the cross-entropy of the labels, or of the next token of a language model. freeze_omega=False from a model's first step is
    joint training (as in Flexformer); after `align` it is the recipe "align, then unfreeze"; `alternate` runs Phase A every few epochs.

    In an initialised `torch.distributed` process group (`torchrun --nproc-per-node 2 train.py`, where train.py calls
    init_process_group("gloo") and then this function with the same arguments everywhere) each process trains on its share of the rows of
    every batch; gradients, losses and stopping are those of the whole batch, the parameters the same bits in all processes.

    Parameters
    ----------
    batches : re-iterable of batches
        Iterated once per epoch; see `attention.batches` for a batch. May reshuffle itself on each iteration.
    freeze_omega : bool
        True: the particles do not change by a single bit (Phase B of the Coulomb paper); what else a map may have (tau) trains. False: all
        parameters of the maps train, at the rate `omega_lr` (default `lr`) and without weight decay.
    weight_decay : float
        On matrices only; biases, norms, gains and particles have none.
    warmup : float
        Fraction of all steps over which the learning rate rises to `lr`.
    precision : "float32", "bfloat16" or "float16"
        Of the matrix products in training (autocast; the parameters keep their type). float16 scales its loss, and skips a step whose
        gradient overflows.
    validation : re-iterable of batches, optional
        Evaluated after each epoch; without it `validation_loss` and `accuracy` are NaN.
    patience : int, optional
        Stop after so many epochs in a row without a smaller validation loss.
    restore_best : bool
        At the end take the weights of the epoch with the least validation loss.
    checkpoint : path, optional
        Written atomically after each epoch, and after each `checkpoint_every` steps. If it exists, training goes on from it to the same
        result as without an interruption (bitwise on the CPU), provided that `model`, `batches` and `rng` are made as the first time
        (earlier batches are drawn and dropped).
    rng : int or generator
        Seed of the dropout masks. Global generators are left as they were.

    Returns
    -------
    xr.Dataset
        (epoch): train_loss (mean over sequences or predicted tokens, dropout on), validation_loss [nats], accuracy [fraction] of the
        labels or next tokens, nonpositive (share of denominators <= 0 in training, of signed maps with the sum normaliser; else NaN),
        alignment (see `alternate`; else NaN), seconds.

    Raises
    ------
    ValueError
        On empty or one-shot batches, missing or out-of-range labels, bad settings, or a checkpoint that cannot be read or is of
        other settings or another model.
    FloatingPointError
        If a loss is not finite; the message names epoch and batch.
    """
    settings = checked_settings(
        freeze_omega=freeze_omega, n_epochs=n_epochs, lr=lr, omega_lr=omega_lr, weight_decay=weight_decay, clip=clip, warmup=warmup,
        precision=precision, patience=patience, restore_best=restore_best, checkpoint_every=checkpoint_every, rng=rng,
    )  # fmt: skip
    return train(model, batches, settings, validation=validation, checkpoint=checkpoint, progress=progress)


def train(
    model: Transformer,
    batches: Iterable[Batch],
    settings: dict[str, Any],
    *,
    validation: Iterable[Batch] | None = None,
    checkpoint: str | os.PathLike | None = None,
    before_epoch: Callable[[int], float] | None = None,
    progress: bool = False,
) -> xr.Dataset:
    """`finetune` with `checked_settings`. `before_epoch(epoch)` may change the particles; what it returns is the epoch's `alignment`."""
    check_model(model)
    if validation is not None:
        check_batches(validation, "validation")
    elif settings["patience"] is not None or settings["restore_best"]:
        raise ValueError("patience and restore_best need validation batches, got validation=None")
    if settings["checkpoint_every"] is not None and checkpoint is None:
        raise ValueError(f"checkpoint_every needs a checkpoint, got {settings['checkpoint_every']} and checkpoint=None")
    sizes = json.loads(json.dumps(asdict(model.config), default=repr))  # feature options may hold arrays
    n_batches = count_batches(batches)
    settings, every = settings | {"model": sizes, "n_batches": n_batches}, settings["checkpoint_every"]
    del settings["checkpoint_every"]  # decides nothing about the result
    for module in model.feature_maps:
        module.freeze() if settings["freeze_omega"] else module.release()
    scaler = torch.amp.GradScaler(model.device.type, enabled=settings["precision"] == "float16")
    run = Run(model, _optimiser(model, settings), scaler, settings)
    run.load(checkpoint)
    for _ in range(run.epoch):
        for _ in batches:  # a shuffling loader must reach the state that it had
            pass
    was_training, forward = model.training, parallel.wrapped(model)
    for epoch in _epochs(run, progress):
        if _stale(run.history["validation_loss"]) >= (settings["patience"] or math.inf):
            break
        if before_epoch is not None and run.step == 0:
            _before(run, before_epoch, epoch)
        _train_epoch(run, forward, batches, n_batches, (checkpoint, every))
        _finish_epoch(run, validation)
        run.save(checkpoint)
    if settings["restore_best"] and run.best is not None:
        model.load_state_dict(run.best)
    model.train(was_training)
    return _dataset(run)


def check_model(model: Any) -> None:
    """ValueError unless `model` is a Transformer."""
    if not isinstance(model, Transformer):
        raise ValueError(f"model must be a Transformer, got {described(model)}")


def checked_settings(
    *, freeze_omega: bool = True, n_epochs: int = 1, lr: float = 2e-3, omega_lr: float | None = None, weight_decay: float = 0.01,
    clip: float = 1.0, warmup: float = 0.1, precision: str = "float32", patience: int | None = None, restore_best: bool = False,
    checkpoint_every: int | None = None, rng: Any,
) -> dict[str, Any]:  # fmt: skip
    """The settings of `finetune` as one JSON-ready dict, stored in the checkpoint and in the Dataset; ValueError names a bad one."""
    lr = positive(lr, "lr")
    if not 0 <= positive(warmup, "warmup", zero=True) <= 1:
        raise ValueError(f"warmup must be in [0, 1], got {warmup!r}")
    if freeze_omega and omega_lr is not None:
        raise ValueError(f"omega_lr is the rate of released particles: it needs freeze_omega=False, got omega_lr={omega_lr!r}")
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {tuple(PRECISIONS)}, got {precision!r}")
    return {
        "freeze_omega": flag(freeze_omega, "freeze_omega"),
        "n_epochs": count(n_epochs, "n_epochs"),
        "lr": lr,
        "omega_lr": lr if omega_lr is None else positive(omega_lr, "omega_lr"),
        "weight_decay": positive(weight_decay, "weight_decay", zero=True),
        "clip": positive(clip, "clip"),
        "warmup": float(warmup),
        "precision": precision,
        "patience": None if patience is None else count(patience, "patience"),
        "restore_best": flag(restore_best, "restore_best"),
        "checkpoint_every": None if checkpoint_every is None else count(checkpoint_every, "checkpoint_every"),
        "seed": seed_from(rng),
    }


def _optimiser(model: Transformer, settings: dict[str, Any]) -> torch.optim.AdamW:
    """AdamW with three groups (matrices, vectors, particles); `base` is the rate that warm-up and decay multiply."""
    maps = [parameter for module in model.feature_maps for parameter in module.parameters() if parameter.requires_grad]
    seen = {id(parameter) for module in model.feature_maps for parameter in module.parameters()}
    rest = [p for p in model.parameters() if p.requires_grad and id(p) not in seen]
    groups = [
        {"params": [p for p in rest if p.ndim >= 2], "base": settings["lr"], "weight_decay": settings["weight_decay"]},
        {"params": [p for p in rest if p.ndim < 2], "base": settings["lr"], "weight_decay": 0.0},
        {"params": maps, "base": settings["omega_lr"], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([group for group in groups if group["params"]])


def _set_rate(run: Run, step: int, n_steps: int) -> None:
    """The rate of one step: up linearly over the warm-up, then down to zero along a cosine."""
    n_warm = max(1, round(run.settings["warmup"] * n_steps))
    down = 0.5 * (1 + math.cos(math.pi * min(1.0, (step - n_warm) / max(1, n_steps - n_warm))))  # a late pass may hold more batches
    for group in run.optimiser.param_groups:
        group["lr"] = group["base"] * ((step + 1) / n_warm if step < n_warm else down)


def _train_epoch(run: Run, forward: Any, batches: Iterable[Batch], n_batches: int, saving: tuple[Any, int | None]) -> None:
    """The rest of one pass over the batches, after the steps that the run has done in it; saved to (path, every so many steps)."""
    run.model.train()
    start, (path, every) = time.perf_counter() - run.seconds, saving
    for index, batch in enumerate(batches):
        if index < run.step:
            continue
        seed = derived_seed(run.settings["seed"], run.epoch, index, parallel.rank())
        _set_rate(run, run.epoch * n_batches + index, run.settings["n_epochs"] * n_batches)
        with seeded(seed, run.model.device):
            _step(run, forward, on_device(batch, run.model.device), index)
        run.step, run.seconds = index + 1, time.perf_counter() - start
        if every is not None and run.step % every == 0 and run.step < n_batches:
            run.save(path)
    if run.n == 0:
        raise ValueError(f"batches must hold at least one batch on every pass, got none in epoch {run.epoch}")


def _step(run: Run, forward: Any, batch: Batch, index: int) -> None:
    """One step down the gradient of the batch's mean loss; in a group every process holds the batch and takes its rows."""
    n = int((targets(batch, run.model) != IGNORED).sum())
    if n == 0 or len(batch["tokens"]) < parallel.world():
        raise ValueError(f"a batch must hold a target and a row for each of {parallel.world()} processes, got {n} in batch {index}")
    part, half = parallel.shard(batch), PRECISIONS[run.settings["precision"]]
    with torch.autocast(run.model.device.type, dtype=half, enabled=half is not None):
        loss = forward(part, wanted=targets(part, run.model)) / n
    value = float(parallel.total(loss.detach().clone()))
    if not math.isfinite(value):
        raise FloatingPointError(f"the training loss is {value} in epoch {run.epoch}, batch {index}")
    run.optimiser.zero_grad(set_to_none=True)
    run.scaler.scale(loss * parallel.world()).backward()  # the group averages gradients
    run.scaler.unscale_(run.optimiser)
    torch.nn.utils.clip_grad_norm_(run.model.parameters(), run.settings["clip"])
    run.scaler.step(run.optimiser)
    run.scaler.update()
    run.loss, run.n, run.nonpositive = run.loss + value * n, run.n + n, run.nonpositive + n * _nonpositive(run.model)


def _finish_epoch(run: Run, validation: Iterable[Batch] | None) -> None:
    """Validate and enter the epoch into the history."""
    start, loss, accuracy = time.perf_counter(), math.nan, math.nan
    if validation is not None:
        parts = (parallel.shard(batch) for batch in validation)
        loss, accuracy = means(parallel.total(totals(run.model, (part for part in parts if len(part["tokens"])))))
    seconds = run.seconds + time.perf_counter() - start
    for name, value in zip(COLUMNS, (run.loss / run.n, loss, accuracy, run.nonpositive / run.n, run.alignment, seconds), strict=True):
        run.history[name].append(value)
    if run.settings["restore_best"] and _stale(run.history["validation_loss"]) == 0:
        run.best = {name: value.detach().clone() for name, value in run.model.state_dict().items()}
    run.step, run.loss, run.n, run.nonpositive, run.seconds, run.alignment = 0, 0.0, 0, 0.0, 0.0, math.nan


def _nonpositive(model: Transformer) -> float:
    """Share of the last call's denominators <= 0, mean over layers that can have them; NaN if there are none."""
    parts = [module.nonpositive for module in model.modules() if isinstance(module, SelfAttention) and module.nonpositive is not None]
    return float(parallel.total(torch.stack(parts).mean())) / parallel.world() if parts else math.nan


def _before(run: Run, before_epoch: Callable[[int], float], epoch: int) -> None:
    """Phase A before an epoch: where it moved the particles, the optimiser forgets their old gradients."""
    maps = [parameter for module in run.model.feature_maps for parameter in module.parameters()]
    old = [parameter.detach().clone() for parameter in maps]
    run.alignment = float(before_epoch(epoch))
    parallel.spread(maps)
    for parameter, before in zip(maps, old, strict=True):
        if not torch.equal(parameter, before):
            run.optimiser.state.pop(parameter, None)


def _stale(losses: list[float]) -> int:
    """Epochs since the least validation loss; 0 before the first."""
    return len(losses) - 1 - int(np.nanargmin(losses)) if losses and not np.isnan(losses).all() else 0


def _dataset(run: Run) -> xr.Dataset:
    return xr.Dataset(
        {name: ("epoch", np.array(run.history[name], dtype=float), {"units": unit}) for name, unit in COLUMNS.items()},
        coords={"epoch": np.arange(1, 1 + run.epoch)},
        attrs={"schema": 2, "settings": json.dumps(run.settings), "attention": str(run.model.config.attention), "torch": torch.__version__},
    )


def _epochs(run: Run, progress: bool) -> Iterable[int]:
    epochs = range(run.epoch, run.settings["n_epochs"])
    if not progress or parallel.rank() != 0:
        return epochs
    from tqdm.auto import tqdm

    return tqdm(epochs, desc="finetune", unit="epoch")
