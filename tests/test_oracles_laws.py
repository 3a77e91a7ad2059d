"""Samplers against exact laws of finitely many particles: log gases on a line, between walls, on a circle, in the plane; pairs anywhere.

Chains start from exact draws, so that nothing needs to converge: after k steps an exact sampler still has exact draws, and a wrong one
has left the law. Laws are compared by Kolmogorov-Smirnov tests at 1e-4, with fixed seeds; each has a deliberately wrong twin.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.stats import ks_2samp, kstest

from particles import HMC, MALA, Ball, Box, FullSpace, Langevin, Quadratic, Riesz, Torus, simulate
from theory import report
from theory.ensembles import (
    circle_gas_energy,
    ginibre_radii,
    log_gas_energy,
    sample_circle_gas,
    sample_log_gas,
    sample_wall_gas,
    second_moment,
    wall_gas_energy,
)

ALPHA = 1e-4  # false-alarm rate of one Kolmogorov-Smirnov test


def final(start, energy, domain, sampler, n_steps, rng=0):
    """The last frame of a run: omega (chain, particle, dim), H_N and the mean acceptance of each chain."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of chains that were stuck in a short run: acceptance is asserted below
        frame = simulate(start, energy, domain, sampler, n_steps=n_steps, save_every=n_steps, rng=rng).isel(step=-1)
    acceptance = frame["acceptance"].values if "acceptance" in frame else np.ones(len(start))
    return frame["omega"].values, frame["energy"].values, acceptance


def z_score(draws, predicted):
    return (draws.mean() - predicted) / (draws.std(ddof=1) / np.sqrt(len(draws)))


# Identities that hold for every configuration.


@pytest.mark.parametrize("s", [0.0, 0.5, 1.0, 2.0, 2.7, -0.5, -1.0, -1.6, "coulomb"])
@pytest.mark.parametrize("dim", [1, 2, 3, 8])
def test_virial_identity_of_any_configuration(dim, s):
    """(1/N) sum x_k . F_k = |s| (strength/2) mean |x_k - x_l|^-s; strength/2 for the log."""
    x = np.random.default_rng(dim).normal(size=(13, dim)) * 1.7
    energy, exponent = Riesz(s, 0.9), dim - 2.0 if s == "coulomb" else s
    i, j = np.triu_indices(13, 1)
    r = np.linalg.norm(x[i] - x[j], axis=1)
    work = -np.sum(x * energy.gradient(x)) / 13
    expected = 0.45 if exponent == 0 else abs(exponent) * 0.45 * np.mean(r**-exponent)
    assert work == pytest.approx(expected, rel=1e-11)
    assert -np.sum(x * Riesz(exponent + 0.1, 0.9).gradient(x)) / 13 != pytest.approx(expected, rel=1e-3)  # negative control


def test_virial_identity_of_changed_kernels():
    x = np.random.default_rng(5).normal(size=(13, 3))
    i, j = np.triu_indices(13, 1)
    r = np.linalg.norm(x[i] - x[j], axis=1)
    soft = Riesz(0.0, 0.9, softening=0.8)
    assert -np.sum(x * soft.gradient(x)) / 13 == pytest.approx(0.45 * np.mean(r**2 / (r**2 + 0.64)), rel=1e-12)
    cut = Riesz(1.0, 0.9, truncation=1.5)
    assert -np.sum(x * cut.gradient(x)) / 13 == pytest.approx(0.45 * np.mean(np.where(r < 1.5, 0, 1 / r)), rel=1e-12)


# The log gas on the line: tridiagonal matrices.


def line_statistics(omega, energy):
    """Smallest gap, largest particle and energy of each chain."""
    x = np.sort(omega[..., 0], axis=1)
    return {"smallest gap": np.diff(x, axis=1).min(1), "largest particle": x[:, -1], "energy": energy}


