"""benchmarks/LIMITS.md: what it quotes stands in the report that it is about."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
NUMBER = r"[+-]?\d+(?:\.\d+)?"
QUOTED = re.compile(rf"({NUMBER}) \(({NUMBER}) to ({NUMBER})\)")  # a difference with its interval
SPREAD = re.compile(rf"{NUMBER} ± {NUMBER}")


def differences(text: str) -> set[tuple[str, str, str]]:
    """Numbers with intervals, also those whose interval stands in the next column, or after "95 % interval"."""
    plain = re.sub(r" \| ", " ", text)
    forms = (
        QUOTED,
        re.compile(rf"({NUMBER}) ({NUMBER}) to ({NUMBER}) "),
        re.compile(rf"({NUMBER}) \S+(?: \S+)?, 95 % interval ({NUMBER}) to ({NUMBER})"),
    )
    forms += (re.compile(rf"({NUMBER}) \S+ \(({NUMBER}) to ({NUMBER})\)"),)
    return {found for form in forms for found in form.findall(plain)}


def test_what_is_quoted_stands_in_the_report():
    page, report = ((FOLDER / name).read_text(encoding="utf-8") for name in ("LIMITS.md", "report/report.md"))
    quoted, known = set(QUOTED.findall(page)), differences(report)
    assert len(quoted) > 10
    assert quoted <= known
    assert set(SPREAD.findall(page)) <= set(SPREAD.findall(report))


@pytest.mark.parametrize(
    "text",
    [
        "+5.4 (+2.1 to +8.6)",
        "| a | +5.4 | +2.1 to +8.6 | 0.1 |",
        "better (+5.4 points, 95 % interval +2.1 to +8.6)",
        "+5.4 points (+2.1 to +8.6)",
    ],
)
def test_every_form_of_the_report_is_read(text):
    assert ("+5.4", "+2.1", "+8.6") in differences(text)
    assert ("+5.4", "+2.1", "+8.7") not in differences(text)
