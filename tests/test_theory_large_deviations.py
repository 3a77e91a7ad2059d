"""Rate functions against relative entropy, exact Gamma laws, determinants at index 2, exact normalisers and exact samplers."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import binom, binomtest, kstest

from theory.ensembles import (
    circle_gas_log_partition,
    log_gas_log_partition,
    sample_log_gas,
    wall_gas_log_partition,
)
from theory.ensembles.virial import square_sum_law
from theory.equilibrium import GaussWigner, Semicircle
from theory.large_deviations import EnergyRate, GibbsRate, confinement_rate, empirical_rate, require_finite_energy, riesz
from theory.large_deviations.log_gas import (
    circle_gap_rate,
    circle_normaliser,
    largest_particle_cdf,
    pulled_rate,
    pushed_rate,
    second_moment_rate,
    trap_normaliser,
    wall_normaliser,
)
from theory.mean_field import MeanField
from theory.mean_field.meshes import Rectangle
from theory.mean_field.radial import RadialBall


def second_moment_tail(n, value, beta, kappa, strength, dim=1):
    """P((1/n) sum |x|^2 >= value), exactly."""
    return square_sum_law(n, dim, beta, kappa, strength).sf(n * np.asarray(value))


CASES = [(6.0, 1.3, 0.7), (1.0, 1.0, 3.0), (0.5, 2.0, 1.0), (30.0, 0.4, 0.9)]  # beta, kappa, strength


def log_gas(beta, kappa, strength, edges):
    return MeanField(lambda x: kappa * x**2 / 2, riesz(0.0, strength, 1), beta, edges)


# Finite energies


def least_energy(n, s):
    """min W_N on [0, 1] by Newton's method, a convex problem for points in order."""
    x = (1 - np.cos(np.pi * np.arange(n) / (n - 1))) / 2 if s < 1 else np.linspace(0, 1, n)
    i, j = np.triu_indices(n, 1)

    def energy(x):
        gap = x[j] - x[i]
        return np.sum(gap**-s) / (n * (n - 1)) if (gap > 0).all() else np.inf

    for _ in range(60):
        gap = x[:, None] - x + np.eye(n)
        slope = -s * np.sign(gap) * np.abs(gap) ** (-s - 1) * (1 - np.eye(n))
        bend = s * (s + 1) * np.abs(gap) ** (-s - 2) * (1 - np.eye(n))
        step = np.zeros(n)
        step[1:-1] = np.linalg.solve((np.diag(bend.sum(1)) - bend)[1:-1, 1:-1], slope.sum(1)[1:-1])
        size = 1.0
        while energy(x - size * step) > energy(x) and size > 1e-9:
            size /= 2
        x = x - size * step
    return energy(x)


def test_energies_grow_where_the_check_refuses_and_stay_bounded_where_it_accepts():
    small, large = 60, 120
    for s in (1.5, 2.0, 3.0):
        with pytest.raises(ValueError, match="infinite"):
            require_finite_energy(s, 1)
        constant = float(mpmath.zeta(s))  # Hardin & Saff: W_N ~ zeta(s) N^(s - 1) on a unit interval
        ratios = [least_energy(n, s) / (constant * n ** (s - 1)) for n in (small, large)]
        assert 0.8 < ratios[1] < 1
        assert ratios[0] < ratios[1]  # from below, the slower the closer s is to 1
        assert np.log2(least_energy(large, s) / least_energy(small, s)) == pytest.approx(s - 1, abs=0.12)
    with pytest.raises(ValueError, match="infinite"):
        require_finite_energy(1.0, 1)
    assert least_energy(large, 1.0) - least_energy(small, 1.0) == pytest.approx(np.log(2), abs=0.02)  # the border case: W_N ~ log N
    require_finite_energy(0.5, 1)
    limit = 0.5 ** (1 - 0.5) * 1.8540746773  # half the energy of the equilibrium measure on an interval of radius 1/2
    assert least_energy(small, 0.5) < least_energy(large, 0.5) < limit


