"""Every figure draws the numbers it was given, is legible, and is the same from the saved Dataset."""

from __future__ import annotations

import io
import itertools
import json
import subprocess
import sys

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

from theory import plots, report
from theory.convergence import bias_variance, fit_rate
from theory.convergence.coupling import synchronous_coupling
from theory.ensembles import sample_log_gas
from theory.equilibrium import Semicircle
from theory.ground_states import hermite_ground_state
from theory.large_deviations import empirical_rate
from theory.large_deviations.log_gas import second_moment_rate
from theory.mean_field import MeanField
from theory.mean_field.disc import Disc
from theory.mean_field.meshes import Rectangle
from theory.mean_field.radial import RadialBall
from theory.plots import configurations, curves, field_plots, limit_curves
from theory.plots.figures import FIGURES
from theory.plots.panels import BAD, GOOD
from theory.spectral import gram
from theory.spectral.random_matrices import MarchenkoPastur, PenningtonWorah
from theory.spectral.spectrum_estimate import marginal_profile, radial_profile

GRID = np.linspace(-4, 4, 61)


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def dataset():
    """An exact run of the log gas: 3 chains, 60 frames, 20 particles."""
    omega = np.stack([sample_log_gas(20, 6.0, 1.3, 0.7, seed, size=60) for seed in range(3)])
    gap = np.abs(omega - omega[..., None, :, 0]) + np.eye(20)
    energy = 0.65 * np.mean(omega[..., 0] ** 2, -1) - 0.35 * np.log(gap).sum((-1, -2)) / (20 * 19)
    terms = [{"name": "Quadratic", "stiffness": 1.3}, {"name": "Riesz", "s": 0, "strength": 0.7}]
    attrs = {"energy": {"name": "Sum", "energies": terms}, "domain": {"name": "FullSpace"}, "sampler": {"name": "MALA", "beta": 6.0}}
    variables = {"omega": (("chain", "step", "particle", "dim"), omega), "energy": (("chain", "step"), energy)}
    return xr.Dataset(variables, coords={"step": 10 * np.arange(60)}, attrs={name: json.dumps(value) for name, value in attrs.items()})


@pytest.fixture(scope="module")
def table(dataset):
    return report.check(dataset)


@pytest.fixture(scope="module")
def field():
    """A bistable mean field: attraction in a double well."""
    return MeanField(lambda x: x**4 / 4 - x**2 / 2, lambda r: 0.4 * r**2, 6.0, np.linspace(-3, 3, 62))


@pytest.fixture(scope="module")
def found(field):
    starts = [np.exp(-2 * (field.x - centre) ** 2) for centre in (-1, 1)]
    return field.stationary_states([rho / field.mesh.integral(rho) for rho in starts] + [field.gibbs(field.external)])


@pytest.fixture(scope="module")
def flow_dataset():
    field = MeanField(lambda x: x**2 / 2, None, 2.0, GRID)
    rho = np.exp(-2 * (field.x - 1) ** 2)
    record = field.flow(rho / field.mesh.integral(rho), [0.1, 0.5, 1.0, 2.0], tol=1e-4)
    assert field.mesh.integral(record.rho[-1]) == pytest.approx(1)
    particles = np.random.default_rng(0).normal(size=(4, 3, 50, 1))
    return field_plots.flow(field, record, particles=particles, bins=12)


def _coupled(n):
    start = np.random.default_rng(n).normal(size=(6, n, 1))
    pull = lambda x: -x - 0.5 * (x - x.mean(1, keepdims=True))  # noqa: E731
    return synchronous_coupling(start, pull, lambda t, x: -1.5 * x, step_size=0.05, beta=1.0, n_steps=10, rng=1)


