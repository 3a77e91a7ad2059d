"""Films of runs: each frame shows the numbers of the Dataset on axes that stay, and each format is what its suffix says."""

from __future__ import annotations

import builtins
import gc
import itertools
import subprocess
import sys

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from particles import Ball, FourierPair, FullSpace, Langevin, Quadratic, Riesz, plots, simulate
from particles.plots import film as film_module
from particles.plots.density import density_samples
from particles.plots.film import HOLD, Film


@pytest.fixture(scope="module")
def plane():
    """2 chains of 12 particles, 21 frames."""
    start = Ball(1.0, 2).sample(2 * 12, 0).reshape(2, 12, 2)
    return simulate(start, Quadratic(1.0) + Riesz(0, 1.0), Ball(1.5, 2), Langevin(0.02, 5.0), n_steps=40, save_every=2, rng=0)


@pytest.fixture(scope="module")
def line():
    return simulate(np.linspace(-1, 1, 9)[:, None], Quadratic(1.0), FullSpace(1), Langevin(0.02, 5.0), n_steps=3, rng=0)


@pytest.fixture(scope="module")
def space():
    return simulate(Ball(1.0, 3).sample(8, 0), Quadratic(1.0), FullSpace(3), Langevin(0.02, 5.0), n_steps=3, rng=0)


def bars(film):
    """Heights of the histogram of the frame that is shown."""
    return film.figure.axes[1].patches[1].get_data().values


def limits(film):
    return [(ax.get_xlim(), ax.get_ylim(), ax.get_position().bounds) for ax in film.figure.axes]


@pytest.mark.parametrize("density", ["radial", 1])
def test_each_frame_shows_its_particles_and_their_density(plane, density):
    theory = (np.linspace(0, 1, 5), np.arange(5.0))
    film = plots.animate(plane, density=density, theory=theory, chain=1)
    assert film.n_frames == 21
    left, middle, _ = film.figure.axes
    film.draw(0)
    still = limits(film)
    for frame in (0, 7, 20):
        film.draw(frame)
        np.testing.assert_array_equal(left.collections[-1].get_offsets(), plane.omega[1, frame])
        assert left.get_title() == f"step {2 * frame}"
        samples = density_samples(plane.omega[:, frame].to_numpy(), density)
        edges = middle.patches[1].get_data().edges
        np.testing.assert_allclose(bars(film), np.histogram(samples, edges, density=True)[0])
        assert limits(film) == still
    np.testing.assert_array_equal(middle.lines[0].get_xydata(), np.stack(theory, -1))
    heights = [np.histogram(density_samples(plane.omega[:, k].to_numpy(), density), edges, density=True)[0] for k in range(1, 21)]
    assert middle.get_ylim()[1] == pytest.approx(1.05 * min(4, 1.5 * np.max(heights)))  # the curve's peak is cut


def test_the_third_panel_marks_the_energy_of_the_frame(plane):
    film = plots.animate(plane)
    ax = film.figure.axes[2]
    np.testing.assert_allclose(ax.lines[0].get_ydata(), plane.energy.mean("chain"))
    film.draw(3)
    assert list(ax.lines[-1].get_xdata()) == [6, 6]
    assert len(plots.animate(plane.drop_vars("energy")).figure.axes) == 2


def test_the_third_panel_shows_the_eigenvalues_of_the_kernel(plane):
    x = np.random.default_rng(0).standard_normal((30, 2))
    film = plots.animate(plane, x=x, chain=1)
    ax = film.figure.axes[2]
    film.draw(5)
    expected = np.linalg.eigvalsh(FourierPair().kernel(x, x, plane.omega[1, 5].to_numpy()) / 30)[::-1]
    shown = ax.lines[1].get_ydata()
    seen = expected > 1e-10
    np.testing.assert_allclose(shown[seen], expected[seen], rtol=1e-4)
    assert np.isnan(shown[24:]).all()  # 12 particles make 24 features
    assert ax.get_ylim()[1] > shown[0]


def test_many_rows_are_thinned_evenly(plane):
    film = plots.animate(plane.isel(step=[0, 20]), x=np.random.default_rng(0).standard_normal((1000, 2)))
    assert len(film.figure.axes[2].lines[1].get_xdata()) == 256


def test_frames_are_evenly_spaced_and_at_most_120(plane, line):
    assert plots.animate(plane, n_frames=5).n_frames == 5
    long = line.isel(step=np.zeros(500, int))
    assert plots.animate(long.assign_coords(step=np.arange(500)), n_frames=1000).n_frames == 120


