"""What a policy earns: whole episodes from fresh starts, with or without its noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rsl_rl.models import MLPModel
from tensordict import TensorDict
from torch import Tensor

from podpo.actor import OneStepActor
from podpo.checkpoint import read_checkpoint
from podpo.config import Deployment, RunConfig
from podpo.construction import build_algorithm
from podpo.tasks import make_task
from podpo.tasks.toy import ToyTask, mode_coverage

Policy = Callable[[TensorDict], Tensor]

SEED_OFFSETS = {"training": 1_000_003, "command": 2_000_003}
"""Evaluation episodes are never those that a policy was trained on, nor those of `podpo eval` the ones by which
training chose its best checkpoint."""


@dataclass(frozen=True)
class Evaluation:
    """One episode of each environment."""

    episodes: int
    return_mean: float
    return_std: float
    length_mean: float
    survival: float
    """Fraction of episodes that did not end in failure."""
    coverage: float | None = None
    """Effective share of the task's equally good solutions in use (1: all alike), where it has several."""
    success: float | None = None
    """Fraction of episodes that ended in any of these solutions."""

    def as_dict(self) -> dict[str, float | int]:
        return {name: value for name, value in asdict(self).items() if value is not None}


@torch.inference_mode()
def evaluate(policy: Policy, task: ToyTask) -> Evaluation:
    """Run one fresh episode in every environment of `task`, so that short episodes count no more than long ones."""
    obs = task.reset()
    running = torch.ones(task.num_envs, dtype=torch.bool, device=task.device)
    total, length = torch.zeros(2, task.num_envs, device=task.device)
    failed = torch.zeros_like(running)
    mode, context = torch.full((2, task.num_envs), -1, dtype=torch.long, device=task.device)
    for _ in range(int(task.max_episode_length)):
        obs, rewards, dones, extras = task.step(policy(obs))
        total += rewards * running
        length += running
        ending = running & dones.bool()
        if not task.ends_for_good:
            failed |= ending & ~extras["time_outs"].bool()
        if task.num_modes:
            mode = torch.where(ending, extras["mode"], mode)
            context = torch.where(ending, extras["context"], context)
        running &= ~ending
        if not running.any():
            break
    coverage = mode_coverage(mode, context, task.num_modes, task.num_contexts) if task.num_modes else math.nan
    return Evaluation(
        episodes=task.num_envs,
        return_mean=total.mean().item(),
        return_std=total.std(correction=0).item(),
        length_mean=length.mean().item(),
        survival=1 - failed.float().mean().item(),
        coverage=None if math.isnan(coverage) else coverage,
        success=(mode >= 0).float().mean().item() if task.num_modes else None,
    )


def deployed(model: MLPModel, noise: Deployment) -> Policy:
    """The policy that a trained actor is at `noise`; a Gaussian's mean and its zero-noise action are the same."""
    if isinstance(model, OneStepActor):
        return lambda obs: model.deploy(obs, noise)
    return lambda obs: model(obs, stochastic_output=noise == "sample")


def zero_agent(task: ToyTask) -> Policy:
    """Does nothing."""
    return lambda obs: torch.zeros(len(obs), task.num_actions, device=task.device)


def random_agent(task: ToyTask) -> Policy:
    """Acts uniformly in [-1, 1]."""
    return lambda obs: 2 * torch.rand(len(obs), task.num_actions, device=task.device) - 1


AGENTS: dict[str, Callable[[ToyTask], Policy]] = {"zero": zero_agent, "random": random_agent}
"""Policies that need no training."""


def make_evaluation_task(config: RunConfig, episodes: int, device: str, within: str = "training") -> ToyTask:
    """Fresh environments, one per episode, with a seed that rollouts never use."""
    return make_task(config.task, num_envs=episodes, seed=config.seed + SEED_OFFSETS[within], device=device)


def load_policy(config: RunConfig, checkpoint: Path, device: str = "cpu") -> MLPModel:
    """The trained model of a run, in evaluation mode."""
    task = make_task(config.task, num_envs=1, seed=config.seed, device=device)
    algorithm = build_algorithm(config, task, device, fresh=False)
    saved: dict[str, Any] = read_checkpoint(checkpoint, device)
    algorithm.load(saved["algorithm"], {"actor": True}, True)
    algorithm.eval_mode()
    return algorithm.get_policy()
