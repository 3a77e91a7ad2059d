"""Energy distance, MMD and kernel errors against closed forms, characteristic functions and their own definitions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from theory.convergence import bootstrap_rate, discrepancy
from theory.convergence.discrepancy import energy_distance, kernel_error, mmd2, two_sample_test
from theory.spectral import Cauchy, Gaussian, Laplace


@pytest.mark.parametrize("shift", [0.0, 0.8])
def test_energy_distance_of_normals(shift):
    """2 E|X-Y| - E|X-X'| - E|Y-Y'| with the folded normal mean; unbiased over 200 repeats."""
    rng = np.random.default_rng(4)
    folded = 2 * np.exp(-(shift**2) / 4) / np.sqrt(np.pi) + shift * (1 - 2 * norm.cdf(-shift / np.sqrt(2)))
    exact = 2 * folded - 4 / np.sqrt(np.pi)
    draws = np.array([energy_distance(rng.normal(size=40), rng.normal(shift, size=60)) for _ in range(200)])
    error = draws.std(ddof=1) / np.sqrt(200)
    assert abs(draws.mean() - exact) < 4 * error  # false alarm 6e-5
    biased = energy_distance(rng.normal(size=40), rng.normal(shift, size=60), unbiased=False)
    assert biased >= 0
    assert abs(draws.mean() - exact - (1 / 40 + 1 / 60) * 2 / np.sqrt(np.pi)) > 4 * error  # the V-statistic's bias is seen


def test_energy_distance_in_two_dimensions_by_definition():
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=(7, 2)), rng.normal(size=(5, 2))

    def total(x, y):
        return sum(np.linalg.norm(p - q) for p in x for q in y)

    assert energy_distance(a, b) == pytest.approx(2 * total(a, b) / 35 - total(a, a) / 42 - total(b, b) / 20)
    assert energy_distance(a, b, unbiased=False) == pytest.approx(2 * total(a, b) / 35 - total(a, a) / 49 - total(b, b) / 25)
    assert energy_distance(a, a[::-1], unbiased=False) == pytest.approx(0, abs=1e-14)


@pytest.mark.parametrize(("dim", "length", "shift"), [(1, 0.7, 0.0), (2, 1.5, 0.8), (4, 2.0, 0.5)])
def test_mmd_of_normals_is_unbiased_for_its_closed_form(dim, length, shift):
    """X, Y normal, means `shift` apart in every coordinate. z-test at 4 over 200 repeats: false alarm 6e-5."""
    rng, total = np.random.default_rng(dim), length**2 + 2
    exact = 2 * (length**2 / total) ** (dim / 2) * (1 - np.exp(-dim * shift**2 / (2 * total)))
    a, b = rng.normal(size=(200, 25, dim)), rng.normal(shift, 1, size=(200, 40, dim))
    draws = np.array([mmd2(x, y, length) for x, y in zip(a, b)])
    error = draws.std(ddof=1) / np.sqrt(200)
    assert abs(draws.mean() - exact) < 4 * error
    biased = np.mean([mmd2(x, y, length, unbiased=False) for x, y in zip(a, b)])
    assert abs(biased - exact) > 4 * error  # negative control: the bias of the other form is seen
    assert biased == pytest.approx(exact + (1 / 25 + 1 / 40) * (1 - (length**2 / total) ** (dim / 2)), abs=4 * error)


@pytest.mark.parametrize("pair", [Gaussian(0.8), Cauchy(1.3)])
def test_mmd_by_the_spectral_density(pair):
    """The V-statistic is int |E exp(iwX) - E exp(iwY)|^2 density(w) dw."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=6), rng.normal(1, 1, size=4)

    def integrand(w, pair=pair):
        return abs(np.exp(1j * w * a).mean() - np.exp(1j * w * b).mean()) ** 2 * float(pair.density(np.array([w])))

    exact = 2 * quad(integrand, 0, 60, limit=400, epsabs=1e-13)[0]
    assert mmd2(a, b, pair, unbiased=False) == pytest.approx(exact, rel=1e-9)
    assert mmd2(a, b, Gaussian(0.9), unbiased=False) != pytest.approx(exact, rel=1e-3)


