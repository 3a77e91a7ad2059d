"""A pretrained sentence encoder with kernels in the place of softmax, every row on three seeds: writes `benchmarks/CONVERSION.md`.

    KERNELGAS_DATA=folder python -m benchmarks.conversion [ROW ...]

Finished rows are kept in benchmarks/evidence, from which an interrupted run goes on; remove its file to measure again. With names of rows
only those are run and kept, so that processes can share the work, and a last call without names writes the page. The encoder is
all-MiniLM-L6-v2 (`make teacher`); the folder holds stsb, sst2 and imdb.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from benchmarks.pages import page, write
from experiments.conversion import ROWS, Config, figures, run, section
from experiments.report import figure_bytes

EVIDENCE = "benchmarks/evidence"
FULL = Config(n_seeds=3)
FIGURES = {"conversion.png": "score of every converted encoder, and divergence from softmax by layer"}
LEAD = (
    "How much of a pretrained encoder is left when softmax is replaced in all six layers? Spearman's correlation on the test part of "
    "STS-B, and the error of every layer's attention on held-out sentences and on windows of 256 tokens."
)


def main() -> int:
    """Run all rows and write the page; only run the rows that are named, or 2 for an unknown one."""
    names = sys.argv[1:]
    if set(names) - set(ROWS):
        print(f"unknown row in {names}; known: {', '.join(ROWS)}", file=sys.stderr)
        return 2
    dataset = run(replace(FULL, rows=tuple(names)) if names else FULL, results=EVIDENCE)
    if names:
        return 0
    parts = [section(dataset)]
    pictures = {name: figure_bytes(figure) for name, figure in figures(dataset).items()}
    command = "python -m benchmarks.conversion"
    write("CONVERSION.md", page("A pretrained encoder converted", LEAD, command, FIGURES, parts), pictures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
