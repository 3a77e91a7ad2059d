"""Figures of the experiments, each drawn from a saved Dataset alone.

``plot_x(ds, *, ax=None)`` draws one panel and returns its Axes; ``figure_x(ds)`` arranges panels and returns a Figure. Nothing is shown,
no global settings are touched. Colours are Okabe and Ito's, told apart by every kind of colour vision.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from experiments import metrics

BLACK, ORANGE, SKY, GREEN, BLUE, RED, PINK = "#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#8c8c8c"


def _axes(ax: Axes | None, width: float = 5.0, height: float = 3.8) -> Axes:
    """The given Axes, or those of a new Figure that belongs to no window."""
    return Figure(figsize=(width, height), layout="constrained").add_subplot() if ax is None else ax


def _finish(ax: Axes, title: str, xlabel: str, ylabel: str) -> Axes:
    ax.set_title(title, fontsize=11, loc="left")
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _panels(n: int, width: float, height: float, n_rows: int = 1) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(n_rows, -(-n // n_rows), squeeze=False).ravel().tolist()
    for spare in axes[n:]:
        spare.set_axis_off()
    return figure, axes[:n]


# ---- methods against each other ----------------------------------------------------------------------------------------------------------


def plot_methods(
    values: xr.DataArray,
    *,
    ax: Axes | None = None,
    labels: dict[str, str] | None = None,
    title: str = "",
    unit: str = "accuracy [%]",
    scale: float = 100.0,
    chance: float | None = None,
) -> Axes:
    """One row a method: a small dot for each seed, a bar at the mean.  values (method, seed); chance in the values' unit."""
    ax = _axes(ax)
    names = [str(name) for name in values["method"].values]
    for row, name in enumerate(names):
        points = scale * values.sel({"method": name}).values
        points = points[np.isfinite(points)]
        ax.plot(points, np.full(len(points), row), "o", color=SKY, markersize=5, zorder=2)
        if len(points):
            ax.plot([points.mean()] * 2, [row - 0.32, row + 0.32], color=BLUE, linewidth=2.5, zorder=3)
    if chance is not None:
        ax.axvline(scale * chance, color=GREY, linestyle=":", zorder=1)
        ax.text(scale * chance, len(names) - 0.45, " chance", color="#555555", fontsize=8, va="center")
    ax.set_yticks(range(len(names)), [(labels or {}).get(name, name) for name in names])
    ax.set_ylim(len(names) - 0.3, -0.6)
    ax.grid(axis="x", color="#e5e5e5")
    ax.set_axisbelow(True)
    return _finish(ax, title, unit, "")


# ---- gas ---------------------------------------------------------------------------------------------------------------------------------


def plot_ball(ds: xr.Dataset, *, chain: int = 0, ax: Axes | None = None) -> Axes:
    """The last frame of one chain in the plane and the outline of the Coulomb ball."""
    ax = _axes(ax, 4, 4)
    x, y = ds["omega"].isel(chain=chain).values.T
    radius = float(ds["radius"].where(ds["ball_density"] > 0).max() + np.diff(ds["radius"][:2])[0] / 2)
    angle = np.linspace(0, 2 * np.pi, 200)
    ax.fill(radius * np.cos(angle), radius * np.sin(angle), color=SKY, alpha=0.25, linewidth=0)
    ax.scatter(x, y, s=18, color=BLUE)
    ax.set_aspect("equal")
    return _finish(ax, f"{ds.sizes['particle']} particles in the plane", "$x_1$", "$x_2$")


