"""Task name -> run configuration: the settings that each task trains well with, one function each.

PPO's settings are searched with the same care as ours (docs/results.md tells how); networks are the same for both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from podpo.config import ActorConfig, AlgorithmConfig, AlgorithmName, NetworkConfig, PPOConfig, RunConfig
from podpo.installation import num_cores
from podpo.tasks import check_task

DEFAULT_TASK = "go2-walk"
"""What `podpo train` trains."""

NOISE_FLOOR: dict[str, Any] = {"step_size": "linear", "exploration_std": 0.3, "exploration_schedule": "linear"}
"""Noise on the executed and stored action keeps the spread from shrinking before the policy is good."""


MOST_PROCESSES = 8
"""With more, each would simulate too few robots to be worth its messages."""


def go2_walk(algorithm: AlgorithmName, on_gpu: bool, task: str = "go2-walk") -> RunConfig:
    """On a GPU the batch and the networks that the field is used to; on a CPU what learns most in ten minutes."""
    if on_gpu:
        networks: dict[str, Any] = {"hidden_dims": (512, 256, 128)}
        shared: dict[str, Any] = {}
        ppo = PPOConfig(entropy_coef=0.01, desired_kl=0.02)
        run: dict[str, Any] = {"num_envs": 4096, "max_iterations": 400, "eval_interval": 100, "eval_episodes": 256}
    else:
        networks = {"hidden_dims": (128, 128), "activation": "swish"}  # torch's ELU is slow on a CPU
        shared = {"gamma": 0.97, "num_learning_epochs": 3}
        ppo = PPOConfig(entropy_coef=0.005)
        run = {
            "num_envs": 128,
            "num_processes": min(num_cores(), MOST_PROCESSES),
            "num_steps_per_env": 48,
            "max_iterations": 1300,
            "eval_interval": 250,
            "eval_episodes": 64,
        }
    own: dict[str, Any] = {"exploration_std": 0.2} if algorithm == "podpo" else {"ppo": ppo}
    return RunConfig(
        task=task,
        algorithm=AlgorithmConfig(
            name=algorithm,
            actor=ActorConfig(**networks),
            critic=NetworkConfig(**networks),
            **shared,
            **own,
        ),
        desynchronize_episodes=True,
        checkpoint_interval=50,
        film=True,
        **run,
    )


def go2_walk_fixed(algorithm: AlgorithmName, on_gpu: bool) -> RunConfig:
    return go2_walk(algorithm, on_gpu, "go2-walk-fixed")


def point_track(algorithm: AlgorithmName, on_gpu: bool) -> RunConfig:
    return RunConfig(
        task="point-track",
        algorithm=_toy_algorithm(
            algorithm,
            (128, 128),
            NOISE_FLOOR,
            {"num_learning_epochs": 5, "num_mini_batches": 4},
            gamma=0.95,
            lam=0.9,
        ),
        num_envs=256,
        max_iterations=150,
    )


def multi_goal(algorithm: AlgorithmName, on_gpu: bool) -> RunConfig:
    return RunConfig(
        task="multi-goal",
        algorithm=_toy_algorithm(algorithm, (64, 64), NOISE_FLOOR, {}),
        num_envs=256,
        max_iterations=60,
        eval_interval=5,
    )


def bandit(algorithm: AlgorithmName, on_gpu: bool) -> RunConfig:
    return RunConfig(
        task="bandit",
        algorithm=_toy_algorithm(algorithm, (64, 64), {"step_size": "adaptive", "displacement_target": 0.03}, {}),
        num_envs=256,
        max_iterations=60,
        eval_interval=5,
        eval_episodes=1024,
    )


PRESETS: dict[str, Callable[[AlgorithmName, bool], RunConfig]] = {
    "go2-walk": go2_walk,
    "go2-walk-fixed": go2_walk_fixed,
    "point-track": point_track,
    "multi-goal": multi_goal,
    "bandit": bandit,
}


def preset(task: str, algorithm: AlgorithmName = "podpo", on_gpu: bool = False) -> RunConfig:
    """The configuration that `podpo train TASK` starts from; simulated robots have another on a GPU."""
    return PRESETS[check_task(task)](algorithm, on_gpu)


def _toy_algorithm(
    name: AlgorithmName,
    hidden_dims: tuple[int, ...],
    podpo: Mapping[str, Any],
    ppo: Mapping[str, Any],
    **shared: Any,
) -> AlgorithmConfig:
    """Networks and `shared` settings are for both algorithms; each also gets what suits it best."""
    ours = {"learning_rate": 3e-3, **podpo}
    theirs = {"learning_rate": 1e-3, "ppo": PPOConfig(entropy_coef=0.003, desired_kl=0.1), **ppo}
    settings: dict[str, Any] = {
        # Returns reach far beyond 1 here; a value that may move by 0.2 an iteration would take hundreds.
        "use_clipped_value_loss": False,
        "num_learning_epochs": 3,
        "num_mini_batches": 8,
        **shared,
        **(ours if name == "podpo" else theirs),
    }
    return AlgorithmConfig(
        name=name,
        actor=ActorConfig(hidden_dims=hidden_dims),
        critic=NetworkConfig(hidden_dims=hidden_dims),
        **settings,
    )
