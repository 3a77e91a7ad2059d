"""Pictures of kernels and of Phase A: each must show a planted fault."""

from __future__ import annotations

import io
import subprocess
import sys

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex

from attention import feature_map
from attention.align import align
from attention.inspection import attention_maps, denominators, effective_rank, heads_from, kernel_error, row_entropy
from attention.model import ModelConfig, Transformer
from attention.plots import (
    RED,
    plot_alignment,
    plot_attention_maps,
    plot_denominators,
    plot_effective_rank,
    plot_frequencies,
    plot_kernel_error,
    plot_row_entropy,
)

HEADS, TIME, DIM = 3, 12, 4
MASK = torch.arange(TIME) < torch.tensor([[TIME], [8]])


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def heads(name: str = "softplus", n_features: int = 64, change=None, positive: bool = False, time: int = TIME, mask=None):
    generator = torch.Generator().manual_seed(0)
    q, k = 0.7 * torch.randn(2, 2, HEADS, time, DIM, generator=generator, dtype=torch.float64)
    phi = feature_map(name, dim=DIM, n_features=n_features, heads=HEADS, generator=generator)
    if positive:
        q, k = q.abs(), k.abs()
    if change is not None:
        with torch.no_grad():
            change(q, k, phi.omega)
    return heads_from(q, k, phi, key_mask=(MASK if mask is None else mask)[:, :time])


@pytest.fixture(scope="module")
def aligned():
    sizes = {"n_classes": 2, "input_dim": 8, "dim": 16, "heads": 2, "max_length": 8, "n_features": 8, "ff": 8, "layers": 2}
    model = Transformer(ModelConfig(attention=("softmax", "fourier"), **sizes), rng=0)
    tokens = torch.randn(60, 8, 8, generator=torch.Generator().manual_seed(0))
    batch = {"tokens": tokens, "key_mask": torch.ones(60, 8, dtype=torch.bool), "token_labels": (tokens[..., 0] > 0).long()}
    return align(model, [batch], targets="attend", n_steps=20, early_stopping=False, rng=0)


def test_the_error_map_shows_a_swapped_key():
    maps, order = attention_maps(heads("favor")), np.arange(TIME)
    order[[2, 5]] = order[[5, 2]]
    kernel = maps.softmax[..., order].assign_coords(key=maps.key)  # softmax itself, but for two keys in each other's place
    shown = maps.assign(kernel=kernel, error=kernel - maps.softmax)
    images = plot_attention_maps(shown, sequence=0, head=1)
    assert len(images) == 3
    columns = np.abs(images[2].get_array()).sum(0)
    assert columns[[2, 5]].min() > 0.3
    assert np.delete(columns, [2, 5]).max() == 0
    assert images[0].get_clim() == images[1].get_clim()
    np.testing.assert_array_equal(images[2].get_clim(), np.abs(images[2].get_array()).max() * np.array([-1, 1]))


def test_padding_is_not_drawn_as_attention():
    images = plot_attention_maps(attention_maps(heads()), sequence=1, head=0)
    for image in images:
        np.testing.assert_array_equal(np.ma.getmaskarray(np.ma.masked_invalid(image.get_array()))[:, 8:], True)
    for ax in plt.gcf().axes[:3]:
        assert ax.get_xlabel() == "key"


def test_negative_weights_have_the_colours_of_the_other_side():
    images = plot_attention_maps(attention_maps(heads("fourier")))
    low, high = images[1].get_clim()
    assert low == -high
    assert images[1].get_cmap().name == "PuOr"
    assert plot_attention_maps(attention_maps(heads("favor")))[1].get_clim()[0] == 0


