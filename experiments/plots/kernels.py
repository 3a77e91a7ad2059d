"""Learned kernels: spectral densities and Gram matrices before and after."""

from __future__ import annotations

import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.plots.panels import GREY, RED, axes_of, edges_of, finish, panels_of
from particles import plots as particle_plots


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
    ax.legend(frameon=False, loc="upper right", ncols=2, fontsize=9)
    ax.set_ylim(0, 1.2 * float(ds[name].sel(task=task).max()))  # room for the legend
    return finish(ax, f"{task}: spectral density", f"{label} [1 / input unit]", "density")


def plot_gram(ds: xr.Dataset, task: str, stage: str, *, ax: Axes | None = None) -> Axes:
    """Gram matrix of test points ordered by their label; the lines part the labels."""
    ax = axes_of(ax, 4.2, 3.8)
    labels = ds["gram_label"].sel(task=task).values
    particle_plots.plot_gram(ds["gram"].sel(task=task, stage=stage).values, labels.astype(int), limit=1.0, ax=ax)
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
