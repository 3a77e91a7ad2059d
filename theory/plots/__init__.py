"""Figures of runs against theory: `plot_*` and `draw`, and the functions that make the Datasets which they draw."""

from __future__ import annotations

from theory.plots.configurations import configuration
from theory.plots.curves import Atom, across, alignment, compared, cumulative, density_deciles, gram_spectrum, histogram, quantiles
from theory.plots.field_plots import bifurcation, density_map, flow, states
from theory.plots.figures import (
    draw,
    plot_bifurcation,
    plot_check,
    plot_compared,
    plot_configuration,
    plot_density,
    plot_density_map,
    plot_dissipation,
    plot_energy,
    plot_flow,
    plot_flow_beside,
    plot_free_energy,
    plot_histogram,
    plot_mixing,
    plot_second_moment,
    plot_snapshots,
    plot_states,
)
from theory.plots.limit_curves import concentration, coupling, errors, large_deviation, rate

__all__ = [
    "Atom",
    "across",
    "alignment",
    "bifurcation",
    "compared",
    "concentration",
    "configuration",
    "coupling",
    "cumulative",
    "density_deciles",
    "density_map",
    "draw",
    "errors",
    "flow",
    "gram_spectrum",
    "histogram",
    "large_deviation",
    "plot_bifurcation",
    "plot_check",
    "plot_compared",
    "plot_configuration",
    "plot_density",
    "plot_density_map",
    "plot_dissipation",
    "plot_energy",
    "plot_flow",
    "plot_flow_beside",
    "plot_free_energy",
    "plot_histogram",
    "plot_mixing",
    "plot_second_moment",
    "plot_snapshots",
    "plot_states",
    "quantiles",
    "rate",
    "states",
]
