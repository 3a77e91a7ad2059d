"""Every experiment tells and draws whatever part of it ran: any rows, tasks and seeds, a single unit among them."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

from experiments import sections, units

EVIDENCE = Path(__file__).parents[1] / "benchmarks" / "evidence"
LINEAR = ("language_modelling", "long_range")  # have tests of their own
N_RANDOM = 2


def files() -> list[Path]:
    """The smallest file of each experiment, and of each of its parts that tell other things."""
    found: dict[tuple[str, str], Path] = {}
    for path in sorted(EVIDENCE.glob("*.jsonl"), key=lambda path: path.stat().st_size, reverse=True):
        with path.open() as lines:
            header = json.loads(lines.readline())
        found[header["experiment"], header["settings"].get("part", "")] = path
    return [path for (name, _), path in sorted(found.items()) if name not in LINEAR]


def parts(records: list[units.Record], seed: int = 0) -> list[list[units.Record]]:
    """One unit, those of some value of each coordinate, and random ones."""
    rng, found = np.random.default_rng(seed), [records[:1], records[-1:]]
    for name in records[0].unit:
        values = list(dict.fromkeys(one.unit[name] for one in records))
        chosen = dict.fromkeys([values[0], values[len(values) // 2], values[-1]])
        found += [[one for one in records if one.unit[name] == value] for value in chosen]
    n = min(len(records), 2 + len(records) // 40)
    return found + [[records[k] for k in rng.choice(len(records), n, replace=False)] for _ in range(N_RANDOM)]


@pytest.mark.parametrize("path", files(), ids=lambda path: path.stem)
def test_any_part_of_an_experiment_is_told_and_drawn(path):
    header, records = units.read(path)
    name = header["experiment"]
    module = importlib.import_module(f"experiments.{name}")
    for part in parts(records):
        ds = units.gather(module, part, (), header["settings"])
        told, drawn = sections.section(name, ds), sections.figures(name, ds)
        assert "nan" not in str(told).split()
        assert set(drawn) == set(told.pictures), [one.unit for one in part]
