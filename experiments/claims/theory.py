"""Statements of the Coulomb paper's theory: mean-field limit, large deviations, the projected scheme."""

from __future__ import annotations

from experiments.claims.claim import Claim, Region, greater, within
from experiments.claims.rules import Rule, exponent, value

EXPERIMENT = "theory_checks"
GAS = "a log gas in a quadratic trap on the line, at fixed temperature in the mean-field scaling"


def _claim(name: str, says: str, source: str, paper: str, rule: Rule, region: Region, differs: str = GAS) -> Claim:
    return Claim(name, says, f"Coulomb paper, {source}", paper, EXPERIMENT, rule, region, differs=differs)


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
        "The error of the projected scheme vanishes with the step: the share of particles left on the wall grows with a power of it",
        "theorem 1, its assumption",
        "a limit",
        exponent({"check": "walls"}, "step_size", "on_wall"),
        greater(0.25),
        "free particles in a disc; theory has the power 1/2",
    ),
)
