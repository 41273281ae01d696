"""The contract with rsl_rl: its own runner trains, saves, loads and exports PODPO, on every version we support."""

from __future__ import annotations

import contextlib
import copy
import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rsl_rl.runners import OnPolicyRunner

from podpo.actor import OneStepActor
from podpo.tasks import make_task


def make_runner(cfg: dict[str, Any], log_dir: Path | None, seed: int = 0, task: str = "point-track") -> OnPolicyRunner:
    torch.manual_seed(seed)
    return OnPolicyRunner(make_task(task, 8, seed), cfg, str(log_dir) if log_dir else None, "cpu")


def learn(runner: OnPolicyRunner, iterations: int) -> str:
    """Train and return what the runner printed."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        runner.learn(iterations, init_at_random_ep_len=True)
    return output.getvalue()


@pytest.mark.parametrize("task", ["point-track", "bandit"])
def test_only_the_class_name_changes(podpo_file: dict[str, Any], tmp_path: Path, task: str) -> None:
    runner = make_runner(podpo_file, tmp_path, task=task)
    assert isinstance(runner.alg.get_policy(), OneStepActor)
    before = copy.deepcopy(runner.alg.get_policy().state_dict())
    printed = learn(runner, 2)
    after = runner.alg.get_policy().state_dict()
    assert not torch.equal(before["mlp.0.weight"], after["mlp.0.weight"])
    assert after["obs_normalizer.count"] == 2 * 8 * 8
    assert "Mean drift loss" in printed
    assert "Mean value loss" in printed
    assert "Drift/spread" in printed
    assert (tmp_path / "model_1.pt").is_file()


def test_same_interface_with_ppo(ppo_file: dict[str, Any], tmp_path: Path) -> None:
    """The file that PODPO reads is one that PPO runs on."""
    ppo_file["algorithm"]["rnd_cfg"] = None
    assert "Mean surrogate loss" in learn(make_runner(ppo_file, tmp_path), 1)


def test_checkpoint_round_trip(podpo_file: dict[str, Any], tmp_path: Path) -> None:
    runner = make_runner(copy.deepcopy(podpo_file), tmp_path)
    learn(runner, 2)
    other = make_runner(copy.deepcopy(podpo_file), None, seed=5)
    other.load(str(tmp_path / "model_1.pt"))
    assert other.current_learning_iteration == 1
    obs = runner.env.get_observations()
    assert torch.equal(other.get_inference_policy()(obs), runner.get_inference_policy()(obs))
    moments, restored = (r.alg.optimizer.state_dict()["state"] for r in (runner, other))
    assert moments.keys() == restored.keys()
    assert all(torch.equal(moments[i]["exp_avg_sq"], restored[i]["exp_avg_sq"]) for i in moments)


def test_runner_exports(podpo_file: dict[str, Any], tmp_path: Path) -> None:
    import onnxruntime

    runner = make_runner(podpo_file, None)
    learn(runner, 1)
    obs = runner.env.get_observations()[:1]
    expected = runner.get_inference_policy("cpu")(obs).detach()
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runner.export_policy_to_jit(str(tmp_path))
        runner.export_policy_to_onnx(str(tmp_path))
    scripted = torch.jit.load(str(tmp_path / "policy.pt"))
    assert torch.allclose(scripted(obs["policy"]), expected, atol=1e-6)
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx", providers=["CPUExecutionProvider"])
    (actions,) = session.run(["actions"], {"obs": obs["policy"].numpy()})
    assert np.allclose(np.asarray(actions), expected.numpy(), atol=1e-5)
    scripted.reset()


def test_options_reach_the_algorithm_through_the_runner(podpo_file: dict[str, Any]) -> None:
    podpo_file["algorithm"] |= {"num_candidates": 4, "ema_decay": 0.9, "step_size": "linear"}
    podpo_file["max_iterations"] = 4
    runner = make_runner(podpo_file, None)
    learn(runner, 2)
    assert runner.alg.learning_rate == pytest.approx(0.5e-3)
    assert runner.alg.get_policy() is not runner.alg.actor
