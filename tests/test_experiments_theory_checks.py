"""Theory's statements measured: each check finds what is known, the claims about them follow, and a false theory is not reproduced."""

from __future__ import annotations

import numpy as np
import pytest

from experiments import theory_checks
from experiments.claims import NOT_REPRODUCED, REPRODUCED, Results, judge, soft, theory
from experiments.claims.flexformer import CLAIMS as FLEXFORMER
from experiments.theory_checks import CHECKS, PRESETS, Config, figures, measure, run, section, units

CLAIMS = [claim for claim in (*theory.CLAIMS, *soft.CLAIMS, *FLEXFORMER) if claim.experiment == "theory_checks"]

pytestmark = pytest.mark.filterwarnings("error:drift_cap shortened:UserWarning")  # the start is far from equilibrium: no news


@pytest.fixture(scope="module")
def smoke():
    return run(PRESETS["smoke"], progress=False)


def test_the_smoke_preset_has_every_check(smoke):
    assert smoke.sizes["check"] == len(CHECKS)
    assert smoke.attrs["finished"] == len(list(units(PRESETS["smoke"]))) == 4 * 2 + 2
    text = str(section(smoke))
    assert all(title in text for title in ("W_2 between", "Newton's pseudo-inverse", "least energy".capitalize()))
    assert set(figures(smoke)) == {"theory_checks.png"}
    said = section(smoke).verdicts
    assert len(said) == len(CLAIMS)
    assert any(line.startswith("large deviations for s > dim: not reproduced (must be between -0.1 and 0.1, got ") for line in said)


def test_exact_checks(smoke):
    counts = smoke.extra_parameters.sel(check="parameters").isel(seed=0)
    assert counts.values == pytest.approx([0.487, 0.967, 0.431, 0.856], abs=1e-3)
    energy = smoke.least_energy.sel(check="infinite energy").isel(seed=0)
    assert float(energy.sel(points=800)) == pytest.approx(np.pi**2 / 6 * 800, rel=0.01)  # zeta(2) N


def test_walls_hold_the_square_root_of_the_step():
    found = measure(Config(), {"check": "walls", "seed": 0})["on_wall"]
    slope = np.polyfit(np.log(Config().step_sizes), np.log(found), 1)[0]
    assert slope == pytest.approx(0.45, abs=0.07)


def test_tails_are_those_of_theory():
    ratio = measure(Config(n_trials=20_000), {"check": "large deviations", "seed": 1})["rate_ratio"]
    assert ratio == pytest.approx(1.0, abs=0.05)


def planted(**scores):
    """Results of the checks with these numbers, three seeds."""
    records = []
    from experiments.units import gather, record

    rng = np.random.default_rng(0)
    for check in CHECKS:
        for seed in range(3):
            given = {
                name: np.asarray(values) * (1 + 1e-3 * rng.standard_normal(len(values)))
                for name, (of, values) in scores.items()
                if of == check
            }
            if given:
                records.append(record({"check": check, "seed": seed}, given, 1.0))
    settings = {name: getattr(Config(), name) for name in ("sizes", "step_sizes")}
    return gather(theory_checks, records, (), settings)


def verdicts(ds):
    found = judge(CLAIMS, {"theory_checks": [Results("", {}, ds)]})
    return {row.claim.name: row.verdict for row in found}


def test_claims_follow_from_planted_checks():
    n, steps = np.array(Config().sizes, float), np.array(Config().step_sizes)
    good = planted(
        distance=("mean field", n**-0.5), kernel_spread=("mean field", n**-0.5), rate_ratio=("large deviations", [1.0, 1.0, 1.0]),
        on_wall=("walls", theory.wall_share(steps)), newton_residual=("newton", [1e-4, 1e-3, 1e-6]),
        least_energy=("infinite energy", np.full(5, 7.0)),
    )  # fmt: skip
    said = verdicts(good)
    said = {name: word for name, word in said.items() if not name.startswith("extra")}
    assert set(said.values()) == {REPRODUCED}
    energies = 1.6 * np.arange(1.0, 6.0)
    bad = planted(
        distance=("mean field", n**0.0), kernel_spread=("mean field", n**-1.0), rate_ratio=("large deviations", [1.3, 1.2, 1.25]),
        on_wall=("walls", steps**0.0), newton_residual=("newton", [1e-4, 0.3, 1e-6]), least_energy=("infinite energy", energies),
    )  # fmt: skip
    said = {name: word for name, word in verdicts(bad).items() if not name.startswith("extra")}
    assert set(said.values()) == {NOT_REPRODUCED}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"checks": ("gravity",)}, "checks must be some of"),
        ({"sizes": (8, 16)}, "sizes must be three different positive numbers at least, got"),
        ({"step_sizes": (0.1, 0.1, 0.2)}, "step_sizes must be three different"),
        ({"beta": 0.0}, "beta must be"),
        ({"n_trials": 0}, "n_trials must be"),
    ],
)
def test_impossible_options_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        Config(**options)
