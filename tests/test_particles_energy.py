"""Energies: gradients against finite differences of the public value, closed forms, exact identities, bad input."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr

from particles import naive
from particles.alignment import Alignment, CentredAlignment, QuadraticTarget
from particles.callables import External, Pair
from particles.energy import Energy, Quadratic, Sum
from particles.features import Elu, Softplus, as_feature
from particles.riesz import Riesz
from particles.targets import target_factor

FEATURES = ["fourier", "phase", "nonstationary", "positive", "softplus", "elu", "softmax"]
EXTRA = [Softplus(0.7, 0.1, True), Elu(0.5, 0.3), Elu(1.3, 0.1, True)]
X = np.random.default_rng(0).normal(size=(9, 3))
CLASSES = np.array(list("abcabcabc"))
BINARY = np.array([0, 1, 1, 0, 1, 0, 0, 1, 1])
GROUPS = np.array([4, 4, 7, 4, 7, 1, 7, 4, 1])
TARGET = np.cov(np.random.default_rng(1).normal(size=(9, 4)))


def particles(*shape, seed=2):
    return np.random.default_rng(seed).normal(size=shape)


def check(energy, omega, h=1e-4):
    """value, value_and_grad, gradient, torch, autograd and finite differences of the value tell one story."""
    value, (terms, gradient) = np.asarray(energy.value(omega)), energy.value_and_grad(omega)
    assert value.shape == omega.shape[:-2]
    assert gradient.shape == omega.shape
    np.testing.assert_allclose(sum(terms.values()), value, rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(energy.gradient(omega), gradient)
    numerical = omega.shape[-2] * naive.numerical_gradient(lambda w: float(np.sum(energy.value(w))), omega, h)
    size = np.abs(numerical).max()
    assert np.abs(gradient - numerical).max() <= 1e-7 * size + 1e-10
    tensor = torch.tensor(omega, requires_grad=True)
    torch_value, (_, torch_gradient) = energy.value(tensor), energy.value_and_grad(tensor)
    torch_value.sum().backward()
    np.testing.assert_allclose(torch_value.detach().numpy(), value, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(torch_gradient.numpy(), gradient, atol=1e-12 * size + 1e-15)
    np.testing.assert_allclose(omega.shape[-2] * tensor.grad.numpy(), gradient, atol=1e-11 * size + 1e-14)


def data_energies(feature):
    linear = [] if feature.many_body else [Alignment(X, CLASSES, feature), Alignment(X, BINARY, feature, groups=GROUPS)]
    return [
        *linear,
        QuadraticTarget(X, CLASSES, feature),
        QuadraticTarget(X, TARGET, feature),
        QuadraticTarget(X, CLASSES, feature, groups=GROUPS),
        QuadraticTarget(X, TARGET, feature, groups=GROUPS),
        CentredAlignment(X, CLASSES, feature),
    ]


@pytest.mark.parametrize("feature", [*map(as_feature, FEATURES), *EXTRA], ids=repr)
@pytest.mark.parametrize("shape", [(5,), (2, 3), (1,)], ids=str)
def test_gradients_of_data_energies(feature, shape):
    omega = particles(*shape, feature.particle_dim(3))
    for energy in data_energies(feature):
        if isinstance(energy, CentredAlignment) and feature.many_body and shape == (1,):
            continue  # one normalised feature is constant: no kernel left after centring
        check(energy, omega)


def test_one_particle_feels_no_pair_energy():
    for s in (0, 1, -1, "coulomb"):
        for omega in (particles(1, 3), torch.tensor(particles(2, 1, 3))):
            terms, gradient = Riesz(s, 2.0, mirror=True).value_and_grad(omega)
            assert not np.asarray(terms["riesz"]).any()
            assert not np.asarray(gradient).any()


def test_the_hamiltonian_is_the_papers():
    """(2.2) and (A.7) by loops, with the paper's labels (not centred, not scaled)."""
    y, omega = 2.0 * BINARY - 1, particles(4, 4)
    energy = Alignment(X, y, "phase", centre=False, scale=False) + Riesz(0, 0.3)
    assert float(energy.value(omega)) == pytest.approx(naive.hamiltonian("phase", X, y, omega, 0, 0.3), rel=1e-12)
    np.testing.assert_allclose(energy.gradient(omega), naive.drift("phase", X, y, omega, 0, 0.3), atol=1e-10)


