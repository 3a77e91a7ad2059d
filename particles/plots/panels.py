"""What the pictures of a trajectory share: Axes, colours, checked indices, the points of a chain, bands over chains, legends.

Colours are Okabe and Ito's (2008), told apart by the colour-blind; series differ in line style too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from particles.arrays import as_float, as_real
from particles.targets import to_numpy

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

MAX_POINTS = 5000
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))
NOTHING = "(no finite value)"
WIDTH = 60  # characters of a line of the legend


class View(NamedTuple):
    """One chain as it is drawn: points (step, particle, 2 or 3), the axes' names, and the numbers of the particles shown (particle,)."""

    points: np.ndarray
    names: tuple[str, ...]
    particles: np.ndarray


def axes_of(ax: Axes | None, *, space: bool = False) -> Any:
    """The given Axes, or those of a new figure, 3-D ones for `space`; ValueError if ax is of another kind."""
    if ax is None:
        import matplotlib.pyplot as plt

        return plt.subplots(figsize=(5, 4), layout="constrained", subplot_kw={"projection": "3d"} if space else {})[1]
    if not hasattr(ax, "add_collection") or (getattr(ax, "name", "") == "3d") != space:
        raise ValueError(f"ax must be {'3-D' if space else 'two-dimensional'} Axes or None, got {type(ax).__name__}")
    return ax


def ink() -> str:
    """The colour of text, for curves of theory and marks: black, white in a dark style."""
    import matplotlib as mpl

    return str(mpl.rcParams["text.color"])


