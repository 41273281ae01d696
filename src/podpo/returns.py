"""Advantages and value targets, with failures told apart from time-outs. Pure tensors."""

from __future__ import annotations

import torch
from torch import Tensor


def gae(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    gamma: float,
    lam: float,
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation over T steps of N environments; all arguments are `[T, N]`.

        delta_t = r_t + gamma (1 - terminated_t) V(s_{t+1}) - V(s_t)
        A_t     = delta_t + gamma lam (1 - terminated_t) (1 - truncated_t) A_{t+1}

    An episode that failed has no future; one that ran out of time has one, worth `next_values`, although the
    next row belongs to another episode.

    Args:
        rewards: r_t.
        values: V(s_t).
        next_values: V of the state that the action led to, before any reset.
        terminated: 1 where the episode ended for good.
        truncated: 1 where the clock ended it.

    Returns:
        Advantages A_t and value targets A_t + V(s_t), both `[T, N]`.
    """
    terminated, truncated = terminated.to(values.dtype), truncated.to(values.dtype)
    delta = rewards + gamma * (1 - terminated) * next_values - values
    carry = gamma * lam * (1 - terminated) * (1 - truncated)
    advantages = torch.empty_like(delta)
    advantage = torch.zeros_like(delta[0])
    for t in reversed(range(len(delta))):
        advantage = delta[t] + carry[t] * advantage
        advantages[t] = advantage
    return advantages, advantages + values


def next_state_values(
    values: Tensor, last_values: Tensor, truncated: Tensor, final_values: Tensor | None = None
) -> Tensor:
    """V of the state each action led to, `[T, N]`.

    Where the clock ended an episode, the following row already belongs to the next one. Its true successor is
    worth `final_values` where the environment hands out its last observation; otherwise V(s_t) stands in for
    it, which is rsl_rl's convention.

    Args:
        values: V(s_t), `[T, N]`.
        last_values: V after the last step, `[N]`.
        truncated: 1 where the clock ended the episode, `[T, N]`.
        final_values: V(s_final), `[T, N]`, read only where `truncated`.
    """
    following = torch.cat([values[1:], last_values[None]])
    return torch.where(truncated.bool(), values if final_values is None else final_values, following)


def standardize(advantages: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Zero mean and unit variance, given the moments (those of all ranks when training is distributed)."""
    return (advantages - mean) / (std + 1e-8)


def value_loss(values: Tensor, old_values: Tensor, returns: Tensor, clip: float | None) -> Tensor:
    """PPO's value loss: squared error, the worse of moved freely and moved by at most `clip`. Any shapes alike."""
    error = (values - returns).square()
    if clip is None:
        return error.mean()
    clipped = old_values + (values - old_values).clamp(-clip, clip)
    return torch.maximum(error, (clipped - returns).square()).mean()
