"""Pictures of a layer's kernel and of Phase A, one for each Dataset of `attention.inspection` and `attention.align`.

Every function draws on given or new Axes (`ax`) or on a given or new figure (`figure`, where it needs several panels), and returns the
artists that it made; none shows or saves. Colours can be told apart by people who see few of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from particles.arrays import count
from particles.plots.panels import axes_of, legend

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#7F7F7F"  # Okabe and Ito, and a grey
MOST_POINTS = 4000  # pairs drawn of a head
MOST_LABELS = 6  # heads whose numbers fit side by side, and whose names fit above the axes
LEAST_LOG = -18.0  # weights below this [nat] are drawn at it: a kernel's log weight may be anything


def plot_attention_maps(maps: xr.Dataset, *, sequence: int = 0, head: int = 0, figure: Figure | None = None) -> list[Artist]:
    """Softmax, kernel and their difference of one sequence and head, side by side; the first two share their colours.

    maps : of `attention_maps`. Padding is grey. Returns the three images; ValueError for a sequence of nothing but padding.
    """
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    _require(maps, "maps", ("softmax", "kernel", "error"))
    one = maps.isel(sequence=_index(maps, "sequence", sequence), head=_index(maps, "head", head))
    if not np.isfinite(one.error).any():
        raise ValueError(f"sequence must hold a token that is seen, got {sequence}, all padding")
    figure = plt.figure(figsize=(10, 3.4), layout="constrained") if figure is None else figure
    top, worst = (float(abs(one[names]).to_dataarray().max()) or 1.0 for names in (["softmax", "kernel"], ["error"]))
    weights = ("PuOr", -top, top) if float(one.kernel.min()) < 0 else ("viridis", 0.0, top)
    styles = {"softmax": weights, "kernel": weights, "error": ("PuOr", -worst, worst)}
    images: list[Artist] = []
    for ax, (name, (cmap, least, most)) in zip(figure.subplots(1, 3, sharex=True, sharey=True), styles.items(), strict=True):
        ax.set_facecolor("0.85")
        images.append(ax.imshow(one[name], cmap=cmap, vmin=least, vmax=most, interpolation="nearest"))
        ax.set(title={"error": "kernel - softmax"}.get(name, name), xlabel="key")
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(MaxNLocator(6, integer=True))
        if name != "softmax":
            figure.colorbar(images[-1], ax=ax, label="weight" if name == "kernel" else "difference of weights", shrink=0.9)  # type: ignore[arg-type]
    figure.axes[0].set_ylabel("query")
    figure.suptitle(f"sequence {sequence}, head {head}", fontsize="medium")
    return images


def plot_kernel_error(errors: xr.Dataset, *, head: int = 0, ax: Axes | None = None) -> list[Artist]:
    """The kernel's log weights against softmax's, a dot a pair (at most 4,000), with the line where they agree.

    errors : of `kernel_error`. Pairs with a weight that is not positive, which has no logarithm, stand on the lower edge in another colour.
    Returns the dots, and those without logarithm where there are some; ValueError if no pair is seen.
    """
    _require(errors, "errors", ("log_softmax", "log_kernel", "divergence"))
    one = errors.isel(head=_index(errors, "head", head))
    x, y = (one[name].to_numpy().ravel() for name in ("log_softmax", "log_kernel"))
    x, y = x[np.isfinite(x)], y[np.isfinite(x)]
    if not len(x):
        raise ValueError(f"errors must hold a pair of a query and a key that it sees, got none in head {head}")
    some = np.linspace(0, len(x) - 1, min(len(x), MOST_POINTS)).astype(int)
    x, y = np.maximum(x[some], LEAST_LOG), y[some]
    none = ~np.isfinite(y)
    ax = axes_of(ax)
    low = float(min(x.min(), np.min(y, where=~none, initial=0.0)))
    ax.plot([low, 0], [low, 0], color="black", linewidth=1, zorder=1, label="equal")
    style: dict[str, Any] = {"s": 8, "color": BLUE, "alpha": 0.5, "linewidths": 0, "rasterized": len(x) > 1000}
    artists: list[Artist] = [ax.scatter(x[~none], np.maximum(y[~none], LEAST_LOG), **style)]
    if none.any():
        label = f"weight not positive: {100 * none.mean():.1f} % of pairs"
        artists.append(
            ax.scatter(x[none], np.full(none.sum(), max(low, LEAST_LOG)), s=14, marker="x", color=RED, linewidths=1, label=label)
        )
    ax.set(xlabel="log softmax weight [nat]", ylabel="log kernel weight [nat]")
    legend(ax, title=f"head {head}: KL {float(one.divergence):.3g} nat, total variation {float(one.total_variation):.3g}")
    return artists


def plot_effective_rank(ranks: xr.Dataset, *, ax: Axes | None = None) -> list[Artist]:
    """Effective rank of queries' and keys' features by head, below the largest possible one. Returns the bars.

    ranks : of `effective_rank`.
    """
    _require(ranks, "ranks", ("query", "key"))
    ax, most = axes_of(ax), int(ranks.attrs["n_features"])
    bars = _bars(ax, {"queries": (ranks["query"].values, BLUE), "keys": (ranks["key"].values, ORANGE)})
    ax.axhline(most, color="black", linestyle="--", linewidth=1, label=f"{most} features")
    ax.axhline(1, color=GREY, linestyle=":", linewidth=1, label="collapsed")
    ax.set(ylabel="effective rank [features]", ylim=(0, 1.1 * most))
    legend(ax)
    return bars


def plot_row_entropy(entropies: xr.Dataset, *, ax: Axes | None = None) -> list[Artist]:
    """Boxes of the rows' entropies by head, as shares of the entropy of uniform attention, which is the line at 1.

    entropies : of `row_entropy`. A sharp head is near 0, a uniform one at 1; whiskers are the 5 % and 95 % quantiles, diamonds the means.
    Returns the boxes.
    """
    _require(entropies, "entropies", ("softmax", "largest"))
    ax = axes_of(ax)
    names = [name for name in ("softmax", "kernel") if name in entropies]
    share = entropies[names] / entropies.largest.where(entropies.largest > 0)
    artists: list[Artist] = []
    for i, (name, color) in enumerate(zip(names, (GREY, BLUE))):
        rows = [values[np.isfinite(values)] for values in share[name].transpose("head", ...).to_numpy().reshape(share.sizes["head"], -1)]
        places = np.arange(len(rows)) + (i - (len(names) - 1) / 2) * 0.36
        drawn = ax.boxplot(rows, positions=places, widths=0.3, whis=(5, 95), showfliers=False, patch_artist=True, manage_ticks=False,
                           showmeans=True, meanprops={"marker": "D", "markersize": 5, "markerfacecolor": color, "markeredgecolor": "black"},
                           medianprops={"color": "black"})  # fmt: skip
        for box in drawn["boxes"]:
            box.set_facecolor(color)
        drawn["boxes"][0].set_label(name)
        artists.extend(drawn["boxes"])
    ax.axhline(1, color="black", linestyle="--", linewidth=1, label="uniform")
    ax.set(xlabel="head", ylabel="entropy / log(visible keys)", ylim=(0, 1.05), xticks=range(share.sizes["head"]))
    legend(ax)
    return artists


def plot_denominators(sums: xr.Dataset, *, ax: Axes | None = None) -> list[Artist]:
    """sum K / sum |K| of every row by head, sorted from the least; at or below 0, shaded, a row's attention has lost its meaning.

    sums : of `denominators`. Returns a line a head, named with its share of rows that are not positive.
    """
    _require(sums, "sums", ("relative", "nonpositive", "smallest"))
    ax = axes_of(ax)
    relative = sums.relative.transpose("head", ...).to_numpy().reshape(sums.sizes["head"], -1)
    lines: list[Artist] = []
    for head, values in enumerate(relative):
        values = np.sort(values[np.isfinite(values)])
        label = f"head {head}: {100 * float(sums.nonpositive[head]):.3g} % not positive"
        place = 100 * (np.arange(len(values)) + 0.5) / len(values)
        lines += ax.plot(place, values, label=label, **_line(head))
    ax.axhspan(-1.05, 0, color=RED, alpha=0.15, linewidth=0)
    ax.set(xlabel="rows, from the least [%]", ylabel=r"denominator $\sum K\,/\,\sum |K|$", xlim=(0, 100), ylim=(-1.05, 1.05))
    if len(lines) > MOST_LABELS:
        ax.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))
    else:
        legend(ax)
    return lines


def plot_alignment(result: xr.Dataset, *, layer: int = 0, head: int = 0, figure: Figure | None = None) -> list[Artist]:
    """Phase A of one head: energy by term, alignment in training and on the hold-out, effective rank, and the health of the steps.

    result : of `align`. A vertical line is the step that was kept. Energies are drawn as changes since the start. How to read it: an
    alignment that rises only in training is over-fitting; particles moved back by the wall all the time say that the ball is too small;
    a rank that falls to 1 or 2 is collapse. Returns the lines.
    """
    import matplotlib.pyplot as plt

    _require(result, "result", ("alignment", "holdout", "effective_rank", "energy", "projected"))
    one = result.isel(layer=_index(result, "layer", layer), head=_index(result, "head", head))
    if not np.isfinite(one.holdout).all():
        raise ValueError(f"layer must be one that was aligned, got {layer}: {str(one.attention.values)!r}")
    figure = plt.figure(figsize=(9, 5.5), layout="constrained") if figure is None else figure
    axes = figure.subplots(2, 2, sharex=True)
    terms = [name for name in one if str(name).startswith("energy_") and np.isfinite(one[name]).all()]
    lines = [line for i, name in enumerate(["energy", *terms]) for line in _steps(axes[0, 0], one, name, i)]
    lines += _steps(axes[0, 1], one, "alignment", 0, label="training") + _steps(axes[0, 1], one, "holdout", 1, label="hold-out")
    lines += _steps(axes[1, 0], one, "effective_rank", 0)
    fractions = {"projected": "moved back by the wall", "capped": "capped"}
    lines += [line for i, (name, label) in enumerate(fractions.items()) for line in _steps(axes[1, 1], one, name, i, label=label)]
    axes[0, 0].set_ylabel("$H_N$ - start")
    axes[0, 1].set_ylabel("centred alignment")
    axes[1, 0].set(ylabel="effective rank [features]", xlabel="step", ylim=(0, 1.1 * float(one.effective_rank.max())))
    axes[1, 1].set(
        ylabel="fraction of particles", xlabel="step", ylim=(-0.03, max(0.2, 1.1 * float(one[list(fractions)].to_dataarray().max())))
    )
    for ax in axes.flat:
        ax.axvline(float(one.chosen_step), color="black", linewidth=1, linestyle=":", label="kept" if ax is axes[0, 1] else None)
    for ax in (axes[0, 0], axes[0, 1], axes[1, 1]):
        legend(ax)
    gap = f"smallest gap at the end {float(one.min_gap[-1]):.2g}, " if "min_gap" in one else ""
    figure.suptitle(f"layer {layer}, head {head}: {gap}training - hold-out {float(one.gap):.2g}", fontsize="medium")
    return list(lines)


def plot_frequencies(result: xr.Dataset, *, layer: int = 0, head: int = 0, ax: Axes | None = None) -> list[Artist]:
    """Particles before and after Phase A in the plane of the two largest principal directions of those after, joined by lines.

    result : of `align`; frequencies in standardised units, offsets left as they are. Returns the dots before and after.
    """
    _require(result, "result", ("omega_before", "omega_after", "unit"))
    one = result.isel(layer=_index(result, "layer", layer), head=_index(result, "head", head))
    before, after = (
        one[f"omega_{when}"].dropna("particle", how="all").dropna("particle_dim", how="all").values for when in ("before", "after")
    )
    if not before.size:
        raise ValueError(f"layer must be one that was aligned, got {layer}: {str(one.attention.values)!r}")
    ax, unit = axes_of(ax), float(one.unit)
    directions = np.linalg.svd(after, full_matrices=False)[2][:2]
    if len(directions) < 2:
        directions = np.vstack((directions, np.zeros_like(directions)))[:2]
    first, last = (unit * omega @ directions.T for omega in (before, after))
    ax.plot(*np.stack((first, last)).transpose(2, 0, 1), color=GREY, linewidth=0.6, alpha=0.6, zorder=1)
    dots: list[Artist] = [
        ax.scatter(first[:, 0], first[:, 1], s=22, facecolors="none", edgecolors=GREY, label="before"),
        ax.scatter(last[:, 0], last[:, 1], s=22, color=RED, linewidths=0, label="after"),
    ]
    ax.axhline(0, color="0.85", linewidth=0.8, zorder=0)
    ax.axvline(0, color="0.85", linewidth=0.8, zorder=0)
    ax.set(xlabel=r"$\omega$, first principal direction [standardised]", ylabel="second [standardised]")
    ax.set_aspect("equal", adjustable="datalim")
    legend(ax, title=f"layer {layer}, head {head}")
    return dots


def _steps(ax: Any, one: xr.Dataset, name: Any, index: int, label: str | None = None) -> list[Any]:
    """A recorded number against the step; energies as changes since the start."""
    values = one[name].to_numpy()
    if str(name).startswith("energy"):
        label, values = str(name).removeprefix("energy_").replace("_", " "), values - values[0]
    return ax.plot(one.step, values, label=label, **_line(index))


def _line(index: int) -> dict[str, Any]:
    """A line's colour and dashes, so that no two of a dozen are alike."""
    colors: Sequence[str] = (BLUE, ORANGE, GREEN, RED, GREY, "black")
    return {"color": colors[index % 6], "linestyle": ("-", "--", ":", "-.")[(index // 6 + index) % 4], "linewidth": 1.6}


def _bars(ax: Any, groups: dict[str, tuple[np.ndarray, str]]) -> list[Artist]:
    """Groups of bars side by side at each head."""
    drawn: list[Artist] = []
    width = 0.8 / len(groups)
    for i, (label, (values, color)) in enumerate(groups.items()):
        places = np.arange(len(values)) + (i - (len(groups) - 1) / 2) * width
        bars = ax.bar(places, values, 0.92 * width, color=color, label=label)
        ax.bar_label(bars, fmt="%.3g", fontsize=8, padding=2, rotation=0 if len(values) <= MOST_LABELS else 90)
        drawn.extend(bars)
    ax.set(xlabel="head", xticks=range(len(values)))
    return drawn


def _require(dataset: Any, name: str, variables: tuple[str, ...]) -> None:
    """ValueError unless the argument is a Dataset with these variables."""
    missing = [variable for variable in variables if variable not in getattr(dataset, "data_vars", ())]
    if missing:
        raise ValueError(
            f"{name} must be a Dataset with the variables {', '.join(variables)}, got {type(dataset).__name__} without {missing}"
        )


def _index(dataset: xr.Dataset, name: str, value: int) -> int:
    """ValueError unless the Dataset has that many."""
    if count(value, name, least=0) >= dataset.sizes[name]:
        raise ValueError(f"{name} must be below {dataset.sizes[name]}, got {value}")
    return value
