"""Langevin dynamics against solvable dynamics: moments, self-similar growth, quadratic attraction, walls, minibatch heat.

Statistical tests are z-tests at 4 (false alarm 6e-5 each) or Kolmogorov-Smirnov tests at 1e-4, with fixed seeds and a wrong twin each.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import kstest

from particles import HMC, MALA, Ball, Box, FullSpace, Langevin, Pair, Quadratic, Riesz, random, simulate
from particles.energy import Energy
from theory import report
from theory.ground_states import hermite_ground_state


def frames(start, energy, domain, sampler, n_steps, save_every=1, rng=0):
    """omega (chain, frame, particle, dim) and the whole Dataset."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        run = simulate(start, energy, domain, sampler, n_steps=n_steps, save_every=save_every, rng=rng)
    return run["omega"].values, run


def z_score(draws, predicted=0.0):
    return (draws.mean() - predicted) / (draws.std(ddof=1) / np.sqrt(len(draws)))


# The second moment of the log gas obeys a closed equation.


@pytest.mark.parametrize(("dim", "kappa", "beta"), [(2, 0.9, 3.0), (3, 0.0, 1.5), (8, 1.4, 0.7), (2, 0.0, np.inf), (1, 0.8, 40.0)])
def test_second_moment_of_the_log_gas_evolves_by_its_equation(dim, kappa, beta):
    """M' = -2 kappa M + strength + 2 dim/beta; an Euler step adds step^2 times the mean squared gradient, which the run records."""
    n, strength, step, n_steps = 6, 1.2, 2e-3, 150
    start = np.random.default_rng(dim).normal(size=(250, n, dim)) * 0.7
    if dim == 1:  # colliding particles have no mean squared gradient: well separated ones at low temperature (index b = 9.6)
        start = np.linspace(-1, 1, n)[:, None] + 0.02 * start
    x, run = frames(start, Quadratic(kappa) + Riesz(0.0, strength), FullSpace(dim), Langevin(step, beta), n_steps)
    moment = (x**2).sum(-1).mean(-1)
    squared = run["grad_norm"].values[:, :-1] ** 2
    shrink = (1 - 2 * step * kappa) ** np.arange(n_steps - 1, -1, -1)

    def excess(source):
        """Of each chain, over the discrete equation: a sum of martingale differences."""
        return (
            moment[:, -1] - (1 - 2 * step * kappa) ** n_steps * moment[:, 0] - np.sum(shrink * (step * source + step**2 * squared), axis=1)
        )

    source = strength + 2 * dim / beta
    if beta == np.inf:
        np.testing.assert_allclose(excess(source), 0, atol=1e-12)
        assert np.abs(excess(1.01 * source)).min() > 1e-4
        return
    assert abs(z_score(excess(source))) < 4
    assert abs(z_score(excess(1.25 * source))) > 4
    t = step * n_steps
    rest = source / (2 * kappa) if kappa else 0.0
    exact = rest + (moment[:, 0].mean() - rest) * np.exp(-2 * kappa * t) if kappa else moment[:, 0].mean() + source * t
    assert moment[:, -1].mean() == pytest.approx(exact, rel=0.05)


# Self-similar growth at zero temperature: a ground state in a trap stays one, scaled by a(t).


def ground_state(dim, s, kappa, strength, n=10):
    """A minimiser (n, dim) in the trap kappa: exact on a line, else by capped descent."""
    if (dim, s) == (1, 0.0):
        return hermite_ground_state(n, kappa, strength)
    if (dim, s) == (1, -1.0):
        return strength * (2 * np.arange(1.0, n + 1) - n - 1)[:, None] / (kappa * (n - 1))
    start = np.random.default_rng(3).normal(size=(n, dim))
    energy = Quadratic(kappa) + Riesz(s, strength)
    rough, _ = frames(start, energy, FullSpace(dim), Langevin(0.03, np.inf, drift_cap=0.05), 300, 300)
    fine, _ = frames(rough[0, -1], energy, FullSpace(dim), Langevin(0.05, np.inf), 1500, 1500)
    return fine[0, -1]