def test_truncated_energies_are_finite_and_diverge_with_the_truncation():
    def energy(width, s):
        n = 2 * int(1 / width)
        field = MeanField(None, riesz(s, 1.0, 1, truncation=width), 3.0, np.linspace(0, 1, n + 1))
        return field.free_energy(np.ones(n))

    for width in (0.1, 0.05, 0.025):
        assert energy(width, 2.0) == pytest.approx(2 / width - 1.5 + np.log(width), rel=1e-9)  # iint by hand
    values = [energy(width, 0.5) for width in (0.1, 0.05, 0.025, 0.0125)]
    gaps = 4 / 3 - np.array(values)  # below dim they converge, to (1/2) 2/((1 - s)(2 - s)) = 4/3, with the root of the truncation
    np.testing.assert_allclose(gaps[1:] / gaps[:-1], np.sqrt(0.5), rtol=0.01)


@pytest.mark.parametrize(
    "bad",
    [
        {"s": 1.0},
        {"s": 2.5, "dim": 2},
        {"s": -2.0},
        {"truncation": 0.1, "s": np.nan},
        {"truncation": 0.1, "s": np.inf},
        {"truncation": 0.0},
        {"dim": 0},
        {"s": "1"},
    ],
)
def test_the_check_refuses(bad):
    with pytest.raises(ValueError, match=next(reversed(bad))):
        require_finite_energy(**{"s": 0.5, "dim": 1} | bad)


def test_riesz_interaction_is_the_package_s():
    r = np.array([0.05, 0.7, 2.0])
    np.testing.assert_allclose(riesz(0.5, 0.7, 1)(r), 0.7 * r**-0.5)
    np.testing.assert_allclose(riesz(0.0, 0.7, 1)(r), -0.7 * np.log(r))
    np.testing.assert_allclose(riesz(-1.0, 0.7, 1)(r), -0.7 * r)
    np.testing.assert_allclose(riesz(3.0, 0.7, 2, truncation=0.1)(r), 0.7 * np.maximum(r, 0.1) ** -3)


# Rates of densities


def test_rate_of_free_particles_is_the_relative_entropy():
    field = MeanField(lambda x: x**4 / 4, None, 2.5, np.linspace(-3, 3, 201))
    law = GibbsRate(field)
    rng = np.random.default_rng(1)
    for _ in range(5):
        rho = rng.random(200)
        rho /= rho.sum() * field.width
        sanov = field.width * np.sum(rho * np.log(rho / law.minimum.rho))
        assert law.rate(rho) == pytest.approx(sanov, rel=1e-10)
    assert law.rate(law.minimum.rho) == 0


@pytest.mark.parametrize(("beta", "kappa", "strength"), CASES)
def test_free_energy_minimum_is_the_log_gas_normaliser(beta, kappa, strength):
    span = 4 * np.sqrt(1 / (beta * kappa)) + 2 * Semicircle(kappa, strength).radius
    coarse, fine = (GibbsRate(log_gas(beta, kappa, strength, np.linspace(-span, span, n))).free_energy for n in (201, 401))
    exact = trap_normaliser(beta, kappa, strength).free_energy
    assert fine + (fine - coarse) / 3 == pytest.approx(exact, abs=2e-5 * abs(fine - coarse) + 1e-5)  # second order in the width
    assert exact == pytest.approx(GaussWigner(kappa, strength, beta).free_energy, rel=1e-12)
    box = [
        GibbsRate(MeanField(None, riesz(0.0, strength, 1), beta, np.linspace(-1.4, 1.4, n))).free_energy for n in (101, 201, 401)
    ]  # charge piles up at the walls: a lower order, so extrapolate by the observed one
    order = np.log2((box[1] - box[0]) / (box[2] - box[1]))
    limit = box[2] + (box[2] - box[1]) / (2**order - 1)
    assert limit == pytest.approx(wall_normaliser(beta, strength, 1.4).free_energy, abs=3e-5)


