"""How each row of the in-context matching table gets its kernel: the map, where its particles start, and Phase A.

Phase A sees what end-to-end training sees: the target of a pair of tokens of one sequence is whether they have the same label; pairs of
different sequences are left out, because their labels are not comparable. It runs in standardised units: attention scales tokens by
dim^(-1/4) before the map, so omega in a feature map is dim^(1/4) times omega for the tokens themselves.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attention.feature_map import FeatureMap, feature_map
from experiments.matching_rules import Sequences
from particles.alignment import Alignment, QuadraticTarget
from particles.domain import Ball
from particles.energy import Energy, Quadratic
from particles.features import Feature, FourierPair, FourierPhase
from particles.langevin import Langevin
from particles.riesz import Riesz
from particles.simulate import simulate, uninterrupted

FEATURES: Mapping[str, Feature] = {"fourier": FourierPair(), "phase": FourierPhase()}  # maps whose particles Phase A can move
SHARED_START = ("fourier", "phase", "flexformer", "flexformer-nonstationary")  # maps that start from the seed's common frequencies


class Method(NamedTuple):
    """How the kernel of a row comes about.

    `width` multiplies the start N(0, I) of the frequencies; `aligned` is the target of Phase A ("subspace": no Phase A, but the start of
    somebody who knows where the rule looks), `objective` its energy and `repelled` whether it holds a repulsion; `spread` is the weight of
    a log repulsion in the training loss; `front` a trained map of the tokens before softmax; `lr` and `steps` are factors of the
    training's; `normalise` None means "sum" for positive maps, "count" for signed, and "none" divides by
    nothing.
    """

    name: str = "fourier"
    width: float = 1.0
    aligned: str | None = None
    learned: bool = False
    objective: str = "linear"
    repelled: bool = True
    spread: float = 0.0
    front: str | None = None
    lr: float = 1.0
    steps: float = 1.0
    normalise: str | None = None
    constant: float = 0.0


CORE = {
    "softmax": Method("softmax"),
    "favor": Method("favor"),
    "fixed": Method(),
    "end to end": Method(learned=True),
    "end to end, half width": Method(width=0.5, learned=True),
    "end to end, quarter width": Method(width=0.25, learned=True),
    "align": Method(aligned="labels"),
    "align, unfreeze": Method(aligned="labels", learned=True),
    "shuffled": Method(aligned="shuffled"),
    "shuffled, unfreeze": Method(aligned="shuffled", learned=True),
}
CONTROLS = {
    "align, no repulsion": Method(aligned="labels", repelled=False),
    "align quadratic": Method(aligned="labels", objective="quadratic"),
    "align quadratic, unfreeze": Method(aligned="labels", objective="quadratic", learned=True),
    "end to end, triple rate": Method(learned=True, lr=3.0),
    "end to end, triple steps": Method(learned=True, steps=3.0),
    "end to end, repulsion in the loss": Method(learned=True, spread=0.01),
    "end to end, constant feature": Method(learned=True, normalise="sum", constant=1.0),
    "favor, end to end": Method("favor", learned=True),
    "softmaxfeat, end to end": Method("softmaxfeat", learned=True),
    "hedgehog, end to end": Method("hedgehog", learned=True),
    "hedgehog-softmax, end to end": Method("hedgehog-softmax", learned=True),
    "flexformer, literal": Method("flexformer", learned=True, normalise="sum"),
    "flexformer-nonstationary": Method("flexformer-nonstationary", learned=True),
    "phase, end to end": Method("phase", learned=True),
    "phase, end to end, half width": Method("phase", width=0.5, learned=True),
    "phase, align": Method("phase", aligned="labels"),
    "phase, align, unfreeze": Method("phase", aligned="labels", learned=True),
    "phase, align quadratic": Method("phase", aligned="labels", objective="quadratic"),
    "phase, shuffled, unfreeze": Method("phase", aligned="shuffled", learned=True),
    "known subspace, end to end": Method(aligned="subspace", learned=True),
    "softmax, linear projection": Method("softmax", front="linear"),
    "softmax, two-layer projection": Method("softmax", front="mlp"),
    "known rule": Method("known"),
}
UNDIVIDED = {  # a kernel that sums over its keys, so that training starts from logits 32 times as large
    f"{name}, undivided": CORE[name]._replace(normalise="none")
    for name in (*(name for name in CORE if name.startswith("end to end")), "align, unfreeze", "shuffled, unfreeze")
}
METHODS = CORE | CONTROLS | UNDIVIDED


class Starts:
    """Frequencies to start from, in standardised units; they depend on the seed only, and each Phase A is run once."""

    def __init__(self, dim: int, n_features: int, n_align: int, train: Sequences, seed: int) -> None:
        rng = np.random.default_rng([seed, 2])
        self.dim, self.n_features, self.n_align, self.train = dim, n_features, n_align, train
        self.omega = rng.standard_normal((n_features // 2, dim)) * dim**-0.25
        self.key, self.order = (int(value) for value in rng.integers(2**31, size=2))
        more = rng.standard_normal((n_features - n_features // 2, dim)) * dim**-0.25
        self.phases = rng.uniform(0, 2 * np.pi, n_features)
        self.twice = np.concatenate((self.omega, more))
        self.aligned: dict[Method, tuple[np.ndarray, float]] = {}

    def take(self, method: Method) -> tuple[np.ndarray, float]:
        """The start (particle, particle_dim) of a method and the seconds that Phase A took."""
        start = self._drawn(method)
        if method.aligned is None:
            return start, 0.0
        key = method._replace(learned=False)
        if key not in self.aligned:
            started = time.perf_counter()
            known = method.aligned == "subspace"
            omega = in_subspace(start, self.train) if known else align(start, self.train, self.n_align, self.key, method=method)
            self.aligned[key] = omega, time.perf_counter() - started
        return self.aligned[key]

    def feature_map(self, method: Method, omega: np.ndarray) -> FeatureMap:
        """The map whose frequencies for the tokens themselves are `omega`; maps with a start of their own draw it from the seed."""
        build = partial(feature_map, method.name, dim=self.dim)
        if method.name not in SHARED_START:
            return build(n_features=self.n_features, generator=torch.Generator().manual_seed(self.key))
        units = np.full(omega.shape[-1], self.dim**0.25)
        if method.name == "phase":
            units[-1] = 1.0
        if method.constant:
            return build(n_features=self.n_features + 1, omega=(omega * units)[None], constant_feature=method.constant)
        return build(n_features=self.n_features, omega=(omega * units)[None])

    def _drawn(self, method: Method) -> np.ndarray:
        if method.name == "phase":
            return np.column_stack((self.twice * method.width, self.phases))
        pairs = self.omega * method.width
        return np.concatenate((pairs, pairs), -1) if method.name == "flexformer-nonstationary" else pairs


def in_subspace(omega: np.ndarray, data: Sequences) -> np.ndarray:
    """Frequencies (particle, dim) turned into the hidden subspace at the lengths they have: the most that a start can know."""
    axes = data.rotation[: data.relevant].double().numpy()
    inside = omega @ axes.T @ axes
    return inside * np.linalg.norm(omega, axis=1, keepdims=True) / np.linalg.norm(inside, axis=1, keepdims=True)


def align(
    omega: np.ndarray, data: Sequences, n_steps: int, key: int, *, shuffled: bool = False, method: Method | None = None
) -> np.ndarray:
    """Phase A: particles (particle, particle_dim) in standardised units moved to align the kernel with "same label" within sequences.

    `shuffled`, or a method aligned with "shuffled", permutes the labels within each sequence, the negative control. Constants are those
    of the estimator: confinement .02, log repulsion lam = .01, step 2, beta 1000, a ball of radius 4 (and 2 pi for a phase).
    """
    method = Method() if method is None else method
    x, y, groups = tokens(data)
    if shuffled or method.aligned == "shuffled":
        rng = np.random.default_rng(key)
        y = rng.permuted(y.reshape(len(data.context), -1), axis=1).ravel()
    feature = FEATURES[method.name]
    domain = Ball(4.0 if method.name == "fourier" else math.hypot(4.0, 2 * math.pi), omega.shape[1])
    energy = _energy(method, x, y, groups, feature, len(omega))
    path = simulate(domain.project(omega), energy, domain, Langevin(2.0, 1000.0), n_steps=n_steps, save_every=n_steps, rng=key)
    return uninterrupted(path)["omega"].values[0, -1]


def _energy(method: Method, x: np.ndarray, y: np.ndarray, groups: np.ndarray, feature: Feature, n_particles: int) -> Energy:
    """Alignment, confinement and repulsion; the quadratic target repels by itself and is confined half as strongly."""
    if method.objective == "quadratic":
        return QuadraticTarget(x, y, feature, groups=groups) + Quadratic(0.01)
    energy = Alignment(x, y, feature, groups=groups) + Quadratic(0.02)
    strength = 0.02 * (n_particles - 1) / n_particles
    return energy + Riesz(0.0, strength, softening=0.05, mirror=method.name == "fourier") if method.repelled else energy


def tokens(data: Sequences) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All tokens (n, dim) float64 with their labels and the number of their sequence (n,)."""
    x, labels = torch.cat((data.context, data.query), 1), torch.cat((data.context_label, data.query_label), 1)
    groups = np.repeat(np.arange(len(x)), x.shape[1])
    return x.flatten(0, 1).double().numpy(), labels.flatten().numpy(), groups


def log_repulsion(omega: Tensor) -> Tensor:
    """Mean of -log |w - w'| over pairs of particles and mirror images, (heads, particle, dim) -> scalar; for a training loss."""
    both = torch.cat((omega, -omega), -2)
    distance = (torch.cdist(omega, both).square() + 0.05**2).sqrt()
    itself = torch.eye(omega.shape[-2], 2 * omega.shape[-2], dtype=torch.bool, device=omega.device)
    return -distance.log().masked_fill(itself, 0.0).mean()
