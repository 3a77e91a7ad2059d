"""Ellipsoids, simplices, half-spaces and user projectors: optimality of projections, billiards, uniform laws, geometry, bad input."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from particles import naive
from particles.convex import Ellipsoid, Projector
from particles.domain import Ball, Box, Domain
from particles.langevin import Langevin
from particles.polytope import HalfSpaces, Simplex
from particles.riesz import Riesz
from particles.simulate import simulate

ROWS = np.random.default_rng(5).normal(size=(9, 3))
POLYHEDRON = HalfSpaces(np.vstack([ROWS, np.eye(3), -np.eye(3)]), np.concatenate([np.ones(9), np.full(6, 2.0)]))
TRIANGLE = HalfSpaces([[1, 1], [-1, 2], [0, -1]], [1, 1, 0.3])
ROUND = [Ellipsoid(0.7), Ellipsoid([1.0, 2.0]), Ellipsoid([0.3, 1.0, 5.0, 5.0])]
SIMPLICES = [Simplex(1), Simplex(2), Simplex(6), Simplex(3, scale=0.3, corner=0.7)]
DOMAINS = [*ROUND, *SIMPLICES, TRIANGLE, POLYHEDRON, HalfSpaces([[2.0], [-3.0]], [1, 1])]
FLAT = Ellipsoid([1e-6, 1.0, 1e3])
DTYPES = [np.float32, np.float64]
every_domain = pytest.mark.parametrize("domain", [*DOMAINS, FLAT], ids=lambda d: f"{type(d).__name__}-{d.dim}")
flying_domain = pytest.mark.parametrize("domain", DOMAINS, ids=lambda d: f"{type(d).__name__}-{d.dim}")


def cloud(domain, scale, dtype=np.float64, seed=0, n=400):
    rng = np.random.default_rng(seed)
    return (domain.sample(n, rng) + scale * domain.diameter * rng.standard_normal((n, domain.dim))).astype(dtype)


@every_domain
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [1e-3, 0.3, 3.0, 1e6, 1e30])
def test_projection_and_reflection_end_inside_and_leave_what_is_inside(domain, dtype, scale):
    x = cloud(domain, scale, dtype, n=120)
    tensor = torch.from_numpy(x)
    inside = domain.contains(x)
    for verb in (domain.project, domain.reflect):
        y = verb(x)
        assert y.dtype == dtype
        assert domain.contains(y).all()
        np.testing.assert_array_equal(verb(y), y)
        np.testing.assert_array_equal(y[inside], x[inside])
        assert verb(tensor).dtype == tensor.dtype
        np.testing.assert_allclose(verb(tensor).numpy(), y, atol=1e-6 * domain.diameter if scale > 1e3 else 1e-12 * domain.diameter)
        assert bool(domain.contains(verb(tensor)).all())


@every_domain
@pytest.mark.parametrize("scale", [1e-6, 1e-2, 1.0, 30.0])
def test_projection_fulfils_the_variational_inequality_and_contracts(domain, scale):
    """<x - Px, z - Px> <= 0 for every z of the set characterises the projection; |Px - Py| <= |x - y| follows."""
    x = cloud(domain, scale)
    y = domain.project(x)
    z = np.concatenate([domain.sample(600, 1), y])
    gap = x - y
    excess = gap @ z.T - (gap * y).sum(-1, keepdims=True)
    assert excess.max() <= 4e-15 * domain.dim * (1 + scale) * domain.diameter**2
    assert (
        np.linalg.norm(y[1:] - y[:-1], axis=-1) <= np.linalg.norm(x[1:] - x[:-1], axis=-1) + 1e-14 * (1 + scale) * domain.diameter
    ).all()
    wrong = y + 1e-3 * domain.diameter * np.eye(domain.dim)[0]  # control: the inequality sees a shift of 1e-3
    outside = ~domain.contains(x)
    if scale == 1.0:
        gap = (x - wrong)[outside]
        assert (gap @ z.T - (gap * wrong[outside]).sum(-1, keepdims=True)).max() > 1e-6 * domain.diameter**2


def constraint(domain):
    if isinstance(domain, Ellipsoid):
        return {"type": "ineq", "fun": lambda w: 1 - ((w / domain.axes) ** 2).sum()}
    normals, offsets = domain._facets
    return {"type": "ineq", "fun": lambda w: offsets - normals @ w}


@flying_domain
def test_projection_agrees_with_a_general_optimiser(domain):
    for x in cloud(domain, 1.0, n=4):
        start = domain.sample(1, 0)[0]
        found = optimize.minimize(lambda w: ((w - x) ** 2).sum(), start, method="SLSQP", constraints=[constraint(domain)], tol=1e-12)  # noqa: B023
        np.testing.assert_allclose(domain.project(x[None])[0], found.x, atol=1e-4 * domain.diameter)


@pytest.mark.parametrize("axes", [[1e-6, 1.0, 1e3], [1.0, 1.0], [1e-3, 1e-3, 2.0]], ids=str)
def test_ellipsoid_projection_on_axes_planes_and_at_the_wall(axes):
    domain, dim = Ellipsoid(axes), len(axes)
    for k in range(dim):
        for size in (1 + 1e-9, 2.0, 1e8):
            x = size * axes[k] * np.eye(dim)[k]
            y = domain.project(x[None])[0]
            if axes[k] == max(axes) or size < 2:
                np.testing.assert_allclose(y, axes[k] * np.eye(dim)[k], rtol=1e-13)
            assert (y[x == 0] == 0).all()  # what is on a plane of symmetry stays there
    np.testing.assert_array_equal(domain.project(np.zeros((1, dim))), 0)
    np.testing.assert_array_equal(domain.reflect(np.zeros((1, dim))), 0)


@pytest.mark.filterwarnings("ignore:overflow")
def test_points_as_far_as_numbers_go_are_projected():
    x = np.array([[1.7e308, 1.7e308], [-1.7e308, 1.0]])
    direction = np.array([1.0, 4.0])  # axes^2 times the ray's
    expected = [direction / np.linalg.norm(direction / [1, 2]), [-1, 0]]
    np.testing.assert_allclose(Ellipsoid([1.0, 2.0]).project(x), expected, atol=1e-15)
    np.testing.assert_allclose(Simplex(2).project(x), [[0.5, 0.5], [0, 1]], atol=1e-15)
    np.testing.assert_allclose(HalfSpaces([[1, 0], [-1, 0], [0, 1], [0, -1]], [1, 1, 1, 1]).project(x), [[1, 1], [-1, 1]], atol=1e-15)
    for domain in (Ellipsoid([1.0, 2.0]), Simplex(2)):
        assert domain.contains(domain.reflect(x)).all()


def test_known_projections_onto_the_simplex():
    x = np.array([[2.0, 0.0], [0.8, 0.8], [-1.0, 0.5], [-1.0, -2.0], [0.2, 0.3], [1e30, 0.9e30], [-3.0, 9.0]])
    expected = [[1, 0], [0.5, 0.5], [0, 0.5], [0, 0], [0.2, 0.3], [1, 0], [0, 1]]
    np.testing.assert_allclose(Simplex(2).project(x), expected, atol=1e-15)
    np.testing.assert_allclose(HalfSpaces([[-1, 0], [0, -1], [1, 1]], [0, 0, 1]).project(x), expected, atol=1e-14)


def test_equal_axes_are_a_ball_and_four_half_spaces_a_box():
    x = np.random.default_rng(2).uniform(-5, 5, (200, 2))
    way = 3 * np.random.default_rng(3).normal(size=x.shape)
    box = HalfSpaces([[1, 0], [-2, 0], [0, 3], [0, -1]], [1, 2, 6, 0.5])
    for domain, twin in ((Ellipsoid([1.3, 1.3]), Ball(1.3, 2)), (box, Box([-1, -0.5], [1, 2]))):
        for verb in ("project", "reflect"):
            np.testing.assert_allclose(getattr(domain, verb)(x), getattr(twin, verb)(x), atol=1e-13)
        start = twin.project(x)
        for mine, exact in zip(domain.bounce(start, way), twin.bounce(start, way)):
            np.testing.assert_allclose(mine, exact, atol=1e-11)
        assert domain.volume == pytest.approx(twin.volume)
        assert domain.diameter == pytest.approx(twin.diameter)
    assert box.erode(0.25).volume == pytest.approx(1.5 * 2.0)


@flying_domain
@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("dtype", DTYPES)
def test_billiard_stays_inside_turns_back_and_keeps_lengths(domain, scale, dtype):
    rng = np.random.default_rng(3)
    x = domain.project(domain.sample(300, rng).astype(dtype))
    way = (scale * domain.diameter * rng.standard_normal(x.shape)).astype(dtype)
    eps = np.finfo(dtype).eps * (1 + scale)
    end, turned = domain.bounce(x, way)
    assert end.dtype == turned.dtype == dtype
    assert domain.contains(end).all()
    np.testing.assert_allclose(np.linalg.norm(turned, axis=-1), np.linalg.norm(way, axis=-1), rtol=100 * eps)
    back = abs(domain.bounce(end, -turned)[0] - x).max(-1)
    assert np.median(back) < 100 * eps * domain.diameter
    assert np.quantile(back, 0.97) < 1e4 * eps * domain.diameter  # flights that graze or meet an edge amplify rounding
    flown = domain.bounce(torch.from_numpy(x), torch.from_numpy(way))[0]
    assert flown.dtype == torch.from_numpy(x).dtype
    np.testing.assert_array_equal(flown.numpy(), end)


@pytest.mark.parametrize("domain", [Ellipsoid([1.0, 2.0]), Simplex(3), POLYHEDRON], ids=lambda d: type(d).__name__)
def test_billiard_of_a_hundred_diameters(domain):
    rng = np.random.default_rng(3)
    x = domain.sample(50, rng)
    direction = rng.standard_normal(x.shape)
    way = 100 * domain.diameter * direction / np.linalg.norm(direction, axis=-1, keepdims=True)
    end, turned = domain.bounce(x, way)
    assert domain.contains(end).all()
    assert np.median(abs(domain.bounce(end, -turned)[0] - x)) < 1e-9


@pytest.mark.parametrize("domain", [Simplex(3), TRIANGLE, POLYHEDRON], ids=lambda d: f"{type(d).__name__}-{d.dim}")
def test_billiard_in_polytopes_equals_its_slow_definition(domain):
    rng = np.random.default_rng(6)
    x = domain.sample(60, rng)
    way = 2 * rng.normal(size=x.shape)
    expected = [naive.bounce_polytope(a, b, *domain._facets) for a, b in zip(x, way)]
    np.testing.assert_allclose(domain.bounce(x, way)[0], expected, atol=1e-11)


@flying_domain
def test_billiard_keeps_the_uniform_law(domain):
    """Two-sample KS test of each coordinate, false alarm 1e-6 each; the projection of the same flights, the control, is rejected."""
    rng = np.random.default_rng(8)
    x, fresh = domain.sample(5000, rng), domain.sample(5000, rng)
    way = 0.4 * domain.diameter * rng.standard_normal(x.shape)
    end = domain.bounce(x, way)[0]
    assert min(stats.ks_2samp(a, b).pvalue for a, b in zip(end.T, fresh.T)) > 1e-6
    assert min(stats.ks_2samp(a, b).pvalue for a, b in zip(domain.project(x + way).T, fresh.T)) < 1e-6


@flying_domain
def test_samples_are_uniform(domain):
    """The share in half spaces through the middle against the share of a bounding box's uniform points kept (5 standard errors)."""
    points = domain.sample(20_000, 5)
    assert domain.contains(points).all()
    assert np.array_equal(points, domain.sample(20_000, np.random.default_rng(5)))
    low, high = points.min(0) - 1e-3, points.max(0) + 1e-3
    box = np.random.default_rng(6).uniform(low, high, (400_000, domain.dim))
    kept = box[domain.contains(box)]
    volume = np.prod(high - low) * len(kept) / len(box)
    assert domain.volume == pytest.approx(volume, abs=5 * np.prod(high - low) * math.sqrt(len(kept)) / len(box) + 1e-2 * volume)
    error = 5 * points.std(0) * math.sqrt(1 / len(points) + 1 / max(len(kept), 1))
    assert (abs(points.mean(0) - kept.mean(0)) < error).all()
    assert (abs(points.std(0) - kept.std(0)) < error).all()
    assert (abs((points * 1.0).std(0) * 1.2 - kept.std(0)) > error).all()  # control: 20 % too wide
    gaps = np.linalg.norm(points[:5000] - points[5000:10000], axis=-1)
    assert gaps.max() <= domain.diameter * (1 + 1e-12)