@pytest.mark.parametrize(("beta", "kappa", "strength"), CASES)
def test_normalisers_are_exact_to_the_second_order_in_the_number_of_particles(beta, kappa, strength):
    cases = [
        (trap_normaliser(beta, kappa, strength), lambda n: log_gas_log_partition(n, beta, kappa, strength)),
        (wall_normaliser(beta, strength, 0.8), lambda n: wall_gas_log_partition(n, beta, strength, 0.8)),
        (circle_normaliser(beta, strength, 2.3), lambda n: circle_gas_log_partition(n, beta, strength, 2.3)),
    ]
    for law, exact in cases:
        errors = [abs(exact(n) - law.log_partition(n)) for n in (200, 400, 800)]
        slope = -np.polyfit(np.log([200, 400, 800]), np.log(errors), 1)[0]
        assert 1.95 < slope < 2.1  # the remainder is O(1/n^2)
        leading = [exact(n) + n * beta * law.free_energy - law.constant for n in (200, 400, 800)]
        assert -np.polyfit(np.log([200, 400, 800]), np.log(np.abs(leading)), 1)[0] == pytest.approx(1, abs=0.05)
        assert -exact(10**6) / (10**6 * beta) == pytest.approx(law.free_energy, abs=2e-5 * (1 + abs(law.constant) / beta))


# Rates of linear statistics


@pytest.mark.parametrize(("beta", "kappa", "strength"), [CASES[0], *(pytest.param(*case, marks=pytest.mark.slow) for case in CASES[1:3])])
def test_second_moment_of_the_log_gas_deviates_at_the_gamma_law_s_rate(beta, kappa, strength):
    span = 12 / np.sqrt(beta * kappa) + Semicircle(kappa, strength).radius
    field = log_gas(beta, kappa, strength, np.linspace(-span, span, 401))
    law, square = GibbsRate(field), field.cell_average(np.square)
    mean = (1 + beta * strength / 2) / (beta * kappa)
    for value in (0.5 * mean, 1.3 * mean, 1.7 * mean):
        found = law.linear_statistic(square, value)
        assert found.rate == pytest.approx(float(second_moment_rate(value, beta, kappa, strength)), rel=0.01)  # error of 400 cells
        assert found.tilt == pytest.approx(beta * kappa / 2 * (1 - mean / value), rel=0.01)  # d rate / d value
        assert law.rate(found.rho) == pytest.approx(found.rate, abs=1e-9)  # contraction: the rate of the cheapest density
        assert field.mesh.integral(found.rho * square) == pytest.approx(value, rel=1e-9)
    assert law.linear_statistic(square, field.mesh.integral(law.minimum.rho * square)).rate == pytest.approx(0, abs=1e-12)
    theta = 0.2 * beta * kappa
    assert law.cumulant(square, theta) == pytest.approx(-mean * beta * kappa / 2 * np.log(1 - 2 * theta / (beta * kappa)), rel=2e-3)
    assert law.linear_statistic(field.x, 0.3).rate == pytest.approx(beta * kappa * 0.3**2 / 2, rel=1e-6)  # the centre of mass is free


@pytest.mark.parametrize("mesh", [RadialBall(4.0, 160, 2), RadialBall(4.0, 160, 3), Rectangle([-3, -3], [3, 3], (40, 40))])
def test_rates_on_other_meshes(mesh):
    beta, kappa, strength = 2.0, 1.1, 1.4
    radial = isinstance(mesh, RadialBall)
    dim = mesh.dim if radial else 2
    square = (lambda r: r**2) if radial else (lambda x: np.sum(x**2, -1))
    field = MeanField(lambda x: kappa * square(x) / 2, riesz(0.0, strength, dim), beta, mesh)
    mean = (dim + beta * strength / 2) / (beta * kappa)
    for value in (0.7 * mean, 1.15 * mean):
        found = GibbsRate(field).linear_statistic(field.cell_average(square), value)
        assert found.rate == pytest.approx(float(second_moment_rate(value, beta, kappa, strength, dim=dim)), rel=0.02)


def test_free_particles_deviate_by_cramer_s_theorem():
    beta = 1.7
    field = MeanField(lambda x: x**4 - x, None, beta, np.linspace(-2.5, 2.5, 1001))

    def cumulant(theta, power=0):
        return quad(lambda x: np.sin(x) ** power * np.exp(theta * np.sin(x) - beta * (x**4 - x)), -2.5, 2.5, epsabs=1e-13)[0]

    for value in (-0.3, 0.1, 0.7):
        theta = brentq(lambda t, value=value: cumulant(t, 1) / cumulant(t) - value, -60, 60)
        exact = theta * value - np.log(cumulant(theta) / cumulant(0.0))
        found = GibbsRate(field).linear_statistic(field.cell_average(np.sin), value)
        assert found.rate == pytest.approx(exact, rel=1e-4, abs=1e-6)
        assert found.tilt == pytest.approx(theta, rel=1e-4)


