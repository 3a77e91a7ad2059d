"""The quadratic gas against the full matrix equations, quadrature, plain simulation and `particles`."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad, solve_ivp
from scipy.linalg import solve_continuous_lyapunov

from particles import FullSpace, Langevin, Pair, Quadratic, simulate
from theory.convergence import fit_rate
from theory.dynamics.quadratic_gas import Modes, QuadraticGas, relax

GASES = [QuadraticGas(1.3, 0.8, 6.0, 5), QuadraticGas(0.4, 2.0, 1.5, 9, 2), QuadraticGas(2.0, -0.5, 3.0, 4, 3)]


def stiffness(gas):
    """Second derivatives of the energy of one coordinate, summed pair by pair, (n, n)."""
    matrix = gas.kappa * np.eye(gas.n)
    for k in range(gas.n):
        for m in range(gas.n):
            if k != m:
                matrix[k, k] += gas.attraction / (gas.n - 1)
                matrix[k, m] -= gas.attraction / (gas.n - 1)
    return matrix


def covariance_in_time(drift, noise, start, t):
    """S(t) of dx = -drift x dt + dB with covariance rate `noise`, by a Runge-Kutta method."""
    n = len(drift)

    def slope(_, s):
        s = s.reshape(n, n)
        return (noise - drift @ s - s @ drift.T).ravel()

    return solve_ivp(slope, (0, t), start.ravel(), method="DOP853", rtol=1e-12, atol=1e-14).y[:, -1].reshape(n, n)


@pytest.mark.parametrize("gas", GASES)
def test_covariance_in_time_and_at_rest(gas):
    k, noise = stiffness(gas), 2 / gas.beta * np.eye(gas.n)
    exact = covariance_in_time(k, noise, 0.7 * np.eye(gas.n), 0.6)
    assert gas.covariance(0.6, start=0.7) == pytest.approx(exact, rel=1e-9)
    assert gas.covariance() == pytest.approx(solve_continuous_lyapunov(k, noise), rel=1e-12)
    assert gas.covariance() == pytest.approx(np.linalg.inv(k) / gas.beta, rel=1e-12)
    modes = gas.modes(0.6, start=0.7)
    assert (modes.variance(gas.n), modes.covariance(gas.n)) == pytest.approx((exact[0, 0], exact[0, 1]), rel=1e-9)
    assert gas.covariance(0.7, start=0.7) != pytest.approx(exact, rel=1e-3)  # negative control: another time


@pytest.mark.parametrize("gas", GASES)
def test_euler_steps_by_the_full_recursion(gas):
    step, k = 0.05, stiffness(gas)
    s, shrink = 0.7 * np.eye(gas.n), np.eye(gas.n) - step * k
    for n_steps in range(1, 2001):
        s = shrink @ s @ shrink.T + 2 * step / gas.beta * np.eye(gas.n)
        if n_steps == 7:
            modes = gas.euler_modes(step, 7, start=0.7)
            assert (modes.variance(gas.n), modes.covariance(gas.n)) == pytest.approx((s[0, 0], s[0, 1]), rel=1e-12)
    rest = gas.euler_modes(step)
    assert (rest.variance(gas.n), rest.covariance(gas.n)) == pytest.approx((s[0, 0], s[0, 1]), rel=1e-11)
    for mode, rate in zip(rest, gas.rates):
        assert mode == pytest.approx(1 / (gas.beta * rate * (1 - step * rate / 2)), rel=1e-12)
    assert gas.euler_modes(1e-7, 10_000_000, start=0.7) == pytest.approx(gas.modes(1.0, start=0.7), rel=1e-5)


def test_published_numbers():
    gas = QuadraticGas(1.3, 0.8, 6.0, 8)
    modes = gas.euler_modes(0.05)
    assert (modes.centre / 8, modes.deviation, modes.deviation * 7 / 8) == pytest.approx((0.016564, 0.079680, 0.069720), abs=5e-7)
    assert gas.chaos_bias() == pytest.approx(0.020166, abs=5e-7)
    assert QuadraticGas(1.3, 0.8, 6.0, 80).chaos_bias() == pytest.approx(0.018751, abs=5e-7)
    assert -gas.dissipation(0.7, 0.9) == pytest.approx(-4.1279642, abs=5e-8)


@pytest.mark.parametrize("gas", GASES)
@pytest.mark.parametrize("t", [0.3, np.inf])
def test_chaos_bias_is_the_difference_of_variances(gas, t):
    assert gas.chaos_bias(t, start=0.7) == pytest.approx(
        gas.n * (gas.covariance(t, start=0.7)[0, 0] - gas.limit_variance(t, start=0.7)), rel=1e-9
    )
    a, rate = gas.attraction, gas.kappa + gas.attraction
    limit = 1 / (gas.beta * gas.kappa) - 1 / (gas.beta * rate) - a / (gas.beta * rate**2)
    assert QuadraticGas(gas.kappa, a, gas.beta, 10**6).chaos_bias() == pytest.approx(limit, rel=1e-5)


def test_chaos_bias_keeps_its_digits_at_many_particles():
    kappa, a, beta, n, t, start = 1.3, 0.8, 6.0, 10**7, 0.4, 0.3
    with mpmath.workdps(50):
        rates = [mpmath.mpf(kappa), kappa + mpmath.mpf(a) * n / (n - 1), mpmath.mpf(kappa) + a]
        centre, deviation, limit = (start * mpmath.exp(-2 * r * t) + (1 - mpmath.exp(-2 * r * t)) / (beta * r) for r in rates)
        exact = float(n * (deviation - limit) + centre - deviation)
        ratio, rest = deviation / limit, (centre - deviation) / n / limit
        relative = float(((ratio - 1 - mpmath.log(ratio)) + (ratio + 2 * rest - 1 - mpmath.log(ratio + 2 * rest))) / 2)
    gas = QuadraticGas(kappa, a, beta, n)
    assert gas.chaos_bias(t, start=start) == pytest.approx(exact, rel=1e-9)
    assert gas.marginal_entropy(2, t, start=start) == pytest.approx(relative, rel=1e-6)


@pytest.mark.parametrize("gas", GASES)
@pytest.mark.parametrize("t", [0.3, np.inf])
def test_marginal_entropy_is_that_of_the_gaussians(gas, t):
    for k in (1, 2, gas.n):
        sigma, v = gas.covariance(t, start=0.7)[:k, :k], gas.limit_variance(t, start=0.7)
        exact = gas.dim / 2 * (np.trace(sigma) / v - k - np.linalg.slogdet(sigma / v)[1])
        assert gas.marginal_entropy(k, t, start=0.7) == pytest.approx(exact, rel=1e-7)


def test_marginal_entropy_falls_as_the_square_of_k_over_n():
    """Lacker's rate; the subadditive bound k/n of the entropy of all particles would give -1."""
    n = 2.0 ** np.arange(6, 13)
    for k, t in ((1, np.inf), (2, 0.5), (5, np.inf)):
        slope = fit_rate(n, [QuadraticGas(1.3, 0.8, 6.0, int(m)).marginal_entropy(k, t, start=0.2) for m in n]).slope
        assert slope == pytest.approx(-2, abs=0.03)
        assert slope != pytest.approx(-1, abs=0.5)
    many = QuadraticGas(1.3, 0.8, 6.0, 10**6)
    k = np.array([10, 30, 100, 300])
    assert fit_rate(k, [many.marginal_entropy(int(m)) for m in k]).slope == pytest.approx(2, abs=0.05)


