"""The last stage of distillation: the whole student against the whole teacher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn

from attention.schedule import BETAS, Saved, bar, order, rate, step

WEIGHT_LR = 5e-5  # of all weights but the kernels' and the embeddings
SAVE_EVERY = 25  # steps between checkpoints


def end_to_end(student: nn.Module, teacher: nn.Module, batches: Sequence[Mapping[str, Tensor]], saved: Saved, progress: bool) -> xr.Dataset:
    """See `attention.distil`; `saved.settings` holds n_steps, lr, weight_lr and seed. Embedding tables stay as they are."""
    settings, n_steps = saved.settings, saved.settings["n_steps"]
    optimiser = torch.optim.Adam(_groups(student, settings["lr"], settings["weight_lr"]), betas=BETAS)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, rate(n_steps))
    losses: list[list[float]] = []
    if (state := saved.load()) is not None:
        losses = state["losses"]
        for part, name in ((student, "student"), (optimiser, "optimiser"), (schedule, "schedule")):
            part.load_state_dict(state[name])
    training = [(model, model.training) for model in (student, teacher)]
    for model, _ in training:
        model.eval()
    rest = range(len(losses), n_steps)
    for number in order(len(batches), bar(rest, progress), settings["seed"]):
        cosine, hidden = distances(student, teacher, batches[number])
        losses.append([cosine.item(), hidden.item()])
        step(optimiser, schedule, cosine + hidden)
        if len(losses) % SAVE_EVERY == 0 or len(losses) == n_steps:
            parts = {"student": student.state_dict(), "optimiser": optimiser.state_dict(), "schedule": schedule.state_dict()}
            saved.save({"losses": losses, **parts})
    for model, before in training:
        model.train(before)
    table = np.array(losses)
    columns = {"cosine": table[:, 0], "hidden_error": table[:, 1], "loss": table.sum(1)}
    return xr.Dataset({name: ("step", column) for name, column in columns.items()}, {"step": np.arange(n_steps)})


def distances(student: nn.Module, teacher: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """1 - cosine of the mean last hidden states, and the mean over layers of ||difference||^2 / ||teacher||^2, padding left out."""
    with torch.no_grad():
        target = teacher(**batch, output_hidden_states=True).hidden_states
    hidden = student(**batch, output_hidden_states=True).hidden_states
    mask = batch["attention_mask"][..., None] if "attention_mask" in batch else torch.ones_like(target[-1][..., :1])
    means = [(states[-1] * mask).sum(1) / mask.sum(1).clamp(min=1) for states in (hidden, target)]
    errors = [((a - b) * mask).square().sum() / (b * mask).square().sum() for a, b in zip(hidden[1:], target[1:])]
    return 1 - nn.functional.cosine_similarity(*means).mean(), torch.stack(errors).mean()


def _groups(student: nn.Module, lr: float, weight_lr: float) -> list[dict]:
    """Kernels, and everything else but embedding tables, with their learning rates."""
    tables = {id(p) for module in student.modules() if isinstance(module, nn.Embedding) for p in module.parameters()}
    learned = [(name, p) for name, p in student.named_parameters() if p.requires_grad and id(p) not in tables]
    kernels = [p for name, p in learned if ".kernel." in name]
    return [{"params": kernels, "lr": lr}, {"params": [p for name, p in learned if ".kernel." not in name], "lr": weight_lr}]