def test_volumes_and_diameters():
    assert Ellipsoid([1.0, 2.0, 3.0]).volume == pytest.approx(8 * np.pi)
    assert Ellipsoid([1.0, 2.0, 3.0]).diameter == 6
    assert Simplex(4).volume == pytest.approx(1 / 24)
    assert Simplex(4).diameter == pytest.approx(math.sqrt(2))
    assert Simplex(1).diameter == 1
    solid = HalfSpaces(np.vstack([-np.eye(5), np.ones(5)]), [0] * 5 + [1])
    assert solid.volume == pytest.approx(1 / 120)
    assert solid.diameter == pytest.approx(math.sqrt(2))
    cube = HalfSpaces(np.vstack([np.eye(4), -np.eye(4), np.ones(4)]), [1] * 8 + [100])  # the last one is redundant
    assert cube.volume == pytest.approx(16)
    assert cube.diameter == pytest.approx(4)
    big = HalfSpaces(np.vstack([np.eye(9), -np.eye(9)]), [1] * 18)
    assert big.contains(big.project(3 * np.ones((1, 9)))).all()
    with pytest.raises(ValueError, match="up to dim 8"):
        big.sample(1, 0)


@every_domain
def test_eroded_domains_keep_their_distance(domain):
    """Every point of the eroded set is at least `distance` from the wall: it can move that far in any direction, its normal included."""
    if isinstance(domain, HalfSpaces):
        inradius = domain._interior[-1]
    else:
        inradius = min(domain.axes) if isinstance(domain, Ellipsoid) else domain.scale / (domain.dim + math.sqrt(domain.dim))
    for share in (0.1, 0.7):
        smaller = domain.erode(share * inradius)
        assert type(smaller) is type(domain)
        x = cloud(domain, 1.0)
        wall = smaller.project(x)
        x, wall = x[~smaller.contains(x)], wall[~smaller.contains(x)]
        random = np.random.default_rng(1).normal(size=(100, 1, domain.dim))
        for direction in (random, x - wall):
            unit = direction / np.linalg.norm(direction, axis=-1, keepdims=True)
            reached = wall + (1 - 1e-9) * share * inradius * unit
            assert domain.contains(reached).all()
        if not isinstance(domain, Ellipsoid):  # exact: every facet has moved by the distance
            np.testing.assert_allclose(domain._facets[1] - smaller._facets[1], share * inradius, rtol=1e-9)
    with pytest.raises(ValueError, match=r"distance must be below"):
        domain.erode(1.001 * inradius)


