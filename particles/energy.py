"""Energies H_N of a particle system and the gradients of N H_N that drive it.

Normalisation is the Coulomb paper's: W_N = 1/(2N(N-1)) sum over ordered pairs, an external potential enters as its mean over particles,
and the drift of a particle is minus its gradient of N H_N (identity A.7). omega (particle, dim) or (chain, particle, dim), NumPy or
torch; values are float64 of omega's leading shape, gradients have omega's shape and dtype.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from particles.alignment import Rows, arrange, as_rows, centred, grouped, off_diagonal, sum64, target_factor, to_numpy
from particles.arrays import Array, as_float, as_omega, count, is_torch, namespace, positive, real
from particles.features import Feature, as_feature
from particles.pairwise import gaps, riesz_sums

Key = tuple[int, int, int]


class Energy:
    """A term H of the Hamiltonian. Subclasses give `term` and `_evaluate`.

    Attributes
    ----------
    term : name of the term in `value_and_grad`.
    minibatched : whether `value_and_grad` and `gradient` see a random part of the data and need a key.
    """

    term: ClassVar[str]

    @property
    def minibatched(self) -> bool:
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

    def describe(self) -> dict[str, Any]:
        """Constructor name and arguments as JSON values (data as a fingerprint)."""
        raise NotImplementedError

    def __add__(self, other: Energy) -> Sum:
        return Sum((self, other)) if isinstance(other, Energy) else NotImplemented


def _plain(omega: Array) -> Array:
    """Checked particles without torch's history."""
    omega = as_omega(omega)
    return omega.detach() if is_torch(omega) else omega


class Sum(Energy):
    """The sum of energies; a term's name that occurs again gets the suffix _2, _3, ..."""

    term = "sum"

    def __init__(self, energies: tuple[Energy, ...]) -> None:
        self.energies: tuple[Energy, ...] = tuple(part for e in energies for part in (e.energies if isinstance(e, Sum) else (e,)))

    @property
    def minibatched(self) -> bool:
        return any(e.minibatched for e in self.energies)

    def value(self, omega: Array) -> Array:
        return sum(e.value(omega) for e in self.energies)

    def value_and_grad(self, omega: Array, *, key: Key | None = None) -> tuple[dict[str, Array], Array]:
        terms: dict[str, Array] = {}
        seen: Counter[str] = Counter()
        total: Array = 0
        for energy in self.energies:
            part, gradient = energy.value_and_grad(omega, key=key)
            total = total + gradient
            for name, value in part.items():
                seen[name] += 1
                terms[name if seen[name] == 1 else f"{name}_{seen[name]}"] = value
        return terms, total

    def gradient(self, omega: Array, *, key: Key | None = None) -> Array:
        return sum(e.gradient(omega, key=key) for e in self.energies)

    def diagnostics(self, omega: Array) -> dict[str, Array]:
        merged: dict[str, Array] = {}
        for energy in self.energies:
            merged.update(energy.diagnostics(omega))
        return merged

    def describe(self) -> dict[str, Any]:
        return {"name": "Sum", "energies": [e.describe() for e in self.energies]}


class Quadratic(Energy):
    """H = (1/N) sum_k sum_a stiffness_a (omega_ka - centre_a)^2 / 2, a trap.

    Parameters
    ----------
    stiffness : one number of at least 0, or one per coordinate.
    centre : one number, or one per coordinate.
    """

    term = "quadratic"

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
        return {"name": "Quadratic", "stiffness": np.asarray(self.stiffness).tolist(), "centre": np.asarray(self.centre).tolist()}


def _per_coordinate(value: Any, name: str) -> float | np.ndarray:
    if np.ndim(value) == 0:
        return real(value, name)
    value = as_float(value, name)
    if value.ndim != 1:
        raise ValueError(f"{name} must be one number or one per coordinate, got shape {value.shape}")
    return value.astype(np.float64)


def _like(omega: Array, value: float | np.ndarray, name: str, dim: int) -> Any:
    if isinstance(value, float):
        return value
    if value.shape != (dim,):
        raise ValueError(f"{name} must have {dim} numbers for omega of shape {tuple(omega.shape)}, got {len(value)}")
    xp = namespace(omega)
    return value.astype(omega.dtype) if xp is np else xp.as_tensor(value, dtype=omega.dtype, device=omega.device)


