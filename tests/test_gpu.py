"""What only a GPU can show: how often an iteration waits for it, and that rounding stays out of the field."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import PPO_FILE, roll_out, small_run
from rich.console import Console

from podpo.algorithm import PODPO
from podpo.drift import compute_V
from podpo.run_folder import create_run
from podpo.tasks import make_task
from podpo.training import Training

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


def waits(work: Any) -> int:
    """How often something waits for the GPU."""
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            work()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return len([w for w in record if "called a synchronizing" in str(w.message)])


def build() -> tuple[PODPO, Any]:
    torch.manual_seed(0)
    env = make_task("point-track", 64, 0, "cuda")
    cfg = PPO_FILE | {"algorithm": {"class_name": "podpo:PODPO", "num_mini_batches": 2, "num_learning_epochs": 2}}
    for model in ("actor", "critic"):
        cfg[model] = PPO_FILE[model] | {"obs_normalization": False}  # rsl_rl's normaliser waits by itself
    algorithm = PODPO.construct_algorithm(env.get_observations(), env, cfg, "cuda")
    algorithm.train_mode()
    return algorithm, env


def test_an_update_waits_twice_and_a_step_never() -> None:
    """Once for the number of positive samples, once for all metrics in one piece."""
    algorithm, env = build()
    for _ in range(2):
        roll_out(algorithm, env)
        algorithm.update()
    obs = env.get_observations()
    zeros = torch.zeros(64, device="cuda")
    extras = {"time_outs": zeros, "final_obs": obs}

    def collect() -> None:
        with torch.inference_mode():
            for _ in range(8):
                algorithm.act(obs)
                algorithm.process_env_step(obs, zeros, zeros, dict(extras))
            algorithm.compute_returns(obs)

    assert waits(lambda: zeros.sum().item()) == 1, "the counter counts"
    assert waits(collect) == 0
    assert waits(algorithm.update) == 2


@pytest.mark.parametrize("tf32", [False, True])
def test_the_field_is_that_of_the_cpu(tf32: bool) -> None:
    """TF32 keeps 10 bits of a product; at tau = 0.02 that would move V by a tenth."""
    rng = torch.Generator().manual_seed(0)
    x, y_pos = torch.randn(64, 8, 12, generator=rng), torch.randn(64, 1, 12, generator=rng)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        V = compute_V(x.cuda(), y_pos.cuda(), x.cuda()).cpu()
    finally:
        torch.set_float32_matmul_precision(before)
    expected = compute_V(x, y_pos, x)
    assert (V - expected).abs().max() < 1e-4 * expected.abs().max()


@pytest.mark.parametrize("algorithm", ["podpo", "ppo"])
def test_a_run_trains_and_goes_on(tmp_path: Path, algorithm: str) -> None:
    config = small_run(tmp_path, algorithm=algorithm, device="cuda", max_iterations=2)
    first = Training(config, create_run(config), Console(quiet=True))
    first.run()
    resumed = Training(replace(config, max_iterations=4), first.folder, Console(quiet=True), first.folder.last)
    assert all(
        torch.equal(a, b)
        for a, b in zip(first.algorithm.actor.parameters(), resumed.algorithm.actor.parameters(), strict=True)
    )
    assert next(resumed.algorithm.actor.parameters()).is_cuda
    assert all(0 <= result.return_mean <= 100 for result in resumed.run().values())
    assert resumed.iteration == 4


@pytest.mark.slow
def test_a_step_of_a_robot_never_waits_and_its_graph_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same task with and without the CUDA graph; where robots fall, rounding grows, so only for a few steps."""

    def rollout() -> tuple[Any, list[torch.Tensor]]:
        task = make_task("go2-walk", 64, 1, "cuda")
        task.desynchronize()
        dice = torch.Generator("cuda").manual_seed(0)
        steps = []
        for _ in range(10):
            obs, rewards, dones, extras = task.step(0.5 * torch.randn(64, 12, device="cuda", generator=dice))
            final = extras["final_obs"]["policy"]
            steps.append(torch.cat([obs["policy"], final, rewards[:, None], dones[:, None].float()], dim=1))
        return task, steps

    task, recorded = rollout()
    actions = torch.zeros(64, 12, device="cuda")
    assert waits(lambda: task.step(actions)) <= 1, "Genesis itself looks for errors, every fifth step"
    from podpo.tasks import robot_task  # imports the simulator

    monkeypatch.setattr(robot_task, "as_one_launch", lambda function, device: function)
    _, plain = rollout()
    for ours, theirs in zip(recorded, plain, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-3)
