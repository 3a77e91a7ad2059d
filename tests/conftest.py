"""Threads, a headless backend, and shape annotations that are executed: all before the packages are imported."""

from __future__ import annotations

import os
import re

for _variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "2")
os.environ.setdefault("MPLBACKEND", "Agg")

import jaxtyping  # noqa: E402  (loads NumPy, which reads the variables above once)
import numba  # noqa: E402
import torch  # noqa: E402
from beartype import beartype  # noqa: E402

numba.get_num_threads()  # starts numba's threads, which the first parallel kernel would: where both share an OpenMP, torch then has as many
torch.set_num_threads(1)

_SHAPE = re.compile(r"\b(Float|Num|Int|Integer|Bool|Shaped|Real|Inexact)\[")
_jaxtyped = jaxtyping.jaxtyped


def _shapes(item) -> dict:
    """The annotations of `item` that speak of shapes."""
    return {name: hint for name, hint in getattr(item, "__annotations__", {}).items() if _SHAPE.search(str(hint))}


def check_shapes(function):
    """beartype on shapes only: other wrong types must reach the packages' own ValueError."""
    function.__annotations__ = _shapes(function)
    return beartype(function)


def jaxtyped_where_annotated(*, typechecker):
    """What the import hook puts on every function; those without shapes are left alone, as the wrapper costs 20 microseconds a call."""
    decorate = _jaxtyped(typechecker=typechecker)
    return lambda item: decorate(item) if not isinstance(item, type) and _shapes(item) else item


jaxtyping.jaxtyped = jaxtyped_where_annotated
jaxtyping.install_import_hook(["particles", "attention", "theory"], f"{__name__}.check_shapes")
