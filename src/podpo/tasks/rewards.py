"""Rewards and penalties of walking, as pure functions: each returns one number for each environment.

Velocities are in the frame of the robot's base (`_b`), heights in that of the world.
"""

from __future__ import annotations

import torch
from torch import Tensor

TRACKING_WIDTH = 0.25
"""Squared error [m²/s² or rad²/s²] at which a tracking reward has fallen to 1/e."""


def tracking(error_squared: Tensor) -> Tensor:
    """1 where a command is met, towards 0 as the squared error grows."""
    return torch.exp(-error_squared / TRACKING_WIDTH)


def planar_velocity_error_squared(lin_vel_b: Tensor, command: Tensor) -> Tensor:
    """Squared distance [m²/s²] from the commanded velocity; `command` is (forward, left [m/s], turn [rad/s])."""
    return (command[:, :2] - lin_vel_b[:, :2]).square().sum(dim=1)


def yaw_rate_error_squared(ang_vel_b: Tensor, command: Tensor) -> Tensor:
    """Squared distance [rad²/s²] from the commanded turn."""
    return (command[:, 2] - ang_vel_b[:, 2]).square()


def vertical_velocity(lin_vel_b: Tensor) -> Tensor:
    """Squared velocity along the base's vertical axis [m²/s²]."""
    return lin_vel_b[:, 2].square()


def height_error(height_m: Tensor, target_m: float) -> Tensor:
    """Squared distance of the base from its target height [m²]."""
    return (height_m - target_m).square()


def action_rate(actions: Tensor, last_actions: Tensor) -> Tensor:
    """Squared change of the action from one step to the next, summed over joints."""
    return (actions - last_actions).square().sum(dim=1)


def distance_from_pose(joint_pos_rad: Tensor, pose_rad: Tensor) -> Tensor:
    """Distance of the joints from a pose [rad], summed over joints."""
    return (joint_pos_rad - pose_rad).abs().sum(dim=1)
