"""Checks of what figures are given: each ValueError names the argument and what it got."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import xarray as xr

__all__ = ["held", "instance", "is_table", "of_check", "recorded", "require"]


def instance(value: Any, kind: Any, name: str) -> None:
    """ValueError unless the value is of the class, or of one of several; Callable and Sequence are classes too."""
    if not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        raise ValueError(f"{name} must be a {' or '.join(one.__name__ for one in kinds)}, got {_said(value)}")


def held(values: Any, container: Any, kind: Any, name: str, *, least: int = 1) -> None:
    """ValueError unless `values`, a Sequence or a Mapping as `container` says, holds at least so many, and only those, of the class."""
    inside = isinstance(values, container)
    parts = list(values.values() if isinstance(values, Mapping) else values) if inside else [values]
    if not inside or len(parts) < least or not all(isinstance(part, kind) for part in parts):
        words = f"{container.__name__} of {kind.__name__}" if not least else f"at least one {kind.__name__} in a {container.__name__}"
        raise ValueError(f"{name} must hold {words}, got {', '.join(sorted({_said(part) for part in parts})) or 'none'}")


def is_table(value: Any) -> bool:
    """Whether this is a table of `report.check`."""
    return isinstance(value, xr.Dataset) and "law" in value.dims and "skipped" in value.attrs


def of_check(value: Any, name: str) -> None:
    """ValueError unless the value is a table of `report.check`."""
    if not is_table(value):
        raise ValueError(f"{name} must be what check returns, got {_said(value)}")


def recorded(dataset: Any, variable: str, dims: tuple[str, ...]) -> xr.DataArray:
    """A variable of a trajectory; ValueError unless the dataset holds it with these dims, in any order."""
    if not isinstance(dataset, xr.Dataset) or variable not in dataset or set(dataset[variable].dims) != set(dims):
        raise ValueError(f"dataset must hold {variable} ({', '.join(dims)}), got {_said(dataset)}")
    return dataset[variable]


def require(dataset: xr.Dataset, figure: str) -> None:
    """ValueError unless the Dataset is that of the figure."""
    found = dataset.attrs.get("figure") if isinstance(dataset, xr.Dataset) else type(dataset).__name__
    if found != figure:
        raise ValueError(f"dataset must be that of a figure {figure!r}, got {found!r}")


def _said(value: Any) -> str:
    """What a value is: its class, and what a Dataset holds."""
    return type(value).__name__ + (f" of {list(value.data_vars)}" if isinstance(value, xr.Dataset) else "")
