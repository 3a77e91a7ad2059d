"""Exact minimisers of H_N at finitely many particles, with their energies in closed form.

On the line with the log interaction they are zeros of classical orthogonal polynomials (Stieltjes 1885; Szego 1975, section 6.7), and the
energies follow from the discriminants, equivalently from Selberg's integrals at zero temperature. Elsewhere they are regular figures.
Positions have shape (n, dim). H_N = (1/n) sum V + strength/(n (n-1)) sum_{k<l} g_s(x_k - x_l).

functions          particles                                                       interaction
hermite_*          the line, trap kappa x^2/2                                      log
half_line_*        x >= 0, slope x - charge log x                                  log
mirror_*           the line, trap, repelled by mirror images as well               log
wall_*             an interval, charges at its walls or none                       log
coulomb_line_*     the line, trap                                                  s = -1
simplex_*          dim >= n - 1, trap                                              every s > -2
ring_*             a circle, the torus of one dimension, a hard disc (s <= 0)      every s > -2, chords
end_*              an interval                                                     -2 < s <= -1
sphere_*           a hard ball, or a sphere: simplex, cross polytope, icosahedron  -2 < s <= dim - 2 (sphere: every s > -2)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import roots_hermite, xlogy

from theory.arrays import FloatArray, count, positive, real
from theory.ensembles.orthogonal import jacobi_zeros, laguerre_zeros
from theory.equilibrium.riesz_means import riesz

__all__ = [
    "coulomb_line_energy",
    "coulomb_line_ground_state",
    "end_energy",
    "end_ground_state",
    "half_line_energy",
    "half_line_ground_state",
    "hermite_energy",
    "hermite_ground_state",
    "mirror_energy",
    "mirror_ground_state",
    "ring_energy",
    "ring_ground_state",
    "simplex_energy",
    "simplex_ground_state",
    "sphere_energy",
    "sphere_ground_state",
    "wall_energy",
    "wall_ground_state",
]

Positions = Float[np.ndarray, "n dim"]


def hermite_ground_state(n: int, kappa: float, strength: float) -> Float[np.ndarray, "n 1"]:
    """Exact minimiser (n, 1) of the log gas of n particles on the line: sqrt(strength/(kappa (n-1))) times the zeros of H_n.

    Its second moment is strength/(2 kappa) for every n >= 2; one particle sits at 0. Source: Stieltjes; Szego, section 6.7.
    """
    n, kappa, strength = count(n, "n"), positive(kappa, "kappa"), positive(strength, "strength")
    zeros = roots_hermite(n)[0][:, None]
    return zeros if n == 1 else zeros * np.sqrt(strength / (kappa * (n - 1)))


def hermite_energy(n: int, kappa: float, strength: float) -> float:
    """H_N at the ground state of n >= 2 particles, from the discriminant of H_n (Szego, equation 6.71.7)."""
    n, kappa, strength = count(n, "n", least=2), positive(kappa, "kappa"), positive(strength, "strength")
    j = np.arange(1, n + 1)
    pairs = n * (n - 1) / 2
    logs = np.sum(j * np.log(j)) - pairs * np.log(2) + pairs * np.log(strength / (kappa * (n - 1)))
    return float(strength / 4 - strength / (2 * n * (n - 1)) * logs)


def half_line_ground_state(n: int, slope: float, strength: float, charge: float = 0.0) -> Float[np.ndarray, "n 1"]:
    """Minimiser (n, 1), ascending, on x >= 0 for V(x) = slope x - charge log x, charge >= 0, n >= 2: zeros of Laguerre's L_n^(a).

    a = 2 charge (n-1)/strength - 1, unit strength/(2 slope (n-1)) (Szego, section 6.7). Without charge one particle touches the wall and
    acts on the others, zeros of L_(n-1)^(1), as a charge.
    """
    n, slope, strength = count(n, "n", least=2), positive(slope, "slope"), positive(strength, "strength")
    per_pair = strength / (n - 1)
    if positive(charge, "charge", zero=True) == 0:
        points = np.r_[0.0, laguerre_zeros(n - 1, 1.0)]
    else:
        points = laguerre_zeros(n, 2 * charge / per_pair - 1)
    return points[:, None] * per_pair / (2 * slope)


def half_line_energy(n: int, slope: float, strength: float, charge: float = 0.0) -> float:
    """H_N at `half_line_ground_state`: the Laguerre-Selberg integral at zero temperature."""
    n, slope, strength = count(n, "n", least=2), positive(slope, "slope"), positive(strength, "strength")
    charge, g, j = positive(charge, "charge", zero=True), strength / (2 * (n - 1)), np.arange(n)
    total = n * charge + n * (n - 1) * g  # slope sum x, the virial identity
    return float((total * (1 + np.log(slope)) - np.sum(_self_log(charge + j * g) + _self_log((j + 1) * g)) + n * _self_log(g)) / n)


def _self_log(z: Any) -> Any:
    """z log z, 0 at 0: what is left of log Gamma(1 + z) at large argument beside linear terms."""
    return xlogy(z, z)


def mirror_ground_state(n: int, kappa: float, strength: float) -> Float[np.ndarray, "n 1"]:
    """Minimiser (n, 1), n >= 2, of log-repelling particles in the trap kappa x^2/2 that repel the others' mirror images as well.

    Up to signs 0 and, times sqrt(strength/(kappa (n-1))), the roots of the zeros of L_(n-1)^(1): the squares obey `half_line_ground_state`
    of slope kappa/2. All are returned at x >= 0, ascending.
    """
    return np.sqrt(half_line_ground_state(n, positive(kappa, "kappa") / 2, strength))


def mirror_energy(n: int, kappa: float, strength: float) -> float:
    """H_N at `mirror_ground_state`, pairs and images."""
    return half_line_energy(n, positive(kappa, "kappa") / 2, strength)


def wall_ground_state(n: int, strength: float, half_width: float, charges: tuple[float, float] = (0.0, 0.0)) -> Float[np.ndarray, "n 1"]:
    """Minimiser (n, 1), ascending, n >= 2, on [-half_width, half_width] for V(x) = -left log(half_width + x) - right log(half_width - x).

    `charges` = (left, right), at least 0: zeros of the Jacobi polynomial of exponents 2 charge (n-1)/strength - 1. At a wall without charge
    one particle touches it and acts on the others as a charge: without any, the end points and the zeros of P'_(n-1), Fekete's points.
    """
    n, half_width = count(n, "n", least=2), positive(half_width, "half_width")
    per_pair = positive(strength, "strength") / (n - 1)
    left, right = _charges(charges)
    inner = n - (left == 0) - (right == 0)
    points = jacobi_zeros(inner, *(2 * charge / per_pair - 1 if charge else 1.0 for charge in (left, right)))
    return half_width * np.concatenate([[-1.0] * (left == 0), points, [1.0] * (right == 0)])[:, None]


def _charges(charges: tuple[float, float]) -> tuple[float, float]:
    if np.shape(charges) != (2,):
        raise ValueError(f"charges must be two numbers (left, right), got {charges!r}")
    return positive(charges[0], "charges", zero=True), positive(charges[1], "charges", zero=True)


def wall_energy(n: int, strength: float, half_width: float, charges: tuple[float, float] = (0.0, 0.0)) -> float:
    """H_N at `wall_ground_state`: Selberg's integral at zero temperature (the discriminant of Jacobi polynomials, Szego, 6.71.5)."""
    n, half_width = count(n, "n", least=2), positive(half_width, "half_width")
    g, j = positive(strength, "strength") / (2 * (n - 1)), np.arange(n)
    left, right = _charges(charges)
    gained = _self_log(left + j * g) + _self_log(right + j * g) + _self_log((j + 1) * g) - _self_log(left + right + (n + j - 1) * g)
    scale = (left + right + strength / 2) * np.log(2 * half_width)
    return float(_self_log(g) - np.sum(gained) / n - scale)