def style_of(k: int) -> dict[str, Any]:
    """Colour and dashes of series k, different for 36 of them."""
    return {"color": COLOURS[k % len(COLOURS)], "linestyle": DASHES[(k + k // len(COLOURS)) % len(DASHES)]}


def spread(values: np.ndarray) -> tuple[float, float]:
    """The least and the greatest finite value, moved apart if an axis could not tell them apart."""
    finite = values[np.isfinite(values)]
    low, high = float(finite.min()), float(finite.max())
    largest = max(-low, high)
    margin = max(largest, 1.0) / 2 if high - low <= max(1e-12 * largest, 1e-100) else 0.0
    return low - margin, high + margin


def numbers(values: Any, name: str, *, finite: bool = False) -> np.ndarray:
    """A NumPy array of real numbers from anything array-like, torch tensors on any device included; ValueError otherwise."""
    return (as_float if finite else as_real)(to_numpy(values, name), name)


def check_index(value: Any, name: str, size: int, *, least: int = 0) -> None:
    """ValueError unless `value` is an integer from `least` to size - 1."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or not least <= value < size:
        raise ValueError(f"{name} must be an integer from {least} to {size - 1}, got {value!r}")


def shown_particles(n_particles: int) -> np.ndarray:
    """The numbers of the particles drawn: all, or MAX_POINTS evenly spaced ones."""
    return np.unique(np.linspace(0, n_particles - 1, min(n_particles, MAX_POINTS)).astype(int))


def chain_view(dataset: xr.Dataset, chain: int, dims: tuple[int, ...] | None = None, projection: Any = None) -> View:
    """One to three coordinates of one chain; a single one is drawn against the particle's number, which becomes the second axis.

    Parameters
    ----------
    dims
        The coordinates, or with a projection its components; by default the first two of several, or all columns of a matrix.
    projection
        None, a matrix (dim, 2 or 3) from omega to what is drawn, or "pca": principal components of the particles shown, over the whole
        run, about their mean; positions are not centred.

    Raises
    ------
    ValueError
        If chain, dims or projection do not fit, or no particle of the run is finite.
    """
    check_index(chain, "chain", dataset.sizes["chain"], least=-dataset.sizes["chain"])
    particles = shown_particles(dataset.sizes["particle"])
    omega = dataset.omega.isel(chain=chain, particle=particles).transpose("step", "particle", "dim").to_numpy()
    names = tuple(f"$\\omega_{{{i + 1}}}$" for i in range(omega.shape[-1]))
    if projection is not None:
        matrix, names = _projection(omega, projection)
        omega = omega @ matrix
    every = projection is not None and not isinstance(projection, str)
    dims = _checked_dims(tuple(range(len(names) if every else min(2, len(names)))) if dims is None else dims, len(names))
    points = omega[..., list(dims)]
    if not np.isfinite(points).all(-1).any():
        raise ValueError(f"dataset must hold finite particles, got none in chain {chain}")
    if len(dims) > 1:
        return View(points, tuple(names[i] for i in dims), particles)
    number = np.broadcast_to(particles, points.shape[:2])
    return View(np.stack([points[..., 0], number], axis=-1), (names[dims[0]], "particle"), particles)


def chain_points(dataset: xr.Dataset, chain: int, dims: tuple[int, ...] | None = None, projection: Any = None) -> np.ndarray:
    """The points of `chain_view`, (step, particle, 2 or 3)."""
    return chain_view(dataset, chain, dims, projection).points


def _checked_dims(dims: Any, size: int) -> tuple[int, ...]:
    """dims, if they are one to three different coordinates."""
    listed = dims if isinstance(dims, (tuple, list)) else ()
    for dim in listed:
        check_index(dim, "dims", size)
    if not 1 <= len(listed) <= 3 or len(set(listed)) < len(listed):
        raise ValueError(f"dims must be one to three different coordinates, got {dims!r}")
    return tuple(listed)


def _projection(omega: np.ndarray, projection: Any) -> tuple[np.ndarray, tuple[str, ...]]:
    """The matrix (dim, component) of a projection of omega (step, particle, dim), and the components' names."""
    dim = omega.shape[-1]
    if not isinstance(projection, str):
        matrix = numbers(projection, "projection", finite=True)
        if matrix.ndim != 2 or matrix.shape[0] != dim or matrix.shape[1] not in (2, 3):
            raise ValueError(f"projection must be 'pca' or a matrix ({dim}, 2 or 3), got shape {tuple(matrix.shape)}")
        return matrix, tuple(f"projection {i + 1}" for i in range(matrix.shape[1]))
    if projection != "pca" or dim == 1:
        raise ValueError(f"projection must be 'pca', of particles in two dimensions or more, or a matrix, got {projection!r} in {dim}")
    points = omega[np.isfinite(omega).all(-1)]
    if not len(points) or not np.ptp(points, axis=0).any():
        raise ValueError(f"projection 'pca' needs finite particles at more than one point, got {len(points)} finite ones")
    points = points - points.mean(0)
    points = points / np.abs(points).max()  # squares of any size
    variance, vectors = np.linalg.eigh(points.T @ points)
    vectors = vectors[:, ::-1] * np.sign(vectors[np.abs(vectors).argmax(0), np.arange(dim)])[::-1]  # the largest entry is positive
    shares = 100 * variance[::-1] / variance.sum()
    return vectors, tuple(f"PC {i + 1} ({share:.0f} %)" for i, share in enumerate(shares))


def band(ax: Any, values: xr.DataArray, **style: Any) -> None:
    """The mean over chains as a line, their range as a band; a gap where a chain has no finite value, which a legend says of no value."""
    finite: xr.DataArray = np.isfinite(values)  # type: ignore[assignment]
    values = values.where(finite.all("chain"))
    if not values.notnull().any():
        style["label"] = f"{style.get('label', '')} {NOTHING}".lstrip()
    (line,) = ax.plot(values.step, values.mean("chain"), marker="." if values.sizes["step"] == 1 else "", **style)
    ax.fill_between(values.step, values.min("chain"), values.max("chain"), color=line.get_color(), alpha=0.2, linewidth=0)


def legend(ax: Axes, *, title: str | None = None) -> None:
    """A legend above the axes, where it hides nothing, of what has a label, if anything has."""
    names = ax.get_legend_handles_labels()[1]
    if names:
        columns = min(max(1, WIDTH // (max(len(name) for name in names) + 8)), len(names))
        place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2, "ncols": columns}
        ax.legend(frameon=False, fontsize=9, title=title, title_fontsize=9, alignment="left", **place)