@pytest.fixture(scope="module")
def figures(dataset, table, field, found, flow_dataset):
    """A Dataset of every figure."""
    rng = np.random.default_rng(2)
    law, x = Semicircle(1.0, 1.0), np.linspace(-1.3, 1.3, 41)
    samples, edges = np.stack([law.sample(200, seed) for seed in range(3)]), np.linspace(-1.5, 1.5, 16)
    points, radii = rng.normal(size=(40, 2)), np.linspace(0, 2, 11)
    n = np.array([16, 32, 64, 128])
    values = rng.normal(size=(4, 50)) / np.sqrt(n[:, None])
    seen, grid = np.array([[40, 9, 0], [31, 2, 0]]), np.linspace(1.0, 2.5, 30)
    features = rng.normal(size=(3, 60, 30))
    spectra = np.linalg.eigvalsh(features @ features.transpose(0, 2, 1) / 30)
    kernel = np.exp(-np.square(x[:, None] - x))
    plane = MeanField(lambda w: w[..., 0] ** 2 + w[..., 1] ** 2 / 2, None, 2.0, Rectangle([-2, -2], [2, 2], (8, 12)))
    disc = MeanField(lambda w: w[..., 0] ** 2, None, 2.0, Disc(1.5, 5, 9))
    shells = MeanField(lambda r: r**2 / 2, None, 2.0, RadialBall(3.0, 20, 3))
    unit = {"x_name": "frequency [1/length]", "y_name": "density [length]"}
    estimate = marginal_profile(samples, edges, 0)
    mean_field = {"x_name": "beta", "y_name": "mean position"}
    return {
        "check": table,
        "no law": table.isel(law=[], quantity=[]),
        "compared": curves.compared(n, [1 / n, 2 / n], error=[0.1 / n, 0.2 / n], series=("a", "b"), law=1 / n, scale="loglog", **unit),
        "lines": curves.compared(x, samples[:, :41, 0], error=np.full((3, 41), 0.1), series=("a", "b", "c"), style="line"),
        "density": curves.histogram(edges, estimate, x, law.density(x), atom=curves.Atom(0.0, 0.1, np.nan, 0.12), **unit),
        "radial density": curves.histogram(radii, radial_profile(points, radii), radii, np.exp(-(radii**2) / 2) / (2 * np.pi)),
        "cumulative": curves.cumulative(samples, x, law.cdf(x)),
        "quantiles": curves.quantiles(hermite_ground_state(12, 1.0, 1.0), law.quantile),
        "deciles": curves.density_deciles(dataset),
        "across": curves.across([0.2, 0.1], [table, table], "second_moment", x_name="step size"),
        "large deviation": limit_curves.large_deviation(
            grid, second_moment_rate(grid, 2.0, 1.0, 1.0), [1.2, 1.6, 2.4], seen, 100, {"N = 10": 10.0, "N = 30": 30.0}
        ),
        "concentration": limit_curves.concentration(n, values, 1.0),
        "rate": limit_curves.rate(n, np.abs(values) + 0.01, expected=-0.5),
        "errors": limit_curves.errors(1 / n, values, 0.0, laws={"variance": lambda h: h}, x_name="step size"),
        "coupling": limit_curves.coupling({"N = 4": _coupled(4), "N = 16": _coupled(16)}),
        "gram": curves.gram_spectrum(spectra, MarchenkoPastur(2.0), bins=20),
        "nonlinear gram": curves.gram_spectrum(spectra[:, 30:], PenningtonWorah(1.0, 0.5, 1.0, 1.0), bins=20, scale="semilogy"),
        "alignment": curves.alignment(
            {"kernel": gram.label_alignment(kernel, np.sign(x)), "identity": gram.label_alignment(np.eye(41), x)}
        ),
        "flow": flow_dataset,
        "radial flow": field_plots.flow(shells, shells.flow(shells.gibbs(shells.external / 2), [0.1, 0.2])),
        "states": field_plots.states(field, found),
        "bifurcation": field_plots.bifurcation([4.0, 6.0], [found[:1], found], lambda r: field.mesh.integral(r * field.x), **mean_field),
        "map": field_plots.density_map(plane, plane.stationary().rho, particles=points),
        "disc": field_plots.density_map(disc, disc.stationary().rho),
        "configuration": configurations.configuration(points, radius=2.0),
    }


NAMES = ["check", "no law", "compared", "lines", "density", "radial density", "cumulative", "quantiles", "deciles", "across"]
NAMES += ["large deviation", "concentration", "rate", "errors", "coupling", "gram", "nonlinear gram", "alignment", "flow", "radial flow"]
NAMES += ["states", "bifurcation", "map", "disc", "configuration"]


def _figure(drawn):
    return drawn if hasattr(drawn, "savefig") else drawn.figure


def _artists(figure):
    """The numbers and words of everything drawn, in order."""
    found = []
    for ax in figure.axes:
        found += [line.get_xydata() for line in ax.lines]
        found += [patch.get_path().vertices for patch in ax.patches]
        for collection in ax.collections:
            found += [np.ma.getdata(collection.get_offsets()), np.asarray(collection.get_array(), float)]
            found += [path.vertices for path in collection.get_paths()]
        found += [np.array([*ax.get_xlim(), *ax.get_ylim()])]
    return found, [[text.get_text() for text in ax.findobj(plt.Text)] for ax in figure.axes]


def _same(one, other):
    assert one[1] == other[1]
    assert len(one[0]) == len(other[0]) > 0
    for left, right in zip(one[0], other[0]):
        np.testing.assert_array_equal(left, right)


def test_every_figure_has_a_name(figures):
    assert list(figures) == NAMES
    drawn = {figure.attrs["figure"] for figure in figures.values() if "figure" in figure.attrs}
    assert drawn == set(FIGURES)