@pytest.mark.parametrize("domain", [*DOMAINS, Projector(lambda w: w, 2)], ids=lambda d: f"{type(d).__name__}-{d.dim}")
def test_nan_infinity_and_other_dimensions_are_refused(domain):
    assert isinstance(domain, Domain)
    for bad in (np.nan, np.inf, -np.inf):
        for x in (np.full((2, domain.dim), bad), torch.full((2, domain.dim), bad)):
            assert not bool(domain.contains(x).any())
            with pytest.raises(ValueError, match="finite"):
                domain.project(x)
    for verb in (domain.project, domain.contains):
        with pytest.raises(ValueError, match=r"omega must have shape"):
            verb(np.zeros((3, domain.dim + 1)))


@flying_domain
def test_lists_integers_chains_and_read_only_arrays_are_points(domain):
    whole = np.random.default_rng(0).integers(-3, 4, (2, 5, domain.dim))
    expected = domain.project(whole.astype(float))
    whole.flags.writeable = False
    for x in (whole, whole.tolist(), torch.tensor(whole.tolist())):
        np.testing.assert_allclose(np.asarray(domain.project(x)), expected, atol=1e-14)
    np.testing.assert_allclose(domain.project(whole[0, 0]), expected[0, 0], atol=1e-14)
    assert pickle.loads(pickle.dumps(domain)) == domain