@dataclass(frozen=True)
class Riesz(Energy):
    """strength * W_N, W_N = 1/(2N(N-1)) sum_{k != l} g_s(omega_k - omega_l): a repulsion.

    g_s(w) = |w|^-s (s > 0), -log |w| (s = 0), -|w|^|s| (-2 < s < 0); the force is always repulsive. For s >= dim no mean-field limit
    exists (the continuum energy is infinite); finite systems are fine.

    Parameters
    ----------
    s : real number above -2, or "coulomb" for dim - 2.
    strength : lambda of the Coulomb paper, at least 0.
    softening : |w|^2 becomes |w|^2 + softening^2.
    length : distances are measured in this unit.
    mirror : also let omega_k repel -omega_l (k != l), as omega and -omega are one feature of a real kernel.

    Coincident pairs: for softening 0 and s >= 0 the energy is +inf and the pair exerts no force; otherwise both are exact.
    Raises OverflowError where distances or forces exceed the range of omega's dtype.
    """

    term: ClassVar[str] = "riesz"
    s: float | str
    strength: float
    softening: float = 0.0
    length: float = 1.0
    mirror: bool = False

    def __post_init__(self) -> None:
        if self.s != "coulomb":
            object.__setattr__(self, "s", real(self.s, "s"))
            if self.exponent(1) <= -2:
                raise ValueError(f"s must be greater than -2 or 'coulomb', got {self.s!r}")
        for name, zero in (("strength", True), ("softening", True), ("length", False)):
            object.__setattr__(self, name, positive(getattr(self, name), name, zero=zero))
        if not isinstance(self.mirror, bool):
            raise ValueError(f"mirror must be True or False, got {self.mirror!r}")

    def exponent(self, dim: int) -> float:
        """s as a number in dimension `dim`."""
        return dim - 2.0 if isinstance(self.s, str) else self.s

    def _evaluate(self, omega: Array, key: Key | None, want_value: bool) -> tuple[Array, Array]:
        n, s = omega.shape[-2], self.exponent(omega.shape[-1])
        total, gradient = riesz_sums(omega, s, softening=self.softening, length=self.length, mirror=self.mirror, energy=want_value)
        pairs = max(n - 1, 1)
        return total * (self.strength / (2 * n * pairs)), gradient * (self.strength / pairs)

    def diagnostics(self, omega: Array) -> dict[str, Array]:
        """coincident: pairs at distance 0; min_gap: smallest distance of a pair (with `mirror`, also of omega_k and -omega_l)."""
        coincident, gap = gaps(as_omega(omega), mirror=self.mirror)
        return {"coincident": coincident, "min_gap": gap}

    def describe(self) -> dict[str, Any]:
        fields = ("s", "strength", "softening", "length", "mirror")
        return {"name": "Riesz", **{f: getattr(self, f) for f in fields}}


_ELEMENTS = 2**23  # features of all chains that may exist at once