def plot_radial(ds: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Density against radius beside the Coulomb ball's."""
    ax = _axes(ax)
    edges = _edges(ds["radius"].values)
    ax.stairs(ds["radial_density"], edges, color=BLUE, linewidth=1.8, label="simulated")
    ax.stairs(ds["ball_density"], edges, color=BLACK, linestyle="--", label="zero temperature, N → ∞")
    ax.legend(frameon=False, loc="upper right", fontsize=9)
    ax.set_ylim(0, 1.35 * float(ds["ball_density"].max()))
    return _finish(ax, "density in the plane", "radius", "density")


def plot_second_moment(ds: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Second moment of every chain in time, the exact law, and the law of a temperature 20 % off."""
    ax = _axes(ax)
    settings = json.loads(ds.attrs["config"])
    ax.plot(ds["step"], ds["second_moment"].transpose("step", "chain"), color=SKY, linewidth=0.7)
    ax.plot(ds["step"], ds["second_moment"].mean("chain"), color=BLUE, linewidth=1.6, label="mean over chains")
    for factor, style, label in ((1.0, "--", "exact law"), (0.8, ":", "law at beta 20 % off")):
        law = (2 / (factor * settings["beta"]) + settings["strength"] / 2) / settings["stiffness"]
        ax.axhline(law, color=BLACK, linestyle=style, linewidth=1.4, label=label)
    ax.legend(frameon=False, loc="lower right")
    return _finish(ax, "second moment in the plane", "step", "mean of |x|²")


def plot_semicircle(ds: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Density on the line beside the semicircle; ticks at the ground state, circles at the Hermite zeros."""
    ax = _axes(ax)
    top = float(ds["semicircle_density"].max())
    ax.stairs(ds["line_density"], _edges(ds["position"].values), color=BLUE, linewidth=1.6, label="simulated")
    ax.plot(ds["position"], ds["semicircle_density"], color=BLACK, linestyle="--", label="semicircle")
    ax.plot(ds["ground_state"], np.full(ds.sizes["site"], -0.1 * top), "|", color=RED, markersize=11, label="ground state")
    ax.plot(
        ds["hermite"], np.full(ds.sizes["site"], -0.1 * top), "o", color=BLACK, markersize=3, markerfacecolor="none", label="Hermite zeros"
    )
    ax.legend(frameon=False, loc="upper center", ncols=2, fontsize=8)
    ax.set_ylim(-0.2 * top, 1.75 * top)
    return _finish(ax, "density on the line", "position", "density")


def figure_gas(ds: xr.Dataset) -> Figure:
    """All four views of a gas Dataset."""
    figure, axes = _panels(4, 16, 4.0)
    for draw, ax in zip((plot_ball, plot_radial, plot_second_moment, plot_semicircle), axes):
        draw(ds, ax=ax)
    return figure


# ---- attention ---------------------------------------------------------------------------------------------------------------------------


def plot_attention(ds: xr.Dataset, task: str, method: str, *, ax: Axes | None = None) -> Axes:
    """Attention of one test sequence, rows scaled to their largest entry, tokens in the order of their labels; lines part the labels."""
    ax = _axes(ax, 3.6, 3.6)
    part = ds.sel(task=task)
    ax.imshow(part["attention"].sel({"method": method}), vmin=-1, vmax=1, cmap="RdBu_r", interpolation="nearest", aspect="auto")
    for labels, line in ((part["query_label"], ax.axhline), (part["key_label"], ax.axvline)):
        for border in np.flatnonzero(np.diff(labels.values)):
            line(border + 0.5, color=BLACK, linewidth=0.7)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set_title(f"{task}: {method}", fontsize=10, loc="left")
    ax.set_xlabel("tokens with labels")
    ax.set_ylabel("tokens asked for")
    return ax


def figure_attention(ds: xr.Dataset, methods: Sequence[str] = ("softmax", "fixed", "end to end", "align", "align, unfreeze")) -> Figure:
    """Attention of the methods that the Dataset has, one row a task."""
    tasks = [str(task) for task in ds["task"].values]
    shown = [method for method in methods if method in ds["method"].values]
    figure, axes = _panels(len(tasks) * len(shown), 2.9 * len(shown), 3.1 * len(tasks), len(tasks))
    for ax, (task, method) in zip(axes, [(task, method) for task in tasks for method in shown]):
        plot_attention(ds, task, method, ax=ax)
    figure.colorbar(axes[-1].images[0], ax=list(axes), label="weight / largest of the row", shrink=0.7, pad=0.01)
    return figure


# ---- classification ----------------------------------------------------------------------------------------------------------------------


def plot_reliability(ds: xr.Dataset, *, methods: Sequence[str] | None = None, ax: Axes | None = None) -> Axes:
    """Share of right answers against the stated probability of the most probable class, all seeds together; on the diagonal is honest."""
    ax = _axes(ax, 4.2, 4.0)
    shown = [str(method) for method in ds["method"].values if methods is None or method in methods]
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=":")
    for name, colour, marker in zip(shown, (BLACK, ORANGE, SKY, GREEN, RED, PINK, BLUE), "os^vDPX"):
        part = ds["probability"].sel({"method": name}).transpose("seed", "row", "class").values
        labels = np.tile(ds["label"].values, len(part))
        probabilities = part.reshape(-1, part.shape[-1]).astype(float)
        _, right, stated, share = metrics.reliability(probabilities, labels, n_bins=10)
        kept = share > 0.01  # bins with a handful of rows say nothing
        ax.plot(stated[kept], right[kept], color=colour, marker=marker, markersize=5, linewidth=1.2, label=name)
    ax.legend(frameon=False, fontsize=8, loc="upper left")
    return _finish(ax, "reliability", "stated probability", "share right")


def figure_classify(ds: xr.Dataset) -> Figure:
    """Accuracy, log loss and reliability of a classify Dataset."""
    figure, (first, second, third) = _panels(3, 14, 4.0)
    plot_methods(ds["accuracy"], ax=first, title="accuracy")
    plot_methods(ds["log_loss"], ax=second, title="log loss", unit="log loss [nats]", scale=1.0)
    second.set_yticklabels([])
    plot_reliability(ds, methods=("softmax", "fixed", "align", "align, unfreeze"), ax=third)
    return figure


# ---- kernel learning ---------------------------------------------------------------------------------------------------------------------


def plot_spectrum(ds: xr.Dataset, task: str, *, along: str = "frequency", ax: Axes | None = None) -> Axes:
    """Density of the particles before and after, of one coordinate (``along="frequency"``) or of their lengths (``along="radius"``)."""
    ax = _axes(ax)
    name, label = {"frequency": ("marginal_density", "w along the leading direction"), "radius": ("radial_density", "length |w|")}[along]
    for stage, colour, style in (("start", GREY, "-"), ("learned", RED, "-")):
        values = ds[name].sel(task=task, stage=stage)
        ax.stairs(
            values,
            _edges(ds[along].values),
            color=colour,
            linestyle=style,
            linewidth=1.8,
            label=stage,
            fill=stage == "start",
            alpha=0.45 if stage == "start" else 1,
        )
    ax.legend(frameon=False)
    ax.set_ylim(bottom=0)
    return _finish(ax, f"{task}: spectral density", f"{label} [1 / input unit]", "density")


def plot_gram(ds: xr.Dataset, task: str, stage: str, *, ax: Axes | None = None) -> Axes:
    """Gram matrix of test points ordered by their label; the lines part the labels."""
    ax = _axes(ax, 4.2, 3.8)
    gram, border = ds["gram"].sel(task=task, stage=stage).values, float((ds["gram_label"].sel(task=task) == 0).sum()) - 0.5
    image = ax.imshow(gram, vmin=-1, vmax=1, cmap="RdBu_r", interpolation="nearest")
    ax.axhline(border, color=BLACK, linewidth=0.8)
    ax.axvline(border, color=BLACK, linewidth=0.8)
    ax.set_xticks([border / 2, (border + len(gram)) / 2], ["label 0", "label 1"])
    ax.set_yticks([border / 2, (border + len(gram)) / 2], ["label 0", "label 1"], rotation=90, va="center")
    ax.tick_params(length=0)
    ax.figure.colorbar(image, ax=ax, label="k(x, x')", shrink=0.85)
    ax.set_title(f"{task}: kernel, {stage}", fontsize=11, loc="left")
    return ax


def figure_learned_kernels(ds: xr.Dataset) -> Figure:
    """For each task of a kernel_learning Dataset: two spectral densities and the Gram matrix before and after."""
    tasks = [str(task) for task in ds["task"].values]
    figure, axes = _panels(4 * len(tasks), 16, 3.9 * len(tasks), len(tasks))
    for row, task in enumerate(tasks):
        first, second, third, fourth = axes[4 * row : 4 * row + 4]
        plot_spectrum(ds, task, along="radius", ax=first)
        plot_spectrum(ds, task, along="frequency", ax=second)
        plot_gram(ds, task, "start", ax=third)
        plot_gram(ds, task, "learned", ax=fourth)
    return figure


def figure_accuracy(
    ds: xr.Dataset, *, labels: dict[str, str] | None = None, chance: Sequence[float] | None = None, title: str = "{task}"
) -> Figure:
    """Accuracy of every method and seed, one panel a task."""
    tasks = [str(task) for task in ds["task"].values]
    figure, axes = _panels(len(tasks), 1.5 + 4.6 * len(tasks), 1.2 + 0.36 * ds.sizes["method"])
    for k, (task, ax) in enumerate(zip(tasks, axes)):
        plot_methods(
            ds["accuracy"].sel(task=task), ax=ax, labels=labels, title=title.format(task=task), chance=None if chance is None else chance[k]
        )
        if k:
            ax.set_yticklabels([])
    return figure


# ---- the Coulomb paper's synthetic benchmark ---------------------------------------------------------------------------------------------

METHOD_STYLES = {  # colour, line, marker
    "bayes": (GREY, ":", ""),
    "logistic": (GREY, "--", ""),
    "svm": (SKY, "--", "s"),
    "svm tuned": (SKY, "-", "s"),
    "mkl": (PINK, "-", "D"),
    "rff": (GREEN, "--", "^"),
    "rff tuned": (GREEN, "-", "^"),
    "importance": (ORANGE, "-", "v"),
    "paper": (BLACK, "-", "o"),
    "paper, no repulsion": (BLACK, "--", "o"),
    "particles": (RED, "-", "o"),
}


def plot_curves(values: xr.DataArray, along: str, labels: dict[str, str], *, unit: str, title: str, ax: Axes | None = None) -> Axes:
    """One line a method, its mean over seeds in percent with Student's 95 % interval as a band.  values (method, along, seed)."""
    ax = _axes(ax)
    x = values[along].values
    for name, (colour, line, marker) in METHOD_STYLES.items():
        if name not in values["method"].values:
            continue
        points = 100 * values.sel({"method": name}).transpose(along, "seed").values
        mean, low, high = np.transpose([metrics.mean_interval(row) for row in points])
        ax.plot(x, mean, color=colour, linestyle=line, marker=marker, markersize=4, linewidth=1.5, label=labels.get(name, name))
        if np.isfinite(high).all():
            ax.fill_between(x, low, high, color=colour, alpha=0.10, linewidth=0)
    ax.set_xscale("log")
    return _finish(ax, title, unit, "accuracy [%]")


def plot_noise(ds: xr.Dataset, labels: dict[str, str], *, ax: Axes | None = None) -> Axes:
    """Accuracy on fresh rows against the noise."""
    return plot_curves(ds["fresh_accuracy"], "sigma", labels, unit="noise on the logit, sigma", title="accuracy on fresh rows", ax=ax)


def plot_strength(ds: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Gain of a repulsion over none in the paper's dynamics, paired by seed, one line a noise."""
    ax = _axes(ax)
    gains = 100 * (ds["fresh_accuracy"] - ds["fresh_accuracy"].sel({"lambda": 0.0}))
    colours = (BLACK, BLUE, SKY, GREEN, ORANGE, RED, PINK, GREY)
    for k, sigma in enumerate(ds["sigma"].values):
        points = gains.sel(sigma=sigma).transpose("lambda", "seed").values[1:]
        mean, low, _ = np.transpose([metrics.mean_interval(row) for row in points])
        x = ds["lambda"].values[1:] + 0.012 * (k - ds.sizes["sigma"] / 2)
        bars = np.where(np.isfinite(low), mean - low, 0)
        ax.errorbar(x, mean, bars, color=colours[k % 8], marker="o", markersize=4, linewidth=1.2, elinewidth=0.9, label=f"{sigma:g}")
    ax.axhline(0, color=GREY, linestyle=":")
    ax.legend(frameon=False, title="sigma", fontsize=8, title_fontsize=9, ncols=2, loc="lower right")
    return _finish(ax, "gain of the repulsion, the paper's settings", "strength lambda", "accuracy - that at 0 [points]")


def plot_budget(ds: xr.Dataset, labels: dict[str, str], sigma: float, *, ax: Axes | None = None) -> Axes:
    """Accuracy on fresh rows against the number of random features."""
    title = f"fewer features, sigma = {sigma:g}"
    ax = plot_curves(ds["fresh_accuracy"].sel(sigma=sigma), "n_features", labels, unit="random features", title=title, ax=ax)
    ax.set_xticks(ds["n_features"].values, [str(m) for m in ds["n_features"].values])
    ax.minorticks_off()
    return ax


def plot_runtime(ds: xr.Dataset, labels: dict[str, str], *, ax: Axes | None = None) -> Axes:
    """Seconds of a fit against the number of rows."""
    ax = _axes(ax)
    for name in (name for name in METHOD_STYLES if name in ds["method"].values):
        colour, line, marker = METHOD_STYLES[name]
        seconds = ds["seconds"].sel({"method": name})
        ax.plot(ds["n"], seconds, color=colour, linestyle=line, marker=marker, markersize=4, linewidth=1.5, label=labels.get(name, name))
    ax.set_xscale("log")
    ax.set_yscale("log")
    return _finish(ax, "run time of a fit", "rows n", "CPU time [s]")


def _legend_beside(ax: Axes) -> None:
    """The legend right of the last panel."""
    ax.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.02, 0.5))