@pytest.mark.parametrize("gas", GASES)
def test_partition_function_by_the_determinant(gas):
    sign, logdet = np.linalg.slogdet(gas.beta * stiffness(gas))
    assert sign == 1
    assert gas.log_partition() == pytest.approx(gas.dim / 2 * (gas.n * np.log(2 * np.pi) - logdet), rel=1e-12)


def test_partition_function_of_two_by_quadrature():
    gas = QuadraticGas(1.3, 0.8, 2.0, 2)

    def inner(x):
        return quad(lambda y: np.exp(-2.0 * (0.65 * (x * x + y * y) + 0.4 * (x - y) ** 2)), -9, 9, epsabs=1e-13)[0]

    assert gas.log_partition() == pytest.approx(np.log(quad(inner, -9, 9, epsabs=1e-12)[0]), abs=1e-9)


@pytest.mark.parametrize("gas", GASES)
def test_free_energy_of_a_gaussian_by_quadrature_and_its_slope(gas):
    m, v = 0.4, 0.5
    sigma = np.sqrt(v)

    def rho(x):
        return np.exp(-((x - m) ** 2) / (2 * v)) / (sigma * np.sqrt(2 * np.pi))

    def integrand(x):  # a coordinate; int (a/2)(x - y)^2 rho(y) dy = (a/2)((x - m)^2 + v)
        return rho(x) * (gas.kappa / 2 * x**2 + gas.attraction / 4 * ((x - m) ** 2 + v) + np.log(rho(x)) / gas.beta)

    assert gas.free_energy(np.full(gas.dim, m), v) == pytest.approx(
        gas.dim * quad(integrand, m - 12 * sigma, m + 12 * sigma, epsabs=1e-13)[0], rel=1e-10
    )
    t, mean = np.array([0.3 - 1e-4, 0.3, 0.3 + 1e-4]), np.full(gas.dim, m)
    before, here, after = ((gas.mean(s, mean), gas.limit_variance(s, start=v)) for s in t)
    assert (gas.free_energy(*after) - gas.free_energy(*before)) / 2e-4 == pytest.approx(-gas.dissipation(*here), rel=1e-6)
    rest = gas.limit_variance()
    assert gas.dissipation(np.zeros(gas.dim), rest) == pytest.approx(0, abs=1e-20)
    # - log Z/(n beta) tends to the least free energy
    many = QuadraticGas(gas.kappa, gas.attraction, gas.beta, 10**5, gas.dim)
    assert -many.log_partition() / (gas.beta * many.n) == pytest.approx(gas.free_energy(np.zeros(gas.dim), rest), abs=1e-4)