@pytest.mark.parametrize("frames", [1, 3])
def test_the_line_is_drawn_against_the_number_of_the_particle(line, frames):
    film = plots.animate(line.isel(step=slice(frames)), density=0)
    film.draw(frames - 1)
    dots = film.figure.axes[0].collections[-1].get_offsets()
    np.testing.assert_array_equal(dots, np.stack([line.omega[0, frames - 1, :, 0], np.arange(9)], -1))
    assert np.sum(bars(film) * np.diff(film.figure.axes[1].patches[1].get_data().edges)) == pytest.approx(1)


def test_particles_in_space_turn(space):
    film = plots.animate(space, dims=(0, 1, 2), turn=60.0, colour=np.arange(8.0))
    ax = film.figure.axes[0]
    angles = []
    for frame in range(4):
        film.draw(frame)
        angles.append(ax.azim)
        np.testing.assert_array_equal(np.stack(ax.collections[-1]._offsets3d, -1), space.omega[0, frame])
    np.testing.assert_allclose(np.diff(angles), 20)
    np.testing.assert_array_equal(ax.collections[-1].get_array(), np.arange(8.0))


def test_colours_follow_the_frame(plane):
    colour = plane.omega[..., 0]
    film = plots.animate(plane, colour=colour)
    film.draw(9)
    np.testing.assert_array_equal(film.figure.axes[0].collections[-1].get_array(), colour[0, 9])


def test_one_particle_has_a_film():
    run = simulate([[0.5, 0.0]], Quadratic(1.0), FullSpace(2), Langevin(0.02, 5.0), n_steps=2, rng=0)
    film = plots.animate(run, x=np.eye(2))
    film.draw(2)
    np.testing.assert_array_equal(film.figure.axes[0].collections[-1].get_offsets(), run.omega[0, 2])


def test_what_is_not_finite_is_counted_and_left_out(plane):
    run = plane.copy(deep=True)
    run["omega"][0, 3:, :2] = np.nan
    run["omega"][:, 20] = np.nan
    film = plots.animate(run, x=np.eye(2))
    for frame, lost in ((0, 0), (5, 2), (20, 12)):
        film.draw(frame)
        assert film.figure.axes[0].get_title() == f"step {2 * frame}" + (f", {lost} not finite" if lost else "")
        assert np.isfinite(film.figure.axes[2].lines[1].get_ydata()).any() == (lost == 0)
        kept = density_samples(run.omega[:, frame].to_numpy(), "radial")
        edges = film.figure.axes[1].patches[1].get_data().edges
        mass = np.nansum(bars(film) * np.diff(edges))
        assert mass == pytest.approx(float(np.isfinite(kept).any()))
    run["omega"][:, 1:] = np.nan
    assert plots.animate(run).figure.axes[1].get_ylim()[1] > 0  # only the start is left
    with pytest.raises(ValueError, match="dataset must hold finite particles"):
        plots.animate(run.where(False))


def test_a_gif_repeats_and_its_last_frame_stays(plane, tmp_path):
    film = plots.animate(plane, tmp_path / "run.gif", n_frames=4, fps=10)
    assert isinstance(film, Film)
    with Image.open(tmp_path / "run.gif") as picture:
        assert (picture.n_frames, picture.info["loop"], picture.size) == (4, 0, (810, 288))
        durations, pictures = [], []
        for frame in range(4):
            picture.seek(frame)
            durations.append(picture.info["duration"])
            pictures.append(np.asarray(picture.convert("RGB")))
    assert durations == [100, 100, 100, HOLD]
    assert all((one != other).any() for one, other in itertools.pairwise(pictures))
    assert (pictures[0][0, 0] == 255).all()  # white stays white


def test_an_mp4_is_a_film_of_as_many_frames(plane, tmp_path):
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    plots.animate(plane, tmp_path / "run.MP4", n_frames=4)
    frames, seconds = imageio_ffmpeg.count_frames_and_secs(str(tmp_path / "run.MP4"))
    assert frames == 4
    assert seconds == pytest.approx(4 / 12, abs=0.05)


def test_mp4_without_the_binary_names_the_extra(plane, tmp_path, monkeypatch):
    whole = builtins.__import__

    def without(name, *rest, **options):
        if name == "imageio_ffmpeg":
            raise ImportError(name)
        return whole(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r'imageio-ffmpeg: pip install "kernelgas\[video\]"'):
        plots.animate(plane, tmp_path / "run.mp4")
    assert not list(tmp_path.iterdir())