def test_kernels_of_every_kind_agree_and_blocks_change_nothing(monkeypatch):
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(13, 3)), rng.normal(size=(9, 3))

    def matrix(x, y):
        return np.exp(-np.abs(x[:, None] - y).sum(-1) / 0.6)

    whole = [mmd2(a, b, Laplace(0.6)), mmd2(a, b, matrix), two_sample_test(a, b, Laplace(0.6), n_permutations=19, rng=0)]
    assert whole[0] == pytest.approx(whole[1], rel=1e-12)
    assert whole[2].value == pytest.approx(whole[0], rel=1e-10)
    assert mmd2(a, b, Gaussian(1.1)) == pytest.approx(mmd2(a, b, 1.1), rel=1e-12)
    assert mmd2(a, b, lambda x, y: -np.linalg.norm(x[:, None] - y, axis=-1)) == pytest.approx(energy_distance(a, b), rel=1e-12)
    monkeypatch.setattr(discrepancy, "BLOCK", 40)
    assert mmd2(a, b, Laplace(0.6)) == pytest.approx(whole[0], rel=1e-12)
    assert two_sample_test(a, b, Laplace(0.6), n_permutations=19, rng=0) == pytest.approx(whole[2], rel=1e-10)
    assert energy_distance(a, b) == pytest.approx(two_sample_test(a, b, rng=0).value, rel=1e-12)


@pytest.mark.parametrize("kernel", ["energy", 1.0])
def test_permutation_test_keeps_its_level_and_sees_a_shift(kernel):
    """Exact at 19 relabellings: P(p <= 0.05) = 0.05; 400 repeats, binomial, 4 standard deviations: false alarm 6e-5."""
    rng = np.random.default_rng(2)
    null = [
        two_sample_test(rng.exponential(size=7), rng.exponential(size=9), kernel, n_permutations=19, rng=rng).p_value for _ in range(400)
    ]
    assert abs(np.mean(np.array(null) <= 0.05) - 0.05) < 4 * np.sqrt(0.05 * 0.95 / 400)
    assert min(null) == pytest.approx(0.05)
    apart = [two_sample_test(rng.normal(size=15), rng.normal(2, 1, 15), kernel, n_permutations=19, rng=rng).p_value for _ in range(40)]
    assert np.mean(np.array(apart) <= 0.05) > 0.9


def test_jackknife_error_is_the_definition_and_covers():
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=8), rng.normal(1, 2, size=6)
    without_a = np.array([mmd2(np.delete(a, i), b, 0.9) for i in range(8)])
    without_b = np.array([mmd2(a, np.delete(b, i), 0.9) for i in range(6)])
    error = np.sqrt(7 * without_a.var() + 5 * without_b.var())
    assert two_sample_test(a, b, 0.9, n_permutations=1, rng=0).error == pytest.approx(error, rel=1e-10)
    for shift, low, high in ((1.5, 0.85, 1.3), (0.0, 1.0, 2.6)):  # where laws are equal it overstates the variance, by 2 in the limit
        runs = [two_sample_test(rng.normal(size=40), rng.normal(shift, 1, 40), 1.0, n_permutations=1, rng=0) for _ in range(300)]
        assert low < np.mean([run.error**2 for run in runs]) / np.var([run.value for run in runs]) < high


