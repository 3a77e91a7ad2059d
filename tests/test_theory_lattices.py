"""Epstein zeta functions against brute force, factorised Dirichlet series and published crystal energies."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from theory.lattices import (
    LATTICES,
    Lattice,
    hypersingular_constant,
    hypersingular_minimum,
    jellium_energy,
    lattice,
    leech_zeta,
    wigner_crystal_energy,
)


def l_series(s, period, signs):
    """sum over n of signs[n mod period] n^-s, continued by Hurwitz zeta functions."""
    return sum(sign * mpmath.zeta(s, mpmath.mpf(k) / period) for k, sign in signs.items()) * mpmath.mpf(period) ** (-s)


# Closed forms at unit scale of the named basis (Borwein et al. 2013)
CLOSED = {
    "integer": lambda s: 2 * mpmath.zeta(s),
    "square": lambda s: 4 * mpmath.zeta(s / 2) * l_series(s / 2, 4, {1: 1, 3: -1}),
    "triangular": lambda s: 6 * mpmath.zeta(s / 2) * l_series(s / 2, 3, {1: 1, 2: -1}),
    "D4": lambda s: 24 * mpmath.mpf(2) ** (-s / 2) * (1 - mpmath.mpf(2) ** (1 - s / 2)) * mpmath.zeta(s / 2) * mpmath.zeta(s / 2 - 1),
    "E8": lambda s: 240 * mpmath.mpf(2) ** (-s / 2) * mpmath.zeta(s / 2) * mpmath.zeta(s / 2 - 3),
}
EXPONENTS = (-30.7, -9.3, -4.5, -1.0, -0.2, 0.3, 0.5, 1.5, 3.0, 5.1, 7.5, 9.0, 12.5, 20.0, 37.0)


@pytest.mark.parametrize("name", CLOSED)
def test_zeta_is_the_factorised_series_for_every_exponent(name):
    crystal = lattice(name)
    with mpmath.workdps(40):
        for s in EXPONENTS:
            exact = float(CLOSED[name](mpmath.mpf(s)))
            assert crystal.zeta(s) == pytest.approx(exact, rel=1e-12), s
        step = mpmath.mpf(10) ** -10
        slope = float((CLOSED[name](step) - CLOSED[name](-step)) / (2 * step))
    assert crystal.zeta_derivative_at_zero == pytest.approx(slope, rel=1e-13)


@pytest.mark.parametrize("name", [*LATTICES, "skewed"])
def test_value_zeros_pole_and_scaling(name):
    crystal = Lattice([[1.0, 0.2, 0.0], [0.3, 0.9, -0.4], [2.1, 0.0, 1.7]]) if name == "skewed" else lattice(name)
    dim = crystal.dim
    assert crystal.zeta(0) == pytest.approx(-1, rel=1e-13)
    assert [crystal.zeta(s) for s in (-2, -4, -8)] == pytest.approx([0, 0, 0], abs=1e-14)
    sphere = 2 * np.pi ** (dim / 2) / float(mpmath.gamma(dim / 2)) / crystal.covolume
    assert 1e-6 * crystal.zeta(dim + 1e-6) == pytest.approx(sphere, rel=1e-4)  # residue of the pole
    larger = Lattice(1.7 * np.asarray(crystal.basis))
    for s in (-0.7, 0.4, dim + 1.5):
        assert larger.zeta(s) == pytest.approx(1.7**-s * crystal.zeta(s), rel=1e-12)
    assert larger.zeta_derivative_at_zero == pytest.approx(crystal.zeta_derivative_at_zero + np.log(1.7), rel=1e-12)
    step = 1e-5
    slope = (crystal.zeta(step) - crystal.zeta(-step)) / (2 * step)
    assert crystal.zeta_derivative_at_zero == pytest.approx(slope, rel=1e-8)


@pytest.mark.parametrize(
    "basis",
    [
        [[1.3]],
        [[1.0, 0.2], [0.3, 0.9]],
        [[5.0, 1.0], [3.9, 1.0]],
        [[1.0, 0.2, 0.0], [0.3, 0.9, -0.4], [2.1, 0.0, 1.7]],
        np.diag([1.0, 1.2, 0.8, 1.1]),
    ],
)
def test_brute_force_and_functional_equation(basis):
    crystal = Lattice(basis)
    dim = crystal.dim
    s = dim + 7.0
    reach = {1: 2000, 2: 60, 3: 26, 4: 9}[dim]
    integers = np.stack(np.meshgrid(*[np.arange(-reach, reach + 1)] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    length = np.linalg.norm(integers @ np.asarray(crystal.basis), axis=1)
    assert crystal.zeta(s) == pytest.approx(np.sum(length[length > 0] ** -s), rel={1: 1e-12, 2: 1e-7, 3: 1e-7, 4: 1e-5}[dim])
    assert crystal.zeta(s) != pytest.approx(np.sum(length[length > 0] ** -(s + 0.01)), rel=1e-4)  # negative control
    dual = Lattice(np.linalg.inv(np.asarray(crystal.basis)).T)
    for s in (-1.3, 0.6, dim + 2.2):
        left = float(mpmath.gamma(s / 2)) * np.pi ** (-s / 2) * crystal.zeta(s) * crystal.covolume
        right = float(mpmath.gamma((dim - s) / 2)) * np.pi ** ((s - dim) / 2) * dual.zeta(dim - s)
        assert left == pytest.approx(right, rel=1e-11)


def test_shells_count_every_point_once():
    crystal = Lattice([[1.0, 0.2, 0.0], [0.3, 0.9, -0.4], [2.1, 0.0, 1.7]])
    square, number = crystal.shells(9.0)
    k = np.stack(np.meshgrid(*[np.arange(-30, 31)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    lengths = np.sum((k @ np.asarray(crystal.basis)) ** 2, axis=1)
    assert number.sum() == np.sum((lengths > 0) & (lengths <= 9))
    assert (np.diff(square) > 0).all()
    kissing = {"integer": 2, "square": 4, "triangular": 6, "cubic": 6, "bcc": 8, "fcc": 12, "D4": 24, "D5": 40, "E8": 240}
    for name, contacts in kissing.items():
        points = lattice(name).shells(2.001)[1]
        assert points[0] == contacts
        assert lattice(name).covolume == pytest.approx(
            {"triangular": np.sqrt(0.75), "bcc": 0.5, "fcc": 0.25, "D4": 2, "D5": 2}.get(name, 1)
        )


def test_published_digits():
    triangular, square = lattice("triangular", 1.0), lattice("square", 1.0)
    assert triangular.covolume == pytest.approx(1)
    assert triangular.zeta(4) == pytest.approx(5.7833592997, abs=5e-11)
    assert triangular.zeta(1) == pytest.approx(-3.9210315786, abs=5e-11)
    assert jellium_energy(triangular, 0.0) == pytest.approx(-0.6605587143 + 0.0, abs=1e-9)
    assert jellium_energy(lattice("triangular", np.pi), 0.0) == pytest.approx(-0.3743762428, abs=5e-10)
    assert jellium_energy(lattice("square", np.pi), 0.0) == pytest.approx(-0.3690839915, abs=5e-10)
    exact = -np.log(2 * np.pi) / 4 - np.log(float(mpmath.gamma(0.25)) ** 2 / (2 * np.pi * np.sqrt(2))) / 2
    assert jellium_energy(square, 0.0) == pytest.approx(exact, rel=1e-13)
    # two-dimensional electron crystal, e^2 sqrt(density) (Bonsall & Maradudin 1977)
    assert jellium_energy(triangular, 1.0) == pytest.approx(-1.960516, abs=5e-7)
    # e^2/a, a the ion sphere's radius (Foldy 1978)
    assert wigner_crystal_energy(lattice("bcc")) == pytest.approx(-0.895929255682, abs=5e-13)
    assert wigner_crystal_energy(lattice("fcc")) == pytest.approx(-0.895873615195, abs=5e-13)
    assert wigner_crystal_energy(lattice("cubic")) == pytest.approx(-0.880059442, abs=5e-10)
    assert wigner_crystal_energy(lattice("bcc", 7.3)) == pytest.approx(-0.895929255682, abs=5e-13)
    # simple cubic, e^2 / cell edge
    assert jellium_energy(lattice("cubic"), 1.0) == pytest.approx(-2.837297479 / 2, abs=5e-10)


def test_jellium_of_the_line():
    """-|x|: 1/12 (Baxter 1963); log: -log(2 pi)/2; both at unit density."""
    line = lattice("integer")
    assert jellium_energy(line, -1.0) == pytest.approx(1 / 12, rel=1e-13)
    assert jellium_energy(line, 0.0) == pytest.approx(-np.log(2 * np.pi) / 2, rel=1e-13)


def test_log_jellium_of_the_circle_at_finite_n():
    """The ring's energy at unit spacing is that of a uniform circle plus n times the jellium energy, exactly for the log."""
    n = 50
    ring = -n / 2 * np.log(n) - n * (n - 1) / 2 * np.log(n / (2 * np.pi))
    mean_field = -(n**2) / 2 * np.log(n / (2 * np.pi))  # pairs of a uniform circle of circumference n: -log radius
    assert ring - mean_field == pytest.approx(n * jellium_energy(lattice("integer"), 0.0), rel=1e-12)


