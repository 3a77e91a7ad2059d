"""Particles that learn a kernel by alignment, against theory: where they go, and how the kernel concentrates with N and beta.

Two Gaussian classes give the alignment potential in closed form; the particles repel each other and are sampled exactly by HMC from many
independent chains. The predicted law of K = (1/N) sum cos(w_k . delta) is the mean field with its fluctuations and rate function.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import chi2

from particles import HMC, Box, External, Langevin, Pair, Riesz, simulate
from theory.large_deviations import empirical_rate, riesz
from theory.large_deviations.fluctuations import LearnedKernel
from theory.mean_field import MeanField
from theory.mean_field.meshes import Rectangle
from theory.spectral.alignment import GaussianClasses

WALL, DELTA, CUT, S = 3.0, 1.5, 0.2, 1.5  # s = 1.5 > dim = 1: only the truncation makes a mean field


def alignment(classes):
    return External(classes.potential, classes.gradient, name="alignment")


def truncated(strength):
    """strength max(r, CUT)^-S for the particles."""
    return Pair(
        lambda r: strength * np.maximum(r, CUT) ** -S,
        lambda r: np.where(r > CUT, -S * strength * np.maximum(r, CUT) ** (-S - 1), 0.0),
        name="repulsion",
    )


def line(classes, strength, beta, n_cells=300):
    interaction = riesz(S, strength, 1, truncation=CUT) if strength else None
    return MeanField(
        lambda w: classes.potential(w[:, None] if w.ndim == 1 else w[..., None]), interaction, beta, np.linspace(-WALL, WALL, n_cells + 1)
    )


def draw(field, shape, rng):
    """One point of the field's stationary law in each of n equal parts: a start that has little to forget and no close pairs."""
    cdf = np.concatenate([[0.0], np.cumsum(field.stationary().rho) * field.width])
    u = (np.arange(shape[1]) + np.random.default_rng(rng).uniform(0.2, 0.8, shape)) / shape[1]
    return np.interp(u, cdf / cdf[-1], field.edges)[..., None]


@functools.cache
def learned(n, chains, beta, strength=0.15, m=1.2, seed=3):
    """Last frames (chain, n) of as many independent runs."""
    classes = GaussianClasses((m,))
    start = draw(line(classes, strength, beta), (chains, n), seed)
    sampler = HMC(0.9 / np.sqrt(beta) * (16 / n) ** 0.15, beta, n_leapfrog=5)
    run = simulate(start, alignment(classes) + truncated(strength), Box([-WALL], [WALL]), sampler, n_steps=40, save_every=40, rng=seed)
    assert float(run["acceptance"].isel(step=-1).mean()) > 0.3
    return run["omega"].isel(step=-1).values[..., 0]


def mean_and_spread_agree(kernel, prediction, n):
    """Whether independent draws have the predicted law: false alarms 6e-5 and 1e-4. The prediction's next orders are given a share 1/N."""
    error = np.sqrt(prediction.variance / n / len(kernel))
    mean = abs(kernel.mean() - prediction.mean - prediction.bias / n) < 4 * error + 2 * abs(prediction.bias) / n**2
    low, high = (len(kernel) - 1) * kernel.var(ddof=1) / chi2.ppf([1 - 5e-5, 5e-5], len(kernel) - 1) * n / prediction.variance
    return mean, bool(low < 1 + 1 / n and high > 1 - 1 / n)


@pytest.mark.parametrize("p", [0.5, 0.62, 0.8, 1.0])
@pytest.mark.parametrize("mean", [(0.7,), (2.1,), (0.8, -1.1, 0.3)])
def test_the_closed_form_maximiser_is_the_best_frequency(mean, p):
    classes = GaussianClasses(mean, p)
    best = classes.maximiser()
    rng = np.random.default_rng(2)
    trials = np.concatenate([rng.normal(0, 1.5, (20_000, len(mean))), best + rng.normal(0, 1e-3, (200, len(mean)))])
    assert classes.potential(trials).min() >= classes.potential(best) - 1e-14
    np.testing.assert_allclose(classes.gradient(best), 0, atol=1e-12)
    step, point = 1e-6, rng.normal(0, 1, len(mean))
    slopes = [(classes.potential(point + step * e) - classes.potential(point - step * e)) / (2 * step) for e in np.eye(len(mean))]
    np.testing.assert_allclose(classes.gradient(point), slopes, atol=1e-8)
    m = np.linalg.norm(mean)
    if p == 0.5:
        root = brentq(lambda r: np.tan(r * m) - m / r, 1e-6, np.pi / (2 * m) * (1 - 1e-9))
        assert np.linalg.norm(best) == pytest.approx(root, rel=1e-9)
    if (2 * p - 1) ** 2 >= m**2 * (1 - (2 * p - 1) ** 2):
        assert not best.any()  # one class outweighs the other: the mean of x says nothing that y's mean does not


