"""Reading an rsl_rl PPO configuration: what PODPO takes over from it, what it ignores, what it refuses.

A user changes `algorithm.class_name` to `podpo:PODPO` and nothing else; the rest of the file was written for a
Gaussian actor and a likelihood ratio, and is read here.
"""

from __future__ import annotations

import copy
import inspect
import numbers
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any, NamedTuple

from rsl_rl.models import MLPModel
from rsl_rl.utils import resolve_callable

from podpo.actor import OneStepActor
from podpo.config import PODPOConfig
from podpo.validation import ConfigError, from_dict, near_and_known, require

LIKELIHOOD_KEYS = {"entropy_coef", "desired_kl", "schedule"}
"""Settings that need a likelihood; PODPO has none."""
ROLLOUT_WIDE_KEYS = {"normalize_advantage_per_mini_batch"}
"""Advantages are normalised over the whole rollout, before the positive ones are picked."""
HOST_KEYS = {"use_mixed_precision", "grad_reduce_bucket_mb"}
HOST_RUN_KEYS = {"torch_compile_mode"}
"""Speed settings of rsl_rl's own PPO, in the algorithm section and beside it."""
EXTENSION_KEYS = {"rnd_cfg", "symmetry_cfg", "share_cnn_encoders"}
GAUSSIAN = "GaussianDistribution"
GAUSSIAN_KEYS = {"class_name", "init_std", "std_type"}
"""What a Gaussian section may say without a warning: the generator starts as that Gaussian."""
SUPPORTED_NETWORKS = "podpo supports multi-layer perceptrons (MLPModel) so far"


class PPOFile(NamedTuple):
    """What a PPO configuration asks for; the two networks still lack observations and dimensions."""

    config: PODPOConfig
    actor: Callable[..., OneStepActor]
    critic: Callable[..., MLPModel]


def read_ppo_file(cfg: Mapping[str, Any]) -> PPOFile:
    """Read an rsl_rl configuration, with one warning for all that changes nothing here."""
    ignored = [key for key in sorted(HOST_RUN_KEYS) if cfg.get(key)]
    config = _read_algorithm(cfg["algorithm"], cfg.get("max_iterations"), ignored)
    actor, critic = _read_actor(cfg["actor"], ignored), _read_critic(cfg["critic"])
    if ignored:
        warnings.warn(
            f"PODPO has no use for these PPO settings and ignores them: {', '.join(ignored)}. "
            "(Its step size is set by learning_rate and step_size, its spread by the noise of the generator.)",
            stacklevel=4,
        )
    return PPOFile(config, actor, critic)


def _read_algorithm(section: Mapping[str, Any], max_iterations: int | None, ignored: list[str]) -> PODPOConfig:
    """The `algorithm` section as PODPO's settings; names that mean nothing to PODPO go to `ignored`."""
    section = {key: value for key, value in section.items() if key != "class_name"}
    for key in EXTENSION_KEYS & section.keys():
        if _is_active(section.pop(key)):
            raise ConfigError(f"algorithm.{key} is not supported by PODPO: set it to None.")
    foreign = LIKELIHOOD_KEYS | ROLLOUT_WIDE_KEYS | HOST_KEYS
    ignored += sorted(key for key in foreign & section.keys() if section[key])
    known = {f.name for f in fields(PODPOConfig)}
    unknown = section.keys() - known - foreign
    if unknown:
        key = min(unknown)
        raise ConfigError(f"algorithm.{key} is unknown to PODPO: {near_and_known(key, known)}")
    settings = {key: value for key, value in section.items() if key in known}
    if settings.get("decay_iterations") is None:
        settings["decay_iterations"] = max_iterations
    return from_dict(PODPOConfig, settings)


def _is_active(extension: object) -> bool:
    """Isaac Lab writes a symmetry section that turns nothing on where there is none."""
    if isinstance(extension, Mapping) and "use_mirror_loss" in extension:
        return bool(extension["use_mirror_loss"] or extension.get("use_data_augmentation"))
    return bool(extension)


def _read_actor(section: Mapping[str, Any], ignored: list[str]) -> Callable[..., OneStepActor]:
    """The `actor` section as a generator; a Gaussian section becomes a generator with the same layers."""
    section = copy.deepcopy(dict(section))
    actor_class = resolve_callable(section.pop("class_name", OneStepActor))
    if isinstance(actor_class, type) and issubclass(actor_class, OneStepActor):
        return partial(actor_class, **_arguments(actor_class, section, "actor"))
    if actor_class is not MLPModel:
        name = getattr(actor_class, "__name__", str(actor_class))
        raise ConfigError(f"actor.class_name = {name!r} cannot work: {SUPPORTED_NETWORKS}.")
    distribution = section.pop("distribution_cfg", None) or {}
    std = distribution.get("init_std", 1.0)
    is_positive = isinstance(std, numbers.Real) and float(std) > 0
    require(is_positive, "actor.distribution_cfg.init_std", std, "use one positive number")
    section.setdefault("noise_std", float(std))
    foreign = distribution.keys() - GAUSSIAN_KEYS
    if re.split("[:.]", str(distribution.get("class_name", GAUSSIAN)))[-1] != GAUSSIAN:
        foreign |= {"class_name"}
    ignored += [f"actor.distribution_cfg.{key}" for key in sorted(foreign)]
    return partial(OneStepActor, **_arguments(OneStepActor, section, "actor"))


def _read_critic(section: Mapping[str, Any]) -> Callable[..., MLPModel]:
    """The `critic` section as a network."""
    section = copy.deepcopy(dict(section))
    critic_class = resolve_callable(section.pop("class_name", MLPModel))
    if not (isinstance(critic_class, type) and issubclass(critic_class, MLPModel)) or critic_class.is_recurrent:
        name = getattr(critic_class, "__name__", str(critic_class))
        raise ConfigError(f"critic.class_name = {name!r} cannot work: {SUPPORTED_NETWORKS}.")
    return partial(critic_class, **_arguments(critic_class, section, "critic"))


def _arguments(model_class: type[MLPModel], section: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The section without what other architectures leave unset (such as `cnn_cfg: None`)."""
    parameters = inspect.signature(model_class).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return dict(section)
    for key in sorted(section.keys() - parameters.keys()):
        if section[key] is not None:
            raise ConfigError(f"{name}.{key} is unknown to {model_class.__name__}: {near_and_known(key, parameters)}")
    return {key: value for key, value in section.items() if key in parameters}
