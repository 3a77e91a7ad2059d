"""Equilibria in a quadratic trap: published constants, limits in s, finite volumes; exact zeros of the finite gas."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy.special import gamma

from theory.equilibrium import CoulombBall, RieszBall, Semicircle
from theory.ground_states import hermite_energy, hermite_ground_state
from theory.mean_field import MeanField


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


@pytest.mark.parametrize(("kappa", "strength"), [(1.3, 0.7), (0.4, 2.9)])
def test_published_constants(kappa, strength):
    """Radius, Euler-Lagrange constant, amplitude of the density and energy as printed in the literature."""
    law = Semicircle(kappa, strength)
    assert law.radius == pytest.approx(np.sqrt(2 * strength / kappa), rel=1e-14)
    assert law.energy == pytest.approx(3 * strength / 8 - strength / 2 * np.log(law.radius / 2), rel=1e-13)
    law = CoulombBall(kappa, strength, 2)
    assert law.radius == pytest.approx(np.sqrt(strength / kappa), rel=1e-14)
    assert law.energy == pytest.approx(3 * strength / 8 - strength / 2 * np.log(law.radius), rel=1e-13)
    for dim, s in ((1, 0.4), (1, -1.0), (1, -1.7), (2, 1.5), (3, 1.0), (3, 2.2), (4, 0.7), (6, 4.0)):
        law = RieszBall(kappa, strength, dim, s)
        half, a = dim / 2, 1 - (dim - s) / 2
        assert law.multiplier == pytest.approx(kappa * dim * law.radius**2 / (2 * s), rel=1e-12)
        assert law.energy == pytest.approx(kappa * law.second_moment * (0.5 + 1 / s), rel=1e-12)
        amplitude = kappa * dim * gamma(half) / (2 * strength * abs(s) * np.pi**half * gamma(half - s / 2) * gamma(1 + a))
        assert law.density(np.zeros((1, dim)))[0] == pytest.approx(amplitude * law.radius ** (2 * a), rel=1e-12)
        if s == dim - 2:
            assert law.radius**dim == pytest.approx(strength * abs(s) / kappa, rel=1e-13)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_log_is_a_limit_of_powers_on_both_sides(dim):
    log, step = RieszBall(1.3, 0.7, dim, 0.0), 1e-6
    sides = [RieszBall(1.3, 0.7 / step, dim, s) for s in (step, -step)]
    assert [side.radius for side in sides] == pytest.approx([log.radius] * 2, rel=1e-5)
    # g_s = sign(s) + |s| g_0 + ...: the constant +-1 adds +-strength/2 to the energy
    energies = [side.energy - sign * 0.7 / step / 2 for side, sign in zip(sides, (1, -1), strict=True)]
    assert np.mean(energies) == pytest.approx(log.energy, abs=1e-6)


def test_riesz_ball_reaches_the_log_and_coulomb_limits():
    assert RieszBall(1.3, 0.7 / 1e-7, 1, 1e-7).radius == pytest.approx(Semicircle(1.3, 0.7).radius, rel=1e-6)
    for dim in (3, 4):
        near = RieszBall(1.3, 0.7, dim, dim - 2 + 1e-9)
        assert near.radius == pytest.approx(CoulombBall(1.3, 0.7, dim).radius, rel=1e-7)
        assert near.energy == pytest.approx(CoulombBall(1.3, 0.7, dim).energy, rel=1e-7)


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
    rho = np.diff(ball.cdf(field.edges)) / field.width
    potential = field.potential(rho)
    inside, outside = np.abs(field.x) < 0.97 * ball.radius, np.abs(field.x) > 1.02 * ball.radius
    assert np.ptp(potential[inside]) < 1e-3 * ball.radius**2
    assert potential[outside].min() > potential[inside].max()
    assert field.free_energy(rho) == pytest.approx(ball.energy, abs=2e-4)
    if ball.s and not isinstance(ball, CoulombBall):
        assert potential[inside].mean() == pytest.approx(ball.kappa * ball.dim * ball.radius**2 / (2 * ball.s), rel=1e-3)


def test_semicircle_quantile_inverts_the_cdf():
    law = Semicircle(0.8, 1.9)
    u = np.linspace(0.01, 0.99, 17)
    np.testing.assert_allclose(law.cdf(law.quantile(u)), u, rtol=1e-12)
    np.testing.assert_allclose(law.quantile([0, 1]), [-law.radius, law.radius])


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
        (lambda: hermite_ground_state(0, 1, 1), "n must be an integer"),
        (lambda: hermite_energy(1, 1, 1), "n must be an integer of at least 2"),
        (lambda: CoulombBall(1, 1, 2).density([1.0, 2.0, 3.0]), "x must have shape"),
        (lambda: CoulombBall(1, 1, 2).sample(2.5, 0), "n must be an integer"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        call()
