"""Energies of lattices by the Epstein zeta function, in any dimension, and what they say of Riesz gases beyond the mean field.

zeta_L(s) = sum over x in L, x != 0, of |x|^-s, continued analytically from s > dim to every s but the pole s = dim. A jellium on a lattice
has energy zeta_L(s)/2 per particle, the log jellium zeta_L'(0)/2, and minima of hypersingular energies grow with zeta_L(s), s > dim.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, rgamma, zeta

from theory.arrays import FloatArray, count, finite, positive, real

__all__ = [
    "LATTICES",
    "Hypersingular",
    "Lattice",
    "hypersingular_constant",
    "hypersingular_minimum",
    "jellium_energy",
    "lattice",
    "leech_zeta",
    "wigner_crystal_energy",
]

Shells = tuple[FloatArray, FloatArray]


@dataclass(frozen=True, eq=False)
class Lattice:
    """The lattice of all integer combinations of the rows of `basis` (dim, dim).

    Raises
    ------
    ValueError
        If the basis is not square, finite and of full rank.
    """

    basis: ArrayLike

    def __post_init__(self) -> None:
        basis = finite(self.basis, "basis")
        if basis.ndim != 2 or basis.shape[0] != basis.shape[1] or not basis.size:
            raise ValueError(f"basis must be a square matrix, got shape {basis.shape}")
        if not np.linalg.cond(basis) < 1e8:
            raise ValueError(f"basis must have full rank, got {basis.tolist()}")
        object.__setattr__(self, "basis", basis)

    @property
    def dim(self) -> int:
        """Dimension."""
        return len(self.basis)  # type: ignore[arg-type]

    @property
    def covolume(self) -> float:
        """Volume of a cell, one over the density of points."""
        return float(abs(np.linalg.det(np.asarray(self.basis))))

    def shells(self, limit: float) -> Shells:
        """Squared lengths (shells,), ascending and distinct (by 1e-9), and numbers of points (shells,) of 0 < |x|^2 <= limit."""
        triangle = np.linalg.qr(np.asarray(self.basis).T)[1]  # |basis^T k| = |triangle k| for integer k: fixed from the last on up
        partial, square = np.zeros((1, self.dim)), np.zeros(1)
        for i in range(self.dim - 1, -1, -1):
            half = np.sqrt(np.maximum(limit * (1 + 1e-12) - square, 0)) / abs(triangle[i, i])
            middle = -partial[:, i] / triangle[i, i]
            low, high = np.ceil(middle - half), np.floor(middle + half)
            number = (high - low + 1).astype(int)
            parent = np.repeat(np.arange(len(number)), number)
            k = low[parent] + np.arange(len(parent)) - np.repeat(np.cumsum(number) - number, number)
            partial = partial[parent] + k[:, None] * triangle[:, i]
            square = square[parent] + partial[:, i] ** 2
        return _gather(square)

    @cached_property
    def _unit(self) -> tuple[Shells, Shells]:
        """Shells of the lattice and of its dual, scaled to covolume 1, up to where the theta functions at 1 are exact to rounding."""
        unit = np.asarray(self.basis) / self.covolume ** (1 / self.dim)
        limit = _limit(self.dim)
        return Lattice(unit).shells(limit), Lattice(np.linalg.inv(unit).T).shells(limit)

    def zeta(self, s: float) -> float:
        """zeta_L(s), any real s but the pole dim; -1 at 0, 0 at -2, -4, ... Relative accuracy about 1e-13 away from its zeros.

        Riemann's splitting: pi^(-s/2) Gamma(s/2) zeta_L(s) = I_L(s/2) + I_L*((dim-s)/2) - 2/s - 2/(dim-s) at covolume 1, where
        I(nu) = int_1^inf t^(nu-1) (theta(t) - 1) dt, theta(t) = sum exp(-pi t |x|^2) (Epstein 1903; Terras 1973).

        Raises
        ------
        ValueError
            If s = dim, or beyond -40 and dim + 40 where the splitting loses digits.
        """
        return _unit_zeta(*self._unit, self.dim, s) * self.covolume ** (-s / self.dim)

    @property
    def zeta_derivative_at_zero(self) -> float:
        """zeta_L'(0): minus the regularised sum of the logs of the distances."""
        integral = _split_integral(*self._unit, self.dim, 0.0)
        return float((integral - np.euler_gamma - np.log(np.pi)) / 2 - 1 / self.dim + np.log(self.covolume) / self.dim)


