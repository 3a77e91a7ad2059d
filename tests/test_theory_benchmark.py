"""The benchmark of the mean-field solver: its bars are held against errors no larger than ours."""

from __future__ import annotations

import importlib
from itertools import pairwise

import numpy as np
import pytest

bench = importlib.import_module("benchmarks.theory")


def test_solve_ivp_gets_no_worse_an_error():
    guess = {}
    ours, *others = bench.against_solve_ivp(16, 1e-3, guess)
    assert [row["method"] for row in others] == ["solve_ivp RK45", "solve_ivp BDF"]
    assert ours["ratio"] == 1
    for row, method in zip(others, bench.METHODS):
        assert row["error"] <= ours["error"]
        assert row["tol"] == guess[method]
        assert row["passed"] is (row["ratio"] >= bench.TIMES_FASTER)
    assert bench.markdown([ours, *others]).count("\n") == 1 + 3


def test_both_integrate_the_same_equations():
    field, start = bench.gas(16)
    answer = bench.integrate(field, start, "BDF", 1e-7).y[:, -1].reshape(16, 16)
    np.testing.assert_allclose(answer, field.evolve(start, 1.0, tol=1e-7), atol=1e-5)
    assert field.mesh.integral(answer) == pytest.approx(1, abs=1e-8)


def test_errors_against_the_exact_gaussian_fall_as_the_square_of_the_width():
    coarse, fine = bench.exact((24, 48), tol=1e-4)
    assert 3.4 < coarse["error"] / fine["error"] < 4.6


def test_work_rows_fall_in_error_and_end_with_the_stationary_state():
    *rows, last = bench.work(12)
    assert all(first["error"] > second["error"] for first, second in pairwise(rows))
    assert last["group"] == "stationary state"
    assert last["error"] < 1e-11
