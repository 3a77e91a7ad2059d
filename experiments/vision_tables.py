"""What the vision transformers say: attentions, landmarks and their number, spectral norms, learning rates."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable

import numpy as np
import xarray as xr

from experiments.claims.rules import difference
from experiments.comparisons import best_row
from experiments.linear_tables import lrs_option
from experiments.metrics import Estimate
from experiments.report import Section, Table, signed, spread, verdict
from experiments.vision import RANDOM, REDUCED, rated
from experiments.vision_rows import BOTTLENECK, LINEAR, MAIN, NARROW, NORMS, OURS, ROWS, SAMPLING, TUNED

PAPER = {  # SOFT, ImageNet-1k, Tiny: top-1 [%]
    "softmax": 79.1, "linformer": 78.2, "performer": 76.1, "nystromformer": 78.6, "soft": 79.3, "soft++": 79.4,
}  # fmt: skip
PAPER_LANDMARKS = {36: 79.0, 49: 79.3, 64: 79.3, 81: 78.9}  # number of landmarks, none of which is a row's here
PAPER_SAMPLING = {"soft": 79.3, "soft, conv landmarks": 79.3, "soft, random landmarks": 79.3, "soft, first landmarks": 79.0}
GRIDS = ("soft, 2x2 landmarks", "soft, 3x3 landmarks", "soft", "soft, 8x8 landmarks")
LEARNED = ("performer", "performer, learned", "particles, shuffled", "particles, width alone")
NOTE = "mean ± standard deviation over seeds; differences in points, with 95 % intervals over seeds and test images"
SINGLE = "one seed: neither standard deviations nor intervals; differences in points"
CAPTIONS = {
    "accuracy.png": "Test accuracy of each row and seed; bars are means.",
    "landmarks.png": "Left: accuracy against the number of landmarks. Right: how they are made.",
    "norms.png": "Spectral norm of the attention matrix against the number of random tokens.",
}


def section(ds: xr.Dataset) -> Section:
    """Tables of the parts that ran, and what they show."""
    tasks = tasks_of(ds)
    tables = [table for task in tasks for table in _main_tables(ds, task)]
    verdicts = [line for task in tasks for line in _main_verdicts(ds, task)]
    if tasks:
        last = tasks[-1]
        found = (_number_table(ds, last), _sampling_table(ds, last))
        tables += [table for table in (*found, _spread_table(ds, last)) if table]
        verdicts += _ablation_verdicts(ds, last)
    if RANDOM in ds["task"].values:
        tables.append(_norm_table(ds))
        verdicts += _norm_verdicts(ds)
    rates = _rates(ds)
    if rates:
        tables.append(rates[0])
        verdicts.append(f"best learning rates on their seed: {lrs_option(rates[1])}.")
    pictures = {name: caption for name, caption in CAPTIONS.items() if drawn(ds, name)}
    return Section("Vision", _text(ds), tables, pictures, verdicts)


def _text(ds: xr.Dataset) -> str:
    lrs = json.loads(ds.attrs["config"])["lrs"] if "config" in ds.attrs else {}
    chosen = f" Learning rates: {', '.join(f'{row} {rate:g}' for row, rate in lrs.items())}." if lrs else ""
    return (
        "SOFT's comparison in the same pyramid: the row's attention in stages 1 to 3, softmax with a class token in the last. "
        f"{ds.attrs['finished']} of {ds.attrs['planned']} units ran. Reduced: {REDUCED['cpu']}. Accuracy on these images stands beside the "
        f"paper's on ImageNet; only the order of the rows can be compared.{chosen}"
    )


def drawn(ds: xr.Dataset, name: str) -> bool:
    """Whether the Dataset has what a figure shows."""
    if name == "norms.png":
        return RANDOM in ds["task"].values and bool(np.isfinite(ds["norm"]).any())
    tasks = tasks_of(ds)
    return any(present(ds, task, MAIN) for task in tasks) if name == "accuracy.png" else bool(tasks and landmark_groups(ds, tasks[-1]))


def landmark_groups(ds: xr.Dataset, task: str) -> dict[str, list[str]]:
    """Rows of the figure of landmarks by panel, two at least in each."""
    groups = {"number of landmarks": GRIDS, "how they are made": ("soft", *SAMPLING)}
    return {title: rows for title, names in groups.items() if len(rows := present(ds, task, names)) > 1}


def tasks_of(ds: xr.Dataset) -> list[str]:
    """The data sets, in order."""
    return [str(task) for task in ds["task"].values if task != RANDOM]


def present(ds: xr.Dataset, task: str, rows: Iterable[str]) -> list[str]:
    """Those of the rows that have an accuracy."""
    known = set(ds["row"].values) if "accuracy" in ds else set()
    return [row for row in rows if row in known and bool(np.isfinite(ds["accuracy"].sel(task=task, row=row)).any())]


# ---- attentions --------------------------------------------------------------------------------------------------------------------------


def _main_tables(ds: xr.Dataset, task: str) -> list[Table]:
    rows = []
    for row in present(ds, task, MAIN):
        part = ds.sel(task=task, row=row)
        norms = part["stage_norm"].mean("seed", skipna=True).values[:3]
        cells = [spread(part["accuracy"], 100), spread(part["log_loss"], digits=3), spread(part["calibration_error"], 100)]
        cells += [_gain(ds, task, row, "softmax"), spread(part["train_seconds"], digits=0), _integer(part["n_parameters"])]
        rows.append([row, *cells, " / ".join("-" if math.isnan(value) else f"{value:.3g}" for value in norms), _paper(row)])
    if not rows:
        return []
    header = ["attention", "accuracy [%]", "log loss", "ECE [%]", "against softmax", "train s", "weights", "norms of stages", "paper [%]"]
    of_norms = "norms: mean spectral norm of the trained attention matrices of stages 1 to 3 (none where the output is divided by its size)"
    return [
        Table(
            f"Attentions, {task}",
            header,
            rows,
            [noted(ds, task, MAIN), of_norms, "paper: top-1 on ImageNet-1k, Tiny; soft++ from its released code"],
        )
    ]


def noted(ds: xr.Dataset, task: str, rows: Iterable[str]) -> str:
    """What the numbers of these rows are: no deviations and intervals of one seed."""
    most = max((int(ds["accuracy"].sel(task=task, row=row).notnull().sum()) for row in present(ds, task, rows)), default=0)
    return NOTE if most > 1 else SINGLE


def _main_verdicts(ds: xr.Dataset, task: str) -> list[str]:
    """SOFT against the others, the particles against their controls, and the best of ours against softmax and the best linear row."""
    rows = present(ds, task, MAIN)
    pairs = [("soft", other) for other in ("softmax", "nystromformer", "linformer", "performer")] + [("soft++", "soft")]
    pairs += [("particles", other) for other in LEARNED]
    lines = [line for first, second in pairs if {first, second} <= set(rows) and (line := compared(ds, task, first, second))]
    first, second = (best_row(ds.sel(task=task), names, "validation_accuracy") for names in (OURS, LINEAR))
    if first and second:
        lines += [line for other in (second, "softmax") if other in rows and (line := compared(ds, task, first, other))]
    return list(dict.fromkeys(lines))


def compared(ds: xr.Dataset, task: str, first: str, second: str) -> str:
    """One sentence on the difference of two rows; "" where no seed has both."""
    found = _difference(ds, task, first, second)
    return f"{task}: {first} against {second}: {verdict(found, scale=1.0)}." if found else ""


def _gain(ds: xr.Dataset, task: str, row: str, other: str) -> str:
    found = _difference(ds, task, row, other) if row != other and present(ds, task, [other]) else None
    if found is None:
        return "-"
    ends = f" ({signed(found.low)} to {signed(found.high)})" if math.isfinite(found.low) else ""
    return f"{signed(found.value)}{ends}"


def _difference(ds: xr.Dataset, task: str, first: str, second: str) -> Estimate | None:
    """Points that the first row is more accurate, over seeds and test images; None where no seed has both."""
    found = difference({"task": task, "row": first}, {"task": task, "row": second})(ds)
    return None if found is None else found.interval()


def _paper(row: str) -> str:
    return f"{PAPER[row]:.1f}" if row in PAPER else "-"


def _integer(values: xr.DataArray) -> str:
    return f"{float(values.max()):.0f}"


# ---- landmarks ---------------------------------------------------------------------------------------------------------------------------


def _number_table(ds: xr.Dataset, task: str) -> Table | None:
    """Grids of landmarks; none has a number of landmarks of the paper's."""
    rows = present(ds, task, GRIDS)
    lines = [[grid(ds, row), *_ablation_cells(ds, task, row)] for row in rows]
    paper = ", ".join(f"{n} landmarks {share:.1f} %" for n, share in PAPER_LANDMARKS.items())
    notes = [
        noted(ds, task, rows),
        "4x4 = 16: a grid of 4 by 4 landmarks, each the mean of a window of tokens, in each of stages 1 to 3 as far as it has tokens",
        f"the paper, ImageNet-1k, Tiny: {paper}",
    ]
    return Table(f"Number of landmarks, {task}", ["landmarks", *_ABLATION], lines, notes) if len(lines) > 1 else None


