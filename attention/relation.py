"""Energies of a relation "this query should attend to that key": what a head's kernel, as attention, has in common with it.

A relation is a table P (sequence, query, key) of nonnegative numbers whose rows are made to sum to 1: the keys of the same sequence that a
query should attend to, or a teacher's attention. Attention does not see a number added to a row of logits nor a factor of a kernel's row,
so what counts is the contrast D = P - U, U uniform on the keys that the query may see; <D, K> is the mean over queries of "kernel at the
keys to attend" minus "kernel at a random key". Pairs that are not allowed (padding, the future, other sequences) occur nowhere.

With B equally large bins and P = "same bin", D has largest singular value 1 and |keys| D is the centred label kernel whose top eigenvalue
is the number of rows. Other relations are multiplied by one number to the same size (root mean over sequences), so that the constants which
fit labels fit them too.

`AttendAlignment` is linear in the particles' measure. The others look at rows of attention, K / sum of its row, if the feature is
positive, and at the kernel itself if it is signed, as signed maps are used without a denominator.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from particles.arrays import Array, as_float, is_torch
from particles.energy import Energy
from particles.features import Feature, as_feature
from particles.random import Key, choice


class Pairs(NamedTuple):
    """q (sequence, query, dim), k (sequence, key, dim), their relation and the allowed pairs, both (sequence, query, key)."""

    q: np.ndarray
    k: np.ndarray
    attend: np.ndarray
    allowed: np.ndarray


class _RelationEnergy(Energy):
    """An energy of the kernels K (sequence, query, key) between the queries and keys of each sequence; NumPy particles only.

    Parameters
    ----------
    q (sequence, query, dim), k (sequence, key, dim) : float; what they hold at pairs that are not allowed changes nothing.
    attend : (sequence, query, key), boolean or nonnegative; rows are normalised, rows that are zero at all allowed pairs are left out, and
        so are rows that may see one key only.
    allowed : boolean, of the same shape; all pairs if None.
    feature : a Feature or its name.

    Raises
    ------
    ValueError
        If shapes differ, numbers are negative or not finite, or no row is left that prefers a key.
    """

    def __init__(self, q: Array, k: Array, attend: Array, feature: str | Feature, *, allowed: Array | None = None) -> None:
        self.feature = as_feature(feature)
        self.pairs = _checked(q, k, attend, allowed)
        self.contrast = self.pairs.attend - _uniform(self.pairs.allowed)
        self.n_queries = int(self.pairs.allowed.any(-1).sum())
        if not np.abs(self.contrast).max(initial=0.0) > 1e-12:
            raise ValueError("attend must prefer some of the keys that a query may see, got no such row")

    def _slope(self, kernel: np.ndarray, rows: Any) -> tuple[float, np.ndarray]:
        """H and dH/dK of the kernels of the sequences `rows`."""
        raise NotImplementedError

    def _rows(self, key: Key | None) -> Any:
        """The sequences that count in one evaluation."""
        return slice(None)

    def _evaluate(self, omega: Array, key: Key | None, want_value: bool) -> tuple[Array, Array]:
        if is_torch(omega):
            raise ValueError("omega must be a NumPy array for energies of a relation, got a torch tensor")
        chains = omega.reshape(-1, *omega.shape[-2:])
        parts = [self._chain(chain, self._rows(key and (key[0], key[1] + c, key[2]))) for c, chain in enumerate(chains)]
        values, gradients = (np.stack(part) for part in zip(*parts, strict=True))
        return values.reshape(omega.shape[:-2]), gradients.reshape(omega.shape).astype(omega.dtype)

    def _chain(self, omega: np.ndarray, rows: Any) -> tuple[np.float64, np.ndarray]:
        """H and the gradient of N H for one chain (particle, particle_dim)."""
        (phi_q, pull_q), (phi_k, pull_k) = (self._features(x[rows], omega) for x in self.pairs[:2])
        value, slope = self._slope(phi_q @ phi_k.swapaxes(-1, -2) / len(omega), rows)
        return np.float64(value), pull_q(slope @ phi_k) + pull_k(slope.swapaxes(-1, -2) @ phi_q)

    def _features(self, x: np.ndarray, omega: np.ndarray) -> tuple[np.ndarray, Any]:
        """phi (sequence, token, width * particle) and its pullback to omega."""
        phi, pullback = self.feature.value_and_pullback(x.reshape(-1, x.shape[-1]), omega)
        return phi.reshape(*x.shape[:2], -1), lambda cotangent: pullback(cotangent.reshape(phi.shape))

    def _attention(self, kernel: np.ndarray, rows: Any) -> tuple[np.ndarray, np.ndarray | None]:
        """(K on the allowed pairs, None) of a signed feature, (rows of attention, their sums) of a positive one."""
        kernel = np.where(self.pairs.allowed[rows], kernel, 0.0)
        if self.feature.signed:
            return kernel, None
        sums = kernel.sum(-1, keepdims=True)
        used = self.pairs.allowed[rows].any(-1, keepdims=True)
        if not ((sums > 0) | ~used).all() or not np.isfinite(sums).all():
            raise FloatingPointError(f"{type(self).__name__} needs rows of the kernel with a positive finite sum")
        return kernel / np.where(used, sums, 1.0), np.where(used, sums, 1.0)

    def describe(self) -> dict[str, Any]:
        data = {"n_sequences": len(self.pairs.q), "n_queries": self.n_queries, "n_pairs": int(self.pairs.allowed.sum())}
        return {"name": type(self).__name__, "feature": self.feature.describe(), "data": data}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.feature!r}, {len(self.pairs.q)} sequences)"


class AttendAlignment(_RelationEnergy):
    """H = -c <D, K>/(number of queries): the kernel at the keys to attend minus the kernel at a random key, a mean over queries.

    c makes the target as large as that of labels (see `attention.relation`). For features of one particle each it is linear in the
    measure, the counterpart of `particles.alignment.Alignment` for pairs of one sequence. `batch_size` sequences are drawn afresh for
    each chain and step, unbiased.
    """

    term = "attend_alignment"

    def __init__(
        self, q: Array, k: Array, attend: Array, feature: str | Feature, *, allowed: Array | None = None, batch_size: int | None = None
    ) -> None:
        super().__init__(q, k, attend, feature, allowed=allowed)
        if batch_size is not None and not 1 <= batch_size <= len(self.pairs.q):
            raise ValueError(f"batch_size must be at most {len(self.pairs.q)} sequences, got {batch_size!r}")
        self.batch_size, self.scale = batch_size, _scale(self.contrast, self.pairs.allowed)

    @property
    def minibatched(self) -> bool:
        """Whether a gradient is that of some sequences only and needs a key."""
        return self.batch_size is not None

    def value(self, omega: Array) -> Array:
        """H of all sequences, one number a chain, also where gradients are those of minibatches."""
        kept, self.batch_size = self.batch_size, None
        try:
            return super().value(omega)
        finally:
            self.batch_size = kept

    def _rows(self, key: Key | None) -> Any:
        if self.batch_size is None:
            return slice(None)
        if key is None:
            raise ValueError("key must be given for a minibatched AttendAlignment (batch_size is set), got None")
        return choice(key, len(self.pairs.q), self.batch_size)

    def _slope(self, kernel: np.ndarray, rows: Any) -> tuple[float, np.ndarray]:
        share = len(self.pairs.q) / (len(self.pairs.q) if self.batch_size is None else self.batch_size)
        slope = self.contrast[rows] * (-self.scale * share / self.n_queries)
        return float((slope * kernel).sum()), slope

    def describe(self) -> dict[str, Any]:
        """Name and settings as JSON values."""
        return super().describe() | {"batch_size": self.batch_size}


class CentredAttendAlignment(_RelationEnergy):
    """H = -<D, A>/(|D| |A_c|) in [-1, 1], A the rows of attention, A_c = A minus the mean of each row: scale free, many-body."""

    term = "centred_attend_alignment"

    def _slope(self, kernel: np.ndarray, rows: Any) -> tuple[float, np.ndarray]:
        attention, sums = self._attention(kernel, rows)
        centred = attention - _uniform(self.pairs.allowed) * attention.sum(-1, keepdims=True)
        size, wanted = np.linalg.norm(centred), np.linalg.norm(self.contrast)
        if not size > 0:
            raise FloatingPointError("CentredAttendAlignment is undefined: every row of the attention is uniform")
        aligned = (self.contrast * centred).sum() / (wanted * size)
        slope = aligned / size**2 * centred - self.contrast / (wanted * size)
        return -float(aligned), _through_rows(slope, attention, sums)


class AttendQuadratic(_RelationEnergy):
    """Half the squared distance of relation and attention: the best kernel of the family, not the best frequency.

    Positive features: |P - A|^2 / (2 |D|^2), 1/2 for uniform attention. Signed ones: |T - K_c|^2 / (2 pairs), T = c |keys| D, K_c the
    kernel minus the mean of each row; convex in the measure of features of one particle.
    """

    term = "attend_quadratic"

    def __init__(self, q: Array, k: Array, attend: Array, feature: str | Feature, *, allowed: Array | None = None) -> None:
        super().__init__(q, k, attend, feature, allowed=allowed)
        keys = self.pairs.allowed.sum(-1, keepdims=True)
        self.target = _scale(self.contrast, self.pairs.allowed) * keys * self.contrast

    def _slope(self, kernel: np.ndarray, rows: Any) -> tuple[float, np.ndarray]:
        attention, sums = self._attention(kernel, rows)
        uniform = _uniform(self.pairs.allowed)
        if sums is None:
            residual, size = attention - uniform * attention.sum(-1, keepdims=True) - self.target, float(self.pairs.allowed.sum())
        else:
            residual, size = attention - self.pairs.attend, float((self.contrast**2).sum())
        return float((residual**2).sum()) / (2 * size), _through_rows(residual / size, attention, sums)


class AttendDivergence(_RelationEnergy):
    """H = mean over queries of the divergence KL(P | A) of relation and rows of attention [nat]; positive features only."""

    term = "attend_divergence"

    def __init__(self, q: Array, k: Array, attend: Array, feature: str | Feature, *, allowed: Array | None = None) -> None:
        super().__init__(q, k, attend, feature, allowed=allowed)
        if self.feature.signed:
            raise ValueError(f"feature must be positive for a divergence of attention rows, got {self.feature!r}")
        share = self.pairs.attend
        self.entropy = -float((share * np.log(np.where(share > 0, share, 1.0))).sum())

    def _slope(self, kernel: np.ndarray, rows: Any) -> tuple[float, np.ndarray]:
        attention, sums = self._attention(kernel, rows)
        wanted = self.pairs.attend
        if not (attention[wanted > 0] > 0).all():
            raise FloatingPointError("AttendDivergence is infinite: attention underflows where the relation does not")
        ratio = np.divide(wanted, attention, out=np.zeros_like(wanted), where=wanted > 0)
        value = -(wanted * np.log(np.where(wanted > 0, attention, 1.0))).sum() - self.entropy
        return float(value) / self.n_queries, _through_rows(-ratio / self.n_queries, attention, sums)


def _through_rows(slope: np.ndarray, attention: np.ndarray, sums: np.ndarray | None) -> np.ndarray:
    """dH/dK from dH/dA: A is K itself (`sums` None, the slope being zero outside the allowed pairs) or K divided by the sum of its row."""
    return slope if sums is None else (slope - (slope * attention).sum(-1, keepdims=True)) * (attention > 0) / sums


def _uniform(allowed: np.ndarray) -> np.ndarray:
    """Rows that spread 1 evenly over the allowed keys; zero rows where there are none."""
    return allowed / np.maximum(allowed.sum(-1, keepdims=True), 1)


def _scale(contrast: np.ndarray, allowed: np.ndarray) -> float:
    """What makes the root mean over sequences of D's largest singular value that of equal bins, sqrt(queries / keys)."""
    queries, keys = allowed.any(-1).sum(-1), allowed.any(-2).sum(-1)
    used = queries > 0
    sizes = np.linalg.norm(contrast[used], 2, axis=(-2, -1))
    return float(np.sqrt(np.mean(queries[used] / keys[used]) / np.mean(sizes**2)))


