"""Sweeps: intervals over seeds, paired differences, and pictures that draw just those."""

from __future__ import annotations

import io

import numpy as np
import pytest
import xarray as xr
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from experiments import metrics, plots


def sweep_of(*sizes: int, seeds: int = 5, rng: int = 0) -> xr.DataArray:
    """A made sweep with settings rate (4 powers of ten) and features."""
    names = ("rate", "features")[: len(sizes)]
    coords = {"rate": 10.0 ** -np.arange(sizes[0])}
    if len(sizes) > 1:
        coords["features"] = 16 * 2 ** np.arange(sizes[1])
    values = np.random.default_rng(rng).normal(0.8, 0.05, (*sizes, seeds))
    return xr.DataArray(values, dims=(*names, "seed"), coords=coords, name="accuracy")


def lines_with_markers(ax):
    return [container.lines[0] for container in ax.containers]


def draws(figure: Figure) -> None:
    """The figure can be drawn, in every format that a paper needs."""
    for kind in ("png", "pdf", "svg"):
        figure.savefig(io.BytesIO(), format=kind, dpi=40)


def test_means_of_a_sweep_are_those_of_mean_interval():
    values = sweep_of(4, 3)
    means = plots.sweep_means(values)
    for i, j in np.ndindex(4, 3):
        expected = metrics.mean_interval(values.values[i, j])
        np.testing.assert_allclose([means[name].values[i, j] for name in ("mean", "low", "high")], expected)
    assert (means.runs == 5).all()
    narrow = plots.sweep_means(values, level=0.5)
    assert (narrow.high - narrow.low < means.high - means.low).all()


def test_order_of_dimensions_does_not_matter():
    values = sweep_of(4, 3)
    xr.testing.assert_allclose(
        plots.sweep_means(values), plots.sweep_means(values.transpose("seed", "features", "rate")).transpose("rate", ...)
    )


def test_runs_that_failed_are_left_out_and_counted():
    values = sweep_of(4)
    values[1, 2], values[2], values[3, :4] = np.nan, np.inf, np.nan
    means = plots.sweep_means(values)
    np.testing.assert_array_equal(means.runs, [5, 4, 0, 1])
    np.testing.assert_allclose(means["mean"][1], np.delete(values[1].values, 2).mean())
    assert np.isnan(means["mean"][2])
    assert float(means["mean"][3]) == values[3, 4]
    assert np.isnan(means.low[3])
    for draw in (plots.plot_sweep, plots.plot_sweep_rows):
        ax = draw(values)
        assert ax.get_title(loc="right") == "10 of 20 runs not finite"
    ax = plots.plot_sweep_rows(plots.sweep_differences(values, {"rate": 1.0}))
    assert ax.get_title(loc="right") == "10 of 15 pairs not finite"
    draws(ax.figure)


def test_one_setting_is_a_line_of_means_with_bars_and_the_runs_as_dots():
    values = sweep_of(4)
    ax = plots.plot_sweep(values, scale=100, label="accuracy [%]")
    means = plots.sweep_means(values)
    (line,) = lines_with_markers(ax)
    np.testing.assert_allclose(line.get_xdata(), np.sort(values.rate))
    np.testing.assert_allclose(line.get_ydata(), 100 * means["mean"].sortby("rate"))
    (bars,) = (bar for container in ax.containers for bar in container.lines[2])
    ends = np.array([segment[:, 1] for segment in bars.get_segments()])
    np.testing.assert_allclose(ends, 100 * means[["low", "high"]].sortby("rate").to_dataarray().values.T)
    dots = np.array([dots.get_ydata() for dots in ax.lines if dots not in ax.containers[0].lines and len(dots.get_xdata()) == 4][:5])
    np.testing.assert_allclose(np.sort(dots, axis=None), np.sort(100 * values.values, axis=None))
    assert ax.get_xscale() == "log"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("rate", "accuracy [%]")


