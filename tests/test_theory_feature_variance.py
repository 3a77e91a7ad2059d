"""Variances of random features: by Gauss-Hermite quadrature, by integrals over the sphere, by Monte Carlo, and against published bounds."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from scipy.stats import chi

from theory.spectral import Gaussian, Laplace
from theory.spectral.feature_variance import (
    _relative_covariance,
    attention_error,
    fourier_variance,
    gram_error,
    hyperbolic_variance,
    mean_variance,
    optimal_positive_parameter,
    optimal_positive_variance,
    orthogonal_fourier_covariance,
    orthogonal_positive_bound,
    orthogonal_positive_covariance,
    orthogonal_trigonometric_covariance,
    phase_variance,
    positive_variance,
    trigonometric_variance,
    yaglom_variance,
)
from theory.spectral.gaussian_mixtures import RationalQuadratic
from theory.spectral.yaglom import GaussianPair, yaglom_kernel

POINTS = [([0.3, -0.2, 0.5], [0.1, 0.4, 0.2]), ([0.6, -0.7], [-0.2, 0.5]), ([0.4, 0.1, 0.3, -0.2, 0.5], [0.3, 0.3, -0.1, 0.2, 0.1])]


def gaussian_moments(function, dim, n=60):
    """Mean and variance of function(w), w ~ N(0, I), by a product Gauss-Hermite rule."""
    node, weight = np.polynomial.hermite_e.hermegauss(n)
    w = np.stack(np.meshgrid(*[node] * dim, indexing="ij"), -1).reshape(-1, dim)
    p = np.prod(np.stack(np.meshgrid(*[weight] * dim, indexing="ij"), -1).reshape(-1, dim), 1) / (2 * np.pi) ** (dim / 2)
    values = function(w)
    return p @ values, p @ values**2 - (p @ values) ** 2


def functions(x, y, a=-0.07):
    """Name, one feature's estimate of w, its mean, its variance, its covariance with an orthogonal one."""
    x, y = np.array(x), np.array(y)
    norms = np.exp(-(x @ x + y @ y) / 2)
    positive = orthogonal_positive_covariance(x, y)

    def optimal(w):
        return (1 - 4 * a) ** (len(x) / 2) * norms * np.exp(2 * a * np.sum(w * w, -1) + np.sqrt(1 - 4 * a) * (w @ (x + y)))

    return [
        ("fourier", lambda w: np.cos(w @ (x - y)), fourier_variance(x - y, Gaussian(1.0)), orthogonal_fourier_covariance(x - y)),
        ("positive", lambda w: norms * np.exp(w @ (x + y)), positive_variance(x, y), positive),
        ("hyperbolic", lambda w: norms * np.cosh(w @ (x + y)), hyperbolic_variance(x, y), positive),
        ("trigonometric", lambda w: np.cos(w @ (x - y)) / norms, trigonometric_variance(x, y), orthogonal_trigonometric_covariance(x, y)),
        ("optimal", optimal, optimal_positive_variance(x, y, a), positive),
    ]


@pytest.mark.parametrize(("x", "y"), POINTS[:2])
def test_feature_variances_by_quadrature(x, y):
    for name, function, variance, _ in functions(x, y):
        mean = np.exp(-0.5 * np.sum(np.subtract(x, y) ** 2)) if name == "fourier" else np.exp(np.dot(x, y))
        assert gaussian_moments(function, len(x)) == pytest.approx((float(mean), float(variance)), rel=1e-9), name


def test_phase_variance_adds_one_half_for_any_kernel():
    delta, total, rng = np.array([0.4, -0.9]), np.array([0.7, 0.2]), np.random.default_rng(3)
    b = (np.arange(64) + 0.5) * 2 * np.pi / 64
    w = Laplace(1.3).sample(200_000, 2, rng)
    values = np.cos(w @ delta)[:, None] + np.cos((w @ total)[:, None] + 2 * b)
    # one z-test at 4 standard errors: false alarm 6e-5; the variance without the 1/2 is 300 errors away
    square = (values - Laplace(1.3).kernel(delta)) ** 2
    error = square.mean(1).std() / np.sqrt(len(w))
    predicted = float(phase_variance(delta, Laplace(1.3)))
    assert abs(square.mean() - predicted) < 4 * error
    assert abs(square.mean() - (predicted - 0.5)) > 4 * error


