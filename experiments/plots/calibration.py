"""How honest stated probabilities are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import metrics
from experiments.plots.methods import plot_methods
from experiments.plots.panels import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, axes_of, finish, panels_of


def plot_reliability(ds: xr.Dataset, *, methods: Sequence[str] | None = None, ax: Axes | None = None) -> Axes:
    """Share of right answers against the stated probability of the most probable class, all seeds together; on the diagonal is honest."""
    ax = axes_of(ax, 4.2, 4.0)
    shown = [str(method) for method in ds["method"].values if methods is None or method in methods]
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=":")
    for name, colour, marker in zip(shown, (BLACK, ORANGE, SKY, GREEN, RED, PINK, BLUE), "os^vDPX"):
        part = ds["probability"].sel({"method": name}).transpose("seed", "row", "class").values
        labels = np.tile(ds["label"].values, len(part))
        probabilities = part.reshape(-1, part.shape[-1]).astype(float)
        _, right, stated, share = metrics.reliability(probabilities, labels, n_bins=10)
        kept = share > 0.01  # bins with a handful of rows say nothing
        ax.plot(stated[kept], right[kept], color=colour, marker=marker, markersize=5, linewidth=1.2, label=name)
    ax.legend(frameon=False, fontsize=8, loc="upper left")
    return finish(ax, "reliability", "stated probability", "share right")


def figure_classify(ds: xr.Dataset) -> Figure:
    """Accuracy, log loss and reliability of a classify Dataset."""
    figure, (first, second, third) = panels_of(3, 14, 4.0)
    plot_methods(ds["accuracy"], ax=first, title="accuracy")
    plot_methods(ds["log_loss"], ax=second, title="log loss", unit="log loss [nats]", scale=1.0)
    second.set_yticklabels([])
    plot_reliability(ds, methods=("softmax", "fixed", "align", "align, unfreeze"), ax=third)
    return figure
