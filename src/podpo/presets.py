"""Task name -> run configuration: the settings that each task trains well with, one function each.

PPO's settings are searched with the same care as ours (docs/results.md tells how); networks are the same for both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from podpo.config import ActorConfig, AlgorithmConfig, AlgorithmName, NetworkConfig, PPOConfig, RunConfig
from podpo.tasks import check_task

DEFAULT_TASK = "go2-walk"
"""What `podpo train` trains."""

NOISE_FLOOR: dict[str, Any] = {"step_size": "linear", "exploration_std": 0.3, "exploration_schedule": "linear"}
"""Noise on the executed and stored action keeps the spread from shrinking before the policy is good."""


def go2_walk(algorithm: AlgorithmName, on_gpu: bool, task: str = "go2-walk") -> RunConfig:
    """On a GPU the batch and the networks that the field is used to; on a CPU what learns most in a quarter of an
    hour."""
    own: dict[str, Any] = {}
    if algorithm == "podpo":
        own = {"exploration_std": 0.2}
    hidden_dims = (512, 256, 128) if on_gpu else (256, 128, 64)
    return RunConfig(
        task=task,
        algorithm=AlgorithmConfig(
            name=algorithm,
            actor=ActorConfig(hidden_dims=hidden_dims),
            critic=NetworkConfig(hidden_dims=hidden_dims),
            **own,
        ),
        num_envs=4096 if on_gpu else 256,
        desynchronize_episodes=True,
        max_iterations=400,
        eval_interval=50,
        eval_episodes=256 if on_gpu else 64,
        checkpoint_interval=50,
        film=True,
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
