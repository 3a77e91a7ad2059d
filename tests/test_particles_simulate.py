"""simulate and resume: what comes back, exact laws of whole runs, storage that survives, bit-identical continuation."""

from __future__ import annotations

import dataclasses
import json
import math
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import time

import numba
import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
import zarr

from particles import (
    HMC,
    MALA,
    Alignment,
    Ball,
    Box,
    DivergenceError,
    Energy,
    FullSpace,
    Langevin,
    Quadratic,
    Riesz,
    Sampler,
    geometric,
    linear,
    naive,
    open_trajectory,
    resume,
    simulate,
    trajectory,
)
from particles.random import MINIBATCH, normal

Z = 4.9  # standard errors; a two-sided false alarm of 1e-6 for each comparison
GAS = Quadratic(1.3) + Riesz(0, 0.7)


def start(n_chains=2, n_particles=8, dim=2, seed=0):
    return np.random.default_rng(seed).uniform(-0.8, 0.8, (n_chains, n_particles, dim))


def gas(omega=None, energy=GAS, domain=None, sampler=None, **options):
    """A small log gas with caps and walls at work."""
    options = {"n_steps": 20, "rng": 3, **options}
    sampler = sampler or Langevin(0.02, 4.0, drift_cap=2.0)
    return simulate(start() if omega is None else omega, energy, domain or Ball(1.2, 2), sampler, **options)


def assert_same(a: xr.Dataset, b: xr.Dataset):
    """Bit for bit, attributes aside."""
    xr.testing.assert_identical(a.load().drop_attrs(), b.load().drop_attrs())


# -------------------------------------------------------------------------------------------------------- what comes back


def test_dataset():
    omega = start()
    ds = gas(omega, save_every=5)
    assert ds.sizes == {"chain": 2, "step": 5, "particle": 8, "dim": 2}
    assert ds.step.values.tolist() == [0, 5, 10, 15, 20]
    assert ds.omega.dims == ("chain", "step", "particle", "dim")
    assert np.array_equal(ds.omega[:, 0], omega)
    names = {"energy", "energy_quadratic", "energy_riesz", "grad_norm", "projected", "capped", "coincident", "min_gap"}
    assert set(ds.data_vars) == {"omega", *names}
    assert all(ds[name].dims == ("chain", "step") for name in names)
    for i in range(5):
        np.testing.assert_allclose(ds.energy[:, i], GAS.value(ds.omega[:, i].values), rtol=1e-12)
        gradient = GAS.gradient(ds.omega[:, i].values)
        np.testing.assert_allclose(ds.grad_norm[:, i], np.sqrt((gradient**2).sum((-2, -1)) / 8), rtol=1e-12)
    np.testing.assert_allclose(ds.energy, ds.energy_quadratic + ds.energy_riesz, rtol=1e-12)
    assert json.loads(ds.attrs["energy"]) == GAS.describe()
    assert json.loads(ds.attrs["sampler"])["drift_cap"] == 2.0
    assert (json.loads(ds.attrs["seed"]), json.loads(ds.attrs["save_every"]), ds.attrs["dtype"]) == (3, 5, "float64")
    assert "numpy" in json.loads(ds.attrs["versions"])
    assert all(isinstance(value, str) for value in ds.attrs.values())


def test_fractions_are_means_over_the_steps_since_the_last_frame():
    fine, coarse = gas(save_every=1), gas(save_every=5)
    assert np.array_equal(fine.omega[:, ::5], coarse.omega)  # what is saved does not change what happens
    for name in ("projected", "capped"):
        expected = fine[name].values[:, 1:].reshape(2, 4, 5).mean(-1)
        np.testing.assert_allclose(coarse[name][:, 1:], expected, atol=1e-15)
    assert coarse.projected.max() > 0


@pytest.mark.parametrize(
    "kind", ["list", "integer", "float32", "read-only", "fortran", "big-endian", "DataArray", "DataFrame", "torch", "one chain"]
)
def test_kinds_of_start(kind):
    grid = np.stack(np.meshgrid([-1, 1], [-1, 0, 1]), -1).reshape(-1, 2) * 1.0
    omega = {
        "list": grid.tolist(),
        "integer": grid.astype(int),
        "float32": grid.astype(np.float32),
        "fortran": np.asfortranarray(grid),
        "DataArray": xr.DataArray(grid),
        "torch": torch.from_numpy(grid),
        "DataFrame": pd.DataFrame(grid),
        "big-endian": grid.astype(">f8"),
    }.get(kind, grid)
    if kind == "read-only":
        omega.flags.writeable = False
    ds = gas(omega[None] if kind == "one chain" else omega, domain=Ball(2.0, 2))
    expected = gas(grid.copy(), domain=Ball(2.0, 2))
    assert ds.omega.dtype == (np.float32 if kind == "float32" else np.float64)
    np.testing.assert_allclose(ds.omega, expected.omega, atol=2e-5 if kind == "float32" else 1e-12)
    assert np.array_equal(grid, np.stack(np.meshgrid([-1, 1], [-1, 0, 1]), -1).reshape(-1, 2))


def test_a_labelled_start_is_read_by_the_names_of_its_axes():
    labelled = gas(n_steps=5).omega.isel(step=-1)
    expected = gas(labelled.values)
    assert_same(gas(labelled.transpose("dim", "chain", "particle")), expected)
    with pytest.raises(ValueError, match="omega must have shape"):
        gas(gas(n_steps=5).omega)


