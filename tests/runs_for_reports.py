"""Datasets like those of simulations, for the tests of the report: made by code of the tests alone."""

from __future__ import annotations

import json

import numpy as np
import xarray as xr

from theory.report import checks
from theory.report.run import read

QUADRATIC = {"name": "Quadratic", "stiffness": 1.3, "centre": 0.0}


RIESZ = {"name": "Riesz", "s": 0.0, "strength": 0.7, "softening": 0.0, "length": 1.0, "mirror": False}


LANGEVIN = {
    "name": "Langevin",
    "step_size": 0.01,
    "beta": 6.0,
    "scheme": "projected",
    "drift_cap": None,
    "clip": None,
    "preconditioner": None,
}


EXACT = {"name": "MALA", "step_size": 0.01, "beta": 6.0}


def as_dataset(omega, terms, domain=None, sampler=LANGEVIN, **series):
    attrs = {"energy": {"name": "Sum", "energies": terms}, "domain": domain or {"name": "FullSpace"}, "sampler": sampler}
    variables = {"omega": (("chain", "step", "particle", "dim"), omega)}
    variables |= {name: (("chain", "step"), values) for name, values in series.items()}
    return xr.Dataset(variables, attrs={name: json.dumps(value) for name, value in attrs.items()})


def euler(gradient, start, step_size, beta, n_steps, seed, project=lambda x: x, every=20):
    """Plain Euler steps of (chain, particle, dim); frames (chain, frame, particle, dim)."""
    rng, x, frames = np.random.default_rng(seed), start, []
    for step in range(n_steps):
        x = project(x - step_size * gradient(x) + np.sqrt(2 * step_size / beta) * rng.standard_normal(x.shape))
        if step % every == every - 1:
            frames.append(x)
    return np.stack(frames, 1)


def riesz_gradient(x, s=0.0, strength=0.7, kappa=1.3):
    gap = x[:, :, None] - x[:, None]
    square = np.sum(gap**2, -1) + np.where(np.eye(x.shape[1]), np.inf, 0)
    factor = 1 / square if s == 0 else abs(s) * square ** (-s / 2 - 1)
    return kappa * x - strength / (x.shape[1] - 1) * np.einsum("ckl,ckld->ckd", factor, gap)


def log_gas(dim):
    """A log gas of 9 particles by Euler steps of 0.01: (24, 150, 9, dim)."""
    start = np.random.default_rng(1).normal(size=(24, 9, dim)) * 0.5
    return euler(riesz_gradient, start, 0.01, 6.0, 3000, seed=dim)


def reds(table):
    """Names of the laws that failed."""
    return set(table["law"].values[~table["passed"].values].tolist())


def verdict(dataset, law="second_moment", *, alpha=1e-3, burn_in=0.25, external=None, interaction=None):
    """The row of one law as `report.check` gives it, without the correction for the other laws, which are not computed."""
    run = read(dataset, burn_in, external, interaction)
    return checks._table([checks._laws(np.random.default_rng(0))[law](run)], alpha).isel(law=0)


def pair_energy(x, strength, period=None):
    """H_N of the bare log between the particles of (..., n, 1), chordal with a period."""
    n = x.shape[-2]
    i, j = np.triu_indices(n, 1)
    gap = np.abs(x[..., i, 0] - x[..., j, 0])
    return -strength * np.log(gap if period is None else period / np.pi * np.sin(np.pi * gap / period)).sum(-1) / (n * (n - 1))
