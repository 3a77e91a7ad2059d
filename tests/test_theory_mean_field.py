"""The finite-volume solver against closed forms, with measured orders of convergence."""

from __future__ import annotations

import numpy as np
import pytest

from theory.convergence import fit_rate
from theory.equilibrium import GaussWigner
from theory.mean_field import MeanField


def gaussian(field, mean, variance):
    """Cell averages of a normal density, of mass 1 on the grid."""
    rho = field.cell_average(lambda x: np.exp(-((x - mean) ** 2) / (2 * variance)))
    return rho / (rho.sum() * field.width)


def moment(field, rho, k=2):
    return field.width * np.sum(rho * field.cell_average(lambda x: x**k))


def log_gas(n_cells, beta=6.0, kappa=1.3, strength=0.7, wall=3.0):
    return MeanField(lambda x: kappa * x**2 / 2, lambda r: -strength * np.log(r), beta, np.linspace(-wall, wall, n_cells + 1))


@pytest.mark.parametrize("s", [0.0, 0.3, 0.5, 0.9, -0.5, -1.0])
def test_cell_averages_of_the_kernel_are_exact(s):
    h = 0.07
    field = MeanField(None, lambda r: -np.log(r) if s == 0 else np.sign(s) * r**-s, 1.0, np.arange(9) * h)

    def second_integral(r):  # twice integrated kernel
        if r == 0:
            return 0.0
        return -(r**2) / 2 * np.log(r) + 0.75 * r**2 if s == 0 else np.sign(s) * r ** (2 - s) / ((1 - s) * (2 - s))

    exact = [(second_integral(h * (m + 1)) + second_integral(h * abs(m - 1)) - 2 * second_integral(h * m)) / h**2 for m in range(8)]
    np.testing.assert_allclose(field.convolution.kernel, exact, rtol=2e-12, atol=1e-12)


def test_convolution_equals_the_matrix_product():
    field = log_gas(61)
    rho = gaussian(field, 0.3, 0.2)
    i = np.arange(61)
    direct = field.width * field.convolution.kernel[np.abs(i[:, None] - i)] @ rho
    np.testing.assert_allclose(field.potential(rho) - field.external, direct, atol=1e-13)


@pytest.mark.parametrize(("kappa", "strength", "beta", "wall"), [(1.3, 0.7, 6.0, 3.0), (0.6, 1.4, 1.5, 9.0)])
def test_stationary_state_is_gauss_wigner_at_second_order(kappa, strength, beta, wall):
    law, cells = GaussWigner(kappa, strength, beta), np.array([50, 100, 200])
    density, energy, variance = [], [], []
    for n in cells:
        field = log_gas(n, beta, kappa, strength, wall)
        state = field.stationary()
        assert state.residual < 1e-11
        assert abs(state.rho.sum() * field.width - 1) < 1e-12
        density.append(np.abs(state.rho - law.density(field.x)).max())
        energy.append(abs(field.free_energy(state.rho) - law.free_energy))
        variance.append(abs(moment(field, state.rho) - law.second_moment))
    for error in (density, energy, variance):
        assert -2.4 < fit_rate(cells, error).slope < -1.8
    assert energy[-1] < 0.03 * field.width**2
    wrong = GaussWigner(kappa, strength, 1.2 * beta)  # negative control: beta 20 % off is 10 to 100 times further away
    assert np.abs(state.rho - wrong.density(field.x)).max() > 10 * density[-1]


def test_evolution_reaches_the_stationary_state():
    field = log_gas(120)
    final = field.evolve(gaussian(field, 0.8, 0.02), 12.0, n_steps=300)
    assert np.abs(final - field.stationary().rho).max() < 1e-7
    assert field.dissipation(final) < 1e-12


