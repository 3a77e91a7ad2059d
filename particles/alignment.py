"""Energies that labelled data make: how well the kernel of the particles agrees with a target.

`Alignment` is linear in the particles' measure (an external potential); `ManyBodyAlignment`, `QuadraticTarget` and `CentredAlignment` are
not: particles interact through the kernel. Targets are low-rank factors (`particles.targets`), so labels never cost n x n memory.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np

from particles._fourier import alignment_sums
from particles.arrays import Array, as_float, as_omega, count, flag, namespace
from particles.domain import cast_like
from particles.energy import Energy
from particles.features import Feature, FourierPair, FourierPhase, as_feature
from particles.random import Key, as_key, choice
from particles.targets import Rows, arrange, as_rows, centred, grouped, off_diagonal, sum64, target_factor, to_numpy

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
        parts = [self._terms(omega[i : i + step], key and _of_chain(key, i), want_value) for i in starts]
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

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.feature!r}, {self.rows.n_rows} rows)"


def _of_chain(key: Key, offset: int) -> Key:
    """The key of the chain numbered `offset` after the key's first."""
    seed, chain, step = as_key(key)
    return seed, chain + offset, step


class _OffDiagonal(_DataEnergy):
    """H = -1/P sum_{i != j} T_ij K_N(x_i, x_j), whatever the feature: what `Alignment` and `ManyBodyAlignment` share."""

    def __init__(
        self, x: Array, y: Array, feature: str | Feature, *, groups: Array | None = None, batch_size: int | None = None,
        centre: bool = True, scale: bool = True,
    ) -> None:  # fmt: skip
        self.feature = self._accepted(as_feature(feature))
        self.rows = arrange(x, target_factor(y, centre=centre, scale=scale), groups)
        self.centre, self.scale, self.batch_size = flag(centre, "centre"), flag(scale, "scale"), batch_size
        available = len(self.rows.x) if groups is not None else self.rows.n_rows
        if batch_size is not None and count(batch_size, "batch_size", least=1 if groups is not None else 2) > available:
            raise ValueError(f"batch_size must be at most {available}, got {batch_size}")

    def _accepted(self, feature: Feature) -> Feature:
        raise NotImplementedError

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
        axis = 0 if len(x) > 1 else 1
        size, total = self.batch_size or 0, x.shape[axis]
        chains = omega.shape[0] if omega.ndim == 3 else 1
        index = np.stack([choice(_of_chain(key, c), total, size) for c in range(chains)])
        batch = (x[index], factor[index]) if axis == 0 else (x[0, index][:, None], factor[0, index][:, None])
        expected = size * (size - 1) if axis else self.rows.n_pairs * size / total
        return (*(b if omega.ndim == 3 else b[0] for b in batch), expected)

    def choices(self, omega: Array) -> dict[str, str]:
        """{term: "fused (numba)" or "matrix"}: how sums over rows and particles are taken."""
        return {self.term: "fused (numba)" if self._fused(omega) else "matrix"}

    def _fused(self, omega: Array) -> bool:
        """Whether one pass of `_fourier.alignment_sums` beats matrix products: few targets x dimensions (measured)."""
        most = {np.dtype(np.float64): 100, np.dtype(np.float32): 32}.get(omega.dtype, 0)
        return isinstance(self.feature, FourierPair | FourierPhase) and self.rows.factor.shape[-1] * omega.shape[-1] <= most

    def _on(self, x: Array, factor: Array, pairs: float, omega: Array, want_value: bool) -> tuple[Array, Array]:
        """Terms on x (..., group, member, dim), normalised by `pairs`."""
        if self._fused(omega):
            self.feature._check(x, omega)
            total, gradient = alignment_sums(x, factor, omega.reshape(-1, *omega.shape[-2:]), isinstance(self.feature, FourierPhase))
            return total.reshape(omega.shape[:-2]) / (-pairs * omega.shape[-2]), gradient.reshape(omega.shape) / -pairs
        phi, pullback = self.feature.value_and_pullback(x.reshape(*x.shape[:-3], -1, x.shape[-1]), omega)
        flat = grouped(phi, factor)
        kept = off_diagonal(flat, factor)
        value = sum64(flat * kept, (-3, -2, -1)) / (-pairs * omega.shape[-2]) if want_value else 0.0
        return value, pullback(kept.reshape(phi.shape) * (-2.0 / pairs))

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"batch_size": self.batch_size, "centre": self.centre, "scale": self.scale}


class Alignment(_OffDiagonal):
    """Minus the off-diagonal alignment of kernel and labels, linear in the particles' measure (Coulomb paper 2.2; exact form of A1.2).

    H = -1/P sum_{i != j} T_ij K_N(x_i, x_j), P = n(n-1) pairs, or the pairs inside groups. Particles do not interact through it.

    Parameters
    ----------
    x (n, dim), y : see `particles.targets.target_factor`.
    feature : a Feature or its name; features normalised over the particles are refused, they are not linear in the measure.
    groups : (n,) integers; only pairs of rows of the same group count. Rows alone in their group are dropped.
    batch_size : rows (with groups: whole groups) that `value_and_grad` and `gradient` draw afresh for each chain and step; unbiased.
    centre, scale : see `target_factor`; `centre=False, scale=False` with labels -1, +1 is the paper's energy.

    Raises ValueError on inputs that do not fit.
    """

    term, bodies = "alignment", 1

    def _accepted(self, feature: Feature) -> Feature:
        if feature.many_body:
            raise ValueError(f"feature must not be normalised over the particles, got {feature!r}; use ManyBodyAlignment")
        return feature


class ManyBodyAlignment(_OffDiagonal):
    """`Alignment` for features normalised over the particles: the same H, no longer linear in the measure.

    Each feature depends on all particles, so particles interact through the data and one particle alone feels nothing from it.
    Parameters and errors are those of `Alignment`; features of one particle are refused, they belong there.
    """

    term = "many_body_alignment"

    def _accepted(self, feature: Feature) -> Feature:
        if not feature.many_body:
            raise ValueError(f"feature must be normalised over the particles, got {feature!r}; use Alignment")
        return feature


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
        self.feature, target = as_feature(feature), to_numpy(target, "target")
        n = len(as_rows(x))
        matrix = as_float(target, "target") if target.shape == (n, n) else None
        if matrix is not None and not np.allclose(matrix, matrix.T, rtol=1e-6, atol=1e-12):
            raise ValueError("target must be symmetric when it is a matrix, got one that is not")
        factor = np.zeros((n, 0)) if matrix is not None else target_factor(target, name="target")
        self.rows = arrange(x, factor, groups, matrix, name="target")

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
    """H = -CKA = -<T, K_c> / (||T||_F ||K_c||_F): centred and normalised kernel-target alignment (Cortes, Mohri, Rostamizadeh 2012).

    T = F F^T of labels, K_c the kernel of features centred over the n rows; H lies in [-1, 0] and does not see the kernel's scale. Unlike
    `Alignment` it keeps the diagonal, and its denominator couples all particles: it is not linear in the measure. Known to over-fit
    when used alone, since narrow kernels shrink the denominator.

    Parameters
    ----------
    x (n, dim), y : as in `Alignment`, always centred. feature : any feature or its name.

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
        return -aligned * scale, pullback(cast_like(slope, omega))
