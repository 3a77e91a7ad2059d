"""What labelled data ask of a kernel: targets as low-rank factors, rows arranged by group, and the sums over pairs of rows.

A target matrix is kept as T = F F^T with F (n, n_targets), so labels never cost n x n memory. Rows are arranged as (group, member) with
zero rows as padding, so that "only pairs of the same group" is one batched matrix product.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from particles.arrays import Array, as_float, is_torch, namespace


def to_numpy(array: Any, name: str) -> np.ndarray:
    """A NumPy array from anything array-like, torch tensors included; ValueError for ragged rows and masked values names the argument."""
    if np.ma.is_masked(array):
        raise ValueError(f"{name} must have no masked values, got {array!r}")
    try:
        return array.detach().cpu().numpy() if is_torch(array) else np.asarray(array)
    except ValueError:
        raise ValueError(f"{name} must be an array whose rows have one length, got {array!r}") from None


def as_rows(x: Any, name: str = "x") -> np.ndarray:
    """`x` as float (n, dim) with n >= 2; ValueError otherwise."""
    x = as_float(to_numpy(x, name), name)
    if x.ndim != 2 or x.shape[0] < 2 or x.shape[1] < 1:
        raise ValueError(f"{name} must have shape (n, dim) with at least 2 rows, got {x.shape}")
    return x.astype(np.float64)


def target_factor(y: Any, *, centre: bool = True, scale: bool = True, name: str = "y") -> np.ndarray:
    """F (n, n_targets) with target kernel T = F F^T.

    Parameters
    ----------
    y : (n,) labels: two distinct values become -1 and +1 in sorted order, more become one-hot columns (a 1-D array of more than two
        non-integer numbers is taken as one real target); or (n, n_targets) real columns, used as they are.
    centre : subtract the column means, which is the same as centring the kernel in <K, T>.
    scale : multiply by the number that makes the largest eigenvalue of T equal n; for one column: unit variance.
    name : what error messages call y.

    Raises
    ------
    ValueError
        If y has another shape, holds NaN or infinity, or leaves nothing to align with (a single class).
    """
    y = to_numpy(y, name)
    if y.ndim not in (1, 2) or y.size == 0:
        raise ValueError(f"{name} must have shape (n,) or (n, n_targets), got {y.shape}")
    factor = _one_hot(y, name) if y.ndim == 1 else as_float(y, name).astype(np.float64)
    largest = np.abs(factor).max()
    if centre:
        factor = factor - factor.mean(0)
    size = np.linalg.norm(factor, 2)
    if not size > 1e-12 * largest:
        raise ValueError(f"{name} must hold at least two different labels, got {np.unique(y)[:3].tolist()} for all {len(y)} rows")
    return factor * (np.sqrt(len(y)) / size) if scale else factor


def _one_hot(y: np.ndarray, name: str) -> np.ndarray:
    if y.dtype.kind in "fc":
        y = as_float(y, name)
    try:
        classes, index = np.unique(y, return_inverse=True)
    except TypeError:
        raise ValueError(f"{name} must hold labels of one kind, got dtype {y.dtype}") from None
    if len(classes) == 2:
        return 2.0 * index[:, None] - 1.0
    if y.dtype.kind == "f" and (classes != np.round(classes)).any():
        return y.astype(np.float64)[:, None]
    return np.eye(len(classes))[index]


@dataclass(frozen=True)
class Rows:
    """Data rows arranged as (group, member), padded with zero rows, ready for any back end.

    Attributes
    ----------
    x (group, member, dim), factor (group, member, n_targets), mask (group, member), matrix (group, member, member): a target given as a
    matrix, empty otherwise. n_rows, and n_pairs = number of ordered pairs of different rows of one group.
    """

    x: np.ndarray
    factor: np.ndarray
    mask: np.ndarray
    matrix: np.ndarray
    _cache: dict[Any, tuple] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def n_rows(self) -> int:
        """Rows in all groups."""
        return int(self.mask.sum())

    @property
    def n_pairs(self) -> int:
        """Ordered pairs of different rows of one group."""
        sizes = self.mask.sum(1)
        return int((sizes * (sizes - 1)).sum())

    @property
    def digest(self) -> str:
        """A short fingerprint of the data, for `describe`."""
        parts = b"".join(np.ascontiguousarray(a).tobytes() for a in (self.x, self.factor, self.mask, self.matrix))
        return hashlib.sha256(parts).hexdigest()[:16]

    def like(self, omega: Array) -> tuple[Array, Array, Array, Array]:
        """(x, factor, mask, matrix) in omega's library, dtype and device; kept for the next call."""
        place = ("torch", omega.dtype, omega.device) if is_torch(omega) else ("numpy", omega.dtype)
        if place not in self._cache:
            arrays = (self.x, self.factor, self.mask, self.matrix)
            xp = namespace(omega)
            if xp is np:
                self._cache[place] = tuple(a.astype(omega.dtype) for a in arrays)
            else:
                self._cache[place] = tuple(xp.as_tensor(a, dtype=omega.dtype, device=omega.device) for a in arrays)
        return self._cache[place]


