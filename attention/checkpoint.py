"""The state of a training run, and its way to a file and back: a restart ends where an uninterrupted run would have."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from attention import parallel
from attention.model import Transformer
from attention.schedule import reason

COLUMNS = {"train_loss": "nat", "validation_loss": "nat", "accuracy": "1", "nonpositive": "1", "alignment": "1", "seconds": "s"}


@dataclass
class Run:
    """A training run between two steps.

    Attributes
    ----------
    settings : what decides the result beside model, batches and start.
    history : of each finished epoch.
    step : steps done in the current epoch; `loss`, `n`, `nonpositive` and `seconds` are its sums so far, `alignment` is what Phase A
        reached before it.
    best : the weights of the epoch with the least validation loss, if they are kept.
    """

    model: Transformer
    optimiser: torch.optim.Optimizer
    scaler: Any
    settings: dict[str, Any]
    history: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in COLUMNS})
    step: int = 0
    loss: float = 0.0
    n: int = 0
    nonpositive: float = 0.0
    seconds: float = 0.0
    alignment: float = math.nan
    best: dict[str, torch.Tensor] | None = None

    @property
    def epoch(self) -> int:
        """The epoch that is being trained, from 0."""
        return len(self.history["seconds"])

    def save(self, path: str | os.PathLike | None) -> None:
        """Write beside the file's place, then move there: a kill at any moment leaves the old or the new one. By the first process."""
        if path is not None and parallel.rank() == 0:
            part = Path(f"{path}.part")
            parts = {name: getattr(self, name).state_dict() for name in ("model", "optimiser", "scaler")}
            torch.save(parts | {name: getattr(self, name) for name in ("settings", *_PLAIN)}, part)
            os.replace(part, path)
        parallel.wait()

    def load(self, path: str | os.PathLike | None) -> None:
        """Go on from the file, if there is one.

        Raises
        ------
        ValueError
            If `path` is no path, its folder does not exist, or the file cannot be read or is of other settings or another model.
        """
        if not isinstance(path, str | os.PathLike | None):
            raise ValueError(f"checkpoint must be a path, got {path!r}")
        if path is not None and not Path(path).parent.is_dir():
            raise ValueError(f"checkpoint must be in a folder that exists, got {str(path)!r}")
        if path is None or not Path(path).exists():
            return
        state = _read(path, self.model.device)
        if state["settings"] != self.settings:
            there, here = state["settings"], self.settings
            differ = {k: (there.get(k), here.get(k)) for k in here.keys() | there.keys() if here.get(k) != there.get(k)}
            raise ValueError(f"checkpoint {str(path)!r} was written with other settings; (there, here) = {differ}")
        for name in ("model", "optimiser", "scaler"):
            getattr(self, name).load_state_dict(state[name])
        for name in _PLAIN:
            setattr(self, name, state[name])


_PLAIN = ("history", "step", "loss", "n", "nonpositive", "seconds", "alignment", "best")


def _read(path: str | os.PathLike, device: torch.device) -> dict[str, Any]:
    """What is in the file; ValueError if it is no checkpoint, or one of an older version of this package."""
    try:
        state = torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # unpickling garbage can raise anything
        raise ValueError(f"checkpoint {str(path)!r} cannot be read: {reason(error)}") from error
    missing = {"model", "optimiser", "scaler", "settings", *_PLAIN} - set(state if isinstance(state, dict) else ())
    if missing:
        raise ValueError(f"checkpoint {str(path)!r} is of another version or kind: it lacks {sorted(missing)}")
    return state
