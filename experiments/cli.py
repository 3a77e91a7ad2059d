"""The command ``kernelgas``: ``demo``, ``list``, ``run``, ``sweep``, ``report``. Options are the fields of each frozen ``Config``."""

from __future__ import annotations

import contextlib
import importlib
import io
import itertools
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

DEMO = "the four experiments in one go; writes results/demo/<time>/index.html"
REPORT = "what the papers claim beside what the finished units say, on one page"
TORCHRUN = "several processes train each unit together: torchrun --nproc-per-node 2 -m experiments run NAME [options]"
EXPERIMENTS = {
    "gas": "a log gas in a quadratic trap against its exact laws",
    "kernel_learning": "learn a kernel from labels whose relevant directions are hidden",
    "matching": "the learned kernel inside attention, on in-context matching",
    "recall": "multi-query associative recall: what sign, normaliser and learned particles of a feature map are worth",
    "classify": "the learned kernel inside a linear transformer, on digits or a labelled folder",
    "sentence_classification": "the Coulomb paper's eighteen rows on SST-2, QQP and Rotten Tomatoes, and ablations of Phase A",
    "long_range": "Flexformer's Long Range Arena: ListOps, text, retrieval, images, Pathfinder",
    "language_modelling": "perplexity of causal models of one width and depth on the same tokens",
    "vision": "SOFT's comparison, landmarks, sampling and norms in a pyramid on small images",
    "efficiency": "time and memory of every attention against length",
    "transfer": "a fine-tuned encoder converted: recovery by task, kernels moved from task to task",
    "conversion": "a pretrained sentence encoder with kernels in the place of softmax",
    "theory_checks": "statements of theory against small computations: mean field, large deviations, walls, Newton's inverse",
    "film": "one fit of a kernel followed step by step; draws learning.gif",
    "coulomb_synthetic": "the Coulomb paper's synthetic benchmark: every kernel method under label noise, budgets and run time",
}
WITHOUT_PAPER = ("gas", "kernel_learning", "matching", "classify", "conversion", "film")  # experiments without that preset
HELP = ("-h", "--help", "help")
USAGE = f"""usage: kernelgas COMMAND [options]        (also: python -m experiments COMMAND [options])

commands
  demo            {DEMO}
  list            the experiments, with their presets
  list NAME       one experiment: its presets, and the names of its tasks, rows and parts
  run NAME        one experiment; writes results/NAME/<time>/
  sweep NAME      the same with its units on a Dask cluster, of this machine or any other; several values of an option at once
  report          {REPORT}
  COMMAND --help  the options of a command

  --version       the version of kernelgas
  --traceback     anywhere: show where an error came from
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, or 2 after a line on stderr (unknown name, bad option, bad data)."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    rest = [item for item in given if item != "--traceback"]
    try:
        return _dispatch(rest)
    except KeyboardInterrupt as stop:
        print("\nkernelgas: " + "; ".join(["interrupted", *map(str, stop.args)]), file=sys.stderr)
        return 130
    except (ValueError, OSError) as error:
        if rest != given:
            raise
        print(f"kernelgas: error: {error}", file=sys.stderr)
        return 2


def _dispatch(arguments: list[str]) -> int:
    command, rest = (arguments[0], arguments[1:]) if arguments else ("--help", [])
    if command in HELP or (command == "list" and rest and rest[0] in HELP):
        print(USAGE, end="")
    elif (command == "--version" and rest) or (command == "list" and len(rest) > 1):
        raise ValueError(f"{command} takes nothing else, got {rest[-1]!r}")
    elif command == "--version":
        print(f"kernelgas {version()}")
    elif command == "list":
        print(described(rest[0]) if rest else listed())
    elif command == "demo":
        _demo(rest)
    elif command == "report":
        _report(rest)
    elif command in ("run", "sweep"):
        return _run(command, rest)
    else:
        raise ValueError(f"unknown command {command!r}; known: demo, list, run NAME, sweep NAME, report, --help, --version")
    return 0


def listed() -> str:
    """The experiments, one a line, with what they are and their presets."""
    width = max(map(len, EXPERIMENTS))
    lines = (f"{name:{width}}  {summary} [{presets(name)}]" for name, summary in EXPERIMENTS.items())
    return "\n".join([*lines, "\nin brackets: the presets; kernelgas list NAME names the tasks, rows and parts of an experiment"])


def presets(name: str) -> str:
    """The presets of an experiment, without importing it."""
    return "smoke, cpu" if name in WITHOUT_PAPER else "smoke, cpu, paper"


def described(name: str) -> str:
    """One experiment: what it is, its presets, and what its units or options may be named."""
    module = experiment(name)
    lines = [f"{label}: {'; '.join(values)}" for label, values in _names(module).items() if values]
    return "\n".join([f"{name}  {EXPERIMENTS[name]}", f"preset: {', '.join(module.PRESETS)}", *lines])


def _names(module: ModuleType) -> dict[str, list[str]]:
    """Names that units and options of the presets and of every part have, such as {"task": ["sst2", "qqp"]}."""
    found: dict[str, dict[str, None]] = {}
    for config in _presets_and_parts(module):
        units = [*module.units(config)] if hasattr(module, "units") else []
        options = [{name: value} for name, values in vars(config).items() if isinstance(values, tuple) for value in values]
        for name, value in (pair for named in (*units, *options) for pair in named.items()):
            if isinstance(value, str):
                found.setdefault(name.removesuffix("s"), {})[value] = None
    parts = {"part": list(module.PARTS)} if hasattr(module, "PARTS") else {}  # the presets may not have them all
    return {name: list(values) for name, values in found.items()} | parts


def _presets_and_parts(module: ModuleType) -> list[Any]:
    """The preset of a command without --preset, the same with each part where a Config has one, and the other presets."""
    from dataclasses import replace

    default = module.PRESETS["cpu"]
    found = [default]
    for part in module.PARTS if hasattr(default, "part") else ():
        with contextlib.suppress(ValueError):  # a part that needs other options too
            found.append(replace(default, part=part))
    return [*found, *module.PRESETS.values()]


def version() -> str:
    """The installed version, or "not installed" for a plain checkout."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("kernelgas")
    except PackageNotFoundError:
        return "not installed (a plain checkout)"


