"""Recurrences of the classical orthonormal polynomials against Gauss rules: eigenvalues are nodes, densities integrate exactly."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import eigvalsh_tridiagonal
from scipy.special import roots_genlaguerre, roots_hermitenorm, roots_jacobi

from theory.orthogonal import christoffel_density, hermite_recurrence, jacobi_recurrence, laguerre_recurrence

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
