"""MALA and HMC: exact laws at any step size, with and without walls; what is rejected, tuned, recorded and refused."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from scipy import stats

from particles import Alignment, Ball, Box, Energy, FullSpace, Langevin, Quadratic, Riesz, geometric, linear, mcmc, simulate
from particles.convex import Ellipsoid, Projector
from particles.domain import Torus
from particles.mcmc import HMC, MALA
from particles.polytope import HalfSpaces, Simplex
from particles.random import ACCEPTANCE, VELOCITY, chain_uniform, normal

Z = 4.9  # standard errors; a two-sided false alarm of 1e-6 for each comparison
LEVEL = 1e-6  # of every Kolmogorov-Smirnov test: its false-alarm rate
TRAP = Quadratic(1.3)


class AcceptAll(HMC):
    """A wrong sampler: the same trajectories without the test."""

    def advance(self, omega, energy, domain, key, memory):
        flat = Tilted(energy)
        return super().advance(omega, flat, domain, key, {name: memory[name] for name in ("step_size",)})


class Tilted(Energy):
    """The gradient of another energy with a value that falls from call to call, so that every proposal is accepted."""

    term = "tilted"

    def __init__(self, energy):
        self.energy, self.level = energy, 0.0

    def _evaluate(self, omega, key, want_value):
        self.level -= 1e9
        return np.full(omega.shape[:-2], self.level), self.energy.gradient(omega, key=key)


class Slope(Energy):
    """H = (1/N) sum_k a w_k1: a constant force along the first axis."""

    term = "slope"

    def __init__(self, a: float):
        self.a = a

    def _evaluate(self, omega, key, want_value):
        gradient = 0 * omega
        gradient[..., 0] = self.a
        return self.a * omega[..., 0].mean(-1), gradient

    def describe(self):
        return {"name": "Slope", "a": self.a}


class Undefined(Energy):
    """NaN or another constant everywhere."""

    term = "undefined"

    def __init__(self, value: float):
        self.value_everywhere = value

    def _evaluate(self, omega, key, want_value):
        return np.full(omega.shape[:-2], self.value_everywhere), 0 * omega

    def describe(self):
        return {"name": "Undefined"}


def run(omega, energy, domain, sampler, n_steps, save_every=None, seed=1, **options):
    return simulate(omega, energy, domain, sampler, n_steps=n_steps, save_every=save_every or n_steps, rng=seed, **options)


def last(ds):
    return ds.omega.isel(step=-1).values


def ks(sample, cdf):
    return stats.kstest(np.ravel(sample), cdf).pvalue


# ---------------------------------------------------------------------------------------------------------------- laws

SAMPLERS = {
    "MALA": lambda scale, **o: MALA(0.4 * scale, 2.7, **o),
    "HMC": lambda scale, **o: HMC(0.8 * scale**0.5, 2.7, n_leapfrog=3, **o),
}


@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize(("dim", "scale"), [(1, 1.0), (3, 0.6), (8, 0.4)])
def test_gaussian_trap_has_its_exact_second_moment_and_law(kind, dim, scale):
    n_chains, n = 4000 // dim, 3
    ds = run(np.zeros((n_chains, n, dim)), TRAP, FullSpace(dim), SAMPLERS[kind](scale), 60)
    x = last(ds) * math.sqrt(2.7 * 1.3)  # standard normals
    assert abs(np.mean(x**2) - 1) < Z * math.sqrt(2 / x.size)
    assert ks(x, "norm") > LEVEL
    assert abs(np.mean((1.08 * x) ** 2) - 1) > Z * math.sqrt(2 / x.size)  # negative controls: too wide
    assert ks(1.2 * x, "norm") < LEVEL
    assert 0.4 < ds.acceptance[:, -1].mean() < 0.98  # the test had something to do


@pytest.mark.parametrize("n_leapfrog", [1, 3])
def test_accepting_everything_is_seen(n_leapfrog):
    """The negative control of the moments above: leapfrog alone keeps a Gaussian whose variance is 1 / (1 - (w eps)^2 / 4) too large."""
    eps = 0.8
    sampler = AcceptAll(eps, 2.7, n_leapfrog=n_leapfrog)
    ds = run(np.zeros((4000, 3, 1)), TRAP, FullSpace(1), sampler, 60)
    x = last(ds) * math.sqrt(2.7 * 1.3)
    assert ds.acceptance[:, -1].min() == 1
    error = Z * math.sqrt(2 / x.size)
    assert np.mean(x**2) - 1 > error
    assert abs(np.mean(x**2) * (1 - 1.3 * eps**2 / 4) - 1) < error


def test_mala_is_the_metropolised_euler_step_of_langevin():
    """One step by the textbook: propose by Euler-Maruyama, accept by the ratio of densities and proposal densities."""
    omega = np.random.default_rng(0).normal(size=(6, 5, 2))
    energy, beta, eta, n = TRAP + Riesz(0, 0.7), 3.0, 0.15, 5
    key = (4, 0, 9)
    moved, info, _ = MALA(eta, beta).advance(omega, energy, FullSpace(2), key, {"step_size": np.full(6, eta)})
    noise = normal(key, omega.shape, stream=VELOCITY)
    proposal, _ = Langevin(eta, beta).step(omega, energy.gradient(omega), noise, FullSpace(2), 0)

    def log_q(to, at):
        return -beta / (4 * eta) * ((to - at + eta * energy.gradient(at)) ** 2).sum((-2, -1))

    log_ratio = -beta * n * (energy.value(proposal) - energy.value(omega)) + log_q(omega, proposal) - log_q(proposal, omega)
    accepted = np.log(chain_uniform(key, 6, 1, stream=ACCEPTANCE)[:, 0]) < log_ratio
    assert 0 < accepted.sum() < 6
    assert np.array_equal(info["acceptance"], accepted)
    np.testing.assert_allclose(moved, np.where(accepted[:, None, None], proposal, omega), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("domain", [FullSpace(2), Ball(1.0, 2), Box([-1, -0.5], [0.8, 1])], ids=str)
def test_trajectories_lead_back(domain):
    rng = np.random.default_rng(1)
    omega, velocity = 0.5 * rng.uniform(-1, 1, (3, 4, 2)), 2 * rng.normal(size=(3, 4, 2))
    energy, sampler = TRAP + Riesz(0, 0.1), HMC(0.1, 1.0, n_leapfrog=12)
    from particles.mcmc import _start

    there, at_end, alive = sampler._trajectory(_start(omega, energy, (0, 0, 0)), velocity, np.full(3, 0.1), energy, domain, (0, 0, 0))
    back, at_start, alive_too = sampler._trajectory(there, -at_end, np.full(3, 0.1), energy, domain, (0, 0, 0))
    assert alive.all()
    assert alive_too.all()
    assert abs(there.omega - omega).max() > 0.5
    np.testing.assert_allclose(back.omega, omega, atol=1e-8)
    np.testing.assert_allclose(at_start, -velocity, atol=1e-8)


@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize("domain", [Box([-0.3, 0], [0.5, 1.7]), Ball(0.7, 3)], ids=["box", "ball"])
def test_without_a_force_the_uniform_law_is_kept_exactly(kind, domain):
    start = np.full((1, 5000, domain.dim), 0.1)  # all at one point: the walls alone spread them evenly
    ds = run(start, Quadratic(0.0), domain, SAMPLERS[kind](1.0), 40)
    assert ds.acceptance[:, -1] == 1
    x = last(ds)[0]
    if isinstance(domain, Ball):
        level = (np.linalg.norm(x, axis=-1) / 0.7) ** 3
    else:
        level = (x - domain.low) / (np.subtract(domain.high, domain.low))
    assert ks(level, "uniform") > LEVEL
    assert ks(level**1.2, "uniform") < LEVEL  # negative control
    assert domain.contains(x).all()


TRIANGLE = HalfSpaces([[-1.0, 0.0], [0.0, -1.0], [2.0, 1.0]], [0.2, 0.1, 1.5])


@pytest.mark.parametrize("domain", [Ellipsoid([0.4, 1.1]), Simplex(3), TRIANGLE, Torus([0.8, 1.7])], ids=lambda d: type(d).__name__)
def test_the_uniform_law_is_kept_on_every_domain_with_a_billiard(domain):
    start = np.full((1, 4000, domain.dim), 0.1)
    x = last(run(start, Quadratic(0.0), domain, HMC(0.5, 1.0, n_leapfrog=2), 40))[0]
    fair = domain.sample(4000, 0)
    direction = np.array([1.0, 0.6, -0.3])[: domain.dim]
    assert domain.contains(x).all()
    for level in (lambda w: w[:, 0], lambda w: w[:, 1], lambda w: w @ direction, lambda w: (w**2).sum(-1)):
        assert stats.ks_2samp(level(x), level(fair)).pvalue > LEVEL
    assert stats.ks_2samp(1.25 * x[:, 0], fair[:, 0]).pvalue < LEVEL  # negative control


def test_a_gas_on_a_circle_keeps_the_law_of_two_charges():
    # N H_N = -strength log chord for N = 2, and chord ~ sin(pi gap / period)
    period, beta, strength = 1.7, 3.0, 0.8
    start = np.tile([[0.2], [1.0]], (4000, 1, 1))
    x = last(run(start, Riesz(0, strength, period=period), Torus(period), MALA(0.05, beta), 80))
    gap = np.sort((x[:, 1, 0] - x[:, 0, 0]) % period / period)
    power = beta * strength

    def cdf(power):
        grid = np.linspace(0, 1, 4001)
        mass = np.sin(np.pi * grid) ** power
        return lambda u: np.interp(u, grid, np.cumsum(mass) / mass.sum())

    assert ks(gap, cdf(power)) > LEVEL
    assert ks(gap, cdf(1.6 * power)) < LEVEL  # negative control
    assert ks(x[:, 0, 0] / period, "uniform") > LEVEL


@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_force_against_a_wall_has_its_exact_density(kind):
    # density ~ exp(-5 x) on [0, 1] at temperature 1: mean 0.19322, where projection at this step piles up an atom
    a, n = 5.0, 6000
    cdf = stats.truncexpon(b=a, scale=1 / a).cdf
    start = np.random.default_rng(0).random((n, 1, 1))
    sampler = MALA(0.03, 1.0) if kind == "MALA" else HMC(0.2, 1.0, n_leapfrog=3)
    ds = run(start, Slope(a), Box(0, 1), sampler, 80)
    x = last(ds)
    assert ks(x, cdf) > LEVEL
    assert abs(x.mean() - 0.19322) < Z * x.std() / math.sqrt(n)
    for scheme in ("projected", "reflected"):  # negative control: Euler steps of this size are seen
        euler = last(run(start, Slope(a), Box(0, 1), Langevin(0.03, 1.0, scheme=scheme), 80))
        assert ks(euler, cdf) < LEVEL


@pytest.mark.filterwarnings("ignore:.*stuck")
@pytest.mark.parametrize("kind", SAMPLERS)
def test_rejecting_far_flights_keeps_the_law(kind, monkeypatch):
    """With a limit of 0.4 diameters one proposal in twenty or more is cut off; the sibling above shows what wrong steps look like."""
    a, n = 5.0, 6000
    law = stats.truncexpon(b=a, scale=1 / a)
    start = law.rvs((n, 1, 1), random_state=0)
    sampler = MALA(0.03, 1.0) if kind == "MALA" else HMC(0.2, 1.0, n_leapfrog=3)
    free = run(start, Slope(a), Box(0, 1), sampler, 80)
    monkeypatch.setattr(mcmc, "FARTHEST", 0.4)
    cut = run(start, Slope(a), Box(0, 1), sampler, 80)
    assert cut.acceptance[:, -1].mean() < free.acceptance[:, -1].mean() - 0.05
    assert ks(last(cut), law.cdf) > LEVEL
    assert abs(last(cut).mean() - law.mean()) < Z * law.std() / math.sqrt(n)


@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize("dim", [2, 8])
def test_a_trap_in_a_ball_has_its_exact_radii(kind, dim):
    beta, radius = 2.7, 0.9
    start = Ball(radius, dim).sample(4000, 0)[:, None]
    ds = run(start, TRAP, Ball(radius, dim), SAMPLERS[kind](0.5), 60)
    radii = np.linalg.norm(last(ds), axis=-1)
    gamma = stats.gamma(dim / 2, scale=2 / (beta * 1.3))  # of |w|^2, cut off at the wall
    assert ks(radii**2, lambda t: gamma.cdf(t) / gamma.cdf(radius**2)) > LEVEL
    uniform = np.linalg.norm(start, axis=-1)  # negative control: the start, as if the trap were not there
    assert ks(uniform**2, lambda t: gamma.cdf(t) / gamma.cdf(radius**2)) < LEVEL


def test_two_charges_on_a_line_keep_their_exact_gap():
    # two particles, trap and log repulsion: the half-gap u has density u^(beta strength) exp(-beta kappa u^2)
    beta, strength, n_chains = 2.0, 0.8, 4000
    start = np.tile([[-0.6], [0.4]], (n_chains, 1, 1))
    for sampler in (MALA(0.15, beta), HMC(0.3, beta, n_leapfrog=4)):
        x = last(run(start, TRAP + Riesz(0, strength), FullSpace(1), sampler, 80))[..., 0]
        u = (x[:, 0] - x[:, 1]) / 2

        def gap(strength):
            return stats.gamma((beta * strength + 1) / 2, scale=1 / (beta * 1.3)).cdf  # of u^2

        assert ks(u**2, gap(strength)) > LEVEL
        assert ks(u**2, gap(1.4 * strength)) < LEVEL  # negative control
        assert ks(x.sum(-1) * math.sqrt(beta * 1.3 / 2), "norm") > LEVEL


# ------------------------------------------------------------------------------------------------------- rejected, stuck


def crowded(n_chains=1):
    return 1e-7 * np.arange(16.0)[None, :, None] * np.ones((n_chains, 1, 1))


@pytest.mark.parametrize("sampler", [MALA(0.01, 2.0), HMC(0.1, 2.0, n_leapfrog=4), MALA(0.01, 2.0, tune=10)], ids=repr)
def test_crowded_start_is_reported_as_stuck(sampler):
    with pytest.warns(UserWarning, match=r"1 of 1 chains are stuck \(0\).*drift_cap") as caught:
        ds = run(crowded(), TRAP + Riesz(0, 1.0), FullSpace(1), sampler, 60)
    assert len(caught) == 1
    assert ("after tuning" in str(caught[0].message)) == (sampler.tune > 0)
    assert np.isfinite(ds.omega).all()


def test_warm_up_with_capped_langevin_frees_a_crowded_start():
    energy = TRAP + Riesz(0, 1.0)
    with pytest.warns(UserWarning, match="drift_cap shortened"):
        warm = run(crowded(), energy, FullSpace(1), Langevin(0.01, 2.0, drift_cap=0.05), 400)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds = run(last(warm), energy, FullSpace(1), MALA(0.005, 2.0, tune=200), 400, 100)
    assert ds.acceptance[0, -1] > 0.4


@pytest.mark.parametrize("sampler", [MALA(0.05, 3.0), HMC(0.1, 3.0, n_leapfrog=3)], ids=repr)
@pytest.mark.parametrize("domain", [FullSpace(2), Ball(5.0, 2)], ids=str)
def test_a_chain_that_leaves_the_numbers_is_rejected_alone(sampler, domain):
    grid = np.stack(np.meshgrid([-1.0, 1.0], [-1.0, 0.0, 1.0]), -1).reshape(-1, 2)
    omega = grid + 0.1 * np.random.default_rng(0).normal(size=(3, 6, 2))
    omega[1, 1] = omega[1, 0] + [1e-12, 0]  # a force of 1e157: the first kick ends beyond the range of squared distances
    energy = TRAP + Riesz(12.0, 0.1)
    with pytest.warns(UserWarning, match=r"1 of 3 chains are stuck \(1\)"):
        block = run(omega, energy, domain, sampler, 30, 1)
    assert (block.omega[1] == block.omega[1, 0]).all()
    assert (block.acceptance[1, 1:] == 0).all()
    for c in (0, 2):
        alone = run(omega[c], energy, domain, sampler, 30, 1, first_chain=c)
        assert np.array_equal(alone.omega[0], block.omega[c])
        assert alone.acceptance[0, 1:].mean() > 0.2


class Guarded(Energy):
    """A trap that cannot be evaluated (for the whole array, as the pair sums do it) once a particle passes `limit`."""

    term = "guarded"

    def __init__(self, limit: float, error: type[Exception]):
        self.limit, self.error = limit, error

    def _evaluate(self, omega, key, want_value):
        if abs(omega).max() > self.limit:
            raise self.error("out of range")
        return (omega**2).sum((-2, -1)) / (2 * omega.shape[-2]), omega

    def describe(self):
        return {"name": "Guarded", "limit": self.limit}


def test_proposals_without_an_energy_are_rejected_and_cut_the_law_off():
    start = np.random.default_rng(0).uniform(-1, 1, (300, 1, 1))
    ds = run(start, Guarded(1.2, OverflowError), FullSpace(1), HMC(1.2, 1.0, n_leapfrog=1), 70, 7)
    x = ds.omega[:, 1:].values
    assert abs(x).max() <= 1.2
    assert ks(x, stats.truncnorm(-1.2, 1.2).cdf) > LEVEL
    assert ks(x, stats.truncnorm(-1.7, 1.7).cdf) < LEVEL  # negative control
    for error in (ValueError, FloatingPointError):
        other = run(start[:10], Guarded(1.2, error), FullSpace(1), HMC(1.2, 1.0, n_leapfrog=1), 70, 7)
        assert np.array_equal(other.omega, ds.omega[:10])


def test_errors_of_the_start_reach_the_user():
    close = np.array([[0.0, 0.0], [1e-20, 0.0]])
    for sampler in (MALA(0.1, 1.0), HMC(0.1, 1.0, n_leapfrog=2)):
        with pytest.raises(OverflowError, match="Riesz force"):
            run(close, Riesz(30, 1.0), FullSpace(2), sampler, 3)
        with pytest.raises(ValueError, match="out of range"):
            run(close + 5, Guarded(1.0, ValueError), FullSpace(2), sampler, 3)
        for value in (math.nan, -math.inf):
            with pytest.raises(ValueError, match="energy must be a number or"):
                run(close, Undefined(value), FullSpace(2), sampler, 3)


def test_an_infinite_start_is_left_at_the_first_chance():
    start = np.zeros((2, 3, 2))
    start[:, 2] = 1.0  # particles 0 and 1 coincide
    ds = run(start, TRAP + Riesz(0, 1.0), Ball(2.0, 2), MALA(0.05, 2.0), 40, 1)
    assert (ds.energy[:, 0] == math.inf).all()
    assert np.isfinite(ds.energy[:, 1:]).all()  # and is never entered again
    with pytest.warns(UserWarning, match="stuck"):
        assert (run(start, Undefined(math.inf), Ball(2.0, 2), MALA(0.05, 2.0), 40).acceptance[:, -1] == 0).all()


def test_chains_are_tested_one_by_one():
    ds = run(np.random.default_rng(0).normal(size=(40, 4, 2)), TRAP, FullSpace(2), MALA(0.6, 2.0), 20, 1)
    rejected = (ds.omega.diff("step") == 0).all(("particle", "dim")).values
    assert np.array_equal(rejected, ds.acceptance[:, 1:] == 0)
    assert 0.1 < rejected.mean() < 0.9
    assert ((rejected.any(0)) & ~(rejected.all(0))).all()


# ------------------------------------------------------------------------------------------------------------ step sizes


@pytest.mark.parametrize("first", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("kind", ["MALA", "HMC"])
def test_tuning_reaches_the_target_from_any_step_size(kind, first):
    tune = 600
    sampler = MALA(first, 2.7, tune=tune) if kind == "MALA" else HMC(first, 2.7, n_leapfrog=3, tune=tune)
    omega = np.random.default_rng(0).normal(size=(8, 10, 2)) * 0.5
    ds = run(omega, TRAP, FullSpace(2), sampler, tune + 400, 200)
    assert ds.step_size.dims == ("chain", "step")
    assert (ds.step_size[:, 0] == first).all()
    assert (ds.step_size.sel(step=tune) == ds.step_size[:, -1]).all()  # fixed after tuning
    assert len(set(ds.step_size[:, -1].values)) == 8  # each chain its own
    reached = ds.acceptance.sel(step=slice(tune + 1, None)).mean()
    assert abs(reached - (0.574 if kind == "MALA" else 0.8)) < 0.06


def test_a_target_can_be_chosen():
    omega = np.random.default_rng(0).normal(size=(8, 10, 2)) * 0.5
    ds = run(omega, TRAP, FullSpace(2), MALA(0.1, 2.7, tune=400, target=0.9), 800, 200)
    assert abs(ds.acceptance[:, -2:].mean() - 0.9) < 0.05


def test_step_sizes_may_follow_a_schedule():
    schedule = linear(0.1, 0.5, 20)
    ds = run(np.zeros((2, 3, 2)), TRAP, FullSpace(2), MALA(schedule, 2.0), 20, 1)
    np.testing.assert_allclose(ds.step_size[0, 1:], [schedule(step) for step in range(20)])
    constant = run(np.zeros((2, 3, 2)), TRAP, FullSpace(2), MALA(lambda step: 0.2, 2.0), 20, 1)
    assert np.array_equal(constant.omega, run(np.zeros((2, 3, 2)), TRAP, FullSpace(2), MALA(0.2, 2.0), 20, 1).omega)


def test_annealing_cools():
    omega = np.random.default_rng(0).normal(size=(200, 3, 2))
    ds = run(omega, TRAP, FullSpace(2), HMC(geometric(0.3, 0.15, 200), geometric(1.0, 100.0, 200), n_leapfrog=5), 300)
    moment = (last(ds) ** 2).mean() * 1.3 * 100
    assert abs(moment - 1) < Z * math.sqrt(2 / omega.size)


# -------------------------------------------------------------------------------------------------------- what is recorded


def test_frames_record_acceptance_and_step_size():
    omega = np.random.default_rng(0).normal(size=(3, 4, 2))
    fine, coarse = (run(omega, TRAP, FullSpace(2), HMC(0.9, 2.0, n_leapfrog=2), 20, every) for every in (1, 5))
    assert {"omega", "energy", "energy_quadratic", "grad_norm", "acceptance", "step_size"} == set(fine.data_vars)
    assert np.isnan(fine.acceptance[:, 0]).all()  # before the first step there is none
    np.testing.assert_allclose(coarse.acceptance[:, 1:], fine.acceptance.values[:, 1:].reshape(3, 4, 5).mean(-1))
    assert np.array_equal(fine.omega[:, ::5], coarse.omega)
    assert "accepted" in fine.acceptance.attrs["long_name"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sampler", [MALA(0.05, 3.0, tune=5), HMC(0.15, 3.0, n_leapfrog=3)], ids=repr)
@pytest.mark.parametrize("domain", [FullSpace(2), Ball(1.5, 2), Box([-1.5, -1.5], [1.5, 1.5])], ids=str)
def test_numpy_and_torch_make_the_same_run(sampler, domain, dtype):
    omega = np.random.default_rng(0).uniform(-0.8, 0.8, (3, 6, 2)).astype(dtype)
    by_numpy = run(omega, TRAP + Riesz(0, 0.5), domain, sampler, 15, 1)
    by_torch = run(torch.from_numpy(omega), TRAP + Riesz(0, 0.5), domain, sampler, 15, 1)
    assert by_torch.omega.dtype == by_numpy.omega.dtype == dtype
    tolerance = 2e-4 if dtype == "float32" else 1e-10
    np.testing.assert_allclose(by_torch.omega, by_numpy.omega, atol=tolerance)
    np.testing.assert_allclose(by_torch.acceptance, by_numpy.acceptance)
    np.testing.assert_allclose(by_torch.step_size, by_numpy.step_size, rtol=1e-3 if dtype == "float32" else 1e-10)


def test_float32_states_are_tested_with_float64_energies():
    omega = np.random.default_rng(0).normal(size=(1, 400, 2)).astype(np.float32)
    ds = run(omega, TRAP, FullSpace(2), MALA(1e-4, 2.0), 50)
    assert ds.acceptance[0, -1] > 0.9


def test_descriptions():
    assert HMC(0.1, 2, n_leapfrog=5, tune=7).describe() == {
        "name": "HMC", "step_size": 0.1, "beta": 2.0, "n_leapfrog": 5, "tune": 7, "target": 0.8,
    }  # fmt: skip
    assert MALA(linear(0.1, 0.2, 3), 2).describe() == {
        "name": "MALA", "step_size": linear(0.1, 0.2, 3).describe(), "beta": 2.0, "tune": 0, "target": 0.574,
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ bad input


def minibatched():
    rng = np.random.default_rng(1)
    return Alignment(rng.standard_normal((60, 2)), rng.choice([-1, 1], 60), "fourier", batch_size=16)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: MALA(0.0, 1.0), "step_size must be positive, got 0.0"),
        (lambda: MALA(0.1, math.inf), "beta must be finite, got inf"),
        (lambda: HMC(0.1, math.inf, n_leapfrog=3), "beta must be finite, got inf"),
        (lambda: HMC(0.1, -1, n_leapfrog=3), "beta must be positive, got -1"),
        (lambda: HMC(0.1, 1.0, n_leapfrog=0), "n_leapfrog must be an integer of at least 1, got 0"),
        (lambda: HMC(0.1, 1.0, n_leapfrog=2.5), "n_leapfrog"),
        (lambda: MALA(0.1, 1.0, tune=-1), "tune"),
        (lambda: MALA(0.1, 1.0, target=1.0), "target must lie between 0 and 1, got 1.0"),
        (lambda: MALA(0.1, 1.0, target=0), "target"),
        (lambda: MALA(linear(0.1, 0.2, 9), 1.0, tune=5), "tune must be 0 for a step_size that follows a schedule, got 5"),
        (lambda: run(np.zeros((2, 2)), TRAP, FullSpace(2), MALA(0.1, lambda step: math.inf), 3), "beta must be a positive number, got inf"),
        (lambda: run(np.zeros((2, 2)), TRAP, FullSpace(2), MALA(lambda step: -1, 1.0), 3), "step_size must be a positive number, got -1"),
        (lambda: run(np.zeros((2, 2)), TRAP, Projector(Ball(1.0, 2).project, 2), MALA(0.1, 1.0), 3), "bounce"),
        (lambda: run(np.zeros((2, 1)), Riesz(0, 1.0), Torus(1.0), MALA(0.1, 1.0), 3), "period of Riesz"),
        (lambda: run(np.zeros((2, 2)), minibatched(), FullSpace(2), MALA(0.1, 1.0), 3), "energy must not be minibatched for MALA"),
        (lambda: run(np.zeros((2, 2)), TRAP + minibatched(), FullSpace(2), HMC(0.1, 1.0, n_leapfrog=2), 3), "minibatched for HMC"),
    ],
)
def test_bad_input(make, name):
    with pytest.raises(ValueError, match=name):
        make()


def test_a_trajectory_has_no_default_length():
    with pytest.raises(TypeError, match="n_leapfrog"):
        HMC(0.1, 1.0)