def _checked(q: Array, k: Array, attend: Array, allowed: Array | None) -> Pairs:
    """The pairs in float64 with normalised rows, rows without a preference or a choice taken out of `allowed`."""
    q, k, attend = (as_float(np.asarray(a), name).astype(np.float64) for a, name in ((q, "q"), (k, "k"), (attend, "attend")))
    if q.ndim != 3 or k.ndim != 3 or q.shape[::2] != k.shape[::2] or attend.shape != (len(q), q.shape[1], k.shape[1]):
        raise ValueError(
            "q, k and attend must have shapes (sequence, query, dim), (sequence, key, dim) and (sequence, query, key), "
            f"got {q.shape}, {k.shape} and {attend.shape}"
        )
    allowed = np.ones(attend.shape, bool) if allowed is None else np.asarray(allowed)
    if allowed.dtype != bool or allowed.shape != attend.shape:
        raise ValueError(f"allowed must be boolean of shape {attend.shape}, got {allowed.dtype} {allowed.shape}")
    attend = np.where(allowed, attend, 0.0)
    if (attend < 0).any():
        raise ValueError(f"attend must be at least 0, got a smallest of {attend.min()}")
    sums = attend.sum(-1, keepdims=True)
    allowed = allowed & (sums > 0) & (allowed.sum(-1, keepdims=True) > 1)
    return Pairs(q, k, np.where(allowed, attend / np.where(sums > 0, sums, 1.0), 0.0), allowed)
