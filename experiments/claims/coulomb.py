"""Claims of "A Coulomb Particle Model for Learning Kernel Attention in Transformers" (arXiv 2607.23869) about sentences.

Its rows are V-x, map x with random particles, and K-x, the same with particles learned in Phase A. Its accuracies are single runs on 872
(SST-2) and 1,066 (Rotten Tomatoes) examples, with standard errors of 1.3 and 1.4 points, so most of its differences say little.
"""

from __future__ import annotations

from collections.abc import Iterator

from experiments.claims.claim import Claim, Region, greater, less, within
from experiments.claims.rules import Place, Rule, difference, mean_difference, ratio

PAPER = "Coulomb paper"
EXPERIMENT = "sentence_classification"
MAPS = ("favor", "elu", "softplus", "sigmoid2", "softmaxfeat", "cos2", "porf-softplus")
TASKS = {"sst2": "SST-2", "qqp": "QQP", "rotten_tomatoes": "Rotten Tomatoes"}
_TABLE = """
softmax          0.8050 0.5083 0.1498   86.8   0.8005 0.4112 0.1350  605.9   0.6801 0.6396 0.2138   12.6
V-favor          0.8050 0.4362 0.1388   80.5   0.7626 0.5028 0.1637  567.8   0.7083 0.5840 0.1977   13.7
K-favor          0.7901 0.4477 0.1459  166.0   0.7608 0.5016 0.1638 1197.1   0.6848 0.5823 0.1997   26.3
V-elu            0.8028 0.4938 0.1505   78.8   0.7797 0.4659 0.1518  585.1   0.6895 0.5809 0.1995   12.7
K-elu            0.8108 0.4502 0.1392  164.3   0.7831 0.4598 0.1496 1110.3   0.7148 0.5860 0.1991   26.1
V-softplus       0.8108 0.4582 0.1429   88.5   0.7786 0.4656 0.1522  633.3   0.7036 0.5838 0.1977   12.6
K-softplus       0.8062 0.5122 0.1470  173.5   0.7860 0.4578 0.1481 1100.7   0.7017 0.5766 0.1959   23.8
V-sigmoid2       0.7959 0.5025 0.1487   82.6   0.7772 0.4664 0.1529  591.9   0.7026 0.5758 0.1958   12.7
K-sigmoid2       0.7924 0.4915 0.1516  170.1   0.7852 0.4537 0.1479 1156.0   0.6876 0.6118 0.2091   24.0
V-softmaxfeat    0.8005 0.5163 0.1530   89.5   0.7801 0.4625 0.1512  579.9   0.6782 0.6065 0.2071   12.5
K-softmaxfeat    0.8085 0.4381 0.1389  171.4   0.7909 0.4354 0.1418 1072.6   0.7167 0.5697 0.1929   24.5
V-cos2           0.8142 0.4709 0.1395   81.5   0.7746 0.4688 0.1536  650.2   0.6876 0.5897 0.2015   12.4
K-cos2           0.8119 0.4422 0.1366  165.0   0.7842 0.4621 0.1497 1254.0   0.7092 0.5836 0.1982   26.7
V-porf-softplus  0.8142 0.4506 0.1380   85.7   0.7782 0.4685 0.1528  588.4   0.6839 0.5858 0.1996   12.6
K-porf-softplus  0.8188 0.4561 0.1381  162.8   0.7841 0.4547 0.1483 1110.4   0.6989 0.5750 0.1961   24.1
"""  # of each task accuracy, log loss, Brier score, training seconds
FIGURES = {
    task: {line.split()[0]: [float(cell) for cell in line.split()[1 + 4 * k : 5 + 4 * k]] for line in _TABLE.strip().splitlines()}
    for k, task in enumerate(TASKS)
}
OF_ABLATIONS = f"kernelgas run {EXPERIMENT} --preset cpu --part ablations"
ACCURACY, LOG_LOSS, BRIER, SECONDS = range(4)
DIFFERS = "test parts with published labels; SST-2 on sentences, not phrases; QQP on part of the published development file"
ZONE, LOSS_ZONE, BRIER_ZONE = 0.5, 0.005, 0.002  # points, nats, and of the Brier score, up to which a gain is none
BASELINES = {  # accuracy in the order of TASKS
    "Performer": (0.7798, 0.7751, 0.6642),
    "Linformer": (0.7844, 0.8077, 0.6614),
    "favor-WqWk": (0.7833, 0.7683, 0.6764),
}
ABLATED = ("softmaxfeat", "favor", "softplus")


def _claim(
    name: str, says: str, table: str, paper: str, rule: Rule, region: Region, command: str = "", figure: float | None = None
) -> Claim:
    return Claim(name, says, f"{PAPER}, {table}", paper, EXPERIMENT, rule, region, command, DIFFERS, figure=figure)


def _gain(name: str, says: str, table: str, gain: float, rule: Rule, region: Region) -> Claim:
    """A claim about a difference of accuracies of which the paper's is known."""
    return _claim(name, says, table, f"{100 * gain:+.1f} points", rule, region, figure=100 * gain)


def _at(task: str, row: str) -> Place:
    return {"task": task, "row": row}


def _pairs(task: str, second: str = "V") -> list[tuple[Place, Place]]:
    """(K-x, V-x) of every map, or (K-x, the second row)."""
    return [(_at(task, f"K-{name}"), _at(task, f"V-{name}" if second == "V" else second)) for name in MAPS]