def _sampling_table(ds: xr.Dataset, task: str) -> Table | None:
    """How as many landmarks are made."""
    rows = present(ds, task, PAPER_SAMPLING)
    lines = [[named(row), *_ablation_cells(ds, task, row), f"{PAPER_SAMPLING[row]:.1f}"] for row in rows]
    notes = [noted(ds, task, rows), "paper: top-1 on ImageNet-1k, Tiny, with its own number of landmarks"]
    title = f"How landmarks are made, {task}"
    return Table(title, ["landmarks", *_ABLATION, "paper [%]"], lines, notes) if len(lines) > 1 else None


_ABLATION = ("accuracy [%]", "log loss", "against the default", "train s")


def _ablation_cells(ds: xr.Dataset, task: str, row: str) -> list[str]:
    part = ds.sel(task=task, row=row)
    cells = [spread(part["accuracy"], 100), spread(part["log_loss"], digits=3), _gain(ds, task, row, "soft")]
    return [*cells, spread(part["train_seconds"], digits=0)]


def grid(ds: xr.Dataset, row: str) -> str:
    """The landmarks of a row as their grid and number."""
    default = json.loads(ds.attrs["config"])["landmarks"]
    side = ROWS[row].side or default
    return f"{side}x{side} = {side * side}" + (" (the default)" if side == default else "")