def coulomb_line_ground_state(n: int, kappa: float, strength: float) -> Float[np.ndarray, "n 1"]:
    """Minimiser (n, 1), ascending, n >= 2, of g = -|x| (s = -1) in the trap kappa x^2/2: strength (2k - n - 1)/(kappa (n-1)), equally
    spaced (Lenard 1961), as the force on each depends on its rank alone."""
    n, kappa, strength = count(n, "n", least=2), positive(kappa, "kappa"), positive(strength, "strength")
    return (strength / (kappa * (n - 1)) * (2 * np.arange(1.0, n + 1) - n - 1))[:, None]


def coulomb_line_energy(n: int, kappa: float, strength: float) -> float:
    """H_N at `coulomb_line_ground_state`: -strength^2 (n+1)/(6 kappa (n-1))."""
    n, kappa, strength = count(n, "n", least=2), positive(kappa, "kappa"), positive(strength, "strength")
    return -(strength**2) * (n + 1) / (6 * kappa * (n - 1))


def _exponent(s: float, highest: float = np.inf) -> float:
    s = real(s, "s")
    if not -2 < s <= highest or s == np.inf:
        raise ValueError(f"s must be above -2{f' and at most {highest:g}' if highest < np.inf else ''}, got {s!r}")
    return s


def _simplex(n: int, dim: int) -> FloatArray:
    """Vertices (n, dim) of the regular simplex on the unit sphere, centred, n <= dim + 1."""
    centred = np.eye(n) - 1 / n
    corners = np.linalg.svd(centred)[0][:, : n - 1] * np.sqrt(n / max(n - 1, 1))
    return np.pad(corners, ((0, 0), (0, dim - n + 1)))