def test_exact_off_diagonal_form_of_lemma_3():
    """The paper's (B.7) differs; the phase average (B.9) with its constant is exact and equals the mean over a grid of phases."""
    x, y, w = particles(7, 3, seed=5), np.array([1.0, -1, -1, 1, 1, -1, 1]), particles(5, 3, seed=6)
    energy = Alignment(x, y, "phase", centre=False, scale=False)
    grid = [np.column_stack([w, np.full(5, b)]) for b in 2 * np.pi * np.arange(16) / 16]
    for omega in grid[:3]:
        assert float(energy.value(omega)) == pytest.approx(naive.lemma_3_energy(x, y, omega), rel=1e-12)
        assert float(energy.value(omega)) == pytest.approx(-naive.kernel_target_alignment("phase", x, y, omega), rel=1e-11)
    mean = float(np.mean(energy.value(np.stack(grid))))
    assert mean == pytest.approx(naive.lemma_3_phase_average(x, y, w), rel=1e-12)
    pair = float(Alignment(x, y, "fourier", centre=False, scale=False).value(w))  # cos and sin: the phase average without phases
    assert pair == pytest.approx(mean, rel=1e-12)


def test_alignment_potential_has_its_closed_form():
    """x | y ~ N(y mu, I), equal classes: V(w) = -exp(-|w|^2) sin^2(w.mu). By Gauss-Hermite quadrature as weighted data: exact, no sampling.

    For n independent rows E of the off-diagonal sum is |E y exp(i w.x)|^2, which the quadrature gives.
    """
    mu, w = 1.2, np.array([[0.4], [0.8128482], [1.7]])
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum() / 2
    x, y = np.concatenate([mu + nodes, -mu + nodes]), np.repeat([1.0, -1.0], 40)
    phi = as_feature("fourier")(x[:, None], w)
    exact = -(np.einsum("i,icn->cn", np.concatenate([weights, weights]) * y, phi) ** 2)
    np.testing.assert_allclose(exact.sum(0), -np.exp(-(w[:, 0] ** 2)) * np.sin(w[:, 0] * mu) ** 2, rtol=1e-12)
    assert exact.sum(0)[1] == pytest.approx(-0.3540347, abs=1e-6)
    rng = np.random.default_rng(7)  # the energy on a large sample agrees within its error: 5 standard errors, false alarm 1e-6 a point
    labels = rng.choice([-1.0, 1.0], 200_000)
    sample = labels[:, None] * mu + rng.normal(size=(200_000, 1))
    energy = Alignment(sample, labels, "fourier", centre=False, scale=False)
    measured = np.array([float(energy.value(w[[k]])) for k in range(3)])
    assert np.abs(measured - exact.sum(0)).max() < 5 * 2 / math.sqrt(200_000)
    assert np.abs(measured[0] + np.exp(-(0.48**2)) * np.sin(0.48 * mu) ** 2) > 5 * 2 / math.sqrt(200_000)  # control: another w


def hermite_points(n, strength, stiffness):
    """C1.1: zeros of the Hermite polynomial H_n times sqrt(strength/(stiffness (n-1)))."""
    return math.sqrt(strength / (stiffness * (n - 1))) * np.polynomial.hermite.hermgauss(n)[0][:, None]


@pytest.mark.parametrize("n", [5, 23, 64])
def test_hermite_ground_state(n):
    """Stieltjes: the minimiser of the trapped log gas on the line and its energy, exactly, at any parameters."""
    for strength, stiffness in ((0.7, 1.3), (2.5, 0.4)):
        omega, energy = hermite_points(n, strength, stiffness), Quadratic(stiffness) + Riesz(0, strength)
        pairs = n * (n - 1) / 2
        logs = sum(j * math.log(j) for j in range(1, n + 1)) - pairs * math.log(2) + pairs * math.log(strength / (stiffness * (n - 1)))
        assert float(energy.value(omega)) == pytest.approx(strength / 4 - strength / (4 * pairs) * logs, rel=1e-12)
        assert np.abs(energy.gradient(omega)).max() < 1e-12 * n
        assert (omega**2).mean() == pytest.approx(strength / (2 * stiffness), rel=1e-12)


