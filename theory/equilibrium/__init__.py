"""Equilibrium measures: closed forms and spectral solutions, with density, CDF, quantiles, sampler, energy, moments and potential."""

from __future__ import annotations

from theory.equilibrium.cut_laws import JacobiWeight, LaguerreWeight
from theory.equilibrium.even_weights import FreudWeight, QuarticWell
from theory.equilibrium.gauss_wigner import GaussWigner
from theory.equilibrium.liouville import DiscLogGas
from theory.equilibrium.radial_law import Moved
from theory.equilibrium.radial_trap import CoulombEquilibrium, radial_equilibrium
from theory.equilibrium.riesz_trap import RieszEquilibrium
from theory.equilibrium.trap import CoulombBall, RieszBall, Semicircle, TrappedSphere, quadratic_trap
from theory.equilibrium.walls import Arcsine, WallBall, WallLogGas, WallSphere, hard_wall, interval_wall

__all__ = [
    "Arcsine",
    "CoulombBall",
    "CoulombEquilibrium",
    "DiscLogGas",
    "FreudWeight",
    "GaussWigner",
    "JacobiWeight",
    "LaguerreWeight",
    "Moved",
    "QuarticWell",
    "RieszBall",
    "RieszEquilibrium",
    "Semicircle",
    "TrappedSphere",
    "WallBall",
    "WallLogGas",
    "WallSphere",
    "hard_wall",
    "interval_wall",
    "quadratic_trap",
    "radial_equilibrium",
]
