"""Exact laws of finitely many particles at finite temperature: log gases in a trap, between hard walls and on a circle.

The Gibbs law of the package is exp(-beta [sum_k kappa |x_k|^2/2 + strength/(2 (n-1)) sum_{k != l} g_s(x_k - x_l)]). In one dimension
with the log interaction it is prod |x_i - x_j|^b of index b = beta strength/(n-1) times the trap, and three cases are solved:
the trap (beta-Hermite ensemble, x = e / sqrt(beta kappa)), the interval without a trap (beta-Jacobi ensemble of flat weight, `wall_gas`)
and the circle with chordal distances (circular ensemble, `circle_gas`). In the plane with a trap b = 2 is solved (`ginibre_radii`).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.linalg import eigvalsh_tridiagonal
from scipy.special import digamma, gammaln

from theory.arrays import count, generator, positive, real

__all__ = [
    "beta_hermite",
    "circle_gas_energy",
    "circle_gas_log_partition",
    "euler_second_moment",
    "fourth_moment",
    "ginibre_radii",
    "log_gas_energy",
    "log_gas_index",
    "log_gas_log_partition",
    "mean_log_energy",
    "mehta_log_partition",
    "sample_circle_gas",
    "sample_log_gas",
    "sample_wall_gas",
    "second_moment",
    "wall_gas_energy",
    "wall_gas_log_partition",
]


def log_gas_index(beta: float, strength: float, n: int) -> float:
    """Dyson index b = beta strength / (n - 1) of the package's log gas on the line, n >= 2; below 1 particles collide."""
    return positive(beta, "beta") * positive(strength, "strength", zero=True) / (count(n, "n", least=2) - 1)


def beta_hermite(n: int, b: float, rng: int | np.random.Generator, size: int = 1) -> Float[np.ndarray, "size n"]:
    """Exact samples (size, n), sorted, of the density prod |e_i - e_j|^b exp(-sum e^2 / 2).

    Eigenvalues of the tridiagonal matrix with N(0, 1) diagonal and chi_{(n-i) b}/sqrt(2) beside it, i = 1..n-1
    (Dumitriu & Edelman 2002).
    """
    n, b, size = count(n, "n"), positive(b, "b", zero=True), count(size, "size")
    rng = generator(rng)
    diagonal = rng.standard_normal((size, n))
    beside = np.sqrt(rng.gamma(b * np.arange(n - 1, 0, -1) / 2, 1.0, (size, n - 1)))  # chi_k / sqrt 2 = sqrt of Gamma(k/2)
    if n == 1 or b == 0:
        return np.sort(diagonal, axis=1)
    return np.stack([eigvalsh_tridiagonal(d, e) for d, e in zip(diagonal, beside)])


def sample_log_gas(
    n: int, beta: float, kappa: float, strength: float, rng: int | np.random.Generator, size: int = 1
) -> Float[np.ndarray, "size n 1"]:
    """Exact samples (size, n, 1) of the log gas of n particles on the line in the package's variables."""
    b = log_gas_index(beta, strength, n)
    return beta_hermite(n, b, rng, size)[..., None] / np.sqrt(beta * positive(kappa, "kappa"))


def second_moment(dim: int, beta: float, kappa: float, strength: float, s: float = 0.0, *, pair_moment: float | None = None) -> float:
    """E (1/n) sum |x|^2 = dim/(beta kappa) + strength/(2 kappa) for the log gas: any dim, any n >= 2, no wall.

    For s != 0 the virial identity needs `pair_moment` = E of the mean over pairs of |x_k - x_l|^-s:
    dim/(beta kappa) + |s| strength pair_moment/(2 kappa). An interaction with a length has its distances measured in it; softening
    breaks the identity.

    Raises
    ------
    ValueError
        If s <= -2, or s != 0 with a nonzero strength and no pair_moment.
    """
    dim, beta, kappa = count(dim, "dim"), positive(beta, "beta"), positive(kappa, "kappa")
    strength = positive(strength, "strength", zero=True)
    if real(s, "s") <= -2:
        raise ValueError(f"s must be above -2, got {s!r}")
    if s == 0 or strength == 0:
        return dim / (beta * kappa) + strength / (2 * kappa)
    if pair_moment is None:
        raise ValueError(f"pair_moment is needed for s = {s!r}: only the log gas has a closed form")
    return dim / (beta * kappa) + abs(s) * strength * positive(pair_moment, "pair_moment") / (2 * kappa)


def fourth_moment(n: int, beta: float, kappa: float, strength: float) -> float:
    """E (1/n) sum x^4 of the log gas on the line: (3 + 5c + 2c^2 - c^2/(n-1)) / (beta kappa)^2, c = beta strength/2."""
    c = log_gas_index(beta, strength, n) * (n - 1) / 2
    return (3 + 5 * c + 2 * c**2 - c**2 / (n - 1)) / (beta * positive(kappa, "kappa")) ** 2


