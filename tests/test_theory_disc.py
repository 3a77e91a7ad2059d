"""Disc meshes: averages of singular interactions, laws and motion without symmetry against exact ones; orders of convergence."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import exp1

from theory.equilibrium.liouville import DiscLogGas
from theory.mean_field import MeanField
from theory.mean_field.disc import Disc
from theory.mean_field.radial import RadialBall
from theory.mean_field.ring_averages import ring_averages
from theory.mean_field.shell_averages import shell_averages


def riesz(s, strength=1.0):
    return (lambda r: -strength * np.log(r)) if s == 0 else (lambda r: strength * np.sign(s) * r**-s)


def gaussian(mesh, mean, variance):
    rho = mesh.cell_average(lambda x: np.exp(-np.sum((x - mean) ** 2, -1) / (2 * variance)))
    return rho / mesh.integral(rho)


def moments(mesh, rho):
    """Mean (2,) and mean square radius."""
    mean = np.sum((mesh.volume * rho)[..., None] * mesh.centres, (0, 1))
    return mean, mesh.integral(rho * mesh.cell_average(lambda x: np.sum(x**2, -1)))


@pytest.mark.parametrize("shape", [(8, 16), (6, 128), (12, 5), (16, 8)])
@pytest.mark.parametrize("s", [-1.2, 0, 1, 1.95])
def test_averages_over_all_angles_are_those_of_shells(shape, s):
    n_r, n_angle = shape
    kernel = ring_averages(riesz(s), n_r, n_angle, 0.9 / n_r)
    offset = np.arange(n_angle)
    around = kernel[..., np.minimum(offset, n_angle - offset)].mean(-1)
    assert np.allclose(around, shell_averages(riesz(s), np.linspace(0, 0.9, n_r + 1), 2), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("shape", [(4, 9), (3, 40)])
@pytest.mark.parametrize("s", [-0.5, 0, 1, 1.9])
def test_coarse_averages_are_means_of_fine_ones(shape, s):
    n_r, n_angle = shape
    coarse = ring_averages(riesz(s), n_r, n_angle, 0.3)
    fine = ring_averages(riesz(s), 2 * n_r, 2 * n_angle, 0.15)
    fine = fine[..., np.minimum(np.arange(2 * n_angle), 2 * n_angle - np.arange(2 * n_angle))]
    at = 2 * np.arange(n_angle // 2 + 1)
    turned = (2 * fine[..., at] + fine[..., at - 1] + fine[..., at + 1]) / 4
    area = np.arange(2 * n_r) + 0.5
    weight = area[:, None, None] * area[None, :, None]
    pooled = (turned * weight).reshape(n_r, 2, n_r, 2, -1).sum((1, 3)) / weight.reshape(n_r, 2, n_r, 2, 1).sum((1, 3))
    assert np.allclose(coarse, pooled, rtol=5e-11, atol=1e-11)


def test_averages_of_even_powers_are_exact():
    """|x - y|^2 = |x|^2 + |y|^2 - 2 x.y averages to second moments and centroids; |x - y|^4 to fourth ones."""
    mesh = Disc(1.3, 5, 7)
    x = mesh.centres.reshape(-1, 2)
    square = mesh.cell_average(lambda x: np.sum(x**2, -1)).ravel()
    kernel = mesh.convolution(lambda r: r**2).kernel
    exact = square[:, None] + square - 2 * x @ x.T
    first = np.arange(5) * 7
    for offset in range(4):
        assert np.allclose(kernel[..., offset], exact[first][:, first + offset], rtol=1e-11)
    second = [mesh.cell_average(lambda x, a=a, b=b: x[:, a] * x[:, b]).ravel() for a, b in ((0, 0), (0, 1), (1, 1))]
    third = [mesh.cell_average(lambda x, a=a: np.sum(x**2, -1) * x[:, a]).ravel() for a in range(2)]
    fourth = mesh.cell_average(lambda x: np.sum(x**2, -1) ** 2).ravel()
    crossed = sum(k * np.outer(m, m) for k, m in zip((1, 2, 1), second))
    mixed = sum(np.outer(t, y) + np.outer(y, t) for t, y in zip(third, x.T))
    exact = fourth[:, None] + fourth + 2 * np.outer(square, square) + 4 * crossed - 4 * mixed
    kernel = mesh.convolution(lambda r: r**4).kernel
    for offset in range(4):
        assert np.allclose(kernel[..., offset], exact[first][:, first + offset], rtol=1e-11)


def test_logarithmic_potential_of_an_eccentric_gaussian():
    """-log r - E_1(r^2 / 2 v) / 2 at the distance r from its centre; piecewise constant densities come to it in second order."""
    centre, v, errors = np.array([0.5, -0.3]), 0.06, []
    for n_r, n_angle in ((20, 32), (40, 64)):
        mesh = Disc(2.0, n_r, n_angle)
        rho = gaussian(mesh, centre, v)

        def exact(x):
            r = np.linalg.norm(x - centre, axis=-1)
            return -np.log(r) - exp1(r**2 / (2 * v)) / 2

        errors.append(np.abs(mesh.convolution(riesz(0))(rho) - mesh.cell_average(exact)).max())
    assert errors[1] < 5e-3
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.15)


@pytest.mark.parametrize(("shape", "s"), [((6, 10), 0), ((5, 9), 1.3)])
def test_convolution_is_symmetric_and_turns_with_the_density(shape, s):
    mesh = Disc(1.1, *shape)
    convolution = mesh.convolution(riesz(s))
    rng = np.random.default_rng(3)
    one, two = rng.random(shape), rng.random(shape)
    assert mesh.integral(one * convolution(two)) == pytest.approx(mesh.integral(two * convolution(one)), rel=1e-13)
    assert np.allclose(convolution(np.roll(one, 3, axis=1)), np.roll(convolution(one), 3, axis=1), rtol=1e-12)
    assert np.allclose(convolution(one[:, ::-1]), convolution(one)[:, ::-1], rtol=1e-12)
    with pytest.raises(NotImplementedError):
        _ = convolution.matrix


@pytest.mark.parametrize("shape", [(4, 3), (7, 12), (5, 64)])
def test_discrete_laplacian_of_linear_functions_and_the_square_is_exact(shape):
    mesh = Disc(1.3, *shape)

    def laplacian(function):
        u = mesh.cell_average(function)
        total = np.zeros(shape)
        radial = mesh.axes[0].conductance * np.diff(u, axis=0)
        total[:-1] += radial
        total[1:] -= radial
        around = mesh.axes[1].conductance * (np.roll(u, -1, axis=1) - u)
        return ((total + around - np.roll(around, 1, axis=1)) / mesh.volume)[:-1]

    assert np.allclose(laplacian(lambda x: x[:, 0]), 0, atol=1e-11)
    assert np.allclose(laplacian(lambda x: x[:, 1]), 0, atol=1e-11)
    assert np.allclose(laplacian(lambda x: np.sum(x**2, -1)), 4)
    assert mesh.axes[1].conductance.min() > 0


def test_cells_fill_the_disc_and_averages_are_exact():
    mesh = Disc(1.7, 6, 9)
    assert mesh.integral(np.ones(mesh.shape)) == pytest.approx(np.pi * 1.7**2)
    assert mesh.integral(mesh.cell_average(lambda x: x[:, 0] ** 2 * x[:, 1] ** 2)) == pytest.approx(np.pi * 1.7**6 / 24)
    for axis in range(2):
        assert np.allclose(mesh.cell_average(lambda x, a=axis: x[:, a]), mesh.centres[..., axis])


def test_no_disc_and_no_integrable_interaction_are_refused():
    for arguments in [(0, 4, 8), (1, 2, 8), (1, 4, 2), (np.inf, 4, 8), (1, 4.5, 8)]:
        with pytest.raises(ValueError):
            Disc(*arguments)
    for s in (2, 1.999, 2.5):
        with pytest.raises(ValueError, match="integrable"):
            Disc(1, 4, 8).convolution(riesz(s))
    with pytest.raises(ValueError, match="shape"):
        Disc(1, 4, 8).cell_average(lambda x: x)


@pytest.mark.parametrize("s", [0, 1.3, -1])
def test_radial_data_evolve_as_on_the_radial_mesh(s):
    disc, ball = Disc(2.5, 20, 12), RadialBall(2.5, 20, 2)
    fields = [
        MeanField(lambda x: 0.6 * np.sum(x**2, -1), riesz(s, 0.7), 5.0, disc),
        MeanField(lambda r: 0.6 * r**2, riesz(s, 0.7), 5.0, ball),
    ]
    states = [field.stationary() for field in fields]
    assert np.allclose(states[0].rho, states[1].rho[:, None], atol=1e-11)
    assert states[0].free_energy == pytest.approx(states[1].free_energy, abs=1e-12)
    rho = np.exp(-ball.centres)
    rho /= ball.integral(rho)
    after = [field.evolve(start, 0.2, tol=1e-6) for field, start in zip(fields, (np.tile(rho[:, None], 12), rho))]
    assert np.allclose(after[0], after[1][:, None], atol=1e-4)
    assert np.allclose(after[0], after[0][:, :1], atol=1e-12)


@pytest.mark.parametrize("strength", [1.5, -0.8])
def test_log_gas_between_walls_solves_the_liouville_equation(strength):
    law, errors = DiscLogGas(1.2, strength, 2.0), []
    for n in (12, 24):
        mesh = Disc(1.2, n, 8)
        state = MeanField(None, riesz(0, strength), 2.0, mesh).stationary()
        errors.append(np.abs(np.cumsum((mesh.volume * state.rho).sum(1)) - law.radial_cdf(mesh.edges[1:])).max())
    assert errors[1] < 2e-3
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.15)


def ornstein_uhlenbeck_errors(n, attraction=0.0):
    """Errors of mean, variance and density of a Gaussian that starts off the centre, in a trap and attracted to its own mean."""
    kappa, beta, t, start, v = 1.1, 5.0, 0.3, np.array([0.6, 0.35]), 0.12
    mesh = Disc(3.0, 3 * n, 4 * n)
    field = MeanField(lambda x: kappa * np.sum(x**2, -1) / 2, (lambda r: attraction * r**2 / 2) if attraction else None, beta, mesh)
    rho = field.evolve(gaussian(mesh, start, v), t, tol=1e-6)
    mean, square = moments(mesh, rho)
    rate, rest = kappa + attraction, 1 / (beta * (kappa + attraction))
    variance = rest + (v - rest) * np.exp(-2 * rate * t)
    exact = start * np.exp(-kappa * t)
    return [
        np.abs(mean - exact).max(),
        abs(square - mean @ mean - 2 * variance),
        mesh.integral(np.abs(rho - gaussian(mesh, exact, variance))),
    ]


@pytest.mark.parametrize("attraction", [0.0, 0.9])
def test_gaussian_off_the_centre_keeps_its_exact_mean_and_variance(attraction):
    coarse, fine = np.array(ornstein_uhlenbeck_errors(6, attraction)), np.array(ornstein_uhlenbeck_errors(12, attraction))
    assert np.all(fine < [2e-3, 3e-3, 6e-3])
    assert np.all(np.abs(np.log2(coarse / fine) - 2) < 0.1)


@pytest.mark.slow
def test_gaussian_off_the_centre_converges_in_second_order():
    errors = np.array([ornstein_uhlenbeck_errors(n, 0.5) for n in (8, 16, 32)])
    orders = np.log2(errors[:-1] / errors[1:])
    assert np.all(np.abs(orders[-1] - 2) < 0.03)
    assert errors[-1].max() < 2e-3


def test_log_interaction_moves_no_mean_and_feeds_the_second_moment():
    """d/dt E x = -kappa E x, d/dt E|x|^2 = -2 kappa E|x|^2 + strength + 4 / beta for two clouds, walls out of reach."""
    kappa, strength, beta, t = 1.0, 0.8, 6.0, 0.25
    errors = []
    for n in (8, 16):
        mesh = Disc(3.0, 3 * n, 4 * n)
        field = MeanField(lambda x: kappa * np.sum(x**2, -1) / 2, riesz(0, strength), beta, mesh)
        rho = 0.7 * gaussian(mesh, [0.7, 0.2], 0.1) + 0.3 * gaussian(mesh, [-0.4, 0.6], 0.15)
        mean, square = moments(mesh, rho)
        after, square_after = moments(mesh, field.evolve(rho, t, tol=1e-6))
        rest = (strength + 4 / beta) / (2 * kappa)
        errors.append(
            [np.abs(after - mean * np.exp(-kappa * t)).max(), abs(square_after - rest - (square - rest) * np.exp(-2 * kappa * t))]
        )
    assert np.all(np.array(errors[1]) < [5e-4, 5e-3])
    assert np.all(np.abs(np.log2(np.array(errors[0]) / errors[1]) - 2) < 0.4)


def double_well(x):
    return (x[..., 0] ** 2 - 0.5) ** 2 + 1.2 * x[..., 1] ** 2


def test_two_wells_with_attraction_have_every_self_consistent_state():
    """rho ~ exp(-beta (V + a |x - m|^2 / 2)) with m its own mean: 0 and two others, one in each well."""
    beta, a = 6.0, 1.0
    x = np.linspace(-2.5, 2.5, 4001)

    def mean(m):
        weight = np.exp(-beta * ((x**2 - 0.5) ** 2 + a * (x - m) ** 2 / 2))
        return np.sum(x * weight) / np.sum(weight)

    exact = brentq(lambda m: mean(m) - m, 0.2, 1.5)
    mesh = Disc(2.2, 30, 48)
    field = MeanField(double_well, lambda r: a * r**2 / 2, beta, mesh)
    starts = [gaussian(mesh, centre, 0.1) for centre in ([0.7, 0.1], [-0.6, 0.0], [0.0, 0.0])]
    states = field.stationary_states(starts)
    found = sorted(moments(mesh, state.rho)[0][0] for state in states)
    assert np.allclose(found, [-exact, 0, exact], atol=5e-3)
    assert max(state.residual for state in states) < 1e-8
    assert states[0].free_energy == pytest.approx(states[1].free_energy, abs=1e-9)
    assert states[2].free_energy > states[0].free_energy + 1e-3


def test_repelling_gas_in_two_wells_relaxes_to_its_symmetric_state():
    mesh = Disc(2.0, 16, 24)
    field = MeanField(double_well, riesz(0.5, 0.4), 6.0, mesh)
    state = field.stationary()
    assert state.residual < 1e-9
    for same in (state.rho[:, ::-1], np.roll(state.rho, 12, axis=1)):
        assert np.allclose(state.rho, same, atol=1e-9)
    run = field.flow(gaussian(mesh, [0.6, 0.1], 0.1), [3.0, 6.0], tol=1e-4)
    assert np.all(np.diff(run.free_energy) < 1e-12)
    assert run.rho.min() > 0
    assert mesh.integral(run.rho[-1]) == pytest.approx(1, abs=1e-12)
    distance = [mesh.integral(np.abs(rho - state.rho)) for rho in run.rho]
    assert distance[1] < 0.1 < distance[0]  # at the rate of hops across the barrier


def test_turning_the_data_turns_the_flow():
    """By any angle, up to the mesh: the trap at an angle of 0.4 against the trap along the axis, both read off at the turned mean."""
    mesh, tilt = Disc(2.5, 24, 32), 0.4
    means = []
    for angle in (0.0, tilt):
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])

        def trap(x, turn=turn):
            along = x @ turn
            return 0.8 * along[..., 0] ** 2 + 0.3 * along[..., 1] ** 2

        field = MeanField(trap, riesz(0, 0.5), 5.0, mesh)
        mean, square = moments(mesh, field.evolve(gaussian(mesh, turn @ [0.5, 0.4], 0.12), 0.3, tol=1e-5))
        means.append([*(turn.T @ mean), square])
    assert np.allclose(means[0], means[1], atol=2e-3)
    assert abs(means[0][0] - 0.5) > 0.05


@pytest.mark.slow
def test_kernel_of_64_by_128_cells_takes_seconds():
    import time

    begin = time.process_time()
    Disc(1.0, 64, 128).convolution(riesz(0))
    assert time.process_time() - begin < 6
