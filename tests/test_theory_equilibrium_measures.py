"""What every equilibrium measure must satisfy, closed form or numerical: mass, moments, distribution, Euler-Lagrange, energy, samples."""

from __future__ import annotations

from itertools import pairwise

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import gamma
from scipy.stats import kstest

from theory.equilibrium import CoulombBall, RieszBall, Semicircle, TrappedSphere
from theory.equilibrium.cut_laws import JacobiWeight, LaguerreWeight
from theory.equilibrium.even_weights import FreudWeight, QuarticWell
from theory.equilibrium.radial_law import Moved
from theory.equilibrium.radial_trap import CoulombEquilibrium, radial_equilibrium
from theory.equilibrium.riesz_means import mean_over_ball, mean_over_sphere, riesz
from theory.equilibrium.walls import Arcsine, WallBall, WallSphere


def trap(kappa):
    return lambda r: kappa * r**2 / 2


def free(r):
    return 0.0 * r


def cosh(r):
    return np.cosh(1.7 * r) + 0.2 * r**4


def hat(r):
    return 0.25 * r**4 - 0.8 * r**2


def hat_slope(r):
    return r**3 - 1.6 * r


RADIAL = {
    "semicircle": (Semicircle(1.3, 0.7), trap(1.3)),
    "Coulomb 1": (CoulombBall(0.8, 1.5, 1), trap(0.8)),
    "Coulomb 2": (CoulombBall(2.0, 0.4, 2), trap(2.0)),
    "Coulomb 5": (CoulombBall(1.1, 0.9, 5), trap(1.1)),
    "Riesz 1, 0.4": (RieszBall(1.3, 0.7, 1, 0.4), trap(1.3)),
    "Riesz 1, -1.6": (RieszBall(0.9, 2.0, 1, -1.6), trap(0.9)),
    "Riesz 2, 1.3": (RieszBall(1.3, 0.7, 2, 1.3), trap(1.3)),
    "Riesz 3, 2.4": (RieszBall(0.6, 1.0, 3, 2.4), trap(0.6)),
    "Riesz 3, log": (RieszBall(1.3, 0.7, 3, 0.0), trap(1.3)),
    "Riesz 3, -0.5": (RieszBall(0.8, 1.7, 3, -0.5), trap(0.8)),
    "Riesz 4, 0.6": (RieszBall(0.8, 1.7, 4, 0.6), trap(0.8)),
    "arcsine": (Arcsine(1.4, 0.7), free),
    "wall 1, 0.35": (WallBall(0.8, 0.7, 1, 0.35), free),
    "wall 1, -0.4": (WallBall(0.8, 0.7, 1, -0.4), free),
    "wall 2, 1.2": (WallBall(1.7, 0.7, 2, 1.2), free),
    "wall 3, 1.7": (WallBall(1.7, 1.2, 3, 1.7), free),
    "spectral 1, log": (radial_equilibrium(cosh, dim=1, s=0.0, strength=0.7), cosh),
    "spectral 1, -0.5": (radial_equilibrium(cosh, dim=1, s=-0.5, strength=0.7), cosh),
    "spectral 2, 1, wall": (radial_equilibrium(cosh, dim=2, s=1.0, strength=0.7, wall=0.4), cosh),
    "spectral 3, 1.6": (radial_equilibrium(cosh, dim=3, s=1.6, strength=1.3), cosh),
    "shell 1": (CoulombEquilibrium(hat, 0.9, 1, hat_slope), hat),
    "shell 2": (CoulombEquilibrium(hat, 0.9, 2, hat_slope), hat),
    "shell 3": (CoulombEquilibrium(hat, 0.9, 3, hat_slope), hat),
    "Freud 4": (FreudWeight(1.3, 0.7, 4.0), lambda r: 1.3 * r**4),
    "Freud 1.5": (FreudWeight(0.4, 1.1, 1.5), lambda r: 0.4 * r**1.5),
    "one well": (QuarticWell(-0.9, 0.7, 1.2), lambda r: -0.45 * r**2 + 0.3 * r**4),
    "two wells": (QuarticWell(-2.1, 0.7, 1.2), lambda r: -1.05 * r**2 + 0.3 * r**4),
}
SPHERES = {
    "trapped 4, log": (TrappedSphere(1.3, 0.7, 4, 0.0), trap(1.3)),
    "trapped 5, 0.7": (TrappedSphere(1.3, 0.7, 5, 0.7), trap(1.3)),
    "trapped 3, -1.5": (TrappedSphere(0.7, 1.7, 3, -1.5), trap(0.7)),
    "wall 2, log": (WallSphere(1.4, 0.7, 2, 0.0), free),
    "wall 3, log": (WallSphere(0.8, 0.7, 3, 0.0), free),
    "wall 3, 1": (WallSphere(1.4, 0.7, 3, 1.0), free),
    "wall 5, -0.7": (WallSphere(1.4, 0.7, 5, -0.7), free),
    "ends, -1.5": (WallSphere(1.4, 0.7, 1, -1.5), free),
}
CUTS = {
    "Laguerre": LaguerreWeight(1.3, 0.7, 0.4),
    "Laguerre at the wall": LaguerreWeight(0.5, 2.0),
    "Jacobi": JacobiWeight(0.7, 0.3, 0.5),
    "Jacobi at the wall": JacobiWeight(0.9, 0.0, 0.5),
}


