"""Tables, verdicts and pictures of `long_range`, from its Dataset alone; see `linear_tables` for the comparisons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import xarray as xr

from experiments import linear_tables
from experiments.claims.flexformer import LRA
from experiments.linear_tables import Gain, drawn_differences, drawn_rows, main_rows
from experiments.long_range import REDUCED, TASKS
from experiments.report import Section, Table, spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLES = {
    "listops": "ListOps",
    "text": "Text (bytes)",
    "retrieval": "Retrieval",
    "image": "Image (pixels)",
    "pathfinder": "Pathfinder",
}
TEXT = (
    "Flexformer's table of the Long Range Arena at this machine's scale. Rows of a task share sizes, data, epochs and the batches of a "
    "seed; the learning rate is each family's own, chosen on validation data of another seed."
)
GAIN = Gain("correct", 1, "test accuracy", "test accuracy that the first row gains, over seeds and examples")
CAPTIONS = {
    "long_range_accuracy.png": "Test accuracy: a dot a seed, a bar their mean; dotted: always the commonest class of "
    "our data; a triangle: the paper's figure at full length and size, on its own data, whose commonest class is another.",
    "long_range_differences.png": "Differences of test accuracy with intervals over seeds and examples.",
}
COLUMNS = {
    "log loss": ("log_loss", "mean", ".3f"),
    "seconds": ("training_seconds", "mean", ".0f"),
    "parameters": ("n_parameters", "max", ",.0f"),
}


def section(ds: xr.Dataset) -> Section:
    """What was measured, beside the paper's figures; what the comparisons say; how many units ran."""
    how: dict[str, Any] = {"title": "Long-range tasks", "text": TEXT, "reduced": REDUCED, "captions": CAPTIONS}
    return linear_tables.section(ds, GAIN, own=lambda table: [accuracies(table), details(table)], **how)


def accuracies(ds: xr.Dataset) -> Table:
    """Mean and deviation over seeds of every row and task, and the paper's figure."""
    tasks = [task for task in TASKS if task in ds["task"].values]
    header = ["row", *(title for task in tasks for title in (TITLES[task], "paper"))]
    rows = []
    for name in (str(name) for name in ds["row"].values):
        cells = [name]
        for task in tasks:
            paper = LRA[name][TASKS.index(task)] if name in LRA else None
            cells += [spread(ds["accuracy"].sel(task=task, row=name), 100.0), "-" if paper is None else f"{paper:.1f}"]
        rows.append(cells)
    chance = ", ".join(f"{TITLES[task]} {100 * float(ds['chance'].sel(task=task).max()):.1f}" for task in tasks)
    notes = [
        "accuracy on the test part [%], mean ± standard deviation over seeds; paper: the figure at full length and size",
        f"the commonest class: {chance}",
    ]
    return Table("Accuracy", header, rows, notes)


def details(ds: xr.Dataset) -> Table:
    """Log loss, time, trained parameters, denominators that are not positive, and what Phase A did."""
    note = "parameters: of the largest model; alignment: centred kernel alignment with labels"
    return linear_tables.details(ds, COLUMNS, "Means over tasks and seeds", note)


def figures(ds: xr.Dataset) -> dict[str, Figure]:
    """Accuracies of all rows, and the differences that the verdicts are about."""
    table = main_rows(ds)
    if not table.sizes["row"]:
        return {}
    tasks = [task for task in TASKS if task in table["task"].values]
    drawn = drawn_rows(table, tasks, 3.2 + 2.9 * len(tasks), _accuracies)
    return dict(zip(CAPTIONS, (drawn, *drawn_differences(table, GAIN, TITLES))))


def _accuracies(one: xr.Dataset, ax: Axes) -> None:
    """One task, with the paper's figures."""
    from experiments.plots import plot_methods
    from experiments.plots.panels import ORANGE

    task, names = str(one["task"].values), [str(name) for name in one["row"].values]
    unit, chance = "accuracy [%]; triangles: the paper", float(one["chance"].max())
    plot_methods(one["accuracy"].rename(row="method"), ax=ax, title=TITLES[task], unit=unit, chance=chance)
    paper = {name: LRA[name][TASKS.index(task)] for name in names if name in LRA}
    ax.plot(list(paper.values()), [names.index(name) for name in paper], "^", color=ORANGE, markersize=5, alpha=0.8)
