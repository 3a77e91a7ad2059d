"""Phase B: train a `Transformer` by gradient descent, the particles frozen (as in the Coulomb paper) or released."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Mapping, Sized
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor
from torch.nn import functional as F

from attention.feature_map import described
from attention.model import Batch, Transformer, _in_range, entry, is_integer, seed_from, seeded
from particles.arrays import count, flag, positive

_COLUMNS = ("train_loss", "validation_loss", "accuracy", "seconds")


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
    validation: Iterable[Batch] | None = None,
    checkpoint: str | os.PathLike | None = None,
    rng: int | np.random.Generator | torch.Generator,
    progress: bool = False,
) -> xr.Dataset:
    """Train `model` in place with AdamW, linear warm-up then cosine decay to zero, and a clipped gradient norm.

    Parameters
    ----------
    batches : re-iterable of batches
        Iterated once per epoch; see `attention.model` for a batch. May reshuffle itself on each iteration.
    freeze_omega : bool
        True: the particles do not change by a single bit (Phase B of the Coulomb paper). False: they train too, with `omega_lr`
        (default `lr`) and without weight decay.
    weight_decay : float
        On matrices only; biases, norms, gains and particles have none.
    warmup : float
        Fraction of all steps over which the learning rate rises to `lr`.
    validation : re-iterable of batches, optional
        Evaluated after each epoch; without it `validation_loss` and `accuracy` are NaN.
    checkpoint : path, optional
        Written atomically after each epoch. If it exists, training goes on from it to the same result as without an interruption,
        provided that `model`, `batches` and `rng` are made as the first time (earlier epochs of `batches` are drawn and dropped).
    rng : int or generator
        Seed of the dropout masks. Global generators are left as they were.

    Returns
    -------
    xr.Dataset
        (epoch): train_loss (mean over sequences, dropout on), validation_loss [nats], accuracy [fraction], seconds.

    Raises
    ------
    ValueError
        On empty or one-shot batches, missing or out-of-range labels, bad settings, or a checkpoint that cannot be read or is of
        other settings or another model.
    FloatingPointError
        If a loss is not finite; the message names epoch and batch.
    """
    check_model(model)
    if validation is not None:
        check_batches(validation, "validation")
    settings = _settings(freeze_omega, n_epochs, lr, omega_lr, weight_decay, clip, warmup, seed_from(rng))
    settings["model"] = asdict(model.config)
    n_batches = _count_batches(batches)
    for module in model.feature_maps:
        module.freeze() if freeze_omega else module.release()
    optimiser, schedule = _optimiser(model, settings, n_batches * n_epochs)
    history = _load(checkpoint, model, optimiser, schedule, settings)
    for _ in history["seconds"]:
        for _ in batches:  # a shuffling loader must reach the state that it had
            pass
    was_training = model.training
    for epoch in _epochs(len(history["seconds"]), n_epochs, progress):
        start = time.perf_counter()
        with seeded(_epoch_seed(settings["seed"], epoch), _device(model)):
            train_loss = _train_epoch(model, batches, optimiser, schedule, settings["clip"], epoch)
        loss, accuracy = evaluate(model, validation) if validation is not None else (math.nan, math.nan)
        for name, value in zip(_COLUMNS, (train_loss, loss, accuracy, time.perf_counter() - start), strict=True):
            history[name].append(value)
        _save(checkpoint, model, optimiser, schedule, settings, history)
    model.train(was_training)
    return _dataset(history, model, settings)


def predict(model: Transformer, batches: Iterable[Batch]) -> tuple[Tensor, Tensor]:
    """Class probabilities (n, n_classes) and labels (n,) of all batches, in evaluation mode, on the CPU; the model's mode is restored."""
    was_training = model.training
    model.eval()
    probabilities, labels = [], []
    with torch.no_grad():
        for batch in batches:
            batch = _on_device(batch, _device(model))
            labels.append(checked_labels(batch, model.config.n_classes).cpu())
            probabilities.append(model(batch).double().softmax(-1).cpu())
    model.train(was_training)
    if not labels:
        raise ValueError("batches must hold at least one batch, got none")
    return torch.cat(probabilities), torch.cat(labels)