class _DataEnergy(Energy):
    """An energy of features on data rows; chains are taken a few at a time to bound the memory."""

    rows: Rows
    feature: Feature

    def _terms(self, omega: Array, key: Key | None, want_value: bool) -> tuple[Array, Array]:
        raise NotImplementedError

    def _evaluate(self, omega: Array, key: Key | None, want_value: bool) -> tuple[Array, Array]:
        per_chain = self.rows.mask.size * omega.shape[-2] * self.feature.width
        step = max(1, _ELEMENTS // per_chain)
        if omega.ndim == 2 or len(omega) <= step:
            return self._terms(omega, key, want_value)
        starts = range(0, len(omega), step)
        parts = [self._terms(omega[i : i + step], key and (key[0], key[1] + i, key[2]), want_value) for i in starts]
        xp = namespace(omega)
        return (xp.concatenate([p[0] for p in parts]) if want_value else 0.0), xp.concatenate([p[1] for p in parts])

    def _centred_features(self, omega: Array) -> tuple[Array, Callable[[Array], Array]]:
        """Centred features (..., group, member, feature) of all rows, and their pullback to omega."""
        x, factor, mask, _ = self.rows.like(omega)
        phi, pullback = self.feature.value_and_pullback(x.reshape(-1, x.shape[-1]), omega)
        return centred(grouped(phi, factor), mask), lambda cotangent: pullback(centred(cotangent, mask).reshape(phi.shape))

    def describe(self) -> dict[str, Any]:
        rows = self.rows
        data = {"n_rows": rows.n_rows, "n_groups": len(rows.x), "n_targets": rows.factor.shape[-1], "digest": rows.digest}
        return {"name": type(self).__name__, "feature": self.feature.describe(), "data": data}


class Alignment(_DataEnergy):
    """Minus the off-diagonal alignment of kernel and labels, linear in the particles' measure (Coulomb paper 2.2; exact form of A1.2).

    H = -1/P sum_{i != j} T_ij K_N(x_i, x_j), P = n(n-1) pairs, or the pairs inside groups. Particles do not interact through it.

    Parameters
    ----------
    x (n, dim), y : see `particles.alignment.target_factor`.
    feature : a Feature or its name; features normalised over the particles are refused, they are not linear in the measure.
    groups : (n,) integers; only pairs of rows of the same group count. Rows alone in their group are dropped.
    batch_size : rows (with groups: whole groups) that `value_and_grad` and `gradient` draw afresh for each chain and step; unbiased.
    centre, scale : see `target_factor`; `centre=False, scale=False` with labels -1, +1 is the paper's energy.

    Raises ValueError on inputs that do not fit.
    """

    term = "alignment"

    def __init__(
        self, x: Array, y: Array, feature: str | Feature, *, groups: Array | None = None, batch_size: int | None = None,
        centre: bool = True, scale: bool = True,
    ) -> None:  # fmt: skip
        self.feature = as_feature(feature)
        if self.feature.many_body:
            raise ValueError(
                f"feature must not be normalised over the particles, got {self.feature!r}; use QuadraticTarget or CentredAlignment"
            )
        self.rows = arrange(x, target_factor(y, centre=centre, scale=scale), groups)
        self.centre, self.scale, self.batch_size = centre, scale, batch_size
        available = len(self.rows.x) if groups is not None else self.rows.n_rows
        if batch_size is not None and count(batch_size, "batch_size", least=1 if groups is not None else 2) > available:
            raise ValueError(f"batch_size must be at most {available}, got {batch_size}")

    @property
    def minibatched(self) -> bool:
        return self.batch_size is not None

    def value(self, omega: Array) -> Array:
        full = copy(self)
        full.batch_size = None
        return full._evaluate(as_omega(omega), None, True)[0]

    def _terms(self, omega: Array, key: Key | None, want_value: bool) -> tuple[Array, Array]:
        x, factor, *_ = self.rows.like(omega)
        if self.batch_size is None:
            return self._on(x, factor, self.rows.n_pairs, omega, want_value)
        if key is None:
            raise ValueError("key must be given for a minibatched Alignment (batch_size is set), got None")
        return self._on(*self._batch(x, factor, key, omega), omega, want_value)

    def _batch(self, x: Array, factor: Array, key: Key, omega: Array) -> tuple[Array, Array, float]:
        """Each chain's own rows or groups, and the expected number of pairs among them."""
        from particles.random import choice

        axis = 0 if len(x) > 1 else 1
        size, total = self.batch_size or 0, x.shape[axis]
        chains = omega.shape[0] if omega.ndim == 3 else 1
        index = np.stack([choice((key[0], key[1] + c, key[2]), total, size) for c in range(chains)])
        batch = (x[index], factor[index]) if axis == 0 else (x[0, index][:, None], factor[0, index][:, None])
        expected = size * (size - 1) if axis else self.rows.n_pairs * size / total
        return (*(b if omega.ndim == 3 else b[0] for b in batch), expected)

    def _on(self, x: Array, factor: Array, pairs: float, omega: Array, want_value: bool) -> tuple[Array, Array]:
        """Terms on x (..., group, member, dim), normalised by `pairs`."""
        phi, pullback = self.feature.value_and_pullback(x.reshape(*x.shape[:-3], -1, x.shape[-1]), omega)
        flat = grouped(phi, factor)
        kept = off_diagonal(flat, factor)
        value = sum64(flat * kept, (-3, -2, -1)) / (-pairs * omega.shape[-2]) if want_value else 0.0
        return value, pullback(kept.reshape(phi.shape) * (-2.0 / pairs))

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"batch_size": self.batch_size, "centre": self.centre, "scale": self.scale}


