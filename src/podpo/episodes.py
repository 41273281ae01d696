"""What the episodes that training finishes have earned."""

from __future__ import annotations

from collections import deque

import torch
from torch import Tensor

EPISODES_REMEMBERED = 100
"""Finished episodes in the running mean of the training return, as in rsl_rl."""


class Episodes:
    """Return and length of the episodes that training finishes."""

    def __init__(self, num_envs: int, device: str) -> None:
        self.running = torch.zeros(num_envs, 2, device=device)
        self.finished: deque[tuple[float, float]] = deque(maxlen=EPISODES_REMEMBERED)
        self._unread: list[tuple[Tensor, Tensor]] = []

    def add(self, rewards: Tensor, dones: Tensor) -> None:
        self.running = self.running + torch.stack([rewards, torch.ones_like(rewards)], dim=1)
        ended = dones.bool()
        self._unread.append((self.running, ended))
        self.running = torch.where(ended.unsqueeze(1), 0.0, self.running)

    def read(self) -> None:
        """Take note of the episodes that ended; once per rollout, since a GPU must be waited for."""
        totals, ended = (torch.stack(steps) for steps in zip(*self._unread, strict=True))
        self.finished.extend((r, n) for r, n in totals[ended].tolist())
        self._unread.clear()

    def means(self) -> dict[str, float]:
        if not self.finished:
            return {}
        returns, lengths = zip(*self.finished, strict=True)
        return {
            "Train/mean_reward": sum(returns) / len(returns),
            "Train/mean_episode_length": sum(lengths) / len(lengths),
        }