def test_ground_state_values_of_the_oracle():
    for n, value in ((5, 0.3274304122), (16, 0.4212782520), (64, 0.4676089607)):
        assert float((Quadratic(1.3) + Riesz(0, 0.7)).value(hermite_points(n, 0.7, 1.3))) == pytest.approx(value, abs=1e-10)


def test_roots_of_unity_and_hard_wall_line():
    """C1.4: sum over ordered pairs of -log|z_k - z_l| = -N log N. C1.3: +-1 and the zeros of P'_(N-1) feel no force inside."""
    angle = 2 * np.pi * np.arange(12) / 12
    circle = np.column_stack([np.cos(angle), np.sin(angle)])
    assert float(Riesz(0, 2 * 12 * 11).value(circle)) == pytest.approx(-12 * math.log(12), rel=1e-12)
    line = np.concatenate([[-1.0], np.polynomial.legendre.Legendre.basis(5).deriv().roots(), [1.0]])[:, None]
    gradient = Riesz(0, 5.0).gradient(line)[:, 0]
    assert np.abs(gradient[1:-1]).max() < 1e-11
    np.testing.assert_allclose(gradient[[0, -1]], [7.5, -7.5], rtol=1e-11)


@pytest.mark.parametrize("s", [0, 0.5, 1, 2.5, -0.5, -1.7, 3.3, "coulomb"])
@pytest.mark.parametrize("dim", [1, 2, 3, 7])
def test_virial_identity_for_any_configuration(s, dim):
    """C2.6: (1/N) sum_k x_k . F_k = |s| (strength/2) mean pair |.|^-s, or strength/2 for the logarithm."""
    omega, energy = particles(11, dim, seed=8), Riesz(s, 0.7)
    exponent = energy.exponent(dim)
    virial = -(omega * energy.gradient(omega)).sum() / 11
    expected = 0.35 if exponent == 0 else abs(exponent) * abs(float(energy.value(omega)))
    assert virial == pytest.approx(expected, rel=1e-12)
    soft = Riesz(0, 0.7, softening=0.3)
    gaps2 = ((omega[:, None] - omega) ** 2).sum(-1)[np.triu_indices(11, 1)]
    expected = 0.35 * np.mean(gaps2 / (gaps2 + 0.09))
    assert -(omega * soft.gradient(omega)).sum() / 11 == pytest.approx(expected, rel=1e-12)


def test_two_particles_and_the_normalisation():
    """Distance 1, s = 1: W_2 = 1/(2*2*1) * 2 = 1/2. Distance 2, log: g = -log 2, force repulsive."""
    assert float(Riesz(1, 1.0).value(np.array([[0.0], [1.0]]))) == 0.5
    terms, gradient = Riesz(0, 1.0).value_and_grad(np.array([[0.0, 0.0], [2.0, 0.0]]))
    assert float(terms["riesz"]) == pytest.approx(-0.5 * math.log(2))
    np.testing.assert_allclose(-gradient, [[-0.5, 0], [0.5, 0]])
    assert float(Riesz("coulomb", 1.0).value(np.array([[0.0, 0, 0], [0, 0, 4.0]]))) == pytest.approx(0.125)
    assert Riesz("coulomb", 1.0).exponent(64) == 62


def test_coincident_particles_are_counted_and_cost_infinity():
    omega = np.zeros((2, 3, 2))
    omega[:, 2] = [1, 0]
    omega[1, 1] = [0, 1]
    energy = Riesz(1, 1.0) + Quadratic(1.0)
    terms, gradient = energy.value_and_grad(omega)
    assert np.isposinf(terms["riesz"][0])
    assert np.isfinite(terms["riesz"][1])
    assert np.isfinite(gradient).all()
    diagnostics = energy.diagnostics(omega)
    np.testing.assert_array_equal(diagnostics["coincident"], [1, 0])
    np.testing.assert_allclose(diagnostics["min_gap"], [0, 1])
    assert Quadratic(1.0).diagnostics(omega) == {}