def test_pairs_without_a_positive_weight_stand_apart():
    signed = kernel_error(heads("fourier", change=lambda q, k, omega: omega.mul_(6)))
    dots, crosses = plot_kernel_error(signed, head=1)
    n = TIME**2 + 8**2
    rows = np.isfinite(signed.log_softmax[:, 1].values)
    n_bad = int((~np.isfinite(signed.log_kernel[:, 1].values) & rows).sum())
    assert n_bad > 10
    assert (len(dots.get_offsets()), len(crosses.get_offsets())) == (n - n_bad, n_bad)
    assert to_hex(crosses.get_edgecolor()[0]).upper() == RED
    legend = plt.gca().get_legend()
    assert f"weight not positive: {100 * n_bad / n:.1f} % of pairs" in [text.get_text() for text in legend.get_texts()]
    assert (
        legend.get_title().get_text()
        == f"head 1: KL {float(signed.divergence[1]):.3g} nat, total variation {float(signed.total_variation[1]):.3g}"
    )
    assert len(plot_kernel_error(kernel_error(heads("favor")), head=0)) == 1


def test_a_kernel_that_does_not_look_at_its_keys_makes_a_flat_cloud():
    errors = kernel_error(heads(change=lambda q, k, omega: omega[2].zero_()))
    (dots,) = plot_kernel_error(errors, head=2)
    heights = dots.get_offsets()[:, 1]
    assert set(np.round(heights, 9)) == set(np.round([-np.log(TIME), -np.log(8)], 9))
    (dots,) = plot_kernel_error(errors, head=0)
    assert np.ptp(dots.get_offsets()[:, 1]) > 1


def test_the_bars_show_a_collapsed_head():
    def collapse(q, k, omega):
        omega[1] = omega[1, :1]

    bars = plot_effective_rank(effective_rank(heads(change=collapse)))
    height = np.array([bar.get_height() for bar in bars]).reshape(2, HEADS)
    np.testing.assert_allclose(height[:, 1], 1, atol=1e-6)
    assert (height[:, [0, 2]] > 1.05).all()
    labels = [text.get_text() for text in plt.gca().get_legend().get_texts()]
    assert "64 features" in labels
    assert plt.gca().get_ylim()[1] > 64


def test_the_boxes_show_a_uniform_head():
    boxes = plot_row_entropy(row_entropy(heads(change=lambda q, k, omega: omega[2].zero_())))
    assert len(boxes) == 2 * HEADS
    bottoms = [box.get_path().vertices[:, 1].min() for box in boxes[HEADS:]]
    assert bottoms[2] == pytest.approx(1)
    assert max(bottoms[:2]) < 0.999
    assert len(plot_row_entropy(row_entropy(heads()._replace(kernel=None)))) == HEADS


def test_the_lines_show_a_negative_denominator():
    def turn(q, k, omega):
        q[1, 2, 3] = -1.0

    lines = plot_denominators(denominators(heads("identity", DIM, turn, positive=True)))
    lowest = [line.get_ydata().min() for line in lines]
    assert lowest[2] == pytest.approx(-1)
    np.testing.assert_allclose(lowest[:2], 1)
    assert [line.get_label() for line in lines] == [f"head {i}: {share} % not positive" for i, share in enumerate((0, 0, 5))]
    assert plt.gca().get_ylim()[0] < -1
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == HEADS


def test_phase_a_is_drawn_with_its_terms_and_the_step_that_was_kept(aligned):
    lines = plot_alignment(aligned, layer=1, head=1)
    one = aligned.isel(layer=1, head=1)
    drawn = {line.get_label(): line.get_ydata() for line in lines}
    assert {"energy", "attend alignment", "riesz", "quadratic", "training", "hold-out"} <= set(drawn)
    np.testing.assert_allclose(drawn["training"], one.alignment)
    np.testing.assert_allclose(drawn["hold-out"], one.holdout)
    np.testing.assert_allclose(drawn["energy"], one.energy - one.energy[0])
    np.testing.assert_allclose(sum(drawn[name] for name in ("attend alignment", "riesz", "quadratic")), drawn["energy"], atol=1e-12)
    axes = plt.gcf().axes
    assert all(ax.lines[-1].get_xdata()[0] == float(one.chosen_step) for ax in axes)
    assert [bool(ax.get_ylabel()) for ax in axes] == [True] * 4