@pytest.mark.parametrize("gas", GASES)
def test_coupling_distance_by_the_covariance_of_all_coordinates(gas):
    """X of n particles, Y of the limit, shared noise: 2 n linear equations."""
    n, eye = gas.n, np.eye(gas.n)
    drift = np.block([[stiffness(gas), 0 * eye], [0 * eye, gas.limit_rate * eye]])
    shared = np.ones((2, 2))
    s = covariance_in_time(drift, np.kron(shared, 2 / gas.beta * eye), np.kron(shared, 0.7 * eye), 0.8)
    exact = gas.dim * np.trace(s[:n, :n] + s[n:, n:] - s[:n, n:] - s[n:, :n]) / n
    assert gas.coupling_distance(0.8, start=0.7) == pytest.approx(exact, rel=1e-8)
    assert gas.coupling_distance(0.8, start=0.8) != pytest.approx(exact, rel=1e-3)
    assert gas.coupling_distance(0.0, start=0.7) == 0


def test_coupling_distance_falls_as_1_over_n():
    n = 2.0 ** np.arange(4, 11)
    assert fit_rate(n, [QuadraticGas(1.3, 0.8, 6.0, int(m)).coupling_distance(1.0, start=0.2) for m in n]).slope == pytest.approx(
        -1, abs=0.02
    )


def test_draws_have_the_covariance():
    """z-tests at 4 of the variance, of the covariance of two particles and of unlike coordinates: false alarm 6e-5 each."""
    gas = QuadraticGas(1.3, 2.0, 6.0, 4, 2)
    x = gas.sample(8000, 0, 0.5, start=0.3)
    exact = gas.covariance(0.5, start=0.3)
    for product, value in ((x[:, 0, 0] ** 2, exact[0, 0]), (x[:, 1, 1] * x[:, 2, 1], exact[0, 1]), (x[:, 1, 0] * x[:, 1, 1], 0.0)):
        assert abs(product.mean() - value) < 4 * product.std() / np.sqrt(8000)
    square = x[:, 0, 0] ** 2
    assert abs(square.mean() - gas.covariance(0.7, start=0.3)[0, 0]) > 4 * square.std() / np.sqrt(8000)  # negative control: another time


@pytest.mark.parametrize("gas", [QuadraticGas(1.3, 0.8, 6.0, 6, 2), QuadraticGas(2.0, -0.5, 3.0, 4)])
def test_particles_move_by_the_euler_law(gas):
    """`particles.simulate` from independent starts: mode variances after 15 steps, z-tests at 4 over 2000 chains: false alarm 6e-5 each."""
    start = np.random.default_rng(0).normal(0, np.sqrt(0.3), (2000, gas.n, gas.dim))
    pair = Pair(lambda r: gas.attraction / 2 * r**2, lambda r: gas.attraction * r, name="quadratic")
    run = simulate(start, Quadratic(gas.kappa) + pair, FullSpace(gas.dim), Langevin(0.05, gas.beta), n_steps=15, save_every=15, rng=1)
    x = run["omega"].values[:, -1]
    draws = Modes(gas.n * x.mean(1) ** 2, x.var(1, ddof=1))

    def z(modes):
        return [(d.mean() - m) / (d.std() / np.sqrt(d.size)) for d, m in zip(draws, modes)]

    assert np.abs(z(gas.euler_modes(0.05, 15, start=0.3))).max() < 4
    wrong = QuadraticGas(gas.kappa, 2 * gas.attraction, gas.beta, gas.n, gas.dim)
    assert abs(z(wrong.euler_modes(0.05, 15, start=0.3))[1]) > 4  # negative control: another attraction
    assert gas.drift(start) == pytest.approx(-(Quadratic(gas.kappa) + pair).gradient(start), rel=1e-10, abs=1e-12)


