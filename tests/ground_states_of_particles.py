"""Particles at rest, each kind with the equilibrium measure of `theory` that it should take, and their distances to it: for the tests."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from particles import Ball, External, FullSpace, Langevin, Quadratic, Riesz, simulate
from theory.convergence.transport import wasserstein
from theory.equilibrium import CoulombBall, RieszBall, Semicircle
from theory.equilibrium.radial_trap import radial_equilibrium
from theory.equilibrium.riesz_means import mean_over_sphere
from theory.equilibrium.walls import Arcsine, WallBall, WallSphere

KAPPA, STRENGTH, WALL = 1.3, 0.7, 1.4


def quartic(s, strength=STRENGTH, power=4):
    """Equilibrium in the plane in the trap r^power/power."""
    return radial_equilibrium(lambda r: r**power / power, dim=2, s=s, strength=strength)


def squares(omega):
    return (omega**2).sum(-1)


QUARTIC = External(lambda w: squares(w) ** 2 / 4, lambda w: squares(w)[..., None] * w, name="quartic")


@dataclass(frozen=True)
class Gas:
    """A law, the energy and the domain of its particles, (step size, number of steps, drift cap) of the descent, and wrong laws."""

    law: Any
    energy: Any
    domain: Any
    stages: Callable[[int], tuple[tuple[float, int, float | None], ...]]
    wrong: tuple[Any, ...]


def trapped(law, *wrong, last=lambda n: (0.03, 300, None)):
    """A gas in the quadratic trap; wrong strengths (a half forgotten) and temperatures are those of other radii."""
    s = law.s
    start = () if law.dim == 1 else ((0.05, 200, 0.05),)
    energy = Quadratic(KAPPA) + Riesz(s, STRENGTH)
    return Gas(law, energy, FullSpace(law.dim), lambda n: (*start, last(n)), (*wrong, replace(law, strength=STRENGTH / 2)))


def walled(law, *wrong, last):
    start = () if law.dim == 1 else ((0.05, 300, 0.05),)
    return Gas(law, Riesz(law.s, STRENGTH), Ball(WALL, law.dim), lambda n: (*start, last(n)), wrong)


GASES = {
    "log, line": trapped(
        Semicircle(KAPPA, STRENGTH), RieszBall(KAPPA, STRENGTH, 1, 0.3), last=lambda n: (1 / (KAPPA * n), 12 * n, None)
    ),
    "-0.5, line": trapped(
        RieszBall(KAPPA, STRENGTH, 1, -0.5), RieszBall(KAPPA, STRENGTH, 1, -0.2), last=lambda n: (0.05, 400, None)
    ),
    "0.5, line": trapped(
        RieszBall(KAPPA, STRENGTH, 1, 0.5), RieszBall(KAPPA, STRENGTH, 1, 0.0), last=lambda n: (2 / n**1.5, int(1.5 * n**1.5), None)
    ),
    "log, interval": walled(
        Arcsine(WALL, STRENGTH, 1, 0.0), WallBall(WALL, STRENGTH, 1, 0.3), WallBall(WALL, STRENGTH, 1, -0.3),
        last=lambda n: (1 / n**2, 2 * n**2, None),
    ),
    "Coulomb, plane": trapped(CoulombBall(KAPPA, STRENGTH, 2), RieszBall(KAPPA, STRENGTH, 2, 0.5)),
    "1, plane": trapped(RieszBall(KAPPA, STRENGTH, 2, 1.0), RieszBall(KAPPA, STRENGTH, 2, 0.5)),
    "Coulomb, space": trapped(CoulombBall(KAPPA, STRENGTH, 3), RieszBall(KAPPA, STRENGTH, 3, 1.5)),
    "2, space": trapped(RieszBall(KAPPA, STRENGTH, 3, 2.0), RieszBall(KAPPA, STRENGTH, 3, 1.5)),
    "Coulomb, quartic": Gas(
        quartic(0.0), QUARTIC + Riesz("coulomb", STRENGTH), FullSpace(2), lambda n: ((0.05, 300, 0.05), (0.05, 400, None)),
        (quartic(0.0, power=6), quartic(0.0, STRENGTH / 2), CoulombBall(KAPPA, STRENGTH, 2)),
    ),
    "1, quartic": Gas(
        quartic(1.0), QUARTIC + Riesz(1.0, STRENGTH), FullSpace(2), lambda n: ((0.05, 300, 0.05), (0.35 / np.sqrt(n), 400, None)),
        (quartic(1.0, power=8), quartic(1.0, STRENGTH / 2), quartic(0.0)),
    ),
    "Coulomb, trap and wall": Gas(
        radial_equilibrium(lambda r: KAPPA * r**2 / 2, dim=2, s=0.0, strength=STRENGTH, wall=0.5),
        Quadratic(KAPPA) + Riesz("coulomb", STRENGTH), Ball(0.5, 2), lambda n: ((0.01, 200, 0.02), (0.3 / n, 600, None)),
        (radial_equilibrium(lambda r: KAPPA * r**2 / 2, dim=2, s=0.0, strength=STRENGTH / 2, wall=0.5), CoulombBall(3.0, STRENGTH, 2)),
    ),
    "charged disc": walled(
        WallBall(WALL, STRENGTH, 2, 1.0), WallBall(WALL, STRENGTH, 2, 0.5), WallSphere(WALL, STRENGTH, 2, 0.0),
        last=lambda n: (0.5 / n, 400, None),
    ),
    "log, sphere": walled(WallSphere(WALL, STRENGTH, 3, 0.0), WallBall(WALL, STRENGTH, 3, 2.0), last=lambda n: (0.1, 200, None)),
    "0.5, sphere": walled(WallSphere(WALL, STRENGTH, 3, 0.5), WallBall(WALL, STRENGTH, 3, 1.5), last=lambda n: (0.1, 200, None)),
}  # fmt: skip


@functools.cache
def ground_state(name, n):
    """Particles (n, dim) at rest, from a quantile each on the line and from independent draws in more dimensions."""
    gas = GASES[name]
    pieces = np.linspace(0, 1, n) if name == "log, interval" else (np.arange(n) + 0.5) / n  # two particles on the walls
    x = gas.law.quantile(pieces)[:, None] if gas.law.dim == 1 else 0.98 * gas.law.sample(n, rng=n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for step_size, n_steps, cap in gas.stages(n):
            sampler = Langevin(step_size, np.inf, drift_cap=cap)
            x = simulate(x, gas.energy, gas.domain, sampler, n_steps=n_steps, save_every=n_steps, rng=0)["omega"].values[0, -1]
    return x


def radii(x):
    return np.linalg.norm(x, axis=1)


@functools.cache
def radial_nodes(law):
    """Radii and weights of Gauss' rule in the radial probability, and E |x - y| of the law."""
    t, weight = np.polynomial.legendre.leggauss(100)
    r, weight = law.radial_quantile((1 + t) / 2), weight / 2
    return r, weight, weight @ -mean_over_sphere(r[:, None], r, law.dim, -1.0) @ weight


def energy_distance(x, law):
    """Of the points and the law itself, the mean of |x - y| over spheres being in closed form."""
    r, weight, within = radial_nodes(law)
    towards = -mean_over_sphere(radii(x)[:, None], r, law.dim, -1.0) @ weight
    return np.sqrt(2 * towards.mean() - cdist(x, x).mean() - within)


def transport(x, law):
    """W_2; in the plane to 2400 points of equal mass on a spiral, at least 12 for each particle: at n = 200 about 1 % off."""
    if law.dim == 1:
        return wasserstein(x[:, 0], law.quantile, 2)
    k = np.arange(2400) + 0.5
    angle = np.pi * (3 - np.sqrt(5)) * k
    return wasserstein(x, law.radial_quantile(k / 2400)[:, None] * np.column_stack([np.cos(angle), np.sin(angle)]))


def kolmogorov(x, law):
    """Largest difference of the radial cumulative functions."""
    r, n = np.sort(radii(x)), len(x)
    cdf = law.radial_cdf(r)
    return max(np.max(np.arange(1, n + 1) / n - cdf), np.max(cdf - np.arange(n) / n))
