"""The Go2 in its simulator: what it sees and earns, against Genesis' own account of the robot."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from podpo.config import ActorConfig, AlgorithmConfig, NetworkConfig
from podpo.evaluation import evaluate, zero_agent
from podpo.tasks import make_task

pytestmark = pytest.mark.slow


def turned_back(vector: Tensor, quat: Tensor) -> Tensor:
    """A vector of the world's frame in the frame of a body with orientation (w, x, y, z), by rotation matrices."""
    w, x, y, z = quat.unbind(dim=1)
    columns = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    matrix = torch.stack([torch.stack(row, dim=1) for row in columns], dim=1)
    return (matrix.transpose(1, 2) @ vector.unsqueeze(2)).squeeze(2)


def moved(steps: int = 12, scale: float = 0.5, num_envs: int = 16) -> tuple[Any, Any, Tensor, Tensor]:
    """A task after some steps of random actions, none of which ended an episode, and what the last one gave."""
    task: Any = make_task("go2-walk", num_envs, 1)
    dice = torch.Generator().manual_seed(0)
    actions = rewards = torch.zeros(0)
    obs: Any = None
    for _ in range(steps):
        actions = scale * torch.randn(num_envs, 12, generator=dice)
        obs, rewards, _, extras = task.step(actions)
        obs = extras["final_obs"]
    return task, obs["policy"], rewards, actions


def test_observations_are_those_of_the_simulator() -> None:
    task, obs, _, actions = moved(steps=5)
    robot = task.scene.robot
    quat = robot.get_quat()
    down = torch.tensor([0.0, 0.0, -1.0]).expand(16, 3)
    expected = [
        turned_back(robot.get_ang(), quat) * 0.25,
        turned_back(down, quat),
        task.state["command"] * torch.tensor([2.0, 2.0, 0.25]),
        robot.get_dofs_position()[:, 6:] - task.default_pose,
        robot.get_dofs_velocity()[:, 6:] * 0.05,
        actions,
    ]
    assert torch.allclose(obs, torch.cat(expected, dim=1), atol=1e-4)


def test_rewards_are_those_of_the_simulator() -> None:
    task: Any = make_task("go2-walk", 8, 1)
    dice = torch.Generator().manual_seed(0)
    before = torch.zeros(8, 12)
    for _ in range(4):
        actions = 0.5 * torch.randn(8, 12, generator=dice)
        command = task.state["command"].clone()
        _, reward, dones, _ = task.step(actions)
        assert not dones.any()
        robot = task.scene.robot
        velocity = turned_back(robot.get_vel(), robot.get_quat())
        spin = turned_back(robot.get_ang(), robot.get_quat())
        planar = (command[:, :2] - velocity[:, :2]).square().sum(dim=1)
        expected = (
            torch.exp(-planar / 0.25)
            + 0.2 * torch.exp(-(command[:, 2] - spin[:, 2]).square() / 0.25)
            - velocity[:, 2].square()
            - 50 * (robot.get_pos()[:, 2] - 0.3).square()
            - 0.005 * (actions - before).square().sum(dim=1)
            - 0.1 * (robot.get_dofs_position()[:, 6:] - task.default_pose).abs().sum(dim=1)
        )
        assert torch.allclose(reward, 0.02 * expected, atol=1e-5)
        before = actions


def test_an_action_takes_effect_one_step_late() -> None:
    task: Any = make_task("go2-walk", 2, 1)
    still, moved_once = torch.zeros(2, 12), torch.zeros(2, 12)
    moved_once[1] = 1.0
    task.step(moved_once)
    assert torch.equal(task.scene.qpos[0], task.scene.qpos[1])
    task.step(still)
    assert not torch.equal(task.scene.qpos[0], task.scene.qpos[1])


@pytest.mark.parametrize(("axis", "index"), [("roll", 1), ("pitch", 2)])
def test_an_episode_ends_beyond_ten_degrees(axis: str, index: int) -> None:
    task: Any = make_task("go2-walk", 2, 1)
    for row, degrees in enumerate((8.0, 12.0)):
        qpos = task.start_qpos.clone()
        half = math.radians(degrees) / 2
        qpos[3:7] = 0.0
        qpos[3], qpos[3 + index] = math.cos(half), math.sin(half)
        task.scene.place(qpos, torch.arange(2) == row)
    _, _, dones, extras = task.step(torch.zeros(2, 12))
    assert dones.tolist() == [False, True], axis
    assert not extras["time_outs"].any()


def test_commands_change_every_four_seconds_and_lie_in_their_range() -> None:
    task: Any = make_task("go2-walk", 512, 1)
    low, high = (torch.tensor(bound) for bound in task.command_range)
    first = task.state["command"].clone()
    assert (first >= low).all()
    assert (first <= high).all()
    assert torch.allclose(first.mean(dim=0), torch.zeros(3), atol=0.1)
    assert (first.amax(dim=0) > 0.9 * high).all()
    task.episode_length_buf = torch.full((512,), 198)
    task.step(torch.zeros(512, 12))
    assert torch.equal(task.state["command"], first)
    task.step(torch.zeros(512, 12))
    assert (task.state["command"] != first).all(dim=1).all()


def test_the_fixed_task_has_one_command() -> None:
    task: Any = make_task("go2-walk-fixed", 4, 1)
    assert torch.equal(task.state["command"], torch.tensor([0.5, 0.0, 0.0]).expand(4, 3))


def test_a_robot_that_does_nothing_stands() -> None:
    task = make_task("go2-walk", 16, 1)
    result = evaluate(zero_agent(task), task)
    assert result.survival == 1
    assert result.length_mean == 1000
    assert 0.55 < result.measures["velocity_rmse_m_s"] < 0.8, "the speed that was asked for: sqrt(1/3 + 1/12) = 0.65"
    assert 0 < result.return_mean < 8


def test_rsl_rls_own_runner_trains_it() -> None:

    from rsl_rl.runners import OnPolicyRunner

    from podpo.construction import host_config
    from podpo.presets import preset

    config = preset("go2-walk", "podpo")
    small = AlgorithmConfig(actor=ActorConfig(hidden_dims=(32,)), critic=NetworkConfig(hidden_dims=(32,)))
    cfg = host_config(type(config)(task="go2-walk", algorithm=small, num_envs=8, num_steps_per_env=8))
    cfg |= {"save_interval": 100, "check_for_nan": True}
    cfg["algorithm"] |= {"num_learning_epochs": 1}
    task = make_task("go2-walk", 8, 1)
    runner = OnPolicyRunner(task, cfg, log_dir=None, device="cpu")
    before = [p.clone() for p in runner.alg.get_policy().parameters()]
    runner.learn(2, init_at_random_ep_len=True)
    after = list(runner.alg.get_policy().parameters())
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
