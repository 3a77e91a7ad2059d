"""Pictures: drawn from a Dataset alone, on given or new axes, with the right contents."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
import xarray as xr

from particles import HMC, Alignment, Ball, External, FullSpace, Langevin, Quadratic, Riesz, Torus, linear, plots, simulate
from particles.plots.panels import COLOURS, chain_points
from particles.plots.scatter import UNKNOWN


@pytest.fixture(scope="module")
def dataset():
    start = Ball(1.0, 2).sample(2 * 12, 0).reshape(2, 12, 2)
    return simulate(start, Quadratic(1.0) + Riesz(0, 1.0), Ball(1.5, 2), Langevin(0.02, 5.0), n_steps=40, save_every=2, rng=0)


@pytest.fixture(scope="module")
def line():
    return simulate(np.linspace(-1, 1, 9)[:, None], Quadratic(1.0), FullSpace(1), Langevin(0.02, 5.0), n_steps=10, rng=0)


@pytest.fixture(scope="module")
def space():
    start = np.random.default_rng(0).normal(size=(2, 10, 5)) * [3, 2, 1, 0.5, 0.5]
    return simulate(start, Quadratic(1.0), FullSpace(5), Langevin(0.02, 5.0), n_steps=6, rng=0)


@pytest.fixture(autouse=True)
def no_figure_left():
    yield
    plt.close("all")


def dots(ax):
    return ax.collections[-1]


def trail_of(ax):
    """The segments (n, 2 ends, 2 or 3) drawn as trails."""
    (lines,) = [artist for artist in ax.collections if hasattr(artist, "get_segments")]
    return np.array(lines._segments3d if ax.name == "3d" else lines.get_segments())


def space_points(ax):
    return np.stack(dots(ax)._offsets3d, -1)


def test_particles(dataset):
    ax = plots.plot_particles(dataset, frame=3, chain=1, trail=2)
    assert np.array_equal(dots(ax).get_offsets(), dataset.omega[1, 3])
    paths = dataset.omega.values[1, 1:4]
    assert np.array_equal(trail_of(ax), np.stack([paths[:-1], paths[1:]], 2).reshape(-1, 2, 2))
    assert ax.get_title() == "step 6"
    assert (ax.get_xlabel(), ax.get_ylabel()) == (r"$\omega_{1}$", r"$\omega_{2}$")


def test_axes_hold_the_whole_run(dataset):
    limits = {plots.plot_particles(dataset, frame=frame).get_xlim() for frame in (0, 5, -1)}
    ((low, high),) = limits
    assert low < dataset.omega[0, ..., 0].min()
    assert high > dataset.omega[0, ..., 0].max()


def test_a_trail_is_as_long_as_the_run_was(dataset):
    assert len(trail_of(plots.plot_particles(dataset, frame=2, trail=50))) == 2 * 12
    assert len(plots.plot_particles(dataset, frame=0, trail=3).collections) == 1


def test_trails_leave_out_steps_across_a_periodic_boundary():
    start = np.array([[0.95, 0.5], [0.5, 0.5]])
    push = External(lambda w: -w[..., 0], lambda w: np.stack([-np.ones(w.shape[:-1]), 0 * w[..., 0]], -1), name="push")
    run = simulate(start, push, Torus([1.0, 1.0]), Langevin(0.02, np.inf), n_steps=5, rng=0)
    steps = trail_of(plots.plot_particles(run, trail=5))
    assert len(steps) == 9
    assert np.abs(np.diff(steps, axis=1)).max() < 0.03


def test_particles_over_a_background_on_given_axes(dataset):
    _, ax = plt.subplots()
    x, y = np.linspace(-2, 2, 20), np.linspace(-2, 2, 10)
    values = x**2 + y[:, None] ** 2
    values[0, 0], values[0, 1] = np.nan, np.inf
    assert plots.plot_particles(dataset, background=(x, y, values), background_label="$V$", ax=ax) is ax
    assert np.array_equal(dots(ax).get_offsets(), dataset.omega[0, -1])
    assert ax.get_xlim() == (-2, 2)
    assert (ax.collections[0].levels[0], ax.collections[0].levels[-1]) == (np.nanmin(values), values[-1, 0])
    assert ax.figure.axes[1].get_ylabel() == "$V$"


def test_axes_hold_a_run_that_leaves_the_background(dataset):
    x = np.linspace(-0.1, 0.1, 5)
    low, high = plots.plot_particles(dataset, background=(x, x, np.ones((5, 5)))).get_xlim()
    assert low < dataset.omega[0, ..., 0].min()
    assert high > dataset.omega[0, ..., 0].max()


def test_one_dimension_is_drawn_against_the_particle_number(line):
    x = np.linspace(-2, 2, 30)
    for options in ({}, {"background": (x, x**2 / 2), "background_label": "potential"}):
        ax = plots.plot_particles(line, trail=3, **options)
        assert np.array_equal(dots(ax).get_offsets(), np.stack([line.omega[0, -1, :, 0], np.arange(9)], -1))
        assert (ax.get_xlabel(), ax.get_ylabel()) == (r"$\omega_{1}$", "particle")
    side = ax.figure.axes[1]
    assert np.array_equal(side.lines[0].get_xydata(), np.stack([x, x**2 / 2], -1))
    assert side.get_ylabel() == "potential"


def test_any_coordinates_of_several_are_drawn(space):
    assert np.array_equal(dots(plots.plot_particles(space, dims=(4, 1))).get_offsets(), space.omega[0, -1, :, [4, 1]])
    ax = plots.plot_particles(space, dims=(3,), chain=1)
    assert np.array_equal(dots(ax).get_offsets(), np.stack([space.omega[1, -1, :, 3], np.arange(10)], -1))
    assert ax.get_xlabel() == r"$\omega_{4}$"


def test_three_coordinates_are_drawn_in_space(space):
    x, y, z = np.linspace(-9, 9, 7), np.linspace(-8, 8, 5), np.linspace(-7, 7, 6)
    values = x**2 + y[:, None] ** 2 + z[:, None, None] ** 2
    given = plt.figure().add_subplot(projection="3d")
    for options in ({}, {"background": (x, y, z, values), "ax": given}):
        ax = plots.plot_particles(space, dims=(0, 2, 1), frame=2, trail=2, **options)
        assert np.array_equal(space_points(ax), space.omega[0, 2, :, [0, 2, 1]])
        paths = space.omega.values[0, :3][..., [0, 2, 1]]
        assert np.array_equal(trail_of(ax), np.stack([paths[:-1], paths[1:]], 2).reshape(-1, 2, 3))
        assert (ax.get_zlabel(), ax.name) == (r"$\omega_{2}$", "3d")
        assert len({tuple(np.round(np.diff(getattr(ax, f"get_{axis}lim")()), 9)) for axis in "xyz"}) == 1  # one scale
    assert ax is given
    ax.figure.canvas.draw()


def test_dots_move_in_the_plane_and_in_space(space):
    for dims in ((0, 1), (0, 1, 2)):
        ax = plots.plot_particles(space, frame=0, dims=dims)
        points = chain_points(space, 0, dims)
        plots.move_dots(dots(ax), points[4])
        ax.figure.canvas.draw()
        assert np.array_equal(space_points(ax) if len(dims) == 3 else dots(ax).get_offsets(), points[4])


@pytest.mark.parametrize("columns", [2, 3])
def test_a_matrix_projects(space, columns):
    matrix = np.random.default_rng(1).normal(size=(5, columns))
    ax = plots.plot_particles(space, projection=matrix)
    found = space_points(ax) if columns == 3 else dots(ax).get_offsets()
    np.testing.assert_allclose(found, space.omega[0, -1].values @ matrix)
    assert ax.get_ylabel() == "projection 2"
    swapped = plots.plot_particles(space, projection=matrix, dims=(1, 0))
    np.testing.assert_allclose(dots(swapped).get_offsets(), (space.omega[0, -1].values @ matrix)[:, [1, 0]])


def test_principal_components_are_those_of_the_run(space):
    omega = space.omega.values[1]
    points = omega.reshape(-1, 5)
    _, scales, axes = np.linalg.svd(points - points.mean(0), full_matrices=False)
    ax = plots.plot_particles(space, chain=1, frame=3, projection="pca", dims=(0, 1, 2))
    np.testing.assert_allclose(np.abs(space_points(ax)), np.abs(omega[3] @ axes[:3].T), rtol=1e-9)
    assert ax.get_xlabel() == f"PC 1 ({100 * scales[0] ** 2 / np.sum(scales**2):.0f} %)"
    turned = space.copy(deep=True)
    turned["omega"] *= -1  # signs are fixed: the mirrored run is drawn mirrored
    mirrored = plots.plot_particles(turned, chain=1, frame=3, projection="pca", dims=(0, 1, 2))
    np.testing.assert_allclose(space_points(mirrored), -space_points(ax))


def test_colours_are_those_of_the_values_on_one_scale_for_the_run(dataset):
    rng = np.random.default_rng(0)
    full = rng.normal(size=(2, 21, 12))
    labelled = xr.DataArray(full, dims=("chain", "step", "particle")).transpose("particle", "chain", "step")
    for colour, shown in (
        (full[1, 5], full[1, 5]),
        (full[1], full[1, 4]),
        (full, full[1, 4]),
        (torch.as_tensor(full), full[1, 4]),
        (labelled, full[1, 4]),
        (labelled.isel(step=7, drop=True), full[1, 7]),
    ):
        ax = plots.plot_particles(dataset, frame=4, chain=1, colour=colour, colour_label="speed [1/step]")
        assert np.array_equal(dots(ax).get_array(), shown)
        scale = full[1] if np.prod(tuple(colour.shape)) > 24 else shown
        assert dots(ax).get_clim() == (scale.min(), scale.max())
        assert ax.figure.axes[1].get_ylabel() == "speed [1/step]"
    assert len(plots.plot_particles(dataset, colour=full).figure.axes) == 1


def test_a_particle_without_a_value_is_grey(dataset):
    values = np.arange(12.0)
    values[3] = np.nan
    ax = plots.plot_particles(dataset, colour=values)
    ax.figure.canvas.draw()
    assert np.allclose(dots(ax).get_facecolors()[3], plt.matplotlib.colors.to_rgba(UNKNOWN))
    assert len(dots(ax).get_offsets()) == 12


def test_without_values_dots_have_one_colour(dataset):
    assert np.allclose(dots(plots.plot_particles(dataset)).get_facecolors()[0, :3], plt.matplotlib.colors.to_rgb(COLOURS[1]))


def test_particles_that_are_not_finite_are_left_out_and_counted(dataset, space):
    run = dataset.copy(deep=True)
    run["omega"][0, -1, 2, 0], run["omega"][0, -1, 5, 1], run["omega"][0, 3] = np.nan, np.inf, np.nan
    ax = plots.plot_particles(run, trail=3)
    ax.figure.canvas.draw()
    assert ax.get_title() == "step 40, 2 not finite"
    assert np.isfinite(ax.get_xlim()).all()
    assert plots.plot_particles(run, frame=3).get_title() == "step 6, 12 not finite"
    broken = space.copy(deep=True)
    broken["omega"][0, 0, 0] = np.nan
    for dims in ((0, 1), (0, 1, 2)):
        plots.plot_particles(broken, frame=0, trail=1, projection="pca", dims=dims).figure.canvas.draw()
    run["omega"][0] = np.nan
    for draw in (plots.plot_particles, lambda one: plots.plot_particles(one, projection="pca")):
        with pytest.raises(ValueError, match=r"finite"):
            draw(run)


def test_one_particle_is_drawn(dataset, space, line):
    for run, dims in ((dataset, None), (line, None), (space, (0, 1, 2))):
        one = run.isel(particle=[0])
        ax = plots.plot_particles(one, dims=dims, trail=2, colour=[1.0], colour_label="one")
        ax.figure.canvas.draw()
        still = plots.plot_particles(one.isel(step=[0]), dims=dims)
        still.figure.canvas.draw()
        assert np.diff(still.get_xlim()) > 0


def test_many_particles_are_thinned_evenly_and_dense_dots_are_an_image_in_a_vector_file(tmp_path):
    omega = np.linspace(-1, 1, 2 * 6000).reshape(1, 1, 6000, 2)
    run = xr.Dataset({"omega": (("chain", "step", "particle", "dim"), omega)}, {"step": [0]})
    ax = plots.plot_particles(run, colour=np.arange(6000.0))
    assert ax.get_title() == "step 0, 5,000 of 6,000 particles"
    numbers = dots(ax).get_array()
    assert (len(numbers), numbers[0], numbers[-1]) == (5000, 0, 5999)
    assert np.diff(numbers).max() <= 2
    assert np.array_equal(dots(ax).get_offsets(), omega[0, 0, numbers.astype(int)])
    ax.figure.savefig(tmp_path / "many.svg")
    assert (tmp_path / "many.svg").stat().st_size < 200_000
    assert "<image" in (tmp_path / "many.svg").read_text()


def test_few_dots_stay_vectors(dataset, tmp_path):
    plots.plot_particles(dataset, trail=5).figure.savefig(tmp_path / "few.svg")
    assert "<image" not in (tmp_path / "few.svg").read_text()


def test_energies(dataset, line):
    ax = plots.plot_energies(dataset)
    assert [curve.get_label() for curve in ax.lines] == ["energy", "quadratic", "riesz"]
    np.testing.assert_allclose(ax.lines[2].get_ydata(), dataset.energy_riesz.mean("chain"))
    assert len(plots.plot_energies(line).lines) == 1  # one term is the energy


def panels(figure):
    """The panels of a health figure by their labels."""
    return {ax.get_ylabel().replace("\n", " "): ax for ax in figure.axes}


def test_health_draws_what_a_langevin_run_records():
    x = np.random.default_rng(0).normal(size=(20, 2))
    energy = Alignment(x, x[:, 0] > 0, "fourier", batch_size=8) + Riesz(0, 0.5)
    start = Ball(1.0, 2).sample(2 * 12, 0).reshape(2, 12, 2)
    run = simulate(start, energy, Ball(1.5, 2), Langevin(0.02, 5.0, drift_cap=0.5), n_steps=40, save_every=2, rng=0)
    figure = plots.plot_health(run)
    axes = panels(figure)
    assert list(axes) == ["$H_N$", "fraction", "gradient norm", "smallest gap", "minibatch temperature"]
    assert [line.get_label() for line in axes["$H_N$"].lines] == ["energy", "alignment", "riesz"]
    assert [text.get_text() for text in axes["fraction"].get_legend().get_texts()] == ["moved back by the wall", "capped"]
    np.testing.assert_allclose(axes["smallest gap"].lines[0].get_ydata(), run.min_gap.mean("chain"))
    assert {ax.get_yscale() for ax in (axes["smallest gap"], axes["gradient norm"], axes["minibatch temperature"])} == {"log"}
    assert figure.axes[-1].get_xlabel() == "step"
    np.testing.assert_allclose(axes["minibatch temperature"].lines[-1].get_ydata(), 1 / 5.0)
    assert {ax.get_xlim() for ax in figure.axes} == {figure.axes[0].get_xlim()}


def test_health_shows_caps_and_coincidence_where_there_are_any(dataset):
    start = Ball(1.0, 2).sample(6, 0)
    run = simulate(start, Riesz(-1, 1.0), Ball(1.5, 2), Langevin(0.02, 5.0), n_steps=10, rng=0)
    assert [*panels(plots.plot_health(run))][1] == "moved back by the wall"
    run["coincident"][:, 3] = 1
    axes = panels(plots.plot_health(run))
    assert axes["coincident pairs"].lines[0].get_ydata().max() == 1


@pytest.mark.parametrize("batch_size", [8, None])
def test_health_draws_the_temperature_of_a_schedule(batch_size):
    x = np.random.default_rng(0).normal(size=(20, 2))
    energy = Alignment(x, x[:, 0] > 0, "fourier", batch_size=batch_size)
    run = simulate(Ball(1.0, 2).sample(6, 0), energy, FullSpace(2), Langevin(0.02, linear(1.0, 5.0, 10)), n_steps=12, rng=0)
    ax = panels(plots.plot_health(run))["minibatch temperature" if batch_size else r"temperature $1/\beta$"]
    np.testing.assert_allclose(ax.lines[-1].get_ydata(), 1 / np.minimum(1 + 0.4 * run.step, 5))
    assert len(ax.lines) == (2 if batch_size else 1)


def test_health_has_no_line_for_a_temperature_that_is_not_known(dataset):
    run = simulate(Ball(1.0, 2).sample(6, 0), Quadratic(1.0), FullSpace(2), Langevin(0.02, lambda step: 1.0 + step), n_steps=4, rng=0)
    assert not any("temperature" in name for name in panels(plots.plot_health(run)))


def test_health_draws_measured_temperatures_that_a_dataset_was_given(dataset):
    values = (0.2 + 0.01 * dataset.energy).where(dataset.chain == 0, 0.3)
    run = dataset.assign(kinetic_temperature=values, configurational_temperature=2 * values)
    ax = panels(plots.plot_health(run))["temperature"]
    assert [line.get_label() for line in ax.lines] == ["kinetic temperature", "configurational temperature", r"$1/\beta$"]
    np.testing.assert_allclose(ax.lines[1].get_ydata(), 2 * values.mean("chain"))


def test_health_of_a_part_marks_only_the_tuning_that_is_in_it():
    start = Ball(1.0, 2).sample(6, 0)
    run = simulate(start, Quadratic(1.0), Ball(1.5, 2), HMC(0.2, 5.0, n_leapfrog=2, tune=8), n_steps=12, rng=0)
    assert not plots.plot_health(run.isel(step=slice(9, None))).axes[0].patches
    (mark,) = plots.plot_health(run.isel(step=slice(2, 6))).axes[0].patches
    assert (mark.get_x(), mark.get_width()) == (2, 3)


def test_a_chain_that_is_not_finite_leaves_gaps_and_one_that_never_is_is_named(dataset):
    run = dataset.copy(deep=True)
    run["energy"][1, 4], run["energy_riesz"][:] = np.nan, np.inf
    ax = plots.plot_energies(run)
    means = [line.get_ydata() for line in ax.lines]
    assert np.flatnonzero(np.isnan(means[0])).tolist() == [4]
    assert np.isnan(means[2]).all()
    assert ax.lines[2].get_label() == "riesz (no finite value)"
    figure = plots.plot_health(run)
    figure.canvas.draw()
    assert "riesz (no finite value)" in [text.get_text() for text in figure.axes[0].get_legend().get_texts()]


def test_one_frame_is_a_point(dataset):
    figure = plots.plot_health(dataset.isel(step=[3]))
    figure.canvas.draw()
    assert all(line.get_marker() == "." and len(line.get_xdata()) == 1 for ax in figure.axes for line in ax.lines)


def test_energies_need_some(dataset):
    for draw in (plots.plot_energies, plots.plot_health):
        with pytest.raises(ValueError, match=r"dataset must hold energy .*got \['omega'\]"):
            draw(dataset[["omega"]])


@pytest.mark.parametrize("spread", [1.001, 1.3, 4.0, 9.0, 12.0, 70.0, 150.0, 1e4, 1e30])
def test_health_labels_logarithmic_axes(dataset, spread):
    run = dataset[["omega", "energy", "min_gap"]].copy(deep=True)
    run["min_gap"][:] = 3.1e-4 * np.geomspace(1, spread, run.sizes["step"])
    figure = plots.plot_health(run)
    figure.canvas.draw()
    ax = panels(figure)["smallest gap"]
    low, high = ax.get_ylim()
    labels = [label.get_text() for label in ax.get_yticklabels() if low <= label.get_position()[1] <= high]
    assert 2 <= len(set(labels)) == len(labels) <= 9


def test_health_does_not_let_a_crowded_start_set_the_axis_of_the_energy(dataset):
    run = dataset.copy(deep=True)
    usual = plots.plot_health(run).axes[0].get_ylim()
    for start in (1e4, np.inf):
        run["energy"][:, 0] = start
        ax = plots.plot_health(run).axes[0]
        assert np.ptp(ax.get_ylim()) < 2 * np.ptp(usual)
        assert ("axis from step" in ax.get_ylabel()) == np.isfinite(start)
    assert plots.plot_health(dataset).axes[0].get_ylabel() == "$H_N$"


def test_health_draws_what_hmc_records_and_marks_tuning():
    start = Ball(1.0, 2).sample(2 * 6, 0).reshape(2, 6, 2)
    run = simulate(start, Quadratic(1.0), Ball(1.5, 2), HMC(0.2, 5.0, n_leapfrog=3, tune=20), n_steps=60, save_every=2, rng=0)
    axes = panels(plots.plot_health(run))
    assert list(axes) == ["$H_N$", "accepted", "gradient norm", "step size"]
    for ax in axes.values():
        assert ax.patches[0].get_extents().transformed(ax.transData.inverted()).x1 == pytest.approx(20)
    assert {text.get_text() for text in axes["$H_N$"].get_legend().get_texts()} == {"energy", "tuning"}


@pytest.mark.parametrize("gap", [0.0, np.inf])
def test_health_leaves_out_what_a_logarithmic_axis_cannot_show(dataset, gap):
    run = dataset[["omega", "energy", "min_gap"]].copy(deep=True)
    run["min_gap"][:, 5] = gap
    figure = plots.plot_health(run)
    figure.canvas.draw()  # constrained layout and log ticks raise or warn here if something is wrong
    assert np.isnan(panels(figure)["smallest gap"].lines[0].get_ydata()[5])


@pytest.mark.parametrize("density", ["radial", 0, 1])
def test_density_is_the_mean_over_chains_with_two_standard_errors(dataset, density):
    theory = (np.linspace(0, 1, 5), np.arange(5.0))
    ax = plots.plot_density(dataset, density=density, frames=slice(5, None), bins=7, theory=theory, theory_label="law")
    steps = ax.patches[0].get_data()
    omega = dataset.omega.values[:, 5:]
    values = np.linalg.norm(omega, axis=-1) if density == "radial" else omega[..., density]
    rows = np.array([np.histogram(chain, steps.edges, density=True)[0] for chain in values])
    np.testing.assert_allclose(steps.values, rows.mean(0))
    assert np.sum(steps.values * np.diff(steps.edges)) == pytest.approx(1)
    low, high = rows.mean(0) + np.array([[-2], [2]]) * rows.std(0, ddof=1) / np.sqrt(2)
    corners = ax.collections[0].get_paths()[0].vertices
    for ends in (np.maximum(low, 0), high):
        assert all(np.isclose(corners[:, 1], end).any() for end in ends)
    assert np.array_equal(ax.lines[0].get_xydata(), np.stack(theory, -1))
    assert legend_of(ax) == ["mean of 2 chains ± 2 standard errors", "law"]


def test_radial_density_is_that_of_the_length_in_any_dimension():
    omega = np.random.default_rng(0).normal(size=(40, 1, 500, 5))
    run = xr.Dataset({"omega": (("chain", "step", "particle", "dim"), omega)}, {"step": [0]})
    ax = plots.plot_density(run)
    steps = ax.patches[0].get_data()
    r, width = (steps.edges[1:] + steps.edges[:-1]) / 2, np.diff(steps.edges)
    law = r**4 * np.exp(-(r**2) / 2) / (3 * np.sqrt(np.pi / 2))  # of the length of 5 standard normals
    error = np.sqrt(law / width / 20_000)
    assert (np.abs(steps.values - law) < 4.5 * error + 1e-3).all()  # 3e-4 for 40 cells; the cells' width takes less than 1e-3
    assert (np.abs(steps.values - r**3 * np.exp(-(r**2) / 2) / 2) > 4.5 * error + 1e-3).any()  # of 4


def legend_of(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_one_chain_has_no_band_and_the_legend_says_so(dataset, line):
    for run in (dataset.isel(chain=[1]), line, dataset.isel(chain=[0], particle=[0])):
        ax = plots.plot_density(run)
        ax.figure.canvas.draw()
        assert not ax.collections
        assert legend_of(ax) == ["particles, one chain: no error"]
        steps = ax.patches[0].get_data()
        assert np.sum(steps.values * np.diff(steps.edges)) == pytest.approx(1)


def test_densities_leave_out_and_count_what_is_not_finite(dataset):
    run = dataset.copy(deep=True)
    run["omega"][0, -1, 2, 0], run["omega"][0, -1, 3, 1] = np.nan, np.inf
    ax = plots.plot_density(run)
    assert legend_of(ax) == ["mean of 2 chains ± 2 standard errors (2 values not finite)"]
    steps = ax.patches[0].get_data()
    assert np.sum(steps.values * np.diff(steps.edges)) == pytest.approx(1)
    run["omega"][0] = np.nan
    assert legend_of(plots.plot_density(run)) == ["particles, one chain: no error (12 values not finite)"]
    run["omega"][:] = np.nan
    with pytest.raises(ValueError, match="dataset must hold finite particles, got none in the frames drawn"):
        plots.plot_density(run)


def test_a_curve_that_ends_in_infinity_does_not_set_the_axis(dataset):
    ax = plots.plot_density(dataset, theory=([0.0, 0.5, 1.0], [np.inf, 1e6, np.nan]))
    ax.figure.canvas.draw()
    assert ax.get_ylim()[1] < 2 * max(path.vertices[:, 1].max() for path in ax.collections[0].get_paths())


@pytest.mark.parametrize(
    "values",
    [[1, np.nextafter(np.float32(1), np.float32(2))], [1, np.nextafter(1, 2)], [1e20, 1e20], [0, 1e-300], [-1e30, 1e30], [0, 1e300]],
)
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.filterwarnings("error")
def test_particles_nearly_equal_or_huge_have_pictures(values, kind):
    values = np.minimum(values, np.finfo(kind).max / 10).astype(kind)
    omega = np.resize(values, (2, 3, 4, 1)) * np.ones(2, kind)
    run = xr.Dataset({"omega": (("chain", "step", "particle", "dim"), omega)}, {"step": [0, 1, 2]})
    for draw in (plots.plot_particles, plots.plot_density, plots.plot_density_snapshots, lambda one: plots.plot_density_flow(one)[0]):
        draw(run).figure.canvas.draw()
    steps = plots.plot_density(run, density=0).patches[0].get_data()
    assert np.sum(steps.values * np.diff(steps.edges)) == pytest.approx(1)
    if np.ptp(values) > 0:
        plots.plot_particles(run, projection="pca").figure.canvas.draw()


def test_what_has_no_finite_particle_weighs_nothing_in_a_density(dataset):
    run = dataset.copy(deep=True)
    run["omega"][0, 10:], run["omega"][:, 20] = np.nan, np.nan
    ax = plots.plot_density_snapshots(run, number=3, bins=9)
    assert legend_of(ax) == ["time 0", "time 0.4 (12 not finite)", "time 0.8 (24 not finite)"]
    masses = [np.sum(steps.get_data().values * np.diff(steps.get_data().edges)) for steps in ax.patches]
    np.testing.assert_allclose(masses, [1, 1, 0])
    cells = plots.plot_density_flow(run)[0].collections[0].get_array()
    assert np.flatnonzero(np.ma.getmaskarray(cells).all(0) | np.isnan(np.ma.filled(cells, np.nan)).all(0)).tolist() == [20]


def test_a_dark_style_has_no_black_curves(dataset):
    curve = ([0.0, 1.0], [0.0, 1.0])
    with plt.style.context("dark_background"):
        drawn = [
            plots.plot_density(dataset, theory=curve).lines[0],
            plots.plot_eigenvalues({"k": np.eye(2)}, edge=1.0, curve=([1, 2], [1, 1])).lines[1],
            plots.plot_kernel_slices([[1.0]], "fourier", {"x": [1.0]}, exact=curve).lines[1],
            plots.animate(dataset, theory=curve).figure.axes[1].lines[0],
        ]
    assert {line.get_color() for line in drawn} == {"white"}


def test_a_dozen_terms_have_styles_of_their_own(dataset):
    ax = plots.plot_energies(dataset.assign({f"energy_{k}": dataset.energy for k in range(12)}))
    assert len({(line.get_color(), str(line._dash_pattern)) for line in ax.lines}) == len(ax.lines) == 15


@pytest.fixture(scope="module")
def free():
    """Brownian motion from a normal law: its density is known at every time."""
    start = np.random.default_rng(0).normal(0.0, 0.5, (40, 100, 1))
    return simulate(
        start, External(lambda w: 0 * w[..., 0], lambda w: 0 * w, name="free"), FullSpace(1), Langevin(0.05, 2.0), n_steps=10, rng=1
    )


@pytest.fixture(scope="module")
def normal_law():
    """Its (t, x, rho): the variance grows by 2 t / beta."""
    t, x = np.linspace(0, 0.5, 6), np.linspace(-5, 5, 201)
    variance = 0.25 + t[:, None]
    return t, x, np.exp(-(x**2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)


def test_density_flow_sets_particles_beside_the_theory_on_one_scale(free, normal_law):
    left, right = plots.plot_density_flow(free, density=0, theory=normal_law, bins=20)
    particles, theory = left.collections[0], right.collections[0]
    assert np.array_equal(theory.get_array(), normal_law[2].T)
    edges = np.linspace(free.omega.values.min(), free.omega.values.max(), 21)
    rows = [np.histogram(free.omega[:, k], edges, density=True)[0] for k in range(11)]
    np.testing.assert_allclose(particles.get_array(), np.transpose(rows))
    assert particles.get_clim() == theory.get_clim()
    assert particles.get_clim()[0] == 0
    assert left.get_xlim() == right.get_xlim() == (0, 0.5)
    assert left.get_ylim() == right.get_ylim()
    spans = [np.ptp(part.get_paths()[0].vertices, axis=0) for part in left.collections[1:]]
    assert np.allclose(spans, [(0.5, edges[0] - left.get_ylim()[0]), (0.5, left.get_ylim()[1] - edges[-1])])  # dark where nothing is
    assert (left.get_xlabel(), left.get_ylabel()) == ("time", r"$\omega_{1}$")
    law = np.array([np.interp((edges[1:] + edges[:-1]) / 2, normal_law[1], row) for row in normal_law[2]])
    assert np.abs(np.array(rows)[::2] - law).max() < 0.08  # 4,000 values a frame: five standard errors and the cells' width


def test_density_flow_without_a_theory_needs_no_time(free, dataset):
    (ax,) = plots.plot_density_flow(free, density=0)
    assert ax.get_xlabel() == "time"
    mala = dataset.assign_attrs(sampler='{"name": "MALA", "step_size": 0.02, "beta": 5.0}')
    _, given = plt.subplots()
    (ax,) = plots.plot_density_flow(mala, ax=given)
    assert ax is given
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_xlim()) == ("step", r"$|\omega|$", (0, 40))
    with pytest.raises(ValueError, match="time must be given"):
        plots.plot_density_flow(mala, theory=([0, 1], [0, 1], np.ones((2, 2))))
    (ax, _) = plots.plot_density_flow(mala, theory=([0, 1], [0, 1], np.ones((2, 2))), time=np.arange(21.0))
    assert ax.get_xlim() == (0, 20)


def test_a_start_on_few_points_does_not_outshine_the_map(free):
    run = free.copy(deep=True)
    run["omega"][:, 0] = 0.3
    (ax,) = plots.plot_density_flow(run, density=0)
    peaks = np.asarray(ax.collections[0].get_array()).max(0)
    assert ax.collections[0].get_clim()[1] == 2 * np.median(peaks) < peaks[0]
    assert ax.collections[0].colorbar.extend == "max"
    assert plots.plot_density_flow(free, density=0)[0].collections[0].colorbar.extend == "neither"


def test_snapshots_are_the_histograms_and_the_law_at_the_same_times(free, normal_law):
    ax = plots.plot_density_snapshots(free, density=0, theory=normal_law, number=3, bins=20)
    assert [curve.get_label() for curve in ax.lines] == ["time 0", "time 0.25", "time 0.5"]
    laws = normal_law[2][0], (normal_law[2][2] + normal_law[2][3]) / 2, normal_law[2][5]  # 0.25 lies between two times
    for frame, law, curve, steps in zip((0, 5, 10), laws, ax.lines, ax.patches):
        np.testing.assert_allclose(curve.get_ydata(), law)
        rows = [np.histogram(chain, steps.get_data().edges, density=True)[0] for chain in free.omega.values[:, frame]]
        np.testing.assert_allclose(steps.get_data().values, np.mean(rows, 0))
        assert steps.get_edgecolor()[:3] == plt.matplotlib.colors.to_rgb(curve.get_color())
    assert len(ax.collections) == 3
    alone = plots.plot_density_snapshots(free.isel(chain=[0]), density=0, number=2)
    assert not alone.collections
    assert legend_of(alone) == ["time 0", "time 0.5"]


def test_snapshots_keep_to_the_times_of_the_theory(free, normal_law):
    t, x, rho = normal_law
    ax = plots.plot_density_snapshots(free, density=0, theory=(t[2:4], x, rho[2:4]), number=9)
    assert [curve.get_label() for curve in ax.lines] == ["time 0.2", "time 0.25", "time 0.3"]
    with pytest.raises(ValueError, match=r"theory must have times that meet the run's, from 0 to 0\.5"):
        plots.plot_density_snapshots(free, density=0, theory=(t + 7, x, rho))


def test_times_of_a_run_are_its_step_sizes_added_up(dataset):
    start = np.zeros((3, 1))
    run = simulate(start, Quadratic(1.0), FullSpace(1), Langevin(linear(0.01, 0.02, 4), 5.0), n_steps=6, save_every=2, rng=0)
    np.testing.assert_allclose(plots.run_times(run)[0], np.cumsum([0, 0.01, 0.0125, 0.015, 0.0175, 0.02, 0.02])[::2])
    np.testing.assert_allclose(plots.run_times(dataset.isel(step=[3, 7]))[0], [0.12, 0.28])
    assert plots.run_times(dataset, np.arange(21))[0].tolist() == list(range(21))
    with pytest.raises(ValueError, match=r"time must be increasing, of shape \(21,\), got shape \(3,\)"):
        plots.run_times(dataset, [0, 1, 2])


def test_flows_and_snapshots_of_one_particle_and_of_ones_that_are_not_finite(line, dataset):
    one = line.isel(particle=[4])
    for run in (one, dataset):
        run = run.copy(deep=True)
        run["omega"][0, 2] = np.nan
        plots.plot_density_flow(run)[0].figure.canvas.draw()
        plots.plot_density_snapshots(run).figure.canvas.draw()
    with pytest.raises(ValueError, match="dataset must hold at least two frames, got 1"):
        plots.plot_density_flow(line.isel(step=[0]))
    assert len(plots.plot_density_snapshots(line.isel(step=[0]), density=0).patches) == 1
    for draw in (plots.plot_density_flow, plots.plot_density_snapshots):
        with pytest.raises(ValueError, match="dataset must hold finite particles"):
            draw(dataset * np.nan)


SQUARE = (np.linspace(-1, 1, 4), np.linspace(-1, 1, 3))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dims": (0, 2)}, "dims must be an integer from 0 to 1, got 2"),
        ({"dims": (0, 0)}, r"dims must be one to three different coordinates, got \(0, 0\)"),
        ({"dims": [[0], [1]]}, r"dims must be an integer from 0 to 1, got \[0\]"),
        ({"dims": ()}, "dims must be one to three different coordinates"),
        ({"dims": 0}, "dims must be one to three different coordinates, got 0"),
        ({"frame": 50}, "frame must be an integer from -21 to 20, got 50"),
        ({"frame": 1.0}, "frame must be an integer"),
        ({"chain": 3}, "chain must be an integer from -2 to 1, got 3"),
        ({"trail": -1}, "trail must be an integer of at least 0"),
        ({"projection": np.eye(3)}, r"projection must be 'pca' or a matrix \(2, 2 or 3\), got shape \(3, 3\)"),
        ({"projection": np.eye(2) * np.nan}, "projection must be finite"),
        ({"projection": "tsne"}, "projection must be 'pca'"),
        ({"projection": np.eye(2), "dims": (0, 2)}, "dims must be an integer from 0 to 1, got 2"),
        ({"colour": np.ones(3)}, r"colour must be \(particle,\).*particle 12, got shape \(3,\)"),
        ({"colour": 1.0}, r"colour must be .* got shape \(\)"),
        ({"colour": "red"}, "colour must hold real numbers"),
        ({"colour": np.full(12, np.nan)}, "colour must hold finite values, got none"),
        ({"colour": xr.DataArray(np.ones(12), dims="dim")}, "colour must be"),
        ({"background": np.ones((3, 4))}, r"background must be \(x, y, values\) on a grid, got ndarray"),
        ({"background": (*SQUARE, np.ones((4, 3)))}, r"background must have values of shape \(3, 4\)"),
        ({"background": (*SQUARE, np.full((3, 4), np.nan))}, "background must have values of shape .*finite"),
        ({"background": (SQUARE[0][::-1], SQUARE[1], np.ones((3, 4)))}, "background must have increasing, finite axes"),
        ({"background": (*SQUARE, np.ones((3, 4))), "dims": (0,)}, r"background must be \(x, values\)"),
        ({"ax": np.ones(2)}, "ax must be two-dimensional Axes or None, got ndarray"),
    ],
)
def test_what_does_not_fit_a_picture_of_particles_is_named(dataset, options, words):
    with pytest.raises(ValueError, match=words):
        plots.plot_particles(dataset, **options)
    assert not plt.get_fignums()


def test_axes_of_the_wrong_kind_are_named(space, line):
    flat, deep = plt.figure().add_subplot(), plt.figure().add_subplot(projection="3d")
    with pytest.raises(ValueError, match="ax must be 3-D Axes or None, got Axes"):
        plots.plot_particles(space, dims=(0, 1, 2), ax=flat)
    for draw in (plots.plot_particles, plots.plot_density, plots.plot_energies, plots.plot_density_flow, plots.plot_density_snapshots):
        with pytest.raises(ValueError, match="ax must be two-dimensional Axes or None, got Axes3D"):
            draw(space, ax=deep)
    with pytest.raises(ValueError, match="projection must be 'pca', of particles in two dimensions or more"):
        plots.plot_particles(line, projection="pca")
    with pytest.raises(ValueError, match="projection 'pca' needs finite particles at more than one point"):
        plots.plot_particles(space * 0, projection="pca")


@pytest.mark.parametrize("draw", [plots.plot_density, plots.plot_density_flow, plots.plot_density_snapshots])
@pytest.mark.parametrize("density", ["angular", 2, -1, None, 1.0, True])
def test_densities_are_radial_or_of_a_coordinate(draw, density, dataset):
    with pytest.raises(ValueError, match="density"):
        draw(dataset, density=density)
    assert not plt.get_fignums()


GRID = np.linspace(0, 1, 4)


@pytest.mark.parametrize(
    ("draw", "options", "words"),
    [
        (plots.plot_density, {"frames": slice(50, None)}, "frames must be a slice that holds some of the 21 frames"),
        (plots.plot_density, {"frames": -1}, "frames must be a slice"),
        (plots.plot_density, {"frames": slice("a", None)}, "frames must be a slice"),
        (plots.plot_density, {"frames": slice(None, None, 0)}, "frames must be a slice"),
        (plots.plot_density_flow, {"ax": [[1], [1, 2]]}, "ax must be 1 Axes, got 2"),
        (plots.plot_density, {"bins": 0}, "bins must be an integer of at least 1"),
        (plots.plot_density, {"theory": GRID}, r"theory must be \(x, density\)"),
        (plots.plot_density, {"theory": (GRID, GRID[:2])}, r"theory must be .*got shapes \(4,\) and \(2,\)"),
        (plots.plot_density, {"theory": (GRID, GRID * np.nan)}, "theory must be .*some of it finite"),
        (plots.plot_density_flow, {"theory": (GRID, GRID)}, r"theory must be \(t, x, rho\)"),
        (plots.plot_density_flow, {"theory": (GRID, GRID, np.ones((4, 3)))}, r"theory must be .*got \(4,\), \(4,\), \(4, 3\)"),
        (plots.plot_density_flow, {"theory": (GRID, GRID, np.zeros((4, 4)))}, "some rho positive"),
        (plots.plot_density_flow, {"theory": (GRID, GRID, np.full((4, 4), np.nan))}, "theory must be finite"),
        (plots.plot_density_flow, {"theory": (GRID[::-1], GRID, np.ones((4, 4)))}, "t and x increasing"),
        (plots.plot_density_flow, {"ax": []}, "ax must be 1 Axes, got 0"),
        (plots.plot_density_snapshots, {"number": 0}, "number must be an integer of at least 1"),
    ],
)
def test_what_does_not_fit_a_picture_of_densities_is_named(draw, options, words, dataset):
    with pytest.raises(ValueError, match=words):
        draw(dataset, **options)
    assert not plt.get_fignums()


DRAW = [
    plots.plot_particles,
    plots.plot_energies,
    plots.plot_health,
    plots.plot_density,
    plots.plot_density_flow,
    plots.plot_density_snapshots,
    plots.animate,
]


@pytest.mark.parametrize("draw", DRAW)
def test_an_array_a_part_without_axes_and_an_empty_one_are_no_trajectory(draw, dataset):
    for wrong, got in (
        (np.zeros((2, 3, 4, 2)), "ndarray"),
        (dataset.isel(chain=0), "axes"),
        (dataset.isel(step=slice(0)), r"axes.*'step': 0"),
    ):
        with pytest.raises(ValueError, match=rf"dataset must be a Dataset of simulate.*got {got}"):
            draw(wrong)
