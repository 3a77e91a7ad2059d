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


def still(recording: Recording, frame: int, chain: int) -> bytes:
    """A PNG of one frame: particles, radial density and energies; particles that are not finite are left out, and counted."""
    dataset = recording.source.dataset()
    one = dataset.isel(step=[frame], chain=[chain])
    finite = np.isfinite(one.omega).all(("chain", "step", "dim")).to_numpy()
    if not finite.any():
        return blank(f"no finite particle in step {recording.source.steps[frame]}")
    one = one.isel(particle=finite).load()
    figure = _figure(9.0)
    left, middle, right = figure.subplots(1, 3)
    dims: Any = (recording.dims + recording.dims)[:2]
    if len(recording.dims) == 1:
        one_coordinate = one.isel(dim=[recording.dims[0]])
        plot_particles(one_coordinate.isel(particle=slice(0, recording.shown.size)), ax=left)
    else:
        plot_particles(one.isel(particle=recording.shown[recording.shown < one.sizes["particle"]]), dims=dims, ax=left)
    theory: Any = recording.theory.get("radial")
    plot_density(one, theory=theory, ax=middle)
    if "energy" in dataset:
        plot_energies(dataset, ax=right)
        right.axvline(recording.source.steps[frame], color="0.5", linewidth=1, zorder=0)
    if not finite.all():
        left.set_title(f"{left.get_title()}, {int((~finite).sum())} particles not finite")
    return _png(figure)


def blank(text: str) -> bytes:
    """A PNG that says `text`."""
    figure = _figure(4.0)
    figure.text(0.5, 0.5, text, ha="center", va="center")
    return _png(figure)


def _figure(width: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, 3.0), layout="constrained")


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=80, facecolor="white")
    return buffer.getvalue()
