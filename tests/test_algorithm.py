from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from conftest import roll_out
from tensordict import TensorDict

from podpo import drift
from podpo.algorithm import PODPO
from podpo.returns import gae, next_state_values
from podpo.samples import flatten_rollout, minibatches
from podpo.tasks import make_task
from podpo.validation import ConfigError, DivergedError


def parameters(algorithm: Any) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in algorithm.actor.parameters()])


def test_update_trains_both_networks_and_reports(make_podpo: Any) -> None:
    algorithm, env = make_podpo()
    actor, critic = parameters(algorithm), algorithm.critic.mlp[0].weight.clone()
    roll_out(algorithm, env)
    losses = algorithm.update()
    assert not torch.equal(actor, parameters(algorithm))
    assert not torch.equal(critic, algorithm.critic.mlp[0].weight)
    assert set(losses) == {"value", "drift"}
    assert all(value > 0 for value in losses.values())
    shown = algorithm.diagnostics
    assert 0 < shown["Drift/ess_ratio/0.02"] < shown["Drift/ess_ratio/2"] <= 1
    assert shown["Drift/max_p/0.02"] > shown["Drift/max_p/2"]
    assert shown["Drift/displacement"] > 0
    assert 0.2 < shown["Drift/positive_fraction"] < 0.8
    # The skip starts with the spread of the PPO file's init_std.
    assert shown["Drift/spread"] == pytest.approx(0.7, abs=0.1)


def test_drift_pulls_actions_towards_what_worked(make_podpo: Any) -> None:
    """With one advantage that is positive everywhere the mean action must approach the stored action."""
    algorithm, env = make_podpo(num_envs=32, learning_rate=3e-3, num_learning_epochs=20)
    roll_out(algorithm, env)
    goal = torch.full_like(algorithm.storage.actions, 1.5)
    algorithm.storage.actions.copy_(goal)
    algorithm.storage.advantages.fill_(1.0)
    obs = algorithm.storage.observations.flatten(0, 1).clone()
    before = (algorithm.actor(obs) - 1.5).abs().mean().item()
    algorithm.update()
    assert (algorithm.actor(obs) - 1.5).abs().mean().item() < 0.7 * before


def test_negative_samples_do_not_move_the_actor(make_podpo: Any) -> None:
    algorithm, env = make_podpo()
    roll_out(algorithm, env)
    algorithm.storage.advantages.fill_(-1.0)
    before = parameters(algorithm)
    losses = algorithm.update()
    assert losses["drift"] == 0.0
    assert torch.equal(before, parameters(algorithm)), "no positive sample, so the gradient is exactly zero"
    assert losses["value"] > 0
    assert all(torch.isfinite(p).all() for p in algorithm.actor.parameters())


def test_a_single_positive_sample_does_no_harm(make_podpo: Any) -> None:
    algorithm, env = make_podpo(num_mini_batches=4)
    roll_out(algorithm, env)
    algorithm.storage.advantages.fill_(-1.0)
    algorithm.storage.advantages[3, 5] = 2.0
    before = parameters(algorithm)
    algorithm.update()
    after = parameters(algorithm)
    assert torch.isfinite(after).all()
    assert not torch.equal(before, after)


def test_minibatches_cover_all_samples_once_per_epoch() -> None:
    positives = torch.tensor([1, 4, 5, 7, 9, 11, 12])
    batches = list(minibatches(positives, num_samples=20, num_epochs=2, num_batches=3))
    assert len(batches) == 6
    for epoch in (batches[:3], batches[3:]):
        assert sorted(torch.cat([a for a, _ in epoch]).tolist()) == positives.tolist()
        assert sorted(torch.cat([c for _, c in epoch]).tolist()) == list(range(20))
    assert len(list(minibatches(positives[:0], 20, num_epochs=2, num_batches=3))) == 6, "ranks must stay together"


