"""Closed-form dynamics: log and Coulomb gases, one free particle, and the quadratic interaction at any number of particles."""

from __future__ import annotations

from theory.dynamics.diffusion import ornstein_uhlenbeck, reflected_cdf, reflected_density
from theory.dynamics.gases import (
    attractive_gap_rates,
    coulomb_density,
    coulomb_line_cdf,
    coulomb_line_density,
    coulomb_patch_radius,
    coulomb_ranks,
    dyson_density,
    dyson_radius,
    log_second_moment,
)
from theory.dynamics.quadratic_gas import Modes, QuadraticGas

__all__ = [
    "Modes",
    "QuadraticGas",
    "attractive_gap_rates",
    "coulomb_density",
    "coulomb_line_cdf",
    "coulomb_line_density",
    "coulomb_patch_radius",
    "coulomb_ranks",
    "dyson_density",
    "dyson_radius",
    "log_second_moment",
    "ornstein_uhlenbeck",
    "reflected_cdf",
    "reflected_density",
]
