"""Drifting as a plain generative model: a small network learns a swiss roll in one step from noise.

    uv run python examples/swiss_roll.py --out swiss_roll.png

No reinforcement learning here: the positives are data, the negatives are the samples themselves, and the
field is that of the original drifting models (Deng et al., 2026).
"""

import argparse
import time

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

from podpo.drift import FIELD_PRESETS, compute_V, drift_loss


def swiss_roll(num_points: int) -> Tensor:
    """Points of a noisy spiral of about unit size, `[num_points, 2]`."""
    angle = 1.5 * torch.pi * (1 + 2 * torch.rand(num_points))
    spiral = torch.stack([angle * angle.cos(), angle * angle.sin()], dim=1)
    return (spiral + 0.3 * torch.randn(num_points, 2)) / 8


def generator() -> nn.Module:
    """Noise `[..., 2]` to a point `[..., 2]`, in one step."""
    return nn.Sequential(
        nn.Linear(2, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 2)
    )


def train(net: nn.Module, num_steps: int, batch_size: int = 256) -> None:
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, num_steps)
    for _ in range(num_steps):
        x = net(torch.randn(1, batch_size, 2))
        V = compute_V(x, swiss_roll(batch_size)[None], x, **FIELD_PRESETS["deng2026"])
        loss = drift_loss(x, V, w=torch.ones(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


def energy_distance(a: Tensor, b: Tensor) -> float:
    """0 where two samples have the same distribution."""
    return (2 * torch.cdist(a, b).mean() - torch.cdist(a, a).mean() - torch.cdist(b, b).mean()).item()


@torch.no_grad()
def sample(net: nn.Module, num_points: int) -> Tensor:
    return net(torch.randn(num_points, 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="swiss_roll.png")
    parser.add_argument("--steps", type=int, default=2000)
    args = parser.parse_args()
    torch.manual_seed(0)
    net, data = generator(), swiss_roll(2000)
    before = energy_distance(data, sample(net, 2000))
    start = time.perf_counter()
    train(net, args.steps)
    elapsed_s = time.perf_counter() - start
    samples = sample(net, 2000)
    print(f"energy distance {before:.4f} -> {energy_distance(data, samples):.4f} in {elapsed_s:.1f} s")
    print(f"two draws of data: {energy_distance(data, swiss_roll(2000)):.4f}")
    figure, axes = plt.subplots(1, 2, figsize=(8, 4), sharex=True, sharey=True)
    for ax, cloud, title in zip(axes, (data, samples), ("data", "one-step samples"), strict=True):
        ax.scatter(*cloud.T, s=2)
        ax.set_title(title)
        ax.set_aspect("equal")
    figure.savefig(args.out, dpi=150, bbox_inches="tight")


if __name__ == "__main__":
    main()
