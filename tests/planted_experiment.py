"""An experiment that is quick to measure, for the tests of units and sweeps; a worker imports it by its name."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

EXTENT = ("rows", "n_seeds", "seed", "data", "trap")
ARRAYS = {"curve": ("epoch",)}


@dataclass(frozen=True)
class Config:
    """What is measured."""

    rows: tuple[str, ...] = ("a", "b", "c", "d")  # names of rows
    lam: float = 0.1  # a setting
    n_seeds: int = 10  # seed, seed + 1, ...
    seed: int = 0  # the first seed
    data: str = ""  # folder
    trap: str = ""  # file; the first worker that finds none there makes it and dies

    def __post_init__(self) -> None:
        if self.lam < 0:
            raise ValueError(f"lam must be at least 0, got {self.lam}")


PRESETS = {"smoke": Config(n_seeds=2), "cpu": Config(), "paper": Config(n_seeds=50)}


def units(config: Config) -> Iterator[dict[str, Any]]:
    """Rows and seeds."""
    for row in config.rows:
        yield from ({"row": row, "seed": seed} for seed in range(config.seed, config.seed + config.n_seeds))


def measure(config: Config, unit: dict[str, Any]) -> dict[str, Any]:
    """Numbers of every kind; row "bad" fails, row "deadly" ends its process."""
    if unit["row"] == "bad":
        raise ArithmeticError("planted")
    if unit["row"] == "deadly":
        os.kill(os.getpid(), signal.SIGKILL)
    if config.trap and unit == {"row": "b", "seed": 3} and not Path(config.trap).exists():
        Path(config.trap).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    rng = np.random.default_rng([unit["seed"], ord(unit["row"])])
    matrix = rng.standard_normal((300, 300))
    return {
        "accuracy": float((matrix @ matrix).sum()) * config.lam,
        "curve": rng.random(3 + unit["seed"] % 2),
        "correct": rng.random(13) > 0.5,
        "empty": float("nan"),
        "data_sha256": "abc",
    }


def estimate(config: Config, unit: dict[str, Any]) -> tuple[float, float]:
    """Seconds and bytes."""
    return 60.0, 2.0**20


def rehearse(config: Config) -> str:
    """In place of a run without data."""
    return f"lam = {config.lam}"
