"""Drifting as a plain generative model: a small network learns a swiss roll, in one step from noise.

    uv run python examples/swiss_roll.py --out swiss_roll.png

The positives are data, the negatives the samples themselves, and the field is that of the original drifting
models (Deng et al., 2026).
"""

import argparse

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

from podpo.drift import FIELD_PRESETS, candidate_V, drift_loss


class Generator(nn.Module):
    def __init__(self, width: int = 128) -> None:
        super().__init__()
        sizes = [2, width, width, width]
        hidden = [layer for n in range(3) for layer in (nn.Linear(sizes[n], sizes[n + 1]), nn.ReLU())]
        self.net = nn.Sequential(*hidden, nn.Linear(width, 2))

    def forward(self, noise: Tensor) -> Tensor:
        # A fresh network sends all noise to nearly one point, and the field moves that but can't unfold it.
        return noise + self.net(noise)


def swiss_roll(num_points: int) -> Tensor:
    angle = 1.5 * torch.pi * (1 + 2 * torch.rand(num_points))
    spiral = torch.stack([angle * angle.cos(), angle * angle.sin()], dim=1)
    return (spiral + 0.3 * torch.randn(num_points, 2)) / 4


def train(net: nn.Module, num_steps: int, batch_size: int = 128) -> None:
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, num_steps)
    for _ in range(num_steps):
        x = net(torch.randn(1, batch_size, 2))
        V = candidate_V(x, swiss_roll(batch_size)[None], **FIELD_PRESETS["deng2026"])
        optimizer.zero_grad()
        drift_loss(x, V, w=torch.ones(1)).backward()
        optimizer.step()
        schedule.step()


def energy_distance(a: Tensor, b: Tensor) -> float:
    """Near zero where the two samples are distributed alike."""
    return (2 * torch.cdist(a, b).mean() - torch.cdist(a, a).mean() - torch.cdist(b, b).mean()).item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="swiss_roll.png", help="where the picture goes")
    parser.add_argument("--steps", type=int, default=2500, help="optimiser steps")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)  # sets this small are slower on several
    net, noise = Generator(), torch.randn(2000, 2)
    clouds = {"data": swiss_roll(2000), "before": net(noise).detach()}
    train(net, args.steps)
    clouds["after"] = net(noise).detach()
    figure, axes = plt.subplots(1, 3, figsize=(12, 4.4), layout="constrained")
    for ax, (name, cloud) in zip(axes, clouds.items(), strict=True):
        distance = energy_distance(swiss_roll(2000), cloud)
        print(f"energy distance to fresh data, {name}: {distance:.4f}")
        ax.scatter(*cloud.T, s=4, alpha=0.5, linewidths=0, color="tab:gray" if name == "data" else "tab:blue")
        ax.set(title=f"{name} (energy distance {distance:.4f})", aspect="equal", xlim=(-4, 4), ylim=(-4, 4))
    figure.savefig(args.out, dpi=150)
    print(args.out)
