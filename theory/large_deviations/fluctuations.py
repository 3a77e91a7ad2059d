"""Gaussian fluctuations of linear statistics around the mean field, their O(1/N) bias, and how the learned kernel concentrates.

The second variation of beta F at its minimiser rho is Sigma^-1 + beta g, Sigma = diag(rho) - rho rho^T, g the interaction, so that
N Cov((1/N) sum f, (1/N) sum h) -> <f, (Sigma^-1 + beta g)^-1 h> = <f, Sigma (1 + beta g Sigma)^-1 h>: a central limit theorem
at fixed beta (Ben Arous & Brunaud 1990 for smooth g; Hardy & Lambert 2021 for the log gas on the circle). Where beta grows, beta N
Cov has a limit instead, Johansson's (1998) for the log gas (`log_gas_covariance`).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.fft import dct
from scipy.sparse.linalg import LinearOperator, cg
from scipy.special import ndtr

from theory.arrays import FloatArray, count, finite, positive, real
from theory.large_deviations.empirical_measure import Deviation, GibbsRate, confinement_rate, require_mean_field
from theory.mean_field.meshes import Function
from theory.mean_field.radial import RadialBall
from theory.mean_field.solver import MeanField

__all__ = ["Fluctuations", "LearnedKernel", "concentration_bound", "confinement_probability", "log_gas_bias", "log_gas_covariance"]

DENSE = 2500


class Fluctuations:
    """Fluctuations of the empirical measure around a stable stationary density.

    Parameters
    ----------
    field
        The mean-field limit, on any mesh. Everything is exact for its cells; the error is that of the mesh. `bias`,
        `log_partition_constant` and `tail` need dense matrices, at most 2500 cells, and modes of every shape: no radial mesh.
    rho
        A stable stationary density, default: what `field.stationary()` finds.

    Raises
    ------
    ValueError
        If rho is not stationary, or not a minimum of the free energy (the covariance of an unstable state does not exist).
    """

    def __init__(self, field: MeanField, rho: ArrayLike | None = None):
        self.field = require_mean_field(field, "field")
        self.rho = GibbsRate(field).minimum.rho if rho is None else finite(rho, "rho")
        error = field.mesh.integral(np.abs(field.gibbs(field.potential(self.rho)) - self.rho))
        if error > 1e-6:
            raise ValueError(f"rho must be stationary: its own Gibbs density differs from it by {error:g}")
        self._volume = np.broadcast_to(field.mesh.volume, self.rho.shape).ravel()
        self._mass = self._volume * self.rho.ravel()
        self._root = np.sqrt(self._mass)
        if self.stability <= 0:
            raise ValueError(f"rho must be a minimum of the free energy; its second variation is {self.stability:g} in some direction")

    @cached_property
    def stability(self) -> float:
        """Least eigenvalue of 1 + beta Sigma^1/2 g Sigma^1/2: 1 where nothing attracts, 0 where the state loses its stability."""
        return self.field.stability(self.rho)

    def covariance(self, f: ArrayLike) -> FloatArray:
        """lim N Cov of the statistics (1/N) sum f_i(x_k), (i, i), for cell averages f `(i, *cells)`.

        Conjugate gradients on the symmetric form, one convolution a step.
        """
        rows = self._rows(f)
        covariance = rows @ np.array([self._solve(row) for row in rows]).T
        return (covariance + covariance.T) / 2

    def variance(self, f: ArrayLike) -> float:
        """lim N Var of (1/N) sum f(x_k), for cell averages f `(*cells)`."""
        return float(self.covariance(finite(f, "f")[None])[0, 0])

    def bias(self, f: ArrayLike) -> float:
        """lim N (E (1/N) sum f - int f rho) for the package's W_N, a mean over pairs of cell averages f.

        The derivative of `log_partition_constant` along the tilt V - theta f/beta: (beta^2/2) tr[g C g dSigma], C the covariance,
        dSigma the change of Sigma under the change C f of the masses.
        """
        change = self._root * self._solve(self._rows(finite(f, "f")[None])[0])
        kernel, root = self._kernel, self._root
        inner = kernel @ (root[:, None] * np.linalg.solve(self._dense, self._project(root[:, None] * kernel)))
        traced = (np.diag(inner) + self._within_cells) @ change - 2 * change @ inner @ self._mass
        return float(self.field.beta**2 / 2 * traced)

    @property
    def log_partition_constant(self) -> float:
        """lim log Z_N + N beta F = -(1/2) log det_2(1 + beta Sigma g), det_2(1 + A) = det((1 + A) e^-A).

        The factor e^A is the diagonal k = l that W_N leaves out. It needs a square-integrable interaction: log, or s < dim/2.
        """
        extra = np.linalg.eigvalsh(self._dense) - 1
        return float(-0.5 * np.sum(np.log1p(extra) - extra) + self.field.beta**2 / 4 * self._within_cells @ self._mass)

    def tail(self, f: ArrayLike, value: float, n: int) -> float:
        """P((1/n) sum f(x_k) >= value) at n particles, with a relative error of O(1/n) in the tails too.

        Lugannani & Rice's (1980) formula for particles that interact: Q(w) + phi(w) (exp(C_theta - C_0)/u - 1/w) with w = +-sqrt(2 n J),
        u = theta sqrt(n Lambda''); theta is the tilt that makes `value` typical, Lambda'' the variance there, C its
        `log_partition_constant`, phi and Q the normal density and tail. For P((1/n) sum f <= value) ask for -f and -value.

        Raises
        ------
        ValueError
            At the mean of f, |w| < 0.01, where 1/u - 1/w cannot be told from 0: take a value a little off.
        """
        law, n = GibbsRate(self.field, start=self.rho), count(n, "n", least=2)
        rate, tilt, rho = law.linear_statistic(f, value)
        w = np.sign(tilt) * np.sqrt(2 * n * max(rate, 0.0))
        if abs(w) < 0.01:
            raise ValueError(f"value must differ from the mean by at least 0.01 standard deviations, got {value!r}, {w:.2g} away")
        tilted = Fluctuations(law.tilted(finite(f, "f"), tilt), rho)
        ratio = np.exp(tilted.log_partition_constant - self.log_partition_constant)
        correction = ratio / (tilt * np.sqrt(n * tilted.variance(f))) - 1 / w
        return float(ndtr(-w) + np.exp(-(w**2) / 2) / np.sqrt(2 * np.pi) * correction)

    def _rows(self, f: ArrayLike) -> FloatArray:
        """Centred statistics times the root of the masses, (statistic, cell)."""
        f = finite(f, "f")
        if f.shape[1:] != self.rho.shape:
            raise ValueError(f"f must have one value a cell, shape {self.rho.shape}, got {f.shape[1:]}")
        flat = f.reshape(-1, self.rho.size)
        return (flat - flat @ self._mass[:, None]) * self._root

    def _project(self, vectors: FloatArray) -> FloatArray:
        """Remove the direction that changes the mass, from columns."""
        along = self._root @ vectors
        return vectors - (self._root * along if vectors.ndim == 1 else np.outer(self._root, along))

    def _apply(self, vector: FloatArray) -> FloatArray:
        vector = vector.ravel()
        change = self._root * self._project(vector)
        push = self.field.convolve((change / self._volume).reshape(self.rho.shape))
        return vector + self.field.beta * self._project(self._root * push.ravel())

    @property
    def _operator(self) -> LinearOperator:
        return LinearOperator((self.rho.size,) * 2, matvec=self._apply, dtype=np.float64)

    def _solve(self, row: FloatArray) -> FloatArray:
        answer, status = cg(self._operator, row, rtol=1e-13, atol=0.0, maxiter=2000)
        if status:
            raise RuntimeError(f"the covariance did not converge in {status} steps")
        return answer

    @cached_property
    def _kernel(self) -> FloatArray:
        """g between cells, (cell, cell)."""
        if isinstance(self.field.mesh, RadialBall):
            raise ValueError("field must not be radial: a determinant needs the modes of every shape")
        size = self.rho.size
        if size > DENSE:
            raise ValueError(f"field must have at most {DENSE} cells for a determinant, got {size}")
        if self.rho.ndim == 1 and self.field.convolution is not None:
            return self.field.convolution.matrix / self._volume
        units = (np.eye(size) / self._volume).reshape(size, *self.rho.shape)
        return np.array([self.field.convolve(unit).ravel() for unit in units])

    @cached_property
    def _within_cells(self) -> FloatArray:
        """int (g^2 - the square of g's average over the pair of cells) rho, (cell,): lifts the error from the cell width to its square."""
        interaction = self.field.interaction
        if interaction is None:
            return np.zeros(self.rho.size)
        try:
            square = self.field.mesh.convolution(lambda r: np.square(np.asarray(interaction(r))))
        except ValueError as error:
            raise ValueError(f"field must have a square-integrable interaction for the next order in 1/N: {error}") from None
        return square(self.rho).ravel() - self._kernel**2 @ self._mass

    @cached_property
    def _dense(self) -> FloatArray:
        """1 + beta Sigma^1/2 g Sigma^1/2."""
        inner = self._project(self._project(self._root[:, None] * self._kernel * self._root).T)
        return np.eye(len(inner)) + self.field.beta * inner


def confinement_probability(field: MeanField, confined: MeanField, n: int) -> float:
    """P(all n particles lie in the domain of `confined`), the same model on a smaller domain, with a relative error of O(1/n).

    exp(-n rate + C_confined - C): `confinement_rate` with the constants of both normalisers.
    """
    inside, whole = Fluctuations(confined), Fluctuations(field)
    constant = inside.log_partition_constant - whole.log_partition_constant
    return float(np.exp(constant - count(n, "n", least=2) * confinement_rate(field, confined)))


def log_gas_covariance(f: Function, h: Function, low: float, high: float, strength: float, *, n_nodes: int = 512) -> float:
    """lim beta N Cov((1/N) sum f, (1/N) sum h) of the log gas on one interval [low, high], where beta grows with N (or b is fixed).

    sum_k k a_k b_k/(2 strength), a_k and b_k the Chebyshev coefficients of f and h on the interval; the confinement, by a trap or by hard
    walls, matters only through the interval (Johansson 1998, theorem 2.4). At index b, Cov(sum f, sum h) -> sum_k k a_k b_k/(2 b).
    f and h are smooth: n_nodes coefficients are summed.
    """
    a, b = (_chebyshev(function, name, low, high, n_nodes) for function, name in ((f, "f"), (h, "h")))
    return float(np.sum(np.arange(len(a)) * a * b) / (2 * positive(strength, "strength")))


def log_gas_bias(f: Function, radius: float, b: float, *, n_nodes: int = 512) -> float:
    """lim N (E (1/N) sum f - int f dmu) of the trapped log gas at index b, mu the package's semicircle of this radius.

    (2/b - 1) sum_(k even) a_k/2 + a_2/2, a_k the Chebyshev coefficients from k = 1 on: Johansson's (1998, theorem 2.4) shift and the
    package's n - 1 in place of n. f is smooth.
    """
    a = _chebyshev(f, "f", -positive(radius, "radius"), radius, n_nodes)
    return float((2 / positive(b, "b") - 1) * a[2::2].sum() / 2 + a[2] / 2)


def _chebyshev(f: Function, name: str, low: float, high: float, n_nodes: int) -> FloatArray:
    """a_k of f = a_0/2 + sum a_k T_k on [low, high], (n_nodes,)."""
    low, high, n_nodes = real(low, "low"), real(high, "high"), count(n_nodes, "n_nodes", least=4)
    if not -np.inf < low < high < np.inf:
        raise ValueError(f"low and high must be finite and high above low, got low = {low!r} and high = {high!r}")
    x = (low + high) / 2 + (high - low) / 2 * np.cos(np.pi * (np.arange(n_nodes) + 0.5) / n_nodes)
    return dct(np.broadcast_to(finite(f(x), name), x.shape), type=2) / n_nodes


def concentration_bound(n: int, distance: ArrayLike, *, beta: float, convexity: float, lipschitz: float) -> FloatArray:
    """P(|(1/n) sum f - its expectation| >= distance) <= 2 exp(-n beta convexity distance^2/(2 lipschitz^2)), at every n.

    For potentials V with Hessian at least `convexity` (kappa in the trap), on a convex domain, and interactions that are convex on each
    order of the particles: one dimension, log or Riesz repulsion. f is Lipschitz; cos(w.delta) has lipschitz = |delta|.
    From the logarithmic Sobolev inequality (Bakry & Emery 1985) and Herbst's argument (Anderson, Guionnet & Zeitouni 2010, section 2.3).
    """
    exponent = count(n, "n") * positive(beta, "beta") * positive(convexity, "convexity") / (2 * positive(lipschitz, "lipschitz") ** 2)
    return 2 * np.exp(-exponent * finite(distance, "distance") ** 2)


class LearnedKernel:
    """The learned kernel at one difference of inputs, K = (1/N) sum cos(w_k . delta), of particles at fixed beta.

    That of cosine and sine features, or of cosines averaged over their phases (random phases add a variance of 1/2 per particle).
    It concentrates: K is `mean` + `bias`/N on average, of variance `variance`/N, and P(K near value) = exp(-N rate(value).rate).

    Parameters
    ----------
    field
        The mean-field limit on an interval, a rectangle or a disc (radial densities know no cos(w . delta)).
    delta
        x - x': a number on the line, (2,) in the plane.
    rho
        A stable stationary density, as for `Fluctuations`.
    """

    def __init__(self, field: MeanField, delta: ArrayLike, rho: ArrayLike | None = None):
        self.delta = finite(delta, "delta")
        if isinstance(require_mean_field(field, "field").mesh, RadialBall):
            raise ValueError("field must live on an interval, a rectangle or a disc: a radial density knows no cos(w . delta)")
        planar = field.mesh.centres.ndim > len(field.mesh.shape)
        if self.delta.shape != ((field.mesh.centres.shape[-1],) if planar else ()):
            raise ValueError(f"delta must be a number on the line, (dim,) otherwise, got shape {self.delta.shape}")
        self.field, self.fluctuations = field, Fluctuations(field, rho)
        self.statistic = field.mesh.cell_average(lambda w: np.cos(w @ self.delta if planar else w * self.delta))

    @property
    def mean(self) -> float:
        """int cos(w . delta) rho(w) dw, the kernel of infinitely many particles."""
        return self.field.mesh.integral(self.statistic * self.fluctuations.rho)

    @cached_property
    def variance(self) -> float:
        """lim N Var K."""
        return self.fluctuations.variance(self.statistic)

    @cached_property
    def bias(self) -> float:
        """lim N (E K - mean)."""
        return self.fluctuations.bias(self.statistic)

    def rate(self, value: float) -> Deviation:
        """The rate at which K is found near `value`, and the density that does it."""
        return GibbsRate(self.field, start=self.fluctuations.rho).linear_statistic(self.statistic, value)

    def tail(self, n: int, value: float) -> float:
        """P(K beyond `value`, on its side of the mean) at n particles. See `Fluctuations.tail`."""
        side = 1.0 if value >= self.mean else -1.0
        return self.fluctuations.tail(side * self.statistic, side * value, n)