def _unit_zeta(shells: Shells, dual: Shells, dim: int, s: float) -> float:
    """Epstein's zeta function of a lattice of covolume 1 from its shells and those of its dual."""
    s = real(s, "s")
    if s == dim or not -40 <= s <= dim + 40:
        raise ValueError(f"s must lie between -40 and {dim + 40} and not be the pole {dim}, got {s!r}")
    inner = _split_integral(shells, dual, dim, s) - 2 / (dim - s)
    return float(np.pi ** (s / 2) * (inner * rgamma(s / 2) - rgamma(1 + s / 2)))


def _split_integral(shells: Shells, dual: Shells, dim: int, s: float) -> float:
    """I_L(s/2) + I_L*((dim-s)/2) of `Lattice.zeta`."""
    return _theta_integral(shells, s / 2) + _theta_integral(dual, (dim - s) / 2)


def _gather(square: FloatArray) -> Shells:
    """Distinct positive values and their numbers."""
    square = np.sort(square)
    square = square[square > 1e-9]
    starts = np.flatnonzero(np.diff(square, prepend=-1.0) > 1e-9)
    number = np.diff(np.append(starts, len(square)))
    return square[starts], number.astype(np.float64)


def _limit(dim: int) -> float:
    """Squared length beyond which exp(-pi |x|^2), summed over a lattice of covolume 1, is below rounding."""
    return 12.0 + dim / 2


def _theta_integral(shells: Shells, nu: float) -> float:
    """int_1^inf t^(nu-1) sum number exp(-pi t square) dt by Gauss-Legendre panels in log t, to where the integrand has died."""
    square, number = shells
    peak = max(1.0, nu / (np.pi * square[0]))
    end = peak * (1 + 50 / max(1.0, np.pi * square[0] * peak)) * 2
    node, weight = np.polynomial.legendre.leggauss(24)
    edges = np.linspace(0, np.log(end), 9)
    width = edges[1] / 2
    t = np.exp((edges[:-1, None] + width * (1 + node)).ravel())
    theta = np.exp(-np.pi * np.multiply.outer(t, square)) @ number
    return float(np.sum(np.tile(weight * width, 8) * t**nu * theta))


def _checkerboard(dim: int) -> FloatArray:
    """Basis of D_dim, integer points of even sum (fcc for dim 3)."""
    basis = np.eye(dim) - np.eye(dim, k=1)
    basis[-1, -2:] = 1.0
    return basis


def _e8() -> FloatArray:
    """Basis of E8: D8 and the point (1/2, ..., 1/2)."""
    basis = _checkerboard(8)
    basis[0] = 0.5  # the two cosets of D8 are generated: twice this point and the others give back the first vector
    return basis


LATTICES = {
    "integer": np.eye(1),
    "square": np.eye(2),
    "triangular": np.array([[1.0, 0.0], [0.5, np.sqrt(0.75)]]),
    "cubic": np.eye(3),
    "bcc": np.ones((3, 3)) / 2 - np.eye(3),
    "fcc": (np.ones((3, 3)) - np.eye(3)) / 2,
    "D4": _checkerboard(4),
    "D5": _checkerboard(5),
    "E8": _e8(),
}


_ALIASES = {"hexagonal": "triangular", "A2": "triangular"}


def lattice(name: str, covolume: float | None = None) -> Lattice:
    """A named lattice of `LATTICES`, scaled to a cell of volume `covolume` if given; "hexagonal" and "A2" are the triangular one."""
    name = _ALIASES.get(name, name) if isinstance(name, str) else name
    if not isinstance(name, str) or name not in LATTICES:
        raise ValueError(f"name must be one of {', '.join(LATTICES)}, got {name!r}")
    named = Lattice(LATTICES[name])
    return named if covolume is None else Lattice(LATTICES[name] * (positive(covolume, "covolume") / named.covolume) ** (1 / named.dim))


def leech_zeta(s: float) -> float:
    """Epstein's zeta function of the Leech lattice (dim 24, covolume 1, its own dual), from its theta series.

    65520/691 (sigma_11(m) - tau(m)) points have squared length 2m, sigma_11 the sum of 11th powers of divisors, tau Ramanujan's function
    (Conway & Sloane 1999, section 4.11).
    """
    sigma = np.array([sum(d**11 for d in range(1, k + 1) if k % d == 0) for k in range(1, 30)], dtype=object)
    number = (65520 * (sigma - _ramanujan_tau(29))) // 691
    shells: Shells = np.arange(4.0, 60.0, 2.0), number[1:].astype(np.float64)  # none at 2
    return _unit_zeta(shells, shells, 24, s)


def _ramanujan_tau(terms: int) -> np.ndarray:
    """Coefficients of q prod (1 - q^k)^24, from q^1 on, as exact integers."""
    series = np.array([1] + [0] * (terms - 1), dtype=object)
    for k in range(1, terms):
        for _ in range(24):
            series[k:] = series[k:] - series[:-k]
    return series


