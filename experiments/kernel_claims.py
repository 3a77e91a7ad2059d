"""Where the attention kernel's shape matters: each claim about in-context matching and recall as a rule, and what was measured.

A bar holds or fails by its rule alone; accuracies are percent, means over seeds, differences paired by seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr

from experiments.metrics import mean_interval
from experiments.report import Section, Table, signed, spread

WIDTHS = ("end to end", "end to end, half width", "end to end, quarter width")
NONE_BETTER = 2.0  # points, or standard deviations, within which a control counts as equal


class Bar(NamedTuple):
    """One rule: `claim` in words, `value` the measured number with its 95 % interval (low, high), `rule` the bar, `holds`."""

    claim: str
    value: float
    low: float
    high: float
    rule: str
    holds: bool


def matching_bars(ds: xr.Dataset) -> list[Bar]:
    """Bars on the in-context matching table; only those whose tasks and methods the Dataset holds."""
    found: list[Bar | None] = [_least(ds, "phase", name, 82) for name in (*WIDTHS[:1], "align, unfreeze")]
    found += [_most(ds, "phase", name, 33) for name in ("softmax", "fixed", "favor", "shuffled")]
    found += [_least(ds, "multi", "align, unfreeze", 79), _most(ds, "multi", "fixed", 33), _least(ds, "multi", "align", 73)]
    found += gains(ds)
    found += [_least(ds, "xor2", "phase, align, unfreeze", 82), _least(ds, "iso", "softmax", 88)]
    found += [_equal(ds, "iso", "align, unfreeze", "end to end")]
    return [bar for bar in found if bar is not None]


def gains(ds: xr.Dataset) -> list[Bar]:
    """What aligning first adds to training on ring3: over the best start of training alone, and over alignment to shuffled labels."""
    pairs = [_gain(ds, "ring3", "align, unfreeze", names, 5) for names in (WIDTHS, ("shuffled, unfreeze",))]
    phases = (("phase, end to end", "phase, end to end, half width"), ("phase, shuffled, unfreeze",))
    pairs += [_gain(ds, "ring3", "phase, align, unfreeze", names, 5) for names in phases]
    undivided = (tuple(f"{name}, undivided" for name in WIDTHS), ("shuffled, unfreeze, undivided",))
    pairs += [_gain(ds, "ring3", "align, unfreeze, undivided", names, 5) for names in undivided]
    pairs += [_gain(ds, "ring3", "known subspace, end to end", WIDTHS, 5)]  # what the best start of all would gain
    return [bar for bar in pairs if bar is not None]


def recall_bars(ds: xr.Dataset) -> list[Bar]:
    """Bars on associative recall."""
    ds = ds.expand_dims(task=["recall"])
    found: list[Bar | None] = [_least(ds, "recall", name, 96) for name in ("flexformer, output norm", "flexformer, output norm, learned")]
    found += [_most(ds, "recall", name, 85) for name in ("favor", "favor, learned", "softmaxfeat", "softmaxfeat, learned")]
    found += [_most(ds, "recall", "flexformer, literal", 20), _no_effect(ds, "softmaxfeat, align", "softmaxfeat, shuffled")]
    return [bar for bar in found if bar is not None]


def bars_table(title: str, bars: Sequence[Bar]) -> Table:
    """The bars as a table."""
    rows = [[bar.claim, measured(bar, ".1f"), bar.rule, "yes" if bar.holds else "no"] for bar in bars]
    return Table(
        title, ["claim", "measured (95 % interval)", "bar", "does the mean reach it"], rows, ["accuracy in percent, differences in points"]
    )


def measured(bar: Bar, form: str) -> str:
    """A bar's number with its interval; of one seed alone."""
    ends = f"({bar.low:{form}} to {bar.high:{form}})" if np.isfinite(bar.low) else "(one seed)"
    return f"{bar.value:{form}} {ends}"


