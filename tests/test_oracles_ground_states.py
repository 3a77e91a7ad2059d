"""Energies and zero-temperature descents against ground states and equilibrium measures in closed form.

Everything is deterministic but for independent draws from an equilibrium, whose z-tests at 4 have a false-alarm rate of 6e-5.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from numpy.polynomial.legendre import Legendre
from scipy.optimize import minimize
from scipy.special import gamma, zeta

from particles import Ball, Box, FullSpace, Langevin, Quadratic, Riesz, Torus, geometric, simulate
from theory.equilibrium import CoulombBall, RieszBall, Semicircle
from theory.ground_states import hermite_energy, hermite_ground_state

KAPPA, STRENGTH = 0.8, 1.3


def settled(start, energy, domain, step_size, n_steps, drift_cap=0.02):
    """Where capped steepest descent, projected on the domain, has led (particle, dim) to, and H_N there."""
    sampler = Langevin(step_size, np.inf, drift_cap=drift_cap)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of the capped steps of a random start
        run = simulate(start, energy, domain, sampler, n_steps=n_steps, save_every=n_steps, rng=0)
    return run["omega"].values[0, -1], float(run["energy"][0, -1])


def gradient_size(energy, x):
    """Largest gradient of a particle, relative to the largest force of one pair."""
    gap = np.linalg.norm(x[:, None] - x, axis=-1) + np.diag(np.full(len(x), np.inf))
    return np.abs(energy.gradient(x)).max() * (len(x) - 1) * gap.min()


def z_score(draws, predicted):
    return (np.mean(draws) - predicted) / (np.std(draws, ddof=1) / np.sqrt(len(draws)))


def scaled_gap(law, n, found):
    """(N-1) times the gap of H_N to the equilibrium's energy, of the order N^(s/dim).

    N particles that repel with strength/(N-1) are the charge N in the trap (N-1) kappa/N: H_N is N/(N-1) of that equilibrium's energy
    before the gap.
    """
    equilibrium = [k / (k - 1) * replace(law, kappa=(k - 1) / k * law.kappa).energy for k in n]
    return (np.asarray(n) - 1) * (np.array(equilibrium) - np.array(found))


def slope(n, gap):
    return np.polyfit(np.log(n), np.log(gap), 1)[0]


# The log gas on a line: zeros of orthogonal polynomials.


@pytest.mark.parametrize(("n", "kappa", "strength"), [(2, 0.6, 2.3), (7, 3.1, 0.4), (33, 0.8, 1.3), (120, 0.2, 5.0)])
def test_hermite_zeros_are_the_ground_state_in_a_trap(n, kappa, strength):
    energy, x = Quadratic(kappa) + Riesz(0.0, strength), hermite_ground_state(n, kappa, strength)
    assert gradient_size(energy, x) < 1e-9
    assert float(energy.value(x)) == pytest.approx(hermite_energy(n, kappa, strength), rel=1e-12, abs=1e-12)
    assert np.mean(x**2) == pytest.approx(strength / (2 * kappa), rel=1e-12)
    near = x + 1e-3 * np.random.default_rng(0).normal(size=x.shape) * np.abs(x).max() / n
    assert float(energy.value(near)) > hermite_energy(n, kappa, strength)
    assert gradient_size(Quadratic(kappa) + Riesz(0.05, strength), x) > 1e-3  # negative control: another exponent


def test_descent_finds_the_hermite_zeros():
    start = np.random.default_rng(3).normal(size=(14, 1))
    x, energy = settled(start, Quadratic(KAPPA) + Riesz(0.0, STRENGTH), FullSpace(1), 0.02, 1500, 0.1)
    np.testing.assert_allclose(np.sort(x[:, 0]), hermite_ground_state(14, KAPPA, STRENGTH)[:, 0], atol=1e-9)
    assert energy == pytest.approx(hermite_energy(14, KAPPA, STRENGTH), rel=1e-12)


def test_energy_on_a_line_tends_to_the_semicircle():
    """The gap to the equilibrium of the same charge is strength (log N + constant)/2 after multiplication by N - 1."""
    n = np.array([64, 128, 256, 512])
    energy = Quadratic(KAPPA) + Riesz(0.0, STRENGTH)
    found = [float(energy.value(hermite_ground_state(k, KAPPA, STRENGTH))) for k in n]
    gap = scaled_gap(Semicircle(KAPPA, STRENGTH), n, found)
    np.testing.assert_allclose(np.diff(gap), STRENGTH / 2 * np.log(2), rtol=2e-3)
    x = hermite_ground_state(512, KAPPA, STRENGTH)[:, 0]
    assert np.abs(x - Semicircle(KAPPA, STRENGTH).quantile((np.arange(512) + 0.5) / 512)).max() < 1e-2


@pytest.mark.parametrize(("n", "half_width"), [(3, 0.7), (9, 1.4), (30, 2.5)])
def test_legendre_zeros_and_end_points_are_the_ground_state_between_walls(n, half_width):
    energy = Riesz(0.0, STRENGTH)
    x = half_width * np.r_[-1, np.sort(Legendre.basis(n - 1).deriv().roots().real), 1][:, None]
    force = -energy.gradient(x)[:, 0]
    unit = STRENGTH / half_width
    assert np.abs(force[1:-1]).max() < 1e-9 * n**2 * unit
    np.testing.assert_allclose(force[[0, -1]], [-n / 4 * unit, n / 4 * unit], rtol=1e-9)  # the walls hold N(N-1)/4 units
    if n == 9:
        start = np.linspace(-1, 1, n)[:, None] + 0.03 * np.random.default_rng(1).normal(size=(n, 1))
        found, value = settled(start, energy, Box(-half_width, half_width), 0.02, 1200)
        np.testing.assert_allclose(np.sort(found[:, 0]), x[:, 0], atol=1e-9)
        assert value == pytest.approx(float(energy.value(x)), rel=1e-12)


def test_energy_between_walls_tends_to_the_capacity():
    """Mean of -log |x - y| under the arcsine law on [-L, L] is log(2/L); (N-1) times the gap is strength (log N + constant)/2."""
    gap = []
    for n in (40, 80, 160):
        x = 1.7 * np.r_[-1, np.sort(Legendre.basis(n - 1).deriv().roots().real), 1][:, None]
        gap.append((n - 1) * (STRENGTH / 2 * np.log(2 / 1.7) - float(Riesz(0.0, STRENGTH).value(x))))
    np.testing.assert_allclose(np.diff(gap), STRENGTH / 2 * np.log(2), rtol=0.02)
    wrong = np.array(gap) + np.array([39, 79, 159]) * STRENGTH / 2 * np.log(1.7 / 1.69)  # negative control: an interval 0.6 % off
    assert abs(np.diff(wrong) / (STRENGTH / 2 * np.log(2)) - 1).min() > 0.02


@pytest.mark.parametrize(("n", "radius"), [(5, 0.6), (12, 2.0)])
def test_roots_of_unity_are_the_ground_state_in_a_disc(n, radius):
    """Sum over ordered pairs of -log |z_k - z_l| = -n log n at radius 1; each particle is pushed outwards by strength/(2 radius)."""
    energy, angle = Riesz("coulomb", STRENGTH), 2 * np.pi * np.arange(n) / n
    x = radius * np.column_stack([np.cos(angle), np.sin(angle)])
    expected = STRENGTH / 2 * (-np.log(n) / (n - 1) - np.log(radius))
    assert float(energy.value(x)) == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(-energy.gradient(x), STRENGTH / (2 * radius**2) * x, atol=1e-12)
    start = Ball(radius, 2).sample(n, rng=4)
    found, value = settled(start, energy, Ball(radius, 2), 0.1 * radius**2, 800, 0.05 * radius)
    assert value == pytest.approx(expected, abs=1e-10)
    phase = np.sort(np.arctan2(found[:, 1], found[:, 0]))
    np.testing.assert_allclose(np.diff(phase), 2 * np.pi / n, atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), radius, rtol=1e-12)


# Equilibrium measures in a trap.

LAWS = {
    "line 0.5": RieszBall(KAPPA, STRENGTH, 1, 0.5),
    "plane Coulomb": CoulombBall(KAPPA, STRENGTH, 2),
    "plane 1": RieszBall(KAPPA, STRENGTH, 2, 1.0),
    "space 2": RieszBall(KAPPA, STRENGTH, 3, 2.0),
    "space Coulomb": CoulombBall(KAPPA, STRENGTH, 3),
    "eight dimensions Coulomb": CoulombBall(KAPPA, STRENGTH, 8),
}


@pytest.mark.parametrize("name", [name for name in LAWS if name != "plane Coulomb"])
def test_energy_of_ground_states_in_a_trap_tends_to_the_equilibrium_at_its_rate(name):
    """(N-1) times the gap grows like N^(s/dim)."""
    law, line = LAWS[name], name == "line 0.5"
    n = np.array([16, 32, 64, 128] if line else [32, 64, 128, 256])
    energy, found = Quadratic(KAPPA) + Riesz(law.s, STRENGTH), []
    for k in n:
        start = law.radius * np.linspace(-1, 1, k)[:, None] if line else law.sample(k, rng=1)
        found.append(settled(start, energy, FullSpace(law.dim), 0.002 if line else 0.02, 1000 if line else 500)[1])
    gap, rate = scaled_gap(law, n, found), law.s / law.dim
    assert slope(n, gap) == pytest.approx(rate, abs=0.035)
    for wrong in gap + np.array([[0.1], [-0.1]]) * law.energy * (n - 1):  # negative control: an energy 10 % off
        assert (wrong < 0).any() or abs(slope(n, wrong) - rate) > 0.035


def test_energy_of_the_planar_log_gas_tends_to_the_equilibrium():
    """(N-1) times the gap is strength/4 log N + constant."""
    law, n = CoulombBall(KAPPA, STRENGTH, 2), np.array([32, 64, 128, 256])
    energy = Quadratic(KAPPA) + Riesz("coulomb", STRENGTH)
    found = [settled(law.sample(k, rng=1), energy, FullSpace(2), 0.02, 600) for k in n]
    gap = scaled_gap(law, n, [value for _, value in found])
    assert np.polyfit(np.log(n), gap, 1)[0] == pytest.approx(STRENGTH / 4, rel=0.05)
    assert np.polyfit(np.log(n), gap + 0.01 * law.energy * n, 1)[0] != pytest.approx(STRENGTH / 4, rel=0.05)  # negative control
    square = np.sum(found[-1][0] ** 2, axis=1)
    assert square.mean() == pytest.approx(STRENGTH / (2 * KAPPA), rel=1e-5)
    assert np.sqrt(square.max()) == pytest.approx(law.radius, rel=0.06)  # the outer shell lies half a spacing inside


@pytest.mark.parametrize("name", ["line 0.5", "plane Coulomb", "plane 1", "space Coulomb", "space 2"])
def test_profile_of_ground_states_in_a_trap(name):
    """<r^2>/R^2 and <r^4>/<r^2>^2 of N = 200 particles are those of the Beta profile, N^(s/dim - 1) taken off by N = 100."""
    law, line = LAWS[name], name == "line 0.5"
    energy, moments = Quadratic(KAPPA) + Riesz(law.s, STRENGTH), []
    for k in (60, 120) if line else (100, 200):
        start = law.radius * np.linspace(-1, 1, k)[:, None] if line else law.sample(k, rng=2)
        x, _ = settled(start, energy, FullSpace(law.dim), 0.002 if line else 0.02, 1000 if line else 500)
        square = np.sum(x**2, axis=1)
        moments.append([square.mean(), (square**2).mean()])
    falls = 2 ** (law.s / law.dim - 1)
    second, fourth = (np.array(moments[1]) - falls * np.array(moments[0])) / (1 - falls)
    half, power = law.dim / 2, law.exponent + 1
    assert second == pytest.approx(law.second_moment, rel=0.015)
    assert fourth / second**2 == pytest.approx((half + 1) * (half + power) / (half * (half + power + 1)), rel=0.02)
    assert second != pytest.approx(law.second_moment * 1.05, rel=0.015)  # negative control


@pytest.mark.parametrize("dim", [2, 3])
def test_annealing_from_a_crowded_start_finds_the_coulomb_ball(dim):
    """Cooling to zero temperature: as low as a descent from the equilibrium measure, within 2 % of the gap to its energy."""
    n, law = 60, CoulombBall(KAPPA, STRENGTH, dim)
    energy, crowded = Quadratic(KAPPA) + Riesz("coulomb", STRENGTH), 0.01 * np.random.default_rng(1).normal(size=(n, dim)) + 0.5
    sampler = Langevin(0.02, geometric(20.0, 1e5, 500), drift_cap=0.02)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        run = simulate(crowded, energy, FullSpace(dim), sampler, n_steps=600, save_every=300, rng=0)
    x, value = settled(run["omega"].values[0, -1], energy, FullSpace(dim), 0.02, 200)
    _, reference = settled(law.sample(n, rng=1), energy, FullSpace(dim), 0.02, 800)
    gap = law.energy - reference
    assert value == pytest.approx(reference, abs=0.02 * gap)
    hot = float(run["energy"][0, 1])  # negative control: half way it is still warm
    assert hot > reference + 0.02 * gap
    assert np.linalg.norm(x, axis=1).max() == pytest.approx(law.radius * (1 - 0.4 * n ** (-1 / dim)), rel=0.05)  # the outer shell


def test_coulomb_gas_on_a_line_is_equally_spaced():
    n = 17
    x, _ = settled(np.random.default_rng(0).normal(size=(n, 1)), Quadratic(KAPPA) + Riesz("coulomb", STRENGTH), FullSpace(1), 0.2, 300)
    spacing = 2 * CoulombBall(KAPPA, STRENGTH, 1).radius / (n - 1)
    np.testing.assert_allclose(np.sort(x[:, 0]), spacing * (np.arange(n) - (n - 1) / 2), atol=1e-12)


INDEPENDENT = [
    RieszBall(KAPPA, STRENGTH, 1, 0.3),
    RieszBall(KAPPA, STRENGTH, 1, -0.6),
    RieszBall(KAPPA, STRENGTH, 2, 0.7),
    RieszBall(KAPPA, STRENGTH, 3, 1.3),
    CoulombBall(KAPPA, STRENGTH, 1),
    CoulombBall(KAPPA, STRENGTH, 2),
    CoulombBall(KAPPA, STRENGTH, 3),
]


@pytest.mark.parametrize("law", INDEPENDENT, ids=lambda law: f"d{law.dim} s{law.s:g}")
def test_energy_of_independent_draws_is_the_equilibrium_energy(law):
    """E H_N of independent particles is the energy of their law, for any N; the pair energy has a variance as 2 s < dim."""
    energy = Quadratic(KAPPA) + Riesz(law.s, STRENGTH)
    values = energy.value(law.sample(600 * 30, rng=5).reshape(600, 30, law.dim))
    assert abs(z_score(values, law.energy)) < 4
    assert abs(z_score(values, replace(law, kappa=1.1 * KAPPA, strength=1.1 * STRENGTH).energy)) > 4


# Hard walls: boundary layers and condensation on the sphere.


def sphere_energy(dim, s):
    """Mean of g_s between independent points on the unit sphere of R^dim, log for s = 0 by the derivative in s."""
    if s == 0:
        return (sphere_energy(dim, 1e-5) + sphere_energy(dim, -1e-5)) / 2e-5
    mean = 2.0 ** (dim - 2 - s) * gamma(dim / 2) * gamma((dim - 1 - s) / 2) / (np.sqrt(np.pi) * gamma(dim - 1 - s / 2))
    return np.sign(s) * mean


@pytest.mark.parametrize(("dim", "s"), [(3, 0.0), (3, 0.6), (3, "coulomb"), (4, 1.5), (8, 1.0), (9, -0.7)])
def test_particles_condense_on_the_sphere(dim, s):
    """For s <= dim - 2 without a trap every particle ends on the wall; H_N rises to the sphere's energy like N^(s/(dim-1) - 1)."""
    radius, n = 1.4, np.array([16, 32, 64])
    exponent = dim - 2.0 if s == "coulomb" else s
    found = []
    for k in n:
        x, value = settled(
            0.9 * Ball(radius, dim).sample(k, rng=1), Riesz(s, STRENGTH), Ball(radius, dim), 0.1, 1500 if s == "coulomb" else 400
        )
        assert np.mean(np.linalg.norm(x, axis=1) > radius * (1 - 1e-9)) == 1
        found.append(value)
    limit = sphere_energy(dim, exponent) * radius**-exponent if exponent else sphere_energy(dim, 0) - np.log(radius)
    gap = STRENGTH / 2 * limit - np.array(found)
    assert (gap > 0).all()
    # log n / n for the log; for s < 0 the pair (k, k) alone is missing, 1 / n
    rate = {True: exponent / (dim - 1) - 1, False: -1.0}[exponent > 0]
    measured = slope(n, gap if exponent else gap / (np.log(n) + 1))
    assert measured == pytest.approx(rate, abs=0.12)


