"""Claims: each verdict follows from planted results by rule, and planted nothing is not found."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import xarray as xr

from experiments import theory_checks
from experiments.claims import CLAIMS, INCONCLUSIVE, NOT_REPRODUCED, NOT_RUN, REPRODUCED, VERDICTS, Claim, Results, judge, theory
from experiments.claims.claim import greater, less, within
from experiments.claims.rules import Finding, difference, exponent, mean_difference, ratio, value, worst
from experiments.evidence_page import _row
from tests.planted_results import classified

A, B = {"task": "sst2", "row": "a"}, {"task": "sst2", "row": "b"}


def claim(rule=None, region=None, name="a beats b", **more):
    given = {"says": "a is better", "source": "Table 1", "paper": "+5", "experiment": "sentence_classification"} | more
    return Claim(name=name, rule=rule or difference(A, B), region=region or greater(), **given)


def verdict(ds, rule=None, region=None, **more):
    return judge([claim(rule, region, **more)], {"sentence_classification": [Results("", {}, ds)]})[0].verdict


def planted(a, b, **more):
    return classified({"sst2": {"a": a, "b": b}}, **more)


def test_a_planted_gain_is_reproduced_and_its_reverse_is_not():
    assert verdict(planted(0.8, 0.6)) == REPRODUCED
    assert verdict(planted(0.6, 0.8)) == NOT_REPRODUCED
    assert verdict(planted(0.6, 0.8), region=less()) == REPRODUCED


def test_a_gain_smaller_than_the_zone_is_none():
    nothing = planted(0.7, 0.7, n_seeds=8, n_examples=20_000, seed_deviation=0.0)
    assert verdict(nothing, region=greater(0, 2.0)) == NOT_REPRODUCED
    assert verdict(nothing, region=greater()) == INCONCLUSIVE
    assert verdict(nothing, region=within(0, 2.0)) == REPRODUCED
    assert verdict(planted(0.8, 0.6), region=within(0, 2.0)) == NOT_REPRODUCED


def test_one_seed_is_inconclusive_and_no_row_is_not_run():
    assert verdict(planted(0.9, 0.5, n_seeds=1)) == INCONCLUSIVE
    assert verdict(classified({"sst2": {"a": 0.9}})) == NOT_RUN
    assert verdict(classified({"qqp": {"a": 0.9, "b": 0.5}})) == NOT_RUN
    assert judge([claim()], {})[0].verdict == NOT_RUN
    assert "kernelgas run sentence_classification" in claim().how_to_run()


def test_only_seeds_that_both_rows_have_are_compared():
    ds = planted(0.8, 0.6)
    ds["correct"][{"row": 0, "seed": [0, 1, 2]}] = np.nan
    finding = difference(A, B)(ds)
    assert finding.n == 2
    seeds = ds.correct.isel(task=0, seed=[3, 4]).mean("example")
    assert finding.value == pytest.approx(100 * float((seeds.sel(row="a") - seeds.sel(row="b")).mean()), abs=1e-4)


def test_settings_are_judged_apart():
    parts = [Results("small", {"size": 1}, planted(0.8, 0.6)), Results("large", {"size": 2}, planted(0.6, 0.8))]
    both = judge([claim()], {"sentence_classification": parts})
    assert [(row.label, row.verdict) for row in both] == [("small", REPRODUCED), ("large", NOT_REPRODUCED)]
    one = judge([claim(needs={"size": 2})], {"sentence_classification": parts})
    assert [row.label for row in one] == ["large"]


def test_holm_asks_more_of_a_claim_in_a_longer_table():
    ds = planted(0.7, 0.65, n_examples=900, rng=5)
    alone = judge([claim()], {"sentence_classification": [Results("", {}, ds)]})[0]
    noise = classified({"sst2": {"a": 0.7, "b": 0.65} | {f"n{k}": 0.7 for k in range(10)}}, n_examples=900, rng=5)
    table = [claim()] + [claim(difference(A, A | {"row": f"n{k}"}), name=f"a beats n{k}") for k in range(10)]
    many = judge(table, {"sentence_classification": [Results("", {}, noise)]})
    assert alone.p < min(row.p for row in many[1:])
    lone = judge(table[:1], {"sentence_classification": [Results("", {}, noise)]})[0]
    assert many[0].p > lone.p
    elsewhere = judge(
        [table[0], *(claim(row.rule, name=row.name, source="Table 2") for row in table[1:])],
        {"sentence_classification": [Results("", {}, noise)]},
    )
    assert elsewhere[0].p == lone.p


@pytest.mark.parametrize(("n_seeds", "seed_deviation"), [(2, 0.02), (3, 0.0), (5, 0.02)])
def test_planted_nothing_is_reproduced_as_rarely_as_stated(n_seeds, seed_deviation):
    shares = many_tables(["a", "b"], dict.fromkeys("ab", 0.7), n_seeds=n_seeds, seed_deviation=seed_deviation)
    assert shares[REPRODUCED] <= at_most(0.025)
    assert shares[NOT_REPRODUCED] <= at_most(0.025)


def test_of_a_table_of_false_claims_hardly_ever_one_is_reproduced():
    rows = ["a", *(f"r{k}" for k in range(4))]
    assert many_tables(rows, dict.fromkeys(rows, 0.7))[REPRODUCED] <= at_most(0.025)


def test_a_planted_gain_is_nearly_always_found():
    assert many_tables(["a", "b"], {"a": 0.8, "b": 0.65}, n_examples=500)[REPRODUCED] > 0.95


N_TABLES = 100


def many_tables(rows, shares, **more):
    """Of many tables that claim the first row to beat the others, the share in which some claim gets a verdict."""
    tasks = [f"t{k}" for k in range(N_TABLES)]
    ds = classified(dict.fromkeys(tasks, shares), **{"n_examples": 100, "rng": 11} | more)
    first = {"row": rows[0]}
    claims = [
        claim(difference({"task": task, **first}, {"task": task, "row": row}), source=task, name=f"{task} {row}")
        for task in tasks
        for row in rows[1:]
    ]
    found = judge(claims, {"sentence_classification": [Results("", {}, ds)]})
    return {word: len({row.claim.source for row in found if row.verdict == word}) / N_TABLES for word in VERDICTS}


def at_most(rate):
    """What a rate may look like in so many tables, three standard deviations up."""
    return rate + 3 * math.sqrt(rate / N_TABLES)


def half(finding: Finding) -> float:
    """Half the length of the interval."""
    return (finding.interval().high - finding.interval().low) / 2


# ---- rules -------------------------------------------------------------------------------------------------------------------------------


def test_the_best_of_several_is_the_rival():
    ds = classified({"sst2": {"a": 0.8, "b": 0.6, "c": 0.7}})
    finding = difference(A, B, A | {"row": "c"})(ds)
    assert finding.note == "against c"
    assert finding.value == difference(A, A | {"row": "c"})(ds).value
    assert difference(A, B, A | {"row": "d"})(ds) is None
    least = difference(A, B, A | {"row": "c"}, score="log_loss", most=False)(
        classified({"sst2": {"a": 0.8, "b": 0.6, "c": 0.7}}, log_loss={"b": 0.3})
    )
    assert least.note == "against b"


def test_a_mean_over_tasks_weighs_them_equally_and_says_what_is_missing():
    ds = classified({"x": {"a": 0.9, "b": 0.5}, "y": {"a": 0.6, "b": 0.6}, "z": {"a": 0.7}}, n_examples=2000)
    finding = difference({"row": "a"}, {"row": "b"})(ds)
    assert finding.value == pytest.approx(20, abs=2)
    assert finding.note == "mean of 2 of 3, the others did not run"
    halves = [half(difference({"row": "a", "task": task}, {"row": "b", "task": task})(ds)) for task in "xy"]
    assert half(finding) == pytest.approx(np.hypot(*halves) / 2)


def test_a_mean_over_pairs_of_rows_keeps_what_their_examples_share():
    ds = classified({"sst2": {"a": 0.8, "b": 0.7, "c": 0.8, "d": 0.7}}, n_seeds=30)
    pairs = [(A, B), (A | {"row": "c"}, A | {"row": "d"})]
    both, one = mean_difference(pairs)(ds), difference(A, B)(ds)
    assert both.value == pytest.approx(10, abs=3)
    assert half(one) / 2 < half(both) < half(one)
    assert mean_difference([*pairs, (A, A | {"row": "e"})])(ds) is None


def test_a_mean_over_noises_is_taken_seed_by_seed():
    rng = np.random.default_rng(0)
    gains = np.array([0.01, 0.02, 0.03])  # of each seed, the same at every noise
    table = 0.7 + np.zeros((4, 2, 3)) + 0.1 * rng.random((4, 1, 1))
    table[:, 0] += gains
    ds = xr.Dataset({"accuracy": (("sigma", "row", "seed"), table)}, coords={"sigma": range(4), "row": ["a", "b"], "seed": range(3)})
    finding = difference({"row": "a", "sigma": [1, 2]}, {"row": "b", "sigma": [1, 2]})(ds)
    assert (finding.value, *finding.errors[0][:2], finding.n) == pytest.approx((2.0, 1 / math.sqrt(3), 2, 3))
    ds.accuracy[{"sigma": 1, "row": 0, "seed": 2}] = np.nan
    assert difference({"row": "a", "sigma": [1, 2]}, {"row": "b", "sigma": [1, 2]})(ds).n == 2
    assert difference({"row": "a", "sigma": slice(1.5, 9)}, {"row": "b", "sigma": slice(1.5, 9)})(ds).n == 3
    assert difference({"row": "a", "sigma": slice(5, 9)}, {"row": "b", "sigma": slice(5, 9)})(ds) is None
    assert difference({"row": "a", "sigma": [1, 7]}, {"row": "b", "sigma": [1, 7]})(ds) is None


def test_a_value_has_the_interval_of_examples_and_seeds():
    finding = value(A)(planted(0.8, 0.6, n_seeds=10, n_examples=900))
    low, high = finding.interval()[1:]
    assert low < 80 < high
    assert 100 * math.sqrt(0.15 / 9000) < half(finding) / 2 < 100 * math.sqrt(0.16 / 900)
    assert finding.unit == "%"


def test_ratios_are_means_of_logarithms():
    ds = planted(0.8, 0.6, log_loss={"a": 1.0, "b": 0.5})
    finding = ratio([(A, B)])(ds)
    estimate = finding.interval()
    assert estimate.value == pytest.approx(2, rel=0.01)
    assert estimate.low < estimate.value < estimate.high
    assert verdict(ds, ratio([(A, B)]), within(2, 0.5)) == REPRODUCED
    assert verdict(ds, ratio([(A, B)]), greater(3)) == NOT_REPRODUCED
    assert verdict(ds, ratio([(A, B)]), less(-1)) == NOT_REPRODUCED


def test_exponents_of_planted_power_laws():
    n = np.array([100, 200, 400, 800])
    noise = 1 + 0.01 * np.random.default_rng(0).standard_normal((3, 4))
    ds = xr.Dataset({"seconds": (("seed", "n"), 1e-3 * n**1.5 * noise)}, coords={"seed": range(3), "n": n})
    finding = exponent({}, "n")(ds)
    assert finding.value == pytest.approx(1.5, abs=0.02)
    assert finding.n == 3
    single = exponent({}, "n")(ds.isel(seed=0, drop=True))
    slope, covariance = np.polyfit(np.log(n), np.log(ds.seconds[0]), 1, cov=True)
    assert (single.value, *single.errors[0][:2]) == pytest.approx((slope[0], math.sqrt(covariance[0, 0]), 2))
    assert exponent({}, "n", least=300)(ds) is None


def test_the_worst_of_all_conditions():
    ds = xr.Dataset({"residual": (("condition",), [1e-9, 3e-3, np.nan])}, coords={"condition": ["a", "b", "c"]})
    assert worst("residual")(ds) == Finding(3e-3, (), "", 2)
    assert worst("residual", most=False)(ds).value == 1e-9
    assert worst("missing")(ds) is None


def test_regions_say_what_they_ask():
    assert greater(0, 0.5).words == "above 0 (less than 0.5 above it counts as none)"
    assert less(0, 0.005).words == "below 0 (less than 0.005 below it counts as none)"
    assert within(2, 0.5).words == "between 1.5 and 2.5"
    with pytest.raises(ValueError, match="tolerance must be positive, got 0"):
        within(1, 0)


# ---- the papers' own figures -------------------------------------------------------------------------------------------------------------

SIGNED = re.compile(r"[+-][0-9.]+")
EVERY = [claim for claims in CLAIMS.values() for claim in claims]


def test_a_difference_that_a_paper_states_is_known_as_a_number():
    stated = [claim for claim in EVERY if SIGNED.match(claim.paper)]
    assert len(stated) > 60
    for claim in stated:
        assert claim.figure == pytest.approx(float(SIGNED.match(claim.paper).group()), abs=0.051), claim.name


def test_a_sentence_is_contradicted_just_where_the_papers_figure_lies_outside():
    for claim in EVERY:
        low, high = claim.region.claimed
        assert claim.contradicted == (claim.figure is not None and (claim.figure <= low or claim.figure >= high))
    named = {claim.name for claim in EVERY if claim.contradicted}
    assert {"K-sigmoid2 beats V-sigmoid2 on SST-2", "ListOps: n beats softmax", "K-favor against softmax on SST-2"} <= named
    assert "K-elu beats V-elu on SST-2" not in named


@pytest.mark.parametrize(("truth", "agrees"), [(0.7, False), (0.6, True)])
def test_ours_agrees_with_the_papers_figure_where_the_interval_holds_it(truth, agrees):
    claim = Claim("a", "a beats b", "s", "-0.5 points", "e", difference(A, B), greater(0), figure=-0.5)
    outcome = judge([claim], {"e": [Results("", {}, planted(truth, 0.6))]})[0]
    assert (outcome.claim.contradicted, outcome.agrees) == (True, agrees)
    assert ("our interval holds" if agrees else "does not hold") in _row(outcome)[2]
    single = judge([claim], {"e": [Results("", {}, planted(truth, 0.6).isel(seed=[0]))]})[0]
    assert single.agrees is None
    assert _row(single)[2].endswith("contradicts the claim")


def test_p_says_its_direction_and_of_how_many():
    of = [Claim(name, "s", "s", "", "e", rule, greater(0)) for name, rule in (("up", difference(A, B)), ("down", difference(B, A)))]
    cells = [_row(outcome)[5] for outcome in judge(of, {"e": [Results("", {}, planted(0.8, 0.6))]})]
    assert cells == ["< 0.001 for (of 2)", "< 0.001 against (of 2)"]


def test_the_share_on_the_wall_is_what_free_particles_do():
    rng, step = np.random.default_rng(0), 0.01
    x = 0.5 * rng.standard_normal((4000, 2))
    for _ in range(300):
        x = x + np.sqrt(2 * step) * rng.standard_normal(x.shape)
        x = x / np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True))
    on_wall = np.mean(np.linalg.norm(x, axis=1) > 1 - 1e-9)
    assert on_wall == pytest.approx(float(theory.wall_share(np.array(step))), abs=0.02)
    assert theory_checks.Config().step_sizes == theory.WALL_STEPS
