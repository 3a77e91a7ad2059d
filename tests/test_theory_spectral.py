"""Spectral pairs by Fourier integrals, feature variances by Gauss-Hermite quadrature, Gram spectra."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad

from theory.feature_variance import fourier_variance, hyperbolic_variance, phase_variance, positive_variance, trigonometric_variance
from theory.gram import effective_rank, feature_rank
from theory.random_matrices import MarchenkoPastur
from theory.spectral import Cauchy, Exponential, Gaussian, Laplace, Matern

PAIRS = [Gaussian(0.7), Laplace(1.3), Cauchy(0.9), Exponential(0.6), Matern(0.8, nu=1.5), Matern(1.2, nu=2.5), Matern(0.9, nu=0.8)]


@pytest.mark.parametrize("pair", PAIRS, ids=repr)
@pytest.mark.parametrize("delta", [0.0, 0.35, 1.7])
def test_kernel_is_the_cosine_transform_of_the_density(pair, delta):
    def density(w):
        return float(pair.density([w]))

    options = {"weight": "cos", "wvar": delta} if delta else {}
    half = quad(density, 0, np.inf, limit=400, **options)[0]
    assert 2 * half == pytest.approx(float(pair.kernel([delta])), abs=2e-7)


@pytest.mark.parametrize("pair", [Gaussian(0.7), Exponential(0.6), Matern(0.8, nu=2.5)], ids=repr)
def test_isotropic_pairs_in_three_dimensions(pair):
    r = 1.1
    half = quad(lambda w: 4 * np.pi * w / r * float(pair.density([w, 0, 0])), 0, np.inf, weight="sin", wvar=r, limit=400)[0]
    assert half == pytest.approx(float(pair.kernel([0, r, 0])), abs=1e-7)


@pytest.mark.parametrize("pair", [Laplace(1.3), Cauchy(0.9)], ids=repr)
def test_product_pairs_factorise(pair):
    x = np.array([0.3, -1.2, 0.8])
    assert pair.kernel(x) == pytest.approx(np.prod([pair.kernel([c]) for c in x]), rel=1e-14)
    assert pair.density(x) == pytest.approx(np.prod([pair.density([c]) for c in x]), rel=1e-14)


def test_known_values():
    assert float(Gaussian(1.0).kernel([1.7])) == pytest.approx(0.2357460766, abs=1e-10)
    assert float(Laplace(1.0).kernel([1.7])) == pytest.approx(0.1826835241, abs=1e-10)
    assert float(Matern(0.8, nu=1.5).kernel([1.1])) == pytest.approx(0.3124753156, abs=1e-10)
    assert float(Matern(0.8, nu=2.5).kernel([1.1, 0, 0])) == pytest.approx(0.33388, abs=1e-5)
    np.testing.assert_allclose(
        Matern(0.6, nu=0.5).kernel(np.linspace(0, 3, 7)[:, None]), Exponential(0.6).kernel(np.linspace(0, 3, 7)[:, None])
    )
    assert Matern(0.8, nu=40.0).kernel([0.5]) == pytest.approx(Gaussian(0.8).kernel([0.5]), abs=4e-3)


def gaussian_moments(function, dim, n=60):
    """Mean and variance of function(w), w ~ N(0, I), by a product Gauss-Hermite rule."""
    node, weight = np.polynomial.hermite_e.hermegauss(n)
    w = np.stack(np.meshgrid(*[node] * dim, indexing="ij"), -1).reshape(-1, dim)
    p = np.prod(np.stack(np.meshgrid(*[weight] * dim, indexing="ij"), -1).reshape(-1, dim), 1) / (2 * np.pi) ** (dim / 2)
    values = function(w)
    return p @ values, p @ values**2 - (p @ values) ** 2


@pytest.mark.parametrize(("x", "y"), [([0.3, -0.2, 0.5], [0.1, 0.4, 0.2]), ([0.6, -0.7], [-0.2, 0.5])])
def test_feature_variances(x, y):
    x, y = np.array(x), np.array(y)
    norms = np.exp(-(x @ x + y @ y) / 2)
    cases = [
        (lambda w: np.cos(w @ (x - y)), Gaussian(1.0).kernel(x - y), fourier_variance(x - y, Gaussian(1.0))),
        (lambda w: norms * np.exp(w @ (x + y)), np.exp(x @ y), positive_variance(x, y)),
        (lambda w: norms * np.cosh(w @ (x + y)), np.exp(x @ y), hyperbolic_variance(x, y)),
        (lambda w: np.cos(w @ (x - y)) / norms, np.exp(x @ y), trigonometric_variance(x, y)),
    ]
    for function, mean, variance in cases:
        assert gaussian_moments(function, len(x)) == pytest.approx((float(mean), float(variance)), rel=1e-9)


def test_phase_variance_adds_one_half_for_any_kernel():
    delta, total, rng = np.array([0.4, -0.9]), np.array([0.7, 0.2]), np.random.default_rng(3)
    b = (np.arange(64) + 0.5) * 2 * np.pi / 64
    w = rng.standard_cauchy((200_000, 2)) / 1.3
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


@pytest.mark.parametrize("ratio", [0.25, 1.0, 3.0])
def test_marchenko_pastur_moments(ratio):
    law = MarchenkoPastur(ratio)
    low, high = law.edges

    def moment(k):  # x = middle + half cos(a) takes the square roots out of both ends
        half = (high - low) / 2
        return quad(lambda a: (x := low + half * (1 - np.cos(a))) ** k * float(law.density(x)) * half * np.sin(a), 0, np.pi)[0]

    assert moment(0) == pytest.approx(1 - law.atom, abs=1e-7)
    assert [moment(k) for k in (1, 2, 3)] == pytest.approx([1, 1 + ratio, 1 + 3 * ratio + ratio**2], rel=1e-7)
    assert [law.moment(k) for k in (1, 2, 3)] == pytest.approx([1, 1 + ratio, 1 + 3 * ratio + ratio**2], rel=1e-14)


def test_marchenko_pastur_describes_a_random_gram_matrix():
    z = np.random.default_rng(0).standard_normal((300, 1200))
    values = np.linalg.eigvalsh(z @ z.T / 1200)
    # linear statistics of a Gaussian Gram matrix fluctuate by O(1/n): 3 % is over 10 standard deviations
    law, wrong = MarchenkoPastur(0.25), MarchenkoPastur(0.3)
    assert np.mean(values**2) == pytest.approx(law.moment(2), rel=0.03)
    assert np.mean(values**2) != pytest.approx(wrong.moment(2), rel=0.03)
    assert law.edges[0] - 0.03 < values[0] < law.edges[0] + 0.03


def test_effective_rank():
    assert effective_rank(np.eye(7)) == pytest.approx(7)
    assert effective_rank(np.ones((5, 5))) == pytest.approx(1)
    p = np.array([0.75, 0.25])
    assert effective_rank(np.diag([3.0, 1.0, 0.0])) == pytest.approx(np.exp(-np.sum(p * np.log(p))))
    phi = np.random.default_rng(1).standard_normal((9, 4))
    assert feature_rank(phi) == pytest.approx(effective_rank(phi @ phi.T)) == pytest.approx(feature_rank(phi.T))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Gaussian(0.0), "length must be finite and positive, got 0.0"),
        (lambda: Matern(1.0, nu=-1), "nu must be"),
        (lambda: MarchenkoPastur("a"), "ratio must be a real number, got 'a'"),
        (lambda: Gaussian(1.0).kernel([np.nan]), "delta must be finite"),
        (lambda: Gaussian(1.0).kernel([1j]), "delta must hold real numbers"),
        (lambda: Gaussian(1.0).kernel([[1.0, 2.0], [1.0]]), "delta must be an array of numbers"),
        (lambda: Gaussian(1.0).kernel(1.0), "delta must have a last axis"),
        (lambda: Laplace(1.0).kernel(1.0), "delta must have a last axis"),
        (lambda: Cauchy(1.0).density(1.0), "omega must have a last axis"),
        (lambda: fourier_variance([0.1], "gaussian"), "pair must be a SpectralPair.*'gaussian'"),
        (lambda: positive_variance([1.0, 2.0], [1.0, 2.0, 3.0]), "x and y must have the same dim"),
        (lambda: hyperbolic_variance(1.0, 2.0), "x must have a last axis"),
        (lambda: effective_rank(np.zeros((0, 0))), "gram must be a symmetric"),
        (lambda: effective_rank([[1.0, 2.0], [0.0, 1.0]]), "gram must be a symmetric"),
        (lambda: effective_rank(-np.eye(2)), "positive semi-definite"),
        (lambda: feature_rank([1.0]), "phi must have shape"),
        (lambda: MarchenkoPastur(1.0).moment(0), "order must be an integer of at least 1"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        call()


def test_integer_and_read_only_input():
    x = np.arange(6).reshape(3, 2)
    x.flags.writeable = False
    assert Gaussian(1.0).kernel(x).shape == (3,)
