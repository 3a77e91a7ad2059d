"""Run the benchmarks and write ``benchmarks/RESULTS.md``: ``python -m benchmarks [--quick] [NAME ...]``.

With names, or with ``--quick``, the tables are printed only: the file always holds one complete full run on one machine.
"""

from __future__ import annotations

import datetime
import importlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.report import machine

NAMES = {
    "particles": "Particles: pair forces, fast sums, steps",
    "alignment": "Alignment step",
    "attention": "Attention",
    "theory": "Theory: the mean-field solver",
    "learning": "Learning: hidden structure and in-context matching",
}
ON_REQUEST = {"gpu": "GPU"}  # run only when named: most machines have none
RESULTS = Path(__file__).with_name("RESULTS.md")


def main(arguments: Sequence[str]) -> int:
    """Exit code 0, 1 if a bar is missed, 2 for an unknown name."""
    quick, names = "--quick" in arguments, [item for item in arguments if item != "--quick"]
    known = NAMES | ON_REQUEST
    unknown = sorted(set(names) - set(known))
    if unknown:
        print(f"unknown benchmark {unknown[0]!r}; known: {', '.join(known)}", file=sys.stderr)
        return 2
    texts, missed = [], False
    for name in names or NAMES:
        text, rows = section(name, quick)
        print(f"{text}\n", flush=True)
        texts.append(text)
        missed |= any(row.get("passed") is False for row in rows)
    if not names and not quick:
        RESULTS.write_text("\n\n".join([heading(), *texts]) + "\n", encoding="utf-8")
        print(f"written to {RESULTS}")
    return int(missed)


def section(name: str, quick: bool) -> tuple[str, list[dict[str, Any]]]:
    """One benchmark as Markdown, and its rows."""
    started = time.perf_counter()
    module = importlib.import_module(f"benchmarks.{name}")
    rows = module.run(quick)
    table = module.markdown(rows) if hasattr(module, "markdown") else markdown(rows)
    notes = (module.__doc__ or "").strip()
    return f"## {(NAMES | ON_REQUEST)[name]}\n\n{notes}\n\n{table}\n\nTook {time.perf_counter() - started:.0f} s.", rows


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Rows with the same keys as a Markdown table."""
    head = list(rows[0])
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join(lines + [f"| {' | '.join(_cell(row[key]) for key in head)} |" for row in rows])


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return "" if value is None else str(value)


def heading() -> str:
    """Title, date, machine and versions."""
    facts = "\n".join(f"| {key} | {value} |" for key, value in machine().items())
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    lead = f"Measured by `make bench` on {today}; times depend on the machine, rows with a bar do not."
    return f"# Benchmarks\n\n{lead}\n\n| | |\n|---|---|\n{facts}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
