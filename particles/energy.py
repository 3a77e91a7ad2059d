"""Energies H_N of a particle system and the gradients of N H_N that drive it; those made by data are in `particles.alignment`.

Normalisation is the Coulomb paper's: W_N = 1/(2N(N-1)) sum over ordered pairs, an external potential enters as its mean over particles,
and the drift of a particle is minus its gradient of N H_N (identity A.7). omega (particle, dim) or (chain, particle, dim), NumPy or
torch; values are float64 of omega's leading shape, gradients have omega's shape and dtype.
"""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from particles.arrays import Array, as_float, as_omega, is_torch, namespace, real
from particles.random import Key
from particles.targets import sum64, to_numpy


class Energy:
    """A term H of the Hamiltonian. Subclasses give `term` and `_evaluate`.

    Attributes
    ----------
    term : name of the term in `value_and_grad`.
    bodies : how many particles one summand couples: 1 (external), 2 (pairs), None (all of them, or not said).
    minibatched : whether `value_and_grad` and `gradient` see a random part of the data and need a key.
    """

    term: ClassVar[str]
    bodies: ClassVar[int | None] = None

    @property
    def minibatched(self) -> bool:
        """Whether gradients are those of minibatches and need a key."""
        return False

    def _evaluate(self, omega: Array, key: Key | None, want_value: bool) -> tuple[Array, Array]:
        """(H, gradient of N H); H may be anything unless `want_value`."""
        raise NotImplementedError

    def value(self, omega: Array) -> Array:
        """H_N of each chain, on all data; torch can differentiate it once."""
        return self._evaluate(as_omega(omega), None, True)[0]

    def value_and_grad(self, omega: Array, *, key: Key | None = None) -> tuple[dict[str, Array], Array]:
        """({term: H}, gradient of N H_N). The terms sum to H_N (of the minibatch when there is one).

        Parameters
        ----------
        key : (seed, first chain's number, step), what a minibatch is drawn from.

        Raises
        ------
        ValueError
            If a minibatched energy gets no key, or omega has a wrong shape or holds NaN.
        """
        value, gradient = self._evaluate(_plain(omega), key, True)
        return {self.term: value}, gradient

    def gradient(self, omega: Array, *, key: Key | None = None) -> Array:
        """The gradient of N H_N alone, which can be cheaper than `value_and_grad`."""
        return self._evaluate(_plain(omega), key, False)[1]

    def diagnostics(self, omega: Array) -> dict[str, Array]:
        """Facts worth recording beside the energy; empty unless the particles interact in pairs."""
        return {}

    def choices(self, omega: Array) -> dict[str, str]:
        """Which algorithm serves particles of omega's shape, by term, where there is a choice: {"riesz": "direct (numba)"}."""
        return {}

    def describe(self) -> dict[str, Any]:
        """Constructor name and arguments as JSON values (data as a fingerprint)."""
        raise NotImplementedError

    def __add__(self, other: Energy) -> Sum:
        return Sum((self, other)) if isinstance(other, Energy) else NotImplemented

    def __radd__(self, other: Any) -> Energy:
        """0 + energy, with which Python's `sum` begins."""
        return self if type(other) is int and other == 0 else NotImplemented

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"


def require_complete(energy: Any) -> None:
    """ValueError naming what an `Energy`, or a part of a sum, leaves undefined; objects of other classes define all themselves."""
    for part in energy.energies if isinstance(energy, Sum) else (energy,):
        kind = type(part)
        if not isinstance(part, Energy) or isinstance(part, Sum):
            continue
        missing = ["describe"] if kind.describe is Energy.describe else []
        if kind.value_and_grad is Energy.value_and_grad:
            missing += ["term"] if not hasattr(part, "term") else []
            missing += ["_evaluate"] if kind._evaluate is Energy._evaluate else []
        if missing:
            raise ValueError(f"energy must define {', '.join(missing)}: {kind.__name__} does not, got {part!r}")


def _plain(omega: Array) -> Array:
    """Checked particles without torch's history."""
    omega = as_omega(omega)
    return omega.detach() if is_torch(omega) else omega


