"""``kernelgas run`` and ``kernelgas sweep``: presets, options, the plan of a dry run, and where results go."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
import xarray as xr

from experiments import report, sections, sweep
from experiments.report import Table
from experiments.units import key
from particles.arrays import count

DEFAULT = "cpu"  # the preset without --preset


def launch(name: str, module: ModuleType, arguments: Sequence[str], parse: Any, *, sweeping: bool) -> int:
    """One command on one experiment; the exit code is 1 if a unit failed."""
    how, rest = options(module, sweeping=sweeping).parse_known_args(arguments)
    for option in ("workers", "retries"):
        count(getattr(how, option), option, least=0)
    preset = module.PRESETS[how.preset]
    configs = {label: parse(module.Config, [*rest, *extra], preset) for label, extra in combinations(how.over, preset).items()}
    if how.dry_run:
        print(plan(module, configs, how.results, max(how.workers, 1)))
        return 0
    rehearsed = next(iter(configs.values()))
    if how.preset == "paper" and hasattr(module, "rehearse") and not (rehearsed.data or os.environ.get("KERNELGAS_DATA")):
        print(f"stand-in data, no result is written (give --data for a real run): {module.rehearse(rehearsed)}")
        return 0
    with sweep.process_group():
        chosen = {name: getattr(how, name) for name in ("results", "workers", "scheduler", "retries")}
        try:
            datasets = sweep.over(module, configs, progress=True, **chosen)
        except sweep.NothingMeasured as error:
            print(f"kernelgas: error: {error}", file=sys.stderr)
            return 1
        if sweep.first_process():
            tell(name, datasets)
    return int(any(json.loads(ds.attrs["failed"]) for ds in datasets.values()))


def options(module: ModuleType, *, sweeping: bool) -> argparse.ArgumentParser:
    """The options of a run that are no settings of the experiment."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, usage=argparse.SUPPRESS, formatter_class=_Wide)
    parser.add_argument(
        "--preset", choices=list(module.PRESETS), default=DEFAULT, help="where the options below start (default: %(default)s)"
    )
    parser.add_argument(
        "--results", default="results/units", help="folder of finished units; a run goes on from there (default: %(default)s)"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the units with an estimate of time and memory, and stop")
    parser.add_argument("--retries", type=int, default=2, help="how often a unit that failed is tried again (default: %(default)s)")
    if sweeping:
        cores = os.cpu_count() or 1
        parser.add_argument("--workers", type=int, default=cores, help="processes of a local Dask cluster (default: %(default)s)")
        parser.add_argument("--scheduler", default="", help="address of a running Dask scheduler instead, as tcp://host:8786")
        over = "run every value of an option, as --over lam=0,0.001; several --over: all combinations"
        parser.add_argument("--over", action="append", default=[], metavar="OPTION=A,B", help=over)
    else:
        parser.set_defaults(workers=0, scheduler="", over=[])
    return parser


class _Wide(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=110)


def combinations(over: Sequence[str], preset: Any) -> dict[str, list[str]]:
    """The options of each combination under its label; the label of a single run is ""."""
    axes = []
    for text in over:
        option, _, values = text.partition("=")
        if not option or not values or "" in values.split(","):
            raise ValueError(f"--over must look like OPTION=A,B, got {text!r}")
        flag = isinstance(getattr(preset, option.replace("-", "_"), None), bool)
        axes.append([(f"{option}={value}", _words(option.replace("_", "-"), value, flag)) for value in values.split(",")])
    return {" ".join(label for label, _ in parts): [word for _, words in parts for word in words] for parts in itertools.product(*axes)}


def _words(option: str, value: str, flag: bool) -> list[str]:
    """An option with its value as typed on the command line; the value of a flag is true or false."""
    if not flag:
        return [f"--{option}", *value.split()]
    if value.lower() not in ("true", "false"):
        raise ValueError(f"--over {option} must be true or false, got {value!r}")
    return [f"--{option}" if value.lower() == "true" else f"--no-{option}"]


# ---- the plan ----------------------------------------------------------------------------------------------------------------------------


def plan(module: ModuleType, configs: dict[str, Any], results: str, workers: int) -> Table:
    """What a run would do: units there are and that are finished, seconds and memory of one, by all coordinates but the seed.

    Seconds are those of finished units where there are some, else an estimate from the sizes; of processor time on one core.
    """
    rows, total, peak = [], 0.0, 0.0
    for label, config in configs.items():
        run = sweep.planned(module, config, results)
        groups: dict[str, list[Any]] = {}
        for unit in run.planned:
            groups.setdefault(", ".join(str(value) for name, value in unit.items() if name != "seed"), []).append(unit)
        for group, units in groups.items():
            known = [run.seconds(unit) for unit in units if key(unit) in run.finished]
            seconds, memory = module.estimate(config, units[0])
            seconds, source = (float(np.median(known)), "measured") if known else (seconds, "estimated")
            total, peak = total + seconds * (len(units) - len(known)), max(peak, memory)
            rows.append([f"{label} {group}".strip(), str(len(units)), str(len(known)), f"{seconds:.0f}", source, f"{memory / 2**20:.0f}"])
    shared = f", about {_duration(total / workers)} on {workers} cores" if workers > 1 else ""
    notes = [f"to do: {_duration(total)} of processor time{shared}; {peak / 2**20:.0f} MiB each"]
    return Table(f"Plan of {sweep.short_name(module)}", ["units", "all", "finished", "seconds", "which are", "MiB"], rows, notes)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


# ---- what came out -----------------------------------------------------------------------------------------------------------------------


def tell(name: str, datasets: dict[str, xr.Dataset]) -> None:
    """Print what the Datasets say, and save them with their pictures in new folders."""
    for label, ds in datasets.items():
        if label:
            print(f"\n#### {label}")
        if ds.attrs.get("finished") != ds.attrs.get("planned"):
            print(f"{ds.attrs['finished']} of {ds.attrs['planned']} units are finished; the others are left out below.\n")
        print(sections.section(name, ds))
        folder = report.save(name, ds)
        sections.draw(name, ds, folder)
        print(f"\nwritten to {folder}")
    if len(datasets) > 1:
        print(f"\n{summary(datasets)}")


def summary(datasets: dict[str, xr.Dataset]) -> Table:
    """Means over everything but the first score's settings, one line a setting."""
    names = [name for name, values in next(iter(datasets.values())).items() if "seed" in values.dims and values.ndim <= 3][:6]
    rows = [
        [label, *(report.spread(ds[name].mean([dim for dim in ds[name].dims if dim != "seed"])) for name in names)]
        for label, ds in datasets.items()
    ]
    return Table(
        "All settings", ["setting", *map(str, names)], rows, ["mean ± standard deviation over seeds, averaged over the other dimensions"]
    )
