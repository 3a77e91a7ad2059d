"""Algorithm 2's last step: the energy of one particle, Gibbs weights, and draws by weight."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from scipy import stats

from particles import (
    Alignment,
    Ball,
    CentredAlignment,
    Energy,
    External,
    FullSpace,
    Langevin,
    Pair,
    Quadratic,
    QuadraticTarget,
    Riesz,
    gibbs_weights,
    particle_energies,
    resample,
    simulate,
)

RNG = np.random.default_rng(3)
X = RNG.normal(size=(25, 3))
Y = np.where(X[:, 0] * X[:, 1] > 0, 1, -1)
OMEGA = RNG.normal(size=(7, 3))
PAIRS = (
    Riesz(0, 0.7),
    Riesz("coulomb", 0.7, softening=0.1),
    Riesz(-1.3, 0.7, length=2.0),
    Riesz(0.5, 0.7, mirror=True),
    Riesz(1, 0.7, truncation=1.5),
    Riesz(1, 0.7, period=8.0),
    Riesz(1, 0.7, method="tree", tolerance=1e-9),
    Pair(lambda r: np.exp(-r), lambda r: -np.exp(-r), name="screened"),
)
EXTERNAL = (
    Quadratic([1.3, 0.4, 2.0], 0.2),
    Alignment(X, Y, "fourier", centre=False, scale=False),
    Alignment(X, Y, "softplus", batch_size=5),
    External(lambda w: np.sin(w).sum(-1), np.cos, name="waves"),
)


@pytest.mark.parametrize("energy", [*PAIRS, *EXTERNAL, EXTERNAL[0] + PAIRS[0] + EXTERNAL[1]], ids=lambda e: f"{e.term}-{e.describe()}"[:40])
def test_particle_energy_is_the_change_when_the_particle_comes_or_moves(energy):
    """H(omega_k) moves as N H_N does when particle k alone moves, and equals N H_N minus the rest for pair factors kept at 1/(N-1)."""
    local = particle_energies(OMEGA, energy)
    assert local.shape == (7,)
    assert local.dtype == np.float64
    for k in (0, 4):
        moved = OMEGA.copy()
        moved[k] += RNG.normal(size=3)
        change = 7 * (energy.value(moved) - energy.value(OMEGA))
        assert particle_energies(moved, energy)[k] - local[k] == pytest.approx(change, rel=1e-10, abs=1e-12)


def test_particle_energies_are_the_formula():
    """V_D(w_k) + strength/(N-1) sum_l g(w_k - w_l) written out; their sum counts every pair twice."""
    s, strength, stiffness = 1.0, 0.7, 1.3
    r = np.linalg.norm(OMEGA[:, None] - OMEGA, axis=-1)
    np.fill_diagonal(r, np.inf)
    phi = np.concatenate([np.cos(X @ OMEGA.T), np.sin(X @ OMEGA.T)])  # V_D averaged over the phase, without i = j
    yy = np.outer(Y, Y) - np.eye(25)
    potential = -sum(np.einsum("ij,ik,jk->k", yy, p, p) for p in (phi[:25], phi[25:])) / (25 * 24)
    expected = stiffness * (OMEGA**2).sum(-1) / 2 + potential + strength / 6 * (r**-s).sum(-1)
    parts = (Quadratic(stiffness), Alignment(X, Y, "fourier", centre=False, scale=False), Riesz(s, strength))
    energy = parts[0] + parts[1] + parts[2]
    np.testing.assert_allclose(particle_energies(OMEGA, energy), expected, rtol=1e-12)
    total = 7 * (energy.value(OMEGA) + parts[2].value(OMEGA))
    assert particle_energies(OMEGA, energy).sum() == pytest.approx(total, rel=1e-12)


def test_chains_blocks_float32_and_torch_agree(monkeypatch):
    torch = pytest.importorskip("torch")
    energy, omega = EXTERNAL[0] + EXTERNAL[1] + PAIRS[1], RNG.normal(size=(2, 7, 3))
    expected = np.stack([particle_energies(chain, energy) for chain in omega])
    monkeypatch.setattr(sys.modules["particles.resample"], "_SYSTEMS", 20)  # a row or two at a time
    np.testing.assert_allclose(particle_energies(omega, energy), expected, rtol=1e-13)
    tensor = particle_energies(torch.tensor(omega, requires_grad=True), energy)
    assert not tensor.requires_grad
    np.testing.assert_allclose(tensor.numpy(), expected, rtol=1e-11)
    weights = gibbs_weights(torch.tensor(omega), energy, 2.5)
    assert torch.is_tensor(weights)
    np.testing.assert_allclose(weights.numpy(), gibbs_weights(omega, energy, 2.5), rtol=1e-10)
    low = particle_energies(omega.astype(np.float32), energy)
    assert low.dtype == np.float64
    np.testing.assert_allclose(low, expected, rtol=1e-5)


def test_one_particle_has_no_pairs():
    assert particle_energies(OMEGA[:1], Quadratic(2.0) + PAIRS[0]) == pytest.approx((OMEGA[0] ** 2).sum())


@pytest.mark.parametrize("beta", [1e-3, 2.5, 1e4])
def test_gibbs_weights_are_the_softmax(beta):
    energy = Quadratic(1.0) + PAIRS[0]
    weights = gibbs_weights(OMEGA, energy, beta)
    logs = -beta * particle_energies(OMEGA, energy)
    np.testing.assert_allclose(weights, np.exp(logs - np.logaddexp.reduce(logs)), rtol=1e-9, atol=1e-300)
    assert weights.sum() == pytest.approx(1, abs=1e-15)
    order = RNG.permutation(7)
    np.testing.assert_allclose(gibbs_weights(OMEGA[order], energy, beta), weights[order], rtol=1e-12)


def test_weights_forget_constants_and_the_zero_temperature_limit_takes_the_lowest():
    class Shifted(Energy):
        term, bodies = "shifted", 1

        def _evaluate(self, omega, key, want_value):
            value, gradient = Quadratic(1.0)._evaluate(omega, key, want_value)
            return value + 1e6, gradient

    np.testing.assert_allclose(gibbs_weights(OMEGA, Shifted(), 3.0), gibbs_weights(OMEGA, Quadratic(1.0), 3.0), rtol=1e-8)
    ring = np.array([[1.0, 0], [0, 1], [0, -1], [2, 0]])
    np.testing.assert_array_equal(gibbs_weights(ring, Quadratic(1.0), math.inf), [1 / 3, 1 / 3, 1 / 3, 0])


def test_coincident_particles_have_no_weight():
    omega = np.array([[0.0, 0], [0, 0], [1, 0], [0, 2]])
    weights = gibbs_weights(omega, Riesz(0, 1.0), 2.0)
    assert weights[:2].tolist() == [0, 0]
    assert weights.sum() == pytest.approx(1)
    with pytest.raises(ValueError, match="energy must give each chain a particle of finite energy"):
        gibbs_weights(omega[:2], Riesz(1, 1.0), 2.0)
    assert gibbs_weights(omega, Riesz(1, 1.0, softening=0.1), 2.0)[:2].tolist() == pytest.approx([weights[0]] * 2, abs=0.01)


def chi_square(counts, expected):
    return stats.chisquare(counts, expected).pvalue


def test_multinomial_counts_follow_the_weights():
    """Chi-square of 20,000 draws, false-alarm rate 1e-4; weights 5 % away from the true ones are rejected."""
    weights = np.array([1.0, 2, 3, 4, 0, 5])
    _, index = resample(OMEGA[:6], 17.0 * weights, 20_000, 4, return_index=True)
    counts = np.bincount(index, minlength=6)
    assert counts[4] == 0
    used = weights > 0
    assert chi_square(counts[used], 20_000 * (weights / 15)[used]) > 1e-4
    wrong = np.array([1.3, 2, 3, 4, 5]) / 15.3
    assert chi_square(counts[used], 20_000 * wrong) < 1e-4


def test_systematic_counts_are_floor_or_ceiling_and_unbiased():
    """Over 3,000 seeds; z of the mean count, false-alarm rate 6e-5 a particle (|z| < 4); a 5 % wrong mean is rejected."""
    weights = np.array([0.11, 0.27, 0.0, 0.4, 0.22])
    counts = np.array(
        [np.bincount(resample(OMEGA[:5], weights, 7, s, method="systematic", return_index=True)[1], minlength=5) for s in range(3000)]
    )
    assert (counts >= np.floor(7 * weights)).all()
    assert (counts <= np.ceil(7 * weights)).all()
    error = counts.std(0) / np.sqrt(3000) + 1e-12
    assert (np.abs(counts.mean(0) - 7 * weights) < 4 * error).all()
    assert np.abs(counts[:, 3].mean() - 7 * 0.42) > 4 * error[3]


def test_equal_weights_come_once_each_by_systematic_draws():
    drawn, index = resample(OMEGA, np.full(7, 0.3), 7, 11, method="systematic", return_index=True)
    assert index.tolist() == list(range(7))
    assert np.array_equal(drawn, OMEGA)


@pytest.mark.parametrize("method", ["multinomial", "systematic"])
def test_chains_do_not_depend_on_each_other_and_seeds_matter(method):
    omega, weights = RNG.normal(size=(3, 7, 3)), RNG.random((3, 7))
    drawn, index = resample(omega, weights, 12, 5, method=method, return_index=True)
    assert drawn.shape == (3, 12, 3)
    for c in range(3):
        assert np.array_equal(drawn[c], omega[c, index[c]])
    assert np.array_equal(resample(omega[:1], weights[:1], 12, 5, method=method), drawn[:1])
    assert np.array_equal(resample(omega[0], weights[0], 12, 5, method=method), drawn[0])
    assert not np.array_equal(index[1], index[2])
    assert not np.array_equal(resample(omega, weights, 12, 6, method=method), drawn)
    rng = np.random.default_rng(0)
    assert not np.array_equal(resample(omega, weights, 12, rng, method=method), resample(omega, weights, 12, rng, method=method))


def test_type_dtype_and_inputs_are_kept():
    torch = pytest.importorskip("torch")
    omega, weights = OMEGA.astype(np.float32), np.arange(7)
    omega.flags.writeable = weights.flags.writeable = False
    drawn = resample(omega, weights, 5, 0)
    assert drawn.dtype == np.float32
    tensor = resample(torch.tensor(OMEGA).float(), torch.tensor(weights.copy()), 5, 0)
    assert tensor.dtype == torch.float32
    assert np.array_equal(tensor.numpy(), drawn)


@pytest.mark.parametrize("method", ["multinomial", "systematic"])
@pytest.mark.parametrize("weights", [[0, 0, 1e-308, 1e-310, 0], [1e308] * 4 + [0], [0, 1, 0, 0, 0], [1e-30, 1, 1e-30, 0, 0]])
def test_extreme_weights_never_draw_a_particle_of_weight_zero(method, weights):
    for seed in range(50):
        _, index = resample(OMEGA[:5], weights, 9, seed, method=method, return_index=True)
        assert (np.asarray(weights)[index] > 0).all()


def test_algorithm_2_end_to_end():
    """Particles far from equilibrium, reweighted: the resampled kernel agrees better with the labels than the particles' own."""
    energy = Alignment(X, Y, "fourier") + Riesz(0, 1e-3)
    run = simulate(Ball(3.0, 3).sample(60, 0), energy, Ball(3.0, 3), Langevin(0.05, 50.0), n_steps=20, rng=0)
    omega = run.omega[0, -1].to_numpy()
    chosen = resample(omega, gibbs_weights(omega, energy, 50.0), 20, 1)
    assert chosen.shape == (20, 3)
    assert {tuple(w) for w in chosen} <= {tuple(w) for w in omega}
    alignment = energy.energies[0]
    assert alignment.value(chosen) < alignment.value(omega) - 0.05
    uniform = resample(omega, np.ones(60), 20, 1)  # negative control: without the weights nothing is gained
    assert not alignment.value(uniform) < alignment.value(omega) - 0.05


