"""The Coulomb paper's synthetic benchmark in full: writes `benchmarks/SYNTHETIC.md` and its two figures.

    python -m benchmarks.synthetic [--quick] [PART ...]

Finished units are kept in benchmarks/evidence, from which an interrupted run goes on; remove its files to measure again. With names of
parts only those are run and kept, so that processes can share the work, and a last call without names writes the page. With
`--quick` tiny sizes are run, printed, and nothing is written.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import replace

import xarray as xr

from benchmarks.pages import page, write
from experiments import plots
from experiments.coulomb_claims import claims
from experiments.coulomb_synthetic import READINGS, Config, run
from experiments.coulomb_tables import METHODS, section
from experiments.report import figure_bytes

EVIDENCE = "benchmarks/evidence"
FULL = {
    "noise": Config(sigmas=(1e-5, 1e-3, 0.1, 1.0, 10.0, 1e3, 1e5)),
    "more dimensions": Config(dim=10, sigmas=(1e-3, 1.0, 10.0)),
    "readings": Config(methods=("rff", "paper", *READINGS, "particles"), sigmas=(1e-3, 1.0)),
    "lambda": Config(part="lambda", sigmas=(1e-3, 1.0, 10.0, 100.0)),
    "budget": Config(part="budget", sigmas=(1e-3, 1.0)),
    "tasks": Config(part="tasks", n=1000, dim=20, gamma=0.125, n_fresh=2000),
    "runtime": Config(part="runtime"),
}
TINY = {"n_seeds": 2, "n_steps": 10, "n_particles": 20, "n_fresh": 200, "sizes": (100, 150), "sigmas": (0.1, 1.0), "tasks": ("ring3",)}
FIGURES = {  # file -> what it shows
    "synthetic_accuracy.png": "accuracy of every method against the noise, and what the repulsion brings at the paper's settings",
    "synthetic_cost.png": "accuracy against the number of features, and seconds of a fit against the number of rows",
}
LEAD = (
    "Every method on the labels of appendix F.1 of the Coulomb paper (arXiv 2607.23869), then on tasks whose relevant directions are "
    "hidden. The paper gives its results as figures without numbers, and does not state the dimension of the data; it is 5 here unless "
    "a heading says otherwise."
)


def results(configs: Mapping[str, Config], folder: str) -> dict[str, xr.Dataset]:
    """All parts, each part's time on stderr; finished units are kept in `folder`."""
    found = {}
    for name, config in configs.items():
        started = time.process_time()
        found[name] = run(config, results=folder)
        print(f"{name}: {time.process_time() - started:.0f} CPU s", file=sys.stderr, flush=True)
    return found


def text(found: Mapping[str, xr.Dataset]) -> str:
    """The page as Markdown."""
    said = claims(*(found[name] for name in ("noise", "lambda", "budget", "runtime", "tasks")))
    command = "python -m benchmarks.synthetic"
    return page("The Coulomb paper's synthetic benchmark", LEAD, command, FIGURES, map(section, found.values()), said)


def main() -> int:
    """Run all; print (quick) or write the page and the figures. 2 for an unknown part."""
    quick, names = "--quick" in sys.argv[1:], [name for name in sys.argv[1:] if name != "--quick"]
    if set(names) - set(FULL):
        print(f"unknown part in {names}; known: {', '.join(FULL)}", file=sys.stderr)
        return 2
    configs = {name: replace(FULL[name], **(TINY if quick else {})) for name in names or FULL}
    found = results(configs, "" if quick else EVIDENCE)
    if names:
        return 0
    if quick:
        print(text(found))
        return 0
    pictures = (
        plots.figure_coulomb_accuracy(found["noise"], found["lambda"], METHODS),
        plots.figure_coulomb_cost(found["budget"], found["runtime"], METHODS),
    )
    write("SYNTHETIC.md", text(found), {name: figure_bytes(picture) for name, picture in zip(FIGURES, pictures)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
