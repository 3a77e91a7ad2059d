"""Time or memory of attentions against the length of the sequence."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.efficiency import MATRIX, MODES, SOFTMAX
from experiments.efficiency_tables import exponent
from experiments.plots.panels import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, axes_of, finish, panels_of

STYLES = {  # colour, line, marker; families share a colour
    SOFTMAX: (BLACK, "-", "o"),
    MATRIX: (BLACK, ":", "s"),
    "linear": (GREY, "-", "^"),
    "cosformer": (GREY, "--", "v"),
    "polaformer": (GREY, ":", "D"),
    "performer": (SKY, "-", "^"),
    "softmaxfeat": (SKY, "--", "v"),
    "rfa": (ORANGE, "-", "^"),
    "flexformer": (ORANGE, "--", "v"),
    "flexformer-nonstationary": (ORANGE, ":", "D"),
    "hedgehog": (BLUE, "-", "^"),
    "exponential": (BLUE, "--", "v"),
    "soft": (GREEN, "-", "P"),
    "nystromformer": (RED, "-", "X"),
    "linformer": (PINK, "-", "*"),
}
UNITS = {"seconds": "time [ms]", "memory": "memory [MiB]"}


def plot_lengths_of(values: xr.DataArray, *, ax: Axes | None = None, title: str = "", unit: str = "time [ms]", scale: float = 1.0) -> Axes:
    """values (length, row, seed): a line of means an attention, with its fitted exponent in the legend; logarithmic axes."""
    ax = axes_of(ax)
    lengths = values["length"].values
    for name, (colour, line, marker) in STYLES.items():
        if name not in values["row"].values or not np.isfinite(values.sel(row=name)).any():
            continue
        part = values.sel(row=name).transpose("length", "seed")
        slope = exponent(lengths, part.values).value
        label = f"{name}, {slope:z.2f}" if np.isfinite(slope) else name
        ax.plot(lengths, scale * part.mean("seed"), color=colour, linestyle=line, marker=marker, markersize=4, linewidth=1.3, label=label)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(lengths, [str(n) for n in lengths], rotation=45)
    ax.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), title="with exponent", title_fontsize=7)
    return finish(ax, title, "tokens", unit)


def figure_efficiency(ds: xr.Dataset, measure: str = "seconds") -> Figure:
    """One panel a mode: "seconds" or "memory" of `efficiency`'s Dataset; ValueError for another measure."""
    if measure not in UNITS:
        raise ValueError(f"measure must be one of {tuple(UNITS)}, got {measure!r}")
    modes = [mode for mode in MODES if mode in ds["mode"].values]
    n_rows = -(-len(modes) // 2)
    figure, axes = panels_of(len(modes), 11.5 if len(modes) > 1 else 6.0, 3.6 * n_rows, n_rows)
    for mode, ax in zip(modes, axes):
        title = f"{mode}: kept between tokens" if (mode, measure) == ("decoding", "memory") else mode
        plot_lengths_of(ds[measure].sel(mode=mode), ax=ax, title=title, unit=UNITS[measure], scale=1e3 if measure == "seconds" else 1.0)
    return figure
