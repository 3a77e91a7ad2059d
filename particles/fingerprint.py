"""What a run can record of a user's function: its name, and a fingerprint that changes with its code."""

from __future__ import annotations

import functools
import hashlib
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from particles.arrays import is_array, is_torch


def describe_callable(function: Callable) -> dict[str, str | None]:
    """{"name", "code"}: the function's qualified name, and sixteen digits of the SHA-256 of what it computes with, or None.

    Hashed are its source text (of a lambda, whose source is all of its line, the byte code, which another Python version may change)
    and the numbers, strings and arrays in its defaults, closure and, for a `functools.partial`, arguments.
    None: code without Python source (a NumPy ufunc, an object of a compiled class) or that refers to itself. Globals are not seen.
    """
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", type(function).__name__)
    try:
        digest = hashlib.sha256(b"\0".join(_parts(function))).hexdigest()[:16]
    except (OSError, TypeError, ValueError, RecursionError):
        digest = None
    return {"name": name, "code": digest}


def _parts(function: Any) -> Iterator[bytes]:
    """Source and bound values of a callable, its parts and the functions it closes over."""
    if isinstance(function, functools.partial):
        yield from _parts(function.func)
        values: list[Any] = [*function.args, *function.keywords.items()]
    elif inspect.isroutine(function) or hasattr(function, "py_func"):
        function = getattr(function, "py_func", inspect.unwrap(function))
        is_lambda = getattr(function, "__name__", "") == "<lambda>"
        yield from _byte_code(function.__code__) if is_lambda else [inspect.getsource(function).strip().encode()]
        cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
        owner = getattr(function, "__self__", None)
        values = [*(getattr(function, "__defaults__", None) or ()), *cells, *getattr(owner, "__dict__", {}).items()]
    else:
        yield inspect.getsource(type(function)).strip().encode()
        values = [*vars(function).items()]
    for value in values:
        yield from _value(value)


def _byte_code(code: types.CodeType) -> Iterator[bytes]:
    """What a function does, wherever it is written: instructions, constants, and names."""
    yield code.co_code
    yield repr((code.co_names, code.co_varnames, code.co_freevars)).encode()
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _byte_code(constant)
        else:
            yield repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant).encode()


def _value(value: Any) -> Iterator[bytes]:
    """One bound value: arrays by their bytes, functions by their code, plain values by repr, others by type."""
    if is_array(value):
        value = value.detach().cpu().numpy() if is_torch(value) else value
        yield f"{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes()
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _value(item)
    elif callable(value) and not isinstance(value, type):
        yield from _parts(value)
    else:
        plain = isinstance(value, (int, float, complex, str, bytes, type(None), np.generic))
        yield (repr(value) if plain else type(value).__qualname__).encode()
