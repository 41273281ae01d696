from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import small_run
from rich.console import Console

from podpo.checkpoint import read_checkpoint, write_checkpoint
from podpo.config import PPOConfig, RunConfig
from podpo.evaluation import deployed, evaluate, evaluate_side_by_side, load_policy, random_agent, zero_agent
from podpo.metrics import CsvTable, read_table
from podpo.run_folder import RunFolder, check_resumed, create_run, find_run, write_atomically
from podpo.tasks import make_task
from podpo.tasks.toy import PointTrack
from podpo.training import Training
from podpo.validation import ConfigError


def run(config: RunConfig, checkpoint: Path | None = None, folder: RunFolder | None = None) -> Training:
    training = Training(config, folder or create_run(config), Console(quiet=True), checkpoint)
    training.run()
    return training


def assert_equal_state(one: Any, other: Any, where: str = "") -> None:
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other), where
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            if key != "train_s":  # seconds are measured, not computed
                assert_equal_state(one[key], other[key], f"{where}/{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), where
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_equal_state(a, b, f"{where}[{i}]")
    else:
        assert one == other or (one != one and other != other), where


@pytest.mark.parametrize("algorithm", ["podpo", "ppo"])
def test_a_resumed_run_has_the_bits_of_an_unbroken_one(tmp_path: Path, algorithm: str) -> None:
    config = small_run(tmp_path, algorithm=algorithm, max_iterations=6)
    whole = run(config)
    first = run(replace(config, max_iterations=4))
    run(config, first.folder.last, first.folder)
    states = [read_checkpoint(t.folder.last, "cpu") for t in (whole, first)]
    assert states[0]["training"]["iteration"] == 6
    assert_equal_state(states[0], states[1])


def test_the_log_axis_goes_on(tmp_path: Path) -> None:
    config = small_run(tmp_path, max_iterations=6)
    first = run(replace(config, max_iterations=3))
    # A crash may leave rows of iterations that no checkpoint remembers.
    with (first.folder.path / "progress.csv").open("a") as file:
        file.write("4,512\n")
    run(config, first.folder.last, first.folder)
    rows = read_table(first.folder.path / "progress.csv")
    assert [int(row["iteration"]) for row in rows] == [1, 2, 3, 4, 5, 6]
    assert [int(row["env_steps"]) for row in rows] == [128 * i for i in range(1, 7)]
    assert all(row["Loss/drift"] and row["Drift/spread"] for row in rows)
    evaluations = read_table(first.folder.path / "evaluations.csv")
    assert [int(row["iteration"]) for row in evaluations] == [2, 3, 4, 6]


def test_a_run_leaves_its_records(tmp_path: Path) -> None:
    training = run(small_run(tmp_path, logger="tensorboard"))
    folder = training.folder
    assert folder.read_config() == training.config
    (record,) = json.loads((folder.path / "params" / "run.json").read_text())
    assert {"command", "commit", "versions", "machine", "python"} <= record.keys()
    assert list(folder.path.glob("events.out.tfevents.*"))
    best = max(float(row["zero/return_mean"]) for row in read_table(folder.path / "evaluations.csv"))
    assert read_checkpoint(folder.best, "cpu")["training"]["best_return"] == pytest.approx(best)
    assert training.best_return == pytest.approx(best)


def test_evaluating_does_not_change_training(tmp_path: Path) -> None:
    often = run(small_run(tmp_path, eval_interval=1))
    seldom = run(small_run(tmp_path, eval_interval=100))
    weights = [read_checkpoint(t.folder.last, "cpu")["algorithm"]["actor_state_dict"] for t in (often, seldom)]
    assert_equal_state(weights[0], weights[1])


def test_time_limit(tmp_path: Path) -> None:
    training = run(small_run(tmp_path, max_iterations=100_000, max_time=0.5))
    assert 0 < training.iteration < 100_000
    assert read_checkpoint(training.folder.last, "cpu")["training"]["iteration"] == training.iteration


def test_a_full_disk_does_not_end_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small_run(tmp_path, max_iterations=4, checkpoint_interval=1)
    told = io.StringIO()
    training = Training(config, create_run(config), Console(file=told, width=1000))
    save, attempts = training.save, []

    def fail_at_first(path: Path) -> None:
        attempts.append(path)
        if len(attempts) <= 3:
            raise OSError(28, "No space left on device")
        save(path)

    def fail_to_log(row: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(training, "save", fail_at_first)
    monkeypatch.setattr("podpo.training.Metrics.log_iteration", lambda metrics, row: fail_to_log(row))
    training.run()
    assert training.iteration == 4
    assert told.getvalue().count("No space left on device; training goes on") == 1, "once is enough"
    assert read_checkpoint(training.folder.last, "cpu")["training"]["iteration"] == 4


def test_a_table_survives_a_disk_that_was_full_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new column needs a new file, which cannot be written at first."""
    table = CsvTable(tmp_path / "t.csv")
    table.append({"iteration": 1})
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", lambda handle: exec("raise OSError(28, 'No space left on device')"))
        with pytest.raises(OSError, match="No space left"):
            table.append({"iteration": 2, "return": 5.0})
    table.append({"iteration": 3})
    table.append({"iteration": 4, "return": 7.0})
    table.close()
    rows = read_table(tmp_path / "t.csv")
    assert [(row["iteration"], row["return"]) for row in rows] == [("1", ""), ("3", ""), ("4", "7.0")]


def test_the_best_state_is_saved_later_where_the_disk_was_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small_run(tmp_path)
    training = Training(config, create_run(config), Console(quiet=True))

    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as context, pytest.raises(OSError, match="No space left"):
        context.setattr(training, "save", full)
        training._save_best(5.0)
    assert training.best_return == -float("inf")
    training._save_best(5.0)
    assert read_checkpoint(training.folder.best, "cpu")["training"]["best_return"] == 5.0


def test_a_checkpoint_that_finds_the_disk_full_says_so(tmp_path: Path) -> None:
    """Where torch writes by itself, it raises a RuntimeError about its own container."""
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        with pytest.raises(OSError, match="No space left"):
            write_checkpoint(small / "last.pt", {"weights": torch.zeros(100_000)})
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, lambda file: file.write(b"old"))

    def half(file: Any) -> None:
        file.write(b"ne")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, half)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_checkpoint_cannot_run_code(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return (os.system, ("touch " + str(tmp_path / "exploded"),))

    torch.save({"algorithm": Bomb()}, tmp_path / "bomb.pt")
    with pytest.raises(ConfigError, match="no readable checkpoint"):
        read_checkpoint(tmp_path / "bomb.pt", "cpu")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("content", [b"", b"not a checkpoint"])
def test_a_broken_checkpoint_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "broken.pt").write_bytes(content)
    with pytest.raises(ConfigError, match=r"broken\.pt' is no readable checkpoint"):
        read_checkpoint(tmp_path / "broken.pt", "cpu")


def test_find_run(tmp_path: Path) -> None:
    config = small_run(tmp_path, max_iterations=1)
    older, newer = run(config).folder, run(config).folder
    os.utime(older.last, (0, 0))
    assert find_run("latest", config.log_root) == (newer, newer.last)
    assert find_run(str(older.path)) == (older, older.last)
    assert find_run(str(older.best)) == (older, older.best)
    with pytest.raises(ConfigError, match="no run at"):
        find_run(str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match="no run to take as 'latest'"):
        find_run("latest", str(tmp_path / "nowhere"))


def test_columns_may_come_late(tmp_path: Path) -> None:
    """No episode has ended in the first iteration, so its row has no return."""
    table = CsvTable(tmp_path / "t.csv")
    table.append({"iteration": 1})
    table.append({"iteration": 2, "return": 5.0})
    table.append({"iteration": 3})
    table.close()
    rows = read_table(tmp_path / "t.csv")
    assert [(row["iteration"], row["return"]) for row in rows] == [("1", ""), ("2", "5.0"), ("3", "")]


def test_the_training_return_is_recorded_once_episodes_end(tmp_path: Path) -> None:
    training = run(small_run(tmp_path, max_iterations=14))
    recorded = [row["Train/mean_reward"] for row in read_table(training.folder.path / "progress.csv")]
    assert recorded[0] == "", "8 steps into the first episodes of 100"
    assert float(recorded[-1]) > 0


def test_the_end_is_evaluated_once(tmp_path: Path) -> None:
    """The last iteration falls between two evaluations; the checkpoint must know of the one at the end."""
    config = small_run(tmp_path, max_iterations=5, eval_interval=2)
    first = run(config)
    saved = read_checkpoint(first.folder.last, "cpu")["training"]
    assert saved["evaluated_iteration"] == 5
    assert saved["best_return"] == first.best_return
    run(config, first.folder.last, first.folder)
    evaluated = [int(row["iteration"]) for row in read_table(first.folder.path / "evaluations.csv")]
    assert evaluated == [2, 4, 5]


def test_tensorboards_axis_goes_on(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = small_run(tmp_path, max_iterations=6, logger="tensorboard")
    first = run(replace(config, max_iterations=4))
    run(config, first.folder.last, first.folder)
    events = EventAccumulator(str(first.folder.path)).Reload()
    assert [event.step for event in events.Scalars("Loss/drift")] == [1, 2, 3, 4, 5, 6]
    assert [event.value for event in events.Scalars("env_steps")] == [128 * i for i in range(1, 7)]


@pytest.mark.parametrize("algorithm", ["podpo", "ppo"])
def test_a_resumed_run_takes_a_new_step_size(tmp_path: Path, algorithm: Any) -> None:
    config = small_run(tmp_path, algorithm=algorithm)
    if algorithm == "ppo":
        config = replace(config, algorithm=replace(config.algorithm, ppo=PPOConfig(schedule="fixed")))
    first = run(config)
    slower = replace(config, algorithm=replace(config.algorithm, learning_rate=1e-5))
    resumed = Training(slower, first.folder, Console(quiet=True), first.folder.last)
    assert resumed.algorithm.learning_rate == resumed.algorithm.optimizer.param_groups[0]["lr"] == 1e-5


def test_a_run_cannot_change_its_shape(tmp_path: Path) -> None:
    config = small_run(tmp_path)
    check_resumed(config, replace(config, max_iterations=9, eval_interval=3))
    with pytest.raises(ConfigError, match=r"num_envs = 32 cannot work: the run to resume has 16"):
        check_resumed(config, replace(config, num_envs=32))
    wider = replace(config.algorithm, actor=replace(config.algorithm.actor, hidden_dims=(32,)))
    with pytest.raises(ConfigError, match=r"algorithm\.actor"):
        check_resumed(config, replace(config, algorithm=wider))


def test_a_run_needs_the_policy_it_started_from_no_more(tmp_path: Path) -> None:
    start = run(small_run(tmp_path, algorithm="ppo")).folder.last
    config = small_run(tmp_path)
    begun = run(replace(config, algorithm=replace(config.algorithm, init_from=str(start))))
    start.unlink()
    load_policy(begun.config, begun.folder.last, begun.task)
    resumed = run(replace(begun.config, max_iterations=5), begun.folder.last, begun.folder)
    assert resumed.iteration == 5


def test_csv_table_drops_the_lost_future(tmp_path: Path) -> None:
    table = CsvTable(tmp_path / "t.csv")
    for iteration in (1, 2, 3):
        table.append({"iteration": iteration, "a": iteration * 10})
    table.close()
    table = CsvTable(tmp_path / "t.csv", lambda row: int(row["iteration"]) <= 2)
    table.append({"iteration": 3, "a": 33, "unknown": 1})
    table.close()
    assert [row["a"] for row in read_table(tmp_path / "t.csv")] == ["10", "20", "33"]


def test_evaluation_counts_whole_episodes(tmp_path: Path) -> None:
    task = make_task("point-track", 32, 5)
    idle = evaluate(zero_agent(task), task)
    assert idle.length_mean == 100
    assert idle.survival == 1
    # Points at rest near 0 under sin^2, whose mean is 1/2: about exp(-2) a step.
    assert idle.return_mean == pytest.approx(100 * 2.718**-2, rel=0.15)
    wild = evaluate(lambda obs: 20 * torch.ones(len(obs), task.num_actions), task)
    assert wild.survival == 0
    assert wild.length_mean < 10
    assert evaluate(random_agent(task), task).return_mean < 2 * idle.return_mean


def test_an_evaluation_counts_one_episode_of_each_environment() -> None:
    """Environment 0 fails at its first step and 1 at its third, of four that pay 1 each; both then start anew."""

    class Steps(PointTrack):
        max_episode_length = 4

        def _advance(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            age = self.episode_length_buf + 1
            return torch.ones(3), age == torch.tensor([1, 3, 9])

    result = evaluate(lambda obs: torch.zeros(3, 12), Steps(3))
    assert result.return_mean == pytest.approx((1 + 3 + 4) / 3)
    assert result.length_mean == pytest.approx((1 + 3 + 4) / 3)
    assert result.survival == pytest.approx(1 / 3)


def test_policies_are_evaluated_side_by_side() -> None:
    """Each in its own environments; measures are means over all steps of all its episodes."""

    class Pays(PointTrack):
        max_episode_length = 3

        def _advance(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return actions.mean(dim=1), (actions.mean(dim=1) > 1) & (torch.arange(4) == 3)

        def step(self, actions: torch.Tensor) -> Any:
            obs, rewards, dones, extras = super().step(actions)
            return obs, rewards, dones, extras | {"measures": {"effort": 10 * actions[:, 0] + torch.arange(4)}}

        def summarize(self, measures: Any) -> dict[str, float]:
            return {"half_effort": measures["effort"] / 2}

    policies = {"one": lambda obs: torch.ones(len(obs), 12), "two": lambda obs: 2 * torch.ones(len(obs), 12)}
    results = evaluate_side_by_side(policies, Pays(4))
    assert [results["one"].return_mean, results["one"].length_mean, results["one"].survival] == [3, 3, 1]
    assert [results["two"].return_mean, results["two"].length_mean, results["two"].survival] == [(6 + 2) / 2, 2, 0.5]
    assert results["one"].measures == {"half_effort": pytest.approx((10 + 11) / 2 / 2)}
    # Environment 2 measures 22 three times, environment 3 fails after having measured 23 once.
    assert results["two"].as_dict()["half_effort"] == pytest.approx((3 * 22 + 23) / 4 / 2)


def test_a_training_may_start_in_the_middle_of_episodes(tmp_path: Path) -> None:
    config = small_run(tmp_path, desynchronize_episodes=True)
    ages = Training(config, create_run(config), Console(quiet=True)).task.episode_length_buf
    assert len(ages.unique()) > 8
    together = replace(config, desynchronize_episodes=False)
    assert Training(together, create_run(together), Console(quiet=True)).task.episode_length_buf.max() == 0


def test_a_training_in_the_simulator_of_another_is_as_one_of_its_own(tmp_path: Path) -> None:
    first = run(small_run(tmp_path))
    config = small_run(tmp_path, seed=2)
    own = Training(config, create_run(config), Console(quiet=True))
    expected = own.run()
    borrowed = Training(config, create_run(config), Console(quiet=True), reuse=first)
    assert borrowed.task is first.task
    assert own.task is not first.task
    assert borrowed.run() == expected
    wider = small_run(tmp_path, num_envs=32)
    assert Training(wider, create_run(wider), Console(quiet=True), reuse=first).task.num_envs == 32


def test_a_task_that_ends_for_good_has_no_failures() -> None:
    assert evaluate(lambda obs: torch.zeros(8, 2), make_task("bandit", 8, 0)).survival == 1


def test_evaluation_reports_coverage() -> None:
    task = make_task("multi-goal", 8, 0)
    corners = task.goals.repeat(2, 1)  # pyright: ignore[reportAttributeAccessIssue]
    everywhere = evaluate(lambda obs: 5 * (corners - obs["policy"][:, :2]), task)
    assert everywhere.success == 1
    assert everywhere.coverage == pytest.approx(1)
    one = evaluate(lambda obs: 5 * (corners[:1] - obs["policy"][:, :2]), task)
    assert one.coverage == pytest.approx(0.25)


@pytest.mark.parametrize("algorithm", ["podpo", "ppo"])
def test_a_loaded_policy_acts_like_the_trained_one(tmp_path: Path, algorithm: str) -> None:
    training = run(small_run(tmp_path, algorithm=algorithm))
    task = make_task(training.config.task, 8, 3)
    model = load_policy(training.config, training.folder.last, task)
    obs = task.get_observations()
    trained = training.algorithm.get_policy().eval()
    assert torch.equal(deployed(model, "zero")(obs), deployed(trained, "zero")(obs))


LOOP = "import sys; from podpo.cli import main; sys.exit(main(sys.argv[1:]))"


def start_training(tmp_path: Path, *flags: str) -> tuple[subprocess.Popen[str], Path]:
    """A training in another process that has written its first checkpoint."""
    command = [sys.executable, "-c", LOOP, "train", "point-track", "--num-envs", "16", "--log-root", "logs"]
    command += ["--checkpoint-interval", "1", "--eval-episodes", "4", "--logger", "none"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [*command, *flags], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        found = list(tmp_path.glob("logs/*/*/checkpoints/last.pt"))
        if found:
            return process, found[0].parent.parent
        time.sleep(0.05)
    process.kill()
    raise AssertionError(process.communicate()[0])


@pytest.mark.slow
def test_ctrl_c_saves_and_exits_cleanly(tmp_path: Path) -> None:
    process, folder = start_training(tmp_path, "--max-iterations", "100000")
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert f"podpo train --resume logs/point-track/{folder.name}" in output
    saved = read_checkpoint(folder / "checkpoints" / "last.pt", "cpu")["training"]["iteration"]
    assert saved == int(read_table(folder / "progress.csv")[-1]["iteration"])
    assert re.search(re.escape(folder.name), output), "the run folder is the last thing said"


@pytest.mark.slow
def test_a_training_outlives_its_reader(tmp_path: Path) -> None:
    """`podpo train | head -1`."""
    process, folder = start_training(tmp_path, "--max-iterations", "40", "--eval-interval", "1")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=120) == 0
    assert read_checkpoint(folder / "checkpoints" / "last.pt", "cpu")["training"]["iteration"] == 40


@pytest.mark.slow
def test_kill_9_loses_nothing_but_the_iteration(tmp_path: Path) -> None:
    process, folder = start_training(tmp_path, "--max-iterations", "30")
    time.sleep(0.5)
    process.kill()
    process.communicate()
    resumed = read_checkpoint(folder / "checkpoints" / "last.pt", "cpu")["training"]["iteration"]
    assert 0 < resumed < 30, "killed too late to show anything"
    done = subprocess.run(
        [sys.executable, "-c", LOOP, "train", "--resume", str(folder)],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"going on from iteration {resumed} of 30" in done.stdout

    reference = replace(RunFolder(folder).read_config(), log_root=str(tmp_path / "unbroken"))
    torch.set_num_threads(1)
    whole = run(reference)
    assert_equal_state(
        read_checkpoint(whole.folder.last, "cpu"), read_checkpoint(folder / "checkpoints" / "last.pt", "cpu")
    )
