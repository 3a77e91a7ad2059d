"""Meshes: cell averages and averages of singular interactions over pairs of cells, against closed forms and independent quadrature."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import dblquad, quad

from theory.mean_field.cell_pairs import radial_moments
from theory.mean_field.disc import Disc
from theory.mean_field.meshes import Interval, Mesh, Rectangle
from theory.mean_field.radial import RadialBall


def riesz(s):
    return (lambda r: -np.log(r)) if s == 0 else (lambda r: np.sign(s) * r**-s)


def self_average(s, a, b):
    """Mean of g over pairs of points of an a by b rectangle, in polar coordinates with the radius integrated by hand."""

    def along(theta):
        c, d = np.cos(theta) / a, np.sin(theta) / b
        end, total = 1 / max(c, d), 0.0
        for power, factor in ((1, 1.0), (2, -(c + d)), (3, c * d)):
            k = power + 1 - (s if s else 0)  # int_0^end r^(power - s) dr = end^k / k
            total += factor * (end**k / k * (1 / k - np.log(end)) if s == 0 else np.sign(s) * end**k / k)
        return total

    corner = np.arctan2(b, a)
    return 4 / (a * b) * sum(quad(along, *ends, epsabs=1e-13, epsrel=1e-13)[0] for ends in ((0, corner), (corner, np.pi / 2)))


def hat_average(g, width, offset):
    """Mean of g over pairs of points in two cells of a plane, offset by whole cells, by adaptive quadrature over the hats."""

    def integrand(v, u):
        return (1 - abs(u)) * (1 - abs(v)) * g(np.hypot(width[0] * (offset[0] + u), width[1] * (offset[1] + v)))

    parts = [((i, i + 1), (j, j + 1)) for i in (-1, 0) for j in (-1, 0)]
    return sum(dblquad(integrand, *x, *y, epsabs=1e-11, epsrel=1e-11)[0] for x, y in parts)


@pytest.mark.parametrize("s", [0.0, 0.3, 0.9, 0.99, 0.9999, -0.5, -1.0, -1.7])
def test_averages_over_pairs_of_cells_of_an_interval_are_exact(s):
    h, n = 0.07, 40

    def second_integral(r):
        if r == 0:
            return 0.0
        return -(r**2) / 2 * np.log(r) + 0.75 * r**2 if s == 0 else np.sign(s) * r ** (2 - s) / ((1 - s) * (2 - s))

    exact = [(second_integral(h * (m + 1)) + second_integral(h * abs(m - 1)) - 2 * second_integral(h * m)) / h**2 for m in range(9)]
    kernel = Interval(np.arange(n + 1) * h).convolution(riesz(s)).kernel
    np.testing.assert_allclose(kernel[:9], exact, rtol=3e-12 * max(1, 1e-2 / (1 - s)), atol=1e-12)


@pytest.mark.parametrize("s", [0.0, 0.5, 1.0, 1.5, 1.9, 1.99, 1.9999, -0.5, -1.5])
@pytest.mark.parametrize(("a", "b"), [(0.3, 0.3), (0.2, 0.7), (1.3, 0.09)])
def test_average_of_a_cell_of_the_plane_with_itself_is_exact(s, a, b):
    kernel = Rectangle([0, 0], [4 * a, 5 * b], (4, 5)).convolution(riesz(s)).kernel
    assert kernel[0, 0] == pytest.approx(self_average(s, a, b), rel=1e-11)


def test_average_over_a_square_known_in_closed_form():
    kernel = Rectangle([0, 0], [3, 3], (3, 3)).convolution(lambda r: 1 / r).kernel
    assert kernel[0, 0] == pytest.approx(4 / 3 * (1 - np.sqrt(2)) + 4 * np.log(1 + np.sqrt(2)), rel=1e-13)
    kernel = Rectangle([0, 0], [3, 3], (3, 3)).convolution(lambda r: -np.log(r)).kernel
    assert kernel[0, 0] == pytest.approx((25 - 4 * np.pi - 4 * np.log(2)) / 12, rel=1e-13)


@pytest.mark.parametrize("s", [0.0, 1.0, 1.9, -1.0])
@pytest.mark.parametrize(
    ("width", "offsets"), [((0.3, 0.3), [(2, 0), (2, 1), (5, 7), (9, 2), (8, 8)]), ((0.2, 0.05), [(0, 2), (2, 0), (1, 9)])]
)
def test_averages_over_other_pairs_of_cells_of_the_plane(s, width, offsets):
    shape = (14, 40)
    kernel = Rectangle([0, 0], np.array(width) * shape, shape).convolution(riesz(s)).kernel
    for offset in offsets:
        assert kernel[offset] == pytest.approx(hat_average(riesz(s), width, offset), rel=3e-11, abs=1e-12)


@pytest.mark.parametrize("s", [0.0, 1.0, 1.8])
def test_averages_over_touching_cells_from_those_of_larger_rectangles(s):
    """Two cells side by side make one rectangle: pairs in it are half within a cell and half across. The same for a block of four."""
    a, b = 0.3, 0.2
    kernel = Rectangle([0, 0], [3 * a, 3 * b], (3, 3)).convolution(riesz(s)).kernel
    assert (kernel[0, 0] + kernel[1, 0]) / 2 == pytest.approx(self_average(s, 2 * a, b), rel=1e-11)
    assert (kernel[0, 0] + kernel[0, 1]) / 2 == pytest.approx(self_average(s, a, 2 * b), rel=1e-11)
    assert kernel[:2, :2].sum() / 4 == pytest.approx(self_average(s, 2 * a, 2 * b), rel=1e-11)
    assert abs(kernel[:2, :2].sum() / 4 - self_average(s, 2 * a, 2.02 * b)) > 1e-3  # negative control


@pytest.mark.parametrize("g", [lambda r: 1 / np.hypot(r, 0.05), lambda r: -np.log(np.hypot(r, 0.3)), lambda r: np.exp(-r), np.ones_like])
def test_softened_interactions_at_cells_of_their_own_size(g):
    width = (0.11, 0.06)
    kernel = Rectangle([0, 0], np.array(width) * 12, (12, 12)).convolution(g).kernel
    for offset in [(0, 0), (1, 0), (1, 1), (3, 2)]:
        assert kernel[offset] == pytest.approx(hat_average(g, width, offset), rel=1e-8)


@pytest.mark.parametrize("mesh", [Interval(np.linspace(-1, 2, 24)), Rectangle([-1, 0], [2, 1.5], (9, 14))], ids=["interval", "rectangle"])
@pytest.mark.parametrize("s", [0.0, 0.7])
def test_convolution_is_the_sum_over_pairs_and_symmetric(mesh, s):
    convolution, rng = mesh.convolution(riesz(s)), np.random.default_rng(0)
    rho, other = rng.random(mesh.shape), rng.random(mesh.shape)
    index = np.stack(np.meshgrid(*(np.arange(n) for n in mesh.shape), indexing="ij"), -1).reshape(-1, len(mesh.shape))
    apart = np.abs(index[:, None] - index)
    direct = convolution.kernel[tuple(np.moveaxis(apart, -1, 0))] @ (rho * mesh.volume).ravel()
    np.testing.assert_allclose(convolution(rho).ravel(), direct, rtol=1e-12, atol=1e-12)
    assert mesh.integral(other * convolution(rho)) == pytest.approx(mesh.integral(rho * convolution(other)), rel=1e-12)
    if len(mesh.shape) == 1:
        np.testing.assert_allclose(convolution.matrix @ rho, direct, rtol=1e-12)
    else:
        with pytest.raises(NotImplementedError, match="one-dimensional"):
            convolution.matrix  # noqa: B018


def test_potential_of_a_uniform_square_at_its_centre():
    """int over [-1, 1]^2 of 1/|y| is 8 log(1 + sqrt 2), of -log|y| is 6 - pi - 2 log 2."""
    mesh = Rectangle([-1, -1], [1, 1], (101, 101))  # the average over a small cell is within h^2 of the centre
    centre = [mesh.convolution(g)(np.ones(mesh.shape))[50, 50] for g in (lambda r: 1 / r, lambda r: -np.log(r))]
    assert centre == pytest.approx([8 * np.log(1 + np.sqrt(2)), 6 - np.pi - 2 * np.log(2)], abs=4e-4)


def test_quadratic_interaction_is_exact():
    mesh = Rectangle([-1, 0], [2, 1], (7, 11))
    rho = np.random.default_rng(1).random(mesh.shape)
    second = mesh.cell_average(lambda x: (x**2).sum(-1))
    mean = np.array([mesh.integral(rho * mesh.centres[..., k]) for k in range(2)])
    exact = second * mesh.integral(rho) - 2 * mesh.centres @ mean + mesh.integral(rho * second)
    np.testing.assert_allclose(mesh.convolution(lambda r: r**2)(rho), exact, rtol=1e-12)


def test_cell_averages_are_exact_for_polynomials_of_degree_nine():
    edges = np.linspace(-1, 2, 6)
    exact = np.diff(edges**10) / 10 / np.diff(edges)
    np.testing.assert_allclose(Interval(edges).cell_average(lambda x: x**9), exact, rtol=1e-12)
    mesh, other = Rectangle([-1, 0], [2, 1], (5, 4)), np.linspace(0, 1, 5)
    product = np.outer(exact, np.diff(other**7) / 7 / np.diff(other))
    np.testing.assert_allclose(mesh.cell_average(lambda x: x[..., 0] ** 9 * x[..., 1] ** 6), product, rtol=1e-12)
    np.testing.assert_allclose(mesh.cell_average(lambda x: np.full(len(x), 2.5)), np.full((5, 4), 2.5))


def test_callables_of_particle_energies_serve_both():
    from particles import External, Pair

    def well(omega):
        return ((omega**2 - 1) ** 2).sum(-1)

    def repulsion(r):
        return r**-0.5

    x = np.random.default_rng(2).normal(size=(6, 2))
    assert float(External(well, gradient=lambda w: 4 * w * (w**2 - 1), name="well").value(x)) == pytest.approx(well(x).mean())
    assert np.isfinite(float(Pair(repulsion, derivative=lambda r: -0.5 * r**-1.5, name="repulsion").value(x)))
    mesh = Rectangle([-2, -2], [2, 2], (8, 8))
    assert mesh.cell_average(well).shape == mesh.convolution(repulsion)(np.ones((8, 8))).shape == (8, 8)


def test_an_interval_takes_functions_of_positions_and_of_coordinates():
    """Those of particles sum over the axis of dim; a sum over all points is a number and refused, on every mesh."""
    mesh = Interval(np.linspace(-1, 2, 7))
    exact = np.diff(mesh.edges**3) / 3 / mesh.width
    for square in (lambda w: (w**2).sum(-1), lambda x: x**2, lambda w: w[:, 0] ** 2):
        np.testing.assert_allclose(mesh.cell_average(square), exact, rtol=1e-12)
    for each in (mesh, Rectangle([0, 0], [1, 1], (4, 4)), RadialBall(1.0, 4, 2), Disc(1.0, 4, 4)):
        with pytest.raises(ValueError, match="V must return an array of shape"):
            each.cell_average(lambda w: (w**2).sum(), "V")
        with pytest.raises(ValueError, match="interaction must return an array of shape"):
            each.convolution(lambda r: r.sum())


def test_meshes_are_what_the_solver_asks_for():
    for mesh in (Interval(np.linspace(-1, 2, 7)), Rectangle([0, 0], [1, 1], (4, 4)), RadialBall(1.0, 4, 2), Disc(1.0, 4, 4)):
        assert isinstance(mesh, Mesh)
        assert not isinstance(type(mesh), Mesh)  # a class is no mesh


@pytest.mark.parametrize("power", [0.0, 0.5, 0.999])
def test_radial_moments_of_powers(power):
    radius = np.array([0.2, 3.0])
    found = radial_moments(lambda r: r**-power, radius, (0, 1, 3))
    exact = np.array([radius**-power / (k + 1 - power) for k in (0, 1, 3)])
    np.testing.assert_allclose(found, exact, rtol=1e-11)


@pytest.mark.parametrize("power", [2.0, 2.5, 4.0])
def test_interactions_that_no_cell_integrates_are_refused(power):
    with pytest.raises(ValueError, match=r"integrable at r = 0: it grows as r\^-"):
        Rectangle([0, 0], [1, 1], (4, 4)).convolution(lambda r: r**-power)
    with pytest.raises(ValueError, match="integrable at r = 0"):
        Interval(np.linspace(0, 1, 5)).convolution(lambda r: r ** (1 - power))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Rectangle([0, 0], [1, 0], (4, 4)), "high above low"),
        (lambda: Rectangle([0, 0, 0], [1, 1, 1], (4, 4)), "low and high must be two"),
        (lambda: Rectangle([0, 0], [1, np.inf], (4, 4)), "high must be finite"),
        (lambda: Rectangle([0, 0], [1e-200, 1e-200], (4, 4)), "tell apart"),
        (lambda: Rectangle([1e17, 0], [1e17 + 16, 16], (4, 4)), "tell apart"),
        (lambda: Rectangle([0, 0], [1, 1], (4, 4, 4)), "shape must be two"),
        (lambda: Rectangle([0, 0], [1, 1], 4), "shape must be two numbers of cells, got 4"),
        (lambda: Rectangle([0, 0], [1, 1], (4, 2)), r"shape\[1\] must be an integer of at least 3, got 2"),
        (lambda: Rectangle([0, 0], [1, 1], (4, 100)), "at most 20 times longer"),
        (lambda: Rectangle([0, 0], [1, 1], (4, 4)).cell_average(lambda x: x, "V"), r"V must return an array of shape \(16,\)"),
        (lambda: Rectangle([0, 0], [1, 1], (4, 4)).convolution(lambda r: r * np.nan), "interaction must be finite"),
        (lambda: Interval([0.0, 1.0, 2.0]), "edges must be at least 4"),
        (lambda: Interval([0.0, 1.0, 3.0, 4.0, 5.0]), "edges must be .* equally spaced"),
        (lambda: Interval([3.0, 2.0, 1.0, 0.0]), "edges must increase"),
        (lambda: Interval("x"), "edges must hold real numbers"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