def _crystal(crystal: Lattice | str) -> Lattice:
    """The lattice, or the one of that name; ValueError for anything else."""
    if not isinstance(crystal, (Lattice, str)):
        raise ValueError(f"crystal must be a Lattice, or the name of one, got {crystal!r}")
    return lattice(crystal) if isinstance(crystal, str) else crystal


def jellium_energy(crystal: Lattice | str, s: float) -> float:
    """Energy per particle (Madelung energy) of a jellium on the lattice with a uniform background of its density, dim - 2 <= s < dim.

    At the lattice's own density, a name standing for lattice(name): lattice(name, 1.0) for unit density.
    1/2 of the regularised sum of g_s over the other points: zeta_L(s)/2 for s > 0, zeta_L'(0)/2 for the log, -zeta_L(s)/2 for s < 0
    (Borwein, Borwein & Shail 1989; Sandier & Serfaty 2012; Lewin 2022): the periodic potential of zero mean at a lattice point, less that
    point's own. ValueError for another s, or what is no lattice.
    """
    crystal, s = _crystal(crystal), real(s, "s")
    if not crystal.dim - 2 <= s < crystal.dim:
        raise ValueError(f"s must be from {crystal.dim - 2} to below {crystal.dim}, got {s!r}")
    if s == 0:
        return crystal.zeta_derivative_at_zero / 2
    return float(np.sign(s) * crystal.zeta(s) / 2)


def wigner_crystal_energy(crystal: Lattice | str) -> float:
    """Jellium (Madelung) energy of a three-dimensional lattice, or name, in units of e^2/a, a the radius of a sphere of a cell's volume.

    -0.895929 bcc, -0.895874 fcc, -0.880059 simple cubic (Fuchs 1935; Coldwell-Horsfall & Maradudin 1960; Foldy 1978); twice these in
    rydbergs at a of one Bohr radius.
    """
    crystal = _crystal(crystal)
    if crystal.dim != 3:
        raise ValueError(f"crystal must be three-dimensional, got dim {crystal.dim}")
    return jellium_energy(crystal, 1.0) * (3 * crystal.covolume / (4 * np.pi)) ** (1 / 3)


class Hypersingular(NamedTuple):
    """C_{s,dim} and whether it is proved or conjectured."""

    value: float
    proved: bool


def hypersingular_constant(s: float, dim: int) -> Hypersingular:
    """C_{s,dim} of min sum_{k != l} |x_k - x_l|^-s ~ C n^(1 + s/dim) / volume^(s/dim), s > dim (Hardin & Saff 2005).

    dim 1: 2 zeta(s), proved. dim 8 and 24: the zeta functions of E8 and the Leech lattice, proved (Cohn, Kumar, Miller, Radchenko &
    Viazovska 2022). dim 2 and 4: those of the triangular lattice and of D4 at unit density, conjectured; they are upper bounds
    (Borodachov, Hardin & Saff 2019).

    Raises
    ------
    ValueError
        For s <= dim, or in other dimensions, where not even a conjecture holds for all s.
    """
    s, dim = real(s, "s"), count(dim, "dim")
    if not s > dim:
        raise ValueError(f"s must be above dim = {dim}, got {s!r}")
    if dim == 1:
        return Hypersingular(float(2 * zeta(s)), True)
    if dim == 24:
        return Hypersingular(leech_zeta(s), True)
    names = {2: "triangular", 4: "D4", 8: "E8"}
    if dim not in names:
        raise ValueError(f"dim must be 1, 2, 4, 8 or 24, got {dim}")
    return Hypersingular(lattice(names[dim], 1.0).zeta(s), dim == 8)


def hypersingular_minimum(n: int, s: float, dim: int, volume: float) -> float:
    """Leading term of min W_N = min sum_{k != l} |x_k - x_l|^-s / (2 n (n-1)) of n >= 2 points in a set of that volume, s >= dim.

    s > dim: from `hypersingular_constant`. s = dim, any dim: the sum is |unit ball| n^2 log n / volume (Hardin & Saff 2005),
    with a correction smaller by log n only. Both grow without bound with n: no mean field holds.
    """
    n, s, volume, dim = count(n, "n", least=2), real(s, "s"), positive(volume, "volume"), count(dim, "dim")
    if s == dim:
        ball = np.exp(dim / 2 * np.log(np.pi) - gammaln(1 + dim / 2))
        return float(ball * n * np.log(n) / (2 * (n - 1) * volume))
    return float(hypersingular_constant(s, dim).value * n ** (s / dim) / volume ** (s / dim) / (2 * (n - 1)))