def test_particles_do_not_condense_above_the_threshold():
    """Negative control: for s > dim - 2 a part of the particles stays inside."""
    x, _ = settled(0.9 * Ball(1.4, 3).sample(120, rng=1), Riesz(1.9, STRENGTH), Ball(1.4, 3), 0.02, 400)
    assert np.mean(np.linalg.norm(x, axis=1) > 1.4 * (1 - 1e-9)) < 0.95


def test_weak_repulsion_on_an_interval_collects_at_both_ends():
    """For -2 < s <= -1 in one dimension half of the particles sit on each end, exactly."""
    x, value = settled(Ball(1.4, 1).sample(30, rng=1), Riesz(-1.5, STRENGTH), Ball(1.4, 1), 0.05, 400)
    assert np.sort(x[:, 0]).tolist() == [-1.4] * 15 + [1.4] * 15
    assert value == pytest.approx(-STRENGTH * 15 * 15 / (30 * 29) * 2.8**1.5, rel=1e-12)


@pytest.mark.parametrize(("s", "kappa"), [(0.0, 0.8), (1.0, 0.8), (2.0, 1.5)])
def test_weak_repulsion_in_a_trap_of_eight_dimensions_makes_a_sphere(s, kappa):
    """For s <= dim - 4 the equilibrium in a quadratic trap is uniform on a sphere (Chafai, Saff & Womersley 2023); its virial radius."""
    power = s if s else 1.0
    radius = (power * STRENGTH * (sphere_energy(8, s) if s else 1.0) / (2 * kappa)) ** (1 / (s + 2))
    gap = []
    for n in (48, 96):
        start = 0.5 * np.random.default_rng(0).normal(size=(n, 8))
        x, _ = settled(start, Quadratic(kappa) + Riesz(s, STRENGTH), FullSpace(8), 0.05, 500)
        r = np.linalg.norm(x, axis=1)
        assert r.std() < 3e-3 * r.mean()
        gap.append(radius / r.mean() - 1)
    if s == 0:
        assert np.abs(gap).max() < 1e-6
    else:
        assert np.log2(gap[1] / gap[0]) == pytest.approx(s / 7 - 1, abs=0.12)
        wrong = np.array(gap) * 1.03 + 0.03  # negative control: a radius 3 % off
        assert abs(np.log2(wrong[1] / wrong[0]) - (s / 7 - 1)) > 0.12


