"""Pictures of a trajectory. Every function draws one Dataset of `simulate` on given or new Axes and returns the Axes; none shows it.
`plot_health` and `animate` make figures of their own.

Theory enters as arrays, so that a picture can be redrawn from the Dataset and a curve alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from particles.arrays import count
from particles.trajectory import require_trajectory

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_POINTS, MAX_FRAMES, DPI = 5000, 120, 72
FRACTIONS = {"projected": "moved back by the wall", "capped": "capped", "acceptance": "accepted"}
PANELS = {  # of `plot_health`, below the energy: (variables and what they are called, whether the axis is logarithmic)
    "fractions": (FRACTIONS, False),
    "gradient": ({"grad_norm": "gradient norm"}, True),
    "gap": ({"min_gap": "smallest gap"}, True),
    "coincident": ({"coincident": "coincident pairs"}, False),
    "step_size": ({"step_size": "step size"}, True),
    "temperature": ({"extra_temperature": "minibatch temperature"}, True),
}
DOTS: dict[str, Any] = {"s": 12, "color": "tab:red", "linewidths": 0, "alpha": 0.8, "zorder": 3}


def _axes(ax: Axes | None) -> Any:
    """The given Axes, or those of a new figure."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(5, 4), layout="constrained")[1]


def _check_index(value: Any, name: str, size: int, *, least: int = 0) -> None:
    """ValueError unless `value` is an integer from `least` to size - 1."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or not least <= value < size:
        raise ValueError(f"{name} must be an integer from {least} to {size - 1}, got {value!r}")


def _points(dataset: xr.Dataset, chain: int, dims: tuple[int, int]) -> np.ndarray:
    """Two coordinates of one chain, (step, particle, 2); dim 1 is drawn against particle number; at most MAX_POINTS particles."""
    _check_index(chain, "chain", dataset.sizes["chain"], least=-dataset.sizes["chain"])
    if not isinstance(dims, (tuple, list)) or len(dims) != 2:
        raise ValueError(f"dims must be two coordinates, got {dims!r}")
    for dim in dims if dataset.sizes["dim"] > 1 else ():
        _check_index(dim, "dims", dataset.sizes["dim"])
    omega = dataset.omega.isel(chain=chain, particle=slice(0, MAX_POINTS)).transpose("step", "particle", "dim").to_numpy()
    if omega.shape[-1] == 1:
        rank = np.broadcast_to(np.arange(omega.shape[1]), omega.shape[:2])
        return np.stack([omega[..., 0], rank], axis=-1)
    return omega[..., list(dims)]


def _frame_axes(ax: Any, points: np.ndarray, dim: int, dims: tuple[int, int]) -> None:
    """Fixed limits from the whole run, and labels."""
    low, high = points.min((0, 1)), points.max((0, 1))
    margin = 0.05 * (high - low) + 1e-12
    ax.set_xlim(low[0] - margin[0], high[0] + margin[0])
    ax.set_ylim(low[1] - margin[1], high[1] + margin[1])
    ax.set_xlabel(f"$\\omega_{{{dims[0] + 1 if dim > 1 else 1}}}$")
    ax.set_ylabel(f"$\\omega_{{{dims[1] + 1}}}$" if dim > 1 else "particle")
    if dim > 1:
        ax.set_aspect("equal")


def plot_particles(
    dataset: xr.Dataset,
    *,
    frame: int = -1,
    chain: int = 0,
    dims: tuple[int, int] = (0, 1),
    background: tuple[Any, Any, Any] | None = None,
    trail: int = 0,
    ax: Axes | None = None,
) -> Axes:
    """The particles of one frame as dots, over a potential or density and with the paths that led there.

    Parameters
    ----------
    background
        (x (i,), y (j,), values (j, i)) on a grid, drawn as filled contours.
    trail
        The number of earlier frames drawn as lines.

    Raises
    ------
    ValueError
        If dataset is no trajectory, or frame, chain or dims lie outside it.
    """
    require_trajectory(dataset)
    points = _points(dataset, chain, dims)
    _check_index(frame, "frame", len(points), least=-len(points))
    ax = _axes(ax)
    if background is not None:
        ax.contourf(*background, levels=20, cmap="Blues", alpha=0.8)
    else:
        _frame_axes(ax, points, dataset.sizes["dim"], dims)
    last = range(len(points))[frame]
    paths = points[max(0, last - count(trail, "trail", least=0)) : last + 1]
    if trail:
        ax.plot(paths[..., 0], paths[..., 1], color="0.5", linewidth=0.5, zorder=2)
    ax.scatter(*points[last].T, **DOTS)
    ax.set_title(f"step {int(dataset.step[last])}")
    return ax


def plot_energies(dataset: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """H_N and its terms against the step: mean over chains, and the range of the chains as a band."""
    require_trajectory(dataset)
    ax = _axes(ax)
    names = [str(n) for n in dataset.data_vars if str(n) == "energy" or str(n).startswith("energy_")]
    for name in names if len(names) > 2 else ["energy"]:
        _band(ax, dataset[name], label=name.removeprefix("energy_"), linewidth=2 if name == "energy" else 1)
    ax.set_xlabel("step")
    ax.set_ylabel("$H_N$")
    ax.legend()
    return ax


def _band(ax: Any, values: xr.DataArray, **style: Any) -> None:
    """The mean over chains as a line, their range as a band."""
    (line,) = ax.plot(values.step, values.mean("chain"), **style)
    ax.fill_between(values.step, values.min("chain"), values.max("chain"), color=line.get_color(), alpha=0.2, linewidth=0)


def plot_health(dataset: xr.Dataset) -> Figure:
    """A new figure of all that a run records of itself, on one time axis: energy by term, fractions of steps moved back by the wall,
    capped or accepted, gradient norm, smallest gap, step size, temperature added by minibatches beside 1 / beta; those that exist, the
    capped steps if the sampler has a cap, and the coincident pairs if there ever were any.

    Lines are means over chains, bands the range of the chains. Steps that tuned the sampler are grey. The energy's axis may leave out
    the first tenth of the frames, where the start is far off; its label says so. How to read it: energies that still drift have not
    equilibrated; a cap that acts, an acceptance near 0 or 1, an added temperature not far below 1 / beta, or coincident pairs say that
    the law sampled is not the one asked for.
    """
    import matplotlib.pyplot as plt

    require_trajectory(dataset)
    sampler = json.loads(dataset.attrs.get("sampler", "{}"))
    panels = [(shown, log) for names, log in PANELS.values() if (shown := _shown(dataset, names, sampler))]
    figure, axes = plt.subplots(1 + len(panels), sharex=True, figsize=(7, 2.4 + 1.3 * len(panels)), layout="constrained", squeeze=False)
    _limit_energies(plot_energies(dataset, ax=axes[0, 0]), dataset)
    for ax, (names, log) in zip(axes[1:, 0], panels):
        _panel(ax, dataset, names, log, sampler)
    tune = sampler.get("tune", 0)
    for ax in axes[:, 0]:
        if tune:
            ax.axvspan(dataset.step[0], tune, color="0.9", zorder=0, label="tuning" if ax is axes[0, 0] else None)
        if len(ax.get_legend_handles_labels()[0]) > 1:
            ax.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    axes[-1, 0].set_xlabel("step")
    figure.align_ylabels()
    return figure


def _shown(dataset: xr.Dataset, names: dict[str, str], sampler: dict[str, Any]) -> dict[str, str]:
    """Those of a panel's variables that say something about this run."""
    idle = {name for name in ("coincident",) if name in dataset and not (dataset[name] > 0).any()}
    if sampler.get("drift_cap", 0) is None:
        idle.add("capped")
    return {name: label for name, label in names.items() if name in dataset and name not in idle}