def test_two_settings_are_a_line_each_told_apart_without_colour():
    values = sweep_of(4, 3)
    ax = plots.plot_sweep(values, along="features")
    lines = lines_with_markers(ax)
    assert len(lines) == 4
    for k, line in enumerate(lines):
        np.testing.assert_allclose(line.get_ydata(), plots.sweep_means(values)["mean"][k])
    assert len({(line.get_marker(), line.get_linestyle()) for line in lines}) == 4
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["1", "0.1", "0.01", "0.001"]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["16", "32", "64"]


def test_words_as_settings_are_not_joined_and_even_steps_are_linear():
    words = sweep_of(3).assign_coords(rate=["fixed", "learned", "softmax"]).rename(rate="method")
    ax = plots.plot_sweep(words)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["fixed", "learned", "softmax"]
    assert lines_with_markers(ax)[0].get_linestyle() == "None"
    assert plots.plot_sweep(sweep_of(3).assign_coords(rate=[1.0, 2.0, 3.0])).get_xscale() == "linear"
    assert plots.plot_sweep(sweep_of(3).assign_coords(rate=[-1.0, 0.0, 3.0])).get_xscale() == "linear"


def test_a_map_holds_the_means_and_writes_them():
    values = sweep_of(4, 3)
    values[2, 1] = np.nan
    ax = plots.plot_sweep_map(values)
    means = plots.sweep_means(values)
    shown = ax.images[0].get_array()
    np.testing.assert_allclose(shown.filled(np.nan), means["mean"])
    texts = {(round(text.get_position()[1]), round(text.get_position()[0])): text.get_text() for text in ax.texts}
    assert texts[2, 1] == "no run"
    half = float(means.high[0, 0] - means["mean"][0, 0])
    assert texts[0, 0] == f"{float(means['mean'][0, 0]):.3f}\n± {half:.3f}"
    assert all(text.get_fontsize() >= 8 for text in ax.texts)
    turned = plots.plot_sweep_map(values, along="rate")
    np.testing.assert_allclose(turned.images[0].get_array().filled(np.nan), means["mean"].T)
    assert (turned.get_xlabel(), turned.get_ylabel()) == ("rate", "features")
    assert plots.plot_sweep_map(values, decimals=1).texts[0].get_text().startswith(f"{float(means['mean'][0, 0]):.1f}\n")


def test_differences_are_paired_by_seed():
    seeds = np.random.default_rng(1).normal(0, 10, 5)  # far larger than the differences
    values = sweep_of(4, 3) + xr.DataArray(seeds, dims="seed")
    found = plots.sweep_differences(values, {"features": 32})
    assert found.features.values.tolist() == [16, 64]
    np.testing.assert_allclose(found.sel(features=64), values.sel(features=64) - values.sel(features=32), atol=1e-12)
    assert found.attrs["baseline"] == "features 32"
    means = plots.sweep_means(found)
    expected = metrics.paired_difference(values.values[0, 2], values.values[0, 1])
    np.testing.assert_allclose([means[name].values[0, 1] for name in ("mean", "low", "high")], expected)
    assert float(abs(means.high - means.low).max()) < 1
    both = plots.sweep_differences(values, {"features": 32, "rate": 0.1})
    assert both.sizes == values.sizes
    np.testing.assert_array_equal(both.sel(features=32, rate=0.1), 0)


def test_rows_of_differences_are_filled_where_their_interval_leaves_zero_out():
    values = sweep_of(3)
    values[1], values[2] = values[0] + 0.1 + 0.001 * np.arange(5), values[0] + np.array([-1, 1, -1, 1, 0.1])
    ax = plots.plot_sweep_rows(plots.sweep_differences(values, {"rate": 1.0}), scale=100)
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    np.testing.assert_allclose([dot.get_xdata()[0] for dot in dots], [10.2, 2.0])
    assert [to_rgba(dot.get_markerfacecolor()) == to_rgba("white") for dot in dots] == [False, True]
    assert ax.get_xlabel() == "accuracy, less that of rate 1"
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["0.1", "0.01"]


