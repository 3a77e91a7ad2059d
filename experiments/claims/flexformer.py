"""Claims of "Flexformer: Flexible Linear Transformer with Learnable Attention Kernel" (arXiv 2606.27748).

Rows "flexformer" (s, stationary) and "flexformer-nonstationary" (n) are trained under the recipe that works (`experiments.linear_rows`);
"..., literal" is what the paper prints. Claims are about the better of the two readings of a row: whoever reads the paper may take either.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import xarray as xr

from experiments.claims.claim import Claim, Region, greater, less, within
from experiments.claims.rules import Finding, Place, Rule, difference, exponent, mean_difference, ratio, value, worst
from experiments.linear_rows import LINEAR

PAPER = "Flexformer paper"
TASKS = {"listops": "ListOps", "text": "Text", "retrieval": "Retrieval", "image": "Image", "pathfinder": "Pathfinder"}
FLEX_N, FLEX_S = "flexformer-nonstationary", "flexformer"
LRA = {  # accuracy in the order of TASKS, then their mean
    "softmax": (37.23, 65.66, 64.49, 41.89, 73.46, 56.55),
    "linear": (17.42, 62.64, 58.92, 43.40, 75.11, 51.49),
    "performer": (16.97, 63.67, 55.17, 41.23, 75.38, 50.48),
    "rfa": (17.20, 64.89, 58.76, 41.00, 74.51, 51.27),
    "cosformer": (37.44, 65.16, 64.04, 43.56, 72.32, 56.50),
    "hedgehog": (37.02, 64.10, 68.67, 41.64, 75.89, 57.47),
    "polaformer": (36.93, 69.65, 65.39, 40.95, 73.26, 57.23),
    FLEX_S: (37.09, 67.38, 71.55, 43.39, 76.15, 59.11),
    FLEX_N: (37.18, 65.72, 73.94, 45.42, 77.66, 59.99),
}
PERPLEXITY = {  # WikiText-103 test, small and big model
    "softmax": (31.3, 23.8),
    "linear": (35.6, 29.2),
    "rfa": (35.3, 28.0),
    "cosformer": (34.2, 26.2),
    "hedgehog": (33.2, 24.2),
    "polaformer": (32.9, 24.3),
    FLEX_S: (32.7, 23.4),
    FLEX_N: (31.6, 22.3),
}
GLUE = {  # task: (RoBERTa, Performer, RFA, Hedgehog, Flexformer_n)
    "cola": (61.9, 22.8, 27.6, 62.5, 63.3),
    "sst2": (94.8, 88.9, 90.1, 93.3, 93.6),
    "mrpc": (88.5, 66.3, 64.2, 86.0, 85.8),
    "stsb": (90.2, 38.8, 41.2, 87.7, 88.3),
    "qqp": (91.7, 84.4, 86.3, 91.2, 91.1),
    "mnli": (87.6, 77.5, 80.8, 83.7, 85.1),
    "qnli": (92.7, 76.3, 75.8, 91.2, 91.0),
    "rte": (76.9, 51.6, 53.0, 71.0, 71.5),
}
MOVED = {  # target: (Hedgehog, Flexformer_n), means over the sources
    "cola": (55.6, 60.3), "sst2": (92.6, 93.3), "mrpc": (76.3, 79.5), "stsb": (85.3, 86.0), "qqp": (89.6, 90.7), "mnli": (82.7, 84.8),
    "qnli": (87.5, 89.5), "rte": (53.1, 56.1),
}  # fmt: skip
SOURCES = ("stsb", "qqp")  # of kernels that move, in the preset cpu
MEASURED = ("cola", "sst2", "mrpc", "stsb", "qqp", "rte")  # at the sizes of the preset cpu
PLANNED = ("mrpc", "sst2", "qqp", "stsb")  # by it
TARGETS = ("cola", "sst2", "qqp", "stsb")
FULL_LENGTH = {"size": "paper"}
PATHFINDER = "kernelgas run long_range --preset cpu --tasks pathfinder"  # not in the preset
FULL_GLUE = "kernelgas run transfer --preset paper --data FOLDER"
ZONE = 0.5  # points up to which a gain is none
SHORTER = "shorter sequences, smaller models, fewer steps: see the preset's reductions"


def _row(name: str, task: str = "") -> Place:
    return {"row": name, "task": task} if task else {"row": name}


# ---- Long Range Arena --------------------------------------------------------------------------------------------------------------------


def _lra(name: str, says: str, table: str, gain: float, rule: Rule, region: Region, of: str = "", task: str = "") -> Claim:
    source, command = f"{PAPER}, Long Range Arena, {table}", PATHFINDER if task == "pathfinder" else ""
    return Claim(name, says, source, f"{gain:+.2f} points{of}", "long_range", rule, region, command, SHORTER, figure=gain)


def _against(first: str, rivals: tuple[str, ...], task: str = "") -> Rule:
    return difference(_row(first, task), *(_row(name, task) for name in rivals), by="validation_last")


def _average(first: str, rival: str) -> Rule:
    """The mean over the tasks that ran, and how many of the five they are."""
    rule = _against(first, (rival,))

    def counted(ds: xr.Dataset) -> Finding | None:
        found = rule(ds)
        if found is None or "task" not in ds.dims:
            return found
        ran = ds["accuracy"].sel(row=[first, rival]).notnull().any("seed").all("row")
        names = [str(task) for task in ds["task"].values[ran.values]]
        return replace(found, note=f"over {len(names)} of {len(TASKS)} tasks: {', '.join(names)}")

    return counted


def _lra_average() -> Iterator[Claim]:
    """The headline: best average."""
    for name in LINEAR:
        gain = LRA[FLEX_N][-1] - LRA[name][-1]
        says = f"Flexformer_n has a higher accuracy than {name}, on average over the five tasks"
        yield _lra(f"LRA average: n beats {name}", says, "average", gain, _average(FLEX_N, name), greater(0, ZONE))
    for first, second, words in ((FLEX_N, "softmax", "softmax"), (FLEX_S, "softmax", "softmax"), (FLEX_N, FLEX_S, "Flexformer_s")):
        kind, gain = ("n" if first == FLEX_N else "s"), LRA[first][-1] - LRA[second][-1]
        says = f"Flexformer_{kind} has a higher accuracy than {words}, on average over the five tasks"
        rule = _average(first, second)
        yield _lra(f"LRA average: {kind} beats {words}", says, "average", gain, rule, greater(0, ZONE))


def _lra_tasks() -> Iterator[Claim]:
    """Task by task: against the best linear baseline, against softmax, n against s."""
    for place, (task, name) in enumerate(TASKS.items()):
        best = max(LINEAR, key=lambda row: LRA[row][place])
        gain = LRA[FLEX_N][place] - LRA[best][place]
        says = f"Flexformer_n is at least as accurate as the best linear baseline on {name}"
        rule = _against(FLEX_N, LINEAR, task)
        yield _lra(f"{name}: n against the best linear", says, "against linear", gain, rule, greater(-ZONE), f" ({best})", task)
    for words, rivals, table in (("softmax", "softmax", "against softmax"), ("Flexformer_s", FLEX_S, "n against s")):
        for place, (task, name) in enumerate(TASKS.items()):
            gain = LRA[FLEX_N][place] - LRA[rivals][place]
            says, rule = f"Flexformer_n is more accurate than {words} on {name}", _against(FLEX_N, (rivals,), task)
            yield _lra(f"{name}: n beats {words}", says, table, gain, rule, greater(0, ZONE), task=task)


def _lra_values() -> Iterator[Claim]:
    """The figures themselves, at the paper's sizes only."""
    for name, row in (("Flexformer_n", FLEX_N), ("Flexformer_s", FLEX_S), ("softmax", "softmax")):
        for place, (task, words) in enumerate(TASKS.items()):
            says, rule, target = f"{name} reaches this accuracy on {words}", value(_row(row, task)), LRA[row][place]
            yield Claim(
                f"{words}: figure of {name}", says, f"{PAPER}, Long Range Arena, figures", f"{target:.2f} %", "long_range", rule,
                within(target, 2.0), "kernelgas run long_range --preset paper --data FOLDER", "within 2 points", needs=FULL_LENGTH,
            )  # fmt: skip


