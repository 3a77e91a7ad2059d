"""The claims about attention kernels follow from their rules: planted tables pass or fail them, bar by bar."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from experiments.kernel_claims import WIDTHS, bars_table, matching_bars, recall_bars
from experiments.sections import section

GOOD = {
    "phase": {"end to end": 84, "align, unfreeze": 86, "softmax": 29, "fixed": 27, "favor": 27, "shuffled": 28},
    "multi": {"align, unfreeze": 81, "fixed": 27, "align": 77},
    "ring3": {**dict.fromkeys(WIDTHS, 70), "align, unfreeze": 78, "shuffled, unfreeze": 70},
    "xor2": {"phase, align, unfreeze": 84},
    "iso": {"softmax": 90, "align, unfreeze": 75, "end to end": 74},
}


def planted(table: dict[str, dict[str, float]], seeds: int = 3) -> xr.Dataset:
    """Accuracies in percent; rows that a task lacks are 50."""
    methods = sorted({name for row in table.values() for name in row})
    means = np.array([[row.get(name, 50) for name in methods] for row in table.values()], dtype=float)
    values = (means[..., None] + np.linspace(-1, 1, seeds)) / 100
    return xr.Dataset(
        {"accuracy": (("task", "method", "seed"), values)}, coords={"task": list(table), "method": methods, "seed": range(seeds)}
    )


def verdicts(bars) -> dict[str, bool]:
    return {bar.claim: bar.holds for bar in bars}


def test_a_good_table_passes_every_bar():
    bars = matching_bars(planted(GOOD))
    assert len(bars) == 14
    assert all(bar.holds for bar in bars), [bar for bar in bars if not bar.holds]
    text = str(bars_table("Claims", bars))
    assert " no" not in [line[-3:] for line in text.splitlines()]
    assert "84.0 (81.5 to 86.5)" in text  # Student's interval of 83, 84, 85


@pytest.mark.parametrize(
    ("task", "method", "value", "claim"),
    [
        ("phase", "end to end", 80, "phase: end to end"),
        ("phase", "softmax", 35, "phase: softmax"),
        ("phase", "shuffled", 40, "phase: shuffled"),
        ("multi", "align", 60, "multi: align"),
        ("ring3", "end to end, half width", 75, "ring3: align, unfreeze minus end to end, half width"),
        ("ring3", "shuffled, unfreeze", 74, "ring3: align, unfreeze minus shuffled, unfreeze"),
        ("xor2", "phase, align, unfreeze", 80, "xor2: phase, align, unfreeze"),
        ("iso", "align, unfreeze", 80, "iso: align, unfreeze minus end to end"),
    ],
)
def test_one_planted_fault_fails_its_bar_and_no_other(task, method, value, claim):
    table = {name: dict(row) for name, row in GOOD.items()}
    table[task][method] = value
    assert [name for name, holds in verdicts(matching_bars(planted(table))).items() if not holds] == [claim]


def test_bars_need_their_rows():
    assert verdicts(matching_bars(planted({"phase": {"softmax": 29}}))) == {"phase: softmax": True}
    table = {"ring3": {"align, unfreeze": 90, "end to end": 50}}  # two of the three widths were not run
    assert matching_bars(planted(table)) == []


def test_recall_bars():
    rows = {"flexformer, output norm": 99, "favor": 70, "flexformer, literal": 8, "softmaxfeat, align": 76, "softmaxfeat, shuffled": 75}
    ds = planted({"recall": rows}).squeeze("task", drop=True)
    assert all(verdicts(recall_bars(ds)).values())
    rows |= {"favor": 90, "softmaxfeat, align": 85}
    failed = verdicts(recall_bars(planted({"recall": rows}).squeeze("task", drop=True)))
    assert [name for name, holds in failed.items() if not holds] == [
        "recall: favor",
        "recall: softmaxfeat, align minus softmaxfeat, shuffled",
    ]


def test_the_section_of_recall_states_every_row():
    ds = planted({"recall": {"softmax": 100, "favor": 70}}).squeeze("task", drop=True)
    for name, value in {"non_positive": 0.0, "effective_rank": 16.0, "dead": 0.0, "state": 1024.0, "seconds": 1.0}.items():
        ds[name] = xr.full_like(ds.accuracy, value)
    text = str(section("recall", ds))
    assert "softmax" in text
    assert "70.0 ± 1.0" in text