@pytest.mark.parametrize(("dim", "s"), [(1, 0.3), (2, 0.7), (3, 1.2)])
def test_energy_of_independent_draws_from_a_hard_wall_equilibrium(dim, s):
    """dim - 2 < s < dim: density (R^2 - r^2)^((s - dim)/2), energy strength/2 R^-s Gamma((dim-s)/2) Gamma(1+s/2)/Gamma(dim/2)."""
    rng, radius = np.random.default_rng(1), 1.4
    direction = rng.normal(size=(600, 30, dim))
    direction /= np.linalg.norm(direction, axis=-1, keepdims=True)
    x = radius * np.sqrt(rng.beta(dim / 2, (s - dim) / 2 + 1, (600, 30, 1))) * direction
    limit = STRENGTH / 2 * radius**-s * gamma((dim - s) / 2) * gamma(1 + s / 2) / gamma(dim / 2)
    values = Riesz(s, STRENGTH).value(x)
    assert abs(z_score(values, limit)) < 4
    assert abs(z_score(values, 1.05 * limit)) > 4


@pytest.mark.parametrize(("dim", "s", "n_particles"), [(1, 0.5, (16, 32, 64)), (2, 1.0, (64, 128, 256))])
def test_energy_of_ground_states_behind_a_hard_wall(dim, s, n_particles):
    radius, found = 1.4, []
    for n in n_particles:
        start = radius * np.linspace(-1, 1, n)[:, None] if dim == 1 else Ball(radius, 2).sample(n, rng=1)
        step = 0.3 / n**2 if dim == 1 else 0.02
        found.append(settled(start, Riesz(s, STRENGTH), Ball(radius, dim), step, 1000 if dim == 1 else 400)[1])
    limit = STRENGTH / 2 * radius**-s * gamma((dim - s) / 2) * gamma(1 + s / 2) / gamma(dim / 2)
    gap = limit - np.array(found)
    assert slope(n_particles, gap) == pytest.approx(s / dim - 1, abs=0.06)
    assert abs(slope(n_particles, gap + 0.1 * limit) - (s / dim - 1)) > 0.06  # negative control


