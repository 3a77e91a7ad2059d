"""Pictures of comparisons and of stored reliability tables: what is drawn are the numbers."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg

from experiments import metrics
from experiments.plots.calibration import plot_reliability_tables
from experiments.plots.comparisons import plot_differences
from experiments.plots.panels import BLUE, RED

NAN = np.nan


def compared() -> xr.Dataset:
    """A clear difference, an unclear one, one that takes the correction away, and a pair that did not run."""
    numbers = {
        "difference": [0.05, -0.01, 0.03, NAN],
        "low": [0.03, -0.04, 0.001, NAN],
        "high": [0.07, 0.02, 0.06, NAN],
        "p": [1e-6, 0.5, 0.04, NAN],
        "p_corrected": [3e-6, 0.5, 0.08, NAN],
    }
    pairs = ["a - b", "a - c", "a - d", "a - e"]
    attrs = {"level": 0.95, "correction": "holm", "delta": 0.01}
    return xr.Dataset({name: ("pair", values) for name, values in numbers.items()}, coords={"pair": pairs}, attrs=attrs)


def texts(ax: Axes) -> list[str]:
    FigureCanvasAgg(ax.figure).draw()
    return [text.get_text() for text in ax.texts]


def test_differences_are_drawn_in_points_with_their_intervals():
    ds = compared()
    ax = plot_differences(ds)
    bars, marks = ([line for line in ax.lines[1:] if len(line.get_xdata()) == n] for n in (2, 1))
    np.testing.assert_allclose([bar.get_xdata() for bar in bars], 100 * np.stack((ds["low"], ds["high"]), axis=1)[:3])
    np.testing.assert_allclose([mark.get_xdata()[0] for mark in marks], 100 * ds["difference"][:3])
    assert [mark.get_ydata()[0] for mark in marks] == [0, 1, 2]
    assert [label.get_text() for label in ax.get_yticklabels()] == ds["pair"].values.tolist()
    assert ax.get_xlabel() == "difference, 95 % interval [points]"


def test_only_what_the_correction_leaves_is_marked_as_sure():
    marks = [line for line in plot_differences(compared()).lines[1:] if len(line.get_xdata()) == 1]
    assert [(mark.get_marker(), mark.get_markeredgecolor()) for mark in marks] == [("s", RED), ("o", BLUE), ("o", BLUE)]
    marks = [line for line in plot_differences(compared(), alpha=0.1).lines[1:] if len(line.get_xdata()) == 1]
    assert [mark.get_marker() for mark in marks] == ["s", "o", "s"]


def test_p_is_written_and_a_pair_that_did_not_run_is_named():
    assert sorted(texts(plot_differences(compared()))) == sorted(["p (Holm)", "< 0.001", "0.500", "0.080", "no common seed"])


def test_zero_is_marked_and_the_band_of_no_importance_only_where_there_is_one():
    ax = plot_differences(compared())
    assert ax.lines[0].get_xdata() == [0, 0]
    np.testing.assert_allclose(sorted({x for x, _ in ax.patches[0].get_corners()}), [-1, 1])
    ds = compared()
    del ds.attrs["delta"]
    assert not plot_differences(ds, scale=1.0, unit="nats").patches


def test_one_seed_each_has_no_bar_but_a_mark():
    ds = compared().isel(pair=[0]).assign(low=("pair", [-np.inf]), high=("pair", [np.inf]), p_corrected=("pair", [NAN]))
    ax = plot_differences(ds)
    assert [len(line.get_xdata()) for line in ax.lines[1:]] == [1]
    assert "-" in texts(ax)


def tables() -> tuple[xr.DataArray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), (2, 2, 300))
    y = rng.integers(3, size=300)
    values = [[metrics.reliability_table(p[row, seed], y, n_bins=10) for seed in range(2)] for row in range(2)]
    return xr.DataArray(values, dims=("row", "seed", "bin", "column"), coords={"row": ["a", "b"]}), p, y


def test_stored_reliability_tables_of_several_seeds_are_those_of_all_their_rows():
    stored, p, y = tables()
    ax = plot_reliability_tables(stored, labels={"b": "second"})
    for line, row in zip(ax.lines[1:], p, strict=True):
        _, right, stated, share = metrics.reliability(row.reshape(-1, 3), np.tile(y, 2), n_bins=10)
        np.testing.assert_allclose(line.get_xydata(), np.stack((stated, right), axis=1)[share > 0.01], rtol=1e-12)
    assert [line.get_label() for line in ax.lines[1:]] == ["a", "second"]


def test_a_seed_that_did_not_run_is_left_out_and_a_row_without_any_is_named():
    stored, _, _ = tables()
    stored[0, 1], stored[1] = NAN, NAN
    first, second = plot_reliability_tables(stored).lines[1:]
    np.testing.assert_array_equal(first.get_xydata(), plot_reliability_tables(stored[:1, 0]).lines[1].get_xydata())
    assert second.get_label() == "b (not run)"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plot_differences(compared().drop_vars("low")), "ds must hold difference, low, high, p_corrected over pair"),
        (lambda: plot_differences(compared().isel(pair=0)), "over pair"),
        (lambda: plot_differences(compared().isel(pair=[])), "over pair"),
        (lambda: plot_differences(None), "ds must hold"),
        (lambda: plot_differences(compared(), alpha=0), "alpha"),
        (lambda: plot_reliability_tables(tables()[0].rename(row="method")), r"tables must have the dimensions \(row, bin, column\)"),
        (lambda: plot_reliability_tables(tables()[0][..., :2]), "tables must have"),
        (lambda: plot_reliability_tables(np.zeros((2, 3))), "tables must have"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
