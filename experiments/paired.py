"""Paired tests: is one model better than another on the same test examples with the same seeds?

A difference varies because the test set is one sample of examples and because training starts from one of many seeds.

| function             | what would be new in another study                                                            |
|----------------------|-----------------------------------------------------------------------------------------------|
| mcnemar              | the examples; one model of each row                                                           |
| over_seeds           | the seeds; the same test examples                                                             |
| crossed              | seeds and examples; two seeds at least                                                        |
| pigeonhole_bootstrap | seeds and examples, from ten seeds on                                                          |
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from particles.arrays import as_float, count, generator, positive, real

LEAST = 1e-100  # a chance below this is 0


class McNemar(NamedTuple):
    """Examples that only one of two models has right, the difference of their accuracies, and two-sided p: exact and mid-p."""

    only_first: int
    only_second: int
    difference: float
    p_exact: float
    p_mid: float


class Error(NamedTuple):
    """One cause of error: Student's with this standard error and degrees of freedom, but nowhere less than the second one gives."""

    error: float
    freedom: float
    least: float = 0.0
    least_freedom: float = math.inf

    def reach(self, tail: float) -> float:
        """The distance that is passed with this chance on one side; NaN without degrees of freedom."""
        from scipy.special import stdtrit

        if not self.freedom:
            return math.nan
        own, least = (-float(stdtrit(freedom, tail)) for freedom in (self.freedom, self.least_freedom))
        return max(own * self.error, least * self.least)

    def times(self, factor: float) -> Error:
        """The same of a number so many times as large."""
        return self._replace(error=factor * self.error, least=factor * self.least)


class Difference(NamedTuple):
    """A mean difference, its interval, the two-sided p of "none", and the error of each cause."""

    value: float
    low: float
    high: float
    p: float
    errors: tuple[Error, ...]


def mcnemar(first: Any, second: Any) -> McNemar:
    """McNemar's test (McNemar 1947) of two models on the same examples.

    first, second : (n,) bool, whether each example is right. Of the examples that only one model has right, a fair coin says which.
    p_exact is binomial and gives too few false alarms; p_mid counts half of what was seen and is nearer to the level (Fagerland, Lydersen
    and Laake 2013). Both are 1 where the models differ nowhere.
    """
    from scipy.stats import binom

    first, second = np.asarray(first), np.asarray(second)
    if first.dtype != bool or second.dtype != bool or first.shape != second.shape or first.ndim != 1 or not first.size:
        got = f"{first.dtype} {first.shape} and {second.dtype} {second.shape}"
        raise ValueError(f"first and second must be bool arrays of one shape (n,), n > 0, got {got}")
    a, b = int((first & ~second).sum()), int((second & ~first).sum())
    tail, seen = (float(f(min(a, b), a + b, 0.5)) for f in (binom.cdf, binom.pmf))
    exact = min(1.0, 2 * tail)  # with a = b the two tails share what was seen
    mid = 1.0 if a + b == 0 else 1 - seen / 2 if a == b else exact - seen
    return McNemar(a, b, (a - b) / first.size, exact, mid)


def over_seeds(differences: Any, *, level: float = 0.95) -> Difference:
    """Student's paired test over seeds; differences (seed,) of any score.

    One seed has an infinite interval and p NaN. Where all differences are equal there is no error: p is 1 if they are 0, else 0.
    """
    d = np.asarray(as_float(differences, "differences"), dtype=float)
    if d.ndim != 1 or d.size == 0:
        raise ValueError(f"differences must have shape (seed,), one at least, got {d.shape}")
    return _difference(float(d.mean()), (_error(d),), level)


def crossed(differences: Any, *, level: float = 0.95) -> Difference:
    """Test of a mean over seeds and examples, both of which are samples.

    differences : (seed, example) of correctness, or of any loss of an example. One seed says nothing of others: its interval is infinite
    and p NaN (`mcnemar` compares two models, without their training). One example leaves the seeds.

    In the two-way table without repeats (Clark 1973) the variance of the mean is A/SE + (B - C)/SE: mean squares of the S seeds, of the E
    examples and of the rest, the second part at least 0. The first is known from a few seeds only, so each part has its own Student's
    quantile (after Cochran and Cox 1957): with a mean difference D, p solves D² = t²_{S-1}(p) A/SE + t²_{E-1}(p) (B - C)/SE. False alarms
    keep to the level whichever part dominates. Few seeds can agree by luck, so that A is far below C, which it is at least in the mean:
    t²_{(S-1)(E-1)}(p) C is the least that stands for t²_{S-1}(p) A, and no interval is narrower than that of SE independent differences.
    """
    d = _table(differences)
    (n_seeds, n_examples), mean = d.shape, float(d.mean())
    seeds, examples = d.mean(1), d.mean(0)
    if 1 in d.shape:
        return _difference(mean, (_error(seeds),), level)
    rest, freedom = d - seeds[:, None] - examples + mean, (n_seeds - 1) * (n_examples - 1)
    of_rest = float((rest**2).sum()) / freedom / d.size
    excess = float(examples.var(ddof=1)) / n_examples - of_rest
    of_seeds = _error(seeds)._replace(least=math.sqrt(of_rest), least_freedom=freedom)
    return _difference(mean, (of_seeds, Error(math.sqrt(max(excess, 0.0)), n_examples - 1)), level)


