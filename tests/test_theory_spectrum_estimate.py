"""Densities of learned particles against exact samplers, walls and atoms, and the learned kernel by two methods."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.stats import gaussian_kde, norm

from theory.spectral import Gaussian, Matern
from theory.spectral.compact_spectra import Bessel
from theory.spectral.spectrum_estimate import (
    ball_density,
    bandwidth_rule,
    characteristic_function,
    line_density,
    marginal_profile,
    radial_profile,
    wall_atom,
)


@pytest.mark.parametrize("rule", ["scott", "silverman"])
def test_bandwidth_is_that_of_scipy_on_the_line(rule):
    w = np.random.default_rng(0).standard_normal((200, 1)) * 1.7
    assert bandwidth_rule(w, rule) == pytest.approx(np.sqrt(gaussian_kde(w[:, 0], rule).covariance[0, 0]), rel=1e-12)
    assert bandwidth_rule(w, 0.3) == 0.3


def test_without_walls_it_is_the_ordinary_kernel_estimate():
    w = np.random.default_rng(1).standard_normal((150, 1))
    x = np.linspace(-3, 3, 31)
    np.testing.assert_allclose(line_density(w, x).value, gaussian_kde(w[:, 0], "silverman")(x), rtol=1e-12)


@pytest.mark.parametrize("width", [0.02, 0.4, 3.0])
def test_reflected_estimate_has_its_mass_inside_and_keeps_a_lattice_uniform(width):
    x = np.linspace(-1, 2, 3001)
    w = np.random.default_rng(2).uniform(-1, 2, (2, 40, 1))
    w[0, :5], w[1, :2], w[1, 2] = -1.0, 2.0, -1.0  # 8 of 80 are on a wall
    inside = trapezoid(line_density(w, x, low=-1, high=2, bandwidth=width).value, x)
    assert inside == pytest.approx(0.9, abs=2e-5)
    lattice = (-1 + 3 * (np.arange(3000) + 0.5) / 3000)[:, None]
    np.testing.assert_allclose(line_density(lattice, x[::150], low=-1, high=2, bandwidth=width).value, 1 / 3, rtol=1e-6)


def test_one_wall_is_the_folded_normal():
    w = np.abs(np.random.default_rng(3).standard_normal((6, 4000, 1)))
    x = np.array([0.0, 0.1, 0.6, 1.5])
    estimate = line_density(w, x, low=0.0, bandwidth=0.15)
    exact = 2 * norm.pdf(x, scale=np.sqrt(1 + 0.15**2))  # the reflected kernel convolves the folded normal exactly
    # four t-tests with 5 degrees of freedom at 9 errors: false alarm 4 * 3e-4; without the wall it is half as large at 0
    assert (np.abs(estimate.value - exact) < 9 * estimate.error).all()
    assert abs(line_density(w, x, bandwidth=0.15).value[0] - exact[0]) > 9 * estimate.error[0]


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_ball_estimate_is_uniform_up_to_the_wall(dim):
    radius = 1.4
    w = Bessel(1 / radius).sample(200_000, dim, 4).reshape(8, -1, dim)
    x = np.zeros((5, dim))
    x[:, 0] = radius * np.array([0.0, 0.4, 0.8, 0.95, 1.0])
    estimate = ball_density(w, x, radius=radius, bandwidth=0.2)
    exact = float(Bessel(1 / radius).density(np.zeros(dim)))
    # five t-tests with 7 degrees of freedom at 8 errors: false alarm 5 * 9e-5; the uncorrected one is half as large at the wall
    assert (np.abs(estimate.value - exact) < 8 * estimate.error).all()
    assert (estimate.error < 0.03 * exact).all()
    larger = ball_density(w, x[:4], radius=radius * 1.5, bandwidth=0.2)
    assert abs(larger.value[3] - exact) > 8 * larger.error[3]


@pytest.mark.parametrize(("dim", "exponent"), [(1, 0.5), (2, 0.0), (3, -0.4), (5, 1.2)])
def test_shells_and_marginals_against_exact_laws(dim, exponent):
    pair = Bessel(0.8, exponent)
    w = pair.sample(160_000, dim, 5).reshape(16, -1, dim)
    edges = np.array([0.3, 0.6, 0.9, 1.1, 1.25])
    unit_ball = {1: 2, 2: np.pi, 3: 4 * np.pi / 3, 5: 8 * np.pi**2 / 15}[dim]
    wrong = Bessel(0.8, exponent + 0.15)

    def misses(law):
        shells = np.diff(law.squared_norm(dim).cdf(edges**2)) / unit_ball / np.diff(edges**dim)
        cells = np.diff(law.marginal(dim).cdf(edges - 0.9)) / np.diff(edges)
        got = radial_profile(w, edges), marginal_profile(w, edges - 0.9, dim - 1)
        return max(np.max(np.abs(e.value - exact) / e.error) for e, exact in zip(got, (shells, cells)))

    # eight t-tests with 15 degrees of freedom at 6.5 errors: false alarm 8 * 1e-5
    assert misses(pair) < 6.5
    assert misses(wrong) > 6.5


def test_atom_is_kept_apart_from_the_density():
    rng, radius = np.random.default_rng(6), 1.3
    w = Gaussian(1.0).sample(40_000, 3, rng).reshape(4, -1, 3)
    norms = np.linalg.norm(w, axis=2, keepdims=True)
    projected = np.where(norms > radius, radius * w / norms, w)
    atom = wall_atom(projected, radius)
    exact = Gaussian(1.0).squared_norm(3).sf(radius**2)
    assert abs(atom.value - exact) < 5 * np.sqrt(exact * (1 - exact) / 40_000)  # binomial, 6e-7
    edges = np.linspace(0, radius, 9)
    volume = 4 * np.pi / 3 * np.diff(edges**3)
    assert radial_profile(projected, edges, radius=radius).value @ volume + atom.value == pytest.approx(1, rel=1e-12)
    edges[-1] *= 1 + 1e-9
    assert radial_profile(projected, edges).value @ volume == pytest.approx(1, rel=1e-8)  # the atom in the last shell
    line = np.linspace(-radius, radius, 8)
    assert marginal_profile(projected, line, 1, radius=radius).value @ np.diff(line) + atom.value == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("pair", [Gaussian(0.7), Matern(0.9, nu=1.5), Bessel(0.8, 0.5)], ids=repr)
@pytest.mark.parametrize("dim", [1, 3])
def test_learned_kernel_is_the_pair(pair, dim):
    w = pair.sample(80_000, dim, 7).reshape(10, -1, dim)
    delta = np.random.default_rng(8).normal(size=(2, 3, dim)) * 0.8
    estimate = characteristic_function(w, delta)
    # six t-tests with 9 degrees of freedom at 8 errors: false alarm 6 * 2e-5
    assert (np.abs(estimate.value - pair.kernel(delta)) < 8 * estimate.error).all()
    assert (np.abs(estimate.value - pair.kernel(1.1 * delta)) > 8 * estimate.error).any()


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_nonuniform_fft_agrees_with_the_sum(dim):
    pytest.importorskip("finufft")
    rng = np.random.default_rng(9)
    w, delta = rng.standard_normal((2, 500, dim)), rng.uniform(-6, 6, (40, 5, dim))
    exact = characteristic_function(w, delta, method="exact")
    for tol, allowed in ((1e-12, 1e-11), (1e-6, 1e-5)):
        fast = characteristic_function(w, delta, method="finufft", tol=tol)
        np.testing.assert_allclose(fast.value, exact.value, atol=allowed)
        np.testing.assert_allclose(fast.error, exact.error, atol=allowed)
    assert np.abs(fast.value - exact.value).max() > 1e-14


def test_automatic_choice_and_blocks_change_nothing(monkeypatch):
    rng = np.random.default_rng(10)
    w, delta = rng.standard_normal((1, 5000, 2)), rng.uniform(-3, 3, (2001, 2))
    fast, exact = characteristic_function(w, delta), characteristic_function(w, delta, method="exact")
    np.testing.assert_allclose(fast.value, exact.value, atol=1e-10)
    assert np.isnan(fast.error).all()
    monkeypatch.setattr("theory.spectral.spectrum_estimate._BLOCK", 10_000)
    np.testing.assert_allclose(characteristic_function(w, delta[:50], method="exact").value, exact.value[:50], atol=1e-14)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: wall_atom([[1.2]], 1.0), "omega must lie in the ball of radius 1.0, got a norm of 1.2"),
        (lambda: wall_atom([0.2], 1.0), "omega must have shape"),
        (lambda: line_density([[0.2, 0.3]], [0.1]), "omega and x must have shapes"),
        (lambda: line_density([[0.2], [0.4]], [1.1], low=0, high=1), "must lie in [low, high] = [0.0, 1.0]"),
        (lambda: line_density([[0.2], [0.4]], [0.1], low=np.nan), "low must be a number"),
        (lambda: line_density([[0.2], [0.4]], [0.1], bandwidth="botev"), "bandwidth must be"),
        (lambda: line_density([[0.0], [1.0]], [0.1], low=0, high=1), "samples must have shape (n, dim) with n of at least 2"),
        (lambda: ball_density([[0.2, 0.3]], [[2.0, 0.0]], radius=1.0, bandwidth=0.1), "x must have shape (m, 2)"),
        (lambda: radial_profile([[0.2]], [-1.0, 1.0]), "edges must be at least 0"),
        (lambda: radial_profile([[0.2]], [1.0, 1.0]), "edges must be increasing"),
        (lambda: marginal_profile([[0.2]], [0.0, 1.0], 1), "axis must be an integer from 0 to 0, got 1"),
        (lambda: characteristic_function([[0.2]], [[0.1, 0.2]]), "delta must have a last axis of 1"),
        (lambda: characteristic_function([[0.2]], [[0.1]], method="nfft"), "method must be"),
        (lambda: characteristic_function(np.ones((3, 4)), np.ones((2, 4)), method="finufft"), "needs dim of at most 3, got 4"),
        (lambda: bandwidth_rule(np.ones((3, 1))), "bandwidth of these samples must be finite and positive"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value)


def test_shells_in_many_dimensions_and_thin_ones():
    """A thin shell's volume is area times thickness; r^dim overflows where its density does not."""
    omega = np.zeros((4, 10, 3))
    omega[..., 0] = 1.0 + 5e-13
    value = radial_profile(omega, [1.0, 1.0 + 1e-12]).value[0]
    assert value == pytest.approx(1 / (4 * np.pi * (np.float64(1.0 + 1e-12) - 1.0)), rel=1e-10)
    assert np.isfinite(radial_profile(np.ones((1, 5, 400)), [0.0, 10.0, 20.0, 30.0]).value).all()
