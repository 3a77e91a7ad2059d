"""Figures of the experiments, each drawn from a saved Dataset alone.

``plot_x(ds, *, ax=None)`` draws one panel and returns its Axes; ``figure_x(ds)`` arranges panels and returns a Figure. Nothing is shown,
no global settings are touched.
"""

from experiments.plots.attention_maps import attention_shown, figure_attention, plot_attention
from experiments.plots.calibration import figure_classify, plot_reliability, plot_reliability_tables
from experiments.plots.comparisons import plot_differences
from experiments.plots.coulomb import (
    coulomb_drawable,
    figure_coulomb,
    figure_coulomb_accuracy,
    figure_coulomb_cost,
    plot_budget,
    plot_noise,
    plot_runtime,
    plot_strength,
)
from experiments.plots.gas import figure_gas, plot_ball, plot_radial, plot_second_moment, plot_semicircle
from experiments.plots.kernels import figure_learned_kernels, plot_gram, plot_spectrum
from experiments.plots.learning import animate_learning, figure_learning, plot_lengths, plot_plane
from experiments.plots.methods import METHOD_STYLES, figure_accuracy, plot_curves, plot_methods
from experiments.plots.panels import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY
from experiments.plots.sweeps import figure_sweep, plot_sweep, plot_sweep_map, plot_sweep_rows, sweep_differences, sweep_means

__all__ = [
    "BLACK",
    "BLUE",
    "GREEN",
    "GREY",
    "METHOD_STYLES",
    "ORANGE",
    "PINK",
    "RED",
    "SKY",
    "animate_learning",
    "attention_shown",
    "coulomb_drawable",
    "figure_accuracy",
    "figure_attention",
    "figure_classify",
    "figure_coulomb",
    "figure_coulomb_accuracy",
    "figure_coulomb_cost",
    "figure_gas",
    "figure_learned_kernels",
    "figure_learning",
    "figure_sweep",
    "plot_attention",
    "plot_ball",
    "plot_budget",
    "plot_curves",
    "plot_differences",
    "plot_gram",
    "plot_lengths",
    "plot_methods",
    "plot_noise",
    "plot_plane",
    "plot_radial",
    "plot_reliability",
    "plot_reliability_tables",
    "plot_runtime",
    "plot_second_moment",
    "plot_semicircle",
    "plot_spectrum",
    "plot_strength",
    "plot_sweep",
    "plot_sweep_map",
    "plot_sweep_rows",
    "sweep_differences",
    "sweep_means",
]
