"""Spectral pairs by Fourier integrals, their laws of radius and coordinates, their samplers."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import kstest

from theory.spectral import Cauchy, Exponential, Gaussian, Isotropic, Laplace, Matern
from theory.spectral.stationary_kernels import hyp0f1

PAIRS = [Gaussian(0.7), Laplace(1.3), Cauchy(0.9), Exponential(0.6), Matern(0.8, nu=1.5), Matern(1.2, nu=2.5), Matern(0.9, nu=0.8)]
ISOTROPIC = [pair for pair in PAIRS if isinstance(pair, Isotropic)]


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
    assert pair.density(x) == pytest.approx(np.prod(pair.marginal().pdf(x)), rel=1e-14)


def test_known_values():
    assert float(Gaussian(1.0).kernel([1.7])) == pytest.approx(0.2357460766, abs=1e-10)
    assert float(Laplace(1.0).kernel([1.7])) == pytest.approx(0.1826835241, abs=1e-10)
    assert float(Matern(0.8, nu=1.5).kernel([1.1])) == pytest.approx(0.3124753156, abs=1e-10)
    assert float(Matern(0.8, nu=2.5).kernel([1.1, 0, 0])) == pytest.approx(0.33388, abs=1e-5)
    np.testing.assert_allclose(
        Matern(0.6, nu=0.5).kernel(np.linspace(0, 3, 7)[:, None]), Exponential(0.6).kernel(np.linspace(0, 3, 7)[:, None])
    )
    assert Matern(0.8, nu=40.0).kernel([0.5]) == pytest.approx(Gaussian(0.8).kernel([0.5]), abs=4e-3)


@pytest.mark.parametrize("nu", [0.5, 3.0, 40.5, 200.0, 900.0])
@pytest.mark.parametrize("r", [1e-6, 0.01, 0.8, 5.0])
def test_matern_of_any_smoothness_to_many_digits(nu, r):
    with mp.workdps(50):
        z = mp.sqrt(2 * mp.mpf(nu)) * mp.mpf(r) / mp.mpf(0.8)
        exact = 2 ** (1 - mp.mpf(nu)) / mp.gamma(nu) * z**nu * mp.besselk(nu, z)
    assert float(Matern(0.8, nu=nu).kernel([r])) == pytest.approx(float(exact), rel=3e-12)


@pytest.mark.parametrize("pair", ISOTROPIC, ids=repr)
@pytest.mark.parametrize("dim", [1, 2, 5])
def test_radius_and_marginal_are_those_of_the_density(pair, dim):
    area = {1: 2, 2: 2 * np.pi, 5: 8 * np.pi**2 / 3}[dim]

    def of_radius(r):
        return area * r ** (dim - 1) * float(pair.density([r] + [0] * (dim - 1)))

    r = 1.3
    assert pair.squared_norm(dim).cdf(r**2) == pytest.approx(quad(of_radius, 0, r)[0], rel=1e-9)
    assert pair.squared_norm(dim).ppf(pair.squared_norm(dim).cdf(r**2)) == pytest.approx(r**2, rel=1e-9)
    assert pair.marginal(dim).pdf(r) == pytest.approx(float(pair.density([r])), rel=1e-12)  # the projection has the same kernel
    for order in (0.0, -0.5, 0.7):
        # r = u / (1 - u) takes the tail to an end point
        exact = quad(lambda u, order=order: of_radius(u / (1 - u)) * (u / (1 - u)) ** order / (1 - u) ** 2, 0, 1, limit=400)[0]
        assert pair.moment(order, dim) == pytest.approx(exact, rel=1e-7)


def test_moments_diverge_where_the_law_is_heavy():
    assert Matern(0.8, nu=1.5).moment(3, 2) == np.inf
    assert Matern(0.8, nu=1.5).moment(2, 3) == pytest.approx(3 * 3 / 0.8**2)  # dim * dof / (dof - 2) / length^2
    assert Gaussian(0.5).moment(4, 3) == pytest.approx(15 / 0.5**4)


@pytest.mark.parametrize("pair", PAIRS, ids=repr)
def test_samples_follow_the_law(pair):
    dim, n = 3, 60_000
    w = pair.sample(n, dim, 1)
    # Kolmogorov-Smirnov at level 1e-5 each, 12 tests: false alarm 1.2e-4; a length 10 % wrong is rejected
    wrong = {"length": pair.length * 1.1} | ({"nu": pair.nu} if isinstance(pair, Matern) else {})
    for sample, law, other in [(w[:, 2], pair.marginal(dim).cdf, type(pair)(**wrong).marginal(dim).cdf)] + (
        [(np.sum(w**2, 1), pair.squared_norm(dim).cdf, type(pair)(**wrong).squared_norm(dim).cdf)] if isinstance(pair, Isotropic) else []
    ):
        assert kstest(sample, law).pvalue > 1e-5
        assert kstest(sample, other).pvalue < 1e-5


@pytest.mark.parametrize("pair", [Gaussian(0.7), Matern(0.8, nu=1.5)], ids=repr)
def test_orthogonal_samples_keep_their_law(pair):
    dim, n = 4, 20_002
    w = pair.sample(n, dim, 2, orthogonal=True)
    assert w.shape == (n, dim)
    blocks = w[: n - 2].reshape(-1, dim, dim)
    gram = blocks @ blocks.transpose(0, 2, 1)
    off = gram[:, ~np.eye(dim, dtype=bool)]
    assert np.abs(off).max() < 1e-10 * gram.max()
    # two Kolmogorov-Smirnov tests at 1e-5; the first row alone too, which a QR factor of unfixed sign would bias
    for sample in (w[:, 1], blocks[:, 0, 0]):
        assert kstest(sample, pair.marginal(dim).cdf).pvalue > 1e-5
    assert kstest(np.sum(w**2, 1), pair.squared_norm(dim).cdf).pvalue > 1e-5
    # norms within a block are independent: correlation of two at 4.5 standard errors, 7e-6
    norms = np.argsort(np.argsort(np.linalg.norm(blocks, axis=2), axis=0), axis=0)
    assert abs(np.corrcoef(norms[:, 0], norms[:, 1])[0, 1]) < 4.5 / np.sqrt(len(blocks))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Gaussian(0.0), "length must be finite and positive, got 0.0"),
        (lambda: Laplace(-1.0), "length must be finite and positive, got -1.0"),
        (lambda: Matern(1.0, nu=-1), "nu must be"),
        (lambda: Exponential(1.0, nu=1.5), "nu must be 1/2"),
        (lambda: Gaussian(1.0).kernel([np.nan]), "delta must be finite"),
        (lambda: Gaussian(1.0).kernel([1j]), "delta must hold real numbers"),
        (lambda: Gaussian(1.0).kernel([[1.0, 2.0], [1.0]]), "delta must be an array of numbers"),
        (lambda: Gaussian(1.0).kernel(1.0), "delta must have a last axis"),
        (lambda: Laplace(1.0).kernel(1.0), "delta must have a last axis"),
        (lambda: Cauchy(1.0).density(1.0), "omega must have a last axis"),
        (lambda: Gaussian(1.0).sample(0, 2, 1), "n must be"),
        (lambda: Gaussian(1.0).sample(2, 2, -1), "rng must be"),
        (lambda: Laplace(1.0).sample(2, 0, 1), "dim must be"),
        (lambda: Gaussian(1.0).moment(-2.0, 2), "order must be finite and over -dim = -2"),
        (lambda: Gaussian(1.0).squared_norm(0), "dim must be"),
        (lambda: Isotropic(1.0).squared_norm(1), "Isotropic has no squared_norm"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value)


def test_integer_and_read_only_input():
    x = np.arange(6).reshape(3, 2)
    x.flags.writeable = False
    assert Gaussian(1.0).kernel(x).shape == (3,)


@pytest.mark.parametrize("length", [1e-200, 1e200])
@pytest.mark.parametrize("kind", [Gaussian, Laplace, Cauchy, Exponential, Matern])
def test_only_the_ratio_to_the_length_counts(kind, length):
    """Squares of lengths leave the floats long before lengths do; densities in dim 1 scale with the length."""
    assert float(kind(length).kernel([0.7 * length])) == pytest.approx(float(kind(1.0).kernel([0.7])), rel=1e-12)
    assert float(kind(length).density([0.7 / length])) == pytest.approx(length * float(kind(1.0).density([0.7])), rel=1e-12)


def test_densities_in_many_dimensions_do_not_overflow_on_the_way():
    omega = np.full(200, 1e-2)
    exact = np.sum(Gaussian(100.0).marginal().logpdf(omega))
    assert np.log(float(Gaussian(100.0).density(omega))) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("kind", [np.int64, np.float32, int])
def test_parameters_may_be_any_kind_of_number(kind):
    assert Gaussian(kind(2)).squared_norm(3).mean() == pytest.approx(0.75)
    assert Matern(kind(2), nu=kind(3)).moment(2, 3) == pytest.approx(Matern(2.0, nu=3.0).moment(2, 3))


@pytest.mark.parametrize("b", [0.5, 5.0, 101.0, 130.0, 151.0, 200.0, 2000.0])
def test_bessel_series_of_every_order(b):
    x = np.array([0.0, 1e-300, 1e-6, 1e-3, 0.1, 1.0, 10.0, 100.0])
    exact = [float(mp.hyp0f1(b, -mp.mpf(point))) for point in x]
    np.testing.assert_allclose(hyp0f1(b, -x), exact, rtol=0, atol=1e-12)


def test_orders_whose_logarithms_cancel_are_refused():
    """At the largest order a forty-digit Bessel function still agrees."""
    nu, z = 1e4, 0.5
    with mp.workdps(40):
        w = mp.sqrt(2 * nu) * z
        exact = 2 ** (1 - mp.mpf(nu)) / mp.gamma(nu) * w**nu * mp.besselk(nu, w)
    assert float(Matern(1.0, nu=nu).kernel([z])) == pytest.approx(float(exact), rel=2e-11)
    with pytest.raises(ValueError, match="nu must be at most 10000, got 20000"):
        Matern(1.0, nu=2e4)
