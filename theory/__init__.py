"""What the particles should do, in closed form or solved numerically, to check every run. Plain arrays and callables only."""

from __future__ import annotations

from theory import (
    convergence,
    dynamics,
    ensembles,
    equilibrium,
    free_energy,
    ground_states,
    large_deviations,
    lattices,
    mean_field,
    plots,
    report,
    spectral,
)
from theory.convergence import energy_distance, fit_rate, sliced_wasserstein2, wasserstein2
from theory.ensembles import beta_hermite, log_gas_index, sample_circle_gas, sample_log_gas, sample_wall_gas, second_moment
from theory.equilibrium import CoulombBall, GaussWigner, RieszBall, Semicircle
from theory.ground_states import hermite_energy, hermite_ground_state
from theory.mean_field import MeanField
from theory.report import check, summary
from theory.spectral import MarchenkoPastur, PenningtonWorah, effective_dimension, effective_rank, feature_rank

__all__ = [
    "CoulombBall",
    "GaussWigner",
    "MarchenkoPastur",
    "MeanField",
    "PenningtonWorah",
    "RieszBall",
    "Semicircle",
    "beta_hermite",
    "check",
    "convergence",
    "dynamics",
    "effective_dimension",
    "effective_rank",
    "energy_distance",
    "ensembles",
    "equilibrium",
    "feature_rank",
    "fit_rate",
    "free_energy",
    "ground_states",
    "hermite_energy",
    "hermite_ground_state",
    "large_deviations",
    "lattices",
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
    "summary",
    "wasserstein2",
]
