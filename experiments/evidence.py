"""``kernelgas report``: what the papers claim beside what the finished units say, as one HTML page and in Markdown.

Everything comes from results that lie in folders (see `experiments.units`); nothing is computed anew and nothing is filled in. Results of
a smoke preset are listed, but no claim is judged by them.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import xarray as xr
from tqdm.auto import tqdm

from experiments import aims, sections, units
from experiments.claims import CLAIMS, Outcome, Results, judge
from experiments.report import Section, load

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PRESETS = ("cpu", "paper", "smoke")  # in the order in which settings are compared with them


@dataclass(frozen=True)
class Config:
    """Where results are and where the page goes."""

    results: tuple[str, ...] = ("results/units",)  # folders of finished units
    out: str = "results/report"  # folder of index.html, report.md and figures/
    title: str = "What the papers claim and what was measured"  # of the page

    def __post_init__(self) -> None:
        if not self.results:
            raise ValueError(f"results must name a folder at least, got {self.results!r}")
        for folder in self.results:
            if not Path(folder).is_dir():
                what = "is not a folder" if Path(folder).exists() else "does not exist"
                raise ValueError(f"results must be folders, got {folder!r}, which {what}")
        if not self.out:
            raise ValueError(f"out must be a folder, got {self.out!r}")


@dataclass(frozen=True)
class Part:
    """One experiment with one setting: its preset and what is different there, how many units ran, its section and figures."""

    name: str
    label: str
    reduced: str
    settings: Mapping[str, Any]
    dataset: xr.Dataset
    coverage: Coverage
    section: Section
    figures: Mapping[str, Figure]

    @property
    def facts(self) -> dict[str, dict[str, str]]:
        """{fact: {value of the first dimension: text}}, such as where data come from."""
        return json.loads(self.dataset.attrs.get("facts", "{}"))

    @property
    def made(self) -> list[dict[str, str]]:
        """Dates, machines and versions of the units."""
        return json.loads(self.dataset.attrs.get("made", "[]"))


@dataclass(frozen=True)
class Coverage:
    """How many planned units finished, in all and by the value of the first coordinate; which are missing; how many are not planned.

    searched: of a search for learning rates, which no plan of a table counts. seconds: of processor time, all units together.
    """

    planned: int
    finished: int
    by_first: Mapping[str, tuple[int, int]]
    missing: Sequence[str]
    others: int
    searched: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Evidence:
    """All that the page says."""

    title: str
    outcomes: Mapping[str, Sequence[Outcome]]
    parts: Sequence[Part]
    aims: Section | None = None  # of `aims.section`
    pictures: Mapping[str, Figure] = field(default_factory=dict)  # of it


def main(config: Config) -> None:
    """Write index.html, report.md and figures/ into the folder `out`, and say where they are and how many claims got which verdict."""
    from experiments import evidence_page

    found = gather(config.title, [saved(folder) for folder in config.results], progress=True)
    folder = evidence_page.write(found, Path(config.out))
    print(evidence_page.summary(found))
    if not found.parts:
        print(f"\nno finished units in {', '.join(config.results)}", file=sys.stderr)
    elif smoke := [part.name for part in found.parts if part.label.startswith("smoke")]:
        print(f"\nno claim is judged by results of the preset smoke, here of {', '.join(dict.fromkeys(smoke))}", file=sys.stderr)
    print(f"\nwritten to {folder / 'index.html'} and {folder / 'report.md'}")


def saved(folder: str | Path) -> dict[str, list[tuple[dict[str, Any], xr.Dataset]]]:
    """What a folder holds: units (`units.saved`) and whole runs of experiments without units, {experiment: [(settings, Dataset)]}."""
    found = units.saved(folder)
    for path in sorted(Path(folder).glob("*.zarr")):
        dataset = load(path)
        found.setdefault(path.name.rpartition("-")[0], []).append((json.loads(dataset.attrs["config"]), dataset))
    return found


def gather(
    title: str, saved: Sequence[Mapping[str, Sequence[tuple[Mapping[str, Any], xr.Dataset]]]], *, progress: bool = False
) -> Evidence:
    """Claims judged and experiments told, from what `saved` returned for each folder; with a bar on stderr if `progress`.

    ValueError if two folders hold the same experiment with the same settings.
    """
    held = [(name, settings, ds) for results in saved for name in sorted(results) for settings, ds in results[name]]
    parts = [part(*one) for one in tqdm(held, desc="report", disable=not progress)]
    twice = [name for name, n in Counter(units.digest(one.name, one.settings) for one in parts).items() if n > 1]
    if twice:
        raise ValueError(f"results must hold each experiment with one setting once, got the hashes {twice} twice")
    by_name: dict[str, list[Results]] = {}
    for one in parts:
        if not one.label.startswith("smoke"):
            by_name.setdefault(one.name, []).append(Results(one.label, one.settings, one.dataset))
    outcomes = {paper: judge(claims, by_name) for paper, claims in CLAIMS.items()}
    return Evidence(title, outcomes, parts, aims.section(parts), aims.figures(parts))


def part(name: str, settings: Mapping[str, Any], dataset: xr.Dataset) -> Part:
    """One experiment's results with one setting."""
    module = importlib.import_module(f"experiments.{name}")
    preset, different = nearest(module, settings)
    label = ", ".join([preset, *(f"{field}={_short(value)}" for field, value in different.items())])
    reduced = getattr(module, "REDUCED", {}).get(preset, "")
    covered = coverage(module, preset, different, dataset)
    section, drawn = _told(name, dataset.assign_attrs(_counted(covered)))
    files = {file: f"{name}-{units.digest(name, settings)[:6]}-{file}" for file in drawn}  # each setting has its own
    section = dataclasses.replace(section, pictures={files[file]: section.pictures.get(file, section.title) for file in drawn})
    figures = {files[file]: figure for file, figure in drawn.items()}
    return Part(name, label, reduced, settings, dataset, covered, section, figures)


