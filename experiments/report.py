"""What is told about a run: aligned text tables, zarr stores, and one self-contained HTML page.

A run folder is new each time: ``results/<name>/<UTC time>/``. Nothing in it is ever overwritten.
"""

from __future__ import annotations

import base64
import datetime
import html
import importlib.metadata
import io
import json
import math
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.metrics import Estimate

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

LIBRARIES = ("kernelgas", "numpy", "scipy", "numba", "torch", "xarray", "zarr", "scikit-learn", "matplotlib")


@dataclass(frozen=True)
class Table:
    """Rows of text under a header; ``notes`` say what the numbers mean."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    def __str__(self) -> str:
        cells = [[str(cell) for cell in row] for row in (self.header, *self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(f"{cell:<{width}}" if k == 0 else f"{cell:>{width}}" for k, (cell, width) in enumerate(zip(row, widths)))
            for row in cells
        ]
        rule = "-" * len(lines[0])
        return "\n".join([self.title, lines[0].rstrip(), rule, *(line.rstrip() for line in lines[1:]), *self.notes])

    def html(self) -> str:
        """The same as an HTML table."""
        head = "".join(f"<th>{html.escape(str(cell))}</th>" for cell in self.header)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>" for row in self.rows)
        notes = "".join(f"<p class='note'>{html.escape(note)}</p>" for note in self.notes)
        return f"<h3>{html.escape(self.title)}</h3><div class='wide'><table><tr>{head}</tr>{body}</table></div>{notes}"


@dataclass(frozen=True)
class Section:
    """One part of the page: what was done, its tables, its pictures (file name -> caption), and what to conclude."""

    title: str
    text: str
    tables: Sequence[Table] = ()
    pictures: Mapping[str, str] = field(default_factory=dict)
    verdicts: Sequence[str] = ()

    def __str__(self) -> str:
        return "\n\n".join([f"== {self.title} ==", *map(str, self.tables), "\n".join(self.verdicts)]).rstrip()


def percent(estimate: Estimate | float, *, digits: int = 1) -> str:
    """A share as a percentage, with its interval when it has one."""
    if isinstance(estimate, Estimate):
        low, high = (f"{100 * end:.{digits}f}" for end in estimate[1:])
        return f"{100 * estimate.value:.{digits}f} ({low} to {high})"
    return f"{100 * estimate:.{digits}f}"


def verdict(difference: Estimate, *, unit: str = "points", scale: float = 100.0, digits: int = 1) -> str:
    """A gain (first - second, more is better) in words and numbers; an interval that holds 0 is "no difference shown".

    Without an interval it comes from one seed, which cannot tell a better method from a lucky training; nor can seeds that all have the
    same difference, as scores counted in examples may, tell how far others would lie from it.
    """
    value, low, high = (scale * number for number in difference)
    if not math.isfinite(low):
        return f"{signed(value, digits)} {unit} on one seed, no interval"
    if low == high != 0:
        return f"{signed(value, digits)} {unit} on every seed, no interval"
    word = "no difference shown" if low <= 0 <= high else "better" if value > 0 else "WORSE"
    gain, left, right = (signed(number, digits) for number in (value, low, high))
    return f"{word} ({gain} {unit}, 95 % interval {left} to {right})"


def interval(low: float, high: float, *, scale: float = 1.0, digits: int = 1) -> str:
    """An interval's ends with their signs; "one seed" where there is none."""
    ends = [signed(scale * end, digits) for end in (low, high)]
    return " to ".join(ends) if math.isfinite(low) and math.isfinite(high) else "one seed"


def p_value(p: float) -> str:
    """A p-value with three digits, "< 0.001" below them and "-" where there is none."""
    return "-" if math.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.3f}"


def signed(value: float, digits: int = 1) -> str:
    """A number with its sign, and a plain 0.0 for what rounds to it."""
    text = f"{value:+.{digits}f}"
    return text if float(text) else text[1:]


def spread(values: xr.DataArray, scale: float = 1.0, digits: int = 1) -> str:
    """Mean ± standard deviation over the seeds; the mean alone for one seed, "-" where nothing was measured."""
    numbers = scale * values.values[np.isfinite(values.values)]
    if not len(numbers):
        return "-"
    deviation = f" ± {numbers.std(ddof=1):.{digits}f}" if len(numbers) > 1 else ""
    return f"{numbers.mean():z.{digits}f}{deviation}"


# ---- folders and stores ------------------------------------------------------------------------------------------------------------------


def new_folder(name: str, root: str | Path = "results", now: datetime.datetime | None = None) -> Path:
    """Make ``root/name/<UTC time>``; a number is added where that second is taken."""
    stamp = (now or datetime.datetime.now(datetime.UTC)).strftime("%Y-%m-%dT%H%M%SZ")
    parent = Path(root) / name
    parent.mkdir(parents=True, exist_ok=True)
    for suffix in ["", *(f"-{k}" for k in range(2, 1000))]:
        try:
            (parent / f"{stamp}{suffix}").mkdir()
        except FileExistsError:
            continue
        return parent / f"{stamp}{suffix}"
    raise FileExistsError(f"a thousand folders {stamp} are already in {str(parent)!r}")


