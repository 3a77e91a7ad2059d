"""Equilibria against their Euler-Lagrange equations, quadrature and exact zeros."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import kstest

from theory.equilibrium import CoulombBall, GaussWigner, RieszBall, Semicircle
from theory.ground_states import hermite_energy, hermite_ground_state
from theory.mean_field import MeanField

BALLS = [Semicircle(1.3, 0.7), CoulombBall(0.8, 1.5, 1), CoulombBall(2.0, 0.4, 2), CoulombBall(1.3, 0.7, 3), CoulombBall(1.0, 1.0, 5)]
BALLS += [RieszBall(1.3, 0.7, 1, 0.5), RieszBall(0.9, 2.0, 1, -0.5), RieszBall(1.3, 0.7, 2, 1.0), RieszBall(1.0, 1.0, 3, 2.0)]


@pytest.mark.parametrize("n", [2, 5, 23, 64])
@pytest.mark.parametrize(("kappa", "strength"), [(1.3, 0.7), (0.4, 2.5)])
def test_hermite_ground_state_is_an_exact_minimum(n, kappa, strength):
    x = hermite_ground_state(n, kappa, strength)
    assert x.shape == (n, 1)
    x = x[:, 0]
    gap = x[:, None] - x + np.diag(np.full(n, np.inf))
    assert np.abs(kappa * x - strength / (n - 1) * np.sum(1 / gap, 1)).max() < 1e-12
    assert np.mean(x**2) == pytest.approx(strength / (2 * kappa), rel=1e-13)
    np.fill_diagonal(gap, 1.0)
    energy = kappa / 2 * np.mean(x**2) - strength / (2 * n * (n - 1)) * np.sum(np.log(np.abs(gap)))
    assert energy == pytest.approx(hermite_energy(n, kappa, strength), rel=1e-12)


@pytest.mark.parametrize("n", [5, 23, 64])
def test_hermite_zeros_to_1e_12(n):
    x = np.sort(hermite_ground_state(n, 1.3, 0.7)[:, 0])
    with mpmath.workdps(60):  # Newton from the double-precision zeros, in 60 digits
        scale = mpmath.sqrt(mpmath.mpf("0.7") / (mpmath.mpf("1.3") * (n - 1)))
        exact = []
        for h in x / float(scale):
            z = mpmath.mpf(h)
            for _ in range(4):
                z -= mpmath.hermite(n, z) / (2 * n * mpmath.hermite(n - 1, z))
            exact.append(float(z * scale))
    assert np.abs(x - exact).max() < 1e-12
    assert len(set(np.round(exact, 6))) == n


def test_quoted_ground_state_energies():
    assert [hermite_energy(n, 1.3, 0.7) for n in (5, 16, 64)] == pytest.approx([0.3274304122, 0.4212782520, 0.4676089607], abs=5e-11)
    assert hermite_energy(4000, 1.3, 0.7) == pytest.approx(Semicircle(1.3, 0.7).energy, abs=1e-3)
    assert hermite_ground_state(1, 1.3, 0.7) == pytest.approx(np.zeros((1, 1)))


def test_quoted_radii():
    assert Semicircle(1.3, 0.7).radius == pytest.approx(1.0377490433, abs=5e-11)
    assert Semicircle(1.3, 0.7).energy == pytest.approx(0.4921326181, abs=5e-11)
    radii = [RieszBall(1, 1, d, s).radius for d, s in ((1, 0.5), (1, -0.5), (3, 2.0), (2, 1.0))]
    assert radii == pytest.approx([1.3996353223, 0.7390989955, 1.5196713713, 1.3306700395], abs=1e-10)
    assert (CoulombBall(1, 1, 2).energy, CoulombBall(1, 1, 3).energy) == pytest.approx((3 / 8, 9 / 10))


def test_riesz_ball_reaches_the_log_and_coulomb_limits():
    assert RieszBall(1.3, 0.7 / 1e-7, 1, 1e-7).radius == pytest.approx(Semicircle(1.3, 0.7).radius, rel=1e-6)
    for dim in (3, 4):
        near = RieszBall(1.3, 0.7, dim, dim - 2 + 1e-9)
        assert near.radius == pytest.approx(CoulombBall(1.3, 0.7, dim).radius, rel=1e-7)
        assert near.energy == pytest.approx(CoulombBall(1.3, 0.7, dim).energy, rel=1e-7)


@pytest.mark.parametrize("ball", BALLS, ids=repr)
def test_density_cdf_and_second_moment_agree(ball):
    d, radius = ball.dim, ball.radius
    area = 2 * np.pi ** (d / 2) / float(mpmath.gamma(d / 2))

    def shell(r):
        return area * r ** (d - 1) * ball.density(np.r_[r, np.zeros(d - 1)][None])[0]

    def mass(r, power=0):  # r = radius sin(a): no singular edge
        return quad(lambda a: shell(radius * np.sin(a)) * (radius * np.sin(a)) ** power * radius * np.cos(a), 0, np.arcsin(r / radius))[0]

    assert mass(radius) == pytest.approx(1, rel=1e-7)
    assert mass(radius, 2) == pytest.approx(ball.second_moment, rel=1e-7)
    radial = (lambda r: ball.cdf(r) - ball.cdf(-r)) if isinstance(ball, Semicircle) else ball.radial_cdf
    assert [float(radial(f * radius)) for f in (0.2, 0.7, 2.0)] == pytest.approx([mass(0.2 * radius), mass(0.7 * radius), 1.0], rel=1e-7)
    assert ball.density(np.r_[1.01 * radius, np.zeros(d - 1)][None]) == 0


@pytest.mark.parametrize("ball", BALLS, ids=repr)
def test_samples_follow_the_radial_law(ball):
    x = ball.sample(4000, 5)
    r = np.linalg.norm(x, axis=1)
    assert x.shape == (4000, ball.dim)
    radial = (lambda r: 2 * ball.cdf(r) - 1) if isinstance(ball, Semicircle) else ball.radial_cdf
    # Kolmogorov-Smirnov at 1e-4, 9 laws: false alarm 1e-3; a radius 10 % off is rejected
    assert kstest(r, radial).pvalue > 1e-4
    assert kstest(r * 1.1, radial).pvalue < 1e-4
    assert np.abs(x.mean(0)).max() < 4.5 * ball.radius / np.sqrt(4000)


@pytest.mark.parametrize(
    ("ball", "g"),
    [
        (Semicircle(1.3, 0.7), lambda r: -np.log(r)),
        (CoulombBall(0.8, 0.5, 1), lambda r: -r),
        (RieszBall(1.0, 1.0, 1, 0.5), lambda r: r**-0.5),
        (RieszBall(0.9, 1.4, 1, -0.5), lambda r: -(r**0.5)),
        (RieszBall(1.3, 0.7, 1, -1.5 + 1), lambda r: -(r**0.5)),
    ],
    ids=lambda value: repr(value) if not callable(value) else "",
)
def test_euler_lagrange_and_energy_on_the_line(ball, g):
    wall = 1.25 * ball.radius
    field = MeanField(lambda x: ball.kappa * x**2 / 2, lambda r: ball.strength * g(r), 1e9, np.linspace(-wall, wall, 4001))
    cdf = ball.cdf if isinstance(ball, Semicircle) else (lambda x: 0.5 + 0.5 * np.sign(x) * ball.radial_cdf(np.abs(x)))
    rho = np.diff(cdf(field.edges)) / field.width
    potential = field.potential(rho)
    inside, outside = np.abs(field.x) < 0.97 * ball.radius, np.abs(field.x) > 1.02 * ball.radius
    assert np.ptp(potential[inside]) < 1e-3 * ball.radius**2
    assert potential[outside].min() > potential[inside].max()
    assert field.free_energy(rho) == pytest.approx(ball.energy, abs=2e-4)
    if ball.s and not isinstance(ball, CoulombBall):
        assert potential[inside].mean() == pytest.approx(ball.kappa * ball.dim * ball.radius**2 / (2 * ball.s), rel=1e-3)


@pytest.mark.parametrize("ball", [CoulombBall(1.3, 0.7, 3), RieszBall(1.3, 0.7, 2, 0.5), CoulombBall(0.6, 0.9, 2)], ids=repr)
def test_energy_by_sampled_pairs(ball):
    x, y = ball.sample(100_000, 1), ball.sample(100_000, 2)
    r = np.linalg.norm(x - y, axis=1)
    pair = -np.log(r) if ball.s == 0 else r**-ball.s
    draws = ball.kappa / 4 * np.sum(x**2 + y**2, 1) + ball.strength / 2 * pair
    error = draws.std() / np.sqrt(len(draws))
    # z-tests at 4: false alarm 2e-4 together; the energy without the factor 1/2 of the pairs is rejected
    assert abs(draws.mean() - ball.energy) < 4 * error
    assert abs(draws.mean() + ball.strength / 2 * pair.mean() - ball.energy) > 4 * error


def test_semicircle_quantile_inverts_the_cdf():
    law = Semicircle(0.8, 1.9)
    u = np.linspace(0.01, 0.99, 17)
    np.testing.assert_allclose(law.cdf(law.quantile(u)), u, rtol=1e-12)
    np.testing.assert_allclose(law.quantile([0, 1]), [-law.radius, law.radius])


@pytest.mark.parametrize("law", [GaussWigner(1.3, 0.7, 6.0), GaussWigner(0.6, 1.4, 1.5), GaussWigner(2.0, 0.0, 0.7)], ids=repr)
def test_gauss_wigner_moments(law):
    wall = 9 * np.sqrt(law.second_moment)
    x = np.linspace(-wall, wall, 301)  # the trapezoidal rule is spectrally accurate here
    rho, width = law.density(x), x[1] - x[0]
    moments = [width * np.sum(rho * x**k) for k in (0, 2, 4)]
    assert moments == pytest.approx([1, law.second_moment, law.fourth_moment], rel=1e-6)


def test_gauss_wigner_quoted_values_and_limits():
    law = GaussWigner(1.3, 0.7, 6.0)
    assert float(law.density(0.0)) == pytest.approx(0.5466290580, abs=5e-11)
    assert law.fourth_moment == pytest.approx(0.3668639, abs=5e-8)
    assert law.free_energy == pytest.approx(0.3538282997, abs=5e-11)
    assert float(GaussWigner(1.0, 1.0, 1.0).density(0.0)) == pytest.approx(0.3042971194, abs=5e-11)
    assert float(GaussWigner(1.0, 4.2, 1.0).density(0.0)) == pytest.approx(0.1957245995, abs=5e-11)
    assert float(GaussWigner(1.3, 0.0, 6.0).density(0.2)) == pytest.approx(np.sqrt(7.8 / (2 * np.pi)) * np.exp(-7.8 * 0.02), rel=1e-12)
    cold = GaussWigner(1.3, 0.7, 600.0)
    assert float(cold.density(0.3)) == pytest.approx(float(Semicircle(1.3, 0.7).density(0.3)), rel=2e-3)
    assert cold.free_energy == pytest.approx(Semicircle(1.3, 0.7).energy, abs=5e-3)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Semicircle(-1, 1), "kappa"),
        (lambda: Semicircle(1, 0), "strength"),
        (lambda: CoulombBall(1, 1, 0), "dim"),
        (lambda: RieszBall(1, 1, 5, 0.5), "s must lie strictly between 1 and 5"),
        (lambda: RieszBall(1, 1, 1, 1), "s must lie strictly between -2 and 1"),
        (lambda: RieszBall(1, 1, 1, "coulomb"), "s must be a real number, got 'coulomb'"),
        (lambda: Semicircle("2", 1), "kappa must be a real number, got '2'"),
        (lambda: Semicircle(1, 1).quantile([-0.1, 0.5]), "u must lie in"),
        (lambda: Semicircle(1, 1).sample(2, "seed"), "rng must be"),
        (lambda: GaussWigner(1, 1, float("inf")), "beta"),
        (lambda: hermite_ground_state(0, 1, 1), "n must be an integer"),
        (lambda: hermite_energy(1, 1, 1), "n must be an integer of at least 2"),
        (lambda: CoulombBall(1, 1, 2).density([1.0, 2.0, 3.0]), "x must have shape"),
        (lambda: CoulombBall(1, 1, 2).sample(2.5, 0), "n must be an integer"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        call()
