from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from podpo.actor import OneStepActor, StochasticActor, antithetic_noise
from podpo.validation import ConfigError

NUM_OBS, NUM_ACTIONS, BATCH = 5, 3, 7
GROUPS = {"actor": ["policy"]}


@pytest.fixture
def obs() -> TensorDict:
    torch.manual_seed(0)
    return TensorDict({"policy": torch.randn(BATCH, NUM_OBS)}, batch_size=[BATCH])


def make_actor(obs: TensorDict, **options: Any) -> OneStepActor:
    torch.manual_seed(1)
    actor = OneStepActor(obs, GROUPS, "actor", NUM_ACTIONS, (16, 8), obs_normalization=True, **options)
    actor.train()
    actor.update_normalization(TensorDict({"policy": 2 + 3 * torch.randn(64, NUM_OBS)}, batch_size=[64]))
    return actor.eval()


def bend(actor: OneStepActor) -> None:
    """Weights as after training: a last layer of ordinary size, so that noise passes through the net too."""
    torch.manual_seed(2)
    with torch.no_grad():
        actor.mlp[-1].weight.normal_()  # pyright: ignore[reportCallIssue, reportArgumentType]


def test_skip_starts_as_noise_std_times_noise(obs: TensorDict) -> None:
    actor = make_actor(obs, noise_std=0.7)
    z = torch.randn(BATCH, NUM_ACTIONS)
    actions = actor.generate(actor.get_latent(obs), z)
    # The last layer is scaled by 0.01, so what the net adds is small beside the skip.
    assert torch.allclose(actions, 0.7 * z, atol=0.03)
    assert torch.allclose(actor.output_std, torch.tensor(0.7))


def test_plain_starts_with_little_spread(obs: TensorDict) -> None:
    actor = make_actor(obs, init="plain")
    x = actor.generate(actor.get_latent(obs), torch.randn(BATCH, 256, NUM_ACTIONS))
    assert x.std(dim=1).mean() < 0.3
    assert not actor.noise_std.any()


def test_candidates_are_the_net_applied_to_each_observation_and_noise(obs: TensorDict) -> None:
    actor = make_actor(obs)
    bend(actor)
    latent, z = actor.get_latent(obs), torch.randn(BATCH, 4, NUM_ACTIONS)
    x = actor.generate(latent, z)
    for b in range(BATCH):
        for g in range(4):
            expected = actor.mlp(torch.cat([latent[b], z[b, g]])) + actor.noise_std * z[b, g]
            assert torch.allclose(x[b, g], expected, atol=1e-5)


def test_deployments(obs: TensorDict) -> None:
    actor = make_actor(obs)
    bend(actor)
    latent = actor.get_latent(obs)
    assert torch.equal(actor(obs), actor.generate(latent, torch.zeros(BATCH, NUM_ACTIONS)))

    torch.manual_seed(3)
    sampled = actor(obs, stochastic_output=True)
    torch.manual_seed(3)
    assert torch.equal(sampled, actor.generate(latent, torch.randn(BATCH, NUM_ACTIONS)))
    assert not torch.equal(sampled, actor(obs, stochastic_output=True))

    actor.deployment = "mean"
    by_hand = torch.stack([actor.generate(latent, z.expand(BATCH, -1)) for z in actor.mean_noise]).mean(0)
    assert torch.allclose(actor(obs), by_hand, atol=1e-6)
    assert torch.equal(actor(obs), actor(obs)), "the mean uses fixed noises, so that it does not jitter"


@pytest.mark.parametrize("count", [1, 8, 9])
def test_mean_noise_has_mean_zero(count: int) -> None:
    noise = antithetic_noise(count, 6)
    assert noise.shape == (count, 6)
    assert torch.allclose(noise.mean(0), torch.zeros(6), atol=1e-6)


def test_noise_of_the_skip_must_match_the_action(obs: TensorDict) -> None:
    with pytest.raises(ConfigError, match=r"actor\.noise_dim = 2"):
        make_actor(obs, noise_dim=2)
    assert make_actor(obs, noise_dim=2, init="plain")(obs).shape == (BATCH, NUM_ACTIONS)


@pytest.mark.parametrize("options", [{}, {"init": "plain", "noise_dim": 2}])
@pytest.mark.parametrize("deployment", ["zero", "mean"])
def test_exported_modules_act_like_the_actor(obs: TensorDict, options: dict[str, Any], deployment: Any) -> None:
    actor = make_actor(obs, deployment=deployment, **options)
    bend(actor)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(actor.as_jit())
    assert torch.allclose(scripted(obs["policy"]), actor(obs), atol=1e-6)
    assert torch.allclose(actor.as_onnx()(obs["policy"]), actor(obs), atol=1e-6)
    z = torch.randn(BATCH, actor.noise_dim)
    expected = actor.generate(actor.get_latent(obs), z)
    assert torch.allclose(StochasticActor(actor)(obs["policy"], z), expected, atol=1e-6)


def test_a_sampling_deployment_cannot_be_exported_with_fixed_noise(obs: TensorDict) -> None:
    with pytest.raises(ConfigError, match="deployment = 'sample'"):
        make_actor(obs, deployment="sample").as_jit()


def test_an_export_is_a_copy(obs: TensorDict) -> None:
    actor = make_actor(obs)
    exported = actor.as_jit()
    before = exported(obs["policy"]).clone()
    bend(actor)
    assert torch.equal(exported(obs["policy"]), before)
