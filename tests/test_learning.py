"""It learns: the whole pipeline, measured by what a user would see."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from podpo.evaluation import evaluate, evaluation_seed, zero_agent
from podpo.presets import preset
from podpo.run_folder import create_run
from podpo.tasks import make_task
from podpo.training import Training


def learn(tmp_path: Path, task: str, iterations: int, **changes: object) -> tuple[float, float]:
    """Noise-free return after training, and that of an agent that does nothing."""
    config = replace(preset(task), max_iterations=iterations, eval_interval=1000, logger="none", **changes)
    config = replace(config, log_root=str(tmp_path))
    idle = make_task(task, 256, evaluation_seed(config.seed, "training"))
    training = Training(config, create_run(config), Console(quiet=True))
    return training.run()["zero"].return_mean, evaluate(zero_agent(idle), idle).return_mean


@pytest.mark.parametrize("seed", [1, 2])
def test_bandit_is_learned(tmp_path: Path, seed: int) -> None:
    learned, idle = learn(tmp_path, "bandit", 12, seed=seed)
    assert idle < 0.01, "the middle between the modes pays nothing"
    assert learned > 0.7


def test_point_track_is_learned(tmp_path: Path) -> None:
    learned, idle = learn(tmp_path, "point-track", 12)
    assert idle < 15
    assert learned > 1.7 * idle
