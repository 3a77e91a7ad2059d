"""Mean fields in figures: their flow in time, the dissipation identity, stationary states, bifurcations and maps in the plane.

Each picture draws a Dataset that one of the functions here makes of a `MeanField` and what it computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from theory.arrays import FloatArray, finite, real
from theory.free_energy import dissipation_residual
from theory.mean_field.flow import Flow
from theory.mean_field.solver import MeanField
from theory.mean_field.stationary import Stationary
from theory.plots.curves import named
from theory.plots.inputs import held, instance, require
from theory.plots.panels import BAD, COLOURS, DASHES, GOOD, axes, cells, label, legend, panels
from theory.spectral.spectrum_estimate import marginal_profile, radial_profile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "bifurcation",
    "density_map",
    "flow",
    "plot_bifurcation",
    "plot_density_map",
    "plot_dissipation",
    "plot_flow",
    "plot_flow_beside",
    "plot_snapshots",
    "plot_states",
    "states",
]

MARGINAL = 1e-9  # stability below which a state is not called stable
BRIGHTEST = 2.0  # times the median over time of the density's peak, where colours end at the latest: a sharp start would darken the rest


def flow(field: MeanField, record: Flow, *, particles: ArrayLike | None = None, bins: int = 40) -> xr.Dataset:
    """What `MeanField.flow` recorded; on a line or along the radius with `particles` (time, chain, particle, dim) at the same times.

    `residual` is F(t) - F(0) + int D, 0 up to the rule's error; NaN where D is infinite (empty cells) or there are fewer than three steps.
    In the plane the Dataset holds these numbers of the steps, for `plot_dissipation`, without the densities, which `density_map` draws.

    Raises
    ------
    ValueError
        If field is no `MeanField`, record none of its flows, or particles have another shape or are given in the plane.
    """
    instance(field, MeanField, "field")
    instance(record, Flow, "record")
    if record.rho.shape[1:] != field.mesh.shape:
        raise ValueError(f"record must be a flow of field, with cells of shape {field.mesh.shape}, got {record.rho.shape[1:]}")
    known = len(record.t) > 2 and bool(np.isfinite(record.dissipation).all())
    residual = dissipation_residual(record.t, record.free_energy, record.dissipation) if known else np.full(record.t.shape, np.nan)
    variables: dict[str, Any] = {
        "free_energy": ("t", record.free_energy, named("free energy")),
        "dissipation": ("t", record.dissipation, named("dissipation")),
        "residual": ("t", residual, named("free energy less what was dissipated")),
    }
    coords: dict[str, Any] = {"t": ("t", record.t, named("time"))}
    if len(field.mesh.shape) == 1:
        variables["density"] = (("time", "cell"), record.rho, named("density"))
        coords |= {"time": ("time", record.times, named("time")), "edge": _edges(field)}
    if particles is not None:
        coords["bin_edge"], profile, error = _profiles(field, finite(particles, "particles"), len(record.times), bins)
        variables |= {"particles": (("time", "bin"), profile, named("density")), "particles_error": (("time", "bin"), error)}
    return xr.Dataset(variables, coords, {"figure": "flow"})


def states(field: MeanField, found: Sequence[Stationary]) -> xr.Dataset:
    """Stationary states on a line or along the radius, as `MeanField.stationary_states` gives them; ValueError for anything else."""
    held(found, Sequence, Stationary, "found")
    instance(field, MeanField, "field")
    columns = {name: np.array([_number(getattr(state, name)) for state in found]) for name in ("free_energy", "stability", "residual")}
    variables: dict[str, Any] = {name: ("state", values, named(name.replace("_", " "))) for name, values in columns.items()}
    variables["density"] = (("state", "cell"), np.array([state.rho for state in found]), named("density"))
    return xr.Dataset(variables, {"edge": _edges(field)}, {"figure": "states"})


def bifurcation(
    control: ArrayLike, found: Sequence[Sequence[Stationary]], order: Callable[[FloatArray], float], *, x_name: str, y_name: str
) -> xr.Dataset:
    """An order parameter of the stationary states found at each value of a control parameter, such as beta, with their stability.

    `order` takes a density (shape) and returns a number. ValueError if anything has another form, or there is no state at all.
    """
    values = finite(control, "control")
    instance(order, Callable, "order")
    held(found, Sequence, Sequence, "found")
    for k, group in enumerate(found):
        held(group, Sequence, Stationary, f"found[{k}]", least=0)
    if values.ndim != 1 or len(found) != len(values) or not any(len(group) for group in found):
        raise ValueError(f"found must hold the states at each of {values.shape} values of control, got {len(found)} groups")
    rows = [(value, real(order(s.rho), "order"), _number(s.stability), s.free_energy) for value, group in zip(values, found) for s in group]
    columns = dict(zip((x_name, y_name, "stability", "free energy"), np.transpose(rows)))
    keys = ("control", "order", "stability", "free_energy")
    variables = {key: ("point", column, named(name)) for key, (name, column) in zip(keys, columns.items())}
    return xr.Dataset(variables, attrs={"figure": "bifurcation"})


def density_map(field: MeanField, rho: ArrayLike, *, particles: ArrayLike | None = None) -> xr.Dataset:
    """A density on a rectangle or a disc, and particles (particle, 2) to set beside it; ValueError off the plane."""
    instance(field, MeanField, "field")
    rho = field.density(rho)
    if rho.ndim != 2:
        raise ValueError(f"rho must be a density in the plane, got shape {rho.shape}")
    x, y = _corners(field.mesh)
    variables: dict[str, Any] = {
        "density": (("i", "j"), rho, named("density")),
        "x": (("i_edge", "j_edge"), x, named(r"$\omega_1$")),
        "y": (("i_edge", "j_edge"), y, named(r"$\omega_2$")),
    }
    if particles is not None:
        points = finite(particles, "particles")
        if points.ndim != 2 or points.shape[1] != 2:
            raise ValueError(f"particles must be (particle, 2), got {points.shape}")
        variables["particles"] = (("particle", "dim"), points, named("particles"))
    return xr.Dataset(variables, attrs={"figure": "density_map"})


def plot_flow(dataset: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """The density in space and time, times as cells around those saved; needs two of them, and no plane.

    Colours end at the largest density or at twice the median over time of its peak; the colour bar then has an arrow.
    """
    _require_line(dataset)
    _require_times(dataset)
    ax = axes(ax)
    top, extend = _top(dataset["density"].values)
    picture = _space_time(ax, dataset, "density", "edge", top)
    ax.figure.colorbar(picture, ax=ax, label=label(dataset["density"]), extend=extend)
    return ax


def plot_flow_beside(dataset: xr.Dataset, *, ax: Sequence[Axes] | None = None) -> Figure:
    """The particles' density in space and time beside the solution, on the same axes and the scale of colours of `plot_flow`.

    ValueError if the Dataset was made without particles, holds fewer than two times, or is in the plane.
    """
    _require_line(dataset)
    if "particles" not in dataset:
        raise ValueError("dataset must be a flow with particles: theory.plots.flow(field, record, particles=...)")
    _require_times(dataset)
    left, right = panels(2, ax, size=(8.5, 3.4))
    top, extend = _top(dataset["particles"].values, dataset["density"].values)
    _space_time(left, dataset, "particles", "bin_edge", top)
    picture = _space_time(right, dataset, "density", "edge", top)
    left.set_title("particles", fontsize="medium")
    right.set(title="solution", ylim=left.get_ylim(), ylabel="")
    right.title.set_fontsize("medium")
    right.figure.colorbar(picture, ax=[left, right], label=label(dataset["density"]), extend=extend)
    return right.figure


def plot_snapshots(dataset: xr.Dataset, *, number: int = 4, ax: Axes | None = None) -> Axes:
    """Densities at up to `number` times spread over the run, over the particles' histograms with two standard errors; not in the plane."""
    _require_line(dataset)
    ax = axes(ax)
    edges, chosen = dataset["edge"].values, np.unique(np.linspace(0, dataset.sizes["time"] - 1, number).astype(int))
    for k, index in enumerate(chosen):
        row, colour = dataset.isel(time=index), COLOURS[k % len(COLOURS)]
        ax.plot(
            (edges[1:] + edges[:-1]) / 2, row["density"], color=colour, ls=DASHES[k % len(DASHES)], label=f"t = {float(row['time']):.3g}"
        )
        if "particles" in dataset:
            cells(ax, dataset["bin_edge"].values, row["particles"].values, row["particles_error"].values, colour)
    ax.set(xlabel=label(dataset["edge"]), ylabel=label(dataset["density"]), ylim=(0, None))
    legend(ax)
    return ax


