"""What `simulate` asks of a sampler, and values that change with the step: schedules."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from particles.arrays import Array, count, positive
from particles.domain import Domain
from particles.fingerprint import describe_callable
from particles.random import Key

Memory = dict[str, Any]
QUIET: dict[str, Any] = {"over": "ignore", "invalid": "ignore"}  # NumPy's warnings: what leaves the numbers raises or is rejected


class Sampler:
    """The rule of one step. Subclasses give `advance` and `describe`, and what else they need of the rest.

    Attributes
    ----------
    fractions : the names that `advance` may report, with their values in the frame of step 0, before any step was made.
    tune : number of first steps that adapt the sampler and sample no law.
    """

    fractions: ClassVar[dict[str, float]] = {}
    tune: int = 0

    def check(self, domain: Domain, energy: Any) -> None:
        """ValueError if this sampler cannot run on `domain` with `energy`."""
        require_same_period(domain, energy)

    def begin(self, omega: Array) -> Memory:
        """What the sampler remembers from step to step, before the first: float64 arrays (chain,), saved with every frame.

        Entries whose names start with "_" are caches: they are not saved, and must be recomputed to the same bits when missing.
        """
        return {}

    def advance(self, omega: Array, energy: Any, domain: Domain, key: Key, memory: Memory) -> tuple[Array, dict[str, Array], Memory]:
        """One step of omega (chain, particle, dim) from the random numbers of key = (seed, first chain's number, step).

        `simulate` silences NumPy's warnings of overflow and of invalid values around all steps.

        Returns
        -------
        omega, info, memory
            The new state; fractions (chain,) by name, those that are all zero may be left out; the new memory. No input is changed.
        """
        raise NotImplementedError

    def remarks(self, means: dict[str, np.ndarray], n_steps: int) -> list[str]:
        """Warnings to be given after a run of `n_steps` steps (tuning not counted) in which the fractions (chain,) had these means."""
        return []

    def describe(self) -> dict[str, Any]:
        """Name and parameters as JSON values; callables without a `describe` by name and fingerprint."""
        raise NotImplementedError


def require_same_period(domain: Domain, energy: Any) -> None:
    """ValueError if an interaction's period is not that of a periodic domain."""
    period = getattr(domain, "period", None)
    if period is None:
        return
    for part in getattr(energy, "energies", (energy,)):
        if hasattr(part, "period"):
            own = part.period
            if own is None or not np.array_equal(np.broadcast_to(own, (domain.dim,)), np.broadcast_to(period, (domain.dim,))):
                raise ValueError(f"period of {type(part).__name__} must be that of the domain, {period!r}, got {own!r}")


@dataclass(frozen=True)
class Schedule:
    """A value that moves from `start` (at step 0) to `end` (at `n_steps` and after); made by `linear` and `geometric`."""

    name: str
    start: float
    end: float
    n_steps: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", positive(self.start, "start"))
        object.__setattr__(self, "end", positive(self.end, "end"))
        object.__setattr__(self, "n_steps", count(self.n_steps, "n_steps"))

    def __call__(self, step: int) -> float:
        """The value at a step >= 0."""
        fraction = min(step / self.n_steps, 1.0)
        if self.name == "linear":
            return self.start + fraction * (self.end - self.start)
        return self.start * (self.end / self.start) ** fraction

    def describe(self) -> dict[str, Any]:
        """Name and parameters as JSON values."""
        return {"name": self.name, "start": self.start, "end": self.end, "n_steps": self.n_steps}


def linear(start: float, end: float, n_steps: int) -> Schedule:
    """From `start` to `end` in equal differences over `n_steps`, constant after."""
    return Schedule("linear", start, end, n_steps)


def geometric(start: float, end: float, n_steps: int) -> Schedule:
    """From `start` to `end` in equal ratios over `n_steps`, constant after."""
    return Schedule("geometric", start, end, n_steps)


Value = float | Callable[[int], float]  # a constant, or a schedule: any callable of the step number


def checked(value: Any, name: str, *, infinite: bool = False) -> Value:
    """A schedule as it is, a number as a positive float (or infinity where allowed); ValueError names the argument."""
    if callable(value) or (infinite and isinstance(value, numbers.Real) and value == math.inf):
        return value
    return positive(value, name)


def at(value: Value, step: int, name: str, *, infinite: bool = False) -> float:
    """The value at a step; ValueError if a schedule gives anything but a positive number."""
    if not callable(value):
        return value
    number = value(step)
    if not isinstance(number, numbers.Real) or not number > 0 or (number == math.inf and not infinite):
        raise ValueError(f"{name} must be a positive number, got {number!r} at step {step}")
    return float(number)


def described(value: Value) -> Any:
    """A number, "inf", or a schedule's description: for a user's callable its name and a fingerprint of its code."""
    if callable(value):
        own = getattr(value, "describe", None)
        return own() if own else describe_callable(value)
    return "inf" if value == math.inf else value
