"""Particles at finite temperature against the mean-field density of `theory`, and against exact laws of finitely many.

At fixed beta the empirical measure fluctuates by n^(-1/2), like that of independent points but less, as particles that repel each other
spread evenly; the mean of a statistic over the law of n particles differs from the mean field's by O(1/n) (propagation of chaos). Factors
are predicted as well: those of the fluctuations by `theory.large_deviations.fluctuations`, those of the bias by exact laws.

Samples are those of an exact sampler (HMC), except of many logs on the line, which it can hardly move past each other: there Langevin
steps, short and capped, are 2 % off in the second moment, below the fluctuations. Slopes have bootstrap intervals over independent
chains, at the level 99.9 %: a false alarm in 1e-3 each. z-tests are at 4: 6e-5 each. Seeds are fixed, and the same test refuses a wrong
law in each case.
"""

from __future__ import annotations

import functools
import warnings

import numpy as np
import pytest
from scipy.stats import kstest

from particles import HMC, Ball, Box, FullSpace, Langevin, Quadratic, Riesz, simulate
from theory.convergence import bootstrap_rate, fit_rate
from theory.ensembles import fourth_moment, wall_gas_moments
from theory.ensembles.coulomb_line import CoulombLine
from theory.ensembles.coulomb_walls import CoulombWalls
from theory.equilibrium.gauss_wigner import GaussWigner
from theory.equilibrium.liouville import DiscLogGas
from theory.equilibrium.riesz_means import riesz
from theory.equilibrium.walls import WallLogGas
from theory.large_deviations.fluctuations import Fluctuations
from theory.mean_field import MeanField
from theory.mean_field.radial import RadialBall
from theory.mean_field.trapped_gas import radial_gas

KAPPA, STRENGTH, BETA, WALL = 1.3, 0.7, 6.0, 1.4
GASES = {  # dim, s, whether between walls
    "Gauss-Wigner": (1, 0.0, False),
    "log, interval": (1, 0.0, True),
    "Coulomb, line": (1, -1.0, False),
    "log, disc": (2, 0.0, True),
    "log, plane": (2, 0.0, False),
    "1, plane": (2, 1.0, False),
    "Coulomb, space": (3, 1.0, False),
}


@functools.cache
def law(name, strength=STRENGTH, beta=BETA):
    """The mean-field density, in closed form where there is one."""
    dim, s, _ = GASES[name]
    closed = {"Gauss-Wigner": lambda: GaussWigner(KAPPA, strength, beta), "log, interval": lambda: WallLogGas(WALL, strength, beta)}
    closed["log, disc"] = lambda: DiscLogGas(WALL, strength, beta)
    return closed[name]() if name in closed else radial_gas(dim, s, KAPPA, strength, beta, n_cells=96)


def energy(name):
    _, s, wall = GASES[name]
    return Riesz(s, STRENGTH) if wall else Quadratic(KAPPA) + Riesz(s, STRENGTH)


def domain(name):
    dim, _, wall = GASES[name]
    return FullSpace(dim) if not wall else Box([-WALL], [WALL]) if dim == 1 else Ball(WALL, dim)


def spread_out(name, chains, n):
    """One point in each of n equal parts of the radial law, so that no pair is close."""
    rng, dim = np.random.default_rng(n), GASES[name][0]
    u = (np.arange(n) + rng.uniform(0.2, 0.8, (chains, n))) / n
    if dim == 1:
        return law(name).quantile(u)[..., None]
    direction = rng.standard_normal((chains, n, dim))
    return law(name).radial_quantile(u)[..., None] * direction / np.linalg.norm(direction, axis=-1, keepdims=True)


@functools.cache
def samples(name, n, chains, n_frames):
    """omega (chain, frame, particle, dim) of independent chains, by HMC. Two logs on a line have to jump over each other: shorter steps."""
    dim, s, _ = GASES[name]
    singular = dim == 1 and s == 0
    sampler = HMC(
        0.4 / n if singular else 0.1, BETA, n_leapfrog=15 if dim == 2 and s == 1 else 7, tune=30, target=0.65 if singular else 0.8
    )
    every, skip = (15, 5) if singular else (10, 4)
    return frames(name, spread_out(name, chains, n), sampler, every, skip, n_frames)


