from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from podpo import tasks
from podpo.tasks import TASKS, make_task
from podpo.tasks.toy import Bandit, MultiGoal, PointTrack, ToyTask, mode_coverage
from podpo.validation import ConfigError

every_task = pytest.mark.parametrize("name", TASKS)


def random_actions(task: ToyTask, seed: int = 0) -> torch.Tensor:
    return torch.randn(task.num_envs, task.num_actions, generator=torch.Generator().manual_seed(seed))


@every_task
def test_conformance(name: str) -> None:
    task = make_task(name, 6, 1)
    obs = task.get_observations()
    assert obs["policy"].shape == (6, task.num_obs)
    for step in range(2 * task.max_episode_length + 3):
        obs, rewards, dones, extras = task.step(random_actions(task, step))
        assert obs["policy"].shape == (6, task.num_obs)
        assert rewards.shape == dones.shape == extras["time_outs"].shape == (6,)
        assert torch.isfinite(obs["policy"]).all()
        assert torch.isfinite(rewards).all()
        assert not (extras["time_outs"] & ~dones).any(), "a time-out is an end"
        assert (task.episode_length_buf[dones] == 0).all()
        assert (task.episode_length_buf < task.max_episode_length).all()
        if task.num_modes:
            assert (extras["mode"][~dones] == -1).all()
            assert extras["mode"].max() < task.num_modes
            assert 0 <= extras["context"].min() <= extras["context"].max() < task.num_contexts


@every_task
def test_same_seed_same_rollout(name: str) -> None:
    def rollout(seed: int) -> torch.Tensor:
        task = make_task(name, 4, seed)
        return torch.stack([task.step(random_actions(task, s))[0]["policy"] for s in range(30)])

    assert torch.equal(rollout(3), rollout(3))
    assert not torch.equal(rollout(3), rollout(4))


@every_task
def test_state_dict_continues_exactly(name: str) -> None:
    task, other = make_task(name, 4, 1), make_task(name, 4, 2)
    for step in range(7):
        task.step(random_actions(task, step))
    other.load_state_dict(task.state_dict())
    for step in range(2 * task.max_episode_length):
        actions = random_actions(task, step)
        ours, theirs = task.step(actions), other.step(actions)
        assert torch.equal(ours[0]["policy"], theirs[0]["policy"])
        assert torch.equal(ours[1], theirs[1])
        assert torch.equal(ours[2], theirs[2])


@pytest.mark.parametrize("name", ["point-track", "multi-goal"])
def test_a_reset_changes_no_other_environment(name: str) -> None:
    """Environment 0 ends in one copy and not in the other; the rest must not notice."""
    task, other = make_task(name, 5, 1), make_task(name, 5, 1)
    other.episode_length_buf[0] = task.max_episode_length - 1
    actions = random_actions(task)
    obs, _, _, _ = task.step(actions)
    obs_other, _, dones, extras = other.step(actions)
    assert dones.tolist() == [True, False, False, False, False]
    assert extras["time_outs"][0]
    assert torch.equal(obs["policy"][1:], obs_other["policy"][1:])
    assert not torch.equal(obs["policy"][0], obs_other["policy"][0])
    assert torch.equal(extras["final_obs"]["policy"], obs["policy"]), "the last observation is that before the reset"


@every_task
def test_returned_tensors_are_the_callers_own(name: str) -> None:
    task = make_task(name, 3, 1)
    obs, rewards, _, _ = task.step(random_actions(task))
    kept_obs, kept_rewards = obs["policy"].clone(), rewards.clone()
    task.step(random_actions(task, 1))
    assert torch.equal(obs["policy"], kept_obs)
    assert torch.equal(rewards, kept_rewards)


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
    task.state["position"][1] = 4.0
    _, _, dones, extras = task.step(torch.zeros(2, 12))
    assert dones.tolist() == [False, True]
    assert not extras["time_outs"].any(), "a failure is no time-out"


def test_phase_rates_cover_their_range() -> None:
    rates = make_task("point-track", 500, 0).state["phase_rate"]
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


def test_an_unknown_task_is_named_with_its_neighbours() -> None:
    with pytest.raises(ConfigError, match=r"no task 'point-trak'.*did you mean 'point-track'.*multi-goal"):
        make_task("point-trak", 1, 0)


def test_a_task_that_cannot_be_loaded_names_the_line_that_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_task.py").write_text("raise ImportError('libGL.so.1: cannot open shared object file')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(TASKS, "broken", "broken_task:Task")
    monkeypatch.setattr(tasks, "missing_libraries", lambda: ["libGL.so.1"])
    with pytest.raises(ConfigError, match=r"'broken' cannot be loaded \(libGL.*apt-get install -y libgl1"):
        make_task("broken", 1, 0)
    monkeypatch.setattr(tasks, "missing_libraries", list)
    with pytest.raises(ConfigError, match="podpo doctor"):
        make_task("broken", 1, 0)


@every_task
def test_every_task_has_a_picture(name: str) -> None:
    task = make_task(name, 4, 0)
    blank = task.render_frame()
    for step in range(3):
        task.step(random_actions(task, step))
    frame = task.render_frame()
    assert frame.ndim == 3
    assert frame.shape[2] == 3
    assert frame.std() > 5
    assert (frame != blank).any()
