"""Rows of a result compared in pairs, with a correction for how many comparisons are made.

An experiment's Dataset holds for every row and seed which test examples are right (or any loss of an example). `compare_rows` takes pairs
of rows, uses the seeds that both have, and tests each difference against seeds and examples; `experiments.paired` has the tests alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import xarray as xr

from experiments.paired import crossed, equivalence
from particles.arrays import as_real, positive


def holm(p: Any) -> np.ndarray:
    """p-values (n,) raised so that the chance of any false alarm among them keeps to a level (Holm 1979). NaN stay, and do not count."""

    def raised(known: np.ndarray) -> np.ndarray:
        order = np.argsort(known)
        stepped = np.maximum.accumulate(known[order] * np.arange(len(known), 0, -1))
        return np.minimum(stepped, 1.0)[np.argsort(order)]

    return _of_known(raised, p)


def benjamini_hochberg(p: Any) -> np.ndarray:
    """p-values (n,) raised so that the expected share of false alarms among all alarms keeps to a level (Benjamini and Hochberg 1995).

    For tests that are independent or positively dependent. NaN stay, and do not count.
    """
    from scipy.stats import false_discovery_control

    return _of_known(false_discovery_control, p)


CORRECTIONS: dict[str, Callable[[Any], np.ndarray]] = {"holm": holm, "benjamini-hochberg": benjamini_hochberg, "none": np.asarray}


def compare_rows(
    dataset: xr.Dataset,
    pairs: Iterable[tuple[Any, Any]],
    *,
    variable: str = "correct",
    along: str = "row",
    correction: str = "holm",
    delta: float | None = None,
    level: float = 0.95,
) -> xr.Dataset:
    """Differences first - second of pairs of rows; all pairs of one question belong in one call, as they are corrected together.

    Parameters
    ----------
    dataset : `variable` over (`along`, seed, example): 1 and 0 for right and wrong examples, or a loss of each. A unit that did not run is
        NaN throughout; examples that are NaN in every unit of both rows (another task's) are not there. One task in a call: where
        several make one question, join their p and correct them with `holm`.
    pairs : values of `along`.
    correction : "holm", "benjamini-hochberg" or "none".
    delta : if given, also test that a difference is smaller than this, either way.

    Returns
    -------
    Dataset over pair, named "first - second" with coordinates first and second: difference, low and high (of this level, not corrected),
    p, p_corrected, n_seeds and n_examples that both rows have; with delta p_equivalent. p is that of `paired.crossed`. A pair with one
    common seed has a difference and NaN for the rest, as nothing tells what training again would change; one without any is NaN
    throughout. Attributes: variable, correction, level, delta.

    Raises
    ------
    ValueError
        For rows that are not there, a row against itself, other dimensions, or a unit with gaps.
    """
    pairs = list(pairs)
    values = _checked(dataset, pairs, variable, along)
    if correction not in CORRECTIONS:
        raise ValueError(f"correction must be one of {list(CORRECTIONS)}, got {correction!r}")
    if delta is not None:
        positive(delta, "delta")
    rows = [_compared(*(values.sel({along: name}).values for name in pair), level=level, delta=delta) for pair in pairs]
    found = xr.Dataset({name: ("pair", [row[name] for row in rows]) for name in rows[0]})
    found["p_corrected"] = ("pair", CORRECTIONS[correction](found["p"].values))
    first, second = zip(*pairs, strict=True)
    names = {"pair": [f"{a} - {b}" for a, b in pairs], "first": ("pair", list(first)), "second": ("pair", list(second))}
    asked = {"variable": variable, "correction": correction, "level": level} | ({} if delta is None else {"delta": delta})
    return found.assign_coords(names).assign_attrs(asked)


def best_row(dataset: xr.Dataset, names: Iterable[str], score: str, *, sign: int = 1) -> str | None:
    """The row with the largest mean `score` over seeds of a Dataset of one task, of the `names` that ran; None if none did.

    score : over (row, seed), of validation data, so that test data judge a row that they did not choose; of further dimensions, such as
        epochs, the best counts. sign : -1 where less is better.
    """
    values = sign * dataset[score]
    means = values.max([dim for dim in values.dims if dim not in ("row", "seed")]).mean("seed")
    known = {name: float(means.sel(row=name)) for name in names if name in dataset["row"].values}
    known = {name: value for name, value in known.items() if not math.isnan(value)}
    return max(known, key=known.__getitem__) if known else None


def _compared(first: np.ndarray, second: np.ndarray, *, level: float, delta: float | None) -> dict[str, float]:
    """One pair, (seed, example) each."""
    here = ~np.isnan(first).all(1) & ~np.isnan(second).all(1)
    first, second = first[here], second[here]
    there = ~(np.isnan(first).all(0) & np.isnan(second).all(0))
    first, second = first[:, there], second[:, there]
    if np.isnan(first).any() or np.isnan(second).any():
        raise ValueError("dataset must have all examples of a unit that ran, got units with gaps or of different examples")
    sizes = {"n_seeds": int(here.sum()), "n_examples": int(there.sum())}
    if not first.size:
        return dict.fromkeys(("difference", "low", "high", "p", *(["p_equivalent"] if delta else [])), math.nan) | sizes
    found = crossed(first - second, level=level)
    low, high = (math.nan, math.nan) if len(first) == 1 else (found.low, found.high)
    numbers = {"difference": found.value, "low": low, "high": high, "p": found.p}
    return numbers | ({} if delta is None else {"p_equivalent": equivalence(found, delta)}) | sizes


def _checked(dataset: xr.Dataset, pairs: list[tuple[Any, Any]], variable: str, along: str) -> xr.DataArray:
    """The variable over (along, seed, example) as float64."""
    held = {name: dataset[name].dims for name in getattr(dataset, "data_vars", ())}
    if set(held.get(variable, ())) != {along, "seed", "example"}:
        raise ValueError(f"dataset must hold {variable} ({along}, seed, example), got {held or dataset!r}")
    values = dataset[variable].transpose(along, "seed", "example").astype(float)
    as_real(values.values, variable)
    known = values[along].values.tolist()
    wrong = [pair for pair in pairs if len(pair) != 2 or pair[0] == pair[1] or not set(pair) <= set(known)]
    if not pairs or wrong:
        raise ValueError(f"pairs must be (first, second) of different values of {along}, {known}, got {wrong or pairs}")
    return values


def _of_known(correct: Callable[[np.ndarray], np.ndarray], p: Any) -> np.ndarray:
    """`correct` of the p-values that are numbers; NaN elsewhere."""
    p = np.asarray(as_real(p, "p"), dtype=float)
    known = ~np.isnan(p)
    if p.ndim != 1 or not ((p[known] >= 0) & (p[known] <= 1)).all():
        raise ValueError(f"p must have shape (n,) and values in [0, 1] or NaN, got {p!r}")
    corrected = np.full(p.shape, np.nan)
    if known.any():
        corrected[known] = correct(p[known])
    return corrected
