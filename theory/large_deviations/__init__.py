"""Large deviations and fluctuations of the empirical measure, and concentration of the learned kernel."""

from __future__ import annotations

from theory.large_deviations.empirical_measure import (
    Deviation,
    EmpiricalRate,
    EnergyRate,
    GibbsRate,
    confinement_rate,
    empirical_rate,
    require_finite_energy,
    riesz,
)
from theory.large_deviations.fluctuations import (
    Fluctuations,
    LearnedKernel,
    concentration_bound,
    confinement_probability,
    log_gas_bias,
    log_gas_covariance,
)
from theory.large_deviations.log_gas import (
    Normaliser,
    circle_gap_rate,
    circle_normaliser,
    largest_particle_cdf,
    pulled_rate,
    pushed_rate,
    second_moment_rate,
    trap_normaliser,
    wall_normaliser,
)

__all__ = [
    "Deviation",
    "EmpiricalRate",
    "EnergyRate",
    "Fluctuations",
    "GibbsRate",
    "LearnedKernel",
    "Normaliser",
    "circle_gap_rate",
    "circle_normaliser",
    "concentration_bound",
    "confinement_probability",
    "confinement_rate",
    "empirical_rate",
    "largest_particle_cdf",
    "log_gas_bias",
    "log_gas_covariance",
    "pulled_rate",
    "pushed_rate",
    "require_finite_energy",
    "riesz",
    "second_moment_rate",
    "trap_normaliser",
    "wall_normaliser",
]