def euler_second_moment(dim: int, beta: float, kappa: float, step_size: float) -> float:
    """Stationary E |x|^2 of free particles in the quadratic trap under the Euler step: dim / (beta kappa (1 - step_size kappa/2)).

    Raises
    ------
    ValueError
        If step_size * kappa >= 2, where the step has no stationary law.
    """
    dim, beta, kappa, step_size = count(dim, "dim"), positive(beta, "beta"), positive(kappa, "kappa"), positive(step_size, "step_size")
    if step_size * kappa >= 2:
        raise ValueError(f"step_size * kappa must be below 2, got {step_size * kappa!r}")
    return dim / (beta * kappa * (1 - step_size * kappa / 2))


def mehta_log_partition(n: int, b: float) -> float:
    """log of int prod |e_i - e_j|^b exp(-sum e^2/2) de = (2 pi)^(n/2) prod_j Gamma(1 + j b/2)/Gamma(1 + b/2) (Mehta 2004, 17.6.7)."""
    n, b = count(n, "n"), positive(b, "b", zero=True)
    return float(n / 2 * np.log(2 * np.pi) + np.sum(gammaln(1 + np.arange(1, n + 1) * b / 2)) - n * gammaln(1 + b / 2))


def mean_log_energy(n: int, b: float) -> float:
    """E of -sum_{k<l} log|e_k - e_l| in the beta-Hermite ensemble: minus the derivative of `mehta_log_partition` in b."""
    n, b = count(n, "n"), positive(b, "b", zero=True)
    j = np.arange(1, n + 1)
    return float(-0.5 * (np.sum(j * digamma(1 + j * b / 2)) - n * digamma(1 + b / 2)))


def log_gas_log_partition(n: int, beta: float, kappa: float, strength: float) -> float:
    """log Z_N = log int exp(-beta N H_N) dx of the log gas on the line, in the package's variables."""
    b = log_gas_index(beta, strength, n)
    scale = n / 2 + b * n * (n - 1) / 4  # x = e / sqrt(beta kappa): Jacobian and pair products
    return mehta_log_partition(n, b) - scale * float(np.log(beta * positive(kappa, "kappa")))


def log_gas_energy(n: int, beta: float, kappa: float, strength: float) -> float:
    """Exact E H_N of the log gas on the line: kappa/2 of the second moment plus strength/(n(n-1)) of the pair sum."""
    b = log_gas_index(beta, strength, n)
    pairs = mean_log_energy(n, b) + n * (n - 1) / 4 * np.log(beta * positive(kappa, "kappa"))
    return float(kappa / 2 * second_moment(1, beta, kappa, strength) + strength * pairs / (n * (n - 1)))


def wall_gas_log_partition(n: int, beta: float, strength: float, half_width: float) -> float:
    """log Z_N = log int exp(-beta N H_N) dx of n >= 2 log-repelling particles on [-half_width, half_width], no other force.

    Selberg's integral with flat weight and gamma = b/2, of length 2 half_width (Selberg 1944; Mehta 2004, 17.1.3).
    """
    b, half_width = log_gas_index(beta, strength, n), positive(half_width, "half_width")
    j, g = np.arange(n), b / 2
    unit = np.sum(2 * gammaln(1 + j * g) + gammaln(1 + (j + 1) * g) - gammaln(2 + (n + j - 1) * g)) - n * gammaln(1 + g)
    return float(unit + (n + b * n * (n - 1) / 2) * np.log(2 * half_width))


def wall_gas_energy(n: int, beta: float, strength: float, half_width: float) -> float:
    """Exact E H_N of `wall_gas_log_partition`'s gas, minus the derivative of log Z_N / n in beta; beta may tend to 0 (free particles)."""
    b, half_width = log_gas_index(beta, strength, n), positive(half_width, "half_width")
    j, g = np.arange(n), b / 2
    falls = 2 * j * digamma(1 + j * g) + (j + 1) * digamma(1 + (j + 1) * g) - (n + j - 1) * digamma(2 + (n + j - 1) * g)
    pairs = -0.5 * (np.sum(falls) - n * digamma(1 + g)) - n * (n - 1) / 2 * np.log(2 * half_width)
    return float(strength * pairs / (n * (n - 1)))