@functools.cache
def crossing(name, n, chains, n_frames):
    """The same by Langevin steps, from independent points, which have all pairs that the stationary law has."""
    start = law(name).sample(n * chains, rng=n).reshape(chains, n, 1)
    sampler = Langevin(4e-3, BETA, drift_cap=0.03, scheme="reflected" if GASES[name][2] else "projected")
    return frames(name, start, sampler, 150, 3, n_frames)


def frames(name, start, sampler, every, skip, n_frames):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a chain that was tuned to its own long step, and of the cap
        run = simulate(start, energy(name), domain(name), sampler, n_steps=every * (skip + n_frames), save_every=every, rng=len(start[0]))
    return run["omega"].values[:, 1 + skip :]


def place(x):
    """Positions on the line, radii otherwise."""
    return x[..., 0] if x.shape[-1] == 1 else np.linalg.norm(x, axis=-1)


def cdf(of, t):
    return of.cdf(t) if of.dim == 1 else of.radial_cdf(t)


def span(name):
    high = WALL if GASES[name][2] else 1.5 * np.sqrt(law(name).second_moment) + 1.5
    return (-high if GASES[name][0] == 1 else 0.0), high


def squared_distance(x, of, name):
    """int (F_n - F)^2 dt of x (..., particle, dim), shape (...): on the line half the squared energy distance."""
    low, high = span(name)
    t = low + (high - low) * (np.arange(300) + 0.5) / 300
    points = np.sort(place(x), axis=-1)
    share = np.stack([(points <= value).mean(-1) for value in t], axis=-1)
    return (high - low) / 300 * np.sum((share - cdf(of, np.clip(t, low, high))) ** 2, axis=-1)


@functools.cache
def predicted_factor(name):
    """lim n E of the squared distance: the integral of the variances of all indicators in the fluctuating mean field."""
    dim, s, wall = GASES[name]
    low, high = span(name)
    mesh = np.linspace(low, high, 121) if dim == 1 else RadialBall(high, 120, dim)
    field = MeanField(None if wall else lambda r: KAPPA * r**2 / 2, lambda r: STRENGTH * riesz(r, s), BETA, mesh)
    below = np.tril(np.ones((120, 120)))
    return np.sum(np.diag(Fluctuations(field).covariance(below))) * (high - low) / 120


def independent_factor(name):
    """The same of independent points of the law: int F (1 - F) dt."""
    low, high = span(name)
    share = cdf(law(name), low + (high - low) * (np.arange(300) + 0.5) / 300)
    return (high - low) / 300 * np.sum(share * (1 - share))


def z_score(draws, expected):
    """Of independent chains (chain, ...)."""
    means = draws.reshape(len(draws), -1).mean(1)
    return (means.mean() - expected) / (means.std(ddof=1) / np.sqrt(len(means)))


def falls_as_predicted(name, n, chains):
    gas = crossing if GASES[name][:2] == (1, 0.0) else samples
    clouds = [gas(name, k, chains, 3) for k in n]

    def rate(of):
        return bootstrap_rate(n, np.array([squared_distance(x, of, name).mean(1) for x in clouds]), level=0.999, rng=0)

    found = rate(law(name))
    assert found.low < -1 < found.high
    wrong = 10 * STRENGTH if name == "log, interval" else STRENGTH / 2  # between walls the density depends little on the strength
    assert rate(law(name, wrong)).low > -0.97  # negative control: a half forgotten
    factor, scaled = predicted_factor(name), n[-1] * squared_distance(clouds[-1], law(name), name)
    allowed = 3 / n[-1]  # the next order
    assert z_score(scaled, factor * (1 - allowed)) > -4
    assert z_score(scaled, factor * (1 + allowed)) < 4
    assert z_score(scaled, independent_factor(name)) < -4  # negative control: independent points of the same law


