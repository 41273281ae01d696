from __future__ import annotations

import math

import pytest
import torch

from podpo.tasks import make_task
from podpo.tasks.modes import mode_coverage
from podpo.tasks.toy import Bandit, MultiGoal, PointTrack


def test_point_track_moves_and_pays_as_described() -> None:
    task = make_task("point-track", 1, 0)
    assert isinstance(task, PointTrack)
    d = task.num_dims
    task.state = {
        "position": torch.full((1, d), 0.5),
        "velocity": torch.full((1, d), 1.0),
        "phase": torch.zeros(1, d),
        "phase_rate": torch.full((1, d), 0.1),
    }
    _, reward, done, _ = task.step(torch.full((1, d), 2.0))
    # v = 0.7*1 + 0.6*2 = 1.9; p = 0.5 + 0.1*1.9 = 0.69; target = sin(0.1)
    assert torch.allclose(task.state["velocity"], torch.tensor(1.9))
    assert torch.allclose(task.state["position"], torch.tensor(0.69))
    error = (0.69 - math.sin(0.1)) ** 2
    assert reward.item() == pytest.approx(math.exp(-4 * error) - 0.001 * 4, rel=1e-5)
    assert not done.item()


def test_point_track_ends_where_the_points_stray() -> None:
    task = make_task("point-track", 2, 0)
    assert isinstance(task, PointTrack)
    task.state["position"][1] = 4.0
    _, _, dones, extras = task.step(torch.zeros(2, 12))
    assert dones.tolist() == [False, True]
    assert not extras["time_outs"].any(), "a failure is no time-out"


def test_phase_rates_cover_their_range() -> None:
    task = make_task("point-track", 500, 0)
    assert isinstance(task, PointTrack)
    rates = task.state["phase_rate"]
    assert rates.min() >= 0.05
    assert rates.max() <= 0.35
    assert rates.max() - rates.min() > 0.29


def test_multi_goal_rewards_each_goal_alike_and_names_it() -> None:
    task = make_task("multi-goal", 4, 0)
    assert isinstance(task, MultiGoal)
    task.state = {"position": task.goals.clone(), "velocity": torch.zeros(4, 2)}
    task.episode_length_buf[:] = task.max_episode_length - 1
    _, rewards, dones, extras = task.step(torch.zeros(4, 2))
    assert torch.allclose(rewards, torch.ones(4))
    assert dones.all()
    assert extras["time_outs"].all()
    assert extras["mode"].tolist() == [0, 1, 2, 3]


def test_bandit_has_two_opposite_modes_in_each_context() -> None:
    task = make_task("bandit", 3, 0)
    assert isinstance(task, Bandit)
    direction = task.direction
    actions = torch.stack([direction[0], -direction[1], 0.0 * direction[2]])
    _, rewards, dones, extras = task.step(actions)
    # The middle is one width-scaled distance of 1 / 0.3 from both modes.
    assert rewards.tolist() == pytest.approx([1.0, 1.0, math.exp(-1 / (2 * 0.3**2))], rel=1e-4)
    assert dones.all()
    assert not extras["time_outs"].any(), "nothing follows the only step"
    assert extras["mode"].tolist() == [0, 1, -1]


def test_mode_coverage_by_hand() -> None:
    def coverage(modes: list[int], num_modes: int, contexts: list[int] | None = None) -> float:
        context = torch.tensor(contexts or [0] * len(modes))
        return mode_coverage(torch.tensor(modes), context, num_modes, int(context.max()) + 1)

    assert coverage([0, 1, 2, 3], 4) == pytest.approx(1.0)
    assert coverage([2, 2, 2], 4) == pytest.approx(0.25)
    assert coverage([0, 0, 3, 3, -1], 4) == pytest.approx(0.5)
    # Each context has collapsed, although both modes occur in the whole.
    assert coverage([0, 0, 1, 1], 2, [0, 0, 1, 1]) == pytest.approx(0.5)
    assert math.isnan(coverage([-1, -1], 2))