def pigeonhole_bootstrap(differences: Any, *, n_resamples: int = 2000, level: float = 0.95, rng: Any = 0) -> Difference:
    """Bootstrap of a mean over seeds and examples, drawn with replacement independently of each other (Owen 2007).

    differences : (seed, example). The interval lies between quantiles of the resampled means. p is twice the smaller share of them on
    either side of 0, each counted with one more, so that it is never 0; the error is their standard deviation.

    It knows nothing of how few the seeds are: false alarms at 5 % were 29 % with 2 seeds, 15 % with 3 and 9 % with 5 where seeds dominate,
    and none where neither seeds nor examples do, as that part counts three times. `crossed` has neither fault.
    """
    d, rng, n_resamples, tail = _table(differences), generator(rng), count(n_resamples, "n_resamples"), _tail(level)
    n_seeds, n_examples = d.shape
    means, step = np.empty(n_resamples), max(1, 1_000_000 // n_examples)
    for start in range(0, n_resamples, step):
        n = min(step, n_resamples - start)
        weights = rng.multinomial(n_seeds, np.full(n_seeds, 1 / n_seeds), n) / n_seeds
        drawn = rng.integers(n_examples, size=(n, n_examples))
        means[start : start + n] = np.take_along_axis(weights @ d, drawn, 1).mean(1)
    low, high = np.quantile(means, [tail, 1 - tail])
    p = min(1.0, 2 * (1 + min(int((means <= 0).sum()), int((means >= 0).sum()))) / (1 + n_resamples))
    return Difference(float(d.mean()), float(low), float(high), p, (Error(float(means.std()), math.inf),))


def equivalence(difference: Difference, delta: float) -> float:
    """p of "the true difference is delta or more, one way or the other": the larger of two one-sided tests (Schuirmann 1987).

    Below 0.05 it is shown that no difference is as large as delta; just then the 90 % interval lies within (-delta, delta). NaN where the
    difference has no known error.
    """
    room = positive(delta, "delta") - abs(difference.value)
    tail = beyond(abs(room), difference.errors)
    return tail if room >= 0 else 1 - tail


def smallest_difference(
    n_examples: int,
    *,
    discordance: float,
    n_seeds: int = 1,
    shared: float = 1.0,
    seed_deviation: float = 0.0,
    n_comparisons: int = 1,
    level: float = 0.95,
    power: float = 0.8,
) -> float:
    """The smallest true difference of two accuracies that a test at this level finds with this power [share of the examples].

    Parameters
    ----------
    discordance : share of the examples that only one of the two models of a seed has right.
    shared : share of that variance which is the examples' own, the same with every seed: at 1 more seeds bring nothing, at 0 a seed
        counts like another test set.
    seed_deviation : standard deviation over seeds of the difference on endless examples.
    n_comparisons : how many tests share the level (Holm's first step).

    With normal quantiles and the variance of no difference: `crossed` had power 0.73 in the place of 0.8 with 5 seeds.
    """
    from scipy.special import ndtri

    n, s = count(n_examples, "n_examples"), count(n_seeds, "n_seeds")
    for name, value in (("discordance", discordance), ("shared", shared)):
        if not 0 <= real(value, name) <= 1:
            raise ValueError(f"{name} must be in [0, 1], got {value!r}")
    if not 0.5 <= real(power, "power") < 1:
        raise ValueError(f"power must be in [0.5, 1), got {power!r}")
    variance = discordance * (shared + (1 - shared) / s) / n + positive(seed_deviation, "seed_deviation", zero=True) ** 2 / s
    return float((ndtri(power) - ndtri(_tail(level) / count(n_comparisons, "n_comparisons"))) * math.sqrt(variance))


def _difference(value: float, errors: tuple[Error, ...], level: float) -> Difference:
    """The interval and p of a mean with these errors."""
    half = reach(_tail(level), errors)
    half = math.inf if math.isnan(half) else half
    return Difference(value, value - half, value + half, 2 * beyond(abs(value), errors), errors)


def reach(tail: float, errors: tuple[Error, ...]) -> float:
    """The distance that is passed with this chance on one side; NaN where an error is not known."""
    return math.hypot(*(error.reach(tail) for error in errors))


def beyond(distance: float, errors: tuple[Error, ...]) -> float:
    """The chance to pass this distance on one side, what `reach` inverts; 0 below LEAST, a half at distance 0 even without errors."""
    from scipy.optimize import brentq

    if math.isnan(reach(0.25, errors)):
        return math.nan
    if distance == 0:
        return 0.5
    if reach(LEAST, errors) <= distance:
        return 0.0
    return math.exp(brentq(lambda x: reach(math.exp(x), errors) - distance, math.log(LEAST), math.log(0.5), xtol=1e-13))


def _error(values: np.ndarray) -> Error:
    """Standard error of a mean and its degrees of freedom; NaN and 0 for one value."""
    return Error(float(values.std(ddof=1)) / math.sqrt(values.size), values.size - 1) if values.size > 1 else Error(math.nan, 0)


def _table(differences: Any) -> np.ndarray:
    d = np.asarray(as_float(differences, "differences"), dtype=float)
    if d.ndim != 2 or d.size == 0:
        raise ValueError(f"differences must have shape (seed, example), one of each at least, got {d.shape}")
    return d


def _tail(level: float) -> float:
    if not 0 < real(level, "level") < 1:
        raise ValueError(f"level must be between 0 and 1, got {level!r}")
    return (1 - level) / 2