def store(dataset: xr.Dataset, path: str | Path) -> Path:
    """Write a Dataset as a new zarr store that `xarray.open_zarr` reads as it was, with its names on the coordinates.

    In zarr's format 2: the specification of format 3 has neither text nor consolidated metadata, of which readers would be warned.
    FileExistsError if there is a store; ValueError for text that is not a dimension's coordinate.
    """
    if Path(path).exists():
        raise FileExistsError(f"store {str(path)!r} exists already; results are never overwritten")
    text = [str(name) for name, variable in dataset.variables.items() if variable.dtype.kind in "OSUT"]
    inner = sorted(set(text) - set(dataset.dims))
    if inner:
        raise ValueError(f"variables {inner} hold text; keep text in the attrs or in a dimension's coordinate")
    encoded = dataset.assign_coords({dim: dataset[dim].values.astype(str) for dim in text})
    encoded.attrs = {key: _attribute(value) for key, value in dataset.attrs.items()}
    encoded.drop_encoding().to_zarr(path, mode="w-", zarr_format=2, consolidated=True)
    return Path(path)


def _attribute(value: Any) -> Any:
    """Text and numbers as they are, everything else as JSON."""
    return value if isinstance(value, (str, int, float)) else json.dumps(value, default=str)


def load(path: str | Path) -> xr.Dataset:
    """Read a store written by `store`; older ones hold numbers for names, and the names as JSON in the attribute ``names``."""
    import xarray as xr

    dataset = xr.open_zarr(path, consolidated=False).load()
    return dataset.assign_coords(json.loads(dataset.attrs.pop("names", "{}")))


def save(name: str, dataset: xr.Dataset, root: str | Path = "results") -> Path:
    """Write one experiment's Dataset into a new run folder and return that folder."""
    folder = new_folder(name, root)
    store(dataset, folder / f"{name}.zarr")
    return folder


def machine() -> dict[str, str]:
    """Processor, cores, system, and the versions of Python and of the libraries that matter here."""
    versions = {}
    for library in LIBRARIES:
        try:
            versions[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            versions[library] = "not installed"
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    } | versions


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


# ---- the page ----------------------------------------------------------------------------------------------------------------------------

STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:68rem;margin:2rem auto;padding:0 1rem;color:#1b1b1b;background:#fff}
h1,h2,h3{line-height:1.2} h2{margin-top:3rem;border-bottom:1px solid #ccc} h3{margin:1.5rem 0 .4rem;font-size:1rem}
.wide{overflow-x:auto} table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.92rem}
th,td{padding:.25rem .55rem;white-space:nowrap;
text-align:right;border-bottom:1px solid #e5e5e5} th:first-child,td:first-child{text-align:left}
th{border-bottom:2px solid #888} figure{margin:1.5rem 0} img{max-width:100%;height:auto} figcaption,.note{color:#444;font-size:.92rem}
.note{margin:.3rem 0} pre{background:#f4f4f4;padding:.8rem;overflow-x:auto;font-size:.85rem} li{margin:.2rem 0}
"""


def figure_bytes(figure: Figure, dpi: int = 110) -> bytes:
    """A matplotlib figure as PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()


def page(title: str, lead: str, sections: Iterable[Section], folder: Path, *, config: Any, commands: Sequence[str]) -> str:
    """One HTML text with every picture of ``folder`` that a section names embedded; it needs no other file."""
    body = "".join(section_html(section, folder) for section in sections)
    facts = "".join(f"<tr><td>{html.escape(key)}</td><td>{html.escape(value)}</td></tr>" for key, value in machine().items())
    settings = html.escape(json.dumps(config, indent=2, default=str))
    return (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
        f"<title>{html.escape(title)}</title>"
        f"<style>{STYLE}</style><h1>{html.escape(title)}</h1><p>{html.escape(lead)}</p>{body}"
        f"<h2>How to run it again</h2><pre>{html.escape(chr(10).join(commands))}</pre>"
        f"<h2>Machine and versions</h2><table>{facts}</table>"
        f"<details><summary>Every setting</summary><pre>{settings}</pre></details></html>\n"
    )


def section_html(section: Section, folder: Path) -> str:
    """One part of the page; its pictures are read from the folder."""
    tables = "".join(table.html() for table in section.tables)
    pictures = "".join(_picture(folder / name, caption) for name, caption in section.pictures.items())
    verdicts = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in section.verdicts)
    conclusions = f"<h3>What this shows</h3><ul>{verdicts}</ul>" if verdicts else ""
    paragraphs = "".join(f"<p>{html.escape(text)}</p>" for text in section.text.split("\n\n"))
    return f"<h2>{html.escape(section.title)}</h2>{paragraphs}{tables}{conclusions}{pictures}"


def _picture(path: Path, caption: str) -> str:
    kind, text = path.suffix.lstrip("."), html.escape(caption, quote=True)
    data = base64.b64encode(path.read_bytes()).decode()
    return f"<figure><img src='data:image/{kind};base64,{data}' alt='{text}'><figcaption>{text}</figcaption></figure>"
