"""Exact laws of particles that attract each other by (attraction/2)|x - y|^2 in the trap kappa |x|^2 / 2.

The drift of particle k is -kappa x_k - attraction n/(n-1) (x_k - mean), the noise sqrt(2/beta) dW; n -> infinity gives -kappa x -
attraction (x - m_t). Everything is Gaussian, every coordinate alike and independent. The modes are sqrt(n) times the mean of the
particles, relaxing at the rate kappa, and n - 1 orthonormal deviations from it, relaxing at theta = kappa + attraction n/(n-1); a particle
of the limit relaxes at kappa + attraction. Negative attraction repels. Independent starts of one variance give every mode that variance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.linalg import expm
from scipy.special import exprel

from theory.arrays import FloatArray, count, finite, generator, positive, real
from theory.dynamics.diffusion import inverse_temperature

__all__ = ["Modes", "QuadraticGas", "relax"]


class Modes(NamedTuple):
    """Variances, a coordinate, of the centre mode sqrt(n) mean(x) and of each of the n - 1 deviation modes."""

    centre: float
    deviation: float

    def variance(self, n: int) -> float:
        """Of one particle about the mean of the law."""
        return self.deviation + (self.centre - self.deviation) / n

    def covariance(self, n: int) -> float:
        """Of two particles."""
        return (self.centre - self.deviation) / n


@dataclass(frozen=True)
class QuadraticGas:
    """`n` particles in R^dim at inverse temperature `beta` (may be infinite); times are at least 0 and may be infinite.

    Raises
    ------
    ValueError
        For kappa < 0, beta <= 0, n < 2, dim < 1; in the methods for a stationary law that does not exist, or an unstable step.
    """

    kappa: float
    attraction: float
    beta: float
    n: int
    dim: int = 1

    def __post_init__(self) -> None:
        positive(self.kappa, "kappa", zero=True)
        if not np.isfinite(real(self.attraction, "attraction")):
            raise ValueError(f"attraction must be finite, got {self.attraction!r}")
        inverse_temperature(self.beta)
        count(self.n, "n", least=2)
        count(self.dim, "dim")

    @property
    def rates(self) -> Modes:
        """Relaxation rates of the centre and of the deviations."""
        return Modes(self.kappa, self.kappa + self.attraction * self.n / (self.n - 1))

    @property
    def limit_rate(self) -> float:
        """kappa + attraction, the relaxation rate in the limit n -> infinity."""
        return self.kappa + self.attraction

    def modes(self, t: float = np.inf, *, start: float = 0.0) -> Modes:
        """Mode variances at time t from independent particles of variance `start`: v' = -2 rate v + 2/beta."""
        start = positive(start, "start", zero=True)
        return Modes(*(relax(rate, _time(t), start, self.beta) for rate in self.rates))

    def euler_modes(self, step_size: float, n_steps: float = np.inf, *, start: float = 0.0) -> Modes:
        """Mode variances after n_steps Euler steps, v <- (1 - step rate)^2 v + 2 step/beta; at rest 1/(beta rate (1 - step rate/2)).

        Raises
        ------
        ValueError
            If n_steps is infinite and step_size rate >= 2 for a mode, where the step is unstable, or a rate is not positive.
        """
        step, start = positive(step_size, "step_size"), positive(start, "start", zero=True)
        steps = n_steps if n_steps == np.inf else count(n_steps, "n_steps", least=0)
        return Modes(*(_euler(rate, step, steps, start, self.beta) for rate in self.rates))

    def limit_variance(self, t: float = np.inf, *, start: float = 0.0) -> float:
        """Variance of a coordinate in the mean-field limit, v' = -2 (kappa + attraction) v + 2/beta."""
        return relax(self.limit_rate, _time(t), positive(start, "start", zero=True), self.beta)

    def mean(self, t: float, start: ArrayLike) -> FloatArray:
        """Mean start exp(-kappa t) of every particle, for every n and in the limit; start (dim,) or a number."""
        t = _time(t)
        return finite(start, "start") * (np.exp(-self.kappa * t) if self.kappa > 0 else 1.0)

    def chaos_bias(self, t: float = np.inf, *, start: float = 0.0) -> float:
        """n (variance of a particle - variance in the limit), exactly, a coordinate; O(1).

        At rest it tends to 1/(beta kappa) - 1/(beta (kappa + a)) - a/(beta (kappa + a)^2) as n -> infinity.
        """
        modes = self.modes(t, start=start)
        return self.n * self._excess(t, start) + modes.centre - modes.deviation

    def covariance(self, t: float = np.inf, *, start: float = 0.0) -> Float[np.ndarray, "n n"]:
        """Covariance matrix of the particles, a coordinate."""
        modes = self.modes(t, start=start)
        return np.full((self.n, self.n), modes.covariance(self.n)) + modes.deviation * np.eye(self.n)

    def marginal_entropy(self, k: int, t: float = np.inf, *, start: float = 0.0) -> float:
        """Relative entropy H(law of k particles | k-fold product of the limit law), all coordinates, exactly.

        O((k/n)^2), the sharp rate of Lacker 2023, whose Gaussian example this is: half the sum of ratio - 1 - log ratio over the
        eigenvalues of the covariance by the limit variance; k - 1 are the deviations' variance, one is that plus k covariances.

        Raises
        ------
        ValueError
            If k is not in 1..n, or the limit law is a point (t = 0 from start 0, or beta infinite).
        """
        if count(k, "k") > self.n:
            raise ValueError(f"k must be at most n = {self.n}, got {k}")
        variance, modes = self.limit_variance(t, start=start), self.modes(t, start=start)
        if variance == 0:
            raise ValueError(f"the limit law must have a density, got variance 0 at t = {t:g}, start = {start:g}, beta = {self.beta:g}")
        excess = self._excess(t, start) / variance
        along = excess + k * modes.covariance(self.n) / variance
        return self.dim / 2 * float((k - 1) * (excess - np.log1p(excess)) + along - np.log1p(along))

    def sample(
        self, n_chains: int, rng: int | np.random.Generator, t: float = np.inf, *, start: float = 0.0
    ) -> Float[np.ndarray, "chain n dim"]:
        """Independent draws (chain, n, dim) of the law at time t about its mean."""
        modes = self.modes(t, start=start)
        z = generator(rng).standard_normal((count(n_chains, "n_chains"), self.n, self.dim))
        centre = z.mean(1, keepdims=True)
        return np.sqrt(modes.deviation) * (z - centre) + np.sqrt(modes.centre) * centre

    def log_partition(self) -> float:
        """log int exp(-beta [sum V + attraction/(4 (n-1)) sum_{k != l} |x_k - x_l|^2]), V = kappa |x|^2 / 2, over R^(n dim)."""
        modes = self.modes()
        if self.beta == np.inf:
            raise ValueError("beta must be finite for a partition function, got inf")
        return self.dim / 2 * (self.n * np.log(2 * np.pi) + np.log(modes.centre) + (self.n - 1) * np.log(modes.deviation))

    def free_energy(self, mean: ArrayLike, variance: float) -> float:
        """F of the Gaussian of that mean (dim,) and variance a coordinate in the limit: kappa |m|^2 / 2 + dim [(kappa + a) v/2 -
        log(2 pi e v)/(2 beta)]."""
        v, m = positive(variance, "variance"), self._mean(mean)
        return float(self.kappa / 2 * (m @ m) + self.dim * (self.limit_rate * v / 2 - np.log(2 * np.pi * np.e * v) / (2 * self.beta)))

    def dissipation(self, mean: ArrayLike, variance: float) -> float:
        """-dF/dt of that Gaussian along the limit flow, |kappa m|^2 + dim v (kappa + a - 1/(beta v))^2."""
        v, m = positive(variance, "variance"), self._mean(mean)
        return float(self.kappa**2 * (m @ m) + self.dim * v * (self.limit_rate - 1 / (self.beta * v)) ** 2)

    def drift(self, x: ArrayLike) -> FloatArray:
        """Of x (..., n, dim) in the system of n particles."""
        x = finite(x, "x")
        if x.shape[-2:] != (self.n, self.dim):
            raise ValueError(f"x must have shape (..., {self.n}, {self.dim}), got {x.shape}")
        return -self.kappa * x - self.attraction * self.n / (self.n - 1) * (x - x.mean(-2, keepdims=True))

    def limit_drift(self, t: float, x: ArrayLike, start: ArrayLike) -> FloatArray:
        """Of x (..., dim) at time t in the limit, whose mean began at `start` (dim,)."""
        x = finite(x, "x")
        return -self.kappa * x - self.attraction * (x - self.mean(t, start))

    def coupling_distance(self, t: float, *, start: float) -> float:
        """E |X_1 - Y_1|^2 at time t for the synchronous coupling, exactly: X in the system of n, Y in the limit, same start, same noise.

        The start is independent with variance `start` a coordinate. (X - Y, Y) is linear with noise in Y alone: the moments of the centre
        and of the deviations obey S' = -K S - S K^T + diag(0, 2/beta), solved by the exponential of the augmented matrix. O(1/n):
        Sznitman 1991, theorem 1.4.
        """
        start, t = positive(start, "start", zero=True), _time(t)
        if t == np.inf:
            raise ValueError("t must be finite, got inf")
        delta, theta = self.attraction / (self.n - 1), self.rates.deviation
        centre = _second_moment(np.array([[self.kappa, -self.attraction], [0.0, self.limit_rate]]), t, start, self.beta)
        deviation = _second_moment(np.array([[theta, delta], [0.0, self.limit_rate]]), t, start, self.beta)
        return self.dim * (centre / self.n + deviation * (1 - 1 / self.n))

    def _mean(self, mean: ArrayLike) -> FloatArray:
        mean = np.atleast_1d(finite(mean, "mean"))
        if mean.shape != (self.dim,):
            raise ValueError(f"mean must have shape ({self.dim},), got {mean.shape}")
        return mean

    def _excess(self, t: float, start: float) -> float:
        """Variance of a deviation mode minus that of the limit, without their cancellation at large n."""
        limit, delta = self.limit_rate, self.attraction / (self.n - 1)
        theta, t = self.rates.deviation, _time(t)
        if limit <= 0 or theta <= 0:
            return relax(theta, t, start, self.beta) - relax(limit, t, start, self.beta)
        if t == np.inf:
            return -delta / (self.beta * theta * limit)
        fade, shift = np.exp(-2 * limit * t), np.expm1(-2 * delta * t)
        return float(start * fade * shift + (delta * np.expm1(-2 * limit * t) - limit * fade * shift) / (self.beta * theta * limit))


