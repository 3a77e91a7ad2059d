"""What the times and memories of `efficiency` say: exponents, where each attention overtakes SDPA, the paper's table beside ours."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from experiments.efficiency import MATRIX, MODES, REDUCED, SOFTMAX
from experiments.metrics import Estimate
from experiments.report import Section, Table
from particles.arrays import as_float

PAPER = {  # Flexformer, retrieval at N = 4000: memory [GB], iterations per second
    MATRIX: (21.2, 7), "linear": (2.2, 22), "performer": (2.4, 21), "rfa": (2.5, 19), "cosformer": (2.2, 22), "hedgehog": (2.8, 18),
    "polaformer": (3.0, 16), "flexformer-nonstationary": (3.4, 18),
}  # fmt: skip
PAPER_LENGTH = 4000
LINEAR = 1.25  # the largest exponent that is taken for linear


def exponent(lengths: Any, values: np.ndarray, *, level: float = 0.95) -> Estimate:
    """Slope of log values (length, seed) against log length by least squares, with Student's interval of its points' scatter.

    Only the upper half of the lengths counts, where fixed costs matter least. NaN where fewer than two of these lengths have values.
    """
    lengths, values = np.asarray(as_float(lengths, "lengths"), float), np.asarray(values, float)
    if values.ndim != 2 or len(values) != len(lengths):
        raise ValueError(f"values must be (length, seed) for {len(lengths)} lengths, got {values.shape}")
    upper = np.argsort(lengths)[len(lengths) // 2 :]
    x = np.repeat(np.log(lengths[upper]), values.shape[1])
    y = np.log(np.where(values[upper] > 0, values[upper], np.nan)).ravel()
    x, y = x[np.isfinite(y)], y[np.isfinite(y)]
    if len(np.unique(x)) < 2:
        return Estimate(math.nan, math.nan, math.nan)
    centred = x - x.mean()
    slope = float(centred @ y / (centred @ centred))
    if len(x) < 3:
        return Estimate(slope, -math.inf, math.inf)
    rest = y - y.mean() - slope * centred
    half = _student(level, len(x) - 2) * math.sqrt(rest @ rest / (len(x) - 2) / (centred @ centred))
    return Estimate(slope, slope - half, slope + half)


def crossover(lengths: Any, own: np.ndarray, other: np.ndarray) -> float:
    """The length from which `own` (length,) stays below `other`, by interpolation of the logarithm of their ratio.

    0 where it is below at every length, infinity where it is not at the last; NaN without common lengths.
    """
    order = np.argsort(lengths)
    n, ratio = np.asarray(lengths, float)[order], np.log(np.asarray(own, float) / np.asarray(other, float))[order]
    n, ratio = n[np.isfinite(ratio)], ratio[np.isfinite(ratio)]
    if not len(ratio):
        return math.nan
    above = np.flatnonzero(ratio >= 0)
    if not len(above):
        return 0.0
    last = above[-1]
    if last == len(ratio) - 1:
        return math.inf
    share = ratio[last] / (ratio[last] - ratio[last + 1])
    return float(math.exp(np.log(n[last]) + share * (np.log(n[last + 1]) - np.log(n[last]))))


class _Mode(NamedTuple):
    """One mode as arrays: lengths in increasing order, and by row (length, seed) of seconds and MiB."""

    lengths: np.ndarray
    seconds: dict[str, np.ndarray]
    memory: dict[str, np.ndarray]


def _modes(ds: xr.Dataset) -> dict[str, _Mode]:
    ds = ds.sortby("length")
    tables = [ds[name].transpose("mode", "row", "length", "seed").values for name in ("seconds", "memory")]
    by_row = [[dict(zip(ds["row"].values, rows, strict=True)) for rows in table] for table in tables]
    found = {str(mode): _Mode(ds["length"].values, *rows) for mode, *rows in zip(ds["mode"].values, *by_row, strict=True)}
    return {mode: found[mode] for mode in MODES if mode in found}


def section(ds: xr.Dataset) -> Section:
    """One table a mode, the paper's table beside ours, and what they show."""
    modes = _modes(ds)
    tables = [_mode_table(mode, name) for name, mode in modes.items()]
    if "training" in modes:
        tables.append(_paper_table(modes["training"]))
    text = (
        f"Time and memory of attention alone against the length of the sequence. {ds.attrs['finished']} of {ds.attrs['planned']} units "
        f"(a mode, a length and a seed) ran. Reduced: {REDUCED['cpu']}.\n\n"
        "All attentions of a unit take turns; a time is the least of its rounds, in processor seconds on one thread, mean over seeds. "
        "An exponent is the slope of log time against log length over the upper half of the lengths, with a 95 % interval. "
        "softmax is torch's scaled_dot_product_attention (SDPA), softmax, matrix its definition."
    )
    pictures = {"seconds.png": "Time against length; slopes are those of the upper half.", "memory.png": "Memory against length."}
    return Section("Efficiency", text, tables, pictures, [_verdict(mode, name) for name, mode in modes.items()])