# ---- language, GLUE, efficiency ----------------------------------------------------------------------------------------------------------


def _language() -> Iterator[Claim]:
    """Log perplexity against every other row, and the figures on WikiText-103."""
    differs = "smaller model, fewer tokens, other text than WikiText-103; a difference of log perplexities"
    for other in ("softmax", FLEX_S, *LINEAR):
        if other in PERPLEXITY:
            paper = f"{PERPLEXITY[FLEX_N][0]} against {PERPLEXITY[other][0]}, {PERPLEXITY[FLEX_N][1]} against {PERPLEXITY[other][1]}"
            region = within(0, 0.02) if other == "softmax" else less(0, 0.005)
            verb = "comes within 2 % of" if other == "softmax" else "has a lower perplexity than"
            says, rule = f"Flexformer_n {verb} {other} in language modelling", difference(_row(FLEX_N), _row(other), score="loss")
            yield Claim(
                f"language: n against {other}", says, f"{PAPER}, WikiText-103", paper, "language_modelling", rule, region, differs=differs,
                figure=math.log(PERPLEXITY[FLEX_N][0] / PERPLEXITY[other][0]),
            )  # fmt: skip
    for name, row in (("softmax", "softmax"), ("Flexformer_s", FLEX_S), ("Flexformer_n", FLEX_N)):
        says, target = f"{name} reaches this perplexity on WikiText-103 (small model)", PERPLEXITY[row][0]
        rule = value({"task": "wikitext103", "row": row}, "perplexity")
        yield Claim(
            f"WikiText-103: {name}", says, f"{PAPER}, WikiText-103, figures", f"{target}", "language_modelling", rule, within(target, 1.0),
            "kernelgas run language_modelling --preset paper --data FOLDER", "within 1",
        )  # fmt: skip


