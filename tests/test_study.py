from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import small_run
from rich.console import Console

from podpo import study as study_module
from podpo.metrics import read_table
from podpo.studies import STUDIES, Study, Variant, find_study
from podpo.study import Job, outcomes, rows_of, run_study, train
from podpo.validation import ConfigError


def small_study(tmp_path: Path, seeds: tuple[int, ...] = (1, 2), **changes: Any) -> Study:
    def config(algorithm: str) -> Any:
        return small_run(tmp_path, algorithm=algorithm, eval_deployments=("zero", "sample", "mean"), **changes)

    variants = (
        Variant("PODPO", config("podpo")),
        Variant("ppo", config("ppo")),
        Variant("zero", config("podpo"), agent="zero"),
    )
    return Study("small", "which?", variants, seeds)


def run(study: Study, tmp_path: Path) -> int:
    return run_study(study, tmp_path / "results", tmp_path / "runs", 2, None, Console(quiet=True))


@pytest.mark.slow
def test_a_study_leaves_a_row_for_each_evaluation(tmp_path: Path) -> None:
    study = small_study(tmp_path)
    assert run(study, tmp_path) == 0
    rows = read_table(tmp_path / "results" / "small" / "evaluations.csv")
    trained = [(row["variant"], row["seed"], row["iteration"]) for row in rows if row["variant"] != "zero"]
    expected = [(label, seed, i) for label in ("PODPO", "ppo") for seed in ("1", "2") for i in ("2", "4")]
    assert sorted(trained) == sorted(expected)
    assert sorted((row["variant"], row["seed"]) for row in rows if row["variant"] == "zero") == [
        ("zero", "1"),
        ("zero", "2"),
    ]
    for row in rows:
        assert row["task"] == "point-track"
        assert row["study"] == "small"
        assert row["commit"]
        assert row["machine"]
        assert row["command"]
        assert float(row["zero/return_mean"]) > 0
        if row["variant"] != "zero":
            assert int(row["env_steps"]) == 16 * 8 * int(row["iteration"])
            assert float(row["wall_s"]) > 0
            assert all(float(row[name]) for name in ("mean/return_mean", "sample/return_mean", "spread"))
    training = read_table(tmp_path / "results" / "small" / "training.csv")
    assert len(training) == 2 * 2 * 4

    before = (tmp_path / "results" / "small" / "evaluations.csv").read_text()
    assert run(study, tmp_path) == 0
    assert (tmp_path / "results" / "small" / "evaluations.csv").read_text() == before, "nothing is run again"
    assert run(replace(study, seeds=(1, 2, 3)), tmp_path) == 0
    rows = read_table(tmp_path / "results" / "small" / "evaluations.csv")
    assert {row["seed"] for row in rows} == {"1", "2", "3"}


@pytest.mark.slow
def test_a_worker_that_dies_takes_only_its_run_along(tmp_path: Path) -> None:
    """The first run is endless and its process is killed; the second is done by another, and a third by either."""
    endless = replace(small_study(tmp_path).variants[0].config, max_iterations=100_000)
    short = small_study(tmp_path).variants[0]
    jobs = [
        Job(Variant("endless", endless), 1, str(tmp_path / "a")),
        Job(short, 2, str(tmp_path / "b")),
        Job(short, 3, str(tmp_path / "c")),
    ]

    def kill_the_endless() -> None:
        while not list((tmp_path / "a").rglob("evaluations.csv")):
            time.sleep(0.1)
        locked = next((tmp_path / "a").rglob(".lock")).resolve()
        for process in multiprocessing.active_children():
            files = Path(f"/proc/{process.pid}/fd")
            if any(os.path.realpath(link) == str(locked) for link in files.iterdir()):
                os.kill(process.pid or 0, signal.SIGKILL)

    killer = threading.Thread(target=kill_the_endless)
    killer.start()
    found = {job.seed: outcome for job, outcome in outcomes(jobs, 2)}
    killer.join()
    assert found[1] == "its process ended with code -9"
    for seed in (2, 3):
        outcome = found[seed]
        assert not isinstance(outcome, str), outcome
        evaluations, iterations = outcome
        assert [row["iteration"] for row in evaluations] == ["2", "4"]
        assert len(iterations) == 4


def test_a_run_that_was_begun_goes_on(tmp_path: Path) -> None:
    variant = small_study(tmp_path).variants[0]
    job = Job(variant, 5, str(tmp_path / "runs"))
    stopped = Job(Variant("PODPO", replace(variant.config, max_time=1e-6)), 5, str(tmp_path / "runs"))
    begun = train(stopped, None)
    assert begun.iteration < 4
    (begun.folder.config_file).write_text(begun.folder.config_file.read_text().replace("1e-06", "null"))
    finished = train(job, begun)
    assert finished.folder == begun.folder
    assert finished.iteration == 4
    assert finished.task is begun.task, "the simulator is used again"
    assert [row["iteration"] for row in rows_of(finished.folder)[1]] == ["1", "2", "3", "4"]


def test_a_half_written_run_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.csv"
    path.write_text("variant,seed,is_last,x\na,1,0,5\na,1,1,6\nb,1,0,7\n")
    tables = study_module.Tables(tmp_path)
    assert tables.finished == {("a", "1")}
    assert [row["x"] for row in read_table(path)] == ["5", "6"]


@pytest.mark.parametrize("name", STUDIES)
def test_declared_studies_are_fair(name: str) -> None:
    """Both algorithms get as many runs, of the same length or time; networks are the same where they compete."""
    study = find_study(name, on_gpu="cpu" not in name)
    configs = {
        a: [v.config for v in study.variants if v.config.algorithm.name == a and not v.agent] for a in ("podpo", "ppo")
    }
    assert len(configs["podpo"]) == len(configs["ppo"]) > 0
    assert len({v.label for v in study.variants}) == len(study.variants)
    for ours, theirs in zip(*configs.values(), strict=True):
        for field in ("task", "num_envs", "num_steps_per_env", "max_iterations", "max_time", "eval_episodes"):
            assert getattr(ours, field) == getattr(theirs, field)
        assert ours.algorithm.actor.hidden_dims == theirs.algorithm.actor.hidden_dims
        assert ours.algorithm.actor.activation == theirs.algorithm.actor.activation
        assert ours.algorithm.critic == theirs.algorithm.critic


def test_an_unknown_study_is_named_with_its_neighbours() -> None:
    with pytest.raises(ConfigError, match=r"no study 'go3'.*go2"):
        find_study("go3", on_gpu=False)