@pytest.mark.parametrize(
    ("dim", "s", "kappa"),
    [(1, 0.0, 0.0), (1, -1.0, 0.6), (2, 0.0, 0.0), (2, 1.0, 0.6), (3, 1.0, 0.0), (3, 1.0, 0.6), (3, 0.0, 0.3), (8, 6.0, 0.0)],
)
def test_a_patch_grows_self_similarly(dim, s, kappa):
    """a^(s+2) tends to kappa_0/kappa at the rate (s+2) kappa, or grows by (s+2) kappa_0 t without a trap: R^dim for Coulomb.

    Holds for every N, as the force is homogeneous of degree -(s+1) and balances kappa_0 x at the start. The Euler error is halved with
    the step.
    """
    before, strength, t, power = 1.8, 1.3, 0.6, s + 2
    x0 = ground_state(dim, s, before, strength)
    error = []
    for n_steps in (100, 200):
        x, _ = frames(x0, Quadratic(kappa) + Riesz(s, strength), FullSpace(dim), Langevin(t / n_steps, np.inf), n_steps, n_steps)
        x = x[0, -1]
        scale = np.sum(x * x0) / np.sum(x0**2)
        np.testing.assert_allclose(x, scale * x0, atol=2e-4 * np.abs(x0).max())  # the shape is kept
        grown = 1 + power * before * t if kappa == 0 else before / kappa + (1 - before / kappa) * np.exp(-power * kappa * t)
        error.append(scale / grown ** (1 / power) - 1)
    assert abs(error[1]) < 0.01
    assert 2 * error[1] - error[0] == pytest.approx(0, abs=3e-4)
    if abs(error[0]) > 1e-4:
        assert error[0] / error[1] == pytest.approx(2, rel=0.1)
    other = 1 + (power + 0.2) * before * t if kappa == 0 else before / kappa + (1 - before / kappa) * np.exp(-(power + 0.2) * kappa * t)
    assert abs(scale / other ** (1 / (power + 0.2)) - 1) > 3e-3  # negative control: the growth of another exponent


@pytest.mark.parametrize(("dim", "kappa"), [(2, 0.0), (2, 0.7), (3, 0.0), (3, 0.7)])
def test_radius_of_a_coulomb_patch(dim, kappa):
    """A uniform ball of many particles: R^3 grows by 3 strength t and R^2 by 2 strength t, or relaxes to that of the trap."""
    strength, t, n = 1.3, 0.5, 300
    first = Ball(0.8, dim).sample(n, rng=2)
    energy = Quadratic(kappa) + Riesz("coulomb", strength)
    x, _ = frames(first, energy, FullSpace(dim), Langevin(2e-3, np.inf, drift_cap=0.02), 250, 250)
    final = (np.sum(x[0, -1] ** 2, axis=1).mean() * (dim + 2) / dim) ** (dim / 2)
    start = 0.8**dim
    source = dim * strength * max(dim - 2, 1)
    rest = source / (dim * kappa) if kappa else None
    exact = start + source * t if rest is None else rest + (start - rest) * np.exp(-dim * kappa * t)
    assert final == pytest.approx(exact, rel=0.06)  # finite N and the random start
    assert final != pytest.approx(exact - 0.2 * source * t, rel=0.06)  # negative control


# Quadratic attraction: everything is Gaussian, at any step.


def attraction(a):
    return Pair(lambda r: 0.5 * a * r**2, lambda r: a * r, name="attraction")


