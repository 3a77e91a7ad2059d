"""What a sweep found: the mean over seeds at every setting with Student's interval, and paired differences from a baseline.

A sweep is a DataArray (setting, seed) or (setting, other setting, seed); settings are numbers or words. Runs that are not finite are left
out of the means, and every figure says how many they were. `sweep_differences` has the form of a sweep, so that each picture draws either.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.metrics import Estimate, mean_interval
from experiments.plots.panels import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, axes_of, finish, panels_of
from particles.arrays import count

COLOURS, MARKERS, DASHES = (BLUE, RED, GREEN, PINK, ORANGE, SKY, BLACK), "os^vDPX", ("-", "--", "-.", ":")
NOTHING = Estimate(np.nan, np.nan, np.nan)


def sweep_means(values: xr.DataArray, *, level: float = 0.95) -> xr.Dataset:
    """mean, low, high and runs, the number of finite seeds, at every setting.

    A setting with one run has no interval (NaN), one without a run no mean either.

    Raises
    ------
    ValueError
        Unless values are numbers with a dimension seed and one or two settings, none of them empty.
    """
    settings = _settings(values)
    table = values.transpose(*settings, "seed").to_numpy().astype(float)
    rows = [row[np.isfinite(row)] for row in table.reshape(-1, table.shape[-1])]
    found = np.array([mean_interval(row, level=level) if len(row) else NOTHING for row in rows])
    found = np.where(np.isfinite(found), found, np.nan).reshape(*table.shape[:-1], 3)
    columns = {name: (settings, found[..., k]) for k, name in enumerate(Estimate._fields)}
    runs = np.isfinite(table).sum(-1)
    coords = {name: values[name] for name in settings}
    return xr.Dataset({**columns, "runs": (settings, runs)}, coords).rename(value="mean")


def sweep_differences(values: xr.DataArray, baseline: Mapping[str, Any]) -> xr.DataArray:
    """values less those of the same seed at the baseline, such as {"method": "fixed"}, which is left out itself.

    With two settings, a baseline that names one is compared at each value of the other; one that names both keeps its own zeros.
    ValueError if it names anything that is not there.
    """
    settings = _settings(values)
    if not isinstance(baseline, Mapping) or not baseline or not set(baseline) <= set(settings):
        raise ValueError(f"baseline must name some of the settings {settings}, got {baseline!r}")
    for name, value in baseline.items():
        if value not in values[name].values:
            raise ValueError(f"baseline must be one of {values[name].values.tolist()} in {name}, got {value!r}")
    found = values - values.sel(dict(baseline), drop=True)
    if len(baseline) == 1:
        ((name, value),) = baseline.items()
        found = found.isel({name: values[name].values != value})
    words = ", ".join(f"{_name(values[name])} {_said(value)}" for name, value in baseline.items())
    found.attrs = {**values.attrs, "long_name": f"{_name(values)}, less that of {words}", "baseline": words}
    return found


def plot_sweep(
    values: xr.DataArray,
    *,
    along: str | None = None,
    label: str | None = None,
    scale: float = 1.0,
    level: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """Means with their intervals along one setting, by default the first, a line for each value of the other; dots are single runs.

    Dots are drawn where there is one line; words are not joined. The axis is logarithmic where the settings are nearer to equal ratios
    than to equal steps.
    """
    means = scale * sweep_means(values, level=level)[["mean", "low", "high"]]
    settings = _settings(values)
    along = _one_of(along, settings)
    others = [name for name in settings if name != along]
    ax = axes_of(ax, 5.5, 4.0)
    x = _places(ax, values[along])
    if "baseline" in values.attrs:
        ax.axhline(0, color=GREY, linewidth=1, linestyle=":")
    if not others:
        ax.plot(x, scale * values.transpose(along, "seed"), "o", color=SKY, markersize=3.5, zorder=1)
    n_lines = means.sizes[others[0]] if others else 1
    for k in range(n_lines):
        line = means.isel({others[0]: k}) if others else means
        name = _said(values[others[0]].values[k]) if others else None
        _line(ax, _moved(ax, x, (k - (n_lines - 1) / 2)), line, k, name, values[along].dtype.kind in "iuf")
    if others:
        ax.legend(title=_words(values[others[0]]), frameon=False, fontsize=8, title_fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))
    _say_missing(ax, values)
    return finish(ax, "", _words(values[along]), label or _words(values))


def plot_sweep_map(
    values: xr.DataArray,
    *,
    along: str | None = None,
    label: str | None = None,
    scale: float = 1.0,
    decimals: int | None = None,
    level: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """Means over two settings as colours, with their numbers and half intervals; `along`, by default the second, runs to the right.

    Differences are coloured around 0, and bold where their interval leaves it out. Cells without a run are grey. By default two digits of
    the typical half interval are written, or of the means' spread where there are no intervals.
    """
    if len(settings := _settings(values)) != 2:
        raise ValueError(f"values must have two settings beside seed, got {settings}")
    along = _one_of(along, settings[::-1])
    order = [name for name in settings if name != along] + [along]
    means = (scale * sweep_means(values, level=level)[["mean", "low", "high"]]).transpose(*order)
    ax = axes_of(ax, 1.6 + 0.85 * means.sizes[along], 1.4 + 0.55 * means.sizes[order[0]])
    mean = np.ma.masked_invalid(means["mean"].to_numpy())
    signed = "baseline" in values.attrs
    most = max(abs(mean).max(), np.finfo(float).tiny) if signed and mean.count() else None
    ax.set_facecolor("0.85")
    image = ax.imshow(mean, cmap="PuOr" if signed else "viridis", vmin=-most if most else None, vmax=most, aspect="auto")
    cells = np.stack([means[name].to_numpy() for name in ("mean", "low", "high")], -1)
    decimals = _decimals(cells) if decimals is None else count(decimals, "decimals", least=0)
    for place in np.ndindex(mean.shape):
        _number(ax, image, place, cells[place].tolist(), decimals, signed)
    for axis, name in ((ax.yaxis, order[0]), (ax.xaxis, along)):
        axis.set_ticks(range(means.sizes[name]), [_said(value) for value in values[name].values])
    ax.tick_params(length=0)
    ax.figure.colorbar(image, ax=ax, label=label or _words(values), shrink=0.9)
    _say_missing(ax, values)
    ax.set(xlabel=_words(values[along]), ylabel=_words(values[order[0]]))
    return ax


def plot_sweep_rows(
    values: xr.DataArray, *, label: str | None = None, scale: float = 1.0, level: float = 0.95, ax: Axes | None = None
) -> Axes:
    """One row a setting, or a pair of settings: a dot at the mean, a bar over its interval; for differences a line at 0.

    Rows whose interval leaves 0 out are filled; those that do not are hollow.
    """
    means = scale * sweep_means(values, level=level)[["mean", "low", "high"]]
    settings, signed = _settings(values), "baseline" in values.attrs
    names = [", ".join(map(_said, pair)) for pair in itertools.product(*(values[name].values for name in settings))]
    ax = axes_of(ax, 5.5, 1.1 + 0.3 * len(names))
    mean, low, high = (means[name].transpose(*settings).to_numpy().ravel() for name in ("mean", "low", "high"))
    if signed:
        ax.axvline(0, color=GREY, linewidth=1, linestyle=":")
    for row, (value, least, most) in enumerate(zip(mean, low, high)):
        told = not signed or least > 0 or most < 0
        ax.plot([least, most], [row, row], color=BLUE, linewidth=1.6, zorder=2)
        ax.plot(value, row, "o", color=BLUE, markerfacecolor=BLUE if told else "white", markersize=6, zorder=3)
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.grid(axis="x", color="#e5e5e5")
    ax.set_axisbelow(True)
    _say_missing(ax, values)
    return finish(ax, "", label or _words(values), ", ".join(_words(values[name]) for name in settings))


def figure_sweep(
    values: xr.DataArray,
    *,
    baseline: Mapping[str, Any] | None = None,
    label: str | None = None,
    scale: float = 1.0,
    level: float = 0.95,
) -> Figure:
    """A sweep as lines, one of two settings as a map too, and with a baseline the paired differences from it as rows."""
    settings = _settings(values)
    further = sweep_differences(values, baseline) if baseline is not None else None
    n = len(settings) + (further is not None)
    rows = 1 if further is None else int(np.prod([further.sizes[name] for name in settings]))
    figure, axes = panels_of(n, 5.6 * n, max(4.0, 1.3 + 0.26 * rows))
    if len(settings) == 2:
        plot_sweep_map(values, label=label, scale=scale, level=level, ax=axes[0])
    plot_sweep(values, label=label, scale=scale, level=level, ax=axes[len(settings) - 1])
    if further is not None:
        words = label and f"{label}, less that of {further.attrs['baseline']}"
        plot_sweep_rows(further, label=words, scale=scale, level=level, ax=axes[-1])
    return figure


def _settings(values: Any) -> list[str]:
    """Names of the settings; ValueError unless the values are a sweep."""
    dims = [str(name) for name in values.dims] if isinstance(values, xr.DataArray) else []
    if "seed" not in dims or len(dims) not in (2, 3) or not values.size or values.dtype.kind not in "biuf":
        said = f"dtype {values.dtype}, dims {dict(values.sizes)}" if isinstance(values, xr.DataArray) else type(values).__name__
        raise ValueError(f"values must be a DataArray of numbers with dims seed and one or two settings, none empty, got {said}")
    return [name for name in dims if name != "seed"]


def _one_of(along: str | None, settings: list[str]) -> str:
    """The setting asked for, or the first."""
    if along is not None and along not in settings:
        raise ValueError(f"along must be one of the settings {sorted(settings)}, got {along!r}")
    return settings[0] if along is None else along


def _name(array: xr.DataArray) -> str:
    """The long name, or the name."""
    return str(array.attrs.get("long_name") or str(array.name or "value").replace("_", " "))


def _words(array: xr.DataArray) -> str:
    """What an axis says: the name with units."""
    units = array.attrs.get("units", "1")
    return _name(array) if units in ("", "1") else f"{_name(array)} [{units}]"


def _said(value: Any) -> str:
    """A setting as a tick says it."""
    return f"{value:g}" if isinstance(value, (int, float, np.number)) and not isinstance(value, bool) else str(value)


def _places(ax: Axes, setting: xr.DataArray) -> np.ndarray:
    """Where the values of a setting stand on the x axis, which gets its scale and ticks."""
    values = setting.values
    if values.dtype.kind not in "iuf":
        ax.set_xticks(range(len(values)), [_said(value) for value in values])
        ax.set_xlim(-0.5, len(values) - 0.5)
        return np.arange(len(values), dtype=float)
    ordered = np.sort(values.astype(float))
    if ordered[0] > 0 and len(ordered) > 2 and np.ptp(np.diff(np.log(ordered))) < np.ptp(np.diff(ordered)) / np.ptp(ordered):
        ax.set_xscale("log")
    if len(values) <= 8:
        ax.set_xticks(values, [_said(value) for value in values])
        ax.minorticks_off()
    return values.astype(float)


def _moved(ax: Axes, x: np.ndarray, steps: float) -> np.ndarray:
    """x moved a little, so that bars of several lines do not lie on each other."""
    if ax.get_xscale() == "log":
        return x * (x.max() / x.min()) ** (0.012 * steps)
    return x + 0.012 * steps * (np.ptp(x) or 1.0)


def _line(ax: Axes, x: np.ndarray, line: xr.Dataset, k: int, name: str | None, joins: bool) -> None:
    """Means with bars over their intervals, joined by a line or not."""
    order = np.argsort(x)
    mean, low, high = (line[key].to_numpy()[order] for key in ("mean", "low", "high"))
    dashes = DASHES[(k // 7 + k) % 4] if joins else "none"
    style: dict[str, Any] = {"color": COLOURS[k % 7], "marker": MARKERS[k % 7], "linestyle": dashes}
    bars = np.where(np.isfinite(low), [mean - low, high - mean], 0.0)
    ax.errorbar(x[order], mean, bars, markersize=5, linewidth=1.4, elinewidth=1, capsize=2.5, label=name, zorder=3, **style)


def _decimals(cells: np.ndarray) -> int:
    """How many decimals show two digits of the typical half interval, or of the spread of the means.  cells (..., 3): mean, low, high."""
    half = (cells[..., 2] - cells[..., 1])[np.isfinite(cells[..., 1])] / 2
    means = cells[..., 0][np.isfinite(cells[..., 0])]
    typical = np.median(half) if len(half) and np.median(half) > 0 else np.ptp(means) if len(means) else 0.0
    return int(np.clip(1 - np.floor(np.log10(typical)), 0, 9)) if typical > 0 else 2


def _number(ax: Axes, image: Any, place: tuple[int, ...], cell: list[float], decimals: int, signed: bool) -> None:
    """A cell's mean and half interval in a colour that can be read on the cell's."""
    row, column = place
    value, low, high = cell
    if np.isnan(value):
        ax.text(column, row, "no run", ha="center", va="center", fontsize=8, color="#555555")
        return
    red, green, blue, _ = image.cmap(image.norm(value))
    dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
    text = f"{value:.{decimals}f}" + (f"\n± {(high - low) / 2:.{decimals}f}" if np.isfinite(low) else "")
    bold = "bold" if signed and (low > 0 or high < 0) else "normal"
    ax.text(column, row, text, ha="center", va="center", fontsize=8, color="white" if dark else "black", fontweight=bold)


def _say_missing(ax: Axes, values: xr.DataArray) -> None:
    """How many runs the means leave out, where there are any."""
    missing = int((~np.isfinite(values)).sum())
    if missing:
        word = "pairs" if "baseline" in values.attrs else "runs"
        ax.set_title(f"{missing} of {values.size} {word} not finite", loc="right", fontsize=9, color=RED)
