"""Domains: projection, reflection, containment, sampling."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from particles import naive
from particles.domain import Ball, Box, FullSpace

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


@given(radius=st.floats(0.1, 10), distance=st.floats(0, 1e4), dim=st.integers(1, 5))
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


@pytest.mark.parametrize("domain", [*DOMAINS, FullSpace(3)], ids=str)
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
        (lambda: Ball(1.0, 2).sample(0, 0), "n must"),
        (lambda: Ball(1.0, 2).sample(3, None), "rng must be an integer.*None"),
        (lambda: Box(0.0, 1.0).sample(3, "seed"), "rng must be an integer.*'seed'"),
    ],
)
def test_bad_input(make, name):
    with pytest.raises(ValueError, match=name):
        make()


@pytest.mark.parametrize("domain", [*DOMAINS, FullSpace(3)], ids=str)
@pytest.mark.parametrize("verb", ["project", "reflect", "contains"])
def test_points_of_another_dimension_are_refused(domain, verb):
    for x in (np.zeros((4, domain.dim + 1)), torch.zeros(4, domain.dim + 1), np.zeros(())):
        with pytest.raises(ValueError, match=rf"omega must have shape \(..., {domain.dim}\)"):
            getattr(domain, verb)(x)


@pytest.mark.parametrize("verb", ["project", "reflect", "contains"])
def test_lists_integers_and_tables_are_points(verb):
    for domain in (Ball(2.5, 2), Box([-1, -1], [1.5, 2])):
        whole = np.array([[0, 1], [3, -4], [2, 2]])
        expected = getattr(domain, verb)(whole.astype(float))
        whole.flags.writeable = False
        for x in (whole, whole.tolist(), pd.DataFrame(whole), torch.tensor(whole.tolist())):
            np.testing.assert_allclose(np.asarray(getattr(domain, verb)(x)), expected)


def test_descriptions_rebuild_the_domain():
    for domain in (Ball(2, 3), Box(0, [1, 2]), FullSpace(4)):
        options = domain.describe()
        assert type(domain)(**{k: v for k, v in options.items() if k != "name"}) == domain
        assert options["name"] == type(domain).__name__