def test_gradient_of_a_minibatch_is_the_papers(make_podpo: Any) -> None:
    """d L / d x = -2 beta |A| V / (G B_pos), for the V of the very candidates."""
    algorithm, env = make_podpo(num_mini_batches=1)
    roll_out(algorithm, env)
    samples = flatten_rollout(algorithm.storage)
    positives = (samples.advantages > 0).nonzero().squeeze(-1)
    count = algorithm._loss_count(positives, samples.advantages)
    assert count == len(positives)
    x, y_pos = algorithm._candidates(samples, positives)
    assert x.shape == (len(positives), 8, env.num_actions)
    x = x.detach().requires_grad_()
    algorithm._drift_loss(x, y_pos, samples.advantages[positives], count).backward()
    V = drift.compute_V(x.detach(), y_pos, x.detach())
    w = 0.1 * samples.advantages[positives]
    expected = -2 * w[:, None, None] * V / (8 * len(positives))
    assert torch.allclose(x.grad, expected, rtol=1e-4, atol=1e-9)


def test_positives_are_the_actions_of_their_own_observation(make_podpo: Any) -> None:
    algorithm, env = make_podpo()
    roll_out(algorithm, env)
    samples = flatten_rollout(algorithm.storage)
    _, y_pos = algorithm._candidates(samples, torch.tensor([0, 9, 63]))
    stored = algorithm.storage.actions
    expected = torch.stack([stored[0, 0], stored[1, 1], stored[7, 7]])
    assert torch.equal(y_pos.squeeze(1), expected)


def test_advantages_follow_from_the_rollout(make_podpo: Any) -> None:
    algorithm, env = make_podpo()
    env.episode_length_buf[:4] = 95  # these run out of time within the rollout
    roll_out(algorithm, env)
    storage = algorithm.storage
    truncated = algorithm.time_outs
    assert truncated[:, :4].sum() == 4
    assert truncated[:, 4:].sum() == 0
    values = storage.values.squeeze(-1)
    last = algorithm.critic(env.get_observations()).detach().squeeze(-1)
    next_values = next_state_values(values, last, truncated, algorithm.final_values)
    terminated = storage.dones.squeeze(-1).float() - truncated
    advantages, returns = gae(storage.rewards.squeeze(-1), values, next_values, terminated, truncated, 0.99, 0.95)
    assert torch.allclose(storage.returns.squeeze(-1), returns, atol=1e-5)
    expected = (advantages - advantages.mean()) / advantages.std()
    assert torch.allclose(storage.advantages.squeeze(-1), expected, atol=1e-4)
    assert storage.advantages.mean().abs() < 1e-5


def test_time_outs_use_the_true_final_observation_where_there_is_one(make_podpo: Any) -> None:
    def returns(**options: Any) -> torch.Tensor:
        algorithm, env = make_podpo(**options)
        env.episode_length_buf[:] = 99  # the first step is the last
        with torch.inference_mode():
            before = algorithm.critic(env.get_observations()).squeeze(-1)
            obs, rewards, dones, extras = env.step(algorithm.act(env.get_observations()))
            algorithm.process_env_step(obs, rewards, dones, extras)
            final = algorithm.critic(extras["final_obs"]).squeeze(-1)
            for _ in range(7):
                algorithm.act(obs)
                algorithm.process_env_step(obs, rewards, torch.zeros_like(dones), {})
            algorithm.compute_returns(obs)
        target = final if options.get("exact_time_outs", True) else before
        assert torch.allclose(algorithm.storage.returns[0, :, 0], rewards + 0.99 * target, atol=1e-5)
        return target

    assert not torch.allclose(returns(), returns(exact_time_outs=False))


def test_exploration_noise_is_stored(make_podpo: Any) -> None:
    algorithm, env = make_podpo(exploration_std=10.0, num_envs=64)
    roll_out(algorithm, env)
    # The policy's own spread of 0.7 disappears beside it.
    assert algorithm.storage.actions.std().item() == pytest.approx(10.0, rel=0.1)


def test_exploration_noise_falls_with_a_linear_schedule(make_podpo: Any) -> None:
    algorithm, env = make_podpo(
        exploration_std=40.0, exploration_schedule="linear", decay_iterations=4, num_envs=64, learning_rate=1e-9
    )
    spreads = []
    for _ in range(5):
        roll_out(algorithm, env)
        spreads.append(algorithm.storage.actions.std().item())
        algorithm.update()
    # The policy's own spread of 0.7 is what is left in the end.
    assert spreads == pytest.approx([40.0, 30.0, 20.0, 10.0, 0.7], rel=0.1)


