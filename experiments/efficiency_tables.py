"""What the times and memories of `efficiency` say: exponents, where each attention overtakes SDPA, the paper's table beside ours."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr

from experiments.efficiency import MATRIX, MODES, REDUCED, ROWS, SOFTMAX
from experiments.metrics import Estimate
from experiments.report import Section, Table
from particles.arrays import as_float

PAPER = {  # Flexformer, retrieval at N = 4000: memory [GB], iterations per second
    MATRIX: (21.2, 7), "linear": (2.2, 22), "performer": (2.4, 21), "rfa": (2.5, 19), "cosformer": (2.2, 22), "hedgehog": (2.8, 18),
    "polaformer": (3.0, 16), "flexformer-nonstationary": (3.4, 18),
}  # fmt: skip
PAPER_LENGTH = 4000


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


def section(ds: xr.Dataset) -> Section:
    """One table a mode, the paper's table beside ours, and what they show."""
    seconds, memory = (ds[name].transpose("mode", "length", "row", "seed") for name in ("seconds", "memory"))
    modes = [mode for mode in MODES if mode in ds["mode"].values]
    tables = [_mode_table(seconds.sel(mode=mode), memory.sel(mode=mode), mode) for mode in modes]
    if "training" in modes:
        tables.append(_paper_table(seconds.sel(mode="training"), memory.sel(mode="training")))
    text = (
        f"Time and memory of attention alone against the length of the sequence. {ds.attrs['finished']} of {ds.attrs['planned']} units "
        f"(a mode, a length and a seed) ran. Reduced: {REDUCED['cpu']}.\n\n"
        "All attentions of a unit take turns; a time is the least of its rounds, in processor seconds on one thread, mean over seeds. "
        "An exponent is the slope of log time against log length over the upper half of the lengths, with a 95 % interval."
    )
    pictures = {"seconds.png": "Time against length; slopes are those of the upper half.", "memory.png": "Memory against length."}
    return Section("Efficiency", text, tables, pictures, [line for mode in modes for line in _verdicts(seconds.sel(mode=mode), mode)])


def _mode_table(seconds: xr.DataArray, memory: xr.DataArray, mode: str) -> Table:
    lengths = seconds["length"].values
    last, reference = int(lengths.max()), seconds.sel(row=SOFTMAX)
    rows = []
    for name in ROWS:
        time, room = seconds.sel(row=name), memory.sel(row=name)
        if not np.isfinite(time).any():
            continue
        faster = _mean(reference.sel(length=last)) / _mean(time.sel(length=last))
        overtakes = "" if name == SOFTMAX else _length(crossover(lengths, _mean(time), _mean(reference)), lengths)
        cells = [_interval(exponent(lengths, time.values)), _interval(exponent(lengths, room.values))]
        amounts = [_number(1e3 * _mean(time.sel(length=last))), _number(faster), _number(_mean(room.sel(length=last)))]
        rows.append([name, *cells, *amounts, overtakes])
    header = ["attention", "time exponent", "memory exponent", f"ms at {last}", "speed to SDPA", f"MiB at {last}", "faster than SDPA from"]
    notes = ["memory of decoding is what is kept between two tokens"] if mode == "decoding" else []
    return Table(mode.capitalize(), header, rows, notes)


def _paper_table(seconds: xr.DataArray, memory: xr.DataArray) -> Table:
    """Both as multiples of softmax with its matrix, at our length nearest to the paper's."""
    length = int(seconds["length"].values[np.argmin(np.abs(seconds["length"].values - PAPER_LENGTH))])
    time, room = ({name: _mean(part.sel(length=length, row=name)) for name in PAPER} for part in (seconds, memory))
    rows = []
    for name, (gigabytes, rate) in PAPER.items():
        theirs = [f"{gigabytes:.1f}", f"{rate}", f"{rate / PAPER[MATRIX][1]:.2f}", f"{gigabytes / PAPER[MATRIX][0]:.2f}"]
        ours = [_number(room[name]), _number(1 / time[name]), _number(time[MATRIX] / time[name]), _number(room[name] / room[MATRIX])]
        rows.append([name, *theirs, *ours])
    header = ["attention", "paper GB", "it/s", "speed ratio", "memory ratio", "ours MiB", "it/s", "speed ratio", "memory ratio"]
    note = (
        f"paper: the whole model on retrieval at 4000 tokens, one RTX 5090; ours: attention alone, training, at {length}; ratios to softmax"
    )
    return Table("Flexformer's efficiency table", header, rows, [note])


def _verdicts(seconds: xr.DataArray, mode: str) -> list[str]:
    """Which attentions are linear in the length, by their interval: at most 1.25; SDPA beside them."""
    lengths, found = (
        seconds["length"].values,
        {name: exponent(seconds["length"].values, seconds.sel(row=name).values) for name in ROWS},
    )
    known = {name: value for name, value in found.items() if math.isfinite(value.high) and name not in (SOFTMAX, MATRIX)}
    if not known or not math.isfinite(found[SOFTMAX].value):
        return [f"{mode}: too few lengths or seeds for exponents."]
    linear = [name for name, value in known.items() if value.high <= 1.25]
    rest = [f"{name} {value.value:.2f}" for name, value in known.items() if name not in linear]
    reference = _mean(seconds.sel(row=SOFTMAX))
    ends = {name: crossover(lengths, _mean(seconds.sel(row=name)), reference) for name in known}
    first = min(ends, key=lambda name: (math.isnan(ends[name]), ends[name]))
    line = f"{mode}: SDPA grows with exponent {found[SOFTMAX].value:.2f}; {len(linear)} of {len(known)} others are at most linear "
    line += "(upper end of the interval at most 1.25)" + (f", not shown for {', '.join(rest)}" if rest else "")
    end = (
        "no attention overtakes SDPA"
        if not math.isfinite(ends[first])
        else f"{first} overtakes SDPA first, {_length(ends[first], lengths)}"
    )
    return [f"{line}; {end}."]


def _mean(values: xr.DataArray) -> np.ndarray:
    """Over the seeds that ran."""
    finite = values.notnull()
    return (values.fillna(0.0).sum("seed") / finite.sum("seed").where(finite.any("seed"))).values


def _length(value: float, lengths: np.ndarray) -> str:
    if math.isnan(value):
        return "-"
    if value == 0:
        return f"below {int(lengths.min())}"
    return f"beyond {int(lengths.max())}" if math.isinf(value) else f"about {value:.2g}" if value < 100 else f"about {round(value, -2):.0f}"


def _interval(value: Estimate) -> str:
    if not math.isfinite(value.value):
        return "-"
    return f"{value.value:.2f}" + (f" ({value.low:.2f} to {value.high:.2f})" if math.isfinite(value.high) else "")


def _number(value: Any) -> str:
    return f"{float(value):.3g}" if math.isfinite(value) else "-"


def _student(level: float, freedom: int) -> float:
    from scipy import special

    return float(special.stdtrit(freedom, 0.5 + level / 2))