def figure_coulomb_accuracy(noise: xr.Dataset, strength: xr.Dataset, labels: dict[str, str]) -> Figure:
    """Noise sweep of all methods, and what the repulsion brings."""
    figure, (left, right) = _panels(2, 12.5, 4.2)
    plot_noise(noise, labels, ax=left)
    _legend_beside(left)
    plot_strength(strength, ax=right)
    return figure


def figure_coulomb_cost(budget: xr.Dataset, runtime: xr.Dataset, labels: dict[str, str]) -> Figure:
    """Accuracy against the number of features, and run time against the number of rows."""
    sigmas = budget["sigma"].values
    figure, panels = _panels(len(sigmas) + 1, 5.5 + 3.8 * len(sigmas), 4.2)
    for sigma, ax in zip(sigmas, panels):
        plot_budget(budget, labels, float(sigma), ax=ax)
    plot_runtime(runtime, labels, ax=panels[-1])
    _legend_beside(panels[-1])
    return figure


def figure_coulomb(ds: xr.Dataset, labels: dict[str, str]) -> Figure:
    """One part of the benchmark."""
    part = json.loads(ds.attrs["config"])["part"]
    if part == "tasks":
        return figure_accuracy(ds, labels=labels, chance=[0.5] * ds.sizes["task"])
    figure, (ax,) = _panels(1, 7.5, 4.2)
    if part == "lambda":
        plot_strength(ds, ax=ax)
        return figure
    draw = {"noise": plot_noise, "runtime": plot_runtime}.get(part)
    if draw is None:
        plot_budget(ds, labels, float(ds["sigma"][0]), ax=ax)
    else:
        draw(ds, labels, ax=ax)
    _legend_beside(ax)
    return figure