def experiment(name: str) -> ModuleType:
    """The module of an experiment; ValueError lists the known names."""
    if name not in EXPERIMENTS:
        raise ValueError(f"unknown experiment {name!r}; known: {', '.join(EXPERIMENTS)}")
    return importlib.import_module(f"experiments.{name}")


def parse(config: type, arguments: Sequence[str], program: str, description: str, default: Any = None) -> Any:
    """A frozen Config from command-line options; ValueError for one that is unknown or wrong, exit with 0 after help."""
    import tyro

    start = {} if default is None else {"default": default}
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(config, args=list(arguments), prog=program, description=description, **start)
    except SystemExit as stop:
        if stop.code:
            raise ValueError(_unboxed(said.getvalue())) from None
        raise


def _unboxed(box: str) -> str:
    """What tyro's box says is wrong, as one line: its first part that is more than a title, between rules of either character set."""

    def rule(line: str) -> bool:
        return line.startswith(("╭", "╰")) or not line.strip(" │─-")

    parts = (lines for is_rule, lines in itertools.groupby(box.splitlines(), rule) if not is_rule)
    words = next((text for lines in parts if ":" in (text := " ".join(line.strip(" │") for line in lines))), box)
    return words.removeprefix("Error parsing Config: ").removeprefix("Error parsing ").replace("Unrecognized", "unknown")


def _demo(arguments: Sequence[str]) -> None:
    demo = importlib.import_module("experiments.demo")
    demo.main(parse(demo.Config, arguments, "kernelgas demo", DEMO))


def _report(arguments: Sequence[str]) -> None:
    evidence = importlib.import_module("experiments.evidence")
    evidence.main(parse(evidence.Config, arguments, "kernelgas report", REPORT))


def _run(command: str, arguments: Sequence[str]) -> int:
    if arguments and arguments[0] in HELP:
        print(f"usage: kernelgas {command} NAME [options]        ({command} NAME --help shows them)\n\n{listed()}")
        return 0
    if not arguments:
        raise ValueError(f"{command} needs the name of an experiment; known: {', '.join(EXPERIMENTS)}")
    name, rest = arguments[0], arguments[1:]
    module, sweeping = experiment(name), command == "sweep"
    from experiments import launch

    if {"-h", "--help"} & set(rest) and hasattr(module, "units"):
        print(launch.options(module, sweeping=sweeping).format_help() + f"\n{TORCHRUN}\n" * (not sweeping))

    def settings(config: type, words: Sequence[str], default: Any) -> Any:
        return parse(config, words, f"kernelgas {command} {name}", EXPERIMENTS[name], default)

    return launch.launch(name, module, rest, settings, sweeping=sweeping)
