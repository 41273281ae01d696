"""Tasks without a simulator, vectorised in torch: seconds to learn, for tests, examples and first steps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from podpo.tasks.task import Task

DT_S = 0.02
"""Nominal length of a step, for videos and for extensions that scale by time."""


class ToyTask(Task):
    """A vectorised task with its own random numbers; subclasses say how it starts, moves and pays."""

    step_dt = DT_S
    least_film_steps: int = 0
    """A film of a task with shorter episodes shows several."""

    def __init__(self, num_envs: int, seed: int = 1, device: str = "cpu", for_film: bool = False) -> None:
        self.num_envs = num_envs
        self.device = device
        self.cfg = {"task": type(self).__name__, "num_envs": num_envs, "seed": seed}
        self.film_steps = max(int(self.max_episode_length) - 1, self.least_film_steps)
        self.generator = torch.Generator(device).manual_seed(seed)
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.long, device=device)
        self.episode_return = torch.zeros(num_envs, device=device)
        self.state = self._start()

    def reset(self, seed: int | None = None) -> TensorDict:
        if seed is not None:
            self.generator.manual_seed(seed)
        self.state = self._start()
        self.episode_length_buf = torch.zeros_like(self.episode_length_buf)
        self.episode_return = torch.zeros_like(self.episode_return)
        return self.get_observations()

    def get_observations(self) -> TensorDict:
        return TensorDict({"policy": self._observe()}, batch_size=[self.num_envs], device=self.device)

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        rewards, failed = self._advance(actions)
        self.episode_length_buf = self.episode_length_buf + 1
        self.episode_return = self.episode_return + rewards
        finished = self.episode_length_buf >= self.max_episode_length
        dones = failed | finished
        time_outs = torch.zeros_like(dones) if self.ends_for_good else finished & ~failed
        extras: dict[str, Any] = {"time_outs": time_outs, "final_obs": self.get_observations()}
        if self.num_modes:
            extras |= {"mode": torch.where(dones, self._mode(), -1), "context": self._context()}
        if dones.any():
            extras["log"] = {"Task/episode_return": self.episode_return[dones].mean()}
        self._restart(dones)
        return self.get_observations(), rewards, dones, extras

    def desynchronize(self) -> None:
        self.episode_length_buf = self._uniform(0, float(self.max_episode_length)).long()

    def state_dict(self) -> dict[str, Tensor]:
        own = {"episode_length": self.episode_length_buf, "episode_return": self.episode_return}
        return {
            "generator": self.generator.get_state(),
            **own,
            **{f"state.{k}": v for k, v in self.state.items()},
        }

    def load_state_dict(self, saved: dict[str, Tensor]) -> None:
        self.generator.set_state(saved["generator"].cpu())
        self.episode_length_buf = saved["episode_length"].clone()
        self.episode_return = saved["episode_return"].clone()
        self.state = {name: saved[f"state.{name}"].clone() for name in self.state}

    def render_frame(self) -> np.ndarray:
        from podpo.tasks.toy_drawing import render

        return render(self)

    def export_metadata(self) -> dict[str, Any]:
        return {"action_names": [f"action_{i}" for i in range(self.num_actions)], "action_scale": "none"}

    def _restart(self, dones: Tensor) -> None:
        fresh = self._start()  # drawn for all, so that no environment's dice depend on another's fate
        for name, value in self.state.items():
            self.state[name] = torch.where(dones.view(-1, *[1] * (value.dim() - 1)), fresh[name], value)
        self.episode_length_buf = torch.where(dones, 0, self.episode_length_buf)
        self.episode_return = torch.where(dones, 0.0, self.episode_return)

    def _uniform(self, low: float, high: float, *shape: int) -> Tensor:
        unit = torch.rand(self.num_envs, *shape, generator=self.generator, device=self.device)
        return low + (high - low) * unit

    def _normal(self, std: float, *shape: int) -> Tensor:
        return std * torch.randn(self.num_envs, *shape, generator=self.generator, device=self.device)

    def _start(self) -> dict[str, Tensor]:
        """State at the start of an episode, for every environment."""
        raise NotImplementedError

    def _observe(self) -> Tensor:
        """Observation `[num_envs, num_obs]`, a fresh tensor."""
        raise NotImplementedError

    def _advance(self, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Move the state by one step; reward and failure `[num_envs]`."""
        raise NotImplementedError

    def _mode(self) -> Tensor:
        """Which of the equally good solutions each environment has found, -1 for none."""
        raise NotImplementedError

    def _context(self) -> Tensor:
        return torch.zeros(self.num_envs, dtype=torch.long, device=self.device)


