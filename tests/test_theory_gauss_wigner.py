"""The log gas at any temperature, in a trap and between walls, against mpmath, quadrature and the limits of temperature."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from numpy.polynomial.legendre import leggauss
from scipy.special import gammaln
from scipy.stats import kstest

from theory.equilibrium import GaussWigner, Semicircle
from theory.equilibrium.walls import Arcsine, WallLogGas
from theory.mean_field import MeanField

TRAPPED = [GaussWigner(1.3, 0.7, 6.0), GaussWigner(0.6, 1.4, 1.5), GaussWigner(2.0, 0.0, 0.7), GaussWigner(0.9, 5.0, 11.0)]
WALLED = [WallLogGas(1.7, 0.7, 6.0), WallLogGas(0.6, 1.4, 0.5), WallLogGas(2.0, 0.0, 0.7), WallLogGas(1.1, 5.0, 11.0)]

NODE, WEIGHT = leggauss(1500)


def exact_trapped(c, u):
    """f_c(u) in 60 digits, the definition."""
    with mpmath.workdps(60):
        value = mpmath.pcfd(-mpmath.mpf(c), mpmath.mpc(0, mpmath.mpf(u)))
        return float(mpmath.log(1 / abs(value) ** 2 / (mpmath.sqrt(2 * mpmath.pi) * mpmath.gamma(1 + mpmath.mpf(c)))))


def exact_walled(c, x):
    """(1 + c)/2 / ((1 - x^2)^2 (Q_c'^2 + (pi/2)^2 P_c'^2)) in 50 digits, Ferrers functions of mpmath."""
    with mpmath.workdps(50):
        c, x = mpmath.mpf(c), mpmath.mpf(x)
        # (1 - x^2) F_c' = c (F_c-1 - x F_c) for both kinds
        p = c * (mpmath.legenp(c - 1, 0, x) - x * mpmath.legenp(c, 0, x))
        q = c * (mpmath.legenq(c - 1, 0, x) - x * mpmath.legenq(c, 0, x))
        return float((1 + c) / 2 / (q**2 + (mpmath.pi / 2 * p) ** 2))


@pytest.mark.parametrize("c", [0.0, 1e-6, 0.03, 0.5, 1.0, 2.1, 7.3, 40.4, 211.7])
def test_trapped_density_is_the_cylinder_function_to_1e_13(c):
    law = GaussWigner(1.0, 2 * c, 1.0)
    u = np.linspace(0, 2 * np.sqrt(c) + 9, 8)
    np.testing.assert_allclose(law.log_density(-u), [exact_trapped(law.crossover, p) for p in u], rtol=0, atol=3e-13)


@pytest.mark.slow
@pytest.mark.parametrize("c", [1000.5, 3000.5])
def test_trapped_density_far_into_the_cold(c):
    law = GaussWigner(1.0, 2 * c, 1.0)
    u = np.array([0.0, 0.6, 1.3]) * np.sqrt(c)
    np.testing.assert_allclose(law.log_density(u), [exact_trapped(law.crossover, p) for p in u], rtol=0, atol=1e-15 * c + 1e-13)


@pytest.mark.parametrize("c", [0.3, 1.5, 6.4, 33.3])
def test_walled_density_is_that_of_legendre_functions(c):
    law = WallLogGas(1.0, 2 * c, 1.0)
    x = np.array([0.0, 0.2, 0.71, 0.99, 0.99999, 1 - 1e-10])
    np.testing.assert_allclose(law.density(-x), [exact_walled(law.crossover, p) for p in x], rtol=1e-12)
    np.testing.assert_allclose(law.density([-1.0, 1.0, 1.0001]), [(1 + c) / 2, (1 + c) / 2, 0], rtol=1e-15)


@pytest.mark.parametrize("law", TRAPPED + WALLED, ids=repr)
def test_moments_entropy_and_distribution_by_quadrature(law):
    walled = isinstance(law, WallLogGas)
    end = law.radius if walled else 9 * np.sqrt(law.second_moment)
    x, weight = end * np.sin(np.pi / 2 * NODE), WEIGHT * end * np.pi / 2 * np.cos(np.pi / 2 * NODE)
    rho = law.density(x)
    moments = [np.sum(weight * rho * x**k) for k in (0, 2, 4, 10)]
    assert moments == pytest.approx([law.moment(k) for k in (0, 2, 4, 10)], rel=1e-11)
    assert np.sum(weight * rho * law.log_density(x)) == pytest.approx(law.entropy, abs=1e-11)
    assert law.free_energy == pytest.approx(law.energy + law.entropy / law.beta, abs=1e-13)
    for place in (0.6 * end, -0.2 * end):  # from 0: smooth
        assert np.sum(place / 2 * WEIGHT * law.density(place / 2 * (1 + NODE))) == pytest.approx(float(law.cdf(place)) - 0.5, abs=1e-12)
    u = np.array([1e-6, 0.1, 0.5, 0.77, 0.9999])
    np.testing.assert_allclose(law.cdf(law.quantile(u)), u, rtol=1e-9)
    np.testing.assert_allclose(law.cdf([-end, 0, end]), [0, 0.5, 1], atol=1e-12)
    np.testing.assert_allclose(law.radial_cdf(law.radial_quantile(u[1:])), u[1:], rtol=1e-10)


@pytest.mark.parametrize("law", [*TRAPPED[:2], *WALLED[:2]], ids=repr)
def test_the_potential_balances_the_entropy(law):
    """U + log(rho)/beta is the multiplier everywhere, U by finite volumes; a strength 5 % off is not balanced."""
    walled = isinstance(law, WallLogGas)
    end = law.radius if walled else 6 * np.sqrt(law.second_moment)
    external = (lambda x: 0 * x) if walled else (lambda x: law.kappa * x**2 / 2)
    edges = np.linspace(-end, end, 1201)
    field = MeanField(external, lambda r: -law.strength * np.log(r), law.beta, edges)
    rho = np.diff(law.cdf(edges)) / (edges[1] - edges[0])
    rho /= np.sum(rho * np.diff(edges))
    middle = slice(60, -60)
    u = field.potential(rho)[middle]
    x = ((edges[1:] + edges[:-1]) / 2)[middle]
    assert u == pytest.approx(law.potential(x), abs=2e-4)
    assert field.free_energy(rho) == pytest.approx(law.free_energy, abs=2e-4)
    assert np.abs(u + 0.05 * (u - external(x)) - law.potential(x)).max() > 4e-3


@pytest.mark.parametrize("law", [law for law in TRAPPED if law.crossover], ids=repr)
def test_tails_of_the_trapped_law_to_relative_accuracy(law):
    """The lower tail against the definition by a Gauss rule; it is continuous where the integral takes over from the phase."""
    c, scale = law.crossover, law.scale
    for place in (2 * np.sqrt(c) + 1.6, 2 * np.sqrt(c) + 4.0):
        node, weight = leggauss(30)
        exact = sum(w * np.exp(exact_trapped(c, place + 3 * (1 + y))) * 3 for y, w in zip(node, weight, strict=True))
        assert float(law.cdf(-place * scale)) == pytest.approx(exact, rel=1e-10)
        assert float(law.quantile(exact)) == pytest.approx(-place * scale, rel=1e-11)
    edge = -scale * (2 * np.sqrt(c) + 1.5)
    np.testing.assert_allclose(*law.cdf(edge + scale * 1e-12 * np.array([-1.0, 1.0])), rtol=1e-11, atol=1e-15)
    assert (np.diff(law.cdf(np.linspace(3 * edge, 0, 999))) > 0).all()


@pytest.mark.parametrize("law", [*TRAPPED[:2], *WALLED[:2]], ids=repr)
def test_samples_follow_the_law(law):
    x = law.sample(4000, 3)
    assert x.shape == (4000, 1)
    # Kolmogorov-Smirnov at 1e-4: false alarm 4e-4 together; 20 % wider is rejected
    assert kstest(x[:, 0], law.cdf).pvalue > 1e-4
    assert kstest(1.2 * x[:, 0], law.cdf).pvalue < 1e-4


def test_quoted_values():
    law = GaussWigner(1.3, 0.7, 6.0)
    assert float(law.density(0.0)) == pytest.approx(0.5466290580, abs=5e-11)
    assert law.fourth_moment == pytest.approx(0.3668639, abs=5e-8)
    assert law.fourth_moment == pytest.approx((3 + 5 * 2.1 + 2 * 2.1**2) / 7.8**2, rel=1e-14)
    assert law.second_moment == pytest.approx(1 / 7.8 + 0.7 / 2.6, rel=1e-14)
    assert law.free_energy == pytest.approx(0.3538282997, abs=5e-11)
    assert float(GaussWigner(1.0, 1.0, 1.0).density(0.0)) == pytest.approx(0.3042971194, abs=5e-11)
    assert float(GaussWigner(1.0, 4.2, 1.0).density(0.0)) == pytest.approx(0.1957245995, abs=5e-11)


@pytest.mark.parametrize("law", [*TRAPPED, *WALLED, GaussWigner(1.3, 0.7, 3000.0), WallLogGas(1.3, 0.7, 3000.0)], ids=repr)
@pytest.mark.parametrize("order", [-0.98, -0.5, 1, 2.7, 15])
def test_moments_of_any_order(law, order):
    """By parts: E |X|^q = q int r^(q-1) P(|X| > r) dr, for q < 0 with P(|X| <= r) in the variable r^(q+1)."""
    end = law.radius if isinstance(law, WallLogGas) else law.scale * (2 * np.sqrt(law.crossover) + 12)
    if order > 0:
        r = end * (1 + NODE) / 2
        exact = order * WEIGHT @ (r ** (order - 1) * (1 - law.radial_cdf(r))) * end / 2
    else:
        t = (1 + NODE) / 2
        r = np.maximum(end * t ** (1 / (order + 1)), 1e-300)
        exact = end**order - order * end**order / (order + 1) * WEIGHT @ (law.radial_cdf(r) * end / r) / 2
    assert law.moment(order) == pytest.approx(exact, rel=3e-6)
    assert law.moment(order + 1e-3) != pytest.approx(exact, rel=3e-6)  # negative control
    near = [law.moment(2 + shift) for shift in (-1e-4, 0, 1e-4)]  # quadrature on both sides of the exact moment
    assert near[1] == pytest.approx((near[0] + near[2]) / 2, rel=1e-6)


@pytest.mark.parametrize("law", [TRAPPED[0], WALLED[3]], ids=repr)
def test_small_radii_keep_their_digits(law):
    r = 1e-11 * law.scale
    assert float(law.radial_cdf(r)) == pytest.approx(2 * r * float(law.density(0.0)), rel=1e-12)


def test_a_gaussian_has_its_absolute_moments():
    law = GaussWigner(2.0, 0.0, 0.7)
    for order in (-0.999, -0.3, 1, 3, 7.7, 101):
        exact = law.scale**order * 2 ** (order / 2) * np.exp(gammaln((order + 1) / 2)) / np.sqrt(np.pi)
        assert law.moment(order) == pytest.approx(exact, rel=1e-12)


def test_the_walls_are_the_extreme_quantiles():
    assert WALLED[0].quantile([0.0, 0.5, 1.0]).tolist() == [-1.7, 0.0, 1.7]


def test_free_energy_is_the_limit_of_selbergs_integral():
    """-log Z_N/(N beta) of n particles between walls in closed form (Selberg 1944); the gap falls like log(n)/n."""
    law, gap = WallLogGas(1.7, 0.7, 6.0), []
    for n in (200, 2000, 20000):
        b, j = law.beta * law.strength / (n - 1), np.arange(n)
        logs = 2 * gammaln(1 + j * b / 2) + gammaln(1 + (j + 1) * b / 2) - gammaln(2 + (n + j - 1) * b / 2) - gammaln(1 + b / 2)
        gap.append(-(logs.sum() + (n + b * n * (n - 1) / 2) * np.log(2 * law.radius)) / (n * law.beta) - law.free_energy)
    assert abs(gap[-1]) < 2e-4
    assert 7 < gap[0] / gap[1] < 13
    assert 7 < gap[1] / gap[2] < 13


@pytest.mark.parametrize(("make", "cold"), [(GaussWigner, Semicircle(1.3, 0.7)), (WallLogGas, Arcsine(1.3, 0.7))])
def test_limits_of_temperature(make, cold):
    law, hot = make(1.3, 0.7, 8000.0), make(1.3, 0.0, 6.0)
    x = np.linspace(-0.8, 0.8, 9) * cold.radius
    np.testing.assert_allclose(law.density(x), cold.density(x), rtol=2e-3)
    assert law.energy == pytest.approx(cold.energy, abs=2e-3)
    assert law.energy > cold.energy
    near = make(1.3, 1e-9, 6.0)
    np.testing.assert_allclose(near.density(x), hot.density(x), rtol=1e-8)
    np.testing.assert_allclose(near.quantile([0.1, 0.6]), hot.quantile([0.1, 0.6]), rtol=1e-7)
    assert near.entropy == pytest.approx(hot.entropy, abs=1e-8)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: GaussWigner(1, 1, float("inf")), "beta"),
        (lambda: GaussWigner(1, 1e5, 1.0), "at most 10000, got 50000.0: use Semicircle"),
        (lambda: WallLogGas(1, 1e5, 1.0), "use Arcsine"),
        (lambda: WallLogGas(0, 1, 1.0), "radius"),
        (lambda: GaussWigner(1, 1, 1.0).moment(2001), "order must be at most 1049 unless it is even, got 2001"),
        (lambda: GaussWigner(1, 1, 1.0).moment(1000), "order must give a moment that floating point holds, got 1000"),
        (lambda: WallLogGas(1, 1, 1.0).moment(-1), "order must exceed -1, got -1.0: the moment is infinite"),
        (lambda: WallLogGas(1, 1, 1.0).moment(np.inf), "order must be finite"),
        (lambda: GaussWigner(1, 1, 1.0).quantile([0.0, 0.5]), "strictly between 0 and 1"),
        (lambda: GaussWigner(1, 1, 1.0).density([np.nan]), "x must be finite"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