@pytest.mark.parametrize("name", NAMES)
def test_saved_and_reloaded_datasets_draw_the_same(figures, name, tmp_path):
    figures[name].to_netcdf(tmp_path / "figure.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "figure.nc", engine="h5netcdf") as saved:
        _same(_artists(_figure(plots.draw(figures[name]))), _artists(_figure(plots.draw(saved))))


def test_courses_are_redrawn_from_trajectory_and_table(dataset, table, tmp_path):
    for name, saved in (("run", dataset), ("table", table)):
        saved.to_netcdf(tmp_path / f"{name}.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "run.nc") as run, xr.open_dataset(tmp_path / "table.nc") as laws:
        for plot in (plots.plot_second_moment, plots.plot_energy):
            _same(_artists(plot(dataset, table).figure), _artists(plot(run, laws).figure))
        _same(_artists(plots.plot_mixing(table).figure), _artists(plots.plot_mixing(laws).figure))


@pytest.mark.parametrize("name", ["check", "map"])
def test_zarr_does_as_well(figures, name, tmp_path):
    figures[name].to_zarr(tmp_path / "figure.zarr", zarr_format=2)
    with xr.open_zarr(tmp_path / "figure.zarr", chunks=None) as saved:
        _same(_artists(_figure(plots.draw(figures[name]))), _artists(_figure(plots.draw(saved))))


@pytest.mark.parametrize("name", NAMES)
def test_figures_are_legible_and_labelled(figures, name):
    figure = _figure(plots.draw(figures[name]))
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    for ax in figure.axes:
        assert ax.get_ylabel() or name in ("check", "no law")
        assert all(text.get_fontsize() >= 8 for text in ax.findobj(plt.Text) if text.get_text())
        inside = ax.get_window_extent(renderer)
        if ax.get_legend() is not None:
            assert ax.get_legend().get_window_extent(renderer).y0 >= inside.y1 - 1
        for axis in (ax.xaxis, ax.yaxis):
            ticks = [tick for tick in axis.get_ticklabels(which="both") if tick.get_visible() and tick.get_text()]
            boxes = [tick.get_window_extent(renderer) for tick in ticks]
            boxes = [box for box in boxes if inside.x0 - 1 <= (box.x0 + box.x1) / 2 <= inside.x1 + 1 or axis is ax.yaxis]
            assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    tight = figure.get_tightbbox(renderer)
    assert tight.x0 > -0.02
    assert tight.y0 > -0.02
    assert tight.x1 < figure.get_figwidth() + 0.02
    assert tight.y1 < figure.get_figheight() + 0.02


def test_variables_say_what_they_are(figures):
    for name, dataset in figures.items():
        for variable in ("measured", "law", "x", "grid", "edge", "density", "order", "control"):
            if variable in dataset and name not in ("check", "no law"):
                assert {"long_name", "units"} <= set(dataset[variable].attrs), (name, variable)
    assert plots.draw(figures["compared"]).get_xlabel() == "frequency [1/length]"


@pytest.mark.parametrize(("kind", "name"), [("pdf", "check"), ("svg", "map")])
def test_vector_export(figures, kind, name):
    buffer = io.BytesIO()
    _figure(plots.draw(figures[name])).savefig(buffer, format=kind)
    assert buffer.tell() > 5000


def test_matplotlib_is_loaded_by_figures_alone():
    code = "import theory.plots, sys; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_given_axes_are_drawn_on(figures, dataset, table):
    figure, (left, right) = plt.subplots(1, 2)
    assert plots.draw(figures["density"], ax=left) is left
    assert plots.plot_dissipation(figures["flow"], ax=(left, right)) is figure
    assert plots.plot_second_moment(dataset, table, ax=right) is right
    with pytest.raises(ValueError, match="ax must be 2 Axes"):
        plots.plot_dissipation(figures["flow"], ax=left)


# what is drawn is what was given


@pytest.mark.parametrize("n_chains", [1, 3])
def test_density_figure_holds_curve_and_normalised_histogram(n_chains):
    law = Semicircle(1.3, 0.7)
    grid = np.linspace(-1, 1, 50)
    samples = np.stack([law.sample(500, seed)[:, 0] for seed in range(n_chains)])
    ax = plots.plot_density(samples, grid, law.density(grid), bins=20)
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), law.density(grid))
    heights, edges, _ = ax.patches[0].get_data()
    np.testing.assert_allclose(heights, np.histogram(samples, edges, density=True)[0], rtol=1e-12)
    assert np.sum(heights * np.diff(edges)) == pytest.approx(1)
    assert len(ax.collections) == (n_chains > 1)  # the band needs chains


def test_points_bars_and_bands_are_the_numbers(figures):
    n = np.array([16, 32, 64, 128])
    ax = plots.draw(figures["compared"])
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    for k, container in enumerate(ax.containers):
        np.testing.assert_array_equal(container[0].get_xydata(), np.transpose([n, (k + 1) / n]))
        ends = np.array([segment[:, 1] for segment in container[2][0].get_segments()])
        np.testing.assert_allclose(ends, np.outer((k + 1) / n, [0.8, 1.2]), rtol=1e-12)
    assert [float(text.get_text()) for text in ax.get_xticklabels()] == list(n)
    ax = plots.draw(figures["lines"])
    for line, values in zip(ax.lines, figures["lines"]["measured"].values):
        np.testing.assert_array_equal(line.get_ydata(), values)


def test_curves_named_after_a_series_take_its_colour():
    drawn = curves.compared([1, 2], [[1, 2], [3, 4]], series=("a", "b"), law=[[3, 4], [0, 0]], curves=("b", "theory"))
    ax = plots.draw(drawn)
    second = ax.containers[1][0].get_color()
    assert [line.get_color() for line in ax.lines if line.get_linestyle() != "None"] == [second, "black"]


def test_check_figure_shows_verdicts_and_p_values(table):
    table = table.copy(deep=True)
    table["passed"][1], table["z"][1] = False, -40.0
    ax = plots.plot_check(table)
    number = table.sizes["law"]
    passed, failed = ax.collections
    assert len(passed.get_offsets()) == number - 1
    np.testing.assert_array_equal(failed.get_offsets(), [[-10, number - 2]])  # clipped, second from the top
    assert plt.matplotlib.colors.same_color(failed.get_facecolor()[0], BAD)
    assert plt.matplotlib.colors.same_color(passed.get_facecolor()[0], GOOD)
    labels = [text.get_text() for text in ax.child_axes[0].get_yticklabels()]
    expected = [
        "rule" if np.isnan(raw) else f"{raw:.2g} ({corrected:.2g})"
        for raw, corrected in zip(table["p_value"].values, table["p_corrected"].values)
    ]
    assert labels == expected
    assert "rule" in labels
    z = np.where(np.isnan(table["p_value"]), 0.0, table["z"])[table["passed"].values]
    np.testing.assert_allclose(passed.get_offsets()[:, 0], z, atol=1e-12)
    empty = plots.plot_check(table.isel(law=[]))
    assert "no law applied" in [text.get_text() for text in empty.texts]


def test_mixing_figure(table):
    ax = plots.plot_mixing(table)
    np.testing.assert_array_equal(np.concatenate([line.get_xdata() for line in ax.lines]), table["ess"])
    np.testing.assert_array_equal(np.concatenate([line.get_ydata() for line in ax.lines]), table["r_hat"])
    bad = table.copy(deep=True)
    bad["r_hat"][:] = np.nan
    assert not plots.plot_mixing(bad).lines
    bad["r_hat"][:], bad["ess"][:] = 3.0, 2.0
    ax = plots.plot_mixing(bad)
    assert ax.get_xlim()[0] < 2
    assert ax.get_ylim()[1] > 3


