"""Particles without noise against the equilibrium measures of `theory`: how their distance falls as they become more.

A ground state is the same from any start up to defects, so nothing is random but the start, and slopes are read off without an interval:
what keeps them from the rate are the next powers of n, for which the stated tolerances allow. Every rate is refused to a wrong law, the
distance to which stays. The rates:

- transport W_p: particles are points of a lattice of spacing n^(-1/dim) that bends slowly, and no n points do better (Zador 1982);
- energy distance: n^(-(dim+1)/(2 dim)), the smallest that n points can have (Beck 1984; on spheres Stolarsky 1973), where independent
  points have n^(-1/2);
- averages of smooth functions: the energy of the lattice itself, n^(s/dim) in n H_N, moves the density by n^(-1 + s/dim) (Petrache &
  Serfaty 2017). It is the larger one on the line for s > 0; where s <= 0 the normalisation n - 1 leaves 1/n.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.special import zeta

from particles import Ball, Langevin, Riesz, simulate
from tests.ground_states_of_particles import (
    GASES,
    KAPPA,
    STRENGTH,
    WALL,
    energy_distance,
    ground_state,
    kolmogorov,
    radial_nodes,
    radii,
    squares,
    transport,
)
from theory.convergence import extrapolate, fit_rate
from theory.convergence.transport import wasserstein
from theory.equilibrium.walls import WallSphere
from theory.lattices import lattice


def slope(name, n, distance, law):
    return fit_rate(n, [distance(ground_state(name, k), law) for k in n]).slope


def falls_at(rate, tolerance, name, n, distance):
    """Distances to the law fall at the rate, those to the wrong laws do not."""
    gas = GASES[name]
    assert slope(name, n, distance, gas.law) == pytest.approx(rate, abs=tolerance)
    for wrong in gas.wrong:
        assert slope(name, n, distance, wrong) > rate + 2 * tolerance  # negative control


LINE, CLOUD = (16, 32, 64, 128), (25, 50, 100, 200)


@pytest.mark.parametrize("name", ["log, line", "-0.5, line", "log, interval"])
def test_transport_on_the_line(name):
    """1/n to the semicircle, the arcsine law and where s < 0: no energy of the lattice moves the particles farther."""
    falls_at(-1.0, 0.05, name, LINE if name != "log, interval" else LINE[:3], transport)
    first = [wasserstein(ground_state(name, k)[:, 0], GASES[name].law.quantile, 1) for k in LINE[:3]]
    assert fit_rate(LINE[:3], first).slope == pytest.approx(-1, abs=0.05)  # W_1 as well


def test_transport_on_the_line_above_the_log():
    """n^(-1 + s) for s > 0, slower than the 1/n of the best points: the particles are not those."""
    falls_at(-0.5, 0.05, "0.5, line", (64, 128, 256), transport)


@pytest.mark.parametrize(("name", "edge"), [("log, line", 1 / 3), ("-0.5, line", 3 / 5)])
def test_transport_on_the_line_to_the_last_factor(name, edge):
    """n W_2 tends to the root of int (q'^2/12 + shift^2) du, q the quantile function: a point for each piece of mass 1/n, moved by shift/n.

    Log: x_k = R (1 + 3/(4 n)) q((k - 1/4)/(n + 1/2)), the places of the zeros of Hermite polynomials (Plancherel & Rotach 1929). For
    s < 0 the radius grows by 1/((s + 2) n) as the strength is divided by n - 1. The particle at the edge adds the power `edge` of 1/n.
    """
    law = GASES[name].law
    t, weight = np.polynomial.legendre.leggauss(400)
    angle = np.pi / 2 * t
    x, weight = law.radius * np.sin(angle), weight * np.pi / 2 * law.radius * np.cos(angle)
    rho, u = law.density(x), law.cdf(x)
    moved = x * 3 / 4 + (1 - 2 * u) / (4 * rho) if law.s == 0 else x / (law.s + 2)
    predicted = np.sqrt(weight @ (1 / rho / 12 + rho * moved**2))
    n = np.array(LINE)
    scaled = n * [transport(ground_state(name, k), law) for k in n]
    limit = extrapolate(1 / n, scaled, powers=(edge, 1.0)).limit
    assert limit == pytest.approx(predicted, rel=0.003)
    assert limit != pytest.approx(np.sqrt(weight @ (1 / rho / 12)), rel=0.02)  # negative control: each point in the middle of its piece


PLANE = ["Coulomb, plane", "1, plane", "Coulomb, quartic", "charged disc"]


@pytest.mark.parametrize("name", PLANE)
def test_transport_in_the_plane(name):
    """n^(-1/2), within 5 % of the least that n points can have where the density is constant, above it by any measure."""
    falls_at(-0.5, 0.05, name, CLOUD[1:] if name == "charged disc" else CLOUD[:3], transport)
    if name == "Coulomb, plane":
        law, n = GASES[name].law, CLOUD[-1]
        least = np.sqrt(5 / (18 * np.sqrt(3)) * np.pi * law.radius**2 / n)  # hexagonal cells (Fejes Toth 1953)
        assert 0.99 * least < transport(ground_state(name, n), law) < 1.05 * least
        assert transport(law.sample(n, rng=1), law) > 1.4 * least  # negative control: independent points


@pytest.mark.parametrize("name", ["Coulomb, plane", "Coulomb, space", "Coulomb, quartic", "log, sphere", "0.5, sphere"])
def test_energy_distance(name):
    """n^(-(dim+1)/(2 dim)), of a sphere's dimension one less, where averages move no slower: s <= dim - 2."""
    dim = GASES[name].law.dim - ("sphere" in name)
    falls_at(-(dim + 1) / (2 * dim), 0.025, name, CLOUD, energy_distance)
    independent = np.array([[energy_distance(GASES[name].law.sample(n, rng=n + i), GASES[name].law) for i in range(4)] for n in CLOUD])
    assert fit_rate(CLOUD, independent).high > -0.6  # negative control: n^(-1/2)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PLANE, "1, quartic"])
def test_transport_of_more_particles_in_the_plane(name):
    falls_at(-0.5, 0.03, name, (50, 100, 200), transport)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Coulomb, plane", "Coulomb, space", "Coulomb, quartic", "log, sphere", "0.5, sphere"])
def test_energy_distance_of_more_particles(name):
    dim = GASES[name].law.dim - ("sphere" in name)
    falls_at(-(dim + 1) / (2 * dim), 0.015, name, (100, 200, 400, 800), energy_distance)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["1, plane", "2, space", "1, quartic"])