@pytest.mark.parametrize("name", ["Gauss-Wigner", "log, interval", "log, disc", "log, plane"])
def test_distance_to_the_mean_field(name):
    """n^(-1/2): squared 1/n, with the predicted factor up to O(1/n)."""
    falls_as_predicted(name, (8, 16, 32), 150)


@pytest.mark.slow
@pytest.mark.parametrize("name", GASES)
def test_distance_of_more_particles_to_the_mean_field(name):
    falls_as_predicted(name, (16, 32, 64) if name == "1, plane" else (16, 32, 64, 128), 150)


@pytest.mark.parametrize("name", ["Gauss-Wigner", "log, interval", pytest.param("Coulomb, line", marks=pytest.mark.slow)])
def test_bias_on_the_line_is_the_exact_one(name):
    """O(1/n), as the exact laws of n particles say: <x^4> of the log gas is low by (beta strength/2)^2/((n-1) (beta kappa)^2)."""
    power, n = (4 if name == "Gauss-Wigner" else 2), np.array([3, 5, 9])
    exact = {
        "Gauss-Wigner": lambda k: fourth_moment(k, BETA, KAPPA, STRENGTH),
        "log, interval": lambda k: wall_gas_moments(k, BETA, STRENGTH, WALL)[1],
        "Coulomb, line": lambda k: CoulombLine(k, BETA, KAPPA, STRENGTH).second_moment,
    }[name]
    limit, bias, error = law(name).moment(power), [], []
    for k in n:
        values = (samples(name, int(k), 1000, 4) ** power).mean((2, 3))
        assert abs(z_score(values, exact(int(k)))) < 4
        bias.append(values.mean() - limit)
        error.append(values.mean(1).std() / np.sqrt(len(values)))
    assert abs(bias[0]) > 4 * error[0]  # negative control: the mean field itself
    found = fit_rate(n, np.abs(bias), standard_error=error, level=0.999)
    assert found.low < fit_rate(n, [abs(exact(int(k)) - limit) for k in n]).slope < found.high
    many = [20, 40, 80]
    assert fit_rate(many, [abs(exact(k) - limit) for k in many]).slope == pytest.approx(-1, abs=0.08)


@pytest.mark.slow
def test_bias_in_a_disc():
    """E |x|^2 of the log gas between the walls of a disc is off by O(1/n)."""
    n, name = np.array([4, 8, 16]), "log, disc"
    values = [(samples(name, int(k), 4000, 6) ** 2).sum(-1).mean((1, 2)) for k in n]

    def rate(limit):
        return fit_rate(n, [abs(v.mean() - limit) for v in values], standard_error=[v.std() / np.sqrt(len(v)) for v in values], level=0.999)

    found = rate(law(name).moment(2))
    assert found.low < -1 < found.high
    assert rate(law(name, STRENGTH, 1.4 * BETA).moment(2)).low > -0.9  # negative control


def test_coulomb_gas_between_walls():
    """Six particles that push each other to the walls with -|x|: every one by the exact cumulative function."""
    n, dim = 6, 1
    gas = CoulombWalls(n, BETA, STRENGTH, WALL)
    start = np.broadcast_to(np.linspace(-1, 1, n)[:, None], (2500, n, dim))
    run = simulate(
        start, Riesz(-1.0, STRENGTH), Box([-WALL], [WALL]), HMC(0.4, BETA, n_leapfrog=5), n_steps=30, save_every=30, rng=1
    )  # fmt: skip
    one = run["omega"].values[np.arange(2500), -1, np.arange(2500) % n, 0]  # one of each chain: independent, of the mean density
    assert kstest(one, gas.cdf).pvalue > 1e-4
    assert kstest(one, CoulombWalls(n, BETA, STRENGTH / 2, WALL).cdf).pvalue < 1e-4  # negative controls
    assert kstest(one, CoulombWalls(n + 2, BETA, 1.5 * STRENGTH, WALL).cdf).pvalue < 1e-4