@pytest.mark.parametrize("dim", [1, 3, 8])
def test_stationary_variances_of_quadratic_attraction_at_a_long_step(dim):
    """Centre 1/(beta N kappa (1 - step kappa/2)), modes of the deviations 1/(beta theta (1 - step theta/2)), theta = kappa + aN/(N-1)."""
    n, kappa, a, beta, step = 5, 0.9, 1.6, 4.0, 0.25
    x, _ = frames(
        np.zeros((80 if dim == 1 else 160 // dim, n, dim)), Quadratic(kappa) + attraction(a), FullSpace(dim), Langevin(step, beta), 300, 15
    )
    x = np.moveaxis(x[:, 3:], -1, 2).reshape(-1, n)  # coordinates are independent, and frames but for 0.02 of the centre
    centre, modes = x.mean(1) ** 2, x.var(1, ddof=1)
    theta = kappa + a * n / (n - 1)
    assert abs(z_score(centre, 1 / (beta * n * kappa * (1 - step * kappa / 2)))) < 4
    assert abs(z_score(modes, 1 / (beta * theta * (1 - step * theta / 2)))) < 4
    assert abs(z_score(modes, 1 / (beta * theta))) > 4  # negative controls: no step; theta with N for N - 1
    wrong = kappa + a
    assert abs(z_score(modes, 1 / (beta * wrong * (1 - step * wrong / 2)))) > 4


def test_transient_of_quadratic_attraction():
    """The mean decays by (1 - step kappa) a step; deviation variance follows the linear recursion to its mean-field value and beyond."""
    n, kappa, a, beta, step, n_steps, dim = 4, 0.9, 1.6, 4.0, 0.05, 12, 8
    start = np.full((700, n, dim), 0.8) + 0.3 * np.random.default_rng(0).normal(size=(700, n, dim))
    x, _ = frames(start, Quadratic(kappa) + attraction(a), FullSpace(dim), Langevin(step, beta), n_steps)
    theta = kappa + a * n / (n - 1)
    variance = 0.09
    for _ in range(n_steps):
        variance = (1 - step * theta) ** 2 * variance + 2 * step / beta
    assert abs(z_score(x[:, -1].mean((1, 2)), 0.8 * (1 - step * kappa) ** n_steps)) < 4
    assert abs(z_score(x[:, -1].var(1, ddof=1).mean(1), variance)) < 4
    assert abs(z_score(x[:, -1].mean((1, 2)), 0.8 * (1 - step * (kappa + a)) ** n_steps)) > 4
    assert abs(z_score(x[:, -1].var(1, ddof=1).mean(1), 1.12 * variance)) > 4


def test_propagation_of_chaos_of_quadratic_attraction():
    """One particle's variance at N = 4 is the exact finite-N one, not the mean field's 1/(beta (kappa + a)) that N Var_N misses by a
    constant: N (Var_N - Var_mf) tends to 1/(beta kappa) - 1/(beta (kappa+a)) - a/(beta (kappa+a)^2)."""
    kappa, a, beta = 0.9, 1.6, 4.0

    def variance(n, step=0.0):
        theta = kappa + a * n / (n - 1)
        modes = 1 / (beta * theta * (1 - step * theta / 2))
        return 1 / (beta * n * kappa * (1 - step * kappa / 2)) + (n - 1) / n * modes

    mean_field = 1 / (beta * (kappa + a))
    constant = 1 / (beta * kappa) - mean_field - a / (beta * (kappa + a) ** 2)
    assert 1e4 * (variance(10_000) - mean_field) == pytest.approx(constant, rel=1e-3)
    n, step = 4, 0.1
    x, _ = frames(np.zeros((30, n, 8)), Quadratic(kappa) + attraction(a), FullSpace(8), Langevin(step, beta), 500, 25)
    measured = (x[:, 3:] ** 2).mean((1, 2)).ravel()  # coordinates are independent
    assert abs(z_score(measured, variance(n, step))) < 4
    assert abs(z_score(measured, mean_field / (1 - step * (kappa + a) / 2))) > 4


# Free particles in a box: the atom of projection, and folding.


@pytest.mark.parametrize("dim", [1, 2, 3, 8])
def test_projection_leaves_its_atom_and_folding_the_uniform_law(dim):
    """Each wall holds (sigma/sqrt 2)/(2 L + 1.1652 sigma); the variance is L^2/3 + .3884 sigma L - .13 sigma^2."""
    half, sigma, beta = 0.8, 0.25, 3.0
    step = sigma**2 * beta / 2
    box = Box([-half] * dim, [half] * dim)
    start = np.random.default_rng(dim).uniform(-half, half, (1, 30_000 // dim, dim))
    projected, _ = frames(start, Quadratic(0.0), box, Langevin(step, beta), 60, 60, rng=1)
    reflected, _ = frames(start, Quadratic(0.0), box, Langevin(step, beta, scheme="reflected"), 20, 20, rng=1)
    projected, reflected = projected[0, -1].ravel(), reflected[0, -1].ravel()

    def atom(sigma):
        return sigma / np.sqrt(2) / (2 * half + 1.1652 * sigma)

    for wall in (-half, half):
        assert abs(z_score(projected == wall, atom(sigma))) < 4
        assert abs(z_score(projected == wall, atom(1.2 * sigma))) > 4
    assert abs(z_score(projected**2, half**2 / 3 + 0.3884 * sigma * half - 0.13 * sigma**2)) < 4
    assert abs(z_score(projected**2, half**2 / 3)) > 4
    assert kstest(reflected, "uniform", args=(-half, 2 * half)).pvalue > 1e-4
    assert kstest(projected, "uniform", args=(-half, 2 * half)).pvalue < 1e-4


STIFFNESS, FAR = 0.25, 20.0  # a nearly constant drift of 5 to 5.25 against the wall, by a trap with a far centre


def pressed(shape):
    """Exact draws in the unit box at beta = 1, the trap and the exact mean depth; odd coordinates press on the high wall, mirrored."""
    odd = np.arange(shape[-1]) % 2 == 1

    def weight(x):
        return np.exp(-STIFFNESS * ((x + FAR) ** 2 - FAR**2) / 2)

    grid = np.linspace(0, 1, 4001)
    cumulative = np.cumsum(weight(grid))
    depth = np.interp(np.random.default_rng(0).random(shape), (cumulative - cumulative[0]) / (cumulative[-1] - cumulative[0]), grid)
    mean = quad(lambda x: x * weight(x), 0, 1)[0] / quad(weight, 0, 1)[0]
    return np.where(odd, 1 - depth, depth), Quadratic(STIFFNESS, np.where(odd, 1 + FAR, -FAR)), mean


def depths(x):
    return np.where(np.arange(x.shape[-1]) % 2 == 1, 1 - x, x)


def wall_bias(scheme, steps):
    """Bias of the mean depth for each step size, at time 1.2 from exact draws, averaged over the last frames."""
    start, trap, exact = pressed((1, 2500, 8))
    bias = []
    for step in steps:
        sampler = Langevin(step, 1.0, scheme=scheme)
        x, _ = frames(start, trap, Box([0.0] * 8, [1.0] * 8), sampler, round(1.2 / step), round(0.04 / step), rng=5)
        bias.append(depths(x)[0, 10:].mean() - exact)
    return np.array(bias)


@pytest.mark.parametrize(("scheme", "order", "sign"), [("projected", 0.5, -1), ("reflected", 1.0, 1), ("shrunk", 1.0, 1)])
def test_order_of_the_bias_at_a_wall(scheme, order, sign):
    """Projection errs like the square root of the step, reflection and shrunk projection like the step."""
    steps = np.array([2e-2, 1e-2, 5e-3] if sign > 0 else [1e-2, 4e-3, 1.6e-3])
    bias = sign * wall_bias(scheme, steps)
    assert (bias > 0).all()
    slope = np.polyfit(np.log(steps), np.log(bias), 1)[0]
    assert slope == pytest.approx(order, abs=0.12)


@pytest.mark.parametrize("sampler", [MALA(0.02, 1.0), HMC(0.15, 1.0, n_leapfrog=4)], ids=["mala", "hmc"])
def test_exact_samplers_have_no_bias_at_a_wall(sampler):
    start, trap, exact = pressed((4000, 1, 2))
    x, _ = frames(start, trap, Box([0.0] * 2, [1.0] * 2), sampler, 12, 12)
    assert abs(z_score(depths(x[:, -1]).mean((1, 2)), exact)) < 4
    for scheme in ("projected", "reflected"):  # negative control: Euler steps of the same size
        x, _ = frames(start, trap, Box([0.0] * 2, [1.0] * 2), Langevin(0.02, 1.0, scheme=scheme), 12, 12)
        assert abs(z_score(depths(x[:, -1]).mean((1, 2)), exact)) > 4


# Minibatches heat.


class NoisySprings(Energy):
    """A quadratic trap whose gradient carries independent noise of standard deviation `noise` per coordinate, as a minibatch's does."""

    term, minibatched = "springs", True

    def __init__(self, stiffness, noise):
        self.stiffness, self.noise = stiffness, noise

    def _evaluate(self, omega, key, want_value):
        shaking = self.noise * random.normal(key, omega.shape, stream=random.MINIBATCH) if key else 0.0
        return self.stiffness / 2 * (omega**2).sum(-1).mean(-1), self.stiffness * omega + shaking

    def describe(self):
        return {"name": "Quadratic", "stiffness": self.stiffness, "centre": 0.0}


@pytest.mark.parametrize("dim", [2, 8])
def test_extra_temperature_of_minibatches_is_the_excess_variance(dim):
    """Stationary variance (1/beta + extra)/(kappa (1 - step kappa/2)), extra = step noise^2/2: recorded, and used by the report."""
    kappa, noise, beta, step = 1.3, 2.0, 3.0, 0.1
    start = 0.5 * np.random.default_rng(0).normal(size=(8, 250, dim))
    x, run = frames(start, NoisySprings(kappa, noise), FullSpace(dim), Langevin(step, beta), 400, 10)
    extra = run["extra_temperature"].values[:, 1:]
    assert abs(z_score(extra.ravel(), step * noise**2 / 2)) < 4
    assert abs(z_score(extra.ravel(), step * noise**2)) > 4  # negative control: without the half
    square = (x[:, 15:] ** 2).mean((1, 3))  # (chain, particle)
    predicted = (1 / beta + extra.mean()) / (kappa * (1 - step * kappa / 2))
    assert abs(z_score(square.ravel(), predicted)) < 4
    assert abs(z_score(square.ravel(), 1 / (beta * kappa * (1 - step * kappa / 2)))) > 4
    table = report.check(run)
    assert bool(table["passed"].sel(law="second_moment"))
    assert not bool(table["passed"].sel(law="extra_temperature"))  # 0.2 against 1/3
    assert not bool(report.check(run.drop_vars("extra_temperature"))["passed"].sel(law="second_moment"))
