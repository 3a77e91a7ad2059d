"""One step of the dynamics: its algebra, its guards, and its exact laws at finite step size."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
import torch
from scipy import stats

from particles import Quadratic, Riesz, simulate
from particles.convex import Projector
from particles.domain import Ball, Box, FullSpace, Torus
from particles.langevin import DivergenceError, Langevin
from particles.random import normal
from particles.sampler import geometric, linear

Z = 4.9  # standard errors; a two-sided false alarm of 1e-6 for each comparison


def run(sampler, domain, omega, stiffness, n_steps, seed=1, observe=lambda omega, info: None):
    """Independent particles in the potential stiffness |w|^2 / 2."""
    seen = []
    for step in range(n_steps):
        omega, info = sampler.step(omega, stiffness * omega, normal((seed, 0, step), omega.shape), domain, step)
        seen.append(observe(omega, info))
    return omega, seen


def variance_error(x, variance):
    """(sample variance of centred normals - variance) in standard errors."""
    return (np.mean(x**2) / variance - 1) / math.sqrt(2 / x.size)


# ---------------------------------------------------------------------------------------------------------------- laws


@pytest.mark.parametrize(("beta", "stiffness", "step_size"), [(2.7, 1.3, 0.5), (5.0, 0.7, 0.2)])
def test_stationary_variance_is_eulers_at_finite_step(beta, stiffness, step_size):
    n_steps = int(20 / (stiffness * step_size))
    omega, _ = run(Langevin(step_size, beta), FullSpace(2), np.zeros((4, 5000, 2)), stiffness, n_steps)
    gibbs = 1 / (beta * stiffness)
    euler = gibbs / (1 - step_size * stiffness / 2)
    for chain in omega:
        assert abs(variance_error(chain, euler)) < Z
    assert abs(variance_error(omega, euler)) < Z
    assert abs(variance_error(omega, gibbs)) > Z  # negative control: the limit of small steps is another law
    assert abs(variance_error(omega, euler / 1.2)) > Z  # negative control: beta 20 % off


@pytest.mark.parametrize("temperature", [0.5, 0.2])
def test_preconditioner_keeps_the_temperature(temperature):
    mobility, step_size = np.array([1.0, 100.0]), 0.009
    sampler = Langevin(step_size, 1 / temperature, preconditioner=mobility)
    start = math.sqrt(temperature) * normal((9, 0, 0), (10_000, 2))
    omega, _ = run(sampler, FullSpace(2), start, 1.0, 700)
    for coordinate, m in enumerate(mobility):
        assert abs(variance_error(omega[:, coordinate], temperature / (1 - step_size * m / 2))) < Z
    assert abs(variance_error(omega[:, 1], temperature)) > Z  # negative control: no Euler factor


def test_free_diffusion():
    # <|dx|^2> = 2 d T t m, at no parameter value of 1
    temperature, mobility, n_steps, step_size = 1.5, 0.5, 12, 0.07
    sampler = Langevin(step_size, 1 / temperature, preconditioner=[mobility] * 3)
    omega, _ = run(sampler, FullSpace(3), np.zeros((40_000, 3)), 0.0, n_steps)
    variance = 2 * temperature * mobility * n_steps * step_size
    assert abs(variance_error(omega, variance)) < Z
    assert abs(variance_error(omega, variance * mobility)) > Z  # negative control: mobility entering the noise unrooted
    assert abs(variance_error(omega, variance / mobility)) > Z  # negative control: mobility missing from the noise


def test_wall_atom_of_projection_has_its_predicted_mass_and_reflection_has_none():
    half_width, sigma, n = 0.7, 0.15, 20_000
    beta = 3.0
    step_size = sigma**2 * beta / 2
    box, start = Box(-half_width, half_width), np.random.default_rng(0).uniform(-half_width, half_width, (n, 1))

    def at_wall(omega, info):
        return (abs(omega) == half_width).mean(), float(info["projected"])

    _, seen = run(Langevin(step_size, beta), box, start, 0.0, 600, observe=at_wall)
    assert all(atom == moved for atom, moved in seen)  # what the wall moved is what lies on it
    mass = 2 * (sigma / math.sqrt(2)) / (2 * half_width + 1.1652 * sigma)  # both walls
    looks = [atom for atom, _ in seen[100::100]]  # slowest mode decays by e^-5 between looks
    error = math.sqrt(mass * (1 - mass) / (n * len(looks)))
    assert abs(np.mean(looks) - mass) < Z * error
    assert abs(np.mean(looks) - 2 * (sigma / math.sqrt(2)) / (2 * half_width)) > Z * error  # negative control: leading order only

    omega, seen = run(Langevin(step_size, beta, scheme="reflected"), box, start, 0.0, 200, observe=at_wall)
    assert max(atom for atom, _ in seen) == 0
    assert stats.kstest((omega[:, 0] / half_width + 1) / 2, "uniform").pvalue > 1e-6


def test_reflection_in_a_ball_leaves_no_atom():
    ball = Ball(0.7, 2)
    omega = ball.sample(5000, 0)
    projected, _ = run(Langevin(0.02, 2.0), ball, omega, 0.0, 50)
    reflected, seen = run(Langevin(0.02, 2.0, scheme="reflected"), ball, omega, 0.0, 50, observe=lambda _, info: info["projected"])
    on_wall = [(np.linalg.norm(x, axis=-1) > 0.7 * (1 - 1e-9)).mean() for x in (projected, reflected)]
    assert on_wall[0] > 0.05
    assert on_wall[1] == 0
    assert np.mean(seen) > 0.05  # but the wall did act, and said so


def drifted_mean(scheme, step_size, seed=0):
    """Mean of independent particles pushed with force 5 against the wall 0 of [0, 1], and the share that lies on a wall."""
    box, n_steps = Box(0, 1), int(1.5 / step_size)
    omega = np.random.default_rng(seed).exponential(0.2, (16_000, 1)) % 1.0
    sampler, means = Langevin(step_size, 1.0, scheme=scheme), []
    for step in range(n_steps):
        omega, _ = sampler.step(omega, np.full_like(omega, 5.0), normal((seed, 0, step), omega.shape), box, step)
        if step >= n_steps // 3 and step % max(1, int(0.05 / step_size)) == 0:
            means.append(omega.mean())
    return np.mean(means), ((omega == 0) | (omega == 1)).mean(), omega


def test_shrunk_projection_has_no_atom_and_a_mean_error_of_the_order_of_the_step():
    # density ~ exp(-5 w) on [0, 1]: mean 0.19322; standard errors of the means below are under 6e-4
    exact, steps = 0.193216, (1e-2, 2.5e-3)
    shrunk = [drifted_mean("shrunk", h) for h in steps]
    errors = [mean - exact for mean, _, _ in shrunk]
    assert abs(errors[0] - 0.012) < 3e-3
    assert abs(errors[1] - 0.0033) < 3e-3
    assert all(on_wall == 0 for _, on_wall, _ in shrunk)  # the atom lies inside, on the shrunk set's wall
    assert abs(shrunk[0][2].min() - 0.5826 * math.sqrt(2e-2)) < 1e-12
    mean, on_wall, _ = drifted_mean("projected", 1e-2)  # negative control: O(sqrt(step)), with an atom
    assert mean - exact < -0.05
    assert on_wall > 0.3


def test_shrunk_walls_follow_the_schedules():
    cold, ball = Langevin(0.1, math.inf, scheme="shrunk"), Ball(1.0, 2)
    far = np.array([[3.0, 0.0]])
    assert cold.step(far, far * 0, far * 0, ball, 0)[0].tolist() == [[1.0, 0.0]]  # without noise there is no layer
    sampler = Langevin(linear(0.01, 0.02, 10), geometric(1.0, 4.0, 10), scheme="shrunk")
    for step in (0, 5, 10, 99):
        width = 0.5826 * math.sqrt(2 * linear(0.01, 0.02, 10)(step) / geometric(1.0, 4.0, 10)(step))
        np.testing.assert_allclose(sampler.step(far, far * 0, far * 0, ball, step)[0], [[1 - width, 0]], rtol=1e-14)


def test_shrunk_runs_keep_their_walls_until_the_schedule_moves(monkeypatch):
    eroded = []
    monkeypatch.setattr(Ball, "erode", lambda self, distance, erode=Ball.erode: eroded.append(distance) or erode(self, distance))
    start = Ball(0.5, 2).sample(20, 0)
    simulate(start, Quadratic(1.0), Ball(1.0, 2), Langevin(0.01, 4.0, scheme="shrunk"), n_steps=50, rng=0)
    assert len(eroded) == 2  # for the check and for the run
    simulate(start, Quadratic(1.0), Ball(1.0, 2), Langevin(linear(0.01, 0.02, 20), 4.0, scheme="shrunk"), n_steps=50, rng=0)
    assert len(eroded) == 2 + 1 + 21


# ------------------------------------------------------------------------------------------------------------- algebra


def arrays(shape=(3, 50, 2), seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for _ in range(3)]


def test_step_is_algorithm_1():
    omega, gradient, noise = arrays()
    ball = Ball(1.0, 2)
    omega = ball.project(omega)
    moved, info = Langevin(0.3, 7.0).step(omega, gradient, noise, ball, 0)
    for c in range(3):
        for k in range(50):
            proposal = omega[c, k] - 0.3 * gradient[c, k] + math.sqrt(2 * 0.3 / 7.0) * noise[c, k]
            expected = proposal / max(1.0, np.linalg.norm(proposal))
            np.testing.assert_allclose(moved[c, k], expected, atol=1e-14)
    proposals = omega - 0.3 * gradient + math.sqrt(0.6 / 7) * noise
    np.testing.assert_allclose(info["projected"], (np.linalg.norm(proposals, axis=-1) > 1).mean(-1))
    assert info["capped"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("domain", [Ball(1.0, 2), Box([-1, -1], [0.5, 1]), FullSpace(2)], ids=str)
@pytest.mark.parametrize("scheme", ["projected", "reflected", "shrunk"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numpy_and_torch_agree(domain, scheme, dtype):
    omega, gradient, noise = (a.astype(dtype) for a in arrays())
    omega = domain.project(omega)
    options = {} if isinstance(domain, Ball) or scheme == "shrunk" else {"preconditioner": [1.0, 0.5]}
    sampler = Langevin(0.3, 7.0, scheme=scheme, drift_cap=0.4, clip=1.5, **options)
    moved, info = sampler.step(omega, gradient, noise, domain, 0)
    moved_torch, info_torch = sampler.step(*(torch.from_numpy(a) for a in (omega, gradient, noise)), domain, 0)
    assert moved.dtype == dtype
    assert moved_torch.dtype == getattr(torch, dtype)
    np.testing.assert_allclose(moved_torch.numpy(), moved, atol=1e-6 if dtype == "float32" else 1e-14)
    for name in ("projected", "capped"):
        assert info[name].shape == (3,)
        np.testing.assert_allclose(info_torch[name].numpy(), info[name])
    assert info["capped"].min() > 0


@pytest.mark.parametrize("scheme", ["projected", "reflected", "shrunk"])
@pytest.mark.parametrize("beta", [4.0, math.inf])
def test_advance_is_step_bit_for_bit(scheme, beta):
    omega, ball, energy, key = arrays()[0] / 3, Ball(0.8, 2), Quadratic(1.3), (5, 2, 7)
    omega = ball.project(omega)
    sampler = Langevin(linear(0.1, 0.2, 10), beta, scheme=scheme)
    moved, info, memory = sampler.advance(omega, energy, ball, key, sampler.begin(omega))
    expected, full = sampler.step(omega, energy.gradient(omega), normal(key, omega.shape), ball, 7)
    assert np.array_equal(moved, expected)
    assert all(np.array_equal(info.get(name, 0 * value), value) for name, value in full.items())
    assert not [name for name in memory if not name.startswith("_")]


def test_inputs_are_not_written_to():
    inputs = arrays()
    for a in inputs:
        a.flags.writeable = False
    moved, _ = Langevin(0.3, 7.0, drift_cap=0.1, clip=0.5).step(*inputs, Ball(0.5, 2), 0)
    assert not any(np.shares_memory(moved, a) for a in inputs)
    for a, b in zip(inputs, arrays(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_cap_and_clip_bound_lengths():
    omega, gradient, noise = np.zeros((4, 2)), np.array([[3.0, 4.0], [0.3, 0.4], [3e200, 4e200], [0.0, 0.0]]), np.zeros((4, 2))
    moved, info = Langevin(0.1, 1.0, drift_cap=0.25).step(omega, gradient, noise, FullSpace(2), 0)
    np.testing.assert_allclose(moved, [[-0.15, -0.2], [-0.03, -0.04], [-0.15, -0.2], [0, 0]], rtol=1e-12)
    assert info["capped"] == 0.5
    moved, info = Langevin(0.1, 1.0, clip=1.0).step(omega, gradient, noise, FullSpace(2), 0)
    np.testing.assert_allclose(moved, [[-0.06, -0.08], [-0.03, -0.04], [-0.06, -0.08], [0, 0]], rtol=1e-12)
    assert info["capped"] == 0


def test_infinite_beta_is_gradient_descent():
    omega, gradient, noise = arrays()
    moved, _ = Langevin(0.3, math.inf).step(omega, gradient, noise, FullSpace(2), 0)
    assert np.array_equal(moved, omega - 0.3 * gradient)


def test_schedules():
    assert [linear(1.0, 3.0, 4)(s) for s in (0, 1, 4, 9)] == [1.0, 1.5, 3.0, 3.0]
    np.testing.assert_allclose([geometric(1.0, 16.0, 4)(s) for s in (0, 1, 4, 9)], [1, 2, 16, 16])
    omega, gradient, noise = arrays()
    moved, _ = Langevin(linear(0.1, 0.3, 10), geometric(1.0, 100.0, 10)).step(omega, gradient, noise, FullSpace(2), 5)
    expected, _ = Langevin(0.2, 10.0).step(omega, gradient, noise, FullSpace(2), 0)
    np.testing.assert_allclose(moved, expected, rtol=1e-13)
    moved, _ = Langevin(lambda step: 0.1 * (step + 1), 10.0).step(omega, gradient, noise, FullSpace(2), 1)
    np.testing.assert_allclose(moved, expected, rtol=1e-13)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("domain", [Ball(9.0, 2), Box([-9, -9], [9, 9]), FullSpace(2)], ids=str)
def test_divergence_says_where_and_keeps_the_last_state(domain, bad):
    omega, gradient, noise = arrays()
    gradient[1, 17, 1] = bad
    for cap in (None, 0.1):
        with pytest.raises(DivergenceError, match=r"particle 17 of chain 1 .* step 5") as caught:
            Langevin(0.1, 1.0, drift_cap=cap).step(omega, gradient, noise, domain, 5)
        assert (caught.value.step, caught.value.chain, caught.value.particle) == (5, 1, 17)
        assert np.array_equal(caught.value.omega, omega)
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)


def test_descriptions():
    plain = Langevin(0.1, math.inf).describe()
    assert plain["name"] == "Langevin"
    assert plain["beta"] == "inf"
    scheduled = Langevin(linear(1, 2, 3), abs, preconditioner=np.ones(2)).describe()
    assert scheduled["step_size"] == {"name": "linear", "start": 1.0, "end": 2.0, "n_steps": 3}
    assert scheduled["beta"] == {"name": "abs", "code": None}
    assert scheduled["preconditioner"] == [1.0, 1.0]


DISC = Projector(Ball(1.0, 2).project, 2)


def test_what_fits_passes_the_check():
    Langevin(0.1, 1.0).check(DISC, Quadratic(1.0))
    Langevin(0.1, 1.0).check(Torus([1.0, 1.0]), Riesz(0, 1.0, period=1.0) + Quadratic(1.0))
    Langevin(0.1, 1.0).check(Torus([1.0, 2.0]), Riesz(0, 1.0, period=[1.0, 2.0]))
    Langevin(0.1, 1.0).check(FullSpace(2), Riesz(0, 1.0))


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Langevin(-0.1, 1.0), "step_size"),
        (lambda: Langevin(0.0, 1.0), "step_size"),
        (lambda: Langevin(math.inf, 1.0), "step_size"),
        (lambda: Langevin("small", 1.0), "step_size"),
        (lambda: Langevin(0.1, 0.0), "beta"),
        (lambda: Langevin(0.1, math.nan), "beta"),
        (lambda: Langevin(0.1, -math.inf), "beta"),
        (lambda: Langevin(0.1, 1.0, scheme="euler"), "scheme"),
        (lambda: Langevin(0.1, 1.0, drift_cap=0), "drift_cap"),
        (lambda: Langevin(0.1, 1.0, clip=-1), "clip"),
        (lambda: Langevin(0.1, 1.0, preconditioner=[1.0, 0.0]), "preconditioner"),
        (lambda: Langevin(0.1, 1.0, preconditioner=np.eye(2)), "preconditioner"),
        (lambda: Langevin(0.1, 1.0, preconditioner=[1.0], scheme="shrunk"), "preconditioner must be None with scheme 'shrunk'"),
        (lambda: Langevin(0.1, 1.0, scheme="shrunk").check(Ball(0.2, 2), Quadratic(1.0)), "nothing is left of the domain"),
        (lambda: Langevin(0.1, 1.0, scheme="reflected").check(DISC, Quadratic(1.0)), "reflect"),
        (lambda: Langevin(0.1, 1.0, scheme="shrunk").check(DISC, Quadratic(1.0)), "erode"),
        (lambda: Langevin(0.1, 1.0).check(Torus([1.0, 2.0]), Quadratic(1.0) + Riesz(0, 1.0)), "period of Riesz .* got None"),
        (lambda: Langevin(0.1, 1.0).check(Torus([1.0, 2.0]), Riesz(0, 1.0, period=1.0)), "period of Riesz must be that of the domain"),
        (lambda: Langevin(0.1, np.array([1.0, 2.0])), "beta must be a real number"),
        (lambda: Langevin(lambda step: None, 1.0).step(*arrays(), FullSpace(2), 3), "must be a positive number, got None at step 3"),
        (lambda: Langevin(0.1, lambda step: "cold").step(*arrays(), FullSpace(2), 3), "beta must be a positive number, got 'cold'"),
        (lambda: Langevin("0.1", 1.0), "step_size must be a real number, got '0.1'"),
        (lambda: Langevin(0.1, True), "beta must be a real number, got True"),
        (lambda: linear(0.1, 0.0, 5), "end"),
        (lambda: geometric(0.1, 0.2, 0), "n_steps"),
        (lambda: Langevin(lambda step: -1.0, 1.0).step(*arrays(), FullSpace(2), 3), "must be a positive number, got -1.0 at step 3"),
        (lambda: Langevin(0.1, lambda step: math.nan).step(*arrays(), FullSpace(2), 3), "beta must be a positive number, got nan"),
        (lambda: Langevin(0.1, 1.0, preconditioner=[1, 2]).step(*arrays(), Ball(1.0, 2), 0), "preconditioner"),
        (lambda: Langevin(0.1, 1.0, preconditioner=[1, 2, 3]).step(*arrays(), FullSpace(2), 0), "preconditioner"),
    ],
)
def test_bad_input(make, name):
    with pytest.raises(ValueError, match=name):
        make()
