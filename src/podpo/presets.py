"""Task name -> run configuration: the settings that each task trains well with, one function each.

PPO's settings are searched with the same care as ours (docs/log.md tells how); networks are the same for both.
"""

from __future__ import annotations

from collections.abc import Callable

from podpo.config import ActorConfig, AlgorithmConfig, AlgorithmName, NetworkConfig, PPOConfig, RunConfig
from podpo.tasks import check_task


def point_track(algorithm: AlgorithmName) -> RunConfig:
    return RunConfig(
        task="point-track", algorithm=_toy_algorithm(algorithm, (128, 128)), num_envs=256, max_iterations=150
    )


def multi_goal(algorithm: AlgorithmName) -> RunConfig:
    return RunConfig(task="multi-goal", algorithm=_toy_algorithm(algorithm, (64, 64)), num_envs=256, max_iterations=60)


def bandit(algorithm: AlgorithmName) -> RunConfig:
    return RunConfig(
        task="bandit",
        algorithm=_toy_algorithm(algorithm, (64, 64)),
        num_envs=256,
        max_iterations=60,
        eval_interval=5,
        eval_episodes=1024,
    )


PRESETS: dict[str, Callable[[AlgorithmName], RunConfig]] = {
    "point-track": point_track,
    "multi-goal": multi_goal,
    "bandit": bandit,
}


def preset(task: str, algorithm: AlgorithmName = "podpo") -> RunConfig:
    """The configuration that `podpo train TASK` starts from."""
    return PRESETS[check_task(task)](algorithm)


def _toy_algorithm(name: AlgorithmName, hidden_dims: tuple[int, ...]) -> AlgorithmConfig:
    # Returns here reach 60, so clipping the value to +-0.2 an iteration would take hundreds to learn them.
    return AlgorithmConfig(
        name=name,
        actor=ActorConfig(hidden_dims=hidden_dims),
        critic=NetworkConfig(hidden_dims=hidden_dims),
        use_clipped_value_loss=False,
        ppo=PPOConfig(entropy_coef=0.0, schedule="fixed") if name == "ppo" else PPOConfig(),
    )