def test_courses_hold_every_chain_and_the_prediction(dataset, table):
    ax = plots.plot_second_moment(dataset, table)
    for line, values in zip(ax.lines, (dataset["omega"] ** 2).sum("dim").mean("particle").values):
        np.testing.assert_allclose(line.get_ydata(), values, rtol=1e-12)
    assert ax.lines[-1].get_ydata()[0] == float(table.sel(law="second_moment")["predicted"])
    np.testing.assert_array_equal(plots.plot_energy(dataset, table).lines[0].get_ydata(), dataset["energy"][0])
    ax = plots.plot_second_moment(dataset, table.isel(law=[]))
    assert len(ax.lines) == 3
    assert "did not apply" in ax.get_title()
    with pytest.raises(ValueError, match="dataset must hold energy"):
        plots.plot_energy(dataset.drop_vars("energy"), table)


def test_cumulative_difference_is_that_of_counting():
    samples, x = np.array([[0.1, 0.5, 0.7, 0.2], [0.3, 0.3, 0.9, 0.6]]), np.array([0.0, 0.3, 0.65, 1.0])
    found = curves.cumulative(samples, x, x)
    by_hand = (samples[..., None] <= x).mean(1)
    np.testing.assert_allclose(found["measured"][0], by_hand.mean(0) - x)
    np.testing.assert_allclose(found["high"][0] - found["measured"][0], 2 * np.abs(by_hand[0] - by_hand[1]) / 2, atol=1e-15)
    assert np.isnan(curves.cumulative(samples[:1], x, x)["low"]).all()  # no error of a single chain


def test_deciles_are_those_that_check_tests(dataset, table):
    found = curves.density_deciles(dataset)
    row = table.sel(law="density")
    k = int(np.argmin(np.abs(found["measured"][0].values - float(row["measured"]))))
    # the samples of the exact law are drawn from another place in the stream: equal to their error, 1/sqrt(40 000 * 1/4)
    assert float(found["measured"][0, k]) == pytest.approx(float(row["measured"]), abs=0.01)
    assert np.abs(found["measured"]).max() < 0.1
    with pytest.raises(ValueError, match="must have a density law: nothing confines"):
        curves.density_deciles(dataset.assign_attrs(energy=json.dumps({"name": "Riesz", "s": 0, "strength": 1.0})))


def test_deciles_of_each_coordinate_and_of_the_radius():
    rng = np.random.default_rng(3)
    omega = xr.DataArray(rng.uniform(size=(2, 40, 10, 2)), dims=("chain", "step", "particle", "dim"))
    torus = {"energy": {"name": "Riesz", "s": 1, "strength": 0.0}, "domain": {"name": "Torus", "period": [1.0, 1.0]}}
    trap = {"energy": {"name": "Quadratic", "stiffness": 1.0}, "domain": {"name": "FullSpace"}}
    runs = [xr.Dataset({"omega": x}, {"step": np.arange(40)}) for x in (omega, omega.copy(data=rng.normal(size=omega.shape)))]
    for run, description, series in zip(runs, (torus, trap), (["coordinate 1", "coordinate 2"], ["radius, free particles"])):
        run.attrs = {key: json.dumps(value) for key, value in (description | {"sampler": {"name": "MALA", "beta": 1.0}}).items()}
        found = curves.density_deciles(run)
        assert found["series"].values.tolist() == series
        z = (found["measured"] / ((found["high"] - found["low"]) / 4)).values
        assert np.abs(z).max() < 4.5  # 18 deviations: false alarm below 2e-4
        assert np.abs(curves.density_deciles(run.assign(omega=run["omega"] * 0.9))["measured"]).max() > 0.04  # the wrong scale is seen


def test_laws_across_runs_are_sorted_rows_of_the_tables(table):
    other = table.copy(deep=True)
    other["measured"][:] = 7.0
    found = curves.across([0.2, 0.1], [other, table], "second_moment", x_name="step size [time]")
    assert found["measured"].values.tolist() == [[float(table.sel(law="second_moment")["measured"]), 7.0]]
    assert found["law"].values.tolist() == [[float(table.sel(law="second_moment")["predicted"])] * 2]
    with pytest.raises(ValueError, match="that hold 'wall_atom'"):
        curves.across([0.1], [table], "wall_atom", x_name="step size")
    with pytest.raises(ValueError, match="tables must be 2"):
        curves.across([0.1, 0.2], [table], "second_moment", x_name="step size")


def test_large_deviation_bars_are_those_of_clopper_and_pearson(figures):
    found = figures["large deviation"]
    exact = empirical_rate(9, 100, 10.0)
    assert [float(found[name][0, 1]) for name in ("measured", "low", "high")] == [exact.rate, exact.low, exact.high]
    never = empirical_rate(0, 100, 10.0)
    ax = plots.draw(found)
    arrows = [line for line in ax.lines if "arrow" in str(line.get_marker())]
    assert arrows[0].get_xydata().tolist() == [[2.4, never.low]]  # drawn as a bound, not as a point
    assert np.isnan(ax.containers[0][0].get_ydata()[2])