# Hypersingular interactions and lattices.


@pytest.mark.parametrize(("s", "n", "length"), [(1.7, 16, 2.0), (2.5, 24, 0.7), (4.0, 12, 1.0)])
def test_hypersingular_minimiser_on_an_interval(s, n, length):
    """Below the energy of equal spacing and below 2 zeta(s) N^(1+s)/L^s, and what an independent optimiser finds."""
    energy = Riesz(s, 2.0 * n * (n - 1))  # so that H_N is the sum over ordered pairs
    equal, gap = np.linspace(0, length, n)[:, None], length / (n - 1)
    x, value = settled(equal, energy, Box(0.0, length), gap ** (s + 2) / (15 * n * s * (s + 1)), 1000, 0.05 * gap)
    bound = 2 * zeta(s) * n ** (1 + s) / length**s
    assert 0.6 * bound < value < float(energy.value(equal)) < bound

    def total(inner):  # in hundredths of the gap, so that the first trial step stays in order
        gaps = np.abs(np.subtract.outer(*(2 * [np.r_[0.0, inner * gap / 100, length]])))[np.triu_indices(n, 1)]
        return 2 * np.sum(gaps**-s) / bound

    best = minimize(total, equal[1:-1, 0] * 100 / gap, method="BFGS", options={"maxiter": 300, "gtol": 1e-9})
    assert value == pytest.approx(best.fun * bound, rel=1e-7)
    assert (x.min(), x.max()) == (0.0, length)