def test_values_out_of_reach_and_jumps_are_refused():
    field = MeanField(lambda x: (x**2 - 1) ** 2, lambda r: 2.0 * r**2, 6.0, np.linspace(-2, 2, 121))  # attraction: a ferromagnet
    starts = [np.exp(-8 * (field.x - m) ** 2) for m in (-1, 1)]
    left, right = field.stationary_states([start / field.mesh.integral(start) for start in starts])
    assert field.mesh.integral(np.abs(left.rho - right.rho)) > 1.9
    law = GibbsRate(field, start=right.rho)
    assert law.rate(left.rho) == pytest.approx(0, abs=1e-8)
    with pytest.raises(ValueError, match="start must lead to a minimum"):
        _ = GibbsRate(field).minimum  # the even state between them
    with pytest.raises(ValueError, match="phase transition"):
        law.linear_statistic(field.x, 0.0)
    far = abs(field.mesh.integral(right.rho * field.x)) + 0.1
    assert law.linear_statistic(field.x, far * np.sign(field.mesh.integral(right.rho * field.x))).rate > 0
    tilted = MeanField(lambda x: (x**2 - 1) ** 2 + 0.02 * x, lambda r: 2.0 * r**2, 6.0, field.edges)
    higher = GibbsRate(tilted, start=right.rho if field.mesh.integral(right.rho * field.x) > 0 else left.rho)
    with pytest.raises(ValueError, match="rho lies below the minimum"):
        higher.rate(GibbsRate(tilted, start=left.rho if field.mesh.integral(left.rho * field.x) < 0 else right.rho).minimum.rho)
    with pytest.raises(ValueError, match="value must lie strictly between"):
        law.linear_statistic(field.x, 2.0)
    with pytest.raises(ValueError, match="f must have one value a cell"):
        law.linear_statistic(field.x[1:], 0.0)
    for start, words in (
        (np.ones(3), "a density on the cells"),
        ("uniform", "hold real numbers"),
        (-np.ones(field.mesh.shape), "a density"),
    ):
        with pytest.raises(ValueError, match=f"start must (be )?{words}"):
            GibbsRate(field, start=start)
    with pytest.raises(ValueError, match="field must be a MeanField"):
        GibbsRate(lambda x: x)


def test_second_moment_law_is_the_samplers():
    n, beta, kappa, strength = 12, 4.0, 0.8, 1.1
    square = np.mean(sample_log_gas(n, beta, kappa, strength, rng=5, size=4000)[..., 0] ** 2, axis=1)
    # Kolmogorov-Smirnov at 1e-4; the index off by 20 % is rejected
    assert kstest(second_moment_tail(n, square, beta, kappa, strength), "uniform").pvalue > 1e-4
    assert kstest(second_moment_tail(n, square, beta, kappa, 1.2 * strength), "uniform").pvalue < 1e-4


def test_observed_frequencies_approach_the_rate():
    """-log P/n of exact samples, with exact intervals, against the rate: the difference falls as log(n)/n."""
    beta, kappa, strength = 3.0, 1.0, 1.0
    value, trials = 1.25 * (1 + beta * strength / 2) / (beta * kappa), 40_000
    rate = float(second_moment_rate(value, beta, kappa, strength))
    gaps = []
    for n in (8, 32, 128):
        exact = -np.log(float(second_moment_tail(n, value, beta, kappa, strength))) / n
        square = np.random.default_rng(n).gamma(n * (1 + beta * strength / 2) / 2, 2 / (beta * kappa * n), trials)
        seen = empirical_rate(square >= value, trials, n, level=0.9999)  # false alarm below 1e-4 each
        assert seen.low < exact < seen.high
        gaps.append(exact - rate)
    assert gaps[0] > gaps[1] > gaps[2] > 0
    assert gaps[2] < 0.2 * gaps[0]
    samples = np.mean(sample_log_gas(16, beta, kappa, strength, rng=3, size=4000)[..., 0] ** 2, axis=1) >= value
    seen = empirical_rate(samples, 4000, 16, level=0.9999)
    assert seen.low < -np.log(float(second_moment_tail(16, value, beta, kappa, strength))) / 16 < seen.high
    assert not seen.low < -np.log(float(second_moment_tail(16, value, 1.2 * beta, kappa, strength))) / 16 < seen.high  # control