def sample_wall_gas(
    n: int, beta: float, strength: float, half_width: float, rng: int | np.random.Generator, size: int = 1
) -> Float[np.ndarray, "size n 1"]:
    """Exact samples (size, n, 1), sorted, of n >= 2 log-repelling particles on [-half_width, half_width], no other force.

    Half the eigenvalues of the tridiagonal matrix of 2n-1 independent Beta variables (Killip & Nenciu 2004, theorem 2, a = b = 0).
    """
    b, half_width, size = log_gas_index(beta, strength, n), positive(half_width, "half_width"), count(size, "size")
    rng = generator(rng)
    if b == 0:
        return half_width * np.sort(rng.uniform(-1, 1, (size, n)), axis=1)[..., None]
    k = np.arange(2 * n - 1)
    fall = np.where(k % 2, (2 * n - k - 3) * b / 4 + 2, (2 * n - k - 2) * b / 4 + 1)  # exponents of (1 - a) and (1 + a)
    rise = np.where(k % 2, (2 * n - k - 1) * b / 4, fall)
    a = np.pad(1 - 2 * rng.beta(fall, rise, (size, 2 * n - 1)), ((0, 0), (1, 0)), constant_values=-1.0)  # a[:, k + 1] is alpha_k
    odd, even = a[:, 0::2], a[:, 1::2]  # alpha_-1, alpha_1, ... and alpha_0, alpha_2, ...
    diagonal = (1 - odd) * even
    diagonal[:, 1:] -= (1 + odd[:, 1:]) * even[:, :-1]
    beside = np.sqrt((1 - odd[:, :-1]) * (1 - even[:, :-1] ** 2) * (1 + odd[:, 1:]))
    return half_width / 2 * np.stack([eigvalsh_tridiagonal(d, e) for d, e in zip(diagonal, beside)])[..., None]


def circle_gas_log_partition(n: int, beta: float, strength: float, period: float) -> float:
    """log Z_N of n >= 2 log-repelling particles on a circle of circumference `period`, distances along the chord, no other force.

    (2 pi)^n Gamma(1 + bn/2)/Gamma(1 + b/2)^n at radius 1 (Dyson 1962; Good 1970).
    """
    b, period = log_gas_index(beta, strength, n), positive(period, "period")
    unit = n * np.log(2 * np.pi) + gammaln(1 + b * n / 2) - n * gammaln(1 + b / 2)
    return float(unit + (n + b * n * (n - 1) / 2) * np.log(period / (2 * np.pi)))


def circle_gas_energy(n: int, beta: float, strength: float, period: float) -> float:
    """Exact E H_N of `circle_gas_log_partition`'s gas."""
    b, period = log_gas_index(beta, strength, n), positive(period, "period")
    pairs = -n / 2 * (digamma(1 + b * n / 2) - digamma(1 + b / 2)) - n * (n - 1) / 2 * np.log(period / (2 * np.pi))
    return float(strength * pairs / (n * (n - 1)))


def sample_circle_gas(
    n: int, beta: float, strength: float, period: float, rng: int | np.random.Generator, size: int = 1
) -> Float[np.ndarray, "size n 1"]:
    """Exact samples (size, n, 1) in [0, period), sorted, of n >= 2 log-repelling particles on a circle.

    Phases of the eigenvalues of the CMV matrix of independent Verblunsky coefficients (Killip & Nenciu 2004, theorem 1). O(n^3) a sample.
    """
    b, period, size = log_gas_index(beta, strength, n), positive(period, "period"), count(size, "size")
    rng = generator(rng)
    modulus = np.ones((size, n))
    if b > 0:
        modulus[:, :-1] = np.sqrt(rng.beta(1.0, b * np.arange(n - 1, 0, -1) / 2, (size, n - 1)))
    alpha = modulus * np.exp(2j * np.pi * rng.random((size, n)))
    sides = np.zeros((2, size, n, n), complex)  # the block-diagonal factors: 2 x 2 reflections at even and at odd k
    sides[1, :, 0, 0] = 1
    for k in range(n):
        side, rho = sides[k % 2], np.sqrt(1 - modulus[:, k] ** 2)
        side[:, k, k] = alpha[:, k].conj()
        if k < n - 1:
            side[:, k, k + 1] = side[:, k + 1, k] = rho
            side[:, k + 1, k + 1] = -alpha[:, k]
    phase = np.angle(np.linalg.eigvals(sides[0] @ sides[1])) / (2 * np.pi)
    return period * np.sort(phase % 1.0 % 1.0, axis=1)[..., None]


def ginibre_radii(n: int, beta: float, kappa: float, rng: int | np.random.Generator, size: int = 1) -> Float[np.ndarray, "size n"]:
    """Exact samples (size, n), sorted, of the n distances from the centre of the planar log gas at index b = beta strength/(n-1) = 2.

    Their squares, in units of 2/(beta kappa), are independent Gamma(1), ..., Gamma(n) (Kostlan 1992). The strength is 2 (n-1)/beta.
    """
    shape = np.arange(1, count(n, "n") + 1)
    squares = generator(rng).gamma(shape, 1.0, (count(size, "size"), n)) * 2 / (positive(beta, "beta") * positive(kappa, "kappa"))
    return np.sqrt(np.sort(squares, axis=1))