def test_over_fitting_and_a_wall_that_acts_are_seen(aligned):
    bad = aligned.copy(deep=True)
    bad["holdout"][1, 0] = bad.holdout[1, 0] * 0.1
    bad["projected"][1, 0] = 0.9
    drawn = {line.get_label(): line.get_ydata() for line in plot_alignment(bad, layer=1)}
    assert drawn["hold-out"][-1] < 0.2 * drawn["training"][-1]
    np.testing.assert_allclose(drawn["moved back by the wall"], 0.9)
    assert plt.gcf().axes[3].get_ylim()[1] > 0.9


def test_frequencies_are_drawn_before_and_after_in_standardised_units(aligned):
    before, after = plot_frequencies(aligned, layer=1, head=0)
    one = aligned.isel(layer=1, head=0)
    assert len(before.get_offsets()) == len(after.get_offsets()) == 4
    omega = one.omega_after.values * float(one.unit)
    spread = np.linalg.svd(omega, compute_uv=False)[:2]
    np.testing.assert_allclose(np.linalg.norm(after.get_offsets(), axis=0), spread)
    collapsed = aligned.copy(deep=True)
    collapsed["omega_after"][1, 0] = aligned.omega_after[1, 0, 0]
    _, after = plot_frequencies(collapsed, layer=1, head=0)
    assert np.ptp(after.get_offsets(), axis=0).max() < 1e-9


def test_pictures_go_where_they_are_told(aligned):
    _, axes = plt.subplots(2, 2)
    plot_kernel_error(kernel_error(heads()), ax=axes[0, 0])
    plot_effective_rank(effective_rank(heads()), ax=axes[0, 1])
    plot_row_entropy(row_entropy(heads()), ax=axes[1, 0])
    plot_denominators(denominators(heads()), ax=axes[1, 1])
    assert all(ax.has_data() for ax in axes.flat)
    assert len(plt.get_fignums()) == 1
    whole = plt.figure()
    upper, lower = whole.subfigures(2)
    plot_attention_maps(attention_maps(heads()), figure=upper)
    plot_alignment(aligned, layer=1, figure=lower)
    assert len(plt.get_fignums()) == 2
    whole.draw_without_rendering()


def test_maps_are_the_numbers_of_the_dataset():
    maps = attention_maps(heads("favor"))
    for image, name in zip(plot_attention_maps(maps, sequence=1, head=2), ("softmax", "kernel", "error"), strict=True):
        np.testing.assert_array_equal(np.ma.filled(image.get_array(), np.nan), maps[name][1, 2])


def test_lines_of_denominators_are_the_sorted_numbers():
    sums = denominators(heads("fourier"))
    for head, line in enumerate(plot_denominators(sums)):
        values = sums.relative[:, head].values.ravel()
        np.testing.assert_array_equal(line.get_ydata(), np.sort(values[np.isfinite(values)]))


def test_bars_are_the_ranks_and_dots_the_log_weights():
    ranks = effective_rank(heads())
    np.testing.assert_array_equal([bar.get_height() for bar in plot_effective_rank(ranks)], [*ranks["query"].values, *ranks["key"].values])
    errors = kernel_error(heads("favor"))
    (dots,) = plot_kernel_error(errors, head=1)
    pairs = [errors[name][:, 1].values.ravel() for name in ("log_softmax", "log_kernel")]
    np.testing.assert_allclose(dots.get_offsets(), np.transpose(pairs)[np.isfinite(pairs[0])])


PICTURES = {
    plot_attention_maps: attention_maps,
    plot_kernel_error: kernel_error,
    plot_effective_rank: effective_rank,
    plot_row_entropy: row_entropy,
    plot_denominators: denominators,
}


@pytest.mark.parametrize("draw", PICTURES)
def test_one_token_is_enough(draw):
    draw(PICTURES[draw](heads("favor", time=1)))
    plt.gcf().draw_without_rendering()
    assert plt.gcf().axes[0].has_data()


@pytest.mark.parametrize(("draw", "kind"), [(plot_denominators, "pdf"), (plot_attention_maps, "svg")])
def test_pictures_are_vectors(draw, kind):
    draw(PICTURES[draw](heads("favor")))
    buffer = io.BytesIO()
    plt.gcf().savefig(buffer, format=kind)
    assert buffer.tell() > 5000