def line_gas(n, b, sampler, n_steps, n_chains, told=1.0):
    """p-values of the three statistics after n_steps from exact draws, and the mean acceptance; `told` scales the sampler's beta."""
    beta, kappa = 5.0, 0.8
    strength = b * (n - 1) / beta
    model = Quadratic(kappa) + Riesz(0.0, strength)
    start = sample_log_gas(n, beta, kappa, strength, rng=n, size=n_chains)
    omega, energy, acceptance = final(start, model, FullSpace(1), sampler(told * beta), n_steps, rng=7)
    exact = sample_log_gas(n, beta, kappa, strength, rng=n + 1, size=2 * n_chains)
    assert np.isfinite(omega).all()
    ours, theirs = line_statistics(omega, energy), line_statistics(exact, model.value(exact))
    return {name: ks_2samp(ours[name], theirs[name]).pvalue for name in ours}, acceptance.mean()


def mala(h):
    """A step h in units of the trap's relaxation time."""
    return lambda beta: MALA(h / 0.8, beta)


def hmc(h, n_leapfrog):
    return lambda beta: HMC(np.sqrt(2 * h / 0.8), beta, n_leapfrog=n_leapfrog)


def euler(h):
    return lambda beta: Langevin(h / 0.8, beta)


LINE = {  # n, index b, sampler, steps, chains
    "mala-8": (8, 1.0, mala(0.03), 60, 2000),
    "hmc-8": (8, 1.4, hmc(0.01, 6), 12, 2000),
    "mala-32": (32, 1.4, mala(0.006), 100, 600),
    "hmc-32": (32, 2.0, hmc(0.0025, 8), 12, 600),
}


@pytest.mark.parametrize("case", LINE)
def test_exact_samplers_keep_the_log_gas_on_the_line(case):
    n, b, sampler, n_steps, n_chains = LINE[case]
    p, acceptance = line_gas(n, b, sampler, n_steps, n_chains)
    assert min(p.values()) > ALPHA  # false alarm 3e-4 over the test
    assert 0.3 < acceptance < 0.95
    wrong, _ = line_gas(n, b, sampler, n_steps, n_chains, told=1.15)  # negative control: beta 15 % high
    assert min(wrong.values()) < ALPHA


@pytest.mark.parametrize(("n", "b", "h"), [(8, 1.0, 0.03), (32, 1.4, 0.006)])
def test_unadjusted_steps_of_the_same_size_leave_the_log_gas(n, b, h):
    p, _ = line_gas(n, b, euler(h), 40, 700)
    assert max(p.values()) < ALPHA  # each of the three: gaps, the edge and the energy


@pytest.mark.slow
@pytest.mark.parametrize(("sampler", "n_steps"), [(mala(0.0006), 500), (hmc(0.00025, 16), 40)], ids=["mala", "hmc"])
def test_exact_samplers_keep_the_log_gas_of_128_particles(sampler, n_steps):
    """Fast sibling: test_exact_samplers_keep_the_log_gas_on_the_line."""
    p, acceptance = line_gas(128, 2.0, sampler, n_steps, 250)
    assert min(p.values()) > ALPHA
    assert 0.3 < acceptance < 0.95
    wrong, _ = line_gas(128, 2.0, sampler, n_steps, 250, told=1.15)
    assert min(wrong.values()) < ALPHA


@pytest.mark.parametrize(("n", "sampler", "n_steps"), [(8, mala(0.02), 60), (20, hmc(0.004, 8), 12)], ids=["mala", "hmc"])
def test_mean_energy_and_second_moment_of_the_log_gas_on_the_line(n, sampler, n_steps):
    beta, kappa, strength = 5.0, 0.8, 3.1
    start = sample_log_gas(n, beta, kappa, strength, rng=4, size=3000)
    omega, energy, _ = final(start, Quadratic(kappa) + Riesz(0.0, strength), FullSpace(1), sampler(beta), n_steps)
    assert abs(z_score(energy, log_gas_energy(n, beta, kappa, strength))) < 4  # false alarm 6e-5 each
    assert abs(z_score((omega**2).mean((1, 2)), second_moment(1, beta, kappa, strength))) < 4
    assert abs(z_score(energy, log_gas_energy(n, 1.15 * beta, kappa, strength))) > 4