@pytest.mark.parametrize("s", [1.8, 2.5, 3.5])
def test_hypersingular_energy_tends_to_its_constant(s):
    """Equal spacing on [0, L] reaches 2 zeta(s) N^(1+s)/L^s at the rate N^(1-s) or 1/N, whichever is slower."""
    n, length, gap = np.array([100, 200, 400]), 0.7, []
    for k in n:
        value = float(Riesz(s, 2.0 * k * (k - 1)).value(np.linspace(0, length, k)[:, None]))
        gap.append(1 - value * length**s / (2 * zeta(s) * k ** (1 + s)))
    assert slope(n, gap) == pytest.approx(max(1 - s, -1), abs=0.12)
    assert abs(slope(n, np.array(gap) + 0.02) - max(1 - s, -1)) > 0.12  # negative control: a constant 2 % off


def test_hypersingular_particles_on_a_circle_are_equally_spaced():
    n, period = 12, 3.0
    start = np.linspace(0, period, n, endpoint=False)[:, None] + 0.04 * np.random.default_rng(0).normal(size=(n, 1))
    x, value = settled(start % period, Riesz(2.5, 0.1, period=period), Torus(period), 2e-3, 800, 0.01)
    gaps = np.diff(np.sort(x[:, 0]))
    np.testing.assert_allclose(gaps, period / n, rtol=1e-6)
    chord = period / np.pi * np.sin(np.pi * np.arange(1, n) / n)
    assert value == pytest.approx(0.1 / 2 * np.mean(chord**-2.5), rel=1e-12)


