"""Starting from a PPO policy: the same actions, or a message that says why not."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from rsl_rl.algorithms import PPO
from rsl_rl.models import MLPModel
from tensordict import TensorDict

from podpo.actor import OneStepActor
from podpo.algorithm import PODPO
from podpo.tasks import make_task
from podpo.validation import ConfigError
from podpo.warm_start import become_gaussian

GROUPS = {"actor": ["policy"]}


@pytest.fixture
def obs() -> TensorDict:
    torch.manual_seed(0)
    return TensorDict({"policy": torch.randn(7, 5)}, batch_size=[7])


def make_actor(obs: TensorDict, **options: Any) -> OneStepActor:
    return OneStepActor(obs, GROUPS, "actor", 3, (16, 8), "elu", obs_normalization=True, **options)


def build(cfg: dict[str, Any]) -> Any:
    env = make_task("point-track", 4, 0)
    return PODPO.construct_algorithm(env.get_observations(), env, cfg, "cpu")


@pytest.mark.parametrize("std_type", ["scalar", "log"])
def test_a_ppo_policy_loads_exactly(obs: TensorDict, std_type: str) -> None:
    torch.manual_seed(4)
    cfg = {"class_name": "GaussianDistribution", "init_std": 0.4, "std_type": std_type}
    ppo = MLPModel(obs, GROUPS, "actor", 3, (16, 8), "elu", obs_normalization=True, distribution_cfg=cfg)
    ppo.train()
    ppo.update_normalization(TensorDict({"policy": torch.randn(64, 5)}, batch_size=[64]))
    actor = make_actor(obs)
    become_gaussian(actor, ppo.state_dict())
    assert torch.allclose(actor(obs), ppo(obs), atol=1e-6)
    torch.manual_seed(5)
    expected = ppo(obs, stochastic_output=True)
    torch.manual_seed(5)
    assert torch.allclose(actor(obs, stochastic_output=True), expected, atol=1e-6)
    assert torch.allclose(actor.output_std, torch.tensor(0.4))


def test_a_checkpoint_that_does_not_fit_says_why(obs: TensorDict) -> None:
    actor = make_actor(obs)
    gaussian = {"class_name": "GaussianDistribution", "init_std": 1.0}
    other = MLPModel(obs, GROUPS, "actor", 3, (32, 8), "elu", obs_normalization=True, distribution_cfg=dict(gaussian))
    with pytest.raises(ConfigError, match=r"mlp\.0\.weight is \(32, 5\)"):
        become_gaussian(actor, other.state_dict())
    bare = MLPModel(obs, GROUPS, "actor", 3, (16, 8), "elu", obs_normalization=True)
    with pytest.raises(ConfigError, match="no Gaussian policy"):
        become_gaussian(actor, bare.state_dict())
    unnormalized = MLPModel(obs, GROUPS, "actor", 3, (16, 8), "elu", distribution_cfg=dict(gaussian))
    with pytest.raises(ConfigError, match="obs_normalization"):
        become_gaussian(actor, unnormalized.state_dict())


def test_the_averaged_actor_starts_there_too(podpo_file: dict[str, Any], tmp_path: Any) -> None:
    start = build(podpo_file | {"algorithm": {"class_name": "podpo:PODPO"}})
    gaussian = {k: v for k, v in start.actor.state_dict().items() if k != "noise_std"}
    gaussian["mlp.0.weight"] = gaussian["mlp.0.weight"][:, : start.actor.obs_dim]
    gaussian["distribution.std_param"] = torch.full((12,), 0.3)
    critic = start.critic.state_dict()
    torch.save({"actor_state_dict": gaussian, "critic_state_dict": critic}, tmp_path / "model.pt")
    options = {"ema_decay": 0.9, "init_from": str(tmp_path / "model.pt")}
    podpo = build(podpo_file | {"algorithm": {"class_name": "podpo:PODPO", **options}})
    assert podpo.get_policy() is podpo.averaged_actor
    assert torch.allclose(podpo.get_policy().noise_std, torch.tensor(0.3))
    assert torch.equal(podpo.get_policy().mlp[2].weight, gaussian["mlp.2.weight"])


def test_a_plain_actor_is_no_gaussian(obs: TensorDict) -> None:
    """It would load, and act without any noise."""
    gaussian = MLPModel(obs, GROUPS, "actor", 3, (16, 8), "elu", True, {"class_name": "GaussianDistribution"})
    with pytest.raises(ConfigError, match=r"set actor\.init to skip"):
        become_gaussian(make_actor(obs, init="plain"), gaussian.state_dict())


def test_start_from_a_ppo_checkpoint(ppo_file: dict[str, Any], podpo_file: dict[str, Any], tmp_path: Any) -> None:
    env = make_task("point-track", 4, 0)
    as_ppo = copy.deepcopy(ppo_file)
    as_ppo["algorithm"] |= {"class_name": "PPO", "rnd_cfg": None}
    as_ppo["multi_gpu"] = None
    ppo = PPO.construct_algorithm(env.get_observations(), env, as_ppo, "cpu")
    ppo.actor.update_normalization(env.get_observations())
    torch.save(ppo.save() | {"iter": 3, "infos": None}, tmp_path / "model_3.pt")

    podpo_file["algorithm"]["init_from"] = str(tmp_path / "model_3.pt")
    with pytest.warns(UserWarning):
        podpo = build(podpo_file)
    obs = env.get_observations()
    torch.manual_seed(0)
    expected = ppo.actor(obs, stochastic_output=True)
    torch.manual_seed(0)
    assert torch.allclose(podpo.actor(obs, stochastic_output=True), expected, atol=1e-6)
    assert torch.allclose(podpo.critic(obs), ppo.critic(obs), atol=1e-6)
    with pytest.raises(ConfigError, match="init_from"):
        podpo.load(ppo.save(), None, True)

    torch.save({"model_state_dict": {}}, tmp_path / "old.pt")
    podpo_file["algorithm"]["init_from"] = str(tmp_path / "old.pt")
    with pytest.raises(ConfigError, match="no checkpoint of rsl_rl 5"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        build(podpo_file)

    torch.save(podpo.save(), tmp_path / "ours.pt")
    podpo_file["algorithm"]["init_from"] = str(tmp_path / "ours.pt")
    with pytest.raises(ConfigError, match="PODPO wrote it; resume from it instead"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        build(podpo_file)

    podpo_file["algorithm"]["init_from"] = str(tmp_path / "model_3.pt")
    podpo_file["critic"]["hidden_dims"] = [8]
    with pytest.raises(ConfigError, match="give the critic the layers"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        build(podpo_file)

    podpo_file["algorithm"]["init_from"] = str(tmp_path / "nowhere.pt")
    with pytest.raises(ConfigError, match="no such file"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        build(podpo_file)