def test_a_notebook_plays_the_film_and_shows_its_last_frame_elsewhere(plane):
    film = plots.animate(plane, n_frames=3)
    page = film._repr_html_()
    assert page.count("data:image/png;base64") == 3
    assert "<input" in page  # the slider
    assert "http" not in page.replace("http://www.w3.org", "")
    assert "▶" in page
    assert "fa-" not in page
    assert film._repr_png_().startswith(b"\x89PNG")
    assert not plt.get_fignums()


def test_a_film_that_nobody_looks_at_is_no_mistake(plane, recwarn):
    film = plots.animate(plane, n_frames=2)
    del film
    gc.collect()
    assert not recwarn.list


@pytest.mark.parametrize("suffix", ["gif", "mp4"])
@pytest.mark.parametrize("there", [True, False])
def test_a_film_that_is_interrupted_leaves_what_was_there(tmp_path, suffix, there, monkeypatch):
    pytest.importorskip("imageio_ffmpeg")
    path = tmp_path / f"run.{suffix}"
    if there:
        path.write_bytes(b"an older film")
    writer, turns = film_module.writer_for(path, 5), itertools.count()
    monkeypatch.setattr(film_module, "writer_for", lambda *_: writer)

    def draw(_):
        if next(turns) == 5:
            if suffix == "mp4":
                writer._proc.kill()  # a terminal's Ctrl-C ends ffmpeg too
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Film(Figure(figsize=(2, 2), dpi=50), draw, 9, fps=5).write(path, progress=False)
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [b"an older film"] * there


@pytest.mark.slow
def test_a_film_for_a_readme_is_below_a_megabyte(tmp_path):
    for n in (64, 256):
        start = Ball(0.3, 2).sample(n, 0)
        run = simulate(start, Quadratic(1.0) + Riesz(0, 1.0), FullSpace(2), Langevin(0.02, 200.0), n_steps=300, save_every=5, rng=0)
        x = np.linspace(-1.5, 1.5, 61)
        radius = np.linspace(0, 1, 50)
        plots.animate(run, tmp_path / "run.gif", theory=(radius, 2 * radius), background=(x, x, x**2 + x[:, None] ** 2))
        assert (tmp_path / "run.gif").stat().st_size < 1e6
        with Image.open(tmp_path / "run.gif") as picture:
            assert picture.n_frames == 60


def test_frames_of_a_film_for_a_readme_are_small(plane, tmp_path):
    plots.animate(plane, tmp_path / "run.gif", n_frames=6)
    assert (tmp_path / "run.gif").stat().st_size < 6 * 1e6 / 60


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"path": "run.avi"}, "path must end in .gif or .mp4, got 'run.avi'"),
        ({"path": "run"}, "path must end in .gif or .mp4"),
        ({"path": 3}, "path must be a path, got 3"),
        ({"path": "run.gif", "fps": 60}, "fps must be at most 50 for a GIF, got 60"),
        ({"fps": 0}, "fps must be an integer of at least 1, got 0"),
        ({"n_frames": 0}, "n_frames must be an integer of at least 1"),
        ({"progress": 1}, "progress must be True or False"),
        ({"turn": "slow"}, "turn must be a real number"),
        ({"chain": 2}, "chain must be an integer from -2 to 1, got 2"),
        ({"density": 2}, "density must be an integer from 0 to 1, got 2"),
        ({"dims": (0, 1, 2)}, "dims must be an integer from 0 to 1, got 2"),
        ({"dims": 3}, "dims must be one to three different coordinates, got 3"),
        ({"theory": (np.zeros(3), np.zeros(4))}, "theory must be"),
        ({"x": np.zeros(3)}, r"x must have shape \(n, dim\), none of them 0, got \(3,\)"),
        ({"x": np.full((3, 2), np.nan)}, "x must be finite"),
        ({"x": np.zeros((3, 4))}, "omega must have 4 numbers per particle"),
        ({"feature": "wave"}, "feature must be a Feature or one of"),
        ({"x": np.zeros((3, 2)), "feature": "wave"}, "feature must be a Feature or one of"),
    ],
)
def test_bad_input_is_named(plane, options, words):
    with pytest.raises(ValueError, match=words):
        plots.animate(plane, **options)


def test_a_film_of_any_figure_can_be_written(tmp_path):
    figure = Figure(figsize=(2, 2), dpi=50)
    (dot,) = figure.add_subplot().plot([0], [0], "o", label="dot")
    figure.axes[0].legend()
    film = Film(figure, lambda i: dot.set_data([i], [0]), 3, fps=5)
    assert film.write(tmp_path / "dot.gif", progress=False) == tmp_path / "dot.gif"
    with pytest.raises(ValueError, match="path must end in"):
        film.write(tmp_path / "dot.png")


def test_pictures_are_loaded_without_matplotlib():
    code = "import particles.plots, sys; print('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False"
