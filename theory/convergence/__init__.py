"""Distances between measures, rates of convergence, coupling, and how far chains have converged."""

from __future__ import annotations

from theory.convergence.chains import bulk_ess, effective_sample_size, mean_and_error, monte_carlo_error, rank_r_hat, split_r_hat, tail_ess
from theory.convergence.coupling import Coupled, StrongOrder, density_drift, euler, strong_order, synchronous_coupling
from theory.convergence.discrepancy import KernelError, TwoSample, energy_distance, kernel_error, mmd2, two_sample_test
from theory.convergence.rates import (
    BiasVariance,
    EmpiricalRate,
    Extrapolation,
    Rate,
    bias_variance,
    bootstrap_rate,
    empirical_rate,
    extrapolate,
    fit_rate,
)
from theory.convergence.transport import ScalarEstimate, sliced_wasserstein, sliced_wasserstein2, wasserstein, wasserstein2

__all__ = [
    "BiasVariance",
    "Coupled",
    "EmpiricalRate",
    "ScalarEstimate",
    "Extrapolation",
    "KernelError",
    "Rate",
    "StrongOrder",
    "TwoSample",
    "bias_variance",
    "bootstrap_rate",
    "bulk_ess",
    "density_drift",
    "effective_sample_size",
    "empirical_rate",
    "energy_distance",
    "euler",
    "extrapolate",
    "fit_rate",
    "kernel_error",
    "mean_and_error",
    "mmd2",
    "monte_carlo_error",
    "rank_r_hat",
    "sliced_wasserstein",
    "sliced_wasserstein2",
    "split_r_hat",
    "strong_order",
    "synchronous_coupling",
    "tail_ess",
    "two_sample_test",
    "wasserstein",
    "wasserstein2",
]
