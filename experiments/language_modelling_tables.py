"""Tables, verdicts and pictures of `language_modelling`, from its Dataset alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from experiments.claims.flexformer import PERPLEXITY
from experiments.comparisons import compare_rows
from experiments.language_modelling import REDUCED
from experiments.linear_rows import best_rates, pairs_of
from experiments.long_range_tables import corrected, drawn_differences, main_rows, rate_table
from experiments.metrics import Estimate
from experiments.report import Section, Table, spread, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEXT = (
    "Flexformer's table of WikiText-103 at this machine's scale: causal transformers of one size on the same tokens in the same order. "
    "The learning rate is each family's own, chosen on validation data of another seed."
)


def section(ds: xr.Dataset) -> Section:
    """What was measured, beside the paper's figures; what the comparisons say; how many units ran."""
    ds = ds.assign(gain=-ds["validation_last"])
    rates, table = best_rates(ds, "gain"), main_rows(ds)
    tables, verdicts = [rate_table(rates)] if rates else [], []
    if table.sizes["row"]:
        found = compared(table)
        tables = [perplexities(table), details(table), differences(found), *tables]
        verdicts = [said(found, k) for k in range(found.sizes["pair"]) if bool(found["leading"][k])]
    size = json.loads(ds.attrs["config"])["size"]
    note = f"{ds.attrs['finished']} of {ds.attrs['planned']} units ran. Reduced: {REDUCED.get(size, 'nothing')}."
    return Section("Language modelling", f"{TEXT}\n\n{note}", tables, captions(table), verdicts)


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
    """Trained parameters, tokens seen, time, denominators that are not positive, and what Phase A did; means over texts and seeds."""
    header = ["row", "parameters", "tokens", "seconds", "denominators <= 0 [%]", "held-out alignment before", "after"]
    rows = []
    for name in (str(name) for name in ds["row"].values):
        one = ds.sel(row=name)
        cells = [f"{float(one[score].mean()):,.0f}" for score in ("n_parameters", "n_tokens", "training_seconds")]
        shares = [
            100 * float(one["nonpositive"].isel(epoch=-1).mean()),
            *(float(one[side].mean()) for side in ("holdout_before", "holdout_after")),
        ]
        rows.append([name, *cells, *(f"{value:.{digits}f}" if np.isfinite(value) else "-" for value, digits in zip(shares, (0, 3, 3)))])
    return Table("Means over texts and seeds", header, rows, ["alignment: centred kernel alignment with the next tokens"])


def compared(ds: xr.Dataset) -> xr.Dataset:
    """Loss of the second row minus the first's, "TEXT: first - second", over seeds and blocks: positive where the first row is better;
    leading: our best row against softmax and the best linear baseline; p corrected among the leading ones, and among the others."""
    parts = []
    for task in (str(task) for task in ds["task"].values):
        one = ds.sel(task=task)
        pairs = pairs_of(one, "gain")
        found = compare_rows(-one[["block_loss"]], pairs, variable="block_loss", correction="none")
        names = {"pair": [f"{task}: {first} - {second}" for first, second in pairs]}
        parts.append(found.assign_coords(names).assign(leading=("pair", [k < 2 for k in range(len(pairs))])))
    return corrected(xr.concat(parts, "pair", combine_attrs="drop_conflicts"))


def differences(found: xr.Dataset) -> Table:
    """The comparisons as numbers."""
    rows = []
    for name in found["pair"].values:
        one = found.sel(pair=name)
        value, low, high = (float(one[end]) for end in ("difference", "low", "high"))
        rows.append([str(name), f"{value:+.3f}", f"{low:+.3f} to {high:+.3f}", f"{float(one['p_corrected']):.3f}"])
    note = "test loss that the first row saves, over seeds and blocks; p (Holm): over the lines of our best row, and over the rest"
    return Table("Differences [nats a token]", ["rows", "saved", "95 % interval", "p"], rows, [note])


def said(found: xr.Dataset, k: int) -> str:
    """One comparison in words."""
    one = found.isel(pair=k)
    estimate = Estimate(*(float(one[end]) for end in ("difference", "low", "high")))
    return f"{one['pair'].item()}: {verdict(estimate, unit='nats a token', scale=1.0, digits=3)}"


def captions(ds: xr.Dataset) -> dict[str, str]:
    """File names and captions of `figures`."""
    if not ds.sizes["row"]:
        return {}
    return {
        "language_modelling_loss.png": "Bits a byte of the test text, less is better: a dot a seed, a bar their mean.",
        "language_modelling_differences.png": "Test loss that the first row saves, with intervals over seeds and blocks.",
    }


def figures(ds: xr.Dataset) -> dict[str, Figure]:
    """Bits a byte of all rows, and the differences that the verdicts are about."""
    from experiments.plots import plot_methods
    from experiments.plots.panels import panels_of

    table = main_rows(ds.assign(gain=-ds["validation_last"]))
    if not table.sizes["row"]:
        return {}
    tasks = [str(task) for task in table["task"].values]
    figure, axes = panels_of(len(tasks), 2.2 + 4.2 * len(tasks), 1.2 + 0.3 * table.sizes["row"])
    for place, (task, ax) in enumerate(zip(tasks, axes)):
        plot_methods(table["bits_per_byte"].sel(task=task).rename(row="method"), ax=ax, title=task, unit="bits a byte", scale=1.0)
        if place:
            ax.set_yticklabels([])
    drawn = drawn_differences(compared(table), {}, "test loss saved", unit="nats a token", scale=1.0)
    return dict(zip(captions(table), (figure, drawn)))
