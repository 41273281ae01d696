"""What the ranks of a distributed training tell each other; with one rank, nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
import torch.distributed as dist
from torch import Tensor, nn


class Ranks:
    """The processes that train one policy together, each on its own environments."""

    def __init__(self, multi_gpu_cfg: Mapping[str, int] | None = None) -> None:
        self.world_size = multi_gpu_cfg["world_size"] if multi_gpu_cfg else 1
        self.is_distributed = self.world_size > 1

    def mean(self, x: Tensor) -> Tensor:
        """Mean over ranks, entry by entry."""
        if self.is_distributed:
            x = x.clone()
            dist.all_reduce(x)
        return x / self.world_size

    def mean_number(self, number: float, device: str) -> float:
        """Mean over ranks of a number that each has in hand."""
        if not self.is_distributed:
            return number  # no tensor, so that a GPU need not be waited for
        return self.mean(torch.tensor(number, device=device)).item()

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and (unbiased) standard deviation of all entries on all ranks."""
        mean = self.mean(x.mean())
        variance = self.mean((x - mean).square().mean())
        count = x.numel() * self.world_size
        return mean, (variance * count / max(count - 1, 1)).sqrt()

    def average_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Average gradients; a parameter without one takes part with zero, or ranks would wait for ever."""
        if not self.is_distributed:
            return
        gradients: list[Tensor] = []
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            gradients.append(parameter.grad)
        packed = self.mean(torch.cat([g.flatten() for g in gradients]))
        for gradient, part in zip(gradients, packed.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def broadcast(self, modules: Iterable[nn.Module]) -> None:
        """Give every rank the parameters and buffers of the first."""
        if not self.is_distributed:
            return
        for module in modules:
            for tensor in module.state_dict().values():
                dist.broadcast(tensor, src=0)