# ---- the film of a learning kernel -------------------------------------------------------------------------------------------------------


def plot_plane(ds: xr.Dataset, step: int, *, ax: Axes | None = None) -> Axes:
    """Particles of one saved step in the plane of the two leading learned directions, over the power spectrum of the labels there."""
    ax = _axes(ax, 4.6, 4.2)
    reach = float(ds["plane"].max())
    ax.imshow(ds["power"].values.T, extent=(-reach, reach, -reach, reach), origin="lower", cmap="Greys", vmin=0, interpolation="bilinear")
    first, second = ds["plane_omega"].sel(step=step).values.T
    ax.scatter(np.append(first, -first), np.append(second, -second), s=16, color=RED, edgecolor="white", linewidth=0.4)
    ax.set_xlim(-reach, reach)
    ax.set_ylim(-reach, reach)
    return _finish(ax, f"particles w and -w, step {step}", "first leading direction", "second leading direction")


def plot_lengths(ds: xr.Dataset, step: int, *, ax: Axes | None = None) -> Axes:
    """Spectral density of the particles' lengths at one saved step, over that of the start."""
    ax = _axes(ax)
    edges = np.linspace(0, float(np.ceil(ds["length"].max() * 2) / 2), 26)
    tallest = max(np.histogram(lengths, edges, density=True)[0].max() for lengths in ds["length"].values)
    for when, colour, label in ((0, GREY, "start"), (step, RED, f"step {step}")):
        heights = np.histogram(ds["length"].sel(step=when), edges, density=True)[0]
        ax.stairs(
            heights, edges, color=colour, fill=when == 0 and colour == GREY, alpha=0.45 if colour == GREY else 1, linewidth=1.8, label=label
        )
    ax.legend(frameon=False, loc="upper right")
    ax.set_ylim(0, 1.05 * tallest)  # the same in every frame
    return _finish(ax, f"spectrum; alignment {float(ds['alignment'].sel(step=step)):.3f}", "length |w| [1 / input unit]", "density")


def figure_learning(ds: xr.Dataset, step: int) -> Figure:
    """Both views of one saved step."""
    figure, (left, right) = _panels(2, 8.4, 4.0)
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


def _edges(centres: Any) -> np.ndarray:
    """Edges of equal bins from their centres."""
    centres = np.asarray(centres, dtype=float)
    half = (centres[1] - centres[0]) / 2
    return np.append(centres - half, centres[-1] + half)