@every_domain
def test_descriptions_rebuild_the_domain(domain):
    options = domain.describe()
    assert type(domain)(**{k: v for k, v in options.items() if k != "name"}) == domain
    assert options["name"] == type(domain).__name__


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Ellipsoid([1.0, 0.0]), "axes"),
        (lambda: Ellipsoid([[1.0]]), "axes"),
        (lambda: Ellipsoid([1.0, np.nan]), "axes"),
        (lambda: Simplex(0), "dim"),
        (lambda: Simplex(2, scale=-1.0), "scale"),
        (lambda: Simplex(2, corner=np.inf), "corner"),
        (lambda: HalfSpaces([[1.0, 0.0]], [1.0]), "unbounded"),
        (lambda: HalfSpaces([[1.0, 0.0], [-1.0, 0.0]], [1.0, 1.0]), "unbounded"),
        (lambda: HalfSpaces([[1.0], [-1.0]], [-1.0, -1.0]), "interior"),
        (lambda: HalfSpaces([[1.0], [-1.0]], [1.0, -1.0]), "interior"),
        (lambda: HalfSpaces([[1.0], [0.0]], [1.0, 1.0]), "zeros"),
        (lambda: HalfSpaces([[1.0], [-1.0]], [1.0]), "a and b"),
        (lambda: HalfSpaces([1.0, 2.0], [1.0, 1.0]), "a and b"),
        (lambda: HalfSpaces([[np.nan]], [1.0]), "a must be finite"),
        (lambda: Projector(3, 2), "project must be callable"),
        (lambda: Projector(abs, 2, contains=1), "contains must be callable"),
        (lambda: Projector(abs, 0), "dim"),
    ],
)
def test_bad_input(make, name):
    with pytest.raises(ValueError, match=name):
        make()


