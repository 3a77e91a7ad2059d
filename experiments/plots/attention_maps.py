"""Attention of one test sequence under each method."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.plots.panels import BLACK, axes_of, panels_of


def plot_attention(ds: xr.Dataset, task: str, method: str, *, ax: Axes | None = None) -> Axes:
    """Attention of one test sequence, rows scaled to their largest entry, tokens in the order of their labels; lines part the labels."""
    ax = axes_of(ax, 3.6, 3.6)
    part = ds.sel(task=task)
    ax.imshow(part["attention"].sel({"method": method}), vmin=-1, vmax=1, cmap="RdBu_r", interpolation="nearest", aspect="auto")
    for labels, line in ((part["query_label"], ax.axhline), (part["key_label"], ax.axvline)):
        for border in np.flatnonzero(np.diff(labels.values)):
            line(border + 0.5, color=BLACK, linewidth=0.7)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set_title(f"{task}: {method}", fontsize=10, loc="left")
    ax.set_xlabel("tokens with labels")
    ax.set_ylabel("tokens asked for")
    return ax


METHODS = ("softmax", "fixed", "end to end", "align", "align, unfreeze")


def attention_shown(ds: xr.Dataset, methods: Sequence[str] = METHODS) -> tuple[list[str], list[str]]:
    """Tasks and methods of which an attention is kept."""
    if not {"attention", "query_label", "key_label"} <= set(ds.data_vars):
        return [], []
    kept = ds["attention"].notnull().any([dim for dim in ds["attention"].dims if dim not in ("task", "method")])
    shown = [method for method in methods if method in ds["method"].values and bool(kept.sel({"method": method}).any())]
    return [str(task) for task in ds["task"].values if bool(kept.sel({"task": task, "method": shown}).any())], shown


def figure_attention(ds: xr.Dataset, methods: Sequence[str] = METHODS) -> Figure:
    """Attention of the methods of which the Dataset has one, one row a task; ValueError without any."""
    tasks, shown = attention_shown(ds, methods)
    if not tasks:
        raise ValueError(f"ds must hold attention of one of {tuple(methods)}, got {getattr(ds, 'sizes', ds)!r}")
    figure, axes = panels_of(len(tasks) * len(shown), 2.9 * len(shown), 3.1 * len(tasks), len(tasks))
    for ax, (task, method) in zip(axes, [(task, method) for task in tasks for method in shown]):
        plot_attention(ds, task, method, ax=ax)
    figure.colorbar(axes[-1].images[0], ax=list(axes), label="weight / largest of the row", shrink=0.7, pad=0.01)
    figure.suptitle("black lines: where one label ends and the next begins", fontsize=9, x=0.01, ha="left")
    return figure
