"""The film of a learning kernel: what one saved step looks like, and all of them one after the other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.plots.panels import BLUE, GREY, RED, axes_of, finish
from particles.plots import plot_gram

DPI = 90  # of the film, 810 pixels wide


def plot_plane(ds: xr.Dataset, step: int, *, ax: Axes | None = None) -> Axes:
    """Particles of one saved step in the plane of the two leading learned directions, over the power spectrum of the labels there."""
    ax = axes_of(ax, 4.6, 4.2)
    reach, top = float(ds["plane"].max()), float(ds["power"].max())
    extent = (-reach, reach, -reach, reach)
    ax.imshow(ds["power"].values.T, extent=extent, origin="lower", cmap="Blues", vmin=0, vmax=1.4 * top, interpolation="bilinear")
    first, second = ds["plane_omega"].sel(step=step).values.T
    ax.scatter(np.append(first, -first), np.append(second, -second), s=22, color=RED, edgecolor="white", linewidth=0.5)
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach))
    return finish(ax, f"particles w and -w, step {step}", "first leading direction", "second leading direction")


def plot_lengths(ds: xr.Dataset, step: int, *, ax: Axes | None = None) -> Axes:
    """Spectral density of the particles' lengths at one saved step, over that of the start."""
    ax = axes_of(ax)
    edges = np.linspace(0, float(np.ceil(ds["length"].max() * 2) / 2), 26)
    tallest = max(np.histogram(lengths, edges, density=True)[0].max() for lengths in ds["length"].values)
    start, now = (np.histogram(ds["length"].sel(step=when), edges, density=True)[0] for when in (ds["step"][0], step))
    ax.stairs(start, edges, color=GREY, fill=True, alpha=0.45, label="start")
    ax.stairs(now, edges, color=RED, linewidth=1.8, label=f"step {step}")
    ax.legend(frameon=False, loc="upper right", fontsize=9)
    ax.set_ylim(0, 1.05 * tallest)  # the same in every frame
    return finish(ax, "spectral density", "length |w| [1 / input unit]", "density")


def plot_progress(ds: xr.Dataset, step: int, *, ax: Axes | None = None) -> Axes:
    """Accuracy on clean test labels up to one saved step, beside that of as many fixed random features whose width was tuned."""
    ax = axes_of(ax)
    part, fixed = 100 * ds["accuracy"].sel(step=slice(None, step)), 100 * float(ds["fixed_accuracy"])
    ax.axhline(fixed, color=GREY, linestyle="--", linewidth=1.5, label="fixed random features, tuned")
    ax.plot(part["step"], part, color=BLUE, linewidth=2, label="learned particles")
    ax.plot(part["step"][-1:], part[-1:], color=BLUE, marker="o", markersize=5)
    values = np.append(100 * ds["accuracy"].values, [50, fixed])
    ax.set(xlim=(ds["step"][0], ds["step"][-1]), ylim=(values.min() - 2, values.max() + 4))
    ax.legend(frameon=False, loc="center right", fontsize=9)
    return finish(ax, f"accuracy on new points: {float(part[-1]):.0f} %", "step", "accuracy [%]")


def plot_kernel(ds: xr.Dataset, step: int, *, ax: Axes | None = None) -> Axes:
    """The kernel of some test points at one saved step, ordered by label and within one by direction."""
    ax = axes_of(ax, 3.8, 3.8)
    plot_gram(ds["gram"].sel(step=step).values, ds["gram_label"].values, limit=1.0, colorbar=False, ax=ax)
    ax.set_title("kernel of new points", fontsize=11, loc="left")
    return ax


def figure_learning(ds: xr.Dataset, step: int) -> Figure:
    """All views of one saved step."""
    figure = _figure()
    _draw(figure, ds, step)
    return figure


def animate_learning(ds: xr.Dataset, path: str | Path, *, fps: int = 7) -> Path:
    """Every saved step as one frame of a film, a .gif that repeats or an .mp4."""
    from particles.plots.film import Film

    figure, steps = _figure(), ds["step"].values
    return Film(figure, lambda i: _draw(figure, ds, int(steps[i])), len(steps), fps=fps).write(path, progress=False)


def _figure() -> Figure:
    """A square for the plane, and three panels right of it."""
    figure = Figure(figsize=(9, 4.5), dpi=DPI, layout="constrained")
    figure.subplot_mosaic([["plane", "kernel", "lengths"], ["plane", "progress", "progress"]], width_ratios=(2, 1, 1.1))
    return figure


def _draw(figure: Figure, ds: xr.Dataset, step: int) -> None:
    """One saved step on the panels of `_figure`."""
    for ax in figure.axes:
        ax.clear()
        DRAWN[str(ax.get_label())](ds, step, ax=ax)


DRAWN = {"plane": plot_plane, "kernel": plot_kernel, "lengths": plot_lengths, "progress": plot_progress}