class Sum(Energy):
    """The sum of energies; a term's name that occurs again gets the suffix _2, _3, ..."""

    term = "sum"

    def __init__(self, energies: Iterable[Energy]) -> None:
        energies = tuple(energies) if isinstance(energies, Iterable) else (energies,)
        if not energies or not all(isinstance(e, Energy) for e in energies):
            raise ValueError(f"energies must be one or more Energy objects, got {energies!r}")
        self.energies: tuple[Energy, ...] = tuple(part for e in energies for part in (e.energies if isinstance(e, Sum) else (e,)))

    @property
    def minibatched(self) -> bool:
        """Whether any of the energies is."""
        return any(e.minibatched for e in self.energies)

    def value(self, omega: Array) -> Array:
        """The sum of the energies' H_N, of omega's leading shape."""
        return sum(e.value(omega) for e in self.energies)

    def value_and_grad(self, omega: Array, *, key: Key | None = None) -> tuple[dict[str, Array], Array]:
        """Terms by name and the gradient of N H_N, see `Energy.value_and_grad`; equal names are numbered."""
        omega = _plain(omega)
        parts = [_checked_terms(e, omega, key) for e in self.energies]
        return _numbered(terms for terms, _ in parts), functools.reduce(operator.add, (gradient for _, gradient in parts))

    def gradient(self, omega: Array, *, key: Key | None = None) -> Array:
        """The gradient of N H_N alone, of omega's shape."""
        omega = _plain(omega)
        return functools.reduce(operator.add, [_checked_gradient(e, omega, key) for e in self.energies])

    def diagnostics(self, omega: Array) -> dict[str, Array]:
        """What the energies report of omega, together."""
        merged: dict[str, Array] = {}
        for energy in self.energies:
            merged.update(energy.diagnostics(omega))
        return merged

    def choices(self, omega: Array) -> dict[str, str]:
        """The algorithms that the energies choose for omega's shape, by term."""
        return _numbered(e.choices(omega) for e in self.energies)

    def describe(self) -> dict[str, Any]:
        """The descriptions of the energies as JSON values."""
        return {"name": "Sum", "energies": [e.describe() for e in self.energies]}

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.energies))


def _numbered(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """One dict of all; a name that occurs again gets the suffix _2, _3, ..."""
    merged: dict[str, Any] = {}
    seen: Counter[str] = Counter()
    for part in parts:
        for name, value in part.items():
            seen[name] += 1
            merged[name if seen[name] == 1 else f"{name}_{seen[name]}"] = value
    return merged


def _checked_terms(energy: Energy, omega: Array, key: Key | None) -> tuple[dict[str, Array], Array]:
    """`value_and_grad` of particles that have been checked: a sum checks them once."""
    if type(energy).value_and_grad is not Energy.value_and_grad:
        return energy.value_and_grad(omega, key=key)
    value, gradient = energy._evaluate(omega, key, True)
    return {energy.term: value}, gradient


def _checked_gradient(energy: Energy, omega: Array, key: Key | None) -> Array:
    """`gradient` of particles that have been checked."""
    if type(energy).gradient is not Energy.gradient:
        return energy.gradient(omega, key=key)
    return energy._evaluate(omega, key, False)[1]


class Quadratic(Energy):
    """H = (1/N) sum_k sum_a stiffness_a (omega_ka - centre_a)^2 / 2, a trap.

    Parameters
    ----------
    stiffness : one number of at least 0, or one per coordinate.
    centre : one number, or one per coordinate.
    """

    term, bodies = "quadratic", 1

    def __init__(self, stiffness: Any, centre: Any = 0.0) -> None:
        self.stiffness, self.centre = _per_coordinate(stiffness, "stiffness"), _per_coordinate(centre, "centre")
        if np.min(self.stiffness) < 0:
            raise ValueError(f"stiffness must be at least 0, got {stiffness!r}")

    def _evaluate(self, omega: Array, key: Key | None, want_value: bool) -> tuple[Array, Array]:
        dim = omega.shape[-1]
        stiffness, centre = (_like(omega, a, name, dim) for a, name in ((self.stiffness, "stiffness"), (self.centre, "centre")))
        gradient = stiffness * (omega - centre)
        value = sum64(gradient * (omega - centre), (-2, -1)) / (2 * omega.shape[-2]) if want_value else 0.0
        return value, gradient

    def describe(self) -> dict[str, Any]:
        """Name, stiffness and centre as JSON values."""
        return {"name": "Quadratic", "stiffness": np.asarray(self.stiffness).tolist(), "centre": np.asarray(self.centre).tolist()}

    def __repr__(self) -> str:
        stiffness, centre = (
            np.array2string(np.asarray(a), separator=", ", threshold=8, edgeitems=2) for a in (self.stiffness, self.centre)
        )
        return f"Quadratic(stiffness={stiffness}, centre={centre})"


def _per_coordinate(value: Any, name: str) -> float | np.ndarray:
    value = as_float(to_numpy(value, name), name) if isinstance(value, (list, tuple)) or np.ndim(value) else real(value, name)
    if isinstance(value, float):
        return value
    if value.ndim != 1 or not value.size:
        raise ValueError(f"{name} must be one number or one per coordinate, got shape {value.shape}")
    return value.astype(np.float64)


def _like(omega: Array, value: float | np.ndarray, name: str, dim: int) -> Any:
    if isinstance(value, float):
        return value
    if value.shape != (dim,):
        raise ValueError(f"{name} must have {dim} numbers for omega of shape {tuple(omega.shape)}, got {len(value)}")
    xp = namespace(omega)
    return value.astype(omega.dtype) if xp is np else xp.as_tensor(value, dtype=omega.dtype, device=omega.device)
