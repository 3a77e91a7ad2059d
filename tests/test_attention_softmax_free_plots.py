"""Spectral norms without forming matrices, and the picture of their growth."""

from __future__ import annotations

import matplotlib
import pytest
import torch

from attention.softmax_free_plots import attentions, plot_spectral_norms, spectral_norm, spectral_norms

matplotlib.use("agg")


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_power_iteration_finds_the_largest_singular_value(generator: torch.Generator) -> None:
    matrices = torch.randn(2, 3, 20, 20, dtype=torch.float64, generator=generator)
    norms = spectral_norm(lambda v: matrices @ v, torch.randn(2, 3, 20, 1, dtype=torch.float64, generator=generator), n_steps=2000)
    torch.testing.assert_close(norms, torch.linalg.matrix_norm(matrices, 2), rtol=1e-6, atol=0)


def test_norms_of_attentions_are_those_of_their_matrices(generator: torch.Generator) -> None:
    q = torch.randn(1, 2, 60, 8, generator=generator)
    start = torch.randn(1, 2, 60, 1, generator=generator)
    for name, attend in attentions(9, generator=generator).items():
        columns = [attend(q, column) for column in torch.eye(60).expand(1, 2, 60, 60).split(1, -1)]
        exact = torch.linalg.matrix_norm(torch.cat(columns, -1), 2)
        norm = spectral_norm(lambda v: attend(q, v), start, n_steps=100)  # noqa: B023
        assert (norm <= exact * (1 + 1e-4)).all(), name
        torch.testing.assert_close(norm, exact, rtol=0.02, atol=0)


def test_plain_and_released_normalisation_grow_with_the_tokens_and_the_others_do_not(generator: torch.Generator) -> None:
    lengths = (49, 392, 784)
    norms = spectral_norms(lengths, attentions(49, generator=generator), n_repeats=2, generator=generator, n_steps=15)
    growth = {name: float(values[-1].mean() / values[0].mean()) for name, values in norms.items()}
    assert growth["plain"] > 2
    assert growth["SOFT++"] > 2
    assert growth["softmax"] < 1.1
    assert growth["over tokens"] < 1
    assert all(values.shape == (3, 2) for values in norms.values())
    assert (norms["SOFT++"] < norms["plain"]).all()


def test_picture_shows_a_planted_growth(generator: torch.Generator) -> None:
    import matplotlib.pyplot as plt

    lengths = (10, 100, 1000)
    attends = {"mean": lambda q, v: v.mean(2, keepdim=True).expand_as(v), "sum": lambda q, v: v.sum(2, keepdim=True).expand_as(v)}
    norms = spectral_norms(lengths, attends, generator=generator, n_repeats=1, n_steps=3)
    fig, ax = plt.subplots()
    lines = plot_spectral_norms(lengths, norms, ax=ax)
    slopes = {name: torch.tensor(line.get_ydata()).log10().diff().mean().item() for name, line in lines.items()}
    assert slopes["sum"] == pytest.approx(1, abs=1e-3)
    assert slopes["mean"] == pytest.approx(0, abs=1e-3)
    assert all(line.axes is ax for line in lines.values())
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert [text.get_text() for text in ax.get_xticklabels()] == ["10", "100", "1000"]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["mean", "sum", "proportional to tokens"]
    plt.close(fig)
    plt.close(next(iter(plot_spectral_norms(lengths, norms).values())).figure)


def test_lines_and_bands_are_the_numbers_and_nan_is_a_gap() -> None:
    import matplotlib.pyplot as plt

    norms = {"a": torch.tensor([[1.0, 3.0], [4.0, 8.0]]), "b": torch.tensor([[1.0, 1.0], [torch.nan, 2.0]])}
    lines = plot_spectral_norms([10, 20], norms)
    assert lines["a"].get_ydata().tolist() == [2, 6]
    assert torch.tensor(lines["b"].get_ydata()).isnan().tolist() == [False, True]
    ends = lines["a"].axes.collections[0].get_paths()[0].vertices[:, 1]
    assert {1, 3, 4, 8} <= set(ends.tolist())
    assert list(lines["a"].axes.lines[-1].get_ydata()) == [4, 8]  # slope 1 up to the largest that is finite
    assert len({(line.get_color(), line.get_marker(), line.get_linestyle()) for line in lines.values()}) == 2
    plt.close("all")


def test_one_length_is_drawn() -> None:
    import matplotlib.pyplot as plt

    lines = plot_spectral_norms([16], {"a": torch.ones(1, 1)})
    lines["a"].figure.draw_without_rendering()
    assert lines["a"].get_xydata().tolist() == [[16, 1]]
    plt.close("all")


def test_bad_input_is_named(generator: torch.Generator) -> None:
    start = torch.ones(1, 1, 4, 1)
    for call, message in (
        (lambda: spectral_norm(lambda v: v, torch.ones(4)), "start must be float"),
        (lambda: spectral_norm(lambda v: v[:, :, :2], start), "attend must return the shape"),
        (lambda: spectral_norm(lambda v: v, start, n_steps=0), "n_steps must be an integer"),
        (lambda: spectral_norms([], attentions(2, generator=generator), generator=generator), "lengths and attends must not be empty"),
        (lambda: plot_spectral_norms([1, 2], {"a": torch.ones(3, 1)}), "norms must be .2 lengths, repeat."),
        (lambda: plot_spectral_norms([1, 2], {"a": torch.ones(2)}), "norms must be .2 lengths, repeat."),
        (lambda: plot_spectral_norms([], {}), r"norms must hold a finite positive number at one length at least, got \[\] at \[\]"),
        (lambda: plot_spectral_norms([4], {"a": torch.full((1, 2), torch.nan)}), "norms must hold a finite positive number"),
        (lambda: plot_spectral_norms([0], {"a": torch.ones(1, 1)}), "lengths must be an integer of at least 1, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
