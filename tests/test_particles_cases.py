"""Faults that users of particle and array libraries reported, each as a test of its kind, where no other file has it already.

Statistical tests: fixed seeds, |z| < 4 (false-alarm rate 6e-5 each), with a deliberately wrong value that is rejected.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import time

import numba
import numpy as np
import pytest
from scipy import stats

from particles import (
    HMC,
    MALA,
    Alignment,
    Ball,
    Box,
    CentredAlignment,
    FullSpace,
    Langevin,
    Quadratic,
    QuadraticTarget,
    Riesz,
    geometric,
    open_trajectory,
    resume,
    simulate,
    trajectory,
)
from particles.pairwise import gaps, riesz_sums
from theory.ensembles import beta_hermite

RNG = np.random.default_rng(11)
X = RNG.normal(size=(18, 2))
LABELS = X[:, 0] * X[:, 1] > 0
Z = 4.0

# ----------------------------------------------------------------------------------- singular pairs, masks, exponents


@pytest.mark.parametrize(
    "energy",
    [
        Riesz(0, 0.7),
        Riesz(2.5, 0.7, softening=0.2),
        Riesz(1, 0.7, truncation=0.3),
        Riesz(1.5, 0.7, period=9.0),
        Riesz(0.5, 0.7, mirror=True),
        Quadratic(1.3) + Riesz(1, 0.7),
        Alignment(X, LABELS, "fourier") + Riesz(0, 0.1),
        QuadraticTarget(X, LABELS, "softmax"),
        CentredAlignment(X, LABELS, "fourier"),
    ],
    ids=["log", "softened", "truncated", "torus", "mirror", "sum", "alignment", "quadratic target", "cka"],
)
@pytest.mark.parametrize("crowded", [False, True], ids=["apart", "coincident"])
def test_backward_of_a_public_energy_is_finite_and_the_analytic_gradient(energy, crowded):
    """Masks applied after evaluation turn 1/0 of the self-pair into NaN gradients."""
    torch = pytest.importorskip("torch")
    points = np.random.default_rng(1).normal(size=(5, 2))
    points[1] = points[0] if crowded else points[1]
    omega = torch.tensor(points, requires_grad=True)
    value = energy.value(omega)
    assert not bool(value.isnan())
    value.backward()
    torch.testing.assert_close(5 * omega.grad, energy.gradient(omega.detach()), rtol=1e-10, atol=1e-12)
    assert bool(omega.grad.isfinite().all())


@pytest.mark.parametrize("method", ["direct", "tree", "auto"])
def test_many_copies_and_one_far_point_end_at_once(method):
    """Tree recursions that never end or crash: 2,000 copies of one point, and one at 1e150 or 1e8."""
    riesz = Riesz(1, 1.0, method=method, tolerance=0.0 if method == "direct" else 1e-3)
    riesz.value_and_grad(RNG.normal(size=(2001, 3)))  # compiled
    for far in (1e8, 1e150):
        points = np.full((2001, 3), 0.25)
        points[-1] = far
        begin = time.process_time()
        try:
            terms, gradient = riesz.value_and_grad(points)
        except OverflowError:
            continue
        assert time.process_time() - begin < 5
        assert terms["riesz"] == np.inf
        assert np.isfinite(gradient).all()


def test_coulomb_exponents_of_high_dimension_are_exact_or_an_error():
    """r^-62 spans more than float32, and soon more than float64; a length near the gap brings it back."""
    pair = np.zeros((2, 64))
    pair[1, 5] = 0.02
    riesz = Riesz("coulomb", 1.0)
    assert riesz.value(pair) == pytest.approx(0.5 * 0.02**-62, rel=1e-9)
    with pytest.raises(OverflowError):
        riesz.gradient(pair.astype(np.float32))
    with pytest.raises(OverflowError):
        riesz.gradient(1e-4 * pair)
    scaled = Riesz("coulomb", 1.0, length=0.02)
    assert scaled.value(pair.astype(np.float32)) == pytest.approx(0.5, rel=1e-4)
    assert np.isfinite(scaled.gradient(pair.astype(np.float32))).all()


# ------------------------------------------------------------------------------------------- normalisation and noise


@pytest.mark.parametrize(("s", "mean"), [(0, 1.5), (-1, -1 / 3), (0.5, 8 / 3)])
def test_pair_energy_of_independent_particles_has_its_exact_mean_at_twenty_particles(s, mean):
    """E W_N = (1/2) iint g for every N, uniform on [0, 1]; an N^2 in the normalisation would miss 5 % at N = 20."""
    strength = 0.7
    values = Riesz(s, strength).value(np.random.default_rng(2).random((6000, 20, 1)))
    error = values.std() / np.sqrt(6000)
    assert abs(values.mean() - strength * mean / 2) < Z * error
    assert abs(values.mean() - 19 / 20 * strength * mean / 2) > Z * error


def test_alignment_of_random_labels_has_mean_zero_at_twenty_rows():
    """The diagonal left out: over balanced-coin labels the mean is 0 exactly; with the diagonal it is -1/n for unit features."""
    rng = np.random.default_rng(3)
    x, omega = rng.normal(size=(20, 2)), rng.normal(size=(6, 2))
    labels = rng.choice([-1.0, 1.0], size=(150, 20))
    values = np.array([float(Alignment(x, y[:, None], "fourier", centre=False, scale=False).value(omega)) for y in labels])
    error = values.std() / np.sqrt(len(values))
    assert abs(values.mean()) < Z * error
    assert abs(values.mean() - 1 / 20) > Z * error


@pytest.mark.parametrize("temperature", [0.2, 1.5])
@pytest.mark.parametrize("kind", ["projected", "reflected", "preconditioned", "MALA", "HMC"])
@pytest.mark.filterwarnings("ignore:.*chains are stuck")  # a few of 800, in 40 steps
def test_noise_follows_the_temperature_at_no_parameter_of_one(kind, temperature):
    """N H_N = sum kappa w^2 / 2: variance T / kappa per coordinate, times 1 / (1 - eta m kappa / 2) for Euler's step of mobility m.

    Exact start, so that only the law matters. Rejected: noise with T^2, with mobility unrooted, or with the gradient of H_N.
    """
    beta, kappa, mobility, step_size, n = 1 / temperature, 1.7, 0.3, 0.11, 4000
    sampler = {
        "MALA": MALA(0.5 * np.sqrt(temperature), beta),
        "HMC": HMC(0.3, beta, n_leapfrog=4),
        "preconditioned": Langevin(step_size, beta, preconditioner=[mobility, mobility]),
    }.get(kind) or Langevin(step_size, beta, scheme=kind)
    rate = step_size * kappa * {"MALA": 0.0, "HMC": 0.0, "preconditioned": mobility}.get(kind, 1.0)
    expected = temperature / kappa / (1 - rate / 2)
    start = np.sqrt(expected) * np.random.default_rng(4).normal(size=(n // 5, 5, 2))
    run = simulate(start, Quadratic(kappa), FullSpace(2), sampler, n_steps=40, save_every=40, rng=5)
    squares = (run.omega[:, -1].to_numpy() ** 2).ravel()
    error = np.sqrt(2 / squares.size)
    assert abs(squares.mean() / expected - 1) < Z * error
    for wrong in (temperature**2, temperature * mobility, temperature / 5):
        assert abs(squares.mean() / (expected / temperature * wrong) - 1) > Z * error


def test_the_docs_state_mobility_and_temperature():
    import particles.langevin as module

    text = " ".join(inspect.getdoc(sys.modules[module.__name__]).split()) + " ".join(inspect.getdoc(Langevin).split())
    for words in ("Mobility is 1", "diffusion constant is 1/beta", "exp(-beta N H_N)", "sqrt(2 eta / beta)", "m eta grad"):
        assert words in text


def test_the_gibbs_law_of_a_log_gas_is_the_matrix_ensemble():
    """beta N H_N(x) = sum e^2 / 2 - b sum_{i<j} log |e_i - e_j| + constant, b = beta strength / (N - 1), x = e / sqrt(beta kappa).

    Deterministic, at parameters that are not 1; N in place of N - 1 is rejected.
    """
    n, beta, kappa, strength = 7, 2.6, 1.3, 0.7
    energy = Quadratic(kappa) + Riesz(0, strength)
    upper = np.triu_indices(n, 1)

    def spread(b):
        eigenvalues = np.random.default_rng(6).normal(scale=3, size=(20, n))
        logs = np.log(np.abs(eigenvalues[:, :, None] - eigenvalues[:, None])[:, upper[0], upper[1]]).sum(-1)
        gibbs = beta * n * energy.value(eigenvalues[..., None] / np.sqrt(beta * kappa))
        return np.ptp(gibbs - (eigenvalues**2).sum(-1) / 2 + b * logs)

    assert spread(beta * strength / (n - 1)) < 1e-10
    assert spread(beta * strength / n) > 0.1


@pytest.mark.parametrize("b", [1, 2])
def test_tridiagonal_and_dense_matrices_have_one_normalisation(b):
    """Largest eigenvalue of 1,500 dense Gaussian matrices against the tridiagonal sampler, two-sample KS, false-alarm rate 1e-4."""
    rng, n = np.random.default_rng(7), 6
    dense = rng.normal(size=(1500, n, n)) + (1j * rng.normal(size=(1500, n, n)) if b == 2 else 0)
    dense = (dense + dense.conj().swapaxes(-1, -2)) / 2  # diagonal N(0, 1), density exp(-tr M^2 / 2)
    largest = np.linalg.eigvalsh(dense)[:, -1]
    sampled = beta_hermite(n, float(b), rng, 1500).max(-1)
    assert stats.ks_2samp(largest, sampled).pvalue > 1e-4
    assert stats.ks_2samp(np.sqrt(2) * largest, sampled).pvalue < 1e-4


# -------------------------------------------------------------------------------------- threads, restarts, NaN tests


@pytest.fixture
def threads():
    """Setting numba's threads, undone afterwards."""
    before = numba.get_num_threads()
    yield lambda n: numba.set_num_threads(n)
    numba.set_num_threads(before)