def plot_dissipation(dataset: xr.Dataset, *, ax: Sequence[Axes] | None = None) -> Figure:
    """The identity dF/dt = -D along a flow: on the left -dF/dt of each step on D, on the right what is left of F(t) - F(0) + int D."""
    require(dataset, "flow")
    t, energy, loss = (dataset[name].values for name in ("t", "free_energy", "dissipation"))
    if len(t) < 2:
        raise ValueError(f"dataset must hold at least two steps, got {len(t)}")
    left, right = panels(2, ax, size=(7.5, 3.2))
    rate, finite_loss = -np.diff(energy) / np.diff(t), np.where(np.isfinite(loss), loss, np.nan)
    left.semilogy(t, finite_loss, color="black", lw=1.2, zorder=3, label="dissipation $D$")
    left.plot(
        (t[1:] + t[:-1]) / 2, rate, ls="none", marker="o", ms=5, color=GOOD, alpha=0.5, label=r"$-\mathrm{d}F/\mathrm{d}t$ of the steps"
    )
    left.set(xlabel=label(dataset["t"]), ylabel=label(dataset["dissipation"]))
    legend(left)
    lost = energy[0] - energy[-1]
    right.axhline(0.0, color="black", lw=1)
    right.plot(t, dataset["residual"].values / (lost if lost > 0 else 1.0), color=GOOD, marker=".")
    right.set(xlabel=label(dataset["t"]), ylabel=r"$(F(t) - F(0) + \int D)\,/\,$total loss")
    return left.figure


