"""What this package claims of itself: learned measures of frequencies, attention kernels whose shape matters, converted encoders, laws."""

from __future__ import annotations

import math
from collections.abc import Iterator

from experiments.claims.claim import Claim, Region, greater, less, within
from experiments.claims.coulomb import EXPERIMENT, MAPS, OF_ABLATIONS, TASKS
from experiments.claims.flexformer import PATHFINDER
from experiments.claims.rules import Rule, difference, mean_difference, value, worst
from experiments.linear_rows import LINEAR, LINEAR_NEAR, OURS_NEAR

PAPER = "kernelgas"
ZONE = 0.5  # points up to which a gain is none
HIDDEN = ("ring3", "xor2")  # tasks whose labels have hidden structure
LONG = {"listops": "ListOps", "text": "Text", "retrieval": "Retrieval", "image": "Image", "pathfinder": "Pathfinder"}
TEXTS = {"shakespeare": "Shakespeare's characters", "wikitext2": "WikiText-2's pieces of words"}
CLAIMED = (
    "flexformer", "flexformer-nonstationary", "softmaxfeat, align, unfreeze", "softmaxfeat, learned", "softmaxfeat, narrow start",
    "exponential",
)  # fmt: skip


_ALL = Region((0.5, math.inf), (0.5, math.inf), "1: all pass")  # of numbers that are 0 or 1
_NONE = Region((-math.inf, 0.5), (-math.inf, 0.5), "0: none passes")


def _claim(name: str, says: str, table: str, bar: str, experiment: str, rule: Rule, region: Region, command: str = "") -> Claim:
    return Claim(name, says, f"{PAPER}, {table}", bar, experiment, rule, region, command)


# ---- kernels without attention -----------------------------------------------------------------------------------------------------------


def _gas() -> Iterator[Claim]:
    says = "The particles obey every exact law of the gas that is tested"
    yield _claim("laws of the gas hold", says, "laws", "all", "gas", worst("passed", most=False), _ALL)
    says = "The same tests reject the same runs under a label that is 20 % off"
    yield _claim("false labels are rejected", says, "laws", "all", "gas", worst("passed_control"), _NONE)


def _hidden() -> Iterator[Claim]:
    """Labels with hidden structure."""
    for task in HIDDEN:
        for rival, words in (("rff", "random features of tuned width"), ("importance", "importance sampling"), ("svm", "a tuned RBF-SVM")):
            rule = difference({"task": task, "method": "particles"}, {"task": task, "method": rival})
            says = f"Where the relevant directions are hidden ({task}), learned particles beat {words}"
            yield _claim(f"{task}: particles beat {rival}", says, "hidden structure", "a gain", "kernel_learning", rule, greater(0, ZONE))
    for rival in ("rff tuned", "importance"):
        place = {"method": "particles", "sigma": slice(0.1, 10.0)}
        rule = difference(place, {**place, "method": rival}, score="fresh_accuracy")
        says = f"On the Coulomb paper's synthetic benchmark our settings beat {rival} at noise from 0.1 to 10"
        yield Claim(
            f"synthetic: particles beat {rival}", says, f"{PAPER}, synthetic benchmark", "a gain", "coulomb_synthetic", rule,
            greater(0, ZONE), needs={"part": "noise"},
        )  # fmt: skip


# ---- the kernel's shape inside attention -------------------------------------------------------------------------------------------------


def _matching(task: str, first: str, *second: str) -> Rule:
    return difference({"task": task, "method": first}, *({"task": task, "method": name} for name in second))


def _shape() -> Iterator[Claim]:
    """In-context matching."""
    table, name = "in-context matching", "matching"
    says = "Where only the kernel can learn, learned frequencies beat softmax by far (hidden phase)"
    yield _claim(
        "matching: learned beats softmax", says, table, "40 points", name, _matching("phase", "end to end", "softmax"), greater(40)
    )
    says = "Aligning first, then training on, beats training alone from the best start width by 5 points (ring3)"
    widths = ("end to end", "end to end, half width", "end to end, quarter width")
    rule = _matching("ring3", "align, unfreeze", *widths)
    yield _claim("matching: align first on ring3", says, table, "5 points", name, rule, greater(5))
    says = "A start that knows the hidden subspace is no better than aligned particles, so aligning reaches what a start can (ring3)"
    rule = _matching("ring3", "known subspace, end to end", "align, unfreeze")
    yield _claim("matching: aligned starts are the best starts", says, table, "within 2 points", name, rule, within(0, 2))
    says = "What aligning first adds comes from the labels: permuted labels add less, by 5 points (ring3)"
    rule = _matching("ring3", "align, unfreeze", "shuffled, unfreeze")
    yield _claim("matching: labels, not motion", says, table, "5 points", name, rule, greater(5))
    says = "The same where the kernel is a sum over its keys that nothing divides: aligned starts do not mind the size of the first logits"
    undivided = [f"{row}, undivided" for row in (*widths, "shuffled, unfreeze")]
    rule = _matching("ring3", "align, unfreeze, undivided", *undivided)
    yield _claim("matching: align first, undivided", says, table, "5 points", name, rule, greater(5))
    says = "Where the Gaussian kernel is right already, aligning first adds nothing (iso)"
    rule = _matching("iso", "align, unfreeze", "end to end")
    yield _claim("matching: nothing to learn", says, table, "within 2 points", name, rule, within(0, 2))


