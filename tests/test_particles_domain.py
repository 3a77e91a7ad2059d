"""Domains: projection, reflection, containment, sampling."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from particles import naive
from particles.domain import Ball, Box, Domain, FullSpace, Torus

DOMAINS = [Ball(0.1, 1), Ball(5.0, 3), Ball(1.5, 64), Box(-0.3, 0.1), Box([-1.0, 0.1, 2.0], [0.1, 0.3, 2.5])]
DTYPES = [np.float32, np.float64]


def cloud(domain, scale, dtype, seed=0):
    return (scale * np.random.default_rng(seed).standard_normal((2, 2000, domain.dim))).astype(dtype)


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [1e-3, 0.3, 3.0, 1e6, 1e30])
@pytest.mark.parametrize("verb", ["project", "reflect"])
@pytest.mark.filterwarnings("ignore:overflow")
def test_result_is_inside_and_stays(domain, dtype, scale, verb):
    for x in (cloud(domain, scale, dtype), torch.from_numpy(cloud(domain, scale, dtype))):
        inside = domain.contains(x)
        y = getattr(domain, verb)(x)
        assert y.dtype == x.dtype
        assert bool(domain.contains(y).all())
        assert bool((getattr(domain, verb)(y) == y).all())
        assert bool((y[inside] == x[inside]).all())  # what is inside is not touched


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
@pytest.mark.parametrize("verb", ["project", "reflect"])
def test_numpy_and_torch_agree(domain, verb):
    x = cloud(domain, 3.0, np.float64)
    np.testing.assert_allclose(getattr(domain, verb)(torch.from_numpy(x)).numpy(), getattr(domain, verb)(x), atol=1e-13)


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_projection_is_the_nearest_point(domain):
    x = cloud(domain, 3.0, np.float64)
    gap = x - domain.project(x)
    inner = domain.sample(2000, 1)
    # obtuse angle with every point of the set characterises the projection onto a convex set
    assert ((gap * (inner - domain.project(x))).sum(-1) <= 1e-12).all()


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
@pytest.mark.parametrize("verb", ["project", "reflect"])
def test_both_verbs_equal_their_slow_definitions(domain, verb):
    x = cloud(domain, 3.0, np.float64)[0, :300]
    bounds = (domain.radius,) if isinstance(domain, Ball) else (np.array(domain.low), np.array(domain.high))
    slow = getattr(naive, f"{verb}_{type(domain).__name__.lower()}")
    np.testing.assert_allclose(getattr(domain, verb)(x), [slow(w, *bounds) for w in x], rtol=0, atol=1e-12)


@given(radius=st.floats(0.1, 10), distance=st.floats(0, 1e3), dim=st.integers(1, 5))
@settings(max_examples=200, deadline=None)
def test_ball_reflection_is_the_repeated_formula(radius, distance, dim):
    x = np.zeros((1, dim))
    x[0, -1] = distance
    np.testing.assert_allclose(Ball(radius, dim).reflect(x)[0], naive.reflect_ball(x[0], radius), atol=1e-9 * (1 + distance))


def test_box_reflection_folds():
    box = Box([0.0, -1.0], [1.0, 3.0])
    x = np.array([[1.25, 0.0], [-0.25, 3.5], [2.25, -9.5], [7.0, 11.0]])
    np.testing.assert_allclose(box.reflect(x), [[0.75, 0.0], [0.25, 2.5], [0.25, -0.5], [1.0, 3.0]], atol=1e-12)


def test_tiny_overshoot_does_not_jump_to_the_other_side():
    assert Box(0.0, 1.0).reflect(np.array([[-5e-17]]))[0, 0] < 1e-15


def test_float32_bounds_lie_inside_the_float64_box():
    low, high = Box(0.1, 0.7).project(np.array([[-9.0], [9.0]], np.float32)).ravel().astype(np.float64)
    assert low >= 0.1
    assert high <= 0.7


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_samples_are_uniform(domain):
    x = domain.sample(20_000, 5)
    assert x.shape == (20_000, domain.dim)
    assert domain.contains(x).all()
    assert np.array_equal(x, domain.sample(20_000, np.random.default_rng(5)))
    if isinstance(domain, Ball):
        uniforms = [(np.linalg.norm(x, axis=-1) / domain.radius) ** domain.dim]
    else:
        uniforms = list(((x - domain.low) / (np.array(domain.high) - domain.low)).T)
    for u in uniforms:  # false alarm 1e-6 each
        assert stats.kstest(u, "uniform").pvalue > 1e-6
        assert stats.kstest(u**1.1, "uniform").pvalue < 1e-6  # negative control: density off by 10 %
    assert (abs(x.mean(0) - (0 if isinstance(domain, Ball) else (np.array(domain.low) + domain.high) / 2)) < 5 * x.std(0) / 141).all()


def test_full_space():
    space = FullSpace(2)
    x = cloud(space, 1e30, np.float64)
    assert space.project(x) is x
    assert space.reflect(x) is x
    assert space.contains(x).all()
    assert not space.contains(np.array([[np.nan, 0.0], [np.inf, 0.0]])).any()
    with pytest.raises(ValueError, match="FullSpace"):
        space.sample(3, 0)


@pytest.mark.parametrize("domain", [*DOMAINS, FullSpace(3), Torus([1.0, 0.3])], ids=str)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_never_inside(domain, bad):
    for x in (np.full((1, domain.dim), bad), torch.full((1, domain.dim), bad)):
        assert not bool(domain.contains(x).any())
        for verb in (domain.project, domain.reflect):
            with pytest.raises(ValueError, match="finite"):
                verb(x)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Ball(0.0, 2), "radius"),
        (lambda: Ball(-1.0, 2), "radius"),
        (lambda: Ball(np.inf, 2), "radius"),
        (lambda: Ball("big", 2), "radius"),
        (lambda: Ball(1.0, 0), "dim"),
        (lambda: Ball(1.0, 2.0), "dim"),
        (lambda: FullSpace(-1), "dim"),
        (lambda: Box(1.0, 1.0), "low"),
        (lambda: Box([0.0, 2.0], [1.0, 1.0]), "low"),
        (lambda: Box(np.nan, 1.0), "low"),
        (lambda: Box(0.0, np.inf), "high"),
        (lambda: Box([0.0, 0.0], [1.0, 1.0, 1.0]), "low and high"),
        (lambda: Box(np.zeros((2, 2)), 1.0), "low and high"),
        (lambda: Box([[0.0], [0.0, 1.0]], 1.0), "low and high"),
        (lambda: Torus(0.0), "period"),
        (lambda: Torus([[1.0]]), "period"),
        (lambda: Torus([1.0, np.inf]), "period"),
        (lambda: Ball(1.0, 2).sample(0, 0), "n must"),
        (lambda: Ball(1.0, 2).sample(3, None), "rng must be an integer.*None"),
        (lambda: Box(0.0, 1.0).sample(3, "seed"), "rng must be an integer.*'seed'"),
    ],
)
def test_bad_input(make, name):
    with pytest.raises(ValueError, match=name):
        make()


@pytest.mark.parametrize("domain", [*DOMAINS, FullSpace(3), Torus([1.0, 0.3])], ids=str)
@pytest.mark.parametrize("verb", ["project", "reflect", "contains"])
def test_points_of_another_dimension_are_refused(domain, verb):
    for x in (np.zeros((4, domain.dim + 1)), torch.zeros(4, domain.dim + 1), np.zeros(())):
        with pytest.raises(ValueError, match=rf"omega must have shape \(..., {domain.dim}\)"):
            getattr(domain, verb)(x)


@pytest.mark.parametrize("verb", ["project", "reflect", "contains"])
@pytest.mark.parametrize(
    ("points", "words"),
    [
        (np.zeros((3, 2), complex), "omega must hold real numbers, got dtype complex128"),
        (torch.zeros((3, 2), dtype=torch.complex64), "omega must hold real numbers"),
        (np.zeros((3, 2), np.float16), "omega must be float32 or float64, got dtype float16"),
        (torch.zeros((3, 2), dtype=torch.bfloat16), "omega must be float32 or float64"),
        ([[0.0, 1.0], [2.0]], "omega must be an array whose rows have one length"),
        (np.array([["a", "b"]]), "omega must hold real numbers"),
        (np.ma.masked_invalid([[np.nan, 0.0]]), "omega must have no masked values"),
    ],
    ids=lambda given: "" if isinstance(given, str) else type(given).__name__,
)
def test_what_holds_no_real_numbers_is_refused(verb, points, words):
    for domain in (Ball(1.0, 2), Box([-1, -1], [1, 1]), Torus([1.0, 1.0]), FullSpace(2)):
        with pytest.raises(ValueError, match=words):
            getattr(domain, verb)(points)


def test_labelled_axes_are_found_by_name():
    points = np.random.default_rng(0).normal(size=(4, 2))
    turned = xr.DataArray(points.T, dims=("dim", "particle"))
    np.testing.assert_array_equal(Ball(0.5, 2).project(turned), Ball(0.5, 2).project(points))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_points_whose_length_is_no_number_are_projected_and_reflected_along_their_ray(dtype):
    ball, most = Ball(1.0, 2), np.finfo(dtype).max
    x = np.array([[-most, -most], [most, most / 2], [0.0, most]], dtype)
    direction = np.array([[-1, -1], [1, 0.5], [0, 1]]) / np.sqrt([[2], [1.25], [1]])
    for points in (x, torch.from_numpy(x)):
        np.testing.assert_allclose(np.asarray(ball.project(points)), direction, rtol=1e-6)
        assert bool(ball.contains(ball.reflect(points)).all())
    with pytest.raises(ValueError, match="displacement must be of a length whose square is a number"):
        ball.bounce(np.zeros((1, 2)), np.full((1, 2), 1.7e308))


@pytest.mark.parametrize("verb", ["project", "reflect", "contains"])
def test_lists_integers_and_tables_are_points(verb):
    for domain in (Ball(2.5, 2), Box([-1, -1], [1.5, 2])):
        whole = np.array([[0, 1], [3, -4], [2, 2]])
        expected = getattr(domain, verb)(whole.astype(float))
        whole.flags.writeable = False
        for x in (whole, whole.tolist(), pd.DataFrame(whole), torch.tensor(whole.tolist())):
            np.testing.assert_allclose(np.asarray(getattr(domain, verb)(x)), expected)


def test_descriptions_rebuild_the_domain():
    for domain in (Ball(2, 3), Box(0, [1, 2]), FullSpace(4), Torus([1, 2])):
        options = domain.describe()
        assert type(domain)(**{k: v for k, v in options.items() if k != "name"}) == domain
        assert options["name"] == type(domain).__name__


FLYING = [*DOMAINS, Ball(1.3, 2), Ball(2.0, 8), Torus([1.0, 2.5])]


def flight(domain, scale, dtype=np.float64, seed=3, n=4000):
    """Uniform points inside and normal displacements of `scale` diameters."""
    rng = np.random.default_rng(seed)
    x = domain.project(domain.sample(n, rng).astype(dtype))
    return x, (scale * domain.diameter * rng.standard_normal(x.shape)).astype(dtype)


@pytest.mark.parametrize("domain", FLYING, ids=str)
@pytest.mark.parametrize("scale", [0.1, 1.0, 100.0])
@pytest.mark.parametrize("dtype", DTYPES)
def test_billiard_stays_inside_turns_back_and_keeps_lengths(domain, scale, dtype):
    x, way = flight(domain, scale, dtype)
    eps = np.finfo(dtype).eps * (1 + scale)
    end, turned = domain.bounce(x, way)
    assert end.dtype == turned.dtype == dtype
    assert domain.contains(end).all()
    np.testing.assert_allclose(np.linalg.norm(turned, axis=-1), np.linalg.norm(way, axis=-1), rtol=20 * eps)
    back = abs(domain.bounce(end, -turned)[0] - x)
    back = np.minimum(back, abs(back - np.array(domain.period))) if isinstance(domain, Torus) else back
    assert np.median(back.max(-1)) < 60 * eps * domain.diameter
    assert np.quantile(back, 0.999) < 3000 * eps * domain.diameter  # grazing flights amplify rounding
    tensor = domain.bounce(torch.from_numpy(x), torch.from_numpy(way))
    assert tensor[0].dtype == torch.from_numpy(x).dtype
    np.testing.assert_allclose(tensor[0].numpy(), end, atol=3000 * eps * domain.diameter)


@pytest.mark.parametrize("domain", FLYING, ids=str)
def test_billiard_keeps_the_uniform_law_and_folding_a_radius_does_not(domain):
    """Each KS test: false alarm 1e-6. Control: `Ball.reflect` of the same flights is rejected (in more than one dimension)."""
    x, way = flight(domain, 0.4, n=20_000)
    end, _ = domain.bounce(x, way)

    def worst(points):
        if isinstance(domain, Ball):
            return stats.kstest((np.linalg.norm(points, axis=-1) / domain.radius) ** domain.dim, "uniform").pvalue
        low, high = (np.zeros(domain.dim), domain.period) if isinstance(domain, Torus) else (domain.low, domain.high)
        return min(stats.kstest(u, "uniform").pvalue for u in ((points - low) / (np.array(high) - low)).T)

    assert worst(end) > 1e-6
    if isinstance(domain, Ball) and domain.dim > 1:
        assert worst(domain.reflect(x + way)) < 1e-6


def test_billiard_equals_its_slow_definition():
    for domain in (Ball(0.7, 2), Ball(1.5, 4)):
        x, way = flight(domain, 2.0, n=200)
        np.testing.assert_allclose(domain.bounce(x, way)[0], [naive.bounce_ball(a, b, domain.radius) for a, b in zip(x, way)], atol=1e-10)
    box = Box([-1.0, 0.1], [2.0, 0.4])
    x, way = flight(box, 2.0, n=200)
    rows, offsets = np.vstack([np.eye(2), -np.eye(2)]), np.array([*box.high, *(-np.array(box.low))])
    np.testing.assert_allclose(box.bounce(x, way)[0], [naive.bounce_polytope(a, b, rows, offsets) for a, b in zip(x, way)], atol=1e-11)


@pytest.mark.parametrize("domain", [Ball(1.3, 3), Box([0.0, 0.0], [1.0, 2.0])], ids=str)
def test_velocity_is_reflected_as_the_flight_is(domain):
    """A linear map with length and angle to the flight kept; along the flight it is the flight's own."""
    x, way = flight(domain, 1.5, n=500)
    velocity = np.random.default_rng(4).normal(size=x.shape)
    end, turned = domain.bounce(x, way)
    same, reflected = domain.bounce(x, way, velocity)
    np.testing.assert_array_equal(same, end)
    np.testing.assert_allclose(np.linalg.norm(reflected, axis=-1), np.linalg.norm(velocity, axis=-1), rtol=1e-12)
    np.testing.assert_allclose((reflected * turned).sum(-1), (velocity * way).sum(-1), atol=1e-11)
    np.testing.assert_allclose(domain.bounce(x, way, 2.5 * way)[1], 2.5 * turned, atol=1e-11)
    np.testing.assert_allclose(domain.bounce(x, way, way + velocity)[1], turned + reflected, atol=1e-11)