def _limit_energies(ax: Any, dataset: xr.Dataset) -> None:
    """Where the first tenth of the frames (at least the start) takes most of the axis, show what the others need."""
    ax.set_xlabel("")
    lines = np.stack([np.asarray(line.get_ydata(), float) for line in ax.lines])
    skipped = -(-lines.shape[1] // 10)
    whole, later = (values[np.isfinite(values)] for values in (lines, lines[:, skipped:]))
    if later.size and np.ptp(whole) > 5 * np.ptp(later) > 0:
        margin = 0.15 * np.ptp(later)
        ax.set_ylim(later.min() - margin, later.max() + margin)
        ax.set_ylabel(f"$H_N$\n(axis from step {int(dataset.step[skipped])})")


def _panel(ax: Any, dataset: xr.Dataset, names: dict[str, str], log: bool, sampler: dict[str, Any]) -> None:
    """Some variables against the step; a logarithmic axis leaves out what is not positive and finite."""
    from matplotlib.ticker import MaxNLocator

    for name, label in names.items():
        values = dataset[name].astype(float)
        _band(ax, values.where((values > 0) & np.isfinite(values)) if log else values, label=label)
    ax.set_ylabel(label.replace(" ", "\n", 1) if len(names) == 1 else "fraction")
    if "extra_temperature" in names and isinstance(sampler.get("beta"), (int, float)):
        ax.axhline(1 / sampler["beta"], color="black", linestyle="--", linewidth=1, label=r"$1/\beta$")
    if log:
        _log_axis(ax)
    else:
        top = max(1.0 if "coincident" in names else 0.0, ax.get_ylim()[1])
        ax.set_ylim(-0.03 * top, top)  # a line at 0 is seen
    if "coincident" in names:
        ax.yaxis.set_major_locator(MaxNLocator(3, integer=True))


def _log_axis(ax: Any) -> None:
    """A logarithmic axis with two to eight labels: at powers of ten, over two decades at 1, 2, 5 too, in less than one evenly spaced."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

    ax.set_yscale("log")
    low, high = ax.get_ylim()
    few = LogLocator(subs=(1, 2, 5), numticks=9) if high > 10 * low else MaxNLocator(4)
    ax.yaxis.set_major_locator(LogLocator(numticks=5) if high > 100 * low else few)
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.yaxis.set_minor_locator(NullLocator())


def density_samples(omega: np.ndarray, density: str | int) -> np.ndarray:
    """The scalar of every particle whose density is drawn: "radial" gives |w|, an int that coordinate. (..., dim) -> (...)."""
    if density == "radial":
        return np.linalg.norm(omega, axis=-1)
    if isinstance(density, str):
        raise ValueError(f"density must be 'radial' or a coordinate below {omega.shape[-1]}, got {density!r}")
    _check_index(density, "density", omega.shape[-1])
    return omega[..., density]


def _n_bins(n_values: int) -> int:
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
    ax = _axes(ax)
    values = density_samples(dataset.omega.isel(step=frames).transpose(..., "dim").to_numpy(), density).ravel()
    ax.hist(values, _n_bins(values.size), density=True, color="tab:red", alpha=0.5, label="particles")
    if theory is not None:
        ax.plot(*theory, color="black", label="theory")
    ax.set_xlabel(r"$|\omega|$" if density == "radial" else f"$\\omega_{{{int(density) + 1}}}$")
    ax.set_ylabel("density")
    ax.legend()
    return ax


def animate(
    dataset: xr.Dataset,
    path: str | Path | None = None,
    *,
    density: str | int = "radial",
    theory: tuple[Any, Any] | None = None,
    background: tuple[Any, Any, Any] | None = None,
    chain: int = 0,
    dims: tuple[int, int] = (0, 1),
    n_frames: int = 60,
    fps: int = 12,
) -> Any:
    """Particles and, side by side, their density evolving; written as a GIF if `path` is given.

    At most `n_frames` (no more than 120) evenly spaced frames, fixed axes, at most 5,000 particles. The density is over all chains.

    Returns
    -------
    matplotlib.animation.FuncAnimation
        For `to_jshtml` in a notebook.
    """
    from matplotlib.animation import FuncAnimation, PillowWriter
    from matplotlib.figure import Figure

    require_trajectory(dataset)
    frames = np.unique(np.linspace(0, dataset.sizes["step"] - 1, min(count(n_frames, "n_frames"), MAX_FRAMES)).astype(int))
    dataset = dataset.isel(step=frames).load()
    figure = Figure(figsize=(8, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    points = _points(dataset, chain, dims)
    plot_particles(dataset, frame=0, chain=chain, dims=dims, background=background, ax=left)
    samples = density_samples(dataset.omega.transpose("step", ..., "dim").to_numpy(), density).reshape(len(frames), -1)
    heights, edges = _histograms(samples)
    plot_density(dataset, density=density, frames=slice(0, 1), theory=theory, ax=right)
    for patch in list(right.patches):
        patch.remove()
    bars = right.stairs(heights[0], edges, fill=True, color="tab:red", alpha=0.5)
    right.set(xlim=(edges[0], edges[-1]), ylim=(0, 1.05 * max(heights[1:].max(initial=heights[-1].max()), *_peak(theory))))

    def draw(i: int) -> list[Any]:
        left.collections[-1].set_offsets(points[i])
        left.set_title(f"step {int(dataset.step[i])}")
        bars.set_data(heights[i])
        return [left.collections[-1], bars]

    animation = FuncAnimation(figure, draw, frames=len(frames), interval=1000 / count(fps, "fps"))  # type: ignore[arg-type]
    if path is not None:
        animation.save(path, writer=PillowWriter(fps=fps), dpi=DPI)
    return animation


def _peak(theory: tuple[Any, Any] | None) -> tuple[float, ...]:
    """The theory curve's largest finite value, if there is a curve."""
    if theory is None:
        return (0.0,)
    values = np.asarray(theory[1], float)
    return (float(values[np.isfinite(values)].max(initial=0.0)),)


def _histograms(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One histogram a frame, (frame, value) -> densities (frame, bin) on common edges (bin + 1,)."""
    low, high = samples.min(), samples.max()
    edges = np.linspace(low, high if high > low else low + 1.0, _n_bins(samples.shape[1]) + 1)
    return np.stack([np.histogram(values, edges, density=True)[0] for values in samples]), edges
