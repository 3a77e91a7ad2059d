"""Claims of the Coulomb paper (appendix F.1) about its synthetic benchmark; its accuracies are curves without numbers.

Method "paper" is the paper's dynamics at its settings; what this package recommends is judged in `experiments.claims.kernelgas`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.claims.claim import Claim, Region, greater, less, within
from experiments.claims.rules import Rule, difference, exponent, ratio

EXPERIMENT = "coulomb_synthetic"
MODERATE, LOW, HIGH = slice(0.1, 10.0), slice(0.0, 1e-3), slice(1e3, 1e9)  # noise on the logit
ZONE = 0.5  # points up to which a gain is none
CURVE = "a curve, no number"
DIFFERS = "5 dimensions unless the setting names others, 10 data sets instead of one, accuracy on 4,000 fresh rows instead of 120"
GROWTH = {"logistic": 0.021, "svm": 1.477, "mkl": 1.961, "rff": 0.799, "importance": 0.967, "paper": 0.730}  # seconds ~ n^gamma
NAMES = {
    "logistic": "logistic regression",
    "svm": "the RBF-SVM",
    "mkl": "multiple kernel learning",
    "rff": "random features",
    "importance": "importance sampling",
    "paper": "the paper's particles",
}
RIVALS = ("logistic", "svm", "mkl", "rff", "rff tuned", "importance", "paper", "paper, no repulsion")


def _claim(part: str, name: str, says: str, paper: str, rule: Rule, region: Region, differs: str = DIFFERS) -> Claim:
    command = f"kernelgas run {EXPERIMENT} --preset cpu --part {part}"
    source = f"Coulomb paper, synthetic benchmark, part {part}"
    return Claim(name, says, source, paper, EXPERIMENT, rule, region, command, differs, needs={"part": part})


def _gap(first: Mapping[str, Any], second: Mapping[str, Any], sigma: slice) -> Rule:
    return difference({**first, "sigma": sigma}, {**second, "sigma": sigma}, score="fresh_accuracy")


def _better(part: str, name: str, says: str, gap: Rule) -> Claim:
    return _claim(part, name, says, CURVE, gap, greater(0, ZONE))


def _even(part: str, name: str, says: str, gap: Rule) -> Claim:
    return _claim(part, name, says, CURVE, gap, within(0, 1))


def _noise() -> list[Claim]:
    """Particles against fixed and reweighted features under noise."""
    above = []
    for rival in ("rff", "importance"):
        says = f"Langevin particles are more accurate than {NAMES[rival]} at noise from 0.1 to 10"
        gap = _gap({"method": "paper"}, {"method": rival}, MODERATE)
        above.append(_better("noise", f"the paper's particles beat {NAMES[rival]}", says, gap))
    best = difference(
        {"method": "svm tuned", "sigma": slice(0, 10)},
        *({"method": name, "sigma": slice(0, 10)} for name in RIVALS),
        score="fresh_accuracy",
    )
    together = _gap({"method": "paper"}, {"method": "rff"}, HIGH)
    return [
        *above,
        _claim("noise", "the tuned RBF-SVM is the best", "An RBF-SVM with tuned gamma is the best method overall", CURVE, best, greater()),
        _even("noise", "no method matters at noise of 1000", "Gaps vanish at noise of 1,000 and more", together),
    ]


def _lambda() -> list[Claim]:
    """The strength of the repulsion."""
    gains = []
    for strength in (0.5, 1.0):
        says = f"Repulsion is essential: lambda = {strength:g} is more accurate than 0 at noise from 1 to 100"
        gap = _gap({"lambda": strength}, {"lambda": 0.0}, slice(1.0, 100.0))
        gains.append(_better("lambda", f"repulsion {strength:g} against none", says, gap))
    quiet, loud = (_gap({"lambda": 0.5}, {"lambda": 0.0}, sigma) for sigma in (LOW, HIGH))
    return [
        *gains,
        _even("lambda", "no repulsion needed without noise", "Strengths do not differ at noise up to 0.001", quiet),
        _even("lambda", "no repulsion needed in noise alone", "Strengths do not differ at noise of 1,000 and more", loud),
    ]


def _budget() -> list[Claim]:
    """Fewer features; chance alone keeps 100 % of its accuracy, so the claim is weak."""
    kept = ratio([({"method": "paper", "n_features": 64}, {"method": "paper", "n_features": 256})], "fresh_accuracy")
    says = "64 features keep about 90 % of the performance of 256"
    return [_claim("budget", "64 of 256 features", says, "about 0.9, no table", kept, greater(0.9))]


def _runtime() -> list[Claim]:
    """Exponents of run time."""
    differs = "processor seconds of one fit, our own solvers"
    exponents = [
        _claim(
            "runtime",
            f"growth of {NAMES[name]}",
            f"The time of {NAMES[name]} grows with the number of rows to the power {gamma:g}",
            f"{gamma:.3f}",
            exponent({"method": name}, "n"),
            within(gamma, 0.3),
            differs,
        )
        for name, gamma in GROWTH.items()
    ]
    slow = exponent({"method": "paper"}, "n")
    says = "The time of Langevin particles grows less than linearly with the number of rows"
    return [*exponents, _claim("runtime", "particles grow less than linearly", says, "0.730", slow, less(1.0), differs)]


CLAIMS: tuple[Claim, ...] = (*_noise(), *_lambda(), *_budget(), *_runtime())
