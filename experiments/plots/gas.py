"""A log gas beside its exact laws."""

from __future__ import annotations

import json

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.plots.panels import BLACK, BLUE, RED, SKY, axes_of, edges_of, finish, panels_of


def plot_ball(ds: xr.Dataset, *, chain: int = 0, ax: Axes | None = None) -> Axes:
    """The last frame of one chain in the plane and the outline of the Coulomb ball; ValueError off the plane."""
    if ds.sizes["dim"] != 2:
        raise ValueError(f"ds must hold particles in the plane, got dim {ds.sizes['dim']}")
    ax = axes_of(ax, 4, 4)
    x, y = ds["omega"].isel(chain=chain).transpose("dim", "particle").values
    radius = float(ds["radius"].where(ds["ball_density"] > 0).max() + np.diff(ds["radius"][:2])[0] / 2)
    angle = np.linspace(0, 2 * np.pi, 200)
    ax.fill(radius * np.cos(angle), radius * np.sin(angle), color=SKY, alpha=0.25, linewidth=0)
    ax.scatter(x, y, s=18, color=BLUE)
    ax.set_aspect("equal")
    return finish(ax, f"{ds.sizes['particle']} particles in the plane", "$x_1$", "$x_2$")


def plot_radial(ds: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Density against radius beside the Coulomb ball's."""
    ax = axes_of(ax)
    edges = edges_of(ds["radius"].values)
    ax.stairs(ds["radial_density"], edges, color=BLUE, linewidth=1.8, label="simulated")
    ax.stairs(ds["ball_density"], edges, color=BLACK, linestyle="--", label="zero temperature, N → ∞")
    ax.legend(frameon=False, loc="upper right", fontsize=9)
    ax.set_ylim(0, 1.35 * float(max(ds["ball_density"].max(), ds["radial_density"].max())))  # room for the legend
    return finish(ax, "density in the plane", "radius", "density")


def plot_second_moment(ds: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Second moment of every chain in time, the exact law, and the law of a temperature 20 % off; a chain that failed breaks the mean."""
    ax = axes_of(ax)
    settings = json.loads(ds.attrs["config"])
    ax.plot(ds["step"], ds["second_moment"].transpose("step", "chain"), color=SKY, linewidth=0.7)
    ax.plot(ds["step"], ds["second_moment"].mean("chain", skipna=False), color=BLUE, linewidth=1.6, label="mean over chains")
    for factor, style, label in ((1.0, "--", "exact law"), (0.8, ":", "law at beta 20 % off")):
        law = (2 / (factor * settings["beta"]) + settings["strength"] / 2) / settings["stiffness"]
        ax.axhline(law, color=BLACK, linestyle=style, linewidth=1.4, label=label)
    low, high = ax.get_ylim()
    ax.set_ylim(low - 0.45 * (high - low), high)  # room for the legend
    ax.legend(frameon=False, loc="lower right", fontsize=9)
    return finish(ax, "second moment in the plane", "step", "mean of |x|²")


def plot_semicircle(ds: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Density on the line beside the semicircle; ticks at the ground state, circles at the Hermite zeros."""
    ax = axes_of(ax)
    top = float(max(ds["semicircle_density"].max(), ds["line_density"].max()))
    ax.stairs(ds["line_density"], edges_of(ds["position"].values), color=BLUE, linewidth=1.6, label="simulated")
    ax.plot(ds["position"], ds["semicircle_density"], color=BLACK, linestyle="--", label="semicircle")
    ax.plot(ds["ground_state"], np.full(ds.sizes["site"], -0.1 * top), "|", color=RED, markersize=11, label="ground state")
    ax.plot(
        ds["hermite"], np.full(ds.sizes["site"], -0.1 * top), "o", color=BLACK, markersize=3, markerfacecolor="none", label="Hermite zeros"
    )
    ax.legend(frameon=False, loc="upper center", ncols=2, fontsize=8)
    ax.set_ylim(-0.2 * top, 1.5 * top)
    return finish(ax, "density on the line", "position", "density")


def figure_gas(ds: xr.Dataset) -> Figure:
    """All four views of a gas Dataset."""
    figure, axes = panels_of(4, 16, 4.0)
    for draw, ax in zip((plot_ball, plot_radial, plot_second_moment, plot_semicircle), axes):
        draw(ds, ax=ax)
    return figure
