"""Radial meshes: averages of singular interactions, stationary laws and motion against exact ones; orders of convergence."""

import mpmath
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import beta as beta_function
from scipy.special import digamma, gamma

from theory.equilibrium.liouville import DiscLogGas
from theory.mean_field import MeanField
from theory.mean_field.meshes import Interval
from theory.mean_field.radial import RadialBall, sphere_area
from theory.mean_field.shell_averages import gauss_in_shells, shell_averages, singular_power, spherical_mean
from theory.mean_field.trapped_gas import radial_gas, tail_bound


def riesz(s, strength=1.0):
    return (lambda r: -strength * np.log(r)) if s == 0 else (lambda r: strength * np.sign(s) * r**-s)


def trap(kappa):
    return lambda r: kappa * r**2 / 2


def extrapolated(coarse, middle, fine, order=4.0):
    """Limit of errors c2 h^2 + c h^order at h, h/2, h/4."""
    first, second = (4 * middle - coarse) / 3, (4 * fine - middle) / 3
    return (2**order * second - first) / (2**order - 1)


@pytest.mark.parametrize("dim", [2, 3, 5, 10])
@pytest.mark.parametrize("share", [-0.7, 0.3, 0.9, 0.99])
def test_spherical_mean_is_the_hypergeometric_one(dim, share):
    s = share * min(dim, 1.9) if share < 0 else share * dim
    r, q = np.array([0.5, 0.01, 0.99, 0.001, 0.3, 0.7]), np.array([0.51, 0.013, 0.999, 0.9, 0.7, 0.7001])
    exact = [np.sign(s) * b**-s * float(mpmath.hyp2f1(s / 2, s / 2 + 1 - dim / 2, dim / 2, (a / b) ** 2)) for a, b in zip(r, q)]
    assert np.allclose(spherical_mean(riesz(s), r, q, dim), exact, rtol=1e-12, atol=0)


def test_spherical_mean_of_a_gaussian_in_space():
    r, q, width = 0.8, np.array([0.1, 0.79, 1.7]), 0.6  # int_|r-q|^(r+q) exp(-t^2 / 2 width^2) t dt / (2 r q):
    exact = width**2 / (2 * r * q) * (np.exp(-((r - q) ** 2) / (2 * width**2)) - np.exp(-((r + q) ** 2) / (2 * width**2)))
    assert np.allclose(spherical_mean(lambda t: np.exp(-(t**2) / (2 * width**2)), np.array(r), q, 3), exact, rtol=1e-12)


