"""Closed-form dynamics against numerical integration, their own equations, and `particles`; each with a wrong twin."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad, solve_ivp, trapezoid
from scipy.stats import expon, kstest

from particles import MALA, FullSpace, Langevin, Pair, Quadratic, Riesz, simulate
from theory.convergence import fit_rate
from theory.dynamics import (
    attractive_gap_rates,
    coulomb_density,
    coulomb_line_cdf,
    coulomb_line_density,
    coulomb_patch_radius,
    coulomb_ranks,
    dyson_density,
    dyson_radius,
    log_second_moment,
)
from theory.dynamics.gases import _excess_hazard
from theory.ground_states import hermite_ground_state
from theory.mean_field import MeanField


def final(start, energy, sampler, n_steps, rng=0):
    """The last frame (chain, particle, dim) of a run in free space."""
    run = simulate(start, energy, FullSpace(start.shape[-1]), sampler, n_steps=n_steps, save_every=n_steps, rng=rng)
    return run["omega"].values[:, -1]


def integrated(slope, start, t):
    return solve_ivp(slope, (0, t), np.atleast_1d(start), method="DOP853", rtol=1e-11, atol=1e-13).y[:, -1]


# The second moment of the log gas.


@pytest.mark.parametrize(("kappa", "beta", "dim"), [(1.3, 6.0, 1), (0.0, 2.0, 3), (0.4, np.inf, 2)])
def test_second_moment_by_its_equation(kappa, beta, dim):
    exact = integrated(lambda t, m: -2 * kappa * m + 0.7 + 2 * dim / beta, 0.4, 0.8)[0]
    assert log_second_moment([0.0, 0.8], 0.4, kappa, 0.7, beta, dim) == pytest.approx([0.4, exact], rel=1e-10)
    if kappa:  # at rest: strength/(2 kappa) + dim/(beta kappa)
        assert log_second_moment(50.0, 0.4, kappa, 0.7, beta, dim) == pytest.approx(0.35 / kappa + dim / (beta * kappa), rel=1e-12)


def test_second_moment_of_particles():
    """Two dimensions, 400 chains of 6; z-test at 4 (false alarm 6e-5). The step's own term, about 2e-3 T E|F|^2, is far below the error."""
    start = np.random.default_rng(0).normal(size=(400, 6, 2))
    x = final(start, Quadratic(0.9) + Riesz(0.0, 1.2), Langevin(1e-3, 3.0), 200)
    gain = (x**2).sum(-1).mean(-1) - np.exp(-0.36) * (start**2).sum(-1).mean(-1)
    error = gain.std(ddof=1) / 20
    assert abs(gain.mean() - log_second_moment(0.2, 0.0, 0.9, 1.2, 3.0, 2)) < 4 * error
    assert abs(gain.mean() - log_second_moment(0.2, 0.0, 0.9, 2.4, 3.0, 2)) > 4 * error  # negative control: a missing factor 1/2
    assert abs(gain.mean() - log_second_moment(0.2, 0.0, 0.9, 1.2, 6.0, 2)) > 4 * error


# Dyson's semicircle and other starts.


@pytest.mark.parametrize("kappa", [0.0, 1.3])
def test_dyson_radius_by_its_equation_and_second_moment(kappa):
    exact = integrated(lambda t, r2: -2 * kappa * r2 + 2.8, 0.25, 0.6)[0]
    assert dyson_radius(0.6, 0.7, kappa, start=0.5) == pytest.approx(np.sqrt(exact), rel=1e-10)
    assert dyson_radius(0.6, 0.7, kappa) ** 2 / 4 == pytest.approx(log_second_moment(0.6, 0.0, kappa, 0.7, np.inf, 1), rel=1e-12)
    assert dyson_radius(0.6, 0.7) == pytest.approx(2 * np.sqrt(0.42), rel=1e-12)
    assert dyson_radius(40.0, 0.7, 1.3) == pytest.approx(np.sqrt(1.4 / 1.3), rel=1e-12)