def test_mass_positivity_and_monotone_free_energy():
    field = log_gas(150)
    rho = np.zeros(150)
    rho[20:40] = 1 / (20 * field.width)  # far from equilibrium, with empty cells
    values = [field.free_energy(rho)]
    for n_steps in [1, 1, 2, 10, 40, 40]:  # steps from 0.0125 to 0.5
        rho = field.evolve(rho, 0.5, n_steps=n_steps)
        assert abs(rho.sum() * field.width - 1) < 1e-12
        assert rho.min() >= 0
        values.append(field.free_energy(rho))
    assert (np.diff(values) < 0).all()


def test_diffusion_in_a_box_keeps_the_uniform_density_and_decays_at_the_exact_rate():
    field = MeanField(None, None, 2.0, np.linspace(0, 1.5, 201))
    uniform = np.full(200, 1 / 1.5)
    np.testing.assert_allclose(field.evolve(uniform, 3.0), uniform, rtol=1e-12)
    mode = np.cos(np.pi * field.x / 1.5)
    start = uniform * (1 + 0.5 * mode)
    end = field.evolve(start, 0.4, n_steps=4000)
    assert np.sum((end - uniform) * mode) / np.sum((start - uniform) * mode) == pytest.approx(
        np.exp(-0.4 / 2 * (np.pi / 1.5) ** 2), rel=3e-4
    )


@pytest.mark.parametrize(("kappa", "attraction", "beta"), [(1.3, 0.0, 6.0), (1.3, 0.8, 6.0), (0.7, 0.4, 2.0)])
def test_ornstein_uhlenbeck_moments_at_first_order_in_time(kappa, attraction, beta):
    """Quadratic attraction: mean m exp(-kappa t), v' = -2 (kappa + a) v + 2/beta."""
    field = MeanField(lambda x: kappa * x**2 / 2, lambda r: attraction * r**2 / 2, beta, np.linspace(-5, 5, 801))
    start, t, errors, steps = gaussian(field, 0.7, 0.5), 0.6, [], np.array([20, 40, 80])
    rate, limit = 2 * (kappa + attraction), 1 / (beta * (kappa + attraction))
    for n_steps in steps:
        rho = field.evolve(start, t, n_steps=n_steps)
        mean = moment(field, rho, 1)
        variance = moment(field, rho) - mean**2
        exact = limit + (moment(field, start) - moment(field, start, 1) ** 2 - limit) * np.exp(-rate * t)
        errors.append([abs(mean - moment(field, start, 1) * np.exp(-kappa * t)), abs(variance - exact)])
    assert -1.1 < fit_rate(steps, np.array(errors)[:, 0]).slope < -0.9
    assert -1.4 < fit_rate(steps, np.array(errors)[:, 1]).slope < -0.7
    assert np.max(errors[-1]) < 0.01


def test_log_gas_second_moment_follows_its_exact_equation():
    """d<x^2>/dt = -2 kappa <x^2> + strength + 2/beta for any start (no wall contact)."""
    field = log_gas(300, beta=3.0, kappa=0.9, strength=1.1, wall=4.0)
    start, t = gaussian(field, 0.6, 0.05), 0.5
    limit = (1.1 + 2 / 3.0) / 1.8
    exact = limit + (moment(field, start) - limit) * np.exp(-1.8 * t)
    coarse, fine = (moment(field, field.evolve(start, t, n_steps=n)) for n in (200, 400))
    assert 2 * fine - coarse == pytest.approx(exact, abs=3e-4)  # extrapolated in time; the rest is the grid
    without_half = limit + 1.1 / 1.8  # negative control: strength counted twice
    assert abs(2 * fine - coarse - (without_half + (moment(field, start) - without_half) * np.exp(-1.8 * t))) > 0.05


def test_dissipation_closed_form_at_second_order():
    m, v, kappa, a, beta = 0.7, 0.9, 1.3, 0.8, 6.0
    exact = (kappa * m) ** 2 + v * (kappa + a - 1 / (beta * v)) ** 2
    assert exact == pytest.approx(4.1279642, abs=5e-8)
    cells, errors = np.array([200, 400, 800]), []
    for n in cells:
        field = MeanField(lambda x: kappa * x**2 / 2, lambda r: a * r**2 / 2, beta, np.linspace(-6, 7, n + 1))
        errors.append(abs(field.dissipation(gaussian(field, m, v)) - exact))
    assert fit_rate(cells, errors).slope < -1.7
    assert errors[-1] < 2e-3 * exact


