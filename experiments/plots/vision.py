"""Figures of the vision experiment."""

from __future__ import annotations

import numpy as np
import torch
import xarray as xr
from matplotlib.figure import Figure

from attention.softmax_free_plots import plot_spectral_norms
from experiments.plots.methods import plot_methods
from experiments.plots.panels import panels_of
from experiments.vision_rows import MAIN, NORMS
from experiments.vision_tables import drawn, grid, landmark_groups, named, norms_of, present, tasks_of


def figures_vision(ds: xr.Dataset) -> dict[str, Figure]:
    """Accuracy of the rows, landmarks and spectral norms, by file name; only those whose parts ran."""
    makers = {"accuracy.png": _accuracy, "landmarks.png": _landmarks, "norms.png": _norms}
    return {name: make(ds) for name, make in makers.items() if drawn(ds, name)}


def _accuracy(ds: xr.Dataset) -> Figure:
    """One panel a data set."""
    tasks = tasks_of(ds)
    rows = [row for row in MAIN if any(present(ds, task, [row]) for task in tasks)]
    figure, axes = panels_of(len(tasks), 2.2 + 4.2 * len(tasks), 1.2 + 0.34 * len(rows))
    for k, (task, ax) in enumerate(zip(tasks, axes)):
        values = ds["accuracy"].sel(task=task, row=rows).rename({"row": "method"}).transpose("method", "seed")
        plot_methods(values, ax=ax, title=task, unit="test accuracy [%]")
        if k:
            ax.set_yticklabels([])
    return figure


def _landmarks(ds: xr.Dataset) -> Figure:
    """How many, and how they are made."""
    task = tasks_of(ds)[-1]
    shown = landmark_groups(ds, task)
    figure, axes = panels_of(len(shown), 6.6 * len(shown), 2.8)
    for (title, rows), ax in zip(shown.items(), axes):
        values = ds["accuracy"].sel(task=task, row=rows).rename({"row": "method"}).transpose("method", "seed")
        labels = {row: grid(ds, row) if title == "number of landmarks" else named(row) for row in rows}
        plot_methods(values, ax=ax, labels=labels, title=f"{task}: {title}", unit="test accuracy [%]")
    return figure


def _norms(ds: xr.Dataset) -> Figure:
    """Against the number of tokens."""
    found = {row: norms_of(ds, row) for row in NORMS if row in ds["row"].values}
    found = {row: pair for row, pair in found.items() if len(pair[1])}
    tokens = next(iter(found.values()))[0]
    figure, (ax,) = panels_of(1, 7.0, 4.2)
    plot_spectral_norms(
        [int(n) for n in tokens], {row: torch.from_numpy(np.ascontiguousarray(norms.T)) for row, (_, norms) in found.items()}, ax=ax
    )
    return figure
