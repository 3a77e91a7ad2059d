"""What a trajectory says of itself in its attrs: energy, domain and sampler, as JSON objects; what no simulation writes is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr

__all__ = ["described_domain", "described_sampler", "described_terms"]


def described_terms(dataset: xr.Dataset, dim: int) -> list[dict[str, Any]]:
    """The energy's terms, sums taken apart; none without a description. ValueError for numbers that no term has."""
    energy = _description(dataset, "energy")
    terms = list(_flatten(energy)) if energy else []
    for term in terms:
        for key, kind in {"Quadratic": _QUADRATIC, "Riesz": _RIESZ}.get(str(term.get("name")), {}).items():
            _require(term, key, kind, dim, "energy")
    return terms


def described_domain(dataset: xr.Dataset, dim: int) -> dict[str, Any]:
    """The domain, {} without a description; ValueError for a ball without radius, a box without bounds, a torus without period."""
    domain = _description(dataset, "domain")
    kinds = {"Ball": {"radius": "positive"}, "Box": {"low": "vector", "high": "vector"}, "Torus": {"period": "periods"}}
    needed = kinds.get(str(domain.get("name")), {})
    if any(key not in domain for key in needed):
        raise ValueError(f"dataset.attrs['domain'] must give {' and '.join(needed)}, got {domain}")
    for key, kind in needed.items():
        _require(domain, key, kind, dim, "domain")
    if domain.get("name") == "Box" and not np.all(np.less(domain["low"], domain["high"])):
        raise ValueError(f"dataset.attrs['domain'] must give low < high, got {domain['low']!r} and {domain['high']!r}")
    return domain


def described_sampler(dataset: xr.Dataset) -> dict[str, Any]:
    """The sampler, {} without a description; ValueError for numbers that no sampler has, or a known one without beta."""
    sampler = _description(dataset, "sampler")
    if sampler.get("name") in ("Langevin", "MALA", "HMC") and "beta" not in sampler:
        raise ValueError(f"dataset.attrs['sampler'] must give a number, positive, for beta of {sampler['name']}, got {sampler}")
    for key, kind in _SAMPLER.items():
        if isinstance(sampler.get(key), dict) or (key, sampler.get(key)) == ("beta", "inf"):
            continue  # a schedule, a descent
        _require(sampler, key, kind, 1, "sampler")
    if sampler.get("scheme", "projected") not in ("projected", "reflected", "shrunk"):
        raise ValueError(f"dataset.attrs['sampler'] must give a scheme projected, reflected or shrunk, got {sampler['scheme']!r}")
    return sampler


_QUADRATIC = {"centre": "vector"}
_RIESZ = {"softening": "not negative", "length": "positive", "truncation": "not negative or null", "period": "periods or null"}
_SAMPLER = {"step_size": "positive", "beta": "positive", "tune": "not negative"}
_SAMPLER |= {"drift_cap": "positive or null", "clip": "positive or null"}


def _require(description: dict[str, Any], key: str, kind: str, dim: int, attr: str) -> None:
    """ValueError unless the value, if there is one, is of its kind; a vector is one number, or one per coordinate."""
    if key not in description or (kind.endswith("or null") and description[key] is None):
        return
    value, many = description[key], kind.startswith(("vector", "periods"))
    numbers = value if many and isinstance(value, list) and len(value) == dim else [value]
    right = all(isinstance(number, (int, float)) and not isinstance(number, bool) and not np.isnan(number) for number in numbers)
    if right and not kind.startswith("vector"):
        right = all(number > 0 or (number == 0 and kind.startswith("not negative")) for number in numbers)
    if not right or (many and not np.isfinite(numbers).all()):
        what = f"{dim} numbers, or one," if many else f"a number, {kind},"
        raise ValueError(f"dataset.attrs[{attr!r}] must give {what} for {key} of {description.get('name')}, got {value!r}")


def _description(dataset: xr.Dataset, name: str) -> dict[str, Any]:
    """The JSON object in the attrs, {} where there is none."""
    text = dataset.attrs.get(name, {})
    try:
        value = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        raise ValueError(f"dataset.attrs[{name!r}] must be JSON, got {text!r}") from None
    if not isinstance(value, dict):
        raise ValueError(f"dataset.attrs[{name!r}] must be a JSON object, got {text!r}")
    return value


def _flatten(energy: Any) -> Iterator[dict[str, Any]]:
    """The terms of a sum, nested sums included; a sum that lists none counts as one unknown term."""
    if not isinstance(energy, dict):
        raise ValueError(f"dataset.attrs['energy'] must have terms that are JSON objects, got {energy!r}")
    parts = energy.get("energies", energy.get("terms")) if energy.get("name") == "Sum" else None
    if parts is None:
        yield energy
    elif not isinstance(parts, list):
        raise ValueError(f"dataset.attrs['energy'] must list the terms of a sum, got {parts!r}")
    else:
        for part in parts:
            yield from _flatten(part)