def axis(law, r):
    """Points (n, dim) at distances r (n,)."""
    r = np.atleast_1d(r)
    return np.concatenate([r[:, None], np.zeros((r.size, law.dim - 1))], 1)


def tanh_sinh(cuts):
    """Nodes and weights on the intervals between the cuts, for integrands singular at any of them."""
    t = np.linspace(-3.4, 3.4, 239)
    node, weight = 1 / (1 + np.exp(-np.pi * np.sinh(t))), np.pi * np.cosh(t) * (t[1] - t[0])
    weight = weight * node / (1 + np.exp(np.pi * np.sinh(t)))
    x = np.concatenate([a + (b - a) * node for a, b in pairwise(cuts)])
    return x, np.concatenate([(b - a) * weight for a, b in pairwise(cuts)])


def mean(law, f, singular=None):
    """int f(|x|) dmu, f of an array, by the quantile: an edge at which the density is infinite costs no digits."""
    inside = singular is not None and getattr(law, "inner_radius", 0.0) < singular < law.radius
    u, weight = tanh_sinh([0.0, *([float(law.radial_cdf(singular))] if inside else []), 1.0])
    values = f(law.radial_quantile(u))
    return float(np.sum(weight[np.isfinite(values)] * values[np.isfinite(values)]))  # infinite within rounding of a singular radius


def mass(law, low, high):
    """Integral of the density over a shell inside the support."""
    r, weight = tanh_sinh([low, high])
    area = 2 * np.pi ** (law.dim / 2) / gamma(law.dim / 2)
    return float(np.sum(weight * area * r ** (law.dim - 1) * law.density(axis(law, r))))


def places(law):
    """Distances on the support, in the hole if there is one, and outside (not behind a wall)."""
    low, high = getattr(law, "inner_radius", 0.0), law.radius
    outside = [] if getattr(law, "wall", np.inf) == high else [1.03 * high, 1.7 * high]
    return np.array([low + f * (high - low) for f in (0.13, 0.71)]), np.array(([0.4 * low] if low else []) + outside)


def weight(y, dim, exponent):
    return (1 - y**2) ** exponent * y ** (dim - 1)


def mean_in_ball(y, dim, s, exponent):
    return weight(y, dim, exponent) * float(mean_over_sphere(1.3, 0.8 * y, dim, s))


