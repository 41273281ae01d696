from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from podpo.config import ActorConfig, AlgorithmConfig, NetworkConfig, PPOConfig, RunConfig
from podpo.tasks import make_task

torch.set_num_threads(1)  # the networks of the tests are too small to gain from more

PPO_FILE: dict[str, Any] = {
    "num_steps_per_env": 8,
    "save_interval": 1,
    "check_for_nan": True,
    "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
    "algorithm": {
        "class_name": "PPO",
        "num_learning_epochs": 2,
        "num_mini_batches": 2,
        "clip_param": 0.2,
        "gamma": 0.99,
        "lam": 0.95,
        "value_loss_coef": 1.0,
        "entropy_coef": 0.01,
        "learning_rate": 1e-3,
        "max_grad_norm": 1.0,
        "use_clipped_value_loss": True,
        "schedule": "adaptive",
        "desired_kl": 0.01,
    },
    "actor": {
        "class_name": "MLPModel",
        "hidden_dims": [32, 16],
        "activation": "elu",
        "obs_normalization": True,
        "distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 0.7},
    },
    "critic": {
        "class_name": "MLPModel",
        "hidden_dims": [32, 16],
        "activation": "elu",
        "obs_normalization": True,
    },
}
"""A PPO configuration as legged-robot repositories write it."""


@pytest.fixture
def ppo_file() -> dict[str, Any]:
    return copy.deepcopy(PPO_FILE)


@pytest.fixture
def podpo_file(ppo_file: dict[str, Any]) -> dict[str, Any]:
    """The same file after the one change that a user makes."""
    ppo_file["algorithm"]["class_name"] = "podpo:PODPO"
    return ppo_file


@pytest.fixture
def make_podpo(podpo_file: dict[str, Any]) -> Callable[..., Any]:
    """Builds PODPO on a small point-track task; keywords go to the algorithm section, `actor` to the actor's."""
    from podpo.algorithm import PODPO

    def make(num_envs: int = 8, seed: int = 0, actor: dict[str, Any] | None = None, **algorithm: Any) -> Any:
        torch.manual_seed(seed)
        cfg = copy.deepcopy(podpo_file)
        for key in ("entropy_coef", "schedule", "desired_kl"):
            del cfg["algorithm"][key]
        cfg["algorithm"] |= algorithm
        if actor is not None:
            cfg["actor"] = {"class_name": "podpo:OneStepActor", "hidden_dims": [32, 16], **actor}
        env = make_task("point-track", num_envs, seed)
        built = PODPO.construct_algorithm(env.get_observations(), env, cfg, "cpu")
        built.train_mode()
        return built, env

    return make


def roll_out(algorithm: Any, env: Any, num_steps: int = 8) -> None:
    """One rollout, as the runner does it."""
    with torch.inference_mode():
        obs = env.get_observations()
        for _ in range(num_steps):
            obs, rewards, dones, extras = env.step(algorithm.act(obs))
            algorithm.process_env_step(obs, rewards, dones, extras)
        algorithm.compute_returns(obs)


def small_run(tmp_path: Any, task: str = "point-track", algorithm: Any = "podpo", **changes: Any) -> RunConfig:
    """A run that takes a second."""
    settings: dict[str, Any] = {
        "num_envs": 16,
        "num_steps_per_env": 8,
        "max_iterations": 4,
        "eval_interval": 2,
        "checkpoint_interval": 2,
        "eval_episodes": 8,
        "logger": "none",
        "log_root": str(tmp_path / "logs"),
    }
    return RunConfig(
        task=task,
        algorithm=AlgorithmConfig(
            name=algorithm,
            actor=ActorConfig(hidden_dims=(16,), obs_normalization=True),
            critic=NetworkConfig(hidden_dims=(16,), obs_normalization=True),
            num_learning_epochs=2,
            num_mini_batches=2,
            ppo=PPOConfig(),
        ),
        **(settings | changes),
    )
