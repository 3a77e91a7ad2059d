"""What the particles should do, in closed form or solved numerically, to check every run. Plain arrays and callables only."""

from __future__ import annotations

from theory import convergence, ensembles, equilibrium, mean_field, plots, report, spectral
from theory.convergence import energy_distance, fit_rate, sliced_wasserstein2, wasserstein2
from theory.ensembles import beta_hermite, log_gas_index, sample_circle_gas, sample_log_gas, sample_wall_gas, second_moment
from theory.equilibrium import CoulombBall, GaussWigner, RieszBall, Semicircle
from theory.ground_states import hermite_energy, hermite_ground_state
from theory.mean_field import MeanField
from theory.spectral import MarchenkoPastur, effective_rank, feature_rank

__all__ = [
    "CoulombBall",
    "GaussWigner",
    "MarchenkoPastur",
    "MeanField",
    "RieszBall",
    "Semicircle",
    "beta_hermite",
    "convergence",
    "effective_rank",
    "energy_distance",
    "ensembles",
    "equilibrium",
    "feature_rank",
    "fit_rate",
    "hermite_energy",
    "hermite_ground_state",
    "log_gas_index",
    "mean_field",
    "plots",
    "report",
    "sample_circle_gas",
    "sample_log_gas",
    "sample_wall_gas",
    "second_moment",
    "sliced_wasserstein2",
    "spectral",
    "wasserstein2",
]
