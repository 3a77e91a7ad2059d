"""The Riesz repulsion in all its forms: one energy and one gradient on every back end, exact values, every method, bad input."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
import xarray as xr

from particles import naive
from particles.energy import Quadratic
from particles.fast_sum import random_batch_sums
from particles.pairwise import riesz_sums
from particles.riesz import Riesz

EXPONENTS = [-1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 2.5, math.pi, 4, "coulomb"]
FORMS: list[dict] = [
    {},
    {"softening": 0.3},
    {"truncation": 1.1},
    {"length": 1.7, "mirror": True},
    {"softening": 0.2, "length": 0.6, "mirror": True},
    {"truncation": 0.9, "length": 0.6, "mirror": True},
    {"period": 2.5},
    {"period": 3.0, "mirror": True, "softening": 0.1},
    {"period": 2.0, "truncation": 0.6, "length": 1.3, "mirror": True},
]


def cloud(*shape, seed=2, spread=2.0):
    return spread * np.random.default_rng(seed).normal(size=shape)


def tell_one_story(energy, omega, h):
    """value, value_and_grad, gradient, torch, autograd and fourth-order differences of the public value agree."""
    value, (terms, gradient) = np.asarray(energy.value(omega)), energy.value_and_grad(omega)
    np.testing.assert_allclose(sum(terms.values()), value, rtol=1e-13)
    np.testing.assert_array_equal(energy.gradient(omega), gradient)
    numerical = omega.shape[-2] * naive.numerical_gradient(lambda w: float(np.sum(energy.value(w))), omega, h)
    size = np.abs(numerical).max()
    assert np.abs(gradient - numerical).max() <= 1e-7 * size + 1e-10
    tensor = torch.tensor(omega, requires_grad=True)
    torch_value, (_, torch_gradient) = energy.value(tensor), energy.value_and_grad(tensor)
    torch_value.sum().backward()
    np.testing.assert_allclose(torch_value.detach().numpy(), value, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(torch_gradient.numpy(), gradient, rtol=0, atol=1e-12 * size + 1e-15)
    np.testing.assert_allclose(omega.shape[-2] * tensor.grad.numpy(), gradient, rtol=0, atol=1e-11 * size + 1e-14)


@pytest.mark.parametrize("s", EXPONENTS)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_gradient_is_that_of_the_value_in_every_form(s, form):
    for shape in ((5, 3), (2, 4, 2), (2, 1), (3, 4)):
        tell_one_story(Riesz(s, 0.7, **form), cloud(*shape), h=3e-5 if s == 4 else 1e-4)  # steep kernels bend within 1e-4
    tell_one_story(Riesz(s, 0.7, **form) + Quadratic([0.5, 1.0], [1.0, -2.0]), cloud(3, 5, 2), h=3e-5)


@pytest.mark.parametrize("s", [-1.0, 0.0, 1.0, 1.3, 4.0])
@pytest.mark.parametrize("form", [*FORMS, {"period": (2.0, 5.0, 1.5), "mirror": True}], ids=str)
def test_every_form_equals_the_loops_on_both_back_ends(s, form):
    omega = cloud(6, 3)
    slow = naive.pair_sum(omega, s, **form)
    for make in (np.asarray, torch.tensor):
        total, gradient = riesz_sums(make(omega), s, **form)
        assert float(total) == pytest.approx(slow[0], rel=1e-12)
        np.testing.assert_allclose(np.asarray(gradient), slow[1], rtol=0, atol=1e-12 * np.abs(slow[1]).max())


def rows_by_broadcasting(omega, s, rows):
    """(energy, gradient) of some rows in float64."""
    gap = omega[rows, None] - omega
    q = (gap**2).sum(-1)
    q[np.arange(len(rows)), rows] = np.inf
    with np.errstate(divide="ignore"):
        g = np.where(np.isinf(q), 0, -0.5 * np.log(q) if s == 0 else math.copysign(1, s) * q ** (-s / 2))
    return g.sum(1), -(abs(s) or 1.0) * (q[..., None] ** (-s / 2 - 1) * gap).sum(1)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 255, 256, 257, 1000])
@pytest.mark.parametrize("dim", [1, 2, 3, 8, 16, 64])
def test_awkward_sizes_in_float64_and_float32(n, dim):
    omega = cloud(n, dim, seed=n, spread=1.0)
    rows = np.unique(np.linspace(0, n - 1, 7).astype(int))
    for s in (0.0, 1.0, 0.5, 1.3, -0.5, 4.0):
        energies, slow = rows_by_broadcasting(omega, s, rows)
        total, gradient = riesz_sums(omega, s)
        size = np.abs(gradient).max() + 1e-300
        assert np.abs(gradient[rows] - slow).max() <= 1e-12 * size
        if len(rows) == n:
            assert float(total) == pytest.approx(energies.sum(), rel=1e-12)
        single = riesz_sums(omega.astype(np.float32), s)[1]
        exact = riesz_sums(omega.astype(np.float32).astype(np.float64), s)[1]
        assert np.abs(single - exact).max() <= 1e-5 * size


@pytest.mark.parametrize("change", ["readonly", "fortran", "strided", "negative", "labelled", "tensor", "integer"])
@pytest.mark.parametrize("form", [{}, {"period": 2.5, "mirror": True}], ids=str)
def test_inputs_of_any_layout_stay_as_they_are(change, form):
    base = np.round(cloud(8, 3) * 64) / 64
    omega = {
        "readonly": base.copy(), "fortran": np.asfortranarray(base), "strided": np.repeat(base, 2, 0)[::2], "negative": base[::-1, ::-1],
        "labelled": xr.DataArray(base.T, dims=["dim", "particle"]), "tensor": torch.tensor(base.T).T,
        "integer": np.round(9 * base).astype(int),
    }[change]  # fmt: skip
    if change == "readonly":
        omega.flags.writeable = False
    before = np.asarray(omega).copy()
    plain = np.asarray(omega.T if change == "labelled" else omega).astype(float)
    value, (terms, gradient) = Riesz(1.3, 0.7, **form).value(omega), Riesz(1.3, 0.7, **form).value_and_grad(omega)
    expected = Riesz(1.3, 0.7, **form).value_and_grad(plain)
    assert float(value) == float(terms["riesz"]) == pytest.approx(float(expected[0]["riesz"]), rel=1e-14)
    np.testing.assert_allclose(np.asarray(gradient), expected[1], rtol=1e-11, atol=1e-13)
    np.testing.assert_array_equal(np.asarray(omega), before)


def test_coincident_pairs_by_the_definition_and_inside_a_truncation():
    """Bare: energy infinite, no force from that pair; truncated: exactly g(truncation); softened: exact."""
    omega = np.array([[0.0, 0, 0], [0, 0, 0], [1, 0, 0]])
    assert naive.pair_sum(omega, 1.0)[0] == np.inf
    np.testing.assert_array_equal(naive.pair_sum(omega, 1.0)[1][:, 0], [1, 1, -2])
    for make in (np.asarray, torch.tensor):
        for s in (0.0, 1.0, 2.5, -1.0):
            total, gradient = riesz_sums(make(omega), s, truncation=0.25)
            pair = math.log(4) if s == 0 else math.copysign(1, s) * 4**s
            assert float(total) == pytest.approx(2 * pair + 4 * (math.copysign(1, s) if s else 0), rel=1e-14)
            np.testing.assert_allclose(np.asarray(gradient)[:, 0], (abs(s) or 1) * np.array([1, 1, -2]))
        assert float(riesz_sums(make(omega), 1.0, softening=0.5)[0]) == pytest.approx(4 + 4 / math.sqrt(1.25), rel=1e-14)
        assert float(riesz_sums(make(omega), 1.0, period=2.0)[0]) == np.inf
    energy = Riesz(1, 1.0, period=1.0)  # 0 and 1 are one point of the circle
    assert energy.value(np.array([[0.0], [1.0], [0.5]])) == np.inf
    assert energy.diagnostics(np.array([[0.0], [1.0], [0.5]]))["coincident"] == 1


def test_truncated_kernel_is_flat_inside_and_bare_outside():
    energy, bare = Riesz(1.5, 1.0, truncation=0.5), Riesz(1.5, 1.0)
    for gap, inside in ((0.1, True), (0.49, True), (0.5, False), (2.0, False)):
        pair = np.array([[0.0, 0.0], [gap, 0.0]])
        assert float(energy.value(pair)) == pytest.approx(min(gap**-1.5, 0.5**-1.5) / 2, rel=1e-14)
        assert bool((energy.gradient(pair) == 0).all()) == inside
        if not inside:
            np.testing.assert_array_equal(energy.gradient(pair), bare.gradient(pair))


@pytest.mark.parametrize("make", [np.asarray, torch.tensor], ids=["numba", "torch"])
@pytest.mark.parametrize("mirror", [False, True])
def test_shift_by_lattice_vectors_changes_no_bit_on_the_torus(make, mirror):
    omega = np.round(cloud(7, 2) * 2**20) / 2**20  # exact sums
    moved = omega + np.array([2.5, 4.0]) * np.random.default_rng(0).integers(-3, 4, size=(7, 2))
    for s in (0.0, 1.0, -0.5, 2.2):
        energy = Riesz(s, 1.0, period=(2.5, 4.0), mirror=mirror)
        here, there = energy.value_and_grad(make(omega)), energy.value_and_grad(make(moved))
        assert float(here[0]["riesz"]) == float(there[0]["riesz"])
        np.testing.assert_array_equal(np.asarray(here[1]), np.asarray(there[1]))
        if not mirror:  # any common shift
            np.testing.assert_allclose(np.asarray(energy.gradient(make(omega + 0.3))), np.asarray(here[1]), rtol=1e-9, atol=1e-12)
    control = Riesz(1.0, 1.0, period=(2.4, 4.0)).value(make(moved))
    assert abs(float(control) / float(Riesz(1.0, 1.0, period=(2.4, 4.0)).value(make(omega))) - 1) > 1e-3


def test_regular_polygon_on_the_circle():
    """C2.5 and C1.4: chords of the unit circle, sum over ordered pairs of -log = -N log N; no force. Any other period shifts the log."""
    for n, period in ((12, 2 * math.pi), (7, 3.3)):
        polygon = (period / n * np.arange(n) + 0.2)[:, None]
        energy = Riesz(0, 2 * n * (n - 1), period=period)
        expected = -n * math.log(n) - n * (n - 1) * math.log(period / (2 * math.pi))
        assert float(energy.value(polygon)) == pytest.approx(expected, rel=1e-12)
        assert np.abs(energy.gradient(polygon)).max() < 1e-10 * n
        perturbed = polygon + 0.01 * np.arange(n)[:, None] ** 2 / n
        assert float(energy.value(perturbed)) > expected + 1e-3  # the polygon is the minimum


@pytest.mark.parametrize("s", [0, 0.5, 1.3, -0.7])
def test_virial_identity_fails_once_the_kernel_is_softened_or_truncated(s):
    """C2.6: (1/N) sum x.F = |s| H, or strength/2 for the log, whatever the configuration; its negative controls."""
    omega = cloud(11, 3, seed=8, spread=1.0)

    def defect(energy):
        virial = -float((omega * energy.gradient(omega)).sum()) / 11
        return virial / (0.35 if s == 0 else abs(s) * abs(float(energy.value(omega)))) - 1

    assert abs(defect(Riesz(s, 0.7))) < 1e-12
    for control in (Riesz(s, 0.7, softening=0.5), Riesz(s, 0.7, truncation=1.5), Riesz(s, 0.7, period=4.0)):
        assert abs(defect(control)) > 0.01


@pytest.mark.parametrize("make", [np.asarray, torch.tensor], ids=["numba", "torch"])
def test_near_pairs_on_the_torus_keep_their_digits_in_float32(make):
    """Rounded to float32, the points on the circles would lose them: gaps here are 1e-5 of the period."""
    omega = (1 + np.array([0.0, 1e-5, 5e-5])[:, None]).astype(np.float32)
    total, gradient = riesz_sums(make(omega), 1.3, period=2.5)
    exact, force = riesz_sums(omega.astype(np.float64), 1.3, period=2.5)
    assert float(total) == pytest.approx(float(exact), rel=1e-12)
    assert gradient.dtype == make(omega).dtype
    np.testing.assert_allclose(np.asarray(gradient), force, rtol=1e-6)
    with pytest.raises(OverflowError, match="float32"):
        riesz_sums(make(omega), 9.0, period=2.5)


@pytest.mark.parametrize(("s", "n", "value"), [(2, 50, 2.9487), (2, 400, 3.2358), (3, 50, 2.2012), (3, 400, 2.3780)])
def test_equispaced_points_have_the_hypersingular_energy(s, n, value):
    """C1.9: sum over ordered pairs / N^(1 + s) on [0, 1], s > d."""
    line = np.linspace(0, 1, n)[:, None]
    assert float(Riesz(s, 2 * n * (n - 1)).value(line)) / n ** (1 + s) == pytest.approx(value, abs=6e-5)


@pytest.mark.parametrize(("s", "zeta"), [(4, 5.7833592997), (3, 8.8927451004)])
def test_triangular_lattice_sum(s, zeta):
    """C1.8: what a particle at the origin adds to a disc of the lattice of unit covolume; the tail outside is an integral."""
    radius, side = 40.0, math.sqrt(2 / math.sqrt(3))
    a, b = np.meshgrid(np.arange(-60, 61), np.arange(-60, 61))
    lattice = side * np.column_stack([(a + b / 2).ravel(), (math.sqrt(3) / 2 * b).ravel()])
    length = np.sqrt((lattice**2).sum(1))
    ring = lattice[(length > 0) & (length < radius)]
    with_origin, without = (float(riesz_sums(points, float(s))[0]) for points in (np.vstack([[[0, 0]], ring]), ring))
    assert (with_origin - without) / 2 + 2 * math.pi * radius ** (2 - s) / (s - 2) == pytest.approx(zeta, rel=1e-3)


def test_exponents_of_any_type_give_one_result():
    omega = cloud(9, 3)
    for one in (1, np.float32(1), np.int64(1)):
        assert Riesz(one, 0.7) == Riesz(1.0, 0.7)
        np.testing.assert_array_equal(Riesz(one, 0.7).gradient(omega), Riesz(1.0, 0.7).gradient(omega))


def test_no_strength_means_nothing_even_at_coincidence():
    omega = np.zeros((3, 2))
    terms, gradient = Riesz(1, 0.0).value_and_grad(omega)
    assert float(terms["riesz"]) == 0
    assert not gradient.any()


def test_value_can_be_differentiated_once():
    for form in ({}, {"period": 2.5, "mirror": True}):
        omega = torch.tensor(cloud(5, 2), requires_grad=True)
        (gradient,) = torch.autograd.grad(Riesz(1, 1.0, **form).value(omega), omega, create_graph=True)
        assert bool(gradient.isfinite().all())
        with pytest.raises(RuntimeError, match=r"require grad"):
            gradient.sum().backward()


# Methods


@pytest.mark.parametrize("make", [np.asarray, torch.tensor], ids=["numpy", "torch"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "energy",
    [Riesz(0.5, 2.0, mirror=True, method="tree", tolerance=1e-3), Riesz(1, 2.0, period=3.0, method="tree", tolerance=1e-3)],
    ids=repr,
)
def test_fast_sums_serve_chains_types_and_images(make, dtype, energy):
    dim = 1 if energy.period else 3
    omega = make(cloud(2, 400, dim, spread=1.0).astype(dtype))
    exact = Riesz(energy.s, 2.0, mirror=energy.mirror, period=energy.period)
    (terms, gradient), (right, direct) = energy.value_and_grad(omega), exact.value_and_grad(omega)
    assert gradient.dtype == omega.dtype
    np.testing.assert_allclose(np.asarray(terms["riesz"]), np.asarray(right["riesz"]), rtol=1e-3)
    error = np.linalg.norm(np.asarray(gradient) - np.asarray(direct)) / np.linalg.norm(np.asarray(direct))
    assert error < 1e-3
    np.testing.assert_array_equal(np.asarray(energy.gradient(omega[1])), np.asarray(gradient)[1])
    assert energy.choices(omega) == {"riesz": "tree (numba)"}
    if make is torch.tensor and dtype is np.float64:
        omega.requires_grad_()
        energy.value(omega).sum().backward()
        np.testing.assert_allclose(400 * omega.grad.numpy(), np.asarray(gradient), rtol=1e-10, atol=1e-12)


def test_random_batch_draws_by_the_key():
    omega, key = cloud(2, 60, 3, spread=1.0), (5, 2, 9)
    energy = Riesz(1, 1.0, method="random_batch")
    assert energy.minibatched
    assert not Riesz(1, 1.0).minibatched
    with pytest.raises(ValueError, match="key must be given for method='random_batch', got None"):
        energy.gradient(omega)
    gradient = energy.gradient(omega, key=key)
    np.testing.assert_array_equal(energy.gradient(omega[1], key=(5, 3, 9)), gradient[1])
    expected = random_batch_sums(omega[0], omega[0], 1.0, 0.0, key=key, energy=False)[1]
    np.testing.assert_allclose(gradient[0], -expected / 59, rtol=1e-13)
    np.testing.assert_array_equal(energy.value(omega), Riesz(1, 1.0).value(omega))  # without a key: all pairs
    assert energy.choices(omega) == {"riesz": "random_batch (numba)"}


def test_no_tolerance_means_exact_sums():
    big, small = np.zeros((200_000, 3)), np.zeros((5, 3))
    for omega in (big, small):
        assert Riesz(1, 1.0).choices(omega) == {"riesz": "direct (numba)"}
        assert Riesz(1, 1.0, truncation=0.1, tolerance=1e-2).choices(omega) == {"riesz": "direct (numba)"}
    assert Riesz(1, 1.0, tolerance=1e-2).choices(small) == {"riesz": "direct (numba)"}
    assert Riesz(1, 1.0, tolerance=1e-2).choices(np.zeros((200_000, 8))) == {"riesz": "direct (numba)"}
    assert Riesz(1, 1.0).choices(torch.zeros(5, 3)) == {"riesz": "direct (torch)"}
    assert Riesz(1, 1.0, tolerance=1e-3).choices(big) == {"riesz": "tree (numba)"}
    assert Riesz(1, 1.0, tolerance=1e-3).choices(big[:20_000].astype(np.float32)) == {"riesz": "direct (numba)"}


def test_description_is_complete_and_json():
    energy = Riesz("coulomb", 1, period=[2, 3], truncation=0.1, tolerance=1e-3)
    assert json.loads(json.dumps(energy.describe())) == {
        "name": "Riesz", "s": "coulomb", "strength": 1.0, "softening": 0.0, "length": 1.0, "mirror": False,
        "truncation": 0.1, "period": [2.0, 3.0], "method": "auto", "tolerance": 0.001,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Riesz(1, 1.0, truncation=0), "truncation must be positive, got 0"),
        (lambda: Riesz(1, 1.0, truncation=0.1, softening=0.2), "truncation must be None when softening is given, got 0.1"),
        (lambda: Riesz(1, 1.0, period=-2), "period must be positive, got -2"),
        (lambda: Riesz(1, 1.0, period=[[1.0]]), "period must be one number or one per coordinate"),
        (lambda: Riesz(1, 1.0, period=()), "period must be one number or one per coordinate"),
        (lambda: Riesz(1, 1.0, period=(1.0, 2.0)).gradient(np.zeros((2, 3))), r"period must have 3 numbers .* got \(1.0, 2.0\)"),
        (lambda: Riesz(1, 1.0, method="gram"), "method must be one of auto, direct, tree, fmm, random_batch, got 'gram'"),
        (lambda: Riesz(1, 1.0, tolerance=-1e-3), "tolerance must be at least 0, got -0.001"),
        (lambda: Riesz(1, 1.0, tolerance=2), "tolerance must be below 1, got 2"),
        (lambda: Riesz(1, 1.0, softening=1e-170).gradient(np.zeros((2, 3))), "softening / length must lie between .* got 1e-170"),
        (lambda: Riesz(1, 1.0, softening=1e-25).gradient(np.zeros((2, 3), np.float32)), "softening / length must lie between 1e-19"),
        (lambda: Riesz(1, 1.0, truncation=1e200).gradient(np.zeros((2, 3))), "truncation / length must lie between"),
        (lambda: Riesz(1, 1.0, method="fmm", tolerance=1e-3).gradient(np.ones((9, 2))), "method 'fmm' needs 3 coordinates, got 2"),
        (lambda: Riesz(1, 1.0, method="tree"), "tolerance must be positive for method 'tree', got 0"),
        (lambda: Riesz(1, 1.0, method="random_batch", truncation=0.1), "method must be 'direct' or 'auto' with a truncation"),
        (lambda: Riesz(2, 1.0, method="fmm", tolerance=1e-3), "method 'fmm' needs s = 1"),
        (lambda: Riesz(1, 1.0, method="fmm", tolerance=1e-3, softening=0.1), "method 'fmm' needs s = 1, no softening"),
        (lambda: Riesz(1, 1.0, method="tree", tolerance=1e-3).gradient(np.ones((9, 5))), r"method 'tree' needs at most 3 .* got 5"),
    ],
)  # fmt: skip
def test_bad_input_is_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()
