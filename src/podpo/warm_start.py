"""Starting from what rsl_rl's PPO trained: the generator becomes exactly that Gaussian policy.

While the net ignores the noise, a = net(o) + noise_std * z is a Gaussian with mean net(o) and standard deviation
noise_std. So the mean network is taken over, with weights of zero from the noise, and the learned standard deviation.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from rsl_rl.models import MLPModel
from torch import Tensor

from podpo.actor import OneStepActor
from podpo.validation import ConfigError


def start_from(path: str | Path, actor: OneStepActor, critic: MLPModel) -> None:
    """Take over the Gaussian policy and the critic of an rsl_rl PPO checkpoint (or of a run of `podpo train`)."""
    if not Path(path).is_file():
        raise ConfigError(f"init_from = {str(path)!r} cannot work: there is no such file.")
    try:
        checkpoint = torch.load(path, map_location=actor.noise_std.device, weights_only=True)
    except Exception as error:  # torch has many for files that it cannot read, or not without running code
        raise ConfigError(
            f"init_from = {str(path)!r} cannot work: it is no checkpoint that can be read safely "
            f"({type(error).__name__}); save actor_state_dict and critic_state_dict alone."
        ) from None
    checkpoint = checkpoint.get("algorithm", checkpoint)
    if "podpo_state" in checkpoint:
        raise ConfigError(f"init_from = {str(path)!r} cannot work: PODPO wrote it; resume from it instead.")
    if "actor_state_dict" not in checkpoint:
        raise ConfigError(f"init_from = {str(path)!r} cannot work: it is no checkpoint of rsl_rl 5's PPO.")
    become_gaussian(actor, checkpoint["actor_state_dict"])
    try:
        critic.load_state_dict(checkpoint["critic_state_dict"])
    except RuntimeError as error:
        raise ConfigError(f"init_from: give the critic the layers it has in the checkpoint. {error}") from None


def become_gaussian(actor: OneStepActor, gaussian: Mapping[str, Tensor]) -> None:
    """Make `actor` the policy of an rsl_rl PPO actor's state dict: the same action for the same noise."""
    if not actor.skip:
        raise ConfigError("init_from: without the noise skip an actor is no Gaussian policy; set actor.init to skip")
    own = actor.state_dict()
    std = _standard_deviation(gaussian)
    missing = [key for key in own if key not in gaussian and key != "noise_std"]
    normalizes = any(key.startswith("obs_normalizer.") for key in gaussian)
    if missing or normalizes != actor.obs_normalization:
        raise ConfigError(
            f"init_from: the checkpoint's actor has {', '.join(gaussian)}, this one needs "
            f"{', '.join(missing) or 'no obs_normalizer'}; give the actor the same layers and obs_normalization"
        )
    new = {key: gaussian[key] for key in own if key != "noise_std"} | {"noise_std": std}
    first = new["mlp.0.weight"]
    new["mlp.0.weight"] = torch.cat([first, first.new_zeros(first.shape[0], actor.noise_dim)], dim=1)
    for key, tensor in new.items():
        if tensor.shape != own[key].shape:
            raise ConfigError(
                f"init_from: {key} is {tuple(gaussian.get(key, tensor).shape)} in the checkpoint but this actor's "
                f"is {tuple(own[key].shape)} (with {actor.noise_dim} noise inputs); match task and hidden_dims"
            )
    actor.load_state_dict(new)
    actor.measured_spread.copy_(std)


def _standard_deviation(gaussian: Mapping[str, Tensor]) -> Tensor:
    if "distribution.log_std_param" in gaussian:
        return gaussian["distribution.log_std_param"].exp()
    if "distribution.std_param" in gaussian:
        return gaussian["distribution.std_param"].clamp_min(1e-6)
    raise ConfigError("init_from: the checkpoint's actor is no Gaussian policy with one std per action")