# The largest particle, pushed and pulled


def test_all_particles_below_a_wall_at_fixed_beta():
    beta, kappa, strength, wall = 2.0, 1.0, 1.0, 1.0
    width = 0.02
    field, confined = (log_gas(beta, kappa, strength, np.arange(-6, end + width / 2, width)) for end in (6.0, wall))
    rate = confinement_rate(field, confined)
    misses = []
    for n, trials in ((8, 20_000), (16, 20_000)):
        largest = sample_log_gas(n, beta, kappa, strength, rng=2, size=trials)[..., 0].max(1)
        seen = empirical_rate(largest <= wall, trials, n, level=0.9999)
        # -log P = n rate - constant + O(1/n) with a constant of order 0.05: the interval must reach within 0.1/n of the rate
        assert seen.low - 0.1 / n < rate < seen.high + 0.1 / n
        misses.append(not seen.low - 0.1 / n < 1.15 * rate < seen.high + 0.1 / n)
    assert all(misses)  # control: a rate 15 % off
    free = [MeanField(lambda x: x**2, None, 1.5, np.linspace(-6, end, 1201)) for end in (6.0, 0.5)]
    assert confinement_rate(*free) == pytest.approx(-np.log(0.5 * (1 + float(mpmath.erf(0.5 * np.sqrt(1.5))))), rel=1e-4)
    for pair, name in (((field, 3), "confined"), ((3, field), "field")):
        with pytest.raises(ValueError, match=f"{name} must be a MeanField, got 3"):
            confinement_rate(*pair)
    with pytest.raises(ValueError, match="confined must have beta"):
        confinement_rate(field, free[0])


def test_the_largest_particle_at_fixed_beta_is_that_of_a_poisson_process():
    n, beta, kappa, strength = 200, 2.0, 1.0, 1.0
    law = GaussWigner(kappa, strength, beta)
    largest = sample_log_gas(n, beta, kappa, strength, rng=1, size=800)[..., 0].max(1)
    at = np.linspace(largest.min(), largest.max(), 30)
    tails = np.array([quad(lambda y: float(law.density(np.array([y]))[0]), x, x + 6, epsabs=1e-12)[0] for x in at])
    uniform = largest_particle_cdf(n, np.exp(np.interp(largest, at, np.log(tails))))
    assert kstest(uniform, "uniform").pvalue > 1e-3  # false alarm 1e-3
    assert kstest(largest_particle_cdf(n, 1.5 * np.exp(np.interp(largest, at, np.log(tails)))), "uniform").pvalue < 1e-3  # control
    assert largest.mean() > Semicircle(kappa, strength).radius + 1  # far beyond the zero-temperature support


def hankel_log_probability(n, wall):
    """log P(all eigenvalues below wall) of the beta-Hermite ensemble at b = 2, weight exp(-e^2/2): a ratio of Hankel determinants."""
    with mpmath.workdps(40 + 2 * n):
        w, front = mpmath.mpf(float(wall)), mpmath.exp(-(mpmath.mpf(float(wall)) ** 2) / 2)
        below = [mpmath.sqrt(2 * mpmath.pi) * mpmath.ncdf(w), -front]
        total = [mpmath.sqrt(2 * mpmath.pi), mpmath.mpf(0)]
        for k in range(2, 2 * n):
            below.append((k - 1) * below[k - 2] - w ** (k - 1) * front)
            total.append((k - 1) * total[k - 2])
        part, whole = (mpmath.det(mpmath.matrix([[m[i + j] for j in range(n)] for i in range(n)])) for m in (below, total))
        return float(mpmath.log(part / whole))