def test_a_map_of_differences_is_centred_and_bold_where_it_is_told_from_zero():
    values = sweep_of(2, 3)
    values[:, 1], values[:, 2] = values[:, 0] + 0.2 + 0.001 * np.arange(5), values[:, 0] + 0.1 * np.array([-1, 1, -1, 1, 0.1])
    ax = plots.plot_sweep_map(plots.sweep_differences(values, {"features": 16}))
    low, high = ax.images[0].get_clim()
    assert low == -high
    assert [text.get_fontweight() for text in ax.texts] == ["bold", "normal", "bold", "normal"]


def test_the_figure_of_a_sweep_has_its_panels():
    one, two = sweep_of(4), sweep_of(4, 3)
    assert [len(plots.figure_sweep(values).axes) for values in (one, two)] == [1, 3]  # a map has a colour bar
    assert len(plots.figure_sweep(one, baseline={"rate": 1.0}).axes) == 2
    figure = plots.figure_sweep(two, baseline={"features": 16}, label="accuracy [%]", scale=100.0)
    assert len(figure.axes) == 4
    draws(figure)


def test_one_seed_has_a_mean_and_no_interval():
    values = sweep_of(3, 2, seeds=1)
    figure = plots.figure_sweep(values, baseline={"features": 16})
    assert all("±" not in text.get_text() for text in figure.axes[0].texts)
    draws(figure)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros((3, 2)), "values must be a DataArray of numbers with dims seed and one or two settings, none empty, got ndarray"),
        (xr.DataArray(np.zeros(3), dims="seed"), r"got dtype float64, dims \{'seed': 3\}"),
        (xr.DataArray(np.zeros((3, 2)), dims=("a", "b")), r"dims \{'a': 3, 'b': 2\}"),
        (xr.DataArray(np.zeros((3, 0)), dims=("a", "seed")), r"'seed': 0"),
        (xr.DataArray(np.zeros((2, 2, 2, 2)), dims=("a", "b", "c", "seed")), "one or two settings"),
        (xr.DataArray(np.array([["x", "y"]]), dims=("a", "seed")), "dtype <U1"),
    ],
)
def test_what_is_no_sweep_is_named(values, message):
    for draw in (plots.sweep_means, plots.plot_sweep, plots.plot_sweep_map, plots.plot_sweep_rows, plots.figure_sweep):
        with pytest.raises(ValueError, match=message):
            draw(values)


def test_bad_arguments_of_a_sweep_are_named():
    with pytest.raises(ValueError, match=r"along must be one of the settings \['features', 'rate'\], got 'n'"):
        plots.plot_sweep(sweep_of(4, 3), along="n")
    with pytest.raises(ValueError, match=r"values must have two settings beside seed, got \['rate'\]"):
        plots.plot_sweep_map(sweep_of(4))
    with pytest.raises(ValueError, match=r"baseline must name some of the settings \['rate'\], got \{'n': 3\}"):
        plots.sweep_differences(sweep_of(4), {"n": 3})
    with pytest.raises(ValueError, match=r"baseline must be one of \[1.0, 0.1, 0.01, 0.001\] in rate, got 3"):
        plots.sweep_differences(sweep_of(4), {"rate": 3})
    with pytest.raises(ValueError, match="decimals must be an integer of at least 0, got -1"):
        plots.plot_sweep_map(sweep_of(4, 3), decimals=-1)
    with pytest.raises(ValueError, match="level must be between 0 and 1"):
        plots.plot_sweep(sweep_of(4), level=1.0)


def test_settings_without_coordinates_are_counted():
    ax = plots.plot_sweep(xr.DataArray(np.zeros((3, 2)), dims=("a", "seed")))
    np.testing.assert_array_equal(lines_with_markers(ax)[0].get_xdata(), [0, 1, 2])
