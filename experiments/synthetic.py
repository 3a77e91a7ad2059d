"""Labelled data whose relevant directions are hidden by a random rotation, and a control where nothing is hidden."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from particles.arrays import count, real

N_CALIBRATION = 20_000  # points that fix the median of a rule, so that its two classes are equally likely


class Data(NamedTuple):
    """A training part with label noise and a test part with and without it; x (n, dim), labels (n,) integers 0 and 1."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    y_test_noisy: np.ndarray


def check_sizes(name: str, n: int, n_test: int, dim: int, flips: float) -> None:
    """ValueError for a task that `make_task` cannot draw."""
    if name not in TASKS:
        raise ValueError(f"name must be one of {sorted(TASKS)}, got {name!r}")
    for value, argument, least in ((n, "n", 2), (n_test, "n_test", 1), (dim, "dim", TASKS[name][1])):
        count(value, argument, least=least)
    if not 0 <= real(flips, "flips") <= 0.5:
        raise ValueError(f"flips must lie in [0, 0.5], got {flips!r}")


def make_task(
    name: str,
    *,
    n: int = 1000,
    dim: int = 20,
    flips: float = 0.1,
    n_test: int = 2000,
    permuted: bool = False,
    rng: int | np.random.Generator,
) -> Data:
    """One draw of a synthetic task: inputs x ~ N(0, I), rule applied to z = R x with a random rotation R.

    The label says whether a score of z exceeds its median (so the classes are balanced); the scores are
    cos1: cos(2 z_1 + 1/2). ring3: |z_1..3|^2. xor2: z_1 z_2. bands: a sum of six cosines with frequencies of norm 1.2 to 2.2
    in six hidden dimensions. iso: a smooth isotropic random function of all dimensions (control: the Gaussian kernel is right).

    Parameters
    ----------
    n, n_test, dim : sizes; ring3 needs dim >= 3, xor2 dim >= 2, bands dim >= 6.
    flips : probability that a label is flipped, in [0, 1/2]; `y` and `y_test_noisy` carry flips, `y_test` does not.
    permuted : permute the training labels, the negative control.

    Raises
    ------
    ValueError
        On an unknown name, sizes below their minimum, or `flips` outside [0, 1/2].
    """
    check_sizes(name, n, n_test, dim, flips)
    build = TASKS[name][0]
    rng = np.random.default_rng(rng)
    score = build(dim, rng)
    rotation = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    threshold = np.median(score(rng.standard_normal((N_CALIBRATION, dim))))
    x, x_test = rng.standard_normal((n, dim)), rng.standard_normal((n_test, dim))
    clean, y_test = ((score(points @ rotation.T) > threshold).astype(np.int64) for points in (x, x_test))
    y, noisy = (labels ^ (rng.random(len(labels)) < flips) for labels in (clean, y_test))
    return Data(x, rng.permutation(y) if permuted else y, x_test, y_test, noisy)


Score = Callable[[np.ndarray], np.ndarray]  # z (n, dim) -> (n,); a label is whether the score exceeds its median


def _cos1(dim: int, rng: np.random.Generator) -> Score:
    return lambda z: np.cos(2 * z[:, 0] + 0.5)


def _ring3(dim: int, rng: np.random.Generator) -> Score:
    return lambda z: (z[:, :3] ** 2).sum(1)


def _xor2(dim: int, rng: np.random.Generator) -> Score:
    return lambda z: z[:, 0] * z[:, 1]


def _bands(dim: int, rng: np.random.Generator) -> Score:
    directions = rng.standard_normal((6, 6))
    frequencies = directions / np.linalg.norm(directions, axis=1, keepdims=True) * rng.uniform(1.2, 2.2, (6, 1))
    phases = rng.uniform(0, 2 * np.pi, 6)
    return lambda z: np.cos(z[:, :6] @ frequencies.T + phases).sum(1)


def _iso(dim: int, rng: np.random.Generator) -> Score:
    """A draw of a Gaussian process with the Gaussian kernel of length scale sqrt(2 dim), the usual distance of two inputs."""
    frequencies = rng.standard_normal((512, dim)) / np.sqrt(2 * dim)
    phases = rng.uniform(0, 2 * np.pi, 512)
    return lambda z: np.cos(z @ frequencies.T + phases).sum(1)


TASKS: dict[str, tuple[Callable[[int, np.random.Generator], Score], int]] = {
    "cos1": (_cos1, 1),
    "ring3": (_ring3, 3),
    "xor2": (_xor2, 2),
    "bands": (_bands, 6),
    "iso": (_iso, 1),
}
