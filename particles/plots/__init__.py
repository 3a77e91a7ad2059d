"""Pictures of a trajectory and of the kernel that it learned. A function `plot_x` draws one Dataset of `simulate`, or Gram matrices and
particles, on given or new Axes and returns the Axes; none shows it. `plot_health`, `figure_grams` and `animate` make figures of their own.

Theory enters as arrays, so that a picture can be redrawn from the Dataset and a curve alone.
"""

from particles.plots.animation import animate
from particles.plots.courses import plot_energies, plot_health
from particles.plots.density import density_samples, plot_density
from particles.plots.density_flow import plot_density_flow, plot_density_snapshots, run_times
from particles.plots.kernels import eigenvalues, figure_grams, plot_eigenvalues, plot_gram, plot_kernel_slices, plot_label_power
from particles.plots.scatter import move_dots, plot_particles

__all__ = [
    "animate",
    "density_samples",
    "eigenvalues",
    "figure_grams",
    "move_dots",
    "plot_density",
    "plot_density_flow",
    "plot_density_snapshots",
    "plot_eigenvalues",
    "plot_energies",
    "plot_gram",
    "plot_health",
    "plot_kernel_slices",
    "plot_label_power",
    "plot_particles",
    "run_times",
]
