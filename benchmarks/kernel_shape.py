"""Where the attention kernel's shape matters, with every control: writes `benchmarks/KERNELS.md` and its figures.

    python -m benchmarks.kernel_shape [--quick] [PART ...]

In-context matching on five hidden relations, again with few features and with few sequences, and associative recall; five seeds each.
Finished units are kept in benchmarks/evidence, from which an interrupted run goes on; remove its files to measure again. With names of
parts only those are run and kept, so that processes can share the work, and a last call without names writes the page. With `--quick` tiny
sizes are run, printed, and nothing is written.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace

import xarray as xr

from benchmarks.pages import page, write
from experiments import kernel_claims, matching, recall
from experiments.matching_methods import CONTROLS, CORE, UNDIVIDED
from experiments.report import Section, figure_bytes

EVIDENCE = "benchmarks/evidence"
TASKS = ("phase", "multi", "ring3", "xor2", "iso")
FULL: dict[str, matching.Config | recall.Config] = {
    "matching": matching.Config(tasks=TASKS, methods=(*CORE, *CONTROLS), n_seeds=5),
    "undivided": matching.Config(tasks=("ring3",), methods=tuple(UNDIVIDED), n_seeds=5),
    "few features": matching.Config(tasks=("ring3", "multi"), methods=tuple(CORE), n_features=8, n_seeds=5),
    "few sequences": matching.Config(tasks=("ring3", "multi"), methods=tuple(CORE), n_sequences=32, n_seeds=5),
    "recall": recall.Config(n_seeds=5),
}
TINY = {"n_seeds": 1, "n_steps": 4, "n_align": 2, "n_test": 4}
FIGURES = {
    "kernels_matching.png": "accuracy of every kernel on in-context matching by five hidden relations",
    "kernels_attention.png": "attention of one test sequence, tokens ordered by label",
    "kernels_recall.png": "accuracy of every feature map on associative recall",
}
LEAD = (
    "Queries and keys of the first task are the tokens themselves, so the kernel is all that can learn; in the second everything is "
    "trained. Every claim has a bar, set before the run, and stands or falls by it."
)


QUESTIONS = {
    "undivided": "The same without a divisor: attention is a sum over keys, so training starts from logits 32 times as large, fits noise "
    "sooner and is stopped sooner. How much does each start mind? Compare with the rows of the same names above. "
    "This part was added when the others had been seen, and tried on other seeds first.",
    "few features": "The same with 8 features: does alignment help more where there is less?",
    "few sequences": "The same with 32 training sequences: does alignment help more where there is less?",
}


def results(configs: dict[str, matching.Config | recall.Config], folder: str) -> dict[str, xr.Dataset]:
    """All parts, each part's time on stderr; finished units are kept in `folder`."""
    found = {}
    for name, config in configs.items():
        started = time.process_time()
        run = recall.run if isinstance(config, recall.Config) else matching.run
        found[name] = run(config, results=folder)  # type: ignore[operator]
        print(f"{name}: {time.process_time() - started:.0f} CPU s", file=sys.stderr, flush=True)
    return found


def section(name: str, ds: xr.Dataset) -> Section:
    """The section of one part, its claims with it."""
    if name == "recall":
        return recall.section(ds)
    part = matching.section(ds)
    if name == "matching":
        return replace(part, title="In-context matching, every control")
    claims = kernel_claims.bars_table("Claims", kernel_claims.gains(ds))
    text = QUESTIONS[name]
    return replace(part, title=f"In-context matching, {name}", text=text, tables=(part.tables[0], claims))


def text(found: dict[str, xr.Dataset]) -> str:
    """The page as Markdown."""
    parts = [section(name, ds) for name, ds in found.items()]
    return page("Where the attention kernel's shape matters", LEAD, "python -m benchmarks.kernel_shape", FIGURES, parts)


def pictures(found: dict[str, xr.Dataset]) -> dict[str, bytes]:
    """The figures by file name."""
    matched = matching.figures(found["matching"])
    recalled = recall.figures(found["recall"])
    figures = (matched["matching_accuracy.png"], matched["matching_attention.png"], recalled["recall.png"])
    return {name: figure_bytes(figure) for name, figure in zip(FIGURES, figures)}


def main() -> int:
    """Run all; print (quick) or write the page and the figures. 2 for an unknown part."""
    quick, names = "--quick" in sys.argv[1:], [name for name in sys.argv[1:] if name != "--quick"]
    if set(names) - set(FULL):
        print(f"unknown part in {names}; known: {', '.join(FULL)}", file=sys.stderr)
        return 2
    chosen = {name: FULL[name] for name in names or FULL}
    if quick:
        tiny = {name: replace(config, **TINY, **({"n_warm": 2} if name == "recall" else {})) for name, config in chosen.items()}
        print(text(results(tiny, "")))
        return 0
    found = results(chosen, EVIDENCE)
    if names:
        return 0
    write("KERNELS.md", text(found), pictures(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
