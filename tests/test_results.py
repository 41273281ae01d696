"""The numbers in docs/results.md are those that the report makes of the committed CSV files."""

from __future__ import annotations

import re
from pathlib import Path

import toy_report

README = Path(__file__).parents[1] / "README.md"
RESULTS_PAGE = README.parent / "docs" / "results.md"


def test_documented_numbers_are_the_measured_ones() -> None:
    documented = RESULTS_PAGE.read_text().splitlines()
    measured = [line for table in toy_report.tables() for line in table]
    assert len(measured) > 20
    assert [line for line in measured if line not in documented] == []


def test_the_readme_quotes_the_results() -> None:
    quoted = [
        line for line in README.read_text().splitlines() if re.match(r"\| \d+ (thousand steps|s of training) \|", line)
    ]
    assert len(quoted) == 5
    assert set(quoted) <= set(toy_report.point_track_table())
