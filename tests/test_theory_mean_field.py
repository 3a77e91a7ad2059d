"""The finite-volume solver against closed forms, with measured orders of convergence."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad, solve_ivp
from scipy.linalg import toeplitz
from scipy.optimize import brentq
from scipy.special import iv

from theory.convergence import fit_rate
from theory.equilibrium import GaussWigner
from theory.mean_field import MeanField, stationary
from theory.mean_field.disc import Disc
from theory.mean_field.elimination import rates, solve
from theory.mean_field.meshes import Axis, Interval, Rectangle
from theory.mean_field.radial import RadialBall


def gaussian(field, mean, variance):
    """Cell averages of a normal density, of mass 1 on the grid."""
    rho = field.cell_average(lambda x: np.exp(-((x - mean) ** 2) / (2 * variance)))
    return rho / (rho.sum() * field.width)


def plane_gaussian(field, mean, variance):
    """The same with both means and variances in the plane."""
    rho = field.cell_average(lambda x: np.exp(-((x - mean) ** 2).sum(-1) / (2 * variance)))
    return rho / field.mesh.integral(rho)


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


# Adaptive steps.


@pytest.mark.parametrize("attraction", [0.0, 0.8])
def test_adaptive_steps_deliver_the_tolerance(attraction):
    """Against the exact Gaussian on a grid whose own error is extrapolated away: the error is at most tol, and falls with it."""
    field = MeanField(lambda x: 0.65 * x**2, lambda r: attraction * r**2 / 2, 6.0, np.linspace(-5, 5, 401))
    start = gaussian(field, 0.7, 0.5)
    settled = field.evolve(start, 0.6, tol=1e-9)
    tols = np.array([1e-2, 1e-3, 1e-4, 1e-5, 1e-6])
    runs = [field.flow(start, [0.6], tol=tol) for tol in tols]
    errors = np.array([field.mesh.integral(np.abs(run.rho[-1] - settled)) for run in runs])
    assert (errors < tols).all()
    assert 0.7 < fit_rate(tols, errors).slope < 1.2
    assert -4.0 < fit_rate([len(run.t) - 1 for run in runs[1:]], errors[1:]).slope < -2.3  # third order in the number of steps
    rate, limit = 2 * (1.3 + attraction), 1 / (6.0 * (1.3 + attraction))
    exact = gaussian(field, 0.7 * np.exp(-1.3 * 0.6), limit + (0.5 - limit) * np.exp(-rate * 0.6))
    assert field.mesh.integral(np.abs(settled - exact)) < 20 * field.width**2


@pytest.mark.parametrize("n_steps", [None, 60])
def test_second_order_in_space_against_the_exact_gaussian_in_the_plane(n_steps):
    cells, errors = np.array([24, 48, 96]), []
    for n in cells:
        field = MeanField(lambda x: (x**2).sum(-1) / 2, lambda r: 0.35 * r**2, 4.0, Rectangle([-3, -2.5], [3, 3.5], (n, n + 8)))
        limit = 1 / (4.0 * 1.7)
        exact = plane_gaussian(field, 0.5 * np.exp(-0.5), limit + (0.15 - limit) * np.exp(-3.4 * 0.5))
        rho = field.evolve(plane_gaussian(field, 0.5, 0.15), 0.5, tol=1e-5, n_steps=n_steps)
        errors.append(field.mesh.integral(np.abs(rho - exact)))
    if n_steps is None:
        assert -2.3 < fit_rate(cells, errors).slope < -1.8
        assert errors[-1] < 0.02
    else:
        assert fit_rate(cells, errors).slope > -1.8  # negative control: 60 steps of first order spoil it


def test_equal_steps_are_of_first_order_in_the_plane():
    field = MeanField(lambda x: (x**2).sum(-1) / 2, lambda r: -np.log(r), 4.0, Rectangle([-2.5, -2.5], [2.5, 2.5], (40, 40)))
    start, steps = plane_gaussian(field, 0.4, 0.2), np.array([8, 16, 32])
    settled = field.evolve(start, 0.4, tol=1e-7)
    errors = [field.mesh.integral(np.abs(field.evolve(start, 0.4, n_steps=n) - settled)) for n in steps]
    assert -1.2 < fit_rate(steps, errors).slope < -0.85


def test_heat_between_walls_of_a_rectangle():
    """Cosine modes decay at (pi^2 / beta)(k^2 / a^2 + l^2 / b^2), on the cells at (4 / beta)(sin^2(pi k / 2 n) / h^2 + ...)."""
    field = MeanField(None, None, 2.0, Rectangle([0, 0], [1.5, 1.0], (30, 26)))
    (k, n_x), (m, n_y) = (1, 30), (2, 26)
    mode = np.outer(np.cos(np.pi * k * field.mesh.x / 1.5), np.cos(np.pi * m * field.mesh.y))
    start = (1 + 0.5 * mode) / 1.5
    end = field.evolve(start, 0.05, tol=1e-6)
    h_x, h_y = field.mesh.width
    rate = 4 / 2.0 * (np.sin(np.pi * k / 2 / n_x) ** 2 / h_x**2 + np.sin(np.pi * m / 2 / n_y) ** 2 / h_y**2)
    assert rate == pytest.approx(np.pi**2 / 2.0 * (1 / 1.5**2 + 4), rel=6e-3)
    np.testing.assert_allclose(end, (1 + 0.5 * np.exp(-rate * 0.05) * mode) / 1.5, atol=1e-6)
    np.testing.assert_allclose(field.rate(start), -rate * 0.5 * mode / 1.5, atol=1e-11)


def test_log_gas_of_the_plane_follows_its_second_moment():
    """d<|x|^2>/dt = -2 kappa <|x|^2> + strength + 4/beta far from the walls, and the stationary value with it."""
    kappa, strength, beta, t = 1.2, 0.9, 5.0, 0.4
    errors = []
    for n in (32, 64):
        field = MeanField(lambda x: kappa * (x**2).sum(-1) / 2, lambda r: -strength * np.log(r), beta, Rectangle([-3, -3], [3, 3], (n, n)))
        second = field.cell_average(lambda x: (x**2).sum(-1))
        start, limit = plane_gaussian(field, 0.4, 0.1), (strength + 4 / beta) / (2 * kappa)
        exact = limit + (field.mesh.integral(second * start) - limit) * np.exp(-2 * kappa * t)
        moving = field.mesh.integral(second * field.evolve(start, t, tol=1e-6)) - exact
        errors.append([moving, field.mesh.integral(second * field.stationary().rho) - limit])
    errors = np.abs(errors)
    assert (errors[1] < 2e-3).all()
    assert (errors[1] < 0.3 * errors[0]).all()
    assert errors[1, 0] < 0.01 * strength / (2 * kappa) * (1 - np.exp(-2 * kappa * t))  # negative control: strength off by a hundredth


FLOWS = {
    "log gas": (lambda x: 0.65 * (x**2).sum(-1), lambda r: -0.7 * np.log(r), 6.0),
    "no trap, near the dimension": (None, lambda r: 0.3 * r**-1.6, 4.0),
    "two wells, attraction": (lambda x: ((x**2 - 1) ** 2).sum(-1), lambda r: 0.4 * r**2, 8.0),
    "cold": (lambda x: (x**2).sum(-1) / 2, lambda r: 1 / r, 1000.0),
}


@pytest.mark.parametrize("name", FLOWS)
@pytest.mark.parametrize("n_steps", [None, 3, 12])
def test_free_energy_falls_at_every_step_from_a_corner_of_empty_cells(name, n_steps):
    """Adaptive steps by refusal, equal ones of any length by construction; mass to round-off, no density below 0."""
    external, interaction, beta = FLOWS[name]
    field = MeanField(external, interaction, beta, Rectangle([-2, -1.5], [2, 1.5], (30, 24)))
    start = np.zeros(field.mesh.shape)
    start[2:8, 3:7] = 1 / (24 * field.mesh.width.prod())
    t = 0.3 if n_steps is None else 0.02
    run = field.flow(start, np.linspace(0, t, 4), tol=1e-3, n_steps=n_steps)
    assert (np.diff(run.free_energy) <= 1e-12).all()
    assert run.rho.min() >= 0
    assert [field.mesh.integral(rho) for rho in run.rho] == pytest.approx([1] * 4, abs=1e-13)
    assert run.t[-1] == pytest.approx(t)


def plain_right_hand_side(kernel, external, width, beta):
    """Scharfetter-Gummel finite volumes in a line each, with a dense matrix."""
    matrix = width * toeplitz(kernel)

    def slope(t, rho):
        z = beta * np.diff(external + matrix @ rho)
        with np.errstate(over="ignore"):
            flux = (z / np.expm1(z) * rho[:-1] + z / np.expm1(-z) * rho[1:]) / (beta * width)
        return -np.diff(flux, prepend=0.0, append=0.0) / width

    return slope


@pytest.mark.parametrize(
    ("s", "strength", "beta"), [(0.9, 1.0, 10.0), (0.9, 3.0, 100.0), (0.5, 1.0, 10.0), (0.0, 1.0, 10.0), (-1.0, 1.0, 20.0)]
)
def test_flow_of_singular_interactions_against_an_independent_solver(s, strength, beta):
    """Adaptive steps of the error promised; equal steps of any length, whatever the repulsion, with falling free energy."""
    field = MeanField(
        lambda x: x**2 / 2, lambda r: -strength * np.log(r) if s == 0 else np.sign(s) * strength * r**-s, beta, np.linspace(-2, 2, 81)
    )
    start = gaussian(field, 0.5, 0.05)
    slope = plain_right_hand_side(field.convolution.kernel, field.external, field.width, beta)
    np.testing.assert_allclose(field.rate(start), slope(0, start), rtol=1e-9, atol=1e-10)
    exact = solve_ivp(slope, (0, 0.3), start, "BDF", rtol=1e-8, atol=1e-10).y[:, -1]
    for tol in (1e-2, 1e-3, 1e-4):
        assert field.mesh.integral(np.abs(field.evolve(start, 0.3, tol=tol) - exact)) < 2 * tol
    for n_steps in (1, 20):
        run = field.flow(start, [0.3], n_steps=n_steps)
        assert (np.diff(run.free_energy) < 1e-12).all()
    assert 1e-4 < field.mesh.integral(np.abs(run.rho[-1] - exact)) < 0.03


@pytest.mark.parametrize("mesh", ["interval", "rectangle", "ball", "disc"])
def test_repulsion_near_the_dimension_costs_no_steps(mesh):
    """Halved cells need as many steps, though s = 0.9 of the dimension makes the interaction a diffusion of its own."""
    steps = []
    for n in (1, 2):
        meshes = {
            "interval": lambda n: np.linspace(-2, 2, 60 * n + 1),
            "rectangle": lambda n: Rectangle([-2, -2], [2, 2], (16 * n, 12 * n)),
            "ball": lambda n: RadialBall(2.0, 40 * n, 3),
            "disc": lambda n: Disc(2.0, 10 * n, 12 * n),
        }
        dim = {"interval": 1, "ball": 3}.get(mesh, 2)
        trap = (lambda r: r**2 / 2) if mesh == "ball" else (lambda x: (x**2).sum(-1) / 2)
        field = MeanField(trap, lambda r, s=0.9 * dim: 0.3 * r**-s, 10.0, meshes[mesh](n))
        start = field.gibbs(2 * field.external)
        run = field.flow(start, [1.0], tol=1e-3)
        steps.append(len(run.t) - 1 + run.n_refused)
        assert (np.diff(run.free_energy) <= 0).all()
    assert steps[1] < 1.3 * steps[0] < 100


def random_problem(rng):
    """A mesh of any kind and size, a trap, an interaction of either sign, a temperature and a density, all over orders of magnitude."""
    size, n, dim = 10 ** rng.uniform(-6, 6), int(rng.choice([3, 4, 5, 12, 30])), int(rng.integers(1, 6))
    kind = rng.choice(["interval", "rectangle", "ball", "disc"])
    mesh = {
        "interval": lambda: np.linspace(-size, rng.uniform(-0.5, 2) * size, n + 1),
        "rectangle": lambda: Rectangle([-size, -size], [size, rng.uniform(0, 3) * size], (n, int(rng.integers(n, 2 * n)))),
        "ball": lambda: RadialBall(size, n, dim),
        "disc": lambda: Disc(size, min(n, 8), n),
    }[kind]()
    dim = {"interval": 1, "ball": dim}.get(kind, 2)
    s, strength, kappa, beta = (
        rng.choice([0, -1, 0.5 * dim, 0.9 * dim]),
        rng.choice([-1, 1]) * 10 ** rng.uniform(-2, 1),
        10 ** rng.uniform(-3, 3),
        10 ** rng.uniform(-2, 3),
    )

    def interaction(r):
        return strength * (-np.log(r / size) if s == 0 else np.sign(s) * (r / size) ** -s)

    field = MeanField(lambda x: kappa * (x**2 if kind == "ball" else (x**2).sum(-1)) / size**2, interaction, beta, mesh)
    rho = rng.random(field.mesh.shape) ** rng.choice([1, 8])
    return field, rho / field.mesh.integral(rho), 10 ** rng.uniform(-3, 0) * size**2


@pytest.mark.parametrize("seed", range(24))
def test_mass_sign_and_falling_free_energy_of_random_problems(seed):
    """And the record says what a sum over all pairs of cells does."""
    field, start, t = random_problem(np.random.default_rng(seed))
    run = field.flow(start, [t / 3, t], tol=1e-2)
    volume, n = np.broadcast_to(field.mesh.volume, field.mesh.shape).ravel(), start.size
    pairs = np.stack([field.convolve(unit.reshape(start.shape)).ravel() for unit in np.eye(n)], axis=1) * volume[:, None]
    np.testing.assert_allclose(pairs, pairs.T, rtol=1e-9, atol=1e-12 * np.abs(pairs).max())
    for rho, record in ((start, run.free_energy[0]), (run.rho[-1], run.free_energy[-1])):
        flat = rho.ravel()
        terms = (
            volume * flat * field.external.ravel(),
            flat * (pairs @ flat) / 2,
            volume * flat * np.log(np.maximum(flat, 1e-300)) / field.beta,
        )
        assert record == pytest.approx(np.sum(terms), abs=1e-11 * np.abs(terms).sum())
    assert (np.diff(run.free_energy) <= 1e-12 * np.abs(terms).sum()).all()
    assert run.rho.min() >= 0
    assert [field.mesh.integral(rho) for rho in run.rho] == pytest.approx([1, 1], abs=1e-12)
    assert (run.dissipation >= 0).all()


@pytest.mark.parametrize("plane", [False, True])
def test_dissipation_identity_along_a_run(plane):
    """F(0) - F(t) is the integral of the dissipation, ever better with the tolerance."""
    if plane:
        field = MeanField(lambda x: (x**2).sum(-1) / 2, lambda r: -np.log(r), 4.0, Rectangle([-3, -3], [3, 3], (32, 40)))
        start = plane_gaussian(field, 0.5, 0.2)
    else:
        field = log_gas(150)
        start = gaussian(field, 0.6, 0.1)
    runs = [field.flow(start, [1.0], tol=tol) for tol in (1e-3, 1e-5)]
    fall = runs[1].free_energy[0] - runs[1].free_energy[-1]
    assert runs[1].imbalance() < 1e-5 * fall < 1e-4 * fall < runs[0].imbalance() < 0.01 * fall
    assert runs[1]._replace(dissipation=1.01 * runs[1].dissipation).imbalance() > 5e-3 * fall  # negative control: 1 % off
    assert (runs[0].dissipation > 0).all()
    rate = field.rate(start)
    towards = field.potential(start) + np.log(start) / field.beta
    assert -field.mesh.integral(rate * towards) == pytest.approx(field.dissipation(start), rel=1e-10)  # chain rule


def test_a_flow_reports_the_times_asked_for():
    field = log_gas(60)
    start, seen = gaussian(field, 0.6, 0.1), []
    times = np.array([0.0, 0.13, 0.4])
    run = field.flow(start, times, tol=1e-4, callback=lambda t, rho: seen.append((t, rho.sum())))
    np.testing.assert_array_equal(run.times, times)
    np.testing.assert_array_equal(run.rho[0], start)
    np.testing.assert_allclose(run.rho[1], field.evolve(start, 0.13, tol=1e-6), atol=1e-3)
    assert [t for t, _ in seen] == list(run.t[1:])
    assert {0.13, 0.4} <= set(run.t)
    assert len(run.t) == len(run.free_energy) == len(run.dissipation)
    assert not run.interrupted
    equal = field.flow(start, [0.1, 0.4], n_steps=4)
    np.testing.assert_allclose(equal.t, [0, 0.1, 0.2, 0.3, 0.4], rtol=1e-14)
    assert field.flow(start, [0.0]).imbalance() == 0


def test_an_interrupted_flow_returns_what_it_reached(capsys):
    field = log_gas(60)

    def stop(t, rho):
        if t > 0.2:
            raise KeyboardInterrupt

    start = gaussian(field, 0.6, 0.1)
    run = field.flow(start, [0.1, 0.2, 0.4, 0.8], tol=1e-5, callback=stop, progress=True)
    assert run.interrupted
    np.testing.assert_array_equal(run.times, [0.1, 0.2])
    assert run.rho.shape == (2, 60)
    assert "t = " in capsys.readouterr().err


def test_errors_name_the_remedy():
    field = log_gas(60)
    start = gaussian(field, 0.6, 0.1)
    with pytest.raises(RuntimeError, match="use a larger tol"):
        field.evolve(start, 1.0, tol=1e-19)
    attractive = MeanField(None, lambda r: 20 * r**2, 1000.0, np.linspace(0, 1, 201))
    peak = attractive.gibbs((attractive.x - 0.2) ** 2)
    with pytest.raises(RuntimeError, match="did not converge: use a larger n_steps, or tol"):
        attractive.evolve(peak, 1.0, n_steps=1)
    with pytest.raises(RuntimeError, match="start 1 leads to no solution within 1 iterations"):
        field.stationary_states([field.stationary().rho, start], n_iterations=1)
    empty = np.zeros(60)
    empty[30] = 1 / field.width
    with pytest.raises(ValueError, match="begin from a positive density"):
        field.flow(empty, [0.1]).imbalance()


# Sweeps.


@pytest.mark.parametrize("walls", [True, False])
@pytest.mark.parametrize("dt", [1e-3, 1.0, 1e14])
def test_elimination_solves_the_linear_system(walls, dt):
    """Against high precision: every value to round-off, however long the step and whatever the range of the rates."""
    rng, n = np.random.default_rng(3), 7
    right, left, volume, rho = 10 ** rng.uniform(-6, 6, (n, 2)), 10 ** rng.uniform(-6, 6, (n, 2)), rng.random((n, 2)), rng.random((n, 2))
    if walls:
        right[-1] = left[-1] = 0
    new = solve(right, left, volume, rho, dt)
    for j in range(2):
        with mpmath.workdps(80):
            matrix = mpmath.diag([mpmath.mpf(v) for v in volume[:, j]])
            for i in range(n):
                after, out, back = (i + 1) % n, mpmath.mpf(dt) * right[i, j], mpmath.mpf(dt) * left[i, j]
                matrix[i, i] += out
                matrix[after, i] -= out
                matrix[after, after] += back
                matrix[i, after] -= back
            exact = mpmath.lu_solve(matrix, mpmath.matrix([mpmath.mpf(v) * w for v, w in zip(volume[:, j], rho[:, j])]))
        np.testing.assert_allclose(new[:, j], [float(value) for value in exact], rtol=1e-13)
    np.testing.assert_allclose((volume * new).sum(0), (volume * rho).sum(0), rtol=1e-14)


def test_rates_are_bernoulli_functions():
    z = np.concatenate([[0.0, 1e-9, 0.4999, 0.5001, 740.0, 1e5], 10 ** np.linspace(-6, 2, 50)])
    u = np.stack([np.zeros(len(z)), z])
    right, left = np.empty_like(u), np.empty_like(u)
    rates(u, np.ones_like(u), 1.0, right, left)
    exact = np.array([float(mpmath.mpf(v) / mpmath.expm1(v)) if v else 1.0 for v in z])
    np.testing.assert_allclose(right[0], exact, rtol=2e-15, atol=1e-320)
    np.testing.assert_allclose(left[0], exact + z, rtol=2e-15)
    np.testing.assert_allclose(right[1], left[0], rtol=2e-15)  # the same rise, backwards


class Circle:
    """A mesh with a periodic axis: angles, with g of the angle between."""

    def __init__(self, n):
        self.shape, self.width = (n,), 2 * np.pi / n
        self.centres = self.width * np.arange(n)
        self.volume = np.full(n, self.width)
        self.axes = (Axis(np.array([1 / self.width]), periodic=True),)

    def cell_average(self, function, name="function"):
        return function(self.centres)

    def convolution(self, interaction):
        spectrum = self.width * np.fft.rfft(interaction(np.minimum(self.centres, 2 * np.pi - self.centres)))

        class Convolution:
            matrix = self.width * toeplitz(np.fft.irfft(spectrum / self.width, self.shape[0]))

            def __call__(_, rho):
                return np.fft.irfft(spectrum * np.fft.rfft(rho), len(rho))

        return Convolution()

    def integral(self, values):
        return self.width * float(values.sum())


@pytest.mark.parametrize("ratio", [0.8, 1.5])
def test_noisy_kuramoto_on_a_periodic_axis(ratio):
    """g = -K cos: the uniform density has stability 1 - beta K / 2; beyond 0 the order solves r = I_1(beta K r) / I_0(beta K r)."""
    beta, mesh = 2.5, Circle(90)
    coupling = ratio * 2 / beta
    field = MeanField(None, lambda r: -coupling * np.cos(r), beta, mesh)
    uniform = np.full(90, 1 / (2 * np.pi))
    assert field.stability(uniform) == pytest.approx(1 - ratio, abs=1e-12)
    assert np.abs(field.rate(uniform)).max() < 1e-13
    start = uniform * (1 + 0.3 * np.cos(mesh.centres - 1.0))
    run = field.flow(start, [30.0 if ratio > 1 else 120.0], tol=1e-4)
    order = abs(mesh.width * np.sum(run.rho[-1] * np.exp(1j * mesh.centres)))
    exact = brentq(lambda r: r - iv(1, beta * coupling * r) / iv(0, beta * coupling * r), 0.1, 1) if ratio > 1 else 0.0
    assert order == pytest.approx(exact, abs=1e-3)
    assert mesh.integral(run.rho[-1]) == pytest.approx(1, abs=1e-13)
    shifted = field.evolve(np.roll(start, 37), 1.0)
    np.testing.assert_allclose(shifted, np.roll(field.evolve(start, 1.0), 37), atol=1e-12)  # no face is special


# Stationary states.


def bad_starts(field):
    """A density in one cell, very uneven noise, and the uniform one."""
    corner, noise = np.zeros(field.mesh.shape), np.random.default_rng(0).random(field.mesh.shape) ** 8
    corner.flat[0] = 1.0
    return [values / field.mesh.integral(values) for values in (corner, noise, np.ones(field.mesh.shape))]


@pytest.mark.parametrize("beta", [10.0, 1000.0])
@pytest.mark.parametrize("s", [0.0, 0.5, 0.9, -1.0])
def test_one_stationary_state_from_bad_starts_on_a_line(s, beta):
    field = MeanField(lambda x: x**2 / 2, lambda r: -np.log(r) if s == 0 else np.sign(s) * r**-s, beta, np.linspace(-2, 2, 201))
    (state,) = field.stationary_states(bad_starts(field))
    assert state.converged
    assert state.residual < 1e-10
    assert state.n_iterations < 40
    assert state.stability == pytest.approx(1, abs=1e-9)  # repulsion: F is convex


@pytest.mark.parametrize("beta", [10.0, 1000.0])
@pytest.mark.parametrize("s", [0.0, 1.0, 1.7])
def test_one_stationary_state_from_bad_starts_in_the_plane(s, beta):
    field = MeanField(
        lambda x: (x**2).sum(-1) / 2, lambda r: -np.log(r) if s == 0 else 0.3 * r**-s, beta, Rectangle([-2, -2], [2, 1.8], (18, 20))
    )
    (state,) = field.stationary_states(bad_starts(field))
    assert state.residual < 1e-10
    total = field.potential(state.rho) + np.log(np.maximum(state.rho, 1e-300)) / beta
    assert np.abs(total - state.multiplier)[state.rho > 1e-200].max() < 1e-10
    assert field.dissipation(state.rho) < 1e-15


@pytest.mark.parametrize("beta", [10.0, 40.0])
@pytest.mark.parametrize("mesh", [np.linspace(-2, 2, 151), Rectangle([-2, -2], [2, 1.8], (20, 18))], ids=["interval", "rectangle"])
def test_uneven_starts_of_an_attractive_gas_fall_to_stable_states(mesh, beta):
    """A softened logarithm, not convex: from one corner cell and from noise, F falls to a minimum and no saddle holds the steps up."""
    field = MeanField(lambda x: (x**2).sum(-1) / 2, lambda r: np.log(np.hypot(r, 0.1)), beta, mesh)
    for start in bad_starts(field)[:2]:
        state = field.stationary(start)
        assert state.converged
        assert state.free_energy < field.free_energy(field.gibbs(field.potential(start)))
        assert field.stability(state.rho) > 0
        np.testing.assert_allclose(field.gibbs(field.potential(state.rho)), state.rho, atol=1e-9 * state.rho.max())


def test_cold_log_gas_of_the_plane_is_a_uniform_disc():
    kappa, strength, n = 1.3, 0.7, 120
    field = MeanField(lambda x: kappa * (x**2).sum(-1) / 2, lambda r: -strength * np.log(r), 2000.0, Rectangle([-1, -1], [1, 1], (n, n)))
    state, radius = field.stationary(), np.sqrt(strength / kappa)
    inside = np.linalg.norm(field.mesh.centres, axis=-1) < 0.8 * radius  # the rim is as rough as the cells
    np.testing.assert_allclose(state.rho[inside], 1 / (np.pi * radius**2), rtol=2e-3)
    assert field.mesh.integral(state.rho * inside) == pytest.approx(0.64, abs=0.01)


def desai_zwanzig(theta, beta, mesh=None):
    return MeanField(lambda x: x**4 / 4 - x**2 / 2, lambda r: theta * r**2 / 2, beta, np.linspace(-3.5, 3.5, 351) if mesh is None else mesh)


def one_well(beta, theta, mean):
    """Mean and variance of the Gibbs density exp(-beta (V + theta (x - mean)^2 / 2)) by quadrature."""

    def moments(k):
        return quad(lambda x: x**k * np.exp(-beta * (x**4 / 4 - x**2 / 2 + theta * (x - mean) ** 2 / 2)), -5, 5, epsabs=1e-13)[0]

    first = moments(1) / moments(0)
    return first, moments(2) / moments(0) - first**2


def critical_temperature(theta):
    """Where beta theta Var = 1 for the symmetric state (Desai & Zwanzig 1978; Dawson 1983)."""
    return brentq(lambda beta: beta * theta * one_well(beta, theta, 0.0)[1] - 1, 0.3, 20)


@pytest.mark.parametrize("theta", [0.6, 1.5])
def test_three_states_below_the_critical_temperature_and_one_above(theta):
    critical = critical_temperature(theta)
    for beta, number in ((0.95 * critical, 1), (1.05 * critical, 3)):
        field = desai_zwanzig(theta, beta)
        starts = [gaussian(field, mean, 0.1) for mean in (-1.2, -0.4, 0.0, 0.4, 1.2)]
        states = field.stationary_states(starts)
        assert len(states) == number
        assert [state.free_energy for state in states] == sorted(state.free_energy for state in states)
        assert [state.stability > 0 for state in states] == ([True] if number == 1 else [True, True, False])
        for state in states:
            mean = moment(field, state.rho, 1)
            first, variance = one_well(beta, theta, mean)
            assert mean == pytest.approx(first, abs=2e-3)
            assert state.stability == pytest.approx(1 - beta * theta * variance, abs=2e-3)
    means = sorted(moment(field, state.rho, 1) for state in states)
    root = brentq(lambda m: one_well(beta, theta, m)[0] - m, 0.05, 1.5)  # the self-consistency equation, solved independently
    assert means == pytest.approx([-root, 0, root], abs=3e-3)


def test_the_symmetric_state_loses_stability_at_the_critical_temperature():
    theta = 0.9
    critical = critical_temperature(theta)

    def stability(beta):
        field = desai_zwanzig(theta, beta)
        return field.stability(field.stationary().rho)  # from the symmetric start

    assert brentq(stability, 0.8 * critical, 1.2 * critical, xtol=1e-5) == pytest.approx(critical, rel=1e-3)


def test_unstable_states_are_left_and_stable_ones_kept():
    """The sign of the stability is that of the decay of a small deviation."""
    field = desai_zwanzig(1.5, 1.3 * critical_temperature(1.5))
    stable, other, unstable = field.stationary_states([gaussian(field, mean, 0.1) for mean in (-1.0, 0.0, 1.0)])
    for state, grows in ((stable, False), (other, False), (unstable, True)):
        push = state.rho * (1 + 0.01 * (field.x - moment(field, state.rho, 1)))
        end = field.evolve(push / (push.sum() * field.width), 5.0, tol=1e-6)
        before, after = (np.abs(rho - state.rho).sum() for rho in (push, end))
        assert bool(after > before) is grows


def test_stability_in_the_plane_is_that_of_its_flattest_direction():
    """V separable and quadratic attraction: 1 - beta theta max(Var_x, Var_y), found by Lanczos steps."""
    beta, theta = 2.0, 1.5
    field = MeanField(
        lambda x: x[..., 0] ** 4 / 4 - x[..., 0] ** 2 / 2 + x[..., 1] ** 2,
        lambda r: theta * r**2 / 2,
        beta,
        Rectangle([-3.5, -2.5], [3.5, 2.5], (120, 60)),
    )
    state = field.stationary()
    exact = 1 - beta * theta * max(one_well(beta, theta, 0.0)[1], 1 / (beta * (2 + theta)))
    assert field.stability(state.rho) == pytest.approx(exact, abs=3e-3)
    assert exact < 0


def test_newton_by_factorisation_and_by_gmres_agree(monkeypatch):
    field = log_gas(120, beta=50.0)
    dense, exact = field.stationary(), field.stability(field.stationary().rho)
    monkeypatch.setattr(stationary, "DENSE", 0)
    krylov = field.stationary()
    np.testing.assert_allclose(krylov.rho, dense.rho, atol=1e-11)
    assert field.stability(krylov.rho) == pytest.approx(exact, abs=1e-6)


def test_a_step_of_the_potential_far_above_the_rest_is_no_obstacle():
    """A barrier of 10^4 holds particles as a wall does, to round-off of its own height."""
    barrier = MeanField(lambda x: np.where(abs(x) < 0.5, 0.0, 1e4), lambda r: -r, 10.0, np.linspace(-1, 1, 101))
    walls = MeanField(None, lambda r: -r, 10.0, np.linspace(-0.5, 0.5, 51))
    inside = slice(25, 75)
    state, flow = barrier.stationary(), barrier.flow(np.full(100, 0.5), [1.0], tol=1e-5)
    assert state.converged
    np.testing.assert_allclose(state.rho[inside], walls.stationary().rho, rtol=1e-8)
    assert barrier.mesh.integral(state.rho[inside]) > 1 - 1e-12
    assert (np.diff(flow.free_energy) <= 0).all()


def test_slow_convergence_is_reported():
    field = log_gas(120, beta=500.0)
    state = field.stationary(n_iterations=1)
    assert not state.converged
    assert state.residual > 1e-6


# Input.


MESHES = [Interval(np.linspace(-1, 2, 8)), Rectangle([-1, 0], [2, 1.5], (3, 4)), Disc(1.5, 4, 5), RadialBall(2.0, 6, 3), Circle(9)]


@pytest.mark.parametrize("mesh", MESHES, ids=lambda mesh: type(mesh).__name__)
def test_normalised_cell_values_are_densities_on_every_mesh(mesh):
    field = MeanField(None, None, 2.0, mesh)
    values = 40 * np.random.default_rng(4).random(mesh.shape)
    values.flat[0] = 0.0
    rho = field.normalised(values)
    assert np.sum(mesh.volume * rho) == pytest.approx(1, abs=1e-14)
    np.testing.assert_allclose(rho * values.flat[1], values * rho.flat[1], rtol=1e-14)  # proportional
    np.testing.assert_array_equal(field.density(rho), rho)
    with pytest.raises(ValueError, match="normalised"):
        field.density(values)  # negative control


@pytest.mark.parametrize("mesh", MESHES[1:], ids=lambda mesh: type(mesh).__name__)
def test_edges_and_width_are_those_of_an_interval_alone(mesh):
    line, field = MeanField(None, None, 2.0, MESHES[0]), MeanField(None, None, 2.0, mesh)
    assert line.width == pytest.approx(3 / 7)
    np.testing.assert_array_equal(line.edges, np.linspace(-1, 2, 8))
    for name in ("edges", "width"):
        with pytest.raises(AttributeError, match=f"{name} is that of an interval, not of a {type(mesh).__name__}"):
            getattr(field, name)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: MeanField(None, None, 1.0, [0, 1, 3, 4, 5]), "edges of equal cells: edges must be"),
        (lambda: MeanField(None, None, 1.0, [4, 3, 2, 1, 0]), "mesh must be a Mesh or the edges of equal cells: edges must increase"),
        (lambda: MeanField(None, None, 1.0, 400), "mesh must be a Mesh or the edges.*at least 4.*400"),
        (lambda: MeanField(None, None, 1.0, "x"), "mesh must be a Mesh or the edges of equal cells: edges must hold real numbers"),
        (lambda: MeanField(None, None, 1.0, Rectangle), "mesh must be a Mesh or the edges"),
        (lambda: MeanField(None, None, 1.0, MeanField(None, None, 1.0, np.arange(6))), "mesh must be a Mesh or the edges"),
        (lambda: MeanField(None, None, 0.0, np.arange(6)), "beta must be"),
        (lambda: MeanField(None, lambda r: r**-1.0, 1.0, np.arange(6)), "interaction must be"),
        (lambda: MeanField(None, lambda r: r**-1.5, 1.0, np.arange(6)), "interaction must be"),
        (lambda: MeanField(lambda x: x / 0, None, 1.0, np.arange(6)), "external must be finite"),
        (lambda: MeanField(3.0, None, 1.0, np.arange(6)), "external must be a callable or None, got 3.0"),
        (lambda: MeanField(None, "log", 1.0, np.arange(6)), "interaction must be a callable or None, got 'log'"),
        (lambda: MeanField(lambda x: np.ones(7), None, 1.0, np.arange(6)), r"external must return an array .*\(7,\)"),
        (
            lambda: MeanField(None, None, 1.0, np.arange(6)).free_energy(np.ones(5)),
            r"divide by the mass: field.normalised\(rho\)\), got \(5,\) of mass 5.0",
        ),
        (lambda: MeanField(None, None, 1.0, np.arange(6)).evolve([2, -1, 0, 0, 0], 1.0), "rho must be"),
        (lambda: MeanField(None, None, 1.0, np.arange(6)).evolve([0.2] * 5, -1.0), "t must be"),
        (lambda: MeanField(None, None, 1.0, np.arange(6)).evolve([0.2] * 5, 1.0, n_steps=0), "n_steps must be"),
        (lambda: MeanField(None, None, 1.0, np.arange(6)).evolve([0.2] * 5, 1.0, tol=0.0), "tol must be"),
        (lambda: MeanField(None, None, 1.0, np.arange(6)).flow([0.2] * 5, []), "times must be"),
        (lambda: MeanField(None, None, 1.0, np.arange(6)).flow([0.2] * 5, [0.2, 0.1]), "times must be"),
        (lambda: MeanField(None, None, 1.0, np.arange(6)).flow([0.2] * 5, [-0.1]), "times must be"),
        (lambda: MeanField(None, None, 1.0, np.arange(6)).flow([0.2] * 5, [0.1], callback=3), "callback must be a callable or None, got 3"),
        (lambda: MeanField(None, None, 1.0, np.arange(6)).rate(np.ones(4)), r"rho must be of shape \(5,\), or flat, got \(4,\)"),
        (lambda: MeanField(None, None, 1.0, Rectangle([0, 0], [1, 1], (3, 4))).rate(np.ones((4, 3))), r"rho must be of shape \(3, 4\)"),
        (lambda: MeanField(None, None, 1.0, np.arange(6)).stationary(tol=-1.0), "tol must be"),
        (lambda: MeanField(None, None, 1.0, np.arange(6)).stationary_states([[0.2] * 5], distance=-1.0), "distance must be"),
        (lambda: MeanField(None, None, 1.0, np.arange(6)).stationary_states([]), "starts must hold at least one"),
        (lambda: MeanField(None, None, 1.0, np.arange(6)).stationary_states(3), "starts must be a sequence of densities, got 3"),
        (lambda: MeanField(None, None, 1.0, np.arange(6)).normalised(np.zeros(5)), "of positive mass, got .* of mass 0.0"),
        (lambda: MeanField(None, None, 1.0, np.arange(6)).normalised([2, -1, 1, 1, 1]), "rho must be .* at least 0"),
        (lambda: MeanField(None, None, 1.0, np.arange(6)).normalised([1, np.nan, 1, 1, 1]), "rho must be finite"),
        (lambda: MeanField(None, None, 1.0, np.arange(6)).normalised(np.full(5, 1e308)), "of mass inf"),
        (lambda: MeanField(None, None, 1.0, np.arange(6)).normalised(np.ones(4)), r"rho must be of shape \(5,\)"),
        (lambda: MeanField(None, None, 1.0, Rectangle([0, 0], [1, 1], (3, 4))).evolve(np.ones((4, 3)), 1.0), r"shape \(3, 4\)"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value", "ignore:overflow")
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
