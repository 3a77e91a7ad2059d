"""Equilibria in any radial potential against closed forms, energy minimisation and each other; what cannot be solved raises."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import kstest

from theory.equilibrium import CoulombBall, RieszBall, Semicircle
from theory.equilibrium.cut_laws import JacobiWeight, LaguerreWeight
from theory.equilibrium.even_weights import FreudWeight, QuarticWell
from theory.equilibrium.radial_trap import CoulombEquilibrium, radial_equilibrium
from theory.equilibrium.riesz_means import mean_over_sphere
from theory.equilibrium.riesz_trap import RieszEquilibrium
from theory.equilibrium.walls import Arcsine, WallBall, WallSphere


def tanh_sinh(cuts):
    """Nodes and weights between two places, for integrands singular at both."""
    t = np.linspace(-3.4, 3.4, 239)
    node, weight = 1 / (1 + np.exp(-np.pi * np.sinh(t))), np.pi * np.cosh(t) * (t[1] - t[0])
    return cuts[0] + (cuts[1] - cuts[0]) * node, (cuts[1] - cuts[0]) * weight * node / (1 + np.exp(np.pi * np.sinh(t)))


def same(law, exact, tolerance=1e-12):
    """Radius, energy, multiplier, moments, density and distribution of two laws."""
    r = np.array([0.0, 0.31, 0.77, 0.96]) * exact.radius
    x = np.concatenate([r[:, None], np.zeros((4, law.dim - 1))], 1)
    assert law.radius == pytest.approx(exact.radius, rel=tolerance)
    assert law.energy == pytest.approx(exact.energy, rel=tolerance, abs=tolerance)
    assert law.multiplier == pytest.approx(exact.multiplier, rel=tolerance, abs=tolerance)
    assert law.moment(4) == pytest.approx(exact.moment(4), rel=tolerance)
    np.testing.assert_allclose(law.density(x), exact.density(x), rtol=10 * tolerance)
    np.testing.assert_allclose(law.radial_cdf(r), exact.radial_cdf(r), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("dim", "s"), [(1, 0.0), (1, 0.7), (1, -0.8), (2, 0.3), (2, 1.6), (3, 1.1), (4, 3.5), (9, 7.5)])
def test_quadratic_traps_give_the_riesz_balls(dim, s):
    same(radial_equilibrium(lambda r: 0.65 * r**2, dim=dim, s=s, strength=0.7), RieszBall(1.3, 0.7, dim, s))


@pytest.mark.parametrize(("dim", "s"), [(1, 0.0), (1, 0.7), (1, -0.8), (2, 1.6), (3, 1.1)])
def test_without_a_trap_the_wall_gives_the_hard_wall_laws(dim, s):
    law = radial_equilibrium(lambda r: 0 * r, dim=dim, s=s, strength=0.7, wall=1.4)
    same(law, WallBall(1.4, 0.7, dim, s))
    assert law.edge_coefficient == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("dim", [1, 2, 3, 6])
def test_coulomb_gases_in_quadratic_traps_and_without(dim):
    same(
        radial_equilibrium(lambda r: 0.65 * r**2 + 0 * r, dim=dim, s=dim - 2, strength=0.7, derivative=lambda r: 1.3 * r),
        CoulombBall(1.3, 0.7, dim),
    )
    same(CoulombEquilibrium(lambda r: 0.65 * r**2, 0.7, dim), CoulombBall(1.3, 0.7, dim), 1e-11)
    law, sphere = CoulombEquilibrium(lambda r: 0 * r, 0.7, dim, lambda r: 0 * r, wall=1.4), WallSphere(1.4, 0.7, dim, dim - 2)
    assert (law.wall_mass, law.radius) == (1, 1.4)
    assert law.energy == pytest.approx(sphere.energy, rel=1e-12)
    np.testing.assert_allclose(np.linalg.norm(law.sample(9, 1), axis=1), 1.4)


@pytest.mark.parametrize(("kappa", "power"), [(1.3, 4.0), (0.4, 6.0), (2.0, 10.0)])
def test_even_powers_give_ullmans_law(kappa, power):
    same(radial_equilibrium(lambda r: kappa * r**power, dim=1, s=0.0, strength=0.7), FreudWeight(kappa, 0.7, power), 1e-11)


def test_one_well_gives_the_quartic_law_and_two_raise():
    edge = -np.sqrt(2 * 1.2 * 0.7)
    for kappa in (1.3, -0.4, 0.999 * edge):
        same(
            radial_equilibrium(lambda r, k=kappa: k * r**2 / 2 + 0.3 * r**4, dim=1, s=0.0, strength=0.7),
            QuarticWell(kappa, 0.7, 1.2),
            1e-11,
        )
    with pytest.raises(ValueError, match="the support is not a ball: the density"):
        radial_equilibrium(lambda r: 1.05 * edge * r**2 / 2 + 0.3 * r**4, dim=1, s=0.0, strength=0.7)


def test_the_wells_split_continuously():
    edge = -np.sqrt(2 * 1.2 * 0.7)
    one, two = QuarticWell(edge + 1e-9, 0.7, 1.2), QuarticWell(edge - 1e-9, 0.7, 1.2)
    assert (one.split, two.split) == (False, True)
    assert (one.radius, one.energy, one.multiplier) == pytest.approx((two.radius, two.energy, two.multiplier), rel=1e-7)
    assert one.density([0.7]) == pytest.approx(two.density([0.7]), rel=1e-6)
    assert QuarticWell(0.9, 1.1, 1e-9).radius == pytest.approx(Semicircle(0.9, 1.1).radius, rel=1e-7)


def test_closed_forms_meet_each_other():
    freud, trapped = FreudWeight(0.65, 0.7, 2.0), Semicircle(1.3, 0.7)
    same(freud, trapped)
    assert JacobiWeight(0.7).energy == pytest.approx(Arcsine(1.0, 0.7).energy, rel=1e-13)
    assert JacobiWeight(0.7).multiplier == pytest.approx(Arcsine(1.0, 0.7).multiplier, rel=1e-13)
    # x = y^2: a Laguerre gas of strength l is the even part of a gas of strength 2 l in kappa y^2
    assert LaguerreWeight(1.3, 0.7).energy == pytest.approx(Semicircle(2.6, 1.4).energy, rel=1e-13)
    np.testing.assert_allclose(LaguerreWeight(1.3, 0.7).cdf([0.1, 0.6]), Semicircle(2.6, 1.4).radial_cdf(np.sqrt([0.1, 0.6])), rtol=1e-12)
    # weights near an end of (-1, 1) zoomed in: Jacobi becomes Laguerre, 1 + x = y/m with right = 2 kappa m
    zoomed, limit = JacobiWeight(0.7, 2e6 * 1.3, 0.4), LaguerreWeight(1.3, 0.7, 0.4)
    assert [1e6 * (1 + e) for e in zoomed.support] == pytest.approx(limit.support, rel=1e-5)


def test_laguerre_is_the_marchenko_pastur_law():
    """Eigenvalues of a Wishart matrix (n, m): exp(-m x/2) x^((m-n-1)/2) and one power of each distance, a gas of strength n - 1."""
    rng, n, m = np.random.default_rng(1), 300, 900
    x = np.linalg.eigvalsh(np.cov(rng.standard_normal((n, m)), bias=True))
    law = LaguerreWeight(m / 2, n, (m - n) / 2)
    assert law.support == pytest.approx([(1 - np.sqrt(n / m)) ** 2, (1 + np.sqrt(n / m)) ** 2], rel=1e-12)
    assert kstest(x, law.cdf).statistic < 4 / n  # eigenvalues are rigid: far below 1/sqrt(n)
    assert kstest(1.05 * x, law.cdf).statistic > 4 / n


def least_energy(external, strength, dim, s, r):
    """Energy and masses of the best measure on thin shells at r (n,), by descent over the logarithms of the masses."""
    kernel = mean_over_sphere(r[:, None], r, dim, s)
    thickness = (r[1] - r[0]) * np.exp(-1.5)  # distance that stands for a shell with itself
    np.fill_diagonal(kernel, mean_over_sphere(r, r + thickness, dim, s))

    def value(m):
        w = np.exp(m - m.max())
        w /= w.sum()
        u = external(r) + strength * kernel @ w
        return w @ external(r) + strength / 2 * w @ kernel @ w, w * (u - w @ u)

    found = minimize(value, np.zeros(r.size), jac=True, method="L-BFGS-B", options={"maxiter": 4000, "ftol": 1e-15, "gtol": 1e-10})
    w = np.exp(found.x - found.x.max())
    return found.fun, w / w.sum()


@pytest.mark.parametrize(
    ("external", "dim", "s", "wall"),
    [
        (lambda r: np.cosh(2 * r), 3, 1.5, np.inf),
        (lambda r: 0.25 * r**4 + 0.2 * r**2, 2, 0.5, np.inf),
        (lambda r: 0.25 * r**4 - 0.8 * r**2, 3, 1.0, np.inf),
        (lambda r: 0.4 * r**2, 3, 1.0, 0.7),
    ],
)
def test_energy_minimisation_over_shells_finds_the_same_measure(external, dim, s, wall):
    law = radial_equilibrium(external, dim=dim, s=s, strength=0.9, wall=wall)
    end = 1.3 * law.radius if wall == np.inf else wall
    r = end * (np.arange(160) + 1) / 160
    energy, w = least_energy(external, 0.9, dim, s, r)
    assert energy == pytest.approx(law.energy, abs=8e-3 * abs(law.multiplier))
    cell = np.diff(law.radial_cdf(r + end / 320)).max()  # of mass: a thin shell lies in few cells, half of one is the grid's error
    assert np.abs(np.cumsum(w) - law.radial_cdf(r + end / 320)).max() < max(0.05, 0.75 * cell)
    assert np.abs(np.cumsum(w) - law.radial_cdf(0.85 * (r + end / 320))).max() > 0.1  # negative control


def test_a_coulomb_gas_at_a_wall_holds_charge_inside_and_on_it():
    law = CoulombEquilibrium(lambda r: 0.65 * r**2, 0.7, 3, wall=0.6)
    inside = 1.3 / 0.7 * 0.6**3
    assert law.wall_mass == pytest.approx(1 - inside, rel=1e-10)
    assert law.radial_cdf([0.3, 0.5999, 0.6]) == pytest.approx([inside / 8, inside * 0.9998333**3, 1], abs=1e-6)
    r = np.linalg.norm(law.sample(4000, 2), axis=1)
    assert abs(np.mean(r > 0.6 - 1e-12) - law.wall_mass) < 4.5 * np.sqrt(0.25 / 4000)  # false alarm 7e-6
    assert law.residual < 1e-10
    line = CoulombEquilibrium(lambda r: 0.65 * r**2, 0.7, 1, wall=0.3)
    left = line.wall_mass / 2
    np.testing.assert_allclose(line.cdf([-0.31, -0.3, 0.0, 0.29999999, 0.3]), [0, left, 0.5, 1 - left, 1], atol=1e-7)


def test_differences_of_the_potential_do_for_its_derivative():
    with_slope = CoulombEquilibrium(np.cosh, 0.7, 3, np.sinh)
    without = CoulombEquilibrium(np.cosh, 0.7, 3)
    assert without.radius == pytest.approx(with_slope.radius, rel=1e-12)
    x = np.array([[0.0, 0, 0], [0.3, 0, 0], [0.6, 0.1, 0]])
    r = np.linalg.norm(x, axis=1)
    exact = (np.cosh(r) + 2 * np.sinh(r) / np.where(r > 0, r, 1) + 2 * (r == 0)) / (0.7 * 4 * np.pi)
    np.testing.assert_allclose(with_slope.density(x), exact, rtol=1e-11)
    np.testing.assert_allclose(without.density(x), exact, rtol=1e-9)


@pytest.mark.parametrize("power", [1.5, 3.0, 4.0])
@pytest.mark.parametrize("dim", [2, 3])
def test_coulomb_gas_in_a_power(dim, power):
    """mu(|x| <= r) = (r/R)^(dim + power - 2)."""
    law = CoulombEquilibrium(lambda r: r**power / power, 0.7, dim, lambda r: r ** (power - 1))
    radius = (0.7 * (dim - 2 or 1)) ** (1 / (dim + power - 2))
    assert law.radius == pytest.approx(radius, rel=1e-12)
    r = np.array([0.2, 0.8]) * radius
    np.testing.assert_allclose(law.radial_cdf(r), (r / radius) ** (dim + power - 2), rtol=1e-12)
    assert law.residual < 1e-11


def test_the_residual_tells_a_rough_potential_from_a_smooth_one():
    assert radial_equilibrium(np.cosh, dim=2, s=1.0, strength=0.7).residual < 1e-13
    assert 1e-13 < radial_equilibrium(lambda r: r**7, dim=2, s=1.0, strength=0.7).residual < 1e-9


@pytest.mark.parametrize("strength", [1e-20, 1e-6, 1e6])
@pytest.mark.parametrize(("dim", "s"), [(1, -1), (2, 0), (3, 1), (2, 1)])
def test_any_scale_of_the_strength(dim, s, strength):
    same(radial_equilibrium(lambda r: 0.65 * r**2, dim=dim, s=s, strength=strength), RieszBall(1.3, strength, dim, s), 1e-9)


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("power", [4, 20])
def test_flat_even_powers_need_no_derivative(dim, power):
    law = CoulombEquilibrium(lambda r: r**power / power, 0.7, dim)
    assert law.radius == pytest.approx((0.7 * (abs(dim - 2) or 1)) ** (1 / (dim + power - 2)), rel=1e-9)


@pytest.mark.parametrize(("dim", "s"), [(1, -0.5), (1, 0), (1, -1), (2, 0)])
@pytest.mark.parametrize("depth", [1.0, 50.0])
def test_a_bounded_trap_does_not_confine_for_s_up_to_0(dim, s, depth):
    """-strength |x|^|s| falls below any bounded V: the energy has no minimum, only local ones; a wall makes it one."""
    with pytest.raises(ValueError, match="external must confine"):
        radial_equilibrium(lambda r: -depth * np.exp(-(r**2)), dim=dim, s=s, strength=0.7)


def test_a_bounded_trap_confines_for_positive_s():
    law = radial_equilibrium(lambda r: -50 * np.exp(-(r**2)), dim=3, s=2, strength=0.7)
    assert law.multiplier < -1
    assert law.potential([[1e9, 0, 0]]) == pytest.approx([0], abs=1e-9)


@pytest.mark.parametrize(("dim", "s"), [(1, 0), (2, 0)])
def test_a_logarithm_of_the_strength_of_the_repulsion_does_not_confine(dim, s):
    with pytest.raises(ValueError, match="external must confine" if dim == 2 else "external must"):
        radial_equilibrium(lambda r: np.log1p(r**2) / 2, dim=dim, s=s, strength=1.0)
    assert radial_equilibrium(lambda r: np.log1p(r**2) / 2, dim=dim, s=s, strength=0.8).radius > 1


@pytest.mark.parametrize("power", [0.2, 0.7, 1.0, 1.5, 2.6, 40.0, 1000.0])
def test_ullmans_law_by_its_mixture_of_arcsine_laws(power):
    """P(|X| <= r) = E (2/pi) arcsin(r/(R T)), P(T <= t) = t^power; small radii and large powers keep their digits."""
    law = FreudWeight(1.3, 0.7, power)
    node, weight = tanh_sinh([0.0, 1.0])
    with np.errstate(divide="ignore"):
        scale = law.radius * node ** (1 / power)
    for y in (1e-9, 1e-3, 0.4, 0.97):
        r, wall = y * law.radius, y**power  # below u = y^power the arcsine law lies within r
        u = wall + (1 - wall) * node
        inner = np.minimum(r / (law.radius * u ** (1 / power)), 1)
        exact = wall + (1 - wall) * weight @ (2 / np.pi * np.arcsin(inner))
        assert float(law.radial_cdf(r)) == pytest.approx(exact, rel=1e-7)
        assert float(law.radial_quantile(law.radial_cdf(r))) == pytest.approx(r, rel=1e-11)
    x = 1.3 * law.radius
    field = -weight @ np.log((x + np.sqrt(x**2 - scale**2)) / 2)
    assert float(law.potential(x)) == pytest.approx(1.3 * x**power + 0.7 * field, rel=1e-12)


@pytest.mark.parametrize("power", [1e4, 1e8])
def test_cuts_far_from_their_poles_become_semicircles(power):
    """LaguerreWeight about its minimum x = power/kappa is a trap of stiffness kappa^2/power; JacobiWeight one of 4 power/2."""
    law = LaguerreWeight(1.0, 0.7, power)
    flat, least = Semicircle(1 / power, 0.7), power - power * np.log(power)
    assert law.energy - least == pytest.approx(flat.energy, rel=20 / power, abs=1e-14 * power * np.log(power))
    u = np.array([0.01, 0.4, 0.9])
    np.testing.assert_allclose(law.quantile(u) - power, flat.quantile(u), atol=3 * flat.radius / np.sqrt(power))
    np.testing.assert_allclose(law.cdf(law.quantile(u)), u, rtol=1e-15 * power + 1e-10)
    law, flat = JacobiWeight(0.7, power, power), Semicircle(2 * power, 0.7)
    assert law.energy == pytest.approx(flat.energy, rel=20 / power)
    np.testing.assert_allclose(law.quantile(u), flat.quantile(u), rtol=20 / power)


def test_a_weak_gas_sits_at_the_minimum_of_its_weight():
    for strength in (1e-6, 1e-12):
        assert LaguerreWeight(1.0, strength, 1e3).energy == pytest.approx(1e3 - 1e3 * np.log(1e3), rel=1e-8)
        assert abs(JacobiWeight(strength, 1.0, 1.0).energy) < 20 * strength


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: RieszBall(1.0, 1.0, 1, -1.9999), "radius that floating point holds"),
        (lambda: Semicircle(1e-300, 1e300), "radius that floating point holds"),
        (lambda: FreudWeight(1.0, 1.0, 1e-3), "radius that floating point holds"),
        (lambda: FreudWeight(1.0, 1.0, 1e4), "power must be at most 1000, got 10000.0"),
        (lambda: Semicircle(1, 1).moment(np.inf), "order must be finite, got inf"),
        (lambda: CoulombEquilibrium(3.0, 1.0), "external must be callable, got 3.0"),
        (lambda: RieszEquilibrium(3.0, 1.0, 2, 1.0), "external must be callable, got 3.0"),
        (lambda: CoulombEquilibrium(np.cosh, 1.0, 2, 3.0), "derivative must be callable, got 3.0"),
        (lambda: CoulombEquilibrium(np.cosh, 1.0, 2, lambda r: np.ones(7)), r"derivative\(r\) must have the shape of r"),
        (lambda: RieszEquilibrium(lambda r: np.ones(7), 1.0, 2, 1.0), r"external\(r\) must have the shape of r"),
        (lambda: CoulombEquilibrium(lambda r: 1e12 + r**2, 1.0, 2), "external must be free of a large constant"),
        (
            lambda: radial_equilibrium(np.cosh, dim=3, s=3, strength=1.0),
            r"s must lie in \[1, 3\), got 3.0: every measure has infinite energy",
        ),
        (
            lambda: radial_equilibrium(np.cosh, dim=3, s=0, strength=1.0),
            "the minimiser may be singular, closed forms: quadratic_trap, hard_wall",
        ),
        (lambda: radial_equilibrium(np.cosh, dim=2, s=1, strength=0.0), "strength must be"),
        (lambda: radial_equilibrium(np.cosh, dim=2, s=1, strength=1.0, wall=-1), "wall must be positive"),
        (lambda: radial_equilibrium(np.cosh, dim=2, s=0, strength=1.0, wall=0), "wall must be positive"),
        (lambda: RieszEquilibrium(lambda r: 0 * r, 1.0, 1, 0.0), "external must confine"),
        (lambda: RieszEquilibrium(lambda r: r, 1.0, 2, 1.0), "external must be smooth in r"),
        (lambda: RieszEquilibrium(lambda r: np.nan * r, 1.0, 2, 1.0), r"external\(r\) must be finite"),
        (lambda: RieszEquilibrium(lambda r: r**2 - 3 * np.exp(-20 * (r - 1.6) ** 2), 0.5, 2, 1.0), "the support is not a ball"),
        (lambda: RieszEquilibrium(np.cosh, 1.0, 2, 0.0), "s must lie strictly between 0 and 2"),
        (lambda: CoulombEquilibrium(lambda r: np.log1p(r), 1.0, 2, lambda r: 1 / (1 + r)), "external must confine"),
        (lambda: CoulombEquilibrium(lambda r: r, 0.7, 1), "must be smooth, and even in r unless its derivative"),
        (lambda: CoulombEquilibrium(lambda r: 0.5 * r, 1.0, 1, lambda r: 0.5 + 0 * r, wall=1.0), "must not hold an atom at the origin"),
        (
            lambda: CoulombEquilibrium(lambda r: r**2 + 0.3 * np.sin(12 * r), 3.0, 2, lambda r: 2 * r + 3.6 * np.cos(12 * r)),
            "not one shell",
        ),
        (lambda: CoulombEquilibrium(lambda r: r**2 - 3 * np.exp(-20 * (r - 1.6) ** 2), 0.5, 2), "not one shell"),
        (lambda: CoulombEquilibrium(np.cosh, 1.0, 3).moment(-3), "order must exceed"),
        (lambda: FreudWeight(1, 1, 0.0), "power must be"),
        (lambda: FreudWeight(1, 1, 4.0).moment(-1), "order must exceed -1"),
        (lambda: QuarticWell(np.inf, 1, 1), "kappa must be finite"),
        (lambda: QuarticWell(1, 1, -1), "quartic must be"),
        (lambda: QuarticWell(-5, 1, 1).moment(np.nan), "order must be finite"),
        (lambda: QuarticWell(5, 1, 1).moment(-1), "order must exceed -1"),
        (lambda: LaguerreWeight(1, 1, -0.1), "power must be"),
        (lambda: JacobiWeight(1, -0.1), "right must be"),
        (lambda: JacobiWeight(1).moment(1.5), "order must be an integer"),
        (lambda: JacobiWeight(1).quantile([1.5]), "u must lie in"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
