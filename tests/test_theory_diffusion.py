"""Free particles: the Neumann heat kernel against theta functions and `particles`, the Ornstein-Uhlenbeck law against its equation."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad, solve_ivp
from scipy.stats import kstest, norm

from particles import Box, FullSpace, Langevin, Quadratic, simulate
from theory.dynamics.diffusion import ornstein_uhlenbeck, reflected_cdf, reflected_density


@pytest.mark.parametrize("t", [0.003, 0.4999, 0.5001, 4.0])
@pytest.mark.parametrize(("length", "beta"), [(1.0, 2.0), (1.7, 0.8)])
def test_reflected_density_is_a_theta_function(t, length, beta):
    """(1/(4 L)) [theta_3(pi (x - y)/(4 L)) + theta_3(pi (x + y + 2 L)/(4 L))] with nome exp(-(pi/(2 L))^2 t/beta)."""
    t, y = t * length**2 * beta / 2, 0.3 * length
    with mpmath.workdps(30):
        nome = mpmath.exp(-((mpmath.pi / (2 * length)) ** 2) * t / beta)
        for x in (-length, -0.4, 0.31, 0.9 * length):
            angles = ((x - y) * mpmath.pi / (4 * length), (x + y + 2 * length) * mpmath.pi / (4 * length))
            exact = float(sum(mpmath.jtheta(3, angle, nome) for angle in angles) / (4 * length))
            assert reflected_density(x, t, y, length, beta) == pytest.approx(exact, rel=1e-11, abs=1e-15)
            assert reflected_cdf(x, t, y, length, beta) == pytest.approx(
                quad(reflected_density, -length, x, args=(t, y, length, beta), points=[y] if x > y else None, epsabs=1e-13)[0], abs=1e-10
            )
    assert reflected_cdf(np.array([-length, length]), t, y, length, beta) == pytest.approx([0, 1], abs=1e-14)


def test_reflected_density_obeys_the_semigroup_and_forgets():
    x = np.linspace(-1, 1, 5)
    for at in x:
        composed = quad(lambda z, at=at: reflected_density(z, 0.2, 0.4, 1.0, 1.5) * reflected_density(at, 0.3, z, 1.0, 1.5), -1, 1)[0]
        assert composed == pytest.approx(reflected_density(at, 0.5, 0.4, 1.0, 1.5), rel=1e-8)
    assert reflected_density(x, 50.0, 0.4, 1.0, 1.5) == pytest.approx(np.full(5, 0.5), rel=1e-12)


def test_particles_between_reflecting_walls():
    """Folded steps of free diffusion are exact in law; Kolmogorov-Smirnov at 1e-4 for 20000 particles, and twice the beta is rejected."""
    run = simulate(
        np.full((20_000, 1), 0.35),
        Quadratic(0.0),
        Box(-0.8, 0.8),
        Langevin(0.02, 1.7, scheme="reflected"),
        n_steps=10,
        save_every=10,
        rng=0,
    )
    x = run["omega"].values[0, -1, :, 0]
    assert kstest(x, lambda at: reflected_cdf(at, 0.2, 0.35, 0.8, 1.7)).pvalue > 1e-4
    assert kstest(x, lambda at: reflected_cdf(at, 0.2, 0.35, 0.8, 3.4)).pvalue < 1e-4


@pytest.mark.parametrize("kappa", [1.3, 0.0, -0.6])
def test_ornstein_uhlenbeck_by_its_moment_equations(kappa):
    exact = solve_ivp(lambda t, m: [-kappa * m[0], -2 * kappa * m[1] + 2 / 2.5], (0, 0.9), [1.4, 0.0], rtol=1e-11, atol=1e-13).y[:, -1]
    assert np.array(ornstein_uhlenbeck(0.9, 1.4, kappa, 2.5)) == pytest.approx(exact, rel=1e-9)
    mean, variance = ornstein_uhlenbeck(np.array([0.0, 0.9]), 1.4, kappa, np.inf)
    assert mean == pytest.approx(1.4 * np.exp(-kappa * np.array([0.0, 0.9])))
    assert (variance == 0).all()


def test_particles_in_a_trap():
    """Kolmogorov-Smirnov at 1e-4; the error of the Euler step, 1 % of the variance, is below what 8000 particles see."""
    run = simulate(np.full((8000, 1), 1.5), Quadratic(1.3), FullSpace(1), Langevin(0.01, 2.0), n_steps=50, save_every=50, rng=1)
    x = run["omega"].values[0, -1, :, 0]
    mean, variance = ornstein_uhlenbeck(0.5, 1.5, 1.3, 2.0)
    assert kstest(x, norm(mean, np.sqrt(variance)).cdf).pvalue > 1e-4
    assert kstest(x, norm(mean, np.sqrt(1.3 * variance)).cdf).pvalue < 1e-4


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: reflected_density(1.1, 0.1, 0.0, 1.0, 1.0), "x and start must lie"),
        (lambda: reflected_cdf(0.1, 0.1, -2.0, 1.0, 1.0), "x and start must lie"),
        (lambda: reflected_density(0.1, 0.0, 0.0, 1.0, 1.0), "t must be"),
        (lambda: reflected_density(0.1, 1.0, 0.0, 1.0, np.inf), "beta must be"),
        (lambda: ornstein_uhlenbeck(-1.0, 0.0, 1.0, 1.0), "t must be at least 0"),
        (lambda: ornstein_uhlenbeck(1.0, 0.0, np.nan, 1.0), "kappa must be finite"),
        (lambda: ornstein_uhlenbeck(1.0, 0.0, 1.0, 0.0), "beta must be positive"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