def test_energy_distance_where_the_lattice_moves_the_density(name):
    """Squared, a n^(-2 + 2 s/dim) + b n^(-1 - 1/dim) for s > dim - 2: what three n say of a fourth; a and b are positive."""
    n, law = np.array([100.0, 200, 400, 800]), GASES[name].law
    square = np.array([energy_distance(ground_state(name, int(k)), law) ** 2 for k in n])
    both = np.stack([n ** (-2 + 2 * law.s / law.dim), n ** (-1 - 1 / law.dim)])
    factors = np.linalg.lstsq((both[:, :3] / square[:3]).T, np.ones(3), rcond=None)[0]
    assert factors.min() > 0
    assert factors @ both[:, 3] == pytest.approx(square[3], rel=0.02)
    for power in both:  # negative controls: either alone
        assert square[2] * power[3] / power[2] != pytest.approx(square[3], rel=0.06)


@pytest.mark.parametrize(
    ("name", "rate"),
    [("Coulomb, plane", -1 / 2), ("1, plane", -1 / 2), ("Coulomb, quartic", -1 / 2), ("Coulomb, space", -1 / 3), ("2, space", -1 / 3)],
)
def test_radial_cumulative_function(name, rate):
    """n^(-1/dim): the outermost shell is a jump."""
    falls_at(rate, 0.06, name, (50, 100, 200, 400), kolmogorov)


