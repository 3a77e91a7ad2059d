"""Particles on their way against the time-dependent laws of `theory`: at several times, and how the distance falls with their number.

Independent starts of one density give a squared distance of order 1/n to the mean-field flow at every time (Sznitman 1991); regular
starts without noise keep their lattice, and the distance of a lattice. z-tests are at 4 (6e-5 each), bootstrap intervals of slopes at
the level 99.9 % (1e-3 each); seeds are fixed, and each test refuses a wrong time, strength, sign or temperature.
"""

from __future__ import annotations

import functools
import warnings

import numpy as np
import pytest

from particles import FullSpace, Langevin, Pair, Quadratic, Riesz, simulate
from theory.convergence import bootstrap_rate, fit_rate
from theory.convergence.transport import wasserstein
from theory.dynamics import coulomb_line_cdf, coulomb_patch_radius, coulomb_ranks, dyson_radius, log_second_moment
from theory.dynamics.quadratic_gas import QuadraticGas
from theory.equilibrium import CoulombBall, Semicircle
from theory.equilibrium.riesz_means import riesz
from theory.ground_states import hermite_ground_state
from theory.mean_field import MeanField


def path(start, energy, sampler, n_steps, save_every, rng=0):
    """omega (chain, frame, particle, dim)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        run = simulate(start, energy, FullSpace(start.shape[-1]), sampler, n_steps=n_steps, save_every=save_every, rng=rng)
    return run["omega"].values


def squared_distance(x, t, cdf):
    """int (F_n - F)^2 of x (..., particle) on the uniform grid t, where F has the values cdf; shape (...)."""
    share = np.stack([(x <= value).mean(-1) for value in t], axis=-1)
    return (t[1] - t[0]) * np.sum((share - cdf) ** 2, axis=-1)


def z_score(draws, expected):
    return (draws.mean() - expected) / (draws.std(ddof=1) / np.sqrt(len(draws)))


# The flow of the mean field on the line, from two heaps of different weight.

KAPPA, STRENGTH, BETA, S = 1.3, 1.6, 6.0, -0.5
TIMES = (0.1, 0.3, 0.9)
EDGES = np.linspace(-3.2, 3.2, 257)


def heaps():
    """Masses 0.7 on (-1.2, -0.4) and 0.3 on (0.8, 1.2), whose edges are those of cells."""
    middle = (EDGES[1:] + EDGES[:-1]) / 2
    rho = 0.7 / 0.8 * ((middle > -1.2) & (middle < -0.4)) + 0.3 / 0.4 * ((middle > 0.8) & (middle < 1.2))
    return rho / (rho.sum() * (EDGES[1] - EDGES[0]))


@functools.cache
def flow(strength=STRENGTH, beta=BETA):
    """Cumulative functions (time, edge) of the mean field."""
    field = MeanField(lambda x: KAPPA * x**2 / 2, lambda r: strength * riesz(r, S), beta, EDGES)
    rho = field.flow(heaps(), TIMES, tol=1e-5).rho
    return np.concatenate([np.zeros((len(TIMES), 1)), np.cumsum(rho, axis=1) * field.width], axis=1)


@functools.cache
def heaped(n, chains):
    """Particles (chain, time, n) from the two heaps."""
    rng = np.random.default_rng(n)
    left = rng.random((chains, n)) < 0.7
    start = np.where(left, rng.uniform(-1.2, -0.4, (chains, n)), rng.uniform(0.8, 1.2, (chains, n)))[..., None]
    step, energy = 5e-3, Quadratic(KAPPA) + Riesz(S, STRENGTH)
    x = path(start, energy, Langevin(step, BETA, drift_cap=0.05), round(TIMES[-1] / step), round(0.1 / step), rng=n)
    return x[..., 0][:, [1, 3, 9]]


def rates(n, chains, cdf):
    """Slope of the squared distance against n at each time."""
    squares = np.array([squared_distance(heaped(k, chains), EDGES, cdf).T for k in n])  # (n, time, chain)
    return [bootstrap_rate(n, squares[:, i], level=0.999, rng=0) for i in range(len(TIMES))]


@pytest.mark.parametrize(
    ("n", "chains"), [((8, 24, 72), 200), pytest.param((16, 64, 256), 400, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_flow_of_the_mean_field(n, chains):
    for found in rates(n, chains, flow()):
        assert found.low < -1 < found.high
    wrong = {"sign": flow(-STRENGTH), "half": flow(STRENGTH / 2), "temperature": flow(STRENGTH, BETA / 3)}  # negative controls
    for cdf in (*wrong.values(), flow()[[1, 2, 2]]):  # the last: a wrong time
        assert max(found.low for found in rates(n, chains, cdf)) > -0.9


def test_mean_of_the_particles_follows_the_flow():
    """The cumulative function of many chains together: off by the chaos bias O(1/n) and the noise."""
    n, chains = 72, 200
    mean = np.stack([(heaped(n, chains) <= value).mean(-1) for value in EDGES[::8]], axis=-1)  # (chain, time, place)
    error = np.maximum(mean.std(0, ddof=1) / np.sqrt(chains), 1e-3)
    gap = np.abs(mean.mean(0) - flow()[:, ::8])
    assert (gap < 4.5 * error + 0.5 / n).all()  # 99 normal variables: a false alarm in 7e-4
    assert (np.abs(mean.mean(0) - flow(STRENGTH / 2)[:, ::8]) > 4.5 * error + 0.5 / n).any()  # negative control


def test_coulomb_gas_from_a_point():
    """g = -|x| from 0 with noise: the cumulative function is that of Burgers' equation (Hopf and Cole), distances fall as n^(-1/2)."""
    strength, beta, step, t, n = 1.1, 4.0, 4e-3, 0.6, (8, 32, 128)
    grid = np.linspace(-3, 3, 241)
    last = [path(np.zeros((200, k, 1)), Riesz("coulomb", strength), Langevin(step, beta), 150, 150, rng=k)[:, -1, :, 0] for k in n]

    def rate(cdf):
        return bootstrap_rate(n, np.array([squared_distance(x, grid, cdf) for x in last]), level=0.999, rng=0)

    found = rate(coulomb_line_cdf(grid, t, strength, beta))
    assert found.low < -1 < found.high
    for wrong in ((t, strength / 2, beta), (t, -strength, beta), (t, strength, 3 * beta), (1.5 * t, strength, beta)):  # negative controls
        assert rate(coulomb_line_cdf(grid, *wrong)).low > -0.9


