"""Algorithm 2 of the Coulomb paper: after the run, draw the kernel's frequencies from the particles by their Gibbs weights.

The paper does not say what the energy of one particle is. Here it is what the particle feels in the field of the others,
H(omega_k) = V(omega_k) + strength / (N - 1) sum_{l != k} g(omega_k - omega_l): its gradient is the drift, the gradient of N H_N.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float

from particles import random
from particles.arrays import Array, as_float, as_omega, count, is_torch, namespace, positive
from particles.energy import Energy, Sum
from particles.riesz import Riesz
from particles.targets import to_numpy

METHODS = ("multinomial", "systematic")
_LARGE = 1e300  # stands for beta = inf
_SYSTEMS = 2**18  # two-particle systems evaluated at once


def particle_energies(omega: Array, energy: Energy) -> Array:
    """H(omega_k) = V(omega_k) + mean over l != k of w(omega_k, omega_l): the energy of each particle in the field of the others.

    omega (particle, dim) or (chain, particle, dim) gives float64 (particle,) or (chain, particle), NumPy or torch like omega.
    Exact for sums of external energies (`bodies` 1: V is the energy of a system of one particle) and pair energies (`bodies` 2: w is
    twice the energy of a system of two). Sum over particles = N H_N + its pair part, as every pair is seen from both ends.
    The cost is N^2 evaluations of two particles: 3 s for 4,000 particles.

    Raises
    ------
    ValueError
        If a part of the energy couples all particles, so that one particle has no energy of its own.
    """
    omega = as_omega(omega)
    omega = omega.detach() if is_torch(omega) else omega
    parts = energy.energies if isinstance(energy, Sum) else (energy,)
    for part in parts:
        if not isinstance(part, Energy) or part.bodies not in (1, 2):
            raise ValueError(f"energy must be a sum of external and pair energies, whose `bodies` is 1 or 2, got {part!r}")
    return sum(_external(omega, part) if part.bodies == 1 else _pairwise(omega, part) for part in parts)


def _external(omega: Float[Array, "*chain particle dim"], energy: Any) -> Float[Array, "*chain particle"]:
    """V of each particle: the energies of systems of one particle."""
    return energy.value(omega.reshape(-1, 1, omega.shape[-1])).reshape(omega.shape[:-1])


def _pairwise(omega: Float[Array, "*chain particle dim"], energy: Any) -> Float[Array, "*chain particle"]:
    """Mean over l != k of twice the energy of the system (k, l), some rows k at a time."""
    energy = replace(energy, method="direct") if isinstance(energy, Riesz) else energy  # two particles are no work for a tree
    xp, n = namespace(omega), omega.shape[-2]
    stacked = omega.reshape(-1, n, omega.shape[-1])
    if n == 1:
        return energy.value(omega)[..., None]
    partners = (np.arange(n)[:, None] + np.arange(1, n)) % n
    rows = max(1, _SYSTEMS // (n * len(stacked)))
    means = []
    for k in range(0, n, rows):
        others = stacked[:, partners[k : k + rows]]
        systems = xp.stack([xp.broadcast_to(stacked[:, k : k + rows, None], others.shape), others], -2)
        values = energy.value(systems.reshape(-1, 2, omega.shape[-1]))
        means.append(2 * values.reshape(others.shape[:-1]).mean(-1))
    return xp.concatenate(means, -1).reshape(omega.shape[:-1])


def gibbs_weights(omega: Array, energy: Energy, beta: float) -> Array:
    """exp(-beta H(omega_k)) / sum over the particles of a chain: Algorithm 2's weights; H, and shapes, as in `particle_energies`.

    beta may be `float("inf")`: all weight on the particles of least energy. A particle of infinite energy (coincident with another
    under a bare repulsion) has weight 0.

    Raises
    ------
    ValueError
        If beta is not positive, energies are NaN or -inf, or all of a chain's are infinite.
    """
    beta = math.inf if isinstance(beta, float) and beta == math.inf else positive(beta, "beta")
    energies = particle_energies(omega, energy)
    xp = namespace(energies)
    lowest = xp.amin(energies, -1)[..., None]
    if not bool(xp.isfinite(lowest).all()):
        raise ValueError(f"energy must give each chain a particle of finite energy, and none NaN or -inf; the lowest are {lowest[..., 0]}")
    with np.errstate(over="ignore"):
        weights = xp.exp(-min(beta, _LARGE) * (energies - lowest))
    return weights / weights.sum(-1)[..., None]


def resample(
    omega: Array,
    weights: Any,
    n: int,
    rng: int | np.random.Generator,
    *,
    method: str = "multinomial",
    return_index: bool = False,
) -> Any:
    """`n` particles drawn with replacement by their weights, (n, dim) or (chain, n, dim), in omega's type and dtype.

    Particle k comes n weights_k / sum(weights) times on average, so that any sum over particles keeps its expectation.

    Parameters
    ----------
    weights
        Numbers of at least 0, (particle,) or (chain, particle), that need not sum to 1; those of `gibbs_weights` give Algorithm 2.
    rng
        An int seed, or a Generator from which one is drawn. Chain c's numbers do not depend on how many chains there are.
    method
        "multinomial": independent draws. "systematic": one random number a chain; particle k comes floor or ceil of its mean number of
        times, the least variance (Douc, Cappe and Moulines 2005, "Comparison of resampling schemes for particle filtering").
    return_index
        Also return the places drawn, int64 (n,) or (chain, n), a NumPy array.

    Raises
    ------
    ValueError
        For weights that are negative, not finite, all 0, or not of omega's shape without its last axis; an unknown method; n below 1.
    """
    omega = as_omega(omega)
    shares = _cumulative(as_float(to_numpy(weights, "weights"), "weights"), tuple(omega.shape[:-1]))
    if method not in METHODS:
        raise ValueError(f"method must be one of {METHODS}, got {method!r}")
    seed, n = random.key_from(rng), count(n, "n")
    index = np.stack([_draw(share, (seed, chain, 0), n, method) for chain, share in enumerate(shares)])
    stacked = omega if omega.ndim == 3 else omega[None]
    drawn = stacked[np.arange(len(index))[:, None], index]
    drawn, index = (drawn, index) if omega.ndim == 3 else (drawn[0], index[0])
    return (drawn, index) if return_index else drawn


def _cumulative(weights: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Cumulative shares (chain, particle), the last of each chain exactly 1."""
    if weights.shape != shape:
        raise ValueError(f"weights must have shape {shape} for this omega, got {weights.shape}")
    weights = weights.reshape(-1, shape[-1]).astype(np.float64)
    largest = weights.max(-1, keepdims=True)
    if (weights < 0).any() or not (largest > 0).all():
        raise ValueError(f"weights must be at least 0 and in no chain all 0, got least {weights.min():.3g} and sums {weights.sum(-1)}")
    sums = np.cumsum(weights / largest, -1)
    return sums / sums[:, -1:]


def _draw(shares: np.ndarray, key: random.Key, n: int, method: str) -> np.ndarray:
    """The places of `n` points in [0, 1) among the cumulative shares; a particle of weight 0 holds no point."""
    if method == "multinomial":
        points = random.uniform(key, n, stream=random.RESAMPLE)
    else:
        points = np.minimum((np.arange(n) + random.uniform(key, 1, stream=random.RESAMPLE)) / n, np.nextafter(1.0, 0.0))
    return np.searchsorted(shares, points, side="right")
