"""What a law is: one number of a run against what it should be, with its error and verdict."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import t as student_t

from theory.report.run import NotApplicable

__all__ = ["Law", "statistical"]


class Law(NamedTuple):
    """One compared number. `p_value` is NaN for rules without statistics, whose verdict is `passed`."""

    name: str
    predicted: float
    measured: float
    standard_error: float
    standard_error_chains: float
    allowance: float
    p_value: float
    passed: bool
    note: str


def statistical(name: str, predicted: float, measured: float, error: float, across: float, allowance: float, ess: float, note: str) -> Law:
    """A statistical law with its two-sided Student-t p-value (ESS - 1 degrees of freedom); the verdict comes with the others."""
    total = float(np.hypot(error, allowance))
    if not np.isfinite(total):
        raise NotApplicable("too few frames for a standard error")
    gap = measured - predicted
    z = 0.0 if gap == 0 else abs(gap) / total if total > 0 else np.inf
    freedom = max(ess - 1, 1.0) if np.isfinite(ess) else np.inf
    return Law(name, predicted, measured, error, across, allowance, float(2 * student_t.sf(z, freedom)), False, note)