def test_the_potential_is_the_expectation_over_data():
    classes, n, rng = GaussianClasses((0.9, 0.4), 0.7), 200_000, np.random.default_rng(5)
    y = np.where(rng.random(n) < classes.p, 1.0, -1.0)
    x = y[:, None] * np.array(classes.mean) + rng.standard_normal((n, 2))
    for w in (np.array([0.5, 0.2]), np.array([-1.0, 0.6])):
        waves = np.abs(np.sum(y * np.exp(1j * x @ w))) ** 2
        measured = -(waves - n) / (n * (n - 1))
        assert abs(measured - classes.potential(w)) < 4 * 2 / np.sqrt(n)  # |y e^iwx| = 1: at least four standard errors
        assert abs(measured - GaussianClasses(classes.mean, 0.5).potential(w)) > 4 * 2 / np.sqrt(n)  # control: equal classes
    for bad in ({"mean": (0.0, 0.0)}, {"mean": ((1.0,),)}, {"mean": (1.0,), "p": 1.2}):
        with pytest.raises(ValueError, match=next(reversed(bad))):
            GaussianClasses(**bad)
    with pytest.raises(ValueError, match="w must have shape"):
        classes.potential([1.0, 2.0, 3.0])


@pytest.mark.parametrize("m", [pytest.param(0.8, marks=pytest.mark.slow), 1.2, pytest.param(2.0, marks=pytest.mark.slow)])
def test_cold_particles_find_the_maximiser(m):
    """From the Gaussian start of random features, with little noise and repulsion, to the two roots +-r of tan(rm) = m/r."""
    classes, beta, strength, n = GaussianClasses((m,)), 400.0, 1e-4, 100
    best = classes.maximiser()[0]
    start = np.random.default_rng(1).standard_normal((n, 1)).clip(-WALL, WALL)
    run = simulate(
        start, alignment(classes) + truncated(strength), Box([-WALL], [WALL]), Langevin(0.1, beta), n_steps=1500, save_every=1500, rng=2
    )
    omega = np.abs(run["omega"].isel(chain=0, step=-1).values[:, 0])
    near = omega[omega < best + 0.8]  # a few still sit on the plateau far out
    field = line(classes, strength, beta, 1200)
    rho = field.stationary().rho * (np.abs(field.x) < best + 0.8)
    rho /= field.mesh.integral(rho)
    mean = field.mesh.integral(rho * np.abs(field.x))
    spread = np.sqrt(field.mesh.integral(rho * (np.abs(field.x) - mean) ** 2))
    assert len(near) > 0.9 * n
    assert abs(field.x[np.argmax(rho)]) == pytest.approx(best, abs=0.02)
    error = spread / np.sqrt(len(near))
    assert abs(near.mean() - mean) < 4 * error + 0.02 * spread  # false alarm 6e-5; the rest for the step size
    assert near.std() == pytest.approx(spread, rel=0.25)  # four standard errors of a spread, 5 % each
    wrong = GaussianClasses((1.15 * m,)).maximiser()[0] - best
    assert abs(near.mean() - mean - wrong) > 4 * error  # control: other classes


@pytest.mark.parametrize(
    ("n", "beta", "chains"),
    [(8, 8.0, 1500), pytest.param(16, 8.0, 1000, marks=pytest.mark.slow), pytest.param(16, 24.0, 1000, marks=pytest.mark.slow)],
)
def test_the_learned_kernel_concentrates_as_predicted(n, beta, chains):
    prediction = LearnedKernel(line(GaussianClasses((1.2,)), 0.15, beta), DELTA)
    kernel = np.cos(DELTA * learned(n, chains, beta)).mean(1)
    assert mean_and_spread_agree(kernel, prediction, n) == (True, True)
    free = LearnedKernel(line(GaussianClasses((1.2,)), 0.0, beta), DELTA)  # control: without repulsion
    assert mean_and_spread_agree(kernel, free, n) == (False, False)