@pytest.mark.parametrize(("dim", "s"), [(1, -1.3), (1, 0.6), (2, 0.8), (3, -0.4), (3, 1.7), (4, 0.0), (3, 0.0), (6, 3.3)])
def test_means_of_the_kernel_over_spheres_and_balls(dim, s):
    def angle_mean(r, rho):
        if dim == 1:
            return float(riesz(abs(r - rho), s) + riesz(r + rho, s)) / 2
        norm = quad(lambda a: np.sin(a) ** (dim - 2), 0, np.pi)[0]
        distance = lambda a: np.sqrt(r**2 + rho**2 - 2 * r * rho * np.cos(a))  # noqa: E731
        return quad(lambda a: float(riesz(distance(a), s)) * np.sin(a) ** (dim - 2), 0, np.pi, epsabs=1e-12, limit=200)[0] / norm

    for r, rho in ((0.7, 1.3), (1.3, 0.7), (1.0, 0.98), (0.2, 5.0)):
        assert float(mean_over_sphere(r, rho, dim, s)) == pytest.approx(angle_mean(r, rho), rel=1e-9, abs=1e-10)
    for exponent in (-0.5, 0.0, 1.5):
        ball = (
            quad(mean_in_ball, 0, 1, args=(dim, s, exponent), epsabs=1e-12)[0] / quad(weight, 0, 1, args=(dim, exponent), epsabs=1e-13)[0]
        )
        assert float(mean_over_ball(1.3, 0.8, dim, s, exponent)) == pytest.approx(ball, rel=1e-8)


@pytest.mark.parametrize("name", RADIAL)
def test_mass_moments_and_distribution_agree_with_the_density(name):
    law, external = RADIAL[name]
    low = getattr(law, "inner_radius", 0.0)
    assert [law.moment(0), law.second_moment, law.moment(4)] == pytest.approx([mean(law, lambda r, k=k: r**k) for k in (0, 2, 4)], rel=1e-9)
    r = low + (law.radius - low) * np.array([0.2, 0.55, 0.9])
    assert law.radial_cdf(r) == pytest.approx([mass(law, low, b) for b in r], abs=1e-9)
    np.testing.assert_allclose(law.radial_quantile(law.radial_cdf(r)), r, rtol=1e-11)
    assert law.radial_cdf([0.0, 3 * law.radius]).tolist() == [0.0, 1.0]
    off = [1.01 * law.radius] + ([0.9 * low] if low else [])
    assert law.density(axis(law, off)).tolist() == [0.0] * len(off)
    assert law.energy == pytest.approx((law.multiplier + mean(law, external)) / 2, abs=1e-8)


@pytest.mark.parametrize("name", RADIAL)
def test_the_density_at_a_distance_is_the_slope_of_the_radial_distribution(name):
    law, _ = RADIAL[name]
    low = getattr(law, "inner_radius", 0.0)
    r = low + (law.radius - low) * np.array([[0.2], [0.55], [0.8]])
    h = 1e-4 * (law.radius - low)
    slope = (law.radial_cdf(r + h) - law.radial_cdf(r - h)) / (2 * h)
    sphere = 2 * np.pi ** (law.dim / 2) / gamma(law.dim / 2) * r ** (law.dim - 1)
    np.testing.assert_allclose(sphere * law.radial_density(r), slope, rtol=1e-5)
    assert law.radial_density(float(r[0, 0])).shape == ()
    assert law.radial_density(float(r[0, 0])) == pytest.approx(float(law.radial_density(r)[0, 0]))
    with pytest.raises(ValueError, match="r must be at least 0, got shape"):
        law.radial_density([1.0, -1.0])


@pytest.mark.parametrize("name", RADIAL)
def test_euler_lagrange_by_quadrature_on_and_off_the_support(name):
    law, external = RADIAL[name]
    on, off = places(law)

    def total(r):
        return float(external(r)) + law.strength * mean(law, lambda q: mean_over_sphere(r, q, law.dim, law.s), singular=r)

    assert [total(r) for r in on] == pytest.approx([law.multiplier] * 2, abs=3e-7)
    assert law.potential(axis(law, on)) == pytest.approx([law.multiplier] * 2, abs=1e-10)
    assert law.potential(axis(law, off)) == pytest.approx([total(r) for r in off], abs=3e-7)
    if external is not free:
        assert (law.potential(axis(law, off)) > law.multiplier).all()
    np.testing.assert_allclose(law.potential(axis(law, [law.radius])), law.multiplier, atol=1e-10)
    # negative control: a strength 1 % off does not balance
    assert np.ptp([total(r) + 0.01 * (total(r) - float(external(r))) for r in on]) > 1e-4 or external is free