@pytest.mark.parametrize("z", [-0.6, 0.0, 0.8])
def test_pushed_gas_at_index_two(z):
    """In units of the radius over sqrt 2; -log P = b n^2 pushed_rate/strength + log(n)/12 + O(1)."""
    n = np.array([6, 12, 24])
    action = np.array([-hankel_log_probability(k, z * np.sqrt(2 * k)) for k in n])
    slope = np.diff(action - np.log(n) / 12) / (2 * np.diff(n**2))
    rate = float(pushed_rate(z, 1.0, 1.0))  # radius sqrt 2
    assert slope[1] == pytest.approx(rate, rel=2e-4)
    assert abs(slope[1] - rate) < abs(slope[0] - rate)


def test_pushed_gas_is_the_mean_field_against_a_wall():
    kappa, strength = 0.9, 1.6
    radius = Semicircle(kappa, strength).radius
    assert float(pushed_rate(0.0, kappa, strength)) == pytest.approx(strength * np.log(3) / 4, rel=1e-14)
    assert float(pushed_rate(radius, kappa, strength)) == pytest.approx(0, abs=1e-14)
    assert float(pushed_rate(-1e4, kappa, strength)) == pytest.approx(kappa * 1e8 / 2, rel=1e-6)  # far left: all particles at the wall
    for wall in (0.0, 0.5 * radius):
        rates = []
        for beta in (200.0, 400.0):
            field = MeanField(lambda x: kappa * x**2 / 2, riesz(0.0, strength, 1), beta, np.linspace(wall - 2 * radius, wall, 401))
            rates.append(EnergyRate(field, Semicircle(kappa, strength)).rate(field.stationary().rho))
        assert 2 * rates[1] - rates[0] == pytest.approx(float(pushed_rate(wall, kappa, strength)), rel=5e-3)  # in 1/beta to 0
    with pytest.raises(ValueError, match="wall must be at most the radius"):
        pushed_rate(1.1 * radius, kappa, strength)


def test_contraction_where_beta_grows():
    """J_f/beta at large beta is the least E - min E at a given mean of f: in a trap, kappa a/2 - s/4 - (s/4) log(2 kappa a/s)."""
    kappa, strength = 0.9, 1.6
    value = 1.3 * strength / (2 * kappa)
    exact = kappa * value / 2 - strength / 4 * (1 + np.log(2 * kappa * value / strength))
    scaled = []
    for beta in (100.0, 200.0):
        field = log_gas(beta, kappa, strength, np.linspace(-3.5, 3.5, 241))
        scaled.append(GibbsRate(field).linear_statistic(field.cell_average(np.square), value).rate / beta)
        assert second_moment_rate(value, beta, kappa, strength) / beta == pytest.approx(exact, abs=1 / beta)
    assert 2 * scaled[1] - scaled[0] == pytest.approx(exact, rel=0.01)
    stretched = np.sqrt(1.3) * Semicircle(kappa, strength).radius  # the cheapest density is the semicircle of that second moment
    fine = log_gas(1.0, kappa, strength, np.linspace(-3.5, 3.5, 1601))
    rho = Semicircle(2 * strength / stretched**2, strength).density(fine.x)
    law = EnergyRate(fine, Semicircle(kappa, strength))
    assert law.rate(rho / fine.mesh.integral(rho)) == pytest.approx(exact, rel=0.01)


def test_closed_rates_keep_their_digits():
    """Against the published forms in 60 digits, close to the edge, where they cancel, and far from it."""
    with mpmath.workdps(60):
        for z in (-300.0, -1.0, 0.5, 1.3, 1.4, 1.414, 1.41421):
            root = mpmath.sqrt(mpmath.mpf(z) ** 2 + 6)
            logs = 27 * mpmath.log(18) - 54 * mpmath.log(z + root)
            exact = (36 * mpmath.mpf(z) ** 2 - mpmath.mpf(z) ** 4 - (15 * z + mpmath.mpf(z) ** 3) * root + logs) / 108
            assert float(pushed_rate(z, 1.0, 1.0)) == pytest.approx(float(exact), rel=1e-14 * (1 + 1 / (np.sqrt(2) - z)))  # rounding of z
        for x in (1.0 + 2.0**-40, 1.0 + 2.0**-12, 1.06, 1.07, 2.0, 40.0):
            root = mpmath.sqrt(mpmath.mpf(x) ** 2 - 1)
            exact = (x * root - mpmath.log(x + root)) / 2
            assert float(pulled_rate(x, 1.0, 0.5)) == pytest.approx(float(exact), rel=2e-14)
        assert circle_gap_rate(1e-7, 1.0, 4.0) == pytest.approx(
            float(-2 * mpmath.log(mpmath.cos(mpmath.pi * mpmath.mpf(1e-7) / 2))), rel=1e-13
        )