def test_independent_particles_at_two_temperatures():
    """Without interaction, weights exp(-b V) turn draws at beta into draws at beta + b: the variance of a trapped cloud tells.

    40,000 particles, standard error of the variance ratio 0.7 % plus that of the weights: 4 % is over 4 sigma (rate below 1e-4).
    """
    beta, extra, stiffness = 2.0, 1.0, 1.5
    omega = RNG.normal(size=(40_000, 1)) / math.sqrt(beta * stiffness)
    weights = gibbs_weights(omega, Quadratic(stiffness), extra)
    for method in ("multinomial", "systematic"):
        drawn = resample(omega, weights, 40_000, 0, method=method)
        assert drawn.var() * stiffness * (beta + extra) == pytest.approx(1, abs=0.04)
        assert drawn.var() * stiffness * beta != pytest.approx(1, abs=0.04)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: gibbs_weights(OMEGA, Quadratic(1.0), 0.0), "beta must be positive, got 0.0"),
        (lambda: gibbs_weights(OMEGA, Quadratic(1.0), -math.inf), "beta must be finite"),
        (lambda: gibbs_weights(OMEGA, CentredAlignment(X, Y, "fourier") + Riesz(0, 1), 1.0), "energy must be a sum of external and pair"),
        (lambda: particle_energies(OMEGA, QuadraticTarget(X, Y, "fourier")), "energy must be a sum of external and pair"),
        (lambda: particle_energies(OMEGA, FullSpace(3)), "energy must be a sum of external and pair"),
        (lambda: particle_energies(OMEGA, Quadratic), "energy must be a sum of external and pair"),
        (lambda: resample(OMEGA, np.ones(6), 3, 0), r"weights must have shape \(7,\) for this omega, got \(6,\)"),
        (lambda: resample(OMEGA, np.ones((1, 7)), 3, 0), r"weights must have shape \(7,\)"),
        (lambda: resample(OMEGA, -np.ones(7), 3, 0), "weights must be at least 0"),
        (lambda: resample(OMEGA, np.zeros(7), 3, 0), "weights must be at least 0 and in no chain all 0"),
        (lambda: resample(OMEGA, [1, 2, 3, 4, 5, 6, np.inf], 3, 0), "weights must be finite"),
        (lambda: resample(OMEGA, np.ones(7), 0, 0), "n must be an integer of at least 1, got 0"),
        (lambda: resample(OMEGA, np.ones(7), 3, None), "rng must be"),
        (lambda: resample(OMEGA, np.ones(7), 3, 0, method="residual"), r"method must be one of \('multinomial', 'systematic'\)"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
