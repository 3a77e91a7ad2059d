"""How distillation walks: learning rate, order of batches, clipped steps, and a file from which an interrupted run goes on."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attention.seeds import derived_seed

BETAS, CLIP, WARM_UP = (0.9, 0.99), 10.0, 20


def rate(n_steps: int) -> Callable[[int], float]:
    """The learning rate's factor at each step: `WARM_UP` steps up (at most a quarter of all), then a cosine to 0."""
    warm = min(WARM_UP, max(n_steps // 4, 1))
    return lambda step: (step + 1) / warm if step < warm else 0.5 * (1 + math.cos(math.pi * (step - warm) / max(n_steps - warm, 1)))


def order(n_batches: int, steps: Iterable[int], seed: int) -> Iterator[int]:
    """Which batch each step takes: a new permutation on every pass, a function of the seed and the step alone."""
    for step in steps:
        turn, place = divmod(step, n_batches)
        yield int(np.random.default_rng(derived_seed(seed, turn)).permutation(n_batches)[place])


def step(optimiser: torch.optim.Optimizer, schedule: Any, loss: Tensor) -> None:
    """One step down the gradient of `loss`, of norm `CLIP` at most; RuntimeError where it is not finite."""
    optimiser.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_([p for group in optimiser.param_groups for p in group["params"]], CLIP, error_if_nonfinite=True)
    optimiser.step()
    schedule.step()


class Saved:
    """The state of a run in a file, with the settings that decide its result; no file without a path.

    Raises
    ------
    ValueError
        If the path is none or its folder does not exist.
    """

    def __init__(self, path: str | os.PathLike | None, settings: dict[str, Any]) -> None:
        if path is not None and (not isinstance(path, str | os.PathLike) or not Path(path).parent.is_dir()):
            raise ValueError(f"checkpoint must be a path in a folder that exists, got {path!r}")
        self.path, self.settings = None if path is None else Path(path), settings

    def save(self, state: dict[str, Any]) -> None:
        """Write beside the file's place, then move there: a kill at any moment leaves the old or the new one."""
        if self.path is not None:
            part = self.path.with_name(self.path.name + ".part")
            torch.save({"settings": self.settings, "state": state}, part)
            os.replace(part, self.path)

    def load(self) -> dict[str, Any] | None:
        """The state in the file, None without one; ValueError for a file of other settings, or none of these."""
        if self.path is None or not self.path.exists():
            return None
        try:
            found = torch.load(self.path, weights_only=True)
            settings, state = found["settings"], found["state"]
        except Exception as error:  # unpickling garbage can raise anything
            raise ValueError(f"checkpoint {str(self.path)!r} cannot be read: {reason(error)}") from error
        if settings != self.settings:
            raise ValueError(f"checkpoint {str(self.path)!r} was written with other settings: {settings}, here {self.settings}")
        return state


def reason(error: Exception) -> str:
    """Why a checkpoint cannot be read; torch's own text advises to load the file unsafely."""
    return str(error) if isinstance(error, OSError) else "it is no checkpoint, or a damaged one"


def bar(steps: Iterable[int], progress: bool) -> Iterable[int]:
    """The steps, behind a progress bar if wanted."""
    if not progress:
        return steps
    from tqdm.auto import tqdm

    return tqdm(steps)
