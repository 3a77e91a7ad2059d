"""The mean-field (McKean-Vlasov) limit on an interval: finite volumes that conserve mass, stay positive and dissipate free energy.

d_t rho = div(rho grad U) + (1/beta) Lap rho with U = V + g * rho and no flux through the walls, the gradient flow of
F(rho) = int V rho + (1/2) iint g rho rho + (1/beta) int rho log rho (Coulomb paper, theorem 1).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_banded, toeplitz
from scipy.special import exprel, xlogy

from theory.arrays import FloatArray, count, finite, positive

__all__ = ["MeanField", "Stationary"]


class Stationary(NamedTuple):
    """A stationary density and how well it satisfies its equation.

    Attributes
    ----------
    rho
        Density on the cells, (cell,).
    residual
        Euler-Lagrange residual: largest |U + log(rho)/beta - multiplier| over the cells with mass, in units of energy.
    multiplier
        The mean of U + log(rho)/beta under rho (the chemical potential).
    n_iterations
        Newton steps taken.
    """

    rho: FloatArray
    residual: float
    multiplier: float
    n_iterations: int


class MeanField:
    """Particles on an interval with walls at both ends of `grid`.

    Parameters
    ----------
    external
        V(x): callable of an array, or None for no external potential.
    interaction
        g(r): callable of the distance r > 0, strength included, for example lambda r: -0.7 * np.log(r); None for none. It is averaged
        over pairs of cells, the diagonal included, by a double-exponential rule that takes any integrable singularity at 0
        (log, r^-s with s < 1).
    beta
        Inverse temperature.
    grid
        Edges of the cells, (cell + 1,), equally spaced and increasing; the first and the last are the walls.

    Raises
    ------
    ValueError
        On a grid that is not uniform, beta not positive and finite, or potentials that are not finite on the cells (r^-s with s >= 1:
        the energy of every density is infinite).
    """

    def __init__(
        self,
        external: Callable[[FloatArray], ArrayLike] | None,
        interaction: Callable[[FloatArray], ArrayLike] | None,
        beta: float,
        grid: ArrayLike,
    ):
        edges = finite(grid, "grid")
        if (
            edges.ndim != 1
            or len(edges) < 4
            or not np.allclose(np.diff(edges), (edges[-1] - edges[0]) / (len(edges) - 1), rtol=1e-8, atol=0)
        ):
            raise ValueError(f"grid must be at least 4 equally spaced increasing edges, got shape {edges.shape}: {edges.ravel()[:3]}...")
        if edges[-1] <= edges[0]:
            raise ValueError(f"grid must increase, got {edges[0]} to {edges[-1]}")
        for name, function in (("external", external), ("interaction", interaction)):
            if function is not None and not callable(function):
                raise ValueError(f"{name} must be a callable or None, got {function!r}")
        self.beta = positive(beta, "beta")
        self.edges, self.width = edges, float(edges[-1] - edges[0]) / (len(edges) - 1)
        self.x = (edges[1:] + edges[:-1]) / 2
        self.external = np.zeros(len(self.x)) if external is None else self.cell_average(external, "external")
        self.kernel = np.zeros(len(self.x)) if interaction is None else _cell_kernel(interaction, len(self.x), self.width)
        self._spectrum = np.fft.rfft(np.concatenate([self.kernel, [0.0], self.kernel[:0:-1]]))

    def cell_average(self, function: Callable[[FloatArray], ArrayLike], name: str = "function") -> FloatArray:
        """Averages (cell,) of a callable over the cells, by five Gauss points."""
        node, weight = np.polynomial.legendre.leggauss(5)
        points = self.x[:, None] + self.width / 2 * node
        return _values(function, points, name) @ (weight / 2)

    def potential(self, rho: ArrayLike) -> FloatArray:
        """U = V + g * rho, averaged over each cell, (cell,); one FFT convolution."""
        return self.external + self._convolve(self._density(rho))

    def free_energy(self, rho: ArrayLike) -> float:
        """F(rho), exact for the piecewise constant density."""
        rho = self._density(rho)
        return float(self.width * np.sum(rho * (self.external + self._convolve(rho) / 2) + xlogy(rho, rho) / self.beta))

    def dissipation(self, rho: ArrayLike) -> float:
        """-dF/dt of the semi-discrete flow, at least 0: the finite-volume form of int rho |grad(U + log(rho)/beta)|^2.

        Infinite where an empty cell touches a filled one.
        """
        rho = self._density(rho)
        u = self.external + self._convolve(rho)
        with np.errstate(divide="ignore", invalid="ignore"):
            drop = -np.diff(u + np.log(rho) / self.beta)
            flux = self._flux(rho, u)
            return float(np.sum(np.where(flux == 0, 0.0, flux * drop)))

    def evolve(self, rho: ArrayLike, t: float, *, n_steps: int = 256) -> FloatArray:
        """The density (cell,) after time t, by n_steps implicit steps; first order in the step, second in the cell width.

        Each step uses Scharfetter-Gummel fluxes of the new density in the potential of the mean of the old and the new one, which
        conserves mass, keeps the density positive and lowers the free energy at any step size (Bailo, Carrillo & Hu 2020).

        Raises
        ------
        RuntimeError
            If the fixed-point iteration of a step does not settle: use more steps.
        """
        rho = self._density(rho)
        t, n_steps = positive(t, "t", zero=True), count(n_steps, "n_steps")
        for _ in range(n_steps if t > 0 else 0):
            rho = self._step(rho, t / n_steps)
        return rho

    def stationary(self, start: ArrayLike | None = None, *, tol: float = 1e-12, n_iterations: int = 100) -> Stationary:
        """A solution of rho = exp(-beta (V + g * rho)) / Z by damped Newton steps on the potential U.

        `start` is a density to begin from (default: the Gibbs density of V alone). Attractive interactions may have several
        solutions; this returns one. If it does not converge the returned residual says so.
        """
        tol, n_iterations = positive(tol, "tol"), count(n_iterations, "n_iterations")
        u = self.external if start is None else self.potential(start)
        error, rho = self._gibbs_error(u)
        steps = 0
        while np.abs(error).max() > tol * (1 + np.abs(u).max()) and steps < n_iterations:
            u, error, rho, improved = self._newton_step(u, error, rho)
            steps += 1
            if not improved:
                break
        residual, multiplier = self._euler_lagrange(rho)
        return Stationary(rho, residual, multiplier, steps)

    def _density(self, rho: ArrayLike) -> FloatArray:
        rho = finite(rho, "rho")
        if rho.shape != self.x.shape or (rho < 0).any() or abs(self.width * rho.sum() - 1) > 1e-6:
            raise ValueError(
                f"rho must be {len(self.x)} numbers of at least 0 with mass 1, got shape {rho.shape}, mass {self.width * rho.sum()}"
            )
        return rho

    def _convolve(self, rho: FloatArray) -> FloatArray:
        size = 2 * len(rho)
        return self.width * np.fft.irfft(self._spectrum * np.fft.rfft(rho, size), size)[: len(rho)]

    def _flux(self, rho: FloatArray, u: FloatArray) -> FloatArray:
        """Flux through the inner edges (cell - 1,): zero exactly for the Gibbs density of u."""
        z = self.beta * np.diff(u)
        return (rho[:-1] / exprel(z) - rho[1:] / exprel(-z)) / (self.beta * self.width)

    def _step(self, rho: FloatArray, dt: float) -> FloatArray:
        new = rho
        for _ in range(200):
            last, new = new, self._linear_step(rho, self.external + self._convolve((rho + new) / 2), dt)
            if np.abs(new - last).sum() * self.width < 1e-13:
                return new
        raise RuntimeError(f"the implicit step of length {dt:g} did not converge: use a larger n_steps")

    def _linear_step(self, rho: FloatArray, u: FloatArray, dt: float) -> FloatArray:
        """Implicit Fokker-Planck step in the fixed potential u; the matrix is an M-matrix with unit column sums."""
        z = self.beta * np.diff(u)
        rate = dt / (self.beta * self.width**2)
        right, left = rate / exprel(z), rate / exprel(-z)  # hopping over each inner edge, to the right and to the left
        bands = np.zeros((3, len(rho)))
        bands[0, 1:], bands[2, :-1] = -left, -right
        bands[1] = 1.0
        bands[1, :-1] += right
        bands[1, 1:] += left
        return solve_banded((1, 1), bands, rho)

    def _gibbs(self, u: FloatArray) -> FloatArray:
        weight = np.exp(-self.beta * (u - u.min()))
        return weight / (self.width * weight.sum())

    def _gibbs_error(self, u: FloatArray) -> tuple[FloatArray, FloatArray]:
        rho = self._gibbs(u)
        return u - self.external - self._convolve(rho), rho

    @cached_property
    def _matrix(self) -> FloatArray:
        return self.width * toeplitz(self.kernel)

    def _newton_step(self, u: FloatArray, error: FloatArray, rho: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, bool]:
        """One Newton step for u - V - g * gibbs(u) = 0, halved until the error falls."""
        spread = np.diag(rho) - self.width * np.outer(rho, rho)
        step = np.linalg.solve(np.eye(len(u)) + self.beta * self._matrix @ spread, error)
        size = 1.0
        while size > 1e-6:
            new_error, new_rho = self._gibbs_error(u - size * step)
            if np.abs(new_error).max() < np.abs(error).max():
                return u - size * step, new_error, new_rho, True
            size /= 2
        return u, error, rho, False

    def _euler_lagrange(self, rho: FloatArray) -> tuple[float, float]:
        inside = rho > 1e-290  # below, the density underflows and its logarithm says nothing
        total = (self.external + self._convolve(rho))[inside] + np.log(rho[inside]) / self.beta
        multiplier = float(self.width * np.sum(rho[inside] * total))
        return float(np.abs(total - multiplier).max()), multiplier


def _cell_kernel(interaction: Callable[[FloatArray], ArrayLike], n_cells: int, width: float) -> FloatArray:
    """Averages of g(|x - y|) over x in cell i and y in cell i + m, for m = 0 .. n_cells - 1.

    int_-1^1 (1 - |t|) g(width |m + t|) dt. Three pieces touch r = 0, where g may be singular: both halves of m = 0, the left one of m = 1.
    """
    node, weight = np.polynomial.legendre.leggauss(16)
    node, weight = (node + 1) / 2, weight / 2
    m = np.arange(n_cells)[:, None]
    right = _values(interaction, width * (m + node)) @ (weight * (1 - node))
    left = _values(interaction, width * np.maximum(m - node, node)) @ (weight * (1 - node))
    node, weight = _double_exponential()
    near = _values(interaction, width * node)
    if abs(near[0] * weight[0]) > 1e-10 * np.sum(np.abs(near) * weight):
        raise ValueError("interaction must be integrable at r = 0 (r^-s needs s below 1, resolved up to about 0.96)")
    right[0] = left[0] = near @ (weight * (1 - node))
    right[1] = _values(interaction, width * (1 + node)) @ (weight * (1 - node))
    left[1] = near @ (weight * node)
    return left + right


def _double_exponential() -> tuple[FloatArray, FloatArray]:
    """Nodes and weights on (0, 1) for integrands singular at 0: u = 1/(1 + exp(-pi sinh tau)) (Takahasi & Mori 1974)."""
    tau = np.linspace(-6.0, 3.6, 385)
    sinh = np.pi * np.sinh(tau)
    node = 1 / (1 + np.exp(-sinh))
    weight = (tau[1] - tau[0]) * np.pi * np.cosh(tau) * node / (1 + np.exp(sinh))
    return node, weight


def _values(function: Callable[[FloatArray], ArrayLike], at: FloatArray, name: str = "interaction") -> FloatArray:
    """function(at), a number or an array of at's shape; ValueError names the function."""
    values = finite(function(at), name)
    if values.shape not in ((), at.shape):
        raise ValueError(f"{name} must return an array of its argument's shape {at.shape}, got {values.shape}")
    return np.broadcast_to(values, at.shape)
