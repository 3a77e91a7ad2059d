"""What a run records of itself against its step: energies by term, and everything that says whether it is healthy."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from particles.plots.panels import NOTHING, axes_of, band, ink, legend, style_of
from particles.sampler import Schedule
from particles.trajectory import require_trajectory

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FRACTIONS = {"projected": "moved back by the wall", "capped": "capped", "acceptance": "accepted"}
TEMPERATURES = {
    "extra_temperature": "minibatch temperature",
    "kinetic_temperature": "kinetic temperature",
    "configurational_temperature": "configurational temperature",
}
PANELS = {  # of `plot_health`, below the energy: (variables and what they are called, whether the axis is logarithmic)
    "fractions": (FRACTIONS, False),
    "gradient": ({"grad_norm": "gradient norm"}, True),
    "gap": ({"min_gap": "smallest gap"}, True),
    "coincident": ({"coincident": "coincident pairs"}, False),
    "step_size": ({"step_size": "step size"}, True),
    "temperature": (TEMPERATURES, True),
}


def plot_energies(dataset: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """H_N and its terms against the step: mean over chains, and the range of the chains as a band.

    Both have a gap where the energy of a chain is NaN or infinite, as with coincident particles; the legend says what is never finite.
    ValueError if dataset is no trajectory, or holds no energy.
    """
    require_trajectory(dataset)
    if "energy" not in dataset:
        raise ValueError(f"dataset must hold energy (chain, step), got {sorted(map(str, dataset.data_vars))}")
    ax = axes_of(ax)
    names = [str(n) for n in dataset.data_vars if str(n) == "energy" or str(n).startswith("energy_")]
    for k, name in enumerate(names if len(names) > 2 else ["energy"]):
        label, width = name.removeprefix("energy_").replace("_", " "), 2 if name == "energy" else 1.2
        band(ax, dataset[name], label=label, linewidth=width, **style_of(k))
    ax.set_xlabel("step")
    ax.set_ylabel("$H_N$")
    legend(ax)
    return ax


def plot_health(dataset: xr.Dataset) -> Figure:
    """A new figure of all that a run records of itself, on one time axis: energy by term, fractions of steps moved back by the wall,
    capped or accepted, gradient norm, smallest gap, step size, temperatures; those that exist, the capped steps if the sampler has a
    cap, and the coincident pairs if there ever were any.

    Temperatures are that added by minibatches, kinetic_temperature and configurational_temperature (chain, step) if the dataset was
    given them, and 1 / beta beside them, or alone where a schedule changes it.

    Lines are means over chains, bands the range of the chains, with gaps where a chain has no finite value, on a logarithmic axis no
    positive one. Steps that tuned the sampler are grey. The energy's axis may leave out the first tenth of the frames, where the start
    is far off; its label says so. How to read it: energies that still drift have not equilibrated; a cap that acts, an acceptance near
    0 or 1, an added temperature not far below 1 / beta, or coincident pairs say that the law sampled is not the one asked for.

    ValueError if dataset is no trajectory, or holds no energy.
    """
    import matplotlib.pyplot as plt

    require_trajectory(dataset)
    sampler = json.loads(dataset.attrs.get("sampler", "{}"))
    panels = [(_shown(dataset, names, sampler), log) for names, log in PANELS.values() if _says(dataset, names, sampler)]
    figure, axes = plt.subplots(1 + len(panels), sharex=True, figsize=(7, 2.4 + 1.3 * len(panels)), layout="constrained", squeeze=False)
    _limit_energies(plot_energies(dataset, ax=axes[0, 0]), dataset)
    for ax, (names, log) in zip(axes[1:, 0], panels):
        _panel(ax, dataset, names, log, sampler)
    for ax in axes[:, 0]:
        _mark_tuning(ax, dataset, sampler.get("tune", 0), named=ax is axes[0, 0])
        labels = ax.get_legend_handles_labels()[1]
        if len(labels) > 1 or any(label.endswith(NOTHING) for label in labels):
            ax.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
        elif ax.get_legend():
            ax.get_legend().remove()
    axes[-1, 0].set_xlabel("step")
    figure.align_ylabels()
    return figure


def _mark_tuning(ax: Any, dataset: xr.Dataset, tune: int, *, named: bool) -> None:
    """The steps shown that tuned the sampler, in grey."""
    first, last = int(dataset.step[0]), int(dataset.step[-1])
    if tune > first:
        ax.axvspan(first, min(tune, last), color="0.5", alpha=0.2, linewidth=0, zorder=0, label="tuning" if named else None)


def _temperature(beta: Any, steps: xr.DataArray) -> np.ndarray | None:
    """1 / beta at the steps, from a sampler's description; None for beta infinite or by a function that is not known."""
    if isinstance(beta, dict) and beta.get("name") in ("linear", "geometric"):
        schedule = Schedule(**beta)
        return np.array([1 / schedule(int(step)) for step in steps])
    return np.full(len(steps), 1 / beta) if isinstance(beta, (int, float)) else None


def _shown(dataset: xr.Dataset, names: dict[str, str], sampler: dict[str, Any]) -> dict[str, str]:
    """Those of a panel's variables that say something about this run."""
    idle = {name for name in ("coincident",) if name in dataset and not (dataset[name] > 0).any()}
    if sampler.get("drift_cap", 0) is None:
        idle.add("capped")
    return {name: label for name, label in names.items() if name in dataset and name not in idle}


def _says(dataset: xr.Dataset, names: dict[str, str], sampler: dict[str, Any]) -> bool:
    """Whether a panel has something to show: a variable, or a schedule that is known of 1 / beta."""
    annealed = isinstance(sampler.get("beta"), dict) and _temperature(sampler["beta"], dataset.step) is not None
    return bool(_shown(dataset, names, sampler)) or (names is TEMPERATURES and annealed)


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

    for k, (name, label) in enumerate(names.items()):
        values = dataset[name].astype(float)
        band(ax, values.where(values > 0) if log else values, label=label, **style_of(k))
    if set(names) <= set(TEMPERATURES) and (temperature := _temperature(sampler.get("beta"), dataset.step)) is not None:
        marker = "." if dataset.sizes["step"] == 1 else ""
        ax.plot(dataset.step, temperature, color=ink(), linestyle="--", linewidth=1, marker=marker, label=r"$1/\beta$")
    ax.set_ylabel(_panel_label(names))
    if log:
        _log_axis(ax)
    else:
        top = max(1.0 if "coincident" in names else 0.0, ax.get_ylim()[1])
        ax.set_ylim(-0.03 * top, top)  # a line at 0 is seen
    if "coincident" in names:
        ax.yaxis.set_major_locator(MaxNLocator(3, integer=True))


def _panel_label(names: dict[str, str]) -> str:
    """What the axis of a panel says."""
    if len(names) == 1:
        return next(iter(names.values())).replace(" ", "\n", 1)
    return "fraction" if set(names) <= set(FRACTIONS) and names else "temperature" if names else "temperature\n$1/\\beta$"


def _log_axis(ax: Any) -> None:
    """A logarithmic axis with two to eight labels: at powers of ten, over two decades at 1, 2, 5 too, in less than one evenly spaced."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

    ax.set_yscale("log")
    low, high = ax.get_ylim()
    few = LogLocator(subs=(1, 2, 5), numticks=9) if high > 10 * low else MaxNLocator(4)
    ax.yaxis.set_major_locator(LogLocator(numticks=5) if high > 100 * low else few)
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.yaxis.set_minor_locator(NullLocator())
