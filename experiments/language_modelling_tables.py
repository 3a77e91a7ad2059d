"""Tables, verdicts and pictures of `language_modelling`, from its Dataset alone; see `linear_tables` for the comparisons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import xarray as xr

from experiments import linear_tables
from experiments.claims.flexformer import PERPLEXITY
from experiments.language_kernels import NEAR
from experiments.language_modelling import KERNEL, LOOKED, REDUCED
from experiments.linear_tables import Gain, drawn_differences, drawn_rows, main_rows, ran
from experiments.report import Section, Table, spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TEXT = (
    "Flexformer's table of WikiText-103 at this machine's scale: causal transformers of one size on the same tokens in the same order. "
    "The learning rate is each family's own, chosen on validation data of another seed. What a map learns comes on top of the same model: "
    "the parameters stand beside each row."
)
GAIN = Gain(
    "block_loss", -1, "test loss saved", "test loss that the first row saves, over seeds and blocks", "saved", "nats a token", 1.0, 3
)
CAPTIONS = {
    "language_modelling_loss.png": "Bits a byte of the test text, less is better: a dot a seed, a bar their mean.",
    "language_modelling_differences.png": "Test loss that the first row saves, with intervals over seeds and blocks.",
}
KERNEL_PICTURE = "language_modelling_kernels.png"
KERNEL_CAPTION = (
    f"The weight that each row's nearest head puts on the last {NEAR} tokens, of which the same weight on all keys would be 8 %: a dot a "
    "seed, a bar their mean."
)
COLUMNS = {
    "parameters": ("n_parameters", "mean", ",.0f"),
    "tokens": ("n_tokens", "mean", ",.0f"),
    "seconds": ("training_seconds", "mean", ",.0f"),
}


def section(ds: xr.Dataset) -> Section:
    """What was measured, beside the paper's figures; what the comparisons say; how many units ran."""
    how: dict[str, Any] = {"title": "Language modelling", "text": TEXT, "reduced": REDUCED, "captions": CAPTIONS}
    told = linear_tables.section(ds, GAIN, own=lambda table: [perplexities(table), details(table)], **how)
    kernels = looked_at(ds)
    if not kernels.sizes["row"]:
        return told
    return replace(told, tables=[*told.tables, kernel_table(kernels)], pictures={**told.pictures, KERNEL_PICTURE: KERNEL_CAPTION})


def perplexities(ds: xr.Dataset) -> Table:
    """Perplexity and bits a byte of every row and text, and the paper's perplexity on WikiText-103 (small model)."""
    tasks = _tasks(ds)
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
    table, kernels = main_rows(ds), looked_at(ds)
    found: dict[str, Figure] = {}
    if table.sizes["row"]:
        found |= dict(zip(CAPTIONS, (_panels(table, _bits), *drawn_differences(table, GAIN, {}))))
    return found | ({KERNEL_PICTURE: _panels(kernels, _near)} if kernels.sizes["row"] else {})


def _panels(ds: xr.Dataset, draw: Callable[[xr.Dataset, Axes], None]) -> Figure:
    """A panel a text."""
    return drawn_rows(ds, _tasks(ds), 2.2 + 4.2 * ds.sizes["task"], draw)


def looked_at(ds: xr.Dataset) -> xr.Dataset:
    """The rows of part kernels that ran, under their own names."""
    found = ran(ds, [f"{name}{KERNEL}" for name in LOOKED])
    return found.assign_coords(row=[str(name).removesuffix(KERNEL) for name in found["row"].values])


def kernel_table(ds: xr.Dataset) -> Table:
    """Loss, and what the nearest and the sharpest head of every row do, of what `looked_at` returns."""
    heads, rows = ["layer", "head"], []
    columns = {
        "loss": (ds["log_loss"], 3),
        f"weight on {NEAR} tokens, nearest head [%]": (100 * ds["near"].max(heads), 0),
        "mean of heads": (100 * ds["near"].mean(heads), 0),
        "keys of the sharpest head": (ds["keys"].min(heads), 0),
        "negative weight [%]": (100 * ds["negative"].mean(heads), 0),
        "rank of keys' features": (ds["rank"].mean(heads), 0),
    }
    for task in _tasks(ds):
        rows += [[task, str(name), *(spread(v.sel(task=task, row=name), 1.0, n) for v, n in columns.values())] for name in ds["row"].values]
    notes = [
        "mean ± standard deviation over seeds, of the later half of each block's queries; weights: absolute ones, of a row's sum",
        "keys: exp of the mean entropy of rows; rank: effective number of directions",
        "what counts of pairs of tokens lose, where no attention is needed: "
        + ", ".join(f"{task} {float(ds['pairs'].sel(task=task).max()):.3f}" for task in _tasks(ds)),
    ]
    return Table("What the kernels of trained models do", ["text", "row", *columns], rows, notes)


def _tasks(ds: xr.Dataset) -> list[str]:
    return [str(task) for task in ds["task"].values]


def _near(one: xr.Dataset, ax: Axes) -> None:
    """The nearest head of every row of one text."""
    from experiments.plots import plot_methods

    held = one["near"].max(["layer", "head"]).rename(row="method")
    plot_methods(held, ax=ax, title=f"{one['task'].values}: weight on the last {NEAR} tokens", unit="% of a row, nearest head", scale=100.0)


def _bits(one: xr.Dataset, ax: Axes) -> None:
    """One text."""
    from experiments.plots import plot_methods

    held = one["bits_per_byte"].rename(row="method")
    plot_methods(held, ax=ax, title=str(one["task"].values), unit="bits a byte", scale=1.0)
