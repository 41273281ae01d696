"""What every task must do; the simulated ones take minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from podpo import tasks
from podpo.tasks import MAX_RETURNS, TASKS, is_simulated, make_filmed_task, make_task
from podpo.tasks.task import Task
from podpo.validation import ConfigError


def each(names: Any) -> Any:
    return pytest.mark.parametrize(
        "name", [pytest.param(name, marks=pytest.mark.slow) if is_simulated(name) else name for name in names]
    )


every_task = each(TASKS)
every_task_with_dice = each([name for name in TASKS if name != "go2-walk-fixed"])
every_task_with_time_outs = each([name for name in TASKS if name != "bandit"])


def random_actions(task: Task, seed: int = 0) -> torch.Tensor:
    return torch.randn(task.num_envs, task.num_actions, generator=torch.Generator().manual_seed(seed))


@every_task
def test_conformance(name: str) -> None:
    task = make_task(name, 6, 1)
    obs = task.get_observations()
    assert obs["policy"].shape == (6, task.num_obs)
    most = torch.zeros(6)
    for step in range(2 * int(task.max_episode_length) + 3):
        obs, rewards, dones, extras = task.step(0.3 * random_actions(task, step))
        assert obs["policy"].shape == extras["final_obs"]["policy"].shape == (6, task.num_obs)
        assert rewards.shape == dones.shape == extras["time_outs"].shape == (6,)
        assert torch.isfinite(obs["policy"]).all()
        assert torch.isfinite(rewards).all()
        assert not (extras["time_outs"] & ~dones).any(), "a time-out is an end"
        assert (task.episode_length_buf[dones] == 0).all()
        assert (task.episode_length_buf < task.max_episode_length).all()
        assert all(value.shape == () and torch.isfinite(value) for value in extras.get("log", {}).values())
        assert all(value.shape == (6,) for value in extras.get("measures", {}).values())
        same = (obs["policy"] == extras["final_obs"]["policy"]).all(dim=1)
        assert same[~dones].all(), "where nothing ended, the final observation is the observation"
        if task.num_modes:
            assert (extras["mode"][~dones] == -1).all()
            assert extras["mode"].max() < task.num_modes
            assert 0 <= extras["context"].min() <= extras["context"].max() < task.num_contexts
        most += rewards
    assert (most <= 3 * MAX_RETURNS.get(name, 1e9)).all()


@every_task_with_dice
def test_same_seed_same_rollout(name: str) -> None:
    def rollout(task: Task) -> torch.Tensor:
        return torch.stack([task.step(random_actions(task, s))[0]["policy"] for s in range(30)])

    task = make_task(name, 4, 3)
    first = rollout(task)
    assert torch.equal(first, rollout(make_task(name, 4, 3)))
    assert not torch.equal(first, rollout(make_task(name, 4, 4)))
    task.reset(3)
    assert torch.equal(first, rollout(task)), "a task that is reset with a seed is as a new one"


@every_task
def test_state_dict_continues_exactly(name: str, tmp_path: Path) -> None:
    task, other = make_task(name, 4, 1), make_task(name, 4, 2)
    for step in range(7):
        task.step(random_actions(task, step))
    torch.save(task.state_dict(), tmp_path / "state.pt")
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for step in range(2 * min(int(task.max_episode_length), 100)):
        actions = random_actions(task, step)
        ours, theirs = task.step(actions), other.step(actions)
        assert torch.equal(ours[0]["policy"], theirs[0]["policy"])
        assert torch.equal(ours[1], theirs[1])
        assert torch.equal(ours[2], theirs[2])


@every_task_with_time_outs
def test_a_reset_changes_no_other_environment(name: str) -> None:
    """Environment 0 ends in one copy and not in the other; the rest must not notice, then or later."""
    task, other = make_task(name, 5, 1), make_task(name, 5, 1)
    lengths = other.episode_length_buf.clone()
    lengths[0] = int(task.max_episode_length) - 1
    other.episode_length_buf = lengths
    lengths = lengths.clone()
    lengths[0] = getattr(task, "steps_per_command", 1) - 1  # so that, where commands change, they do in both
    task.episode_length_buf = lengths
    actions = 0.3 * random_actions(task)
    obs, _, _, _ = task.step(actions)
    obs_other, _, dones, extras = other.step(actions)
    assert dones.tolist() == [True, False, False, False, False]
    assert extras["time_outs"][0]
    assert torch.equal(obs["policy"][1:], obs_other["policy"][1:])
    assert not torch.equal(obs["policy"][0], obs_other["policy"][0])
    assert torch.equal(extras["final_obs"]["policy"], obs["policy"]), "the last observation is that before the reset"
    for step in range(5):
        actions = 0.3 * random_actions(task, step)
        obs, obs_other = task.step(actions)[0], other.step(actions)[0]
        assert torch.equal(obs["policy"][1:], obs_other["policy"][1:])


@every_task
def test_returned_tensors_are_the_callers_own(name: str) -> None:
    task = make_task(name, 3, 1)
    obs, rewards, dones, extras = task.step(random_actions(task))
    returned = {"obs": obs["policy"], "rewards": rewards, "dones": dones, "final": extras["final_obs"]["policy"]}
    returned |= extras.get("measures", {}) | {"time_outs": extras["time_outs"]} | extras.get("log", {})
    kept = {key: value.clone() for key, value in returned.items()}
    task.step(random_actions(task, 1))
    assert all(torch.equal(value, kept[key]) for key, value in returned.items())


@each([name for name in TASKS if name not in ("bandit", "multi-goal")])
def test_episodes_can_be_desynchronized(name: str) -> None:
    task = make_task(name, 64, 1)
    task.desynchronize()
    lengths = task.episode_length_buf
    assert len(lengths.unique()) > 20
    assert 0 <= lengths.min() <= lengths.max() < task.max_episode_length


@every_task
def test_every_task_has_a_picture(name: str) -> None:
    task = make_filmed_task(name, 0)
    blank = task.render_frame()
    for step in range(3):
        task.step(random_actions(task, step))
    frame = task.render_frame()
    assert frame.ndim == 3
    assert frame.shape[2] == 3
    assert frame.std() > 5
    assert (frame != blank).any()


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
    monkeypatch.setattr(tasks, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"--extra genesis|podpo\[genesis\]"):
        make_task("broken", 1, 0)