def simplex_ground_state(n: int, dim: int, kappa: float, strength: float, s: float) -> Positions:
    """Minimiser (n, dim) of 2 <= n <= dim + 1 particles in the trap kappa |x|^2/2, every s > -2: a regular simplex.

    About the centre sum |x_k|^2 is 1/n of the sum of squared distances, so that every pair can sit at its own minimum, the distance r with
    r^(s+2) = strength n |s| / (kappa (n-1)) (|s| is 1 for the log).
    """
    n, dim = count(n, "n", least=2), count(dim, "dim")
    if n > dim + 1:
        raise ValueError(f"n must be at most dim + 1 = {dim + 1}, got {n}")
    edge = _simplex_edge(n, kappa, strength, s)
    return _simplex(n, dim) * edge / np.sqrt(2 * n / (n - 1))


def _simplex_edge(n: int, kappa: float, strength: float, s: float) -> float:
    exponent = _exponent(s)
    balance = positive(strength, "strength") * n * (abs(exponent) or 1) / (positive(kappa, "kappa") * (n - 1))
    log_edge = np.log(balance) / (exponent + 2)
    if not log_edge < 300:
        raise ValueError(f"s must leave distances in floating point, got {s!r}: particles rest exp({log_edge:.3g}) apart")
    return float(np.exp(log_edge))


def simplex_energy(n: int, kappa: float, strength: float, s: float) -> float:
    """H_N at `simplex_ground_state`: kappa (n-1) r^2/(4 n) + strength g_s(r)/2 at its edge r, free of dim >= n - 1."""
    n = count(n, "n", least=2)
    edge = _simplex_edge(n, kappa, strength, s)
    return float(kappa * (n - 1) * edge**2 / (4 * n) + strength * riesz(edge, _exponent(s)) / 2)


