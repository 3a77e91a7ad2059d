"""Every figure draws what it was given, on given or on new axes."""

from __future__ import annotations

import json

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

from theory import plots, report
from theory.equilibrium import Semicircle
from theory.mean_field import MeanField


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.fixture
def dataset():
    omega = np.random.default_rng(0).normal(size=(3, 60, 20, 1)) / np.sqrt(7.8)
    attrs = {"energy": {"name": "Quadratic", "stiffness": 1.3}, "domain": {"name": "FullSpace"}, "sampler": {"name": "MALA", "beta": 6.0}}
    variables = {"omega": (("chain", "step", "particle", "dim"), omega)}
    return xr.Dataset(variables, coords={"step": 10 * np.arange(60)}, attrs={name: json.dumps(value) for name, value in attrs.items()})


@pytest.mark.parametrize("n_chains", [1, 3])
def test_density_figure_holds_curve_and_normalised_histogram(n_chains):
    law = Semicircle(1.3, 0.7)
    grid = np.linspace(-1, 1, 50)
    samples = np.stack([law.sample(500, seed)[:, 0] for seed in range(n_chains)])
    ax = plots.plot_density(samples, grid, law.density(grid), bins=20)
    histogram, curve = ax.lines
    np.testing.assert_array_equal(curve.get_ydata(), law.density(grid))
    assert np.sum(histogram.get_ydata()) * np.ptp(samples) / 20 == pytest.approx(1)
    assert len(ax.collections) == (n_chains > 1)  # the band needs chains


def test_free_energy_figure():
    field = MeanField(lambda x: x**2, None, 2.0, np.linspace(-2, 2, 51))
    rho = np.full(50, 0.25)
    values = [field.free_energy(rho)] + [field.free_energy(rho := field.evolve(rho, 0.1, n_steps=5)) for _ in range(4)]
    minimum = field.free_energy(field.stationary().rho)
    ax = plots.plot_free_energy(np.arange(5) * 0.1, values, minimum=minimum)
    assert ax.get_yscale() == "log"
    assert (np.diff(ax.lines[0].get_ydata()) < 0).all()
    assert plots.plot_free_energy(np.arange(5), values).get_yscale() == "linear"


def test_check_figures(dataset):
    table = report.check(dataset)
    assert len(table["law"]) == 2
    _, (left, right) = plt.subplots(1, 2)
    assert plots.plot_second_moment(dataset, table, ax=left) is left
    assert len(left.lines) == 3 + 1
    plots.plot_check(table, ax=right)
    assert len([bar for bar in right.patches if bar.get_width() != 4]) == 2
    plots.plot_check(table.isel(law=[]))
    ax = plots.plot_second_moment(dataset, table.isel(law=[]))
    assert len(ax.lines) == 3
    assert "did not apply" in ax.get_title()


def test_laws_without_deviation_are_seen(dataset):
    table = report.check(dataset)
    table["z"][:] = 0.0
    ax = plots.plot_check(table)
    assert len(ax.collections[0].get_offsets()) == 2
    assert not ax.texts
    assert "allowance" in ax.get_xlabel()
    assert plots.plot_check(table.isel(law=[])).texts[0].get_text() == "no law applied"


def test_bad_input():
    with pytest.raises(ValueError, match="samples must be"):
        plots.plot_density([1.0, 2.0], [0.0, 1.0], [1.0, 1.0])
    with pytest.raises(ValueError, match="of one shape"):
        plots.plot_free_energy([0.0, 1.0], [2.0, 1.0, 0.0])
    with pytest.raises(ValueError, match="free_energy must be finite"):
        plots.plot_free_energy([0.0, 1.0], [np.nan, 1.0])