def test_rng_may_be_a_generator():
    assert_same(gas(rng=np.random.default_rng(5)), gas(rng=int(np.random.default_rng(5).integers(2**63))))


def test_callback_sees_frames_and_stops():
    seen = []

    def callback(step, frame):
        seen.append((step, frame["omega"].copy()))
        frame["omega"][:] = np.nan if step == 4 else frame["omega"]  # a careless callback touches neither the run nor its record
        return step == 6

    ds = gas(save_every=2, callback=callback)
    assert [step for step, _ in seen] == [0, 2, 4, 6] == ds.step.values.tolist()
    assert np.array_equal(seen[-1][1], gas(save_every=2).omega[:, 3])
    assert_same(ds, gas(save_every=2, n_steps=6))
    assert gas(callback=lambda step, frame: "anything but True").sizes["step"] == 21
    assert gas(callback=lambda step, frame: True).sizes["step"] == 1


def test_progress_bar_changes_nothing(capsys):
    assert_same(gas(progress=True), gas())
    assert "20/20" in capsys.readouterr().err


def test_capped_runs_warn_once():
    with pytest.warns(UserWarning, match="drift_cap") as caught:
        gas(sampler=Langevin(0.02, 4.0, drift_cap=1e-3))
    assert len(caught) == 1


def on_a_wall(start=None, sampler=None, strength=1.0, **options):
    domain = Box(-1.0, 1.0)
    start = domain.sample(20, 0) if start is None else start
    return simulate(start, Riesz(0, strength), domain, sampler or Langevin(0.01, math.inf), n_steps=20, save_every=10, rng=0, **options)


def test_runs_that_end_with_particles_on_one_point_warn_once(tmp_path):
    """Projection puts both ends of a crowd on the walls, where nothing parts a bare pair any more."""
    with pytest.warns(UserWarning, match=r"[1-9]\d* coincident pairs and an energy that is not finite in 1 chains.*reflected") as caught:
        ds = on_a_wall(store=tmp_path / "run")
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert ds.coincident[0, -1] > 0
    assert ds.energy[0, -1] == math.inf
    with pytest.warns(UserWarning, match="coincident pairs"):
        resume(tmp_path / "run", Riesz(0, 1.0), Box(-1.0, 1.0), Langevin(0.01, math.inf), n_steps=30)


def test_runs_that_end_apart_or_do_not_repel_end_without_a_warning(recwarn):
    on_a_wall(sampler=Langevin(0.001, math.inf, scheme="reflected"))
    on_a_wall(strength=0.0, start=np.zeros((5, 1)))
    on_a_wall(start=np.zeros((2, 1)), callback=lambda step, frame: True)  # no step was made
    assert not recwarn.list


def test_an_infinite_energy_of_particles_apart_is_reported_as_such():
    class Wall(Quadratic):
        def _evaluate(self, omega, key, want_value):
            value, gradient = super()._evaluate(omega, key, want_value)
            return value + math.inf, gradient

    with pytest.warns(UserWarning, match="not finite in 2 chains. Some particles are where a potential is infinite"):
        simulate(np.ones((2, 3, 1)), Wall(1.0), FullSpace(1), Langevin(0.01, 1.0), n_steps=2, rng=0)


def test_the_bar_is_tqdms_for_terminals_and_notebooks(monkeypatch):
    import tqdm.auto

    shown = []
    monkeypatch.setattr(tqdm.auto, "tqdm", lambda steps, **options: shown.append(options) or steps)
    gas(progress=True)
    assert shown == [{"initial": 0, "total": 20, "unit": "step"}]


def test_attributes_say_which_algorithm_was_chosen():
    class Choosing(QuadraticAttraction):
        def choices(self, omega):
            return {"attraction": f"direct for {omega.shape[-2]}"}

    assert json.loads(gas(energy=Choosing(1.3, 0.1)).attrs["choices"]) == {"attraction": "direct for 8"}
    assert json.loads(gas(energy=Quadratic(1.3)).attrs["choices"]) == {}


class Drunk(Sampler):
    """The least that a sampler must have."""

    def advance(self, omega, energy, domain, key, memory):
        return domain.project(omega + 0.01 * normal(key, omega.shape)), {}, memory

    def describe(self):
        return {"name": "Drunk"}


def test_a_users_sampler(tmp_path):
    ds = gas(sampler=Drunk(), store=tmp_path / "run")
    assert {"projected", "capped", "acceptance"}.isdisjoint(ds.data_vars)
    assert_same(resume(tmp_path / "run", GAS, Ball(1.2, 2), Drunk(), n_steps=30), gas(sampler=Drunk(), n_steps=30))


# ------------------------------------------------------------------------------------------------------------ minibatches


class NoisyTrap(Energy):
    """A trap whose gradient carries noise of standard deviation sigma, as that of a minibatch does."""

    term, minibatched = "noisy", True

    def __init__(self, stiffness: float, sigma: float):
        self.stiffness, self.sigma = stiffness, sigma

    def _evaluate(self, omega, key, want_value):
        gradient = self.stiffness * omega + self.sigma * normal(key, omega.shape, stream=MINIBATCH)
        return self.stiffness * (omega**2).sum((-2, -1)) / (2 * omega.shape[-2]), gradient

    def describe(self):
        return {"name": "NoisyTrap", "stiffness": self.stiffness, "sigma": self.sigma}


