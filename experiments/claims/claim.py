"""A claim of a paper, where its number must lie for the claim to hold, and the verdict that follows from what was measured.

A verdict is one of four words and follows by rule, never from prose:

* reproduced: the interval lies wholly where the claim puts the number;
* not reproduced: the interval lies wholly where the claim would be wrong, or too small an effect to be the one that is claimed
  (a gain has a *zone*: at most so much is no gain);
* inconclusive: anything else, a single seed among it, for it has no interval;
* not run: no unit of the rows that the claim compares has finished.

Intervals are two-sided 95 % intervals, corrected by Holm's method (1979) over the claims of one table that were measured with the same
settings, apart for the two directions. So where every claim of a table is false, the chance that one of them reads "reproduced" is at
most 2.5 %, and likewise for "not reproduced" where all of them are true.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from experiments.claims.rules import Finding, Rule
from experiments.comparisons import holm

REPRODUCED, NOT_REPRODUCED, INCONCLUSIVE, NOT_RUN = VERDICTS = ("reproduced", "not reproduced", "inconclusive", "not run")
ALPHA = 0.05  # of both directions together


@dataclass(frozen=True)
class Region:
    """Where a number must lie: the claim holds if it is surely inside `claimed` and fails if it is surely outside `material`."""

    claimed: tuple[float, float]
    material: tuple[float, float]
    words: str


def greater(than: float = 0.0, zone: float = 0.0) -> Region:
    """A gain: above `than`; one that is surely less than `zone` above it is none."""
    words = f"above {than:g}" + (f" (less than {zone:g} above it counts as none)" if zone else "")
    return Region((than, math.inf), (than + zone, math.inf), words)


def less(than: float = 0.0, zone: float = 0.0) -> Region:
    """The mirror image of `greater`, for losses, errors and times."""
    words = f"below {than:g}" + (f" (less than {zone:g} below it counts as none)" if zone else "")
    return Region((-math.inf, than), (-math.inf, than - zone), words)


def within(target: float, tolerance: float) -> Region:
    """Within a tolerance of a target, such as equality within so many points of 0."""
    if not tolerance > 0:
        raise ValueError(f"tolerance must be positive, got {tolerance!r}")
    ends = target - tolerance, target + tolerance
    return Region(ends, ends, f"between {ends[0]:g} and {ends[1]:g}")


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper as a rule on the results of an experiment."""

    name: str  # short and unlike every other
    says: str  # what the paper claims, in our words
    source: str  # paper, and its table or section
    paper: str  # the paper's figure
    experiment: str  # that measures it
    rule: Rule
    region: Region
    command: str = ""  # that runs it; by default the experiment's preset cpu
    differs: str = ""  # how our settings differ from the paper's
    needs: Mapping[str, Any] | None = None  # settings that the results must have
    figure: float | None = None  # the paper's figure as a number, where it is of the kind that `rule` measures

    @property
    def contradicted(self) -> bool:
        """Whether the paper's own figure lies where the sentence would be wrong."""
        low, high = self.region.claimed
        return self.figure is not None and not low < self.figure < high

    def how_to_run(self) -> str:
        """The command that measures this claim."""
        return self.command or f"kernelgas run {self.experiment} --preset cpu"

    def applies(self, settings: Mapping[str, Any]) -> bool:
        """Whether results of these settings can bear on the claim."""
        return all(settings.get(name) == wanted for name, wanted in (self.needs or {}).items())


@dataclass(frozen=True)
class Outcome:
    """A claim and what was found under the setting named `label`.

    `p` is Holm's over a `family` of so many claims, of the likelier direction: that the claim holds (`upholds`) or that it does not; 1
    without an interval.
    """

    claim: Claim
    finding: Finding | None
    verdict: str
    p: float
    label: str = ""
    upholds: bool = True
    family: int = 1

    @property
    def agrees(self) -> bool | None:
        """Whether the interval of ours holds the paper's figure; None without one of the two."""
        if self.finding is None or not self.finding.certain or self.claim.figure is None:
            return None
        _, low, high = self.finding.interval()
        return low <= self.claim.figure <= high


class Results(NamedTuple):
    """One experiment's results with one setting; `label` names the setting."""

    label: str
    settings: Mapping[str, Any]
    dataset: xr.Dataset


def judge(claims: Sequence[Claim], results: Mapping[str, Sequence[Results]]) -> list[Outcome]:
    """Verdicts in the order of the claims: one for every setting under which something was found, or one that says "not run".

    results : {experiment: its results, setting by setting}; settings are never mixed.
    """
    found = [(claim, finding, label) for claim in claims for finding, label in _findings(claim, results.get(claim.experiment, ()))]
    tables: dict[tuple[str, str], list[int]] = {}
    for place, (claim, finding, label) in enumerate(found):
        if finding is not None and finding.certain:
            tables.setdefault((claim.source, label), []).append(place)
    inside, outside, family = np.ones(len(found)), np.ones(len(found)), np.ones(len(found), int)
    for places in tables.values():
        family[places] = len(places)
        members = [(found[place][0].region, found[place][1]) for place in places]
        inside[places] = holm([finding.inside(*region.claimed) for region, finding in members if finding])
        outside[places] = holm([finding.outside(*region.material) for region, finding in members if finding])
    return [
        Outcome(
            claim, finding, _verdict(finding, inside[k], outside[k]), float(min(inside[k], outside[k])), label,
            bool(inside[k] <= outside[k]), int(family[k]),
        )
        for k, (claim, finding, label) in enumerate(found)
    ]  # fmt: skip


def _findings(claim: Claim, results: Sequence[Results]) -> list[tuple[Finding | None, str]]:
    """What each setting says on a claim; one None where none says anything."""
    found = [(claim.rule(part.dataset), part.label) for part in results if claim.applies(part.settings)]
    return [(finding, label) for finding, label in found if finding is not None] or [(None, "")]


def _verdict(finding: Finding | None, inside: float, outside: float) -> str:
    if finding is None:
        return NOT_RUN
    return REPRODUCED if inside <= ALPHA else NOT_REPRODUCED if outside <= ALPHA else INCONCLUSIVE