def test_free_energy_falls_by_the_dissipation():
    field = log_gas(200)
    rho, dt = field.evolve(gaussian(field, 0.8, 0.05), 0.05, n_steps=50), 1e-4
    values, losses = [field.free_energy(rho)], [field.dissipation(rho)]
    for _ in range(20):
        rho = field.evolve(rho, dt, n_steps=1)
        values.append(field.free_energy(rho))
        losses.append(field.dissipation(rho))
    slope = (values[0] - values[-1]) / (20 * dt)
    assert slope == pytest.approx(dt * (sum(losses) - (losses[0] + losses[-1]) / 2) / (20 * dt), rel=2e-3)


def test_attraction_can_have_several_stationary_states():
    """V = x^4/4 - x^2/2 with quadratic attraction, cold: left, right and (unstable) symmetric solutions."""
    field = MeanField(lambda x: x**4 / 4 - x**2 / 2, lambda r: r**2 / 2, 8.0, np.linspace(-3, 3, 201))
    states = [field.stationary(gaussian(field, m, 0.1)) for m in (-1.0, 0.0, 1.0)]
    assert max(state.residual for state in states) < 1e-9
    means = [moment(field, state.rho, 1) for state in states]
    assert means[0] < -0.5
    assert abs(means[1]) < 1e-8
    assert means[2] > 0.5


def test_cold_log_gas_between_walls():
    """Log gas without trap between walls: cold, the density tends to the arcsine law and the pair energy to log(2/L)."""
    field = MeanField(None, lambda r: -np.log(r), 3000.0, np.linspace(-1, 1, 401))
    state = field.stationary()
    assert state.residual < 1e-9
    cumulative = np.cumsum(state.rho) * field.width
    np.testing.assert_allclose(cumulative, 0.5 + np.arcsin(field.edges[1:]) / np.pi, atol=0.01)
    energy = field.width * np.sum(state.rho * (field.potential(state.rho) - field.external))
    assert energy == pytest.approx(np.log(2), abs=0.01)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: MeanField(None, None, 1.0, [0, 1, 3, 4, 5]), "grid must be"),
        (lambda: MeanField(None, None, 1.0, [4, 3, 2, 1, 0]), "grid must increase"),
        (lambda: MeanField(None, None, 1.0, 400), "grid must be at least 4 equally spaced.*400"),
        (lambda: MeanField(None, None, 0.0, np.arange(6)), "beta must be"),
        (lambda: MeanField(None, lambda r: r**-1.0, 1.0, np.arange(6)), "interaction must be"),
        (lambda: MeanField(None, lambda r: r**-1.5, 1.0, np.arange(6)), "interaction must be"),
        (lambda: MeanField(lambda x: x / 0, None, 1.0, np.arange(6)), "external must be finite"),
        (lambda: MeanField(3.0, None, 1.0, np.arange(6)), "external must be a callable or None, got 3.0"),
        (lambda: MeanField(None, "log", 1.0, np.arange(6)), "interaction must be a callable or None, got 'log'"),
        (lambda: MeanField(lambda x: np.ones(7), None, 1.0, np.arange(6)), r"external must return an array .*\(7,\)"),
        (lambda: MeanField(None, None, 1.0, np.arange(6)).free_energy(np.ones(5)), "mass 5.0"),
        (lambda: MeanField(None, None, 1.0, np.arange(6)).evolve([2, -1, 0, 0, 0], 1.0), "rho must be"),
        (lambda: MeanField(None, None, 1.0, np.arange(6)).evolve([0.2] * 5, -1.0), "t must be"),
        (lambda: MeanField(None, None, 1.0, np.arange(6)).evolve([0.2] * 5, 1.0, n_steps=0), "n_steps must be"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value", "ignore:overflow")
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
