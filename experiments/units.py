"""Finished units of an experiment: a file for each setting, a line for each unit, written when the unit ends.

An experiment is a module with ``Config``, ``EXTENT``, ``ARRAYS``, ``units(config)`` and ``measure(config, unit)``. A *unit* is one point
of its result, such as one row of a table with one seed. The fields of a Config outside ``EXTENT`` are its *settings*: they decide what a
unit's numbers are, and their hash names the file, so that results of other settings can never be mixed or overwritten.
"""

from __future__ import annotations

import base64
import datetime
import functools
import hashlib
import importlib
import json
import math
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

SCHEMA = 2
Unit = dict[str, Any]  # a value, text or number, for each dimension of the result, in their order
Scores = dict[str, Any]  # numbers; arrays of numbers; arrays of bool, stored packed; text that says where the numbers come from


class Record(NamedTuple):
    """One finished unit: its numbers and arrays, its facts (text), and how it was made: date, machine, versions, commit, seconds."""

    unit: Unit
    scores: Scores
    facts: dict[str, str]
    made: dict[str, Any]


def settings(module: ModuleType, config: Any) -> dict[str, Any]:
    """The fields of a Config that decide a unit's numbers, as JSON values."""
    return json.loads(json.dumps({name: value for name, value in asdict(config).items() if name not in module.EXTENT}))


def digest(name: str, chosen: Mapping[str, Any]) -> str:
    """Twelve hexadecimal digits that name an experiment with its settings."""
    return hashlib.sha256(json.dumps([name, chosen], sort_keys=True).encode()).hexdigest()[:12]


def key(unit: Mapping[str, Any]) -> str:
    """A unit as text, for dictionaries and file names of any order of its coordinates."""
    return json.dumps(unit, sort_keys=True)