def test_the_legend_of_many_heads_stands_beside_the_lines():
    sums = denominators(heads("favor")).isel(head=[0] * 12)
    plot_denominators(sums)
    plt.gcf().canvas.draw()
    ax = plt.gca()
    assert ax.get_legend().get_window_extent().x0 >= ax.get_window_extent().x1
    assert ax.get_window_extent().height > 0.6 * plt.gcf().bbox.height


@pytest.mark.parametrize("draw", PICTURES)
def test_words_are_legible_and_legends_hide_nothing(draw):
    draw(PICTURES[draw](heads("fourier")))
    figure = plt.gcf()
    figure.canvas.draw()
    for ax in figure.axes:
        assert all(text.get_fontsize() >= 8 for text in ax.findobj(plt.Text) if text.get_text())
        if ax.get_legend() is not None:
            assert ax.get_legend().get_window_extent().y0 >= ax.get_window_extent().y1 - 1


def test_a_sequence_of_padding_alone_is_named():
    empty = heads("favor", mask=torch.stack((torch.ones(TIME, dtype=torch.bool), torch.zeros(TIME, dtype=torch.bool))))
    with pytest.raises(ValueError, match="sequence must hold a token that is seen, got 1, all padding"):
        plot_attention_maps(attention_maps(empty), sequence=1)
    errors = kernel_error(empty).isel(sequence=[1])
    with pytest.raises(ValueError, match="errors must hold a pair of a query and a key that it sees, got none in head 0"):
        plot_kernel_error(errors)


def test_numbers_that_are_missing_leave_gaps():
    ranks, sums, entropies = effective_rank(heads()), denominators(heads()), row_entropy(heads())
    ranks["query"][1] = np.nan
    assert np.isnan([bar.get_height() for bar in plot_effective_rank(ranks)][1])
    sums["relative"][:, 1], sums["nonpositive"][1] = np.nan, np.nan
    lines = plot_denominators(sums)
    assert [len(line.get_ydata()) for line in lines] == [20, 0, 20]
    entropies["kernel"][:, 1] = np.nan
    assert len(plot_row_entropy(entropies)) == 2 * HEADS
    for number in plt.get_fignums():
        plt.figure(number).draw_without_rendering()


def test_an_alignment_of_one_step_or_with_gaps_is_drawn(aligned):
    plot_alignment(aligned.isel(step=[0]), layer=1)
    gaps = aligned.copy(deep=True)
    gaps["effective_rank"][1, 0, 1] = np.nan
    lines = plot_alignment(gaps, layer=1)
    assert any(np.isnan(line.get_ydata()).sum() == 1 for line in lines)
    plt.gcf().draw_without_rendering()


def test_one_particle_in_one_dimension_is_drawn_on_a_line(aligned):
    one = aligned.isel(particle=[0], particle_dim=[0])
    before, after = plot_frequencies(one, layer=1)
    assert len(before.get_offsets()) == len(after.get_offsets()) == 1
    assert after.get_offsets()[0, 1] == 0
    plt.gcf().draw_without_rendering()


def test_bad_input_is_named(aligned):
    maps = attention_maps(heads())
    with pytest.raises(ValueError, match="maps must be a Dataset with the variables softmax, kernel, error"):
        plot_attention_maps(kernel_error(heads()))
    with pytest.raises(ValueError, match="head must be below 3, got 3"):
        plot_attention_maps(maps, head=3)
    with pytest.raises(ValueError, match="sequence must be an integer of at least 0, got -1"):
        plot_attention_maps(maps, sequence=-1)
    with pytest.raises(ValueError, match="layer must be one that was aligned, got 0: 'softmax'"):
        plot_alignment(aligned, layer=0)
    with pytest.raises(ValueError, match="layer must be one that was aligned, got 0: 'softmax'"):
        plot_frequencies(aligned, layer=0)
    with pytest.raises(ValueError, match="sums must be a Dataset"):
        plot_denominators(np.zeros(3))


def test_matplotlib_is_imported_when_something_is_drawn():
    code = "import sys, attention.plots, attention.inspection; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
