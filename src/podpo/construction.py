"""From a run's configuration to the rsl_rl algorithm that trains it."""

from __future__ import annotations

import contextlib
import io
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

import torch
from rsl_rl.algorithms import PPO
from rsl_rl.env import VecEnv

from podpo.algorithm import PODPO
from podpo.baselines.ppo import gaussian_actor, ppo_section
from podpo.config import PODPOConfig, RunConfig
from podpo.tasks import is_simulated
from podpo.validation import ConfigError

if TYPE_CHECKING:
    Algorithm = PODPO | PPO


def host_config(config: RunConfig) -> dict[str, Any]:
    """The configuration as rsl_rl's runner would read it from a file."""
    algorithm = config.algorithm
    if algorithm.name == "podpo":
        names = [f.name for f in fields(PODPOConfig)]
        section = {"class_name": "podpo:PODPO"} | {name: getattr(algorithm, name) for name in names}
        actor = {"class_name": "podpo:OneStepActor"} | asdict(algorithm.actor)
    else:
        section, actor = ppo_section(algorithm), gaussian_actor(algorithm.actor)
    return {
        "num_steps_per_env": config.num_steps_per_env,
        "max_iterations": config.max_iterations,
        "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "multi_gpu": None,
        "algorithm": section | {"rnd_cfg": None},
        "actor": actor,
        "critic": {"class_name": "MLPModel"} | asdict(algorithm.critic),
    }


def build_algorithm(config: RunConfig, env: VecEnv, device: str, fresh: bool = True) -> Algorithm:
    """The algorithm with new networks; the caller seeds torch first.

    Unless it is `fresh`, a checkpoint's weights will take their place, and what `init_from` names is not read.
    """
    if not fresh:
        config = replace(config, algorithm=replace(config.algorithm, init_from=None))
    algorithm_class = PODPO if config.algorithm.name == "podpo" else PPO
    with contextlib.redirect_stdout(io.StringIO()):  # rsl_rl prints every layer
        return algorithm_class.construct_algorithm(env.get_observations(), env, host_config(config), device)


def resolve_device(name: str, task: str) -> str:
    """`auto` is the CPU for the toy tasks, whose tensors are too small to gain from a GPU."""
    if name == "auto":
        return "cuda" if is_simulated(task) and torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        there = ", ".join(f"cuda:{i}" for i in range(torch.cuda.device_count())) or "no GPU"
        raise ConfigError(f"device = {name!r} cannot work: here are cpu and {there}.") from None
    return name