def plot_states(dataset: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """The densities of stationary states: solid if stable, dashed if not, with their free energies."""
    require(dataset, "states")
    ax = axes(ax)
    edges = dataset["edge"].values
    for k in range(dataset.sizes["state"]):
        row = dataset.isel(state=k)
        stable = float(row["stability"]) > MARGINAL
        word = "stability unknown" if np.isnan(row["stability"]) else "stable" if stable else "unstable"
        words = f"{word}, $F$ = {float(row['free_energy']):.4g}"
        ax.plot((edges[1:] + edges[:-1]) / 2, row["density"], color=COLOURS[k % len(COLOURS)], ls="-" if stable else "--", label=words)
    ax.set(xlabel=label(dataset["edge"]), ylabel=label(dataset["density"]), ylim=(0, None))
    legend(ax)
    return ax


def plot_bifurcation(dataset: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Order parameter of every state found against the control parameter: filled if stable, hollow if not."""
    require(dataset, "bifurcation")
    ax = axes(ax)
    stable = dataset["stability"].values > MARGINAL
    for chosen, word, face, edge in ((stable, "stable", GOOD, GOOD), (~stable, "unstable, or unknown", "none", BAD)):
        if chosen.any():
            ax.scatter(
                dataset["control"].values[chosen], dataset["order"].values[chosen], s=22, facecolors=face, edgecolors=edge, label=word
            )
    ax.set(xlabel=label(dataset["control"]), ylabel=label(dataset["order"]))
    legend(ax)
    return ax


def plot_density_map(dataset: xr.Dataset, *, ax: Sequence[Axes] | None = None) -> Figure:
    """A density in the plane, beside the particles where there are any, on the same scale."""
    require(dataset, "density_map")
    both = "particles" in dataset
    found = panels(2 if both else 1, ax, size=(7.5, 3.4) if both else (4.4, 3.6))
    x, y = dataset["x"].values, dataset["y"].values
    picture = found[0].pcolormesh(x, y, dataset["density"].values, cmap="viridis", rasterized=True, vmin=0)
    found[0].figure.colorbar(picture, ax=found[0], label=label(dataset["density"]), shrink=0.9)
    if both:
        points = dataset["particles"].values
        found[1].scatter(*points.T, s=float(np.clip(4000 / max(len(points), 1), 0.5, 12)), color=GOOD, linewidths=0)
    for panel in found:
        panel.set(xlabel=label(dataset["x"]), ylabel=label(dataset["y"]), aspect="equal")
        panel.set(xlim=(x.min(), x.max()), ylim=(y.min(), y.max()))
    return found[0].figure


def _space_time(ax: Any, dataset: xr.Dataset, name: str, edge: str, top: float) -> Any:
    """A density in cells of space and time, from 0 to `top` in colours."""
    time, edges = dataset["time"].values, dataset[edge].values
    cells = np.concatenate([time[:1], (time[1:] + time[:-1]) / 2, time[-1:]])
    picture = ax.pcolormesh(cells, edges, dataset[name].values.T, cmap="viridis", vmin=0, vmax=top, rasterized=True)
    ax.set(xlabel=label(dataset["time"]), ylabel=label(dataset["edge"]))
    return picture


def _top(*densities: FloatArray) -> tuple[float, str]:
    """Where the colours of densities (time, cell) end, and whether some lie beyond."""
    peaks = np.concatenate([density.max(1) for density in densities])
    top = min(peaks.max(), BRIGHTEST * float(np.median(peaks)))
    return top, "max" if peaks.max() > top else "neither"


def _require_times(dataset: xr.Dataset) -> None:
    if dataset.sizes["time"] < 2:
        raise ValueError(f"dataset must hold at least two times, got {dataset.sizes['time']}")


def _radial(field: MeanField) -> bool:
    return hasattr(field.mesh, "inner")


def _require_line(dataset: xr.Dataset) -> None:
    """ValueError unless the Dataset is that of a flow on a line or along the radius."""
    require(dataset, "flow")
    if "edge" not in dataset.coords:
        raise ValueError("dataset must be a flow on a line or along the radius; in the plane: density_map, plot_dissipation")


def _edges(field: MeanField) -> tuple[str, FloatArray, dict[str, str]]:
    """The coordinate of edges of the cells on a line or along the radius; ValueError in the plane."""
    if len(field.mesh.shape) != 1:
        raise ValueError(f"field must live on a line or along the radius, got cells of shape {field.mesh.shape}; in the plane: density_map")
    return "edge", field.mesh.edges, named("radius" if _radial(field) else "position")


def _corners(mesh: Any) -> tuple[FloatArray, FloatArray]:
    """Corners of the cells of a rectangle or a disc, each (n + 1, m + 1)."""
    if hasattr(mesh, "angle"):
        turn = 2 * np.pi * np.arange(mesh.shape[1] + 1) / mesh.shape[1]
        return np.outer(mesh.edges, np.cos(turn)), np.outer(mesh.edges, np.sin(turn))
    ends = [np.linspace(low, high, n + 1) for low, high, n in zip(mesh.low, mesh.high, mesh.shape)]
    x, y = np.meshgrid(*ends, indexing="ij")
    return x, y


def _profiles(field: MeanField, particles: FloatArray, times: int, bins: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Edges of `bins` cells, and the particles' densities and their errors in them, (time, bin)."""
    _, ends, _ = _edges(field)
    dim = None if _radial(field) else 1
    if particles.ndim != 4 or len(particles) != times or not particles.size or particles.shape[3] != (dim or particles.shape[3]):
        raise ValueError(f"particles must be (time, chain, particle, {dim or 'dim'}) at {times} times, got {particles.shape}")
    edges = np.linspace(ends[0], ends[-1], bins + 1)
    found = [radial_profile(x, edges) if _radial(field) else marginal_profile(x, edges, 0) for x in particles]
    return edges, np.array([one.value for one in found]), np.array([one.error for one in found])


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)