@pytest.mark.parametrize("dim", [2, 3, 5])
def test_averages_over_shells_obey_newtons_theorem(dim):
    edges = np.linspace(0, 1.7, 41)
    g = riesz(dim - 2.0)
    averages = shell_averages(g, edges, dim)
    node, weight = gauss_in_shells(edges, dim, 10)
    outer = (g(node) * weight).sum(-1)  # the potential inside a shell is constant
    i, j = np.triu_indices(40, 1)
    assert np.allclose(averages[i, j], outer[j], rtol=1e-12, atol=1e-12)
    a, b = edges[:-1, None], edges[1:, None]
    x, w = np.polynomial.legendre.leggauss(40)
    larger = (a + b) / 2 + (b - a) / 2 * x  # within a shell g acts at the larger of two independent radii
    density = 2 * (larger**dim - a**dim) * dim * larger ** (dim - 1) / (b**dim - a**dim) ** 2
    assert np.allclose(np.diag(averages)[1:], ((g(larger) * density) @ w * (b - a)[:, 0] / 2)[1:], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("dim", [1, 2, 3, 5, 10])
@pytest.mark.parametrize("share", [-1.2, 0.3, 0.96, 0.998])
@pytest.mark.parametrize("grading", [1, 2.5])
def test_energy_of_a_uniform_ball_is_exact_on_any_mesh(dim, share, grading):
    s = share if share < 0 else share * dim
    mesh = RadialBall(0.8, 12, dim, grading=grading)
    kernel = mesh.convolution(riesz(s)).kernel
    mass = mesh.volume / mesh.volume.sum()
    # from the density dim t^(dim-1) I_{1-t^2/4}((dim+1)/2, 1/2) of the distance between two points of the unit ball
    upper = dim * 2 ** (dim - s) * beta_function((dim - s + 1) / 2, (dim + 1) / 2)
    exact = np.sign(s) * 0.8**-s * upper / ((dim - s) * beta_function((dim + 1) / 2, 0.5))
    assert mass @ kernel @ mass == pytest.approx(exact, rel=1e-10)
    wrong = np.sign(s) * 0.8**-s * upper / ((dim - s) * beta_function((dim + 1) / 2, 0.501))
    assert mass @ kernel @ mass != pytest.approx(wrong, rel=1e-10)


@pytest.mark.parametrize(("dim", "s", "grading"), [(2, 1.95, 1), (3, 2.9, 3), (4, 0, 2), (7, 6.0, 1)])
def test_coarse_averages_are_means_of_fine_ones_between_two_spheres(dim, s, grading):
    fine = RadialBall(2.0, 24, dim, inner=0.5, grading=grading)
    coarse = fine.edges[::2]
    weight = fine.volume[:, None] * fine.volume
    pooled = (shell_averages(riesz(s), fine.edges, dim) * weight).reshape(12, 2, 12, 2).sum((1, 3)) / weight.reshape(12, 2, 12, 2).sum(
        (1, 3)
    )
    assert np.allclose(shell_averages(riesz(s), coarse, dim), pooled, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("s", [-1, 0, 0.5, 0.9])
def test_on_the_line_an_even_density_has_the_potential_of_the_interval(s):
    ball, interval = RadialBall(1.5, 20, 1), Interval(np.linspace(-1.5, 1.5, 41))
    rho = np.random.default_rng(5).random(20)
    both = np.concatenate([rho[::-1], rho])
    assert np.allclose(ball.convolution(riesz(s))(rho), interval.convolution(riesz(s))(both)[20:], rtol=1e-11, atol=1e-12)
    assert ball.integral(rho) == pytest.approx(interval.integral(both))


def test_what_is_not_integrable_or_no_mesh_is_refused():
    mesh = RadialBall(1, 4, 3)
    for s in (3.0, 3.4, 2.999):
        with pytest.raises(ValueError, match="integrable"):
            mesh.convolution(riesz(s))
    with pytest.raises(ValueError, match="finite"):
        mesh.convolution(lambda r: np.log(r - 0.1))
    with pytest.raises(ValueError, match="shape"):
        mesh.convolution(lambda r: np.ones(3))
    for arguments in [(0, 4, 3), (1, 2, 3), (1, 4, 0), (1, 4, 2.5)]:
        with pytest.raises(ValueError):
            RadialBall(*arguments)
    for keywords in [{"inner": 1}, {"inner": -0.1}, {"grading": 0.5}, {"grading": 4}]:
        with pytest.raises(ValueError, match=next(iter(keywords))):
            RadialBall(1, 4, 3, **keywords)
    with pytest.raises(ValueError, match="dim"):
        RadialBall(1, 200, 200)
    assert singular_power(lambda r: np.full_like(r, 2.0), 1.0, 2)[0] == 0
    assert singular_power(lambda r: 2.0, 1.0, 2)[0] == 0


@pytest.mark.parametrize("dim", [1, 2, 3, 6])
@pytest.mark.parametrize("keywords", [{}, {"inner": 0.4}, {"grading": 2}])
def test_volumes_averages_and_laplacian_of_the_square_are_exact(dim, keywords):
    mesh = RadialBall(1.3, 7, dim, **keywords)
    ball = sphere_area(dim) / dim
    assert mesh.volume.sum() == pytest.approx(ball * (1.3**dim - mesh.inner**dim))
    for power in (1, 2, 5):
        exact = sphere_area(dim) * np.diff(mesh.edges ** (dim + power)) / (dim + power)
        assert np.allclose(mesh.volume * mesh.cell_average(lambda r, k=power: r**k), exact, rtol=1e-12)
    flux = mesh.axes[0].conductance * np.diff(mesh.cell_average(lambda r: r**2))
    assert np.allclose(flux, 2 * sphere_area(dim) * mesh.edges[1:-1] ** dim)


@pytest.mark.parametrize("dim", [1, 2, 4])
def test_quadratic_attraction_leaves_the_gibbs_law_of_the_sum_of_both_stiffnesses(dim):
    kappa, a, beta = 0.9, 0.6, 3.0
    mesh = RadialBall(4.0, 40, dim)
    state = MeanField(trap(kappa), lambda r: a * r**2 / 2, beta, mesh).stationary()
    gibbs = np.exp(-beta * (kappa + a) * mesh.centres**2 / 2)
    assert np.allclose(state.rho, gibbs / mesh.integral(gibbs), rtol=1e-9, atol=1e-14)
    exact = -dim / (2 * beta) * np.log(2 * np.pi / (beta * kappa)) + dim / (2 * beta) * np.log1p(a / kappa)
    assert state.free_energy == pytest.approx(exact, abs=0.01)


@pytest.mark.parametrize(("dim", "s"), [(1, 0), (1, 0.6), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2.3), (2, -1.2), (5, 3)])
def test_virial_identity_of_the_trapped_gas_to_many_digits(dim, s):
    kappa, strength, beta = 1.3, 0.7, 6.0
    values = []
    for n in (24, 48, 96):
        mesh = RadialBall(tail_bound(dim, s, kappa, strength, beta, 1e-13), n, dim)
        field = MeanField(trap(kappa), riesz(s, strength), beta, mesh)
        rho = field.stationary().rho
        second = mesh.integral(rho * mesh.centres**2)
        pair = mesh.integral(rho * field.convolution(rho))
        values.append(kappa * second - (strength if s == 0 else abs(s) * np.sign(s) * pair) / 2)
    errors = np.abs(np.array(values) - dim / beta)
    assert 1.9 < np.log2(errors[1] / errors[2]) < 2.1
    order = min(2 + dim - s, 4)  # the singularity on the diagonal of a piecewise constant density
    assert extrapolated(*values, order) == pytest.approx(dim / beta, abs=2e-7 if dim - s < 1 else 5e-8)


@pytest.mark.parametrize("strength", [2.0, 0.4, -0.5])
def test_log_gas_between_walls_of_a_disc_solves_the_liouville_equation(strength):
    law, errors = DiscLogGas(1.4, strength, 3.0), []
    for n in (20, 40):
        mesh = RadialBall(1.4, n, 2)
        state = MeanField(None, riesz(0, strength), 3.0, mesh).stationary()
        errors.append(np.abs(np.cumsum(mesh.volume * state.rho) - law.radial_cdf(mesh.edges[1:])).max())
        assert state.converged
    assert errors[1] < 4e-4
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.1)


