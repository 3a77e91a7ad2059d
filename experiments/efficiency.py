"""Time and memory of every attention against the length of the sequence, beside torch's scaled dot-product attention (SDPA).

| mode                        | what is measured                                                              |
|-----------------------------|-------------------------------------------------------------------------------|
| training, training causal   | forward and backward pass over the whole sequence                             |
| inference, inference causal | forward pass without gradients                                                |
| decoding                    | one more token after `length` tokens: from a state, or from all keys and values |

In one unit, a mode at one length, all attentions meet the same random inputs and take turns round by round, so that their times may be
compared with each other; units of other lengths may have met another load. A call that took longer than `patience` is not repeated.
Memory is what one call adds at most; of decoding, the size of what is kept between two tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from experiments.settings import chosen
from particles.arrays import count, positive

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

    from experiments.report import Section
    from experiments.units import Scores, Unit

DIMS = ("mode", "length", "seed")
EXTENT = ("modes", "lengths", "n_seeds", "seed", "data")
ARRAYS = {"times": ("row", "quantile"), "memory": ("row",)}
MODES = ("training", "inference", "training causal", "inference causal", "decoding")
QUANTILES = (0.0, 0.25, 0.5, 0.75)
TURN = 0.01  # seconds for which a fast call is repeated in its turn, so that what ran before does not leave it with cold caches


class Row(NamedTuple):
    """An attention: its feature map's name ("" for none), and features or landmarks as a multiple of the head's dimension."""

    name: str = ""
    width: int = 2


ROWS = {  # the order of the dimension "row"; "softmax" is SDPA
    "softmax": Row(),
    "softmax, matrix": Row(),
    "linear": Row("linear", 1),
    "performer": Row("favor"),
    "rfa": Row("rfa"),
    "cosformer": Row("cosformer"),
    "hedgehog": Row("hedgehog"),
    "polaformer": Row("polaformer"),
    "flexformer": Row("flexformer"),
    "flexformer-nonstationary": Row("flexformer-nonstationary"),
    "softmaxfeat": Row("softmaxfeat"),
    "exponential": Row("exponential"),
    "soft": Row(width=1),
    "nystromformer": Row(width=1),
    "linformer": Row(width=4),
}
BIDIRECTIONAL = ("soft", "nystromformer", "linformer")
SOFTMAX, MATRIX = "softmax", "softmax, matrix"


@dataclass(frozen=True, kw_only=True)
class Config:
    """What is measured."""

    modes: tuple[str, ...] = MODES  # training, inference, training causal, inference causal, decoding
    lengths: tuple[int, ...] = (256, 512, 1024, 2048, 4096, 8192, 16384)  # tokens of a sequence
    n_seeds: int = 3  # units of each mode and length, with other inputs
    seed: int = 0  # the first of them
    batch_size: int = 1  # sequences
    heads: int = 1  # heads
    dim: int = 64  # of a head
    n_rounds: int = 5  # turns of each attention in one unit
    patience: float = 1.0  # seconds; a slower call is not repeated in a unit
    longest_matrix: int = 4096  # tokens up to which softmax is also computed with its matrix
    device: str = "cpu"  # where: cpu, or cuda
    data: str = ""  # not needed: inputs are random

    def __post_init__(self) -> None:
        chosen(self.modes, MODES, "modes")
        if not self.lengths or len(set(self.lengths)) < len(self.lengths):
            raise ValueError(f"lengths must be numbers of tokens, each once, got {self.lengths!r}")
        for name in ("n_seeds", "batch_size", "heads", "dim", "n_rounds", "longest_matrix"):
            count(getattr(self, name), name)
        for length in self.lengths:
            count(length, "lengths", least=2)
        count(self.seed, "seed", least=0)
        positive(self.patience, "patience")


PRESETS = {
    "smoke": Config(lengths=(32, 64, 128, 256), n_seeds=1, dim=16, n_rounds=2),
    "cpu": Config(),
    "paper": Config(
        lengths=(1000, 2000, 4000, 8000, 16000, 32000), batch_size=16, heads=2, n_rounds=20, longest_matrix=8000, device="cuda"
    ),
}
REDUCED = {
    "smoke": "at most 256 tokens, heads of 16",
    "cpu": "attention alone, one sequence and one head of 64 on one core, in place of the whole retrieval model in batches on a GPU",
    "paper": "attention alone in place of the whole retrieval model",
}


def units(config: Config) -> Iterator[Unit]:
    """Seeds outermost: an interrupted run has all modes and lengths before it has any twice."""
    for seed in range(config.seed, config.seed + config.n_seeds):
        for mode in config.modes:
            for length in config.lengths:
                yield {"mode": mode, "length": length, "seed": seed}


def rows(config: Config, mode: str, length: int) -> list[str]:
    """The attentions that a unit has; the others are NaN."""
    causal = mode == "decoding" or mode.endswith("causal")
    no_matrix = length > config.longest_matrix or mode == "decoding"
    return [name for name in ROWS if not (causal and name in BIDIRECTIONAL) and not (no_matrix and name == MATRIX)]


def measure(config: Config, unit: Unit) -> Scores:
    """times (row, quantile) [s], QUANTILES over the rounds, and memory (row,) [MiB], in the order of ROWS."""
    import torch

    from experiments.attentions import decoding, passes

    if config.device != "cpu" and not torch.cuda.is_available():
        raise ValueError(f"device must be one that is here, got {config.device!r}: torch finds no GPU; cpu works everywhere")
    mode, length = unit["mode"], unit["length"]
    calls, kept = decoding(config, length, unit["seed"]) if mode == "decoding" else (passes(config, mode, length, unit["seed"]), {})
    memory = {name: kept[name] if name in kept else _memory(config, call) for name, call in calls.items()}
    times = _rounds(config, calls)
    quantiles = [np.quantile(times[name], QUANTILES) if name in times else np.full(len(QUANTILES), np.nan) for name in ROWS]
    return {"times": np.array(quantiles), "memory": np.array([memory.get(name, np.nan) for name in ROWS], float)}


def arrange(ds: xr.Dataset, chosen: Any = None) -> xr.Dataset:
    """The Dataset with the names of its rows, and `seconds`: the least time, which other load disturbs least."""
    ds = ds.assign_coords(row=list(ROWS), quantile=list(QUANTILES))
    return ds.assign(seconds=ds["times"].isel(quantile=0, drop=True))


Calls = dict[str, Callable[[], Any]]


def _rounds(config: Config, calls: Calls) -> dict[str, list[float]]:
    """Times of all calls, taking turns; `_memory` or building the state has warmed them up."""
    from experiments.resources import seconds

    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(config.n_rounds):
        for name, call in calls.items():
            turn = 0.0
            while turn < TURN and (not times[name] or times[name][-1] <= config.patience):
                times[name].append(seconds(call, config.device))
                turn += times[name][-1]
    return times


def _memory(config: Config, call: Callable[[], Any]) -> float:
    from experiments.resources import added_gpu_memory, added_memory

    added = added_memory(call) if config.device == "cpu" else added_gpu_memory(call, config.device)
    return np.nan if added is None else added


def estimate(config: Config, unit: Unit) -> tuple[float, float]:
    """Seconds on one core at 20 GFLOP/s, and bytes."""
    length, heads = unit["length"], config.batch_size * config.heads
    passes, rounds = 3.5 if unit["mode"].startswith("training") else 1.0, config.n_rounds + 1
    if unit["mode"] == "decoding":
        return 1.0 + 30 * 8 * length * config.dim**2 * heads / 2e10, 64.0 * length * config.dim * heads + 2e8
    square = 4.0 * length**2 * config.dim * heads * passes / 2e10
    linear = 14 * 16.0 * length * config.dim**2 * heads * passes / 2e10
    matrix = 4.0 * 4 * length**2 * heads if length <= config.longest_matrix else 0.0
    return 0.3 + rounds * linear + square * (rounds if square < config.patience else 2), 3e8 + 400.0 * length * config.dim * heads + matrix


def rehearse(config: Config) -> str:
    """One round at the shortest length on the CPU, with the preset's other sizes."""
    from dataclasses import replace

    small = replace(config, device="cpu", n_rounds=1, lengths=config.lengths[:1])
    unit = next(units(small))
    found = measure(small, unit)
    slowest = float(np.nanmax(found["times"][:, 0]))
    memory, n_units = float(np.nanmax(found["memory"])), len(list(units(config)))
    return (
        f"{unit['mode']} of {unit['length']} tokens, batch {config.batch_size}: at most {slowest:.2f} s and {memory:.0f} MiB an attention "
        f"on this CPU; the whole preset has {n_units} units and wants device {config.device}"
    )


def run(config: Config, **how: Any) -> xr.Dataset:
    """Measure all units; `how` is that of `experiments.sweep.run`.

    Returns
    -------
    Dataset over (mode, length, seed, row): times (quantile of the rounds) [s of processor time], seconds, the least of them, and memory
    [MiB]; NaN where an attention has no such mode or length.
    """
    from experiments import sweep

    return sweep.run("efficiency", config, **how)


def section(ds: xr.Dataset) -> Section:
    """Tables and what they show."""
    from experiments.efficiency_tables import section as made

    return made(ds)


def figures(ds: xr.Dataset) -> dict[str, Figure]:
    """Time and memory against length."""
    from experiments.plots.efficiency import figure_efficiency

    return {f"{measure}.png": figure_efficiency(ds, measure) for measure in ("seconds", "memory")}
