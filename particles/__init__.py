"""Particles that learn a kernel: energies, domains, Langevin dynamics and their trajectories."""