def test_drift_of_the_limit():
    gas = QuadraticGas(1.3, 0.8, 6.0, 3, 2)
    x, m = np.random.default_rng(0).normal(size=(3, 2)), np.array([0.5, -1.0])
    assert gas.limit_drift(0.4, x, m) == pytest.approx(-1.3 * x - 0.8 * (x - m * np.exp(-0.52)), rel=1e-12)


def test_rates_of_every_sign():
    for rate in (2.0, 0.0, -0.7):
        exact = solve_ivp(lambda t, v, rate=rate: -2 * rate * v + 2 / 3.0, (0, 1.3), [0.4], rtol=1e-11, atol=1e-13).y[0, -1]
        assert relax(rate, 1.3, 0.4, 3.0) == pytest.approx(exact, rel=1e-9)
    assert relax(0.9, 1.3, 0.4, np.inf) == pytest.approx(0.4 * np.exp(-2.34))
    free = QuadraticGas(0.0, 0.8, 2.0, 5)
    assert free.mean(np.inf, [0.3]) == pytest.approx([0.3])
    assert QuadraticGas(1.0, 0.8, 2.0, 5).mean(np.inf, [0.3]) == pytest.approx([0.0])
    assert free.modes(2.0, start=0.1).centre == pytest.approx(0.1 + 2.0)
    assert free.euler_modes(0.1, 20, start=0.1).centre == pytest.approx(0.1 + 2.0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: QuadraticGas(-1.0, 0.8, 6.0, 5), "kappa must be"),
        (lambda: QuadraticGas(1.0, np.inf, 6.0, 5), "attraction must be"),
        (lambda: QuadraticGas(1.0, 0.8, 0.0, 5), "beta must be"),
        (lambda: QuadraticGas(1.0, 0.8, 6.0, 1), "n must be"),
        (lambda: QuadraticGas(1.0, 0.8, 6.0, 5, 0), "dim must be"),
        (lambda: QuadraticGas(0.0, 0.8, 6.0, 5).modes(), "stationary law"),
        (lambda: QuadraticGas(1.0, -0.9, 6.0, 5).log_partition(), "stationary law"),
        (lambda: QuadraticGas(1.0, 1.0, 6.0, 5).euler_modes(1.0), "stationary law needs 0 < step_size rate < 2"),
        (lambda: QuadraticGas(1.0, 1.0, 6.0, 5).modes(-1.0), "t must be"),
        (lambda: QuadraticGas(1.0, 1.0, 6.0, 5).modes(1.0, start=-1.0), "start must be"),
        (lambda: QuadraticGas(1.0, 1.0, 6.0, 5).marginal_entropy(6), "k must be at most"),
        (lambda: QuadraticGas(1.0, 1.0, 6.0, 5).marginal_entropy(1, 0.0), "must have a density"),
        (lambda: QuadraticGas(1.0, 1.0, 6.0, 5).free_energy(0.0, 0.0), "variance must be"),
        (lambda: QuadraticGas(1.0, 1.0, 6.0, 5, 2).free_energy([0.0], 1.0), "mean must have shape"),
        (lambda: QuadraticGas(1.0, 1.0, 6.0, 5).drift(np.ones((4, 1))), "x must have shape"),
        (lambda: QuadraticGas(1.0, 1.0, 6.0, 5).coupling_distance(np.inf, start=1.0), "t must be finite"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("step", [1e-16, 1e-12, 1e-6])
def test_tiny_euler_steps_tend_to_the_exact_law(step):
    gas = QuadraticGas(1.0, 2.0, 1.0, 5)
    assert gas.euler_modes(step) == pytest.approx(gas.modes(), rel=2 * step + 1e-15)
    n = round(0.3 / step)
    assert gas.euler_modes(step, n, start=0.4) == pytest.approx(gas.modes(0.3, start=0.4), rel=5 * step + 1e-13)


@pytest.mark.parametrize("step", [0.5, 1.0, 1.5, 2.0, 2.5])
def test_euler_modes_at_every_stability(step):
    v = 0.4
    for _ in range(7):
        v = (1 - step) ** 2 * v + 2 * step
    assert QuadraticGas(1.0, 0.0, 1.0, 3).euler_modes(step, 7, start=0.4).centre == pytest.approx(v, rel=1e-13)
    assert QuadraticGas(1.0, 0.0, 1.0, 3).euler_modes(step, 0, start=0.4).centre == 0.4
