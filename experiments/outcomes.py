"""What ``kernelgas run`` and ``sweep`` print: the plan of a dry run, and what the Datasets of one or several settings say."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import xarray as xr

from experiments import report, sections, sweep
from experiments.report import Table
from experiments.units import key

SCORES = {  # header, factor and digits of the experiments' own tables
    "accuracy": ("accuracy [%]", 100.0, 1),
    "fresh_accuracy": ("fresh accuracy [%]", 100.0, 1),
    "score": ("score [%]", 100.0, 1),
    "spearman": ("Spearman [%]", 100.0, 1),
    "share": ("of the teacher [%]", 100.0, 1),
    "log_loss": ("log loss", 1.0, 3),
    "perplexity": ("perplexity", 1.0, 2),
    "bits_per_byte": ("bits a byte", 1.0, 3),
    "brier": ("Brier", 1.0, 3),
    "calibration_error": ("ECE", 1.0, 3),
}
MOST = 4  # tasks that have lines of their own in a summary

# ---- the plan ----------------------------------------------------------------------------------------------------------------------------


def plan(module: ModuleType, configs: dict[str, Any], results: str, workers: int) -> Table:
    """What a run would do: units there are and that are finished, processor time and memory of one, by all coordinates but the seed.

    The time is that of finished units where there are some, else an estimate from the sizes; on one core.
    """
    rows, total, peak, n_todo = [], 0.0, 0.0, 0
    for label, config in configs.items():
        run = sweep.planned(module, config, results)
        groups: dict[str, list[Any]] = {}
        for unit in run.planned:
            groups.setdefault(", ".join(str(value) for name, value in unit.items() if name != "seed"), []).append(unit)
        for group, units in groups.items():
            known = [run.seconds(unit) for unit in units if key(unit) in run.finished]
            seconds, memory = module.estimate(config, units[0])
            seconds, source = (float(np.median(known)), "measured") if known else (seconds, "estimated")
            total, peak, n_todo = total + seconds * (len(units) - len(known)), max(peak, memory), n_todo + len(units) - len(known)
            rows.append([f"{label} {group}".strip(), str(len(units)), str(len(known)), _duration(seconds), source, _size(memory)])
    shared = f", about {_duration(total / workers)} on {workers} cores" if workers > 1 else ""
    notes = [f"to do: {_duration(total)} of processor time{shared}; a unit needs {_size(peak)} of memory at most"]
    header = ["units", "all", "finished", "time of one", "", "memory"]
    warnings = [*_beyond(peak, workers), *_missing(module, configs)]
    return Table(f"Plan of {sweep.short_name(module)}", header, rows, [*notes, *warnings] if n_todo else ["to do: nothing"])


def _missing(module: ModuleType, configs: dict[str, Any]) -> list[str]:
    """A warning where a run would stop at once, such as for want of data."""
    try:
        for config in configs.values() if hasattr(module, "prepare") else ():
            module.prepare(config)
    except (ValueError, OSError) as error:
        return [f"WARNING: this cannot run here: {error}"]
    return []


def _duration(seconds: float) -> str:
    """A time in the unit in which it is easily read."""
    if seconds < 1:
        return "< 1 s"
    units = (("s", 1.0, 120.0), ("min", 60.0, 120.0), ("h", 3600.0, 48.0), ("days", 86400.0, 730.0), ("years", 365.25 * 86400, np.inf))
    name, size, _ = next(unit for unit in units if seconds < unit[1] * unit[2])
    return f"{seconds / size:,.{1 if name == 'h' else 0}f} {name}"


def _size(n_bytes: float) -> str:
    """An amount of memory in the unit in which it is easily read."""
    units = (("MiB", 2.0**20), ("GiB", 2.0**30), ("TiB", 2.0**40))
    name, size = next((unit for unit in units if n_bytes < 1000 * unit[1]), units[-1])
    return f"{n_bytes / size:,.{0 if name == 'MiB' else 1}f} {name}"


def _beyond(peak: float, workers: int) -> list[str]:
    """A warning where units side by side need more memory than this machine has."""
    if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", ()):
        return []
    here = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    side_by_side = f", {workers} side by side" if workers > 1 else ""
    return [f"WARNING: this machine has {_size(here)} of memory, less than units may need{side_by_side}"] if peak * workers > here else []


# ---- what came out -----------------------------------------------------------------------------------------------------------------------


def tell(name: str, datasets: dict[str, xr.Dataset], out: str = "results") -> bool:
    """Print what the Datasets say, and save them with their pictures in new folders under `out`, if it is not "".

    What cannot be told of one setting is named, and keeps no other from being told; False then.
    """
    failed = []
    for label, ds in datasets.items():
        if label:
            print(f"\n#### {label}")
        try:
            _tell_one(name, ds, out)
        except Exception as error:
            failed.append(label)
            where = f" of {label}" if label else ""
            said = f"{type(error).__name__}: {error}{sweep.raised_at(error)}"
            print(f"kernelgas: error: results{where} are kept, but could not be told: {said}", file=sys.stderr)
    if len(datasets) > 1:
        print(f"\n{summary(datasets)}")
    return not failed


def _tell_one(name: str, ds: xr.Dataset, out: str) -> None:
    """Saved first: what was measured is not lost to what it fails to say."""
    folder = report.save(name, ds, out) if out else None
    if ds.attrs.get("finished") != ds.attrs.get("planned"):
        print(f"{ds.attrs['finished']} of {ds.attrs['planned']} units are finished; the others are left out below.\n")
    print(sections.section(name, ds))
    if folder:
        sections.draw(name, ds, folder)
        print(f"\nwritten to {folder}")


def summary(datasets: dict[str, xr.Dataset]) -> Table:
    """Main scores of every setting and row, over seeds; averaged over tasks where there are many."""
    held = {name for ds in datasets.values() for name in ds.data_vars}
    scores = {name: how for name, how in SCORES.items() if name in held} or {str(name): (str(name), 1.0, 3) for name in _others(datasets)}
    lines = [(label, place, one) for label, ds in datasets.items() for place, one in _lines(ds, list(scores))]
    dims = list(dict.fromkeys(dim for _, place, _ in lines for dim in place))
    rows = [
        [label, *(place.get(dim, "") for dim in dims), *(_spread(one, name, scale, digits) for name, (_, scale, digits) in scores.items())]
        for label, place, one in lines
    ]
    header = ["setting", *dims, *(title for title, _, _ in scores.values())]
    averaged = any("task" in ds.dims and ds.sizes["task"] > MOST for ds in datasets.values())
    return Table("All settings", header, rows, ["mean ± standard deviation over seeds" + ", of means over tasks" * averaged])


def _others(datasets: dict[str, xr.Dataset]) -> list[Any]:
    """A few numbers of an experiment that has none of the known scores."""
    return [name for name, values in next(iter(datasets.values())).items() if "seed" in values.dims and values.ndim <= 3][:6]


def _lines(ds: xr.Dataset, scores: list[str]) -> Iterator[tuple[dict[str, str], xr.Dataset]]:
    """Names and Dataset of each row (and task) of which something was measured."""
    table = ds[[name for name in scores if name in ds]]
    if table.sizes.get("task", 0) > MOST:
        table = table.mean("task")
    dims = [str(dim) for dim in table.dims if dim != "seed"]
    for values in itertools.product(*(table[dim].values for dim in dims)):
        one = table.sel(dict(zip(dims, values)))
        if any(bool(one[name].notnull().any()) for name in one):
            yield dict(zip(dims, map(str, values))), one


def _spread(one: xr.Dataset, name: str, scale: float, digits: int) -> str:
    return report.spread(one[name], scale, digits) if name in one else "-"
