"""A task over several processes is the same task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import small_run
from rich.console import Console
from test_tasks import random_actions

from podpo.run_folder import create_run
from podpo.tasks import make_task
from podpo.tasks.sharded import SEED_STRIDE, Crew
from podpo.training import Training
from podpo.validation import ConfigError, ProcessDiedError

pytestmark = pytest.mark.slow


def test_shares_are_tasks_of_their_own_seed() -> None:
    whole = make_task("point-track", 5, 3, num_processes=2)
    parts = [make_task("point-track", 2, 3), make_task("point-track", 3, 3 + SEED_STRIDE)]
    for step in range(130):  # over the end of the episodes
        actions = random_actions(whole, step)
        obs, rewards, dones, extras = whole.step(actions)
        own = [task.step(share) for task, share in zip(parts, (actions[:2], actions[2:]), strict=True)]
        assert torch.equal(obs["policy"], torch.cat([x[0]["policy"] for x in own]))
        assert torch.equal(rewards, torch.cat([x[1] for x in own]))
        assert torch.equal(dones, torch.cat([x[2] for x in own]))
        assert torch.equal(extras["time_outs"], torch.cat([x[3]["time_outs"] for x in own]))
        assert torch.equal(extras["final_obs"]["policy"], torch.cat([x[3]["final_obs"]["policy"] for x in own]))
        assert torch.equal(whole.episode_length_buf, torch.cat([task.episode_length_buf for task in parts]))


def test_it_goes_on_exactly_and_starts_anew() -> None:
    task, other = (make_task("point-track", 4, seed, num_processes=2) for seed in (1, 2))
    first = [task.step(random_actions(task, s))[0]["policy"] for s in range(5)]
    other.load_state_dict(task.state_dict())
    for step in range(5):
        actions = random_actions(task, step)
        assert torch.equal(task.step(actions)[0]["policy"], other.step(actions)[0]["policy"])
    task.reset(1)
    assert torch.equal(
        torch.stack(first), torch.stack([task.step(random_actions(task, s))[0]["policy"] for s in range(5)])
    )
    task.desynchronize()
    assert len(task.episode_length_buf.unique()) > 1


@pytest.mark.parametrize("algorithm", ["podpo", "ppo"])
def test_a_training_resumes_with_the_same_bits(tmp_path: Path, algorithm: Any) -> None:
    def run(max_iterations: int, **where: Any) -> Training:
        config = small_run(tmp_path, algorithm=algorithm, num_processes=2, max_iterations=max_iterations)
        folder = where.pop("folder", None) or create_run(config)
        training = Training(config, folder, Console(quiet=True), **where)
        training.run()
        return training

    whole = run(4)
    begun = run(2)
    resumed = run(4, folder=begun.folder, checkpoint=begun.folder.last)
    for a, b in zip(
        whole.algorithm.get_policy().parameters(), resumed.algorithm.get_policy().parameters(), strict=True
    ):
        assert torch.equal(a, b)


def test_errors_come_through_and_a_dead_process_is_named() -> None:
    task: Any = make_task("point-track", 4, 1, num_processes=2)
    with pytest.raises(RuntimeError, match="size"):
        task.crew.ask(("load_state_dict", task.id, ({"generator": torch.zeros(3, dtype=torch.uint8)},)))
    with pytest.raises(ConfigError, match="no task"):
        make_task("point-trak", 4, 1, num_processes=2)
    task.crew.ask(("reset", task.id, (1,)))
    Crew.by_size.clear()
    other: Any = make_task("point-track", 4, 1, num_processes=2)
    other.crew.processes[1].kill()
    with pytest.raises(ProcessDiedError, match="has died"):
        other.step(torch.zeros(4, 12))