@pytest.mark.parametrize("dim", [2, 3, 5])
def test_second_moment_of_the_log_gas(dim):
    """Exact for every n, trap and repulsion and noise together; Euler's step adds step^2 E |force|^2, one hundredth here."""
    n, kappa, strength, beta, step = 5, 0.9, 1.2, 3.0, 2e-3
    start = np.random.default_rng(dim).normal(size=(1500 // dim, n, dim))
    x = path(start, Quadratic(kappa) + Riesz(0.0, strength), Langevin(step, beta, drift_cap=0.2), 400, 100)
    moment = (x**2).sum(-1).mean(-1)
    t = step * 100 * np.arange(1, 5)
    exact = log_second_moment(t, float((start**2).sum(-1).mean()), kappa, strength, beta, dim)
    change = moment[:, 1:] - moment[:, :1] * np.exp(-2 * kappa * t)
    expected = exact - (start**2).sum(-1).mean() * np.exp(-2 * kappa * t)
    for i in range(4):
        assert abs(z_score(change[:, i], expected[i])) < 4
        assert abs(z_score(change[:, i], 0.75 * expected[i])) > 4  # negative control


# Without noise: patches and semicircles grow, from a lattice.


def resting(law, n):
    """Particles at rest in the trap of a Coulomb ball."""
    energy = Quadratic(law.kappa) + Riesz("coulomb", law.strength)
    start = law.sample(n, rng=n)[None]
    rough = path(start, energy, Langevin(0.05, np.inf, drift_cap=0.05), 200, 200)[:, -1]
    return path(rough, energy, Langevin(0.03, np.inf), 300, 300)[0, -1]


@pytest.mark.parametrize(("dim", "kappa"), [(2, 0.0), (2, 0.6), (3, 0.0), (3, 0.6)])
def test_coulomb_patch(dim, kappa):
    """A trap is weakened: the lattice spreads, and its second moment is that of the ball of the predicted radius up to that of a lattice,
    n^(-2/dim), in the plane exactly. The radius at two times."""
    first, steps, t = CoulombBall(1.8, 0.7, dim), 200, 0.8
    n, errors = np.array([25, 50, 100, 200]), []
    for k in n:
        x = path(resting(first, int(k))[None], Quadratic(kappa) + Riesz("coulomb", 0.7), Langevin(t / steps, np.inf), steps, steps // 2)
        found = np.sqrt((x[0, 1:] ** 2).sum(-1).mean(-1) * (dim + 2) / dim)
        radius = coulomb_patch_radius(np.array([t / 2, t]), first.radius, dim, 0.7, kappa)
        errors.append(found / radius - 1)
    errors = np.array(errors)
    if dim == 2:
        assert np.abs(errors).max() < 3e-3  # Euler's
    else:
        assert fit_rate(n, -errors).slope == pytest.approx(-2 / 3, abs=0.06)
    wrong = coulomb_patch_radius(np.array([t / 2, t]), first.radius, dim, 0.35, kappa)  # negative control: a half forgotten
    assert (np.abs(found / wrong - 1) > 0.03).all()


@pytest.mark.parametrize("kappa", [0.0, 0.8])
def test_semicircle_from_a_point(kappa):
    """Without noise from almost a point: W_2 to the semicircle of radius `dyson_radius` falls as 1/n (Dyson's Brownian motion, cold)."""
    strength, t, n, scaled = 0.7, 0.5, (8, 16, 32, 64), []
    for k in n:
        start = 1e-3 * hermite_ground_state(k, 1.0, strength)[None]
        # the step follows the square of the size, as the first growth is that of a square root
        steps = [(4e-6 * 4**i / k * 8, 3 * k // 2) for i in range(7)]
        x, spent = start, 0.0
        for step, count in steps:
            x = path(x, Quadratic(kappa) + Riesz(0.0, strength), Langevin(step, np.inf), count, count)[:, -1]
            spent += step * count
        rest = t - spent
        count = int(np.ceil(rest * k * 20))
        x = path(x, Quadratic(kappa) + Riesz(0.0, strength), Langevin(rest / count, np.inf), count, count)[0, -1, :, 0]
        radius = float(dyson_radius(t, strength, kappa))
        law = Semicircle(2 * strength / radius**2, strength)
        assert law.radius == pytest.approx(radius)
        scaled.append(wasserstein(x, law.quantile, 2))
        wrong = Semicircle(2 * strength / float(dyson_radius(t, strength / 2, kappa)) ** 2, strength)
    assert fit_rate(n, scaled).slope == pytest.approx(-1, abs=0.05)
    assert wasserstein(x, wrong.quantile, 2) > 5 * scaled[-1]  # negative control: a half forgotten


def test_ranks_of_the_coulomb_gas_on_the_line():
    """Without noise every particle keeps its rank and moves as predicted, to rounding but for Euler's exp(-kappa t)."""
    start, strength, kappa, step = np.array([0.3, -0.2, 1.1, 0.9, -1.4]), 0.8, 0.6, 1e-3
    x = path(start[None, :, None], Quadratic(kappa) + Riesz("coulomb", strength), Langevin(step, np.inf), 900, 300)[0, 1:, :, 0]
    exact = coulomb_ranks(np.array([0.3, 0.6, 0.9]), start, strength, kappa)
    np.testing.assert_allclose(x, exact, atol=5e-4)
    assert np.abs(x - coulomb_ranks(np.array([0.3, 0.6, 0.9]), start, -1e-12 + strength / 2, kappa)).max() > 0.05  # negative control


# Quadratic attraction at finite n: everything is exact, at every step.


def test_chaos_bias_of_quadratic_attraction_on_its_way():
    """n (variance of a particle - that of the limit) is the exact one at each time and n, and tends to a constant: the bias is O(1/n)."""
    kappa, attraction, beta, step, start, chains, dim = 0.9, 1.6, 4.0, 0.02, 0.3, 1500, 6
    energy = Quadratic(kappa) + Pair(lambda r: attraction * r**2 / 2, lambda r: attraction * r, name="attraction")
    n, biases = np.array([2, 4, 8]), []
    for k in n:
        gas, rng = QuadraticGas(kappa, attraction, beta, int(k), dim), np.random.default_rng(k)
        x = path(np.sqrt(start) * rng.standard_normal((chains, k, dim)), energy, Langevin(step, beta), 40, 20, rng=int(k))
        for frame, steps in ((1, 20), (2, 40)):
            variance, limit = (x[:, frame] ** 2).mean((1, 2)), QuadraticGas(kappa, attraction, beta, 10**9, dim)
            assert abs(z_score(variance, gas.euler_modes(step, steps, start=start).variance(int(k)))) < 4
            mean_field = limit.euler_modes(step, steps, start=start).variance(10**9)
            assert abs(z_score(variance, mean_field)) > 4 or k == n[-1]  # negative control
        biases.append(gas.euler_modes(step, 40, start=start).variance(int(k)) - mean_field)
    assert QuadraticGas(kappa, attraction, beta, 8, dim).chaos_bias(0.8, start=start) == pytest.approx(8 * biases[-1], rel=0.1)
    many = [QuadraticGas(kappa, attraction, beta, k, dim).chaos_bias(0.8, start=start) / k for k in (50, 100, 200)]
    assert fit_rate([50, 100, 200], many).slope == pytest.approx(-1, abs=0.01)
