"""Exact finite-N laws against quadrature and the exact sampler."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from scipy.integrate import dblquad, quad
from scipy.special import roots_legendre
from scipy.stats import kstest

from theory.ensembles import (
    beta_hermite,
    circle_gas_energy,
    circle_gas_log_partition,
    euler_second_moment,
    fourth_moment,
    ginibre_radii,
    log_gas_energy,
    log_gas_index,
    log_gas_log_partition,
    mean_log_energy,
    mehta_log_partition,
    sample_circle_gas,
    sample_log_gas,
    sample_wall_gas,
    second_moment,
    wall_gas_energy,
    wall_gas_log_partition,
)
from theory.equilibrium import GaussWigner, Semicircle


def z_score(draws, predicted):
    return (draws.mean() - predicted) / (draws.std(ddof=1) / np.sqrt(len(draws)))


@pytest.mark.parametrize(
    ("n", "beta", "kappa", "strength"), [(2, 6.0, 1.3, 0.7), (16, 6.0, 1.3, 0.7), (45, 1.5, 0.6, 4.0), (7, 40.0, 2.0, 1.1)]
)
def test_sampler_obeys_the_second_and_fourth_moment_laws(n, beta, kappa, strength):
    x = sample_log_gas(n, beta, kappa, strength, rng=11, size=4000)
    assert x.shape == (4000, n, 1)
    square, fourth = (x[..., 0] ** 2).mean(1), (x[..., 0] ** 4).mean(1)
    # z-tests at 4: false alarm 6e-5 each, 5e-4 over this test
    assert abs(z_score(square, second_moment(1, beta, kappa, strength))) < 4
    assert abs(z_score(fourth, fourth_moment(n, beta, kappa, strength))) < 4
    if beta < 40:  # negative control; at beta 40 the thermal part is 4 % of the moment
        assert abs(z_score(square, second_moment(1, 1.2 * beta, kappa, strength))) > 4


@pytest.mark.parametrize(("n", "b"), [(2, 2.0), (8, 0.6), (20, 3.0)])
def test_mean_log_energy(n, b):
    e = beta_hermite(n, b, rng=2, size=2000)
    i, j = np.triu_indices(n, 1)
    energy = -np.log(np.abs(e[:, i] - e[:, j])).sum(1)
    # z at 4: false alarm 6e-5 each; index 20 % off is rejected
    assert abs(z_score(energy, mean_log_energy(n, b))) < 4
    assert abs(z_score(energy, mean_log_energy(n, 1.2 * b))) > 4
    step = 1e-5
    slope = (mehta_log_partition(n, b + step) - mehta_log_partition(n, b - step)) / (2 * step)
    assert mean_log_energy(n, b) == pytest.approx(-slope, rel=1e-7)


def test_quoted_values():
    assert np.exp(mehta_log_partition(2, 2.6)) == pytest.approx(20.0175806519, abs=5e-10)
    assert [mean_log_energy(*case) for case in ((2, 2.0), (8, 0.6), (20, 3.0))] == pytest.approx(
        [-0.7113921675, -14.2642251497, -303.6109254298], abs=5e-10
    )
    free = [-log_gas_log_partition(n, 6.0, 1.3, 0.7) / (6 * n) for n in (10, 100, 1000)]
    assert free == pytest.approx([0.3163865, 0.3500782, 0.3534531], abs=5e-8)
    assert fourth_moment(400, 6.0, 1.3, 0.7) == pytest.approx(0.366682, abs=5e-7)
    assert second_moment(1, 6.0, 1.3, 0.7) == pytest.approx(0.3974359, abs=5e-8)


def test_partition_function_of_two_particles_by_quadrature():
    beta, kappa, strength = 2.5, 0.8, 1.2

    def weight(y, x):
        return np.exp(-beta * kappa * (x**2 + y**2) / 2) * (x - y) ** (beta * strength)

    half = dblquad(weight, -7, 7, -7, lambda x: x, epsabs=1e-10)[0]
    assert log_gas_log_partition(2, beta, kappa, strength) == pytest.approx(np.log(2 * half), rel=1e-7)


def test_free_energy_and_energy_reach_the_mean_field():
    law = GaussWigner(0.9, 1.4, 3.0)
    gap = [-log_gas_log_partition(n, 3.0, 0.9, 1.4) / (3 * n) - law.free_energy for n in (200, 2000)]
    assert abs(gap[1]) < 1e-3
    assert gap[0] / gap[1] == pytest.approx(10, rel=0.2)
    assert log_gas_energy(3000, 3e4, 1.3, 0.7) == pytest.approx(Semicircle(1.3, 0.7).energy, abs=2e-3)


def test_log_gas_energy_is_the_derivative_of_the_partition_function():
    n, beta, kappa, strength, step = 9, 4.0, 1.3, 0.7, 1e-4
    slope = (log_gas_log_partition(n, beta + step, kappa, strength) - log_gas_log_partition(n, beta - step, kappa, strength)) / (2 * step)
    assert n * log_gas_energy(n, beta, kappa, strength) == pytest.approx(-slope, rel=1e-6)


@pytest.mark.parametrize(("dim", "s"), [(1, 0.5), (2, 1.0), (3, -0.7), (2, -1.5), (4, 0.0), (3, 1.0)])
def test_virial_law_of_two_particles_by_quadrature(dim, s):
    """For two particles the relative coordinate r has weight r^(dim-1) exp(-beta (kappa r^2/4 + strength g(r)))."""
    beta, kappa, strength = 2.0, 1.3, 0.7

    def expectation(power):
        def weight(r):
            g = -np.log(r) if s == 0 else np.sign(s) * r**-s
            return r ** (dim - 1) * np.exp(-beta * (kappa * r**2 / 4 + strength * g))

        options = {"limit": 400, "epsabs": 1e-13, "points": [0.05, 0.5, 2]}
        return quad(lambda r: r**power * weight(r), 0, 14, **options)[0] / quad(weight, 0, 14, **options)[0]

    exact = dim / (2 * beta * kappa) + expectation(2) / 4
    pair = None if s == 0 else expectation(-s)
    assert second_moment(dim, beta, kappa, strength, s, pair_moment=pair) == pytest.approx(exact, rel=1e-8)
    if (dim, s) == (1, 0.5):
        assert kappa * exact == pytest.approx(0.6938948700, abs=5e-9)


@pytest.mark.parametrize(("kappa", "step_size"), [(1.3, 0.05), (0.5, 0.8)])
def test_euler_second_moment_is_the_fixed_point_of_the_step(kappa, step_size):
    dim, beta = 3, 6.0
    moment = euler_second_moment(dim, beta, kappa, step_size)
    assert (1 - step_size * kappa) ** 2 * moment + 2 * step_size * dim / beta == pytest.approx(moment, rel=1e-13)


def test_sampler_edge_cases():
    assert beta_hermite(1, 2.0, rng=0, size=3).shape == (3, 1)
    free = beta_hermite(6, 0.0, rng=0, size=3000)
    assert (np.diff(free, axis=1) >= 0).all()
    assert abs(z_score((free**2).mean(1), 1.0)) < 4
    np.testing.assert_array_equal(beta_hermite(5, 1.0, rng=7, size=2), beta_hermite(5, 1.0, rng=np.random.default_rng(7), size=2))
    assert log_gas_index(6.0, 0.7, 11) == pytest.approx(0.42)


# Hard walls and the circle: each gas is (log partition, energy, sampler, size of its room), in the same order of arguments.
GASES = {
    "wall": (wall_gas_log_partition, wall_gas_energy, sample_wall_gas),
    "circle": (circle_gas_log_partition, circle_gas_energy, sample_circle_gas),
}


def ordered_gas(gas, n, b, size, power=0.0):
    """int prod |x_i - x_j|^b (-sum log |x_i - x_j|)^power over the room, by Gauss rules between neighbours; b a power of a polynomial."""
    length = 2 * size if gas == "wall" else size
    node, weight = roots_legendre(48)
    node, weight = (node + 1) / 2, weight / 2
    x, w = length * node[:, None], length * weight  # the largest first, then ever smaller ones, graded towards coincidence
    for _ in range(n - 1):
        u = node**3
        step = x[:, -1:, None] * (1 - u)[None, None]
        w = (w[:, None] * x[:, -1:] * (3 * node**2 * weight)).reshape(-1)
        x = np.concatenate([np.repeat(x[:, None], 48, 1), step.transpose(0, 2, 1)], -1).reshape(len(w), -1)
    i, j = np.triu_indices(n, 1)
    gap = x[:, i] - x[:, j]
    logs = np.log(gap if gas == "wall" else size / np.pi * np.sin(np.pi * gap / size)).sum(1)
    return np.prod(np.arange(1, n + 1)) * np.sum(w * np.exp(b * logs) * (-logs) ** power)


@pytest.mark.parametrize("gas", GASES)
@pytest.mark.parametrize(("n", "b", "size"), [(2, 0.7, 1.0), (2, 3.0, 0.6), (3, 0.5, 1.7), (3, 2.4, 0.9)])
def test_wall_and_circle_gas_by_quadrature(gas, n, b, size):
    log_partition, energy, _ = GASES[gas]
    strength = 0.9
    beta = b * (n - 1) / strength
    total = ordered_gas(gas, n, b, size)
    assert log_partition(n, beta, strength, size) == pytest.approx(np.log(total), abs=2e-6)
    pairs = ordered_gas(gas, n, b, size, 1.0) / total
    assert energy(n, beta, strength, size) == pytest.approx(strength * pairs / (n * (n - 1)), abs=2e-6)
    assert energy(n, 1.05 * beta, strength, size) != pytest.approx(strength * pairs / (n * (n - 1)), abs=2e-5)  # negative control


@pytest.mark.parametrize("gas", GASES)
def test_energy_is_the_derivative_of_the_partition_function_at_a_wall_and_on_a_circle(gas):
    log_partition, energy, _ = GASES[gas]
    n, beta, step = 11, 4.0, 1e-4
    slope = (log_partition(n, beta + step, 0.7, 1.3) - log_partition(n, beta - step, 0.7, 1.3)) / (2 * step)
    assert n * energy(n, beta, 0.7, 1.3) == pytest.approx(-slope, rel=1e-6)


@pytest.mark.parametrize("gas", GASES)
@pytest.mark.parametrize(("n", "b", "size"), [(2, 1.3, 0.8), (7, 0.4, 1.5), (20, 4.0, 2.5)])
def test_samplers_reproduce_the_exact_energy_at_a_wall_and_on_a_circle(gas, n, b, size):
    _, energy, sample = GASES[gas]
    strength = 0.9
    beta = b * (n - 1) / strength
    x = sample(n, beta, strength, size, rng=21, size=3000)[..., 0]
    low = -size if gas == "wall" else 0
    assert x.min() >= low
    assert x.max() <= size
    assert (np.diff(x, axis=1) > 0).all()
    i, j = np.triu_indices(n, 1)
    gap = x[:, j] - x[:, i]
    pairs = -np.log(gap if gas == "wall" else size / np.pi * np.sin(np.pi * gap / size)).sum(1) * strength / (n * (n - 1))
    # z at 4: false alarm 6e-5 each; beta 30 % off is rejected
    assert abs(z_score(pairs, energy(n, beta, strength, size))) < 4
    assert abs(z_score(pairs, energy(n, 1.3 * beta, strength, size))) > 4


@pytest.mark.parametrize("gas", GASES)
def test_free_and_cold_limits_at_a_wall_and_on_a_circle(gas):
    log_partition, energy, sample = GASES[gas]
    width = 2.4
    size = width / 2 if gas == "wall" else width
    assert log_partition(6, 3.0, 0.0, size) == pytest.approx(6 * np.log(width), rel=1e-13)
    free = sample(6, 3.0, 0.0, size, rng=3, size=500)
    assert kstest((free / width + (0.5 if gas == "wall" else 0)).ravel(), "uniform").pvalue > 1e-4  # false alarm 1e-4
    i, j = np.triu_indices(12, 1)
    if gas == "wall":  # the zeros of (1 - x^2) P'_{n-1}, here as the Gauss-Lobatto points
        points = size * np.r_[-1, np.sort(np.polynomial.legendre.Legendre.basis(11).deriv().roots()), 1]
        ground = -np.log(abs(points[i] - points[j])).sum()
    else:
        ground = 6 * 11 * -np.log(width / (2 * np.pi)) - 6 * np.log(12)
    assert energy(12, 1e7, 0.7, size) == pytest.approx(0.7 * ground / 132, abs=1e-5)
    # many particles: the capacity of the room, half_width/2 or period/(2 pi), at a rate of log n / n
    gap = [energy(n, 1e9, 0.7, size) + 0.35 * np.log(size / 2 if gas == "wall" else size / (2 * np.pi)) for n in (200, 2000)]
    assert gap[0] / gap[1] == pytest.approx(10 * np.log(200) / np.log(2000), rel=0.1)


def test_wall_gas_of_beta_two_is_the_legendre_ensemble():
    """At b = 2 the one-particle density is sum of squared orthonormal Legendre polynomials / n: its even moments are exact."""
    n = 5
    x = sample_wall_gas(n, 2.0 * (n - 1), 1.0, 1.0, rng=5, size=20000)[..., 0]
    node, weight = roots_legendre(40)
    rho = sum((k + 0.5) * np.polynomial.legendre.Legendre.basis(k)(node) ** 2 for k in range(n)) / n
    for power in (2, 4, 8):
        assert abs(z_score((x**power).mean(1), np.sum(weight * rho * node**power))) < 4  # false alarm 6e-5 each
    assert abs(z_score((x**2).mean(1), 1.05 * np.sum(weight * rho * node**2))) > 4


def test_ginibre_radii():
    """The mean square is the virial law, and the largest radius of one particle is Rayleigh's."""
    n, beta, kappa = 7, 3.0, 1.4
    radii = ginibre_radii(n, beta, kappa, rng=1, size=20000)
    assert abs(z_score((radii**2).mean(1), second_moment(2, beta, kappa, 2 * (n - 1) / beta))) < 4  # false alarm 6e-5
    assert abs(z_score((radii**2).mean(1), second_moment(2, 1.05 * beta, kappa, 2 * (n - 1) / beta))) > 4
    assert kstest(ginibre_radii(1, beta, kappa, rng=1, size=5000)[:, 0] * np.sqrt(beta * kappa), "rayleigh").pvalue > 1e-4
    pair = ginibre_radii(2, beta, kappa, rng=2, size=20000)
    # two particles by polar quadrature of (x - y)^2: E of the smaller square, E min(Gamma(1), Gamma(2)) = 3/4 in units of 2/(beta kappa)
    assert abs(z_score(pair[:, 0] ** 2, 0.75 * 2 / (beta * kappa))) < 4


