"""What the conversion of a pretrained encoder showed: tables, bars and a picture, all from a Dataset of `conversion.run`."""

from __future__ import annotations

import json

import xarray as xr
from matplotlib.figure import Figure

from experiments import plots
from experiments.kernel_claims import Bar, bar_of, measured
from experiments.report import Section, Table, spread

CLAIMS = {  # row: least share of the teacher's score, percent
    "proposal": 94.0,
    "proposal doubled": 95.5,
    "particles": 98.5,
    "hedgehog": 98.5,
    "hedgehog-softmax": 98.5,
    "softmaxfeat": 98.5,
    "softplus": 98.5,
    "hedgehog end to end": 99.3,
    "particles end to end": 99.3,
}
FITTED = {"kl": 0.12, "total_variation": 0.15, "output_error": 0.42}  # most, of a fitted map on held-out sentences
LONG = {"kl": 0.6, "output_error": 0.6}  # most, of a map fitted to the windows
STYLES = {  # rows in the picture of the layers: colour, line
    "uniform": (plots.GREY, ":"),
    "favor raw": (plots.ORANGE, "--"),
    "favor sent": (plots.ORANGE, "-"),
    "proposal": (plots.SKY, "--"),
    "proposal doubled": (plots.SKY, "-"),
    "nystrom": (plots.PINK, "-"),
    "flexformer": (plots.BLACK, "-"),
    "softmaxfeat": (plots.GREEN, "--"),
    "hedgehog": (plots.BLUE, "-"),
    "particles": (plots.RED, "-"),
}
NAMES = {"kl": "divergence", "total_variation": "total variation", "output_error": "output error"}


def section(ds: xr.Dataset) -> Section:
    """Scores, attention errors and the claims."""
    config = json.loads(ds.attrs["config"])
    tables = [_scores(ds, config)]
    if "setting" in ds.dims:
        tables += [_errors(ds, str(setting)) for setting in ds["setting"].values]
    tables.append(_claims(bars(ds)))
    text = (
        f"All layers of a pretrained encoder get kernels with {config['n_features']} features a head (doubled: twice as many), from "
        f"{config['n_fit']} sentences without labels. Nothing else is trained unless a row says end to end. Uniform attention, which reads "
        "nothing into queries and keys, is the floor; the score is a blunt instrument, and attention errors tell more."
    )
    caption = "Left: score of every student and seed; dotted: uniform attention. Right: divergence from softmax on sentences."
    return Section("A pretrained encoder converted", text, tables, {"conversion.png": caption})


def bars(ds: xr.Dataset) -> list[Bar]:
    """Each claim about the rows that the Dataset holds."""
    present = [row for row in CLAIMS if row in ds["row"].values]
    found = [_least(f"{row}: share of the teacher, %", 100 * ds["share"].sel(row=row), CLAIMS[row]) for row in present]
    return [bar for bar in (*found, *_error_bars(ds, present)) if bar is not None]


def _error_bars(ds: xr.Dataset, present: list[str]) -> list[Bar | None]:
    """Those about attention errors."""
    found: list[Bar | None] = []
    if "setting" not in ds.dims:
        return found
    for row in ("particles", "hedgehog"):
        for setting, limits in (("sentences", FITTED), ("windows, fitted there", LONG)):
            if row in present and setting in ds["setting"].values:
                part = ds.sel(row=row, setting=setting).mean(("layer", "head"))
                found += [_most(f"{row}, {setting}: {NAMES[name]}", part[name], limit) for name, limit in limits.items()]
    return found


def figure(ds: xr.Dataset) -> Figure:
    """Scores of the students, and divergence by layer."""
    drawn = Figure(figsize=(13.0, 1.4 + 0.3 * ds.sizes["row"]), layout="constrained")
    axes = drawn.subplots(1, 2)
    plots.plot_methods(ds["spearman"].rename(row="method"), ax=axes[0], unit="Spearman correlation", scale=1.0)
    if "uniform" in ds["row"].values:
        floor = float(ds["spearman"].sel(row="uniform").mean())
        axes[0].axvline(floor, color=plots.GREY, linestyle=":")
    drawn_rows = [row for row in STYLES if "kl" in ds and row in ds["row"].values and "sentences" in ds["setting"].values]
    for row in drawn_rows:
        line = ds["kl"].sel(row=row, setting="sentences").mean(("seed", "head"))
        colour, dashes = STYLES[row]
        axes[1].plot(line["layer"], line, dashes, color=colour, marker="o", markersize=3, label=row)
    if drawn_rows:
        axes[1].legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    axes[1].set(yscale="log", xlabel="layer", ylabel="divergence from softmax [nat]")
    axes[0].set_title("score of every student", fontsize=11, loc="left")
    axes[1].set_title(f"attention of {len(drawn_rows)} of {ds.sizes['row']} rows, held-out sentences", fontsize=11, loc="left")
    axes[1].spines[["top", "right"]].set_visible(False)
    return drawn


def _scores(ds: xr.Dataset, config: dict) -> Table:
    rows = []
    for row in ds["row"].values:
        part = ds.sel(row=row)
        made = [spread(part[name], scale, digits) if name in ds else "-" for name, scale, digits in MADE]
        rows.append([str(row), spread(part["spearman"], 1, 4), spread(part["share"], 100), *made])
    notes = [
        f"seeds: {ds.sizes['seed']}, mean ± standard deviation; parameters: learned, per head; softmax: heads left as they were",
        f"fits: {config['n_steps']} steps a layer; end to end: {config['n_end_steps']} steps; seconds of processor, measuring included",
    ]
    return Table("Sentence similarity (Spearman)", ["row", "score", "of teacher %", "parameters", "softmax %", "seconds"], rows, notes)


MADE = (("parameters", 1.0, 0), ("softmax", 100.0, 1), ("seconds", 1.0, 0))


def _errors(ds: xr.Dataset, setting: str) -> Table:
    part = ds.sel(setting=setting)
    rows = []
    for row in part["row"].values:
        one = part.sel(row=row)
        if not bool(one["kl"].notnull().any()):
            continue
        means = [spread(one[name].mean(("layer", "head")), 1, 3) for name in NAMES]
        worst = spread(one["kl"].mean("head").max("layer"), 1, 3)
        shares = [spread(one[name].mean(("layer", "head")), 100, 2) for name in ("bad_rows", "floored_rows")]
        rows.append([str(row), *means, worst, *shares])
    header = ["row", "divergence", "total variation", "output error", "worst layer", "bad rows %", "floored %"]
    notes = ["means over layers and heads on held-out inputs, teacher's activations (end to end: the student's own); worst: divergence"]
    return Table(f"Attention error: {setting}", header, rows, notes)


def _claims(found: list[Bar]) -> Table:
    cells = [measured(bar, ".3g") for bar in found]
    rows = [[bar.claim, cell, bar.rule, "yes" if bar.holds else "no"] for bar, cell in zip(found, cells)]
    return Table(
        "Claims", ["claim", "measured (95 % interval)", "bar", "does the mean reach it"], rows, ["means over seeds, Student's interval"]
    )


def _least(claim: str, values: xr.DataArray, bar: float) -> Bar | None:
    return bar_of(claim, values.values, f"at least {bar:g}", lambda mean: mean >= bar)


def _most(claim: str, values: xr.DataArray, bar: float) -> Bar | None:
    return bar_of(claim, values.values, f"at most {bar:g}", lambda mean: mean <= bar)
