"""Figures of the experiments: what is drawn are the numbers of the Dataset, and what cannot be drawn is named."""

from __future__ import annotations

import io
import itertools
import json

import numpy as np
import pytest
import xarray as xr
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from experiments import metrics, plots
from experiments.coulomb_tables import METHODS

RNG = np.random.default_rng(0)
NAMES = ["softmax", "fixed", "align"]


def probabilities() -> xr.Dataset:
    """Three methods, two seeds, 400 rows of three classes: honest, overconfident, and without an idea."""
    label = RNG.integers(3, size=400)
    truth = RNG.dirichlet(np.ones(3), (2, 400))
    label = np.array([RNG.choice(3, p=row) for row in truth[0]])
    sharp = truth**4 / (truth**4).sum(-1, keepdims=True)
    table = np.stack([truth, sharp, np.full_like(truth, 1 / 3)])
    score = {"accuracy": 0.8 + 0.05 * RNG.normal(size=(3, 2)), "log_loss": 0.5 + 0.1 * RNG.random((3, 2))}
    variables = {name: (("method", "seed"), values) for name, values in score.items()}
    variables |= {"probability": (("method", "seed", "row", "class"), table), "label": ("row", label)}
    return xr.Dataset(variables, coords={"method": NAMES})


def gas() -> xr.Dataset:
    radius, position = (np.arange(12) + 0.5) / 8, np.linspace(-2, 2, 21)
    return xr.Dataset(
        {
            "omega": (("chain", "particle", "dim"), RNG.normal(size=(2, 30, 2)) / 2),
            "radial_density": ("radius", RNG.random(12)),
            "ball_density": ("radius", np.where(radius < 1, 0.3, 0)),
            "second_moment": (("chain", "step"), 0.5 + 0.05 * RNG.normal(size=(2, 40))),
            "line_density": ("position", RNG.random(21)),
            "semicircle_density": ("position", np.sqrt(np.clip(2 - position**2, 0, None))),
            "ground_state": ("site", np.linspace(-1, 1, 9)),
            "hermite": ("site", np.linspace(-1, 1, 9)),
        },
        coords={"radius": radius, "position": position, "step": 10 * np.arange(40)},
        attrs={"config": json.dumps({"beta": 8.0, "strength": 1.0, "stiffness": 1.0})},
    )


def attention() -> xr.Dataset:
    size, labels = 12, np.repeat([0, 1, 2], 4)
    variables = {
        "attention": (("task", "method", "query", "key"), RNG.uniform(-1, 1, (2, 3, size, size))),
        "query_label": (("task", "query"), np.stack([labels, labels])),
        "key_label": (("task", "key"), np.stack([labels, labels])),
        "accuracy": (("task", "method", "seed"), RNG.random((2, 3, 4))),
    }
    return xr.Dataset(variables, coords={"task": ["near", "far"], "method": NAMES})


def kernels() -> xr.Dataset:
    gram = np.corrcoef(RNG.normal(size=(10, 30)))
    variables = {
        "marginal_density": (("task", "stage", "frequency"), RNG.random((1, 2, 15))),
        "radial_density": (("task", "stage", "radius"), RNG.random((1, 2, 12))),
        "gram": (("task", "stage", "point", "point_2"), np.stack([[np.eye(10), gram]])),
        "gram_label": (("task", "point"), np.repeat([[0, 1]], 5, axis=1)),
    }
    coords = {"task": ["xor"], "stage": ["start", "learned"], "frequency": np.arange(-7, 8) / 2, "radius": (np.arange(12) + 0.5) / 4}
    return xr.Dataset(variables, coords=coords)


def coulomb(**sizes: list) -> xr.Dataset:
    """Accuracy on fresh rows over the given settings and five seeds."""
    shape = (*(len(values) for values in sizes.values()), 5)
    found = xr.Dataset({"fresh_accuracy": ((*sizes, "seed"), RNG.uniform(0.5, 0.8, shape))}, coords=sizes)
    part = {"sigma": "noise", "n_features": "budget"}[list(sizes)[1]] if "method" in sizes else "lambda"
    return found.assign_attrs(config=json.dumps({"part": part, "dim": 10}))


