"""Fluctuations around the mean field against exact finite-N laws: Gamma, Gaussian, circular, Selberg; Johansson's formula."""

from __future__ import annotations

from functools import cached_property
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.linalg import circulant
from scipy.special import gammainc, gammaincc, gammaln
from scipy.stats import chi2, norm

from theory.ensembles import fourth_moment, sample_circle_gas, sample_log_gas, sample_wall_gas
from theory.equilibrium import Semicircle
from theory.large_deviations import riesz
from theory.large_deviations.fluctuations import (
    Fluctuations,
    LearnedKernel,
    concentration_bound,
    confinement_probability,
    log_gas_bias,
    log_gas_covariance,
)
from theory.large_deviations.log_gas import circle_normaliser, trap_normaliser, wall_normaliser
from theory.mean_field import MeanField
from theory.mean_field.disc import Disc
from theory.mean_field.meshes import Axis, Interval, Rectangle
from theory.mean_field.radial import RadialBall

CASES = [(6.0, 1.3, 0.7), (1.0, 1.0, 3.0), (0.5, 2.0, 1.0)]  # beta, kappa, strength


def trapped(beta, kappa, strength, n_cells=400, span=5.0):
    width = span / np.sqrt(beta * kappa) + Semicircle(kappa, strength).radius if strength else span / np.sqrt(beta * kappa)
    interaction = riesz(0.0, strength, 1) if strength else None
    return MeanField(lambda x: kappa * x**2 / 2, interaction, beta, np.linspace(-width, width, n_cells + 1))


class Circle:
    """Equal cells on a circle; g is a function of the chord. Another mesh, to see that nothing here knows which."""

    def __init__(self, period, n):
        self.period, self.width, self.shape = period, period / n, (n,)
        self.centres, self.volume = self.width * (np.arange(n) + 0.5), np.full(n, period / n)
        self.axes = (Axis(np.array([1 / self.width]), periodic=True),)

    def cell_average(self, function, name="function"):
        return Interval(np.linspace(0, self.period, self.shape[0] + 1)).cell_average(function, name)

    def integral(self, values):
        return self.width * float(np.sum(values))

    def convolution(self, interaction):
        tau = np.linspace(-2.8, 2.8, 141)  # tanh-sinh on (0, 1): the hat 1 - u of the distance of two cells, singular at either end
        u = 1 / (1 + np.exp(-np.pi * np.sinh(tau)))
        weight = (tau[1] - tau[0]) * np.pi * np.cosh(tau) * u * (1 - u) * (1 - u)
        offset = np.arange(self.shape[0])[:, None]
        row = sum(
            interaction(np.abs(self.period / np.pi * np.sin(np.pi * self.width * place / self.period))) @ weight
            for place in (offset + u, offset - u)
        )
        matrix = self.width * circulant(row)

        class Convolution:
            def __call__(self, rho):
                return self.matrix @ rho

            @cached_property
            def matrix(self):
                return matrix

        return Convolution()


# Covariances


@pytest.mark.parametrize(("beta", "kappa", "strength"), CASES)
def test_exact_variances_of_the_log_gas(beta, kappa, strength):
    """Gamma law of sum x^2 and Gaussian centre of mass: N Var is the same at every N."""
    field = trapped(beta, kappa, strength)
    gaussian = Fluctuations(field)
    assert gaussian.variance(field.x) == pytest.approx(1 / (beta * kappa), rel=1e-5)
    square = field.cell_average(np.square)
    assert gaussian.variance(square) == pytest.approx(2 * (1 + beta * strength / 2) / (beta * kappa) ** 2, rel=1e-3)
    both = gaussian.covariance(np.stack([field.x, square, 1 + 0 * square]))
    assert both[0, 1] == pytest.approx(0, abs=1e-12)
    assert both[2] == pytest.approx(0, abs=1e-12)  # a constant does not fluctuate
    assert both[0, 0] == pytest.approx(gaussian.variance(field.x), rel=1e-12)
    assert gaussian.variance(square) != pytest.approx(2 / (beta * kappa) ** 2, rel=0.1)  # control: not that of free particles


