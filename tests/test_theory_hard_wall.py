"""Closed forms behind a hard wall: quoted values, limits in s, the interval, and what raises."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import gamma

from theory.equilibrium import RieszBall, TrappedSphere, quadratic_trap
from theory.equilibrium.walls import Arcsine, WallBall, WallSphere, hard_wall, interval_wall


def test_quoted_potentials():
    assert [hard_wall(1, 1, d, s).multiplier for d, s in ((1, 0.5), (2, 1), (3, 2))] == pytest.approx(
        [1.8540746773, np.pi / 2, 2], abs=5e-11
    )
    assert [hard_wall(1, 1, d, s).multiplier for d, s in ((3, 1), (4, 2), (3, 0.5))] == pytest.approx([1, 1, 0.9428090416], abs=5e-11)
    assert hard_wall(1, 1, 3, 0).multiplier == pytest.approx(0.5 - np.log(2), rel=1e-13)
    assert hard_wall(1.4, 0.7, 1, 0).energy == pytest.approx(0.35 * np.log(2 / 1.4), rel=1e-13)
    assert hard_wall(1.4, 0.7, 2, 0).energy == pytest.approx(-0.35 * np.log(1.4), rel=1e-13)
    assert hard_wall(1.4, 0.7, 1, -1.5).energy == pytest.approx(-0.35 * 2.8**1.5 / 2, rel=1e-13)


@pytest.mark.parametrize(("dim", "s"), [(1, 0.3), (1, -0.7), (2, 0.4), (3, 1.2), (4, 2.9), (7, 5.5)])
@pytest.mark.parametrize("radius", [0.6, 1.7])
def test_ball_constant_in_gamma_functions(dim, s, radius):
    value = np.sign(s) * radius**-s * gamma((dim - s) / 2) * gamma(1 + s / 2) / gamma(dim / 2)
    assert hard_wall(radius, 0.7, dim, s).multiplier == pytest.approx(0.7 * value, rel=1e-12)


@pytest.mark.parametrize(("dim", "s"), [(1, -1.2), (2, -0.5), (3, 0.7), (4, 1.3), (4, 2.0), (6, -1.7), (9, 3.1)])
def test_sphere_constant_in_gamma_functions(dim, s):
    value = 2.0 ** (dim - 2 - s) * gamma(dim / 2) * gamma((dim - 1 - s) / 2) / (np.sqrt(np.pi) * gamma(dim - 1 - s / 2))
    if dim == 1:
        value = 2.0**-s / 2
    law = hard_wall(1.7, 0.7, dim, s)
    assert isinstance(law, WallSphere)
    assert law.multiplier == pytest.approx(0.7 * np.sign(s) * 1.7**-s * value, rel=1e-12)


@pytest.mark.parametrize("dim", [1, 2, 3, 4, 6])
def test_the_log_is_the_derivative_in_s(dim):
    """(|x|^-s - 1)/s tends to -log|x|: the kernels h_s = (g_s - sign s)/|s| meet at 0 from both sides."""
    step = 1e-4
    above, below = hard_wall(1.3, 1.0, dim, step).multiplier, hard_wall(1.3, 1.0, dim, -step).multiplier
    assert (above + below) / (2 * step) == pytest.approx(hard_wall(1.3, 1.0, dim, 0).multiplier, abs=1e-6)


@pytest.mark.parametrize("dim", [1, 2, 3, 5])
def test_the_ball_meets_the_sphere_at_the_coulomb_exponent(dim):
    inside, on_wall = hard_wall(1.3, 0.7, dim, dim - 2 + 1e-7), hard_wall(1.3, 0.7, dim, dim - 2)
    assert isinstance(inside, WallBall)
    assert isinstance(on_wall, WallSphere)
    expected = on_wall.multiplier * (1 if dim != 2 else 0) + (1e7 * 0.7e-7 - 0.7 * np.log(1.3) if dim == 2 else 0)
    if dim == 2:  # g_s = 1 - s log r + ..., the 1 leads
        assert (inside.multiplier - 0.7) / 1e-7 == pytest.approx(-0.7 * np.log(1.3), abs=1e-5)
    else:
        assert inside.multiplier == pytest.approx(expected, rel=1e-5)
    assert inside.moment(2) == pytest.approx(1.3**2, rel=1e-6)


def test_the_walls_density_is_least_in_the_middle_and_infinite_at_the_edge():
    law = WallBall(1.3, 0.7, 2, 1.2)
    r = np.array([0.0, 0.5, 1.2, 1.3, 1.31])
    rho = law.density(np.c_[r, 0 * r])
    assert (np.diff(rho[:4]) > 0).all()
    assert rho[3:].tolist() == [np.inf, 0.0]


@pytest.mark.parametrize("s", [-1.4, -0.3, 0.0, 0.6])
def test_an_interval_is_the_ball_about_its_centre(s):
    law, moved = hard_wall(1.5, 0.7, 1, s), interval_wall(1.0, 4.0, 0.7, s)
    x = np.array([1.2, 2.5, 3.7])
    np.testing.assert_allclose(moved.cdf(x), law.cdf(x - 2.5))
    np.testing.assert_allclose(moved.potential(x), law.potential(x - 2.5))
    assert moved.energy == law.energy
    assert ((moved.sample(100, 1) >= 1 - 1e-12) & (moved.sample(100, 1) <= 4 + 1e-12)).all()


def test_half_of_the_mass_on_each_end():
    law = hard_wall(1.5, 0.7, 1, -1.0)
    np.testing.assert_allclose(law.cdf([-1.6, -1.5, 0.0, 1.5]), [0, 0.5, 0.5, 1])
    np.testing.assert_allclose(law.quantile([0.2, 0.5, 0.9]), [-1.5, -1.5, 1.5])
    assert abs(law.sample(10_000, 1).mean()) < 4.5 * 0.015  # false alarm 7e-6


def test_one_entry_for_the_quadratic_trap():
    assert quadratic_trap(1.3, 0.7, 3, 0.5) == RieszBall(1.3, 0.7, 3, 0.5)
    assert quadratic_trap(1.3, 0.7, 5, 1.0) == TrappedSphere(1.3, 0.7, 5, 1.0)
    near, at = quadratic_trap(1.3, 0.7, 5, 1 + 1e-7), quadratic_trap(1.3, 0.7, 5, 1.0)
    assert (near.radius, near.energy) == pytest.approx((at.radius, at.energy), rel=1e-6)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: hard_wall(1, 1, 2, 2), "got 2.0: for s >= dim every measure has infinite energy"),
        (lambda: hard_wall(1, 1, 3, -2), "got -2.0: for s <= -2 the energy is not strictly convex"),
        (lambda: hard_wall(1, 1, 0, -1), "dim must be"),
        (lambda: hard_wall(-1, 1, 2, 0), "radius must be"),
        (lambda: hard_wall(1, 0, 2, 0), "strength must be"),
        (lambda: WallBall(1, 1, 3, 0.5), r"s must lie in \(1, 3\) for WallBall in dim 3, got 0.5: see hard_wall"),
        (lambda: WallSphere(1, 1, 3, 1.5), r"s must lie in \(-2, 1\) for WallSphere"),
        (lambda: WallBall(1, 1, 1, 1), "infinite energy"),
        (lambda: Arcsine(1, 1, 1, 0.5), "the arcsine law has dim = 1 and s = 0"),
        (lambda: interval_wall(1, 1, 1, 0), "low must be below high"),
        (lambda: quadratic_trap(1, 1, 3, 3), "s must lie strictly between -2 and 3"),
        (lambda: TrappedSphere(1, 1, 4, 0.5), r"s must lie in \(-2, 0\]"),
        (lambda: hard_wall(1, 1, 2, 1).moment(-2), "order must exceed -2, got -2"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
