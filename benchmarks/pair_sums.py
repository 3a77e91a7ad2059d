"""The Coulomb pair sums (s = 1) as one would write them with other tools, for `benchmarks.particles`.

Each takes x (particle, dim) and returns (W_N, gradient of N W_N), W_N = 1/(2N(N-1)) sum over ordered pairs of 1/r, as `Riesz(1, 1.0)` does.
"""

from __future__ import annotations

import typing

import numpy as np
import torch
from numba import njit

Sums = tuple[float, np.ndarray]
FMM_UNIT = 4 * np.pi  # the library computes 1 / (4 pi r)


def _normalised(total: float, force: np.ndarray) -> Sums:
    """From the sum of 1/r and the vectors sum_j (x_i - x_j) / r^3."""
    n = len(force)
    return float(total) / (2 * n * (n - 1)), force / (1 - n)


@njit(cache=True)
@typing.no_type_check
def _loop(x, first, last, force):
    """The obvious double loop, for the rows first to last; returns their part of the energy."""
    n, dim = x.shape
    total = 0.0
    for i in range(first, last):
        for j in range(n):
            if i != j:
                r2 = 0.0
                for k in range(dim):
                    r2 += (x[i, k] - x[j, k]) ** 2
                r = np.sqrt(r2)
                total += 1 / r
                for k in range(dim):
                    force[i - first, k] += (x[i, k] - x[j, k]) / (r2 * r)
    return total


def numba_loop(x: np.ndarray) -> Sums:
    """A double loop over rows, compiled."""
    force = np.zeros_like(x)
    return _normalised(_loop(x, 0, len(x), force), force)


def some_gradients(x: np.ndarray, n_rows: int) -> np.ndarray:
    """The first rows of the gradient by the double loop in float64: the reference for large N."""
    force = np.zeros((n_rows, x.shape[1]))
    _loop(x.astype(np.float64), 0, n_rows, force)
    return force / (1 - len(x))


def numpy_broadcast(x: np.ndarray) -> Sums:
    """Differences of all pairs by broadcasting, 64 rows at a time (all at once would not fit)."""
    force, total = np.empty_like(x), 0.0
    for start in range(0, len(x), 64):
        delta = x[start : start + 64, None] - x
        r2 = (delta**2).sum(-1)
        r2[np.arange(len(r2)), np.arange(start, start + len(r2))] = np.inf
        total += (r2**-0.5).sum()
        force[start : start + 64] = (delta * r2[..., None] ** -1.5).sum(1)
    return _normalised(total, force)


def _from_distances(x: np.ndarray, r: np.ndarray) -> Sums:
    """The sums from the matrix of distances, whose diagonal is overwritten, and one matrix product."""
    np.fill_diagonal(r, np.inf)
    weight = r**-3.0
    return _normalised((1 / r).sum(), weight.sum(1)[:, None] * x - weight @ x)


def scipy_cdist(x: np.ndarray) -> Sums:
    """scipy's distances and one matrix product."""
    from scipy.spatial.distance import cdist

    return _from_distances(x, cdist(x, x))


def sklearn_distances(x: np.ndarray) -> Sums:
    """scikit-learn's distances, which expand |x - y|^2 and so lose close pairs in few dimensions, and one matrix product."""
    from sklearn.metrics.pairwise import euclidean_distances

    return _from_distances(x, euclidean_distances(x))


def torch_autograd(x: np.ndarray) -> Sums:
    """torch's distances and autograd; the faster matrix form of the distances, which loses close pairs, from 16 dimensions on."""
    n, leaf = len(x), torch.from_numpy(x).clone().requires_grad_()
    mode = "donot_use_mm_for_euclid_dist" if x.shape[1] < 16 else "use_mm_for_euclid_dist"
    r = torch.cdist(leaf, leaf, compute_mode=mode) + torch.diag(leaf.new_full((n,), torch.inf))
    energy = (1 / r).sum() / (2 * n * (n - 1))
    energy.backward()
    assert leaf.grad is not None
    return energy.item(), n * leaf.grad.numpy()


def fmm3d(x: np.ndarray, tolerance: float) -> Sums:
    """The fast multipole library alone (3 dimensions), at its own precision parameter."""
    import fmm3dpy

    out = fmm3dpy.lfmm3d(eps=tolerance, sources=np.ascontiguousarray(x.T), charges=np.ones(len(x)), pg=2)
    return _normalised(out.pot.sum() * FMM_UNIT, -out.grad.T * FMM_UNIT)