def test_quoted_variances():
    x, y = np.array([0.3, -0.2, 0.5]), np.array([0.1, 0.4, 0.2])
    values = positive_variance(x, y), hyperbolic_variance(x, y), trigonometric_variance(x, y), phase_variance(x - y, Gaussian(1.0))
    assert values == pytest.approx((1.0982255, 0.2736909, 0.1353517, 0.5750292), abs=1e-7)


def test_fourier_variance_of_a_scale_mixture():
    pair, delta = RationalQuadratic(0.8, alpha=1.7), np.array([0.5, -0.3, 0.9])
    values = np.cos(pair.sample(400_000, 3, 11) @ delta)
    square = (values - pair.kernel(delta)) ** 2
    # z-test at 4.5 errors: false alarm 7e-6; the Gaussian pair's variance is far away
    error = square.std() / np.sqrt(len(square))
    assert abs(square.mean() - fourier_variance(delta, pair)) < 4.5 * error
    assert abs(square.mean() - fourier_variance(delta, Gaussian(0.8))) > 4.5 * error


@pytest.mark.parametrize("z", [0.4, 1.3, 2.6])
def test_orthogonal_covariance_in_the_plane_by_integration(z):
    """dim 2: w1 = r1 (cos a, sin a), w2 = r2 (-sin a, cos a), so three integrals, of which the angle's is a periodic trapezoid."""
    a = (np.arange(200) + 0.5) * 2 * np.pi / 200
    node, weight = np.polynomial.legendre.leggauss(120)
    r, p = 8 * (node + 1), 8 * weight * chi.pdf(8 * (node + 1), 2)

    def second(kind):
        first, other = (np.einsum("r,ra->ra", p, kind(np.outer(r, z * side))) for side in (np.cos(a), np.sin(a)))
        return np.mean(first.sum(0) * other.sum(0))

    kernel = np.exp(-0.5 * z**2)
    assert orthogonal_fourier_covariance([z, 0.0]) == pytest.approx(second(np.cos) - kernel**2, abs=1e-12)
    x, y = np.array([0.7 * z, 0.0]), np.array([0.3 * z, 0.0])
    front = np.exp(-x @ x - y @ y)
    assert orthogonal_positive_covariance(x, y) == pytest.approx(front * (second(np.exp) - np.exp(z**2)), rel=1e-9)


@pytest.mark.parametrize("dim", [2, 3, 8, 64])
@pytest.mark.parametrize("z", [1e-3, 0.3, 1.4142, 2.0, 6.0])
def test_orthogonal_covariances_to_many_digits(dim, z):
    delta = np.full(dim, z / np.sqrt(dim))
    z2 = mp.mpf(float(np.sum(delta**2)))
    with mp.workdps(60):
        cosine = mp.hyp1f1(dim, mp.mpf(dim) / 2, -z2 / 2) - mp.exp(-z2)
        growing = mp.exp(-z2 / 2) * (mp.hyp1f1(dim, mp.mpf(dim) / 2, z2 / 2) - mp.exp(z2))
    assert float(orthogonal_fourier_covariance(delta)) == pytest.approx(float(cosine), rel=1e-10)
    assert float(orthogonal_positive_covariance(delta / 2, delta / 2)) == pytest.approx(float(growing), rel=1e-10)
    assert float(orthogonal_positive_covariance(delta / 2, delta / 2)) < 0


