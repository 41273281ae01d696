"""The numbers in docs/results.md are those that the report makes of the committed CSV files."""

from __future__ import annotations

from pathlib import Path

import toy_report

RESULTS_PAGE = Path(__file__).parents[1] / "docs" / "results.md"


def test_documented_numbers_are_the_measured_ones() -> None:
    documented = RESULTS_PAGE.read_text().splitlines()
    measured = [line for table in toy_report.tables() for line in table]
    assert len(measured) > 20
    assert [line for line in measured if line not in documented] == []