@pytest.mark.parametrize("mesh", [RadialBall(4.0, 200, 2), RadialBall(4.0, 200, 3), Rectangle([-4, -4], [4, 4], (56, 56))])
def test_exact_variances_in_more_dimensions(mesh):
    beta, kappa, strength = 2.0, 1.1, 1.4
    radial = isinstance(mesh, RadialBall)
    dim = mesh.dim if radial else 2
    square = (lambda r: r**2) if radial else (lambda x: np.sum(x**2, -1))
    field = MeanField(lambda x: kappa * square(x) / 2, riesz(0.0, strength, dim), beta, mesh)
    gaussian = Fluctuations(field)
    exact = 2 * (dim + beta * strength / 2) / (beta * kappa) ** 2  # Gamma((dim + c) N / 2)
    assert gaussian.variance(field.cell_average(square)) == pytest.approx(exact, rel=0.01)
    if not radial:
        assert gaussian.variance(field.cell_average(lambda x: x[..., 1])) == pytest.approx(1 / (beta * kappa), rel=2e-3)


def test_free_particles_have_the_variance_of_one_particle():
    field = MeanField(lambda x: x**4 - x, None, 1.3, np.linspace(-2.5, 2.5, 301))
    gaussian = Fluctuations(field)
    f = field.cell_average(np.sin)
    one = field.mesh.integral(gaussian.rho * f**2) - field.mesh.integral(gaussian.rho * f) ** 2
    assert gaussian.variance(f) == pytest.approx(one, rel=1e-12)
    assert gaussian.bias(f) == pytest.approx(0, abs=1e-12)
    assert gaussian.log_partition_constant == pytest.approx(0, abs=1e-12)
    assert gaussian.stability == pytest.approx(1)


@pytest.mark.parametrize("pull", [0.8, -0.5])  # attraction, and repulsion held by the trap
def test_quadratic_interaction_exactly(pull):
    """g = pull r^2/2: Gaussian at every N; deviation modes have stiffness kappa + pull N/(N - 1)."""
    beta, kappa = 6.0, 1.3
    field = MeanField(lambda x: kappa * x**2 / 2, lambda r: pull * r**2 / 2, beta, np.linspace(-4, 4, 801))
    gaussian = Fluctuations(field)
    mode, square = 1 / (beta * (kappa + pull)), field.cell_average(np.square)
    assert gaussian.variance(field.x) == pytest.approx(1 / (beta * kappa), rel=1e-4)
    assert gaussian.variance(square) == pytest.approx(2 * mode**2, rel=2e-3)
    bias = 1 / (beta * kappa) - mode - pull / (beta * (kappa + pull) ** 2)
    assert gaussian.bias(square) == pytest.approx(bias, rel=5e-3)
    constant = 0.5 * np.log((kappa + pull) / kappa) - 0.5 * pull / (kappa + pull)
    assert gaussian.log_partition_constant == pytest.approx(constant, rel=1e-3)
    assert gaussian.stability == pytest.approx(min(1.0, kappa / (kappa + pull)), rel=1e-3)  # the centre of mass is the softest mode


