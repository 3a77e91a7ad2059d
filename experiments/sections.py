"""What each experiment's Dataset says: its tables, its pictures, and in words where the method helps and where it brings nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from experiments import kernel_claims, plots
from experiments.cli import experiment
from experiments.metrics import paired_difference
from experiments.report import Section, Table, figure_bytes, p_value, signed, spread, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KERNEL_METHODS = {
    "particles": "learned particles",
    "importance": "importance sampling",
    "rff": "tuned random features",
    "svm": "tuned RBF-SVM",
}
SEED_NOTE = "mean ± standard deviation over seeds; every choice is made on the training part; differences below are paired by seed"


def compare(part: xr.Dataset, first: str, second: str, names: dict[str, str], what: str) -> str:
    """One sentence on the paired differences of two methods in accuracy and log loss (method, seed); one seed gives no interval."""
    pair = f"{what}: {names.get(first, first)} against {names.get(second, second)}"
    accuracy, loss = (np.array([part[name].sel({"method": method}) for method in (first, second)]) for name in ("accuracy", "log_loss"))
    both = np.isfinite(accuracy).all(0)  # only seeds that ran for both
    accuracy, loss = accuracy[:, both], loss[:, both]
    if not both.any():
        return f"{pair}: not both were run."
    points = verdict(paired_difference(*accuracy))
    if len(accuracy[0]) < 2:
        return f"{pair}: {points}."
    nats = verdict(paired_difference(loss[1], loss[0]), unit="nats gained", scale=1.0, digits=3)
    return f"{pair}: accuracy {points}; log loss {nats}."


# ---- (a) gas -----------------------------------------------------------------------------------------------------------------------------


def gas(ds: xr.Dataset) -> Section:
    """Laws of the gas."""
    rows = []
    for law in ds["law"].values:
        row = ds.sel(law=law)
        rejected = "rejected" if not bool(row["passed_control"]) else "NOT REJECTED"
        values = [f"{float(row[name]):z.5f}" for name in ("measured", "standard_error", "predicted")]
        rows.append(
            [
                str(law),
                *values,
                signed(float(row["z"])),
                p_value(float(row["p_value"])),
                "yes" if bool(row["passed"]) else "NO",
                f"{rejected} ({float(row['z_control']):+.0f})",
            ]
        )
    error = float(np.abs(ds["ground_state"] - ds["hermite"]).max())
    rows.append([f"Hermite zeros, N = {ds.sizes['site']}", f"{error:.1e}", "-", "0", "-", "-", "yes" if error < 1e-12 else "NO", "-"])
    table = Table(
        "A log gas in a quadratic trap against exact laws",
        ["law", "measured", "std. error", "predicted", "z", "p", "holds", "control (z)"],
        rows,
        ["z: distance in standard errors; p: of such a distance, by Student's law where the chains are few; a law holds while p times the",
         "number of laws that are tested together is above 0.001. Control: the same run labelled with a temperature (in 1 dimension a",
         "repulsion) 20 % off, or for free particles with a step of a tenth; the check must reject it.",
         "density: largest deviation of the cumulative distribution at nine deciles. Hermite zeros: largest error of a position."],
    )  # fmt: skip
    n_passed = int(ds["passed"].sum()) + (error < 1e-12)
    words = f"{n_passed} of {len(rows)} laws hold; {int((~ds['passed_control']).sum())} of {ds.sizes['law']} controls are rejected."
    if ds["passed_control"].any():
        words += " Where a control is not rejected the run is too small to tell false from true, and that its law holds says little."
    text = (
        "Before particles learn anything, they are checked. A gas that repels itself by -log r in a trap |x|²/2 has laws that are exact "
        "for every number of particles, and known shapes when there are many."
    )
    return Section("(a) The particles obey their laws", text, [table], {"gas.png": GAS_CAPTION}, [words])


GAS_CAPTION = (
    "Left: the last frame of one chain in the plane, with the zero-temperature ball. Second: density against radius; temperature "
    "softens the edge. Third: second moment in time, one line a chain, with the exact law (dashed) and that of a temperature 20 % off. "
    "Right: density on the line with the semicircle; ticks below are the zero-temperature positions, on the Hermite zeros."
)


# ---- (b) kernels -------------------------------------------------------------------------------------------------------------------------


def kernel_learning(ds: xr.Dataset) -> Section:
    """Learned kernels against fixed and reweighted features and an SVM."""
    tables, verdicts = [], []
    for task in ds["task"].values:
        part = ds.sel(task=task)
        rows = [
            [
                KERNEL_METHODS.get(str(method), str(method)),
                spread(part["accuracy"].sel({"method": method}), 100),
                spread(part["log_loss"].sel({"method": method}), digits=3),
                spread(part["brier"].sel({"method": method}), digits=3),
                spread(part["seconds"].sel({"method": method}), digits=1),
            ]
            for method in part["method"].values
        ]
        notes = [SEED_NOTE, "accuracy on clean test labels; log loss and Brier on test labels with the same flips as the training labels"]
        tables.append(Table(f"{task}, seeds: {ds.sizes['seed']}", ["method", "accuracy %", "log loss", "Brier", "seconds"], rows, notes))
        others = [str(method) for method in part["method"].values if method != "particles" and "particles" in part["method"].values]
        verdicts += [compare(part, "particles", other, KERNEL_METHODS, str(task)) for other in others]
    text = (
        "Inputs are Gaussian in 20 dimensions; the label depends on two or three hidden directions, and 10 % of the labels are flipped. "
        "Random features of a Gaussian kernel look everywhere. Particles that climb the alignment with the labels find the directions."
    )
    pictures = {"kernel_accuracy.png": "Accuracy on clean test labels: a dot for each seed, a bar at the mean."}
    if _with_kernels(ds).sizes["task"]:
        pictures["kernels.png"] = "Spectral density of the particles before and after, and the kernel between test points ordered by label."
    return Section("(b) A kernel learned from labels with hidden structure", text, tables, pictures, verdicts)


def _with_kernels(ds: xr.Dataset) -> xr.Dataset:
    """The tasks whose learned kernel is there: that of the first seed's particles."""
    known = ds["gram"].notnull().all(["stage", "row", "column"]).values if "gram" in ds else np.zeros(ds.sizes["task"], bool)
    return ds.isel(task=np.flatnonzero(known))