# The second moment and the virial law, in any dimension.


@pytest.mark.filterwarnings("ignore:.*stuck")  # a few of 500 chains, where a pair nearly meets; the mean acceptance is asserted
@pytest.mark.parametrize(("dim", "s"), [(1, 0.0), (2, 0.0), (3, 0.0), (9, 0.0), (2, 1.0), (3, 1.0), (3, -0.8), (8, 2.0), (8, 6.0)])
def test_second_moment_law_in_any_dimension(dim, s):
    """Capped steps lead the random start into the gas before the exact sampler begins."""
    n, beta, kappa, strength = 6, 3.0, 0.9, 1.7
    model, room = Quadratic(kappa) + Riesz(s, strength), FullSpace(dim)
    start = np.random.default_rng(1).normal(size=(500, n, dim)) * np.sqrt(2 / (beta * kappa))
    if dim == 1:  # where particles nearly meet, a warm-up would leave some chains stuck
        start = sample_log_gas(n, beta, kappa, strength, rng=1, size=500)
    warm, _, _ = final(start, model, room, Langevin(0.003, beta, drift_cap=0.03), 1 if dim == 1 else 120)
    sampler = HMC(0.12 if dim == 1 else 0.25 * dim**-0.25, beta, n_leapfrog=6)
    run = simulate(warm, model, room, sampler, n_steps=48, save_every=8, rng=3)
    assert float(run["acceptance"][:, 1:].mean()) > 0.5
    x = run["omega"].values[:, 3:]
    square = (x**2).sum(-1).mean((1, 2))
    if s == 0:
        excess = square
    else:  # the pair moment of the same frames is subtracted, so that the law is a mean of one series
        i, j = np.triu_indices(n, 1)
        pair = (np.linalg.norm(x[:, :, i] - x[:, :, j], axis=-1) ** -s).mean((1, 2))
        excess = square - abs(s) * strength * pair / (2 * kappa)
    predicted = second_moment(dim, beta, kappa, strength if s == 0 else 0.0)
    assert abs(z_score(excess, predicted)) < 4  # false alarm 6e-5
    assert abs(z_score(excess, second_moment(dim, 1.3 * beta, kappa, strength if s == 0 else 0.0))) > 4


# Two particles: the distance has a density in closed form.


def pair_distance_law(dim, s, beta, kappa, strength):
    """(grid, cdf) of the distance r of two particles: r^(dim-1) exp(-beta (kappa r^2/4 + strength g_s(r)))."""
    r = np.linspace(0, 9 / np.sqrt(beta * kappa) + 3, 40001)[1:]
    g = -np.log(r) if s == 0 else np.sign(s) * r**-s
    log = (dim - 1) * np.log(r) - beta * (kappa * r**2 / 4 + strength * g)
    weight = np.exp(log - log.max())
    cumulative = np.cumsum(weight) - weight / 2
    return r, cumulative / cumulative[-1]


@pytest.mark.parametrize("make", [lambda beta: MALA(0.1, beta), lambda beta: HMC(0.25, beta, n_leapfrog=5)], ids=["mala", "hmc"])
@pytest.mark.parametrize(("dim", "s"), [(1, 0.5), (2, -1.3), (3, 1.0), (8, 2.0), (3, 3.5)])
def test_distance_of_two_particles(dim, s, make):
    beta, kappa, strength, n_chains = 2.2, 1.4, 0.6, 4000
    rng = np.random.default_rng(dim)
    r, cdf = pair_distance_law(dim, s, beta, kappa, strength)
    gap = rng.normal(size=(n_chains, dim))
    gap *= np.interp(rng.random(n_chains), cdf, r)[:, None] / np.linalg.norm(gap, axis=1, keepdims=True)
    centre = rng.normal(size=(n_chains, dim)) / np.sqrt(2 * beta * kappa)
    start = centre[:, None] + np.stack([gap, -gap], 1) / 2
    omega, _, acceptance = final(start, Quadratic(kappa) + Riesz(s, strength), FullSpace(dim), make(beta), 15)
    assert 0.3 < acceptance.mean() < 0.995
    distance = np.linalg.norm(omega[:, 0] - omega[:, 1], axis=1)
    assert kstest(distance, lambda x: np.interp(x, r, cdf)).pvalue > ALPHA
    r, wrong = pair_distance_law(dim, s, beta, 1.3 * kappa, strength)
    assert kstest(distance, lambda x: np.interp(x, r, wrong)).pvalue < ALPHA
    r, wrong = pair_distance_law(dim, s, beta, kappa, 3 * strength)
    assert kstest(distance, lambda x: np.interp(x, r, wrong)).pvalue < ALPHA