def recall_section(ds: xr.Dataset) -> Section:
    """Associative recall, row by row."""
    rows = []
    for method in ds["method"].values:
        part = ds.sel({"method": method})
        numbers = [spread(part["accuracy"], 100), spread(part["non_positive"], 100), spread(part["effective_rank"])]
        rows.append(
            [str(method), *numbers, spread(part["dead"], 100), spread(part["state"].mean(keepdims=True), digits=0), spread(part["seconds"])]
        )
    header = ["method", "accuracy %", "sums <= 0 %", "rank", "dead %", "state", "seconds"]
    notes = [
        f"seeds: {ds.sizes['seed']}, mean ± standard deviation; sums <= 0: share of queries whose kernel sum is not positive",
        "rank: effective rank of the queries' features; dead: features that hardly vary; state: numbers kept, whatever the length",
    ]
    tables = [Table("Associative recall", header, rows, notes), bars_table("Claims", recall_bars(ds))]
    text = (
        "Sixteen key-value pairs, then the keys again: how many can a state of fixed size hold? Positive features cannot be orthogonal "
        "unless their supports are disjoint; signed ones can, if nothing is divided by their sum."
    )
    return Section("Associative recall", text, tables, {"recall.png": "Accuracy: a dot for each seed, a bar at the mean."})


def _accuracy(ds: xr.Dataset, task: str, method: str) -> np.ndarray | None:
    """Percent (seed,), NaN where a seed did not run, or None where none did."""
    if task not in ds["task"].values or method not in ds["method"].values:
        return None
    values = 100 * ds["accuracy"].sel({"task": task, "method": method}).values
    return values if np.isfinite(values).any() else None


def bar_of(claim: str, values: np.ndarray, rule: str, passes: Callable[[float], bool]) -> Bar | None:
    """The bar on the mean of the values (seed,) that are there; None without one."""
    values = values[np.isfinite(values)]
    return Bar(claim, *mean_interval(values), rule, passes(float(values.mean()))) if values.size else None


def _least(ds: xr.Dataset, task: str, method: str, bar: float) -> Bar | None:
    values = _accuracy(ds, task, method)
    return None if values is None else bar_of(f"{task}: {method}", values, f"at least {bar:g}", lambda mean: mean >= bar)


def _most(ds: xr.Dataset, task: str, method: str, bar: float) -> Bar | None:
    values = _accuracy(ds, task, method)
    return None if values is None else bar_of(f"{task}: {method}", values, f"at most {bar:g}", lambda mean: mean <= bar)


def _gain(ds: xr.Dataset, task: str, method: str, rivals: Sequence[str], bar: float) -> Bar | None:
    """The gain over the best of the rivals by mean."""
    first, others = _accuracy(ds, task, method), {name: _accuracy(ds, task, name) for name in rivals}
    present = {name: values for name, values in others.items() if values is not None}
    if first is None or len(present) < len(rivals):
        return None
    best = max(present, key=lambda name: float(np.nanmean(present[name])))
    return bar_of(f"{task}: {method} minus {best}", first - present[best], f"at least {signed(bar, 0)}", lambda mean: mean >= bar)


def _equal(ds: xr.Dataset, task: str, method: str, control: str) -> Bar | None:
    first, second = _accuracy(ds, task, method), _accuracy(ds, task, control)
    if first is None or second is None:
        return None
    rule = f"within {NONE_BETTER:g}: no claim"
    return bar_of(f"{task}: {method} minus {control}", first - second, rule, lambda mean: abs(mean) <= NONE_BETTER)


def _no_effect(ds: xr.Dataset, method: str, control: str) -> Bar | None:
    """Phase A against its shuffled control: no effect is claimed unless it is ahead by two of its own standard deviations."""
    first, second = _accuracy(ds, "recall", method), _accuracy(ds, "recall", control)
    if first is None or second is None:
        return None
    first, second = (values[np.isfinite(first - second)] for values in (first, second))
    if len(first) < 2:
        return None
    limit = NONE_BETTER * float(second.std(ddof=1))
    return bar_of(f"recall: {method} minus {control}", first - second, f"below {limit:.1f}: no effect shown", lambda mean: mean < limit)