def test_concentration_and_errors_are_those_of_bias_variance(figures):
    n = np.array([16, 32, 64, 128])
    values = np.random.default_rng(5).normal(size=(4, 50)) / np.sqrt(n[:, None]) + 0.1
    parts = bias_variance(values.T, 0.0)
    found = limit_curves.concentration(n, values, 2.0)
    np.testing.assert_allclose(found["measured"][0], np.sqrt(parts.variance))
    np.testing.assert_allclose(found["law"][0], np.sqrt(2 / found["grid"]))
    np.testing.assert_allclose(found["high"][0] - found["measured"][0], parts.variance_error / np.sqrt(parts.variance))
    found = limit_curves.errors(n, values, 0.0, x_name="number of particles")
    np.testing.assert_allclose(found["measured"], [parts.bias**2, parts.variance, parts.mse])
    assert "law" not in found
    np.testing.assert_allclose(found["high"][0], (np.abs(parts.bias) + 2 * parts.bias_error) ** 2)
    np.testing.assert_allclose(found["low"][0], np.maximum(np.abs(parts.bias) - 2 * parts.bias_error, 0) ** 2)
    np.testing.assert_allclose(found["low"][1:], [parts.variance - 2 * parts.variance_error, parts.mse - 2 * parts.mse_error])


def test_rate_figure_shows_the_fit_and_its_interval():
    n = np.array([10, 20, 40, 80])
    error = 3 * n[:, None] ** -0.5 * np.exp(0.1 * np.random.default_rng(0).normal(size=(4, 6)))
    fit = fit_rate(n, error)
    found = limit_curves.rate(n, error, expected=-0.5)
    np.testing.assert_allclose(found["measured"][0], np.exp(np.log(error).mean(1)))
    np.testing.assert_allclose(found["law"][0], np.exp(fit.intercept) * found["grid"] ** fit.slope)
    middle = int(np.argmin(np.abs(np.log(found["grid"].values) - np.log(n).mean())))
    assert float(found["law_high"][0, middle] / found["law_low"][0, middle]) == pytest.approx(1, abs=0.01)
    width = np.log(found["law_high"][0, -1] / found["law_low"][0, -1])
    assert float(width) == pytest.approx((fit.high - fit.low) * (np.log(80) - np.log(n).mean()))
    assert f"[{fit.low:.2f}, {fit.high:.2f}]" in str(found["curve"].values[0])
    assert "theory: slope -0.50" in found["curve"].values


def test_coupling_figure_holds_means_over_chains(figures):
    run = _coupled(4)
    np.testing.assert_allclose(figures["coupling"]["measured"][0], run.distance.mean(0))
    ax = plots.draw(figures["coupling"])
    np.testing.assert_allclose(ax.lines[0].get_xydata(), np.transpose([run.time, run.distance.mean(0)]))


def test_gram_spectrum_splits_atom_and_density(figures):
    found = figures["gram"]  # 60 rows of rank 30
    assert float(found["atom_measured"]) == 0.5
    assert float(found["atom_predicted"]) == 0.5
    assert float(np.sum(found["measured"] * np.diff(found["edge"]))) == pytest.approx(0.5, abs=0.02)  # some lie beyond the edge
    law = found["law"].values * np.gradient(found["grid"].values)
    assert law.sum() == pytest.approx(0.5, abs=0.01)
    assert "Marchenko-Pastur" in [text.get_text() for text in plots.draw(found).get_legend().get_texts()]
    assert plots.draw(figures["nonlinear gram"]).get_yscale() == "log"


def test_the_edges_of_the_law_of_a_gram_spectrum_are_drawn(figures):
    low, high = MarchenkoPastur(2.0).edges
    np.testing.assert_allclose(figures["gram"]["law_edge"], [low, high])
    ax = plots.draw(figures["gram"])
    upright = [line.get_xdata() for line in ax.lines if line.get_linestyle() == ":" and len(line.get_xdata())]
    np.testing.assert_allclose(upright, [[low, low], [high, high]])
    assert f"edge of the law: {low:.3g} and {high:.3g}" in [text.get_text() for text in ax.get_legend().get_texts()]
    assert figures["nonlinear gram"].sizes["end"] == 1


def test_alignment_interpolates_within_equal_eigenvalues(figures):
    x = np.linspace(-1.3, 1.3, 41)
    curve = figures["alignment"]["measured"].sel(series="identity")
    np.testing.assert_allclose(curve, np.arange(42) / 41)  # one space: as labels at random
    kernel = gram.label_alignment(np.exp(-np.square(x[:, None] - x)), np.sign(x))
    assert float(figures["alignment"]["measured"].sel(series="kernel")[kernel.rank[1]]) == pytest.approx(kernel.cumulative[1])


def test_flow_figures(flow_dataset):
    ax = plots.plot_flow(flow_dataset)
    np.testing.assert_array_equal(ax.collections[0].get_array(), flow_dataset["density"].values.T)
    ax = plots.plot_snapshots(flow_dataset, number=2)
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), flow_dataset["density"][-1])
    np.testing.assert_array_equal(ax.patches[1].get_data()[0], flow_dataset["particles"][-1])
    figure = plots.plot_dissipation(flow_dataset)
    loss, rate = figure.axes[0].lines
    t, energy = flow_dataset["t"].values, flow_dataset["free_energy"].values
    np.testing.assert_allclose(rate.get_ydata(), -np.diff(energy) / np.diff(t))
    np.testing.assert_array_equal(loss.get_ydata(), flow_dataset["dissipation"])
    np.testing.assert_allclose(rate.get_ydata(), np.interp(rate.get_xdata(), t, loss.get_ydata()), rtol=0.05)
    assert np.abs(figure.axes[1].lines[1].get_ydata()).max() < 0.01
    with pytest.raises(ValueError, match="at least two times"):
        plots.plot_flow(flow_dataset.isel(time=[0]))


