from __future__ import annotations

from pathlib import Path

import pytest

from podpo.bench import save_rows
from podpo.cli import main
from podpo.metrics import read_table


@pytest.mark.slow
@pytest.mark.parametrize("what", ["env", "train"])
def test_a_bench_compares_with_the_bare_simulator(what: str, tmp_path: Path) -> None:
    for _ in range(2):
        assert main(["bench", what, "--num-envs", "8", "--device", "cpu", "--results", str(tmp_path)]) == 0
    rows = read_table(tmp_path / f"{what}.csv")
    assert len(rows) == {"env": 4, "train": 10}[what], "a second run is added to the first"
    bare, *others = rows[: len(rows) // 2]
    assert bare["what"] == "bare simulator"
    assert float(bare["ratio"]) == 1
    for row in others:
        assert 0 < float(row["ratio"]) < 1.2
        assert float(row["env_steps_per_s"]) == pytest.approx(1e3 * int(row["env_steps"]) / float(row["ms"]))
        assert row["commit"]
        assert row["machine"]


def test_rows_keep_their_provenance(tmp_path: Path) -> None:
    save_rows([{"what": "a", "ms": 1.0}], tmp_path / "x.csv")
    (row,) = read_table(tmp_path / "x.csv")
    assert {"what", "ms", "started", "command", "commit", "machine", "torch"} == set(row)


def test_only_simulated_tasks_have_a_bare_simulator(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "env", "--task", "point-track"]) == 2
    assert "only a simulated task" in capsys.readouterr().err