def _command(task: str, option: str, here: tuple[str, ...]) -> str:
    """What measures a task of GLUE: the preset, the preset with that task, or the paper's sizes."""
    preset = "kernelgas run transfer --preset cpu"
    return FULL_GLUE if task not in here else preset if task in PLANNED else f"{preset} --{option} {task}"


def _transfer() -> Iterator[Claim]:
    """What is left of a teacher, and kernels that are learned on another task."""
    differs = "all-MiniLM-L6-v2 instead of RoBERTa, a few hundred training rows, one epoch"
    for task, figures in GLUE.items():
        paper, command = f"{figures[4]} against {figures[3]}, teacher {figures[0]}", _command(task, "tasks", MEASURED)
        says = f"Converted with Flexformer_n, the encoder scores at least what it does with Hedgehog on {task}"
        rule = difference(*({"task": task, "source": "own", "row": row} for row in (FLEX_N, "hedgehog")), score="score")
        source = f"{PAPER}, GLUE"
        yield Claim(
            f"GLUE {task}: n against hedgehog", says, source, paper, "transfer", rule, greater(-1.0), command, differs,
            figure=figures[4] - figures[3],
        )  # fmt: skip
    says, rule = "Flexformer_n keeps 95 % of the teacher's score, on average", value({"source": "own", "row": FLEX_N}, "share")
    name, source, share = "GLUE: share of the teacher", f"{PAPER}, GLUE, average", 100 * 83.7 / 85.5
    paper = f"83.7 of 85.5, {share:.1f} %"
    yield Claim(name, says, source, paper, "transfer", rule, greater(95), "", differs, figure=share)
    for task, (hedgehog, flex) in MOVED.items():
        places = [{"task": task, "source": source} for source in SOURCES if source != task]
        pairs = [({**place, "row": FLEX_N}, {**place, "row": "hedgehog"}) for place in places]
        says, command = f"Kernels of Flexformer_n move to {task} better than Hedgehog's", _command(task, "targets", TARGETS)
        rule, paper = mean_difference(pairs, "score"), f"{flex} against {hedgehog}"
        source = f"{PAPER}, transfer"
        yield Claim(
            f"transfer to {task}", says, source, paper, "transfer", rule, greater(0, ZONE), command, f"{differs}; two sources of four",
            figure=flex - hedgehog,
        )  # fmt: skip


def _efficiency() -> Iterator[Claim]:
    """Time and memory of training at one length, and their growth."""
    source, differs = f"{PAPER}, efficiency", "attention alone on one core, 4,096 tokens; the paper: retrieval with 4,000 on a GPU"
    at = {"mode": "training", "length": 4096}
    rivals = {"softmax, matrix": "softmax attention written out as a matrix", "softmax": "fused softmax attention (SDPA)"}
    for score, words, paper in (("seconds", "time", "18 against 7 steps a second"), ("memory", "memory", "3.4 against 21.2 GB")):
        for row, name in rivals.items():
            says, rule = f"Flexformer_n needs less {words} than {name}", ratio([({**at, "row": FLEX_N}, {**at, "row": row})], score)
            figure = paper if row != "softmax" else f"{paper}, which may be without fusion"
            yield Claim(f"{words} of n below {row}", says, source, figure, "efficiency", rule, less(1.0), differs=differs)
    growth = "attention alone, training, from 2,048 tokens on"
    for row, target in ((FLEX_N, 1.0), ("softmax", 2.0)):
        says = f"The time of {'fused softmax (SDPA)' if row == 'softmax' else row} grows with the length to the power {target:g}"
        name, rule = f"growth of {row}'s time", exponent({"mode": "training", "row": row}, "length", least=2048)
        yield Claim(name, says, f"{source}, growth", f"{target:g}", "efficiency", rule, within(target, 0.25), differs=growth)


def _parameters() -> Iterator[Claim]:
    """What the kernel adds to a model, counted."""
    for model, target in {"s, small": 0.49, "s, big": 0.43, "n, small": 0.97, "n, big": 0.86}.items():
        kind, size = model.split(", ")
        says, rule = f"Flexformer_{kind} adds this share of parameters to the {size} model", worst("extra_parameters", {"model": model})
        name, differs = f"extra parameters: {model}", "counted, over the paper's 41 and 247 million"
        source = f"{PAPER}, extra parameters"
        yield Claim(name, says, source, f"{target} %", "theory_checks", rule, within(target, 0.02), differs=differs)


CLAIMS: tuple[Claim, ...] = (*_lra_average(), *_lra_tasks(), *_lra_values(), *_language(), *_transfer(), *_efficiency(), *_parameters())
