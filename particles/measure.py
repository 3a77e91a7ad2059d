"""The learned spectral measure as a file: particles, weights and the feature they belong to, in the safetensors format."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from particles.arrays import Array, as_float, as_omega, is_torch
from particles.features import Feature, as_feature, feature_from_description
from particles.trajectory import as_path

SCHEMA = 1
KIND = "kernelgas-measure"


class Measure(NamedTuple):
    """What `load_measure` returns."""

    omega: np.ndarray  # (particle, dim) or (chain, particle, dim)
    feature: Feature
    weights: np.ndarray  # omega's shape without dim, sums to 1 over particles
    metadata: dict[str, Any]


def save_measure(
    path: str | Path,
    omega: Array,
    feature: str | Feature,
    *,
    weights: Array | None = None,
    overwrite: bool = False,
    **metadata: Any,
) -> None:
    """Write the measure sum_k weights_k delta(omega_k) to one safetensors file, whole or not at all.

    Parameters
    ----------
    omega
        Particles (particle, dim) or (chain, particle, dim), NumPy or torch; float32 and float64 are kept.
    weights
        Shape (particle,) or (chain, particle), nonnegative, summing to 1 over particles; equal weights by default.
    overwrite
        Allow an existing file to be replaced.
    **metadata
        Anything else worth keeping, as JSON values.

    Raises
    ------
    ValueError
        For bad weights or particles, or metadata that JSON cannot hold.
    FileExistsError
        If the file exists and `overwrite` is not set.
    """
    from safetensors.numpy import save

    path = as_path(path, "path")
    if path.is_dir():
        raise ValueError(f"path must be a file, got the directory {str(path)!r}")
    if path.exists() and not overwrite:
        raise FileExistsError(f"path {str(path)!r} exists already: name another, or pass overwrite=True")
    omega = _to_numpy(as_omega(omega))
    tensors = {"omega": omega, "weights": _weights(weights, omega)}
    try:
        header = json.dumps({"schema": SCHEMA, "feature": as_feature(feature).describe(), "metadata": metadata})
    except TypeError as error:
        raise ValueError(f"metadata must be JSON values, got {metadata!r}: {error}") from None
    path.parent.mkdir(parents=True, exist_ok=True)
    building = path.with_name(f".{path.name}.new")
    building.write_bytes(save(tensors, metadata={KIND: header}))
    os.replace(building, path)


def load_measure(path: str | Path) -> Measure:
    """Read a file of `save_measure` as NumPy arrays.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is of another kind, damaged, or of a newer schema.
    """
    from safetensors import SafetensorError, safe_open

    path = as_path(path, "path")
    if path.is_dir():
        raise ValueError(f"path {str(path)!r} is not a safetensors file: it is a directory")
    try:
        with safe_open(str(path), framework="numpy") as file:
            found = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"path {str(path)!r} is not a safetensors file: {error}") from None
    if KIND not in found or set(tensors) != {"omega", "weights"}:
        raise ValueError(f"path {str(path)!r} is not a measure written by save_measure")
    header = json.loads(found[KIND])
    if header["schema"] > SCHEMA:
        raise ValueError(f"path {str(path)!r} has schema {header['schema']}, this version reads up to {SCHEMA}")
    omega = as_omega(tensors["omega"])
    return Measure(omega, feature_from_description(header["feature"]), _weights(tensors["weights"], omega), header["metadata"])


def _to_numpy(array: Array) -> np.ndarray:
    """On the host and contiguous, as the file format needs."""
    return np.ascontiguousarray(array.detach().cpu().numpy() if is_torch(array) else array)


def _weights(weights: Array | None, omega: np.ndarray) -> np.ndarray:
    """Checked weights of shape omega.shape[:-1], equal ones for None."""
    if weights is None:
        return np.full(omega.shape[:-1], 1 / omega.shape[-2])
    weights = _to_numpy(as_float(weights, "weights"))
    if weights.shape != omega.shape[:-1]:
        raise ValueError(f"weights must have shape {omega.shape[:-1]}, got {weights.shape}")
    if (weights < 0).any():
        raise ValueError(f"weights must be at least 0, got a smallest of {weights.min()}")
    sums = weights.sum(-1, dtype=np.float64)
    tolerance = 10 * np.sqrt(weights.shape[-1]) * np.finfo(weights.dtype).eps
    if (abs(sums - 1) > tolerance).any():
        raise ValueError(f"weights must sum to 1 over particles, got sums {sums}")
    return weights
