"""Energy, entropy and free energy of particle ensembles, and the dissipation identity along a flow.

An ensemble is x (chain, particle, dim): independent chains of exchangeable particles. F(rho) = int V rho + (1/2) iint g rho rho +
(1/beta) int rho log rho with g the interaction, strength included. A chain's energy has the package's normalisation,
(1/n) sum_k V(x_k) + 1/(2 n (n-1)) sum_{k != l} g(|x_k - x_l|).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.integrate import cumulative_simpson, cumulative_trapezoid
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist
from scipy.special import digamma, gammaln

from theory.arrays import FloatArray, count, extent, finite, numeric, positive
from theory.convergence.transport import ScalarEstimate

__all__ = ["FreeEnergy", "differential_entropy", "dissipation_residual", "ensemble_free_energy", "pair_energy", "spacing_entropy"]

Potential = Callable[[FloatArray], ArrayLike]

BLOCK = 2_000_000  # distances at once, 16 MB
GROUPS = 20  # whose spread gives the standard errors: known to 16 % where there are as many


class FreeEnergy(NamedTuple):
    """Estimates of the energy, of the entropy -int rho log rho of one particle, and of energy - entropy/beta."""

    energy: ScalarEstimate
    entropy: ScalarEstimate
    free_energy: ScalarEstimate


def pair_energy(x: ArrayLike, interaction: Potential) -> Float[np.ndarray, " chain"]:
    """1/(2 n (n-1)) sum_{k != l} g(|x_k - x_l|) of each chain of x (chain, particle, dim) or (particle, dim), rows in blocks.

    The definition, O(n^2): the pair of a particle with itself is left out, and two particles on one point get what g(0) gives.

    Raises
    ------
    ValueError
        If x is no ensemble of at least two particles, or g is no callable or not finite at a distance that occurs.
    """
    x = _ensemble(x)
    if x.shape[1] < 2:
        raise ValueError(f"x must hold at least two particles, got shape {x.shape}")
    if not callable(interaction):
        raise ValueError(f"interaction must be a callable of the distance, got {interaction!r}")
    return np.array([_pair_sum(chain, interaction) for chain in x]) / (x.shape[1] * (x.shape[1] - 1))


def differential_entropy(x: ArrayLike, *, neighbour: int = 4) -> ScalarEstimate:
    """-int rho log rho from the points of all chains of x (chain, particle, dim) or (particle, dim), by nearest neighbours.

    Kozachenko & Leonenko 1987 (k-th neighbours: Goria, Leonenko, Mergel & Novi Inverardi 2005): the mean of dim log r_k + log |ball| +
    psi(n) - psi(k), r_k the distance to the k-th neighbour. The bias is O((k/n)^(2/dim)) for smooth densities, approached slowly where
    they have tails (Berrett, Samworth & Yuan 2019; normal law in dim = 3, k = 4: -0.086 at n = 100, -0.036 at 1600, -0.013 at 25600),
    and O((k/n)^(1/dim)) for densities that jump at a wall. For independent points; of particles that repel each other the chains are
    pooled, so that most neighbours are independent. The error is the spread of the estimate over up to 20 groups of chains, or of the
    points of a single chain; NaN if those are too few for two groups. (The spread of the terms
    understates by 10 to 25 %, as neighbours share distances.)

    Raises
    ------
    ValueError
        If there are not more than `neighbour` points, or points coincide.
    """
    x, k = _ensemble(x), count(neighbour, "neighbour")
    return _estimate(_entropy(x, k), [_entropy(part, k) for part in _groups(x, k)])


def spacing_entropy(x: ArrayLike, *, spacing: int = 4) -> float:
    """-int rho log rho of points x (n,) or (n, 1) on the line from the m-spacings: mean log(x_(i+m) - x_(i)) + psi(n + 1) - psi(m).

    Unbiased for the uniform law on any interval at every n and m (the spacings are Beta(m, n + 1 - m)), so walls do no harm; else the bias
    falls with m/n. Source: Vasicek 1976; Cressie 1976.

    Raises
    ------
    ValueError
        If x are not points on the line, more than `spacing` of them, or points coincide.
    """
    m, line = count(spacing, "spacing"), finite(x, "x")
    if line.ndim not in (1, 2) or line.size != len(line) or line.size <= m:
        raise ValueError(f"x must be more than {m} points on the line, got shape {line.shape}")
    ordered = np.sort(line.ravel())
    gaps = ordered[m:] - ordered[:-m]
    if not gaps.all():
        raise ValueError(f"x must be different points, got {m + 1} at one place")
    return float(np.mean(np.log(gaps)) + digamma(line.size + 1) - digamma(m))


def ensemble_free_energy(
    x: ArrayLike, external: Potential, interaction: Potential | None, beta: float, *, neighbour: int = 4
) -> FreeEnergy:
    """Energy, one-particle entropy and F of the ensemble x (chain, particle, dim), with standard errors over groups of chains.

    external(x (chain, particle, dim)) -> (chain, particle), for dim = 1 also (chain, particle, 1); interaction(r), strength included, or
    None; both finite at the particles. The free energy per particle of the law P of all particles, E H_N + int P log P / (beta n), is
    larger by the relative entropy H(P | rho^n)/(beta n), which vanishes with the number of particles (Jabin & Wang 2018). Entropy:
    `differential_entropy`.

    Raises
    ------
    ValueError
        If there are fewer than two chains, beta is not positive, shapes do not fit, or points coincide.
    """
    x, beta = _ensemble(x), positive(beta, "beta")
    if len(x) < 2:
        raise ValueError(f"x must hold at least two chains for a standard error, got shape {x.shape}")
    if not callable(external):
        raise ValueError(f"external must be a callable of x, got {external!r}")
    values, k = finite(external(x), "external"), count(neighbour, "neighbour")
    values = values[..., 0] if values.shape == x.shape and x.shape[2] == 1 else values
    if values.shape != x.shape[:2]:
        raise ValueError(f"external must return an array of shape {x.shape[:2]}, got {values.shape}")
    energy = values.mean(1) + (0.0 if interaction is None else pair_energy(x, interaction))
    groups = _groups(x, k)
    energies = [energy.mean()] + [part.mean() for part in np.array_split(energy, len(groups))]
    entropies = [_entropy(part, k) for part in [x, *groups]]
    table = np.array([energies, entropies, np.subtract(energies, np.divide(entropies, beta))])
    return FreeEnergy(*(_estimate(row[0], row[1:]) for row in table))


def dissipation_residual(
    time: ArrayLike, free_energy: ArrayLike, dissipation: ArrayLike, *, rule: str = "simpson"
) -> Float[np.ndarray, " time"]:
    """F(t) - F(t_0) + int_t0^t D of a recorded flow, each array (time,): 0 up to the rule's error where dF/dt = -D.

    D = int rho |grad(U + log(rho)/beta)|^2 (Carrillo, McCann & Villani 2003). Rules: "simpson" (local error of order 4 in the
    spacing), "trapezoid" (order 3). A record whose D is infinite at the start, such as that of a density with empty cells, has no identity.

    Raises
    ------
    ValueError
        If time does not increase, shapes differ, D is negative or not finite, or there are fewer than three times.
    """
    t, f, d = finite(time, "time"), finite(free_energy, "free_energy"), numeric(dissipation, "dissipation")
    if t.ndim != 1 or len(t) < 3 or f.shape != t.shape or d.shape != t.shape:
        raise ValueError(f"time, free_energy, dissipation must share a shape (at least 3,), got {t.shape}, {f.shape}, {d.shape}")
    if not (np.diff(t) > 0).all():
        raise ValueError(f"time must increase, got steps of {extent(np.diff(t))}")
    if not (np.isfinite(d) & (d >= 0)).all():
        raise ValueError(f"dissipation must be finite and at least 0, got {d.min()} to {d.max()}")
    if rule not in ("simpson", "trapezoid"):
        raise ValueError(f"rule must be simpson or trapezoid, got {rule!r}")
    integral = cumulative_simpson if rule == "simpson" else cumulative_trapezoid
    return f - f[0] + np.concatenate([[0.0], integral(d, x=t)])


def _ensemble(x: ArrayLike) -> FloatArray:
    x = finite(x, "x")
    x = x[None] if x.ndim == 2 else x
    if x.ndim != 3 or 0 in x.shape:
        raise ValueError(f"x must have shape (chain, particle, dim) or (particle, dim), each at least 1, got {x.shape}")
    return x


def _pair_sum(x: FloatArray, interaction: Potential) -> float:
    """Sum of g over unordered pairs."""
    rows, total = max(1, BLOCK // len(x)), 0.0
    for start in range(0, len(x), rows):
        r = cdist(x[start : start + rows], x[start:])
        r = r[np.arange(r.shape[1]) > np.arange(len(r))[:, None]]
        if not r.size:
            continue  # the last row alone
        values = finite(interaction(r), "interaction")
        if values.shape != r.shape:
            raise ValueError(f"interaction must return an array of its argument's shape {r.shape}, got {values.shape}")
        total += float(values.sum())
    return total


def _groups(x: FloatArray, k: int) -> list[FloatArray]:
    """Up to GROUPS groups of whole chains, or of the points of a single chain, each of more than k points."""
    parts = x if len(x) > 1 else x[0]
    least = -(-(k + 1) // x.shape[1]) if len(x) > 1 else k + 1
    return np.array_split(parts, max(1, min(GROUPS, len(parts) // least)))


def _estimate(value: float, parts: ArrayLike) -> ScalarEstimate:
    """The value with the error by the spread of what the groups say."""
    parts = np.asarray(parts, float)
    return ScalarEstimate(float(value), float(parts.std(ddof=1) / np.sqrt(len(parts))) if len(parts) > 1 else float("nan"))


def _entropy(x: FloatArray, k: int) -> float:
    """Kozachenko and Leonenko's estimate from all points of x (..., dim)."""
    dim = x.shape[-1]
    points = x.reshape(-1, dim)
    if len(points) <= k:
        raise ValueError(f"x must hold more than {k} points for their neighbour number {k}, got {len(points)}")
    distance = np.ravel(KDTree(points).query(points, k=[k + 1])[0])
    if not distance.all():
        raise ValueError(f"x must be different points, got {int((distance == 0).sum())} with {k} others on the same place")
    log_ball = dim / 2 * np.log(np.pi) - gammaln(dim / 2 + 1)
    return float(dim * np.mean(np.log(distance)) + log_ball + digamma(len(points)) - digamma(k))
