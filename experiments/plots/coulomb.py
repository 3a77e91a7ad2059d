"""The Coulomb paper's synthetic benchmark: noise, repulsion, number of features, run time."""

from __future__ import annotations

import json

import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.plots.methods import METHOD_STYLES, figure_accuracy, plot_curves, styles
from experiments.plots.panels import axes_of, finish, legend_beside, panels_of
from experiments.plots.sweeps import plot_sweep, sweep_differences


def plot_noise(ds: xr.Dataset, labels: dict[str, str], *, ax: Axes | None = None) -> Axes:
    """Accuracy on fresh rows against the noise."""
    return plot_curves(ds["fresh_accuracy"], "sigma", labels, unit="noise on the logit, sigma", title="accuracy on fresh rows", ax=ax)


def plot_strength(ds: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Gain of a repulsion over none in the paper's dynamics, paired by seed, one line a noise."""
    ax = plot_sweep(sweep_differences(ds["fresh_accuracy"], {"lambda": 0.0}), along="lambda", scale=100.0, ax=ax)
    return finish(ax, "gain of the repulsion, the paper's settings", "strength lambda", "accuracy - that at 0 [points]")


def plot_budget(ds: xr.Dataset, labels: dict[str, str], sigma: float, *, ax: Axes | None = None) -> Axes:
    """Accuracy on fresh rows against the number of random features."""
    title = f"fewer features, sigma = {sigma:g}"
    ax = plot_curves(ds["fresh_accuracy"].sel(sigma=sigma), "n_features", labels, unit="random features", title=title, ax=ax)
    ax.set_xticks(ds["n_features"].values, [str(m) for m in ds["n_features"].values])
    ax.minorticks_off()
    return ax


def plot_runtime(ds: xr.Dataset, labels: dict[str, str], *, ax: Axes | None = None) -> Axes:
    """Seconds of a fit against the number of rows."""
    ax = axes_of(ax)
    for name, style in styles(ds["method"]).items():
        ax.plot(ds["n"], ds["seconds"].sel({"method": name}), markersize=4, linewidth=1.5, label=labels.get(name, name), **style)
    ax.set_xscale("log")
    ax.set_yscale("log")
    return finish(ax, "run time of a fit", "rows n", "CPU time [s]")


def figure_coulomb_accuracy(noise: xr.Dataset, strength: xr.Dataset, labels: dict[str, str]) -> Figure:
    """Noise sweep of all methods, and what the repulsion brings."""
    figure, (left, right) = panels_of(2, 12.5, 4.2)
    plot_noise(noise, labels, ax=left)
    legend_beside(left)
    plot_strength(strength, ax=right)
    return figure


def figure_coulomb_cost(budget: xr.Dataset, runtime: xr.Dataset, labels: dict[str, str]) -> Figure:
    """Accuracy against the number of features, and run time against the number of rows."""
    sigmas = budget["sigma"].values
    figure, panels = panels_of(len(sigmas) + 1, 5.5 + 3.8 * len(sigmas), 4.2)
    for sigma, ax in zip(sigmas, panels):
        plot_budget(budget, labels, float(sigma), ax=ax)
    plot_runtime(runtime, labels, ax=panels[-1])
    legend_beside(panels[-1])
    return figure


def coulomb_drawable(ds: xr.Dataset) -> bool:
    """Whether a part has what its figure shows: no repulsion and some, or a method that has a line."""
    part = json.loads(ds.attrs["config"])["part"]
    if part == "lambda":
        return 0.0 in ds["lambda"].values and ds.sizes["lambda"] > 1
    return part == "tasks" or bool(set(METHOD_STYLES) & set(ds["method"].values.tolist()))


def figure_coulomb(ds: xr.Dataset, labels: dict[str, str]) -> Figure:
    """One part of the benchmark; the title says the dimension of the input. ValueError unless `coulomb_drawable`."""
    config = json.loads(ds.attrs["config"])
    part, dimension = config["part"], f"{config['dim']} dimensions"
    if part == "tasks":
        return figure_accuracy(ds, labels=labels, chance=[0.5] * ds.sizes["task"], title=f"{{task}}, {dimension}")
    figure, (ax,) = panels_of(1, 7.5, 4.2)
    _draw_part(part, ds, labels, ax)
    ax.set_title(f"{ax.get_title(loc='left')}, {dimension}", fontsize=11, loc="left")
    return figure


def _draw_part(part: str, ds: xr.Dataset, labels: dict[str, str], ax: Axes) -> None:
    """One panel, with the legend of its lines beside it."""
    if part == "lambda":
        plot_strength(ds, ax=ax)
        return
    draw = {"noise": plot_noise, "runtime": plot_runtime}.get(part)
    if draw is None:
        plot_budget(ds, labels, float(ds["sigma"][0]), ax=ax)
    else:
        draw(ds, labels, ax=ax)
    legend_beside(ax)
