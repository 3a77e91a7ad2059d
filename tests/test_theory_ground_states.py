"""Ground states at finite n: forces balance to rounding, energies are H_N of the positions, perturbed positions cost energy, and the
energies are the cold limits of the exact partition functions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import roots_jacobi

from theory import ensembles
from theory.ground_states import (
    coulomb_line_energy,
    coulomb_line_ground_state,
    end_energy,
    end_ground_state,
    half_line_energy,
    half_line_ground_state,
    hermite_energy,
    hermite_ground_state,
    mirror_energy,
    mirror_ground_state,
    ring_energy,
    ring_ground_state,
    simplex_energy,
    simplex_ground_state,
    sphere_energy,
    sphere_ground_state,
    wall_energy,
    wall_ground_state,
)

KAPPA, STRENGTH, SLOPE, WIDTH = 1.3, 0.7, 1.9, 1.6


def riesz(r, s):
    with np.errstate(divide="ignore"):  # two particles pushed to one wall have infinite energy
        return -np.log(r) if s == 0 else np.sign(s) * r**-s


def pair_energy(x, s):
    """strength W_N of positions (n, dim)."""
    i, j = np.triu_indices(len(x), 1)
    return STRENGTH / (len(x) * (len(x) - 1)) * np.sum(riesz(np.linalg.norm(x[i] - x[j], axis=1), s))


def forces(x, s):
    """-grad of N strength W_N for each particle, (n, dim): strength/(n-1) |s| sum (x_k - x_l) / |x_k - x_l|^(s+2)."""
    apart = x[:, None] - x
    r = np.linalg.norm(apart, axis=-1) + np.eye(len(x))
    return STRENGTH / (len(x) - 1) * (abs(s) or 1) * np.sum(apart / r[..., None] ** (s + 2), axis=1)


def is_least(x, energy, bound=None, trials=40):
    """No random small move, clipped to `bound` where there are walls, lowers the energy."""
    rng, least = np.random.default_rng(0), energy(x)
    for size in np.geomspace(1e-3, 0.1, trials):
        moved = x + size * rng.standard_normal(x.shape) * np.ptp(x)
        moved = moved if bound is None else bound(moved)
        if energy(moved) < least:
            return False
    return True


@pytest.mark.parametrize("n", [2, 3, 6, 20])
def test_hermite(n):
    x = hermite_ground_state(n, KAPPA, STRENGTH)
    assert forces(x, 0) == pytest.approx(KAPPA * x, abs=1e-12)
    assert hermite_energy(n, KAPPA, STRENGTH) == pytest.approx(KAPPA / 2 * np.mean(x**2) + pair_energy(x, 0), rel=1e-13)
    assert forces(1.01 * x, 0) != pytest.approx(1.01 * KAPPA * x, abs=1e-3)  # negative control


@pytest.mark.parametrize("n", [2, 3, 6, 20])
@pytest.mark.parametrize("charge", [0.0, 0.05, 0.9])
def test_half_line(n, charge):
    x = half_line_ground_state(n, SLOPE, STRENGTH, charge)
    force = forces(x, 0) - SLOPE
    if charge:
        force += charge / x
    else:
        assert x[0, 0] == 0
        assert force[0, 0] < 0  # held by the wall
        force = force[1:]
    assert force == pytest.approx(0, abs=1e-8)

    def energy(x):
        return np.mean(SLOPE * x - (charge * np.log(x) if charge else 0)) + pair_energy(x, 0)

    assert half_line_energy(n, SLOPE, STRENGTH, charge) == pytest.approx(energy(x), rel=1e-11, abs=1e-12)
    assert is_least(x, energy, lambda y: abs(y))


@pytest.mark.parametrize("n", [2, 3, 6, 20])
def test_mirror(n):
    x = mirror_ground_state(n, KAPPA, STRENGTH)
    assert (x >= 0).all()
    both = np.concatenate([x, -x])  # forces of the other particles and of their images, not of a particle's own
    own = np.where(x == 0, 0, 1 / np.where(x == 0, 1, 2 * x))
    apart = x - both.T + np.where(np.eye(n, 2 * n) + np.eye(n, 2 * n, k=n), np.inf, 0)
    assert STRENGTH / (n - 1) * np.sum(1 / apart, axis=1, keepdims=True) == pytest.approx(KAPPA * x, abs=1e-11)
    assert (STRENGTH / (n - 1) * (np.sum(1 / apart, axis=1, keepdims=True) + own))[1:] != pytest.approx(KAPPA * x[1:], abs=1e-3)
    i, j = np.triu_indices(n, 1)
    pairs = STRENGTH / (n * (n - 1)) * np.sum(-np.log(abs(x[i] ** 2 - x[j] ** 2)))
    assert mirror_energy(n, KAPPA, STRENGTH) == pytest.approx(KAPPA / 2 * np.mean(x**2) + pairs, rel=1e-12)
    assert np.mean(x**2) == pytest.approx(STRENGTH / KAPPA)


@pytest.mark.parametrize("n", [2, 3, 6, 20])
@pytest.mark.parametrize("charges", [(0.0, 0.0), (0.4, 0.0), (0.0, 0.05), (0.3, 1.1)])
def test_walls(n, charges):
    x = wall_ground_state(n, STRENGTH, WIDTH, charges)
    assert x.shape == (n, 1)
    assert (np.diff(x[:, 0]) > 0).all()
    force, free = forces(x, 0), np.ones(n, bool)
    if charges[0]:
        force += charges[0] / (WIDTH + x)
    else:
        free[0] = False
        assert x[0, 0] == -WIDTH
        assert force[0, 0] < 0
    if charges[1]:
        force -= charges[1] / (WIDTH - x)
    else:
        free[-1] = False
        assert x[-1, 0] == WIDTH
    assert force[free] == pytest.approx(0, abs=1e-9)

    def energy(x):
        walls = [charge * np.mean(np.log(gap)) for charge, gap in zip(charges, (WIDTH + x, WIDTH - x)) if charge]
        return pair_energy(x, 0) - sum(walls)

    assert wall_energy(n, STRENGTH, WIDTH, charges) == pytest.approx(energy(x), rel=1e-11, abs=1e-12)
    assert is_least(x, energy, lambda y: np.clip(y, -WIDTH * (1 - 1e-9), WIDTH * (1 - 1e-9)) if any(charges) else np.clip(y, -WIDTH, WIDTH))


def test_walls_without_charges_are_feketes_points():
    x = wall_ground_state(9, STRENGTH, 1.0)
    assert x[1:-1, 0] == pytest.approx(roots_jacobi(7, 1, 1)[0])  # P'_8
    assert x[[0, -1], 0] == pytest.approx([-1, 1])
    n, k = 20, np.arange(1, 21)
    odd = np.arange(3, 2 * n - 2, 2)
    discriminant = np.sum(k * np.log(k)) + np.sum(k[:-2] * np.log(k[:-2])) - np.sum(odd * np.log(odd))  # Szego, section 6.7
    assert wall_energy(n, 1.0, 1.0) == pytest.approx(-discriminant / (2 * n * (n - 1)), rel=1e-13)
    assert wall_energy(6, 1.0, 1.0) == pytest.approx(0.1829018316 / 2, abs=5e-11)
    assert wall_energy(20, 1.0, 1.0) == pytest.approx(0.4970706878 / 2, abs=5e-11)


def test_energies_are_the_cold_limit_of_the_exact_ensembles():
    """E H_N = ground state + O(1/beta); n = 7."""
    n, beta = 7, 1e7
    cold = [
        (ensembles.log_gas_energy(n, beta, KAPPA, STRENGTH), hermite_energy(n, KAPPA, STRENGTH)),
        (ensembles.half_line_gas_energy(n, beta, SLOPE, STRENGTH, 0.4), half_line_energy(n, SLOPE, STRENGTH, 0.4)),
        (ensembles.half_line_gas_energy(n, beta, SLOPE, STRENGTH), half_line_energy(n, SLOPE, STRENGTH)),
        (ensembles.mirror_gas_energy(n, beta, KAPPA, STRENGTH), mirror_energy(n, KAPPA, STRENGTH)),
        (ensembles.wall_gas_energy(n, beta, STRENGTH, WIDTH, (0.2, 0.0)), wall_energy(n, STRENGTH, WIDTH, (0.2, 0.0))),
        (ensembles.circle_gas_energy(n, beta, STRENGTH, 2 * np.pi * WIDTH), ring_energy(n, STRENGTH, WIDTH)),
        (ensembles.CoulombLine(n, beta, KAPPA, STRENGTH).energy, coulomb_line_energy(n, KAPPA, STRENGTH)),
    ]
    for finite, ground in cold:
        assert 0 < finite - ground < 3 / beta
    assert abs(cold[0][0] - hermite_energy(n, KAPPA, 1.01 * STRENGTH)) > 3 / beta  # negative control


@pytest.mark.parametrize("n", [2, 3, 6, 21])
def test_coulomb_line(n):
    x = coulomb_line_ground_state(n, KAPPA, STRENGTH)
    assert forces(x, -1) == pytest.approx(KAPPA * x, abs=1e-13)
    assert coulomb_line_energy(n, KAPPA, STRENGTH) == pytest.approx(KAPPA / 2 * np.mean(x**2) + pair_energy(x, -1), rel=1e-13)


@pytest.mark.parametrize(("n", "dim"), [(2, 1), (2, 3), (3, 2), (4, 3), (5, 6)])
@pytest.mark.parametrize("s", [-1.5, -1.0, 0.0, 0.5, 3.0])
def test_simplex(n, dim, s):
    x = simplex_ground_state(n, dim, KAPPA, STRENGTH, s)
    assert x.shape == (n, dim)
    assert forces(x, s) == pytest.approx(KAPPA * x, abs=1e-12)

    def energy(x):
        return KAPPA / 2 * np.mean(np.sum(x**2, axis=1)) + pair_energy(x, s)

    assert simplex_energy(n, KAPPA, STRENGTH, s) == pytest.approx(energy(x), rel=1e-12)
    assert is_least(x, energy)
    if (n, dim, s) == (2, 1, 0.0):
        assert simplex_energy(2, KAPPA, STRENGTH, 0.0) == pytest.approx(hermite_energy(2, KAPPA, STRENGTH))


@pytest.mark.parametrize("n", [2, 3, 7, 12])
@pytest.mark.parametrize("s", [-1.5, -0.4, 0.0, 1.0, 2.5])
def test_ring(n, s):
    x = ring_ground_state(n, WIDTH)
    force = forces(x, s)
    outward = np.sum(force * x, axis=1, keepdims=True) / WIDTH**2 * x
    assert force == pytest.approx(outward, abs=1e-12)  # nothing along the circle
    assert (np.sum(force * x, axis=1) > 0).all()
    assert ring_energy(n, STRENGTH, WIDTH, s) == pytest.approx(pair_energy(x, s), rel=1e-12)

    def on_circle(y):
        return WIDTH * y / np.linalg.norm(y, axis=1, keepdims=True)

    def in_disc(y):
        return y / np.maximum(np.linalg.norm(y, axis=1, keepdims=True) / WIDTH, 1)

    assert is_least(x, lambda y: pair_energy(y, s), on_circle)
    if s <= 0:
        assert is_least(x, lambda y: pair_energy(y, s), in_disc)


def test_ring_of_the_log_in_closed_form():
    assert ring_energy(12, 1.0, 1.0) * 12 * 11 * 2 == pytest.approx(-29.8188798, abs=5e-7)  # sum over ordered pairs, - n log n
    assert ring_energy(9, 0.8, 1.7) == pytest.approx(-0.4 * (np.log(1.7) + np.log(9) / 8), rel=1e-13)


@pytest.mark.parametrize("n", [2, 5, 8])
@pytest.mark.parametrize("s", [-1.0, -1.6])
def test_ends(n, s):
    x = end_ground_state(n, WIDTH)
    energy = -STRENGTH / (n * (n - 1)) * sum(abs(a - b) ** -s for k, a in enumerate(x[:, 0]) for b in x[:k, 0])
    assert end_energy(n, STRENGTH, WIDTH, s) == pytest.approx(energy, rel=1e-13)
    rng = np.random.default_rng(0)
    for _ in range(200):
        y = rng.uniform(-WIDTH, WIDTH, n)
        assert -STRENGTH / (n * (n - 1)) * sum(abs(a - b) ** -s for k, a in enumerate(y) for b in y[:k]) > energy


@pytest.mark.parametrize(("n", "dim"), [(2, 2), (3, 3), (4, 3), (6, 3), (12, 3), (5, 4), (8, 4), (7, 2), (10, 5)])
def test_sphere(n, dim):
    x = sphere_ground_state(n, dim, WIDTH)
    assert np.linalg.norm(x, axis=1) == pytest.approx(np.full(n, WIDTH))
    assert x.mean(axis=0) == pytest.approx(np.zeros(dim), abs=1e-13)

    def in_ball(y):
        return y / np.maximum(np.linalg.norm(y, axis=1, keepdims=True) / WIDTH, 1)

    def on_sphere(y):
        return WIDTH * y / np.linalg.norm(y, axis=1, keepdims=True)

    for s in (-1.3, 0.0, 1.0, 4.0):
        if s <= dim - 2:
            assert is_least(x, lambda y, s=s: pair_energy(y, s), in_ball)
        assert is_least(x, lambda y, s=s: pair_energy(y, s), on_sphere)
        assert sphere_energy(n, dim, STRENGTH, WIDTH, s) == pytest.approx(pair_energy(x, s), rel=1e-12)


def test_random_starts_find_nothing_below_the_icosahedron():
    """Thomson's problem: 49.165253058 at n = 12 on the unit sphere (sum over pairs)."""
    assert sphere_energy(12, 3, 1.0, 1.0, 1.0) * 12 * 11 == pytest.approx(49.165253058, abs=5e-9)
    assert sphere_energy(6, 3, 1.0, 1.0, 1.0) * 6 * 5 == pytest.approx(9.985281374, abs=5e-9)


