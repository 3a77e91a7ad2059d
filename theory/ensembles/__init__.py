"""Exact laws of finitely many particles at finite temperature, all in one place: partition functions, mean energies, densities, samplers.

The Gibbs law of the package is exp(-beta [sum_k V(x_k) + strength/(2 (n-1)) sum_{k != l} g_s(x_k - x_l)]) = exp(-beta n H_N), H_N =
(1/n) sum_k V(x_k) + strength/(2 n (n-1)) sum_{k != l} g_s(x_k - x_l) the energy of which means and variances are given. With the log
interaction it is prod |x_i - x_j|^b times the external weight, b = beta strength/(n-1) (`theory.ensembles.mappings`), and the solved
cases are

functions        particles                                            module
log_gas_*        the line, trap kappa x^2/2 (beta-Hermite)            `theory.ensembles.hermite`
half_line_gas_*  x > 0, slope x - charge log x (beta-Laguerre)        `theory.ensembles.laguerre`
mirror_gas_*     the line, trap, repelled by mirror images as well    `theory.ensembles.laguerre`
wall_gas_*       an interval, charges at its walls (beta-Jacobi)      `theory.ensembles.jacobi`
circle_gas_*     a circle, chordal distances (circular)               `theory.ensembles.circular`
ginibre_*        the plane, trap, b = 2                               `theory.ensembles.ginibre`
disc_gas_*       a hard disc, b = 2                                   `theory.ensembles.ginibre`
CoulombLine      the line, trap, g = -|x|                             `theory.ensembles.coulomb_line`
CoulombWalls     an interval without a trap, g = -|x|                 `theory.ensembles.coulomb_walls`
TwoParticles     any dimension, trap, every s: n = 2                  `theory.ensembles.two_particles`
virial laws      any dimension, trap: second moment, centre of mass   `theory.ensembles.virial`
"""

from __future__ import annotations

from theory.ensembles.circular import (
    circle_gas_energy,
    circle_gas_energy_variance,
    circle_gas_first_mode,
    circle_gas_log_partition,
    circle_gas_pair_density,
    sample_circle_gas,
)
from theory.ensembles.coulomb_line import CoulombLine
from theory.ensembles.coulomb_walls import CoulombWalls
from theory.ensembles.ginibre import (
    disc_gas_density,
    disc_gas_energy,
    disc_gas_log_partition,
    disc_gas_radial_cdf,
    disc_gas_radii,
    ginibre_density,
    ginibre_energy,
    ginibre_log_partition,
    ginibre_radial_cdf,
    ginibre_radii,
    sample_disc_gas,
    sample_ginibre,
)
from theory.ensembles.hermite import (
    beta_hermite,
    fourth_moment,
    log_gas_density,
    log_gas_energy,
    log_gas_energy_variance,
    log_gas_log_partition,
    mean_log_energy,
    mehta_log_partition,
    sample_log_gas,
)
from theory.ensembles.jacobi import (
    sample_wall_gas,
    wall_gas_density,
    wall_gas_energy,
    wall_gas_energy_variance,
    wall_gas_log_partition,
    wall_gas_moments,
)
from theory.ensembles.laguerre import (
    beta_laguerre,
    half_line_gas_density,
    half_line_gas_energy,
    half_line_gas_energy_variance,
    half_line_gas_log_partition,
    half_line_gas_moments,
    laguerre_log_partition,
    mirror_gas_energy,
    mirror_gas_energy_variance,
    mirror_gas_log_partition,
    sample_half_line_gas,
    sample_mirror_gas,
)
from theory.ensembles.mappings import log_gas_index, log_gas_strength
from theory.ensembles.two_particles import TwoParticles
from theory.ensembles.virial import centre_variance, euler_second_moment, second_moment, square_sum_law

__all__ = [
    "CoulombLine",
    "CoulombWalls",
    "TwoParticles",
    "beta_hermite",
    "beta_laguerre",
    "centre_variance",
    "circle_gas_energy",
    "circle_gas_energy_variance",
    "circle_gas_first_mode",
    "circle_gas_log_partition",
    "circle_gas_pair_density",
    "disc_gas_density",
    "disc_gas_energy",
    "disc_gas_log_partition",
    "disc_gas_radial_cdf",
    "disc_gas_radii",
    "euler_second_moment",
    "fourth_moment",
    "ginibre_density",
    "ginibre_energy",
    "ginibre_log_partition",
    "ginibre_radial_cdf",
    "ginibre_radii",
    "half_line_gas_density",
    "half_line_gas_energy",
    "half_line_gas_energy_variance",
    "half_line_gas_log_partition",
    "half_line_gas_moments",
    "laguerre_log_partition",
    "log_gas_density",
    "log_gas_energy",
    "log_gas_energy_variance",
    "log_gas_index",
    "log_gas_log_partition",
    "log_gas_strength",
    "mean_log_energy",
    "mehta_log_partition",
    "mirror_gas_energy",
    "mirror_gas_energy_variance",
    "mirror_gas_log_partition",
    "sample_circle_gas",
    "sample_disc_gas",
    "sample_ginibre",
    "sample_half_line_gas",
    "sample_log_gas",
    "sample_mirror_gas",
    "sample_wall_gas",
    "second_moment",
    "square_sum_law",
    "wall_gas_density",
    "wall_gas_energy",
    "wall_gas_energy_variance",
    "wall_gas_log_partition",
    "wall_gas_moments",
]
