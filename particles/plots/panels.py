"""What the pictures of a trajectory share: Axes, checked indices, the points of a chain, bands over chains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

MAX_POINTS = 5000


def axes_of(ax: Axes | None) -> Any:
    """The given Axes, or those of a new figure."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(5, 4), layout="constrained")[1]


def check_index(value: Any, name: str, size: int, *, least: int = 0) -> None:
    """ValueError unless `value` is an integer from `least` to size - 1."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or not least <= value < size:
        raise ValueError(f"{name} must be an integer from {least} to {size - 1}, got {value!r}")


def chain_points(dataset: xr.Dataset, chain: int, dims: tuple[int, int]) -> np.ndarray:
    """Two coordinates of one chain, (step, particle, 2); dim 1 is drawn against particle number; at most MAX_POINTS particles."""
    check_index(chain, "chain", dataset.sizes["chain"], least=-dataset.sizes["chain"])
    if not isinstance(dims, (tuple, list)) or len(dims) != 2:
        raise ValueError(f"dims must be two coordinates, got {dims!r}")
    for dim in dims if dataset.sizes["dim"] > 1 else ():
        check_index(dim, "dims", dataset.sizes["dim"])
    omega = dataset.omega.isel(chain=chain, particle=slice(0, MAX_POINTS)).transpose("step", "particle", "dim").to_numpy()
    if omega.shape[-1] == 1:
        rank = np.broadcast_to(np.arange(omega.shape[1]), omega.shape[:2])
        return np.stack([omega[..., 0], rank], axis=-1)
    return omega[..., list(dims)]


def band(ax: Any, values: xr.DataArray, **style: Any) -> None:
    """The mean over chains as a line, their range as a band."""
    (line,) = ax.plot(values.step, values.mean("chain"), **style)
    ax.fill_between(values.step, values.min("chain"), values.max("chain"), color=line.get_color(), alpha=0.2, linewidth=0)
