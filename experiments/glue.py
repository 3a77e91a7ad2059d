"""GLUE tasks on a pretrained sentence encoder: rows as tokens, a head on mean embeddings, training, and the score of each task.

Every sentence is encoded by itself. Its embedding u is the mean of the last hidden states, of length 1. A classifier reads u, or for a pair
(u, v, |u - v|, u v); a score of similarity is the cosine of u and v and needs no head. So the encoder is used as it was pretrained, and a
few hundred rows teach it something, which they would not with both sentences in one sequence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attention.schedule import rate, step
from experiments import metrics
from experiments.data.files import placed
from experiments.data.parts import Part, shorten
from experiments.data.tables import class_order, tables
from experiments.sentences import Teacher

TASKS = ("rte", "mrpc", "cola", "sst2", "qqp", "stsb", "mnli", "qnli")
SCORE = {"cola": "matthews", "stsb": "spearman"}  # what GLUE reports; accuracy of the others
WITH_F1 = ("mrpc", "qqp")
DECAY = 0.3  # of the head fitted to embeddings as they are: chosen on validation rows of SST-2 and CoLA
EVALUATED = 64  # rows of a batch without gradients


@dataclass(frozen=True)
class Rows:
    """Rows of one part: token ids [side][row]; labels (row,), class numbers or scores from 0 to 1."""

    sides: list[list[list[int]]]
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def batches(self, size: int, pad: int, rng: np.random.Generator | None = None) -> Iterator[tuple[np.ndarray, dict[str, Tensor]]]:
        """(places, batch) of rows of similar length, all first sentences before all second ones; in random order with `rng`."""
        lengths = np.sum([[len(ids) for ids in side] for side in self.sides], axis=0)
        order = np.arange(len(self)) if rng is None else rng.permutation(len(self))
        order = order[np.argsort(lengths[order], kind="stable")]
        parts = np.split(order, np.arange(size, len(order), size))
        for number in range(len(parts)) if rng is None else rng.permutation(len(parts)):
            ids = [torch.tensor(side[place]) for side in self.sides for place in parts[number]]
            tokens = nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=pad)
            mask = torch.arange(tokens.shape[1]) < torch.tensor([[len(row)] for row in ids])
            yield parts[number], {"input_ids": tokens, "attention_mask": mask.long()}


@dataclass(frozen=True)
class Task:
    """One task as an encoder reads it; `n_classes` is 1 for scores. The sentences are those of the training rows."""

    name: str
    train: Rows
    test: Rows
    n_classes: int
    sentences: list[str]
    source: str
    sha256: str


def check(name: str, folder: str) -> list[Path]:
    """The files of a task; FileNotFoundError says what to place."""
    return placed(name, folder)


def read(
    name: str,
    folder: str,
    teacher: Teacher,
    *,
    max_length: int,
    max_train: int | None,
    max_test: int | None,
    seed: int,
    scored: str = "test",
) -> Task:
    """A task from its folder: about so many training rows, others for each seed, and so many of the part `scored`, always the same."""
    content = shorten(tables(name, check(name, folder), 0), {scored: max_test}, 0)
    content = shorten(content, {"train": max_train}, seed)
    train, test = content.parts["train"], content.parts[scored]
    classes = [] if content.scores else sorted(set(train.labels), key=class_order)
    top = max(train.labels) if content.scores else None

    def rows(part: Part) -> Rows:
        labels = np.asarray(part.labels) / top if content.scores else np.array([classes.index(label) for label in part.labels])
        return Rows([teacher.tokens(side, max_length) for side in zip(*part.items)], labels)

    sentences = [sentence for row in train.items for sentence in row]
    return Task(name, rows(train), rows(test), len(classes) or 1, sentences, content.source, content.sha256)


def tiny(name: str, teacher: Teacher, *, max_length: int, n_train: int, n_test: int, seed: int) -> Task:
    """Random words for `sentences.tiny_teacher`; the label is whether (for scores: how far) the first word is among the later ones."""
    n_sides, scores = (1 if name in ("cola", "sst2") else 2), name == "stsb"

    def part(n: int, key: int) -> tuple[list[list[str]], Rows]:
        rng = np.random.default_rng([key, TASKS.index(name)])
        words = [[list(map(str, rng.integers(0, 50, rng.integers(3, 9)))) for _ in range(n)] for _ in range(n_sides)]
        first = np.array([int(row[0]) for row in words[-1]])
        sides = [[" ".join(row) for row in side] for side in words]
        return sides, Rows([teacher.tokens(side, max_length) for side in sides], first / 49 if scores else (first > 24).astype(int))

    (sides, train), (_, test) = part(n_train, seed + 1), part(n_test, 0)
    return Task(name, train, test, 1 if scores else 2, [text for side in sides for text in side], "random words", "none")


# ---- the classifier ----------------------------------------------------------------------------------------------------------------------


class Classifier(nn.Module):
    """An encoder with a head on its embeddings; without one it states the cosine of each pair."""

    def __init__(self, encoder: nn.Module, head: nn.Linear | None) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(self, batch: dict[str, Tensor], n_sides: int) -> Tensor:
        """Logits (row, class), or cosines (row,)."""
        sides = embedded(self.encoder, batch).chunk(n_sides)
        return (sides[0] * sides[1]).mean(1) if self.head is None else self.head(features(sides))


def embedded(encoder: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Mean of the last hidden states over the tokens, (sentence, width), its entries of mean square 1."""
    device = next(encoder.parameters()).device
    batch = {name: tensor.to(device) for name, tensor in batch.items()}
    hidden, mask = encoder(**batch).last_hidden_state, batch["attention_mask"][..., None]
    return nn.functional.normalize((hidden * mask).sum(1), dim=-1) * math.sqrt(hidden.shape[-1])