class Store:
    """The file of one experiment with one setting in the folder `root`; with root "" nothing is read or kept.

    ValueError if the file there is not of this experiment and these settings.
    """

    def __init__(self, root: str | Path, name: str, chosen: Mapping[str, Any]) -> None:
        self.header = {"experiment": name, "schema": SCHEMA, "hash": digest(name, chosen), "settings": dict(chosen)}
        self.path = place(root, f"{name}-{self.header['hash']}.jsonl")

    def finished(self) -> dict[str, Record]:
        """The units that are there, by `key`; a line cut short by a kill is a unit that is not there."""
        if self.path is None or not self.path.exists():
            return {}
        header, records = read(self.path)
        if header != self.header:
            raise ValueError(f"results must be a folder whose {self.path.name} has these settings, got {str(self.path)!r} with others")
        return {key(record.unit): record for record in records}

    def append(self, record: Record) -> None:
        """Add one unit in one write, so that several processes may add to one file; two that begin it both write the header."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = _line({"unit": record.unit, "scores": _encoded(record.scores), "facts": record.facts, "made": record.made})
        with self.path.open("a+b") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(end - 1, 0))
            file.write((_line(self.header) if end == 0 else b"" if file.read(1) == b"\n" else b"\n") + line)


def place(root: str | Path, name: str) -> Path | None:
    """The file `name` in the folder of results `root`, None for root ""; ValueError if there is a file in place of the folder."""
    if root and Path(root).exists() and not Path(root).is_dir():
        raise ValueError(f"results must be a folder, got the file {str(root)!r}")
    return Path(root) / name if root else None


def read(path: str | Path) -> tuple[dict[str, Any], list[Record]]:
    """Header and units of one file, each unit once; ValueError if it does not begin with a header."""
    lines = [line for line in map(_parsed, Path(path).read_text(encoding="utf-8").splitlines()) if line is not None]
    if not lines or lines[0].get("schema") != SCHEMA:
        raise ValueError(f"{str(path)!r} does not begin with the header of a results file of schema {SCHEMA}")
    records: dict[str, Record] = {}
    for line in lines[1:]:
        if line == lines[0]:
            continue
        record = Record(line["unit"], _decoded(line["scores"]), line["facts"], line["made"])
        records.setdefault(key(record.unit), record)
    return lines[0], list(records.values())


def record(unit: Unit, scores: Scores, seconds: float) -> Record:
    """A unit that ended just now after some seconds of processor time."""
    facts = {name: value for name, value in scores.items() if isinstance(value, str)}
    numbers = {name: value for name, value in scores.items() if name not in facts}
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    return Record(unit, numbers, facts, {"date": date, "seconds": round(seconds, 3), **circumstances()})


@functools.cache
def circumstances() -> dict[str, str]:
    """Machine, versions and commit of this process, as each line keeps them."""
    from experiments.report import machine

    known = machine()
    folder = Path(__file__).parent
    said = subprocess.run(["git", "-C", str(folder), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    names = ("processor", "cores", "python", "numpy", "torch")
    return {name: known[name] for name in names} | {"commit": said.stdout.strip() or "no checkout"}


def saved(root: str | Path) -> dict[str, list[tuple[dict[str, Any], xr.Dataset]]]:
    """What a folder of results holds: {experiment: [(settings, Dataset)]}, those with the most units first; with the processor time of
    all units, the attribute ``cpu_seconds``.

    ValueError on a file that is not a results file, FileNotFoundError if there is no such folder.
    """
    if not Path(root).is_dir():
        what = "a file" if Path(root).exists() else "which does not exist"
        raise FileNotFoundError(f"results must be a folder, got {str(root)!r}, {what}")
    found: dict[str, list[tuple[dict[str, Any], xr.Dataset]]] = {}
    for path in sorted(Path(root).glob("*.jsonl")):
        header, records = read(path)
        module = importlib.import_module(f"experiments.{header['experiment']}")
        if records:
            seconds = sum(one.made.get("seconds", 0.0) for one in records)
            dataset = gather(module, records, (), header["settings"]).assign_attrs(cpu_seconds=seconds)
            found.setdefault(header["experiment"], []).append((header["settings"], dataset))
    for datasets in found.values():
        datasets.sort(key=lambda pair: -pair[1].attrs["finished"])
    return found


# ---- from lines to arrays ----------------------------------------------------------------------------------------------------------------


def gather(
    module: ModuleType, records: Iterable[Record], planned: Sequence[Unit] = (), chosen: Mapping[str, Any] | None = None
) -> xr.Dataset:
    """Units as arrays over their coordinates and the dimensions of ``module.ARRAYS``; NaN where a unit is missing or an array is shorter.

    The coordinates are those of `planned`, in its order, then those of other records. ``module.arrange(dataset, settings)``, if there is
    one, has the last word: it may name the coordinates of arrays or add what follows from several units. Attributes: ``config``, JSON of
    the settings and of the defaults of everything else; ``planned`` and ``finished``, numbers of units; ``facts``, JSON of
    {fact: {value of the first dimension: text}}; ``made``, JSON list of dates, machines and versions.

    Raises
    ------
    ValueError
        If units have different coordinates, or those of one value of the first dimension come from different data.
    """
    records = list(records)
    dims = _dims([*planned, *(record.unit for record in records)])
    coords = _coords(dims, [*planned, *(record.unit for record in records)])
    names = list(dict.fromkeys(name for record in records for name in record.scores))
    variables = {name: _array(name, records, coords, module.ARRAYS | {"correct": ("example",)}) for name in names}
    n_planned = len({key(unit) for unit in planned} | {key(record.unit) for record in records})
    made = list(dict.fromkeys(json.dumps({k: v for k, v in record.made.items() if k != "seconds"}) for record in records))
    attrs = {
        "experiment": module.__name__.rpartition(".")[2],
        "schema": SCHEMA,
        "config": json.dumps({**asdict(module.Config()), **(chosen or {})}),
        "planned": n_planned,
        "finished": len(records),
        "facts": json.dumps(_facts(dims[0], records)),
        "made": f"[{', '.join(made)}]",
    }
    dataset = xr.Dataset(variables, coords=coords, attrs=attrs)
    return module.arrange(dataset, chosen) if hasattr(module, "arrange") and variables else dataset


def _dims(units: Sequence[Unit]) -> tuple[str, ...]:
    """The coordinates' names that all units share."""
    names = {tuple(unit) for unit in units}
    if len(names) != 1:
        raise ValueError(f"all units must have the same coordinates, got {sorted(names)}")
    return names.pop()