def test_coulomb_gas_between_walls_of_a_line_is_a_squared_secant():
    """(log rho)'' = 2 beta strength rho: the mass within x is 2 a tan(a x) / (beta strength). Fourth order: |x - y| is smooth but at 0."""
    beta, strength, half = 2.0, 1.5, 0.9
    a = brentq(lambda a: 2 * a * np.tan(a * half) - beta * strength, 1e-9, np.pi / 2 / half - 1e-9)
    errors = []
    for n in (20, 40):
        mesh = RadialBall(half, n, 1)
        state = MeanField(None, riesz(-1, strength), beta, mesh).stationary()
        exact = 2 * a * np.tan(a * mesh.edges[1:]) / (beta * strength)
        errors.append(np.abs(np.cumsum(mesh.volume * state.rho) - exact).max())
    assert errors[1] < 2e-8
    assert errors[0] / errors[1] == pytest.approx(16, rel=0.1)


@pytest.mark.parametrize(("dim", "s"), [(2, 0), (3, 1), (2, 1)])
def test_pressure_on_the_wall_is_the_virial_of_what_is_inside(dim, s):
    """dim / beta + (virial of the interaction) = radius |S| radius^(dim-1) rho(radius) / beta: the contact theorem."""
    beta, strength, radius = 4.0, 0.8, 1.2
    values = []
    for n in (20, 40, 80):
        mesh = RadialBall(radius, n, dim)
        field = MeanField(None, riesz(s, strength), beta, mesh)
        rho = field.stationary().rho
        pair = mesh.integral(rho * field.convolution(rho))
        slope = np.polyfit(mesh.centres[-4:] - radius, np.log(rho[-4:]), 3)
        pressure = sphere_area(dim) * radius**dim * np.exp(slope[-1]) / beta
        values.append(pressure - (strength if s == 0 else s * pair) / 2 - dim / beta)
    assert abs(values[-1]) < 0.02
    assert abs(values[-1]) < abs(values[0]) / 3


def test_gauss_wigner_crossover_on_the_line():
    """Askey & Wimp (1984): E x^2 and E x^4 of the log gas at any temperature; rho(0) at c = 2.1."""
    kappa, strength, beta = 1.3, 0.7, 6.0
    c = beta * strength / 2
    centre, fourth = [], []
    for n in (32, 64, 128):
        mesh = RadialBall(3.2, n, 1)
        rho = MeanField(trap(kappa), riesz(0, strength), beta, mesh).stationary().rho
        centre.append((9 * rho[0] - rho[1]) / 8)  # even and smooth at 0
        fourth.append(mesh.volume @ (rho * mesh.cell_average(lambda r: r**4)))
    assert extrapolated(*fourth) == pytest.approx((3 + 5 * c + 2 * c**2) / (beta * kappa) ** 2, rel=1e-6)
    assert extrapolated(*centre) == pytest.approx(0.5466290580, rel=1e-6)


