"""Learned kernels: spectral densities and Gram matrices before and after."""

from __future__ import annotations

import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.plots.panels import BLACK, GREY, RED, axes_of, edges_of, finish, panels_of


def plot_spectrum(ds: xr.Dataset, task: str, *, along: str = "frequency", ax: Axes | None = None) -> Axes:
    """Density of the particles before and after, of one coordinate (``along="frequency"``) or of their lengths (``along="radius"``)."""
    ax = axes_of(ax)
    name, label = {"frequency": ("marginal_density", "w along the leading direction"), "radius": ("radial_density", "length |w|")}[along]
    for stage, colour, style in (("start", GREY, "-"), ("learned", RED, "-")):
        values = ds[name].sel(task=task, stage=stage)
        ax.stairs(
            values,
            edges_of(ds[along].values),
            color=colour,
            linestyle=style,
            linewidth=1.8,
            label=stage,
            fill=stage == "start",
            alpha=0.45 if stage == "start" else 1,
        )
    ax.legend(frameon=False)
    ax.set_ylim(bottom=0)
    return finish(ax, f"{task}: spectral density", f"{label} [1 / input unit]", "density")


def plot_gram(ds: xr.Dataset, task: str, stage: str, *, ax: Axes | None = None) -> Axes:
    """Gram matrix of test points ordered by their label; the lines part the labels."""
    ax = axes_of(ax, 4.2, 3.8)
    gram, border = ds["gram"].sel(task=task, stage=stage).values, float((ds["gram_label"].sel(task=task) == 0).sum()) - 0.5
    image = ax.imshow(gram, vmin=-1, vmax=1, cmap="RdBu_r", interpolation="nearest")
    ax.axhline(border, color=BLACK, linewidth=0.8)
    ax.axvline(border, color=BLACK, linewidth=0.8)
    ax.set_xticks([border / 2, (border + len(gram)) / 2], ["label 0", "label 1"])
    ax.set_yticks([border / 2, (border + len(gram)) / 2], ["label 0", "label 1"], rotation=90, va="center")
    ax.tick_params(length=0)
    ax.figure.colorbar(image, ax=ax, label="k(x, x')", shrink=0.85)
    ax.set_title(f"{task}: kernel, {stage}", fontsize=11, loc="left")
    return ax


def figure_learned_kernels(ds: xr.Dataset) -> Figure:
    """For each task of a kernel_learning Dataset: two spectral densities and the Gram matrix before and after."""
    tasks = [str(task) for task in ds["task"].values]
    figure, axes = panels_of(4 * len(tasks), 16, 3.9 * len(tasks), len(tasks))
    for row, task in enumerate(tasks):
        first, second, third, fourth = axes[4 * row : 4 * row + 4]
        plot_spectrum(ds, task, along="radius", ax=first)
        plot_spectrum(ds, task, along="frequency", ax=second)
        plot_gram(ds, task, "start", ax=third)
        plot_gram(ds, task, "learned", ax=fourth)
    return figure
