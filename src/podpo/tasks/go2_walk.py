"""The Unitree Go2 walks after commanded velocities in the Genesis simulator.

The task is the one that Genesis' own Go2 example trains; `Go2WalkFixed` has its command, too, `Go2Walk` draws commands
at random. The most that 20 s can pay is 24: 1.0 a second for the planar velocity and 0.2 for the turn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from podpo.tasks import rewards
from podpo.tasks.robot_task import Body, RobotTask

LEGS = ("FL", "FR", "RL", "RR")
HEIGHT_M = 0.3
MAX_TILT_RAD = math.radians(10)
COMMAND_S = 4.0
"""Seconds until another command."""


class Go2Walk(RobotTask):
    """Commands (forward, left, turn) at random, anew every four seconds."""

    robot_file = "urdf/go2/urdf/go2.urdf"
    joint_names = tuple(f"{leg}_{joint}_joint" for leg in LEGS for joint in ("hip", "thigh", "calf"))
    default_pose_rad = (0.0, 0.8, -1.5) * 2 + (0.0, 1.0, -1.5) * 2
    start_pos_m = (0.0, 0.0, 0.42)
    kp, kd = 20.0, 0.5
    action_scale = 0.25
    num_obs = 45
    num_filmed = 1
    film_steps = 400
    film_stride = 2
    film_fps = 25
    reward_weights: Mapping[str, float] = {
        "tracking_lin_vel": 1.0,
        "tracking_ang_vel": 0.2,
        "lin_vel_z": -1.0,
        "base_height": -50.0,
        "action_rate": -0.005,
        "similar_to_default": -0.1,
    }
    num_randoms = 3
    command_range = ((-1.0, -0.5, -1.0), (1.0, 0.5, 1.0))
    """Least and largest command: forward [m/s], left [m/s], turn [rad/s]."""

    def _own_state(self) -> dict[str, Tensor]:
        low, high = (torch.tensor(bound, device=self.device) for bound in self.command_range)
        self.command_low, self.command_span = low, high - low
        self.command_scale = torch.tensor([2.0, 2.0, 0.25], device=self.device)
        self.steps_per_command = round(COMMAND_S / self.step_dt)
        return {"command": low.repeat(self.num_envs, 1)}

    def _restart(self, where: Tensor) -> None:
        drawn = self.command_low + self.command_span * self.state["randoms"]
        command = self.state["command"]
        command.copy_(torch.where(where.unsqueeze(1), drawn, command))

    def _move_on(self) -> None:
        self._restart(self.episode_length_buf % self.steps_per_command == 0)

    def _observe(self, body: Body) -> Tensor:
        return torch.cat(
            [
                body.ang_vel_b * 0.25,
                body.gravity_b,
                self.state["command"] * self.command_scale,
                body.joint_pos_rad - self.default_pose,
                body.joint_vel * 0.05,
                self.state["last_actions"],
            ],
            dim=1,
        )

    def _reward_terms(self, body: Body) -> list[Tensor]:
        state = self.state
        return [
            rewards.tracking(rewards.planar_velocity_error_squared(body.lin_vel_b, state["command"])),
            rewards.tracking(rewards.yaw_rate_error_squared(body.ang_vel_b, state["command"])),
            rewards.vertical_velocity(body.lin_vel_b),
            rewards.height_error(body.height_m, HEIGHT_M),
            rewards.action_rate(state["actions"], state["last_actions"]),
            rewards.distance_from_pose(body.joint_pos_rad, self.default_pose),
        ]

    def _failed(self, body: Body) -> Tensor:
        """Where roll or pitch are too large; as angles: sin(pitch) = g_x, tan(roll) = g_y / g_z."""
        x, y, z = body.gravity_b.unbind(dim=1)
        return (x.abs() > math.sin(MAX_TILT_RAD)) | (y.abs() > -z * math.tan(MAX_TILT_RAD))

    def _measure(self, body: Body) -> dict[str, Tensor]:
        planar = rewards.planar_velocity_error_squared(body.lin_vel_b, self.state["command"])
        turn = rewards.yaw_rate_error_squared(body.ang_vel_b, self.state["command"])
        tracked = (rewards.tracking(planar) + 0.2 * rewards.tracking(turn)) / 1.2
        return {"velocity_error_squared": planar, "tracking": tracked}

    def summarize(self, measures: Mapping[str, float]) -> dict[str, float]:
        return {"velocity_rmse_m_s": math.sqrt(measures["velocity_error_squared"]), "tracking": measures["tracking"]}


class Go2WalkFixed(Go2Walk):
    """Forward at half a metre per second, always."""

    command_range = ((0.5, 0.0, 0.0), (0.5, 0.0, 0.0))