def test_alignment_is_the_mean_over_same_group_pairs():
    factor, omega = target_factor(CLASSES), particles(4, 3)
    target, kernel = factor @ factor.T, as_feature("fourier").kernel(X, X, omega)
    assert np.linalg.eigvalsh(target)[-1] == pytest.approx(9)
    assert np.abs(target.sum(0)).max() < 1e-12
    same = (GROUPS[:, None] == GROUPS) & ~np.eye(9, dtype=bool)
    assert float(Alignment(X, CLASSES, "fourier", groups=GROUPS).value(omega)) == pytest.approx(-(target * kernel)[same].mean(), rel=1e-12)
    off = ~np.eye(9, dtype=bool)
    assert float(Alignment(X, CLASSES, "fourier").value(omega)) == pytest.approx(-(target * kernel)[off].mean(), rel=1e-12)


def test_quadratic_target_and_cka_equal_their_matrices():
    factor, omega = target_factor(CLASSES), particles(4, 3)
    centre = np.eye(9) - 1 / 9
    target, kernel = factor @ factor.T, centre @ as_feature("fourier").kernel(X, X, omega) @ centre
    same = GROUPS[:, None] == GROUPS
    for matrix, given in ((target, CLASSES), (TARGET, TARGET)):
        square = (matrix - kernel) ** 2
        assert float(QuadraticTarget(X, given, "fourier").value(omega)) == pytest.approx(square.mean() / 2, rel=1e-12)
        assert float(QuadraticTarget(X, given, "fourier", groups=GROUPS).value(omega)) == pytest.approx(square[same].mean() / 2, rel=1e-12)
    cka = (target * kernel).sum() / np.linalg.norm(target) / np.linalg.norm(kernel)
    assert float(CentredAlignment(X, CLASSES, "fourier").value(omega)) == pytest.approx(-cka, rel=1e-12)


def test_both_forms_of_the_quadratic_target_agree():
    """More rows than features: sums over features; fewer: over rows."""
    rng = np.random.default_rng(9)
    x, y = rng.normal(size=(60, 3)), rng.integers(0, 3, 60)
    factor = target_factor(y)
    for n in (4, 90):
        omega = particles(n, 3)
        fast, slow = QuadraticTarget(x, y, "fourier"), QuadraticTarget(x, factor @ factor.T, "fourier")
        assert float(fast.value(omega)) == pytest.approx(float(slow.value(omega)), rel=1e-12)
        np.testing.assert_allclose(fast.gradient(omega), slow.gradient(omega), atol=1e-13)


def test_labels_of_any_kind():
    binary = target_factor(BINARY)
    for y in (BINARY > 0, np.where(BINARY > 0, "yes", "no"), BINARY * 2.0 - 1, (BINARY * 2 - 1).tolist(), torch.tensor(BINARY)):
        np.testing.assert_allclose(target_factor(y), binary)
    assert binary.shape == (9, 1)
    assert binary.std() == pytest.approx(1)
    np.testing.assert_array_equal(target_factor(BINARY, centre=False, scale=False)[:, 0], 2.0 * BINARY - 1)
    assert target_factor(np.arange(9) % 4).shape == (9, 4)
    assert target_factor(np.linspace(0, 1, 9)).shape == (9, 1)
    np.testing.assert_array_equal(target_factor(TARGET[:, :2], centre=False, scale=False), TARGET[:, :2])


