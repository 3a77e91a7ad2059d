"""`report.check` on runs whose law is known, and on the same runs with planted faults."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr

from theory import report
from theory.ensembles import sample_circle_gas, sample_log_gas, sample_wall_gas
from theory.forces import SHRINK
from theory.mean_field import MeanField
from theory.pairs import pair_force

QUADRATIC = {"name": "Quadratic", "stiffness": 1.3, "centre": 0.0}
RIESZ = {"name": "Riesz", "s": 0.0, "strength": 0.7, "softening": 0.0, "length": 1.0, "mirror": False}
LANGEVIN = {
    "name": "Langevin",
    "step_size": 0.01,
    "beta": 6.0,
    "scheme": "projected",
    "drift_cap": None,
    "clip": None,
    "preconditioner": None,
}
EXACT = {"name": "MALA", "step_size": 0.01, "beta": 6.0}


def as_dataset(omega, terms, domain=None, sampler=LANGEVIN, **series):
    attrs = {"energy": {"name": "Sum", "energies": terms}, "domain": domain or {"name": "FullSpace"}, "sampler": sampler}
    variables = {"omega": (("chain", "step", "particle", "dim"), omega)}
    variables |= {name: (("chain", "step"), values) for name, values in series.items()}
    return xr.Dataset(variables, attrs={name: json.dumps(value) for name, value in attrs.items()})


def euler(gradient, start, step_size, beta, n_steps, seed, project=lambda x: x, every=20):
    """Plain Euler steps of (chain, particle, dim); frames (chain, frame, particle, dim)."""
    rng, x, frames = np.random.default_rng(seed), start, []
    for step in range(n_steps):
        x = project(x - step_size * gradient(x) + np.sqrt(2 * step_size / beta) * rng.standard_normal(x.shape))
        if step % every == every - 1:
            frames.append(x)
    return np.stack(frames, 1)


def riesz_gradient(x, s=0.0, strength=0.7, kappa=1.3):
    gap = x[:, :, None] - x[:, None]
    square = np.sum(gap**2, -1) + np.where(np.eye(x.shape[1]), np.inf, 0)
    factor = 1 / square if s == 0 else abs(s) * square ** (-s / 2 - 1)
    return kappa * x - strength / (x.shape[1] - 1) * np.einsum("ckl,ckld->ckd", factor, gap)


@pytest.fixture(scope="module", params=[2, 3])
def gas(request):
    """A log gas of 9 particles by Euler steps of 0.01 in two or three dimensions."""
    start = np.random.default_rng(1).normal(size=(24, 9, request.param)) * 0.5
    return euler(riesz_gradient, start, 0.01, 6.0, 3000, seed=request.param)


def verdict(dataset, law="second_moment", **options):
    return report.check(dataset, **options).sel(law=law)


def test_second_moment_of_a_log_gas(gas):
    row = verdict(as_dataset(gas, [QUADRATIC, RIESZ]))
    dim = gas.shape[-1]
    assert bool(row["passed"])  # alpha 1e-3
    assert float(row["predicted"]) == pytest.approx(dim / 7.8 + 0.7 / 2.6, rel=0.02)  # the finite step adds about 1 %
    assert float(row["standard_error"]) < 0.01 * float(row["measured"])
    assert 0.3 < float(row["standard_error"] / row["standard_error_chains"]) < 3


FAULTS = {
    "beta 20 % high": ([QUADRATIC, RIESZ], LANGEVIN | {"beta": 7.2}),
    "beta 20 % low": ([QUADRATIC, RIESZ], LANGEVIN | {"beta": 4.8}),
    "noise without the 2": ([QUADRATIC, RIESZ], LANGEVIN | {"beta": 12.0}),
    "gradient without the factor N": ([QUADRATIC | {"stiffness": 11.7}, RIESZ | {"strength": 6.3}], LANGEVIN),
    "pair sum without the 1/2": ([QUADRATIC, RIESZ | {"strength": 1.4}], LANGEVIN),
    "1/N for 1/(N-1)": ([QUADRATIC, RIESZ | {"strength": 0.7 * 9 / 8}], LANGEVIN),
    "wrong exponent": ([QUADRATIC, RIESZ | {"s": 1.0}], LANGEVIN),
    "wrong sign": ([QUADRATIC, RIESZ | {"strength": -0.7}], LANGEVIN),
    "wrong stiffness": ([QUADRATIC | {"stiffness": 1.1}, RIESZ], LANGEVIN),
    "no interaction": ([QUADRATIC], LANGEVIN),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_turn_the_law_red(gas, fault):
    terms, sampler = FAULTS[fault]
    assert not bool(verdict(as_dataset(gas, terms, sampler=sampler))["passed"])


@pytest.mark.parametrize(
    ("s", "dim", "described"),
    [(0.5, 2, 0.5), (-1.0, 2, -1.0), (1.0, 3, "coulomb"), (1.0, 3, 1.0)],
    ids=["riesz", "linear", "coulomb", "d3"],
)
def test_virial_law_of_riesz_gases(s, dim, described):
    start = np.random.default_rng(2).normal(size=(24, 7, dim)) * 0.7
    omega = euler(lambda x: riesz_gradient(x, s=s), start, 0.002, 6.0, 5000, seed=7)
    sampler = LANGEVIN | {"step_size": 0.002}
    assert bool(verdict(as_dataset(omega, [QUADRATIC, RIESZ | {"s": described}], sampler=sampler))["passed"])
    assert not bool(verdict(as_dataset(omega, [QUADRATIC, RIESZ | {"s": described}], sampler=sampler | {"beta": 7.2}))["passed"])


def test_a_run_with_jumps_is_not_called_correct(gas):
    exploded = gas.copy()
    exploded[3, 100, 4] *= 300
    table = report.check(as_dataset(exploded, [QUADRATIC, RIESZ]))
    assert table["law"].values.tolist() == ["steps"]
    assert not table["passed"].values.any()  # one jump, but it holds most of the second moment
    assert "over 20 %" in json.loads(table.attrs["skipped"])["second_moment"]
    assert report.check(as_dataset(gas, [QUADRATIC, RIESZ]))["passed"].values.tolist() == [True, True]
    for sampler in (LANGEVIN, LANGEVIN | {"drift_cap": 0.1}):
        assert not report.check(as_dataset(gas / 100, [QUADRATIC, RIESZ], sampler=sampler))["passed"].values.all()


def line_gas(step_size, softening=0.0, drift_cap=np.inf):
    """64 particles of a log gas on a line at beta 20, kappa and strength 1."""

    def gradient(x):
        gap = x - x[..., 0][:, None]
        force = np.sum(gap / (gap**2 + softening**2 + np.eye(64)), -1, keepdims=True) / 63
        return np.clip(x - force, -drift_cap / step_size, drift_cap / step_size)

    start = np.random.default_rng(0).uniform(-1, 1, (6, 64, 1))
    sampler = LANGEVIN | {"step_size": step_size, "beta": 20.0, "drift_cap": None if drift_cap == np.inf else drift_cap}
    terms = [QUADRATIC | {"stiffness": 1.0}, RIESZ | {"strength": 1.0, "softening": softening}]
    return as_dataset(euler(gradient, start, step_size, 20.0, 1500, seed=1, every=10), terms, sampler=sampler)


@pytest.mark.parametrize("step_size", [1e-2, 1e-3])
def test_a_gas_that_explodes_on_a_line_has_a_red_line(step_size):
    """Uncapped steps of colliding particles throw them far out."""
    table = report.check(line_gas(step_size))
    assert not bool(table["passed"].sel(law="steps"))
    assert "density" not in table["law"].values or not bool(table["passed"].sel(law="density"))


def test_good_gases_on_a_line_pass_and_squeezed_ones_do_not():
    for options in ({"softening": 0.1}, {"drift_cap": 0.02}):
        good = line_gas(1e-3, **options)
        table = report.check(good)
        assert "steps" in table["law"].values
        assert table["passed"].values.all()
        assert not report.check(good.assign(omega=good["omega"] / 100))["passed"].values.all()


def test_a_step_too_long_for_the_density_law():
    """Free particles with Euler's variance at a step of 0.6: 1/(1 - 0.3 kappa) times the law's, no gross deviation."""
    omega = euler(lambda x: 1.3 * x, np.zeros((20, 20, 1)), 0.6, 6.0, 2000, seed=5, every=5)
    table = report.check(as_dataset(omega, [QUADRATIC], sampler=LANGEVIN | {"step_size": 0.6}))
    assert table["law"].values.tolist() == ["second_moment", "steps"]
    assert table["passed"].values.all()
    assert "the step is too long" in json.loads(table.attrs["skipped"])["density"]
    shifted = report.check(as_dataset(omega + 0.5, [QUADRATIC], sampler=LANGEVIN | {"step_size": 0.6}))
    assert not bool(shifted["passed"].sel(law="density"))


def test_pair_force_satisfies_the_deterministic_virial_identity():
    """(1/N) sum x_k . F_k = |s| (strength/2) mean |x_k - x_l|^-s for any configuration, strength/2 for the log."""
    x = np.random.default_rng(3).normal(size=(11, 3))
    i, j = np.triu_indices(11, 1)
    r = np.linalg.norm(x[i] - x[j], axis=1)
    for s in (0.0, 0.5, 1.0, -0.5, -1.5, 2.0):
        force = pair_force(x, {"strength": 0.7}, s)
        expected = 0.35 if s == 0 else abs(s) * 0.35 * np.mean(r**-s)
        assert np.sum(x * force) / 11 == pytest.approx(expected, rel=1e-12)
    soft = pair_force(x, {"strength": 0.7, "softening": 0.4}, 0.0)
    assert np.sum(x * soft) / 11 == pytest.approx(0.35 * np.mean(r**2 / (r**2 + 0.16)), rel=1e-12)
    both = pair_force(x, {"strength": 0.7, "mirror": True}, 0.0) - pair_force(x, {"strength": 0.7}, 0.0)
    k = 4
    pulls = [(x[k] + x[m]) / np.sum((x[k] + x[m]) ** 2) for m in range(11) if m != k]
    np.testing.assert_allclose(both[k], 0.07 * np.sum(pulls, 0), rtol=1e-12)


@pytest.mark.parametrize("step_size", [0.05, 0.6])
def test_euler_law_is_exact_at_any_step(step_size):
    """Free particles: variance 1/(beta kappa (1 - step kappa/2)), far from the continuous law at step 0.6."""
    omega = euler(lambda x: 1.3 * (x - 0.4), np.full((40, 20, 2), 0.4), step_size, 6.0, 2000, seed=5, every=5)
    row = verdict(as_dataset(omega, [QUADRATIC | {"centre": 0.4}], sampler=LANGEVIN | {"step_size": step_size}))
    assert bool(row["passed"])
    assert float(row["measured"]) == pytest.approx(2 / (7.8 * (1 - 0.65 * step_size)), rel=0.02)
    exact = verdict(as_dataset(omega, [QUADRATIC | {"centre": 0.4}], sampler=EXACT))
    assert bool(exact["passed"]) == (step_size < 0.01)  # negative control: the law without the step is rejected at both steps


def test_drift_cap_and_clip_enter_the_law():
    def clipped(x):
        g = 1.3 * x
        return g * np.minimum(1, 0.5 / np.maximum(np.linalg.norm(g, axis=-1, keepdims=True), 1e-300))

    omega = euler(clipped, np.zeros((40, 10, 2)), 0.05, 6.0, 3000, seed=6)
    for guard in ({"clip": 0.5}, {"drift_cap": 0.025}):
        assert bool(verdict(as_dataset(omega, [QUADRATIC], sampler=LANGEVIN | {"step_size": 0.05} | guard))["passed"])
    assert not bool(verdict(as_dataset(omega, [QUADRATIC], sampler=LANGEVIN | {"step_size": 0.05}))["passed"])


def test_false_alarm_rate():
    """200 correct runs at alpha 0.05: at most 0.05 + 4 standard deviations (0.0616) are rejected."""
    omega = euler(lambda x: 1.3 * x, np.random.default_rng(0).normal(size=(800, 2, 2)) * 0.36, 0.1, 6.0, 1200, seed=8, every=4)
    sampler = LANGEVIN | {"step_size": 0.1}
    runs = [as_dataset(omega[4 * k : 4 * k + 4], [QUADRATIC], sampler=sampler) for k in range(200)]
    rejected = np.mean([not bool(verdict(run, alpha=0.05)["passed"]) for run in runs])
    assert rejected < 0.05 + 0.0616


# One dimension.


@pytest.mark.parametrize(("n", "beta"), [(5, 6.0), (24, 2.0)])
def test_density_of_exact_log_gas_samples(n, beta):
    omega = sample_log_gas(n, beta, 1.3, 0.7, rng=3, size=1600).reshape(4, 400, n, 1)
    for centre in (0.0, -0.3):
        dataset = as_dataset(omega + centre, [QUADRATIC | {"centre": centre}, RIESZ], sampler=EXACT | {"beta": beta})
        assert report.check(dataset)["passed"].values.tolist() == [True, True]
    wrong = as_dataset(omega, [QUADRATIC, RIESZ], sampler=EXACT | {"beta": 1.2 * beta})
    assert not bool(verdict(wrong)["passed"])
    shifted = as_dataset(omega + 0.05, [QUADRATIC, RIESZ], sampler=EXACT | {"beta": beta})
    assert not bool(verdict(shifted, "density")["passed"])


def from_density(field, rho, shape, seed):
    """Independent points of a piecewise constant density."""
    u = np.random.default_rng(seed).uniform(size=shape)
    return np.interp(u, np.concatenate([[0], np.cumsum(rho) * field.width]), field.edges)


def test_density_against_the_mean_field():
    field = MeanField(lambda x: 0.65 * x**2, lambda r: 0.7 * r**-0.5, 6.0, np.linspace(-2, 2, 401))
    omega = from_density(field, field.stationary().rho, (4, 300, 80, 1), 1)
    box = {"name": "Box", "low": [-2.0], "high": [2.0]}
    assert bool(verdict(as_dataset(omega, [QUADRATIC, RIESZ | {"s": 0.5}], box, EXACT), "density")["passed"])
    assert bool(verdict(as_dataset(omega, [QUADRATIC, RIESZ | {"s": 0.5}], None, EXACT), "density")["passed"])
    for wrong in (RIESZ | {"s": -0.5}, RIESZ | {"s": 0.5, "strength": 0.9}):
        assert not bool(verdict(as_dataset(omega, [QUADRATIC, wrong], box, EXACT), "density")["passed"])


def test_density_of_user_energies():
    def well(x):
        return 2 * (x**2 - 0.5) ** 2

    field = MeanField(well, None, 6.0, np.linspace(-1.5, 1.5, 401))
    omega = from_density(field, field.stationary().rho, (4, 400, 50, 1), 2)
    dataset = as_dataset(omega, [{"name": "Alignment", "n": 100}], {"name": "Ball", "radius": 1.5, "dim": 1}, EXACT)
    table = report.check(dataset)
    assert "density" not in table["law"].values
    assert "Alignment" in json.loads(table.attrs["skipped"])["density"]
    assert bool(verdict(dataset, "density", external=well)["passed"])
    assert not bool(verdict(dataset, "density", external=lambda x: 1.2 * well(x))["passed"])
    assert not bool(verdict(dataset, "density", external=well, interaction=lambda r: -0.3 * np.log(r))["passed"])


# Walls.


def stationary_atom(sigma):
    """Mass on both walls of the projected Gaussian walk on [-1, 1], from its discretised transition matrix."""
    from scipy.special import ndtr

    edges = np.linspace(-1, 1, 801)
    x = np.concatenate([[-1.0], (edges[1:] + edges[:-1]) / 2, [1.0]])
    inner = np.diff(ndtr((edges - x[:, None]) / sigma), axis=1)
    matrix = np.column_stack([ndtr((-1 - x) / sigma), inner, ndtr((x - 1) / sigma)])
    equations = np.vstack([(matrix.T - np.eye(len(x)))[1:], np.ones(len(x))])
    p = np.linalg.solve(equations, np.r_[np.zeros(len(x) - 1), 1.0])
    return p[0] + p[-1]


@pytest.mark.parametrize("sigma", [0.05, 0.2, 0.4])
def test_predicted_atom_of_free_particles(sigma):
    sampler = LANGEVIN | {"step_size": sigma**2, "beta": 2.0}
    omega = np.random.default_rng(0).uniform(-1, 1, (2, 40, 100, 1))
    omega[..., :4, :] = 1.0
    row = verdict(as_dataset(omega, [], {"name": "Box", "low": [-1.0], "high": [1.0]}, sampler), "wall_atom")
    exact = stationary_atom(sigma)
    assert float(row["predicted"]) == pytest.approx(exact, abs=1.3e-4)
    if sigma == 0.05:
        assert exact / 2 == pytest.approx(0.017182, abs=1e-5)


BOX = {"name": "Box", "low": [-1.0, 0.0], "high": [1.0, 1.5]}


def in_box(x):
    return np.clip(x, BOX["low"], BOX["high"])


def folded(x):
    low, width = np.array(BOX["low"]), np.subtract(BOX["high"], BOX["low"])
    return low + width - np.abs(np.mod(x - low, 2 * width) - width)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_wall_atom_of_free_particles_in_two_dimensions(dtype):
    start = np.random.default_rng(0).uniform(BOX["low"], BOX["high"], (50, 20, 2))
    projected = euler(np.zeros_like, start, 0.01, 2.0, 3000, seed=1, project=in_box).astype(dtype)
    reflected = euler(np.zeros_like, start, 0.01, 2.0, 600, seed=1, project=folded).astype(dtype)
    sampler = LANGEVIN | {"beta": 2.0}
    row = verdict(as_dataset(projected, [], BOX, sampler), "wall_atom")
    assert bool(row["passed"])
    assert float(row["measured"]) > 0.1
    assert not bool(verdict(as_dataset(projected, [], BOX, sampler | {"beta": 1.5}), "wall_atom")["passed"])
    assert not bool(verdict(as_dataset(reflected, [], BOX, sampler), "wall_atom")["passed"])
    assert bool(verdict(as_dataset(reflected, [], BOX, sampler | {"scheme": "reflected"}), "wall_atom")["passed"])
    assert not bool(verdict(as_dataset(projected, [], BOX, sampler | {"scheme": "reflected"}), "wall_atom")["passed"])


@pytest.mark.parametrize("dim", [2, 3])
def test_wall_atom_from_the_density_near_the_wall(dim):
    def in_ball(x):
        return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1)

    start = np.random.default_rng(0).uniform(-0.5, 0.5, (40, 20, dim))
    omega = euler(lambda x: 1.3 * x, start, 0.001, 2.0, 6000, seed=2, project=in_ball)
    ball, sampler = {"name": "Ball", "radius": 1.0, "dim": dim}, LANGEVIN | {"step_size": 0.001, "beta": 2.0}
    table = report.check(as_dataset(omega, [QUADRATIC], ball, sampler))
    assert table["law"].values.tolist() == ["wall_atom", "steps"]  # the second-moment law does not hold at a wall
    assert bool(table["passed"][0])
    assert float(table["measured"][0]) > 0.01
    assert "touch the wall" in json.loads(table.attrs["skipped"])["second_moment"]
    for wrong in ({"beta": 0.8}, {"beta": 5.0}):  # noise lengths 1.58 too long or too short
        assert not bool(verdict(as_dataset(omega, [QUADRATIC], ball, sampler | wrong), "wall_atom")["passed"])


def test_coulomb_mass_on_the_wall_is_not_tested_as_an_artefact():
    omega = np.random.default_rng(0).normal(size=(2, 30, 12, 3))
    omega /= np.linalg.norm(omega, axis=-1, keepdims=True)
    table = report.check(as_dataset(omega, [RIESZ | {"s": 1.0}], {"name": "Ball", "radius": 1.0, "dim": 3}))
    assert table["law"].values.tolist() == ["steps"]
    assert "equilibrium itself" in json.loads(table.attrs["skipped"])["wall_atom"]


def test_particles_far_from_the_wall(gas):
    ball = {"name": "Ball", "radius": 9.0, "dim": gas.shape[-1]}
    table = report.check(as_dataset(gas, [QUADRATIC, RIESZ], ball))
    assert table["law"].values.tolist() == ["second_moment", "wall_atom", "steps"]
    assert table["passed"].values.all()


def test_shrunk_projection_has_no_atom_on_the_wall_and_keeps_the_density():
    """The scheme stops SHRINK noise lengths before the wall; its error of the distribution is of the order of the step."""
    sigma = 0.05
    start = np.random.default_rng(0).uniform(-0.9, 0.9, (50, 20, 1))
    sampler = LANGEVIN | {"beta": 2.0, "step_size": sigma**2, "scheme": "shrunk"}
    box = {"name": "Box", "low": [-1.0], "high": [1.0]}
    edge = 1 - SHRINK * sigma
    shrunk = euler(np.zeros_like, start, sigma**2, 2.0, 3000, seed=1, project=lambda x: np.clip(x, -edge, edge))
    table = report.check(as_dataset(shrunk, [], box, sampler))
    assert table["law"].values.tolist() == ["wall_atom", "density", "steps"]
    assert table["passed"].values.all()
    projected = euler(np.zeros_like, start, sigma**2, 2.0, 600, seed=1, project=lambda x: np.clip(x, -1, 1))
    assert not bool(verdict(as_dataset(projected, [], box, sampler), "wall_atom")["passed"])
    assert not bool(verdict(as_dataset(0.97 * shrunk, [], box, sampler), "density")["passed"])


# Exact samplers, the torus, minibatches.


def pair_energy(x, strength, period=None):
    """H_N of the bare log between the particles of (..., n, 1), chordal with a period."""
    n = x.shape[-2]
    i, j = np.triu_indices(n, 1)
    gap = np.abs(x[..., i, 0] - x[..., j, 0])
    return -strength * np.log(gap if period is None else period / np.pi * np.sin(np.pi * gap / period)).sum(-1) / (n * (n - 1))


GASES = {
    "trap": (
        lambda: sample_log_gas(9, 4.0, 1.3, 0.7, rng=3, size=2000).reshape(4, 500, 9, 1),
        [QUADRATIC, RIESZ],
        {"name": "FullSpace", "dim": 1},
        {"second_moment", "energy", "density"},
    ),
    "box": (
        lambda: sample_wall_gas(9, 4.0, 0.7, 1.5, rng=3, size=2000).reshape(4, 500, 9, 1) + 0.5,
        [RIESZ],
        {"name": "Box", "low": [-1.0], "high": [2.0]},
        {"energy", "density"},
    ),
    "ball": (
        lambda: sample_wall_gas(9, 4.0, 0.7, 1.5, rng=4, size=2000).reshape(4, 500, 9, 1),
        [RIESZ | {"length": 0.4}],
        {"name": "Ball", "radius": 1.5, "dim": 1},
        {"energy", "density"},
    ),
    "torus": (
        lambda: sample_circle_gas(9, 4.0, 0.7, 3.0, rng=3, size=2000).reshape(4, 500, 9, 1),
        [RIESZ | {"period": 3.0, "truncation": None}],
        {"name": "Torus", "period": [3.0]},
        {"energy", "density"},
    ),
}


@pytest.mark.parametrize("gas_name", GASES)
def test_exact_energy_and_density_laws_of_log_gases(gas_name):
    draw, terms, domain, expected = GASES[gas_name]
    omega = draw()
    period = domain["period"][0] if gas_name == "torus" else None
    energy = pair_energy(omega, 0.7, period) + 0.35 * np.log(terms[-1]["length"])
    energy += 0.65 * (omega[..., 0] ** 2).mean(-1) if gas_name == "trap" else 0
    sampler = EXACT | {"beta": 4.0}
    table = report.check(as_dataset(omega, terms, domain, sampler, energy=energy))
    assert set(table["law"].values) == expected
    assert table["passed"].values.all()  # alpha 1e-3 together
    for wrong in (sampler | {"beta": 4.6}, sampler | {"beta": 3.4}):
        assert not bool(verdict(as_dataset(omega, terms, domain, wrong, energy=energy), "energy")["passed"])
    assert not bool(verdict(as_dataset(omega, terms, domain, sampler, energy=energy + 0.01), "energy")["passed"])
    langevin = report.check(as_dataset(omega, terms, domain, LANGEVIN | {"beta": 4.0}, energy=energy))
    assert "exact samplers" in json.loads(langevin.attrs["skipped"])["energy"]


def test_energies_without_an_exact_mean_are_left_out():
    omega = sample_log_gas(9, 4.0, 1.3, 0.7, rng=3, size=80).reshape(4, 20, 9, 1)
    sampler = EXACT | {"beta": 4.0}

    def reason(terms, domain=None, **series):
        return json.loads(report.check(as_dataset(omega, terms, domain, sampler, **series)).attrs["skipped"])["energy"]

    energy = {"energy": pair_energy(omega, 0.7)}
    assert "no energy was recorded" in reason([QUADRATIC, RIESZ])
    for term in (
        RIESZ | {"s": 0.5},
        RIESZ | {"softening": 0.1},
        RIESZ | {"truncation": 0.1},
        RIESZ | {"period": 9.0},
        RIESZ | {"mirror": True},
    ):
        assert "not the bare log" in reason([QUADRATIC, term], **energy)
    assert "several traps" in reason([QUADRATIC, QUADRATIC, RIESZ], **energy)
    assert "not the bare log" in reason([RIESZ], {"name": "Torus", "period": [9.0]}, **energy)  # distances not the torus's
    assert "no quadratic trap" in reason([RIESZ], **energy)
    assert "without a closed form: External" in reason([QUADRATIC, {"name": "External"}], **energy)


def test_a_trap_on_a_torus_has_no_law():
    omega = np.random.default_rng(0).uniform(0, 3, (4, 40, 9, 1))
    torus, period = {"name": "Torus", "period": [3.0]}, RIESZ | {"period": [3.0]}
    skipped = json.loads(report.check(as_dataset(omega, [QUADRATIC, period], torus, EXACT)).attrs["skipped"])
    assert "on a torus positions have no moments" in skipped["second_moment"]
    assert "only repel each other" in skipped["density"]
    assert "no wall" in skipped["wall_atom"]
    with pytest.raises(ValueError, match="must give period"):
        report.check(as_dataset(omega, [period], {"name": "Torus"}, EXACT))


@pytest.mark.parametrize("sign", [1, -1], ids=["plain", "mirror"])
@pytest.mark.parametrize(("dim", "s"), [(1, 0.0), (2, 1.0), (3, 0.5)])
def test_periodic_pair_force_is_minus_the_gradient_of_its_energy(dim, s, sign):
    rng = np.random.default_rng(2)
    period, x = np.array([1.5, 2.0, 0.9])[:dim], rng.uniform(0, 0.9, (6, dim))
    term = {"strength": 0.7, "s": s, "period": period.tolist(), "mirror": sign < 0}

    def energy(x):  # N H_N
        total = 0.0
        for side in (-1, 1) if sign < 0 else (-1,):
            chord = period / np.pi * np.sin(np.pi * (x[:, None] + side * x) / period)
            r = np.sqrt(np.sum(chord**2, -1))[~np.eye(len(x), dtype=bool)]
            total += np.sum(-np.log(r) if s == 0 else r**-s)
        return 0.7 * total / (2 * (len(x) - 1))

    steps = 1e-6 * np.eye(x.size).reshape(-1, *x.shape)
    slope = np.array([energy(x + h) - energy(x - h) for h in steps]).reshape(x.shape) / 2e-6
    np.testing.assert_allclose(pair_force(x, term, s), -slope, rtol=1e-6, atol=1e-6)


def test_truncated_pair_force_has_no_force_inside():
    x = np.array([[0.0], [0.1], [1.0]])
    force = pair_force(x, {"strength": 2.0, "truncation": 0.5}, 1.0)
    np.testing.assert_allclose(force[:, 0], [-1.0, -1 / 0.81, 1 + 1 / 0.81])


@pytest.mark.parametrize(
    ("acceptance", "passed", "words"),
    [
        ([0.6, 0.7, 0.5, 0.8], True, "useful"),
        ([0.6, 0.04, 0.5, 0.8], False, "stuck"),
        ([0.0, 0.0, 0.0, 0.0], False, "stuck"),
        ([0.6, 0.2, 0.5, 0.8], True, "shorter steps"),
        ([0.99, 0.97, 0.99, 1.0], True, "longer steps"),
    ],
)
def test_acceptance_of_the_worst_chain(acceptance, passed, words):
    omega = sample_log_gas(5, 6.0, 1.3, 0.7, rng=3, size=160).reshape(4, 40, 5, 1)
    series = np.repeat(np.array(acceptance)[:, None], 40, 1)
    table = report.check(as_dataset(omega, [QUADRATIC, RIESZ], sampler=EXACT | {"target": 0.574}, acceptance=series))
    row = table.sel(law="acceptance")
    assert bool(row["passed"]) == passed
    assert words in str(row["note"].values)
    assert float(row["measured"]) == pytest.approx(min(acceptance))
    assert float(row["predicted"]) == 0.574
    assert "acceptance" in report.summary(table)
    assert "steps" not in table["law"].values  # jumps are Langevin's
    start = as_dataset(omega, [QUADRATIC, RIESZ], sampler=EXACT, acceptance=np.full((4, 40), np.nan)).isel(step=[0])
    assert "no step was taken" in json.loads(report.check(start).attrs["skipped"])["acceptance"]


def test_frames_of_the_tuning_are_left_out():
    omega = sample_log_gas(5, 6.0, 1.3, 0.7, rng=3, size=400).reshape(4, 100, 5, 1)
    omega[:, :61] *= 3
    dataset = as_dataset(
        omega, [QUADRATIC, RIESZ], sampler=EXACT | {"tune": 600}, acceptance=np.r_[np.zeros(61), np.ones(39)] * np.ones((4, 1))
    )
    dataset = dataset.assign_coords(step=10 * np.arange(100))
    table = report.check(dataset)
    assert table.attrs["n_frames"] == 39
    assert table["passed"].values.all()
    assert report.check(dataset, burn_in=0.8).attrs["n_frames"] == 20  # a longer burn-in stays
    untuned = dataset.assign_attrs(sampler=json.dumps(EXACT | {"tune": 0}))  # negative control
    assert not report.check(untuned)["passed"].values.all()
    with pytest.raises(ValueError, match="frames after the 990 steps of tuning, got steps up to 990"):
        report.check(dataset.assign_attrs(sampler=json.dumps(EXACT | {"tune": 990})))


def test_extra_temperature_of_minibatches():
    """Noise of variance v per coordinate in the gradient heats by step v/2; the second moment obeys the law with that heat only."""
    step, v = 0.02, 3.0
    rng = np.random.default_rng(9)
    start = rng.normal(size=(40, 10, 2)) * 0.4
    omega = euler(lambda x: 1.3 * x + np.sqrt(v) * rng.standard_normal(x.shape), start, step, 6.0, 3000, seed=6)
    heat = np.full(omega.shape[:2], step * v / 2)
    sampler = LANGEVIN | {"step_size": step}
    table = report.check(as_dataset(omega, [QUADRATIC], sampler=sampler, extra_temperature=heat))
    assert table["law"].values.tolist() == ["second_moment", "steps", "extra_temperature"]
    assert bool(table["passed"].sel(law="second_moment"))
    row = table.sel(law="extra_temperature")
    assert not bool(row["passed"])  # 0.03 against 1/beta = 0.167
    assert "minibatches heat by 0.18 of 1/beta" in str(row["note"].values)
    assert not bool(verdict(as_dataset(omega, [QUADRATIC], sampler=sampler))["passed"])
    assert bool(verdict(as_dataset(omega, [QUADRATIC], sampler=sampler, extra_temperature=heat / 2), "extra_temperature")["passed"])
    frozen = report.check(as_dataset(omega, [QUADRATIC], sampler=sampler | {"beta": "inf"}, extra_temperature=heat))
    assert "alone make the temperature 0.03" in json.loads(frozen.attrs["skipped"])["extra_temperature"]


def test_a_run_at_zero_temperature_keeps_the_rules_without_a_temperature():
    omega = np.random.default_rng(0).uniform(-0.9, 0.9, (2, 40, 5, 2))
    sampler = LANGEVIN | {"beta": "inf", "scheme": "reflected", "drift_cap": 0.1}
    box = {"name": "Box", "low": [-1.0, -1.0], "high": [1.0, 1.0]}
    table = report.check(as_dataset(omega, [RIESZ], box, sampler, capped=np.zeros((2, 40))))
    assert table["law"].values.tolist() == ["wall_atom", "capped"]
    assert table["passed"].values.all()
    assert "beta is infinite" in json.loads(table.attrs["skipped"])["steps"]


# Coincident pairs, descents, drifting frames, energies without a closed form.


def test_coincident_pairs_turn_a_bare_gas_red(gas):
    count = np.zeros(gas.shape[:2])
    assert bool(verdict(as_dataset(gas, [QUADRATIC, RIESZ], coincident=count), "coincident")["passed"])
    count[3, -1] = 1
    row = verdict(as_dataset(gas, [QUADRATIC, RIESZ], coincident=count), "coincident")
    assert not bool(row["passed"])
    assert "no force on itself: softening" in str(row["note"].values)
    for option in ({"softening": 0.1}, {"truncation": 0.1}):
        row = verdict(as_dataset(gas, [QUADRATIC, RIESZ | option], coincident=count), "coincident")
        assert bool(row["passed"])
        assert "may coincide" in str(row["note"].values)
    count[:], count[:, 0] = 0, 1  # the start is no kept frame
    assert bool(verdict(as_dataset(gas, [QUADRATIC, RIESZ], coincident=count), "coincident")["passed"])


@pytest.mark.parametrize("terms", [[QUADRATIC, RIESZ], [{"name": "Pair"}]], ids=["riesz", "user"])
def test_infinite_energies_are_seen(terms):
    omega = sample_log_gas(9, 6.0, 1.3, 0.7, rng=3, size=400).reshape(4, 100, 9, 1)
    energy = np.ones((4, 100))
    energy[0, -1] = np.inf
    table = report.check(as_dataset(omega, terms, sampler=EXACT, energy=energy))
    assert not bool(table["passed"].sel(law="coincident"))
    assert "energy            infinite in some frames" in report.summary(table)
    assert "coincident" not in report.check(as_dataset(omega, terms, sampler=EXACT, energy=np.ones((4, 100))))["law"].values


@pytest.mark.parametrize(("rate", "passed"), [(0.5, True), (0.02, False)])
def test_a_descent_has_settled_or_still_moves(rate, passed):
    omega = np.exp(-rate * np.arange(80))[:, None, None] * np.random.default_rng(0).normal(size=(3, 1, 5, 2))
    energy = 0.65 * (omega**2).sum(-1).mean(-1)
    series = {"energy": energy, "grad_norm": np.sqrt(2.6 * energy)}
    frozen = report.check(as_dataset(omega, [QUADRATIC], sampler=LANGEVIN | {"beta": "inf"}, **series))
    row = frozen.sel(law="settled")
    assert bool(row["passed"]) == passed
    assert ("still moves: more steps" in str(row["note"].values)) != passed
    assert "gradient norm" in str(row["note"].values)
    assert frozen.sizes["quantity"] == 0
    assert "not tested: mixing (beta is infinite" in report.summary(frozen)
    annealed = LANGEVIN | {"beta": {"name": "linear", "start": 1, "end": 9, "n_steps": 80}}
    row = verdict(as_dataset(omega, [QUADRATIC], sampler=annealed, **series), "settled")
    assert bool(row["passed"])  # noise never rests
    assert float(row["measured"]) == float(frozen["measured"].sel(law="settled"))
    constant = report.check(as_dataset(omega, [QUADRATIC], **series))
    assert "for descents" in json.loads(constant.attrs["skipped"])["settled"]


def test_a_descent_that_starts_at_rest_has_settled():
    omega = np.ones((2, 40, 5, 2)) + 1e-16 * np.random.default_rng(0).normal(size=(2, 40, 5, 2))
    energy = 1.3 + 4e-16 * np.random.default_rng(1).normal(size=(2, 40))
    assert bool(verdict(as_dataset(omega, [QUADRATIC], sampler=LANGEVIN | {"beta": "inf"}, energy=energy), "settled")["passed"])


def test_second_moment_is_no_measure_of_mixing_on_a_torus():
    omega = np.random.default_rng(0).uniform(0, 3, (4, 40, 9, 1))
    torus, terms = {"name": "Torus", "period": [3.0]}, [RIESZ | {"period": [3.0]}]
    assert report.check(as_dataset(omega, terms, torus, EXACT)).sizes["quantity"] == 0
    table = report.check(as_dataset(omega, terms, torus, EXACT, energy=pair_energy(omega, 0.7, 3.0)))
    assert table["quantity"].values.tolist() == ["energy"]


def test_a_law_that_fails_on_drifting_frames_says_so(gas):
    """A run that starts far out fails while it relaxes, with a hint; a wrong temperature fails without one."""
    start = np.random.default_rng(1).normal(size=(24, 9, gas.shape[-1])) * 2
    young = euler(riesz_gradient, start, 0.01, 6.0, 160, seed=3, every=4)
    row = verdict(as_dataset(young, [QUADRATIC | {"stiffness": 2.0}, RIESZ]))
    assert not bool(row["passed"])
    assert str(row["note"].values).endswith("; the frames still drift: longer burn_in or run")
    row = verdict(as_dataset(gas, [QUADRATIC, RIESZ], sampler=LANGEVIN | {"beta": 7.2}))
    assert not bool(row["passed"])
    assert "drift:" not in str(row["note"].values)


def test_steps_of_user_energies_by_their_recorded_gradients():
    omega = euler(lambda x: 1.3 * x, np.zeros((20, 20, 2)), 0.05, 6.0, 2000, seed=5, every=5)
    norms = 1.3 * np.sqrt((omega**2).sum(-1).mean(-1))
    sampler, user = LANGEVIN | {"step_size": 0.05}, [{"name": "External"}]
    row = verdict(as_dataset(omega, user, sampler=sampler, grad_norm=norms), "steps")
    assert bool(row["passed"])
    assert "r.m.s." in str(row["note"].values)
    norms[2, 200:210] = 1e3  # 10 of 6000 frames; 1e-3 are let through
    assert not bool(verdict(as_dataset(omega, user, sampler=sampler, grad_norm=norms), "steps")["passed"])
    assert bool(verdict(as_dataset(omega, user, sampler=sampler | {"drift_cap": 0.1}, grad_norm=norms), "steps")["passed"])
    exact = report.check(as_dataset(omega, user, sampler=EXACT, grad_norm=norms))
    assert "no Langevin steps" in json.loads(exact.attrs["skipped"])["steps"]
    box = {"name": "Box", "low": [-9.0, -9.0], "high": [float(omega.max()), 9.0]}
    walled = report.check(as_dataset(omega, user, box, sampler, grad_norm=norms, projected=np.full(norms.shape, 0.01)))
    assert "do not know of the wall" in json.loads(walled.attrs["skipped"])["steps"]


# Health, mixing, and what comes back.


def test_capped_fraction(gas):
    shape = gas.shape[:2]
    sampler = LANGEVIN | {"drift_cap": 1e9}
    for fraction, passed in ((0.0, True), (5e-4, True), (0.01, False)):
        row = verdict(as_dataset(gas, [QUADRATIC, RIESZ], sampler=sampler, capped=np.full(shape, fraction)), "capped")
        assert bool(row["passed"]) == passed


def test_mixing_and_summary(gas):
    table = report.check(as_dataset(gas, [QUADRATIC, RIESZ], energy=np.random.default_rng(0).normal(size=gas.shape[:2])))
    assert table["quantity"].values.tolist() == ["second_moment", "energy"]
    assert float(table["r_hat"].sel(quantity="energy")) == pytest.approx(1, abs=0.02)
    assert float(table["ess"].sel(quantity="energy")) == pytest.approx(24 * 112, rel=0.2)
    text = report.summary(table)
    assert "second_moment" in text
    assert "ok" in text
    assert "not tested: density (the density law is for one dimension)" in text
    assert max(len(line) for line in text.splitlines()) < 140
    assert next(line for line in text.splitlines() if line.startswith("steps")).split()[4] == "-"
    assert "R-hat over" not in text
    started_apart = report.check(as_dataset(gas + np.linspace(0, 2, 24)[:, None, None, None], [QUADRATIC]))
    assert float(started_apart["r_hat"][0]) > 1.2
    assert "R-hat over 1.05: not mixed" in report.summary(started_apart)
    assert "under 100 samples: rough errors" in report.summary(report.check(as_dataset(gas[:1, :20], [QUADRATIC, RIESZ])))


@pytest.mark.parametrize(
    ("terms", "sampler"),
    [
        ([{"name": "Alignment"}], LANGEVIN),
        ([QUADRATIC, RIESZ], LANGEVIN | {"beta": {"name": "linear", "start": 1, "end": 2, "n_steps": 5}}),
        ([QUADRATIC, RIESZ], LANGEVIN | {"beta": "inf"}),
        ([QUADRATIC, RIESZ], LANGEVIN | {"preconditioner": [1.0, 2.0]}),
        ([QUADRATIC | {"stiffness": [1.0, 2.0]}], LANGEVIN),
        ([RIESZ], EXACT),
        ([QUADRATIC, RIESZ], {}),
    ],
)
def test_no_law_is_an_empty_axis(terms, sampler):
    omega = np.random.default_rng(0).normal(size=(2, 40, 5, 2))
    table = report.check(as_dataset(omega, terms, sampler=sampler))
    assert table.sizes["law"] == 0
    names = "second_moment energy wall_atom density steps capped acceptance extra_temperature coincident settled"
    names += " mixing" if isinstance(sampler.get("beta", 0.0), (str, dict)) else ""
    assert set(json.loads(table.attrs["skipped"])) == set(names.split())
    assert table.sizes["quantity"] == ("mixing" not in names)
    assert "no law applies" in report.summary(table)


def test_runs_without_attributes_or_with_few_frames():
    bare = as_dataset(np.random.default_rng(0).normal(size=(1, 2, 5, 2)), [QUADRATIC])
    assert "too few frames" in json.loads(report.check(bare).attrs["skipped"])["second_moment"]
    bare.attrs = {}
    assert report.check(bare).sizes["law"] == 0
    assert report.check(bare.isel(step=[0])).sizes["law"] == 0


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        (lambda d: d.drop_vars("omega"), {}, "dataset must hold omega"),
        (lambda d: d.isel(chain=0), {}, "dataset must hold omega"),
        (lambda d: None, {}, "dataset must be an xarray.Dataset, got NoneType"),
        (lambda d: d["omega"], {}, "dataset must be an xarray.Dataset, got DataArray"),
        (lambda d: d.isel(step=slice(0, 0)), {}, "at least one frame"),
        (lambda d: d.assign_attrs(energy="{"), {}, r"attrs\['energy'\] must be JSON"),
        (lambda d: d.assign_attrs(domain='{"name": "Ball"}'), {}, r"attrs\['domain'\] must give radius"),
        (lambda d: d, {"external": 3.0}, "external must be a callable or None, got 3.0"),
        (lambda d: d, {"rng": "seed"}, "rng must be"),
        (lambda d: d, {"burn_in": "late"}, "burn_in must be a real number, got 'late'"),
        (lambda d: d, {"burn_in": 1.0}, "burn_in must lie in"),
        (lambda d: d, {"alpha": 0.0}, "alpha must lie in"),
        (lambda d: d.assign(omega=d["omega"].where(d["omega"] > 0)), {}, "omega must be finite"),
    ],
)
def test_bad_input(change, options, words):
    dataset = as_dataset(np.random.default_rng(0).normal(size=(2, 10, 5, 2)), [QUADRATIC])
    with pytest.raises(ValueError, match=words):
        report.check(change(dataset), **options)


def test_a_term_with_text_for_a_number_is_unknown(gas):
    for term in (QUADRATIC | {"stiffness": "soft"}, RIESZ | {"s": "log"}):
        assert term["name"] in json.loads(report.check(as_dataset(gas, [QUADRATIC, term])).attrs["skipped"])["second_moment"]


def test_summary_of_something_else(gas):
    with pytest.raises(ValueError, match="table must be what check returns"):
        report.summary(as_dataset(gas, [QUADRATIC]))


def test_nested_sums_and_unknown_sums(gas):
    nested = as_dataset(gas, [{"name": "Sum", "terms": [QUADRATIC]}, RIESZ])
    assert float(verdict(nested)["predicted"]) == float(verdict(as_dataset(gas, [QUADRATIC, RIESZ]))["predicted"])
    nested.attrs["energy"] = json.dumps({"name": "Sum"})
    assert "Sum" in json.loads(report.check(nested).attrs["skipped"])["second_moment"]
