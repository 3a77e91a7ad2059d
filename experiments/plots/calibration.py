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
    parts = [ds["probability"].sel({"method": name}).transpose("seed", "row", "class").values.astype(float) for name in shown]
    labels = np.tile(ds["label"].values, ds.sizes["seed"])
    tables = [metrics.reliability_table(part.reshape(-1, part.shape[-1]), labels, n_bins=10) for part in parts]
    return _drawn(shown, tables, ax)


def plot_reliability_tables(
    tables: xr.DataArray, *, along: str = "row", labels: dict[str, str] | None = None, ax: Axes | None = None
) -> Axes:
    """The same from stored tables, a line for each value of `along`; seeds that have one are put together, bin by bin.

    tables : (along, bin, column) or (along, seed, bin, column), the three columns of `metrics.reliability_table`, NaN throughout where a
    unit did not run. Bins with at most 1 % of the rows are left out. ValueError for other dimensions.
    """
    sizes = dict(getattr(tables, "sizes", {}))
    if set(sizes) - {"seed"} != {along, "bin", "column"} or sizes["column"] != 3 or not sizes[along]:
        raise ValueError(f"tables must have the dimensions ({along}, bin, column), and seed if there are seeds, got {sizes or tables!r}")
    found = tables if "seed" in sizes else tables.expand_dims("seed")
    names = [str(name) for name in found[along].values]
    values = found.transpose(along, "seed", "bin", "column").values
    return _drawn([(labels or {}).get(name, name) for name in names], [_pooled(table) for table in values], ax)


def _pooled(tables: np.ndarray) -> np.ndarray:
    """Tables (seed, bin, 3) of equally many rows as one table; NaN where a bin is empty in all."""
    ran = tables[np.isfinite(tables[..., 2]).all(1)]
    share = ran[..., 2:]
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.where(share > 0, ran[..., :2] * share, 0).sum(0) / share.sum(0)
    return np.concatenate((means, share.sum(0) / max(len(ran), 1)), axis=1)


def _drawn(names: Sequence[str], tables: Sequence[np.ndarray], ax: Axes | None) -> Axes:
    """One line a table (bin, 3); bins with a handful of rows say nothing and are left out."""
    ax = axes_of(ax, 4.2, 4.0)
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=":")
    for k, (name, (right, stated, share)) in enumerate(zip(names, (table.T for table in tables), strict=True)):
        kept = share > 0.01
        style: dict[str, Any] = {"color": COLOURS[k % 7], "marker": MARKERS[k % 7], "linestyle": ("-", "--")[k // 7 % 2]}
        ax.plot(stated[kept], right[kept], markersize=5, linewidth=1.2, label=name if kept.any() else f"{name} (not run)", **style)
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