def test_data_from_tables_and_tensors():
    """pandas, xarray, torch and lists say the same as arrays; nothing is written to."""
    omega, x = particles(4, 3), X.copy()
    x.flags.writeable = False
    names = np.where(BINARY > 0, "yes", "no")
    for make in (Alignment, QuadraticTarget, CentredAlignment):
        expected = float(make(X, BINARY, "fourier").value(omega))
        for rows, labels in (
            (pd.DataFrame(x), pd.Series(names)),
            (pd.DataFrame(x), pd.Categorical(names)),
            (xr.DataArray(x), xr.DataArray(BINARY)),
            (x.tolist(), BINARY.tolist()),
            (torch.tensor(X), torch.tensor(BINARY)),
        ):
            assert float(make(rows, labels, "fourier").value(xr.DataArray(omega))) == pytest.approx(expected, rel=1e-14)
    stiffness = torch.tensor([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(Quadratic(stiffness).gradient(pd.DataFrame(omega)), omega * [1.0, 2.0, 3.0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_input_types_and_layouts(dtype):
    energy = Alignment(X.astype(dtype), BINARY, "fourier") + Quadratic(0.1) + Riesz(1, 0.1) + QuadraticTarget(X, BINARY, "fourier")
    omega = particles(6, 6).astype(dtype)[::2, ::2]
    omega.flags.writeable = False
    before = omega.copy()
    terms, gradient = energy.value_and_grad(omega)
    assert gradient.dtype == dtype
    assert all(np.asarray(v).dtype == np.float64 for v in terms.values())
    exact = energy.gradient(before.astype(np.float64))
    np.testing.assert_allclose(gradient, exact, atol=2e-5 if dtype is np.float32 else 1e-13)
    np.testing.assert_array_equal(omega, before)
    tensor_gradient = energy.gradient(torch.tensor(before))
    assert tensor_gradient.dtype == (torch.float32 if dtype is np.float32 else torch.float64)
    whole = np.array([[0, 1, 2], [3, 1, 0]])
    np.testing.assert_allclose(energy.gradient(whole), energy.gradient(whole.astype(float)))


def test_terms_with_one_name_are_numbered():
    energy = Quadratic(1.0) + Riesz(0, 1.0) + (Quadratic(2.0) + Quadratic(3.0))
    terms, _ = energy.value_and_grad(particles(4, 2))
    assert list(terms) == ["quadratic", "riesz", "quadratic_2", "quadratic_3"]
    mixed = QuadraticTarget(X, BINARY, "fourier") + Quadratic(1.0)
    assert list(mixed.value_and_grad(particles(4, 3))[0]) == ["quadratic_target", "quadratic"]
    assert isinstance(energy, Sum)
    assert len(energy.energies) == 4


def test_chains_split_to_bound_memory_give_the_same(monkeypatch):
    omega = particles(5, 4, 3)
    energies = [Alignment(X, CLASSES, "fourier"), Alignment(X, CLASSES, "fourier", batch_size=4), QuadraticTarget(X, CLASSES, "softplus")]
    whole = [e.value_and_grad(omega, key=(3, 10, 7)) for e in energies]
    monkeypatch.setattr("particles.alignment._ELEMENTS", 150)
    for energy, (terms, gradient) in zip(energies, whole, strict=True):
        parts, part_gradient = energy.value_and_grad(omega, key=(3, 10, 7))
        np.testing.assert_allclose(part_gradient, gradient, rtol=1e-13)
        np.testing.assert_allclose(parts[energy.term], terms[energy.term], rtol=1e-13)


@pytest.mark.parametrize("groups", [None, GROUPS])
def test_minibatch_is_keyed_and_unbiased(groups):
    """Mean over 4,000 keys within 5 standard errors of the full batch in every entry (false alarm 1e-5); a wrong normaliser is rejected."""
    size = 4 if groups is None else 2
    energy, omega = Alignment(X, CLASSES, "fourier", groups=groups, batch_size=size), particles(2, 3)
    full = Alignment(X, CLASSES, "fourier", groups=groups)
    assert energy.minibatched
    assert not full.minibatched
    assert float(energy.value(omega)) == float(full.value(omega))
    draws = [energy.value_and_grad(omega, key=(5, 0, step)) for step in range(4000)]
    for sample, exact in (
        (np.array([g for _, g in draws]), full.gradient(omega)),
        (np.array([t["alignment"] for t, _ in draws]), full.value(omega)),
    ):
        error = sample.std(0) / math.sqrt(len(sample))
        assert (np.abs(sample.mean(0) - exact) < 5 * error).all()
        assert (np.abs(1.3 * sample.mean(0) - exact) > 5 * error).any()
    again, other = energy.gradient(omega, key=(5, 0, 1)), energy.gradient(omega, key=(5, 0, 2))
    np.testing.assert_array_equal(again, draws[1][1])
    assert not np.array_equal(again, other)
    stack = np.stack([omega, omega, omega])
    gradient = energy.gradient(stack, key=(5, 3, 1))
    np.testing.assert_allclose(gradient[2], energy.gradient(omega, key=(5, 5, 1)), rtol=1e-13)
    assert not np.array_equal(gradient[0], gradient[1])
    np.testing.assert_allclose(energy.gradient(torch.tensor(stack), key=(5, 3, 1)).numpy(), gradient, atol=1e-14)
    for call in (energy.gradient, energy.value_and_grad, (energy + Quadratic(1.0)).gradient):
        with pytest.raises(ValueError, match="key"):
            call(omega)


def test_descriptions_are_json_and_tell_data_apart():
    energy = Alignment(X, BINARY, Softplus(0.5), batch_size=4) + Riesz(np.float32(1), 1) + Quadratic([1.0, 2.0, 3.0])
    described = json.loads(json.dumps(energy.describe()))
    assert [e["name"] for e in described["energies"]] == ["Alignment", "Riesz", "Quadratic"]
    riesz = {"s": 1.0, "strength": 1.0, "softening": 0.0, "length": 1.0, "mirror": False}
    assert described["energies"][1].items() >= {"name": "Riesz", **riesz}.items()
    assert described["energies"][0]["feature"] == {"name": "Softplus", "temperature": 0.5, "floor": 0.0, "renormalise": False}
    digests = {Alignment(x, y, "fourier").describe()["data"]["digest"] for x, y in ((X, BINARY), (X, 1 - BINARY), (-X, BINARY))}
    assert len(digests) == 3
    for other in (QuadraticTarget(X, TARGET, "fourier"), CentredAlignment(X, BINARY, "fourier")):
        assert json.loads(json.dumps(other.describe()))["name"] == type(other).__name__


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Riesz(-2, 1.0), "s must be a real number above -2 .0 is the log. or 'coulomb', got -2"),
        (lambda: Riesz("log", 1.0), "s must be a real number above -2 .0 is the log. or 'coulomb', got 'log'"),
        (lambda: Riesz(float("nan"), 1.0), "s must be finite"),
        (lambda: Riesz(1, -1.0), "strength.*-1"),
        (lambda: Riesz(1, 1.0, softening=-0.1), "softening"),
        (lambda: Riesz(1, 1.0, length=0), "length"),
        (lambda: Riesz(1, 1.0, mirror="yes"), "mirror.*'yes'"),
        (lambda: Quadratic(-1.0), "stiffness.*-1"),
        (lambda: Quadratic([[1.0]]), "stiffness.*shape"),
        (lambda: Quadratic([]), "stiffness.*shape"),
        (lambda: Quadratic("soft"), "stiffness must be a real number, got 'soft'"),
        (lambda: Alignment(X, BINARY, "fourier", centre="no"), "centre must be True or False, got 'no'"),
        (lambda: Alignment(X, BINARY, "fourier", scale=2.0), "scale must be True or False, got 2.0"),
        (lambda: Alignment(X, BINARY, "fourier", batch_size=4).gradient(X, key=(1, 2)), "key must be the integers"),
        (lambda: Alignment([[1.0, 2.0], [1.0]], [0, 1], "fourier"), "x must be an array whose rows"),
        (lambda: QuadraticTarget(X, TARGET[:8, :8], "fourier"), "target must have 9 rows like x, got 8"),
        (lambda: QuadraticTarget(X, np.ones(9), "fourier"), "target must hold at least two"),
        (lambda: Quadratic([1.0, 2.0]).value(np.ones((3, 3))), "stiffness must have 3 numbers"),
        (lambda: Alignment(X, BINARY[:-1], "fourier"), "y must have 9 rows"),
        (lambda: Alignment(X, np.ones(9), "fourier"), "two different labels"),
        (lambda: Alignment(X, np.full(9, np.nan), "fourier"), "y must be finite"),
        (lambda: Alignment(X, np.ones((9, 1, 1)), "fourier"), "y must have shape"),
        (lambda: Alignment(np.where(X > 2, np.nan, X) * np.nan, BINARY, "fourier"), "x must be finite"),
        (lambda: Alignment(X[0], BINARY, "fourier"), "x must have shape"),
        (lambda: Alignment(X, BINARY, "softmax"), "normalised over the particles"),
        (lambda: Alignment(X, BINARY, "rbf"), "feature must be.*'rbf'"),
        (lambda: Alignment(X, BINARY, "fourier", batch_size=10), "batch_size must be at most 9, got 10"),
        (lambda: Alignment(X, BINARY, "fourier", batch_size=1), "batch_size.*at least 2"),
        (lambda: Alignment(X, BINARY, "fourier", groups=GROUPS, batch_size=4), "batch_size must be at most 3"),
        (lambda: Alignment(X, BINARY, "fourier", groups=np.arange(9)), "groups must put"),
        (lambda: Alignment(X, BINARY, "fourier", groups=np.ones(9)), "groups must be integers"),
        (lambda: QuadraticTarget(X, np.triu(TARGET), "fourier"), "target must be symmetric"),
        (lambda: Alignment(X, BINARY, "fourier").value(np.ones((4, 2))), "omega must have 3 numbers per particle"),
        (lambda: Riesz(1, 1.0).gradient(np.array([[np.nan]])), "omega must be finite"),
        (lambda: Riesz(1, 1.0).gradient(np.ones(3)), "omega must have shape"),
    ],
)
def test_bad_input_is_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_a_sum_is_of_energies():
    for wrong in ((), (Quadratic(1.0), None)):
        with pytest.raises(ValueError, match="energies must be one or more"):
            Sum(wrong)


def test_masked_values_are_refused():
    with pytest.raises(ValueError, match="omega must have no masked values"):
        Quadratic(1.0).value(np.ma.masked_less(particles(4, 2), 0))
    assert float(Quadratic(1.0).value(np.ma.array(np.ones((4, 2))))) == 1


def test_adding_something_else_is_a_type_error():
    for wrong in (lambda: Quadratic(1.0) + 1.0, lambda: 1 + Quadratic(1.0), lambda: 0.0 + Quadratic(1.0)):
        with pytest.raises(TypeError):
            wrong()


def test_pythons_sum_adds_energies():
    parts, omega = [Riesz(0, 1.0), Quadratic(1.0), Quadratic(2.0)], particles(5, 2)
    assert sum(parts).describe() == (parts[0] + parts[1] + parts[2]).describe()
    assert sum(parts).value(omega) == Sum(parts).value(omega)
    assert sum(parts[:1]) is parts[0]


def test_energies_print_what_they_are_without_their_data():
    class Own(Energy):
        pass

    data = np.random.default_rng(0).normal(size=(500, 300))
    energy = Quadratic(1.0) + Alignment(data, data[:, 0] > 0, "fourier") + External(abs, name="wall") + Pair(abs, name="steps") + Own()
    assert repr(energy) == (
        "Quadratic(stiffness=1., centre=0.) + Alignment(FourierPair(), 500 rows) + External(abs, name='wall') + Pair(abs, name='steps')"
        " + Own(...)"
    )
    assert repr(Quadratic([1.0, 2.5], 1.0)) == "Quadratic(stiffness=[1. , 2.5], centre=1.)"
    assert len(repr(Quadratic(np.arange(500.0)))) < 80
    assert repr(Riesz(0, 1.0) + Quadratic(1.0)).startswith("Riesz(s=0.0, strength=1.0")


def test_cka_without_a_kernel_left_says_so():
    with pytest.raises(FloatingPointError, match="CentredAlignment"):
        CentredAlignment(X, BINARY, "fourier").value(np.zeros((2, 3)))