def test_leech_lattice():
    with mpmath.workdps(40):

        def exact(s):  # 65520/691 [zeta(s/2) zeta(s/2 - 11) - sum tau(m) m^(-s/2)] 2^(-s/2) by its leading shells
            return 196560 * 4.0**-s + 16773120 * 6.0**-s + 398034000 * 8.0**-s + 4629381120 * 10.0**-s

        assert leech_zeta(60.0) == pytest.approx(float(exact(30.0)), rel=1e-8, abs=0)
    assert leech_zeta(0.0) == pytest.approx(-1, rel=1e-12)
    symmetric = [float(mpmath.gamma(s / 2)) * np.pi ** (-s / 2) * leech_zeta(s) for s in (5.0, 19.0)]
    assert symmetric[0] == pytest.approx(symmetric[1], rel=1e-11)


def test_hypersingular_constants_and_minima():
    assert hypersingular_constant(2.0, 1) == pytest.approx((np.pi**2 / 3, True))
    assert hypersingular_constant(3.0, 2).value == pytest.approx(8.8927451004, abs=5e-11)
    assert [hypersingular_constant(s, dim).proved for s, dim in ((3, 1), (3, 2), (5, 4), (9, 8), (30, 24))] == [
        True,
        False,
        False,
        True,
        True,
    ]
    # the triangular lattice beats the square one, D4 the cubic one
    assert hypersingular_constant(3.0, 2).value < lattice("square", 1.0).zeta(3.0)
    assert hypersingular_constant(5.0, 4).value < Lattice(np.eye(4)).zeta(5.0)
    for s, tolerance in ((2.0, 0.02), (3.0, 0.015)):  # equally spaced points of [0, 1]
        n = 400
        gaps = np.arange(1, n)
        pairs = np.sum((n - gaps) * (gaps / (n - 1.0)) ** -s) / (n * (n - 1))
        assert hypersingular_minimum(n, s, 1, 1.0) == pytest.approx(pairs, rel=tolerance)
        assert hypersingular_minimum(n, s, 1, 2.0) == pytest.approx(2.0**-s * hypersingular_minimum(n, s, 1, 1.0))
    ratio = []
    for n in (100, 10_000):  # s = dim = 1: 2 n^2 log n, approached as 1/log n
        gaps = np.arange(1, n)
        ratio.append(np.sum((n - gaps) * (n - 1.0) / gaps) / (n * (n - 1)) / hypersingular_minimum(n, 1.0, 1, 1.0))
    assert abs(ratio[1] - 1) < 0.6 * abs(ratio[0] - 1)
    assert abs(ratio[1] - 1) < 0.1


