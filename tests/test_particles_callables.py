"""Energies of a user's functions: gradients, the pair sum by loops, coincident pairs, what is refused, what is recorded."""

from __future__ import annotations

import functools
import json
import math
import tracemalloc

import numpy as np
import pytest
import torch

from particles import naive
from particles.callables import External, Pair
from particles.domain import Ball, Torus
from particles.energy import Energy, Quadratic, Sum
from particles.fingerprint import describe_callable
from particles.langevin import Langevin
from particles.riesz import Riesz
from particles.simulate import simulate

OMEGA = np.random.default_rng(2).normal(size=(2, 5, 3))
SHAPES = [OMEGA, OMEGA[0], OMEGA[0, :1], OMEGA[:, :4, :1]]


def trap(w):
    return (w**2).sum(-1) / 2 + w[..., 0] ** 3 / 7


def trap_slope(w):
    bend = 0 * w
    bend[..., 0] = 3 * w[..., 0] ** 2 / 7
    return w + bend


def waves(w):
    return torch.cos(2 * w).sum(-1) + torch.exp(-(w**2).sum(-1))


def yukawa(r):
    return torch.exp(-r) / r


ENERGIES = {
    "external": lambda: External(trap, trap_slope, name="trap"),
    "external by torch": lambda: External(waves, name="waves"),
    "pair": lambda: Pair(lambda r: r**-1.5, lambda r: -1.5 * r**-2.5, name="power"),
    "pair by torch": lambda: Pair(yukawa, name="yukawa"),
    "sum": lambda: Pair(yukawa, name="yukawa") + External(waves, name="waves") + Riesz(1, 0.3) + Quadratic(1.0),
}


