"""How far an update moves the policy, and what changes as training goes on: step size and exploration."""

from __future__ import annotations

import warnings

import torch
from tensordict import TensorDict
from torch import Tensor

from podpo.actor import OneStepActor
from podpo.config import PODPOConfig
from podpo.validation import require

NUM_PROBES = 1024
"""Samples on which displacement is measured."""
ADAPTIVE_RANGE = (1e-5, 1e-2)
ADAPTIVE_FACTOR = 1.5


class Probe:
    """Observations and noises whose actions are remembered, to see how far an update moves them."""

    @torch.no_grad()
    def __init__(self, actor: OneStepActor, obs: TensorDict) -> None:
        count = min(NUM_PROBES, len(obs))
        self.latent = actor.get_latent(obs[torch.randint(len(obs), (count,), device=actor.noise_std.device)])
        self.noise = actor.sample_noise(count)
        self.before = actor.generate(self.latent, self.noise)

    @torch.no_grad()
    def displacement(self, actor: OneStepActor) -> Tensor:
        """E ||f(o, z) - f_old(o, z)||^2 / spread^2, per action dimension and in the mean over them."""
        moved = (actor.generate(self.latent, self.noise) - self.before).square().mean(dim=0)
        return (moved / actor.measured_spread.square().clamp_min(1e-12)).mean()


class StepSize:
    """The actor's learning rate: constant, falling to zero, or following the displacement."""

    def __init__(self, config: PODPOConfig) -> None:
        for name in ("step_size", "exploration_schedule"):
            schedule = getattr(config, name)
            fix = "set decay_iterations to the length of the run"
            require(schedule != "linear" or bool(config.decay_iterations), name, schedule, fix)
        self.config = config
        self.value = config.learning_rate

    def advance(self, iteration: int, displacement: float) -> float:
        """The learning rate after `iteration` updates, the last of which moved the policy by `displacement`."""
        config, value = self.config, self.value
        if config.step_size == "linear" and iteration == (config.decay_iterations or 0) + 1:
            warnings.warn(
                f"step_size = 'linear' fell to zero after decay_iterations = {config.decay_iterations}: the policy "
                "moves no more. Set decay_iterations to the length of the whole training.",
                stacklevel=2,
            )
        low, high = ADAPTIVE_RANGE
        if displacement > 2 * config.displacement_target:
            value = max(value / ADAPTIVE_FACTOR, low)
        elif displacement < config.displacement_target / 2:
            value = min(value * ADAPTIVE_FACTOR, high)
        return self.restore(iteration, value)

    def restore(self, iteration: int, adaptive_value: float) -> float:
        """The learning rate after `iteration` updates, given what the adaptive schedule had reached by then."""
        config = self.config
        self.value = {
            "constant": config.learning_rate,
            "linear": config.learning_rate * fraction_left(config, iteration),
            "adaptive": adaptive_value,
        }[config.step_size]
        return self.value


def exploration_std(config: PODPOConfig, iteration: int) -> float:
    """Standard deviation of the noise on executed actions after `iteration` updates."""
    if config.exploration_schedule == "linear":
        return config.exploration_std * fraction_left(config, iteration)
    return config.exploration_std


def fraction_left(config: PODPOConfig, iteration: int) -> float:
    """From 1 at the start to 0 at the end of a linear schedule."""
    return max(1 - iteration / (config.decay_iterations or 1), 0.0)
