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
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from experiments.matching import chosen
from particles.arrays import count, positive

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure
    from torch import Tensor

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

    if config.device != "cpu" and not torch.cuda.is_available():
        raise ValueError(f"device must be one that is here, got {config.device!r}: torch finds no GPU; cpu works everywhere")
    mode, length = unit["mode"], unit["length"]
    torch.manual_seed(0)
    calls, kept = _decoding(config, length, unit["seed"]) if mode == "decoding" else _calls(config, mode, length, unit["seed"])
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


def _calls(config: Config, mode: str, length: int, seed: int) -> tuple[Calls, dict[str, float]]:
    """One pass of each attention over the same inputs."""
    import torch

    causal, training = mode.endswith("causal"), mode.startswith("training")
    qkv = [part.requires_grad_(training) for part in _inputs(config, length, seed)]

    def call(attend: Callable[..., Tensor], inputs: list[Tensor]) -> None:
        if training:
            torch.autograd.grad(attend(*inputs).sum(), inputs, allow_unused=True)
            return
        with torch.no_grad():
            attend(*inputs)

    found = {name: attention(config, name, length, causal=causal) for name in rows(config, mode, length)}
    short = [part[:, :, : min(64, length)].detach().requires_grad_(training) for part in qkv]
    for attend in found.values():  # what is loaded with a first call would count as its memory
        call(attend, short)
    return {name: partial(call, attend, qkv) for name, attend in found.items()}, {}


def attention(config: Config, name: str, length: int, *, causal: bool) -> Callable[..., Tensor]:
    """A function of q, k, v (batch, head, time, dim). Its parameters are constants: gradients are those of the inputs."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    from attention.landmarks import PooledLandmarks
    from attention.linear import kernel_attention
    from attention.linformer import Linformer
    from attention.nystromformer import nystromformer_attention
    from attention.softmax_free import softmax_free_attention

    if ROWS[name].name:
        phi = _feature_map(config, name, length)
        return lambda q, k, v: kernel_attention(q, k, v, phi, is_causal=causal)
    size = ROWS[name].width * config.dim
    pool = PooledLandmarks(max(1, length // size))
    if name == "soft":
        return lambda q, k, v: softmax_free_attention(q, v, pool(q)[0])
    if name == "nystromformer":
        return lambda q, k, v: nystromformer_attention(q, k, v, pool(q)[0], pool(k)[0])
    if name == "linformer":
        return Linformer(length, min(size, length), heads=config.heads).requires_grad_(False).to(config.device)
    if name == MATRIX:
        mask = torch.ones(length, length, dtype=torch.bool, device=config.device).tril() if causal else None
        return lambda q, k, v: _by_matrix(q, k, v, mask)
    return lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=causal)


def _by_matrix(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(~mask[: q.shape[2], : k.shape[2]], -np.inf)
    return scores.softmax(-1) @ v


def _feature_map(config: Config, name: str, length: int) -> Any:
    import torch

    from attention.feature_map import feature_map

    row, generator = ROWS[name], torch.Generator().manual_seed(0)
    options: dict[str, Any] = {"horizon": length + 1} if row.name == "cosformer" else {}
    phi = feature_map(row.name, dim=config.dim, n_features=row.width * config.dim, heads=config.heads, generator=generator, **options)
    return phi.requires_grad_(False).to(config.device)


def _inputs(config: Config, length: int, seed: int) -> list[Tensor]:
    """q, k and v, N(0, 1/4) each."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    shape = (config.batch_size, config.heads, length, config.dim)
    return [0.5 * torch.randn(*shape, generator=generator).to(config.device) for _ in range(3)]


def _decoding(config: Config, length: int, seed: int) -> tuple[Calls, dict[str, float]]:
    """One more token after `length`, and MiB that are kept between two tokens."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    from attention.linear import kernel_attention

    q, k, v = _inputs(config, length + 1, seed)
    token = [part[:, :, length:] for part in (q, k, v)]
    calls: Calls = {SOFTMAX: torch.no_grad()(lambda: scaled_dot_product_attention(token[0], k, v))}
    kept = {SOFTMAX: _mib(k, v)}
    for name in rows(config, "decoding", length):
        if ROWS[name].name:
            phi = _feature_map(config, name, length)
            with torch.no_grad():
                state = kernel_attention(q[:, :, :length], k[:, :, :length], v[:, :, :length], phi, is_causal=True, return_state=True)[1]
            calls[name] = partial(_token, token, phi, state)
            kept[name] = _mib(*(part for part in state if torch.is_tensor(part)))
    for call in calls.values():
        call()
    return calls, kept


def _token(token: list[Tensor], phi: Any, state: Any) -> Any:
    """One more token from a state."""
    import torch

    from attention.linear import kernel_attention

    with torch.no_grad():
        return kernel_attention(token[0], token[1], token[2], phi, is_causal=True, state=state, return_state=True)


def _mib(*tensors: Tensor) -> float:
    return sum(part.numel() * part.element_size() for part in tensors) / 2**20


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