def test_particles_stand_beside_the_solution_on_one_scale(flow_dataset):
    left, right, _ = plots.plot_flow_beside(flow_dataset).axes
    seen, solved = left.collections[0], right.collections[0]
    np.testing.assert_array_equal(seen.get_array(), flow_dataset["particles"].values.T)
    np.testing.assert_array_equal(solved.get_array(), flow_dataset["density"].values.T)
    peaks = np.concatenate([flow_dataset[name].max(cell) for name, cell in (("particles", "bin"), ("density", "cell"))])
    assert seen.get_clim() == solved.get_clim() == (0, peaks.max())
    assert left.get_ylim() == right.get_ylim()
    _, given = plt.subplots(1, 2)
    assert plots.plot_flow_beside(flow_dataset, ax=given) is given[0].figure
    with pytest.raises(ValueError, match="dataset must be a flow with particles"):
        plots.plot_flow_beside(flow_dataset.drop_vars("particles"))
    with pytest.raises(ValueError, match="at least two times, got 1"):
        plots.plot_flow_beside(flow_dataset.isel(time=[0]))
    with pytest.raises(ValueError, match="ax must be 2 Axes"):
        plots.plot_flow_beside(flow_dataset, ax=given[:1])


def test_a_sharp_start_does_not_darken_the_rest(flow_dataset):
    sharp = flow_dataset.copy(deep=True)
    sharp["density"][0] *= 10
    ax = plots.plot_flow(sharp)
    assert ax.collections[0].get_clim()[1] == pytest.approx(2 * float(sharp["density"].max("cell").median()))
    assert ax.collections[0].colorbar.extend == "max"
    assert plots.plot_flow(flow_dataset).collections[0].colorbar.extend == "neither"


@pytest.mark.parametrize("shape", [(2, 0, 1, 1), (2, 1, 0, 1), (2, 1, 1, 2), (3, 1, 1, 1), (2, 1, 1)])
def test_particles_of_another_form_are_named(field, shape):
    record = field.flow(field.gibbs(field.external), [0.1, 0.2])
    with pytest.raises(ValueError, match=r"particles must be \(time, chain, particle, 1\) at 2 times, got"):
        field_plots.flow(field, record, particles=np.zeros(shape))


def test_one_particle_has_a_density_and_no_error():
    field = MeanField(lambda x: x**2 / 2, None, 2.0, GRID)
    record = field.flow(field.gibbs(field.external), [0.1, 0.2])
    found = field_plots.flow(field, record, particles=np.zeros((2, 1, 1, 1)), bins=5)
    np.testing.assert_allclose(found["particles"].max("bin"), 5 / 8)
    assert np.isnan(found["particles_error"]).all()
    for draw in (plots.plot_flow_beside, plots.plot_snapshots):
        _figure(draw(found)).canvas.draw()
    with pytest.raises(ValueError, match="particles"):
        field_plots.flow(field, record, particles=np.full((2, 1, 1, 1), np.nan))


@pytest.mark.parametrize("name", ["plane", "disc"])
def test_the_dissipation_identity_is_drawn_in_the_plane_too(name):
    mesh = Rectangle([-3, -3], [3, 3], (24, 24)) if name == "plane" else Disc(3.0, 16, 12)
    field = MeanField(lambda w: (w**2).sum(-1) / 2, lambda r: 0.2 * r**2, 2.0, mesh)
    record = field.flow(field.normalised(np.exp(-np.square(field.x - 0.5).sum(-1))), np.linspace(0, 1, 41), tol=1e-5)
    found = field_plots.flow(field, record)
    np.testing.assert_array_equal(found["dissipation"], record.dissipation)
    assert set(found.dims) == {"t"}  # densities of the plane are left to density_map
    left, right = plots.plot_dissipation(found).axes
    np.testing.assert_array_equal(left.lines[0].get_xydata(), np.transpose([record.t, record.dissipation]))
    assert np.abs(right.lines[1].get_ydata()).max() < 2e-3
    wrong = field_plots.flow(field, record._replace(dissipation=1.2 * record.dissipation))  # negative control
    assert np.abs(plots.plot_dissipation(wrong).axes[1].lines[1].get_ydata()).max() > 0.1
    for picture in (plots.plot_flow, plots.plot_snapshots, plots.draw):
        with pytest.raises(ValueError, match="in the plane: density_map"):
            picture(found)


def test_free_energy_figure(flow_dataset):
    t, values = flow_dataset["t"], flow_dataset["free_energy"]
    minimum = float(values.min()) - 1e-3
    ax = plots.plot_free_energy(t, values, minimum=minimum)
    assert ax.get_yscale() == "log"
    assert (np.diff(ax.lines[0].get_ydata()) < 0).all()
    assert plots.plot_free_energy(t, values).get_yscale() == "linear"


def test_flow_without_an_identity_leaves_it_out():
    field = MeanField(lambda x: x**2 / 2, None, 2.0, GRID)
    rho = np.where(np.abs(field.x) < 1, 1.0, 0.0)
    record = field.flow(rho / field.mesh.integral(rho), [0.1, 0.2])
    assert np.isinf(record.dissipation[0])  # empty cells
    found = field_plots.flow(field, record)
    assert np.isnan(found["residual"]).all()
    plots.plot_dissipation(found)
    assert not plots.plot_snapshots(found).patches  # no particles


def test_states_and_bifurcations_tell_stable_from_unstable(figures, found):
    assert [state.stability > 0 for state in found] == [True, True, False]
    assert [line.get_linestyle() for line in plots.draw(figures["states"]).lines] == ["-", "-", "--"]
    stable, unstable = plots.draw(figures["bifurcation"]).collections
    assert len(stable.get_offsets()) == 3
    assert len(unstable.get_facecolors()) == 0  # hollow
    np.testing.assert_allclose(unstable.get_offsets(), [[6.0, 0.0]], atol=1e-8)


