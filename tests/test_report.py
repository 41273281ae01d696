from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from podpo.metrics import CsvTable
from podpo.report import Study, comparison_table, course_table, final_table, write_report


def make_study(folder: Path, seeds: int = 5) -> Path:
    """PPO ends at 10 + seed and ours at 12 + seed; both have got there in a straight line, ours in half the time."""
    evaluations, training = CsvTable(folder / "evaluations.csv"), CsvTable(folder / "training.csv")
    for variant, end, seconds in (("ppo", 10, 100.0), ("podpo", 12, 50.0)):
        for seed in range(1, seeds + 1):
            head: dict[str, Any] = {"task": "go2-walk", "variant": variant, "seed": seed}
            for i in range(1, 11):
                value = (end + seed) * i / 10
                x = {"iteration": i, "env_steps": i * 1_000_000, "wall_s": seconds * i / 10}
                training.append(head | x | {"return": value})
                if i % 5 == 0:
                    numbers = {f"{noise}/return_mean": value for noise in ("zero", "sample", "mean")}
                    others = {"zero/survival": 1.0, "zero/velocity_rmse_m_s": 0.2, "zero/tracking": 0.9, "spread": 0.5}
                    evaluations.append(head | x | {"is_last": int(i == 10), "train_return": value} | numbers | others)
    for seed in range(1, seeds + 1):
        zero = {"task": "go2-walk", "variant": "zero", "seed": seed, "is_last": 1, "zero/return_mean": 4.0}
        evaluations.append(zero)
    evaluations.close()
    training.close()
    return folder


def cells(lines: list[str], label: str) -> list[str]:
    (line,) = [line for line in lines if line.startswith(f"| {label}")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_tables_by_hand(tmp_path: Path) -> None:
    study = Study(make_study(tmp_path))
    lines = final_table(study)
    # The middle three of 11, ..., 15 are 12, 13, 14.
    assert cells(lines, "noise-free return") == ["13.00 [11.33, 14.67]", "15.00 [13.33, 16.67]"]
    assert cells(lines, "regret")[0].startswith("11.00")
    assert cells(lines, "score (0: stands still, 4.00; 1: 24)")[0].startswith("0.450")
    # Ours gains 1.3 to 1.7 in 5 s, on average 1.5; PPO's end of 13 is reached where 15 i / 10 = 13, but seed by seed.
    (ours,) = cells(lines, "seconds to PPO's final noise-free return (13.00)")[1:]
    expected = np.sort([50 * 13.0 / (12 + seed) for seed in range(1, 6)])[1:4].mean()
    assert float(ours.split()[0]) == pytest.approx(expected, abs=0.6)

    difference, percent, chance = cells(comparison_table(study), "podpo: training return")
    assert difference.startswith("+2.00 [")
    assert percent.startswith("+15.4 [")
    assert float(chance.split()[0]) == pytest.approx((25 - 3 - 1.5) / 25, abs=0.03)
    assert cells(course_table(study), "podpo: noise-free return at 5.0 million")[0].startswith("+1.00")


def test_few_seeds_are_shown_one_by_one(tmp_path: Path) -> None:
    study = Study(make_study(tmp_path, seeds=3))
    assert cells(final_table(study), "training return") == ["11.00, 12.00, 13.00", "13.00, 14.00, 15.00"]
    difference, _, _ = cells(comparison_table(study), "podpo: training return")
    assert difference == "+2.00", "no interval"


def test_a_run_that_never_gets_there_is_counted(tmp_path: Path) -> None:
    study = Study(make_study(tmp_path))
    theirs = cells(final_table(study), "seconds to PPO's final noise-free return")[0]
    assert theirs.startswith("3 of 5 runs")


def test_a_curve_that_still_rises_is_called_so(tmp_path: Path) -> None:
    text, pictures = write_report(make_study(tmp_path), tmp_path / "out")
    assert "- ppo, training return: +11.1 % over its last eighth; still rises: not converged" in text
    assert (tmp_path / "out" / "report.md").read_text() == text
    assert [path.name for path in pictures] == ["curves.png"]
    assert pictures[0].stat().st_size > 10_000
