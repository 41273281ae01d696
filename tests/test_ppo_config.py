from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from podpo.algorithm import PODPO
from podpo.tasks import make_task
from podpo.validation import ConfigError


def build(cfg: dict[str, Any]) -> Any:
    env = make_task("point-track", 4, 0)
    return PODPO.construct_algorithm(env.get_observations(), env, cfg, "cpu")


def test_a_ppo_file_is_honoured_where_it_means_something(podpo_file: dict[str, Any]) -> None:
    podpo_file["algorithm"] |= {"clip_param": 0.3, "gamma": 0.9, "lam": 0.8, "num_learning_epochs": 3}
    podpo_file["algorithm"] |= {"max_grad_norm": 0.7, "learning_rate": 2e-4, "use_clipped_value_loss": False}
    with pytest.warns(UserWarning, match="desired_kl, entropy_coef, schedule") as record:
        algorithm = build(podpo_file)
    assert len([w for w in record if "PODPO" in str(w.message)]) == 1
    config = algorithm.config
    assert (config.clip_param, config.gamma, config.lam, config.num_learning_epochs) == (0.3, 0.9, 0.8, 3)
    assert (config.max_grad_norm, config.use_clipped_value_loss) == (0.7, False)
    assert [g["lr"] for g in algorithm.optimizer.param_groups] == [2e-4, 2e-4]
    assert torch.allclose(algorithm.actor.noise_std, torch.tensor(0.7))
    assert algorithm.actor.obs_normalization
    assert algorithm.actor.mlp[0].out_features == 32


def test_all_that_is_ignored_stands_in_one_warning(podpo_file: dict[str, Any]) -> None:
    podpo_file["torch_compile_mode"] = "default"
    podpo_file["actor"]["distribution_cfg"]["std_range"] = [0.1, 2.0]
    with pytest.warns(UserWarning) as record:
        build(podpo_file)
    (told,) = [str(w.message) for w in record if "PODPO" in str(w.message)]
    for name in ("torch_compile_mode", "entropy_coef", "actor.distribution_cfg.std_range"):
        assert name in told


def test_a_symmetry_section_that_turns_nothing_on_is_no_obstacle(podpo_file: dict[str, Any]) -> None:
    podpo_file["algorithm"]["symmetry_cfg"] = {"use_data_augmentation": False, "use_mirror_loss": False}
    with pytest.warns(UserWarning):
        build(podpo_file)


def test_nothing_is_warned_of_where_nothing_is_ignored(podpo_file: dict[str, Any]) -> None:
    for key in ("entropy_coef", "schedule", "desired_kl"):
        del podpo_file["algorithm"][key]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build(podpo_file)


def test_podpo_options_pass_through(podpo_file: dict[str, Any]) -> None:
    podpo_file["algorithm"] |= {"num_candidates": 5, "temperatures": [0.3], "scale": "observation"}
    with pytest.warns(UserWarning):
        config = build(podpo_file).config
    assert (config.num_candidates, config.temperatures, config.scale) == (5, (0.3,), "observation")


def test_the_length_of_a_linear_schedule_is_that_of_the_run(podpo_file: dict[str, Any]) -> None:
    podpo_file["algorithm"]["step_size"] = "linear"
    podpo_file["max_iterations"] = 77
    with pytest.warns(UserWarning):
        assert build(podpo_file).config.decay_iterations == 77


@pytest.mark.parametrize(
    ("section", "changes", "message"),
    [
        ("algorithm", {"num_candidate": 4}, r"num_candidate is unknown.*did you mean 'num_candidates'"),
        ("algorithm", {"num_candidates": 0}, r"num_candidates = 0 cannot work"),
        ("algorithm", {"rnd_cfg": {"weight": 1.0}}, r"rnd_cfg is not supported"),
        ("algorithm", {"symmetry_cfg": {"use_mirror_loss": True}}, r"symmetry_cfg is not supported"),
        ("algorithm", {"symmetry_cfg": {"use_mirror_loss": False, "use_data_augmentation": True}}, r"symmetry_cfg is"),
        ("algorithm", {"learning_rate": "1e-3"}, r"learning_rate = '1e-3' cannot work: give a number"),
        ("algorithm", {"num_mini_batches": 4.0}, r"num_mini_batches = 4\.0 cannot work: give a whole number"),
        ("algorithm", {"num_mini_batches": 1000}, r"num_mini_batches = 1000 .* a rollout has only 32 samples"),
        ("algorithm", {"temperatures": 0.5}, r"temperatures = 0\.5 cannot work: give a list"),
        ("actor", {"distribution_cfg": {"init_std": 0}}, r"actor\.distribution_cfg\.init_std = 0 cannot work"),
        ("actor", {"class_name": "RNNModel"}, r"actor\.class_name = 'RNNModel'.*multi-layer perceptrons"),
        ("actor", {"class_name": "CNNModel"}, r"actor\.class_name = 'CNNModel'.*multi-layer perceptrons"),
        ("critic", {"class_name": "RNNModel"}, r"critic\.class_name = 'RNNModel'.*multi-layer perceptrons"),
        ("actor", {"hidden_dim": [8]}, r"actor\.hidden_dim is unknown to OneStepActor: did you mean 'hidden_dims'"),
        ("critic", {"cnn_cfg": {"stride": 2}}, r"critic\.cnn_cfg is unknown to MLPModel"),
        ("actor", {"init": "skp"}, r"init = 'skp' cannot work"),
        ("algorithm", {"scale": "obs"}, r"scale = 'obs' cannot work"),
    ],
)
def test_what_cannot_work_is_refused(
    podpo_file: dict[str, Any], section: str, changes: dict[str, Any], message: str
) -> None:
    podpo_file[section] |= changes
    with pytest.raises(ConfigError, match=message), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        build(podpo_file)


@pytest.mark.parametrize(
    ("distribution", "named"),
    [
        ({"class_name": "HeteroscedasticGaussianDistribution", "init_std": 0.5}, ["class_name"]),
        ({"class_name": "GaussianDistribution", "init_std": 0.5, "std_range": [0.1, 2.0]}, ["std_range"]),
        ({"class_name": "rsl_rl.modules:GaussianDistribution", "init_std": 0.5, "std_type": "log"}, []),
    ],
)
def test_a_distribution_that_means_more_than_its_spread_is_warned_of(
    podpo_file: dict[str, Any], distribution: dict[str, Any], named: list[str]
) -> None:
    podpo_file["actor"]["distribution_cfg"] = distribution
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        algorithm = build(podpo_file)
    told = [str(w.message) for w in record if "distribution_cfg" in str(w.message)]
    assert len(told) == len(named)
    assert all(f"actor.distribution_cfg.{key}" in text for key, text in zip(named, told, strict=True))
    assert torch.allclose(algorithm.actor.noise_std, torch.tensor(0.5))


def test_what_other_architectures_leave_unset_is_no_obstacle(podpo_file: dict[str, Any]) -> None:
    podpo_file["actor"]["cnn_cfg"] = podpo_file["critic"]["cnn_cfg"] = None
    with pytest.warns(UserWarning):
        assert build(podpo_file).actor.mlp[0].out_features == 32