VARIANCES = {
    "log_gas": (1.3, 0.7),
    "half_line_gas": (1.3, 0.7, 0.4),
    "mirror_gas": (1.3, 0.7),
    "wall_gas": (0.7, 1.3, (0.2, 0.5)),
    "circle_gas": (0.7, 1.3),
}


@pytest.mark.parametrize("gas", VARIANCES)
@pytest.mark.parametrize(("n", "beta"), [(2, 0.9), (11, 4.0), (40, 60.0)])
def test_variance_of_the_energy_is_the_derivative_of_its_mean(gas, n, beta):
    from theory import ensembles

    energy, variance = getattr(ensembles, f"{gas}_energy"), getattr(ensembles, f"{gas}_energy_variance")
    step = 1e-4 * beta
    slope = (energy(n, beta + step, *VARIANCES[gas]) - energy(n, beta - step, *VARIANCES[gas])) / (2 * step)
    assert variance(n, beta, *VARIANCES[gas]) == pytest.approx(-slope / n, rel=2e-6)


def log_partition_of(gas, n, beta, charge):
    """log Z_N as a function of beta, up to terms linear in beta, by mpmath from the published products."""
    import mpmath as mp

    strength, log = mp.mpf("0.7"), mp.loggamma
    g, a, steps = beta * strength / (n - 1) / 2, beta * charge, range(1, n + 1)
    pairs = sum(log(1 + j * g) - log(1 + g) for j in steps)
    if gas == "log_gas":
        return pairs - (n + g * n * (n - 1)) * mp.log(beta) / 2
    if gas == "half_line_gas":
        return pairs + sum(log(1 + a + (j - 1) * g) for j in steps) - n * (1 + a + g * (n - 1)) * mp.log(beta)
    if gas == "mirror_gas":
        return pairs + sum(log(0.5 + (j - 1) * g) for j in steps) - n * (0.5 + g * (n - 1)) * mp.log(beta)
    if gas == "wall_gas":
        return pairs + sum(2 * log(1 + a + (j - 1) * g) - log(2 + 2 * a + (n + j - 2) * g) for j in steps)
    return log(1 + n * g) - n * log(1 + g)