def test_large_points_do_not_overflow():
    """|x|^2 = |y|^2 = 400 at an angle beyond 90 degrees: e^(|x|^2) is no float, the variances are."""
    x = np.array([20.0, 0.0, 0.0])
    y = 20 * np.array([np.cos(2.0), np.sin(2.0), 0.0])
    product, z2 = x @ y, np.sum((x + y) ** 2)
    with mp.workdps(40):
        variance = mp.exp(2 * product) * (mp.exp(z2) - 1)
        covariance = mp.exp(-800) * (mp.hyp1f1(3, 1.5, z2 / 2) - mp.exp(z2))
    assert float(positive_variance(x, y)) == pytest.approx(float(variance), rel=1e-11)
    assert float(optimal_positive_variance(x, y, 0.0)) == pytest.approx(float(variance), rel=1e-11)
    assert float(orthogonal_positive_covariance(x, y)) == pytest.approx(float(covariance), rel=1e-11)
    far = orthogonal_fourier_covariance([[60.0, 0.0, 0.0], [60.0, 0.0, 0.0]], length=0.9)
    with mp.workdps(60):  # in odd dimensions it decays only like a power of the distance
        exact = mp.hyp1f1(3, mp.mpf(3) / 2, -(mp.mpf(60) ** 2) / mp.mpf(0.9) ** 2 / 2, maxprec=100_000)
    assert far == pytest.approx(2 * [float(exact)], rel=1e-12)


def test_orthogonal_covariance_for_small_distances_and_scales():
    delta = np.array([0.02, 0.01, -0.015])
    z4 = np.sum(delta**2) ** 2
    assert orthogonal_fourier_covariance(delta) == pytest.approx(-z4 / 10, rel=1e-3)
    assert orthogonal_fourier_covariance(3 * delta, length=3.0) == pytest.approx(float(orthogonal_fourier_covariance(delta)), rel=1e-12)