def _gap(task: str, column: int, second: str = "V") -> list[float]:
    """The paper's K-x minus V-x, or minus the second row."""
    table = FIGURES[task]
    return [table[f"K-{name}"][column] - table[f"V-{name}" if second == "V" else second][column] for name in MAPS]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _learned_against_vanilla(task: str) -> Iterator[Claim]:
    """Does Phase A help each map?"""
    name, table = TASKS[task], f"table of {TASKS[task]}, learned against vanilla"
    for kernel, pair, gain in zip(MAPS, _pairs(task), _gap(task, ACCURACY), strict=True):
        says = f"Learning the particles of {kernel} raises its accuracy on {name}"
        yield _gain(f"K-{kernel} beats V-{kernel} on {name}", says, table, gain, difference(*pair), greater(0, ZONE))
    says = f"Learned kernels are more accurate than vanilla ones on {name}, on average over the maps"
    gain = _mean(_gap(task, ACCURACY))
    yield _gain(f"K beats V on {name}", says, f"{table}, mean", gain, mean_difference(_pairs(task)), greater(0, ZONE))


def _against_softmax(task: str) -> Iterator[Claim]:
    """Is a learned kernel better than softmax?"""
    name, table = TASKS[task], f"table of {TASKS[task]}, learned against softmax"
    for kernel, pair, gain in zip(MAPS, _pairs(task, "softmax"), _gap(task, ACCURACY, "softmax"), strict=True):
        says = f"Linear attention with learned {kernel} is at least as accurate as softmax on {name}"
        yield _gain(f"K-{kernel} against softmax on {name}", says, table, gain, difference(*pair), greater(-ZONE))


def _against_baselines(task: str) -> Iterator[Claim]:
    """Are learned kernels better than other linear attention?"""
    name, table = TASKS[task], f"table of {TASKS[task]}, learned against baselines"
    mean = _mean([FIGURES[task][f"K-{kernel}"][ACCURACY] for kernel in MAPS])
    for row, figures in BASELINES.items():
        gain = mean - figures[list(TASKS).index(task)]
        says = f"Learned kernels are more accurate than {row} on {name}, on average over the maps"
        yield _gain(f"K beats {row} on {name}", says, table, gain, mean_difference(_pairs(task, row)), greater(0, ZONE))


def _calibration(task: str) -> Iterator[Claim]:
    """Better probabilities, as the mean over the maps."""
    name, table = TASKS[task], f"table of {TASKS[task]}, probabilities"
    kinds = (("log loss", "log_loss", LOG_LOSS, " nats", LOSS_ZONE), ("Brier score", "brier", BRIER, "", BRIER_ZONE))
    for second, other in (("V", "vanilla kernels"), ("softmax", "softmax")):
        for words, score, column, unit, zone in kinds:
            gap, rule = _mean(_gap(task, column, second)), mean_difference(_pairs(task, second), score)
            says = f"Learned kernels have a lower {words} than {other} on {name}, on average over the maps"
            yield _claim(f"{words} of K below {second} on {name}", says, table, f"{gap:+.4f}{unit}", rule, less(0, zone), figure=gap)
        if second == "softmax":
            says = f"Learned kernels are better calibrated than softmax on {name}, on average over the maps"
            rule, paper = (
                mean_difference(_pairs(task, second), "calibration_error"),
                "its column is no calibration error as usually defined",
            )
            yield _claim(f"calibration error of K below softmax on {name}", says, table, paper, rule, less(0, ZONE))


def _cost(task: str) -> Iterator[Claim]:
    """What Phase A costs."""
    times = [FIGURES[task][f"K-{name}"][SECONDS] / FIGURES[task][f"V-{name}"][SECONDS] for name in MAPS]
    says = f"Learning the kernel takes about twice the training time (of the processor) on {TASKS[task]}"
    rule = ratio(_pairs(task), "cpu_seconds")
    name, paper = f"training time of K over V on {TASKS[task]}", _mean(times)
    yield _claim(name, says, "training time", f"{paper:.2f} times", rule, within(2.0, 0.5), figure=paper)


def _repulsion() -> Iterator[Claim]:
    """Ablations: what repulsion, number of particles and labels bring."""
    for kernel in ABLATED:
        learned: Place = {"row": f"K-{kernel}"}
        says = f"Without repulsion learned {kernel} is less accurate"
        rule, source = difference(learned, {"row": f"K-{kernel} lam 0.0"}), "ablation of the repulsion"
        yield _claim(f"K-{kernel}: repulsion matters", says, source, "no table", rule, greater(0, ZONE), OF_ABLATIONS)
    for kernel in ABLATED:
        says = f"64 features keep 90 % of the accuracy that 256 have, {kernel}"
        rule = ratio([({"row": f"K-{kernel}"}, {"row": f"K-{kernel} 256 particles"})], "accuracy")
        yield _claim(f"K-{kernel}: 64 of 256 features", says, "number of features", "about 0.9, no table", rule, greater(0.9), OF_ABLATIONS)


CLAIMS: tuple[Claim, ...] = (
    *(claim for task in TASKS for claim in _learned_against_vanilla(task)),
    *(claim for task in TASKS for claim in _against_softmax(task)),
    *(claim for task in TASKS for claim in _against_baselines(task)),
    *(claim for task in TASKS for claim in _calibration(task)),
    *(claim for task in TASKS for claim in _cost(task)),
    *_repulsion(),
)
