"""Energies of labelled data: the fused Fourier pass against its definition, the many-body form, targets of every kind, minibatches."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import mpmath
import numba
import numpy as np
import pytest
import torch

from benchmarks import alignment as benchmark
from particles import _numba, naive
from particles._fourier import alignment_sums, sincos
from particles.alignment import Alignment, CentredAlignment, ManyBodyAlignment, QuadraticTarget
from particles.domain import Ball
from particles.features import CosineSquared, Elu, SigmoidSquared, SoftmaxFeatures, Softplus, as_feature
from particles.langevin import Langevin
from particles.simulate import simulate

FOURIER = ["fourier", "phase"]
PER_PARTICLE = [*map(as_feature, [*FOURIER, "nonstationary", "positive", "softplus", "elu", "sigmoid2", "cos2"]), Elu(0.7, offset=True)]
MANY_BODY = [
    SoftmaxFeatures(), SoftmaxFeatures(0.6), Softplus(0.7, 0.1, True), Elu(1.3, 0.1, True), Elu(renormalise=True, offset=True),
    SigmoidSquared(0.8, True), CosineSquared(True),
]  # fmt: skip
X = np.random.default_rng(0).normal(size=(11, 3))
LABELS = {
    "binary": np.array([0, 1, 1, 0, 1, 0, 0, 1, 1, 0, 0]),
    "classes": np.array(list("abcabcabcba")),
    "real": np.random.default_rng(1).normal(size=11),
    "columns": np.random.default_rng(2).normal(size=(11, 4)),
}
GROUPS = np.array([4, 4, 7, 4, 7, 1, 7, 4, 1, 4, 9])


def particles(*shape, seed=3):
    return np.random.default_rng(seed).normal(size=shape)


def by_definition(energy, omega):
    """-1/P sum over pairs of one group of T_ij K_N(x_i, x_j), from matrices."""
    rows, total = energy.rows, 0.0
    for x, factor in zip(rows.x, rows.factor, strict=True):
        target = factor @ factor.T
        total += ((target - np.diag(np.diag(target))) * energy.feature.kernel(x, x, omega)).sum((-2, -1))
    return -total / rows.n_pairs


def check(energy, omega):
    """value, gradient, finite differences of the value, torch and its autograd tell one story; the value is the definition's."""
    value, (terms, gradient) = np.asarray(energy.value(omega)), energy.value_and_grad(omega)
    np.testing.assert_allclose(value, by_definition(energy, omega), rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(terms[energy.term], value, rtol=1e-13)
    np.testing.assert_array_equal(energy.gradient(omega), gradient)
    numerical = omega.shape[-2] * naive.numerical_gradient(lambda w: float(np.sum(energy.value(w))), omega)
    size = max(np.abs(numerical).max(), 1e-3)
    assert np.abs(gradient - numerical).max() <= 1e-8 * size
    tensor = torch.tensor(omega, requires_grad=True)
    torch_value, (_, torch_gradient) = energy.value(tensor), energy.value_and_grad(tensor)
    torch_value.sum().backward()
    np.testing.assert_allclose(torch_value.detach().numpy(), value, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(torch_gradient.numpy(), gradient, atol=1e-12 * size)
    np.testing.assert_allclose(omega.shape[-2] * tensor.grad.numpy(), gradient, atol=1e-11 * size)


def energies(kind, feature):
    for y in LABELS.values():
        yield kind(X, y, feature)
    yield kind(X, LABELS["classes"], feature, groups=GROUPS)
    yield kind(X, 2.0 * LABELS["binary"] - 1, feature, centre=False, scale=False)


@pytest.mark.parametrize("feature", PER_PARTICLE, ids=repr)
def test_alignment_of_every_target_and_its_gradients(feature):
    for number, energy in enumerate(energies(Alignment, feature)):
        check(energy, particles(*((5,), (2, 3), (1,))[number % 3], feature.particle_dim(3)))


@pytest.mark.parametrize("feature", MANY_BODY, ids=repr)
def test_many_body_alignment_of_every_target_and_its_gradients(feature):
    for number, energy in enumerate(energies(ManyBodyAlignment, feature)):
        check(energy, particles(*((5,), (2, 3))[number % 2], feature.particle_dim(3)))


@pytest.mark.parametrize("feature", MANY_BODY, ids=repr)
def test_one_normalised_particle_feels_no_data_and_two_feel_each_other(feature):
    energy, omega = ManyBodyAlignment(X, LABELS["binary"], feature), particles(2, feature.particle_dim(3))
    assert np.abs(energy.gradient(omega[:1])).max() < 1e-13
    moved = omega + np.array([[0.0], [0.3]])
    assert np.abs(energy.gradient(moved)[0] - energy.gradient(omega)[0]).max() > 1e-4  # particle 0 stayed where it was
    linear = Alignment(X, LABELS["binary"], "softplus")
    np.testing.assert_allclose(linear.gradient(moved[:, :3])[0], linear.gradient(omega[:, :3])[0], rtol=1e-12)


@pytest.mark.parametrize("kind", [QuadraticTarget, CentredAlignment])
@pytest.mark.parametrize("feature", [SigmoidSquared(), CosineSquared(), *MANY_BODY[3:]], ids=repr)
def test_new_features_in_the_other_energies_of_data(kind, feature):
    energy, omega = kind(X, LABELS["classes"], feature), particles(4, feature.particle_dim(3))
    gradient = energy.gradient(omega)
    numerical = 4 * naive.numerical_gradient(lambda w: float(energy.value(w)), omega)
    np.testing.assert_allclose(gradient, numerical, atol=1e-8 * np.abs(numerical).max())
    tensor = torch.tensor(omega, requires_grad=True)
    energy.value(tensor).backward()
    np.testing.assert_allclose(4 * tensor.grad.numpy(), gradient, atol=1e-11 * np.abs(numerical).max())


def test_the_two_names_send_to_each_other():
    with pytest.raises(ValueError, match=r"normalised over the particles, got Softplus.*use ManyBodyAlignment"):
        Alignment(X, LABELS["binary"], Softplus(renormalise=True))
    with pytest.raises(ValueError, match=r"must be normalised over the particles, got FourierPair.*use Alignment"):
        ManyBodyAlignment(X, LABELS["binary"], "fourier")
    assert ManyBodyAlignment(X, LABELS["binary"], "softmax").describe()["name"] == "ManyBodyAlignment"


# ---- the fused pass


def slow_sums(x, factor, omega, feature):
    """`alignment_sums` by matrices, every group on its own."""
    total, gradient = np.zeros(len(omega)), np.zeros(omega.shape)
    for c, w in enumerate(omega):
        rows, labels = (x[c], factor[c]) if x.ndim == 4 else (x, factor)
        for points, f in zip(rows, labels, strict=True):
            phi, pullback = feature.value_and_pullback(points, w)
            target = f @ f.T
            np.fill_diagonal(target, 0)
            kept = np.einsum("ij,jck->ick", target, phi)
            total[c] += (phi * kept).sum()
            gradient[c] += pullback(2 * kept)
    return total, gradient


@pytest.mark.parametrize("name", FOURIER)
@pytest.mark.parametrize("dim", [1, 2, 3, 4, 7])
def test_fused_pass_equals_matrices_at_awkward_sizes(name, dim):
    """Rows beside the tile of 256, particles beside the block of 16, groups that straddle tiles, targets, chains with their own rows."""
    feature, rng = as_feature(name), np.random.default_rng(dim)
    for groups, members, n_particles, targets, chains, own in (
        (1, 2, 1, 1, 1, False), (1, 255, 15, 2, 1, False), (1, 257, 17, 1, 2, False), (1, 700, 33, 3, 1, False),
        (5, 100, 2, 1, 1, False), (2, 300, 16, 2, 2, True), (60, 3, 5, 1, 3, False), (1, 256, 16, 1, 2, True),
    ):  # fmt: skip
        lead = (chains,) if own else ()
        x, factor = rng.normal(size=(*lead, groups, members, dim)), rng.normal(size=(*lead, groups, members, targets))
        factor[..., -1, members // 2 + 1 :, :] = 0  # a shorter group, padded
        omega = 2 * rng.normal(size=(chains, n_particles, feature.particle_dim(dim)))
        total, gradient = alignment_sums(x, factor, omega, name == "phase")
        slow, slow_gradient = slow_sums(x, factor, omega, feature)
        scale = members * np.abs(factor).max() ** 2 * n_particles
        np.testing.assert_allclose(total, slow, atol=1e-12 * scale * groups)
        np.testing.assert_allclose(gradient, slow_gradient, rtol=1e-10, atol=1e-12 * np.abs(slow_gradient).max())


def test_fused_pass_is_the_papers_energy():
    """Loops over (A.2) and Lemma 3 with its diagonal; without the diagonal the number is another one (control)."""
    y, omega = 2.0 * LABELS["binary"] - 1, particles(5, 4)
    energy = Alignment(X, y, "phase", centre=False, scale=False)
    assert energy.choices(omega) == {"alignment": "fused (numba)"}
    value = float(energy.value(omega))
    assert value == pytest.approx(-naive.kernel_target_alignment("phase", X, y, omega), rel=1e-12)
    assert value == pytest.approx(naive.lemma_3_energy(X, y, omega), rel=1e-12)
    c = np.cos(X @ omega[:, :3].T + omega[:, 3])
    assert abs(value + 2 / (11 * 10 * 5) * ((y @ c) ** 2).sum()) > 0.01


def test_masked_data_are_refused():
    masked = np.ma.masked_less(X, 0)
    for data, name in (((masked, LABELS["binary"]), "x"), ((X, np.ma.masked_equal(LABELS["binary"], 1)), "y")):
        with pytest.raises(ValueError, match=f"{name} must have no masked values"):
            Alignment(*data, "fourier")


def test_callers_in_threads_get_what_one_caller_gets():
    x = particles(2000, 4)
    energy = Alignment(x, np.sign(x[:, 0]), "fourier", batch_size=500)
    omega = particles(20, 40, 4)
    alone = [energy.gradient(w, key=(1, 0, step)) for step, w in enumerate(omega)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda item: energy.gradient(item[1], key=(1, 0, item[0])), enumerate(omega)))
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize("name", FOURIER)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fused_pass_gives_the_same_bits_on_any_number_of_threads(name, dtype):
    x, y = particles(4000, 5), LABELS["binary"][np.arange(4000) % 11]
    energy, omega = Alignment(x, y, name), particles(2, 65, 5 + (name == "phase")).astype(dtype)
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        terms, gradient = energy.value_and_grad(omega)
        for threads in range(1, before + 1):
            numba.set_num_threads(threads)
            for _ in range(3):
                again_terms, again = energy.value_and_grad(omega)
                np.testing.assert_array_equal(again, gradient)
                np.testing.assert_array_equal(again_terms["alignment"], terms["alignment"])
    finally:
        numba.set_num_threads(before)
    alone = energy.value_and_grad(omega[1])
    np.testing.assert_array_equal(alone[1], gradient[1])  # neither does the number of chains


def test_a_thread_that_outlives_the_main_one_sums_alone(monkeypatch):
    x, omega = particles(4000, 5), particles(2, 65, 5)
    energy = Alignment(x, LABELS["binary"][np.arange(4000) % 11], "fourier")
    expected = energy.gradient(omega)
    monkeypatch.setattr(threading, "main_thread", threading.Thread)  # one that is not alive
    monkeypatch.setattr(_numba, "ThreadPoolExecutor", None)
    np.testing.assert_array_equal(energy.gradient(omega), expected)


OUTLIVING = """
import threading
import numpy as np
from particles import *

rng = np.random.default_rng(0)
energy, omega = Alignment(rng.normal(size=(9000, 3)), rng.choice([-1, 1], 9000), "fourier"), rng.normal(size=(64, 3))

def run():
    threading.main_thread().join()
    print(simulate(omega, energy, FullSpace(3), Langevin(0.01, 10.0), n_steps=3, rng=0).sizes["step"])

threading.Thread(target=run).start()
"""


@pytest.mark.slow
def test_a_run_in_a_thread_that_outlives_the_main_one_ends():
    done = subprocess.run(
        [sys.executable, "-c", OUTLIVING], capture_output=True, text=True, timeout=100, env=os.environ | {"PYTHONPATH": "."}
    )
    assert done.stdout == "4\n", done.stderr


@pytest.mark.parametrize("name", FOURIER)
def test_float32_states_are_summed_in_float64(name):
    """20,000 rows: the error of the gradient stays that of float32 phases, 1e-6 of the gradient's size; half precision is not there."""
    x = particles(20_000, 5)
    energy, omega = Alignment(x, np.sign(x[:, 0] * x[:, 1]), name), 0.7 * particles(20, 5 + (name == "phase"))
    rounded = omega.astype(np.float32)
    exact, exact_value = energy.gradient(rounded.astype(np.float64)), energy.value(rounded.astype(np.float64))
    gradient = energy.gradient(rounded)
    assert gradient.dtype == np.float32
    assert np.abs(gradient - exact).max() < 2e-6 * np.abs(exact).max()
    value = energy.value(rounded)
    assert value.dtype == np.float64
    assert float(value) == pytest.approx(float(exact_value), rel=2e-6)


@pytest.mark.parametrize("name", FOURIER)
def test_phases_beyond_the_fast_range_are_exact(name):
    """Particles so fast that w.x reaches 1e9, beside slow ones: equal to sums over math.cos of the same phases."""
    feature, omega = as_feature(name), particles(4, 3 + (name == "phase"))
    omega[1:3] *= 1e9
    x, factor = X[None], LABELS["columns"][None]
    total, gradient = alignment_sums(x, factor, omega[None], name == "phase")
    terms = np.zeros(4)
    for k, w in enumerate(omega):
        z = [float(sum(a * b for a, b in zip(row, w[:3], strict=True))) + (w[3] if name == "phase" else 0.0) for row in X]
        waves = [[math.sqrt(2) * math.cos(v)] if name == "phase" else [math.cos(v), math.sin(v)] for v in z]
        target = factor[0] @ factor[0].T
        np.fill_diagonal(target, 0)
        terms[k] = sum(float(v @ target @ v) for v in np.array(waves).T)
    slow = slow_sums(x, factor, omega[None, ::3], feature)[1]
    np.testing.assert_allclose(gradient[0, ::3], slow[0], rtol=1e-11, atol=1e-12)
    alone = [float(alignment_sums(x, factor, w[None, None], name == "phase")[0][0]) for w in omega]
    assert total[0] == pytest.approx(sum(alone), rel=1e-12)
    # phases of 1e9 are themselves known to 1e-7 only: a sum in another order moves them by that much
    np.testing.assert_allclose(alone, terms, atol=1e-4)
    np.testing.assert_allclose(np.array(alone)[[0, 3]], terms[[0, 3]], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sine_and_cosine_within_two_units_in_the_last_place(dtype):
    """Random arguments, the worst place (floats next to multiples of pi/2) and arguments beyond 1e5, against 60 digits."""
    rng = np.random.default_rng(4)
    near = (np.arange(-300, 300) * 97 * np.pi / 2).astype(dtype)
    z = np.concatenate([10.0 ** rng.uniform(-9, 8, 400) * rng.choice([-1, 1], 400), rng.uniform(-4, 4, 400), [0.0, 1e5, -1e5]]).astype(
        dtype
    )
    z = np.concatenate([z, near, np.nextafter(near, dtype(np.inf)), np.nextafter(near, dtype(-np.inf))])
    sine, cosine = sincos(z)
    assert sine.dtype == dtype
    with mpmath.workdps(60):
        for got, exact in ((sine, mpmath.sin), (cosine, mpmath.cos)):
            true = [exact(mpmath.mpf(float(v))) for v in z]
            unit = np.spacing(np.abs(np.array([float(t) for t in true])).astype(dtype)).astype(float)
            error = np.array([abs(float(mpmath.mpf(float(g)) - t)) for g, t in zip(got, true, strict=True)])
            assert (error <= 2 * unit).all(), (z[(error / unit).argmax()], (error / unit).max())
    odd = sincos(np.array([np.nan, np.inf, -np.inf], dtype))
    assert np.isnan(odd).all()
    np.testing.assert_array_equal(sincos(np.array([[0, 1]]))[0], sincos(np.array([[0.0, 1.0]]))[0])


def test_one_gradient_needs_no_array_of_rows_times_particles():
    x = particles(20_000, 5)
    energy, omega = Alignment(x, np.sign(x[:, 0]), "phase"), particles(300, 6)
    energy.gradient(omega)
    tracemalloc.start()
    energy.gradient(omega)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4e6  # 48 MB for one such array


def test_many_targets_and_dimensions_take_the_matrix_path_and_agree(monkeypatch):
    x, y = particles(300, 20), particles(300, 9, seed=5)
    energy, omega = Alignment(x, y, "fourier"), 0.2 * particles(2, 9, 20)
    assert energy.choices(omega) == {"alignment": "matrix"}
    assert Alignment(X, LABELS["binary"], "fourier").choices(torch.tensor(X)) == {"alignment": "matrix"}
    assert Alignment(X, LABELS["binary"], "softplus").choices(X) == {"alignment": "matrix"}
    terms, gradient = energy.value_and_grad(omega)
    monkeypatch.setattr(Alignment, "_fused", lambda self, omega: True)
    fused_terms, fused = energy.value_and_grad(omega)
    np.testing.assert_allclose(fused, gradient, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(fused_terms["alignment"], terms["alignment"], rtol=1e-11)


# ---- laws and minibatches


def test_alignment_potential_of_unequal_classes():
    """C3.4: P(y = 1) = p, x | y ~ N(y mu, I): V(w) = -exp(-|w|^2) (sin^2 w.mu + (2p - 1)^2 cos^2 w.mu).

    300,000 rows, 6 standard errors of the modulus squared (false alarm below 1e-8 a point); the law of p = 1/2 is rejected.
    """
    rng, p, mu = np.random.default_rng(8), 0.3, np.array([0.9, -0.5])
    y = np.where(rng.random(300_000) < p, 1.0, -1.0)
    energy = Alignment(y[:, None] * mu + rng.normal(size=(300_000, 2)), y, "fourier", centre=False, scale=False)
    bound = 6 * 2 / math.sqrt(300_000)
    for w in np.array([[0.3, 0.2], [0.8, -0.4], [-0.5, 0.6]]):
        sine, cosine, damp = math.sin(w @ mu) ** 2, math.cos(w @ mu) ** 2, math.exp(-(w @ w))
        assert abs(float(energy.value(w[None])) + damp * (sine + (2 * p - 1) ** 2 * cosine)) < bound
    assert abs(float(energy.value(np.array([[0.3, 0.2]]))) + math.exp(-0.13) * math.sin(0.17) ** 2) > bound


@pytest.mark.parametrize("feature", ["phase", SigmoidSquared(1.0, True), "cos2"], ids=repr)
@pytest.mark.parametrize("labels", ["binary", "columns"])
def test_minibatches_are_unbiased(feature, labels):
    """Mean over 3,000 keys within 5 standard errors of the full batch in every entry and in the value (false alarm 2e-5 in all);
    sums over a batch divided by the number of pairs of all data are rejected."""
    feature = as_feature(feature)
    kind = ManyBodyAlignment if feature.many_body else Alignment
    full, energy = (kind(X, LABELS[labels], feature, batch_size=size) for size in (None, 4))
    omega = particles(2, feature.particle_dim(3))

    def entries(terms, gradient):
        return np.append(gradient, terms[energy.term])

    draws = [energy.value_and_grad(omega, key=(11, 0, step)) for step in range(3000)]
    sample, truth = np.array([entries(*draw) for draw in draws]), entries(*full.value_and_grad(omega))
    error = 5 * sample.std(0) / math.sqrt(len(sample))
    assert (np.abs(sample.mean(0) - truth) < error).all()
    assert (np.abs(4 * 3 / (11 * 10) * sample.mean(0) - truth) > 12 / 110 * error).any()
    np.testing.assert_array_equal(energy.gradient(omega, key=(11, 0, 7)), draws[7][1])


@pytest.mark.parametrize("name", FOURIER)
def test_a_chain_draws_the_same_minibatch_alone_and_among_others(name):
    energy = Alignment(particles(500, 3), LABELS["classes"][np.arange(500) % 11], name, batch_size=100)
    omega = particles(3, 20, 3 + (name == "phase"))
    together = energy.gradient(omega, key=(2, 4, 9))
    for c in range(3):
        np.testing.assert_array_equal(energy.gradient(omega[c], key=(2, 4 + c, 9)), together[c])
    np.testing.assert_allclose(energy.gradient(torch.tensor(omega), key=(2, 4, 9)).numpy(), together, atol=1e-13)


@pytest.mark.parametrize(("kind", "feature"), [(Alignment, "phase"), (ManyBodyAlignment, "softmax")])
def test_descent_finds_a_better_kernel(kind, feature):
    """Deterministic steps lower H; on permuted labels there is little to find."""
    rng = np.random.default_rng(6)
    x = rng.normal(size=(400, 3))
    y, feature = np.sign(np.cos(2 * x[:, 0] + 0.5)), as_feature(feature)
    start = 0.3 * rng.normal(size=(12, feature.particle_dim(3)))
    drops = []
    for labels in (y, rng.permutation(y)):
        energy = kind(x, labels, feature)
        steps = simulate(start, energy, Ball(4.0, start.shape[1]), Langevin(2.0, math.inf), n_steps=150, save_every=150, rng=0)
        drops.append(float(energy.value(start)) - float(energy.value(steps["omega"].values[0, -1])))
    assert drops[0] > 3 * drops[1] > 0


@pytest.mark.parametrize("name", FOURIER)
def test_benchmark_compares_the_same_computation(name):
    x, y, omega = benchmark.problem(name, np.float64, n_rows=300)
    ends = [benchmark.repeat(make(x, y, name), omega[:20], 10) for make in (benchmark.ours, benchmark.autograd)]
    assert np.abs(ends[0] - omega[:20]).max() > 0.1
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-12)


@pytest.fixture
def one_thread():
    before = torch.get_num_threads(), numba.get_num_threads()
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    yield
    torch.set_num_threads(before[0])
    numba.set_num_threads(before[1])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", benchmark.BARS)
@pytest.mark.parametrize("name", FOURIER)
def test_alignment_step_beats_autograd_by_the_stated_factor(name, dtype, one_thread):
    assert benchmark.compare(name, dtype, 10)[0]["passed"]
