"""Wasserstein distances against optimal assignments, linear programmes, closed forms and known means."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.integrate import quad
from scipy.optimize import linear_sum_assignment, linprog
from scipy.special import ndtri, stdtrit
from scipy.stats import norm
from scipy.stats import wasserstein_distance as scipy_w1

from theory.convergence.transport import sliced_wasserstein, sliced_wasserstein2, wasserstein, wasserstein2


@pytest.mark.parametrize(("n", "m"), [(1, 1), (5, 5), (6, 4), (7, 3)])
def test_wasserstein2_of_points_is_the_optimal_assignment(n, m):
    rng = np.random.default_rng(n * m)
    a, b = rng.normal(size=n), rng.normal(1, 2, size=m)
    repeat = np.lcm(n, m)
    cost = (np.repeat(a, repeat // n)[:, None] - np.repeat(b, repeat // m)) ** 2
    exact = np.sqrt(cost[linear_sum_assignment(cost)].mean())
    assert wasserstein2(a, b) == pytest.approx(exact, rel=1e-13)
    assert wasserstein2(b, a) == pytest.approx(exact, rel=1e-13)


def test_weights_are_repetitions():
    a, b = np.array([0.3, -1.0, 2.0]), np.array([0.5, 1.0])
    assert wasserstein2(a, b, a_weights=[2, 1, 3], b_weights=[1, 4]) == pytest.approx(
        wasserstein2(np.repeat(a, [2, 1, 3]), np.repeat(b, [1, 4])), rel=1e-13
    )
    assert wasserstein2(a, b, a_weights=[0, 1, 0]) == pytest.approx(wasserstein2([-1.0], b), rel=1e-13)
    assert wasserstein2(a, a + 0.7) == pytest.approx(0.7)


@pytest.mark.parametrize(("mean", "scale"), [(0.0, 1.0), (1.5, 0.3)])
def test_wasserstein2_to_a_quantile_function(mean, scale):
    assert wasserstein2([0.4], lambda u: mean + scale * ndtri(u)) == pytest.approx(np.hypot(mean - 0.4, scale), rel=1e-7)
    points = np.array([-0.5, 0.1, 2.0])
    edges = ndtri(np.array([1 / 3, 2 / 3]))
    density, tail = norm.pdf(edges), np.diff(np.r_[0, norm.pdf(edges), 0])
    assert density.shape == (2,)
    cross = -np.sum(points * (mean * -1 / 3 + scale * tail))  # int q over each third: mean/3 - scale * (phi at its ends)
    exact = np.mean(points**2) + mean**2 + scale**2 - 2 * cross
    assert wasserstein2(points, lambda u: mean + scale * ndtri(u)) == pytest.approx(np.sqrt(exact), rel=1e-7)


def test_sliced_distance_of_a_shift():
    rng = np.random.default_rng(0)
    a, shift = rng.normal(size=(50, 3)), np.array([1.0, -2.0, 0.5])
    expected = np.linalg.norm(shift) / np.sqrt(3)  # E (direction . shift)^2 = |shift|^2 / dim
    assert sliced_wasserstein2(a, a + shift, n_projections=4000, rng=1) == pytest.approx(expected, rel=0.03)
    assert sliced_wasserstein2(a, a[::-1], rng=1) == pytest.approx(0, abs=1e-12)


def test_distances_of_equal_and_shifted_clouds_of_any_precision():
    """The same cloud is at distance 0 whatever its dtype; a shifted one at the length of the shift."""
    double = np.random.default_rng(2).normal(size=40).astype(np.float32).astype(np.float64)
    for a, b in ((double, double[::-1]), (double.astype(np.float32), double), (pd.Series(double), xr.DataArray(double))):
        weights = np.full(40, 1 / 40, np.float32)
        assert wasserstein2(a, b, a_weights=weights) == pytest.approx(0, abs=1e-12)
        assert wasserstein2(np.asarray(a) + np.float32(0.75), b) == pytest.approx(0.75, abs=1e-6)
    whole = np.arange(5)
    whole.flags.writeable = False
    assert wasserstein2(whole, whole + 2) == pytest.approx(2)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0])
def test_points_on_the_line_against_all_permutations(p):
    """No coupling of equal weights beats the best permutation (Birkhoff); the sorted one is best for p >= 1."""
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=6), rng.standard_cauchy(6)
    best = min(np.mean(np.abs(a - b[list(order)]) ** p) for order in itertools.permutations(range(6)))
    assert wasserstein(a, b, p) == pytest.approx(best ** (1 / p), rel=1e-13)
    if p > 1:  # negative control: another order gives another distance
        assert wasserstein(a, b, p - 0.25) != pytest.approx(best ** (1 / p), rel=1e-3)


def test_weighted_w1_agrees_with_scipy():
    rng = np.random.default_rng(4)
    a, b, u, v = rng.normal(size=30), rng.normal(size=17), rng.random(30), rng.random(17)
    assert wasserstein(a, b, 1, a_weights=u, b_weights=v) == pytest.approx(scipy_w1(a, b, u, v), rel=1e-12)


@pytest.mark.parametrize("p", [1.0, 1.3, 2.0, 3.0, 4.0])
@pytest.mark.parametrize("weights", [None, [1.0, 3.0, 0.5, 2.0, 2.5]])
def test_points_against_a_quantile_function_by_quadrature_in_position(p, weights):
    """int |a - z|^p phi(z) dz over the cell of each point, cut at the point."""
    points, share = np.sort(np.random.default_rng(8).normal(size=5)), np.ones(5) if weights is None else np.array(weights)
    edges = np.clip(ndtri(np.r_[0, np.cumsum(share / share.sum())[:-1], 1]), -14, 14)
    total = 0.0
    for point, low, high in zip(points, edges, edges[1:]):
        cuts = [low, *([point] if low < point < high else []), high]
        for left, right in itertools.pairwise(cuts):
            total += quad(lambda z, at=point: abs(at - z) ** p * norm.pdf(z), left, right, epsabs=1e-15, epsrel=1e-13)[0]
    assert wasserstein(points, ndtri, p, a_weights=weights) == pytest.approx(total ** (1 / p), rel=1e-11)
    assert wasserstein(points, lambda u: 1.001 * ndtri(u), p, a_weights=weights) != pytest.approx(total ** (1 / p), rel=1e-5)


def test_quantile_functions_with_heavy_tails_and_bounded_support():
    """W_1 of a point at 0 to |quantile| is the mean modulus: u^-1/3 law 1.5; uniform on [0, 1] 1/2."""
    assert wasserstein([0.0], lambda u: u ** (-1 / 3), 1) == pytest.approx(1.5, rel=1e-8)
    assert wasserstein([0.0], lambda u: u, 1) == pytest.approx(0.5, rel=1e-13)
    middle = (2 * np.arange(10) + 1) / 20
    assert wasserstein(middle, lambda u: u, 1) == pytest.approx(1 / 40, rel=1e-12)
    assert wasserstein(middle, lambda u: u, 2) == pytest.approx(1 / np.sqrt(1200), rel=1e-12)
    assert wasserstein(middle, lambda u: u, 3) == pytest.approx((1 / 32000) ** (1 / 3), rel=1e-12)


def test_mean_distance_of_uniform_points_is_exactly_1_over_6n():
    """E W_2^2(empirical, uniform) = 1/(6 n) for independent points (Bobkov & Ledoux 2019). z-test at 4: false alarm 6e-5."""
    rng = np.random.default_rng(9)
    for n in (3, 40):
        draws = np.array([wasserstein2(rng.random(n), lambda u: u) ** 2 for _ in range(600)])
        error = draws.std(ddof=1) / np.sqrt(len(draws))
        assert abs(draws.mean() - 1 / (6 * n)) < 4 * error
        assert abs(draws.mean() - 1 / (5 * n)) > 4 * error  # negative control: the wrong constant is seen


@pytest.mark.parametrize("p", [1.0, 2.0, 1.5])
@pytest.mark.parametrize("dim", [2, 3])
def test_points_in_space_against_a_linear_programme(p, dim):
    pytest.importorskip("ot")
    rng = np.random.default_rng(dim)
    a, b, u, v = rng.normal(size=(5, dim)), rng.normal(1, 1, size=(7, dim)), rng.random(5), rng.random(7)
    cost = np.linalg.norm(a[:, None] - b, axis=-1) ** p
    rows, columns = np.kron(np.eye(5), np.ones(7)), np.kron(np.ones(5), np.eye(7))
    best = linprog(cost.ravel(), A_eq=np.r_[rows, columns], b_eq=np.r_[u / u.sum(), v / v.sum()]).fun
    assert wasserstein(a, b, p, a_weights=u, b_weights=v) == pytest.approx(best ** (1 / p), rel=1e-7)
    assert wasserstein(a, b, p) != pytest.approx(best ** (1 / p), rel=1e-3)  # negative control: the weights matter
    assert wasserstein(a, a + np.eye(dim)[0] * 0.3, p) == pytest.approx(0.3, rel=1e-12)


def test_missing_pot_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ot", None)
    with pytest.raises(ImportError, match=r"kernelgas\[ot\]"):
        wasserstein(np.ones((3, 2)), np.ones((4, 2)), 1)
    assert wasserstein(np.ones((3, 1)), np.zeros((4, 1)), 1) == 1.0


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_sliced_distance_of_a_shift_and_its_error(p):
    """Of a shift: |shift| (E |direction_1|^p)^(1/p); the Monte-Carlo errors are honest: 200 z-scores have mean square 1 +- 0.1."""
    shift, dim = np.array([1.0, -2.0, 0.5]), 3
    exact = np.linalg.norm(shift) * (1 / (p + 1)) ** (1 / p)  # in three dimensions a coordinate of the direction is uniform
    a = np.random.default_rng(0).normal(size=(20, dim))
    draws = [sliced_wasserstein(a, a + shift, p, n_projections=50, rng=seed) for seed in range(200)]
    z = np.array([(draw.value - exact) / draw.error for draw in draws])
    assert 0.7 < np.mean(z**2) < 1.5
    assert np.mean(((np.array([d.value for d in draws]) - 1.2 * exact) / [d.error for d in draws]) ** 2) > 3
    assert sliced_wasserstein(a[:, 0], a[:, 1], p, rng=0) == (
        pytest.approx(wasserstein(a[:, 0], a[:, 1], p), rel=1e-12),
        pytest.approx(0, abs=1e-12),
    )


def test_sliced_distance_is_below_the_exact_one():
    pytest.importorskip("ot")
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(40, 4)), rng.normal(0.5, 1.5, size=(30, 4))
    sliced, error = sliced_wasserstein(a, b, 2, n_projections=500, rng=2)
    assert sliced - 5 * error < wasserstein(a, b, 2) / 2  # at most W_2 / sqrt(dim)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: wasserstein2([], [1.0]), r"a must be points of shape \(n, dim\) with n and dim at least 1, got shape \(0, 1\)"),
        (lambda: wasserstein2(np.ones(500), [1.0], a_weights=-np.ones(500)), r"a_weights must be .*, got shape \(500,\) with minimum -1$"),
        (lambda: wasserstein2([1.0], [1.0], a_weights=[]), r"a_weights must be .*, got shape \(0,\)$"),
        (lambda: wasserstein2([1.0], [np.nan]), "b must be finite"),
        (lambda: wasserstein2([1.0, 2.0], [1.0], a_weights=[1, -1]), "a_weights must be"),
        (lambda: wasserstein2([1.0, 2.0], [1.0], b_weights=[1, 1]), "b_weights must be"),
        (lambda: wasserstein2([1.0], ndtri, b_weights=[1.0]), "b_weights must be None"),
        (lambda: wasserstein([[1.0, 2.0]], ndtri), "points on the line"),
        (lambda: wasserstein([1.0], [2.0], 0.5), "p must be"),
        (lambda: wasserstein([1.0], [2.0], np.inf), "p must be"),
        (lambda: wasserstein([1.0], lambda u: u[:3]), "quantile function must return"),
        (lambda: wasserstein([1.0], lambda u: u * np.nan), "quantile function must be finite"),
        (lambda: wasserstein(np.ones((3, 2)), np.ones((3, 1))), "same dim"),
        (lambda: sliced_wasserstein2(np.ones((3, 2)), np.ones((3, 1)), rng=0), "same dim"),
        (lambda: sliced_wasserstein2(np.ones((3, 2)), np.ones((3, 2)), rng="seed"), "rng must be"),
        (lambda: sliced_wasserstein(np.ones((3, 2)), np.ones((3, 2)), n_projections=1, rng=0), "n_projections"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_powers_of_distances_do_not_leave_the_floats(size):
    assert wasserstein2([0.0, 0.0], [size, 2 * size]) == pytest.approx(np.sqrt(2.5) * size, rel=1e-12)
    assert wasserstein([0.0, 1.0], [3.0, 5.0], 4000) == pytest.approx(4 * 0.5 ** (1 / 4000), rel=1e-12)
    plane = np.array([[0.0, 0.0], [size, 0.0]])
    assert sliced_wasserstein(plane, 2 * plane, 3.0, rng=0).value == pytest.approx(
        size * sliced_wasserstein(plane / size, 2 * plane / size, 3.0, rng=0).value, rel=1e-12
    )


@pytest.mark.parametrize(("dof", "p"), [(1, 1.0), (1, 2.0), (2, 2.0)])
def test_laws_without_the_moment_are_refused(dof, p):
    """Student's law has moments below its degrees of freedom; above them the distance is infinite."""
    for points in ([0.0], np.linspace(-3, 3, 100)):
        with pytest.raises(ValueError, match="the quantile function must be smooth and have a moment of order"):
            wasserstein(points, lambda u: stdtrit(dof, u), p)
    assert wasserstein([0.0], lambda u: stdtrit(5, u)) ** 2 == pytest.approx(5 / 3, rel=1e-8)
