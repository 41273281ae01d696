"""Reading an rsl_rl PPO configuration: what PODPO takes over from it, what it ignores, what it refuses.

A user changes `algorithm.class_name` to `podpo:PODPO` and nothing else; the rest of the file was written for a
Gaussian actor and a likelihood ratio, and is read here.
"""

from __future__ import annotations

import copy
import inspect
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from rsl_rl.models import MLPModel
from rsl_rl.utils import resolve_callable

from podpo.actor import OneStepActor
from podpo.config import ConfigError, PODPOConfig, from_dict, near_and_known

LIKELIHOOD_KEYS = {"entropy_coef", "desired_kl", "schedule"}
"""Settings that need a likelihood; PODPO has none."""
ROLLOUT_WIDE_KEYS = {"normalize_advantage_per_mini_batch"}
"""Advantages are normalised over the whole rollout, before the positive ones are picked."""
HOST_KEYS = {"use_mixed_precision", "grad_reduce_bucket_mb"}
"""Speed settings of rsl_rl's own PPO."""
EXTENSION_KEYS = {"rnd_cfg", "symmetry_cfg", "share_cnn_encoders"}
GAUSSIAN = "GaussianDistribution"
GAUSSIAN_KEYS = {"class_name", "init_std", "std_type"}
"""What a Gaussian section may say without a warning: the generator starts as that Gaussian."""
SUPPORTED_NETWORKS = "podpo supports multi-layer perceptrons (MLPModel) so far"


def read_algorithm(section: Mapping[str, Any]) -> PODPOConfig:
    """The `algorithm` section of an rsl_rl config as PODPO's settings."""
    section = {key: value for key, value in section.items() if key != "class_name"}
    for key in EXTENSION_KEYS & section.keys():
        if section.pop(key):
            raise ConfigError(f"algorithm.{key} is not supported by PODPO: set it to None.")
    foreign = LIKELIHOOD_KEYS | ROLLOUT_WIDE_KEYS | HOST_KEYS
    ignored = sorted(key for key in foreign & section.keys() if section[key])
    if ignored:
        warn_of_ignored(ignored)
    known = {f.name for f in fields(PODPOConfig)}
    unknown = section.keys() - known - foreign
    if unknown:
        key = min(unknown)
        raise ConfigError(f"algorithm.{key} is unknown to PODPO: {near_and_known(key, known)}")
    return from_dict(PODPOConfig, {key: value for key, value in section.items() if key in known})


def warn_of_ignored(names: Iterable[str]) -> None:
    """One warning for all settings of a PPO file that change nothing here."""
    warnings.warn(
        f"PODPO has no use for these PPO settings and ignores them: {', '.join(names)}. "
        "(Its step size is set by learning_rate and step_size, its spread by the noise of the generator.)",
        stacklevel=5,
    )


def read_actor(section: Mapping[str, Any]) -> tuple[type[OneStepActor], dict[str, Any]]:
    """The `actor` section as a generator class and its arguments; a Gaussian section becomes a generator."""
    section = copy.deepcopy(dict(section))
    actor_class = resolve_callable(section.pop("class_name", OneStepActor))
    if isinstance(actor_class, type) and issubclass(actor_class, OneStepActor):
        return actor_class, _arguments(actor_class, section, "actor")
    if actor_class is not MLPModel:
        name = getattr(actor_class, "__name__", str(actor_class))
        raise ConfigError(f"actor.class_name = {name!r} cannot work: {SUPPORTED_NETWORKS}.")
    distribution = section.pop("distribution_cfg", None) or {}
    section.setdefault("noise_std", distribution.get("init_std", 1.0))
    ignored = distribution.keys() - GAUSSIAN_KEYS
    if re.split("[:.]", str(distribution.get("class_name", GAUSSIAN)))[-1] != GAUSSIAN:
        ignored |= {"class_name"}
    if ignored:
        warn_of_ignored(f"actor.distribution_cfg.{key}" for key in sorted(ignored))
    return OneStepActor, _arguments(OneStepActor, section, "actor")


def read_critic(section: Mapping[str, Any]) -> tuple[type[MLPModel], dict[str, Any]]:
    """The `critic` section as a class and its arguments."""
    section = copy.deepcopy(dict(section))
    critic_class = resolve_callable(section.pop("class_name", MLPModel))
    if not (isinstance(critic_class, type) and issubclass(critic_class, MLPModel)) or critic_class.is_recurrent:
        name = getattr(critic_class, "__name__", str(critic_class))
        raise ConfigError(f"critic.class_name = {name!r} cannot work: {SUPPORTED_NETWORKS}.")
    return critic_class, _arguments(critic_class, section, "critic")


def _arguments(model_class: type[MLPModel], section: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The section without what other architectures leave unset (such as `cnn_cfg: None`)."""
    parameters = inspect.signature(model_class).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return dict(section)
    for key in sorted(section.keys() - parameters.keys()):
        if section[key] is not None:
            raise ConfigError(f"{name}.{key} is unknown to {model_class.__name__}: {near_and_known(key, parameters)}")
    return {key: value for key, value in section.items() if key in parameters}