def ring_ground_state(n: int, radius: float) -> Float[np.ndarray, "n 2"]:
    """n >= 2 roots of unity (n, 2) times `radius`: the minimiser on a circle with chordal distances for every s > -2, up to rotations.

    Gotz 2003; Cohn & Kumar 2007. So it is on the torus of period 2 pi radius (angles times radius) and, for -2 < s <= 0, where the
    potential of a particle is superharmonic and pushes all others to the wall, in the hard disc.
    """
    angle = 2 * np.pi * np.arange(count(n, "n", least=2)) / n
    return positive(radius, "radius") * np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def ring_energy(n: int, strength: float, radius: float, s: float = 0.0) -> float:
    """H_N at `ring_ground_state`, V = 0: strength/(2(n-1)) sum_{k<n} g_s(2 radius sin(pi k/n)); the log gives -strength/2 [log radius +
    log n/(n-1)]."""
    n, radius, s = count(n, "n", least=2), positive(radius, "radius"), _exponent(s)
    chord = 2 * radius * np.sin(np.pi * np.arange(1, n) / n)
    return float(positive(strength, "strength") / (2 * (n - 1)) * np.sum(riesz(chord, s)))


def end_ground_state(n: int, half_width: float) -> Float[np.ndarray, "n 1"]:
    """Minimiser (n, 1) of n >= 2 particles on [-half_width, half_width] for -2 < s <= -1, V = 0: half at either wall.

    The energy is concave in each particle. Of an odd number the last sits at the right wall; for s = -1 it may sit anywhere.
    """
    n, half_width = count(n, "n", least=2), positive(half_width, "half_width")
    return half_width * np.where(np.arange(n) < n // 2, -1.0, 1.0)[:, None]


def end_energy(n: int, strength: float, half_width: float, s: float) -> float:
    """H_N at `end_ground_state`: -strength floor(n/2) ceil(n/2) (2 half_width)^|s| / (n (n-1)), -2 < s <= -1."""
    n, width, s = count(n, "n", least=2), 2 * positive(half_width, "half_width"), _exponent(s, -1.0)
    return float(-positive(strength, "strength") * (n // 2) * (n - n // 2) * width**-s / (n * (n - 1)))


def sphere_ground_state(n: int, dim: int, radius: float) -> Positions:
    """Minimiser (n, dim) on a sphere for every s > -2, up to rotations: a regular simplex (2 <= n <= dim + 1), a cross polytope
    (n = 2 dim), a regular polygon (dim = 2) or the icosahedron (n = 12, dim = 3), universally optimal (Cohn & Kumar 2007).

    For -2 < s <= dim - 2 and dim >= 2 so it is in the hard ball, where particles go to the wall.

    Raises
    ------
    ValueError
        For other n: no closed form is known.
    """
    n, dim, radius = count(n, "n", least=2), count(dim, "dim", least=2), positive(radius, "radius")
    if n <= dim + 1:
        return radius * _simplex(n, dim)
    if dim == 2:
        return ring_ground_state(n, radius)
    if n == 2 * dim:
        return radius * np.concatenate([np.eye(dim), -np.eye(dim)])
    if (n, dim) == (12, 3):
        golden = (1 + np.sqrt(5)) / 2
        corners = np.array([[0.0, a, b * golden] for a in (-1, 1) for b in (-1, 1)]) / np.sqrt(1 + golden**2)
        return radius * np.concatenate([np.roll(corners, turn, axis=1) for turn in range(3)])
    raise ValueError(f"n must be at most dim + 1, 2 dim, 12 in dim 3, or any in dim 2; got n = {n} in dim {dim}")


def sphere_energy(n: int, dim: int, strength: float, radius: float, s: float) -> float:
    """H_N at `sphere_ground_state`, V = 0."""
    x, s = sphere_ground_state(n, dim, radius), _exponent(s)
    i, j = np.triu_indices(n, 1)
    pairs = riesz(np.linalg.norm(x[i] - x[j], axis=1), s)
    return float(positive(strength, "strength") * np.sum(pairs) / (n * (n - 1)))