@pytest.mark.parametrize(
    "options",
    [
        {"num_candidates": 1, "mask_self": False},
        {"num_candidates": 4, "temperatures": [0.5]},
        {"scale": "observation"},
        {"scale": 0.8, "normalize": "per-temperature"},
        {"weighting": "none", "match_mean_weight": True},
        {"weighting": "log1p"},
        {"weighting": "tanh"},
        {"weighting": "V-norm"},
        {"pool_size": 5},
        {"pool_size": 10_000},
        {"mask_self": False},
        {"drift_rms": 0.1},
        {"over_actions": "mean", "average_over": "batch"},
        {"ema_decay": 0.9},
        {"optimizer": "adamw"},
        {"use_clipped_value_loss": False},
    ],
    ids=str,
)
def test_every_option_trains(make_podpo: Any, options: dict[str, Any]) -> None:
    algorithm, env = make_podpo(**options)
    before = parameters(algorithm)
    for _ in range(2):
        roll_out(algorithm, env)
        algorithm.update()
    after = parameters(algorithm)
    assert torch.isfinite(after).all()
    assert not torch.equal(before, after)


STEEP = {"optimizer": "sgd", "learning_rate": 0.05, "max_grad_norm": 1e6, "clip_param": 1e-3}
"""Adam and the clipped norm would hide a change of scale, small steps the clipped value loss."""


@pytest.mark.parametrize(
    ("network", "option"),
    [
        ("actor", {"num_candidates": 4}),
        ("actor", {"temperatures": [0.5]}),
        ("actor", {"beta": 0.2}),
        ("actor", {"weighting": "tanh"}),
        ("actor", {"scale": "observation"}),
        ("actor", {"normalize": "per-temperature"}),
        ("actor", {"affinity_floor": 1e-2}),
        ("actor", {"mask_self": False}),
        ("actor", {"pool_size": 4}),
        ("actor", {"drift_rms": 0.5}),
        ("actor", {"over_actions": "mean"}),
        ("actor", {"average_over": "batch"}),
        ("critic", {"value_loss_coef": 0.5}),
        ("critic", {"use_clipped_value_loss": False}),
        ("critic", {"max_grad_norm": 1e-3}),
        ("critic", {"gamma": 0.5}),
        ("critic", {"lam": 0.5}),
    ],
    ids=str,
)
def test_every_option_reaches_its_network(make_podpo: Any, network: str, option: dict[str, Any]) -> None:
    """Two updates from the same seed that differ in the option alone."""

    def updated(**options: Any) -> torch.Tensor:
        algorithm, env = make_podpo(**(STEEP | options))
        roll_out(algorithm, env)
        torch.manual_seed(1)
        algorithm.update()
        return torch.cat([p.detach().flatten() for p in getattr(algorithm, network).parameters()])

    assert torch.equal(updated(), updated())
    assert not torch.equal(updated(), updated(**option))


def test_drift_rms_sets_the_length_of_the_drift(make_podpo: Any) -> None:
    algorithm, env = make_podpo(drift_rms=0.25, weighting="none", num_mini_batches=1)
    roll_out(algorithm, env)
    samples = flatten_rollout(algorithm.storage)
    batch = torch.arange(20)
    x, y_pos = algorithm._candidates(samples, batch)
    x = x.detach().requires_grad_()
    algorithm._drift_loss(x, y_pos, samples.advantages[batch], 20.0).backward()
    V = -x.grad * 8 * 20 / (2 * 0.1)
    assert V.square().mean().sqrt().item() == pytest.approx(0.25, rel=1e-4)


def test_batch_average_divides_by_all_samples(make_podpo: Any) -> None:
    algorithm, env = make_podpo(average_over="batch")
    roll_out(algorithm, env)
    samples = flatten_rollout(algorithm.storage)
    positives = (samples.advantages > 0).nonzero().squeeze(-1)
    assert algorithm._loss_count(positives, samples.advantages) == 8 * 8 / 2