def test_modes_on_a_circle():
    """N Var of cos(2 pi k x/period) is 1/(2 (1 + c/k)); at k = 1 and index b this is exact at every N."""
    beta, strength, period, n = 3.0, 1.4, 2.5, 128
    c = beta * strength / 2
    mesh = Circle(period, n)
    field = MeanField(None, riesz(0.0, strength, 1), beta, mesh)
    gaussian = Fluctuations(field)
    np.testing.assert_allclose(gaussian.rho, 1 / period, rtol=1e-9)
    waves = np.stack([mesh.cell_average(lambda x, k=k: np.cos(2 * np.pi * k * x / period)) for k in (1, 2, 5)])
    np.testing.assert_allclose(np.diag(gaussian.covariance(waves)), [0.5 / (1 + c / k) for k in (1, 2, 5)], rtol=2e-2)
    coarse = Fluctuations(MeanField(None, riesz(0.0, strength, 1), beta, Circle(period, n // 2))).log_partition_constant
    exact = gammaln(1 + c) + np.euler_gamma * c
    assert gaussian.log_partition_constant == pytest.approx(exact, rel=4e-3)
    assert abs(gaussian.log_partition_constant - exact) < 0.4 * abs(coarse - exact)
    x = sample_circle_gas(12, beta, strength, period, rng=4, size=3000)[..., 0]
    wave = np.mean(np.cos(2 * np.pi * x / period), axis=1)
    assert in_chi_square(wave, gaussian.variance(waves[0]) / 12)
    assert not in_chi_square(wave, 0.5 / 12)  # control: free particles


def in_chi_square(draws, variance, level=1e-4):
    """Whether the sample variance of independent, nearly Gaussian draws agrees with `variance`: false alarm 1e-4."""
    low, high = chi2.ppf([level / 2, 1 - level / 2], len(draws) - 1)
    return low < (len(draws) - 1) * draws.var(ddof=1) / variance < high


# The next order


@pytest.mark.parametrize(("beta", "kappa", "strength"), CASES)
def test_bias_of_the_fourth_moment_is_exact(beta, kappa, strength):
    coarse, fine = (trapped(beta, kappa, strength, n) for n in (250, 500))
    quartic = [Fluctuations(field).bias(field.cell_average(lambda x: x**4)) for field in (coarse, fine)]
    c, n = beta * strength / 2, 10**6
    limit = n * (fourth_moment(n, beta, kappa, strength) - (3 + 5 * c + 2 * c**2) / (beta * kappa) ** 2)
    assert limit == pytest.approx(-(c**2) / (beta * kappa) ** 2, rel=1e-4)
    assert quartic[1] == pytest.approx(limit, rel=0.04)
    assert abs(quartic[1] - limit) < 0.45 * abs(quartic[0] - limit)  # better than first order in the width
    scale = abs(limit) / (beta * kappa)
    assert Fluctuations(fine).bias(fine.cell_average(np.square)) == pytest.approx(0, abs=0.05 * scale * beta * kappa)  # exactly 0
    assert Fluctuations(fine).bias(fine.x) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(("beta", "kappa", "strength"), CASES)
def test_determinant_of_the_fluctuations_is_the_next_order_of_the_normaliser(beta, kappa, strength):
    found = [Fluctuations(trapped(beta, kappa, strength, n)).log_partition_constant for n in (200, 400)]
    exact = trap_normaliser(beta, kappa, strength).constant
    assert found[1] == pytest.approx(exact, rel=5e-3)
    assert abs(found[1] - exact) < 0.5 * abs(found[0] - exact)
    box = Fluctuations(MeanField(None, riesz(0.0, strength, 1), beta, np.linspace(-1, 1, 401))).log_partition_constant
    assert box == pytest.approx(wall_normaliser(beta, strength, 1.0).constant, rel=0.02)
    assert circle_normaliser(beta, strength, 2.0).constant == circle_normaliser(beta, strength, 7.0).constant  # blind to the scale


def test_tails_at_finite_n_are_those_of_the_gamma_law():
    beta, kappa, strength = 3.0, 1.0, 1.2
    field = trapped(beta, kappa, strength, 300, span=7.0)
    mean, shape = (1 + beta * strength / 2) / (beta * kappa), (1 + beta * strength / 2) / 2
    gaussian, square = Fluctuations(field), field.cell_average(np.square)
    for n, side in ((4, 0.97), (8, 1.3), (32, 0.4), (128, 1.3)):
        y = n * beta * kappa * side * mean / 2
        sign, exact = (1, gammaincc(n * shape, y)) if side > 1 else (-1, gammainc(n * shape, y))
        assert gaussian.tail(sign * square, sign * side * mean, n) == pytest.approx(float(exact), rel=0.01)
        assert gaussian.tail(-sign * square, -sign * side * mean, n) == pytest.approx(1 - float(exact), rel=0.01)
    with pytest.raises(ValueError, match="value must differ from the mean"):
        gaussian.tail(square, field.mesh.integral(gaussian.rho * square), 40)


def test_all_particles_below_a_wall_at_finite_n():
    beta, kappa, strength, wall, trials = 2.0, 1.0, 1.0, 0.75, 20_000
    fields = [MeanField(lambda x: kappa * x**2 / 2, riesz(0.0, strength, 1), beta, np.linspace(-5, end, 231)) for end in (5.0, wall)]
    free = [MeanField(lambda x: kappa * x**2 / 2, None, beta, field.edges) for field in fields]
    assert confinement_probability(*free, 5) == pytest.approx(norm.cdf(wall * np.sqrt(beta * kappa)) ** 5, rel=1e-3)
    for n in (6, 10):
        seen = np.sum(sample_log_gas(n, beta, kappa, strength, rng=2, size=trials)[..., 0].max(1) <= wall)
        expected = trials * confinement_probability(*fields, n)
        assert abs(seen - expected) < 4 * np.sqrt(expected) + expected / (4 * n)  # false alarm 6e-5, and the O(1/n)
        assert abs(seen - trials * norm.cdf(wall * np.sqrt(beta * kappa)) ** n) > 10 * np.sqrt(expected)  # control: free particles


# Where beta grows


@pytest.mark.parametrize("b", [1.0, 2.0, 4.0, 7.5])
def test_bias_at_fixed_index_is_exact(b):
    strength, kappa = 0.8, 1.1
    radius = Semicircle(kappa, strength).radius
    n = np.array([2000, 4000])
    beta = b * (n - 1) / strength
    assert log_gas_bias(np.square, radius, b) == pytest.approx(n[0] / (beta[0] * kappa), rel=1e-3)  # virial: 1/(beta kappa) at every n
    quartic = [k * (fourth_moment(int(k), float(t), kappa, strength) - radius**4 / 8) for k, t in zip(n, beta)]
    assert log_gas_bias(lambda x: x**4, radius, b) == pytest.approx(2 * quartic[1] - quartic[0], rel=1e-5)
    draws = np.mean(np.cos(2 * sample_log_gas(12, b * 11 / strength, kappa, strength, rng=1, size=4000)[..., 0]), axis=1)
    mean = float(np.sum(np.cos(2 * Semicircle(kappa, strength).quantile((np.arange(4000) + 0.5) / 4000))) / 4000)
    bias, error = log_gas_bias(lambda x: np.cos(2 * x), radius, b) / 12, draws.std() / np.sqrt(4000)
    assert abs(draws.mean() - mean - bias) < 4 * error + 0.15 * abs(bias) + 0.2 / 12**2  # false alarm 6e-5, the rest O(1/N^2)
    assert b > 3 or abs(draws.mean() - mean) > 10 * error  # control: without the bias


def test_johansson_s_variances():
    kappa, strength = 1.3, 0.7
    radius = Semicircle(kappa, strength).radius
    assert log_gas_covariance(lambda x: x, lambda x: x, -radius, radius, strength) == pytest.approx(1 / kappa, rel=1e-12)
    square = log_gas_covariance(np.square, np.square, -radius, radius, strength)
    assert square == pytest.approx(strength / kappa**2, rel=1e-12)  # 2 (1 + c)/(beta kappa^2) for large beta
    fields = [trapped(beta, kappa, strength, 800, span=12) for beta in (100.0, 200.0)]
    for f, rel in ((np.cos, 0.02), (lambda x: np.exp(x / 2), 0.02)):
        scaled = [field.beta * Fluctuations(field).variance(field.cell_average(f)) for field in fields]
        assert 2 * scaled[1] - scaled[0] == pytest.approx(log_gas_covariance(f, f, -radius, radius, strength), rel=rel)
    mixed = log_gas_covariance(np.square, np.cos, -radius, radius, strength)
    polar = [log_gas_covariance(h, h, -radius, radius, strength) for h in (lambda x: x**2 + np.cos(x), lambda x: x**2 - np.cos(x))]
    assert mixed == pytest.approx((polar[0] - polar[1]) / 4, rel=1e-12)


@pytest.mark.parametrize("walls", [False, True])
def test_johansson_s_variances_are_the_samplers(walls):
    n, b, strength, kappa = 40, 2.0, 0.8, 1.1
    beta = b * (n - 1) / strength
    if walls:
        x, low, high = sample_wall_gas(n, beta, strength, 1.5, rng=6, size=1500)[..., 0], -1.5, 1.5
    else:
        x = sample_log_gas(n, beta, kappa, strength, rng=6, size=3000)[..., 0]
        low, high = -Semicircle(kappa, strength).radius, Semicircle(kappa, strength).radius
    for f in (np.cos, lambda x: np.exp(-x)):
        predicted = log_gas_covariance(f, f, low, high, strength) / (beta * n)
        assert in_chi_square(np.mean(f(x), axis=1), predicted)
        assert not in_chi_square(np.mean(f(x), axis=1), 1.25 * predicted)  # control


# The learned kernel of exact samples


@pytest.mark.parametrize(("beta", "n"), [(6.0, 16), (6.0, 64), (1.5, 32)])
def test_the_kernel_of_exact_samples_concentrates_as_predicted(beta, n):
    kappa, strength, delta = 1.3, 0.9, 1.7
    prediction = LearnedKernel(trapped(beta, kappa, strength, 500), delta)
    kernel = np.mean(np.cos(delta * sample_log_gas(n, beta, kappa, strength, rng=n, size=3000)[..., 0]), axis=1)
    mean, error = prediction.mean + prediction.bias / n, np.sqrt(prediction.variance / n / len(kernel))
    assert abs(kernel.mean() - mean) < 4 * error + abs(prediction.bias) / n**2  # false alarm 6e-5
    assert in_chi_square(kernel, prediction.variance / n)
    other = LearnedKernel(trapped(beta, kappa, 0.0), delta)  # control: free particles
    assert abs(kernel.mean() - other.mean) > 4 * error
    assert not in_chi_square(kernel, 1.25 * prediction.variance / n)


@pytest.mark.parametrize("n", [6, pytest.param(12, marks=pytest.mark.slow)])
def test_the_kernel_s_bias_is_seen(n):
    """At a few particles the mean of the kernel is off by far more than its error, as predicted to O(1/N^2)."""
    beta, kappa, strength, delta = 6.0, 1.3, 2.5, 2.0
    prediction = LearnedKernel(trapped(beta, kappa, strength, 600), delta)
    kernel = np.mean(np.cos(delta * sample_log_gas(n, beta, kappa, strength, rng=7, size=20_000)[..., 0]), axis=1)
    error = np.sqrt(prediction.variance / n / len(kernel))
    assert abs(kernel.mean() - prediction.mean) > 10 * error  # the mean field alone is rejected
    assert abs(kernel.mean() - prediction.mean - prediction.bias / n) < 4 * error + 2 * abs(prediction.bias) / n**2


def test_the_kernel_s_rate_is_gaussian_to_leading_order():
    beta, kappa, strength, delta, n = 2.0, 1.0, 1.0, 1.2, 24
    prediction = LearnedKernel(trapped(beta, kappa, strength, 200, span=7), delta)
    deviation, errors = np.sqrt(prediction.variance / n), []
    for distance in (-2.5 * deviation, 2.5 * deviation, -0.25 * deviation, 0.25 * deviation):
        found = prediction.rate(prediction.mean + distance)
        errors.append(found.rate * 2 * prediction.variance / distance**2 - 1)
        assert prediction.field.mesh.integral(found.rho * prediction.statistic) == pytest.approx(prediction.mean + distance, abs=1e-7)
        tail = prediction.tail(n, prediction.mean + distance)
        assert tail < np.exp(-n * found.rate)
        assert tail < float(concentration_bound(n, abs(distance), beta=beta, convexity=kappa, lipschitz=delta))
    assert np.abs(errors[:2]).max() < 0.35
    assert np.array(errors[2:]) == pytest.approx(np.array(errors[:2]) / 10, rel=0.3)  # the cubic term


@pytest.mark.slow
def test_the_kernel_s_tail_is_that_of_samples():
    beta, kappa, strength, delta, n, trials = 2.0, 1.0, 1.0, 1.2, 24, 20_000
    prediction = LearnedKernel(trapped(beta, kappa, strength, 400, span=7), delta)
    kernel = np.mean(np.cos(delta * sample_log_gas(n, beta, kappa, strength, rng=3, size=trials)[..., 0]), axis=1)
    deviation = np.sqrt(prediction.variance / n)
    for value in (prediction.mean - 2.5 * deviation, prediction.mean + 2.5 * deviation):
        seen = np.sum(kernel <= value if value < prediction.mean else kernel >= value)
        predicted = prediction.tail(n, value)
        assert abs(seen - trials * predicted) < 4 * np.sqrt(trials * predicted)  # binomial: false alarm 6e-5
        assert not abs(seen - trials * norm.sf(2.5)) < 4 * np.sqrt(trials * predicted)  # control: the Gaussian tail


def test_the_concentration_bound_holds_and_is_sharp_for_the_centre_of_mass():
    n, beta, kappa = 20, 3.0, 1.1
    distance = np.linspace(0.01, 1.0, 30)
    exact = 2 * norm.sf(distance * np.sqrt(n * beta * kappa))
    bound = concentration_bound(n, distance, beta=beta, convexity=kappa, lipschitz=1.0)
    assert (exact <= bound).all()
    assert np.log(bound[-1]) / np.log(exact[-1]) > 0.9  # the exponent is the right one
    assert (exact > concentration_bound(n, distance, beta=1.2 * beta, convexity=kappa, lipschitz=1.0))[-1]  # control


def test_planar_kernels():
    beta, kappa, strength = 2.0, 1.1, 1.4
    field = MeanField(lambda x: kappa * np.sum(x**2, -1) / 2, riesz(0.0, strength, 2), beta, Rectangle([-4, -4], [4, 4], (40, 40)))
    small = 0.05  # 1 - cos(w.delta) = (w.delta)^2/2: half of sum |w|^2 by symmetry
    prediction = LearnedKernel(field, np.array([0.0, small]))
    assert 2 * (1 - prediction.mean) / small**2 == pytest.approx((2 + beta * strength / 2) / (2 * beta * kappa), rel=5e-3)
    assert prediction.rate(prediction.mean - 1e-4).rate > 0
    with pytest.raises(ValueError, match="at most 2500 cells"):
        _ = Fluctuations(MeanField(None, None, 1.0, Rectangle([-4, -4], [4, 4], (51, 50)))).log_partition_constant


def test_the_next_order_in_the_plane():
    """Quadratic attraction, Gaussian at every N: twice what it is on the line. And the log gas, whose second moment has no bias."""
    beta, kappa, pull = 3.0, 1.3, 0.8
    mode, found = 1 / (beta * (kappa + pull)), []
    for n in (16, 24):
        mesh = Rectangle([-2.6, -2.6], [2.6, 2.6], (n, n))
        square = mesh.cell_average(lambda x: np.sum(x**2, -1))
        field = MeanField(lambda x: kappa * np.sum(x**2, -1) / 2, lambda r: pull * r**2 / 2, beta, mesh)
        gaussian = Fluctuations(field)
        found.append([gaussian.bias(square), gaussian.log_partition_constant])
    bias, constant = (9 * np.array(found[1]) - 4 * np.array(found[0])) / 5  # second order in the width
    assert bias == pytest.approx(2 * (1 / (beta * kappa) - mode - pull / (beta * (kappa + pull) ** 2)), rel=1e-3)
    assert constant == pytest.approx(np.log((kappa + pull) / kappa) - pull / (kappa + pull), rel=3e-3)
    biases = []
    for n in (16, 24, 32):
        mesh = Rectangle([-2.6, -2.6], [2.6, 2.6], (n, n))
        logs = Fluctuations(MeanField(lambda x: kappa * np.sum(x**2, -1) / 2, riesz(0.0, 1.4, 2), beta, mesh))
        biases.append([logs.bias(mesh.cell_average(lambda x, power=power: np.sum(x**2, -1) ** power)) for power in (1, 2)])
    size = np.abs(biases)
    assert (size[1:, 0] < 0.6 * size[:-1, 0]).all()  # to 0, nearly as the square of the width
    assert size[2, 0] < 0.05 * size[2, 1]


def test_a_disc_says_what_a_rectangle_says():
    beta, kappa, strength, delta = 2.0, 1.1, 1.4, np.array([0.8, -0.5])
    predictions = []
    for mesh in (Disc(3.6, 36, 48), Rectangle([-3.6, -3.6], [3.6, 3.6], (48, 48))):
        field = MeanField(lambda x: kappa * np.sum(x**2, -1) / 2, riesz(0.0, strength, 2), beta, mesh)
        prediction = LearnedKernel(field, delta)
        assert prediction.fluctuations.variance(mesh.cell_average(lambda x: x[..., 0])) == pytest.approx(1 / (beta * kappa), rel=0.01)
        predictions.append((prediction.mean, prediction.variance))
    np.testing.assert_allclose(predictions[0], predictions[1], rtol=0.01)


# Refusals


def test_unstable_and_unfinished_states_are_refused():
    field = MeanField(lambda x: (x**2 - 1) ** 2, lambda r: 2.0 * r**2, 6.0, np.linspace(-2, 2, 201))
    unstable = field.stationary().rho  # even: between the two wells
    assert field.mesh.integral(unstable * field.x) == pytest.approx(0, abs=1e-6)
    with pytest.raises(ValueError, match="must be a minimum"):
        Fluctuations(field, unstable)
    uneven = np.exp(-8 * (field.x - 1) ** 2)
    with pytest.raises(ValueError, match="must be stationary"):
        Fluctuations(field, uneven / field.mesh.integral(uneven))
    with pytest.raises(ValueError, match="field must be a MeanField"):
        Fluctuations(SimpleNamespace())
    gaussian = Fluctuations(field, field.stationary(uneven / field.mesh.integral(uneven)).rho)
    with pytest.raises(ValueError, match="f must have one value a cell"):
        gaussian.variance(np.ones(7))


def test_the_next_order_needs_a_square_integrable_interaction():
    field = MeanField(lambda x: x**2, riesz(0.6, 1.0, 1), 2.0, np.linspace(-3, 3, 61))
    assert 0 < Fluctuations(field).variance(field.x) < 1
    assert Fluctuations(field).variance(field.x) == pytest.approx(1 / (2 * 2.0), rel=1e-3)  # the centre of mass is free for every g
    with pytest.raises(ValueError, match="square-integrable"):
        Fluctuations(field).bias(field.x)
    assert np.isfinite(Fluctuations(MeanField(lambda x: x**2, riesz(0.45, 1.0, 1), 2.0, field.edges)).log_partition_constant)


def test_kernels_of_radial_densities_are_refused():
    field = MeanField(lambda r: r**2, None, 1.0, RadialBall(3.0, 40, 2))
    with pytest.raises(ValueError, match="radial density"):
        LearnedKernel(field, 1.0)
    with pytest.raises(ValueError, match="must not be radial"):
        _ = Fluctuations(MeanField(lambda r: r**2, riesz(0.0, 1.0, 2), 1.0, RadialBall(3.0, 40, 2))).log_partition_constant
    line = MeanField(lambda x: x**2, None, 1.0, np.linspace(-3, 3, 41))
    with pytest.raises(ValueError, match="field must be a MeanField, got 3"):
        LearnedKernel(3, 1.0)
    with pytest.raises(ValueError, match="delta must be a number"):
        LearnedKernel(line, [1.0, 2.0])
    with pytest.raises(ValueError, match="high above low, got low"):
        log_gas_covariance(np.cos, np.cos, 1.0, 1.0, 1.0)