def _spread_table(ds: xr.Dataset, task: str) -> Table | None:
    """What the spread of the first weights does to each row."""
    found = [name for name in present(ds, task, NARROW) if present(ds, task, [name.partition(",")[0]])]
    rows = [(name, ds.sel(task=task, row=name), ds.sel(task=task, row=name.partition(",")[0])) for name in found]
    lines = [
        [name.partition(",")[0], *(spread(part["accuracy"], 100) for part in (wide, narrow)), _gain(ds, task, name, name.partition(",")[0])]
        for name, narrow, wide in rows
    ]
    header = ["attention", "accuracy [%], spread 0.05", "0.02", "of the second"]
    return Table(f"Spread of the first weights, {task}", header, lines, [noted(ds, task, found)]) if lines else None


def named(row: str) -> str:
    """A row of an ablation without what all rows share."""
    return "means of windows (the default)" if row == "soft" else row.removeprefix("soft, ").removesuffix(" landmarks")


def _ablation_verdicts(ds: xr.Dataset, task: str) -> list[str]:
    rows = present(ds, task, ["soft", *BOTTLENECK, *SAMPLING])
    if "soft" not in rows:
        return []
    return [line for row in rows if row != "soft" and (line := compared(ds, task, row, "soft"))]


# ---- spectral norms ----------------------------------------------------------------------------------------------------------------------


