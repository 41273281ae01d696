"""The one-step generative policy a = f(observation, noise), on rsl_rl's model interface."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from rsl_rl.models import MLPModel
from rsl_rl.utils import unpad_trajectories
from tensordict import TensorDict
from torch import Tensor, nn
from torch.nn import functional as F

from podpo.config import ActorConfig, ActorInit, Deployment
from podpo.validation import ConfigError, require


class OneStepActor(MLPModel):
    """A multi-layer perceptron on observation and noise, with the noise added to its output.

        a = net(o, z) + noise_std * z,     z ~ N(0, I)

    While `net` ignores z this is a Gaussian policy; drift then bends it into whatever pays. `init="plain"`
    leaves the sum out (the paper's literal actor): it starts with a spread near zero and stays there, since
    the drifting field has no scale of its own.
    """

    noise_std: Tensor
    mean_noise: Tensor
    measured_spread: Tensor

    def __init__(
        self,
        obs: TensorDict,
        obs_groups: dict[str, list[str]],
        obs_set: str,
        output_dim: int,
        hidden_dims: tuple[int, ...] | list[int] = (512, 256, 128),
        activation: str = "elu",
        obs_normalization: bool = False,
        *,
        init: ActorInit = "skip",
        noise_std: float = 1.0,
        noise_dim: int | None = None,
        output_gain: float = 0.01,
        deployment: Deployment = "zero",
        num_mean_samples: int = 8,
    ) -> None:
        ActorConfig(  # refuses what cannot work
            init=init,
            noise_std=noise_std,
            noise_dim=noise_dim,
            output_gain=output_gain,
            deployment=deployment,
            num_mean_samples=num_mean_samples,
        )
        self.noise_dim = output_dim if noise_dim is None else noise_dim
        self.output_dim = output_dim
        self.deployment: Deployment = deployment
        require(
            init == "plain" or self.noise_dim == output_dim,
            "actor.noise_dim",
            noise_dim,
            f"the skip adds noise to the action, so it has {output_dim} dimensions; use init plain for another",
        )
        super().__init__(obs, obs_groups, obs_set, output_dim, tuple(hidden_dims), activation, obs_normalization)
        self.skip = init == "skip"
        if self.skip:
            last_layer = self.mlp[-1]
            assert isinstance(last_layer, nn.Linear)
            with torch.no_grad():
                last_layer.weight.mul_(output_gain)
                last_layer.bias.zero_()
        self.register_buffer("noise_std", torch.full((output_dim,), noise_std if self.skip else 0.0))
        mean_noise = antithetic_noise(num_mean_samples, self.noise_dim)
        self.register_buffer("mean_noise", mean_noise, persistent=False)
        self.register_buffer("measured_spread", self.noise_std.clone(), persistent=False)

    def forward(
        self,
        obs: TensorDict,
        masks: Tensor | None = None,
        hidden_state: object = None,
        stochastic_output: bool = False,
    ) -> Tensor:
        """Actions `[B, D]`: sampled if `stochastic_output`, otherwise as `deployment` says."""
        if masks is not None:
            unpadded = unpad_trajectories(obs, masks)
            assert isinstance(unpadded, TensorDict)
            obs = unpadded
        return self.deploy(obs, "sample" if stochastic_output else self.deployment)

    def deploy(self, obs: TensorDict, deployment: Deployment) -> Tensor:
        """Actions `[B, D]` at z = 0, at a sampled z, or averaged over the fixed noises."""
        latent = self.get_latent(obs)
        if deployment == "mean":
            return self.generate(latent, self.mean_noise.expand(latent.shape[0], -1, -1)).mean(dim=1)
        if deployment == "sample":
            return self.generate(latent, self.sample_noise(latent.shape[0]))
        return self.generate(latent, latent.new_zeros(latent.shape[0], self.noise_dim))

    def generate(self, latent: Tensor, noise: Tensor) -> Tensor:
        """Actions of normalised observations `[B, O]` at noise `[B, Z]` or `[B, G, Z]`.

        The first layer sees W_o o + W_z z, so G candidates share one product with the observation.
        """
        first, *rest = self.mlp
        assert isinstance(first, nn.Linear)
        hidden = F.linear(latent, first.weight[:, : self.obs_dim], first.bias)
        if noise.dim() == 3:
            hidden = hidden.unsqueeze(1)
        action = hidden + F.linear(noise, first.weight[:, self.obs_dim :])
        for layer in rest:
            action = layer(action)
        return action + self.noise_std * noise if self.skip else action

    def sample_noise(self, *shape: int) -> Tensor:
        """Standard normal noise `[*shape, Z]` on the actor's device."""
        return torch.randn(*shape, self.noise_dim, device=self.noise_std.device)

    @property
    def output_std(self) -> Tensor:
        """Spread of the sampled actions per dimension, as last measured during an update."""
        return self.measured_spread

    def as_jit(self) -> nn.Module:
        """The policy as deployed, raw observations `[B, O]` -> actions, ready for `torch.jit.script`."""
        return DeployedActor(self)

    def as_onnx(self, verbose: bool = False) -> nn.Module:
        """The policy as deployed, with the input and output names that an ONNX export needs."""
        return DeployedActor(self)

    def _get_latent_dim(self) -> int:
        return self.obs_dim + self.noise_dim


class StochasticActor(nn.Module):
    """A frozen copy of the policy for export: raw observations and noise in, actions out."""

    is_recurrent: bool = False
    if TYPE_CHECKING:  # TorchScript would read these annotations, and cannot
        noise_std: Tensor
        fixed_noise: Tensor
        obs_normalizer: nn.Module
    input_names = ("obs", "noise")
    output_names = ("actions",)

    def __init__(self, actor: OneStepActor) -> None:
        super().__init__()
        self.obs_dim = actor.obs_dim
        self.noise_dim = actor.noise_dim
        self.skip = actor.skip
        self.obs_normalizer = copy.deepcopy(actor.obs_normalizer)
        self.mlp = copy.deepcopy(actor.mlp)
        self.register_buffer("noise_std", actor.noise_std.clone())

    def forward(self, obs: Tensor, noise: Tensor) -> Tensor:
        action = self.mlp(torch.cat([self.obs_normalizer(obs), noise], dim=-1))
        return action + self.noise_std * noise if self.skip else action

    @torch.jit.export
    def reset(self) -> None:
        """Nothing to reset: the policy has no memory."""

    @torch.jit.ignore  # pyright: ignore[reportArgumentType]
    def get_dummy_inputs(self) -> tuple[Tensor, ...]:
        return torch.zeros(1, self.obs_dim), torch.zeros(1, self.noise_dim)


class DeployedActor(StochasticActor):
    """The same with its noise fixed, at zero or at the noises whose actions are averaged."""

    input_names = ("obs",)

    def __init__(self, actor: OneStepActor) -> None:
        super().__init__(actor)
        if actor.deployment == "sample":
            raise ConfigError(
                "deployment = 'sample' has no fixed noise to export: use zero or mean, or export the "
                "stochastic policy, which takes the noise as an input."
            )
        fixed = actor.mean_noise if actor.deployment == "mean" else torch.zeros_like(actor.mean_noise[:1])
        self.register_buffer("fixed_noise", fixed.clone())

    def forward(self, obs: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        num_obs, num_noise = obs.shape[0], self.fixed_noise.shape[0]
        latent = self.obs_normalizer(obs).unsqueeze(1).expand(num_obs, num_noise, self.obs_dim)
        noise = self.fixed_noise.unsqueeze(0).expand(num_obs, num_noise, self.noise_dim)
        action = self.mlp(torch.cat([latent, noise], dim=-1))
        if self.skip:
            action = action + self.noise_std * noise
        return action.mean(dim=1)

    @torch.jit.ignore  # pyright: ignore[reportArgumentType]
    def get_dummy_inputs(self) -> tuple[Tensor, ...]:
        return (torch.zeros(1, self.obs_dim),)


def antithetic_noise(num_samples: int, noise_dim: int) -> Tensor:
    """Fixed standard normal noises `[K, Z]` whose mean is exactly zero: pairs (z, -z), and 0 if K is odd."""
    half = torch.randn(num_samples // 2, noise_dim, generator=torch.Generator().manual_seed(0))
    return torch.cat([half, -half, torch.zeros(num_samples % 2, noise_dim)])