# One-dimensional Coulomb gas: Gaussians conditioned to be in order (Baxter 1963).


def coulomb_line(n, beta, kappa, strength, rng, size):
    """Exact draws (size, n): means strength (2k - n - 1)/(kappa (n-1)), variance 1/(beta kappa), rejected unless in order."""
    mean = strength * (2 * np.arange(1, n + 1) - n - 1) / (kappa * (n - 1))
    draws = mean + rng.normal(size=(60 * size, n)) / np.sqrt(beta * kappa)
    draws = draws[(np.diff(draws, axis=1) > 0).all(1)]
    assert len(draws) >= size
    return draws[:size, :, None]


@pytest.mark.parametrize("make", [lambda beta: MALA(0.08, beta), lambda beta: HMC(0.3, beta, n_leapfrog=4)], ids=["mala", "hmc"])
def test_coulomb_gas_on_the_line(make):
    n, beta, kappa, strength = 4, 4.0, 0.9, 1.1
    rng = np.random.default_rng(8)
    start, exact = (coulomb_line(n, beta, kappa, strength, rng, size) for size in (3000, 6000))
    omega, _, acceptance = final(start, Quadratic(kappa) + Riesz("coulomb", strength), FullSpace(1), make(beta), 30)
    assert 0.3 < acceptance.mean() < 0.995
    ours, theirs = np.sort(omega[..., 0], axis=1), exact[..., 0]
    for statistic in (lambda x: x[:, -1], lambda x: np.diff(x, axis=1).min(1), lambda x: (x**2).mean(1)):
        assert ks_2samp(statistic(ours), statistic(theirs)).pvalue > ALPHA
    wrong = coulomb_line(n, beta, kappa, 1.2 * strength, rng, 6000)[..., 0]
    assert ks_2samp((ours**2).mean(1), (wrong**2).mean(1)).pvalue < ALPHA


# The plane: eigenvalues of a complex Gaussian matrix.


