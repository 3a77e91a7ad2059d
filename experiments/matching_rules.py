"""The sequences of the in-context matching task: hidden rules, their draws, and the kernel that knows the rule.

A rule puts every token z (after a rotation that is hidden) in one of a few bins; every sequence names the bins anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

N_CALIBRATION = 20_000  # points that fix the median of ring3
ISO_SPREAD = 0.65  # standard deviation within a cluster of iso; a token's total variance is 1
RING_MEDIAN = 2.3659738843753377  # of |z|^2 in 3 dimensions

Rule = Callable[[np.ndarray, np.ndarray], np.ndarray]  # rotated tokens (..., dim), calibration points (n, dim) -> bins (...)


class Sequences(NamedTuple):
    """context, query (sequence, token, dim); their labels (sequence, token) int64; the number of labels; the hidden rotation (dim, dim);
    `relevant`, how many of the rotated coordinates decide the bin."""

    context: Tensor
    context_label: Tensor
    query: Tensor
    query_label: Tensor
    n_labels: int
    rotation: Tensor
    relevant: int

    def take(self, rows: Tensor | slice) -> Sequences:
        """Some of the sequences."""
        return self._replace(
            context=self.context[rows],
            context_label=self.context_label[rows],
            query=self.query[rows],
            query_label=self.query_label[rows],
        )


def make_sequences(task: str, n_sequences: int, n_tokens: int, dim: int, rng: np.random.Generator) -> Sequences:
    """Sequences of one draw of a task; in "iso" the bins are four Gaussian clusters drawn anew in each sequence, and nothing is rotated."""
    n_bins, rule = RULES[task]
    shape = (n_sequences, 2 * n_tokens)
    tokens, rotation = rng.standard_normal((*shape, dim)), np.eye(dim)
    if rule is None:
        bins = rng.integers(n_bins, size=shape)
        centres = rng.standard_normal((n_sequences, n_bins, dim)) * math.sqrt(1 - ISO_SPREAD**2)
        tokens = np.take_along_axis(centres, bins[..., None], 1) + ISO_SPREAD * tokens
    else:
        rotation = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
        bins = rule(tokens @ rotation.T, rng.standard_normal((N_CALIBRATION, dim)))
    permutations = rng.permuted(np.tile(np.arange(n_bins), (n_sequences, 1)), axis=1)
    x = torch.from_numpy(tokens.astype(np.float32))
    labels = torch.from_numpy(np.take_along_axis(permutations, bins, 1))
    turn = torch.from_numpy(rotation.astype(np.float32))
    relevant = RELEVANT.get(task, dim)
    return Sequences(x[:, :n_tokens], labels[:, :n_tokens], x[:, n_tokens:], labels[:, n_tokens:], n_bins, turn, relevant)


def known_kernel(task: str, rotation: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """The kernel of somebody who knows the rule, (..., query, key): the rule's first harmonics (phase, multi), the product of the
    function whose sign or size is the bin (xor2, ring3), or the Gaussian kernel of the clusters (iso)."""
    z, w = q @ rotation.mT, k @ rotation.mT
    if task == "iso":
        return torch.exp(-torch.cdist(z, w).square() / (4 * ISO_SPREAD**2))
    if task in ("phase", "multi"):
        gaps = z[..., :, None, :2] - w[..., None, :, :2]
        return torch.cos(2 * gaps[..., : 1 + (task == "multi")]).sum(-1)
    value = (lambda x: x[..., 0] * x[..., 1]) if task == "xor2" else (lambda x: x[..., :3].square().sum(-1) - RING_MEDIAN)
    return torch.tanh(value(z))[..., :, None] * torch.tanh(value(w))[..., None, :]


def _phase(z: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Four quarter turns of the phase 2 z_1."""
    return np.floor(2 * z[..., 0] / (np.pi / 2)).astype(np.int64) % 4


def _multi(z: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The signs of sin 2 z_1 and sin 2 z_2: two modes, four bins."""
    return 2 * (np.sin(2 * z[..., 0]) > 0).astype(np.int64) + (np.sin(2 * z[..., 1]) > 0)


def _ring3(z: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Whether |z_1..3|^2 is above its median."""
    return ((z[..., :3] ** 2).sum(-1) > np.median((points[:, :3] ** 2).sum(-1))).astype(np.int64)


def _xor2(z: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The sign of z_1 z_2."""
    return (z[..., 0] * z[..., 1] > 0).astype(np.int64)


RELEVANT = {"phase": 1, "multi": 2, "ring3": 3, "xor2": 2}  # rotated coordinates that the bin depends on; all of them elsewhere
RULES: dict[str, tuple[int, Rule | None]] = {
    "phase": (4, _phase),
    "multi": (4, _multi),
    "ring3": (2, _ring3),
    "xor2": (2, _xor2),
    "iso": (4, None),
}
