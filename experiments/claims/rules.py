"""Rules of evidence: from the Dataset of an experiment to a number with its error. A claim names one, and where its number must lie.

Every rule is a function Dataset -> Finding, or None where the Dataset lacks the rows. A *place* is a mapping of coordinates, such as
{"task": "sst2", "row": "K-elu"}; dimensions that a place leaves out are averaged, over seeds with an error. Differences are paired: the
same seed and the same test example on both sides. Only seeds that ran for every row that is compared count; nothing is filled in.

Where an experiment keeps which test examples were right, the error holds both kinds of chance, that of training (seeds) and that of
the test set (examples), by `experiments.comparisons.crossed`; elsewhere it is that over seeds alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr

from experiments.metrics import Estimate
from experiments.paired import Error, beyond, crossed, over_seeds, reach

Place = Mapping[str, Any]
UNITS = {  # score: (factor, unit)
    "accuracy": (100.0, "%"),
    "fresh_accuracy": (100.0, "%"),
    "f1": (100.0, "%"),
    "calibration_error": (100.0, "%"),
    "score": (100.0, "%"),
    "share": (100.0, "%"),
    "log_loss": (1.0, "nats"),
    "loss": (1.0, "nats"),
}
PER_EXAMPLE = {"accuracy": ("correct", "example"), "loss": ("block_loss", "block")}  # score: what is kept of each example


@dataclass(frozen=True)
class Finding:
    """A measured number, the error of each cause, its unit, and seeds (conditions, sizes) behind it.

    Without errors it is exact; of one seed an error is NaN. With `logarithmic` value and errors are those of its logarithm.
    """

    value: float
    errors: tuple[Error, ...]
    unit: str
    n: int
    note: str = ""
    logarithmic: bool = False

    @property
    def certain(self) -> bool:
        """Whether it has an interval at all."""
        return not math.isnan(reach(0.25, self.errors))

    def interval(self, level: float = 0.95) -> Estimate:
        """The number with its interval, infinite for one seed."""
        half = reach((1 - level) / 2, self.errors) if self.certain else math.inf
        ends = self.value, self.value - half, self.value + half
        return Estimate(*map(_exp, ends)) if self.logarithmic else Estimate(*ends)

    def inside(self, low: float, high: float) -> float:
        """The smallest p at which the interval of level 1 - p lies inside (low, high); 1 for none."""
        low, high = self._on_scale(low), self._on_scale(high)
        return self._p(min(self.value - low, high - self.value))

    def outside(self, low: float, high: float) -> float:
        """The smallest p at which the interval of level 1 - p is wholly below low or wholly above high; 1 for none."""
        low, high = self._on_scale(low), self._on_scale(high)
        return self._p(max(low - self.value, self.value - high))

    def _on_scale(self, limit: float) -> float:
        return (math.log(limit) if limit > 0 else -math.inf) if self.logarithmic else limit

    def _p(self, distance: float) -> float:
        return 2 * beyond(distance, self.errors) if distance > 0 and self.certain else 1.0


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


Rule = Callable[[xr.Dataset], Finding | None]


# ---- rules -------------------------------------------------------------------------------------------------------------------------------


def value(place: Place, score: str = "accuracy") -> Rule:
    """The score at a place."""
    return lambda ds: _mean(ds, score, [place], _first)


def difference(first: Place, *second: Place, score: str = "accuracy", most: bool = True, by: str = "") -> Rule:
    """The score of the first place minus the second's; of several second places the best by its mean (the least unless `most`).

    by : the score by which the best is chosen, such as one on validation data; by default `score`.
    """

    def rule(ds: xr.Dataset) -> Finding | None:
        best = _best(ds, by or score, second, most) if len(second) > 1 else second[0]
        found = None if best is None else mean_difference([(first, best)], score)(ds)
        if found is None or len(second) == 1:
            return found
        return replace(found, note="; ".join(filter(None, (f"against {_words(best or {}, second)}", found.note))))

    return rule


def mean_difference(pairs: Sequence[tuple[Place, Place]], score: str = "accuracy") -> Rule:
    """The mean over pairs of the score of the first minus that of the second; all pairs have the same seeds and examples."""
    places = [place for pair in pairs for place in pair]

    def rule(ds: xr.Dataset) -> Finding | None:
        found = _mean(ds, score, places, lambda *of: np.mean(of[::2], 0) - np.mean(of[1::2], 0))
        return None if found is None else replace(found, unit="points" if found.unit == "%" else found.unit)

    return rule


def ratio(pairs: Sequence[tuple[Place, Place]], score: str = "seconds") -> Rule:
    """The score of the first over that of the second, as the mean of the logarithm over pairs and seeds."""
    places = [place for pair in pairs for place in pair]

    def rule(ds: xr.Dataset) -> Finding | None:
        found = _mean(ds, score, places, lambda *of: np.mean(np.log(of[::2]), 0) - np.mean(np.log(of[1::2]), 0), examples=False, scale=1.0)
        return None if found is None else replace(found, unit="times", logarithmic=True)

    return rule


def exponent(place: Place, axis: str, score: str = "seconds", least: float = 0.0, sizes: str = "") -> Rule:
    """The exponent gamma of score ~ axis^gamma over values of the axis from `least` on, by least squares in logarithms.

    `sizes` names the score that holds the values of an axis that has none. The error is that over the seeds, or of the fit where
    there is one seed only; three sizes at least.
    """

    def rule(ds: xr.Dataset) -> Finding | None:
        values = _at(ds, score, place)
        if values is None or axis not in values.dims:
            return None
        values = values.mean([dim for dim in values.dims if dim not in (axis, "seed")], skipna=False)
        rows = values.transpose(..., axis).values.reshape(-1, values.sizes[axis])
        at = _at(ds, sizes, place) if sizes else ds[axis]
        if at is None or (axis not in ds.coords and not sizes):
            return None
        known = at.mean([dim for dim in at.dims if dim != axis]).values
        return _exponent(known[known >= least], rows[~np.isnan(rows).all(1)][:, known >= least])

    return rule


def worst(score: str, place: Place | None = None, most: bool = True) -> Rule:
    """The largest (smallest unless `most`) of the scores at a place, for what must hold everywhere; an exact number, no chance in it."""

    def rule(ds: xr.Dataset) -> Finding | None:
        values = _at(ds, score, place or {})
        known = np.empty(0) if values is None else values.values[np.isfinite(values.values)]
        if not known.size:
            return None
        return Finding(float(known.max() if most else known.min()), (), UNITS.get(score, (1.0, ""))[1], known.size)

    return rule


# ---- how a mean and its error come about -------------------------------------------------------------------------------------------------


def _mean(
    ds: xr.Dataset,
    score: str,
    places: Sequence[Place],
    combine: Callable[..., np.ndarray],
    examples: bool = True,
    scale: float | None = None,
) -> Finding | None:
    """A combination of the score at places, over seeds and examples; the mean of equally weighted strata of all other dimensions."""
    tables = [_by_stratum(ds, score, place, examples) for place in places]
    if any(table is None for table in tables):
        return None
    combined = combine(*(table for table in tables if table is not None))
    known = [part for part in combined if not np.isnan(part).all()]
    if not known:
        return None
    factor, unit = UNITS.get(score, (1.0, ""))
    factor = factor if scale is None else scale
    note = "" if len(known) == len(combined) else f"mean of {len(known)} of {len(combined)}, the others did not run"
    if combined.shape[2] == 1:  # seeds are the same in every stratum, and strata of a seed may have data in common
        known = [np.mean(known, 0)]
    found = [stratum for stratum in map(_stratum, known) if stratum is not None]
    return _joined(found, factor, unit, note) if found else None


def _stratum(values: np.ndarray) -> Finding | None:
    """The mean of values (seed, example), with one example where only its mean is known."""
    values = values[~np.isnan(values).all(1)]
    values = values[:, ~np.isnan(values).any(0)]
    if not values.size:
        return None
    return Finding(float(values.mean()), crossed(values).errors, "", len(values))


def _joined(known: Sequence[Finding], factor: float, unit: str, note: str) -> Finding:
    """The mean of strata with independent errors, such as tasks."""
    each = factor / len(known)
    errors = tuple(error.times(each) for part in known for error in part.errors)
    return Finding(each * sum(part.value for part in known), errors, unit, min(part.n for part in known), note)


def _by_stratum(ds: xr.Dataset, score: str, place: Place, examples: bool) -> np.ndarray | None:
    """The score at a place, (stratum, seed, example); one example where only its mean is known."""
    kept, example = PER_EXAMPLE.get(score, ("", ""))
    values = _at(ds, kept if examples and kept in ds else score, place)
    if values is None:
        return None
    values = values.rename({example: "example"}) if example in values.dims and example != "example" else values
    values = values.expand_dims([dim for dim in ("seed", "example") if dim not in values.dims]).transpose(..., "seed", "example")
    return values.values.reshape(-1, *values.shape[-2:])


def _at(ds: xr.Dataset, score: str, place: Place) -> xr.DataArray | None:
    """A score at a place, without the coordinates of single values; None where something of it is missing.

    A list selects several values, a slice all values from its start to its stop. Repeats of a measurement count as seeds.
    """
    if score not in ds or not set(place) <= set(ds[score].dims):
        return None
    at: dict[str, Any] = {}
    for dim, chosen in place.items():
        known = ds[dim].values.tolist()
        wanted = [one for one in known if chosen.start <= one <= chosen.stop] if isinstance(chosen, slice) else chosen
        wanted = wanted if isinstance(wanted, list) else [wanted]
        if not wanted or not set(wanted) <= set(known):
            return None
        at[dim] = [known.index(one) for one in wanted]
    values = ds[score].isel({dim: found if isinstance(place[dim], (list, slice)) else found[0] for dim, found in at.items()})
    values = values.rename(repeat="seed") if "repeat" in values.dims else values
    return values if bool(values.notnull().any()) else None


def _best(ds: xr.Dataset, score: str, places: Sequence[Place], most: bool) -> Place | None:
    """The place with the best mean among those that the Dataset holds; None unless it holds all."""
    tables = [_at(ds, score, place) for place in places]
    if any(table is None for table in tables):
        return None
    means = [float(table.mean()) for table in tables if table is not None]
    return places[int(np.argmax(means) if most else np.argmin(means))]


def _words(place: Place, others: Sequence[Place]) -> str:
    """What tells a place from the others."""
    return ", ".join(str(chosen) for dim, chosen in place.items() if any(other.get(dim) != chosen for other in others))


def _exponent(sizes: np.ndarray, rows: np.ndarray) -> Finding | None:
    """Slopes of log rows (seed, size) against log sizes."""
    good = ~np.isnan(rows).any(0) if len(rows) > 1 else ~np.isnan(rows[0])
    if good.sum() < 3:
        return None
    x, y = np.log(sizes[good].astype(float)), np.log(rows[:, good])
    x = x - x.mean()
    slopes = y @ x / (x @ x)
    if len(rows) > 1:
        return Finding(float(slopes.mean()), over_seeds(slopes).errors, "", len(rows))
    rest, freedom = y[0] - y[0].mean() - slopes[0] * x, len(x) - 2
    error = math.sqrt(float(rest @ rest) / freedom / float(x @ x))
    return Finding(float(slopes[0]), (Error(error, freedom),), "", len(x), "error of the fit")


def _first(values: np.ndarray) -> np.ndarray:
    return values