def lattice_zeta(s):
    """sum' |x|^-s over the triangular and the square lattice of unit covolume, by Dirichlet series."""
    third = 3 ** (-s / 2) * (zeta(s / 2, 1 / 3) - zeta(s / 2, 2 / 3))
    fourth = 4 ** (-s / 2) * (zeta(s / 2, 1 / 4) - zeta(s / 2, 3 / 4))
    return {"triangular": 6 * (np.sqrt(3) / 2) ** (s / 2) * zeta(s / 2) * third, "square": 4 * zeta(s / 2) * fourth}


def lattice(name, m):
    """A patch of unit density that closes on a torus: points (n, 2) and periods."""
    if name == "square":
        return np.stack(np.meshgrid(np.arange(m), np.arange(m)), -1).reshape(-1, 2) + 0.5, (float(m), float(m))
    a, k = np.sqrt(2 / np.sqrt(3)), round(m / np.sqrt(3))
    rows = np.stack(np.meshgrid(np.arange(m), np.arange(k)), -1).reshape(-1, 2) * [a, np.sqrt(3) * a]
    return np.concatenate([rows, rows + np.array([a / 2, np.sqrt(3) * a / 2])]) + 0.1, (m * a, k * np.sqrt(3) * a)


@pytest.mark.parametrize("s", [3.0, 5.0])
@pytest.mark.parametrize("name", ["triangular", "square"])
def test_lattices_on_a_torus_have_the_energy_of_the_epstein_zeta_function(name, s):
    """Sum of r^-s per particle; chords shorten far distances, an error that falls like the square of the period, or M^(2-s) for s < 4."""
    predicted, found = lattice_zeta(s)[name], []
    for m in (14, 28, 56):
        x, period = lattice(name, m)
        energy = Riesz(s, 2.0 * (len(x) - 1), period=period)
        assert np.abs(energy.gradient(x)).max() < 1e-7 * len(x)
        found.append(float(energy.value(x)))
    falls = 2.0 ** (2 - s if s < 4 else -2)
    limit = (found[2] - falls * found[1]) / (1 - falls)
    assert limit == pytest.approx(predicted, rel=5e-3)
    assert limit != pytest.approx(1.02 * predicted, rel=5e-3)  # negative control
    assert lattice_zeta(s)["triangular"] < lattice_zeta(s)["square"]