@pytest.mark.parametrize(("dim", "s"), [(1, -1), (2, 0), (3, 1), (5, 3)])
def test_cold_coulomb_gas_fills_a_ball_uniformly(dim, s):
    kappa, strength = 1.3, 0.7
    factor = 1.0 if s == 0 else abs(s)
    radius = (strength * factor / kappa) ** (1 / dim)
    distance = []  # of the radii, in W1: the edge is 1 / sqrt(beta kappa) wide and so is the mass in it
    for beta in (100.0, 400.0):
        gas = radial_gas(dim, s, kappa, strength, beta, n_cells=64)
        r = np.linspace(0, gas.mesh.radius, 4001)
        distance.append(np.trapezoid(np.abs(gas.radial_cdf(r) - np.minimum((r / radius) ** dim, 1)), r))
    assert distance[0] / distance[1] == pytest.approx(4, rel=0.1)
    assert distance[1] < 0.004
    assert gas.state.rho[0] * sphere_area(dim) / dim * radius**dim == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(("dim", "s", "order"), [(2, 1, 1), (3, 2, 1), (1, 0.5, 1), (3, 1, 0.5)])
def test_cold_riesz_gas_takes_its_closed_form(dim, s, order):
    """(R^2 - r^2)^(1 - (dim - s)/2) and the energy, to first order in the temperature: F = E + T int rho log rho."""
    kappa, strength = 1.1, 0.6
    power = 1 - (dim - s) / 2
    radius = (2 * strength * s / (kappa * dim) * gamma((dim - s) / 2) * gamma((s + 4) / 2) / gamma(dim / 2)) ** (1 / (s + 2))
    second = radius**2 * (dim / 2) / (dim / 2 + power + 1)
    energy = kappa * second / 2 * (1 + 2 / s)  # virial: the pair energy is 2/s times that of the trap
    log_norm = np.log(beta_function(dim / 2, power + 1) * sphere_area(dim) / 2) + (dim + 2 * power) * np.log(radius)
    entropy = power * (2 * np.log(radius) + digamma(power + 1) - digamma(dim / 2 + power + 1)) - log_norm
    excess, moments = [], []
    for beta in (100.0, 400.0):
        gas = radial_gas(dim, s, kappa, strength, beta, n_cells=64)
        excess.append(beta * (gas.state.free_energy - energy) - entropy)
        moments.append(gas.second_moment - second)
    assert abs(excess[1]) < 0.1
    assert excess[0] / excess[1] == pytest.approx(4**order, rel=0.25)
    assert moments[0] / moments[1] == pytest.approx(4, rel=0.1)
    assert gas.multiplier == pytest.approx(kappa * dim * radius**2 / (2 * s), abs=0.01)


@pytest.mark.parametrize("dim", [2, 3])
def test_second_moment_of_the_log_gas_obeys_its_equation_in_time(dim):
    """d/dt E|x|^2 = -2 kappa E|x|^2 + strength + 2 dim / beta, without walls in reach."""
    kappa, strength, beta, t = 1.3, 0.7, 6.0, 0.4
    values = []
    for n in (24, 48, 96):
        mesh = RadialBall(3.2, n, dim)
        field = MeanField(trap(kappa), riesz(0, strength), beta, mesh)
        rho = mesh.cell_average(lambda r: np.exp(-(r**2) / (2 * 0.15)))
        rho /= mesh.integral(rho)
        start = mesh.integral(rho * mesh.centres**2)
        rest = (strength + 2 * dim / beta) / (2 * kappa)
        end = mesh.integral(field.evolve(rho, t, tol=1e-6) * mesh.centres**2)
        values.append(end - rest - (start - rest) * np.exp(-2 * kappa * t))
    assert values[1] / values[2] == pytest.approx(4, rel=0.05)
    assert abs(extrapolated(*values)) < 1e-5


@pytest.mark.parametrize(
    ("dim", "s", "factor", "kappa"), [(2, 0, 2 * np.pi, 0), (3, 1, 4 * np.pi, 0), (1, -1, 2, 0), (1, -1, 2, 1.4), (3, 1, 4 * np.pi, 1.4)]
)
def test_cold_coulomb_patch_spreads_as_its_density_equation_says(dim, s, factor, kappa):
    """rho' = dim kappa rho - strength c_d rho^2 inside; the edge follows from the mass."""
    strength, t, start = 0.9, 0.3, 0.5
    mesh = RadialBall(1.6, 96, dim)
    field = MeanField(trap(kappa), riesz(s, strength), 2e5, mesh)
    full = sphere_area(dim) / dim
    inside = np.clip((start**dim - mesh.edges[:-1] ** dim) / np.diff(mesh.edges**dim), 1e-12, 1)
    rho = inside / mesh.integral(inside)
    density = 1 / (full * start**dim)
    final = 1 / (1 / density + strength * factor * t)
    if kappa:
        rest = dim * kappa / (strength * factor)
        final = rest / (1 + (rest / density - 1) * np.exp(-dim * kappa * t))
    rho = field.evolve(rho, t, tol=1e-5)
    assert rho[:12] == pytest.approx(final, rel=2e-3)
    half = np.interp(0.5, np.cumsum(mesh.volume * rho), mesh.edges[1:] ** dim)
    assert half == pytest.approx(0.5 / (full * final), rel=5e-3)