def test_extra_temperature_of_minibatches_is_estimated_and_real():
    # Euler in a trap with both noises: variance = (1/beta + eta sigma^2 / 2) / (kappa (1 - eta kappa / 2))
    stiffness, sigma, eta, beta = 1.3, 4.0, 0.05, 2.5
    ds = simulate(
        np.zeros((4, 2000, 2)), NoisyTrap(stiffness, sigma), FullSpace(2), Langevin(eta, beta), n_steps=150, save_every=150, rng=1
    )
    extra = eta * sigma**2 / 2
    error = Z * math.sqrt(2 / 4000)  # relative, of a mean square over 4000 differences
    assert (abs(ds.extra_temperature / extra - 1) < error).all()
    assert "temperature" in ds.extra_temperature.attrs["long_name"]
    variance = np.mean(ds.omega[:, -1].values ** 2) * stiffness * (1 - eta * stiffness / 2)
    assert abs(variance / (1 / beta + extra) - 1) < Z * math.sqrt(2 / 16_000)
    assert abs(variance * beta - 1) > Z * math.sqrt(2 / 16_000)  # negative control: no extra temperature


def test_extra_temperature_follows_schedule_and_mobility():
    sampler = Langevin(linear(0.1, 0.2, 10), 4.0, preconditioner=[1.0, 3.0])
    ds = simulate(np.zeros((1, 4000, 2)), NoisyTrap(0.1, 2.0), FullSpace(2), sampler, n_steps=10, save_every=5, rng=1)
    eta = np.array([0.1, 0.14, 0.19])  # of the steps 0, 4 and 9
    np.testing.assert_allclose(ds.extra_temperature[0], eta / 2 * 4.0 * (1 + 3) / 2, rtol=0.1)
    assert "extra_temperature" not in gas()


def test_extra_temperature_of_an_alignment_is_that_of_its_batches():
    energy = minibatched().energies[0]
    omega = start(1, 6)
    ds = simulate(np.repeat(omega, 400, 0), energy, FullSpace(2), Langevin(0.3, 4.0), n_steps=0, rng=1)
    gradients = np.stack([energy.gradient(omega, key=(9, 0, step))[0] for step in range(2000)])
    expected = 0.3 / 2 * gradients.var(0).mean()
    assert abs(ds.extra_temperature.mean() / expected - 1) < 0.2


# ----------------------------------------------------------------------------------------------------------------- laws


class QuadraticAttraction(Energy):
    """A user's energy: stiffness |w|^2 / 2 in the mean, and pairs attracted by a |w - w'|^2 / 2."""

    term = "attraction"

    def __init__(self, stiffness: float, a: float):
        self.stiffness, self.a = stiffness, a

    def _evaluate(self, omega, key, want_value):
        n = omega.shape[-2]
        from_mean = omega - omega.mean(-2, keepdims=True)
        gradient = self.stiffness * omega + self.a * n / (n - 1) * from_mean
        external = self.stiffness * (omega**2).sum((-2, -1)) / (2 * n)
        return external + self.a * (from_mean**2).sum((-2, -1)) / (2 * (n - 1)), gradient

    def describe(self):
        return {"name": "QuadraticAttraction", "stiffness": self.stiffness, "a": self.a}


def test_quadratic_attraction_has_eulers_exact_modes():
    stiffness, a, beta, eta, n, n_chains = 1.3, 0.8, 6.0, 0.05, 8, 4000
    ds = simulate(
        np.zeros((n_chains, n, 1)), QuadraticAttraction(stiffness, a), FullSpace(1), Langevin(eta, beta), n_steps=160, save_every=160, rng=1
    )
    omega = ds.omega.values[:, -1, :, 0]
    mean, mode = omega.mean(-1), omega.var(-1, ddof=1)
    theta = stiffness + a * n / (n - 1)
    exact_mean = 1 / (beta * n * stiffness * (1 - eta * stiffness / 2))
    exact_mode = 1 / (beta * theta * (1 - eta * theta / 2))
    assert abs(exact_mean - 0.016564) < 5e-7
    assert abs(exact_mode - 0.079680) < 2e-5
    mean_error = (np.mean(mean**2) / exact_mean - 1) / math.sqrt(2 / n_chains)

    def mode_error(variance):
        return (mode.mean() / variance - 1) / math.sqrt(2 / (n_chains * (n - 1)))

    assert abs(mean_error) < Z
    assert abs(mode_error(exact_mode)) < Z
    assert abs(mode_error(exact_mode / 1.2)) > Z  # negative control: beta 20 % off
    assert abs(mode_error(1 / (beta * theta))) > Z  # negative control: no Euler factor
    theta = stiffness + a
    assert abs(mode_error(1 / (beta * theta * (1 - eta * theta / 2)))) > Z  # negative control: 1/N where 1/(N-1) belongs