@pytest.mark.slow
def test_the_kernel_s_spread_falls_with_n_and_with_beta():
    spread = {
        key: np.cos(DELTA * learned(key[0], 1500 if key[0] == 8 else 1000, key[1])).mean(1).var(ddof=1)
        for key in ((8, 8.0), (16, 8.0), (16, 24.0))
    }
    relative = 4 * np.sqrt(2 * 2 / 1000)  # of a ratio of two sample variances, at four standard errors
    assert spread[8, 8.0] / spread[16, 8.0] == pytest.approx(2, rel=relative)
    fields = [LearnedKernel(line(GaussianClasses((1.2,)), 0.15, beta), DELTA).variance for beta in (8.0, 24.0)]
    assert spread[16, 8.0] / spread[16, 24.0] == pytest.approx(fields[0] / fields[1], rel=relative + 1 / 16)
    assert fields[0] / fields[1] > 1.8


@pytest.mark.slow
def test_the_learned_kernel_deviates_at_the_predicted_rate():
    beta, chains = 8.0, 4000
    prediction = LearnedKernel(line(GaussianClasses((1.2,)), 0.15, beta), DELTA)
    value = prediction.mean + 0.25
    rate = prediction.rate(value).rate
    observed = {}
    for n in (4, 16):
        seen = np.cos(DELTA * learned(n, chains, beta, seed=11)).mean(1) >= value
        predicted = -np.log(prediction.tail(n, value)) / n
        observed[n] = empirical_rate(seen, chains, n, level=0.9999)  # false alarm 1e-4 each
        assert observed[n].low < predicted * (1 + 0.5 / n)
        assert predicted * (1 - 0.5 / n) < observed[n].high
        assert not observed[n].low < 2 * predicted < observed[n].high  # control
    assert observed[4].rate > observed[16].rate > rate  # from above: log(N)/(2N) and more
    free = LearnedKernel(line(GaussianClasses((1.2,)), 0.0, beta), DELTA)
    assert not observed[16].low < -np.log(free.tail(16, value)) / 16 < observed[16].high  # control: without repulsion


@pytest.mark.slow
def test_the_log_gas_of_frequencies():
    """Untruncated log repulsion, s = 0 < dim, and classes of different sizes."""
    n, chains, beta, strength, delta = 12, 800, 10.0, 1.2, 0.9
    classes = GaussianClasses((1.2,), 0.7)
    field = MeanField(lambda w: classes.potential(w[..., None]), riesz(0.0, strength, 1), beta, np.linspace(-WALL, WALL, 301))
    sampler, energy = HMC(0.05, beta, n_leapfrog=12), alignment(classes) + Riesz(0.0, strength)
    run = simulate(draw(field, (chains, n), 4), energy, Box([-WALL], [WALL]), sampler, n_steps=80, save_every=80, rng=5)
    kernel = np.cos(delta * run["omega"].isel(step=-1).values[..., 0]).mean(1)
    assert mean_and_spread_agree(kernel, LearnedKernel(field, delta), n) == (True, True)
    free = MeanField(lambda w: classes.potential(w[..., None]), None, beta, field.edges)
    assert mean_and_spread_agree(kernel, LearnedKernel(free, delta), n) == (False, False)  # control


@pytest.mark.slow
def test_planar_frequencies():
    beta, strength, n, chains = 10.0, 1.2, 12, 800
    classes, delta = GaussianClasses((1.0, 0.6), 0.55), np.array([1.2, -0.3])
    mesh = Rectangle([-2.5, -2.5], [2.5, 2.5], (32, 32))
    field = MeanField(classes.potential, riesz(0.0, strength, 2), beta, mesh)
    prediction, rng = LearnedKernel(field, delta), np.random.default_rng(8)
    cells = rng.choice(mesh.volume.size, size=(chains, n), p=(prediction.fluctuations.rho * mesh.volume).ravel())
    start = mesh.centres.reshape(-1, 2)[cells] + mesh.width * (rng.random((chains, n, 2)) - 0.5)
    energy, sampler = alignment(classes) + Riesz(0.0, strength), HMC(0.15, beta, n_leapfrog=6)
    run = simulate(start, energy, Box([-2.5, -2.5], [2.5, 2.5]), sampler, n_steps=60, save_every=60, rng=9)
    kernel = np.cos(run["omega"].isel(step=-1).values @ delta).mean(1)
    assert mean_and_spread_agree(kernel, prediction, n) == (True, True)
    free = MeanField(classes.potential, None, beta, mesh)
    assert mean_and_spread_agree(kernel, LearnedKernel(free, delta), n) == (False, False)  # control