def test_flights_through_the_centre_along_the_wall_and_from_it():
    ball = Ball(1.0, 2)
    x = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.5, 0.0]])
    way = np.array([[3.0, 0.0], [0.0, np.pi], [2.0, 0.0], [6.0, 0.0], [0.0, 0.0]])
    end, turned = ball.bounce(x, way)
    np.testing.assert_allclose(end, [[-1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [0.5, 0.0]], atol=1e-7)  # the second creeps along
    np.testing.assert_allclose(np.linalg.norm(turned, axis=-1), np.linalg.norm(way, axis=-1), rtol=1e-12)


def test_a_short_flight_inside_is_a_plain_sum():
    x, way = flight(Ball(5.0, 3), 1e-4)
    inside = np.linalg.norm(x, axis=-1) < 4.9
    end, turned = Ball(5.0, 3).bounce(x[inside], way[inside])
    np.testing.assert_array_equal(end, x[inside] + way[inside])
    np.testing.assert_array_equal(turned, way[inside])


@pytest.mark.parametrize("domain", [Ball(1.0, 2), Box([0.0, 0.0], [1.0, 1.0]), Torus([1.0, 1.0]), FullSpace(2)], ids=str)
def test_bad_flights_are_refused(domain):
    x = np.full((3, 2), 0.25)
    with pytest.raises(ValueError, match=r"displacement must be finite"):
        domain.bounce(x, np.full((3, 2), np.nan))
    with pytest.raises(ValueError, match=r"velocity must be finite"):
        domain.bounce(x, x, np.full((3, 2), np.inf))
    with pytest.raises(ValueError, match=r"displacement must have omega's shape"):
        domain.bounce(x, x[:2])
    if isinstance(domain, (Ball, Box)):
        with pytest.raises(ValueError, match="omega must lie inside"):
            domain.bounce(x + 5, x)


def test_wrapping_a_tiny_negative_number_gives_zero_not_the_period():
    for period in (1.0, 0.1, 2 * np.pi, 3e5):
        torus = Torus(period)
        for dtype in DTYPES:
            x = np.array(
                [[-5e-17 * period], [-1e-30], [0.0], [period], [-period], [7.3 * period], [np.nextafter(period, 0)], [1e30]], dtype
            )
            for y in (torus.project(x), torus.project(torch.from_numpy(x)).numpy()):
                assert y.dtype == dtype
                assert (y >= 0).all()
                assert (y.astype(np.float64) < period).all()
                assert torus.contains(y).all()
            np.testing.assert_array_equal(y[:3].ravel(), 0.0)
    np.testing.assert_allclose(Torus(2.0).reflect(np.array([[-0.5], [2.25], [1.0]])), [[1.5], [0.25], [1.0]])


def test_volumes_and_diameters():
    assert Ball(2.0, 1).volume == pytest.approx(4.0)
    assert Ball(2.0, 2).volume == pytest.approx(4 * np.pi)
    assert Ball(0.5, 3).volume == pytest.approx(np.pi / 6)
    assert Ball(1.0, 200).volume == pytest.approx(5.56e-109, rel=1e-2)
    assert Box([0.0, -1.0], [3.0, 3.0]).volume == 12.0
    assert Box([0.0, -1.0], [3.0, 3.0]).diameter == 5.0
    assert Torus([6.0, 8.0]).volume == 48.0
    assert Torus([6.0, 8.0]).diameter == 5.0
    assert FullSpace(3).volume == FullSpace(3).diameter == np.inf
    for domain in FLYING[2:-1]:
        points = domain.sample(2000, 0)
        assert np.linalg.norm(points[:1000] - points[1000:], axis=-1).max() <= domain.diameter


def test_eroded_domains_keep_their_distance():
    assert Ball(2.0, 3).erode(0.5) == Ball(1.5, 3)
    assert Box(0.0, [1.0, 2.0]).erode(0.25) == Box(0.25, [0.75, 1.75])
    for domain in (FullSpace(2), Torus(1.0)):
        assert domain.erode(3.0) == domain
    for domain in (Ball(2.0, 3), Box(0.0, [1.0, 2.0])):
        assert domain.erode(0.0) == domain
        with pytest.raises(ValueError, match=r"distance must be below"):
            domain.erode(2.0)
        with pytest.raises(ValueError, match="distance"):
            domain.erode(-0.1)


def test_every_domain_has_the_protocol():
    assert all(isinstance(domain, Domain) for domain in [*FLYING, FullSpace(2)])