def test_energy_rate_takes_numbers_and_equilibrium_measures():
    field = log_gas(50.0, 1.3, 0.7, np.linspace(-2, 2, 1601))
    equilibrium = Semicircle(1.3, 0.7)
    rho = equilibrium.density(field.x)
    rho /= field.mesh.integral(rho)
    law = EnergyRate(field, equilibrium)
    assert law.rate(rho) == pytest.approx(0, abs=1e-4)
    assert EnergyRate(field, equilibrium.energy).rate(rho) == law.rate(rho)
    uniform = np.full(1600, 0.25)  # int V = 1.3 * (4/3)/2; iint -log|x - y| on length 4: 3/2 - log 4
    assert law.energy(uniform) == pytest.approx(1.3 * 2 / 3 + 0.35 * (1.5 - np.log(4)), rel=1e-6)
    with pytest.raises(ValueError, match="minimum must be a real number"):
        EnergyRate(field, "semicircle")
    with pytest.raises(ValueError, match="minimum must be finite"):
        EnergyRate(field, np.nan)
    with pytest.raises(ValueError, match="field must be a MeanField"):
        EnergyRate(None, 0.0)
    with pytest.raises(ValueError, match="theta must be finite"):
        GibbsRate(MeanField(lambda x: x**2, None, 1.0, np.linspace(-3, 3, 41))).cumulant(np.linspace(-3, 3, 40), np.nan)
    with pytest.raises(ValueError, match="strength must be finite"):
        riesz(0.5, np.inf, 1)


def test_the_pulled_particle_at_index_two():
    """-log P(largest > x) = beta pulled_rate + O(log n) with P the mean number of eigenvalues beyond x, by Hermite functions."""

    def log_tail(n, x):
        grid = np.linspace(x, x + 12, 6001)
        waves = [np.exp(-(grid**2) / 4) / (2 * np.pi) ** 0.25]
        waves.append(grid * waves[0])
        for k in range(2, n):
            waves.append((grid * waves[-1] - np.sqrt(k - 1) * waves[-2]) / np.sqrt(k))
        return np.log(np.trapezoid(np.sum(np.square(waves), 0), grid))

    kappa, strength, ratio = 1.0, 1.0, 1.3
    rate = float(pulled_rate(ratio * np.sqrt(2), kappa, strength))
    n = np.array([20, 40, 80, 160])
    actions = [-log_tail(k, ratio * 2 * np.sqrt(k)) for k in n]  # e units, R = 2 sqrt n; beta strength = b n, b = 2
    fit = np.linalg.solve(np.stack([2 * n, np.log(n), np.ones(4), 1 / n], 1), np.array(actions))
    assert fit[0] == pytest.approx(rate, rel=1e-3)
    assert fit[1] == pytest.approx(1.0, abs=0.05)  # P = O(exp(-beta rate)/n)
    for x in (1.5, 2.7):
        integral = quad(lambda y: np.sqrt(y**2 - 1.1**2), 1.1, x)[0]
        assert float(pulled_rate(x, 2.0, 1.21)) == pytest.approx(2 * integral, rel=1e-9)
    with pytest.raises(ValueError, match="x must be at least the radius"):
        pulled_rate(1.0, 1.0, 1.0)


def test_gap_on_the_circle_at_index_two():
    """Toeplitz determinant of the unitary group; -log P = b n^2 rate/strength + log(n)/4 + O(1) (Widom 1971)."""
    gap, n = 0.3, np.array([10, 20, 40])
    actions = []
    for k in n:
        with mpmath.workdps(80):
            d = [mpmath.mpf(1) - gap] + [-mpmath.sin(mpmath.pi * m * gap) / (mpmath.pi * m) for m in range(1, k)]
            actions.append(-float(mpmath.log(mpmath.det(mpmath.matrix([[d[abs(i - j)] for j in range(int(k))] for i in range(int(k))])))))
    slope = np.diff(np.array(actions) - np.log(n) / 4) / (2 * np.diff(n**2))
    assert slope[1] == pytest.approx(circle_gap_rate(gap * 2.5, 2.5, 1.0), rel=1e-4)
    with pytest.raises(ValueError, match="gap must be below the period"):
        circle_gap_rate(2.5, 2.5, 1.0)