def _recall() -> Iterator[Claim]:
    """Associative recall."""
    table, name = "associative recall", "recall"
    says = "Signed features with an output norm recall more than positive ones of the same size"
    rule = difference(
        {"method": "flexformer, output norm"},
        *(
            {"method": name}
            for name in ("favor, learned", "hedgehog", "hedgehog, output norm", "softmaxfeat, learned", "softmaxfeat, output norm")
        ),
    )
    yield _claim("recall: signed beats positive", says, table, "10 points", name, rule, greater(10))
    says = "With the denominator as printed, Flexformer recalls next to nothing"
    yield _claim("recall: printed denominator", says, table, "at most 20 %", name, value({"method": "flexformer, literal"}), less(20))
    says = "Aligning to who should attend to whom adds nothing over permuted targets there"
    rule = difference({"method": "softmaxfeat, align"}, {"method": "softmaxfeat, shuffled"})
    yield _claim("recall: Phase A adds nothing", says, table, "within 5 points", name, rule, within(0, 5))


def _conversion() -> Iterator[Claim]:
    """A pretrained encoder with kernels in the place of softmax."""
    table, name = "converted encoder", "conversion"
    bars = {"proposal": 0.94, "particles": 0.985, "hedgehog": 0.985, "particles end to end": 0.993}
    for row, bar in bars.items():
        says = f"Converted with {row}, an encoder keeps {100 * bar:g} % of its score"
        yield _claim(f"conversion: {row}", says, table, f"{100 * bar:g} %", name, value({"row": row}, "share"), greater(100 * bar))


# ---- against softmax and the linear baselines --------------------------------------------------------------------------------------------


def _sentences() -> Iterator[Claim]:
    """Sentence tasks: learned kernels as a whole against softmax, linear baselines and their own controls."""
    for task, name in TASKS.items():
        place = {"task": task}
        for rival in ("softmax", "Performer", "Linformer", "favor-WqWk"):
            says = f"The learned kernels are on average at least as accurate as {rival} on {name}"
            rule = mean_difference([({**place, "row": f"K-{kernel}"}, {**place, "row": rival}) for kernel in MAPS])
            table = f"sentences, {name}, against baselines"
            yield _claim(f"{name}: K against {rival}", says, table, "not below", EXPERIMENT, rule, greater(-ZONE))
        for control, words in (("shuffled", "the same Phase A with permuted labels"), ("half width", "a narrower start alone")):
            says = f"Phase A helps beyond {words} on {name}, on average over the maps"
            pairs = [({**place, "row": f"K-{kernel}"}, {**place, "row": f"K-{kernel} {control}"}) for kernel in MAPS]
            table = f"sentences, {name}, against controls"
            rule = mean_difference(pairs)
            yield _claim(f"{name}: K beyond {control}", says, table, "a gain", EXPERIMENT, rule, greater(0, ZONE), OF_ABLATIONS)


def _long() -> Iterator[Claim]:
    """Long-range tasks: each kernel of ours against the best linear baseline."""
    for task, name in LONG.items():
        for row in CLAIMED:
            says = f"{row} is at least as accurate as the best linear baseline on {name}"
            rule = difference({"task": task, "row": row}, *({"task": task, "row": rival} for rival in LINEAR), by="validation_last")
            yield _of_long(task, f"{name}: {row} against linear", says, rule)
        for row in OURS_NEAR:
            says = f"{row} is at least as accurate as softmax on {name}"
            rule = difference({"task": task, "row": row}, {"task": task, "row": "softmax"})
            yield _of_long(task, f"{name}: {row} against softmax", says, rule)


def _of_long(task: str, name: str, says: str, rule: Rule) -> Claim:
    command = PATHFINDER if task == "pathfinder" else ""
    return _claim(name, says, f"long-range, {LONG[task]}", "not below", "long_range", rule, greater(-ZONE), command)


def _language() -> Iterator[Claim]:
    """Language modelling: the same in nats a token, where less is better."""
    for task, name in TEXTS.items():
        rivals = [*((row, LINEAR, "the best linear baseline") for row in CLAIMED), *((row, ("softmax",), "softmax") for row in OURS_NEAR)]
        rivals += [(row, LINEAR_NEAR, "the best linear baseline with the same window") for row in OURS_NEAR]
        for row, others, words in rivals:
            says, table = f"{row} has no larger loss than {words} on {name}", f"language, {name}"
            places = ({"task": task, "row": other} for other in others)
            rule = difference({"task": task, "row": row}, *places, score="loss", most=False, by="validation_last")
            yield _claim(f"{name}: {row} against {words}", says, table, "not above", "language_modelling", rule, less(0.005))


CLAIMS: tuple[Claim, ...] = (*_gas(), *_hidden(), *_shape(), *_recall(), *_conversion(), *_sentences(), *_long(), *_language())