def test_flights_and_reflections_without_end_are_refused(monkeypatch):
    monkeypatch.setattr("particles.convex.MOST_HITS", 100)
    monkeypatch.setattr("particles.polytope.MOST_HITS", 100)
    with pytest.raises(ValueError, match="displacement must meet walls less than 100 times"):
        FLAT.bounce(np.zeros((1, 3)), np.full((1, 3), 1e4))
    with pytest.raises(ValueError, match="more than 100 reflections"):
        HalfSpaces([[1, 0], [-1, 0], [0, 1], [0, -1]], [1e-3, 1e-3, 1, 1]).reflect(np.array([[1.0, 0.0]]))


def into_orthant(w):
    return np.maximum(w, 0) if isinstance(w, np.ndarray) else w.clamp(min=0)


def test_a_users_projector():
    domain = Projector(into_orthant, 2, sample=lambda n, rng: rng.random((n, 2)))
    for x in (np.array([[-1.0, 2.0], [3.0, 4.0]]), torch.tensor([[-1.0, 2.0], [3.0, 4.0]])):
        np.testing.assert_array_equal(np.asarray(domain.project(x)), [[0, 2], [3, 4]])
        assert domain.contains(x).tolist() == [False, True]
        assert bool(domain.contains(domain.project(x)).all())
    assert domain.sample(5, 0).shape == (5, 2)
    assert domain.describe()["project"]["name"] == "into_orthant"
    assert domain.describe()["project"]["code"]
    for act in (
        lambda: domain.reflect(x),
        lambda: domain.bounce(x, x),
        lambda: domain.erode(0.1),
    ):
        with pytest.raises(ValueError, match="Projector"):
            act()
    assert math.isnan(domain.volume)
    assert math.isnan(domain.diameter)
    with pytest.raises(ValueError, match="sample"):
        Projector(into_orthant, 2).sample(3, 0)


def test_what_is_no_projection_is_refused():
    x = np.ones((3, 2))
    with pytest.raises(ValueError, match="projecting twice"):
        Projector(lambda w: w / 2, 2).project(x)
    with pytest.raises(ValueError, match="project must return shape"):
        Projector(lambda w: w[:1], 2).project(x)
    with pytest.raises(ValueError, match="contains must hold"):
        Projector(into_orthant, 2, contains=lambda w: w[..., 0] < 0).project(x)
    with pytest.raises(ValueError, match="contains must return"):
        Projector(into_orthant, 2, contains=lambda w: True).project(x)
    with pytest.raises(ValueError, match="sample must return"):
        Projector(into_orthant, 2, sample=lambda n, rng: rng.random(n)).sample(2, 0)


@pytest.mark.parametrize("domain", [Ellipsoid([0.3, 1.0]), Simplex(2), TRIANGLE], ids=lambda d: type(d).__name__)
@pytest.mark.parametrize("scheme", ["projected", "reflected"])
def test_a_run_stays_inside(domain, scheme):
    start = domain.sample(20, 0)
    for omega in (start, torch.from_numpy(start)):
        run = simulate(omega, Riesz(0, 1.0), domain, Langevin(1e-2, 1.0, scheme=scheme), n_steps=30, save_every=10, rng=1)
        assert domain.contains(run.omega.to_numpy()).all()
        assert (run.projected[:, 1:] > 0).all()
        assert np.isfinite(run.energy).all() or scheme == "projected"  # projected particles may coincide at a vertex