def _coords(dims: tuple[str, ...], units: Sequence[Unit]) -> dict[str, list[Any]]:
    return {dim: list(dict.fromkeys(unit[dim] for unit in units)) for dim in dims}


def _array(
    name: str, records: Sequence[Record], coords: Mapping[str, list[Any]], arrays: Mapping[str, tuple[str, ...]]
) -> tuple[tuple[str, ...], np.ndarray]:
    """One score over the coordinates, with its own dimensions behind them."""
    values = [(record.unit, np.asarray(record.scores[name])) for record in records if name in record.scores]
    extra = arrays.get(name, ()) if any(value.ndim for _, value in values) else ()
    wrong = {value.shape for _, value in values if value.ndim != len(extra)}
    if wrong:
        raise ValueError(f"{name} must have the dimensions {extra} of ARRAYS, got an array of shape {wrong.pop()}")
    sizes = [max(value.shape[axis] for _, value in values) for axis in range(len(extra))]
    dtype = np.float32 if values[0][1].dtype == bool else np.float64
    table = np.full([*map(len, coords.values()), *sizes], np.nan, dtype)
    for unit, value in values:
        place = tuple(coords[dim].index(unit[dim]) for dim in coords)
        table[place + tuple(slice(size) for size in value.shape)] = value
    return (*coords, *extra), table


def _facts(first: str, records: Sequence[Record]) -> dict[str, dict[str, str]]:
    """{fact: {value of the first dimension: text}}; data of two contents under one name are refused."""
    facts: dict[str, dict[str, str]] = {}
    for record in records:
        for name, text in record.facts.items():
            known = facts.setdefault(name, {}).setdefault(str(record.unit[first]), text)
            if known != text and name == "data_sha256":
                raise ValueError(f"results mix two contents of {record.unit[first]!r}: sha256 {known} and {text}")
    return facts


def _line(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, allow_nan=False) + "\n").encode()


def _parsed(text: str) -> dict[str, Any] | None:
    """A line, or None for one that was cut short."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None


def _encoded(scores: Scores) -> dict[str, Any]:
    """Numbers as JSON: arrays as lists, bool arrays packed, what is not finite as text."""
    flags = {name for name, value in scores.items() if isinstance(value, np.ndarray) and value.dtype.kind == "b"}
    return {name: _packed(value) if name in flags else _listed(value) for name, value in scores.items()}


def _packed(flags: np.ndarray) -> dict[str, Any]:
    return {"n": len(flags), "bits": base64.b64encode(np.packbits(flags).tobytes()).decode()}


def _listed(value: Any) -> Any:
    if isinstance(value, (list, tuple, np.ndarray)) and np.ndim(value):
        return [_listed(item) for item in value]
    number = int(value) if isinstance(value, (int, np.integer)) else float(value)
    return number if math.isfinite(number) else str(number)


def _decoded(scores: Mapping[str, Any]) -> Scores:
    return {name: _unpacked(value) if isinstance(value, dict) else _numbers(value) for name, value in scores.items()}


def _unpacked(value: Mapping[str, Any]) -> np.ndarray:
    bits = np.frombuffer(base64.b64decode(value["bits"]), np.uint8)
    return np.unpackbits(bits, count=value["n"]).astype(bool)


def _numbers(value: Any) -> Any:
    return np.asarray(value, float) if isinstance(value, list) else float(value) if isinstance(value, str) else value
