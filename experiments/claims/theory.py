"""Statements of the Coulomb paper's theory: mean-field limit, large deviations, the projected scheme."""

from __future__ import annotations

import math

import numpy as np

from experiments.claims.claim import Claim, Region, within
from experiments.claims.rules import Rule, exponent, value

EXPERIMENT = "theory_checks"
GAS = "a log gas in a quadratic trap on the line, at fixed temperature in the mean-field scaling"


def _claim(name: str, says: str, source: str, paper: str, rule: Rule, region: Region, differs: str = GAS) -> Claim:
    return Claim(name, says, f"Coulomb paper, {source}", paper, EXPERIMENT, rule, region, differs=differs)


WALL_STEPS = (0.02, 0.01, 0.005, 0.0025, 0.00125)  # `theory_checks` walks in them


def wall_share(step: np.ndarray) -> np.ndarray:
    """Share of free particles on the wall of a unit disc after a projected step, to first order in its square root.

    Near a wall the particles are a random walk on a half-line that stops at its end, with steps of deviation sigma = sqrt(2 step). Its
    stationary measure is the renewal measure of ladder heights (Spitzer 1960): density 1 far from the wall, sigma / sqrt(2) on the wall,
    and in all as much as a strip that is wider by -zeta(1/2)/sqrt(2 pi) sigma. The wall is twice as long as the disc is large.
    """
    sigma = np.sqrt(2 * step)
    return 2 * sigma / math.sqrt(2) / (1 + 2 * LADDER * sigma)


LADDER = 0.5825971579  # -zeta(1/2) / sqrt(2 pi)
WALL_POWER = float(np.polyfit(np.log(WALL_STEPS), np.log(wall_share(np.array(WALL_STEPS))), 1)[0])
_FIELD = {"check": "mean field"}
_LIMITS = {
    "particles reach the mean field": (
        "The empirical measure converges to the solution of the McKean-Vlasov equation; independent particles would do so as N^(-1/2)",
        "distance",
    ),
    "the learned kernel converges": ("The kernel of N particles converges to that of the limit", "kernel_spread"),
}
CLAIMS = (
    *(
        _claim(name, says, "theorem 1", "a limit", exponent(_FIELD, "n", score), within(-0.5, 0.15))
        for name, (says, score) in _LIMITS.items()
    ),
    _claim(
        "large deviations have speed N",
        "The law of the empirical measure obeys a large-deviation principle with speed N: log probabilities are those of theory",
        "theorem 2",
        "a limit",
        value({"check": "large deviations"}, "rate_ratio"),
        within(1.0, 0.05),
        "repulsion with s = 0 < dim; log P over its value to order 1 at N = 10",
    ),
    _claim(
        "large deviations for s > dim",
        "The same theorem holds as stated for s > dim, where the energy of the best measure must be finite: "
        "the least energy of N points grows to a limit, with exponent 0",
        "theorem 2, its assumption",
        "s > dim is assumed",
        exponent({"check": "infinite energy"}, "points", "least_energy"),
        within(0.0, 0.1),
        "s = 2 in one dimension, equally spaced points",
    ),
    _claim(
        "projection errors vanish",
        "The error of the projected scheme vanishes with the step: the share of particles left on the wall grows with its square root in "
        f"the limit of short steps, and with the power {WALL_POWER:.3f} at the steps taken here",
        "theorem 1, its assumption",
        "a limit",
        exponent({"check": "walls"}, "step_size", "on_wall"),
        within(round(WALL_POWER, 3), 0.05),
        "free particles in a disc, steps from 0.02 to 0.00125",
    ),
)
