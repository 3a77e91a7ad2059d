"""Marchenko-Pastur, the nonlinear random-feature law and the random Fourier Gram matrix: identities, special cases, simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad

from theory.spectral.gram import effective_dimension
from theory.spectral.random_matrices import MarchenkoPastur, PenningtonWorah, fourier_gram

RATIOS = [0.25, 1.0, 3.0]


def mean_of(law, function):
    """Integral over the continuous part; x = middle - half cos(a) takes the square roots out of both ends."""
    low, high = law.edges
    half = (high - low) / 2

    def part(a):
        x = low + half * (1 - np.cos(a))
        return function(x) * float(law.density(x)) * half * np.sin(a)

    return quad(part, 0, np.pi, epsabs=1e-12)[0]


@pytest.mark.parametrize("ratio", RATIOS)
def test_marchenko_pastur_moments(ratio):
    law = MarchenkoPastur(ratio)
    assert mean_of(law, lambda x: 1.0) == pytest.approx(1 - law.atom, abs=1e-7)
    assert [mean_of(law, lambda x, k=k: x**k) for k in (1, 2, 3)] == pytest.approx([1, 1 + ratio, 1 + 3 * ratio + ratio**2], rel=1e-7)
    assert [law.moment(k) for k in (1, 2, 3)] == pytest.approx([1, 1 + ratio, 1 + 3 * ratio + ratio**2], rel=1e-14)


@pytest.mark.parametrize("ratio", RATIOS)
def test_marchenko_pastur_cdf_and_quantile(ratio):
    law = MarchenkoPastur(ratio)
    low, high = law.edges
    assert law.cdf([-1.0, low, high, high + 1]) == pytest.approx([0.0, law.atom, 1.0, 1.0], abs=1e-15)
    for x in (low + 0.1, 1.2, high - 0.2):
        slope = (law.cdf(x + 1e-5) - law.cdf(x - 1e-5)) / 2e-5
        assert slope == pytest.approx(float(law.density(x)), rel=1e-7)
    u = np.linspace(law.atom, 1, 9)[1:-1]
    assert law.cdf(law.quantile(u)) == pytest.approx(u, abs=1e-13)
    assert law.quantile([0.0, 1.0]) == pytest.approx([0.0 if law.atom else low, high])


@pytest.mark.parametrize("ratio", RATIOS)
def test_marchenko_pastur_stieltjes(ratio):
    law = MarchenkoPastur(ratio)
    for z in (-0.7 + 0j, 0.4 + 0.8j, 1.5 - 0.3j, law.edges[1] + 1.0 + 0j):
        exact = mean_of(law, lambda x, z=z: (1 / (x - z)).real) + 1j * mean_of(law, lambda x, z=z: (1 / (x - z)).imag) - law.atom / z
        assert complex(law.stieltjes(z)) == pytest.approx(exact, abs=1e-7)
    x = np.linspace(*law.edges, 7)[1:-1]
    np.testing.assert_allclose(law.stieltjes(x + 1e-12j).imag / np.pi, law.density(x), rtol=1e-6)


def test_marchenko_pastur_describes_a_random_gram_matrix():
    z = np.random.default_rng(0).standard_normal((300, 1200))
    values = np.linalg.eigvalsh(z @ z.T / 1200)
    # linear statistics of a Gaussian Gram matrix fluctuate by O(1/n): 3 % is over 10 standard deviations
    law, wrong = MarchenkoPastur(0.25), MarchenkoPastur(0.3)
    assert np.mean(values**2) == pytest.approx(law.moment(2), rel=0.03)
    assert np.mean(values**2) != pytest.approx(wrong.moment(2), rel=0.03)
    assert law.edges[0] - 0.03 < values[0] < law.edges[0] + 0.03
    assert distance(law, values) < 0.01 < distance(wrong, values)


def distance(law, values):
    """Kolmogorov distance of the law and the eigenvalues (number n), which are rigid: O(log n / n), not n^(-1/2)."""
    steps = (np.arange(len(values)) + 0.5) / len(values)
    inside = values > 1e-9
    return np.max(np.abs(law.cdf(values) - steps)[inside])


ACTIVATIONS = {
    "tanh": (np.tanh, 1.0),
    "relu": (lambda z: np.maximum(z, 0.0), 1.3),
    "cos": (np.cos, 0.9),
    "favor": (np.exp, 0.5),
    "shifted cosine": (lambda z: np.cos(z + 0.7), 1.2),
}


def eigenvalues(f, sigma, n0, n1, m, seed):
    rng = np.random.default_rng(seed)
    y = f(rng.standard_normal((n1, n0)) @ rng.standard_normal((n0, m)) * sigma / np.sqrt(n0))
    node, weight = np.polynomial.hermite_e.hermegauss(120)
    y = y - weight @ f(sigma * node) / weight.sum() if f is not ACTIVATIONS["relu"][0] else y - sigma / np.sqrt(2 * np.pi)
    return np.linalg.eigvalsh(y @ y.T / m)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_nonlinear_law_describes_simulated_features(name):
    f, sigma = ACTIVATIONS[name]
    law = PenningtonWorah.of(f, 0.5, 0.8, sigma=sigma)
    wrong = PenningtonWorah(law.eta, (0.3 if law.zeta > 0.5 * law.eta else 0.9) * law.eta, 0.5, 0.8)
    sizes = (64, 512)
    found = [np.mean([distance(law, eigenvalues(f, sigma, m // 2, m * 5 // 8, m, s)) for s in range(3)]) for m in sizes]
    # the distance falls with the size; at m = 512 it is under 0.02, and a wrong share of the linear part is over twice as far
    assert found[1] < 0.5 * found[0]
    assert found[1] < 0.02
    assert distance(wrong, eigenvalues(f, sigma, 256, 320, 512, 9)) > 2 * found[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_nonlinear_law_at_three_sizes(name):
    f, sigma = ACTIVATIONS[name]
    law = PenningtonWorah.of(f, 1.6, 0.8, sigma=sigma)  # more units than points: an atom
    found = [np.mean([distance(law, eigenvalues(f, sigma, m * 8 // 5, 2 * m, m, s)) for s in range(4)]) for m in (40, 160, 640)]
    assert found[0] > 2 * found[1] > 4 * found[2]


@pytest.mark.parametrize(("phi", "psi"), [(0.5, 0.8), (1.6, 0.8), (0.3, 2.5)])
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_nonlinear_law_agrees_with_itself(phi, psi, share):
    """Mass, three moments and the Stieltjes transform of the density; the edge; series and quartic are separate computations."""
    law = PenningtonWorah(1.3, share * 1.3, phi, psi)
    angle = (np.arange(4000) + 0.5) * np.pi / 2 / 4000
    x = law.edge * np.sin(angle) ** 2
    p = law.density(x) * law.edge * np.sin(2 * angle) * np.pi / 2 / 4000
    assert p.sum() == pytest.approx(1 - law.atom, abs=3e-4)
    assert [p @ x**k for k in (1, 2, 3)] == pytest.approx([law.moment(k) for k in (1, 2, 3)], rel=2e-4)
    z = 0.6 + 0.4j
    assert complex(law.stieltjes(z)) == pytest.approx(np.sum(p / (x - z)) - law.atom / z, abs=3e-4)
    assert law.density([law.edge * 1.001])[0] < 1e-8 < law.density([law.edge * 0.999])[0]
    assert law.cdf([-0.1, law.edge]) == pytest.approx([0.0, 1.0])


def test_no_linear_part_is_marchenko_pastur():
    law, simple = PenningtonWorah(1.3, 0.0, 0.5, 0.8), MarchenkoPastur(0.5 / 0.8)
    x = np.linspace(0.03, 4, 30)
    np.testing.assert_allclose(law.density(x), simple.density(x / 1.3) / 1.3, atol=1e-10)
    assert [law.moment(k) for k in (1, 2, 5)] == pytest.approx([1.3**k * simple.moment(k) for k in (1, 2, 5)], rel=1e-12)
    assert law.edge == pytest.approx(1.3 * simple.edges[1], rel=1e-12)


def test_linear_features_are_a_product_of_two_wisharts():
    """Freeness of W^T W and X X^T gives the second moment 1 + n1/n0 + n1/m; and simulation."""
    law = PenningtonWorah(1.0, 1.0, 0.5, 0.8)
    assert law.atom == pytest.approx(0.2)
    assert law.moment(2) == pytest.approx(1 + 1 / 0.8 + 0.5 / 0.8, rel=1e-12)
    values = np.mean([eigenvalues(lambda z: z, 1.0, 256, 320, 512, s)[:, None] ** [1, 2, 3] for s in range(4)], axis=(0, 1))
    assert values == pytest.approx([law.moment(k) for k in (1, 2, 3)], rel=0.02)


def test_constants_of_activations():
    relu = PenningtonWorah.of(lambda z: np.maximum(z, 0), 1.0, 1.0, sigma=1.7)
    assert relu.eta == pytest.approx(1.7**2 * (0.5 - 1 / (2 * np.pi)), rel=1e-12)
    assert relu.zeta == pytest.approx((1.7 / 2) ** 2, rel=1e-12)
    cosine = PenningtonWorah.of(lambda z: np.cos(z + 0.4), 1.0, 1.0, sigma=0.9)
    mean, s = np.exp(-0.405) * np.cos(0.4), 0.9
    assert cosine.eta == pytest.approx((1 + np.exp(-2 * s**2) * np.cos(0.8)) / 2 - mean**2, rel=1e-11)
    assert cosine.zeta == pytest.approx((s * np.exp(-(s**2) / 2) * np.sin(0.4)) ** 2, rel=1e-11)
    favor = PenningtonWorah.of(np.exp, 1.0, 1.0, sigma=0.6)
    assert favor.eta == pytest.approx(np.exp(2 * 0.36) - np.exp(0.36), rel=1e-11)
    assert favor.zeta == pytest.approx(0.36 * np.exp(0.36), rel=1e-11)
    sign = PenningtonWorah.of(lambda z: np.sign(z - 0.5), 1.0, 1.0, kinks=(0.5,))
    assert sign.zeta == pytest.approx(4 * np.exp(-0.25) / (2 * np.pi), rel=1e-11)


def fourier_errors(n, seed, ridge=0.08, length=1.3):
    """Relative errors of the effective dimension and of a quadratic form against simulation: the equivalent's, the kernel's own."""
    rng, m, dim = np.random.default_rng(seed), n // 3, n // 12
    x = rng.standard_normal((n, dim)) * 2 / np.sqrt(dim)
    labels, identity = np.sin(x[:, 0]), np.eye(n)

    def one():
        w = rng.standard_normal((m, dim)) / length
        phi = np.hstack([np.cos(x @ w.T), np.sin(x @ w.T)]) / np.sqrt(m)
        inverse = np.linalg.inv(phi @ phi.T + ridge * identity)
        return n - ridge * np.trace(inverse), labels @ inverse @ labels

    found = np.mean([one() for _ in range(2400 // n)], axis=0)
    kernel = np.exp(-0.5 * np.sum((x[:, None] - x) ** 2, -1) / length**2)
    resolvents = fourier_gram(x, m, ridge, length=length).resolvent, np.linalg.inv(kernel + ridge * identity)
    return [np.abs(np.array([n - ridge * np.trace(r), labels @ r @ labels]) / found - 1) for r in resolvents]


def test_fourier_gram_matrix_against_simulation():
    """Points, frequencies and dimension grow together: the equivalent gets better (measured 7, 3, 1 %), the kernel does not."""
    errors = [fourier_errors(n, 1) for n in (60, 240)]
    assert (errors[1][0] < 0.6 * errors[0][0]).all()
    assert errors[1][0][0] < 0.02
    assert errors[1][1][0] > 0.4


def test_fourier_gram_matrix_tends_to_the_kernels():
    x = np.random.default_rng(2).standard_normal((40, 5))
    kernel = np.exp(-0.5 * np.sum((x[:, None] - x) ** 2, -1))
    limit = fourier_gram(x, 10**7, 0.1)
    assert limit.effective_dimension == pytest.approx(effective_dimension(kernel, 0.1), rel=1e-5)
    assert limit.delta_cos < 1e-5
    few = fourier_gram(x, 8, 0.1)
    identity = few.resolvent @ np.linalg.inv(few.resolvent)
    np.testing.assert_allclose(identity, np.eye(40), atol=1e-9)
    assert few.effective_dimension < 16 < limit.effective_dimension  # at most the number of features


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: MarchenkoPastur("a"), "ratio must be a real number, got 'a'"),
        (lambda: MarchenkoPastur(1.0).moment(0), "order must be an integer of at least 1"),
        (lambda: MarchenkoPastur(1.0).quantile([1.2]), "u must be in [0, 1]"),
        (lambda: MarchenkoPastur(1.0).stieltjes(np.nan), "z must be finite"),
        (lambda: PenningtonWorah(1.0, 1.2, 1.0, 1.0), "zeta must be in [0, eta] = [0, 1.0], got 1.2"),
        (lambda: PenningtonWorah(1.0, 0.2, 0.0, 1.0), "phi must be"),
        (lambda: PenningtonWorah(1.0, 0.2, 1.0, 1.0).density([0.0]), "x must be positive"),
        (lambda: PenningtonWorah(1.0, 0.2, 1.0, 1.0).stieltjes(1.0), "z must be in the upper half plane"),
        (lambda: PenningtonWorah.of(np.tanh, 1.0, 1.0, sigma=0.0), "sigma must be"),
        (lambda: PenningtonWorah.of(3, 1.0, 1.0), "f must be a callable, got 3"),
        (lambda: fourier_gram([1.0], 3, 0.1), "x must have shape (n, dim) with n and dim at least 1, got (1,)"),
        (lambda: fourier_gram([[1.0]], 3, 0.0), "ridge must be"),
        (lambda: fourier_gram([[1.0], [0.2]], 3, 0.1, n_iterations=1), "tol must be reachable"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value)


def test_marchenko_pastur_of_few_rows_is_a_semicircle():
    """To first order in sqrt(ratio); the terms of the cdf cancel by a factor of the ratio."""
    law, c = MarchenkoPastur(1e-12), np.array([-0.7, 0.0, 0.4])
    semicircle = 0.5 + (c * np.sqrt(1 - c**2) + np.arcsin(c)) / np.pi
    np.testing.assert_allclose(law.cdf(1 + 2e-6 * c), semicircle, atol=1e-6)


@pytest.mark.parametrize("ratio", [0.4, 1.0, 2.5])
def test_stieltjes_transform_far_away_and_near_zero(ratio):
    law = MarchenkoPastur(ratio)
    for z in (-1e9, 1e12, 1e9j):
        assert -z * law.stieltjes(z) - 1 == pytest.approx(1 / z, rel=1e-6, abs=2e-16)
    near = law.stieltjes(-1e-9)
    assert near == pytest.approx(1 / (1 - ratio) if ratio < 1 else (1e9 * law.atom if ratio > 1 else 1e9**0.5), rel=1e-4)
    if ratio >= 1:
        with pytest.raises(ValueError, match="z must be off the spectrum, got 0"):
            law.stieltjes([1.0, 0.0])


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_nonlinear_density_near_a_hard_edge(scale):
    """Square matrices: the density rises like x^(-1/2) at 0, whatever the unit of the eigenvalues."""
    law, x = PenningtonWorah(scale, 0.5 * scale, 1.0, 1.0), np.geomspace(1e-14, 1e-9, 11)
    np.testing.assert_allclose(np.diff(np.log(law.density(x * scale))) / np.diff(np.log(x)), -0.5, atol=1e-3)


@pytest.mark.parametrize("psi", [1.0, 0.4])
def test_without_linear_part_the_cdf_is_marchenko_pastur(psi):
    x = np.geomspace(1e-9, 9, 200)
    np.testing.assert_allclose(PenningtonWorah(1.0, 0.0, 1.0, psi).cdf(x), MarchenkoPastur(1 / psi).cdf(x), atol=1e-5)