def arrange(x: Any, factor: np.ndarray, groups: Any = None, matrix: np.ndarray | None = None, *, name: str = "y") -> Rows:
    """`Rows` from x (n, dim), factor (n, n_targets), integer `groups` (n,), matrix (n, n); a row alone in its group has no pair: dropped.

    Raises
    ------
    ValueError
        If lengths differ, groups are not integers, or no two rows share a group.
    """
    x = as_rows(x)
    if len(factor) != len(x):
        raise ValueError(f"{name} must have {len(x)} rows like x, got {len(factor)}")
    slots = group_slots(groups, len(x))
    mask = (slots >= 0).astype(np.float64)
    blocks = np.zeros((len(slots), 0, 0))
    if matrix is not None:
        blocks = matrix[slots[:, :, None], slots[:, None, :]] * mask[:, :, None] * mask[:, None, :]
    return Rows(x[slots] * mask[..., None], factor[slots] * mask[..., None], mask, blocks)


def group_slots(groups: Any, n: int) -> np.ndarray:
    """(group, member) indices of rows, -1 where a group is shorter than the longest."""
    if groups is None:
        return np.arange(n)[None]
    groups = to_numpy(groups, "groups")
    if groups.shape != (n,) or groups.dtype.kind not in "iu":
        raise ValueError(f"groups must be integers of shape ({n},), got dtype {groups.dtype} and shape {groups.shape}")
    _, index, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    kept = np.flatnonzero(sizes > 1)
    if not len(kept):
        raise ValueError(f"groups must put at least two rows into one group, got {n} rows in {len(sizes)} groups")
    slots = np.full((len(sizes), sizes.max()), -1)
    order = np.argsort(index, kind="stable")
    slots[index[order], np.arange(n) - np.repeat(np.cumsum(sizes) - sizes, sizes)] = order
    return slots[kept]


def grouped(phi: Array, factor: Array) -> Array:
    """phi (..., n, width, particle) as (..., group, member, width * particle), with factor's groups."""
    return phi.reshape(*phi.shape[:-3], *factor.shape[-3:-1], phi.shape[-2] * phi.shape[-1])


def off_diagonal(phi: Array, factor: Array) -> Array:
    """(F F^T - diag) phi within groups, (..., group, member, feature): each row meets all others of its group but itself."""
    return factor @ (factor.swapaxes(-1, -2) @ phi) - (factor * factor).sum(-1)[..., None] * phi


def centred(phi: Array, mask: Array) -> Array:
    """phi minus its mean over all rows, zero in the padding. Self-adjoint, so it also carries gradients back."""
    mask = mask[..., None]
    return mask * (phi - (mask * phi).sum((-3, -2))[..., None, None, :] / mask.sum())


def sum64(array: Array, axes: tuple[int, ...]) -> Array:
    """Sum over `axes`, accumulated in float64."""
    return array.sum(axes, dtype=namespace(array).float64)
