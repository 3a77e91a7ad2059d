"""What the students of `transfer` are made of: the encoder with a head, fine-tuned teachers, and kernels that learned from them.

Everything is kept for the units that follow and share it; what a unit changes it copies.
"""

from __future__ import annotations

import copy
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from attention.activations import Activations, collect
from attention.layer_kernel import LayerKernel
from attention.seeds import derived_seed
from experiments import conversion, glue
from experiments.sentences import Batch, Teacher, load_teacher, sentence_batches, tiny_teacher

if TYPE_CHECKING:
    from experiments.transfer import Config

ROWS: dict[str, conversion.Row | None] = {
    "teacher": None,
    "uniform": conversion.ROWS["uniform"],
    "favor raw": conversion.ROWS["favor raw"],
    "proposal": conversion.ROWS["proposal"],
    "hedgehog": conversion.ROWS["hedgehog"],
    "flexformer-nonstationary": conversion.ROWS["flexformer"],
    "particles": conversion.ROWS["particles"],
}
HELD_OUT = 32  # test sentences on which attention errors are measured


class Start(NamedTuple):
    """What all students of a task and a seed have in common."""

    task: glue.Task
    model: glue.Classifier  # the encoder as pretrained, with its head
    fit: list[Batch]  # unlabelled, of the training rows
    held_out: list[Batch]  # of the test rows
    pad: int


@lru_cache(maxsize=8)
def start(config: Config, task: str, seed: int) -> Start:
    """Rows of a task, and the encoder as pretrained with the head that fits its embeddings."""
    encoder = teacher(config)
    if config.smoke:
        sizes = {"n_train": config.max_train or 32, "n_test": config.max_test or 32}
        read = glue.tiny(task, encoder, max_length=config.max_length, seed=seed, **sizes)
    else:
        limits = {name: getattr(config, name) for name in ("max_length", "max_train", "max_test", "scored")}
        read = glue.read(task, config.data, encoder, seed=seed, **limits)
    fit = [batch for _, batch in sentence_batches(encoder, read.sentences[: config.n_fit])]
    held_out = [batch for _, batch in read.test.batches(HELD_OUT, encoder.pad)]
    place = len(held_out) // 2  # of middle length
    return Start(read, glue.classifier(copy.deepcopy(encoder.model), read, encoder.pad), fit, held_out[place : place + 1], encoder.pad)


@lru_cache(maxsize=1)
def _loaded(name: str, smoke: bool) -> Teacher:
    return tiny_teacher() if smoke else load_teacher(name)


def teacher(config: Config) -> Teacher:
    """The encoder as pretrained, which reads at most `max_length` tokens; on the GPU if there is one."""
    loaded = _loaded(config.teacher, config.smoke)
    loaded.model.to("cuda" if torch.cuda.is_available() else "cpu")
    return Teacher(loaded.model, loaded.tokens, loaded.pad, min(config.max_length, loaded.max_length))


@lru_cache(maxsize=8)
def taught(config: Config, task: str, seed: int) -> glue.Classifier:
    """The teacher: fine-tuned on the task."""
    given = start(config, task, seed)
    model = copy.deepcopy(given.model)
    trained(config, model, given, derived_seed(seed, 0))
    return model


def trained(config: Config, model: glue.Classifier, given: Start, seed: int) -> None:
    """Train a teacher or student in place on the labels of its task; the seed decides the order of the rows."""
    how: dict[str, Any] = {name: getattr(config, name) for name in ("n_epochs", "batch_size", "lr", "head_lr", "kernel_lr")}
    glue.train(model, given.task.train, given.pad, seed=seed, **how)


def scored(model: glue.Classifier, given: Start) -> dict[str, Any]:
    """Scores of `glue.scored` on the test rows."""
    return glue.scored(given.task, glue.predict(model, given.task.test, given.pad))


def kernels(config: Config, task: str, row: str, seed: int) -> dict[int, LayerKernel]:
    """A new copy of the kernels of a row, {layer: kernel}, learned from the task's teacher."""
    return copy.deepcopy(_kernels(config, task, row, seed))


@lru_cache(maxsize=32)
def _kernels(config: Config, task: str, row: str, seed: int) -> dict[int, LayerKernel]:
    found = ROWS[row]
    assert found is not None  # the teacher has no kernels
    return conversion.made(
        conversion.Config(n_features=config.n_features, n_steps=config.n_fit_steps), found, _seen(config, task, seed), derived_seed(seed, 2)
    )


@lru_cache(maxsize=2)
def _seen(config: Config, task: str, seed: int) -> list[list[Activations]]:
    """The teacher's activations, [layer][batch]."""
    return collect(taught(config, task, seed).encoder, start(config, task, seed).fit)


def stand_in(config: Config, n_steps: int) -> Start:
    """A classifier of random weights, of the smoke preset's size or RoBERTa's, and rows of random tokens."""
    from transformers import RobertaConfig, RobertaModel

    encoder: Any = tiny_teacher().model if config.smoke else RobertaModel(RobertaConfig(max_position_embeddings=514))
    n, words = n_steps * config.batch_size, encoder.config.vocab_size
    rng = np.random.default_rng(0)
    rows = glue.Rows([rng.integers(3, words, (n, config.max_length)).tolist()], rng.integers(0, 2, n))
    task = glue.Task("sst2", rows, rows, 2, [], "random tokens", "none")
    held_out = [batch for _, batch in rows.batches(4, 1)][:1]
    return Start(task, glue.Classifier(encoder, torch.nn.Linear(encoder.config.hidden_size, 2)), [], held_out, 1)