@pytest.mark.parametrize("make", ENERGIES.values(), ids=ENERGIES.keys())
@pytest.mark.parametrize("omega", SHAPES, ids=lambda w: str(w.shape))
def test_value_gradient_torch_autograd_and_differences_agree(make, omega):
    energy = make()
    value, (terms, gradient) = np.asarray(energy.value(omega)), energy.value_and_grad(omega)
    assert value.shape == omega.shape[:-2]
    assert gradient.dtype == omega.dtype
    np.testing.assert_allclose(sum(terms.values()), value, rtol=1e-13, atol=1e-16)
    np.testing.assert_array_equal(energy.gradient(omega), gradient)
    numerical = omega.shape[-2] * naive.numerical_gradient(lambda w: float(np.sum(energy.value(w))), omega)
    np.testing.assert_allclose(gradient, numerical, atol=1e-7 * abs(numerical).max() + 1e-10)
    tensor = torch.tensor(omega, requires_grad=True)
    torch_value, (_, torch_gradient) = energy.value(tensor), energy.value_and_grad(tensor)
    torch_value.sum().backward()
    np.testing.assert_allclose(torch_value.detach().numpy(), value, rtol=1e-12)
    np.testing.assert_allclose(torch_gradient.numpy(), gradient, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(omega.shape[-2] * tensor.grad.numpy(), gradient, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("make", ENERGIES.values(), ids=ENERGIES.keys())
def test_single_precision_stays_single(make):
    energy, single = make(), OMEGA.astype(np.float32)
    exact = energy.gradient(single.astype(np.float64))
    for omega in (single, torch.from_numpy(single)):
        gradient = energy.gradient(omega)
        assert gradient.dtype == omega.dtype
        np.testing.assert_allclose(np.asarray(gradient), exact, rtol=2e-4, atol=2e-5)
        assert "float64" in str(np.asarray(energy.value(omega)).dtype)


@pytest.mark.parametrize("make", ENERGIES.values(), ids=ENERGIES.keys())
def test_a_chain_has_the_bits_that_it_has_alone(make):
    energy, omega = make(), np.random.default_rng(3).normal(size=(3, 40, 2))
    together = energy.gradient(omega)
    for c in range(3):
        np.testing.assert_array_equal(energy.gradient(omega[c]), together[c])


TORUS = (2.0, 3.0, 1.5)
PERIODIC = {
    "by torch": lambda: Pair(yukawa, name="yukawa", period=TORUS),
    "by derivative": lambda: Pair(lambda r: 1 / r, lambda r: -1 / r**2, name="coulomb", period=2.0),
}


def test_two_particles_on_a_torus_by_hand():
    """At 0.1 and 0.9 of a circle of length 1 they are 0.2 apart and push each other across the seam: H = g(0.2)/4, N grad = g'(0.2)/1."""
    pair = Pair(lambda r: r**2 / 2, lambda r: r, name="spring", period=1.0)
    for array in (np.asarray, torch.as_tensor):
        omega = array(np.array([[0.1], [0.9]]))
        assert float(pair.value(omega)) == pytest.approx(0.2**2 / 2 / 2, rel=1e-13)
        np.testing.assert_allclose(np.asarray(pair.gradient(omega)), [[0.2], [-0.2]], rtol=1e-13)
        assert float(pair.diagnostics(omega)["min_gap"]) == pytest.approx(0.2, rel=1e-13)
        same = pair.diagnostics(array(np.array([[0.0], [1.0], [0.5]])))  # one point of the circle twice
        assert {k: float(v) for k, v in same.items()} == {"coincident": 1, "min_gap": 0}
    alone = Pair(lambda r: r**2 / 2, lambda r: r, name="spring").gradient(np.array([[0.1], [0.9]]))
    np.testing.assert_allclose(alone, [[-0.8], [0.8]])  # without the period the other way round


@pytest.mark.parametrize("make", PERIODIC.values(), ids=PERIODIC.keys())
@pytest.mark.parametrize("omega", SHAPES[:3], ids=lambda w: str(w.shape))
def test_on_a_torus_loops_torch_differences_and_lattice_shifts_agree(make, omega):
    energy = make()
    value, gradient = np.asarray(energy.value(omega)), energy.gradient(omega)
    g, slope = {"yukawa": (lambda r: math.exp(-r) / r, lambda r: -math.exp(-r) * (1 / r + 1 / r**2))}.get(
        energy.term, (lambda r: 1 / r, lambda r: -1 / r**2)
    )
    for w, h, d in zip(omega.reshape(-1, *omega.shape[-2:]), value.reshape(-1), gradient.reshape(-1, *omega.shape[-2:])):
        expected = naive.pair(w, g, slope, np.broadcast_to(energy.period, 3))
        assert h == pytest.approx(expected[0], rel=1e-12)
        np.testing.assert_allclose(d, expected[1], rtol=1e-11, atol=1e-13)
    numerical = omega.shape[-2] * naive.numerical_gradient(lambda w: float(np.sum(energy.value(w))), omega)
    np.testing.assert_allclose(gradient, numerical, atol=1e-6 * abs(numerical).max() + 1e-10)
    np.testing.assert_allclose(energy.gradient(torch.tensor(omega)).numpy(), gradient, rtol=1e-12, atol=1e-14)
    shifted = omega + np.random.default_rng(0).integers(-3, 4, omega.shape) * energy.period
    np.testing.assert_allclose(energy.value(shifted), value, rtol=1e-12)
    np.testing.assert_allclose(energy.gradient(shifted), gradient, rtol=1e-10, atol=1e-12)
    for array in (np.asarray, torch.as_tensor):
        found = [{k: np.asarray(v) for k, v in energy.diagnostics(array(w)).items()} for w in (omega, shifted)]
        np.testing.assert_allclose(found[0]["min_gap"], found[1]["min_gap"], rtol=1e-12)
        assert found[0]["min_gap"].shape == found[0]["coincident"].shape == omega.shape[:-2]
        assert found[0]["coincident"].dtype == np.int64
        assert not found[1]["coincident"].any()


def test_on_a_large_torus_nothing_changes():
    omega = np.random.default_rng(5).normal(size=(2, 300, 2))
    plain, wide = (Pair(lambda r: 1 / r, lambda r: -1 / r**2, name="pair", period=p) for p in (None, 100.0))
    np.testing.assert_array_equal(wide.gradient(omega), plain.gradient(omega))
    for name, value in plain.diagnostics(omega).items():
        np.testing.assert_allclose(wide.diagnostics(omega)[name], value, rtol=1e-13)


def test_a_run_on_a_torus_needs_pairs_of_its_period():
    torus, sampler = Torus((2.0, 2.0)), Langevin(0.01, 5.0)
    start = torus.sample(10, 0)
    for period in (None, 1.0, (2.0, 3.0)):
        energy = Quadratic(0.0) + Pair(yukawa, name="yukawa", period=period)
        with pytest.raises(ValueError, match="period of Pair must be that of the domain"):
            simulate(start, energy, torus, sampler, n_steps=1, rng=0)
    run = simulate(start, Pair(yukawa, name="yukawa", period=2.0), torus, sampler, n_steps=20, rng=0)
    assert (run.min_gap <= math.sqrt(2)).all()
    descriptions = [Pair(yukawa, name="y", period=p).describe()["period"] for p in (None, 2, (1.0, 2.0), np.ones(2))]
    assert descriptions == [None, 2.0, [1.0, 2.0], [1.0, 1.0]]


def test_pair_energy_by_loops():
    value, gradient = naive.pair(OMEGA[0], lambda r: math.exp(-r) / r, lambda r: -math.exp(-r) * (1 / r + 1 / r**2))
    energy = Pair(yukawa, name="yukawa")
    assert float(energy.value(OMEGA[0])) == pytest.approx(value, rel=1e-13)
    np.testing.assert_allclose(energy.gradient(OMEGA[0]), gradient, rtol=1e-12)


@pytest.mark.parametrize("s", [0, 1, 2.5, -1])
@pytest.mark.parametrize("n", [1, 2, 37, 700])
def test_the_riesz_kernel_as_a_callable_is_riesz(s, n):
    omega = np.random.default_rng(n).normal(size=(n, 3))
    value, slope = {
        0: (lambda r: -0.7 * np.log(r), lambda r: -0.7 / r),
        1: (lambda r: 0.7 / r, lambda r: -0.7 / r**2),
        2.5: (lambda r: 0.7 * r**-2.5, lambda r: -1.75 * r**-3.5),
        -1: (lambda r: -0.7 * r, lambda r: -0.7 + 0 * r),
    }[s]
    mine, twin = Pair(value, slope, name="pair"), Riesz(s, 0.7)
    assert float(mine.value(omega)) == pytest.approx(float(twin.value(omega)), rel=1e-12, abs=1e-15)
    np.testing.assert_allclose(mine.gradient(omega), twin.gradient(omega), rtol=1e-10, atol=1e-12)
    assert {k: float(v) for k, v in mine.diagnostics(omega).items()} == {k: float(v) for k, v in twin.diagnostics(omega).items()}


@pytest.mark.parametrize("array", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])
def test_coincident_pairs_exert_no_force_and_have_the_value_at_zero(array):
    """x0 = x1 = 0, x2 = e1: a bare singularity has infinite energy, a value that is finite at 0 is exact; the far pairs act as ever."""
    omega = array(np.array([[0.0, 0, 0], [0, 0, 0], [1, 0, 0]]))
    expected = np.array([[1.0, 0, 0], [1, 0, 0], [-2, 0, 0]]) / 2  # minus the force
    for value, slope, energy in (
        (lambda r: 1 / r, lambda r: -1 / r**2, math.inf),
        (lambda r: (2 - r) ** 1, lambda r: -1 + 0 * r, (2 + 1 + 1) * 2 / 12),
        (lambda r: 1 / r - 1 / r + 1 - r, lambda r: -1 + 0 * r, math.inf),  # NaN at 0
    ):
        pair = Pair(value, slope, name="pair")
        terms, gradient = pair.value_and_grad(omega)
        assert float(terms["pair"]) == pytest.approx(energy)
        np.testing.assert_allclose(np.asarray(gradient), expected, atol=1e-15)
        assert int(pair.diagnostics(omega)["coincident"]) == 1
    tensor = torch.tensor(np.asarray(omega), requires_grad=True)
    Pair(lambda r: torch.exp(-r), name="soft").value(tensor).backward()
    assert bool(tensor.grad.isfinite().all())


def test_memory_does_not_grow_with_the_number_of_pairs():
    omega = np.random.default_rng(0).normal(size=(4000, 2))
    energy = Pair(lambda r: 1 / r, lambda r: -1 / r**2, name="pair")
    energy.gradient(omega[:10])
    tracemalloc.start()
    energy.gradient(omega)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6  # all distances alone take 128 MB


def test_a_derivative_that_is_not_the_values_is_refused():
    """Wrong signs and factors, one coordinate or all; kinks and singularities of a right one are no fault."""
    for array in (np.asarray, torch.as_tensor):
        for dtype in (np.float32, np.float64):
            omega = array(np.random.default_rng(1).normal(size=(50, 2)).astype(dtype))
            for slope in (lambda w: -trap_slope(w), lambda w: 2 * trap_slope(w), lambda w: w):
                with pytest.raises(ValueError, match=r"gradient must be the derivative of value.*%"):
                    External(trap, slope, name="trap").gradient(omega)
            for slope in (lambda r: 1 / r**2, lambda r: -1 / r, lambda r: -2 / r**2):
                with pytest.raises(ValueError, match="derivative must be the derivative of value"):
                    Pair(lambda r: 1 / r, slope, name="pair").value(omega)
            External(trap, trap_slope, name="trap").gradient(omega)
            External(lambda w: abs(w).sum(-1), lambda w: (w > 0) * 2.0 - 1, name="edge").gradient(omega)
    with np.errstate(all="ignore"):  # a barrier, infinite beyond the wall, which a difference crosses
        wall = np.array([[0.0], [0.999999999], [-0.5], [0.2]])
        External(lambda w: -np.log(1 - w[..., 0] ** 2), lambda w: 2 * w / (1 - w**2), name="barrier").gradient(wall)
    External(lambda w: 0 * w[..., 0], lambda w: 0 * w, name="flat").gradient(np.zeros((3, 2)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sum(3), r"energies must be one or more Energy objects, got \(3,\)"),
        (lambda: Quadratic([1, [2]]), "stiffness must be an array whose rows have one length"),
        (lambda: External(3, name="v"), "value must be callable"),
        (lambda: External(trap, 3, name="v"), "gradient must be callable"),
        (lambda: Pair(trap, 3, name="v"), "derivative must be callable"),
        (lambda: External(trap, name=""), "name must be a word"),
        (lambda: External(trap, name="two words"), "name must be a word"),
        (lambda: Pair(trap, name=7), "name must be a word"),
        (lambda: Pair(trap, name="v", period=-1.0), "period must be positive"),
        (lambda: Pair(trap, name="v", period=[[1.0]]), "period must be one number or one per coordinate"),
        (lambda: Pair(yukawa, name="v", period=(1.0, 2.0)).value(OMEGA), "period must have 3 numbers for omega of dim 3"),
        (lambda: External(lambda w: np.exp(w).sum(-1), name="v").value(OMEGA), "without gradient value must be made of torch operations"),
        (lambda: External(lambda w: torch.zeros(2, 5), name="v").value(OMEGA), "without gradient value must be made of torch"),
        (lambda: Pair(lambda r: np.exp(r), name="v").gradient(OMEGA), "without derivative value must be made of torch"),
        (lambda: External(lambda w: w.sum(), name="v").value(OMEGA), r"value must return shape \(2, 5\)"),
        (lambda: External(lambda w: w, lambda w: w, name="v").value(OMEGA), r"value must return an array of shape \(2, 5\)"),
        (lambda: External(trap, lambda w: w[..., 0], name="v").gradient(OMEGA), r"gradient must return an array of shape \(2, 5, 3\)"),
        (lambda: Pair(lambda r: 1.0, lambda r: r, name="v").value(OMEGA), "value must return an array"),
        (lambda: External(trap, lambda w: w.numpy(), name="v").gradient(torch.tensor(OMEGA)), "gradient must return a torch tensor"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_nan_is_not_hidden():
    omega = np.array([[1.0, 0.0], [-1.0, 0.0], [3.0, 0.0]])
    with np.errstate(all="ignore"):
        energy = External(
            lambda w: np.log(w[..., 0]), lambda w: np.stack([1 / np.where(w[..., 0] > 0, w[..., 0], np.nan), w[..., 1]], -1), name="log"
        )
        assert np.isnan(energy.value(omega))
        assert np.isnan(energy.gradient(omega)).any()
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match="omega must be finite"):
            (External(trap, trap_slope, name="v") + Quadratic(1.0)).gradient(np.full((2, 2), bad))


def test_what_a_run_records_of_a_function():
    first, again = (External(trap, trap_slope, name="trap").describe() for _ in range(2))
    assert first == again == json.loads(json.dumps(first))
    assert first["name"] == "External"
    assert first["term"] == "trap"
    assert first["value"]["name"] == "trap"
    assert first["value"]["code"] != first["gradient"]["code"]

    def scaled(by):
        return lambda w: by * w

    codes = [
        describe_callable(f)["code"]
        for f in (scaled(1.0), scaled(2.0), scaled(np.ones(2)), scaled(np.zeros(2)), scaled(trap), scaled(waves))
    ]
    codes += [describe_callable(functools.partial(max, 1))["code"], describe_callable(functools.partial(trap, 1))["code"]]
    assert codes.pop(6) is None  # no source
    assert len(set(codes)) == len(codes)
    assert describe_callable(scaled(2.0))["code"] == codes[1]
    twins = [lambda w: w + max(x for x in (1, 2)), lambda w: w + max(x for x in (1, 2)), lambda w: w + max(x for x in (1, 3))]  # one line
    first, second, third = (describe_callable(f)["code"] for f in twins)
    assert first == second != third
    assert describe_callable(np.exp) == {"name": "exp", "code": None}
    model = torch.nn.Linear(2, 1)
    assert describe_callable(model)["name"] == "Linear"


def test_energies_of_callables_run():
    """An overdamped run in a user's trap and repulsion: the terms add up, and the store says what moved it."""
    energy = External(trap, trap_slope, name="trap") + Pair(lambda r: 0.3 / r, lambda r: -0.3 / r**2, name="coulomb")
    twin = External(trap, trap_slope, name="trap") + Riesz(1, 0.3)
    start = Ball(1.5, 3).sample(20, 0)
    runs = [simulate(start, e, Ball(1.5, 3), Langevin(1e-3, 5.0), n_steps=20, save_every=10, rng=1) for e in (energy, twin)]
    np.testing.assert_allclose(runs[0].omega, runs[1].omega, atol=1e-11)
    np.testing.assert_allclose(runs[0].energy, runs[0].energy_trap + runs[0].energy_coulomb)
    np.testing.assert_allclose(runs[0].min_gap, runs[1].min_gap)
    assert "coulomb" in runs[0].attrs["energy"]


def test_sums_merge_the_choices_of_their_parts():
    class Chosen(Quadratic):
        def choices(self, omega):
            return {"quadratic": f"fast at {omega.shape[-2]}"}

    assert Quadratic(1.0).choices(OMEGA) == {}
    assert (Quadratic(1.0) + External(trap, trap_slope, name="v")).choices(OMEGA) == {}
    assert Sum([Chosen(1.0), Chosen(2.0)]).choices(OMEGA) == {"quadratic": "fast at 5", "quadratic_2": "fast at 5"}


def test_a_sum_checks_its_particles_once_and_uses_what_its_parts_override(monkeypatch):
    calls = []
    monkeypatch.setattr("particles.energy.as_omega", lambda omega: calls.append(1) or omega)

    class Own(Energy):
        def value_and_grad(self, omega, *, key=None):
            return {"own": omega.sum((-2, -1))}, 2 * omega

        def gradient(self, omega, *, key=None):
            return 2 * omega

    energy = Quadratic(1.0) + Quadratic(0.5) + Own()
    np.testing.assert_allclose(energy.gradient(OMEGA), 3.5 * OMEGA)
    assert len(calls) == 1
    terms, gradient = energy.value_and_grad(OMEGA)
    assert len(calls) == 2
    assert list(terms) == ["quadratic", "quadratic_2", "own"]
    np.testing.assert_allclose(gradient, 3.5 * OMEGA)