def test_many_particles():
    """n = 1200, where SciPy's own rules overflow: forces balance to rounding of the largest of them."""
    for charge in (0.0, 0.9):
        x = half_line_ground_state(1200, SLOPE, STRENGTH, charge)[:, 0]
        apart = np.where(np.eye(1200, dtype=bool), np.inf, x[:, None] - x)
        balance = STRENGTH / 1199 * np.sum(1 / apart, axis=1) - SLOPE + (charge / x if charge else 0)
        assert abs(balance / (STRENGTH / 1199 * np.sum(1 / abs(apart), axis=1)))[1:] == pytest.approx(0, abs=1e-11)
        x = wall_ground_state(1200, STRENGTH, WIDTH, (charge, 0.0))[:, 0]
        apart = np.where(np.eye(1200, dtype=bool), np.inf, x[:, None] - x)
        balance = STRENGTH / 1199 * np.sum(1 / apart, axis=1) + charge / np.where(x > -WIDTH, WIDTH + x, 1)
        assert abs(balance / (STRENGTH / 1199 * np.sum(1 / abs(apart), axis=1)))[1:-1] == pytest.approx(0, abs=1e-9)


def test_energies_of_the_package():
    """The particles' own H_N at the ground states: normalisation and signs."""
    from particles import External, Quadratic, Riesz

    line = External(lambda x: SLOPE * x[..., 0] - 0.4 * np.log(x[..., 0]), lambda x: SLOPE - 0.4 / x, name="half_line")
    walls = External(lambda x: -0.4 * np.log(WIDTH - x[..., 0]), lambda x: 0.4 / (WIDTH - x), name="wall")
    cases = [
        (Quadratic(KAPPA) + Riesz(0.0, STRENGTH), hermite_ground_state(8, KAPPA, STRENGTH), hermite_energy(8, KAPPA, STRENGTH)),
        (line + Riesz(0.0, STRENGTH), half_line_ground_state(8, SLOPE, STRENGTH, 0.4), half_line_energy(8, SLOPE, STRENGTH, 0.4)),
        (Quadratic(KAPPA) + Riesz(0.0, STRENGTH, mirror=True), mirror_ground_state(8, KAPPA, STRENGTH), mirror_energy(8, KAPPA, STRENGTH)),
        (walls + Riesz(0.0, STRENGTH), wall_ground_state(8, STRENGTH, WIDTH, (0.0, 0.4)), wall_energy(8, STRENGTH, WIDTH, (0.0, 0.4))),
        (Quadratic(KAPPA) + Riesz(-1.0, STRENGTH), coulomb_line_ground_state(8, KAPPA, STRENGTH), coulomb_line_energy(8, KAPPA, STRENGTH)),
        (
            Quadratic(KAPPA) + Riesz(0.5, STRENGTH),
            simplex_ground_state(4, 3, KAPPA, STRENGTH, 0.5),
            simplex_energy(4, KAPPA, STRENGTH, 0.5),
        ),
        (Riesz(-0.5, STRENGTH), ring_ground_state(8, WIDTH), ring_energy(8, STRENGTH, WIDTH, -0.5)),
        (Riesz(1.0, STRENGTH), sphere_ground_state(12, 3, WIDTH), sphere_energy(12, 3, STRENGTH, WIDTH, 1.0)),
        (Riesz(-1.2, STRENGTH), end_ground_state(7, WIDTH), end_energy(7, STRENGTH, WIDTH, -1.2)),
    ]
    for energy, x, value in cases:
        assert float(energy.value(x)) == pytest.approx(value, rel=1e-12)
    torus = Riesz(0.7, STRENGTH, period=2 * np.pi * WIDTH)
    assert float(torus.value(WIDTH * 2 * np.pi * np.arange(9)[:, None] / 9)) == pytest.approx(
        ring_energy(9, STRENGTH, WIDTH, 0.7), rel=1e-12
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: half_line_ground_state(3, -1.0, 1.0), "slope must be"),
        (lambda: half_line_energy(3, 1.0, 1.0, -0.1), "charge must be .*-0.1"),
        (lambda: wall_ground_state(1, 1.0, 1.0), "n must be an integer of at least 2"),
        (lambda: wall_energy(3, 1.0, 1.0, (0.0, -1.0)), "charges must be .*-1.0"),
        (lambda: wall_ground_state(3, 1.0, 1.0, 2.0), "charges must be two numbers"),
        (lambda: coulomb_line_energy(1, 1.0, 1.0), "n must be"),
        (lambda: simplex_ground_state(4, 2, 1.0, 1.0, 0.0), "n must be at most dim \\+ 1 = 3, got 4"),
        (lambda: simplex_energy(3, 1.0, 1.0, -2.0), "s must be above -2, got -2.0"),
        (lambda: simplex_energy(3, 1.0, 1.0, -1.9999), "s must leave distances in floating point, got -1.9999"),
        (lambda: ring_energy(3, 1.0, 0.0), "radius must be"),
        (lambda: end_energy(3, 1.0, 1.0, -0.5), "s must be above -2 and at most -1, got -0.5"),
        (lambda: sphere_ground_state(7, 3, 1.0), "n must be at most dim \\+ 1, 2 dim.*got n = 7 in dim 3"),
        (lambda: sphere_ground_state(3, 1, 1.0), "dim must be an integer of at least 2"),
        (lambda: mirror_ground_state(3, 0.0, 1.0), "kappa must be"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