# Observed rates


def test_empirical_rate_is_the_exact_binomial_interval():
    for hits, trials, speed, level in ((3, 1000, 10.0, 0.95), (400, 1000, 2.5, 0.99), (1, 1, 1.0, 0.9), (0, 50, 4.0, 0.95)):
        seen = empirical_rate(hits, trials, speed, level=level)
        if 0 < hits < trials:
            interval = binomtest(hits, trials).proportion_ci(level, method="exact")
            assert (seen.low, seen.high) == pytest.approx((-np.log(interval.high) / speed, -np.log(interval.low) / speed))
            assert seen.rate == pytest.approx(-np.log(hits / trials) / speed)
        elif hits == 0:
            assert seen.rate == seen.high == np.inf  # no upper end
            assert seen.low == pytest.approx(-np.log(1 - ((1 - level) / 2) ** (1 / trials)) / speed)
        else:
            assert seen.rate == seen.low == 0
            assert seen.high == pytest.approx(-np.log(((1 - level) / 2) ** (1 / trials)) / speed)
    flags = np.arange(40) < 7
    assert empirical_rate(flags, 40, 3.0) == empirical_rate(7, 40, 3.0)


@pytest.mark.parametrize("trials", [1, 12, 40])
@pytest.mark.parametrize("level", [0.9, 0.99])
def test_empirical_rate_covers_every_frequency(trials, level):
    """The coverage, summed exactly, at rare and frequent events alike; somewhere it comes near the level, so that it is not idle."""
    hits = np.arange(trials + 1)
    intervals = np.array([empirical_rate(int(h), trials, 2.0, level=level)[1:] for h in hits])
    p = np.r_[np.geomspace(1e-6, 0.5, 300), 1 - np.geomspace(1e-6, 0.5, 300)][:, None]
    covered = (intervals[:, 0] <= -np.log(p) / 2) & (-np.log(p) / 2 <= intervals[:, 1])
    coverage = np.sum(covered * binom.pmf(hits, trials, p), axis=1)
    assert coverage.min() >= level
    assert coverage.min() < level + (1 - level) / 2 + 0.01


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((-1, 10, 1.0), "successes"),
        ((11, 10, 1.0), "successes"),
        ((0.5, 10, 1.0), "successes"),
        (([True] * 9, 10, 1.0), "successes"),
        (([1.0] * 10, 10, 1.0), "successes"),
        ((1, 0, 1.0), "n_trials"),
        ((1, 10, 0.0), "speed"),
    ],
)
def test_empirical_rate_refuses(arguments, name):
    with pytest.raises(ValueError, match=name):
        empirical_rate(*arguments)


def test_second_moment_tail_follows_its_rate():
    beta, kappa, strength = 2.0, 1.3, 0.7
    for dim in (1, 2, 5):
        mean = (dim + beta * strength / 2) / (beta * kappa)
        actions = [-np.log(float(second_moment_tail(n, 1.1 * mean, beta, kappa, strength, dim=dim))) for n in (4000, 8000)]
        rate = float(second_moment_rate(1.1 * mean, beta, kappa, strength, dim=dim))
        assert (actions[1] - actions[0] - np.log(2) / 2) / 4000 == pytest.approx(rate, rel=1e-3)  # exp(-n rate)/sqrt(n) times a constant
    with pytest.raises(ValueError, match="value must be at least 0"):
        second_moment_rate(-1.0, beta, kappa, strength)
    for bad in ({"beta": 0.0}, {"kappa": -1.0}, {"strength": -0.1}, {"dim": 0}):
        with pytest.raises(ValueError, match=f"{next(iter(bad))} must be"):
            second_moment_rate(**({"value": 1.0, "beta": 1.0, "kappa": 1.0, "strength": 1.0} | bad))
    assert second_moment_rate(0.0, beta, kappa, strength) == np.inf
