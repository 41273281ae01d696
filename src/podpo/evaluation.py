"""What a policy earns: whole episodes from fresh starts, with or without its noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from rsl_rl.models import MLPModel
from tensordict import TensorDict
from torch import Tensor

from podpo.actor import OneStepActor
from podpo.checkpoint import read_checkpoint
from podpo.config import Deployment, RunConfig
from podpo.construction import build_algorithm
from podpo.tasks.modes import mode_coverage
from podpo.tasks.task import Task

Policy = Callable[[TensorDict], Tensor]

STEPS_BETWEEN_LOOKS = 20
"""Steps after which an evaluation looks whether all episodes have ended."""
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

    measures: dict[str, float] = field(default_factory=dict)
    """What the task measures besides, over all steps of all episodes."""

    def as_dict(self) -> dict[str, float | int]:
        numbers = asdict(self)
        return {name: value for name, value in (numbers | numbers.pop("measures")).items() if value is not None}


@dataclass
class Rollouts:
    """What came of one episode of each environment."""

    returns: Tensor
    lengths: Tensor
    failed: Tensor
    mode: Tensor
    context: Tensor
    measures: dict[str, Tensor]
    """Sums over the steps of the episode."""


def evaluate(policy: Policy, task: Task) -> Evaluation:
    """Run one fresh episode in every environment of `task`, so that short episodes count no more than long ones."""
    return summarize(roll_out(policy, task), task, slice(0, task.num_envs))


def evaluate_side_by_side(policies: Mapping[str, Policy], task: Task) -> dict[str, Evaluation]:
    """Evaluate several policies at once, each in its own share of the environments."""
    share = task.num_envs // len(policies)
    shares = {name: slice(i * share, (i + 1) * share) for i, name in enumerate(policies)}
    rollouts = roll_out(lambda obs: torch.cat([policies[name](obs[where]) for name, where in shares.items()]), task)
    return {name: summarize(rollouts, task, where) for name, where in shares.items()}


@torch.inference_mode()
def roll_out(policy: Policy, task: Task) -> Rollouts:
    obs = task.reset()
    running = torch.ones(task.num_envs, dtype=torch.bool, device=task.device)
    total, length = torch.zeros(2, task.num_envs, device=task.device)
    failed = torch.zeros_like(running)
    mode, context = torch.full((2, task.num_envs), -1, dtype=torch.long, device=task.device)
    measures: dict[str, Tensor] = {}
    for step in range(int(task.max_episode_length)):
        obs, rewards, dones, extras = task.step(policy(obs))
        total += rewards * running
        length += running
        for name, value in extras.get("measures", {}).items():
            measures[name] = measures.get(name, 0.0) + torch.where(running, value, 0.0)
        ending = running & dones.bool()
        if not task.ends_for_good:
            failed |= ending & ~extras["time_outs"].bool()
        if task.num_modes:
            mode = torch.where(ending, extras["mode"], mode)
            context = torch.where(ending, extras["context"], context)
        running &= ~ending
        if step % STEPS_BETWEEN_LOOKS == 0 and not running.any():  # each look makes a GPU wait
            break
    return Rollouts(total, length, failed, mode, context, measures)


def summarize(rollouts: Rollouts, task: Task, where: slice) -> Evaluation:
    """What became of the environments `where`."""
    returns, lengths, mode = (x[where] for x in (rollouts.returns, rollouts.lengths, rollouts.mode))
    coverage = math.nan
    if task.num_modes:
        coverage = mode_coverage(mode, rollouts.context[where], task.num_modes, task.num_contexts)
    means = {name: (total[where].sum() / lengths.sum()).item() for name, total in rollouts.measures.items()}
    return Evaluation(
        episodes=len(returns),
        return_mean=returns.mean().item(),
        return_std=returns.std(correction=0).item(),
        length_mean=lengths.mean().item(),
        survival=1 - rollouts.failed[where].float().mean().item(),
        coverage=None if math.isnan(coverage) else coverage,
        success=(mode >= 0).float().mean().item() if task.num_modes else None,
        measures=task.summarize(means),
    )


def deployed(model: MLPModel, noise: Deployment) -> Policy:
    """The policy that a trained actor is at `noise`; a Gaussian's mean and its zero-noise action are the same."""
    if isinstance(model, OneStepActor):
        return lambda obs: model.deploy(obs, noise)
    return lambda obs: model(obs, stochastic_output=noise == "sample")


def zero_agent(task: Task) -> Policy:
    """Does nothing."""
    return lambda obs: torch.zeros(len(obs), task.num_actions, device=task.device)


def random_agent(task: Task) -> Policy:
    """Acts uniformly in [-1, 1]."""
    return lambda obs: 2 * torch.rand(len(obs), task.num_actions, device=task.device) - 1


AGENTS: dict[str, Callable[[Task], Policy]] = {"zero": zero_agent, "random": random_agent}
"""Policies that need no training."""


def evaluation_seed(seed: int, within: Literal["training", "command"]) -> int:
    """Seed of the episodes that a policy of a run with `seed` is judged by; rollouts never use it."""
    return seed + SEED_OFFSETS[within]


def load_policy(config: RunConfig, checkpoint: Path, task: Task) -> MLPModel:
    """The trained model of a run, in evaluation mode, on the task's device."""
    device = str(task.device)
    algorithm = build_algorithm(config, task, device, fresh=False)
    saved: dict[str, Any] = read_checkpoint(checkpoint, device)
    algorithm.load(saved["algorithm"], {"actor": True}, True)
    algorithm.eval_mode()
    return algorithm.get_policy()