class QuadraticTarget(_DataEnergy):
    """H = ||T - K_c||_F^2 / (2 n^2), K_c the kernel of the features centred over the n rows: the best kernel, not the best frequency.

    Convex in the measure; its pair term is a repulsion made by the data. With groups the norm runs over the pairs inside groups (i = j
    included) and n^2 is their number.

    Parameters
    ----------
    x (n, dim); target : symmetric (n, n) matrix, taken as it is, or labels as in `target_factor` (centred and scaled, kept as factors);
    feature, groups : as in `Alignment`, any feature.
    """

    term = "quadratic_target"

    def __init__(self, x: Array, target: Array, feature: str | Feature, *, groups: Array | None = None) -> None:
        self.feature, target = as_feature(feature), to_numpy(target)
        n = len(as_rows(x))
        matrix = as_float(target, "target") if target.shape == (n, n) else None
        if matrix is not None and not np.allclose(matrix, matrix.T, rtol=1e-6, atol=1e-12):
            raise ValueError("target must be symmetric when it is a matrix, got one that is not")
        self.rows = arrange(x, np.zeros((n, 0)) if matrix is not None else target_factor(target), groups, matrix)

    def _terms(self, omega: Array, key: Key | None, want_value: bool) -> tuple[Array, Array]:
        phi, pullback = self._centred_features(omega)
        _, factor, _, matrix = self.rows.like(omega)
        pairs, n = self.rows.n_pairs + self.rows.n_rows, omega.shape[-2]
        if matrix.shape[-1] or phi.shape[-2] < phi.shape[-1]:  # as members x members
            target = matrix if matrix.shape[-1] else factor @ factor.swapaxes(-1, -2)
            residual = target - phi @ phi.swapaxes(-1, -2) / n
            squares, slope = sum64(residual**2, (-3, -2, -1)), residual @ phi
        else:  # as features x features
            labels, gram = factor.swapaxes(-1, -2) @ phi, phi.swapaxes(-1, -2) @ phi / n
            squares = sum64((factor.swapaxes(-1, -2) @ factor) ** 2, (-3, -2, -1)) - 2 / n * sum64(labels**2, (-3, -2, -1))
            squares, slope = squares + sum64(gram**2, (-3, -2, -1)), factor @ labels - phi @ gram
        return squares / (2 * pairs), pullback(slope * (-2.0 / pairs))


class CentredAlignment(_DataEnergy):
    """H = -CKA = -<T, K_c> / (||T|| ||K_c||), T from labels, K_c the kernel of centred features (Cortes, Mohri, Rostamizadeh 2012).

    Normalised, so not linear in the measure: particles interact through it. Known to over-fit when used alone.
    Raises ValueError on inputs that do not fit, FloatingPointError where all centred features vanish.
    """

    term = "centred_alignment"

    def __init__(self, x: Array, y: Array, feature: str | Feature) -> None:
        self.feature = as_feature(feature)
        self.rows = arrange(x, target_factor(y))

    def _terms(self, omega: Array, key: Key | None, want_value: bool) -> tuple[Array, Array]:
        phi, pullback = self._centred_features(omega)
        factor = self.rows.like(omega)[1]
        labels, gram = factor.swapaxes(-1, -2) @ phi, phi.swapaxes(-1, -2) @ phi
        aligned, size = sum64(labels**2, (-3, -2, -1)), sum64(gram**2, (-3, -2, -1)) ** 0.5
        if not bool((size > 0).all()):
            raise FloatingPointError("CentredAlignment is undefined: all centred features are zero")
        scale = 1 / (float(np.linalg.norm(self.rows.factor[0].T @ self.rows.factor[0])) * size)
        first, second = (-2 * omega.shape[-2] * c[..., None, None, None] for c in (scale, scale * aligned / size**2))
        slope = first * (factor @ labels) - second * (phi @ gram)
        return -aligned * scale, pullback(slope.astype(omega.dtype) if isinstance(slope, np.ndarray) else slope.to(omega.dtype))