@pytest.mark.parametrize("dim", [2, 3])
def test_second_moment_law_of_a_log_gas(dim):
    # stationarity of <|w|^2> under Euler: 2 kappa <|w|^2> = strength + 2 dim / beta + eta <|grad|^2>, exact at any step size
    stiffness, strength, beta, eta = 1.3, 0.7, 2.5, 0.02
    omega = 0.7 * np.random.default_rng(4).standard_normal((400, 10, dim))
    ds = simulate(omega, Quadratic(stiffness) + Riesz(0, strength), FullSpace(dim), Langevin(eta, beta), n_steps=600, save_every=150, rng=2)
    last = ds.isel(step=slice(1, None))  # 150 steps: the slowest mode has decayed by e^-3.9 in the mean, twice that in the square
    moment = (last.omega**2).sum("dim").mean("particle")

    def error(beta):
        gap = (2 * stiffness * moment - strength - 2 * dim / beta - eta * last.grad_norm**2).mean("step")  # one a chain
        return float(gap.mean() / (gap.std() / math.sqrt(gap.size)))

    assert abs(error(beta)) < Z
    assert abs(error(1.2 * beta)) > Z  # negative control
    assert abs(error(beta / 1.2)) > Z  # negative control


@pytest.mark.parametrize("scheme", ["projected", "reflected"])
def test_crowded_start_stays_finite_and_inside(scheme):
    # 1000 particles in [0, 0.1]^2 with s = 2: explicit steps would be astronomically large
    box = Box([0, 0], [1, 1])
    omega = 0.1 * np.random.default_rng(0).random((1000, 2))
    sampler = Langevin(1e-3, 1.0, scheme=scheme, drift_cap=0.02)
    with pytest.warns(UserWarning, match="drift_cap"):
        ds = simulate(omega, Riesz(2, 1.0), box, sampler, n_steps=100, save_every=50, rng=0)
    assert np.isfinite(ds.omega).all()
    assert box.contains(ds.omega.values).all()
    assert ds.capped.max() > 0
    ds = simulate(omega, Riesz(2, 1.0), box, Langevin(1e-3, 1.0, scheme=scheme), n_steps=10, rng=0)
    assert box.contains(ds.omega.values).all()  # inside even without the cap


# --------------------------------------------------------------------------------------------- same numbers, three ways


def naive_gradient(state, trap, riesz):
    """Identity (A.7) by the slow definition."""
    _, pairs = naive.pair_sum(state, riesz.s, softening=riesz.softening)
    return trap.stiffness * state + riesz.strength / (len(state) - 1) * pairs


@pytest.mark.parametrize("energy", [GAS, Quadratic(1.3) + Riesz(1.5, 0.4, softening=0.1)], ids=["log", "softened"])
@pytest.mark.parametrize("scheme", ["projected", "reflected"])
def test_numba_torch_and_naive_agree_for_20_steps(energy, scheme):
    omega, ball, sampler = start(), Ball(1.2, 2), Langevin(0.02, 4.0, scheme=scheme)
    into = naive.project_ball if scheme == "projected" else naive.reflect_ball
    by_numba = simulate(omega, energy, ball, sampler, n_steps=20, rng=3).omega.values
    by_torch = simulate(torch.from_numpy(omega), energy, ball, sampler, n_steps=20, rng=3).omega.values
    np.testing.assert_allclose(by_torch, by_numba, rtol=1e-10, atol=1e-12)
    trap, riesz = energy.energies
    for chain in range(2):
        state = omega[chain].copy()
        for step in range(20):
            gradient = naive_gradient(state, trap, riesz)
            noise = normal((3, chain, step), state.shape)
            state = naive.langevin_step(state, gradient, noise, 0.02, 4.0, lambda w: into(w, 1.2))
        np.testing.assert_allclose(by_numba[chain, -1], state, rtol=1e-10, atol=1e-12)


def test_chains_and_particles_are_independent_of_how_many_there_are():
    three = gas(start(3), save_every=5)
    one = gas(start(3)[:1], save_every=5)
    assert np.array_equal(three.omega[0], one.omega[0])
    assert not np.isclose(three.omega[0, -1], three.omega[1, -1]).any()
    trap = Quadratic(1.3)
    many, few = gas(energy=trap), gas(start()[:, :3], energy=trap)
    assert np.array_equal(many.omega[:, :, :3], few.omega)


@pytest.mark.parametrize("kind", ["gas", "minibatch", "shrunk", "MALA", "HMC", "torch HMC"])
def test_a_chain_alone_repeats_what_it_did_among_others(kind):
    options = {"save_every": 4, "domain": Ball(1.2, 2), **{k: v for k, v in RUNS[kind].items() if k in ("energy", "sampler")}}
    omega = start(8)
    as_kind = torch.from_numpy if "torch" in kind else np.asarray
    block = gas(as_kind(omega), **options)
    assert block.chain.values.tolist() == list(range(8))
    for chain in range(8):
        assert_same(gas(as_kind(omega[chain]), first_chain=chain, **options), block.isel(chain=[chain]))
    assert not np.isclose(gas(as_kind(omega[3]), **options).omega[0, -1], block.omega[3, -1]).all()


def test_first_chain_is_kept_by_the_store(tmp_path):
    whole = gas(first_chain=5, n_steps=30)
    gas(first_chain=5, store=tmp_path / "run")
    again = resume(tmp_path / "run", GAS, Ball(1.2, 2), Langevin(0.02, 4.0, drift_cap=2.0), n_steps=30)
    assert_same(again, whole)
    assert again.chain.values.tolist() == [5, 6]