def features(sides: Sequence[Tensor]) -> Tensor:
    """What a head reads: u, or (u, v, |u - v|, u v)."""
    if len(sides) == 1:
        return sides[0]
    u, v = sides
    return torch.cat((u, v, (u - v).abs(), u * v), 1)


def classifier(encoder: nn.Module, task: Task, pad: int) -> Classifier:
    """The encoder as it is, with the head that logistic regression finds on the training rows."""
    if task.n_classes == 1:
        return Classifier(encoder, None)
    found: list[Tensor] = [torch.empty(0)] * len(task.train)
    with torch.no_grad():
        for places, batch in task.train.batches(EVALUATED, pad):
            for place, row in zip(places, features(embedded(encoder, batch).chunk(len(task.train.sides)))):
                found[place] = row
    return Classifier(encoder, _logistic(torch.stack(found), torch.from_numpy(task.train.labels).to(found[0].device), task.n_classes))


def _logistic(x: Tensor, labels: Tensor, n_classes: int) -> nn.Linear:
    """The linear map of least cross-entropy plus DECAY times its squared weights."""
    head = nn.Linear(x.shape[1], n_classes).to(x.device)
    for parameter in head.parameters():
        nn.init.zeros_(parameter)
    optimiser = torch.optim.LBFGS(head.parameters(), max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = nn.functional.cross_entropy(head(x), labels) + DECAY * head.weight.square().sum()
        value.backward()
        return value

    optimiser.step(loss)  # type: ignore[arg-type]
    return head


def train(
    model: Classifier, rows: Rows, pad: int, *, n_epochs: int, batch_size: int, lr: float, head_lr: float, kernel_lr: float, seed: int
) -> None:
    """Fit all weights to labels, in place, by AdamW; embedding tables and parameters without gradient stay. No dropout.

    The rate rises over at most 20 steps and a quarter of all, then falls as a cosine. The order of the rows is that of the seed.
    """
    model.eval()
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            module.requires_grad_(False)
    n_steps = n_epochs * -(-len(rows) // batch_size)
    optimiser = torch.optim.AdamW(_groups(model, lr, head_lr, kernel_lr))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, rate(n_steps))
    loss_of: Any = nn.functional.mse_loss if model.head is None else nn.functional.cross_entropy
    for epoch in range(n_epochs):
        for places, batch in rows.batches(batch_size, pad, np.random.default_rng([seed, epoch])):
            said = model(batch, len(rows.sides))
            labels = torch.from_numpy(rows.labels[places]).to(said.device)
            step(optimiser, schedule, loss_of(said, labels if model.head is not None else labels.to(said.dtype)))


def _groups(model: Classifier, lr: float, head_lr: float, kernel_lr: float) -> list[dict[str, Any]]:
    """The parameters that move, with their rates."""
    groups: dict[float, list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            own = kernel_lr if ".kernel." in name else head_lr if name.startswith("head.") else lr
            groups.setdefault(own, []).append(parameter)
    return [{"params": parameters, "lr": own} for own, parameters in groups.items()]


@torch.no_grad()
def predict(model: Classifier, rows: Rows, pad: int) -> np.ndarray:
    """Probabilities (row, class), or cosines (row,)."""
    said: list[np.ndarray] = [np.empty(0)] * len(rows)
    for places, batch in rows.batches(EVALUATED, pad):
        out = model(batch, len(rows.sides)).double()
        for place, row in zip(places, (out if model.head is None else out.softmax(-1)).cpu().numpy()):
            said[place] = row
    return np.stack(said)


def scored(task: Task, said: np.ndarray) -> dict[str, Any]:
    """The scores of `metrics.scores` and correct (row,), or correlations and squared_error (row,); `score` is what GLUE reports.

    chance : the score of one answer to all rows.
    """
    labels, chance = task.test.labels, 0.0
    if task.n_classes == 1:
        found: dict[str, Any] = {"spearman": metrics.spearman(said, labels), "pearson": metrics.pearson(said, labels)}
        found["squared_error"] = np.round((said - labels) ** 2, 5)
    else:
        found = metrics.scores(said, labels)
        found["correct"] = said.argmax(1) == labels
        chance = 0.0 if task.name in SCORE else float(np.bincount(labels).max() / len(labels))
        if task.name in WITH_F1:
            found["f1"] = metrics.f1(said.argmax(1), labels, average="binary")
    return found | {"score": found[SCORE.get(task.name, "accuracy")], "chance": chance}
