from __future__ import annotations

import math

import pytest
import torch

from podpo.tasks import rewards


def test_tracking_is_one_on_the_command_and_falls_to_1_over_e() -> None:
    assert rewards.tracking(torch.tensor([0.0, 0.25, 1.0])).tolist() == pytest.approx([1, 1 / math.e, math.exp(-4)])


def test_velocity_errors_by_hand() -> None:
    lin_vel_b = torch.tensor([[0.5, 0.1, 9.0], [-1.0, 0.0, 0.2]])
    ang_vel_b = torch.tensor([[7.0, 7.0, 0.5], [0.0, 0.0, -1.0]])
    command = torch.tensor([[1.0, -0.1, 0.2], [-1.0, 0.0, 1.0]])
    # (1 - 0.5)^2 + (-0.1 - 0.1)^2; the vertical velocity has no part in it
    assert rewards.planar_velocity_error_squared(lin_vel_b, command).tolist() == pytest.approx([0.29, 0.0])
    assert rewards.yaw_rate_error_squared(ang_vel_b, command).tolist() == pytest.approx([0.09, 4.0])
    assert rewards.vertical_velocity(lin_vel_b).tolist() == pytest.approx([81.0, 0.04])


def test_penalties_by_hand() -> None:
    assert rewards.height_error(torch.tensor([0.3, 0.2, 0.5]), 0.3).tolist() == pytest.approx([0.0, 0.01, 0.04])
    actions, last = torch.tensor([[1.0, -2.0]]), torch.tensor([[0.0, 1.0]])
    assert rewards.action_rate(actions, last).tolist() == [10.0]
    pose = torch.tensor([0.5, -0.5])
    assert rewards.distance_from_pose(torch.tensor([[0.0, 0.5]]), pose).tolist() == [1.5]
