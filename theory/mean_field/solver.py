"""The mean-field (McKean-Vlasov) limit on a mesh: finite volumes that conserve mass, stay positive and dissipate free energy.

d_t rho = div(rho grad U) + (1/beta) Lap rho with U = V + g * rho and no flux through the walls, the gradient flow of
F(rho) = int V rho + (1/2) iint g rho rho + (1/beta) int rho log rho (Coulomb paper, theorem 1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import xlogy

from theory.arrays import FloatArray, finite, positive
from theory.mean_field import flow, stationary
from theory.mean_field.cell_pairs import Function
from theory.mean_field.flow import Flow
from theory.mean_field.meshes import Convolution, Interval, Mesh
from theory.mean_field.stationary import Stationary
from theory.mean_field.sweeps import Hops, Line

__all__ = ["MeanField"]


class MeanField:
    """Particles between the walls of a mesh.

    Parameters
    ----------
    external
        V: callable of positions (n, dim) -> (n,), as energies of particles take it, on an interval also -> (n, 1), so that x**2 will do;
        of radii (n,) -> (n,) on a radial mesh; None for no external potential.
    interaction
        g(r): callable of distances r > 0 (any shape, returned), strength included, for example lambda r: -0.7 * np.log(r); None for none.
        It is averaged over pairs of cells, the diagonal included: any singularity at 0 that the dimension integrates is allowed (log,
        r^-s with s < dim). Elsewhere it should be smooth on the scale of a cell: a kink or jump costs digits.
    beta
        Inverse temperature.
    mesh
        A `Mesh`, or the edges (cell + 1,) of equal cells of an interval, the first and the last of which are the walls.

    Attributes
    ----------
    external
        Averages of V over the cells, (shape).
    interaction
        g, as given.
    mesh
        The cells: `mesh.volume`, `mesh.integral(values)`, `mesh.centres`; an `Interval` where edges were given.
    x
        Centres of the cells.
    edges, width
        Of the cells of an interval; AttributeError on other meshes.

    Raises
    ------
    ValueError
        On edges that are not uniform, beta not positive and finite, or potentials that are not finite on the cells (r^-s with s >= dim:
        the energy of every density is infinite).
    """

    def __init__(self, external: Function | None, interaction: Function | None, beta: float, mesh: Mesh | ArrayLike):
        for name, function in (("external", external), ("interaction", interaction)):
            if function is not None and not callable(function):
                raise ValueError(f"{name} must be a callable or None, got {function!r}")
        self.beta = positive(beta, "beta")
        self.mesh: Any = _mesh(mesh)
        self.external = np.zeros(self.mesh.shape) if external is None else self.cell_average(external, "external")
        self.interaction = interaction
        self.convolution: Convolution | None = None if interaction is None else self.mesh.convolution(interaction)
        self.stiffness = self._stiffness()
        self.lines = [Line(self.mesh, axis, self.beta, self.stiffness) for axis in range(len(self.mesh.shape))]

    @property
    def x(self) -> FloatArray:
        """Centres of the cells, as the mesh gives them."""
        return self.mesh.centres

    @property
    def edges(self) -> FloatArray:
        """Edges (cell + 1,) of an interval."""
        return self._interval("edges").edges

    @property
    def width(self) -> float:
        """Width of the cells of an interval."""
        return self._interval("width").width

    def cell_average(self, function: Function, name: str = "function") -> FloatArray:
        """Averages (shape) of a callable over the cells."""
        return self.mesh.cell_average(function, name)

    def potential(self, rho: ArrayLike) -> FloatArray:
        """U = V + g * rho, averaged over each cell, (shape); one convolution."""
        return self.unchecked_potential(self.density(rho))

    def free_energy(self, rho: ArrayLike) -> float:
        """F(rho), exact for the piecewise constant density."""
        rho = self.density(rho)
        return self.energy_in(rho, self.unchecked_potential(rho))

    def dissipation(self, rho: ArrayLike) -> float:
        """-dF/dt of the semi-discrete flow, at least 0: the finite-volume form of int rho |grad(U + log(rho)/beta)|^2.

        Infinite where an empty cell touches a filled one.
        """
        rho = self.density(rho)
        u = self.unchecked_potential(rho)
        return self.dissipation_in(rho, u, [line.hops(u) for line in self.lines])

    def rate(self, rho: ArrayLike) -> FloatArray:
        """d rho / dt (shape) of the semi-discrete flow, for solvers of ordinary differential equations, which may give rho flat.

        Mass and sign are not checked.
        """
        rho = finite(rho, "rho")
        if rho.shape not in (self.mesh.shape, (rho.size,)) or rho.size != np.prod(self.mesh.shape):
            raise ValueError(f"rho must be of shape {self.mesh.shape}, or flat, got {rho.shape}")
        rho = rho.reshape(self.mesh.shape)
        u = self.unchecked_potential(rho)
        return np.add.reduce([line.gain(line.flux(rho, line.hops(u))) for line in self.lines]) / self.mesh.volume

    def evolve(self, rho: ArrayLike, t: float, *, tol: float = 1e-4, n_steps: int | None = None) -> FloatArray:
        """The density (shape) after time t: the last one of `flow`, whose parameters these are.

        Raises
        ------
        KeyboardInterrupt
            If the user stops it.
        """
        t = positive(t, "t", zero=True)
        result = self.flow(rho, [t], tol=tol, n_steps=n_steps)
        if result.interrupted:
            raise KeyboardInterrupt
        return result.rho[-1]

    def flow(
        self,
        rho: ArrayLike,
        times: ArrayLike,
        *,
        tol: float = 1e-4,
        n_steps: int | None = None,
        progress: bool = False,
        callback: Callable[[float, FloatArray], object] | None = None,
    ) -> Flow:
        """The densities at increasing times from rho at time 0, with free energy and dissipation at every step.

        `theory.free_energy.dissipation_residual` tests dF/dt = -D on the result; `theory.plots.flow` makes of it what `plot_flow`,
        `plot_snapshots` and `plot_dissipation` draw.

        Parameters
        ----------
        rho
            Density (shape) of mass 1, at least 0: see `normalised`.
        times
            (n,), at least 0 and increasing.
        tol
            Error of a step in the L1 norm; that of the result was measured at 0.01 to 2 times it. Steps adapt: each is extrapolated to
            third order from 1, 2 and 3 linearly implicit ones, in the logarithm, so that the density stays positive, and scaled to mass 1.
            That the free energy falls is checked, not proved: a step that would raise it is refused and repeated at half its length.
            Where s is near dim, the interaction acts like a diffusion of its own; that part is implicit too, and costs no steps.
        n_steps
            Instead of tol: that many equal implicit steps (more if times fall between), of first order. Each solves for the mean of the
            potentials before and after along one axis at a time (in alternating order), which proves that the free energy falls, at any
            length of step (Bailo, Carrillo & Hu 2020, whose argument needs of the flux only its sign), up to the change (1e-13) at which
            its iteration ends.
        progress
            Show a progress bar.
        callback
            None, or called as callback(t, rho) after every step; what it raises ends the run.

        Returns
        -------
        Flow
            What was reached, `interrupted` if Ctrl-C ended it early.

        Raises
        ------
        RuntimeError
            If the iteration of an implicit step does not settle, or adaptive steps become too short: the message says what to change.
        """
        return flow.run(self, self.density(rho), times, tol, n_steps, progress, callback)

    def stationary(self, start: ArrayLike | None = None, *, tol: float = 1e-12, n_iterations: int = 200) -> Stationary:
        """A solution of rho = exp(-beta (V + g * rho)) / Z by damped Newton steps.

        On a line of up to 1500 cells by factorisation, otherwise by GMRES with FFT convolutions.

        `start` is a density whose potential it begins from (default: V alone). Attractive interactions may have several
        solutions; this returns one, of which F is no higher than that of the Gibbs density it begins from, and which may be unstable if
        it shares a symmetry with the start; `stationary_states` looks for more. If it does not converge the returned residual says so,
        as where attraction alone, without V, holds a cold cloud: far from walls hardly anything tells it where to stay.
        """
        return stationary.solve(self, self.external if start is None else self.potential(start), tol, n_iterations)

    def stationary_states(
        self, starts: Sequence[ArrayLike], *, tol: float = 1e-12, n_iterations: int = 200, distance: float = 1e-4
    ) -> list[Stationary]:
        """The different stationary states that Newton steps find from several starting densities, lowest free energy first.

        Two are the same if they differ by less than `distance` in the L1 norm. Each comes with its `stability`; a state that
        no start leads to is not found.

        Raises
        ------
        ValueError
            If starts are not densities of mass 1 (`normalised`), at least one.
        RuntimeError
            If a start does not lead to a solution; the message says which and how far it came.
        """
        if not np.iterable(starts):
            raise ValueError(f"starts must be a sequence of densities, got {starts!r}")
        return stationary.states(self, [self.potential(start) for start in starts], tol, n_iterations, distance)

    def stability(self, rho: ArrayLike) -> float:
        """Smallest eigenvalue of the second variation of F at rho, relative to that of the entropy: positive for a local minimum.

        min over phi of mass 0 of 1 + beta iint g phi phi / int phi^2 / rho, at most 1, the bottom of the essential spectrum. At a
        stationary state it has the sign of the slowest rate of decay; it vanishes where the state branches.
        """
        return stationary.stability(self, self.density(rho))

    def _interval(self, name: str) -> Interval:
        """The mesh; AttributeError unless it is an interval."""
        if not isinstance(self.mesh, Interval):
            raise AttributeError(f"{name} is that of an interval, not of a {type(self.mesh).__name__}: see mesh.volume and normalised")
        return self.mesh

    def _stiffness(self) -> FloatArray:
        """Rise (shape) of g * rho per rise of rho where it changes sign from each cell to the next; 0 where g attracts such changes."""
        sign = 1.0 - 2 * (np.indices(self.mesh.shape).sum(0) % 2)
        return np.maximum(sign * self.convolve(sign), 0)

    def normalised(self, rho: ArrayLike) -> FloatArray:
        """Cell values (shape), at least 0, over their mass: a density, on every mesh.

        Raises
        ------
        ValueError
            If they have another shape, are negative or not finite, or their mass is 0 or not a finite number.
        """
        rho = finite(rho, "rho")
        mass = self.mesh.integral(rho) if rho.shape == self.mesh.shape else np.nan
        if (rho < 0).any() or not 0 < mass < np.inf:
            raise ValueError(f"rho must be of shape {self.mesh.shape}, at least 0 and of positive mass, got {rho.shape} of mass {mass}")
        return rho / mass

    def density(self, rho: ArrayLike) -> FloatArray:
        """rho as an array (shape); ValueError unless it is at least 0 and has mass 1."""
        rho = finite(rho, "rho")
        mass = self.mesh.integral(rho) if rho.shape == self.mesh.shape else float(rho.sum())
        if rho.shape != self.mesh.shape or (rho < 0).any() or abs(mass - 1) > 1e-6:
            words = f"rho must be of shape {self.mesh.shape}, at least 0 and of mass 1 (divide by the mass: field.normalised(rho))"
            raise ValueError(f"{words}, got {rho.shape} of mass {mass}")
        return rho

    def gibbs(self, u: FloatArray) -> FloatArray:
        """exp(-beta u) / Z, (shape)."""
        weight = np.exp(-self.beta * (u - u.min()))
        return weight / self.mesh.integral(weight)

    def convolve(self, rho: FloatArray) -> FloatArray:
        """g * rho, (shape), for cell values of any sign."""
        return np.zeros(self.mesh.shape) if self.convolution is None else self.convolution(rho)

    def unchecked_potential(self, rho: FloatArray) -> FloatArray:
        """`potential` of cell values that need not be a density."""
        return self.external + self.convolve(rho)

    def energy_in(self, rho: FloatArray, u: FloatArray) -> float:
        """F(rho) for its potential u."""
        return self.mesh.integral(rho * (self.external + u) / 2 + xlogy(rho, rho) / self.beta)

    def dissipation_in(self, rho: FloatArray, u: FloatArray, hops: Sequence[Hops]) -> float:
        """-dF/dt for its potential u and the rates in it."""
        with np.errstate(divide="ignore", invalid="ignore"):
            mu = u + np.log(rho) / self.beta
            losses = [(line.flux(rho, hop), line.rise(mu)) for line, hop in zip(self.lines, hops)]
            return float(sum(np.sum(np.where(flux == 0, 0.0, -flux * rise)) for flux, rise in losses))


def _mesh(mesh: Mesh | ArrayLike) -> Mesh:
    """A mesh as it is; anything else as the edges of an interval."""
    if isinstance(mesh, Mesh):
        return mesh
    try:
        return Interval(mesh)
    except ValueError as error:
        raise ValueError(f"mesh must be a Mesh or the edges of equal cells: {error}") from None
