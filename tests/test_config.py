from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from podpo import config as config_module
from podpo import drift
from podpo.config import ActorConfig, AlgorithmConfig, PODPOConfig, PPOConfig, RunConfig
from podpo.presets import PRESETS, preset
from podpo.tasks import TASKS
from podpo.validation import ConfigError, from_dict, near_and_known


@pytest.mark.parametrize("algorithm", ["podpo", "ppo"])
@pytest.mark.parametrize("task", TASKS)
def test_every_task_has_a_preset_that_survives_json(task: str, algorithm: Any) -> None:
    config = preset(task, algorithm)
    assert config.task == task
    assert config.algorithm.name == algorithm
    assert from_dict(RunConfig, json.loads(json.dumps(asdict(config)))) == config


def test_presets_and_tasks_are_the_same_names() -> None:
    assert PRESETS.keys() == TASKS.keys()


@pytest.mark.parametrize("task", TASKS)
def test_both_algorithms_get_the_same_networks_and_samples(task: str) -> None:
    ours, theirs = preset(task, "podpo"), preset(task, "ppo")
    assert ours.algorithm.actor.hidden_dims == theirs.algorithm.actor.hidden_dims
    assert ours.algorithm.critic == theirs.algorithm.critic
    assert (ours.num_envs, ours.num_steps_per_env) == (theirs.num_envs, theirs.num_steps_per_env)


@pytest.mark.parametrize(
    "settings",
    [
        {"gamma": 1.1},
        {"scale": "observaton"},
        {"step_size": "cosine"},
        {"optimizer": "adm"},
        {"lam": -0.1},
        {"num_learning_epochs": 0},
        {"learning_rate": 0.0},
        {"num_candidates": 1},
        {"temperatures": ()},
        {"temperatures": (0.1, 0.0)},
        {"beta": 0.0},
        {"scale": -1.0},
        {"pool_size": 0},
        {"drift_rms": 0.0},
        {"displacement_target": 0.0},
        {"exploration_std": -1.0},
        {"ema_decay": 1.0},
    ],
    ids=str,
)
def test_values_that_cannot_work_are_refused(settings: dict[str, Any]) -> None:
    (name,) = settings
    with pytest.raises(ConfigError, match=f"{name} = .* cannot work: "):
        PODPOConfig(**settings)


def test_networks_and_runs_check_themselves() -> None:
    with pytest.raises(ConfigError, match="hidden_dims"):
        ActorConfig(hidden_dims=())
    with pytest.raises(ConfigError, match=r"actor\.noise_std"):
        ActorConfig(noise_std=0.0)
    with pytest.raises(ConfigError, match=r"num_mini_batches = 4.*only 2 samples"):
        RunConfig(task="bandit", num_envs=2, num_steps_per_env=1)
    with pytest.raises(ConfigError, match="max_time"):
        RunConfig(task="bandit", max_time=0.0)


def test_unknown_words_are_refused_with_the_near_ones() -> None:
    with pytest.raises(ConfigError, match=r"scale = 'observaton'.*did you mean 'observation'"):
        PODPOConfig(scale="observaton")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match=r"init = 'skp'.*did you mean 'skip'"):
        ActorConfig(init="skp")  # pyright: ignore[reportArgumentType]
    assert PODPOConfig(scale=0.5).scale == 0.5, "a number is no word"


@pytest.mark.parametrize("name", ["Scale", "Normalize", "Weighting"])
def test_the_mathematics_and_the_settings_know_the_same_words(name: str) -> None:
    """`drift` imports torch alone and `config` no torch, so the words stand in both."""
    assert getattr(drift, name) == getattr(config_module, name)


def test_an_option_of_the_other_algorithm_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"beta = 0\.2 means nothing to ppo"):
        AlgorithmConfig(name="ppo", beta=0.2)
    with pytest.raises(ConfigError, match=r"ppo\.desired_kl = 0\.5 means nothing to podpo"):
        AlgorithmConfig(ppo=PPOConfig(desired_kl=0.5))
    with pytest.raises(ConfigError, match=r"actor\.init = 'plain' means nothing to ppo"):
        AlgorithmConfig(name="ppo", actor=ActorConfig(init="plain"))
    assert AlgorithmConfig(name="ppo", actor=ActorConfig(noise_std=0.5)).actor.noise_std == 0.5
    assert AlgorithmConfig(name="ppo", gamma=0.9).gamma == 0.9, "shared settings are for both"


def test_from_dict_names_what_it_does_not_know() -> None:
    record = asdict(preset("bandit"))
    record["algorithm"]["num_candidtes"] = 4
    with pytest.raises(ConfigError, match=r"'algorithm\.num_candidtes'.*did you mean 'num_candidates'"):
        from_dict(RunConfig, record)
    with pytest.raises(ConfigError, match="missing setting: task"):
        from_dict(RunConfig, {})


def test_near_and_known() -> None:
    assert near_and_known("alpa", ["alpha", "beta"]) == "did you mean 'alpha'? Known: alpha, beta"
    assert near_and_known("zzz", ["alpha", "beta"]) == "known are alpha, beta"


def test_configs_are_frozen() -> None:
    config = preset("bandit")
    with pytest.raises(AttributeError):
        config.seed = 2  # pyright: ignore[reportAttributeAccessIssue]
    assert replace(config, seed=2).seed == 2
