"""PPO as rsl_rl runs it: the baseline, with the settings of its own field."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from podpo.config import ActorConfig, AlgorithmConfig, OnPolicyConfig
from podpo.validation import DivergedError

if TYPE_CHECKING:
    from rsl_rl.algorithms import PPO


def ppo_section(config: AlgorithmConfig) -> dict[str, Any]:
    """The `algorithm` section of an rsl_rl config."""
    shared = {f.name: getattr(config, f.name) for f in fields(OnPolicyConfig)}
    return {"class_name": "PPO"} | shared | asdict(config.ppo)


def gaussian_actor(config: ActorConfig) -> dict[str, Any]:
    """The `actor` section: a Gaussian with one learned standard deviation per action."""
    return {
        "class_name": "MLPModel",
        "hidden_dims": config.hidden_dims,
        "activation": config.activation,
        "obs_normalization": config.obs_normalization,
        "distribution_cfg": {"class_name": "GaussianDistribution", "init_std": config.noise_std},
    }


def restore_step_size(algorithm: PPO, config: AlgorithmConfig) -> None:
    """After a load: the step size that an adaptive schedule had reached, or the configuration's if it is fixed."""
    groups = algorithm.optimizer.param_groups
    if config.ppo.schedule == "fixed":
        groups[0]["lr"] = config.learning_rate
    algorithm.learning_rate = groups[0]["lr"]


@contextmanager
def naming_divergence() -> Iterator[None]:
    """A Gaussian whose standard deviation has become negative or no number ends in an error of torch's own."""
    try:
        yield
    except RuntimeError as error:
        if "normal expects" not in str(error):
            raise
        raise DivergedError("the policy's standard deviation is not positive") from None