@pytest.mark.parametrize("n_features", [2, 3, 7])
def test_blocks_of_orthogonal_features_by_simulation(n_features):
    x, y = POINTS[0]
    blocks = -(-n_features // 3)
    w = Gaussian(1.0).sample(3 * blocks * 40_000, 3, 20 + n_features, orthogonal=True).reshape(40_000, -1, 3)[:, :n_features]
    for name, function, variance, covariance in functions(x, y):
        estimates = function(w).mean(axis=1)
        mean = np.exp(-0.5 * np.sum(np.subtract(x, y) ** 2)) if name == "fourier" else np.exp(np.dot(x, y))
        square = (estimates - mean) ** 2
        # 15 z-tests at 4.5 errors, skew ones for the heavy-tailed positive features: false alarm about 1e-3 for all
        assert abs(square.mean() - mean_variance(variance, covariance, n_features, 3)) < 4.5 * square.std() / 200, name
        if name in ("fourier", "trigonometric", "optimal"):  # independent features are rejected
            assert abs(square.mean() - mean_variance(variance, 0.0, n_features, 3)) > 4.5 * square.std() / 200, name


def test_haar_sign_and_norms_matter():
    """Directions orthogonal but of fixed norm sqrt(dim) are another law: the test above would see it."""
    delta = np.array([1.1, 0.4, -0.8])
    w = Gaussian(1.0).sample(90_000, 3, 5, orthogonal=True)
    fixed = w / np.linalg.norm(w, axis=1, keepdims=True) * np.sqrt(3)
    for omega, right in ((w, True), (fixed, False)):
        square = (np.cos(omega.reshape(-1, 3, 3) @ delta).mean(1) - Gaussian(1.0).kernel(delta)) ** 2
        predicted = mean_variance(fourier_variance(delta, Gaussian(1.0)), orthogonal_fourier_covariance(delta), 3, 3)
        # z at 4.5 errors: false alarm 7e-6
        assert bool(abs(square.mean() - predicted) < 4.5 * square.std() / np.sqrt(len(square))) is right


@pytest.mark.parametrize("dim", [2, 5, 16])
def test_performer_bound_holds_and_is_nearly_sharp_for_small_points(dim):
    rng = np.random.default_rng(dim)
    x, y = rng.standard_normal((2, 30, dim)) * 0.5
    exact = mean_variance(positive_variance(x, y), orthogonal_positive_covariance(x, y), dim, dim)
    bound = orthogonal_positive_bound(x, y, dim)
    assert (exact <= bound * (1 + 1e-12)).all()
    assert (bound < positive_variance(x, y) / dim).all()
    tiny = 0.05 * x, 0.05 * y
    gap = positive_variance(*tiny) / dim - mean_variance(positive_variance(*tiny), orthogonal_positive_covariance(*tiny), dim, dim)
    np.testing.assert_allclose(positive_variance(*tiny) / dim - orthogonal_positive_bound(*tiny, dim), gap, rtol=0.05)


@pytest.mark.parametrize("orthogonal", [False, True])
def test_error_of_a_gram_matrix_by_simulation(orthogonal):
    x, pair = np.random.default_rng(12).standard_normal((9, 3)), Gaussian(1.2)
    exact = pair.kernel(x[:, None] - x)
    w = pair.sample(6 * 4000, 3, 13, orthogonal=orthogonal).reshape(4000, 6, 3) @ x.T
    grams = (np.einsum("rmi,rmj->rij", np.cos(w), np.cos(w)) + np.einsum("rmi,rmj->rij", np.sin(w), np.sin(w))) / 6
    errors = np.mean((grams - exact) ** 2, axis=(1, 2))
    # z at 4.5 errors: false alarm 7e-6; the other kind of features is rejected
    slack = 4.5 * errors.std() / np.sqrt(len(errors))
    assert abs(errors.mean() - gram_error(x, pair, 6, orthogonal=orthogonal)) < slack
    assert abs(errors.mean() - gram_error(x, pair, 6, orthogonal=not orthogonal)) > slack


def test_mean_variance_counts_pairs_within_blocks():
    v, c = 2.0, -0.3
    assert mean_variance(v, c, 1, 4) == pytest.approx(v)
    assert mean_variance(v, c, 4, 4) == pytest.approx((4 * v + 12 * c) / 16)
    assert mean_variance(v, c, 11, 4) == pytest.approx((11 * v + (2 * 12 + 6) * c) / 121)


@pytest.mark.parametrize(("x", "y"), POINTS)
def test_optimal_parameter_is_the_best_and_zero_gives_positive_features(x, y):
    moment = float(np.sum(np.add(x, y) ** 2))
    best = optimal_positive_parameter(moment, len(x))
    assert best < 0
    values = [float(optimal_positive_variance(x, y, best + step)) for step in (-1e-3, 0.0, 1e-3)]
    assert values[1] < min(values[0], values[2])
    assert optimal_positive_variance(x, y, 0.0) == pytest.approx(float(positive_variance(x, y)), rel=1e-14)
    rho = (np.sqrt((2 * moment + len(x)) ** 2 + 8 * len(x) * moment) - 2 * moment - len(x)) / (4 * moment)
    assert best == pytest.approx((1 - 1 / rho) / 8, rel=1e-10)
    assert optimal_positive_parameter(0.0, 3) == 0.0


@pytest.mark.parametrize("kind", ["positive", "hyperbolic", "trigonometric"])
def test_attention_error_by_delta_method(kind):
    rng, n = np.random.default_rng(1), 400
    q, k, v = rng.standard_normal(3) * 0.5, rng.standard_normal((6, 3)) * 0.5, rng.standard_normal((6, 2))
    w = rng.standard_normal((6000, n, 3))
    front = np.exp(-0.5 * (q @ q + np.sum(k**2, 1)))
    feature = {
        "positive": lambda: np.mean([front * np.exp(part @ (q + k).T) for part in w], axis=1),
        "hyperbolic": lambda: np.mean([front * np.cosh(part @ (q + k).T) for part in w], axis=1),
        "trigonometric": lambda: np.mean([np.cos(part @ (q - k).T) / front for part in w], axis=1),
    }[kind]()
    output = feature @ v / feature.sum(1, keepdims=True)
    exact = np.exp(k @ q) @ v / np.exp(k @ q).sum()
    predicted = attention_error(q, k, v, n, kind=kind)
    error = (output - exact) ** 2
    # the next order is 1/n = 0.25 % relatively, times a number of order 5; statistical error 2 %: 4.5 errors plus 3 %
    assert (np.abs(error.mean(0) - predicted.variance) < 4.5 * error.std(0) / np.sqrt(6000) + 0.03 * predicted.variance).all()
    assert (np.abs(error.mean(0) - 1.25 * predicted.variance) > 4.5 * error.std(0) / np.sqrt(6000) + 0.03 * predicted.variance).all()
    slack = 4.5 * output.std(0) / np.sqrt(6000) + 0.05 * np.abs(predicted.bias)
    assert (np.abs(output.mean(0) - exact - predicted.bias) < slack).all()


def test_attention_error_agrees_with_the_single_feature_variances():
    q, k = np.array([0.3, -0.2, 0.5]), np.array([[0.1, 0.4, 0.2], [-0.3, 0.2, 0.6]])
    for kind, variance in (("positive", positive_variance), ("hyperbolic", hyperbolic_variance), ("trigonometric", trigonometric_variance)):
        np.testing.assert_allclose(np.diag(_relative_covariance(q, k, kind)), variance(q, k) / np.exp(2 * k @ q), rtol=1e-12)


@pytest.mark.parametrize("dim", [1, 2])
def test_yaglom_variance(dim):
    rng = np.random.default_rng(30 + dim)
    root = rng.standard_normal((2 * dim, 2 * dim)) * 0.8
    pair = GaussianPair(rng.standard_normal(2 * dim), root @ root.T)
    x, y = rng.standard_normal((2, dim))
    if dim == 1:
        mapped = gaussian_moments(lambda z: np.array([yaglom_kernel(x, y, w[None]) for w in pair.mean + z @ root.T]), 2, n=70)
        assert mapped == pytest.approx((float(pair.kernel(x, y)), float(yaglom_variance(x, y, pair))), rel=1e-7)
    values = np.array([yaglom_kernel(x, y, w[None]) for w in pair.sample(20_000, rng)])
    square = (values - pair.kernel(x, y)) ** 2
    # z at 4.5 errors: false alarm 7e-6
    assert abs(square.mean() - yaglom_variance(x, y, pair)) < 4.5 * square.std() / np.sqrt(20_000)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fourier_variance([0.1], "gaussian"), "pair must be a SpectralPair such as Gaussian(1.0), got 'gaussian'"),
        (lambda: positive_variance([1.0, 2.0], [1.0, 2.0, 3.0]), "x and y must have the same dim"),
        (lambda: hyperbolic_variance(1.0, 2.0), "x must have a last axis"),
        (lambda: optimal_positive_variance([1.0], [1.0], 0.125), "a must be under 1/8"),
        (lambda: optimal_positive_variance([1.0], [1.0], -np.inf), "a must be under 1/8"),
        (lambda: optimal_positive_parameter(-1.0, 3), "second_moment must be"),
        (lambda: orthogonal_fourier_covariance([0.4]), "orthogonal frequencies need dim of at least 2, got 1"),
        (lambda: orthogonal_fourier_covariance([0.4, 0.1], length=0), "length must be"),
        (lambda: orthogonal_trigonometric_covariance([30.0, 0.1], [0.1, 0.2]), "|x|^2 + |y|^2 must be under 700"),
        (lambda: orthogonal_positive_bound([0.4, 0.1], [0.1, 0.2], 3), "n_features must be at most dim = 2, got 3"),
        (lambda: mean_variance(1.0, 0.0, 0, 3), "n_features must be"),
        (lambda: gram_error(np.ones((2, 2)), Laplace(1.0), 3, orthogonal=True), "pair must be Gaussian for orthogonal features"),
        (lambda: gram_error(np.ones(2), Laplace(1.0), 3), "x must have shape (n, dim) with n and dim at least 1, got (2,)"),
        (lambda: attention_error([0.1], [[0.1, 0.2]], [[1.0]], 3), "q, k, v must have shapes"),
        (lambda: attention_error([0.1], [[0.1]], [[1.0]], 3, kind="relu"), "kind must be"),
        (lambda: yaglom_variance([0.1], [0.2], Gaussian(1.0)), "pair must be a GaussianPair"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value)


def test_where_variances_leave_the_floats():
    big = np.array([40.0, 0.0])
    for function in (trigonometric_variance, orthogonal_trigonometric_covariance):
        with pytest.raises(ValueError, match="under 700"):
            function(big, big)
        assert function(np.zeros((0, 2)), np.zeros((0, 2))).shape == (0,)
    with pytest.raises(ValueError, match="q and k must be small enough"):
        attention_error(big, [big, -big], [[1.0], [2.0]], 10)
    with pytest.raises(ValueError, match="with n and dim at least 1, got"):
        gram_error(np.zeros((0, 2)), Gaussian(), 3)
    assert optimal_positive_parameter(1e200, 3) == pytest.approx(-1e200 / 12, rel=1e-12)
