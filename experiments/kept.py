"""Finished units of an experiment in a folder, so that an interrupted run goes on and several processes can share the work."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import xarray as xr

from experiments.report import load, store


def kept(folder: str | Path, name: str, settings: Mapping[str, Any], make: Callable[[], xr.Dataset]) -> xr.Dataset:
    """The unit `name` of a folder, made and written if it is not there; `make()` alone if the folder is "".

    A unit appears under its name only when it is complete. ValueError if the unit there was made with other settings.
    """
    if not folder:
        return make()
    path, text = Path(folder) / f"{name}.zarr", json.dumps(settings, sort_keys=True)
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}")
        store(make().assign_attrs(settings=text), part)
        part.rename(path)
    unit = load(path)
    if unit.attrs["settings"] != text:
        raise ValueError(f"keep must be the folder of a run with the same settings, got {str(folder)!r}, where {name} has others")
    return unit
