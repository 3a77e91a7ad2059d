"""Tables, verdicts and pictures of `language_modelling`, from its Dataset alone; see `linear_tables` for the comparisons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import xarray as xr

from experiments import linear_tables
from experiments.claims.flexformer import PERPLEXITY
from experiments.language_modelling import REDUCED
from experiments.linear_tables import Gain, drawn_differences, drawn_rows, main_rows
from experiments.report import Section, Table, spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TEXT = (
    "Flexformer's table of WikiText-103 at this machine's scale: causal transformers of one size on the same tokens in the same order. "
    "The learning rate is each family's own, chosen on validation data of another seed."
)
GAIN = Gain(
    "block_loss", -1, "test loss saved", "test loss that the first row saves, over seeds and blocks", "saved", "nats a token", 1.0, 3
)
CAPTIONS = {
    "language_modelling_loss.png": "Bits a byte of the test text, less is better: a dot a seed, a bar their mean.",
    "language_modelling_differences.png": "Test loss that the first row saves, with intervals over seeds and blocks.",
}
COLUMNS = {
    "parameters": ("n_parameters", "mean", ",.0f"),
    "tokens": ("n_tokens", "mean", ",.0f"),
    "seconds": ("training_seconds", "mean", ",.0f"),
}


def section(ds: xr.Dataset) -> Section:
    """What was measured, beside the paper's figures; what the comparisons say; how many units ran."""
    how: dict[str, Any] = {"title": "Language modelling", "text": TEXT, "reduced": REDUCED, "captions": CAPTIONS}
    return linear_tables.section(ds, GAIN, own=lambda table: [perplexities(table), details(table)], **how)


def perplexities(ds: xr.Dataset) -> Table:
    """Perplexity and bits a byte of every row and text, and the paper's perplexity on WikiText-103 (small model)."""
    tasks = [str(task) for task in ds["task"].values]
    header = ["row", *(title for task in tasks for title in (f"{task}: perplexity", "bits a byte")), "paper, WikiText-103"]
    rows = []
    for name in (str(name) for name in ds["row"].values):
        one = ds.sel(row=name)
        cells = [
            spread(one[score].sel(task=task), 1.0, digits) for task in tasks for score, digits in (("perplexity", 2), ("bits_per_byte", 3))
        ]
        rows.append([name, *cells, f"{PERPLEXITY[name][0]:.1f}" if name in PERPLEXITY else "-"])
    notes = ["of the test text, mean ± standard deviation over seeds; perplexities of different texts and tokens do not compare"]
    return Table("Perplexity", header, rows, notes)


def details(ds: xr.Dataset) -> Table:
    """Trained parameters, tokens seen, time, denominators that are not positive, and what Phase A did."""
    return linear_tables.details(ds, COLUMNS, "Means over texts and seeds", "alignment: centred kernel alignment with the next tokens")


def figures(ds: xr.Dataset) -> dict[str, Figure]:
    """Bits a byte of all rows, and the differences that the verdicts are about."""
    table = main_rows(ds)
    if not table.sizes["row"]:
        return {}
    tasks = [str(task) for task in table["task"].values]
    drawn = drawn_rows(table, tasks, 2.2 + 4.2 * len(tasks), _bits)
    return dict(zip(CAPTIONS, (drawn, *drawn_differences(table, GAIN, {}))))


def _bits(one: xr.Dataset, ax: Axes) -> None:
    """One text."""
    from experiments.plots import plot_methods

    held = one["bits_per_byte"].rename(row="method")
    plot_methods(held, ax=ax, title=str(one["task"].values), unit="bits a byte", scale=1.0)