def test_threads_and_repeats_change_no_bit_of_a_run():
    omega = np.random.default_rng(0).normal(size=(2, 500, 3))  # large enough for the parallel kernel
    model = [Quadratic(1.3) + Riesz(1.0, 0.7), Ball(9.0, 3), Langevin(1e-3, 4.0)]
    available = numba.get_num_threads()
    runs = []
    for threads in [*range(1, available + 1), 1]:
        numba.set_num_threads(threads)
        try:
            runs.append(simulate(omega, *model, n_steps=20, rng=3))
        finally:
            numba.set_num_threads(available)
    for other in runs[1:]:
        assert_same(other, runs[0])


@pytest.mark.parametrize("energy", [Quadratic(1.3), GAS], ids=["trap", "log gas"])
def test_a_step_of_few_particles_costs_little(energy):
    """64 particles in the plane take 18 microseconds of CPU time a step in a trap, 36 as a gas; the bound is for slow machines."""
    omega = start(1, 64)
    model = [energy, Ball(1.2, 2), Langevin(1e-5, 4.0)]

    def cost():
        begin = time.process_time()
        simulate(omega, *model, n_steps=1000, save_every=1000, rng=0)
        return (time.process_time() - begin) / 1000

    assert min(cost() for _ in range(3)) < 200e-6


def test_seeds_differ():
    assert not np.isclose(gas(rng=1).omega[:, -1], gas(rng=2).omega[:, -1]).any()


# -------------------------------------------------------------------------------------------------------------- storage


@pytest.fixture
def short_chunks(monkeypatch):
    monkeypatch.setattr(trajectory, "CHUNK_FRAMES", 7)


@pytest.mark.parametrize("n_steps", [0, 6, 7, 30])
def test_store_equals_memory(tmp_path, short_chunks, n_steps):
    stored = gas(n_steps=n_steps, store=tmp_path / "run")
    assert_same(stored, gas(n_steps=n_steps))
    assert_same(open_trajectory(tmp_path / "run"), stored)
    plain = xr.open_zarr(tmp_path / "run", consolidated=False, chunks=None)  # readable without this package
    assert_same(plain, stored)
    assert plain.omega.attrs["long_name"] == "particles"
    assert plain.attrs["seed"] == "3"


def minibatched():
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((60, 2)), rng.choice([-1, 1], 60)
    return Alignment(x, y, "fourier", batch_size=16) + Riesz(0, 0.1)


RUNS = {
    "gas": {},
    "every 3": {"save_every": 3},
    "minibatch": {"energy": minibatched(), "save_every": 2},
    "schedules": {"sampler": Langevin(linear(0.02, 0.001, 25), geometric(1.0, 50.0, 25), scheme="reflected"), "save_every": 3},
    "shrunk": {"sampler": Langevin(geometric(0.02, 0.001, 25), 4.0, scheme="shrunk")},
    "preconditioned": {
        "sampler": Langevin(0.02, 4.0, drift_cap=0.05, clip=5.0, preconditioner=[1.0, 0.5]),
        "domain": Box([-1, -1], [1, 1]),
    },
    "MALA": {"sampler": MALA(0.02, 4.0, tune=20), "save_every": 3},
    "HMC": {"sampler": HMC(0.08, 4.0, n_leapfrog=3, tune=20), "save_every": 2},
    "annealed HMC": {"sampler": HMC(linear(0.1, 0.05, 25), geometric(1.0, 20.0, 25), n_leapfrog=2), "domain": Box([-1, -1], [1, 1])},
    "torch HMC": {"omega": torch.from_numpy(start()), "sampler": HMC(0.08, 4.0, n_leapfrog=3, tune=20)},
    "float32": {"omega": start().astype(np.float32)},
    "torch": {"omega": torch.from_numpy(start())},
}