def test_kernel_error_of_independent_frequencies():
    """E (K_n - k)^2 = ((1 + k(2 delta))/2 - k(delta)^2)/n; z-test at 4 over 200 clouds: false alarm 6e-5."""
    rng, pair, n = np.random.default_rng(4), Gaussian(0.8), 50
    x = rng.normal(size=(6, 3))
    delta = x[:, None] - x
    exact = np.mean((1 + pair.kernel(2 * delta)) / 2 - pair.kernel(delta) ** 2) / n
    runs = [kernel_error(rng.normal(size=(n, 3)) / 0.8, pair, x) for _ in range(200)]
    squares = np.array([run.rms**2 for run in runs])
    assert abs(squares.mean() - exact) < 4 * squares.std(ddof=1) / np.sqrt(200)
    assert all(run.sup >= run.rms for run in runs)
    wrong = np.array([kernel_error(rng.normal(size=(n, 3)) / 0.8, Gaussian(0.7), x).rms ** 2 for _ in range(200)])
    assert abs(wrong.mean() - exact) > 4 * wrong.std(ddof=1) / np.sqrt(200)  # negative control: another length


def test_kernel_error_falls_with_the_root_of_the_number():
    rng, n, x = np.random.default_rng(6), np.array([20, 80, 320, 1280]), np.random.default_rng(7).normal(size=(8, 2))
    error = [[kernel_error(rng.normal(size=(k, 2)), 1.0, x).rms for _ in range(40)] for k in n]
    rate = bootstrap_rate(n, error, power=2, level=0.9999, rng=rng)
    assert rate.low < -0.5 < rate.high
    assert not rate.low < -1 < rate.high  # negative control
    assert rate.high - rate.low < 0.3


def test_kernel_error_between_clouds_by_definition(monkeypatch):
    rng = np.random.default_rng(5)
    mu, nu, x = rng.normal(size=(11, 2)), rng.normal(size=(7, 2)), rng.normal(size=(4, 2))
    gap = np.array([[np.cos(mu @ (p - q)).mean() - np.cos(nu @ (p - q)).mean() for p in x] for q in x])
    exact = (np.abs(gap).max(), np.sqrt(np.mean(gap**2)))
    assert kernel_error(mu, nu, x) == pytest.approx(exact, rel=1e-12)
    monkeypatch.setattr(discrepancy, "BLOCK", 12)
    assert kernel_error(mu, nu, x) == pytest.approx(exact, rel=1e-12)

    def positive_features(x, omega):
        return np.exp(x @ omega.T - 0.5 * np.sum(x**2, axis=1)[:, None])

    gram = [positive_features(x, w) @ positive_features(x, w).T / len(w) for w in (mu, nu)]
    assert kernel_error(mu, nu, x, feature=positive_features).sup == pytest.approx(np.abs(gram[0] - gram[1]).max(), rel=1e-12)
    assert kernel_error(mu, mu[::-1], x).sup < 1e-14


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: energy_distance([[1.0]], [[1.0], [2.0]]), "two points"),
        (lambda: energy_distance(np.ones((3, 2)), np.ones((3, 1))), "same dim"),
        (lambda: mmd2([1.0], [1.0, 2.0], 1.0), "two points"),
        (lambda: mmd2([1.0, 2.0], [1.0, 2.0], -1.0), "kernel must be finite and positive"),
        (lambda: mmd2([1.0, 2.0], [1.0, 2.0], "rbf"), "kernel must be a length"),
        (lambda: mmd2([1.0, 2.0], [1.0, 2.0], lambda x, y: np.ones(3)), "must return a matrix"),
        (lambda: mmd2([1.0, 2.0], [1.0, 2.0], lambda x, y: np.full((len(x), len(y)), np.inf)), "kernel must be finite"),
        (lambda: two_sample_test([1.0, 2.0], [1.0, 2.0, 3.0], rng=0), "three points"),
        (lambda: two_sample_test([1.0, 2, 3], [1.0, 2.0, 3.0], n_permutations=0, rng=0), "n_permutations"),
        (lambda: kernel_error(np.ones((3, 2)), np.ones((3, 2)), np.ones((4, 3))), "mu must have the dim|nu must have the dim"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_tiny_lengths_tell_all_points_apart():
    assert mmd2([0.0, 1.0], [0.5, 2.0], 1e-200, unbiased=False) == pytest.approx(1.0)
