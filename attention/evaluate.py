"""The loss and the accuracy of a `Transformer` on batches."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from attention.batches import IGNORED, Batch, check_batches, checked_labels, next_tokens, on_device, summed_loss
from attention.mode import evaluating
from attention.model import Transformer


def predict(model: Transformer, batches: Iterable[Batch]) -> tuple[Tensor, Tensor]:
    """Class probabilities (n, n_classes) and labels (n,) of all batches, in evaluation mode, on the CPU; the model's mode is restored."""
    parts = [(logits.double().softmax(-1).cpu(), labels.cpu()) for logits, labels in evaluated(model, batches)]
    if not parts:
        raise ValueError("batches must hold at least one batch, got none")
    probabilities, labels = zip(*parts, strict=True)
    return torch.cat(probabilities), torch.cat(labels)


def evaluate(model: Transformer, batches: Iterable[Batch]) -> tuple[float, float]:
    """Mean cross-entropy [nats] and accuracy over all sequences of `batches`, or all predicted tokens of a language model."""
    return means(totals(model, batches))


def targets(batch: Batch, model: Transformer) -> Tensor:
    """What the logits are compared with: (batch,) classes, or (batch, time) next tokens with IGNORED where there is none."""
    classes = model.config.n_classes
    return next_tokens(batch, model.config.vocab_size or 0) if classes is None else checked_labels(batch, classes)


def evaluated(model: Transformer, batches: Iterable[Batch]) -> Iterable[tuple[Tensor, Tensor]]:
    """(logits, targets) of each target of each batch, in evaluation mode without gradients; the mode is restored at the end."""
    check_batches(batches, "batches", again=False)
    with evaluating(model):
        for batch in batches:
            batch = on_device(batch, model.device)
            wanted = targets(batch, model)
            with torch.no_grad():
                logits = model(batch)
            yield logits[wanted != IGNORED], wanted[wanted != IGNORED]


def totals(model: Transformer, batches: Iterable[Batch]) -> Tensor:
    """(sum of the losses, number right, number of targets) in float64."""
    sums = torch.zeros(3, dtype=torch.float64, device=model.device)
    for logits, wanted in evaluated(model, batches):
        right = (logits.argmax(-1) == wanted).double()
        sums += torch.stack((summed_loss(logits.double(), wanted), right.sum(), torch.ones_like(right).sum()))
    return sums


def means(sums: Tensor) -> tuple[float, float]:
    """Mean loss and accuracy; ValueError without a target."""
    loss, right, n = sums.tolist()
    if n == 0:
        raise ValueError("batches must hold at least one batch with a target, got none")
    return loss / n, right / n