def film(ds: xr.Dataset) -> Section:
    """One fit, followed step by step."""
    first, last = (float(ds["alignment"].isel(step=index)) for index in (0, -1))
    text = (
        "The blue field is the power spectrum of the labels in the plane of the two leading learned directions: it pulls on the "
        "particles. Repulsion, noise and a weak trap keep the particles from falling onto one point. The kernel between new points is "
        "ordered by their label and within one by direction; red is positive, blue negative."
    )
    start, end, fixed = (100 * float(value) for value in (ds["accuracy"][0], ds["accuracy"][-1], ds["fixed_accuracy"]))
    words = [
        f"Alignment with the training labels rises from {first:.4f} to {last:.4f} in {int(ds['step'][-1])} steps.",
        f"Accuracy on new points: {start:.1f} % at the start, {end:.1f} % at the end, {fixed:.1f} % with fixed features of tuned width.",
    ]
    config = json.loads(ds.attrs["config"])
    pictures = {"learning.gif": f"{config['task']}: a frame every {config['save_every']} steps."}
    return Section("(b) Particles and spectrum while they learn", text, [], pictures, words)


# ---- (c) matching ------------------------------------------------------------------------------------------------------------------------

MATCHING_PAIRS = (
    ("end to end", "softmax"),
    ("align", "shuffled"),
    ("align", "end to end"),
    ("align, unfreeze", "end to end"),
    ("align, unfreeze", "end to end, half width"),
    ("align, unfreeze", "shuffled, unfreeze"),
    ("known subspace, end to end", "align, unfreeze"),
    ("known subspace, end to end", "end to end, half width"),
)


def matching(ds: xr.Dataset) -> Section:
    """Attention where the kernel's shape is all there is to learn."""
    tasks = [str(task) for task in ds["task"].values]
    rows = []
    for method in ds["method"].values:
        part = ds.sel({"method": method})
        cells = [spread(part["accuracy"].sel(task=task), 100) for task in tasks]
        ranks = [spread(part["effective_rank"].sel(task=task)) for task in tasks]
        rows.append([str(method), *cells, *ranks, spread(part["seconds"].mean("task"))])
    header = ["method", *(f"{task} %" for task in tasks), *(f"{task} rank" for task in tasks), "seconds"]
    notes = [
        f"seeds: {ds.sizes['seed']}, mean ± standard deviation; rank: effective rank of the features",
        "align: Phase A, then frozen; unfreeze: trained on after it; controls: Phase A on shuffled labels, and a start half as wide",
    ]
    present = set(map(str, ds["method"].values))
    verdicts = [
        compare(ds.sel(task=task), first, second, {}, task)
        for task in tasks
        for first, second in MATCHING_PAIRS
        if {first, second} <= present
    ]
    text = (
        "Each sequence shows 32 tokens with labels and asks for the labels of 32 others. Which tokens belong together is a hidden rule; "
        "what each group is called changes from sequence to sequence. Queries and keys are the tokens themselves: only the kernel learns."
    )
    pictures = {
        "matching_accuracy.png": "Accuracy on fresh sequences: a dot for each seed, a bar at the mean.",
        "matching_attention.png": "Attention of one test sequence, tokens ordered by label, black lines part the labels: blocks mean that "
        "like attends to like.",
    }
    if not plots.attention_shown(ds)[0]:
        del pictures["matching_attention.png"]
    title = "(c) A learned kernel inside attention, where its shape decides"
    tables = [Table("In-context matching", header, rows, notes)]
    if "known rule" in present:  # the table with every control
        tables.append(kernel_claims.bars_table("Claims", kernel_claims.matching_bars(ds)))
    return Section(title, text, tables, pictures, verdicts)