def relax(rate: float, t: float, start: float, beta: float) -> float:
    """Solution v(t) of v' = -2 rate v + 2/beta from `start`, for any real rate; t = infinity needs a positive one.

    Raises
    ------
    ValueError
        If t is infinite and the rate not positive.
    """
    if t == np.inf:
        if not rate > 0:
            raise ValueError(f"a stationary law needs positive relaxation rates, got {rate:g}")
        return 1 / (beta * rate)
    return float(start * np.exp(-2 * rate * t) + 2 * t / beta * exprel(-2 * rate * t))


def _euler(rate: float, step: float, n_steps: float, start: float, beta: float) -> float:
    if n_steps == np.inf and not 0 < step * rate < 2:
        raise ValueError(f"a stationary law needs 0 < step_size rate < 2, got step_size {step:g} and rate {rate:g}")
    lost = step * rate * (2 - step * rate)  # 1 - (1 - step rate)^2 without its cancellation
    if lost == 0 or n_steps == 0:
        return start + n_steps * 2 * step / beta
    with np.errstate(divide="ignore"):
        log_power = n_steps * np.log1p(-min(lost, 1.0))
    return float(np.exp(log_power) * start - 2 * step / beta * np.expm1(log_power) / lost)


def _second_moment(matrix: FloatArray, t: float, start: float, beta: float) -> float:
    """E z_0^2 at time t of dz = -matrix z dt + (0, sqrt(2/beta) dW), from E z z^T = diag(0, start)."""
    eye, flow = np.eye(2), np.zeros((5, 5))
    flow[:4, :4] = -(np.kron(matrix, eye) + np.kron(eye, matrix))
    flow[3, 4] = 2 / beta
    return float((expm(flow * t) @ np.array([0.0, 0.0, 0.0, start, 1.0]))[0])


def _time(t: float) -> float:
    t = real(t, "t")
    if not t >= 0:
        raise ValueError(f"t must be at least 0, got {t!r}")
    return t
