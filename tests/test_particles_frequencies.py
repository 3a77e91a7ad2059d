"""Spectral pairs: sampled frequencies against the closed-form kernels; orthogonal blocks keep the law."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats

from particles.frequencies import sample_frequencies


def matern(r, smoothness, length):
    z = np.sqrt(2 * smoothness) * r / length
    return 2 ** (1 - smoothness) / special.gamma(smoothness) * z**smoothness * special.kv(smoothness, z)


KERNELS = {
    "gaussian": lambda delta, scale: np.exp(-((scale * delta) ** 2).sum() / 2),
    "laplace": lambda delta, scale: np.exp(-np.abs(scale * delta).sum()),
    "cauchy": lambda delta, scale: np.prod(1 / (1 + (scale * delta) ** 2)),
    "matern": lambda delta, scale: matern(np.linalg.norm(delta), 1.5, 1 / scale),
}


def z_score(omega, delta, expected):
    """(Monte-Carlo mean of cos(omega.delta) - expected) / its standard error."""
    values = np.cos(omega @ delta)
    return (values.mean() - expected) / (values.std() / np.sqrt(len(values)))


@pytest.mark.parametrize("law", KERNELS)
def test_mean_of_cosines_is_the_kernel(law):
    # 4 laws x 2 displacements at |z| < 4.5: false-alarm rate 5e-5 in all; the scale 30 % off must be rejected
    for delta in (np.array([0.7, -0.4, 0.3]), np.array([0.0, 0.9, 0.0])):
        omega = sample_frequencies(law, 200_000, 3, scale=1.3, rng=1)
        assert abs(z_score(omega, delta, KERNELS[law](delta, 1.3))) < 4.5
        assert abs(z_score(omega, delta, KERNELS[law](delta, 1.3 * 1.3))) > 4.5


def test_matern_values_of_the_reference_integral():
    # Matern 3/2, length .8, r = 1.1 in one dimension: (1 + z) e^-z = .3124753156
    assert matern(1.1, 1.5, 0.8) == pytest.approx(0.3124753156, abs=1e-10)
    omega = sample_frequencies("matern", 400_000, 1, scale=1 / 0.8, smoothness=1.5, rng=2)
    assert abs(z_score(omega, np.array([1.1]), 0.3124753156)) < 4.5
    half = sample_frequencies("matern", 400_000, 3, scale=2.0, smoothness=0.5, rng=3)  # the isotropic exponential kernel
    assert abs(z_score(half, np.array([0.3, 0.0, 0.4]), np.exp(-1.0))) < 4.5


@pytest.mark.parametrize(("law", "norms"), [("gaussian", stats.chi(4)), ("matern", None)])
def test_orthogonal_blocks_keep_the_law_of_norms_and_directions(law, norms):
    omega = sample_frequencies(law, 20_000, 4, scale=1.0, orthogonal=True, rng=4)
    gram = omega.reshape(-1, 4, 4) @ omega.reshape(-1, 4, 4).swapaxes(1, 2)
    off = gram * (1 - np.eye(4)) / np.sqrt(np.einsum("bii,bjj->bij", gram, gram))
    assert np.abs(off).max() < 1e-12
    radius = np.linalg.norm(omega, axis=1)
    # |w|^2 / dim of a multivariate t with 3 degrees of freedom is F(dim, 3); KS at 1e-5, and the wrong dimension is rejected
    if norms is None:
        assert stats.kstest(radius**2 / 4, stats.f(4, 3).cdf).pvalue > 1e-5
        assert stats.kstest(radius**2 / 4, stats.f(3, 3).cdf).pvalue < 1e-5
    else:
        assert stats.kstest(radius, norms.cdf).pvalue > 1e-5
        assert stats.kstest(radius, stats.chi(3).cdf).pvalue < 1e-5
    first = omega[::4, 0] / radius[::4]  # uniform on the sphere of R^4: (u + 1) / 2 ~ Beta(3/2, 3/2)
    assert stats.kstest((first + 1) / 2, stats.beta(1.5, 1.5).cdf).pvalue > 1e-5


def test_orthogonal_reduces_the_variance_of_the_gaussian_kernel():
    delta = np.full(8, 0.5)
    means = {
        orthogonal: [
            np.cos(sample_frequencies("gaussian", 8, 8, scale=1.0, orthogonal=orthogonal, rng=seed) @ delta).mean() for seed in range(400)
        ]
        for orthogonal in (False, True)
    }
    assert np.var(means[True]) < 0.7 * np.var(means[False])
    assert np.mean(means[True]) == pytest.approx(np.exp(-1.0), abs=0.03)


def test_partial_blocks_seeds_and_generators():
    omega = sample_frequencies("gaussian", 7, 3, scale=0.5, orthogonal=True, rng=5)
    assert omega.shape == (7, 3)
    assert omega.dtype == np.float64
    assert np.array_equal(omega, sample_frequencies("gaussian", 7, 3, scale=0.5, orthogonal=True, rng=np.random.default_rng(5)))
    assert not np.array_equal(omega, sample_frequencies("gaussian", 7, 3, scale=0.5, orthogonal=True, rng=6))
    assert sample_frequencies("gaussian", 3, 1, scale=1.0, orthogonal=True, rng=5).shape == (3, 1)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"law": "gauss"}, "law"),
        ({"n_particles": 0}, "n_particles"),
        ({"dim": 2.0}, "dim"),
        ({"scale": 0.0}, "scale"),
        ({"scale": float("nan")}, "scale"),
        ({"smoothness": -1.0}, "smoothness"),
        ({"law": "laplace", "orthogonal": True}, "orthogonal"),
        ({"law": "cauchy", "orthogonal": True}, "orthogonal"),
    ],
)
def test_bad_arguments_are_named(change, name):
    arguments = {"law": "gaussian", "n_particles": 4, "dim": 2, "scale": 1.0, "rng": 0} | change
    with pytest.raises(ValueError, match=name):
        sample_frequencies(**arguments)


@pytest.mark.parametrize("rng", ["x", 1.5, None, -1])
def test_only_a_seed_or_a_generator_is_a_source_of_numbers(rng):
    with pytest.raises(ValueError, match="rng"):
        sample_frequencies("gaussian", 3, 2, scale=1.0, rng=rng)
