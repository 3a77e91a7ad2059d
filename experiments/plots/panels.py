"""What the figures share: colours, Axes, labels. Colours are Okabe and Ito's, told apart by every kind of colour vision."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

BLACK, ORANGE, SKY, GREEN, BLUE, RED, PINK = "#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#8c8c8c"


def axes_of(ax: Axes | None, width: float = 5.0, height: float = 3.8) -> Axes:
    """The given Axes, or those of a new Figure that belongs to no window."""
    return Figure(figsize=(width, height), layout="constrained").add_subplot() if ax is None else ax


def finish(ax: Axes, title: str, xlabel: str, ylabel: str) -> Axes:
    """The Axes with title and labels, without the frame's upper and right side."""
    ax.set_title(title, fontsize=11, loc="left")
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def panels_of(n: int, width: float, height: float, n_rows: int = 1) -> tuple[Figure, list[Axes]]:
    """A new Figure of so many inches, and n panels in rows."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(n_rows, -(-n // n_rows), squeeze=False).ravel().tolist()
    for spare in axes[n:]:
        spare.set_axis_off()
    return figure, axes[:n]


def legend_beside(ax: Axes) -> None:
    """The legend right of the last panel."""
    ax.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.02, 0.5))


def edges_of(centres: Any) -> np.ndarray:
    """Edges of equal bins from their centres, two at least."""
    centres = np.asarray(centres, dtype=float)
    if centres.size < 2:
        raise ValueError(f"centres must be those of two bins at least, got {centres.tolist()}")
    half = (centres[1] - centres[0]) / 2
    return np.append(centres - half, centres[-1] + half)
