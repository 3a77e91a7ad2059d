"""Recurrences of the classical orthonormal polynomials against Gauss rules: eigenvalues are nodes, densities integrate exactly."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import eigvalsh_tridiagonal
from scipy.special import roots_genlaguerre, roots_hermitenorm, roots_jacobi

from theory.ensembles.orthogonal import (
    christoffel_density,
    hermite_recurrence,
    jacobi_recurrence,
    jacobi_zeros,
    laguerre_recurrence,
    laguerre_zeros,
)

CASES = {
    "hermite": (hermite_recurrence, (), lambda n: roots_hermitenorm(n)),
    "laguerre": (laguerre_recurrence, (1.7,), lambda n: roots_genlaguerre(n, 1.7)),
    "laguerre low": (laguerre_recurrence, (-0.6,), lambda n: roots_genlaguerre(n, -0.6)),
    "jacobi": (jacobi_recurrence, (0.4, 1.9), lambda n: roots_jacobi(n, 1.9, 0.4)),
    "legendre": (jacobi_recurrence, (0.0, 0.0), lambda n: roots_jacobi(n, 0.0, 0.0)),
    "chebyshev": (jacobi_recurrence, (-0.5, -0.5), lambda n: roots_jacobi(n, -0.5, -0.5)),
    "opposite": (jacobi_recurrence, (-0.3, 0.3), lambda n: roots_jacobi(n, 0.3, -0.3)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("n", [1, 2, 3, 12])
def test_nodes_and_normalisation(case, n):
    recurrence, parameters, rule = CASES[case]
    diagonal, beside = recurrence(n, *parameters)
    nodes = rule(n)[0]
    assert eigvalsh_tridiagonal(diagonal, beside) == pytest.approx(nodes, rel=1e-11, abs=1e-12)
    point, weight = rule(n + 1)  # exact for squares of degree n - 1
    squares = christoffel_density(point, np.zeros(n + 1), (diagonal, beside))
    assert np.sum(weight / weight.sum() * squares) == pytest.approx(1, rel=1e-12)
    christoffel = 1 / (n * christoffel_density(nodes, np.zeros(n), (diagonal, beside)))
    assert christoffel == pytest.approx(rule(n)[1] / rule(n)[1].sum(), rel=1e-9)  # Gauss weights are Christoffel numbers


@pytest.mark.parametrize("n", [1, 2, 40])
def test_zeros(n):
    assert laguerre_zeros(n, -0.6) == pytest.approx(roots_genlaguerre(n, -0.6)[0], rel=1e-12)
    assert laguerre_zeros(n, 1.0) == pytest.approx(roots_genlaguerre(n, 1.0)[0], rel=1e-12)
    assert jacobi_zeros(n, 0.4, 1.9) == pytest.approx(roots_jacobi(n, 1.9, 0.4)[0], abs=1e-14)
    assert jacobi_zeros(0, 0.0, 0.0).shape == (0,)


@pytest.mark.parametrize(("n", "a"), [(1500, 1.0), (700, 900.0), (500, -0.999)])
def test_zeros_of_many(n, a):
    """Sums of powers by the Jacobi matrix: n (n + a), n (n + a) (2n + a - 1); sum of inverses n/(1 + a)."""
    zeros = laguerre_zeros(n, a)
    assert np.sum(zeros) == pytest.approx(n * (n + a), rel=1e-12)
    assert np.sum(zeros**2) == pytest.approx(n * (n + a) * (2 * n + a - 1), rel=1e-12)
    assert np.sum(1 / zeros) == pytest.approx(n / (1 + a), rel=1e-9)
    assert (np.diff(zeros) > 0).all()
    zeros = jacobi_zeros(n, a, 2000.0)
    assert np.sum(zeros) == pytest.approx(n * (a - 2000.0) / (2 * n + a + 2000.0), rel=1e-11)  # of the second coefficient
    assert (np.diff(zeros) > 0).all()