NOISE = coulomb(method=["bayes", "svm", "paper", "particles"], sigma=[1e-3, 1.0, 10.0])
STRENGTH = coulomb(**{"sigma": [1e-3, 1.0], "lambda": [0.0, 0.5, 1.0]})
BUDGET = coulomb(method=["rff", "particles"], n_features=[16, 64, 256], sigma=[1.0])
SECONDS = np.array([[0.1, 1.0], [0.2, 0.9]])
RUNTIME = xr.Dataset({"seconds": (("method", "n"), SECONDS)}, coords={"method": ["rff", "particles"], "n": [100, 1000]})

FIGURES = {
    "gas": lambda: plots.figure_gas(gas()),
    "attention": lambda: plots.figure_attention(attention(), NAMES),
    "accuracy": lambda: plots.figure_accuracy(attention(), chance=[0.5, 0.25]),
    "classify": lambda: plots.figure_classify(probabilities()),
    "kernels": lambda: plots.figure_learned_kernels(kernels()),
    "coulomb accuracy": lambda: plots.figure_coulomb_accuracy(NOISE, STRENGTH, METHODS),
    "coulomb cost": lambda: plots.figure_coulomb_cost(BUDGET, RUNTIME, METHODS),
}


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_legible_and_nothing_overlaps(name):
    figure = FIGURES[name]()
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    for ax in figure.axes:
        shown = [text for text in ax.findobj(Text) if text.get_text() and text.get_visible()]
        assert all(text.get_fontsize() >= 8 for text in shown), [text.get_text() for text in shown if text.get_fontsize() < 8]
        for axis in (ax.xaxis, ax.yaxis):
            boxes = [tick.get_window_extent(renderer) for tick in axis.get_ticklabels() if tick.get_text()]
            assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    tight = figure.get_tightbbox(renderer)
    assert tight.x0 > -0.05
    assert tight.x1 < figure.get_figwidth() + 0.05


@pytest.mark.parametrize(("name", "kind"), [("classify", "pdf"), ("coulomb cost", "svg")])
def test_figures_are_vectors(name, kind):
    buffer = io.BytesIO()
    FIGURES[name]().savefig(buffer, format=kind)
    assert buffer.tell() > 10_000


def test_each_part_of_the_coulomb_benchmark_has_its_figure():
    for part in (NOISE, STRENGTH, BUDGET, RUNTIME.assign_attrs(config=json.dumps({"part": "runtime", "dim": 10}))):
        figure = plots.figure_coulomb(part, METHODS)
        assert len(figure.axes) == 1
        assert figure.axes[0].get_legend() is not None
        assert figure.axes[0].get_title(loc="left").endswith("10 dimensions")


def test_dots_are_seeds_and_bars_their_means():
    values = attention()["accuracy"].isel(task=0)
    values[1, 2] = np.nan
    ax = plots.plot_methods(values, labels={"fixed": "random"}, chance=0.25)
    for row in range(3):
        dots, bar = ax.lines[2 * row : 2 * row + 2]
        expected = 100 * values[row].values[np.isfinite(values[row])]
        np.testing.assert_allclose(dots.get_xdata(), expected)
        np.testing.assert_allclose(bar.get_xdata(), expected.mean())
    assert ax.lines[-1].get_xdata()[0] == 25
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["softmax", "random", "align"]
    values[1] = np.nan
    assert [len(line.get_xdata()) for line in plots.plot_methods(values).lines] == [4, 2, 0, 4, 2]


def test_curves_are_means_with_their_intervals():
    ax = plots.plot_noise(NOISE, METHODS)
    assert [line.get_label() for line in ax.lines] == [METHODS[name] for name in ("bayes", "svm", "paper", "particles")]
    for name, line, band in zip(("bayes", "svm", "paper", "particles"), ax.lines, ax.collections, strict=True):
        rows = [metrics.mean_interval(100 * row) for row in NOISE["fresh_accuracy"].sel({"method": name}).values]
        np.testing.assert_allclose(line.get_ydata(), [row.value for row in rows])
        ends = np.sort(np.unique(np.round(band.get_paths()[0].vertices[:, 1], 9)))
        np.testing.assert_allclose(ends, np.sort([end for row in rows for end in row[1:]]), rtol=1e-6)
    assert len({(line.get_color(), line.get_linestyle(), line.get_marker()) for line in ax.lines}) == 4