@pytest.mark.parametrize("beta", [1e-6, 0.3, 20.0, 1e3, 1e8])
@pytest.mark.parametrize("n", [2, 9])
@pytest.mark.parametrize("gas", VARIANCES)
def test_variance_of_the_energy_to_rounding_at_every_temperature(gas, n, beta):
    import mpmath as mp

    from theory import ensembles

    takes_charge = gas in ("half_line_gas", "wall_gas")
    for charge in (0.0, 0.2, -0.5 / beta) if takes_charge else (0.0,):
        rest = {"half_line_gas": (1.3, 0.7, charge), "wall_gas": (0.7, 1.3, (charge, charge))}.get(gas, VARIANCES[gas])
        with mp.workdps(60):
            beta_mp, step = mp.mpf(beta), mp.mpf(beta) * mp.mpf(10) ** -12
            values = [log_partition_of(gas, n, beta_mp + k * step, mp.mpf(charge)) for k in (-1, 0, 1)]
            exact = float((values[0] - 2 * values[1] + values[2]) / step**2 / n**2)
        assert getattr(ensembles, f"{gas}_energy_variance")(n, beta, *rest) == pytest.approx(exact, rel=3e-14, abs=0)


@pytest.mark.parametrize(("n", "beta"), [(6, 4.0), (15, 30.0)])
def test_variance_of_the_energy_of_exact_samples(n, beta):
    from theory.ensembles import log_gas_energy_variance

    x = sample_log_gas(n, beta, 1.3, 0.7, rng=3, size=8000)[..., 0]
    i, j = np.triu_indices(n, 1)
    energy = 0.65 * np.mean(x**2, axis=1) - 0.7 / (n * (n - 1)) * np.sum(np.log(abs(x[:, i] - x[:, j])), axis=1)
    square = (energy - log_gas_energy(n, beta, 1.3, 0.7)) ** 2
    assert abs(z_score(square, log_gas_energy_variance(n, beta, 1.3, 0.7))) < 4  # false alarm 6e-5; beta 20 % off is rejected
    assert abs(z_score(square, log_gas_energy_variance(n, 1.2 * beta, 1.3, 0.7))) > 4