def test_maps_hold_cells_and_particles(figures):
    figure = plots.draw(figures["map"])
    np.testing.assert_array_equal(figure.axes[0].collections[0].get_array(), figures["map"]["density"])
    np.testing.assert_array_equal(figure.axes[1].collections[0].get_offsets(), figures["map"]["particles"])
    corner = figures["disc"][["x", "y"]].to_array().values  # the shoelace areas of the cells fill all but the segments of the disc
    (x, y), (x1, y1), (x2, y2), (x3, y3) = corner[:, :-1, :-1], corner[:, 1:, :-1], corner[:, 1:, 1:], corner[:, :-1, 1:]
    area = np.abs((x2 - x) * (y3 - y1) - (x3 - x1) * (y2 - y)).sum() / 2
    assert area == pytest.approx(9 / 2 * np.sin(2 * np.pi / 9) * 1.5**2)


def test_neighbours_of_a_triangular_lattice_are_six():
    a, b = np.meshgrid(np.arange(-6, 7), np.arange(-6, 7))
    lattice = np.stack([a + b / 2, b * np.sqrt(3) / 2], -1).reshape(-1, 2)
    lattice = lattice[np.linalg.norm(lattice, axis=1) < 5] + 1e-6 * np.random.default_rng(0).normal(size=(1, 2))
    found = configurations.configuration(lattice, radius=5.0)
    inside = np.linalg.norm(lattice, axis=1) < 3.5
    assert (found["neighbours"].values[inside] == 6).all()
    assert sum(len(patch.get_path().vertices) == 7 for patch in plots.draw(found).patches) >= inside.sum()  # hexagons, closed


# odd input


def test_nan_and_single_values_are_gaps():
    ax = plots.draw(curves.compared([1.0, 2.0, 3.0], [1.0, np.nan, 3.0], error=[0.1, np.nan, np.nan]))
    assert np.isnan(ax.containers[0][0].get_ydata()).tolist() == [False, True, False]
    ax = plots.draw(curves.compared([1.0], [1.0]))
    assert ax.lines[0].get_xydata().tolist() == [[1.0, 1.0]]
    ax = plots.plot_density([[0.5]], [0.0, 1.0], [1.0, 1.0])  # one particle
    assert np.isfinite(ax.get_ylim()).all()
    nothing = np.full(2, np.nan)
    assert np.isfinite(plots.draw(curves.histogram([0, 1, 2], (nothing, nothing), [0.0, 1.0], [1.0, np.inf])).get_ylim()).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plots.plot_density([1.0, 2.0], [0.0, 1.0], [1.0, 1.0]), "samples must be"),
        (lambda: plots.plot_density(np.empty((2, 0)), [0.0], [1.0]), "samples must be"),
        (lambda: plots.plot_density([[np.nan]], [0.0], [1.0]), "samples must be finite"),
        (lambda: plots.plot_free_energy([0.0, 1.0], [2.0, 1.0, 0.0]), "of one shape"),
        (lambda: plots.plot_free_energy([], []), "n at least 1"),
        (lambda: plots.plot_free_energy([0.0, 1.0], [np.nan, 1.0]), "free_energy must be finite"),
        (lambda: curves.compared([], []), "x must be of shape"),
        (lambda: curves.compared([1.0, np.nan], [1.0, 2.0]), "x must be finite"),
        (lambda: curves.compared([0.0, 1.0], [1.0, 2.0], scale="loglog"), "x must be positive"),
        (lambda: curves.compared([1.0, 2.0], [1.0]), "measured must be of shape"),
        (lambda: curves.compared([1.0], [1.0], law=[1.0, 2.0]), "law must be of shape"),
        (lambda: curves.histogram([0, 1, 1], ([1, 1], [0, 0]), [0.0], [1.0]), "increasing edges"),
        (lambda: curves.histogram([0, 1], ([1, 1], [0, 0]), [0.0], [1.0]), "estimate must hold"),
        (lambda: curves.cumulative([1.0], [0.0], [0.5]), "samples must be"),
        (lambda: curves.quantiles([], lambda u: u), "quantile must be of shape"),
        (lambda: curves.quantiles(np.ones((2, 2)), lambda u: u), "x must be points on the line"),
        (lambda: curves.gram_spectrum(np.zeros(3), MarchenkoPastur(1.0)), "eigenvalues must be"),
        (lambda: curves.alignment({}), "found must hold"),
        (lambda: limit_curves.coupling({}), "runs must hold"),
        (lambda: limit_curves.concentration([2.0], np.ones((2, 5)), 1.0), "values must be"),
        (lambda: limit_curves.errors([1.0], np.ones((1, 5)), 0.0, laws={"bias": np.sqrt}, x_name="h"), "laws must be among"),
        (lambda: limit_curves.large_deviation([1.0], [0.0], [1.0], [[0.5]], 10, {"N": 1.0}), "seen must be counts"),
        (lambda: field_plots.states(None, []), "found must hold"),
        (lambda: field_plots.bifurcation([1.0], [[]], np.sum, x_name="a", y_name="b"), "found must hold"),
        (lambda: configurations.configuration(np.ones((3, 2))), "x must be"),
        (lambda: configurations.configuration(np.outer(np.arange(5), [1.0, 2.0])), "do not lie on a line"),
        (lambda: plots.draw(xr.Dataset()), "dataset must be the table"),
        (lambda: plots.draw(3), "got 'int'"),
        (lambda: plots.plot_states(xr.Dataset(attrs={"figure": "flow"})), "'states', got 'flow'"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda run, table: plots.plot_check(run), r"check must be what check returns, got Dataset of \['omega', 'energy'\]"),
        (lambda run, table: plots.plot_check(np.ones(3)), "check must be what check returns, got ndarray"),
        (lambda run, table: plots.plot_mixing(run), "check must be what check returns"),
        (lambda run, table: plots.plot_mixing(None), "check must be what check returns, got NoneType"),
        (lambda run, table: plots.plot_second_moment(table, run), r"dataset must hold omega \(chain, step, particle, dim\)"),
        (lambda run, table: plots.plot_second_moment(run, run), "check must be what check returns"),
        (lambda run, table: plots.plot_second_moment(run["omega"], table), "dataset must hold omega .*, got DataArray"),
        (lambda run, table: plots.plot_second_moment(run.isel(dim=0), table), "dataset must hold omega"),
        (lambda run, table: plots.plot_energy(table, run), r"dataset must hold energy \(chain, step\)"),
        (lambda run, table: plots.plot_energy(run["energy"].values, table), "dataset must hold energy .*, got ndarray"),
        (lambda run, table: plots.plot_energy(run, {}), "check must be what check returns, got dict"),
        (lambda run, table: curves.across([1, 2], [table, run], "energy", x_name="h"), r"tables\[1\] must be what check returns"),
        (lambda run, table: curves.across([1], table, "energy", x_name="h"), "tables must be a Sequence, got Dataset"),
        (lambda run, table: curves.across([1], [3], "energy", x_name="h"), r"tables\[0\] must be what check returns, got int"),
    ],
)
def test_runs_and_tables_are_not_mixed_up(dataset, table, call, message):
    with pytest.raises(ValueError, match=message):
        call(dataset, table)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda field, states: field_plots.flow(3, None), "field must be a MeanField, got int"),
        (lambda field, states: field_plots.flow(field, states[0]), "record must be a Flow, got Stationary"),
        (lambda field, states: field_plots.states(states, field), "found must hold at least one Stationary in a Sequence, got MeanField"),
        (lambda field, states: field_plots.states(3, states), "field must be a MeanField, got int"),
        (lambda field, states: field_plots.states(field, [states]), "found must hold at least one Stationary in a Sequence, got list"),
        (lambda field, states: field_plots.states(field, states[0]), "found must hold at least one Stationary"),
        (lambda field, states: field_plots.density_map(3, states), "field must be a MeanField, got int"),
        (
            lambda field, states: field_plots.bifurcation([1.0], states[:1], np.sum, x_name="a", y_name="b"),
            r"found\[0\] must hold Sequence of Stationary",
        ),
        (lambda field, states: field_plots.bifurcation([1.0], 3, np.sum, x_name="a", y_name="b"), "found must hold .*, got int"),
        (
            lambda field, states: field_plots.bifurcation([1.0], [[3]], np.sum, x_name="a", y_name="b"),
            r"found\[0\] must hold Sequence of Stationary, got int",
        ),
        (lambda field, states: field_plots.bifurcation([1.0], [states], 3, x_name="a", y_name="b"), "order must be a Callable, got int"),
        (
            lambda field, states: field_plots.bifurcation([1.0], [states], np.sqrt, x_name="a", y_name="b"),
            "order must be a real number, got array",
        ),
        (lambda field, states: curves.quantiles([1.0], Semicircle(1.0, 1.0)), "quantile must be a Callable, got Semicircle"),
        (
            lambda field, states: curves.gram_spectrum(np.ones(3), Semicircle(1.0, 1.0)),
            "law must be a MarchenkoPastur or PenningtonWorah, got Semicircle",
        ),
        (lambda field, states: curves.alignment([1.0]), "found must hold at least one LabelAlignment in a Mapping, got list"),
        (
            lambda field, states: curves.alignment(gram.label_alignment(np.eye(2), [1, 2])),
            "found must hold at least one LabelAlignment in a Mapping, got LabelAlignment",
        ),
        (lambda field, states: limit_curves.coupling({"a": 3}), "runs must hold at least one Coupled in a Mapping, got int"),
        (lambda field, states: limit_curves.coupling(_coupled(4)), "runs must hold at least one Coupled in a Mapping, got Coupled"),
        (lambda field, states: limit_curves.rate([1.0, 2.0], [2.0, 1.0], fit=3), "fit must be a Rate, got int"),
        (
            lambda field, states: limit_curves.errors([1.0], np.ones((1, 5)), 0.0, laws={"variance": 3}, x_name="h"),
            "laws must hold Mapping of Callable, got int",
        ),
        (
            lambda field, states: limit_curves.large_deviation([1.0], [0.0], [1.0], [[1]], 10, [1.0]),
            "speed must be a Mapping, got list",
        ),
    ],
)
def test_what_is_of_another_kind_is_named(field, found, call, message):
    with pytest.raises(ValueError, match=message):
        call(field, found)