@pytest.mark.parametrize(("points", "kappa"), [([0.3], 0.0), ([-1.0, 0.0, 0.0, 2.0], 0.4), ([-0.2, 0.1, 0.15], 1.5)])
def test_dyson_density_solves_the_burgers_equation(points, kappa):
    """Off the line its transform obeys G(z) = mean 1/(z - s G(z) - a), the solution of G_t + strength G G_z = 0 by characteristics."""
    t, strength = 0.3, 0.7
    x, rho = dyson_density(t, points, strength, kappa, n=4000)
    assert trapezoid(rho, x) == pytest.approx(1, abs=3e-6)
    assert trapezoid(x * rho, x) == pytest.approx(np.mean(points) * np.exp(-kappa * t), abs=3e-6)
    moment = log_second_moment(t, float(np.mean(np.square(points))), kappa, strength, np.inf, 1)
    assert trapezoid(x**2 * rho, x) == pytest.approx(moment, abs=3e-6)
    grow = np.exp(kappa * t)
    s = strength * t if kappa == 0 else strength * np.expm1(2 * kappa * t) / (2 * kappa)
    for z in (0.3 + 0.2j, -1.0 + 0.5j, 2.0 + 0.1j):
        g = trapezoid(rho / (z - grow * x), x)
        assert abs(g - np.mean(1 / (z - s * g - np.array(points)))) < 1e-5
        assert abs(g - np.mean(1 / (z - 1.2 * s * g - np.array(points)))) > 1e-3  # negative control: another strength
    assert (np.diff(x) >= 0).all()
    assert rho.min() >= 0


def test_dyson_density_of_one_point_is_the_semicircle_and_splits_for_two():
    x, rho = dyson_density(0.5, [1.5], 0.7, 0.4)
    radius, centre = dyson_radius(0.5, 0.7, 0.4), 1.5 * np.exp(-0.2)
    assert rho == pytest.approx(2 / (np.pi * radius**2) * np.sqrt(np.maximum(radius**2 - (x - centre) ** 2, 0)), abs=1e-7)
    assert (x[0], x[-1]) == pytest.approx((centre - radius, centre + radius), rel=1e-12)
    # two points at -+1 stay two bands until strength t = 1: v(0) > 0 when mean 1/a^2 > 1/s
    gap = [np.diff(dyson_density(t, [-1, 1], 1.0)[0]).max() for t in (0.9, 0.99, 1.01)]
    assert gap[0] > gap[1] > 0.0003
    assert dyson_density(0.9, [-1, 1], 1.0)[1][400:402] == pytest.approx([0, 0], abs=1e-6)
    assert dyson_density(1.01, [-1, 1], 1.0)[1][1:-1].min() > 0


def quantiles(x, rho, n):
    """Of the density at the levels (k - 1/2)/n."""
    mass = np.concatenate([[0], np.cumsum(np.diff(x) * (rho[1:] + rho[:-1]) / 2)])
    return np.interp((np.arange(n) + 0.5) / n, mass / mass[-1], x)


def test_particles_from_two_clusters_follow_the_dyson_density():
    """Zero temperature, n particles at quantiles of the law at t = 0.05: at 0.35 they sit at its quantiles within O(1/n)."""
    errors, ns = [], np.array([25, 50, 100])
    points, n_steps = [-0.8, -0.8, 0.9], 600
    for n in ns:
        start = quantiles(*dyson_density(0.05, points, 0.9, 0.4, n=4000), n)
        x = final(start[:, None], Quadratic(0.4) + Riesz(0.0, 0.9), Langevin(0.3 / n_steps, np.inf), n_steps)[0, :, 0]
        errors.append(np.mean(np.abs(np.sort(x) - quantiles(*dyson_density(0.35, points, 0.9, 0.4, n=4000), n))))
        wrong = np.mean(np.abs(np.sort(x) - quantiles(*dyson_density(0.35, points, 1.1, 0.4, n=4000), n)))
    assert errors[-1] < 0.01
    assert wrong > 0.03  # negative control: another strength
    assert fit_rate(ns, errors).slope < -0.7


