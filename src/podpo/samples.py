"""A finished rollout as one batch of samples, and the minibatches that an update takes from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from rsl_rl.storage import RolloutStorage
from tensordict import TensorDict
from torch import Tensor


class Samples(NamedTuple):
    """A rollout, flattened over steps and environments."""

    obs: TensorDict
    actions: Tensor
    values: Tensor
    returns: Tensor
    advantages: Tensor


def flatten_rollout(storage: RolloutStorage) -> Samples:
    """`[T, N, ...]` to `[T N, ...]`; advantages lose their last dimension of one."""
    fields = (storage.actions, storage.values, storage.returns, storage.advantages)
    actions, values, returns, advantages = (field.flatten(0, 1) for field in fields)
    observations = storage.observations.flatten(0, 1)
    assert isinstance(observations, TensorDict)
    return Samples(observations, actions, values, returns, advantages.squeeze(-1))


def minibatches(
    positives: Tensor, num_samples: int, num_epochs: int, num_batches: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Index pairs: some of the positive samples for the actor, some of all samples for the critic.

    Each epoch deals out every sample once. A minibatch without positives still counts: every rank must take as
    many steps as the others.
    """
    for _ in range(num_epochs):
        shuffled_positives = positives[torch.randperm(len(positives), device=positives.device)]
        shuffled = torch.randperm(num_samples, device=positives.device)
        yield from zip(shuffled_positives.tensor_split(num_batches), shuffled.tensor_split(num_batches), strict=True)