# ---- (d) classify ------------------------------------------------------------------------------------------------------------------------

CLASSIFY_PAIRS = (
    ("align", "fixed"),
    ("align", "shuffled"),
    ("align", "softmax"),
    ("align, unfreeze", "align"),
    ("align, unfreeze", "end to end"),
    ("align, unfreeze", "softmax"),
)


def classify(ds: xr.Dataset) -> Section:
    """The kernel inside a linear transformer on real data, against its controls."""
    rows = []
    for method in ds["method"].values:
        part = ds.sel({"method": method})
        low, high = (100 * float(part[f"accuracy_{end}"].mean()) for end in ("low", "high"))
        scores = [spread(part[name], digits=3) for name in ("log_loss", "brier", "calibration_error")]
        before, after = (spread(part[f"holdout_{when}"].mean(keepdims=True), digits=3) for when in ("before", "after"))
        seconds = [spread(part["training_seconds"], digits=1), spread(1000 * part["inference_seconds"], digits=0)]
        alignment = "-" if before == "-" else f"{before} → {after}"
        rows.append([str(method), spread(part["accuracy"], 100), f"{low:.1f} to {high:.1f}", *scores, alignment, *seconds])
    facts = json.loads(ds.attrs["data"])
    header = ["method", "accuracy %", "95 % interval", "log loss", "Brier", "ECE", "alignment", "train s", "test ms"]
    notes = [
        f"seeds: {ds.sizes['seed']}, mean ± standard deviation; interval: Wilson's for one run on {facts['n_test']} test sequences",
        "alignment: of the kernel with held-out labels, before → after Phase A. softmax: ordinary attention; the others: linear in length",
        "fixed: random particles; align: Phase A, then frozen; unfreeze: trained on after it; shuffled: Phase A on permuted labels, frozen",
    ]
    title = f"{facts['name']}: {facts['n_train']} training sequences of at most {facts['max_length']} tokens, {facts['n_classes']} classes"
    present = set(map(str, ds["method"].values))
    verdicts = [compare(ds, *pair, {}, facts["name"]) for pair in CLASSIFY_PAIRS if set(pair) <= present]
    text = (
        f"One transformer block, {facts['source']}. Phase A moves the particles of each head so that its kernel agrees with the labels; "
        "Phase B trains the rest with the particles frozen, or released. The same model with softmax attention, with particles left as "
        "drawn, and with particles aligned to permuted labels tells what the labels were worth. Queries and keys can adapt here, so little "
        "is expected."
    )
    pictures = {
        "classify.png": "Accuracy and log loss, a dot for each seed and a bar at the mean. Right, without shuffled and end to end: "
        "are the probabilities honest?"
    }
    return Section("(d) The learned kernel in a linear transformer", text, [Table(title, header, rows, notes)], pictures, verdicts)


# ---- figures -----------------------------------------------------------------------------------------------------------------------------


def section(name: str, ds: xr.Dataset) -> Section:
    """What a Dataset of an experiment says."""
    return SECTIONS[name](ds) if name in SECTIONS else experiment(name).section(ds)


def figures(name: str, ds: xr.Dataset) -> dict[str, Figure]:
    """The figures of an experiment by file name."""
    return FIGURES[name](ds) if name in FIGURES else experiment(name).figures(ds)


def draw(name: str, ds: xr.Dataset, folder: Path) -> None:
    """Write every picture of an experiment into a folder."""
    for file, figure in figures(name, ds).items():
        (folder / file).write_bytes(figure_bytes(figure))
    if name == "film":
        plots.animate_learning(ds, folder / "learning.gif")


SECTIONS: dict[str, Callable[[xr.Dataset], Section]] = {
    "gas": gas,
    "kernel_learning": kernel_learning,
    "film": film,
    "classify": classify,
}
FIGURES: dict[str, Callable[[xr.Dataset], dict[str, Figure]]] = {
    "gas": lambda ds: {"gas.png": plots.figure_gas(ds)},
    "kernel_learning": lambda ds: {
        "kernel_accuracy.png": plots.figure_accuracy(ds, labels=KERNEL_METHODS, chance=[0.5] * ds.sizes["task"]),
        **({"kernels.png": plots.figure_learned_kernels(shown)} if (shown := _with_kernels(ds)).sizes["task"] else {}),
    },
    "film": lambda ds: {},
    "classify": lambda ds: {"classify.png": plots.figure_classify(ds)},
}