def _mode_table(mode: _Mode, name: str) -> Table:
    last, reference = int(mode.lengths[-1]), _mean(mode.seconds[SOFTMAX])
    rows = []
    for row, seconds in mode.seconds.items():
        if not np.isfinite(seconds).any():
            continue
        time, room = _mean(seconds), _mean(mode.memory[row])
        common = mode.lengths[np.isfinite(time) & np.isfinite(reference)]
        overtakes = "" if row == SOFTMAX else _length(crossover(mode.lengths, time, reference), common)
        cells = [_interval(exponent(mode.lengths, seconds)), _interval(exponent(mode.lengths, mode.memory[row]))]
        rows.append([row, *cells, *map(_number, (1e3 * time[-1], reference[-1] / time[-1], room[-1])), overtakes])
    header = ["attention", "time exponent", "memory exponent", f"ms at {last}", "speed to SDPA", f"MiB at {last}", "faster than SDPA from"]
    notes = ["memory of decoding is what is kept between two tokens"] if name == "decoding" else []
    return Table(name.capitalize(), header, rows, notes)


def _paper_table(mode: _Mode) -> Table:
    """Both as multiples of softmax with its matrix, at our length nearest to the paper's."""
    at = int(np.argmin(np.abs(mode.lengths - PAPER_LENGTH)))
    time, room = ({name: _mean(part[name])[at] for name in PAPER} for part in (mode.seconds, mode.memory))
    rows = []
    for name, (gigabytes, rate) in PAPER.items():
        theirs = [f"{gigabytes:.1f}", f"{rate}", f"{rate / PAPER[MATRIX][1]:.2f}", f"{gigabytes / PAPER[MATRIX][0]:.2f}"]
        ours = [_number(room[name]), _number(1 / time[name]), _number(time[MATRIX] / time[name]), _number(room[name] / room[MATRIX])]
        rows.append([name, *theirs, *ours])
    header = ["attention", "paper GB", "it/s", "speed ratio", "memory ratio", "ours MiB", "it/s", "speed ratio", "memory ratio"]
    note = f"at {mode.lengths[at]}; ratios to softmax by its matrix"
    return Table(
        "Flexformer's efficiency table", header, rows,
        [f"paper: the whole model on retrieval at 4000 tokens, one RTX 5090; ours: attention alone, training, {note}"],
    )  # fmt: skip


def _verdict(mode: _Mode, name: str) -> str:
    """Which attentions are linear in the length, by their interval: at most 1.25; SDPA beside them."""
    found = {row: exponent(mode.lengths, seconds) for row, seconds in mode.seconds.items()}
    known = {row: value for row, value in found.items() if math.isfinite(value.high) and row not in (SOFTMAX, MATRIX)}
    if not known or not math.isfinite(found[SOFTMAX].value):
        return f"{name}: too few lengths or seeds for intervals of exponents, so nothing is said about which are linear."
    linear = [row for row, value in known.items() if value.high <= LINEAR]
    rest = [f"{row} {value.value:.2f}" for row, value in known.items() if row not in linear]
    ends = {row: crossover(mode.lengths, _mean(mode.seconds[row]), _mean(mode.seconds[SOFTMAX])) for row in known}
    first = min(ends, key=lambda row: (math.isnan(ends[row]), ends[row]))
    line = f"{name}: SDPA grows with exponent {found[SOFTMAX].value:.2f}; {len(linear)} of {len(known)} others are at most linear "
    line += f"(upper end of the interval at most {LINEAR})" + (f", not shown for {', '.join(rest)}" if rest else "")
    end = "no attention overtakes SDPA"
    if math.isfinite(ends[first]):
        end = f"{first} overtakes SDPA first, at {_length(ends[first], mode.lengths)} tokens"
    return f"{line}; {end}."


def _mean(values: np.ndarray) -> np.ndarray:
    """(length, seed) to (length,) over the seeds that ran; NaN where none did."""
    finite = np.isfinite(values)
    total, n = np.where(finite, values, 0.0).sum(-1), finite.sum(-1)
    return np.where(n > 0, total / np.maximum(n, 1), np.nan)


def _length(value: float, lengths: np.ndarray) -> str:
    if math.isnan(value):
        return "-"
    if value == 0:
        return f"below {int(lengths.min())}"
    if math.isinf(value):
        return f"not up to {int(lengths.max())}"
    return f"about {value:.2g}" if value < 100 else f"about {round(value, -2):.0f}"


def _interval(value: Estimate) -> str:
    if not math.isfinite(value.value):
        return "-"
    return f"{value.value:z.2f}" + (f" ({value.low:z.2f} to {value.high:z.2f})" if math.isfinite(value.high) else "")


def _number(value: Any) -> str:
    return f"{float(value):.3g}" if math.isfinite(value) else "-"


def _student(level: float, freedom: int) -> float:
    from scipy import special

    return float(special.stdtrit(freedom, 0.5 + level / 2))
