"""Ranks that train together: nobody waits for ever, nobody drifts apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from conftest import PPO_FILE, roll_out

from podpo.algorithm import PODPO
from podpo.ranks import Ranks
from podpo.tasks import make_task


def build(rank: int, world_size: int, **algorithm: Any) -> tuple[PODPO, Any]:
    torch.manual_seed(rank)
    env = make_task("point-track", 8, rank)
    cfg = PPO_FILE | {
        "algorithm": {"class_name": "podpo:PODPO", "num_mini_batches": 2, "num_learning_epochs": 2, **algorithm},
        "multi_gpu": {"global_rank": rank, "local_rank": rank, "world_size": world_size},
    }
    algorithm_built = PODPO.construct_algorithm(env.get_observations(), env, cfg, "cpu")
    algorithm_built.train_mode()
    algorithm_built.broadcast_parameters()
    return algorithm_built, env


def watch_gradients(algorithm: PODPO) -> dict[str, list[torch.Tensor]]:
    """The critic's first gradients of each minibatch, as this rank found them and as they were applied."""
    seen: dict[str, list[torch.Tensor]] = {"own": [], "applied": []}
    average, weight = algorithm.ranks.average_gradients, next(algorithm.critic.parameters())

    def averaged(parameters: Any) -> None:
        seen["own"].append(torch.clone(weight.grad))  # pyright: ignore[reportArgumentType]
        average(parameters)
        seen["applied"].append(torch.clone(weight.grad))  # pyright: ignore[reportArgumentType]

    algorithm.ranks.average_gradients = averaged
    return seen


def train_rank(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    algorithm, env = build(rank, 2, step_size="adaptive", ema_decay=0.5)
    gradients = watch_gradients(algorithm)
    advantages = []
    for iteration in range(3):
        roll_out(algorithm, env)
        advantages.append(algorithm.storage.advantages.clone())
        if rank == 1 and iteration == 1:
            algorithm.storage.advantages.fill_(-1.0)  # nothing that this rank did was good
        algorithm.update()
    positives = (advantages[0] > 0).sum().item()
    saved = algorithm.save() | {"advantages": advantages[0], "rate": algorithm.learning_rate, "gradients": gradients}
    saved |= {"displacement": algorithm.diagnostics["Drift/displacement"], "positives": positives}
    saved |= {"count": algorithm._loss_count(torch.arange(positives), advantages[0])}
    torch.save(saved, f"{folder}/rank{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
def test_ranks_agree_even_when_one_has_no_positive_sample(tmp_path: Path) -> None:
    mp.spawn(train_rank, args=(str(tmp_path),), nprocs=2, join=True)  # pyright: ignore[reportPrivateImportUsage]
    ranks = [torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) for rank in range(2)]
    for name in ("actor_state_dict", "critic_state_dict", "averaged_actor_state_dict"):
        for key, value in ranks[0][name].items():
            assert torch.isfinite(value.float()).all()
            assert torch.equal(value, ranks[1][name][key]), f"{name} {key}"
    assert ranks[0]["rate"] == ranks[1]["rate"]
    assert ranks[0]["displacement"] == ranks[1]["displacement"]
    expected = (ranks[0]["positives"] + ranks[1]["positives"]) / 2 / 2  # ranks, minibatches
    assert ranks[0]["positives"] != ranks[1]["positives"]
    assert ranks[0]["count"] == ranks[1]["count"] == expected
    own = torch.stack([torch.stack(r["gradients"]["own"]) for r in ranks])
    for rank in ranks:
        # Clipping, which follows, would show if the mean were not what is applied.
        assert torch.allclose(torch.stack(rank["gradients"]["applied"]), own.mean(dim=0), atol=1e-6)
    assert not torch.allclose(own[0], own[1])
    together = torch.cat([r["advantages"] for r in ranks])
    assert together.mean().abs() < 1e-5
    assert together.std().item() == pytest.approx(1.0, abs=1e-4)
    # Each rank alone is not normalised: it is the union that is.
    assert ranks[0]["advantages"].mean().abs() > 1e-4


def test_one_rank_needs_no_process_group() -> None:
    ranks = Ranks(None)
    x = torch.tensor([1.0, 2.0, 3.0, 6.0])
    mean, std = ranks.moments(x)
    assert (mean.item(), std.item()) == pytest.approx((3.0, x.std().item()))
    assert torch.equal(ranks.mean(x), x)
    layer = torch.nn.Linear(1, 1)
    ranks.average_gradients(layer.parameters())
    assert layer.weight.grad is None
