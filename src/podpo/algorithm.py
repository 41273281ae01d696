"""PODPO as the one class that an rsl_rl runner calls: `algorithm.class_name: "podpo:PODPO"`.

Each iteration collects a rollout, estimates normalised advantages and then, for a few epochs of minibatches,
pulls G candidate actions towards the action of every positive-advantage sample (the drifting loss) and fits the
critic to all samples (PPO's value loss). No likelihood, no ratio, no KL divergence, no clipping of the actor.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from rsl_rl.env import VecEnv
from rsl_rl.models import MLPModel
from rsl_rl.storage import RolloutStorage
from rsl_rl.utils import resolve_obs_groups, resolve_optimizer
from tensordict import TensorDict
from torch import Tensor, nn

from podpo import drift
from podpo.actor import OneStepActor
from podpo.config import PODPOConfig
from podpo.ppo_config import read_ppo_file
from podpo.ranks import Ranks
from podpo.returns import gae, next_state_values, standardize, value_loss
from podpo.samples import Samples, flatten_rollout, minibatches
from podpo.step_size import Probe, StepSize, exploration_std
from podpo.validation import ConfigError, require, require_finite
from podpo.warm_start import start_from


class PODPO:
    """Positive-Only Drifting Policy Optimization."""

    rnd = None
    intrinsic_rewards = None

    def __init__(
        self,
        actor: OneStepActor,
        critic: MLPModel,
        storage: RolloutStorage,
        config: PODPOConfig | None = None,
        device: str = "cpu",
        multi_gpu_cfg: dict[str, int] | None = None,
    ) -> None:
        self.config = config = config or PODPOConfig()
        self.device = device
        self.ranks = Ranks(multi_gpu_cfg)
        self.actor = actor.to(device)
        self.critic = critic.to(device)
        self.averaged_actor = copy.deepcopy(self.actor) if config.ema_decay else None
        self.step_size = StepSize(config)
        self.learning_rate = self.step_size.value
        groups = [{"params": list(model.parameters())} for model in (self.actor, self.critic)]
        self.optimizer: torch.optim.Optimizer = resolve_optimizer(config.optimizer)(groups, lr=self.learning_rate)  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
        self.storage = storage
        self.transition = RolloutStorage.Transition()
        self.time_outs = torch.zeros_like(storage.rewards[..., 0])
        self.final_values = torch.zeros_like(self.time_outs)
        self.iteration = 0
        self.diagnostics: dict[str, float] = {}
        """`Drift/*` of the latest update."""
        self._unlogged: dict[str, float] = {}

    # Rollout ------------------------------------------------------------------------------------------------

    def act(self, obs: TensorDict) -> Tensor:
        """Sampled actions `[num_envs, D]`, as executed and stored."""
        actions = self.actor(obs, stochastic_output=True).detach()
        if noise_std := exploration_std(self.config, self.iteration):
            actions = actions + noise_std * torch.randn_like(actions)
        transition = self.transition
        transition.observations, transition.actions = obs, actions
        transition.values = self.critic(obs).detach()
        transition.actions_log_prob = torch.zeros(len(actions), device=actions.device)
        transition.distribution_params = ()
        return actions

    def process_env_step(self, obs: TensorDict, rewards: Tensor, dones: Tensor, extras: dict[str, Any]) -> None:
        """Store what the environment answered. `extras` may hold `time_outs` `[num_envs]` and `final_obs`, the
        observations before the reset, read where an environment ran out of time."""
        step = self.storage.step
        self.final_values[step] = self.transition.values.squeeze(-1)  # pyright: ignore[reportOptionalMemberAccess]
        self.transition.rewards = rewards.clone()
        self.transition.dones = dones
        self.storage.add_transition(self.transition)
        self.transition.clear()
        time_outs = extras.get("time_outs", torch.zeros_like(rewards)).to(self.device).bool() & dones.bool()
        self.time_outs[step] = time_outs
        if self.config.exact_time_outs and set(self.critic.obs_groups) <= set(extras.get("final_obs", {}).keys()):
            self._value_final_obs(extras["final_obs"], time_outs, step)
        self._hand_out_diagnostics(extras, is_last_step=step + 1 == self.storage.num_transitions_per_env)

    def compute_returns(self, obs: TensorDict) -> None:
        """Fill in the storage's value targets and advantages, the latter normalised over all ranks' rollouts."""
        rollout, config = self.storage, self.config
        values, truncated = rollout.values.squeeze(-1), self.time_outs
        terminated = rollout.dones.squeeze(-1).float() * (1 - truncated)
        last_values = self.critic(obs).detach().squeeze(-1)
        next_values = next_state_values(values, last_values, truncated, self.final_values)
        rewards = rollout.rewards.squeeze(-1)
        advantages, returns = gae(rewards, values, next_values, terminated, truncated, config.gamma, config.lam)
        rollout.returns.copy_(returns.unsqueeze(-1))
        rollout.advantages.copy_(standardize(advantages, *self.ranks.moments(advantages)).unsqueeze(-1))

    # Update -------------------------------------------------------------------------------------------------

    def update(self) -> dict[str, float]:
        """Train actor and critic on the rollout; returns mean losses and leaves `diagnostics` behind."""
        samples = flatten_rollout(self.storage)
        positives = (samples.advantages > 0).nonzero().squeeze(-1)
        loss_count = self._loss_count(positives, samples.advantages)
        probe = Probe(self.actor, samples.obs)
        measured: dict[str, Tensor] = {}
        totals = torch.zeros(4, device=self.device)

        epochs, batches = self.config.num_learning_epochs, self.config.num_mini_batches
        for actor_batch, critic_batch in minibatches(positives, len(samples.advantages), epochs, batches):
            x, y_pos = self._candidates(samples, actor_batch)
            if not measured and len(x):
                measured = self._measure_field(x.detach(), y_pos)
            loss_drift = self._drift_loss(x, y_pos, samples.advantages[actor_batch], loss_count)
            loss_value = self._value_loss(samples, critic_batch)
            actor_norm, critic_norm = self._step(loss_drift + self.config.value_loss_coef * loss_value)
            totals += torch.stack([loss_value.detach(), loss_drift.detach(), actor_norm, critic_norm])

        measured["displacement"] = self.ranks.mean(probe.displacement(self.actor))
        measured["positive_fraction"] = (samples.advantages > 0).float().mean()
        return self._finish(samples, totals, measured)

    def _loss_count(self, positives: Tensor, advantages: Tensor) -> float:
        """What the drifting loss of a minibatch is divided by: B_pos, in the mean over ranks."""
        averaged = positives if self.config.average_over == "positives" else advantages
        count = self.ranks.mean_number(float(len(averaged)), self.device)
        return max(count / self.config.num_mini_batches, 1.0)

    def _candidates(self, samples: Samples, batch: Tensor) -> tuple[Tensor, Tensor]:
        """Fresh candidates x `[B_pos, G, D]` and the rollout's actions y_pos `[B_pos, 1, D]`."""
        latent = self.actor.get_latent(samples.obs[batch])
        noise = self.actor.sample_noise(len(latent), self.config.num_candidates)
        return self.actor.generate(latent, noise), samples.actions[batch].unsqueeze(1)

    def _drift_loss(self, x: Tensor, y_pos: Tensor, advantages: Tensor, count: float) -> Tensor:
        config = self.config
        V = drift.candidate_V(x.detach(), y_pos, config.pool_size, **self._field_options())
        if config.drift_rms is not None:
            V = V * (config.drift_rms / drift.rms(V))
        V, w = drift.weigh(V, advantages, config.beta, config.weighting, config.match_mean_weight)
        return drift.drift_loss(x, V, w, count, config.over_actions)

    def _value_loss(self, samples: Samples, batch: Tensor) -> Tensor:
        clip = self.config.clip_param if self.config.use_clipped_value_loss else None
        values = self.critic(samples.obs[batch])
        return value_loss(values, samples.values[batch], samples.returns[batch], clip)

    def _step(self, loss: Tensor) -> tuple[Tensor, Tensor]:
        """One step of the optimiser; returns the gradient norms of actor (never clipped) and critic."""
        self.optimizer.zero_grad()
        loss.backward()
        self.reduce_parameters()
        actor_norm = nn.utils.get_total_norm([p.grad for p in self.actor.parameters() if p.grad is not None])
        critic_norm = nn.utils.clip_grad_norm_(self.critic.parameters(), self.config.max_grad_norm)
        self.optimizer.step()
        return actor_norm, critic_norm

    def _finish(self, samples: Samples, totals: Tensor, measured: dict[str, Tensor]) -> dict[str, float]:
        """Everything that follows the last minibatch, the transfer of all metrics in one piece included."""
        self._update_normalizers(samples.obs)
        self._average_actor()
        self.storage.clear()
        self.iteration += 1

        names = list(measured)
        num_updates = self.config.num_learning_epochs * self.config.num_mini_batches
        numbers = torch.cat([totals / num_updates, torch.stack([measured[n].float() for n in names])]).tolist()
        value, drift_value, actor_norm, critic_norm, *rest = numbers
        losses = {"value": value, "drift": drift_value}
        require_finite(losses | {"actor_grad_norm": actor_norm, "critic_grad_norm": critic_norm})
        self.diagnostics = {f"Drift/{name}": number for name, number in zip(names, rest, strict=True)}
        self.diagnostics |= {"Drift/actor_grad_norm": actor_norm, "Drift/critic_grad_norm": critic_norm}
        self._unlogged = dict(self.diagnostics)
        self.learning_rate = self.step_size.advance(self.iteration, self.diagnostics["Drift/displacement"])
        self.optimizer.param_groups[0]["lr"] = self.learning_rate
        return losses

    # Measurements ------------------------------------------------------------------------------------------

    def _field_options(self) -> dict[str, Any]:
        config = self.config
        return {
            "temperatures": config.temperatures,
            "mask_self": config.mask_self,
            "scale": config.scale,
            "normalize": config.normalize,
            "affinity_floor": config.affinity_floor,
        }

    def _measure_field(self, x: Tensor, y_pos: Tensor) -> dict[str, Tensor]:
        """Diagnostics of the field that the rollout's own policy meets: the first minibatch, before any step."""
        spread = x.std(dim=1, correction=0).mean(dim=0)
        self.actor.measured_spread.copy_(spread)
        x, y_pos = (drift.pool(actions, self.config.pool_size) for actions in (x, y_pos))
        return drift.diagnostics(x, y_pos, x, **self._field_options()) | {"spread": spread.mean()}

    def _value_final_obs(self, final_obs: TensorDict, time_outs: Tensor, step: int) -> None:
        # On a GPU the question would stop the queue; there the critic values all environments each step.
        if time_outs.is_cuda or time_outs.any():
            self.final_values[step] = self.critic(final_obs.to(self.device)).detach().squeeze(-1)

    def _hand_out_diagnostics(self, extras: dict[str, Any], is_last_step: bool) -> None:
        """Let rsl_rl's logger show `Drift/*`: it reads the first dictionary of episode metrics it is given."""
        key = "episode" if "episode" in extras else "log"
        if self._unlogged and (key in extras or is_last_step):
            extras[key] = {**extras.get(key, {}), **self._unlogged}
            self._unlogged = {}

    def _update_normalizers(self, obs: TensorDict) -> None:
        models = (self.actor, self.critic)
        for model in models:
            model.update_normalization(obs)
        # rsl_rl pools the ranks' observations from 5.5 on only; before, all ranks take over the first one's.
        self.ranks.broadcast(model.obs_normalizer for model in models)

    @torch.no_grad()
    def _average_actor(self) -> None:
        if self.averaged_actor is None:
            return
        for average, current in zip(self.averaged_actor.parameters(), self.actor.parameters(), strict=True):
            average.lerp_(current, 1 - self.config.ema_decay)
        for average, current in zip(self.averaged_actor.buffers(), self.actor.buffers(), strict=True):
            average.copy_(current)

    # What the runner asks for -------------------------------------------------------------------------------

    @classmethod
    def construct_algorithm(cls, obs: TensorDict, env: VecEnv, cfg: dict[str, Any], device: str) -> PODPO:
        """Build PODPO from an rsl_rl config, in which only `algorithm.class_name` need differ from PPO's."""
        cfg["algorithm"].setdefault("rnd_cfg", None)  # the runner up to 5.4 reads it without asking
        cfg["obs_groups"] = resolve_obs_groups(obs, cfg.get("obs_groups", {}), ["actor", "critic"])
        config, build_actor, build_critic = read_ppo_file(cfg)
        actor = build_actor(obs, cfg["obs_groups"], "actor", env.num_actions)
        critic = build_critic(obs, cfg["obs_groups"], "critic", 1)
        samples = env.num_envs * cfg["num_steps_per_env"]
        few = f"a rollout has only {samples} samples"
        require(config.num_mini_batches <= samples, "num_mini_batches", config.num_mini_batches, few)
        if config.init_from:
            start_from(config.init_from, actor, critic)
        storage = RolloutStorage("rl", env.num_envs, cfg["num_steps_per_env"], obs, [env.num_actions], device)
        return cls(actor, critic, storage, config, device, cfg.get("multi_gpu"))

    def save(self) -> dict[str, Any]:
        """Everything that training needs to go on."""
        saved: dict[str, Any] = {
            "actor_state_dict": self.actor.state_dict(),
            "critic_state_dict": self.critic.state_dict(),
            "optimizer_state_dict": self.optimizer.state_dict(),
            "podpo_state": {
                "iteration": self.iteration,
                "learning_rate": self.learning_rate,
                "spread": self.actor.measured_spread.clone(),
            },
        }
        if self.averaged_actor is not None:
            saved["averaged_actor_state_dict"] = self.averaged_actor.state_dict()
        return saved

    def load(self, loaded_dict: dict[str, Any], load_cfg: dict[str, bool] | None = None, strict: bool = True) -> bool:
        """Restore what `save` returned; `load_cfg` picks among actor, critic, optimizer, iteration (default all)."""
        wanted = {"actor": True, "critic": True, "optimizer": True, "iteration": True} if load_cfg is None else load_cfg
        if "podpo_state" not in loaded_dict:
            raise ConfigError(
                "this checkpoint was not written by PODPO; to start from a PPO policy, set "
                "algorithm.init_from to its path instead of resuming from it."
            )
        state = loaded_dict["podpo_state"]
        if wanted.get("actor"):
            self.actor.load_state_dict(loaded_dict["actor_state_dict"], strict=strict)
            self.actor.measured_spread.copy_(state["spread"])
            if self.averaged_actor is not None:
                averaged = loaded_dict.get("averaged_actor_state_dict", loaded_dict["actor_state_dict"])
                self.averaged_actor.load_state_dict(averaged, strict=strict)
        if wanted.get("critic"):
            self.critic.load_state_dict(loaded_dict["critic_state_dict"], strict=strict)
        if wanted.get("iteration"):
            self.iteration = state["iteration"]
        if wanted.get("optimizer"):
            self.optimizer.load_state_dict(loaded_dict["optimizer_state_dict"])
            self.learning_rate = self.step_size.restore(self.iteration, state["learning_rate"])
            rates = (self.learning_rate, self.config.learning_rate)  # the configuration's, should it have changed
            for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
                group["lr"] = rate
        return wanted.get("iteration", False)

    def get_policy(self) -> OneStepActor:
        """The policy to evaluate and export."""
        return self.actor if self.averaged_actor is None else self.averaged_actor

    def train_mode(self) -> None:
        for model in self._models():
            model.train()

    def eval_mode(self) -> None:
        for model in self._models():
            model.eval()

    def broadcast_parameters(self) -> None:
        self.ranks.broadcast(self._models())

    def reduce_parameters(self) -> None:
        self.ranks.average_gradients(p for group in self.optimizer.param_groups for p in group["params"])

    def _models(self) -> list[MLPModel]:
        return [m for m in (self.actor, self.critic, self.averaged_actor) if m is not None]
