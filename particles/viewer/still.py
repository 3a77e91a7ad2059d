"""The picture that stands for a viewer where no kernel runs: exported notebooks, GitHub, documentation."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from particles.plots.courses import plot_energies
from particles.plots.density import plot_density
from particles.plots.scatter import plot_particles
from particles.viewer.recording import Recording

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def still(recording: Recording, frame: int, chain: int, colour: str) -> bytes:
    """A PNG of one frame of a chain: particles, radial density and energies; its titles count the particles that are not finite."""
    dataset = recording.source.dataset(chain)
    if not np.isfinite(recording.source.omega(chain, frame)).all(-1).any():
        return blank(f"no finite particle in step {recording.source.steps[frame]}")
    figure = _figure(12.0, 3.6)
    grid = figure.add_gridspec(1, 3, width_ratios=(1.2, 1, 1))
    space = {"projection": "3d"} if len(recording.dims) == 3 else {}
    values = None if colour == "none" else recording.parts[f"colour:{colour}"](chain, frame)
    style: dict[str, Any] = {} if values is None or not np.isfinite(values).any() else {"colour": values, "colour_label": colour}
    drawn = dataset.isel(particle=recording.shown)
    plot_particles(drawn, frame=frame, dims=recording.dims, ax=figure.add_subplot(grid[0], **space), **style)
    theory = recording.choices.theory or {}
    plot_density(dataset, frames=slice(frame, frame + 1), theory=theory.get("radial"), ax=figure.add_subplot(grid[1]))
    if "energy" in dataset:
        ax = plot_energies(dataset, ax=figure.add_subplot(grid[2]))
        ax.axvline(recording.source.steps[frame], color="0.5", linewidth=1, zorder=0)
    return _png(figure)


def blank(text: str) -> bytes:
    """A PNG that says `text`."""
    figure = _figure(4.0, 1.0)
    figure.text(0.5, 0.5, text, ha="center", va="center")
    return _png(figure)


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=72, facecolor="white")
    return buffer.getvalue()
