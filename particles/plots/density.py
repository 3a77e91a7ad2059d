"""Densities of particles beside a curve of theory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from particles.plots.panels import axes_of, check_index
from particles.trajectory import require_trajectory

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes


def density_samples(omega: np.ndarray, density: str | int) -> np.ndarray:
    """The scalar of every particle whose density is drawn: "radial" gives |w|, an int that coordinate. (..., dim) -> (...)."""
    if density == "radial":
        return np.linalg.norm(omega, axis=-1)
    if isinstance(density, str):
        raise ValueError(f"density must be 'radial' or a coordinate below {omega.shape[-1]}, got {density!r}")
    check_index(density, "density", omega.shape[-1])
    return omega[..., density]


def n_bins(n_values: int) -> int:
    """Rice's rule, between 8 and 40."""
    return int(np.clip(2 * n_values ** (1 / 3), 8, 40))


def plot_density(
    dataset: xr.Dataset,
    *,
    density: str | int = "radial",
    frames: slice = slice(-1, None),
    theory: tuple[Any, Any] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Histogram over all chains and the chosen frames of |w| ("radial") or of a coordinate, beside a theory curve (x, density)."""
    require_trajectory(dataset)
    ax = axes_of(ax)
    values = density_samples(dataset.omega.isel(step=frames).transpose(..., "dim").to_numpy(), density).ravel()
    ax.hist(values, n_bins(values.size), density=True, color="tab:red", alpha=0.5, label="particles")
    if theory is not None:
        ax.plot(*theory, color="black", label="theory")
    ax.set_xlabel(r"$|\omega|$" if density == "radial" else f"$\\omega_{{{int(density) + 1}}}$")
    ax.set_ylabel("density")
    ax.legend()
    return ax
