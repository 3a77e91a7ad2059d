"""Synchronous coupling against the closed form of the quadratic gas, its rate for a smooth interaction, and strong orders."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad

from particles import FullSpace, Langevin, Pair, Quadratic, random, simulate
from theory.convergence import bootstrap_rate
from theory.convergence.coupling import density_drift, euler, strong_order, synchronous_coupling
from theory.convergence.transport import wasserstein2
from theory.dynamics.quadratic_gas import QuadraticGas
from theory.mean_field import MeanField


def euler_coupling_distance(gas, step, n_steps, start):
    """E |X - Y|^2 of the Euler steps themselves, from the covariance of all 2 n coordinates."""
    n, eye = gas.n, np.eye(gas.n)
    theta = gas.kappa * eye + gas.attraction * n / (n - 1) * (eye - 1 / n)
    shrink = np.eye(2 * n) - step * np.block([[theta, 0 * eye], [0 * eye, gas.limit_rate * eye]])
    s, noise = np.kron(np.ones((2, 2)), start * eye), np.kron(np.ones((2, 2)), 2 * step / gas.beta * eye)
    for _ in range(n_steps):
        s = shrink @ s @ shrink.T + noise
    return gas.dim * np.trace(s[:n, :n] + s[n:, n:] - s[:n, n:] - s[n:, :n]) / n


@pytest.mark.parametrize("gas", [QuadraticGas(1.3, 0.8, 6.0, 5, 2), QuadraticGas(0.5, -0.3, 2.0, 20)])
def test_quadratic_gas_at_its_exact_distance(gas):
    """z-test at 4 of the final distance over 3000 chains against the Euler law (false alarm 6e-5); the continuous one is close."""
    start = np.random.default_rng(0).normal(0, 0.6, (3000, gas.n, gas.dim))
    run = synchronous_coupling(start, gas.drift, lambda t, x: gas.limit_drift(t, x, 0.0), step_size=0.02, beta=gas.beta, n_steps=40, rng=1)
    final, exact = run.distance[:, -1], euler_coupling_distance(gas, 0.02, 40, 0.36)
    error = final.std(ddof=1) / np.sqrt(len(final))
    assert abs(final.mean() - exact) < 4 * error
    wrong = QuadraticGas(gas.kappa, 1.5 * gas.attraction, gas.beta, gas.n, gas.dim)
    assert abs(final.mean() - euler_coupling_distance(wrong, 0.02, 40, 0.36)) > 4 * error  # negative control: another attraction
    assert exact == pytest.approx(gas.coupling_distance(0.8, start=0.36), rel=0.1)
    assert run.time == pytest.approx(0.02 * np.arange(41))
    assert (run.distance[:, 0] == 0).all()
    assert run.low < run.supremum < run.high
    assert run.supremum == pytest.approx(run.distance.max(1).mean(), rel=1e-12)


def test_coupling_bounds_the_transport_of_the_empirical_measures():
    gas = QuadraticGas(1.0, 1.0, 3.0, 15)
    start, z = np.random.default_rng(1).normal(size=(2, 15, 1)), np.random.default_rng(2).normal(size=(30, 15, 1))
    *_, x = euler(start[0], lambda t, x: gas.drift(x), z, 0.05, 3.0)
    *_, y = euler(start[0], lambda t, x: gas.limit_drift(t, x, 0.0), z, 0.05, 3.0)
    assert wasserstein2(x, y) ** 2 <= np.mean((x - y) ** 2) + 1e-15


SLOPE = {"strength": 1.5, "kappa": 1.0, "beta": 2.0}  # g = strength exp(-r^2/2): smooth and Lipschitz


def smooth_drift(x):
    gap = x - np.swapaxes(x, 1, 2)
    return -SLOPE["kappa"] * x + SLOPE["strength"] * (gap * np.exp(-(gap**2) / 2)).sum(2, keepdims=True) / (x.shape[1] - 1)


def mean_field_drift():
    """From the finite-volume flow that starts at N(0.5, 0.3)."""
    edges = np.linspace(-6, 6, 241)
    model = MeanField(lambda x: SLOPE["kappa"] / 2 * x**2, lambda r: SLOPE["strength"] * np.exp(-(r**2) / 2), SLOPE["beta"], edges)
    rho = np.exp(-((model.x - 0.5) ** 2) / 0.6)
    times = np.linspace(0, 1, 21)
    flow = model.flow(rho / (rho.sum() * 0.05), times[1:], tol=1e-5)
    densities = np.concatenate([[rho / (rho.sum() * 0.05)], flow.rho])
    return density_drift(times, model.x, densities, lambda x: SLOPE["kappa"] * x, lambda d: -SLOPE["strength"] * d * np.exp(-(d**2) / 2))


def test_smooth_interaction_couples_at_rate_1_over_n():
    drift, rng, n = mean_field_drift(), np.random.default_rng(3), np.array([6, 12, 24, 48])
    largest = []
    for k in n:
        start = rng.normal(0.5, np.sqrt(0.3), (100, k, 1))
        largest.append(synchronous_coupling(start, smooth_drift, drift, step_size=0.025, beta=2.0, n_steps=40, rng=rng).distance.max(1))
    rate = bootstrap_rate(n, largest, level=0.999, rng=rng)
    assert rate.low < -1 < rate.high
    assert rate.high - rate.low < 0.7
    assert not rate.low < -0.5 < rate.high  # negative control: 1/sqrt(n) is rejected
    start = rng.normal(0.5, np.sqrt(0.3), (100, 48, 1))
    wrong = synchronous_coupling(start, smooth_drift, lambda t, x: 0.8 * drift(t, x), step_size=0.025, beta=2.0, n_steps=40, rng=4)
    assert wrong.supremum > 3 * np.mean(largest[-1])  # another limit is not approached


def test_drift_of_a_density_by_quadrature():
    x = np.linspace(-8, 8, 641)
    rho = np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)
    drift = density_drift([0.0, 1.0], x, [rho, 0.5 * rho], lambda y: 2 * y, lambda d: d * np.exp(-(d**2) / 2))
    at = np.array([[0.3], [-1.1], [2.0]])
    exact = [
        quad(lambda y, z=z: (z - y) * np.exp(-((z - y) ** 2) / 2) * np.exp(-(y**2) / 2) / np.sqrt(2 * np.pi), -8, 8)[0] for z in at[:, 0]
    ]
    assert drift(0.0, at)[:, 0] == pytest.approx(-2 * at[:, 0] - exact, abs=1e-4)
    assert drift(0.5, at)[:, 0] == pytest.approx(-2 * at[:, 0] - 0.75 * np.array(exact), abs=1e-4)
    assert drift(1.0, at)[:, 0] == pytest.approx(-2 * at[:, 0] - 0.5 * np.array(exact), abs=1e-4)


def test_euler_steps_by_hand():
    z = np.array([[0.5, -1.0], [2.0, 0.3]])
    states = list(euler([1.0, 2.0], lambda t, x: -x + t, z, 0.1, 5.0))
    first = np.array([0.9, 1.8]) + 0.2 * z[0]
    assert np.array(states) == pytest.approx(np.array([[1.0, 2.0], first, 0.9 * first + 0.01 + 0.2 * z[1]]), rel=1e-14)
    assert list(euler([1.0], lambda t, x: -x, np.zeros((1, 1)), 0.1, np.inf))[-1] == pytest.approx([0.9])


def test_strong_order_is_one_for_additive_noise():
    run = strong_order(
        np.random.default_rng(5).normal(size=(300, 2)), lambda t, x: -np.sinh(x) + np.cos(3 * t), horizon=1.0, beta=2.0, n_steps=256, rng=6
    )
    assert run.step == pytest.approx([1 / 128, 1 / 64, 1 / 32, 1 / 16])
    assert run.rate.low < 1.02
    assert run.rate.slope == pytest.approx(1, abs=0.07)
    assert not run.rate.low < 0.5 < run.rate.high  # negative control: half order


def test_a_drift_that_jumps_costs_strong_order():
    """sign(x) leaves 3/4 (Neuenkirch & Szolgyenyi 2021): what the estimate must not call 1."""
    run = strong_order(np.zeros((2000, 1)), lambda t, x: -3 * np.sign(x), horizon=1.0, beta=2.0, n_steps=512, rng=7)
    assert 0.6 < run.rate.slope < 0.9


def test_strong_order_of_the_quadratic_gas_is_exact():
    """Linear drift: the difference between step h and h/2 has a closed recursion; compare the mean square with it, z-test at 4."""
    theta, h, beta, levels = 1.7, 0.125, 3.0, 8
    run = strong_order(np.zeros((4000, 1)), lambda t, x: -theta * x, horizon=1.0, beta=beta, n_steps=4 * levels, n_levels=2, rng=8)
    assert run.step[1] == pytest.approx(h)
    # two half steps put (1 - theta h/2) dW_1 + dW_2 where the whole one puts dW_1 + dW_2
    fine, coarse, s = 1 - theta * h / 2, 1 - theta * h, np.zeros((2, 2))
    shrink = np.diag([fine**2, coarse])
    noise = h / beta * (np.outer([fine, 1], [fine, 1]) + np.ones((2, 2)))
    for _ in range(levels):
        s = shrink @ s @ shrink.T + noise
    exact = s[0, 0] + s[1, 1] - 2 * s[0, 1]
    assert run.error[1] ** 2 == pytest.approx(exact, rel=4 * np.sqrt(2 / 4000))
    assert run.error[0] ** 2 != pytest.approx(exact, rel=4 * np.sqrt(2 / 4000))


def test_particles_with_their_own_noise_are_the_coupled_system():
    """`particles.simulate` moves as X does when both get its keyed normals; so the coupling holds for it."""
    gas, seed = QuadraticGas(1.3, 0.8, 6.0, 7, 2), 11
    start = np.random.default_rng(9).normal(0, 0.5, (300, 7, 2))
    energy = Quadratic(1.3) + Pair(lambda r: 0.4 * r**2, lambda r: 0.8 * r, name="quadratic")
    run = simulate(start, energy, FullSpace(2), Langevin(0.02, 6.0), n_steps=25, save_every=25, rng=seed)
    noise = [random.normal_like((seed, 0, step), start) for step in range(25)]
    *_, x = euler(start, lambda t, x: gas.drift(x), noise, 0.02, 6.0)
    np.testing.assert_allclose(run["omega"].values[:, -1], x, atol=1e-12)
    *_, y = euler(start, lambda t, x: gas.limit_drift(t, x, 0.0), noise, 0.02, 6.0)
    distance = np.sum((run["omega"].values[:, -1] - y) ** 2, -1).mean(-1)
    error = distance.std(ddof=1) / np.sqrt(300)
    assert abs(distance.mean() - euler_coupling_distance(gas, 0.02, 25, 0.25)) < 4 * error
    assert abs(distance.mean() - 0.5 * euler_coupling_distance(gas, 0.02, 25, 0.25)) > 4 * error


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: synchronous_coupling(np.ones((3, 2)), np.sin, lambda t, x: x, step_size=0.1, beta=1.0, n_steps=2, rng=0), "start must"),
        (lambda: synchronous_coupling(np.ones((1, 3, 2)), np.sin, lambda t, x: x, step_size=0.1, beta=1.0, n_steps=2, rng=0), "two chains"),
        (lambda: synchronous_coupling(np.ones((2, 3, 1)), np.sum, lambda t, x: x, step_size=0.1, beta=1.0, n_steps=2, rng=0), "drift and"),
        (lambda: next(euler([1.0], np.sin, [[1.0]], -0.1, 1.0)), "step_size must"),
        (lambda: next(euler([1.0], np.sin, [[1.0]], 0.1, 0.0)), "beta must"),
        (lambda: list(euler([1.0], lambda t, x: x, [[1.0, 2.0]], 0.1, 1.0)), "drift and noise must"),
        (lambda: strong_order(np.ones(9), lambda t, x: x, horizon=1, beta=1.0, n_steps=24, rng=0), "multiple of 16"),
        (lambda: density_drift([0, 1], [0, 1.0], np.ones((2, 3)), np.sin, np.sin), "rho must have shape"),
        (lambda: density_drift([0, 1], [0, 1.0, 3.0], np.ones((2, 3)), np.sin, np.sin), "equal steps"),
        (lambda: density_drift([0, 1], [0, 1.0, 2.0], -np.ones((2, 3)), np.sin, np.sin), "at least 0"),
        (lambda: density_drift([0, 1], [0, 1.0, 2.0], np.ones((2, 3)), np.sin, np.sin)(2.0, np.ones(1)), "t must lie"),
        (lambda: density_drift([0, 1], [0, 1.0, 2.0], np.ones((2, 3)), np.sin, np.sin)(0.5, np.full(1, 3.0)), "positions must lie"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_numbers_are_no_ensembles_and_text_is_no_temperature():
    with pytest.raises(ValueError, match="start must have shape"):
        strong_order(1.0, lambda t, x: -x, horizon=1.0, beta=1.0, n_steps=32, rng=0)
    with pytest.raises(ValueError, match="beta must be a real number, got 'a'"):
        next(euler([1.0], lambda t, x: -x, [np.ones(1)], 0.1, "a"))