def test_meshes_without_a_picture_are_named():
    plane = MeanField(lambda w: w[..., 0] ** 2, None, 2.0, Rectangle([-1, -1], [1, 1], (4, 4)))
    line = MeanField(lambda x: x**2, None, 2.0, GRID)
    record = plane.flow(np.full((4, 4), 0.25), [0.1])
    with pytest.raises(ValueError, match=r"on a line or along the radius.*in the plane: density_map"):
        field_plots.flow(plane, record, particles=np.ones((1, 2, 3, 2)))
    with pytest.raises(ValueError, match=r"on a line or along the radius.*in the plane: density_map"):
        field_plots.states(plane, [plane.stationary()])
    with pytest.raises(ValueError, match=r"record must be a flow of field, with cells of shape \(60,\), got \(4, 4\)"):
        field_plots.flow(line, record)
    with pytest.raises(ValueError, match="density in the plane"):
        field_plots.density_map(line, line.stationary().rho)
    with pytest.raises(ValueError, match=r"particles must be \(particle, 2\)"):
        field_plots.density_map(plane, np.full((4, 4), 0.25), particles=np.ones((3, 1)))
    with pytest.raises(ValueError, match=r"particles must be \(time, chain, particle, 1\)"):
        field_plots.flow(line, line.flow(line.stationary().rho, [0.1]), particles=np.ones((3, 1)))
