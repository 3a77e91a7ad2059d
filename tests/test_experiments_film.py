"""The film of a learning kernel: what is stored is what the particles do, what is drawn is what is stored."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from experiments import film, plots, report, sections

CONFIG = film.Config(n=200, n_particles=8, n_steps=6, n_plane=11, n_show=20)


@pytest.fixture(scope="module")
def learned():
    return film.run(CONFIG)


def test_the_kernel_is_one_and_ordered_by_label(learned):
    gram = learned["gram"].transpose("step", "row", "column").values
    assert gram.shape == (4, 20, 20)
    np.testing.assert_allclose(gram, gram.swapaxes(1, 2), atol=1e-12)
    np.testing.assert_allclose(np.diagonal(gram, axis1=1, axis2=2), 1)
    assert learned["gram_label"].values.tolist() == [0] * 10 + [1] * 10


def test_accuracies_are_shares_and_the_fixed_one_is_a_number(learned):
    assert ((learned["accuracy"] > 0.4) & (learned["accuracy"] <= 1)).all()
    assert 0.4 < float(learned["fixed_accuracy"]) <= 1


def test_a_figure_shows_one_step(learned):
    figure = plots.figure_learning(learned, 4)
    plane, kernel, lengths, progress = figure.axes
    omega = learned["plane_omega"].sel(step=4).values
    np.testing.assert_array_equal(plane.collections[0].get_offsets(), np.concatenate([omega, -omega]))
    np.testing.assert_allclose(kernel.images[0].get_array(), learned["gram"].sel(step=4), atol=1e-12)
    values, edges, _ = lengths.patches[1].get_data()
    np.testing.assert_array_equal(values, np.histogram(learned["length"].sel(step=4), edges, density=True)[0])
    np.testing.assert_allclose(progress.lines[1].get_ydata(), 100 * learned["accuracy"].sel(step=[0, 2, 4]))
    assert progress.lines[0].get_ydata()[0] == pytest.approx(100 * float(learned["fixed_accuracy"]))


def test_axes_are_the_same_in_every_frame(learned):
    first, last = ([(ax.get_xlim(), ax.get_ylim()) for ax in plots.figure_learning(learned, step).axes] for step in (0, 6))
    assert first == last


def test_a_stored_film_is_drawn_frame_by_frame(learned, tmp_path):
    report.store(learned, tmp_path / "film.zarr")
    sections.draw("film", report.load(tmp_path / "film.zarr"), tmp_path)
    with Image.open(tmp_path / "learning.gif") as picture:
        assert (picture.n_frames, picture.size) == (4, (810, 405))
    section = sections.film(learned)
    assert list(section.pictures) == ["learning.gif"]
    assert f"{100 * float(learned['accuracy'][-1]):.1f} % at the end" in str(section)


@pytest.mark.slow
def test_the_film_of_the_readme_is_below_a_megabyte_and_the_particles_win(tmp_path):
    learned = film.run(film.Config())
    assert float(learned["accuracy"][-1]) > 0.8 > 0.65 > float(learned["fixed_accuracy"])
    assert plots.animate_learning(learned, tmp_path / "learning.gif").stat().st_size < 1e6


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_show": 1}, "n_show must be an integer of at least 2"),
        ({"n_steps": 0}, "n_steps"),
        ({"task": "ring3", "dim": 2}, "dim"),
        ({"n": 1}, "n must be"),
    ],
)
def test_bad_sizes_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        film.Config(**options)
