"""Equilibrium measures of confined Riesz gases in closed form, and the exact ground state of the one-dimensional log gas.

Everywhere V = kappa |x|^2 / 2, the interaction is strength * W_N with g_s of the package (|x|^-s, -log|x| for s = 0, -|x|^|s|
for s < 0), and the energy of a measure is E(mu) = int V dmu + (strength/2) iint g_s dmu dmu. Positions of particles have
shape (n, dim), also for dim = 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.integrate import quad
from scipy.special import betainc, betaincinv, gammaln, roots_hermite

from theory.arrays import FloatArray, count, finite, generator, positive, real

__all__ = ["CoulombBall", "GaussWigner", "RieszBall", "Semicircle", "hermite_energy", "hermite_ground_state"]


@dataclass(frozen=True)
class BallProfile:
    """A radial density proportional to (radius^2 - |x|^2)^exponent on a ball: |x|^2/radius^2 is Beta(dim/2, exponent + 1).

    Every equilibrium below is one. Subclasses give `dim`, `s`, `radius` and `exponent`; `kappa` and `strength` must be positive.
    """

    kappa: float
    strength: float

    def __post_init__(self) -> None:
        positive(self.kappa, "kappa")
        positive(self.strength, "strength")

    dim = 1
    s = 0.0

    @property
    def radius(self) -> float:
        """Radius of the support."""
        raise NotImplementedError

    @property
    def exponent(self) -> float:
        """Power of (radius^2 - |x|^2): 1 - (dim - s)/2."""
        return 1 - (self.dim - self.s) / 2

    def density(self, x: ArrayLike) -> FloatArray:
        """Density at x (..., dim); zero outside the ball. When dim = 1, x may also be a scalar or (n,), one point a number."""
        r2 = self._squared_radius(x)
        half, power = self.dim / 2, self.exponent
        log_front = gammaln(half + power + 1) - gammaln(power + 1) - half * np.log(np.pi) - (self.dim + 2 * power) * np.log(self.radius)
        inside = r2 < self.radius**2
        return np.where(inside, np.exp(log_front) * np.where(inside, self.radius**2 - r2, 1.0) ** power, 0.0)

    def cdf(self, r: ArrayLike) -> FloatArray:
        """P(|x| <= r), shape of r."""
        return betainc(self.dim / 2, self.exponent + 1, np.clip(finite(r, "r") / self.radius, 0, 1) ** 2)

    def sample(self, n: int, rng: int | np.random.Generator) -> Float[np.ndarray, "n dim"]:
        """Independent points (n, dim)."""
        rng = generator(rng)
        direction = rng.standard_normal((count(n, "n"), self.dim))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        return self.radius * np.sqrt(rng.beta(self.dim / 2, self.exponent + 1, (n, 1))) * direction

    @property
    def second_moment(self) -> float:
        """int |x|^2 dmu."""
        return self.radius**2 * (self.dim / 2) / (self.dim / 2 + self.exponent + 1)

    @property
    def energy(self) -> float:
        """E(mu), its minimum. For s != 0 the virial identity makes the pair part kappa <|x|^2> / s."""
        return self.kappa * self.second_moment * (0.5 + 1 / self.s)

    def _squared_radius(self, x: ArrayLike) -> FloatArray:
        x = finite(x, "x")
        if x.ndim and x.shape[-1] == self.dim and (self.dim > 1 or x.ndim > 1):
            return np.sum(x**2, axis=-1)
        if self.dim > 1:
            raise ValueError(f"x must have shape (..., {self.dim}), got {x.shape}")
        return x**2


@dataclass(frozen=True)
class Semicircle(BallProfile):
    """Log gas on the line in a quadratic trap at zero temperature: radius sqrt(2 strength / kappa) (Wigner; Saff & Totik 1997)."""

    @property
    def radius(self) -> float:
        """Half width of the support."""
        return float(np.sqrt(2 * self.strength / self.kappa))

    def cdf(self, x: ArrayLike) -> FloatArray:
        """P(X <= x) on the line (not radial), shape of x."""
        return betainc(1.5, 1.5, np.clip(0.5 + 0.5 * finite(x, "x") / self.radius, 0, 1))

    def quantile(self, u: ArrayLike) -> FloatArray:
        """Inverse of `cdf` for u in [0, 1], shape of u."""
        u = finite(u, "u")
        if ((u < 0) | (u > 1)).any():
            raise ValueError(f"u must lie in [0, 1], got values from {u.min()} to {u.max()}")
        return self.radius * (2 * betaincinv(1.5, 1.5, u) - 1)

    @property
    def energy(self) -> float:
        """3 strength/8 - (strength/2) log(radius/2)."""
        return float(3 * self.strength / 8 - self.strength / 2 * np.log(self.radius / 2))


@dataclass(frozen=True)
class CoulombBall(BallProfile):
    """Coulomb gas (s = dim - 2; log in dim 2, -|x| in dim 1) in a quadratic trap: the uniform law on a ball.

    radius^dim = strength |dim - 2| / kappa, and radius^2 = strength / kappa in dim 2 (Newton; Serfaty 2015).
    """

    dim: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        count(self.dim, "dim")

    @property
    def s(self) -> float:  # type: ignore[override]
        """Riesz exponent dim - 2."""
        return float(self.dim - 2)

    @property
    def radius(self) -> float:
        """Radius of the ball."""
        return float((self.strength * (abs(self.dim - 2) or 1) / self.kappa) ** (1 / self.dim))

    @property
    def energy(self) -> float:
        """E(mu); 3 strength/8 - (strength/2) log(radius) in dim 2."""
        if self.dim == 2:
            return float(3 * self.strength / 8 - self.strength / 2 * np.log(self.radius))
        return super().energy


@dataclass(frozen=True)
class RieszBall(BallProfile):
    """Riesz gas with max(dim - 2, -2) < s < dim, s != 0, in a quadratic trap.

    radius^(s+2) = (2 strength |s| / (kappa dim)) Gamma((dim-s)/2) Gamma((s+4)/2) / Gamma(dim/2).
    Sources: Biler, Imbert & Karch 2015; Chafai, Saff & Womersley 2022.
    """

    dim: int = 1
    s: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        count(self.dim, "dim")
        if not max(self.dim - 2, -2) < real(self.s, "s") < self.dim or self.s == 0:
            raise ValueError(f"s must lie strictly between {max(self.dim - 2, -2)} and {self.dim} and not be 0, got {self.s!r}")

    @property
    def radius(self) -> float:
        """Radius of the support."""
        logs = gammaln((self.dim - self.s) / 2) + gammaln((self.s + 4) / 2) - gammaln(self.dim / 2)
        return float((2 * self.strength * abs(self.s) / (self.kappa * self.dim) * np.exp(logs)) ** (1 / (self.s + 2)))


@dataclass(frozen=True)
class GaussWigner:
    """Mean-field equilibrium of the log gas on the line in a quadratic trap at inverse temperature beta.

    With c = beta strength/2, rho(x) = sqrt(beta kappa) f_c(sqrt(beta kappa) x), f_c(u) = |D_-c(iu)|^-2 / (sqrt(2 pi) Gamma(1 + c)):
    a Gaussian at c = 0, the semicircle as c grows. Sources: Askey & Wimp 1984; Allez, Bouchaud & Guionnet 2012.
    """

    kappa: float
    strength: float
    beta: float

    def __post_init__(self) -> None:
        for name in ("kappa", "strength", "beta"):
            positive(getattr(self, name), name, zero=name == "strength")

    @property
    def crossover(self) -> float:
        """c = beta strength / 2."""
        return self.beta * self.strength / 2

    def density(self, x: ArrayLike) -> FloatArray:
        """rho(x), shape of x; about a millisecond a point (mpmath's parabolic cylinder function)."""
        import mpmath

        c, width = self.crossover, np.sqrt(self.beta * self.kappa)
        front = width / (mpmath.sqrt(2 * mpmath.pi) * mpmath.gamma(1 + c))
        u = width * finite(x, "x")
        values = [float(front / abs(mpmath.pcfd(-c, mpmath.mpc(0, point))) ** 2) for point in u.ravel()]
        return np.array(values).reshape(u.shape)

    @property
    def second_moment(self) -> float:
        """(1 + c)/(beta kappa) = 1/(beta kappa) + strength/(2 kappa)."""
        return (1 + self.crossover) / (self.beta * self.kappa)

    @property
    def fourth_moment(self) -> float:
        """(3 + 5c + 2c^2)/(beta kappa)^2."""
        c = self.crossover
        return (3 + 5 * c + 2 * c**2) / (self.beta * self.kappa) ** 2

    @cached_property
    def free_energy(self) -> float:
        """min over rho of E(rho) + (1/beta) int rho log rho: the limit of -log Z_N / (N beta)."""
        c, width2 = self.crossover, self.beta * self.kappa
        integral = quad(lambda t: gammaln(1 + c * t), 0, 1, epsabs=1e-14, epsrel=1e-13)[0]
        return float((0.5 * np.log(width2 / (2 * np.pi)) + 0.5 * c * np.log(width2) - integral) / self.beta)


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