@pytest.mark.parametrize("make", [lambda beta: MALA(0.05, beta), lambda beta: HMC(0.2, beta, n_leapfrog=5)], ids=["mala", "hmc"])
def test_ginibre_radii(make):
    n, beta, kappa, n_chains = 10, 3.0, 0.7, 2500
    rng = np.random.default_rng(6)
    matrix = rng.normal(size=(n_chains, n, n)) + 1j * rng.normal(size=(n_chains, n, n))
    z = np.linalg.eigvals(matrix) / np.sqrt(beta * kappa)
    strength = 2 * (n - 1) / beta
    start = np.stack([z.real, z.imag], -1)
    omega, _, acceptance = final(start, Quadratic(kappa) + Riesz("coulomb", strength), FullSpace(2), make(beta), 30)
    assert 0.3 < acceptance.mean() < 0.995
    radii, exact = np.sort(np.linalg.norm(omega, axis=-1), axis=1), ginibre_radii(n, beta, kappa, rng=1, size=10000)
    for k in (0, n // 2, n - 1):
        assert ks_2samp(radii[:, k], exact[:, k]).pvalue > ALPHA
    wrong = ginibre_radii(n, 1.1 * beta, kappa, rng=1, size=10000)
    assert ks_2samp(radii[:, -1], wrong[:, -1]).pvalue < ALPHA


# The report reads what a run wrote.


@pytest.mark.parametrize(
    ("energy", "domain", "expected"),
    [
        (Quadratic(0.8) + Riesz(0.0, 1.6), FullSpace(1), {"second_moment", "energy", "density", "acceptance", "coincident"}),
        (Riesz(0.0, 1.6), Box(-1.0, 1.4), {"energy", "density", "acceptance", "coincident"}),
        (Riesz(0.0, 1.6, period=2.6), Torus(2.6), {"energy", "density", "acceptance", "coincident"}),
    ],
    ids=["trap", "box", "torus"],
)
def test_report_of_a_tuned_run(energy, domain, expected):
    """From a crowded start that tuning leaves behind; every law that applies holds, none of them at another temperature."""
    start = np.linspace(0.1, 0.4, 5)[:, None] + np.zeros((40, 1, 1))
    run = simulate(start, energy, domain, HMC(0.02, 4.0, n_leapfrog=6, tune=100), n_steps=500, save_every=10, rng=1)
    table = report.check(run)
    assert set(table["law"].values) > expected
    assert bool(table["passed"].all())  # alpha 1e-3 together
    told = run.assign_attrs(sampler=run.attrs["sampler"].replace('"beta": 4.0', '"beta": 5.0'))
    assert told.attrs["sampler"] != run.attrs["sampler"]
    assert not bool(report.check(told)["passed"].sel(law="energy"))


# Hard walls and the circle: Selberg and Dyson.

ROOMS = {
    "box": (Box(-0.3, 2.3), lambda x: x + 1.0, None),
    "ball": (Ball(1.3, 1), lambda x: x, None),
    "torus": (Torus(2.6), lambda x: x, 2.6),
}


@pytest.mark.parametrize("make", [lambda h, beta: MALA(h, beta), lambda h, beta: HMC(np.sqrt(h), beta, n_leapfrog=6)], ids=["mala", "hmc"])
@pytest.mark.parametrize(("n", "b", "h"), [(5, 0.8, 0.03), (10, 2.0, 0.002)])
@pytest.mark.parametrize("room", ROOMS)
def test_log_gas_between_walls_and_on_a_circle(room, n, b, h, make):
    domain, place, period = ROOMS[room]
    beta, n_chains = 4.0, 1200
    strength = b * (n - 1) / beta
    exact, size, mean = (sample_circle_gas, 2.6, circle_gas_energy) if period else (sample_wall_gas, 1.3, wall_gas_energy)
    start = place(exact(n, beta, strength, size, rng=1, size=n_chains))
    omega, energy, acceptance = final(start, Riesz(0.0, strength, period=period), domain, make(h, beta), 25)
    assert bool(domain.contains(omega).all())
    assert 0.3 < acceptance.mean() < 0.97
    assert abs(z_score(energy, mean(n, beta, strength, size))) < 4  # false alarm 6e-5
    assert abs(z_score(energy, mean(n, 1.4 * beta, strength, size))) > 4
    fresh = place(exact(n, beta, strength, size, rng=2, size=2 * n_chains))
    ours, theirs = (line_statistics(x, Riesz(0.0, strength, period=period).value(x)) for x in (omega, fresh))
    for name in ours:
        assert ks_2samp(ours[name], theirs[name]).pvalue > ALPHA


def test_unadjusted_steps_leave_the_log_gas_between_walls():
    """Negative control: the steps of the MALA above without the test."""
    n, beta, strength = 5, 4.0, 0.8
    start = sample_wall_gas(n, beta, strength, 1.3, rng=1, size=1500)
    for scheme in ("projected", "reflected"):
        _, energy, _ = final(start, Riesz(0.0, strength), Ball(1.3, 1), Langevin(0.03, beta, scheme=scheme), 25)
        assert abs(z_score(energy[np.isfinite(energy)], wall_gas_energy(n, beta, strength, 1.3))) > 4
