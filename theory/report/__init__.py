"""Does a run obey the laws it should? `check` compares it with every prediction that applies, `summary` prints the result."""

from __future__ import annotations

from theory.report.checks import check, summary

__all__ = [
    "check",
    "summary",
]
