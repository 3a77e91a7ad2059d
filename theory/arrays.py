"""Array type and input checks that every module of `theory` uses; each error names the argument and the value received."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["FloatArray", "count", "extent", "finite", "generator", "numeric", "positive", "real"]

FloatArray = NDArray[np.float64]


def numeric(value: ArrayLike, name: str) -> FloatArray:
    """`value` as a float64 array, NaN and infinity allowed; ValueError names the argument if it is ragged, complex or not numeric."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged lists, tensors with gradients or on a device
        raise ValueError(f"{name} must be an array of numbers: {error}") from None
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold real numbers, got dtype {array.dtype}")
    return array.astype(np.float64)


def finite(value: ArrayLike, name: str) -> FloatArray:
    """As `numeric`; ValueError also for NaN and infinity."""
    array = numeric(value, name)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {int((~np.isfinite(array)).sum())} NaN or infinite values")
    return array


def positive(value: Any, name: str, *, zero: bool = False) -> float:
    """`value` as a finite positive float (or zero where allowed); ValueError names the argument otherwise."""
    number = real(value, name)
    if not np.isfinite(number) or number < 0 or (number == 0 and not zero):
        raise ValueError(f"{name} must be finite and {'at least 0' if zero else 'positive'}, got {value!r}")
    return number


def count(value: Any, name: str, *, least: int = 1) -> int:
    """`value` as an int of at least `least`; ValueError names the argument otherwise."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    return int(value)


def real(value: Any, name: str) -> float:
    """`value` as a float; ValueError names the argument otherwise (text is refused)."""
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a real number, got {value!r}") from None


def extent(array: FloatArray) -> str:
    """Shape and least value of an array, as messages give them."""
    return f"shape {array.shape}" + (f" with minimum {array.min():g}" if array.size else "")


def generator(rng: Any) -> np.random.Generator:
    """A Generator from an int seed or a Generator; ValueError for anything else."""
    return rng if isinstance(rng, np.random.Generator) else np.random.default_rng(count(rng, "rng", least=0))
