"""Paired tests: agreement with SciPy where it has them, false alarms on planted null data, power on planted effects."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from experiments.paired import Difference, Error, crossed, equivalence, mcnemar, over_seeds, pigeonhole_bootstrap, smallest_difference

N = 400
MOST = stats.binom.ppf(0.9999, N, 0.05)  # false alarms of a right test at 5 %; more come once in ten thousand tries
PARTS = {"seeds": (0.3, 0.0, 1.0), "examples": (0.0, 1.0, 0.1), "rest": (0.0, 0.0, 1.0), "all": (0.1, 1.0, 1.0)}


def planted(n_seeds: int, n_examples: int, parts: tuple[float, float, float], seed: int, mean: float = 0.0) -> list[np.ndarray]:
    """N tables of differences whose seeds, examples and rest have these standard deviations."""
    rng = np.random.default_rng(seed)
    a, b, c = (sd * rng.normal(size=(N, *size)) for sd, size in zip(parts, [(n_seeds, 1), (1, n_examples), (n_seeds, n_examples)]))
    return list(mean + a + b + c)


def alarms(tables: list[np.ndarray], test=crossed) -> int:
    return sum(test(table).p < 0.05 for table in tables)


def rights(n: int, accuracy: tuple[float, float], seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    hard = rng.random(n)  # both models find the same examples hard
    return tuple(hard + 0.3 * rng.random(n) < share * 1.3 for share in accuracy)


# ---- McNemar -----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_mcnemar_is_the_binomial_test_of_discordant_pairs(seed):
    first, second = rights(60, (0.7, 0.6), seed)
    got = mcnemar(first, second)
    assert (got.only_first, got.only_second) == ((first & ~second).sum(), (second & ~first).sum())
    assert got.difference == pytest.approx(first.mean() - second.mean())
    n = got.only_first + got.only_second
    assert got.p_exact == pytest.approx(stats.binomtest(got.only_first, n).pvalue, rel=1e-12)
    half = stats.binom.pmf(got.only_first, n, 0.5) * (1 if got.only_first != got.only_second else 0.5)
    assert got.p_mid == pytest.approx(got.p_exact - half, rel=1e-9)


def test_mcnemar_of_known_cases():
    yes, no = np.ones(4, bool), np.zeros(4, bool)
    assert mcnemar(yes, yes) == (0, 0, 0.0, 1.0, 1.0)
    np.testing.assert_allclose(mcnemar(yes, no), (4, 0, 1.0, 0.125, 0.0625))
    np.testing.assert_allclose(mcnemar([True, False], [False, True])[3:], (1.0, 0.75))  # P(1 of 2) = 1/2, half of it not counted


def test_mcnemar_gives_false_alarms_at_its_level():
    tests = [mcnemar(*np.random.default_rng(seed).random((2, 200)) < 0.8) for seed in range(N)]
    mid, exact = (sum(getattr(test, name) < 0.05 for test in tests) for name in ("p_mid", "p_exact"))
    assert exact <= mid <= MOST
    assert mid >= stats.binom.ppf(1e-4, N, 0.04)  # and is no wider than it must be


def test_mcnemar_finds_a_planted_difference():
    assert np.mean([mcnemar(*rights(1000, (0.80, 0.76), seed)).p_mid < 0.05 for seed in range(100)]) > 0.9


# ---- over seeds, and crossed -------------------------------------------------------------------------------------------------------------


def test_over_seeds_equals_scipy():
    d = np.random.default_rng(0).normal(size=7)
    expected = stats.ttest_1samp(d, 0)
    interval = expected.confidence_interval(0.9)
    got = over_seeds(d, level=0.9)
    np.testing.assert_allclose(got[:4], (d.mean(), interval.low, interval.high, expected.pvalue), rtol=1e-9)


def test_crossed_with_one_example_is_student_s_test_over_seeds_and_with_one_seed_says_nothing():
    d = 0.3 + np.random.default_rng(1).normal(size=50)
    assert crossed(d[:, None]) == over_seeds(d)
    one = crossed(d[None])
    assert one[:3] == (pytest.approx(d.mean()), -math.inf, math.inf)
    assert math.isnan(one.p)


def test_crossed_equals_student_s_test_over_seeds_where_examples_do_not_differ():
    d = np.random.default_rng(2).normal(size=(5, 1)) + np.zeros((5, 30))
    np.testing.assert_allclose(crossed(d)[:4], over_seeds(d[:, 0])[:4], rtol=1e-9)


def test_crossed_equals_student_s_test_over_examples_where_seeds_do_not_differ():
    d = np.random.default_rng(3).normal(size=(1, 30)) + np.zeros((5, 1))
    np.testing.assert_allclose(crossed(d)[:4], over_seeds(d[0])[:4], rtol=1e-9)


def test_errors_of_crossed_estimate_the_parts_of_the_variance():
    tables = planted(6, 40, (0.3, 0.5, 1.0), seed=4)
    seeds, examples = np.mean([[cause.error**2 for cause in crossed(table).errors] for table in tables], axis=0)
    np.testing.assert_allclose(seeds, 0.3**2 / 6 + 1 / 240, rtol=0.15)  # the rest is counted once, with the seeds
    np.testing.assert_allclose(examples, 0.5**2 / 40, rtol=0.15)


@pytest.mark.parametrize("n_seeds", [2, 3, 5])
@pytest.mark.parametrize("parts", PARTS)
def test_crossed_keeps_false_alarms_to_its_level(n_seeds, parts):
    assert alarms(planted(n_seeds, 60, PARTS[parts], seed=n_seeds)) <= MOST


def pooled(d: np.ndarray) -> Difference:
    """Every difference taken for independent."""
    return over_seeds(d.ravel())


@pytest.mark.parametrize("parts", ["seeds", "examples"])
def test_tests_that_pool_what_belongs_together_are_caught(parts):
    # control: 300 differences taken for independent, though they share 5 seeds or 60 examples
    assert alarms(planted(5, 60, PARTS[parts], seed=5), pooled) > 2 * MOST


def rare(n_seeds: int, n_examples: int, share: float, seed: int) -> np.ndarray:
    """Differences of rights and wrongs: a few examples differ, others with every seed."""
    rng = np.random.default_rng(seed)
    return (rng.random((n_seeds, n_examples)) < share).astype(float) * rng.choice([-1, 1], (n_seeds, n_examples))


def test_seeds_that_agree_by_luck_are_no_reason_for_a_narrow_interval():
    d = np.zeros((2, 60))
    d[0, [30, 37, 54]], d[1, [40, 45, 54]] = 1, 1  # equal means: nothing between the seeds
    got, independent = crossed(d), pooled(d)
    assert got.high - got.value >= independent.high - independent.value > 0.038
    assert got.high - got.value < 0.05


@pytest.mark.parametrize("n_seeds", [2, 3, 5])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_no_interval_is_narrower_than_that_of_independent_differences(n_seeds, level):
    tables = [rare(n_seeds, 60, 0.05, seed) for seed in range(200)]
    tables += [table for sizes in PARTS.values() for table in planted(n_seeds, 20, sizes, seed=20 + n_seeds)[:50]]
    for table in tables:
        got, independent = crossed(table, level=level), over_seeds(table.ravel(), level=level)
        assert got.high - got.low >= (independent.high - independent.low) * (1 - 1e-9)


def test_an_interval_of_few_seeds_alone_is_often_narrower_than_that():
    # control: without what is at least known from the rest
    alone = [over_seeds(table.mean(1)) for table in (rare(2, 60, 0.05, seed) for seed in range(200))]
    independent = [pooled(rare(2, 60, 0.05, seed)) for seed in range(200)]
    assert np.mean([a.high - a.low < b.high - b.low for a, b in zip(alone, independent)]) > 0.1


@pytest.mark.parametrize("n_seeds", [2, 3, 5])
def test_crossed_keeps_its_level_where_few_examples_differ(n_seeds):
    assert alarms([rare(n_seeds, 60, 0.05, seed) for seed in range(N)]) <= MOST


def test_crossed_keeps_its_level_on_rights_and_wrongs():
    def table(seed):
        rng = np.random.default_rng(seed)
        hard = rng.random(100)
        first, second = (hard + 0.5 * rng.random((3, 100)) < 1.1 for _ in range(2))
        return first.astype(float) - second

    assert alarms([table(seed) for seed in range(N)]) <= MOST


@pytest.mark.parametrize(("parts", "mean"), [("seeds", 0.6), ("examples", 0.5), ("rest", 0.3)])
def test_crossed_finds_planted_effects_and_its_interval_covers_them(parts, mean):
    found = [crossed(table) for table in planted(5, 60, PARTS[parts], seed=6, mean=mean)]
    assert np.mean([one.p < 0.05 for one in found]) > 0.8
    assert sum(not one.low <= mean <= one.high for one in found) <= MOST


@pytest.mark.parametrize("level", [0.8, 0.95, 0.999])
def test_the_interval_leaves_out_zero_just_where_p_is_below_the_level(level):
    for table in planted(4, 20, PARTS["all"], seed=7, mean=0.4)[:50]:
        one = crossed(table, level=level)
        assert (one.low > 0 or one.high < 0) == (one.p < 1 - level)


def test_degenerate_differences():
    assert crossed(np.zeros((3, 4)))[:4] == (0, 0, 0, 1)
    assert crossed(np.ones((3, 4)))[:4] == (1, 1, 1, 0)
    one = crossed([[0.5]])
    assert one[:3] == (0.5, -math.inf, math.inf)
    assert math.isnan(one.p)
    assert math.isnan(equivalence(one, 1.0))
    assert over_seeds([0.1, 0.1])[3] == 0


# ---- bootstrap ---------------------------------------------------------------------------------------------------------------------------


def test_the_bootstrap_agrees_with_crossed_where_both_hold():
    d = planted(20, 100, (0.3, 1.0, 0.3), seed=8, mean=0.3)[0]
    boot, formula = pigeonhole_bootstrap(d), crossed(d)
    assert boot.value == formula.value
    np.testing.assert_allclose(boot[1:3], formula[1:3], atol=0.15 * (formula.high - formula.low))
    assert boot == pigeonhole_bootstrap(d, rng=0) != pigeonhole_bootstrap(d, rng=1)


@pytest.mark.parametrize(("parts", "expected"), [((0.5, 0.0, 0.0), 0.5 / 20**0.5), ((0.0, 0.5, 0.0), 0.5 / 100**0.5)])
def test_the_bootstrap_draws_seeds_and_examples(parts, expected):
    errors = [pigeonhole_bootstrap(d, n_resamples=300).errors[0][0] for d in planted(20, 100, parts, seed=14)[:20]]
    assert np.mean(errors) == pytest.approx(expected, rel=0.12)


def test_the_bootstrap_keeps_its_level_with_twenty_seeds_and_not_with_two():
    def boot(d):
        return pigeonhole_bootstrap(d, n_resamples=200)

    half = N // 2
    assert alarms(planted(20, 30, (0.2, 1.0, 1.0), seed=9)[:half], boot) <= stats.binom.ppf(0.9999, half, 0.07)
    assert alarms(planted(2, 30, (0.5, 0.0, 1.0), seed=9)[:half], boot) > 0.15 * half  # as its docstring says


def test_the_bootstrap_of_a_constant_has_no_width():
    assert pigeonhole_bootstrap(np.full((2, 3), 0.25), n_resamples=50)[:3] == (0.25, 0.25, 0.25)
    assert pigeonhole_bootstrap(np.zeros((2, 3)), n_resamples=50).p == 1


# ---- equivalence and power ---------------------------------------------------------------------------------------------------------------


def test_equivalence_is_the_larger_of_two_one_sided_tests():
    d = 0.1 + 0.2 * np.random.default_rng(10).normal(size=9)
    expected = max(stats.ttest_1samp(d, -0.3, alternative="greater").pvalue, stats.ttest_1samp(d, 0.3, alternative="less").pvalue)
    assert equivalence(over_seeds(d), 0.3) == pytest.approx(expected, rel=1e-9)
    assert equivalence(over_seeds(d), abs(d.mean()) / 2) > 0.5


def test_equivalence_holds_where_the_90_percent_interval_lies_inside():
    for table in planted(4, 30, (0.02, 0.3, 0.3), seed=11, mean=0.03)[:100]:
        one = crossed(table, level=0.9)
        assert (equivalence(one, 0.15) < 0.05) == (max(abs(one.low), abs(one.high)) < 0.15)


def test_equivalence_is_claimed_wrongly_at_most_at_its_level_and_rightly_often():
    at_the_edge, at_zero = (
        [equivalence(crossed(table), 0.2) < 0.05 for table in planted(5, 60, (0.0, 0.3, 0.5), seed=12, mean=mean)] for mean in (0.2, 0.0)
    )
    assert sum(at_the_edge) <= MOST
    assert np.mean(at_zero) > 0.9


def test_equivalence_without_error_compares_numbers():
    sure = Difference(0.1, 0.1, 0.1, 0.0, (Error(0.0, 4),))
    assert equivalence(sure, 0.2) == 0
    assert equivalence(sure, 0.05) == 1


@pytest.mark.parametrize(("n_seeds", "shared", "power"), [(1, 1.0, 0.8), (5, 0.4, 0.73)])  # one seed: of the examples alone
def test_the_smallest_difference_is_found_with_the_power_asked_for(n_seeds, shared, power):
    n, discordance = 400, 0.1
    effect = smallest_difference(n, discordance=discordance, n_seeds=n_seeds, shared=shared, power=0.8)
    rng, found = np.random.default_rng(13), []
    for _ in range(N):
        own, common = rng.random((n_seeds, n)), rng.random(n)
        draw = np.where(rng.random(n) < shared, common, own)  # the same with every seed for a share of the examples
        d = (draw < (discordance + effect) / 2).astype(float) - (draw > 1 - (discordance - effect) / 2)
        found.append((crossed if n_seeds > 1 else pooled)(d).p < 0.05)
    assert abs(np.mean(found) - power) < 0.08  # a little optimistic for few seeds, as documented; 4 standard deviations


def test_the_smallest_difference_of_known_sizes():
    one = smallest_difference(872, discordance=0.1)
    assert one == pytest.approx((1.959964 + 0.841621) * math.sqrt(0.1 / 872), rel=1e-5)
    assert smallest_difference(872, discordance=0.1, n_seeds=5) == one  # shared = 1: seeds bring nothing
    assert smallest_difference(872, discordance=0.1, n_seeds=4, shared=0.0) == pytest.approx(one / 2)
    assert smallest_difference(872, discordance=0.1, n_comparisons=9) > one
    assert smallest_difference(10**9, discordance=0.1, n_seeds=4, seed_deviation=0.01) == pytest.approx(2.801585 * 0.005, rel=1e-3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mcnemar([1, 0], [1, 1]), "first and second must be bool.*int64"),
        (lambda: mcnemar(np.ones(3, bool), np.ones(2, bool)), r"\(3,\) and bool \(2,\)"),
        (lambda: mcnemar(np.ones(0, bool), np.ones(0, bool)), "n > 0"),
        (lambda: over_seeds([]), "differences"),
        (lambda: over_seeds([math.nan]), "differences must be finite"),
        (lambda: crossed([0.0, 1.0]), r"differences must have shape \(seed, example\)"),
        (lambda: crossed([[0.0, 1.0]], level=1), "level"),
        (lambda: crossed([[0.0], [math.inf]]), "differences must be finite"),
        (lambda: pigeonhole_bootstrap([[0.0]], n_resamples=0), "n_resamples"),
        (lambda: pigeonhole_bootstrap([[0.0]], rng=None), "rng"),
        (lambda: pigeonhole_bootstrap([[0.0]], level="a"), "level"),
        (lambda: equivalence(over_seeds([0.0, 1.0]), 0.0), "delta must be positive"),
        (lambda: smallest_difference(0, discordance=0.1), "n_examples"),
        (lambda: smallest_difference(9, discordance=1.1), "discordance"),
        (lambda: smallest_difference(9, discordance=0.1, shared=-1), "shared"),
        (lambda: smallest_difference(9, discordance=0.1, power=1.0), "power"),
        (lambda: smallest_difference(9, discordance=0.1, seed_deviation=-1), "seed_deviation"),
        (lambda: smallest_difference(9, discordance=0.1, n_comparisons=0), "n_comparisons"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