@pytest.mark.filterwarnings("ignore:drift_cap")
@pytest.mark.parametrize(
    ("kind", "first"), [("gas", 0), ("gas", 6), *((kind, 12) for kind in RUNS if kind == "every 3" or "torch" in kind)]
)
def test_resume_is_bit_identical(tmp_path, short_chunks, kind, first):
    options = {"energy": GAS, "domain": Ball(1.2, 2), "sampler": Langevin(0.02, 4.0), **RUNS[kind]}
    whole = gas(**options, n_steps=30)
    store = tmp_path / "run"
    gas(**options, n_steps=first, store=store)
    model = [options[name] for name in ("energy", "domain", "sampler")]
    assert_same(resume(store, *model, n_steps=first), whole.isel(step=slice(0, first // options.get("save_every", 1) + 1)))
    assert_same(resume(store, *model, n_steps=18), whole.sel(step=slice(0, 18)))
    again = resume(store, *model, n_steps=30)
    assert_same(again, whole)
    assert again.attrs["dtype"] == whole.attrs["dtype"]


def forkserver():
    """Processes that share nothing with this one and have the package loaded."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["particles", "zarr"])
    return context


@pytest.fixture(scope="module")
def new_process():
    with forkserver().Pool(1) as pool:
        yield pool


@pytest.mark.filterwarnings("ignore:drift_cap")
@pytest.mark.parametrize("kind", [kind for kind in RUNS if "torch" not in kind])
def test_200_steps_are_100_and_the_rest_in_a_new_process(tmp_path, new_process, kind):
    options = {"energy": GAS, "domain": Ball(1.2, 2), "sampler": Langevin(0.02, 4.0), **RUNS[kind]}
    if isinstance(options["sampler"], HMC | MALA) and options["sampler"].tune:
        options["sampler"] = dataclasses.replace(options["sampler"], tune=150)
    every = options.pop("save_every", 1)
    options["save_every"] = every if 100 % every == 0 else 4
    store = tmp_path / "run"
    gas(**options, n_steps=100, store=store)
    model = [options[name] for name in ("energy", "domain", "sampler")]
    resumed = new_process.apply(resume, (store, *model), {"n_steps": 200})
    assert_same(resumed, gas(**options, n_steps=200))
    assert_same(open_trajectory(store), resumed)


def test_resume_takes_no_seed(tmp_path):
    gas(store=tmp_path / "run")
    with pytest.raises(TypeError, match="rng"):
        resume(tmp_path / "run", GAS, Ball(1.2, 2), Langevin(0.02, 4.0, drift_cap=2.0), n_steps=40, rng=4)


def test_resume_after_a_callback_stopped(tmp_path, short_chunks):
    gas(n_steps=60, store=tmp_path / "run", callback=lambda step, frame: step == 10)
    assert open_trajectory(tmp_path / "run").sizes["step"] == 11
    assert_same(resume(tmp_path / "run", GAS, Ball(1.2, 2), Langevin(0.02, 4.0, drift_cap=2.0), n_steps=30), gas(n_steps=30))


def test_an_error_leaves_every_frame(tmp_path, short_chunks):
    def callback(step, frame):
        if step == 18:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        gas(n_steps=60, store=tmp_path / "run", callback=callback)
    assert_same(open_trajectory(tmp_path / "run"), gas(n_steps=18))


SIGINT_SCRIPT = """
import signal, sys
from particles import *

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would ignore it

def callback(step, frame):
    if step == 5:
        print("running", flush=True)

ds = simulate([[0.1, 0.2], [0.3, 0.4]], Quadratic(1.3) + Riesz(0, 0.7), Ball(1.2, 2), {sampler}, n_steps=10**9, save_every=5, rng=3,
              store=sys.argv[1], callback=callback)
print(ds.attrs["interrupted"], int(ds.step[-1]), flush=True)
"""


@pytest.mark.parametrize("sampler", ["Langevin(0.02, 4.0)", pytest.param("MALA(0.02, 4.0)", marks=pytest.mark.slow)])
def test_ctrl_c_saves_and_returns_what_there_is(tmp_path, sampler):
    store, script = tmp_path / "run", SIGINT_SCRIPT.format(sampler=sampler).replace("10**9", "10**6")
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(store)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    assert child.stdout.readline() == "running\n"
    time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 0, err
    assert "UserWarning: interrupted: the run ends with step" in err
    interrupted, last = out.split()
    assert interrupted == "true"
    stored = open_trajectory(store)
    assert stored.step[-1] == int(last) >= 5
    model = [GAS, Ball(1.2, 2), {"L": Langevin, "M": MALA}[sampler[0]](0.02, 4.0)]
    n_steps = int(last) + 10
    whole = simulate([[0.1, 0.2], [0.3, 0.4]], *model, n_steps=n_steps, save_every=5, rng=3)
    assert_same(stored, whole.isel(step=slice(None, -2)))
    again = resume(store, *model, n_steps=n_steps)
    assert_same(again.isel(step=slice(n_steps // 5 + 1)), whole)
    assert "interrupted" not in again.attrs


def test_an_interrupted_run_in_memory_returns_its_frames():
    def callback(step, frame):
        if step == 18:
            raise KeyboardInterrupt

    with pytest.warns(UserWarning, match="interrupted: the run ends with step 18"):
        ds = gas(n_steps=60, callback=callback)
    assert ds.attrs["interrupted"] == "true"
    assert_same(ds, gas(n_steps=18))


def test_a_second_ctrl_c_raises(tmp_path, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    create = trajectory.Store.create.__func__

    def created(cls, *args):
        store = create(cls, *args)
        monkeypatch.setattr(store, "flush", interrupt)
        return store

    monkeypatch.setattr(trajectory.Store, "create", classmethod(created))
    with pytest.raises(KeyboardInterrupt):
        gas(n_steps=60, store=tmp_path / "run", callback=lambda step, frame: interrupt() if step == 18 else None)


def test_a_full_disk_loses_no_frame_and_leaves_no_rubbish(tmp_path, short_chunks):
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)  # stands for the disk: no file may become longer
    full, omega, model = tmp_path / "full", start(1, 300), [Quadratic(1.3), Ball(1.2, 2), Langevin(0.02, 4.0)]

    def fill(step, frame):
        if step == 20:
            resource.setrlimit(resource.RLIMIT_FSIZE, (3000, hard))

    try:
        with pytest.raises(OSError, match="File too large"):
            simulate(omega, *model, n_steps=60, rng=3, store=full, callback=fill)
        with pytest.raises(OSError, match="File too large"):
            simulate(omega, *model, n_steps=60, rng=3, store=tmp_path / "new")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert list(tmp_path.iterdir()) == [full]
    assert open_trajectory(full).sizes["step"] == 21
    assert_same(resume(full, *model, n_steps=30), simulate(omega, *model, n_steps=30, rng=3))


def test_divergence_leaves_every_frame(tmp_path):
    sampler = Langevin(lambda step: 0.02 if step < 9 else 1e308, 1e4)
    with pytest.raises(DivergenceError) as caught:
        gas(domain=FullSpace(2), sampler=sampler, store=tmp_path / "run")
    ds = open_trajectory(tmp_path / "run")
    assert ds.sizes["step"] == caught.value.step + 1
    assert np.array_equal(ds.omega[:, -1], caught.value.omega)
    assert np.isfinite(ds.omega).all()


def kill_and_resume(path, landmark: str, wait: float, sampler=None) -> int:
    """Kill -9 a streaming run `wait` seconds after a file of its store appears; the number of frames that were there."""
    omega = start(4, 1024, 8)  # 256 KiB a frame, 15 frames a chunk: most of the time goes into writing
    model = [Quadratic(1.3), Ball(5.0, 8), sampler or Langevin(0.02, 4.0)]
    child = forkserver().Process(target=simulate, args=(omega, *model), kwargs={"n_steps": 10_000, "rng": 3, "store": str(path)})
    child.start()
    while not (path / landmark).exists():
        assert child.is_alive()
        time.sleep(0.001)
    time.sleep(wait)
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    assert child.exitcode == -signal.SIGKILL
    found = open_trajectory(path)
    n_frames = found.sizes["step"]
    n_steps = n_frames + 19  # over a chunk's end
    whole = simulate(omega, *model, n_steps=n_steps, rng=3)
    assert_same(found, whole.isel(step=slice(0, n_frames)))
    assert_same(resume(path, *model, n_steps=n_steps), whole)
    return n_frames


def test_kill_9_leaves_a_store_that_opens_and_continues(tmp_path):
    wait = random.Random(1).uniform
    assert kill_and_resume(tmp_path / "early", "zarr.json", 0.0) >= 1
    assert kill_and_resume(tmp_path / "late", "omega/c/0/1", wait(0, 0.03)) >= 15
    assert kill_and_resume(tmp_path / "tuned", "omega/c/0/0", wait(0, 0.03), HMC(0.1, 4.0, n_leapfrog=2, tune=20)) >= 1


@pytest.mark.slow
def test_kill_9_twenty_times(tmp_path):
    wait = random.Random(2).uniform
    samplers = [Langevin(0.02, 4.0), Langevin(0.02, 4.0, scheme="shrunk"), MALA(0.005, 4.0, tune=25), HMC(0.1, 4.0, n_leapfrog=3, tune=25)]
    for i in range(20):
        assert kill_and_resume(tmp_path / f"run{i}", "omega/c/0/1", wait(0, 0.3), samplers[i % 4]) >= 15


def test_slow_frames_are_written_before_their_chunk_is_complete(tmp_path, monkeypatch):
    monkeypatch.setattr(trajectory, "FLUSH_SECONDS", 0.0)
    sizes = []
    gas(store=tmp_path / "run", n_steps=3, callback=lambda step, frame: sizes.append(open_trajectory(tmp_path / "run").sizes["step"]))
    assert sizes == [1, 2, 3, 4]
    assert_same(open_trajectory(tmp_path / "run"), gas(n_steps=3))


def test_kill_between_the_arrays_of_a_growing_store(tmp_path):
    gas(store=tmp_path / "run")
    group = zarr.open_group(tmp_path / "run", mode="r+")
    group["energy"].resize((2, 41))
    assert_same(open_trajectory(tmp_path / "run"), gas())
    assert_same(resume(tmp_path / "run", GAS, Ball(1.2, 2), Langevin(0.02, 4.0, drift_cap=2.0), n_steps=30), gas(n_steps=30))


def test_long_frames_get_short_chunks(tmp_path):
    simulate(np.zeros((1, 100_000, 2)), Quadratic(1.0), FullSpace(2), Langevin(0.1, 1.0), n_steps=5, rng=0, store=tmp_path / "run")
    assert zarr.open_group(tmp_path / "run")["omega"].chunks[1] == 2


# ------------------------------------------------------------------------------------------------------------ bad input


def test_existing_store_is_refused_and_kept(tmp_path):
    gas(store=tmp_path / "run")
    before = sorted((p, p.stat().st_mtime_ns) for p in (tmp_path / "run").rglob("*"))
    with pytest.raises(FileExistsError, match="run"):
        gas(store=tmp_path / "run", rng=9)
    assert before == sorted((p, p.stat().st_mtime_ns) for p in (tmp_path / "run").rglob("*"))


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"omega": np.zeros(3)}, "omega"),
        ({"omega": np.zeros((2, 3))}, "omega must have dim 2"),
        ({"omega": np.full((3, 2), np.nan)}, "omega must be finite"),
        ({"omega": np.array([[0.0, 0], [0, 5]])}, "omega must lie inside .* particle 1 of chain 0"),
        ({"omega": start().astype(np.float16)}, "omega must be float32 or float64, got dtype float16"),
        ({"omega": torch.zeros(3, 2, dtype=torch.bfloat16)}, "omega must be float32 or float64, got dtype torch.bfloat16"),
        ({"omega": [[0.0, 1.0], [0.0]]}, "omega must be an array whose rows"),
        ({"energy": "quadratic"}, "energy must be an object .* got 'quadratic'"),
        ({"energy": Quadratic}, "energy must be an object"),
        ({"domain": GAS}, "domain must be an object"),
        ({"sampler": 0.01}, "sampler must be an object .* got 0.01"),
        ({"callback": 3}, "callback must be callable, got 3"),
        ({"n_steps": -1}, "n_steps"),
        ({"n_steps": 2.5}, "n_steps"),
        ({"n_steps": 10, "save_every": 3}, "n_steps must be a multiple of save_every = 3, got 10"),
        ({"save_every": 0}, "save_every"),
        ({"rng": "seed"}, "rng"),
        ({"rng": -1}, "rng"),
        ({"first_chain": -1}, "first_chain"),
        ({"first_chain": 2**32 - 1}, "first_chain must leave room for 2 chains below 2.32, got 4294967295"),
        ({"sampler": Langevin(0.1, 1.0, preconditioner=[1, 2])}, "preconditioner"),
    ],
)
def test_bad_input(tmp_path, change, name):
    with pytest.raises(ValueError, match=name):
        gas(**change, store=tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_an_unfinished_energy_says_what_it_lacks():
    class Nameless(Energy):
        def _evaluate(self, omega, key, want_value):
            return 0.0 * omega.sum((-2, -1)), 0.0 * omega

    class Silent(Nameless):
        term = "silent"

    class Empty(Silent):
        _evaluate = Energy._evaluate

        def describe(self):
            return {}

    for energy, words in ((Nameless(), "describe, term: Nameless"), (Silent(), "describe: Silent"), (Empty(), "_evaluate: Empty")):
        for whole in (energy, GAS + energy):
            with pytest.raises(ValueError, match=f"energy must define {words}"):
                gas(energy=whole)


@pytest.mark.parametrize("which", ["number", "gradient"])
@pytest.mark.parametrize("sampler", [Langevin(0.02, 4.0), MALA(0.02, 4.0)], ids=["Langevin", "MALA"])
def test_an_energy_of_a_wrong_shape_is_refused(which, sampler):
    class Careless(Energy):
        term = "careless"

        def _evaluate(self, omega, key, want_value):
            value, gradient = np.sum(omega**2, (-2, -1)) / 2, 1.0 * omega
            return (value.sum(), gradient) if which == "number" else (value, gradient[0])

        def describe(self):
            return {}

    expected = r"one number a chain, shape \(2,\), got \(\)" if which == "number" else r"shape \(2, 8, 2\), got \(8, 2\)"
    with pytest.raises(ValueError, match=expected):
        gas(energy=Careless(), sampler=sampler)


def test_a_sampler_reports_only_its_fractions():
    class Talker(Drunk):
        def advance(self, omega, energy, domain, key, memory):
            return omega, {"loud": np.ones(2)}, memory

    with pytest.raises(ValueError, match=r"sampler must report some of its fractions .*, got 'loud'"):
        gas(sampler=Talker())


@pytest.mark.parametrize("store", [5, "", True])
def test_a_store_must_be_a_path(store):
    for call in (lambda: gas(store=store), lambda: resume(store, GAS, Ball(1.2, 2), Langevin(0.02, 4.0), n_steps=3)):
        with pytest.raises(ValueError, match="store must be a path"):
            call()


def test_resume_refuses_another_model(tmp_path):
    store, ball, sampler = tmp_path / "run", Ball(1.2, 2), Langevin(0.02, 4.0, drift_cap=2.0)
    gas(store=store, save_every=5)
    with pytest.raises(ValueError, match="energy must be the stored one"):
        resume(store, Quadratic(1.3), ball, sampler, n_steps=40)
    with pytest.raises(ValueError, match="domain"):
        resume(store, GAS, Ball(1.3, 2), sampler, n_steps=40)
    with pytest.raises(ValueError, match="sampler"):
        resume(store, GAS, ball, Langevin(0.02, 4.1, drift_cap=2.0), n_steps=40)
    schedule = Langevin(lambda step: 0.02, 4.0)
    gas(sampler=schedule, store=tmp_path / "schedule", n_steps=3)
    with pytest.raises(ValueError, match="sampler must be the stored one"):
        resume(tmp_path / "schedule", GAS, ball, Langevin(lambda step: 0.01, 4.0), n_steps=4)
    same = Langevin(
        lambda step: 0.02,  # elsewhere, and with a comment
        4.0,
    )
    assert_same(resume(tmp_path / "schedule", GAS, ball, same, n_steps=4), gas(sampler=schedule, n_steps=4))
    with pytest.raises(ValueError, match="n_steps must be a multiple"):
        resume(store, GAS, ball, sampler, n_steps=41)
    with pytest.raises(ValueError, match="at least the 20 steps"):
        resume(store, GAS, ball, sampler, n_steps=15)
    with pytest.raises(ValueError, match="energy must be an object"):
        resume(store, None, ball, sampler, n_steps=40)
    assert_same(open_trajectory(store), gas(save_every=5))


def test_what_is_no_trajectory(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing"):
        open_trajectory(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    zarr.create_group(tmp_path / "other")
    for name in ("empty", "other"):
        with pytest.raises(ValueError, match=name):
            open_trajectory(tmp_path / name)
    gas(store=tmp_path / "newer")
    zarr.open_group(tmp_path / "newer", mode="r+").attrs["schema"] = "99"
    with pytest.raises(ValueError, match="schema 99"):
        open_trajectory(tmp_path / "newer")
