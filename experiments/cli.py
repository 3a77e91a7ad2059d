"""The command ``kernelgas``: ``demo``, ``list``, ``run``, ``sweep``, ``report``. Options are the fields of each frozen ``Config``."""

from __future__ import annotations

import importlib
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
    "language_modelling": "perplexity of causal models at equal parameters and equal tokens",
    "vision": "SOFT's comparison, landmarks, sampling and norms in a pyramid on small images",
    "efficiency": "time and memory of every attention against length",
    "transfer": "a fine-tuned encoder converted: recovery by task, kernels moved from task to task",
    "conversion": "a pretrained sentence encoder with kernels in the place of softmax",
    "theory_checks": "statements of theory against small computations: mean field, large deviations, walls, Newton's inverse",
    "film": "one fit of a kernel followed step by step; draws learning.gif",
    "coulomb_synthetic": "the Coulomb paper's synthetic benchmark: every kernel method under label noise, budgets and run time",
}
HELP = ("-h", "--help", "help")
USAGE = f"""usage: kernelgas COMMAND [options]        (also: python -m experiments COMMAND [options])

commands
  demo            {DEMO}
  list            the experiments
  run NAME        one experiment; writes results/NAME/<time>/
  sweep NAME      the same with its units on a Dask cluster, of this machine or any other; several values of an option at once
  report          {REPORT}
  COMMAND --help  the options of a command

  --version       the version of kernelgas
  --traceback     anywhere: show where an error came from
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, or 2 after a message on stderr (unknown name, bad option, bad data)."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    rest = [item for item in given if item != "--traceback"]
    try:
        return _dispatch(rest)
    except KeyboardInterrupt:
        print("\nkernelgas: interrupted; finished units are kept, the same command goes on from them", file=sys.stderr)
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
    elif command in ("--version", "list") and rest:
        raise ValueError(f"{command} takes nothing else, got {rest[0]!r}")
    elif command == "--version":
        print(f"kernelgas {version()}")
    elif command == "list":
        print(listed())
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
    """The experiments, one a line, with what they are."""
    width = max(map(len, EXPERIMENTS))
    return "\n".join(f"{name:{width}}  {summary}" for name, summary in EXPERIMENTS.items())


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
    """A frozen Config from command-line options; tyro prints help and exits with 2 on an unknown option."""
    import tyro

    start = {} if default is None else {"default": default}
    return tyro.cli(config, args=list(arguments), prog=program, description=description, **start)


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
