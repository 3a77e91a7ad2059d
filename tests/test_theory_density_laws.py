"""Densities against exact and mean-field laws."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.runs_for_reports import EXACT, LANGEVIN, QUADRATIC, RIESZ, as_dataset, euler, reds, verdict
from theory import report
from theory.ensembles import ginibre_radii, sample_log_gas
from theory.mean_field import MeanField


def test_a_step_too_long_for_the_density_law():
    """Free particles with Euler's variance at a step of 0.6: 1/(1 - 0.3 kappa) times the law's, no gross deviation."""
    omega = euler(lambda x: 1.3 * x, np.zeros((20, 20, 1)), 0.6, 6.0, 2000, seed=5, every=5)
    table = report.check(as_dataset(omega, [QUADRATIC], sampler=LANGEVIN | {"step_size": 0.6}))
    assert not reds(table)
    assert "the step is too long" in json.loads(table.attrs["skipped"])["density"]
    shifted = report.check(as_dataset(omega + 0.5, [QUADRATIC], sampler=LANGEVIN | {"step_size": 0.6}))
    assert not bool(shifted["passed"].sel(law="density"))


@pytest.mark.parametrize(("n", "beta"), [(5, 6.0), (24, 2.0)])
def test_density_of_exact_log_gas_samples(n, beta):
    omega = sample_log_gas(n, beta, 1.3, 0.7, rng=3, size=1600).reshape(4, 400, n, 1)
    for centre in (0.0, -0.3):
        dataset = as_dataset(omega + centre, [QUADRATIC | {"centre": centre}, RIESZ], sampler=EXACT | {"beta": beta})
        table = report.check(dataset)
        assert not reds(table)
        assert {"second_moment", "density", "temperature", "chaos_bias"} < set(table["law"].values)
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


def test_a_trap_on_a_torus_has_no_law():
    omega = np.random.default_rng(0).uniform(0, 3, (4, 40, 9, 1))
    torus, period = {"name": "Torus", "period": [3.0]}, RIESZ | {"period": [3.0]}
    skipped = json.loads(report.check(as_dataset(omega, [QUADRATIC, period], torus, EXACT)).attrs["skipped"])
    assert "on a torus positions have no moments" in skipped["second_moment"]
    assert "only repel each other" in skipped["density"]
    assert "no wall" in skipped["wall_atom"]
    with pytest.raises(ValueError, match="must give period"):
        report.check(as_dataset(omega, [period], {"name": "Torus"}, EXACT))


# More dimensions.


def uniform_in_ball(shape, dim, radius, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(*shape, dim))
    return radius * x / np.linalg.norm(x, axis=-1, keepdims=True) * rng.random((*shape, 1)) ** (1 / dim)


@pytest.mark.parametrize("dim", [2, pytest.param(3, marks=pytest.mark.slow), 5])
def test_free_particles_in_a_ball_a_box_and_on_a_torus(dim):
    ball, box = {"name": "Ball", "radius": 1.4, "dim": dim}, {"name": "Box", "low": [-1.0] * dim, "high": [0.5] * dim}
    torus = {"name": "Torus", "period": [1.5] * dim}
    inside = uniform_in_ball((4, 200, 20), dim, 1.4, dim)
    cube = np.random.default_rng(dim).uniform(-1, 0.5, (4, 200, 20, dim))
    for omega, domain in ((inside, ball), (cube, box), (cube + 7.0, torus)):
        row = verdict(as_dataset(omega, [], domain, EXACT), "density")
        assert bool(row["passed"])
        assert float(row["allowance"]) == 0
    assert not bool(verdict(as_dataset(0.98 * inside, [], ball, EXACT), "density")["passed"])
    cube[..., -1] = 1.5 * ((cube[..., -1] + 1) / 1.5) ** 1.1 - 1  # one coordinate
    assert not bool(verdict(as_dataset(cube, [], box, EXACT), "density")["passed"])


@pytest.mark.parametrize("dim", [2, 4])
def test_free_particles_in_a_trap_between_walls(dim):
    """Normal particles that miss the walls, and such that are cut by them."""
    rng = np.random.default_rng(dim)
    normal = rng.normal(size=(4, 4000, 20, dim)) / np.sqrt(7.8)
    assert bool(verdict(as_dataset(normal[:, :200], [QUADRATIC], None, EXACT), "density")["passed"])
    assert not bool(verdict(as_dataset(1.05 * normal[:, :200], [QUADRATIC], None, EXACT), "density")["passed"])
    points = normal.reshape(-1, dim)
    for domain in ({"name": "Ball", "radius": 0.6, "dim": dim}, {"name": "Box", "low": [-0.3] * dim, "high": [0.5] * dim}):
        kept = np.linalg.norm(points, axis=1) < 0.6 if domain["name"] == "Ball" else ((points > -0.3) & (points < 0.5)).all(1)
        omega = points[kept][:16000].reshape(4, -1, 20, dim)
        assert bool(verdict(as_dataset(omega, [QUADRATIC], domain, EXACT), "density")["passed"])
        assert not bool(verdict(as_dataset(omega, [QUADRATIC | {"stiffness": 2.0}], domain, EXACT), "density")["passed"])


@pytest.mark.parametrize("n", [6, 20])
def test_ginibre_radii_are_exact(n):
    radii = ginibre_radii(n, 6.0, 1.3, rng=n, size=2400)
    angle = np.random.default_rng(0).uniform(0, 2 * np.pi, radii.shape)
    omega = np.stack([radii * np.cos(angle), radii * np.sin(angle)], -1).reshape(4, 600, n, 2)
    log = RIESZ | {"strength": 2 * (n - 1) / 6.0}
    row = verdict(as_dataset(omega, [QUADRATIC, log], None, EXACT), "density")
    assert bool(row["passed"])
    assert "exact Ginibre" in str(row["note"].values)
    assert not bool(verdict(as_dataset(1.02 * omega, [QUADRATIC, log], None, EXACT), "density")["passed"])


def test_mean_field_radii_have_their_allowance():
    """Ginibre's radii by the mean-field law of almost the same index."""
    n = 40
    radii = ginibre_radii(n, 6.0, 1.3, rng=n, size=800)
    angle = np.random.default_rng(0).uniform(0, 2 * np.pi, radii.shape)
    omega = np.stack([radii * np.cos(angle), radii * np.sin(angle)], -1).reshape(4, 200, n, 2)
    row = verdict(as_dataset(omega, [QUADRATIC, RIESZ | {"strength": 13.0 + 1e-6}], None, EXACT), "density")
    assert bool(row["passed"])
    assert "mean field" in str(row["note"].values)
    assert 0.25 / n + 0.09 / n**0.5 < float(row["allowance"]) < 0.25 / n + 0.11 / n**0.5  # index 2
    assert abs(float(row["measured"])) < float(row["allowance"])
    for wrong in ({"strength": 11.0}, {"strength": 15.5}, {"strength": 13.0, "s": 0.3}):
        assert not bool(verdict(as_dataset(omega, [QUADRATIC, RIESZ | wrong], None, EXACT), "density")["passed"])