@pytest.mark.parametrize("kappa", [0.0, 0.9])
def test_a_scaled_ground_state_grows_as_the_semicircle(kappa):
    """Hermite zeros stay so: their second moment is R^2/4 of `dyson_radius` at every n, by a Runge-Kutta method."""
    n, strength, start = 12, 0.7, hermite_ground_state(12, 2.0, 0.7)[:, 0]

    def slope(t, x):
        gap = x[:, None] - x + np.eye(n)
        return -kappa * x + strength / (n - 1) * (1 / gap - np.eye(n)).sum(1)

    x = integrated(slope, start, 0.5)
    radius = dyson_radius(0.5, strength, kappa, start=2 * np.sqrt(np.mean(start**2)))
    assert np.mean(x**2) == pytest.approx(radius**2 / 4, rel=1e-8)
    assert x / start == pytest.approx(np.full(n, x[0] / start[0]), rel=1e-7)


# Coulomb patches.


@pytest.mark.parametrize("dim", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("kappa", [0.0, 0.8])
def test_patch_radius_and_density(dim, kappa):
    """By the equation of the boundary, R' = -kappa R + strength c_dim rho R/dim / ..., written out for each dimension."""
    charge = {1: 1.0, 2: 1.0, 3: 1.0, 4: 2.0, 6: 4.0}[dim]
    exact = integrated(lambda t, r: -kappa * r + 0.7 * charge / r ** (dim - 1), 0.6, 0.9)[0]
    assert coulomb_patch_radius(0.9, 0.6, dim, 0.7, kappa) == pytest.approx(exact, rel=1e-9)
    ball = {1: 2.0, 2: np.pi, 3: 4 * np.pi / 3, 4: np.pi**2 / 2, 6: np.pi**3 / 6}[dim]
    density = coulomb_density([0.0, 0.9], 1 / (ball * 0.6**dim), dim, 0.7, kappa)
    assert density * ball * np.array([0.6, exact]) ** dim == pytest.approx([1, 1], rel=1e-9)
    if kappa:
        assert coulomb_patch_radius(60.0, 0.6, dim, 0.7, kappa) == pytest.approx((0.7 * charge / kappa) ** (1 / dim), rel=1e-12)
    else:
        c = {1: 2.0, 2: 2 * np.pi, 3: 4 * np.pi, 4: 4 * np.pi**2, 6: 4 * np.pi**3}[dim]
        assert coulomb_density(1e9, 5.0, dim, 0.7) == pytest.approx(1 / (0.7 * c * 1e9), rel=1e-8)


@pytest.mark.parametrize(("dim", "s"), [(2, 0.0), (3, 1.0)])
def test_particles_of_a_patch_stay_uniform_on_the_ball(dim, s):
    """|x|^dim/R^dim of 600 particles from independent uniform ones; Kolmogorov-Smirnov at 1e-4 against R and a tenth more."""
    rng = np.random.default_rng(dim)
    start = rng.normal(size=(600, dim))
    start *= 0.5 * rng.random(600)[:, None] ** (1 / dim) / np.linalg.norm(start, axis=1)[:, None]
    x = final(start, Quadratic(0.5) + Riesz(s, 0.8), Langevin(1e-3, np.inf, drift_cap=0.02), 300)[0]
    radius = coulomb_patch_radius(0.3, 0.5, dim, 0.8, 0.5)
    filled = (np.linalg.norm(x, axis=1) / radius) ** dim
    assert kstest(np.minimum(filled, 1), "uniform").pvalue > 1e-4
    assert filled.max() < 1.1
    assert kstest(filled / 1.1**dim, "uniform").pvalue < 1e-4


# The Coulomb gas on the line.


@pytest.mark.parametrize("kappa", [0.0, 0.6])
def test_ranks_by_the_sum_over_pairs(kappa):
    start = np.array([0.3, -1.0, 2.0, 0.4, -0.2])
    exact = integrated(lambda t, x: -kappa * x + 0.7 / 4 * np.sign(x[:, None] - x).sum(1), start, 1.1)
    assert coulomb_ranks([0.0, 1.1], start, 0.7, kappa) == pytest.approx(np.array([start, exact]), rel=1e-9)
    moved = final(start[:, None], Quadratic(kappa) + Riesz(-1.0, 0.7), Langevin(1e-3, np.inf), 1100)[0, :, 0]
    assert moved == pytest.approx(exact, abs=1e-10 if kappa == 0 else 2e-3)
    assert moved != pytest.approx(coulomb_ranks(1.1, start, 0.7 * 4 / 5, kappa), abs=0.05)  # negative control: 1/n for 1/(n - 1)


def test_ranks_fill_the_patch():
    n = 2001
    x = coulomb_ranks(0.7, 1e-9 * np.arange(n), 0.9)
    assert np.sort(x) == pytest.approx(np.linspace(-1, 1, n) * coulomb_patch_radius(0.7, 0.0, 1, 0.9), abs=1e-5)


def test_attracting_ranks_have_independent_exponential_gaps():
    """Exact sampler, 1500 chains; Kolmogorov-Smirnov at 1e-4 for each gap, correlation within 4/sqrt(chains), a wrong n rejected."""
    n, attraction, beta = 4, 1.5, 2.0
    rates = attractive_gap_rates(n, attraction, beta)
    assert rates == pytest.approx([3.0, 4.0, 3.0])
    pair = Pair(lambda r: attraction * r, lambda r: attraction * np.ones_like(r), name="attraction")
    x = final(np.random.default_rng(1).normal(size=(1500, n, 1)), pair, MALA(0.05, beta), 250)
    gaps = np.diff(np.sort(x[..., 0], axis=1), axis=1)
    assert min(kstest(gap, expon(scale=1 / rate).cdf).pvalue for gap, rate in zip(gaps.T, rates)) > 1e-4
    assert np.abs(np.corrcoef(gaps.T)[np.triu_indices(3, 1)]).max() < 4 / np.sqrt(1500)
    assert kstest(gaps[:, 1], expon(scale=1 / (rates[1] * 3 / 4)).cdf).pvalue < 1e-4  # negative control: 1/n for 1/(n - 1)


def test_attracting_ranks_by_their_stochastic_equation():
    """Plain Euler steps of the rank drifts: the mean gaps at rest are 1/rate, z-tests at 4 with the O(sqrt(step)) bias allowed for."""
    n, attraction, beta, step = 3, 1.0, 4.0, 2e-4
    rng, rates = np.random.default_rng(2), attractive_gap_rates(3, 1.0, 4.0)
    x = np.cumsum(rng.exponential(1, (2000, 3)) / np.r_[1.0, rates], axis=1)
    for _ in range(1500):
        rank = np.argsort(np.argsort(x, axis=1), axis=1) + 1
        x = x - step * attraction * (2 * rank - n - 1) / (n - 1) + np.sqrt(2 * step / beta) * rng.standard_normal(x.shape)
    gaps = np.diff(np.sort(x, axis=1), axis=1)
    error = gaps.std(0) / np.sqrt(2000)
    assert (np.abs(gaps.mean(0) - 1 / rates) < 4 * error + 0.6 * np.sqrt(2 * step / beta)).all()
    assert (np.abs(gaps.mean(0) - 1.5 / rates) > 4 * error + 0.6 * np.sqrt(2 * step / beta)).all()


@pytest.mark.parametrize("strength", [0.9, 0.0, -1.4])
@pytest.mark.parametrize("beta", [0.5, 20.0])
def test_coulomb_line_solves_its_equation(strength, beta):
    """F_t + strength (2 F - 1) F_x = F_xx/beta by central differences, and the density is F_x of mass 1."""
    t, h = 0.6, 1e-3
    for x in (-0.7, 0.05, 0.4, 1.1):
        f = np.array([[coulomb_line_cdf(x + i * h, t + j * h, strength, beta) for i in (-1, 0, 1)] for j in (-1, 0, 1)])
        slope = (f[1, 2] - f[1, 0]) / (2 * h)
        residual = (f[2, 1] - f[0, 1]) / (2 * h) + strength * (2 * f[1, 1] - 1) * slope - (f[1, 2] - 2 * f[1, 1] + f[1, 0]) / h**2 / beta
        assert abs(residual) < 1e-4 * (1 + abs(slope))
        assert coulomb_line_density(x, t, strength, beta) == pytest.approx(slope, rel=1e-4, abs=1e-7)
    mass = quad(coulomb_line_density, -12, 12, args=(t, strength, beta), points=[-0.54, 0, 0.54], limit=400)[0]
    assert mass == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize(
    ("x", "t", "strength", "beta"), [(0.3, 0.7, 0.9, 2.0), (-0.5, 1.0, 0.8, 1e7), (2.5, 1.0, 0.8, 60.0), (0.2, 40.0, -2.0, 3.0)]
)
def test_coulomb_line_to_many_digits(x, t, strength, beta):
    """exp(-strength beta x/2) and its mirror image, each weighed by the normal law, in 60 digits; the density from the derivative."""

    def cumulative(at):
        sigma = mpmath.sqrt(2 * mpmath.mpf(t) / beta)
        parts = [
            mpmath.exp(-sign * mpmath.mpf(strength) * beta * at / 2) * mpmath.ncdf((sign * at - mpmath.mpf(strength) * t) / sigma)
            for sign in (1, -1)
        ]
        return parts[0] / (parts[0] + parts[1])

    with mpmath.workdps(60):
        assert coulomb_line_cdf(x, t, strength, beta) == pytest.approx(float(cumulative(mpmath.mpf(x))), rel=1e-13)
        assert 1 - coulomb_line_cdf(-x, t, strength, beta) == pytest.approx(float(cumulative(mpmath.mpf(x))), rel=1e-12)
        assert coulomb_line_density(x, t, strength, beta) == pytest.approx(float(mpmath.diff(cumulative, mpmath.mpf(x))), rel=1e-10)


def test_coulomb_line_limits():
    x = np.linspace(-0.5, 0.5, 5)
    assert coulomb_line_density(x, 1.0, 0.8, 1e7) == pytest.approx(np.full(5, 1 / 1.6), rel=1e-5)  # the patch
    assert coulomb_line_cdf(x, 1.0, 0.8, 1e7) == pytest.approx((x + 0.8) / 1.6, rel=1e-5)
    assert coulomb_line_cdf(x, 400.0, -0.8, 3.0) == pytest.approx(1 / (1 + np.exp(-2.4 * x)), rel=1e-10)  # the logistic law
    shifts = np.linspace(-99.0, -101.0, 2001)  # smooth across the change to the series
    assert np.abs(np.diff(_excess_hazard(shifts), 2)).max() < 1e-10


def test_solver_agrees_with_the_coulomb_line():
    """Finite volumes from t = 0.2 to 0.7 on cells of width 0.02: L1 distance of the cell averages."""
    edges, strength, beta = np.linspace(-4, 4, 401), 0.9, 3.0
    model = MeanField(None, lambda r: -strength * r, beta, edges)
    start = np.diff(coulomb_line_cdf(edges, 0.2, strength, beta)) / np.diff(edges)
    rho = model.evolve(start / (start.sum() * 0.02), 0.5, tol=1e-5)
    assert np.abs(rho - np.diff(coulomb_line_cdf(edges, 0.7, strength, beta)) / 0.02).sum() * 0.02 < 1e-3
    assert np.abs(rho - np.diff(coulomb_line_cdf(edges, 0.7, 0.8, beta)) / 0.02).sum() * 0.02 > 0.01  # negative control


def test_particles_on_the_coulomb_line():
    """60 chains of 100 particles from one point; z-tests at 4 of F at five places, with 1/n for the finite number."""
    x = final(np.zeros((60, 100, 1)), Riesz(-1.0, 0.9), Langevin(0.01, 3.0), 60)[..., 0]
    at = np.array([-0.9, -0.4, 0.1, 0.5, 1.0])
    below = (x[..., None] <= at).mean(1)
    error = below.std(0, ddof=1) / np.sqrt(60)
    assert (np.abs(below.mean(0) - coulomb_line_cdf(at, 0.6, 0.9, 3.0)) < 4 * error + 0.01).all()
    assert (np.abs(below.mean(0) - coulomb_line_cdf(at, 0.6, 0.45, 3.0)) > 4 * error + 0.01)[[0, 1, 3, 4]].all()  # a factor 1/2


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: log_second_moment(-1.0, 0.0, 1.0, 1.0, 1.0, 2), "t must be at least 0"),
        (lambda: log_second_moment(1.0, 0.0, 1.0, -1.0, 1.0, 2), "strength must be"),
        (lambda: log_second_moment(1.0, 0.0, 1.0, 1.0, -1.0, 2), "beta must be"),
        (lambda: dyson_radius(1.0, 1.0, -0.1), "kappa must be"),
        (lambda: dyson_radius(np.inf, 1.0), "t must be finite"),
        (lambda: dyson_density(0.0, [0.0], 1.0), "t must be"),
        (lambda: dyson_density(1.0, [], 1.0), "points must have shape"),
        (lambda: dyson_density(1.0, [0.0], 0.0), "strength must be"),
        (lambda: coulomb_patch_radius(1.0, -1.0, 2, 1.0), "start must be"),
        (lambda: coulomb_patch_radius(1.0, 1.0, 0, 1.0), "dim must be"),
        (lambda: coulomb_density(1.0, 0.0, 2, 1.0), "start must be"),
        (lambda: coulomb_ranks(1.0, [0.0, 0.0], 1.0), "different positions"),
        (lambda: coulomb_ranks(1.0, [0.0, 1.0], -1.0), "strength must be"),
        (lambda: attractive_gap_rates(1, 1.0, 1.0), "n must be"),
        (lambda: attractive_gap_rates(3, -1.0, 1.0), "attraction must be"),
        (lambda: coulomb_line_cdf(0.0, 0.0, 1.0, 1.0), "t must be"),
        (lambda: coulomb_line_density(0.0, 1.0, np.nan, 1.0), "strength must be finite"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("t", [1e-12, 1e-10, 1e-8, 1e-6])
def test_early_density_of_many_points_has_mass_one(t):
    """Each point is a semicircle of its own at first; nothing lies between them."""
    points = np.random.default_rng(3).random(50)
    x, density = dyson_density(t, points, 1.0)
    assert trapezoid(density, x) == pytest.approx(1, abs=5e-5)


def test_late_times_and_many_dimensions():
    with pytest.raises(ValueError, match="t must be at most 350/kappa = 350, got 800"):
        dyson_density(800.0, [0.0, 1.0], 1.0, 1.0)
    assert coulomb_patch_radius(0.0, 1e-3, 300, 1.0) == pytest.approx(1e-3, rel=1e-12)
    assert coulomb_patch_radius([0.0, 1e3], 100.0, 400, 1.0, 1.0)[0] == pytest.approx(100, rel=1e-12)
    sphere = mpmath.mpf(2) * mpmath.pi**180 / mpmath.gamma(180)
    assert coulomb_density(0.5, 1e235, 360, 1.0) == pytest.approx(float(1 / (mpmath.mpf("1e-235") + 358 * sphere * 0.5)), rel=1e-11)
