"""The base of every robot task: one robot in the Genesis simulator, position-controlled, in many environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from podpo.tasks.cuda_graph import as_one_launch
from podpo.tasks.genesis_scene import Scene, start
from podpo.tasks.task import Task


class Body(NamedTuple):
    """The robot as its sensors see it, in all environments; `_b` is the frame of its base."""

    height_m: Tensor
    gravity_b: Tensor
    """Direction of gravity, a unit vector."""
    lin_vel_b: Tensor
    ang_vel_b: Tensor
    joint_pos_rad: Tensor
    joint_vel: Tensor

    @classmethod
    def read(cls, qpos: Tensor, qvel: Tensor) -> Body:
        w, x, y, z = qpos[:, 3:7].unbind(dim=1)
        gravity_b = torch.stack([2 * (w * y - x * z), -2 * (w * x + y * z), 2 * (x * x + y * y) - 1], dim=1)
        axis = -qpos[:, 4:7]  # of the inverse rotation
        turned = torch.cross(axis, qvel[:, :3], dim=1) * 2
        lin_vel_b = qvel[:, :3] + qpos[:, 3:4] * turned + torch.cross(axis, turned, dim=1)
        return cls(qpos[:, 2], gravity_b, lin_vel_b, qvel[:, 3:6], qpos[:, 7:], qvel[:, 6:])


class RobotTask(Task):
    """Subclasses are the numbers below and five methods: how episodes start, what is seen, paid, measured, a failure.

    All of them run inside one CUDA graph on a GPU: tensors alone, changed in place where they outlive a step, and
    nothing that waits for a number.
    """

    robot_file: str
    joint_names: tuple[str, ...]
    """In the simulator's order, which is that of actions and observations."""
    default_pose_rad: tuple[float, ...]
    """Where a joint stands for the action 0."""
    start_pos_m: tuple[float, float, float]
    kp: float
    kd: float
    action_scale: float
    """Radians of joint target for an action of 1."""
    action_clip: float = 100.0
    action_latency_steps: int = 1
    """An action takes effect one step (1) after the observation it answers, or at once (0)."""
    step_dt = 0.02
    substeps = 2
    episode_length_s = 20.0
    reward_weights: Mapping[str, float]
    """Pay per second of each term."""
    num_randoms: int = 0
    """Uniform random numbers that each environment needs in a step."""

    def __init__(self, num_envs: int, seed: int = 1, device: str = "cpu", for_film: bool = False) -> None:
        self.num_envs, self.device = num_envs, device
        self.num_actions = len(self.joint_names)
        self.max_episode_length = round(self.episode_length_s / self.step_dt)
        self.cfg = {"task": type(self).__name__, "num_envs": num_envs, "seed": seed}
        self.generator = torch.Generator(device)
        start(device, seed)
        self.scene = Scene(num_envs, self.robot_file, self.start_pos_m, self.step_dt, self.substeps, for_film)
        first, last = self.scene.robot.n_dofs - self.num_actions, self.scene.robot.n_dofs
        self.joints = slice(first, last)
        names = [joint.name for joint in self.scene.robot.joints if joint.n_dofs == 1]
        assert names == list(self.joint_names), f"the simulator orders the joints differently: {names}"
        self.scene.robot.set_dofs_kp([self.kp] * self.num_actions, range(first, last))
        self.scene.robot.set_dofs_kv([self.kd] * self.num_actions, range(first, last))

        def on_device(*numbers: float) -> Tensor:
            return torch.tensor(numbers, device=device)

        self.default_pose = on_device(*self.default_pose_rad)
        self.start_qpos = torch.cat([on_device(*self.start_pos_m), on_device(1.0, 0.0, 0.0, 0.0), self.default_pose])
        still = self.start_qpos.new_zeros(1, last)
        self.start_body = Body.read(self.start_qpos.unsqueeze(0), still)
        self.weights = on_device(*self.reward_weights.values()) * self.step_dt
        zeros = torch.zeros(num_envs, self.num_actions, device=device)
        self.state: dict[str, Tensor] = {
            "episode_length": torch.zeros(num_envs, dtype=torch.long, device=device),
            "actions": zeros,
            "last_actions": zeros.clone(),
            "randoms": torch.zeros(num_envs, self.num_randoms, device=device),
        } | self._own_state()
        self._obs = torch.zeros(num_envs, self.num_obs, device=device)
        self._follow_up = as_one_launch(self._after_physics, device)
        self.reset(seed)

    # What a subclass says -----------------------------------------------------------------------------------

    def _own_state(self) -> dict[str, Tensor]:
        """Tensors `[num_envs, ...]` of the task itself that outlive a step."""
        return {}

    def _restart(self, where: Tensor) -> None:
        """Change the task's own state where an episode begins."""

    def _move_on(self) -> None:
        """Change the task's own state in the course of an episode, after its step has been paid."""

    def _observe(self, body: Body) -> Tensor:
        """Observation `[num_envs, num_obs]`."""
        raise NotImplementedError

    def _reward_terms(self, body: Body) -> list[Tensor]:
        """In the order of `reward_weights`, each `[num_envs]`."""
        raise NotImplementedError

    def _failed(self, body: Body) -> Tensor:
        """Where the episode ends in failure."""
        raise NotImplementedError

    def _measure(self, body: Body) -> dict[str, Tensor]:
        """The `measures` of a step."""
        return {}

    # The verbs of a task ------------------------------------------------------------------------------------

    @torch.inference_mode()
    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        state = self.state
        state["actions"].copy_(actions).clamp_(-self.action_clip, self.action_clip)
        executed = state["last_actions"] if self.action_latency_steps else state["actions"]
        targets = torch.add(self.default_pose, executed, alpha=self.action_scale)
        self.scene.robot.control_dofs_position(targets, self.joints)
        self.scene.step()
        state["randoms"].uniform_(generator=self.generator)
        self._follow_up()
        dones = self._dones.clone()
        # Asking whether any episode has ended would make a GPU wait; on a CPU it saves the call.
        if dones.is_cuda or dones.any():
            self.scene.place(self.start_qpos, dones)
        extras: dict[str, Any] = {
            "time_outs": self._time_outs.clone(),
            "final_obs": self._as_observations(self._final_obs),
            "measures": {name: value.clone() for name, value in self._measures.items()},
            "log": dict(zip(self._log_names, self._log.clone().unbind(), strict=True)),
        }
        return self.get_observations(), self._rewards.clone(), dones, extras

    def get_observations(self) -> TensorDict:
        return self._as_observations(self._obs)

    @torch.inference_mode()
    def reset(self, seed: int | None = None) -> TensorDict:
        if seed is not None:
            self.generator.manual_seed(seed)
        everywhere = torch.ones(self.num_envs, dtype=torch.bool, device=self.device)
        self.scene.place(self.start_qpos, everywhere)
        self.state["randoms"].uniform_(generator=self.generator)
        self._begin_episodes(everywhere)
        self._obs.copy_(self._observe(self._start_body_where(everywhere, self._body())))
        return self.get_observations()

    def desynchronize(self) -> None:
        lengths = torch.empty(self.num_envs, device=self.device).uniform_(generator=self.generator)
        self.state["episode_length"].copy_((lengths * self.max_episode_length).long())

    @property
    def episode_length_buf(self) -> Tensor:
        return self.state["episode_length"]

    @episode_length_buf.setter
    def episode_length_buf(self, lengths: Tensor) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self.state["episode_length"].copy_(lengths)  # in place, for the CUDA graph

    def state_dict(self) -> dict[str, Tensor]:
        own = {f"task.{name}": value.clone() for name, value in self.state.items()}
        simulator = {f"simulator.{name}": value.clone() for name, value in self.scene.state_dict().items()}
        return {"generator": self.generator.get_state(), "obs": self._obs.clone(), **own, **simulator}

    @torch.inference_mode()  # Genesis may have made its views in that mode
    def load_state_dict(self, saved: dict[str, Tensor]) -> None:
        self.generator.set_state(saved["generator"].cpu())
        self._obs.copy_(saved["obs"])
        for name, value in self.state.items():
            value.copy_(saved[f"task.{name}"])
        prefix = "simulator."
        self.scene.load_state_dict({n.removeprefix(prefix): v for n, v in saved.items() if n.startswith(prefix)})

    def export_metadata(self) -> dict[str, Any]:
        return {
            "joint_names": list(self.joint_names),
            "default_joint_pos_rad": list(self.default_pose_rad),
            "joint_kp": [self.kp] * self.num_actions,
            "joint_kd": [self.kd] * self.num_actions,
            "action_names": [f"{name} target" for name in self.joint_names],
            "action_scale": self.action_scale,
            "action_scale_applied": False,
            "action_latency_steps": self.action_latency_steps,
        }

    def render_frame(self) -> np.ndarray:
        """The first robot, from a camera that goes along."""
        x, y, _ = self.scene.qpos[0, :3].tolist()
        return self.scene.look((x + 1.4, y - 1.4, 0.9), (x, y, 0.25))

    # Inside a step ------------------------------------------------------------------------------------------

    def _after_physics(self) -> None:
        """All that follows the simulator's step, but for putting robots back to their start."""
        state = self.state
        state["episode_length"] += 1
        body = self._body()
        broken = self.scene.errors > 0
        failed = self._failed(body) | broken
        over = state["episode_length"] >= self.max_episode_length
        self._time_outs = over & ~failed
        self._dones = over | failed
        terms = torch.stack(self._reward_terms(body), dim=1)
        self._rewards = torch.where(broken, 0.0, terms @ self.weights)
        self._measures = self._measure(body)
        numbers = torch.cat([terms, torch.stack([*self._measures.values()], dim=1)], dim=1)
        self._log = torch.where(broken.unsqueeze(1), 0.0, numbers).mean(dim=0)
        state["last_actions"].copy_(state["actions"])
        self._move_on()
        self._final_obs = self._observe(body)
        self._begin_episodes(self._dones)
        self._obs.copy_(self._observe(self._start_body_where(self._dones, body)))

    @property
    def _log_names(self) -> list[str]:
        return [f"Task/{name}" for name in (*self.reward_weights, *self._measures)]

    def _body(self) -> Body:
        return Body.read(self.scene.qpos, self.scene.qvel)

    def _start_body_where(self, where: Tensor, body: Body) -> Body:
        fields = zip(self.start_body, body, strict=True)
        return Body(*(torch.where(where.view(-1, *[1] * (now.dim() - 1)), start, now) for start, now in fields))

    def _begin_episodes(self, where: Tensor) -> None:
        self.state["episode_length"].masked_fill_(where, 0)
        self.state["last_actions"].masked_fill_(where.unsqueeze(1), 0.0)
        self._restart(where)

    def _as_observations(self, obs: Tensor) -> TensorDict:
        return TensorDict({"policy": obs.clone()}, batch_size=[self.num_envs], device=self.device)
