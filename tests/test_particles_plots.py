"""Pictures: drawn from a Dataset alone, on given or new axes, with the right contents."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from particles import HMC, Alignment, Ball, FullSpace, Langevin, Quadratic, Riesz, linear, plots, simulate


@pytest.fixture(scope="module")
def dataset():
    start = Ball(1.0, 2).sample(2 * 12, 0).reshape(2, 12, 2)
    return simulate(start, Quadratic(1.0) + Riesz(0, 1.0), Ball(1.5, 2), Langevin(0.02, 5.0), n_steps=40, save_every=2, rng=0)


@pytest.fixture(scope="module")
def line():
    return simulate(np.linspace(-1, 1, 9)[:, None], Quadratic(1.0), FullSpace(1), Langevin(0.02, 5.0), n_steps=10, rng=0)


@pytest.fixture(autouse=True)
def no_figure_left():
    yield
    plt.close("all")


def test_particles(dataset):
    ax = plots.plot_particles(dataset, frame=3, chain=1, trail=2)
    assert np.array_equal(ax.collections[-1].get_offsets(), dataset.omega[1, 3])
    assert len(ax.lines) == 12
    assert np.array_equal(ax.lines[5].get_xydata(), dataset.omega[1, 1:4, 5])
    assert ax.get_title() == "step 6"


def test_particles_over_a_background_on_given_axes(dataset):
    _, ax = plt.subplots()
    x, y = np.linspace(-2, 2, 20), np.linspace(-1, 1, 10)
    assert plots.plot_particles(dataset, background=(x, y, x**2 + y[:, None] ** 2), ax=ax) is ax
    assert np.array_equal(ax.collections[-1].get_offsets(), dataset.omega[0, -1])
    assert ax.get_xlim() == (-2, 2)


def test_one_dimension_is_drawn_against_the_particle_number(line):
    ax = plots.plot_particles(line)
    assert np.array_equal(ax.collections[-1].get_offsets(), np.stack([line.omega[0, -1, :, 0], np.arange(9)], -1))


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


def test_health_has_no_line_where_beta_changes():
    x = np.random.default_rng(0).normal(size=(20, 2))
    energy = Alignment(x, x[:, 0] > 0, "fourier", batch_size=8)
    run = simulate(Ball(1.0, 2).sample(6, 0), energy, FullSpace(2), Langevin(0.02, linear(1.0, 5.0, 10)), n_steps=10, rng=0)
    assert len(panels(plots.plot_health(run))["minibatch temperature"].lines) == 1


@pytest.mark.parametrize("spread", [1.001, 1.3, 4.0, 9.0, 12.0, 70.0, 150.0, 1e4, 1e30])
def test_health_labels_logarithmic_axes(dataset, spread):
    run = dataset.copy(deep=True)
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
    run = dataset.copy(deep=True)
    run["min_gap"][:, 5] = gap
    figure = plots.plot_health(run)
    figure.canvas.draw()  # constrained layout and log ticks raise or warn here if something is wrong
    assert np.isnan(panels(figure)["smallest gap"].lines[0].get_ydata()[5])


@pytest.mark.parametrize("density", ["radial", 0, 1])
def test_density_is_normalised_and_shows_the_theory(dataset, density):
    theory = (np.linspace(0, 1, 5), np.arange(5.0))
    ax = plots.plot_density(dataset, density=density, frames=slice(5, None), theory=theory)
    assert sum(p.get_width() * p.get_height() for p in ax.patches) == pytest.approx(1)
    assert np.array_equal(ax.lines[0].get_xydata(), np.stack(theory, -1))


@pytest.mark.parametrize("density", ["radial", 1])
def test_animation(dataset, tmp_path, density):
    theory = (np.linspace(0, 1.5, 5), np.ones(5))
    plots.animate(dataset, tmp_path / "run.gif", density=density, theory=theory, n_frames=6)
    with Image.open(tmp_path / "run.gif") as picture:
        assert picture.n_frames == 6
        first = np.asarray(picture.convert("RGB"))
        picture.seek(5)
        assert (np.asarray(picture.convert("RGB")) != first).any()


def test_animation_of_a_line_with_few_frames(line, tmp_path):
    plots.animate(line.isel(step=slice(0, 3)), tmp_path / "run.gif", density=0)
    with Image.open(tmp_path / "run.gif") as picture:
        assert picture.n_frames == 3


def test_figures_do_not_pile_up(dataset, tmp_path):
    plots.animate(dataset, tmp_path / "run.gif", n_frames=2)
    assert not plt.get_fignums()


def test_bad_input(dataset):
    for density in ("angular", 2, -1, None, 1.0, True):
        with pytest.raises(ValueError, match="density"):
            plots.plot_density(dataset, density=density)
    with pytest.raises(ValueError, match="trail"):
        plots.plot_particles(dataset, trail=-1)
    with pytest.raises(ValueError, match="n_frames"):
        plots.animate(dataset, n_frames=0)
    with pytest.raises(ValueError, match="fps must be an integer of at least 1, got 0"):
        plots.animate(dataset, fps=0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dims": (0, 2)}, "dims must be an integer from 0 to 1, got 2"),
        ({"dims": (0,)}, r"dims must be two coordinates, got \(0,\)"),
        ({"frame": 50}, "frame must be an integer from -21 to 20, got 50"),
        ({"frame": 1.0}, "frame must be an integer"),
        ({"chain": 3}, "chain must be an integer from -2 to 1, got 3"),
    ],
)
def test_what_lies_outside_the_run_is_named(dataset, options, words):
    with pytest.raises(ValueError, match=words):
        plots.plot_particles(dataset, **options)
    assert not plt.get_fignums()


@pytest.mark.parametrize("draw", [plots.plot_particles, plots.plot_energies, plots.plot_health, plots.plot_density, plots.animate])
def test_an_array_a_part_without_axes_and_an_empty_one_are_no_trajectory(draw, dataset):
    for wrong, got in (
        (np.zeros((2, 3, 4, 2)), "ndarray"),
        (dataset.isel(chain=0), "axes"),
        (dataset.isel(step=slice(0)), r"axes.*'step': 0"),
    ):
        with pytest.raises(ValueError, match=rf"dataset must be a Dataset of simulate.*got {got}"):
            draw(wrong)