@pytest.mark.parametrize("name", SPHERES)
def test_spheres_are_where_the_potential_is_least(name):
    law, external = SPHERES[name]
    r = np.r_[np.linspace(0.05, 1, 20), np.linspace(1, 2, 11)[1:]] * law.radius
    u = law.potential(axis(law, r))
    expected = external(r) + law.strength * mean_over_sphere(r, law.radius, law.dim, law.s)
    np.testing.assert_allclose(u, expected, rtol=1e-12)
    room = r <= law.radius if external is free else r > 0
    assert (u[room] >= law.multiplier - 1e-12).all()
    assert law.energy == pytest.approx((law.multiplier + float(external(law.radius))) / 2, rel=1e-12)
    x = law.sample(50, 3)
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), law.radius, rtol=1e-12)
    assert law.moment(3) == pytest.approx(law.radius**3)
    assert law.radial_cdf([0.99 * law.radius, law.radius]).tolist() == [0.0, 1.0]
    with pytest.raises(ValueError, match="no density"):
        law.radial_density(1.0)
    with pytest.raises(ValueError, match="no density"):
        law.density(x)


FINITE_VARIANCE = {name: pair for name, pair in {**RADIAL, **SPHERES}.items() if pair[0].s < 0.45 * pair[0].dim}  # of the pair energy


@pytest.mark.parametrize("name", FINITE_VARIANCE)
def test_energy_is_that_of_independent_pairs(name):
    law, external = FINITE_VARIANCE[name]
    x, y = law.sample(20_000, 1), law.sample(20_000, 2)
    distance = np.linalg.norm(x - y, axis=1)
    distance[distance < 1e-12] = 2 * law.radius if name.startswith("ends") and law.s > 0 else 1e-300  # equal ends: g is 0 for s < 0
    pair = riesz(distance, law.s)
    draws = (external(np.linalg.norm(x, axis=1)) + external(np.linalg.norm(y, axis=1))) / 2 + law.strength / 2 * pair
    error = draws.std() / np.sqrt(draws.size)
    # z-tests at 4.5: false alarm 7e-6 each; the pairs counted twice are rejected
    assert abs(draws.mean() - law.energy) < 4.5 * error + 1e-12
    if abs(pair.mean()) > 0.05:
        assert abs(draws.mean() + law.strength / 2 * pair.mean() - law.energy) > 4.5 * error


@pytest.mark.parametrize("name", RADIAL)
def test_samples_are_isotropic_with_the_radial_law(name):
    law = RADIAL[name][0]
    x = law.sample(4000, 5)
    assert x.shape == (4000, law.dim)
    r = np.linalg.norm(x, axis=1)
    # Kolmogorov-Smirnov at 1e-5: false alarm 3e-4 together; radii 8 % off are rejected
    assert kstest(r, law.radial_cdf).pvalue > 1e-5
    assert kstest(r * 1.08, law.radial_cdf).pvalue < 1e-5
    assert np.abs(x.mean(0)).max() < 5 * np.sqrt(law.second_moment / law.dim / 4000)
    if law.dim == 1:
        assert kstest(x[:, 0], law.cdf).pvalue > 1e-5
        u = np.array([0.03, 0.4, 0.6, 0.97])
        np.testing.assert_allclose(law.cdf(law.quantile(u)), u, rtol=1e-11)
        np.testing.assert_allclose(law.cdf(x[:5]), law.cdf(x[:5, 0]), rtol=1e-15)
    else:
        with pytest.raises(ValueError, match="cdf needs dim = 1"):
            law.cdf(r)