@pytest.mark.parametrize("n", [2, 7])
def test_least_energies_are_means_over_pairs(n):
    """2 n (n-1) W_N is the double sum of Hardin & Saff, at every n: small n tells n - 1 from n."""
    for s, dim, volume in ((3.0, 2, 1.7), (1.5, 1, 0.6)):
        total = hypersingular_constant(s, dim).value * n ** (1 + s / dim) / volume ** (s / dim)
        assert 2 * n * (n - 1) * hypersingular_minimum(n, s, dim, volume) == pytest.approx(total, rel=1e-13)
    for dim, ball in ((1, 2.0), (2, np.pi), (3, 4 * np.pi / 3)):
        total = ball * n**2 * np.log(n) / 1.7
        assert 2 * n * (n - 1) * hypersingular_minimum(n, dim, dim, 1.7) == pytest.approx(total, rel=1e-13)


def test_a_name_stands_for_its_lattice():
    assert jellium_energy("triangular", 0.7) == jellium_energy(lattice("triangular"), 0.7)
    assert wigner_crystal_energy("bcc") == pytest.approx(-0.895929, abs=1e-6)
    for alias in ("hexagonal", "A2"):
        assert jellium_energy(alias, 1.0) == jellium_energy("triangular", 1.0)
        assert lattice(alias, 2.0).covolume == pytest.approx(2.0)
    # at its own density: lengths scale by covolume^(1/dim), and so does the energy per particle at s = 1
    bcc = lattice("bcc")
    assert jellium_energy("bcc", 1.0) * bcc.covolume ** (1 / 3) == pytest.approx(jellium_energy(lattice("bcc", 1.0), 1.0), rel=1e-12)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Lattice([[1.0, 2.0]]), r"basis must be a square matrix, got shape \(1, 2\)"),
        (lambda: Lattice([[1.0, 2.0], [2.0, 4.0]]), "basis must have full rank"),
        (lambda: Lattice([[1.0, np.nan], [2.0, 4.0]]), "basis must be finite"),
        (lambda: lattice("honeycomb"), "name must be one of integer.*'honeycomb'"),
        (lambda: jellium_energy(np.eye(2), 1.0), "crystal must be a Lattice, or the name of one"),
        (lambda: jellium_energy("squares", 1.0), "name must be one of integer.*'squares'"),
        (lambda: wigner_crystal_energy(3), "crystal must be a Lattice, or the name of one, got 3"),
        (lambda: lattice(["bcc"]), "name must be one of integer"),
        (lambda: lattice("bcc", -1.0), "covolume must be"),
        (lambda: lattice("bcc").zeta(3.0), "s must lie between -40 and 43 and not be the pole 3, got 3.0"),
        (lambda: lattice("bcc").zeta(-50.0), "s must lie"),
        (lambda: jellium_energy(lattice("bcc"), 0.5), "s must be from 1"),
        (lambda: jellium_energy(lattice("integer"), -2.0), "s must be from"),
        (lambda: wigner_crystal_energy(lattice("square")), "crystal must be three-dimensional"),
        (lambda: hypersingular_constant(2.0, 2), "s must be above dim = 2"),
        (lambda: hypersingular_constant(4.0, 3), "dim must be 1, 2, 4, 8 or 24"),
        (lambda: hypersingular_minimum(1, 3.0, 1, 1.0), "n must be"),
        (lambda: hypersingular_minimum(5, 3.0, 1, 0.0), "volume must be"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
