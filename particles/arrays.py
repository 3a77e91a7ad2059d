"""The one place that looks at an array's type, and the one place that checks what users pass in."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

Array = Any  # a numpy.ndarray or a torch.Tensor
_USUAL = (np.dtype(np.float64), np.dtype(np.float32))


def is_torch(array: Any) -> bool:
    """Whether `array` is a torch tensor; never imports torch."""
    if type(array) is np.ndarray:
        return False  # asked a dozen times a step
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, getattr(torch, "Tensor", ()))  # none yet while another thread imports torch


def is_array(array: Any) -> bool:
    """Whether `array` is one of the two kinds that the package computes with."""
    return isinstance(array, np.ndarray) or is_torch(array)


def namespace(*arrays: Any):
    """The module (numpy or torch) whose functions apply to `arrays`.

    Raises
    ------
    ValueError
        If NumPy arrays and torch tensors are mixed.
    """
    if len(arrays) == 1:
        return sys.modules["torch"] if is_torch(arrays[0]) else np
    kinds = {is_torch(a) for a in arrays if hasattr(a, "shape")}
    if kinds == {True, False}:
        raise ValueError(f"arrays must be all NumPy or all torch, got {[type(a).__name__ for a in arrays]}")
    return sys.modules["torch"] if kinds == {True} else np


def as_float(array: Any, name: str) -> Array:
    """`array` as floating point, float32 and float64 kept, integers turned into float64; the input is never written to.

    Raises
    ------
    ValueError
        If the array is ragged, not numeric, complex, of another precision, or holds NaN or infinity; the message names the argument.
    """
    array = as_real(array, name)
    xp = namespace(array)
    if not bool(xp.isfinite(array).all()):
        raise ValueError(f"{name} must be finite, got {int((~xp.isfinite(array)).sum())} NaN or infinite values")
    return array


def as_real(array: Any, name: str) -> Array:
    """`as_float` that lets NaN and infinity through."""
    if type(array) is np.ndarray and array.dtype in _USUAL:
        return array  # asked every step
    array = _real_torch(array, name) if is_torch(array) else _real_numpy(array, name)
    if array.dtype.itemsize not in (4, 8):
        raise ValueError(f"{name} must be float32 or float64, got dtype {array.dtype}")
    return array


def _real_numpy(array: Any, name: str) -> np.ndarray:
    """A floating point array in the machine's byte order; ValueError names the argument."""
    if np.ma.is_masked(array):
        raise ValueError(f"{name} must have no masked values, got {array!r}")
    try:
        array = np.asarray(array)
    except ValueError:
        raise ValueError(f"{name} must be an array whose rows have one length, got {array!r}") from None
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold real numbers, got dtype {array.dtype}")
    if array.dtype.kind != "f":
        return array.astype(np.float64)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _real_torch(array: Any, name: str) -> Any:
    """A floating point tensor; ValueError names the argument."""
    if array.is_complex():
        raise ValueError(f"{name} must hold real numbers, got dtype {array.dtype}")
    return array if array.is_floating_point() else array.double()


def as_omega(omega: Any, *, dim: int | None = None, name: str = "omega") -> Array:
    """Particles as a float array of shape (particle, dim) or (chain, particle, dim); a labelled array's axes are found by name.

    Raises
    ------
    ValueError
        On a wrong number of axes, an empty axis, a wrong `dim`, NaN or infinity.
    """
    if {"particle", "dim"} <= set(getattr(omega, "dims", ())):
        omega = omega.transpose(..., "particle", "dim")
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
    """`value` as a finite float; ValueError names the argument otherwise (strings and bools are refused)."""
    try:
        if isinstance(value, (str, bytes, bool, np.bool_)):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a real number, got {value!r}") from None
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, got {value!r}")
    return number


def count(value: Any, name: str, *, least: int = 1) -> int:
    """`value` as an int of at least `least`; ValueError names the argument otherwise (floats and bools are refused)."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    return int(value)


def flag(value: Any, name: str) -> bool:
    """`value` as a bool; ValueError names the argument otherwise (numbers and strings are refused)."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def generator(rng: Any) -> np.random.Generator:
    """A Generator from an int seed or a Generator; ValueError for anything else: no argument gives irreproducible numbers."""
    return rng if isinstance(rng, np.random.Generator) else np.random.default_rng(count(rng, "rng", least=0))