def test_free_energy_falls_and_mass_stays_in_five_dimensions():
    mesh = RadialBall(3.0, 40, 5)
    field = MeanField(trap(1.0), riesz(3, 0.8), 4.0, mesh)
    rho = np.full(40, 1 / mesh.volume.sum())
    run = field.flow(rho, [0.5, 2.0], tol=1e-5)
    assert np.all(np.diff(run.free_energy) < 0)
    assert run.rho.min() > 0
    assert mesh.integral(run.rho[-1]) == pytest.approx(1, abs=1e-12)
    distance = [mesh.integral(np.abs(rho - field.stationary().rho)) for rho in run.rho]
    assert distance[1] < 0.3 * distance[0] < 0.3
    assert run.imbalance() < 1e-3 * (run.free_energy[0] - run.free_energy[-1])


def test_radial_gas_is_a_law_with_a_bounded_tail():
    gas = radial_gas(3, 1, 1.3, 0.7, 6.0, n_cells=64)
    assert gas.radial_cdf(gas.mesh.radius) == 1
    u = np.linspace(0.01, 0.99, 9)
    assert np.allclose(gas.radial_cdf(gas.radial_quantile(u)), u, atol=1e-12)
    assert gas.moment(0) == pytest.approx(1, abs=1e-12)
    x = gas.sample(4000, np.random.default_rng(1))
    error = np.sqrt((gas.moment(4) - gas.second_moment**2) / 4000)
    assert abs(np.mean(np.sum(x**2, 1)) - gas.second_moment) < 4 * error  # false alarm 6e-5
    assert abs(np.mean(np.sum(x**2, 1)) - 1.1 * gas.second_moment) > 4 * error
    assert gas.energy == pytest.approx(gas.state.free_energy - gas.mesh.integral(gas.state.rho * np.log(gas.state.rho)) / 6.0)
    pointwise = gas.potential(np.array([[0.3, 0.2, 0.1]])) + np.log(gas.density(np.array([[0.3, 0.2, 0.1]]))) / 6.0
    assert pointwise[0] == pytest.approx(gas.multiplier, abs=1e-3)
    with pytest.raises(ValueError, match="mesh"):
        gas.potential(np.full((1, 3), 50.0))
    with pytest.raises(ValueError, match="order"):
        gas.moment(-3)


@pytest.mark.parametrize(("dim", "s", "beta"), [(2, 0, 0.5), (3, 1, 40.0), (1, 0.5, 5.0), (2, -1.5, 3.0)])
def test_tail_bound_holds_on_a_wider_mesh_and_is_not_wasteful(dim, s, beta):
    kappa, strength, tail = 1.2, 0.9, 1e-5
    radius = tail_bound(dim, s, kappa, strength, beta, tail)
    mesh = RadialBall(1.5 * radius, 75, dim)
    rho = MeanField(trap(kappa), riesz(s, strength), beta, mesh).stationary().rho
    beyond = mesh.volume @ (rho * (mesh.edges[:-1] > radius))
    assert beyond < tail
    assert mesh.volume @ (rho * (mesh.edges[:-1] > 0.4 * radius)) > tail


@pytest.mark.parametrize("arguments", [(3, 3.0, 1, 1, 1), (2, -2.0, 1, 1, 1), (2, 0, 0, 1, 1), (2, 0, 1, -1, 1), (2, 0, 1, 1, np.inf)])
def test_radial_gas_without_an_equilibrium_is_refused(arguments):
    with pytest.raises(ValueError):
        radial_gas(*arguments)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [((0, 0.0, 1.0, 1.0, 1.0, 0.1), "dim"), ((2, 2.0, 1.0, 1.0, 1.0, 0.1), "s"), ((2, 0.0, 1.0, 1.0, -1.0, 0.1), "beta")],
)
def test_tail_bound_refuses(arguments, name):
    with pytest.raises(ValueError, match=f"{name} must"):
        tail_bound(*arguments)
    with pytest.raises(ValueError, match="dim must"):
        sphere_area(0)
