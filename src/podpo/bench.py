"""Speed, as ratios measured in one run: a task against its bare simulator, trainings against both."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from podpo.config import AlgorithmName
from podpo.construction import resolve_device
from podpo.installation import uses_gpu
from podpo.metrics import CsvTable
from podpo.presets import preset
from podpo.run_folder import create_run, describe_run
from podpo.tasks import is_simulated, make_task
from podpo.tasks.robot_task import RobotTask
from podpo.tasks.task import Task
from podpo.training import Training
from podpo.validation import require

ROUNDS = 5
"""What is compared takes turns, so that a slow moment of the machine does not fall on one alone."""
STEPS_PER_ROUND = 100
ITERATIONS_PER_ROUND = 4
ALGORITHMS: tuple[AlgorithmName, ...] = ("ppo", "podpo")

Row = dict[str, Any]


def bench_env(name: str, num_envs: int | None, device: str, console: Console) -> list[Row]:
    """Steps of a task whose robots stand, against steps of the simulator alone."""
    task, device = _simulated(name, num_envs, device)
    actions = torch.zeros(task.num_envs, task.num_actions, device=device)
    contestants = {"bare simulator": task.scene.step, "task": lambda: task.step(actions)}
    times: dict[str, list[float]] = {label: [] for label in contestants}
    for _ in track(range(ROUNDS), "bench env", console=console):
        for label, step in contestants.items():
            task.reset(1)
            times[label].append(seconds_each(step, STEPS_PER_ROUND, device))
    return _rows(times, task.num_envs)


def bench_train(name: str, num_envs: int | None, device: str, console: Console) -> list[Row]:
    """Training iterations of PPO and PODPO, against as many steps of the simulator alone."""
    bare, device = _simulated(name, num_envs, device)
    steps = preset(name, "podpo", uses_gpu(device)).num_steps_per_env
    times: dict[str, list[float]] = {"bare simulator": []}
    with tempfile.TemporaryDirectory() as logs:
        trainings: dict[str, Training] = {}
        for algorithm in ALGORITHMS:
            base = preset(name, algorithm, uses_gpu(device))
            config = replace(base, num_envs=bare.num_envs, device=device, log_root=logs, logger="none")
            trainings[algorithm] = Training(config, create_run(config), Console(quiet=True))
            times |= {algorithm: [], f"{algorithm}, rollout alone": []}
        for _ in track(range(ROUNDS), "bench train", console=console):
            bare.reset(1)
            times["bare simulator"].append(steps * seconds_each(bare.scene.step, STEPS_PER_ROUND, device))
            for algorithm, training in trainings.items():
                training._iterate()  # warms up after the others
                rows = [training._iterate() for _ in range(ITERATIONS_PER_ROUND)]
                rollout = statistics.mean(row["Perf/collection_time"] for row in rows)
                times[f"{algorithm}, rollout alone"].append(rollout)
                times[algorithm].append(rollout + statistics.mean(row["Perf/learning_time"] for row in rows))
    return _rows(times, bare.num_envs * steps)


BENCHES: dict[str, Callable[[str, int | None, str, Console], list[Row]]] = {"env": bench_env, "train": bench_train}


def seconds_each(step: Callable[[], Any], count: int, device: str) -> float:
    """Mean time of a call, with the GPU's work done."""
    for _ in range(5):
        step()
    _wait_for(device)
    start = time.perf_counter()
    for _ in range(count):
        step()
    _wait_for(device)
    return (time.perf_counter() - start) / count


def save_rows(rows: list[Row], path: Path) -> None:
    """Append to a CSV file, with what someone needs to know to repeat it."""
    about = describe_run()
    table = CsvTable(path)
    for row in rows:
        provenance = {key: about[key] for key in ("started", "command", "commit", "machine")}
        table.append(row | provenance | {"torch": torch.__version__})
    table.close()


def show(rows: list[Row], console: Console) -> None:
    table = Table("", "ms", "slowest ms", "env steps/s", "of the bare simulator")
    for row in rows:
        cells = (
            f"{row['ms']:.2f}",
            f"{row['slowest_ms']:.2f}",
            f"{row['env_steps_per_s']:,.0f}",
            f"{row['ratio']:.2f}",
        )
        table.add_row(row["what"], *cells)
    console.print(table)


def _rows(times: dict[str, list[float]], env_steps: int) -> list[Row]:
    """Medians over rounds; the ratio is that of env-steps per second, so 1 is as fast as the simulator alone."""
    medians = {label: statistics.median(seconds) for label, seconds in times.items()}
    return [
        {
            "what": label,
            "env_steps": env_steps,
            "ms": 1e3 * medians[label],
            "slowest_ms": 1e3 * max(seconds),
            "env_steps_per_s": env_steps / medians[label],
            "ratio": medians["bare simulator"] / medians[label],
        }
        for label, seconds in times.items()
    ]


def _simulated(name: str, num_envs: int | None, device: str) -> tuple[RobotTask, str]:
    require(is_simulated(name), "task", name, "only a simulated task has a bare simulator, such as go2-walk")
    num_envs = num_envs or preset(name, "podpo", uses_gpu(device)).num_envs
    device = resolve_device(device, name)
    task: Task = make_task(name, num_envs, 1, device)
    assert isinstance(task, RobotTask)
    return task, device


def _wait_for(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()