def _norm_table(ds: xr.Dataset) -> Table:
    rows, tokens = [], np.array([])
    for row in [row for row in NORMS if row in ds["row"].values]:
        tokens, norms = norms_of(ds, row)
        if len(tokens):
            growth = f"{slope(tokens, norms.mean(0)):z.2f}" if len(tokens) > 1 else "-"
            rows.append([row, *(f"{value:.3g}" for value in norms.mean(0)), growth])
    header = ["attention", *(f"{n:.0f} tokens" for n in tokens), "exponent"]
    note = "N(0, 1) tokens of width 32, random tokens as landmarks; exponent: slope of the logarithms"
    return Table("Spectral norm of the attention matrix", header, rows, [note])


def norms_of(ds: xr.Dataset, row: str) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of tokens (length,) and norms (seed, length) of the seeds that ran."""
    part = ds.sel(task=RANDOM, row=row)
    ran = part["norm"].notnull().all("length").values
    return part["tokens"].values[ran][:1].ravel(), part["norm"].values[ran]


def slope(x: np.ndarray, y: np.ndarray) -> float:
    """Of log y against log x."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def _norm_verdicts(ds: xr.Dataset) -> list[str]:
    """Which norms grow with the number of tokens: whose exponent is above 0.1 on every seed."""
    lines = []
    for row in [row for row in NORMS if row in ds["row"].values]:
        tokens, norms = norms_of(ds, row)
        if len(tokens) > 2 and len(norms):
            slopes, ends = ([slope(tokens[k:], each[k:]) for each in norms] for k in (0, len(tokens) - 2))
            word = "grows" if min(slopes) > 0.1 else "does not grow" if max(slopes) <= 0.1 else "grows on some seeds only"
            found = f"exponents {min(slopes):z.2f} to {max(slopes):z.2f}" if len(slopes) > 1 else f"exponent {slopes[0]:z.2f} on one seed"
            local = f"{min(ends):z.2f} to {max(ends):z.2f}" if len(ends) > 1 else f"{ends[0]:z.2f}"
            lines.append(f"spectral norm of {row} {word} with the number of tokens ({found}; {local} between the two largest numbers).")
    return lines


# ---- learning rates ----------------------------------------------------------------------------------------------------------------------


def _rates(ds: xr.Dataset) -> tuple[Table, dict[str, float]] | None:
    """Validation loss of each row at each rate, and the best rates; None where the part did not run."""
    losses: dict[str, dict[float, float]] = {}
    for row in TUNED:
        for text in (str(name) for name in ds["row"].values):
            rate = text.removeprefix(f"{row}, lr ")
            if rate != text and text == rated(row, float(rate)):
                values = ds["validation_loss"].sel(row=text).values
                losses.setdefault(row, {})[float(rate)] = float(np.nanmean(values)) if np.isfinite(values).any() else math.nan
    rates = sorted({rate for found in losses.values() for rate in found})
    rows = [[row, *(_loss(losses[row].get(rate, math.nan)) for rate in rates)] for row in losses]
    known = {row: {rate: loss for rate, loss in found.items() if math.isfinite(loss)} for row, found in losses.items()}
    best = {row: min(found, key=lambda rate: found[rate]) for row, found in known.items() if found}
    if not best:
        return None
    edge = [row for row, rate in best.items() if rate in (rates[0], rates[-1])]
    notes = [f"at the end of the rates that were tried, so perhaps not the best there is: {', '.join(edge)}"] if edge else []
    table = Table("Validation loss at each learning rate", ["attention", *(f"{rate:g}" for rate in rates)], rows, notes)
    return table, best


def _loss(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "-"