def evaluate(model: Transformer, batches: Iterable[Batch]) -> tuple[float, float]:
    """Mean cross-entropy [nats] and accuracy over all sequences of `batches`."""
    probabilities, labels = predict(model, batches)
    chosen = probabilities.gather(1, labels[:, None])
    return float(-chosen.log().mean()), float((probabilities.argmax(-1) == labels).double().mean())


def checked_labels(batch: Batch, n_classes: int) -> Tensor:
    """The batch's labels (batch,) as int64; ValueError if they are missing, not integers, of a wrong length, or outside [0, n_classes)."""
    labels, shape = entry(batch, "labels"), tuple(entry(batch, "tokens").shape[:1])
    if not is_integer(labels) or tuple(labels.shape) != shape:
        raise ValueError(f"labels must be integers of shape {shape}, got {described(labels)}")
    _in_range(labels, n_classes, "labels")
    return labels.long()


def _train_epoch(model: Transformer, batches: Iterable[Batch], optimiser: Any, schedule: Any, clip: float, epoch: int) -> float:
    """One pass over the batches; the mean training loss per sequence."""
    model.train()
    total, n = 0.0, 0
    for index, batch in enumerate(batches):
        batch = _on_device(batch, _device(model))
        labels = checked_labels(batch, model.config.n_classes)
        loss = F.cross_entropy(model(batch), labels)
        if not bool(torch.isfinite(loss)):
            raise FloatingPointError(f"the training loss is {float(loss.detach())} in epoch {epoch}, batch {index}")
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimiser.step()
        schedule.step()
        total, n = total + float(loss.detach()) * len(labels), n + len(labels)
    return total / n


def _optimiser(model: Transformer, settings: dict[str, Any], n_steps: int) -> tuple[torch.optim.AdamW, Any]:
    """AdamW with three groups (matrices, vectors, particles), and the warm-up + cosine factor common to them."""
    omegas = {id(module.omega): module.omega for module in model.feature_maps}
    rest = [p for p in model.parameters() if p.requires_grad and id(p) not in omegas]
    groups = [
        {"params": [p for p in rest if p.ndim >= 2], "lr": settings["lr"], "weight_decay": settings["weight_decay"]},
        {"params": [p for p in rest if p.ndim < 2], "lr": settings["lr"], "weight_decay": 0.0},
    ]
    if not settings["freeze_omega"]:
        groups.append({"params": list(omegas.values()), "lr": settings["omega_lr"], "weight_decay": 0.0})
    optimiser = torch.optim.AdamW([group for group in groups if group["params"]])
    n_warm = max(1, round(settings["warmup"] * n_steps))

    def factor(step: int) -> float:
        if step < n_warm:
            return (step + 1) / n_warm
        return 0.5 * (1 + math.cos(math.pi * (step - n_warm) / max(1, n_steps - n_warm)))

    return optimiser, torch.optim.lr_scheduler.LambdaLR(optimiser, factor)


def _settings(
    freeze_omega: bool, n_epochs: int, lr: float, omega_lr: float | None, weight_decay: float, clip: float, warmup: float, seed: int
) -> dict[str, Any]:
    """The checked settings as one JSON-ready dict; stored in the checkpoint and in the Dataset."""
    lr = positive(lr, "lr")
    if not 0 <= positive(warmup, "warmup", zero=True) <= 1:
        raise ValueError(f"warmup must be in [0, 1], got {warmup!r}")
    if freeze_omega and omega_lr is not None:
        raise ValueError(f"omega_lr is the rate of released particles: it needs freeze_omega=False, got omega_lr={omega_lr!r}")
    return {
        "freeze_omega": flag(freeze_omega, "freeze_omega"),
        "n_epochs": count(n_epochs, "n_epochs"),
        "lr": lr,
        "omega_lr": lr if omega_lr is None else positive(omega_lr, "omega_lr"),
        "weight_decay": positive(weight_decay, "weight_decay", zero=True),
        "clip": positive(clip, "clip"),
        "warmup": float(warmup),
        "seed": seed,
    }