def test_linear_step_size_falls_to_zero(make_podpo: Any) -> None:
    algorithm, env = make_podpo(step_size="linear", decay_iterations=4)
    rates = []
    for _ in range(4):
        roll_out(algorithm, env)
        algorithm.update()
        rates.append(algorithm.optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([0.75e-3, 0.5e-3, 0.25e-3, 0.0])
    assert algorithm.optimizer.param_groups[1]["lr"] == 1e-3, "the critic keeps its own"
    with pytest.warns(UserWarning, match="fell to zero after decay_iterations = 4"):
        roll_out(algorithm, env)
        algorithm.update()
    with pytest.raises(ConfigError, match="decay_iterations"):
        make_podpo(step_size="linear")


@pytest.mark.parametrize("broken", ["rewards", "actions"])
def test_numbers_that_are_none_stop_the_training(make_podpo: Any, broken: str) -> None:
    algorithm, env = make_podpo()
    roll_out(algorithm, env)
    if broken == "rewards":
        algorithm.storage.returns[2, 3] = float("nan")
    else:
        algorithm.storage.actions[:] = float("inf")
    with pytest.raises(DivergedError, match="training has diverged"):
        algorithm.update()


def test_final_observations_without_the_critics_groups_are_left_alone(make_podpo: Any) -> None:
    algorithm, env = make_podpo()
    obs = env.get_observations()
    with torch.inference_mode():
        algorithm.act(obs)
        ones = torch.ones(8)
        extras = {"time_outs": ones, "final_obs": TensorDict({"images": ones}, batch_size=[8])}
        algorithm.process_env_step(obs, ones, ones, extras)
    assert torch.equal(algorithm.final_values[0], algorithm.storage.values[0, :, 0])


def test_only_an_episode_that_ended_ran_out_of_time(make_podpo: Any) -> None:
    algorithm, env = make_podpo()
    obs, ones = env.get_observations(), torch.ones(8)
    dones = torch.tensor([1, 0] * 4)
    with torch.inference_mode():
        algorithm.act(obs)
        algorithm.process_env_step(obs, ones, dones, {"time_outs": ones})
    assert torch.equal(algorithm.time_outs[0], dones.float())


@pytest.mark.parametrize(("target", "factor"), [(1e-9, 1 / 1.5), (1e9, 1.5)])
def test_adaptive_step_size_follows_the_displacement(make_podpo: Any, target: float, factor: float) -> None:
    algorithm, env = make_podpo(step_size="adaptive", displacement_target=target)
    roll_out(algorithm, env)
    algorithm.update()
    assert algorithm.learning_rate == pytest.approx(1e-3 * factor)


def test_displacement_is_the_squared_move_in_spreads(make_podpo: Any) -> None:
    from podpo.step_size import Probe

    algorithm, env = make_podpo()
    probe = Probe(algorithm.actor, env.get_observations())
    assert probe.displacement(algorithm.actor) == 0
    with torch.no_grad():
        algorithm.actor.mlp[-1].bias += 0.35
    # Every action moved by 0.35, half of the spread 0.7: 0.5^2.
    assert probe.displacement(algorithm.actor).item() == pytest.approx(0.25, rel=1e-4)


def test_averaged_actor_is_the_one_deployed(make_podpo: Any) -> None:
    algorithm, env = make_podpo(ema_decay=0.75)
    start = algorithm.actor.mlp[0].weight.clone()
    roll_out(algorithm, env)
    algorithm.update()
    policy = algorithm.get_policy()
    assert policy is not algorithm.actor
    expected = 0.75 * start + 0.25 * algorithm.actor.mlp[0].weight
    assert torch.allclose(policy.mlp[0].weight, expected, atol=1e-7)
    assert torch.equal(policy.obs_normalizer._mean, algorithm.actor.obs_normalizer._mean)
    assert torch.equal(policy.output_std, algorithm.actor.output_std)


def test_actor_gradient_is_never_clipped_and_the_critics_is(make_podpo: Any) -> None:
    algorithm, _ = make_podpo(max_grad_norm=0.5)
    loss = 1e3 * sum(p.sum() for m in (algorithm.actor, algorithm.critic) for p in m.parameters())
    algorithm.optimizer.step = lambda: None
    actor_norm, critic_norm = algorithm._step(loss)
    assert actor_norm > 1e3
    assert critic_norm > 1e3
    norms = [torch.cat([p.grad.flatten() for p in m.parameters()]).norm() for m in (algorithm.actor, algorithm.critic)]
    assert norms[0].item() == pytest.approx(actor_norm.item())
    assert norms[1].item() == pytest.approx(0.5, rel=1e-3)


def test_a_time_out_without_its_final_observation_is_worth_its_own_state(make_podpo: Any) -> None:
    """An earlier rollout had final observations; nothing of them may be left in this one."""
    algorithm, env = make_podpo(gamma=0.5)
    env.episode_length_buf[:] = 99
    roll_out(algorithm, env)
    algorithm.storage.clear()
    with torch.inference_mode():
        obs = env.get_observations()
        for _ in range(8):
            algorithm.act(obs)
            zeros = torch.zeros(8)
            algorithm.process_env_step(obs, zeros, zeros + 1, {"time_outs": zeros + 1})
        algorithm.compute_returns(obs)
    assert torch.allclose(algorithm.storage.returns, 0.5 * algorithm.storage.values)


def test_diagnostics_are_those_of_the_pools(make_podpo: Any) -> None:
    algorithm, _ = make_podpo(pool_size=4)
    x, y_pos = torch.randn(9, 8, 12), torch.randn(9, 1, 12)
    measured = algorithm._measure_field(x, y_pos)
    pooled = x[:8].reshape(2, 32, 12)
    expected = drift.diagnostics(pooled, y_pos[:8].reshape(2, 4, 12), pooled)
    assert measured["max_p/2"] == expected["max_p/2"]
    assert measured["spread"] == x.std(dim=1, correction=0).mean(), "the spread is that of one observation's actions"


def test_a_subclass_builds_itself(podpo_file: dict[str, Any]) -> None:
    class Mine(PODPO):
        pass

    env = make_task("point-track", 4, 0)
    assert type(Mine.construct_algorithm(env.get_observations(), env, podpo_file, "cpu")) is Mine


def test_same_seed_same_bits(make_podpo: Any) -> None:
    def train() -> torch.Tensor:
        algorithm, env = make_podpo(seed=3)
        for _ in range(2):
            roll_out(algorithm, env)
            algorithm.update()
        return parameters(algorithm)

    assert torch.equal(train(), train())


@pytest.mark.parametrize("options", [{}, {"ema_decay": 0.9, "step_size": "adaptive"}])
def test_save_and_load_continue_bit_for_bit(make_podpo: Any, options: dict[str, Any]) -> None:
    algorithm, env = make_podpo(**options)
    roll_out(algorithm, env)
    algorithm.update()
    saved, dice, world = copy.deepcopy(algorithm.save()), torch.get_rng_state(), copy.deepcopy(env.state_dict())
    roll_out(algorithm, env)
    algorithm.update()

    other, other_env = make_podpo(seed=9, **options)
    assert other.load(saved, None, True) is True
    torch.set_rng_state(dice)
    other_env.load_state_dict(world)
    roll_out(other, other_env)
    other.update()
    assert torch.equal(parameters(algorithm), parameters(other))
    assert algorithm.learning_rate == other.learning_rate
    assert algorithm.iteration == other.iteration == 2
    for key, value in algorithm.get_policy().state_dict().items():
        assert torch.equal(value, other.get_policy().state_dict()[key])


def test_a_changed_step_size_holds_after_loading(make_podpo: Any) -> None:
    source, _ = make_podpo(learning_rate=1e-3)
    saved = source.save()
    for options, expected in (
        ({"learning_rate": 4e-4}, 4e-4),
        ({"learning_rate": 4e-4, "step_size": "adaptive"}, 1e-3),
    ):
        other, _ = make_podpo(**options)
        other.load(saved, None, True)
        assert other.learning_rate == other.optimizer.param_groups[0]["lr"] == expected
        assert other.optimizer.param_groups[1]["lr"] == 4e-4


def test_partial_load(make_podpo: Any) -> None:
    source, _ = make_podpo(seed=1)
    target, _ = make_podpo(seed=2)
    critic = target.critic.mlp[0].weight.clone()
    assert target.load(source.save(), {"actor": True}, True) is False
    assert torch.equal(parameters(source), parameters(target))
    assert torch.equal(target.critic.mlp[0].weight, critic)


def test_diagnostics_reach_the_hosts_logger_once(make_podpo: Any) -> None:
    algorithm, env = make_podpo()
    roll_out(algorithm, env)
    algorithm.update()
    seen: list[dict[str, float]] = []
    with torch.inference_mode():
        for _ in range(8):
            obs, rewards, dones, extras = env.step(algorithm.act(env.get_observations()))
            algorithm.process_env_step(obs, rewards, dones, extras)
            seen.append({k: v for k, v in extras.get("log", {}).items() if k.startswith("Drift/")})
    assert [len(s) > 0 for s in seen].count(True) == 1
    assert next(s for s in seen if s) == algorithm.diagnostics
