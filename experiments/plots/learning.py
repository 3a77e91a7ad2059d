"""The film of a learning kernel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from experiments.plots.panels import GREY, RED, axes_of, finish, panels_of


def plot_plane(ds: xr.Dataset, step: int, *, ax: Axes | None = None) -> Axes:
    """Particles of one saved step in the plane of the two leading learned directions, over the power spectrum of the labels there."""
    ax = axes_of(ax, 4.6, 4.2)
    reach = float(ds["plane"].max())
    ax.imshow(ds["power"].values.T, extent=(-reach, reach, -reach, reach), origin="lower", cmap="Greys", vmin=0, interpolation="bilinear")
    first, second = ds["plane_omega"].sel(step=step).values.T
    ax.scatter(np.append(first, -first), np.append(second, -second), s=16, color=RED, edgecolor="white", linewidth=0.4)
    ax.set_xlim(-reach, reach)
    ax.set_ylim(-reach, reach)
    return finish(ax, f"particles w and -w, step {step}", "first leading direction", "second leading direction")


def plot_lengths(ds: xr.Dataset, step: int, *, ax: Axes | None = None) -> Axes:
    """Spectral density of the particles' lengths at one saved step, over that of the start."""
    ax = axes_of(ax)
    edges = np.linspace(0, float(np.ceil(ds["length"].max() * 2) / 2), 26)
    tallest = max(np.histogram(lengths, edges, density=True)[0].max() for lengths in ds["length"].values)
    for when, colour, label in ((0, GREY, "start"), (step, RED, f"step {step}")):
        heights = np.histogram(ds["length"].sel(step=when), edges, density=True)[0]
        ax.stairs(
            heights, edges, color=colour, fill=when == 0 and colour == GREY, alpha=0.45 if colour == GREY else 1, linewidth=1.8, label=label
        )
    ax.legend(frameon=False, loc="upper right")
    ax.set_ylim(0, 1.05 * tallest)  # the same in every frame
    return finish(ax, f"spectrum; alignment {float(ds['alignment'].sel(step=step)):.3f}", "length |w| [1 / input unit]", "density")


def figure_learning(ds: xr.Dataset, step: int) -> Figure:
    """Both views of one saved step."""
    figure, (left, right) = panels_of(2, 8.4, 4.0)
    plot_plane(ds, step, ax=left)
    plot_lengths(ds, step, ax=right)
    return figure


def animate_learning(ds: xr.Dataset, path: str | Path, *, dpi: int = 72, milliseconds: int = 110) -> Path:
    """Every saved step as one frame of a GIF that repeats."""
    from PIL import Image

    frames = []
    for step in ds["step"].values:
        canvas = FigureCanvasAgg(figure_learning(ds, int(step)))
        canvas.figure.set_dpi(dpi)
        canvas.draw()
        frames.append(Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB").quantize(96, dither=Image.Dither.NONE))
    durations = [milliseconds] * (len(frames) - 1) + [12 * milliseconds]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=durations, loop=0, optimize=True)
    return Path(path)