def nearest(module: ModuleType, settings: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The preset with the fewest settings that differ, and those; the first in PRESETS of equals."""
    found = {}
    for preset in PRESETS:
        if preset in module.PRESETS:
            known = json.loads(json.dumps(dataclasses.asdict(module.PRESETS[preset])))
            found[preset] = {field: value for field, value in settings.items() if known.get(field) != value}
    best = min(found, key=lambda preset: len(found[preset]))
    return best, found[best]


def coverage(module: ModuleType, preset: str, different: Mapping[str, Any], dataset: xr.Dataset) -> Coverage:
    """The units that the preset plans against those with a number in the Dataset; a whole run is one unit."""
    seconds = float(dataset.attrs.get("cpu_seconds", 0.0))
    if not hasattr(module, "units"):
        return Coverage(1, 1, {}, (), 0, seconds=seconds)
    planned = list(module.units(_planned_config(module.PRESETS[preset], different)))
    dims = list(planned[0]) if planned else []
    done = finished(dataset, dims)
    keys = {units.key(unit) for unit in planned}
    missing = [unit for unit in planned if units.key(unit) not in done]
    by_first: dict[str, tuple[int, int]] = {}
    for unit in planned:
        ran, n = by_first.get(str(unit[dims[0]]), (0, 0))
        by_first[str(unit[dims[0]])] = (ran + (units.key(unit) in done), n + 1)
    named = [", ".join(str(value) for value in unit.values()) for unit in missing]
    others = [json.loads(text) for text in done - keys]
    searched = sum(", lr " in str(unit.get("row", "")) for unit in others)
    return Coverage(len(planned), len(planned) - len(missing), by_first, named, len(others) - searched, searched, seconds)


def _counted(c: Coverage) -> dict[str, int]:
    """The counts that a section tells: those of the preset's plan, or of the search for learning rates where only that ran."""
    alone = c.searched and not c.finished
    return {"finished": c.searched if alone else c.finished, "planned": c.searched if alone else c.planned}


def finished(dataset: xr.Dataset, dims: Sequence[str]) -> set[str]:
    """The keys of the units that have some number."""
    dataset = dataset.expand_dims([dim for dim in dims if dim in dataset.coords and dim not in dataset.dims])  # of a single unit
    if not set(dims) <= set(dataset.dims):
        return set()
    ran = None
    for values in dataset.data_vars.values():
        known = values.notnull().any([dim for dim in values.dims if dim not in dims])
        ran = known if ran is None else ran | known
    if ran is None:
        return set()
    places = zip(*ran.transpose(*dims).values.nonzero(), strict=True)
    coords = [dataset[dim].values.tolist() for dim in dims]
    return {units.key({dim: coord[k] for dim, coord, k in zip(dims, coords, place, strict=True)}) for place in places}


def _planned_config(preset: Any, different: Mapping[str, Any]) -> Any:
    """The preset with these settings; lists become tuples where the preset has one."""
    named = {field.name for field in dataclasses.fields(preset)}
    changes = {field: tuple(value) if isinstance(value, list) else value for field, value in different.items() if field in named}
    return dataclasses.replace(preset, **changes)


def _told(name: str, dataset: xr.Dataset) -> tuple[Section, Mapping[str, Figure]]:
    """The experiment's own section and figures; where half-finished results do not allow them, the section says so and why."""
    try:
        section = sections.section(name, dataset)
    except Exception as error:
        return Section(name, f"Its tables could not be made from these results: {type(error).__name__}: {error}"), {}
    try:
        return section, sections.figures(name, dataset)
    except Exception as error:
        text = f"{section.text}\n\nIts figures could not be drawn from these results: {type(error).__name__}: {error}"
        return dataclasses.replace(section, text=text), {}


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else text[:37] + "..."
