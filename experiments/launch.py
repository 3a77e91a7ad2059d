"""``kernelgas run`` and ``kernelgas sweep``: presets, options, the plan of a dry run, and where results go; the rest is `outcomes`."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn

from experiments import outcomes, sweep
from particles.arrays import count

DEFAULT = "cpu"  # the preset without --preset


def launch(name: str, module: ModuleType, arguments: Sequence[str], parse: Any, *, sweeping: bool) -> int:
    """One command on one experiment; the exit code is 1 if a unit failed, or what a setting's results say could not be told."""
    how, rest = options(module, sweeping=sweeping).parse_known_args(arguments)
    for option in ("workers", "retries"):
        count(getattr(how, option), option, least=0)
    if how.preset not in module.PRESETS:
        raise ValueError(f"--preset of {name} must be one of {', '.join(module.PRESETS)}, got {how.preset!r}")
    preset = module.PRESETS[how.preset]
    _once(how.over, rest)
    configs = {label: parse(module.Config, [*rest, *extra], preset) for label, extra in combinations(how.over, preset).items()}
    if how.dry_run:
        print(outcomes.plan(module, configs, how.results, max(how.workers, 1)))
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
        told = not sweep.first_process() or outcomes.tell(name, datasets, how.out)
    return int(not told or any(json.loads(ds.attrs["failed"]) for ds in datasets.values()))


def options(module: ModuleType, *, sweeping: bool) -> argparse.ArgumentParser:
    """The options of a run that are no settings of the experiment."""
    parser = _Parser(add_help=False, allow_abbrev=False, usage=argparse.SUPPRESS, formatter_class=_Wide)
    parser.add_argument(
        "--preset", default=DEFAULT, help=f"where the options below start: {', '.join(module.PRESETS)} (default: %(default)s)"
    )
    parser.add_argument(
        "--results", default="results/units", help="folder of finished units; a run goes on from there (default: %(default)s)"
    )
    parser.add_argument(
        "--out", default="results", help='folder for OUT/NAME/<time>/, the numbers and pictures; "" for none (default: %(default)s)'
    )
    parser.add_argument("--dry-run", action="store_true", help="print the units with an estimate of time and memory, and stop")
    parser.add_argument("--retries", type=int, default=2, help="how often a unit that failed is tried again (default: %(default)s)")
    if sweeping:
        cores = os.cpu_count() or 1
        workers = "processes of a local Dask cluster; 0: one unit after another in this process (default: %(default)s)"
        parser.add_argument("--workers", type=int, default=cores, help=workers)
        parser.add_argument("--scheduler", default="", help="address of a running Dask scheduler instead, as tcp://host:8786")
        over = "run every value of an option, as --over lam=0,0.001; several --over: all combinations"
        parser.add_argument("--over", action="append", default=[], metavar="OPTION=A,B", help=over)
    else:
        parser.set_defaults(workers=0, scheduler="", over=[])
    return parser


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """A wrong option is told in one line, as all errors are."""
        raise ValueError(message)


class _Wide(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=110)


def _once(over: Sequence[str], rest: Sequence[str]) -> None:
    """ValueError for an option that has values in two places."""
    names = [text.partition("=")[0].replace("_", "-") for text in over]
    given = {word.partition("=")[0].removeprefix("--").replace("_", "-") for word in rest if word.startswith("--")}
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"--over {name} must be given once, with all values: --over {name}=A,B,C, got {names.count(name)} of them")
        if name in given:
            raise ValueError(f"--{name} must be given either itself or as --over {name}, got both")


def combinations(over: Sequence[str], preset: Any) -> dict[str, list[str]]:
    """The options of each combination under its label; the label of a single run is ""."""
    axes = []
    for text in over:
        option, _, values = text.partition("=")
        if not option or not values or "" in values.split(","):
            raise ValueError(f"--over must look like OPTION=A,B, got {text!r}")
        if not hasattr(preset, option.replace("-", "_")):
            raise ValueError(f"--over {option}: the experiment has no option --{option.replace('_', '-')}; --help lists them")
        flag = isinstance(getattr(preset, option.replace("-", "_")), bool)
        axes.append([(f"{option}={value}", _words(option.replace("_", "-"), value, flag)) for value in values.split(",")])
    return {" ".join(label for label, _ in parts): [word for _, words in parts for word in words] for parts in itertools.product(*axes)}


def _words(option: str, value: str, flag: bool) -> list[str]:
    """An option with its value as typed on the command line; the value of a flag is true or false."""
    if not flag:
        return [f"--{option}", *value.split()]
    if value.lower() not in ("true", "false"):
        raise ValueError(f"--over {option} must be true or false, got {value!r}")
    return [f"--{option}" if value.lower() == "true" else f"--no-{option}"]