def test_forces_sum_to_zero_in_fifty_repeats_for_every_number_of_threads(threads):
    """Lost updates of shared sums in parallel loops; large enough for the parallel path."""
    omega, first = RNG.normal(size=(400, 3)), None
    for n in range(1, numba.config.NUMBA_NUM_THREADS + 1):
        threads(n)
        for _ in range(50):
            total, gradient = riesz_sums(omega, 1.0)
            first = (total, gradient) if first is None else first
            assert np.abs(gradient.sum(0)).max() < 1e-12 * np.abs(gradient).sum()
            assert total == first[0]
            np.testing.assert_array_equal(gradient, first[1])


def test_counts_under_a_condition_are_complete_for_every_number_of_threads(threads):
    """Reductions under a condition that is always true: n copies of a point are n (n - 1) / 2 coincident pairs."""
    for n in range(1, numba.config.NUMBA_NUM_THREADS + 1):
        threads(n)
        for copies in (2, 101, 700):
            coincident, gap = gaps(np.full((copies, 3), 0.1))
            assert (coincident, gap) == (copies * (copies - 1) // 2, 0)


RUN_AND_DIGEST = """
import hashlib, numpy as np
from particles import *
x = np.random.default_rng(0).normal(size=(60, 2))
energy = Alignment(x, x[:, 0] > 0, "fourier", batch_size=20) + Riesz(0.5, 0.3)
run = simulate(0.5 * Ball(1, 2).sample(450, 0), energy, Ball(1.2, 2), Langevin(0.01, 5.0), n_steps=6, rng=3)
print(hashlib.sha256(run.omega.to_numpy().tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_one_two_and_four_threads_and_two_processes_run_the_same_bits():
    digests = set()
    for n in (1, 2, 4, 4):
        environment = os.environ | {"NUMBA_NUM_THREADS": str(n)}
        done = subprocess.run([sys.executable, "-c", RUN_AND_DIGEST], capture_output=True, text=True, env=environment, check=True)
        digests.add(done.stdout.strip())
    assert len(digests) == 1


MODELS = """
import numpy as np
from particles import *
x = np.random.default_rng(1).normal(size=(40, 2))
data = Alignment(x, x[:, 0] > 0, "fourier", batch_size=12)
MODELS = {
    "minibatch and schedules": (data + Riesz(0, 0.1), Ball(1.2, 2), Langevin(linear(0.02, 0.001, 25), geometric(1.0, 50.0, 25))),
    "random batch": (Riesz(0.5, 0.3, method="random_batch"), Box([-2, -2], [2, 2]), Langevin(0.01, 4.0, scheme="reflected")),
    "tuned HMC": (Riesz(0, 0.3) + Quadratic(1.0), Ball(1.5, 2), HMC(0.2, 4.0, n_leapfrog=3, tune=14)),
    "tuned MALA": (Riesz(0, 0.3) + Quadratic(1.0), Ball(1.5, 2), MALA(0.2, 4.0, tune=14)),
}
"""
CONTINUE = """
import sys
exec(sys.argv[1])
for name, model in MODELS.items():
    resume(f"{sys.argv[2]}/{name}", *model, n_steps=24)
"""


@pytest.mark.parametrize("where", ["here", pytest.param("new process", marks=pytest.mark.slow)])
def test_a_restart_continues_to_the_same_bits(tmp_path, where):
    """Generators, minibatch and batch orders, annealing time, tuned step sizes and caches that a checkpoint forgets."""
    scope: dict = {}
    exec(MODELS, scope)
    start = 0.5 * Ball(1.0, 2).sample(2 * 9, 0).reshape(2, 9, 2)
    for name, model in scope["MODELS"].items():
        simulate(start, *model, n_steps=10, save_every=2, rng=8, store=tmp_path / name)
    if where == "new process":
        subprocess.run([sys.executable, "-c", CONTINUE, MODELS, str(tmp_path)], check=True)
    for name, model in scope["MODELS"].items():
        resume(tmp_path / name, *model, n_steps=24)
    for name, model in scope["MODELS"].items():
        whole, continued = simulate(start, *model, n_steps=24, save_every=2, rng=8), open_trajectory(tmp_path / name)
        for variable in whole.data_vars:
            np.testing.assert_array_equal(continued[variable], whole[variable], err_msg=f"{name}: {variable}")


def test_a_restart_has_the_stored_seed_and_takes_no_other(tmp_path):
    """Replicas that are all alike because loading a checkpoint restored the generator over their new seeds."""
    model = (Quadratic(1.0), FullSpace(2), Langevin(0.1, 2.0))
    for seed in (1, 2):
        simulate(X, *model, n_steps=2, rng=seed, store=tmp_path / str(seed))
    runs = [resume(tmp_path / str(seed), *model, n_steps=4) for seed in (1, 2)]
    assert [json.loads(run.attrs["seed"]) for run in runs] == [1, 2]
    assert not np.isclose(runs[0].omega[:, 1:], runs[1].omega[:, 1:]).any()
    with pytest.raises(TypeError, match="rng"):
        resume(tmp_path / "1", *model, n_steps=6, rng=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("n", [3, 600])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_compiled_kernels_keep_their_tests_for_nan(n, bad):
    """fastmath that assumes no NaN makes isnan constant; the kernels themselves, behind the checks of their callers."""
    from particles import _numba

    omega = RNG.normal(size=(1, n, 3))
    omega[0, 1, 2] = bad
    total, force = _numba.pair_sums(omega, omega, 1.0, 0.0, 0.0, energy=True)
    assert not np.isfinite(force[0, 1]).all() or not np.isfinite(total[0]) or bad == np.inf
    with pytest.raises((ValueError, OverflowError), match="omega"):
        riesz_sums(omega, 1.0)
    with pytest.raises(ValueError, match="omega must be finite"):
        Riesz(1, 1.0).value_and_grad(omega)


# ------------------------------------------------------------------------------------------------ arrays, precision


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("back_end", ["numba", "torch"])
def test_a_near_pair_in_many_dimensions_far_from_the_origin_keeps_its_force(back_end, dtype):
    """Matrix forms |x|^2 + |y|^2 - 2 x.y lose near pairs: N = 200, d = 64, mean 10, one pair at distance 1e-3."""
    omega = np.random.default_rng(9).normal(10, 1, (200, 64))
    omega[1] = omega[0] + 1e-3 * np.eye(64)[3]
    omega = omega.astype(dtype)
    gap = np.subtract(*omega.astype(np.float64)[:2])
    force = -gap / np.linalg.norm(gap) ** 3  # the near pair's outweighs all others a million times
    given = omega if back_end == "numba" else pytest.importorskip("torch").tensor(omega)
    gradient = np.asarray(Riesz(1, 199.0).gradient(given), np.float64)
    np.testing.assert_allclose(gradient[0, 3], force[3], rtol=1e-6)
    coincident, smallest = gaps(given)
    assert int(coincident) == 0
    assert float(smallest) == pytest.approx(np.linalg.norm(gap), rel=1e-6)


def test_gaussian_and_box_bounds_in_float32_lie_inside():
    box = Box([0.1, -0.3], [0.7, 0.3])
    low = box.project(np.array([[-1.0, -1.0], [2.0, 2.0]], np.float32))
    assert box.contains(low).all()
    assert box.contains(low.astype(np.float64)).all()


def test_forces_on_a_torus_forget_lattice_shifts_and_wrapping_stays_inside():
    """-5e-17 modulo 1 is 1.0 in floating point; images taken from the wrong coordinate break shifts in y and z."""
    from particles import Torus

    torus = Torus([1.0, 2.0, 3.0])
    for dtype in (np.float64, np.float32):
        wrapped = torus.project(np.array([[-5e-17, -5e-17, -1e-9], [1.0, 2.0, 3.0]], dtype))
        assert torus.contains(wrapped).all()
        assert (wrapped.astype(np.float64) < np.array(torus.period)).all()
    omega = torus.sample(20, 1)
    riesz = Riesz(1, 1.0, period=(1.0, 2.0, 3.0))
    expected = riesz.gradient(omega)
    for shift in ([1, 0, 0], [0, 2, 0], [0, 0, -3], [-2, 4, 9]):
        shifted = omega.copy()
        shifted[3:9] += shift
        np.testing.assert_allclose(riesz.gradient(shifted), expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
    with pytest.raises(AssertionError):  # negative control: half a period
        np.testing.assert_allclose(riesz.gradient(omega + [[0, 0, 1.5]] * (np.arange(20)[:, None] < 5)), expected, rtol=1e-3)


# -------------------------------------------------------------------------------------------------------- storage


def test_appends_that_do_not_fit_the_chunks_lose_nothing(tmp_path, monkeypatch):
    """100 frames, 7 at a time, in chunks of 10; read by this package, and by xarray alone with metadata of its own."""
    import xarray as xr

    monkeypatch.setattr(trajectory, "CHUNK_FRAMES", 10)
    model = (Quadratic(1.3), Ball(3.0, 2), Langevin(0.05, geometric(1.0, 9.0, 60)))
    whole = simulate(X[:5], *model, n_steps=99, rng=0)
    simulate(X[:5], *model, n_steps=6, rng=0, store=tmp_path / "run")
    for n_steps in [*range(13, 99, 7), 99]:
        continued = resume(tmp_path / "run", *model, n_steps=n_steps)
        assert continued.sizes["step"] == n_steps + 1
    for read in (continued, open_trajectory(tmp_path / "run"), xr.open_zarr(tmp_path / "run", consolidated=False, chunks=None)):
        assert read.step.to_numpy().tolist() == list(range(100))
        for name in whole.data_vars:
            np.testing.assert_array_equal(read[name], whole[name])
