"""Sums over pairs of particles, of the terms that a run describes: the definition, in blocks. Nothing is shared with the simulation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from theory.arrays import FloatArray

__all__ = ["chord", "exponent", "pair_blocks", "pair_energy", "pair_force"]

PAIR_BLOCK = 100_000  # pairs formed at once


def exponent(term: dict[str, Any], dim: int) -> float:
    """The exponent of a Riesz term as a number."""
    return float(dim - 2) if term["s"] == "coulomb" else float(term["s"])


def pair_force(x: FloatArray, term: dict[str, Any], s: float) -> FloatArray:
    """-strength/(N-1) sum over l != k of grad g_s(x_k - x_l), and of g_s(x_k + x_l) if mirrored; (..., particle, dim), in blocks."""
    frames = x.reshape(-1, *x.shape[-2:])
    total = np.zeros_like(frames)
    for block, k, gap, square in pair_blocks(frames, term.get("period"), mirror=bool(term.get("mirror"))):
        square = square + float(term.get("softening", 0.0)) ** 2
        square[(square == 0) | (square < (term.get("truncation") or 0.0) ** 2)] = np.inf  # coincident, or truncated: no force
        factor = 1 / square if s == 0 else abs(s) * square ** (-s / 2 - 1) * float(term.get("length", 1.0)) ** s
        total[block, k] += np.einsum("fkl,fkld->fkd", factor, gap)
    return float(term["strength"]) / max(x.shape[-2] - 1, 1) * total.reshape(x.shape)


def pair_energy(x: FloatArray, term: dict[str, Any], s: float) -> FloatArray:
    """strength/(2N(N-1)) sum over k != l of g_s(x_k - x_l), and of g_s(x_k + x_l) if mirrored; (...), in blocks."""
    n, frames = x.shape[-2], x.reshape(-1, *x.shape[-2:])
    total = np.zeros(len(frames))
    for block, _, _, square in pair_blocks(frames, term.get("period"), mirror=bool(term.get("mirror"))):
        itself = np.isinf(square)
        square = np.maximum(square + float(term.get("softening", 0.0)) ** 2, (term.get("truncation") or 0.0) ** 2)
        square = np.where(itself, 1.0, square / float(term.get("length", 1.0)) ** 2)
        with np.errstate(divide="ignore"):
            g = -np.log(square) / 2 if s == 0 else np.sign(s) * square ** (-s / 2)
        total[block] += np.where(itself, 0.0, g).sum((1, 2))
    return float(term["strength"]) / (2 * n * max(n - 1, 1)) * total.reshape(x.shape[:-2])


def pair_blocks(
    frames: FloatArray, period: Any = None, *, mirror: bool = False
) -> Iterator[tuple[slice, FloatArray, FloatArray, FloatArray]]:
    """Blocks of all ordered pairs of frames (frame, particle, dim): frames, numbers k, `chord` of x_k - x_l (and of x_k + x_l).

    The squared distances (frame, k, l) are new arrays, infinite for k = l.
    """
    n = frames.shape[-2]
    rows, depth = max(1, PAIR_BLOCK // n), max(1, PAIR_BLOCK // n**2)
    for i, j in np.ndindex(-(-len(frames) // depth), -(-n // rows)):
        part, k = slice(i * depth, (i + 1) * depth), np.arange(j * rows, min((j + 1) * rows, n))
        for sign in (-1, 1) if mirror else (-1,):
            gap, square = chord(frames[part, k, None] + sign * frames[part, None], period)
            square[:, np.arange(len(k)), k] = np.inf
            yield part, k, gap, square


def chord(gap: FloatArray, period: Any) -> tuple[FloatArray, FloatArray]:
    """Half the gradient of the squared distance, (..., dim), and the squared distance (...); on a torus the distance is the chord's."""
    if period is None:
        return gap, np.sum(gap**2, axis=-1)
    turn = np.asarray(period, float) / np.pi
    return turn / 2 * np.sin(2 * gap / turn), np.sum((turn * np.sin(gap / turn)) ** 2, axis=-1)