def test_every_exact_law_is_found_in_one_place():
    from theory import ensembles
    from theory.ensembles import circular, coulomb_line, coulomb_walls, ginibre, hermite, jacobi, laguerre, two_particles, virial

    for module in (circular, coulomb_line, coulomb_walls, ginibre, hermite, jacobi, laguerre, two_particles, virial):
        for name in module.__all__:
            assert name in ensembles.__all__
            assert getattr(ensembles, name) is getattr(module, name)


def test_a_size_is_not_taken_for_a_seed():
    from theory import ensembles

    for name in [name for name in ensembles.__all__ if name.startswith("sample_") or name.endswith("gas_radii") or name == "ginibre_radii"]:
        parameters = inspect.signature(getattr(ensembles, name)).parameters
        assert parameters["size"].kind is inspect.Parameter.KEYWORD_ONLY
        assert "rng: seed or generator" in getattr(ensembles, name).__doc__
    with pytest.raises(TypeError, match="positional argument"):
        sample_wall_gas(10, 2.0, 1.0, 1.0, 0, 1000)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: beta_hermite(0, 1.0, 0), "n must be"),
        (lambda: beta_hermite(3, -1.0, 0), "b must be"),
        (lambda: wall_gas_energy(1, 1.0, 1.0, 1.0), "n must be an integer of at least 2, got 1"),
        (lambda: wall_gas_log_partition(3, 1.0, -1.0, 1.0), "strength must be .*-1.0"),
        (lambda: sample_wall_gas(3, 1.0, 1.0, 0.0, 0), "half_width must be .*0.0"),
        (lambda: circle_gas_energy(3, 0.0, 1.0, 1.0), "beta must be .*0.0"),
        (lambda: circle_gas_log_partition(3, 1.0, 1.0, -2.0), "period must be .*-2.0"),
        (lambda: sample_circle_gas(3, 1.0, 1.0, 1.0, 0, size=0), "size must be .*0"),
        (lambda: ginibre_radii(0, 1.0, 1.0, 0), "n must be .*0"),
        (lambda: beta_hermite(3, 1.0, 0, size=0), "size must be"),
        (lambda: beta_hermite(3, 1.0, "seed"), "rng must be an integer.*'seed'"),
        (lambda: beta_hermite(3, 1.0, None), "rng must be an integer.*None"),
        (lambda: second_moment(2, 1.0, 1.0, 1.0, "log"), "s must be a real number, got 'log'"),
        (lambda: log_gas_index(1.0, 1.0, 1), "n must be an integer of at least 2"),
        (lambda: second_moment(2, 1.0, 1.0, 1.0, 0.5), "pair_moment is needed for s = 0.5"),
        (lambda: second_moment(2, 1.0, 1.0, 1.0, -2.0), "s must be finite and above -2"),
        (lambda: second_moment(2, 1.0, 1.0, 1.0, float("nan"), pair_moment=1.0), "s must be finite and above -2"),
        (lambda: second_moment(2, float("inf"), 1.0, 1.0), "beta must be"),
        (lambda: euler_second_moment(1, 1.0, 4.0, 0.5), "step_size \\* kappa must be below 2"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
