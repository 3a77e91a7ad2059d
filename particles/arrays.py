"""The one place that looks at an array's type, and the one place that checks what users pass in."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

Array = Any  # a numpy.ndarray or a torch.Tensor


def is_torch(array: Any) -> bool:
    """Whether `array` is a torch tensor; never imports torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def namespace(*arrays: Any):
    """The module (numpy or torch) whose functions apply to `arrays`.

    Raises
    ------
    ValueError
        If NumPy arrays and torch tensors are mixed.
    """
    kinds = {is_torch(a) for a in arrays if hasattr(a, "shape")}
    if kinds == {True, False}:
        raise ValueError(f"arrays must be all NumPy or all torch, got {[type(a).__name__ for a in arrays]}")
    return sys.modules["torch"] if kinds == {True} else np


def as_float(array: Any, name: str) -> Array:
    """`array` as floating point, float32 and float64 kept, integers turned into float64; the input is never written to.

    Raises
    ------
    ValueError
        If the array is not numeric, is complex, or holds NaN or infinity; the message names the argument.
    """
    xp = namespace(array)
    if xp is np:
        array = np.asarray(array)
        if array.dtype.kind in "biu":
            array = array.astype(np.float64)
        if array.dtype.kind != "f":
            raise ValueError(f"{name} must hold real numbers, got dtype {array.dtype}")
        if array.dtype.itemsize < 4:
            raise ValueError(f"{name} must be float32 or float64, got dtype {array.dtype}")
    elif not array.is_floating_point():
        if array.is_complex():
            raise ValueError(f"{name} must hold real numbers, got dtype {array.dtype}")
        array = array.double()
    if not bool(xp.isfinite(array).all()):
        raise ValueError(f"{name} must be finite, got {int((~xp.isfinite(array)).sum())} NaN or infinite values")
    return array


def as_omega(omega: Any, *, dim: int | None = None, name: str = "omega") -> Array:
    """Particles as a float array of shape (particle, dim) or (chain, particle, dim).

    Raises
    ------
    ValueError
        On a wrong number of axes, an empty axis, a wrong `dim`, NaN or infinity.
    """
    omega = as_float(omega, name)
    if omega.ndim not in (2, 3) or 0 in tuple(omega.shape):
        raise ValueError(f"{name} must have shape (particle, dim) or (chain, particle, dim), none of them 0, got {tuple(omega.shape)}")
    if dim is not None and omega.shape[-1] != dim:
        raise ValueError(f"{name} must have dim {dim}, got shape {tuple(omega.shape)}")
    return omega


def positive(value: Any, name: str, *, zero: bool = False) -> float:
    """`value` as a finite positive float (or zero where allowed); ValueError names the argument otherwise."""
    number = real(value, name)
    if number < 0 or (number == 0 and not zero):
        raise ValueError(f"{name} must be {'at least 0' if zero else 'positive'}, got {value!r}")
    return number


def real(value: Any, name: str) -> float:
    """`value` as a finite float; ValueError names the argument otherwise."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a real number, got {value!r}") from None
    if not np.isfinite(number):
        raise ValueError(f"{name} must be finite, got {value!r}")
    return number


def count(value: Any, name: str, *, least: int = 1) -> int:
    """`value` as an int of at least `least`; ValueError names the argument otherwise (floats and bools are refused)."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    return int(value)