def check_model(model: Any) -> None:
    """ValueError unless `model` is a Transformer."""
    if not isinstance(model, Transformer):
        raise ValueError(f"model must be a Transformer, got {described(model)}")


def check_batches(batches: Any, name: str) -> None:
    """ValueError unless `batches` can be iterated, more than once, and is not itself a batch."""
    if not isinstance(batches, Iterable) or isinstance(batches, Mapping):
        raise ValueError(f"{name} must be an iterable of batches, got {described(batches)}")
    if iter(batches) is batches:
        raise ValueError(f"{name} must be iterable more than once (a list or a loader), got the one-shot {type(batches).__name__}")


def _count_batches(batches: Iterable[Batch]) -> int:
    """How many batches an epoch has; ValueError if none, or if the iterable can be read only once."""
    check_batches(batches, "batches")
    n_batches = len(batches) if isinstance(batches, Sized) else sum(1 for _ in batches)
    if n_batches == 0:
        raise ValueError("batches must hold at least one batch, got none")
    return n_batches


def _load(path: str | os.PathLike | None, model: Transformer, optimiser: Any, schedule: Any, settings: dict) -> dict[str, list[float]]:
    """The history so far; model, optimiser and schedule are set to the checkpoint's state if there is one."""
    if not isinstance(path, str | os.PathLike | None):
        raise ValueError(f"checkpoint must be a path, got {path!r}")
    if path is not None and not Path(path).parent.is_dir():
        raise ValueError(f"checkpoint must be in a folder that exists, got {str(path)!r}")
    if path is None or not Path(path).exists():
        return {name: [] for name in _COLUMNS}
    try:
        state = torch.load(path, map_location=_device(model), weights_only=True)
    except Exception as error:  # unpickling garbage can raise anything
        raise ValueError(f"checkpoint {str(path)!r} cannot be read: {error}") from error
    if state["settings"] != settings:
        differ = {k: (state["settings"].get(k), v) for k, v in settings.items() if state["settings"].get(k) != v}
        raise ValueError(f"checkpoint {str(path)!r} was written with other settings; (there, here) = {differ}")
    model.load_state_dict(state["model"])
    optimiser.load_state_dict(state["optimiser"])
    schedule.load_state_dict(state["schedule"])
    return state["history"]


def _save(path: str | os.PathLike | None, model: Transformer, optimiser: Any, schedule: Any, settings: dict, history: dict) -> None:
    """Write the checkpoint beside its place, then move it there: a kill at any moment leaves the old or the new one."""
    if path is None:
        return
    part = Path(f"{path}.part")
    state = {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "schedule": schedule.state_dict()}
    torch.save({**state, "settings": settings, "history": history}, part)
    os.replace(part, path)


def _dataset(history: dict[str, list[float]], model: Transformer, settings: dict[str, Any]) -> xr.Dataset:
    units = {"train_loss": "nat", "validation_loss": "nat", "accuracy": "1", "seconds": "s"}
    return xr.Dataset(
        {name: ("epoch", np.array(history[name], dtype=float), {"units": units[name]}) for name in _COLUMNS},
        coords={"epoch": np.arange(1, 1 + len(history["seconds"]))},
        attrs={"schema": 1, "settings": json.dumps(settings), "attention": model.config.attention, "torch": torch.__version__},
    )


def _epochs(done: int, n_epochs: int, progress: bool) -> Iterable[int]:
    if not progress:
        return range(done, n_epochs)
    from tqdm.auto import tqdm

    return tqdm(range(done, n_epochs), desc="finetune", unit="epoch")


def _epoch_seed(seed: int, epoch: int) -> int:
    """A seed for one epoch's dropout: a restart after any epoch needs no generator state."""
    return int(np.random.SeedSequence((seed, epoch)).generate_state(1, np.uint64)[0] >> np.uint64(2))


def _device(model: Transformer) -> torch.device:
    return model.positions.device


def _on_device(batch: Batch, device: torch.device) -> dict[str, Tensor]:
    if not isinstance(batch, Mapping):
        raise ValueError(f"batch must be a dict of tensors, got {described(batch)}")
    return {name: entry(batch, name).to(device) for name in batch}
