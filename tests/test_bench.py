from __future__ import annotations

from pathlib import Path

import pytest

from podpo.bench import save_rows
from podpo.cli import main
from podpo.metrics import read_table


@pytest.mark.slow
@pytest.mark.parametrize("what", ["env", "train"])
def test_a_bench_compares_with_the_bare_simulator(what: str, tmp_path: Path) -> None:
    assert main(["bench", what, "--num-envs", "8", "--device", "cpu", "--results", str(tmp_path)]) == 0
    bare, *others = read_table(tmp_path / f"{what}.csv")
    assert len(others) == {"env": 1, "train": 4}[what]
    assert bare["what"] == "bare simulator"
    assert float(bare["ratio"]) == 1
    for row in others:
        assert 0 < float(row["ratio"]) < 1.2
        assert float(row["env_steps_per_s"]) == pytest.approx(1e3 * int(row["env_steps"]) / float(row["ms"]))
        assert row["commit"]
        assert row["machine"]


def test_rows_keep_their_provenance(tmp_path: Path) -> None:
    save_rows([{"what": "a", "ms": 1.0}], tmp_path / "x.csv")
    save_rows([{"what": "a", "ms": 2.0}], tmp_path / "x.csv")
    row, later = read_table(tmp_path / "x.csv")
    assert (row["ms"], later["ms"]) == ("1.0", "2.0"), "a second run is added to the first"
    assert {"what", "ms", "started", "command", "commit", "machine", "torch"} == set(row)


def test_only_simulated_tasks_have_a_bare_simulator(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "env", "--task", "point-track"]) == 2
    assert "only a simulated task" in capsys.readouterr().err
