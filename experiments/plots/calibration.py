"""How honest stated probabilities are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import metrics
from experiments.plots.methods import plot_methods
from experiments.plots.panels import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, axes_of, finish, panels_of

COLOURS, MARKERS = (BLACK, ORANGE, SKY, GREEN, RED, PINK, BLUE), "os^vDPX"


def plot_reliability(ds: xr.Dataset, *, methods: Sequence[str] | None = None, ax: Axes | None = None) -> Axes:
    """Share of right answers against the stated probability of the most probable class, all seeds together; on the diagonal is honest.

    ds : probability (method, seed, row, class), whose rows sum to 1, and label (row). Bins with at most 1 % of the rows are left out.
    ValueError if it holds something else, or none of `methods`.
    """
    held = set(getattr(ds, "data_vars", ()))
    if not {"probability", "label"} <= held or set(ds["probability"].dims) != {"method", "seed", "row", "class"}:
        raise ValueError(f"ds must hold probability (method, seed, row, class) and label (row), got {getattr(ds, 'sizes', ds)!r}")
    shown = [str(method) for method in ds["method"].values if methods is None or method in methods]
    if not shown:
        raise ValueError(f"methods must name some of {ds['method'].values.tolist()}, got {methods!r}")
    ax = axes_of(ax, 4.2, 4.0)
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=":")
    for k, name in enumerate(shown):
        part = ds["probability"].sel({"method": name}).transpose("seed", "row", "class").values
        labels = np.tile(ds["label"].values, len(part))
        probabilities = part.reshape(-1, part.shape[-1]).astype(float)
        _, right, stated, share = metrics.reliability(probabilities, labels, n_bins=10)
        kept = share > 0.01  # bins with a handful of rows say nothing
        style: dict[str, Any] = {"color": COLOURS[k % 7], "marker": MARKERS[k % 7], "linestyle": ("-", "--")[k // 7 % 2]}
        ax.plot(stated[kept], right[kept], markersize=5, linewidth=1.2, label=name, **style)
    ax.legend(frameon=False, fontsize=8, loc="upper left")
    ax.set_aspect("equal")
    return finish(ax, "reliability", "stated probability", "share right")


def figure_classify(ds: xr.Dataset) -> Figure:
    """Accuracy, log loss and reliability of a classify Dataset."""
    figure, (first, second, third) = panels_of(3, 14, 4.0)
    plot_methods(ds["accuracy"], ax=first, title="accuracy")
    plot_methods(ds["log_loss"], ax=second, title="log loss", unit="log loss [nats]", scale=1.0)
    second.set_yticklabels([])
    plot_reliability(ds, methods=("softmax", "fixed", "align", "align, unfreeze"), ax=third)
    return figure
