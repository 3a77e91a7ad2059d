"""The slow definition of everything that `particles` computes fast: plain loops, float64, one function an equation.

Numbers in brackets are those of the Coulomb paper (arXiv 2607.23869); where it is silent or wrong as printed, the docstring says what
is meant. Arrays: omega (particle, dim), x (n, dim). Nothing here is imported by the fast code; tests compare the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

Vector = np.ndarray


def features(name: str, x: Vector, omega: np.ndarray) -> np.ndarray:
    """phi(x; omega_k), (width, particle), of one point x (dim,); names as in `particles.features.as_feature`, default options."""
    d = len(x)
    per_particle: dict[str, Callable[[Vector], list[float]]] = {
        "fourier": lambda w: [math.cos(w @ x), math.sin(w @ x)],
        "phase": lambda w: [math.sqrt(2) * math.cos(w[:d] @ x + w[d])],
        "nonstationary": lambda w: [
            (math.cos(w[:d] @ x) + math.cos(w[d:] @ x)) / 2,
            (math.sin(w[:d] @ x) + math.sin(w[d:] @ x)) / 2,
        ],
        "positive": lambda w: [math.exp(w @ x - x @ x / 2)],
        "hyperbolic": lambda w: [math.exp(sign * (w @ x) - x @ x / 2) / math.sqrt(2) for sign in (1, -1)],
        "softplus": lambda w: [math.log1p(math.exp(w @ x))],
        "elu": lambda w: [1 + (w @ x if w @ x > 0 else math.expm1(w @ x))],
        "sigmoid2": lambda w: [1 / (1 + math.exp(-w @ x)) ** 2],
        "cos2": lambda w: [math.cos(w[:d] @ x + w[d]) ** 2],
        "softmax": lambda w: [math.sqrt(len(omega)) * math.exp(w @ x) / sum(math.exp(v @ x) for v in omega)],
    }
    return np.array([per_particle[name](w) for w in omega]).T


def kernel(name: str, x: Vector, x2: Vector, omega: np.ndarray) -> float:
    """K_mu(x, x') = E_{omega ~ mu}[phi_omega(x) phi_omega(x')] for the empirical measure mu_N (section 2)."""
    return float(np.sum(features(name, x, omega) * features(name, x2, omega)) / len(omega))


def kernel_target_alignment(name: str, x: np.ndarray, y: Vector, omega: np.ndarray) -> float:
    """KTA(K) = 1/(n(n-1)) sum_{i != j} y_i y_j K(x_i, x_j) (A.2/B.2): off-diagonal, not normalised, to be maximised."""
    n = len(x)
    return sum(y[i] * y[j] * kernel(name, x[i], x[j], omega) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))


def potential(name: str, x: np.ndarray, y: Vector, w: Vector) -> float:
    """V_D(w) = -1/(n(n-1)) sum_{i != j} y_i y_j phi_w(x_i) phi_w(x_j): what one particle feels from the data."""
    return -kernel_target_alignment(name, x, y, w[None])


def lemma_3_energy(x: np.ndarray, y: Vector, omega: np.ndarray) -> float:
    """E_N of sqrt(2) cos(w.x + b), exactly: -(2/(n(n-1)N)) sum_k [(y^T c_k)^2 - sum_i y_i^2 c_ik^2].

    (B.7) as printed has n^2 for n(n-1), lacks 1/N and drops the diagonal, which is not constant.
    """
    n, dim = x.shape
    total = 0.0
    for particle in omega:
        c = np.cos(x @ particle[:dim] + particle[dim])
        total += (y @ c) ** 2 - (y**2) @ (c**2)
    return float(-2 * total / (n * (n - 1) * len(omega)))


def lemma_3_phase_average(x: np.ndarray, y: Vector, frequencies: np.ndarray) -> float:
    """(B.9) with its constant: -(1/(N n(n-1))) sum_k |sum_i y_i exp(i w_k.x_i)|^2 + sum_i y_i^2/(n(n-1)), the mean over phases of E_N."""
    n = len(x)
    total = sum(abs(sum(y[i] * np.exp(1j * (w @ x[i])) for i in range(n))) ** 2 for w in frequencies)
    return float(-total / (len(frequencies) * n * (n - 1)) + (y @ y) / (n * (n - 1)))


def riesz(w: Vector, s: float) -> float:
    """g_s(w) = |w|^-s for s > 0, -log |w| for s = 0, -|w|^|s| for -2 < s < 0."""
    r = math.sqrt(w @ w)
    if s > 0:
        return r**-s if r else math.inf
    if s == 0:
        return -math.log(r) if r else math.inf
    return -(r**-s)


def riesz_gradient(w: Vector, s: float) -> Vector:
    """grad g_s(w) = -s w/|w|^(s+2) (s > 0), -w/|w|^2 (s = 0), s w/|w|^(s+2) (s < 0): minus a repulsive force; 0 at w = 0 by convention."""
    r = math.sqrt(w @ w)
    return np.zeros_like(w) if r == 0 else -(abs(s) or 1.0) * w / r ** (s + 2)


def chord(w: Vector, period: Vector) -> Vector:
    """((L/pi) sin(pi w_a / L))_a: its norm is the distance on the torus of circles with circumference L."""
    return period / math.pi * np.sin(math.pi * w / period)


def pair_sum(
    omega: np.ndarray, s: float, *, softening: float = 0.0, length: float = 1.0, mirror: bool = False, truncation: float | None = None,
    period: float | Vector | None = None,
) -> tuple[float, np.ndarray]:  # fmt: skip
    """(sum_{k != l} g_s, sum_{l != k} grad_k g_s); twin of `pairwise.riesz_sums`.

    Softening adds a coordinate to the distance vector; `mirror` adds the pairs of omega_k and -omega_l, k != l; truncation puts
    max(|w|, truncation) for |w|; a period puts the chord for w.
    """
    total, gradient, dim = 0.0, np.zeros_like(omega), omega.shape[1]
    period = None if period is None else np.broadcast_to(np.asarray(period, float), (dim,))
    for sign in (1.0, -1.0)[: 1 + mirror]:
        for k, w in enumerate(omega):
            for m, v in enumerate(omega):
                if k == m:
                    continue
                gap, slope = w - sign * v, np.ones(dim)
                if period is not None:
                    gap, slope = chord(gap, period), np.cos(math.pi * gap / period)
                gap = np.append(gap, softening) / length
                if truncation is not None and math.sqrt(gap @ gap) < truncation / length:
                    total += riesz(np.array([truncation / length]), s)
                    continue
                total += riesz(gap, s)
                gradient[k] += riesz_gradient(gap, s)[:-1] * slope / length
    return total, gradient


def interaction(omega: np.ndarray, s: float) -> float:
    """W_{N,s} = 1/(2N(N-1)) sum_{k != l} g_s(omega_k - omega_l) (2.3)."""
    n = len(omega)
    return pair_sum(omega, s)[0] / (2 * n * (n - 1))


def hamiltonian(name: str, x: np.ndarray, y: Vector, omega: np.ndarray, s: float, strength: float) -> float:
    """H_N = -KTA(K_N) + strength W_{N,s} (2.2), minimised."""
    return -kernel_target_alignment(name, x, y, omega) + strength * interaction(omega, s)


def numerical_gradient(function: Callable[[np.ndarray], float], at: np.ndarray, h: float = 1e-4) -> np.ndarray:
    """Central differences of fourth order, in every entry of `at`."""
    gradient = np.empty_like(at)
    for index in np.ndindex(at.shape):
        unit = np.zeros_like(at)
        unit[index] = h
        near, far = function(at + unit) - function(at - unit), function(at + 2 * unit) - function(at - 2 * unit)
        gradient[index] = (8 * near - far) / (12 * h)
    return gradient


def drift(name: str, x: np.ndarray, y: Vector, omega: np.ndarray, s: float, strength: float) -> np.ndarray:
    """N grad_k H_N = grad V_D(omega_k) + (strength/(N-1)) sum_{l != k} grad g_s(omega_k - omega_l) (A.7)."""
    external = np.array([numerical_gradient(lambda v: potential(name, x, y, v), w) for w in omega])
    return external + strength / (len(omega) - 1) * pair_sum(omega, s)[1]


def project_ball(w: Vector, radius: float) -> Vector:
    """The nearest point of the centred ball."""
    r = math.sqrt(w @ w)
    return w if r <= radius else w * (radius / r)


def project_box(w: Vector, low: Vector, high: Vector) -> Vector:
    """The nearest point of the box."""
    return np.array([min(max(a, b), c) for a, b, c in zip(w, low, high, strict=True)])


def reflect_ball(w: Vector, radius: float) -> Vector:
    """The radius is folded at the wall and at the centre until it lies in the ball: w (2R/|w| - 1), repeated."""
    while math.sqrt(w @ w) > radius:
        w = w * (2 * radius / math.sqrt(w @ w) - 1)
    return w


def reflect_box(w: Vector, low: Vector, high: Vector) -> Vector:
    """Every coordinate is mirrored at the face that it crossed, until it lies inside."""
    out = w.copy()
    for a in range(len(w)):
        while not low[a] <= out[a] <= high[a]:
            out[a] = 2 * low[a] - out[a] if out[a] < low[a] else 2 * high[a] - out[a]
    return out


def bounce_ball(w: Vector, way: Vector, radius: float) -> Vector:
    """The end of a flight of `way` from w inside the ball, mirrored at the sphere chord by chord."""
    while True:
        square, half = way @ way, w @ way
        share = (math.sqrt(half**2 + square * (radius**2 - w @ w)) - half) / square
        if share >= 1:
            return w + way
        w = w + share * way
        w = w * (radius / math.sqrt(w @ w))
        way = (1 - share) * (way - 2 * (way @ w) / radius**2 * w)


def bounce_polytope(w: Vector, way: Vector, normals: np.ndarray, offsets: Vector) -> Vector:
    """The end of a flight of `way` from w inside {normals w <= offsets} (unit normals), mirrored at the first facet met, repeatedly."""
    while True:
        shares = [((b - a @ w) / (a @ way), k) for k, (a, b) in enumerate(zip(normals, offsets)) if a @ way > 0]
        share, k = min(shares)
        if share >= 1:
            return w + way
        w, way = w + share * way, (1 - share) * (way - 2 * (way @ normals[k]) * normals[k])


def pair(
    omega: np.ndarray, g: Callable[[float], float], slope: Callable[[float], float], period: float | Vector | None = None
) -> tuple[float, np.ndarray]:
    """(1/(2N(N-1)) sum_{k != l} g(|omega_k - omega_l|), N times its gradient) for distinct particles; |.| to the nearest image."""
    n, total, gradient = len(omega), 0.0, np.zeros_like(omega)
    for k in range(n):
        for m in range(n):
            if k != m:
                w = omega[k] - omega[m]
                w = w if period is None else w - period * np.round(w / period)
                r = math.sqrt(w @ w)
                total += g(r) / (2 * n * (n - 1))
                gradient[k] += slope(r) * w / (r * (n - 1))
    return total, gradient


def langevin_step(
    omega: np.ndarray, gradient: np.ndarray, noise: np.ndarray, step_size: float, beta: float, into: Callable[[Vector], Vector]
) -> np.ndarray:
    """Algorithm 1: omega_k <- P(omega_k - eta N grad_k H_N + sqrt(2 eta/beta) xi_k), all from the same omega.

    gradient is that of N H_N, as returned by `drift` (Algorithm 2 misses the factor N); `into` projects or reflects one particle.
    """
    moved = omega - step_size * gradient + math.sqrt(2 * step_size / beta) * noise
    return np.array([into(w) for w in moved])