def test_gains_of_the_repulsion_are_paired():
    ax = plots.plot_strength(STRENGTH)
    for k, container in enumerate(ax.containers):
        values = STRENGTH["fresh_accuracy"].isel(sigma=k)
        gains = [100 * (values.sel({"lambda": strength}) - values.sel({"lambda": 0.0})).mean() for strength in (0.5, 1.0)]
        np.testing.assert_allclose(container.lines[0].get_ydata(), gains)


def test_reliability_is_that_of_metrics_and_tells_honest_from_overconfident():
    ds = probabilities()
    ax = plots.plot_reliability(ds)
    diagonal, *lines = ax.lines
    assert [line.get_label() for line in lines] == NAMES
    np.testing.assert_array_equal(diagonal.get_xdata(), diagonal.get_ydata())
    pooled = ds["probability"].sel({"method": "fixed"}).values.reshape(-1, 3)
    _, right, stated, share = metrics.reliability(pooled, np.tile(ds["label"].values, 2), n_bins=10)
    np.testing.assert_allclose(lines[1].get_xydata(), np.transpose([stated, right])[share > 0.01])
    honest = probabilities().isel(seed=[0])  # the labels are drawn from those of the first seed
    gap = [float((line.get_xdata() - line.get_ydata())[-3:].mean()) for line in plots.plot_reliability(honest).lines[1:3]]
    assert abs(gap[0]) < 0.1 < gap[1]
    only = plots.plot_reliability(ds, methods=["align"])
    assert len(only.lines) == 2
    assert len(only.lines[1].get_xdata()) == 1  # it always says one third


def test_more_methods_than_colours_are_all_drawn():
    ds = probabilities().isel(method=[0] * 9).assign_coords(method=[f"m{k}" for k in range(9)])
    lines = plots.plot_reliability(ds).lines[1:]
    assert len(lines) == len({(line.get_color(), line.get_linestyle()) for line in lines}) == 9


def test_spectra_and_gas_are_the_numbers():
    ds = kernels()
    ax = plots.plot_spectrum(ds, "xor", along="radius")
    for patch, stage in zip(ax.patches, ("start", "learned"), strict=True):
        np.testing.assert_array_equal(patch.get_data()[0], ds["radial_density"].sel(task="xor", stage=stage))
    found = gas()
    np.testing.assert_array_equal(plots.plot_ball(found, chain=1).collections[0].get_offsets(), found["omega"][1])
    np.testing.assert_array_equal(plots.plot_radial(found).patches[0].get_data()[0], found["radial_density"])
    found["second_moment"][1, 5] = np.nan
    mean = plots.plot_second_moment(found).lines[2].get_ydata()
    assert np.flatnonzero(np.isnan(mean)).tolist() == [5]


def test_one_particle_is_drawn_and_a_line_is_no_plane():
    assert len(plots.plot_ball(gas().isel(particle=[0])).collections[0].get_offsets()) == 1
    with pytest.raises(ValueError, match="ds must hold particles in the plane, got dim 1"):
        plots.plot_ball(gas().isel(dim=[0]))
    with pytest.raises(ValueError, match=r"centres must be those of two bins at least, got \[0.0625\]"):
        plots.plot_radial(gas().isel(radius=[0]))


def test_bad_input_is_named():
    values, ds = attention()["accuracy"], probabilities()
    for wrong in (values, values.isel(task=0, method=[]), np.zeros(3)):
        with pytest.raises(ValueError, match=r"values must be a DataArray \(method, seed\) of one method at least, got"):
            plots.plot_methods(wrong)
    with pytest.raises(ValueError, match=r"ds must hold probability \(method, seed, row, class\) and label \(row\)"):
        plots.plot_reliability(ds.isel(seed=0))
    with pytest.raises(ValueError, match=r"methods must name some of \['softmax', 'fixed', 'align'\], got \['other'\]"):
        plots.plot_reliability(ds, methods=["other"])
    with pytest.raises(ValueError, match="probabilities"):
        plots.plot_reliability(ds.assign(probability=ds["probability"] * np.nan))
    with pytest.raises(ValueError, match=r"method must hold one of .*, got \['other'\]"):
        plots.plot_noise(NOISE.isel(method=[0]).assign_coords(method=["other"]), {})
