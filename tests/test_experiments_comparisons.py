"""Rows in pairs: what is compared, what is left out, and the corrections for many comparisons."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from experiments.comparisons import benjamini_hochberg, best_row, compare_rows, holm
from experiments.paired import crossed, equivalence

NUMBERS = ["difference", "low", "high", "p"]


def result(n_seeds: int = 4, n_examples: int = 200, seed: int = 0, gain: float = 0.0, alike: bool = False) -> xr.Dataset:
    """Rows a to d that are right equally often, but d by `gain` more often; the same examples are hard for all.

    alike: seeds do not differ, so that only examples are a sample and the test is neither too careful nor too bold.
    """
    rng = np.random.default_rng(seed)
    own = 0.4 * rng.random((4, 1 if alike else n_seeds, n_examples))
    hard = rng.random(n_examples) + np.broadcast_to(own, (4, n_seeds, n_examples))
    correct = (hard < 1.1 + np.array([0, 0, 0, gain])[:, None, None]).astype(np.float32)
    loss = hard + 0.1
    dims = ("row", "seed", "example")
    return xr.Dataset({"correct": (dims, correct), "loss": (dims, loss)}, coords={"row": list("abcd"), "seed": range(n_seeds)})


def test_a_pair_is_the_crossed_test_of_its_differences():
    ds = result(gain=0.1)
    got = compare_rows(ds.transpose("example", "row", "seed"), [("d", "a"), ("a", "b")], delta=0.2)
    assert got["pair"].values.tolist() == ["d - a", "a - b"]
    for pair in (("d", "a"), ("a", "b")):
        first, second = (ds["correct"].sel(row=name).values.astype(float) for name in pair)
        expected, one = crossed(first - second), got.sel(pair=" - ".join(pair))
        assert [float(one[name]) for name in NUMBERS] == pytest.approx(list(expected[:4]), rel=1e-9)
        assert float(one["p_equivalent"]) == pytest.approx(equivalence(expected, 0.2), rel=1e-9)
        assert (str(one["first"].values), str(one["second"].values)) == pair
        assert (int(one["n_seeds"]), int(one["n_examples"])) == (4, 200)
    assert got.attrs == {"variable": "correct", "correction": "holm", "level": 0.95, "delta": 0.2}
    np.testing.assert_array_equal(got["p_corrected"], holm(got["p"].values))


def test_the_other_way_round_is_the_same_with_the_other_sign():
    there, back = (compare_rows(result(gain=0.1), [pair]) for pair in (("d", "a"), ("a", "d")))
    np.testing.assert_allclose([-back["difference"], -back["high"], -back["low"]], [there[name] for name in NUMBERS[:3]], rtol=1e-12)
    np.testing.assert_allclose(there["p"], back["p"], rtol=1e-9)


@pytest.mark.parametrize("variable", ["correct", "loss"])
def test_one_seed_has_a_difference_and_neither_interval_nor_p(variable):
    ds = result(n_seeds=1, gain=0.3)  # plain on these examples, but another training may differ
    got = compare_rows(ds, [("d", "a")], variable=variable, delta=0.5)
    means = ds[variable].mean(("seed", "example")).astype(float)
    assert float(got["difference"][0]) == pytest.approx(float(means.sel(row="d") - means.sel(row="a")), abs=1e-6)
    assert all(math.isnan(float(got[name][0])) for name in ("low", "high", "p", "p_corrected", "p_equivalent"))
    assert int(got["n_seeds"][0]) == 1


def test_only_seeds_of_both_rows_count_and_are_counted():
    ds = result()
    ds["correct"][0, 1] = np.nan  # row a, seed 1
    ds["correct"][1, 2:] = np.nan  # row b, seeds 2 and 3
    got = compare_rows(ds, [("a", "b"), ("c", "d"), ("a", "c")])
    assert got["n_seeds"].values.tolist() == [1, 4, 3]
    expected = compare_rows(ds.isel(seed=[0, 2, 3]), [("a", "c")])
    assert [float(got[name][2]) for name in NUMBERS] == [float(expected[name][0]) for name in NUMBERS]


def test_a_pair_without_a_common_seed_is_nan_and_takes_no_part_in_the_correction():
    ds = result(gain=0.1)
    ds["correct"][0, :2], ds["correct"][1, 2:] = np.nan, np.nan
    got = compare_rows(ds, [("a", "b"), ("d", "c")], delta=0.1)
    assert got["n_seeds"].values.tolist() == [0, 4]
    assert all(math.isnan(float(got[name][0])) for name in [*NUMBERS, "p_corrected", "p_equivalent"])
    assert float(got["p_corrected"][1]) == float(got["p"][1])


def test_examples_of_another_task_are_not_there():
    ds = result()
    padded = ds.pad(example=(0, 50))
    got, expected = (compare_rows(one, [("a", "b")]) for one in (padded, ds))
    xr.testing.assert_equal(got, expected)


def test_a_unit_with_gaps_is_refused():
    ds = result()
    ds["correct"][0, 1, 5] = np.nan
    with pytest.raises(ValueError, match="gaps"):
        compare_rows(ds, [("a", "b")])


def test_other_names_of_rows():
    ds = result().rename(row="lambda").assign_coords({"lambda": [0.0, 0.5, 1.0, 2.0]})
    got = compare_rows(ds, [(0.5, 0.0)], along="lambda", correction="none")
    assert got["pair"].values.tolist() == ["0.5 - 0.0"]
    assert float(got["p_corrected"][0]) == float(got["p"][0])


def test_the_best_row_is_that_of_its_best_epochs_over_the_seeds_that_ran():
    scores = np.array([[[0.5, 0.9], [0.5, 0.1]], [[0.6, 0.6], [0.7, 0.1]], [[0.9, 0.9], [np.nan, np.nan]], np.full((2, 2), np.nan)])
    ds = xr.Dataset({"score": (("row", "seed", "epoch"), scores)}, {"row": list("abcd"), "seed": [0, 1]})
    assert best_row(ds, "abd", "score") == "a"  # b would be the best of first epochs
    assert best_row(ds, "bd", "score") == "b"
    assert best_row(ds, "abcd", "score") == "c"
    assert best_row(ds.isel(epoch=0), "ab", "score") == "b"
    assert best_row(ds, "ab", "score", sign=-1) == "a"  # 0.5 and 0.1 are less than 0.6 and 0.1
    assert best_row(ds, ["d", "not a row"], "score") is None


def test_corrected_pairs_of_equal_rows_give_a_false_alarm_no_more_often_than_the_level():
    pairs = list(itertools.combinations("abcd", 2))
    tables = [compare_rows(result(3, 120, seed, alike=True), pairs)["p"].values for seed in range(200)]
    most = stats.binom.ppf(0.9999, len(tables), 0.05)
    for correction in (holm, benjamini_hochberg):
        assert sum((correction(p) < 0.05).any() for p in tables) <= most
    assert sum((p < 0.05).any() for p in tables) > most  # control: six tests at 5 % each


def test_a_planted_gain_is_found_after_the_correction():
    pairs = [("d", "a"), ("b", "a"), ("c", "a")]
    tables = [compare_rows(result(5, 800, seed, gain=0.05), pairs) for seed in range(20)]
    assert np.mean([float(table["p_corrected"][0]) < 0.05 for table in tables]) > 0.9


# ---- corrections -------------------------------------------------------------------------------------------------------------------------


def test_holm_of_known_values():
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])  # Holm's steps 4, 3, 2, 1
    np.testing.assert_allclose(holm([0.6, 0.7]), [1, 1])
    np.testing.assert_allclose(holm([0.02, math.nan, 0.02]), [0.04, math.nan, 0.04])
    assert holm([]).size == 0


def test_benjamini_hochberg_is_scipy_s_without_nan():
    p = np.random.default_rng(0).random(9) ** 3
    got = benjamini_hochberg(np.append(p, math.nan))
    np.testing.assert_array_equal(got[:9], stats.false_discovery_control(p))
    assert math.isnan(got[9])
    np.testing.assert_allclose(benjamini_hochberg([0.01, 0.04, 0.03, 0.005]), [0.02, 0.04, 0.04, 0.02])


def test_corrections_keep_the_order_and_holm_lies_above():
    rng = np.random.default_rng(1)
    for _ in range(50):
        p = rng.random(rng.integers(1, 12)) ** 4
        first, second = holm(p), benjamini_hochberg(p)
        assert (p <= second).all()
        assert (second <= first + 1e-15).all()
        assert (np.diff(first[np.argsort(p)]) >= 0).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: compare_rows(result(), []), "pairs"),
        (lambda: compare_rows(result(), [("a", "a")]), "pairs.*'a', 'a'"),
        (lambda: compare_rows(result(), [("a", "z")]), "pairs.*'z'"),
        (lambda: compare_rows(result(), [("a", "b", "c")]), "pairs"),
        (lambda: compare_rows(result(), [("a", "b")], variable="rights"), "dataset must hold rights .*correct.*loss"),
        (lambda: compare_rows(result(), [("a", "b")], along="method"), r"dataset must hold correct \(method, seed, example\)"),
        (lambda: compare_rows(result().isel(seed=0), [("a", "b")]), "seed, example"),
        (lambda: compare_rows(result(), [("a", "b")], correction="bonferroni"), "correction must be one of.*bonferroni"),
        (lambda: compare_rows(result(), [("a", "b")], delta=0), "delta must be positive"),
        (lambda: compare_rows(result(), [("a", "b")], level=0), "level"),
        (lambda: compare_rows(None, [("a", "b")]), "dataset"),
        (lambda: holm([1.5]), "p must have shape"),
        (lambda: benjamini_hochberg([[0.5]]), "p must have shape"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
