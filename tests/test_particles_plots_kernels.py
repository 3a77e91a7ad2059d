"""Pictures of learned kernels: what is drawn are the numbers of the matrices, and what cannot be drawn is named."""

from __future__ import annotations

import io
import itertools

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
import xarray as xr

from particles import FourierPair, FourierPhase, NonstationaryPair, plots
from theory.spectral.gram import label_alignment


@pytest.fixture(scope="module")
def points():
    """20 points in the plane and their labels, out of order."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((20, 2)), rng.permutation(np.repeat([0, 1, 2], (5, 8, 7)))


@pytest.fixture(scope="module")
def grams(points):
    """Kernels of 3 and of 100 particles: of rank 6 and of full rank."""
    rng = np.random.default_rng(1)
    return {name: FourierPair().kernel(points[0], points[0], rng.standard_normal((n, 2))) for name, n in (("few", 3), ("many", 100))}


@pytest.fixture(autouse=True)
def no_figure_left():
    yield
    plt.close("all")


def test_a_gram_matrix_is_ordered_by_label_and_parted_between_labels(points, grams):
    labels = points[1]
    ax = plots.plot_gram(grams["many"], labels)
    order = np.concatenate([np.flatnonzero(labels == label) for label in (0, 1, 2)])
    np.testing.assert_allclose(ax.images[0].get_array(), grams["many"][order][:, order], atol=1e-15)
    assert ax.images[0].get_clim() == pytest.approx((-1, 1))
    assert [line.get_ydata()[0] for line in ax.lines[::2]] == [4.5, 12.5]
    assert [line.get_xdata()[0] for line in ax.lines[1::2]] == [4.5, 12.5]
    assert [text.get_text() for text in ax.get_xticklabels()] == ["0", "1", "2"]
    np.testing.assert_allclose(ax.get_xticks(), [2.0, 8.5, 16.0])  # the middles of points 0..4, 5..12, 13..19
    assert len(ax.figure.axes) == 2  # the colour bar


def test_a_gram_matrix_without_labels_keeps_its_order(grams):
    _, ax = plt.subplots()
    assert plots.plot_gram(torch.tensor(grams["few"]), limit=2.0, colorbar=False, ax=ax) is ax
    np.testing.assert_allclose(ax.images[0].get_array(), grams["few"], atol=1e-15)
    assert ax.images[0].get_clim() == (-2, 2)
    assert not ax.lines
    assert ax.figure.axes == [ax]


def test_labels_are_words_or_numbers_and_many_are_ordered_without_lines(points, grams):
    words = np.array(["cat", "dog", "eel"])[points[1]]
    assert [text.get_text() for text in plots.plot_gram(grams["few"], words).get_yticklabels()] == ["cat", "dog", "eel"]
    targets = points[0][:, 0]
    ax = plots.plot_gram(grams["few"], targets)
    assert not ax.lines
    order = np.argsort(targets)
    np.testing.assert_allclose(ax.images[0].get_array(), grams["few"][order][:, order], atol=1e-15)


def test_names_of_labels_do_not_overlap(points, grams):
    words = np.array(["automobile", "frog", "ship of the line"])[points[1]]
    figure = plots.figure_grams(grams, words)
    figure.canvas.draw()
    for ax in figure.axes[:2]:
        boxes = [text.get_window_extent() for text in ax.get_xticklabels()]
        assert all(one.x1 < other.x0 for one, other in itertools.pairwise(boxes))


def test_matrices_before_and_after_share_their_colours(points, grams):
    figure = plots.figure_grams({"start": grams["few"], "learned": 3 * grams["many"]}, points[1])
    left, right, _ = figure.axes
    assert left.images[0].get_clim() == right.images[0].get_clim() == pytest.approx((-3, 3))
    assert [ax.get_title(loc="left") for ax in (left, right)] == ["start", "learned"]


def test_eigenvalues_are_drawn_from_the_largest_without_those_that_are_zero(grams):
    curve = (np.arange(1, 21), np.linspace(3, 0.1, 20))
    ax = plots.plot_eigenvalues(grams, edge=0.5, curve=curve)
    few, many, theory, edge = ax.lines
    np.testing.assert_allclose(few.get_ydata(), np.linalg.eigvalsh(grams["few"])[::-1][:6])
    np.testing.assert_array_equal(few.get_xdata(), np.arange(1, 7))
    np.testing.assert_allclose(many.get_ydata(), np.linalg.eigvalsh(grams["many"])[::-1])
    np.testing.assert_array_equal(theory.get_xydata(), np.stack(curve, -1))
    assert edge.get_ydata()[0] == 0.5
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["few", "many", "theory", "edge of the noise"]


def test_the_rank_of_a_matrix_in_single_precision_is_that_in_double(grams):
    values = plots.eigenvalues(grams["few"].astype(np.float32))
    assert values.dtype == np.float32
    assert (values > 0).sum() == 6
    np.testing.assert_allclose(values, plots.eigenvalues(grams["few"]), rtol=1e-5, atol=0)


def test_matrices_of_different_sizes_have_their_eigenvalues_on_one_picture(grams):
    ax = plots.plot_eigenvalues({"all": grams["many"], "half": grams["many"][:10, :10]})
    assert [len(line.get_xdata()) for line in ax.lines] == [20, 10]


def test_slices_are_the_kernel_along_directions():
    omega = np.array([[1.0, 0.0], [0.0, 2.0]])
    exact = (np.array([0.0, 1.0]), np.array([1.0, 0.5]))
    ax = plots.plot_kernel_slices(omega, "fourier", {"x": [5, 0], "diagonal": np.array([1.0, 1.0])}, reach=2.0, exact=exact)
    first, diagonal, curve = ax.lines
    t = first.get_xdata()
    assert (t[0], t[-1]) == (-2, 2)
    np.testing.assert_allclose(first.get_ydata(), (np.cos(t) + 1) / 2, atol=1e-12)
    np.testing.assert_allclose(diagonal.get_ydata(), (np.cos(t / np.sqrt(2)) + np.cos(t * np.sqrt(2))) / 2, atol=1e-12)
    np.testing.assert_array_equal(curve.get_xydata(), np.stack(exact, -1))
    assert not ax.collections


def test_slices_of_several_chains_are_a_mean_and_a_range():
    omega = np.array([[[1.0]], [[3.0]]])
    ax = plots.plot_kernel_slices(omega, FourierPair(), {"x": [1]})
    t = ax.lines[0].get_xdata()
    np.testing.assert_allclose(ax.lines[0].get_ydata(), (np.cos(t) + np.cos(3 * t)) / 2, atol=1e-12)
    band = ax.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == pytest.approx(min(np.cos(t).min(), np.cos(3 * t).min()))


@pytest.mark.parametrize("feature", [FourierPhase(), NonstationaryPair(), "softplus"])
def test_any_feature_and_one_particle_can_be_sliced(feature):
    feature = plots.kernels.as_feature(feature)
    omega = np.ones((1, feature.particle_dim(3)))
    ax = plots.plot_kernel_slices(omega, feature, {"x": [1, 0, 0]})
    t = ax.lines[0].get_xdata()
    points = np.stack([t, 0 * t, 0 * t], -1)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), feature.kernel(points, np.zeros((1, 3)), omega)[:, 0], rtol=1e-12)


@pytest.mark.parametrize("which", ["few", "many"])
def test_power_of_the_labels_is_that_of_theory(points, grams, which):
    labels = points[1]
    number, share = plots.plot_label_power({"kernel": grams[which]}, labels).lines[0].get_data()
    law = label_alignment(grams[which], np.eye(3)[labels], centre=True)
    expected = np.interp(number, [0, *law.rank], [0, *law.cumulative])
    np.testing.assert_allclose(share, expected, atol=1e-9)
    assert (number[-1], share[-1]) == (20, 1)


def test_a_kernel_that_is_the_labels_has_all_their_power_in_one_eigenvector(points):
    target = np.where(points[1] == 0, 1.0, -1.0)
    ax = plots.plot_label_power({"ideal": np.outer(target, target), "identity": np.eye(20)}, points[1] == 0)
    ideal, _, random = ax.lines
    np.testing.assert_allclose(ideal.get_ydata()[:2], [0, 1])
    np.testing.assert_array_equal(random.get_xydata(), [[0, 0], [20, 1]])


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_constant_kernel_has_no_power_but_rounding(kind):
    noise = np.random.default_rng(0).standard_normal((50, 50))
    gram = (0.7 * (1 + np.finfo(kind).eps * (noise + noise.T))).astype(kind)
    with pytest.raises(ValueError, match=r"grams\['k'\], centred, must be positive semi-definite and not zero"):
        plots.plot_label_power({"k": gram}, np.arange(50) % 2)
    assert not plt.get_fignums()


def test_pictures_of_one_point():
    one = np.array([[2.0]])
    assert plots.plot_gram(one, [7]).images[0].get_array() == [[2.0]]
    assert plots.plot_eigenvalues({"one": one}).lines[0].get_ydata() == [2.0]
    with pytest.raises(ValueError, match="labels must hold at least two different labels"):
        plots.plot_label_power({"one": one}, [7])


@pytest.mark.parametrize("suffix", ["pdf", "svg"])
def test_vector_files(points, grams, suffix):
    for drawn in (plots.figure_grams(grams, points[1]), plots.plot_eigenvalues(grams).figure):
        drawn.savefig(io.BytesIO(), format=suffix)


def test_numbers_drawn_are_legible_and_named(points, grams):
    axes = [
        plots.plot_eigenvalues(grams),
        plots.plot_label_power(grams, points[1]),
        plots.plot_kernel_slices([[1.0]], "fourier", {"x": [1]}),
    ]
    for ax in axes:
        assert ax.get_xlabel()
        assert ax.get_ylabel()
        assert min(text.get_fontsize() for text in (*ax.get_legend().get_texts(), ax.xaxis.label, *ax.get_xticklabels())) >= 8


BAD = [
    (np.zeros((0, 0)), r"must have shape \(n, n\) with n at least 1, got \(0, 0\)"),
    (np.ones((2, 3)), r"must have shape \(n, n\) with n at least 1, got \(2, 3\)"),
    (np.ones(3), r"must have shape"),
    (np.array([[1.0, np.nan], [np.nan, 1.0]]), "must be finite, got 2 NaN"),
    (np.array([[1.0, 0.5], [0.2, 1.0]]), "must be symmetric, got entries that differ by 0.3"),
    (np.array([["a"]]), "must hold real numbers"),
]


@pytest.mark.parametrize(("gram", "words"), BAD)
def test_what_is_no_gram_matrix_is_named(gram, words):
    with pytest.raises(ValueError, match=f"gram {words}"):
        plots.plot_gram(gram)
    for draw in (plots.figure_grams, plots.plot_eigenvalues, lambda bad: plots.plot_label_power(bad, [0, 1])):
        with pytest.raises(ValueError, match=rf"grams\['name'\] {words}"):
            draw({"name": gram})
    assert not plt.get_fignums()


@pytest.mark.parametrize("gram", [np.zeros((2, 2)), np.array([[0.0, 1.0], [1.0, 0.0]])])
def test_what_is_no_kernel_has_a_picture_but_no_spectrum(gram):
    assert plots.plot_gram(gram)
    plt.close("all")
    with pytest.raises(ValueError, match=r"grams\['k'\] must be positive semi-definite and not zero, got eigenvalues from"):
        plots.plot_eigenvalues({"k": gram})
    with pytest.raises(ValueError, match="positive semi-definite"):
        plots.eigenvalues(gram)
    with pytest.raises(ValueError, match="centred, must be positive semi-definite"):
        plots.plot_label_power({"k": gram}, [0, 1])
    assert not plt.get_fignums()


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda g, _: plots.plot_gram(g["few"], [0, 1]), r"labels must be 20 numbers or strings, got shape \(2,\)"),
        (lambda g, y: plots.plot_gram(g["few"], y.astype(object)), "labels must be 20 numbers or strings.*dtype object"),
        (lambda g, _: plots.plot_gram(g["few"], limit=0.0), "limit must be positive, got 0.0"),
        (lambda g, _: plots.plot_gram(g["few"], colorbar=1), "colorbar must be True or False, got 1"),
        (lambda g, _: plots.figure_grams(g, [0, 1]), r"labels must be 20 numbers or strings, got shape \(2,\)"),
        (lambda g, _: plots.figure_grams({}), "grams must be a dict of arrays by name, not empty, got dict"),
        (lambda g, _: plots.plot_eigenvalues(g["few"]), "grams must be a dict of arrays by name, not empty, got ndarray"),
        (lambda g, _: plots.plot_eigenvalues(g, curve=[1.0]), r"curve must be \(number, eigenvalue\), got \[1.0\]"),
        (lambda g, _: plots.plot_eigenvalues(g, curve=([1.0, 2.0], [1.0])), r"curve must be .*got shapes \(2,\) and \(1,\)"),
        (lambda g, _: plots.plot_kernel_slices([[1.0]], "fourier", {"x": [1.0]}, exact=5), r"exact must be \(distance, kernel\), got 5"),
        (lambda g, _: plots.plot_eigenvalues(g, edge=-1.0), "edge must be positive, got -1.0"),
        (lambda g, y: plots.figure_grams({"a": g["few"], "b": np.eye(3)}, y), r"grams must be of one size.*got \[3, 20\]"),
        (lambda g, y: plots.plot_label_power(g, y[:5]), "labels must be 20, one a row of grams, got 5"),
        (lambda g, y: plots.plot_label_power(g, y * np.nan), "labels must be finite"),
        (lambda g, _: plots.plot_kernel_slices([[1.0]], "fourier", {"x": [0.0]}), "directions must be finite vectors.*for 'x'"),
        (lambda g, _: plots.plot_kernel_slices([[1.0]], "fourier", {"x": [1.0, 0.0]}), "omega must have 2 numbers per particle"),
        (lambda g, _: plots.plot_kernel_slices([[np.nan]], "fourier", {"x": [1.0]}), "omega must be finite"),
        (lambda g, _: plots.plot_kernel_slices([[1.0]], "cosine", {"x": [1.0]}), "feature must be a Feature or one of"),
        (lambda g, _: plots.plot_kernel_slices([[1.0]], "fourier", {"x": [1.0]}, reach=0), "reach must be positive, got 0"),
        (lambda g, _: plots.plot_kernel_slices([[1.0]], "fourier", []), "directions must be a dict of arrays by name, not empty, got list"),
    ],
)
def test_bad_input_is_named_before_a_figure_is_made(points, grams, draw, words):
    with pytest.raises(ValueError, match=words):
        draw(grams, points[1])
    assert not plt.get_fignums()


def test_particles_of_a_run_are_taken_with_their_axes_by_name():
    omega = xr.DataArray(np.arange(6.0).reshape(2, 3), dims=("dim", "particle"))
    ax = plots.plot_kernel_slices(omega, "fourier", {"x": [1, 0]})
    t = ax.lines[0].get_xdata()
    np.testing.assert_allclose(ax.lines[0].get_ydata(), np.mean([np.cos(w * t) for w in (0, 1, 2)], axis=0), atol=1e-12)