class PointTrack(ToyTask):
    """Twelve sluggish points, each follows a sine of its own speed; one that strays too far ends the episode."""

    num_dims = 12
    num_actions = num_dims
    num_obs = 4 * num_dims
    max_episode_length = 100

    def _start(self) -> dict[str, Tensor]:
        d = self.num_dims
        return {
            "position": self._normal(0.1, d),
            "velocity": self._normal(0.1, d),
            "phase": self._uniform(0, 2 * math.pi, d),
            "phase_rate": self._uniform(0.05, 0.35, d),
        }

    def _observe(self) -> Tensor:
        s = self.state
        target_velocity = 10 * s["phase_rate"] * s["phase"].cos()
        return torch.cat([s["position"], s["velocity"], s["phase"].sin(), target_velocity], dim=1)

    def _advance(self, actions: Tensor) -> tuple[Tensor, Tensor]:
        s = self.state
        velocity = 0.7 * s["velocity"] + 0.6 * actions
        position = s["position"] + 0.1 * velocity
        phase = s["phase"] + s["phase_rate"]
        self.state = {**s, "position": position, "velocity": velocity, "phase": phase}
        error = (position - phase.sin()).square().mean(dim=1)
        reward = torch.exp(-4 * error) - 0.001 * actions.square().mean(dim=1)
        return reward, error > 4


class MultiGoal(ToyTask):
    """A point mass at the centre of a ring of equally good goals."""

    num_modes = 4
    num_actions = 2
    num_obs = 4
    max_episode_length = 50
    reach_m = 0.5

    @property
    def goals(self) -> Tensor:
        """Positions of the goals, `[num_modes, 2]`."""
        angle = (torch.arange(self.num_modes, device=self.device) + 0.5) * (2 * math.pi / self.num_modes)
        return torch.stack([angle.cos(), angle.sin()], dim=1)

    def _start(self) -> dict[str, Tensor]:
        return {"position": self._normal(0.05, 2), "velocity": self._normal(0.05, 2)}

    def _observe(self) -> Tensor:
        return torch.cat([self.state["position"], self.state["velocity"]], dim=1)

    def _advance(self, actions: Tensor) -> tuple[Tensor, Tensor]:
        velocity = 0.7 * self.state["velocity"] + 0.3 * actions
        position = self.state["position"] + 0.1 * velocity
        self.state = {"position": position, "velocity": velocity}
        nearest = self._distances().amin(dim=1)
        reward = torch.exp(-4 * nearest.square()) - 0.001 * actions.square().mean(dim=1)
        return reward, position.norm(dim=1) > 3

    def _distances(self) -> Tensor:
        return (self.state["position"].unsqueeze(1) - self.goals).norm(dim=2)

    def _mode(self) -> Tensor:
        nearest = self._distances().min(dim=1)
        return torch.where(nearest.values < self.reach_m, nearest.indices, -1)


class Bandit(ToyTask):
    """One action per episode; in each of 32 contexts two opposite actions pay equally well."""

    num_modes = 2
    num_contexts = 32
    num_actions = 2
    num_obs = 2
    max_episode_length = 1
    ends_for_good = True
    least_film_steps = 30
    width = 0.3

    def __init__(self, num_envs: int, seed: int = 1, device: str = "cpu", for_film: bool = False) -> None:
        super().__init__(num_envs, seed, device, for_film)
        self.last_action = torch.zeros(num_envs, 2, device=device)
        self.last_direction = self.direction

    def _start(self) -> dict[str, Tensor]:
        return {"context": self._uniform(0, self.num_contexts).long()}

    def _context(self) -> Tensor:
        return self.state["context"].clone()

    @property
    def direction(self) -> Tensor:
        """Unit vector towards one of the two modes of each environment's context; the other is opposite."""
        angle = self.state["context"] * (2 * math.pi / self.num_contexts)
        return torch.stack([angle.cos(), angle.sin()], dim=1)

    def _observe(self) -> Tensor:
        return self.direction

    def _advance(self, actions: Tensor) -> tuple[Tensor, Tensor]:
        self.last_action, self.last_direction = actions.clone(), self.direction
        nearest = self._distances().amin(dim=1)
        reward = torch.exp(-nearest.square() / (2 * self.width**2))
        return reward, torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)

    def _distances(self) -> Tensor:
        modes = torch.stack([self.last_direction, -self.last_direction], dim=1)
        return (self.last_action.unsqueeze(1) - modes).norm(dim=2)

    def _mode(self) -> Tensor:
        nearest = self._distances().min(dim=1)
        return torch.where(nearest.values < 2 * self.width, nearest.indices, -1)