@pytest.mark.parametrize(
    ("terms", "domain", "words"),
    [
        ([RIESZ], {"name": "Box", "low": [-9.0] * 2, "high": [9.0] * 2}, "repel each other in a box"),
        ([RIESZ], None, "nothing confines"),
        ([QUADRATIC | {"centre": 0.5}, RIESZ], {"name": "Ball", "radius": 1.0, "dim": 2}, "centre is not the ball's"),
        ([QUADRATIC, RIESZ | {"mirror": True}], None, "mirrored"),
        ([QUADRATIC, RIESZ | {"s": 2.5}], None, "s must be below the dimension 2, got 2.5"),
        ([QUADRATIC, RIESZ | {"s": 2}], None, "s must be below the dimension 2, got 2"),
        ([QUADRATIC, {"name": "Alignment"}], None, "user energies"),
    ],
)
def test_where_no_density_is_known_in_the_plane(terms, domain, words):
    omega = np.clip(np.random.default_rng(0).normal(size=(4, 40, 9, 2)), -0.7, 0.7)
    assert words in json.loads(report.check(as_dataset(omega, terms, domain, EXACT)).attrs["skipped"])["density"]


def test_a_truncated_interaction_has_a_density_at_every_exponent():
    omega = np.random.default_rng(0).normal(size=(4, 40, 40, 2)) * 0.4
    for term in (RIESZ | {"s": 2.5, "truncation": 0.3}, RIESZ | {"s": 2.5, "softening": 0.3}):
        table = report.check(as_dataset(omega, [QUADRATIC, term], None, EXACT))
        assert "below the dimension" not in json.loads(table.attrs["skipped"]).get("density", "")
    line = report.check(as_dataset(omega[..., :1], [QUADRATIC, RIESZ | {"s": 1.0}], None, EXACT))
    assert "s must be below the dimension 1, got 1" in json.loads(line.attrs["skipped"])["density"]
    free = report.check(as_dataset(omega[..., :1], [QUADRATIC, RIESZ | {"s": 1.0, "strength": 0.0}], None, EXACT))
    assert "density" in free["law"].values