@pytest.mark.parametrize("name", CUTS)
def test_cut_laws_satisfy_their_equations(name):
    law = CUTS[name]
    low, high = law.support

    def place(a):
        return low + (high - low) * np.sin(a) ** 2

    def mean(f, end=np.pi / 2, point=None):
        g = lambda a: f(place(a)) * float(law.density(place(a))) * (high - low) * np.sin(2 * a)  # noqa: E731
        return quad(g, 0, end, points=point, limit=300, epsabs=1e-11)[0]

    assert mean(lambda x: 1.0) == pytest.approx(1, abs=1e-9)
    assert [law.moment(k) for k in (1, 2, 5)] == pytest.approx([mean(lambda x, k=k: x**k) for k in (1, 2, 5)], rel=1e-9)
    assert mean(lambda x: float(law.external(np.array(x)))) == pytest.approx(law.mean_external, abs=1e-9)
    angle = np.array([0.3, 0.8, 1.2])
    assert law.cdf(place(angle)) == pytest.approx([mean(lambda x: 1.0, end=a) for a in angle], abs=1e-9)

    def total(x):
        point = [np.arcsin(np.sqrt((x - low) / (high - low)))] if low < x < high else None
        return float(law.external(np.array(x))) - law.strength * mean(lambda y: np.log(abs(x - y)), point=point)

    on = low + (high - low) * np.array([0.1, 0.6])
    off = [x for x in (0.3 * low if low > 0 else (low - 1) / 2, (high + 1) / 2 if high < 1 else 1.2 * high) if law.potential(x) < np.inf]
    assert [total(x) for x in on] == pytest.approx([law.multiplier] * 2, abs=1e-8)
    assert law.potential(off) == pytest.approx([total(x) for x in off], abs=1e-8)
    assert (law.potential(off) > law.multiplier).all()
    x = law.sample(4000, 5)[:, 0]  # Kolmogorov-Smirnov at 1e-5; a shift by 5 % of the width is rejected
    assert kstest(x, law.cdf).pvalue > 1e-5
    assert kstest(x + 0.05 * (high - low), law.cdf).pvalue < 1e-5


def test_a_moved_law_is_the_law_about_its_centre():
    law, centre = WallBall(1.5, 0.7, 2, 1.2), np.array([2.0, -1.0])
    moved, x = Moved(law, (2.0, -1.0)), law.sample(7, 4)
    np.testing.assert_allclose(moved.sample(7, 4), x + centre)
    np.testing.assert_allclose(moved.density(x + centre), law.density(x))
    np.testing.assert_allclose(moved.potential(x + centre), law.potential(x))
    assert (moved.energy, moved.multiplier, moved.dim, moved.s) == (law.energy, law.multiplier, 2, 1.2)
    with pytest.raises(ValueError, match=r"law must be a rotation-invariant law \(RadialLaw\), got 3"):
        Moved(3, (1.0,))
    with pytest.raises(ValueError, match="centre must hold 2 numbers"):
        Moved(law, (1.0,))


@pytest.mark.parametrize("dim", [2, 3, 6])
def test_means_over_spheres_near_the_exponent_of_a_surface(dim):
    for s in (dim - 1 + 4e-5, dim - 1 - 4e-5):
        for z in (0.3, 0.9, 0.996, 0.9999, 1 - 1e-8):
            exact = float(mpmath.hyp2f1(mpmath.mpf(s) / 2, 1 - (dim - mpmath.mpf(s)) / 2, mpmath.mpf(dim) / 2, mpmath.mpf(z) ** 2))
            assert float(mean_over_sphere(z, 1.0, dim, s)) == pytest.approx(exact, rel=1e-10)
    for s in (dim - 1 + 1e-8, dim - 1 - 1e-8):
        assert np.isfinite(mean_over_sphere(0.3, 1.0, dim, s))
        with pytest.raises(ValueError, match=f"s must be dim - 1 = {dim - 1} or differ"):
            mean_over_sphere([0.3, 0.9999], 1.0, dim, s)