@pytest.mark.parametrize(
    ("name", "crystal", "tolerance"),
    [("0.5, line", None, 0.01), ("1, plane", "triangular", 0.02), ("Coulomb, space", "bcc", 0.04), ("2, space", "bcc", 0.04)],
)
def test_the_lattice_moves_the_second_moment(name, crystal, tolerance):
    """<r^2> - int r^2 = n^(-1+s/dim) (strength/2) zeta_lattice(s) int rho^(1+s/dim) / (kappa (1/2 + 1/s)): what the lattice's energy adds
    to H_N is shared by trap and repulsion as the virial says. Bodies of a few hundred particles have a surface: powers n^(-1/dim)."""
    law = GASES[name].law
    r, weight, _ = radial_nodes(law)
    points = np.stack([r] + [0 * r] * (law.dim - 1), axis=-1)
    epstein = 2 * zeta(law.s) if crystal is None else lattice(crystal, 1.0).zeta(law.s)
    factor = STRENGTH / 2 * epstein * (law.density(points) ** (law.s / law.dim) @ weight) / (KAPPA * (1 / 2 + 1 / law.s))
    n = np.array([32, 64, 128, 256])
    excess = [squares(ground_state(name, k)).mean() - law.second_moment for k in n]
    limit = extrapolate(1 / n, excess * n ** (1 - law.s / law.dim), powers=(0.5, 1.0) if law.dim < 3 else (1 / 3,)).limit
    assert limit == pytest.approx(factor, rel=tolerance)
    assert limit != pytest.approx(2 * factor, rel=0.3)  # negative controls: without the half, and the law without the lattice
    assert limit != pytest.approx(0, abs=0.3 * abs(factor))


@pytest.mark.parametrize("n", [12, 40])
def test_circle(n):
    """The log gas in a disc is regular on the circle: energy distance^2 = R (4/pi - (2/n) cot(pi/(2n))), about pi R/(3 n^2)."""
    law = WallSphere(WALL, STRENGTH, 2, 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        sampler = Langevin(0.1, np.inf, drift_cap=0.07)
        run = simulate(0.9 * law.sample(n, rng=3), Riesz("coulomb", STRENGTH), Ball(WALL, 2), sampler, n_steps=1200, save_every=1200, rng=0)
    x = run["omega"].values[0, -1]
    np.testing.assert_allclose(radii(x), WALL, rtol=1e-12)
    found = energy_distance(x, law) ** 2
    assert found == pytest.approx(WALL * (4 / np.pi - 2 / n / np.tan(np.pi / (2 * n))), rel=1e-5)
    assert found != pytest.approx(np.pi * WALL / (3 * n**2), rel=1e-5)  # negative control: the limit alone


def test_charge_on_the_wall_of_a_trap():
    """The planar Coulomb gas whose ball is cut by a wall: 1 - kappa R^2/strength of it on the wall, and a layer of half a spacing more."""
    name, n = "Coulomb, trap and wall", (25, 50, 100, 200, 400)
    law = GASES[name].law
    assert law.wall_mass == pytest.approx(1 - KAPPA * 0.25 / STRENGTH)
    excess = [np.mean(radii(ground_state(name, k)) > 0.5 * (1 - 1e-9)) - law.wall_mass for k in n]
    assert fit_rate(n, excess).slope == pytest.approx(-1 / 2, abs=0.12)
    assert fit_rate(n, np.array(excess) + 0.1).slope > -0.38  # negative control: another charge
    falls_at(-3 / 4, 0.06, name, n, energy_distance)


def test_share_of_the_particles_on_the_wall():
    """Density depth^((s-dim)/2) in a layer of one particle's size: n^(-(s-dim+2)/(s+dim)), n^(-1/3) on the charged disc, 2/n on a line."""
    n = (50, 100, 200, 400)
    share = [np.mean(radii(ground_state("charged disc", k)) > WALL * (1 - 1e-9)) for k in n]
    assert fit_rate(n, share).slope == pytest.approx(-1 / 3, abs=0.06)
    for k in LINE[:3]:
        assert np.sum(np.abs(ground_state("log, interval", k)) > WALL * (1 - 1e-9)) == 2
    for name in ("log, sphere", "0.5, sphere"):  # s <= dim - 2: all of them
        np.testing.assert_allclose(radii(ground_state(name, 100)), WALL, rtol=1e-12)
    assert share[-1] < 0.5  # negative control
